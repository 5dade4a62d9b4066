"""Tables, checks, csv files and pictures that the state-space experiments share.

A row of results is (problem, size, run, method, error).
"""

from __future__ import annotations

import argparse
import csv
import json
import sys

import numpy as np
from joblib import Parallel, delayed
from scipy.stats import wilcoxon
from threadpoolctl import threadpool_limits
from tqdm import tqdm

HEADER = ("problem", "size", "run", "method", "error")


def options(description):
    """Command line of every script."""
    parser = argparse.ArgumentParser(description=description.split("\n")[0])
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--quick", action="store_true", help="a few runs (the default)")
    mode.add_argument("--full", action="store_true", help="all settings and runs")
    parser.add_argument("--runs", type=int, help="runs of each setting")
    parser.add_argument("--first", type=int, default=0, help="first seed; 1000 for development")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    return parser


def _single(function, task):
    with threadpool_limits(1):
        return function(*task)


def compute(function, tasks, jobs, saved=None):
    """Rows of all tasks, in order.

    With a file ``saved``, each finished task is written there at once, and tasks found there are
    not computed again: a run that was broken off goes on where it was. Delete it after a change.
    """
    done = {}
    if saved is not None and saved.exists():
        done = dict(map(json.loads, saved.read_text().splitlines()))
    left = [task for task in tasks if repr(task) not in done]
    if len(left) < len(tasks):
        print(f"{len(tasks) - len(left)} of {len(tasks)} tasks were done before: {saved}")
    # One job means here, or the backend that joblib.parallel_config names.
    pool = Parallel(n_jobs=jobs if jobs > 1 else None, return_as="generator")
    results = pool(delayed(_single)(function, task) for task in left)
    shown = tqdm(left, unit="task", disable=None)  # only where somebody is watching
    for task, rows in zip(shown, results, strict=True):
        done[repr(task)] = rows
        if saved is not None:
            with saved.open("a") as file:
                file.write(json.dumps([repr(task), rows]) + "\n")
    return [tuple(row) for task in tasks for row in done[repr(task)]]


def summary(rows):
    """Mean, standard error and median of the error by (method, problem, size)."""
    found = {}
    for problem, size, _, method, error in rows:
        found.setdefault((method, problem, size), []).append(error)
    return {
        key: (
            np.mean(v),
            np.std(v, ddof=1) / np.sqrt(len(v)) if len(v) > 1 else np.nan,
            np.median(v),
        )
        for key, v in found.items()
    }


def print_table(table, reference=None, digits=4):
    """Print one line per method and one column per setting: mean, (standard error), excess in %."""
    columns = list(dict.fromkeys((p, s) for _, p, s in table))
    methods = list(dict.fromkeys(m for m, _, _ in table))
    width = 27
    print(" " * 30 + "".join(f"{f'{p} {s}':>{width}s}" for p, s in columns))
    for method in methods:
        cells = []
        for p, s in columns:
            if (method, p, s) not in table:
                cells.append("")
                continue
            mean, error, _ = table[method, p, s]
            cell = f"{mean:.{digits}f} ({error:.{digits}f})"
            if reference is not None:
                cell += f" {100.0 * (mean / table[reference, p, s][0] - 1.0):+6.1f} %"
            cells.append(cell)
        print(f"{method:30s}" + "".join(f"{cell:>{width}s}" for cell in cells))


def check(label, passed, full=None):
    """Print one line and return whether it passed.

    Bars are for full runs: a quick one (no --full on the command line) leaves open what it misses.
    """
    if not passed and not ("--full" in sys.argv if full is None else full):
        print(f"OPEN  {label} (missed by a quick run; --full decides)")
        return True
    print(f"{'PASS' if passed else 'FAIL'}  {label}")
    return bool(passed)


def judge(label, value, limit, error, full):
    """Print whether a mean is at most a limit, and by how many standard errors it is not."""
    if value > limit and error > 0.0:
        label += f" (off by {(value - limit) / error:.1f} standard errors)"
    return check(label, value <= limit, full)


