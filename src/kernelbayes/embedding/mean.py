"""Mean elements: what stands for a distribution in an RKHS, and weighted samples that do so.

Weights may be negative. :mod:`kernelbayes.embedding.regions` says how they are made a distribution.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, Self, TypeVar

import numpy as np
from array_api_compat import is_torch_array

from kernelbayes.arrays import (
    epsilon,
    like,
    namespace,
    narrowed,
    row_blocks,
    to_numpy,
    total,
    transpose,
    warn,
    weighted_sum,
    widened,
)
from kernelbayes.embedding.simplex import closest
from kernelbayes.kernels import Kernel
from kernelbayes.points import (
    count,
    finite,
    in_order,
    option,
    points_in_order,
    sum_over_rows,
    take,
    vectors,
)
from kernelbayes.types import Array, Bools, Floats, Points, PointsLike

T = TypeVar("T", bound="MeanElement")

Kind = Literal["projected", "rearranged", "clipped", "raw"]
Validity = bool | Kind
KINDS: tuple[Kind, ...] = ("projected", "rearranged", "clipped", "raw")
# Weights that sum to less than LEAST_MASS carry no information: dividing by the sum would magnify
# rounding errors, which are about 1e-16 times the condition number, up to 1e8 with automatic
# ridges. Weights of both signs whose sum is below LEAST_SHARE of their absolute sum nearly cancel:
# what is left is mostly the error of the estimate that they came from.
LEAST_MASS = 1e-8
LEAST_SHARE = 1e-3


class MeanElement(ABC):
    """An element of a kernel's RKHS that stands for a measure."""

    kernel: Kernel

    @property
    @abstractmethod
    def mass(self) -> Array:
        """Total mass, 1 for a probability distribution."""

    @abstractmethod
    def __call__(self, X: PointsLike) -> Array:
        """Evaluate at points X, shape (n,)."""

    def inner(self, other: MeanElement) -> Array:
        """RKHS inner product with another element of the same kernel.

        A number for two embeddings; (m,) for a batch and an embedding; the (m, m') matrix of all
        pairs for two batches.
        """
        return self._narrow(self._inner(same_space(self, other)))

    def norm(self) -> Array:
        """RKHS norm."""
        squared = self._squared_norm()
        xp = namespace(squared)
        return self._narrow(xp.sqrt(xp.clip(squared, min=0.0)))  # only rounding is negative

    @abstractmethod
    def _inner(self, other: MeanElement) -> Array:
        """Inner product in double precision: the difference of several may be tiny."""

    @abstractmethod
    def _squared_norm(self) -> Array:
        """Squared RKHS norm in double precision, 0-d (or (m,) for a batch)."""

    @abstractmethod
    def _narrow(self, values: Array) -> Array:
        """Return values in the element's own precision."""


