"""Gram matrices of radial kernels, computed in tiles that fit the cache.

The Gram matrix of a profile of the squared distance is one product of augmented matrices,

    -|u - v|^2 / 2 = [u, -|u|^2/2, 1] . [v, 1, -|v|^2/2],

and elementwise work on cache-sized tiles; the symmetric matrix computes only its lower half.
The product loses digits when the points spread over many bandwidths, or when the profile has a
kink at zero; then the differences are taken directly, so that no value is off by more than the
square root of the machine precision.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import product

import numpy as np
from array_api_compat import device
from scipy.spatial.distance import cdist

from kernelbayes.arrays import Array, Floats, epsilon, namespace, row_blocks, threads_for, to_float

# Rows and columns of a tile: product, clipping and exponential stay in the second-level cache
# (benchmarks/bench_gram.py). Not a power of two, whose columns would share few cache lines when a
# tile is transposed.
TILE = 184
Profile = Callable[[Array], Array]


def radial_cross(U: Array, V: Array, profile: Profile, smooth: bool = True) -> Array:
    """Return profile(-|u_i - v_j|^2 / 2) as an (n, m) matrix."""
    if not isinstance(U, np.ndarray):
        return profile(_exponents(U, V, smooth))
    G = np.empty((len(U), len(V)), dtype=np.result_type(U, V))
    exponents = _tile_exponents(U, V, smooth)
    with threads_for(2.0 * U.shape[1] * G.size), np.errstate(under="ignore"):
        for rows, columns in product(_tiles(len(U), len(V)), _tiles(len(V), len(U))):
            G[rows, columns] = profile(exponents(rows, columns))
    return G


def radial_self(U: Array, profile: Profile, smooth: bool = True) -> Array:
    """Symmetric (n, n) matrix of profile(-|u_i - u_j|^2 / 2); only the lower half is computed."""
    if not isinstance(U, np.ndarray):
        return mirror(profile(_exponents(U, U, smooth)), namespace(U).ones_like(U[:, 0]))
    n = len(U)
    G = np.empty((n, n), dtype=U.dtype)
    exponents = _tile_exponents(U, U, smooth)
    with threads_for(U.shape[1] * G.size), np.errstate(under="ignore"):
        for rows in _tiles(n, n):
            for columns in _tiles(rows.start, n):
                tile = profile(exponents(rows, columns))
                G[rows, columns] = tile
                G[columns, rows] = tile.T
            G[rows, rows] = mirror(profile(exponents(rows, rows)), 1.0)
    return G


def _tiles(n: int, other: int) -> list[slice]:
    """Slices of TILE rows, longer where the other side is shorter than a tile."""
    return list(row_blocks(n, min(TILE, other), TILE * TILE))


def _expansion_is_safe(largest: float, eps: float) -> bool:
    # |u|^2/2 + |v|^2/2 - u.v has absolute error about eps * max |u|^2; inf and NaN are not safe.
    return largest * eps <= math.sqrt(eps)


def _tile_exponents(U: Floats, V: Floats, smooth: bool) -> Callable[[slice, slice], Array]:
    """Return a function of row and column slices that gives a tile of -|u_i - v_j|^2 / 2.

    A tile may be overwritten, and is by the next one: they share their memory.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        centre = V.mean(axis=0)
        A = U - centre
        B = A if U is V else V - centre
        a, b = (np.einsum("ij,ij->i", M, M) for M in (A, B))
        largest = float(max(a.max(), b.max()))
    if not (smooth and _expansion_is_safe(largest, epsilon(A))):

        def direct(rows: slice, columns: slice) -> Array:
            E = cdist(U[rows], V[columns], "sqeuclidean")
            E *= -0.5
            with np.errstate(over="ignore"):  # minus infinity is right: the kernel is zero there
                return E.astype(U.dtype, copy=False)

        return direct
    A = np.column_stack([A, a * -0.5, np.ones_like(a)])
    B = np.column_stack([B, np.ones_like(b), b * -0.5]).T

    memory = np.empty(min(TILE * TILE, len(U) * len(V)), dtype=A.dtype)

    def expanded(rows: slice, columns: slice) -> Array:
        shape = rows.stop - rows.start, columns.stop - columns.start
        E = memory[: shape[0] * shape[1]].reshape(shape)
        np.matmul(A[rows], B[:, columns], out=E)
        return np.minimum(E, 0.0, out=E)

    return expanded


def _exponents(U: Array, V: Array, smooth: bool) -> Array:
    """Exponents (n, m) without work in place: for torch (differentiable) and the standard."""
    xp = namespace(U, V)
    centre = xp.mean(V, axis=0)
    A, B = U - centre, V - centre
    a, b = xp.sum(A * A, axis=1), xp.sum(B * B, axis=1)
    if smooth and _expansion_is_safe(max(to_float(xp.max(a)), to_float(xp.max(b))), epsilon(A)):
        E = A @ B.T - 0.5 * a[:, None] - 0.5 * b[None, :]
        return xp.clip(E, max=0.0)
    E = xp.zeros((U.shape[0], V.shape[0]), dtype=U.dtype, device=device(U))
    for j in range(U.shape[1]):
        E = E - 0.5 * (U[:, j][:, None] - V[:, j][None, :]) ** 2
    return E


def mirror(G: Array, diag: Array) -> Array:
    """Copy the lower triangle of G onto the upper one and put ``diag`` on the diagonal.

    In place for NumPy, by blocks so that the transposed reads stay in cache.
    """
    n = G.shape[0]
    if isinstance(G, np.ndarray):
        for rows in row_blocks(n, 1, entries=256):
            lower = np.tril(G[rows, rows], -1)
            np.add(lower, lower.T, out=G[rows, rows])
            G[: rows.start, rows] = G[rows, : rows.start].T
        np.fill_diagonal(G, diag)
        return G
    xp = namespace(G)
    lower = xp.tril(G, k=-1)
    index = xp.arange(n, device=device(G))
    on_diagonal = index[:, None] == index[None, :]
    return xp.where(on_diagonal, diag[:, None], lower + lower.T)
