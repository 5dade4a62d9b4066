r"""Smoothed weighted samples: where draws and densities of a posterior come from.

A Gaussian of covariance h^2 S sits at each point, S the sample's covariance. The points are first
shrunk towards the mean by a = sqrt(1 - mean h^2) (West 1993), so that the smoothed sample has the
mean and covariance of the points,

.. math:: p(\theta) = \sum_i w_i N(\theta; m + a (\theta_i - m), h^2 S).


The share h is the same for all points, or follows the distance of each to its neighbours, so that
dense parts stay sharp. With h near one this is the Gaussian of the sample's mean and covariance,
with h small the sample itself. Coordinates that take separate values are neither shrunk nor
smoothed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import scipy.linalg
from scipy.spatial import cKDTree

from kernelbayes.arrays import row_blocks
from kernelbayes.select.regression import squared_distances

Floats = np.ndarray[Any, Any]
Sample = tuple[Floats, Floats]  # points (n, d) and weights (n,)
# Added to the variances, relative to each, so that flat samples have a density.
JITTER = 1e-9
LEAST_VARIANCE = 1e-20  # of a sample that does not vary at all
ROUNDING = 1e-12  # of weights that sum to one
NARROWEST, WIDEST = 1e-4, 0.95
# Shares h of the sample's deviation that points are smoothed with.
SMOOTHING = (0.02, 0.05, 0.1, 0.2, 0.35, 0.6, 0.9)
# Smoothing may follow the distance to this neighbour, in few dimensions: in more, all points
# are about equally far from their neighbours.
NEIGHBOURS, LOCAL_DIMENSIONS = 10, 6
# Points that are left out to choose a smoothing; the least log density that counts.
LOOKED_AT, LEAST_LOG = 200, -1e3
# Points that weigh less than this together are not worth their cost.
NOTHING = 1e-3


@dataclass(frozen=True)
class Smoothing:
    """How widely points are smoothed.

    ``h`` is a share of the sample's standard deviation; with ``neighbours`` that of a typical
    point, and that of others is in proportion to the distance to their neighbour of that number.
    """

    h: float
    neighbours: int = 0


@dataclass(frozen=True, eq=False)
class Smoothed:
    """A weighted sample (n, d), smoothed by shares h, a number or (n,), of its own covariance."""

    points: Floats
    weights: Floats
    h: Any
    discrete: Floats

    @classmethod
    def by(cls, points: Floats, weights: Floats, how: Smoothing, discrete: Floats) -> Smoothed:
        """Smooth as told."""
        if not how.neighbours:
            return cls(points, weights, how.h, discrete)
        blank = cls(points, weights, 0.5, discrete)
        return replace(blank, h=local_shares(blank.whitened, how))

    @cached_property
    def mean(self) -> Floats:
        """Mean of the continuous coordinates, (c,)."""
        return np.asarray(self.weights @ self._free)

    @cached_property
    def factor(self) -> Floats:
        """Cholesky factor of the covariance of the continuous coordinates, (c, c)."""
        return covariance_factor(self._free - self.mean, self.weights)

    @cached_property
    def whitened(self) -> Floats:
        """Continuous coordinates of mean zero and unit covariance, (n, c)."""
        return self.whiten(self._free)

    @cached_property
    def shrink(self) -> float:
        """Factor of the distances to the mean: what smoothing adds to the covariance, it takes."""
        added = np.sum(self.weights * np.broadcast_to(self.h, len(self.weights)) ** 2)
        return float(np.sqrt(1.0 - added)) if added < 1.0 - ROUNDING else 0.0

    @property
    def _free(self) -> Floats:
        return self.points[:, ~self.discrete]

    def draw(self, m: int, rng: np.random.Generator) -> Floats:
        """Independent draws (m, d)."""
        rows = rng.choice(len(self.weights), size=m, p=self.weights)
        h = np.broadcast_to(self.h, len(self.weights))[rows][:, None]
        z = self.shrink * self.whitened[rows]
        z += h * rng.normal(size=z.shape)
        drawn = self.points[rows]
        drawn[:, ~self.discrete] = self.mean + z @ self.factor.T
        return drawn

    def log_density(self, T: Floats) -> Floats:
        """Log density (m,) at T (m, d): a density in the continuous, a mass in the others."""
        used = self.weights > 0
        if self.shrink == 0 and not np.any(self.discrete):  # all centres are one: a normal density
            return self._log_normal(T)
        h = np.broadcast_to(self.h, len(used))[used]
        centres = self.shrink * self.whitened[used]
        queries = self.whiten(T[:, ~self.discrete])
        c = centres.shape[1]
        logs = np.log(self.weights[used]) - c * np.log(h)
        labels, asked = self.points[used][:, self.discrete], T[:, self.discrete]
        found = np.empty(len(T))
        for rows in row_blocks(len(T), len(logs)):
            D = squared_distances(queries[rows], centres)
            D *= -0.5 / h**2
            D += logs
            if labels.shape[1]:
                D[np.any(asked[rows][:, None] != labels[None], axis=2)] = -np.inf
            found[rows] = log_sum(D)
        return np.asarray(found - self._log_volume)

    def log_own(self) -> Floats:
        """Log of what each point (n,) adds to the density at itself; all are continuous."""
        h = np.broadcast_to(self.h, len(self.weights))
        moved = (1.0 - self.shrink) ** 2 * np.einsum("ij,ij->i", self.whitened, self.whitened)
        c = self.points.shape[1]
        with np.errstate(divide="ignore"):  # a point without weight adds nothing
            logs = np.log(self.weights)
        return np.asarray(logs - c * np.log(h) - 0.5 * moved / h**2 - self._log_volume)

    def _log_normal(self, T: Floats) -> Floats:
        Z = self.whiten(T)
        return np.asarray(-0.5 * np.einsum("ij,ij->i", Z, Z) - self._log_volume)

    @property
    def _log_volume(self) -> float:
        """Log of one over the height of a normal density of the sample's covariance."""
        c = len(self.factor)
        return float(0.5 * c * np.log(2.0 * np.pi) + np.sum(np.log(self.factor.diagonal())))

    def whiten(self, X: Floats) -> Floats:
        """Coordinates of X (m, c) in which the sample has unit covariance."""
        solved = scipy.linalg.solve_triangular(
            self.factor, (X - self.mean).T, lower=True, check_finite=False
        )
        return np.asarray(solved.T)


