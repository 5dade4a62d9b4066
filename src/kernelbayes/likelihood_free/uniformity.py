"""Are ranks uniform, and if not, how: the arithmetic of simulation-based calibration.

If posteriors are right, the rank of the true parameter among m draws from the posterior is uniform
on 0, ..., m (Talts et al. 2018, Theorem 1). How many of n ranks are at most k is then binomial, at
every k. The test takes the least likely of these counts and compares it with the least likely ones
of uniform ranks, simulated: exact up to that simulation (Saeilynoja, Buerkner and Vehtari 2022).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import stats

from kernelbayes.arrays import to_numpy

Floats = np.ndarray[Any, Any]
REPLICATES = 4000
POSITIONS = 100  # where counts are compared; more tell nothing new
LEVEL = 0.01  # of the verdicts, for all parameters together


def ranks_among(values: Floats, draws: Floats, rng: np.random.Generator) -> Floats:
    """Rank 0, ..., m of values (n, ...) among draws (n, m, ...), ties broken at random."""
    below = np.sum(draws < values[:, None], axis=1)
    ties = np.sum(draws == values[:, None], axis=1)
    ranks: Floats = below + rng.integers(ties + 1)
    return ranks


def uniform_pvalues(ranks: Floats, m: int) -> Floats:
    """Return the p-value (d,) of each column of ranks (n, d) being uniform on 0, ..., m."""
    n = len(ranks)
    last = np.unique(np.linspace(0, m - 1, min(m, POSITIONS)).round().astype(int))
    chance = (last + 1) / (m + 1)  # of a rank of at most k
    counts = np.arange(n + 1)[:, None]
    tails = np.minimum(stats.binom.cdf(counts, n, chance), stats.binom.sf(counts - 1, n, chance))
    place = np.arange(len(last))
    least = [
        tails[np.searchsorted(np.sort(column), last, side="right"), place].min()
        for column in ranks.T
    ]
    # The same numbers each time: the p-value is a function of the ranks.
    steps = np.diff(chance, prepend=0.0, append=1.0)
    null = np.random.default_rng(0).multinomial(n, steps, size=REPLICATES)[:, :-1].cumsum(axis=1)
    smallest = np.sort(tails[null, place].min(axis=1))
    below = np.searchsorted(smallest, np.asarray(least) * (1 + 1e-9), side="right")
    pvalues: Floats = (1 + below) / (1 + REPLICATES)
    return pvalues


def fault(u: Floats) -> str:
    """In words, how levels (n,) that ought to be uniform on (0, 1) differ from that.

    High ranks mean draws below the truth: biased down. Ranks at both ends mean a truth outside of
    the draws: too narrow. The moments' standard errors are those of the uniform distribution.
    """
    n = len(u)
    shift = (u.mean() - 0.5) * np.sqrt(12 * n)
    spread = (np.mean((u - 0.5) ** 2) - 1 / 12) * np.sqrt(180 * n)
    words = []
    if abs(spread) > 2.5:
        words.append("too narrow" if spread > 0 else "too wide")
    if abs(shift) > 2.5:
        words.append("biased down" if shift > 0 else "biased up")
    return " and ".join(words) or "of the wrong shape"


def coverage_pvalues(held: Floats, n: int, levels: Floats) -> Floats:
    """Two-sided binomial p-values of fractions held (K, ...) of n, at levels (K,)."""
    counts = np.rint(held * n)
    chance = levels.reshape(-1, *[1] * (held.ndim - 1))
    tails = np.minimum(stats.binom.cdf(counts, n, chance), stats.binom.sf(counts - 1, n, chance))
    return np.asarray(np.minimum(1.0, 2.0 * tails))


def draw_from(posterior: Any, m: int, rng: np.random.Generator) -> Floats:
    """Draws (m, d) of a posterior: by its ``sample``, or an array of draws, cut to m if longer."""
    drawn = posterior.sample(m, rng=rng) if hasattr(posterior, "sample") else posterior
    table = np.asarray(to_numpy(drawn), dtype=np.float64)
    table = table[:, None] if table.ndim == 1 else table
    if table.ndim != 2 or not len(table):
        raise ValueError(f"draws must have shape (m, d), got {table.shape}")
    return table[:m]
