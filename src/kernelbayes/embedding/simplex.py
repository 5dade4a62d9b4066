r"""Weights that are a distribution: four ways, and the projection on the simplex.

Weights w of an embedding may be negative. :mod:`kernelbayes.embedding.regions` says which way which
question takes. The closest probability weights v in RKHS distance solve

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
from collections.abc import Callable
from typing import Literal

import numpy as np

from kernelbayes.arrays import (
    BLOCK_ENTRIES,
    Bools,
    Floats,
    Ints,
    NumericalWarning,
    row_blocks,
    threads_for,
)
from kernelbayes.gram import Gram, LowRank
from kernelbayes.gram.lapack import solve
from kernelbayes.kernels import Kernel
from kernelbayes.points import Points

Kind = Literal["projected", "rearranged", "clipped", "raw"]
Validity = bool | Kind
KINDS: tuple[Kind, ...] = ("projected", "rearranged", "clipped", "raw")

# Weights that sum to less than LEAST_MASS say nothing: to divide by their sum magnifies rounding
# errors, which are about 1e-16 times the condition number, up to 1e8 with automatic ridges. Weights
# of both signs whose sum is below LEAST_SHARE of their absolute sum nearly cancel: what is left is
# mostly the error of the estimate that they came from.
LEAST_MASS = 1e-8
LEAST_SHARE = 1e-3
# Rank and relative trace error of the features in which weights are projected: a Newton step costs
# O(n r^2), and what 300 features miss counts as a multiple of the identity.
PROJECTION_RANK = 300
PROJECTION_TOLERANCE = 1e-8
# rho relative to the largest eigenvalue of F F^T: the last one counts, the others lead to it and
# need be solved only roughly.
PATH = (1e-1, 1e-2, 1e-3, 1e-4, 1e-5)
PATH_TOLERANCE = 1e-3
PRODUCT_ENTRIES = BLOCK_ENTRIES  # of the (n, r^2) products of features, 32 MB


def validity(valid: Validity, default: Kind = "projected") -> Kind:
    """Name of a way to make answers valid; True is a question's default, False the raw weights."""
    if isinstance(valid, bool | np.bool_):
        return default if valid else "raw"
    if valid not in KINDS:
        raise ValueError(f"valid must be True, False or one of {KINDS}, got {valid!r}")
    return valid


def lost(W: Floats) -> Bools:
    """Which rows (m,) of weights (m, n) sum to nothing, or nearly cancel."""
    sums, sizes = W.sum(axis=1), np.abs(W).sum(axis=1)
    return np.asarray(~((sums > LEAST_SHARE * sizes) & (sums > LEAST_MASS)))


def probabilities(W: Floats, kind: Kind, projected: Callable[[], Floats]) -> Floats:
    """Rows of W (m, n) made to sum to one; ``projected`` gives the closest probabilities."""
    if kind == "projected":
        return projected()
    W = np.maximum(W, 0.0) if kind == "clipped" else W
    sums = W.sum(axis=1)
    nothing = sums <= 0 if kind == "clipped" else lost(W)
    if nothing.any():
        warnings.warn(
            f"{int(nothing.sum())} of {len(W)} embeddings have no mass to speak of (far from the "
            "sample?); all points count alike there",
            NumericalWarning,
            stacklevel=4,
        )
    found = W / np.where(nothing, 1.0, sums)[:, None]
    found[nothing] = 1.0 / W.shape[1]
    if kind == "rearranged":
        # Weights that nearly cancel (an effective sample size below one) have a distribution
        # function that is all noise.
        noise = np.einsum("ij,ij->i", found, found) > 1.0 + 1e-9
        if noise.any():
            found = np.where(noise[:, None], projected(), found)
    return np.asarray(found)


