r"""Embeddings: a distribution is a weighted sample seen through a kernel.

The mean embedding of a distribution P is the function ``mu(x) = E_P[k(x, X)]`` in the kernel's
RKHS; from a weighted sample it is ``mu(x) = sum_i w_i k(x, x_i)``. Inner products of embeddings
are expectations of the kernel, and the distance between two is the maximum mean discrepancy, zero
only for equal distributions when the kernel is characteristic. Weights may be negative and need
not sum to one: rules produce such weights, and they are kept (``mass`` is their sum).

>>> import numpy as np
>>> from kernelbayes import Gaussian, embed, mmd
>>> rng = np.random.default_rng(0)
>>> k = Gaussian(1.0)
>>> mu, nu = embed(rng.normal(size=500), k), embed(rng.normal(1.0, size=500), k)
>>> round(float(mmd(mu, nu)), 2)
0.42
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
from array_api_compat import is_array_api_obj

from kernelbayes.arrays import Array, epsilon, like, namespace, row_blocks, to_float, transpose
from kernelbayes.embedding.decoding import Decoding
from kernelbayes.kernels import Kernel
from kernelbayes.kernels.base import same_value
from kernelbayes.points import (
    Points,
    as_floats,
    column_names,
    concatenate,
    count,
    sum_over_rows,
    take,
)


class MeanElement(ABC):
    """An element of a kernel's RKHS that stands for a measure."""

    kernel: Kernel

    @property
    @abstractmethod
    def mass(self) -> Array:
        """Total mass, 1 for a probability distribution."""

    @abstractmethod
    def __call__(self, X: Any) -> Array:
        """Evaluate at points X, shape (n,)."""

    @abstractmethod
    def inner(self, other: MeanElement) -> Array:
        """RKHS inner product with another element of the same kernel."""

    def norm(self) -> Array:
        """RKHS norm."""
        squared = self._squared_norm()
        xp = namespace(squared)
        return xp.sqrt(xp.clip(squared, min=0.0))  # only rounding can make it negative

    @abstractmethod
    def _squared_norm(self) -> Array:
        """Squared RKHS norm, 0-d (or (m,) for a batch)."""


