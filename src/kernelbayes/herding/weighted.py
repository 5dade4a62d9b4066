"""Weighted picks: Frank-Wolfe with exact line search, and with the best weights on all picks.

Both minimise the squared distance to mu over the convex hull of the candidates (KMCF16, proof of
Theorem 3, where herding does so with steps 1/p). Each pick is the candidate towards which the
distance falls most along the whole segment, at least as far as by the pick of herding.
"""

from __future__ import annotations

import numpy as np

from kernelbayes.arrays import Floats, Ints, threads_for
from kernelbayes.gram import Gram
from kernelbayes.gram.lapack import cho_solve, cholesky, solve_triangular
from kernelbayes.herding.equal import ROUNDING

# A candidate whose squared distance to the affine span of the picks is below this part of the
# largest k(x, x) cannot be told from a combination of them.
DEPENDENT = 1e-10


def line_search(gram: Gram, values: Floats, m: int, norm2: float) -> tuple[Ints, Floats, Floats]:
    """Frank-Wolfe with exact line search: distinct picks, their weights, squared errors.

    Stops before m picks when no candidate is a way down. The distance falls at every step, quickly
    at first; after many picks herding is ahead, since steps become short.
    """
    first = int(np.argmin(gram.diag - 2.0 * values))
    g = gram.rows(first).copy()
    weights = np.zeros(len(values))
    weights[first] = 1.0
    order, energy, overlap = [first], float(gram.diag[first]), float(values[first])
    errors = [norm2 - 2.0 * overlap + energy]
    with threads_for(gram.work):
        for _ in range(1, m):
            pick, step = _steepest(gram, values, g, overlap, energy)
            if step == 0.0:
                break
            length = float(gram.diag[pick] - 2.0 * g[pick]) + energy
            energy += step * (2.0 * (float(g[pick]) - energy) + step * length)
            overlap += step * (float(values[pick]) - overlap)
            g += step * (gram.rows(pick) - g)
            weights *= 1.0 - step
            weights[pick] += step
            order.append(pick)
            errors.append(norm2 - 2.0 * overlap + energy)
    distinct = np.array(list(dict.fromkeys(order)), dtype=np.int64)
    distinct = distinct[weights[distinct] > 0.0]  # a full step forgets all points before it
    return distinct, weights[distinct], np.maximum(errors, 0.0)


def fully_corrective(
    gram: Gram, values: Floats, m: int, norm2: float
) -> tuple[Ints, Floats, Floats]:
    """Frank-Wolfe with the best weights on all picks: distinct picks, weights, squared errors.

    After every pick the weights minimise the distance over the simplex on the picks (Wolfe's
    minimum-norm-point algorithm). Points whose weight becomes zero are dropped. Stops before m
    picks when no candidate is a way down, or when the next one depends on the picks to working
    precision.
    """
    S: Ints = np.array([np.argmin(gram.diag - 2.0 * values)], dtype=np.int64)
    # With weights of sum one a constant added to the kernel changes nothing but the condition: the
    # points need only be affinely independent.
    constant = gram.scale
    w: Floats = np.ones(1)
    L: Floats = np.sqrt(gram.diag[S] + constant)[:, None]
    K = np.empty((min(m, len(values)), len(values)))  # rows of the picks, the first len(S) in use
    K[0] = g = gram.rows(int(S[0]))
    errors = [norm2 - 2.0 * float(values[S[0]]) + float(gram.diag[S[0]])]
    with threads_for(2.0 * K.size):
        for _ in range(1, m if errors[0] > 0.0 else 1):
            pick, step = _steepest(gram, values, g, float(w @ values[S]), float(w @ g[S]))
            if step == 0.0 or pick in S:
                break
            last = solve_triangular(L, gram.rows(pick)[S] + constant)
            pivot = float(gram.diag[pick]) + constant - float(last @ last)
            if pivot <= DEPENDENT * constant:
                break
            K[len(S)] = gram.rows(pick)
            L = np.block([[L, np.zeros((len(S), 1))], [last[None, :], np.full((1, 1), pivot**0.5)]])
            S, w, L = _on_simplex(K, values, np.append(S, pick), np.append(w, 0.0), L, constant)
            g = w @ K[: len(S)]
            errors.append(norm2 - 2.0 * float(w @ values[S]) + float(w @ g[S]))
    return S, w, np.maximum(errors, 0.0)


def _steepest(
    gram: Gram, values: Floats, g: Floats, overlap: float, energy: float
) -> tuple[int, float]:
    """Candidate x towards which |mu - g|^2 falls most, and the step from g to k(., x) in [0, 1].

    ``overlap`` is <mu, g> and ``energy`` |g|^2. A step t changes the squared distance by
    t^2 length - 2 t slope. The step is 0 if no candidate is a way down.
    """
    least = ROUNDING * gram.scale
    slope = values - g - (overlap - energy)  # <mu - g, k(., x) - g>
    length = gram.diag - 2.0 * g + energy  # |k(., x) - g|^2
    possible = (slope > least) & (length > least)
    step = np.where(possible, np.minimum(slope / np.where(possible, length, 1.0), 1.0), 0.0)
    pick = int(np.argmax(step * (2.0 * slope - step * length)))
    return pick, float(step[pick])


def _on_simplex(
    K: Floats, values: Floats, S: Ints, w: Floats, L: Floats, constant: float
) -> tuple[Ints, Floats, Floats]:
    """Minimise w' G w - 2 w' v over the simplex on S, G + constant = L L'.

    K holds the rows of S first; those of dropped points are removed, in place.
    """
    while True:
        best, flat = cho_solve(L, np.column_stack([values[S], np.ones(len(S))])).T
        target = best - flat * (best.sum() - 1.0) / flat.sum()  # the minimum with sum one
        if np.all(target > 0.0):
            return S, target, L
        # Go towards it until the first weight is zero, and drop that point.
        down = target <= 0.0
        steps = np.where(down, w / np.where(down & (w > target), w - target, 1.0), np.inf)
        step = float(steps.min())
        w = w + step * (target - w)
        keep = steps > step
        S, w = S[keep], w[keep] / w[keep].sum()
        K[: len(S)] = K[: len(keep)][keep]
        L = cholesky(K[: len(S), S] + constant)
