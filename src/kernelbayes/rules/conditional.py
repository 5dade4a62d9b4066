r"""Conditional embeddings: the distribution of Z given X = x, for every x, as one operator.

A conditional embedding is a vector-valued ridge regression from the features of x to the features
of z (CME13 section 3.2). From pairs (x_i, z_i), the embedding of P(Z | x) is a weighted sample
over the z_i,

.. math:: \mu_{Z|x} = \sum_i w_i(x) \, k_Z(z_i, \cdot), \qquad
          w(x) = (G_X + n \lambda I)^{-1} k_X(X, x)

so everything that can be read off an embedding can be read off the conditional distribution.
What :class:`~kernelbayes.ConditionalEmbedding` learns and what the rules take and return is one
frozen value, :class:`Conditional`: inputs, outputs and the operator between them.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal, Self

import numpy as np
import numpy.typing as npt

from kernelbayes.arrays import Array, Floats, as_doubles, namespace, row_blocks
from kernelbayes.embedding import Batch, Embedding, MeanElement
from kernelbayes.gram import Factored, Solver, check_ridge
from kernelbayes.gram.loo import least_ridge, loo, loo_subset, ridge_grid
from kernelbayes.gram.solvers import ridge_or_loo
from kernelbayes.kernels import Kernel
from kernelbayes.kernels.base import as_kernel
from kernelbayes.points import (
    Points,
    PointsLike,
    as_fine_as,
    count,
    take,
)
from kernelbayes.rules.centre import centre_of
from kernelbayes.rules.diagnostics import PosteriorDiagnostics
from kernelbayes.rules.scales import pair_kernels
from kernelbayes.rules.support import (
    filled,
    nearest_similarity,
    similarity,
    usual_mass,
    warn_unsupported,
)
from kernelbayes.rules.variable import Variable, variable

Ridge = float | Literal["loo"]


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
    """

    inputs: Variable
    outputs: Variable
    operator: Solver | Ridge = "loo"
    lift: Array | None = None

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
        X_new, single = inputs.query(X_new)
        points = inputs.kernel.points(X_new, "X_new")
        inputs.kernel.check_pair(points, inputs.points)
        weights, support = self._weights(points)
        kernel = outputs.kernel if kernel is None else as_kernel(kernel)
        batch = Batch(outputs.points, weights, kernel, outputs.names)
        diagnostics = PosteriorDiagnostics(batch, support, self.solver.diagnostics, 0.0 * support)
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
            return self.solver.coefficients(cross)
        return self.solver.solve(values)

    def expect(self, coefficients: Array, X: Points) -> Array:
        """Conditional expectations (m, k) at checked points, O(n) or O(r) each, in row blocks."""
        return self.supported(coefficients, X)[0]

    def supported(self, coefficients: Array, X: Points) -> tuple[Array, Array]:
        """Conditional expectations (m, k) at checked points, and the points' supports (m,)."""
        if self.lift is not None:
            weights, support = self._weights(X)
            return weights @ coefficients, support
        inputs, parts, near = self.inputs, [], []
        kernel, training = inputs.kernel, inputs.points
        for rows in row_blocks(count(X), coefficients.shape[0]):
            chunk = take(X, rows)
            if isinstance(inputs.gram, Factored):
                K = kernel.features(chunk)
                near.append(nearest_similarity(kernel, chunk, training))
            else:
                K = kernel(chunk, training)
                near.append(similarity(K, kernel, chunk, training))
            parts.append(K @ coefficients)
        xp = namespace(*parts)
        return xp.concat(parts, axis=0), xp.concat(near)

    def _weights(self, points: Points) -> tuple[Array, Array]:
        """Weights (m, n) at checked points, and the similarity (m,) of the nearest input."""
        kernel, training = self.inputs.kernel, self.inputs.points
        if kernel.finite:
            values = self.solver.values_features(kernel.features(points).T)
            return self._lifted(values).T, nearest_similarity(kernel, points, training)
        K = kernel._cross(training, points)  # both are checked
        return self._lifted(self.solver.values(K)).T, similarity(K.T, kernel, points, training)

    def _lifted(self, values: Array) -> Array:
        return self.solver.weigh(values) if self.lift is None else self.lift @ values


