"""Kernel mean matching: the density ratio as weights within a box (Huang et al. 2007)."""

import numpy as np

from kernelbayes.arrays import as_doubles, like, threads_for
from kernelbayes.embedding import Embedding, MeanElement
from kernelbayes.gram import Dense, check_ridge
from kernelbayes.gram.loo import loo, loo_subset, ridge_grid
from kernelbayes.points import count
from kernelbayes.rules.conditional import Ridge
from kernelbayes.rules.variable import Variable
from kernelbayes.types import Array, Floats, Points

# Steps of power iteration for the largest eigenvalue, which is then raised by 5 % for what they may
# have missed; and a limit to those of the accelerated gradient, which stops when nothing moves.
POWER_STEPS, GRADIENT_STEPS = 30, 2000


def mean_matching(
    m: MeanElement, Z: Points, ridge: Ridge, bound: float
) -> tuple[Array, Embedding, float]:
    """Kernel mean matching: ratio (n,) at Z, its extension to other points, the ridge of that.

    Weights within ``bound`` minimise the RKHS distance to the embedding m (Huang et al. 2007, eq.
    9); ridge regression of the ratio extends it.
    """
    n = count(Z)
    K, target = as_doubles(m.kernel(Z)), as_doubles(m(Z))
    values = n * _box_quadratic(K, target, bound / n, slack=1.0 / np.sqrt(n))
    if ridge == "loo":
        keep = loo_subset(n)
        F = Variable(Z, m.kernel).exact(keep)
        ridge = loo(F, values[keep, None], ridge_grid(F)).best
    eta = check_ridge(ridge)
    template = m.kernel.diag(Z)
    coefficients = Dense(K).ridge(eta).solve(values)
    return like(values, template), Embedding(Z, like(coefficients, template), m.kernel), eta


def _box_quadratic(K: Floats, b: Floats, upper: float, slack: float) -> Floats:
    """Minimise w^T K w / 2 - b^T w over 0 <= w <= upper, |sum w - 1| <= slack (FISTA)."""
    n = len(b)
    with threads_for(2.0 * n * n):
        probe = np.ones(n)
        for _ in range(POWER_STEPS):
            probe = K @ probe
            probe /= np.linalg.norm(probe)
        step = 1.0 / (1.05 * float(probe @ K @ probe) + 1e-300)
        w = y = np.full(n, 1.0 / n)
        t = 1.0
        for _ in range(GRADIENT_STEPS):
            new = _project_box_sum(y - step * (K @ y - b), upper, 1.0 - slack, 1.0 + slack)
            if (new - w) @ (y - new) > 0:  # restart when momentum points uphill
                t = 1.0
            t_new = 0.5 * (1.0 + np.sqrt(1.0 + 4.0 * t * t))
            moved = float(np.abs(new - w).max())
            y = new + ((t - 1.0) / t_new) * (new - w)
            w, t = new, t_new
            if moved < 1e-9 * upper:
                break
    return w


def _project_box_sum(w: Floats, upper: float, low: float, high: float) -> Floats:
    """Euclidean projection on the box [0, upper]^n cut by low <= sum <= high."""
    clipped = np.clip(w, 0.0, upper)
    total = clipped.sum()
    if low <= total <= high:
        return clipped
    target = low if total < low else high
    left, right = float(w.min()) - upper, float(w.max())
    for _ in range(60):  # bisection for the common shift
        shift = 0.5 * (left + right)
        if np.clip(w - shift, 0.0, upper).sum() > target:
            left = shift
        else:
            right = shift
    return np.asarray(np.clip(w - 0.5 * (left + right), 0.0, upper))