@dataclass(frozen=True, eq=False)
class Weighted(MeanElement):
    """Weights over common points: shape (n,) for one embedding, (m, n) for a batch.

    ``names`` are the column names of the frame the points came from, if any; ``diagnostics`` says
    how far the embedding can be trusted if a rule made it. ``centre`` (d,) is where means count the
    mass that is missing from one; rules set it, see :meth:`mean`. ``calibration`` corrects
    intervals by left-out data; estimators and filters set it.
    """

    points: Points
    weights: Array
    kernel: Kernel
    names: tuple[str, ...] | None = field(default=None, repr=False)
    diagnostics: Any = field(default=None, repr=False)
    centre: Array | None = field(default=None, repr=False, kw_only=True)
    calibration: Any = field(default=None, repr=False, kw_only=True)

    __array_ufunc__ = None  # np.float64(2) * batch is a Batch, not an array of objects
    letter = "x"  # of coordinates without a name; "z" if they are hidden

    @property
    def mass(self) -> Array:
        """Sum of the weights, 0-d for one embedding and (m,) for a batch."""
        return total(self.weights)

    @property
    def ess(self) -> Array:
        """Effective sample size (sum w)^2 / sum w^2, as large as n for equal weights."""
        xp = namespace(self.weights)
        squares = total(self.weights**2)
        return xp.where(squares > 0, self.mass**2 / xp.where(squares > 0, squares, 1.0), 0.0)

    @property
    def negative(self) -> Array:
        """Share of negative weight: sum of ``|w_i|`` over w_i < 0, relative to all."""
        xp = namespace(self.weights)
        size = total(xp.abs(self.weights))
        share = 0.5 * (size - self.mass) / xp.where(size > 0, size, xp.ones_like(size))
        return xp.clip(share, 0.0, 1.0)

    def normalized(self) -> Self:
        """Divide the weights by their sum, so that the mass is one."""
        xp = namespace(self.weights)
        mass = self.mass
        scale = total(xp.abs(self.weights))
        if bool(xp.any(xp.abs(mass) <= 10.0 * epsilon(self.weights) * scale)):
            raise ValueError("the weights sum to zero, so they cannot be normalised to mass one")
        return self._reweighted(self.weights / mass[..., None])

    def valid(self) -> Self:
        """Embedding whose weights are not negative and sum to one, closest in RKHS distance."""
        return replace(self, weights=self._answer(self._closest), calibration=None)

    def valid_weights(self, valid: Validity = True) -> Floats:
        """Weights (m, n) that sum to one, m = 1 for one embedding; "rearranged" ones have signs."""
        kind = validity(valid)
        if kind == "projected":
            return self._closest
        W = np.maximum(self._rows, 0.0) if kind == "clipped" else self._rows
        sums = W.sum(axis=1)
        nothing = sums <= 0 if kind == "clipped" else lost(W)
        if nothing.any():
            text = f"{int(nothing.sum())} of {len(W)} embeddings have no mass to speak of (far from"
            text += " the sample?); all points count alike there"
            warn(text)
        found = W / np.where(nothing, 1.0, sums)[:, None]
        found[nothing] = 1.0 / W.shape[1]
        # Weights that nearly cancel (an effective sample size below one) have a distribution
        # function that is all noise.
        noise = np.einsum("ij,ij->i", found, found) > 1.0 + 1e-9
        if kind == "rearranged" and noise.any():
            found = np.where(noise[:, None], self._closest, found)
        return np.asarray(found)

    def __call__(self, X: PointsLike) -> Array:
        """Evaluate at points X, in row blocks: shape (len(X),), or (m, len(X)) for a batch."""
        X = self.kernel.points(self._in_order(X))
        self.kernel.check_pair(X, self.points)
        k, xp = self.kernel, namespace(self.weights)
        over = self.features if k.finite else self.weights
        values = []
        for rows in row_blocks(count(X), int(over.shape[-1])):
            part = take(X, rows)
            K = k.features(part) if k.finite else k(part, self.points)
            values.append(narrowed(weighted_sum(over, K.T), over, K))
        return xp.concat(values, axis=-1)

    @cached_property
    def features(self) -> Array:
        """Mean of the features, (r,) or (m, r), when the kernel has finite features."""
        found = sum_over_rows(
            lambda chunk, rows: weighted_sum(self.weights[..., rows], self.kernel.features(chunk)),
            self.points,
            width=1024,
        )
        return narrowed(found, self.weights)

    def _narrow(self, values: Array) -> Array:
        values = narrowed(values, self.weights)
        if not bool(namespace(values).all(namespace(values).isfinite(values))):
            text = "points or weights are so large that their products overflow; rescale them"
            raise ValueError(text)
        return values

    def _inner(self, other: MeanElement) -> Array:
        if isinstance(other, Weighted) and self.kernel.finite:
            namespace(self.features, other.features)
            with np.errstate(over="ignore", invalid="ignore"):
                return widened(self.features) @ widened(transpose(other.features))
        # The reproducing property: <mu, nu> = sum_i w_i nu(x_i).
        return weighted_sum(self.weights, transpose(other(self.points)))

    def _squared_norm(self) -> Array:
        xp = namespace(self.weights)
        if self.kernel.finite:
            with np.errstate(over="ignore"):
                return xp.sum(widened(self.features) ** 2, axis=-1)
        return xp.sum(widened(self.weights) * self(self.points), axis=-1)

    def _reweighted(self, weights: Array) -> Self:
        # All were of other weights: a sum of embeddings, or a multiple, is what its weights say.
        return replace(self, weights=weights, diagnostics=None, centre=None, calibration=None)

    def __mul__(self, factor: float) -> Self:
        if isinstance(factor, MeanElement | Kernel):
            return NotImplemented
        value = finite(factor, "the factor of an embedding")
        return self._reweighted(self.weights * (factor if is_torch_array(factor) else value))

    def __rmul__(self, factor: float) -> Self:
        return self * factor

    def __truediv__(self, divisor: float) -> Self:
        if finite(divisor, "the divisor of an embedding") == 0.0:
            raise ValueError("an embedding cannot be divided by zero")
        return self * (1.0 / divisor)

    def __neg__(self) -> Self:
        return self * -1.0

    def __sub__(self, other: Self) -> Self:
        return self + -other

    @abstractmethod
    def __add__(self, other: Self) -> Self:
        """Sum of two measures."""

    @property
    def vectors(self) -> Array:
        """Points (n, d), for questions that need vectors."""
        return vectors(self.points)

    def _in_order(self, X: PointsLike) -> PointsLike:
        """X as given, a frame or mapping with its columns in the order of the points."""
        return in_order(X, self.names, by_name=self.kernel.by_name)

    @property
    def _single(self) -> bool:
        return bool(self.weights.ndim == 1)

    @property
    def _rows(self) -> Floats:
        """Weights (m, n) as NumPy, m = 1 for one embedding."""
        return np.atleast_2d(np.asarray(to_numpy(self.weights), dtype=np.float64))

    @cached_property
    def _closest(self) -> Floats:
        return closest(self.points, self._rows, self.kernel)

    def _answer(self, rows: Floats) -> Array:
        """Answers (m, ...) as an array of the weights' kind; one embedding has no leading axis."""
        answer = like(rows[0] if self._single else rows, self.weights)
        return answer[()] if isinstance(answer, np.ndarray) else answer  # a number, not 0-d


