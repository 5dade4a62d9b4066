"""Coverage of 90 % intervals of filters and smoothers with no argument, before and after.

``KernelBayesFilter().fit`` corrects its intervals by the blocks of time that it leaves out to make
its choices. Models: the two dynamics of IW22 and the awkward recordings of
``experiments/statespace``. Each run learns from 600 steps and covers the states of 300 new ones.
Bar: the mean over runs within 4 points of 90 %, for filter and smoother, on every model.

    python experiments/calibration/filters.py [--runs 3] [--first 0] [--only rest track]
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

sys.path.insert(0, str(Path(__file__).parents[1] / "statespace"))

import awkward
from models import oscillatory, rotation

from kernelbayes import KernelBayesFilter

LEVEL, BAR = 0.9, 4.0  # points


def simulated(model):
    """Return a function (rng, length) -> observations, states and controls."""
    return lambda rng, length: tuple(model.simulate(length, rng))


MODELS = {
    "rotation": simulated(rotation()),
    "oscillatory": simulated(oscillatory()),
    **awkward.MODELS,
}


def covered(ends, Z):
    """Share of coordinates of states inside their intervals, in points."""
    return 100.0 * float(np.mean((ends[..., 0] <= Z) & (ends[..., 1] >= Z)))


def one_run(name, seed):
    """Coverage of filter and smoother, before and after the correction, and seconds of fitting."""
    rng = np.random.default_rng([7, seed])
    (X, Z, U), (new, truth, acts) = (MODELS[name](rng, n) for n in (awkward.TRAIN, awkward.TEST))
    start = time.perf_counter()
    model = KernelBayesFilter(rng=0).fit(X, Z, U)
    seconds = time.perf_counter() - start
    found = []
    for beliefs in (model.filter(new, acts), model.smooth(new, acts)):
        for valid in ("rearranged", True):
            found.append(covered(beliefs.interval(LEVEL, valid=valid), truth))
    return [*found, seconds]


def main():
    """Print a table, check the bar."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--first", type=int, default=0, help="first seed")
    parser.add_argument("--only", nargs="+", choices=MODELS, default=list(MODELS))
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    print(f"{'coverage, %':14s}{'filter':>8s}{'corrected':>11s}{'smoother':>10s}{'corrected':>11s}")
    passed = []
    for name in given.only:
        with threadpool_limits(1):
            runs = np.array([one_run(name, given.first + i) for i in range(given.runs)])
        a, b, c, d, seconds = runs.mean(axis=0)
        error = runs[:, [1, 3]].std(axis=0).max() / np.sqrt(max(1, given.runs - 1))
        passed.append(max(abs(b - 100 * LEVEL), abs(d - 100 * LEVEL)) <= BAR)
        print(
            f"{name:14s}{a:8.1f}{b:11.1f}{c:10.1f}{d:11.1f}   s.e. {error:.1f}, "
            f"{seconds:.0f} s  {'PASS' if passed[-1] else 'FAIL'}",
            flush=True,
        )
    return 0 if all(passed) else 1


if __name__ == "__main__":
    raise SystemExit(main())
