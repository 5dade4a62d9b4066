"""Kernels with finite features: parity, error, tolerance, the law of the pivots, Fourier bounds."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given

import kernelbayes as kb
from kernelbayes import laws
from kernelbayes.gram.features import partial_cholesky
from strategies import vectors

X = np.random.default_rng(0).normal(size=(40, 2))
NEW = np.random.default_rng(1).normal(size=(7, 2))
WORDS = ["abc", "abab", "ccc", "a", "bca", "acbc", "abc", ""]

MAKERS = {
    "uniform": lambda *a, **kw: kb.nystrom(*a, **kw),
    "kmeans++": lambda *a, **kw: kb.nystrom(*a, landmarks="kmeans++", **kw),
    "rpcholesky": lambda *a, **kw: kb.nystrom(*a, landmarks="rpcholesky", **kw),
    "random": lambda *a, **kw: kb.pivoted_cholesky(*a, **kw),
    "greedy": lambda *a, **kw: kb.pivoted_cholesky(*a, method="greedy", **kw),
}
every_maker = pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS.keys())


def trace_error(approximation, points):
    """Brute force: the relative trace error from two full Gram matrices."""
    exact = np.trace(approximation.kernel(points))
    return (exact - np.trace(approximation(points))) / exact


# --- landmarks -----------------------------------------------------------------------------------


@every_maker
@pytest.mark.parametrize(
    "kernel",
    [kb.Gaussian(0.5), kb.Gaussian(3.0), kb.Laplace(1.0), kb.Matern(1.0), kb.Polynomial(2)],
    ids=repr,
)
def test_full_rank_is_the_exact_kernel(make, kernel):
    k = make(kernel, X, rank=len(X), rng=0)
    # A residual below n eps max k(x, x) counts as zero, and the rounding of pivoted Cholesky is
    # that times |W|^2 (Higham 2002, Theorem 10.14), |W|^2 of order n in practice. By
    # Cauchy-Schwarz an entry misses as much on X, and at most its square root elsewhere.
    zero = len(X) ** 2 * 2.2e-16 * kernel.diag(X).max()
    np.testing.assert_allclose(k(X), kernel(X), rtol=0.0, atol=zero)
    np.testing.assert_allclose(k(NEW, X), kernel(NEW, X), rtol=0.0, atol=zero**0.5)
    assert k.error <= zero
    laws.check_kernel(k, X)


@every_maker
def test_the_kernel_is_the_product_of_its_features(make):
    k = make(kb.Gaussian(1.0), X, rank=10, rng=0)
    F = k.features(NEW)
    assert F.shape == (7, k.rank) == (7, 10)
    np.testing.assert_allclose(k(NEW, X), F @ k.features(X).T, rtol=1e-13, atol=1e-15)
    # The definition k(x, z) K_zz^-1 k(z, y); solving loses up to the condition number of K_zz.
    Z = k.landmarks
    K = k.kernel(Z)
    expected = k.kernel(NEW, Z) @ np.linalg.solve(K, k.kernel(Z, X))
    atol = 100.0 * 2.2e-16 * np.linalg.cond(K)
    np.testing.assert_allclose(k(NEW, X), expected, rtol=0.0, atol=atol)


@every_maker
def test_the_error_reported_is_the_trace_error(make):
    for rank in (1, 5, 20):
        k = make(kb.Matern(1.0, 1.5), X, rank=rank, rng=0)
        # The errors are sums of 40 differences of numbers up to 1, each a few roundings off.
        assert k.error == pytest.approx(trace_error(k, X), abs=1e-13)


@pytest.mark.parametrize("name", ["uniform", "rpcholesky", "random", "greedy"])
@pytest.mark.parametrize("seed", range(3))
def test_pivots_are_nested_and_the_error_decreases(name, seed):
    ranks = [1, 2, 5, 10, 20, 40]
    ks = [MAKERS[name](kb.Gaussian(0.5), X, rank=r, rng=seed) for r in ranks]
    for small, large in itertools.pairwise(ks):
        assert set(map(tuple, small.landmarks)) <= set(map(tuple, large.landmarks))
        assert large.error <= small.error + 1e-14  # exact in theory: room for rounding
        assert np.linalg.eigvalsh(large(X) - small(X)).min() > -1e-12  # monotone as matrices


@every_maker
@pytest.mark.parametrize("tol", [0.5, 0.1, 1e-3, 1e-8])
def test_the_tolerance_is_honoured(make, tol):
    k = make(kb.Gaussian(1.0), X, tol=tol, rng=0)
    assert k.error <= tol
    assert trace_error(k, X) <= tol + 1e-13  # rounding, as above


def test_the_tolerance_takes_no_more_pivots_than_needed():
    k = kb.pivoted_cholesky(kb.Gaussian(1.0), X, tol=0.1, method="greedy")
    assert kb.pivoted_cholesky(kb.Gaussian(1.0), X, k.rank - 1, method="greedy").error > 0.1


@every_maker
def test_rank_and_tolerance_whichever_comes_first(make):
    assert make(kb.Gaussian(0.1), X, rank=3, tol=1e-9, rng=0).rank == 3
    assert make(kb.Gaussian(9.0), X, rank=39, tol=0.5, rng=0).rank < 39


@every_maker
@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"rank": 0}, ValueError, "rank must be an integer of at least 1, got 0"),
        ({"rank": -1}, ValueError, "rank must be an integer of at least 1, got -1"),
        ({"rank": 2.5}, ValueError, "rank must be an integer of at least 1, got 2.5"),
        ({}, ValueError, "give a rank .* or tol"),
        ({"tol": -0.1}, ValueError, "tol must lie in"),
        ({"tol": 1.0}, ValueError, "tol must lie in"),
        ({"tol": math.nan}, ValueError, "tol must lie in"),
        ({"rank": 2, "rng": "seed"}, TypeError, "rng must be"),
    ],
)
def test_bad_arguments_are_refused(make, arguments, error, message):
    with pytest.raises(error, match=message):
        make(kb.Gaussian(1.0), X, **arguments)


@every_maker
def test_a_rank_above_the_number_of_points_means_all_of_them(make):
    # Nystrom takes every point; pivots stop at the numerical rank, as they do for a rank of n.
    found, every = (make(kb.Laplace(0.1), X, rank=r, rng=0).rank for r in (10 * len(X), len(X)))
    assert found == every == len(X)


def test_bad_choices_are_refused():
    with pytest.raises(ValueError, match="method must be one of 'random', 'greedy', got 'best'"):
        kb.pivoted_cholesky(kb.Gaussian(1.0), X, 2, method="best")
    with pytest.raises(ValueError, match=r"landmarks must be one of .uniform."):
        kb.nystrom(kb.Gaussian(1.0), X, 2, landmarks="best")
    with pytest.raises(TypeError, match="needs vectors"):
        kb.nystrom(kb.Spectrum(2), WORDS, 2, landmarks="kmeans++")
    with pytest.raises(ValueError, match="shapes"):
        kb.nystrom(kb.Gaussian(1.0), X, 2, rng=0).features(X[:, :1])


@every_maker
def test_the_same_rng_gives_the_same_result(make):
    first, second = (make(kb.Gaussian(1.0), X, rank=8, rng=5) for _ in range(2))
    assert first == second
    generators = [np.random.default_rng(5) for _ in range(2)]
    first, second = (make(kb.Gaussian(1.0), X, rank=8, rng=g) for g in generators)
    assert first == second
    assert generators[0].random() == generators[1].random()


@every_maker
@given(points=vectors(min_size=2))
def test_degenerate_points_keep_the_laws(make, points):
    # Duplicates, constants and all scales; the numerical rank may be one, or (Linear) zero.
    for kernel in (kb.Gaussian(1.0), kb.Linear()):
        k = make(kernel, points, rank=len(points), rng=0)
        laws.check_kernel(k, points)
        size = max(1.0, kernel.diag(points).max())
        np.testing.assert_allclose(k(points) / size, kernel(points) / size, atol=1e-12)


def test_an_offset_does_not_spoil_the_landmarks():
    moved = np.round(X, 3) + 1e8
    k = kb.nystrom(kb.Gaussian(0.5), moved, len(X), rng=0, landmarks="kmeans++")
    # All points are landmarks, each once; the rest is rounding as at full rank above.
    np.testing.assert_allclose(k(moved), kb.Gaussian(0.5)(moved), rtol=0.0, atol=1e-12)


@pytest.mark.parametrize("name", ["uniform", "rpcholesky", "random", "greedy"])
def test_structured_points(name):
    mapping = {"x": X[:8], "s": WORDS}
    for kernel, points in [
        (kb.Spectrum(2), WORDS),
        (kb.Parts({"x": kb.Gaussian(1.0), "s": kb.Spectrum(1)}), mapping),
    ]:
        k = MAKERS[name](kernel, points, rank=8, rng=0)
        # Counts are below 10, so Gram matrices below 100: as at full rank above.
        np.testing.assert_allclose(k(points), kernel(points), rtol=0.0, atol=1e-12)
        laws.check_kernel(MAKERS[name](kernel, points, rank=3, rng=0), points)


def test_words_without_substrings_have_zero_features():
    k = kb.pivoted_cholesky(kb.Spectrum(5), WORDS, 3, rng=0)
    np.testing.assert_array_equal(k.features(WORDS), 0.0)
    assert k.error == 0.0


def test_randomly_pivoted_cholesky_has_its_law():
    """First two pivots against P(i, j) = k_ii / tr K * r_jj / tr R, R the residual after i."""
    points = np.array([[0.0], [0.3], [1.0], [2.5]])
    kernel = kb.Gaussian(1.0) * kb.Polynomial(1, 1.0)  # a diagonal that is not constant
    K = kernel(points)
    exact = np.zeros((4, 4))
    for i in range(4):
        residual = np.diag(K) - K[i] ** 2 / K[i, i]
        residual[i] = 0.0
        exact[i] = K[i, i] / np.trace(K) * residual / residual.sum()
    rng, repetitions = np.random.default_rng(0), 800
    counts = np.zeros((4, 4))
    for _ in range(repetitions):
        pivots, _, _ = partial_cholesky(kernel, points, 2, rng=rng)
        counts[tuple(pivots)] += 1
    assert counts[exact == 0.0].sum() == 0
    # Standard error of a frequency; five of them in 12 cells: a false alarm in 10^5 seeds.
    error = np.sqrt(exact * (1.0 - exact) / repetitions)
    np.testing.assert_array_less(np.abs(counts / repetitions - exact), 5.0 * error + 1e-15)


# --- Fourier features ----------------------------------------------------------------------------

STATIONARY = [
    kb.Gaussian(0.8),
    kb.Gaussian((0.5, 2.0)),
    kb.Laplace((0.5, 2.0)),
    kb.Matern(0.8, 0.5),
    kb.Matern((0.5, 2.0), 1.5),
    kb.Matern(0.8, 2.5),
    kb.RationalQuadratic(0.8, 0.7),
]


@pytest.mark.parametrize("kernel", STATIONARY, ids=repr)
def test_fourier_error_is_within_its_hoeffding_bound(kernel):
    rank, pairs = 4000, len(X) * (len(X) - 1) / 2
    k = kb.fourier(kernel, 2, rank, rng=0)
    assert k.features(X).shape == (len(X), rank)
    # Hoeffding for each pair, all pairs together failing for one seed in a million.
    bound = math.sqrt(4.0 * math.log(2.0 * pairs * 1e6) / rank)
    assert np.abs(k(X) - kernel(X)).max() <= bound
    np.testing.assert_allclose(k.diag(X), 1.0, rtol=0.0, atol=1e-12)  # cos^2 + sin^2, 2000 times


def test_fourier_arguments():
    assert kb.fourier(kb.Gaussian(1.0), 2, 4, rng=1) == kb.fourier(kb.Gaussian(1.0), 2, 4, rng=1)
    for arguments, error, message in [
        ((kb.Gaussian(1.0), 2, 0), ValueError, "rank"),
        ((kb.Gaussian(1.0), 2, 3), ValueError, "rank"),
        ((kb.Gaussian(1.0), 0, 2), ValueError, "dim must be an integer of at least 1"),
        ((kb.Gaussian((1.0, 2.0)), 3, 2), ValueError, "2 bandwidths, but dim is 3"),
        ((kb.Linear(), 2, 2), TypeError, "use nystrom or pivoted_cholesky"),
    ]:
        with pytest.raises(error, match=message):
            kb.fourier(*arguments, rng=0)
    with pytest.raises(ValueError, match="dimension 3, but X has 2 columns"):
        kb.fourier(kb.Gaussian(1.0), 3, 4, rng=0).features(X)


# --- composites ----------------------------------------------------------------------------------


def test_composites_of_finite_kernels_have_finite_features():
    a = kb.nystrom(kb.Gaussian(1.0), X, 3, rng=0)
    b = kb.fourier(kb.Laplace(1.0), 2, 4, rng=0)
    one = kb.pivoted_cholesky(kb.Matern(1.0), X[:, :1], 2, rng=0)
    table = [
        (a + b, a(X, NEW) + b(X, NEW), 7),
        (a * b, a(X, NEW) * b(X, NEW), 12),
        (3.0 * a, 3.0 * a(X, NEW), 3),
        (2.0 * (a + kb.Linear()) * b, 2.0 * (a(X, NEW) + X @ NEW.T) * b(X, NEW), 20),
        (kb.Parts({0: one, (0, 1): a}), one(X[:, 0], NEW[:, 0]) * a(X, NEW), 6),
    ]
    for kernel, expected, rank in table:
        assert kernel.finite
        assert kernel.features(X).shape == (len(X), rank)
        # Products of numbers up to 10: a few roundings.
        np.testing.assert_allclose(kernel(X, NEW), expected, rtol=0.0, atol=1e-13)
        product = kernel.features(X) @ kernel.features(NEW).T
        np.testing.assert_allclose(product, expected, rtol=0.0, atol=1e-13)
    assert not (a + kb.Gaussian(1.0)).finite
    with pytest.raises(TypeError, match="no finite features"):
        (a * kb.Gaussian(1.0)).features(X)
