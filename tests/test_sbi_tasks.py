"""The benchmark tasks are right: quadrature, SciPy and importance weights are the oracles.

Averages over draws are compared in standard errors: a limit of 5 fails by chance once in a million.
"""

import sys
from pathlib import Path

import numpy as np
import pytest
from scipy import optimize, stats
from scipy.integrate import solve_ivp

sys.path.insert(0, str(Path(__file__).parents[1] / "experiments" / "sbi_tasks"))

import exact
import glm
import odes
import smc
from c2st import c2st, mmd2
from tasks import TASKS, draw_prior, observation, simulations

DEVELOPMENT = 1000


def features(theta):
    """Functions whose averages are compared: moments and absolute values of the coordinates."""
    return np.hstack([theta, theta**2, np.abs(theta), theta * np.roll(theta, 1, axis=1)])


def assert_same_averages(draws, points, weights, limit=5.0):
    """Averages over independent draws agree with those of a weighted set, in standard errors."""
    weights = weights / weights.sum()
    f, g = features(draws), features(points)
    expected = weights @ g
    # Error of the draws; and of the weighted points when they are random themselves.
    variance = weights @ (g - expected) ** 2 / len(draws) + weights**2 @ (g - expected) ** 2
    worst = np.max(np.abs(f.mean(axis=0) - expected) / np.sqrt(variance))
    assert worst < limit


def grid(low, high, cells):
    """Centres of the cells of a grid in the plane."""
    axes = [a + (b - a) * (np.arange(cells) + 0.5) / cells for a, b in zip(low, high, strict=True)]
    return np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 2)


@pytest.mark.parametrize("name", TASKS)
def test_shapes_and_seeds(name):
    task = TASKS[name]
    theta_o, x_o = observation(task, DEVELOPMENT)
    assert theta_o.shape == (task.dim_theta,)
    assert x_o.shape == (task.dim_x,)
    np.testing.assert_array_equal(observation(task, DEVELOPMENT)[1], x_o)
    assert not np.array_equal(observation(task, DEVELOPMENT + 1)[0], theta_o)
    theta, x = simulations(task, 50, 0)
    assert theta.shape == (50, task.dim_theta)
    assert x.shape == (50, task.dim_x)
    assert np.all(np.isfinite(x))
    assert np.all(np.isfinite(task.log_likelihood(theta_o[None], x_o)))
    assert task.block is None or np.prod(task.block) == task.dim_x


NEARBY = {  # two parameters under which the data have the same support
    "two_moons": ([0.3, 0.4], [0.297, 0.403]),
    "gaussian_mixture": ([1.0, 2.0], [1.02, 2.0]),
    "gaussian_linear": ([0.0] * 10, [0.05] * 10),
    "slcp": ([0.5, -1.0, 1.2, -0.9, 0.4], [0.55, -1.0, 1.18, 0.9, 0.42]),
}


@pytest.mark.parametrize("name", NEARBY)
def test_the_likelihood_is_the_simulators(name):
    """Data of theta: the ratio of the likelihoods of theta' and theta has mean one."""
    task, pair = TASKS[name], np.array(NEARBY[name])
    x = task.simulator(np.repeat(pair[:1], 2000, axis=0), np.random.default_rng(0))
    ratio = np.exp([float(np.diff(task.log_likelihood(pair, row))[0]) for row in x])
    assert ratio.std() > 0.05
    assert abs(ratio.mean() - 1) < 5 * ratio.std() / np.sqrt(len(ratio))


def test_sir_likelihood_is_binomial():
    rng = np.random.default_rng(0)
    theta = draw_prior(TASKS["sir"], 6, rng)
    x = odes.sir_simulator(theta[:1], rng)[0]
    expected = stats.binom.logpmf(x, 1000, np.exp(odes.sir_log_infected(theta))).sum(axis=1)
    np.testing.assert_allclose(odes.sir_log_likelihood(theta, x), expected, rtol=1e-8)


PLANE = [("two_moons", 1, 600), ("gaussian_mixture", 10, 500)]


