"""What a test returns: the numbers, what they mean in size, and where the difference lies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.special import ndtr, ndtri

from kernelbayes.embedding import Embedding
from kernelbayes.points import Points, take

Floats = np.ndarray[Any, np.dtype[np.float64]]
# Relative rounding error below which two statistics count as equal.
TIES = 1e-12


@dataclass(frozen=True)
class Effect:
    """Size of a difference or dependence in units of the data, with a confidence interval.

    Attributes
    ----------
    size : float
        Two samples: MMD over the standard deviation in feature space (Cohen's d when the kernel is
        linear and the points are numbers). Independence: the kernel correlation between 0 and 1
        (the absolute Pearson correlation when both kernels are linear).
    interval : (float, float)
        Normal interval of the squared size, cut off at zero. The standard error is a jackknife's;
        for "linear" and "block" that of a mean of independent terms, for ``ci_test`` the asymptotic
        one. All take the points to be independent: for a time series it is too short.
    confidence : float
        Nominal coverage of the interval.
    """

    size: float
    interval: tuple[float, float]
    confidence: float = 0.95

    def __repr__(self) -> str:
        low, high = self.interval
        return f"{self.size:.3g} [{low:.3g}, {high:.3g}]"


@dataclass(frozen=True, eq=False)
class Witness:
    """Where the null hypothesis fails: the witness function at the points of the sample.

    Attributes
    ----------
    points : points (n, ...), or a pair of aligned points
        Both samples, the first one first; for independence the pair (X, Z).
    values : array (n,)
        Positive where the first sample (the joint distribution) has more mass, negative where the
        second (the product of the marginals) has.
    function : Embedding, optional
        The witness function itself for two samples: call it anywhere.
    """

    points: Any = field(repr=False)
    values: Floats = field(repr=False)
    function: Embedding | None = None

    def largest(self, m: int = 5) -> tuple[Points, Floats]:
        """Return the m points at which the absolute witness is largest, and its values there."""
        order = np.argsort(-np.abs(self.values), kind="stable")[:m]
        if isinstance(self.points, tuple):
            return tuple(take(part, order) for part in self.points), self.values[order]
        return take(self.points, order), self.values[order]


@dataclass(frozen=True, eq=False, repr=False)
class KernelTestResult:
    """Result of a kernel test; the names are SciPy's.

    Attributes
    ----------
    statistic : float
        The larger, the more evidence against the null hypothesis.
    pvalue : float
    null : array (B,)
        Statistics under the null hypothesis: those of the permutations or bootstrap draws, or the
        quantiles of an approximation at (i - 1/2) / B.
    kernel : Kernel, or a tuple of them
        The kernel of the test, as given or as chosen.
    effect : Effect, optional
        Size with a confidence interval.
    power_estimate : float, optional
        Chance that the test rejects at ``level`` on new samples like these, of these sizes:
        Phi((statistic - critical value) / standard error), the asymptotic normal law of the
        statistic. A function of the data that are already seen: for planning the next sample, not
        evidence of its own. It takes the points to be independent, in a time series too. None where
        it cannot be estimated (fewer than five points).
    level : float
        Level used by ``power_estimate`` and by the aggregated tests.
    test, method : str
    sizes : tuple of int
        Sample sizes.
    witness : Witness, optional
    details : mapping
        What else the method has to say: ridges, block lengths, ranks, tables.
    """

    statistic: float
    pvalue: float
    null: Floats
    kernel: Any
    effect: Effect | None
    power_estimate: float | None
    level: float
    test: str
    method: str
    sizes: tuple[int, ...]
    witness: Witness | None = None
    details: Mapping[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        parts = [f"statistic={self.statistic:.4g}", f"pvalue={self.pvalue:.4g}"]
        if self.effect is not None:
            parts.append(f"effect={self.effect!r}")
        if self.power_estimate is not None:
            parts.append(f"power={self.power_estimate:.2g}")
        parts += [f"n={' + '.join(map(str, self.sizes))}", f"kernel={self.kernel!r}"]
        return f"{self.test} test ({self.method}): " + ", ".join(parts)

    def plot(self, kind: str = "null", ax: Any = None, **options: Any) -> Any:
        """Draw the null distribution with the statistic, or (``kind="witness"``) where it fails.

        See :func:`kernelbayes.compare.plot_null` and :func:`~kernelbayes.compare.plot_where`.
        Needs matplotlib, the extra ``plot``. Returns the axes.
        """
        from kernelbayes.compare.pictures import plot_null, plot_where

        if kind == "null":
            return plot_null(self, ax, **options)
        if kind == "witness":
            return plot_where(self, ax, **options)
        raise ValueError(f"kind must be 'null' or 'witness', got {kind!r}")


def effect_of(squared: float, error: float, most: float = np.inf) -> Effect:
    """Effect, at most ``most``, whose square is estimated by ``squared`` with a standard error.

    The interval is made for the square, whose estimate is unbiased and may be negative, and then
    cut off at zero: near zero the root has no normal law.
    """
    margin = float(ndtri(0.5 + 0.5 * Effect.confidence)) * error
    squares = (squared - margin, squared, squared + margin)
    low, size, high = (min(most, float(np.sqrt(max(0.0, s)))) for s in squares)
    return Effect(size, (low, high))


def relative_effect(
    value: float, spread: float, error: float, scale: float, most: float = np.inf
) -> Effect:
    """Effect whose square is ``value / spread``, of standard error ``error``.

    Without spread two samples are infinitely far apart, or not at all, and nothing is known about a
    correlation (``most`` one) unless its value is zero.
    """
    if spread <= TIES * scale:
        top = most if value > TIES * scale else 0.0
        low = top if np.isinf(most) else 0.0
        return Effect(low, (low, top))
    return effect_of(value / spread, error, most)


def power_of(statistic: float, null: Floats, error: float, level: float, scale: float) -> float:
    """Asymptotic normal power: chance that a statistic with this error exceeds the quantile.

    What is rounding at ``scale`` counts as zero.
    """
    above = statistic - float(np.quantile(null, 1.0 - level))
    if error <= TIES * scale:
        return float(above > TIES * scale)
    return float(ndtr(above / error))
