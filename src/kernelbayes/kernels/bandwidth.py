"""Kernels with a bandwidth, and the median heuristic for it."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from scipy.spatial.distance import pdist

from kernelbayes.arrays import Array, Floats, NumericalWarning, like, namespace, to_numpy
from kernelbayes.kernels.base import Kernel, positive, scalar
from kernelbayes.points import Points, PointsLike, count, take

# Points whose pairs the median heuristic looks at: two million distances, of which the median has
# a relative standard error of about one percent.
MEDIAN_POINTS = 2000


@dataclass(frozen=True, eq=False)
class Bandwidth(Kernel):
    """A kernel with a bandwidth, and the median heuristic for it."""

    bandwidth: float | tuple[float, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "bandwidth", positive(self.bandwidth, "bandwidth"))

    @classmethod
    def median(
        cls, X: PointsLike, scale: float = 1.0, per_dimension: bool = False, **parameters: Any
    ) -> Self:
        """Kernel whose bandwidth is ``scale`` times the median distance between points of X.

        Parameters
        ----------
        X : points, shape (n, d)
            Beyond 2000 points a fixed random subset of 2000 is used.
        scale : float
            Multiplies the median.
        per_dimension : bool
            One bandwidth per dimension: the median of each coordinate's distances, enlarged so
            that the kernel between typical points does not shrink as dimensions are added.
        **parameters
            Other parameters of the kernel, e.g. ``nu``.

        When more than half of all pairs coincide, the median of the other distances is used; when
        all do, the bandwidth is ``scale``. Both are reported by a ``NumericalWarning``.
        """
        scale = scalar(scale, "scale")
        kernel = cls(1.0, **parameters)
        X = kernel.points(X)
        if count(X) > MEDIAN_POINTS:
            keep = np.random.default_rng(0).choice(count(X), MEDIAN_POINTS, replace=False)
            X = take(X, keep)
        U = np.asarray(to_numpy(kernel._coordinates(X)), dtype=np.float64)
        if not per_dimension:
            return cls(scale * _median_distance(U, kernel._metric), **parameters)
        d = kernel._dimension(X)
        columns = U.reshape(len(U), -1, d)  # (n, coordinates per dimension, d)
        enlarge = d if kernel._metric == "cityblock" else math.sqrt(d)
        medians = [_median_distance(columns[:, :, j], kernel._metric) for j in range(d)]
        return cls(tuple(scale * enlarge * m for m in medians), **parameters)

    @property
    def _metric(self) -> str:
        return "euclidean"

    def _dimension(self, X: Points) -> int:
        return int(X.shape[1])

    def _coordinates(self, X: Points) -> Array:
        """Coordinates in units of the bandwidth."""
        return self._in_bandwidths(X)

    def _in_bandwidths(self, X: Array) -> Array:
        if isinstance(self.bandwidth, float):
            return X / self.bandwidth
        if X.shape[1] != len(self.bandwidth):
            raise ValueError(
                f"{type(self).__name__} has {len(self.bandwidth)} bandwidths, "
                f"but the points have {X.shape[1]} dimensions"
            )
        return X / like(self.bandwidth, X)

    def _diag(self, X: Points) -> Array:
        U = self._coordinates(X)
        return namespace(U).ones_like(U[:, 0])


def _median_distance(U: Floats, metric: str) -> float:
    distances = pdist(U, metric)
    median = float(np.median(distances)) if distances.size else 0.0
    if 0.0 < median < math.inf:
        return median
    distances = distances[(distances > 0) & np.isfinite(distances)]
    if distances.size:
        warnings.warn(
            "most points coincide: the median distance is zero, so the median of the positive "
            "distances is the bandwidth",
            NumericalWarning,
            stacklevel=4,
        )
        return float(np.median(distances))
    warnings.warn(
        "all points coincide: there is no scale in the data, so the bandwidth is set to 1",
        NumericalWarning,
        stacklevel=4,
    )
    return 1.0
