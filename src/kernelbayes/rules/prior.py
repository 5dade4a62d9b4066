"""Priors: what a rule takes as one, and its weights on the training sample."""

from dataclasses import replace
from typing import Any, Literal

import numpy as np

from kernelbayes.arrays import as_floats, as_generator, epsilon, namespace, to_float, warn
from kernelbayes.embedding import Embedding, MeanElement, embed
from kernelbayes.embedding.gaussian import GaussianEmbedding
from kernelbayes.embedding.mean import LEAST_SHARE
from kernelbayes.kernels import Gaussian, Kernel
from kernelbayes.points import in_order, own, points_in_order
from kernelbayes.rules.conditional import Conditional
from kernelbayes.rules.ratio import DensityRatio
from kernelbayes.rules.variable import Variable
from kernelbayes.types import Array, Points, PointsLike, Rng

BayesMethod = Literal["importance", "original"]
# Points, an embedding, a scipy.stats distribution or a list of them where there is an rng, or None
# for the training marginal.
PriorLike = PointsLike | MeanElement | None
# Least share of the prior's mass that must lie on the training sample; below it, a warning. What
# is lost is lost from the posterior's mass too, which diagnostics then show as much below one.
COVERED = 0.8
# Draws from a prior given as a distribution: their mean is off by three percent (1 / sqrt(1000)) of
# the prior's standard deviation.
DISTRIBUTION_DRAWS = 1000


def prior_element(prior: PriorLike, on: Variable) -> MeanElement:
    """Prior as an embedding over a variable, with its kernel: None is the training marginal."""
    kernel = on.kernel
    if prior is None:
        return Embedding(on.points, on.uniform, kernel, on.names)
    if not isinstance(prior, MeanElement):
        points = _prior_points(in_order(prior, on.names, "prior", by_name=kernel.by_name), kernel)
        kernel.check_pair(points, on.points)
        sample: Embedding = embed(points, kernel, copy=False)
        return replace(sample, points=own(points, prior), names=on.names)
    if prior.kernel != kernel:
        raise ValueError(
            f"the prior is embedded with {prior.kernel!r}, but the rule needs {kernel!r}; embed "
            "the prior's points with the kernel of the conditional embedding"
        )
    if isinstance(prior, Embedding):
        points = points_in_order(prior.points, prior.names, on.names, "prior")
        kernel.check_pair(points, on.points)
        return prior if points is prior.points else replace(prior, points=points, names=on.names)
    return prior


def drawn(prior: PriorLike, rng: Rng) -> PriorLike:
    """Points from a scipy.stats distribution, or a list of them, one per column; else the prior."""
    parts: list[Any] = [*prior] if isinstance(prior, list | tuple) and len(prior) else [prior]
    if not all(callable(getattr(part, "rvs", None)) for part in parts):
        return prior
    generator = as_generator(rng)
    draws = [np.asarray(p.rvs(size=DISTRIBUTION_DRAWS, random_state=generator)) for p in parts]
    if isinstance(prior, list | tuple):
        return np.column_stack(draws)
    return draws[0]


def prior_under(prior: PriorLike, on: Variable) -> MeanElement | None:
    """Prior embedded with the variable's kernel, again if it came with another; None stays None."""
    if prior is None:
        return None
    return prior_element(reembed(prior, on.kernel) if isinstance(prior, MeanElement) else prior, on)


def reembed(prior: MeanElement, kernel: Kernel) -> MeanElement:
    """Return the same distribution embedded with another kernel."""
    if isinstance(prior, GaussianEmbedding):
        if kernel.gaussian_bandwidth is None:
            raise TypeError("a prior in closed form needs kernel_z to be Gaussian, full rank")
        return GaussianEmbedding(prior.mean, prior.cov, Gaussian(kernel.gaussian_bandwidth))
    if not isinstance(prior, Embedding):
        raise TypeError(f"a prior is one embedding, got {type(prior).__name__}; take one member")
    again: Embedding = embed(prior.points, kernel, prior.weights, copy=False)
    return replace(again, names=prior.names)


