r"""From data to parameters: simulations near the observation, moved to where it is.

Weights, and one way to move the simulations, or none:

- weights: simulations close to the observation count more. "Close" is in coordinates of the data,
  or in those of what was learned about the parameters from them (predicted means, and predicted
  squares and products). This is the conditional embedding of KBR13 eq. 19 with a wide ridge and a
  bandwidth that adapts to the density of simulations: a share of them has weight.
- linear, quadratic: near simulations are moved along a weighted regression on the coordinates in
  which they are near (Beaumont et al. 2002), which mends what the kernel regression got wrong
  locally; quadratic-scale: and stretched by one of their log squares
  (:mod:`kernelbayes.likelihood_free.local`);
- location: each simulation's parameters are moved by the difference of the regression's predictions
  at the observation and at its own data (Blum and Francois 2010, in kernel form),
  :math:`\theta_i + f(x_o) - f(x_i)`, with left-out predictions at :math:`x_i`;
- scale: residuals are stretched by the ratio of predicted scales,
  :math:`f(x_o) + (\theta_i - f(x_i))\, \sigma(x_o) / \sigma(x_i)`.

What is left is smoothed (:mod:`kernelbayes.embedding.smooth`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np

from kernelbayes.likelihood_free.local import local_regression, quadratic_terms
from kernelbayes.select.regression import Regression, again, refit, regress, squared_distances

Floats = np.ndarray[Any, Any]
Near = Literal["data", "mean", "moments"]
Adjust = Literal["none", "linear", "quadratic", "quadratic-scale", "location", "scale"]
LOCAL = ("linear", "quadratic", "quadratic-scale")
# The fewest simulations with weight.
FEWEST = 20
# With few parameters there is time for a finer regression.
FEW_PARAMETERS, MORE = 3, {"pairs": 4000, "landmarks": 1000}
# The most simulations that quadratic regressions are tried with.
MOST_QUADRATIC = 2000
# Products of parameters are predicted up to this many parameters, squares beyond.
PRODUCTS = 6
# Predicted log variances are kept within these many powers of e of their mean.
LOG_RANGE = 8.0


@dataclass(frozen=True)
class Recipe:
    """How weights and points are made: what is near, which share of simulations, adjustment."""

    near: Near
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
    discrete: Floats

    @classmethod
    def fit(
        cls,
        P: Floats,
        X: Floats,
        rng: np.random.Generator,
        weights: Floats | None = None,
        discrete: Floats | None = None,
        like: Inverse | None = None,
    ) -> Inverse:
        """Learn from n simulations; weights sum to one. Discrete parameters are never moved.

        What ``like`` has chosen, from some of the simulations, is not chosen again.
        """
        fixed = np.zeros(P.shape[1], dtype=bool) if discrete is None else discrete
        w = np.full(len(P), 1.0 / len(P)) if weights is None else weights
        if like is None:
            more = P.shape[1] <= FEW_PARAMETERS and len(P) > MORE["pairs"]
            moments = regress(X, targets(P), rng, weights, **(MORE if more else {}))
        else:
            moments = again(like.moments, X, targets(P), weights)
        logs = log_squares(P - moments.left_out[:, : P.shape[1]], w)
        if like is None:
            scales = refit(moments.basis, X, logs, weights)
        else:
            scales = again(like.scales, X, logs, weights)
        return cls(P, X, w, moments, scales, fixed)

    def shares(self, X: Floats, recipe: Recipe) -> Floats:
        """Weights (m, n) of the simulations for data X (m, p)."""
        if recipe.share >= 1.0:
            return np.tile(self.weights, (len(X), 1))
        here, there = self._coordinates(X, recipe.near)
        distances = np.sqrt(squared_distances(here, there))
        # As far as it takes to reach that share of the weight, and enough simulations.
        order = np.argsort(distances, axis=1)
        k = np.sum(np.cumsum(self.weights[order], axis=1) < recipe.share, axis=1)
        k = np.clip(k, min(FEWEST, len(there) - 1), len(there) - 1)
        reach = distances[np.arange(len(k)), order[np.arange(len(k)), k]]
        W = _close(distances, reach[:, None]) * self.weights
        sums = W.sum(axis=1, keepdims=True)
        return np.where(sums > 0, W / np.where(sums > 0, sums, 1.0), self.weights)

    def _coordinates(self, X: Floats, near: Near) -> tuple[Floats, Floats]:
        """Coordinates of data X (m, c) and of the simulations (n, c), in which some are near."""
        if near == "data":
            return X @ self.moments.metric, self.X @ self.moments.metric
        width = self.P.shape[1] if near == "mean" else None
        return self.moments(X)[:, :width], self.moments.left_out[:, :width]

    def suits(self, recipe: Recipe) -> bool:
        """Whether there are simulations enough for a recipe, and not too many for its cost."""
        if recipe.adjust not in LOCAL[1:]:
            return True
        near = int(recipe.share * len(self.P))
        width = self._coordinates(self.X[:1], recipe.near)[0].shape[1]
        return 2 * quadratic_terms(width) < near <= MOST_QUADRATIC

    def posterior(self, X: Floats, recipe: Recipe) -> Iterator[tuple[Floats, Floats]]:
        """Coordinates (k, d) and weights (k,) for each of the data X (m, p)."""
        if recipe.adjust in LOCAL:
            here, there = self._coordinates(X, recipe.near)
            how = recipe.adjust != "linear", recipe.adjust == "quadratic-scale"
            for w, at in zip(self.shares(X, recipe), here, strict=True):
                used = np.flatnonzero(w)
                P = self.P[used]
                moved = local_regression(P, there[used] - at, w[used], *how)
                yield np.where(self.discrete, P, moved), w[used]
            return
        for w, points in zip(self.shares(X, recipe), self.moved(X, recipe), strict=True):
            used = np.flatnonzero(w)
            yield points(used), w[used]

    def moved(self, X: Floats, recipe: Recipe) -> Iterator[Callable[[Floats], Floats]]:
        """Functions from rows (k,) to these simulations' coordinates (k, d), moved to each of X."""
        if recipe.adjust == "none":
            yield from (self.P.__getitem__ for _ in X)
            return
        d = self.P.shape[1]
        residuals = self.P - self.moments.left_out[:, :d]
        centres, stretch = self.moments(X)[:, :d], np.ones((len(X), d))
        if recipe.adjust == "scale":
            residuals = residuals / deviation(self.scales.left_out)
            stretch = deviation(self.scales(X))
        for centre, s in zip(centres, stretch, strict=True):
            yield partial(self._stretched, residuals, centre, s)

    def _stretched(self, residuals: Floats, centre: Floats, scale: Floats, rows: Floats) -> Floats:
        return np.where(self.discrete, self.P[rows], centre + scale * residuals[rows])


def _close(distances: Floats, reach: Floats) -> Floats:
    """Epanechnikov's weights; where all that is within reach lies at the same distance, equal."""
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
    return np.exp(0.5 * np.clip(logs, -LOG_RANGE, LOG_RANGE))
