"""More kernels on vectors: of a distance, of the inner product, of histograms."""

import math
from dataclasses import dataclass

import numpy as np
import scipy.special
from scipy.spatial.distance import cdist

from kernelbayes.arrays import as_vectors, namespace, row_blocks
from kernelbayes.kernels.base import Kernel, answer
from kernelbayes.kernels.radial import TILE, Bandwidth, Radial, over_columns
from kernelbayes.kernels.stationary import Stationary
from kernelbayes.points import integer, number, positive
from kernelbayes.types import Array, Floats, Generator, Points, PointsLike

# Below it, E / alpha may overflow where E does not, and (E / alpha)^-alpha is far from 0.
SMALL_ALPHA = 0.1


@dataclass(frozen=True, eq=False)
class Matern(Radial, Stationary):
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
        object.__setattr__(self, "nu", positive(self.nu, "nu"))
        if self.nu > 60.0:  # Bessel functions overflow where the kernel is not yet 1
            raise ValueError(
                f"nu must be at most 60, got {self.nu:g}; the Gaussian kernel is then within 0.004"
            )

    is_smooth = answer(lambda self: self.nu > 1.0)

    def _mixing(self, q: int, rng: Generator) -> Floats:
        # Spectral density: multivariate t with 2 nu degrees of freedom.
        return 2.0 * self.nu / rng.chisquare(2.0 * self.nu, size=(q, 1))

    # The derivative nu / (nu - 1) grows without bound towards nu = 1.
    _has_kink = answer(lambda self: self.nu < 1.5)

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
        return self._bessel(r).astype(E.dtype, copy=False)

    def _bessel(self, r: Floats) -> Floats:
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
class RationalQuadratic(Radial, Stationary):
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

    is_smooth = True

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "alpha", positive(self.alpha, "alpha"))

    def _mixing(self, q: int, rng: Generator) -> Floats:
        return rng.gamma(self.alpha, 1.0 / self.alpha, size=(q, 1))  # of Gaussian kernels

    def _profile(self, E: Array) -> Array:
        xp = namespace(E)
        if self.alpha < SMALL_ALPHA:
            return xp.exp(-self.alpha * (xp.log(self.alpha - E) - math.log(self.alpha)))
        return xp.exp(-self.alpha * xp.log1p(E / -self.alpha))

    def slopes(self, E: Floats) -> tuple[Floats, Floats, Floats]:
        """Profile (1 - e / alpha)^-alpha and two derivatives."""
        base = 1.0 - E / self.alpha
        values = base**-self.alpha
        return values, values / base, (1.0 + 1.0 / self.alpha) * values / base / base


@dataclass(frozen=True, eq=False)
class Laplace(Bandwidth, Stationary):
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

    _metric = "cityblock"

    def _unit_spectrum(self, q: int, dim: int, rng: Generator) -> Floats:
        return rng.standard_cauchy((q, dim))

    def _cross(self, X: Points, Y: Points) -> Array:
        U, V = self._coordinates(X), self._coordinates(Y)
        if not isinstance(U, np.ndarray):
            xp = namespace(U, V)
            return xp.exp(-over_columns(U, V, lambda u, v: xp.abs(u - v)))
        G = np.empty((len(U), len(V)), dtype=np.result_type(U, V))
        for rows in row_blocks(len(U), len(V), TILE * TILE):
            distances = cdist(U[rows], V, "cityblock")
            np.exp(np.negative(distances, out=distances), out=G[rows], casting="same_kind")
        return G


@dataclass(frozen=True, eq=False)
class _InnerProduct(Kernel):
    """A polynomial of the inner product of vectors."""

    is_smooth = True  # a polynomial
    is_vector = True  # the inner product belongs to a distance

    def _polynomial(self, inner: Array) -> Array:
        return inner

    def _cross(self, X: Points, Y: Points) -> Array:
        with np.errstate(over="ignore", invalid="ignore"):
            return _sized(self._polynomial(X @ Y.T))

    def _diag(self, X: Points) -> Array:
        with np.errstate(over="ignore"):
            return _sized(self._polynomial(namespace(X).sum(X * X, axis=1)))


def _sized(values: Array) -> Array:
    """Return kernel values; a ValueError if they are too large for their precision."""
    xp = namespace(values)
    # By the extremes, which are NaN if one value is: no mask as large as the matrix.
    extremes = () if 0 in values.shape else (xp.min(values), xp.max(values))
    if not all(bool(xp.isfinite(value)) for value in extremes):
        raise ValueError(
            f"the points are so large that products of them exceed {values.dtype}; rescale them"
        )
    return values


@dataclass(frozen=True, eq=False)
class Linear(_InnerProduct):
    r"""Linear kernel.

    .. math:: k(x, y) = x^\top y

    Not characteristic: the embedding of a distribution is its mean. Use it to read out means, as
    the output kernel of a regression, or in sums with a Gaussian kernel for data with a trend.
    Its features are the points themselves.

    Examples
    --------
    >>> from kernelbayes import Linear
    >>> Linear()([[1.0, 2.0]], [[3.0, 4.0]])
    array([[11.]])
    """

    finite = True  # the features are the coordinates

    def _features(self, X: Points) -> Array:
        return X


@dataclass(frozen=True, eq=False)
class Polynomial(_InnerProduct):
    r"""Polynomial kernel.

    .. math:: k(x, y) = (x^\top y + c)^p

    with degree p (1, 2, ...) and offset c >= 0. Not characteristic: with c > 0 the embedding knows
    just the moments up to order p. Use it when those moments are all that matters.

    Examples
    --------
    >>> from kernelbayes import Polynomial
    >>> Polynomial(degree=2, offset=1.0)([[1.0, 2.0]], [[3.0, 4.0]])
    array([[144.]])
    """

    degree: int = 2
    offset: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "degree", integer(self.degree, "degree"))
        object.__setattr__(self, "offset", number(self.offset, "offset"))
        if not 0.0 <= self.offset < float("inf"):
            raise ValueError(f"offset must be finite and not negative, got {self.offset!r}")

    def _polynomial(self, inner: Array) -> Array:
        return (inner + self.offset) ** self.degree


@dataclass(frozen=True, eq=False)
class HistogramIntersection(Kernel):
    r"""Histogram intersection kernel.

    .. math:: k(x, y) = \sum_j \min(x_j, y_j), \quad x_j, y_j \ge 0

    For counts, histograms and bags of words; the entries must not be negative. Positive definite,
    since min(a, b) is the overlap of the intervals [0, a] and [0, b]. It tells
    apart the distributions of every single bin, but not how bins depend on each other.

    Examples
    --------
    >>> from kernelbayes import HistogramIntersection
    >>> HistogramIntersection()([[3.0, 1.0]], [[2.0, 5.0]])
    array([[3.]])
    """

    def _points(self, X: PointsLike, name: str) -> Points:
        X = as_vectors(X, name)
        if bool(namespace(X).any(X < 0)):
            raise ValueError(f"{name} has negative entries; HistogramIntersection needs counts")
        return X

    def _cross(self, X: Points, Y: Points) -> Array:
        return intersection(X, Y)

    def _diag(self, X: Points) -> Array:
        return namespace(X).sum(X, axis=1)


def intersection(X: Array, Y: Array) -> Array:
    """Sum over columns of min(x_ij, y_kj), shape (n, m); one extra (n, m) temporary."""
    return over_columns(X, Y, namespace(X, Y).minimum)
