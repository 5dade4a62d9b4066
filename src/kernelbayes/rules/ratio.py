r"""Density ratios: how much likelier is a point under one distribution than under another.

``density_ratio(numerator, denominator)`` estimates r(x) = p_numerator(x) / p_denominator(x) from
two samples, without estimating either density. The importance-weighted Bayes' rule needs it: the
numerator is the prior, the denominator the training marginal.

===========  ======================================================================================
method       minimises
===========  ======================================================================================
"kulsif"     E_den[r^2]/2 - E_num[r] + eta |r|^2/2 over the RKHS (Kanamori et al. 2012). Closed
             form, leave-one-out score in closed form. The default.
"rulsif"     the same with the denominator alpha p_num + (1 - alpha) p_den (Yamada et al. 2011):
             the relative ratio, bounded by 1/alpha, far less variable when the two differ much.
"ulsif"      the same as "kulsif" over combinations of kernels at chosen centres: cheap.
"kmm"        the RKHS distance between the re-weighted denominator sample and the numerator, over
             weights in a box (kernel mean matching; Huang et al. 2007).
===========  ======================================================================================

Estimates are cut off at zero. All four accept an embedding as the numerator, all but "rulsif"
also one with negative weights, "kulsif" and "kmm" also a Gaussian in closed form.

>>> import numpy as np
>>> from kernelbayes import density_ratio
>>> rng = np.random.default_rng(0)
>>> r = density_ratio(numerator=rng.normal(0.5, 1.0, 500), denominator=rng.normal(0.0, 1.0, 500))
>>> low, high = r.ratio([-1.0, 1.0])  # the truth is 0.54 and 1.45
>>> bool(0.3 < low < 0.8 and 1.1 < high < 1.8)
True
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from array_api_compat import device

from kernelbayes.arrays import (
    Array,
    Rng,
    as_generator,
    eigh,
    like,
    namespace,
    threads_for,
    to_float,
    to_numpy,
)
from kernelbayes.embedding import Embedding, MeanElement, embed
from kernelbayes.embedding.gaussian import GaussianEmbedding
from kernelbayes.gram import Dense, check_ridge, gram
from kernelbayes.gram.loo import exact_features, loo_errors, loo_subset, ridge_grid
from kernelbayes.kernels import Kernel
from kernelbayes.kernels.default import default_kernel
from kernelbayes.points import Points, concatenate, count, take

# Share of the numerator in the denominator of the relative ratio, as Yamada et al. (2011) use it.
RELATIVE = 0.1
# Points drawn from a Gaussian prior in closed form to choose its ridge.
GAUSSIAN_POINTS = 1000

Method = Literal["kulsif", "rulsif", "ulsif", "kmm"]


@dataclass(frozen=True)
class DensityRatio:
    """An estimated ratio of densities, numerator over denominator.

    Attributes
    ----------
    at_denominator
        Array of shape (n,): the ratio at the denominator's points, not negative.
    method : str
    ridge : float
    """

    at_denominator: Array
    method: str
    ridge: float
    _evaluate: Callable[[Points], Array] = field(repr=False)

    def __repr__(self) -> str:
        """Say method, ridge, and how far the ratio is from one."""
        values = to_numpy(self.at_denominator)
        return (
            f"DensityRatio({self.method}, ridge {self.ridge:.3g}, from {values.min():.3g} to "
            f"{values.max():.3g} at {len(values)} points of the denominator)"
        )

    def ratio(self, X: Any) -> Array:
        """Ratio at new points X, shape (m,), not negative."""
        values = self._evaluate(X)
        return namespace(values).clip(values, min=0.0)

    def __call__(self, X: Any) -> Array:
        """Ratio at new points; the same as ``ratio(X)``."""
        return self.ratio(X)


@dataclass(frozen=True, eq=False)
class _Basis(Kernel):
    """Kernel whose features are another kernel's values at given centres."""

    kernel: Kernel
    centres: Points = field(repr=False)

    @property
    def finite(self) -> bool:
        return True

    def _points(self, X: Any, name: str) -> Points:
        return self.kernel.points(X, name)

    def _features(self, X: Points) -> Array:
        return self.kernel(X, self.centres)

    def _cross(self, X: Points, Y: Points) -> Array:
        return self._features(X) @ self._features(Y).T

    def _diag(self, X: Points) -> Array:
        features = self._features(X)
        return namespace(features).sum(features**2, axis=1)


