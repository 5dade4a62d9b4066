r"""From parameters to data: a likelihood learned from simulations, then Bayes' rule.

Kernel regression of the data (or of learned summaries of them) on the parameters gives their mean
m(theta) and, if that pays, their scale s(theta); what is left over, the left-out residuals, is a
sample of the noise, the same for all parameters or taken from near ones. Its smoothed density is
the likelihood,

.. math:: \log p(x \mid \theta) = \log p_\varepsilon\!\big((x - m(\theta)) / s(\theta)\big)
          - \sum_j \log s_j(\theta),

and adds up over the rows of an iid data set. Nothing here depends on where the parameters of the
simulations came from, so any prior may follow: the posterior is a sample from a proposal, weighted
by likelihood times prior over proposal, and the proposal is improved a few times (Cappe et al.
2004, population Monte Carlo).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.spatial import cKDTree

from kernelbayes.arrays import row_blocks
from kernelbayes.decode.density import silverman_factor
from kernelbayes.simulation.inverse import deviation, log_squares
from kernelbayes.simulation.kde import Smoothed, Smoothing, log_sum
from kernelbayes.simulation.regression import Regression, refit, regress

Floats = np.ndarray[Any, Any]
LogDensity = Callable[[Floats], Floats]
# Residuals that make up the noise density, and the shares of their deviation it is smoothed by.
RESIDUALS = 1500
NOISE_SMOOTHING = (0.1, 0.2, 0.35, 0.5, 0.7, 0.9, 0.99)
# Residuals at near parameters that make up their noise density, and all that are looked among.
NEAR_NOISE, LOCAL_RESIDUALS = 200, 5000
NEAR_DIMENSIONS = 6  # with more parameters none are near
# In few dimensions the noise density may be smoothed by the distance to a neighbour.
LOCAL_COLUMNS, NOISE_NEIGHBOUR = 5, 10
# Rows of an iid data set whose residuals are looked at.
ROWS = 30
# A column that differs from its common value less often than twice this has no smooth density.
RARE = 0.025
# Share of proposals that come from the prior, so that no weight is without bound.
DEFENSIVE = 0.1
# Proposals adapt to weights that are flattened until this share of them counts.
LEAST_ESS = 0.1


@dataclass(frozen=True, eq=False)
class Noise:
    """Density of residuals (n, p): the same everywhere, or of those at near parameters.

    ``tree`` holds where the residuals were made; the density at a parameter is that of its
    ``near`` nearest ones. Without it, of all.
    """

    density: Smoothed
    tree: cKDTree | None = None
    near: int = 0

    def log_density(self, residuals: Floats, at: Floats) -> Floats:
        """Log densities (m, k) of k residuals (m, k, p) at each of m parameters (m, c)."""
        m, k, p = residuals.shape
        density = self.density
        if self.tree is None:
            return density.log_density(residuals.reshape(-1, p)).reshape(m, k)
        centres = density.shrink * density.whitened
        queries = density.whiten(residuals.reshape(-1, p)).reshape(m, k, p)
        found = np.empty((m, k))
        for rows in row_blocks(m, self.near * p * k):
            nearest = self.tree.query(at[rows], k=self.near)[1]
            D = np.sum((queries[rows][:, :, None] - centres[nearest][:, None]) ** 2, axis=3)
            D *= -0.5 / density.h**2
            found[rows] = log_sum(D.reshape(-1, self.near)).reshape(-1, k)
        volume = p * (np.log(density.h) + 0.5 * np.log(2.0 * np.pi)) + np.log(self.near)
        return np.asarray(found - volume - np.sum(np.log(density.factor.diagonal())))


@dataclass(frozen=True, eq=False)
class Forward:
    """A likelihood learned from simulations, of summaries (p,) or of iid rows (k, p)."""

    mean: Regression
    scales: Regression | None
    noise: Noise
    score: float
    columns: Floats

    @classmethod
    def fit(cls, P: Floats, S: Floats, rng: np.random.Generator) -> Forward:
        """Learn from parameters' coordinates (n, d) and summaries (n, p), or iid rows (n, k, p)."""
        rows = S if S.ndim == 3 else S[:, None, :]
        columns = _varying(rows.reshape(-1, rows.shape[2]))
        rows = rows[:, :, columns]
        mean = regress(P, rows.mean(axis=1), rng)
        residuals = rows - mean.left_out[:, None]
        if residuals.shape[1] > ROWS:
            residuals = residuals[:, rng.permutation(residuals.shape[1])[:ROWS]]
        equal, k = np.full(len(P), 1.0 / len(P)), residuals.shape[1]
        logs = np.mean([log_squares(residuals[:, i], equal) for i in range(k)], axis=0)
        scales = refit(mean.basis, P, logs)
        sigma = deviation(scales.left_out)
        at, order = P @ mean.metric, rng.permutation(len(P))
        test = order[: min(len(P) // 2, 500)]
        shrunk = k * float(np.mean(np.sum(np.log(sigma[test]), axis=1)))
        found = []
        for near in (0, NEAR_NOISE) if at.shape[1] <= NEAR_DIMENSIONS else (0,):
            noise, score = _noise(residuals, at, near, order, len(test))
            found.append(cls(mean, None, noise, score, columns))
            noise, score = _noise(residuals / sigma[:, None], at, near, order, len(test))
            found.append(cls(mean, scales, noise, score - shrunk, columns))
        return max(found, key=lambda forward: forward.score)

    def log_likelihood(self, P: Floats, s: Floats) -> Floats:
        """Log likelihood (m,) of parameters' coordinates (m, d) for one observation."""
        rows = np.atleast_2d(s)[:, self.columns]
        residuals = rows[None] - self.mean(P)[:, None]
        logs = np.zeros(len(P))
        if self.scales is not None:
            sigma = deviation(self.scales(P))
            residuals = residuals / sigma[:, None]
            logs -= len(rows) * np.sum(np.log(sigma), axis=1)
        densities = self.noise.log_density(residuals, P @ self.mean.metric)
        return np.asarray(logs + densities.sum(axis=1))


def _varying(rows: Floats) -> Floats:
    """Columns to model: not those with one value nearly always, which no smooth density fits."""
    low, high = np.quantile(rows, [RARE, 1.0 - RARE], axis=0)
    return np.flatnonzero(high > low) if np.any(high > low) else np.arange(rows.shape[1])


def _noise(
    residuals: Floats, at: Floats, near: int, order: Floats, tested: int
) -> tuple[Noise, float]:
    """Density of residuals (n, k, p) made at parameters (n, c), and its log score.

    The score is that of the first simulations of a random order under the density of the others.
    """
    n, k, p = residuals.shape
    none = np.zeros(p, dtype=bool)
    limit = max((LOCAL_RESIDUALS if near else RESIDUALS) // k, 1)

    def density(rows: Floats, how: Smoothing) -> Noise:
        flat = residuals[rows].reshape(-1, p)
        smooth = Smoothed.by(flat, np.full(len(flat), 1.0 / len(flat)), how, none)
        if not near:
            return Noise(smooth)
        tree = cKDTree(np.repeat(at[rows], k, axis=0))
        return Noise(smooth, tree, max(min(near * len(rows) // min(limit, n), len(flat)), 1))

    test, train = order[:tested], order[tested:][:limit]
    tried = [Smoothing(h) for h in NOISE_SMOOTHING]
    if not near and p <= LOCAL_COLUMNS:
        tried += [Smoothing(h, NOISE_NEIGHBOUR) for h in NOISE_SMOOTHING]
    scores = [
        density(train, how).log_density(residuals[test], at[test]).sum(axis=1).mean()
        for how in tried
    ]
    best = int(np.argmax(scores))
    return density(order[:limit], tried[best]), float(scores[best])


@dataclass(frozen=True, eq=False)
class Weighted:
    """Draws (k, d) of a proposal, their log weights (k,), and how many were drawn in all."""

    points: Floats
    logs: Floats
    drawn: int
    log_proposal: LogDensity

    @property
    def weights(self) -> Floats:
        """Weights that sum to one."""
        return tempered(self.logs, 0.0)

    def log_evidence(self, log_weight: float = -np.inf) -> float:
        """Log of the mean weight, of the draws and, if given, of one more point."""
        total = np.logaddexp.reduce(np.append(self.logs, log_weight))
        return float(total - np.log(self.drawn + 1))


def importance_sample(
    log_target: LogDensity,
    log_prior: LogDensity,
    prior_draws: Floats,
    start: Smoothed,
    m: int,
    rounds: int,
    rng: np.random.Generator,
) -> Weighted:
    """Weighted sample of likelihood times prior, by proposals that improve.

    Parameters
    ----------
    log_target, log_prior : functions (k, d) -> (k,)
        Log of likelihood times prior, -inf outside of the support; log of the prior.
    prior_draws : array (n, d)
        To mix into the proposals.
    start : Smoothed
        The first proposal.
    m, rounds : int
        Draws of each round, and rounds.
    rng : Generator
    """
    few = max(int(DEFENSIVE * m), 1)
    proposal = start
    for last in [False] * (rounds - 1) + [True]:
        log_proposal = _mixed(proposal, log_prior, few / m)
        wide = prior_draws[rng.integers(len(prior_draws), size=few)]
        T = np.vstack([proposal.draw(m - few, rng), wide])
        target = log_target(T)
        inside = np.isfinite(target)
        T, logs = T[inside], target[inside] - log_proposal(T[inside])
        if not last:
            weights = tempered(logs, LEAST_ESS * len(T))
            h = min(1.2 * silverman_factor(weights, T.shape[1]), 0.95)
            proposal = Smoothed(T, weights, h, start.discrete)
    return Weighted(T, logs, m, log_proposal)


def _mixed(proposal: Smoothed, log_prior: LogDensity, share: float) -> LogDensity:
    """Log density of the proposal with a share of the prior in it."""

    def log_density(T: Floats) -> Floats:
        narrow = np.log1p(-share) + proposal.log_density(T)
        return np.asarray(np.logaddexp(narrow, np.log(share) + log_prior(T)))

    return log_density


def tempered(logs: Floats, least_ess: float) -> Floats:
    """Weights exp(b logs), summing to one; b = 1, or smaller until enough of them count."""
    b = 1.0
    while True:
        weights = np.exp(b * (logs - logs.max()))
        weights /= weights.sum()
        if 1.0 / float(weights @ weights) >= least_ess or b < 1e-6:
            return np.asarray(weights)
        b *= 0.7