def validity(valid: Validity, default: Kind = "projected") -> Kind:
    """Name of a way to make answers valid; True is a question's default, False the raw weights."""
    if isinstance(valid, bool | np.bool_):
        return default if valid else "raw"
    return option(valid, "valid", KINDS)


def lost(W: Floats) -> Bools:
    """Which rows (m,) of weights (m, n) sum to nothing, or nearly cancel."""
    sums, sizes = W.sum(axis=1), np.abs(W).sum(axis=1)
    return np.asarray(~((sums > LEAST_SHARE * sizes) & (sums > LEAST_MASS)))


def same_space(mu: MeanElement, nu: T) -> T:
    """Return nu, its columns in the order of those of mu; raise unless both are of one RKHS."""
    if not isinstance(mu, MeanElement) or not isinstance(nu, MeanElement):
        other = nu if isinstance(mu, MeanElement) else mu
        raise TypeError(f"an embedding is needed, got {type(other).__name__}; use embed(...)")
    if mu.kernel != nu.kernel:
        raise ValueError(
            f"embeddings of different kernels do not live in one space: {mu.kernel!r} and "
            f"{nu.kernel!r}; embed both with the same kernel"
        )
    expected, names = getattr(mu, "names", None), getattr(nu, "names", None)
    if not isinstance(nu, Weighted) or names == expected or isinstance(nu.points, Mapping):
        return nu
    if names is None or expected is None or len(names) == len(expected) == 1:  # labels
        return nu
    points = points_in_order(nu.points, names, expected, "the second embedding")
    return replace(nu, points=points, names=expected)
