"""Figure 3 of Fukumizu, Song and Gretton (2013): accuracy and time of likelihood-free inference.

The model of section 5.1: (z, x) Gaussian in d + d dimensions with covariance A^T A + 2 I, and a
prior of z half as wide as the marginal. Simulations come from the prior, as in section 4.4. Error:
squared distance to the true posterior mean, summed over dimensions, averaged over 10 observations
and 10 runs with random A. Time: CPU seconds of simulation, learning and all 10 answers, one thread.
Quick: n up to 600, one run. Full: n up to 6000, 10 runs.

    python experiments/kbr13_fig3/run.py [--full] [--runs N] [--first SEED] [--predictive]
"""

from __future__ import annotations

import csv
import sys
from itertools import product
from pathlib import Path

import numpy as np
from methods import (
    ABC,
    ADJUSTED,
    AUTO,
    CHOSEN,
    COLUMNS,
    COND,
    IMPORTANCE,
    KBR,
    LOOP,
    OPERATOR,
    PRIOR,
    Problem,
    euclidean,
    one_run,
    rejection,
    timed,
)
from threadpoolctl import threadpool_limits

from kernelbayes import reject_abc
from kernelbayes.select.search import progress_bar

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "statespace"))

from report import check, options  # noqa: E402

# Two readings of the paper's tolerance 0.001: on the relative trace error, as pivoted_cholesky
# has it, or on the trace. The first, cheaper one is judged; both are in the table.
JUDGED, OTHER = "relative 1e-3", "trace 1e-3"
PAPER_RANKS = {(2, 200): 30, (2, 6000): 50, (6, 200): 180, (6, 6000): 1200}


def summary(rows):
    """Mean error, its standard error, mean seconds and ranks by (d, method, n, setting)."""
    groups = {}
    for row in rows:
        setting = "" if row["method"] == AUTO else row["setting"]
        groups.setdefault((row["d"], row["method"], row["n"], setting), []).append(row)
    return {
        key: {
            "error": float(np.mean([row["error"] for row in group])),
            "spread": float(np.std([row["error"] for row in group]) / np.sqrt(len(group) - 1)),
            "seconds": float(np.mean([row["seconds"] for row in group])),
            "ranks": [
                f"{np.mean([row[name] for row in group]):.0f}" if group[0][name] != "" else ""
                for name in ("rank x", "rank z")
            ],
        }
        for key, group in groups.items()
    }


def curve(table, d, method, setting=None):
    """(n, seconds, error) of a method as n grows; without a setting, the best one at each n."""
    best = {}
    for (dim, name, n, how), cell in table.items():
        fits = (dim, name) == (d, method) and setting in (None, how)
        if fits and (n not in best or cell["error"] < best[n][2]):
            best[n] = (n, cell["seconds"], cell["error"])
    return [best[n] for n in sorted(best)]


def print_table(table):
    """One line per dimension, method, size and setting; of rejection only the best fraction."""
    print(f"{'d':>2s} {'method':38s}{'n':>8s}  {'setting':14s}{'error':>9s} {'(s.e.)':9s}"
          f"{'CPU s':>9s}{'rank x, z':>12s}")  # fmt: skip
    for (d, method, n, setting), cell in table.items():
        if method in (ABC, LOOP, ADJUSTED) and (n, cell["seconds"], cell["error"]) not in curve(
            table, d, method
        ):
            continue
        print(f"{d:2d} {method:38s}{n:8d}  {setting:14s}{cell['error']:9.4f} "
              f"({cell['spread']:.4f}) {cell['seconds']:9.4f}"
              f"{', '.join(r for r in cell['ranks'] if r):>12s}")  # fmt: skip


def at_cost(points, seconds):
    """Error of a curve at a CPU time, between its points on logarithmic axes."""
    _, times, errors = (np.array(column) for column in zip(*points, strict=True))
    return float(np.exp(np.interp(np.log(seconds), np.log(times), np.log(errors))))


def compare(label, points, others):
    """Check that the errors of (n, error) are below others (one each)."""
    pairs = [(n, e, o) for (n, e), o in zip(points, others, strict=True)]
    shown = "; ".join(f"n {n}: {e:.3f} {'<' if e < o else '>='} {o:.3f}" for n, e, o in pairs)
    return check(f"{label}: {shown}", all(e < o for _, e, o in pairs))


