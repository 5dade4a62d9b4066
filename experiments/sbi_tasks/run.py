"""Ten benchmark tasks of likelihood-free inference (Lueckmann et al. 2021).

Score: accuracy of a classifier that tells 1000 draws from 1000 of the exact posterior (C2ST; .5 is
perfect), and squared MMD. Quick: two moons, one observation, 1000 simulations. Full: all tasks,
1000 and 10 000 simulations, five observations; it can be broken off and goes on where it was.

Time: quick 24 s, full not measured.

    python experiments/sbi_tasks/run.py [--full] [--runs N] [--tasks NAME ...] [--jobs 2]
    python experiments/sbi_tasks/run.py --references   # make all reference posteriors
    python experiments/sbi_tasks/run.py --tune         # choose how much rejection ABC keeps
"""

from __future__ import annotations

import json
import sys
import time
from itertools import product
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "statespace"))

import numpy as np  # noqa: E402
from methods import CHOSEN, one_job, tuning_job  # noqa: E402
from references import make_all  # noqa: E402
from report import compute, options  # noqa: E402
from table import BUDGETS, check_all, draw, print_table, summary, write  # noqa: E402
from tasks import TASKS  # noqa: E402

QUICK = ["two_moons"]
DEVELOPMENT = range(1000, 1003)


def tune(names, jobs):
    """Choose how much rejection ABC keeps on development observations; write kept.json."""
    scores = {}
    work = list(product(names, BUDGETS, DEVELOPMENT, (False, True)))
    for key, kept, score in compute(tuning_job, work, jobs):
        scores.setdefault(key, {}).setdefault(kept, []).append(score)
    best = json.loads(CHOSEN.read_text()) if CHOSEN.exists() else {}
    for key, found in scores.items():
        means = {kept: float(np.mean(values)) for kept, values in found.items()}
        best[key] = min(means, key=means.__getitem__)
        print(f"{key:40s}", *(f"{kept}: {mean:.3f}" for kept, mean in means.items()), sep="  ")
    CHOSEN.write_text(json.dumps(best, indent=1) + "\n")


def main():
    """Run, print, check and write."""
    parser = options(__doc__)
    parser.add_argument("--references", action="store_true", help="only make reference posteriors")
    parser.add_argument("--tune", action="store_true", help="only choose how much ABC keeps")
    parser.add_argument("--tasks", nargs="+", choices=list(TASKS), help="these tasks only")
    given = parser.parse_args()
    every = given.full or given.references or given.tune
    names = given.tasks or (list(TASKS) if every else QUICK)
    if given.references:
        return 0 if make_all(names, range(given.first, given.first + (given.runs or 10))) else 1
    if given.tune:
        tune(names, given.jobs)
        return 0
    runs = given.runs or (5 if given.full else 1)
    budgets = (0, *BUDGETS) if given.full else (0, BUDGETS[0])
    seeds = range(given.first, given.first + runs)
    work = [(name, n, seed) for name in names for n in budgets for seed in seeds]
    start = time.perf_counter()
    rows = compute(one_job, work, given.jobs, HERE / "partial.jsonl" if given.full else None)
    table = summary(rows)
    print(f"mean of {runs} observations; {time.perf_counter() - start:.0f} s\n")
    print_table(table)
    print()
    passed = check_all(table)
    stem = "full" if given.full else "quick"
    write(rows, HERE / f"{stem}.csv")
    draw(table, HERE / f"{stem}.png")
    return 0 if passed else 1


if __name__ == "__main__":
    raise SystemExit(main())
