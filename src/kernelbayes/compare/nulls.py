r"""Null distributions in closed form: the gamma law of permutations, multipliers for time series.

**Gamma.** The mean and the variance of a statistic over all permutations have closed forms, and a
gamma law with these two moments approximates the permutation distribution.

**Multipliers.** Points of a stationary series are not exchangeable, so permutations are wrong. The
wild bootstrap (Chwialkowski, Sejdinovic and Gretton 2014) multiplies point t by a Gaussian process
with autocorrelation ``exp(-|t - s| / l)``, which preserves dependence up to about l steps. Two
corrections make it usable at a few hundred points. Centring the multipliers removes variance, which
is restored. And the decay truncates the long-run variance: it is restored to that of an
autoregression of order one with the same lag-one correlation in feature space, as prewhitening does
(Andrews and Monahan 1992), which also sets l (Andrews 1991, eq. 5.3 and 6.4).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np
from scipy import stats

from kernelbayes.gram import Dense, Gram, LowRank
from kernelbayes.points import option, positive
from kernelbayes.types import Floats, Generator

if TYPE_CHECKING:
    from kernelbayes.compare.problem import Options, Problem

BlockLength = float | Literal["auto"] | None
Moments = tuple[float, float, float]
# Two statistics closer than this, relative to the kernel's values, are equal: they are sums of at
# most 10^8 rounded terms, whose errors (1e-16 each, of random signs) add up to 1e-12.
TIES = 1e-12
# The skewness of a weighted sum of chi-squares is at most that of a single one. One near zero is a
# normal law: at a skewness of 0.1 the 5 % quantile of the gamma law is 2 % above the normal one.
SKEWNESS = 0.1, np.sqrt(8.0)
# Statistics and p-values are rounded to this many decimals, so that equal ones are ties.
DECIMALS = 9
# The long-run variance of an autoregression is (1 + rho) / (1 - rho) times its variance: 66 at this
# correlation, so that a few hundred points are worth less than ten. Closer to one, a series is a
# random walk to any bootstrap.
LARGEST_CORRELATION = 0.97
# Multipliers of a shorter memory are independent: exp(-1 / l) is below 1e-4.
SHORTEST_MEMORY = 0.1


def centred(gram: Gram, w: Floats | None = None, rows: slice = slice(None)) -> Floats:
    """Centred factor (m, r) of some rows, or the centred Gram matrix (m, m) if there is no factor.

    ``w`` are the weights of the mean that is taken off, with sum one; equal unless given.
    """
    if isinstance(gram, Dense):
        G = gram.G[rows, rows]
        means = G.mean(axis=1) if w is None else G @ w
        return np.asarray(G - means[:, None] - means + (means.mean() if w is None else w @ means))
    if not isinstance(gram, LowRank):
        raise ValueError("too many points for this method; use method='features' or 'block'")
    L = gram.L[rows]
    return np.asarray(L - (L.mean(axis=0) if w is None else w @ L))


def matrix_moments(gram: Gram) -> Moments:
    """Trace, squared norm and sum of squared diagonal entries of the centred Gram matrix."""
    C = centred(gram)
    if isinstance(gram, Dense):
        d = C.diagonal()
        return float(d.sum()), float(np.vdot(C, C)), float(d @ d)
    d, M = np.einsum("ij,ij->i", C, C), C.T @ C
    return float(d.sum()), float(np.vdot(M, M)), float(d @ d)


def permutation_moments(first: Moments, second: Moments, n: int) -> tuple[float, float]:
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


def gamma_law(mean: float, variance: float, statistic: float, size: int) -> tuple[float, Floats]:
    """Tail probability of a statistic under a gamma law, and quantiles at (i - 1/2) / size."""
    if not (mean > 0.0 and variance > 0.0):
        return 1.0, np.full(size, mean)
    law = stats.gamma(mean * mean / variance, scale=variance / mean)
    return float(law.sf(statistic)), np.asarray(law.ppf((np.arange(size) + 0.5) / size))


def log_tails(table: Floats, scales: Floats) -> Floats:
    """Log p-values (K, members) under a gamma law with the moments of a row; 0 without spread."""
    spread = table.std(axis=1, keepdims=True)
    flat = spread <= TIES * scales[:, None]
    z = (table - table.mean(axis=1, keepdims=True)) / np.where(flat, 1.0, spread)
    z = np.where(flat, 0.0, np.round(z, DECIMALS))
    skewness = np.clip(np.mean(z**3, axis=1, keepdims=True), *SKEWNESS)
    shape = 4.0 / skewness**2
    return np.where(flat, 0.0, stats.gamma.logsf(shape + z * np.sqrt(shape), shape))


def corrected_level(u: Floats, alpha: float) -> float:
    """Largest u attained by at most a share ``alpha`` of the members, 0 if there is none."""
    ordered = np.sort(u)
    values = np.unique(ordered)
    passed = values[np.searchsorted(ordered, values, side="right") <= np.floor(alpha * len(u))]
    return float(passed[-1]) if passed.size else 0.0


def wild_bootstrap(problem: Problem, options: Options) -> tuple[float, Floats, tuple[float, ...]]:
    """Statistic, its multiplier bootstrap and block lengths (Chwialkowski et al. 2014, eq. 6).

    Each sample has multipliers of its own, centred by its weights, so that its mean embedding
    drops out and no common distribution of points and weights is assumed.
    """
    parts, lengths = [], []
    for w, correlation in problem.series():
        length, inflation = memory(correlation, len(w), options.block_length)
        W = multipliers(np.abs(w), options.permutations, length, options.rng) * inflation
        parts.append(w[:, None] * W)
        lengths.append(length)
    null = problem.forms(np.concatenate(parts))
    observed = problem.observed[None]
    statistic = float(problem.statistics(observed)[0])
    if options.unbiased:  # the diagonal has the same mean in the statistic and in the bootstrap
        shift = statistic - float(problem.statistics(observed, unbiased=True)[0])
        statistic, null = statistic - shift, null - shift
    return statistic, null, tuple(lengths)


def multipliers(w: Floats, draws: int, length: float, rng: Generator) -> Floats:
    """Gaussian multipliers (n, draws) of variance one, and mean zero under weights w of sum one."""
    W, decay = autoregression(len(w), draws, length, rng)
    W = W - w @ W
    forward, backward = (_decayed(v, decay) for v in (w, w[::-1]))
    of_mean = float(w @ (forward + backward[::-1] - w))  # variance of the mean, w^T R w
    return np.asarray(W / np.sqrt(max(1.0 - of_mean, np.finfo(float).tiny)))


def autoregression(n: int, draws: int, length: float, rng: Generator) -> tuple[Floats, float]:
    """Gaussian series (n, draws) of variance one with memory ``length``, and their decay."""
    W: Floats = rng.standard_normal((n, draws))
    decay = float(np.exp(-1.0 / length)) if length > 0.0 else 0.0
    if decay > 0.0:
        W[1:] *= np.sqrt(1.0 - decay**2)
        W = _decayed(W, decay)
    return W, decay


def _decayed(values: Floats, decay: float) -> Floats:
    """Return sums over the past along the first axis, each step back ``decay`` times the last."""
    from scipy.signal import lfilter  # slow to import

    return np.asarray(lfilter([1.0], [1.0, -decay], values, axis=0))


def memory(correlation: float, n: int, block_length: BlockLength) -> tuple[float, float]:
    """Memory l of multipliers, from the lag-one correlation, and the factor that inflates them."""
    if block_length is None:
        return 0.0, 1.0
    if not isinstance(block_length, str):
        return positive(block_length, "block_length"), 1.0
    option(block_length, "block_length (a positive number or a way)", ("auto",))
    rho = correlation + (1.0 + 3.0 * correlation) / n  # bias of an autocorrelation (Kendall 1954)
    rho = float(np.clip(rho, 0.0, LARGEST_CORRELATION))
    alpha = 4.0 * rho**2 / (1.0 - rho**2) ** 2  # Andrews 1991, eq. 6.4
    length = float((alpha * n) ** (1.0 / 3.0))
    if length < SHORTEST_MEMORY:
        return 0.0, 1.0
    kept = rho * np.exp(-1.0 / length)
    return length, float(np.sqrt((1 + rho) / (1 - rho) * (1 - kept) / (1 + kept)))


def lag_one(gram: Gram, rows: slice = slice(None)) -> float:
    """Lag-one correlation, in feature space, of a series: some rows of a Gram matrix.

    From the square of its centred Gram matrix, which weights each direction by its squared
    eigenvalue, as the variance of the statistic does: the wide, slow directions decide.
    """
    C = centred(gram, rows=rows)
    P = C if isinstance(gram, Dense) else C @ (C.T @ C)
    here, after = np.vdot(C, P) / len(C), np.vdot(C[:-1], P[1:]) / (len(C) - 1)
    return float(after / here) if here > 0.0 else 0.0
