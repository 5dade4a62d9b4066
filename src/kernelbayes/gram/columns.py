"""Sums over many points on landmarks, made of kernel columns instead of features."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from kernelbayes.arrays import CACHED, epsilon, row_blocks, threads_for
from kernelbayes.gram import factored
from kernelbayes.gram.factored import Moments, Streamed
from kernelbayes.gram.finite import Landmarks
from kernelbayes.gram.lapack import add_square
from kernelbayes.gram.solvers import FactoredRidge, Solver, check_ridge, scale_rows
from kernelbayes.points import take
from kernelbayes.types import Array, Ints

# Rounding errors of sums may be this share of the ridge: a correction divides what they do to an
# answer by the inverse of it or more. None is made where the share is below ``NOTHING``.
HARMLESS, NOTHING = 0.1, 1e-8
# The same for products with the factor, which nothing corrects. The bound counts all roundings as
# if they pointed the same way; at this share weights of posteriors were off by 1e-10.
VISIBLE = 1e-4


@dataclass(frozen=True, eq=False)
class Columns(Streamed):
    """Gram matrix of many points on landmarks, through kernel columns K (n, r), not features.

    With the landmarks' Gram matrix T T^T the features are L = K T^-T, a triangular solve as long as
    L^T D L itself. So T is applied to the sums instead, T^-1 (K^T D K) T^-T, which saves n r^2
    operations and magnifies rounding errors by the condition of T T^T. Where they stay far below
    the ridge, one more pass over the columns corrects what is solved with them (iterative
    refinement); elsewhere the features are computed.
    """

    kernel: Landmarks = field(kw_only=False)

    def moments(self, d: Array | None, B: Array | None = None, ridge: float = 0.0) -> Moments:
        """L^T D L and L^T D B, from kernel columns where the ridge allows it."""
        lost = self._lost(d, ridge)
        if lost[0] > HARMLESS or lost[1] > VISIBLE:
            return super().moments(d, B)
        S, cross = np.zeros((self.rank, self.rank), order="F"), np.zeros(())
        equal = 1.0 if d is None else float(d[0]) if np.ptp(d) == 0.0 else 0.0
        for rows, K in self._columns(d):
            if B is not None:
                cross = cross + K.T @ (B[rows] if d is None else scale_rows(d[rows], B[rows]))
            if d is not None and not equal:
                K *= np.sqrt(d[rows])[:, None]
            with threads_for(float(self.n) * self.rank**2):  # of all blocks
                add_square(S, K)
        S = (equal or 1.0) * (np.tril(S) + np.tril(S, -1).T)
        half = self.kernel.finish(S)
        C = self.kernel.finish(half.T)
        return 0.5 * (C + C.T), None if B is None else self.kernel.finish(cross)

    def project(self, B: Array) -> Array:
        """L^T B, merged over row blocks."""
        return self.kernel.finish(sum(K.T @ B[rows] for rows, K in self._columns()))

    def expand(self, A: Array) -> Array:
        """L A, from columns that are held from the first time on, if they fit."""
        A = self.kernel.finish(A, transpose=True)
        return np.concatenate([K @ A for _, K in self._held or self._columns()])

    def signed(self, d: Array, ridge: float, moment: Array | None = None) -> Solver:
        """As of any factor; by features where products with columns would show."""
        if self._lost(np.abs(d), check_ridge(ridge) ** 0.5)[1] > VISIBLE:
            return self._by_features().signed(d, ridge, moment)
        return super().signed(d, ridge, moment)

    def _regularised(
        self, r: Array | None, ridge: float, moment: Array | None, unit: float = 1.0
    ) -> Solver:
        if self._lost(r, ridge)[1] > VISIBLE:
            return self._by_features()._regularised(r, ridge, moment, unit)
        return super()._regularised(r, ridge, moment, unit)

    def _by_features(self) -> Streamed:
        return Streamed(self.kernel, self.points, self.rank, policy=self.policy)

    def at(self, solver: Solver, Phi: Array) -> Array:
        """Values of a solver's answer to features Phi, its coefficients refined as for means."""
        A = solver.coefficients(Phi)
        lost = self._lost(solver.weights, solver.diagnostics.ridge_used)
        if type(solver) is FactoredRidge and NOTHING < lost[0] <= HARMLESS:
            A = A + solver.coefficients(Phi + self._missing(solver, A))
        return self.expand(A)

    def corrected(self, solver: Solver, A: Array, B: Array) -> Array:
        """Coefficients after a step of iterative refinement: a pass over the columns."""
        lost = self._lost(solver.weights, solver.diagnostics.ridge_used)
        if type(solver) is not FactoredRidge or lost[0] > HARMLESS or lost[1] <= NOTHING:
            return A
        return A + solver.coefficients(self._missing(solver, A, B))

    def _missing(self, solver: Solver, A: Array, B: Array = None) -> Array:
        """L^T D (B - L A) - ridge A by a pass over the columns; B is zero unless given."""
        d, inner, total = solver.weights, self.kernel.finish(A, transpose=True), 0.0 * A
        for rows, K in self._columns(d):
            rest = -(K @ inner) if B is None else B[rows] - K @ inner
            total += K.T @ (rest if d is None else scale_rows(d[rows], rest))
        return self.kernel.finish(total) - solver.diagnostics.ridge_used * A

    def _lost(self, d: Array | None, ridge: float) -> tuple[float, float]:
        """Return the rounding errors of L^T D L and of L^T D B relative to the ridge, at most."""
        if ridge <= 0.0:
            return np.inf, np.inf
        mass = self.n if d is None else float(np.sum(d))
        size = mass * float(np.max(self.kernel.kernel.diag(self.kernel.basis))) / ridge
        lost = size * epsilon(self.kernel.factor) * self.kernel.condition
        return lost, lost / self.kernel.condition**0.5

    @cached_property
    def _held(self) -> list[tuple[slice | Ints, Array]]:
        return list(self._columns()) if self.n * self.rank <= factored.STREAM_ENTRIES else []

    def _columns(self, d: Array | None = None) -> Iterator[tuple[slice | Ints, Array]]:
        """Rows and their kernel columns, block by block; without rows whose weight is zero."""
        kernel, basis = self.kernel.kernel, self.kernel.basis
        for rows in row_blocks(self.n, self.rank, CACHED):
            chosen: slice | Ints = rows
            if d is not None and not np.all(d[rows]):
                if not np.any(d[rows]):
                    continue
                chosen = rows.start + np.flatnonzero(d[rows])
            yield chosen, kernel._cross(take(self.points, chosen), basis)
