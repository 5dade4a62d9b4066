"""Figure 4 of Fukumizu, Song and Gretton (2013): learned filters beside EKF and UKF.

The same two dynamics as in iw22_fig2, in the form of KBR13 (the radius oscillates with the angle
after the step, not before it), for training sequences of growing length. Error: squared distance
to the state, averaged over the steps. Quick: T = 200, one run. Full: T = 100 to 900, 30
runs.

Time: quick 18 s, full not measured.

    python experiments/kbr13_fig4/run.py [--full] [--runs N] [--first SEED] [--jobs 2]
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "statespace"))

from plane import BUDGET, DYNAMICS, LIMIT, SMALL, one_run  # noqa: E402
from report import check, compute, finish, options, paired, print_table, summary  # noqa: E402


def check_all(table):
    """Print one line for each claim of the paper and bar of ours; return whether all hold."""
    results = []
    for name, problem, size in table:
        if name != "importance, tuned":
            continue
        mean, limit, ekf = (table[m, problem, size][0] for m in (name, LIMIT, "EKF, true model"))
        label = f"{problem} T = {size}: tuned importance filter {mean:.4f}"
        if problem == "oscillatory" and size > 200:  # the paper: better than EKF for T > 200
            results.append(check(f"{label}, below the EKF's {ekf:.4f}", mean < ekf))
        bars = {("rotation", 500): 0.10, ("oscillatory", 500): 0.13}
        bars |= {("rotation", 900): 0.065, ("oscillatory", 900): 0.08}
        if (problem, size) in bars:
            excess, bar = mean / limit - 1.0, bars[problem, size]
            text = f"{label}, {excess:+.1%} of the particle filter's {limit:.4f}"
            results.append(check(f"{text}; at most {bar:+.1%}", excess <= bar))
    return all(results)


def main():
    """Run, print, check and write."""
    given = options(__doc__).parse_args()
    runs = given.runs or (30 if given.full else 1)
    sizes = (100, 200, 300, 500, 900) if given.full else (200,)
    seeds = range(given.first, given.first + runs)
    budget = BUDGET if given.full else SMALL
    tasks = [("KBR13", p, s, run, budget) for run in seeds for s in sizes for p in DYNAMICS]
    start = time.perf_counter()
    rows = compute(one_run, tasks, given.jobs, HERE / "partial.jsonl" if given.full else None)
    table = summary(rows)
    print(f"mean (standard error) of {runs} runs; {time.perf_counter() - start:.0f} s")
    print("right: above the particle filter with the true model\n")
    print_table(table, LIMIT)
    print()
    passed = check_all(table)
    paired(rows, "importance, tuned", "original, tuned")
    paired(rows, "importance, tuned", "UKF, true model")
    return finish(given, rows, HERE, passed, "squared error")


if __name__ == "__main__":
    raise SystemExit(main())
