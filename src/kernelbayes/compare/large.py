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

With features phi of rank r the MMD is the distance of two mean vectors, and its null distribution
is a weighted sum of chi-squares with the eigenvalues of their covariance as weights,

.. math:: \|\bar\phi_X - \bar\phi_Y\|^2 \to \sum_i \lambda_i \chi^2_1, \qquad
          \lambda = \operatorname{eig}(C_X / n + C_Y / m)

and likewise for HSIC with the products of the eigenvalues of the two covariances (Zhang, Filippi,
Gretton and Sejdinovic 2018). The sums are kept for groups of rows, every 32nd in one, and the
jackknife that leaves out one group gives standard errors.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
from scipy import stats

from kernelbayes.arrays import as_doubles, row_blocks, threads_for
from kernelbayes.compare.nulls import TIES
from kernelbayes.compare.problem import Estimate, Options, Outcome, Problem, check_sizes, jackknife
from kernelbayes.gram.features import cheap_features
from kernelbayes.gram.lapack import eigenvalues
from kernelbayes.kernels import Kernel
from kernelbayes.points import concatenate, count, integer, take
from kernelbayes.types import Array, Floats, Generator, Ints, Points

# Points of a block unless given: sqrt(n), as Zaremba et al. (2013) take, but no more than this, so
# that the time stays linear in n.
MOST_IN_BLOCK = 64
# Groups of rows of the jackknife: it then has 31 degrees of freedom, and the t quantile of an
# interval is within 4 % of the normal one.
GROUPS = 32
# Features unless given, of the kernel of two samples and of each of two variables: the powers in
# experiments/power are measured with these.
RANKS = {1: 100, 2: 50}
# Points among which Nystrom landmarks are drawn: many times the number of landmarks.
POOL = 20_000
# Chi-squares of a smaller weight, relative to the largest, join the mean: a million of them have
# a deviation of a thousandth of the largest one's.
NEGLIGIBLE = 1e-6
# Relative rounding error of one term h: a sum of four kernel values.
TERM_ROUNDING = 1e-15


def linear(problem: Problem, options: Options) -> Outcome:
    """One-sided t test that the mean of h over disjoint quadruples is zero."""
    orders = [options.rng.permutation(n) for n in problem.sizes]
    h, own, tops = (_quadruples if len(orders) == 2 else _pairs_of_pairs)(problem, orders)
    q, statistic, scale = len(h), float(h.mean()), float(tops.prod())
    error = float(h.std(ddof=1)) / math.sqrt(q)
    p, null = 1.0, np.zeros(options.permutations)
    if max(error, abs(statistic)) > TIES * scale:
        error = max(error, TERM_ROUNDING * scale)
        p = float(stats.t.sf(statistic / error, q - 1))
        quantiles = (np.arange(options.permutations) + 0.5) / options.permutations
        null = error * np.asarray(stats.t.ppf(quantiles, q - 1))
    spread = _spread(own, tops)
    estimate = Estimate(statistic, spread, error, error / spread)
    return Outcome(statistic, null, estimate, scale, {"quadruples": q}, p)


def _quadruples(problem: Problem, orders: Sequence[Ints]) -> tuple[Floats, Floats, Floats]:
    """H of Gretton et al. (2012), Lemma 14, the variance in feature space, the largest k(x, x)."""
    q, (kernel,) = min(problem.sizes) // 2, problem.kernels
    check_sizes(4, **{"the smaller sample": min(problem.sizes)})
    (x1, x2), (y1, y2) = (
        [take(points, rows) for rows in order[: 2 * q].reshape(2, q)]
        for (points,), order in zip(problem.samples, orders, strict=True)
    )
    pairs = (x1, x2), (y1, y2), (x1, y2), (x2, y1)  # the points are checked
    xx, yy, xy, yx = (as_doubles(kernel._paired(*pair)) for pair in pairs)
    h = xx + yy - xy - yx
    own = np.concatenate([as_doubles(kernel.diag(x1)), as_doubles(kernel.diag(y1))])
    spread = own.mean() - 0.5 * (xx.mean() + yy.mean())
    return h, np.array([spread]), np.abs(own).max(keepdims=True)


