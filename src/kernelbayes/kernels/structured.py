"""Kernels beyond vectors: categories, matrices, images and strings."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from array_api_compat import device
from scipy import sparse

from kernelbayes.arrays import as_array, as_floats, is_frame, like, namespace, to_float, to_numpy
from kernelbayes.kernels.base import Kernel, mirror
from kernelbayes.kernels.curved import are_rotations, rotation_mean
from kernelbayes.kernels.vector import intersection
from kernelbayes.objects import blanks, refused
from kernelbayes.points import finite, flag, integer
from kernelbayes.types import Array, Floats, Ints, Points, PointsLike


@dataclass(frozen=True, eq=False)
class Delta(Kernel):
    r"""Delta kernel, for categories.

    .. math:: k(x, y) = 1 \text{ if } x = y \text{ else } \exp(-1 / 2 h^2)

    With bandwidth h = 0, the default, an embedding is a table of probabilities, and every kernel
    rule becomes the rule for tables. A positive one (the Gaussian kernel of a distance that is 0 or
    1) leaves some similarity between different categories, so that a product over many columns
    does not vanish for nearly all pairs. Characteristic on any finite set. Points are numbers,
    strings or any values that NumPy can compare; points with several columns are equal when all
    columns are.

    Examples
    --------
    >>> from kernelbayes import Delta
    >>> Delta()(["a", "b", "a"], ["a"])
    array([[1.],
           [0.],
           [1.]])
    """

    bandwidth: float = 0.0

    takes_rows = False  # points are categories
    is_categorical = True

    def __post_init__(self) -> None:
        if not 0.0 <= self.bandwidth < float("inf"):
            raise ValueError(f"bandwidth must be finite and not negative, got {self.bandwidth!r}")
        object.__setattr__(self, "bandwidth", float(self.bandwidth))

    def __repr__(self) -> str:
        """Without the bandwidth where it is 0."""
        return f"Delta({self.bandwidth or ''})"

    def scaled(self, factor: float) -> Kernel:
        """Kernel with the bandwidth multiplied by a factor; itself if it is 0."""
        return super().scaled(factor) if self.bandwidth > 0.0 else self

    def _points(self, X: PointsLike, name: str) -> Points:
        X = as_array(X, name)
        if X.ndim == 0 or 0 in X.shape:
            raise ValueError(f"{name} is empty: shape {tuple(X.shape)}; expected n categories")
        holes = blanks(to_numpy(X))
        if holes.any():
            do = "drop those rows, or make a category of what is missing: fillna('missing')"
            raise refused(holes, f"{name} has missing categories (NaN, None)", do)
        return X[:, 0] if X.ndim == 2 and X.shape[1] == 1 else X

    def _cross(self, X: Points, Y: Points) -> Array:
        xp, dtype = namespace(X, Y), _value_type(X, Y)
        if isinstance(X, np.ndarray):
            X, Y = _codes(X, Y)
        equal = X[:, None, ...] == Y[None, :, ...]
        if equal.ndim > 2:
            equal = xp.all(equal, axis=tuple(range(2, equal.ndim)))
        values = xp.astype(equal, dtype)
        if self.bandwidth == 0.0:
            return values
        return values + math.exp(-0.5 / self.bandwidth / self.bandwidth) * (1.0 - values)

    def _diag(self, X: Points) -> Array:
        return namespace(X).ones(X.shape[0], dtype=_value_type(X), device=device(X))


def _value_type(*points: Points) -> Any:
    """Return float32 for categories coded in float32, float64 for all others."""
    xp = namespace(*points)
    return xp.float32 if all(X.dtype == xp.float32 for X in points) else xp.float64


def _codes(X: npt.NDArray[Any], Y: npt.NDArray[Any]) -> tuple[Ints, Ints]:
    """Integer codes such that two points are equal exactly when their codes are."""
    if (X.dtype.kind in "US") != (Y.dtype.kind in "US") and "O" not in X.dtype.kind + Y.dtype.kind:
        raise TypeError(f"categories of type {X.dtype} and {Y.dtype} cannot be compared")
    try:
        together = np.concatenate([X, Y]) if X is not Y else X
        together = together.reshape(len(together), -1)
        columns = [np.unique(column, return_inverse=True)[1] for column in together.T]
    except TypeError as error:
        raise TypeError("categories of mixed types cannot be compared; use one type") from error
    codes = columns[0]
    for column in columns[1:]:  # combine two columns at a time, so that codes never overflow
        pairs = codes.astype(np.int64) * (int(column.max()) + 1) + column
        codes = np.unique(pairs, return_inverse=True)[1]
    return codes[: len(X)], codes[-len(Y) :]


@dataclass(frozen=True, eq=False)
class Trace(Kernel):
    r"""Trace kernel, for matrices.

    .. math:: k(A, B) = \mathrm{Tr}(A B^\top)

    Points are an (n, p, q) array. The linear kernel of the entries, hence not characteristic: an
    embedding is the mean matrix, from which a rotation is decoded by projection (KBR13 section
    5.3). For a characteristic kernel on rotations use :class:`Rotation`.

    Examples
    --------
    >>> from kernelbayes import Trace
    >>> Trace()([[[1.0, 0.0], [0.0, 1.0]]], [[[2.0, 5.0], [5.0, 3.0]]])
    array([[5.]])
    """

    finite = True  # the features are the entries
    takes_rows = False  # a point is a matrix

    def _points(self, X: PointsLike, name: str) -> Points:
        X = as_floats(X, name)
        if X.ndim != 3 or 0 in X.shape:
            raise ValueError(f"{name} must be matrices of shape (n, p, q), got {tuple(X.shape)}")
        return X

    def _cross(self, X: Points, Y: Points) -> Array:
        return self._features(X) @ self._features(Y).T

    def _diag(self, X: Points) -> Array:
        return namespace(X).sum(X * X, axis=(1, 2))

    def preimage_of(self, points: Points, weights: Array) -> Array:
        """Average matrix; of rotations, the rotation closest to it (KBR13 section 5.3)."""
        if are_rotations(to_numpy(points)):
            return rotation_mean(points, weights)
        return self.mean_of(points, weights)

    def mean_of(self, points: Points, weights: Array) -> Array:
        """Average matrix (p, q), or (m, p, q) for a batch: linear in the weights."""
        mean = weights @ self._features(points)
        return namespace(mean).reshape(mean, (*mean.shape[:-1], *points.shape[1:]))

    def _features(self, X: Points) -> Array:
        return namespace(X).reshape(X, (X.shape[0], -1))


@dataclass(frozen=True, eq=False)
class SpatialPyramid(Kernel):
    r"""Spatial pyramid match kernel, for images (Lazebnik, Schmid and Ponce 2006).

    .. math:: k(x, y) = 2^{-L} I_0(x, y) + \sum_{l=1}^{L} 2^{l-L-1} I_l(x, y)

    where I_l is the intersection of the intensity histograms in each cell of a 2^l x 2^l grid,
    normalised so that k(x, x) = 1. Points are images (n, height, width) or (n, height, width,
    channels) with values in [low, high]. Positive definite; sees where in the image intensities
    occur down to the finest cells and nothing finer, so small shifts do little. Use it for camera
    frames when no learned features are at hand.

    Parameters
    ----------
    levels : int
        L, the finest grid is 2^L x 2^L.
    bins : int
        Bins of each histogram.
    low, high : float
        Range of the pixel values; values outside are an error.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelbayes import SpatialPyramid
    >>> images = np.stack([np.zeros((8, 8)), np.ones((8, 8)), np.eye(8)])
    >>> SpatialPyramid(levels=1, bins=2)(images)
    array([[1.   , 0.   , 0.875],
           [0.   , 1.   , 0.125],
           [0.875, 0.125, 1.   ]])
    """

    takes_rows = False  # a point is an image

    levels: int = 2
    bins: int = 16
    low: float = 0.0
    high: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "levels", integer(self.levels, "levels", 0))
        object.__setattr__(self, "bins", integer(self.bins, "bins", 2))
        if not finite(self.low, "low") < finite(self.high, "high"):
            raise ValueError(f"low must be below high, got {self.low} and {self.high}")

    def _points(self, X: PointsLike, name: str) -> Points:
        X = as_floats(X, name)
        if X.ndim not in (3, 4) or 0 in X.shape:
            raise ValueError(
                f"{name} must be images (n, height, width) or (n, height, width, channels), "
                f"got {tuple(X.shape)}"
            )
        if min(X.shape[1:3]) < 2**self.levels:
            raise ValueError(
                f"images of {tuple(X.shape[1:3])} pixels cannot have {self.levels} levels"
            )
        xp = namespace(X)
        if to_float(xp.min(X)) < self.low or to_float(xp.max(X)) > self.high:
            raise ValueError(
                f"{name} has pixels outside [{self.low}, {self.high}]: set low and high"
            )
        return X

    def _cross(self, X: Points, Y: Points) -> Array:
        return intersection(self._histograms(X), self._histograms(Y))

    def _self(self, X: Points) -> Array:
        H = self._histograms(X)
        return mirror(intersection(H, H), namespace(H).sum(H, axis=1))

    def _diag(self, X: Points) -> Array:
        return namespace(X).sum(self._histograms(X), axis=1)

    def _histograms(self, X: Points) -> Array:
        """Weighted cell histograms of all levels side by side, (n, cells x channels x bins)."""
        images = to_numpy(X).astype(np.float64)  # so that float32 finds the same bins
        images = images[..., None] if images.ndim == 3 else images
        unit = (images - self.low) / (self.high - self.low)
        codes = np.minimum((unit * self.bins).astype(np.int64), self.bins - 1)
        n, height, width, channels = codes.shape
        finest = 2**self.levels
        row = np.arange(height) * finest // height
        column = np.arange(width) * finest // width
        cell = (row[:, None] * finest + column[None, :])[None, :, :, None]
        image = np.arange(n)[:, None, None, None]
        index = (image * finest**2 + cell) * channels + np.arange(channels)
        H = np.bincount(
            (index * self.bins + codes).ravel(), minlength=n * finest**2 * channels * self.bins
        ).reshape(n, finest, finest, channels * self.bins)
        H = H / (height * width * channels)
        levels = []
        for level in range(self.levels, -1, -1):
            weight = 2.0 ** (level - self.levels - 1) if level else 2.0**-self.levels
            levels.append(weight * H.reshape(n, -1))
            if level:
                half = 2 ** (level - 1)
                H = H.reshape(n, half, 2, half, 2, -1).sum(axis=(2, 4))
        return like(np.concatenate(levels, axis=1), X)


@dataclass(frozen=True, eq=False)
class Spectrum(Kernel):
    r"""Spectrum kernel, for strings (Leslie, Eskin and Noble 2002).

    .. math:: k(s, t) = \sum_{u \in A^k} \#_u(s) \, \#_u(t)

    the inner product of the counts of all substrings of length k; with ``normalized=True`` the
    cosine between them, so that long strings do not dominate. Positive definite; tells strings
    apart by their k-mer counts only. Use k = 3 to 5 for DNA and proteins, 2 to 4 for words.

    Examples
    --------
    >>> from kernelbayes import Spectrum
    >>> Spectrum(2)(["abab", "ba"], ["ab"])
    array([[2.],
           [0.]])
    """

    takes_rows = False  # a point is a string

    k: int = 3
    normalized: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "k", integer(self.k, "k"))
        flag(self.normalized, "normalized")

    def _points(self, X: PointsLike, name: str) -> Points:
        if isinstance(X, str):
            raise TypeError(f"{name} must be a sequence of strings, got one: wrap it in a list")
        if is_frame(X) or isinstance(X, Mapping):
            X = as_array(X, name)
            if X.ndim > 1 and X.shape[1] != 1:
                raise ValueError(f"{name} must be one column of strings, got {X.shape[1]} columns")
            X = X.ravel()
        strings = [str(s) for s in X if isinstance(s, str)]
        if not strings or len(strings) != len(X):
            raise TypeError(f"{name} must be a non-empty sequence of strings")
        return strings

    def _counts(self, strings: list[str]) -> sparse.csr_matrix:
        from sklearn.feature_extraction.text import CountVectorizer  # slow to import

        substrings = CountVectorizer(
            analyzer=lambda s: [s[i : i + self.k] for i in range(len(s) - self.k + 1)]
        )
        try:
            return substrings.fit_transform(strings).astype(float)
        except ValueError:  # every string is shorter than k: no substrings at all
            return sparse.csr_matrix((len(strings), 1))

    def _cross(self, X: Points, Y: Points) -> Array:
        counts = self._counts([*X, *Y])
        G = (counts[: len(X)] @ counts[len(X) :].T).toarray()
        if self.normalized:
            norms = np.sqrt(_row_squares(counts))
            norms[norms == 0.0] = 1.0
            G /= norms[: len(X), None]
            G /= norms[None, len(X) :]
        return G

    def _diag(self, X: Points) -> Array:
        squares = _row_squares(self._counts(X))
        return (squares > 0).astype(float) if self.normalized else squares


def _row_squares(counts: sparse.csr_matrix) -> Floats:
    return np.asarray(counts.multiply(counts).sum(axis=1)).ravel()
