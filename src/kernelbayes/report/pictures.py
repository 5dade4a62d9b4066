"""Pictures of results, on the canvas of :mod:`kernelbayes.report.canvas`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from kernelbayes.arrays import as_vectors, to_numpy
from kernelbayes.embedding.density import grid_density
from kernelbayes.embedding.export import is_categorical, parts, probabilities
from kernelbayes.embedding.smooth import silverman
from kernelbayes.plot.canvas import around, unrolled
from kernelbayes.report.canvas import FIRST, PLAIN, SECOND, THIRD, Picture
from kernelbayes.types import Floats, Ints

COORDINATES = 6  # largest number drawn of a state or parameter; nobody reads more
FRAMES_OF_SLIDER = 200  # positions of a slider; a thumb cannot resolve more
LONGEST_LINE = 2000  # points of a line: four for each pixel
GRID_OF_CURVE, GRID_OF_FRAME = 200, 80  # points of a static density, and of a moving one
HEAVIEST_POINTS = 40  # heaviest points of a belief in the plane, enough to show its shape
SIZES = (3.0, 14.0)  # widths of the lightest and the heaviest of them, in pixels
MOST_BARS = 40  # categories that are drawn, the most probable
PAIRED = 3  # coordinates whose pairs are drawn
DRAWS_SHOWN, DRAWS_BEHIND = 500, 2000  # draws in pair plots, and for densities
WHISKERS, FEW = 60, 12  # answers drawn one by one (more become a band), and labelled


@dataclass
class Shown:
    """Pictures of one section, and the labels of the positions of their slider."""

    pictures: list[Picture] = field(default_factory=list)
    places: list[str] = field(default_factory=list)
    note: str = ""


def kind_of(mu: Any) -> str:
    """Return the kind of points: "numbers", "categories", "parts" or "other"."""
    if isinstance(mu.points, Mapping):
        return "parts"
    if is_categorical(mu):
        return "categories"
    return "numbers" if mu.points.ndim <= 2 else "other"


def names_of(mu: Any, given: Sequence[str] | None, letter: str = "z") -> list[str]:
    """Names of coordinates: those given, those of the frame, or z, z0, z1, ..."""
    d = 1 if kind_of(mu) != "numbers" else int(mu.vectors.shape[1])
    for names in (given, mu.names):
        if names is not None and len(names) == d:
            return [str(name) for name in names]
    return [letter] if d == 1 else [f"{letter}{j}" for j in range(d)]


def of_one(mu: Any, names: Sequence[str] | None, level: float) -> Shown:
    """Density of each coordinate with its interval, pairs of coordinates, or bars of categories."""
    shown = Shown()
    for part in parts(mu):
        labels = names_of(part, names)
        if kind_of(part) == "categories":
            shown.pictures.append(_bars(part, labels[0]))
        elif kind_of(part) == "numbers":
            X, w = to_numpy(part.vectors).astype(float), np.asarray(part.valid_weights()[0])
            mean, ends = to_numpy(part.mean()), to_numpy(part.interval(level))
            X, mean, ends = around(X, mean, ends, part.kernel.periods(len(labels)))
            shown.pictures += _marginals(X, w, mean, ends, labels, level)
            shown.pictures += _pairs(X, w, labels)
            shown.note = _cut(len(labels))
    return shown


def of_posterior(post: Any, names: Sequence[str] | None, level: float) -> Shown:
    """Posterior over parameters, from draws, with the prior in the background."""
    labels = names_of(post, names, "theta")
    draws = np.asarray(to_numpy(post.sample(DRAWS_BEHIND, rng=0)), dtype=float)
    w = np.full(len(draws), 1.0 / len(draws))
    numbers = to_numpy(post.mean()), to_numpy(post.interval(level))
    pictures = _marginals(draws, w, *numbers, labels, level)
    if post.prior is not None:
        wide = np.asarray(to_numpy(post.prior.sample(DRAWS_BEHIND, 0)), dtype=float)
        wide = wide.reshape(DRAWS_BEHIND, -1)
        for j, picture in enumerate(pictures):
            if np.ptp(wide[:, j]) > 0:
                (grid,), height = grid_density(wide[:, [j]], w, GRID_OF_CURVE)
                picture.line(grid, height, "prior", f"{PLAIN} dash", hover=False)
    return Shown([*pictures, *_pairs(draws[:DRAWS_SHOWN], None, labels)], note=_cut(len(labels)))


def _marginals(
    X: Floats, w: Floats, mean: Floats, ends: Floats, names: list[str], level: float
) -> list[Picture]:
    found = []
    for j, name in enumerate(names[:COORDINATES]):
        picture = Picture(f"Density of {name}", name, "density", floor=0.0)
        (grid,), height = grid_density(X[:, [j]], w, GRID_OF_CURVE)
        inside = (grid >= ends[j, 0]) & (grid <= ends[j, 1])
        cut = np.where(inside, height, np.nan)
        picture.area(grid, np.where(inside, 0.0, np.nan), cut, f"{100 * level:g} % interval")
        picture.line(grid, height, "density")
        picture.upright(float(mean[j]), "mean")
        found.append(picture)
    return found


def _pairs(X: Floats, w: Floats | None, names: list[str]) -> list[Picture]:
    """Scatter plots of pairs of the first coordinates: heaviest points, sized by weight."""
    found = []
    for i in range(1, min(len(names), PAIRED)):
        for j in range(i):
            picture = Picture(f"{names[j]} and {names[i]}", names[j], names[i])
            heavy = np.arange(len(X)) if w is None else np.argsort(-w)[:DRAWS_SHOWN]
            heavy = heavy if w is None else heavy[w[heavy] > 0]
            sizes = None if w is None else widths(w[heavy])
            label = "draws" if w is None else "by weight"
            picture.dots(X[heavy, j], X[heavy, i], label, sizes=sizes)
            picture.hover(X[heavy, j], names[i], X[heavy, i])
            picture.up = X[heavy, i]
            found.append(picture)
    return found


def widths(w: Floats) -> Floats:
    """Widths of points (n,), with areas proportional to their weights, above a minimum."""
    top = float(w.max()) if len(w) else 1.0
    return np.asarray(SIZES[0] + (SIZES[1] - SIZES[0]) * np.sqrt(w / (top or 1.0)))


def _bars(mu: Any, name: str) -> Picture:
    labels, P = probabilities(mu)
    most = np.sort(np.argsort(-P[0], kind="stable")[:MOST_BARS])
    names, at = [str(labels[k]) for k in most], np.arange(float(len(most)))
    picture = Picture(f"Probabilities of {name}", name, "probability", names, floor=0.0)
    picture.bars(at, P[0, most])
    picture.hover(at, "probability", P[0, most])
    return picture


def _cut(d: int) -> str:
    return "" if d <= COORDINATES else f"The first {COORDINATES} of {d} coordinates are drawn."


def of_many(
    batch: Any, names: Sequence[str] | None, level: float, what: str, truth: Any = None
) -> Shown:
    """Answers of a batch, by "time" or "observation", and the one that a slider points at."""
    m = int(np.shape(batch.weights)[0])
    frames = _some(m, FRAMES_OF_SLIDER)
    shown = Shown(places=[f"{what} {i}" for i in frames])
    for part in parts(batch):
        labels = names_of(part, names)
        if kind_of(part) == "categories":
            shown.pictures += _shares(part, labels[0], what, frames)
        elif kind_of(part) == "numbers":
            known = None if truth is None else to_numpy(as_vectors(truth, "truth")).astype(float)
            if known is not None and known.shape != (m, len(labels)):
                raise ValueError(f"truth must have shape {(m, len(labels))}, got {known.shape}")
            mean, ends = np.array(to_numpy(part.mean())), np.array(to_numpy(part.interval(level)))
            titles = list(labels)
            for j, period in enumerate(part.kernel.periods(len(labels))):
                if period is None:
                    continue
                titles[j] = f"{labels[j]}, unwrapped"
                mean[:, j], ends[:, j] = unrolled(mean[:, j], ends[:, j], period)
                if known is not None:
                    off = (known[:, j] - mean[:, j] + period / 2.0) % period - period / 2.0
                    known[:, j] = mean[:, j] + off
            shown.pictures += series(mean, ends, titles, level, what, known, frames)
            shown.pictures += _now(part, labels, what, known, frames)
            shown.note = _cut(len(labels))
    return shown


def _some(m: int, most: int = LONGEST_LINE) -> Ints:
    return np.unique(np.linspace(0, m - 1, min(m, most)).astype(int))


def series(
    mean: Floats, ends: Floats, names: list[str], level: float, what: str,
    truth: Floats | None = None, frames: Ints | None = None,
) -> list[Picture]:  # fmt: skip
    """Means (m, d) and intervals (m, d, 2), one picture for each coordinate."""
    at, found = _some(len(mean)), []
    t = at.astype(float)
    for j, name in enumerate(names[:COORDINATES]):
        few = None if what == "time" or len(t) > FEW else [f"{i}" for i in at]
        picture = Picture(f"{name}: mean and {100 * level:g} % interval", what, name, few)
        if what == "time" or len(t) > WHISKERS:
            picture.area(t, ends[at, j, 0], ends[at, j, 1], f"{100 * level:g} % interval")
            picture.line(t, mean[at, j], "mean")
        else:
            picture.whiskers(t, mean[at, j], ends[at, j])
            picture.dots(t, mean[at, j], "mean")
            picture.hover(t, "mean", mean[at, j])
        picture.hover(t, "from", ends[at, j, 0])
        picture.hover(t, "to", ends[at, j, 1])
        if truth is not None:
            picture.line(t, truth[at, j], "truth", SECOND)
        if frames is not None:
            picture.moves("when", PLAIN, at=frames.astype(float))
        found.append(picture)
    return found


def _now(
    batch: Any, names: list[str], what: str, truth: Floats | None, frames: Ints
) -> list[Picture]:
    """Distribution selected by the slider: in the plane, or the density of each coordinate."""
    X, W = to_numpy(batch.vectors).astype(float), np.asarray(batch.valid_weights())[frames]
    found = [_plane(batch, X, W, names, what, truth)] if len(names) == 2 else []
    for j, name in enumerate(names[:COORDINATES] if batch.kernel.has_density else ()):
        picture = Picture(f"Density of {name}", name, "density (peak = 1)", floor=0.0)
        grid, heights = _frames(X[:, [j]], W)
        picture.moves("curve", FIRST, x=grid, frames=heights, label="at the slider")
        picture.hover(grid, "density", heights[-1])
        found.append(picture)
    return found


def _frames(x: Floats, W: Floats) -> tuple[Floats, Floats]:
    """Grid over the points (n, 1) with weight, and the densities there of weights (m, n).

    Each is divided by its peak; otherwise the narrowest would make all others look flat.
    """
    used = x[(1e-3 * W.max(axis=1, keepdims=True) < W).any(axis=0), 0]
    spreads = np.array([float(silverman(x, w)[0]) for w in W])
    room = 2.0 * float(np.median(spreads))
    grid = np.linspace(used.min() - room, used.max() + room, GRID_OF_FRAME)
    heights = np.stack([
        np.exp(-0.5 * ((grid[:, None] - x[w > 0, 0]) / h) ** 2) @ w[w > 0]
        for w, h in zip(W, spreads, strict=True)
    ])  # fmt: skip
    return grid, heights / np.maximum(heights.max(axis=1, keepdims=True), np.finfo(float).tiny)


def _plane(
    batch: Any, X: Floats, W: Floats, names: list[str], what: str, truth: Floats | None
) -> Picture:
    picture = Picture(f"{names[0]} and {names[1]}", names[0], names[1])
    mean = to_numpy(batch.mean())
    at = _some(len(mean))
    if what == "time":
        picture.line(mean[at, 0], mean[at, 1], "mean", hover=False)
        if truth is not None:
            picture.line(truth[at, 0], truth[at, 1], "truth", THIRD, hover=False)
    else:
        picture.dots(mean[at, 0], mean[at, 1], "means")
    picture.hover(mean[at, 0], names[0], mean[at, 0])
    picture.hover(mean[at, 0], names[1], mean[at, 1])
    picture.up, picture.headings = mean[at, 1], [f"{what} {i}" for i in at]
    heavy = np.argsort(-W, axis=1, kind="stable")[:, :HEAVIEST_POINTS]
    frames = []
    for order, w in zip(heavy, W, strict=True):
        kept = order[w[order] > 1e-3 * w.max()]
        frames.append([X[kept, 0], X[kept, 1], widths(w[kept])])
    picture.moves("points", SECOND, frames=frames, label="belief at the slider")
    return picture


def _shares(batch: Any, name: str, what: str, frames: Ints) -> list[Picture]:
    """Probabilities of the most probable categories, and all of them at the slider."""
    labels, P = probabilities(batch)
    most = np.argsort(-P.mean(axis=0), kind="stable")[:3]
    title = f"{name}: probabilities of the {len(most)} most probable"
    lines = Picture(title, what, "probability", floor=0.0)
    at = _some(len(P))
    for k, look in zip(most, (FIRST, SECOND, THIRD), strict=False):
        lines.line(at.astype(float), P[at, k], str(labels[k]), look)
    lines.moves("when", PLAIN, at=frames.astype(float))
    shown = np.sort(np.argsort(-P.max(axis=0), kind="stable")[:MOST_BARS])
    names = [str(labels[k]) for k in shown]
    bars = Picture(f"Probabilities of {name}", name, "probability", names, floor=0.0)
    bars.moves("bars", FIRST, frames=P[np.ix_(frames, shown)], label="at the slider")
    bars.hover(np.arange(float(len(shown))), "probability", P[frames[-1], shown])
    return [lines, bars]
