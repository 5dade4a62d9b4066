"""Kernels made of kernels: sums, products, positive multiples, and of transformed coordinates.

Each node holds its operands as they were given, so nesting in any depth means what it says:
``(a + b) * c`` is a product whose left operand is a sum. A composite of kernels with finite
features has finite features too: sums concatenate them, products multiply them pairwise.
"""

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any, Literal, Self, get_args

import numpy as np

from kernelbayes.arrays import add_into, as_array, as_doubles, like, multiply_into, namespace
from kernelbayes.kernels.base import Kernel, answer, as_kernel
from kernelbayes.kernels.radial import Gaussian
from kernelbayes.points import option, positive, positive_each
from kernelbayes.types import Array, Points, PointsLike

Warp = Literal["asinh", "log", "norm"]
# Sizes below this share of the unit count as one: the logarithm stays finite at zero.
SMALLEST = 0.01


@dataclass(frozen=True, eq=False)
class Composite(Kernel):
    """A kernel made of kernels: it has a property if all of them have it."""

    @cached_property
    def children(self) -> tuple[Kernel, ...]:
        """The kernels it is made of."""
        return tuple(value for value in self._parameters().values() if isinstance(value, Kernel))

    finite = answer(lambda self: all(kernel.finite for kernel in self.children))
    by_name = answer(lambda self: any(kernel.by_name for kernel in self.children))
    takes_rows = answer(lambda self: all(kernel.takes_rows for kernel in self.children))
    is_vector = answer(lambda self: all(kernel.is_vector for kernel in self.children))
    is_smooth = answer(lambda self: all(kernel.is_smooth for kernel in self.children))
    exact = answer(lambda self: self._with(lambda kernel: kernel.exact))


@dataclass(frozen=True, eq=False)
class SameSpace(Composite):
    """A kernel on the same space as its child, which answers questions about that space."""

    is_curved = answer(lambda self: self.children[0].is_curved)
    is_categorical = answer(lambda self: self.children[0].is_categorical)
    has_density = answer(lambda self: self.children[0].has_density)

    def mean_of(self, points: Points, weights: Array) -> Points:
        """Mean in the kernel's space."""
        return self.children[0].mean_of(points, weights)

    def periods(self, d: int) -> tuple[float | None, ...]:
        """Period of each of d coordinates of the space; None where there is none."""
        return self.children[0].periods(d)

    def split(self, points: Points) -> list[tuple[Hashable, Kernel, Points]]:
        """Parts of the space."""
        return self.children[0].split(points)


@dataclass(frozen=True, eq=False)
class Combined(Composite):
    """A composite whose values combine those of its children, each on its share of a point."""

    def _shares(self, X: Points) -> list[Points]:
        return [X] * len(self.children)

    def _combine(self, a: Array, b: Array) -> Array:
        return multiply_into(a, b)  # may reuse the memory of a

    def _values(self, values: Iterable[Array]) -> Array:
        return reduce(self._combine, values)

    def _join(self, features: Iterable[Array]) -> Array:
        return reduce(tensor_features, features)

    def _each(self, *samples: Points) -> Iterable[tuple[Any, ...]]:
        """Every child with its share of each sample."""
        return zip(self.children, *map(self._shares, samples), strict=True)

    def _cross(self, X: Points, Y: Points) -> Array:
        return self._values(kernel(x, y) for kernel, x, y in self._each(X, Y))

    def _self(self, X: Points) -> Array:
        return self._values(kernel(x) for kernel, x in self._each(X))

    def _diag(self, X: Points) -> Array:
        return self._values(kernel.diag(x) for kernel, x in self._each(X))

    def _paired(self, X: Points, Y: Points) -> Array:
        return self._values(kernel.paired(x, y) for kernel, x, y in self._each(X, Y))

    def _features(self, X: Points) -> Array:
        return self._join(kernel.features(x) for kernel, x in self._each(X))


@dataclass(frozen=True, eq=False)
class _Pair(Combined):
    left: Kernel
    right: Kernel

    def __post_init__(self) -> None:
        as_kernel(self.left, "the left kernel")
        as_kernel(self.right, "the right kernel")

    def _points(self, X: PointsLike, name: str) -> Points:
        left, right = self.left.points(X, name), self.right.points(X, name)
        if isinstance(left, Mapping) or isinstance(right, Mapping):
            # Each side picks and converts the columns it reads.
            return {part: as_array(value, f"{name}[{part!r}]") for part, value in X.items()}
        return left


@dataclass(frozen=True, eq=False)
class Sum(_Pair):
    r"""Sum of two kernels, ``k1 + k2``.

    .. math:: k(x, y) = k_1(x, y) + k_2(x, y)

    Its features are those of both, side by side. Characteristic where either summand is. Use it
    when a smooth trend and local detail are both present, e.g. ``Linear() + Gaussian(1.0)``.

    Examples
    --------
    >>> from kernelbayes import Gaussian, Linear
    >>> (Linear() + Gaussian(1.0))([[1.0], [2.0]], [[1.0]])
    array([[2.        ],
           [2.60653066]])
    """

    def _combine(self, a: Array, b: Array) -> Array:
        return add_into(a, b)

    def _join(self, features: Iterable[Array]) -> Array:
        both = list(features)
        return namespace(*both).concat(both, axis=1)


@dataclass(frozen=True, eq=False)
class Product(_Pair):
    r"""Product of two kernels on the same points, ``k1 * k2``.

    .. math:: k(x, y) = k_1(x, y) \, k_2(x, y)

    Use it where two points should count as similar only if both kernels say so, e.g. a locally
    periodic signal: ``Gaussian(5.0) * Periodic(1.0, 24.0)``. For different kernels on different
    coordinates use :class:`Parts`.

    Examples
    --------
    >>> from kernelbayes import Gaussian, Linear
    >>> (Linear() * Gaussian(1.0))([[1.0], [2.0]], [[1.0]])
    array([[1.        ],
           [1.21306132]])
    """


@dataclass(frozen=True, eq=False)
class Scaled(SameSpace, Combined):
    r"""Positive multiple of a kernel, ``c * k``.

    .. math:: k(x, y) = c \, k_1(x, y), \quad c > 0

    Examples
    --------
    >>> from kernelbayes import Linear
    >>> (3.0 * Linear())([1.0, 2.0], [1.0])
    array([[3.],
           [6.]])
    """

    factor: float
    kernel: Kernel

    def __post_init__(self) -> None:
        as_kernel(self.kernel)
        object.__setattr__(self, "factor", positive(self.factor, "factor of a kernel"))

    def preimage_of(self, points: Points, weights: Array) -> Points | None:
        """Pre-image under the kernel: a factor changes none of the distances' order."""
        return self.kernel.preimage_of(points, weights)

    def _points(self, X: PointsLike, name: str) -> Points:
        return self.kernel.points(X, name)

    def _values(self, values: Iterable[Array]) -> Array:
        return multiply_into(super()._values(values), self.factor)

    def _join(self, features: Iterable[Array]) -> Array:
        return super()._join(features) * self.factor**0.5


def tensor_features(a: Array, b: Array) -> Array:
    """Row-wise Kronecker product (n, r s) of features (n, r) and (n, s)."""
    xp = namespace(a, b)
    return xp.reshape(a[:, :, None] * b[:, None, :], (a.shape[0], -1))


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
        X = Gaussian(1.0).points(X)
        sizes = np.abs(as_doubles(X))
        units = [float(np.median(s[s > 0])) if np.any(s > 0) else 1.0 for s in sizes.T]
        warped = cls(Gaussian(1.0), transform, tuple(units))._warped(X)
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
