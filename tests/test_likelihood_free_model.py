"""LikelihoodFree and infer: everything that goes wrong, what comes out, and their coverage."""

import pickle
import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from sklearn.base import clone

import kernelbayes as kb
from kernelbayes import LikelihoodFree, NumericalWarning, Posterior, Posteriors, infer
from normal_means import FEW, METHODS, NOISE, assert_close, closed_form, fitted, pairs

# -- what goes wrong -------------------------------------------------------------------------------


def test_failed_simulations_are_dropped_and_counted():
    theta, x = pairs(300)
    x[::10] = np.nan
    x[5] = np.inf
    with pytest.warns(NumericalWarning, match="31 of 300 simulations"):
        model = LikelihoodFree(stats.norm(), rng=0, **FEW).fit(theta, x)
    posterior = model.posterior(0.5)
    assert (model.failed_, posterior.diagnostics.failed) == (31, 31)
    assert posterior.diagnostics.n_simulations == 269

    def simulator(theta, rng):
        x = rng.normal(theta, NOISE)
        return np.where(x < -1, np.nan, x)

    with pytest.warns(NumericalWarning, match="failed and were dropped"):
        posterior = infer(simulator, stats.norm(), 0.5, 300, rng=0, **FEW)
    report = posterior.diagnostics
    assert report.failed == 300 - report.n_simulations > 0
    with pytest.raises(ValueError, match="NaN or infinite"):
        model.posterior(np.nan)


@pytest.mark.parametrize("name", ["adjusted", "likelihood"])
def test_observations_no_simulation_is_like(name, request):
    model = request.getfixturevalue(name)
    assert model.posterior(0.0).diagnostics.support > 0.1
    with pytest.warns(NumericalWarning, match="extrapolation"):
        posterior = model.posterior(30.0)
    assert posterior.diagnostics.support < 0.005
    # Far more than twice as far as simulations are apart: the prior N(0, 1) is left.
    assert posterior.std()[0] > 0.8
    assert abs(posterior.mean()[0]) < 0.5
    for answer in (posterior.mean(), posterior.cov(), posterior.sample(20, rng=0), posterior.map()):
        assert np.all(np.isfinite(answer))


def awkward(kind, theta, x):
    rng = np.random.default_rng(5)
    if kind == "constant column":
        return theta, np.column_stack([x, np.full(len(x), 3.0)])
    if kind == "all constant":
        return theta, np.full_like(x, 3.0)
    if kind == "duplicates":
        return np.repeat(theta[:60], 5, axis=0), np.repeat(x[:60], 5, axis=0)
    if kind == "constant parameter":
        return np.column_stack([theta, np.full(len(x), 2.0)]), x
    if kind == "same column twice":
        return theta, np.column_stack([x, x])
    if kind == "one wild simulation":
        return theta, np.concatenate([x[:-1], [[1e12]]])
    return theta, np.column_stack([x, rng.standard_cauchy(len(x))])


AWKWARD = ["constant column", "all constant", "duplicates", "constant parameter", "Cauchy column"]
AWKWARD += ["same column twice", "one wild simulation"]


def check_awkward(kind, **options):
    theta, x = awkward(kind, *pairs(300))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NumericalWarning)
        posterior = LikelihoodFree(None, rng=0, **options).fit(theta, x).posterior(x[0])
    for answer in (posterior.mean(), posterior.cov(), posterior.sample(20, rng=0), posterior.map()):
        assert np.all(np.isfinite(answer))
    assert not np.any(np.isnan(posterior.log_density(theta)))
    if kind not in ("all constant", "duplicates"):
        mean, var = closed_form(x[0, 0])
        assert abs(posterior.mean()[0] - mean) < 4 * np.sqrt(var / 30)


@pytest.mark.parametrize("kind", AWKWARD)
def test_awkward_simulations(kind):
    check_awkward(kind, **FEW)


@pytest.mark.parametrize("method", ["adjusted", "auto"])
def test_data_that_say_nothing_leave_the_prior(method):
    theta, x = pairs(100)
    with pytest.warns(NumericalWarning, match="all points coincide"):
        model = LikelihoodFree(stats.norm(), method, rng=0).fit(theta, np.full_like(x, 3.0))
    posterior = model.posterior(3.0)
    assert posterior.diagnostics.ess == pytest.approx(100)
    np.testing.assert_allclose(posterior.mean(), theta.mean(axis=0))


def test_points_of_another_dimension_have_no_density(adjusted):
    with pytest.raises(ValueError, match="1 parameters"):
        adjusted.posterior(0.5).log_density(np.zeros((3, 2)))


