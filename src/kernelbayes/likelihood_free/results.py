"""Results of checks: numbers, a picture and a verdict in words.

A verdict speaks up at level 1 % for everything looked at together: one in a hundred calibrated
posteriors is accused wrongly. "Nothing to see" says what the given number of simulations can show.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

from kernelbayes.likelihood_free.uniformity import LEVEL, coverage_pvalues, fault

Floats = np.ndarray[Any, Any]


@dataclass(frozen=True, eq=False, repr=False)
class RankCheck:
    """Result of :func:`~kernelbayes.likelihood_free.checks.sbc`.

    Attributes
    ----------
    ranks : int array (n, d)
        Of the true parameters among the draws: 0, ..., ``draws``.
    draws : int
    names : tuple of str
        Of the parameters.
    pvalues : array (d,)
        Of the ranks of each parameter being uniform.
    """

    ranks: Floats
    draws: int
    names: tuple[str, ...]
    pvalues: Floats

    @property
    def pvalue(self) -> float:
        """Of all parameters together (Bonferroni)."""
        return float(min(1.0, len(self.pvalues) * self.pvalues.min()))

    @property
    def calibrated(self) -> bool:
        """Whether nothing speaks against the posteriors, at level 1 %."""
        return self.pvalue > LEVEL

    @property
    def verdicts(self) -> dict[str, str]:
        """In words, parameter by parameter."""
        u = (self.ranks + 0.5) / (self.draws + 1)
        bad = self.pvalues * len(self.pvalues) <= LEVEL
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

    def plot(self, axes: Any = None, bins: int | None = None) -> Any:
        """Histograms of the ranks with bands for 99 % of uniform ones."""
        from kernelbayes.likelihood_free.pictures import plot_ranks

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

    def intervals_at(self, levels: Any) -> Floats:
        """Fraction of central intervals that hold the truth, (K, d)."""
        held = np.abs(2.0 * self.u - 1.0) <= np.reshape(levels, (-1, 1, 1))
        return np.asarray(held.mean(axis=1))

    def regions_at(self, levels: Any) -> Floats:
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
        return np.stack(stats.binom.interval(1 - LEVEL, n, self.levels), axis=-1) / n

    @property
    def verdict(self) -> str:
        """In words: the clearest departure, at level 1 % for all levels and parameters together."""
        n = len(self.u)
        held = np.column_stack([self.coverage, self.joint])
        p = coverage_pvalues(held, n, self.levels)
        k, j = np.unravel_index(np.argmin(p), p.shape)
        if p[k, j] * p.size > LEVEL:
            return f"covers as it should: nothing to see in {n} simulations"
        what = f"intervals of {self.names[j]}" if j < len(self.names) else "joint regions"
        word = "too narrow or biased" if held[k, j] < self.levels[k] else "too wide"
        level, share = 100 * self.levels[k], 100 * held[k, j]
        return f"{level:g} % {what} hold the truth {share:.3g} % of the time: {word}"

    def plot(self, ax: Any = None) -> Any:
        """Coverage against level, with the band for 99 % of calibrated posteriors."""
        from kernelbayes.likelihood_free.pictures import plot_coverage

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
        unlike = self.pvalue <= LEVEL
        # Once the whole is odd, columns are named at the level of each; else for all together.
        bound = LEVEL if unlike else LEVEL / len(self.pvalues)
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

    def plot(self, axes: Any = None) -> Any:
        """Histograms of the columns with the observation; bands over many columns."""
        from kernelbayes.likelihood_free.pictures import plot_predictive

        return plot_predictive(self, axes)

    def __repr__(self) -> str:
        m, k = self.values.shape
        return (
            f"PredictiveCheck({m} simulations, {k} columns, p = {self.pvalue:.2g}: {self.verdict})"
        )
