"""What a kernel is: an immutable value with ``k(X, Y)`` and ``k.diag(X)``.

A kernel ``k`` is a positive semi-definite function of two points, the inner product of their
features: ``k(x, y) = <phi(x), phi(y)>``. It knows nothing of inference. To write your own, wrap a
function in :class:`~kernelbayes.Custom`, or subclass :class:`Kernel` as a frozen dataclass, give
it ``_cross`` and ``_diag``, and run :func:`kernelbayes.laws.check_kernel` on it.

The rest of the library asks a kernel about itself and never which class it is.
"""

from __future__ import annotations

import reprlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from numbers import Number
from types import FunctionType
from typing import TYPE_CHECKING, Any

import numpy as np
from array_api_compat import device

from kernelbayes.arrays import as_vectors, is_frame, namespace, narrowed, row_blocks, weighted_sum
from kernelbayes.points.names import column_names, frame_columns, in_order, query
from kernelbayes.points.values import count, positive, same_value, take, vectors
from kernelbayes.types import Array, Floats, Generator, Names, Points, PointsLike

if TYPE_CHECKING:
    from kernelbayes.kernels.algebra import Product, Scaled, Sum

# Rows of a block in which pairs k(x_i, y_i) are read off Gram matrices: with few rows little is
# computed beside the diagonal, with many the calls cost less. With features nothing is wasted.
PAIRED_ROWS, PAIRED_FEATURE_ROWS = 16, 1024


answer: Any = property  # for an answer that depends on the instance; see ``Kernel``


