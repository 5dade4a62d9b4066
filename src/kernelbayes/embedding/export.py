"""Export: data frames, ArviZ, summaries and pictures."""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from array_api_compat import is_array_api_obj

from kernelbayes.arrays import as_generator, to_numpy
from kernelbayes.embedding.density import grid_density, sample
from kernelbayes.embedding.mean import Weighted
from kernelbayes.plot.embeddings import plot_categories, plot_embedding
from kernelbayes.points import count
from kernelbayes.tables import Row, Table, as_frame, distinct, extra
from kernelbayes.types import Array, Floats, Points, Rng

if TYPE_CHECKING:
    from kernelbayes.embedding.decoding import Decoding

# The thresholds of docs/diagnostics.md, for ``summary()``, warnings and report pages. A standard
# deviation of m effective points is known to 1 / sqrt(2 m) of it: to a third, and to an eighth.
LEAST_ESS, GOOD_ESS = 5.0, 30.0
# Share of an answer that is filled in above which a rule warns: by judgement, one part in ten.
MOST_FILLED = 0.1
# Shares of negative weight that are good, and that need a look: rules of thumb.
NEGATIVE = (0.1, 0.3)
# Condition numbers at which half of all digits of a double are right, and a few of them.
CONDITION = (1e8, 1e12)
SINGLE = "a single value"  # the verdict on an embedding of one point


def to_frame(mu: Weighted) -> Any:
    """Pandas frame of the points with their weights; "weight_2" if a point has a "weight"."""
    columns = named_columns(mu.points, mu.names, letter(mu))
    weights = np.atleast_2d(to_numpy(mu.weights))
    names = ["weight"] if mu._single else [f"weight_{i}" for i in range(len(weights))]
    names = distinct(names, columns)
    return as_frame({**columns, **dict(zip(names, weights, strict=True))})


def to_arviz(mu: Any, draws: int, rng: Rng, bandwidth: float | Array | None) -> Any:
    """ArviZ data whose posterior group holds independent draws of one chain."""
    arviz = extra("arviz", "arviz", "this needs ArviZ")
    generator = as_generator(rng)
    members = [mu] if mu._single else list(mu)
    draw = [sample(member, draws, generator, "iid", bandwidth) for member in members]
    drawn = [named_columns(points, mu.names, letter(mu)) for points in draw]
    names = dict(zip(drawn[0], distinct(drawn[0], taken=("chain", "draw")), strict=True))
    posterior = {
        new: np.stack([c[name] for c in drawn], axis=1)[None] for name, new in names.items()
    }
    if mu._single:
        posterior = {name: column[:, :, 0] for name, column in posterior.items()}
    if "posterior" in inspect.signature(arviz.from_dict).parameters:  # before ArviZ 1.0
        return arviz.from_dict(posterior=posterior)
    return arviz.from_dict({"posterior": posterior})


def summary(mu: Decoding, level: float) -> Table:
    """Mean, deviation, median, interval and verdict, or the probability of each category."""
    if isinstance(mu.points, Mapping):
        return Table(row for part in parts(mu) for row in summary(part, level))
    trusted = trust(mu)
    if is_categorical(mu):
        kinds, P = probabilities(mu)
        name = mu.names[0] if mu.names else "z"
        table = Table()
        for i, k in np.ndindex(P.shape):
            row: Row = {"variable": name, "category": kinds[k], "probability": float(P[i, k])}
            table.append({**({} if mu._single else {"member": i}), **row, **trusted[i]})
        return table
    ends = to_numpy(mu.interval(level))  # (..., d, 2)
    columns = [to_numpy(a)[..., None] for a in (mu.mean(), deviations(mu), mu.median())]
    found = np.concatenate([*columns, ends], axis=-1)
    labels = coordinate_names(mu.names, found.shape[-2], letter(mu))
    low, high = (f"{50.0 * share:.3g}%" for share in (1.0 - level, 1.0 + level))
    titles = ("mean", "sd", "median", low, high)
    table = Table()
    for *member, j in np.ndindex(*found.shape[:-1]):
        row = dict(zip(titles, found[*member, j].tolist(), strict=True))
        number = {"member": member[0]} if member else {}
        table.append(
            {**number, "variable": labels[j], **row, **trusted[member[0] if member else 0]}
        )
    return table


def deviations(mu: Decoding) -> Array:
    """Return standard deviations, shaped as ``mu.std()``, corrected as ``mu.interval()`` is."""
    found: Array = mu.std() if mu.calibration is None else mu.calibration.std(mu)
    return found


def filled_in(source: Any) -> Any:
    """Return all that was filled in, or the prior's share, as diagnostics tell; None of neither."""
    found = getattr(source, "filled", None)
    return getattr(source, "prior_share", None) if found is None else found


