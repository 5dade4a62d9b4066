"""Simulations whose parameters were not drawn from the prior they are used with.

Either they have weights, prior over proposal; or the prior is restricted to a :class:`Region` (a
truncated proposal, Deistler et al. 2022). There the weights of all draws are equal: given that a
draw of the prior lies in the region, it is one of the restricted prior, whatever the round.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from kernelbayes.arrays import as_real, to_numpy, warn
from kernelbayes.kernels import Gaussian
from kernelbayes.likelihood_free.distributions import Component, from_draws
from kernelbayes.likelihood_free.learn.adjust import Space
from kernelbayes.likelihood_free.posterior import Posterior
from kernelbayes.likelihood_free.prior import Prior
from kernelbayes.likelihood_free.simulate import Simulations
from kernelbayes.points import order_of
from kernelbayes.rules.ratio import density_ratio
from kernelbayes.types import Bools, Floats, Names, PointsLike

# A fifth of the simulations is held out, at least five, and the rest must support a regression.
FEWEST_SIMULATIONS = 20
RATIO_DRAWS = 2000  # draws of a prior without a density, at least: as many as KuLSIF solves densely
BANDWIDTH = 0.5  # of the density ratio, in median distances, for parameters of unit variance
# A region holds all but this share of a posterior, seen on so many draws of it: the lowest one.
OUTSIDE, REGION_DRAWS = 1e-3, 1000
# Draws of the prior that say which share of it lies in a region, and the least share of a region:
# 50 of the draws, so that it is known to 14 %. Draws made at once to find some in the region: their
# densities at a thousand points take no more than some hundred megabytes.
SHARE_DRAWS, LEAST_REGION, MOST_TRIED = 5000, 0.01, 20_000
# Ranges by which the box around its draws is wider: of 50 draws one in 50 lies beyond on each side.
WIDER_BOX = 0.1
# A round pays if it at least doubles the simulations in the region, and few are there now: with 120
# of them a deviation was a third too large, with 5 to 32 it was 13 to 19 %, on average of two runs
# (benchmarks/bench_rounds.py, one parameter). 200 is a judgement, beyond those.
WORTH_SHARE, FEW_INSIDE = 0.5, 200.0


@dataclass(frozen=True, eq=False)
class Region:
    """Where a posterior may be: parameters at which its log density is at least ``least``.

    They lie between ``low`` and ``high`` (d,), and in the region ``before``. ``share`` is the part
    of that region, or of the prior, that they make up.
    """

    posterior: Posterior
    prior: Prior
    before: Region | None
    low: Floats
    high: Floats
    least: float
    share: float

    @classmethod
    def of(
        cls,
        posterior: Posterior,
        prior: Prior,
        rng: np.random.Generator,
        before: Region | None = None,
    ) -> Region:
        """Region that holds nearly all of a posterior, and enough of the region before."""
        own = to_numpy(posterior.log_density(posterior.sample(REGION_DRAWS, rng=rng)))
        drawn = (before.draw if before else prior.sample)(SHARE_DRAWS, rng)
        logs = to_numpy(posterior.log_density(drawn))
        ends = (own, OUTSIDE), (logs, 1.0 - LEAST_REGION)
        least = min(np.quantile(*end, method="lower") for end in ends)  # logs may be -inf
        there = drawn[logs >= least]
        beyond = WIDER_BOX * np.ptp(there, axis=0)
        box = there.min(axis=0) - beyond, there.max(axis=0) + beyond
        return cls(posterior, prior, before, *box, float(least), len(there) / len(drawn))

    def inside(self, theta: Floats) -> Bools:
        """Which parameters (n, d) lie in the region."""
        inside = np.all((theta >= self.low) & (theta <= self.high), axis=1)
        if np.any(inside):
            inside[inside] = to_numpy(self.posterior.log_density(theta[inside])) >= self.least
        if self.before is not None and np.any(inside):
            inside[inside] = self.before.inside(theta[inside])
        return np.asarray(inside)

    def pays(self, n: int) -> bool:
        """Whether simulating in the region helps: few of n simulations lie there."""
        return self.share < WORTH_SHARE and self.share * n < FEW_INSIDE

    def draw(self, n: int, rng: np.random.Generator) -> Floats:
        """Draw n parameters (n, d) of the prior that lie in the region."""
        kept, found, tried = list[Floats](), 0, 2 * n
        while found < n:
            drawn = self._in_box(tried, rng)
            kept.append(drawn[self.inside(drawn)])
            found += len(kept[-1])
            tried = min(2 * tried, MOST_TRIED)
        return np.concatenate(kept)[:n]

    def _in_box(self, n: int, rng: np.random.Generator) -> Floats:
        """Draws of the prior, in the box if they can be made there."""
        if not self.prior.has_marginals:
            return self.prior.sample(n, rng)
        # A discrete column jumps at its ends.
        low, high = self.prior.cdf(np.stack([self.low - self.prior.discrete, self.high]))
        return self.prior.ppf(rng.uniform(low, high, size=(n, self.prior.dim)))

    def log_density(self, theta: Floats) -> Floats:
        """Log density (n,) of the prior given the region, -inf outside of it."""
        log_share = 0.0
        region: Region | None = self
        while region is not None:
            log_share, region = log_share + np.log(region.share), region.before
        return np.where(self.inside(theta), self.prior.log_density(theta) - log_share, -np.inf)

    def restricted(self) -> Prior:
        """Prior given that parameters lie in the region."""
        known = self.log_density if self.prior.has_density else None
        ends = self.prior.low, self.prior.high, self.prior.discrete
        return Prior((Component(*ends, self.draw, known),), self.prior.names)


def advice(posterior: Posterior) -> str | None:
    """Say what would make a posterior of one round better, or None."""
    prior, report = posterior.prior, posterior.diagnostics
    n = getattr(report, "n_simulations", 0)
    if prior is None or prior.simplices or not n or report.settled or report.rounds > 1:
        return None
    region = Region.of(posterior, prior, np.random.default_rng(0))
    if not region.pays(n):
        return None
    return (
        f"only about {region.share * n:.0f} of {n} simulations lie where the posterior may be: it "
        "is likely too wide; infer(..., rounds='auto') simulates there"
    )


def prior_in_order(prior: Prior, names: Names) -> Prior:
    """Prior whose parameters have names, in the order of the model's."""
    order = order_of(prior.names, names, "this prior")
    if order is None:
        return prior
    if prior.draws is not None:
        draws = prior.draws[:, order]
        part = replace(from_draws(draws), low=prior.low[order], high=prior.high[order])
        return Prior((part,), names, draws)
    if prior.dim > len(prior.components):
        raise ValueError(
            f"a distribution of several parameters cannot be taken apart: give this prior in the "
            f"order {list(names or ())}, not {list(prior.names or ())}"
        )
    return Prior(tuple(prior.components[j] for j in order), names)


