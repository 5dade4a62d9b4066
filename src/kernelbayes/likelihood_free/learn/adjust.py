r"""From data to parameters: simulations near the observation, moved to where it is.

A posterior is a weighted sample of simulated parameters, which may be moved:

- weights: the nearest share of the simulations counts, in coordinates of the data or of what was
  learned about the parameters from them (predicted means, squares and products);
- linear: near simulations are moved along a weighted regression on the coordinates in which they
  are near (Beaumont et al. 2002);
- location: each simulation's parameters are moved by the difference of the regression's predictions
  at the observation and at its own data (Blum and Francois 2010, in kernel form),
  :math:`\theta_i + f(x_o) - f(x_i)`, with held-out predictions at :math:`x_i`;
- scale: residuals are rescaled by the ratio of predicted scales,
  :math:`f(x_o) + (\theta_i - f(x_i))\, \sigma(x_o) / \sigma(x_i)`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np
from scipy.special import expit, logit

from kernelbayes.embedding.smooth import Sample
from kernelbayes.gram.lapack import cholesky, solve_triangular
from kernelbayes.gram.loo import left_share
from kernelbayes.likelihood_free.prior import Prior
from kernelbayes.select.regression import Regression, refit, regress, squared_distances
from kernelbayes.types import Bools, Floats, Ints

Nearness = Literal["data", "moments"]
Adjust = Literal["none", "linear", "location", "scale"]
# Constants without another reason were chosen on the development seeds of experiments/sbi_tasks.
FEWEST_NEAR = 20  # simulations with weight: a deviation is then known to 1 in sqrt(2 * 20), 16 %
# Landmarks while bandwidths and metrics are searched; their cost grows with the cube. With few
# parameters there is time for a finer regression.
SEARCHED, FEW_PARAMETERS, MORE = 150, 3, {"pairs": 4000, "landmarks": 1000}
PRODUCTS = 6  # products of so many parameters are predicted (21 of them), of more only squares
LOG_RANGE = 8.0  # of predicted log variances, about their mean: scales differ by e^4 at most
# Added to the diagonal of a design's squares, relative to their mean, so that equal columns have a
# Cholesky factor: far above rounding (2e-16), far below what changes a residual.
DESIGN_JITTER = 1e-9
MOST_LEVERAGE = 0.9  # leave-one-out residuals are at most ten times those of the fit
EDGE = 1e-9  # share of a bounded range kept free at its ends: its logit is about 20
MOST_LOG = 700.0  # exp of it is finite


@dataclass(frozen=True)
class Recipe:
    """How weights and points are made: what is near, which share of simulations, adjustment."""

    near: Nearness
    share: float
    adjust: Adjust

    def __str__(self) -> str:
        close = "all simulations" if self.share >= 1 else f"nearest {self.share:.0%} by {self.near}"
        return f"{close}, {'not adjusted' if self.adjust == 'none' else self.adjust}"


@dataclass(frozen=True, eq=False)
class Inverse:
    """What was learned from simulations about parameters given data.

    ``P`` (n, d) are the parameters' coordinates, ``X`` (n, p) those of the data, ``weights`` (n,)
    what a simulation counts under the prior.
    """

    P: Floats
    X: Floats
    weights: Floats
    moments: Regression
    scales: Regression
    discrete: Bools

    @classmethod
    def fit(
        cls,
        P: Floats,
        X: Floats,
        rng: np.random.Generator,
        weights: Floats | None = None,
        discrete: Bools | None = None,
        like: Inverse | None = None,
    ) -> Inverse:
        """Learn from n simulations; weights sum to one. Discrete parameters are never moved.

        What ``like`` has chosen, from some of the simulations, is not chosen again.
        """
        fixed = np.zeros(P.shape[1], dtype=bool) if discrete is None else discrete
        w = np.full(len(P), 1.0 / len(P)) if weights is None else weights
        Y, more = targets(P), P.shape[1] <= FEW_PARAMETERS and len(P) > MORE["pairs"]
        if like is None:
            finer = MORE if more else {}
            moments = regress(X, Y, rng, weights, searched=SEARCHED, **finer)
        else:
            moments = refit(like.moments.basis, X, Y, weights)
        logs = log_squares(P - moments.left_out[:, : P.shape[1]], w)
        return cls(P, X, w, moments, refit(moments.basis, X, logs, weights), fixed)

    @property
    def metric(self) -> Floats:
        """Coordinates ``X @ metric`` of the data in which distances matter."""
        return self.moments.metric

    def means(self, X: Floats) -> Floats:
        """Predicted parameters (m, d) of data X (m, p)."""
        return self.moments(X)[:, : self.P.shape[1]]

    def shares(self, X: Floats, recipe: Recipe) -> Floats:
        """Weights (m, n) of the simulations for data X (m, p)."""
        if recipe.share >= 1.0:
            return np.tile(self.weights, (len(X), 1))
        here, there = self._coordinates(X, recipe.near)
        distances = np.sqrt(squared_distances(here, there))
        # As far as it takes to reach that share of the weight, and enough simulations.
        order = np.argsort(distances, axis=1)
        k = np.sum(np.cumsum(self.weights[order], axis=1) < recipe.share, axis=1)
        k = np.clip(k, min(FEWEST_NEAR, len(there) - 1), len(there) - 1)
        reach = distances[np.arange(len(k)), order[np.arange(len(k)), k]]
        W = epanechnikov(distances, reach[:, None]) * self.weights
        sums = W.sum(axis=1, keepdims=True)
        return np.where(sums > 0, W / np.where(sums > 0, sums, 1.0), self.weights)

    def _coordinates(self, X: Floats, near: Nearness) -> tuple[Floats, Floats]:
        """Coordinates of data X (m, c) and of the simulations (n, c), in which some are near."""
        if near == "data":
            return X @ self.metric, self.X @ self.metric
        return self.moments(X), self.moments.left_out

    def posterior(self, X: Floats, recipe: Recipe) -> Iterator[Sample]:
        """Coordinates (k, d) and weights (k,) for each of the data X (m, p)."""
        if recipe.adjust == "linear":
            here, there = self._coordinates(X, recipe.near)
            for w, at in zip(self.shares(X, recipe), here, strict=True):
                used = np.flatnonzero(w)
                P = self.P[used]
                moved = local_regression(P, there[used] - at, w[used])
                yield np.where(self.discrete, P, moved), w[used]
            return
        for w, points in zip(self.shares(X, recipe), self.moved(X, recipe), strict=True):
            used = np.flatnonzero(w)
            yield points(used), w[used]

    def moved(self, X: Floats, recipe: Recipe) -> Iterator[Callable[[Ints], Floats]]:
        """Functions from rows (k,) to these simulations' coordinates (k, d), moved to each of X."""
        if recipe.adjust == "none":
            yield from (self.P.__getitem__ for _ in X)
            return
        residuals: Floats = self.P - self.moments.left_out[:, : self.P.shape[1]]
        centres: Floats = self.means(X)
        stretch: Floats = np.ones(centres.shape)
        if recipe.adjust == "scale":
            residuals = residuals / deviation(self.scales.left_out)
            stretch = deviation(self.scales(X))
        for centre, s in zip(centres, stretch, strict=True):
            yield partial(self._stretched, residuals, centre, s)

    def _stretched(self, residuals: Floats, centre: Floats, scale: Floats, rows: Ints) -> Floats:
        return np.where(self.discrete, self.P[rows], centre + scale * residuals[rows])


