"""Common parts of plots. Matplotlib (extra ``plot``) is imported only when drawing.

Colours are those of Okabe and Ito, which colour-blind readers can distinguish. Lines of angles and
seasons continue at the other end of the axis.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from kernelbayes.tables import extra
from kernelbayes.types import Axes, Floats

FIRST, SECOND, NEUTRAL = "#0072B2", "#D55E00", "#333333"
CYCLE = (FIRST, SECOND, "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
CONTOURS = (0.9, 0.5)  # masses inside the contours of a pair of coordinates


def empty_figure(width: float, height: float) -> Any:
    """Return a figure outside pyplot, for files with any backend."""
    return _matplotlib("figure").Figure(figsize=(width, height), layout="constrained")


def subplots(*grid: int, width: float = 7.0, height: float = 4.0, **options: Any) -> Axes:
    """Axes of a new pyplot figure: one, or an array for a grid (rows, columns)."""
    made = _matplotlib("pyplot").subplots
    return made(*grid, figsize=(width, height), layout="constrained", **options)[1]


def _matplotlib(module: str) -> Any:
    return extra(f"matplotlib.{module}", "plot", "plots need matplotlib")


def bare(ax: Axes) -> Axes:
    """Remove the upper and right sides of the frame; return the axes."""
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def legend_above(ax: Axes) -> None:
    """Put the legend above the frame, off the data."""
    ax.legend(frameon=False, ncols=4, loc="lower right", bbox_to_anchor=(1.0, 1.0), fontsize=9)


def shade(level: float) -> dict[str, Any]:
    """Style of the area of a credible interval."""
    return {"color": FIRST, "alpha": 0.25, "lw": 0, "label": f"{100 * level:g} % interval"}


def draw_band(
    ax: Axes, x: Floats, ends: Floats, level: float, line: Floats, label: str,
    period: float | None = None,
) -> None:  # fmt: skip
    """Draw intervals (m, 2) over x (m,) as a band, and a line (m,) through it."""
    line, ends = unrolled(line, ends, period)
    look = shade(level)
    for turn in turns(ends, period):
        ax.fill_between(x, ends[:, 0] + turn, ends[:, 1] + turn, **look)
        look["label"] = None  # label only once
    draw_line(ax, x, line, period, color=FIRST, lw=1.5, label=label)
    bare(ax)


def draw_line(ax: Axes, x: Floats, line: Floats, period: float | None, **look: Any) -> None:
    """Draw a line (m,) over x (m,); an angle continues at the other end of the axis."""
    line = line if period is None else np.unwrap(line, period=period)
    for turn in turns(line, period):
        ax.plot(x, line + turn, **look)
        look["label"] = None
    if period is not None:
        ax.set_ylim(0.0, period)


def label_corner(axes: Axes, names: Sequence[str]) -> Axes:
    """Label the outer axes (d, d) of a corner plot, and hide those above the diagonal."""
    d = len(names)
    for i, j in np.ndindex(d, d):
        if i < j:
            axes[i, j].set_axis_off()
            continue
        axes[i, j].set_ylabel(names[i] if j == 0 and i > 0 else "")
        axes[i, j].set_xlabel(names[j] if i == d - 1 else "")
    return axes


Periods = Sequence[float | None]
MARKS = 7.0  # largest number of steps between labels of an axis


def around(
    X: Floats, mean: Floats, ends: Floats, periods: Periods
) -> tuple[Floats, Floats, Floats]:
    """Points (n, d), a mean (d,) and intervals (d, 2), with angles near the mean."""
    X, ends = np.array(X, dtype=float), np.array(ends, dtype=float)
    for j, period in enumerate(periods):
        if period is not None:
            X[:, j] = mean[j] + (X[:, j] - mean[j] + period / 2.0) % period - period / 2.0
            ends[j] -= _turned(ends[j].mean() - mean[j], period)
    return X, np.asarray(mean), ends


def unrolled(mean: Floats, ends: Floats, period: float | None) -> tuple[Floats, Floats]:
    """Means (T,) and intervals (T, 2) of one coordinate over time, unwrapped."""
    if period is None:
        return mean, ends
    line = np.unwrap(mean, period=period)  # each step is less than half a turn
    return line, ends - _turned(ends.mean(axis=1) - line, period)[:, None]


def _turned(differences: Any, period: float) -> Any:
    """Whole periods to remove from differences to bring them within half a turn."""
    return period * np.round(differences / period)


def turns(values: Floats, period: float | None) -> Floats:
    """Shifts by whole periods that bring some of the values between 0 and the period."""
    if period is None:
        return np.zeros(1)
    known = values[np.isfinite(values)]
    first, last = np.floor(known.min() / period), np.floor(known.max() / period)
    return np.asarray(-period * np.arange(first, last + 1.0))


def label_turns(axis: Any, period: float | None) -> None:
    """Label an axis from 0 to the period, and again where it continues."""
    if period is None:
        return
    low, high = axis.get_view_interval()
    unit = 10.0 ** np.floor(np.log10((high - low) / MARKS))
    step = next(k * unit for k in (1.0, 2.0, 5.0, 10.0) if MARKS * k * unit >= high - low)
    own = np.arange(0.0, period - step / 2.0, step)
    shifts = period * np.arange(np.floor(low / period), np.floor(high / period) + 1.0)
    at, labels = (shifts[:, None] + own).ravel(), np.tile(own, len(shifts))
    seen = (low <= at) & (at <= high)
    axis.set_ticks(at[seen], [f"{value:.4g}" for value in labels[seen]])
