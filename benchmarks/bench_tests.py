"""Two-sample and independence tests with 1000 permutations against hyppo; linear time at 10^6.

Gaussian kernels with the median heuristic, points in two dimensions (MMD, n in each sample) and
scalar pairs (HSIC). hyppo's time is linear in the permutations: it is measured on a few (its cost
without any is subtracted) and extrapolated to 1000. One BLAS thread, CPU time. hyppo is optional:
without it only our own times are printed. The bar: 100 times as fast as hyppo.
"""

from __future__ import annotations

import time
import tracemalloc
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits
from timing import threads, verdict

import kernelbayes as kb

PERMUTATIONS, BAR = 1000, 100.0
FEW = {1000: 10, 3000: 3}


def main() -> bool:
    with threadpool_limits(1, user_api="blas"):
        print(threads())
        beside = beside_hyppo()
        large()
    return beside


def cpu(run: Callable[[], Any]) -> float:
    start = time.process_time()
    run()
    return time.process_time() - start


def problems(n: int) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    rng = np.random.default_rng(0)
    x = rng.normal(size=n)
    return {
        "MMD": (rng.normal(size=(n, 2)), rng.normal(0.05, size=(n, 2))),
        "HSIC": (x[:, None], 0.1 * x[:, None] + rng.normal(size=(n, 1))),
    }


def ours(test: str, x: np.ndarray, y: np.ndarray) -> float:
    function = kb.mmd_test if test == "MMD" else kb.hsic_test
    function(x[:50], y[:50], permutations=10)  # first touch
    return min(cpu(lambda: function(x, y, permutations=PERMUTATIONS, rng=0)) for _ in range(2))


def hyppo(test: str, x: np.ndarray, y: np.ndarray) -> float | None:
    """Seconds of 1000 permutations, extrapolated."""
    try:
        from hyppo.independence import Hsic
        from hyppo.ksample import MMD
    except ImportError:
        return None
    instance = (MMD if test == "MMD" else Hsic)(compute_kernel="gaussian")

    def run(reps: int) -> float:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it warns below 1000 permutations
            return cpu(lambda: instance.test(x, y, reps=reps, auto=False, random_state=0))

    few = FEW[len(x)]
    run(1)  # compiles
    base = run(1)
    per_permutation = (run(1 + few) - base) / few
    return base + (PERMUTATIONS - 1) * per_permutation


def beside_hyppo() -> bool:
    print(f"{'':<6}{'n':>6}{'ours, s':>10}{'hyppo, s':>10}{'ratio':>8}")
    ratios = []
    for n in FEW:
        for test, (x, y) in problems(n).items():
            mine, theirs = ours(test, x, y), hyppo(test, x, y)
            if theirs is None:
                print(f"{test:<6}{n:>6}{mine:>10.3f}{'-':>10}{'-':>8}")
                continue
            ratios.append(theirs / mine)
            print(f"{test:<6}{n:>6}{mine:>10.3f}{theirs:>10.1f}{theirs / mine:>8.0f}")
    if not ratios:
        print("hyppo is not installed: no comparison (pip install hyppo)")
        return True
    return verdict(
        f"at least {min(ratios):.0f} times as fast as hyppo; bar {BAR:.0f}", min(ratios) >= BAR
    )


def large(n: int = 10**6) -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(2, n, 2))
    z = rng.normal(size=n)
    runs = {
        "MMD linear": lambda: kb.mmd_test(x, y, rng=0, method="linear"),
        "MMD features": lambda: kb.mmd_test(x, y, rng=0, method="features"),
        "MMD block, 50 perm.": lambda: kb.mmd_test(x, y, None, 50, 0, method="block"),
        "HSIC linear": lambda: kb.hsic_test(x, z, rng=0, method="linear"),
        "HSIC features": lambda: kb.hsic_test(x, z, rng=0, method="features"),
        "drift, two columns": lambda: kb.drift_report(x, y, rng=0),
    }
    print(f"n = {n}{'s':>18}{'MB':>8}")
    for name, run in runs.items():
        seconds = cpu(run)
        if "block" in name:  # tracing would slow its many small arrays down
            print(f"{name:<20}{seconds:>8.1f}")
            continue
        tracemalloc.start()
        run()
        peak = tracemalloc.get_traced_memory()[1] / 2**20
        tracemalloc.stop()
        print(f"{name:<20}{seconds:>8.1f}{peak:>8.0f}")
