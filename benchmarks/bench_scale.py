"""Compact filters, fits from files, and KernelBayesRule beside the bare calls it cannot do without.

* A fit from Parquet files of 10^5 and 10^6 rows (10 + 2 columns, rank 100), each in a process of
  its own. Bars: growth exponent of the CPU time 1.1, peak memory 1 GB. This comes first: a process
  inherits the peak of its parent.
* A filter of 10^5 pairs, rank 100: median time of a step and mean squared error of ``compact(400)``
  beside the full filter, on a new sequence, by both rules. Bars: 1.5 ms, and an error at most 2 %
  above. ``python benchmarks/bench_scale.py compact original`` runs one rule alone.
* Fit and 1000 posterior means at n = 10^5 and 10^6, d = 10, rank 500, beside the bare calls:
  blocks of kernel values and one symmetric product for x (and for z under a prior sample, where
  kernel values that do not fit in memory are computed again), normal equations in kernel columns.
  Bar: 1.3 times. ``python benchmarks/bench_scale.py bare 100000`` runs one size alone.

One BLAS thread.
"""

from __future__ import annotations

import json
import math
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import scipy.linalg
from threadpoolctl import threadpool_limits
from timing import interleaved, threads, verdict

from kernelbayes import Gaussian, KernelBayesFilter, KernelBayesRule, NumericalWarning, save

FILTER_N, BUDGET, TEST_STEPS = 100_000, 400, 300
STEP_MS, LOSS = 1.5, 0.02
FILE_ROWS, FILE_GIGABYTES, EXPONENT = (100_000, 1_000_000), 1.0, 1.1
D, RANK, RIDGE, BLOCK, BARE = 10, 500, 1e-4, 10_000, 1.3
BARE_N, HELD = (100_000, 1_000_000), 200_000  # up to so many rows the bare calls keep values
X_NAMES, Z_NAMES = [f"x{j}" for j in range(D)], ["z0", "z1"]