def density_ratio(
    numerator: Any,
    denominator: Any,
    kernel: Kernel | None = None,
    method: Method = "kulsif",
    ridge: float | Literal["loo"] = "loo",
    *,
    alpha: float = RELATIVE,
    centres: int | Any = 100,
    bound: float = 1000.0,
    rng: Rng = None,
) -> DensityRatio:
    """Estimate the density of ``numerator`` divided by the density of ``denominator``.

    Parameters
    ----------
    numerator : points (m, ...) or embedding
        Sample on top of the fraction (the prior, in Bayes' rule).
    denominator : points (n, ...)
        Sample below the fraction (the training marginal).
    kernel : Kernel, optional
        By default the numerator's, if it is an embedding, or the median heuristic.
    method : {"kulsif", "rulsif", "ulsif", "kmm"}
    ridge : float or "loo"
        "loo" minimises the leave-one-out score (for "rulsif" 5-fold, for "kmm" the error of the
        regression that extends the weights to new points).
    alpha : float
        For "rulsif": share of the numerator in the denominator, in [0, 1).
    centres : int or points
        For "ulsif": how many points of the numerator are centres, or the centres.
    bound : float
        For "kmm": largest ratio allowed.
    rng : int, Generator or None
        For the random choice of centres.

    Returns
    -------
    DensityRatio
        With ``ratio(X)`` at new points and ``.at_denominator``.
    """
    if kernel is None:
        embedded = isinstance(numerator, MeanElement)
        kernel = numerator.kernel if embedded else default_kernel(denominator)
    Z = kernel.points(denominator, "denominator")
    if method == "ulsif":
        kernel, numerator = _with_centres(kernel, numerator, centres, as_generator(rng))
    m = numerator if isinstance(numerator, MeanElement) else embed(numerator, kernel)
    if m.kernel != kernel:
        raise ValueError(f"the numerator is embedded with {m.kernel!r}, not with {kernel!r}")
    if isinstance(m, Embedding):
        kernel.check_pair(m.points, Z)
    if method in ("kulsif", "ulsif"):
        eta = kulsif_ridge(m, Z) if ridge == "loo" else check_ridge(ridge)
        return _least_squares(m, Z, None, method, eta)
    if method == "rulsif":
        if not 0.0 <= alpha < 1.0:
            raise ValueError(f"alpha must lie in [0, 1), got {alpha!r}")
        return _relative(m, Z, alpha, ridge)
    if method == "kmm":
        if not 1.0 <= bound < np.inf:
            raise ValueError(f"bound must be at least 1 and finite, got {bound!r}")
        return _mean_matching(m, Z, ridge, bound)
    raise ValueError(f"method must be 'kulsif', 'rulsif', 'ulsif' or 'kmm', got {method!r}")