def test_rounds_warn_of_the_last_posterior_only(monkeypatch):
    asked = []

    def posterior(model, x, prior=None):
        asked.append(model)
        warnings.warn(f"posterior {len(asked)}", NumericalWarning, stacklevel=2)
        return real(model, x, prior)

    real = LikelihoodFree.posterior
    monkeypatch.setattr(LikelihoodFree, "posterior", posterior)
    with pytest.warns(NumericalWarning) as caught:
        infer(simulate_noise, stats.norm(), 0.5, 120, "adjusted", adjust="none", rng=0, rounds=3)
    assert [str(w.message) for w in caught if "posterior" in str(w.message)] == ["posterior 3"]


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"prior": None}, TypeError, "no prior"),
        ({"simulations": (1, 2)}, TypeError, "come from simulate"),
    ],
)
def test_things_that_are_not_what_they_should_be(options, error, message):
    given = {"prior": stats.norm(), **options}
    with pytest.raises(error, match=message):
        infer(simulate_noise, x_observed=0.0, n_simulations=50, **given)


@pytest.mark.slow
@pytest.mark.parametrize("kind", AWKWARD)
@pytest.mark.parametrize("method", METHODS)
def test_awkward_simulations_with_all_methods(kind, method):
    check_awkward(kind, method=method)


@pytest.mark.parametrize("method", ["cme", "adjusted"])
def test_units_do_not_matter(method):
    theta, x = pairs(100)
    here = LikelihoodFree(stats.norm(), method, rng=0).fit(theta, x).posterior(0.5)
    for u, v in ((1e8, 1e-8), (1e-8, 1e8)):
        prior = stats.norm(0, u)
        there = LikelihoodFree(prior, method, rng=0).fit(u * theta, v * x).posterior(0.5 * v)
        np.testing.assert_allclose(there.mean() / u, here.mean(), rtol=1e-5)
        np.testing.assert_allclose(there.cov() / u**2, here.cov(), rtol=1e-4)
        np.testing.assert_allclose(
            there.log_density([[0.3 * u]]) + np.log(u), here.log_density([[0.3]]), atol=1e-4
        )


def test_the_same_rng_gives_the_same_posterior(likelihood):
    one, two = (fitted(60).posterior(0.5) for _ in range(2))
    np.testing.assert_array_equal(one.points, two.points)
    np.testing.assert_array_equal(one.sample(10, rng=1), two.sample(10, rng=1))
    one, two = (likelihood.posterior(0.5) for _ in range(2))
    np.testing.assert_array_equal(one.weights, two.weights)


@pytest.mark.parametrize("method", ["cme", "original", "importance", "likelihood"])
def test_a_model_can_be_pickled(method):
    model = fitted(60, method=method)
    copied = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(copied.posterior(0.5).weights, model.posterior(0.5).weights)


def test_bad_options_are_told_before_anything_is_simulated():
    def never(theta, rng):
        raise AssertionError("simulated")

    for options, message in (
        ({"method": "npe"}, "method must be"),
        ({"adjust": "shape"}, "adjust must be"),
        ({"criterion": "crps"}, "criterion must be"),
        ({"method": "likelihood", "adjust": "linear"}, "is not adjusted"),
        ({"rounds": 40}, "fewer rounds"),
        ({"n_simulations": 7, "rounds": 7}, "7 simulations in 7 rounds are 1 each"),
        ({"n_jobs": 0}, "number of processes"),
    ):
        with pytest.raises(ValueError, match=message):
            infer(never, stats.norm(), 0.0, rng=0, **{"n_simulations": 50, **options})


@pytest.mark.parametrize(
    ("options", "theta", "x", "message"),
    [
        ({"method": "npe"}, (50, 1), (50, 1), "method must be one of"),
        ({"adjust": "shape"}, (50, 1), (50, 1), "adjust must be"),
        ({"criterion": "crps"}, (50, 1), (50, 1), "criterion must be"),
        ({"method": "original", "adjust": "linear"}, (50, 1), (50, 1), "needs near simulations"),
        ({}, (50, 1), (49, 1), "50 parameters but 49 data sets"),
        ({}, (50, 1), (50, 1, 1, 1), "got shape"),
        ({}, (50, 2), (50, 1), "the prior has 1 parameters, theta has 2"),
        ({}, (19, 1), (19, 1), "19 simulations .* too few"),
        ({"prior": stats.uniform(5, 1)}, (50, 1), (50, 1), "outside of the prior's support"),
    ],
)
def test_bad_simulations(options, theta, x, message):
    with pytest.raises(ValueError, match=message):
        LikelihoodFree(**{"prior": stats.norm(), "rng": 0, **options}).fit(
            np.zeros(theta), np.zeros(x)
        )


