"""Power of the tests at n = 200 on five problems, beside hyppo's MMD and HSIC with the same kernel.

Two samples of 200 points: blobs, mean shift, variance shift. 200 pairs: sine, circle. Every test
sees the same data sets at the 5 % level. The Linear kernel (means, correlation) is the trivial
baseline. hyppo is optional: without it its column is left out.

Time: quick 8 s, full not measured.

    python experiments/power/run.py [--full] [--runs N] [--hyppo N] [--read]
"""

from __future__ import annotations

import argparse
import csv
import sys
import time
from pathlib import Path

import numpy as np
from problems import PAIRS, TWO_SAMPLE, compute, compute_hyppo
from threadpoolctl import threadpool_limits

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "statespace"))

from report import canvas, check, write  # noqa: E402

LEVEL = 0.05
# First seed of the full run; the aggregated tests were designed on seeds from 1000 to 1499.
FRESH = 2000


def rejected(rows, problem, name):
    """Array of rejections, by data set."""
    return np.array([p <= LEVEL for q, _, t, p in rows if q == problem and t == name])


def print_table(rows):
    """Print the share of rejections: one line per test, one column per problem."""
    problems = list(dict.fromkeys(row[0] for row in rows))
    print(f"{'':18s}" + "".join(f"{p:>16s}" for p in problems))
    for name in dict.fromkeys(row[2] for row in rows):
        cells = [rejected(rows, problem, name) for problem in problems]
        print(
            f"{name:18s}" + "".join(f"{c.mean():16.3f}" if len(c) else f"{'':16s}" for c in cells)
        )


def check_all(rows, full):
    """Print one line for each requirement; return whether all hold."""
    passed = True
    for problem in {**TWO_SAMPLE, **PAIRS}:
        ours, many = (rejected(rows, problem, n) for n in ("permutation", "aggregated"))
        theirs = rejected(rows, problem, "hyppo")
        if len(theirs):
            ours_there = ours[: len(theirs)]
            difference = ours_there.astype(float) - theirs
            error = difference.std() / np.sqrt(len(theirs))
            text = (
                f"{problem}: permutation {ours_there.mean():.3f}, "
                f"hyppo {theirs.mean():.3f} on the same {len(theirs)} data sets "
                f"(bar: not lower by more than two standard errors, {2 * error:.3f})"
            )
            passed &= check(text, difference.mean() >= -2.0 * error, full)
        error = np.std(many.astype(float) - ours) / np.sqrt(len(many))
        text = (
            f"{problem}: aggregated {many.mean():.3f}, one kernel "
            f"{ours.mean():.3f} (bar: higher; the difference has standard error {error:.3f})"
        )
        passed &= check(text, many.mean() > ours.mean(), full)
    return passed


def draw(rows, path):
    """Draw power by problem and test, if matplotlib is there."""
    made = canvas(1, 1, (9, 4))
    if made is None:
        return
    figure, ((axes,),) = made
    problems = list(dict.fromkeys(row[0] for row in rows))
    names = list(dict.fromkeys(row[2] for row in rows))
    for i, name in enumerate(names):
        cells = [rejected(rows, problem, name) for problem in problems]
        heights = [c.mean() if len(c) else 0.0 for c in cells]
        axes.bar(np.arange(len(problems)) + 0.09 * i - 0.36, heights, 0.09, label=name)
    axes.axhline(LEVEL, color="black", lw=0.8, ls="--")
    axes.set_xticks(range(len(problems)), problems)
    axes.set(ylabel="power at 5 %", ylim=(0, 1))
    axes.legend(fontsize="small", ncols=3)
    figure.savefig(path, dpi=150)


def report(rows, runs, stem, seconds):
    """Print the table and the checks, write the files; return whether all requirements hold."""
    print(f"share of {runs} data sets rejected; {seconds:.0f} s\n")
    print_table(rows)
    print()
    passed = check_all(rows, stem == "full")
    write(rows, HERE / f"{stem}.csv", ("problem", "seed", "test", "pvalue"))
    draw(rows, HERE / f"{stem}.png")
    return passed


def main():
    """Run, print, check and write."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--full", action="store_true", help="200 data sets, hyppo on 50 of them")
    parser.add_argument("--quick", action="store_true", help="10 data sets (the default)")
    parser.add_argument("--runs", type=int, help="data sets per problem")
    parser.add_argument("--hyppo", type=int, help="data sets per problem that hyppo sees")
    parser.add_argument("--read", action="store_true", help="no run: print and check full.csv")
    options = parser.parse_args()
    if options.read:
        with (HERE / "full.csv").open(newline="") as file:
            table = csv.DictReader(file)
            rows = [(r["problem"], int(r["seed"]), r["test"], float(r["pvalue"])) for r in table]
        print_table(rows)
        return 0 if check_all(rows, full=True) else 1
    runs = options.runs or (200 if options.full else 10)
    by_default = 50 if options.full else 0
    beside = by_default if options.hyppo is None else options.hyppo
    first = FRESH if options.full else 0
    seeds, permutations = range(first, first + runs), 199 if options.full else 99
    stem = "full" if options.full else "quick"
    start = time.perf_counter()
    with threadpool_limits(1):
        rows = compute(seeds, permutations)
        passed = report(rows, runs, stem, time.perf_counter() - start)
        if beside:  # slow, so what we have is written first
            rows += compute_hyppo(seeds[:beside], permutations)
            passed = report(rows, runs, stem, time.perf_counter() - start)
    return 0 if passed else 1


if __name__ == "__main__":
    raise SystemExit(main())
