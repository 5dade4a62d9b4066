"""Whether a Gram matrix fits in memory: asked before it is made."""

from __future__ import annotations

import contextlib
import os
from functools import cache
from pathlib import Path

import numpy as np

from kernelbayes.kernels import Kernel
from kernelbayes.points import Points, count, take

# Where Linux says how much memory a container may use, beside what the machine has.
CONTAINER = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))


@cache
def available() -> float:
    """Bytes of memory of this machine or container; infinite where that cannot be known."""
    found = [float("inf")]
    with contextlib.suppress(AttributeError, ValueError, OSError):  # not on every system
        found.append(float(os.sysconf("SC_PAGE_SIZE")) * os.sysconf("SC_PHYS_PAGES"))
    for path in CONTAINER:
        with contextlib.suppress(ValueError, OSError):  # "max" is no number
            found.append(float(path.read_text()))
    return min(found)


def check_memory(kernel: Kernel, points: Points, double: bool) -> None:
    """Raise a MemoryError unless the Gram matrix and its factor fit, before they are made."""
    one, n = kernel.diag(take(points, slice(0, 1))), count(points)
    if not isinstance(one, np.ndarray):  # perhaps on another device
        return
    needed = 2.0 * float(n) ** 2 * (8 if double else one.itemsize)
    if needed > available():
        raise MemoryError(
            f"the Gram matrix of {n} points and its factor take {needed / 1e9:.0f} GB, more than "
            f"the {available() / 1e9:.0f} GB there are; give rank= (rank=300, say), or a kernel "
            "with finite features such as nystrom(kernel, X, 300)"
        )
