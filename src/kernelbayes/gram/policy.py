"""The one decision: whether a Gram matrix is factored, and how it is held."""

from __future__ import annotations

import numpy as np

from kernelbayes.arrays import Floats, Rng, as_doubles, like
from kernelbayes.gram.base import Gram
from kernelbayes.gram.cholesky import check_rank, partial_cholesky
from kernelbayes.gram.dense import Dense, OnDemand
from kernelbayes.gram.factored import LowRank, Streamed
from kernelbayes.gram.features import nystrom, pivoted_cholesky
from kernelbayes.gram.finite import Landmarks
from kernelbayes.kernels import Kernel
from kernelbayes.points import Points, concatenate, count, take

# Features of a sample are held in memory up to this many entries (1 GB of float64).
STREAM_ENTRIES = 2**27
# Below this size a Gram matrix costs so little that a factor is not worth looking for.
FACTOR_FROM = 400
# For methods that go through a matrix row by row (:meth:`~kernelbayes.gram.Gram.by_rows`): up to
# this many entries, a few milliseconds of work, the whole matrix is computed at once.
ROW_ENTRIES = 2**20
# Beyond, a factor of this relative trace error stands for it. Values of an embedding are then off
# by about as much, far less than herding leaves.
ROW_TOL = 1e-10
# Ranks tried: one part in RANK_SHARE of n, so that failing costs little beside n^2 evaluations.
RANK_SHARE, RANK_LIMIT = 20, 512


def choose(
    kernel: Kernel,
    points: Points,
    *,
    rank: int | None,
    tol: float | None,
    most: int | None,
    rng: Rng,
    entries: int | None,
    extend: bool,
    double: bool,
) -> Gram:
    """Gram matrix of points; see :meth:`~kernelbayes.gram.Gram.of`."""
    n, why = count(points), ""
    rank = None if rank is None else check_rank(rank, tol, n)
    if kernel.finite:
        return _features(kernel, points, "the kernel's own features", double)
    if rank is not None and tol is None:
        kernel = nystrom(kernel, points, rank, rng=rng)
        return _features(kernel, points, "Nystrom landmarks", double)
    if tol is not None and (extend or rank is not None or n >= FACTOR_FROM):
        limits = [limit for limit in (rank, most) if limit is not None]
        limit = min(n, *limits) if limits else None
        accept = 1.0 if rank is not None else tol
        found = _pivoted(kernel, points, limit, tol, accept, rng, extend, double)
        if found is not None:
            return found
        why = f", since {limit} pivots do not reach a relative trace error of {tol:.0e}"
    if entries is not None and n * n > entries:
        return OnDemand(kernel, points, policy=f"on demand: {n} x {n} is too large{why}")
    G = as_doubles(kernel(points)) if double else kernel(points)
    return Dense(G, tol=tol, kernel=kernel, points=points, policy=f"dense: {n} x {n}{why}")


def choose_by_rows(kernel: Kernel, points: Points, products: bool) -> Gram:
    """Gram matrix for rows and products; see :meth:`~kernelbayes.gram.Gram.by_rows`."""
    n = count(points)
    tol = ROW_TOL if products and n * n > ROW_ENTRIES else None
    most = min(n // RANK_SHARE, RANK_LIMIT)
    return Gram.of(kernel, points, tol=tol, most=most, rng=0, entries=ROW_ENTRIES, double=True)


def _features(kernel: Kernel, points: Points, what: str, double: bool) -> Gram:
    """Gram matrix through the features of a kernel that has finitely many."""
    rank = int(kernel.features(take(points, slice(0, 1))).shape[1])
    if count(points) * rank > STREAM_ENTRIES:
        text = f"streamed: {rank} {what}, block by block"
        return Streamed(kernel, points, rank, policy=text)
    L = kernel.features(points)
    return LowRank(
        as_doubles(L) if double else L,
        kernel=kernel,
        points=points,
        policy=f"low rank: {rank} {what}",
    )


def _pivoted(
    kernel: Kernel, points: Points, limit: int | None, tol: float, accept: float, rng: Rng,
    extend: bool, double: bool,
) -> Gram | None:  # fmt: skip
    """Pivoted Cholesky factor with at most ``limit`` pivots; None if its error is not accepted."""
    if limit is not None and limit < 1:
        return None
    if extend:
        landmarks = pivoted_cholesky(kernel, points, limit, tol, rng)
        return _features(landmarks, points, "pivots", double) if landmarks.error <= accept else None
    pivots, L, error = partial_cholesky(kernel, points, limit, tol, rng)
    if error > accept:
        return None
    diag, text = kernel.diag(points), f"pivots leave a relative trace error of {error:.0e}"
    L, diag = (as_doubles(L), as_doubles(diag)) if double else (like(L, diag), diag)
    return LowRank(
        L,
        known_diag=diag,
        error=error,
        kernel=Landmarks(kernel, take(points, pivots), L[pivots, ...], error),
        points=points,
        policy=f"low rank: {len(pivots)} {text}",
    )


def exact_features(kernel: Kernel, *samples: Points) -> list[Floats]:
    """Finite features (n_j, r) of several samples that reproduce the kernel among all of them.

    Any kernel has exact finite features on finitely many points: a factor of their joint Gram
    matrix. With them every closed form has one code path, dense or low-rank.
    """
    if kernel.finite:
        return [as_doubles(kernel.features(X)) for X in samples]
    joint = samples[0]
    for X in samples[1:]:
        joint = concatenate(joint, X)
    ends = np.cumsum([count(X) for X in samples])
    return np.split(Gram.of(kernel, joint, double=True).factor, ends[:-1])
