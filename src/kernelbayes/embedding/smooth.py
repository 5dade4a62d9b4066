r"""Smoothed weighted samples: densities and draws that are not confined to the points.

A normal density sits at each point. With bandwidths ``h`` (d,), one per coordinate,

.. math:: p(x) = \sum_i w_i N(x; x_i, \mathrm{diag}(h^2))

has a covariance larger than that of the points by ``h^2``. A :class:`Smoothed` sample first shrinks
the points towards their mean m by a = sqrt(1 - mean h^2) and takes a share of their own covariance
S (West 1993), so that mean and covariance stay those of the points:

.. math:: p(x) = \sum_i w_i N(x; m + a (x_i - m), h_i^2 S).

The share h is one number, or follows each point's distance to its neighbours, so that dense
regions stay sharp. With h near one this is the normal density of the sample's mean and covariance;
with h near zero it is the sample itself. Discrete coordinates are neither shrunk nor smoothed.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Self

import numpy as np
from scipy.spatial import cKDTree

from kernelbayes.arrays import as_doubles, row_blocks
from kernelbayes.gram.lapack import cholesky, solve_triangular, symmetric_factor
from kernelbayes.points import positive_each
from kernelbayes.types import Array, Bools, Floats, Generator

Sample = tuple[Floats, Floats]  # points (n, d) and weights (n,)
# Added to each variance, relative to it, so that the covariance of points in a plane has a Cholesky
# factor: far above rounding (2e-16), below the smallest share h^2 (NARROWEST squared).
JITTER = 1e-9
NO_VARIANCE = 1e-20  # of a sample that does not vary at all
WEIGHT_ROUNDING = 1e-12  # of weights that sum to one
# Shares h: the narrowest is above the jitter, the widest still leaves centres a third as far apart.
NARROWEST, WIDEST = 1e-4, 0.95
# Shares h to choose from, about a factor of two apart: from nearly the points to nearly one normal.
SMOOTHING = (0.02, 0.05, 0.1, 0.2, 0.35, 0.6, 0.9)
# The volume out to the k-th neighbour has a relative deviation of 1/sqrt(k), a third for k = 10. In
# more than a few dimensions all points are about equally far from their neighbours.
NEIGHBOURS, LOCAL_DIMENSIONS = 10, 6
# Points left out to choose a smoothing (a mean log density then has an error of its deviation over
# 10); the least log density that counts, so that one point without neighbours does not decide.
LOOKED_AT, LEAST_LOG = 100, -1e3
# The lightest points are dropped up to this mass, less than the error of a thousand draws.
NEGLIGIBLE_MASS = 1e-3
CACHED_ENTRIES = 2**17  # a megabyte: what is made of them one after the other stays in the cache
# Draws that estimate the share of the smoothed density within a support: its error is at
# most 1 / sqrt(4 * 2000), about 1 %.
SUPPORT_DRAWS = 2000
# Steps towards the points' deviations: after three they are met to some per cent. The most that
# points are moved apart (a uniform posterior would move them for ever), and the least share inside.
STEPS_APART, MOST_APART, LEAST_WITHIN = 3, 2.0, 0.05
# Share of Silverman's bandwidth by which draws are smoothed: his rule is for one normal peak and
# merges two that are close. A quarter is a judgement, not a measurement.
DRAW_BANDWIDTH = 0.25


def silverman_factor(w: Floats, d: int) -> float:
    """Silverman's bandwidth in units of the standard deviation, at the effective sample size."""
    ess = max(float(np.sum(w)) ** 2 / float(np.sum(w**2)), 1.0)
    return float((4.0 / ((d + 2.0) * ess)) ** (1.0 / (d + 4.0)))


def silverman(X: Floats, w: Floats) -> Floats:
    """Silverman's bandwidths (d,) for a weighted sample; a small positive one for constants."""
    deviation = np.sqrt(np.maximum(w @ (X - w @ X) ** 2, 0.0))
    spread = X.std(axis=0)
    rounding = 1e-12 * np.maximum(np.abs(X).max(axis=0), np.finfo(float).tiny)
    instead = np.where(spread > rounding, 1e-3 * spread, 1.0)
    scale = np.where(deviation > rounding, deviation, instead)
    return np.asarray(scale * silverman_factor(w, X.shape[1]))


