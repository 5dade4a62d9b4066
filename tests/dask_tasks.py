"""Tasks for Dask workers, in a module that they can import.

Workers have the search path of the tests, but cannot import a test module by the name that pytest
gives it. A worker that cannot read its task dies, Dask hands the task to the next worker, and the
call never returns.
"""

import os
import signal
from pathlib import Path

import numpy as np

ROWS, BLOCKS = 60_000, 72


def dying(block, marker):
    """Return a block; the first process that is asked for one is killed."""
    try:
        Path(marker).touch(exist_ok=False)
    except FileExistsError:
        return block
    return os.kill(os.getpid(), signal.SIGKILL)


def part(number):
    """One block of x (10 columns) and z (2): 5.8 MB, of 415 MB in all."""
    rng = np.random.default_rng(0)
    noise = 0.3 * rng.random(size=(ROWS, 10))
    Z = (1.0 + 0.01 * number) * rng.random(size=(ROWS, 2))
    return Z @ np.ones((2, 10)) + noise, Z


def one_side(block_info, side):
    return part(block_info[None]["chunk-location"][0])[side]
