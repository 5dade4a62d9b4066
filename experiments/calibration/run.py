"""Coverage of credible intervals of conditional distributions, for every way of decoding them.

Three problems, n = 1000 pairs (x, z): jointly Gaussian, bimodal, and skewed with a spread that
depends on x. Kernels are Gaussian with the median heuristic, or what `tune` makes of them, and
ridges are the library's automatic choices. Coverage: the share of new
pairs (x, z) whose z lies in the equal-tailed interval decoded at x, for nominal 50, 80, 90 and
95 %. Quick: 4 data sets of each problem. Full: 25.

Time: quick 22 s, full about 3 min.

    python experiments/calibration/run.py [--full] [--runs N] [--seed 0]
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import numpy as np
from problems import DEFAULTS, LEVELS, OPTIONS, PROBLEMS, one_run
from threadpoolctl import threadpool_limits

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "statespace"))

from report import canvas, check, write  # noqa: E402

BAR = 3.0
NOISE = 0.3  # about half a standard error of one coverage


def summary(rows):
    """(problem, model, option) -> coverage error in points, its standard error, mean length."""
    found = {}
    for name, label, option, _, coverage, lengths in rows:
        found.setdefault((name, label, option), []).append((coverage, lengths))
    table = {}
    for key, values in found.items():
        coverage, lengths = (100.0 * np.array([v[i] for v in values]) for i in (0, 1))
        error = coverage.mean(axis=0) - 100.0 * np.array(LEVELS)
        table[key] = error, coverage.std(axis=0) / np.sqrt(len(values)), lengths.mean(axis=0) / 100
    return table


def print_table(table):
    """Print coverage minus nominal, in points, at every level, and the length of 90 % intervals."""
    header = "".join(f"{f'{100 * level:g} %':>8s}" for level in LEVELS)
    for name in PROBLEMS:
        print(f"\n{name + ': coverage minus nominal':44s}{header}{'s.e.':>7s}{'length':>8s}")
        for (problem_name, label, option), (error, spread, length) in table.items():
            if problem_name == name:
                cells = "".join(f"{e:8.1f}" for e in error)
                print(f"{label:29s}{option:15s}{cells}{spread.max():7.1f}{length[2]:8.2f}")


def check_all(table):
    """Print the largest error of every option; the default must meet the bar."""
    print("\nlargest |error| over problems and levels, in points")
    labels = list(dict.fromkeys(label for _, label, _ in table if label != "ignore x"))
    print(f"{'':15s}" + "".join(f"{label:>31s}" for label in labels))
    worst = {}
    for option in OPTIONS:
        for label in labels:
            errors = [np.abs(table[name, label, option][0]).max() for name in PROBLEMS]
            worst[option, label] = max(errors)
        print(f"{option:15s}" + "".join(f"{worst[option, label]:31.1f}" for label in labels))
    print()
    results = []
    for label in labels:
        value = worst["default", label]
        results.append(check(f"{label}: {value:.1f} points, bar {BAR:.0f}", value <= BAR))
    total = {o: np.mean([worst[o, label] for label in labels]) for o in OPTIONS}
    # Raw answers are no distribution, and recalibration needs the model: neither can be a default.
    choices = ("rearranged", "clipped", "projected", "smoothed")
    closest = min(choices, key=lambda o: total[o])
    text = (
        f"largest error averaged over models: default {total['default']:.2f}, "
        f"closest option {closest} {total[closest]:.2f} (noise {NOISE})"
    )
    results.append(check(text, total["default"] <= total[closest] + NOISE))
    return all(results)


def draw(table, path):
    """Draw coverage against nominal for each problem, if matplotlib is there."""
    made = canvas(2, len(PROBLEMS), (10, 6.5), sharex=True, sharey=True)
    if made is None:
        return
    figure, axes = made
    nominal = 100.0 * np.array(LEVELS)
    for row, label in zip(axes, (DEFAULTS[0], "tune(KernelBayesRule())"), strict=True):
        for ax, name in zip(row, PROBLEMS, strict=True):
            ax.axhspan(-BAR, BAR, color="0.92")
            ax.axhline(0.0, color="0.3", lw=0.8)
            for option in OPTIONS[:-1]:
                error, spread, _ = table[name, label, option]
                ax.errorbar(nominal, error, spread, marker="o", markersize=3, label=option)
            ax.set_title(f"{name}, {label}", fontsize="small")
            ax.set_xticks(nominal)
    for ax in axes[-1]:
        ax.set_xlabel("nominal coverage, %")
    for ax in axes[:, 0]:
        ax.set_ylabel("coverage minus nominal, points")
    axes[0, 0].legend(fontsize="small", ncols=2)
    figure.savefig(path, dpi=130)


def main():
    """Run, print, check and write."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--full", action="store_true", help="25 data sets of each problem")
    parser.add_argument("--quick", action="store_true", help="4 data sets (the default)")
    parser.add_argument("--runs", type=int, help="data sets of each problem")
    parser.add_argument("--seed", type=int, default=0, help="first seed; 0 writes files")
    options = parser.parse_args()
    runs = options.runs or (25 if options.full else 4)
    start = time.perf_counter()
    with threadpool_limits(1):
        seeds = range(options.seed, options.seed + runs)
        rows = [row for run in seeds for name in PROBLEMS for row in one_run(name, run)]
    table = summary(rows)
    print(f"{runs} data sets of each problem; {time.perf_counter() - start:.0f} s")
    print_table(table)
    passed = check_all(table)
    if options.seed == 0:
        stem = "full" if options.full else "quick"
        found = [
            (*key, *row)
            for key, values in table.items()
            for row in zip(LEVELS, *values, strict=True)
        ]
        header = ("problem", "model", "option", "level", "error", "s.e.", "length")
        write(found, HERE / f"{stem}.csv", header)
        draw(table, HERE / f"{stem}.png")
    return 0 if passed else 1


if __name__ == "__main__":
    raise SystemExit(main())
