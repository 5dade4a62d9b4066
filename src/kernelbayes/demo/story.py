"""The demo as lines of text: learn from labelled frames, then localise.

A robot with a camera of a few pixels drives through a building. It learns from 1000 frames and the
places where they were taken; it knows nothing else about cameras and walls. Its wheels measure how
far it moved and turned since the last frame, with errors. Then it is switched on at unknown places
and tracks its position from frames and wheels. The labelled frames choose the bandwidth, pixels or
learned features (if torch is installed), and the number of neighbours of the baseline. Building,
ridges, share of carried particles and candidate bandwidths were set by hand during development,
with test drives of seeds 0 to 5, 7, 77, 100, 101, 3001 and 3002. On 20 starts of seeds 3003 and
3004, run once, the robot was localised after at most 4.2 metres, in half of them within 1.4; one of
the ten starts of seed 0 takes 7.2, of which 4.4 are in one of the two rooms.
"""

import warnings
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
from sklearn.neighbors import KNeighborsRegressor

from kernelbayes.arrays import NumericalWarning, as_generator
from kernelbayes.demo.building import COLUMNS, DEPTH, ROWS, WIDTH, walls
from kernelbayes.demo.drive import Drive, roll
from kernelbayes.embedding import embed
from kernelbayes.filters import Beliefs, KernelMonteCarloFilter
from kernelbayes.kernels import Gaussian
from kernelbayes.learned import Learned, NeuralFeatures
from kernelbayes.learned.nets import import_torch
from kernelbayes.plot.canvas import empty_figure
from kernelbayes.plot.demo import Drawing
from kernelbayes.report import report
from kernelbayes.rules.conditional import UNUSUAL
from kernelbayes.types import Floats

LABELLED = 1000  # frames
SWITCHED_ON, FRAMES = 10, 80  # test drives, and frames of each
LOST = 20  # frames during which it may still be searching
FOUND, IN_A_ROW = 1.0, 5  # localised: an error below this (metres) for this many frames in a row
# Candidates: bandwidths of frames over the median distance, and numbers of neighbours.
FRAME_SCALES, HOW_MANY = (0.25, 0.4), (1, 2, 3, 5, 10)
LEARNED = {"dim": 32, "epochs": 100, "rng": 0, "progress": False}  # about three seconds
STATE_SCALE = 0.2  # bandwidth of states over the median distance
RIDGE, STATE_RIDGE = 1.0, 1e-5
PARTICLES = 500  # half as many as labelled frames, so that a step takes a fiftieth of a second
# Share of the particles moved to random labelled places at each step. The filter may soon favour
# one of two rooms that look the same, and must then keep some mass on the other.
CARRIED = 0.02
BLUR = 0.25  # metres, bandwidth of the drawn densities: a step of the robot is at most 0.4
PER_METRE = 8  # cells of their grid: half a bandwidth


