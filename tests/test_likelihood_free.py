"""Likelihood-free inference against closed forms and enumeration."""

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import kernelbayes as kb
from kernelbayes import LikelihoodFree, NumericalWarning, Posterior, Posteriors, infer
from normal_means import FEW, METHODS, NOISE, OBSERVED, assert_close, closed_form, fitted, pairs

# -- closed forms ----------------------------------------------------------------------------------


def check_gaussian(model, n, d):
    observed = np.tile(OBSERVED[:, None], (1, d))
    posteriors = model.posterior(observed)
    assert isinstance(posteriors, Posteriors)
    for x, posterior in zip(observed, posteriors, strict=True):
        assert_close(posterior, *closed_form(x), n)
        correlation = np.corrcoef(posterior.sample(2000, rng=1).T).reshape(d, d)
        counted = min(posterior.diagnostics.ess, n / 10)
        assert np.all(np.abs(correlation - np.eye(d)) < 4 / np.sqrt(counted))


@pytest.mark.parametrize("method", METHODS)
def test_gaussian_in_one_dimension(method, request):
    shared = {"auto": "automatic", "adjusted": "adjusted", "likelihood": "likelihood"}
    name = shared.get(method)
    model = request.getfixturevalue(name) if name else fitted(500, method=method)
    check_gaussian(model, 500, 1)


@pytest.mark.parametrize("method", ["cme", "adjusted"])
def test_gaussian_in_two_dimensions(method):
    check_gaussian(fitted(500, 2, method), 500, 2)


@pytest.mark.slow
@pytest.mark.parametrize("d", [2, 6])
@pytest.mark.parametrize("method", METHODS)
def test_gaussian_in_more_dimensions(method, d):
    n = 2000
    model = fitted(n, d, method)
    if d == 2 or method in ("auto", "adjusted", "likelihood"):
        check_gaussian(model, n, d)
        return
    # Weights alone see few neighbours in six dimensions; the adjustment must carry the mean.
    x = np.full(d, 0.5)
    mean, var = closed_form(x)
    assert np.all(np.abs(model.posterior(x).mean() - mean) < np.sqrt(var))


def test_infer_is_the_amortised_form_in_one_line():
    def simulator(theta, rng):
        return rng.normal(theta, NOISE)

    posterior = infer(simulator, stats.norm(), 1.0, 400, rng=0, **FEW)
    assert isinstance(posterior, Posterior)
    assert_close(posterior, *closed_form(1.0), 400)
    report = posterior.diagnostics
    assert (report.n_simulations, report.failed) == (400, 0)
    again = report.model.posterior(1.0)
    np.testing.assert_array_equal(again.points, posterior.points)
    # The simulations can be used again, and continued.
    more = infer(simulator, stats.norm(), 1.0, 600, rng=1, simulations=report.simulations, **FEW)
    assert more.diagnostics.n_simulations == 600
    np.testing.assert_array_equal(
        more.diagnostics.simulations.theta[:400], report.simulations.theta
    )


def check_rounds(prior, n, **options):
    def simulator(theta, rng):
        return rng.normal(theta, NOISE)

    posterior = infer(simulator, prior, 1.5, n, rng=0, rounds=3, **options)
    assert posterior.diagnostics.rounds == 3
    assert (
        n / 3 < posterior.diagnostics.n_simulations <= n
    )  # those outside of the region are not used
    assert_close(posterior, *closed_form(1.5, var=9.0), n)


def test_rounds():
    check_rounds(stats.norm(0, 3), 600, **FEW)


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_rounds_with_all_methods(method):
    check_rounds(stats.norm(0, 3), 1000, method=method)


def test_likelihood_under_a_prior_of_draws_in_many_dimensions():
    # Hardly any of the draws of the prior lies in the posterior: a smoothed prior takes over.
    draws = np.random.default_rng(1).normal(size=(3000, 8))
    theta, x = pairs(400, 8, noise=0.3)
    model = LikelihoodFree(draws, "likelihood", rng=0).fit(theta, x)
    posterior = model.posterior(x[0])
    assert posterior.diagnostics.ess > 100
    mean, var = closed_form(x[0], noise=0.3)
    assert_close(posterior, mean, var, 400)


