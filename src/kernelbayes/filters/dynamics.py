r"""How states move: the learned transition operator, in feature space.

With features L (n, r) of the training states, a belief sum_i w_i phi(z_i) is the vector L^T w, and
every operator of a filter is an (r, r) matrix between two such vectors:

* transition weights over the m observed transitions, by the operator (KBR13 eq. 17, IW22 Alg. 2)

  .. math:: a = (G_{src} + m \eta' I)^{-1} G_{src,Z} w = L_{src} (L_{src}^\top L_{src} + m \eta'
            I)^{-1} L^\top w

  or by shift, ``a_j = w_{source(j)}`` (CME13 eq. 35);
* the prediction, the embedding ``sum_j a_j phi(z_target(j))``;
* the prior's weights on the training sample, ``gamma = (G_Z + n eta I)^-1 G_Z v``;
* the state given the next one, by Bayes' rule, for smoothing.

For an exact kernel L is a pivoted Cholesky factor to working precision, often far below n wide.
With controls the operator acts on pairs (z, u) under the product kernel.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from kernelbayes.arrays import Array, cho_solve, like, namespace, solve_triangular
from kernelbayes.filters.beliefs import normalised
from kernelbayes.filters.sequences import Index
from kernelbayes.gram import factor_with_ridge
from kernelbayes.gram.features import Landmarks, nystrom, pivoted_cholesky
from kernelbayes.kernels import Kernel, Parts
from kernelbayes.points import Points, count, take

# Relative trace error at which a factor stands for the exact Gram matrix.
EXACT = 1e-12


def compressed(kernel: Kernel, points: Points, rank: int | None, rng: Any) -> Kernel:
    """Kernel with finite features: Nystrom of a given rank, or exact to working precision."""
    if kernel.finite:
        return kernel
    if rank is not None:
        return nystrom(kernel, points, min(rank, count(points)), rng=rng)
    return pivoted_cholesky(kernel, points, tol=EXACT, rng=rng)


@dataclass(frozen=True, eq=False)
class Dynamics:
    """Operators of a filter on n training states and m transitions between them.

    Attributes
    ----------
    features : array (n, r)
        L, features of the states.
    to_prior : array (r, r)
        (L^T L + n eta I)^-1, applied to features of a prediction.
    transport : array (r, r)
        (L_src^T L_src + m eta' I)^-1.
    source, target : arrays (m,)
    shift : bool
        Whether weights are shifted along the transitions instead.
    controlled : Controlled or None
        The operator on (state, control) pairs.
    """

    features: Array
    to_prior: Array
    transport: Array
    source: Index
    target: Index
    shift: bool
    controlled: Controlled | None
    moved: Array | None = None  # features of the transitions' ends, if they are no training states

    def leading_to(self, moved: Array) -> Dynamics:
        """Return the same operators for transitions that end elsewhere."""
        return replace(self, moved=moved)

    @cached_property
    def before(self) -> Array:
        """Features (m, r) of the states that transitions start from."""
        return take(self.features, self.source)

    @cached_property
    def after(self) -> Array:
        """Features (m, r) of the states that transitions lead to."""
        return take(self.features, self.target) if self.moved is None else self.moved

    @property
    def n(self) -> int:
        """Number of training states."""
        return int(self.features.shape[0])

    def transition_weights(self, w: Array, control: Points | None = None) -> Array:
        """Weights a (m,) or (m, k) over transitions for beliefs w (n,) or (n, k)."""
        if self.shift:
            return take(w, self.source)
        if self.controlled is not None:
            return self.controlled.transition_weights(w, control)
        return self.before @ (self.transport @ (self.features.T @ w))

    def arrive(self, a: Array) -> Array:
        """Weights (n,) or (n, k) over the states of the transitions' ends."""
        return _scatter(a, self.target, self.n)

    def depart(self, a: Array) -> Array:
        """Weights (n,) over the states of the transitions' starts."""
        return _scatter(a, self.source, self.n)

    def back(self, w: Array, later: Array, control: Points | None, ridge: float) -> Array:
        """Smoothed belief (n,) from the filtered one w and the smoothed one a step later.

        The belief w is multiplied by the mean, given each state, of the ratio of ``later`` to the
        prediction. Both are embeddings, and the ratio is a regression in the prediction's
        covariance of features (as in Bayes' rule with the next state as observation). Where the two
        beliefs have no transition in common, w stays as it is.
        """
        a = self.transition_weights(w, control)
        xp = namespace(a)
        prior = xp.clip(a, min=0.0)
        total = xp.sum(prior)
        if not float(total) > 0.0:
            return w
        prior = prior / total
        C = self.after.T @ (prior[:, None] * self.after)
        R, _ = factor_with_ridge(C, ridge)
        # Errors of one step must not grow over many: negative weights feed them.
        ratio = xp.clip(self.after @ cho_solve(R, self.features.T @ later), min=0.0)
        mean = xp.clip(self.mean_after(ratio, control), min=0.0)
        result = normalised(xp.clip(w, min=0.0) * mean)
        return w if result is None else result

    def mean_after(self, values: Array, control: Points | None) -> Array:
        """Means (n,) of values (m,) at the transitions' ends, given each state."""
        if self.shift:
            return self.depart(values)
        if self.controlled is not None:
            return self.controlled.mean_after(values, control)
        return self.features @ (self.transport @ (self.before.T @ values))

    def prior_weights(self, v: Array) -> Array:
        """Weights gamma (n,) or (n, k) of a prediction v on the training sample."""
        return self.features @ (self.to_prior @ (self.features.T @ v))


@dataclass(frozen=True, eq=False)
class Controlled:
    """Transition operator on pairs (z, u), through pivots among the observed transitions."""

    features: Array  # (m, r) of the transitions
    transport: Array  # (r, r)
    factor: Array  # (r, r), Cholesky factor of the pivots' Gram matrix
    states: Array  # (n, r), kernel between the training states and the pivots' states
    kernel_u: Kernel
    pivots: Points  # controls of the pivots

    def transition_weights(self, w: Array, control: Points | None) -> Array:
        """Weights over transitions for beliefs w (n,) or (n, k), each under its own control."""
        if control is None:
            raise ValueError("this filter was fitted with controls: give the control of each step")
        known = self.kernel_u(self.pivots, control)  # (r, 1 or k)
        known = known if w.ndim == 2 else known[:, 0]
        Phi = solve_triangular(self.factor, (self.states.T @ w) * known)
        return self.features @ (self.transport @ Phi)

    def mean_after(self, values: Array, control: Points | None) -> Array:
        """Means (n,) of values (m,) at the transitions' ends, given each state and the control."""
        known = self.kernel_u(self.pivots, control)[:, 0]
        Phi = self.transport @ (self.features.T @ values)
        return self.states @ (known * solve_triangular(self.factor, Phi, transpose=True))

    @classmethod
    def learn(
        cls, kernel_z: Kernel, kernel_u: Kernel, Z: Points, source: Index, U: Points,
        ridge: float, rank: int | None, rng: Any,
    ) -> Controlled:  # fmt: skip
        """Learn from states Z (n, ...) and the controls U (m, ...) of the transitions."""
        kernel = Parts({"z": kernel_z, "u": kernel_u})
        pairs = {"z": take(Z, source), "u": U}
        if kernel.finite:  # landmarks need kernels of points, not features
            kernel_z, kernel_u = _underlying(kernel_z), _underlying(kernel_u)
            kernel = Parts({"z": kernel_z, "u": kernel_u})
        joint = compressed(kernel, pairs, rank, rng)
        assert isinstance(joint, Landmarks)
        F = joint.features(pairs)
        return cls(
            F, inverse_ridge(F, ridge), joint.factor, kernel_z(Z, joint.landmarks["z"]),
            kernel_u, joint.landmarks["u"],
        )  # fmt: skip


def inverse_ridge(F: Array, ridge: float) -> Array:
    """(F^T F + n ridge I)^-1, (r, r): applied at every step, so formed once."""
    R, _ = factor_with_ridge(F.T @ F, F.shape[0] * ridge)
    return cho_solve(R, like(np.eye(F.shape[1]), R))


def _underlying(kernel: Kernel) -> Kernel:
    inner = getattr(kernel, "kernel", kernel)
    return inner if isinstance(inner, Kernel) else kernel


def _scatter(a: Array, index: Index, n: int) -> Array:
    if isinstance(a, np.ndarray):
        result = np.zeros((n, *a.shape[1:]), dtype=a.dtype)
        result[index] = a
        return result
    xp = namespace(a)
    position = np.full(n, len(index))
    position[index] = np.arange(len(index))
    padded = xp.concat([a, 0.0 * a[:1, ...]], axis=0)
    return xp.take(padded, like(position, to_index(a)), axis=0)


def to_index(a: Array) -> Array:
    """Array of the kind of ``a`` whose type is an index."""
    return namespace(a).asarray(np.zeros(1, dtype=np.int64), device=getattr(a, "device", None))
