r"""Bayes' rule at one observation: the equations of the update, and options that depart from them.

With prior weights gamma on the training sample and kernel values k(x) at the observation:

* the importance rule (IW22 Alg. 1) and the original one (KBR13 eq. 18);
* *memory* a: gamma_i^a instead of gamma_i; with a = 0 the regression on the observation alone;
* *tempering* b: the posterior's ratio to the prior, as a function of the state, to the power b;
* *literal*: the equations as printed, in the scale of the notation page.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, get_args

import numpy as np

from kernelbayes.arrays import Array, Floats, namespace
from kernelbayes.embedding import Embedding
from kernelbayes.filters.beliefs import StepInfo
from kernelbayes.filters.model import Dynamics, Observations
from kernelbayes.filters.observe import Seen
from kernelbayes.gram import Dense, Factored, LowRank
from kernelbayes.gram.lapack import LinAlgError, solve_positive
from kernelbayes.gram.solvers import cho_solve, factor_with_ridge
from kernelbayes.kernels import Kernel
from kernelbayes.points import Points, option
from kernelbayes.rules.bayes import turn
from kernelbayes.rules.ratio import Method, density_ratio

if TYPE_CHECKING:
    from kernelbayes.filters.loop import Filter

RatioMethod = Method
# Prior weights below this share of the largest are rounding errors of the operators before them.
ACTIVE = 1e-10


@dataclass(frozen=True, eq=False)
class Ratio:
    """Prior weights on the training states by an estimate of the density ratio of the two."""

    method: RatioMethod
    kernel: Kernel
    Z: Points
    ridge: float

    def __call__(self, points: Points, weights: Array) -> Array | None:
        """Weights (n,) of a weighted sample; None if it is far from all training states."""
        given = Embedding(points, weights, self.kernel)
        found = density_ratio(given, self.Z, self.kernel, self.method, self.ridge, rng=0)
        total = namespace(weights).sum(found.at_denominator)
        return found.at_denominator / total if float(total) > 0.0 else None

    def of_weights(self, v: Array) -> Array | None:
        """Weights (n,) of weighted training states."""
        return self(self.Z, v)


def ratio_of(model: Filter) -> Ratio | None:
    """Return how a fitted filter estimates prior weights; None is KuLSIF, which is linear."""
    method = option(model.ratio, "ratio", get_args(RatioMethod))
    if method == "kulsif":
        return None
    if model.method != "importance":
        raise ValueError(
            f"ratio={method!r} gives importance weights; use method='importance', or 'kulsif'"
        )
    return Ratio(method, model.kernel_z_, model.Z_, model.prior_ridge_)


def on_sample(dynamics: Dynamics, W: Array) -> Array:
    """Weights on the training states of embeddings W (n,) or (n, k) over the same states."""
    return dynamics.features @ (dynamics.to_prior @ (dynamics.features.T @ W))


def literal_posterior(
    gamma: Array, observations: Observations, seen: Seen, plain: float | None = None
) -> tuple[Array, StepInfo]:
    """Belief (n,) by the papers' equations alone (KBR13 eq. 18, IW22 Alg. 1, KMCF16 Alg. 1)."""
    xp = namespace(gamma)
    if plain is None:
        if observations.usable is not None:
            gamma = xp.where(xp.asarray(observations.usable), gamma, 0.0 * gamma)
        r = xp.clip(gamma, min=0.0) if observations.method == "importance" else gamma
        w, rescued = solved(observations, r, seen.column)
    else:
        w, rescued = regressed(observations, seen.column, plain)
    mass, squares = float(xp.sum(w)), float(xp.sum(w**2))
    ess = mass**2 / squares if squares > 0.0 else 0.0
    w = w / mass if observations.rule.divided and mass != 0.0 else w
    return w, StepInfo(mass, seen.support, ess, True, False, rescued)


