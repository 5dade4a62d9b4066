"""The door: what a user passes is read here once, and everything behind trusts what it gets.

:mod:`kernelbayes.arrays` turns arrays, frames, masked arrays and objects into numbers, in which NaN
says what is missing. ``names`` puts columns in order by their names, ``numbers`` reads single
numbers and options, ``samples`` says what a sample is and copies the data that a fitted object
keeps.
"""

from kernelbayes.points.names import (
    Names,
    column_names,
    frame_columns,
    in_order,
    named_row,
    order_of,
    points_in_order,
    query,
    row_in_order,
)
from kernelbayes.points.numbers import (
    finite,
    flag,
    function,
    integer,
    number,
    option,
    positive,
    positive_each,
    share,
)
from kernelbayes.points.samples import (
    Points,
    PointsLike,
    as_fine_as,
    concatenate,
    count,
    doubled,
    numeric_values,
    own,
    sum_over_rows,
    take,
    take_columns,
)

__all__ = [
    "Names",
    "Points",
    "PointsLike",
    "as_fine_as",
    "column_names",
    "concatenate",
    "count",
    "doubled",
    "finite",
    "flag",
    "frame_columns",
    "function",
    "in_order",
    "integer",
    "named_row",
    "number",
    "numeric_values",
    "option",
    "order_of",
    "own",
    "points_in_order",
    "positive",
    "positive_each",
    "query",
    "row_in_order",
    "share",
    "sum_over_rows",
    "take",
    "take_columns",
]