@pytest.mark.parametrize(("name", "bound", "cells"), PLANE)
@pytest.mark.parametrize("seed", range(DEVELOPMENT, DEVELOPMENT + 4))
def test_reference_in_the_plane_against_quadrature(name, bound, cells, seed):
    task = TASKS[name]
    _, x_o = observation(task, seed)
    points = grid([-bound] * 2, [bound] * 2, cells)
    weights = np.exp(task.log_likelihood(points, x_o))
    draws = task.reference(x_o, 4000, np.random.default_rng(seed))
    assert np.all(np.abs(draws) <= bound)
    assert_same_averages(draws, points, weights)


def test_gaussian_references():
    _, x_o = observation(TASKS["gaussian_linear"], DEVELOPMENT)
    draws = exact.gaussian_reference(x_o, 4000, np.random.default_rng(0))
    z = (draws - x_o / 2) / np.sqrt(0.05)  # prior and noise of variance .1: half of each
    assert stats.kstest(z.ravel(), "norm").pvalue > 1e-4
    draws = exact.gaussian_uniform_reference(x_o, 4000, np.random.default_rng(1))
    line = (np.arange(2000) + 0.5) / 1000 - 1
    for column, x in zip(draws.T, x_o, strict=True):
        weights = stats.norm.pdf(x, line, np.sqrt(0.1))
        assert_same_averages(column[:, None], line[:, None], weights)


def test_slcp_likelihood_is_scipys():
    theta = draw_prior(TASKS["slcp"], 20, np.random.default_rng(0))
    theta[:, 2:4] += 0.5 * np.sign(theta[:, 2:4])  # SciPy refuses the near singular ones
    _, x_o = observation(TASKS["slcp"], DEVELOPMENT)
    found = exact.slcp_log_likelihood(theta, x_o)
    for value, (a, b, c, d, e) in zip(found, theta, strict=True):
        cross = np.tanh(e) * c**2 * d**2
        law = stats.multivariate_normal([a, b], [[c**4, cross], [cross, d**4]])
        assert value == pytest.approx(law.logpdf(x_o.reshape(4, 2)).sum(), rel=1e-9)


def test_slcp_reference_against_importance_weights():
    """Weighted draws of the prior, for an observation wide enough to leave many effective ones."""
    mean, factor = [0.7, -1.2], np.array([[2.6, 0.0], [1.5, 1.7]])
    x_o = (mean + np.array([[1, 1], [1, -1], [-1, 1], [-1, -1]]) @ factor.T).ravel()
    points = draw_prior(TASKS["slcp"], 600_000, np.random.default_rng(4))
    log_w = exact.slcp_log_likelihood(points, x_o)
    weights = np.exp(log_w - log_w.max())
    assert weights.sum() ** 2 / np.sum(weights**2) > 1000
    draws = exact.slcp_reference(x_o, 5000, np.random.default_rng(5))
    assert_same_averages(draws, points, weights)
    quadrants = np.mean((draws[:, 2] > 0) & (draws[:, 3] > 0))
    assert quadrants == pytest.approx(0.25, abs=5 * np.sqrt(0.25 * 0.75 / 5000))


def test_distractors_hide_slcp():
    _, hidden = observation(TASKS["slcp_distractors"], DEVELOPMENT)
    _, plain = observation(TASKS["slcp"], DEVELOPMENT)
    np.testing.assert_array_equal(hidden[exact.SIGNAL], plain)
    theta, x = simulations(TASKS["slcp_distractors"], 4000, 0)
    ranks = stats.spearmanr(np.hstack([theta[:, :2], x])).statistic[:2, 2:]
    assert np.all(np.abs(np.delete(ranks, exact.SIGNAL, axis=1)) < 5.5 / np.sqrt(4000))
    assert np.all(np.max(np.abs(ranks[:, exact.SIGNAL]), axis=0) > 0.3)


