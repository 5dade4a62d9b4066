"""Kernels of a distance: Gaussian, Laplace, Matern, rational quadratic, periodic.

All but Laplace are *radial*: a profile of the squared Euclidean distance of some coordinates.
Their Gram matrix is one product of augmented matrices,

    -|u - v|^2 / 2 = [u, -|u|^2/2, 1] . [v, 1, -|v|^2/2],

and elementwise work on cache-sized tiles; the symmetric matrix computes only its lower half.
The product loses digits when the points spread over many bandwidths, or when the profile has a
kink at zero; then the differences are taken directly, so that no value is off by more than the
square root of the machine precision.
"""

from __future__ import annotations

import math
import warnings
from abc import abstractmethod
from dataclasses import dataclass
from itertools import product
from typing import Any, Self

import numpy as np
import scipy.special
from array_api_compat import device
from scipy.spatial.distance import cdist, pdist

from kernelbayes.arrays import (
    Array,
    NumericalWarning,
    epsilon,
    exp_into,
    like,
    namespace,
    row_blocks,
    threads_for,
    to_float,
    to_numpy,
)
from kernelbayes.kernels.base import Kernel, mirror, positive, scalar
from kernelbayes.points import Points, count, take

# Rows and columns of a tile: product, clipping and exponential stay in the second-level cache.
# Not a power of two, whose columns would share few cache lines when a tile is transposed.
TILE = 184
# Points whose pairs the median heuristic looks at.
MEDIAN_POINTS = 2000


