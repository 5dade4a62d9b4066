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

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, Self

import numpy as np
from array_api_compat import is_array_api_obj

from kernelbayes.arrays import (
    Array,
    Points,
    as_array,
    as_vectors,
    column_names,
    concatenate,
    count,
    eigh,
    is_frame,
    namespace,
    row_blocks,
    take,
    threads_for,
    to_numpy,
)
from kernelbayes.embedding import Batch, Embedding, MeanElement
from kernelbayes.features import Fourier, Landmarks
from kernelbayes.kernels import (
    Delta,
    Gaussian,
    Kernel,
    Laplace,
    Linear,
    Matern,
    Polynomial,
    RationalQuadratic,
)
from kernelbayes.linalg import Dense, Diagnostics, Factored, Gram, Solver, check_ridge, gram

# Pairs on which leave-one-out errors are computed; a fixed random subset beyond this number.
LOO_POINTS = 2000


@dataclass(frozen=True)
class PosteriorDiagnostics:
    """How far an embedding made by a rule can be trusted; one entry per conditioning point.

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
    condition : float
        Estimated condition number of the regularised matrix.
    rescues : int
        How often the ridge had to be raised.
    """

    mass: Array
    ess: Array
    negative: Array
    support: Array
    condition: float
    rescues: int

    def __getitem__(self, index: Any) -> PosteriorDiagnostics:
        """Return the diagnostics of one conditioning point, or of a slice of them."""
        return replace(
            self,
            mass=self.mass[index],
            ess=self.ess[index],
            negative=self.negative[index],
            support=self.support[index],
        )


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
        solver: Diagnostics = self.solver_.diagnostics
        diagnostics = PosteriorDiagnostics(
            batch.mass, batch.ess, batch.negative, support, solver.condition, solver.rescues
        )
        batch = batch.with_diagnostics(diagnostics)
        return batch[0] if single else batch

    def apply(self, prior: MeanElement) -> Array:
        """Weights (n,) over Z of the operator applied to an embedding over X (the sum rule)."""
        if self.kernel_x_.finite and isinstance(prior, Embedding):
            return self._lift(self.solver_.values_features(prior.features))
        return self._lift(self.solver_.values(prior(self.X_)))

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
            K = self.kernel_x_(self.X_, points)
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
    if isinstance(array, np.ndarray) and array.dtype.kind == "O" and is_frame(X):
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
    scale = xp.sqrt(kernel.diag(X))[:, None] * xp.sqrt(kernel.diag(training))[None, :]
    positive = scale > 0
    ratios = xp.where(positive, K / xp.where(positive, scale, xp.ones_like(scale)), 0.0 * K)
    return xp.clip(xp.max(ratios, axis=1), 0.0, 1.0)


def _is_single(X_new: Any, training: Points) -> bool:
    """Whether X_new is one point: a scalar, a string, or an array of one point's shape."""
    if isinstance(X_new, str) or not is_array_api_obj(training):
        return isinstance(X_new, str)
    if is_frame(X_new) or isinstance(X_new, dict):
        return False
    shape, point = tuple(as_array(X_new).shape), tuple(training.shape[1:])
    return shape == () or (shape == point and point != (1,) and len(point) > 0)


# --- closed-form leave-one-out -------------------------------------------------------------------


def loo_subset(n: int, limit: int = LOO_POINTS) -> np.ndarray[Any, Any]:
    """All indices up to a limit, a fixed random subset beyond."""
    if n <= limit:
        return np.arange(n)
    return np.sort(np.random.default_rng(0).choice(n, limit, replace=False))


def exact_features(kernel: Kernel, *samples: Points) -> list[Any]:
    """Finite features (n_j, r) of several samples that reproduce the kernel among all of them.

    Any kernel has exact finite features on finitely many points: a factor of their joint Gram
    matrix. With them every closed form below has one code path, dense or low-rank.
    """
    if kernel.finite:
        return [np.asarray(to_numpy(kernel.features(X)), dtype=np.float64) for X in samples]
    joint = samples[0]
    for X in samples[1:]:
        joint = concatenate(joint, X)
    L = Dense(np.asarray(to_numpy(kernel(joint)), dtype=np.float64)).factor
    ends = np.cumsum([count(X) for X in samples])
    return np.split(L, ends[:-1])


def score_targets(kernel: Kernel, points: Points) -> Any:
    """Targets (n, q) of leave-one-out errors: vectors and the constant 1, or kernel features.

    For a kernel on vectors, what counts is the conditional mean and the mass: the coordinates, and
    the constant 1 as one more coordinate of their average variance. Anything else is scored in
    its RKHS.
    """
    if not on_vectors(kernel):
        return exact_features(kernel, points)[0]
    values = np.asarray(to_numpy(points), dtype=np.float64).reshape(count(points), -1)
    return with_constant(values, values)


