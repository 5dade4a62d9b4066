r"""Kernel ridge regression that learns its own metric.

The regression of targets Y on inputs X uses a Gaussian kernel, a linear one and a constant, on
landmarks, in coordinates ``X @ metric``. The bandwidth is chosen by the closed-form leave-one-out
error, the ridge too, for each target apart. The metric starts as the identity and is replaced by
the average outer product of the gradients of what was learned (Radhakrishnan et al. 2024, recursive
feature machines),

.. math:: M = \frac1n \sum_i \sum_j \nabla f_j(x_i) \nabla f_j(x_i)^\top,

for as long as that lowers the leave-one-out error: inputs that do not matter disappear. What is
kept are the left-out predictions too, since residuals of the fit itself are too small. They are
made in folds. Leaving out one pair at a time would not do: among pairs with the same input such a
prediction is a straight line in the pair's own target, and what is regressed on it next would fit
the target without an error.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg

from kernelbayes.arrays import threads_for
from kernelbayes.gram.loo import loo_predictions, ridge_grid
from kernelbayes.kernels import Gaussian

Floats = np.ndarray[Any, Any]
LANDMARKS = 400
# Bandwidths in multiples of the median distance; the metric is updated this often at most.
SCALES = (0.35, 0.7, 1.4, 2.8)
UPDATES = 2
# Smaller ones are tried while that pays, down to this.
FINEST = 0.05
# Bandwidth, ridge and metric are chosen on this many pairs at most.
CHOICE_PAIRS = 1500
# Parts of the pairs that are left out in turn.
FOLDS = 5
# Variances below this share of their mean count as that much.
LEAST_VARIANCE = 1e-3
# Directions whose gradient is smaller than this share of the largest are dropped.
LEAST_GRADIENT = 1e-3


@dataclass(frozen=True, eq=False)
class Basis:
    """Features of inputs: Gaussian on landmarks, linear, constant; in a learned metric."""

    metric: Floats
    landmarks: Floats
    bandwidth: float
    root: Floats
    slope: float

    def __call__(self, X: Floats) -> Floats:
        """Features (n, r)."""
        U = X @ self.metric
        return np.hstack([self._gaussian(U) @ self.root, self.slope * U, np.ones((len(U), 1))])

    def predict(self, X: Floats, coefficients: Floats) -> Floats:
        """``features @ coefficients``, (n, q), without making the features."""
        U, r = X @ self.metric, self.root.shape[1]
        found = self._gaussian(U) @ (self.root @ coefficients[:r])
        found += U @ (self.slope * coefficients[r:-1])
        found += coefficients[-1]
        return np.asarray(found)

    def _gaussian(self, U: Floats) -> Floats:
        D = squared_distances(U, self.landmarks)
        D *= -0.5 / self.bandwidth**2
        return np.asarray(np.exp(D, out=D))

    def gradients(self, X: Floats, coefficients: Floats) -> Floats:
        """Average outer product of the gradients in X of ``features @ coefficients``, (p, p)."""
        U, r = X @ self.metric, self.root.shape[1]
        K, alpha = self._gaussian(U), self.root @ coefficients[:r]
        values = K @ alpha
        total = np.zeros((X.shape[1], X.shape[1]))
        for j in range(coefficients.shape[1]):
            bent = K @ (alpha[:, [j]] * self.landmarks) - U * values[:, [j]]
            g = bent / self.bandwidth**2 + self.slope * coefficients[r:-1, j]
            g = g @ self.metric.T
            total += g.T @ g
        return total / len(X)


@dataclass(frozen=True, eq=False)
class Regression:
    """A fitted regression: basis, ridges (q,), coefficients (r, q), left-out predictions (n, q)."""

    basis: Basis
    ridges: Floats
    coefficients: Floats
    left_out: Floats

    def __call__(self, X: Floats) -> Floats:
        """Predictions (n, q)."""
        return self.basis.predict(X, self.coefficients)

    @property
    def metric(self) -> Floats:
        """Learned coordinates ``X @ metric``."""
        return self.basis.metric


def regress(
    X: Floats,
    Y: Floats,
    rng: np.random.Generator,
    weights: Floats | None = None,
    updates: int = UPDATES,
    pairs: int = CHOICE_PAIRS,
    landmarks: int = LANDMARKS,
    finest: float = FINEST,
) -> Regression:
    """Fit to inputs (n, p) and targets (n, q), both roughly standardised; weights sum to one.

    Bandwidth, ridge and metric are chosen on so many pairs; bandwidths smaller than usual are tried
    down to ``finest`` median distances. More landmarks than usual are used when bandwidth and
    metric have been chosen.
    """
    subset = rng.permutation(len(X))[:pairs]
    w = None if weights is None else weights[subset] / weights[subset].sum()
    Xs, Ys = X[subset], Y[subset]
    best: _Tried | None = None
    metric = np.eye(X.shape[1])
    scales: tuple[float, ...] = SCALES
    for i in range(updates + 1):
        fits = [_at(Xs, Ys, metric, s, w) for s in scales]
        while fits[0].error == min(fit.error for fit in fits) and scales[0] > finest:
            scales = (scales[0] / 2.0, *scales)  # the best at the edge: further
            fits.insert(0, _at(Xs, Ys, metric, scales[0], w))
        at = int(np.argmin([fit.error for fit in fits]))
        if best is not None and fits[at].error >= best.error:
            break
        best, scales = fits[at], scales[max(at - 1, 0) : at + 2]
        if i < updates:
            coefficients = _solve(*_products(best.F, Ys, w), best.ridges)
            metric = _sharpened(best.basis.gradients(Xs[:1000], coefficients))
    assert best is not None
    if landmarks <= LANDMARKS:
        return _solved(best.basis, best.basis(X), Y, weights, best.ridges)
    chosen = best.basis
    places = Xs[:landmarks] @ chosen.metric
    basis = _basis(places, chosen.metric, chosen.bandwidth, chosen.slope)
    F = basis(X)
    return _solved(basis, F, Y, weights, _ridges(F[subset], Ys, w)[0])


def refit(basis: Basis, X: Floats, Y: Floats, weights: Floats | None = None) -> Regression:
    """Fit other targets on a basis that is already chosen; ridges by leave-one-out."""
    F, some = basis(X), slice(CHOICE_PAIRS)
    w = None if weights is None else weights[some] / weights[some].sum()
    return _solved(basis, F, Y, weights, _ridges(F[some], Y[some], w)[0])


def again(fit: Regression, X: Floats, Y: Floats, weights: Floats | None = None) -> Regression:
    """Fit to more pairs of the same kind: basis and ridges as they were chosen."""
    return _solved(fit.basis, fit.basis(X), Y, weights, fit.ridges)


def reweighted(fit: Regression, X: Floats, Y: Floats, variances: Floats) -> Regression:
    """Fit again, with each pair counting by one over its variance (n, q), target by target."""
    F, columns = fit.basis(X), []
    for j in range(Y.shape[1]):
        floor = LEAST_VARIANCE * float(np.mean(variances[:, j]))
        w = 1.0 / np.maximum(variances[:, j], max(floor, np.finfo(float).tiny))
        some = slice(CHOICE_PAIRS)
        ridges = _ridges(F[some], Y[some, j : j + 1], w[some] / w[some].sum())[0]
        columns.append(_solved(fit.basis, F, Y[:, j : j + 1], w / w.sum(), ridges))
    return Regression(
        fit.basis,
        np.concatenate([c.ridges for c in columns]),
        np.hstack([c.coefficients for c in columns]),
        np.hstack([c.left_out for c in columns]),
    )


@dataclass(frozen=True, eq=False)
class _Tried:
    """A basis with its features (n, r), the best ridges (q,) and their leave-one-out error."""

    basis: Basis
    F: Floats
    ridges: Floats
    error: float


def _at(X: Floats, Y: Floats, metric: Floats, scale: float, weights: Floats | None) -> _Tried:
    U = X @ metric
    h = scale * float(Gaussian.median(U[:500]).bandwidth)  # type: ignore[arg-type]
    slope = 1.0 / np.sqrt(max(float(np.mean(np.sum(U * U, axis=1))), 1e-12))
    basis = _basis(U[:LANDMARKS], metric, h, slope)
    F = basis(X)
    return _Tried(basis, F, *_ridges(F, Y, weights))


def _basis(landmarks: Floats, metric: Floats, h: float, slope: float) -> Basis:
    """Features of landmarks (m, c) that are given in the coordinates of the metric."""
    K = np.exp(-0.5 * squared_distances(landmarks, landmarks) / h**2)
    values, vectors = np.linalg.eigh(K)
    keep = values > 1e-10 * values[-1]
    return Basis(metric, landmarks, h, vectors[:, keep] / np.sqrt(values[keep]), slope)


def _ridges(F: Floats, Y: Floats, weights: Floats | None) -> tuple[Floats, float]:
    """Best ridge of a grid for each target, (q,), and the leave-one-out error they have."""
    r = np.full(len(F), 1.0 / len(F)) if weights is None else weights
    with threads_for(float(F.size) * F.shape[1]):
        grid = ridge_grid(F, weights, 13)
        errors = np.stack([r @ (P - Y) ** 2 for P in loo_predictions(F, Y, grid, weights)])
    return grid[np.argmin(errors, axis=0)], float(np.sum(errors.min(axis=0)))


def _solved(
    basis: Basis, F: Floats, Y: Floats, weights: Floats | None, ridges: Floats
) -> Regression:
    """Regression on features (n, r) with given ridges (q,)."""
    r = np.full(len(F), 1.0 / len(F)) if weights is None else weights
    left_out = np.empty(Y.shape)
    with threads_for(float(F.size) * F.shape[1]):
        folds = max(min(FOLDS, len(F) // 2), 2)
        parts = [slice(i, None, folds) for i in range(folds)]
        products = [(*_products(F[rows], Y[rows], r[rows]), r[rows].sum()) for rows in parts]
        for i, rows in enumerate(parts):
            # Added up, not taken from those of all: a part may have nearly all of the weight.
            g, c, kept = _added(products[:i] + products[i + 1 :])
            rest = max(float(kept), np.finfo(float).tiny)
            left_out[rows] = F[rows] @ _solve(g / rest, c / rest, ridges)
        G, C, _ = _added(products)
        return Regression(basis, ridges, _solve(G, C, ridges), left_out)


def _products(F: Floats, Y: Floats, weights: Floats | None) -> tuple[Floats, Floats]:
    """Weighted products (r, r) of features and (r, q) of features and targets."""
    scaled = F / len(F) if weights is None else weights[:, None] * F
    return F.T @ scaled, scaled.T @ Y


def _added(parts: list[tuple[Floats, Floats, Floats]]) -> tuple[Floats, Floats, Floats]:
    """Add up the products of parts, and their weights."""
    G, C, weight = (np.sum(some, axis=0) for some in zip(*parts, strict=True))
    return G, C, weight


def _solve(G: Floats, C: Floats, ridges: Floats) -> Floats:
    """Coefficients (r, q) of targets with a ridge (q,) each."""
    found = np.empty(C.shape)
    for ridge in np.unique(ridges):
        columns = ridges == ridge
        A = G.copy()
        A[np.diag_indices_from(A)] += ridge
        try:
            factor = scipy.linalg.cho_factor(A, overwrite_a=True, check_finite=False)
            found[:, columns] = scipy.linalg.cho_solve(factor, C[:, columns], check_finite=False)
        except np.linalg.LinAlgError:  # a ridge below rounding: chosen before some far pair came
            squares, V = np.linalg.eigh(G)
            rounding = len(G) * np.finfo(float).eps * float(squares[-1])
            filtered = 1.0 / (np.maximum(squares, 0.0) + max(ridge, rounding))
            found[:, columns] = V @ (filtered[:, None] * (V.T @ C[:, columns]))
    return found


def _sharpened(M: Floats) -> Floats:
    """Coordinates in which squared distances are those of M, small directions dropped."""
    values, vectors = np.linalg.eigh(M)
    keep = values > LEAST_GRADIENT**2 * max(float(values[-1]), np.finfo(float).tiny)
    if not np.any(keep):
        return np.eye(len(M))
    kept = values[keep] / values[keep].mean()
    return np.asarray(vectors[:, keep] * np.sqrt(kept))


def squared_distances(A: Floats, B: Floats) -> Floats:
    """Squared distances (n, m) between rows, by one matrix product."""
    D = A @ (-2.0 * B.T)
    D += np.einsum("ij,ij->i", A, A)[:, None]
    D += np.einsum("ij,ij->i", B, B)
    return np.asarray(np.maximum(D, 0.0, out=D))
