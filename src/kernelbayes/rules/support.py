r"""Support: how much a training sample says about a point, and what the prior says elsewhere.

The *support* of x is its similarity :math:`\max_i |k(x, x_i)| / \sqrt{k(x, x) k(x_i, x_i)}` to the
nearest training point (or landmark of a low-rank kernel): 1 on one, 0 where nothing like x was
seen. It is *usual*, and x is inside the sample, where it is at least what 99 % of the training
points have to their nearest other one. There the answer is the rule's own, weights w.

Outside, a kernel regression loses mass, since its weights go to zero with the kernel, and before
that it extrapolates by large weights of both signs that nearly cancel. So estimators change the
answer in two ways:

* Where the effective sample size is below one, weights are mostly noise. Their negative part is
  dropped in proportion: with e the effective sample size, w becomes ``v = e w + (1 - e) w+``, where
  w+ are the positive weights with the mass of w.
* Mass that is missing is the prior's, pi:

  .. math:: t v + (1 - t c) \pi, \qquad c = \min(1, m / m_{usual}), \quad
            t = \min(1, s / (0.1 s_{usual}))

  with s the support and m the mass of w, which is usual where 99 % of the training points reach
  it, each left out of its own answer.

So an answer goes over into the prior as x leaves the sample, and is the prior where nothing like x
was seen. ``1 - t c`` is ``diagnostics.prior_share``. Filters trust an observation by the same t,
with the prediction as the prior. The rules as functions, ``ConditionalEmbedding`` unless it is
asked to fill, and ``KernelBayesRule(literal=True)`` give w as the papers do.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from kernelbayes.arrays import (
    Array,
    Floats,
    Ints,
    NumericalWarning,
    as_doubles,
    namespace,
    row_blocks,
    to_numpy,
)
from kernelbayes.embedding import Batch, Embedding
from kernelbayes.embedding.mean import LEAST_MASS
from kernelbayes.gram.loo import loo_subset
from kernelbayes.kernels import Kernel
from kernelbayes.points import Points, count, take

if TYPE_CHECKING:
    from kernelbayes.rules.conditional import Conditional

Answer = TypeVar("Answer", bound=Batch | Embedding)
# A point with less than this share of the usual support is trusted in proportion. For a Gaussian
# kernel that is two bandwidths away from a training sample which lies close together. A warning
# names the points of which the prior makes up more than this share.
UNUSUAL = 0.1
# Share of the training sample that may lie below what is usual: outliers among the training points
# must not make every point usual.
OUTLYING = 0.01
# Training points that say what is usual: enough for a first percentile, the second or fifth
# smallest. Support needs a row of the Gram matrix for each, mass a solve.
SUPPORT_POINTS, MASS_POINTS = 500, 200
# Similarities of one point to itself differ from one by less: rounding of single precision.
SAME = 1e-6
_no_rows = np.arange(0)
SHOWN = 5  # indices that a warning names: enough to go and look, and one line long


def filled(
    rule: Conditional,
    answer: Answer,
    prior: Array,
    normalize: bool = False,
    literal: bool = False,
) -> Answer:
    """Answer of a rule, filled from the prior's weights (n,) at points outside the sample."""
    weights, support = answer.weights, answer.diagnostics.support
    xp = namespace(weights)
    W, near = xp.reshape(weights, (-1, weights.shape[-1])), xp.reshape(support, (-1,))
    mass, share = xp.sum(W, axis=1), 0.0 * near
    out = _no_rows if literal else outside(rule, near)
    if normalize:
        found, share = _divided(W, mass, prior)
    else:
        found = W
    if len(out):
        rows, own = fill(rule, take(W, out), take(near, out), prior, normalize)
        found, share = replaced(found, rows, out), replaced(share, own, out)
    elif not normalize:
        return answer
    diagnostics = replace(answer.diagnostics, prior_share=xp.reshape(share, support.shape))
    return replace(answer, weights=xp.reshape(found, weights.shape), diagnostics=diagnostics)


