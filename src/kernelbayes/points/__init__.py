"""The door: what a user passes is read here once, and everything behind it trusts the result.

:mod:`kernelbayes.arrays` turns arrays, frames, masked arrays and objects into numbers, in which NaN
says what is missing. ``names`` puts columns in order by their names. ``values`` says what a sample
is, copies the data that a fitted object keeps, and reads single numbers and options.
"""

from kernelbayes.points.names import (
    column_names,
    frame_columns,
    in_order,
    named_row,
    order_of,
    points_in_order,
    query,
    row_in_order,
)
from kernelbayes.points.values import (
    as_fine_as,
    concatenate,
    count,
    doubled,
    finite,
    flag,
    function,
    integer,
    number,
    numeric_values,
    option,
    own,
    positive,
    positive_each,
    refuse_missing,
    same_value,
    share,
    shares,
    sum_over_rows,
    take,
    take_columns,
    vectors,
)

__all__ = ["as_fine_as", "column_names", "concatenate", "count", "doubled", "finite", "flag"]
__all__ += ["frame_columns", "function", "in_order", "integer"]
__all__ += ["named_row", "number", "numeric_values", "option", "order_of", "own", "points_in_order"]
__all__ += ["positive", "positive_each", "query", "row_in_order", "refuse_missing", "same_value"]
__all__ += ["share", "shares", "sum_over_rows", "take", "take_columns", "vectors"]
