"""Solvers of linalg against the formulas typed in as the papers print them.

The literal code builds diagonal matrices with np.diag and inverts; the solver factors once. One
right-hand side, a third of the weights zero (the importance rule clips negative ones). The bar:
never slower than the literal formula, and the same numbers.
"""

from __future__ import annotations

import numpy as np
from threadpoolctl import threadpool_limits
from timing import interleaved, threads, verdict

from kernelbayes import Gaussian
from kernelbayes.gram import Dense, LowRank
from kernelbayes.gram.features import partial_cholesky

RIDGE, RANK = 1e-2, 100


def literal_weighted(G: np.ndarray, r: np.ndarray, b: np.ndarray) -> np.ndarray:
    S = np.diag(np.sqrt(r))
    return S @ np.linalg.inv(S @ G @ S + RIDGE * np.eye(len(G))) @ S @ b


def literal_signed(G: np.ndarray, d: np.ndarray, b: np.ndarray) -> np.ndarray:
    D = np.diag(d)
    DG = D @ G
    return DG @ np.linalg.inv(DG @ DG + RIDGE * np.eye(len(G))) @ D @ b


def main() -> bool:
    with threadpool_limits(1, user_api="blas"):
        return compare()


def compare() -> bool:
    print(threads())
    print(f"{'':<10}{'n':>6}{'literal, ms':>13}{'dense, ms':>12}{'ratio':>8}", end="")
    print(f"{f'rank {RANK}, ms':>14}{'ratio':>8}")
    slowest = np.inf
    for n in (500, 1000, 2000):
        rng = np.random.default_rng(n)
        X, kernel = rng.normal(size=(n, 2)), Gaussian(0.5)
        G, b = kernel(X), kernel(X, X[:1])[:, 0]
        d = rng.normal(size=n)
        r = np.maximum(0.0, d + 0.43)  # about a third are clipped
        low = LowRank(partial_cholesky(kernel, X, RANK, rng=0)[1])
        phi = np.ascontiguousarray(low.L[0])
        cases = {
            "weighted": (
                lambda G=G, r=r, b=b: literal_weighted(G, r, b),
                lambda G=G, r=r, b=b: Dense(G).weighted(r, RIDGE).solve(b),
                lambda low=low, r=r, phi=phi: low.weighted(r, RIDGE).solve_features(phi),
            ),
            "signed": (
                lambda G=G, d=d, b=b: literal_signed(G, d, b),
                lambda G=G, d=d, b=b: Dense(G).signed(d, RIDGE).solve(b),
                lambda low=low, d=d, phi=phi: low.signed(d, RIDGE).solve_features(phi),
            ),
        }
        for name, (literal, ours, approximate) in cases.items():
            expected, found = literal(), ours()
            # The literal inverse loses digits with the condition number; compare predictions.
            gap = np.abs(G @ (expected - found)).max() / np.abs(G @ expected).max()
            assert gap < 1e-6, f"{name} at n={n}: the solver and the formula differ by {gap:.1e}"
            seconds = interleaved(
                {"literal": literal, "dense": ours, "low": approximate}, repeats=5
            )
            ratio = seconds["literal"] / seconds["dense"]
            slowest = min(slowest, ratio)
            print(
                f"{name:<10}{n:>6}{1e3 * seconds['literal']:>13.1f}{1e3 * seconds['dense']:>12.1f}"
                f"{ratio:>8.1f}{1e3 * seconds['low']:>14.2f}"
                f"{seconds['literal'] / seconds['low']:>8.0f}"
            )
    return verdict(f"dense solver at least {slowest:.1f} times as fast; bar 1", slowest >= 1.0)
