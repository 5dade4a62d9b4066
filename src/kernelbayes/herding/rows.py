"""The Gram matrix of n candidates, row by row: what every method of herding works on."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from kernelbayes.arrays import BLOCK_ENTRIES, row_blocks, to_numpy
from kernelbayes.gram.features import partial_cholesky
from kernelbayes.kernels import Kernel
from kernelbayes.points import Points, count, take

Vector = np.ndarray[Any, Any]

# Up to this many entries the whole Gram matrix is computed at once.
WHOLE_ENTRIES = 2**20
# Entries of rows that are remembered: 128 MB.
CACHE_ENTRIES = 4 * BLOCK_ENTRIES
# A pivoted Cholesky factor with this relative trace error stands for the Gram matrix. Values of
# mu are then off by about as much, far less than herding leaves.
FACTOR_TOLERANCE = 1e-10
# Ranks tried: one part in RANK_SHARE of n, so that failing costs little beside n^2 evaluations.
RANK_SHARE, RANK_LIMIT = 20, 512


@dataclass(frozen=True, eq=False)
class Rows(ABC):
    """Gram matrix of n candidates, row by row; ``diag`` (n,) is its diagonal."""

    diag: Vector
    _cache: dict[int, Vector] = field(default_factory=dict, init=False, repr=False)

    def __getitem__(self, i: int) -> Vector:
        """Row i, shape (n,). Not to be written to."""
        row = self._cache.get(i)
        if row is None:
            row = self._row(i)
            if (len(self._cache) + 1) * len(row) <= CACHE_ENTRIES:
                self._cache[i] = row
        return row

    @property
    def scale(self) -> float:
        """Largest k(x, x)."""
        return float(self.diag.max())

    @property
    def work(self) -> float:
        """Floating-point operations of one row, about."""
        return 20.0 * len(self.diag)

    @abstractmethod
    def _row(self, i: int) -> Vector:
        """Compute row i."""

    @abstractmethod
    def times(self, weights: Vector) -> Vector:
        """Gram matrix times weights (n,): values of the embedding at the candidates."""


@dataclass(frozen=True, eq=False)
class _Whole(Rows):
    G: Vector = field(kw_only=True)

    def _row(self, i: int) -> Vector:
        return np.asarray(self.G[i])

    def times(self, weights: Vector) -> Vector:
        return np.asarray(self.G @ weights)


@dataclass(frozen=True, eq=False)
class _Factored(Rows):
    F: Vector = field(kw_only=True)

    @property
    def work(self) -> float:
        return 2.0 * self.F.size

    def _row(self, i: int) -> Vector:
        return np.asarray(self.F @ self.F[i])

    def times(self, weights: Vector) -> Vector:
        return np.asarray(self.F @ (weights @ self.F))


@dataclass(frozen=True, eq=False)
class _OnDemand(Rows):
    kernel: Kernel = field(kw_only=True)
    points: Points = field(kw_only=True)

    def _row(self, i: int) -> Vector:
        row = to_numpy(self.kernel(take(self.points, [i]), self.points))[0]
        return np.asarray(row, dtype=np.float64)

    def times(self, weights: Vector) -> Vector:
        n = len(weights)
        blocks = (
            to_numpy(self.kernel(take(self.points, rows), self.points)) @ weights
            for rows in row_blocks(n, n)
        )
        return np.concatenate(list(blocks))


def rows_of(kernel: Kernel, points: Points, products: bool = True) -> Rows:
    """Rows of the Gram matrix of points, by the cheapest route that is exact to rounding.

    Finite features if the kernel has them; the whole matrix up to 1024 points; beyond, a pivoted
    Cholesky factor where a small rank leaves no error (relative trace 1e-10), which smooth kernels
    in low dimension have; rows of the kernel otherwise. Make it once and hand it to
    :func:`~kernelbayes.resample` when many embeddings over the same points are resampled. Without
    ``products`` (``times`` will not be asked for) large matrices are not factored.
    """
    n = count(points)
    if kernel.finite:
        F = np.asarray(to_numpy(kernel.features(points)), dtype=np.float64)
        return _Factored(np.einsum("ij,ij->i", F, F), F=F)
    if n * n <= WHOLE_ENTRIES:
        return rows_of_matrix(kernel(points))
    diag = np.asarray(to_numpy(kernel.diag(points)), dtype=np.float64)
    if products:
        limit = min(n // RANK_SHARE, RANK_LIMIT)
        _, L, error = partial_cholesky(kernel, points, limit, FACTOR_TOLERANCE, 0)
        if error <= FACTOR_TOLERANCE and L.dtype == np.float64:
            return _Factored(diag, F=L)
    return _OnDemand(diag, kernel=kernel, points=points)


def rows_of_matrix(G: Any) -> Rows:
    """Rows of a Gram matrix (n, n) that is there already."""
    G = np.asarray(to_numpy(G), dtype=np.float64)
    if G.ndim != 2 or G.shape[0] != G.shape[1]:
        raise ValueError(f"a Gram matrix has shape (n, n), got {G.shape}")
    return _Whole(np.diagonal(G).copy(), G=G)
