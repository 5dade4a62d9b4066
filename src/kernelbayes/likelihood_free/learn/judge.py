r"""Scores of posteriors at the true parameters of held-out simulations.

By the logarithm of the smoothed density, or by the energy score (negative, so that larger is
better),

.. math:: -\sum_i w_i \|\theta_i - \theta\| + \tfrac12 \sum_{ij} w_i w_j \|\theta_i - \theta_j\|.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.spatial.distance import cdist

from kernelbayes.embedding.smooth import SMOOTHING, Sample, Smoothed, log_terms, shrinkage
from kernelbayes.types import Bools, Floats

Criterion = Literal["log", "energy"]
# Points of a sample that are scored, and draws that estimate the mass inside the support: they
# bound the time of a score.
JUDGED_POINTS, INSIDE_DRAWS = 700, 50
# Weight of a broad density that is mixed in where parameters are discrete, and the weight of it
# below which no log score falls: a single held-out simulation loses at most log 1e-4.
STRAY, LEAST_WEIGHT = 0.01, 1e-4
RANK_LEVELS = np.linspace(0.05, 0.95, 19)  # finer than a hundred ranks can tell apart


@dataclass(frozen=True, eq=False)
class Judge:
    """Scores samples at held-out parameters.

    ``low`` and ``high`` (d,) are the ends of the prior's support in the samples' coordinates:
    densities are those of the smoothed sample restricted to it.
    """

    discrete: Bools
    low: Floats
    high: Floats
    criterion: Criterion = "log"

    def __call__(
        self, samples: Iterable[Sample], truths: Floats, rng: np.random.Generator
    ) -> Floats:
        """Scores (m, len(SMOOTHING)) of m samples at the truths (m, d)."""
        rows = []
        for (points, weights), truth in zip(samples, truths, strict=True):
            points, weights = points[weights > 0], weights[weights > 0]
            if len(points) > JUDGED_POINTS:  # the heaviest, ties broken at random
                untied = -weights * rng.uniform(0.999, 1.0, len(weights))
                some = np.argpartition(untied, JUDGED_POINTS)[:JUDGED_POINTS]
                points, weights = points[some], weights[some] / weights[some].sum()
            if self.criterion == "energy":
                away, apart = np.linalg.norm(points - truth, axis=1), cdist(points, points)
                energy = float(0.5 * weights @ apart @ weights - weights @ away)
                rows.append(np.full(len(SMOOTHING), energy))
            else:
                rows.append(self._logs(points, weights, truth, rng))
        return np.stack(rows)

    def _logs(
        self, points: Floats, weights: Floats, truth: Floats, rng: np.random.Generator
    ) -> Floats:
        smooth = Smoothed(points, weights, 0.5, self.discrete)
        same = np.all(points[:, self.discrete] == truth[self.discrete], axis=1)
        if not np.any(same):
            return np.full(len(SMOOTHING), np.log(STRAY) + self._anywhere(truth))
        Z, z = smooth.whitened, smooth.whiten(truth[None, ~self.discrete])[0]
        h = np.asarray(SMOOTHING)[:, None]
        a = shrinkage(h, weights)[:, None]
        squares = a**2 * np.sum(Z * Z, axis=1)  # of all smoothings at once
        terms = log_terms(-2.0 * a * (Z @ z), z @ z, squares, h, np.log(weights), Z.shape[1])
        terms = np.where(same, terms, -np.inf)
        top = terms.max(axis=1)
        logs = top + np.log(np.exp(terms - top[:, None]).sum(axis=1)) - smooth.log_volume
        logs -= self._log_inside(smooth, h, rng)
        if np.any(self.discrete):  # a value that no point has is rare, not impossible
            logs = np.logaddexp(np.log1p(-STRAY) + logs, np.log(STRAY) + self._anywhere(truth))
        return self.floored(np.asarray(logs), truth)

    def floored(self, logs: Floats, truths: Floats) -> Floats:
        """Log scores (m,) at truths (m, d) or (d,), none less than a density everywhere has."""
        return np.asarray(np.maximum(logs, np.log(LEAST_WEIGHT) + self._anywhere(truths)))

    def _anywhere(self, truths: Floats) -> Floats:
        """Log of a broad density: standard normal where continuous, and a tenth of that in all."""
        Z = truths[..., ~self.discrete]
        return np.asarray(-0.5 * np.sum(Z**2 + np.log(2.0 * np.pi), axis=-1) - np.log(10.0))

    def _log_inside(self, smooth: Smoothed, h: Floats, rng: np.random.Generator) -> Floats | float:
        """Log share of the smoothed sample within the support, for each smoothing."""
        low, high = self.low[~self.discrete], self.high[~self.discrete]
        if not np.any(np.isfinite(low) | np.isfinite(high)):
            return 0.0
        rows = rng.choice(len(smooth.weights), size=INSIDE_DRAWS, p=smooth.weights)
        a = shrinkage(h, smooth.weights)[:, None, None]
        z = a * smooth.whitened[rows]
        drawn = smooth.mean + (z + h[:, :, None] * rng.normal(size=z.shape[1:])) @ smooth.factor.T
        inside = np.mean(np.all((drawn >= low) & (drawn <= high), axis=2), axis=1)
        return np.asarray(np.log(np.maximum(inside, 1.0 / INSIDE_DRAWS)))


def uneven(ranks: Floats, counts: Floats | None) -> Floats:
    """Mean squared distances (T,) of the distributions of ranks (m, T) from the uniform one."""
    below = ranks[:, :, None] <= RANK_LEVELS
    shares = np.average(below, axis=0, weights=counts)
    return np.asarray(np.mean((shares - RANK_LEVELS) ** 2, axis=1))
