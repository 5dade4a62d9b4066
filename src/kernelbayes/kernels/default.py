"""A kernel for a data set, when the user names none."""

from __future__ import annotations

import numpy as np

from kernelbayes.arrays import as_array, as_vectors, is_frame, refuse_dates
from kernelbayes.kernels.base import Kernel
from kernelbayes.kernels.radial import Gaussian
from kernelbayes.kernels.structured import Delta
from kernelbayes.points import PointsLike


def default_kernel(X: PointsLike, name: str = "X") -> Kernel:
    """Gaussian kernel with the median heuristic for numbers, Delta for anything else."""
    array = as_array(X, name)
    refuse_dates(array, name)
    numeric = not isinstance(array, np.ndarray) or array.dtype.kind in "fiu"
    mixed = isinstance(array, np.ndarray) and array.dtype.kind == "O" and is_frame(X)
    if mixed and array.ndim == 2 and array.shape[1] > 1:
        raise TypeError("columns of mixed types have no default kernel; use Parts({...})")
    return Gaussian.median(as_vectors(X, name)) if numeric else Delta()
