r"""A likelihood for one observation, learned near where its posterior lies; draws of a posterior.

Where the mean of the data bends too much for one regression f over all of the prior, what it misses
is still a quadratic function over the width of a posterior. The likelihood is a t distribution,

.. math:: x \mid \theta \sim t_\nu(f(\theta) + B\, (1, u, u u^\top), \Sigma),
          \qquad u = L^{-1} (\theta - m),

where m and L L^T are the mean and covariance of a first posterior, B is fitted by weighted least
squares to left-out residuals of the nearest simulations in u, Sigma is the covariance of what is
left of them, and nu how many they are, less the terms.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from kernelbayes.embedding.smooth import (
    NEIGHBOURS,
    WIDEST,
    Sample,
    Smoothed,
    heaviest,
    neighbour_distances,
    silverman_factor,
)
from kernelbayes.gram.lapack import cholesky, solve_triangular, whitening
from kernelbayes.likelihood_free.learn.adjust import (
    SEARCHED,
    least_squares_fit,
    quadratic,
    quadratic_terms,
)
from kernelbayes.select.regression import Regression, refit, regress, reweighted
from kernelbayes.types import Bools, Floats, Ints

LogDensity = Callable[[Floats], Floats]
# Simulations that count: for each term of the quadratic function at least so many, and a power of
# all: the error of such a fit is least at about n^(6 / (6 + d)), 3/4 for two parameters. The factor
# was chosen on the development seeds of experiments/sbi_tasks.
PER_TERM, NEAR_FACTOR, NEAR_POWER = 4, 0.56, 0.75
# Noise of a column counts as at least this share of its spread over all simulations: where nearby
# data are all the same, a quadratic function of the parameters is not exactly constant.
LEAST_LOCAL_NOISE = 0.01
# Metropolis steps of a repeated draw, three for the time they take; they are to new points for as
# long as this share of them is taken. The length of others: 2.38 / sqrt(2 d) differences of points,
# the best for a normal posterior (ter Braak 2006), down to a share of that if it has several parts.
STEPS_OF_DRAWS, OFTEN_TAKEN, BEST_STEP, SHORTEST_STEP = 3, 0.3, 2.38, 0.05
PROPOSAL_POINTS = 300  # points of a proposal's density
# Smoothing of a proposal: this multiple of Silverman's or, with few parameters, of the distance to
# a neighbour, and never below the last value. Chosen on those seeds, too.
WIDER, CLOSE, CLOSE_DIMENSIONS, NARROWEST_PROPOSAL = 1.2, 0.5, 3, 0.01
PER_SLOPE = 3  # simulations for each term of a linear function, at least, to tell which matter


def near_count(n: int, d: int) -> int:
    """Of n simulations with d parameters, the number that a local likelihood is fitted to."""
    return max(PER_TERM * quadratic_terms(d), int(NEAR_FACTOR * n**NEAR_POWER))


@dataclass(frozen=True, eq=False)
class Mean:
    """Mean of data given parameters: linear in those that matter to a column, and a regression.

    ``slopes`` (d + 1, p), a constant first, are the linear part, ``left_out`` (n, p) predictions.
    """

    slopes: Floats
    rest: Regression
    left_out: Floats

    @classmethod
    def fit(cls, P: Floats, Y: Floats, rng: np.random.Generator, like: Mean | None = None) -> Mean:
        """Learn from parameters (n, d) and data (n, p); what ``like`` has chosen is kept."""
        design = np.column_stack([np.ones(len(P)), P])
        used = _that_matter(design, Y) if like is None else like.slopes != 0
        slopes, left, equal = np.zeros(used.shape), Y.copy(), np.full(len(P), 1.0 / len(P))
        for j in np.flatnonzero(used[0]):
            beta, residuals = least_squares_fit(design[:, used[:, j]], Y[:, [j]], equal)
            slopes[used[:, j], j], left[:, j] = beta[:, 0], residuals[:, 0]
        unexplained = Y - design @ slopes
        rest = fitted(P, unexplained, rng, None if like is None else like.rest)
        return cls(slopes, rest, Y - left + rest.left_out)

    def reweighted(self, P: Floats, Y: Floats, variances: Floats) -> Mean:
        """Regression of the rest again, with each pair counting by one over its variance (n, p)."""
        rest = reweighted(self.rest, P, Y - self._linear(P), variances)
        return replace(self, rest=rest, left_out=self.left_out + rest.left_out - self.rest.left_out)

    def _linear(self, P: Floats) -> Floats:
        return np.asarray(self.slopes[0] + P @ self.slopes[1:])

    def __call__(self, P: Floats) -> Floats:
        """Means (m, p) at parameters' coordinates (m, d)."""
        return self._linear(P) + self.rest(P)