def compare(label, mean, error, published, runs, published_runs=30):
    """Print a mean of some runs beside a published one, which has an error of its own."""
    if runs == 1:
        print(f"      {label}: {mean:.3f} (one run, no error), published {published:.3f}")
        return
    away = abs(mean - published) / (error * np.sqrt(1.0 + runs / published_runs))
    told = "within" if away <= 2.0 else "outside"
    text = f"{label}: {mean:.3f} ({error:.3f}), published {published:.3f}"
    print(f"      {text}: {told} the combined error ({away:.1f} standard errors)")


def paired(rows, one, other):
    """Print for each setting whether one method is better than another on the same runs.

    With the p-value of Wilcoxon's signed rank test (as in IW22), which needs at least six runs.
    """
    for problem, size in dict.fromkeys((p, s) for p, s, _, m, _ in rows if m == one):
        errors = [
            {run: e for p, s, run, m, e in rows if (p, s, m) == (problem, size, name)}
            for name in (one, other)
        ]
        runs = sorted(errors[0].keys() & errors[1].keys())
        first, second = (np.array([found[run] for run in runs]) for found in errors)
        if len(runs) > 0:
            p = f"{wilcoxon(first, second).pvalue:.2g}" if len(runs) > 5 else "- (too few runs)"
            gain = 1.0 - np.mean(first) / np.mean(second)
            print(f"      {problem}, {size}: {one} {np.mean(first):.4f}, {other} "
                  f"{np.mean(second):.4f}: {gain:+.1%} better, Wilcoxon p = {p}")  # fmt: skip


def finish(given, rows, folder, passed, ylabel, **drawing):
    """Write all rows and their picture, full.* or quick.*; return the exit code."""
    stem = folder / ("full" if given.full else "quick")
    write(rows, stem.with_suffix(".csv"))
    draw(summary(rows), stem.with_suffix(".png"), ylabel, **drawing)
    print(f"results: {stem}.csv, {stem}.png")
    return 0 if passed else 1


def write(rows, path, header=HEADER):
    """Write rows, of values or dicts by the names in ``header``, to a csv file."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(header)
        for row in rows:
            values = [row[name] for name in header] if isinstance(row, dict) else row
            writer.writerow(f"{v:.6g}" if isinstance(v, float) else v for v in values)


def canvas(high=1, wide=1, size=None, **sharing):
    """Return a figure and its axes (high, wide), or None if matplotlib is missing."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        print("matplotlib is not installed: no picture")
        return None
    figure = Figure(figsize=size, layout="constrained")
    return figure, figure.subplots(high, wide, squeeze=False, **sharing)


def draw(table, path, ylabel, xlabel="training pairs", published=None, log=False):
    """Draw error against size, one panel per problem, if matplotlib is there.

    ``published`` has errors by (method, problem, size): crosses in the colour of the method.
    """
    problems = list(dict.fromkeys(p for _, p, _ in table))
    wide = min(len(problems), 4)
    high = -(-len(problems) // wide)
    made = canvas(high, wide, (1.0 + 3.6 * wide, 0.6 + 3.0 * high))
    if made is None:
        return
    figure, panels = made
    for problem, axes in zip(problems, panels.flat, strict=False):
        for method in dict.fromkeys(m for m, p, _ in table if p == problem):
            sizes = [s for m, p, s in table if (m, p) == (method, problem)]
            means, errors, _ = zip(*(table[method, problem, s] for s in sizes), strict=True)
            line = axes.errorbar(sizes, means, errors, marker="o", markersize=3, label=method)
            known = {s: (published or {}).get((method, problem, s)) for s in sizes}
            points = [(s, value) for s, value in known.items() if value is not None]
            if points:
                text = f"{method}, published"
                axes.plot(*zip(*points, strict=True), "x", color=line[0].get_color(), label=text)
        axes.set(title=problem, xlabel=xlabel, ylabel=ylabel, yscale="log" if log else "linear")
    for axes in panels.flat[len(problems) :]:
        axes.set_axis_off()
    panels[0, 0].legend(fontsize="x-small")
    figure.savefig(path, dpi=150)