@dataclass(frozen=True, eq=False)
class _Bandwidth(Kernel):
    """A kernel with a bandwidth, and the median heuristic for it."""

    bandwidth: float | tuple[float, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "bandwidth", positive(self.bandwidth, "bandwidth"))

    @classmethod
    def median(
        cls, X: Any, scale: float = 1.0, per_dimension: bool = False, **parameters: Any
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
        scale = scalar(scale, "scale")
        kernel = cls(1.0, **parameters)
        X = kernel.points(X)
        if count(X) > MEDIAN_POINTS:
            keep = np.random.default_rng(0).choice(count(X), MEDIAN_POINTS, replace=False)
            X = take(X, keep)
        U = np.asarray(to_numpy(kernel._coordinates(X)), dtype=np.float64)
        if not per_dimension:
            return cls(scale * _median_distance(U, kernel._metric), **parameters)
        d = kernel._dimension(X)
        columns = U.reshape(len(U), -1, d)  # (n, coordinates per dimension, d)
        enlarge = d if kernel._metric == "cityblock" else math.sqrt(d)
        medians = [_median_distance(columns[:, :, j], kernel._metric) for j in range(d)]
        return cls(tuple(scale * enlarge * m for m in medians), **parameters)

    @property
    def _metric(self) -> str:
        return "euclidean"

    def _dimension(self, X: Points) -> int:
        return int(X.shape[1])

    def _coordinates(self, X: Points) -> Array:
        """Coordinates in units of the bandwidth."""
        return self._in_bandwidths(X)

    def _in_bandwidths(self, X: Array) -> Array:
        if isinstance(self.bandwidth, float):
            return X / self.bandwidth
        if X.shape[1] != len(self.bandwidth):
            raise ValueError(
                f"{type(self).__name__} has {len(self.bandwidth)} bandwidths, "
                f"but the points have {X.shape[1]} dimensions"
            )
        return X / like(self.bandwidth, X)

    def _diag(self, X: Points) -> Array:
        U = self._coordinates(X)
        return namespace(U).ones_like(U[:, 0])


def _median_distance(U: np.ndarray[Any, Any], metric: str) -> float:
    distances = pdist(U, metric)
    median = float(np.median(distances)) if distances.size else 0.0
    if 0.0 < median < math.inf:
        return median
    distances = distances[(distances > 0) & np.isfinite(distances)]
    if distances.size:
        warnings.warn(
            "most points coincide: the median distance is zero, so the median of the positive "
            "distances is the bandwidth",
            NumericalWarning,
            stacklevel=4,
        )
        return float(np.median(distances))
    warnings.warn(
        "all points coincide: there is no scale in the data, so the bandwidth is set to 1",
        NumericalWarning,
        stacklevel=4,
    )
    return 1.0


@dataclass(frozen=True, eq=False)
class _Radial(_Bandwidth):
    """A profile of ``e = -|u - v|^2 / 2``, u and v coordinates in units of the bandwidth."""

    @abstractmethod
    def _profile(self, E: Array) -> Array:
        """Kernel values for exponents E <= 0, in their memory or not; the profile at 0 is 1."""

    @property
    def _smooth(self) -> bool:
        """Whether the profile at 0 has a derivative; if not, distances are taken directly."""
        return True

    def _cross(self, X: Points, Y: Points) -> Array:
        U, V = self._coordinates(X), self._coordinates(Y)
        return radial_cross(U, V, self._profile, self._smooth)

    def _self(self, X: Points) -> Array:
        return radial_self(self._coordinates(X), self._profile, self._smooth)


@dataclass(frozen=True, eq=False)
class Gaussian(_Radial):
    r"""Gaussian (RBF) kernel.

    .. math:: k(x, y) = \exp\left(-\frac{\|x - y\|^2}{2 h^2}\right)

    with bandwidth h, or one per dimension. Characteristic on R^d. The default for vectors:
    everything smooth, all moments, closed forms with Gaussian measures. In high dimension or for
    rough functions try :class:`Matern` or :class:`Laplace`. ``Gaussian.median(X)`` sets h to the
    median distance; half of it is often better for filtering. To learn a bandwidth by gradients,
    divide the points: ``Gaussian(1.0)(X / h)``.

    Examples
    --------
    >>> from kernelbayes import Gaussian
    >>> Gaussian(1.0)([0.0, 1.0], [0.0])
    array([[1.        ],
           [0.60653066]])
    """

    def _profile(self, E: Array) -> Array:
        return exp_into(E)


@dataclass(frozen=True, eq=False)
class Matern(_Radial):
    r"""Matern kernel.

    .. math:: k(x, y) = \frac{2^{1-\nu}}{\Gamma(\nu)} (\sqrt{2\nu}\, r)^\nu K_\nu(\sqrt{2\nu}\, r),
              \quad r = \|x - y\| / h

    Characteristic on R^d. Its functions are about nu times differentiable, so it assumes less
    smoothness than the Gaussian kernel, its limit for large nu. nu = 0.5 (exponential), 1.5 and
    2.5 are fast; any other nu uses Bessel functions (NumPy only).

    Examples
    --------
    >>> from kernelbayes import Matern
    >>> Matern(1.0, nu=0.5)([0.0, 1.0], [0.0])
    array([[1.        ],
           [0.36787944]])
    """

    nu: float = 1.5

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "nu", scalar(self.nu, "nu"))
        if self.nu > 60.0:  # Bessel functions overflow where the kernel is not yet 1
            raise ValueError(
                f"nu must be at most 60, got {self.nu:g}; the Gaussian kernel is then within 0.004"
            )

    @property
    def _smooth(self) -> bool:
        return self.nu >= 1.5  # the derivative nu / (nu - 1) grows without bound towards nu = 1

    def _profile(self, E: Array) -> Array:
        xp = namespace(E)
        away = E < 0
        largest = float(xp.finfo(E.dtype).max) ** 0.5
        squares = xp.clip(xp.where(away, -4.0 * self.nu * E, xp.ones_like(E)), max=largest)
        r = xp.where(away, xp.sqrt(squares), xp.zeros_like(E))  # differentiable at 0
        if self.nu == 0.5:
            return xp.exp(-r)
        if self.nu == 1.5:
            return (1.0 + r) * xp.exp(-r)
        if self.nu == 2.5:
            return (1.0 + r + r * r / 3.0) * xp.exp(-r)
        if not isinstance(E, np.ndarray):
            raise TypeError(f"Matern with nu={self.nu:g} is for NumPy; use nu 0.5, 1.5 or 2.5")
        return self._bessel(r)

    def _bessel(self, r: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        # K_nu(r) = kve(nu, r) exp(-r); in logarithms, so that neither factor overflows. The kernel
        # is zero from r = 10^4 on (nu <= 60), and kve is NaN for r beyond 10^9 or so.
        r = np.minimum(r, 1e4)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            log = (
                (1.0 - self.nu) * math.log(2.0)
                - scipy.special.gammaln(self.nu)
                + self.nu * np.log(r)
                + np.log(scipy.special.kve(self.nu, r))
                - r
            )
        # kve overflows only where r is so small that the kernel is 1 to working precision.
        return np.where(np.isfinite(log) | (r > 1.0), np.exp(np.minimum(log, 0.0)), 1.0)


@dataclass(frozen=True, eq=False)
class RationalQuadratic(_Radial):
    r"""Rational quadratic kernel.

    .. math:: k(x, y) = \left(1 + \frac{\|x - y\|^2}{2 \alpha h^2}\right)^{-\alpha}

    A mixture of Gaussian kernels of many bandwidths, hence characteristic on R^d; its heavy tail
    keeps distant points in touch. Use it when no single bandwidth fits, or when observations fall
    far from the training sample. Tends to the Gaussian kernel for large alpha.

    Examples
    --------
    >>> from kernelbayes import RationalQuadratic
    >>> RationalQuadratic(1.0, alpha=1.0)([0.0, 1.0], [0.0])
    array([[1.        ],
           [0.66666667]])
    """

    alpha: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "alpha", scalar(self.alpha, "alpha"))

    def _profile(self, E: Array) -> Array:
        xp = namespace(E)
        return xp.exp(-self.alpha * xp.log1p(E / -self.alpha))


