r"""Missing data: steps without an observation, and observations with parts missing.

A missing coordinate is left out of the kernel: the update conditions on what is there, with the
kernel over the coordinates present. For product kernels (Gaussian, Laplace, ``Parts``) that is the
exact marginal: the same numbers as a filter that had never seen the missing coordinates.

In training, a pair with a hole among the coordinates asked for gets no weight. Where hardly a pair
is left by that, holes count as the coordinate's regression on the state, which is known. Which
coordinates are missing is never taken as information.
"""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from array_api_compat import is_array_api_obj

from kernelbayes.arrays import like, namespace, to_numpy
from kernelbayes.filters.model import Observations, needs_filling, observation_gram
from kernelbayes.filters.sequences import point_at
from kernelbayes.gram import Dense, Gram, LowRank
from kernelbayes.gram.features import nystrom
from kernelbayes.gram.loo import RidgePath, loo, ridge_grid
from kernelbayes.kernels import Kernel
from kernelbayes.objects import blanks
from kernelbayes.points import count, take_columns
from kernelbayes.types import Array, Bools, Points, PointsLike

# Patterns of missing coordinates whose Gram matrices are kept: all of six sensors that fail one by
# one or together, as long as they have no more entries than this in all (a quarter of a gigabyte).
PATTERNS, PATTERN_ENTRIES = 64, 2**25
# Features of the state on which a coordinate with holes is regressed: a smooth function of it.
FILL_FEATURES = 50


def present(observations: Observations, point: Points | None) -> tuple[Observations, Points] | None:
    """Observation model and point for what is there of one observation; None if nothing is.

    ``point`` is a sequence of length one.
    """
    if point is None:
        return None
    parts = observations.X
    if isinstance(point, Mapping) and isinstance(parts, Mapping) and set(parts) <= set(point):
        point = {key: point[key] for key in parts}  # in the order of the kernel
    mask = missing_mask(point_at(point, 0))
    if mask is None or mask.all():
        return observations, point
    if not mask.any():
        return None
    columns = np.flatnonzero(mask).tolist()
    patterns, key = observations.patterns, mask.tobytes()
    if key not in patterns:
        patterns[key] = _over(observations, columns)
        while len(patterns) > PATTERNS or _entries(patterns) > PATTERN_ENTRIES:
            if len(patterns) == 1:
                break
            patterns.popitem(last=False)
    patterns.move_to_end(key)
    return patterns[key], take_columns(point, columns)


def _entries(patterns: Mapping[bytes, Observations]) -> int:
    """Count the numbers that the Gram matrices of some patterns hold."""
    grams = [o.gram for o in patterns.values()]
    dense = sum(gram.n**2 for gram in grams if isinstance(gram, Dense))
    return dense + sum(int(np.prod(gram.L.shape)) for gram in grams if isinstance(gram, LowRank))


def _over(observations: Observations, columns: list[int]) -> Observations:
    """Observation model over some of the coordinates."""
    exact = observations.exact.on(columns)
    X = exact.points(take_columns(observations.X, columns))
    factored = observations.kernel.finite and not observations.exact.finite
    gram = observation_gram(exact, X, observations.rank, 0) if factored else Gram.of(exact, X)
    known = None if observations.known is None else observations.known[:, columns]
    return replace(observations, gram=gram, exact=exact, known=known, sums=None)


def filled_by_state(X: Points, known: Bools | None, Z: Points, kernel_z: Kernel) -> Points:
    """Training observations (n, d) whose holes hold the regression of the column on the state.

    Only where too few rows are complete to learn from these alone; else as they are.
    """
    if known is None or not needs_filling(known):
        return X
    values = np.asarray(to_numpy(X), dtype=np.float64).reshape(len(known), -1).copy()
    rank = min(FILL_FEATURES, count(Z))
    F = np.asarray(to_numpy(nystrom(kernel_z.exact, Z, rank, rng=0).features(Z)), dtype=float)
    for j in np.flatnonzero(~known.all(axis=0)):
        rows = known[:, j]
        if rows.sum() < 2:
            continue
        mean = values[rows, j].mean()
        H, A = (values[rows, j] - mean)[:, None], F[rows]
        ridge = loo(A, H, ridge_grid(A)).best
        path = RidgePath.of(A, H, np.full(len(A), 1.0 / len(A)))
        values[~rows, j] = mean + path.predict(F[~rows], ridge)[:, 0]
    return like(values.reshape(X.shape), X)


def complete(sequences: list[Points]) -> bool:
    """Whether observations are vectors of numbers without a hole."""
    rows = (isinstance(X, np.ndarray) and X.dtype.kind in "fiu" and X.ndim < 3 for X in sequences)
    return all(rows) and all(bool(np.isfinite(X).all()) for X in sequences)


def has_holes(X: Array) -> bool:
    """Whether numbers are missing; a tensor is asked on its device."""
    if isinstance(X, np.ndarray):
        return X.dtype.kind == "f" and bool(np.isnan(X).any())
    xp = namespace(X)
    return xp.isdtype(X.dtype, "real floating") and bool(xp.any(xp.isnan(X)))


def split_missing(X: Points) -> tuple[Points, Bools | None]:
    """Training observations with holes filled by column means, and where the holes were not.

    The filled values only keep kernels computable: pairs with a hole among the coordinates in use
    get no weight.
    """
    if isinstance(X, Mapping) or not is_array_api_obj(X):
        return X, None
    if not has_holes(X):
        return X, None
    values = to_numpy(X)
    known = ~np.isnan(values)
    if not known.reshape(count(X), -1).any(axis=0).all():
        raise ValueError("a coordinate of X is missing in every training observation; drop it")
    means = np.nanmean(values, axis=0, dtype=np.float64)
    return like(np.where(known, values, means), X), known.reshape(len(values), -1)


def missing_mask(x: PointsLike) -> Bools | None:
    """Which coordinates of one observation are there; None if nothing can be missing.

    ``x`` is one point: a number, a vector, an image, a string, None or a mapping of parts.
    """
    if x is None:
        return np.zeros(1, dtype=bool)
    if isinstance(x, Mapping):
        masks = [missing_mask(part) for part in x.values()]
        return np.array([mask is None or bool(mask.all()) for mask in masks])
    if isinstance(x, str) or not (is_array_api_obj(x) or isinstance(x, float)):
        return None
    host = isinstance(x, np.ndarray | np.generic | float)
    if not host and namespace(x).isdtype(x.dtype, "real floating") and not has_holes(x):
        return np.ones(tuple(x.shape) or 1, dtype=bool)
    values = np.atleast_1d(to_numpy(x))
    return ~blanks(values) if values.dtype.kind in "fO" else None
