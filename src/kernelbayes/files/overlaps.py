"""Windows over a sequence, without the entries that a row repeats from the row before."""

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import sliding_window_view

Any2d = npt.NDArray[np.generic]
# Steps of a window, twice what the experiments use: no file asks for more than so many times its
# size. And the rows that say whether an array has windows at all: enough that a third is no chance.
LONGEST_WINDOW, TRIED = 32, 64


def without_overlaps(A: Any2d) -> tuple[Any2d, Any2d, Any2d] | None:
    """First columns (n, d) of windows A (n, k d), the rows that repeat nothing, and their places.

    Every other row is its first d entries and then the row before, without its end. None if that
    does not save a third, so for all arrays but windows.
    """
    if A.ndim != 2 or min(A.shape) < 2 or A.dtype.kind not in "biuf" or not A.flags.c_contiguous:
        return None
    n, width = A.shape
    bits = A.view(np.uint8).reshape(n, width, -1)  # of NaN and -0.0 too
    middle = bits[: 2 * TRIED][-TRIED:]
    for d in range(-(-width // LONGEST_WINDOW), width // 2 + 1):
        if width % d or 3 * np.sum(_repeated(middle, d)) < len(middle) - 1:
            continue
        at = np.flatnonzero(~np.insert(_repeated(bits, d), 0, False))
        if 3 * (n * d + len(at) * width) < 2 * A.size:
            return A[:, :d].copy(), A[at], at
    return None


def _repeated(bits: npt.NDArray[np.uint8], d: int) -> npt.NDArray[np.bool_]:
    return np.asarray((bits[1:, d:] == bits[:-1, :-d]).all(axis=(1, 2)))


def with_overlaps(first: Any2d, rows: Any2d, at: Any2d) -> Any2d:
    """Windows of :func:`without_overlaps`; a ValueError where its parts do not fit together."""
    (n, d), (m, width) = first.shape, rows.shape
    starts = [int(start) for start in at]
    fits = starts == sorted(set(starts)) and starts[:1] == [0] and starts[-1] < n
    if not (fits and m == len(starts) and d < width <= LONGEST_WINDOW * d):
        raise ValueError("windows do not fit together")
    found = np.empty((n, width), first.dtype)
    for row, start, stop in zip(rows, starts, [*starts[1:], n], strict=True):
        past = np.concatenate([first[start:stop][::-1].ravel(), row[d:]])
        found[start:stop] = sliding_window_view(past, width)[::d][::-1]
    return found
