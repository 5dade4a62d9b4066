"""What every question shares: vectors, weights that are a distribution, and shapes of answers."""

from __future__ import annotations

import warnings
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np

from kernelbayes.arrays import Array, NumericalWarning, like, to_numpy
from kernelbayes.embedding.simplex import project_simplex
from kernelbayes.gram.features import partial_cholesky
from kernelbayes.kernels import Kernel
from kernelbayes.points import Points, as_vectors

# Rank and relative trace error of the features in which weights are projected on the simplex.
PROJECTION_RANK = 300
PROJECTION_TOLERANCE = 1e-8

# Weights whose sum is below this, or below this share of their sizes, say nothing: to divide them
# by the sum would magnify rounding.
LEAST_MASS = 1e-8
LEAST_SHARE = 1e-3

Validity = bool | Literal["projected", "rearranged", "clipped", "raw"]
VALIDITIES = ("projected", "rearranged", "clipped", "raw")


class WeightedSample:
    """Points with weights (n,), or (m, n) for a batch, and a kernel."""

    points: Points
    weights: Array
    kernel: Kernel
    names: tuple[str, ...] | None

    if TYPE_CHECKING:

        def __call__(self, X: Any) -> Array:
            """Evaluate at points X."""

        def normalized(self) -> Self:
            """Divide the weights by their sum."""

        def norm(self) -> Array:
            """RKHS norm."""

        def inner(self, other: Any) -> Array:
            """RKHS inner product."""

    def valid(self) -> Self:
        """Embedding whose weights are not negative and sum to one, closest in RKHS distance."""
        return replace(self, weights=self._projected)  # type: ignore[type-var]

    @property
    def _single(self) -> bool:
        return bool(self.weights.ndim == 1)

    @property
    def _vectors(self) -> Array:
        try:
            return as_vectors(self.points, "points")
        except (TypeError, ValueError) as error:
            raise TypeError(
                "this question needs points in R^d; use expect(f) or prob(predicate)"
            ) from error

    @cached_property
    def _projected(self) -> Array:
        weights = np.atleast_2d(np.asarray(to_numpy(self.weights), dtype=np.float64))
        sums = weights.sum(axis=1, keepdims=True)
        if np.all(weights >= 0) and np.all(sums > 0):
            return self._answer(weights / sums)
        missed = 0.0
        if self.kernel.finite:
            F = to_numpy(self.kernel.features(self.points))
        else:
            rank = min(PROJECTION_RANK, weights.shape[1])
            _, F, error = partial_cholesky(self.kernel, self.points, rank, PROJECTION_TOLERANCE, 0)
            missed = error * float(np.mean(to_numpy(self.kernel.diag(self.points))))
        return self._answer(project_simplex(np.asarray(F, dtype=np.float64), weights, missed))

    def _distribution(self, valid: Validity) -> np.ndarray[Any, Any]:
        """Weights (m, n) that sum to one, m = 1 for one embedding."""
        kind = validity(valid)
        if kind == "projected":
            weights = self._projected
        elif kind in ("raw", "rearranged") and self._lost.any():
            W = np.atleast_2d(np.asarray(to_numpy(self.weights), dtype=np.float64))
            sums = np.where(self._lost, 1.0, W.sum(axis=1))[:, None]
            weights = np.where(self._lost[:, None], 1.0 / W.shape[1], W / sums)
            self._warn_lost()
        elif kind == "clipped":
            W = np.atleast_2d(np.asarray(to_numpy(self.weights), dtype=np.float64))
            W = np.maximum(W, 0.0)
            sums = W.sum(axis=1, keepdims=True)
            if np.any(sums <= 0):
                self._warn_lost()
                W, sums = np.where(sums <= 0, 1.0, W), np.where(sums <= 0, W.shape[1], sums)
            return np.asarray(W / sums)
        else:
            weights = self.normalized().weights
        if kind == "rearranged":
            # Weights that nearly cancel (an effective sample size below one) have a distribution
            # function that is all noise.
            weights = np.atleast_2d(np.asarray(to_numpy(weights), dtype=np.float64))
            noise = np.einsum("ij,ij->i", weights, weights) > 1.0 + 1e-9
            if noise.any():
                closest = np.atleast_2d(to_numpy(self._projected))
                weights = np.where(noise[:, None], closest, weights)
        return np.atleast_2d(np.asarray(to_numpy(weights), dtype=np.float64))

    @property
    def _lost(self) -> Any:
        """Which members (m,) have weights that sum to nothing, or nearly cancel."""
        W = np.atleast_2d(np.asarray(to_numpy(self.weights), dtype=np.float64))
        sums, sizes = W.sum(axis=1), np.abs(W).sum(axis=1)
        return ~((sums > LEAST_SHARE * sizes) & (sums > LEAST_MASS))

    def _warn_lost(self) -> None:
        warnings.warn(
            f"{max(int(self._lost.sum()), 1)} of {len(self._lost)} embeddings have no mass to "
            "speak of (far from the sample?); all points count alike there",
            NumericalWarning,
            stacklevel=4,
        )

    def _answer(self, rows: Any) -> Array:
        """Answers (m, ...) as an array of the weights' kind; one embedding has no leading axis."""
        rows = np.asarray(rows)
        answer = like(rows[0] if self._single else rows, self.weights)
        return answer[()] if isinstance(answer, np.ndarray) else answer  # a number, not 0-d


def validity(valid: Validity, default: str = "projected") -> Any:
    """Name of a way to make answers valid; True is a question's default, False the raw weights."""
    if isinstance(valid, bool | np.bool_):
        return default if valid else "raw"
    if valid not in VALIDITIES:
        raise ValueError(f"valid must be True, False or one of {VALIDITIES}, got {valid!r}")
    return valid