def _pairs_of_pairs(problem: Problem, orders: Sequence[Ints]) -> tuple[Floats, Floats, Floats]:
    r"""H = d_x d_y / 4, an unbiased estimate of HSIC; of each variable HSIC with itself, and scale.

    d = k(x_1, x_2) + k(x_3, x_4) - k(x_1, x_3) - k(x_2, x_4): of the 16 products in d_x d_y four
    have both pairs in common, eight one point, and four none, which is HSIC's expansion.
    """
    (n,), (order,) = problem.sizes, orders
    check_sizes(8, **{"the sample of pairs": n})
    quadruples = order[: n // 4 * 4].reshape(4, -1)
    differences, tops = [], []
    for points, kernel in zip(problem.samples[0], problem.kernels, strict=True):
        a, b, c, d = (take(points, rows) for rows in quadruples)
        pairs = (a, b), (c, d), (a, c), (b, d)
        ab, cd, ac, bd = (as_doubles(kernel._paired(*pair)) for pair in pairs)
        differences.append(ab + cd - ac - bd)
        tops.append(float(np.abs(as_doubles(kernel.diag(a))).max()))
    x, y = differences
    return 0.25 * x * y, 0.25 * np.array([np.mean(x**2), np.mean(y**2)]), np.array(tops)


def block(problem: Problem, options: Options) -> Outcome:
    """Mean of the unbiased statistic over blocks that share all samples out evenly."""
    rng, sizes = options.rng, problem.sizes
    n, size = min(sizes), options.block_size
    size = max(problem.least, min(math.isqrt(n), MOST_IN_BLOCK)) if size is None else size
    size = integer(size, "block_size", problem.least)
    if n < 2 * size:
        raise ValueError(f"{n} points make no two blocks of {size}; use method='permutation'")
    q = n // size
    orders = [rng.permutation(n)[: n // q * q].reshape(q, -1) for n in sizes]
    total, values, own = np.zeros(1 + options.permutations), [], []
    for rows in zip(*orders, strict=True):
        part = problem.part(rows)
        statistics, spreads = part.with_spread(part.shuffled(options.permutations, rng, first=1))
        total += statistics
        values.append(statistics[0])
        own.append(spreads)
    total /= q
    spread = _spread(np.mean(own, axis=0), part.scales)
    error = float(np.std(values, ddof=1)) / math.sqrt(q)
    estimate = Estimate(float(total[0]), spread, error, error / spread)
    details = {"blocks": q, "block_size": n // q}
    return Outcome(float(total[0]), total[1:], estimate, part.scale, details)


def _spread(own: Floats, tops: Floats) -> float:
    """Geometric mean of the spreads of all variables; one that is rounding counts as none."""
    own = np.where(own > TIES * tops ** len(own), own, 0.0)
    return max(float(own.prod() ** (1.0 / len(own))), np.finfo(float).tiny)


def _some(points: Points, rng: Generator) -> Points:
    """POOL random points at most: tables are often sorted."""
    n = count(points)
    return points if n <= POOL else take(points, np.sort(rng.choice(n, POOL, replace=False)))


def features(problem: Problem, options: Options) -> Outcome:
    """Distance of mean features (two samples), or size of a cross-covariance (two variables)."""
    two = len(problem.samples) == 2
    if two:
        check_sizes(4, **{"the smaller sample": min(problem.sizes)})
    rank = RANKS[len(problem.kernels)] if options.rank is None else options.rank
    rank = integer(rank, "rank", 2)
    maps = []
    for kernel, *variables in zip(problem.kernels, *problem.samples, strict=True):
        pool = concatenate(*(_some(points, options.rng) for points in variables))
        maps.append(cheap_features(kernel, pool, rank, options.rng))
    groups = min(GROUPS, *(n if two else n // 2 for n in problem.sizes))
    sums = np.stack([moments(maps, sample, groups) for sample in problem.samples])
    ranks = [
        int(as_doubles(k.features(take(points, slice(0, 1)))).shape[1])
        for k, points in zip(maps, problem.samples[0], strict=True)
    ]
    measure: Callable[[Floats], _Measured] = (
        two_means if two else partial(cross_covariance, r=ranks[0])
    )
    total = sums.sum(axis=1)
    statistic, within, spread, weights, scale = measure(total)
    null = chi_squares(weights(), options)
    left = [measure(total - sums[:, g])[:3] for g in range(groups)]
    error = jackknife(np.array([a - b for a, b, _ in left]))
    of_ratio = np.inf
    if min(c for _, _, c in left) > TIES * scale:
        of_ratio = jackknife(np.array([(a - b) / c for a, b, c in left]))
    estimate = Estimate(statistic - within, spread, error, of_ratio)
    shift = within if options.unbiased else 0.0
    details = {
        "rank": ranks[0] if two else tuple(ranks),
        "features": maps[0] if two else tuple(maps),
    }
    return Outcome(statistic - shift, null - shift, estimate, scale, details)


def moments(kernels: Sequence[Kernel], variables: Sequence[Points], groups: int) -> Floats:
    """Add up (1, phi)(1, phi)^T (groups, q, q), phi the features of all variables side by side."""
    result: list[Floats] = []
    for group in range(groups):
        parts = [take(points, slice(group, None, groups)) for points in variables]
        total: Array = 0.0
        for rows in row_blocks(count(parts[0]), 256):
            F = [as_doubles(k.features(take(P, rows))) for k, P in zip(kernels, parts, strict=True)]
            A = np.column_stack([np.ones(len(F[0])), *F])
            with threads_for(float(A.size) * A.shape[1]):
                total = total + A.T @ A
        result.append(total)
    return np.stack(result)


# Statistic, its null mean, spread, a function that returns the weights of the chi-squares, scale.
_Measured = tuple[float, float, float, Callable[[], Floats], float]


def two_means(sums: Floats) -> _Measured:
    """Squared distance of the mean features of two samples, from their moments (2, q, q)."""
    n, C = sums[:, 0, 0], [_covariance(M) for M in sums]
    difference = sums[0, 0, 1:] / n[0] - sums[1, 0, 1:] / n[1]
    variances = np.trace(C, axis1=1, axis2=2) * n / (n - 1.0)

    def weights() -> Floats:
        return np.asarray(np.maximum(eigenvalues(C[0] / (n[0] - 1) + C[1] / (n[1] - 1)), 0.0))

    scale = max(float(np.trace(M[1:, 1:])) / M[0, 0] for M in sums)
    within = float((variances / n).sum())
    return float(difference @ difference), within, float(variances.mean()), weights, scale


def cross_covariance(sums: Floats, r: int) -> _Measured:
    """Squared norm of the cross-covariance of r features and the rest, from moments (1, q, q)."""
    M, C = sums[0], _covariance(sums[0])
    n, parts = M[0, 0], (slice(0, r), slice(r, None))
    spectra = [np.maximum(eigenvalues(C[s, s]), 0.0) for s in parts]
    weights = np.outer(*spectra).ravel() / (n - 1.0)
    spread = math.sqrt(math.prod(float(s @ s) for s in spectra))
    scale = math.prod(float(np.trace(M[1:, 1:][s, s])) / n for s in parts)
    cross = C[parts]
    return float(np.vdot(cross, cross)), float(weights.sum()), spread, lambda: weights, scale


def _covariance(M: Floats) -> Floats:
    """Covariance of the features (divided by n)."""
    mean = M[0, 1:] / M[0, 0]
    return np.asarray(M[1:, 1:] / M[0, 0] - np.outer(mean, mean))


def chi_squares(weights: Floats, options: Options) -> Floats:
    """Draws (B,) of the weighted sum of squared normals; negligible weights join the mean."""
    weights = np.sort(weights)[::-1]
    kept = weights[weights > NEGLIGIBLE * max(float(weights[0]), np.finfo(float).tiny)]
    rest = float(weights.sum() - kept.sum())
    draws = [
        options.rng.standard_normal((rows.stop - rows.start, len(kept))) ** 2 @ kept
        for rows in row_blocks(options.permutations, max(1, len(kept)))
    ]
    return np.concatenate(draws) + rest


LARGE = {"linear": linear, "block": block, "features": features}
