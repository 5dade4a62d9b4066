"""Plots of posteriors over parameters, and of checks. Need matplotlib (extra ``plot``)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy import stats

from kernelbayes.gram.lapack import numerical_rank
from kernelbayes.plot import canvas
from kernelbayes.plot.canvas import CYCLE, FIRST, NEUTRAL, SECOND, bare, subplots
from kernelbayes.types import Axes, Floats

if TYPE_CHECKING:
    from kernelbayes.likelihood_free.checks import RecoveryCheck
    from kernelbayes.likelihood_free.predictive import PredictiveCheck
    from kernelbayes.likelihood_free.results import CoverageCheck, RankCheck, TarpCheck
    from kernelbayes.likelihood_free.twosample import ClassifierCheck, LocalCheck

CONTOUR_GRID = 60  # points along each axis of a contour plot: a panel is about 200 pixels wide
LEVELS = np.linspace(0.0, 1.0, 101)  # of coverage plots: per cent
PANELS = 12  # columns of a predictive check that get a histogram each: three rows of four


def draw_pairs(
    draws: Floats, wide: Floats | None, truth: Floats | None, names: tuple[str, ...],
    limits: Floats | None = None,
) -> Axes:  # fmt: skip
    """Axes (d, d) of draws (m, d), over a wider sample, with the truth (d,), in limits (d, 2)."""
    d = draws.shape[1]
    axes = subplots(d, d, width=1.0 + 2.2 * d, height=0.6 + 2.2 * d, squeeze=False)
    shown = draws if truth is None else np.vstack([draws, truth])
    spans = [_span(column) for column in shown.T] if limits is None else [*map(tuple, limits)]
    for i, j in zip(*np.tril_indices(d), strict=True):
        ax = axes[i, j]
        if i == j:
            _marginal(ax, draws[:, j], None if wide is None else wide[:, j], spans[j])
        else:
            _pair(ax, draws[:, [j, i]], None if wide is None else wide[:, [j, i]])
            ax.set_ylim(spans[i])
        if truth is not None:
            ax.axvline(truth[j], color=SECOND, lw=1.0, label="truth" if i == j else None)
            if i != j:
                ax.axhline(truth[i], color=SECOND, lw=1.0)
        ax.set_xlim(spans[j])
        bare(ax)
    beside = {"loc": "upper left", "bbox_to_anchor": (1.02, 1.0)}  # nothing is above the diagonal
    axes[0, 0].legend(frameon=False, fontsize="small", **beside)
    return canvas.label_corner(axes, names)


def plot_ranks(result: RankCheck, axes: Axes = None, bins: int | None = None) -> Axes:
    """Histogram of the ranks of each parameter, with the band of 99 % of uniform ranks."""
    n, d = result.ranks.shape
    bins = bins or int(np.clip(n // 10, 2, min(20, result.n_draws + 1)))
    edges = np.unique(np.round(np.linspace(0, result.n_draws + 1, bins + 1)))
    share = np.diff(edges) / (result.n_draws + 1)
    low, high = stats.binom.interval(0.99, n, share)
    axes = _panels(d, axes)
    verdicts = result.verdicts
    for j, ax in enumerate(axes):
        counts = np.histogram(result.ranks[:, j], edges)[0]
        ax.stairs(high / share / n, edges, baseline=low / share / n, fill=True, color=NEUTRAL,
                  alpha=0.15, label="99 % band", zorder=0)  # fmt: skip
        ax.stairs(counts / share / n, edges, fill=True, color=FIRST, alpha=0.5)
        ax.axhline(1.0, color=NEUTRAL, lw=0.8)
        ax.set(xlabel=f"rank of {result.names[j]}", title=verdicts[result.names[j]])
        bare(ax).set_ylim(bottom=0.0)
    axes[0].set_ylabel("relative frequency")
    axes[0].legend(frameon=False)
    return axes


def plot_coverage(result: CoverageCheck, ax: Axes = None) -> Axes:
    """Coverage against level: each parameter, the joint regions, and the band of 99 %."""
    held = dict(zip(result.names, result.intervals_at(LEVELS).T, strict=True))
    ax = _coverage(len(result.u), held, ax, lw=1.0)
    ax.plot(LEVELS, result.regions_at(LEVELS), color=NEUTRAL, lw=2.0, label="joint")
    ax.scatter(result.levels, result.joint, color=NEUTRAL, s=20, zorder=3)
    ax.legend(frameon=False, fontsize="small")
    return ax


def plot_levels(reached: Floats, weights: Floats, ax: Axes = None) -> Axes:
    """Coverage against level from the levels (m, d) of intervals that just cover the truth."""
    held = {f"z{j}": weights @ (column[:, None] <= LEVELS) for j, column in enumerate(reached.T)}
    return _coverage(round(1.0 / float(np.sum(weights**2))), held, ax)


def plot_tarp(result: TarpCheck, ax: Axes = None) -> Axes:
    """Draw expected coverage against level, and the band of 99 %."""
    return _coverage(len(result.ranks), {"TARP": result.coverage_at(LEVELS)}, ax)


def _coverage(n: int, held: dict[str, Floats], ax: Axes, lw: float = 2.0) -> Axes:
    """Draw coverages (101,) by name against ``LEVELS``, and the band of n calibrated ones."""
    ax = subplots(width=5.0, height=5.0) if ax is None else ax
    low, high = stats.binom.interval(0.99, n, LEVELS)
    ax.fill_between(LEVELS, low / n, high / n, color=NEUTRAL, alpha=0.15, lw=0, label="99 % band")
    ax.plot([0, 1], [0, 1], color=NEUTRAL, lw=0.8)
    for j, (name, column) in enumerate(held.items()):
        ax.plot(LEVELS, column, color=CYCLE[j % len(CYCLE)], lw=lw, label=name)
    ax.set(xlabel="level", ylabel="holds the truth", aspect="equal", xlim=(0, 1), ylim=(0, 1))
    ax.legend(frameon=False, fontsize="small")
    return bare(ax)


def plot_recovery(result: RecoveryCheck, axes: Axes = None) -> Axes:
    """Posterior means and standard deviations against true parameters, one axes for each."""
    axes = _panels(len(result.names), axes)
    for j, ax in enumerate(axes):
        truth, mean, sd = result.truth[:, j], result.means[:, j], result.sds[:, j]
        ax.errorbar(truth, mean, sd, fmt="o", ms=3, color=FIRST, alpha=0.4, lw=0.8)
        ends = [truth.min(), truth.max()]
        ax.plot(ends, ends, color=NEUTRAL, lw=0.8)
        name, learned = result.names[j], f"contraction {100 * result.contraction[j]:.0f} %"
        ax.set(xlabel=f"true {name}", title=learned)
        bare(ax)
    axes[0].set_ylabel("posterior mean and sd")
    return axes


def plot_told(result: ClassifierCheck, ax: Axes = None) -> Axes:
    """Histograms of the probabilities that a classifier gave two samples."""
    ax = subplots(width=6.0, height=3.6) if ax is None else ax
    halves = np.split(result.probabilities, 2)
    for part, colour, label in zip(halves, (FIRST, SECOND), ("first", "second"), strict=True):
        ax.hist(part, np.linspace(0, 1, 26), color=colour, alpha=0.5, label=f"{label} sample")
    ax.set(xlabel="probability of the second sample", title=f"C2ST {result.accuracy:.3f}")
    ax.legend(frameon=False)
    return bare(ax)


def plot_local(result: LocalCheck, axes: Axes = None) -> Axes:
    """Null distribution with the statistic, then scores of draws by parameter: d + 1 axes."""
    axes = _panels(1 + len(result.names), axes)
    axes[0].hist(result.null, bins=40, color=NEUTRAL, alpha=0.35, label="random labels")
    axes[0].axvline(result.statistic, color=SECOND, lw=2, label="observed")
    axes[0].set(xlabel="L-C2ST statistic", title=f"p = {result.pvalue:.3g}")
    axes[0].legend(frameon=False)
    for ax, name, column in zip(axes[1:], result.names, result.draws.T, strict=True):
        ax.scatter(column, result.scores, s=6, color=FIRST, alpha=0.5, lw=0)
        ax.axhline(0.0, color=NEUTRAL, lw=0.8)
        ax.set(xlabel=name, ylabel="score (positive: too little mass)")
        bare(ax)
    return axes


def plot_predictive(result: PredictiveCheck, axes: Axes = None) -> Axes:
    """Draw simulations from the posterior and the observation, column by column.

    ``axes`` are one per column up to 12 columns; beyond, one for bands over all columns.
    """
    k = result.values.shape[1]
    if k <= PANELS:
        axes = _panels(k, axes)
        for j, ax in enumerate(axes):
            ax.hist(result.values[:, j], bins=30, color=FIRST, alpha=0.5)
            ax.axvline(result.observed[j], color=SECOND, lw=2.0, label="observed")
            ax.set(xlabel=result.names[j], title=f"p = {result.pvalues[j]:.2g}", yticks=[])
            bare(ax)
        axes[0].legend(frameon=False)
        return axes
    axes = _panels(1, axes)
    place = np.arange(k)
    for mass in canvas.CONTOURS:
        ends = np.quantile(result.values, [(1 - mass) / 2, (1 + mass) / 2], axis=0)
        axes[0].fill_between(place, *ends, color=FIRST, alpha=0.25, lw=0,
                             label=f"{100 * mass:g} % of simulations")  # fmt: skip
    axes[0].plot(place, result.observed, color=SECOND, lw=1.0, label="observed")
    axes[0].set(xlabel="column", ylabel="x")
    axes[0].legend(frameon=False)
    bare(axes[0])
    return axes


def _panels(k: int, axes: Axes) -> Axes:
    """Axes (k,), on a new figure of up to four columns unless given."""
    if axes is not None:
        axes = np.atleast_1d(np.asarray(axes, dtype=object)).ravel()
        if len(axes) != k:
            raise ValueError(f"{k} axes are needed, got {len(axes)}")
        return axes
    columns = min(k, 4)
    rows = -(-k // columns)
    grid = subplots(rows, columns, width=1 + 3.0 * columns, height=0.5 + 2.5 * rows, squeeze=False)
    for ax in grid.ravel()[k:]:
        ax.set_axis_off()
    return grid.ravel()[:k]


def _span(shown: Floats) -> tuple[float, float]:
    """Limits a little wider than what is shown (m,)."""
    low, high = float(shown.min()), float(shown.max())
    margin = 0.1 * (high - low) or 0.5
    return low - margin, high + margin


def _marginal(ax: Axes, draws: Floats, wide: Floats | None, span: tuple[float, float]) -> None:
    edges = np.linspace(*span, 51)
    if wide is not None:
        ax.hist(wide, edges, density=True, histtype="step", color=NEUTRAL, alpha=0.6, label="prior")
    ax.hist(draws, edges, density=True, color=FIRST, alpha=0.6, label="posterior")
    ax.set_yticks([])


def _pair(ax: Axes, draws: Floats, wide: Floats | None) -> None:
    if wide is not None:
        ax.scatter(*wide.T, s=2, color=NEUTRAL, alpha=0.2, lw=0)
    ax.scatter(*draws.T, s=4, color=FIRST, alpha=0.4, lw=0)
    if numerical_rank(np.cov(draws.T)) < 2 or len(np.unique(draws, axis=0)) < 10:
        return  # points on a line, or a few discrete ones: no density, no contours
    kde = stats.gaussian_kde(draws.T)
    x, y = (np.linspace(c.min(), c.max(), CONTOUR_GRID) for c in draws.T)
    height = kde(np.stack(np.meshgrid(x, y)).reshape(2, -1)).reshape(CONTOUR_GRID, CONTOUR_GRID)
    at_draws = kde(draws.T)  # a highest-density region contains the draws of highest density
    levels = np.unique(np.quantile(at_draws, [1.0 - mass for mass in canvas.CONTOURS]))
    ax.contour(x, y, height, levels=levels, colors=FIRST, linewidths=1.0)
