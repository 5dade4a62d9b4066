"""Coverage of 90 % intervals after many short walks that cover a large floor thinly.

Each scan hears some of 300 access points, scaled to unit length; half of the readings are those of
the scan before. 110 walks of 6 to 23 scans train, 40 are new. ``KernelBayesFilter().fit`` corrects
its intervals by blocks of walks that it leaves out.

    python experiments/calibration/scans.py [--runs 2] [--first 3010]
"""

from __future__ import annotations

import argparse
import warnings

import numpy as np
from threadpoolctl import threadpool_limits

from kernelbayes import KernelBayesFilter

LEVEL, BAR = 0.9, 4.0  # points
SIDES = np.array([200.0, 80.0])  # of the floor, m
POINTS, CARRIED, WALKS, NEW = 300, 0.5, 110, 40


def scans(rng, walks):
    """Observations and positions of some walks."""
    points = np.random.default_rng(0).uniform(size=(POINTS, 2)) * SIDES
    xs, zs = [], []
    for _ in range(walks):
        length = int(rng.integers(6, 24))
        place, heading = rng.uniform(size=2) * SIDES, rng.uniform(0.0, 2.0 * np.pi)
        X, Z, heard = [], [], None
        for _ in range(length):
            heading += 0.3 * rng.normal()
            place = place + 2.0 * np.array([np.cos(heading), np.sin(heading)])
            if ((place < 0.0) | (place > SIDES)).any():
                heading, place = heading + np.pi, np.clip(place, 0.0, SIDES)
            far = np.linalg.norm(points - place, axis=1)
            strength = 90.0 - 25.0 * np.log10(1.0 + far) + 6.0 * rng.normal(size=POINTS)
            missed = (strength < 55.0) | (rng.uniform(size=POINTS) < 0.2)
            strength = np.where(missed, 0.0, strength)
            if heard is not None:
                strength = np.where(rng.uniform(size=POINTS) < CARRIED, heard, strength)
            heard = strength
            X.append(heard / max(np.linalg.norm(heard), 1e-9))
            Z.append(place)
        xs.append(np.array(X))
        zs.append(np.array(Z))
    return xs, zs


def one_run(seed):
    """Mean distance and coverage of filter and smoother, in m and points."""
    rng = np.random.default_rng(seed)
    (X, Z), (new, truth) = scans(rng, WALKS), scans(rng, NEW)
    model, truth = KernelBayesFilter(rng=0).fit(X, Z), np.concatenate(truth)
    found = []
    for beliefs in (model.filter(new), model.smooth(new)):
        off = np.concatenate(beliefs.mean()) - truth
        low, high = np.moveaxis(np.concatenate(beliefs.interval(LEVEL)), -1, 0)
        inside = 100.0 * np.mean((low <= truth) & (truth <= high))
        found += [float(np.mean(np.linalg.norm(off, axis=1))), float(inside)]
    return found


def main():
    """Print a row for each seed and the means, check the bar."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--runs", type=int, default=2)
    parser.add_argument("--first", type=int, default=3010, help="first seed")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    rows = []
    for seed in range(given.first, given.first + given.runs):
        with threadpool_limits(1):
            rows.append(one_run(seed))
        text = "filter {:.2f} m, covered {:.1f} %; smoother {:.2f} m, covered {:.1f} %"
        print(f"seed {seed}: {text.format(*rows[-1])}", flush=True)
    mean = np.mean(rows, axis=0)
    passed = max(abs(mean[1] - 100 * LEVEL), abs(mean[3] - 100 * LEVEL)) <= BAR
    print(f"{'PASS' if passed else 'FAIL'}  mean: {text.format(*mean)}; 90 +- {BAR}")
    return 0 if passed else 1


if __name__ == "__main__":
    raise SystemExit(main())