def fitted(P: Floats, Y: Floats, rng: np.random.Generator, like: Regression | None) -> Regression:
    """Regression of Y (n, q) on parameters (n, d), as was chosen before if it was."""
    return regress(P, Y, rng, searched=SEARCHED) if like is None else refit(like.basis, P, Y)


def _that_matter(design: Floats, Y: Floats) -> Bools:
    """Which terms of a design (n, k) matter to each column (n, p), the first if another does.

    Those of a t value above sqrt(log n): without one a linear regression has a higher BIC.
    """
    n, k = design.shape
    root = whitening(design.T @ design, n * np.finfo(float).eps)  # without directions of rounding
    inverse = root @ root.T
    beta = inverse @ (design.T @ Y)
    variances = np.sum((Y - design @ beta) ** 2, axis=0) / max(n - k, 1)
    used = beta**2 > np.log(n) * np.outer(inverse.diagonal(), variances)
    used &= np.any(used[1:], axis=0) & (n >= PER_SLOPE * k)
    used[0] = np.any(used, axis=0)
    return np.asarray(used)


@dataclass(frozen=True, eq=False)
class Nearby:
    """Simulations' parameters (n, d) and data (n, p) in coordinates, all continuous, and the mean.

    ``columns`` are those of the data that are modelled.
    """

    P: Floats
    S: Floats
    mean: Mean
    columns: Ints

    def around(self, points: Floats, weights: Floats) -> Quadratic:
        """Likelihood near a weighted sample (k, d) of parameters."""
        points, weights = heaviest(points, weights)
        frame = Smoothed(points, weights, 0.5, np.zeros(points.shape[1], dtype=bool))
        U = frame.whiten(self.P)
        away = np.sqrt(np.einsum("ij,ij->i", U, U))
        near = np.argsort(away)[: near_count(*U.shape)]
        reach = max(float(away[near[-1]]), np.finfo(float).tiny)
        w = np.maximum(1.0 - (away[near] / reach) ** 2, 1e-3)  # Epanechnikov, and none is lost
        w /= w.sum()
        beta, residuals = least_squares_fit(
            quadratic(U[near]), self.S[near] - self.mean.left_out[near], w
        )
        C = shrunk(residuals, w)
        C[np.diag_indices(len(C))] += LEAST_LOCAL_NOISE**2
        free = max(1.0 / float(w @ w) - len(beta), 1.0)
        return Quadratic(self, frame, reach, beta, cholesky(C), free)


def shrunk(residuals: Floats, w: Floats) -> Floats:
    """Covariance (p, p) of weighted residuals (n, p) of mean zero, weights summing to one.

    Its correlations are multiplied by the share of their squares that is not sampling error
    (Schafer, Strimmer 2005). Estimated from the products themselves the error counts tails.
    """
    sizes = np.sqrt(w @ residuals**2)
    Z = residuals / np.where(sizes > 0, sizes, 1.0)
    R = (Z * w[:, None]).T @ Z
    squares, v = Z**2, (w**2)[:, None]
    errors = (squares * v).T @ squares - 2.0 * R * ((Z * v).T @ Z) + R**2 * np.sum(v)
    off = ~np.eye(len(R), dtype=bool)
    R[off] *= max(0.0, 1.0 - errors[off].sum() / max(np.sum(R[off] ** 2), np.finfo(float).tiny))
    return np.asarray(sizes[:, None] * R * sizes)


