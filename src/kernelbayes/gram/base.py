"""What a Gram matrix is, the one decision how it is held, and the one that is held whole."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path

import numpy as np

from kernelbayes.arrays import BLOCK_ENTRIES, as_doubles, namespace, row_blocks, threads_for
from kernelbayes.gram import solvers
from kernelbayes.gram.features import check_rank, nystrom
from kernelbayes.gram.lapack import check_factor, pivoted_factor, solve_triangular, symmetric_factor
from kernelbayes.gram.solvers import Solver, check_ridge, check_weights, factor_with_ridge
from kernelbayes.kernels import Kernel
from kernelbayes.points import count, doubled, take
from kernelbayes.types import Array, Ints, Points, Rng

# Where Linux says how much memory a container may use, beside what the machine has.
CONTAINER = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
# Entries of single rows that are remembered: 128 MB of float64.
CACHE_ENTRIES = 4 * BLOCK_ENTRIES
# Below this size a Gram matrix costs so little that a factor is not worth looking for.
FACTOR_FROM = 400
# For methods that go through a matrix row by row (:meth:`Gram.by_rows`): up to this many entries, a
# few milliseconds of work, the whole matrix is computed at once.
ROW_ENTRIES = 2**20
# Beyond, a factor of this relative trace error stands for it. Values of an embedding are then off
# by about as much, far less than herding leaves.
ROW_TOL = 1e-10
# Ranks tried: one part in RANK_SHARE of n, so that failing costs little beside n^2 evaluations.
RANK_SHARE, RANK_LIMIT = 20, 512


@dataclass(frozen=True, eq=False)
class Gram:
    """A positive semi-definite matrix G (n, n), whole, factored or on demand.

    ``kernel`` and ``points`` are those of :meth:`of`; the kernel may approximate the one that was
    given. ``policy`` says how the matrix is held, and why.
    """

    kernel: Kernel | None = field(default=None, kw_only=True)
    points: Points = field(default=None, kw_only=True, repr=False)
    policy: str = field(default="given", kw_only=True)
    _rows: dict[int, Array] = field(default_factory=dict, init=False, repr=False, compare=False)

    @staticmethod
    def of(
        kernel: Kernel, points: Points, *, rank: int | None = None, tol: float | None = None,
        most: int | None = None, rng: Rng = None, entries: int | None = None, extend: bool = False,
        double: bool = False, sums: bool = False,
    ) -> Gram:  # fmt: skip
        """Gram matrix of checked points: the one decision whether, and how, to factor it.

        In this order:

        1. A kernel with finite features: these (``LowRank``), or computed again block by block
           where they do not fit in memory (``Streamed``).
        2. ``rank``: Nystrom features on that many landmarks (all points if there are fewer). With
           ``tol`` too: a pivoted Cholesky factor of that rank, or less if ``tol`` is reached.
        3. ``tol``: a pivoted Cholesky factor, if at most ``most`` pivots reach this relative trace
           error. Below ``FACTOR_FROM`` points the whole matrix costs less, and is taken unless
           ``extend``; its ``factor`` stops at ``tol``.
        4. The whole matrix (``Dense``), or its rows on demand where it has more than ``entries``
           entries (``OnDemand``).

        ``rng`` is for landmarks and pivots. ``extend``: the features of other points will be asked
        for, so that the factor is that of a kernel with landmarks, differentiable where the points
        are. ``double``: NumPy doubles, computed from doubles, whatever the points are. ``sums``:
        sums over many points are wanted, features of single ones hardly (``Columns``).
        """
        from kernelbayes.gram import factored  # it has the other subclasses of this class

        n, why = count(points), ""
        rank = None if rank is None else check_rank(rank, tol, n)
        if kernel.finite:
            return factored.by_features(kernel, points, "the kernel's own features", double, sums)
        if rank is not None and tol is None:
            kernel = nystrom(kernel, points, rank, rng=rng)
            return factored.by_features(kernel, points, "Nystrom landmarks", double)
        if tol is not None and (extend or rank is not None or n >= FACTOR_FROM):
            limit = min([n, *(some for some in (rank, most) if some is not None)])
            accept = 1.0 if rank is not None else tol
            found = factored.by_pivots(kernel, points, limit, tol, accept, rng, extend, double)
            if found is not None:
                return found
            why = f", since {limit} pivots do not reach a relative trace error of {tol:.0e}"
        if entries is not None and n * n > entries:
            text = f"on demand: {n} x {n} is too large{why}"
            return factored.OnDemand(kernel, doubled(points), policy=text)
        check_memory(kernel, points, double)
        G = as_doubles(kernel(doubled(points))) if double else kernel(points)
        return Dense(G, tol=tol, kernel=kernel, points=points, policy=f"dense: {n} x {n}{why}")

    @staticmethod
    def by_rows(kernel: Kernel, points: Points, products: bool = True) -> Gram:
        """Gram matrix of which rows and products with vectors are wanted, as NumPy doubles.

        Whole up to ``ROW_ENTRIES``; beyond, a factor where a small rank reaches ``ROW_TOL``, as for
        smooth kernels in low dimension (not without ``products``); rows on demand otherwise.
        """
        n = count(points)
        tol = ROW_TOL if products and n * n > ROW_ENTRIES else None
        most = min(n // RANK_SHARE, RANK_LIMIT)
        return Gram.of(kernel, points, tol=tol, most=most, rng=0, entries=ROW_ENTRIES, double=True)

    # What a class does not know better is computed from kernel and points, as NumPy doubles.

    @property
    def n(self) -> int:
        """Number of rows."""
        return count(self.points)

    @cached_property
    def diag(self) -> Array:
        """Diagonal (n,)."""
        return as_doubles(self._kernel().diag(self.points))

    @cached_property
    def whole(self) -> Dense:
        """All of it."""
        G = as_doubles(self._kernel()(self.points))
        return Dense(G, kernel=self.kernel, points=self.points)

    @property
    def factor(self) -> Array:
        """L (n, r) with G = L L^T."""
        return self.whole.factor

    @property
    def scale(self) -> float:
        """Largest entry of the diagonal; NumPy only."""
        return float(self.diag.max())

    @property
    def work(self) -> float:
        """Floating-point operations of one row and of what is done with it, about."""
        return 20.0 * self.n

    def matmul(self, B: Array) -> Array:
        """G @ B for B (n,) or (n, k), block by block."""
        blocks = row_blocks(self.n, self.n)
        return np.concatenate([self._compute_rows(np.arange(self.n)[rows]) @ B for rows in blocks])

    def rows(self, i: int | Ints) -> Array:
        """Row (n,) of one point, remembered and not to be written to; (k, n) of several."""
        if not isinstance(i, int | np.integer):
            return self._compute_rows(np.asarray(i))
        row = self._rows.get(int(i))
        if row is None:
            row = self._compute_rows(np.array([i]))[0]
            if (len(self._rows) + 1) * self.n <= CACHE_ENTRIES:
                self._rows[int(i)] = row
        return row

    def _compute_rows(self, index: Ints) -> Array:
        return as_doubles(self._kernel()(take(self.points, index), self.points))

    def project(self, B: Array) -> Array:
        """L^T B, shape (r,) or (r, k)."""
        return self.factor.T @ B

    def expand(self, A: Array) -> Array:
        """L A, shape (n,) or (n, k)."""
        return self.factor @ A

    def features(self, X: Points) -> Array:
        """Features (m, r) of other points, so that k(X, points) = features(X) @ factor.T."""
        return self.whole.features(X)

    def ridge(self, eta: float) -> Solver:
        """Solver of (G + n eta I)^-1 B."""
        return self.whole.ridge(eta)

    def weighted(self, r: Array, ridge: float) -> Solver:
        """Solver of S (S G S + ridge I)^-1 S B with S = sqrt(diag(r)), r >= 0, shape (n,)."""
        return self.whole.weighted(r, ridge)

    def signed(self, d: Array, ridge: float) -> Solver:
        """Solver of D G ((D G)^2 + ridge I)^-1 D B with D = diag(d) of any signs, shape (n,)."""
        return self.whole.signed(d, ridge)

    def _kernel(self) -> Kernel:
        if self.kernel is None:
            raise TypeError("this Gram matrix was made without a kernel; use Gram.of")
        return self.kernel


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

    @cached_property
    def diag(self) -> Array:
        """Diagonal (n,)."""
        return namespace(self.G).linalg.diagonal(self.G) + 0.0

    def rows(self, i: int | Ints) -> Array:
        """Row (n,) of one point, or rows (k, n) of several."""
        return self.G[i, ...]

    @cached_property
    def _pivoted(self) -> tuple[Array, Ints]:
        """Factor L (n, r) and the rows of L, in order, that are lower triangular."""
        with threads_for(self.n**3 / 3):
            L, pivots, rank = pivoted_factor(self.G)
        result = np.empty((self.n, rank), dtype=self.G.dtype)
        result[pivots] = np.tril(L[:, :rank])
        check_factor(self.G, result, solvers.RESCUE_BOUND)
        if self.tol is not None:  # columns come in the order of what they explain
            explained = np.cumsum(np.einsum("ij,ij->j", result, result))
            needed = 1 + np.count_nonzero(explained < (1.0 - self.tol) * explained[-1:])
            result = result[:, :needed]
        return result, pivots[: result.shape[1]]

    @cached_property
    def factor(self) -> Array:
        """Pivoted Cholesky factor L (n, r), G = L L^T to working precision, or to ``tol``."""
        if isinstance(self.G, np.ndarray):
            return self._pivoted[0]
        L = symmetric_factor(self.G)
        check_factor(self.G, L, solvers.RESCUE_BOUND)
        return L

    def features(self, X: Points) -> Array:
        """Features (m, r) of other points, by the rows of the pivots; NumPy only."""
        L, pivots = self._pivoted
        return solve_triangular(L[pivots], self._kernel()(take(self.points, pivots), X)).T

    def ridge(self, eta: float) -> Solver:
        """Solver of (G + n eta I)^-1 B by one Cholesky factorisation."""
        L, diagnostics = factor_with_ridge(self.G, self.n * check_ridge(eta), unit=self.n)
        return solvers.DenseRidge(diagnostics, None, L)

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
            return solvers.DenseWeighted(diagnostics, r, L, s, inverse, None)
        active = np.flatnonzero(r)
        s = np.sqrt(r[active])
        A = self.G.take(active, axis=0).take(active, axis=1)  # twice as fast as np.ix_
        A *= s[:, None]
        A *= s
        L, diagnostics = factor_with_ridge(A, ridge, overwrite=True)
        return solvers.DenseWeighted(diagnostics, r, L, s, 1.0 / s, active)

    def signed(self, d: Array, ridge: float) -> Solver:
        """Solver of D G ((D G)^2 + ridge I)^-1 D B."""
        if isinstance(self.G, np.ndarray):
            from kernelbayes.gram.factored import LowRank

            return LowRank(self.factor).signed(d, ridge)
        return solvers.DenseSigned.of(self.G, check_weights(d, self.n, self.G), check_ridge(ridge))


def check_finite(A: Array) -> None:
    """Raise ValueError if A has NaN or infinite entries."""
    xp = namespace(A)
    if not bool(xp.all(xp.isfinite(A))):
        raise ValueError("the Gram matrix has NaN or infinite entries; check the kernel's scale")


@cache
def available() -> float:
    """Bytes of memory of this machine or container; infinite where that cannot be known."""
    found = [float("inf")]
    with contextlib.suppress(AttributeError, ValueError, OSError):  # not on every system
        found.append(float(os.sysconf("SC_PAGE_SIZE")) * os.sysconf("SC_PHYS_PAGES"))
    for path in CONTAINER:
        with contextlib.suppress(ValueError, OSError):  # "max" is no number
            found.append(float(path.read_text()))
    return min(found)


def check_memory(kernel: Kernel, points: Points, double: bool) -> None:
    """Raise a MemoryError unless the Gram matrix and its factor fit, before they are made."""
    one, n = kernel.diag(take(points, slice(0, 1))), count(points)
    if not isinstance(one, np.ndarray):  # perhaps on another device
        return
    needed = 2.0 * float(n) ** 2 * (8 if double else one.itemsize)
    if needed > available():
        raise MemoryError(
            f"the Gram matrix of {n} points and its factor take {needed / 1e9:.0f} GB, more than "
            f"the {available() / 1e9:.0f} GB there are; give rank= (rank=300, say), or a kernel "
            "with finite features such as nystrom(kernel, X, 300)"
        )
