"""Size of a filter: time and memory of fitting and of one step, against n and rank.

On the rotating state of ``bench_filters``, kernels and ridges given, so that nothing is chosen.
Memory is the peak of NumPy's allocations while fitting. Printed only: the table of docs/filters.md.
One BLAS thread, CPU time.
"""

from __future__ import annotations

import time
import tracemalloc

from bench_filters import learned, sequence
from threadpoolctl import threadpool_limits
from timing import threads

# Exact filters up to the size above which the default is low rank, and ranks of the race and of
# that default beyond it.
CASES = [(500, None), (2000, None), (2000, 300)]
CASES += [(n, rank) for n in (10_000, 50_000) for rank in (100, 300)]
STEPS = 20


def main() -> bool:
    """Print the table."""
    with threadpool_limits(1, user_api="blas"):
        print(f"      {threads()}; CPU time")
        print(f"      {'n':>7s} {'rank':>6s} {'fit, s':>8s} {'step, ms':>9s} {'memory, MB':>11s}")
        for n, rank in CASES:
            tracemalloc.start()
            start = time.process_time()
            model = learned(n, rank)
            fitting = time.process_time() - start
            peak = tracemalloc.get_traced_memory()[1] / 1e6
            tracemalloc.stop()
            x, state = sequence(STEPS + 1, 1)[1], model.start()
            state, _ = model.step(state, x[0])
            start = time.process_time()
            for row in x[1:]:
                state, _ = model.step(state, row)
            step = 1e3 * (time.process_time() - start) / STEPS
            name = "exact" if rank is None else str(rank)
            print(f"      {n:7d} {name:>6s} {fitting:8.2f} {step:9.2f} {peak:11.0f}", flush=True)
    return True