def prior_weights(
    theta: Floats, weights: Floats | None, old: Prior | None, new: Prior, space: Space
) -> Floats:
    """Weights (n,) of simulations at theta (n, d) under a new prior, summing to one.

    ``weights`` are those under the old prior, or None if theta was drawn from it.
    """
    if old is not None and old.has_density and new.has_density:
        logs, before = new.log_density(theta), old.log_density(theta)
        logs = np.where(np.isfinite(before), logs - before, -np.inf)
        top = logs.max()
        ratio = np.exp(logs - top) if np.isfinite(top) else np.zeros(len(logs))
    else:
        drawn, at = new.sample(max(len(theta), RATIO_DRAWS), 0), space.coordinates(theta)
        kernel = Gaussian.median(at, scale=BANDWIDTH)
        estimate = density_ratio(space.coordinates(drawn), at, kernel).at_denominator
        ratio = np.maximum(estimate, 0.0)
    found = ratio / len(ratio) if weights is None else weights * ratio
    ess = float(found.sum() ** 2 / max(float(found @ found), np.finfo(float).tiny))
    if ess < FEWEST_SIMULATIONS:
        warn(
            f"only {ess:.0f} simulations count under this prior: it lies where there are few; "
            "simulate from it, or from a wider one"
        )
    if np.sum(found > 0) < FEWEST_SIMULATIONS:
        raise ValueError(
            f"only {np.sum(found > 0)} simulations lie in the support of this prior; simulate from "
            "it, or from a wider one"
        )
    return np.asarray(found / found.sum())


def normalised(weights: PointsLike, runs: Simulations) -> Floats:
    """Weights of the simulations that worked, summing to one."""
    w = np.asarray(to_numpy(as_real(weights, "weights")), dtype=float)
    if w.shape != runs.ok.shape or not np.all(w >= 0) or not np.all(np.isfinite(w)):
        raise ValueError(f"weights must be {runs.done} finite numbers, zero or larger")
    w = w[runs.ok]
    nothing = np.sum(w == 0)
    if len(w) - nothing < FEWEST_SIMULATIONS:
        raise ValueError(
            f"{nothing} of {len(w)} simulations have weight zero; at least {FEWEST_SIMULATIONS} "
            "must count"
        )
    return np.asarray(w / w.sum())