def filled_values(
    rule: Conditional,
    X: Points,
    coefficients: Array,
    values: Array,
    prior: Array,
    normalize: bool = False,
    literal: bool = False,
) -> tuple[Array, Array]:
    """Return expectations (m, k) of values (n, k) under :func:`filled` answers, and shares (m,).

    ``coefficients`` are those of the values and of the constant 1. Weights (n,) are computed only
    for points outside the sample.
    """
    found, near = rule.supported(coefficients, X)
    found, mass = found[:, :-1], found[:, -1]
    share = 0.0 * near
    if normalize:
        found, share = _divided(found, mass, prior @ values)
    out = _no_rows if literal else outside(rule, near)
    if not len(out):
        return found, share
    xp, rows, shares = namespace(found), [], []
    for block in row_blocks(len(out), rule.outputs.n):
        at = out[block]
        W, own = fill(rule, rule.spread(take(X, at)).T, take(near, at), prior, normalize)
        rows.append(W @ values)
        shares.append(own)
    return replaced(found, xp.concat(rows), out), replaced(share, xp.concat(shares), out)


def outside(rule: Conditional, support: Array) -> Ints:
    """Return the indices of the points with less than the usual support (m,)."""
    near = as_doubles(support)
    return np.flatnonzero(~((near >= rule.inputs.usual_support) & (near > 0.0)))


def fill(
    rule: Conditional, W: Array, support: Array, prior: Array, normalize: bool
) -> tuple[Array, Array]:
    """Weights (m, n) and the prior's shares (m,) from a rule's weights outside the sample."""
    xp = namespace(W)
    t, mass = trust(support, rule.inputs.usual_support), xp.sum(W, axis=1)
    c, usual = xp.ones_like(mass), min(rule.usual_mass, 1.0)
    if usual > 0.0:  # otherwise weights have no mass to speak of, as under a linear kernel
        c = xp.clip(mass / usual, 0.0, 1.0)
        squares, positive = xp.sum(W * W, axis=1), xp.clip(W, min=0.0)
        e = xp.clip(mass**2 / xp.where(squares > 0, squares, xp.ones_like(mass)), 0.0, 1.0)
        size = xp.sum(positive, axis=1)
        scale = (1.0 - e) * xp.clip(mass, 0.0, 1.0) / xp.where(size > 0, size, xp.ones_like(size))
        W = e[:, None] * W + scale[:, None] * positive
    share = 1.0 - t * c
    if normalize:
        W, none = _divided(W, xp.sum(W, axis=1), prior)
        share = xp.where(none > 0, none, share)
        return (1.0 - share)[:, None] * W + share[:, None] * prior[None, :], share
    return t[:, None] * W + share[:, None] * prior[None, :], share


def _divided(rows: Array, mass: Array, prior: Array) -> tuple[Array, Array]:
    """Rows (m, k) over their mass (m,), the prior (k,) where there is none; where that is (m,)."""
    xp = namespace(rows)
    none = xp.abs(mass) < LEAST_MASS
    found = rows / xp.where(none, xp.ones_like(mass), mass)[:, None]
    return xp.where(none[:, None], prior[None, :], found), xp.astype(none, mass.dtype)


def replaced(rows: Array, new: Array, index: Ints) -> Array:
    """Rows (m, ...) with new ones at some indices; nothing is written, for the sake of torch."""
    places = np.arange(rows.shape[0])
    places[index] = rows.shape[0] + np.arange(len(index))
    return take(namespace(rows).concat([rows, new]), places)


def warn_unsupported(share: Array, prior: str = "prior", done: str = "is filled in") -> None:
    """Say how many points lie outside the training sample, which, and how much is the prior's."""
    told = told_of(share, "points")
    if told:
        warnings.warn(
            f"{told[0]} lie outside the training sample, which says little or nothing about them: "
            f"{told[1]} of the answer is the {prior}'s and {done}",
            NumericalWarning,
            stacklevel=3,
        )


def told_of(share: Array, what: str) -> tuple[str, str] | None:
    """Which of many have more than UNUSUAL of something, and how much, in words; None if none."""
    shares = np.atleast_1d(to_numpy(share))
    found = np.flatnonzero(shares > UNUSUAL)
    if not len(found):
        return None
    low, high = shares[found].min(), shares[found].max()
    between = f"{low:.0%} to {high:.0%}" if high - low >= 0.01 else f"{high:.0%}"
    return f"{len(found)} of {len(shares)} {what} ({first_few(found)})", between


# --- support --------------------------------------------------------------------------------------


def nearest_similarity(kernel: Kernel, X: Points, training: Points) -> Array:
    """Similarity of each x to the nearest training point (landmark), shape (m,), in blocks."""
    training, kernel = kernel.anchors(training), kernel.exact
    parts = []
    for rows in row_blocks(count(X), count(training)):
        chunk = take(X, rows)
        parts.append(similarity(kernel(chunk, training), kernel, chunk, training))
    return namespace(*parts).concat(parts)


