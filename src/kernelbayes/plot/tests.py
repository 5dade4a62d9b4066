"""Plots of tests and witness functions. Need matplotlib (extra ``plot``)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from kernelbayes.arrays import as_vectors, to_numpy
from kernelbayes.plot.canvas import FIRST, NEUTRAL, SECOND, bare, subplots
from kernelbayes.tables import Row
from kernelbayes.types import Axes, Floats

if TYPE_CHECKING:
    from kernelbayes.compare.result import KernelTestResult, Witness


def plot_null(result: KernelTestResult, ax: Any = None, *, bins: int = 40) -> Any:
    """Histogram of the null distribution, with the statistic and the critical value; the axes."""
    ax = subplots(width=6.0, height=3.6) if ax is None else ax
    ax.hist(result.null, bins=bins, color=NEUTRAL, alpha=0.35, label="null distribution")
    critical = float(np.quantile(result.null, 1.0 - result.alpha))
    ax.axvline(critical, color=NEUTRAL, ls="--", lw=1, label=f"{100 * result.alpha:g} % critical")
    ax.axvline(result.statistic, color=SECOND, lw=2, label="observed")
    ax.set(xlabel=f"{result.test} statistic", ylabel="count", title=f"p = {result.pvalue:.3g}")
    ax.legend(frameon=False)
    return ax


def plot_where(result: KernelTestResult, ax: Any = None) -> Any:
    """Witness function over the points: where the null hypothesis fails.

    Two samples on the line are drawn as a curve, in the plane as coloured points; pairs of scalars
    as coloured points. Blue where the first sample (the joint distribution) has more mass.
    """
    witness = result.witness
    if witness is None:
        raise ValueError(
            f"method {result.method!r} keeps no witness; use method='permutation', 'gamma' or "
            "'wild', on a random subset if the sample is too large"
        )
    columns, names = witness_columns(witness)
    ax = subplots(width=6.0, height=3.6) if ax is None else ax
    if columns.shape[1] == 1:
        order = np.argsort(columns[:, 0], kind="stable")
        x, values = columns[order, 0], witness.values[order]
        ax.plot(x, values, color=NEUTRAL, lw=1)
        for sign, colour in ((1.0, FIRST), (-1.0, SECOND)):
            ax.fill_between(x, sign * np.maximum(sign * values, 0.0), color=colour, alpha=0.3, lw=0)
        ax.set(xlabel=names[0], ylabel="witness")
        return ax
    from matplotlib.colors import LinearSegmentedColormap

    top = float(np.abs(witness.values).max()) or 1.0
    colours = LinearSegmentedColormap.from_list("witness", [SECOND, "#f2f2f2", FIRST])
    order = np.argsort(np.abs(witness.values), kind="stable")  # the largest on top
    values = witness.values[order]
    drawn = ax.scatter(*columns[order].T, c=values, cmap=colours, vmin=-top, vmax=top, s=12)
    ax.figure.colorbar(drawn, ax=ax, label="witness")
    ax.set(xlabel=names[0], ylabel=names[1])
    return ax


def plot_drift(columns: Sequence[Row], ax: Axes = None) -> Axes:
    """Effect of each column with its interval; changed columns in colour."""
    ax = subplots(width=6.0, height=1.2 + 0.3 * len(columns)) if ax is None else ax
    for place, row in enumerate(reversed(columns)):
        colour = SECOND if row["drifted"] else NEUTRAL
        ax.plot([row["low"], row["high"]], [place, place], color=colour, lw=2, alpha=0.5)
        ax.plot(row["effect"], place, "o", color=colour, ms=5)
    ax.set_yticks(range(len(columns)), [row["column"] for row in reversed(columns)])
    ax.set(xlabel="effect, with its 95 % interval", xlim=(0.0, None))
    return bare(ax)


def plot_change(name: str, shape: tuple[Any, Floats, Floats], ax: Axes = None) -> Axes:
    """Shares of both tables in bins of a column, or in its categories."""
    where, before, after = shape
    ax = subplots(width=6.0, height=3.6) if ax is None else ax
    if len(where) > len(before):  # edges of bins
        ax.stairs(before, where, color=FIRST, fill=True, alpha=0.35, label="first")
        ax.stairs(after, where, color=SECOND, lw=1.5, label="second")
    else:
        at = np.arange(len(where))
        ax.bar(at - 0.2, before, 0.4, color=FIRST, alpha=0.6, label="first")
        ax.bar(at + 0.2, after, 0.4, color=SECOND, alpha=0.6, label="second")
        ax.set_xticks(at, [str(label) or "empty" for label in where])
    ax.set(xlabel=name, ylabel="share")
    ax.legend(frameon=False)
    return bare(ax)


def witness_columns(witness: Witness) -> tuple[Floats, tuple[str, str]]:
    """Coordinates to draw at, (n, 1) or (n, 2), and the names of the axes."""
    pair = isinstance(witness.points, tuple)
    try:
        parts = [to_numpy(as_vectors(p)) for p in (witness.points if pair else (witness.points,))]
    except (TypeError, ValueError) as error:
        raise TypeError("only numbers can be drawn; see witness.largest()") from error
    columns = np.column_stack(parts)
    if columns.shape[1] > 2:
        raise ValueError(
            f"the witness can be drawn in at most two dimensions, not {columns.shape[1]}; see "
            "witness.largest()"
        )
    return columns, ("x", "y") if pair else ("first coordinate", "second coordinate")