def test_likelihood_under_few_draws_of_a_prior():
    # Drawn again with replacement they have copies, which must not pass for a prior of spikes.
    draws = np.random.default_rng(1).normal(size=(40, 2))
    theta, x = pairs(100, 2, noise=0.1)
    posterior = LikelihoodFree(draws, "likelihood", rng=0).fit(theta, x).posterior([0.3, 0.5])
    assert_close(posterior, *closed_form(np.array([0.3, 0.5]), noise=0.1), 100)


def test_likelihood_under_a_smoothed_prior_keeps_to_its_support():
    prior = kb.as_prior(lambda n, rng: rng.uniform(size=(n, 2)), bounds=(0.0, 1.0))
    theta, x = pairs(100, prior=[stats.uniform()] * 2, noise=0.02)
    posterior = LikelihoodFree(prior, "likelihood", rng=0).fit(theta, x).posterior([0.01, 0.5])
    assert posterior.diagnostics.ess > 200  # more than draws of the prior could give
    assert np.all((posterior.points > 0) & (posterior.points < 1))  # none moved to an edge


class Disc:
    """Uniform on the unit disc: a support that is no box."""

    def rvs(self, size, random_state):
        angle, radius = 2 * np.pi * random_state.uniform(size=size), random_state.uniform(size=size)
        return np.sqrt(radius)[:, None] * np.column_stack([np.cos(angle), np.sin(angle)])

    def logpdf(self, theta):
        return np.where(np.sum(theta**2, axis=1) <= 1, -np.log(np.pi), -np.inf)


def test_adjusted_points_stay_in_a_support_that_is_no_box():
    theta, x = pairs(200, prior=Disc(), noise=0.2)
    model = LikelihoodFree(Disc(), "adjusted", "linear", rng=0).fit(theta, x)
    posterior = model.posterior([0.7, 0.7])
    assert np.all(np.sum(posterior.points**2, axis=1) <= 1)


def test_rounds_with_a_prior_of_draws():
    check_rounds(lambda n, rng: rng.normal(0.0, 3.0, size=(n, 1)), 600, **FEW)


# -- separate values -------------------------------------------------------------------------------


def check_enumeration(method, n, observed):
    """A Poisson rate of 2 theta, theta one of 1, 2, 3, 4."""
    prior, values = stats.randint(1, 5), np.arange(1, 5)
    rng = np.random.default_rng(0)
    theta = prior.rvs(n, random_state=rng)
    model = LikelihoodFree(prior, method, rng=0).fit(theta, rng.poisson(2.0 * theta))
    for x in observed:
        exact = stats.poisson.pmf(x, 2.0 * values)
        exact /= exact.sum()
        posterior = model.posterior(float(x))
        found = np.array([posterior.prob(lambda t, v=v: t[:, 0] == v) for v in values])
        counted = min(posterior.diagnostics.ess, n / 10)
        assert np.all(np.abs(found - exact) < 4 * np.sqrt(0.25 / counted))
        masses = np.exp(posterior.log_density(values[:, None]))
        assert masses.sum() == pytest.approx(1.0, abs=1e-6)
        assert posterior.log_density([[1.5], [5.0]]).tolist() == [-np.inf, -np.inf]
        assert set(posterior.sample(100, rng=0).ravel()) <= set(values)
        assert posterior.map()[0] == values[np.argmax(masses)]


def test_discrete_toy_by_enumeration():
    check_enumeration("adjusted", 500, [2, 9])


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_discrete_toy_by_enumeration_with_all_methods(method):
    check_enumeration(method, 1000, [2, 5, 9])


