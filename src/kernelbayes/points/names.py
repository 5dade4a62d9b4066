"""Names of columns: frames and mappings are read by them, everything else by position.

One rule holds for all data that meet other data (a query and the training sample, a prior and the
parameters, two samples): columns of the same names are put in order, other names are refused. A
series is never refused for its name, which is a label.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from array_api_compat import is_array_api_obj
from scipy.sparse import issparse

from kernelbayes.arrays import as_array, frame_kind
from kernelbayes.points.values import take_columns
from kernelbayes.types import Names, Points, PointsLike

__all__ = ["column_names", "frame_columns", "in_order", "named_row", "order_of", "points_in_order"]
__all__ += ["query", "row_in_order"]


def column_names(X: PointsLike) -> Names:
    """Column names of a frame, the name of a series, the keys of a mapping; None otherwise."""
    if isinstance(X, Mapping) and not issparse(X):  # some of SciPy before 1.14 are both
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
        return {str(X.name): as_array(X)}
    names = column_names(X) or ()
    if len(set(names)) < len(names):
        raise ValueError(f"columns are read by name, but some names occur twice: {list(names)}")
    return {str(name): as_array(X[name], str(name)) for name in X.columns}


def order_of(names: Names, expected: Names, name: str = "X") -> list[int] | None:
    """Positions of the expected names among names; None if they are the same, an error if not."""
    if names is None or expected is None or names == expected:
        return None
    if sorted(names) != sorted(expected):
        raise ValueError(
            f"{name} has the columns {list(names)}, but the columns {list(expected)} are expected "
            "(in any order); rename, drop or add columns"
        )
    if len(set(names)) < len(names):
        raise ValueError(
            f"{name} has columns of the same name, so they cannot be put in order: "
            f"{list(names)}; give them as {list(expected)}"
        )
    return [names.index(wanted) for wanted in expected]


def in_order(
    X: PointsLike, expected: Names, name: str = "X", *, by_name: bool = False
) -> PointsLike:
    """Frame or mapping in the expected order; ``by_name`` a kernel looks for its columns."""
    if not isinstance(X, Mapping) and frame_kind(X) != "DataFrame":
        return X
    names = column_names(X) or ()
    if by_name and sorted(names) != sorted(expected or ()):
        return X
    order = order_of(names, expected, name)
    if order is None:
        return X
    if isinstance(X, Mapping):
        keys = list(X)
        return {keys[j]: X[keys[j]] for j in order}
    return X.iloc[:, order] if hasattr(X, "iloc") else X[:, order]


def points_in_order(points: Points, names: Names, expected: Names, name: str) -> Points:
    """Put the columns of checked points, which have names, in the expected order."""
    order = order_of(names, expected, name)
    if order is None or isinstance(points, Mapping):
        return points
    if len(order) != points.shape[1]:
        raise ValueError(f"{name} has parts of several columns; give them in one order")
    return take_columns(points, order)


def named_row(x: PointsLike, expected: Names) -> dict[str, Any] | None:
    """One point given by name as a mapping from names to single values; None for anything else.

    That is a mapping of single values, a frame of one row, or a pandas series whose labels are the
    expected names: a row of a frame. Other labels of text are refused if they are as many.
    """
    if isinstance(x, Mapping):
        single = all(isinstance(v, str) or np.ndim(v) == 0 for v in x.values())
        return {str(key): value for key, value in x.items()} if single and x else None
    if frame_kind(x) == "DataFrame":
        columns = frame_columns(x) if len(x) == 1 else {}
        return {key: column[0] for key, column in columns.items()} or None
    if expected is None or frame_kind(x) != "Series" or not hasattr(x, "index"):
        return None
    labels = tuple(str(label) for label in x.index)
    same = sorted(labels) == sorted(expected)
    if not same and len(labels) == len(expected) > 1 and isinstance(x.index[0], str):
        order_of(labels, expected, "the observation")
    return dict(zip(labels, x.tolist(), strict=True)) if same else None


def query(
    X: PointsLike, training: Points, names: Names, name: str = "X_new", *, by_name: bool = False
) -> tuple[PointsLike, bool]:
    """Put what is asked about in the order of training, and say whether it is a single point."""
    row = None if frame_kind(X) == "DataFrame" else named_row(X, names)
    if row is not None:
        row = in_order(row, names, name, by_name=by_name)
        return {key: [value] for key, value in row.items()}, True
    if isinstance(X, str):
        return [X], True
    if isinstance(X, Mapping) or frame_kind(X) == "DataFrame" or not is_array_api_obj(training):
        return in_order(X, names, name, by_name=by_name), False
    array, point = as_array(X, name), tuple(training.shape[1:])
    shape = tuple(array.shape)
    single = shape == () or (shape == point and point != (1,) and len(point) > 0)
    return (array[None], True) if single else (X, False)


def row_in_order(x: PointsLike, expected: Names, *, by_name: bool = False) -> PointsLike:
    """One point given by name, as a mapping in the expected order; anything else as it is."""
    row = named_row(x, expected)
    return in_order(x if row is None else row, expected, "the observation", by_name=by_name)