def test_bad_questions(adjusted):
    with pytest.raises(ValueError, match="fit the model first"):
        LikelihoodFree(stats.norm()).posterior(0.0)
    with pytest.raises(ValueError, match="an observation has shape"):
        adjusted.posterior(np.zeros((3, 2)))
    with pytest.raises(ValueError, match="at least 1"):
        adjusted.posterior(0.0).sample(0)
    with pytest.raises(ValueError, match="bandwidth"):
        adjusted.posterior(0.0).sample(5, bandwidth=0.1)
    with pytest.raises(ValueError, match="weights must be"):
        LikelihoodFree(rng=0).fit(*pairs(50), weights=-np.ones(50))
    with pytest.raises(ValueError, match="weight zero"):
        LikelihoodFree(rng=0).fit(*pairs(50), weights=np.zeros(50))
    with pytest.raises(ValueError, match="45 of 50 simulations have weight zero"):
        LikelihoodFree(rng=0).fit(*pairs(50), weights=np.arange(50) < 5)
    with pytest.raises(TypeError, match="simulator"):
        infer(3.0, stats.norm(), 0.0, rng=0)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="rounds"):
        infer(np.sin, stats.norm(), 0.0, rounds=0, rng=0)
    with pytest.raises(ValueError, match="x_observed has shape"):
        infer(lambda theta, rng: rng.normal(theta), stats.norm(), [0.0, 1.0], 30, "adjusted", rng=0)


# -- what comes out --------------------------------------------------------------------------------


def test_shapes_and_names():
    theta, x = pairs(200, 2)
    frame = pd.DataFrame(theta, columns=["slope", "offset"])
    model = LikelihoodFree(None, "adjusted", rng=0).fit(frame, pd.DataFrame(x))
    posterior = model.posterior(x[0])
    assert posterior.names == ("slope", "offset")
    assert "slope, offset" in repr(posterior)
    assert posterior.sample(7, rng=0).shape == (7, 2)
    assert posterior.sample(7, rng=0, method="iid").shape == (7, 2)
    assert posterior.log_density(theta[:5]).shape == (5,)
    assert posterior.map().shape == (2,)
    many = model.posterior(x[:3])
    assert len(many) == 3
    assert isinstance(many[:2], Posteriors)
    assert isinstance(many[0], Posterior)
    assert many.mean().shape == many.map().shape == (3, 2)
    assert many.cov().shape == (3, 2, 2)
    assert many.interval(0.9).shape == (3, 2, 2)
    assert many.quantile([0.1, 0.5, 0.9]).shape[0] == 3
    assert many.sample(5, rng=0).shape == (3, 5, 2)
    np.testing.assert_allclose(many[0].mean(), posterior.mean())


def test_the_choice_is_told(automatic):
    assert automatic.choice_[0]["variant"] is automatic.variant_
    scores = [row["score"] for row in automatic.choice_]
    assert np.all(np.isfinite(scores))
    assert automatic.posterior(0.0).diagnostics.method == str(automatic.variant_)


def test_energy_score_and_adjustments():
    for options in (
        {"criterion": "energy", "adjust": "location"},
        {"adjust": "linear"},
        {"adjust": "scale"},
        {"adjust": "none"},
    ):
        model = LikelihoodFree(stats.norm(), "adjusted", rng=0, **options).fit(*pairs(200))
        assert_close(model.posterior(0.5), *closed_form(0.5), 200)


def test_weights_of_simulations():
    rng = np.random.default_rng(0)
    theta = rng.uniform(-4, 4, size=(600, 1))
    x = rng.normal(theta, NOISE)
    weights = stats.norm.pdf(theta[:, 0])
    model = LikelihoodFree(stats.norm(), "adjusted", rng=0).fit(theta, x, weights)
    counted = weights.sum() ** 2 / np.sum(weights**2)
    assert_close(model.posterior(1.0), *closed_form(1.0), counted)


def test_scikit_learn_clones():
    model = LikelihoodFree(stats.norm(), "cme", adjust="none", criterion="energy", rng=3)
    copy = clone(model)
    assert copy is not model
    assert {k: v for k, v in copy.get_params().items() if k != "prior"} == {
        "method": "cme",
        "adjust": "none",
        "criterion": "energy",
        "rng": 3,
        "progress": None,
    }
    copy.fit(*pairs(60))
    assert not hasattr(model, "learner_")


# -- checks ----------------------------------------------------------------------------------------


def simulate_noise(theta, rng):
    return rng.normal(theta, NOISE)


