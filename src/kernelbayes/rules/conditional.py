r"""Conditional embeddings: the distribution of Z given X = x, for every x, as one operator.

A conditional embedding is a vector-valued ridge regression from the features of x to the features
of z (CME13 section 3.2). From pairs (x_i, z_i), the embedding of P(Z | x) is a weighted sample
over the z_i,

.. math:: \mu_{Z|x} = \sum_i w_i(x) \, k_Z(z_i, \cdot), \qquad
          w(x) = (G_X + n \lambda I)^{-1} k_X(X, x)

so everything that can be read off an embedding can be read off the conditional distribution.
What :class:`~kernelbayes.ConditionalEmbedding` learns and what the rules take and return is one
frozen value, :class:`Conditional`: inputs, outputs and the operator between them.

Outside the sample, estimators fill in from a prior; see :mod:`kernelbayes.rules.support`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, TypeVar

import numpy as np
import numpy.typing as npt

from kernelbayes.arrays import CACHED, as_doubles, namespace, row_blocks, to_float, to_numpy, warn
from kernelbayes.embedding import Batch, Embedding, MeanElement
from kernelbayes.gram import Factored, Solver, check_ridge
from kernelbayes.gram.loo import least_ridge, loo, loo_subset, ridge_grid
from kernelbayes.gram.solvers import FactoredRidge
from kernelbayes.kernels import Kernel
from kernelbayes.kernels.base import as_kernel
from kernelbayes.points import count, take
from kernelbayes.rules.diagnostics import PosteriorDiagnostics
from kernelbayes.rules.support import UNUSUAL as UNUSUAL
from kernelbayes.rules.support import divided, features_and_support, of_seen, replaced, usual_mass
from kernelbayes.rules.support import fill_weights as fill_weights
from kernelbayes.rules.support import trust as trust
from kernelbayes.rules.variable import Variable
from kernelbayes.types import Array, Bools, Floats, Ints, Points, PointsLike

Ridge = float | Literal["loo"]
Answer = TypeVar("Answer", bound=Batch | Embedding)
SHOWN = 5  # indices that a warning names: enough to go and look, and one line long
_no_rows = np.arange(0)


@dataclass(frozen=True, eq=False)
class Conditional:
    """Embedding of an output variable given an input variable, from pairs of their points.

    Attributes
    ----------
    inputs, outputs : Variable
    operator : Solver, float or "loo"
        A solver, or the ridge of the regression (G + n ridge I)^-1, which is chosen ("loo") and
        factored when it is first needed.
    lift : array (m, n), optional
        Weights over the outputs are ``solver.solve(k)`` without it, and ``lift @ solver.values(k)``
        with it: then the outputs (m points) are not paired with the inputs.
    centre : array (d,), optional
        Where means of the answers count the mass that is missing from one.
    """

    inputs: Variable
    outputs: Variable
    operator: Solver | Ridge = "loo"
    lift: Array | None = None
    centre: Array | None = None
    ones: Array | None = None  # coefficients (r, 1) of the mass, if they are known

    @property
    def n(self) -> int:
        """Number of training pairs."""
        return self.inputs.n

    @cached_property
    def ridge(self) -> float:
        """The ridge in use."""
        if isinstance(self.operator, Solver):
            return self.operator.diagnostics.ridge
        if self.operator != "loo":
            return check_ridge(self.operator)
        ridges, errors = self.loo_errors()
        return float(ridges[np.argmin(errors)])

    @cached_property
    def solver(self) -> Solver:
        """The factored operator."""
        if isinstance(self.operator, Solver):
            return self.operator
        return self.inputs.gram.ridge(self.ridge)

    @cached_property
    def usual_mass(self) -> float:
        """Mass that 99 % of the training inputs reach, each left out of its own answer."""
        return usual_mass(self)

    def loo_errors(self, ridges: npt.ArrayLike | None = None) -> tuple[Floats, Floats]:
        """Ridges (q,), by default over nine decades, and their leave-one-out errors (q,)."""
        keep = loo_subset(self.n)
        F = self.inputs.exact(keep)
        least = least_ridge(self.inputs.kernel, self.inputs.points)
        given = np.zeros(0) if ridges is None else np.atleast_1d(as_doubles(ridges, "ridges"))
        if given.ndim != 1 or not np.all(given > 0):
            raise ValueError(f"ridges must be positive numbers (q,), got {ridges!r}")
        found = ridge_grid(F, least=least) if ridges is None else given
        return found, loo(F, self.outputs.exact(keep), found).errors

    def __call__(self, X_new: PointsLike, kernel: Kernel | None = None) -> Batch | Embedding:
        """Embedding of the output given points x (m, ...): a Batch, or an Embedding for one x.

        ``kernel`` is another kernel on the output for the result (IW22 section 3.1: the weights may
        be learned with a Gaussian kernel and the mean read out with a linear one).
        """
        inputs, outputs = self.inputs, self.outputs
        points, single = inputs.kernel.query(X_new, inputs.points, inputs.names)
        weights, support = self._weights(points)
        kernel = outputs.kernel if kernel is None else as_kernel(kernel)
        batch = Batch(outputs.points, weights, kernel, outputs.names, centre=self.centre)
        none = 0.0 * support
        diagnostics = PosteriorDiagnostics(batch, support, self.solver.diagnostics, none, none)
        batch = replace(batch, diagnostics=diagnostics)
        return batch[0] if single else batch

    def apply(self, prior: MeanElement) -> Array:
        """Weights over the outputs of the operator applied to an embedding of the input."""
        if self.inputs.kernel.finite and isinstance(prior, Embedding):
            return self._lifted(self.solver.values_features(prior.features))
        return self._lifted(self.solver.values(prior(self.inputs.points)))

    def spread(self, points: Points) -> Array:
        """Weights (n, m) over the outputs for each of m checked input points, as columns."""
        return self._weights(points)[0].T

    def regression(self, values: Array, cross: Array | None = None) -> Array:
        """Coefficients with which :meth:`expect` gives E[values | x] at any x.

        ``values`` (n, k) is a function at the output points. The operator is symmetric, so f^T R is
        computed once (KBR13 eq. 14): coefficients over the training points (n, k), or over
        features (r, k), for which ``cross`` is L^T R f if it is known.
        """
        if self.lift is not None:
            return values
        G = self.inputs.gram
        if isinstance(G, Factored):
            cross = G.project(self.solver.weigh(values)) if cross is None else cross
            return G.corrected(self.solver, self.solver.coefficients(cross), values)
        return self.solver.solve(values)

    def expect(self, coefficients: Array, X: Points) -> Array:
        """Conditional expectations (m, k) at checked points, O(n) or O(r) each, in row blocks."""
        return self.supported(coefficients, X)[0]

    def supported(self, coefficients: Array, X: Points) -> tuple[Array, Array]:
        """Conditional expectations (m, k) at checked points, and the points' supports (m,)."""
        if self.lift is not None:
            weights, support = self._weights(X)
            return weights @ coefficients, support
        parts, near, finite = [], [], isinstance(self.inputs.gram, Factored)
        entries = CACHED if isinstance(coefficients, np.ndarray) else None
        for rows in row_blocks(count(X), coefficients.shape[0], entries):
            K, found = self._compared(take(X, rows), finite)
            parts.append(K @ coefficients)
            near.append(found)
        xp = namespace(*parts)
        return xp.concat(parts, axis=0), xp.concat(near)

    def _weights(self, points: Points) -> tuple[Array, Array]:
        """Weights (m, n) at checked points, and the similarity (m,) of the nearest input."""
        finite, solver = self.inputs.kernel.finite, self.solver
        K, near = self._compared(points, finite)
        return self._lifted((solver.values_features if finite else solver.values)(K.T)).T, near

    def _compared(self, X: Points, finite: bool) -> tuple[Array, Array]:
        """Features (m, r) or kernel values (m, n) of checked points, and their supports (m,)."""
        kernel, training = self.inputs.kernel, self.inputs.points
        if finite:
            return features_and_support(kernel, X, training)
        K = kernel._cross(X, training)
        near = kernel.similarity(K, X, training)
        return K, near if kernel.is_vector else of_seen(kernel, near, X, training)

    def _lifted(self, values: Array) -> Array:
        return self.solver.weigh_own(values) if self.lift is None else self.lift @ values


