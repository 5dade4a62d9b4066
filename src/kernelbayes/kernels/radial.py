"""Kernels of a distance between vectors: their bandwidth, their Gram matrices, the Gaussian.

The Gram matrix of a profile of the squared distance is one product of augmented matrices,

    -|u - v|^2 / 2 = [u, -|u|^2/2, 1] . [v, 1, -|v|^2/2],

and elementwise work on tiles that fit the cache; the symmetric matrix computes only its lower half.
The product loses digits when the points spread over many bandwidths, or when the profile has a
kink at zero; then the differences are taken directly, so that no value is off by more than the
square root of the machine precision.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
from scipy.spatial.distance import cdist, pdist

from kernelbayes.arrays import (
    add_into,
    as_doubles,
    as_vectors,
    epsilon,
    like,
    namespace,
    row_blocks,
    threads_for,
    to_float,
    total,
    warn,
)
from kernelbayes.kernels.base import Kernel, answer, mirror
from kernelbayes.kernels.stationary import Stationary
from kernelbayes.points import count, flag, positive, positive_each, take
from kernelbayes.types import Array, Floats, Points, PointsLike

# Points whose pairs the median heuristic looks at: two million distances, of which the median has
# a relative standard error of about one percent.
MEDIAN_POINTS = 2000
# Quantiles of which a spread is made, and those of the absolute value of a Cauchy variable.
LEVELS = np.array([0.5, 0.8, 0.98])
CAUCHY = np.tan(0.5 * np.pi * LEVELS).round(12)  # the first is exactly one
# The same for distances between points. If a recording rests for nine tenths of the time, a point
# of every fifth pair (1 - 0.9^2) is one in motion: the 90 % quantile sees these pairs.
PAIR_LEVELS = np.array([0.5, 0.75, 0.9])
PAIR_CAUCHY = np.tan(0.5 * np.pi * PAIR_LEVELS).round(12)
# Rows and columns of a tile: product, clipping and exponential stay in the second-level cache
# (benchmarks/bench_gram.py). Not a power of two, whose columns would share few cache lines when a
# tile is transposed.
TILE = 184
# Products of coordinates up to which differences are taken directly: preparing the matrix product
# takes as long as some 50 000 of them (one query of a sample is ten times faster this way).
DIRECT_WORK = 50_000


@dataclass(frozen=True, eq=False)
class Bandwidth(Kernel):
    """A kernel with a bandwidth, and the median heuristic for it."""

    bandwidth: float | tuple[float, ...]

    is_unit = True

    _metric = "euclidean"
    _learned: ClassVar[Array] = None  # the tensor that the bandwidth was given as, if it learns

    def __post_init__(self) -> None:
        given = self.bandwidth
        object.__setattr__(self, "bandwidth", positive_each(given, "bandwidth"))
        # A torch tensor keeps its gradient: points are divided by it, all else sees the numbers.
        if getattr(given, "requires_grad", False):
            object.__setattr__(self, "_learned", given)

    @classmethod
    def median(
        cls, X: PointsLike, scale: float = 1.0, per_dimension: bool = False, **parameters: Any
    ) -> Self:
        """Kernel whose bandwidth is ``scale`` times the median distance between points of X.

        Parameters
        ----------
        X : points, shape (n, d)
            Beyond 2000 points a fixed random subset of 2000 is used.
        scale : float
            Multiplies the median.
        per_dimension : bool
            One bandwidth per dimension: the median of each coordinate's distances, enlarged so
            that the kernel between typical points does not shrink as dimensions are added.
        **parameters
            Other parameters of the kernel, e.g. ``nu``.

        When more than half of all pairs coincide, the median of the other distances is used; when
        all do, the bandwidth is ``scale``. Both are reported by a ``NumericalWarning``.
        """
        scale, per_dimension = positive(scale, "scale"), flag(per_dimension, "per_dimension")
        kernel = cls(1.0, **parameters)
        X = kernel.points(X)
        U = as_doubles(kernel._coordinates(take(X, kept(count(X)))))
        if not per_dimension:
            return cls(scale * _median_distance(U, kernel._metric), **parameters)
        d = kernel._dimension(X)
        columns = U.reshape(len(U), -1, d)  # (n, coordinates per dimension, d)
        enlarge = d if kernel._metric == "cityblock" else math.sqrt(d)
        medians = [_median_distance(columns[:, :, j], kernel._metric) for j in range(d)]
        return cls(tuple(scale * enlarge * m for m in medians), **parameters)

    def _dimension(self, X: Points) -> int:
        return int(X.shape[1])

    def _coordinates(self, X: Points) -> Array:
        """Coordinates in units of the bandwidth."""
        return self._in_bandwidths(X)

    def _in_bandwidths(self, X: Array) -> Array:
        learned = None if isinstance(X, np.ndarray) else self._learned
        if isinstance(self.bandwidth, float):
            return X / (self.bandwidth if learned is None else learned)
        if X.shape[1] != len(self.bandwidth):
            raise ValueError(
                f"{type(self).__name__} has {len(self.bandwidth)} bandwidths, "
                f"but the points have {X.shape[1]} dimensions"
            )
        return X / (like(self.bandwidth, X) if learned is None else learned)

    def scaled(self, factor: float) -> Kernel:
        """Kernel with its bandwidth multiplied by a factor; a learned one keeps its gradient."""
        if self._learned is None:
            return super().scaled(factor)
        return replace(self, bandwidth=self._learned * factor)

    def _diag(self, X: Points) -> Array:
        U = self._coordinates(X)
        return namespace(U).ones_like(U[:, 0])


def median_distance(X: PointsLike) -> float:
    """Median distance between vectors (n, d): the bandwidth of ``Gaussian.median(X)``."""
    U = as_doubles(as_vectors(X))
    return _median_distance(U[kept(len(U))], "euclidean")


def _median_distance(U: Floats, metric: str) -> float:
    distances = pdist(U, metric)
    median = float(np.median(distances)) if distances.size else 0.0
    if 0.0 < median < math.inf:
        return median
    size = float(np.abs(U).max(initial=0.0))
    if size > 0.0 and not 1e-100 < size < 1e100:  # squares leave the range of floating point
        return size * _median_distance(U / size, metric)
    distances = distances[(distances > 0) & np.isfinite(distances)]
    text = "all points coincide: there is no scale in the data, so the bandwidth is set to 1"
    if distances.size:
        text = (
            "most points coincide: the median distance is zero, so the median of the positive "
            "distances is the bandwidth"
        )
    warn(text)
    return float(np.median(distances)) if distances.size else 1.0


@dataclass(frozen=True, eq=False)
class Radial(Bandwidth):
    """A profile of ``e = -|u - v|^2 / 2``, u and v coordinates in units of the bandwidth."""

    _has_kink = False  # the profile has no derivative at 0; distances are then taken directly

    def _profile(self, E: Array) -> Array:
        """Kernel values for exponents E <= 0, in their memory or not; the profile at 0 is 1."""
        return np.exp(E, out=E) if isinstance(E, np.ndarray) else namespace(E).exp(E)

    def _cross(self, X: Points, Y: Points) -> Array:
        U, V = self._coordinates(X), self._coordinates(Y)
        if not isinstance(U, np.ndarray):
            return self._profile(_exponents(U, V, self._has_kink))
        exponents = _tile_exponents(U, V, self._has_kink)
        if U.size * len(V) <= DIRECT_WORK:  # as at every step of a filter: one tile, no BLAS
            with np.errstate(under="ignore"):
                return self._profile(exponents(slice(None), slice(None)))
        G = np.empty((len(U), len(V)), dtype=np.result_type(U, V))
        with threads_for(2.0 * U.shape[1] * G.size), np.errstate(under="ignore"):
            for rows, columns in product(_tiles(len(U), len(V)), _tiles(len(V), len(U))):
                G[rows, columns] = self._profile(exponents(rows, columns))
        return G

    def _self(self, X: Points) -> Array:
        U = self._coordinates(X)
        if not isinstance(U, np.ndarray):
            G = self._profile(_exponents(U, U, self._has_kink))
            return mirror(G, namespace(U).ones_like(U[:, 0]))
        n = len(U)
        G = np.empty((n, n), dtype=U.dtype)
        exponents = _tile_exponents(U, U, self._has_kink)
        with threads_for(U.shape[1] * G.size), np.errstate(under="ignore"):
            for rows in _tiles(n, n):
                for columns in _tiles(rows.start, n):
                    tile = self._profile(exponents(rows, columns))
                    G[rows, columns] = tile
                    G[columns, rows] = tile.T
                G[rows, rows] = mirror(self._profile(exponents(rows, rows)), 1.0)
        return G


@dataclass(frozen=True, eq=False)
class Gaussian(Radial, Stationary):
    r"""Gaussian (RBF) kernel.

    .. math:: k(x, y) = \exp\left(-\frac{\|x - y\|^2}{2 h^2}\right)

    with bandwidth h, or one per dimension. Characteristic on R^d. The default for vectors:
    everything smooth, all moments, closed forms with Gaussian measures. In high dimension or for
    rough functions try :class:`Matern` or :class:`Laplace`. ``Gaussian.median(X)`` sets h to the
    median distance; half of it is often better for filtering. A torch tensor that requires its
    gradient keeps it: Gram matrices of torch points can be differentiated by the bandwidth.

    Examples
    --------
    >>> from kernelbayes import Gaussian
    >>> Gaussian(1.0)([0.0, 1.0], [0.0])
    array([[1.        ],
           [0.60653066]])
    """

    is_smooth = True
    gaussian_bandwidth = answer(lambda self: self.bandwidth)

    def slopes(self, E: Floats) -> tuple[Floats, Floats, Floats]:
        """Profile and two derivatives: all the same."""
        return (values := np.exp(E)), values, values


def vector_kernel(U: Floats) -> Gaussian:
    """Gaussian kernel for points (n, d): spreads of the columns times their typical distance."""
    size = float(np.abs(U).max())  # squares leave the range of floating point
    far = not 1e-100 < size < 1e100 and float(U.min()) < float(U.max())
    if U.shape[1] == 1 and not far:
        return Gaussian(typical(pdist(U[kept(len(U))])))
    spreads = column_spreads(U)
    with np.errstate(over="ignore"):  # of outliers
        h = typical(pdist(U[kept(len(U))] / spreads))
    widths = in_range(h * spreads)
    return Gaussian(float(widths[0]) if len(widths) == 1 else tuple(widths))


def column_spreads(U: Floats) -> Floats:
    """Spread (d,) of each column of points (n, d), positive and finite: see kernels.default."""
    size = np.abs(U).max(axis=0)
    size = np.where(size > 0.0, size, 1.0)
    V = U / size  # so that differences cannot overflow
    deviations = np.abs(V - np.median(V, axis=0))
    found = [
        (np.quantile(a[a > 0.0], LEVELS) / CAUCHY).max() if np.any(a > 0.0) else 1.0
        for a in deviations.T
    ]
    return in_range(size * np.asarray(found))


def typical(distances: Floats) -> float:
    """Typical distance: the median, or an outer quantile where that is out of proportion."""
    distances = distances[np.isfinite(distances)]
    found = (np.quantile(distances, PAIR_LEVELS) / PAIR_CAUCHY).max() if distances.size else 0.0
    if found > 0.0:
        return float(found)
    if (apart := distances[distances > 0.0]).size:
        return float(np.median(apart))
    warn("all points coincide: there is no scale in the data, so the bandwidth is set to 1")
    return 1.0


def kept(n: int) -> npt.NDArray[np.integer[Any]]:
    """Return the points whose distances are measured: all, or a fixed random subset of many."""
    if n <= MEDIAN_POINTS:
        return np.arange(n)
    return np.random.default_rng(0).choice(n, MEDIAN_POINTS, replace=False)


def in_range(values: Floats) -> Floats:
    """Values within the range of positive finite numbers."""
    limits = np.finfo(np.float64)
    return np.asarray(np.minimum(np.maximum(values, limits.tiny), limits.max))


def _tiles(n: int, other: int) -> list[slice]:
    """Slices of TILE rows, longer where the other side is shorter than a tile."""
    return list(row_blocks(n, min(TILE, other), TILE * TILE))


def _expansion_is_safe(largest: float, eps: float) -> bool:
    # |u|^2/2 + |v|^2/2 - u.v has absolute error about eps * max |u|^2; inf and NaN are not safe.
    return largest * eps <= math.sqrt(eps)


def _tile_exponents(U: Floats, V: Floats, kink: bool) -> Callable[[slice, slice], Array]:
    """Return a function of row and column slices that gives a tile of -|u_i - v_j|^2 / 2.

    A tile may be overwritten, and is by the next one: they share their memory.
    """

    def direct(rows: slice, columns: slice) -> Array:
        E = cdist(U[rows], V[columns], "sqeuclidean")
        E *= -0.5
        with np.errstate(over="ignore"):  # minus infinity is right: the kernel is zero there
            return E.astype(np.result_type(U, V), copy=False)

    if kink or U.size * len(V) <= DIRECT_WORK:
        return direct
    with np.errstate(over="ignore", invalid="ignore"):
        centre = V.mean(axis=0, dtype=np.float64).astype(V.dtype)
        A = U - centre
        B = A if U is V else V - centre
        a, b = (np.einsum("ij,ij->i", M, M) for M in (A, B))
        largest = float(max(a.max(), b.max()))
    if not _expansion_is_safe(largest, epsilon(A)):
        return direct
    A = np.column_stack([A, a * -0.5, np.ones_like(a)])
    B = np.column_stack([B, np.ones_like(b), b * -0.5]).T
    memory = np.empty(min(TILE * TILE, len(U) * len(V)), dtype=A.dtype)

    def expanded(rows: slice, columns: slice) -> Array:
        shape = rows.stop - rows.start, columns.stop - columns.start
        E = memory[: shape[0] * shape[1]].reshape(shape)
        np.matmul(A[rows], B[:, columns], out=E)
        return np.minimum(E, 0.0, out=E)

    return expanded


def _exponents(U: Array, V: Array, kink: bool) -> Array:
    """Exponents (n, m) without work in place: for torch (differentiable) and the standard."""
    xp = namespace(U, V)
    centre = total(V, axis=0) / V.shape[0]
    A, B = U - centre, V - centre
    a, b = xp.sum(A * A, axis=1), xp.sum(B * B, axis=1)
    largest = max(to_float(xp.max(a)), to_float(xp.max(b)))
    if not kink and _expansion_is_safe(largest, epsilon(A)):
        return xp.clip(A @ B.T - 0.5 * a[:, None] - 0.5 * b[None, :], max=0.0)
    return over_columns(U, V, lambda u, v: -0.5 * (u - v) ** 2)


def over_columns(U: Array, V: Array, function: Callable[[Array, Array], Array]) -> Array:
    """Sum over columns of function(u_ij, v_kj), shape (n, m)."""
    total = function(U[:, 0][:, None], V[:, 0][None, :])
    for j in range(1, U.shape[1]):
        total = add_into(total, function(U[:, j][:, None], V[:, j][None, :]))
    return total