@dataclass(frozen=True, eq=False)
class Periodic(_Radial):
    r"""Periodic kernel, for angles and seasons.

    .. math:: k(x, y) = \exp\left(-\sum_j \frac{2 \sin^2(\pi (x_j - y_j) / p_j)}{h_j^2}\right)

    with period p (one, or one per dimension): the Gaussian kernel of the chord between points of
    unit circles. Characteristic on the circle (torus). For angles in radians the period is 2 pi.

    Examples
    --------
    >>> from kernelbayes import Periodic
    >>> Periodic(1.0, period=24.0)([0.0, 24.0, 6.0], [0.0]).round(4)
    array([[1.    ],
           [1.    ],
           [0.3679]])
    """

    period: float | tuple[float, ...] = 2.0 * math.pi

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "period", positive(self.period, "period"))

    def _coordinates(self, X: Points) -> Array:
        xp = namespace(X)
        if isinstance(self.period, tuple) and len(self.period) != X.shape[1]:
            raise ValueError(f"{len(self.period)} periods for {X.shape[1]} dimensions")
        angle = X * (2.0 * math.pi / like(self.period, X))
        return xp.concat(
            [self._in_bandwidths(xp.cos(angle)), self._in_bandwidths(xp.sin(angle))], axis=1
        )

    def _profile(self, E: Array) -> Array:
        return exp_into(E)


@dataclass(frozen=True, eq=False)
class Laplace(_Bandwidth):
    r"""Laplace kernel.

    .. math:: k(x, y) = \exp\left(-\sum_j \frac{|x_j - y_j|}{h_j}\right)

    A product of exponentials of L1 distances. Characteristic on R^d. Its functions are continuous
    but rough; it resists outliers in single coordinates and does well on counts and images.

    Examples
    --------
    >>> from kernelbayes import Laplace
    >>> Laplace(1.0)([0.0, 1.0], [0.0])
    array([[1.        ],
           [0.36787944]])
    """

    @property
    def _metric(self) -> str:
        return "cityblock"

    def _cross(self, X: Points, Y: Points) -> Array:
        U, V = self._coordinates(X), self._coordinates(Y)
        if not isinstance(U, np.ndarray):
            xp = namespace(U, V)
            total = xp.abs(U[:, 0][:, None] - V[:, 0][None, :])
            for j in range(1, U.shape[1]):
                total = total + xp.abs(U[:, j][:, None] - V[:, j][None, :])
            return xp.exp(-total)
        G = np.empty((len(U), len(V)), dtype=np.result_type(U, V))
        for rows in row_blocks(len(U), len(V), TILE * TILE):
            distances = cdist(U[rows], V, "cityblock")
            np.exp(np.negative(distances, out=distances), out=G[rows], casting="same_kind")
        return G


