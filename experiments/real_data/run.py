"""Two real data sets: a walker located by Bluetooth, and a rat by its place cells.

The files are read from ../shared/data beside the repository; without them nothing is run.
Bluetooth: leave one walk out, train on the other walks and on prints taken standing still, error in
metres. Place cells: the first 70 % of the bins train, the rest is tested, error in pixels. Nothing
is tuned on test data. Quick: one walk with 1000 prints, the place cells, a short search.

    python experiments/real_data/run.py [--full] [--only bluetooth]
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "statespace"))

from baselines import (  # noqa: E402
    NEIGHBOURS,
    choose,
    distance,
    halves,
    nearest_neighbours,
    tuned_neighbours,
    tuned_regression,
)
from data import FOLDER, bluetooth, column_means, filled, place_cells  # noqa: E402
from report import check, compute, options, print_table, summary, write  # noqa: E402

from kernelbayes import KernelBayesFilter, tune  # noqa: E402

FILTER, NEAREST = "kernel Bayes filter, tuned", "nearest neighbours, tuned"
BARS = {"bluetooth": 0.25, "place cells": 0.20}  # below the nearest neighbours
RANK, PRINTS = 300, 5040


def _mean_distance(beliefs, Z):
    """Loss of the tuning: what is reported in the end."""
    return distance(np.asarray(beliefs.mean()), np.asarray(Z))


# Bluetooth


def neighbours_of_walk(walks, X, Z, new):
    """Nearest neighbours; k and the filling chosen by leaving out each training walk in turn."""
    means = column_means(X, *(x for x, _ in walks))

    def predict(kept, k, fill, wanted):
        values = means if fill == "mean" else fill
        xs = np.concatenate([X, *(x for x, _ in kept)])
        zs = np.concatenate([Z, *(z for _, z in kept)])
        return nearest_neighbours(filled(xs, values), zs, filled(wanted, values), k)

    def score(k, fill):
        return sum(
            np.sum(distance(predict(walks[:i] + walks[i + 1 :], k, fill, x), z))
            for i, (x, z) in enumerate(walks)
        )

    grid = [(k, fill) for k in NEIGHBOURS if k >= 5 for fill in ("mean", -100.0, -90.0)]
    return predict(walks, *choose(grid, score), new)


def regression_of_walk(walks, X, Z, new):
    """Kernel regression on walks and a part of the prints; chosen by leaving one walk out."""
    means = column_means(X, *(x for x, _ in walks))
    some = slice(None, None, -(-len(X) // 500))
    walk = np.repeat(np.arange(len(walks)), [len(x) for x, _ in walks])
    xs = filled(np.concatenate([*(x for x, _ in walks), X[some]]), means)
    zs = np.concatenate([*(z for _, z in walks), Z[some]])
    prints = np.arange(len(walk), len(xs))
    folds = [
        (np.r_[np.flatnonzero(walk % 3 != i), prints], np.flatnonzero(walk % 3 == i))
        for i in range(3)
    ]
    return tuned_regression(xs, zs, filled(new, means), folds, distance)[0]


def one_walk(held_out, prints, budget, seed):
    """Errors of every method on every frame of one walk: rows with the frame as run."""
    data = bluetooth()
    walks = [walk for i, walk in enumerate(data.walks) if i != held_out]
    chosen = np.random.default_rng(seed).permutation(len(data.X))[:prints]
    X, Z = data.X[chosen], data.Z[chosen]
    new, truth = data.walks[held_out]
    means = column_means(X, *(x for x, _ in walks))
    # Training frames are filled; a test frame conditions on the receivers that heard it.
    xs = [filled(x, means) for x, _ in walks] + list(filled(X, means)[:, None])
    zs = [z for _, z in walks] + list(Z[:, None])
    fitted = tune(
        KernelBayesFilter(rank=RANK, rng=seed), xs, zs,
        loss=_mean_distance, budget=budget, rng=seed, progress=False,
    )  # fmt: skip
    found = {
        "constant": np.broadcast_to(np.concatenate(zs).mean(axis=0), truth.shape),
        NEAREST: neighbours_of_walk(walks, X, Z, new),
        "kernel regression, tuned": regression_of_walk(walks, X, Z, new),
        FILTER: fitted.filter(filled(new, means)).mean(),
        "  receivers present only": fitted.filter(new).mean(),
    }
    return [
        ("bluetooth", data.names[held_out], frame, method, float(error))
        for method, estimate in found.items()
        for frame, error in enumerate(distance(estimate, truth))
    ]


# Place cells


def cells(budget, seed, shortest=6):
    """Errors of every method on every scored bin."""
    data = place_cells()
    test = [(x, z) for x, z in data.test if len(x) >= shortest]
    X, Z = (np.concatenate(part) for part in zip(*data.train, strict=True))
    new, truth = (np.concatenate(part) for part in zip(*test, strict=True))
    folds = halves(len(X))
    fitted = tune(
        KernelBayesFilter(rank=RANK, rng=seed), *map(list, zip(*data.train, strict=True)),
        loss=_mean_distance, budget=budget, rng=seed, progress=False,
    )  # fmt: skip
    found = {
        "constant": np.broadcast_to(Z.mean(axis=0), truth.shape),
        NEAREST: tuned_neighbours(X, Z, new, folds, distance)[0],
        "kernel regression, tuned": tuned_regression(X, Z, new, folds, distance)[0],
        FILTER: np.concatenate([fitted.filter(x).mean() for x, _ in test]),
    }
    return [
        ("place cells", "test", frame, method, float(error))
        for method, estimate in found.items()
        for frame, error in enumerate(distance(estimate, truth))
    ]


def one_task(problem, *task):
    """Rows of one walk, or of the place cells."""
    return one_walk(*task) if problem == "bluetooth" else cells(*task)


def check_all(table):
    """Print one line for each requirement; return whether all hold."""
    results = []
    for problem, bar in BARS.items():
        if (FILTER, problem, "all") in table:
            mean, near = (table[m, problem, "all"][0] for m in (FILTER, NEAREST))
            gain = 1.0 - mean / near
            text = f"{problem}: filter {mean:.2f}, {gain:.1%} below the neighbours' {near:.2f}"
            results.append(check(f"{text}; at least {bar:.0%}", gain >= bar))
    return all(results)


def main():
    """Run, print, check and write."""
    parser = options(__doc__)
    parser.add_argument("--only", choices=BARS)
    given = parser.parse_args()
    if not FOLDER.is_dir():
        print("the data are not here: nothing to do")
        return 0
    walks, prints, budget = (range(9), PRINTS, 25) if given.full else ((1,), 1000, 8)
    tasks = [("bluetooth", i, prints, budget, given.first) for i in walks]
    tasks += [("place cells", budget, given.first)]
    tasks = [task for task in tasks if given.only in (None, task[0])]
    start = time.perf_counter()
    rows = compute(one_task, tasks, given.jobs)
    pooled = summary([(p, "all", run, method, e) for p, _, run, method, e in rows])
    print(f"mean error over all frames; {time.perf_counter() - start:.0f} s\n")
    for problem in dict.fromkeys(task[0] for task in tasks):
        print_table({k: v for k, v in pooled.items() if k[1] == problem}, NEAREST, digits=2)
        print(
            "  medians: "
            + ", ".join(f"{k[0].strip()} {v[2]:.2f}" for k, v in pooled.items() if k[1] == problem)
            + "\n"
        )
    passed = check_all(pooled)
    stem = "full" if given.full else "quick"
    if given.only is None:
        write(rows, HERE / f"{stem}.csv")
    return 0 if passed else 1


if __name__ == "__main__":
    raise SystemExit(main())
