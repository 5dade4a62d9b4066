"""Equally weighted picks: kernel herding, and exchanges that improve them."""

from __future__ import annotations

import numpy as np

from kernelbayes.arrays import Floats, Ints, threads_for
from kernelbayes.gram import Gram

# A squared distance is known to about this, relative to the largest k(x, x).
ROUNDING = 1e-14


def greedy(gram: Gram, values: Floats, m: int, repeat: bool = True) -> tuple[Ints, Floats]:
    """Kernel herding: m picks, and sum_{j<p} k(x_p, x_j) at each.

    ``values`` are mu at the candidates. Without ``repeat`` no candidate is picked twice (KMCF16
    Alg. 6).
    """
    if m < 1:
        raise ValueError(f"the number of picks must be at least 1, got {m}")
    total = np.zeros(len(values))
    available = np.array(values, dtype=np.float64)
    picks, cross = np.empty(m, dtype=np.int64), np.empty(m)
    with threads_for(gram.work):
        for p in range(m):
            pick = int(np.argmax(available - total / (p + 1)))  # KMCF16 Alg. 3, line 5
            picks[p], cross[p] = pick, total[pick]
            total += gram.rows(pick)
            if not repeat:
                available[pick] = -np.inf
    return picks, cross


def squared_errors(norm2: float, values: Floats, diag: Floats, cross: Floats) -> Floats:
    """Squared distance of mu to the first p points, for p = 1, ..., m.

    ``values`` and ``diag`` are mu and k(x, x) at the picks, ``cross`` is as from :func:`greedy`.
    """
    sizes = np.arange(1, len(values) + 1)
    energy = np.cumsum(2.0 * cross + diag) / sizes**2
    return np.maximum(norm2 - 2.0 * np.cumsum(values) / sizes + energy, 0.0)


def score(gram: Gram, values: Floats, picks: Ints) -> float:
    """Squared distance of mu to the equally weighted picks, less the squared norm of mu."""
    m = len(picks)
    distinct, counts = np.unique(picks, return_counts=True)
    total = sum(c * gram.rows(int(i))[distinct] for i, c in zip(distinct, counts, strict=True))
    return float(counts @ total) / m**2 - 2.0 * float(values[picks].mean())


def exchange(
    gram: Gram, values: Floats, picks: Ints, repeat: bool = True, sweeps: int = 10
) -> Ints:
    """Replace picks one at a time by the best candidate, until none is better; never worse.

    With T the sum of the rows of the other m - 1 picks, the squared distance as a function of the
    remaining one is [2 T(x) + k(x, x)] / m^2 - 2 mu(x) / m and a constant, so that its minimum
    costs O(n). ``sweeps`` is the most passes over all picks.
    """
    picks = picks.copy()
    m = len(picks)
    total = np.zeros(len(values))
    taken = np.zeros(len(values))
    if not repeat:
        taken[picks] = np.inf
    alone = gram.diag - 2.0 * m * values
    least = ROUNDING * m * m * gram.scale  # a smaller gain is rounding, and might go in circles
    with threads_for(gram.work):
        for i in map(int, picks):
            total += gram.rows(i)
        for _ in range(sweeps):
            before = picks.copy()
            for slot, old in enumerate(map(int, before)):
                total -= gram.rows(old)
                cost = 2.0 * total
                cost += alone
                kept = cost[old]
                if not repeat:
                    cost += taken
                new = int(np.argmin(cost))
                if cost[new] < kept - least:
                    taken[old], taken[new] = 0.0, (0.0 if repeat else np.inf)
                    picks[slot] = new
                else:
                    new = old
                total += gram.rows(new)
            if np.array_equal(picks, before):
                break
    return picks