# --- radial Gram matrices ------------------------------------------------------------------------


def radial_cross(U: Array, V: Array, profile: Any, smooth: bool = True) -> Array:
    """Return profile(-|u_i - v_j|^2 / 2) as an (n, m) matrix."""
    if not isinstance(U, np.ndarray):
        return profile(_exponents(U, V, smooth))
    G = np.empty((len(U), len(V)), dtype=np.result_type(U, V))
    exponents = _tile_exponents(U, V, smooth)
    with threads_for(2.0 * U.shape[1] * G.size), np.errstate(under="ignore"):
        for rows, columns in product(_tiles(len(U), len(V)), _tiles(len(V), len(U))):
            G[rows, columns] = profile(exponents(rows, columns))
    return G


def radial_self(U: Array, profile: Any, smooth: bool = True) -> Array:
    """Symmetric (n, n) matrix of profile(-|u_i - u_j|^2 / 2); only the lower half is computed."""
    if not isinstance(U, np.ndarray):
        return mirror(profile(_exponents(U, U, smooth)), namespace(U).ones_like(U[:, 0]))
    n = len(U)
    G = np.empty((n, n), dtype=U.dtype)
    exponents = _tile_exponents(U, U, smooth)
    with threads_for(U.shape[1] * G.size), np.errstate(under="ignore"):
        for rows in _tiles(n, n):
            for columns in _tiles(rows.start, n):
                tile = profile(exponents(rows, columns))
                G[rows, columns] = tile
                G[columns, rows] = tile.T
            G[rows, rows] = mirror(profile(exponents(rows, rows)), 1.0)
    return G


def _tiles(n: int, other: int) -> list[slice]:
    """Slices of TILE rows, longer where the other side is shorter than a tile."""
    return list(row_blocks(n, min(TILE, other), TILE * TILE))


def _expansion_is_safe(largest: float, eps: float) -> bool:
    # |u|^2/2 + |v|^2/2 - u.v has absolute error about eps * max |u|^2; inf and NaN are not safe.
    return largest * eps <= math.sqrt(eps)


def _tile_exponents(U: np.ndarray[Any, Any], V: np.ndarray[Any, Any], smooth: bool) -> Any:
    """Return a function of row and column slices that gives a tile of -|u_i - v_j|^2 / 2.

    A tile may be overwritten, and is by the next one: they share their memory.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        centre = V.mean(axis=0)
        A = U - centre
        B = A if U is V else V - centre
        a, b = (np.einsum("ij,ij->i", M, M) for M in (A, B))
        largest = float(max(a.max(), b.max()))
    if not (smooth and _expansion_is_safe(largest, epsilon(A))):

        def direct(rows: slice, columns: slice) -> Array:
            E = cdist(U[rows], V[columns], "sqeuclidean")
            E *= -0.5
            with np.errstate(over="ignore"):  # minus infinity is right: the kernel is zero there
                return E.astype(U.dtype, copy=False)

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


def _exponents(U: Array, V: Array, smooth: bool) -> Array:
    """Exponents (n, m) without work in place: for torch (differentiable) and the standard."""
    xp = namespace(U, V)
    centre = xp.mean(V, axis=0)
    A, B = U - centre, V - centre
    a, b = xp.sum(A * A, axis=1), xp.sum(B * B, axis=1)
    if smooth and _expansion_is_safe(max(to_float(xp.max(a)), to_float(xp.max(b))), epsilon(A)):
        E = A @ B.T - 0.5 * a[:, None] - 0.5 * b[None, :]
        return xp.clip(E, max=0.0)
    E = xp.zeros((U.shape[0], V.shape[0]), dtype=U.dtype, device=device(U))
    for j in range(U.shape[1]):
        E = E - 0.5 * (U[:, j][:, None] - V[:, j][None, :]) ** 2
    return E
