r"""The rules of probability on embeddings: sum, chain and Bayes' rule.

With a conditional embedding of B given A and a prior on A (any embedding: weighted points, negative
weights allowed, a Gaussian in closed form, or None for the training marginal):

==============================  ==================================================================
``sum_rule(cme, prior)``        the embedding of B                                    CME13 eq. 14
``chain_rule(cme, prior)``      the joint embedding of (A, B)                         CME13 eq. 19
``bayes_rule(cme, prior)``      the conditional embedding of A given B                KBR13 eq. 13
==============================  ==================================================================

All three start from the prior's weights on the training sample, ``gamma = (G_A + n eta I)^-1
m_prior(A)``, which sum to about one (see the notation page for the scales of the papers). Bayes'
rule then regresses A on B with these weights:

* ``method="original"`` (KBR13): ``w = D G ((D G)^2 + delta I)^-1 D k(b)``, D = diag(gamma), signs
  kept;
* ``method="importance"`` (IW22): ``w = S (S G S + lambda I)^-1 S k(b)``, S^2 = max(0, gamma), the
  density ratio of prior and training marginal over n. Better conditioned; the default.

On kernels with finite features the original rule is KMCF16 Alg. 5, the importance rule
``w = R L (L^T R L + lambda I)^-1 phi(b)``. The result is a conditional embedding: rules compose.

>>> from kernelbayes import ConditionalEmbedding, Delta, bayes_rule
>>> z = ["rain"] * 4 + ["dry"] * 6                        # hidden
>>> x = ["wet", "wet", "wet", "no"] + ["wet"] + ["no"] * 5  # observed: P(wet | rain) = 3/4
>>> likelihood = ConditionalEmbedding(Delta(), Delta(), ridge=1e-9).fit(z, x)
>>> posterior = bayes_rule(likelihood, prior=["rain", "dry"], ridge=1e-9)  # a fair prior
>>> mu = posterior("wet")
>>> float(mu(["rain"])[0].round(4))  # (3/4) / (3/4 + 1/6)
0.8182
"""

from dataclasses import dataclass, field, replace
from typing import Literal, Self, get_args

import numpy as np

from kernelbayes.arrays import epsilon, namespace, to_float, to_numpy
from kernelbayes.embedding import Embedding, MeanElement
from kernelbayes.gram import Factored, Gram, Solver, check_ridge
from kernelbayes.gram.loo import least_ridge, loo, loo_subset, ridge_grid, score_targets
from kernelbayes.kernels import Parts
from kernelbayes.points import option, take
from kernelbayes.rules.cme import ConditionalEmbedding, as_conditional
from kernelbayes.rules.conditional import Conditional, Ridge
from kernelbayes.rules.prior import (
    BayesMethod,
    PriorLike,
    prior_element,
    prior_weights,
    usable_weights,
)
from kernelbayes.rules.ratio import DensityRatio
from kernelbayes.rules.support import centre_of
from kernelbayes.rules.variable import Variable
from kernelbayes.types import Array, Points

Form = Literal["a", "b"]
FORMS = get_args(Form)


def sum_rule(
    cme: ConditionalEmbedding | Conditional, prior: PriorLike = None, form: Form = "a"
) -> Embedding:
    """Kernel sum rule: the embedding of B from B given A and a prior on A.

    Parameters
    ----------
    cme : ConditionalEmbedding or Conditional
        Of B given A, i.e. ``fit(A, B)``.
    prior : points, embedding or None
        On A.
    form : {"a", "b"}
        "a": the mean embedding (CME13 eq. 14). "b": the covariance operator, i.e. the embedding
        with tensor features phi(b) (x) phi(b), whose kernel is the square of the kernel of B
        (CME13 eq. 15).

    Examples
    --------
    >>> from kernelbayes import ConditionalEmbedding, Delta, sum_rule
    >>> cme = ConditionalEmbedding(Delta(), Delta(), ridge=1e-9).fit([0, 0, 1, 1], [0, 1, 1, 1])
    >>> mu = sum_rule(cme, prior=[0, 1])
    >>> mu([0, 1]).round(3)
    array([0.25, 0.75])
    """
    option(form, "form", FORMS)
    cond = as_conditional(cme)
    b, element = cond.outputs, prior_element(prior, cond.inputs)
    gamma = cond.apply(element)
    centre = centre_of(cond.inputs, b, gamma) if _is_probability(element) else None
    kernel = b.kernel if form == "a" else b.kernel * b.kernel
    return Embedding(b.points, gamma, kernel, b.names, centre=centre)


def _is_probability(prior: MeanElement) -> bool:
    """Whether a prior's mass is meant to be one; else means scale with the mass."""
    if not isinstance(prior, Embedding) or prior.centre is not None:
        return True
    made = prior.diagnostics is not None  # by a rule, whose ridge took some of the mass
    return made or abs(to_float(prior.mass) - 1.0) <= epsilon(prior.weights) ** 0.5


