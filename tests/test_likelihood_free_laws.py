"""Likelihood-free inference: what every method promises, on few simulations.

Laws that count draws state the probability at which they fail by chance, FALSE_ALARM.
"""

import warnings
from dataclasses import replace
from functools import cache

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import kernelbayes as kb
from kernelbayes import LikelihoodFree, infer
from kernelbayes.embedding.smooth import Smoothing
from kernelbayes.likelihood_free.learn.choice import candidates, learn

METHODS = ("cme", "original", "importance", "adjusted", "likelihood", "auto")
each_method = pytest.mark.parametrize("method", METHODS)
pytestmark = pytest.mark.filterwarnings("ignore::kernelbayes.NumericalWarning")
N, DRAWS, FALSE_ALARM = 60, 2000, 1e-6
# Largest gap of a share, or of a distribution function, among DRAWS draws: Hoeffding's inequality,
# and that of Dvoretzky, Kiefer and Wolfowitz with Massart's constant.
GAP = np.sqrt(np.log(2.0 / FALSE_ALARM) / (2.0 * DRAWS))
PRIOR = {"rate": stats.uniform(0.0, 2.0), "shift": stats.norm()}
OBSERVED = np.array([0.9, 0.4])
ASKED = np.array([[0.9, 0.4], [1.5, -0.6], [0.2, 1.0]])


def simulator(theta, rng):
    return theta + 0.4 * rng.normal(size=theta.shape)


def simulations():
    rng = np.random.default_rng(0)
    theta = kb.as_prior(PRIOR).sample(N, rng)
    return theta, simulator(theta, rng)


@cache  # one model for all laws that only ask
def fitted(method):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", kb.NumericalWarning)
        return LikelihoodFree(PRIOR, method, rng=0).fit(*simulations())


def assert_same(here, there):
    np.testing.assert_array_equal(there.points, here.points)
    np.testing.assert_array_equal(there.weights, here.weights)
    np.testing.assert_array_equal(there.sample(5, rng=2), here.sample(5, rng=2))
    np.testing.assert_array_equal(there.log_density(here.points), here.log_density(here.points))


@each_method
def test_the_same_seed_gives_the_same_posterior(method):
    rng = np.random.default_rng(0)
    again = LikelihoodFree(PRIOR, method, rng=rng).fit(*simulations())
    assert str(again.variant_) == str(fitted(method).variant_)
    assert_same(fitted(method).posterior(OBSERVED), again.posterior(OBSERVED))


def test_processes_do_not_change_the_posterior():
    """Methods only see the simulations; there are two rounds of them."""

    def noisy(theta, rng):  # a local function goes to other processes by value
        return theta + 0.4 * rng.normal(size=theta.shape)

    options = {"rng": 0, "rounds": 2, "adjust": "none", "vectorized": False}
    assert_same(*(infer(noisy, PRIOR, OBSERVED, N, "cme", n_jobs=j, **options) for j in (1, 2)))


@each_method
def test_units_do_not_matter(method):
    """Powers of two change no digit of the parameters; the prior is stated in their units."""
    theta, x = simulations()
    units, data_units = np.array([8.0, 0.25]), np.array([1024.0, 0.5])
    prior = {"rate": stats.uniform(0.0, 16.0), "shift": stats.norm(0.0, 0.25)}
    model = LikelihoodFree(prior, method, rng=0).fit(theta * units, x * data_units)
    here, there = fitted(method).posterior(OBSERVED), model.posterior(OBSERVED * data_units)
    assert str(model.variant_) == str(fitted(method).variant_)
    # Nothing but the logarithms of densities rounds differently.
    np.testing.assert_allclose(there.mean() / units, here.mean(), rtol=1e-9)
    np.testing.assert_allclose(there.std() / units, here.std(), rtol=1e-9)
    np.testing.assert_allclose(there.sample(5, rng=2) / units, here.sample(5, rng=2), rtol=1e-9)
    logs = there.log_density(here.points * units) + np.log(units).sum()
    np.testing.assert_allclose(logs, here.log_density(here.points), atol=1e-7)


