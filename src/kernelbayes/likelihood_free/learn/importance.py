r"""Posteriors of a learned likelihood and a prior, by importance sampling.

Draws of all rounds are kept, weighted by the target over the mixture of all proposals (Cornuet et
al. 2012, adaptive multiple importance sampling). A proposal is a smoothed sample of earlier draws.
Its density at such a draw leaves out the kernel centred there; including it would make weights too
small in sparse regions, and posteriors too narrow.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
from scipy.special import logsumexp, softmax

from kernelbayes.embedding.smooth import WEIGHT_ROUNDING, Sample, Smoothed, best_smoothing, heaviest
from kernelbayes.likelihood_free.learn.adjust import Inverse
from kernelbayes.likelihood_free.learn.likelihood import Forward, varying
from kernelbayes.likelihood_free.learn.nearby import (
    Density,
    LogDensity,
    Mean,
    Nearby,
    Quadratic,
    proposal_of,
)
from kernelbayes.likelihood_free.learn.task import Found, Near, Observed, Task, Variant
from kernelbayes.types import Floats, Ints

NEAR = "near data"  # summary of likelihoods that are learned for each observation
# Constants without another reason were chosen on the development seeds of experiments/sbi_tasks.
TEMPERED_ESS = 0.1  # proposals adapt to weights tempered until this share of them is effective
FROM_PRIOR = 0.1  # share of proposals from the prior: bounds weights by 10 likelihood / evidence
ENOUGH_ESS = 800.0  # effective draws: moments are known to 1 / sqrt(800), 4 % of a deviation
# Draws of each round and rounds of importance sampling: for a posterior, and while choosing.
DRAWS, ROUNDS, QUICK_DRAWS, QUICK_ROUNDS = 800, 5, 400, 2
# If fewer effective draws of a prior without a density are left, so many of them are smoothed.
ENOUGH_PRIOR, SMOOTHED_DRAWS = 100.0, 2000
TIED = 1e-5  # logs of densities closer than this are equal but for the rounding of singles


@dataclass(frozen=True, eq=False)
class Likelihood:
    """A learned likelihood with a prior: posteriors by importance sampling."""

    task: Task
    inverse: Inverse
    variant: Variant
    forward: Forward | Nearby
    prior_draws: Floats

    @classmethod
    def fit(
        cls,
        task: Task,
        inverse: Inverse,
        variant: Variant,
        rng: np.random.Generator,
        like: Forward | Nearby | None = None,
    ) -> Likelihood:
        """Learn the likelihood of the data, of their rows or of predicted means ("mean").

        That of "near data" is learned for each observation.
        """
        drawn = task.draw_prior(rng)
        if variant.summary == NEAR:
            columns = varying(task.X) if like is None else like.columns
            S = task.X[:, columns]
            mean = Mean.fit(task.P, S, rng, None if like is None else like.mean)
            return cls(task, inverse, variant, Nearby(task.P, S, mean, columns), drawn)
        S = task.X if task.rows is None else task.rows
        if variant.summary == "mean":
            S = inverse.moments.left_out[:, : task.P.shape[1]]
        before = like if isinstance(like, Forward) else None
        return cls(task, inverse, variant, Forward.fit(task.P, S, rng, before), drawn)

    def posterior(self, data: Observed, rng: np.random.Generator, quick: bool = False) -> Found:
        """Points (k, d), weights (k,) and the density or a smoothing, given each of the data."""
        for log_likelihood, found in self._drawn(data, rng, quick):
            if isinstance(found, Weighted):
                forward, s = log_likelihood.args
                total, joint = float(found.log_evidence()[0]), found.likelihoods + found.priors
                both, weights = heaviest(np.column_stack([found.points, joint]), found.weights)
                density = Density(self, forward, s, total, both[:, -1] - total)
                yield both[:, :-1], weights, density
            else:
                yield *found, self.variant.smoothing

    def scores(
        self, data: Observed, truths: Floats, rng: np.random.Generator, tempers: Floats
    ) -> tuple[Floats, Floats]:
        """Log posterior densities (m, T) at the true parameters (m, d), and ranks (m, T).

        Those of T powers of the likelihood. The truth is counted among the draws that estimate the
        evidence, so that proposals that missed it make the score small. A rank is the probability
        that the posterior density is higher than there, or that the likelihood is, if the prior has
        no density (Modrak et al. 2023). Such a prior has ranks only.
        """
        logs, ranks = [], []
        every = self._drawn(data, rng, True)
        for truth, (log_likelihood, drawn) in zip(truths, every, strict=True):
            there = log_likelihood(truth[None])
            if isinstance(drawn, Weighted):
                weights, likely = drawn.logs, drawn.likelihoods
            else:  # draws of the prior
                weights = likely = log_likelihood(drawn[0])
            above = tempers[:, None] * (likely - there)
            if isinstance(drawn, Weighted) and self.task.has_density:
                prior = self.task.log_prior(truth[None])
                here = prior + tempers * there
                weight = here - drawn.proposals.log_counts(truth[None], prior)
                logs.append(here - drawn.log_evidence(tempers, weight))
                above += drawn.priors - prior
            shares = softmax(weights + (tempers[:, None] - 1.0) * likely, axis=1)
            higher = np.where(np.abs(above) < TIED, 0.5, above > 0)  # ties count half
            ranks.append(np.einsum("ij,ij->i", shares, higher))
        return np.array(logs).reshape(-1, len(tempers)), np.array(ranks)

    def _drawn(
        self, data: Observed, rng: np.random.Generator, quick: bool
    ) -> Iterator[tuple[partial[Floats], Weighted | Sample]]:
        """Log likelihood given each of the data, and weighted draws of the posterior."""
        observed = data.X if data.rows is None or self.variant.summary == NEAR else data.rows
        if self.variant.summary == "mean":
            observed = self.inverse.means(data.X)
        starts = self.inverse.posterior(data.X, self.variant.recipe)
        for s, start in zip(observed, starts, strict=True):
            if not isinstance(self.forward, Nearby):
                yield self._asked(self.forward, s, start, rng, quick)
                continue
            _, found = self._asked(self.forward.around(*start), s, start, rng, quick=True)
            first = (found.points, found.weights) if isinstance(found, Weighted) else found
            yield self._asked(self.forward.around(*first), s, first, rng, quick)

    def _asked(
        self,
        forward: Forward | Quadratic,
        s: Floats,
        start: Sample,
        rng: np.random.Generator,
        quick: bool,
    ) -> tuple[partial[Floats], Weighted | Sample]:
        """Log likelihood of an observation, and weighted draws by proposals from a first sample."""
        log_likelihood = partial(self._log_likelihood, forward, s)
        if not self.task.has_density:  # the prior's draws are the proposal
            drawn = self.prior_draws[: 2 * QUICK_DRAWS if quick else None]
            weights = tempered(log_likelihood(drawn), 0.0)
            shares = np.bincount(self._copies[: len(drawn)], weights)
            if 1.0 / float(shares @ shares) >= ENOUGH_PRIOR or not self.task.continuous:
                return log_likelihood, (drawn, weights)
        proposal = proposal_of(*start, self.task.discrete, rng)[0]
        how = (QUICK_DRAWS, QUICK_ROUNDS) if quick else (DRAWS, ROUNDS)
        return log_likelihood, importance_sample(
            log_likelihood, self._log_prior, self.prior_draws, proposal, *how, rng
        )

    def _log_likelihood(self, forward: Forward | Quadratic, s: Floats, P: Floats) -> Floats:
        return self.variant.temper * forward.log_likelihood(P, s)

    def log_joint(self, forward: Forward | Quadratic, s: Floats, P: Floats) -> Floats:
        """Log likelihood of an observation plus log prior (n,) at coordinates (n, d)."""
        return self._log_likelihood(forward, s, P) + self._log_prior(P)

    def _log_prior(self, P: Floats) -> Floats:
        """Log density (n,) of the prior; if it has none, that of its draws, smoothed."""
        if self.task.has_density:
            return self.task.log_prior(P)
        return np.where(self.task.in_support(P), self._prior_density.log_density(P), -np.inf)

    @cached_property
    def _prior_density(self) -> Smoothed:
        """The prior's draws, smoothed."""
        # Draws with replacement have copies; unless merged, they would make no smoothing look best.
        copies = self._copies[:SMOOTHED_DRAWS]
        _, first, times = np.unique(copies, return_index=True, return_counts=True)
        points, weights = self.prior_draws[first], times / len(copies)
        how = best_smoothing(points, weights, np.random.default_rng(0))
        return Smoothed.by(points, weights, how, self.task.discrete)

    @cached_property
    def _copies(self) -> Ints:
        """Numbers (n,) of the prior's draws in order of appearance; copies have the same."""
        numbers = np.unique(self.prior_draws, axis=0, return_index=True, return_inverse=True)
        return np.asarray(np.argsort(np.argsort(numbers[1]))[numbers[2].ravel()])


