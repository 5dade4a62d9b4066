"""Array entries that are not numbers yet: objects, masked entries, dates."""

from datetime import date, time, timedelta
from decimal import Decimal
from numbers import Number
from typing import Any

import numpy as np
import numpy.typing as npt


def numbers_of(X: npt.NDArray[np.object_], name: str) -> npt.NDArray[Any]:
    """Objects as numbers, NaN (None of truth values) where missing; other objects as they are."""
    values = X.ravel().tolist()
    kinds = set(map(type, values))
    blank = {kind for kind in kinds if kind.__name__ in ("NoneType", "NAType")}
    if not kinds or not all(issubclass(kind, Number | Decimal) for kind in kinds - blank):
        return X
    if {bool, np.bool_} & kinds and kinds - {bool, np.bool_}:
        holes = blanks(X)
        if all(isinstance(value, bool | np.bool_) for value in X[~holes]):
            X = X.copy()
            X[holes] = None
            return X
    if blank:
        values = [np.nan if type(value) in blank else value for value in values]
    try:
        found = np.array(values)  # whole numbers stay whole, truth values too
        if found.dtype.kind == "O":
            found = found.astype(complex if any(issubclass(k, complex) for k in kinds) else float)
    except OverflowError as error:
        raise ValueError(f"{name} has numbers beyond the range of floating point") from error
    return found.reshape(X.shape)


def blanks(array: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Which entries of an array are missing: None, NaN, the NA of pandas, which equals nothing."""
    if array.dtype.kind != "O":
        return np.isnan(array) if array.dtype.kind in "fc" else np.zeros(array.shape, bool)
    same = (value is not None and value == value for value in array.flat)
    found = [not (isinstance(one, bool | np.bool_) and one) for one in same]
    return np.array(found, bool).reshape(array.shape)


def refused(bad: Any, problem: str, do: str = "drop or impute those rows first") -> ValueError:
    """Error that says what is wrong with a sample, in which of its rows (n, ...), what to do."""
    flags = np.atleast_1d(bad)
    rows = np.flatnonzero(flags.reshape(len(flags), -1).any(axis=1))
    more = f" and {len(rows) - 1} more" if len(rows) > 1 else ""
    return ValueError(f"{problem} in row {rows[0]}{more} (of {len(flags)}); {do}")


def refuse_text_among_numbers(column: npt.NDArray[Any], name: str) -> None:
    """Raise a TypeError if a column mixes numbers with text; NaN among text is missing text."""
    values = column.ravel().tolist()
    mixed = any(isinstance(v, Number | Decimal) and v == v for v in values)
    if mixed and any(isinstance(v, str) for v in values):
        row = next(i for i, v in enumerate(values) if isinstance(v, str))
        raise TypeError(
            f"{name} must hold numbers or text, not both: entry {row} is {values[row]!r}. Make "
            "what is missing NaN; of categories make text, e.g. astype(str)"
        )


def unmasked(X: np.ma.MaskedArray[Any, Any], name: str) -> npt.NDArray[Any]:
    """Values of a masked array, with NaN (None for text) where they are masked."""
    values, hidden = np.array(X.data), np.ma.getmaskarray(X)
    if hidden.any():
        values = values.astype(np.float64 if values.dtype.kind in "iu" else values.dtype)
        values = values if values.dtype.kind in "fc" else values.astype(object)
        values[hidden] = np.nan if values.dtype.kind in "fc" else None
    return numbers_of(values, name) if values.dtype.kind == "O" else values


def refuse_dates(X: object, name: str) -> None:
    """Raise a TypeError that says how dates become numbers, if X has any."""
    if not isinstance(X, np.ndarray) or X.dtype.kind not in "mMO":
        return
    kinds = set(map(type, X.ravel().tolist())) if X.dtype.kind == "O" else {date}
    times = date | timedelta | time
    if any(issubclass(kind, times) or kind.__name__ == "Period" for kind in kinds):  # of pandas
        raise TypeError(
            f"{name} holds dates or times; turn them into numbers first: for a trend, for instance "
            "seconds since a reference, (X - X.min()) / np.timedelta64(1, 's'); for a rhythm the "
            "hour, the weekday or the day of the year, with Periodic(bandwidth, period)"
        )
