"""Calibration: how often posterior regions hold the truth, over 200 observations.

One model for all observations of a task (amortised). Coverage of central intervals, averaged over
the parameters, and of joint regions of highest density, at 50, 80 and 90 %. Bar: within 5 points.
With 200 observations the standard error of one entry is 3.5, 2.8 and 2.1 points.

    python experiments/sbi_tasks/calibrated.py            # three tasks, 40 observations
    python experiments/sbi_tasks/calibrated.py --full     # all tasks, 200 observations
    python experiments/sbi_tasks/calibrated.py --full --simulations 100 --tasks sir slcp

A full run writes ``calibrated.csv``, where rows of other tasks and budgets stay.
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
QUICK = ("two_moons", "gaussian_linear", "sir")
LEVELS = (0.5, 0.8, 0.9)
BAR = 0.05
SEED = 77  # of the simulations and of the test pairs, which no method was developed on


def one_task(name, n, observations, seed):
    """Rows (task, simulations, kind, level, coverage) and the variant taken."""
    task = TASKS[name]
    theta, x = simulations(task, n, seed)
    rng = np.random.default_rng([seed, 1])
    truth = draw_prior(task, observations, rng)
    observed = task.simulator(truth, rng)
    if task.block is not None:
        x, observed = (data.reshape(-1, *task.block) for data in (x, observed))
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
    parser.add_argument("--tasks", nargs="+", choices=list(TASKS), help="these tasks only")
    parser.add_argument("--first", type=int, default=SEED, help="seed; from 1000 on to develop")
    given = parser.parse_args()
    n, observations = given.simulations, 200 if given.full else 40
    path = HERE / f"{'' if given.full else 'quick.'}calibrated.csv"
    passed = True
    print(f"{observations} observations, {n} simulations")
    for name in given.tasks or (TASKS if given.full else QUICK):
        start = time.process_time()
        with threadpool_limits(1):
            rows, variant = one_task(name, n, observations, given.first)
        print(f"\n{name}: {variant} ({time.process_time() - start:.0f} s CPU)")
        passed = min(_check("intervals", rows), _check("joint", rows), passed)
        if given.first == SEED:
            _write(path, rows)
    return 0 if passed else 1


def _check(kind, rows):
    """Print the coverage of one kind of region; whether it is within the bar at all levels."""
    values = [row[4] for row in rows if row[2] == kind]
    ok = all(abs(v - level) <= BAR for v, level in zip(values, LEVELS, strict=True))
    cells = "  ".join(f"{level:.0%}: {v:.3f}" for v, level in zip(values, LEVELS, strict=True))
    print(f"  {kind:10s} {cells}  {'PASS' if ok else 'FAIL'}", flush=True)
    return ok


def _write(path, rows):
    """Replace the rows of one task and budget in a table."""
    table = {}
    if path.exists():
        with path.open(newline="") as file:
            table = {tuple(row[:4]): row for row in list(csv.reader(file))[1:]}
    table |= {tuple(map(str, row[:4])): [*row[:4], f"{row[4]:.4f}"] for row in rows}
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("task", "simulations", "region", "level", "coverage"))
        writer.writerows(table.values())


if __name__ == "__main__":
    raise SystemExit(main())