@dataclass(frozen=True, eq=False)
class Quadratic:
    """Likelihood, a t distribution, whose mean is that of all data plus a quadratic function."""

    of: Nearby
    frame: Smoothed
    reach: float
    beta: Floats
    factor: Floats
    free: float

    def log_likelihood(self, P: Floats, s: Floats) -> Floats:
        """Log likelihood (m,) of parameters' coordinates (m, d), but for a constant.

        Beyond the simulations it was fitted to, the function stays what it is at their edge.
        """
        U = self.frame.whiten(P)
        away = np.sqrt(np.einsum("ij,ij->i", U, U))
        U *= np.minimum(1.0, self.reach / np.maximum(away, self.reach))[:, None]
        means = self.of.mean(P) + quadratic(U) @ self.beta
        R = solve_triangular(self.factor, (s[self.of.columns] - means).T)
        squares = np.einsum("ij,ij->j", R, R)
        return np.asarray(-0.5 * (self.free + len(R)) * np.log1p(squares / self.free))


@dataclass(frozen=True, eq=False)
class Density:
    """Posterior density of a learned likelihood, as the contest scores it, and draws of it."""

    learner: Any
    forward: Any
    s: Floats
    log_evidence: float
    known: Floats | None = None  # log densities (k,) of the sample that is drawn from

    def log_density(self, P: Floats) -> Floats:
        """Log density (k,) at coordinates (k, d)."""
        return np.asarray(self.learner.log_joint(self.forward, self.s, P) - self.log_evidence)

    def draw(self, m: int, sample: Sample, rng: np.random.Generator) -> Floats:
        """Draws (m, d): points of a weighted sample; repeated ones are moved by Metropolis steps.

        A step is to a draw of the smoothed sample or, where few of these are taken, along the
        difference of two points: it and its reverse are equally likely.
        """
        (points, weights), d = sample, sample[0].shape[1]
        shares = (rng.uniform() + rng.permutation(m)) / m
        rows = np.searchsorted(np.cumsum(weights)[:-1], shares)
        drawn, again = points[rows], np.ones(m, dtype=bool)
        again[np.unique(rows, return_index=True)[1]] = False
        if not np.any(again):
            return drawn
        T, rows = drawn[again], rows[again]
        proposal = proposal_of(points, weights, np.zeros(d, dtype=bool), rng)[0]
        logs = self.log_density(T) if self.known is None else self.known[rows]
        chances, anew = proposal.log_density(T), True
        for _ in range(STEPS_OF_DRAWS):
            if anew:
                there = proposal.draw(len(T), rng)
            else:
                first, second = points[rng.choice(len(points), size=(2, len(T)), p=weights)]
                scale = SHORTEST_STEP ** rng.uniform(size=(len(T), 1))
                there = T + BEST_STEP / np.sqrt(2.0 * d) * scale * (first - second)
            higher = self.log_density(there)
            other = proposal.log_density(there) if anew else chances
            odds = higher - logs + chances - other  # -inf outside of the support
            taken = np.log(rng.uniform(size=len(T))) < odds
            T, logs = np.where(taken[:, None], there, T), np.where(taken, higher, logs)
            chances = np.where(taken, other, chances)
            anew = anew and bool(np.mean(taken) > OFTEN_TAKEN)
        drawn[again] = T
        return drawn


def proposal_of(
    points: Floats, weights: Floats, discrete: Bools, rng: np.random.Generator
) -> tuple[Smoothed, Ints]:
    """Smoothed sample of some of the points, drawn by weight, and their indices."""
    rows = np.arange(len(points))
    if len(points) > PROPOSAL_POINTS:
        rows = rng.choice(len(points), size=PROPOSAL_POINTS, p=weights / weights.sum())
        rows, times = np.unique(rows, return_counts=True)
        points, weights = points[rows], times / PROPOSAL_POINTS
    h = min(WIDER * silverman_factor(weights, points.shape[1]), WIDEST)
    smooth = Smoothed(points, weights, h, discrete)
    if points.shape[1] > CLOSE_DIMENSIONS or len(points) <= NEIGHBOURS:
        return smooth, rows
    apart = neighbour_distances(smooth.whitened, NEIGHBOURS)
    return replace(smooth, h=np.clip(CLOSE * apart, NARROWEST_PROPOSAL, WIDEST)), rows
