"""Figures 4.6 to 4.9 of Kanagawa (2016): a robot finds its place by its camera and odometry.

A robot drives through the demo's building. Positions and images of one drive are subsampled to n
examples; kernels and ridges are chosen on a second drive; a third one of 168 frames is the test,
seen at every frame, every second or every third one. Images are compared by a spatial pyramid of
visual words; odometry moves the particles. Error: root mean squared error of the place, in metres.
Quick: n = 150, every third frame, one run. Full: n = 200, 400, 800, all intervals, 20 runs.

Time: quick 12 s, full about 2 h.

    python experiments/kmcf16_fig4_8/run.py [--full] [--runs N] [--first SEED] [--jobs 2]
        [--sizes 200 400]
"""

from __future__ import annotations

import sys
import time
import warnings
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "statespace"))

from baselines import choose  # noqa: E402
from methods import (  # noqa: E402
    ORIGINAL,
    PYRAMID,
    bayes_filter,
    heaviest,
    knn_filter,
    monte_carlo,
    place_error,
)
from report import check, compute, finish, options, print_table, summary  # noqa: E402
from robot import trajectories  # noqa: E402

THESIS, OURS, KNN, KBR = "KMCF (Alg. 4)", "KMCF, importance rule", "kNN-PF", "KBR filter"
NAIVE, CONSTANT = "nearest image", "constant"
REDUCED = {
    "KMCF-low50": {"rank": 50, "low_rank": "cholesky"},
    "KMCF-low100": {"rank": 100, "low_rank": "cholesky"},
    "KMCF-sub150": {"subsample": 150, "sweeps": 0},
    "KMCF-sub300": {"subsample": 300, "sweeps": 0},
}
PARTICLES = 5000  # of kNN-PF, as in section 4.5.1 of the thesis
# What is tried on the second drive: bandwidths over the median distance, ridges, neighbours.
SCALES, DELTAS, LAMBDAS = (0.1, 0.2, 0.4), (1e-4, 1e-6), (1.0, 1e-1, 1e-2)
NEIGHBOURS, WIDTHS = (3, 10), (0.3, 1.0)  # metres, and radians on the circle
# Frames of the three drives: the last as in the thesis, the first about six times its way.
LENGTHS = 1000, 168, 168
CHOOSING = 60  # steps of the second drive


def one_run(size, interval, run):
    """Rows of errors and times of all methods; the seed is the run."""
    warnings.simplefilter("ignore")  # of the thesis' rule, which has no safeguards
    rng = np.random.default_rng(run)
    learn, second, third = trajectories(LENGTHS, (1, interval), rng)
    some = rng.choice(LENGTHS[0], size, replace=False)
    pairs = learn[0].X[some], learn[0].Z[some], learn[1].controls
    test, held = third[1], second[1]
    short = type(held)(held.X[:CHOOSING], held.Z[:CHOOSING], held.controls[:CHOOSING])

    def tried(make, *values):
        return choose(
            [(a, b) for a in values[0] for b in values[1]],
            lambda a, b: place_error(np.nan_to_num(make(short, a, b)), short.Z),
        )

    def by_kmcf(rule):
        return lambda on, a, b: heaviest(monte_carlo(pairs, a, b, rule, run), on)

    thesis = tried(by_kmcf(ORIGINAL), SCALES, DELTAS)
    ours = tried(by_kmcf({}), SCALES, LAMBDAS)
    knn = tried(lambda on, k, w: knn_filter(pairs, on, k, w, rng, 1000), NEIGHBOURS, WIDTHS)
    kbr = tried(lambda on, a, b: heaviest(bayes_filter(learn[1], a, b, run), on), SCALES, DELTAS)
    methods = {
        CONSTANT: lambda: np.broadcast_to(pairs[1].mean(axis=0), test.Z.shape),
        NAIVE: lambda: pairs[1][np.argmax(PYRAMID(test.X, pairs[0]), axis=1)],
        KNN: lambda: knn_filter(pairs, test, *knn, rng, PARTICLES),
        KBR: lambda: heaviest(bayes_filter(learn[1], *kbr, run), test),
        THESIS: lambda: by_kmcf(ORIGINAL)(test, *thesis),
        OURS: lambda: by_kmcf({})(test, *ours),
    }
    for name, rule in REDUCED.items():
        if rule.get("subsample", 0) < size:
            methods[name] = lambda rule=rule: by_kmcf({**rule, **ORIGINAL})(test, *thesis)
    rows, problem = [], f"interval {interval}"
    for name, estimate in methods.items():
        begun = time.process_time()
        found = estimate()
        spent = time.process_time() - begun
        rows.append((problem, size, run, name, place_error(found, test.Z)))
        rows.append((f"{problem}, CPU s", size, run, name, spent))
    return rows


def check_all(table):
    """Print one line for each claim of the thesis; return whether our own bar holds."""
    results = []
    for _, problem, size in [key for key in table if key[0] == OURS and "CPU" not in key[1]]:
        error = {m: table[m, problem, size][0] for m, p, s in table if (p, s) == (problem, size)}
        label = f"{problem}, n = {size}: "
        for rival in (KBR, KNN, NAIVE):
            told = "below" if error[THESIS] < error[rival] else "NOT below"
            print(f"      {label}Alg. 4 {error[THESIS]:.2f}, {told} {rival} {error[rival]:.2f}")
        best = min(error[m] for m in (KNN, KBR, NAIVE))
        text = f"{label}importance rule {error[OURS]:.2f}, at most the best baseline {best:.2f}"
        results.append(check(text, error[OURS] <= best))
    return all(results)


def main():
    """Run, print, check and write."""
    parser = options(__doc__)
    parser.add_argument("--sizes", nargs="+", type=int)
    given = parser.parse_args()
    runs = given.runs or (20 if given.full else 1)
    sizes = given.sizes or ((200, 400, 800) if given.full else (150,))
    intervals = (1, 2, 3) if given.full else (3,)
    seeds = range(given.first, given.first + runs)
    tasks = [(s, interval, run) for run in seeds for s in sizes for interval in intervals]
    begun = time.perf_counter()
    rows = compute(one_run, tasks, given.jobs, HERE / "partial.jsonl" if given.full else None)
    table = summary(rows)
    print(f"\nmean (standard error) of {runs} runs; {time.perf_counter() - begun:.0f} s\n")
    for interval in intervals:
        for problem in (f"interval {interval}", f"interval {interval}, CPU s"):
            print_table({k: v for k, v in table.items() if k[1] == problem}, digits=2)
            print()
    return finish(given, rows, HERE, check_all(table), "error in metres; CPU seconds")


if __name__ == "__main__":
    raise SystemExit(main())