def judge(table, dimensions, setting=JUDGED):
    """Check the published ordering; the fraction rejection keeps is the best in hindsight."""
    results = []
    for d in dimensions:
        vectorised, loop = curve(table, d, ABC), curve(table, d, LOOP)
        by_size = {n: error for n, _, error in vectorised}
        prior = table[d, PRIOR, 0, ""]["error"]
        curves = {m: curve(table, d, m, setting) for m in (COND, CHOSEN, KBR, OPERATOR, IMPORTANCE)}
        for method, found in (curves | {AUTO: curve(table, d, AUTO)}).items():
            points = [(n, e) for n, _, e in found]
            others = {
                "rejection at equal CPU time": [at_cost(vectorised, s) for _, s, _ in found],
                "rejection one by one at equal CPU time": [at_cost(loop, s) for _, s, _ in found],
                "rejection at equal n": [by_size[n] for n, _ in points],
                "the prior mean": [prior] * len(points),
            }
            results += [compare(f"d {d}, {method} beats {k}", points, v) for k, v in others.items()]
        points = [(n, e) for n, _, e in curves[COND]]
        for rule in (KBR, OPERATOR):
            others = [at_cost(curves[rule], s) for _, s, _ in curves[COND]]
            results.append(compare(f"d {d}, {COND} beats {rule} at equal CPU time", points, others))
        for n in [n for n, _ in points if (d, n) in PAPER_RANKS]:
            ranks = {s: ", ".join(table[d, KBR, n, s]["ranks"]) for s in (setting, OTHER)}
            shown = "; ".join(f"{s}: {r}" for s, r in ranks.items())
            print(f"      d {d}, n {n}: ranks of x, z {shown}; paper about {PAPER_RANKS[d, n]}")
    return all(results)


def check_baseline(n, predictive):
    """Compare the bare rejection with kb.reject_abc on the same simulations."""
    rng = np.random.default_rng(0)
    problem = Problem(2, rng, predictive)
    theta, x = problem.simulate(n, rng)
    far = [euclidean(x, y) for y in problem.observed]
    gaps, seconds = [], []
    for adjust in (False, True):
        ours, bare = timed(rejection, theta, x, problem.observed, far, 0.03, adjust)
        library, spent = timed(
            lambda a=adjust: [
                reject_abc(theta, x, y, fraction=0.03, adjust=a, distance=euclidean).mean()
                for y in problem.observed
            ]
        )
        gaps.append(np.abs(ours - np.array(library)).max())
        seconds.append(f"{bare:.3f} and {spent:.3f} s")
    label = f"bare rejection equals kb.reject_abc at n {n}: {max(gaps):.1e}; {', '.join(seconds)}"
    return check(label, max(gaps) < 1e-8)


def write(rows, path):
    """Write all rows to a csv file."""
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        for row in rows:
            writer.writerow(row | {k: f"{row[k]:.6g}" for k in ("error", "seconds")})


def draw(table, dimensions, path):
    """Error against CPU time with sample sizes at the marks, if matplotlib is there."""
    try:
        import matplotlib as mpl

        mpl.use("Agg")
        import matplotlib.pyplot as plt
    except ImportError:
        print("matplotlib is not installed: no picture")
        return
    figure, panels = plt.subplots(1, 2, figsize=(12, 6), layout="constrained", squeeze=False)
    for d, axes in zip(dimensions, panels.flat, strict=False):
        for method in (ABC, LOOP, ADJUSTED, COND, CHOSEN, KBR, OPERATOR, IMPORTANCE, AUTO):
            setting = None if method in (ABC, LOOP, ADJUSTED, AUTO) else JUDGED
            sizes, seconds, errors = zip(*curve(table, d, method, setting), strict=True)
            axes.loglog(seconds, errors, "o-", markersize=3, label=method)
            for n, s, e in zip(sizes, seconds, errors, strict=True):
                axes.annotate(f"{n:,}", (s, e), fontsize=6, xytext=(2, 2),
                              textcoords="offset points")  # fmt: skip
        axes.axhline(table[d, PRIOR, 0, ""]["error"], color="grey", ls=":", label=PRIOR)
        axes.set(title=f"d = {d}", xlabel="CPU seconds", ylabel="squared error")
    figure.legend(*panels[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=4,
                  fontsize="small")  # fmt: skip
    figure.savefig(path, dpi=150)
    plt.close(figure)


def main():
    """Run, print, check and write."""
    parser = options(__doc__)
    parser.add_argument("--predictive", action="store_true",
                        help="observations from the prior predictive; print only")  # fmt: skip
    given = parser.parse_args()
    few = (200, 600, 2000, 6000, 20_000, 60_000)
    if given.full:
        sizes = {"kernel": few[:4], "auto": few[:2], "abc": (*few, 200_000, 600_000, 2_000_000)}
    else:
        sizes = {"kernel": few[:2], "auto": few[:1], "abc": few}
    runs = range(given.first, given.first + (given.runs or (10 if given.full else 1)))
    with threadpool_limits(1):
        one_run(2, 0, {"kernel": (50,), "auto": (50,), "abc": (50,)}, False)  # warm up
        rows = []
        with progress_bar(2 * len(runs), "runs", None) as bar:
            for d, run in product((2, 6), runs):
                rows += one_run(d, run, sizes, given.predictive)
                bar.update(1)
        stem = "full" if given.full else "quick"
        if not given.predictive:
            write(rows, HERE / f"{stem}.csv")
        table = summary(rows)
        print_table(table)
        print()
        passed = check_baseline(6000, given.predictive)
    passed = judge(table, (2, 6)) and passed
    if not given.predictive:
        draw(table, (2, 6), HERE / f"{stem}.png")
    return 0 if passed else 1


if __name__ == "__main__":
    raise SystemExit(main())
