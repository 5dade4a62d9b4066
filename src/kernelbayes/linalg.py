r"""Regularised solves with a Gram matrix: the only file that factors matrices for the rules.

A :class:`Gram` is a positive semi-definite matrix G (n, n), held either whole (:class:`Dense`) or
as a factor L with G = L L^T (:class:`LowRank`, L is (n, r)). Three solvers cover every rule:

=================  =============================================  ================================
solver             applied to B (n, k)                            low-rank form, B = L Phi
=================  =============================================  ================================
``ridge(eta)``     (G + n eta I)^-1 B                             L (L^T L + n eta I)^-1 Phi
``weighted(r)``    S (S G S + lambda I)^-1 S B,  S = sqrt(r)      R L (L^T R L + lambda I)^-1 Phi
``signed(d)``      D G ((D G)^2 + delta I)^-1 D B                 D L C (C^2 + delta I)^-1 Phi
=================  =============================================  ================================

with C = L^T D L symmetric (r, r) (see the notation page). No diagonal matrix is ever formed, each
factorisation is made once and serves any number of right-hand sides, and points of zero weight
drop out of it.

**Rescue.** When a Cholesky factorisation fails, the ridge is multiplied by ``RESCUE_FACTOR`` until
it succeeds, up to ``RESCUE_BOUND`` times the largest diagonal entry; a ``NumericalWarning`` says
so and ``diagnostics`` records it. Beyond the bound the matrix is not positive semi-definite, and
a LinAlgError says what to look at.

>>> import numpy as np
>>> from kernelbayes import Gaussian
>>> from kernelbayes.linalg import Dense
>>> G = Gaussian(1.0)([0.0, 1.0, 2.0])
>>> solver = Dense(G).ridge(0.1)
>>> np.allclose((G + 3 * 0.1 * np.eye(3)) @ solver.solve(np.ones(3)), 1.0)
True
"""

from __future__ import annotations

import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.linalg

from kernelbayes.arrays import (
    Array,
    NumericalWarning,
    as_floats,
    cho_solve,
    cholesky,
    eigh,
    epsilon,
    namespace,
    threads_for,
    to_float,
)

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


@dataclass(frozen=True)
class Solver:
    """A factored linear map of right-hand sides, and how it came about.

    ``solve(B)`` takes B (n,) or (n, k). For a low-rank Gram, ``solve_features(Phi)`` takes
    B = L Phi as its features Phi (r,) or (r, k), which costs less and loses no digits;
    ``coefficients(Phi)`` stops before the expansion over points, at (r, k).
    """

    diagnostics: Diagnostics
    _solve: Callable[[Array], Array]
    _coefficients: Callable[[Array], Array] | None = None
    _expand: Callable[[Array], Array] | None = None

    def solve(self, B: Array) -> Array:
        """Weights (n,) or (n, k) for right-hand sides B (n,) or (n, k)."""
        return self._solve(B)

    def coefficients(self, Phi: Array) -> Array:
        """Coefficients (r,) or (r, k) for right-hand sides given by features (r,) or (r, k)."""
        if self._coefficients is None:
            raise TypeError("a dense Gram matrix has no features; use solve(B)")
        return self._coefficients(Phi)

    def solve_features(self, Phi: Array) -> Array:
        """Weights (n,) or (n, k) for right-hand sides L Phi given by features Phi."""
        coefficients = self.coefficients(Phi)
        assert self._expand is not None
        return self._expand(coefficients)


@dataclass(frozen=True, eq=False)
class Gram(ABC):
    """A positive semi-definite matrix, whole or factored."""

    @property
    @abstractmethod
    def n(self) -> int:
        """Number of rows."""

    @abstractmethod
    def matmul(self, B: Array) -> Array:
        """G @ B."""

    @property
    @abstractmethod
    def factor(self) -> Array:
        """L with G = L L^T, shape (n, r)."""

    @abstractmethod
    def ridge(self, eta: float) -> Solver:
        """Solver of (G + n eta I)^-1 B."""

    @abstractmethod
    def weighted(self, r: Array, ridge: float) -> Solver:
        """Solver of S (S G S + ridge I)^-1 S B with S = sqrt(diag(r)), r >= 0, shape (n,)."""

    def signed(self, d: Array, ridge: float) -> Solver:
        """Solver of D G ((D G)^2 + ridge I)^-1 D B with D = diag(d) of any signs, shape (n,).

        Equal to ``D L (C^2 + ridge I)^-1 L^T D B`` with C = L^T D L for any factor G = L L^T.
        """
        ridge, d = check_ridge(ridge), _check_weights(d, self.n)
        L = self.factor
        DL = d[:, None] * L
        C = L.T @ DL
        C = 0.5 * (C + C.T)
        solve, diagnostics = _square_solver(C, ridge)

        def expand(A: Array) -> Array:
            return DL @ A

        return Solver(
            diagnostics,
            lambda B: expand(solve(DL.T @ B)),
            lambda Phi: solve(C @ Phi),
            expand,
        )


