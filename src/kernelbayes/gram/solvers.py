"""Solvers, and factorisations with a rescue: all that runs when a fitted solver is applied."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.linalg
from array_api_compat import device

from kernelbayes.arrays import as_floats, epsilon, namespace, threads_for, to_float, warn
from kernelbayes.gram.lapack import cholesky, condition_number, eigh, solve, solve_triangular
from kernelbayes.points import positive
from kernelbayes.types import Array

if TYPE_CHECKING:
    from kernelbayes.gram.factored import Factored

# Each attempt raises the ridge by one digit. A matrix that needs more than this share of its
# largest diagonal entry (about half the digits of single precision) was not made indefinite by
# rounding.
RESCUE_FACTOR = 10.0
RESCUE_BOUND = 1e-4
# Condition numbers above this are reported: a solution may be off by the condition times 2e-16, so
# that at 1e12 only its first three to four digits are sure. In single precision 0.1 / epsilon, one
# digit: smaller bounds would be crossed by the smallest ridges that leave-one-out tries.
CONDITION_BOUND = 1e12


@dataclass(frozen=True)
class Diagnostics:
    """What happened in a factorisation."""

    size: int  # rows of the factored matrix: active points, or the rank of the factor
    ridge: float  # regularisation asked for, on the scale of the factored matrix
    ridge_used: float  # larger than ``ridge`` after a rescue
    rescues: int  # how often the ridge was multiplied by ``RESCUE_FACTOR``
    condition: float  # estimated condition number of the regularised matrix, in the 1-norm


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
        return self.weigh_own(self.values(B))

    def weigh(self, V: Array) -> Array:
        """R V or D V; V itself for ``ridge``."""
        return V if self.weights is None else scale_rows(self.weights, V)

    def coefficients(self, Phi: Array) -> Array:  # noqa: ARG002
        """Coefficients (r,) or (r, k) for right-hand sides given by features (r,) or (r, k)."""
        raise TypeError("a dense Gram matrix has no features; use solve(B)")

    def values_features(self, Phi: Array) -> Array:  # noqa: ARG002
        """Return ``values`` for right-hand sides L Phi given by features Phi."""
        raise TypeError("a dense Gram matrix has no features; use solve(B)")

    def solve_features(self, Phi: Array) -> Array:
        """Weights (n,) or (n, k) for right-hand sides L Phi given by features Phi."""
        return self.weigh_own(self.values_features(Phi))

    def weigh_own(self, V: Array) -> Array:
        """As ``weigh``, in the memory of V, which nobody else holds."""
        s = self.weights
        if s is None or not isinstance(V, np.ndarray) or V.dtype != s.dtype:
            return self.weigh(V)
        V *= s[:, None] if V.ndim == 2 else s
        return V


@dataclass(frozen=True, eq=False)
class DenseRidge(Solver):
    """(G + ridge I)^-1 B by a Cholesky factor L."""

    L: Array

    def values(self, B: Array) -> Array:
        """(L L^T)^-1 B."""
        return solve_factored(self.L, B)


@dataclass(frozen=True, eq=False)
class DenseWeighted(Solver):
    """S (S G S + ridge I)^-1 S B on the points with r > 0."""

    L: Array
    roots: Array
    inverse_roots: Array
    active: Array | None  # indices of the points with r > 0; None means all

    def values(self, B: Array) -> Array:
        """S^-1 (L L^T)^-1 S B, zero where r is."""
        rows = B if self.active is None else B[self.active]
        V = solve_factored(self.L, scale_rows(self.roots, rows))
        V = scale_rows(self.inverse_roots, V)
        if self.active is None:
            return V
        result = np.zeros(B.shape, dtype=V.dtype)
        result[self.active] = V
        return result


@dataclass(frozen=True, eq=False)
class DenseSigned(Solver):
    """D G M^-1 D B as written, with M = (D G)^2 + ridge I; not for NumPy."""

    G: Array
    M: Array

    @classmethod
    def of(cls, G: Array, d: Array, ridge: float) -> DenseSigned:
        """Solver for checked weights d (n,) of any signs.

        An eigendecomposition has no useful derivative at repeated eigenvalues: this solves as
        written, for any ridge above rounding. Below it the ridge is raised, as everywhere.
        """
        xp, n, DG = namespace(G), G.shape[0], d[:, None] * G
        square, eye = DG @ DG, xp.eye(n, dtype=DG.dtype, device=device(DG))
        norm = to_float(xp.linalg.matrix_norm(square, ord=1))
        used = max(ridge, epsilon(G) * n * norm)
        diagnostics = Diagnostics(n, ridge, used, int(used > ridge), (norm + used) / used)
        if used > ridge or diagnostics.condition > condition_bound(G):
            warn_unsafe(diagnostics, norm / condition_bound(G))
        return cls(diagnostics, d, G, square + used * eye)

    def values(self, B: Array) -> Array:
        """G M^-1 D B."""
        return self.G @ solve(self.M, scale_rows(self.weights, B))


@dataclass(frozen=True, eq=False)
class FactoredRidge(Solver):
    """Ridge or weighted solver of G = L L^T."""

    gram: Factored
    R: Array  # Cholesky factor of L^T R L + ridge I

    def values(self, B: Array) -> Array:
        """(B - L (R R^T)^-1 L^T R B) / ridge (Woodbury)."""
        inside = solve_factored(self.R, self.gram.project(self.weigh(B)))
        return (B - self.gram.expand(inside)) / self.diagnostics.ridge_used

    def coefficients(self, Phi: Array) -> Array:
        """(R R^T)^-1 Phi."""
        return solve_factored(self.R, Phi)

    def values_features(self, Phi: Array) -> Array:
        """L (R R^T)^-1 Phi."""
        return self.gram.at(self, Phi)


@dataclass(frozen=True, eq=False)
class FactoredSigned(FactoredRidge):
    """Signed solver of G = L L^T, with C = L^T D L = V diag(c) V^T symmetric.

    R holds V and ``squares`` c^2 + ridge; or R is a Cholesky factor of C^2 + ridge I, since an
    eigendecomposition has no useful derivative, and ``squares`` is None.
    """

    C: Array
    squares: Array | None

    @classmethod
    def of(cls, gram: Factored, d: Array, C: Array, ridge: float) -> FactoredSigned:
        """Factor C^2 + ridge I once."""
        if not isinstance(C, np.ndarray):
            R, diagnostics = factor_with_ridge(C @ C, ridge)
            return cls(diagnostics, d, gram, R, C, None)
        with threads_for(4.0 * len(C) ** 3):
            values, V = eigh(C)
        squares = values * values + ridge
        condition = float(squares.max() / squares.min()) if len(squares) else 1.0
        found = Diagnostics(len(C), ridge, ridge, 0, condition)
        # c / (c^2 + ridge) errs by eps max |c| / ridge: what counts is the root of the condition.
        bound = condition_bound(C) ** 2
        if condition > bound:
            warn_unsafe(found, float(squares.max()) / bound)
        return cls(found, d, gram, V, C, squares)

    def values(self, B: Array) -> Array:
        """L (C^2 + ridge I)^-1 L^T D B."""
        return self.gram.expand(self._solve(self.gram.project(self.weigh(B))))

    def coefficients(self, Phi: Array) -> Array:
        """(C^2 + ridge I)^-1 C Phi."""
        return self._solve(self.C @ Phi)

    def _solve(self, B: Array) -> Array:
        if self.squares is None:
            return solve_factored(self.R, B)
        return self.R @ scale_rows(1.0 / self.squares, self.R.T @ B)


def factor_with_ridge(
    A: Array, ridge: float, overwrite: bool = False, quiet: bool = False, unit: float = 1.0
) -> tuple[Array, Diagnostics]:
    """Cholesky factor of A + ridge I (r, r), with the rescue policy of this module.

    ``quiet`` leaves the warning to the caller. ``ridge`` is ``unit`` times that of the user, in
    which the warning says what is safe.
    """
    n = A.shape[0]
    xp = namespace(A)
    diag = xp.linalg.diagonal(A)
    largest = to_float(xp.max(diag)) if n else 0.0
    if not math.isfinite(largest):
        raise ValueError("the Gram matrix has NaN or infinite entries; check the kernel's scale")
    # Rounding makes eigenvalues negative by up to n eps; in single precision that may be more.
    bound = max(RESCUE_BOUND * largest, 4.0 * n * epsilon(A) * largest, ridge)
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
        missing = 0.0 if overwrite and not rescues and isinstance(A, np.ndarray) else used
        found = Diagnostics(n, ridge, used, rescues, condition_number(A, L, missing))
        bound = condition_bound(A)
        if not quiet and (rescues or found.condition > bound):
            # The 1-norm of the inverse of n rows is at most sqrt(n) over the ridge.
            norm = to_float(xp.linalg.matrix_norm(A, ord=1))
            warn_unsafe(found, math.sqrt(n) * norm / bound / unit, unit)
        return L, found


def condition_bound(A: Array) -> float:
    """Largest condition number at which a solution in the precision of A can be trusted."""
    return min(CONDITION_BOUND, 0.1 / epsilon(A))


def warn_unsafe(found: Diagnostics, safe: float, unit: float = 1.0) -> None:
    """Say that a ridge was raised, or is so small that rounding decides, and which one is safe."""
    asked, used = found.ridge / unit, found.ridge_used / unit
    text = f"a Gram matrix of size {found.size} has a condition number of {found.condition:.0e} "
    text += f"with the ridge {asked:.1e}: the result may be mostly rounding error"
    if found.rescues:
        text = f"a Gram matrix of size {found.size} was not numerically positive definite; its "
        text += f"ridge was raised from {asked:.1e} to {used:.1e}"
    text += f". A ridge of at least {safe:.1e} is safe; a smaller bandwidth helps too"
    warn(text)


def ridge_or_loo(ridge: Any, name: str = "a ridge") -> Any:
    """Return "loo", or a ridge as a positive finite float."""
    if isinstance(ridge, str) and ridge == "loo":
        return ridge
    return check_ridge(ridge, name)


def check_ridge(ridge: float, name: str = "a ridge") -> float:
    """Return the ridge as a positive finite float."""
    if isinstance(ridge, str):
        raise ValueError(f"{name} is a positive number or 'loo', got {ridge!r}")
    return positive(ridge, name)


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


def cho_solve(L: Array, B: Array) -> Array:
    """Solve L L^T Y = B for lower-triangular L."""
    if isinstance(L, np.ndarray) and B.size:  # nothing to solve is an error before SciPy 1.14
        return scipy.linalg.cho_solve((L, True), B, check_finite=False)
    return solve_triangular(L, solve_triangular(L, B), transpose=True)


def solve_factored(L: Array, B: Array) -> Array:
    """Solve L L^T Y = B with as many threads as the size deserves."""
    columns = 1 if same_kind(L, B).ndim == 1 else B.shape[1]
    with threads_for(2.0 * L.shape[0] ** 2 * columns):
        return cho_solve(L, B)