Learner = Near | Likelihood


@dataclass(frozen=True, eq=False)
class Proposals:
    """Mixture that draws came from: m of each smoothed sample, and some of the prior."""

    parts: tuple[tuple[Smoothed, int], ...] = ()
    from_prior: int = 0

    def log_counts(self, T: Floats, log_prior: Floats) -> Floats:
        """Log of draws per volume (k,) at T (k, d), where the prior has these log densities."""
        found = np.log(self.from_prior) + log_prior
        for smooth, m in self.parts:
            found = np.logaddexp(found, np.log(m) + smooth.log_density(T))
        return np.asarray(found)


@dataclass(frozen=True, eq=False)
class Weighted:
    """Draws (k, d) of proposals, logs (k,) of importance weights, likelihoods and priors."""

    points: Floats
    logs: Floats
    likelihoods: Floats
    priors: Floats
    proposals: Proposals

    @property
    def weights(self) -> Floats:
        """Weights that sum to one."""
        return tempered(self.logs, 0.0)

    def log_evidence(
        self, tempers: Floats | None = None, log_weights: Floats | None = None
    ) -> Floats:
        """Log integrals (T,) of the target, or those of powers of the likelihood.

        By the draws and, if given, one more point of these log weights (T,).
        """
        powers = np.zeros((1, 1)) if tempers is None else tempers[:, None] - 1.0
        total = logsumexp(self.logs + powers * self.likelihoods, axis=1)
        if log_weights is None:
            return np.asarray(total)
        drawn = self.proposals.from_prior + sum(m for _, m in self.proposals.parts)
        return np.asarray(np.logaddexp(total, log_weights) + np.log(drawn / (drawn + 1)))