def trust(mu: Weighted) -> list[Row]:
    """Of each member the effective sample size, support where it is known, a verdict in words."""
    source = mu.diagnostics if mu.diagnostics is not None else getattr(mu, "info", None)
    support, filled = getattr(source, "support", None), filled_in(source)
    ess = np.atleast_1d(to_numpy(mu.ess))
    # Where the prior's share is not known, it is all where there is no support.
    filled = (0.0 if support is None else to_numpy(support) == 0.0) if filled is None else filled
    outside = np.broadcast_to(np.asarray(to_numpy(filled), dtype=float), ess.shape)
    # Where every category is one point, weights are probabilities, and few points are no bad sign.
    points = getattr(mu, "points", None)  # several posteriors have points of their own
    exact = (
        points is not None and is_categorical(mu) and len(categories(points)[0]) == count(points)
    )
    single = np.atleast_1d(np.sum(to_numpy(getattr(mu, "weights", 0.0)) != 0.0, axis=-1) == 1)
    rows = []
    for i, size in enumerate(ess.tolist()):
        row: Row = {"ess": size}
        if support is not None:
            row["support"] = float(np.atleast_1d(to_numpy(support))[i])
        verdict = "good"
        if source is None and single[i % len(single)]:  # as an observed node of a graph
            verdict = SINGLE
        elif size < GOOD_ESS and not exact:
            rough = f"rough: spread known to {100.0 / math.sqrt(2.0 * max(size, 1.0)):.0f} %"
            verdict = rough if size >= LEAST_ESS else "few points: spread hardly known"
        verdict = "outside the sample: partly filled in" if outside[i] > MOST_FILLED else verdict
        rows.append({**row, "verdict": verdict})
    return rows


def is_categorical(mu: Any) -> bool:
    """Whether the points of an embedding are categories."""
    points = mu.points
    if isinstance(points, Mapping) or mu.kernel.is_categorical:
        return not isinstance(points, Mapping)
    return not is_array_api_obj(points) or getattr(points.dtype, "kind", "f") in "USO"


def categories(points: Points) -> tuple[list[Any], npt.NDArray[np.intp]]:
    """Categories among points in order, and the number of each point's own (n,)."""
    array = np.array([str(p) for p in points], dtype=object)
    if is_array_api_obj(points):
        array = np.asarray(to_numpy(points))
    if array.ndim == 1:
        found, codes = np.unique(array, return_inverse=True)
        return found.tolist(), codes
    rows, codes = np.unique(array.reshape(len(array), -1), axis=0, return_inverse=True)
    return [tuple(row) if len(row) > 1 else row[0] for row in rows.tolist()], codes.ravel()


def probabilities(mu: Decoding) -> tuple[list[Any], Floats]:
    """Categories in order, and their probabilities (members, categories), never above 1."""
    labels, codes = categories(mu.points)
    members = (codes[:, None] == np.arange(len(labels))).astype(float)
    return labels, np.minimum(np.atleast_2d(np.asarray(mu.valid_weights())) @ members, 1.0)


def parts(mu: Any) -> list[Any]:
    """Embeddings of the parts of a joint variable; of any other, the embedding itself."""
    if not isinstance(mu.points, Mapping):
        return [mu]
    found = []
    for key, kernel, points in mu.kernel.split(mu.points):
        names = key if isinstance(key, tuple) else (key,)
        if getattr(points, "ndim", 1) == 2 and points.shape[1] != len(names):
            names = tuple(f"{names[0]}_{j}" for j in range(points.shape[1]))
        found.append(replace(mu, points=points, kernel=kernel, names=names))
    return found


def plot(mu: Decoding, ax: Any, level: float, label: str | None) -> Any:
    """Draw a distribution, or bars for the probabilities of categories."""
    if is_categorical(mu):
        return plot_categories(*probabilities(mu), mu.names, ax)
    return plot_embedding(mu, grid_density, ax, level, label, letter(mu))


def letter(mu: Any) -> str:
    """Return "z" (hidden) for what rules and filters have made, "x" for any other sample."""
    return "z" if hasattr(mu.diagnostics, "prior_share") else mu.letter


def coordinate_names(names: tuple[str, ...] | None, d: int, letter: str = "x") -> tuple[str, ...]:
    """Names of d coordinates: those of the points' frame, or x0, x1, ..."""
    if names and len(names) == d:
        return tuple(distinct(names))
    return tuple(f"{letter}{j}" for j in range(d))


def named_columns(
    points: Points, names: tuple[str, ...] | None, letter: str = "x"
) -> dict[str, npt.NDArray[Any]]:
    """Columns (n,) of points by name: of a mapping, of vectors, or one column "point"."""
    if isinstance(points, Mapping):
        parts = [named_columns(value, None) for value in points.values()]
        found = [
            (str(key) if len(part) == 1 else f"{key}_{name}", column)
            for key, part in zip(points, parts, strict=True)
            for name, column in part.items()
        ]
        return dict(zip(distinct(n for n, _ in found), (c for _, c in found), strict=True))
    if not is_array_api_obj(points):
        return {"point": np.asarray(points, dtype=object)}
    array = to_numpy(points)
    if array.ndim == 1:
        return {"point" if names is None else names[0]: array}
    if array.ndim > 2:
        return {"point": np.fromiter(array, dtype=object, count=len(array))}
    return dict(zip(coordinate_names(names, array.shape[1], letter), array.T, strict=True))
