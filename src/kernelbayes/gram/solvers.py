"""Factorisations with a rescue policy, and the solvers made of them."""

from __future__ import annotations

import math
import warnings
from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
from array_api_compat import device

from kernelbayes.arrays import (
    Array,
    NumericalWarning,
    as_floats,
    epsilon,
    namespace,
    threads_for,
    to_float,
)
from kernelbayes.gram.lapack import LinAlgError, cho_solve, cholesky, condition_number, eigh

# Each attempt raises the ridge by one digit. A matrix that needs more than this share of its
# largest diagonal entry (about half the digits of single precision) was not made indefinite by
# rounding.
RESCUE_FACTOR = 10.0
RESCUE_BOUND = 1e-4


@dataclass(frozen=True)
class Diagnostics:
    """What happened in a factorisation.

    Attributes
    ----------
    size : int
        Rows of the factored matrix (active points, or the rank of the factor).
    ridge : float
        Regularisation asked for, on the scale of the factored matrix.
    ridge_used : float
        Regularisation used; larger than ``ridge`` after a rescue.
    rescues : int
        How often the ridge was multiplied by ``RESCUE_FACTOR``.
    condition : float
        Estimated condition number of the regularised matrix, in the 1-norm.
    """

    size: int
    ridge: float
    ridge_used: float
    rescues: int
    condition: float


@dataclass(frozen=True, eq=False)
class Solver(ABC):
    """A factored linear map of right-hand sides, and how it came about. Plain data: it pickles.

    ``solve(B)`` takes B (n,) or (n, k) and gives weights; ``values(B)`` gives them before the
    multiplication by r or d (zero where r is zero). For a low-rank Gram, ``solve_features(Phi)``
    takes B = L Phi as its features Phi (r,) or (r, k), which costs less and loses no digits;
    ``coefficients(Phi)`` stops before the expansion over points, at (r, k).
    """

    diagnostics: Diagnostics
    weights: Array | None  # r or d; None for ``ridge``

    @abstractmethod
    def values(self, B: Array) -> Array:
        """Return V (n,) or (n, k) such that ``solve(B)`` is R V or D V; itself for ``ridge``."""

    def solve(self, B: Array) -> Array:
        """Weights (n,) or (n, k) for right-hand sides B (n,) or (n, k)."""
        return self.weigh(self.values(B))

    def weigh(self, V: Array) -> Array:
        """R V or D V; V itself for ``ridge``."""
        return V if self.weights is None else scale_rows(self.weights, V)

    def coefficients(self, Phi: Array) -> Array:
        """Coefficients (r,) or (r, k) for right-hand sides given by features (r,) or (r, k)."""
        del Phi
        raise TypeError("a dense Gram matrix has no features; use solve(B)")

    def values_features(self, Phi: Array) -> Array:
        """Return ``values`` for right-hand sides L Phi given by features Phi."""
        del Phi
        raise TypeError("a dense Gram matrix has no features; use solve(B)")

    def solve_features(self, Phi: Array) -> Array:
        """Weights (n,) or (n, k) for right-hand sides L Phi given by features Phi."""
        return self.weigh(self.values_features(Phi))


@dataclass(frozen=True, eq=False)
class Square:
    """(C^2 + ridge I)^-1 for symmetric C: eigenvectors and values, or a Cholesky factor."""

    vectors: Array
    squares: Array | None
    diagnostics: Diagnostics

    @classmethod
    def of(cls, C: Array, ridge: float) -> Square:
        """Factor once; an eigendecomposition has no useful derivative, so torch gets Cholesky."""
        if not isinstance(C, np.ndarray):
            R, diagnostics = factor_with_ridge(C @ C, ridge)
            return cls(R, None, diagnostics)
        with threads_for(4.0 * len(C) ** 3):
            values, V = eigh(C)
        squares = values * values + ridge
        condition = float(squares.max() / squares.min()) if len(squares) else 1.0
        return cls(V, squares, Diagnostics(len(C), ridge, ridge, 0, condition))

    def solve(self, B: Array) -> Array:
        """(C^2 + ridge I)^-1 B."""
        if self.squares is None:
            return solve_factored(self.vectors, B)
        return self.vectors @ scale_rows(1.0 / self.squares, self.vectors.T @ B)


