r"""Proper scores of a weighted sample at the parameters that were true.

The logarithm of the smoothed density, or the energy score (minus it, so that larger is better),

.. math:: -\sum_i w_i \|\theta_i - \theta\| + \tfrac12 \sum_{ij} w_i w_j \|\theta_i - \theta_j\|.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from sklearn.metrics.pairwise import euclidean_distances

from kernelbayes.embedding.smooth import (
    SMOOTHING,
    WIDEST,
    Sample,
    Smoothed,
    Smoothing,
    local_shares,
    log_sum,
    log_terms,
    shrinkage,
)

Floats = np.ndarray[Any, Any]
Score = Literal["log", "energy"]
# Points of a sample that are looked at; draws that tell how much is inside.
JUDGED_POINTS = 700
INSIDE_DRAWS = 50
# Share of a density that is everywhere, mixed in where parameters are discrete; no log score is
# less than that of a share of it, or one wild simulation would decide.
STRAY, LEAST_SHARE = 0.01, 1e-4


@dataclass(frozen=True, eq=False)
class Judge:
    """Scores samples at left-out parameters.

    ``low`` and ``high`` (d,) are the ends of the prior's support in the samples' coordinates:
    densities are those of the smoothed sample restricted to it.
    """

    discrete: Floats
    low: Floats
    high: Floats
    kind: Score = "log"

    def __call__(
        self,
        samples: Iterable[Sample],
        truths: Floats,
        rng: np.random.Generator,
        neighbours: int = 0,
    ) -> Floats:
        """Scores (m, len(SMOOTHING)) of m samples at the truths (m, d)."""
        rows = []
        for (points, weights), truth in zip(samples, truths, strict=True):
            points, weights = points[weights > 0], weights[weights > 0]
            if len(points) > JUDGED_POINTS:
                untied = -weights * rng.uniform(0.999, 1.0, len(weights))
                some = np.argpartition(untied, JUDGED_POINTS)[:JUDGED_POINTS]
                points, weights = points[some], weights[some] / weights[some].sum()
            if self.kind == "energy":
                rows.append(np.full(len(SMOOTHING), _energy(points, weights, truth)))
            else:
                rows.append(self._logs(points, weights, truth, rng, neighbours))
        return np.stack(rows)

    def _logs(
        self,
        points: Floats,
        weights: Floats,
        truth: Floats,
        rng: np.random.Generator,
        neighbours: int,
    ) -> Floats:
        smooth = Smoothed(points, weights, 0.5, self.discrete)
        same = np.all(points[:, self.discrete] == truth[self.discrete], axis=1)
        if not np.any(same):
            return np.full(len(SMOOTHING), np.log(STRAY) + self._anywhere(truth))
        Z, z = smooth.whitened, smooth.whiten(truth[None, ~self.discrete])[0]
        h = np.asarray(SMOOTHING)[:, None]
        if neighbours:
            h = np.minimum(h * local_shares(Z, Smoothing(1.0, neighbours), np.inf), WIDEST)
        a = shrinkage(h, weights)[:, None]
        squares = a**2 * np.sum(Z * Z, axis=1)  # of all smoothings at once
        terms = log_terms(-2.0 * a * (Z @ z), z @ z, squares, h, np.log(weights), Z.shape[1])
        logs = log_sum(np.where(same, terms, -np.inf)) - smooth.log_volume
        logs = logs - self._log_inside(smooth, h, rng)
        if np.any(self.discrete):  # a value that no point has is rare, not impossible
            logs = np.logaddexp(np.log1p(-STRAY) + logs, np.log(STRAY) + self._anywhere(truth))
        return self.floored(np.asarray(logs), truth)

    def floored(self, logs: Floats, truths: Floats) -> Floats:
        """Log scores (m,) at truths (m, d) or (d,), none less than a density everywhere has."""
        return np.asarray(np.maximum(logs, np.log(LEAST_SHARE) + self._anywhere(truths)))

    def _anywhere(self, truths: Floats) -> Any:
        """Log of a density that is everywhere: normal, and one tenth for each discrete value."""
        Z = truths[..., ~self.discrete]
        return -0.5 * np.sum(Z**2 + np.log(2.0 * np.pi), axis=-1) - np.log(10.0)

    def _log_inside(self, smooth: Smoothed, h: Floats, rng: np.random.Generator) -> Any:
        """Log share of the smoothed sample within the support, for each smoothing."""
        free = ~self.discrete
        low, high = self.low[free], self.high[free]
        if not np.any(np.isfinite(low) | np.isfinite(high)):
            return 0.0
        rows = rng.choice(len(smooth.weights), size=INSIDE_DRAWS, p=smooth.weights)
        a = shrinkage(h, smooth.weights)[:, None, None]
        h = np.broadcast_to(h, (len(h), len(smooth.weights)))[:, rows, None]
        z = a * smooth.whitened[rows]
        z = z + h * rng.normal(size=z.shape[1:])
        drawn = smooth.mean + z @ smooth.factor.T
        inside = np.mean(np.all((drawn >= low) & (drawn <= high), axis=2), axis=1)
        return np.log(np.maximum(inside, 1.0 / INSIDE_DRAWS))


def _energy(points: Floats, weights: Floats, truth: Floats) -> float:
    away = np.linalg.norm(points - truth, axis=1)
    return float(0.5 * weights @ euclidean_distances(points) @ weights - weights @ away)
