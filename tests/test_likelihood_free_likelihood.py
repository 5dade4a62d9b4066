"""From parameters to data: the learned likelihood."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from kernelbayes.likelihood_free.learn.likelihood import NOISE_TAILS, Forward, Shrunk


@pytest.fixture(scope="module")
def forward():
    rng = np.random.default_rng(0)
    P = rng.normal(size=(600, 1))
    return Forward.fit(P, P + 0.5 * rng.normal(size=(600, 1)), rng)


def test_a_learned_likelihood_is_the_true_one(forward):
    grid = np.linspace(-1.5, 2.5, 41)[:, None]
    found = forward.log_likelihood(grid, np.array([0.5]))
    # The most likely parameter: ten coefficients learned from 600 simulations, four errors.
    assert abs(grid[np.argmax(found), 0] - 0.5) < 4 * 0.5 / np.sqrt(60)
    rng = np.random.default_rng(1)
    theta = rng.normal(size=(400, 1))
    x = theta + 0.5 * rng.normal(size=(400, 1))
    learned = np.array(
        [forward.log_likelihood(t[None], y)[0] for t, y in zip(theta, x, strict=True)]
    )
    lost = stats.norm.logpdf(x[:, 0], theta[:, 0], 0.5) - learned
    # Twice n times the Kullback-Leibler divergence of a fit with k coefficients is about
    # chi-squared with k degrees of freedom: here ten of the regression, twenty of the density.
    # Its mean over 400 pairs has five standard errors of sqrt(2 KL / 400).
    most = stats.chi2.isf(1e-7, 30) / (2 * 600)
    assert abs(lost.mean()) < most + 5 * np.sqrt(2 * most / 400)


def test_rows_add_up(forward):
    grid = np.linspace(-1, 1, 5)[:, None]
    rows = np.array([[0.2], [0.7], [-0.1]])
    together = forward.log_likelihood(grid, rows)
    apart = sum(forward.log_likelihood(grid, row) for row in rows)
    np.testing.assert_allclose(together, apart)


def test_a_wild_simulation_does_not_change_a_learned_likelihood(forward):
    rng = np.random.default_rng(0)  # as in the fixture
    P = rng.normal(size=(600, 1))
    S = P + 0.5 * rng.normal(size=(600, 1))
    grid = np.linspace(-1, 2, 13)[:, None]
    calm = forward.log_likelihood(grid, np.array([0.5]))
    likely = calm > calm.max() - 2.0
    for row in (0, 300):
        wild = S.copy()
        wild[row] = 40.0
        others = np.arange(600) != row
        upset = Forward.fit(P, wild, rng, like=forward)
        without = Forward.fit(P[others], S[others], rng, like=forward)
        # The wild simulation is dropped: the others are left, and nothing is chosen again.
        found, expected = (f.log_likelihood(grid, np.array([0.5])) for f in (upset, without))
        np.testing.assert_allclose(found, expected, rtol=1e-6)
        # One of 600 residuals makes up at most the peak of its kernel over 600 times the density;
        # it moves the mean by at most its leverage, about ten in 600, of its residual, 0.5 or so.
        h = float(np.min(forward.noise.h)) * 0.5
        own = stats.norm.pdf(0) / h / 600 / np.exp(calm[likely].min())
        slope = np.abs(np.gradient(calm, grid[:, 0]))[likely].max()
        assert np.max(np.abs(found - calm)[likely]) < own + slope * 3 * 0.5 * 10 / 600
    # Noise that is often large is not wild.
    often = P + np.where(rng.uniform(size=(600, 1)) < 0.1, 30.0, 0.1) * rng.normal(size=(600, 1))
    tails = Forward.fit(P, often, rng)
    assert tails.log_likelihood(np.zeros((1, 1)), np.array([25.0]))[0] > -12


def test_noise_that_grows_is_noticed():
    rng = np.random.default_rng(1)
    P = rng.uniform(-1, 1, size=(800, 1))
    forward = Forward.fit(P, P + np.exp(1.5 * P) * rng.normal(size=(800, 1)), rng)
    assert forward.kind[0] == "scaled"


def test_correlations_that_depend_on_a_parameter_are_learned():
    rng = np.random.default_rng(2)
    P = rng.uniform(-1.5, 1.5, size=(2000, 2))
    rho, sigma = np.tanh(P[:, 1]), np.exp(P[:, 0])
    noise = rng.normal(size=(2000, 2))
    noise[:, 1] = rho * noise[:, 0] + np.sqrt(1 - rho**2) * noise[:, 1]
    forward = Forward.fit(P, sigma[:, None] * noise, rng)
    assert forward.kind[0] == "correlated"
    grid = np.column_stack([np.zeros(7), np.linspace(-1.2, 1.2, 7)])
    s = np.array([1.0, 1.0])
    found = forward.log_likelihood(grid, s)
    exact = [stats.multivariate_normal.logpdf(s, cov=[[1, r], [r, 1]]) for r in np.tanh(grid[:, 1])]
    # Products of standard normal variables have deviation sqrt(1 + rho^2); about five terms of
    # their regression, a curve, are learned from 2000. The log density follows rho with this slope,
    # and a density of 1500 residuals adds an error of its own, about one in ten.
    rho = np.tanh(grid[:, 1])
    slope = np.abs(np.gradient(exact, rho))
    error = np.hypot(slope * np.sqrt((1 + rho**2) / 400), 0.1)
    likely = np.array(exact) > max(exact) - 2.0
    assert np.all(np.abs(found - exact)[likely] < 4 * error[likely])


@pytest.mark.parametrize("seed", range(3))
def test_correlations_that_are_sampling_error_are_shrunk(seed):
    rng = np.random.default_rng(seed)
    equal, none = np.full(80, 1 / 80), np.zeros(10, dtype=bool)
    L = Shrunk(rng.normal(size=(80, 10)), equal, 0.5, none).factor
    found = (L @ L.T)[np.triu_indices(10, 1)]
    # The mean square of 45 correlations is 1/80, known to sqrt(2 / 45) of it. Three deviations
    # above that, 1.63 times as much, a correlation is multiplied by 1 - 1 / 1.63 = 0.39.
    assert np.mean(found**2) < 1.63 * 0.39**2 / 80 * 1.3  # and scales are known to a few per cent
    # One factor behind all columns stays.
    together = rng.normal(size=(80, 1)) + 0.3 * rng.normal(size=(80, 10))
    L = Shrunk(together, equal, 0.5, none).factor
    sizes = np.linalg.norm(L, axis=1)
    kept = ((L @ L.T) / np.outer(sizes, sizes))[np.triu_indices(10, 1)]
    np.testing.assert_allclose(kept, np.corrcoef(together.T)[np.triu_indices(10, 1)], rtol=0.02)


def test_ridges_are_chosen_again_with_more_simulations():
    # Of 80 simulations with 80 landmarks a fit may go through all targets. With the same ridge and
    # a few more simulations, predictions of left-out ones would be far away.
    rng = np.random.default_rng(1000)
    P = rng.normal(size=(100, 5))
    S = P[:, :2] + np.exp(P[:, 2:4]) * rng.normal(size=(100, 2))
    first = Forward.fit(P[:80], S[:80], rng)
    through = replace(first.spread.logs, ridges=np.full(2, 1e-8))
    more = Forward.fit(P, S, rng, replace(first, spread=replace(first.spread, logs=through)))
    # Logs of squared residuals deviate by 2 with the parameters, and by pi / sqrt(2) at each.
    assert np.all(more.spread.logs.left_out.std(axis=0) < np.hypot(2.0, np.pi / np.sqrt(2.0)))


@pytest.mark.parametrize("seed", range(3))
def test_noise_has_heavy_tails_where_data_have(seed):
    rng = np.random.default_rng(seed)
    P, v = rng.normal(size=(600, 1)), 4.0
    normal = rng.normal(size=(600, 6))
    together = normal / np.sqrt(rng.chisquare(v, size=(600, 1)) / v)  # far in all columns at once
    light, heavy = (Forward.fit(P, P + noise, rng) for noise in (normal, together))
    assert light.kind[1] not in NOISE_TAILS[:3]
    assert heavy.kind[1] in NOISE_TAILS[:3]
    free, cov = heavy.noise.free, heavy.noise.factor @ heavy.noise.factor.T
    exact = stats.multivariate_t(heavy.noise.mean, cov * (1 - 2 / free), free)
    np.testing.assert_allclose(heavy.noise.log_density(together), exact.logpdf(together))
