"""Likelihoods learned near one observation: a quadratic mean is found exactly."""

import numpy as np
import pytest
from scipy import stats

import kernelbayes as kb
from kernelbayes.likelihood_free.learn.adjust import quadratic, quadratic_terms
from kernelbayes.likelihood_free.learn.nearby import Mean, Nearby, near_count, shrunk


@pytest.mark.parametrize("d", [1, 2, 4])
def test_terms(d):
    U = np.random.default_rng(d).normal(size=(5, d))
    terms = quadratic(U)
    assert terms.shape == (5, quadratic_terms(d))
    np.testing.assert_allclose(terms[:, 1 : d + 1], U)
    # Any quadratic form is a combination of the terms.
    A = np.random.default_rng(1).normal(size=(d, d))
    form = 2.0 + U @ A[0] + np.einsum("ij,jk,ik->i", U, A, U)
    i, j = np.triu_indices(d)
    products = np.where(i == j, A[i, j], A[i, j] + A[j, i])
    np.testing.assert_allclose(terms @ np.concatenate([[2.0], A[0], products]), form)


def nearby(P, S):
    """Likelihoods whose mean is a quadratic function alone."""
    nothing = Mean.fit(P, np.zeros(S.shape), np.random.default_rng(0))
    return Nearby(P, S, nothing, np.arange(S.shape[1]))


def bent(P, rng, noise):
    means = np.column_stack([P[:, 0] ** 2 + P[:, 1], P[:, 0] * P[:, 1], P[:, 0]])
    return means + noise * rng.normal(size=means.shape)


@pytest.mark.parametrize("seed", range(3))
def test_a_quadratic_mean_is_found(seed):
    rng = np.random.default_rng(seed)
    P, noise = rng.normal(size=(4000, 2)), 0.3
    near = nearby(P, bent(P, rng, noise))
    around = rng.normal([0.5, -0.5], 0.1, size=(300, 2))
    found = near.around(around, np.full(300, 1 / 300))
    T = rng.normal([0.5, -0.5], 0.1, size=(50, 2))
    # With k simulations and six terms a mean is known to noise * sqrt(6 / k), five deviations
    # of which are allowed; the weights leave three fifths of them effective.
    error = 5 * noise * np.sqrt(6 / (0.6 * near_count(4000, 2)))
    means = quadratic(found.frame.whiten(T)) @ found.beta
    np.testing.assert_allclose(means, bent(T, rng, 0.0), atol=error)
    # The noise is known to 1 in sqrt(2 k), and 1 in k of it is held back for each term.
    deviations = np.linalg.norm(found.factor, axis=1)
    np.testing.assert_allclose(deviations, noise, rtol=5 / np.sqrt(2 * found.free) + 0.05)
    # Up to a constant the likelihood is SciPy's t distribution.
    s, shape = bent(T[:1], rng, noise)[0], found.factor @ found.factor.T
    wanted = [stats.multivariate_t(s, shape, df=found.free).logpdf(m) for m in means]
    ours = found.log_likelihood(T, s)
    np.testing.assert_allclose(ours - ours[0], np.array(wanted) - wanted[0], atol=1e-8)


@pytest.mark.parametrize("seed", range(3))
def test_a_mean_has_the_parameters_that_matter(seed):
    rng = np.random.default_rng(seed)
    P, noise = rng.normal(size=(400, 6)), 0.2
    slopes = np.zeros((6, 3))
    slopes[0, 0], slopes[3, 1] = 1.0, -0.5
    Y = P @ slopes + noise * rng.normal(size=(400, 3))
    Y[:, 2] += np.sin(3.0 * P[:, 5])  # not linear
    found = Mean.fit(P, Y, rng)
    # A slope is known to noise / sqrt(400); five deviations of that.
    assert abs(found.slopes[1, 0] - 1.0) < 5 * noise / 20
    assert abs(found.slopes[4, 1] + 0.5) < 5 * noise / 20
    # Of the other ten terms of these two columns, one in 70 is taken by chance: three are not.
    assert np.sum(found.slopes[1:, :2] != 0) <= 4
    # The rest is left to the regression, which explains most of a sine.
    missed = Y[:, 2] - found.left_out[:, 2]
    assert np.var(missed) < 0.5 * np.var(Y[:, 2])
    again = Mean.fit(P[:300], Y[:300], rng, like=found)
    np.testing.assert_array_equal(again.slopes != 0, found.slopes != 0)


