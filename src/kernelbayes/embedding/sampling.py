"""Draws from an embedding: deterministic ones by herding, independent ones by smoothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import numpy as np
from array_api_compat import is_array_api_obj

from kernelbayes.arrays import (
    Array,
    Floats,
    Ints,
    Rng,
    as_generator,
    as_vectors,
    like,
    namespace,
    to_numpy,
)
from kernelbayes.embedding.mean import Weighted
from kernelbayes.embedding.smooth import keep_covariance
from kernelbayes.gram import Gram
from kernelbayes.herding import greedy
from kernelbayes.points import Points, take


def sample(
    mu: Weighted,
    m: int,
    rng: Rng = None,
    method: Literal["herding", "iid"] = "herding",
    bandwidth: float | Array | None = None,
) -> Points:
    """Herd m of the embedding's points, or draw m points independently and smooth them."""
    if not isinstance(m, int | np.integer) or m < 1:
        raise ValueError(f"the number of draws must be at least 1, got {m}")
    if method not in ("herding", "iid"):
        raise ValueError(f"method must be 'herding' or 'iid', got {method!r}")
    if method == "iid":
        return _independent(mu, m, as_generator(rng), bandwidth)
    if bandwidth is not None:
        raise ValueError("herding does not smooth; bandwidth goes with method='iid'")
    values = np.atleast_2d(to_numpy(mu.normalized()(mu.points)))
    rows = Gram.by_rows(mu.kernel, mu.points, products=False)
    return _picked(mu, np.stack([greedy(rows, row, m)[0] for row in values]))


def _independent(
    mu: Weighted, m: int, rng: np.random.Generator, bandwidth: float | Array | None
) -> Points:
    W = mu.valid_weights()
    drawn = _picked(mu, np.stack([rng.choice(len(w), size=m, p=w / w.sum()) for w in W]))
    X = _smoothable(mu.points)
    if X is None or (bandwidth is not None and not np.any(bandwidth)):
        return drawn
    members = to_numpy(drawn).astype(float).reshape(len(W), m, -1)
    moved = [keep_covariance(y, (X, w), bandwidth, rng) for y, w in zip(members, W, strict=True)]
    return like(moved[0] if mu._single else np.stack(moved), mu.points)


def _smoothable(points: Points) -> Floats | None:
    """Vectors, if the points are vectors of numbers and not, say, matrices or categories."""
    if not is_array_api_obj(points) or points.ndim != 2:
        return None
    if not namespace(points).isdtype(points.dtype, "real floating"):
        return None
    return np.asarray(to_numpy(as_vectors(points, "points")), dtype=float)


def _picked(mu: Weighted, picks: Ints) -> Points:
    """Points at indices (batch, m): (m, ...), or (batch, m, ...) for a batch."""
    return take(mu.points, picks[0]) if mu._single else _take_rows(mu.points, picks)


def _take_rows(points: Points, picks: Ints) -> Points:
    if isinstance(points, Mapping):
        return {name: _take_rows(part, picks) for name, part in points.items()}
    if not is_array_api_obj(points):
        return [take(points, row) for row in picks]
    flat = take(points, picks.ravel())
    return namespace(flat).reshape(flat, (*picks.shape, *points.shape[1:]))
