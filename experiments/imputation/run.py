"""Missing cells of mixed tables: kernel belief propagation and the imputers of scikit-learn.

A fifth of all cells is hidden. Error: root mean square of hidden numbers in units of each column's
deviation; coverage of 90 % intervals; share of hidden categories that are right. Up to 300 rows.
Quick: three generated tables, two runs. Full: these and four of scikit-learn, ten runs.

Time: quick 18 s, full about 3 min.

    python experiments/imputation/run.py [--full] [--runs N] [--methods ...] [--tables ...]
"""

from __future__ import annotations

import sys
import time
import warnings
from pathlib import Path

import numpy as np
from sklearn.exceptions import ConvergenceWarning

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "statespace"))

from methods import LEVEL, METHODS, TABLES  # noqa: E402
from report import compute, judge, options, print_table, summary, write  # noqa: E402

from kernelbayes import NumericalWarning  # noqa: E402

MISSING, OWN, WITHIN = 0.2, "kernel belief propagation", 1.05  # of the best imputer's error
ERROR, COVERAGE, RIGHT = "error", "coverage", "categories right"


def one_run(table, run, names):
    """Rows of all methods on one table."""
    warnings.simplefilter("ignore", ConvergenceWarning)
    warnings.simplefilter("ignore", NumericalWarning)  # values at the ends of a column
    rng = np.random.default_rng(run)
    whole, categories = TABLES[table](rng)
    lost = {name: rng.random(len(v)) < MISSING for name, v in whole.items()}
    holes = {k: np.where(lost[k], np.nan, v) for k, v in whole.items()}
    numbers, rows = [k for k in whole if k not in categories], []
    for name in names:
        means, low, high = METHODS[name](holes, categories)
        errors = [np.mean((means[k] - whole[k])[lost[k]] ** 2) / whole[k].var() for k in numbers]
        inside = [((low[k] <= whole[k]) & (whole[k] <= high[k]))[lost[k]] for k in numbers]
        rows.append((ERROR, table, run, name, float(np.sqrt(np.mean(errors)))))
        rows.append((COVERAGE, table, run, name, float(np.concatenate(inside).mean())))
        for k in categories:
            rows.append((RIGHT, table, run, name, float((means[k] == whole[k])[lost[k]].mean())))
    return rows


def check_all(table, names, full):
    """Print whether the error is near the best, and the coverage the nearest to 90 %."""
    results = []
    for name in names:
        errors = {m: table[m, ERROR, name][0] for m in METHODS}
        best = min((m for m in METHODS if m != OWN), key=errors.get)
        bar, error = WITHIN * errors[best], table[OWN, ERROR, name][1]
        text = f"{name}: error {errors[OWN]:.3f}, at most 5 % above {best} ({errors[best]:.3f})"
        results.append(judge(text, errors[OWN], bar, error, full))
        gaps = {m: abs(table[m, COVERAGE, name][0] - LEVEL) for m in METHODS}
        rival = min((m for m in METHODS if m != OWN), key=gaps.get)
        text = f"{name}: coverage off by {gaps[OWN]:.3f}, {rival} by {gaps[rival]:.3f}"
        results.append(judge(text, gaps[OWN], gaps[rival], table[OWN, COVERAGE, name][1], full))
    return all(results)


def main():
    """Run, print, check and write."""
    parser = options(__doc__)
    parser.add_argument("--methods", nargs="+", choices=METHODS)
    parser.add_argument("--tables", nargs="+", choices=TABLES)
    given = parser.parse_args()
    names = tuple(given.methods or METHODS)
    runs = given.runs or (10 if given.full else 2)
    seeds = range(given.first, given.first + runs)
    start = time.perf_counter()
    saved = HERE / "partial.jsonl" if given.full else None
    tables = given.tables or (TABLES if given.full else ("household", "ring", "linear"))
    tasks = [(name, run, names) for run in seeds for name in tables]
    rows = compute(one_run, tasks, given.jobs, saved)
    table = summary(rows)
    print(f"mean (standard error) of {runs} runs; {time.perf_counter() - start:.0f} s\n")
    print_table(table, digits=3)
    print()
    passed = check_all(table, tables, given.full) if set(names) == set(METHODS) else True
    write(rows, HERE / f"{'full' if given.full else 'quick'}.csv")
    return 0 if passed else 1


if __name__ == "__main__":
    raise SystemExit(main())
