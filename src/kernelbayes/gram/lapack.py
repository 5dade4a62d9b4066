"""Factorisations and solves: the one place that calls a linear algebra library.

NumPy goes to SciPy's LAPACK, torch to its own differentiable calls, other array-API arrays to the
standard. Functions that take stacks (..., r, r) say so; those are NumPy only. A matrix that is not
positive definite raises ``numpy.linalg.LinAlgError``; nothing is repaired here. The rescue, and
the solve with a given Cholesky factor, are in :mod:`kernelbayes.gram.solvers`.
"""

from functools import cache
from typing import Any

import numpy as np
import scipy.linalg
from array_api_compat import is_torch_array

from kernelbayes.arrays import epsilon, like, namespace, to_float
from kernelbayes.types import Array, Floats, Ints

LinAlgError = np.linalg.LinAlgError
HAGER_STEPS = 5  # LAPACK's own number: most matrices need two
# OpenBLAS 0.3.30 with two threads factored 12,000 rows and crashed at 16,300 (OpenBLAS #2562).
ROWS_AT_ONCE = 8192
BLAS = ("gemm", "trsm", "syrk")


@cache
def _routine(name: str, *kinds: np.dtype[Any]) -> Any:
    """LAPACK's or BLAS's routine for arrays of these types: finding it takes microseconds."""
    found = scipy.linalg.get_blas_funcs if name in BLAS else scipy.linalg.get_lapack_funcs
    return found(name, dtype=np.result_type(*kinds))


def cholesky(A: Array) -> Array:
    """Lower Cholesky factor of A (r, r), or of a stack (..., r, r)."""
    if isinstance(A, np.ndarray):
        if A.ndim > 2:
            return np.linalg.cholesky(A)
        if len(A) > ROWS_AT_ONCE:
            return _by_halves(A)
        return scipy.linalg.cholesky(A, lower=True, check_finite=False)
    xp = namespace(A)
    try:
        L = xp.linalg.cholesky(A)
    except RuntimeError as error:  # torch's LinAlgError is a RuntimeError
        raise LinAlgError(str(error)) from error
    if not bool(xp.all(xp.isfinite(L))):  # JAX answers NaN instead of raising
        raise LinAlgError("matrix is not positive definite")
    return L


def _by_halves(A: Floats) -> Floats:
    """Lower Cholesky factor of a matrix too large for one call."""
    half, L = len(A) // 2, np.zeros_like(A, order="F")
    L[:half, :half] = cholesky(A[:half, :half])
    L[half:, :half] = solve_triangular(L[:half, :half], A[half:, :half].T).T
    L[half:, half:] = cholesky(A[half:, half:] - L[half:, :half] @ L[half:, :half].T)
    return L


def solve_triangular(L: Array, B: Array, transpose: bool = False) -> Array:
    """Solve L Y = B, or L^T Y = B, for lower-triangular L (r, r) and B (r,) or (r, k)."""
    if isinstance(L, np.ndarray):
        if B.size == 0:
            return np.zeros(B.shape, dtype=np.result_type(L, B))
        # LAPACK itself: SciPy's checks take longer than the solve of a small system. It reads
        # columns first, so a factor stored by rows is an upper one to it.
        trtrs = _routine("trtrs", L.dtype, B.dtype)
        rows = L.flags.c_contiguous
        Y, info = trtrs(L.T if rows else L, B, lower=not rows, trans=rows != transpose)
        if info > 0:
            raise LinAlgError("triangular matrix is singular")
        return np.asarray(Y).reshape(B.shape)
    column = B[:, None] if B.ndim == 1 else B
    M = L.T if transpose else L
    if is_torch_array(L):
        import torch

        Y = torch.linalg.solve_triangular(M, column, upper=transpose)
    else:
        Y = namespace(L, B).linalg.solve(M, column)
    return Y[:, 0] if B.ndim == 1 else Y


