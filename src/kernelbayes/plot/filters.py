"""Plots of a filter's beliefs over time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from kernelbayes.arrays import as_array, as_vectors, to_numpy
from kernelbayes.gram.lapack import eigh
from kernelbayes.plot import canvas
from kernelbayes.plot.canvas import FIRST, NEUTRAL, SECOND, bare, subplots
from kernelbayes.types import Axes, Floats, PointsLike

if TYPE_CHECKING:
    from kernelbayes.filters.beliefs import Beliefs

# Ellipses along a track, equally spaced in time; more would overlap.
ELLIPSES = 25
# Categories above which rows are not labelled; more labels would overlap.
MOST_LABELS = 30


def draw_parts(
    beliefs: Beliefs, truth: PointsLike = None, level: float = 0.9, ax: Axes = None
) -> Axes:
    """State over time, one panel per coordinate or categorical part."""
    parts = beliefs.parts()
    known = [None] * len(parts)
    if truth is not None and isinstance(beliefs.points, Mapping):  # in the form of the states
        points = beliefs.kernel.points(truth, "truth")
        known = [part.points for part in replace(beliefs, points=points).parts()]
    elif truth is not None:
        known = [truth]
    panels = [1 if part.categorical else int(np.prod(part.points.shape[1:])) for part in parts]
    total = sum(panels)
    if ax is not None and total > 1:
        raise ValueError("series of several coordinates need several axes; do not pass ax")
    axes = np.array([ax])
    if ax is None:
        axes = subplots(total, 1, height=1.0 + 2.0 * total, squeeze=False, sharex=True)[:, 0]
    for part, right, size, end in zip(parts, known, panels, np.cumsum(panels), strict=True):
        if part.categorical:
            draw_categories(part, right, axes[end - 1])
        else:
            draw_series(part, right, level, axes[end - size : end])
    axes[-1].set_xlabel("time")
    return axes[0] if total == 1 else axes


def draw_series(beliefs: Beliefs, truth: PointsLike, level: float, axes: Axes) -> None:
    """Mean, interval and, if known, the truth of each coordinate, one axes for each."""
    mean, ends = to_numpy(beliefs.mean()), to_numpy(beliefs.interval(level))
    t = np.arange(float(len(mean)))
    known = None if truth is None else to_numpy(as_vectors(truth, "truth"))
    if known is not None and known.shape != mean.shape:
        raise ValueError(f"truth must have shape {mean.shape}, got {known.shape}")
    for j, (ax, period) in enumerate(zip(axes, beliefs.kernel.periods(len(axes)), strict=True)):
        canvas.draw_band(ax, t, ends[:, j], level, mean[:, j], "mean", period)
        if known is not None:
            canvas.draw_line(ax, t, known[:, j], period, color=SECOND, lw=1.0, label="truth")
        ax.set_ylabel(beliefs.coordinates[j])
    canvas.legend_above(axes[0])


def draw_categories(beliefs: Beliefs, truth: PointsLike, ax: Axes) -> None:
    """Probabilities of categories over time as shades, one row each; the truth as dots."""
    labels, P = beliefs.probabilities()
    t, k = np.arange(len(P)), len(labels)
    ax.imshow(P.T, cmap="Blues", vmin=0.0, vmax=1.0, aspect="auto", interpolation="nearest")
    if k <= MOST_LABELS:
        ax.set_yticks(range(k), [str(label) for label in labels])
    if truth is not None:
        row = {label: j for j, label in enumerate(labels)}
        known = np.asarray(to_numpy(as_array(truth, "truth"))).reshape(len(truth), -1).tolist()
        if len(known) != len(P):
            raise ValueError(f"truth must have {len(P)} rows, got {len(known)}")
        rows = [row.get(v[0] if len(v) == 1 else tuple(v), np.nan) for v in known]  # some unseen
        ax.scatter(t, rows, color=SECOND, s=12, zorder=3, label="truth")
        canvas.legend_above(ax)
    ax.set_ylabel(beliefs.coordinates[0])
    bare(ax)


def draw_track(
    beliefs: Beliefs, truth: PointsLike = None, ax: Axes = None, label: str | None = None
) -> Axes:
    """Track of a 2-d state; two tracks of a 3-d state, both over the first coordinate."""
    mean, cov = to_numpy(beliefs.mean()), to_numpy(beliefs.valid().cov())
    known = None if truth is None else to_numpy(as_vectors(truth, "truth"))
    pairs = [[0, j] for j in range(1, mean.shape[1])]
    axes = np.atleast_1d(np.asarray(ax, dtype=object))
    if ax is None:
        axes = subplots(1, len(pairs), width=5.5 * len(pairs), height=6.0, squeeze=False)[0]
    if len(axes) != len(pairs):
        raise ValueError(f"a state of {len(pairs) + 1} coordinates needs {len(pairs)} axes")
    for panel, pair in zip(axes, pairs, strict=True):
        right = None if known is None else known[:, pair]
        _draw_path(panel, mean[:, pair], cov[:, pair][:, :, pair], right, label)
        panel.set(xlabel=beliefs.coordinates[0], ylabel=beliefs.coordinates[pair[1]])
    return axes if len(pairs) > 1 else axes[0]


def _draw_path(
    ax: Axes, mean: Floats, cov: Floats, truth: Floats | None, label: str | None
) -> None:
    """Path (T, 2) in the plane, with ellipses of one standard deviation along it."""
    angle = np.linspace(0.0, 2.0 * np.pi, 60)
    circle = np.stack([np.cos(angle), np.sin(angle)])
    for i in np.unique(np.linspace(0, len(mean) - 1, ELLIPSES).astype(int)):
        values, vectors = eigh(cov[i])
        ellipse = mean[i][:, None] + vectors @ (np.sqrt(np.maximum(values, 0.0))[:, None] * circle)
        ax.plot(*ellipse, color=FIRST, lw=0.8, alpha=0.4)
    ax.plot(*mean.T, color=FIRST, lw=1.5, label=label or "mean, one standard deviation")
    if truth is not None:
        ax.plot(*truth.T, color=SECOND, lw=1.0, label="truth")
    ax.scatter(mean[0, 0], mean[0, 1], color=NEUTRAL, s=25, zorder=3, label="start")
    ax.set_aspect("equal")
    canvas.legend_above(bare(ax))
