r"""Tests in linear time: independent quadruples, blocks, random features.

=============  ===============================  ====================  =============================
method         statistic                        time                  null distribution
=============  ===============================  ====================  =============================
``linear``     mean over disjoint quadruples    n                     normal (t) law of a mean
``block``      mean of unbiased estimates over  n block_size (1 + B)  permutations within each block
               disjoint blocks                                        (exact level)
``features``   squared distance of the mean     n rank^2              weighted sum of chi-squares,
               features                                               weights from the covariance
=============  ===============================  ====================  =============================

Power rises down the table. Points are shuffled before they are put into quadruples or blocks, so
that the order of the rows carries no information.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy import stats

from kernelbayes.arrays import NumericalWarning, namespace, row_blocks
from kernelbayes.compare.nulls import as_float64, check_sizes, diagonal, pvalue
from kernelbayes.compare.pairs import Variable, products, unbiased
from kernelbayes.compare.random_features import Options, hsic_features, mmd_features
from kernelbayes.compare.results import (
    TIES,
    Floats,
    KernelTestResult,
    power_of,
    relative_effect,
)
from kernelbayes.compare.sums import Pooled
from kernelbayes.gram import Dense
from kernelbayes.kernels import (
    Gaussian,
    Kernel,
    Laplace,
    Matern,
    Product,
    RationalQuadratic,
    Scaled,
    Sum,
)
from kernelbayes.points import Points, concatenate, count, take

# Points of a block unless given: large enough for most of the power, small enough to stay linear.
MOST_IN_BLOCK = 64
# Largest effect: a distance has none, a correlation is at most one.
MOST = {"MMD": np.inf, "HSIC": 1.0}


def mmd(
    X: Points, Y: Points, kernel: Kernel, method: str, options: Options, details: dict[str, Any]
) -> KernelTestResult:
    """Two-sample test by one of the methods of this module."""
    run = {"linear": mmd_linear, "block": mmd_block, "features": mmd_features}[method]
    return run(X, Y, kernel, options, details)


def hsic(
    X: Points,
    Z: Points,
    kernels: tuple[Kernel, Kernel],
    method: str,
    options: Options,
    details: dict[str, Any],
) -> KernelTestResult:
    """Independence test by one of the methods of this module."""
    run = {"linear": hsic_linear, "block": hsic_block, "features": hsic_features}[method]
    return run(X, Z, kernels, options, details)


# --- quadruples ----------------------------------------------------------------------------------


def mmd_linear(
    X: Points, Y: Points, kernel: Kernel, options: Options, details: dict[str, Any]
) -> KernelTestResult:
    """Mean of h = k(x, x') + k(y, y') - k(x, y') - k(x', y) (Gretton et al. 2012, Lemma 14)."""
    q = min(count(X), count(Y)) // 2
    check_sizes(4, **{"the smaller sample": min(count(X), count(Y))})
    x1, x2 = _disjoint(X, 2, q, options.rng)
    y1, y2 = _disjoint(Y, 2, q, options.rng)
    xx, yy = paired_values(kernel, x1, x2), paired_values(kernel, y1, y2)
    h = xx + yy - paired_values(kernel, x1, y2) - paired_values(kernel, x2, y1)
    own = np.concatenate([diagonal(kernel, x1), diagonal(kernel, y1)])
    spread = float(own.mean() - 0.5 * (xx.mean() + yy.mean()))
    sizes = (count(X), count(Y))
    scale = float(np.abs(own).max())
    return _mean_result(h, spread, scale, kernel, "MMD", sizes, options, details)


def hsic_linear(
    X: Points,
    Z: Points,
    kernels: tuple[Kernel, Kernel],
    options: Options,
    details: dict[str, Any],
) -> KernelTestResult:
    r"""Mean over quadruples of pairs of h = d_k d_l / 4, an unbiased estimate of HSIC.

    d_k = k(x_1, x_2) + k(x_3, x_4) - k(x_1, x_3) - k(x_2, x_4): of the 16 products in d_k d_l four
    have both pairs in common, eight one point, and four none, which is HSIC's expansion.
    """
    n = count(X)
    check_sizes(8, **{"the sample of pairs": n})
    order = options.rng.permutation(n)[: n // 4 * 4].reshape(4, -1)
    differences, spreads, scales = [], [], []
    for points, kernel in ((X, kernels[0]), (Z, kernels[1])):
        a, b, c, d = (take(points, rows) for rows in order)
        first, second = paired_values(kernel, a, b), paired_values(kernel, c, d)
        delta = first + second - paired_values(kernel, a, c) - paired_values(kernel, b, d)
        differences.append(delta)
        spreads.append(float(np.mean(delta**2)) / 4.0)  # HSIC of the variable with itself
        scales.append(float(np.abs(diagonal(kernel, a)).max()))
    h = 0.25 * differences[0] * differences[1]
    spread = math.sqrt(spreads[0] * spreads[1])
    return _mean_result(h, spread, math.prod(scales), kernels, "HSIC", (n,), options, details)


def _mean_result(
    h: Floats,
    spread: float,
    scale: float,
    kernel: Any,
    test: str,
    sizes: tuple[int, ...],
    options: Options,
    details: dict[str, Any],
) -> KernelTestResult:
    """One-sided t test that the mean of independent h is zero."""
    q, statistic = len(h), float(h.mean())
    error = float(h.std(ddof=1)) / math.sqrt(q)
    quantiles = (np.arange(options.permutations) + 0.5) / options.permutations
    if max(error, abs(statistic)) <= TIES * scale:
        _warn_constant()
        p, null = 1.0, np.zeros(options.permutations)
    else:
        error = max(error, 1e-15 * scale)
        p = float(stats.t.sf(statistic / error, q - 1))
        null = error * np.asarray(stats.t.ppf(quantiles, q - 1))
    spread = max(spread, np.finfo(float).tiny)
    effect = relative_effect(statistic, spread, error / spread, scale, MOST[test])
    power = power_of(statistic, null, error, options.level, scale)
    return KernelTestResult(
        *(statistic, p, null, kernel, effect, power),
        *(options.level, test, "linear", sizes),
        details={"quadruples": q, **details},
    )


def _warn_constant() -> None:
    warnings.warn(
        "the points are constant to the kernel: the p-value is 1", NumericalWarning, stacklevel=6
    )


def _disjoint(points: Points, parts: int, size: int, rng: np.random.Generator) -> list[Points]:
    order = rng.permutation(count(points))[: parts * size].reshape(parts, size)
    return [take(points, rows) for rows in order]


def paired_values(kernel: Kernel, X: Points, Y: Points) -> Floats:
    """Return the values k(x_i, y_i), shape (n,), without the Gram matrix."""
    if isinstance(kernel, Sum):
        return paired_values(kernel.left, X, Y) + paired_values(kernel.right, X, Y)
    if isinstance(kernel, Product):
        return paired_values(kernel.left, X, Y) * paired_values(kernel.right, X, Y)
    if isinstance(kernel, Scaled):
        return kernel.factor * paired_values(kernel.kernel, X, Y)
    if isinstance(kernel, Gaussian | Laplace | Matern | RationalQuadratic):
        D = X - Y  # the kernel depends on the difference only
        return as_float64(kernel(D, namespace(D).zeros_like(D[:1, ...]))[:, 0])
    parts = []
    for rows in row_blocks(count(X), 1, entries=1024 if kernel.finite else 16):
        x, y = take(X, rows), take(Y, rows)
        if kernel.finite:
            F, H = as_float64(kernel.features(x)), as_float64(kernel.features(y))
            parts.append(np.einsum("ij,ij->i", F, H))
        else:
            parts.append(as_float64(kernel(x, y)).diagonal())
    return np.concatenate(parts)


# --- blocks --------------------------------------------------------------------------------------


def mmd_block(
    X: Points, Y: Points, kernel: Kernel, options: Options, details: dict[str, Any]
) -> KernelTestResult:
    """Mean of the unbiased MMD^2 over blocks that share both samples out evenly."""
    sizes = count(X), count(Y)
    q = _blocks(min(sizes), options.block_size, 2)
    bx, by = (n // q for n in sizes)
    observed = np.arange(bx + by) < bx
    spreads = []

    def estimates() -> Iterator[Floats]:
        orders = [options.rng.permutation(n) for n in sizes]
        for i in range(q):
            points = [
                take(P, order[i * b : (i + 1) * b])
                for P, order, b in zip((X, Y), orders, (bx, by), strict=True)
            ]
            G = as_float64(kernel(concatenate(*points)))
            pooled = Pooled(Dense(G), G.diagonal(), np.ones(bx + by), bx)
            labels = np.tile(observed, (1 + options.permutations, 1))
            options.rng.permuted(labels[1:], axis=1, out=labels[1:])
            sums = pooled.sums(labels, G.sum(axis=1))
            spreads.append(float(sums.spread()[0]))
            yield sums.unbiased()

    total, values = _accumulate(estimates())
    scale = float(np.abs(diagonal(kernel, take(X, slice(0, bx)))).max())
    details = {"blocks": q, "block_size": min(bx, by), **details}
    return _block_result(
        total, values, float(np.mean(spreads)), scale, kernel, "MMD", sizes, options, details
    )


def hsic_block(
    X: Points,
    Z: Points,
    kernels: tuple[Kernel, Kernel],
    options: Options,
    details: dict[str, Any],
) -> KernelTestResult:
    """Mean of the unbiased HSIC over blocks of pairs."""
    n = count(X)
    q = _blocks(n, options.block_size, 5)
    size = n // q
    own: list[Floats] = []

    def estimates() -> Iterator[Floats]:
        order = options.rng.permutation(n)
        identity = np.arange(size)[None]
        for i in range(q):
            rows = order[i * size : (i + 1) * size]
            x, z = (
                Variable(Dense(G), G.diagonal())
                for G in (
                    as_float64(k(take(P, rows))) for k, P in zip(kernels, (X, Z), strict=True)
                )
            )
            moves = np.tile(np.arange(size), (1 + options.permutations, 1))
            options.rng.permuted(moves[1:], axis=1, out=moves[1:])
            same = [unbiased(products([v], [v], identity)[0, 0], v, v, identity)[0] for v in (x, z)]
            own.append(np.array(same))
            yield unbiased(products([x], [z], moves)[0, 0], x, z, moves)

    total, values = _accumulate(estimates())
    first = (diagonal(k, take(P, slice(0, size))) for k, P in zip(kernels, (X, Z), strict=True))
    tops = np.array([float(np.abs(d).max()) for d in first])
    scale, within = float(tops.prod()), np.mean(own, axis=0)
    # The root of a rounding error would be large beside one.
    spread = math.sqrt(math.prod(np.where(within > TIES * tops**2, within, 0.0)))
    details = {"blocks": q, "block_size": size, **details}
    return _block_result(total, values, spread, scale, kernels, "HSIC", (n,), options, details)


def _blocks(n: int, size: int | None, least: int) -> int:
    """Return the number of blocks of at least ``size`` points."""
    if size is None:
        size = max(least, min(math.isqrt(n), MOST_IN_BLOCK))
    if isinstance(size, bool) or not isinstance(size, int | np.integer) or size < least:
        raise ValueError(f"block_size must be an integer of at least {least}, got {size!r}")
    if n < 2 * size:
        raise ValueError(
            f"{n} points make fewer than two blocks of {size}; use method='permutation'"
        )
    return n // size


def _accumulate(estimates: Iterator[Floats]) -> tuple[Floats, Floats]:
    """Mean over blocks of the statistics (1 + B,), and the observed one of every block."""
    total, observed = np.zeros(1), []
    for values in estimates:
        total = total + values
        observed.append(float(values[0]))
    return total / len(observed), np.array(observed)


def _block_result(
    total: Floats,
    values: Floats,
    spread: float,
    scale: float,
    kernel: Any,
    test: str,
    sizes: tuple[int, ...],
    options: Options,
    details: dict[str, Any],
) -> KernelTestResult:
    statistic, null = float(total[0]), total[1:]
    error = float(values.std(ddof=1)) / math.sqrt(len(values))
    if np.ptp(total) <= TIES * scale:
        _warn_constant()
    spread = max(spread, np.finfo(float).tiny)
    effect = relative_effect(statistic, spread, error / spread, scale, MOST[test])
    power = power_of(statistic, null, error, options.level, scale)
    return KernelTestResult(
        *(statistic, pvalue(statistic, null, scale), null, kernel),
        *(effect, power, options.level),
        *(test, "block", sizes),
        details=details,
    )