@dataclass(frozen=True, eq=False)
class Joint(Embedding):
    """Embedding of pairs ("x", "z") under the product kernel, from :func:`chain_rule`."""

    # Form (a) lives on a grid: weights (n, m) over z_i and prior points u_j.
    grid: tuple[Points, Points, Array] | None = field(default=None, repr=False)
    centred: bool = field(default=False, repr=False)  # whether means count what is missing from one

    def __repr__(self) -> str:
        """Size, mass and kernels; the arrays are in ``points`` and ``weights``."""
        return f"Joint({len(self)} pairs, mass {to_float(self.mass):.3g}, {self.kernel!r})"

    def marginal(self, part: Literal["x", "z"]) -> Embedding:
        """Embedding of one part."""
        first = take(self.points, slice(0, 1))
        kernels = {key: kernel for key, kernel, _ in self.kernel.split(first)}
        if part not in kernels:
            raise ValueError(f"part must be 'x' or 'z', got {part!r}")
        points, weights = self.points[part], self.weights
        if self.grid is not None:
            Z, U, weights = self.grid
            points = U if part == "x" else Z
            weights = namespace(weights).sum(weights, axis=0 if part == "x" else 1)
        given = Variable(self.points["x"], kernels["x"])
        own = centre_of(given, Variable(points, kernels[part]), weights) if self.centred else None
        return Embedding(points, weights, kernels[part], centre=own)

    def _reweighted(self, weights: Array) -> Self:
        return replace(super()._reweighted(weights), grid=None, centred=False)


def chain_rule(
    cme: ConditionalEmbedding | Conditional, prior: PriorLike = None, form: Form = "b"
) -> Joint:
    """Kernel chain rule: the joint embedding of (A, B) from B given A and a prior on A.

    Parameters
    ----------
    cme : ConditionalEmbedding or Conditional
        Of B given A.
    prior : points, embedding or None
        On A.
    form : {"a", "b"}
        "a" (CME13 eq. 18): over all pairs of prior points and training outputs, so the prior's
        own points stay; n x m weights. "b" (CME13 eq. 19): over the training pairs, n weights.

    The points of the result are {"x": A, "z": B}.
    """
    option(form, "form", FORMS)
    cond = as_conditional(cme)
    A, B = cond.inputs, cond.outputs
    element = prior_element(prior, A)
    kernel = Parts({"x": A.kernel, "z": B.kernel})
    if form == "b":
        if cond.lift is not None:
            raise ValueError("form 'b' needs pairs; this conditional embedding came from form 'a'")
        pairs = {"x": A.points, "z": B.points}
        return Joint(pairs, cond.apply(element), kernel, centred=_is_probability(element))
    sample = _own_points(element)
    weights = _transport(cond, sample)
    n, m = weights.shape
    pairs = {
        "x": take(sample.points, np.tile(np.arange(m), n)),
        "z": take(B.points, np.repeat(np.arange(n), m)),
    }
    flat = namespace(weights).reshape(weights, (-1,))
    grid = B.points, sample.points, weights
    return Joint(pairs, flat, kernel, grid=grid, centred=_is_probability(sample))


def bayes_rule(
    cme: ConditionalEmbedding | Conditional,
    prior: PriorLike = None,
    method: BayesMethod = "importance",
    form: Form = "b",
    ridge: Ridge = "loo",
    ratio: DensityRatio | Array | None = None,
) -> Conditional:
    """Kernel Bayes' rule: turn B given A and a prior on A into A given B.

    Parameters
    ----------
    cme : ConditionalEmbedding or Conditional
        The likelihood: of what is observed (B) given what is hidden (A), ``fit(Z, X)`` in the
        library's letters. Its ridge is eta, the first of the two.
    prior : points, embedding or None
        On A. None is the training marginal, whose weights are 1/n exactly.
    method : {"importance", "original"}
        IW22 Alg. 1, or KBR13 eq. 13.
    form : {"a", "b"}
        Where the posterior lives: on the prior's own points (CME13 eq. 23) or on the training
        points (eq. 24, the usual form). The same for the training marginal.
    ridge : float or "loo"
        lambda (importance) or delta (original). "loo" minimises the importance-weighted
        leave-one-out error (of mean and mass for vectors, else in the RKHS of A); for the original
        rule, which penalises the square, delta is its square.
    ratio : DensityRatio or array (n,), optional
        For the importance rule: a density ratio of prior and training marginal at the training
        points, instead of KuLSIF with the ridge of ``cme``.

    A prior without mass on the training sample is replaced by the training marginal, with a
    ``NumericalWarning``. There is one too when more than a fifth of its mass is not covered by the
    training sample: the rule can only drop it.
    """
    option(form, "form", FORMS)
    option(method, "method", get_args(BayesMethod))
    cond = as_conditional(cme)
    if cond.lift is not None:
        raise ValueError("Bayes' rule needs pairs; this conditional embedding came from form 'a'")
    A, B = cond.inputs, cond.outputs
    element = None if prior is None else prior_element(prior, A)
    gamma = prior_weights(cond, element, ratio)
    weights = usable_weights(gamma, method)
    if isinstance(ridge, str) and ridge == "loo":
        ridge = choose_ridge(B, A, weights, method)
    rule, _ = turned(cond, weights, method, check_ridge(ridge))
    if form == "b" or element is None:
        return replace(rule, centre=centre_of(B, A, weights))
    sample = _own_points(element)
    kept = namespace(gamma).where(weights > 0, gamma, 0.0 * gamma)
    kept = kept if method == "importance" else gamma
    given = ratio is not None or bool(namespace(gamma).any(kept != weights))
    lift = _lift(cond, sample, weights, method, given)
    outputs = Variable(sample.points, A.kernel, A.names)
    return replace(rule, outputs=outputs, lift=lift, centre=centre_of(B, outputs, _shares(sample)))