@dataclass(frozen=True, eq=False)
class _Weighted(MeanElement, Decoding):
    """Weights over common points: shape (n,) for one embedding, (m, n) for a batch.

    ``names`` are the column names of the frame the points came from, if any; ``diagnostics`` says
    how far the embedding can be trusted if a rule made it.
    """

    points: Points
    weights: Array
    kernel: Kernel
    names: tuple[str, ...] | None = field(default=None, repr=False)
    diagnostics: Any = field(default=None, repr=False)

    __array_ufunc__ = None  # np.float64(2) * batch is a Batch, not an array of objects

    @property
    def mass(self) -> Array:
        """Sum of the weights, 0-d for one embedding and (m,) for a batch."""
        return namespace(self.weights).sum(self.weights, axis=-1)

    @property
    def ess(self) -> Array:
        """Effective sample size (sum w)^2 / sum w^2, as large as n for equal weights."""
        xp = namespace(self.weights)
        squares = xp.sum(self.weights**2, axis=-1)
        return xp.where(squares > 0, self.mass**2 / xp.where(squares > 0, squares, 1.0), 0.0)

    @property
    def negative(self) -> Array:
        """Share of negative weight: sum of ``|w_i|`` over w_i < 0, relative to all."""
        xp = namespace(self.weights)
        sizes = xp.abs(self.weights)
        total = xp.sum(sizes, axis=-1)
        share = 0.5 * (total - self.mass) / xp.where(total > 0, total, xp.ones_like(total))
        return xp.clip(share, 0.0, 1.0)

    def with_diagnostics(self, diagnostics: Any) -> Self:
        """Return the same embedding with diagnostics attached."""
        return replace(self, diagnostics=diagnostics)

    def __call__(self, X: Any) -> Array:
        """Evaluate at points X: shape (len(X),), or (m, len(X)) for a batch.

        Works in row blocks: the Gram matrix between X and the points is never held whole.
        """
        X = self.kernel.points(X)
        self.kernel.check_pair(X, self.points)
        xp = namespace(self.weights)
        if self.kernel.finite:
            values = (
                self.kernel.features(c) @ transpose(self.features)
                for c in _chunks(X, self.features)
            )
        else:
            values = (
                self.kernel(c, self.points) @ transpose(self.weights)
                for c in _chunks(X, self.weights)
            )
        return transpose(xp.concat(list(values), axis=0))

    @cached_property
    def features(self) -> Array:
        """Mean of the features, (r,) or (m, r), when the kernel has finite features."""
        return sum_over_rows(
            lambda chunk, rows: self.weights[..., rows] @ self.kernel.features(chunk),
            self.points,
            width=1024,
        )

    def inner(self, other: MeanElement) -> Array:
        """RKHS inner product.

        A number for two embeddings; (m,) for a batch and an embedding; the (m, m') matrix of all
        pairs for two batches.
        """
        check_same_kernel(self, other)
        if isinstance(other, _Weighted) and self.kernel.finite:
            namespace(self.features, other.features)
            return self.features @ transpose(other.features)
        # The reproducing property: <mu, nu> = sum_i w_i nu(x_i).
        values = other(self.points)
        return self.weights @ transpose(values)

    def _squared_norm(self) -> Array:
        xp = namespace(self.weights)
        if self.kernel.finite:
            return xp.sum(self.features**2, axis=-1)
        return xp.sum(self.weights * self(self.points), axis=-1)

    def normalized(self) -> Self:
        """Divide the weights by their sum, so that the mass is one."""
        xp = namespace(self.weights)
        mass = self.mass
        scale = xp.sum(xp.abs(self.weights), axis=-1)
        if bool(xp.any(xp.abs(mass) <= 10.0 * epsilon(self.weights) * scale)):
            raise ValueError("the weights sum to zero, so they cannot be normalised to mass one")
        return self._reweighted(self.weights / mass[..., None])

    def _reweighted(self, weights: Array) -> Self:
        return replace(self, weights=weights, diagnostics=None)  # they were of other weights

    def __mul__(self, factor: float) -> Self:
        if isinstance(factor, MeanElement | Kernel):
            return NotImplemented
        return self._reweighted(self.weights * factor)

    def __rmul__(self, factor: float) -> Self:
        return self * factor

    def __truediv__(self, divisor: float) -> Self:
        return self * (1.0 / divisor)

    def __neg__(self) -> Self:
        return self * -1.0

    def __sub__(self, other: Self) -> Self:
        return self + -other

    @abstractmethod
    def __add__(self, other: Self) -> Self:
        """Sum of two measures."""


@dataclass(frozen=True, eq=False)
class Embedding(_Weighted):
    """Mean embedding of a weighted sample: points, weights (n,) and a kernel.

    Make one with :func:`embed`. Call it to evaluate it; add, subtract and scale it like the
    function it is: ``mu - nu`` is the witness function of two samples.

    Examples
    --------
    >>> from kernelbayes import Linear, embed
    >>> mu = embed([1.0, 2.0, 6.0], Linear())
    >>> float(mu([1.0])[0])  # the linear kernel's embedding is the mean
    3.0
    >>> (2.0 * mu).mass, mu.ess.round(1)
    (np.float64(2.0), np.float64(3.0))
    """

    def __len__(self) -> int:
        """Return the number of points."""
        return count(self.points)

    def __repr__(self) -> str:
        return f"Embedding({len(self)} points, mass {to_float(self.mass):.4g}, {self.kernel!r})"

    def __add__(self, other: Embedding) -> Embedding:
        if not isinstance(other, Embedding):
            return NotImplemented
        check_same_kernel(self, other)
        if other.points is self.points:
            return self._reweighted(self.weights + other.weights)
        weights = namespace(self.weights, other.weights).concat([self.weights, other.weights])
        points = concatenate(self.points, other.points)
        return replace(self, points=points, weights=weights, diagnostics=None)


