r"""Null distributions: permutations, the gamma law with the exact moments of a permutation.

A permutation p-value is ``(1 + #{null >= statistic}) / (1 + B)``. The observed sample counts as
one of the permutations, so that under the null hypothesis ``P(pvalue <= a) <= a`` for every sample
size and every B (Phipson and Smyth 2010). Ties count against rejection, up to rounding. When there
are no more than B permutations in all, each is used once and the p-value is exact.
"""

from __future__ import annotations

import itertools
import math
import reprlib
import warnings
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal, get_args

import numpy as np
from scipy import stats

from kernelbayes.arrays import NumericalWarning, to_numpy
from kernelbayes.compare.results import TIES, Floats
from kernelbayes.gram import Dense, Gram, LowRank, gram
from kernelbayes.gram.features import partial_cholesky
from kernelbayes.kernels import Kernel
from kernelbayes.kernels.default import default_kernel
from kernelbayes.points import (
    Points,
    as_array,
    as_vectors,
    column_names,
    concatenate,
    count,
    is_frame,
    take,
)

Method = Literal["permutation", "gamma", "wild", "linear", "block", "features"]
# Relative trace error up to which a pivoted Cholesky factor stands for a Gram matrix. It moves a
# statistic by about this share of its null mean, far below what a permutation can resolve.
FACTOR_TOL = 1e-8
# Below this size a Gram matrix costs so little that a factor is not worth looking for.
FACTOR_FROM = 400
# Entries of a Gram matrix held in memory, 4 GB of float64.
GRAM_ENTRIES = 2**29
# Entries of one block of permutations.
LABEL_ENTRIES = 2**23


def check_options(permutations: int, level: float, method: str = "permutation") -> None:
    """Raise unless the number of permutations, the level and the method make sense."""
    if isinstance(permutations, bool) or not isinstance(permutations, int | np.integer):
        raise TypeError(f"permutations must be an integer, got {type(permutations).__name__}")
    if permutations < 1:
        raise ValueError(f"permutations must be at least 1, got {permutations}")
    if not 0.0 < level < 1.0:
        raise ValueError(f"level must lie between 0 and 1, got {level!r}")
    if method not in get_args(Method):
        raise ValueError(f"method must be one of {get_args(Method)}, got {method!r}")


def check_sizes(least: int, **sizes: int) -> None:
    """Raise unless every sample has at least ``least`` points."""
    for name, n in sizes.items():
        if n < least:
            raise ValueError(
                f"too few points: {name} has {n}, and this test needs at least {least}"
            )


def check_pairs(**points: Points) -> int:
    """Return the common number of points; raise unless the samples are aligned."""
    sizes = {name: count(part) for name, part in points.items()}
    if len(set(sizes.values())) != 1:
        raise ValueError(f"{' and '.join(sizes)} must be aligned rows, got lengths {sizes}")
    return next(iter(sizes.values()))


def kernel_list(kernels: Any, name: str, allowed: str) -> list[Kernel]:
    """Kernels of a non-empty sequence; raise with what is ``allowed`` otherwise."""
    found: list[Any] = list(kernels) if isinstance(kernels, Iterable) else [None]
    if not found:
        raise ValueError(f"{name} is empty; it must be {allowed}")
    if not all(isinstance(k, Kernel) for k in found):
        hint = "; a Gram matrix G is Custom(lambda i, j: G[i][:, j]) on indices"
        raise TypeError(
            f"{name} must be {allowed}, got {reprlib.repr(kernels)}"
            + hint * isinstance(kernels, np.ndarray)
        )
    return found


def one_space(kernel: Kernel, X: Any, Y: Any) -> tuple[Points, Points]:
    """Points of both samples; raise unless they are of one space, frames by their columns too."""
    names_x, names_y = column_names(X), column_names(Y)
    X, Y = kernel.points(X, "X"), kernel.points(Y, "Y")
    kernel.check_pair(X, Y)
    if names_x is None or names_y is None or isinstance(X, Mapping):
        return X, Y
    if names_x != names_y and len(names_x) > 1:  # a single column may have another name
        raise ValueError(
            f"X has columns {names_x}, Y {names_y}: give both the same columns in the same order"
        )
    return X, Y


def pooled_kernel(X: Any, Y: Any) -> Kernel:
    """Median heuristic on both samples together, which permutations leave as it is."""
    for sample, name in ((X, "X"), (Y, "Y")):
        if is_frame(sample):
            default_kernel(sample, name)  # refuses columns of mixed types
    first, second = as_array(X, "X"), as_array(Y, "Y")
    numeric = [not isinstance(a, np.ndarray) or a.dtype.kind in "fiu" for a in (first, second)]
    if not any(numeric):
        return default_kernel(first)
    first, second = as_vectors(first, "X"), as_vectors(second, "Y")
    if first.shape[1] != second.shape[1]:
        raise ValueError(
            f"points of one space are needed: X has {first.shape[1]} columns, Y {second.shape[1]}"
        )
    return default_kernel(concatenate(first, second))


