"""Figure 2 of Xu, Chen, Doucet and Gretton (2022): filtering a noisy turn in the plane.

A point turns in the plane, at constant or at oscillating radius, and is seen through noise. Filters
learn from one sequence of T steps with states and track a new sequence of 200 steps. Error: squared
distance to the state, averaged over the steps. Quick: T = 200, one run. Full: T = 500 and 900,
30 runs, with the original rule and the paper's Wilcoxon test of the two.

Time: quick 18 s, full not measured.

    python experiments/iw22_fig2/run.py [--full] [--runs N] [--first SEED] [--jobs 2]
        [--problems oscillatory] [--sizes 900]
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent / part) for part in ("", "statespace")]

from plane import BUDGET, DYNAMICS, LIMIT, SMALL, one_run  # noqa: E402
from report import check, compute, finish, options, paired, print_table, summary  # noqa: E402
from reproduction import published  # noqa: E402

# Above the particle filter by at most so much.
BARS = {
    ("rotation", 500): 0.10,
    ("oscillatory", 500): 0.13,
    ("rotation", 900): 0.065,
    ("oscillatory", 900): 0.08,
}


def check_all(table):
    """Print one line for each requirement; return whether all hold."""
    results = []
    for (problem, size), bar in BARS.items():
        if ("importance, tuned", problem, size) not in table:
            continue
        mean, limit = (table[m, problem, size][0] for m in ("importance, tuned", LIMIT))
        excess = mean / limit - 1.0
        label = f"{problem} T = {size}: tuned importance filter {mean:.4f}"
        text = f"{label}, {excess:+.1%} of the particle filter's {limit:.4f}; at most {bar:+.1%}"
        results.append(check(text, excess <= bar))
        static = table["kernel regression, tuned", problem, size][0]
        results.append(check(f"{label}, below static regression {static:.4f}", mean < static))
    for (name, problem, size), value in published(HERE.name).items():
        if (name, problem, size) in table:
            median = table[name, problem, size][2]
            print(
                f"      {problem} T = {size}: {name} {median:.4f} (median), published {value:.4f}"
            )
    return all(results)


def main():
    """Run, print, check and write."""
    parser = options(__doc__)
    parser.add_argument("--problems", nargs="+", choices=DYNAMICS, default=list(DYNAMICS))
    parser.add_argument("--sizes", nargs="+", type=int)
    given = parser.parse_args()
    runs = given.runs or (30 if given.full else 1)
    sizes = given.sizes or ((500, 900) if given.full else (200,))
    seeds = range(given.first, given.first + runs)
    budget = BUDGET if given.full else SMALL
    tasks = [("IW22", p, s, run, budget) for run in seeds for s in sizes for p in given.problems]
    start = time.perf_counter()
    rows = compute(one_run, tasks, given.jobs, HERE / "partial.jsonl" if given.full else None)
    table = summary(rows)
    print(f"mean (standard error) of {runs} runs; {time.perf_counter() - start:.0f} s")
    print("right: above the particle filter with the true model\n")
    print_table(table, LIMIT)
    print()
    passed = check_all(table)
    paired(rows, "importance, tuned", "original, tuned")
    if given.sizes is None and given.problems == list(DYNAMICS):  # all of it
        return finish(given, rows, HERE, passed, "squared error", published=published(HERE.name))
    return 0 if passed else 1


if __name__ == "__main__":
    raise SystemExit(main())
