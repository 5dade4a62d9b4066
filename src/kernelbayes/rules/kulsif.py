"""Density ratios: KuLSIF's leave-one-out score in closed form, and kernel mean matching.

The score chooses the first ridge of Bayes' rule.
"""

import numpy as np
import numpy.typing as npt
from scipy.optimize import brentq

from kernelbayes.arrays import as_doubles, like, threads_for, to_float
from kernelbayes.embedding import Embedding, MeanElement, embed
from kernelbayes.embedding.gaussian import GaussianEmbedding
from kernelbayes.embedding.mean import LEAST_SHARE
from kernelbayes.gram import Dense, check_ridge, exact_features
from kernelbayes.gram.lapack import eigh
from kernelbayes.gram.loo import left_share, loo, loo_subset, ridge_grid
from kernelbayes.gram.solvers import CONDITION_BOUND
from kernelbayes.points import count, take
from kernelbayes.rules.conditional import Ridge
from kernelbayes.rules.variable import Variable
from kernelbayes.types import Array, Floats, Points

# Share of the numerator in the denominator of the relative ratio, as Yamada et al. (2011) use it.
RELATIVE = 0.1
# Points drawn from a Gaussian prior in closed form to choose its ridge: as many as a large sample
# has, at half the cost of the largest that is used (LOO_POINTS).
GAUSSIAN_POINTS = 1000
# A numerator of which one point has more than this share of the weight is taken as exact: without
# the point, little of it would be left.
HEAVIEST = 0.75
# Steps of power iteration for the largest eigenvalue, which is then raised by 5 %; and a limit to
# those of the accelerated gradient.
POWER_STEPS, GRADIENT_STEPS = 30, 2000


def kulsif_ridge(m: MeanElement, Z: Points) -> float:
    """First ridge eta with the smallest leave-one-out score of the relative ratio."""
    ridges, scores = relative_scores(m, Z)
    return float(ridges[np.argmin(scores)])


def relative_scores(m: MeanElement, Z: Points) -> tuple[Floats, Floats]:
    """Ridges and their leave-one-out scores of the relative ratio, which compare kernels too.

    Kanamori's own score is not bounded below when points of the numerator lie where the
    denominator has none: a wild ratio there is rewarded and never punished. The relative ratio
    (Yamada et al. 2011) is bounded, so its score is too.
    """
    if isinstance(m, GaussianEmbedding):  # the bounded score needs points: a fixed sample
        mean, cov = as_doubles(m.mean), as_doubles(m.cov)
        points = np.random.default_rng(0).multivariate_normal(mean, cov, size=GAUSSIAN_POINTS)
        m = embed(like(points, m.mean), m.kernel)
    return kulsif_scores(m, Z, relative=RELATIVE)


def kulsif_scores(
    m: MeanElement, Z: Points, ridges: npt.ArrayLike | None = None, relative: float = 0.0
) -> tuple[Floats, Floats]:
    """Leave-one-out scores of KuLSIF over ridges: half of E_den[r^2] minus E_num[r].

    The score is an unbiased estimate, up to a constant, of half the squared distance between the
    estimated and the true ratio in L2 of the denominator, so it compares kernels as well as
    ridges. Beyond 2000 points a random subset is used.
    """
    Z = take(Z, loo_subset(count(Z)))
    if not isinstance(m, Embedding):  # a closed form: leave out points of the denominator only
        values = as_doubles(m(Z))[:, None]
        square = np.array([[to_float(m.norm()) ** 2]])
        L = Dense(np.block([[as_doubles(m.kernel(Z)), values], [values.T, square]])).factor
        F, mean, U, w = L[:-1], L[-1], None, None
    else:
        keep = loo_subset(len(m))
        w = as_doubles(m.weights)[keep]
        total = float(w.sum())
        if abs(total) > LEAST_SHARE * float(np.abs(w).sum()):
            w = w / total  # the ridge of a multiple of the prior is the prior's
        F, U = exact_features(m.kernel, Z, take(m.points, keep))
        mean = w @ U
    found = ridge_grid(F) if ridges is None else np.asarray(ridges, dtype=float)
    if ridges is None and U is not None:
        # Features of the denominator that are nearly zero beside the numerator's say nothing.
        found = np.maximum(found, float(np.mean(np.sum(U * U, axis=1))) / CONDITION_BOUND)
    return found, kulsif_loo(F, mean, found, U, w, relative)


