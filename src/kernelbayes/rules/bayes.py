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

On kernels with finite features the original rule is KMCF16 Alg. 5; the low-rank importance rule,
``w = R L (L^T R L + lambda I)^-1 phi(b)``, is in none of the papers. The result is a conditional
embedding again, so rules compose.

>>> import numpy as np
>>> from kernelbayes import ConditionalEmbedding, Delta, bayes_rule
>>> z = ["rain"] * 4 + ["dry"] * 6                        # hidden
>>> x = ["wet", "wet", "wet", "no"] + ["wet"] + ["no"] * 5  # observed: P(wet | rain) = 3/4
>>> likelihood = ConditionalEmbedding(Delta(), Delta(), ridge=1e-9).fit(z, x)
>>> posterior = bayes_rule(likelihood, prior=["rain", "dry"], ridge=1e-9)  # a fair prior
>>> mu = posterior("wet")
>>> float(mu(["rain"])[0].round(4))  # (3/4) / (3/4 + 1/6)
0.8182
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from array_api_compat import device

from kernelbayes.arrays import Array, NumericalWarning, epsilon, namespace, to_float, to_numpy
from kernelbayes.embedding import Embedding, MeanElement, embed
from kernelbayes.gram import Gram, Solver, check_ridge
from kernelbayes.gram.loo import exact_features, loo_errors, loo_subset, ridge_grid, score_targets
from kernelbayes.kernels import Kernel, Parts
from kernelbayes.points import Points, as_floats, count, take
from kernelbayes.rules.conditional import ConditionalEmbedding
from kernelbayes.rules.ratio import DensityRatio

Form = Literal["a", "b"]
BayesMethod = Literal["importance", "original"]
# Least share of the prior's mass that must lie on the training sample; below it, a warning. What
# is lost is lost from the posterior's mass too, which diagnostics then show as much below one.
COVERED = 0.8


def as_prior(prior: Any, kernel: Kernel, training: Points) -> MeanElement:
    """Prior as an embedding of the given kernel: None is the training marginal."""
    if not isinstance(prior, MeanElement):
        points = training if prior is None else prior_points(prior, kernel)
        kernel.check_pair(points, training)
        sample: Embedding = embed(points, kernel)
        return sample
    if prior.kernel != kernel:
        raise ValueError(
            f"the prior is embedded with {prior.kernel!r}, but the rule needs {kernel!r}; embed "
            "the prior's points with the kernel of the conditional embedding"
        )
    return prior


def prior_points(prior: Any, kernel: Kernel) -> Points:
    """Check the points of a prior; a distribution or a single value gets a clear error."""
    if callable(getattr(prior, "rvs", None)):
        raise TypeError(
            f"a prior is a sample or an embedding, got a distribution ({type(prior).__name__}); "
            "draw points from it, e.g. prior.rvs(1000), or embed a Gaussian in closed form with "
            "GaussianEmbedding(mean, cov, kernel)"
        )
    if isinstance(prior, str) or (not isinstance(prior, dict) and np.ndim(prior) == 0):
        raise TypeError(
            f"a prior is a sample of points, got the single value {prior!r}; for a prior that is "
            f"certain of it pass a list, [{prior!r}]"
        )
    return kernel.points(prior, "prior")


