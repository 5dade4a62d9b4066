r"""Pre-images: the point whose embedding is closest to a given one.

.. math:: \min_y |k(\cdot, y) - \mu|^2 \quad \Longleftrightarrow \quad
          \max_y \; 2 \mu(y) - k(y, y)

The search starts at the best of the embedding's own points and never ends below it. A Gaussian
kernel has the fixed-point iteration of Mika et al. (1999); other smooth kernels on vectors are
climbed by a quasi-Newton method with gradients by central differences, all members of a batch at
once; kernels with kinks and kernels on structured spaces stop at the best of the points.
"""

from collections.abc import Callable

import numpy as np

from kernelbayes.arrays import like, row_blocks, to_numpy
from kernelbayes.embedding.density import first_point
from kernelbayes.embedding.mean import Weighted
from kernelbayes.kernels import Kernel
from kernelbayes.points import take
from kernelbayes.types import Floats, Ints, Points, PointsLike

# Step of central differences, relative to the spread of the points: the cube root of epsilon.
GRADIENT_STEP = 6e-6
# Bounds on the steps of BFGS and of the fixed point; both end before if nothing moves any more.
ASCENTS, FIXED_POINT_STEPS = 60, 200
# Values (q, p) at points y (q, p, d), for the rows i (q,) of a batch.
Objective = Callable[[Ints, Floats], Floats]


def preimage(mu: Weighted, candidates: PointsLike | None = None) -> Points:
    """Point whose embedding is closest to mu; with a leading axis for a batch."""
    kernel = mu.kernel
    closed = kernel.preimage_of(mu.points, mu.weights) if candidates is None else None
    if closed is not None:
        return closed
    Y = mu.points if candidates is None else kernel.points(candidates, "candidates")
    heights = 2.0 * mu(Y) - kernel.diag(Y)
    found = take(Y, np.atleast_1d(np.argmax(to_numpy(heights), axis=-1)))
    if candidates is None and not isinstance(found, dict | list) and kernel.is_smooth:
        X, start = (np.asarray(to_numpy(p), dtype=float) for p in (mu.points, found))
        if kernel.gaussian_bandwidth is not None:
            best = _fixed_point(kernel, X, mu._rows, start)
        else:
            scale = X.std(axis=0)
            best = ascend(_objective(kernel, X, mu._rows), start, np.where(scale > 0, scale, 1.0))
        found = like(best, mu.weights)
    return first_point(found) if mu._single else found


def _objective(kernel: Kernel, X: Floats, W: Floats) -> Objective:
    """Return 2 mu_i(y) - k(y, y) as a function of rows i (q,) and points y (q, p, d): (q, p)."""
    over = W @ to_numpy(kernel.features(X)) if kernel.finite else W

    def objective(rows: Ints, y: Floats) -> Floats:
        q, p, d = y.shape
        values = np.empty((q, p))
        for block in row_blocks(q, p * over.shape[1]):
            flat = y[block].reshape(-1, d)
            K = to_numpy(kernel.features(flat) if kernel.finite else kernel(flat, X))
            heights = np.einsum("qpn,qn->qp", K.reshape(-1, p, over.shape[1]), over[rows[block]])
            own = np.einsum("ij,ij->i", K, K) if kernel.finite else to_numpy(kernel.diag(flat))
            values[block] = 2.0 * heights - own.reshape(-1, p)
        return values

    return objective


def ascend(objective: Objective, start: Floats, scale: Floats) -> Floats:
    """Maximise a function of each row's point (m, d) by BFGS, all rows at once.

    Steps must go up by more than rounding, so that no row ends below its start.
    """
    m, d = start.shape
    offsets = GRADIENT_STEP * np.concatenate([np.eye(d), -np.eye(d)])
    rows = np.arange(m)
    y = start / scale  # in units of the points' spread
    top = objective(rows, start[:, None, :])[:, 0]

    def gradient(rows: Ints) -> Floats:
        values = objective(rows, (y[rows, None, :] + offsets) * scale)
        return (values[:, :d] - values[:, d:]) / (2.0 * GRADIENT_STEP)

    def uphill(rows: Ints, direction: Floats, slope: Floats) -> Floats:
        """Move rows of y by a fraction 1, 1/4, ... of their directions; returns the moves."""
        moves = np.zeros_like(direction)
        left, length = np.flatnonzero(slope > 0), 1.0
        for _ in range(15):
            if len(left) == 0:
                break
            at = rows[left]
            new = y[at] + length * direction[left]
            values = objective(at, (new * scale)[:, None, :])[:, 0]
            noise = 8.0 * np.finfo(float).eps * np.abs(top[at])
            good = values > top[at] + np.maximum(1e-4 * length * slope[left], noise)
            moves[left[good]] = new[good] - y[at[good]]
            y[at[good]], top[at[good]] = new[good], values[good]
            left, length = left[~good], 0.25 * length
        return moves

    g = gradient(rows)
    # The first step is a tenth of the spread at most; its curvature then sets the size.
    H = np.eye(d) * (0.1 / np.maximum(np.linalg.norm(g, axis=1), 1e-300))[:, None, None]
    for _ in range(ASCENTS):
        direction = np.einsum("qij,qj->qi", H[rows], g[rows])
        moved = uphill(rows, direction, np.einsum("qi,qi->q", g[rows], direction))
        length = np.abs(moved).max(axis=1)
        rows, moved = rows[length > 0], moved[length > 0]
        if len(rows) == 0:
            break
        new = gradient(rows)
        H[rows] = _bfgs(H[rows], moved, g[rows] - new)
        g[rows] = new
        rows = rows[np.abs(moved).max(axis=1) > 1e-9]
    return np.where((y != start / scale).any(axis=1)[:, None], y * scale, start)


def _bfgs(H: Floats, s: Floats, c: Floats) -> Floats:
    """Update inverse Hessians (q, d, d) of -objective by steps s and gradient changes c (q, d)."""
    curvature = np.einsum("qi,qi->q", s, c)
    norms = np.linalg.norm(s, axis=1) * np.linalg.norm(c, axis=1)
    good = curvature > 1e-8 * norms  # elsewhere the function is not concave: keep H
    rho = np.where(good, 1.0 / np.where(good, curvature, 1.0), 0.0)[:, None, None]
    left = np.eye(s.shape[1]) - rho * s[:, :, None] * c[:, None, :]
    new = left @ H @ np.swapaxes(left, 1, 2) + rho * s[:, :, None] * s[:, None, :]
    return np.where(good[:, None, None], new, H)


def _fixed_point(kernel: Kernel, X: Floats, W: Floats, starts: Floats) -> Floats:
    """Maximise sum_i w_i k(y, x_i) for each row of W at once; never below the start."""
    still = 1e-10 * float(np.max(np.asarray(kernel.gaussian_bandwidth)))
    best = starts.copy()
    top = np.full(len(W), -np.inf)
    y, rows = starts.copy(), np.arange(len(W))
    for _ in range(FIXED_POINT_STEPS):
        K = kernel(y, X) * W[rows]
        total = K.sum(axis=1, keepdims=True)
        better = total[:, 0] > top[rows]
        best[rows[better]], top[rows[better]] = y[better], total[better, 0]
        # A denominator that is not clearly positive would throw the iterate anywhere: stop there.
        safe = total[:, 0] > 1e-12 * np.abs(K).sum(axis=1)
        rows, K, total, y = rows[safe], K[safe], total[safe], y[safe]
        new = (K @ X) / total
        moving = np.abs(new - y).max(axis=1, initial=0.0) > still
        y, rows = new[moving], rows[moving]
        if len(rows) == 0:
            break
    return best