def check_mixed(method, n):
    """A switch adds two to a normal mean: two normal pieces, weighted by their evidence."""
    prior = [stats.bernoulli(0.4), stats.norm()]
    theta, rng = kb.as_prior(prior).sample(n, 0), np.random.default_rng(1)
    model = LikelihoodFree(prior, method, rng=0).fit(
        theta, rng.normal(theta[:, 1] + 2.0 * theta[:, 0], NOISE)
    )
    for x in (-0.5, 1.0, 2.5):
        share = np.array([0.6, 0.4]) * stats.norm.pdf(x, [0.0, 2.0], np.sqrt(1 + NOISE**2))
        share /= share.sum()
        means, var = closed_form(x - np.array([0.0, 2.0]))
        mean = share @ means
        total = var + share @ means**2 - mean**2
        posterior = model.posterior(x)
        counted = min(posterior.diagnostics.ess, n / 10)
        error = np.abs(posterior.mean() - [share[1], mean])
        assert np.all(error < 4 * np.sqrt(np.array([0.25, total]) / counted))
        drawn = posterior.sample(50, rng=0)
        assert set(drawn[:, 0]) <= {0.0, 1.0}
        assert np.all(np.isfinite(posterior.log_density(drawn)))


def test_mixed_prior_by_enumeration():
    check_mixed("adjusted", 500)


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_mixed_prior_by_enumeration_with_all_methods(method):
    check_mixed(method, 1000)


# -- another prior ---------------------------------------------------------------------------------

NEW = (1.0, 0.5)  # mean and standard deviation of the other prior


def check_new_prior(model, new, n):
    # Of n simulations this share counts under the new prior: 1 / E[ratio^2] under the old one.
    share = stats.norm.rvs(*NEW, size=4000, random_state=0)
    ratio = np.exp(stats.norm.logpdf(share, *NEW) - stats.norm.logpdf(share))
    counted = n / ratio.mean()
    # As likely under the new prior as OBSERVED is under the old one; where there are no simulations
    # a regression extrapolates. Twelve comparisons, all within 5.2 errors but for a chance of 1e-6.
    for x in NEW[0] + OBSERVED * np.sqrt((NEW[1] ** 2 + NOISE**2) / (1.0 + NOISE**2)):
        posterior = model.posterior(x, prior=new)
        assert_close(posterior, *closed_form(x, NEW[0], NEW[1] ** 2), counted, errors=5.2)


@pytest.mark.parametrize("name", ["adjusted", "likelihood"])
def test_prior_changed_after_simulation(name, request):
    model = request.getfixturevalue(name)
    check_new_prior(model, stats.norm(*NEW), 500)
    check_new_prior(model, stats.norm.rvs(*NEW, size=1000, random_state=1), 500)


def test_prior_changed_equals_simulations_from_it(adjusted):
    theta, x = pairs(500, seed=3, prior=stats.norm(*NEW))
    direct = LikelihoodFree(stats.norm(*NEW), "adjusted", rng=0).fit(theta, x).posterior(1.0)
    again = adjusted.posterior(1.0, prior=stats.norm(*NEW))
    # Each has the error of 50 points at least.
    _, var = closed_form(1.0, NEW[0], NEW[1] ** 2)
    assert abs(direct.mean() - again.mean())[0] < 4 * np.sqrt(2 * var / 50)


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_prior_changed_after_simulation_with_all_methods(method):
    model = fitted(1000, method=method)
    check_new_prior(model, stats.norm(*NEW), 1000)
    check_new_prior(model, stats.norm.rvs(*NEW, size=2000, random_state=1), 1000)


def test_prior_without_simulations(adjusted):
    with pytest.warns(NumericalWarning, match="only .* simulations count"):
        posterior = adjusted.posterior(1.0, prior=stats.norm(8.0, 0.3))
    assert np.all(np.isfinite(posterior.mean()))
    with (
        pytest.warns(NumericalWarning, match="only 0 simulations"),
        pytest.raises(ValueError, match="0 simulations lie in the support"),
    ):
        adjusted.posterior(1.0, prior=stats.uniform(50.0, 1.0))
    with pytest.raises(ValueError, match="2 parameters"):
        adjusted.posterior(1.0, prior=[stats.norm(), stats.norm()])


# -- bounds ----------------------------------------------------------------------------------------

BOUNDED = kb.as_prior([stats.uniform(0, 1), stats.gamma(2.0)])
far = st.one_of(st.floats(-1.0, 3.0), st.sampled_from([-1e200, -1e6, -20.0, 20.0, 1e6, 1e200]))


