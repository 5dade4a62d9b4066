"""Gram matrices that are not held whole: known through a factor, or rows on demand."""

from abc import abstractmethod
from dataclasses import dataclass, field
from functools import cached_property, partial

import numpy as np

from kernelbayes.arrays import (
    as_doubles,
    like,
    namespace,
    narrowed,
    row_blocks,
    threads_for,
    weighted_sum,
    widened,
)
from kernelbayes.gram import solvers
from kernelbayes.gram.base import Gram, check_finite
from kernelbayes.gram.features import Landmarks, partial_cholesky, pivoted_cholesky
from kernelbayes.gram.solvers import Solver, check_ridge, same_kind, scale_rows
from kernelbayes.kernels import Kernel
from kernelbayes.points import concatenate, count, sum_over_rows, take
from kernelbayes.types import Array, Floats, Ints, Points, Rng

Moments = tuple[Array, Array | None]  # L^T D L (r, r), and L^T D B if it was asked for
# Features of a sample are held in memory up to this many entries (1 GB of float64).
STREAM_ENTRIES = 2**27
# Sums over features of landmarks with more entries than this are made of kernel columns: below, a
# fit takes a fraction of a second.
COLUMN_ENTRIES = 2**22


@dataclass(frozen=True, eq=False)
class Factored(Gram):
    """Gram matrix G = L L^T known through products with its factor L (n, r)."""

    @abstractmethod
    def moments(self, d: Array | None, B: Array | None = None, ridge: float = 0.0) -> Moments:
        """L^T D L (r, r), and L^T D B if B is given, with D = diag(d) (or I), in one pass.

        A positive ``ridge`` says that it will be added, so that rounding errors far below it do no
        harm; then d must not be negative.
        """

    def features(self, X: Points) -> Array:
        """Features (m, r) of other points."""
        return self._kernel().features(X)

    def matmul(self, B: Array) -> Array:
        """G @ B in O(n r)."""
        return self.expand(self.project(B))

    def ridge(self, eta: float, moment: Array | None = None) -> Solver:
        """Solver of (L L^T + n eta I)^-1 B through the (r, r) matrix L^T L + n eta I."""
        ridge = self.n * check_ridge(eta)
        return self._regularised(None, ridge, moment, self.n)

    def weighted(self, r: Array, ridge: float, moment: Array | None = None) -> Solver:
        """Solver of S (S L L^T S + ridge I)^-1 S B through L^T R L + ridge I."""
        ridge, r = check_ridge(ridge), self._check(r, signed=False)
        return self._regularised(r, ridge, moment)

    def _regularised(
        self, r: Array | None, ridge: float, moment: Array | None, unit: float = 1.0
    ) -> Solver:
        C = self.moments(r, ridge=ridge)[0] if moment is None else moment
        R, diagnostics = solvers.factor_with_ridge(C, ridge, unit=unit)
        return solvers.FactoredRidge(diagnostics, r, self, R)

    def at(self, solver: Solver, Phi: Array) -> Array:
        """Values L A (n, k) at the points, with a solver's coefficients A of features Phi."""
        return self.expand(solver.coefficients(Phi))

    def corrected(self, solver: Solver, A: Array, B: Array) -> Array:  # noqa: ARG002
        """Coefficients A (r, k) of values B (n, k) without rounding errors of the moments."""
        return A

    def signed(self, d: Array, ridge: float, moment: Array | None = None) -> Solver:
        """Solver of D G ((D G)^2 + ridge I)^-1 D B through C = L^T D L."""
        ridge, d = check_ridge(ridge), self._check(d)
        C = self.moments(d)[0] if moment is None else moment
        return solvers.FactoredSigned.of(self, d, C, ridge)

    def _check(self, weights: Array, signed: bool = True) -> Array:
        return solvers.check_weights(weights, self.n, None, signed)


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
        if self.known_diag is not None:
            return self.known_diag
        if isinstance(self.L, np.ndarray):
            return np.einsum("ij,ij->i", self.L, self.L)
        return namespace(self.L).sum(self.L * self.L, axis=1)

    def _compute_rows(self, index: Ints) -> Array:
        return (self.L @ take(self.L, index).T).T

    def moments(self, d: Array | None, B: Array | None = None, ridge: float = 0.0) -> Moments:  # noqa: ARG002
        """L^T D L and L^T D B."""
        return _moments(self.L, d, B)

    def project(self, B: Array) -> Array:
        """L^T B."""
        return narrowed(weighted_sum(self.L.T, same_kind(self.L, B)), self.L, B)

    def expand(self, A: Array) -> Array:
        """L A."""
        return self.L @ same_kind(self.L, A)

    def _check(self, weights: Array, signed: bool = True) -> Array:
        return solvers.check_weights(weights, self.n, self.L, signed)


@dataclass(frozen=True, eq=False)
class Streamed(Factored):
    """Gram matrix of points under a kernel with finite features, computed block by block.

    Nothing of size n x r is ever held: each pass computes the features again.
    """

    kernel: Kernel = field(kw_only=False)
    points: Points = field(kw_only=False, repr=False)
    rank: int

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

    def moments(self, d: Array | None, B: Array | None = None, ridge: float = 0.0) -> Moments:  # noqa: ARG002
        """L^T D L and L^T D B, merged over row blocks."""
        part = partial(partial_moments, self.kernel, d, B)
        return sum_over_rows(part, self.points, self.rank, merge_moments)

    def project(self, B: Array) -> Array:
        """L^T B, merged over row blocks."""
        found = sum_over_rows(
            lambda chunk, rows: weighted_sum(self.kernel.features(chunk).T, B[rows, ...]),
            self.points,
            self.rank,
        )
        return narrowed(found, B, self.kernel.diag(take(self.points, slice(0, 1))))

    def expand(self, A: Array) -> Array:
        """L A, block by block."""
        blocks = row_blocks(self.n, self.rank)
        parts = [self.kernel.features(take(self.points, rows)) @ A for rows in blocks]
        return namespace(*parts).concat(parts, axis=0)


