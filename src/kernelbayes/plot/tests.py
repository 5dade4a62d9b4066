"""Plots of tests and witness functions. Need matplotlib (extra ``plot``)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from kernelbayes.arrays import as_vectors, to_numpy
from kernelbayes.plot.canvas import FIRST, NEUTRAL, SECOND, bare, draw_signed, subplots
from kernelbayes.tables import Row
from kernelbayes.types import Axes, Floats, PointsLike

if TYPE_CHECKING:
    from kernelbayes.compare.result import KernelTestResult, Witness
    from kernelbayes.embedding import MeanElement

RUG = 400  # ticks that can be distinguished; larger samples are thinned
GRID = 400  # points of the curves: closer than the width of a line


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
        draw_signed(ax, x, values, alpha=0.3)
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


def plot_witness(
    mu: MeanElement, nu: MeanElement, grid: PointsLike | None = None, ax: Axes | None = None, *,
    labels: tuple[str, str] = ("first", "second"),
) -> Axes:  # fmt: skip
    r"""Draw two embeddings on the line and the witness function of their difference.

    .. math:: (\mu - \nu)(x) = \sum_i w_i\, k(x, x_i) - \sum_j w'_j\, k(x, x'_j)

    It is positive where the first distribution has more mass and negative where the second has. Its
    RKHS norm is the MMD. All three curves are in units of the higher peak. A small witness is
    magnified, and the legend says by how much.

    Parameters
    ----------
    mu, nu : Embedding or GaussianEmbedding
        With the same kernel, over scalar points.
    grid : array (n,), optional
        Where to evaluate; default: 400 points over both samples and a tenth beyond.
    ax : matplotlib Axes, optional
        Where to draw; default: a new figure.
    labels : (str, str)
        Names of the two distributions.

    Returns
    -------
    matplotlib Axes

    Examples
    --------
    >>> from kernelbayes import Gaussian, embed
    >>> from kernelbayes.plot import plot_witness
    >>> k = Gaussian(1.0)
    >>> ax = plot_witness(embed([0.0, 1.0], k), embed([2.0, 3.0], k))  # doctest: +SKIP
    """
    kernels = [getattr(m, "kernel", None) for m in (mu, nu)]
    if None in kernels:
        raise TypeError("plot_witness needs two embeddings; make them with embed(...)")
    if kernels[0] != kernels[1]:
        raise ValueError("the two embeddings must have the same kernel")
    samples = [_scalars(mu), _scalars(nu)]
    x = _grid(samples) if grid is None else to_numpy(as_vectors(grid, "grid"))
    if x.shape[1] != 1:
        raise ValueError(f"grid must have shape (n,), got {x.shape}")
    values = [np.asarray(to_numpy(m(x)), dtype=float) for m in (mu, nu)]
    unit = max(float(np.abs(v).max()) for v in values) or 1.0
    first, second = (v / unit for v in values)
    factor = _magnification(float(np.abs(first - second).max()))
    scaled = factor * (first - second)
    ax = subplots() if ax is None else ax
    x = x[:, 0]
    draw_signed(ax, x, scaled, alpha=0.25)
    ax.axhline(0.0, color=NEUTRAL, lw=0.8)
    ax.plot(x, first, color=FIRST, lw=2.0, label=labels[0])
    ax.plot(x, second, color=SECOND, lw=2.0, ls="--", label=labels[1])
    magnified = "" if factor == 1 else f" (× {factor:g})"
    ax.plot(x, scaled, color=NEUTRAL, lw=1.5, label=f"witness: difference{magnified}")
    _rugs(ax, samples, floor=min(0.0, float(scaled.min())))
    names = getattr(mu, "names", None) or getattr(nu, "names", None) or ("x",)
    ax.set(xlim=(x.min(), x.max()), xlabel=names[0], ylabel="mean embedding (peak = 1)")
    ax.legend(frameon=False)
    return bare(ax)


def _scalars(mu: MeanElement) -> Floats | None:
    """Ordered scalar points of an embedding; None for one known in closed form."""
    points, weights = getattr(mu, "points", None), getattr(mu, "weights", None)
    if points is None or weights is None:
        return None
    if weights.ndim > 1:
        raise TypeError("plot_witness needs single embeddings; index the batch first: batch[0]")
    try:
        points = to_numpy(as_vectors(points, "points"))
    except TypeError as error:
        raise TypeError("plot_witness needs scalar points, and these are not numbers") from error
    if points.shape[1] != 1:
        raise ValueError(
            f"plot_witness needs scalar points, but these have {points.shape[1]} dimensions; "
            "embed one column"
        )
    return np.sort(np.asarray(points[:, 0], dtype=float))


def _grid(samples: list[Floats | None]) -> Floats:
    given = [s for s in samples if s is not None]
    if not given:
        raise ValueError("neither embedding has points to place a grid; pass grid")
    low, high = min(s[0] for s in given), max(s[-1] for s in given)
    margin = 0.1 * (high - low) or 1.0
    return np.linspace(low - margin, high + margin, GRID)[:, None]


def _magnification(peak: float) -> float:
    """Round factor (1, 2, 5, 10, ...) that scales a peak to at most half the embeddings' height."""
    if not 0.0 < peak < 0.5:
        return 1.0
    wanted = 0.5 / peak
    decade = 10.0 ** math.floor(math.log10(wanted))
    return max(step * decade for step in (1.0, 2.0, 5.0) if step * decade <= wanted)


def _rugs(ax: Axes, samples: list[Floats | None], floor: float) -> None:
    height = 0.05  # in units of the higher peak
    for row, (sample, colour) in enumerate(zip(samples, (FIRST, SECOND), strict=True)):
        if sample is None:
            continue
        if len(sample) > RUG:
            sample = sample[np.linspace(0, len(sample) - 1, RUG).astype(int)]
        top = floor - height * (1.0 + 1.4 * row)
        ax.vlines(sample, top - height, top, color=colour, lw=0.5, alpha=0.6)
