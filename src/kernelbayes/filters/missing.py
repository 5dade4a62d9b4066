r"""Missing data: steps without an observation, and observations with parts missing.

A missing coordinate is left out of the kernel: the update conditions on what is there, with the
kernel over the coordinates present. For product kernels (Gaussian, Laplace, ``Parts``) that is the
exact marginal: the same numbers as a filter that had never seen the missing coordinates.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from array_api_compat import is_array_api_obj

from kernelbayes.arrays import Bools, like, to_numpy
from kernelbayes.filters.model import Observations, observation_gram
from kernelbayes.filters.sequences import point_at
from kernelbayes.gram import Gram
from kernelbayes.points import Points, PointsLike, take_columns

# Patterns of missing coordinates whose Gram matrices are kept: all of six sensors that fail one by
# one or together.
PATTERNS = 64


def present(
    observations: Observations, point: Points | None, mask: Bools | None = None
) -> tuple[Observations, Points] | None:
    """Observation model and point for what is there of one observation; None if nothing is.

    ``point`` is a sequence of length one, ``mask`` says which of its coordinates are there, if that
    is known already.
    """
    if point is None:
        return None
    mask = missing_mask(point_at(point, 0)) if mask is None else mask
    if mask is None or mask.all():
        return observations, point
    if not mask.any():
        return None
    columns = np.flatnonzero(mask).tolist()
    patterns, key = observations.patterns, mask.tobytes()
    if key not in patterns:
        patterns[key] = _over(observations, columns)
        if len(patterns) > PATTERNS:
            patterns.popitem(last=False)
    patterns.move_to_end(key)
    return patterns[key], take_columns(point, columns)


def _over(observations: Observations, columns: list[int]) -> Observations:
    """Observation model over some of the coordinates."""
    exact = observations.exact.on(columns)
    X = exact.points(take_columns(observations.X, columns))
    factored = observations.kernel.finite and not observations.exact.finite
    gram = observation_gram(exact, X, None, 0) if factored else Gram.of(exact, X)
    known = None if observations.known is None else observations.known[:, columns]
    return replace(observations, gram=gram, exact=exact, known=known)


def split_missing(X: Points) -> tuple[Points, Bools | None]:
    """Training observations with holes filled by column means, and where the holes were not.

    The filled values only keep kernels computable: pairs with a hole among the coordinates in use
    get no weight.
    """
    if isinstance(X, Mapping) or not is_array_api_obj(X):
        return X, None
    values = to_numpy(X)
    if values.dtype.kind != "f":
        return X, None
    known = ~np.isnan(values)
    if known.all():
        return X, None
    if not known.reshape(len(X), -1).any(axis=0).all():
        raise ValueError("a coordinate of X is missing in every training observation; drop it")
    means = np.nanmean(values, axis=0)
    return like(np.where(known, values, means), X), known.reshape(len(values), -1)


def missing_mask(x: PointsLike) -> Bools | None:
    """Which coordinates of one observation are there; None if nothing can be missing.

    ``x`` is one point: a number, a vector, an image, a string, None or a mapping of parts.
    """
    if x is None:
        return np.zeros(1, dtype=bool)
    if isinstance(x, Mapping):
        return np.array([not _blank(part) for part in x.values()])
    if isinstance(x, str) or not (is_array_api_obj(x) or isinstance(x, float)):
        return None
    values = to_numpy(x)
    if values.dtype.kind != "f":
        return None
    return np.asarray(~np.isnan(np.atleast_1d(values)))


def _blank(part: PointsLike) -> bool:
    if part is None:
        return True
    values = np.atleast_1d(to_numpy(part))
    return values.dtype.kind == "f" and bool(np.isnan(values).any())
