"""Calibration: how often posterior regions hold the truth, over 200 observations.

One model for all observations of a task (amortised). Coverage of central intervals, averaged over
the parameters, and of joint regions of highest density, at 50, 80 and 90 %. Bar: within 5 points.
With 200 observations the standard error of one entry is 3.5, 2.8 and 2.1 points.

    python experiments/sbi_tasks/calibrated.py [--full]   # full: 200 observations, else 40
"""

from __future__ import annotations

import argparse
import csv
import time
from pathlib import Path

import numpy as np
from tasks import TASKS, draw_prior, simulations
from threadpoolctl import threadpool_limits

import kernelbayes as kb

HERE = Path(__file__).parent
NAMES = ("two_moons", "gaussian_linear", "sir")
LEVELS = (0.5, 0.8, 0.9)
BAR = 0.05
SEED = 77  # of the simulations and of the test pairs, which no method was developed on


def one_task(name, n, observations):
    """Rows (task, simulations, kind, level, coverage) and the variant taken."""
    task = TASKS[name]
    theta, x = simulations(task, n, SEED)
    rng = np.random.default_rng([SEED, 1])
    truth = draw_prior(task, observations, rng)
    observed = task.simulator(truth, rng)
    model = kb.LikelihoodFree(prior=task.prior, rng=0).fit(theta, x)
    found = kb.coverage(model, theta=truth, x=observed, levels=LEVELS, n_draws=200, rng=0)
    pooled = np.asarray(found.coverage).reshape(len(LEVELS), -1).mean(axis=1)
    rows = []
    for kind, values in (("intervals", pooled), ("joint", np.asarray(found.joint))):
        rows += [(name, n, kind, level, v) for level, v in zip(LEVELS, values, strict=True)]
    return rows, str(model.variant_)


def main():
    """Run, print, check and write."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--full", action="store_true", help="200 observations")
    parser.add_argument("--simulations", type=int, default=1000)
    given = parser.parse_args()
    observations = 200 if given.full else 40
    every, passed = [], True
    print(f"{observations} observations, {given.simulations} simulations")
    for name in NAMES:
        start = time.process_time()
        with threadpool_limits(1):
            rows, variant = one_task(name, given.simulations, observations)
        every += rows
        seconds = time.process_time() - start
        print(f"\n{name}: {variant} ({seconds:.0f} s CPU)")
        for kind in ("intervals", "joint"):
            values = [row[4] for row in rows if row[2] == kind]
            ok = all(abs(v - level) <= BAR for v, level in zip(values, LEVELS, strict=True))
            passed &= ok
            cells = "  ".join(
                f"{level:.0%}: {v:.3f}" for v, level in zip(values, LEVELS, strict=True)
            )
            print(f"  {kind:10s} {cells}  {'PASS' if ok else 'FAIL'}")
    stem = "calibrated" if given.full else "quick.calibrated"
    with (HERE / f"{stem}.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("task", "simulations", "region", "level", "coverage"))
        writer.writerows((*row[:4], f"{row[4]:.4f}") for row in every)
    return 0 if passed else 1


if __name__ == "__main__":
    raise SystemExit(main())