@dataclass(frozen=True, eq=False)
class OnDemand(Gram):
    """Gram matrix of points whose rows are computed when they are asked for, as NumPy doubles.

    For matrices that do not fit in memory, or of which few rows are needed. Products go through it
    block by block; a solve or a factor computes all of it.
    """

    kernel: Kernel = field(kw_only=False)
    points: Points = field(kw_only=False, repr=False)


def partial_moments(
    kernel: Kernel, d: Array | None, B: Array | None, chunk: Points, rows: slice
) -> Moments:
    """L^T D L and L^T D B of one chunk of points: pure, so that it can run anywhere."""
    L = kernel.features(chunk)
    return _moments(L, None if d is None else d[rows], None if B is None else B[rows, ...])


def merge_moments(a: Moments, b: Moments) -> Moments:
    """Sum of two partial results: associative, and neither is changed."""
    return a[0] + b[0], None if a[1] is None or b[1] is None else a[1] + b[1]


def _moments(L: Array, d: Array | None, B: Array | None) -> Moments:
    columns = 0 if B is None else (1 if B.ndim == 1 else B.shape[1])
    with threads_for(float(L.shape[0]) * L.shape[1] * (L.shape[1] + columns)):
        cross = None
        if B is not None:
            cross = narrowed(weighted_sum(L.T, B if d is None else scale_rows(d, B)), L, B)
        if d is None:
            return narrowed(_square(L), L), cross
        if isinstance(d, np.ndarray):
            return narrowed(_weighted_square(L, d), L, d), cross
        C = weighted_sum(L.T, scale_rows(d, L))
        return narrowed(0.5 * (C + C.T), L, d), cross


def _square(L: Array) -> Array:
    """L^T L in double precision; one symmetric update where L is double already."""
    with np.errstate(over="ignore", invalid="ignore"):  # solvers refuse what is not finite
        return L.T @ L if L.dtype == namespace(L).float64 else weighted_sum(L.T, L)


def _weighted_square(L: Array, d: Array) -> Array:
    """L^T D L as A^T A - B^T B over the points with d > 0 and d < 0, in row blocks.

    A^T A is one symmetric rank-k update, half the work of a product, and exactly symmetric.
    """
    if d.size and d.min() == d.max():  # the training marginal as prior: nothing to scale
        return d[0] * _square(L)
    C = np.zeros((L.shape[1], L.shape[1]))
    for rows in row_blocks(*L.shape):
        for add, part in ((np.add, d[rows] > 0), (np.subtract, d[rows] < 0)):
            if part.any():
                chosen = L[rows] if part.all() else L[rows][part]
                root = scale_rows(np.sqrt(np.abs(d[rows][part])), widened(chosen))
                add(C, root.T @ root, out=C)
    return C


def by_features(
    kernel: Kernel, points: Points, what: str, double: bool, sums: bool = False
) -> Gram:
    """Gram matrix through the features of a kernel that has finitely many."""
    one = kernel.features(take(points, slice(0, 1)))
    rank = int(one.shape[1])
    large = isinstance(one, np.ndarray) and count(points) * rank >= COLUMN_ENTRIES
    if sums and large and one.dtype == float and isinstance(kernel, Landmarks):
        from kernelbayes.gram import columns  # a subclass of a class of this module

        text = f"streamed: columns of {rank} {what}, block by block"
        return columns.Columns(kernel, points, rank, policy=text)
    if count(points) * rank > STREAM_ENTRIES:
        text = f"streamed: {rank} {what}, block by block"
        return Streamed(kernel, points, rank, policy=text)
    L = kernel.features(points)
    L = as_doubles(L) if double else L
    return LowRank(L, kernel=kernel, points=points, policy=f"low rank: {rank} {what}")


def by_pivots(
    kernel: Kernel, points: Points, limit: int, tol: float, accept: float, rng: Rng,
    extend: bool, double: bool,
) -> Gram | None:  # fmt: skip
    """Pivoted Cholesky factor with at most ``limit`` pivots; None if its error is not accepted."""
    if limit < 1:
        return None
    if extend:
        landmarks = pivoted_cholesky(kernel, points, limit, tol, rng)
        accepted = landmarks.error <= accept
        return by_features(landmarks, points, "pivots", double) if accepted else None
    pivots, L, error = partial_cholesky(kernel, points, limit, tol, rng)
    if error > accept:
        return None
    diag, text = kernel.diag(points), f"pivots leave a relative trace error of {error:.0e}"
    L, diag = (as_doubles(L), as_doubles(diag)) if double else (like(L, diag), diag)
    return LowRank(
        L,
        known_diag=diag,
        error=error,
        kernel=Landmarks(kernel, take(points, pivots), L[pivots, ...], error),
        points=points,
        policy=f"low rank: {len(pivots)} {text}",
    )


def exact_features(kernel: Kernel, *samples: Points) -> list[Floats]:
    """Finite features (n_j, r) of several samples that reproduce the kernel among all of them.

    Any kernel has exact finite features on finitely many points: a factor of their joint Gram
    matrix. With them every closed form has one code path, dense or low-rank.
    """
    if kernel.finite:
        return [as_doubles(kernel.features(X)) for X in samples]
    joint, ends = concatenate(*samples), np.cumsum([count(X) for X in samples])
    return np.split(Gram.of(kernel, joint, double=True).factor, ends[:-1])
