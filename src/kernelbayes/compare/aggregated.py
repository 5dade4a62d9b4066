r"""Tests over many kernels at once, with the level under control.

No bandwidth is right for every difference. An aggregated test (MMDAgg and HSICAgg: Schrab et al.
2023, 2022) uses a collection of kernels with weights w_k and rejects if any of them is extreme,

.. math:: \text{reject if}\quad \max_k \big( T_k - q_k(1 - u_\alpha w_k) \big) > 0

where q_k is the quantile of statistic k under permutations and u_alpha the largest number at which
this happens for at most a share alpha of the permutations. All kernels see the *same* permutations,
so that their dependence is accounted for and little is lost for having many of them. The original
finds u_alpha by bisection on a second set of permutations. Here the same set, with the observed
sample as one of its members, gives the solution itself: with p_k the p-value of each member, u =
min_k p_k / w_k is a statistic like any other, its permutation p-value is valid at every sample
size, and u_alpha is its alpha-quantile.

The p_k are those of a gamma law with the first three moments of statistic k over all members (the
usual approximation to a permutation distribution of this kind: Josse, Pages and Husson 2008), which
has no steps: a share of B permutations cannot go below 1 / B, and a kernel of small weight could
never decide. The law need not be right for the level to be, since every member is treated alike.

MMD^2 spreads its power over all directions in feature space, and a difference in scale lies almost
in one of them. So in :func:`mmd_aggregated` every kernel has a second statistic, which looks there
alone: the difference of the samples in centrality, the mean of k(z, .) over both samples (Song and
Chen 2023, whose test combines it with one like the MMD). It is linear in the labels, costs nothing
beside the MMD, and has a tenth of the level.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import stats

from kernelbayes.arrays import Rng, as_generator, to_numpy
from kernelbayes.compare.collection import two_sample_collection, variable_collection
from kernelbayes.compare.hsic import Pairs
from kernelbayes.compare.nulls import (
    check_options,
    check_pairs,
    check_sizes,
    kernel_list,
    one_space,
    orders,
    splits,
    warn_if_constant,
)
from kernelbayes.compare.pairs import biased, products, variable
from kernelbayes.compare.results import TIES, Floats, KernelTestResult, power_of
from kernelbayes.compare.samples import TwoSamples
from kernelbayes.kernels import Kernel
from kernelbayes.points import count


def mmd_aggregated(
    X: Any,
    Y: Any,
    kernels: Sequence[Kernel] | None = None,
    permutations: int = 2000,
    rng: Rng = None,
    *,
    weights: Any = None,
    centrality: float = 0.1,
    level: float = 0.05,
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
    level : float
        For ``details["u"]`` (the corrected level u_alpha) and ``power_estimate``.

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
    check_options(permutations, level)
    if not 0.0 <= centrality < 1.0:
        raise ValueError(f"centrality is a share of the level, in [0, 1), got {centrality!r}")
    kernels, prior = two_sample_collection(X, Y) if kernels is None else _given(kernels, "kernels")
    w, K = _weights(weights, prior), len(kernels)
    X, Y = one_space(kernels[0], X, Y)
    check_sizes(2, X=count(X), Y=count(Y))
    problems = [TwoSamples.of(X, Y, kernel) for kernel in kernels]
    values = []
    for labels in splits(count(X), count(Y), permutations, as_generator(rng)):
        sums = [p.pooled.sums(labels, p.g) for p in problems]
        values.append([part.biased() for part in sums] + [part.centrality() for part in sums])
    scales = np.array([p.scale for p in problems])
    scales = np.concatenate([scales, TIES * scales**2])  # what is rounding before it is squared
    w = np.concatenate([(1.0 - centrality) * w, np.full(K, centrality / K)])
    used = np.flatnonzero(w)
    table, w = np.concatenate(values, axis=1)[used], w[used]
    scales = scales[used]
    row, fields = _aggregate(table, scales, w, level)
    best, by = row % K, ["MMD"] * K + ["centrality"] * K
    errors = [p.errors() for p in problems]
    plain = [None if e is None else e[0] for e in errors]
    rows, power = _table([*kernels, *kernels], table, scales, w, fields, [*plain, *([None] * K)])
    rows = tuple({"by": name, **entry} for name, entry in zip(by, rows, strict=False))
    chosen = problems[best]
    return KernelTestResult(
        statistic=fields["statistic"],
        pvalue=fields["pvalue"],
        null=fields["null"],
        kernel=kernels[best],
        effect=chosen.effect(errors[best]),
        power_estimate=power,
        level=level,
        test="MMD",
        method="aggregated",
        sizes=(count(X), count(Y)),
        witness=chosen.witness(),
        details={"table": rows, "u": fields["u"], "by": by[row]},
    )


def hsic_aggregated(
    X: Any,
    Z: Any,
    kernels_x: Sequence[Kernel] | None = None,
    kernels_z: Sequence[Kernel] | None = None,
    permutations: int = 1000,
    rng: Rng = None,
    *,
    weights: Any = None,
    level: float = 0.05,
) -> KernelTestResult:
    """Independence test over all pairs of two collections of kernels (HSICAgg), with exact level.

    Parameters
    ----------
    X, Z : points (n, ...)
    kernels_x, kernels_z : sequences of Kernel, optional
        By default for numbers Gaussian kernels of five bandwidths, from half the 5 % quantile of
        the distances to twice the 95 % quantile; for anything else Delta alone.
    permutations : int
        Shared by all pairs of kernels.
    rng : int, Generator or None
    weights : array (len(kernels_x), len(kernels_z)), optional
        How the level is shared out; positive. Unless given, most to the middle of the default
        collections, and equally among kernels that are given.
    level : float

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
    >>> z = np.sin(12.0 * x) + 0.2 * rng.normal(size=100)
    >>> kb.hsic_aggregated(x, z, permutations=500, rng=0).pvalue < 0.05
    True
    """
    check_options(permutations, level)
    kernels_x, prior_x = (
        variable_collection(X) if kernels_x is None else _given(kernels_x, "kernels_x")
    )
    kernels_z, prior_z = (
        variable_collection(Z) if kernels_z is None else _given(kernels_z, "kernels_z")
    )
    pairs = [(a, b) for a in kernels_x for b in kernels_z]
    prior = np.outer(prior_x, prior_z).ravel()
    w = _weights(None if weights is None else np.ravel(weights), prior)
    X, Z = kernels_x[0].points(X, "X"), kernels_z[0].points(Z, "Z")
    n = check_pairs(X=X, Z=Z)
    check_sizes(5, **{"the sample of pairs": n})
    xs, zs = [variable(k, X) for k in kernels_x], [variable(k, Z) for k in kernels_z]
    values = [
        biased(products(xs, zs, block), n).reshape(len(pairs), -1)
        for block in orders(n, permutations, as_generator(rng))
    ]
    table = np.concatenate(values, axis=1)
    problems = [
        Pairs(X, Z, pair, a, b)
        for pair, (a, b) in zip(pairs, ((a, b) for a in xs for b in zs), strict=True)
    ]
    scales = np.array([p.scale for p in problems])
    best, fields = _aggregate(table, scales, w, level)
    effects = [p.effect() for p in problems]
    rows, power = _table(pairs, table, scales, w, fields, [error for _, error in effects])
    return KernelTestResult(
        statistic=fields["statistic"],
        pvalue=fields["pvalue"],
        null=fields["null"],
        kernel=pairs[best],
        effect=effects[best][0],
        power_estimate=power,
        level=level,
        test="HSIC",
        method="aggregated",
        sizes=(n,),
        witness=problems[best].witness(),
        details={"table": rows, "u": fields["u"]},
    )


def _given(kernels: Any, name: str) -> tuple[list[Kernel], Floats]:
    found = kernel_list(kernels, name, "a non-empty sequence of kernels")
    return found, np.ones(len(found))


def _weights(weights: Any, prior: Floats) -> Floats:
    w = prior if weights is None else np.asarray(to_numpy(weights), dtype=np.float64)
    if w.shape != prior.shape or not np.all(np.isfinite(w) & (w > 0.0)):
        raise ValueError(f"weights must be {len(prior)} positive numbers, got {weights!r}")
    return np.asarray(w / w.sum())


def log_tails(table: Floats, scales: Floats) -> Floats:
    """Log p-values (K, members) of every member under a gamma law with the moments of its row.

    The skewness of a weighted sum of chi-squares is at most sqrt(8); one near zero is a normal law.
    A row without spread has p-value one.
    """
    spread = table.std(axis=1, keepdims=True)
    flat = spread <= TIES * scales[:, None]
    z = (table - table.mean(axis=1, keepdims=True)) / np.where(flat, 1.0, spread)
    z = np.where(flat, 0.0, np.round(z, 9))  # ties up to rounding are ties
    skewness = np.clip(np.mean(z**3, axis=1, keepdims=True), 0.1, np.sqrt(8.0))
    shape = 4.0 / skewness**2
    return np.where(flat, 0.0, stats.gamma.logsf(shape + z * np.sqrt(shape), shape))


def _aggregate(
    table: Floats, scales: Floats, w: Floats, level: float
) -> tuple[int, dict[str, Any]]:
    """Aggregate statistics (K, 1 + B), the observed ones first.

    Every member b, the observed sample included, gets its smallest p-value over weight.
    """
    members = table.shape[1]
    log_p = log_tails(table, scales)
    log_ratios = log_p - np.log(w)[:, None]
    best = int(np.argmin(log_ratios[:, 0]))
    log_u = np.round(log_ratios.min(axis=0), 9)
    u = np.exp(log_u)
    constant = int(np.argmax(np.ptp(table, axis=1) / scales))
    warn_if_constant(
        table[constant, 1:], float(table[constant, 0]), float(scales[constant]), "constant data", 4
    )
    # The largest u attained by at most a share ``level`` of the members.
    ordered, allowed = np.sort(u), int(np.floor(level * members))
    values = np.unique(ordered)
    counts = np.searchsorted(ordered, values, side="right")
    passed = values[counts <= allowed]
    score = -log_u / np.log(10.0)
    return best, {
        "statistic": float(score[0]),
        "null": score[1:],
        "pvalue": float(np.count_nonzero(log_u <= log_u[0])) / members,
        "u": float(passed[-1]) if passed.size else 0.0,
        "p": np.exp(log_p[:, 0]),
    }


def _table(
    kernels: Sequence[Any],
    table: Floats,
    scales: Floats,
    w: Floats,
    fields: dict[str, Any],
    errors: Sequence[float | None],
) -> tuple[tuple[dict[str, Any], ...], float | None]:
    """One row per kernel, and the largest power of any at its corrected level."""
    rows, powers = [], []
    for k, kernel in enumerate(kernels[: len(table)]):
        share = max(float(fields["u"] * w[k]), 1.0 / table.shape[1])
        row = {"kernel": kernel, "statistic": float(table[k, 0]), "pvalue": float(fields["p"][k])}
        rows.append({**row, "weight": float(w[k]), "level": share})
        error = errors[k]
        if error is not None:
            powers.append(power_of(float(table[k, 0]), table[k, 1:], error, share, scales[k]))
    return tuple(rows), max(powers, default=None)
