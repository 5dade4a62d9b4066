"""The estimator of a conditional embedding: pairs in, embeddings of Z given x out."""

from dataclasses import dataclass, field, replace
from typing import Self

import numpy.typing as npt

from kernelbayes.embedding import Batch, Embedding, MeanElement
from kernelbayes.gram.solvers import ridge_or_loo
from kernelbayes.kernels import Kernel
from kernelbayes.points import as_fine_as, count
from kernelbayes.rules.conditional import Conditional, Ridge, filled, warn_unsupported
from kernelbayes.rules.merging import Merging
from kernelbayes.rules.scales import KernelLike, pair_kernels
from kernelbayes.rules.support import centre_of
from kernelbayes.rules.variable import Variable, default_rank, variable
from kernelbayes.scale.sources import Columns, as_source
from kernelbayes.scale.statistics import Statistics
from kernelbayes.types import Array, Floats, Points, PointsLike


@dataclass(eq=False)
class ConditionalEmbedding(Merging):
    """Embedding of Z given X, learned from pairs by vector-valued ridge regression.

    Parameters
    ----------
    kernel_x, kernel_z : Kernel, optional
        None means default kernels, with a scale for each column; that of x is chosen by how well
        it predicts z, on 1000 landmarks for more than 5000 pairs. A kernel with finite features
        makes the cost linear in n. "precomputed": points are rows of kernel values at the training
        points (:class:`~kernelbayes.Precomputed`).
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

    kernel_x: KernelLike = None
    kernel_z: KernelLike = None
    ridge: Ridge = "loo"
    fill: bool = False
    _fitted: Conditional | None = field(default=None, init=False, repr=False)
    statistics_: Statistics | None = field(default=None, init=False, repr=False)

    def fit(
        self, X: PointsLike, Z: PointsLike = None, *, copy: bool = True,
        columns: Columns | None = None, client: object = None,
    ) -> Self:  # fmt: skip
        """Learn Z given X from pairs: points X (n, ...) and Z (n, ...), or a source of them.

        Without a ``copy``, who changes the arrays later changes what was learned. Sources,
        ``columns`` and ``client`` are those of :meth:`KernelBayesRule.fit`.
        """
        if Z is None or columns is not None or hasattr(X, "to_delayed"):
            source = as_source(X, Z, columns, client)
            if source is not None:
                return self._fit_source(source)
        return self._learn(*self._variables(X, Z, copy))

    def _variables(
        self, X: PointsLike, Z: PointsLike, copy: bool = True
    ) -> tuple[Variable, Variable]:
        ridge_or_loo(self.ridge)
        kernel_x, kernel_z = pair_kernels(X, Z, self.kernel_x, self.kernel_z)
        rank = default_rank(kernel_x, self.kernel_x, count(kernel_x.points(X, "X")))
        inputs = variable(X, kernel_x, "X", rank, 0, copy)
        outputs = variable(Z, kernel_z, "Z", copy=copy)
        if inputs.n != outputs.n:
            raise ValueError(f"X and Z must be pairs, got {inputs.n} and {outputs.n} points")
        return replace(inputs, points=as_fine_as(outputs.points, inputs.points)), outputs

    def _learn(self, x: Variable, z: Variable, prior: object = None, again: object = None) -> Self:  # noqa: ARG002
        self._fitted, self.statistics_ = Conditional(x, z, self.ridge), None
        return self

    def _learned(self) -> tuple[Variable, Variable] | None:
        return None if self._fitted is None else (self._fitted.inputs, self._fitted.outputs)

    @property
    def conditional_(self) -> Conditional:
        """What was learned."""
        if self._fitted is None:
            raise ValueError("this ConditionalEmbedding is not fitted yet; call fit(X, Z) first")
        return self._fitted

    @property
    def n(self) -> int:
        """Number of training pairs."""
        return self.conditional_.n if self.statistics_ is None else round(self.statistics_.n)

    X_ = property(lambda self: self.conditional_.inputs.points, doc="Training points of x kept.")
    Z_ = property(lambda self: self.conditional_.outputs.points, doc="Training points of z kept.")
    kernel_x_ = property(lambda self: self.conditional_.inputs.kernel, doc="Kernel on x.")
    kernel_z_ = property(lambda self: self.conditional_.outputs.kernel, doc="Kernel on z.")
    ridge_ = property(lambda self: self.conditional_.ridge, doc="The ridge in use.")
    solver_ = property(lambda self: self.conditional_.solver, doc="The factored operator.")

    def __call__(self, X_new: PointsLike, kernel: Kernel | None = None) -> Batch | Embedding:
        """Embedding of P(Z | x), for the result perhaps another kernel; see Conditional."""
        full = self.filled(X_new, kernel)
        done = "is filled in" if self.fill else "would be filled in by fill=True"
        warn_unsupported(full.diagnostics.filled, "training marginal", done)
        if self.fill:
            return full
        return replace(full, weights=full.diagnostics.embedding.weights)

    def filled(self, X_new: PointsLike, kernel: Kernel | None = None) -> Batch | Embedding:
        """Embedding of P(Z | x), filled from the training marginal of Z, without a warning."""
        rule = self.conditional_
        found = replace(rule(X_new, kernel), centre=centre_of(rule.inputs, rule.outputs))
        return filled(rule, found, rule.outputs.uniform)

    def loo_errors(self, ridges: npt.ArrayLike | None = None) -> tuple[Floats, Floats]:
        """Ridges (q,), over nine decades by default, and leave-one-out errors in the RKHS (q,)."""
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
