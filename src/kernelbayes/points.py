"""What a sample is: n members of any space, and what a user may pass for them.

Points are an array whose first axis counts them, a sequence (strings), or a mapping from names to
aligned points (a joint variable). :mod:`kernelbayes.arrays` reads arrays of numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
from array_api_compat import device, is_array_api_obj

from kernelbayes.arrays import Array, as_array, as_floats, frame_kind, namespace, row_blocks

T = TypeVar("T")
# Checked points of one space: an array (n, ...), a sequence, or a mapping of aligned points. All
# they share are a length and rows; a protocol of those alone would need a cast wherever a kernel
# computes with them (90 places), so the checker sees Any and the name says what is meant.
Points = Any
# What a user may pass as points: also a frame, a series, a list of numbers.
PointsLike = Any


def column_names(X: PointsLike) -> tuple[str, ...] | None:
    """Column names of a frame, the name of a series, the keys of a mapping; None otherwise."""
    if isinstance(X, Mapping):
        return tuple(str(name) for name in X)
    match frame_kind(X):
        case "DataFrame":
            return tuple(str(name) for name in X.columns)
        case "Series" if X.name:
            return (str(X.name),)
    return None


def frame_columns(X: PointsLike) -> dict[str, npt.NDArray[Any]]:
    """Return the columns of a frame as a mapping of NumPy arrays."""
    if frame_kind(X) == "Series":
        return {str(X.name): X.to_numpy()}
    return {str(name): X[name].to_numpy() for name in X.columns}


def numeric_values(Z: PointsLike) -> Array | None:
    """Values (n, d) of numeric points; None for any other points."""
    if isinstance(Z, dict):
        return None
    array = as_array(Z)
    if isinstance(array, np.ndarray) and array.dtype.kind not in "fiub":
        return None
    values = as_floats(array, "Z")
    return namespace(values).reshape(values, (values.shape[0], -1))


def count(points: Points) -> int:
    """Return how many points there are."""
    if isinstance(points, Mapping):
        return count(next(iter(points.values())))
    return int(points.shape[0]) if is_array_api_obj(points) else len(points)


def take(points: Points, index: slice | Sequence[int] | npt.NDArray[Any]) -> Points:
    """Return the points at a slice or an integer index array."""
    if isinstance(points, Mapping):
        return {name: take(part, index) for name, part in points.items()}
    if isinstance(index, slice):
        return points[index, ...] if is_array_api_obj(points) else points[index]
    if is_array_api_obj(points):
        xp = namespace(points)
        # torch takes no reversed view
        rows = xp.asarray(np.ascontiguousarray(index), device=device(points))
        return xp.take(points, rows, axis=0)
    return [points[i] for i in index]


def take_columns(points: Points, columns: Sequence[int]) -> Points:
    """Return some columns of an array (n, d), or some parts of a mapping by their number."""
    if isinstance(points, Mapping):
        names = list(points)
        return {names[j]: points[names[j]] for j in columns}
    xp = namespace(points)
    return xp.take(points, xp.asarray(np.asarray(columns), device=device(points)), axis=1)


def concatenate(first: Points, second: Points) -> Points:
    """Join two sets of points of one space."""
    if isinstance(first, Mapping):
        return {name: concatenate(part, second[name]) for name, part in first.items()}
    if is_array_api_obj(first):
        return namespace(first, second).concat([first, second], axis=0)
    return [*first, *second]


def sum_over_rows(
    partial: Callable[[Points, slice], T],
    points: Points,
    width: int,
    merge: Callable[[T, T], T] | None = None,
) -> T:
    """Merge ``partial(chunk, rows)`` over row blocks: the same pair serves threads or a cluster.

    ``partial`` is a pure function of a chunk of points (and the rows it came from); ``merge`` is
    associative, addition unless given. Memory is bounded by a block of rows x ``width`` entries.
    """
    parts = (partial(take(points, rows), rows) for rows in row_blocks(count(points), width))
    return reduce(merge or (lambda a, b: a + b), parts)  # type: ignore[operator]