def similarity(K: Array, kernel: Kernel, X: Points, training: Points) -> Array:
    """Largest |k(x, x_i)| / sqrt(k(x, x) k(x_i, x_i)) of each row of K (m, n), shape (m,)."""
    xp = namespace(K)
    norm_x, norm_t = (xp.sqrt(kernel._diag(points)) for points in (X, training))
    # Where a norm is zero so is K: dividing by one leaves it.
    norm_x, norm_t = (xp.where(norm > 0, norm, 1.0 + norm) for norm in (norm_x, norm_t))
    return xp.clip(xp.max(xp.abs(K) / norm_t, axis=1) / norm_x, 0.0, 1.0)


def usual_support(kernel: Kernel, X: Points) -> float:
    """Similarity to the nearest other point (landmark) that 99 % of a training sample reach."""
    chosen, others, exact = loo_subset(count(X), SUPPORT_POINTS), kernel.anchors(X), kernel.exact
    norms, sizes = (_norms(exact, points) for points in (take(X, chosen), others))
    near = np.empty(len(chosen))
    for rows in row_blocks(len(chosen), len(sizes)):
        K = np.abs(as_doubles(exact(take(X, chosen[rows]), others))) / sizes
        K /= norms[rows, None]
        if others is X:
            K[np.arange(len(K)), chosen[rows]] = 0.0
        else:  # a landmark is not its own neighbour
            K[K >= 1.0 - SAME] = 0.0
        near[rows] = K.max(axis=1)
    return float(np.quantile(near, OUTLYING))


def _norms(kernel: Kernel, points: Points) -> Floats:
    """Norms (n,) in the RKHS, one where they are zero."""
    values = np.sqrt(as_doubles(kernel.diag(points)))
    return np.where(values > 0.0, values, 1.0)


def trust(support: Array, usual: float) -> Array:
    """How far points of this support (m,) can be trusted, from 0 to 1."""
    xp = namespace(support)
    found = xp.clip(support / (UNUSUAL * usual), 0.0, 1.0) if usual > 0.0 else 1.0 + 0.0 * support
    return xp.where(support > 0.0, found, 0.0 * found)


# --- mass -----------------------------------------------------------------------------------------


def usual_mass(rule: Conditional) -> float:
    """Mass that 99 % of the training sample reach, each point left out of its own posterior.

    A smoother leaves a point out in closed form: of mass m with own weight h, (m - h) / (1 - h) is
    left. Points count by their weight under the prior.
    """
    rule = replace(rule, operator=rule.solver, lift=None)
    chosen = loo_subset(rule.n, MASS_POINTS)
    points, weights = take(rule.inputs.points, chosen), rule.solver.weights
    counts = np.ones(rule.n) if weights is None else np.maximum(as_doubles(weights), 0.0)
    if rule.inputs.kernel.finite:
        Phi = rule.inputs.kernel.features(points).T
        ones = rule.inputs.uniform[:, None] * rule.n
        mass = as_doubles(rule.expect(rule.regression(ones), points))[:, 0]
        own = np.sum(as_doubles(Phi) * as_doubles(rule.solver.coefficients(Phi)), axis=0)
        own = own if weights is None else own * as_doubles(weights)[chosen]
    else:
        W = as_doubles(rule.spread(points))
        mass, own = W.sum(axis=0), W[chosen, np.arange(len(chosen))]
    rest = 1.0 - own
    left = np.where(rest > LEAST_MASS, (mass - own) / np.where(rest > LEAST_MASS, rest, 1.0), 0.0)
    return _quantile(left, counts[chosen], OUTLYING)


def _quantile(values: Floats, weights: Floats, share: float) -> float:
    """Smallest value below which at least a share of the weight lies."""
    if not weights.sum() > 0.0:
        return 0.0
    order = np.argsort(values)
    below = np.cumsum(weights[order])
    return float(values[order][np.searchsorted(below, share * below[-1])])


def first_few(indices: Sequence[int] | Ints) -> str:
    """Return indices for a warning: the first, and whether there are more."""
    shown = ", ".join(str(int(i)) for i in indices[:SHOWN])
    return shown + ", ..." * (len(indices) > SHOWN)
