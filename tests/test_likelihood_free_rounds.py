"""Rounds that are made where they pay: regions of the prior against closed forms."""

import numpy as np
import pytest
from scipy import stats

import kernelbayes as kb
from kernelbayes.likelihood_free.posterior import make_posterior
from kernelbayes.likelihood_free.reweight import LEAST_REGION, OUTSIDE, Region
from normal_means import closed_form

LINEAR = {"method": "adjusted", "adjust": "linear"}
BROAD = 30.0  # deviation of a prior, in deviations of the noise


def simulator(theta, rng):
    return rng.normal(theta, 1.0)


def bent(theta, rng):
    return rng.normal(np.sinh(theta / 10.0) * 10.0, 1.0)


def normal_posterior(mean, sd, prior, d=1, n=400):
    points = np.random.default_rng(3).normal(mean, sd, size=(n, d))
    return make_posterior(points, np.full(n, 1.0 / n), kb.as_prior(prior))


# -- regions ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("known", ["marginals", "density", "draws"])
def test_draws_in_a_region_are_those_of_the_prior_given_the_region(known):
    sources = {
        "marginals": stats.norm(0, 3),
        "density": stats.multivariate_normal(0, 9),
        "draws": lambda n, rng: rng.normal(0, 3, size=(n, 1)),
    }
    prior = kb.as_prior(sources[known])
    region = Region.of(normal_posterior(2.0, 0.5, prior), prior, np.random.default_rng(0))
    drawn = region.draw(2000, np.random.default_rng(1))[:, 0]
    assert np.all(region.inside(drawn[:, None]))
    # One peak: the region is an interval, its ends seen on a fine grid.
    grid = np.linspace(-12, 12, 20001)
    low, high = grid[region.inside(grid[:, None])][[0, -1]]
    exact = stats.truncnorm(low / 3, high / 3, scale=3)
    assert stats.kstest(drawn, exact.cdf).pvalue > 1e-4
    share = stats.norm.cdf(high / 3) - stats.norm.cdf(low / 3)
    assert region.share == pytest.approx(share, abs=4 * np.sqrt(share / 5000) + 0.01 * share)
    # It holds all of the posterior but the share OUTSIDE, known to the deviation of the lowest of
    # a thousand draws (that of an exponential variable, 100 %).
    own = region.posterior.sample(20_000, rng=2)
    assert np.mean(~region.inside(own)) < OUTSIDE * (1 + 4 * 1.1)


def test_a_region_in_a_region():
    prior = kb.as_prior([stats.norm(0, 3)] * 2)
    rng = np.random.default_rng(0)
    first = Region.of(normal_posterior(1.0, 1.0, prior, 2), prior, rng)
    second = Region.of(normal_posterior(1.5, 0.3, prior, 2), prior, rng, first)
    drawn = second.draw(500, rng)
    assert np.all(first.inside(drawn))
    assert np.all(second.inside(drawn))
    # Draws of the first that lie in the second are as those of the second: equal weights.
    wide = first.draw(20_000, rng)
    again = wide[second.inside(wide)]
    assert len(again) / len(wide) == pytest.approx(second.share, rel=0.3)  # 4 errors of 500 draws
    for j in range(2):
        assert stats.ks_2samp(drawn[:, j], again[:, j]).pvalue > 1e-4
    far = np.array([[9.0, 9.0]])
    assert second.restricted().log_density(far) == [-np.inf]
    here = drawn[:5]
    given = prior.log_density(here) - np.log(first.share * second.share)  # a density: of mass one
    np.testing.assert_allclose(second.restricted().log_density(here), given)


def test_a_region_is_never_too_small_to_draw_from():
    prior = kb.as_prior(stats.norm(0, 1000.0))
    region = Region.of(normal_posterior(0.0, 0.01, prior), prior, np.random.default_rng(0))
    assert region.share >= LEAST_REGION
    assert region.draw(10, np.random.default_rng(1)).shape == (10, 1)


def test_a_region_of_counts():
    prior = kb.as_prior({"count": stats.poisson(50.0), "shift": stats.norm(0, 5)})
    counts = np.random.default_rng(1).poisson(20.0, size=300)
    points = np.column_stack([counts, np.random.default_rng(2).normal(size=300)])
    posterior = make_posterior(points, np.full(300, 1 / 300), prior)
    region = Region.of(posterior, prior, np.random.default_rng(0))
    drawn = region.draw(300, np.random.default_rng(0))
    assert np.all(drawn[:, 0] == np.rint(drawn[:, 0]))
    assert np.all(region.inside(drawn))
    assert len(np.unique(drawn[:, 0])) > 5


# -- infer -----------------------------------------------------------------------------------------


def test_a_broad_prior_is_narrowed():
    prior, ratios, wide = stats.norm(0, BROAD), [], []
    for seed in range(4):
        x = stats.norm(0, BROAD / 2).rvs(random_state=np.random.default_rng([seed, 1]))
        found = kb.infer(simulator, prior, x, 300, rng=seed, rounds="auto", **LINEAR)
        assert found.diagnostics.rounds > 1
        assert found.suggestion is None
        mean, var = closed_form(x, var=BROAD**2, noise=1.0)
        assert abs(found.mean()[0] - mean) < np.sqrt(var)
        ratios.append(found.std()[0] / np.sqrt(var))
        plain = kb.infer(simulator, prior, x, 300, rng=seed, method="adjusted", adjust="none")
        assert "rounds='auto'" in plain.suggestion
        wide.append(plain.std()[0] / np.sqrt(var))
    assert np.mean(ratios) == pytest.approx(1.0, abs=0.15)
    assert np.mean(wide) > 1.15


