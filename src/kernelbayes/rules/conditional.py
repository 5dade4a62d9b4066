r"""Conditional embeddings: the distribution of Z given X = x, for every x, as one operator.

A conditional embedding is a vector-valued ridge regression from the features of x to the features
of z (CME13 section 3.2). From pairs (x_i, z_i), the embedding of P(Z | x) is a weighted sample
over the z_i,

.. math:: \mu_{Z|x} = \sum_i w_i(x) \, k_Z(z_i, \cdot), \qquad
          w(x) = (G_X + n \lambda I)^{-1} k_X(X, x)

so everything that can be read off an embedding can be read off the conditional distribution.
Bayes' rule (:mod:`kernelbayes.rules`) returns the same type with another operator in the middle.

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
from functools import cached_property
from typing import Any, Literal, Self

import numpy as np
from array_api_compat import device, is_array_api_obj

from kernelbayes.arrays import Array, namespace, row_blocks
from kernelbayes.embedding import Batch, Embedding, MeanElement
from kernelbayes.gram import Diagnostics, Factored, Gram, Solver, check_ridge, gram
from kernelbayes.gram.features import Fourier, Landmarks
from kernelbayes.gram.loo import exact_features, loo_errors, loo_subset, ridge_grid
from kernelbayes.kernels import (
    Delta,
    Gaussian,
    Kernel,
)
from kernelbayes.points import Points, as_array, as_vectors, column_names, count, is_frame, take


@dataclass(frozen=True)
class PosteriorDiagnostics:
    """How far an embedding made by a rule can be trusted; one entry per conditioning point.

    Computed when asked for, from the embedding as the rule made it.

    Attributes
    ----------
    mass : array (m,)
        Sum of the weights; near 1 where the sample says much, near 0 far from it.
    ess : array (m,)
        Effective sample size.
    negative : array (m,)
        Share of negative weight, sum of |w_i| over w_i < 0 relative to all |w_i|.
    support : array (m,)
        Similarity k(x, x_i) / sqrt(k(x, x) k(x_i, x_i)) of the nearest training point (or
        landmark): 1 on a training point, 0 where nothing like x was seen.
    solver : linalg.Diagnostics
        Of the factorisation; ``condition`` (estimated condition number of the regularised matrix)
        and ``rescues`` (how often the ridge had to be raised) are read from it.
    """

    embedding: Batch | Embedding
    support: Array
    solver: Diagnostics

    def __repr__(self) -> str:
        """Say all but the embedding and the solver."""
        names = ("mass", "ess", "negative", "support", "condition", "rescues")
        return f"PosteriorDiagnostics({', '.join(f'{n}={getattr(self, n)!r}' for n in names)})"

    @property
    def mass(self) -> Array:
        """Sum of the weights."""
        return self.embedding.mass

    @property
    def ess(self) -> Array:
        """Effective sample size."""
        return self.embedding.ess

    @property
    def negative(self) -> Array:
        """Share of negative weight."""
        return self.embedding.negative

    @property
    def condition(self) -> float:
        """Estimated condition number of the regularised matrix."""
        return self.solver.condition

    @property
    def rescues(self) -> int:
        """How often the ridge had to be raised."""
        return self.solver.rescues

    def __getitem__(self, index: Any) -> PosteriorDiagnostics:
        """Return the diagnostics of one conditioning point, or of a slice of them."""
        assert isinstance(self.embedding, Batch)
        return PosteriorDiagnostics(self.embedding[index], self.support[index], self.solver)


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
    X_, Z_ : points
        Training points; embeddings are weighted samples over ``Z_``.
    kernel_x_, kernel_z_ : Kernel
    ridge_ : float
    solver_ : linalg.Solver
        The operator, with its ``diagnostics``.

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
    ridge: float | Literal["loo"] = "loo"
    # Set by fit, or by a rule.
    X_: Points = field(default=None, init=False, repr=False)
    Z_: Points = field(default=None, init=False, repr=False)
    names_x_: tuple[str, ...] | None = field(default=None, init=False, repr=False)
    names_z_: tuple[str, ...] | None = field(default=None, init=False, repr=False)
    lift_: Array | None = field(default=None, init=False, repr=False)

    def fit(self, X: Any, Z: Any) -> Self:
        """Learn Z given X from pairs: points X (n, ...) and Z (n, ...)."""
        if self.ridge != "loo":
            check_ridge(self.ridge)
        self.kernel_x_ = default_kernel(X) if self.kernel_x is None else self.kernel_x
        self.kernel_z_ = default_kernel(Z, "Z") if self.kernel_z is None else self.kernel_z
        self.X_ = self.kernel_x_.points(X, "X")
        self.Z_ = self.kernel_z_.points(Z, "Z")
        if count(self.X_) != count(self.Z_):
            raise ValueError(
                f"X and Z must be pairs, got {count(self.X_)} and {count(self.Z_)} points"
            )
        self.names_x_, self.names_z_ = column_names(X), column_names(Z)
        self.lift_ = None
        for name in ("gram_x_", "gram_z_", "solver_", "ridge_"):
            self.__dict__.pop(name, None)
        return self

    @classmethod
    def from_solver(
        cls,
        X: Points,
        Z: Points,
        kernel_x: Kernel,
        kernel_z: Kernel,
        gram_x: Gram,
        solver: Solver,
        lift: Array | None = None,
        names: tuple[tuple[str, ...] | None, tuple[str, ...] | None] = (None, None),
    ) -> ConditionalEmbedding:
        """Conditional embedding with a given operator: what the rules return.

        Weights over Z are ``solver.solve(k_x)``, or ``lift @ solver.values(k_x)``.
        """
        self = cls(kernel_x, kernel_z, solver.diagnostics.ridge)
        self.kernel_x_, self.kernel_z_, self.X_, self.Z_ = kernel_x, kernel_z, X, Z
        self.lift_, (self.names_x_, self.names_z_) = lift, names
        self.__dict__.update(gram_x_=gram_x, solver_=solver, ridge_=solver.diagnostics.ridge)
        return self

    @property
    def n(self) -> int:
        """Number of training pairs."""
        self._check_fitted()
        return count(self.X_)

    @cached_property
    def gram_x_(self) -> Gram:
        """Gram matrix of the conditioning variable."""
        self._check_fitted()
        return gram(self.kernel_x_, self.X_)

    @cached_property
    def gram_z_(self) -> Gram:
        """Gram matrix of the conditioned variable; Bayes' rule needs it."""
        self._check_fitted()
        return gram(self.kernel_z_, self.Z_)

    @cached_property
    def ridge_(self) -> float:
        """The ridge in use."""
        if self.ridge != "loo":
            return check_ridge(self.ridge)
        ridges, errors = self.loo_errors()
        return float(ridges[np.argmin(errors)])

    @cached_property
    def solver_(self) -> Solver:
        """The factored operator (G_X + n ridge I)^-1."""
        return self.gram_x_.ridge(self.ridge_)

    def loo_errors(self, ridges: Any = None) -> tuple[Any, Any]:
        """Leave-one-out errors of the regression in the RKHS of z (CME13 section 3.2).

        Parameters
        ----------
        ridges : array (q,), optional
            By default a logarithmic grid over nine decades.

        Returns
        -------
        ridges, errors : arrays (q,)
            Mean of ``|phi(z_i) - mu_{Z|x_i}^{(-i)}|^2`` for each ridge, in closed form.
        """
        self._check_fitted()
        keep = loo_subset(self.n)
        F = exact_features(self.kernel_x_, take(self.X_, keep))[0]
        H = exact_features(self.kernel_z_, take(self.Z_, keep))[0]
        ridges = ridge_grid(F) if ridges is None else np.asarray(ridges, dtype=float)
        return ridges, loo_errors(F, H, ridges)

    def __call__(self, X_new: Any, kernel: Kernel | None = None) -> Any:
        """Embedding of P(Z | x): an Embedding for one x, a Batch for many.

        Parameters
        ----------
        X_new : points (m, ...), or a single point
        kernel : Kernel, optional
            Another kernel on Z for the result (IW22 section 3.1: the weights may be learned with a
            Gaussian kernel and the mean read out with a linear one).
        """
        points, single = self.queries(X_new)
        weights, support = self._weights(points)
        batch = Batch(self.Z_, weights, kernel or self.kernel_z_, self.names_z_)
        diagnostics = PosteriorDiagnostics(batch, support, self.solver_.diagnostics)
        batch = batch.with_diagnostics(diagnostics)
        return batch[0] if single else batch

    def apply(self, prior: MeanElement) -> Array:
        """Weights (n,) over Z of the operator applied to an embedding over X (the sum rule)."""
        if self.kernel_x_.finite and isinstance(prior, Embedding):
            return self._lift(self.solver_.values_features(prior.features))
        return self._lift(self.solver_.values(prior(self.X_)))

    def smoothed_marginal(self) -> Array:
        """Weights (n,) of the operator applied to the training marginal; a ridge shrinks them."""
        G, n = self.gram_x_, self.n
        one = self.kernel_x_.diag(take(self.X_, slice(0, 1)))
        uniform = namespace(one).ones(n, dtype=one.dtype, device=device(one)) / n
        if isinstance(G, Factored):
            return self._lift(self.solver_.values_features(G.project(uniform)))
        return self._lift(self.solver_.values(G.matmul(uniform)))

    def regression(self, values: Array, cross: Array | None = None) -> Array:
        """Coefficients with which :meth:`expect` gives E[values | x] at any x.

        ``values`` (n, k) is a function at the ``Z_``. The operator is symmetric, so f^T R is
        computed once (KBR13 eq. 14): coefficients over the training points (n, k), or over
        features (r, k), for which ``cross`` is L^T R f if it is known.
        """
        if self.lift_ is not None:
            return values
        if isinstance(self.gram_x_, Factored):
            if cross is None:
                cross = self.gram_x_.project(self.solver_.weigh(values))
            return self.solver_.coefficients(cross)
        return self.solver_.solve(values)

    def expect(self, coefficients: Array, X: Points) -> Array:
        """Conditional expectations (m, k) at checked points, O(n) or O(r) each, in row blocks."""
        if self.lift_ is not None:
            return self._weights(X)[0] @ coefficients
        finite = isinstance(self.gram_x_, Factored)
        parts = []
        for rows in row_blocks(count(X), coefficients.shape[0]):
            chunk = take(X, rows)
            K = self.kernel_x_.features(chunk) if finite else self.kernel_x_(chunk, self.X_)
            parts.append(K @ coefficients)
        return parts[0] if len(parts) == 1 else namespace(*parts).concat(parts, axis=0)

    def queries(self, X_new: Any) -> tuple[Points, bool]:
        """Check conditioning points, and say whether a single one was given."""
        self._check_fitted()
        single = _is_single(X_new, self.X_)
        if single:
            X_new = as_array(X_new)[None] if is_array_api_obj(as_array(X_new)) else [X_new]
        points = self.kernel_x_.points(X_new, "X_new")
        self.kernel_x_.check_pair(points, self.X_)
        return points, single

    def _weights(self, points: Points) -> tuple[Array, Array]:
        if self.kernel_x_.finite:
            values = self.solver_.values_features(self.kernel_x_.features(points).T)
            support = nearest_similarity(self.kernel_x_, points, self.X_)
        else:
            K = self.kernel_x_._cross(self.X_, points)  # both are checked
            values = self.solver_.values(K)
            support = _similarity(K.T, self.kernel_x_, points, self.X_)
        return self._lift(values).T, support

    def _lift(self, values: Array) -> Array:
        return self.solver_.weigh(values) if self.lift_ is None else self.lift_ @ values

    def _check_fitted(self) -> None:
        if self.X_ is None:
            raise ValueError("this ConditionalEmbedding is not fitted yet; call fit(X, Z) first")


