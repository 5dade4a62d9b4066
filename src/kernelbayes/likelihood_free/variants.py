"""Variants of likelihood-free inference: what each needs to learn, and its posterior."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from kernelbayes.embedding import embed
from kernelbayes.embedding.smooth import Sample, Smoothed, Smoothing, best_smoothing, heaviest
from kernelbayes.estimators import KernelBayesRule
from kernelbayes.kernels import Gaussian
from kernelbayes.likelihood_free.forward import Forward
from kernelbayes.likelihood_free.inverse import Inverse, Recipe
from kernelbayes.likelihood_free.priors import Prior
from kernelbayes.likelihood_free.sampling import (
    LogDensity,
    Weighted,
    importance_sample,
    proposal_of,
    tempered,
)
from kernelbayes.likelihood_free.transform import Space
from kernelbayes.rules import BayesMethod
from kernelbayes.rules.estimator import ConditionalEmbedding

Floats = np.ndarray[Any, Any]
METHODS = ("auto", "cme", "kbr", "importance", "adjusted", "likelihood")
RULES = ("cme", "kbr", "importance")
# Draws and rounds of importance sampling: for a posterior, and while choosing.
DRAWS, ROUNDS = 500, 8
QUICK_DRAWS, QUICK_ROUNDS = 500, 2
PRIOR_DRAWS = 5000
# If fewer draws of a prior without a density count, so many of them are smoothed to have one.
ENOUGH_PRIOR, SMOOTHED_DRAWS = 100.0, 2000
# Adjusted points outside of the prior's support are dropped, unless fewer than this share is left.
LEAST_INSIDE = 0.05
# Rules use low-rank factors above this many simulations.
DENSE, RANK = 2000, 500


@dataclass(frozen=True)
class Variant:
    """One way from an observation to a posterior."""

    kind: str
    recipe: Recipe
    summary: str = ""
    bandwidth: float = 1.0
    smoothing: Smoothing | None = None

    def __str__(self) -> str:
        if self.kind == "likelihood":
            return f"likelihood of the {self.summary}"
        if self.kind in RULES:
            adjust = "" if self.recipe.adjust == "none" else f", {self.recipe.adjust} adjusted"
            return f"{self.kind}, bandwidth {self.bandwidth:g} median distances{adjust}"
        return str(self.recipe)


@dataclass(frozen=True, eq=False)
class Learner:
    """Simulations in coordinates, and what was learned from them for a variant."""

    P: Floats
    X: Floats
    rows: Floats | None
    weights: Floats | None
    prior: Prior | None
    space: Space
    inverse: Inverse | None = None
    forward: Forward | None = None
    rule: Any = None
    prior_draws: Floats | None = field(default=None)

    @property
    def metric(self) -> Floats:
        """Coordinates of the data in which distances matter."""
        assert self.inverse is not None
        return self.inverse.moments.metric

    @property
    def discrete(self) -> Floats:
        """Which parameters take separate values."""
        d = self.P.shape[1]
        return np.zeros(d, dtype=bool) if self.prior is None else self.prior.discrete

    def subset(self, rows: Floats) -> Learner:
        """Learner of some of the simulations."""
        weights = None if self.weights is None else self.weights[rows] / self.weights[rows].sum()
        few = None if self.rows is None else self.rows[rows]
        return replace(self, P=self.P[rows], X=self.X[rows], rows=few, weights=weights)

    def fitted(
        self, variant: Variant, rng: np.random.Generator, like: Learner | None = None
    ) -> Learner:
        """Learn what the variant needs.

        What ``like`` has chosen, from some of the simulations, is not chosen again.
        """
        chosen = (None, None) if like is None else (like.inverse, like.forward)
        data = self.P, self.X, rng, self.weights, self.discrete
        learner = replace(self, inverse=self.inverse or Inverse.fit(*data, chosen[0]))
        if variant.kind == "likelihood":
            drawn = learner._draw_prior(rng)
            forward = Forward.fit(self.P, learner._summaries(variant.summary), rng, chosen[1])
            return replace(learner, forward=forward, prior_draws=drawn)
        if variant.kind in RULES:
            return replace(learner, rule=learner._fit_rule(variant, rng))
        return learner

    def posterior(
        self,
        variant: Variant,
        X: Floats,
        rows: Floats | None,
        rng: np.random.Generator,
        quick: bool = False,
    ) -> Iterator[tuple[Floats, Floats, Smoothing | None]]:
        """Points (k, d), weights (k,) and smoothing given each of the data X (m, q).

        ``rows`` (m, k, p) are the data sets' iid rows, if they have any.
        """
        if variant.kind == "likelihood":
            for found in self._by_likelihood(variant, X, rows, rng, quick):
                if isinstance(found, Weighted):
                    sample = heaviest(found.points, found.weights)
                    yield *sample, best_smoothing(*sample, rng)
                else:
                    yield *found, variant.smoothing
            return
        for points, weights in self.sample(variant, X):
            yield points, weights, variant.smoothing

    def sample(self, variant: Variant, X: Floats) -> Iterator[Sample]:
        """Points (k, d) and weights (k,) by weights and adjustment, given each of X (m, q)."""
        assert self.inverse is not None
        if variant.kind in RULES:
            W = np.atleast_2d(self.rule(X @ self.metric).weights)
            every = np.arange(len(self.P))
            for moved, w in zip(self.inverse.moved(X, variant.recipe), W, strict=True):
                yield self._inside(moved(every), w)
        else:
            for points, w in self.inverse.posterior(X, variant.recipe):
                yield self._inside(points, w)

    def _inside(self, points: Floats, weights: Floats) -> Sample:
        """Points within the prior's support; if hardly any are, all of them, moved to its edge."""
        low, high = self.support
        inside = self._in_support(points)
        if self._has_shape:
            inside &= np.isfinite(self.log_prior(points))
        total = np.sum(np.abs(weights))
        if np.all(inside) or np.sum(np.abs(weights[inside])) < LEAST_INSIDE * total:
            return np.clip(points, low, high), weights
        kept = weights[inside]
        mass = kept.sum()
        return points[inside], kept * (weights.sum() / mass if mass > 0 else 1.0)

    def _in_support(self, points: Floats) -> Floats:
        low, high = self.support
        return np.asarray(np.all((points >= low) & (points <= high), axis=1))

    @cached_property
    def _has_shape(self) -> bool:
        """Whether the support may be other than a box: only a joint density tells."""
        joint = self.prior is not None and not self.prior.has_marginals
        return joint and self.has_density

    @cached_property
    def support(self) -> tuple[Floats, Floats]:
        """Ends of the prior's support in coordinates, where moving or smoothing may leave it."""
        d = self.P.shape[1]
        low, high = np.full(d, -np.inf), np.full(d, np.inf)
        if self.prior is None:
            return low, high
        somewhere = self.space.parameters(np.zeros((1, d)))[0]
        on_simplex = np.isin(np.arange(d), [j for c in self.prior.simplices for j in c])
        for end, ends, beyond in (
            (self.prior.low, low, self.space.low),
            (self.prior.high, high, self.space.high),
        ):
            matters = np.isfinite(end) & (end != beyond) & ~on_simplex
            at = self.space.coordinates(np.where(matters, end, somewhere)[None])[0]
            ends[matters] = at[matters]
        return low, high

    def _summaries(self, summary: str) -> Floats:
        assert self.inverse is not None
        if summary == "mean":
            return self.inverse.moments.left_out[:, : self.P.shape[1]]
        return self.X if self.rows is None else self.rows

    def _draw_prior(self, rng: np.random.Generator) -> Floats:
        if self.prior is not None:
            return self.space.coordinates(self.prior.sample(PRIOR_DRAWS, rng))
        if self.weights is None:
            return self.P
        return self.P[rng.choice(len(self.P), size=PRIOR_DRAWS, p=self.weights)]

    def _by_likelihood(
        self,
        variant: Variant,
        X: Floats,
        rows: Floats | None,
        rng: np.random.Generator,
        quick: bool = False,
    ) -> Iterator[Weighted | Sample]:
        """Weighted draws given each of the data, of improved proposals or of the prior."""
        assert self.inverse is not None
        assert self.prior_draws is not None
        for start, log_likelihood in zip(
            self.inverse.posterior(X, variant.recipe),
            self.log_likelihoods(variant, X, rows),
            strict=True,
        ):
            log_prior: LogDensity = self.log_prior
            if not self.has_density:  # to correct a proposal by: the prior's draws are the proposal
                drawn = self.prior_draws[: 2 * QUICK_DRAWS if quick else None]
                weights = tempered(log_likelihood(drawn), 0.0)
                shares = np.bincount(self._copies[: len(drawn)], weights)
                if 1.0 / float(shares @ shares) >= ENOUGH_PRIOR or not self._smooth_prior:
                    yield drawn, weights
                    continue
                log_prior = self._log_smoothed_prior
            yield importance_sample(
                log_likelihood,
                log_prior,
                self.prior_draws,
                proposal_of(*start, self.discrete, rng)[0],
                QUICK_DRAWS if quick else DRAWS,
                QUICK_ROUNDS if quick else ROUNDS,
                rng,
            )

    def likelihood_scores(
        self,
        variant: Variant,
        X: Floats,
        rows: Floats | None,
        truths: Floats,
        rng: np.random.Generator,
    ) -> Floats:
        """Log posterior densities (m,) at the true parameters (m, d) of the data X (m, q).

        The truth itself is counted among the draws that estimate the evidence. If the proposals
        missed it, its weight is large and the score small, as it should be.
        """
        found = []
        log_likelihoods = self.log_likelihoods(variant, X, rows)
        drawn = self._by_likelihood(variant, X, rows, rng, quick=True)
        for truth, log_likelihood, sample in zip(truths, log_likelihoods, drawn, strict=True):
            assert isinstance(sample, Weighted)
            prior = self.log_prior(truth[None])
            here = prior + log_likelihood(truth[None])
            weight = here - sample.proposals.log_counts(truth[None], prior)
            found.append(float(here[0]) - sample.log_evidence(float(weight[0])))
        return np.array(found)

    def log_likelihoods(
        self, variant: Variant, X: Floats, rows: Floats | None
    ) -> Iterator[LogDensity]:
        """Log likelihoods as functions of coordinates, one for each of the data X (m, q)."""
        assert self.inverse is not None
        assert self.forward is not None
        observed = X if rows is None else rows
        if variant.summary == "mean":
            observed = self.inverse.moments(X)[:, : self.P.shape[1]]
        for s in observed:
            yield partial(self.forward.log_likelihood, s=s)

    @property
    def has_density(self) -> bool:
        """Whether the prior has a density that proposals can be corrected by."""
        return self.prior is not None and self.prior.has_density and self._smooth_prior

    @property
    def _smooth_prior(self) -> bool:
        """Whether a density of the prior can be had by smoothing its draws."""
        return self.prior is None or not (self.prior.simplices or np.any(self.prior.discrete))

    @cached_property
    def prior_density(self) -> Smoothed:
        """The prior's draws, smoothed."""
        assert self.prior_draws is not None
        # Draws with replacement have copies, under which each other would be likeliest unsmoothed.
        copies = self._copies[:SMOOTHED_DRAWS]
        _, first, times = np.unique(copies, return_index=True, return_counts=True)
        points, weights = self.prior_draws[first], times / len(copies)
        how = best_smoothing(points, weights, np.random.default_rng(0))
        return Smoothed.by(points, weights, how, self.discrete)

    @cached_property
    def _copies(self) -> Floats:
        """Numbers (n,) of the prior's draws in order of appearance; copies have the same."""
        assert self.prior_draws is not None
        _, first, number = np.unique(
            self.prior_draws, axis=0, return_index=True, return_inverse=True
        )
        return np.argsort(np.argsort(first))[number.ravel()]

    def _log_smoothed_prior(self, P: Floats) -> Floats:
        """Log density (n,) of the smoothed prior within its support."""
        return np.where(self._in_support(P), self.prior_density.log_density(P), -np.inf)

    def log_prior(self, P: Floats) -> Floats:
        """Log density (n,) of the prior at coordinates (n, d)."""
        assert self.prior is not None
        theta = self.space.parameters(P)
        logs = self.prior.log_density(theta)
        return np.where(np.isfinite(logs), logs - self.space.log_volume(theta), -np.inf)

    def _fit_rule(self, variant: Variant, rng: np.random.Generator) -> Any:
        """Fit a rule: a function from data (m, q) to embeddings with weights (m, n)."""
        U = self.X @ self.metric
        kernel_x, kernel_z = Gaussian.median(U, variant.bandwidth), Gaussian.median(self.P)
        if variant.kind == "cme" and self.weights is None and len(U) <= DENSE:
            return ConditionalEmbedding(kernel_x, kernel_z).fit(U, self.P)
        method: BayesMethod = "original" if variant.kind == "kbr" else "importance"
        rank = RANK if len(U) > DENSE else None
        prior = None if self.weights is None else embed(self.P, kernel_z, self.weights)
        seed = int(rng.integers(2**31))
        rule = KernelBayesRule(kernel_x, kernel_z, method=method, rank=rank, rng=seed)
        return rule.fit(U, self.P, prior=prior).posterior