@pytest.mark.parametrize("free", [4.0, np.inf])
@pytest.mark.parametrize("seed", range(3))
def test_correlations_lose_their_sampling_error(seed, free):
    """Those of independent columns, with tails or without, go; real ones stay."""
    rng, n, p = np.random.default_rng(seed), 100, 12
    w = np.full(n, 1 / n)
    tails = np.sqrt(rng.chisquare(free, size=(n, p)) / free) if np.isfinite(free) else 1.0
    noise = np.arange(1, p + 1) * rng.normal(size=(n, p)) / tails
    C, plain = shrunk(noise, w), noise.T @ noise / n
    np.testing.assert_allclose(np.diag(C), np.diag(plain))
    np.testing.assert_allclose(C, C.T)
    outside = ~np.eye(p, dtype=bool)
    # The 66 squared correlations are their own error but for 1 in sqrt(66 / 2), 17 %; with tails
    # they vary about twice as much. At most two deviations of that are left.
    assert np.all(np.abs(C[outside]) <= 0.7 * np.abs(plain[outside]))
    shared = noise / np.arange(1, p + 1) + 2.0 * rng.normal(size=(n, 1))
    C, plain = shrunk(shared, w), shared.T @ shared / n
    assert np.all(np.abs(C[outside]) > 0.9 * np.abs(plain[outside]))


def test_beyond_its_simulations_the_mean_stays():
    rng = np.random.default_rng(0)
    P = rng.normal(size=(1000, 2))
    found = nearby(P, bent(P, rng, 0.1)).around(P, np.full(1000, 1e-3))
    away = np.array([[3.0, 4.0]]) / 5.0 * found.reach
    there = found.frame.mean + (found.frame.factor @ away.T).T
    further = found.frame.mean + (found.frame.factor @ (10 * away).T).T
    s = np.zeros(3)
    np.testing.assert_allclose(
        found.log_likelihood(further, s), found.log_likelihood(there, s), rtol=1e-9
    )


def test_columns_that_do_not_vary_there():
    rng = np.random.default_rng(0)
    P = rng.normal(size=(500, 1))
    S = np.column_stack([P[:, 0] + 0.1 * rng.normal(size=500), np.zeros(500)])
    found = nearby(P, S).around(np.linspace(-0.3, 0.3, 50)[:, None], np.full(50, 0.02))
    there = np.linspace(-1, 1, 5)[:, None]  # the ends beyond the simulations that count
    logs = found.log_likelihood(there, np.zeros(2))
    assert np.all(np.isfinite(logs))
    assert np.argmax(logs) == 2


def test_it_wins_where_a_mean_bends_and_noise_is_small():
    """Posterior of a steep curve: close to the exact one, by quadrature."""
    rng = np.random.default_rng(0)
    theta = rng.normal(size=(600, 2))

    def simulator(theta, rng):
        growth = np.exp(2.0 * theta[:, :1] * np.linspace(0.2, 1.0, 5)) + theta[:, 1:]
        return growth * np.exp(0.05 * rng.normal(size=growth.shape))

    x = simulator(theta, rng)
    model = kb.LikelihoodFree([stats.norm()] * 2, "likelihood", rng=0).fit(theta, x)
    assert {r["variant"].summary for r in model.choice_} == {"data", "near data"}
    posterior = model.posterior(simulator(np.array([[0.3, 0.5]]), rng)[0])
    assert np.all(np.abs(posterior.mean() - [0.3, 0.5]) < 0.3)