def factor_with_ridge(A: Array, ridge: float, overwrite: bool = False) -> tuple[Array, Diagnostics]:
    """Cholesky factor of A + ridge I (r, r), with the rescue policy of this module."""
    n = A.shape[0]
    xp = namespace(A)
    diag = xp.linalg.diagonal(A)
    largest = to_float(xp.max(diag)) if n else 0.0
    if not math.isfinite(largest):
        raise ValueError("the Gram matrix has NaN or infinite entries; check the kernel's scale")
    bound = max(RESCUE_BOUND * largest, ridge)
    used, rescues = ridge, 0
    with threads_for(n**3 / 3):
        while True:
            try:
                L = cholesky(_add_diagonal(A, used, overwrite and rescues == 0))
                break
            except LinAlgError:
                if overwrite and rescues == 0:  # undo the first addition, made in place
                    A = _add_diagonal(A, -used, True)
                step = max(used, epsilon(A) * n * largest) * RESCUE_FACTOR
                if used >= bound or step <= 0.0:
                    raise LinAlgError(
                        f"a Gram matrix of size {n} is not positive semi-definite even with a "
                        f"ridge of {used:.1e}; check the kernel with kernelbayes.laws.check_kernel"
                    ) from None
                used, rescues = min(step, bound), rescues + 1
        if rescues:
            warn_rescued(n, ridge, used)
        missing = 0.0 if overwrite and not rescues and isinstance(A, np.ndarray) else used
        return L, Diagnostics(n, ridge, used, rescues, condition_number(A, L, missing))


def warn_rescued(n: int, ridge: float, used: float) -> None:
    """Say that a ridge was raised."""
    warnings.warn(
        f"a Gram matrix of size {n} was not numerically positive definite; its ridge was raised "
        f"from {ridge:.1e} to {used:.1e}. Use a larger ridge or a smaller bandwidth",
        NumericalWarning,
        stacklevel=4,
    )


def check_ridge(ridge: float) -> float:
    """Return the ridge as a positive finite float."""
    if isinstance(ridge, str):
        raise ValueError(f"a ridge is a positive number or 'loo', got {ridge!r}")
    value = float(ridge)
    if not (math.isfinite(value) and value > 0.0):
        raise ValueError(f"a ridge must be positive and finite, got {ridge!r}")
    return value


def check_finite(A: Array) -> None:
    """Raise ValueError if A has NaN or infinite entries."""
    xp = namespace(A)
    if not bool(xp.all(xp.isfinite(A))):
        raise ValueError("the Gram matrix has NaN or infinite entries; check the kernel's scale")


def same_kind(template: Array, B: Array) -> Array:
    """Return B if it is an array of the template's kind."""
    namespace(template, B)  # a TypeError for mixed kinds
    return B


def check_weights(weights: Array, n: int, template: Array = None, signed: bool = True) -> Array:
    """Weights (n,) of the template's kind, not negative unless signed."""
    weights = as_floats(weights, "weights")
    if template is not None:
        same_kind(template, weights)
    if tuple(weights.shape) != (n,):
        raise ValueError(f"weights must have shape ({n},), got {tuple(weights.shape)}")
    if not signed and bool(namespace(weights).any(weights < 0)):
        raise ValueError("weights must not be negative here; take max(0, weights) first")
    return weights


def _add_diagonal(A: Array, c: float, in_place: bool) -> Array:
    if isinstance(A, np.ndarray):
        A = A if in_place else A.copy()
        A.flat[:: A.shape[0] + 1] += c
        return A
    return A + c * namespace(A).eye(A.shape[0], dtype=A.dtype, device=device(A))


def scale_rows(s: Array, B: Array) -> Array:
    """Multiply row i of B (n,) or (n, k) by s_i."""
    same_kind(s, B)
    return s[:, None] * B if B.ndim == 2 else s * B


def solve_factored(L: Array, B: Array) -> Array:
    """Solve L L^T Y = B with as many threads as the size deserves."""
    columns = 1 if same_kind(L, B).ndim == 1 else B.shape[1]
    with threads_for(2.0 * L.shape[0] ** 2 * columns):
        return cho_solve(L, B)
