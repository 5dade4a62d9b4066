"""Partial Cholesky factorisation of a Gram matrix, with pivots drawn at random or greedily."""

from __future__ import annotations

from typing import Literal

import numpy as np

from kernelbayes.arrays import (
    BLOCK_ENTRIES,
    Floats,
    Ints,
    Rng,
    as_generator,
    row_blocks,
    threads_for,
    to_numpy,
)
from kernelbayes.gram.lapack import eliminate
from kernelbayes.kernels import Kernel
from kernelbayes.points import Points, count, take

# Proposals per round of randomly pivoted Cholesky. Fixed, so that for one seed the pivots of a
# small rank are the first pivots of a larger one; large enough that the work is in products of
# matrices.
PROPOSALS = 128


def partial_cholesky(
    kernel: Kernel,
    X: Points,
    rank: int | None = None,
    tol: float | None = None,
    rng: Rng = None,
    *,
    method: Literal["random", "greedy"] = "random",
) -> tuple[Ints, Floats, float]:
    """Pivots (r,), factor F (n, r) with K ~ F F^T, and relative trace error; see pivoted_cholesky.

    F is the feature matrix of X, got for free; NumPy only.
    """
    n = count(X)
    limit = check_rank(rank, tol, n)
    if method not in ("random", "greedy"):
        raise ValueError(f"method must be 'random' or 'greedy', got {method!r}")
    residual = np.array(to_numpy(kernel.diag(X)))
    trace, eps = float(residual.sum()), float(np.finfo(residual.dtype).eps)
    floor = eps * n * float(residual.max(initial=0.0))  # below this a pivot is rounding error
    generator = as_generator(rng)
    # With a tolerance the rank is not known before: rows are added when they are needed.
    F = np.empty((limit if tol is None else min(limit, 256), n), dtype=residual.dtype)
    pivots = np.empty(0, dtype=np.int64)
    while len(pivots) < limit and residual.sum() > max(tol or 0.0, eps * n) * trace:
        k = len(pivots)
        if method == "random":
            new, L = _random_round(kernel, X, F[:k], residual, floor, limit - k, generator)
        else:
            new, L = _greedy_round(residual, floor)
        if new.size == 0:
            if float(residual.max()) <= floor:
                break
            continue
        b = k + len(new)
        if b > len(F):
            F = np.concatenate([F, np.empty((min(len(F), limit - len(F)) or 1, n), F.dtype)])
        pivot_points = take(X, new)
        for columns in row_blocks(n, len(new), BLOCK_ENTRIES // 4):
            F[k:b, columns] = to_numpy(kernel(pivot_points, take(X, columns)))
        with threads_for(2.0 * n * k * len(new)):
            eliminate(F[:k], F[k:b], new, L)
        residual -= np.einsum("ij,ij->j", F[k:b], F[k:b])
        residual[new] = 0.0
        np.maximum(residual, 0.0, out=residual)
        pivots = np.concatenate([pivots, new])
    return pivots, F[: len(pivots)].T, float(residual.sum()) / trace if trace > 0 else 0.0


def _greedy_round(residual: Floats, floor: float) -> tuple[Ints, Floats]:
    """Take the point of the largest error as a pivot, and its factor (1, 1)."""
    pivot = int(np.argmax(residual))
    if residual[pivot] <= floor:
        return np.empty(0, dtype=np.int64), np.empty((0, 0))
    return np.array([pivot]), np.sqrt(residual[pivot]).reshape(1, 1)


def _random_round(
    kernel: Kernel,
    X: Points,
    F: Floats,
    residual: Floats,
    floor: float,
    most: int,
    rng: np.random.Generator,
) -> tuple[Ints, Floats]:
    """Propose pivots at once, accept them one by one (Epperly, Tropp, Webber, Algorithm 2)."""
    weights = residual / residual.sum(dtype=np.float64)
    proposals = rng.choice(len(residual), size=PROPOSALS, p=weights / weights.sum())
    H = to_numpy(kernel(take(X, proposals))) - F[:, proposals].T @ F[:, proposals]
    uniforms = rng.random(PROPOSALS) * residual[proposals]
    # Rounding alone sets these apart; with the smaller, a round that accepts nothing cannot recur.
    residual[proposals] = np.clip(np.diagonal(H), 0.0, residual[proposals])
    L = np.zeros_like(H)
    accepted: list[int] = []
    for i in range(PROPOSALS):
        # Remaining error of proposal i after the pivots accepted in this round.
        column = H[:, i] - L[:, : len(accepted)] @ L[i, : len(accepted)]
        if column[i] > max(uniforms[i], floor):
            L[:, len(accepted)] = column / np.sqrt(column[i])
            accepted.append(i)
            if len(accepted) == most:
                break
    return proposals[accepted], np.tril(L[accepted, : len(accepted)])


def check_rank(rank: int | None, tol: float | None, n: int) -> int:
    """Return the most pivots to take, all n points for a rank above n, or say what is wrong."""
    if rank is None and tol is None:
        raise ValueError("give a rank (number of features) or tol (relative trace error)")
    if tol is not None and not 0.0 <= tol < 1.0:
        raise ValueError(f"tol is a relative trace error in [0, 1), got {tol!r}")
    if rank is None:
        return n
    if isinstance(rank, bool) or not isinstance(rank, int | np.integer):
        raise TypeError(f"rank must be an integer, got {type(rank).__name__}")
    if rank < 1:
        raise ValueError(f"rank must be at least 1, got {rank}")
    return min(int(rank), n)