def sum_rule(cme: ConditionalEmbedding, prior: Any = None, form: Form = "a") -> Embedding:
    """Kernel sum rule: the embedding of B from B given A and a prior on A.

    Parameters
    ----------
    cme : ConditionalEmbedding
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
    _check_form(form)
    cme._check_fitted()
    gamma = cme.apply(as_prior(prior, cme.kernel_x_, cme.X_))
    kernel = cme.kernel_z_ if form == "a" else cme.kernel_z_ * cme.kernel_z_
    return Embedding(cme.Z_, gamma, kernel, cme.names_z_)


@dataclass(frozen=True, eq=False)
class Joint(Embedding):
    """Embedding of a pair (x, z) under the product kernel, from :func:`chain_rule`.

    Its points are a mapping with parts "x" (the conditioning variable) and "z". ``marginal("x")``
    and ``marginal("z")`` are the embeddings of the parts.
    """

    # Form (a) lives on a grid: weights (n, m) over z_i and prior points u_j.
    grid: tuple[Points, Points, Array] | None = field(default=None, repr=False)

    def __repr__(self) -> str:
        """Size, mass and kernels; the arrays are in ``points`` and ``weights``."""
        return f"Joint({len(self)} pairs, mass {to_float(self.mass):.3g}, {self.kernel!r})"

    def marginal(self, part: Literal["x", "z"]) -> Embedding:
        """Embedding of one part."""
        kernels = dict(self.kernel.parts) if isinstance(self.kernel, Parts) else {}
        if part not in kernels:
            raise ValueError(f"part must be 'x' or 'z', got {part!r}")
        if self.grid is None:
            return Embedding(self.points[part], self.weights, kernels[part])
        Z, U, weights = self.grid
        xp = namespace(weights)
        points, axis = (U, 0) if part == "x" else (Z, 1)
        return Embedding(points, xp.sum(weights, axis=axis), kernels[part])


def chain_rule(cme: ConditionalEmbedding, prior: Any = None, form: Form = "b") -> Joint:
    """Kernel chain rule: the joint embedding of (A, B) from B given A and a prior on A.

    Parameters
    ----------
    cme : ConditionalEmbedding
        Of B given A.
    prior : points, embedding or None
        On A.
    form : {"a", "b"}
        "a" (CME13 eq. 18): over all pairs of prior points and training outputs, so the prior's
        own points stay; n x m weights. "b" (CME13 eq. 19): over the training pairs, n weights.

    Returns
    -------
    Joint
        Over points {"x": A, "z": B}, with ``marginal("x")`` and ``marginal("z")``.
    """
    _check_form(form)
    cme._check_fitted()
    prior = as_prior(prior, cme.kernel_x_, cme.X_)
    kernel = Parts({"x": cme.kernel_x_, "z": cme.kernel_z_})
    if form == "b":
        if cme.lift_ is not None:
            raise ValueError("form 'b' needs pairs; this conditional embedding came from form 'a'")
        return Joint({"x": cme.X_, "z": cme.Z_}, cme.apply(prior), kernel)
    sample = _sample(prior)
    U, weights = sample.points, _transport(cme, sample)
    n, m = weights.shape
    pairs = {
        "x": take(U, np.tile(np.arange(m), n)),
        "z": take(cme.Z_, np.repeat(np.arange(n), m)),
    }
    flat = namespace(weights).reshape(weights, (-1,))
    return Joint(pairs, flat, kernel, grid=(cme.Z_, U, weights))


def bayes_rule(
    cme: ConditionalEmbedding,
    prior: Any = None,
    method: BayesMethod = "importance",
    form: Form = "b",
    ridge: float | Literal["loo"] = "loo",
    ratio: DensityRatio | Any = None,
) -> ConditionalEmbedding:
    """Kernel Bayes' rule: turn B given A and a prior on A into A given B.

    Parameters
    ----------
    cme : ConditionalEmbedding
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

    Returns
    -------
    ConditionalEmbedding
        Of A given B.

    Where the prior has no mass on the training sample, its weights are replaced by the training
    marginal's and a ``NumericalWarning`` says so. It also says so when more than a fifth of the
    prior's mass is not covered by the training sample (categories never seen, points far from any
    training point): the rule can only drop it.
    """
    _check_form(form)
    cme._check_fitted()
    if method not in ("importance", "original"):
        raise ValueError(f"method must be 'importance' or 'original', got {method!r}")
    if cme.lift_ is not None:
        raise ValueError("Bayes' rule needs pairs; this conditional embedding came from form 'a'")
    element = as_prior(prior, cme.kernel_x_, cme.X_)
    gamma = prior_weights(cme, None if prior is None else element, ratio)
    weights = usable_weights(gamma, method)
    if ridge == "loo":
        ridge = choose_ridge(cme.kernel_z_, cme.Z_, cme.kernel_x_, cme.X_, weights, method)
    solver = turn(cme.gram_z_, weights, method, check_ridge(ridge))
    Z, lift = cme.X_, None
    if form == "a" and prior is not None:
        kept = namespace(gamma).where(weights > 0, gamma, 0.0 * gamma)
        kept = kept if method == "importance" else gamma
        given = ratio is not None or bool(namespace(gamma).any(kept != weights))
        Z, lift = _sample(element).points, _lift(cme, _sample(element), weights, method, given)
    return ConditionalEmbedding.from_solver(
        cme.Z_, Z, cme.kernel_z_, cme.kernel_x_, cme.gram_z_, solver, lift,
        names=(cme.names_z_, cme.names_x_),
    )  # fmt: skip


def prior_weights(cme: ConditionalEmbedding, prior: MeanElement | None, ratio: Any) -> Array:
    """Weights gamma (n,) of the prior on the training sample; they sum to about one."""
    if ratio is not None:
        values = ratio.at_denominator if isinstance(ratio, DensityRatio) else ratio
        values = as_floats(values, "ratio")
        if tuple(values.shape) != (cme.n,):
            raise ValueError(f"ratio must have shape ({cme.n},), got {tuple(values.shape)}")
        return values / cme.n
    if prior is None:
        one = cme.kernel_x_.diag(take(cme.X_, slice(0, 1)))
        xp = namespace(one)
        return xp.ones(cme.n, dtype=one.dtype, device=device(one)) / cme.n
    gamma = cme.apply(prior)  # KBR13 eq. 11 over n; KuLSIF at the training points (IW22 eq. 1)
    if isinstance(prior, Embedding):
        _check_covered(cme, prior, gamma)
    return gamma


def _check_covered(cme: ConditionalEmbedding, prior: Embedding, gamma: Array) -> None:
    """Warn when much of the prior's mass is missing from its weights on the training sample.

    A ridge takes mass from any prior; how much, the training marginal tells, whose mass is all
    there. It costs a solve, so it is asked only when too little has arrived.
    """
    xp = namespace(gamma)
    mass, arrived = to_float(prior.mass), to_float(xp.sum(gamma))
    signed = abs(mass) < COVERED * to_float(xp.sum(xp.abs(prior.weights)))
    lost = gamma.shape[0] * to_float(xp.max(xp.abs(gamma))) <= epsilon(gamma)
    if signed or lost or arrived >= COVERED * mass:  # nothing arrived: usable_weights says so
        return
    share = arrived / (mass * to_float(xp.sum(cme.smoothed_marginal())))
    if share < COVERED:
        warnings.warn(
            f"the training sample covers about {max(share, 0.0):.0%} of the prior's mass; the rest "
            "(values never seen, points far from any training point) is dropped. Posteriors speak "
            "of the covered part only: add training pairs where the prior has mass",
            NumericalWarning,
            stacklevel=4,
        )


def usable_weights(weights: Array, method: BayesMethod) -> Array:
    """Cut weights off at zero for the importance rule; fall back when nothing is left.

    Nothing is left when no weight reaches the rounding of the training marginal's 1/n.
    """
    xp = namespace(weights)
    if method == "importance":
        weights = xp.clip(weights, min=0.0)  # IW22 Alg. 1, line 2
    if weights.shape[0] * to_float(xp.max(xp.abs(weights))) > epsilon(weights):
        return weights
    warnings.warn(
        "the prior has no mass on the training sample; the training marginal is used instead. "
        "Is the prior in the units of the training data?",
        NumericalWarning,
        stacklevel=3,
    )
    return xp.ones_like(weights) / weights.shape[0]


def turn(
    G: Gram, weights: Array, method: BayesMethod, ridge: float, moment: Array | None = None
) -> Solver:
    """Solver of Bayes' rule from the Gram matrix of the observed variable and prior weights."""
    known = {} if moment is None else {"moment": moment}
    if method == "importance":  # IW22 Alg. 1, line 3
        return G.weighted(weights, ridge, **known)
    return G.signed(weights, ridge, **known)  # KBR13 eq. 13


