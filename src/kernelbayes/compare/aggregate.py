r"""Tests over many kernels at once, with the level under control.

No bandwidth is right for every difference. An aggregated test (MMDAgg and HSICAgg: Schrab et al.
2023, 2022) uses a collection of kernels with weights w_k and rejects if any of them is extreme,

.. math:: \text{reject if}\quad \max_k \big( T_k - q_k(1 - u_\alpha w_k) \big) > 0

where q_k is the quantile of statistic k under permutations and u_alpha the largest number at which
this happens for at most a share alpha of them. The original finds u_alpha by bisection on a second
set of permutations. Here all kernels see the same set, of which the observed sample is a member:
with p_k the p-value of each member, u = min_k p_k / w_k is a statistic like any other, its
permutation p-value is valid at every sample size, and u_alpha is its alpha-quantile.

The p_k are those of a gamma law with the first three moments of statistic k over all members
(Josse, Pages and Husson 2008). A share of B permutations cannot go below 1 / B, so that a kernel of
small weight could never decide. The level does not depend on this law: all members are treated
alike.

MMD^2 spreads its power over all directions in feature space, and a difference in scale lies almost
in one of them. So in :func:`mmd_aggregated` every kernel has a second statistic, which looks there
alone: the difference of the samples in centrality, the mean of k(z, .) over both samples (Song and
Chen 2023, whose test combines it with one like the MMD). It is linear in the labels, costs nothing
beside the MMD, and has a tenth of the level.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from scipy.special import logsumexp

from kernelbayes.arrays import as_doubles, as_generator, warn
from kernelbayes.compare import problem, samples
from kernelbayes.compare.hsic import all_pairs
from kernelbayes.compare.mmd import Sums, TwoSamples
from kernelbayes.compare.nulls import DECIMALS, TIES, corrected_level, log_tails
from kernelbayes.compare.pairs import products
from kernelbayes.compare.problem import Options, Outcome, Problem
from kernelbayes.compare.result import KernelTestResult
from kernelbayes.gram import Dense, LowRank
from kernelbayes.kernels import Kernel
from kernelbayes.points import count, own, share
from kernelbayes.types import Array, Floats, PointsLike, Rng


def mmd_aggregated(
    X: PointsLike,
    Y: PointsLike,
    kernels: Sequence[Kernel] | None = None,
    permutations: int = 2000,
    rng: Rng = None,
    *,
    weights: Array | None = None,
    centrality: float = 0.1,
    alpha: float = 0.05,
) -> KernelTestResult:
    """Two-sample test over a collection of kernels (MMDAgg), with exact level.

    Parameters
    ----------
    X, Y : points (n, ...), (m, ...)
    kernels : sequence of Kernel, optional
        By default for numbers seven Gaussian kernels, from 1/16 of the median bandwidth to 4 times
        it; for anything else Delta alone.
    permutations : int
        Shared by all kernels.
    rng : int, Generator or None
    weights : array (len(kernels),), optional
        How the level is shared out; positive. Unless given, in proportion to the bandwidths of the
        default collection, and equally among kernels that are given.
    centrality : float
        Share of the level, in [0, 1), for differences in centrality, the same for all kernels; 0
        is MMDAgg itself.
    alpha : float
        Significance level for ``details["u"]`` (the corrected level u_alpha) and
        ``power_estimate``.

    Returns
    -------
    KernelTestResult
        ``statistic`` is -log10 of min_k p_k / w_k with normalised weights, ``kernel`` the kernel
        that attains it, ``details["by"]`` "MMD" or "centrality". ``details["table"]`` has a row for
        both of every kernel; ``effect`` and ``witness`` are those of the MMD of ``kernel``.
        ``power_estimate`` is the largest over the MMDs, a lower bound.

    Examples
    --------
    >>> import numpy as np
    >>> import kernelbayes as kb
    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=200)
    >>> y = rng.normal(size=200) + 0.2 * np.sign(rng.normal(size=200))  # a finer structure
    >>> result = kb.mmd_aggregated(x, y + 0.5, permutations=500, rng=0)
    >>> result.pvalue < 0.05, len(result.details["table"])
    (True, 14)
    """
    options = Options(permutations, as_generator(rng), alpha)
    centrality = share(centrality, "centrality", low=True)
    problems, prior = _two_samples(X, Y, kernels)
    w, K = samples.shares(weights, prior), len(problems)
    values = []
    for labels in problems[0].relabelled(options.permutations, options.rng):
        sums = [p.sums(labels) for p in problems]
        values.append([part.biased() for part in sums] + [centrality_of(part) for part in sums])
    scales = np.array([p.scale for p in problems])
    scales = np.concatenate([scales, TIES * scales**2])  # what is rounding before it is squared
    w = np.concatenate([(1.0 - centrality) * w, np.full(K, centrality / K)])
    used = slice(0, 2 * K if centrality > 0.0 else K)
    table = np.concatenate(values, axis=1)[used]
    return aggregate(problems, table, scales[used], w[used], options, ("MMD", "centrality"))


def _two_samples(
    X: PointsLike, Y: PointsLike, kernels: Sequence[Kernel] | None
) -> tuple[list[TwoSamples], Floats]:
    """Problems of both samples under each kernel of a collection, and weights of the kernels."""
    Y = problem.same_columns(X, Y, *(kernels if isinstance(kernels, list | tuple) else ()))
    found, prior = samples.two_sample_collection(X, Y, kernels)
    X, Y = problem.one_space(found[0], X, Y)
    problem.check_sizes(2, X=count(X), Y=count(Y))
    return [TwoSamples.of(X, Y, kernel) for kernel in found], prior


def centrality_of(sums: Sums) -> Floats:
    """Squared <mu_X - mu_Y, mu_pooled> (b,), large if one sample is wider (Song and Chen 2023)."""
    within, _, mass, _, _ = sums.groups
    first, second = (within + sums.cross) / mass
    return np.asarray(((first - second) / mass.sum(axis=0)) ** 2)


def mmd_fuse(
    X: PointsLike,
    Y: PointsLike,
    kernels: Sequence[Kernel] | None = None,
    permutations: int = 2000,
    rng: Rng = None,
    *,
    weights: Array | None = None,
    alpha: float = 0.05,
) -> KernelTestResult:
    r"""Two-sample test that fuses many kernels by a soft maximum (MMD-FUSE), with exact level.

    .. math:: \mathrm{FUSE} = \frac{1}{\lambda} \log \sum_k w_k
        \exp\Big(\lambda\, \frac{\mathrm{MMD}^2_k}{\sqrt{N_k}}\Big), \qquad
        N_k = \frac{1}{N (N - 1)} \sum_{i \ne j} k(z_i, z_j)^2

    with the unbiased MMD of each kernel, N_k over both samples together, which no permutation
    changes, and lambda = sqrt(n (n - 1)) of the smaller sample (Biggs, Schrab and Gretton 2023,
    definition 2 and section 5). One statistic, so one set of permutations gives its exact level.

    Parameters
    ----------
    X, Y : points (n, ...), (m, ...)
    kernels : sequence of Kernel, optional
        By default the Gaussian kernels of :func:`mmd_aggregated`.
    permutations : int
    rng : int, Generator or None
    weights : array (len(kernels),), optional
        Prior weights w_k; equal unless given.
    alpha : float
        Significance level for ``power_estimate``.

    Returns
    -------
    KernelTestResult
        ``kernel`` is the one that contributes most; ``effect``, ``witness`` are of its MMD.
        ``details["table"]`` has the normalised statistic and the share of each kernel.

    Examples
    --------
    >>> import numpy as np
    >>> import kernelbayes as kb
    >>> rng = np.random.default_rng(0)
    >>> x, y = rng.normal(size=(100, 2)), rng.laplace(size=(100, 2))
    >>> kb.mmd_fuse(x, y + 0.5, permutations=500, rng=0).pvalue < 0.05
    True
    """
    options = Options(permutations, as_generator(rng), alpha)
    problems, prior = _two_samples(X, Y, kernels)
    w = samples.shares(weights, np.ones_like(prior))
    blocks = problems[0].relabelled(options.permutations, options.rng)
    values = [[p.statistics(block, unbiased=True) for p in problems] for block in blocks]
    table = np.concatenate(values, axis=1) / root_mean_squares(problems)[:, None]
    n = min(problems[0].sizes)
    sharpness = np.sqrt(n * (n - 1.0))
    logs = np.log(w)[:, None] + sharpness * table
    every = logsumexp(logs, axis=0) / sharpness
    part = np.exp(logs[:, 0] - logsumexp(logs[:, 0]))
    best = problems[int(np.argmax(part))]
    rows = zip(problems, table[:, 0].tolist(), part.tolist(), strict=True)
    table_rows = tuple({"kernel": p.named, "statistic": t, "share": q} for p, t, q in rows)
    details, witness = {"table": table_rows}, best.witness()
    found = Outcome(float(every[0]), every[1:], best.estimate(), 1.0, details, None, witness)
    return replace(problem.finish(best, options.alpha, found, "fused", {}), power_estimate=None)


def root_mean_squares(problems: Sequence[TwoSamples]) -> Floats:
    """Square roots (K,) of the mean squares of the kernels over all pairs of different points."""
    found = []
    for one in problems:
        G = one.gram
        assert isinstance(G, Dense | LowRank)
        squares = float(np.sum((G.L.T @ G.L if isinstance(G, LowRank) else G.G) ** 2))
        size = len(one.omega)
        off = (squares - float(np.sum(np.asarray(G.diag) ** 2))) / (size * (size - 1))
        found.append(np.sqrt(max(off, TIES * one.scale**2)))
    return np.array(found)


def hsic_aggregated(
    X: PointsLike,
    Y: PointsLike,
    kernels_x: Sequence[Kernel] | None = None,
    kernels_y: Sequence[Kernel] | None = None,
    permutations: int = 1000,
    rng: Rng = None,
    *,
    weights: Array | None = None,
    alpha: float = 0.05,
) -> KernelTestResult:
    """Independence test over all pairs of two collections of kernels (HSICAgg), with exact level.

    Parameters
    ----------
    X, Y : points (n, ...)
    kernels_x, kernels_y : sequences of Kernel, optional
        By default for numbers Gaussian kernels of five bandwidths, from half the 5 % quantile of
        the distances to twice the 95 % quantile; for anything else Delta alone.
    permutations : int
        Shared by all pairs of kernels.
    rng : int, Generator or None
    weights : array (len(kernels_x), len(kernels_y)), optional
        How the level is shared out; positive. Unless given, most to the middle of the default
        collections, and equally among kernels that are given.
    alpha : float
        Significance level, as for :func:`mmd_aggregated`.

    Returns
    -------
    KernelTestResult
        As :func:`mmd_aggregated`; ``kernel`` is the pair of kernels that attains the statistic.

    Examples
    --------
    >>> import numpy as np
    >>> import kernelbayes as kb
    >>> rng = np.random.default_rng(0)
    >>> x = rng.uniform(-1.0, 1.0, size=100)
    >>> y = np.sin(12.0 * x) + 0.2 * rng.normal(size=100)
    >>> kb.hsic_aggregated(x, y, permutations=500, rng=0).pvalue < 0.05
    True
    """
    options = Options(permutations, as_generator(rng), alpha)
    found_x, prior_x = samples.variable_collection(X, kernels_x, "kernels_x")
    found_y, prior_y = samples.variable_collection(Y, kernels_y, "kernels_y")
    prior = np.outer(prior_x, prior_y).ravel()
    w = samples.shares(None if weights is None else np.ravel(as_doubles(weights)), prior)
    X, Y = own(found_x[0].points(X, "X"), X), own(found_y[0].points(Y, "Y"), Y)
    n = samples.check_pairs(X=X, Y=Y)
    problem.check_sizes(5, **{"the sample of pairs": n})
    problems, step = all_pairs(X, Y, found_x, found_y), len(found_y)
    xs, ys = [p.variables[0] for p in problems[::step]], [p.variables[1] for p in problems[:step]]
    values = [
        products(xs, ys, block).reshape(len(problems), -1) / n**2
        for block in problems[0].relabelled(permutations, options.rng)
    ]
    scales = np.array([p.scale for p in problems])
    return aggregate(problems, np.concatenate(values, axis=1), scales, w, options)


def aggregate(
    problems: Sequence[Problem],
    table: Floats,
    scales: Floats,
    w: Floats,
    options: Options,
    by: Sequence[str] = (),
) -> KernelTestResult:
    """Aggregate statistics (rows, 1 + B) of the members of the null, the observed sample first.

    The first rows are the statistics of the problems. With ``by``, the names of two kinds of
    statistics, there may be as many again of the second kind.
    """
    log_p = log_tails(table, scales)
    log_ratios = log_p - np.log(w)[:, None]
    log_u = np.round(log_ratios.min(axis=0), DECIMALS)
    u = corrected_level(np.exp(log_u), options.alpha)
    most = int(np.argmax(np.ptp(table, axis=1) / scales))
    if problem.is_constant(float(table[most, 0]), table[most, 1:], float(scales[most])):
        warn("constant data: every permutation has the same statistic, so the p-value is 1")
    estimates, rows, powers = [p.estimate() for p in problems], [], []
    for r, values in enumerate(table):
        second, k = divmod(r, len(problems))
        share = max(float(u * w[r]), 1.0 / table.shape[1])
        row: dict[str, Any] = {"by": by[second]} if by else {}
        row |= {"kernel": problems[k].named, "statistic": float(values[0])}
        row |= {"pvalue": float(np.exp(log_p[r, 0])), "weight": float(w[r]), "alpha": share}
        rows.append(row)
        if not second:
            powers.append(estimates[k].power(values[0], values[1:], share, float(scales[r])))
    first = int(np.argmin(log_ratios[:, 0]))
    best = first % len(problems)
    chosen, score = problems[best], -log_u / np.log(10.0)
    return KernelTestResult(
        statistic=float(score[0]),
        pvalue=float(np.mean(log_u <= log_u[0])),
        null=score[1:],
        kernel=chosen.named,
        effect=estimates[best].effect(chosen.scale, chosen.most),
        power_estimate=max((p for p in powers if p is not None), default=None),
        alpha=options.alpha,
        test=chosen.test,
        method="aggregated",
        sizes=chosen.sizes,
        witness=chosen.witness(),
        details={"table": tuple(rows), "u": u} | ({"by": rows[first]["by"]} if by else {}),
    )
