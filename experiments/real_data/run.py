"""Three real data sets: walkers located by Bluetooth and by Wi-Fi, a rat by its place cells.

The files are read from ../shared/data beside the repository; without them nothing is run.
Bluetooth: leave one walk out, train on the other walks and on prints taken standing still, error in
metres. Wi-Fi: 40 of 156 walks are left out, with and without odometry as controls. Place cells: the
first 70 % of the bins train, the rest is tested, error in pixels. Nothing is tuned on test data.
"No tuning" is ``KernelBayesFilter().fit``. Quick: one walk with 1000 prints, and no tuning.

    python experiments/real_data/run.py [--full] [--only bluetooth]
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np
from sklearn.neighbors import NearestNeighbors

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "statespace"))

from baselines import (  # noqa: E402
    NEIGHBOURS,
    distance,
    fitted_kalman,
    halves,
    tuned_neighbours,
    tuned_regression,
)
from data import FOLDER, bluetooth, column_means, filled, place_cells, wifi  # noqa: E402
from report import check, compute, options, print_table, summary, write  # noqa: E402

from kernelbayes import KernelBayesFilter, tune  # noqa: E402

FILTER, NEAREST = "kernel Bayes filter, tuned", "nearest neighbours, tuned"
PLAIN, SMOOTHED = "kernel Bayes filter, no tuning", "  smoothed"
REGRESSION, KALMAN = "kernel regression, tuned", "linear Kalman filter, fitted"
# Tuned: below the nearest neighbours by at least this share.
BARS = {"bluetooth": 0.50, "wifi": 0.07, "place cells": 0.20}
# No tuning: at most this multiple of the best of the three simple methods.
PLAIN_BARS = {"bluetooth": 1.0, "wifi": 1.0, "place cells": 1.05}
LEVEL, COVERED = 0.9, 4.0  # of intervals, and by how many points their coverage may differ from it
PARTS = 4  # left out in turn by the search
PRINTS, TUNED_PRINTS = 5040, 500  # the search sees a part of the prints, the filter all


def _mean_distance(beliefs, Z):
    """Loss of the tuning: what is reported in the end."""
    return distance(np.asarray(beliefs.mean()), np.asarray(Z))


def filters(xs, zs, new, tune_on, budget, seed, controls=None, acts=None):
    """Estimates of all new sequences, end to end, by filters with and without tuning.

    A second mapping has the ends of their 90 % intervals.
    """
    found, ends, acts = {}, {}, [None] * len(new) if acts is None else acts

    def estimates(model, label):
        for name, ask in ((label, model.filter), (label + SMOOTHED, model.smooth)):
            beliefs = [ask(x, controls=u) for x, u in zip(new, acts, strict=True)]
            found[name] = np.concatenate([b.mean() for b in beliefs])
            ends[name] = np.concatenate([b.interval(LEVEL) for b in beliefs])

    start = time.process_time()
    plain = KernelBayesFilter(rng=seed).fit(xs, zs, controls)
    print(f"  no tuning: {time.process_time() - start:.0f} CPU s, {plain.choice_.why}", flush=True)
    estimates(plain, PLAIN)
    if budget:
        start = time.process_time()
        fitted = tune(
            KernelBayesFilter(rank=200, rng=seed), xs[:tune_on], zs[:tune_on],
            None if controls is None else controls[:tune_on],
            loss=_mean_distance, parts=PARTS, budget=budget, rng=seed, progress=False,
        )  # fmt: skip
        # As the default does: a low rank to choose, and then the rank that suits the rows.
        fitted.set_params(rank=None).fit(xs, zs, controls)
        print(f"  tuned: {time.process_time() - start:.0f} CPU s", flush=True)
        estimates(fitted, FILTER)
    return found, ends


def rows_of(problem, size, found, ends, truth):
    """Errors of every method on every frame, and whether its intervals cover (in %)."""
    rows = [
        (problem, size, frame, method, float(error))
        for method, estimate in found.items()
        for frame, error in enumerate(distance(estimate, truth))
    ]
    for method, (low, high) in ((m, np.moveaxis(e, -1, 0)) for m, e in ends.items()):
        inside = 100.0 * np.mean((low <= truth) & (high >= truth), axis=1)
        rows += [
            (problem, f"{size} covered", frame, method, float(c)) for frame, c in enumerate(inside)
        ]
    return rows


# Bluetooth


def neighbours_of_walk(walks, X, Z, new):
    """Nearest neighbours; k and the filling chosen by leaving out each training walk in turn."""
    means = column_means(X, *(x for x, _ in walks))
    ks = np.array([k for k in NEIGHBOURS if k >= 5])

    def predict(kept, fill, wanted):
        """Estimates (k, T, 2) for all numbers of neighbours, from one search."""
        values = means if fill == "mean" else fill
        xs = filled(np.concatenate([X, *(x for x, _ in kept)]), values)
        zs = np.concatenate([Z, *(z for _, z in kept)])
        index = NearestNeighbors(n_neighbors=ks[-1]).fit(xs)
        near = zs[index.kneighbors(filled(wanted, values), return_distance=False)]
        return np.moveaxis(np.cumsum(near, axis=1)[:, ks - 1] / ks[:, None], 1, 0)

    def scores(fill):
        return sum(
            np.linalg.norm(predict(walks[:i] + walks[i + 1 :], fill, x) - z, axis=2).sum(axis=1)
            for i, (x, z) in enumerate(walks)
        )

    table = {fill: scores(fill) for fill in ("mean", -100.0, -90.0)}
    fill = min(table, key=lambda fill: table[fill].min())
    return predict(walks, fill, new)[np.argmin(table[fill])]


def regression_of_walk(walks, X, Z, new):
    """Kernel regression on every fourth frame and some prints; chosen by leaving walks out."""
    means = column_means(X, *(x for x, _ in walks))
    some = slice(None, None, -(-len(X) // 200))
    frames = [(x[::4], z[::4]) for x, z in walks]
    walk = np.repeat(np.arange(len(walks)), [len(x) for x, _ in frames])
    xs = filled(np.concatenate([*(x for x, _ in frames), X[some]]), means)
    zs = np.concatenate([*(z for _, z in frames), Z[some]])
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
    xs = [filled(x, means) for x, _ in walks] + list(filled(X, means)[:, None])
    zs = [z for _, z in walks] + list(Z[:, None])
    some = len(walks) + TUNED_PRINTS
    sequences = xs[: len(walks)], zs[: len(walks)]
    ours, ends = filters(xs, zs, [filled(new, means)], some, budget, seed)
    found = {
        "constant": np.broadcast_to(np.concatenate(zs).mean(axis=0), truth.shape),
        NEAREST: neighbours_of_walk(walks, X, Z, new),
        REGRESSION: regression_of_walk(walks, X, Z, new),
        KALMAN: fitted_kalman(*sequences, [filled(new, means)])[0],
        **ours,
    }
    return rows_of("bluetooth", data.names[held_out], found, ends, truth)


# Place cells


def cells(budget, seed, shortest=6):
    """Errors of every method on every scored bin."""
    data = place_cells()
    test = [(x, z) for x, z in data.test if len(x) >= shortest]
    X, Z = (np.concatenate(part) for part in zip(*data.train, strict=True))
    new, truth = (np.concatenate(part) for part in zip(*test, strict=True))
    folds = halves(len(X))
    xs, zs = map(list, zip(*data.train, strict=True))
    ours, ends = filters(xs, zs, [x for x, _ in test], None, budget, seed)
    found = {
        "constant": np.broadcast_to(Z.mean(axis=0), truth.shape),
        NEAREST: tuned_neighbours(X, Z, new, folds, distance)[0],
        REGRESSION: tuned_regression(X, Z, new, folds, distance)[0],
        KALMAN: np.concatenate(fitted_kalman(xs, zs, [x for x, _ in test])),
        **ours,
    }
    return rows_of("place cells", "test", found, ends, truth)


# Wi-Fi


def walks_by_wifi(budget, seed, odometry, directions=50):
    """Errors of every method on every scan of the walks left out."""
    data = wifi()
    xs, zs, us = map(list, zip(*data.train, strict=True))
    new, truth, acts = map(list, zip(*data.test, strict=True))
    X, Z = np.concatenate(xs), np.concatenate(zs)
    asked, wanted = np.concatenate(new), np.concatenate(truth)
    us, acts = (us, acts) if odometry else (None, None)
    walk = np.repeat(np.arange(len(xs)), [len(x) for x in xs])
    folds = [(np.flatnonzero(walk % 3 != i), np.flatnonzero(walk % 3 == i)) for i in range(3)]
    V = np.linalg.svd(X - X.mean(axis=0), full_matrices=False)[2][:directions].T
    ours, ends = filters(xs, zs, new, None, budget, seed, us, acts)
    found = {
        "constant": np.broadcast_to(Z.mean(axis=0), wanted.shape),
        NEAREST: tuned_neighbours(X, Z, asked, folds, distance)[0],
        REGRESSION: tuned_regression(X, Z, asked, folds, distance)[0],
        KALMAN: np.concatenate(
            fitted_kalman([x @ V for x in xs], zs, [x @ V for x in new], us, acts)
        ),
        **ours,
    }
    return rows_of("wifi", "odometry" if odometry else "all", found, ends, wanted)


def one_task(problem, *task):
    """Rows of one walk, of the place cells or of the Wi-Fi walks."""
    return {"bluetooth": one_walk, "wifi": walks_by_wifi, "place cells": cells}[problem](*task)


def check_all(table):
    """Print one line for each requirement; return whether all hold."""
    results = []
    for problem, bar in BARS.items():
        if (FILTER, problem, "all") in table:
            mean, near = (table[m, problem, "all"][0] for m in (FILTER, NEAREST))
            gain = 1.0 - mean / near
            text = f"{problem}: filter {mean:.2f}, {gain:.1%} below the neighbours' {near:.2f}"
            results.append(check(f"{text}; at least {bar:.0%}", gain >= bar))
    for problem, most in PLAIN_BARS.items():
        if (PLAIN, problem, "all") in table:
            best = min(table[m, problem, "all"][0] for m in (NEAREST, REGRESSION, KALMAN))
            mean = table[PLAIN, problem, "all"][0]
            text = f"{problem}: no tuning {mean:.2f}, best simple method {best:.2f}"
            results.append(check(f"{text}; at most {most:.2f} times", mean <= most * best))
    for (method, problem, size), (mean, _, _) in table.items():
        if size.endswith("covered"):
            text = (
                f"{problem}, {size}: {method.strip()} {mean:.1f} %; {100 * LEVEL:.0f} +- {COVERED}"
            )
            results.append(check(text, abs(mean - 100 * LEVEL) <= COVERED))
    return all(results)


def pooling(size):
    """All walks of Bluetooth are one setting; odometry and coverage are settings of their own."""
    words = [word for word in ("odometry", "covered") if word in size]
    return " ".join(words if "odometry" in words else ["all", *words])


def main():
    """Run, print, check and write."""
    parser = options(__doc__)
    parser.add_argument("--only", choices=BARS)
    given = parser.parse_args()
    if not FOLDER.is_dir():
        print("the data are not here: nothing to do")
        return 0
    walks, prints = (range(9), PRINTS) if given.full else ((1,), 1000)
    budget = 10 if given.full else 0
    tasks = [("place cells", budget, given.first)]
    tasks += [("wifi", budget, given.first, odometry) for odometry in (False, True)]
    tasks += [("bluetooth", i, prints, budget, given.first) for i in walks]
    tasks = [task for task in tasks if given.only in (None, task[0])]
    start = time.perf_counter()
    rows = compute(one_task, tasks, given.jobs, HERE / "partial.jsonl" if given.full else None)
    pooled = summary([(p, pooling(s), run, method, e) for p, s, run, method, e in rows])
    print(f"mean error over all frames; {time.perf_counter() - start:.0f} s\n")
    for problem in dict.fromkeys(task[0] for task in tasks):
        errors = {k: v for k, v in pooled.items() if k[1] == problem and "covered" not in k[2]}
        print_table(errors, NEAREST, digits=2)
        print(
            "  medians: "
            + ", ".join(f"{k[0].strip()} {v[2]:.2f}" for k, v in errors.items())
            + "\n"
        )
    passed = check_all(pooled)
    stem = "full" if given.full else "quick"
    if given.only is None:
        write(rows, HERE / f"{stem}.csv")
    return 0 if passed else 1


if __name__ == "__main__":
    raise SystemExit(main())