def pairs(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    Z = rng.normal(size=(n, 2))
    A = np.random.default_rng(1).normal(size=(2, D))
    return np.tanh(Z @ A) + 0.3 * rng.normal(size=(n, D)), Z


def rotation(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    angle = np.cumsum(0.3 + 0.2 * rng.normal(size=n))
    Z = np.column_stack([np.cos(angle), np.sin(angle)]) * (1.0 + 0.1 * rng.normal(size=(n, 1)))
    return Z + 0.2 * rng.normal(size=Z.shape), Z


def compact(method: str = "importance", rank: int = 100) -> bool:
    """Print a step of the compact filter, and its error, beside the full one."""
    X, Z = rotation(FILTER_N, 0)
    ridge = 1e-2 if method == "importance" else 1e-4  # of the original rule: that of squares
    ridges = {"prior_ridge": 1e-5, "transition_ridge": 1e-5, "ridge": ridge, "back_ridge": 0.1}
    kernels = Gaussian(0.7), Gaussian(0.5)
    full = KernelBayesFilter(*kernels, method=method, rank=rank, rng=0, **ridges).fit(X, Z)
    small = full.compact(BUDGET)
    new, truth = rotation(TEST_STEPS, 1)
    losses, times = [], []
    for model in (full, small):
        state, means, each = model.start(), [], []
        for row in new:
            start = time.perf_counter()
            state, _ = model.step(state, row)
            each.append(time.perf_counter() - start)
            means.append(state.belief.mean())
        losses.append(float(np.mean(np.sum((np.array(means) - truth) ** 2, axis=1))))
        times.append(1e3 * float(np.median(each)))
    with tempfile.TemporaryDirectory() as folder:
        save(small, Path(folder) / "small.kb")
        size = (Path(folder) / "small.kb").stat().st_size / 2**20
    more = losses[1] / losses[0] - 1.0
    print(
        f"full: {times[0]:.1f} ms, error {losses[0]:.4f}; compact: {times[1]:.2f} ms, error ",
        end="",
    )
    print(
        f"{losses[1]:.4f}; file {size:.1f} MB; report {small.report.error:+.1%} on training steps"
    )
    return verdict(
        f"compact({BUDGET}), {method}, rank {rank}, n = {FILTER_N}: {times[1]:.2f} ms (bar "
        f"{STEP_MS}), "
        f"error {more:+.1%} (bar {LOSS:.0%})",
        times[1] <= STEP_MS and more <= LOSS,
    )


def from_files() -> bool:
    """Time and peak memory of fits from Parquet files."""
    import polars

    seconds, peak = [], 0.0
    with tempfile.TemporaryDirectory() as name:
        for rows in FILE_ROWS:
            folder = Path(name) / str(rows)
            folder.mkdir()
            for part in range(rows // 100_000):
                X, Z = pairs(100_000, part)
                columns = dict(zip(X_NAMES + Z_NAMES, [*X.T, *Z.T], strict=True))
                polars.DataFrame(columns).write_parquet(folder / f"{part}.parquet")
            command = [sys.executable, __file__, str(folder)]
            found = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
            seconds.append(found["seconds"])
            peak = max(peak, found["gigabytes"])
            print(f"{rows:>8} rows: {found['seconds']:.2f} s CPU, peak {found['gigabytes']:.2f} GB")
    exponent = math.log(seconds[1] / seconds[0]) / math.log(FILE_ROWS[1] / FILE_ROWS[0])
    return verdict(
        f"files: time grows as n^{exponent:.2f} (bar {EXPONENT}), peak {peak:.2f} GB (bar "
        f"{FILE_GIGABYTES:.0f})",
        exponent <= EXPONENT and peak <= FILE_GIGABYTES,
    )


def measure(folder: str) -> None:
    """Print seconds and peak memory of one fit; runs in a process of its own."""
    with threadpool_limits(1, user_api="blas"):
        start = time.process_time()
        model = KernelBayesRule(Gaussian(4.0), Gaussian(1.5), ridge=RIDGE, rank=100, rng=0)
        model.fit(folder, columns=(X_NAMES, Z_NAMES))
        seconds = time.process_time() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20  # Linux counts kilobytes
    print(json.dumps({"seconds": seconds, "gigabytes": peak}))


def bare(X: np.ndarray, Z: np.ndarray, new: np.ndarray, prior: np.ndarray | None) -> np.ndarray:
    """Solve normal equations in kernel columns: (K^T R K + ridge K_LL) a = K^T R [z, 1]."""
    k, h, rng = Gaussian(4.0), Gaussian(1.5), np.random.default_rng(0)
    landmarks = X[rng.choice(len(X), RANK, replace=False)]
    r, blocks = np.full(len(X), 1.0 / len(X)), range(0, len(X), BLOCK)
    if prior is not None:
        points = Z[rng.choice(len(Z), RANK, replace=False)]
        values = (h(Z[i : i + BLOCK], points) for i in blocks)
        K = list(values) if len(Z) <= HELD else values
        C = sum(A.T @ A for A in K) + len(Z) * RIDGE * h(points) + 1e-8 * np.eye(RANK)
        if len(Z) > HELD:
            K = (h(Z[i : i + BLOCK], points) for i in blocks)
        a = scipy.linalg.solve(C, h(points, prior).mean(axis=1), assume_a="pos")
        r = np.maximum(np.concatenate([A @ a for A in K]), 0.0)
    C, b = RIDGE * k(landmarks) + 1e-10 * np.eye(RANK), np.zeros((RANK, 3))
    for i in blocks:
        K = k(X[i : i + BLOCK], landmarks)
        K *= np.sqrt(r[i : i + BLOCK, None])
        C += K.T @ K
        values = np.column_stack([Z[i : i + BLOCK], np.ones(len(K))])
        b += K.T @ (np.sqrt(r[i : i + BLOCK, None]) * values)
    return k(new, landmarks) @ scipy.linalg.solve(C, b, assume_a="pos")


def beside_bare(n: int) -> bool:
    """Fit and 1000 posterior means of n pairs, beside the bare calls."""
    X, Z = pairs(n)
    new, passed = pairs(1000, 7)[0], True
    for name, prior in (("marginal", None), ("sample", 0.5 + 0.7 * pairs(1000, 8)[1])):

        def ours(prior: np.ndarray | None = prior) -> np.ndarray:
            model = KernelBayesRule(
                Gaussian(4.0), Gaussian(1.5), ridge=RIDGE, prior_ridge=RIDGE, rank=RANK, rng=0
            )
            return model.fit(X, Z, prior).predict(new)

        def theirs(prior: np.ndarray | None = prior) -> np.ndarray:
            return bare(X, Z, new, prior)

        repeats = 2 if n <= HELD else 1
        found = interleaved({"ours": ours, "bare": theirs}, repeats, time.process_time)
        ratio = found["ours"] / found["bare"]
        print(f"n = {n}, {name}: {found['ours']:.2f} s, bare calls {found['bare']:.2f} s")
        passed &= verdict(
            f"n = {n}, prior {name}: {ratio:.2f} times the bare calls; bar {BARE}", ratio <= BARE
        )
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"peak memory so far {peak:.2f} GB")
    return passed


def quietly(run: Callable[[], bool]) -> bool:
    """Run with one BLAS thread and without warnings about what is done on purpose."""
    with threadpool_limits(1, user_api="blas"), warnings.catch_warnings():
        warnings.simplefilter("ignore", NumericalWarning)
        warnings.simplefilter("ignore", scipy.linalg.LinAlgWarning)  # the bare calls have no rescue
        print(threads())
        return run()


def main() -> bool:
    return quietly(
        lambda: all([from_files(), compact(), compact("original"), *map(beside_bare, BARE_N)])
    )


if __name__ == "__main__":
    if sys.argv[1] == "bare":
        quietly(lambda: beside_bare(int(sys.argv[2])))
    elif sys.argv[1] == "compact":
        quietly(lambda: compact(*sys.argv[2:3]))
    else:
        measure(sys.argv[1])
