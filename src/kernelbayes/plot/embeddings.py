"""Plots of a decoded distribution. Need matplotlib (extra ``plot``)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from kernelbayes.arrays import to_numpy
from kernelbayes.plot import canvas
from kernelbayes.plot.canvas import CYCLE, FIRST, NEUTRAL, bare, subplots
from kernelbayes.types import Axes, Floats

if TYPE_CHECKING:
    from kernelbayes.embedding.decoding import Decoding

# Members of a batch drawn as single curves, one colour each; more are drawn as intervals.
CURVES = len(CYCLE)
GRID_1D, GRID_2D = 400, 80  # points along each axis: curves look smooth at 600 pixels
SCATTER = 2000  # heaviest points of a scatter plot; more would overlap

# Grids (size,) of the coordinates, and the density there, of points (n, d) with weights (n,).
GridDensity = Callable[[Floats, Floats, int], tuple[list[Floats], Floats]]


def plot_embedding(
    mu: Decoding, density: GridDensity, ax: Axes | None, level: float, label: str | None,
    letter: str,
) -> Axes:  # fmt: skip
    """Draw an embedding or a batch; see :meth:`kernelbayes.Embedding.plot`."""
    X, W = to_numpy(mu.vectors), mu.valid_weights()
    d, single = X.shape[1], mu.weights.ndim == 1
    names = mu.names if mu.names and len(mu.names) == d else None
    names = names or ((letter,) if d == 1 else tuple(f"{letter}{j}" for j in range(d)))
    periods = mu.kernel.periods(d)
    if not single and d == 1 and len(W) <= CURVES:
        ax = subplots() if ax is None else ax
        return _curves(ax, X, W, to_numpy(mu.mean()), names[0], periods, density)
    intervals = to_numpy(mu.interval(level))
    if ax is not None and (d > 2 or (d > 1 and not single)):
        raise ValueError(f"{d} coordinates need several axes; do not pass ax")
    if not single:
        middle = mu.mean() if any(periods) else mu.median()  # angles have no median
        return _bands(ax, intervals, to_numpy(middle), names, level, periods)
    X, mean, intervals = canvas.around(X, to_numpy(mu.mean()), intervals, periods)
    if d > 2:
        return _corner(X, W[0], mean, intervals, names, level, density, periods)
    ax = subplots() if ax is None else ax
    if d == 1:
        _line(ax, X, W[0], mean[0], intervals[0], names[0], level, label, density)
    else:
        _plane(ax, X, W[0], names, density)
        canvas.label_turns(ax.yaxis, periods[1])
    canvas.label_turns(ax.xaxis, periods[0])
    return ax


def plot_categories(
    labels: Sequence[object], P: Floats, names: tuple[str, ...] | None, ax: Axes | None
) -> Axes:
    """Bars of the probabilities P (m, k) of categories, side by side for each member of a batch."""
    shown = P[:CURVES]
    ax = subplots() if ax is None else ax
    at, width = np.arange(len(labels)), 0.8 / len(shown)
    for i, p in enumerate(shown):
        place = at + width * (i - 0.5 * (len(shown) - 1))
        ax.bar(place, p, width, color=CYCLE[i], alpha=0.7, label=str(i) if len(shown) > 1 else None)
    ax.set_xticks(at, [str(label) for label in labels])
    ax.set(xlabel=names[0] if names else "z", ylabel="probability", ylim=(0.0, 1.0))
    if len(shown) > 1:
        title = f"first {CURVES} of {len(P)}" if len(P) > CURVES else None
        ax.legend(frameon=False, title=title)
    return bare(ax)


def _line(
    ax: Axes, X: Floats, w: Floats, mean: float, interval: Floats, name: str, level: float,
    label: str | None, density: GridDensity,
) -> Axes:  # fmt: skip
    """Density of scalar points X (n, 1), its interval shaded, and the mean."""
    (grid,), height = density(X, w, GRID_1D)
    inside = (grid >= interval[0]) & (grid <= interval[1])
    ax.plot(grid, height, color=FIRST, lw=2.0, label=label)
    ax.fill_between(grid, height, where=inside, **canvas.shade(level))
    ax.axvline(mean, color=NEUTRAL, lw=1.0, ls="--", label="mean")
    return _density_axes(ax, name)


def _curves(
    ax: Axes, X: Floats, W: Floats, means: Floats, name: str, periods: canvas.Periods,
    density: GridDensity,
) -> Axes:  # fmt: skip
    for i, w in enumerate(W):
        own = canvas.around(X, means[i], np.zeros((1, 2)), periods)[0]
        (grid,), height = density(own, w, GRID_1D)
        ax.plot(grid, height, color=CYCLE[i], lw=2.0, label=str(i))
    canvas.label_turns(ax.xaxis, periods[0])
    return _density_axes(ax, name)


def _density_axes(ax: Axes, name: str) -> Axes:
    ax.set(xlabel=name, ylabel="density")
    ax.set_ylim(bottom=0.0, auto=None)  # the top still adapts to later curves
    ax.legend(frameon=False)
    return bare(ax)


def _plane(ax: Axes, X: Floats, w: Floats, names: tuple[str, ...], density: GridDensity) -> Axes:
    """Points of the plane sized by their weight, and contours of their density."""
    heavy = np.argsort(-w)[:SCATTER]
    heavy = heavy[w[heavy] > 0]
    ax.scatter(*X[heavy].T, s=20.0 * w[heavy] / w.max(), color=FIRST, alpha=0.4, lw=0)
    (x, y), height = density(X, w, GRID_2D)
    ordered = np.sort(height.ravel())[::-1]
    mass = np.cumsum(ordered) / ordered.sum()  # above each height
    at = np.minimum(np.searchsorted(mass, canvas.CONTOURS), len(mass) - 1)
    ax.contour(x, y, height, levels=np.unique(ordered[at]), colors=NEUTRAL, linewidths=1.0)
    ax.set(xlabel=names[0], ylabel=names[1])
    return bare(ax)


def _corner(
    X: Floats, w: Floats, mean: Floats, intervals: Floats, names: tuple[str, ...], level: float,
    density: GridDensity, periods: canvas.Periods,
) -> Axes:  # fmt: skip
    d = X.shape[1]
    axes = subplots(d, d, width=2.2 * d, height=2.2 * d, squeeze=False)
    for i, j in [(row, column) for row in range(d) for column in range(row + 1)]:
        if i != j:
            _plane(axes[i, j], X[:, [j, i]], w, (names[j], names[i]), density)
        else:
            _line(axes[i, i], X[:, [i]], w, mean[i], intervals[i], names[i], level, None, density)
            axes[i, i].get_legend().remove()
            axes[i, i].set_yticks([])
        canvas.label_turns(axes[i, j].xaxis, periods[j])
        canvas.label_turns(axes[i, j].yaxis, periods[i] if i != j else None)
    return canvas.label_corner(axes, names)


def _bands(
    ax: Axes | None, intervals: Floats, middle: Floats, names: tuple[str, ...], level: float,
    periods: canvas.Periods,
) -> Axes:  # fmt: skip
    m, d = middle.shape
    label = "mean" if any(periods) else "median"
    axes = np.array([ax])
    if ax is None:
        axes = subplots(d, 1, height=2.0 + 2.0 * d, squeeze=False, sharex=True)[:, 0]
    for j, panel in enumerate(axes):
        canvas.draw_band(
            panel, np.arange(float(m)), intervals[:, j], level, middle[:, j], label, periods[j]
        )
        panel.set_ylabel(names[j])
    canvas.legend_above(axes[0])
    axes[-1].set_xlabel("member of the batch")
    return axes[0] if d == 1 else axes


def plot_confusion(labels: Sequence[object], counts: Floats, ax: Axes | None) -> Axes:
    """Confusion matrix (k, k) of proportions, true categories in rows."""
    ax = subplots() if ax is None else ax
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), np.finfo(float).tiny)
    ax.imshow(shares, cmap="Blues", vmin=0.0, vmax=1.0)
    for i, j in np.ndindex(shares.shape):
        colour = "white" if shares[i, j] > 0.5 else NEUTRAL
        ax.text(j, i, f"{shares[i, j]:.2f}", ha="center", va="center", color=colour)
    names, at = [str(label) for label in labels], np.arange(len(labels))
    ax.set_xticks(at, names)
    ax.set_yticks(at, names)
    ax.set(xlabel="most probable", ylabel="truth")
    return ax
