"""Kernels made of kernels: sums, products and positive multiples.

Each node holds its operands as they were given, so nesting in any depth means what it says:
``(a + b) * c`` is a product whose left operand is a sum. A composite of kernels with finite
features has finite features too: sums concatenate them, products multiply them pairwise.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable, Mapping
from dataclasses import dataclass

from kernelbayes.arrays import Array, add_into, multiply_into, namespace
from kernelbayes.kernels.base import Kernel, scalar
from kernelbayes.points import Points, PointsLike, as_array


@dataclass(frozen=True, eq=False)
class Composite(Kernel):
    """A kernel made of kernels: it is what all of them are."""

    @property
    @abstractmethod
    def children(self) -> tuple[Kernel, ...]:
        """The kernels it is made of."""

    @property
    def finite(self) -> bool:
        """Whether all kernels in it have finite features."""
        return all(kernel.finite for kernel in self.children)

    @property
    def by_name(self) -> bool:
        """Whether any kernel in it reads columns by name."""
        return any(kernel.by_name for kernel in self.children)

    @property
    def takes_rows(self) -> bool:
        """Whether a point is a row of numbers to all kernels in it."""
        return all(kernel.takes_rows for kernel in self.children)

    @property
    def is_vector(self) -> bool:
        """Whether all kernels in it are kernels on vectors."""
        return all(kernel.is_vector for kernel in self.children)

    @property
    def is_smooth(self) -> bool:
        """Whether all kernels in it are differentiable."""
        return all(kernel.is_smooth for kernel in self.children)

    @property
    def exact(self) -> Kernel:
        """The same of the kernels that those in it approximate."""
        return self._with(lambda kernel: kernel.exact)


@dataclass(frozen=True, eq=False)
class SameSpace(Composite):
    """A kernel on the space of another one, its child, which answers for the space."""

    @property
    def is_curved(self) -> bool:
        """Whether the kernel's space is."""
        return self.children[0].is_curved

    @property
    def is_categorical(self) -> bool:
        """Whether the kernel's points are categories."""
        return self.children[0].is_categorical

    @property
    def has_density(self) -> bool:
        """Whether the kernel's points may be smoothed."""
        return self.children[0].has_density

    def mean_of(self, points: Points, weights: Array) -> Points:
        """Mean in the kernel's space."""
        return self.children[0].mean_of(points, weights)

    def split(self, points: Points) -> list[tuple[Hashable, Kernel, Points]]:
        """Parts of the space."""
        return self.children[0].split(points)


@dataclass(frozen=True, eq=False)
class _Pair(Composite):
    left: Kernel
    right: Kernel

    @property
    def children(self) -> tuple[Kernel, ...]:
        return self.left, self.right

    def _points(self, X: PointsLike, name: str) -> Points:
        left, right = self.left.points(X, name), self.right.points(X, name)
        if isinstance(left, Mapping) or isinstance(right, Mapping):
            # Each side picks and converts the columns it reads.
            return {part: as_array(value, f"{name}[{part!r}]") for part, value in X.items()}
        return left

    def _cross(self, X: Points, Y: Points) -> Array:
        return self._combine(self.left(X, Y), self.right(X, Y))

    def _self(self, X: Points) -> Array:
        return self._combine(self.left(X), self.right(X))

    def _diag(self, X: Points) -> Array:
        return self._combine(self.left.diag(X), self.right.diag(X))

    def _paired(self, X: Points, Y: Points) -> Array:
        return self._combine(self.left.paired(X, Y), self.right.paired(X, Y))

    @abstractmethod
    def _combine(self, a: Array, b: Array) -> Array:
        """Elementwise sum or product; may reuse the memory of ``a``."""


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

    def _features(self, X: Points) -> Array:
        a, b = self.left.features(X), self.right.features(X)
        return namespace(a, b).concat([a, b], axis=1)


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

    def _combine(self, a: Array, b: Array) -> Array:
        return multiply_into(a, b)

    def _features(self, X: Points) -> Array:
        return tensor_features(self.left.features(X), self.right.features(X))


@dataclass(frozen=True, eq=False)
class Scaled(SameSpace):
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

    @property
    def children(self) -> tuple[Kernel, ...]:
        """The other kernel."""
        return (self.kernel,)

    def __post_init__(self) -> None:
        object.__setattr__(self, "factor", scalar(self.factor, "factor of a kernel"))

    def preimage_of(self, points: Points, weights: Array) -> Points | None:
        """Pre-image under the kernel: a factor changes none of the distances' order."""
        return self.kernel.preimage_of(points, weights)

    def _points(self, X: PointsLike, name: str) -> Points:
        return self.kernel.points(X, name)

    def _cross(self, X: Points, Y: Points) -> Array:
        return self._scale(self.kernel(X, Y))

    def _self(self, X: Points) -> Array:
        return self._scale(self.kernel(X))

    def _diag(self, X: Points) -> Array:
        return self._scale(self.kernel.diag(X))

    def _paired(self, X: Points, Y: Points) -> Array:
        return self._scale(self.kernel.paired(X, Y))

    def _scale(self, G: Array) -> Array:
        return multiply_into(G, self.factor)

    def _features(self, X: Points) -> Array:
        return self.kernel.features(X) * self.factor**0.5


def tensor_features(a: Array, b: Array) -> Array:
    """Row-wise Kronecker product (n, r s) of features (n, r) and (n, s)."""
    xp = namespace(a, b)
    return xp.reshape(a[:, :, None] * b[:, None, :], (a.shape[0], -1))
