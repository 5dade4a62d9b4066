"""Graphs: messages per second beside discrete belief propagation; growth in n, rank and edges.

Messages on a grid whose edges share two templates, all sent at once, evidence at every node. The
discrete one (``experiments/graphs``) has 50 states and tables that are given. One BLAS thread, CPU
time. Bars: an image of 100 x 100 within 10 s (rank 35, 30 iterations); time linear in edges; time
of a message not growing in the number of pairs while the distinct points stay the same.
"""

from __future__ import annotations

import sys
import time
import warnings
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits
from timing import threads, verdict

sys.path.insert(0, str(Path(__file__).parents[1] / "experiments" / "graphs"))

import networks
import propagation

from kernelbayes import KernelBeliefPropagation, NumericalWarning

STATES, IMAGE, IMAGE_BAR = 50, (100, 100, 35, 30), 10.0
LEVELS = 100  # distinct values of a node, as in an image
# Growth exponents above which something is done for each pair, or twice for each edge: timings of
# less than a second scatter by a tenth.
PAIRS_BAR, EDGES_BAR = 0.2, 1.15


def sample(n: int, levels: int, rng: np.random.Generator) -> dict[str, tuple]:
    """Pairs of neighbours and of what is seen, rounded to a number of levels."""

    def rounded(x: np.ndarray) -> np.ndarray:
        return np.round(np.clip(x, -3.0, 3.0) * (levels - 1) / 6.0) * 6.0 / (levels - 1)

    x = rng.normal(size=n)
    near = 0.95 * x + 0.31 * rng.normal(size=n)
    x, near, seen = rounded(x), rounded(near), rounded(x + rng.normal(size=n))
    return {"right": (x, near), "down": (x, near), "seen": (x, seen)}


def kernel_seconds(rows: int, columns: int, rank: int, iterations: int, n=4000, levels=LEVELS):
    """CPU seconds of fitting, and of a query of that many iterations."""
    rng = np.random.default_rng(0)
    at = [(i, j) for i in range(rows) for j in range(columns)]
    templates = {
        "right": [((i, j), (i, j + 1)) for i, j in at if j + 1 < columns],
        "down": [((i, j), (i + 1, j)) for i, j in at if i + 1 < rows],
        "seen": [((i, j), ("seen", i, j)) for i, j in at],
    }
    model = KernelBeliefPropagation(
        templates=templates, rank=rank, scales="median", max_iterations=iterations,
        tolerance=1e-300, rng=0,
    )  # fmt: skip
    start = time.process_time()
    model.fit(sample(n, levels, rng))
    fitted = time.process_time()
    values = rng.normal(size=len(at))
    evidence = {("seen", *node): float(v) for node, v in zip(at, values, strict=True)}
    model.query(at, evidence).stacked(at).mean()
    return fitted - start, time.process_time() - fitted


def discrete_seconds(rows: int, columns: int, states: int, iterations: int) -> float:
    """CPU seconds of discrete belief propagation."""
    rng, network = np.random.default_rng(0), networks.grid(rows, columns)
    psi, local = 0.1 + rng.random((2, states, states)), rng.normal(size=(rows * columns, states))
    start = time.process_time()
    steps = propagation.discrete(network, np.arange(float(states)), psi, local)
    for _ in range(iterations):
        points, weights = next(steps)
    networks.mean(points, weights)
    return time.process_time() - start


def exponent(sizes: list[int], seconds: list[float]) -> float:
    """Slope of log seconds against log size."""
    return float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0])


def main() -> bool:
    """Print the tables and check the bars."""
    warnings.simplefilter("ignore", NumericalWarning)  # that messages have not settled
    with threadpool_limits(1, user_api="blas"):
        print(f"      {threads()}; CPU time")
        rows, columns, rank, iterations = IMAGE
        sent = 2 * (rows * (columns - 1) + (rows - 1) * columns) * iterations
        fit, query = kernel_seconds(*IMAGE)
        passed = verdict(
            f"{rows} x {columns} image, {LEVELS} levels, rank {rank}, {iterations} iterations: "
            f"fit {fit:.1f} s, query {query:.1f} s; bar {IMAGE_BAR:g} s", query <= IMAGE_BAR,
        )  # fmt: skip
        ours, theirs = query, discrete_seconds(rows, columns, STATES, iterations)
        print(f"      messages per second: kernel {sent / ours:.0f}, discrete with {STATES} states "
              f"{sent / theirs:.0f}: {theirs / ours:.2f} times")  # fmt: skip
        found, sizes = [], [1000, 4000, 16_000, 64_000]
        for n in sizes:
            fit, query = kernel_seconds(30, 30, 20, 10, n=n)
            found.append(query)
            print(f"      n {n:6d}, {LEVELS} levels: fit {fit:.2f} s, query {query:.2f} s")
        slope = exponent(sizes, found)
        passed &= verdict(f"a query grows as n^{slope:.2f}; bar {PAIRS_BAR}", slope <= PAIRS_BAR)
        for levels in (100, 400, 1600):
            query = kernel_seconds(30, 30, 20, 10, n=4000, levels=levels)[1]
            print(f"      {levels:5d} distinct points: query {query:.2f} s")
        for rank in (10, 20, 40, 80):
            print(f"      rank {rank:3d}: query {kernel_seconds(30, 30, rank, 10)[1]:.2f} s")
        sides = [25, 50, 100]
        edges = [2 * k * (k - 1) for k in sides]
        found = [kernel_seconds(k, k, 20, 10)[1] for k in sides]
        for count, query in zip(edges, found, strict=True):
            print(f"      {count:6d} edges: query {query:.2f} s")
        slope = exponent(edges, found)
    return passed & verdict(f"grows as edges^{slope:.2f}; bar {EDGES_BAR}", slope <= EDGES_BAR)
