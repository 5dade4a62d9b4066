r"""Projection of weights on the simplex, in RKHS distance.

Weights w of an embedding may be negative. The closest probability weights v solve

.. math:: \min_v \tfrac12 |F^\top (v - w)|^2 + \tfrac\rho2 |v - w|^2
          \quad \text{with } v \ge 0, \; \textstyle\sum_i v_i = 1

with F (n, r) features of the points, so that the first term is half the squared RKHS distance. The
small rho makes the answer unique where the features say nothing.

The dual has only r variables u = F^T (v - w): given u, ``v = max(0, w - F u / rho - t)`` with t
such that v sums to one. Its optimality condition ``u = F^T (v(u) - w)`` is piecewise linear, and
Newton's method with a line search ends at the solution to working precision; a step costs O(n r^2).
A large rho is easy, so the method starts there and follows the solution to the small one: 10 to 50
steps in all, whatever n.

>>> import numpy as np
>>> from kernelbayes.embedding.simplex import project_simplex
>>> project_simplex(np.eye(3), np.array([[0.6, 0.6, -0.2]])).round(3)
array([[0.5, 0.5, 0. ]])
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from kernelbayes.arrays import NumericalWarning, row_blocks, threads_for

# rho relative to the largest eigenvalue of F F^T: the last one counts, the others lead to it.
PATH = (1e-1, 1e-2, 1e-3, 1e-4, 1e-5)
PATH_TOLERANCE = 1e-3
# Entries of the (n, r^2) products of features.
PRODUCT_ENTRIES = 2**22


def project_simplex(
    F: Any, weights: Any, missed: float = 0.0, steps: int = 100, tol: float = 1e-12
) -> Any:
    """Rows of weights (m, n) moved to the simplex, closest in the distance of features F (n, r).

    Parameters
    ----------
    F : array (n, r)
    weights : array (m, n)
    missed : float
        Average of k(x_i, x_i) that the features miss. What they miss counts as a multiple of the
        identity, which a Gram matrix is near where few features do not suffice: narrow kernels.
    steps : int
        Newton steps at most.
    tol : float
        Stop when the optimality condition holds to this, relative to the size of the features.

    Returns
    -------
    array (m, n)
        Not negative, each row sums to one.
    """
    n, r = F.shape
    with threads_for(2.0 * F.size * len(weights)):
        largest = max(float(np.linalg.norm(F.T @ F, 2)), 1e-300)
        # The products make the Newton systems of many rows one matrix product.
        small = n * r * r <= PRODUCT_ENTRIES
        products = (F[:, :, None] * F[:, None, :]).reshape(n, -1) if small else None
        rows = [weights[block] for block in row_blocks(len(weights), n)]
        return np.concatenate([_project(F, W, largest, missed, products, steps, tol) for W in rows])


def _project(
    F: Any, W: Any, largest: float, missed: float, products: Any, steps: int, tol: float
) -> Any:
    """Rows of W on the simplex: a large rho first, each solution the start for a smaller one."""
    u, v, error = np.zeros((len(W), F.shape[1])), W, np.inf
    for relative in PATH:
        enough = tol if relative == PATH[-1] else max(tol, PATH_TOLERANCE)
        u, v, error = _newton(F, W, u, relative * largest + missed, products, steps, enough)
    if error > 1e-6:
        warnings.warn(
            f"the projection of weights on the simplex stopped early (optimal to {error:.0e})",
            NumericalWarning,
            stacklevel=2,
        )
    return v / v.sum(axis=1, keepdims=True)  # one to the last digit


def _newton(
    F: Any, W: Any, u: Any, rho: float, products: Any, steps: int, tol: float
) -> tuple[Any, Any, float]:
    """Newton's method on the dual of every row of W at once: u, v and how far from optimal."""
    target = W @ F
    scale = max(float(np.abs(F).max()), 1e-300)
    v, height = _primal(F, W, u, target, rho)
    rows = np.arange(len(W))
    for _ in range(steps):
        gradient = u[rows] - v[rows] @ F + target[rows]
        unsolved = np.abs(gradient).max(axis=1) > tol * scale
        rows, gradient = rows[unsolved], gradient[unsolved]
        if len(rows) == 0:
            break
        step = -_newton_step(F, v[rows] > 0, gradient, rho, products)
        slope = np.einsum("ij,ij->i", gradient, step)
        rows = rows[_line_search(F, W, u, v, height, target, rho, rows, step, slope)]
    return u, v, float(np.abs(u - v @ F + target).max()) / scale


def _newton_step(F: Any, active: Any, gradient: Any, rho: float, products: Any) -> Any:
    """Solve (I + F_A^T (I - 1 1^T / |A|) F_A / rho) s = gradient for the active set of each row."""
    r = F.shape[1]
    if products is not None:
        A = active.astype(F.dtype)
        sizes = A.sum(axis=1)
        sums = A @ F
        H = (A @ products).reshape(-1, r, r)
        H -= sums[:, :, None] * sums[:, None, :] / sizes[:, None, None]
        H = H / rho + np.eye(r)
        return np.linalg.solve(H, gradient[:, :, None])[:, :, 0]
    steps = np.empty_like(gradient)
    for i, rows in enumerate(active):
        centred = F[rows]
        centred = centred - centred.mean(axis=0)
        H = centred.T @ centred / rho
        H.flat[:: r + 1] += 1.0
        steps[i] = np.linalg.solve(H, gradient[i])
    return steps


def _line_search(
    F: Any, W: Any, u: Any, v: Any, height: Any, target: Any, rho: float, rows: Any, step: Any,
    slope: Any,
) -> Any:  # fmt: skip
    """Halve each row's step until the dual falls enough (Armijo); updates u, v and height."""
    taken = np.zeros(len(rows), dtype=bool)
    length = 1.0
    for _ in range(30):
        left = np.flatnonzero(~taken)
        if len(left) == 0:
            break
        at = rows[left]
        u_new = u[at] + length * step[left]
        v_new, height_new = _primal(F, W[at], u_new, target[at], rho)
        # Within rounding a step counts as down, or the last digits would never be reached.
        allowed = 1e-4 * length * slope[left] + 1e-15 * np.abs(height[at])
        good = height_new <= height[at] + allowed
        u[at[good]], v[at[good]], height[at[good]] = u_new[good], v_new[good], height_new[good]
        taken[left[good]] = True
        length *= 0.5
    return taken


def _primal(F: Any, W: Any, u: Any, target: Any, rho: float) -> tuple[Any, Any]:
    """Weights on the simplex that belong to dual variables u (m, r), and the dual's value (m,)."""
    a = W - (u @ F.T) / rho
    t = _thresholds(a)
    v = np.maximum(a - t[:, None], 0.0)
    squares = np.einsum("ij,ij->i", v, v)
    linear = np.einsum("ij,ij->i", u, 0.5 * u + target)
    return v, linear + rho * (0.5 * squares + t)


def _thresholds(a: Any) -> Any:
    """Return t (m,) with sum_i max(0, a_i - t) = 1 for each row of a (Duchi et al. 2008)."""
    ordered = -np.sort(-a, axis=1)
    excess = (np.cumsum(ordered, axis=1) - 1.0) / np.arange(1, a.shape[1] + 1)
    last = np.maximum(np.sum(ordered > excess, axis=1) - 1, 0)
    return excess[np.arange(len(a)), last]