def importance_sample(
    log_likelihood: LogDensity,
    log_prior: LogDensity,
    prior_draws: Floats,
    start: Smoothed,
    m: int,
    rounds: int,
    rng: np.random.Generator,
) -> Weighted:
    """Weighted sample of likelihood times prior, by proposals that improve, the first ``start``.

    At most so many rounds of m draws, some of them ``prior_draws``. The logs map (k, d) to (k,).
    """
    few = max(int(FROM_PRIOR * m), 1)
    d = start.points.shape[1]
    T, likely, prior, counts = np.empty((0, d)), np.empty(0), np.empty(0), np.empty(0)
    proposals, proposal, own = Proposals(), start, np.empty(0, dtype=int)
    for left in reversed(range(rounds)):
        wide = prior_draws[rng.integers(len(prior_draws), size=few)]
        new = np.vstack([proposal.draw(m - few, rng), wide])
        there = log_prior(new)
        new, there = new[np.isfinite(there)], there[np.isfinite(there)]
        more = (*proposals.parts, (proposal, m - few))
        proposals = Proposals(more, proposals.from_prior + few)
        close = proposal.log_density(T)
        close[own] = _of_others(proposal, close[own])
        fresh = np.logaddexp(np.log(m - few) + close, np.log(few) + prior)
        counts = np.append(np.logaddexp(counts, fresh), proposals.log_counts(new, there))
        T, prior = np.vstack([T, new]), np.append(prior, there)
        likely = np.append(likely, log_likelihood(new))
        found = Weighted(T, prior + likely - counts, likely, prior, proposals)
        if left == 0 or np.sum(found.weights**2) <= 1.0 / ENOUGH_ESS:
            break
        weights = tempered(found.logs, TEMPERED_ESS * m)
        proposal, own = proposal_of(T, weights, start.discrete, rng)
    return found


def _of_others(smooth: Smoothed, logs: Floats) -> Floats:
    """Log densities (n,) at the points of a smoothed sample, of the others only."""
    if not len(logs):
        return logs
    own = np.exp(np.minimum(smooth.log_own() - logs, 0.0))
    others = 1.0 - np.minimum(smooth.weights, 1.0 - WEIGHT_ROUNDING)
    return np.asarray(logs + np.log(np.maximum(1.0 - own, WEIGHT_ROUNDING) / others))


def tempered(logs: Floats, least_ess: float) -> Floats:
    """Weights exp(b logs), summing to one; b = 1, or smaller until enough are effective."""
    b = 1.0
    while True:
        weights = np.exp(b * (logs - logs.max()))
        weights /= weights.sum()
        if 1.0 / float(weights @ weights) >= least_ess or b < 1e-6:
            return np.asarray(weights)
        b *= 0.7
