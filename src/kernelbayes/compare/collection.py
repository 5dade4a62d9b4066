"""Collections of kernels over the range of distances in the data, and the choice of a pair."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from scipy.spatial.distance import pdist

from kernelbayes.arrays import to_numpy
from kernelbayes.compare.nulls import check_pairs, check_sizes, kernel_list, pooled_kernel
from kernelbayes.compare.pairs import jackknife, left_out, variable
from kernelbayes.compare.results import Floats
from kernelbayes.kernels import Gaussian, Kernel
from kernelbayes.kernels.default import default_kernel
from kernelbayes.points import Points, concatenate, count, take

# Points on which the range of distances is measured.
RANGE_POINTS = 1000


def two_sample_collection(X: Any, Y: Any) -> tuple[list[Kernel], Floats]:
    """Gaussian kernels from 1/16 of the pooled median bandwidth to 4 times it, and their weights.

    Weights are proportional to bandwidths: a wide kernel has few directions to look at, means above
    all, and loses much power if it has to share. A fine one sees noise in many directions, and what
    it is needed for makes it extreme. Symmetric in the points, as permutations need.
    """
    kernel = pooled_kernel(X, Y)
    if not isinstance(kernel, Gaussian):
        return [kernel], np.ones(1)
    scales = 2.0 ** np.arange(-4.0, 3.0)
    return [kernel.scaled(float(scale)) for scale in scales], scales


def variable_collection(points: Any) -> tuple[list[Kernel], Floats]:
    """Five Gaussian kernels over the range of distances; weights fall off from the middle."""
    kernels = bandwidth_family(default_kernel(points), points, None, 5)
    size = len(kernels)
    m = (2.0 * np.arange(size) - (size - 1)) / max(1, size - 1)  # -1 to 1; alone 0
    return kernels, 1.0 / (1.0 + (m / 0.3) ** 2)


def bandwidth_family(kernel: Kernel, X: Any, Y: Any, size: int) -> list[Kernel]:
    """Gaussian kernels, bandwidths evenly spaced on a log scale over the range of distances.

    From half the 5 % quantile to twice the 95 % quantile. Any other kernel stays alone.
    """
    if not isinstance(kernel, Gaussian):
        return [kernel]
    points = kernel.points(X) if Y is None else concatenate(kernel.points(X), kernel.points(Y))
    distances = _distances(points)
    if not distances.size:
        return [kernel]
    low, high = np.quantile(distances, [0.05, 0.95])
    scales = np.geomspace(0.5 * low, 2.0 * high, size)
    return [Gaussian(float(scale)) for scale in scales]


Choice = Kernel | Sequence[Kernel] | Literal["power"] | None


def choose_kernels(
    X: Any, Z: Any, kernel_x: Choice, kernel_z: Choice, split: float, rng: np.random.Generator
) -> tuple[Points, Points, Kernel, Kernel, dict[str, Any]]:
    """Pair of kernels with the largest ratio of HSIC to its standard error on a part of the pairs.

    Returns the other part of the pairs, the kernels, and the ratios.
    """
    if not 0.0 < split < 1.0:
        raise ValueError(f"split is the share used to choose kernels, in (0, 1), got {split!r}")
    kernels_x, kernels_z = _choices(kernel_x, X, "kernel_x"), _choices(kernel_z, Z, "kernel_z")
    X, Z = kernels_x[0].points(X, "X"), kernels_z[0].points(Z, "Z")
    n = check_pairs(X=X, Z=Z)
    order = rng.permutation(n)
    choosing, testing = np.sort(order[: round(split * n)]), np.sort(order[round(split * n) :])
    check_sizes(6, **{"the part of the pairs for choosing kernels": len(choosing)})
    check_sizes(5, **{"the part of the pairs left for the test": len(testing)})
    xs, zs = (
        [variable(kernel, take(points, choosing)) for kernel in kernels]
        for points, kernels in ((X, kernels_x), (Z, kernels_z))
    )
    rows: list[dict[str, Any]] = []
    for a, x in zip(kernels_x, xs, strict=True):
        for b, z in zip(kernels_z, zs, strict=True):
            value, without = left_out(x, z)
            floor = 1e-8 * float(np.abs(x.diag).max() * np.abs(z.diag).max())
            # A kernel that sees no variation must not win.
            rows.append({"kernel": (a, b), "ratio": value / max(jackknife(without), floor)})
    best_x, best_z = max(rows, key=lambda row: row["ratio"])["kernel"]
    details = {"chosen_from": tuple(rows)}
    return take(X, testing), take(Z, testing), best_x, best_z, details


def _choices(kernel: Choice, points: Any, name: str) -> list[Kernel]:
    if kernel is None or isinstance(kernel, Kernel):
        return [default_kernel(points) if kernel is None else kernel]
    if isinstance(kernel, str):
        if kernel != "power":
            raise ValueError(f"{name} must be a Kernel, kernels or 'power', got {kernel!r}")
        return bandwidth_family(default_kernel(points), points, None, 5)
    return kernel_list(kernel, name, "a Kernel, a non-empty sequence of them, 'power' or None")


def _distances(points: Points) -> Floats:
    """Positive distances among a fixed random subset."""
    n = count(points)
    keep = np.random.default_rng(0).choice(n, min(n, RANGE_POINTS), replace=False)
    found = pdist(np.asarray(to_numpy(take(points, keep)), dtype=np.float64))
    return np.asarray(found[found > 0.0])