def epanechnikov(distances: Floats, reach: Floats) -> Floats:
    """Weights 1 - (distance / reach)^2 (m, n) within reach (m, 1); equal ones if all are tied."""
    W = np.maximum(0.0, 1.0 - (distances / np.where(reach > 0, reach, 1.0)) ** 2)
    tied = (reach <= 0) | (W.sum(axis=1, keepdims=True) <= 0)
    return np.where(tied, distances <= reach, W)


def targets(P: Floats) -> Floats:
    """Parameters, then their squares and products, each standardised: (n, q)."""
    d = P.shape[1]
    rows, columns = np.triu_indices(d) if d <= PRODUCTS else (np.arange(d), np.arange(d))
    pairs = P[:, rows] * P[:, columns]
    spread = pairs.std(axis=0)
    return np.hstack([P, (pairs - pairs.mean(axis=0)) / np.where(spread > 0, spread, 1.0)])


def log_squares(residuals: Floats, weights: Floats) -> Floats:
    """Centred logarithms of squared residuals, floored far below their mean."""
    squares = residuals**2
    logs = np.log(squares + 1e-6 * (weights @ squares) + np.finfo(float).tiny)
    return np.asarray(logs - weights @ logs)


def deviation(logs: Floats) -> Floats:
    """Relative standard deviations from predicted log squares."""
    return np.asarray(np.exp(0.5 * np.clip(logs, -LOG_RANGE, LOG_RANGE)))


def local_regression(values: Floats, offsets: Floats, weights: Floats) -> Floats:
    """Values (n, d) moved along their weighted linear regression on offsets (n, k) to offset zero.

    Residuals are leave-one-out residuals: those of the fit itself are too small. With too few
    values for a regression they stay where they are.
    """
    w = weights / weights.sum()
    spread = np.sqrt(w @ offsets**2)
    design = np.column_stack([np.ones(len(w)), offsets / np.where(spread > 0, spread, 1.0)])
    if len(w) <= 2 * design.shape[1]:
        return values
    beta, residuals = least_squares_fit(design, values, w)
    return np.asarray(beta[0] + residuals)


