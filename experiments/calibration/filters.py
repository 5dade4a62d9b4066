"""Coverage of 90 % intervals of filters and smoothers, before and after calibration.

Models are the simulated recordings of experiments/statespace/awkward.py and two linear ones with
Gaussian noise. A filter with no argument learns from 600 steps, ``model.calibrate()`` leaves out
parts of these, and coverage is the share of new states, of all coordinates, inside their intervals.
Quick: four models, two data sets of each. Full: all models, five data sets.

    python experiments/calibration/filters.py [--full] [--seed 0]
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

sys.path.insert(0, str(Path(__file__).parent.parent / "statespace"))

from awkward import MODELS, TRAIN

from kernelbayes import KernelBayesFilter

LEVEL, BAR = 0.9, 4.0  # points
TEST = 1000  # steps: neighbours in time are alike, so that a coverage needs many


def linear(rng, length, noise=0.5):
    """Autoregressive state in noise."""
    z = np.zeros((length, 1))
    for t in range(1, length):
        z[t] = 0.9 * z[t - 1] + noise * rng.normal(size=1)
    return z + 0.5 * rng.normal(size=z.shape), z, None


def noisy(rng, length):
    """Return the same, with a state that moves more than its observation errs."""
    return linear(rng, length, 1.0)


EVERY = {"linear": linear, "noisy": noisy, **MODELS}
QUICK = ("linear", "noisy", "plain", "rest")


def coverage(ends, Z):
    """Share of states (T, d) inside intervals (T, d, 2), in points."""
    return 100.0 * float(np.mean((ends[..., 0] <= Z) & (ends[..., 1] >= Z)))


def one_run(name, seed):
    """Coverage before and after, of filter and smoother."""
    rng = np.random.default_rng(seed)
    X, Z, U = EVERY[name](rng, TRAIN)
    new, truth, acts = EVERY[name](rng, TEST)
    model = KernelBayesFilter(rng=0).fit(X, Z, U)
    found = []
    for smooth in (False, True):
        beliefs = (model.smooth if smooth else model.filter)(new, acts)
        calibration = model.calibrate(smooth=smooth)
        both = beliefs.interval(LEVEL), calibration.interval(beliefs, LEVEL)
        found += [coverage(ends, truth) for ends in both]
    return found


def main():
    """Print a table, and whether all coverages after calibration are within the bar."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--full", action="store_true", help="all models, five data sets")
    parser.add_argument("--seed", type=int, default=0, help="first seed")
    given = parser.parse_args()
    names, runs = (tuple(EVERY), 5) if given.full else (QUICK, 2)
    warnings.simplefilter("ignore")
    worst, start = 0.0, time.perf_counter()
    print(f"{'':10s}{'filter':>8s}{'after':>8s}{'smoother':>10s}{'after':>8s}")
    for name in names:
        with threadpool_limits(1):
            cells = np.mean([one_run(name, given.seed + i) for i in range(runs)], axis=0)
        print(
            f"{name:10s}{cells[0]:8.1f}{cells[1]:8.1f}{cells[2]:10.1f}{cells[3]:8.1f}", flush=True
        )
        worst = max(worst, *abs(cells[[1, 3]] - 100.0 * LEVEL))
    print(f"{'PASS' if worst <= BAR else 'FAIL'}  largest error {worst:.1f} points, bar {BAR:.0f}")
    print(f"{time.perf_counter() - start:.0f} s")
    return 0 if worst <= BAR else 1


if __name__ == "__main__":
    raise SystemExit(main())