def with_constant(values: Any, training: Any) -> Any:
    """Values (m, q) beside the constant 1 in units of the training values' standard deviation."""
    unit = float(np.sqrt(np.mean(np.var(training, axis=0)))) or 1.0
    return np.column_stack([values, np.full(len(values), unit)])


def on_vectors(kernel: Kernel) -> bool:
    """Whether squared distance is the natural error for the kernel's points."""
    while isinstance(getattr(kernel, "kernel", None), Kernel):
        kernel = kernel.kernel  # type: ignore[attr-defined]
    return isinstance(kernel, Gaussian | Laplace | Matern | RationalQuadratic | Linear | Polynomial)


def ridge_grid(F: Any, weights: Any = None, size: int = 28) -> Any:
    """Ridges over nine decades, in units of the mean squared feature norm."""
    squares = np.einsum("ij,ij->i", F, F)
    trace = float(squares.mean() if weights is None else weights @ squares)
    return (trace if trace > 0 else 1.0) * np.logspace(-8, 1, size)


def loo_errors(F: Any, H: Any, ridges: Any, weights: Any = None) -> Any:
    """Leave-one-out errors of ridge regression from features F (n, r) to targets H (n, q).

    Minimises ``sum_i r_i |h_i - E^T f_i|^2 + ridge |E|^2`` without pair i and scores
    ``sum_i r_i |h_i - E^(-i)T f_i|^2 / sum_i r_i`` for each ridge. By the PRESS identity the
    left-out residual is the residual over 1 - leverage, so that one eigendecomposition serves all.

    Parameters
    ----------
    F : array (n, r)
    H : array (n, q)
    ridges : array (p,)
    weights : array (n,), optional
        r_i >= 0; 1/n each if not given.

    Returns
    -------
    array (p,)
    """
    n = len(F)
    r = np.full(n, 1.0 / n) if weights is None else np.asarray(weights, dtype=float)
    F, H, r = F[r > 0], H[r > 0], r[r > 0]
    if len(r) == 0:
        return np.full(len(ridges), np.inf)
    root = np.sqrt(r)[:, None]
    A, Y = root * F, root * H
    with threads_for(float(A.size) * min(A.shape)):
        U, squares = _left_singular(A)
        projected = U.T @ Y
        outside = Y - U @ projected  # what no ridge can fit
        free = np.maximum(0.0, 1.0 - np.einsum("ij,ij->i", U, U))
        errors = np.empty(len(ridges))
        for i, ridge in enumerate(ridges):
            shrink = ridge / (squares + ridge)
            residual = outside + (U * shrink) @ projected
            one_minus_leverage = free + (U * U) @ shrink
            scale = np.maximum(one_minus_leverage, np.finfo(float).tiny)
            errors[i] = np.sum((residual / scale[:, None]) ** 2)
    return errors / r.sum()


def loo_predictions(F: Any, H: Any, ridges: Any, weights: Any = None) -> Iterator[Any]:
    """Left-out predictions (n, q) of the regression of :func:`loo_errors`, ridge by ridge.

    Also at pairs of weight zero, which the regression does not see.
    """
    n = len(F)
    r = np.full(n, 1.0 / n) if weights is None else np.asarray(weights, dtype=float)
    squares, V = eigh(F.T @ (r[:, None] * F))
    squares, P = np.maximum(squares, 0.0), F @ V
    cross = P.T @ (r[:, None] * H)
    for ridge in ridges:
        filtered = 1.0 / (squares + ridge)
        h = (r * ((P * P) @ filtered))[:, None]
        yield (P @ (filtered[:, None] * cross) - h * H) / np.maximum(1.0 - h, 1e-10)


def _left_singular(A: Any) -> tuple[Any, Any]:
    """Left singular vectors and squared singular values of A, to working precision."""
    if A.size == 0 or not A.any():  # a kernel that is zero on these points
        return A[:, :0], np.empty(0)
    if A.shape[0] < A.shape[1]:
        squares, U = eigh(A @ A.T)
        keep = squares > len(A) * np.finfo(float).eps * squares[-1]
        return U[:, keep], squares[keep]
    squares, V = eigh(A.T @ A)
    keep = squares > len(A) * np.finfo(float).eps * squares[-1]
    return (A @ V[:, keep]) / np.sqrt(squares[keep]), squares[keep]
