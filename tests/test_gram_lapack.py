"""Factorisations and solves against their definitions, single and stacked."""

import numpy as np
import pytest

from kernelbayes.gram import lapack
from kernelbayes.gram.solvers import cho_solve

RNG = np.random.default_rng(0)
A = RNG.normal(size=(30, 6))
POSITIVE = A.T @ A / 30 + np.eye(6)
STACK = np.stack([POSITIVE, 2.0 * POSITIVE, np.eye(6)])
B = RNG.normal(size=(6, 3))
# Matrices of condition below 100: everything holds to some hundred units of rounding.
close = {"rtol": 1e-11, "atol": 1e-12}


@pytest.mark.parametrize("M", [POSITIVE, STACK], ids=["one", "stack"])
def test_factors_multiply_to_the_matrix(M):
    L = lapack.cholesky(M)
    np.testing.assert_allclose(L @ np.swapaxes(L, -1, -2), M, **close)
    assert np.all(np.triu(L, 1) == 0)
    values, V = lapack.eigh(M)
    np.testing.assert_allclose((V * values[..., None, :]) @ np.swapaxes(V, -1, -2), M, **close)
    np.testing.assert_allclose(lapack.eigenvalues(M), values, **close)
    inverse, log_det = lapack.inverse_and_log_det(M)
    np.testing.assert_allclose(inverse @ M, np.broadcast_to(np.eye(6), M.shape), **close)
    np.testing.assert_allclose(log_det, np.log(values).sum(axis=-1), **close)
    right = np.broadcast_to(B, (*M.shape[:-2], 6, 3))
    np.testing.assert_allclose(M @ lapack.solve(M, right), right, **close)


@pytest.mark.parametrize("b", [B, B[:, 0]], ids=["columns", "one column"])
def test_solves(b):
    L = lapack.cholesky(POSITIVE)
    np.testing.assert_allclose(L @ lapack.solve_triangular(L, b), b, **close)
    np.testing.assert_allclose(L.T @ lapack.solve_triangular(L, b, transpose=True), b, **close)
    for found in (
        cho_solve(L, b),
        lapack.solve(POSITIVE, b),
        lapack.solve_positive(POSITIVE, b),
        lapack.solve_positive(POSITIVE.copy(), b, overwrite=True),
    ):
        assert found.shape == b.shape
        np.testing.assert_allclose(POSITIVE @ found, b, **close)


@pytest.mark.parametrize("factor", [lapack.cholesky, lambda M: lapack.solve_positive(M, B)])
def test_an_indefinite_matrix_is_refused(factor):
    with pytest.raises(np.linalg.LinAlgError):
        factor(POSITIVE - 10.0 * np.eye(6))


def test_a_ridge_for_each_column():
    ridges = np.array([0.1, 1e-3, 0.1])
    found = lapack.solve_ridges(POSITIVE, B, ridges)
    for j, ridge in enumerate(ridges):
        np.testing.assert_allclose((POSITIVE + ridge * np.eye(6)) @ found[:, j], B[:, j], **close)
    singular = np.ones((6, 6))  # no Cholesky factor at this ridge: its rounding is the ridge
    found = lapack.solve_ridges(singular, np.ones((6, 1)), np.array([1e-300]))
    np.testing.assert_allclose(singular @ found, 1.0, rtol=1e-6)


def test_pivots_stop_at_the_rank():
    M = A @ A.T
    L, pivots, rank = lapack.pivoted_factor(M)
    assert rank == 6
    assert sorted(pivots) == list(range(30))
    found = np.tril(L)[:, :rank]
    np.testing.assert_allclose(found @ found.T, M[np.ix_(pivots, pivots)], rtol=1e-10, atol=1e-10)


def test_roots_and_whitening():
    L = lapack.symmetric_factor(A @ A.T)
    np.testing.assert_allclose(L @ L.T, A @ A.T, rtol=1e-10, atol=1e-10)
    W = lapack.whitening(A @ A.T, 1e-10)
    assert W.shape == (30, 6)
    np.testing.assert_allclose(W.T @ (A @ A.T) @ W, np.eye(6), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("M", [A, A.T, np.hstack([A, A])], ids=["tall", "wide", "deficient"])
def test_left_singular_vectors(M):
    U, squares = lapack.left_singular(M)
    assert len(squares) == 6
    np.testing.assert_allclose((U * squares) @ U.T, M @ M.T, rtol=1e-10, atol=1e-10)
    assert lapack.left_singular(np.zeros((4, 2)))[0].shape == (4, 0)


def test_least_squares_and_rank():
    found = lapack.least_squares(A, A @ B)
    np.testing.assert_allclose(found, B, **close)
    assert lapack.numerical_rank(np.hstack([A, A])) == 6


def test_the_condition_is_that_of_the_1_norm():
    found = lapack.condition_number(POSITIVE, lapack.cholesky(POSITIVE + 0.5 * np.eye(6)), 0.5)
    expected = np.linalg.cond(POSITIVE + 0.5 * np.eye(6), 1)
    # LAPACK's estimate of the inverse's norm is a lower bound, rarely off by more than a factor 3;
    # the norm of the matrix is that without the ridge, plus it.
    assert expected / 3.0 <= found <= 1.5 * expected


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_matrix_too_large_for_one_call_is_factored_by_halves(monkeypatch, order, dtype):
    """OpenBLAS with several threads crashes at 16,300 rows: Python dies without a word."""
    M = np.asarray(POSITIVE, dtype=dtype, order=order)
    expected = lapack.cholesky(M)
    monkeypatch.setattr(lapack, "ROWS_AT_ONCE", 2)
    found = lapack.cholesky(M)
    assert found.dtype == dtype
    np.testing.assert_allclose(found, expected, rtol=20 * np.finfo(dtype).eps, atol=1e-6)
    with pytest.raises(np.linalg.LinAlgError):
        lapack.cholesky(M - 10.0 * np.eye(6, dtype=dtype))
