"""Leave-one-out errors of ridge regression in closed form, and what they are computed on.

One eigendecomposition gives the error of every ridge; no model is refitted. Everything works on
feature matrices, dense or low-rank alike: on finitely many points any kernel has exact finite
features.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from kernelbayes.arrays import eigh, threads_for, to_numpy
from kernelbayes.gram import Dense
from kernelbayes.kernels import (
    Gaussian,
    Kernel,
    Laplace,
    Linear,
    Matern,
    Polynomial,
    RationalQuadratic,
)
from kernelbayes.points import Points, concatenate, count

# Pairs on which leave-one-out errors are computed; a fixed random subset beyond this number.
LOO_POINTS = 2000


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
