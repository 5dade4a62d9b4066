"""Figure 4.5 of Kanagawa (2016): what low rank and subsampling cost and save in the KMCF.

The models of Figures 4.3 and 4.4. The thesis' own rule (Alg. 4) with all pairs, with low rank
(Alg. 5) and subsampled (Alg. 6), ours, the KBR filter with 1000 transitions, and kNN-PF, at one
setting for all. Time: CPU milliseconds a step, one thread. Error: root mean squared, 100 steps.
Quick: 1a and 1b, n = 200 and 400, one run. Full: all models at n = 400, 20 runs; 1a and 1b from
n = 200 to 1000, two runs.

Time: quick 12 s, full about 10 min.

    python experiments/kmcf16_fig4_5/run.py [--full] [--runs N] [--first SEED] [--jobs 2]
"""

from __future__ import annotations

import sys
import time
import warnings
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "statespace"))

from baselines import knn_log_likelihood, particle_filter, squared  # noqa: E402
from models import KANAGAWA, kanagawa  # noqa: E402
from report import check, compute, finish, options, print_table, summary  # noqa: E402
from thesis import VARIANTS, as_printed, kbr_filter, monte_carlo  # noqa: E402

LIMIT, PRINTED, KBR = "particle filter, true model", "Alg. 4 in plain matrices", "KBR filter"
KNN, PARTICLES = "kNN-PF", 5000  # as in the thesis
STEPS, FEW = 100, 10  # of a test sequence, and of plain matrices, whose time alone is of interest
SIZES, USUAL = (200, 400, 600, 800, 1000), 400


def one_run(name, size, run):
    """Rows of errors and times of all methods on one sample; the seed is the run."""
    warnings.simplefilter("ignore")  # of the thesis' rule, which has no safeguards
    model, rng = kanagawa(name), np.random.default_rng(run)
    train, test = model.simulate(size, rng), model.simulate(STEPS, rng)
    fitted = {variant: monte_carlo(variant, model, train, run) for variant in VARIANTS}
    first = fitted["KMCF (Alg. 4)"]
    ridges = first.prior_ridge_, first.ridge_
    fitted[KBR] = kbr_filter(model, train, ridges, run, rng)
    methods = {
        label: lambda f=f: f.filter(test.X, test.controls).mean() for label, f in fitted.items()
    }
    near = knn_log_likelihood(train.X, train.Z, 10, 0.3 * np.std(train.Z))
    methods |= {
        LIMIT: lambda: particle_filter(test.X, model, rng, 20000, test.controls),
        KNN: lambda: particle_filter(test.X, model, rng, PARTICLES, test.controls, near),
        PRINTED: lambda: as_printed(model, train, test, ridges, rng, FEW),
    }
    rows = [(name, size, run, "constant", rmse(np.full_like(test.Z, train.Z.mean()), test.Z))]
    for label, estimate in methods.items():
        begun = time.process_time()
        found = estimate()
        spent = 1000.0 * (time.process_time() - begun) / len(found)
        rows.append((f"{name}, ms a step", size, run, label, spent))
        if len(found) == STEPS:
            rows.append((name, size, run, label, rmse(found, test.Z)))
    return rows


def rmse(found, truth):
    """Root mean squared error; that of a filter that broke down is infinite."""
    return float(np.nan_to_num(np.sqrt(np.mean(squared(found, truth))), nan=np.inf))


def told(rows):
    """Rows in which a filter that broke down has the worst error of the others, not infinity."""
    worst = {}
    for problem, size, _, _, error in rows:
        if np.isfinite(error):
            worst[problem, size] = max(error, worst.get((problem, size), 0.0))
    return [(*row[:4], min(row[4], worst[row[0], row[1]])) for row in rows]


def check_all(table):
    """Print the claims of the thesis about time; return whether our bar holds."""
    sizes = sorted({s for _, p, s in table if p == "1a, ms a step"})
    small, large = sizes[0], sizes[-1]

    def cost(label, size):
        return table[label, "1a, ms a step", size][0]

    for label in (PRINTED, *VARIANTS, KBR, KNN):
        power = np.log(cost(label, large) / cost(label, small)) / np.log(large / small)
        print(f"      {label:30s} {cost(label, large):8.2f} ms at n = {large}, like n^{power:.1f}")
    ours, printed = cost("KMCF (Alg. 4)", large), cost(PRINTED, large)
    text = f"n = {large}: Alg. 4 here {ours:.1f} ms a step, below plain matrices' {printed:.1f}"
    return check(text, ours < printed)


def main():
    """Run, print, check and write."""
    given = options(__doc__).parse_args()
    runs, timed = given.runs or (20 if given.full else 1), 2  # times need few runs
    sizes, names = (SIZES, KANAGAWA) if given.full else (SIZES[:2], ("1a", "1b"))
    seeds = range(given.first, given.first + runs)
    tasks = [(name, USUAL, run) for run in seeds for name in names]
    tasks += [(m, s, r) for r in seeds[:timed] for m in ("1a", "1b") for s in sizes if s != USUAL]
    begun = time.perf_counter()
    rows = compute(one_run, tasks, given.jobs, HERE / "partial.jsonl" if given.full else None)
    table = summary(told(rows))
    print(f"\nmean (standard error) of {runs} runs; {time.perf_counter() - begun:.0f} s\n")
    for problem in dict.fromkeys(p for _, p, _ in table):
        print_table({k: v for k, v in table.items() if k[1] == problem}, digits=3)
        print()
    return finish(given, rows, HERE, check_all(table), "error; ms a step", log=True)


if __name__ == "__main__":
    raise SystemExit(main())
