"""Weights and kernels of a test: checks, families of bandwidths, the choice by power."""

import math
import reprlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from scipy.spatial.distance import pdist

from kernelbayes.arrays import as_doubles, as_floats, is_frame, warn
from kernelbayes.compare.problem import Problem, check_sizes
from kernelbayes.kernels import Kernel
from kernelbayes.kernels.default import additive_kernel, default_kernel, pooled
from kernelbayes.points import concatenate, count, share, take
from kernelbayes.types import Array, Floats, Generator, Points, PointsLike

Choice = Kernel | Sequence[Kernel] | Literal["power"]
Table = tuple[dict[str, Any], ...]
# Bandwidths of the two-sample collection, in multiples of the pooled median. They, and the default
# share of centrality, were chosen for power in experiments/power (see its README).
MULTIPLES = 2.0 ** np.arange(-4.0, 3.0)
# Width of the weights of five bandwidths of one variable, from -1 (narrowest) to 1 (widest): the
# middle one has 59 %, the middle three 90 %. Chosen for power in experiments/power.
WEIGHT_WIDTH = 0.3
# Points on which the range of distances is measured: the share of distances below the 5 % quantile
# of a thousand points has a standard error of about one percent.
RANGE_POINTS = 1000
# Largest product of the kernels' values: the moments of a statistic are sums of up to n^4 of its
# squares, which stay below 1e308 for a million points.
LARGEST_SCALE = 1e140
# Ratio of the standard error to the kernel's values below which a kernel sees no variation: the
# accuracy of a Gram matrix held as a factor.
NO_VARIATION = 1e-8


def positive_weights(
    points: Points, weights: Array, name: str
) -> tuple[Points, npt.NDArray[np.float64]]:
    """Return the points of positive weight, and their weights with mean one."""
    n = count(points)
    w = as_doubles(as_floats(weights, f"the weights of {name}"))
    if w.shape != (n,):
        raise ValueError(f"the weights of {name} must have shape ({n},), got {w.shape}")
    if w.min() < 0.0:
        raise ValueError(
            f"the weights of {name} must be non-negative: a permutation could give a group no "
            "mass; compare embeddings of signed weights with mmd"
        )
    kept = np.flatnonzero(w > 0.0)
    check_sizes(2, **{f"{name} (points of positive weight)": len(kept)})
    w = w[kept]
    if w.sum() ** 2 < 4.0 * (w @ w):
        warn(f"the weights of {name} have an effective sample size below 4")
    return take(points, kept), np.asarray(w / w.mean(), dtype=np.float64)


def check_room(*variables: tuple[Kernel, Points]) -> None:
    """Raise unless the products of kernel values that a test makes leave room in a double."""
    tops = []
    for kernel, points in variables:
        with np.errstate(over="ignore"):
            tops.append(float(np.abs(as_doubles(kernel.exact.diag(points))).max()))
    if not math.prod(tops) < LARGEST_SCALE:
        sizes = " and ".join(f"{top:.0e}" for top in tops)
        raise ValueError(
            f"kernel values as large as {sizes} leave no room for the arithmetic of a test: remove "
            "outliers, rescale the data, or use a bounded kernel such as Gaussian"
        )


def check_pairs(**points: Points) -> int:
    """Return the common number of points; raise unless the samples are aligned."""
    sizes = {name: count(part) for name, part in points.items()}
    if len(set(sizes.values())) != 1:
        raise ValueError(f"{' and '.join(sizes)} must be aligned rows, got lengths {sizes}")
    return next(iter(sizes.values()))


def kernel_list(kernels: object, name: str, allowed: str) -> list[Kernel]:
    """Kernels of a non-empty sequence; raise with what is ``allowed`` otherwise."""
    found: list[Any] = list(kernels) if isinstance(kernels, Iterable) else [None]
    if not found:
        raise ValueError(f"{name} is empty; it must be {allowed}")
    if not all(isinstance(k, Kernel) for k in found):
        hint = "; a Gram matrix G is Custom(lambda i, j: G[i][:, j]) on indices"
        raise TypeError(
            f"{name} must be {allowed}, got {reprlib.repr(kernels)}"
            + hint * isinstance(kernels, np.ndarray)
            + "; a function is the kernel Custom(function)" * callable(kernels)
        )
    return found


def candidates(kernel: Choice, name: str, family: Callable[[], list[Kernel]]) -> list[Kernel]:
    """Kernels to choose from: one, those of a sequence, or for "power" those of ``family``."""
    if isinstance(kernel, Kernel):
        return [kernel]
    if isinstance(kernel, str):
        if kernel != "power":
            raise ValueError(f"{name} must be a Kernel, kernels or 'power', got {kernel!r}")
        return family()
    return kernel_list(kernel, name, "a Kernel, a non-empty sequence of them, 'power' or None")