def default_kernel(X: Any, name: str = "X") -> Kernel:
    """Gaussian kernel with the median heuristic for numbers, Delta for anything else."""
    array = as_array(X, name)
    numeric = not isinstance(array, np.ndarray) or array.dtype.kind in "fiu"
    mixed = isinstance(array, np.ndarray) and array.dtype.kind == "O" and is_frame(X)
    if mixed and array.ndim == 2 and array.shape[1] > 1:
        raise TypeError("columns of mixed types have no default kernel; use Parts({...})")
    return Gaussian.median(as_vectors(X, name)) if numeric else Delta()


def nearest_similarity(kernel: Kernel, X: Points, training: Points) -> Array:
    """Similarity of each x to the nearest training point (landmark), shape (m,), in blocks."""
    if isinstance(kernel, Landmarks):
        training, kernel = kernel.landmarks, kernel.kernel
    elif isinstance(kernel, Fourier):
        kernel = kernel.kernel
    parts = []
    for rows in row_blocks(count(X), count(training)):
        chunk = take(X, rows)
        parts.append(_similarity(kernel(chunk, training), kernel, chunk, training))
    return namespace(*parts).concat(parts)


def _similarity(K: Array, kernel: Kernel, X: Points, training: Points) -> Array:
    xp = namespace(K)
    norm_x, norm_t = (xp.sqrt(kernel._diag(points)) for points in (X, training))
    # Where a norm is zero so is K: dividing by one leaves it.
    norm_x, norm_t = (xp.where(norm > 0, norm, 1.0 + norm) for norm in (norm_x, norm_t))
    return xp.clip(xp.max(K / norm_t, axis=1) / norm_x, 0.0, 1.0)


def _is_single(X_new: Any, training: Points) -> bool:
    """Whether X_new is one point: a scalar, a string, or an array of one point's shape."""
    if isinstance(X_new, str) or not is_array_api_obj(training):
        return isinstance(X_new, str)
    if is_frame(X_new) or isinstance(X_new, dict):
        return False
    shape, point = tuple(as_array(X_new).shape), tuple(training.shape[1:])
    return shape == () or (shape == point and point != (1,) and len(point) > 0)
