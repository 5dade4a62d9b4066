r"""A likelihood for one observation, learned near where its posterior lies; draws of a posterior.

Where the mean of the data bends too much for one regression over all of the prior, it is still a
quadratic function over the width of a posterior. The likelihood is a t distribution with that mean,

.. math:: x \mid \theta \sim t_\nu(B\, (1, u, u u^\top), \Sigma),
          \qquad u = L^{-1} (\theta - m),

where m and L L^T are the mean and covariance of a first posterior, B is fitted by weighted least
squares to the nearest simulations in u and Sigma is the covariance of their left-out residuals. It
is normal but for the degrees of freedom nu: so many residuals are left to estimate Sigma from.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernelbayes.embedding.smooth import Sample, Smoothed, heaviest
from kernelbayes.gram.lapack import cholesky, solve_triangular
from kernelbayes.likelihood_free.learn.adjust import least_squares_fit, quadratic, quadratic_terms
from kernelbayes.types import Floats

LogDensity = Callable[[Floats], Floats]
# Simulations that count: for each term of the quadratic function at least so many, and a power of
# all: the error of such a fit is least at about n^(6 / (6 + d)), 3/4 for two parameters. The factor
# was chosen on the development seeds of experiments/sbi_tasks.
PER_TERM, NEAR_FACTOR, NEAR_POWER = 4, 0.56, 0.75
# Noise of a column counts as at least this share of its spread over all simulations: where nearby
# data are all the same, a quadratic function of the parameters is not exactly constant.
LEAST_LOCAL_NOISE = 0.01
# Metropolis steps of each draw, three for the time they take, and their length: that of the best
# step for a normal posterior, 2.38 / sqrt(2 d) differences of two points (ter Braak 2006), down to
# a share of it, since in a posterior of several parts most points are in different ones.
STEPS_OF_DRAWS, BEST_STEP, SHORTEST_STEP = 3, 2.38, 0.05


def near_count(n: int, d: int) -> int:
    """Of n simulations with d parameters, the number that a local likelihood is fitted to."""
    return max(PER_TERM * quadratic_terms(d), int(NEAR_FACTOR * n**NEAR_POWER))


@dataclass(frozen=True, eq=False)
class Nearby:
    """Parameters' coordinates (n, d) and summaries (n, p) of simulations, all continuous."""

    P: Floats
    S: Floats

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
        beta, residuals = least_squares_fit(quadratic(U[near]), self.S[near], w)
        C = (residuals * w[:, None]).T @ residuals
        variances = C.diagonal().copy()
        C *= max(0.0, 1.0 - len(C) * float(w @ w))  # towards its diagonal, by columns per pair
        C[np.diag_indices(len(C))] = variances + LEAST_LOCAL_NOISE**2
        free = max(1.0 / float(w @ w) - len(beta), 1.0)
        return Quadratic(frame, reach, beta, cholesky(C), free)


@dataclass(frozen=True, eq=False)
class Quadratic:
    """Likelihood, a t distribution, whose mean is a quadratic function of the parameters."""

    frame: Smoothed
    reach: float
    beta: Floats
    factor: Floats
    free: float

    def log_likelihood(self, P: Floats, s: Floats) -> Floats:
        """Log likelihood (m,) of parameters' coordinates (m, d), but for a constant.

        Beyond the simulations it was fitted to, the mean stays what it is at their edge.
        """
        U = self.frame.whiten(P)
        away = np.sqrt(np.einsum("ij,ij->i", U, U))
        U *= np.minimum(1.0, self.reach / np.maximum(away, self.reach))[:, None]
        R = solve_triangular(self.factor, (s - quadratic(U) @ self.beta).T)
        squares = np.einsum("ij,ij->j", R, R)
        return np.asarray(-0.5 * (self.free + len(R)) * np.log1p(squares / self.free))


@dataclass(frozen=True, eq=False)
class Density:
    """Posterior density of a learned likelihood, as the contest scores it, and draws of it."""

    learner: Any
    forward: Any
    s: Floats
    log_evidence: float

    def log_density(self, P: Floats) -> Floats:
        """Log density (k,) at coordinates (k, d)."""
        logs: Floats = self.learner.log_joint(self.forward, self.s, P)
        return logs - self.log_evidence

    def draw(self, m: int, sample: Sample, rng: np.random.Generator) -> Floats:
        """Draws (m, d): points of a weighted sample, then moved by Metropolis steps.

        Systematic resampling makes few copies. Steps are along differences of two points, which do
        not depend on the draw, so that a step and its reverse are equally likely (ter Braak 2006).
        """
        (points, weights), d = sample, sample[0].shape[1]
        shares = (rng.uniform() + rng.permutation(m)) / m
        T = points[np.searchsorted(np.cumsum(weights)[:-1], shares)]
        logs = self.log_density(T)
        for _ in range(STEPS_OF_DRAWS):
            first, second = points[rng.choice(len(points), size=(2, m), p=weights)]
            length = BEST_STEP / np.sqrt(2.0 * d) * SHORTEST_STEP ** rng.uniform(size=(m, 1))
            there = T + length * (first - second)
            higher = self.log_density(there)
            taken = np.log(rng.uniform(size=m)) + logs < higher  # -inf outside of the support
            T, logs = np.where(taken[:, None], there, T), np.where(taken, higher, logs)
        return T