def demo(out: Path, seed: int = 0, page: Path | None = None) -> Iterator[str]:
    """Run the demo: yield lines to print, and write ``robot.png`` and ``robot.gif`` into ``out``.

    The directory is created if there are pictures to write. Without matplotlib the last line says
    how to get them. ``seed`` is that of the drives and of the camera's noise. A ``page`` is a
    report on the first drive.
    """
    rng = as_generator(seed)
    yield f"A robot with a camera of {COLUMNS} x {ROWS} pixels, in a building of"
    yield f"{WIDTH:g} x {DEPTH:g} metres (simulated, seed {seed}). Two rooms look the same."
    labelled = Drive.simulated(LABELLED, rng)
    yield "Its wheels measure how far it moved and turned, with errors of a few per cent."
    yield f"It learns from {LABELLED} frames and the places where they were taken ..."
    k = choose_neighbours(labelled)
    model, features, camera = choose_filter(labelled)
    yield camera
    # The first start is in one of the two rooms that look the same, the others are anywhere.
    drives = [Drive.simulated(FRAMES, rng, "a" if i == 0 else None) for i in range(SWITCHED_ON)]
    yield f"It is switched on {SWITCHED_ON} times at unknown places and drives {FRAMES} frames ..."
    beliefs = follow(model, [replace(d, features=features) for d in drives])
    strange = sum(int((b.info.prior_share > UNUSUAL).sum()) for b in beliefs if b.info is not None)
    if strange:
        yield f"({strange} of all {SWITCHED_ON * FRAMES} are far from the training frames)"
    nearest = nearest_frames(labelled, k)
    guesses = [nearest.predict(d.X) for d in drives]
    yield ""
    yield from table(
        {
            "always the middle": [np.tile(labelled.Z[:, :2].mean(0), (FRAMES, 1)) for _ in drives],
            f"nearest frames (k = {k})": guesses,
            "frames and wheels": [b.mean() for b in beliefs],
        },
        drives,
    )
    ways = [d.metres for d in drives]
    errors = [distance(b.mean(), d) for b, d in zip(beliefs, drives, strict=True)]
    found = [found_after(way, e) for way, e in zip(ways, errors, strict=True)]
    yield ""
    yield f"Metres driven until it was localised (to {FOUND:g} m), for each start; in brackets"
    yield "those in one of the two rooms that look the same, where a frame cannot tell which it is:"
    each = zip(found, drives, strict=True)
    yield "  ".join(metres_in_words(way, drive.metres_alike) for way, drive in each)
    yield ""
    starts = list(zip(ways, errors, strict=True))
    yield from pictures(out, drives[0], beliefs[0], guesses[0], starts)
    if page is not None:
        facts = {"labelled frames": LABELLED, "pixels": f"{COLUMNS} x {ROWS}", "seed": seed}
        report(beliefs[0], page, model=model, question="Where is the robot?", data=facts,
               names=("x", "y", "cos heading", "sin heading"), truth=drives[0].Z,
               code=f"kernelbayes demo --seed {seed} --report {page.name}")  # fmt: skip
        yield f"Report on the first drive:  {page}"


def nearest_frames(labelled: Drive, k: int) -> KNeighborsRegressor:
    """Return the baseline: the mean place (x, y) of the k most similar labelled frames."""
    return KNeighborsRegressor(k).fit(labelled.X, labelled.Z[:, :2])


def choose_neighbours(labelled: Drive) -> int:
    """Return the k with the smallest error on the last quarter, learned from the rest."""
    early, late = last_quarter(labelled)
    scores = [distance(nearest_frames(early, k).predict(late.X), late).mean() for k in HOW_MANY]
    return HOW_MANY[int(np.argmin(scores))]


def choose_filter(labelled: Drive) -> tuple[KernelMonteCarloFilter, Learned | None, str]:
    """Filter that does best on the last quarter, features of frames (None: pixels), and a line."""
    tried, scores = [(scale, False) for scale in FRAME_SCALES], []
    learner = NeuralFeatures(**LEARNED)  # type: ignore[arg-type]
    with suppress(ImportError):
        import_torch()
        tried.append((FRAME_SCALES[0], True))
    for scale, learned in tried:
        early, late = last_quarter(labelled)
        if learned:
            psi = learner.fit(early.frames, early.Z)
            early, late = replace(early, features=psi), replace(late, features=psi)
        mean = follow(robot_filter(early, scale), [late])[0].mean()
        scores.append(float(distance(mean, late).mean()))
    scale, learned = tried[int(np.argmin(scores))]
    said = f"error {min(scores[: len(FRAME_SCALES)]):.2f} m with pixels, learned features "
    said += f"{scores[-1]:.2f} m" if len(tried) > len(FRAME_SCALES) else "need torch"
    said = f"It uses {'learned features' if learned else 'pixels'} of its camera ({said})."
    features = learner.fit(labelled.frames, labelled.Z) if learned else None
    return robot_filter(replace(labelled, features=features), scale), features, said


def robot_filter(labelled: Drive, scale: float) -> KernelMonteCarloFilter:
    """Fit a filter: the sensor is learned from labelled frames, the transition is ``roll``."""
    X, Z = labelled.X, labelled.Z
    kernels = Gaussian.median(X, scale=scale), Gaussian.median(Z, scale=STATE_SCALE)

    def moved(z: Floats, rng: np.random.Generator, control: Floats | None = None) -> Floats:
        found, carried = roll(z, rng, control), rng.random(len(z)) < CARRIED
        found[carried] = Z[rng.integers(len(Z), size=int(carried.sum()))]
        return found

    model = KernelMonteCarloFilter(moved, Z, *kernels, particles=PARTICLES, ridge=RIDGE,
                                   prior_ridge=STATE_RIDGE, rng=0)  # fmt: skip
    return model.fit(X, Z, labelled.wheels[1:])


