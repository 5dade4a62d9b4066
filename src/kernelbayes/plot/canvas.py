"""Where pictures are drawn: matplotlib, the extra ``plot``, imported only when drawing.

Colours are those of Okabe and Ito, which colour-blind readers can tell apart.
"""

from __future__ import annotations

from typing import Any

FIRST, SECOND, NEUTRAL = "#0072B2", "#D55E00", "#333333"
CYCLE = (FIRST, SECOND, "#009E73", "#CC79A7", "#E69F00", "#56B4E9")


def new_axes(width: float = 7.0, height: float = 4.0) -> Any:
    """Axes on a figure of their own, outside pyplot: for files, whatever the backend."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise _missing() from error
    return Figure(figsize=(width, height), layout="constrained").subplots()


def subplots(*grid: int, width: float = 7.0, height: float = 4.0, **options: Any) -> Any:
    """Axes of a new pyplot figure: one, or an array for a grid (rows, columns)."""
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise _missing() from error
    return plt.subplots(*grid, figsize=(width, height), layout="constrained", **options)[1]


def bare(ax: Any) -> None:
    """Remove the frame's upper and right sides."""
    ax.spines[["top", "right"]].set_visible(False)


def _missing() -> ImportError:
    return ImportError("pictures need matplotlib: pip install 'kernelbayes[plot]'")