def solve_positive(A: Floats, b: Floats, overwrite: bool = False) -> Floats:
    """Solve A y = b for positive definite A (r, r), in one call of LAPACK: for hot loops."""
    _, y, info = _routine("posv", A.dtype, b.dtype)(A, b, lower=1, overwrite_a=overwrite)
    if info > 0:
        raise LinAlgError("matrix is not positive definite")
    return np.asarray(y).reshape(b.shape)


def solve_ridges(A: Floats, B: Floats, ridges: Floats) -> Floats:
    """Columns (A + ridge_j I)^-1 b_j for positive semi-definite A (r, r) and B (r, q).

    Columns of the same ridge share a factorisation. A ridge below rounding, at which it fails,
    counts as the rounding of the largest eigenvalue.
    """
    found = np.empty(B.shape)
    for ridge in np.unique(ridges):
        columns = ridges == ridge
        shifted = A.copy()
        shifted.flat[:: len(A) + 1] += ridge
        try:
            found[:, columns] = solve_positive(shifted, B[:, columns], overwrite=True)
        except LinAlgError:
            squares, V = eigh(A)
            rounding = len(A) * np.finfo(float).eps * float(squares[-1])
            filtered = 1.0 / (np.maximum(squares, 0.0) + max(float(ridge), rounding))
            found[:, columns] = V @ (filtered[:, None] * (V.T @ B[:, columns]))
    return found


def pivoted_factor(A: Floats) -> tuple[Floats, Ints, int]:
    """Pivoted Cholesky factor L (r, r) of A[p][:, p], pivots p (r,) and numerical rank.

    LAPACK stops at the numerical rank, often far below r for smooth kernels; the columns beyond
    it, and what is above the diagonal, mean nothing.
    """
    L, pivots, rank, _ = _routine("pstrf", A.dtype)(A, lower=1)
    return L, pivots - 1, int(rank)


def condition_number(A: Array, L: Array, ridge: float) -> float:
    """Estimate of the 1-norm condition number of A + ridge I = L L^T, in O(r^2)."""
    if A.shape[0] == 0:
        return 1.0
    if not isinstance(A, np.ndarray):
        return _condition_there(A, L, ridge)
    norm = float(_routine("lange", A.dtype)("1", A.T)) + ridge  # symmetric; A.T is not copied
    reciprocal = float(_routine("pocon", L.dtype)(L, norm, uplo="L")[0])
    return 1.0 / reciprocal if reciprocal > 0.0 else float("inf")


def _condition_there(A: Array, L: Array, ridge: float) -> float:
    """As LAPACK has it (Hager 1984), on the device of the matrix: nothing but numbers leaves it."""
    if is_torch_array(A):
        A, L = A.detach(), L.detach()
    xp, n = namespace(A), A.shape[0]
    x, found = xp.ones_like(A[:, 0]) / n, 0.0
    for _ in range(HAGER_STEPS):
        y = solve_triangular(L, solve_triangular(L, x), transpose=True)
        z = solve_triangular(L, solve_triangular(L, xp.sign(y)), transpose=True)
        found = max(found, to_float(xp.sum(xp.abs(y))))
        j = int(xp.argmax(xp.abs(z)))
        if to_float(xp.abs(z[j])) <= to_float(z @ x):
            break
        x = like(np.arange(n) == j, A)
    return (to_float(xp.linalg.matrix_norm(A, ord=1)) + ridge) * found


def eliminate(F: Floats, rows: Floats, pivots: Ints, L: Floats) -> None:
    """Turn rows of a Gram matrix into rows of its factor, in place and without a temporary.

    rows <- L^-1 (rows - F[:, pivots]^T F). BLAS writes into arrays stored by columns, which the
    transposes of these are.
    """
    if len(F):
        _routine("gemm", rows.dtype)(-1.0, F.T, F[:, pivots], beta=1.0, c=rows.T, overwrite_c=True)
    _routine("trsm", rows.dtype)(1.0, L, rows.T, side=1, lower=1, trans_a=1, overwrite_b=True)


