r"""Projection on the simplex: the probability weights v closest to weights w in RKHS distance.

.. math:: \min_v \tfrac12 |F^\top (v - w)|^2 + \tfrac\rho2 |v - w|^2
          \quad \text{with } v \ge 0, \; \textstyle\sum_i v_i = 1

with F (n, r) features of the points: the first term is half the squared RKHS distance. The small
rho makes the answer unique where the features say nothing.

The dual has only r variables u = F^T (v - w): given u, ``v = max(0, w - F u / rho - t)`` with t
such that v sums to one. Its optimality condition ``u = F^T (v(u) - w)`` is piecewise linear, and
Newton's method with a line search ends at the solution to working precision; a step costs O(n r^2).
A large rho is easy: the method starts there and follows the solution, 10 to 50 steps in all.
"""

import numpy as np

from kernelbayes.arrays import BLOCK_ENTRIES, row_blocks, threads_for, warn
from kernelbayes.gram import Gram, LowRank
from kernelbayes.gram.lapack import solve
from kernelbayes.kernels import Kernel
from kernelbayes.types import Bools, Floats, Ints, Points

# Rank and relative trace error of the features in which weights are projected: a Newton step costs
# O(n r^2), and what 300 features miss counts as a multiple of the identity.
PROJECTION_RANK = 300
PROJECTION_TOLERANCE = 1e-8
# rho relative to the largest eigenvalue of F F^T: the last one counts, the others lead to it and
# need be solved only roughly.
PATH = (1e-1, 1e-2, 1e-3, 1e-4, 1e-5)
PATH_TOLERANCE = 1e-3
# The optimality condition holds to this at the end, relative to the size of the features: a few
# thousand roundings. PROJECTION_STEPS, for each rho, is twice what the whole path takes.
TOLERANCE, PROJECTION_STEPS = 1e-12, 100
# Weights are projected up to this size, the sum of their absolute values. Of larger ones only the
# linear term of the distance matters, and 16 digits leave nothing to find the threshold with; what
# the square would change is less than one part in a million.
LARGEST_SIZE = 1e6
PRODUCT_ENTRIES = BLOCK_ENTRIES  # of the (n, r^2) products of features, 32 MB


def closest(points: Points, W: Floats, kernel: Kernel) -> Floats:
    """Probability weights (m, n) closest to rows of W (m, n) in RKHS distance."""
    sums = W.sum(axis=1, keepdims=True)
    if np.all(W >= 0) and np.all(sums > 0):
        return np.asarray(W / sums)
    largest = np.abs(W).max(axis=1, keepdims=True)
    size = largest * np.abs(W / np.where(largest > 0, largest, 1.0)).sum(axis=1, keepdims=True)
    if np.any(size > LARGEST_SIZE):
        warn(
            f"weights as large as {largest.max():.0e}, of both signs, are made smaller before the "
            "closest probability is looked for; divide them by their sum first"
        )
        W = np.where(size > LARGEST_SIZE, LARGEST_SIZE * (W / size), W)
    rank = min(PROJECTION_RANK, W.shape[1])
    gram = Gram.of(kernel, points, rank=rank, tol=PROJECTION_TOLERANCE, rng=0, double=True)
    error = gram.error if isinstance(gram, LowRank) else 0.0
    return project_simplex(gram.factor, W, error * float(np.mean(gram.diag)))


def project_simplex(F: Floats, weights: Floats, missed: float = 0.0) -> Floats:
    """Rows of weights (m, n) moved to the simplex, closest in the distance of features F (n, r).

    ``missed`` is the average of k(x_i, x_i) that the features miss. It counts as a multiple of the
    identity, which the rest of a Gram matrix is near where few features do not suffice.
    """
    n, r = F.shape
    with threads_for(2.0 * F.size * len(weights)):
        largest = max(float(np.linalg.norm(F.T @ F, 2)), 1e-300)
        # The products make the Newton systems of many rows one matrix product.
        small = n * r * r <= PRODUCT_ENTRIES
        products = (F[:, :, None] * F[:, None, :]).reshape(n, -1) if small else None
        found = np.empty(weights.shape)
        for rows in row_blocks(len(weights), n):
            dual = _Dual(F, weights[rows], products)
            for relative in PATH:  # each solution is the start for the next, smaller rho
                tol = TOLERANCE if relative == PATH[-1] else PATH_TOLERANCE
                error = dual.solve(relative * largest + missed, tol)
            if error > 1e-6:
                warn(f"the projection on the simplex stopped early (optimal to {error:.0e})")
            found[rows] = dual.v / dual.v.sum(axis=1, keepdims=True)  # one to the last digit
    return found