def closest(points: Points, W: Floats, kernel: Kernel) -> Floats:
    """Probability weights (m, n) closest to rows of W (m, n) in RKHS distance."""
    sums = W.sum(axis=1, keepdims=True)
    if np.all(W >= 0) and np.all(sums > 0):
        return np.asarray(W / sums)
    rank = min(PROJECTION_RANK, W.shape[1])
    gram = Gram.of(kernel, points, rank=rank, tol=PROJECTION_TOLERANCE, rng=0, double=True)
    error = gram.error if isinstance(gram, LowRank) else 0.0
    missed = error * float(np.mean(gram.diag))
    return project_simplex(gram.factor, W, missed)


def project_simplex(
    F: Floats, weights: Floats, missed: float = 0.0, steps: int = 100, tol: float = 1e-12
) -> Floats:
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
    F: Floats, W: Floats, largest: float, missed: float, products: Floats | None, steps: int,
    tol: float,
) -> Floats:  # fmt: skip
    """Rows of W on the simplex: a large rho first, each solution the start for a smaller one."""
    u: Floats = np.zeros((len(W), F.shape[1]))
    v, error = W, np.inf
    for relative in PATH:
        enough = tol if relative == PATH[-1] else max(tol, PATH_TOLERANCE)
        u, v, error = _newton(F, W, u, relative * largest + missed, products, steps, enough)
    if error > 1e-6:
        warnings.warn(
            f"the projection of weights on the simplex stopped early (optimal to {error:.0e})",
            NumericalWarning,
            stacklevel=2,
        )
    return np.asarray(v / v.sum(axis=1, keepdims=True))  # one to the last digit


def _newton(
    F: Floats, W: Floats, u: Floats, rho: float, products: Floats | None, steps: int, tol: float
) -> tuple[Floats, Floats, float]:
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


def _newton_step(
    F: Floats, active: Bools, gradient: Floats, rho: float, products: Floats | None
) -> Floats:
    """Solve (I + F_A^T (I - 1 1^T / |A|) F_A / rho) s = gradient for the active set of each row."""
    r = F.shape[1]
    if products is not None:
        A = active.astype(F.dtype)
        sizes = A.sum(axis=1)
        sums = A @ F
        H = (A @ products).reshape(-1, r, r)
        H -= sums[:, :, None] * sums[:, None, :] / sizes[:, None, None]
        H = H / rho + np.eye(r)
        return np.asarray(solve(H, gradient[:, :, None])[:, :, 0])
    steps = np.empty_like(gradient)
    for i, rows in enumerate(active):
        centred = F[rows]
        centred = centred - centred.mean(axis=0)
        H = centred.T @ centred / rho
        H.flat[:: r + 1] += 1.0
        steps[i] = solve(H, gradient[i])
    return steps


def _line_search(
    F: Floats, W: Floats, u: Floats, v: Floats, height: Floats, target: Floats, rho: float,
    rows: Ints, step: Floats, slope: Floats,
) -> Bools:  # fmt: skip
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


def _primal(F: Floats, W: Floats, u: Floats, target: Floats, rho: float) -> tuple[Floats, Floats]:
    """Weights on the simplex that belong to dual variables u (m, r), and the dual's value (m,)."""
    a = W - (u @ F.T) / rho
    t = _thresholds(a)
    v = np.maximum(a - t[:, None], 0.0)
    squares = np.einsum("ij,ij->i", v, v)
    linear = np.einsum("ij,ij->i", u, 0.5 * u + target)
    return v, linear + rho * (0.5 * squares + t)


def _thresholds(a: Floats) -> Floats:
    """Return t (m,) with sum_i max(0, a_i - t) = 1 for each row of a (Duchi et al. 2008)."""
    ordered = -np.sort(-a, axis=1)
    excess = (np.cumsum(ordered, axis=1) - 1.0) / np.arange(1, a.shape[1] + 1)
    last = np.maximum(np.sum(ordered > excess, axis=1) - 1, 0)
    return np.asarray(excess[np.arange(len(a)), last])
