"""What a sample is: n members of any space, and what a user may pass for them.

Points are an array whose first axis counts them, a sequence (strings), or a mapping from names to
aligned points (a joint variable). Frames of pandas and polars are read without importing either.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
from array_api_compat import device, is_array_api_obj

from kernelbayes.arrays import Array, namespace, row_blocks

T = TypeVar("T")
# Checked points of one space: an array (n, ...), a sequence, or a mapping of aligned points. All
# they share are a length and rows; a protocol of those alone would need a cast wherever a kernel
# computes with them (90 places), so the checker sees Any and the name says what is meant.
Points = Any
# What a user may pass as points: also a frame, a series, a list of numbers.
PointsLike = Any


def _frame_kind(X: PointsLike) -> str | None:
    for base in type(X).__mro__:
        library = base.__module__.split(".")[0]
        if library in ("pandas", "polars") and base.__name__ in ("DataFrame", "Series"):
            return base.__name__
    return None


def is_frame(X: PointsLike) -> bool:
    """Whether X is a pandas or polars data frame or series (neither is imported)."""
    return _frame_kind(X) is not None


def column_names(X: PointsLike) -> tuple[str, ...] | None:
    """Column names of a frame, the name of a series, the keys of a mapping; None otherwise."""
    if isinstance(X, Mapping):
        return tuple(str(name) for name in X)
    match _frame_kind(X):
        case "DataFrame":
            return tuple(str(name) for name in X.columns)
        case "Series" if X.name:
            return (str(X.name),)
    return None


def frame_columns(X: PointsLike) -> dict[str, npt.NDArray[Any]]:
    """Return the columns of a frame as a mapping of NumPy arrays."""
    if _frame_kind(X) == "Series":
        return {str(X.name): X.to_numpy()}
    return {str(name): X[name].to_numpy() for name in X.columns}


def as_array(X: PointsLike, name: str = "X") -> Array:
    """Array of any supported kind from arrays, frames, mappings of columns and sequences."""
    if is_frame(X):
        return X.to_numpy()
    if isinstance(X, Mapping):
        columns = [as_array(value, f"{name}[{key!r}]") for key, value in X.items()]
        sizes = {key: count(column) for key, column in zip(X, columns, strict=True)}
        if len(set(sizes.values())) != 1:
            raise ValueError(f"the parts of {name} must be aligned, got lengths {sizes}")
        xp = namespace(*columns)
        return xp.concat([c[:, None] if c.ndim == 1 else c for c in columns], axis=1)
    if is_array_api_obj(X) and not isinstance(X, np.generic):
        return X
    try:
        return np.asarray(X)
    except ValueError as error:
        raise ValueError(
            f"{name} is ragged; expected n points of one shape (n, d): pad or split it"
        ) from error


def as_floats(X: PointsLike, name: str = "X") -> Array:
    """Real, finite array of floats; integers and booleans become the default float."""
    X = as_array(X, name)
    xp = namespace(X)
    if isinstance(X, np.ndarray) and X.dtype.kind not in "fbiuc":
        try:
            if X.dtype.kind != "O":  # NumPy would turn dates and digits in strings into numbers
                raise TypeError(f"{X.dtype} is not a number")
            X = X.astype(np.float64)
        except (TypeError, ValueError) as error:
            raise TypeError(
                f"{name} must hold numbers, got {X.dtype} values; for categories use the Delta "
                "kernel, for strings Spectrum, for mixed columns Parts"
            ) from error
    if xp.isdtype(X.dtype, "complex floating"):
        raise TypeError(f"{name} must be real, got {X.dtype}")
    if not xp.isdtype(X.dtype, "real floating"):
        X = xp.astype(X, xp.asarray(1.0).dtype)
    if isinstance(X, np.ndarray) and X.dtype not in (np.float32, np.float64):
        X = X.astype(np.float64 if X.dtype.itemsize > 4 else np.float32)
    if not bool(xp.all(xp.isfinite(X))):
        raise ValueError(f"{name} has NaN or infinite entries; drop or impute those rows first")
    return X


def numeric_values(Z: PointsLike) -> Array | None:
    """Values (n, d) of numeric points; None for any other points."""
    if isinstance(Z, dict):
        return None
    array = as_array(Z)
    if isinstance(array, np.ndarray) and array.dtype.kind not in "fiub":
        return None
    values = as_floats(array, "Z")
    return namespace(values).reshape(values, (values.shape[0], -1))


def as_vectors(X: PointsLike, name: str = "X") -> Array:
    """Points of R^d as a finite float array (n, d); a 1-d array is n scalar points."""
    X = as_floats(X, name)
    if X.ndim == 1:
        X = X[:, None]
    if X.ndim != 2:
        raise ValueError(
            f"{name} must have shape (n, d) or (n,), got {tuple(X.shape)}; "
            "flatten each point or use a kernel for matrices or images"
        )
    if X.shape[0] == 0 or X.shape[1] == 0:
        raise ValueError(f"{name} is empty: shape {tuple(X.shape)}; at least one point is needed")
    return X


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