def test_checks_run_on_a_fitted_model(adjusted):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NumericalWarning)  # some of the test pairs are far out
        ranks = kb.sbc(adjusted, stats.norm(), simulate_noise, n_simulations=60, n_draws=50, rng=0)
        found = kb.coverage(
            adjusted, stats.norm(), simulate_noise, n_simulations=60, n_draws=50, rng=0
        )
    assert ranks.ranks.shape == (60, 1)
    assert ranks.verdict.startswith("calibrated")
    assert "density" in repr(found) or found.verdict
    again = kb.posterior_predictive(adjusted.posterior(0.5), simulate_noise, np.array([0.5]), rng=0)
    assert again.verdict


def covered(method, n, tests):
    """Share of truths inside of central intervals at 50, 80 and 90 %, and the band's width."""
    model = fitted(n, method=method)
    theta, x = pairs(tests, seed=9)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NumericalWarning)
        posteriors = model.posterior(x)
    levels = np.array([0.5, 0.8, 0.9])
    held = [
        np.mean((ends[:, 0, 0] <= theta[:, 0]) & (theta[:, 0] <= ends[:, 0, 1]))
        for ends in (posteriors.interval(level) for level in levels)
    ]
    # Chance of the test pairs, and of the simulations: sd off by one in sqrt(2 n / 10).
    band = 3 * np.sqrt(levels * (1 - levels) / tests)
    off = 3 / np.sqrt(2 * n / 10)
    z = stats.norm.ppf((1 + levels) / 2)
    return levels, np.array(held), band + 2 * z * stats.norm.pdf(z) * off


def check_coverage(method, n, tests):
    levels, held, band = covered(method, n, tests)
    assert np.all(np.abs(held - levels) < band), f"{held} at {levels}, allowed {band}"


def test_coverage_of_intervals():
    check_coverage("adjusted", 500, 100)


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_coverage_of_intervals_at_full_size(method):
    check_coverage(method, 2000, 100 if method in ("auto", "likelihood") else 500)


def narrow(d):
    """A problem of d means, with a third of the data's columns informative about each."""
    rng = np.random.default_rng(0)
    theta = rng.uniform(-1, 1, size=(120, d))
    return theta, theta + 0.5 * rng.normal(size=(120, d))


@pytest.mark.parametrize("method", ["auto", "cme", "original", "importance"])
def test_weights_are_those_of_a_distribution(method):
    theta, x = narrow(3)
    prior = [stats.uniform(-1, 2)] * 3
    model = LikelihoodFree(prior, method, rng=0).fit(theta, x)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NumericalWarning)
        for posterior in model.posterior(
            np.vstack([x[:5], np.zeros((1, 3)), np.full((1, 3), 9.0)])
        ):
            assert np.all(posterior.weights >= 0)
            assert np.sum(posterior.weights) == pytest.approx(1.0)
        # A proper score of a density within a box: never worse than e to the minus 30 there.
        assert model.score(theta[:40], x[:40]) > -30


def test_a_tempered_posterior_is_wider():
    """A learned likelihood with few simulations in ten dimensions claims too much."""
    theta, x = narrow(10)
    model = LikelihoodFree([stats.uniform(-1, 2)] * 10, "likelihood", rng=0).fit(theta, x)
    assert model.variant_.temper <= 1.0
    assert model.choice_[0]["variant"] is model.variant_
    wide = replace(model.learner_, variant=replace(model.variant_, temper=0.1))
    usual = replace(model.learner_, variant=replace(model.variant_, temper=1.0))
    data = model.data_(x[:1])
    spread = []
    for learner in (usual, wide):
        ((points, weights, _),) = learner.posterior(data, np.random.default_rng(0))
        spread.append(np.sqrt(weights @ (points - weights @ points) ** 2).mean())
    assert spread[1] > 1.2 * spread[0]


def test_an_observation_may_come_by_name_and_in_parts():
    """As a dict or a row of a frame, in any order; with arrays in it as simulators give them."""
    rng = np.random.default_rng(0)
    theta = rng.normal(size=(200, 1))
    x = pd.DataFrame(theta + 0.3 * rng.normal(size=(200, 3)), columns=["m", "w[0]", "w[1]"])
    model = LikelihoodFree(stats.norm(), "importance", rng=0).fit(theta, x)
    expected = model.posterior(x.iloc[3].to_numpy()).mean()
    row = x.iloc[3].to_dict()
    parts = {"w": np.array([row["w[0]"], row["w[1]"]]), "m": row["m"]}
    for one in (row, dict(reversed(row.items())), x.iloc[3], x.iloc[3, ::-1], parts):
        np.testing.assert_allclose(model.posterior(one).mean(), expected, atol=1e-12)
    many = model.posterior({"m": [0.0, 1.0], "w[0]": [0.0, 1.0], "w[1]": [0.0, 1.0]})
    assert len(many) == 2