def quadratic(offsets: Floats) -> Floats:
    """Terms (n, quadratic_terms(k)) of offsets (n, k): one, the offsets, squares and products."""
    i, j = np.triu_indices(offsets.shape[1])
    return np.column_stack([np.ones(len(offsets)), offsets, offsets[:, i] * offsets[:, j]])


def quadratic_terms(k: int) -> int:
    """Terms of a quadratic function of k offsets."""
    return (k + 1) * (k + 2) // 2


def least_squares_fit(design: Floats, values: Floats, w: Floats) -> tuple[Floats, Floats]:
    """Fit by weighted least squares: coefficients (k, d) and leave-one-out residuals (n, d)."""
    root = np.sqrt(w)[:, None]
    A = root * design
    G = A.T @ A
    slopes = np.arange(1, len(G))  # not the intercept, or constant columns would share it
    G[slopes, slopes] += DESIGN_JITTER * np.trace(G) / len(G)
    L = cholesky(G)
    Q = solve_triangular(L, A.T)
    beta = solve_triangular(L, Q @ (root * values), transpose=True)
    left = left_share(1.0 - np.einsum("ij,ij->j", Q, Q), least=1.0 - MOST_LEVERAGE)
    return beta, (values - design @ beta) / left[:, None]


@dataclass(frozen=True)
class Space:
    """Coordinates of parameters: one-sided bounds removed by a logarithm, centred and scaled."""

    low: Floats
    high: Floats
    centre: Floats
    scale: Floats
    discrete: Bools

    @classmethod
    def of(cls, theta: Floats, prior: Prior | None) -> Space:
        """Fit to parameters (n, d) of a prior."""
        d = theta.shape[1]
        low, high = np.full(d, -np.inf), np.full(d, np.inf)
        discrete = np.zeros(d, dtype=bool) if prior is None else prior.discrete
        if prior is not None:
            one_sided = (np.isfinite(prior.low) != np.isfinite(prior.high)) & ~prior.discrete
            low = np.where(one_sided, prior.low, low)
            high = np.where(one_sided, prior.high, high)
        free = unbounded(theta, low, high)
        spread = free.std(axis=0)
        return cls(low, high, free.mean(axis=0), np.where(spread > 0, spread, 1.0), discrete)

    def coordinates(self, theta: Floats) -> Floats:
        """Coordinates (n, d) of parameters (n, d)."""
        return np.asarray((unbounded(theta, self.low, self.high) - self.centre) / self.scale)

    def parameters(self, P: Floats) -> Floats:
        """Parameters (n, d) of coordinates (n, d); discrete ones are rounded to integers."""
        theta = bounded(P * self.scale + self.centre, self.low, self.high)
        theta[:, self.discrete] = np.rint(theta[:, self.discrete])
        return theta

    def log_volume(self, theta: Floats) -> Floats:
        """Log of the Jacobian determinant of the coordinates in the parameters, (n,)."""
        free = unbounded(theta, self.low, self.high)
        lower, upper = np.isfinite(self.low), np.isfinite(self.high)
        logs = free[:, upper].sum(axis=1) - free[:, lower].sum(axis=1)
        return np.asarray(logs - np.sum(np.log(self.scale)))


def unbounded(theta: Floats, low: Floats, high: Floats) -> Floats:
    """Coordinates in R^d of points of a box: logit, log, or as they are, by column."""
    lower, upper = np.isfinite(low), np.isfinite(high)
    both, above, below = lower & upper, lower & ~upper, upper & ~lower
    free, tiny = theta.copy(), np.finfo(float).tiny
    share = (theta[:, both] - low[both]) / (high[both] - low[both])
    free[:, both] = logit(np.clip(share, EDGE, 1.0 - EDGE))
    free[:, above] = np.log(np.maximum(theta[:, above] - low[above], tiny))
    free[:, below] = -np.log(np.maximum(high[below] - theta[:, below], tiny))
    return free


def bounded(free: Floats, low: Floats, high: Floats) -> Floats:
    """Points of the box, the inverse of :func:`unbounded`, also after rounding."""
    lower, upper = np.isfinite(low), np.isfinite(high)
    both, above, below = lower & upper, lower & ~upper, upper & ~lower
    theta = free.copy()
    theta[:, both] = low[both] + (high[both] - low[both]) * expit(free[:, both])
    theta[:, above] = low[above] + np.exp(np.minimum(free[:, above], MOST_LOG))
    theta[:, below] = high[below] - np.exp(np.minimum(-free[:, below], MOST_LOG))
    return np.asarray(np.clip(theta, low, high))
