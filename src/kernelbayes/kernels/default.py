r"""A kernel for a data set, when the user names none.

**Numbers** get a Gaussian kernel with a bandwidth for each column, so that units do not matter:
:math:`h_j = c \, s_j`, a spread s_j of the column times a factor c common to all, the typical
distance between points in units of the spreads. One column keeps the median heuristic.

**The spread of a column** is made of the deviations a_i from its median, without those that are
zero, and the typical distance of the distances between points, by the same formula,

.. math:: s = \max_q \frac{Q_q(a)}{\tan(\pi q / 2)}, \quad q \in \{0.5, 0.8, 0.98\},

quantiles over those of the Cauchy distribution. So

* for most columns, heavy tails included, it is the median of the a_i;
* where a column **rests** for most of the time, up to small noise, an outer quantile, which sees
  the movement, takes over;
* **counts** and indicators that are mostly zero have the typical size of what is not;
* a **constant** column has its own absolute value (1 if that is zero).

**Frames of mixed columns** get a product over columns: the Gaussian kernel of the numbers, and for
each column of categories, strings or booleans a :class:`~kernelbayes.Delta` kernel under which two
categories differ by as much as two typical values of a column of numbers.
"""

import math
import re
from collections.abc import Mapping
from functools import reduce
from numbers import Number
from operator import add
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.spatial.distance import pdist

from kernelbayes.arrays import as_array, as_doubles, as_vectors, frame_kind, warn
from kernelbayes.kernels import radial
from kernelbayes.kernels.base import Kernel
from kernelbayes.kernels.parts import Parts
from kernelbayes.kernels.radial import Gaussian
from kernelbayes.kernels.structured import Delta
from kernelbayes.objects import refuse_dates, refuse_text_among_numbers
from kernelbayes.points import concatenate
from kernelbayes.types import Floats, PointsLike

Columns = Mapping[Any, npt.NDArray[Any]]
# Median distance of two points of a normal column in units of its spread; of two categories too.
TYPICAL = math.sqrt(2.0)
# Rows from which a column of categories that are all different is taken for names or text: ten
# draws from a hundred categories all differ with probability 0.63, twenty with 0.13.
FEWEST_NAMES = 20
NUMBER = re.compile(r"\s*[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?\s*")  # as files have them


def default_kernel(X: PointsLike, name: str = "X") -> Kernel:
    """Kernel for points of any kind, with a scale for each column; see the module.

    Gaussian for numbers, Delta for one column of categories (and for arrays of anything that is not
    a number), and a product over columns for mixed frames.
    """
    columns = mixed_columns(X, name)
    if columns is not None:
        return _product(columns, name)
    array = as_array(X, name)
    if isinstance(array, np.ndarray) and array.dtype.kind not in "fiuc":
        refuse_dates(array, name)
        _warn_of_numbers(array, name)
        return Delta()
    if str(array.dtype).endswith("bool"):
        return Delta()
    return radial.vector_kernel(as_doubles(as_vectors(X, name)))


def additive_kernel(X: PointsLike, name: str = "X") -> Kernel:
    r"""Kernel for tests on several columns: the joint one, and one for each column alone.

    .. math:: k(x, y) = \sqrt d\, k_{joint}(x, y) + \sum_j k_j(x_j, y_j)

    The joint kernel hardly sees a difference in one of many columns, the sum none in how columns
    depend on each other. Statistics of the sum have sqrt(d) times the noise of one column.
    """
    columns = mixed_columns(X, name)
    if columns is not None:
        joint = _product(columns, name)
        numbers, categories = _sorted_out(columns, name)
        widths = {key: TYPICAL * radial.column_spreads(U) for key, U in numbers.items()}
        alone: list[Kernel] = [Parts({key: Gaussian(tuple(h))}) for key, h in widths.items()]
        alone += [Parts({key: Delta()}) for key in categories]
    else:
        joint = default_kernel(X, name)
        if not isinstance(joint, Gaussian) or isinstance(joint.bandwidth, float):
            return joint
        spreads = radial.column_spreads(as_doubles(as_vectors(X, name)))
        alone = [Parts({j: Gaussian(TYPICAL * h)}) for j, h in enumerate(spreads)]
    return joint if len(alone) < 2 else reduce(add, alone, math.sqrt(len(alone)) * joint)


def pooled(X: PointsLike, Y: PointsLike, name_x: str = "X", name_y: str = "Y") -> PointsLike:
    """Two samples below each other: an array, or a mapping of columns not all of them numbers."""
    columns_x, columns_y = columns_of(X, name_x), columns_of(Y, name_y)
    if columns_x is not None and columns_y is not None:
        mixed = mixed_columns(_below(columns_x, columns_y, name_x, name_y))
        if mixed is not None:
            for columns, name in ((columns_x, name_x), (columns_y, name_y)):
                _sorted_out(columns, name)  # an error names the sample that is wrong
            return mixed
    first, second = as_array(X, name_x), as_array(Y, name_y)
    if not any(not isinstance(a, np.ndarray) or a.dtype.kind in "fiu" for a in (first, second)):
        return concatenate(first, second)
    first, second = as_vectors(first, name_x), as_vectors(second, name_y)
    if first.shape[1] != second.shape[1]:
        raise ValueError(
            f"points of one space are needed: {name_x} has {first.shape[1]} columns, {name_y} "
            f"{second.shape[1]}"
        )
    return concatenate(first, second)