def _least_squares(
    m: MeanElement, V: Points, weights: Array | None, method: str, eta: float, n: int | None = None
) -> DensityRatio:
    """Return r = (C + eta)^-1 m, with C = sum_i v_i k(v_i, .) (x) k(v_i, .), cut off at zero."""
    kernel = m.kernel
    template = kernel.diag(take(V, slice(0, 1)))
    xp, size = namespace(template), count(V)
    if weights is None:
        weights = xp.ones(size, dtype=template.dtype, device=device(template)) / size
    G = gram(kernel, V)
    solver = G.weighted(weights, eta)
    if kernel.finite:
        assert isinstance(m, Embedding)
        theta = solver.coefficients(m.features)
        at_points = solver.values_features(m.features)

        def evaluate(X: Any) -> Array:
            return kernel.features(X) @ theta

    else:
        right = m(V)
        at_points = solver.values(right)
        w = solver.solve(right)
        used = solver.diagnostics.ridge_used
        explained = Embedding(V, w, kernel)

        def evaluate(X: Any) -> Array:
            return (m(X) - explained(X)) / used  # Woodbury

    at_denominator = xp.clip(at_points[: n or size], min=0.0)
    return DensityRatio(at_denominator, method, eta, evaluate)


def _relative(m: MeanElement, Z: Points, alpha: float, ridge: Any) -> DensityRatio:
    if not isinstance(m, Embedding) or bool(namespace(m.weights).any(m.weights < 0)):
        raise TypeError("'rulsif' needs a numerator of points with weights that are not negative")
    m = m.normalized()  # a ratio of probability distributions, bounded by 1 / alpha
    n = count(Z)
    xp = namespace(m.weights)
    V = concatenate(Z, m.points)
    uniform = xp.ones(n, dtype=m.weights.dtype, device=device(m.weights)) * ((1.0 - alpha) / n)
    v = xp.concat([uniform, alpha * m.weights])
    eta = _relative_ridge(m, Z, alpha) if ridge == "loo" else check_ridge(ridge)
    return _least_squares(m, V, v, "rulsif", eta, n)


def _relative_ridge(m: Embedding, Z: Points, alpha: float, folds: int = 5) -> float:
    """Ridge with the smallest 5-fold score E_mix[r^2]/2 - E_num[r]."""
    Z, U = take(Z, loo_subset(count(Z))), take(m.points, loo_subset(len(m)))
    w = to_numpy(m.weights)[loo_subset(len(m))]
    w = w / w.sum()
    F, H = exact_features(m.kernel, Z, U)
    ridges = ridge_grid(F)
    scores = np.zeros(len(ridges))
    order = np.random.default_rng(0)
    fold_z = order.permutation(len(F)) % folds
    fold_u = order.permutation(len(H)) % folds
    for fold in range(folds):
        z, u = fold_z != fold, fold_u != fold
        if not (z.any() and u.any() and (~z).any() and (~u).any()):
            continue
        inside, outside = w[u] / w[u].sum(), w[~u] / w[~u].sum()
        C = (1 - alpha) * F[z].T @ F[z] / z.sum() + alpha * (H[u].T * inside) @ H[u]
        squares, Q = eigh(C)
        mean = Q.T @ (inside @ H[u])
        at_z, at_u = F[~z] @ Q, H[~u] @ Q
        for i, ridge in enumerate(ridges):
            theta = mean / (np.maximum(squares, 0.0) + ridge)
            r_z, r_u = np.maximum(at_z @ theta, 0), np.maximum(at_u @ theta, 0)
            second = (1 - alpha) * np.mean(r_z**2) + alpha * outside @ r_u**2
            scores[i] += 0.5 * second - outside @ r_u
    return float(ridges[np.argmin(scores)])


def _with_centres(
    kernel: Kernel, numerator: Any, centres: Any, rng: np.random.Generator
) -> tuple[Kernel, Embedding]:
    if isinstance(numerator, MeanElement) and not isinstance(numerator, Embedding):
        raise TypeError("'ulsif' needs a numerator of points")
    U = numerator.points if isinstance(numerator, Embedding) else kernel.points(numerator)
    if isinstance(centres, int | np.integer):
        if centres < 1:
            raise ValueError(f"centres must be at least 1, got {centres}")
        centres = take(U, rng.permutation(count(U))[: int(centres)])
    basis = _Basis(kernel, kernel.points(centres, "centres"))
    return basis, embed(U, basis, getattr(numerator, "weights", None))


