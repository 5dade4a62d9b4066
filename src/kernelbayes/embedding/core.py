r"""Embeddings: a distribution is a weighted sample seen through a kernel.

The mean embedding of a distribution P is the function ``mu(x) = E_P[k(x, X)]`` in the kernel's
RKHS; from a weighted sample it is ``mu(x) = sum_i w_i k(x, x_i)``. Inner products of embeddings
are expectations of the kernel, and the distance between two is the maximum mean discrepancy, zero
only for equal distributions when the kernel is characteristic. Weights may be negative and need
not sum to one: rules produce such weights, and they are kept (``mass`` is their sum).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from array_api_compat import is_array_api_obj

from kernelbayes.arrays import as_array, as_floats, epsilon, like, namespace, to_numpy, widened
from kernelbayes.embedding.decoding import Decoding
from kernelbayes.embedding.mean import MeanElement, Weighted, same_space
from kernelbayes.kernels import Kernel
from kernelbayes.kernels.base import kernel_of
from kernelbayes.points import column_names, concatenate, count, flag, own, same_value, take
from kernelbayes.tables import SHOWN_ROWS, HtmlTable, Table
from kernelbayes.types import Array, Bools, Ints, PointsLike

Index = int | slice | Sequence[int] | Ints | Bools


@dataclass(frozen=True, eq=False)
class Embedding(HtmlTable, Decoding):
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
        name = type(self).__name__
        return f"{name}({len(self)} points, mass {float(to_numpy(self.mass)):.4g}, {self.kernel!r})"

    def __add__(self, other: Embedding) -> Embedding:
        if not isinstance(other, Embedding):
            return NotImplemented
        other = same_space(self, other)
        if same_value(other.points, self.points):
            return self._reweighted(self.weights + other.weights)
        weights = namespace(self.weights, other.weights).concat([self.weights, other.weights])
        points = concatenate(self.points, other.points)
        return replace(self._reweighted(weights), points=points)


@dataclass(frozen=True, eq=False)
class Batch(HtmlTable, Decoding):
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

    def __getitem__(self, index: Index) -> Any:
        """Return one Embedding for an integer, a Batch for a slice, a list or a mask."""
        whole = isinstance(index, slice) or to_numpy(as_array(index)).dtype.kind in "iub"
        if not whole:
            raise TypeError(f"an index is a number, a slice, numbers or a mask, got {index!r}")
        several = isinstance(index, slice) or np.ndim(index) > 0
        index = np.asarray(index) if several and not isinstance(index, slice) else index
        diagnostics = None if self.diagnostics is None else self.diagnostics[index]
        weights = self.weights[index, :]
        if several:
            return replace(self, weights=weights, diagnostics=diagnostics)
        kept = {"centre": self.centre, "calibration": self.calibration}
        return Embedding(self.points, weights, self.kernel, self.names, diagnostics, **kept)

    def __iter__(self) -> Iterator[Embedding]:
        return (self[i] for i in range(len(self)))

    def __repr__(self) -> str:
        return f"Batch({len(self)} embeddings over {count(self.points)} points, {self.kernel!r})"

    def _numbers(self) -> Table:
        table: Table = self[:SHOWN_ROWS].summary()
        return table

    def __add__(self, other: Weighted) -> Batch:
        if not isinstance(other, Weighted):
            return NotImplemented
        other = same_space(self, other)
        if not same_value(other.points, self.points):
            raise ValueError("batches are added over common points; these have points of their own")
        return self._reweighted(self.weights + other.weights)


def embed(
    points: PointsLike, kernel: Kernel, weights: Array | None = None, *, copy: bool = True
) -> Any:
    """Mean embedding of a sample.

    Parameters
    ----------
    points : points (n, ...)
        An array, a sequence, a mapping of parts, or a pandas or polars frame.
    kernel : Kernel
    weights : array (n,) or (m, n), optional
        Equal weights 1/n if not given; may be negative and need not sum to one. A matrix makes a
        :class:`Batch` of m embeddings over the same points.
    copy : bool
        Whether the embedding gets arrays of its own. Without a copy, who changes the given arrays
        changes the embedding.

    Returns
    -------
    Embedding, or Batch for a matrix of weights

    Examples
    --------
    >>> from kernelbayes import Gaussian, embed
    >>> embed([0.0, 1.0, 2.0], Gaussian(1.0))
    Embedding(3 points, mass 1, Gaussian(bandwidth=1.0))
    """
    names, given, given_weights = column_names(points), points, weights
    kernel = kernel_of(kernel)
    points = kernel.points(points, "points")
    points = own(points, given) if copy else points
    n = count(points)
    template = kernel.diag(take(points, slice(0, 1)))  # the kind and precision of kernel values
    if weights is None:
        weights = namespace(template).ones_like(template) / n
        weights = namespace(weights).broadcast_to(weights, (n,))
    else:
        weights = as_floats(weights, "weights")
        same = is_array_api_obj(weights) and type(weights) is type(template)
        if not same or weights.dtype != template.dtype:
            weights = like(weights, template)
        weights = own(weights, given_weights) if copy else weights
    shape = tuple(weights.shape)
    if len(shape) not in (1, 2) or shape[-1] != n or 0 in shape:
        wanted = f"({n},), one per point, or (m, {n}) for a batch"
        raise ValueError(f"weights must have shape {wanted}, got {shape}")
    return (Batch if weights.ndim == 2 else Embedding)(points, weights, kernel, names)


def mmd2(mu: MeanElement, nu: MeanElement, unbiased: bool = False) -> Array:
    r"""Squared maximum mean discrepancy, the squared RKHS distance of two embeddings.

    .. math:: \mathrm{MMD}^2 = \|\mu - \nu\|^2
              = \langle\mu,\mu\rangle - 2\langle\mu,\nu\rangle + \langle\nu,\nu\rangle

    Parameters
    ----------
    mu, nu : embeddings of the same kernel
    unbiased : bool
        Leave out the terms k(x_i, x_i), so that the expectation over samples is the squared
        distance of the distributions; the estimate may then be negative. For two Embeddings.

    Returns
    -------
    array
        A number, (m,) with a batch, (m, m') between two batches.

    Examples
    --------
    >>> from kernelbayes import Linear, embed, mmd2
    >>> float(mmd2(embed([0.0, 2.0], Linear()), embed([4.0], Linear())))
    9.0
    """
    nu = same_space(mu, nu)
    if flag(unbiased, "unbiased"):
        if not (isinstance(mu, Embedding) and isinstance(nu, Embedding)):
            raise TypeError("the unbiased estimate is for two Embeddings of samples")
        return mu._narrow(_off_diagonal(mu) + _off_diagonal(nu) - 2.0 * mu._inner(nu))
    if isinstance(mu, Embedding) and isinstance(nu, Embedding):
        if same_value(mu.points, nu.points):  # subtract before squaring: no cancellation
            return mu._narrow((mu - nu)._squared_norm())
        if mu.kernel.finite:
            apart = widened(mu.features) - widened(nu.features)
            with np.errstate(over="ignore"):
                return mu._narrow(namespace(apart).sum(apart**2))
    first, second, cross = mu._squared_norm(), nu._squared_norm(), mu._inner(nu)
    if isinstance(mu, Batch) and isinstance(nu, Batch):
        first = first[:, None]
    xp = namespace(cross)
    squared = xp.clip(first + second - 2.0 * cross, min=0.0)  # only rounding makes it negative
    return mu._narrow(squared)


def mmd(mu: MeanElement, nu: MeanElement) -> Array:
    """Maximum mean discrepancy: the RKHS distance of two embeddings, the root of :func:`mmd2`.

    Zero only for equal distributions if the kernel is characteristic.

    Examples
    --------
    >>> from kernelbayes import Linear, embed, mmd
    >>> float(mmd(embed([0.0, 2.0], Linear()), embed([4.0], Linear())))
    3.0
    """
    squared = mmd2(mu, nu)
    return namespace(squared).sqrt(squared)


def _off_diagonal(mu: Embedding) -> Array:
    """Sum over i != j of w_i w_j k(x_i, x_j), rescaled to the full mass."""
    w = widened(mu.weights)
    xp = namespace(w)
    mass, squares = xp.sum(w), xp.sum(w**2)
    rest = mass**2 - squares
    if not bool(rest > epsilon(mu.weights) * squares):
        raise ValueError("the unbiased estimate needs at least two points on each side")
    diagonal = xp.sum(w**2 * mu.kernel.diag(mu.points))
    return (mu._squared_norm() - diagonal) * mass**2 / rest
