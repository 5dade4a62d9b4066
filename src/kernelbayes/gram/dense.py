"""Gram matrices held whole, and those whose rows are computed when they are asked for."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from array_api_compat import device

from kernelbayes.arrays import (
    Array,
    Ints,
    as_doubles,
    epsilon,
    like,
    namespace,
    row_blocks,
    threads_for,
    to_float,
)
from kernelbayes.gram.base import Gram
from kernelbayes.gram.factored import LowRank
from kernelbayes.gram.lapack import (
    LinAlgError,
    pivoted_factor,
    solve,
    solve_triangular,
    symmetric_factor,
)
from kernelbayes.gram.solvers import (
    RESCUE_BOUND,
    Diagnostics,
    Solver,
    check_finite,
    check_ridge,
    check_weights,
    factor_with_ridge,
    scale_rows,
    solve_factored,
    warn_rescued,
)
from kernelbayes.kernels import Kernel
from kernelbayes.points import Points, count, take


@dataclass(frozen=True, eq=False)
class Dense(Gram):
    """Gram matrix held whole, (n, n)."""

    G: Array
    tol: float | None = field(default=None, kw_only=True)  # of ``factor``; None: rounding

    def __post_init__(self) -> None:
        if self.G.ndim != 2 or self.G.shape[0] != self.G.shape[1]:
            raise ValueError(f"a Gram matrix is square, got shape {tuple(self.G.shape)}")
        check_finite(self.G)

    @property
    def n(self) -> int:
        """Number of rows."""
        return int(self.G.shape[0])

    def matmul(self, B: Array) -> Array:
        """G @ B."""
        return self.G @ B

    @property
    def work(self) -> float:
        """Floating-point operations of one row: it is there, what is done with it counts."""
        return 20.0 * self.n

    @cached_property
    def diag(self) -> Array:
        """Diagonal (n,)."""
        return namespace(self.G).linalg.diagonal(self.G) + 0.0

    def rows(self, i: int | Ints) -> Array:
        """Row (n,) of one point, or rows (k, n) of several."""
        return self.G[i, ...]

    def _compute_rows(self, index: Ints) -> Array:
        return self.G[index, ...]

    @cached_property
    def _pivoted(self) -> tuple[Array, Ints]:
        """Factor L (n, r) and the rows of L, in order, that are lower triangular."""
        with threads_for(self.n**3 / 3):
            L, pivots, rank = pivoted_factor(self.G)
        result = np.empty((self.n, rank), dtype=self.G.dtype)
        result[pivots] = np.tril(L[:, :rank])
        _check_factor(self.G, result)
        if self.tol is not None:  # columns come in the order of what they explain
            explained = np.cumsum(np.einsum("ij,ij->j", result, result))
            needed = 1 + np.count_nonzero(explained < (1.0 - self.tol) * explained[-1:])
            result = result[:, :needed]
        return result, pivots[: result.shape[1]]

    @cached_property
    def factor(self) -> Array:
        """Pivoted Cholesky factor L (n, r), G = L L^T to working precision, or to ``tol``.

        LAPACK stops at the numerical rank r, often far below n for smooth kernels.
        """
        if isinstance(self.G, np.ndarray):
            return self._pivoted[0]
        L = symmetric_factor(self.G)
        _check_factor(self.G, L)
        return L

    def features(self, X: Points) -> Array:
        """Features (m, r) of other points, by the rows of the pivots; NumPy only."""
        L, pivots = self._pivoted
        return solve_triangular(L[pivots], self._kernel()(take(self.points, pivots), X)).T

    def ridge(self, eta: float) -> Solver:
        """Solver of (G + n eta I)^-1 B by one Cholesky factorisation."""
        L, diagnostics = factor_with_ridge(self.G, self.n * check_ridge(eta))
        return _DenseRidge(diagnostics, None, L)

    def weighted(self, r: Array, ridge: float) -> Solver:
        """Solver of S (S G S + ridge I)^-1 S B on the points with r > 0."""
        ridge, r = check_ridge(ridge), check_weights(r, self.n, self.G, signed=False)
        if not isinstance(r, np.ndarray):
            xp = namespace(r)
            positive = r > 0
            # Not sqrt(r): its derivative at 0 is infinite, and r = max(0, gamma) has many zeros.
            s = xp.where(positive, xp.sqrt(xp.where(positive, r, xp.ones_like(r))), 0.0 * r)
            inverse = xp.where(positive, 1.0 / xp.where(positive, s, xp.ones_like(s)), 0.0 * s)
            L, diagnostics = factor_with_ridge(s[:, None] * self.G * s[None, :], ridge)
            return _DenseWeighted(diagnostics, r, L, s, inverse, None)
        active = np.flatnonzero(r)
        s = np.sqrt(r[active])
        A = self.G.take(active, axis=0).take(active, axis=1)  # twice as fast as np.ix_
        A *= s[:, None]
        A *= s
        L, diagnostics = factor_with_ridge(A, ridge, overwrite=True)
        return _DenseWeighted(diagnostics, r, L, s, 1.0 / s, active)

    def signed(self, d: Array, ridge: float) -> Solver:
        """Solver of D G ((D G)^2 + ridge I)^-1 D B; see :meth:`Gram.signed`."""
        if isinstance(self.G, np.ndarray):
            return LowRank(self.factor).signed(d, ridge)
        # An eigendecomposition has no useful derivative at repeated eigenvalues: solve as written.
        ridge, d = check_ridge(ridge), check_weights(d, self.n, self.G)
        xp = namespace(self.G)
        DG = d[:, None] * self.G
        square, eye = DG @ DG, xp.eye(self.n, dtype=DG.dtype, device=device(DG))
        norm = to_float(xp.linalg.matrix_norm(square, ord=1))
        # Solvable for any ridge above rounding; below it the ridge is raised, as everywhere.
        used = max(ridge, epsilon(self.G) * self.n * norm)
        if used > ridge:
            warn_rescued(self.n, ridge, used)
        M = square + used * eye
        rescues = int(used > ridge)
        diagnostics = Diagnostics(self.n, ridge, used, rescues, (norm + used) / used)
        return _SignedAsWritten(diagnostics, d, self.G, M)


@dataclass(frozen=True, eq=False)
class _DenseRidge(Solver):
    L: Array

    def values(self, B: Array) -> Array:
        return solve_factored(self.L, B)


@dataclass(frozen=True, eq=False)
class _DenseWeighted(Solver):
    L: Array
    roots: Array
    inverse_roots: Array
    active: Array | None  # indices of the points with r > 0; None means all

    def values(self, B: Array) -> Array:
        rows = B if self.active is None else B[self.active]
        V = solve_factored(self.L, scale_rows(self.roots, rows))
        V = scale_rows(self.inverse_roots, V)
        if self.active is None:
            return V
        result = np.zeros(B.shape, dtype=V.dtype)
        result[self.active] = V
        return result


@dataclass(frozen=True, eq=False)
class _SignedAsWritten(Solver):
    G: Array
    M: Array

    def values(self, B: Array) -> Array:
        columns = scale_rows(self.weights, B)
        columns = columns[:, None] if B.ndim == 1 else columns
        V = self.G @ solve(self.M, columns)
        return V[:, 0] if B.ndim == 1 else V


@dataclass(frozen=True, eq=False)
class OnDemand(Gram):
    """Gram matrix of points whose rows are computed when they are asked for, as NumPy doubles.

    For matrices that do not fit in memory, or of which few rows are needed. Products go through it
    block by block; a solve or a factor computes all of it.
    """

    kernel: Kernel = field(kw_only=False)
    points: Points = field(kw_only=False, repr=False)

    @property
    def n(self) -> int:
        """Number of rows."""
        return count(self.points)

    @property
    def work(self) -> float:
        """Floating-point operations of one row, about."""
        return 20.0 * self.n

    @cached_property
    def diag(self) -> Array:
        """Diagonal (n,)."""
        return as_doubles(self.kernel.diag(self.points))

    def _compute_rows(self, index: Ints) -> Array:
        return as_doubles(self.kernel(take(self.points, index), self.points))

    def matmul(self, B: Array) -> Array:
        """G @ B, block by block."""
        blocks = row_blocks(self.n, self.n)
        return np.concatenate([self._compute_rows(np.arange(self.n)[rows]) @ B for rows in blocks])

    @cached_property
    def whole(self) -> Dense:
        """All of it."""
        G = as_doubles(self.kernel(self.points))
        return Dense(G, kernel=self.kernel, points=self.points)

    @property
    def factor(self) -> Array:
        """Pivoted Cholesky factor of the whole matrix."""
        return self.whole.factor

    def features(self, X: Points) -> Array:
        """Features (m, r) of other points."""
        return self.whole.features(X)

    def ridge(self, eta: float) -> Solver:
        """Solver of (G + n eta I)^-1 B."""
        return self.whole.ridge(eta)

    def weighted(self, r: Array, ridge: float) -> Solver:
        """Solver of S (S G S + ridge I)^-1 S B on the points with r > 0."""
        return self.whole.weighted(r, ridge)

    def signed(self, d: Array, ridge: float) -> Solver:
        """Solver of D G ((D G)^2 + ridge I)^-1 D B; see :meth:`Gram.signed`."""
        return self.whole.signed(d, ridge)


def _check_factor(G: Array, L: Array) -> None:
    """Raise unless G v = L L^T v for a vector v, which an indefinite G would break, in O(n^2)."""
    xp, n = namespace(G), G.shape[0]
    v = like(np.random.default_rng(0).uniform(-1.0, 1.0, n), G)
    missed = to_float(xp.max(xp.abs(G @ v - L @ (L.T @ v))))
    largest = to_float(xp.max(xp.linalg.diagonal(G)))
    # What is left out at the numerical rank has entries below n eps largest, its rows n of them.
    if missed > max(RESCUE_BOUND, 4.0 * n**2 * epsilon(G)) * largest:
        raise LinAlgError(
            f"a Gram matrix of size {n} is not positive semi-definite; check the kernel with "
            "kernelbayes.laws.check_kernel"
        )
