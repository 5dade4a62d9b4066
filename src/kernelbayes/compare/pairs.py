r"""Pairs of variables through products of two Gram matrices.

A permutation of the second variable changes HSIC only through

.. math:: \langle G_X, P G_Y P^\top \rangle = \|L_X^\top P L_Y\|_F^2

with centred Gram matrices G = L L^T. With factors of rank r and s all permutations are one product
of L_X^T with rows of L_Y, n r s operations each; without, the entries of G_Y are gathered, n^2
each. Neither matrix is computed again. With weights omega of mean one the first matrix has entries
omega_i omega_j k_ij, centred by the weighted mean. Its rows have sum zero, so that its inner
product with the second does not depend on how that is centred, and permutations cost what they cost
without weights.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from kernelbayes.arrays import BLOCK_ENTRIES, threads_for
from kernelbayes.compare.nulls import centred
from kernelbayes.compare.problem import Moves, sample_gram
from kernelbayes.gram import Dense, Gram, LowRank
from kernelbayes.kernels import Kernel
from kernelbayes.types import Floats, Points

# Gathering one entry takes as long as 100 to 170 multiplications of a matrix product (measured for
# n from 300 to 2500, one core). A factor has to be found first, so it must save more than that.
GATHER = 64


@dataclass(frozen=True, eq=False)
class Variable:
    """One variable of the pairs: points under a kernel, with weights omega (n,) of mean one."""

    kernel: Kernel
    points: Points
    omega: Floats

    @property
    def n(self) -> int:
        """Number of pairs."""
        return len(self.omega)

    @cached_property
    def gram(self) -> Gram:
        """Gram matrix, as a factor if its rank pays for permutations."""
        return sample_gram(self.kernel, self.points, math.isqrt(GATHER * self.n))

    @property
    def diag(self) -> Floats:
        """Return the values k(x_i, x_i)."""
        return np.asarray(self.gram.diag)

    @property
    def rank(self) -> int | None:
        """Rank of the factor, if there is one."""
        return int(self.gram.L.shape[1]) if isinstance(self.gram, LowRank) else None

    @cached_property
    def factor(self) -> Floats:
        """Centred factor (n, r), or (n, n) the centred Gram matrix without one."""
        return centred(self.gram, self.omega / self.n)

    @cached_property
    def dense(self) -> Floats:
        """Centred Gram matrix (n, n)."""
        return self.factor if self.rank is None else self.factor @ self.factor.T

    @cached_property
    def weighed(self) -> Floats:
        """``factor`` with row i times omega_i, or without one ``dense`` times omega_i omega_j."""
        if np.all(self.omega == 1.0):
            return self.factor
        rows = self.omega[:, None] * self.factor
        return rows if self.rank is not None else rows * self.omega

    @cached_property
    def matrix(self) -> Floats:
        """Matrix (n, n) of entries omega_i omega_j k_ij, centred."""
        return self.weighed if self.rank is None else self.weighed @ self.weighed.T

    @cached_property
    def rows(self) -> Floats:
        """Row sums (n,) of the Gram matrix, weighted."""
        return np.asarray(self.gram.matmul(self.omega))

    @cached_property
    def hollow_rows(self) -> Floats:
        """Row sums without the diagonal."""
        return np.asarray(self.rows - self.diag)


def products(xs: Sequence[Variable], ys: Sequence[Variable], orders: Moves) -> Floats:
    """Inner products (len(xs), len(ys), b) of centred matrices under permutations (b, n) of y."""
    result = np.empty((len(xs), len(ys), len(orders)))
    for j, y in enumerate(ys):
        gathered = []
        for i, x in enumerate(xs):
            if x.rank is not None and y.rank is not None and x.rank * y.rank <= GATHER * x.n:
                result[i, j] = _by_factors(x.weighed, y.factor, orders)
            else:
                gathered.append(i)
        if gathered:
            matrices = [xs[i].matrix for i in gathered]
            result[gathered, j] = _by_entries(matrices, y.dense, orders)
    return result


def _by_factors(L_x: Floats, L_y: Floats, orders: Moves) -> Floats:
    """Squared norms (b,) of L_x^T L_y[order]: one matrix product for a block of permutations."""
    (n, r), s = L_x.shape, L_y.shape[1]
    if r == 0 or s == 0:
        return np.zeros(len(orders))
    parts = []
    step = max(1, BLOCK_ENTRIES // (max(n, r) * s))
    with threads_for(2.0 * n * r * s * min(step, len(orders))):
        for start in range(0, len(orders), step):
            rows = L_y[orders[start : start + step].T]  # (n, b, s)
            M = (L_x.T @ rows.reshape(n, -1)).reshape(r, -1, s)
            parts.append(np.einsum("rbs,rbs->b", M, M, optimize=True))
    return np.concatenate(parts)


def _by_entries(matrices: Sequence[Floats], G_y: Floats, orders: Moves) -> Floats:
    """Inner products (len(matrices), b) with G_y under each permutation, entry by entry."""
    n = len(G_y)
    stacked = np.stack([G_x.ravel() for G_x in matrices])
    parts = []
    step = max(1, BLOCK_ENTRIES // (n * n))
    for start in range(0, len(orders), step):
        block = np.stack([G_y[p][:, p].ravel() for p in orders[start : start + step]])
        parts.append(stacked @ block.T)
    return np.concatenate(parts, axis=1)


def unbiased_hsic(inner: Floats, x: Variable, y: Variable, orders: Moves) -> Floats:
    """Unbiased HSIC (Song et al. 2012, eq. 5) from the centred inner products, without weights."""
    n = x.n  # sums over all entries from the centred ones, then without the diagonal
    sums = 2.0 / n * (y.rows[orders] @ x.rows) - x.rows.sum() * y.rows.sum() / n**2
    trace = inner + sums - y.diag[orders] @ x.diag
    cross = y.hollow_rows[orders] @ x.hollow_rows
    return _song(trace, x.hollow_rows.sum(), y.hollow_rows.sum(), cross, n)


def _song(trace: Floats, x: Floats, y: Floats, cross: Floats, n: int) -> Floats:
    total = trace + x * y / ((n - 1) * (n - 2)) - 2.0 / (n - 2) * cross
    return np.asarray(total / (n * (n - 3)))


def left_out(x: Variable, y: Variable) -> tuple[float, Floats]:
    """Unbiased HSIC of all pairs, and with each pair left out (n,), in closed form."""
    n = x.n
    rows = hadamard_rows(x, y) - x.diag * y.diag  # sums of the entrywise product, hollow
    u, v = x.hollow_rows, y.hollow_rows
    trace, cross = rows.sum(), u @ v
    Gx_v = x.gram.matmul(v) - x.diag * v
    Gy_u = y.gram.matmul(u) - y.diag * u
    full = float(_song(trace, u.sum(), v.sum(), cross, n))
    less = cross - u * v - Gx_v - Gy_u + rows
    without = _song(trace - 2.0 * rows, u.sum() - 2.0 * u, v.sum() - 2.0 * v, less, n - 1)
    return full, without


def hadamard_rows(x: Variable, y: Variable) -> Floats:
    """Row sums (n,), weighted, of the entrywise product of the two Gram matrices."""
    if isinstance(x.gram, LowRank):
        L = x.gram.L
        return np.asarray(np.einsum("ij,ij->i", L, y.gram.matmul(x.omega[:, None] * L)))
    if isinstance(y.gram, LowRank):
        return hadamard_rows(y, x)
    if not (isinstance(x.gram, Dense) and isinstance(y.gram, Dense)):
        raise ValueError("too many pairs for this method; use method='features' or 'block'")
    return np.asarray((x.gram.G * y.gram.G) @ x.omega)


def hollow_form(x: Variable, y: Variable) -> tuple[float, float]:
    """HSIC of weighted pairs without the terms i = j; standard error of the influence function."""
    w = x.omega / x.n
    H, mass = x.dense * y.dense, 1.0 - float(w @ w)
    rows = (H @ w - w * H.diagonal()) / mass
    value = float(w @ rows)
    return value, 2.0 * float(np.sqrt(np.sum((w * (rows - value)) ** 2)))