@dataclass(frozen=True, eq=False)
class Kernel(ABC):
    """A positive semi-definite kernel. Immutable, comparable with ==, callable.

    ``k(X, Y)`` is the (n, m) matrix of ``k(x_i, y_j)``; ``k(X)`` is ``k(X, X)``, exactly
    symmetric with exactly ``k.diag(X)`` on its diagonal. ``k1 + k2``, ``k1 * k2`` and ``c * k``
    are kernels.
    """

    def __call__(self, X: PointsLike, Y: PointsLike = None) -> Array:
        """Gram matrix (n, m) of ``k(x_i, y_j)``; Y defaults to X."""
        points = self.points(X, "X")
        if Y is None or Y is X:
            return self._self(points)
        if type(Y) is not np.ndarray:
            Y = in_order(Y, column_names(X), "Y", by_name=self.by_name)
        other = self.points(Y, "Y")
        self.check_pair(points, other)
        return self._cross(points, other)

    def diag(self, X: PointsLike) -> Array:
        """Return the values ``k(x_i, x_i)``, shape (n,)."""
        return self._diag(self.points(X, "X"))

    def features(self, X: PointsLike) -> Array:
        """Feature matrix (n, r) with ``k(X, Y) == features(X) @ features(Y).T``."""
        if not self.finite:
            raise TypeError(
                f"{self!r} has no finite features; approximate it with nystrom(kernel, X, rank), "
                "fourier(kernel, dim, rank) or pivoted_cholesky(kernel, X, rank)"
            )
        return self._features(self.points(X, "X"))

    def points(self, X: PointsLike, name: str = "X") -> Points:
        """Check X and bring it into the form this kernel computes with; idempotent."""
        if type(X) is np.ndarray:  # asked at every step of a filter
            return self._points(X, name)
        if isinstance(X, Iterator):
            raise TypeError(f"{name} can be read only once; give a list: list({name})")
        return self._points(frame_columns(X) if self.by_name and is_frame(X) else X, name)

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
        here, there = tuple(X.shape[1:]), tuple(Y.shape[1:])
        if here != there:
            text = f"points of one space are needed, got points of shapes {here} and {there}; "
            raise ValueError(text + "do they have the same columns?")

    def query(
        self, X: PointsLike, training: Points, names: Names = None, name: str = "X_new"
    ) -> tuple[Points, bool]:
        """Return what is asked about as checked points, and whether it is a single one.

        Columns are put in the order of training by their names, of which arrays have none.
        """
        single = False
        if type(X) is not np.ndarray or X.ndim != getattr(training, "ndim", 0):
            X, single = query(X, training, names, name, by_name=self.by_name)
        points = self.points(X, name)
        self.check_pair(points, training)
        return points, single

    # --- what a kernel knows of itself -----------------------------------------------------------

    # Answers that hold, if cautiously, for any kernel. A class that knows better says so in one
    # line, or with ``answer``.
    finite = False  # finitely many features, given by ``features``
    by_name = False  # reads columns by name (a frame is then kept as named columns)
    takes_rows = True  # a point is a row of an (n, d) array: not an image, a string or a category
    is_vector = False  # the squared distance is the natural error; if not, the one in the RKHS
    is_curved = False  # the mean of points is not their weighted average, as on a circle
    is_categorical = False  # points are categories: equal or not
    # Numeric points may be smoothed by a Gaussian: not angles, not categories.
    has_density = answer(lambda self: not self.is_categorical)
    is_smooth = False  # known to be differentiable on vectors
    is_unit = False  # values lie between 0 and 1, and k(x, x) is 1
    is_stationary = False  # a function of x - y on R^d, so that it has a ``spectrum``
    gaussian_bandwidth = answer(lambda _: None)  # that of a Gaussian kernel, for closed forms
    exact = answer(lambda self: self)  # the kernel that this one approximates

    def slopes(self, E: Floats) -> tuple[Floats, Floats, Floats] | None:  # noqa: ARG002
        """Profile at exponents ``-|u - v|^2 / 2`` and two derivatives; None if it has none."""
        return None

    def anchors(self, points: Points) -> Points:
        """Points that stand for a training sample: itself, or the landmarks of a projection."""
        return points

    def anchored(self, points: Points) -> tuple[Array, Array] | None:  # noqa: ARG002
        """Features (r, k) of checked points and the exact kernel matrix they come from, or None.

        The matrix (r, k) is that of the ``anchors`` of a projection and the points.
        """
        return None

    @property
    def label(self) -> str:
        """Short name for tables."""
        name = type(self).__name__
        several = isinstance(getattr(self, "bandwidth", None), tuple)
        return f"{name} per dimension" if several else name

    def scaled(self, factor: float) -> Kernel:
        """Kernel with every bandwidth in it multiplied by a factor; itself if it has none."""
        factor = positive(factor, "factor")
        own = {
            name: tuple(np.asarray(h) * factor) if np.ndim(h) else h * factor
            for name, h in self._parameters().items()
            if name == "bandwidth"
        }
        return self._with(lambda kernel: kernel.scaled(factor), **own)

    def on(self, columns: Sequence[int]) -> Kernel:
        """Kernel over some coordinates: parameters that are tuples hold one value for each.

        Of named parts, over some parts, by their number. A TypeError says when there is none.
        """
        if not self.takes_rows:
            text = f"{type(self).__name__} has no form for partly missing observations; give whole "
            text += "observations or rows of NaN, or use a Gaussian, Laplace or Parts kernel"
            raise TypeError(text)
        own = {
            name: tuple(value[j] for j in columns)
            for name, value in self._parameters().items()
            if isinstance(value, tuple)
        }
        return self._with(lambda kernel: kernel.on(columns), **own)

    def paired(self, X: PointsLike, Y: PointsLike) -> Array:
        """Return the values ``k(x_i, y_i)``, shape (n,), without the Gram matrix."""
        Y = in_order(Y, column_names(X), "Y", by_name=self.by_name)
        points, other = self.points(X, "X"), self.points(Y, "Y")
        self.check_pair(points, other)
        if count(points) != count(other):
            raise ValueError(f"pairs are needed, got {count(points)} and {count(other)} points")
        return self._paired(points, other)

    def similarity(self, K: Array, X: Points, Y: Points) -> Array:
        """Largest ``abs(k(x, y))`` / sqrt(k(x, x) k(y, y)) of each row of K (m, n), shape (m,)."""
        xp = namespace(K)
        if self.is_unit:
            near = xp.max(K, axis=1)  # by rounding above one
            return np.minimum(near, 1.0) if isinstance(K, np.ndarray) else xp.clip(near, max=1.0)
        norm_x, norm_y = (xp.sqrt(self._diag(points)) for points in (X, Y))
        # Where a norm is zero so is K: dividing by one leaves it.
        norm_x, norm_y = (xp.where(norm > 0, norm, 1.0 + norm) for norm in (norm_x, norm_y))
        return xp.clip(xp.max(xp.abs(K) / norm_y, axis=1) / norm_x, 0.0, 1.0)

    def mean_of(self, points: Points, weights: Array) -> Points:
        """Mean (d,) or (m, d) of checked points under weights (n,) or (m, n), in their space."""
        X = vectors(points)
        return narrowed(weighted_sum(weights, X), X)

    def periods(self, d: int) -> tuple[float | None, ...]:
        """Period of each of d coordinates; None where there is none."""
        return (None,) * d

    def preimage_of(self, points: Points, weights: Array) -> Points | None:  # noqa: ARG002
        """Point whose features are closest to the mean features; None: no closed form."""
        return None

    def split(self, points: Points) -> list[tuple[Hashable, Kernel, Points]]:
        """Parts of a joint variable, each as its key, kernel and points; else itself."""
        return [("", self, points)]

    def spectrum(self, q: int, dim: int, rng: Generator) -> Floats:
        """Draw q frequencies (q, dim) from the spectral distribution of a stationary kernel."""
        del q, dim, rng
        raise TypeError(
            f"Fourier features need a Gaussian, Laplace, Matern or RationalQuadratic kernel, got "
            f"{type(self).__name__}; use nystrom or pivoted_cholesky, which take any kernel"
        )

    # --- what a subclass provides ----------------------------------------------------------------

    @abstractmethod
    def _cross(self, X: Points, Y: Points) -> Array:
        """Gram matrix between two sets of checked points."""

    @abstractmethod
    def _diag(self, X: Points) -> Array:
        """Diagonal for checked points."""

    def _points(self, X: PointsLike, name: str) -> Points:
        return as_vectors(X, name)

    def _self(self, X: Points) -> Array:
        return mirror(self._cross(X, X), self._diag(X))

    def _paired(self, X: Points, Y: Points) -> Array:
        parts = []
        size = PAIRED_FEATURE_ROWS if self.finite else PAIRED_ROWS
        for rows in row_blocks(count(X), 1, entries=size):
            x, y = take(X, rows), take(Y, rows)
            if self.finite:
                F = self._features(x) * self._features(y)
                parts.append(namespace(F).sum(F, axis=1))
            else:
                G = self._cross(x, y)
                parts.append(namespace(G).linalg.diagonal(G))
        return namespace(*parts).concat(parts)

    def _with(self, change: Callable[[Kernel], Kernel], **own: Any) -> Kernel:
        """Kernel with changed operands and parameters of its own; itself if nothing changes."""
        values = self._parameters()
        inner = {name: change(old) for name, old in values.items() if isinstance(old, Kernel)}
        same = all(new is values[name] for name, new in inner.items())
        return self if same and not own else replace(self, **own, **inner)

    def _parameters(self) -> dict[str, Any]:
        return {item.name: getattr(self, item.name) for item in fields(self) if item.compare}

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
        return same_value(self._parameters(), other._parameters())

    def __hash__(self) -> int:
        values = self._parameters().values()
        kinds = (v for v in values if isinstance(v, Number | str | tuple | Kernel))
        return hash((type(self), *kinds))


