"""Coverage of credible intervals of conditional distributions, for every way of decoding them.

Three problems, n = 1000 pairs (x, z): jointly Gaussian, bimodal, and skewed with a spread that
depends on x. Kernels are Gaussian with the median heuristic, or what `tune` makes of them, and
ridges are the library's automatic choices. Coverage: the share of new
pairs (x, z) whose z lies in the equal-tailed interval decoded at x, for nominal 50, 80, 90 and
95 %. Quick: 4 data sets of each problem. Full: 25.

    python experiments/calibration/run.py [--full] [--runs N] [--seed 0]
"""

from __future__ import annotations

import argparse
import csv
import sys
import time
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

from kernelbayes import ConditionalEmbedding, Gaussian, KernelBayesRule, tune
from kernelbayes.select.calibration import calibrate

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "statespace"))

from report import check  # noqa: E402

N, TESTS = 1000, 200
LEVELS = (0.5, 0.8, 0.9, 0.95)
PROBLEMS = ("gaussian", "bimodal", "skewed")
OPTIONS = ("raw", "rearranged", "clipped", "projected", "smoothed", "recalibrated", "default")
DEFAULTS = ("ConditionalEmbedding()", "KernelBayesRule()")
BAR = 3.0
NOISE = 0.3  # about half a standard error of one coverage


def problem(name, n, rng):
    """Pairs x (n,), z (n,)."""
    x = rng.normal(size=n)
    if name == "gaussian":
        return x, 0.8 * x + 0.6 * rng.normal(size=n)
    if name == "bimodal":
        side = rng.choice([-1.0, 1.0], size=n)
        return x, side * (1.0 + 0.5 * np.tanh(x)) + 0.3 * rng.normal(size=n)
    return x, np.sin(x) + 0.5 * np.exp(0.3 * x) * rng.gamma(2.0, size=n)


def models(x, z):
    """Name, fitted model and what maps x to posteriors."""
    kernels = Gaussian.median(x), Gaussian.median(z)
    cme = ConditionalEmbedding(*kernels).fit(x, z)
    yield DEFAULTS[0], cme, cme
    kbr = KernelBayesRule(*kernels).fit(x, z)
    yield DEFAULTS[1], kbr, kbr.posterior
    cme = tune(ConditionalEmbedding(*kernels), x, z)
    yield "tune(ConditionalEmbedding())", cme, cme
    kbr = tune(KernelBayesRule(*kernels), x, z)
    yield "tune(KernelBayesRule())", kbr, kbr.posterior


def intervals(option, model, posterior, rng):
    """Intervals (levels, tests, 2)."""
    if option == "recalibrated":
        calibration = calibrate(model)
        return np.stack([calibration.interval(posterior, level)[:, 0] for level in LEVELS])
    if option == "smoothed":
        draws = posterior.sample(1000, rng, method="iid")[:, :, 0]
        ends = [((1 - level) / 2, (1 + level) / 2) for level in LEVELS]
        return np.stack([np.quantile(draws, pair, axis=1).T for pair in ends])
    valid = True if option == "default" else option
    return np.stack([posterior.interval(level, valid=valid)[:, 0] for level in LEVELS])


def one_run(name, run):
    """Rows (problem, model, option, run, coverage at each level) of one data set."""
    rng = np.random.default_rng(run)
    x, z = problem(name, N, rng)
    x_new, z_new = problem(name, TESTS, rng)
    # The trivial baseline forgets x: quantiles of the training z.
    tails = np.array([((1 - level) / 2, (1 + level) / 2) for level in LEVELS])
    low, high = np.quantile(z, tails.T)
    inside = (low[:, None] <= z_new) & (z_new <= high[:, None])
    rows = [(name, "ignore x", "quantiles of z", run, inside.mean(1), (high - low))]
    for label, model, posterior_of in models(x, z):
        posterior = posterior_of(x_new[:, None])
        for option in OPTIONS:
            found = intervals(option, model, posterior, rng)
            inside = (found[..., 0] <= z_new) & (z_new <= found[..., 1])
            lengths = (found[..., 1] - found[..., 0]).mean(axis=1)
            rows.append((name, label, option, run, inside.mean(axis=1), lengths))
    return rows


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
    try:
        from matplotlib.figure import Figure
    except ImportError:
        print("matplotlib is not installed: no picture")
        return
    figure = Figure(figsize=(10, 6.5), layout="constrained")
    axes = figure.subplots(2, len(PROBLEMS), sharex=True, sharey=True)
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
        with (HERE / f"{stem}.csv").open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["problem", "model", "option", "level", "error", "s.e.", "length"])
            for key, values in table.items():
                for row in zip(LEVELS, *values, strict=True):
                    writer.writerow([*key, *(f"{v:.4g}" for v in row)])
        draw(table, HERE / f"{stem}.png")
    return 0 if passed else 1


if __name__ == "__main__":
    raise SystemExit(main())
