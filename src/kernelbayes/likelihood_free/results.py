"""Results of checks: numbers, a picture and a verdict in words.

Verdicts are tests at significance level 1 % for all parameters and levels together: one in a
hundred calibrated posteriors is accused wrongly. A test that does not reject says only what the
given number of simulations can show.

If posteriors are right, the rank of the true parameter among m draws from the posterior is uniform
on 0, ..., m (Talts et al. 2018, Theorem 1). The number of ranks that are at most k is then
binomial, for every k. The test compares the least likely of these counts with the least likely ones
of simulated uniform ranks: exact up to that simulation (Saeilynoja, Buerkner and Vehtari 2022).
"""

import inspect
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

from kernelbayes.plot.posteriors import plot_coverage, plot_ranks, plot_tarp
from kernelbayes.tables import HtmlTable, Table, extra
from kernelbayes.types import Array, Axes, Floats, Ints

ALPHA = 0.01  # significance level of the verdicts, for all parameters together
REPLICATES = 4000  # simulated sets of ranks: a p-value of 1 % has a standard error of 0.16 %
# Ranks k at which counts are compared. Neighbouring counts differ by n / 100: more say little new.
POSITIONS = 100
# Standard errors of a moment beyond which the verdict names it, once ranks are not uniform.
CLEAR = 2.5


class Check(HtmlTable):
    """What all results of checks have: a verdict in words, a table and a picture.

    The table has the same columns for all checks: ``quantity`` that was computed, ``of`` what (a
    parameter, a column or all together), its ``value``, the one ``expected`` if all is well, and a
    ``pvalue`` where there is one.
    """

    verdict: Any  # properties of every check
    table: Any

    def to_frame(self) -> Any:
        """Pandas frame of the table."""
        return self.table.to_frame()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.verdict})"

    def _numbers(self) -> Table:
        return Table(self.table)


def row(
    quantity: str, of: str, value: float, expected: float | None, pvalue: float | None = None
) -> dict[str, str | float | None]:
    """Row of the table of a check."""
    numbers = (None if v is None else float(v) for v in (value, expected, pvalue))
    titles = ("quantity", "of", "value", "expected", "pvalue")
    return dict(zip(titles, (quantity, of, *numbers), strict=True))


@dataclass(frozen=True, eq=False, repr=False)
class RankCheck(Check):
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
        faults = {name: word for name, word in self.verdicts.items() if word != "calibrated"}
        return "; ".join(f"{name} is {word}" for name, word in faults.items())

    @property
    def table(self) -> Table:
        """Mean rank of each parameter, as a share, with the p-value of all its ranks."""
        means = (self.ranks.mean(axis=0) + 0.5) / (self.n_draws + 1)
        found = zip(self.names, means, self.pvalues, strict=True)
        return Table(row("mean rank", name, mean, 0.5, p) for name, mean, p in found)

    def to_arviz(self) -> Any:
        """ArviZ data with ranks as shares of the draws, in the group ``prior_sbc``.

        That is the group that ``arviz_plots.plot_ecdf_pit`` looks for.
        """
        arviz = extra("arviz", "arviz", "this needs ArviZ")
        shares = (self.ranks.T[:, None] + 0.5) / (self.n_draws + 1)
        group = dict(zip(self.names, shares, strict=True))
        if "posterior" in inspect.signature(arviz.from_dict).parameters:  # before ArviZ 1.0
            return arviz.InferenceData(prior_sbc=arviz.dict_to_dataset(group))
        return arviz.from_dict({"prior_sbc": group})

    def plot(self, axes: Axes = None, bins: int | None = None) -> Axes:
        """Histograms of the ranks with bands for 99 % of uniform ones."""
        return plot_ranks(self, axes, bins)


@dataclass(frozen=True, eq=False, repr=False)
class CoverageCheck(Check):
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

    @property
    def table(self) -> Table:
        """Coverage of each parameter's intervals and of joint regions, level by level."""
        held = np.column_stack([self.coverage, self.joint])
        p, names = coverage_pvalues(held, len(self.u), self.levels), (*self.names, "joint")
        return Table(
            row(f"coverage at {100 * level:g} %", name, held[k, j], level, p[k, j])
            for k, level in enumerate(self.levels)
            for j, name in enumerate(names)
        )

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
class TarpCheck(Check):
    """Result of :func:`~kernelbayes.tarp`.

    Attributes
    ----------
    ranks : int array (n,)
        Of the true parameters' distances to their references among those of the draws.
    n_draws : int
    pvalue : float
        Of the ranks being uniform.
    """

    ranks: Ints
    n_draws: int
    pvalue: float

    def coverage_at(self, levels: Array) -> Floats:
        """Share of regions of probability ``levels`` (K,) that hold the truth, (K,)."""
        u = (self.ranks + 0.5) / (self.n_draws + 1)
        return np.asarray((u <= np.reshape(levels, (-1, 1))).mean(axis=1))

    @property
    def atc(self) -> float:
        """Area between coverage and level, over levels above one half.

        Negative for posteriors that are too narrow, positive for those too wide.
        """
        levels = np.linspace(0.5, 1.0, POSITIONS)
        return float(np.trapezoid(self.coverage_at(levels) - levels, levels))

    @property
    def verdict(self) -> str:
        """In words."""
        if self.pvalue > ALPHA:
            return f"calibrated: nothing to see in {len(self.ranks)} simulations"
        words = fault((self.ranks + 0.5) / (self.n_draws + 1))
        return words.replace("biased up", "biased").replace("biased down", "biased")

    @property
    def table(self) -> Table:
        """Coverage at five levels, and the area to the curve with the p-value."""
        levels = np.array([0.1, 0.25, 0.5, 0.75, 0.9])
        held = self.coverage_at(levels)
        p = coverage_pvalues(held, len(self.ranks), levels)
        found = zip(levels, held, p, strict=True)
        rows = [row(f"coverage at {100 * v:g} %", "joint", h, v, p) for v, h, p in found]
        return Table([*rows, row("area to curve", "joint", self.atc, 0.0, self.pvalue)])

    def plot(self, ax: Axes = None) -> Axes:
        """Draw coverage against level, with the band for 99 % of calibrated posteriors."""
        return plot_tarp(self, ax)


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


def tarp_ranks(
    theta: Floats, drawn: Floats, rng: np.random.Generator, reference: Floats | None = None
) -> Ints:
    """Rank (n,) of the truth's distance to a reference among those of the draws."""
    scale = theta.std(axis=0)
    scale = np.where(scale > 0, scale, 1.0)
    if reference is None:  # parameters of other test pairs, which know nothing of this truth
        n = len(theta)
        reference = theta[(np.arange(n) + rng.integers(1, max(2, n), n)) % n]
    truth = np.linalg.norm((theta - reference) / scale, axis=1)
    distance = np.linalg.norm((drawn - reference[:, None]) / scale, axis=2)
    return ranks_among(truth, distance, rng)