def kulsif_loo(
    F: Floats, mean: Floats, ridges: Floats, U: Floats | None = None, w: Floats | None = None,
    relative: float = 0.0,
) -> Floats:  # fmt: skip
    r"""Closed-form leave-one-out scores (Kanamori, Suzuki and Sugiyama 2012, section 3.4).

    With pair l left out of both samples, ``r = (C + eta)^-1 m`` changes by a rank-one update:
    for B = F^T F + (n - 1) eta I and h = f_l^T B^-1 f_l,

    .. math:: r^{(l)}(z_l) = (n-1) \frac{f_l^\top B^{-1} m^{(l)}}{1 - h}, \quad
              r^{(l)}(u_l) = (n-1) \left(u_l^\top B^{-1} m^{(l)}
              + \frac{u_l^\top B^{-1} f_l \; f_l^\top B^{-1} m^{(l)}}{1 - h}\right)

    F (n, r) and U (m, r) are features of the points of denominator and numerator, mean (r,) those
    of the numerator's embedding, and w (m,) the weights in it. Without U the numerator is exact. Of
    unequal samples the shorter one is gone through again, so that every point is left out.
    ``relative`` of the numerator is mixed into the denominator, and the ratio cut off at zero.
    """
    n = len(F)
    if n == 1:
        return ridges  # nothing to leave out: the smallest ridge is best
    squares, Q = eigh(F.T @ F)
    inverses = 1.0 / (np.maximum(squares, 0.0) + (n - 1) * ridges[:, None])
    P, p = F @ Q, mean @ Q
    if U is None or w is None or np.abs(w).max() >= HEAVIEST * abs(w.sum()):
        return np.array([_exact_score(P, p, b, n - 1) for b in inverses])
    pairs = np.arange(max(n, len(U)))
    V, v, P = (U @ Q)[pairs % len(U)], w[pairs % len(U)], P[pairs % n]
    return np.array([_score(P, p, V, v, b, n - 1, relative) for b in inverses])


def _exact_score(P: Floats, p: Floats, b: Floats, m: int) -> float:
    """Score of a numerator that is known exactly: half of E_den[r^2] minus E_num[r]."""
    rest = left_share(1.0 - (P * P) @ b)
    z_m = P @ (b * p)
    expected = m * (p * p @ b + z_m**2 / rest)
    return float(np.mean(0.5 * (m * z_m / rest) ** 2 - expected))


def _score(P: Floats, p: Floats, V: Floats, v: Floats, b: Floats, m: int, relative: float) -> float:
    """Score with pairs left out of both samples: features P and V, in eigenvectors; see above."""
    rest = left_share(1.0 - (P * P) @ b)
    u_z = np.einsum("ij,ij,j->i", V, P, b)
    u_m = (V @ (b * p) - v * ((V * V) @ b)) / (1.0 - v)
    z_m = (P @ (b * p) - v * u_z) / (1.0 - v)
    r_z, r_u = m * z_m / rest, m * (u_m + u_z * z_m / rest)
    if relative:
        r_z, r_u = (np.maximum(r, 0.0) for r in (r_z, r_u))
        r_z, r_u = (r / (relative * r + 1.0 - relative) for r in (r_z, r_u))
    second = (1.0 - relative) * np.mean(r_z**2) + relative * (v @ r_u**2) / v.sum()
    return float(0.5 * second - v @ r_u / v.sum())


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
    ends = float(w.min()) - upper, float(w.max())
    shift = brentq(lambda t: np.clip(w - t, 0.0, upper).sum() - target, *ends, xtol=1e-15)
    return np.asarray(np.clip(w - shift, 0.0, upper))