def _mean_matching(m: MeanElement, Z: Points, ridge: Any, bound: float) -> DensityRatio:
    """Kernel mean matching by accelerated projected gradient; extended by ridge regression."""
    n = count(Z)
    K = np.asarray(to_numpy(m.kernel(Z)), dtype=np.float64)
    target = np.asarray(to_numpy(m(Z)), dtype=np.float64)
    weights = _box_quadratic(K, target, bound / n, slack=1.0 / np.sqrt(n))
    F = exact_features(m.kernel, take(Z, loo_subset(n)))[0]
    values = n * weights
    if ridge == "loo":
        grid = ridge_grid(F)
        errors = loo_errors(F, values[loo_subset(n), None], grid)
        ridge = grid[np.argmin(errors)]
    eta = check_ridge(ridge)
    template = m.kernel.diag(Z)
    coefficients = Dense(K).ridge(eta).solve(values)
    extension = Embedding(Z, like(coefficients, template), m.kernel)
    return DensityRatio(like(values, template), "kmm", eta, extension)


def _box_quadratic(K: Any, b: Any, upper: float, slack: float, steps: int = 2000) -> Any:
    """Minimise w^T K w / 2 - b^T w over 0 <= w <= upper, |sum w - 1| <= slack (FISTA)."""
    n = len(b)
    with threads_for(2.0 * n * n):
        probe = np.ones(n)
        for _ in range(30):
            probe = K @ probe
            probe /= np.linalg.norm(probe)
        step = 1.0 / (1.05 * float(probe @ K @ probe) + 1e-300)
        w = y = np.full(n, 1.0 / n)
        t = 1.0
        for _ in range(steps):
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


def _project_box_sum(w: Any, upper: float, low: float, high: float) -> Any:
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
    return np.clip(w - 0.5 * (left + right), 0.0, upper)


# --- the leave-one-out score of KuLSIF -----------------------------------------------------------


def kulsif_ridge(m: MeanElement, Z: Points) -> float:
    """First ridge eta with the smallest leave-one-out score of the relative ratio.

    Kanamori's own score is not bounded below when points of the numerator lie where the
    denominator has none: a wild ratio there is rewarded and never punished. The relative ratio
    (Yamada et al. 2011) is bounded, so its score is too.
    """
    if isinstance(m, GaussianEmbedding):  # the bounded score needs points: a fixed sample
        mean, cov = (np.asarray(to_numpy(a), dtype=np.float64) for a in (m.mean, m.cov))
        points = np.random.default_rng(0).multivariate_normal(mean, cov, size=GAUSSIAN_POINTS)
        m = embed(like(points, m.mean), m.kernel)
    ridges, scores = kulsif_scores(m, Z, relative=RELATIVE)
    return float(ridges[np.argmin(scores)])


def kulsif_scores(
    m: MeanElement, Z: Points, ridges: Any = None, relative: float = 0.0
) -> tuple[Any, Any]:
    """Leave-one-out scores of KuLSIF over ridges: half of E_den[r^2] minus E_num[r].

    The score is an unbiased estimate, up to a constant, of half the squared distance between the
    estimated and the true ratio in L2 of the denominator, so it compares kernels as well as
    ridges. Beyond 2000 points a random subset is used.
    """
    Z = take(Z, loo_subset(count(Z)))
    if not isinstance(m, Embedding):  # a closed form: leave out points of the denominator only
        G = np.asarray(to_numpy(m.kernel(Z)), dtype=np.float64)
        values = np.asarray(to_numpy(m(Z)), dtype=np.float64)
        square = np.array([[to_float(m.norm()) ** 2]])
        joint = np.block([[G, values[:, None]], [values[None, :], square]])
        L = Dense(joint).factor
        F, mean, U, w = L[:-1], L[-1], None, None
    else:
        keep = loo_subset(len(m))
        w = np.asarray(to_numpy(m.weights), dtype=np.float64)[keep]
        total = float(w.sum())
        if abs(total) > 1e-3 * float(np.abs(w).sum()):
            w = w / total  # the ridge of a multiple of the prior is the prior's
        F, U = exact_features(m.kernel, Z, take(m.points, keep))
        mean = w @ U
    ridges = ridge_grid(F) if ridges is None else np.asarray(ridges, dtype=float)
    return ridges, kulsif_loo(F, mean, ridges, U, w, relative)


