"""The story, as lines of text: learning from labelled frames, then finding oneself.

A robot with a camera of a few pixels drives through a building. It is shown 1000 frames and where
each was taken; that is all it ever learns about cameras, walls and driving. Then it is switched on
in unknown places and tracks where it is from its frames alone. Bandwidths, and the number of
nearest neighbours it is measured against, are chosen on the labelled frames. The building, the
ridges and the scales to choose from were settled by hand while writing this, with an eye on test
drives of seeds 0 to 5 and 7; other seeds were not looked at.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import numpy as np
from sklearn.neighbors import KNeighborsRegressor

from kernelbayes.arrays import Floats, NumericalWarning, as_generator
from kernelbayes.demo.building import COLUMNS, DEPTH, ROWS, WIDTH, walls
from kernelbayes.demo.drive import Drive
from kernelbayes.embedding import embed
from kernelbayes.filters import Beliefs, KernelBayesFilter
from kernelbayes.kernels import Gaussian
from kernelbayes.plot.canvas import empty_figure
from kernelbayes.plot.demo import Drawing
from kernelbayes.rules.conditional import UNUSUAL
from kernelbayes.select.search import progress_bar

LABELLED = 1000  # frames
SWITCHED_ON, FRAMES = 10, 80  # test drives, and frames of each
LOST = 20  # frames within which it may still be searching
# What is tried: bandwidths over the median distance, and numbers of neighbours.
SCALES_X, SCALES_Z, HOW_MANY = (0.25, 0.4), (0.1, 0.2), (1, 2, 3, 5, 10)
RIDGE, STATE_RIDGE = 1.0, 1e-5
BLUR = 0.25  # metres, bandwidth of the drawn densities: a step of the robot is at most 0.4
PER_METRE = 8  # cells of their grid: half a bandwidth


def demo(out: Path, seed: int = 0) -> Iterator[str]:
    """Tell the story: lines to print; ``robot.png`` and ``robot.gif`` are written into ``out``.

    The directory is made if it does not exist (only when there are pictures). Without matplotlib
    the last line says how to get them. ``seed`` is that of the drives and of the camera's noise.
    """
    rng = as_generator(seed)
    yield f"A robot with a camera of {COLUMNS} x {ROWS} pixels, in a building of"
    yield f"{WIDTH:g} x {DEPTH:g} metres (simulated, seed {seed}). Two rooms look the same."
    labelled = Drive.simulated(LABELLED, rng)
    yield f"It learns from {LABELLED} frames and where they were taken ..."
    k = choose_neighbours(labelled)
    model = choose_filter(labelled)
    # The first time in one of the two rooms that look the same, then anywhere.
    drives = [Drive.simulated(FRAMES, rng, "a" if i == 0 else None) for i in range(SWITCHED_ON)]
    yield f"It is switched on {SWITCHED_ON} times, somewhere, and drives {FRAMES} frames ..."
    beliefs = follow(model, drives)
    strange = sum(strange_frames(b) for b in beliefs)
    if strange:
        yield f"({strange} of all {SWITCHED_ON * FRAMES} are unlike those it has learned from)"
    nearest = nearest_frames(labelled, k)
    guesses = [nearest.predict(d.X) for d in drives]
    yield ""
    yield from table(
        {
            "always the middle": [np.tile(labelled.Z[:, :2].mean(0), (FRAMES, 1)) for _ in drives],
            f"nearest frames (k = {k})": guesses,
            "kernel Bayes filter": [b.mean() for b in beliefs],
        },
        drives,
    )
    yield ""
    yield from pictures(out, drives[0], beliefs[0], guesses[0])


def nearest_frames(labelled: Drive, k: int) -> KNeighborsRegressor:
    """Return the baseline: the mean place (x, y) of the k most similar labelled frames."""
    return KNeighborsRegressor(k).fit(labelled.X, labelled.Z[:, :2])


def choose_neighbours(labelled: Drive) -> int:
    """Return the k with the least error on the last quarter, learned from the rest."""
    early, late = last_quarter(labelled)
    scores = [distance(nearest_frames(early, k).predict(late.X), late).mean() for k in HOW_MANY]
    return HOW_MANY[int(np.argmin(scores))]


def choose_filter(labelled: Drive) -> KernelBayesFilter:
    """Return the filter whose bandwidths do best on the last quarter, learned from all frames."""
    early, late = last_quarter(labelled)
    scales = list(product(SCALES_X, SCALES_Z))
    scores = []
    with progress_bar(len(scales), "learning") as bar:
        for scale in scales:
            found = follow(robot_filter(early, *scale), [late], progress=False)
            scores.append(distance(found[0].mean(), late).mean())
            bar.update()
    return robot_filter(labelled, *scales[int(np.argmin(scores))])


def robot_filter(labelled: Drive, scale_x: float, scale_z: float) -> KernelBayesFilter:
    """Fit a filter, its bandwidths given as multiples of the median distance."""
    X, Z = labelled.X, labelled.Z
    return KernelBayesFilter(
        Gaussian.median(X, scale=scale_x),
        Gaussian.median(Z, scale=scale_z),
        prior_ridge=STATE_RIDGE,
        transition_ridge=STATE_RIDGE,
        ridge=RIDGE,
        rng=0,
    ).fit(X, Z)


def follow(
    model: KernelBayesFilter, drives: list[Drive], progress: bool | None = None
) -> list[Beliefs]:
    """Beliefs of each drive. Of frames unlike all labelled ones the story tells, not a warning."""
    with warnings.catch_warnings():
        told = ".* observations .* are unlike anything in the training sample"
        warnings.filterwarnings("ignore", told, NumericalWarning)
        return list(model.filter([drive.X for drive in drives], progress=progress))


def strange_frames(beliefs: Beliefs) -> int:
    """Return how many frames are so unlike the labelled ones that the prediction counts again."""
    return 0 if beliefs.info is None else int((beliefs.info.prior_share > UNUSUAL).sum())


def last_quarter(labelled: Drive) -> tuple[Drive, Drive]:
    """Cut a drive in two: three quarters and the last one."""
    cut = 3 * len(labelled.states) // 4
    parts = slice(None, cut), slice(cut, None)
    early, late = (Drive(labelled.frames[part], labelled.states[part]) for part in parts)
    return early, late


def distance(guess: Floats, truth: Drive) -> Floats:
    """Metres (T,) between the places guessed, the first two of the columns, and the true ones."""
    return np.asarray(np.linalg.norm(guess[:, :2] - truth.states[:, :2], axis=1))


def table(guesses: dict[str, list[Floats]], drives: list[Drive]) -> Iterator[str]:
    """Aligned rows: errors of each method over all frames, and once it had time to look around."""
    yield f"{'error in metres':<24}{'mean':>8}{'median':>9}{f'after {LOST} frames':>18}{'< 1 m':>8}"
    for name, tracks in guesses.items():
        e = np.stack([distance(g, d) for g, d in zip(tracks, drives, strict=True)])
        late, near = e[:, LOST:].mean(), 100 * (e < 1.0).mean()
        yield f"{name:<24}{e.mean():>8.2f}{np.median(e):>9.2f}{late:>18.2f}{near:>6.0f} %"


def pictures(out: Path, seen: Drive, beliefs: Beliefs, guesses: Floats) -> Iterator[str]:
    """Draw one drive into two files, and say where they are."""
    try:
        empty_figure(1.0, 1.0)  # says what to install before any work is done
        mean, density = beliefs.mean()[:, :2], place_density(beliefs)
        drawing = Drawing(walls(), seen.frames, seen.states, mean, guesses, density)
        out.mkdir(parents=True, exist_ok=True)
        yield f"Picture of the first drive: {drawing.picture(out / 'robot.png')}"
        yield f"and as a film:              {drawing.film(out / 'robot.gif')}"
    except ImportError as error:
        yield f"No pictures: {error}"


def place_density(beliefs: Beliefs) -> Floats:
    """Densities of the place (T, rows, columns) on a grid, square roots, so that faint ones show.

    Each is divided by its largest value.
    """
    x, y = ((np.arange(int(PER_METRE * side)) + 0.5) / PER_METRE for side in (WIDTH, DEPTH))
    grid = np.stack(np.meshgrid(x, y), axis=-1).reshape(-1, 2)
    places = embed(beliefs.points[:, :2], Gaussian(BLUR), beliefs.weights)
    density = np.sqrt(places.density(grid, BLUR, valid="clipped"))
    shown = density / density.max(axis=1, keepdims=True)
    return np.asarray(shown.reshape(len(density), len(y), len(x)))
