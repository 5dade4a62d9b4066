"""The sum rule and the chain rule; :mod:`kernelbayes.rules.bayes` says how they fit together."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from kernelbayes.arrays import Array, namespace, to_float
from kernelbayes.embedding import Embedding, MeanElement
from kernelbayes.kernels import Parts
from kernelbayes.points import Points, take
from kernelbayes.rules.conditional import Conditional
from kernelbayes.rules.estimator import ConditionalEmbedding, as_conditional
from kernelbayes.rules.prior import PriorLike, prior_element

Form = Literal["a", "b"]


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
    check_form(form)
    cond = as_conditional(cme)
    b = cond.outputs
    gamma = cond.apply(prior_element(prior, cond.inputs.kernel, cond.inputs.points))
    return Embedding(b.points, gamma, b.kernel if form == "a" else b.kernel * b.kernel, b.names)


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
        first = take(self.points, slice(0, 1))
        kernels = {key: kernel for key, kernel, _ in self.kernel.split(first)}
        if part not in kernels:
            raise ValueError(f"part must be 'x' or 'z', got {part!r}")
        if self.grid is None:
            return Embedding(self.points[part], self.weights, kernels[part])
        Z, U, weights = self.grid
        xp = namespace(weights)
        points, axis = (U, 0) if part == "x" else (Z, 1)
        return Embedding(points, xp.sum(weights, axis=axis), kernels[part])


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

    Returns
    -------
    Joint
        Over points {"x": A, "z": B}, with ``marginal("x")`` and ``marginal("z")``.
    """
    check_form(form)
    cond = as_conditional(cme)
    A, B = cond.inputs, cond.outputs
    element = prior_element(prior, A.kernel, A.points)
    kernel = Parts({"x": A.kernel, "z": B.kernel})
    if form == "b":
        if cond.lift is not None:
            raise ValueError("form 'b' needs pairs; this conditional embedding came from form 'a'")
        return Joint({"x": A.points, "z": B.points}, cond.apply(element), kernel)
    sample = own_points(element)
    weights = transport(cond, sample)
    n, m = weights.shape
    pairs = {
        "x": take(sample.points, np.tile(np.arange(m), n)),
        "z": take(B.points, np.repeat(np.arange(n), m)),
    }
    flat = namespace(weights).reshape(weights, (-1,))
    return Joint(pairs, flat, kernel, grid=(B.points, sample.points, weights))


def own_points(prior: MeanElement) -> Embedding:
    """Return a prior that has points, which form "a" keeps."""
    if not isinstance(prior, Embedding):
        raise TypeError("form 'a' keeps the prior's own points, so the prior must be a sample")
    return prior


def transport(cond: Conditional, prior: Embedding) -> Array:
    """Lambda (n, m) = (G_A + n eta I)^-1 K_AU diag(alpha): each prior point spread over pairs."""
    return cond.spread(prior.points) * prior.weights[None, :]


def check_form(form: str) -> None:
    """Refuse a form other than "a" and "b"."""
    if form not in ("a", "b"):
        raise ValueError(f"form must be 'a' or 'b', got {form!r}")
