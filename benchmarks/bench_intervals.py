"""Coverage of a filter's 90 % intervals as they are, and after ``calibrate``.

Three models: a linear-Gaussian one, stochastic volatility (KMCF16 model 2a) and the rotating state
of IW22 section 5.2. ``KernelBayesFilter()`` learns from 300 steps, with its automatic choices, and
filters 400 others. Shares of the true states inside, mean lengths, and beside them intervals that
ignore the observations (quantiles of the training states). Data sets have the seeds 1000, 1001, ...

Bar: recalibrated coverage within 5 points of 90 % on each model, averaged over the data sets; a
data set's own coverage has a standard deviation of 2 to 5 points.
``python benchmarks/bench_intervals.py 6`` takes six data sets; ``run.py`` three.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import numpy as np
from bench_filters import NOISE, move
from threadpoolctl import threadpool_limits
from timing import threads, verdict

from kernelbayes import KernelBayesFilter

LEVEL, BAR = 0.9, 0.05
LEARNED, FILTERED, FIRST = 300, 400, 1000
Simulate = Callable[[int, np.random.Generator], tuple[np.ndarray, np.ndarray]]


def damped(length: int, rng: np.random.Generator) -> np.ndarray:
    """States (length, 1) of z' = 0.9 z + noise, stationary variance one."""
    z = rng.normal(size=(length, 1))
    for t in range(1, length):
        z[t] = 0.9 * z[t - 1] + np.sqrt(0.19) * z[t]
    return z


def linear(length: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    z = damped(length, rng)
    return z, z + np.sqrt(0.5) * rng.normal(size=z.shape)


def volatility(length: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    z = damped(length, rng) / np.sqrt(0.19)
    return z, 0.5 * np.exp(z / 2.0) * rng.normal(size=z.shape)


def rotation(length: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    z = np.ones((length, 2))
    for t in range(1, length):
        z[t] = move(z[t - 1], rng)
    return z, z + NOISE * rng.normal(size=z.shape)


def inside(ends: np.ndarray, z: np.ndarray) -> list[float]:
    """Share of z inside intervals (..., d, 2), and their mean length."""
    low, high = ends[..., 0], ends[..., 1]
    return [float(np.mean((low <= z) & (z <= high))), float(np.mean(high - low))]


def one(simulate: Simulate, seed: int) -> list[float]:
    """Coverage and length: as they are, recalibrated, without observations."""
    rng = np.random.default_rng(seed)
    z, x = simulate(LEARNED, rng)
    truth, seen = simulate(FILTERED, rng)
    model = KernelBayesFilter(rng=0).fit(x, z)
    beliefs = model.filter(seen)
    tails = [(1.0 - LEVEL) / 2.0, (1.0 + LEVEL) / 2.0]
    found = [beliefs.interval(LEVEL), model.calibrate(x, z).interval(beliefs, LEVEL)]
    return [v for ends in (*found, np.quantile(z, tails, axis=0).T) for v in inside(ends, truth)]


def main(sets: int = 3) -> bool:
    with threadpool_limits(1, user_api="blas"):
        print(threads())
        print(f"{sets} data sets   {'as they are':>18}{'recalibrated':>18}{'x ignored':>18}")
        print(f"{'':<14}" + f"{'inside':>10}{'length':>8}" * 3)
        off = []
        for simulate in (linear, volatility, rotation):
            rows = np.mean([one(simulate, FIRST + i) for i in range(sets)], axis=0)
            cells = "".join(f"{100 * c:>8.1f} %{w:>8.2f}" for c, w in rows.reshape(3, 2))
            print(f"{simulate.__name__:<14}{cells}", flush=True)
            off.append(abs(rows[2] - LEVEL))
        return verdict(
            f"recalibrated coverage is off by {100 * max(off):.1f} points at most; bar "
            f"{100 * BAR:.0f}",
            max(off) <= BAR,
        )


if __name__ == "__main__":
    main(*(int(word) for word in sys.argv[1:]))