def bandwidths(bandwidth: float | Array, d: int) -> Floats:
    """Bandwidths (d,) from a number or one per coordinate."""
    h = np.asarray(positive_each(bandwidth, "bandwidth"))
    if h.size not in (1, d):
        raise ValueError(f"bandwidth must be a number or one per coordinate, got {bandwidth!r}")
    return np.broadcast_to(h, d)


def keep_covariance(
    drawn: Floats, sample: Sample, bandwidth: float | Array | None, rng: Generator
) -> Floats:
    r"""Smooth points (m, d) drawn from a weighted sample without inflating its covariance.

    Liu and West (2001), with a bandwidth per coordinate: ``y = m + A (x - m) + e``,
    ``A_jj^2 = 1 - h_j^2 / V_jj``, ``Cov(e) = V - A V A``.
    """
    X, w = sample
    d = X.shape[1]
    mean = w @ X
    V = (X - mean).T @ (w[:, None] * (X - mean))
    variances = np.maximum(np.einsum("jj->j", V), 0.0)
    if bandwidth is None:
        share = np.full(d, min((DRAW_BANDWIDTH * silverman_factor(w, d)) ** 2, 1.0))
        extra = np.zeros(d)
    else:
        h = as_doubles(bandwidth, "bandwidth")
        if h.ndim > 1 or h.size not in (1, d) or not np.all((h >= 0) & np.isfinite(h)):
            raise ValueError(f"bandwidth must be a number or one per coordinate, got {bandwidth!r}")
        h2 = np.broadcast_to(h**2, d)
        share = np.minimum(h2 / np.where(variances > 0, variances, np.inf), 1.0)
        extra = h2 - share * variances  # more noise than the sample has variance: it does inflate
    a = np.sqrt(1.0 - share)
    noise = rng.normal(size=drawn.shape) @ symmetric_factor(V * (1.0 - np.outer(a, a))).T
    noise += rng.normal(size=drawn.shape) * np.sqrt(np.maximum(extra, 0.0))
    return np.asarray(mean + a * (drawn - mean) + noise)


@dataclass(frozen=True)
class Smoothing:
    """Share h of its standard deviation by which a sample is smoothed.

    With ``neighbours`` = k, in proportion to each point's distance to its k-th neighbour.
    """

    h: float
    neighbours: int = 0


