"""Weighted draws of likelihood times prior, by proposals that improve.

Draws of all rounds are kept, weighted by the target over the mixture of all proposals (Cornuet et
al. 2012, adaptive multiple importance sampling). A proposal is a smoothed sample of earlier draws,
so its density at one of them counts the others only: with the kernel that sits on itself each would
weigh too little where there are few, and posteriors would be too narrow.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from kernelbayes.embedding.smooth import (
    NEIGHBOURS,
    ROUNDING,
    WIDEST,
    Smoothed,
    neighbour_distances,
    silverman_factor,
)

Floats = np.ndarray[Any, Any]
LogDensity = Callable[[Floats], Floats]
# Points of a proposal's density.
PROPOSAL_POINTS = 300
# Its smoothing, in Silverman's; with so few parameters in distances to a neighbour.
WIDER, CLOSE, CLOSE_DIMENSIONS, NARROWEST_PROPOSAL = 1.2, 0.5, 3, 0.01
# Share of proposals that come from the prior, so that no weight is without bound.
DEFENSIVE = 0.1
# Proposals adapt to weights that are flattened until this share of them counts.
LEAST_ESS = 0.1
# Enough draws that count.
ENOUGH_ESS = 800.0


@dataclass(frozen=True, eq=False)
class Proposals:
    """Mixture of what draws came from: so many of each smoothed sample, and of the prior."""

    parts: tuple[tuple[Smoothed, int], ...] = ()
    from_prior: int = 0

    @property
    def drawn(self) -> int:
        """Number of draws."""
        return self.from_prior + sum(m for _, m in self.parts)

    def with_more(self, smooth: Smoothed, m: int, from_prior: int) -> Proposals:
        """Mixture with so many more draws."""
        return Proposals((*self.parts, (smooth, m)), self.from_prior + from_prior)

    def log_counts(self, T: Floats, log_prior: Floats) -> Floats:
        """Log of draws per volume (k,) at T (k, d), where the prior has these log densities."""
        found = np.log(self.from_prior) + log_prior
        for smooth, m in self.parts:
            found = np.logaddexp(found, np.log(m) + smooth.log_density(T))
        return np.asarray(found)


@dataclass(frozen=True, eq=False)
class Weighted:
    """Draws (k, d) of proposals, and the logs (k,) of the weights that mend them."""

    points: Floats
    logs: Floats
    proposals: Proposals

    @property
    def weights(self) -> Floats:
        """Weights that sum to one."""
        return tempered(self.logs, 0.0)

    @property
    def ess(self) -> float:
        """Effective number of draws."""
        return float(1.0 / np.sum(self.weights**2))

    def log_evidence(self, log_weight: float | None = None) -> float:
        """Log of the integral of the target, by the draws and, if given, one more point."""
        total = float(np.logaddexp.reduce(self.logs))
        if log_weight is None:
            return total
        drawn = self.proposals.drawn
        return float(np.logaddexp(total, log_weight) + np.log(drawn / (drawn + 1)))


def importance_sample(
    log_likelihood: LogDensity,
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
    log_likelihood, log_prior : functions (k, d) -> (k,)
        The log of the prior is -inf outside of its support.
    prior_draws : array (n, d)
        To mix into the proposals.
    start : Smoothed
        The first proposal.
    m, rounds : int
        Draws of each round, and rounds at most.
    rng : Generator
    """
    few = max(int(DEFENSIVE * m), 1)
    d = start.points.shape[1]
    T, target, prior, counts = np.empty((0, d)), np.empty(0), np.empty(0), np.empty(0)
    proposals, proposal, own = Proposals(), start, np.empty(0, dtype=int)
    for left in reversed(range(rounds)):
        wide = prior_draws[rng.integers(len(prior_draws), size=few)]
        new = np.vstack([proposal.draw(m - few, rng), wide])
        there = log_prior(new)
        new, there = new[np.isfinite(there)], there[np.isfinite(there)]
        proposals = proposals.with_more(proposal, m - few, few)
        close = proposal.log_density(T)
        close[own] = _of_others(proposal, close[own])
        more = np.logaddexp(np.log(m - few) + close, np.log(few) + prior)
        counts = np.append(np.logaddexp(counts, more), proposals.log_counts(new, there))
        T, prior = np.vstack([T, new]), np.append(prior, there)
        target = np.append(target, there + log_likelihood(new))
        found = Weighted(T, target - counts, proposals)
        if left == 0 or found.ess >= ENOUGH_ESS:
            break
        weights = tempered(found.logs, LEAST_ESS * m)
        proposal, own = proposal_of(T, weights, start.discrete, rng)
    return found


def proposal_of(
    points: Floats, weights: Floats, discrete: Floats, rng: np.random.Generator
) -> tuple[Smoothed, Floats]:
    """Smoothed sample of some of the points, drawn by weight, and which they are."""
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


def _of_others(smooth: Smoothed, logs: Floats) -> Floats:
    """Log densities (n,) at the points of a smoothed sample, of the others only."""
    if not len(logs):
        return logs
    own = np.exp(np.minimum(smooth.log_own() - logs, 0.0))
    others = 1.0 - np.minimum(smooth.weights, 1.0 - ROUNDING)
    return np.asarray(logs + np.log(np.maximum(1.0 - own, ROUNDING) / others))


def tempered(logs: Floats, least_ess: float) -> Floats:
    """Weights exp(b logs), summing to one; b = 1, or smaller until enough of them count."""
    b = 1.0
    while True:
        weights = np.exp(b * (logs - logs.max()))
        weights /= weights.sum()
        if 1.0 / float(weights @ weights) >= least_ess or b < 1e-6:
            return np.asarray(weights)
        b *= 0.7