def sample_gram(kernel: Kernel, points: Points, most: int) -> Gram:
    """Gram matrix of a sample: a factor of rank at most ``most`` if it is accurate, else whole."""
    n = count(points)
    if kernel.finite:
        found = gram(kernel, points)
        return LowRank(as_float64(found.L)) if isinstance(found, LowRank) else found
    if n >= FACTOR_FROM and most >= 1:
        # A fixed generator: the factor must not depend on, nor use up, that of the permutations.
        # Where the matrix does not fit, a factor that takes much memory and time is not looked for.
        rank = max(1, min(most, n, GRAM_ENTRIES // (4 * n)))
        _, F, error = partial_cholesky(kernel, points, rank, FACTOR_TOL, rng=0)
        if error <= FACTOR_TOL:
            return LowRank(as_float64(F))
    if n * n > GRAM_ENTRIES:
        raise ValueError(
            f"the Gram matrix of {n} points takes {8e-9 * n * n:.0f} GB; use method='features', "
            "'block' or 'linear', or a kernel with finite features such as nystrom(kernel, X, 200)"
        )
    return Dense(as_float64(kernel(points)))


def as_float64(values: Any) -> Floats:
    """NumPy array of doubles, whatever the points were."""
    return np.asarray(to_numpy(values), dtype=np.float64)


def diagonal(kernel: Kernel, points: Points) -> Floats:
    """Return the values k(x_i, x_i) as doubles."""
    return as_float64(kernel.diag(points))


def splits(n: int, m: int, permutations: int, rng: np.random.Generator) -> Iterator[Any]:
    """Blocks (b, n + m) of labels, True for the first sample; the observed split comes first."""
    observed = np.arange(n + m) < n
    if math.comb(n + m, n) <= permutations + 1:
        chosen = np.array(list(itertools.combinations(range(n + m), n)))  # the observed is first
        labels = np.zeros((len(chosen), n + m), dtype=bool)
        np.put_along_axis(labels, chosen, True, axis=1)
        yield labels
        return
    yield observed[None]
    step = max(1, LABEL_ENTRIES // (n + m))
    for start in range(0, permutations, step):
        block = np.tile(observed, (min(step, permutations - start), 1))
        yield rng.permuted(block, axis=1, out=block)


def orders(n: int, permutations: int, rng: np.random.Generator) -> Iterator[Any]:
    """Blocks (b, n) of permutations of n rows; the identity comes first."""
    if n <= 12 and math.factorial(n) <= permutations + 1:
        yield np.array(list(itertools.permutations(range(n))))
        return
    yield np.arange(n)[None]
    step = max(1, LABEL_ENTRIES // n)
    for start in range(0, permutations, step):
        block = np.tile(np.arange(n), (min(step, permutations - start), 1))
        yield rng.permuted(block, axis=1, out=block)


def pvalue(statistic: float, null: Floats, scale: float) -> float:
    """Permutation p-value; statistics closer than rounding error at ``scale`` are ties."""
    reached = int(np.count_nonzero(null >= statistic - TIES * scale))
    return (1 + reached) / (1 + len(null))


def warn_if_constant(
    null: Floats, statistic: float, scale: float, what: str, stacklevel: int = 3
) -> None:
    """Say so when no permutation changes the statistic: there is nothing to test."""
    if max(float(np.ptp(null)), abs(float(null[0]) - statistic)) <= TIES * scale:
        warnings.warn(
            f"{what}: every permutation has the same statistic, so the p-value is 1",
            NumericalWarning,
            stacklevel=stacklevel,
        )


def permutation_moments(
    first: tuple[float, float, float], second: tuple[float, float, float], n: int
) -> tuple[float, float]:
    r"""Exact mean and variance of tr(A P B P^T) over all permutations P.

    Each argument is (tr A, tr A^2, sum_i A_ii^2) of a centred symmetric matrix (n, n). From
    Kazi-Aoual, Hitier, Sabatier and Lebreton (1995), section 3.
    """
    (t, t2, s2), (u, u2, v2) = first, second
    mean = t * u / (n - 1)
    variance = (
        2.0 * ((n - 1) * t2 - t * t) * ((n - 1) * u2 - u * u) / ((n - 1) ** 2 * (n + 1) * (n - 2))
    )
    variance += (
        (n * (n + 1) * s2 - (n - 1) * (t * t + 2.0 * t2))
        * (n * (n + 1) * v2 - (n - 1) * (u * u + 2.0 * u2))
        / ((n + 1.0) * n * (n - 1) * (n - 2) * (n - 3))
    )
    return mean, max(0.0, variance)


def gamma_null(mean: float, variance: float, size: int) -> tuple[Any, Floats]:
    """Gamma law with this mean and variance, and its quantiles at (i - 1/2) / size."""
    if not (mean > 0.0 and variance > 0.0):
        return None, np.full(size, mean)
    law = stats.gamma(mean * mean / variance, scale=variance / mean)
    return law, np.asarray(law.ppf((np.arange(size) + 0.5) / size))


def matrix_moments(G: Gram) -> tuple[float, float, float]:
    """Trace, squared norm and sum of squared diagonal entries of the centred Gram matrix."""
    if isinstance(G, Dense):
        C = centred(G.G)
        d = C.diagonal()
        return float(d.sum()), float(np.vdot(C, C)), float(d @ d)
    F = centred_factor(G)
    d = np.einsum("ij,ij->i", F, F)
    M = F.T @ F
    return float(d.sum()), float(np.vdot(M, M)), float(d @ d)


def centred(G: Floats) -> Floats:
    """H G H with H = I - 1 1^T / n."""
    rows = G.mean(axis=1)
    return np.asarray(G - rows[:, None] - rows[None, :] + rows.mean())


def centred_factor(G: Gram) -> Floats:
    """Features of a factored Gram matrix minus their mean."""
    if not isinstance(G, LowRank):
        raise ValueError("too many points for this method; use method='features' or 'block'")
    return np.asarray(G.L - G.L.mean(axis=0))


def halves(points: Points, share: float, rng: np.random.Generator) -> tuple[Points, Points]:
    """Random split of a sample: ``share`` of the points, and the rest."""
    order = rng.permutation(count(points))
    cut = round(share * len(order))
    return take(points, np.sort(order[:cut])), take(points, np.sort(order[cut:]))
