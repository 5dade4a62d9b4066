r"""Pairs of variables through products of two Gram matrices.

A permutation of the second variable changes HSIC only through

.. math:: \langle K_c, P L_c P^\top \rangle = \|A^\top P B\|_F^2

with centred Gram matrices K_c = A A^T and L_c = B B^T. With factors of rank r and s all
permutations are one product of A^T with rows of B, n r s operations each; without, the entries
of L are gathered, n^2 each. Neither matrix is computed again.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from kernelbayes.arrays import BLOCK_ENTRIES, threads_for
from kernelbayes.compare.nulls import centred, centred_factor, diagonal, sample_gram
from kernelbayes.compare.results import Floats
from kernelbayes.gram import Dense, Factored, Gram, LowRank
from kernelbayes.kernels import Kernel
from kernelbayes.points import Points

# Gathering one entry costs about as much as this many multiplications of a matrix product.
GATHER = 64


@dataclass(frozen=True, eq=False)
class Variable:
    """One variable of the pairs: its Gram matrix and diagonal, and what follows from them."""

    gram: Gram
    diag: Floats

    @property
    def n(self) -> int:
        """Number of pairs."""
        return self.gram.n

    @cached_property
    def rows(self) -> Floats:
        """Row sums (n,) of the Gram matrix."""
        return np.asarray(self.gram.matmul(np.ones(self.n)))

    @cached_property
    def factor(self) -> Floats:
        """Centred factor (n, r)."""
        return centred_factor(self.gram)

    @cached_property
    def dense(self) -> Floats:
        """Centred Gram matrix (n, n)."""
        return centred(self.gram.G) if isinstance(self.gram, Dense) else self.factor @ self.factor.T

    @cached_property
    def hollow_rows(self) -> Floats:
        """Row sums without the diagonal."""
        return np.asarray(self.rows - self.diag)


def products(xs: Sequence[Variable], zs: Sequence[Variable], orders: Any) -> Floats:
    """Inner products (len(xs), len(zs), b) of centred matrices under permutations (b, n) of z."""
    result = np.empty((len(xs), len(zs), len(orders)))
    for j, z in enumerate(zs):
        gathered = []
        for i, x in enumerate(xs):
            if _by_factors(x, z):
                result[i, j] = _factor_products(x.factor, z.factor, orders)
            else:
                gathered.append(i)
        if gathered:
            result[gathered, j] = _dense_products([xs[i].dense for i in gathered], z.dense, orders)
    return result


def _by_factors(x: Variable, z: Variable) -> bool:
    if not (isinstance(x.gram, LowRank) and isinstance(z.gram, LowRank)):
        return False
    return int(x.gram.L.shape[1]) * int(z.gram.L.shape[1]) <= GATHER * x.n


def _factor_products(A: Floats, B: Floats, orders: Any) -> Floats:
    """Squared norms (b,) of A^T B[order]: one matrix product for a block of permutations."""
    (n, r), s = A.shape, B.shape[1]
    if r == 0 or s == 0:
        return np.zeros(len(orders))
    parts = []
    step = max(1, BLOCK_ENTRIES // (max(n, r) * s))
    with threads_for(2.0 * n * r * s * min(step, len(orders))):
        for start in range(0, len(orders), step):
            rows = B[orders[start : start + step].T]  # (n, b, s)
            M = (A.T @ rows.reshape(n, -1)).reshape(r, -1, s)
            parts.append(np.einsum("rbs,rbs->b", M, M, optimize=True))
    return np.concatenate(parts)


def _dense_products(Ks: Sequence[Floats], L: Floats, orders: Any) -> Floats:
    """Inner products (len(Ks), b) with L under each permutation, entry by entry."""
    n = len(L)
    stacked = np.stack([K.ravel() for K in Ks])
    parts = []
    step = max(1, BLOCK_ENTRIES // (n * n))
    for start in range(0, len(orders), step):
        block = np.stack([L[p][:, p].ravel() for p in orders[start : start + step]])
        parts.append(stacked @ block.T)
    return np.concatenate(parts, axis=1)


def biased(inner: Any, n: int) -> Any:
    """HSIC as a squared distance of embeddings, tr(K H L H) / n^2 (CME13 section 2.2)."""
    return inner / n**2


def unbiased(inner: Any, x: Variable, z: Variable, orders: Any) -> Any:
    """Unbiased HSIC (Song et al. 2012, eq. 5) from the centred inner products.

    The sums over all entries are taken back from the centred ones, then the diagonal is left out.
    """
    n = x.n
    k, el = x.rows, z.rows
    trace = inner + 2.0 / n * (el[orders] @ k) - k.sum() * el.sum() / n**2 - z.diag[orders] @ x.diag
    return _song(trace, x.hollow_rows.sum(), z.hollow_rows.sum(), _cross(x, z, orders), n)


def _cross(x: Variable, z: Variable, orders: Any) -> Any:
    return z.hollow_rows[orders] @ x.hollow_rows


def _song(trace: Any, k: Any, el: Any, cross: Any, n: int) -> Any:
    total = trace + k * el / ((n - 1) * (n - 2)) - 2.0 / (n - 2) * cross
    return total / (n * (n - 3))


def left_out(x: Variable, z: Variable) -> tuple[float, Floats]:
    """Unbiased HSIC of all pairs, and with each pair left out (n,), in closed form."""
    n = x.n
    rows = hadamard_rows(x, z) - x.diag * z.diag  # sums of the entrywise product, hollow
    k, el = x.hollow_rows, z.hollow_rows
    trace, cross = rows.sum(), k @ el
    K_el = x.gram.matmul(el) - x.diag * el
    L_k = z.gram.matmul(k) - z.diag * k
    full = float(_song(trace, k.sum(), el.sum(), cross, n))
    without = _song(
        trace - 2.0 * rows,
        k.sum() - 2.0 * k,
        el.sum() - 2.0 * el,
        cross - k * el - K_el - L_k + rows,
        n - 1,
    )
    return full, without


def hadamard_rows(x: Variable, z: Variable) -> Floats:
    """Row sums (n,) of the entrywise product of the two Gram matrices."""
    if isinstance(x.gram, LowRank):
        return np.asarray(np.einsum("ij,ij->i", x.gram.L, z.gram.matmul(x.gram.L)))
    if isinstance(z.gram, LowRank):
        return hadamard_rows(z, x)
    if isinstance(x.gram, Factored) or isinstance(z.gram, Factored):
        raise ValueError("too many pairs for this method; use method='features' or 'block'")
    return np.asarray(np.einsum("ij,ij->i", x.gram.G, z.gram.G))  # type: ignore[attr-defined]


def variable(kernel: Kernel, points: Points) -> Variable:
    """Gram matrix and diagonal of one variable; a factor if its rank pays for permutations."""
    n = len(diag := diagonal(kernel, points))
    return Variable(sample_gram(kernel, points, math.isqrt(GATHER * n)), diag)


def jackknife(without: Floats) -> float:
    """Jackknife standard error from the estimates with one pair left out."""
    return float(np.sqrt((len(without) - 1) * np.var(without)))
