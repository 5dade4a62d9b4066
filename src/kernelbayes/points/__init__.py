"""Reading input: what a user passes is checked here once; everything behind trusts the result.

:mod:`kernelbayes.arrays` turns arrays, frames, masked arrays and objects into numbers, in which NaN
says what is missing. ``names`` puts columns in order by their names. ``values`` says what a sample
is, copies the data that a fitted object keeps, and reads single numbers and options.
"""

from kernelbayes.points.names import *  # noqa: F403
from kernelbayes.points.values import *  # noqa: F403
