"""Numbers and options that a user passes: read once, refused in our own words.

Numbers are Python's, NumPy's, Decimal or Fraction, or an array of any library without axes. Text,
truth values and complex numbers are none.
"""

from __future__ import annotations

import math
import reprlib
import sys
from collections.abc import Collection, Sequence
from decimal import Decimal
from numbers import Real
from typing import TypeVar

import numpy as np
from array_api_compat import is_array_api_obj

from kernelbayes.arrays import Array, as_array, to_numpy

Number = float | Array
T = TypeVar("T")
F = TypeVar("F")


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
