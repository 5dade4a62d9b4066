"""Pictures of one drive: the belief over the floor plan, at some moments and as a film."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from kernelbayes.demo.building import DEPTH, WIDTH, Floats, walls
from kernelbayes.demo.drive import Drive
from kernelbayes.embedding import embed
from kernelbayes.filters import Beliefs
from kernelbayes.kernels import Gaussian
from kernelbayes.plot.canvas import FIRST, NEUTRAL, SECOND, bare, new_axes

MOMENTS = (0, 8, 16, 40)  # frames of which the picture shows the belief
BLUR = 0.25  # metres, bandwidth of the densities
PER_METRE = 8  # cells of their grid
FRAMES_PER_SECOND, SKIP = 4, 2  # of the film, and steps from one frame to the next


class Drawing:
    """One drive, what the filter believed, and what the nearest frames said.

    Parameters
    ----------
    seen : Drive
    beliefs : Beliefs
        Over states whose first two coordinates are x and y.
    guesses : array (T, 2)
        Places by the baseline.
    """

    def __init__(self, seen: Drive, beliefs: Beliefs, guesses: Floats) -> None:
        empty_figure(1.0, 1.0)  # says what to install before any work is done
        self.frames = seen.frames.clip(0.0, 1.0)
        self.states = seen.states
        self.mean = beliefs.mean()[:, :2]
        self.guesses = guesses
        self.density = place_density(beliefs)

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
                image.set_data(self.frames[t])
                title.set_text(f"frame {t + 1}")
                self._move(belief, t)
                writer.grab_frame()
        return path

    # --- parts of both ----------------------------------------------------------------------------

    def _camera(self, ax: Any, t: int) -> Any:
        ax.set(xticks=[], yticks=[])
        return ax.imshow(self.frames[t], interpolation="nearest")

    def _belief(self, ax: Any, t: int) -> dict[str, Any]:
        """Draw plan, belief, robot and guess at one time; the artists that change."""
        draw_plan(ax)
        artists = {
            "belief": ax.imshow(
                self.density[t], extent=(0, WIDTH, 0, DEPTH), origin="lower", cmap="Blues",
                vmin=0.0, vmax=1.0, interpolation="bilinear",
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

    def _tracks(self, ax: Any) -> None:
        draw_plan(ax)
        ax.plot(*self.guesses.T, color=SECOND, lw=0.6, alpha=0.6, marker="x", ms=4,
                label="nearest frames")  # fmt: skip
        ax.plot(*self.states[:, :2].T, color=NEUTRAL, lw=5, alpha=0.3, label="true path")
        ax.plot(*self.mean.T, color=FIRST, lw=1.2, marker="o", ms=3, label="filter's mean")
        ax.plot(*self.states[0, :2], "*", color=NEUTRAL, ms=13, label="switched on here")
        ax.legend(loc="upper center", bbox_to_anchor=(0.5, 0.0), ncols=4, frameon=False, fontsize=9)
        ax.set_title("the whole drive", fontsize=10)

    def _errors(self, ax: Any) -> None:
        for guess, colour, label in (
            (self.guesses, SECOND, "nearest frames"),
            (self.mean, FIRST, "kernel Bayes filter"),
        ):
            error = np.hypot(*(guess - self.states[:, :2]).T)
            label = f"{label}: mean {error.mean():.2f} m"
            ax.plot(np.arange(1, len(error) + 1), error, color=colour, lw=1.5, label=label)
        ax.set(xlabel="frame", ylabel="error (m)", xlim=(1, len(self.states)))
        ax.set_ylim(bottom=0.0)
        ax.legend(frameon=False)
        ax.set_title("how far from the true place", fontsize=10)
        bare(ax)


def empty_figure(width: float, height: float) -> Any:
    """Return a figure outside pyplot, for files; an ImportError without matplotlib."""
    figure = new_axes(width, height).figure
    figure.clear()
    return figure


def draw_plan(ax: Any) -> None:
    """Draw the floor plan in metres, walls in their colours."""
    from matplotlib.collections import LineCollection

    ends, colours = walls()
    ax.add_collection(LineCollection(list(ends), colors=colours, linewidths=3, zorder=3))
    margin = 0.15
    ax.set(xlim=(-margin, WIDTH + margin), ylim=(-margin, DEPTH + margin), aspect="equal")
    ax.set_axis_off()


def place_density(beliefs: Beliefs) -> Floats:
    """Densities of the place (T, rows, columns) on a grid, rooted, so that faint ones show too.

    Each is divided by its largest value.
    """
    x, y = ((np.arange(int(PER_METRE * side)) + 0.5) / PER_METRE for side in (WIDTH, DEPTH))
    grid = np.stack(np.meshgrid(x, y), axis=-1).reshape(-1, 2)
    places = embed(beliefs.points[:, :2], Gaussian(BLUR), beliefs.weights)
    density = np.sqrt(places.density(grid, BLUR, valid="clipped"))
    shown = density / density.max(axis=1, keepdims=True)
    return np.asarray(shown.reshape(len(density), len(y), len(x)))
