"""Pictures of beliefs over time."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernelbayes.arrays import as_vectors, to_numpy
from kernelbayes.canvas import FIRST, NEUTRAL, SECOND, bare, subplots

# Ellipses drawn along a track, at equal distances in time.
ELLIPSES = 25


def draw_series(beliefs: Any, truth: Any, level: float, ax: Any = None) -> Any:
    """State over time, one panel per coordinate: mean, interval and, if known, the truth."""
    mean, ends = to_numpy(beliefs.mean()), to_numpy(beliefs.interval(level))
    d = mean.shape[1]
    names = beliefs.names or tuple(f"z{j}" for j in range(d))
    if ax is None:
        axes = subplots(d, 1, height=1.0 + 2.0 * d, squeeze=False, sharex=True)[:, 0]
    else:
        axes = np.array([ax])
    t = np.arange(len(mean))
    known = None if truth is None else to_numpy(as_vectors(truth, "truth"))
    if known is not None and known.shape != mean.shape:
        raise ValueError(f"truth must have shape {mean.shape}, got {known.shape}")
    for j, ax in enumerate(axes):
        ax.fill_between(t, ends[:, j, 0], ends[:, j, 1], color=FIRST, alpha=0.25, lw=0,
                        label=f"{100 * level:g} % interval")  # fmt: skip
        ax.plot(t, mean[:, j], color=FIRST, lw=1.5, label="mean")
        if known is not None:
            ax.plot(t, known[:, j], color=SECOND, lw=1.0, label="truth")
        ax.set_ylabel(names[j])
        bare(ax)
    axes[0].legend(frameon=False, ncols=3)
    axes[-1].set_xlabel("time")
    return axes[0] if d == 1 else axes


def draw_track(beliefs: Any, truth: Any, ax: Any, label: str | None) -> Any:
    """Track of a 2-d state, with ellipses of one standard deviation along it."""
    ax = subplots(width=6.0, height=6.0) if ax is None else ax
    mean, cov = to_numpy(beliefs.mean()), to_numpy(beliefs.valid().cov())
    angle = np.linspace(0.0, 2.0 * np.pi, 60)
    circle = np.stack([np.cos(angle), np.sin(angle)])
    for i in np.unique(np.linspace(0, len(mean) - 1, ELLIPSES).astype(int)):
        values, vectors = np.linalg.eigh(cov[i])
        ellipse = mean[i][:, None] + vectors @ (np.sqrt(np.maximum(values, 0.0))[:, None] * circle)
        ax.plot(*ellipse, color=FIRST, lw=0.8, alpha=0.4)
    ax.plot(*mean.T, color=FIRST, lw=1.5, label=label or "mean, one standard deviation")
    if truth is not None:
        ax.plot(*to_numpy(as_vectors(truth, "truth")).T, color=SECOND, lw=1.0, label="truth")
    ax.scatter(*mean[0], color=NEUTRAL, s=25, zorder=3, label="start")
    names = beliefs.names or ("z0", "z1")
    ax.set(xlabel=names[0], ylabel=names[1], aspect="equal")
    ax.legend(frameon=False)
    bare(ax)
    return ax
