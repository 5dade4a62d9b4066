"""How fast each estimator converges, beside the exponents of the papers' theorems.

z is N(0, 1), x = z + N(0, 1/4) and the prior of z is N(0.3, 0.36), all known, under Gaussian
kernels of bandwidth one. Each estimator has the ridges of its theorem (all constants one) and ours.
Errors are in the RKHS, except those of the ratio (root mean square under the training marginal) and
of Bayes' rule (E[f(z) | x] for f = k(., 0.5), root mean square under the marginal of x, as in KBR13
Theorem 7). The slope of log error against log n is the empirical exponent. A theorem is an upper
bound as n grows: the slope may be steeper, or not yet there.

Quick: n = 100 to 1600, five runs. Full: to 6400, 20 runs.

Time: quick 14 s, full not measured.

    python experiments/rates/run.py [--full] [--runs N] [--first SEED] [--jobs 2]
"""

from __future__ import annotations

import sys
import time
import warnings
from pathlib import Path

import numpy as np
from estimators import errors

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "statespace"))

from report import check, compute, finish, options, summary  # noqa: E402

from kernelbayes import NumericalWarning  # noqa: E402

SIZES, QUICK = (100, 200, 400, 800, 1600, 3200, 6400), (100, 200, 400, 800, 1600)
# Exponents for an i.i.d. prior sample (alpha = 1/2) and the smoothest case of each theorem.
THEOREMS = {
    "embedding": (1 / 2, "CME13 eq. 1"),
    "conditional": (1 / 4, "CME13 3.2, ridge n^-1/2"),
    "sum rule": (1 / 3, "KBR13 Thm 11, ridge n^-1/3"),
    "ratio": (1 / 6, "IW22 Thm 3.4, ridge n^-1/3"),
    "original": (1 / 6, "KBR13 Thm 7, ridges n^-1/3, n^-1/6"),
    "importance": (1 / 18, "IW22 Thm 3.6, ridges n^-1/3, n^-1/9"),
}
RIDGES = {
    "conditional": (lambda n: n**-0.5,),
    "sum rule": (lambda n: n ** (-1 / 3),),
    "ratio": (lambda n: n ** (-1 / 3),),
    "original": (lambda n: n ** (-1 / 3), lambda n: n ** (-1 / 6)),
    "importance": (lambda n: n ** (-1 / 3), lambda n: n ** (-1 / 9)),
}
OURS = "ours"


def one_run(n, run):
    """Rows of all estimators on samples of one size; the seed is the run."""
    warnings.simplefilter("ignore", NumericalWarning)  # some points lie outside the sample
    rows = []
    for name in THEOREMS:
        schedules = {"theorem": tuple(ridge(n) for ridge in RIDGES.get(name, ()))}
        if name in RIDGES:
            schedules[OURS] = ()
        for whose, ridges in schedules.items():
            error = errors(name, n, ridges, np.random.default_rng([run, n]))
            rows.append((name, n, run, whose, error))
    return rows


def slope(rows, name, whose):
    """Exponent of the error in n over all runs, and its standard error."""
    pairs = [(np.log(n), np.log(e)) for p, n, _, m, e in rows if (p, m) == (name, whose)]
    fit, cov = np.polyfit(*np.array(pairs).T, 1, cov=True)
    return float(-fit[0]), float(np.sqrt(cov[0, 0]))


def main():
    """Run, print, check and write."""
    given = options(__doc__).parse_args()
    runs, sizes = given.runs or (20 if given.full else 5), SIZES if given.full else QUICK
    tasks = [(n, run) for run in range(given.first, given.first + runs) for n in sizes]
    start = time.perf_counter()
    rows = compute(one_run, tasks, given.jobs, HERE / "partial.jsonl" if given.full else None)
    table, lines = summary(rows), []
    print(f"mean error of {runs} runs; {time.perf_counter() - start:.0f} s\n")
    print(f"{'':24s}" + "".join(f"{f'n = {n}':>12s}" for n in sizes) + f"{'exponent':>18s}")
    for name, (bound, where) in THEOREMS.items():
        for whose in ("theorem", OURS):
            if (whose, name, sizes[0]) not in table:
                continue
            found, error = slope(rows, name, whose)
            cells = "".join(f"{table[whose, name, n][0]:12.5f}" for n in sizes)
            print(f"{f'{name}, {whose}':24s}{cells}{f'{found:.2f} ({error:.2f})':>18s}")
            if whose == "theorem":
                told = "reached" if found >= bound - 2.0 * error else "not yet reached at these n"
                print(f"{'':24s}{where}: {bound:.2f}, {told}")
            else:
                last, theirs = (table[w, name, sizes[-1]][0] for w in (OURS, "theorem"))
                text = f"{name}: our ridges {last:.4f}, below the theorem's {theirs:.4f}"
                lines.append((text, last < theirs))
    print()
    passed = sum(check(*line) for line in lines) == len(lines)
    return finish(given, rows, HERE, passed, "error", log=True)


if __name__ == "__main__":
    raise SystemExit(main())
