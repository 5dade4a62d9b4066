"""What a kernel is: an immutable value with ``k(X, Y)`` and ``k.diag(X)``.

A kernel ``k`` is a positive semi-definite function of two points, the inner product of their
features: ``k(x, y) = <phi(x), phi(y)>``. It knows nothing of inference. To write your own, wrap a
function in :class:`~kernelbayes.Custom`, or subclass :class:`Kernel` as a frozen dataclass, give
it ``_cross`` and ``_diag``, and run :func:`kernelbayes.laws.check_kernel` on it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields
from numbers import Number
from typing import TYPE_CHECKING, Any

import numpy as np
from array_api_compat import device

from kernelbayes.arrays import Array, namespace, row_blocks, to_numpy
from kernelbayes.points import Points, as_vectors, frame_columns, is_frame

if TYPE_CHECKING:
    from kernelbayes.kernels.algebra import Product, Scaled, Sum


@dataclass(frozen=True, eq=False)
class Kernel(ABC):
    """A positive semi-definite kernel. Immutable, comparable with ==, callable.

    ``k(X, Y)`` is the (n, m) matrix of ``k(x_i, y_j)``; ``k(X)`` is ``k(X, X)``, exactly
    symmetric with exactly ``k.diag(X)`` on its diagonal. ``k1 + k2``, ``k1 * k2`` and ``c * k``
    are kernels.
    """

    @property
    def finite(self) -> bool:
        """Whether the kernel has finitely many features, given by ``features``."""
        return False

    @property
    def by_name(self) -> bool:
        """Whether the kernel reads columns by name (a frame is then kept as named columns)."""
        return False

    def __call__(self, X: Any, Y: Any = None) -> Array:
        """Gram matrix (n, m) of ``k(x_i, y_j)``; Y defaults to X."""
        points = self.points(X, "X")
        if Y is None or Y is X:
            return self._self(points)
        other = self.points(Y, "Y")
        self.check_pair(points, other)
        return self._cross(points, other)

    def diag(self, X: Any) -> Array:
        """Return the values ``k(x_i, x_i)``, shape (n,)."""
        return self._diag(self.points(X, "X"))

    def features(self, X: Any) -> Array:
        """Feature matrix (n, r) with ``k(X, Y) == features(X) @ features(Y).T``."""
        if not self.finite:
            raise TypeError(
                f"{self!r} has no finite features; approximate it with nystrom(kernel, X, rank), "
                "fourier(kernel, dim, rank) or pivoted_cholesky(kernel, X, rank)"
            )
        return self._features(self.points(X, "X"))

    def points(self, X: Any, name: str = "X") -> Points:
        """Check X and bring it into the form this kernel computes with; idempotent."""
        if is_frame(X) and self.by_name:
            X = frame_columns(X)
        return self._points(X, name)

    def check_pair(self, X: Points, Y: Points) -> None:
        """Raise ValueError unless X and Y are points of one space, TypeError if of two kinds."""
        if isinstance(X, Mapping):
            if isinstance(Y, Mapping) and set(X) <= set(Y):
                return
            raise ValueError(f"X has parts {sorted(X)}; Y must have the same parts")
        if isinstance(Y, Mapping):
            raise ValueError(f"Y has parts {sorted(Y)}; X must have the same parts")
        if isinstance(X, list) or isinstance(Y, list):
            return
        namespace(X, Y)
        if X.shape[1:] != Y.shape[1:]:
            raise ValueError(
                f"points of one space are needed, got points of shapes {tuple(X.shape[1:])} and "
                f"{tuple(Y.shape[1:])}; do they have the same columns?"
            )

    def _points(self, X: Any, name: str) -> Points:
        return as_vectors(X, name)

    @abstractmethod
    def _cross(self, X: Points, Y: Points) -> Array:
        """Gram matrix between two sets of checked points."""

    @abstractmethod
    def _diag(self, X: Points) -> Array:
        """Diagonal for checked points."""

    def _self(self, X: Points) -> Array:
        return mirror(self._cross(X, X), self._diag(X))

    def _features(self, X: Points) -> Array:  # noqa: ARG002 (finite kernels override it)
        raise TypeError(f"{type(self).__name__} has no finite features")

    def __add__(self, other: Kernel) -> Sum:
        from kernelbayes.kernels.algebra import Sum

        return Sum(self, other) if isinstance(other, Kernel) else NotImplemented

    def __mul__(self, other: Kernel | float) -> Product | Scaled:
        from kernelbayes.kernels.algebra import Product, Scaled

        if isinstance(other, Kernel):
            return Product(self, other)
        if isinstance(other, int | float | np.integer | np.floating):
            return Scaled(float(other), self)
        return NotImplemented

    def __rmul__(self, other: float) -> Product | Scaled:
        return self * other

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return NotImplemented
        return all(
            same_value(getattr(self, f.name), getattr(other, f.name))
            for f in fields(self)
            if f.compare
        )

    def __hash__(self) -> int:
        values = (getattr(self, f.name) for f in fields(self) if f.compare)
        kinds = (v for v in values if isinstance(v, Number | str | tuple | Kernel))
        return hash((type(self), *kinds))


def same_value(a: Any, b: Any) -> bool:
    """Equality that also understands arrays, and mappings and sequences of them."""
    if a is b:
        return True
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        return a.keys() == b.keys() and all(same_value(a[key], b[key]) for key in a)
    if isinstance(a, tuple | list) and isinstance(b, tuple | list):
        return len(a) == len(b) and all(map(same_value, a, b))
    if hasattr(a, "shape") and hasattr(b, "shape"):
        return type(a) is type(b) and np.array_equal(to_numpy(a), to_numpy(b))
    return bool(a == b)


def positive(value: Any, name: str) -> float | tuple[float, ...]:
    """Positive finite number, or one per dimension, as plain floats."""
    numbers = np.asarray(to_numpy(value), dtype=float)
    if numbers.ndim > 1 or numbers.size == 0:
        raise ValueError(f"{name} must be a number or one per dimension, got {value!r}")
    if not np.all(np.isfinite(numbers) & (numbers > 0)):
        raise ValueError(f"{name} must be positive and finite, got {value!r}")
    return float(numbers) if numbers.ndim == 0 else tuple(map(float, numbers))


def scalar(value: Any, name: str) -> float:
    """Positive finite number as a float."""
    number = positive(value, name)
    if isinstance(number, tuple):
        raise ValueError(f"{name} must be one number, got {value!r}")
    return number


def mirror(G: Array, diag: Array) -> Array:
    """Copy the lower triangle of G onto the upper one and put ``diag`` on the diagonal.

    In place for NumPy, by blocks so that the transposed reads stay in cache.
    """
    n = G.shape[0]
    if isinstance(G, np.ndarray):
        for rows in row_blocks(n, 1, entries=256):
            lower = np.tril(G[rows, rows], -1)
            np.add(lower, lower.T, out=G[rows, rows])
            G[: rows.start, rows] = G[rows, : rows.start].T
        np.fill_diagonal(G, diag)
        return G
    xp = namespace(G)
    lower = xp.tril(G, k=-1)
    index = xp.arange(n, device=device(G))
    on_diagonal = index[:, None] == index[None, :]
    return xp.where(on_diagonal, diag[:, None], lower + lower.T)
