"""What a sample is, and what every space can do with it; then single numbers and options.

Points are n members of any space: an array whose first axis counts them, a sequence (strings), or a
mapping from names to aligned points (a joint variable). Numbers and options are
checked once, with error messages of our own.
"""

import math
import reprlib
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from decimal import Decimal
from functools import reduce
from numbers import Real
from operator import add
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import scipy.sparse
from array_api_compat import device, is_array_api_obj, is_torch_array

from kernelbayes.arrays import (
    as_array,
    as_floats,
    as_vectors,
    namespace,
    row_blocks,
    to_numpy,
    widened,
)
from kernelbayes.objects import refuse_dates, refused
from kernelbayes.types import Array, Number, Points, PointsLike

__all__ = ["as_fine_as", "concatenate", "count", "doubled", "finite", "flag", "function"]
__all__ += ["integer", "number", "numeric_values", "option", "own", "positive", "positive_each"]
__all__ += ["refuse_missing", "same_value", "share", "shares", "sum_over_rows", "take"]
__all__ += ["take_columns", "vectors"]

T = TypeVar("T")
F = TypeVar("F")


def numeric_values(Z: PointsLike) -> Array | None:
    """Values (n, d) of numeric points; None for any other points: truth values are two classes."""
    if isinstance(Z, dict):
        return None
    array = as_array(Z)
    if isinstance(array, np.ndarray) and array.dtype.kind not in "fiu":
        return None
    if str(array.dtype).endswith("bool"):
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


def vectors(points: Points) -> Array:
    """Points (n, d); a TypeError for points of another space."""
    try:
        return as_vectors(points, "points")
    except (TypeError, ValueError) as error:
        text = "this question needs points in R^d; use expect(f) or prob(predicate)"
        raise TypeError(text) from error


def refuse_missing(X: PointsLike, name: str) -> None:
    """Refuse what is no table of finite numbers, in words that scikit-learn's checks know."""
    array = None if scipy.sparse.issparse(X) else as_array(X, name)
    if not isinstance(array, np.ndarray):
        return
    if array.dtype.kind in "mMO":
        refuse_dates(array, name)
    if array.dtype.kind == "c":
        raise ValueError(f"Complex data not supported: {name} must be real, got {array.dtype}")
    for axis, what in zip(array.shape, ("sample(s)", "feature(s)"), strict=False):
        if axis == 0:
            size = f"0 {what} (shape={array.shape}) while a minimum of 1 is required."
            raise ValueError(f"{name} is empty: {size}")
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise refused(~np.isfinite(array), f"Input {name} contains NaN or infinity")


def doubled(points: Points) -> Points:
    """Return the same points, numbers of single precision as doubles."""
    if type(points) is np.ndarray and points.dtype == np.float64:  # as at every step of a filter
        return points
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
    if type(points) is np.ndarray and type(index) is np.ndarray:
        return points.take(index, axis=0)
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


def concatenate(first: Points, *others: Points) -> Points:
    """Join sets of points of one space; a single one as it is, not a copy."""
    if not others:
        return first
    if isinstance(first, Mapping):
        return {name: concatenate(part, *(o[name] for o in others)) for name, part in first.items()}
    if is_array_api_obj(first):
        return namespace(first, *others).concat([first, *others], axis=0)
    return [point for points in (first, *others) for point in points]


def same_value(a: Any, b: Any) -> bool:
    """Equality that also understands arrays, and mappings and sequences of them."""
    if a is b:
        return True
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        return a.keys() == b.keys() and all(same_value(a[key], b[key]) for key in a)
    if isinstance(a, tuple | list) and isinstance(b, tuple | list):
        return len(a) == len(b) and all(map(same_value, a, b))
    if hasattr(a, "shape") and hasattr(b, "shape"):
        return type(a) is type(b) and np.array_equal(to_numpy(a), to_numpy(b))
    return bool(a == b)


def own(points: Points, source: PointsLike = None) -> Points:
    """Copy of points that nobody who holds the ``source`` they were read from can change."""
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
    merge: Callable[[T, T], T] = add,
) -> T:
    """Merge ``partial(chunk, rows)`` over row blocks: the same pair serves threads or a cluster.

    ``partial`` is a pure function of a chunk of points (and the rows it came from); ``merge`` is
    associative, addition unless given. Memory is bounded by a block of rows x ``width`` entries.
    """
    parts = (partial(take(points, rows), rows) for rows in row_blocks(count(points), width))
    return reduce(merge, parts)