def filled(
    rule: Conditional, answer: Answer, prior: Array, normalize: bool = False, literal: bool = False
) -> Answer:
    """Answer of a rule, filled from the prior's weights (n,) at points outside the sample."""
    weights, support = answer.weights, answer.diagnostics.support
    xp = namespace(weights)
    W, near = xp.reshape(weights, (-1, weights.shape[-1])), xp.reshape(support, (-1,))
    out = _no_rows if literal else outside(rule, near)
    found, share = divided(W, xp.sum(W, axis=1), prior) if normalize else (W, 0.0 * near)
    doubt = share
    if len(out):
        new = fill(rule, take(W, out), take(near, out), prior, normalize)
        old = found, share, doubt
        found, share, doubt = (replaced(a, b, out) for a, b in zip(old, new, strict=True))
    elif not normalize:
        return answer
    share, doubt = (xp.reshape(a, support.shape) for a in (share, doubt))
    diagnostics = replace(answer.diagnostics, prior_share=share, filled=doubt)
    return replace(answer, weights=xp.reshape(found, weights.shape), diagnostics=diagnostics)


def filled_values(
    rule: Conditional, X: Points, coefficients: Array, given: Callable[[], tuple[Array, Array]],
    normalize: bool = False, literal: bool = False,
) -> tuple[Array, Array]:  # fmt: skip
    """Return E[values] (m, k) under :func:`filled` answers, and how much is filled in (m,).

    ``given`` says the values (n, k) and the prior's weights (n,), where they are needed.
    """
    found, near = rule.supported(coefficients, X)
    found, mass = found[:, :-1], found[:, -1]
    raw, share = found, 0.0 * near
    out = _no_rows if literal else outside(rule, near)
    if not len(out) and not normalize:
        return found, share
    values, prior = given()
    if normalize:
        found, share = divided(found, mass, prior @ values)
    if not len(out):
        return found, share
    plain = out[_plain(rule, take(X, out), take(mass, out))]
    if len(plain):  # no weights are needed
        both = take(raw, plain), take(near, plain)
        new, _, own = fill(rule, *both, prior @ values, normalize, take(mass, plain))
        found, share = replaced(found, new, plain), replaced(share, own, plain)
        out = np.setdiff1d(out, plain)
    for block in row_blocks(len(out), rule.outputs.n):
        at = out[block]
        W, _, own = fill(rule, rule.spread(take(X, at)).T, take(near, at), prior, normalize)
        found, share = replaced(found, W @ values, at), replaced(share, own, at)
    return found, share