def test_glm_definitions():
    rng = np.random.default_rng(0)
    D = np.eye(9) - np.eye(9, k=-1)
    F = D @ D + np.sqrt(np.arange(9) / 9) * np.eye(9)
    precision = np.zeros((10, 10))
    precision[0, 0], precision[1:, 1:] = 0.5, F.T @ F
    covariance = glm.PRIOR_FACTOR @ glm.PRIOR_FACTOR.T
    np.testing.assert_allclose(covariance @ precision, np.eye(10), atol=1e-10)
    theta = glm.prior(5, rng)
    spikes = glm.raw_simulator(theta[:1], rng)[0]
    probability = 1 / (1 + np.exp(-theta @ glm.DESIGN.T))
    direct = stats.bernoulli.logpmf(spikes, probability).sum(axis=1)
    np.testing.assert_allclose(glm.raw_log_likelihood(theta, spikes), direct, rtol=1e-9)
    statistics = glm.simulator(theta, np.random.default_rng(1))
    raw = glm.raw_simulator(theta, np.random.default_rng(1))
    np.testing.assert_allclose(statistics[:, 0], raw.sum(axis=1))
    lagged = np.array([np.correlate(row[3:], glm.DESIGN[:97, 1])[0] for row in raw])
    np.testing.assert_allclose(statistics[:, 4], lagged)  # spikes three bins after the stimulus


def test_glm_reference_against_importance_weights():
    _, x_o = observation(TASKS["bernoulli_glm"], DEVELOPMENT)
    precision = np.linalg.inv(glm.PRIOR_FACTOR @ glm.PRIOR_FACTOR.T)

    def minus_log(theta):
        return -glm.log_likelihood(theta[None], x_o)[0] + 0.5 * theta @ precision @ theta

    mode = optimize.minimize(minus_log, np.zeros(10), method="BFGS").x
    p = 1 / (1 + np.exp(-glm.DESIGN @ mode))
    hessian = glm.DESIGN.T @ ((p * (1 - p))[:, None] * glm.DESIGN) + precision
    law = stats.multivariate_t(mode, 1.2 * np.linalg.inv(hessian), df=7, seed=0)
    points = law.rvs(60_000)
    log_w = glm.log_likelihood(points, x_o) - law.logpdf(points)
    log_w -= 0.5 * np.sum((points @ precision) * points, axis=1)
    weights = np.exp(log_w - log_w.max())
    assert weights.sum() ** 2 / np.sum(weights**2) > 10_000
    draws, checks = glm.checked_reference(x_o, 2000, np.random.default_rng(1))
    assert checks.passed
    assert_same_averages(draws, points, weights)


def exact_path(field, start, times):
    kwargs = {"method": "LSODA", "rtol": 1e-10, "atol": 1e-10}
    return solve_ivp(field, (0, times[-1]), np.log(start), t_eval=times, **kwargs).y


def test_differential_equations_against_scipy():
    rng = np.random.default_rng(0)
    rates = np.exp(odes.SIR_LOC + odes.SIR_SCALE * rng.standard_normal((12, 2)))
    found = odes.sir_log_infected(rates)
    for path, (beta, gamma) in zip(found, rates, strict=True):
        field = lambda t, y, b=beta, g=gamma: [-b * np.exp(y[1]), b * np.exp(y[0]) - g]  # noqa: E731
        truth = exact_path(field, [1 - 1e-6, 1e-6], 17.0 * np.arange(10))[1]
        np.testing.assert_allclose(path, truth, atol=1e-3)  # noise of a count: above .03
    rates = np.exp(odes.LV_LOC + odes.LV_SCALE * rng.standard_normal((12, 4)))
    found = odes.lotka_log_populations(rates)
    for path, (a, b, c, d) in zip(found, rates, strict=True):
        field = lambda t, y, a=a, b=b, c=c, d=d: [a - b * np.exp(y[1]), d * np.exp(y[0]) - c]  # noqa: E731
        truth = exact_path(field, [30.0, 1.0], 2.1 * np.arange(10)).ravel()
        np.testing.assert_allclose(path, np.clip(truth, np.log(1e-10), np.log(1e4)), atol=2e-3)


def test_the_rate_of_lotka_volterra_is_a_bound():
    rates = draw_prior(TASKS["lotka_volterra"], 200, np.random.default_rng(1))
    prey, predators = np.exp(odes.lotka_log_populations(rates)).reshape(200, 2, 10).max(axis=2).T
    fastest = np.maximum(rates[:, 1] * predators, rates[:, 3] * prey)
    bound = odes._lotka_rate(rates)
    assert np.all(fastest < bound * 1.001)
    assert np.median(fastest / bound) > 0.5  # and not a useless one


