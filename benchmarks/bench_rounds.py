"""Rounds of simulations against one: deviations of posteriors under broad priors.

Parameters are normal with a deviation of ``width``, seen through w/2 sinh(2 theta / w) with unit
noise; the exact posterior is by quadrature. The table has, averaged over the runs, how many of the
simulations lie where the posterior may be, the share of the prior that lies there, the deviation
over the exact one after one round and with ``rounds="auto"``, and how many rounds that made. The
threshold FEW_INSIDE of ``likelihood_free/reweight.py`` was read off this table.

    python benchmarks/bench_rounds.py [--runs 2] [--first 1000]

The bar: with rounds="auto" deviations are within 15 % of the exact ones on average.
"""

from __future__ import annotations

import argparse
import warnings
from functools import partial

import numpy as np
from scipy import stats
from threadpoolctl import threadpool_limits
from timing import threads, verdict

import kernelbayes as kb
from kernelbayes.likelihood_free.reweight import Region

CASES = ((1, 3.0, 300), (1, 10.0, 300), (1, 30.0, 300), (1, 100.0, 300))
CASES += ((2, 3.0, 600), (2, 10.0, 600), (2, 30.0, 600))
BAR = 0.15


def seen(theta, width):
    """Return what is observed without noise."""
    return np.sinh(2.0 * theta / width) * width / 2.0


def simulator(theta, rng, width):
    """Observe each parameter by itself."""
    return seen(theta, width) + rng.normal(size=theta.shape)


def deviations(x, width):
    """Exact posterior deviations (d,), by quadrature of each coordinate."""
    found = []
    for value in x:
        middle = np.arcsinh(2.0 * value / width) * width / 2.0
        grid = np.linspace(middle - 8.0, middle + 8.0, 20_001)
        log = -0.5 * (value - seen(grid, width)) ** 2 - 0.5 * (grid / width) ** 2
        found.append(np.sqrt(np.cov(grid, aweights=np.exp(log - log.max()))))
    return np.array(found)


def one_run(d, width, n, seed):
    """Return simulations in the region, its share, the ratios of one and of more, and rounds."""
    rng = np.random.default_rng(seed)
    x = simulator(rng.normal(0.0, width, d), rng, width)
    asked = partial(simulator, width=width), [stats.norm(0.0, width)] * d, x, n
    one = kb.infer(*asked, rng=seed, vectorized=True)
    several = kb.infer(*asked, rng=seed, vectorized=True, rounds="auto")
    region = Region.of(one, one.prior, np.random.default_rng(seed))
    ratios = (float(np.mean(p.std() / deviations(x, width))) for p in (one, several))
    return region.share * n, region.share, *ratios, several.diagnostics.rounds


def main() -> bool:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--runs", type=int, default=2)
    parser.add_argument("--first", type=int, default=1000)
    given = parser.parse_args()
    print(threads())
    print(
        f"{'d':>2}{'width':>7}{'n':>6}{'inside':>9}{'share':>9}{'one':>7}{'auto':>7}{'rounds':>8}"
    )
    every = []
    with threadpool_limits(1, user_api="blas"), warnings.catch_warnings():
        warnings.simplefilter("ignore", kb.NumericalWarning)
        for d, width, n in CASES:
            seeds = range(given.first, given.first + given.runs)
            runs = np.array([one_run(d, width, n, seed) for seed in seeds])
            inside, share, one, auto, rounds = runs.mean(axis=0)
            every.append(auto)
            print(
                f"{d:2d}{width:7.0f}{n:6d}{inside:9.1f}{share:9.4f}{one:7.2f}{auto:7.2f}"
                f"{rounds:8.1f}",
                flush=True,
            )
    worst = max(abs(ratio - 1.0) for ratio in every)
    return verdict(f"largest error of a deviation {worst:.0%}, bar {BAR:.0%}", worst <= BAR)


if __name__ == "__main__":
    main()
