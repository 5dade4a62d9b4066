"""Figure 1 of Xu, Chen, Doucet and Gretton (2022): learning a posterior mean from samples.

Pairs (x, z) are Gaussian in d + d dimensions; the prior of z is half as wide as the training
marginal. Error: squared distance to the true posterior mean, summed over dimensions and averaged
over 1000 conditioning points. Quick: d = 8 and 32, five runs. Full: all dimensions, 30 runs.

    python experiments/iw22_fig1/run.py [--full] [--runs N] [--jobs 2]
"""

from __future__ import annotations

import argparse
import csv
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

from kernelbayes import Gaussian, KernelBayesRule, tune

HERE = Path(__file__).parent
DIMENSIONS = (8, 16, 24, 32, 40, 48, 64)
N = 200  # pairs, and points of the prior
# Read off the published figure.
PUBLISHED = {
    "original, paper": (1.92, 4.70, 8.55, 13.64, 18.01, 22.29, 27.89),
    "importance, paper": (0.31, 0.74, 1.22, 1.62, 2.21, 2.73, 3.63),
}
BARS = {8: 0.26, 32: 1.55, 64: 3.40}


def problem(d, rng, n=N, tests=1000):
    """Training pairs, points of the prior, conditioning points and true posterior means."""
    A = rng.normal(size=(2 * d, 2 * d))
    V = A.T @ A / (2 * d) + 2.0 * np.eye(2 * d)
    pairs = rng.multivariate_normal(np.r_[np.ones(d), np.zeros(d)], V, size=n)
    V_xx, V_xz, V_zz = V[:d, :d], V[:d, d:], V[d:, d:]
    prior = rng.multivariate_normal(np.zeros(d), V_zz / 2, size=n)
    x = rng.multivariate_normal(np.zeros(d), V_xx, size=tests)
    slope = np.linalg.solve(V_zz, V_xz.T).T  # E[x | z] = 1 + slope z
    noise = V_xx - slope @ V_xz.T
    gain = V_zz / 2 @ slope.T @ np.linalg.inv(slope @ V_zz @ slope.T / 2 + noise)
    return pairs[:, :d], pairs[:, d:], prior, x, (x - 1.0) @ gain.T


def models(X, Z, prior):
    """Name of every row, and a function that makes its fitted model."""
    kernels = Gaussian.median(X), Gaussian.median(Z)
    importance = KernelBayesRule(*kernels, prior_ridge=0.2, ridge=0.2, literal=True)
    # The paper's operator has weights n times ours, so its ridge is n^2 times ours.
    ridges = {"prior_ridge": 0.2, "ridge": 0.2 / len(X) ** 2}
    original = KernelBayesRule(*kernels, "original", **ridges, literal=True)
    # The paper's kernels in all rows; kernels of None would have a bandwidth for each column.
    chosen, chosen_original = KernelBayesRule(*kernels), KernelBayesRule(*kernels, "original")
    return {
        "importance, paper": lambda: importance.fit(X, Z, prior=prior),
        "original, paper": lambda: original.fit(X, Z, prior=prior),
        "importance, default": lambda: chosen.fit(X, Z, prior=prior),
        "importance, tuned": lambda: tune(chosen, X, Z, prior=prior),
        "original, tuned": lambda: tune(chosen_original, X, Z, prior=prior),
    }


def one_run(job):
    """Rows (d, run, method, error) of one data set."""
    d, run, only = job
    with threadpool_limits(1):
        X, Z, prior, x, truth = problem(d, np.random.default_rng(run))
        rows = [(d, run, "constant (prior mean)", float(np.mean(np.sum(truth**2, axis=1))))]
        for name, make in models(X, Z, prior).items():
            if only not in name:
                continue
            errors = np.sum((make().predict(x) - truth) ** 2, axis=1)
            rows.append((d, run, name, float(np.mean(errors))))
    return rows


def compute(dimensions, runs, jobs, only):
    """Rows of all data sets; run number = seed."""
    tasks = [(d, run, only) for run in range(runs) for d in dimensions]
    if jobs == 1:
        return [row for task in tasks for row in one_run(task)]
    with ProcessPoolExecutor(jobs) as pool:
        return [row for rows in pool.map(one_run, tasks) for row in rows]


