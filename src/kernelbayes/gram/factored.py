"""Gram matrices known through a factor: features held in memory, or computed block by block."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field
from functools import cached_property, partial

import numpy as np

from kernelbayes.arrays import Array, Ints, namespace, row_blocks, threads_for
from kernelbayes.gram.base import Gram
from kernelbayes.gram.solvers import (
    Solver,
    Square,
    check_finite,
    check_ridge,
    check_weights,
    factor_with_ridge,
    same_kind,
    scale_rows,
    solve_factored,
)
from kernelbayes.kernels import Kernel
from kernelbayes.points import Points, count, sum_over_rows, take


@dataclass(frozen=True, eq=False)
class Factored(Gram):
    """Gram matrix G = L L^T known through products with its factor L (n, r)."""

    @abstractmethod
    def moments(self, d: Array | None, B: Array | None = None) -> tuple[Array, Array | None]:
        """L^T D L (r, r), and L^T D B if B is given, with D = diag(d) (or I), in one pass."""

    @abstractmethod
    def project(self, B: Array) -> Array:
        """L^T B, shape (r,) or (r, k)."""

    @abstractmethod
    def expand(self, A: Array) -> Array:
        """L A, shape (n,) or (n, k)."""

    def features(self, X: Points) -> Array:
        """Features (m, r) of other points."""
        return self._kernel().features(X)

    def matmul(self, B: Array) -> Array:
        """G @ B in O(n r)."""
        return self.expand(self.project(B))

    def ridge(self, eta: float, moment: Array | None = None) -> Solver:
        """Solver of (L L^T + n eta I)^-1 B through the (r, r) matrix L^T L + n eta I."""
        c = self.n * check_ridge(eta)
        C = self.moments(None)[0] if moment is None else moment
        R, diagnostics = factor_with_ridge(C, c)
        return _FactoredRidge(diagnostics, None, self, R)

    def weighted(self, r: Array, ridge: float, moment: Array | None = None) -> Solver:
        """Solver of S (S L L^T S + ridge I)^-1 S B through L^T R L + ridge I."""
        ridge, r = check_ridge(ridge), self._check(r, signed=False)
        C = self.moments(r)[0] if moment is None else moment
        R, diagnostics = factor_with_ridge(C, ridge)
        return _FactoredRidge(diagnostics, r, self, R)

    def signed(self, d: Array, ridge: float, moment: Array | None = None) -> Solver:
        """Solver of D G ((D G)^2 + ridge I)^-1 D B; see :meth:`Gram.signed`."""
        ridge, d = check_ridge(ridge), self._check(d)
        C = self.moments(d)[0] if moment is None else moment
        square = Square.of(C, ridge)
        return _FactoredSigned(square.diagnostics, d, self, C, square)

    def _check(self, weights: Array, signed: bool = True) -> Array:
        return check_weights(weights, self.n, None, signed)


@dataclass(frozen=True, eq=False)
class _FactoredSolver(Solver):
    gram: Factored

    def values_features(self, Phi: Array) -> Array:
        return self.gram.expand(self.coefficients(Phi))


@dataclass(frozen=True, eq=False)
class _FactoredRidge(_FactoredSolver):
    R: Array  # Cholesky factor of L^T R L + ridge I

    def values(self, B: Array) -> Array:
        inside = solve_factored(self.R, self.gram.project(self.weigh(B)))
        return (B - self.gram.expand(inside)) / self.diagnostics.ridge_used  # Woodbury

    def coefficients(self, Phi: Array) -> Array:
        return solve_factored(self.R, Phi)


@dataclass(frozen=True, eq=False)
class _FactoredSigned(_FactoredSolver):
    C: Array
    square: Square

    def values(self, B: Array) -> Array:
        return self.gram.expand(self.square.solve(self.gram.project(self.weigh(B))))

    def coefficients(self, Phi: Array) -> Array:
        return self.square.solve(self.C @ Phi)


@dataclass(frozen=True, eq=False)
class LowRank(Factored):
    """Gram matrix held as a factor L (n, r), G = L L^T: features of the points."""

    L: Array
    # Diagonal of the matrix that L approximates, and the relative trace error of L.
    known_diag: Array | None = field(default=None, kw_only=True, repr=False)
    error: float = field(default=0.0, kw_only=True)

    def __post_init__(self) -> None:
        if self.L.ndim != 2:
            raise ValueError(f"a factor has shape (n, r), got {tuple(self.L.shape)}")
        check_finite(self.L)

    @property
    def n(self) -> int:
        """Number of rows."""
        return int(self.L.shape[0])

    @property
    def factor(self) -> Array:
        """L (n, r), as given."""
        return self.L

    @property
    def work(self) -> float:
        """Floating-point operations of one row."""
        return 2.0 * self.n * int(self.L.shape[1])

    @cached_property
    def diag(self) -> Array:
        """Diagonal (n,)."""
        return _squares(self.L) if self.known_diag is None else self.known_diag

    def _compute_rows(self, index: Ints) -> Array:
        return (self.L @ take(self.L, index).T).T

    def moments(self, d: Array | None, B: Array | None = None) -> tuple[Array, Array | None]:
        """L^T D L and L^T D B."""
        return _moments(self.L, d, B)

    def project(self, B: Array) -> Array:
        """L^T B."""
        return self.L.T @ same_kind(self.L, B)

    def expand(self, A: Array) -> Array:
        """L A."""
        return self.L @ same_kind(self.L, A)

    def _check(self, weights: Array, signed: bool = True) -> Array:
        return check_weights(weights, self.n, self.L, signed)


@dataclass(frozen=True, eq=False)
class Streamed(Factored):
    """Gram matrix of points under a kernel with finite features, computed block by block.

    Nothing of size n x r is ever held: each pass computes the features again. For samples so
    large that the features do not fit in memory.
    """

    kernel: Kernel = field(kw_only=False)
    points: Points = field(kw_only=False, repr=False)
    rank: int

    @property
    def n(self) -> int:
        """Number of rows."""
        return count(self.points)

    @property
    def factor(self) -> Array:
        """L (n, r), which may not fit in memory."""
        return self.kernel.features(self.points)

    @property
    def work(self) -> float:
        """Floating-point operations of one row."""
        return 2.0 * self.n * self.rank

    @cached_property
    def diag(self) -> Array:
        """Diagonal (n,), block by block."""
        return self.kernel.diag(self.points)

    def _compute_rows(self, index: Ints) -> Array:
        return self.expand(self.kernel.features(take(self.points, index)).T).T

    def moments(self, d: Array | None, B: Array | None = None) -> tuple[Array, Array | None]:
        """L^T D L and L^T D B, merged over row blocks."""
        part = partial(partial_moments, self.kernel, d, B)
        return sum_over_rows(part, self.points, self.rank, merge_moments)

    def project(self, B: Array) -> Array:
        """L^T B, merged over row blocks."""
        return sum_over_rows(
            lambda chunk, rows: self.kernel.features(chunk).T @ B[rows, ...],
            self.points,
            self.rank,
        )

    def expand(self, A: Array) -> Array:
        """L A, block by block."""
        blocks = row_blocks(self.n, self.rank)
        parts = [self.kernel.features(take(self.points, rows)) @ A for rows in blocks]
        return namespace(*parts).concat(parts, axis=0)


def partial_moments(
    kernel: Kernel, d: Array | None, B: Array | None, chunk: Points, rows: slice
) -> tuple[Array, Array | None]:
    """L^T D L and L^T D B of one chunk of points: pure, so that it can run anywhere."""
    L = kernel.features(chunk)
    return _moments(L, None if d is None else d[rows], None if B is None else B[rows, ...])


def merge_moments(
    a: tuple[Array, Array | None], b: tuple[Array, Array | None]
) -> tuple[Array, Array | None]:
    """Sum of two partial results: associative, and neither is changed."""
    return a[0] + b[0], None if a[1] is None or b[1] is None else a[1] + b[1]


def _moments(L: Array, d: Array | None, B: Array | None) -> tuple[Array, Array | None]:
    columns = 0 if B is None else (1 if B.ndim == 1 else B.shape[1])
    with threads_for(float(L.shape[0]) * L.shape[1] * (L.shape[1] + columns)):
        if d is None:
            return L.T @ L, None if B is None else L.T @ B
        cross = None if B is None else L.T @ scale_rows(d, B)
        if isinstance(d, np.ndarray):
            return _weighted_square(L, d), cross
        C = L.T @ scale_rows(d, L)
        return 0.5 * (C + C.T), cross


def _weighted_square(L: Array, d: Array) -> Array:
    """L^T D L as A^T A - B^T B over the points with d > 0 and d < 0, in row blocks.

    A^T A is one symmetric rank-k update, half the work of a product, and exactly symmetric.
    """
    if d.size and d.min() == d.max():  # the training marginal as prior: nothing to scale
        return d[0] * (L.T @ L)
    C = np.zeros((L.shape[1], L.shape[1]), dtype=np.result_type(L, d))
    for rows in row_blocks(*L.shape):
        for add, part in ((np.add, d[rows] > 0), (np.subtract, d[rows] < 0)):
            if part.any():
                chosen = L[rows] if part.all() else L[rows][part]
                root = scale_rows(np.sqrt(np.abs(d[rows][part])), chosen)
                add(C, root.T @ root, out=C)
    return C


def _squares(L: Array) -> Array:
    """Squared lengths (n,) of the rows of L."""
    if isinstance(L, np.ndarray):
        return np.einsum("ij,ij->i", L, L)
    return namespace(L).sum(L * L, axis=1)