def choose_ridge(
    kernel_in: Kernel,
    inputs: Points,
    kernel_out: Kernel,
    outputs: Points,
    weights: Array,
    method: BayesMethod,
) -> float:
    """Second ridge by importance-weighted leave-one-out.

    Scored on the conditional mean and mass where the output is a vector, which in high dimension
    takes far fewer pairs to get right than the whole embedding, and in the RKHS otherwise.
    """
    keep = loo_subset(count(inputs))
    r = np.maximum(np.asarray(to_numpy(weights), dtype=np.float64)[keep], 0.0)
    total = float(r.sum())
    if total <= 0.0:
        r, total = np.full(len(keep), 1.0 / len(keep)), 1.0
    r = r / total
    F = exact_features(kernel_in, take(inputs, keep))[0]
    H = score_targets(kernel_out, take(outputs, keep))
    ridges = ridge_grid(F, r)
    best = float(ridges[np.argmin(loo_errors(F, H, ridges, r))])
    scale = float(np.maximum(to_numpy(weights), 0.0).sum()) or 1.0
    best *= scale  # the operator scales with the prior's mass
    return best if method == "importance" else best**2


def _sample(prior: MeanElement) -> Embedding:
    if not isinstance(prior, Embedding):
        raise TypeError("form 'a' keeps the prior's own points, so the prior must be a sample")
    return prior


def _transport(cme: ConditionalEmbedding, prior: Embedding) -> Array:
    """Lambda (n, m) = (G_A + n eta I)^-1 K_AU diag(alpha): each prior point spread over pairs."""
    if cme.kernel_x_.finite:
        right = cme.kernel_x_.features(prior.points).T
        return cme._lift(cme.solver_.values_features(right)) * prior.weights[None, :]
    K = cme.kernel_x_(cme.X_, prior.points)
    return cme._lift(cme.solver_.values(K)) * prior.weights[None, :]


def _lift(
    cme: ConditionalEmbedding, prior: Embedding, weights: Array, method: str, given: bool
) -> Array:
    """Lambda^T (m, n), without the pairs that the importance rule dropped."""
    transport = _transport(cme, prior)
    xp = namespace(transport)
    if method == "importance":
        transport = xp.where(weights[:, None] > 0, transport, 0.0 * transport)
    if not given:
        return transport.T
    # Weights that are not the row sums (another ratio, or a fallback): scale the rows to them.
    sums = xp.sum(transport, axis=1)
    usable = xp.abs(sums) > 1e-8 * xp.max(xp.abs(weights))
    scaled = transport * (weights / xp.where(usable, sums, xp.ones_like(sums)))[:, None]
    spread = weights[:, None] * (prior.weights / prior.mass)[None, :]
    return xp.where(usable[:, None], scaled, spread).T


def _check_form(form: str) -> None:
    if form not in ("a", "b"):
        raise ValueError(f"form must be 'a' or 'b', got {form!r}")