@pytest.mark.slow
def test_a_broad_prior_and_a_bent_simulator():
    grid, ratios = np.linspace(-200, 200, 400_001), []
    prior = stats.norm(0, BROAD)
    for seed in range(6):
        truth = np.random.default_rng([seed, 1]).normal(0, BROAD / 2)
        x = float(bent(truth, np.random.default_rng([seed, 2])))
        logs = stats.norm(x, 1.0).logpdf(np.sinh(grid / 10.0) * 10.0) + prior.logpdf(grid)
        w = np.exp(logs - logs.max())
        exact = np.sqrt(np.cov(grid, aweights=w))
        found = kb.infer(bent, prior, x, 600, rng=seed, rounds="auto")
        ratios.append(found.std()[0] / exact)
    assert np.mean(ratios) == pytest.approx(1.0, abs=0.15)


def test_one_round_is_enough_for_a_prior_like_the_posterior():
    found = kb.infer(simulator, stats.norm(0, 1), 0.5, 300, rng=0, rounds="auto", **LINEAR)
    assert (found.diagnostics.rounds, found.diagnostics.n_simulations) == (1, 300)
    assert found.suggestion is None
    mean, var = closed_form(0.5, noise=1.0)
    assert abs(found.mean()[0] - mean) < 0.5 * np.sqrt(var)
    one = kb.infer(simulator, stats.norm(0, 1), 0.5, 300, rng=0, **LINEAR)
    assert one.suggestion is None
    assert one.diagnostics.rounds == 1


@pytest.mark.parametrize(
    "prior",
    [
        lambda n, rng: rng.normal(0.0, BROAD, size=(n, 1)),
        stats.uniform(-60, 120),
        {"a": stats.norm(0, BROAD)},
        stats.randint(-60, 60),
    ],
)
def test_priors_of_all_kinds_are_narrowed(prior):
    found = kb.infer(simulator, prior, [10.0], 300, rng=0, rounds="auto", **LINEAR)
    assert found.diagnostics.rounds > 1
    assert abs(found.mean()[0] - 10.0) < 1.5
    drawn = found.sample(200, rng=0)
    assert np.all(found.prior.inside(drawn))


def test_a_simplex_has_one_round():
    prior = stats.dirichlet([1.0, 1.0, 1.0])
    found = kb.infer(simulator, prior, [0.3, 0.3, 0.4], 200, rng=0, rounds="auto", **LINEAR)
    assert found.diagnostics.rounds == 1
    assert found.suggestion is None


def test_narrowed_rounds_are_continued_from_a_file(tmp_path):
    asked = (simulator, stats.norm(0, BROAD), 5.0, 150)
    options = {"rng": 0, "rounds": "auto", "method": "adjusted", "adjust": "location"}
    whole = kb.infer(*asked, **options)
    path = tmp_path / "runs.kb"
    kb.infer(*asked, keep=path, **options)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.warns(UserWarning, match="damaged"):
        again = kb.infer(*asked, keep=path, **options)
    np.testing.assert_array_equal(again.points, whole.points)


def test_nearly_all_simulations_were_made_before():
    prior = stats.norm(0, BROAD)
    done = kb.simulate(simulator, prior, 199, rng=1)
    found = kb.infer(simulator, prior, [3.0], 200, rng=0, rounds="auto", simulations=done, **LINEAR)
    assert found.diagnostics.rounds == 1  # a single simulation is no round
    assert found.diagnostics.n_simulations == 200


def test_rounds_that_are_no_rounds():
    with pytest.raises(ValueError, match="rounds must be"):
        kb.infer(simulator, stats.norm(), 0.0, 200, rounds="many")


def test_suggestions_of_a_fitted_model_and_of_posteriors_without_a_prior():
    theta = np.random.default_rng(0).normal(0, BROAD, size=(200, 1))
    x = simulator(theta, np.random.default_rng(1))
    near = {"method": "adjusted", "adjust": "location"}
    model = kb.LikelihoodFree(stats.norm(0, BROAD), rng=0, **near).fit(theta, x)
    assert [word is not None for word in model.posterior([[0.5], [2.0]]).suggestion] == [True] * 2
    assert kb.LikelihoodFree(rng=0, **near).fit(theta, x).posterior(0.5).suggestion is None
    assert normal_posterior(0.0, 1.0, stats.norm(0, BROAD)).suggestion is None  # not of simulations


@pytest.mark.parametrize("seed", [0, 1])
def test_densities_after_rounds_integrate_to_one(seed):
    posterior = kb.infer(
        lambda t, rng: t + 0.1 * rng.normal(size=t.shape), [stats.uniform(-5.0, 10.0)],
        np.array([0.7]), n_simulations=300, rounds=2, method="likelihood", rng=seed,
    )  # fmt: skip
    grid = np.linspace(-1.0, 3.0, 4001)
    mass = np.sum(np.exp(posterior.log_density(grid[:, None]))) * (grid[1] - grid[0])
    # Evidence by importance sampling with some hundred effective draws; it was .90.
    assert mass == pytest.approx(1.0, abs=0.06)
