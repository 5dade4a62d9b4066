"""Plots of one drive of the demo: beliefs over the floor plan, and a film."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from kernelbayes.plot.canvas import FIRST, NEUTRAL, SECOND, bare, empty_figure
from kernelbayes.types import Axes, Floats

if TYPE_CHECKING:
    from kernelbayes.demo.building import Plan

MOMENTS = (0, 8, 16, 40)  # frames whose belief is shown: more of them early, when it changes
FRAMES_PER_SECOND, SKIP = 4, 2  # of the film, and steps from one frame to the next: ten seconds


@dataclass(frozen=True, eq=False)
class Drawing:
    """One drive, the beliefs of the filter, and the estimates of the nearest frames."""

    plan: Plan
    frames: Floats  # (T, rows, columns, 3), camera frames
    states: Floats  # (T, 3), true x, y and heading
    mean: Floats  # (T, 2), mean places of the filter
    guesses: Floats  # (T, 2), places of the baseline
    density: Floats  # (T, rows, columns), the belief over the plan
    starts: list[tuple[Floats, Floats]]  # metres driven and errors (T,) of every drive, this first
    found: float  # metres driven until it was localised, or NaN

    def picture(self, path: Path) -> Path:
        """Write the picture: frames and beliefs at some moments, the tracks, the errors."""
        figure = empty_figure(12.0, 8.5)
        above, below = figure.subfigures(2, 1, height_ratios=[3.3, 4.2])
        moments = [t for t in MOMENTS if t < len(self.states)]
        panels = above.subplots(2, len(moments), height_ratios=[1, 2], squeeze=False)
        for t, camera, plan in zip(moments, *panels, strict=True):
            self._camera(camera, t)
            camera.set_title(f"frame {t + 1}: the camera sees", fontsize=10)
            self._belief(plan, t)
            plan.set_title("and the filter believes", fontsize=10)
        tracks, errors = below.subplots(1, 2)
        self._tracks(tracks)
        self._errors(errors)
        figure.savefig(path, dpi=130)
        return path

    def film(self, path: Path) -> Path:
        """Write the film: frame and belief at every other step."""
        from matplotlib.animation import PillowWriter

        figure = empty_figure(6.0, 5.4)
        camera, plan = figure.subplots(2, 1, height_ratios=[1, 3])
        image, belief = self._camera(camera, 0), self._belief(plan, 0)
        title = camera.set_title("frame 1", fontsize=10)
        plan.legend(loc="upper center", bbox_to_anchor=(0.5, 0.0), ncols=3, frameon=False)
        figure.draw_without_rendering()
        figure.set_layout_engine("none")  # laid out once, not for every frame
        writer = PillowWriter(fps=FRAMES_PER_SECOND)
        with writer.saving(figure, str(path), dpi=75):
            for t in range(0, len(self.states), SKIP):
                image.set_data(self.frames[t].clip(0.0, 1.0))
                title.set_text(f"frame {t + 1}")
                self._move(belief, t)
                writer.grab_frame()
        return path

    def _camera(self, ax: Axes, t: int) -> Any:
        ax.set(xticks=[], yticks=[])
        return ax.imshow(self.frames[t].clip(0.0, 1.0), interpolation="nearest")

    def _belief(self, ax: Axes, t: int) -> dict[str, Any]:
        """Draw one time and return the artists that change."""
        draw_plan(ax, self.plan)
        artists = {
            "belief": ax.imshow(
                self.density[t], extent=(0, self.plan.width, 0, self.plan.depth), origin="lower",
                cmap="Blues", vmin=0.0, vmax=1.0, interpolation="bilinear",
            ),
            "robot": ax.quiver(
                [0.0], [0.0], [1.0], [0.0], color=NEUTRAL, pivot="mid", scale=1.0, units="xy",
                width=0.16, headwidth=4, headlength=4, headaxislength=4, zorder=4, label="robot",
            ),
            "nearest": ax.plot([], [], "x", color=SECOND, ms=8, mew=2, label="nearest frames")[0],
            "mean": ax.plot([], [], "o", color=FIRST, mfc="none", ms=9, mew=2,
                            label="filter's mean")[0],
        }  # fmt: skip
        self._move(artists, t)
        return artists

    def _move(self, artists: dict[str, Any], t: int) -> None:
        x, y, heading = self.states[t]
        artists["belief"].set_data(self.density[t])
        artists["robot"].set_offsets([[x, y]])
        artists["robot"].set_UVC([np.cos(heading)], [np.sin(heading)])
        artists["nearest"].set_data(*self.guesses[t : t + 1].T)
        artists["mean"].set_data(*self.mean[t : t + 1].T)

    def _tracks(self, ax: Axes) -> None:
        draw_plan(ax, self.plan)
        ax.plot(*self.guesses.T, color=SECOND, lw=0.6, alpha=0.6, marker="x", ms=4,
                label="nearest")  # fmt: skip
        ax.plot(*self.states[:, :2].T, color=NEUTRAL, lw=5, alpha=0.3, label="true path")
        before = ~(self.starts[0][0] >= self.found)
        look = {"color": FIRST, "marker": "o", "ms": 3}
        lost = np.where(before[:, None], self.mean, np.nan)
        known = np.where(before[:, None], np.nan, self.mean)
        ax.plot(*lost.T, lw=0.6, alpha=0.35, **look, label="filter, searching")
        ax.plot(*known.T, lw=1.6, **look, label="filter, found")
        ax.plot(*self.states[0, :2], "*", color=NEUTRAL, ms=13, label="start")
        ax.legend(loc="upper center", bbox_to_anchor=(0.5, 0.0), ncols=5, frameon=False, fontsize=8)
        ax.set_title(f"the whole drive: found after {self.found:.1f} m", fontsize=10)

    def _errors(self, ax: Axes) -> None:
        """Errors of all drives against the metres driven."""
        (way, error), *others = self.starts
        baseline = np.hypot(*(self.guesses - self.states[:, :2]).T)
        ax.axhspan(0.0, 1.0, color=FIRST, alpha=0.08, lw=0)
        ax.plot(way, baseline, color=SECOND, lw=0.8, alpha=0.7, label="this drive, nearest frames")
        for i, one in enumerate(others):
            label = f"{len(others)} other starts" if i == 0 else None
            ax.plot(*one, color=FIRST, lw=0.8, alpha=0.4, label=label)
        ax.plot(way, error, color=FIRST, lw=2.2, label="this drive, filter")
        ax.set(xlabel="metres driven", ylabel="error (m)", xlim=(0.0, way[-1]), ylim=(0.0, None))
        ax.legend(frameon=False)
        ax.set_title("how far from the true place, switched on anywhere", fontsize=10)
        bare(ax)


def draw_plan(ax: Axes, plan: Plan) -> None:
    """Draw the floor plan in metres, walls in their colours."""
    from matplotlib.collections import LineCollection

    ax.add_collection(LineCollection(list(plan.ends), colors=plan.colours, linewidths=3, zorder=3))
    ax.set(xlim=(-0.15, plan.width + 0.15), ylim=(-0.15, plan.depth + 0.15), aspect="equal")
    ax.set_axis_off()