def summary(rows):
    """Mean and standard error by method and dimension."""
    found = {}
    for d, _, name, error in rows:
        found.setdefault((name, d), []).append(error)
    return {
        key: (np.mean(v), np.std(v, ddof=1) / np.sqrt(len(v)) if len(v) > 1 else np.nan)
        for key, v in found.items()
    }


def print_table(table, dimensions):
    """Print one line per method, the published values below ours."""
    names = list(dict.fromkeys(name for name, _ in table))
    print(f"{'':24s}" + "".join(f"{f'd = {d}':>15s}" for d in dimensions))
    for name in names:
        cells = (f"{table[name, d][0]:8.3f} ({table[name, d][1]:.3f})" for d in dimensions)
        print(f"{name:24s}" + "".join(f"{c:>15s}" for c in cells))
        if name in PUBLISHED:
            values = (PUBLISHED[name][DIMENSIONS.index(d)] for d in dimensions)
            print(f"{'  published':24s}" + "".join(f"{v:>8.2f}       " for v in values))


def check(label, passed):
    """Print one line and return whether it passed."""
    print(f"{'PASS' if passed else 'FAIL'}  {label}")
    return passed


def check_all(table, dimensions):
    """Print one line for each requirement; return whether all hold."""
    results = []
    for d in dimensions:
        mean, constant = table["importance, tuned", d][0], table["constant (prior mean)", d][0]
        if d in BARS:
            label = f"d = {d:2d}  tuned importance rule {mean:.3f}, at most {BARS[d]:.2f}"
            results.append(check(label, mean <= BARS[d]))
        label = f"d = {d:2d}  tuned importance rule {mean:.3f}, below the constant {constant:.3f}"
        results.append(check(label, mean < constant))
        for name, published in PUBLISHED.items():
            value, error = table[name, d]
            target = published[DIMENSIONS.index(d)]
            label = f"d = {d:2d}  {name} {value:.3f} +- {error:.3f}, published {target:.2f}"
            results.append(check(label, abs(value - target) <= 2.0 * error))
    return all(results)


def draw(table, dimensions, path):
    """Draw error against dimension, if matplotlib is there."""
    try:
        import matplotlib as mpl

        mpl.use("Agg")
        import matplotlib.pyplot as plt
    except ImportError:
        print("matplotlib is not installed: no picture")
        return
    figure, axes = plt.subplots(figsize=(6, 4), layout="constrained")
    for name in dict.fromkeys(name for name, _ in table):
        means, errors = zip(*(table[name, d] for d in dimensions), strict=True)
        axes.errorbar(dimensions, means, errors, marker="o", markersize=3, label=name)
    axes.set(xlabel="dimension", ylabel="squared error", yscale="log")
    axes.legend(fontsize="small")
    figure.savefig(path, dpi=150)
    plt.close(figure)


def main():
    """Run, print, check and write."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--full", action="store_true", help="all dimensions, 30 runs")
    parser.add_argument("--runs", type=int, help="runs per dimension")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--only", default="", help="rows with this in their name; print only")
    options = parser.parse_args()
    dimensions = DIMENSIONS if options.full else (8, 32)
    runs = options.runs or (30 if options.full else 5)
    start = time.perf_counter()
    rows = compute(dimensions, runs, options.jobs, options.only)
    table = summary(rows)
    print(f"mean (standard error) of {runs} runs; {time.perf_counter() - start:.0f} s\n")
    print_table(table, dimensions)
    if options.only:
        return 0
    print()
    passed = check_all(table, dimensions)
    stem = "full" if options.full else "quick"
    with (HERE / f"{stem}.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["d", "run", "method", "error"])
        writer.writerows((d, run, name, f"{error:.6g}") for d, run, name, error in rows)
    draw(table, dimensions, HERE / f"{stem}.png")
    return 0 if passed else 1


if __name__ == "__main__":
    raise SystemExit(main())
