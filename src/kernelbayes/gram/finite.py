"""Kernels defined by finitely many features: on landmarks, and random Fourier features."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from kernelbayes.arrays import (
    BLOCK_ENTRIES,
    as_doubles,
    as_floats,
    as_vectors,
    like,
    namespace,
    narrowed,
    row_blocks,
    threads_for,
)
from kernelbayes.gram.lapack import condition_number, pivoted_factor, solve_triangular
from kernelbayes.kernels import Kernel
from kernelbayes.kernels.algebra import SameSpace
from kernelbayes.kernels.base import answer
from kernelbayes.points import count, doubled, in_order, sum_over_rows, take, take_columns
from kernelbayes.types import Array, Floats, Ints, Names, Points, PointsLike

# Relative trace error at which a factor stands for the exact Gram matrix: a hundred times the
# rounding error of a trace over some ten thousand points.
EXACT = 1e-12
# Share by which a Gram matrix that is given may miss being symmetric and positive semi-definite:
# the square root of single precision's rounding.
NEARLY = 3e-4


@dataclass(frozen=True, eq=False)
class FiniteKernel(Kernel):
    """A kernel defined by its features, computed in row blocks."""

    finite = True  # that is what it is for

    @property
    @abstractmethod
    def rank(self) -> int:
        """Number of features r."""

    @property
    def width(self) -> int:
        """Numbers in memory for each row of a block."""
        return self.rank

    @abstractmethod
    def _rows(self, X: Points) -> Array:
        """Features of one row block."""

    def _features(self, X: Points) -> Array:
        blocks = list(row_blocks(count(X), self.width, BLOCK_ENTRIES // 4))
        first = self._rows(take(X, blocks[0]))
        if len(blocks) == 1:
            return first
        if not isinstance(first, np.ndarray):
            rest = [self._rows(take(X, rows)) for rows in blocks[1:]]
            return namespace(first).concat([first, *rest], axis=0)
        result = np.empty((count(X), self.rank), dtype=first.dtype)
        result[blocks[0]] = first
        for rows in blocks[1:]:
            result[rows] = self._rows(take(X, rows))
        return result

    def _cross(self, X: Points, Y: Points) -> Array:
        return self._features(X) @ self._features(Y).T

    def _diag(self, X: Points) -> Array:
        parts = []
        for rows in row_blocks(count(X), self.width):
            F = self._rows(take(X, rows))
            parts.append(namespace(F).sum(F * F, axis=1))
        return namespace(*parts).concat(parts)


@dataclass(frozen=True, eq=False)
class _Finite(FiniteKernel, SameSpace):
    """An approximation of ``kernel`` by finitely many features."""

    kernel: Kernel

    exact = answer(lambda self: self.kernel)

    def scaled(self, factor: float) -> Kernel:  # noqa: ARG002
        """Return the kernel itself: landmarks or frequencies belong to its bandwidth."""
        return self


@dataclass(frozen=True, eq=False)
class Landmarks(_Finite):
    r"""Projection of a kernel on the span of landmarks z_1..z_r (Nystrom).

    .. math:: k_r(x, y) = k(x, z) K_{zz}^{-1} k(z, y), \qquad
              \phi_r(x) = L^{-1} k(z, x), \quad L L^\top = K_{zz}

    Made by :func:`nystrom` and :func:`pivoted_cholesky`. ``kernel`` is what is approximated,
    ``landmarks`` are r points or more, ``factor`` (r, r) is L of the first r, and ``error`` the
    relative trace error on the points it was made from, measured when first asked for. Landmarks
    that depend linearly on the others, to rounding, come last and have no feature of their own.
    """

    landmarks: Points = field(repr=False)
    factor: Array = field(repr=False)
    # The error if it is known, or the points on which to measure it.
    measured: float | Points = field(repr=False, compare=False)
    names: Names = field(default=None, repr=False, compare=False)  # columns of the landmarks

    def points(self, X: PointsLike, name: str = "X") -> Points:
        """Check X, a frame or mapping with its columns in the order of the landmarks."""
        return super().points(in_order(X, self.names, name, by_name=self.by_name), name)

    @cached_property
    def error(self) -> float:
        """Relative trace error on the points it was made from."""
        if isinstance(self.measured, float):
            return self.measured

        def traces(chunk: Points, _: slice) -> Floats:
            both = self.kernel.diag(chunk), self.diag(chunk)
            return np.array([as_doubles(diag).sum() for diag in both])

        exact, found = sum_over_rows(traces, self.measured, self.rank)
        return float(max(0.0, exact - found) / exact) if exact > 0 else 0.0

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "measured": self.error}  # a small file: without the points

    @property
    def rank(self) -> int:
        """Number of features r."""
        return int(self.factor.shape[0])

    def anchors(self, points: Points) -> Points:  # noqa: ARG002
        """Return the landmarks: what is far from all of them is not seen."""
        return self.landmarks

    @cached_property
    def basis(self) -> Points:
        """Landmarks (r, ...) of which features are made."""
        return take(self.landmarks, slice(0, self.rank))

    def anchored(self, points: Points) -> tuple[Array, Array]:
        """Features (r, k) of checked points and the kernel matrix of all landmarks and them."""
        return self._solved(points, self.landmarks)

    def on(self, columns: Sequence[int]) -> Landmarks:
        """Projection of the kernel over some coordinates on those of the landmarks."""
        from kernelbayes.gram.features import pivoted_cholesky

        landmarks = take_columns(self.landmarks, columns)
        return pivoted_cholesky(self.kernel.on(columns), landmarks, tol=EXACT, rng=0)

    def _points(self, X: PointsLike, name: str) -> Points:
        points = self.kernel.points(X, name)
        self.kernel.check_pair(points, self.landmarks)
        return points

    def _rows(self, X: Points) -> Array:
        return self._solved(X, self.basis)[0].T

    def _solved(self, X: Points, landmarks: Points) -> tuple[Array, Array]:
        # In doubles: a solve with landmarks that nearly depend on each other magnifies rounding.
        fine = doubled(X) if isinstance(self.factor, np.ndarray) else X
        K = self.kernel._cross(fine, landmarks).T
        Phi = self.finish(K[: self.rank, :])
        if fine is X:
            return Phi, K
        one = self.kernel.diag(take(X, slice(0, 1)))
        return narrowed(Phi, one), narrowed(K, one)

    def finish(self, K: Array, transpose: bool = False) -> Array:
        """L^-1 K (r, k), which makes features of kernel columns; or L^-T K."""
        if K.ndim == 2 and K.shape[1] == 1:  # which takes one thread anyway
            return solve_triangular(self.factor, K, transpose)
        with threads_for(float(K.shape[-1]) * self.rank**2):
            return solve_triangular(self.factor, K, transpose)

    @cached_property
    def condition(self) -> float:
        """Condition number of the landmarks' Gram matrix, about."""
        return condition_number(self.factor @ self.factor.T, self.factor, 0.0)


