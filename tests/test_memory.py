"""Large inputs are worked through in row blocks: the peak of memory stays bounded."""

import tracemalloc

import numpy as np
import pytest

import kernelbayes as kb

MB = 2**20


def peak(work):
    """Run and return the peak of memory allocated meanwhile, in MB."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1] / MB
    finally:
        tracemalloc.stop()


def points(n, d=5, seed=0):
    return np.random.default_rng(seed).normal(size=(n, d))


def test_evaluation_at_200_000_points():
    mu, X = kb.embed(points(500), kb.Gaussian(1.0)), points(200_000, seed=1)
    # The Gram matrix would take 800 MB; a few blocks of 32 MB and the result of 2 MB do not.
    assert peak(lambda: mu(X)) < 300


@pytest.mark.parametrize(
    "kernel",
    [
        kb.Laplace(1.0),
        kb.Polynomial(2),
        kb.Gaussian(1.0) + kb.Linear(),
        kb.Parts({0: kb.Gaussian(1.0), range(1, 5): kb.Matern(1.0, 0.5)}),
    ],
    ids=repr,
)
def test_evaluation_with_other_kernels(kernel):
    mu, X = kb.embed(points(500), kernel), points(30_000, seed=1)
    # The Gram matrix would take 120 MB; blocks of 32 MB, one per nested kernel and one spare.
    assert peak(lambda: mu(X)) < 100


@pytest.mark.parametrize("n", [5_000, pytest.param(20_000, marks=pytest.mark.slow)])
def test_norm_and_mmd_of_many_points(n):
    mu, nu = (kb.embed(points(n, seed=s), kb.Gaussian(1.0)) for s in (0, 1))
    # The Gram matrix would take 200 MB (5 000) or 3.2 GB (20 000); blocks take 32 MB.
    bound = 100 if n == 5_000 else 300
    assert peak(mu.norm) < bound
    assert peak(lambda: kb.mmd(mu, nu)) < bound


@pytest.mark.parametrize(
    ("n", "rank"), [(50_000, 100), pytest.param(200_000, 500, marks=pytest.mark.slow)]
)
def test_mean_features_of_many_points(n, rank):
    X = points(n)
    # All features would take 40 MB or 800 MB; the mean needs a few blocks.
    for kernel in (
        kb.nystrom(kb.Gaussian(1.0), X, rank, rng=0),
        kb.fourier(kb.Gaussian(1.0), 5, rank, rng=0),
    ):
        mu = kb.embed(X, kernel)
        assert peak(mu.norm) < (40 if rank == 100 else 300)
        assert peak(lambda mu=mu: mu(X)) < (100 if rank == 100 else 300)


def test_features_and_diagonal_take_little_beyond_their_result():
    X = points(100_000)
    for kernel in (
        kb.nystrom(kb.Gaussian(1.0), X[:5000], 100, rng=0),
        kb.fourier(kb.Gaussian(1.0), 5, 100, rng=0),
    ):
        result = 100_000 * 100 * 8 / MB
        assert peak(lambda k=kernel: k.features(X)) < result + 100
        assert peak(lambda k=kernel: k.diag(X)) < 200  # three blocks of 32 MB and room


def test_making_landmarks_takes_columns_only():
    X = points(20_000)
    # The Gram matrix would take 3.2 GB, its 50 columns 8 MB.
    for make in (kb.nystrom, kb.pivoted_cholesky):
        assert peak(lambda make=make: make(kb.Gaussian(1.0), X, 50, rng=0)) < 150
    for landmarks in ("kmeans++", "rpcholesky"):
        assert peak(lambda m=landmarks: kb.nystrom(kb.Gaussian(1.0), X, 50, 0, landmarks=m)) < 150


@pytest.mark.parametrize("m", [None, 3])
def test_covariance_in_many_dimensions(m):
    X = points(1000, 300)
    mu = kb.embed(X, kb.Gaussian(1.0), np.full(1000 if m is None else (m, 1000), 1e-3))
    # All products of coordinates would take 720 MB; a few copies of the points take 2.4 MB each.
    assert peak(mu.cov) < 60


def test_covariances_of_many_members():
    mu = kb.embed(points(20_000, 20), kb.Gaussian(1.0), np.full((50, 20_000), 1.0 / 20_000))
    assert peak(mu.cov) < 200  # the products take 64 MB, all at once, and here come in blocks
