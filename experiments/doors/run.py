"""Localisation in a corridor with two doors alike: both places must keep their mass.

Kernel belief propagation learns steps and sightings from pairs. Particles and mixtures learn steps
as a Gaussian mixture and are given the true sensor. All are compared with the exact smoother on a
grid: the share of the larger half at the worst step (one half is exact), and the mean distance in
total variation (20 bins). Quick: 200 and 1000 pairs, two runs. Full: 200 to 4000, five runs.

Time: quick 4 s, full not measured.

    python experiments/doors/run.py [--full] [--runs N] [--first SEED] [--jobs 2]
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent / name) for name in ("statespace", "graphs")]

import networks  # noqa: E402
import propagation  # noqa: E402
from report import check, compute, options, print_table, summary, write  # noqa: E402

import kernelbayes as kb  # noqa: E402

LENGTH, STEP, NOISE = 10.0, 1.0, 0.3
DOORS = (2.0, 7.0)  # half a round apart: nothing that is seen tells one from the other
SEEN = ("wall", "door", "wall", "wall")
GRID, BINS = 500, 20
PARTICLES, ITERATIONS, COMPONENTS = 100, 6, (8, 16)  # two passes need four iterations
HALF, NEAR = 0.6, 0.1  # bars: share of one half, and distance, from 1000 pairs on


def door_probability(z):
    """Probability that the sensor reports a door at a place."""
    around = [np.abs((z - door + LENGTH / 2) % LENGTH - LENGTH / 2) for door in DOORS]
    near = np.min(around, axis=0)
    return 0.05 + 0.85 * np.exp(-0.5 * (near / 0.5) ** 2)


def pairs(n, rng):
    """Pairs of steps, and of places with what is seen there, from a uniform start."""
    z = rng.uniform(0, LENGTH, n)
    after = (z + STEP + NOISE * rng.normal(size=n)) % LENGTH
    seen = np.where(rng.random(n) < door_probability(z), "door", "wall")
    return {"step": (z, after), "seen": (z, seen)}


def exact(seen):
    """Smoothed beliefs (T, GRID) on a grid, by the forward-backward algorithm."""
    z = (np.arange(GRID) + 0.5) * LENGTH / GRID
    P = np.zeros((GRID, GRID))
    for turn in (-1, 0, 1):
        P += np.exp(-0.5 * ((z[None] + turn * LENGTH - z[:, None] - STEP) / NOISE) ** 2)
    P /= P.sum(axis=1, keepdims=True)
    door = door_probability(z)
    L = np.array([door if s == "door" else 1.0 - door for s in seen])
    forward = [L[0]]
    for row in L[1:]:
        forward.append(row * (forward[-1] @ P))
    backward = [np.ones(GRID)]
    for row in L[:0:-1]:
        backward.append(P @ (row * backward[-1]))
    beliefs = np.array(forward) * np.array(backward[::-1])
    return z, beliefs / beliefs.sum(axis=1, keepdims=True)


def binned(z, weights, bins=BINS):
    """Shares (bins,) of the corridor."""
    return np.histogram(z % LENGTH, bins, (0.0, LENGTH), weights=weights)[0]


def kernel(data, _rng):
    """Points and weights of the beliefs, by kernel belief propagation."""
    steps = list(range(len(SEEN)))
    moves, sights = [(t, t + 1) for t in steps[:-1]], [(t, ("seen", t)) for t in steps]
    kernels = {0: kb.Periodic(0.5, LENGTH)}
    model = kb.KernelBeliefPropagation(kernels=kernels, templates={"step": moves, "seen": sights})
    model.fit(data)
    batch = model.query(steps, {("seen", t): s for t, s in enumerate(SEEN)}).stacked(steps)
    return np.tile(batch.points[:, 0], (len(SEEN), 1)), np.asarray(batch.weights)


def sampled(method):
    """Particle or mixture belief propagation."""

    def run(data, rng):
        size = len(SEEN)
        edges = np.stack([np.arange(size - 1), np.arange(1, size)], axis=1)
        network = networks.Network(size, edges, np.zeros(size - 1, dtype=int))
        pairs = [networks.PairMixture(*data["step"], COMPONENTS)]

        def log_local(x):
            door = door_probability(x)
            seen = np.array([s == "door" for s in SEEN])[:, None]
            inside = np.where((x >= 0.0) & (x < LENGTH), 0.0, -50.0)  # the mixture's tails
            return inside + np.log(np.where(seen, door, 1.0 - door))

        x = rng.uniform(0.0, LENGTH, (size, PARTICLES))
        found = propagation.mixture(network, pairs, log_local, x, rng)
        if method == "particle":
            found = propagation.particle(network, pairs, log_local, x, 0.0 * x, 0.3, rng)
        return [next(found) for _ in range(ITERATIONS)][-1]

    return run


METHODS = {"kernel": kernel, "particle": sampled("particle"), "mixture": sampled("mixture")}


def one_run(n, run):
    """Rows of all methods on one sample."""
    z, beliefs = exact(SEEN)
    expected, rows = np.array([binned(z, row) for row in beliefs]), []
    for name, method in METHODS.items():
        rng = np.random.default_rng([run, n])
        points, weights = method(pairs(n, rng), rng)
        found = np.array([binned(x, w / w.sum()) for x, w in zip(points, weights, strict=True)])
        first = found[:, : BINS // 2].sum(axis=1)
        larger = float(np.maximum(first, 1.0 - first).max())
        away = float(0.5 * np.abs(found - expected).sum(axis=1).mean())
        rows += [("larger half", n, run, name, larger), ("distance", n, run, name, away)]
    return rows


def main():
    """Run, print, check and write."""
    given = options(__doc__).parse_args()
    runs = given.runs or (5 if given.full else 2)
    sizes = (200, 1000, 4000) if given.full else (200, 1000)
    tasks = [(n, run) for run in range(given.first, given.first + runs) for n in sizes]
    start = time.perf_counter()
    rows = compute(one_run, tasks, given.jobs)
    table = summary(rows)
    print(f"mean (standard error) of {runs} runs; {time.perf_counter() - start:.0f} s\n")
    print_table(table, digits=3)
    print()
    passed = True
    for n in sizes[1:]:
        half, away = (table["kernel", what, n][0] for what in ("larger half", "distance"))
        passed &= check(f"{n} pairs: larger half {half:.2f}, at most {HALF}", half <= HALF)
        passed &= check(f"{n} pairs: distance {away:.3f}, at most {NEAR}", away <= NEAR)
    write(rows, HERE / f"{'full' if given.full else 'quick'}.csv")
    return 0 if passed else 1


if __name__ == "__main__":
    raise SystemExit(main())
