"""Figures 4.3 and 4.4 of Kanagawa (2016): the kernel Monte Carlo filter on eight models.

The transition is known; the observation model is learned from n simulated pairs. A test sequence
has 100 steps. Error: root mean squared error of the posterior mean. Quick: models 1a, 2a and 4b,
n = 200, one run. Full: all eight models, n = 200 to 1000, 20 runs.

Time: quick 18 s, full not measured.

    python experiments/kmcf16_fig4/run.py [--full] [--runs N] [--first SEED] [--jobs 2]
        [--models 1a 4b] [--sizes 1000] [--only-kmcf]
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "statespace"))

from baselines import (  # noqa: E402
    gp_log_likelihood,
    halves,
    particle_filter,
    squared,
    tuned_knn_filter,
    tuned_neighbours,
    tuned_regression,
)
from models import KANAGAWA, kanagawa  # noqa: E402
from report import check, compute, finish, options, print_table, summary  # noqa: E402

from kernelbayes import KernelBayesFilter, KernelMonteCarloFilter, tune  # noqa: E402

LIMIT = "particle filter, true model"
BAR, BAR_SIZE = 0.10, 1000
RANK, BUDGET = 100, 10


def one_run(name, size, run, methods=None, length=100):
    """Rows of every method on one training sample and one test sequence; the seed is the run."""
    model = kanagawa(name)
    rng = np.random.default_rng(run)
    train, test = model.simulate(size, rng), model.simulate(length, rng)
    pairs = train.X, train.Z
    folds = halves(size)
    ways = {
        LIMIT: lambda: particle_filter(test.X, model, rng, 20000, test.controls),
        "constant": lambda: np.full(test.Z.shape, train.Z.mean()),
        "nearest neighbours, tuned": lambda: tuned_neighbours(*pairs, test.X, folds)[0],
        "kernel regression, tuned": lambda: tuned_regression(*pairs, test.X, folds)[0],
        "kNN-PF, tuned": lambda: tuned_knn_filter(train, test, model, rng),
        "GP-PF": lambda: particle_filter(
            test.X, model, rng, 5000, test.controls, gp_log_likelihood(*pairs, rng)
        ),
    }
    if name[0] in "14":  # states and observations in the same units
        ways["raw observation"] = lambda: test.X

    def tuned(untuned):
        fitted = tune(untuned, *pairs, train.controls, budget=BUDGET, rng=run, progress=False)
        return fitted.filter(test.X, test.controls).mean()

    known = KernelMonteCarloFilter(model.transition, model.initial, picks=50, rank=RANK, rng=run)
    ways["KMCF, tuned"] = lambda: tuned(known)
    ways["kernel Bayes filter, tuned"] = lambda: tuned(KernelBayesFilter(rank=RANK, rng=run))
    found = {method: way() for method, way in ways.items() if methods is None or method in methods}
    return [
        (name, size, run, method, float(np.sqrt(np.mean(squared(estimate, test.Z)))))
        for method, estimate in found.items()
    ]


def check_all(table):
    """Print one line for each requirement; return whether all hold."""
    results = []
    for name in dict.fromkeys(problem for _, problem, _ in table):
        size = max(s for _, p, s in table if p == name)
        mean, limit = (table[m, name, size][0] for m in ("KMCF, tuned", LIMIT))
        excess = mean / limit - 1.0
        text = f"{name} n = {size}: KMCF {mean:.3f}, {excess:+.1%} of the limit {limit:.3f}"
        if size == BAR_SIZE:
            results.append(check(f"{text}; at most {BAR:+.0%}", excess <= BAR))
        else:
            print(f"      {text} (no bar)")
    return all(results)


def main():
    """Run, print, check and write."""
    parser = options(__doc__)
    parser.add_argument("--models", nargs="+", choices=KANAGAWA)
    parser.add_argument("--sizes", nargs="+", type=int)
    parser.add_argument("--only-kmcf", action="store_true", help="and the limit; writes no files")
    given = parser.parse_args()
    runs = given.runs or (20 if given.full else 1)
    names = given.models or (KANAGAWA if given.full else ("1a", "2a", "4b"))
    sizes = given.sizes or ((200, 400, 600, 800, 1000) if given.full else (200,))
    seeds = range(given.first, given.first + runs)
    start = time.perf_counter()
    methods = (LIMIT, "KMCF, tuned") if given.only_kmcf else None
    tasks = [(m, s, run, methods) for run in seeds for m in names for s in sizes]
    rows = compute(one_run, tasks, given.jobs, HERE / "partial.jsonl" if given.full else None)
    table = summary(rows)
    print(f"mean (standard error) of {runs} runs; {time.perf_counter() - start:.0f} s")
    print("right: above the particle filter with the true model\n")
    for name in names:
        print_table({key: v for key, v in table.items() if key[1] == name}, LIMIT, digits=3)
        print()
    passed = check_all(table)
    if given.only_kmcf:
        return 0 if passed else 1
    return finish(given, rows, HERE, passed, "root mean squared error")


if __name__ == "__main__":
    raise SystemExit(main())
