r"""Kernel ridge regression that learns its own metric.

The regression of targets Y on inputs X uses a Gaussian kernel, a linear one and a constant, on
landmarks, in coordinates ``X @ metric``. The bandwidth is chosen by the closed-form leave-one-out
error, the ridge too, for each target apart. The metric starts as the identity and is replaced by
the average outer product of the gradients of what was learned (Radhakrishnan et al. 2024, recursive
feature machines),

.. math:: M = \frac1n \sum_i \sum_j \nabla f_j(x_i) \nabla f_j(x_i)^\top,

for as long as that lowers the leave-one-out error: inputs that do not matter disappear. Left-out
predictions are kept, in folds: with one pair left out at a time, among pairs with the same input, a
prediction is a straight line in the pair's own target.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple, Self

import numpy as np

from kernelbayes.gram.lapack import eigh, solve_ridges, whitening
from kernelbayes.gram.loo import fold_predictions, loo, ridge_grid
from kernelbayes.kernels.radial import median_distance
from kernelbayes.select.search import coarse_to_fine
from kernelbayes.tables import Row
from kernelbayes.types import Floats, Generator

# Landmarks of the basis, and pairs on which bandwidth, ridge and metric are chosen: an
# eigendecomposition of the one and a product with the other take some tens of milliseconds.
LANDMARKS = 400
CHOICE_PAIRS = 1500
# Bandwidths tried first, in multiples of the median distance: octaves around it. From the best of
# them they are halved down to FINEST; 400 landmarks in the plane are too sparse below.
Scales = tuple[float, ...]
SCALES = (0.35, 0.7, 1.4, 2.8)
FINEST = 0.05
# Where those explain less than a tenth of the variance, the search starts again from a narrow one:
# short waves look like noise to all wide ones. It must then explain a tenth more to be believed.
NARROW = 0.0875
BELIEVED = 0.1
# Updates of the metric at most: Radhakrishnan et al. (2024) need a few.
UPDATES = 2
# Pairs at which gradients are averaged: the entries of their mean have an error of some 3 %.
GRADIENT_PAIRS = 1000
# Parts of the pairs that are left out in turn: five, as is usual in cross-validation.
FOLDS = 5
# Variances below this share of their mean count as that much, so that no pair outweighs a thousand.
LEAST_VARIANCE = 1e-3
# Directions whose gradient is smaller than this share of the largest are dropped: over the sample
# they change the prediction by a thousandth.
LEAST_GRADIENT = 1e-3
# Ridges tried: nine decades in steps of less than a factor of six.
RIDGES = 13


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

    def reduced(self, coefficients: Floats) -> tuple[Self, Floats]:
        """Return the same predictions with one feature (n, q) for each target; small to keep."""
        r, q = self.root.shape[1], coefficients.shape[1]
        basis = replace(self, root=self.root @ coefficients[:r])
        return basis, np.vstack([np.eye(q), coefficients[r:]])

    def _gaussian(self, U: Floats) -> Floats:
        L, half = self.landmarks, -0.5 / self.bandwidth**2
        left = np.column_stack([U, np.einsum("ij,ij->i", U, U), np.ones(len(U))])
        squares = half * np.einsum("ij,ij->i", L, L)
        D = left @ np.vstack([-2.0 * half * L.T, np.full(len(L), half), squares])
        return np.asarray(np.exp(np.minimum(D, 0.0, out=D), out=D))

    def gradients(self, X: Floats, coefficients: Floats) -> Floats:
        """Average outer product of the gradients in X of ``features @ coefficients``, (p, p)."""
        U, r = X @ self.metric, self.root.shape[1]
        K, alpha = self._gaussian(U), self.root @ coefficients[:r]
        values = K @ alpha
        total = np.zeros((X.shape[1], X.shape[1]))
        for j in range(coefficients.shape[1]):
            bent = K @ (alpha[:, [j]] * self.landmarks) - U * values[:, [j]]
            g = (bent / self.bandwidth**2 + self.slope * coefficients[r:-1, j]) @ self.metric.T
            total += g.T @ g
        return total / len(X)


@dataclass(frozen=True, eq=False)
class Regression:
    """A fitted regression: basis, ridges (q,), coefficients (r, q), left-out predictions (n, q)."""

    basis: Basis
    ridges: Floats
    coefficients: Floats
    left_out: Floats

    @cached_property
    def _small(self) -> tuple[Basis, Floats]:
        return self.basis.reduced(self.coefficients)

    def __call__(self, X: Floats) -> Floats:
        """Predictions (n, q)."""
        return self._small[0].predict(X, self._small[1])

    @property
    def metric(self) -> Floats:
        """Learned coordinates ``X @ metric``."""
        return self.basis.metric


def regress(
    X: Floats, Y: Floats, rng: Generator, weights: Floats | None = None,
    updates: int = UPDATES, pairs: int = CHOICE_PAIRS, landmarks: int = LANDMARKS,
    finest: float = FINEST, searched: int = LANDMARKS,
) -> Regression:  # fmt: skip
    """Fit to inputs (n, p) and targets (n, q), both roughly standardised; weights sum to one.

    Bandwidth, ridge and metric are chosen on so many pairs with ``searched`` landmarks, bandwidths
    down to ``finest`` median distances. If more landmarks are used when these have been chosen,
    bandwidths are halved again for as long as that pays.
    """
    subset = rng.permutation(len(X))[:pairs]
    w = None if weights is None else weights[subset] / weights[subset].sum()
    Xs, Ys = X[subset], Y[subset]
    best, scales = _searched(Xs, Ys, np.eye(X.shape[1]), SCALES, w, finest, searched)
    for _ in range(updates):
        r = np.full(len(Xs), 1.0 / len(Xs)) if w is None else w
        weighted = r[:, None] * best.F
        coefficients = solve_ridges(best.F.T @ weighted, weighted.T @ Ys, best.ridges)
        metric = _sharpened(best.basis.gradients(Xs[:GRADIENT_PAIRS], coefficients))
        found, beside = _searched(Xs, Ys, metric, scales, w, finest, searched)
        if found.error >= best.error:
            break
        best, scales = found, beside
    basis = best.basis
    if min(landmarks, len(Xs)) <= searched:
        return _solved(basis, basis(X), Y, weights, best.ridges)
    U, h = Xs[:landmarks] @ basis.metric, basis.bandwidth
    best = _tried(landmark_basis(U, basis.metric, h, basis.slope), Xs, Ys, w)
    while True:  # more landmarks bear smaller bandwidths
        h /= 2.0
        finer = _tried(landmark_basis(U, basis.metric, h, basis.slope), Xs, Ys, w)
        if finer.error >= best.error:
            return _solved(best.basis, best.basis(X), Y, weights, best.ridges)
        best = finer


def refit(basis: Basis, X: Floats, Y: Floats, weights: Floats | None = None) -> Regression:
    """Fit other targets on a basis that is already chosen; ridges by leave-one-out."""
    return _refitted(basis, basis(X), Y, weights)


def reweighted(fit: Regression, X: Floats, Y: Floats, variances: Floats) -> Regression:
    """Fit again, with each pair counting by one over its variance (n, q), target by target."""
    F, columns = fit.basis(X), []
    for y, variance in zip(Y.T[:, :, None], variances.T, strict=True):
        floor = LEAST_VARIANCE * float(np.mean(variance))
        w = 1.0 / np.maximum(variance, max(floor, np.finfo(float).tiny))
        columns.append(_refitted(fit.basis, F, y, w / w.sum()))
    return Regression(
        fit.basis,
        np.concatenate([c.ridges for c in columns]),
        np.hstack([c.coefficients for c in columns]),
        np.hstack([c.left_out for c in columns]),
    )


class _Tried(NamedTuple):
    """A basis with its features (n, r), the best ridges (q,) and their leave-one-out error."""

    basis: Basis
    F: Floats
    ridges: Floats
    error: float


def _tried(basis: Basis, X: Floats, Y: Floats, weights: Floats | None) -> _Tried:
    F = basis(X)
    return _Tried(basis, F, *_ridges(F, Y, weights))


def _searched(
    X: Floats, Y: Floats, metric: Floats, scales: Scales, weights: Floats | None, finest: float,
    landmarks: int,
) -> tuple[_Tried, Scales]:  # fmt: skip
    """Best bandwidth in a metric: of some scales, or below them for as long as that pays.

    Also the scales to try after another update of the metric: its own, and those beside it.
    """
    U = X @ metric
    median = median_distance(U[:500])
    slope = 1.0 / np.sqrt(max(float(np.mean(np.sum(U * U, axis=1))), 1e-12))
    fits: dict[float, _Tried] = {}

    def score(scale: float) -> Row:
        basis = landmark_basis(U[:landmarks], metric, scale * median, slope)
        fits[scale] = _tried(basis, X, Y, weights)
        return {"score": fits[scale].error}

    def search(start: Scales) -> Row:
        return coarse_to_fine(
            float, score, np.inf, start=start, finest=2.0, narrowest=finest / 2.0, widest=start[-1]
        ).best

    best = search(scales)
    r = np.full(len(Y), 1.0 / len(Y)) if weights is None else weights
    total = float(np.sum(r @ (Y - r @ Y) ** 2))
    if scales is SCALES and best["score"] > (1.0 - BELIEVED) * total:
        narrow = search((NARROW,))
        best = narrow if narrow["score"] < best["score"] - BELIEVED * total else best
    tried = sorted(fits)
    at = tried.index(best["scale"])
    return fits[tried[at]], tuple(tried[max(at - 1, 0) : at + 2])


def _refitted(basis: Basis, F: Floats, Y: Floats, weights: Floats | None) -> Regression:
    some = slice(CHOICE_PAIRS)
    w = None if weights is None else weights[some] / weights[some].sum()
    return _solved(basis, F, Y, weights, _ridges(F[some], Y[some], w)[0])


def landmark_basis(landmarks: Floats, metric: Floats, h: float, slope: float) -> Basis:
    """Features of landmarks (m, c) that are given in the coordinates of the metric."""
    K = np.exp(-0.5 * squared_distances(landmarks, landmarks) / h**2)
    return Basis(metric, landmarks, h, whitening(K, 1e-10), slope)


def _ridges(F: Floats, Y: Floats, weights: Floats | None) -> tuple[Floats, float]:
    """Best ridge of a grid for each target, (q,), and the leave-one-out error they have."""
    found = loo(F, Y, ridge_grid(F, weights, RIDGES), weights)
    return found.best_by_target, float(np.sum(found.errors_by_target.min(axis=0)))


def _solved(
    basis: Basis, F: Floats, Y: Floats, weights: Floats | None, ridges: Floats
) -> Regression:
    """Regression on features (n, r) with given ridges (q,)."""
    r = np.full(len(F), 1.0 / len(F)) if weights is None else weights
    folds = max(min(FOLDS, len(F) // 2), 2)
    return Regression(basis, ridges, *fold_predictions(F, Y, ridges, r, np.arange(len(F)) % folds))


def _sharpened(M: Floats) -> Floats:
    """Coordinates in which squared distances are those of M, small directions dropped."""
    values, vectors = eigh(M)
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