class _Dual:
    """Dual variables u (m, r) of rows W (m, n), the weights v (m, n) that belong to them."""

    def __init__(self, F: Floats, W: Floats, products: Floats | None) -> None:
        self.F, self.W, self.products = F, W, products
        self.target = W @ F
        self.scale = max(float(np.abs(F).max()), 1e-300)
        self.u: Floats = np.zeros(self.target.shape)
        self.v: Floats = W
        self.height: Floats = np.zeros(len(W))  # the value of the dual
        self.rho = np.inf

    def solve(self, rho: float, tol: float) -> float:
        """Newton's method for all rows at once; returns how far from optimal the worst one is."""
        self.rho = rho
        rows = np.arange(len(self.W))
        self.v, self.height = self.primal(rows, self.u)
        for _ in range(PROJECTION_STEPS):
            gradient = self.gradient(rows)
            unsolved = np.abs(gradient).max(axis=1) > tol * self.scale
            rows, gradient = rows[unsolved], gradient[unsolved]
            if len(rows) == 0:
                break
            rows = rows[self.descend(rows, gradient)]
        return float(np.abs(self.gradient(np.arange(len(self.W)))).max()) / self.scale

    def gradient(self, rows: Ints) -> Floats:
        """Return u - F^T (v - w) of some rows, which is zero at the solution."""
        return np.asarray(self.u[rows] - self.v[rows] @ self.F + self.target[rows])

    def primal(self, rows: Ints, u: Floats) -> tuple[Floats, Floats]:
        """Weights on the simplex that belong to u, and the value of the dual (m,)."""
        a = self.W[rows] - (u @ self.F.T) / self.rho
        # t (m,) such that sum_i max(0, a_i - t) = 1 in each row (Duchi et al. 2008).
        ordered = -np.sort(-a, axis=1)
        excess = (np.cumsum(ordered, axis=1) - 1.0) / np.arange(1, a.shape[1] + 1)
        last = np.maximum(np.sum(ordered > excess, axis=1) - 1, 0)
        t = excess[np.arange(len(a)), last]
        v = np.maximum(a - t[:, None], 0.0)
        squares = np.einsum("ij,ij->i", v, v)
        linear = np.einsum("ij,ij->i", u, 0.5 * u + self.target[rows])
        return v, linear + self.rho * (0.5 * squares + t)

    def descend(self, rows: Ints, gradient: Floats) -> Bools:
        """Take Newton steps, halved until the dual falls enough (Armijo); which rows moved."""
        step = -self.newton_step(self.v[rows] > 0, gradient)
        slope = np.einsum("ij,ij->i", gradient, step)
        taken, length = np.zeros(len(rows), dtype=bool), 1.0
        for _ in range(30):
            left = np.flatnonzero(~taken)
            if len(left) == 0:
                break
            at = rows[left]
            u = self.u[at] + length * step[left]
            v, height = self.primal(at, u)
            # Within rounding a step counts as down, or the last digits would never be reached.
            allowed = 1e-4 * length * slope[left] + 1e-15 * np.abs(self.height[at])
            good = height <= self.height[at] + allowed
            moved = at[good]
            self.u[moved], self.v[moved], self.height[moved] = u[good], v[good], height[good]
            taken[left[good]] = True
            length *= 0.5
        return taken

    def newton_step(self, active: Bools, gradient: Floats) -> Floats:
        """Solve (I + F_A^T (I - 1 1^T / |A|) F_A / rho) s = gradient, A the active set of a row."""
        F, r = self.F, self.F.shape[1]
        if self.products is not None:
            A = active.astype(F.dtype)
            sums = A @ F
            H = (A @ self.products).reshape(-1, r, r)
            H -= sums[:, :, None] * sums[:, None, :] / A.sum(axis=1)[:, None, None]
            return np.asarray(solve(H / self.rho + np.eye(r), gradient[:, :, None])[:, :, 0])
        steps = np.empty_like(gradient)
        for i, rows in enumerate(active):
            centred = F[rows] - F[rows].mean(axis=0)
            H = centred.T @ centred / self.rho
            H.flat[:: r + 1] += 1.0
            steps[i] = solve(H, gradient[i])
        return steps
