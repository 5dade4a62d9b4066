"""Pictures of a decoded distribution. Needs matplotlib, the extra ``plot``."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernelbayes.arrays import to_numpy
from kernelbayes.embedding.density import grid_density
from kernelbayes.embedding.regions import Regions
from kernelbayes.plot.canvas import CYCLE, FIRST, NEUTRAL, bare, subplots

# Members of a batch drawn as curves of their own; more are drawn as intervals.
CURVES = 6
GRID_1D, GRID_2D = 400, 80
# Points of a scatter, the heaviest ones.
SCATTER = 2000
# Masses inside the contours.
CONTOURS = (0.9, 0.5)


class Pictures(Regions):
    """What the distribution looks like, drawn."""

    def plot(self, ax: Any = None, level: float = 0.9, label: str | None = None) -> Any:
        """Draw the distribution: of one coordinate, of two, or all pairs of more (a corner plot).

        One coordinate: the density, its interval shaded, the mean as a line. (Silverman's rule
        widens narrow peaks; draw ``density(x, bandwidth)`` yourself then.) Two: the points, sized
        by their weight, and the contours around 50 and 90 % of the mass. More: these two in a
        lower triangle. A batch over one coordinate: a density for each of up to six members, else
        the interval and median against the member's number, as for every batch of vectors.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Where to draw, if one axes is enough; a new figure unless given.
        level : float
            Of the shaded interval.
        label : str, optional
            For the legend.

        Returns
        -------
        matplotlib Axes, or an array of them
        """
        X = to_numpy(self._vectors)
        d = X.shape[1]
        names = self.names if self.names and len(self.names) == d else None
        names = names or (("x",) if d == 1 else tuple(f"x{j}" for j in range(d)))
        weights = self._distribution(True)
        if self._single and d <= 2:
            ax = subplots() if ax is None else ax
            if d == 2:
                return _plane(ax, X, weights[0], names)
            interval = to_numpy(self.interval(level))[0]
            return _line(ax, X, weights[0], interval, names[0], level, label)
        if not self._single and d == 1 and len(weights) <= CURVES:
            return _curves(subplots() if ax is None else ax, X, weights, names[0])
        if ax is not None and (self._single or d > 1):
            raise ValueError(f"{d} coordinates need several axes; leave ax out")
        intervals = to_numpy(self.interval(level))
        if self._single:
            return _corner(X, weights[0], intervals, names, level)
        medians = to_numpy(self.quantile([0.5]))[:, 0]
        return _bands(ax, intervals, medians, names, level)


def _line(
    ax: Any, X: Any, w: Any, interval: Any, name: str, level: float, label: str | None
) -> Any:
    """Density of scalar points X (n, 1), its interval shaded, and the mean."""
    (grid,), density = grid_density(X, w, GRID_1D)
    inside = (grid >= interval[0]) & (grid <= interval[1])
    ax.plot(grid, density, color=FIRST, lw=2.0, label=label)
    ax.fill_between(grid, density, where=inside, color=FIRST, alpha=0.25, lw=0,
                    label=f"{100 * level:g} % interval")  # fmt: skip
    ax.axvline(float(w @ X[:, 0]), color=NEUTRAL, lw=1.0, ls="--", label="mean")
    return _density_axes(ax, name)


def _curves(ax: Any, X: Any, weights: Any, name: str) -> Any:
    for i, w in enumerate(weights):
        (grid,), density = grid_density(X, w, GRID_1D)
        ax.plot(grid, density, color=CYCLE[i], lw=2.0, label=str(i))
    return _density_axes(ax, name)


def _density_axes(ax: Any, name: str) -> Any:
    ax.set(xlabel=name, ylabel="density")
    ax.set_ylim(bottom=0.0, auto=None)  # the top still follows what is drawn later
    ax.legend(frameon=False)
    bare(ax)
    return ax


def _plane(ax: Any, X: Any, w: Any, names: tuple[str, ...]) -> Any:
    """Points of the plane sized by their weight, and contours of their density."""
    heavy = np.argsort(-w)[:SCATTER]
    heavy = heavy[w[heavy] > 0]
    ax.scatter(*X[heavy].T, s=20.0 * w[heavy] / w.max(), color=FIRST, alpha=0.4, lw=0)
    (x, y), density = grid_density(X, w, GRID_2D)
    ax.contour(x, y, density, levels=_contour_levels(density), colors=NEUTRAL, linewidths=1.0)
    ax.set(xlabel=names[0], ylabel=names[1])
    bare(ax)
    return ax


def _corner(X: Any, w: Any, intervals: Any, names: tuple[str, ...], level: float) -> Any:
    d = X.shape[1]
    axes = subplots(d, d, width=2.2 * d, height=2.2 * d, squeeze=False)
    for i, j in np.ndindex(d, d):
        ax, pair = axes[i, j], [j] if i == j else [j, i]
        if i < j:
            ax.set_axis_off()
            continue
        if i == j:
            _line(ax, X[:, pair], w, intervals[j], names[j], level, None)
            ax.get_legend().remove()
            ax.set_yticks([])
        else:
            _plane(ax, X[:, pair], w, (names[j], names[i]))
        ax.set_ylabel(names[i] if j == 0 and i > 0 else "")
        ax.set_xlabel(names[j] if i == d - 1 else "")
    return axes


def _bands(ax: Any, intervals: Any, medians: Any, names: tuple[str, ...], level: float) -> Any:
    m, d = medians.shape
    axes = subplots(d, 1, height=2.0 + 2.0 * d, squeeze=False, sharex=True) if ax is None else ax
    axes = np.atleast_1d(np.asarray(axes, dtype=object)).ravel()
    members = np.arange(m)
    for j, panel in enumerate(axes):
        panel.fill_between(members, intervals[:, j, 0], intervals[:, j, 1], color=FIRST, alpha=0.25,
                           lw=0, label=f"{100 * level:g} % interval")  # fmt: skip
        panel.plot(members, medians[:, j], color=FIRST, lw=1.5, label="median")
        panel.set_ylabel(names[j])
        bare(panel)
    axes[0].legend(frameon=False)
    axes[-1].set_xlabel("member of the batch")
    return axes[0] if d == 1 else axes


def _contour_levels(density: Any) -> Any:
    """Heights above which the density holds the given masses, rising."""
    ordered = np.sort(density.ravel())[::-1]
    mass = np.cumsum(ordered) / ordered.sum()
    return np.unique(ordered[np.minimum(np.searchsorted(mass, CONTOURS), len(mass) - 1)])