def turn(
    G: Gram, weights: Array, method: BayesMethod, ridge: float, moment: Array | None = None
) -> Solver:
    """Solver of Bayes' rule from the Gram matrix of the observed variable and prior weights."""
    known = {} if moment is None else {"moment": moment}
    if method == "importance":  # IW22 Alg. 1, line 3
        return G.weighted(weights, ridge, **known)
    return G.signed(weights, ridge, **known)  # KBR13 eq. 13


def turned(
    cond: Conditional,
    weights: Array,
    method: BayesMethod,
    ridge: float,
    values: Array | None = None,
) -> tuple[Conditional, Array | None]:
    """Conditional turned round, and coefficients of E[values]; the last value is the constant 1."""
    G, moment, cross = cond.outputs.gram, None, None
    if isinstance(G, Factored) and values is not None:
        moment, cross = G.moments(weights, values, ridge if method == "importance" else 0.0)
    rule = Conditional(cond.outputs, cond.inputs, turn(G, weights, method, ridge, moment))
    if values is None:
        return rule, None
    found = rule.regression(values, cross)
    return replace(rule, ones=found[:, -1:] if isinstance(G, Factored) else None), found


def choose_ridge(inputs: Variable, outputs: Variable, weights: Array, method: BayesMethod) -> float:
    """Second ridge by importance-weighted leave-one-out.

    Scored on the conditional mean and mass where the output is a vector, which in high dimension
    takes far fewer pairs to get right than the whole embedding, and in the RKHS otherwise.
    """
    keep = loo_subset(inputs.n)
    positive = np.maximum(to_numpy(weights), 0.0)
    r = positive[keep].astype(np.float64)
    r = r / r.sum() if r.sum() > 0.0 else np.full(len(keep), 1.0 / len(keep))
    F = inputs.exact(keep)
    H = score_targets(outputs.kernel, take(outputs.points, keep))
    best = loo(F, H, ridge_grid(F, r, least=least_ridge(inputs.kernel, inputs.points)), r).best
    best *= float(positive.sum()) or 1.0  # the operator scales with the prior's mass
    return best if method == "importance" else best**2


def _lift(
    cond: Conditional, prior: Embedding, weights: Array, method: BayesMethod, given: bool
) -> Array:
    """Lambda^T (m, n), without the pairs that the importance rule dropped."""
    moved = _transport(cond, prior)
    xp = namespace(moved)
    if method == "importance":
        moved = xp.where(weights[:, None] > 0, moved, 0.0 * moved)
    if not given:
        return moved.T
    # Weights that are not the row sums (another ratio, or a fallback): scale the rows to them.
    sums = xp.sum(moved, axis=1)
    usable = xp.abs(sums) > 1e-8 * xp.max(xp.abs(weights))
    scaled = moved * (weights / xp.where(usable, sums, xp.ones_like(sums)))[:, None]
    spread = weights[:, None] * _shares(prior)[None, :]
    return xp.where(usable[:, None], scaled, spread).T


def _shares(prior: Embedding) -> Array:
    """Weights of a prior that sum to one; equal ones if they sum to zero."""
    xp, mass = namespace(prior.weights), prior.mass
    size = to_float(xp.sum(xp.abs(prior.weights)))
    if abs(to_float(mass)) > epsilon(prior.weights) * size:
        return prior.weights / mass
    return xp.ones_like(prior.weights) / len(prior)


def _own_points(prior: MeanElement) -> Embedding:
    if not isinstance(prior, Embedding):
        raise TypeError("form 'a' keeps the prior's own points, so the prior must be a sample")
    return prior


def _transport(cond: Conditional, prior: Embedding) -> Array:
    """Lambda (n, m) = (G_A + n eta I)^-1 K_AU diag(alpha): each prior point spread over pairs."""
    return cond.spread(prior.points) * prior.weights[None, :]
