"""Filtering what a camera sees: the methods of IW22 Figures 5 and 6, on one of the two settings."""

from __future__ import annotations

import time

import maze
import numpy as np
import sprites
from baselines import halves, squared, tuned_neighbours
from recurrent import lstm
from report import check, compute, draw, options, print_table, summary, write

from kernelbayes import (
    ConditionalEmbedding,
    Gaussian,
    KernelBayesFilter,
    Linear,
    NeuralFeatures,
    tune,
)

SETTINGS = {"sprites": sprites.simulate, "maze": maze.simulate}
METHODS = ("original", "importance", "learned", "LSTM", "regression", "neighbours", "constant")
RANK = 200  # landmarks among the images: a step then costs little beside the distances
PLAIN = {"lags": 1, "order": 1, "features": "raw"}  # the filter of the paper
EPOCHS = 40  # of the features; held-out pairs stop them before


def one_run(problem, size, run, methods, length=200):
    """Rows of some methods on one training and one test sequence; the seed is the run."""
    rng = np.random.default_rng(run)
    train, test = (SETTINGS[problem](steps, rng) for steps in (size, length))
    X, new = (s.X.reshape(len(s.X), -1) for s in (train, test))
    Z, rows = train.Z, []
    static = None
    if {"original", "importance", "regression"} & set(methods):
        start = ConditionalEmbedding(kernel_x=Gaussian.median(X))
        static = tune(start, X, Z, budget=6, progress=False)
    for method in methods:
        begun = time.process_time()
        if method in ("original", "importance"):
            kernel = static.kernel_x_
            model = KernelBayesFilter(kernel, method=method, rank=RANK, rng=run, **PLAIN).fit(X, Z)
            found = model.filter(new).mean()
        elif method in ("learned", "joint"):
            # "joint": features that predict the next state as well.
            targets = Z if method == "learned" else np.hstack([Z[:-1], Z[1:]])
            kernel = NeuralFeatures(epochs=EPOCHS, rng=run).fit(train.X[: len(targets)], targets)
            # The kernel is the linear one of the features, which are computed once.
            model = KernelBayesFilter(Linear(), rng=run, **PLAIN).fit(kernel.features(train.X), Z)
            found = model.filter(kernel.features(test.X)).mean()
        elif method == "limit":
            found = maze.limit(size, run, length)
        elif method == "LSTM":
            found = lstm(train.X, Z, test.X, seed=run)
        elif method == "regression":
            found = static(new).mean()
        elif method == "neighbours":
            found = tuned_neighbours(X, Z, new, halves(size))[0]
        else:
            found = np.broadcast_to(Z.mean(axis=0), test.Z.shape)
        error = float(np.mean(squared(found, test.Z)))
        rows.append((problem, size, run, method, error))
        print(f"T = {size}, run {run}, {method}: {error:.4f}, {time.process_time() - begun:.0f} s")
    return rows


def check_all(table, problem, published, bars, size):
    """Print each method beside what was published; return whether those with a bar reach it."""
    results = []
    for method, value in published.items():
        if (method, problem, size) not in table:
            continue
        mean = table[method, problem, size][0]
        text = f"{method} at T = {size}: {mean:.4f}"
        if method in bars:
            results.append(check(f"{text}; at most {value:.4f} (published)", mean <= value))
        else:
            print(f"      {text}; published {value:.4f}")
    return all(results)


def main(description, folder, problem, published, bars, last=900):
    """Run, print, check and write; ``published`` errors are those at T = ``last``."""
    parser = options(description)
    parser.add_argument("--sizes", nargs="+", type=int)
    methods = (*METHODS, "limit") if problem == "maze" else METHODS
    parser.add_argument("--methods", nargs="+", choices=(*methods, "joint"), default=methods)
    given = parser.parse_args()
    runs = given.runs or (30 if given.full else 2)
    sizes = given.sizes or ((300, 500, 700, last) if given.full else (300,))
    seeds = range(given.first, given.first + runs)
    tasks = [(problem, size, run, tuple(given.methods)) for run in seeds for size in sizes]
    start = time.perf_counter()
    rows = compute(one_run, tasks, given.jobs, folder / "partial.jsonl" if given.full else None)
    table = summary(rows)
    print(f"\nmean (standard error) of {runs} runs; {time.perf_counter() - start:.0f} s\n")
    print_table(table)
    print()
    passed = check_all(table, problem, published, bars, last)
    if given.full and given.sizes is None and tuple(given.methods) == methods:
        write(rows, folder / "full.csv")
        draw(table, folder / "full.png", "squared error")
    return 0 if passed else 1