def add_square(S: Floats, K: Floats) -> None:
    """Add K^T K to the lower triangle of S (r, r), stored by columns, in place."""
    _routine("syrk", S.dtype, K.dtype)(1.0, K.T, beta=1.0, c=S, overwrite_c=True, lower=True)


def eigh(A: Array) -> tuple[Array, Array]:
    """Eigenvalues (ascending) and eigenvectors of symmetric A (r, r), or of a stack (..., r, r)."""
    if isinstance(A, np.ndarray) and A.ndim == 2:
        # Divide and conquer: the default driver is up to four times slower on the clustered
        # eigenvalues near zero that smooth kernels have.
        values, vectors = scipy.linalg.eigh(A, check_finite=False, driver="evd")
        return values, vectors
    result = namespace(A).linalg.eigh(A)
    return result[0], result[1]


def eigenvalues(A: Array) -> Array:
    """Eigenvalues (..., r), ascending, of symmetric A (r, r) or of a stack (..., r, r)."""
    return namespace(A).linalg.eigvalsh(A)


def symmetric_factor(A: Array) -> Array:
    """L (r, r) with A = L L^T for positive semi-definite A; negative eigenvalues count as zero."""
    values, vectors = eigh(A)
    xp = namespace(values)
    return vectors * xp.sqrt(xp.clip(values, min=0.0))


def check_factor(G: Array, L: Array, bound: float) -> None:
    """Raise if G v differs from L L^T v by more than ``bound`` of the diagonal: an indefinite G."""
    xp, n = namespace(G), G.shape[0]
    v = like(np.random.default_rng(0).uniform(-1.0, 1.0, n), G)
    missed = to_float(xp.max(xp.abs(G @ v - L @ (L.T @ v))))
    largest = to_float(xp.max(xp.linalg.diagonal(G)))
    # What is left out at the numerical rank has entries below n eps largest, its rows n of them.
    if missed > max(bound, 4.0 * n**2 * epsilon(G)) * largest:
        raise LinAlgError(
            f"a Gram matrix of size {n} is not positive semi-definite; check the kernel with "
            "kernelbayes.laws.check_kernel"
        )


def whitening(A: Floats, least: float) -> Floats:
    """W (r, k) with W^T A W = I over the eigenvalues above ``least`` times the largest."""
    values, vectors = eigh(A)
    keep = values > least * values[-1]
    return np.asarray(vectors[:, keep] / np.sqrt(values[keep]))


def left_singular(A: Floats) -> tuple[Floats, Floats]:
    """Left singular vectors U (n, k) and squared singular values (k,) of A, to rounding error."""
    if A.size == 0 or not A.any():  # a kernel that is zero on these points
        return A[:, :0], np.empty(0)
    wide = A.shape[0] < A.shape[1]
    squares, V = eigh(A @ A.T if wide else A.T @ A)
    keep = squares > len(A) * np.finfo(float).eps * squares[-1]
    squares, V = squares[keep], V[:, keep]
    return V if wide else (A @ V) / np.sqrt(squares), squares


def solve(A: Array, B: Array) -> Array:
    """Solve A Y = B for square A (r, r) and B (r,) or (r, k), or stacks of both (..., r, k)."""
    if B.ndim == 1:
        return namespace(A, B).linalg.solve(A, B[:, None])[:, 0]
    return namespace(A, B).linalg.solve(A, B)


def inverse_and_log_det(A: Floats) -> tuple[Floats, Floats]:
    """Inverses (..., r, r) and logarithms (...) of the determinants of a stack (..., r, r)."""
    return np.linalg.inv(A), np.linalg.slogdet(A)[1]


def least_squares(A: Floats, B: Floats) -> Floats:
    """Coefficients (r, q) of least norm that minimise |A Y - B|, for A (n, r) and B (n, q)."""
    return np.asarray(np.linalg.lstsq(A, B, rcond=None)[0])


def numerical_rank(A: Floats) -> int:
    """Numerical rank of A."""
    return int(np.linalg.matrix_rank(A))