@pytest.mark.parametrize("method", ["cme", "original", "importance", "adjusted"])
def test_the_order_of_simulations_does_not_matter(method):
    """To learners that split no simulations at random; for the others it is another seed."""
    model = fitted(method)
    task, data = model.learner_.task, model.data_(OBSERVED[None])
    order = np.random.default_rng(1).permutation(N)
    moved = replace(task, X=task.X[order], P=task.P[order])
    for variant in candidates(method, "none", task):
        if variant.recipe.near != "data" or variant.bandwidth < 0.5:
            continue
        means = []
        for some in (task, moved):
            learner = learn(some, variant, np.random.default_rng(0))
            ((points, weights, _),) = learner.posterior(data, np.random.default_rng(0))
            means.append(weights @ np.hstack([points, points**2]) / weights.sum())
        # Rounding times the condition number, at most n / ridge for ridges of 1e-6 and more.
        np.testing.assert_allclose(*means, rtol=0.0, atol=1e-7)


@each_method
def test_a_posterior_does_not_depend_on_what_else_is_asked_for(method):
    model = fitted(method)
    forth, back = model.posterior(ASKED), model.posterior(ASKED[::-1])
    for i, x in enumerate(ASKED):
        alone = model.posterior(x)
        assert_same(alone, forth[i])
        assert_same(alone, back[len(ASKED) - 1 - i])


@each_method
def test_posteriors_stay_in_the_support_of_the_prior(method):
    for posterior in fitted(method).posterior(np.vstack([ASKED, [[2.6, 0.0], [-0.7, 3.0]]])):
        for points in (posterior.points, posterior.sample(200, rng=0), posterior.map()[None]):
            assert np.all((points[:, 0] >= 0.0) & (points[:, 0] <= 2.0))
        outside = posterior.log_density([[-1e-9, 0.0], [2.0 + 1e-9, 0.0], [-5.0, 0.0]])
        assert np.all(outside == -np.inf)
        assert posterior.weights.sum() == pytest.approx(1.0, abs=1e-12)


@each_method
def test_draws_have_the_density(method):
    """Densities are at least as smooth as half of Silverman's rule; so are these draws."""
    posterior = fitted(method).posterior(OBSERVED)
    how = posterior.smoothing or Smoothing(0.5)
    posterior = replace(posterior, smoothing=replace(how, h=max(how.h, 0.5)))
    # Cells small against the bandwidth, half of a deviation; few deviations beyond the points.
    rates = (np.arange(80) + 0.5) * 2.0 / 80
    low, high = posterior.points[:, 1].min() - 2.0, posterior.points[:, 1].max() + 2.0
    shifts = low + (np.arange(160) + 0.5) * (high - low) / 160
    grid = np.stack(np.meshgrid(rates, shifts, indexing="ij"), axis=-1).reshape(-1, 2)
    density = np.exp(posterior.log_density(grid)).reshape(80, 160)
    cell = 2.0 / 80 * (high - low) / 160
    # The share inside of the support is counted from 2000 draws; it is a half or more, because the
    # smoothed points lie inside and their kernels are symmetric.
    assert density.sum() * cell == pytest.approx(1.0, abs=GAP / 0.5)
    draws = posterior.sample(DRAWS, rng=1)
    for axis, (ticks, step) in enumerate(((rates, 2.0 / 80), (shifts, (high - low) / 160))):
        cdf = np.cumsum(density.sum(axis=1 - axis)) / density.sum()
        counted = np.mean(draws[:, axis, None] <= ticks + step / 2.0, axis=0)
        assert np.abs(cdf - counted).max() < GAP


@each_method
def test_names_are_kept(method):
    theta, x = simulations()
    model = fitted(method)
    posterior = model.posterior(OBSERVED)
    assert posterior.names == ("rate", "shift")
    assert [row["variable"] for row in posterior.summary()] == ["rate", "shift"]
    if method == "cme":  # reading tables is before all methods
        frames = pd.DataFrame(theta, columns=["rate", "shift"]), pd.DataFrame(x, columns=["u", "v"])
        other = LikelihoodFree(PRIOR, method, rng=0).fit(*frames)
        assert_same(posterior, other.posterior(pd.DataFrame([OBSERVED], columns=["u", "v"]))[0])
        turned = pd.DataFrame([OBSERVED[::-1]], columns=["v", "u"])
        assert_same(posterior, other.posterior(turned)[0])
        with pytest.raises(ValueError, match=r"\['u', 'w'\].*\['u', 'v'\]"):
            other.posterior(pd.DataFrame([OBSERVED], columns=["u", "w"]))
