"""Learning a conditional embedding from pairs.

The ridge is chosen by leave-one-out error in the RKHS of z, in closed form: one eigendecomposition
gives the error of every ridge, and no model is refitted.

>>> import numpy as np
>>> from kernelbayes import ConditionalEmbedding
>>> rng = np.random.default_rng(0)
>>> x = rng.uniform(-3, 3, size=400)
>>> z = np.sin(x) + 0.1 * rng.normal(size=400)
>>> cme = ConditionalEmbedding().fit(x, z)
>>> mu = cme(1.0)  # the embedding of P(Z | x = 1)
>>> bool(abs(mu.weights @ z - np.sin(1.0)) < 0.05)
True
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Self

import numpy.typing as npt

from kernelbayes.arrays import Array, Floats, Rng
from kernelbayes.embedding import Batch, Embedding, MeanElement
from kernelbayes.gram import check_ridge
from kernelbayes.gram.features import nystrom
from kernelbayes.kernels import Kernel
from kernelbayes.kernels.default import default_kernel
from kernelbayes.points import Points, PointsLike, column_names
from kernelbayes.rules.conditional import Conditional, Ridge, Variable


@dataclass(eq=False)
class ConditionalEmbedding:
    """Embedding of Z given X, learned from pairs by vector-valued ridge regression.

    Parameters
    ----------
    kernel_x, kernel_z : Kernel, optional
        None means the Gaussian kernel with the median heuristic for numbers and the Delta kernel
        for anything else. A kernel with finite features makes the cost linear in n.
    ridge : float or "loo"
        lambda in (G_X + n lambda I)^-1; "loo" minimises the closed-form leave-one-out error.

    Attributes
    ----------
    conditional_ : Conditional
        What was learned, which the rules take and return.
    X_, Z_ : points
        Training points; embeddings are weighted samples over ``Z_``.
    kernel_x_, kernel_z_ : Kernel
    ridge_ : float
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
    _fitted: Conditional | None = field(default=None, init=False, repr=False)

    def fit(self, X: PointsLike, Z: PointsLike) -> Self:
        """Learn Z given X from pairs: points X (n, ...) and Z (n, ...)."""
        if self.ridge != "loo":
            check_ridge(self.ridge)
        inputs = variable(X, self.kernel_x, "X")
        outputs = variable(Z, self.kernel_z, "Z")
        if inputs.n != outputs.n:
            raise ValueError(f"X and Z must be pairs, got {inputs.n} and {outputs.n} points")
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
        """Embedding of P(Z | x): an Embedding for one x, a Batch for many.

        ``kernel`` is another kernel on Z for the result; see :class:`Conditional`.
        """
        return self.conditional_(X_new, kernel)

    def loo_errors(self, ridges: npt.ArrayLike | None = None) -> tuple[Floats, Floats]:
        """Ridges (q,), by default over nine decades, and their leave-one-out errors (q,).

        These are means of ``|phi(z_i) - mu_{Z|x_i}^{(-i)}|^2``, in closed form (CME13 section 3.2).
        """
        return self.conditional_.loo_errors(ridges)

    def apply(self, prior: MeanElement) -> Array:
        """Weights (n,) over Z of the operator applied to an embedding over X (the sum rule)."""
        return self.conditional_.apply(prior)

    def regression(self, values: Array) -> Array:
        """Coefficients of E[values | x] from values (n, k) at the ``Z_``, for :meth:`expect`."""
        return self.conditional_.regression(values)

    def expect(self, coefficients: Array, X: Points) -> Array:
        """Conditional expectations (m, k) at checked points; see :meth:`regression`."""
        return self.conditional_.expect(coefficients, X)


def as_conditional(cme: ConditionalEmbedding | Conditional) -> Conditional:
    """Return what a rule works on: the value itself, or the one that a fitted estimator holds."""
    return cme if isinstance(cme, Conditional) else cme.conditional_


def variable(
    X: PointsLike, kernel: Kernel | None, name: str, rank: int | None = None, rng: Rng = None
) -> Variable:
    """Variable of a sample as a user gives it.

    Without a kernel it has the default one; with a rank, Nystrom features of that rank, unless the
    kernel has finite features already.
    """
    kernel = default_kernel(X, name) if kernel is None else kernel
    if rank is not None and not kernel.finite:
        kernel = nystrom(kernel, X, rank, rng=rng)
    return Variable(kernel.points(X, name), kernel, column_names(X))