@dataclass(frozen=True, eq=False)
class Dense(Gram):
    """Gram matrix held whole, (n, n)."""

    G: Array

    def __post_init__(self) -> None:
        if self.G.ndim != 2 or self.G.shape[0] != self.G.shape[1]:
            raise ValueError(f"a Gram matrix is square, got shape {tuple(self.G.shape)}")

    @property
    def n(self) -> int:
        """Number of rows."""
        return int(self.G.shape[0])

    def matmul(self, B: Array) -> Array:
        """G @ B."""
        return self.G @ B

    @cached_property
    def factor(self) -> Array:
        """Pivoted Cholesky factor L (n, r), G = L L^T to working precision.

        LAPACK stops at the numerical rank r, often far below n for smooth kernels.
        """
        if not isinstance(self.G, np.ndarray):
            values, vectors = eigh(self.G)
            xp = namespace(values)
            return vectors * xp.sqrt(xp.clip(values, min=0.0))
        pstrf = scipy.linalg.get_lapack_funcs("pstrf", (self.G,))
        with threads_for(self.n**3 / 3):
            L, pivots, rank, _ = pstrf(self.G, lower=1)
        result = np.empty((self.n, rank), dtype=self.G.dtype)
        result[pivots - 1] = np.tril(L[:, :rank])
        return result

    def ridge(self, eta: float) -> Solver:
        """Solver of (G + n eta I)^-1 B by one Cholesky factorisation."""
        L, diagnostics = factor_with_ridge(self.G, self.n * check_ridge(eta))
        return Solver(diagnostics, lambda B: _cho_solve(L, B))

    def weighted(self, r: Array, ridge: float) -> Solver:
        """Solver of S (S G S + ridge I)^-1 S B on the points with r > 0."""
        ridge, r = check_ridge(ridge), _check_weights(r, self.n, signed=False)
        if not isinstance(r, np.ndarray):
            s = namespace(r).sqrt(r)
            L, diagnostics = factor_with_ridge(s[:, None] * self.G * s[None, :], ridge)
            return Solver(diagnostics, lambda B: _scale(s, _cho_solve(L, _scale(s, B))))
        active = np.flatnonzero(r)
        s = np.sqrt(r[active])
        A = self.G[np.ix_(active, active)]
        A *= s[:, None]
        A *= s
        L, diagnostics = factor_with_ridge(A, ridge, overwrite=True)

        def solve(B: Array) -> Array:
            W = np.zeros(B.shape, dtype=np.result_type(B, L))
            W[active] = _scale(s, _cho_solve(L, _scale(s, B[active])))
            return W

        return Solver(diagnostics, solve)

    def signed(self, d: Array, ridge: float) -> Solver:
        """Solver of D G ((D G)^2 + ridge I)^-1 D B; see :meth:`Gram.signed`."""
        if isinstance(self.G, np.ndarray):
            return super().signed(d, ridge)
        # An eigendecomposition has no useful derivative at repeated eigenvalues: solve as written.
        ridge, d = check_ridge(ridge), _check_weights(d, self.n)
        xp = namespace(self.G)
        DG = d[:, None] * self.G
        M = DG @ DG + ridge * xp.eye(self.n, dtype=DG.dtype)
        condition = to_float(xp.linalg.matrix_norm(M, ord=1)) / ridge
        diagnostics = Diagnostics(self.n, ridge, ridge, 0, condition)

        def solve(B: Array) -> Array:
            columns = _scale(d, B)
            columns = columns[:, None] if B.ndim == 1 else columns
            W = DG @ xp.linalg.solve(M, columns)
            return W[:, 0] if B.ndim == 1 else W

        return Solver(diagnostics, solve)