@pytest.fixture(scope="module", params=["cme", "original", "adjusted", "likelihood"])
def bounded(request):
    theta, x = pairs(200, prior=BOUNDED)
    return LikelihoodFree(BOUNDED, request.param, rng=0).fit(theta, x)


@settings(max_examples=5)
@given(st.tuples(far, far))
def test_bounded_priors_are_never_left(bounded, x):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NumericalWarning)
        posterior = bounded.posterior(np.array(x))
        drawn = posterior.sample(20, rng=0)
        for points in (drawn, posterior.points, posterior.map()[None]):
            assert np.all(BOUNDED.inside(points))
        numbers = [posterior.mean(), posterior.cov(), posterior.interval(0.9), drawn]
        assert all(np.all(np.isfinite(number)) for number in numbers)
        assert not np.any(np.isnan(posterior.log_density(drawn)))
    assert posterior.log_density([[-0.1, 1.0], [1.1, 1.0], [0.5, -1.0]]).tolist() == [-np.inf] * 3


@pytest.mark.parametrize(
    ("prior", "low", "high", "x"),
    [
        (stats.uniform(0, 1), 0.0, 1.0, 1.2),
        (stats.gamma(2.0), 0.0, 30.0, 0.3),
        (stats.norm(), -8.0, 8.0, 0.5),
    ],
)
@pytest.mark.parametrize("method", ["adjusted", pytest.param("likelihood", marks=pytest.mark.slow)])
def test_densities_integrate_to_one(prior, low, high, x, method):
    model = LikelihoodFree(prior, method, rng=0).fit(*pairs(200, prior=prior))
    posterior = model.posterior(x)
    grid = np.linspace(low, high, 6001)
    density = np.exp(posterior.log_density(grid[:, None]))
    # The share inside of the support is counted from 2000 draws, one in two of them at worst.
    assert np.trapezoid(density, grid) == pytest.approx(1.0, abs=4 * np.sqrt(1 / 2000) + 0.02)
    assert posterior.log_density([[low - 1e-3]])[0] == -np.inf or low == -8.0


# -- data sets of iid rows -------------------------------------------------------------------------


def iid(n, k, seed):
    rng = np.random.default_rng(seed)
    theta = rng.normal(size=(n, 1))
    return theta, rng.normal(theta[:, :, None], 1.0, size=(n, k, 1))


@pytest.fixture(scope="module")
def blocks():
    models = {k: LikelihoodFree(stats.norm(), rng=0, **FEW) for k in (4, 36)}
    return {k: model.fit(*iid(400, k, seed=k)) for k, model in models.items()}


def test_rows_of_a_data_set_have_no_order(blocks):
    rng = np.random.default_rng(0)
    x = rng.normal(0.5, 1.0, size=(36, 1))
    one, other = (blocks[36].posterior(rows) for rows in (x, rng.permutation(x)))
    np.testing.assert_allclose(one.mean(), other.mean(), atol=1e-9)
    np.testing.assert_allclose(one.cov(), other.cov(), atol=1e-9)


def test_posteriors_narrow_with_the_number_of_rows(blocks):
    for k, model in blocks.items():
        x = np.random.default_rng(1).normal(0.5, 1.0, size=(k, 1))
        mean, var = closed_form(x.mean(), noise=1 / np.sqrt(k))
        assert_close(model.posterior(x), mean, var, 400)


def test_far_from_all_simulations_nothing_lies_beyond_the_prior():
    def simulator(theta, rng):
        y = theta[0] + theta[1] * rng.normal(size=20)
        return [y.mean(), y.std(ddof=1)]

    prior = {"p": stats.uniform(0, 1), "s": stats.halfnorm(scale=2)}
    with pytest.warns(NumericalWarning, match="further from all simulations"):
        posterior = infer(simulator, prior, [40, 0.5], n_simulations=200, rng=0)
    # Of 200 draws of a half-normal, none is above ten deviations.
    assert posterior.points[:, 1].max() < 20.0
    assert {row["verdict"] for row in posterior.summary()} == {
        "outside the sample: partly filled in"
    }
