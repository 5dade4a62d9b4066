"""A filter that never stops: many online steps with holes and outliers, and nothing drifts.

A point goes round and is seen through noise (n = 200 training pairs, rank 30). Of the observations
2 % are missing, 2 % lack a coordinate, every hundredth is far outside the sample, and once in a
thousand steps ten of those come in a row. Ten windows are printed: sum of the weights before they
are divided by it (mass), effective sample size, share of the observations that were not trusted
(fallback), squared error of the mean, and the peak of memory so far.

Bar: the last three windows differ from the first three by at most 10 % in each column, no belief is
NaN, memory grows by at most 5 MB after the first window, and a filter that was started anew 500
steps before the end has the same last mean to 1e-6 (what came before leaves no trace).
``run.py`` makes 100 000 steps; ``python benchmarks/bench_endurance.py 1000000`` makes so many (a
multiple of 10 000, so that windows hold whole thousands).
One BLAS thread.
"""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Iterator

import numpy as np
from threadpoolctl import threadpool_limits
from timing import threads, verdict

from kernelbayes import Gaussian, KernelBayesFilter

WINDOWS, BLOCK, ANEW = 10, 1000, 500
BAR, MEGABYTES, FORGOTTEN = 0.1, 5.0, 1e-6
TURN, SWAY, NOISE = 0.3, 0.1, 0.2
RIDGES = {"prior_ridge": 1e-4, "transition_ridge": 1e-4, "ridge": 1e-2}
COLUMNS = ("mass", "ess", "fallback", "error")


def circling(
    length: int, rng: np.random.Generator, angle: float
) -> tuple[np.ndarray, np.ndarray, float]:
    """States and observations (length, 2) that go on from an angle, and the last angle."""
    angles = angle + np.cumsum(TURN + SWAY * rng.normal(size=length))
    z = np.column_stack([np.cos(angles), np.sin(angles)])
    return z, z + NOISE * rng.normal(size=z.shape), float(angles[-1] % (2.0 * np.pi))


def stream(rng: np.random.Generator) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """States and observations without end, in blocks, so that nothing grows."""
    angle = 0.0
    while True:
        z, x, angle = circling(BLOCK, rng, angle)
        x[rng.uniform(size=BLOCK) < 0.02, rng.integers(2)] = np.nan
        x[rng.uniform(size=BLOCK) < 0.02] = np.nan
        x[::100] = 50.0
        x[BLOCK // 2 : BLOCK // 2 + 10] = -50.0
        yield from zip(z, x, strict=True)


def peak() -> float:
    """Peak of resident memory so far, in MB."""
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return used / (2**20 if sys.platform == "darwin" else 2**10)


def main(steps: int = 100_000) -> bool:
    with threadpool_limits(1, user_api="blas"):
        print(threads())
        return endure(steps)


def endure(steps: int) -> bool:
    """Run, print the windows, and compare the first with the last."""
    z, x, _ = circling(200, np.random.default_rng(0), 0.0)
    model = KernelBayesFilter(Gaussian(1.0), Gaussian(0.7), rank=30, rng=0, **RIDGES).fit(x, z)
    data = stream(np.random.default_rng(1))
    state, anew, rows, memory = model.start(), None, [], []
    length = steps // WINDOWS
    print(f"{'steps':>9}{'mass':>9}{'ess':>8}{'fallback':>10}{'error':>9}{'MB':>8}{'us/step':>9}")
    for window in range(WINDOWS):
        sums, observed, start = np.zeros(4), 0, time.process_time()
        for i in range(length):
            truth, seen = next(data)
            if window == WINDOWS - 1 and i >= length - ANEW:
                anew, _ = model.step(model.start() if anew is None else anew, seen)
            state, info = model.step(state, seen)
            off = np.sum((state.belief.weights @ model.Z_ - truth) ** 2)
            observed += info.observed
            mass = info.mass if info.observed else 0.0
            sums += mass, info.ess, info.fallback, off
        us = 1e6 * (time.process_time() - start) / length
        rows.append(sums / [observed, length, observed, length])
        memory.append(peak())
        mass, ess, fallback, error = rows[-1]
        print(f"{(window + 1) * length:>9}{mass:>9.4f}{ess:>8.2f}{100 * fallback:>8.2f} %", end="")
        print(f"{error:>9.4f}{memory[-1]:>8.1f}{us:>9.0f}", flush=True)
    first, last = np.mean(rows[:3], axis=0), np.mean(rows[-3:], axis=0)
    off = np.abs(last / first - 1.0)
    worst = COLUMNS[int(np.argmax(off))]
    gap = np.abs((state.belief.weights - anew.belief.weights) @ model.Z_).max()
    passed = [
        verdict(
            f"last three windows against the first three: {100 * off.max():.1f} % at most "
            f"({worst}); bar {100 * BAR:.0f} %",
            bool(np.all(off <= BAR)),  # not so if anything is NaN
        ),
        verdict(
            f"memory grows by {memory[-1] - memory[0]:.1f} MB after the first window; bar "
            f"{MEGABYTES:.0f} MB",
            memory[-1] - memory[0] <= MEGABYTES,
        ),
        verdict(
            f"a filter started {ANEW} steps before the end has the same last mean to {gap:.0e}; "
            f"bar {FORGOTTEN:.0e}",
            bool(gap <= FORGOTTEN),
        ),
    ]
    return all(passed)


if __name__ == "__main__":
    main(*(int(word) for word in sys.argv[1:]))