def follow(model: KernelMonteCarloFilter, drives: list[Drive]) -> list[Beliefs]:
    """Beliefs of each drive. The demo reports frames far from the training frames itself."""
    with warnings.catch_warnings():
        said = ".* observations .* are unlike anything in the training sample"
        warnings.filterwarnings("ignore", said, NumericalWarning)
        X, wheels = [drive.X for drive in drives], [drive.wheels for drive in drives]
        return list(model.filter(X, wheels))


def last_quarter(labelled: Drive) -> tuple[Drive, Drive]:
    """Cut a drive in two: three quarters and the last one."""
    cut = 3 * len(labelled.states) // 4
    return labelled.part(slice(None, cut)), labelled.part(slice(cut, None))


def distance(guess: Floats, truth: Drive) -> Floats:
    """Metres (T,) between estimated places, the first two columns, and true ones."""
    return np.asarray(np.linalg.norm(guess[:, :2] - truth.states[:, :2], axis=1))


def found_after(way: Floats, error: Floats) -> float:
    """Metres driven until errors (T,) are small for some frames in a row; NaN if they never are."""
    near = np.lib.stride_tricks.sliding_window_view(error < FOUND, IN_A_ROW).all(axis=1)
    return float(way[near.argmax()]) if near.any() else np.nan


def metres_in_words(way: float, alike: float) -> str:
    """Metres until it was localised, and those of them in rooms that look the same."""
    text = "never" if np.isnan(way) else f"{way:.1f}"
    return f"{text} ({np.fmin(way, alike):.1f})" if alike else text


def table(guesses: dict[str, list[Floats]], drives: list[Drive]) -> Iterator[str]:
    """Aligned rows: errors of each method over all frames, and after the first ``LOST``."""
    yield f"{'error in metres':<24}{'mean':>8}{'median':>9}{f'after {LOST} frames':>18}{'< 1 m':>8}"
    for name, tracks in guesses.items():
        e = np.stack([distance(g, d) for g, d in zip(tracks, drives, strict=True)])
        late, near = e[:, LOST:].mean(), 100 * (e < 1.0).mean()
        yield f"{name:<24}{e.mean():>8.2f}{np.median(e):>9.2f}{late:>18.2f}{near:>6.0f} %"


def pictures(
    out: Path, seen: Drive, beliefs: Beliefs, guesses: Floats, starts: list[tuple[Floats, Floats]]
) -> Iterator[str]:
    """Draw the first of all drives into two files, and say where they are."""
    try:
        empty_figure(1.0, 1.0)  # says what to install before any work is done
        mean, density = beliefs.mean()[:, :2], place_density(beliefs)
        shown = seen.frames, seen.states, mean, guesses, density, starts
        drawing = Drawing(walls(), *shown, found=found_after(*starts[0]))
        out.mkdir(parents=True, exist_ok=True)
        yield f"Picture of the first drive: {drawing.picture(out / 'robot.png')}"
        yield f"and as a film:              {drawing.film(out / 'robot.gif')}"
    except ImportError as error:
        yield f"No pictures: {error}"


def place_density(beliefs: Beliefs) -> Floats:
    """Square roots of the densities of the place (T, rows, columns), over their largest value."""
    x, y = ((np.arange(int(PER_METRE * side)) + 0.5) / PER_METRE for side in (WIDTH, DEPTH))
    grid = np.stack(np.meshgrid(x, y), axis=-1).reshape(-1, 2)
    places = embed(beliefs.points[:, :2], Gaussian(BLUR), beliefs.weights)
    density = np.sqrt(places.density(grid, BLUR, valid="clipped"))
    shown = density / density.max(axis=1, keepdims=True)
    return np.asarray(shown.reshape(len(density), len(y), len(x)))
