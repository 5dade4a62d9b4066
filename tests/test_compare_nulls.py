"""Null distributions without permutations, and those of large samples."""

import itertools
import math

import numpy as np
import pytest

import kernelbayes as kb
from kernelbayes.compare import nulls
from kernelbayes.gram import Dense, LowRank


def test_moments_of_the_permutation_distribution_are_exact():
    rng = np.random.default_rng(0)
    A, B = (nulls.centred(Dense(M @ M.T)) for M in rng.normal(size=(2, 6, 3)))
    values = [np.vdot(A, B[np.ix_(p, p)]) for p in map(list, itertools.permutations(range(6)))]
    moments = (nulls.matrix_moments(Dense(M)) for M in (A, B))
    mean, variance = nulls.permutation_moments(*moments, 6)
    assert mean == pytest.approx(np.mean(values))
    assert variance == pytest.approx(np.var(values))
    factor = np.linalg.cholesky(A + 1e-9 * np.eye(6))
    np.testing.assert_allclose(
        nulls.matrix_moments(LowRank(factor)), nulls.matrix_moments(Dense(A)), rtol=1e-6
    )


@pytest.mark.parametrize("shift", [0.0, 0.3])
def test_gamma_agrees_with_permutations(shift):
    """Five standard errors of 4000 permutations are exceeded with probability 1e-6.

    The standard error of a share is at most 0.008, that of a standard deviation 3 % (the kurtosis
    is at most 15). The gamma law's own error comes on top: at these sizes its p-values and those of
    permutations differ by at most 0.04 (80 samples).
    """
    rng = np.random.default_rng(2)
    X, Y = rng.normal(size=(60, 2)), rng.normal(size=(90, 2)) + shift
    x, y = X[:, 0], X[:, 1] + shift * X[:, 0]
    for exact, law in (
        [kb.mmd_test(X, Y, None, 4000, 0, method=m) for m in ("permutation", "gamma")],
        [kb.hsic_test(x, y, None, None, 4000, 0, method=m) for m in ("permutation", "gamma")],
    ):
        assert law.statistic == pytest.approx(exact.statistic)
        assert law.pvalue == pytest.approx(exact.pvalue, abs=0.08)
        error = exact.null.std() / math.sqrt(4000)
        assert law.null.mean() == pytest.approx(exact.null.mean(), abs=5.0 * error)
        np.testing.assert_allclose(law.null.std(), exact.null.std(), rtol=0.15)


def test_multipliers_have_the_stated_mean_variance_and_memory():
    """Means of some 10^5 independent terms: 0.02 is five standard errors."""
    w = np.full(300, 1.0 / 300)
    W = nulls.multipliers(w, 4000, 5.0, np.random.default_rng(0))
    np.testing.assert_allclose(w @ W, 0.0, atol=1e-12)
    assert np.mean(W**2) == pytest.approx(1.0, abs=0.02)
    # Centring takes about 1/60 off the correlation.
    assert np.mean(W[:-1] * W[1:]) == pytest.approx(math.exp(-0.2), abs=0.03)
    assert nulls.memory(0.0, 10**6, "auto") == (0.0, 1.0)
    assert nulls.memory(0.9, 100, 7) == (7.0, 1.0)
    assert nulls.memory(0.8, 200, "auto")[0] > nulls.memory(0.4, 200, "auto")[0] > 1.0


def test_linear_time_statistics_are_unbiased():
    """Averaged over orders of the rows the quadruples give the unbiased estimate itself.

    Five standard errors of 400 orders: probability 1e-6.
    """
    rng = np.random.default_rng(0)
    X, Y, x = rng.normal(size=(8, 2)), rng.normal(size=(8, 2)) + 0.5, rng.normal(size=8)
    k = kb.Gaussian(1.0)
    y = np.sin(2.0 * x) + 0.5 * rng.normal(size=8)
    for run in (
        lambda seed, **o: kb.mmd_test(X, Y, k, 5, seed, **o),
        lambda seed, **o: kb.hsic_test(x, y, k, k, 5, seed, **o),
    ):
        values = [run(seed, method="linear").statistic for seed in range(400)]
        exact = run(0, unbiased=True).statistic
        assert abs(np.mean(values) - exact) < 5.0 * np.std(values) / math.sqrt(400)
