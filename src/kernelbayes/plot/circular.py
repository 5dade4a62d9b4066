"""Angles and seasons in pictures: lines that go on at the other end of the axis."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from kernelbayes.types import Floats

Periods = Sequence[float | None]
MARKS = 7.0  # steps of an axis between its labels, at most


def around(
    X: Floats, mean: Floats, ends: Floats, periods: Periods
) -> tuple[Floats, Floats, Floats]:
    """Points (n, d), a mean (d,) and intervals (d, 2), angles within half a turn of the mean."""
    X, ends = np.array(X, dtype=float), np.array(ends, dtype=float)
    for j, period in enumerate(periods):
        if period is not None:
            X[:, j] = mean[j] + (X[:, j] - mean[j] + period / 2.0) % period - period / 2.0
            ends[j] -= _turned(ends[j].mean() - mean[j], period)
    return X, np.asarray(mean), ends


def unrolled(mean: Floats, ends: Floats, period: float | None) -> tuple[Floats, Floats]:
    """Means (T,) and intervals (T, 2) of one coordinate over time, without jumps at a full turn."""
    if period is None:
        return mean, ends
    line = np.unwrap(mean, period=period)  # what follows is within half a turn of what was
    return line, ends - _turned(ends.mean(axis=1) - line, period)[:, None]


def _turned(differences: Any, period: float) -> Any:
    """Whole periods in differences, after which they are within half a turn."""
    return period * np.round(differences / period)


def turns(values: Floats, period: float | None) -> Floats:
    """Shifts by whole periods at which some of the values lie between 0 and the period."""
    if period is None:
        return np.zeros(1)
    known = values[np.isfinite(values)]
    first, last = np.floor(known.min() / period), np.floor(known.max() / period)
    return np.asarray(-period * np.arange(first, last + 1.0))


def label_turns(axis: Any, period: float | None) -> None:
    """Label an axis of matplotlib from 0 to the period, and again where it goes on."""
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