def as_kernel(kernel: Any, name: str = "kernel") -> Kernel:
    """Return the kernel; a TypeError says what was given instead."""
    if isinstance(kernel, Kernel):
        return kernel
    hint = "is no kernel"
    if isinstance(kernel, type):
        hint = "is the class; make an instance of it"
    elif isinstance(kernel, FunctionType):
        hint = "is a function; give Custom of it"
    elif hasattr(kernel, "fit"):
        hint = "makes one: give what its fit(X, Z) returns"
    elif isinstance(kernel, str) and kernel == "precomputed":
        hint = "is for rules; give Precomputed(G) here, and its rows as points"
    raise TypeError(f"{name} must be a Kernel, e.g. Gaussian(1.0); {reprlib.repr(kernel)} {hint}")


def kernel_of(kernel: Any, name: str = "kernel") -> Kernel:
    """Return the kernel; a function k(X, Y) as one."""
    from kernelbayes.kernels.custom import Custom  # which is made of this

    return Custom(kernel) if isinstance(kernel, FunctionType) else as_kernel(kernel, name)


def mirror(G: Array, diag: Array) -> Array:
    """Copy the lower triangle of G onto the upper one and put ``diag`` on the diagonal."""
    n = G.shape[0]
    if isinstance(G, np.ndarray):  # in place, by blocks so that transposed reads stay in cache
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