@dataclass(frozen=True, eq=False)
class Batch(_Weighted):
    """Embeddings over common points: weights (m, n). Indexing gives an Embedding.

    Examples
    --------
    >>> from kernelbayes import Gaussian, embed
    >>> batch = embed([0.0, 1.0], Gaussian(1.0), weights=[[1.0, 0.0], [0.5, 0.5]])
    >>> len(batch), batch[1].weights
    (2, array([0.5, 0.5]))
    """

    def __len__(self) -> int:
        """Return the number of embeddings."""
        return int(self.weights.shape[0])

    def __getitem__(self, index: Any) -> Any:
        """Return one Embedding for an integer, a Batch for a slice, a list or a mask."""
        several = isinstance(index, slice) or np.ndim(index) > 0
        if several and not isinstance(index, slice):
            index = np.asarray(index)
        diagnostics = None if self.diagnostics is None else self.diagnostics[index]
        weights = self.weights[index, :]
        if several:
            return replace(self, weights=weights, diagnostics=diagnostics)
        return Embedding(self.points, weights, self.kernel, self.names, diagnostics)

    def __iter__(self) -> Iterator[Embedding]:
        return (self[i] for i in range(len(self)))

    def __repr__(self) -> str:
        return f"Batch({len(self)} embeddings over {count(self.points)} points, {self.kernel!r})"

    def __add__(self, other: _Weighted) -> Batch:
        if not isinstance(other, _Weighted):
            return NotImplemented
        check_same_kernel(self, other)
        if not same_value(other.points, self.points):
            raise ValueError("batches are added over common points; these have points of their own")
        return self._reweighted(self.weights + other.weights)


def embed(points: Any, kernel: Kernel, weights: Any = None) -> Any:
    """Mean embedding of a sample.

    Parameters
    ----------
    points : points (n, ...)
        An array, a sequence, a mapping of parts, or a pandas or polars frame.
    kernel : Kernel
    weights : array (n,) or (m, n), optional
        Equal weights 1/n if not given; may be negative and need not sum to one. A matrix makes a
        :class:`Batch` of m embeddings over the same points.

    Returns
    -------
    Embedding, or Batch for a matrix of weights

    Examples
    --------
    >>> from kernelbayes import Gaussian, embed
    >>> embed([0.0, 1.0, 2.0], Gaussian(1.0))
    Embedding(3 points, mass 1, Gaussian(bandwidth=1.0))
    """
    if not isinstance(kernel, Kernel):
        raise TypeError(f"kernel must be a Kernel, e.g. Gaussian(1.0), got {kernel!r}")
    names = column_names(points)
    points = kernel.points(points, "points")
    n = count(points)
    template = kernel.diag(take(points, slice(0, 1)))  # the kind and precision of kernel values
    if weights is None:
        weights = namespace(template).ones_like(template) / n
        weights = namespace(weights).broadcast_to(weights, (n,))
    else:
        weights = as_floats(weights, "weights")
        weights = weights if _same_kind(weights, template) else like(weights, template)
    if weights.ndim not in (1, 2) or weights.shape[-1] != n or 0 in weights.shape:
        raise ValueError(
            f"weights must have shape ({n},), one per point, or (m, {n}) for a batch, "
            f"got {tuple(weights.shape)}"
        )
    if weights.ndim == 2:
        return Batch(points, weights, kernel, names)
    return Embedding(points, weights, kernel, names)


def check_same_kernel(mu: MeanElement, nu: MeanElement) -> None:
    """Raise unless both are embeddings of one RKHS."""
    if not isinstance(mu, MeanElement) or not isinstance(nu, MeanElement):
        other = nu if isinstance(mu, MeanElement) else mu
        raise TypeError(f"an embedding is needed, got {type(other).__name__}; use embed(...)")
    first, second = mu.kernel, nu.kernel
    if first != second:
        raise ValueError(
            f"embeddings of different kernels do not live in one space: {first!r} and {second!r}; "
            "embed both with the same kernel"
        )


def _chunks(X: Points, over: Array) -> Iterator[Points]:
    for rows in row_blocks(count(X), int(over.shape[-1])):
        yield take(X, rows)


def _same_kind(a: Array, b: Array) -> bool:
    return is_array_api_obj(a) and type(a) is type(b) and a.dtype == b.dtype
