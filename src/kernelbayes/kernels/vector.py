"""Kernels of inner products and of histograms: linear, polynomial, histogram intersection."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kernelbayes.arrays import Array, add_into, as_vectors, namespace
from kernelbayes.kernels.base import Kernel
from kernelbayes.points import Points, PointsLike


@dataclass(frozen=True, eq=False)
class _InnerProduct(Kernel):
    """A polynomial of the inner product of vectors."""

    is_smooth = True  # a polynomial
    is_vector = True  # the inner product belongs to a distance


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

    def _cross(self, X: Points, Y: Points) -> Array:
        return X @ Y.T

    def _diag(self, X: Points) -> Array:
        return namespace(X).sum(X * X, axis=1)

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
        if not isinstance(self.degree, int | np.integer) or self.degree < 1:
            raise ValueError(f"degree must be a positive integer, got {self.degree!r}")
        if not 0.0 <= self.offset < float("inf"):
            raise ValueError(f"offset must be finite and not negative, got {self.offset!r}")

    def _cross(self, X: Points, Y: Points) -> Array:
        return (X @ Y.T + self.offset) ** self.degree

    def _diag(self, X: Points) -> Array:
        return (namespace(X).sum(X * X, axis=1) + self.offset) ** self.degree


@dataclass(frozen=True, eq=False)
class HistogramIntersection(Kernel):
    r"""Histogram intersection kernel.

    .. math:: k(x, y) = \sum_j \min(x_j, y_j), \quad x_j, y_j \ge 0

    For counts, histograms and bags of words; the entries must not be negative. Positive definite,
    since min(a, b) is the overlap of the intervals [0, a] and [0, b]; it tells apart all
    distributions of each single bin (but, a sum over bins, not their dependence).

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
    xp = namespace(X, Y)
    total = xp.minimum(X[:, 0][:, None], Y[:, 0][None, :])
    for j in range(1, X.shape[1]):
        total = add_into(total, xp.minimum(X[:, j][:, None], Y[:, j][None, :]))
    return total
