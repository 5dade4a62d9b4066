"""Observations made ready for the update: kernel values, support, and what is missing of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from kernelbayes.arrays import Array, namespace, row_blocks, to_numpy
from kernelbayes.filters.missing import missing_mask, present
from kernelbayes.filters.model import Observations
from kernelbayes.filters.sequences import acting, as_points, as_row, check_gaps, point_at
from kernelbayes.gram import Factored
from kernelbayes.points import Points, PointsLike, count, in_order, row_in_order, take
from kernelbayes.rules.support import nearest_similarity

if TYPE_CHECKING:
    from kernelbayes.filters.loop import Filter


@dataclass(frozen=True, eq=False)
class Seen:
    """One observation made ready: kernel values, support, and the model they belong to."""

    observations: Observations | None = None  # None: nothing was observed
    column: Array = None
    support: float = float("nan")


def evaluate(observations: Observations, points: Points) -> tuple[Array, Array]:
    """Return what the update needs of k checked points: columns (r or n, k), supports (k,)."""
    kernel = observations.kernel
    anchored = kernel.anchored(points)
    if anchored is not None:  # one kernel matrix serves both answers
        columns, K = anchored
        base = kernel.exact
    elif isinstance(observations.gram, Factored):
        columns = kernel.features(points).T
        return columns, nearest_similarity(kernel, points, observations.X)
    else:
        K = columns = kernel._cross(observations.X, points)
        base = kernel
    xp = namespace(K)
    scale = observations.norms * xp.sqrt(base._diag(points))
    positive = scale > 0
    ratio = xp.where(positive, K / xp.where(positive, scale, xp.ones_like(scale)), 0.0 * K)
    return columns, xp.clip(xp.max(xp.abs(ratio), axis=0), 0.0, 1.0)


def observe(
    model: Filter, x: PointsLike, past: Array | None = None, steps: int = 1
) -> tuple[Seen, Array | None]:
    """One observation made ready for the update, and the window that the next one needs.

    ``past`` is the window before it, ``steps`` the transitions since.
    """
    if model.encoder_ is None:
        return _ready(model, x), None
    row = _row(model, x)
    encoded, past = model.encoder_.follow(past, row, steps)
    found = present(model.observations_, encoded)
    return Seen() if found is None else _seen(*found), past


def _row(model: Filter, x: PointsLike) -> Points:
    """One observation as a sequence of length one, read by name where it has names."""
    kernel = model.kernel_x_
    return as_row(row_in_order(x, model.names_x_, by_name=kernel.by_name), kernel)


def _seen(observations: Observations, point: Points) -> Seen:
    """One point of the observation model's space made ready."""
    point = observations.exact.points(point, "x")
    observations.exact.check_pair(point, observations.X)
    columns, support = evaluate(observations, point)
    return Seen(observations, columns[:, 0], float(to_numpy(support)[0]))


def _ready(model: Filter, x: PointsLike) -> Seen:
    observations = model.observations_
    whole = type(x) is np.ndarray and x.ndim > 0 and x.dtype.kind == "f" and np.isfinite(x).all()
    if whole:  # as usual: no search for what is missing
        point = x[None, ...]
    else:
        found = present(observations, _row(model, x))
        if found is None:
            return Seen()
        observations, point = found
    X = observations.X
    if not (whole and observations.plain and x.shape == X.shape[1:] and x.dtype == X.dtype):
        point = observations.exact.points(point, "x")
        observations.exact.check_pair(point, X)
    columns, support = evaluate(observations, point)
    return Seen(observations, columns[:, 0], float(to_numpy(support)[0]))


def prepare(
    model: Filter, X: PointsLike, controls: PointsLike, gaps: ArrayLike | None
) -> tuple[list[Seen], Points | None, list[int]]:
    """Return a sequence's observations made ready, its controls and its gaps, all checked."""
    by_name = model.kernel_x_.by_name
    points = as_points(in_order(X, model.names_x_, by_name=by_name), model.kernel_x_)
    if getattr(points, "ndim", 1) == 0:
        raise ValueError("a sequence of observations is needed; for one use step(state, x)")
    length = count(points)
    if length == 0:
        raise ValueError("a sequence must have at least one step")
    U = acting(controls, length, getattr(model, "kernel_u_", None), model.names_u_)
    before = check_gaps(gaps, length)
    seen = observe_all(model, points, before)
    if length > 1:  # whether controls are expected
        model.dynamics_.acting(None if U is None else take(U, [0]))
    return seen, U, before


def observe_all(model: Filter, X: Points, gaps: list[int]) -> list[Seen]:
    """Observations made ready: whole ones with one kernel matrix, others one by one."""
    whole = model.observations_
    if model.encoder_ is not None:
        X = model.encoder_(X, gaps)
    masks = [missing_mask(point_at(X, t)) for t in range(count(X))]
    complete = [t for t, mask in enumerate(masks) if mask is None or mask.all()]
    seen = [Seen()] * len(masks)
    if complete:
        points = whole.exact.points(take(X, complete), "X")
        whole.exact.check_pair(points, whole.X)
        for rows in row_blocks(len(complete), count(whole.X)):
            columns, support = evaluate(whole, take(points, rows))
            for j, t in enumerate(complete[rows]):
                seen[t] = Seen(whole, columns[:, j], float(to_numpy(support)[j]))
    for t in sorted(set(range(len(masks))) - set(complete)):
        found = present(whole, take(X, [t]), masks[t])
        if found is not None:
            part, point = found
            column, support = evaluate(part, part.exact.points(point, "X"))
            seen[t] = Seen(part, column[:, 0], float(to_numpy(support)[0]))
    return seen