def _below(first: Columns, second: Columns, name_x: str, name_y: str) -> Columns:
    """Columns of two frames below each other."""
    if len(first) == len(second) == 1:  # it may have another name
        second = dict(zip(first, second.values(), strict=True))
    if set(first) != set(second):
        raise ValueError(
            f"{name_x} has columns {tuple(first)}, {name_y} {tuple(second)}: give both the same "
            "columns"
        )
    for key in first:
        if (first[key].dtype.kind in "fiu") != (second[key].dtype.kind in "fiu"):
            names = (name_x, name_y) if first[key].dtype.kind in "fiu" else (name_y, name_x)
            raise two_kinds(key, *names)
    return {key: np.concatenate([first[key], second[key]]) for key in first}


def two_kinds(key: Any, numbers: str, others: str) -> TypeError:
    """Error for a column that holds numbers in one sample and categories in the other."""
    text = f"column {key!r} holds numbers in {numbers} and categories in {others}; give both one "
    text += f"type: {others}[{key!r}].astype(float), or {numbers}[{key!r}].astype('category')"
    return TypeError(text)


def mixed_columns(X: PointsLike, name: str = "X") -> Columns | None:
    """Columns of a frame (or parts of a mapping) not all of which are numbers; None otherwise.

    One column is never mixed. Numbers that a frame marks as categories are text here.
    """
    columns = columns_of(X, name)
    if columns is None or len(columns) < 2 or all(map(_has_numbers, columns.values())):
        return None
    return columns


def columns_of(X: PointsLike, name: str = "X") -> Columns | None:
    """Columns of a frame or parts of a mapping as NumPy arrays; None for anything else."""
    if isinstance(X, Mapping):
        columns = {key: _column(X[key], f"{name}[{key!r}]") for key in X}
    elif frame_kind(X) == "DataFrame":
        columns = {str(key): _column(X[key], f"{name}[{key!r}]") for key in X.columns}
    else:
        return None
    known = all(isinstance(column, np.ndarray) for column in columns.values())
    return columns if known else None


def _has_numbers(column: npt.NDArray[Any]) -> bool:
    return column.dtype.kind in "fiu"


def _column(values: PointsLike, name: str) -> Any:
    """Array of one column: numbers, or categories of any other type."""
    array = as_array(values, name)
    if str(getattr(values, "dtype", "")) == "category" and array.dtype.kind in "fiu":
        return array.astype(str)
    if isinstance(array, np.ndarray):
        refuse_dates(array, name)
        if array.dtype.kind == "O" and all(map(_is_number, array.flat)):
            return array.astype(np.float64)
        if array.dtype.kind == "O":
            refuse_text_among_numbers(array, name)
    return array


def _is_number(value: Any) -> bool:
    return isinstance(value, Number) and not isinstance(value, bool | np.bool_)


def _sorted_out(
    columns: Columns, name: str
) -> tuple[dict[Any, Floats], dict[Any, npt.NDArray[Any]]]:
    """Columns of numbers, (n, d) each, and columns of categories, all of them checked."""
    numbers: dict[Any, Floats] = {}
    categories: dict[Any, npt.NDArray[Any]] = {}
    for key, column in columns.items():
        where = f"{name}[{key!r}]"
        if _has_numbers(column):
            numbers[key] = as_doubles(as_vectors(column, where))
        else:
            categories[key] = Delta().points(column, where)
    return numbers, categories


def _product(columns: Columns, name: str) -> Kernel:
    """Product of a Gaussian kernel over all numbers and a Delta kernel for each category."""
    numbers, categories = _sorted_out(columns, name)
    n = len(next(iter(columns.values())))
    keep = radial.kept(n)
    squares: Any = 0.0
    parts: dict[Any, Kernel] = {}
    if numbers:
        U = np.hstack(list(numbers.values()))
        spreads = radial.column_spreads(U)
        squares = pdist(U[keep] / spreads, "sqeuclidean")
    for key, column in categories.items():
        codes = np.unique(column[keep], return_inverse=True)[1].reshape(len(keep), -1)
        squares = squares + TYPICAL**2 * (pdist(codes, "cityblock") > 0.0)
        if (
            not _warn_of_numbers(column, f"{name}[{key!r}]")
            and codes.max() + 1 == n >= FEWEST_NAMES
        ):
            warn(
                f"{name}[{key!r}] is different in every row: nothing can be learned from it as a "
                "category. Drop it, or give a kernel for text: Parts({..., "
                f"{key!r}: Spectrum(3)}})"
            )
    h = radial.typical(np.sqrt(squares))
    if numbers:
        every = next(iter(numbers)) if len(numbers) == 1 else tuple(numbers)
        parts[every] = Gaussian(tuple(radial.in_range(h * spreads)))
    parts |= {key: Delta(h / TYPICAL) for key in categories}
    return Parts(parts)


def _warn_of_numbers(column: npt.NDArray[Any], name: str) -> bool:
    """Warn, if most of many categories (n,) are numbers as text; whole ones alone may be codes."""
    if column.ndim != 1 or column.dtype.kind not in "OU":
        return False
    found = {str(value) for value in column}
    others = sorted(text for text in found if not NUMBER.fullmatch(text))
    codes = not others and not any("." in text for text in found)
    if len(found) <= FEWEST_NAMES or 2 * len(others) > len(found) or codes:
        return False
    but = f" (but {', '.join(map(repr, others[:3]))})" if others else ""
    warn(
        f"{name} holds numbers as text{but}, which are taken for {len(found)} categories. If they "
        "measure something, make them numbers: pandas.to_numeric(column, errors='coerce')"
    )
    return True