@dataclass(frozen=True, eq=False)
class Smoothed:
    """A weighted sample (n, d), smoothed by shares h, a number or (n,), of its own covariance."""

    points: Floats
    weights: Floats
    h: float | Floats
    discrete: Bools

    @classmethod
    def by(cls, points: Floats, weights: Floats, how: Smoothing, discrete: Bools) -> Self:
        """Smooth by one share, or by the distances to neighbours."""
        if not how.neighbours:
            return cls(points, weights, how.h, discrete)
        blank = cls(points, weights, 0.5, discrete)
        return replace(blank, h=local_shares(blank.whitened, how))

    def within(self, how: Smoothing, inside: Callable[[Floats], Bools]) -> Self:
        """Move points apart, to make up for the deviation that is cut off at a support's edge."""
        smooth, mean = self, self.weights @ self.points
        wanted, apart = np.sqrt(self.weights @ (self.points - mean) ** 2), np.ones(len(mean))
        for _ in range(STEPS_APART):
            drawn = smooth.draw(SUPPORT_DRAWS, np.random.default_rng(0))
            kept = inside(drawn)
            if np.all(kept) or np.mean(kept) < LEAST_WITHIN:
                break
            found = drawn[kept].std(axis=0)
            ratio = wanted / np.where(found > 0, found, 1.0)
            apart *= np.where(~self.discrete & (found > 0), ratio, 1.0)
            apart = np.clip(apart, 1.0, MOST_APART)
            smooth = self.by(mean + apart * (self.points - mean), self.weights, how, self.discrete)
        return smooth

    @property
    def _free(self) -> Floats:
        return self.points[:, ~self.discrete]

    @property
    def _shares(self) -> Floats:
        return np.broadcast_to(self.h, len(self.weights))

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
        """Factor that moves points towards the mean, to offset the variance smoothing adds."""
        return float(shrinkage(self._shares, self.weights))

    @property
    def log_volume(self) -> float:
        """Log of one over the peak of the normal density with the sample's covariance."""
        c = len(self.factor)
        return float(0.5 * c * np.log(2.0 * np.pi) + np.sum(np.log(self.factor.diagonal())))

    def draw(self, m: int, rng: Generator) -> Floats:
        """Independent draws (m, d)."""
        rows = rng.choice(len(self.weights), size=m, p=self.weights)
        z = self.shrink * self.whitened[rows]
        z += self._shares[rows, None] * rng.normal(size=z.shape)
        drawn = self.points[rows]
        drawn[:, ~self.discrete] = self.mean + z @ self.factor.T
        return drawn

    def log_density(self, T: Floats) -> Floats:
        """Log density (m,) at T (m, d): a density in the continuous, a mass in the others."""
        q = self.whiten(T[:, ~self.discrete])
        q2 = np.einsum("ij,ij->i", q, q)
        if self.shrink == 0 and not np.any(self.discrete):  # all centres are one: a normal density
            return np.asarray(-0.5 * q2 - self.log_volume)
        labels, asked = self.points[self.weights > 0][:, self.discrete], T[:, self.discrete]
        queries, found = np.column_stack([q, q2, np.ones(len(T))]), np.empty(len(T))
        for rows in row_blocks(len(T), len(labels), CACHED_ENTRIES):
            D = queries[rows] @ self._terms
            if labels.shape[1]:
                D[np.any(asked[rows][:, None] != labels[None], axis=2)] = -np.inf
            found[rows] = log_sum(D)
        return np.asarray(found - self.log_volume)

    @cached_property
    def _terms(self) -> Floats:
        """Logs of what points add, but for the volume, are these (c + 2, n) times (q, q^2, 1)."""
        used = self.weights > 0
        Z, h = self.shrink * self.whitened[used], self._shares[used]
        narrow, logs = 1.0 / h**2, np.log(self.weights[used]) - Z.shape[1] * np.log(h)
        return np.vstack([narrow * Z.T, -0.5 * narrow, logs - 0.5 * narrow * np.sum(Z**2, axis=1)])

    def log_own(self) -> Floats:
        """Log of what each point (n,) adds to the density at itself; all are continuous."""
        h, c = self._shares, self.points.shape[1]
        moved = (1.0 - self.shrink) ** 2 * np.einsum("ij,ij->i", self.whitened, self.whitened)
        with np.errstate(divide="ignore"):  # a point without weight adds nothing
            logs = np.log(self.weights)
        return np.asarray(logs - c * np.log(h) - 0.5 * moved / h**2 - self.log_volume)

    def whiten(self, X: Floats) -> Floats:
        """Coordinates of X (m, c) in which the sample has unit covariance."""
        return np.asarray(solve_triangular(self.factor, (X - self.mean).T).T)


def shrinkage(h: Floats, weights: Floats) -> Floats:
    """Factors (...) towards the mean that offset smoothing by shares h (..., n) or (..., 1)."""
    added = (h**2 @ weights) if h.shape[-1] == len(weights) else h[..., 0] ** 2
    return np.asarray(
        np.where(added < 1.0 - WEIGHT_ROUNDING, np.sqrt(np.maximum(1.0 - added, 0.0)), 0.0)
    )


def log_terms(
    cross: Floats, q2: Floats | float, squares: Floats, h: Floats, logs: Floats, c: int
) -> Floats:
    """Log of what each point adds to a smoothed density, but for the volume. Overwrites ``cross``.

    log w_i - c log h_i - |q - a z_i|^2 / (2 h_i^2) at whitened q, from ``cross`` = -2 a q . z_i,
    ``q2`` = |q|^2, ``squares`` = |a z_i|^2 and ``logs`` = log w_i.
    """
    cross += q2
    cross += squares
    cross *= -0.5 / h**2
    cross += logs - c * np.log(h)
    return cross