def test_lotka_volterra_likelihood_is_lognormal():
    rng = np.random.default_rng(0)
    theta = draw_prior(TASKS["lotka_volterra"], 6, rng)
    x = odes.lotka_simulator(theta[:1], rng)[0]
    laws = stats.lognorm(0.1, scale=np.exp(odes.lotka_log_populations(theta)))
    expected = laws.logpdf(x).sum(axis=1)
    np.testing.assert_allclose(odes.lotka_log_likelihood(theta, x), expected, rtol=1e-9)


def test_sir_reference_against_quadrature():
    _, x_o = observation(TASKS["sir"], DEVELOPMENT + 3)
    draws, checks = odes.sir_checked_reference(x_o, 2000, np.random.default_rng(0))
    assert checks.passed
    logs = np.log(draws)
    centre, spread = logs.mean(axis=0), logs.std(axis=0)
    points = grid(centre - 6 * spread, centre + 6 * spread, 60)
    log_w = odes.sir_log_likelihood(np.exp(points), x_o)
    log_w -= 0.5 * np.sum(((points - odes.SIR_LOC) / odes.SIR_SCALE) ** 2, axis=1)
    weights = np.exp(log_w - log_w.max())
    assert_same_averages((logs - centre) / spread, (points - centre) / spread, weights)


def test_sampler_on_a_gaussian():
    """Prior N(0, I), likelihood N(A theta, I): posterior N(C A^T y, C), C = (I + A^T A)^-1."""
    A = np.array([[3.0, 1.0, 0.0], [0.0, 2.0, -1.0]])
    y = np.array([4.0, -3.0])

    def log_likelihood(theta):
        return -0.5 * np.sum((y - theta @ A.T) ** 2, axis=1)

    rng = np.random.default_rng(0)
    draws, checks = smc.sample_posterior(log_likelihood, np.zeros(3), np.eye(3), 4000, rng)
    assert checks.passed
    C = np.linalg.inv(np.eye(3) + A.T @ A)
    z = np.linalg.solve(np.linalg.cholesky(C), (draws - C @ A.T @ y).T).T
    standard = np.random.default_rng(1).standard_normal((200_000, 3))
    assert_same_averages(z, standard, np.ones(len(standard)))


def test_sampler_finds_both_modes_and_rhat_sees_a_stray_group():
    def log_likelihood(theta):
        return -0.5 * (np.abs(theta[:, 0]) - 2.0) ** 2 / 0.1**2

    draws, checks = smc.sample_posterior(
        log_likelihood, np.zeros(2), np.eye(2), 2000, np.random.default_rng(0)
    )
    assert checks.rhat < 1.02
    # Some resamplings of 2000 particles move the share by a few times sqrt(.25 / 2000) = .011.
    assert np.mean(draws[:, 0] > 0) == pytest.approx(0.5, abs=0.12)
    w = np.random.default_rng(0).standard_normal((4, 500, 2))
    assert smc.nested_rhat(w) < 1.01
    w[0] += 0.5
    assert smc.nested_rhat(w) > 1.01


def test_c2st_and_mmd_know_equal_from_different():
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((2, 300, 2))
    assert c2st(a, b) == pytest.approx(0.5, abs=5 * 0.5 / np.sqrt(600))
    assert c2st(a, b + 10.0) > 0.99
    assert abs(mmd2(a, b)) < 0.02
    assert mmd2(a, b + 10.0) > 0.5


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(DEVELOPMENT, DEVELOPMENT + 2))
def test_two_runs_of_lotka_volterra_agree(seed):
    _, x_o = observation(TASKS["lotka_volterra"], seed)
    runs = [odes.lotka_checked_reference(x_o, 2000, np.random.default_rng(k)) for k in (0, 1)]
    assert all(checks.passed for _, checks in runs)
    first, second = (np.log(draws) for draws, _ in runs)
    shift, scale = first.mean(axis=0), first.std(axis=0)
    assert_same_averages((first - shift) / scale, (second - shift) / scale, np.ones(len(second)))
