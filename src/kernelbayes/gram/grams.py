"""Gram matrices: whole, factored, or streamed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
import scipy.linalg
from array_api_compat import device

from kernelbayes.arrays import (
    Array,
    eigh,
    epsilon,
    like,
    namespace,
    row_blocks,
    threads_for,
    to_float,
)
from kernelbayes.gram.solvers import (
    RESCUE_BOUND,
    Diagnostics,
    Solver,
    Square,
    check_finite,
    check_ridge,
    check_weights,
    factor_with_ridge,
    same_kind,
    scale_rows,
    solve_factored,
    warn_rescued,
)
from kernelbayes.kernels import Kernel
from kernelbayes.points import Points, count, sum_over_rows, take

# Features of a sample are held in memory up to this many entries (1 GB of float64).
STREAM_ENTRIES = 2**27


@dataclass(frozen=True, eq=False)
class Gram(ABC):
    """A positive semi-definite matrix, whole or factored."""

    @property
    @abstractmethod
    def n(self) -> int:
        """Number of rows."""

    @abstractmethod
    def matmul(self, B: Array) -> Array:
        """G @ B."""

    @abstractmethod
    def ridge(self, eta: float) -> Solver:
        """Solver of (G + n eta I)^-1 B."""

    @abstractmethod
    def weighted(self, r: Array, ridge: float) -> Solver:
        """Solver of S (S G S + ridge I)^-1 S B with S = sqrt(diag(r)), r >= 0, shape (n,)."""

    @abstractmethod
    def signed(self, d: Array, ridge: float) -> Solver:
        """Solver of D G ((D G)^2 + ridge I)^-1 D B with D = diag(d) of any signs, shape (n,).

        Equal to ``D L (C^2 + ridge I)^-1 L^T D B`` with C = L^T D L for any factor G = L L^T.
        """


@dataclass(frozen=True, eq=False)
class Dense(Gram):
    """Gram matrix held whole, (n, n)."""

    G: Array

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

    @cached_property
    def factor(self) -> Array:
        """Pivoted Cholesky factor L (n, r), G = L L^T to working precision.

        LAPACK stops at the numerical rank r, often far below n for smooth kernels.
        """
        if not isinstance(self.G, np.ndarray):
            values, vectors = eigh(self.G)
            xp = namespace(values)
            L = vectors * xp.sqrt(xp.clip(values, min=0.0))
            _check_factor(self.G, L)
            return L
        pstrf = scipy.linalg.get_lapack_funcs("pstrf", (self.G,))
        with threads_for(self.n**3 / 3):
            L, pivots, rank, _ = pstrf(self.G, lower=1)
        result = np.empty((self.n, rank), dtype=self.G.dtype)
        result[pivots - 1] = np.tril(L[:, :rank])
        _check_factor(self.G, result)
        return result

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
        V = self.G @ namespace(self.M).linalg.solve(self.M, columns)
        return V[:, 0] if B.ndim == 1 else V


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

    def __post_init__(self) -> None:
        if self.L.ndim != 2:
            raise ValueError(f"a factor has shape (n, r), got {tuple(self.L.shape)}")
        check_finite(self.L)

    @property
    def n(self) -> int:
        """Number of rows."""
        return int(self.L.shape[0])

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

    kernel: Kernel
    points: Points
    rank: int

    @property
    def n(self) -> int:
        """Number of rows."""
        return count(self.points)

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


def gram(kernel: Kernel, points: Points) -> Gram:
    """Gram matrix of checked points: whole, or factored when the kernel has finite features."""
    if not kernel.finite:
        return Dense(kernel(points))
    rank = int(kernel.features(take(points, slice(0, 1))).shape[1])
    if count(points) * rank > STREAM_ENTRIES:
        return Streamed(kernel, points, rank)
    return LowRank(kernel.features(points))


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


def _check_factor(G: Array, L: Array) -> None:
    """Raise unless G v = L L^T v for a vector v, which an indefinite G would break, in O(n^2)."""
    xp, n = namespace(G), G.shape[0]
    v = like(np.random.default_rng(0).uniform(-1.0, 1.0, n), G)
    missed = to_float(xp.max(xp.abs(G @ v - L @ (L.T @ v))))
    largest = to_float(xp.max(xp.linalg.diagonal(G)))
    # What is left out at the numerical rank has entries below n eps largest, its rows n of them.
    if missed > max(RESCUE_BOUND, 4.0 * n**2 * epsilon(G)) * largest:
        raise np.linalg.LinAlgError(
            f"a Gram matrix of size {n} is not positive semi-definite; check the kernel with "
            "kernelbayes.laws.check_kernel"
        )
