"""Likelihood-free inference against closed forms, enumeration, and everything that goes wrong.

Tolerances are four standard errors. A posterior made of simulations near the observation has the
error of a mean of ``ess`` points; one that rests on a regression has the regression's, about ten
coefficients learned from n simulations. So the number that counts is min(ess, n / 10), for a mean
sd / sqrt(m), for a standard deviation sd / sqrt(2 m).
"""

import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from sklearn.base import clone

import kernelbayes as kb
from kernelbayes import LikelihoodFree, NumericalWarning, Posterior, Posteriors, infer

METHODS = ["auto", "cme", "original", "importance", "adjusted", "likelihood"]
NOISE = 0.5  # standard deviation of x given theta
OBSERVED = np.array([-1.0, 0.5, 1.5])
# A fourth of the variants, where the choice among them is not what is tested.
FEW = {"method": "adjusted", "adjust": "location"}


def pairs(n, d=1, seed=0, noise=NOISE, prior=None):
    rng = np.random.default_rng(seed)
    theta = rng.normal(size=(n, d)) if prior is None else kb.as_prior(prior).sample(n, rng)
    return theta, rng.normal(theta, noise)


def closed_form(x, mean=0.0, var=1.0, noise=NOISE):
    """Posterior mean and variance of a normal mean, for each coordinate."""
    precision = 1.0 / var + 1.0 / noise**2
    return (mean / var + x / noise**2) / precision, 1.0 / precision


def fitted(n, d=1, method="adjusted", seed=0):
    return LikelihoodFree([stats.norm()] * d, method, rng=0).fit(*pairs(n, d, seed))


def assert_close(posterior, mean, var, n, errors=4.0):
    counted = min(posterior.diagnostics.ess, n / 10)
    sd = np.sqrt(var)
    assert np.all(np.abs(posterior.mean() - mean) < errors * sd / np.sqrt(counted))
    spread = np.sqrt(np.diag(posterior.cov()))
    assert np.all(np.abs(spread - sd) < errors * sd / np.sqrt(2 * counted))


@pytest.fixture(scope="module")
def adjusted():
    return fitted(500)


@pytest.fixture(scope="module")
def likelihood():
    return fitted(500, method="likelihood")


@pytest.fixture(scope="module")
def automatic():
    return fitted(500, method="auto")


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
    assert posterior.diagnostics.n_simulations == n
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
    for x in OBSERVED:
        posterior = model.posterior(x, prior=new)
        assert_close(posterior, *closed_form(x, NEW[0], NEW[1] ** 2), counted)


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
        ({"n_jobs": 0}, "number of processes"),
    ):
        with pytest.raises(ValueError, match=message):
            infer(never, stats.norm(), 0.0, 50, rng=0, **options)


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