def bayes_rule_at(
    observations: Observations, gamma: Array, column: Array, plain: float | None = None
) -> tuple[Array, bool]:
    """Posterior weights (n,) from prior weights gamma (n,) and a column of :func:`evaluate`.

    All zero where the prior has no mass on usable pairs. Also whether the ridge had to be raised.
    """
    xp = namespace(gamma)
    gram, rule = observations.gram, observations.rule
    if plain is not None or rule.memory == 0.0:
        return regressed(observations, column, plain)
    if observations.usable is not None:  # a pair whose observation is missing says nothing here
        gamma = xp.where(xp.asarray(observations.usable), gamma, 0.0 * gamma)
    importance = observations.method == "importance"
    if importance:
        gamma = xp.clip(gamma, min=0.0)  # IW22 Alg. 1, line 2
    mass = xp.sum(gamma)
    if not float(mass) > 0.0:
        return 0.0 * gamma, False
    gamma = gamma / mass  # summing to one, so that the ridge means the same at every step
    if rule.memory != 1.0:
        gamma = discounted(gamma, rule.memory)
    if importance and isinstance(gamma, np.ndarray) and isinstance(gram, Dense | LowRank):
        return _importance(gram, gamma, column, observations.ridge)
    return solved(observations, gamma, column)


def regressed(
    observations: Observations, column: Array, ridge: float | None = None
) -> tuple[Array, bool]:
    """Posterior weights (n,) of the regression on the observation alone; its solver is kept."""
    solver = observations.memoryless(ridge)
    solve = solver.solve_features if isinstance(observations.gram, Factored) else solver.solve
    return solve(column), solver.diagnostics.rescues > 0


def solved(observations: Observations, gamma: Array, column: Array) -> tuple[Array, bool]:
    """Posterior weights (n,) by the solver of a rule; also whether the ridge had to be raised."""
    gram = observations.gram
    solver = turn(gram, gamma, observations.method, observations.ridge)
    solve = solver.solve_features if isinstance(gram, Factored) else solver.solve
    return solve(column), solver.diagnostics.rescues > 0


def discounted(gamma: Array, power: float) -> Array:
    """Prior weights (n,) of which the ratios to equal weights are raised to a power.

    These ratios are those of the densities of prediction and training marginal.
    """
    xp = namespace(gamma)
    raised = xp.sign(gamma) * xp.abs(gamma) ** power
    return raised / xp.sum(raised)


def tempered(dynamics: Dynamics, gamma: Array, w: Array, power: float) -> Array:
    """Weights (n,) of a posterior w of which the ratio to the prior is raised to a power.

    Both are expressed by their weights on the training states, so that the ratio is a function of
    the state: the likelihood up to a factor. Below 1, an observation counts for less than one,
    which is right where it repeats the one before.
    """
    xp = namespace(w)
    after = on_sample(dynamics, w)
    both = (gamma > 0.0) & (after > 0.0)
    ratio = xp.where(both, after, xp.ones_like(w)) / xp.where(both, gamma, xp.ones_like(w))
    return xp.where(both, gamma * ratio**power, 0.0 * w)


def _importance(
    gram: Dense | LowRank, gamma: Floats, column: Floats, ridge: float
) -> tuple[Floats, bool]:
    """IW22 Alg. 1, line 3 on the active points, straight to LAPACK: the hot loop of a filter.

    Where the matrix is not numerically positive definite, its ridge is raised as everywhere
    (``gram/solvers.py``). NaN if that does not help, so that the step falls back on the prediction.
    """
    active = np.flatnonzero(gamma > ACTIVE * gamma.max())
    s, w = np.sqrt(gamma[active]), np.zeros(len(gamma), dtype=gamma.dtype)
    if isinstance(gram, LowRank):
        A = s[:, None] * gram.L[active]
        b, expand = column, A
    else:
        A, b, expand = gram.G, s * column[active], None

    def matrix() -> Floats:
        if expand is not None:
            return np.asarray(expand.T @ expand)
        C = A.take(active, axis=0).take(active, axis=1)
        C *= s[:, None]
        C *= s
        return np.asarray(C)

    C, rescued = matrix(), False
    C.flat[:: len(C) + 1] += ridge
    try:
        c = solve_positive(C, b, overwrite=True)
    except LinAlgError:
        rescued = True
        try:
            c = cho_solve(factor_with_ridge(matrix(), ridge, quiet=True)[0], b)
        except LinAlgError:
            return np.full_like(w, np.nan), True
    w[active] = s * (c if expand is None else expand @ c)
    return w, rescued
