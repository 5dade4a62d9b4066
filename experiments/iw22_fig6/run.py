"""Figure 6 of Xu, Chen, Doucet and Gretton (2022): filtering a heart seen in noisy images.

A state turns in the plane at an oscillating radius; each image of 64 x 64 pixels shows a heart
where the state is, up to noise. Filters learn from one sequence of T steps and track a new one of
200 steps. Error: squared distance to the state, averaged over the steps. Quick: T = 300, two runs.
Full: T = 300, 500, 700 and 900, 30 runs. Needs torch.

    python experiments/iw22_fig6/run.py [--full] [--runs N] [--first SEED] [--jobs 2]
        [--sizes 900] [--methods importance learned]
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "statespace"))

from baselines import halves, squared, tuned_neighbours  # noqa: E402
from recurrent import lstm  # noqa: E402
from report import check, compute, draw, options, print_table, summary, write  # noqa: E402
from sprites import simulate  # noqa: E402

from kernelbayes import (  # noqa: E402
    ConditionalEmbedding,
    Gaussian,
    KernelBayesFilter,
    Linear,
    NeuralFeatures,
    tune,
)

# Medians read off the published figure, at T = 900. The first two are the bars.
PUBLISHED = {"importance": 0.0183, "learned": 0.0137, "original": 0.0241, "LSTM": 0.0386}
BARS, BAR_SIZE = ("importance", "learned"), 900
METHODS = ("original", "importance", "learned", "LSTM", "regression", "neighbours", "constant")
RANK = 200  # landmarks among the images: a step then costs little beside the distances
EPOCHS = 40  # of the features; held-out pairs stop them before


def one_run(size, run, methods, length=200):
    """Rows of some methods on one training and one test sequence; the seed is the run."""
    rng = np.random.default_rng(run)
    train, test = simulate(size, rng), simulate(length, rng)
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
            model = KernelBayesFilter(kernel, method=method, rank=RANK, rng=run).fit(X, Z)
            found = model.filter(new).mean()
        elif method == "learned":
            kernel = NeuralFeatures(epochs=EPOCHS, rng=run).fit(train.X, Z)
            # The kernel is the linear one of the features, which are computed once.
            model = KernelBayesFilter(Linear(), rng=run).fit(kernel.features(train.X), Z)
            found = model.filter(kernel.features(test.X)).mean()
        elif method == "LSTM":
            found = lstm(train.X, Z, test.X, seed=run)
        elif method == "regression":
            found = static(new).mean()
        elif method == "neighbours":
            found = tuned_neighbours(X, Z, new, halves(size))[0]
        else:
            found = np.broadcast_to(Z.mean(axis=0), test.Z.shape)
        error = float(np.mean(squared(found, test.Z)))
        rows.append(("sprites", size, run, method, error))
        print(f"T = {size}, run {run}, {method}: {error:.4f}, {time.process_time() - begun:.0f} s")
    return rows


def check_all(table):
    """Print one line for each requirement; return whether all hold."""
    results = []
    for method, published in PUBLISHED.items():
        if (method, "sprites", BAR_SIZE) not in table:
            continue
        text = f"{method} at T = {BAR_SIZE}: {table[method, 'sprites', BAR_SIZE][0]:.4f}"
        if method in BARS:
            mean = table[method, "sprites", BAR_SIZE][0]
            results.append(check(f"{text}; at most {published:.4f} (published)", mean <= published))
        else:
            print(f"      {text}; published {published:.4f}")
    return all(results)


def main():
    """Run, print, check and write."""
    parser = options(__doc__)
    parser.add_argument("--sizes", nargs="+", type=int)
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=METHODS)
    given = parser.parse_args()
    runs = given.runs or (30 if given.full else 2)
    sizes = given.sizes or ((300, 500, 700, 900) if given.full else (300,))
    seeds = range(given.first, given.first + runs)
    tasks = [(size, run, tuple(given.methods)) for run in seeds for size in sizes]
    start = time.perf_counter()
    rows = compute(one_run, tasks, given.jobs, HERE / "partial.jsonl" if given.full else None)
    table = summary(rows)
    print(f"\nmean (standard error) of {runs} runs; {time.perf_counter() - start:.0f} s\n")
    print_table(table)
    print()
    passed = check_all(table)
    if given.full and given.sizes is None and tuple(given.methods) == METHODS:
        write(rows, HERE / "full.csv")
        draw(table, HERE / "full.png", "squared error")
    return 0 if passed else 1


if __name__ == "__main__":
    raise SystemExit(main())