# --- numbers and options --------------------------------------------------------------------------

# A number is one of Python or NumPy, a Decimal or Fraction, or a 0-d array of any library. Text,
# truth values and complex numbers are refused.


def number(value: Number, name: str, expected: str = "a number") -> float:
    """Real number as a float; it may be infinite or NaN."""
    plain = isinstance(value, Real | Decimal) and not isinstance(value, bool)
    found = to_numpy(as_array(value, name)) if plain or is_array_api_obj(value) else None
    if found is None or found.ndim != 0 or found.dtype.kind not in "fiu":
        raise TypeError(f"{name} must be {expected}, got {reprlib.repr(value)}")
    return float(found)


def finite(value: Number, name: str) -> float:
    """Finite number."""
    found = number(value, name)
    if not math.isfinite(found):
        raise ValueError(f"{name} must be finite, got {value!r}")
    return found


def positive(value: Number, name: str) -> float:
    """Positive finite number."""
    found = number(value, name, "a positive number")
    if not (math.isfinite(found) and found > 0.0):
        raise ValueError(f"{name} must be positive and finite, got {value!r}")
    return found


def positive_each(value: Number, name: str) -> float | tuple[float, ...]:
    """Positive finite number, or a tuple of one per dimension."""
    if not isinstance(value, list | tuple) and not getattr(value, "ndim", 0):
        return positive(value, name)
    found = to_numpy(as_array(value, name))
    if found.ndim > 1 or found.size == 0:
        raise ValueError(f"{name} must be a number or one per dimension, got {value!r}")
    return tuple(positive(one, f"each {name}") for one in found)


def share(value: Number, name: str, *, low: bool = False, high: bool = False) -> float:
    """Return a number between 0 and 1; ``low`` and ``high`` say whether 0 and 1 are allowed."""
    left, right = "[" if low else "(", "]" if high else ")"
    found = number(value, name)
    inside = (found > 0.0 or (low and found == 0.0)) and (found < 1.0 or (high and found == 1.0))
    if not inside:
        raise ValueError(f"{name} must lie in {left}0, 1{right}, got {value!r}")
    return found


def shares(values: Number | Sequence[float], name: str) -> np.ndarray:
    """Numbers in [0, 1], as an array (k,); also of a single one."""
    found = np.atleast_1d(to_numpy(as_array(values, name)))
    if found.ndim != 1 or found.dtype.kind not in "fiu":
        raise TypeError(f"{name} must be a number or a list of numbers, got {reprlib.repr(values)}")
    if not np.all((found >= 0) & (found <= 1)):
        raise ValueError(f"{name} must lie in [0, 1], got {reprlib.repr(values)}")
    return found.astype(np.float64)


def integer(value: Number, name: str, least: int = 1) -> int:
    """Whole number of at least ``least``; also one written as 1e4."""
    expected = f"an integer of at least {least}"
    if isinstance(value, int) and not isinstance(value, bool):
        found: float = value
    else:
        found = number(value, name, expected)
        if found != np.floor(found):  # NaN too
            raise ValueError(f"{name} must be {expected}, got {value!r}")
    if found < least:
        raise ValueError(f"{name} must be {expected}, got {value!r}")
    if found > sys.maxsize:
        raise ValueError(f"{name} must be {expected} and at most {sys.maxsize}, got more")
    return int(found)


def flag(value: bool, name: str) -> bool:
    """Return True or False."""
    if not isinstance(value, bool | np.bool_):
        raise TypeError(f"{name} must be True or False, got {reprlib.repr(value)}")
    return bool(value)


def function(value: F, name: str) -> F:
    """Something that can be called."""
    if not callable(value):
        raise TypeError(f"{name} must be a function, got {reprlib.repr(value)}")
    return value


def option(value: T, name: str, allowed: Collection[T]) -> T:
    """One of a few values."""
    for known in allowed:
        if value is known or (isinstance(value, type(known)) and value == known):
            return known
    listed = ", ".join(map(repr, allowed))
    raise ValueError(f"{name} must be one of {listed}, got {value!r}")
