"""Simulated recordings with the faults of real ones: what a filter with no argument makes of them.

Each model has one fault that made filters fail on real recordings: long rests, columns in mixed
units, useless columns, a narrow track, readings that repeat, strong controls, outages of a sensor,
no complete rows. ``plain`` has none. Error: squared error over the variance of each state column,
averaged. The filter is compared with nearest neighbours, kernel regression and a linear Kalman
filter with velocity, each chosen and fitted on the training sequences.

    python experiments/statespace/awkward.py [--runs 3] [--first 1000] [--only rest track] [--tune]
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

sys.path.insert(0, str(Path(__file__).parent))

from baselines import fitted_kalman, halves, tuned_neighbours, tuned_regression

from kernelbayes import KernelBayesFilter, tune

TRAIN, TEST = 600, 300


def walk(rng, length, resting=0.0, speed=0.3):
    """Positions (T, 2) in the unit square, reflected at its sides; it rests part of the time."""
    place, velocity, moving, found = rng.uniform(size=2), 0.1 * rng.normal(size=2), True, []
    for _ in range(length):
        if resting and rng.uniform() < (0.05 if moving else 0.05 * (1.0 - resting) / resting):
            moving = not moving
        if moving:
            velocity = 0.9 * velocity + 0.1 * speed * rng.normal(size=2)
            outside = (place + velocity < 0.0) | (place + velocity > 1.0)
            velocity = np.where(outside, -velocity, velocity)
            place = np.clip(place + velocity, 0.0, 1.0)
        found.append(place)
    return np.array(found)


def fields(Z, rng, units=20, width=0.25, noise=0.35, layout=0):
    """Responses (T, units) of cells, each tuned to a place of the unit square, plus noise."""
    centres = np.random.default_rng(layout).uniform(size=(units, Z.shape[1]))
    far = np.sum((Z[:, None, :] - centres) ** 2, axis=2)
    return np.exp(-0.5 * far / width**2) + noise * rng.normal(size=(len(Z), units))


def plain(rng, length):
    """Nothing awkward: a walk in the unit square."""
    Z = walk(rng, length)
    return fields(Z, rng), Z, None


def rest(rng, length):
    """Rests: 57 % of the time, at home more often than not."""
    Z = walk(rng, length, resting=0.57)
    home = np.cumsum(rng.uniform(size=length) < 0.02) % 2 == 0
    Z = np.where(home[:, None], 0.2, Z)
    return fields(Z, rng), Z, None


def units(rng, length):
    """States in metres and millimetres, observations in units from 1e-3 to 1e3."""
    Z = walk(rng, length)
    X = fields(Z, rng, units=8, noise=0.2)
    return X * 10.0 ** np.linspace(-3, 3, 8), Z * (1.0, 1000.0), None


def useless(rng, length):
    """Two informative columns among twelve of large noise."""
    Z = walk(rng, length)
    return np.hstack([Z + 0.15 * rng.normal(size=Z.shape), rng.normal(size=(length, 12))]), Z, None


def track(rng, length):
    """Narrow W-shaped track: places near each other in the plane are far along the track."""
    corners = np.array([[0.0, 1.0], [0.1, 0.0], [0.2, 1.0], [0.3, 0.0], [0.4, 1.0]])
    at, velocity, found = rng.uniform(), 0.02, []
    for _ in range(length):
        velocity = np.clip(velocity + 0.003 * rng.normal(), -0.04, 0.04)
        velocity = -velocity if not 0.0 <= at + velocity <= 1.0 else velocity
        at += velocity
        found.append(at)
    s = np.array(found)
    grid = np.linspace(0.0, 1.0, len(corners))
    Z = np.column_stack([np.interp(s, grid, column) for column in corners.T])
    return fields(s[:, None], rng, units=25, width=0.05, noise=0.4), Z, None


def repeated(rng, length):
    """Each reading is kept with probability .6: neighbours have the same error."""
    Z = walk(rng, length)
    X = fields(Z, rng, noise=0.5)
    for t in range(1, length):
        kept = rng.uniform(size=X.shape[1]) < 0.6
        X[t, kept] = X[t - 1, kept]
    return X, Z, None


def controls(rng, length):
    """Odometry says nearly all about the move, observations little about the place."""
    Z = walk(rng, length, speed=1.0)
    U = np.vstack([np.zeros((1, 2)), np.diff(Z, axis=0)]) + 0.01 * rng.normal(size=Z.shape)
    return fields(Z, rng, units=6, noise=0.6), Z, U * (1.0, 100.0)


def outages(rng, length):
    """Vehicle with odometry and a position sensor that drifts and fails for 5 to 20 steps."""
    place, heading, speed = rng.uniform(-50.0, 50.0, 2), rng.uniform(0.0, 2.0 * np.pi), 3.0
    drift, out, found = 3.0 * rng.normal(size=2), 0, []
    for _ in range(length):
        speed = np.clip(speed + 0.3 * rng.normal(), 0.0, 6.0)
        heading += 0.15 * rng.normal()
        if np.linalg.norm(place) > 80.0:  # it turns back
            heading += 0.3 * np.sin(np.arctan2(-place[1], -place[0]) - heading)
        move = speed * np.array([np.cos(heading), np.sin(heading)])
        place, drift = place + move, 0.97 * drift + rng.normal(size=2)
        out = int(rng.integers(5, 20)) if out == 0 and rng.uniform() < 0.02 else out
        x = np.full(2, np.nan) if out else place + drift + 2.0 * rng.normal(size=2)
        found.append((x, place, 1.03 * move + 0.2 * rng.normal(size=2)))
        out = max(0, out - 1)
    return tuple(map(np.array, zip(*found, strict=True)))


def holes(rng, length):
    """Every entry is missing with probability .25: hardly a row of 12 is complete."""
    Z = walk(rng, length)
    X = fields(Z, rng, units=12, noise=0.25)
    return np.where(rng.uniform(size=X.shape) < 0.25, np.nan, X), Z, None


FAULTS = (plain, rest, units, useless, track, repeated, controls, outages, holes)
MODELS = {f.__name__: f for f in FAULTS}


def share(estimate, Z, spread):
    """Squared error over the variance of each column."""
    return float(np.mean(((estimate - Z) / spread) ** 2))


def one_run(name, seed, tuned=False):
    """Errors of all methods on one simulated recording, and seconds of fitting."""
    rng = np.random.default_rng(seed)
    X, Z, U = MODELS[name](rng, TRAIN)
    new, truth, acts = MODELS[name](rng, TEST)
    spread = Z.std(axis=0)
    means = np.nanmean(X, axis=0)
    filled, asked = (np.where(np.isnan(x), means, x) for x in (X, new))
    scaled = X.std(axis=0) if np.isfinite(X).all() else 1.0  # what a careful user would do
    lost, gone = (np.where(np.isnan(x).all(axis=1), np.nan, 0.0)[:, None] for x in (X, new))
    found, folds = {}, halves(len(X))
    A, B = filled / scaled, asked / scaled
    found["neighbours"] = tuned_neighbours(A, Z / spread, B, folds)[0] * spread
    found["regression"] = tuned_regression(A, Z / spread, B, folds)[0] * spread
    found["kalman"] = fitted_kalman([A + lost], [Z], [B + gone], [U], [acts])[0]
    seconds = {}
    options = [("filter", U), ("no controls", None)] if U is not None else [("filter", None)]
    for label, u in options:
        start, v = time.perf_counter(), None if u is None else acts
        model = KernelBayesFilter(rng=0).fit(X, Z, u)
        seconds[label] = time.perf_counter() - start
        found[label], found[f"{label}, smooth"] = (
            ask(new, v).mean() for ask in (model.filter, model.smooth)
        )
        if tuned:
            start = time.perf_counter()
            better = tune(KernelBayesFilter(rng=0), X, Z, u, rng=0, progress=False)
            seconds[f"{label}, tuned"] = time.perf_counter() - start
            found[f"{label}, tuned"] = better.filter(new, v).mean()
    return {label: share(np.asarray(z), truth, spread) for label, z in found.items()}, seconds


def main():
    """Print a table of means over runs."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--first", type=int, default=1000, help="first seed")
    parser.add_argument("--only", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--tune", action="store_true", help="with tune as well")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    for name in given.only:
        with threadpool_limits(1):
            runs = [one_run(name, given.first + i, given.tune) for i in range(given.runs)]
        cells = [
            f"{label} {np.mean([errors[label] for errors, _ in runs]):.3f}"
            + (f" ({np.mean([s[label] for _, s in runs]):.1f} s)" if label in runs[0][1] else "")
            for label in runs[0][0]
        ]
        print(f"{name:9s} " + ", ".join(cells), flush=True)


if __name__ == "__main__":
    main()
