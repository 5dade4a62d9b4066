"""Collections of kernels over the range of distances in the data."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.spatial.distance import pdist

from kernelbayes.arrays import Points, concatenate, count, take, to_numpy
from kernelbayes.compare.nulls import pooled_kernel
from kernelbayes.compare.results import Floats
from kernelbayes.conditional import default_kernel
from kernelbayes.kernels import Gaussian, Kernel, Laplace
from kernelbayes.select import rescaled

# Multiples of the default bandwidth for kernels that are not made for vectors.
SCALES = (0.25, 0.5, 1.0, 2.0, 4.0)
# Points on which the range of distances is measured.
RANGE_POINTS = 1000


def default_collection(X: Any, Y: Any = None, size: int = 10) -> list[Kernel]:
    """Kernels over the range of distances, of both samples pooled if there are two.

    Symmetric in the points, as permutations need: the collection does not see the labels.
    """
    kernel = default_kernel(X) if Y is None else pooled_kernel(X, Y)
    if not isinstance(kernel, Gaussian):
        return [kernel]
    gaussian = bandwidth_family(kernel, X, Y, size)
    return gaussian if Y is None else gaussian + bandwidth_family(Laplace(1.0), X, Y, size)


def bandwidth_family(kernel: Kernel, X: Any, Y: Any, size: int) -> list[Kernel]:
    """Kernels of one family, bandwidths evenly spaced on a log scale over the distances' range."""
    if not isinstance(kernel, Gaussian | Laplace):
        family = [rescaled(kernel, scale) for scale in SCALES]
        return family if family[0] != kernel else [kernel]
    points = kernel.points(X) if Y is None else concatenate(kernel.points(X), kernel.points(Y))
    distances = _distances(points, "cityblock" if isinstance(kernel, Laplace) else "euclidean")
    if not distances.size:
        return [kernel]
    low, high = np.quantile(distances, [0.05, 0.95])
    scales = np.geomspace(0.5 * low, 2.0 * high, size)
    return [type(kernel)(float(scale)) for scale in scales]


def _distances(points: Points, metric: str) -> Floats:
    """Positive distances among a fixed random subset."""
    n = count(points)
    keep = np.random.default_rng(0).choice(n, min(n, RANGE_POINTS), replace=False)
    found = pdist(np.asarray(to_numpy(take(points, keep)), dtype=np.float64), metric)
    return np.asarray(found[found > 0.0])