def outside(rule: Conditional, support: Array) -> Ints:
    """Return the indices of the points with less than the usual support (m,)."""
    near = as_doubles(support)
    return np.flatnonzero(~((near >= rule.inputs.usual_support) & (near > 0.0)))


def _plain(rule: Conditional, X: Points, mass: Array) -> Bools:
    """Which answers (m,) of this mass have an effective sample size of at least one, for sure.

    Their squared weights sum to c^T L^T R^2 L c with coefficients c, at most max(r) c^T L^T R L c.
    """
    solver = rule.solver
    if type(solver) is not FactoredRidge or rule.lift is not None:
        return np.zeros(len(mass), dtype=bool)
    Phi = rule.inputs.kernel.features(X).T
    c = solver.coefficients(Phi)
    squares = as_doubles(namespace(c).sum(c * (Phi - solver.diagnostics.ridge_used * c), axis=0))
    largest = 1.0 if solver.weights is None else to_float(namespace(c).max(solver.weights))
    return np.asarray(as_doubles(mass) ** 2 >= largest * np.abs(squares))


def fill(
    rule: Conditional, W: Array, support: Array, prior: Array, normalize: bool,
    mass: Array | None = None,
) -> tuple[Array, Array, Array]:  # fmt: skip
    """:func:`fill_weights` for a rule's weights (m, n) outside the sample."""
    x, p = rule.inputs, rule.inputs.sharpening
    t = trust(support**p, x.usual_support**p)
    return fill_weights(W, t, min(rule.usual_mass, 1.0), prior, normalize, mass)


def warn_unsupported(filled: Array, prior: str = "prior", done: str = "is filled in") -> None:
    """Say how many points lie outside the training sample, which, and how much is filled in."""
    found = describe_shares(filled, "points")
    if found:
        warn(
            f"{found[0]} lie outside the training sample, which says little or nothing about them: "
            f"{found[1]} of the answer {done}, from the {prior} or by positive weights alone"
        )


def describe_shares(share: Array, what: str) -> tuple[str, str] | None:
    """Which of many have more than UNUSUAL of something, and how much, in words; None if none."""
    shares = np.atleast_1d(to_numpy(share))
    found = np.flatnonzero(shares > UNUSUAL)
    if not len(found):
        return None
    low, high = shares[found].min(), shares[found].max()
    between = f"{low:.0%} to {high:.0%}" if high - low >= 0.01 else f"{high:.0%}"
    return f"{len(found)} of {len(shares)} {what} ({first_few(found)})", between


def first_few(indices: Sequence[int] | Ints) -> str:
    """Return indices for a warning: the first, and whether there are more."""
    shown = ", ".join(str(int(i)) for i in indices[:SHOWN])
    return shown + ", ..." * (len(indices) > SHOWN)