def kulsif_loo(
    F: Any, mean: Any, ridges: Any, U: Any = None, w: Any = None, relative: float = 0.0
) -> Any:
    r"""Closed-form leave-one-out scores (Kanamori, Suzuki and Sugiyama 2012, section 3.4).

    With pair l left out of both samples, ``r = (C + eta)^-1 m`` changes by a rank-one update:
    for B = F^T F + (n - 1) eta I and h = f_l^T B^-1 f_l,

    .. math:: r^{(l)}(z_l) = (n-1) \frac{f_l^\top B^{-1} m^{(l)}}{1 - h}, \quad
              r^{(l)}(u_l) = (n-1) \left(u_l^\top B^{-1} m^{(l)}
              + \frac{u_l^\top B^{-1} f_l \; f_l^\top B^{-1} m^{(l)}}{1 - h}\right)

    Parameters
    ----------
    F : array (n, r)
        Features of the denominator.
    mean : array (r,)
        Features of the numerator's embedding.
    ridges : array (p,)
    U, w : arrays (m, r) and (m,), optional
        Features and weights of the numerator's points; without them the numerator is exact.
        The shorter sample is gone through more than once, so that every point is left out.
    relative : float
        Score the left-out values of r / (relative r + 1 - relative), cut off at zero, with
        ``relative`` of the numerator mixed into the denominator; 0 is Kanamori's score.

    Returns
    -------
    array (p,)
    """
    n = len(F)
    if n == 1:
        return np.asarray(ridges, dtype=float)  # nothing to leave out: the smallest ridge is best
    if w is not None and np.abs(w).max() > 0.75 * abs(w.sum()):
        U = None  # little is left without the heaviest point: take the numerator as exact
    squares, Q = eigh(F.T @ F)
    squares = np.maximum(squares, 0.0)
    P, p = F @ Q, mean @ Q
    if U is not None:
        pairs = np.arange(max(n, len(U)))
        V, v = (U @ Q)[pairs % len(U)], w[pairs % len(U)]
        P = P[pairs % n]
    scores = np.empty(len(ridges))
    for i, ridge in enumerate(ridges):
        b = 1.0 / (squares + (n - 1) * ridge)
        one_minus_h = np.maximum(1.0 - (P * P) @ b, np.finfo(float).eps)
        z_m = P @ (b * p)
        if U is None:
            r_z = (n - 1) * z_m / one_minus_h
            expected = (n - 1) * (p * p @ b + z_m**2 / one_minus_h)
            scores[i] = np.mean(0.5 * r_z**2 - expected)
            continue
        u_z = np.einsum("ij,ij,j->i", V, P, b)
        u_m = (V @ (b * p) - v * ((V * V) @ b)) / (1.0 - v)
        z_m = (z_m - v * u_z) / (1.0 - v)
        r_z = (n - 1) * z_m / one_minus_h
        r_u = (n - 1) * (u_m + u_z * z_m / one_minus_h)
        if relative:
            g_z, g_u = (
                np.maximum(r, 0.0) / (relative * np.maximum(r, 0.0) + 1.0 - relative)
                for r in (r_z, r_u)
            )
            second = (1.0 - relative) * np.mean(g_z**2) + relative * (v @ g_u**2) / v.sum()
            scores[i] = 0.5 * second - v @ g_u / v.sum()
            continue
        scores[i] = 0.5 * np.mean(r_z**2) - v @ r_u / v.sum()
    return scores
