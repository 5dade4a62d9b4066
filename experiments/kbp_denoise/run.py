"""Denoising by belief propagation (Song et al. 2011): sunsets of arcs in a number of grey levels.

Images of 100 x 100 pixels with Gaussian noise of deviation 30. The authors learned from the test
image with another draw of noise. Here models learn from one image, choose on a second and are
scored on a third; a row of its own has the authors' way. Quick: 10 and 100 levels, one run, without
particles and mixtures. Full: all 11 numbers of levels, three runs.

Time: quick 30 s, full not measured.

    python experiments/kbp_denoise/run.py [--full] [--runs N] [--first SEED] [--levels ...]
"""

from __future__ import annotations

import sys
import time
import warnings
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent / name) for name in ("statespace", "graphs")]

import methods  # noqa: E402
from images import noisy, rmse, sunset  # noqa: E402
from report import check, compute, draw, judge, options, print_table, summary, write  # noqa: E402

from kernelbayes import NumericalWarning  # noqa: E402

LEVELS, QUICK = (10, 25, 50, 75, 100, 125, 150, 175, 200, 225, 250), (10, 100)
PUBLISHED = dict(
    zip(LEVELS, (8.42, 8.09, 7.86, 8.01, 8.72, 7.80, 7.86, 7.88, 7.77, 8.18, 7.51), strict=True)
)
MANY, SECONDS = 75, 10.0  # levels from which filters are to be beaten; bar of a query
OWN, SAME, SLOW = "kernel BP", "kernel BP, same image", ("particle BP", "mixture BP")
FILTERS = ("total variation", "non-local means")


def one_run(levels, run, names):
    """Rows of all methods: learned on one image, chosen on a second, scored on a third."""
    warnings.simplefilter("ignore", NumericalWarning)  # grey levels outside the training image
    rng = np.random.default_rng([run, levels])
    images = [sunset(levels, rng) for _ in range(3)]
    train, solved, (test, seen) = [(image, noisy(image, rng)) for image in images]
    again = [(test, noisy(test, rng)) for _ in range(2)]
    rows = []
    for name in names:
        learn, choose = again if name == SAME else (train, solved)
        denoise = methods.METHODS[OWN if name == SAME else name](*learn, choose)
        start = time.process_time()
        error = rmse(denoise(seen), test)
        seconds = time.process_time() - start
        rows += [("RMSE", levels, run, name, error), ("seconds", levels, run, name, seconds)]
        print(f"{levels} levels, run {run}, {name}: {error:.2f}, {seconds:.1f} s", flush=True)
    return rows


def check_all(table, full):
    """Print our error beside what was published, and whether the bars hold."""
    results = []
    for levels in dict.fromkeys(size for _, _, size in table):
        mean, error, _ = table[OWN, "RMSE", levels]
        text = f"{levels} levels: {mean:.2f}"
        bar = PUBLISHED.get(levels, np.inf)
        results.append(judge(f"{text}, below {bar} (published)", mean, bar, error, full))
        if levels >= MANY:
            rivals = {name: table[name, "RMSE", levels][0] for name in FILTERS}
            least = min(rivals, key=rivals.get)
            label = f"{text}, below {least} ({rivals[least]:.2f})"
            results.append(judge(label, mean, rivals[least], error, full))
    slowest = max(
        one[0] for (name, what, _), one in table.items() if (name, what) == (OWN, "seconds")
    )
    return all(results) & check(
        f"a query takes {slowest:.1f} s at most; bar 10", slowest <= SECONDS
    )


def main():
    """Run, print, check and write."""
    parser = options(__doc__)
    parser.add_argument("--levels", nargs="+", type=int)
    parser.add_argument("--methods", nargs="+", choices=[*methods.METHODS, SAME])
    given = parser.parse_args()
    names = tuple(given.methods or [*methods.METHODS, SAME])
    if not given.full and given.methods is None:
        names = tuple(name for name in names if name not in SLOW)
    levels = given.levels or (LEVELS if given.full else QUICK)
    runs = given.runs or (3 if given.full else 1)
    seeds = range(given.first, given.first + runs)
    tasks = [(each, run, names) for run in seeds for each in levels]
    start = time.perf_counter()
    saved = HERE / "partial.jsonl" if given.full else None
    rows = compute(one_run, tasks, given.jobs, saved)
    table = summary(rows)
    print(f"\nmean (standard error) of {runs} runs; {time.perf_counter() - start:.0f} s\n")
    print_table(table, digits=2)
    print()
    needed = {OWN, *FILTERS} <= set(names)
    passed = check_all(table, given.full) if needed else True
    stem = "full" if given.full else "quick"
    write(rows, HERE / f"{stem}.csv")
    draw(table, HERE / f"{stem}.png", "RMSE", "grey levels")
    return 0 if passed else 1


if __name__ == "__main__":
    raise SystemExit(main())