def _prior_points(prior: PointsLike, kernel: Kernel) -> Points:
    """Check the points of a prior; a distribution or a single value gets a clear error."""
    if callable(getattr(prior, "rvs", None)):
        raise TypeError(
            f"a prior is a sample or an embedding, got a distribution ({type(prior).__name__}); "
            "draw points from it, e.g. prior.rvs(1000), as KernelBayesRule does, or embed a "
            "Gaussian in closed form with GaussianEmbedding(mean, cov, kernel)"
        )
    # An array of no dimensions has the attribute, but no length.
    if isinstance(prior, str) or not hasattr(prior, "__len__") or getattr(prior, "shape", 1) == ():
        raise TypeError(
            f"a prior is a sample of points, got the single value {prior!r}; for a prior that is "
            f"certain of it pass a list, [{prior!r}]"
        )
    return kernel.points(prior, "prior")


def prior_weights(
    cme: Conditional, prior: MeanElement | None, ratio: DensityRatio | Array | None
) -> Array:
    """Weights gamma (n,) of the prior on the training sample; they sum to about one."""
    if ratio is not None:
        values = ratio.at_denominator if isinstance(ratio, DensityRatio) else ratio
        values = as_floats(values, "ratio")
        if tuple(values.shape) != (cme.n,):
            raise ValueError(f"ratio must have shape ({cme.n},), got {tuple(values.shape)}")
        return values / cme.n
    if prior is None:
        return cme.inputs.uniform
    gamma = cme.apply(prior)  # KBR13 eq. 11 over n; KuLSIF at the training points (IW22 eq. 1)
    if isinstance(prior, Embedding):
        _check_covered(cme, prior, gamma)
    return gamma


def _check_covered(cme: Conditional, prior: Embedding, gamma: Array) -> None:
    """Warn when much of the prior's mass is missing from its weights on the training sample.

    A ridge takes mass from any prior; how much, the training marginal tells, whose mass is all
    there. It costs a solve, so it is asked only when too little has arrived.
    """
    xp = namespace(gamma)
    mass, arrived = to_float(prior.mass), to_float(xp.sum(gamma))
    size = to_float(xp.sum(xp.abs(prior.weights)))
    if size > 0.0 and abs(mass) < LEAST_SHARE * size:
        warn(
            f"the weights of the prior cancel: they sum to {mass:.1e}, their absolute values to "
            f"{size:.1e}. What is left is no distribution, and posteriors under it mean nothing"
        )
    signed = abs(mass) < COVERED * size
    lost = gamma.shape[0] * to_float(xp.max(xp.abs(gamma))) <= epsilon(gamma)
    if signed or lost or arrived >= COVERED * mass:  # nothing arrived: usable_weights says so
        return
    marginal = Embedding(cme.inputs.points, cme.inputs.uniform, cme.inputs.kernel)
    share = arrived / (mass * to_float(xp.sum(cme.apply(marginal))))
    if share < COVERED:
        warn(
            f"the training sample covers about {max(share, 0.0):.0%} of the prior's mass; the rest "
            "(values never seen, points far from any training point) is dropped. Posteriors speak "
            "of the covered part only: add training pairs where the prior has mass"
        )


def usable_weights(weights: Array, method: BayesMethod) -> Array:
    """Cut weights off at zero for the importance rule; fall back if only rounding is left."""
    xp = namespace(weights)
    if method == "importance":
        weights = xp.clip(weights, min=0.0)  # IW22 Alg. 1, line 2
    if weights.shape[0] * to_float(xp.max(xp.abs(weights))) > epsilon(weights):
        return weights
    warn(
        "the prior has no mass on the training sample; the training marginal is used instead. "
        "Is the prior in the units of the training data?"
    )
    return xp.ones_like(weights) / weights.shape[0]
