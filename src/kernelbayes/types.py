"""Names of types: they say what is meant where the type checker can say little."""

from typing import Any

import numpy as np
import numpy.typing as npt

# An array of any library behind the array-API standard. No static type covers NumPy, torch and the
# others with their operators, so the checker sees Any; the name says what is meant.
Array = Any
# What can be read as an array: also a frame, a series, a mapping of columns, a list of numbers.
ArrayLike = Any
# NumPy arrays by what they hold; their shapes are in the docstrings.
Floats = npt.NDArray[np.floating[Any]]
Ints = npt.NDArray[np.integer[Any]]
Bools = npt.NDArray[np.bool_]
# A single number: also a 0-d array.
Number = float | Array
# What every ``rng`` argument takes: a seed, a generator (which advances), or None.
Generator = np.random.Generator
Rng = int | Generator | None
# Checked points of one space: an array (n, ...), a sequence, or a mapping of aligned points. All
# they share are a length and rows; a protocol of those alone would need a cast wherever a kernel
# computes with them (90 places), so the checker sees Any and the name says what is meant.
Points = Any
# What a user may pass as points: also a frame, a series, a list of numbers.
PointsLike = Any
# Names of columns, or None where the data have none.
Names = tuple[str, ...] | None
# One Axes of matplotlib, which is optional, or an array of them.
Axes = Any
