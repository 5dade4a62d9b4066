"""Weights of simulations whose parameters were not drawn from the prior they are used with."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace

import numpy as np

from kernelbayes.arrays import Floats, NumericalWarning
from kernelbayes.kernels import Gaussian
from kernelbayes.likelihood_free.distributions import from_draws
from kernelbayes.likelihood_free.learn.adjust import Space
from kernelbayes.likelihood_free.posterior import Posterior
from kernelbayes.likelihood_free.prior import Prior
from kernelbayes.points import Names, order_of
from kernelbayes.rules.ratio import density_ratio

# A fifth of the simulations is held out, at least five, and the rest must support a regression.
FEWEST_SIMULATIONS = 20
RATIO_DRAWS = 2000  # draws of a prior without a density, at least: as many as KuLSIF solves densely
BANDWIDTH = 0.5  # of the density ratio, in median distances, for parameters of unit variance

# A posterior may be where its density is above that of all but this share of it, seen on so many
# draws; so many draws of the prior tell their share there, to 14 % if it is 1 %.
OUTSIDE, REGION_DRAWS, SHARE_DRAWS = 1e-3, 1000, 5000
# A round pays if it can at least double the simulations there, and few are there now: with 120 to
# 152 of them deviations were 12 to 34 % too large, with 5 to 32 by 0 to 19 % (normal priors 3 to
# 100 times as wide as the noise of a bent simulator, two runs each). 200 is a judgement beyond.
WORTH_SHARE, FEW_INSIDE = 0.5, 200.0


def near_posterior(posterior: Posterior, prior: Prior, rng: np.random.Generator) -> float:
    """Share of the prior that lies where a posterior may be."""
    own = posterior.log_density(posterior.sample(REGION_DRAWS, rng=rng))
    there = posterior.log_density(prior.sample(SHARE_DRAWS, rng))
    return float(np.mean(there >= np.quantile(own, OUTSIDE, method="lower")))


def pays(share: float, n: int) -> bool:
    """Whether another round helps, if that share of n simulations is where the posterior may be."""
    return share < WORTH_SHARE and share * n < FEW_INSIDE


def advice(posterior: Posterior) -> str | None:
    """Say what would make a posterior of one round better, or None."""
    prior, report = posterior.prior, posterior.diagnostics
    n = getattr(report, "n_simulations", 0)
    if prior is None or prior.simplices or not n or report.rounds > 1:
        return None
    share = near_posterior(posterior, prior, np.random.default_rng(0))
    few = f"only about {share * n:.0f} of {n} simulations lie where the posterior may be"
    more = "it is likely too wide; infer(..., rounds=3) simulates there"
    return f"{few}: {more}" if pays(share, n) else None


@dataclass(frozen=True, eq=False)
class Round:
    """Simulations of one round: how many, the share drawn from the prior, and the proposal."""

    done: int
    from_prior: float
    proposal: Posterior


def round_weights(theta: Floats, prior: Prior, rounds: list[Round]) -> Floats:
    """Prior over the mixture of all proposals, at parameters (n, d) of all rounds."""
    if not prior.has_density:
        spread = np.where(theta.std(axis=0) > 0, theta.std(axis=0), 1.0)
        return _estimated(prior.sample(max(RATIO_DRAWS, len(theta)), 0) / spread, theta / spread)
    log_prior = prior.log_density(theta)
    counts = np.array([r.done for r in rounds], dtype=float)
    terms = []
    for r in rounds:
        wide = np.log(r.from_prior) + log_prior if r.from_prior else -np.inf
        if r.from_prior < 1.0:
            wide = np.logaddexp(np.log1p(-r.from_prior) + r.proposal.log_density(theta), wide)
        terms.append(wide)
    mixed = np.logaddexp.reduce(np.stack(terms) + np.log(counts / counts.sum())[:, None], axis=0)
    logs = log_prior - mixed
    return np.asarray(np.exp(logs - logs.max()))


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
        drawn = new.sample(max(len(theta), RATIO_DRAWS), 0)
        ratio = _estimated(space.coordinates(drawn), space.coordinates(theta))
    found = ratio / len(ratio) if weights is None else weights * ratio
    ess = float(found.sum() ** 2 / max(float(found @ found), np.finfo(float).tiny))
    if ess < FEWEST_SIMULATIONS:
        warnings.warn(
            f"only {ess:.0f} simulations count under this prior: it lies where there are few; "
            "simulate from it, or from a wider one",
            NumericalWarning,
            stacklevel=4,
        )
    if np.sum(found > 0) < FEWEST_SIMULATIONS:
        raise ValueError(
            f"only {np.sum(found > 0)} simulations lie in the support of this prior; simulate from "
            "it, or from a wider one"
        )
    return np.asarray(found / found.sum())


def _estimated(drawn: Floats, at: Floats) -> Floats:
    """Ratio (n,) of the density of draws (m, d) and that of the sample (n, d) itself."""
    ratio = density_ratio(drawn, at, Gaussian.median(at, scale=BANDWIDTH))
    return np.asarray(np.maximum(ratio.at_denominator, 0.0))
