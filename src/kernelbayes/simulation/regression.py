r"""Kernel ridge regression that learns its own metric.

The regression of targets Y on inputs X uses a Gaussian kernel, a linear one and a constant, on
landmarks, in coordinates ``X @ metric``. The bandwidth is chosen by the closed-form leave-one-out
error, the ridge too, for each target apart. The metric starts as the identity and is replaced by
the average outer product of the gradients of what was learned (Radhakrishnan et al. 2024, recursive
feature machines),

.. math:: M = \frac1n \sum_i \sum_j \nabla f_j(x_i) \nabla f_j(x_i)^\top,

for as long as that lowers the leave-one-out error: inputs that do not matter disappear. What is
kept are the left-out predictions too, since residuals of the fit itself are too small.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from kernelbayes.arrays import threads_for
from kernelbayes.kernels import Gaussian
from kernelbayes.loo import loo_predictions, ridge_grid
from kernelbayes.simulation.kde import squared_distances

Floats = np.ndarray[Any, Any]
LANDMARKS = 400
# Bandwidths in multiples of the median distance; the metric is updated this often at most.
SCALES = (0.35, 0.7, 1.4, 2.8)
UPDATES = 2
# Bandwidth, ridge and metric are chosen on this many pairs at most.
CHOICE_PAIRS = 1500
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
    """A fitted regression: basis, coefficients (r, q), ridges (q,), left-out predictions (n, q)."""

    basis: Basis
    coefficients: Floats
    ridges: Floats
    left_out: Floats
    error: float

    def __call__(self, X: Floats) -> Floats:
        """Predictions (n, q)."""
        return np.asarray(self.basis(X) @ self.coefficients)

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
) -> Regression:
    """Fit to inputs (n, p) and targets (n, q), both roughly standardised; weights sum to one."""
    subset = rng.permutation(len(X))[:CHOICE_PAIRS]
    w = None if weights is None else weights[subset] / weights[subset].sum()
    Xs, Ys = X[subset], Y[subset]
    best: Regression | None = None
    metric = np.eye(X.shape[1])
    for _ in range(updates + 1):
        tried = min((_at(Xs, Ys, metric, s, w) for s in SCALES), key=lambda fit: fit.error)
        if best is not None and tried.error >= best.error:
            break
        best = tried
        metric = _sharpened(best.basis.gradients(Xs[:1000], best.coefficients))
    assert best is not None
    if len(subset) == len(X):
        order = np.empty_like(subset)
        order[subset] = np.arange(len(subset))
        return replace(best, left_out=best.left_out[order])
    return _solved(best.basis, X, Y, weights, best.ridges[None, :])


def refit(basis: Basis, X: Floats, Y: Floats, weights: Floats | None = None) -> Regression:
    """Fit other targets on a basis that is already chosen; ridges by leave-one-out."""
    return _solved(basis, X, Y, weights)


def _at(X: Floats, Y: Floats, metric: Floats, scale: float, weights: Floats | None) -> Regression:
    U = X @ metric
    landmarks = U[:LANDMARKS]
    h = scale * float(Gaussian.median(U[:500]).bandwidth)  # type: ignore[arg-type]
    K = np.exp(-0.5 * squared_distances(landmarks, landmarks) / h**2)
    values, vectors = np.linalg.eigh(K)
    keep = values > 1e-10 * values[-1]
    slope = 1.0 / np.sqrt(max(float(np.mean(np.sum(U * U, axis=1))), 1e-12))
    basis = Basis(metric, landmarks, h, vectors[:, keep] / np.sqrt(values[keep]), slope)
    return _solved(basis, X, Y, weights)


def _solved(
    basis: Basis, X: Floats, Y: Floats, weights: Floats | None, ridges: Floats | None = None
) -> Regression:
    """Coefficients for each target's own ridge: given ones (1, q), or the best of a grid."""
    F = basis(X)
    r = np.full(len(F), 1.0 / len(F)) if weights is None else weights
    with threads_for(float(F.size) * F.shape[1]):
        grid = ridge_grid(F, weights, 13)
        if ridges is None:
            errors = np.stack([r @ (P - Y) ** 2 for P in loo_predictions(F, Y, grid, weights)])
            chosen = grid[np.argmin(errors, axis=0)]
        else:
            chosen = ridges[0]
        squares, V = np.linalg.eigh(F.T @ (r[:, None] * F))
        squares, P = np.maximum(squares, 0.0), F @ V
        filters = 1.0 / (squares[:, None] + chosen)
        spectral = filters * (P.T @ (r[:, None] * Y))
        leverage = np.minimum(r[:, None] * ((P * P) @ filters), 1.0 - 1e-10)
        left_out = (P @ spectral - leverage * Y) / (1.0 - leverage)
    error = float(np.sum(r @ (left_out - Y) ** 2))
    return Regression(basis, V @ spectral, chosen, left_out, error)


def _sharpened(M: Floats) -> Floats:
    """Coordinates in which squared distances are those of M, small directions dropped."""
    values, vectors = np.linalg.eigh(M)
    keep = values > LEAST_GRADIENT**2 * max(float(values[-1]), np.finfo(float).tiny)
    if not np.any(keep):
        return np.eye(len(M))
    kept = values[keep] / values[keep].mean()
    return np.asarray(vectors[:, keep] * np.sqrt(kept))
