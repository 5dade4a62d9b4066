r"""Tests on random features: one pass over the data, whatever its size.

With features phi of rank r the MMD is the distance of two mean vectors, and its null distribution
is a weighted sum of chi-squares with the eigenvalues of their covariance as weights,

.. math:: \|\bar\phi_X - \bar\phi_Y\|^2 \to \sum_i \lambda_i \chi^2_1, \qquad
          \lambda = \operatorname{eig}(C_X / n + C_Y / m)

and likewise for HSIC with the products of the eigenvalues of the two covariances (Zhang, Filippi,
Gretton and Sejdinovic 2018). The sums are kept for groups of rows, every 32nd in one, and the
jackknife that leaves out one group gives standard errors.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernelbayes.arrays import eigh, row_blocks, threads_for
from kernelbayes.compare.nulls import as_float64, check_sizes, pvalue, warn_if_constant
from kernelbayes.compare.results import (
    TIES,
    Effect,
    Floats,
    KernelTestResult,
    power_of,
    relative_effect,
)
from kernelbayes.gram.features import fourier, nystrom
from kernelbayes.kernels import Gaussian, Kernel, Laplace, Matern, RationalQuadratic
from kernelbayes.points import Points, concatenate, count, take

GROUPS = 32
RANK_MMD, RANK_HSIC = 100, 50
# Points from which Nystrom landmarks are drawn.
POOL = 20_000


@dataclass(frozen=True)
class Options:
    """What the large-sample methods need to know beyond the data."""

    permutations: int
    rng: np.random.Generator
    level: float
    block_size: int | None
    rank: int | None
    unbiased: bool


def feature_kernel(kernel: Kernel, points: Points, rank: int, rng: np.random.Generator) -> Kernel:
    """Kernel with about ``rank`` features: Fourier where it applies, else Nystrom."""
    if kernel.finite:
        return kernel
    if isinstance(kernel, Gaussian | Laplace | Matern | RationalQuadratic):
        return fourier(kernel, int(points.shape[1]), rank + rank % 2, rng)
    return nystrom(kernel, points, min(rank, count(points)), rng)


def _rank(options: Options, default: int) -> int:
    rank = default if options.rank is None else options.rank
    if isinstance(rank, bool) or not isinstance(rank, int | np.integer) or rank < 2:
        raise ValueError(f"rank must be an integer of at least 2, got {rank!r}")
    return int(rank)


def mmd_features(
    X: Points, Y: Points, kernel: Kernel, options: Options, details: dict[str, Any]
) -> KernelTestResult:
    """Two-sample test on the mean features."""
    n, m = count(X), count(Y)
    check_sizes(4, **{"the smaller sample": min(n, m)})
    pool = concatenate(*(take(P, slice(0, POOL)) for P in (X, Y)))
    features = feature_kernel(kernel, pool, _rank(options, RANK_MMD), options.rng)
    groups = min(GROUPS, n, m)
    x, y = (moments(features, P, groups) for P in (X, Y))
    statistic, within, spread = _mmd(x.sum(axis=0), y.sum(axis=0))
    C = _covariance(x.sum(axis=0)) / (n - 1) + _covariance(y.sum(axis=0)) / (m - 1)
    null = _chi_squares(np.maximum(eigh(C)[0], 0.0), options)
    scale = max(_trace(x), _trace(y))
    p = pvalue(statistic, null, scale)
    warn_if_constant(null, statistic, scale, "the pooled sample is constant to the kernel", 5)
    left = [_mmd(x.sum(axis=0) - x[g], y.sum(axis=0) - y[g]) for g in range(groups)]
    error = _group_error([a - b for a, b, _ in left])
    effect = _effect(statistic - within, spread, [(a - b, c) for a, b, c in left], scale)
    power = power_of(statistic, null, error, options.level, scale)
    if options.unbiased:
        statistic, null = statistic - within, null - within
    details = {"rank": x.shape[1] - 1, "features": features, **details}
    return KernelTestResult(
        *(statistic, p, null, kernel, effect, power, options.level),
        *("MMD", "features", (n, m)),
        details=details,
    )


def hsic_features(
    X: Points,
    Z: Points,
    kernels: tuple[Kernel, Kernel],
    options: Options,
    details: dict[str, Any],
) -> KernelTestResult:
    """Independence test on the cross-covariance of the features."""
    n = count(X)
    rank = _rank(options, RANK_HSIC)
    maps = [
        feature_kernel(k, take(P, slice(0, POOL)), rank, options.rng)
        for k, P in zip(kernels, (X, Z), strict=True)
    ]
    groups = min(GROUPS, n // 2)
    sums = moments(maps, (X, Z), groups)
    r = int(as_float64(maps[0].features(take(X, slice(0, 1)))).shape[1])
    statistic, within, spread, spectra = _hsic(sums.sum(axis=0), r)
    null = _chi_squares(np.outer(*spectra).ravel() / (n - 1), options)
    scale = math.prod(_trace(part) for part in (sums[:, : r + 1, : r + 1], _second(sums, r)))
    p = pvalue(statistic, null, scale)
    warn_if_constant(null, statistic, scale, "a variable is constant to its kernel", 5)
    left = [_hsic(sums.sum(axis=0) - sums[g], r)[:3] for g in range(groups)]
    error = _group_error([a - b for a, b, _ in left])
    effect = _effect(statistic - within, spread, [(a - b, c) for a, b, c in left], scale, 1.0)
    power = power_of(statistic, null, error, options.level, scale)
    if options.unbiased:
        statistic, null = statistic - within, null - within
    return KernelTestResult(
        *(statistic, p, null, kernels, effect, power, options.level),
        *("HSIC", "features", (n,)),
        details={"rank": (r, sums.shape[1] - 1 - r), "features": tuple(maps), **details},
    )


def moments(kernel: Any, points: Any, groups: int) -> Floats:
    """Add up matrices (groups, q, q) of (1, phi)(1, phi)^T over every ``groups``-th row.

    ``kernel`` and ``points`` are one kernel and its points, or two of each side by side.
    """
    kernels, samples = (kernel, points) if isinstance(kernel, list) else ([kernel], (points,))
    result: list[Floats] = []
    for group in range(groups):
        parts = [take(P, slice(group, None, groups)) for P in samples]
        total: Any = 0.0
        for rows in row_blocks(count(parts[0]), 256):
            F = [as_float64(k.features(take(P, rows))) for k, P in zip(kernels, parts, strict=True)]
            A = np.column_stack([np.ones(len(F[0])), *F])
            with threads_for(float(A.size) * A.shape[1]):
                total = total + A.T @ A
        result.append(total)
    return np.stack(result)


def _mean(M: Floats) -> Floats:
    return np.asarray(M[0, 1:] / M[0, 0])


def _covariance(M: Floats) -> Floats:
    """Covariance of the features (divided by n)."""
    mean = _mean(M)
    return np.asarray(M[1:, 1:] / M[0, 0] - np.outer(mean, mean))


def _trace(groups: Floats) -> float:
    """Mean squared norm of the features."""
    M = groups.sum(axis=0)
    return float(np.trace(M[1:, 1:]) / M[0, 0])


def _second(sums: Floats, r: int) -> Floats:
    keep = np.r_[0, r + 1 : sums.shape[1]]
    return np.asarray(sums[:, keep[:, None], keep[None, :]])


def _mmd(M: Floats, N: Floats) -> tuple[float, float, float]:
    """Squared distance of the means, its expected part from within, mean variance."""
    difference = _mean(M) - _mean(N)
    vx, vy = (float(np.trace(_covariance(A))) * A[0, 0] / (A[0, 0] - 1.0) for A in (M, N))
    return float(difference @ difference), vx / M[0, 0] + vy / N[0, 0], 0.5 * (vx + vy)


def _hsic(M: Floats, r: int) -> tuple[float, float, float, tuple[Floats, Floats]]:
    """Squared norm of the cross-covariance, its null mean, its largest size, both spectra."""
    C, n = _covariance(M), M[0, 0]
    spectra = [np.maximum(eigh(part)[0], 0.0) for part in (C[:r, :r], C[r:, r:])]
    within = math.prod(float(s.sum()) for s in spectra) / (n - 1.0)
    largest = math.sqrt(math.prod(float(s @ s) for s in spectra))
    cross = C[:r, r:]
    return float(np.vdot(cross, cross)), within, largest, (spectra[0], spectra[1])


def _chi_squares(weights: Floats, options: Options) -> Floats:
    """Draws (B,) of the weighted sum of squared normals; negligible weights join the mean."""
    weights = np.sort(weights)[::-1]
    kept = weights[weights > 1e-6 * max(float(weights[0]), np.finfo(float).tiny)]
    rest = float(weights.sum() - kept.sum())
    draws = [
        options.rng.standard_normal((rows.stop - rows.start, len(kept))) ** 2 @ kept
        for rows in row_blocks(options.permutations, max(1, len(kept)))
    ]
    return np.concatenate(draws) + rest


def _group_error(values: Any) -> float:
    return float(np.sqrt((len(values) - 1) * np.var(values)))


def _effect(
    difference: float,
    spread: float,
    left: list[tuple[float, float]],
    scale: float,
    most: float = np.inf,
) -> Effect:
    error = np.inf
    if min(s for _, s in left) > TIES * scale:
        error = _group_error([a / s for a, s in left])
    return relative_effect(difference, spread, error, scale, most)
