"""What a sample is: n members of any space, and what every space can do with them.

Points are an array whose first axis counts them, a sequence (strings), or a mapping from names to
aligned points (a joint variable).
"""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import scipy.sparse
from array_api_compat import device, is_array_api_obj, is_torch_array

from kernelbayes.arrays import Array, as_array, as_floats, namespace, refuse_dates, row_blocks
from kernelbayes.sums import widened

T = TypeVar("T")
# Checked points of one space: an array (n, ...), a sequence, or a mapping of aligned points. All
# they share are a length and rows; a protocol of those alone would need a cast wherever a kernel
# computes with them (90 places), so the checker sees Any and the name says what is meant.
Points = Any
# What a user may pass as points: also a frame, a series, a list of numbers.
PointsLike = Any


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
        sizes = {name: count(part) for name, part in points.items()}
        if len(set(sizes.values())) != 1:
            raise ValueError(f"the parts of a sample must be aligned, got lengths {sizes}")
        return next(iter(sizes.values()))
    array = is_array_api_obj(points) and not isinstance(points, type)
    if array and points.ndim > 0:
        return int(points.shape[0])
    if array or isinstance(points, type) or not hasattr(points, "__len__"):
        raise TypeError(f"a sample of points is needed, got {reprlib.repr(points)}")
    return len(points)


def refuse_missing(X: PointsLike, name: str) -> None:
    """Refuse what is no table of finite numbers, in words by which scikit-learn's checks know it.

    Those are dates, complex numbers, missing and infinite entries, and no rows or columns at all.
    """
    array = None if scipy.sparse.issparse(X) else as_array(X, name)
    refuse_dates(array, name)
    if not isinstance(array, np.ndarray):
        return
    if array.dtype.kind == "c":
        raise ValueError(f"Complex data not supported: {name} must be real, got {array.dtype}")
    for axis, what in zip(array.shape, ("sample(s)", "feature(s)"), strict=False):
        if axis == 0:
            size = f"0 {what} (shape={array.shape}) while a minimum of 1 is required."
            raise ValueError(f"{name} is empty: {size}")
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise ValueError(f"Input {name} contains NaN or infinity; drop or impute those rows first")


def doubled(points: Points) -> Points:
    """Return the same points, numbers of single precision as doubles."""
    if isinstance(points, Mapping):
        return {name: doubled(part) for name, part in points.items()}
    single = is_array_api_obj(points) and points.dtype == namespace(points).float32
    return widened(points) if single else points


def as_fine_as(other: Points, points: Points) -> Points:
    """Return the points as doubles if the other points are doubles, so that no digit is lost."""
    parts = other.values() if isinstance(other, Mapping) else [other]
    arrays = [part for part in parts if is_array_api_obj(part)]
    fine = any(array.dtype == namespace(array).float64 for array in arrays)
    return doubled(points) if fine else points


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


def own(points: Points, source: PointsLike = None) -> Points:
    """Copy of points, so that nobody who holds the ``source`` they were read from can change them.

    An array that was made while it was read is not copied again. A torch copy keeps its graph.
    """
    if isinstance(points, Mapping):
        parts = source if isinstance(source, Mapping) else {}
        return {name: own(part, parts.get(name)) for name, part in points.items()}
    if isinstance(points, np.ndarray):
        fresh = isinstance(source, list | tuple) or (
            isinstance(source, np.ndarray) and not np.may_share_memory(points, source)
        )
        return points if fresh else points.copy()
    if is_torch_array(points):
        return points.clone()
    if is_array_api_obj(points):
        return namespace(points).asarray(points, copy=True)
    return list(points)


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