@dataclass(frozen=True, eq=False)
class LowRank(Gram):
    """Gram matrix held as a factor L (n, r), G = L L^T: features of the points."""

    L: Array

    def __post_init__(self) -> None:
        if self.L.ndim != 2:
            raise ValueError(f"a factor has shape (n, r), got {tuple(self.L.shape)}")

    @property
    def n(self) -> int:
        """Number of rows."""
        return int(self.L.shape[0])

    @property
    def factor(self) -> Array:
        """The factor L itself."""
        return self.L

    def matmul(self, B: Array) -> Array:
        """G @ B in O(n r)."""
        return self.L @ (self.L.T @ B)

    def ridge(self, eta: float) -> Solver:
        """Solver of (L L^T + n eta I)^-1 B through the (r, r) matrix L^T L + n eta I."""
        L, c = self.L, self.n * check_ridge(eta)
        R, diagnostics = factor_with_ridge(L.T @ L, c, overwrite=True)
        used = diagnostics.ridge_used
        return Solver(
            diagnostics,
            lambda B: (B - L @ _cho_solve(R, L.T @ B)) / used,  # Woodbury
            lambda Phi: _cho_solve(R, Phi),
            lambda A: L @ A,
        )

    def weighted(self, r: Array, ridge: float) -> Solver:
        """Solver of S (S L L^T S + ridge I)^-1 S B through L^T R L + ridge I."""
        ridge, r = check_ridge(ridge), _check_weights(r, self.n, signed=False)
        RL = r[:, None] * self.L
        R, diagnostics = factor_with_ridge(self.L.T @ RL, ridge, overwrite=True)
        used = diagnostics.ridge_used
        return Solver(
            diagnostics,
            lambda B: (_scale(r, B) - RL @ _cho_solve(R, RL.T @ B)) / used,
            lambda Phi: _cho_solve(R, Phi),
            lambda A: RL @ A,
        )


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
            except np.linalg.LinAlgError:
                if overwrite and rescues == 0:  # undo the first addition, made in place
                    A = _add_diagonal(A, -used, True)
                step = max(used, epsilon(A) * n * largest) * RESCUE_FACTOR
                if used >= bound or step <= 0.0:
                    raise np.linalg.LinAlgError(
                        f"a Gram matrix of size {n} is not positive semi-definite even with a "
                        f"ridge of {used:.1e}; check the kernel with kernelbayes.laws.check_kernel"
                    ) from None
                used, rescues = min(step, bound), rescues + 1
        if rescues:
            warnings.warn(
                f"a Gram matrix of size {n} was not numerically positive definite; its ridge was "
                f"raised from {ridge:.1e} to {used:.1e}. Use a larger ridge or a smaller bandwidth",
                NumericalWarning,
                stacklevel=3,
            )
        return L, Diagnostics(n, ridge, used, rescues, _condition(A, L, used))


def check_ridge(ridge: float) -> float:
    """Return the ridge as a positive finite float."""
    value = float(ridge)
    if not (math.isfinite(value) and value > 0.0):
        raise ValueError(f"a ridge must be positive and finite, got {ridge!r}")
    return value


def _check_weights(weights: Array, n: int, signed: bool = True) -> Array:
    weights = as_floats(weights, "weights")
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
    return A + c * namespace(A).eye(A.shape[0], dtype=A.dtype)


def _condition(A: Array, L: Array, ridge: float) -> float:
    """Estimate of the 1-norm condition number of A + ridge I from its factor, in O(n^2)."""
    if A.shape[0] == 0:
        return 1.0
    if isinstance(L, np.ndarray):
        norm = float(np.abs(A).sum(axis=0).max()) + ridge
        pocon: Any = scipy.linalg.get_lapack_funcs("pocon", (L,))
        reciprocal = float(pocon(L, norm, uplo="L")[0])
        return 1.0 / reciprocal if reciprocal > 0.0 else math.inf
    xp = namespace(L)
    diag = xp.linalg.diagonal(L)
    return to_float(xp.max(diag) / xp.min(diag)) ** 2


def _square_solver(C: Array, ridge: float) -> tuple[Callable[[Array], Array], Diagnostics]:
    """Solver of (C^2 + ridge I)^-1 for symmetric C: one eigendecomposition, or Cholesky."""
    if not isinstance(C, np.ndarray):
        R, diagnostics = factor_with_ridge(C @ C, ridge)
        return lambda B: _cho_solve(R, B), diagnostics
    with threads_for(4.0 * len(C) ** 3):
        values, V = eigh(C)
    squares = values * values + ridge
    condition = float(squares.max() / squares.min()) if len(squares) else 1.0

    def solve(B: Array) -> Array:
        return V @ _scale(1.0 / squares, V.T @ B)

    return solve, Diagnostics(len(C), ridge, ridge, 0, condition)


def _scale(s: Array, B: Array) -> Array:
    return s[:, None] * B if B.ndim == 2 else s * B


def _cho_solve(L: Array, B: Array) -> Array:
    columns = 1 if B.ndim == 1 else B.shape[1]
    with threads_for(2.0 * L.shape[0] ** 2 * columns):
        return cho_solve(L, B)
