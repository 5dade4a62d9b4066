"""Kernels made of kernels: sums, products, positive multiples and products over parts.

Each node holds its operands as they were given, so nesting in any depth means what it says:
``(a + b) * c`` is a product whose left operand is a sum. A composite of kernels with finite
features has finite features too: sums concatenate them, products multiply them pairwise.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

from array_api_compat import device

from kernelbayes.arrays import Array, add_into, multiply_into, namespace
from kernelbayes.kernels.base import Kernel, scalar
from kernelbayes.points import Points, as_array, count

Key = Any  # str, int, slice, range, or a tuple of names or numbers


@dataclass(frozen=True, eq=False)
class _Pair(Kernel):
    left: Kernel
    right: Kernel

    @property
    def finite(self) -> bool:
        return self.left.finite and self.right.finite

    @property
    def by_name(self) -> bool:
        return self.left.by_name or self.right.by_name

    def _points(self, X: Any, name: str) -> Points:
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
class Scaled(Kernel):
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
        object.__setattr__(self, "factor", scalar(self.factor, "factor of a kernel"))

    @property
    def finite(self) -> bool:
        """Whether the scaled kernel has finite features."""
        return self.kernel.finite

    @property
    def by_name(self) -> bool:
        """Whether the scaled kernel reads columns by name."""
        return self.kernel.by_name

    def _points(self, X: Any, name: str) -> Points:
        return self.kernel.points(X, name)

    def _cross(self, X: Points, Y: Points) -> Array:
        return self._scale(self.kernel(X, Y))

    def _self(self, X: Points) -> Array:
        return self._scale(self.kernel(X))

    def _diag(self, X: Points) -> Array:
        return self._scale(self.kernel.diag(X))

    def _scale(self, G: Array) -> Array:
        return multiply_into(G, self.factor)

    def _features(self, X: Points) -> Array:
        return self.kernel.features(X) * self.factor**0.5


@dataclass(frozen=True, eq=False, init=False)
class Parts(Kernel):
    r"""Product over the parts of a joint variable.

    .. math:: k(x, y) = \prod_j k_j(x_j, y_j)

    Parameters
    ----------
    parts : mapping from a part to its kernel, or sequence of (part, kernel) pairs
        A part is a column name (of a frame or of a mapping of arrays), a column number, a
        ``range`` or ``slice`` of columns, or a tuple of names or numbers. (Python 3.11 cannot hash
        a slice: write a range, or give pairs.) Columns that no part names are ignored.

    Characteristic on the product space when every k_j is (for continuous bounded kernels that
    vanish at infinity). Use it for mixed columns, for (state, control) pairs and for joint
    distributions.

    Examples
    --------
    >>> from kernelbayes import Delta, Gaussian, Parts
    >>> k = Parts({"age": Gaussian(10.0), "sex": Delta()})
    >>> k({"age": [30.0, 40.0], "sex": ["f", "m"]})
    array([[1., 0.],
           [0., 1.]])
    >>> Parts({0: Gaussian(1.0), range(1, 3): Gaussian(2.0)})([[0.0, 0.0, 0.0]])
    array([[1.]])
    """

    parts: tuple[tuple[Key, Kernel], ...]

    def __init__(self, parts: Mapping[Key, Kernel] | Sequence[tuple[Key, Kernel]]) -> None:
        pairs = tuple(parts.items() if isinstance(parts, Mapping) else parts)
        if not pairs:
            raise ValueError("Parts needs at least one part")
        for key, kernel in pairs:
            if not isinstance(key, str | int | slice | range | tuple) or key == ():
                raise TypeError(
                    f"a part is a name, number, range, slice or tuple of these, got {key!r}"
                )
            if not isinstance(kernel, Kernel):
                raise TypeError(f"part {key!r} needs a kernel, got {type(kernel).__name__}")
        object.__setattr__(self, "parts", pairs)

    def __hash__(self) -> int:
        return hash((Parts, tuple((repr(key), kernel) for key, kernel in self.parts)))

    @property
    def finite(self) -> bool:
        """Whether every part has finite features."""
        return all(kernel.finite for _, kernel in self.parts)

    @property
    def by_name(self) -> bool:
        """Whether any part is named."""
        return any(
            isinstance(name, str)
            for key, _ in self.parts
            for name in (key if isinstance(key, tuple) else (key,))
        )

    def part(self, X: Points, key: Key) -> Points:
        """Return the part of X that ``key`` names, unchecked."""
        if isinstance(X, Mapping):
            names = key if isinstance(key, tuple) else (key,)
            missing = [name for name in names if name not in X]
            if missing:
                raise ValueError(f"no column {missing[0]!r}; X has {', '.join(map(repr, X))}")
            return {name: X[name] for name in names} if isinstance(key, tuple) else X[key]
        if isinstance(key, int):
            key = (key,)
        d = X.shape[1]
        try:
            columns = list(range(d))[key] if isinstance(key, slice) else [range(d)[i] for i in key]
        except IndexError:
            raise ValueError(f"part {key!r} is outside the {d} columns of X") from None
        xp = namespace(X)
        return xp.take(X, xp.asarray(columns, device=device(X)), axis=1)

    def _points(self, X: Any, name: str) -> Points:
        if isinstance(X, Mapping):
            checked: dict[Any, Points] = {}
            for key, kernel in self.parts:
                points = kernel.points(self.part(X, key), f"{name}[{key!r}]")
                if isinstance(key, tuple):
                    checked |= {part: as_array(X[part], f"{name}[{part!r}]") for part in key}
                else:
                    checked[key] = points
            sizes = {part: count(points) for part, points in checked.items()}
            if len(set(sizes.values())) > 1:
                raise ValueError(f"the parts of {name} must be aligned, got lengths {sizes}")
            return checked
        if self.by_name:
            raise TypeError(
                f"{name} must be a frame or a mapping with columns {list(dict(self.parts))}, "
                f"got {type(X).__name__}"
            )
        X = as_array(X, name)
        if X.ndim != 2:
            raise ValueError(f"{name} must have shape (n, d), got {tuple(X.shape)}")
        for key, kernel in self.parts:
            kernel.points(self.part(X, key), f"{name}[{key!r}]")
        return X

    def _cross(self, X: Points, Y: Points) -> Array:
        return self._product(
            kernel(self.part(X, key), self.part(Y, key)) for key, kernel in self.parts
        )

    def _self(self, X: Points) -> Array:
        return self._product(kernel(self.part(X, key)) for key, kernel in self.parts)

    def _diag(self, X: Points) -> Array:
        return self._product(kernel.diag(self.part(X, key)) for key, kernel in self.parts)

    def _product(self, factors: Any) -> Array:
        return reduce(multiply_into, factors)

    def _features(self, X: Points) -> Array:
        return reduce(tensor_features, (k.features(self.part(X, key)) for key, k in self.parts))


def tensor_features(a: Array, b: Array) -> Array:
    """Row-wise Kronecker product (n, r s) of features (n, r) and (n, s)."""
    xp = namespace(a, b)
    return xp.reshape(a[:, :, None] * b[:, None, :], (a.shape[0], -1))