@dataclass(frozen=True, eq=False)
class Precomputed(FiniteKernel):
    r"""A kernel known by its Gram matrix G (n, n) alone: a point is its row of kernel values.

    Points are rows ``k(x, x_1), ..., k(x, x_n)`` of values at the n training points: G itself to
    fit, (m, n) for new points, as with scikit-learn's ``kernel="precomputed"``, which the rules
    understand too. The kernel of two rows is the projection on the training sample,

    .. math:: k(a, b) = a^\top G^{+} b

    which is exact if one of them is a training point.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelbayes import Gaussian, KernelBayesRule, Precomputed
    >>> x = np.linspace(0.0, 3.0, 30)
    >>> K = Gaussian(1.0)(x)
    >>> rule = KernelBayesRule(Precomputed(K), ridge=1e-4).fit(K, np.sin(x))
    >>> bool(abs(rule.predict(Gaussian(1.0)([1.5], x))[0] - np.sin(1.5)) < 0.02)
    True
    """

    matrix: Array = field(repr=False)

    def __post_init__(self) -> None:
        G = as_doubles(as_floats(self.matrix, "the Gram matrix"))
        if G.ndim != 2 or G.shape[0] != G.shape[1] or not len(G):
            raise ValueError(f"a Gram matrix has shape (n, n), got {G.shape}")
        if np.max(np.abs(G - G.T)) > NEARLY * np.max(np.abs(G)):
            raise ValueError("a Gram matrix is symmetric; this one is not")
        object.__setattr__(self, "matrix", G)

    @cached_property
    def pivoted(self) -> tuple[Ints, Floats]:
        """Training points (r,) whose span has all the others, and the factor (r, r) of theirs."""
        G = self.matrix
        L, pivots, r = pivoted_factor(G)
        pivots, factor = pivots[:r], np.asfortranarray(np.tril(L[:r, :r]))
        lost = np.trace(G) - np.sum(solve_triangular(factor, G[pivots]) ** 2)
        if not abs(lost) <= NEARLY * np.trace(G):
            raise ValueError("the Gram matrix is not positive semi-definite; is it of a kernel?")
        return pivots, factor

    def _points(self, X: PointsLike, name: str) -> Points:
        n, rows = len(self.matrix), as_vectors(X, name)
        if rows.shape[1] != n:
            text = f"{name} needs a column for each of the {n} training points"
            raise ValueError(f"{text} (kernel values there), got shape {tuple(rows.shape)}")
        return rows

    @property
    def rank(self) -> int:
        """Rank of the Gram matrix."""
        return len(self.pivoted[0])

    def _rows(self, X: Points) -> Array:
        pivots, factor = self.pivoted
        return solve_triangular(factor, as_doubles(X)[:, pivots].T).T


@dataclass(frozen=True, eq=False)
class Fourier(_Finite):
    r"""Random Fourier features, in pairs of cosine and sine.

    .. math:: \phi(x) = \sqrt{2/r}\, [\cos(\omega_j^\top x), \sin(\omega_j^\top x)]_{j \le r/2}

    Made by :func:`fourier`; the frequencies follow the kernel's spectral distribution.
    """

    frequencies: Floats = field(repr=False)

    is_smooth = True  # cosines and sines

    @property
    def rank(self) -> int:
        """Number of features r."""
        return 2 * len(self.frequencies)

    def on(self, columns: Sequence[int]) -> Fourier:
        """Features of some coordinates."""
        return Fourier(self.kernel.on(columns), self.frequencies[:, list(columns)])

    def _points(self, X: PointsLike, name: str) -> Points:
        X = self.kernel.points(X, name)
        dim = self.frequencies.shape[1]
        if X.shape[1] != dim:
            raise ValueError(f"features for dimension {dim}, but {name} has {X.shape[1]} columns")
        return X

    def _rows(self, X: Points) -> Array:
        xp = namespace(X)
        angles = X @ like(self.frequencies, X).T
        scale = 1.0 / math.sqrt(len(self.frequencies))
        return scale * xp.concat([xp.cos(angles), xp.sin(angles)], axis=1)
