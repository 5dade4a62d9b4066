"""Kernels of transformed coordinates: for heavy tails and for sizes that matter by their ratio."""

from dataclasses import dataclass
from typing import Literal, Self, get_args

import numpy as np

from kernelbayes.arrays import as_floats, like, namespace, to_numpy
from kernelbayes.kernels.algebra import Combined
from kernelbayes.kernels.base import Kernel, as_kernel
from kernelbayes.kernels.radial import Gaussian
from kernelbayes.points import option, positive_each
from kernelbayes.types import Array, Points, PointsLike

Warp = Literal["asinh", "log", "norm"]
# Sizes below this share of the unit count as one: the logarithm stays finite at zero.
SMALLEST = 0.01


@dataclass(frozen=True, eq=False)
class Warped(Combined):
    r"""Kernel of transformed coordinates.

    .. math:: k(x, y) = k_1(f(x), f(y)), \quad f(x)_j = \mathrm{asinh}(x_j / u_j)
              \;\text{ or }\; \log \max(|x_j| / u_j, 0.01)

    Parameters
    ----------
    kernel : Kernel
        k_1, on the transformed coordinates.
    transform : {"asinh", "log", "norm"}
        "asinh" is linear near zero and a logarithm with a sign in the tails: for heavy tails.
        "log" keeps the size and drops the sign: for variances, intensities and prices.
        "norm" is one number, the logarithm of the root mean square of all :math:`x_j / u_j` (0.01
        at least): for noise whose size is what matters.
    unit : float or one per dimension
        u_j, the size that counts as one.

    All transforms have their centre at zero: use them where zero means something. "asinh" is
    one-to-one, so the kernel is characteristic where k_1 is; the others cannot tell x from -x.

    Examples
    --------
    >>> from kernelbayes import Gaussian, Warped
    >>> Warped(Gaussian(1.0), "log")([[1.0], [-1.0], [10.0], [100.0]], [[10.0]]).round(3)
    array([[0.071],
           [0.071],
           [1.   ],
           [0.071]])
    """

    kernel: Kernel
    transform: Warp = "asinh"
    unit: float | tuple[float, ...] = 1.0

    finite = False  # features of the transformed coordinates are not passed on
    is_smooth = False  # "log" is flat near zero

    def __post_init__(self) -> None:
        as_kernel(self.kernel)
        option(self.transform, "transform", get_args(Warp))
        object.__setattr__(self, "unit", positive_each(self.unit, "unit"))

    @classmethod
    def median(cls, X: PointsLike, transform: Warp = "asinh", scale: float = 1.0) -> Self:
        """Gaussian kernel after the transform, unit and bandwidth from medians.

        The unit of a coordinate is its median absolute value (of those that are not zero), the
        bandwidth ``scale`` times the median distance of the transformed points.
        """
        sizes = np.abs(to_numpy(as_floats(X, "X")))
        sizes = sizes.reshape(len(sizes), -1)
        units = [float(np.median(s[s > 0])) if np.any(s > 0) else 1.0 for s in sizes.T]
        blank = cls(Gaussian(1.0), transform, tuple(units))
        warped = blank._warped(blank.points(X))
        return cls(Gaussian.median(warped, scale), transform, tuple(units))

    @property
    def label(self) -> str:
        """Name and transform."""
        return f"{type(self).__name__} {self.transform}"

    def _warped(self, X: Points) -> Array:
        xp = namespace(X)
        if isinstance(self.unit, tuple) and X.shape[1] != len(self.unit):
            raise ValueError(
                f"Warped has {len(self.unit)} units, but the points have {X.shape[1]} dimensions"
            )
        U = X / (like(self.unit, X) if isinstance(self.unit, tuple) else self.unit)
        if self.transform == "asinh":
            return xp.asinh(U)
        sizes = xp.clip(xp.abs(U), min=SMALLEST)
        if self.transform == "norm":
            most = xp.max(sizes, axis=1, keepdims=True)  # so that no square overflows
            square = xp.mean((U / most) ** 2, axis=1, keepdims=True)
            # At zero a root has no derivative; so small a value is SMALLEST below in any case.
            sizes = most * xp.sqrt(xp.clip(square, min=xp.finfo(U.dtype).smallest_normal))
        return xp.log(xp.clip(sizes, min=SMALLEST))

    def _shares(self, X: Points) -> list[Points]:
        return [self._warped(X)]