def local_shares(Z: Floats, how: Smoothing, widest: float = WIDEST) -> Floats:
    """Shares (n,) of whitened points (n, c), in proportion to the distance to a neighbour."""
    k = min(how.neighbours, len(Z) - 1)
    if k < 1 or Z.shape[1] == 0:
        return np.full(len(Z), min(how.h, widest))
    distances = neighbour_distances(Z, k)
    typical = max(float(np.median(distances)), np.finfo(float).tiny)
    return np.clip(how.h * distances / typical, NARROWEST, widest)


def neighbour_distances(Z: Floats, k: int) -> Floats:
    """Distance (n,) of each point to its k-th neighbour."""
    return np.asarray(cKDTree(Z).query(Z, k=[k + 1])[0][:, 0])


def best_smoothing(points: Floats, weights: Floats, rng: np.random.Generator) -> Smoothing:
    """Smoothing under which points (n, d) are likeliest, each under the density of the others.

    Points are drawn by weight to be looked at. All coordinates are continuous.
    """
    none = np.zeros(points.shape[1], dtype=bool)
    rows = np.unique(rng.choice(len(weights), size=LOOKED_AT, p=weights))
    Z = Smoothed(points, weights, 0.5, none).whitened
    squares, products = np.einsum("ij,ij->i", Z, Z), Z[rows] @ Z.T
    with np.errstate(divide="ignore"):
        logs = np.log(weights)
    apart = {0: np.ones(len(Z))}
    if Z.shape[1] <= LOCAL_DIMENSIONS:
        apart[NEIGHBOURS] = local_shares(Z, Smoothing(1.0, NEIGHBOURS), np.inf)

    def score(how: Smoothing) -> float:
        h = np.clip(how.h * apart[how.neighbours], NARROWEST, WIDEST)
        a = np.sqrt(1.0 - weights @ h**2)
        D = squares[rows, None] - 2.0 * a * products + a**2 * squares
        D *= -0.5 / h**2
        D += logs - Z.shape[1] * np.log(h)
        D[np.arange(len(rows)), rows] = -np.inf
        return float(weights[rows] @ np.maximum(log_sum(D), LEAST_LOG))

    best = [_climb(score, [Smoothing(h, k) for h in SMOOTHING]) for k in apart]
    return max(best, key=lambda found: found[0])[1]


def _climb(score: Callable[[Smoothing], float], grid: list[Smoothing]) -> tuple[float, Smoothing]:
    """Best score, and where on a grid: up from its middle for as long as it gets better."""
    at = len(grid) // 2
    scores = {i: score(grid[i]) for i in (at - 1, at, at + 1)}
    step = 1 if scores[at + 1] > scores[at - 1] else -1
    at = max(scores, key=lambda i: scores[i])
    while 0 <= at + step < len(grid):
        if at + step not in scores:
            scores[at + step] = score(grid[at + step])
        if scores[at + step] <= scores[at]:
            break
        at += step
    return scores[at], grid[at]


def heaviest(points: Floats, weights: Floats) -> Sample:
    """Drop the lightest of points (n, d), which together weigh next to nothing."""
    order = np.argsort(weights)
    kept = np.sort(order[np.cumsum(weights[order]) > NOTHING])
    return points[kept], weights[kept] / weights[kept].sum()


def covariance_factor(deviations: Floats, weights: Floats) -> Floats:
    """Cholesky factor of the weighted covariance of deviations (n, c) from their mean."""
    S = (deviations * weights[:, None]).T @ deviations
    c = len(S)
    level = max(float(np.trace(S)) / max(c, 1), np.finfo(float).tiny)
    variances = S.diagonal().copy()
    S[np.arange(c), np.arange(c)] += JITTER * variances + JITTER**2 * level + LEAST_VARIANCE
    return np.asarray(np.linalg.cholesky(S))


def log_sum(exponents: Floats) -> Floats:
    """Log of the sum of exponentials along rows; -inf for a row of -inf. Overwrites its input.

    Relative to the largest the exponentials have single precision, which is fast and enough: what
    they are summed for is known to a few digits.
    """
    top = exponents.max(axis=1)
    exponents -= np.where(np.isfinite(top), top, 0.0)[:, None]
    with np.errstate(divide="ignore", over="ignore"):
        terms = exponents.astype(np.float32)
        return np.asarray(top + np.log(np.exp(terms, out=terms).sum(axis=1, dtype=np.float64)))
