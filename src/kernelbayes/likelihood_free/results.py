"""Results of checks: numbers, a picture and a verdict in words.

Verdicts are tests at significance level 1 % for all parameters and levels together: one in a
hundred calibrated posteriors is accused wrongly. A test that does not reject says only what the
given number of simulations can show.

If posteriors are right, the rank of the true parameter among m draws from the posterior is uniform
on 0, ..., m (Talts et al. 2018, Theorem 1). The number of ranks that are at most k is then
binomial, for every k. The test compares the least likely of these counts with the least likely ones
of simulated uniform ranks: exact up to that simulation (Saeilynoja, Buerkner and Vehtari 2022).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import stats
from sklearn.covariance import ledoit_wolf

from kernelbayes.arrays import Array, Floats, Ints
from kernelbayes.gram.lapack import solve
from kernelbayes.plot.canvas import Axes
from kernelbayes.plot.posteriors import plot_coverage, plot_predictive, plot_ranks

ALPHA = 0.01  # significance level of the verdicts, for all parameters together
REPLICATES = 4000  # simulated sets of ranks: a p-value of 1 % has a standard error of 0.16 %
# Ranks k at which counts are compared. Neighbouring counts differ by n / 100: more say little new.
POSITIONS = 100
# Standard errors of a moment beyond which the verdict names it, once ranks are not uniform.
CLEAR = 2.5
FULL = 300  # columns up to which their correlations count too: a solve of that size is instant


@dataclass(frozen=True, eq=False, repr=False)
class RankCheck:
    """Result of :func:`~kernelbayes.likelihood_free.checks.sbc`.

    Attributes
    ----------
    ranks : int array (n, d)
        Of the true parameters among the draws: 0, ..., ``n_draws``.
    n_draws : int
    names : tuple of str
        Of the parameters.
    pvalues : array (d,)
        Of the ranks of each parameter being uniform.
    """

    ranks: Ints
    n_draws: int
    names: tuple[str, ...]
    pvalues: Floats

    @property
    def pvalue(self) -> float:
        """Of all parameters together (Bonferroni)."""
        return float(min(1.0, len(self.pvalues) * self.pvalues.min()))

    @property
    def calibrated(self) -> bool:
        """Whether uniform ranks are not rejected, at significance level 1 %."""
        return self.pvalue > ALPHA

    @property
    def verdicts(self) -> dict[str, str]:
        """In words, parameter by parameter."""
        u = (self.ranks + 0.5) / (self.n_draws + 1)
        bad = self.pvalues * len(self.pvalues) <= ALPHA
        columns = zip(self.names, u.T, bad, strict=True)
        return {name: fault(v) if wrong else "calibrated" for name, v, wrong in columns}

    @property
    def verdict(self) -> str:
        """In words."""
        if self.calibrated:
            return f"calibrated: nothing to see in {len(self.ranks)} simulations"
        found = [
            f"{name} is {word}" for name, word in self.verdicts.items() if word != "calibrated"
        ]
        return "; ".join(found)

    def plot(self, axes: Axes = None, bins: int | None = None) -> Axes:
        """Histograms of the ranks with bands for 99 % of uniform ones."""
        return plot_ranks(self, axes, bins)

    def __repr__(self) -> str:
        n, d = self.ranks.shape
        return f"RankCheck({n} simulations, {d} parameters, p = {self.pvalue:.2g}: {self.verdict})"


@dataclass(frozen=True, eq=False, repr=False)
class CoverageCheck:
    """Result of :func:`~kernelbayes.likelihood_free.checks.coverage`.

    Attributes
    ----------
    levels : array (K,)
    u : array (n, d)
        Probability integral transforms of the true parameters: uniform if all is well.
    region : array (n,)
        Smallest level at which the joint region holds the true parameter; uniform, too.
    kind : str
        "density" for highest-density regions, "distance" for those by distance to references.
    names : tuple of str
    """

    levels: Floats
    u: Floats
    region: Floats
    kind: str
    names: tuple[str, ...]

    def intervals_at(self, levels: Array) -> Floats:
        """Fraction of central intervals that hold the truth, (K, d)."""
        held = np.abs(2.0 * self.u - 1.0) <= np.reshape(levels, (-1, 1, 1))
        return np.asarray(held.mean(axis=1))

    def regions_at(self, levels: Array) -> Floats:
        """Fraction of joint regions that hold the truth, (K,)."""
        return np.asarray((self.region <= np.reshape(levels, (-1, 1))).mean(axis=1))

    @property
    def coverage(self) -> Floats:
        """Of the central intervals of each parameter, (K, d)."""
        return self.intervals_at(self.levels)

    @property
    def joint(self) -> Floats:
        """Of the joint regions, (K,)."""
        return self.regions_at(self.levels)

    @property
    def band(self) -> Floats:
        """Coverage that 99 % of calibrated posteriors would show, (K, 2)."""
        n = len(self.u)
        return np.stack(stats.binom.interval(1 - ALPHA, n, self.levels), axis=-1) / n

    @property
    def verdict(self) -> str:
        """In words: the clearest departure, at 1 % for all levels and parameters together."""
        n = len(self.u)
        held = np.column_stack([self.coverage, self.joint])
        p = coverage_pvalues(held, n, self.levels)
        k, j = np.unravel_index(np.argmin(p), p.shape)
        if p[k, j] * p.size > ALPHA:
            return f"covers as it should: nothing to see in {n} simulations"
        what = f"intervals of {self.names[j]}" if j < len(self.names) else "joint regions"
        word = "too narrow or biased" if held[k, j] < self.levels[k] else "too wide"
        level, share = 100 * self.levels[k], 100 * held[k, j]
        return f"{level:g} % {what} hold the truth {share:.3g} % of the time: {word}"

    def plot(self, ax: Axes = None) -> Axes:
        """Coverage against level, with the band for 99 % of calibrated posteriors."""
        return plot_coverage(self, ax)

    def __repr__(self) -> str:
        rows = [
            f"{100 * level:g} %: intervals {np.array2string(100 * row, precision=1)}, "
            f"joint {100 * joint:.1f}"
            for level, row, joint in zip(self.levels, self.coverage, self.joint, strict=True)
        ]
        return f"CoverageCheck({len(self.u)} simulations: {self.verdict})\n" + "\n".join(rows)


@dataclass(frozen=True, eq=False, repr=False)
class PredictiveCheck:
    """Result of :func:`~kernelbayes.likelihood_free.checks.posterior_predictive`.

    Attributes
    ----------
    theta : array (m, d)
        Posterior draws that were simulated at.
    x : array (m, ...)
        Simulations at them.
    values : array (m, k)
        Columns that are compared: the statistic of each simulation, or all its entries.
    observed : array (k,)
        The same of the observation.
    pvalues : array (k,)
        Two-sided tail probabilities of each column.
    pvalue : float
        Of all columns together: of the observation's Mahalanobis distance among the simulations'.
    names : tuple of str
        Of the columns.
    """

    theta: Floats
    x: Floats
    values: Floats
    observed: Floats
    pvalues: Floats
    pvalue: float
    names: tuple[str, ...]

    @property
    def verdict(self) -> str:
        """In words."""
        unlike = self.pvalue <= ALPHA
        # Once all columns together are unusual, each is named at 1 %; else at 1 % for all.
        bound = ALPHA if unlike else ALPHA / len(self.pvalues)
        odd = np.argsort(self.pvalues, kind="stable")
        odd = odd[self.pvalues[odd] <= bound][:5]
        if not unlike and not len(odd):
            return f"the observation looks like the {len(self.x)} simulations from the posterior"
        words = "the observation is unlike the simulations from the posterior"
        if not len(odd):
            return f"{words} (p = {self.pvalue:.2g}), no column alone stands out"
        sides = np.where(self.observed[odd] > np.median(self.values[:, odd], axis=0), "high", "low")
        listed = ", ".join(f"{self.names[j]} is {side}" for j, side in zip(odd, sides, strict=True))
        return f"{words} (p = {self.pvalue:.2g}): {listed}"

    def plot(self, axes: Axes = None) -> Axes:
        """Histograms of the columns with the observation; bands over many columns."""
        return plot_predictive(self, axes)

    def __repr__(self) -> str:
        m, k = self.values.shape
        return (
            f"PredictiveCheck({m} simulations, {k} columns, p = {self.pvalue:.2g}: {self.verdict})"
        )


def ranks_among(values: Floats, draws: Floats, rng: np.random.Generator) -> Ints:
    """Rank 0, ..., m of values (n, ...) among draws (n, m, ...), ties broken at random."""
    below = np.sum(draws < values[:, None], axis=1)
    ties = np.sum(draws == values[:, None], axis=1)
    ranks: Ints = below + rng.integers(ties + 1)
    return ranks


def uniform_pvalues(ranks: Ints, m: int) -> Floats:
    """Return the p-value (d,) of each column of ranks (n, d) being uniform on 0, ..., m."""
    n = len(ranks)
    last = np.unique(np.linspace(0, m - 1, min(m, POSITIONS)).round().astype(int))
    chance = (last + 1) / (m + 1)  # of a rank of at most k
    counts = np.arange(n + 1)[:, None]
    tails = _tails(counts, n, chance)
    place = np.arange(len(last))
    least = [
        tails[np.searchsorted(np.sort(column), last, side="right"), place].min()
        for column in ranks.T
    ]
    # A fixed seed: the p-value is a function of the ranks.
    steps = np.diff(chance, prepend=0.0, append=1.0)
    null = np.random.default_rng(0).multinomial(n, steps, size=REPLICATES)[:, :-1].cumsum(axis=1)
    smallest = np.sort(tails[null, place].min(axis=1))
    below = np.searchsorted(smallest, np.asarray(least) * (1 + 1e-9), side="right")
    pvalues: Floats = (1 + below) / (1 + REPLICATES)
    return pvalues


def fault(u: Floats) -> str:
    """In words, how levels (n,) that ought to be uniform on (0, 1) differ from that.

    High ranks mean draws below the truth: biased down. Ranks at both ends mean a truth outside the
    draws: too narrow. Standard errors of mean and variance are those of the uniform distribution.
    """
    n = len(u)
    shift = (u.mean() - 0.5) * np.sqrt(12 * n)
    spread = (np.mean((u - 0.5) ** 2) - 1 / 12) * np.sqrt(180 * n)
    words = []
    if abs(spread) > CLEAR:
        words.append("too narrow" if spread > 0 else "too wide")
    if abs(shift) > CLEAR:
        words.append("biased down" if shift > 0 else "biased up")
    return " and ".join(words) or "of the wrong shape"


def coverage_pvalues(held: Floats, n: int, levels: Floats) -> Floats:
    """Two-sided binomial p-values of fractions held (K, ...) of n, at levels (K,)."""
    chance = levels.reshape(-1, *[1] * (held.ndim - 1))
    return np.asarray(np.minimum(1.0, 2.0 * _tails(np.rint(held * n), n, chance)))


def _tails(counts: Floats | Ints, n: int, chance: Floats) -> Floats:
    """Smaller tail probability of binomial counts."""
    below, above = stats.binom.cdf(counts, n, chance), stats.binom.sf(counts - 1, n, chance)
    return np.asarray(np.minimum(below, above))


def tail_pvalues(values: Floats, observed: Floats) -> Floats:
    """Two-sided p-values (k,) of each column of the observation among values (m, k)."""
    above = (1 + np.sum(values >= observed, axis=0)) / (1 + len(values))
    below = (1 + np.sum(values <= observed, axis=0)) / (1 + len(values))
    return np.asarray(np.minimum(1.0, 2.0 * np.minimum(above, below)))


def mahalanobis_pvalue(values: Floats, observed: Floats) -> float:
    """p-value of the observation's Mahalanobis distance, among all rows taken together.

    Centre and covariance are those of simulations and observation alike: then the p-value is exact
    if the observation is one more row of the same kind.
    """
    rows = np.vstack([observed, values])
    rows = rows - rows.mean(axis=0)
    scale = rows.std(axis=0)
    rows = rows[:, scale > 0] / scale[scale > 0]
    if not rows.shape[1]:
        return 1.0
    solved = rows
    if rows.shape[1] <= FULL:
        solved = solve(ledoit_wolf(rows, assume_centered=True)[0], rows.T).T
    distance = np.sum(rows * solved, axis=1)
    return float(np.mean(distance >= distance[0] * (1 - 1e-12)))


def tarp_ranks(theta: Floats, drawn: Floats, rng: np.random.Generator) -> Ints:
    """Rank (n,) of the truth's distance to a reference among those of the draws."""
    scale = theta.std(axis=0)
    scale = np.where(scale > 0, scale, 1.0)
    # References: parameters of other test pairs, which know nothing of this pair's truth.
    others = (np.arange(len(theta)) + rng.integers(1, max(2, len(theta)), len(theta))) % len(theta)
    reference = theta[others]
    truth = np.linalg.norm((theta - reference) / scale, axis=1)
    distance = np.linalg.norm((drawn - reference[:, None]) / scale, axis=2)
    return ranks_among(truth, distance, rng)
