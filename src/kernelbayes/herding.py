r"""Herding on arrays: which of n candidates stand for a distribution, and with what weights.

Kernel herding (KMCF16 Alg. 2 and 3) picks candidates one after another so that their equally
weighted embedding approaches a given one: pick p maximises

.. math:: \mu(x) - \frac{1}{p} \sum_{j < p} k(x, x_j).

With the sum kept running, a pick costs one row of the Gram matrix, O(n). It is the Frank-Wolfe
method with steps 1/p for the squared distance to mu over the convex hull of the candidates
(KMCF16, proof of Theorem 3). Better steps decrease it faster: the exact line search, or the best
weights on all points picked so far. Exchanges keep the weights equal and improve the points.

Functions take a :class:`~kernelbayes.gram.Gram` of the candidates and ``values``, mu at the
candidates; those for embeddings are in :mod:`kernelbayes.compression`.
"""

from collections.abc import Callable

import numpy as np
from scipy.optimize import minimize
from scipy.special import ndtri
from scipy.stats import qmc

from kernelbayes.arrays import threads_for
from kernelbayes.gram import Gram
from kernelbayes.gram.lapack import cholesky, solve_triangular, symmetric_factor
from kernelbayes.gram.solvers import cho_solve
from kernelbayes.types import Floats, Ints

# A squared distance is known to about this, relative to the largest k(x, x): some ten roundings.
ROUNDING = 1e-14
# A candidate whose squared distance to the affine span of the picks is below this part of the
# largest k(x, x) cannot be told from a combination of them: a pivot is known to one rounding per
# pick, 1e-13 for a thousand of them.
DEPENDENT = 1e-10
# Quasi-random points from which a search starts if there are no candidates, at least: a power of
# two, as Sobol points are balanced, and as many points as a Gram matrix is held whole for.
ASCENT_STARTS = 1024
# Step of central differences in units of the candidates' standard deviation: its square (the
# truncation error) and rounding divided by it are both below 1e-9.
ASCENT_STEP = 3e-5


def greedy(gram: Gram, values: Floats, m: int, repeat: bool = True) -> tuple[Ints, Floats]:
    """Kernel herding: m picks (without ``repeat`` all different: Alg. 6), sum_{j<p} k(x_p, x_j)."""
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
    """Squared distance of mu to the first p picks, for p = 1, ..., m, from mu, k(x, x) there."""
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


def line_search(gram: Gram, values: Floats, m: int, norm2: float) -> tuple[Ints, Floats, Floats]:
    """Frank-Wolfe with exact line search: distinct picks, their weights, squared errors.

    Each pick is the candidate towards which the squared distance falls most; none is a way down
    where it stops before m picks. After many picks herding is ahead, since steps become short.
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
    """Frank-Wolfe with the best weights on all picks: as :func:`line_search`.

    After every pick the weights minimise the distance over the simplex on the picks (Wolfe's
    minimum-norm-point algorithm). It also stops when the next pick depends on the others.
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


def herd_anywhere(
    mu: Callable[[Floats], Floats],
    kernel: Callable[[Floats, Floats], Floats],
    candidates: Floats,
    values: Floats,
    m: int,
) -> Floats:
    """Herd m points (m, d) of R^d (KMCF16 eq. 2.16, 2.17), none worse than the best candidate."""
    deviation = candidates.std(axis=0)
    scale = np.where(deviation > 0, deviation, 1.0)
    total = np.zeros(len(values))
    picks = np.empty((m, candidates.shape[1]))
    for p in range(m):
        heights = values - total / (p + 1)
        best = int(np.argmax(heights))

        def height(Y: Floats, p: int = p) -> Floats:
            taken = kernel(Y, picks[:p]).sum(axis=1) / (p + 1) if p else 0.0
            return np.asarray(mu(Y) - taken)

        picks[p] = climb(height, candidates[best], scale, float(heights[best]))
        total += kernel(picks[p : p + 1], candidates)[0]
    return picks


def climb(
    f: Callable[[Floats], Floats], start: Floats, scale: Floats, at_start: float, **options: float
) -> Floats:
    """Local maximum (d,) of f near a start, by central differences; the start if none is higher."""
    d = len(start)
    corners = ASCENT_STEP * np.concatenate([np.zeros((1, d)), np.eye(d), -np.eye(d)])

    def down(u: Floats) -> tuple[float, Floats]:
        v = f(start + (u + corners) * scale)
        return -float(v[0]), (v[d + 1 :] - v[1 : d + 1]) / (2.0 * ASCENT_STEP)

    limits = {"maxiter": 50} | options
    found = minimize(down, np.zeros(d), jac=True, method="L-BFGS-B", options=limits)
    return start + found.x * scale if -found.fun > at_start else start


def gaussian_starts(mean: Floats, cov: Floats, m: int) -> Floats:
    """Quasi-random points (n, d) of a normal distribution, n at least twice m; deterministic."""
    size = max(ASCENT_STARTS, 2 * m)
    power = int(np.ceil(np.log2(size)))
    uniform = qmc.Sobol(len(mean), scramble=False).random_base2(power) + 0.5 ** (power + 1)
    return np.asarray(mean + ndtri(uniform) @ symmetric_factor(cov).T)
