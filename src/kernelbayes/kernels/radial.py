"""Kernels of a distance between vectors: Gaussian, Laplace, Matern, rational quadratic.

All but Laplace are *radial*: a profile of the squared Euclidean distance, see
:mod:`kernelbayes.kernels.tiles` for how their Gram matrices are computed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import scipy.special
from scipy.spatial.distance import cdist

from kernelbayes.arrays import (
    Array,
    Floats,
    exp_into,
    namespace,
    row_blocks,
)
from kernelbayes.kernels.bandwidth import Bandwidth
from kernelbayes.kernels.base import scalar
from kernelbayes.kernels.tiles import TILE, radial_cross, radial_self
from kernelbayes.points import Points


@dataclass(frozen=True, eq=False)
class Stationary(Bandwidth):
    """A function of x - y on R^d, and so the Fourier transform of a distribution (Bochner)."""

    is_stationary = True
    is_vector = True  # the kernel is a function of a distance

    def spectrum(
        self, q: int, dim: int, rng: np.random.Generator, normal: Floats | None = None
    ) -> Floats:
        """Draw q frequencies (q, dim) from the spectral distribution."""
        bandwidth = np.asarray(self.bandwidth)
        if bandwidth.ndim and len(bandwidth) != dim:
            raise ValueError(f"the kernel has {len(bandwidth)} bandwidths, but dim is {dim}")
        return np.asarray(self._unit_spectrum(q, dim, rng, normal) / bandwidth)

    def _unit_spectrum(
        self, q: int, dim: int, rng: np.random.Generator, normal: Floats | None
    ) -> Floats:
        """Frequencies for the bandwidth 1: the Gaussian kernel's, times random lengths."""
        W = rng.normal(size=(q, dim)) if normal is None else normal
        return W * np.sqrt(self._mixing(q, rng))

    def _mixing(self, q: int, rng: np.random.Generator) -> Floats | float:  # noqa: ARG002
        """Squared lengths (q, 1) relative to Gaussian frequencies: the kernel as a mixture."""
        return 1.0

    def _paired(self, X: Points, Y: Points) -> Array:
        D = X - Y
        return self._cross(D, namespace(D).zeros_like(D[:1, ...]))[:, 0]


@dataclass(frozen=True, eq=False)
class Radial(Bandwidth):
    """A profile of ``e = -|u - v|^2 / 2``, u and v coordinates in units of the bandwidth."""

    def _profile(self, E: Array) -> Array:
        """Kernel values for exponents E <= 0, in their memory or not; the profile at 0 is 1."""
        return exp_into(E)

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
class Gaussian(Radial, Stationary):
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

    is_smooth = True

    @property
    def gaussian_bandwidth(self) -> float | tuple[float, ...]:
        """The bandwidth: this is the Gaussian kernel."""
        return self.bandwidth


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
        object.__setattr__(self, "nu", scalar(self.nu, "nu"))
        if self.nu > 60.0:  # Bessel functions overflow where the kernel is not yet 1
            raise ValueError(
                f"nu must be at most 60, got {self.nu:g}; the Gaussian kernel is then within 0.004"
            )

    @property
    def is_smooth(self) -> bool:
        """Whether the kernel is differentiable."""
        return self.nu > 1.0

    def _mixing(self, q: int, rng: np.random.Generator) -> Floats:
        # Spectral density: multivariate t with 2 nu degrees of freedom.
        return 2.0 * self.nu / rng.chisquare(2.0 * self.nu, size=(q, 1))

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
        object.__setattr__(self, "alpha", scalar(self.alpha, "alpha"))

    def _mixing(self, q: int, rng: np.random.Generator) -> Floats:
        return rng.gamma(self.alpha, 1.0 / self.alpha, size=(q, 1))  # of Gaussian kernels

    def _profile(self, E: Array) -> Array:
        xp = namespace(E)
        return xp.exp(-self.alpha * xp.log1p(E / -self.alpha))


@dataclass(frozen=True, eq=False)
class Laplace(Stationary):
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

    def _unit_spectrum(
        self, q: int, dim: int, rng: np.random.Generator, normal: Floats | None
    ) -> Floats:
        if normal is not None:
            raise ValueError("orthogonal frequencies need a rotation-invariant kernel, not Laplace")
        return rng.standard_cauchy((q, dim))

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
