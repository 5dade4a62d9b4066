r"""Support: how much a training sample says about a point, and what the prior says elsewhere.

The *support* of x is its similarity :math:`\max_i |k(x, x_i)| / \sqrt{k(x, x) k(x_i, x_i)}` to the
nearest training point (or landmark of a low-rank kernel): 1 on one, 0 where nothing like x was
seen. It is *usual*, and x is inside the sample, where it is at least what 99 % of the training
points have to their nearest other one. There the answer is the rule's own, weights w.

Outside, a kernel regression extrapolates by large weights of both signs that nearly cancel, and
then loses mass. So estimators change the answer in two ways:

* Where the effective sample size is below one, weights are mostly noise. Their negative part is
  dropped in proportion: with e the effective sample size, at most 1, w becomes
  ``v = e w + (1 - e) w+``, where w+ are the positive weights with the mass of w.
* Mass that is missing is the prior's, pi:

  .. math:: t v + (1 - t c) \pi, \qquad c = \min(1, m / m_{usual}), \quad
            t = \min(1, s / (0.1 s_{usual})) \min(1, e / 0.1)

  with s the support and m the mass of w, which is usual where 99 % of the training points reach
  it, each left out of its own answer. Of a kernel wider than the typical distance between training
  points, s is that of the kernel as wide as that: a wide kernel reaches far, the sample does not.

So an answer goes over into the prior as x leaves the sample, and is the prior where nothing like x
was seen; a point with a category that no training point has, in any column, has no support.
``1 - t c`` is ``diagnostics.prior_share``. ``1 - t c e``, all that is not w, is
``diagnostics.filled``, and above 0.1 estimators warn. Filters trust an observation by the first
factor of t, with the prediction as the prior. The rules as functions, ``ConditionalEmbedding``
unless it is asked to fill, and ``KernelBayesRule(literal=True)`` give w as the papers do.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from array_api_compat import is_array_api_obj

from kernelbayes.arrays import (
    as_doubles,
    like,
    namespace,
    narrowed,
    row_blocks,
    to_float,
    to_numpy,
    total,
    weighted_sum,
    widened,
)
from kernelbayes.embedding.export import MOST_FILLED
from kernelbayes.embedding.mean import LEAST_MASS
from kernelbayes.gram.loo import loo_subset
from kernelbayes.kernels import Kernel
from kernelbayes.kernels.radial import typical
from kernelbayes.points import count, take
from kernelbayes.types import Array, Floats, Ints, Points

if TYPE_CHECKING:
    from kernelbayes.rules.conditional import Conditional
    from kernelbayes.rules.variable import Variable

# Share of the training sample that may lie below what is usual, for outliers.
OUTLYING = 0.01
# Training points that say what is usual: support needs a row of the Gram matrix for each, mass a
# solve.
SUPPORT_POINTS, MASS_POINTS = 500, 200
# A point with less than this share of the usual support is trusted in proportion: for a Gaussian
# kernel, two bandwidths away. So is one with a smaller effective sample size: its mean has three
# times the noise of a single z.
UNUSUAL = MOST_FILLED
# Similarities of a point to itself differ by less from one, and values k(x, x) from each other,
# relative to the largest: rounding of single precision.
SAME = 1e-6


# --- support --------------------------------------------------------------------------------------


def nearest_similarity(kernel: Kernel, X: Points, training: Points) -> Array:
    """Similarity of each x to the nearest training point (landmark), shape (m,), in blocks."""
    whole, training, kernel = training, kernel.anchors(training), kernel.exact
    parts = []
    for rows in row_blocks(count(X), count(training)):
        chunk = take(X, rows)
        parts.append(kernel.similarity(kernel(chunk, training), chunk, training))
    return of_seen(kernel, namespace(*parts).concat(parts), X, whole)


def features_and_support(kernel: Kernel, X: Points, training: Points) -> tuple[Array, Array]:
    """Features (m, r) and supports (m,) of checked points; of landmarks one matrix gives both."""
    anchored = kernel.anchored(X)
    if anchored is None:
        return kernel.features(X), nearest_similarity(kernel, X, training)
    Phi, K = anchored
    near, exact = kernel.exact.similarity(K.T, X, kernel.anchors(training)), kernel.exact
    return Phi.T, near if exact.is_vector else of_seen(exact, near, X, training)


def of_seen(kernel: Kernel, support: Array, X: Points, training: Points) -> Array:
    """Supports (m,) of points X, zero for those with a category that no training point has."""
    for (_, part, x), (_, _, known) in zip(*map(kernel.split, (X, training)), strict=True):
        if part.is_categorical and x.ndim == 1:
            support = support * like(np.isin(to_numpy(x), to_numpy(known)), support)
    return support


def usual_support(kernel: Kernel, X: Points) -> float:
    """Similarity to the nearest other point (landmark) that 99 % of a training sample reach."""
    chosen, others, exact = loo_subset(count(X), SUPPORT_POINTS), kernel.anchors(X), kernel.exact
    norms, sizes = (_norms(exact, points) for points in (take(X, chosen), others))
    near, every = np.empty(len(chosen)), np.arange(sizes.shape[0])
    for rows in row_blocks(len(chosen), len(every)):
        K = widened(exact(take(X, chosen[rows]), others))
        xp = namespace(K)
        K = xp.abs(K) / sizes / norms[rows, None]
        # A point is not its own neighbour, and neither is a landmark.
        own = K >= 1.0 - SAME if others is not X else like(chosen[rows, None] == every, K) > 0.5
        near[rows] = to_numpy(xp.max(xp.where(own, 0.0 * K, K), axis=1))
    return float(np.quantile(near, OUTLYING))


def sharpening(kernel: Kernel, X: Points) -> float:
    """Power by which a kernel wider than the typical distance of a sample is no wider than that."""
    K = as_doubles(kernel(take(X, loo_subset(count(X), MASS_POINTS))))
    K = K[np.tril_indices(len(K), -1)]
    distances = np.sqrt(-2.0 * np.log(K[(K > 0.0) & (K < 1.0)]))  # of a Gaussian, in bandwidths
    return max(1.0, typical(distances) ** -2.0) if len(distances) else 1.0


def _norms(kernel: Kernel, points: Points) -> Array:
    """Norms (n,) in the RKHS, one where they are zero."""
    values = widened(kernel.diag(points))
    xp = namespace(values)
    return xp.where(values > 0.0, xp.sqrt(values), xp.ones_like(values))


# --- mass -----------------------------------------------------------------------------------------


def usual_mass(rule: Conditional) -> float:
    """Mass that 99 % of the training sample (by prior weight) reach, each point left out."""
    rule = replace(rule, operator=rule.solver, lift=None)
    chosen = loo_subset(rule.n, MASS_POINTS)
    points, weights = take(rule.inputs.points, chosen), rule.solver.weights
    counts = np.ones(rule.n) if weights is None else np.maximum(as_doubles(weights), 0.0)
    if rule.inputs.kernel.finite:
        Phi = rule.inputs.kernel.features(points).T
        ones = rule.ones
        if ones is None:
            ones = rule.regression(rule.inputs.uniform[:, None] * rule.n)
        mass = as_doubles(rule.expect(ones, points))[:, 0]
        own = np.sum(as_doubles(Phi) * as_doubles(rule.solver.coefficients(Phi)), axis=0)
        own = own if weights is None else own * as_doubles(weights)[chosen]
    else:
        W = as_doubles(rule.spread(points))
        mass, own = W.sum(axis=0), W[chosen, np.arange(len(chosen))]
    return mass_left(mass, own, counts[chosen])


def mass_left(mass: Floats, own: Floats, counts: Floats) -> float:
    """Mass that 99 % of points (by counts) reach without their own weights, all (m,)."""
    rest = 1.0 - own
    left = np.where(rest > LEAST_MASS, (mass - own) / np.where(rest > LEAST_MASS, rest, 1.0), 0.0)
    return _quantile(left, counts, OUTLYING)


def _quantile(values: Floats, weights: Floats, share: float) -> float:
    """Smallest value below which at least a share of the weight lies."""
    if not weights.sum() > 0.0:
        return 0.0
    order = np.argsort(values)
    below = np.cumsum(weights[order])
    return float(values[order][np.searchsorted(below, share * below[-1])])


def fill_weights(
    W: Array, t: Array, usual: float, prior: Array, normalize: bool = False,
    mass: Array | None = None,
) -> tuple[Array, Array, Array]:  # fmt: skip
    """Weights (m, n), the prior's shares (m,) and all that is filled in (m,), from W trusted by t.

    With a mass (m,), W (m, k) and the prior (k,) are expectations instead, under weights of that
    mass whose effective sample size is at least one.
    """
    xp, known = namespace(W), mass is not None
    mass = xp.sum(W, axis=1) if mass is None else mass
    c = e = xp.ones_like(mass)
    if usual > 0.0:  # otherwise weights have no mass to speak of, as under a linear kernel
        c = xp.clip(mass / usual, 0.0, 1.0)
    if usual > 0.0 and not known:
        squares, positive = xp.sum(W * W, axis=1), xp.clip(W, min=0.0)
        e = xp.clip(mass**2 / xp.where(squares > 0, squares, xp.ones_like(mass)), 0.0, 1.0)
        size = xp.sum(positive, axis=1)
        scale = (1.0 - e) * xp.clip(mass, 0.0, 1.0) / xp.where(size > 0, size, xp.ones_like(size))
        W = e[:, None] * W + scale[:, None] * positive
        mass, t = xp.sum(W, axis=1), t * xp.clip(e / UNUSUAL, 0.0, 1.0)
    share = 1.0 - t * c
    if normalize:
        W, none = divided(W, mass, prior)
        share = xp.where(none > 0, none, share)
        t = 1.0 - share
    W = t[:, None] * W + share[:, None] * prior[None, :]
    return W, share, 1.0 - (1.0 - share) * e


def clipped(x: Array, low: float, high: float | None = None) -> Array:
    """Return x between bounds: for hot loops, where the array-API call costs more than the work."""
    if type(x) is not np.ndarray:
        return namespace(x).clip(x, low, high)
    x = np.maximum(x, low)
    return x if high is None else np.minimum(x, high)


def trust(support: Array, usual: float) -> Array:
    """How far points of this support (m,) can be trusted, from 0 to 1."""
    xp = namespace(support)
    found = clipped(support / (UNUSUAL * usual), 0.0, 1.0) if usual > 0.0 else 1.0 + 0.0 * support
    return xp.where(support > 0.0, found, 0.0 * found)


def divided(rows: Array, mass: Array, prior: Array) -> tuple[Array, Array]:
    """Rows (m, k) over their mass (m,), the prior (k,) where there is none; where that is (m,)."""
    xp = namespace(rows)
    none = xp.abs(mass) < LEAST_MASS
    found = rows / xp.where(none, xp.ones_like(mass), mass)[:, None]
    return xp.where(none[:, None], prior[None, :], found), xp.astype(none, mass.dtype)


def replaced(rows: Array, new: Array, index: Ints) -> Array:
    """Rows (m, ...) with new ones at some indices; no tensor is written, so gradients stay."""
    if isinstance(rows, np.ndarray):
        rows = rows.copy()
        rows[index] = new
        return rows
    places = np.arange(rows.shape[0])
    places[index] = rows.shape[0] + np.arange(len(index))
    return take(namespace(rows).concat([rows, new]), places)


# --- centre ---------------------------------------------------------------------------------------

# Weights of a rule need not sum to one: a ridge takes some of their mass. So means are taken around
# the mean c of the outputs under the prior, c + sum_i w_i (z_i - c): what is missing is the prior.
# Weights under a kernel on inputs without a constant k(x, x), a linear one for instance, are not
# those of a distribution and have no mass to speak of: sum_i w_i z_i is the regression, and stays.


def centre_of(inputs: Variable, outputs: Variable, weights: Array | None = None) -> Array | None:
    """Mean (d,) of vectors under positive weights (n,), or equal ones; None for other points."""
    own = as_doubles(inputs.kernel.exact.diag(take(inputs.points, loo_subset(inputs.n))))
    if float(np.ptp(own)) > SAME * float(np.abs(own).max()):
        return None
    Z, kernel = outputs.points, outputs.kernel
    if kernel.is_curved or kernel.is_categorical or not is_array_api_obj(Z) or Z.ndim != 2:
        return None
    xp = namespace(Z)
    if not xp.isdtype(Z.dtype, "real floating"):
        return None
    if outputs.mean is not None:
        return outputs.mean
    equal = xp.ones_like(Z[:, 0])
    w = equal if weights is None else xp.clip(weights, min=0.0)
    w = w if to_float(total(w)) > 0.0 else equal
    return narrowed(weighted_sum(w / total(w), Z), Z)
