"""Fair timing on a noisy machine: interleaved runs, minima, and the thread count beside them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from threadpoolctl import threadpool_info


def interleaved(
    functions: Mapping[str, Callable[[], object]],
    repeats: int = 15,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, float]:
    """Least seconds of each function over rounds in which every function runs once.

    A disturbance hits all candidates alike, and the minimum is the run it missed. That is unfair
    between a millisecond and a second, which no run escapes: give ``time.process_time`` then, and
    use one thread.
    """
    best = dict.fromkeys(functions, float("inf"))
    for name, function in functions.items():  # first touch of memory and lazy imports
        function()
        best[name] = float("inf")
    for _ in range(repeats):
        for name, function in functions.items():
            start = clock()
            function()
            best[name] = min(best[name], clock() - start)
    return best


def threads() -> str:
    """BLAS libraries in use and the threads each may take."""
    pools = [pool for pool in threadpool_info() if pool["user_api"] == "blas"]
    found = sorted({f"{pool['internal_api']} {pool['num_threads']}" for pool in pools})
    return "BLAS threads: " + ", ".join(found)


VERDICTS: list[str] = []  # of all benchmarks that were run


def verdict(what: str, passed: bool) -> bool:
    """Print PASS or FAIL with the bar, keep it for the summary, and hand the result on."""
    VERDICTS.append(f"{'PASS' if passed else 'FAIL'}  {what}")
    print(VERDICTS[-1])
    return passed
