"""What a test returns: the numbers, the size of the effect, and where the difference lies."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from kernelbayes.embedding import Embedding
from kernelbayes.kernels import Kernel
from kernelbayes.points import take
from kernelbayes.tables import HtmlTable, Row, Table
from kernelbayes.types import Floats, Points


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
        for "linear" and "block" that of a mean of independent terms, for weighted pairs and
        ``ci_test`` the asymptotic one. All assume independent points: the interval of a time
        series is too short.
    level : float
        Nominal coverage of the interval.
    """

    size: float
    interval: tuple[float, float]
    level: float = 0.95

    def __repr__(self) -> str:
        low, high = self.interval
        return f"{self.size:.3g} [{low:.3g}, {high:.3g}]"


@dataclass(frozen=True, eq=False)
class Witness:
    """Where the null hypothesis fails: the witness function at the points of the sample.

    Attributes
    ----------
    points : points (n, ...), or a pair of aligned points
        Both samples, the first one first; for independence the pair (X, Y).
    values : array (n,)
        Positive where the first sample (the joint distribution) has more mass, negative where the
        second (the product of the marginals) has.
    kernel, weights : Kernel and array (n,), optional
        Of two samples: the witness function is the embedding of the points with these weights.
    """

    points: Points = field(repr=False)
    values: Floats = field(repr=False)
    kernel: Kernel | None = None
    weights: Floats | None = field(default=None, repr=False)

    @property
    def function(self) -> Embedding | None:
        """Witness function of two samples, to be called anywhere; None for other tests."""
        if self.kernel is None or self.weights is None:
            return None
        return Embedding(self.points, self.weights, self.kernel)

    def largest(self, m: int = 5) -> tuple[Points, Floats]:
        """Return the m points at which the absolute witness is largest, and its values there."""
        order = np.argsort(-np.abs(self.values), kind="stable")[:m]
        if isinstance(self.points, tuple):
            return tuple(take(part, order) for part in self.points), self.values[order]
        return take(self.points, order), self.values[order]


@dataclass(frozen=True, eq=False, repr=False)
class KernelTestResult(HtmlTable):
    """Result of a kernel test; the names are SciPy's. It unpacks as (statistic, pvalue).

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
        Probability that the test rejects at significance level ``alpha`` on new samples like these,
        of these sizes: Phi((statistic - critical value) / standard error), the asymptotic normal
        law of the statistic. A function of data already seen: use it to plan the next sample, not
        as evidence. It assumes independent points. None where it cannot be estimated (fewer than
        five points).
    alpha : float
        Significance level used by ``power_estimate`` and by the aggregated tests.
    test, method : str
    sizes : tuple of int
        Sample sizes.
    witness : Witness, optional
    details : mapping
        What else the method reports: ridges, block lengths, ranks, tables.
    """

    statistic: float
    pvalue: float
    null: Floats
    kernel: Kernel | tuple[Kernel, ...]
    effect: Effect | None
    power_estimate: float | None
    alpha: float
    test: str
    method: str
    sizes: tuple[int, ...]
    witness: Witness | None = None
    details: Mapping[str, Any] = field(default_factory=dict)

    def __iter__(self) -> Iterator[float]:
        return iter((self.statistic, self.pvalue))

    def __repr__(self) -> str:
        parts = [f"statistic={self.statistic:.4g}", f"pvalue={self.pvalue:.4g}"]
        if self.effect is not None:
            parts.append(f"effect={self.effect!r}")
        if self.power_estimate is not None:
            parts.append(f"power={self.power_estimate:.2g}")
        parts += [f"n={' + '.join(map(str, self.sizes))}", f"kernel={self.kernel!r}"]
        return f"{self.test} test ({self.method}): " + ", ".join(parts)

    def to_frame(self) -> Any:
        """Pandas frame of one row; of an aggregated test a row for each statistic of a kernel."""
        return self._numbers().to_frame()

    def _numbers(self) -> Table:
        return Table(self.details.get("table", [self.row()]))

    def row(self) -> Row:
        """Numbers of the test as a row of a table."""
        effect = self.effect or Effect(math.nan, (math.nan, math.nan))
        row: Row = {name: getattr(self, name) for name in ("test", "method", "statistic", "pvalue")}
        low, high = effect.interval
        row |= {"effect": effect.size, "low": low, "high": high}
        return row | {"power": self.power_estimate, "n": sum(self.sizes)}

    def plot(self, kind: str = "null", ax: Any = None, **options: Any) -> Any:
        """Draw the null distribution with the statistic, or (``kind="witness"``) where it fails.

        See :func:`kernelbayes.compare.plot_null` and :func:`~kernelbayes.compare.plot_where`.
        Needs matplotlib, the extra ``plot``. Returns the axes.
        """
        from kernelbayes.plot.tests import plot_null, plot_where

        if kind == "null":
            return plot_null(self, ax, **options)
        if kind == "witness":
            return plot_where(self, ax, **options)
        raise ValueError(f"kind must be 'null' or 'witness', got {kind!r}")