def bandwidth_family(kernel: Kernel, points: Points, size: int) -> list[Kernel]:
    """Multiples of a kernel, bandwidths evenly spaced on a log scale over the range of distances.

    From half the 5 % quantile to twice the 95 % quantile, as the authors of MMDAgg do (Schrab et
    al. 2023); of a kernel that is no function of one distance, over two octaves to each side. A
    kernel without a bandwidth stays alone.
    """
    if kernel.scaled(2.0) == kernel:
        return [kernel]
    low, high = -2.0, 2.0
    if kernel.gaussian_bandwidth is not None:
        n = count(points)
        keep = np.random.default_rng(0).choice(n, min(n, RANGE_POINTS), replace=False)
        distances = pdist(as_doubles(take(points, keep)) / np.asarray(kernel.gaussian_bandwidth))
        distances = distances[distances > 0.0]
        if not distances.size:
            return [kernel]
        low, high = np.log2(np.quantile(distances, [0.05, 0.95]) * [0.5, 2.0])
    return [kernel.scaled(float(scale)) for scale in np.logspace(low, high, size, base=2.0)]


def pooled_kernel(X: PointsLike, Y: PointsLike, *names: str) -> Kernel:
    """Default kernel of the pooled sample; for frames the kernels of single columns are added."""
    named = any(is_frame(sample) or isinstance(sample, Mapping) for sample in (X, Y))
    both = pooled(X, Y, *names)
    return additive_kernel(both) if named else default_kernel(both)


def variable_kernel(X: PointsLike, name: str = "X") -> Kernel:
    """Default kernel of one variable; for frames of several columns theirs are added to it."""
    named = is_frame(X) or isinstance(X, Mapping)
    return additive_kernel(X, name) if named else default_kernel(X, name)


def pooled_family(X: PointsLike, Y: PointsLike) -> list[Kernel]:
    """Ten kernels over the range of distances of two samples together."""
    kernel = pooled_kernel(X, Y)
    return bandwidth_family(kernel, concatenate(kernel.points(X), kernel.points(Y)), 10)


def variable_family(points: PointsLike) -> list[Kernel]:
    """Five kernels over the range of distances of one variable."""
    kernel = variable_kernel(points)
    return bandwidth_family(kernel, kernel.points(points), 5)


def hold_out(
    samples: Mapping[str, tuple[Points, ...]], split: float, rng: Generator, least: tuple[int, int]
) -> tuple[list[Points], list[Points]]:
    """Split samples, tuples of aligned variables, into points to choose kernels on and to test.

    Both parts list the variables of all samples, each with at least ``least`` points.
    """
    split = share(split, "split")
    chosen, rest = [], []
    for name, variables in samples.items():
        n = count(variables[0])
        order, cut = rng.permutation(n), round(split * n)
        check_sizes(least[0], **{f"the part of {name} for choosing kernels": cut})
        check_sizes(least[1], **{f"the part of {name} left for the test": n - cut})
        chosen += [take(points, np.sort(order[:cut])) for points in variables]
        rest += [take(points, np.sort(order[cut:])) for points in variables]
    return chosen, rest


def most_powerful(problems: Sequence[Problem]) -> tuple[tuple[Kernel, ...], Table]:
    """Kernels of the problem with the largest ratio of its estimate to the standard error, and all.

    The ratio decides the asymptotic power (Gretton et al. 2012b, eq. 11). A kernel that sees no
    variation must not win.
    """
    rows: list[dict[str, Any]] = []
    for problem in problems:
        found, floor = problem.estimate(), NO_VARIATION * problem.scale
        error = np.inf if found.error is None else found.error
        rows.append({"kernel": problem.named, "ratio": found.value / max(error, floor)})
    best = int(np.argmax([row["ratio"] for row in rows]))
    return problems[best].kernels, tuple(rows)


def two_sample_collection(
    X: PointsLike, Y: PointsLike, kernels: Sequence[Kernel] | None
) -> tuple[list[Kernel], Floats]:
    """Kernels that are given, with equal weights; or Gaussian ones with weights of their own.

    Those are from 1/16 of the pooled median bandwidth to 4 times it, with weights in proportion: a
    wide kernel looks at few directions and loses much power if it has to share. A fine one sees
    noise in many directions, and the differences it is needed for make it extreme.
    """
    if kernels is not None:
        return _given(kernels, "kernels")
    kernel = pooled_kernel(X, Y)
    if kernel.scaled(2.0) == kernel:
        return [kernel], np.ones(1)
    return [kernel.scaled(float(scale)) for scale in MULTIPLES], MULTIPLES


def variable_collection(
    points: PointsLike, kernels: Sequence[Kernel] | None, name: str
) -> tuple[list[Kernel], Floats]:
    """Kernels that are given, with equal weights; or five, with most weight in the middle."""
    if kernels is not None:
        return _given(kernels, name)
    found = variable_family(points)
    size = len(found)
    m = (2.0 * np.arange(size) - (size - 1)) / max(1, size - 1)  # -1 to 1; alone 0
    return found, 1.0 / (1.0 + (m / WEIGHT_WIDTH) ** 2)


def _given(kernels: object, name: str) -> tuple[list[Kernel], Floats]:
    found = kernel_list(kernels, name, "a non-empty sequence of kernels")
    return found, np.ones(len(found))


def shares(weights: Array | None, prior: Floats) -> Floats:
    """Positive weights with sum one."""
    w = prior if weights is None else as_doubles(weights)
    if w.shape != prior.shape or not np.all(np.isfinite(w) & (w > 0.0)):
        raise ValueError(f"weights must be {len(prior)} positive numbers, got {weights!r}")
    return np.asarray(w / w.sum())
