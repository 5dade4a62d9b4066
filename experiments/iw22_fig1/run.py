"""Figure 1 of Xu, Chen, Doucet and Gretton (2022): learning a posterior mean from samples.

Pairs (x, z) are Gaussian in d + d dimensions; the prior of z is half as wide as the training
marginal. Error: squared distance to the true posterior mean, summed over dimensions and averaged
over 1000 conditioning points. Quick: d = 8 and 32, three runs. Full: all dimensions, 30 runs.

Time: quick 12 s, full about 10 min.

    python experiments/iw22_fig1/run.py [--full] [--runs N] [--first SEED] [--jobs 2] [--only TEXT]
"""

from __future__ import annotations

import sys
import time
import warnings
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent / part) for part in ("", "statespace", "posteriors")]

from gaussian import problem  # noqa: E402
from report import compare, compute, finish, judge, options, print_table, summary  # noqa: E402
from reproduction import published  # noqa: E402

from kernelbayes import Gaussian, KernelBayesRule, NumericalWarning, tune  # noqa: E402

DIMENSIONS, QUICK = (8, 16, 24, 32, 40, 48, 64), (8, 32)
CONSTANT, TUNED = "constant (prior mean)", "importance, tuned"
BARS = {8: 0.26, 32: 1.55, 64: 3.40}


def models(X, Z, prior):
    """Name of every row, and a function that makes its fitted model."""
    kernels = Gaussian.median(X), Gaussian.median(Z)
    # The paper's kernels in all rows; kernels of None would have a bandwidth for each column.
    chosen, chosen_original = KernelBayesRule(*kernels), KernelBayesRule(*kernels, "original")
    n = len(X)

    def literal(method, ridge):
        rule = KernelBayesRule(*kernels, method, 0.2, ridge, literal=True)
        return lambda: rule.fit(X, Z, prior=prior)

    # Algorithm 1 as printed has weights n times ours. The second ridge is then n times ours in the
    # importance rule, n^2 times in the original one. The figure has the one as ours, the other not.
    return {
        "importance, paper": literal("importance", 0.2),
        "importance, as printed": literal("importance", 0.2 / n),
        "original, paper": literal("original", 0.2 / n**2),
        "original, 1/n scale": literal("original", 0.2),
        "importance, default": lambda: chosen.fit(X, Z, prior=prior),
        TUNED: lambda: tune(chosen, X, Z, prior=prior),
        "original, tuned": lambda: tune(chosen_original, X, Z, prior=prior),
    }


def one_run(d, run, only=""):
    """Rows of one data set; the seed is the run."""
    warnings.simplefilter("ignore", NumericalWarning)  # some observations lie outside the sample
    one = problem(d, np.random.default_rng(run))
    rows = [("Gaussian", d, run, CONSTANT, one.error(np.zeros_like(one.truth)))]
    for name, make in models(one.X, one.Z, one.prior).items():
        if only in name:
            rows.append(("Gaussian", d, run, name, one.error(make().predict(one.x))))
    return rows


def check_all(table, dimensions, runs, full):
    """Print one line for each requirement; return whether all hold."""
    results = []
    for d in dimensions:
        mean, spread, _ = table[TUNED, "Gaussian", d]
        constant = table[CONSTANT, "Gaussian", d][0]
        label = f"d = {d:2d}  tuned importance rule {mean:.3f}"
        if d in BARS:
            text = f"{label}, at most {BARS[d]:.2f}"
            results.append(judge(text, mean, BARS[d], spread, full))
        text = f"{label}, below the constant {constant:.3f}"
        results.append(judge(text, mean, constant, spread, full))
    for key, value in published(HERE.name).items():
        if key in table:
            compare(f"d = {key[2]:2d}  {key[0]}", *table[key][:2], value, runs)
    return all(results)


def main():
    """Run, print, check and write."""
    parser = options(__doc__)
    parser.add_argument("--only", default="", help="rows with this in their name; print only")
    given = parser.parse_args()
    dimensions = DIMENSIONS if given.full else QUICK
    runs = given.runs or (30 if given.full else 3)
    seeds = range(given.first, given.first + runs)
    tasks = [(d, run, given.only) for run in seeds for d in dimensions]
    start = time.perf_counter()
    rows = compute(one_run, tasks, given.jobs, HERE / "partial.jsonl" if given.full else None)
    table = summary(rows)
    print(f"mean (standard error) of {runs} runs; {time.perf_counter() - start:.0f} s\n")
    print_table(table, digits=3)
    if given.only:
        return 0
    print()
    passed = check_all(table, dimensions, runs, given.full)
    drawing = {"xlabel": "dimension", "published": published(HERE.name), "log": True}
    return finish(given, rows, HERE, passed, "squared error", **drawing)


if __name__ == "__main__":
    raise SystemExit(main())