@dataclass(eq=False)
class ConditionalEmbedding:
    """Embedding of Z given X, learned from pairs by vector-valued ridge regression.

    Parameters
    ----------
    kernel_x, kernel_z : Kernel, optional
        None means default kernels, with a scale for each column; that of x is chosen by how well
        it predicts z. A kernel with finite features makes the cost linear in n.
    ridge : float or "loo"
        lambda in (G_X + n lambda I)^-1; "loo" minimises the closed-form leave-one-out error.
    fill : bool
        Fill what the sample does not say about x from the training marginal of Z, as
        :class:`~kernelbayes.KernelBayesRule` does from its prior. By default weights are those of
        the formula wherever x is, and a ``NumericalWarning`` names the points outside the sample
        (:mod:`kernelbayes.rules.support`).

    Attributes
    ----------
    conditional_ : Conditional
        What was learned, which the rules take and return.
    X_, Z_, kernel_x_, kernel_z_, ridge_
        Training points (embeddings are weighted samples over ``Z_``), kernels and ridge in use.
    solver_ : gram.Solver
        The factored operator (G_X + n ridge I)^-1, with its ``diagnostics``.

    Examples
    --------
    >>> from kernelbayes import ConditionalEmbedding, Delta
    >>> cme = ConditionalEmbedding(Delta(), Delta(), ridge=1e-9).fit(["a", "a", "b"], [1, 2, 2])
    >>> cme(["a", "b"]).weights.round(3)  # P(z | a) is half and half
    array([[0.5, 0.5, 0. ],
           [0. , 0. , 1. ]])
    """

    kernel_x: Kernel | None = None
    kernel_z: Kernel | None = None
    ridge: Ridge = "loo"
    fill: bool = False
    _fitted: Conditional | None = field(default=None, init=False, repr=False)

    def fit(self, X: PointsLike, Z: PointsLike, *, copy: bool = True) -> Self:
        """Learn Z given X from pairs: points X (n, ...) and Z (n, ...).

        Without a ``copy``, who changes the arrays later changes what was learned.
        """
        ridge_or_loo(self.ridge)
        kernel_x, kernel_z = pair_kernels(X, Z, self.kernel_x, self.kernel_z)
        inputs = variable(X, kernel_x, "X", copy=copy)
        outputs = variable(Z, kernel_z, "Z", copy=copy)
        if inputs.n != outputs.n:
            raise ValueError(f"X and Z must be pairs, got {inputs.n} and {outputs.n} points")
        inputs = replace(inputs, points=as_fine_as(outputs.points, inputs.points))
        self._fitted = Conditional(inputs, outputs, self.ridge)
        return self

    @property
    def conditional_(self) -> Conditional:
        """What was learned."""
        if self._fitted is None:
            raise ValueError("this ConditionalEmbedding is not fitted yet; call fit(X, Z) first")
        return self._fitted

    n = property(lambda self: self.conditional_.n, doc="Number of training pairs.")
    X_ = property(lambda self: self.conditional_.inputs.points, doc="Training points of x.")
    Z_ = property(lambda self: self.conditional_.outputs.points, doc="Training points of z.")
    kernel_x_ = property(lambda self: self.conditional_.inputs.kernel, doc="Kernel on x.")
    kernel_z_ = property(lambda self: self.conditional_.outputs.kernel, doc="Kernel on z.")
    ridge_ = property(lambda self: self.conditional_.ridge, doc="The ridge in use.")
    solver_ = property(lambda self: self.conditional_.solver, doc="The factored operator.")

    def __call__(self, X_new: PointsLike, kernel: Kernel | None = None) -> Batch | Embedding:
        """Embedding of P(Z | x), for the result perhaps another kernel; see Conditional."""
        full = self.filled(X_new, kernel)
        done = "is filled in" if self.fill else "would be filled in by fill=True"
        warn_unsupported(full.diagnostics.prior_share, "training marginal", done)
        if self.fill:
            return full
        return replace(full, weights=full.diagnostics.embedding.weights)

    def filled(self, X_new: PointsLike, kernel: Kernel | None = None) -> Batch | Embedding:
        """Embedding of P(Z | x), filled from the training marginal of Z, without a warning."""
        rule = self.conditional_
        found = replace(rule(X_new, kernel), centre=centre_of(rule.inputs, rule.outputs))
        return filled(rule, found, rule.outputs.uniform)

    def loo_errors(self, ridges: npt.ArrayLike | None = None) -> tuple[Floats, Floats]:
        """Ridges (q,), by default over nine decades, and their leave-one-out errors (q,).

        Means of ``|phi(z_i) - mu_{Z|x_i}^{(-i)}|^2``, in closed form (CME13 section 3.2).
        """
        return self.conditional_.loo_errors(ridges)

    def apply(self, prior: MeanElement) -> Array:
        """Weights (n,) over Z of the operator applied to an embedding over X (the sum rule)."""
        return self.conditional_.apply(prior)

    def regression(self, values: Array) -> Array:
        """Coefficients of E[values | x] from values (n, k) at the ``Z_``, for :meth:`expect`."""
        return self.conditional_.regression(values)

    def expect(self, coefficients: Array, X: Points) -> Array:
        """Conditional expectations (m, k) at checked points."""
        return self.conditional_.expect(coefficients, X)


def as_conditional(cme: ConditionalEmbedding | Conditional) -> Conditional:
    """Return the value that a rule works on, which a fitted estimator holds."""
    if isinstance(cme, ConditionalEmbedding):
        return cme.conditional_
    if not isinstance(cme, Conditional):
        raise TypeError(
            f"a conditional embedding is needed, got {type(cme).__name__}; fit one with "
            "ConditionalEmbedding().fit(X, Z)"
        )
    return cme