def log_sum(exponents: Floats) -> Floats:
    """Log of the sum of exponentials along rows; -inf for a row of -inf. Overwrites its input.

    Exponentials are in single precision: fast, and more digits than a density estimate has.
    """
    top = exponents.max(axis=1)
    exponents -= np.where(np.isfinite(top), top, 0.0)[:, None]
    with np.errstate(divide="ignore", over="ignore"):
        terms = exponents.astype(np.float32)
        return np.asarray(top + np.log(np.exp(terms, out=terms).sum(axis=1, dtype=np.float64)))


def local_shares(Z: Floats, how: Smoothing, widest: float = WIDEST) -> Floats:
    """Shares (n,) of whitened points (n, c), in proportion to the distance to a neighbour."""
    k = min(how.neighbours, len(Z) - 1)
    if k < 1 or Z.shape[1] == 0:
        return np.full(len(Z), min(how.h, widest))
    distances = neighbour_distances(Z, k)
    typical = max(float(np.median(distances)), np.finfo(float).tiny)
    with np.errstate(over="ignore"):  # most points coincide: the others are as wide as allowed
        return np.asarray(np.clip(how.h * distances / typical, NARROWEST, widest))


def neighbour_distances(Z: Floats, k: int) -> Floats:
    """Distance (n,) of each point to its k-th neighbour."""
    return np.asarray(cKDTree(Z).query(Z, k=[k + 1])[0][:, 0])


def best_smoothing(points: Floats, weights: Floats, rng: Generator) -> Smoothing:
    """Smoothing of the highest leave-one-out likelihood of points (n, d), drawn by weight."""
    none = np.zeros(points.shape[1], dtype=bool)
    rows = np.unique(rng.choice(len(weights), size=LOOKED_AT, p=weights))
    Z = Smoothed(points, weights, 0.5, none).whitened
    squares, products = np.einsum("ij,ij->i", Z, Z), Z[rows] @ Z.T
    with np.errstate(divide="ignore"):
        logs = np.log(weights)
    apart: dict[int, Floats] = {0: np.ones(len(Z))}
    if Z.shape[1] <= LOCAL_DIMENSIONS:
        apart[NEIGHBOURS] = local_shares(Z, Smoothing(1.0, NEIGHBOURS), np.inf)

    @cache
    def score(how: Smoothing) -> float:
        h = np.clip(how.h * apart[how.neighbours], NARROWEST, WIDEST)
        a = float(shrinkage(h, weights))
        D = log_terms(-2.0 * a * products, squares[rows, None], a**2 * squares, h, logs, Z.shape[1])
        D[np.arange(len(rows)), rows] = -np.inf
        return float(weights[rows] @ np.maximum(log_sum(D), LEAST_LOG))

    return max((_climb(score, [Smoothing(h, k) for h in SMOOTHING]) for k in apart), key=score)


def _climb(score: Callable[[Smoothing], float], grid: list[Smoothing]) -> Smoothing:
    """Best of a grid: up from its middle for as long as the score rises."""
    middle = len(grid) // 2
    below, above = grid[middle - 1], grid[middle + 1]
    step = 1 if score(above) > score(below) else -1
    at = grid.index(max(below, grid[middle], above, key=score))
    while 0 <= at + step < len(grid) and score(grid[at + step]) > score(grid[at]):
        at += step
    return grid[at]


def heaviest(points: Floats, weights: Floats) -> Sample:
    """Drop the lightest of points (n, d), which together weigh next to nothing."""
    order = np.argsort(weights)
    kept = np.sort(order[np.cumsum(weights[order]) > NEGLIGIBLE_MASS])
    return points[kept], weights[kept] / weights[kept].sum()


def covariance_factor(deviations: Floats, weights: Floats) -> Floats:
    """Cholesky factor of the weighted covariance of deviations (n, c) from their mean."""
    S = (deviations * weights[:, None]).T @ deviations
    c = len(S)
    level = max(float(np.trace(S)) / max(c, 1), np.finfo(float).tiny)
    variances = S.diagonal().copy()
    S[np.arange(c), np.arange(c)] += JITTER * variances + JITTER**2 * level + NO_VARIANCE
    return np.asarray(cholesky(S))
