r"""Pre-images: the point whose embedding is closest to a given one.

.. math:: \min_y |k(\cdot, y) - \mu|^2 \quad \Longleftrightarrow \quad
          \max_y \; 2 \mu(y) - k(y, y)

The search starts at the best of the embedding's own points (or of given candidates) and never ends
below it. A Gaussian kernel has the fixed-point iteration of Mika et al. (1999); other smooth
kernels on vectors are climbed by a quasi-Newton method with gradients by central differences, all
members of a batch at once; kernels with kinks and kernels on structured spaces stop at the best
candidate.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from kernelbayes.arrays import like, row_blocks, to_numpy
from kernelbayes.embedding.base import WeightedSample
from kernelbayes.embedding.density import first_point
from kernelbayes.embedding.geometry import are_rotations, rotation_mean
from kernelbayes.gram.features import Fourier, Landmarks
from kernelbayes.kernels import (
    Gaussian,
    Kernel,
    Linear,
    Matern,
    Parts,
    Periodic,
    Polynomial,
    Product,
    RationalQuadratic,
    Rotation,
    Scaled,
    Sum,
    Trace,
)
from kernelbayes.points import Points, take

# Step of central differences, relative to the spread of the points: the cube root of epsilon.
DIFFERENCE = 6e-6


class Preimages(WeightedSample):
    """Back from the feature space."""

    def preimage(self, candidates: Any = None) -> Points:
        """Return the point y whose embedding k(., y) is closest to this one.

        Gaussian kernel: the fixed-point iteration of Mika et al. (1999), safeguarded against
        negative denominators. Other smooth kernels on vectors (Matern with nu > 1, rational
        quadratic, periodic, linear, polynomial, their sums, products, parts and low-rank
        approximations): quasi-Newton ascent. Matrices (``Trace``): the weighted mean matrix; for
        rotations it is projected on the rotations by its singular value decomposition. Everything
        else, or with ``candidates``: the best of the candidates (by default the embedding's own
        points).

        Returns
        -------
        point
            Of shape (d,); with a leading axis for a batch, whose members are searched for
            together. A peak is found, not surely the highest: a distribution with several peaks
            has several good pre-images.

        Examples
        --------
        >>> from kernelbayes import Linear, Matern, embed
        >>> embed([[0.0, 1.0], [4.0, 5.0]], Linear()).preimage().round(6)  # the mean
        array([2., 3.])
        >>> embed([0.0, 0.2, 1.0], Matern(2.0, nu=2.5)).preimage().round(2)
        array([0.38])
        """
        if candidates is None and isinstance(self.kernel, Rotation | Trace):
            if isinstance(self.kernel, Rotation) or are_rotations(to_numpy(self.points)):
                return rotation_mean(self.points, self.weights)
            return self.expect(self.points)  # type: ignore[attr-defined]
        Y = self.points if candidates is None else self.kernel.points(candidates, "candidates")
        heights = 2.0 * self(Y) - self.kernel.diag(Y)
        best = np.atleast_1d(np.argmax(to_numpy(heights), axis=-1))
        found = take(Y, best)
        if candidates is None and not isinstance(found, dict | list) and is_smooth(self.kernel):
            found = like(self._climb(np.asarray(to_numpy(found), dtype=float)), self.weights)
        return first_point(found) if self._single else found

    def _climb(self, start: Any) -> Any:
        """Better points (m, d) than the starts."""
        X = np.asarray(to_numpy(self.points), dtype=float)
        W = np.atleast_2d(np.asarray(to_numpy(self.weights), dtype=float))
        if isinstance(self.kernel, Gaussian):
            return _fixed_point(X, W, self.kernel, start)
        scale = X.std(axis=0)
        return ascend(_objective(self.kernel, X, W), start, np.where(scale > 0, scale, 1.0))


def is_smooth(kernel: Kernel) -> bool:
    """Whether a kernel is differentiable on vectors, so that pre-images can be climbed to."""
    match kernel:
        case Matern():
            return bool(kernel.nu > 1.0)
        case Gaussian() | RationalQuadratic() | Periodic() | Linear() | Polynomial() | Fourier():
            return True
        case Scaled() | Landmarks():
            return is_smooth(kernel.kernel)
        case Sum() | Product():
            return is_smooth(kernel.left) and is_smooth(kernel.right)
        case Parts():
            return all(is_smooth(part) for _, part in kernel.parts)
    return False


def _objective(kernel: Kernel, X: Any, W: Any) -> Callable[[Any, Any], Any]:
    """Return 2 mu_i(y) - k(y, y) as a function of rows i (q,) and points y (q, p, d): (q, p)."""
    if kernel.finite:
        means = W @ to_numpy(kernel.features(X))

        def with_features(rows: Any, y: Any) -> Any:
            F = to_numpy(kernel.features(y.reshape(-1, y.shape[-1])))
            F = F.reshape(*y.shape[:2], -1)
            return 2.0 * np.einsum("qpr,qr->qp", F, means[rows]) - np.einsum("qpr,qpr->qp", F, F)

        return with_features

    def with_kernel(rows: Any, y: Any) -> Any:
        q, p, d = y.shape
        values = np.empty((q, p))
        for block in row_blocks(q, p * len(X)):
            flat = y[block].reshape(-1, d)
            K = to_numpy(kernel(flat, X)).reshape(-1, p, len(X))
            values[block] = 2.0 * np.einsum("qpn,qn->qp", K, W[rows[block]])
            values[block] -= to_numpy(kernel.diag(flat)).reshape(-1, p)
        return values

    return with_kernel


def ascend(objective: Callable[[Any, Any], Any], start: Any, scale: Any, steps: int = 60) -> Any:
    """Maximise a function of each row's point by BFGS, all rows (m, d) at once.

    ``objective(rows, y)`` gives values (q, p) at points y (q, p, d). Steps are accepted only if
    they go up by more than rounding, so that no row ends below its start.
    """
    m, d = start.shape
    offsets = DIFFERENCE * np.concatenate([np.eye(d), -np.eye(d)])
    rows = np.arange(m)

    def gradient(rows: Any, y: Any) -> Any:
        values = objective(rows, (y[:, None, :] + offsets) * scale)
        return (values[:, :d] - values[:, d:]) / (2.0 * DIFFERENCE)

    y = start / scale  # in units of the points' spread
    top = objective(rows, start[:, None, :])[:, 0]
    g = gradient(rows, y)
    # The first step is a tenth of the spread at most; its curvature then sets the size.
    H = np.eye(d) * (0.1 / np.maximum(np.linalg.norm(g, axis=1), 1e-300))[:, None, None]
    for _ in range(steps):
        direction = np.einsum("qij,qj->qi", H[rows], g[rows])
        slope = np.einsum("qi,qi->q", g[rows], direction)
        moved = _backtrack(objective, rows, y, top, direction, slope, scale)
        length = np.abs(moved).max(axis=1)
        rows, moved = rows[length > 0], moved[length > 0]
        if len(rows) == 0:
            break
        new = gradient(rows, y[rows])
        H[rows] = _bfgs(H[rows], moved, g[rows] - new)
        g[rows] = new
        rows = rows[np.abs(moved).max(axis=1) > 1e-9]
    return np.where((y != start / scale).any(axis=1)[:, None], y * scale, start)


def _backtrack(
    objective: Any, rows: Any, y: Any, top: Any, direction: Any, slope: Any, scale: Any
) -> Any:
    """Move rows of y uphill by a fraction 1, 1/4, ... of their directions; returns the moves."""
    moves = np.zeros_like(direction)
    left = np.flatnonzero(slope > 0)
    length = 1.0
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
        left = left[~good]
        length *= 0.25
    return moves


def _bfgs(H: Any, s: Any, c: Any) -> Any:
    """Update inverse Hessians (q, d, d) of -objective by steps s and gradient changes c (q, d)."""
    curvature = np.einsum("qi,qi->q", s, c)
    norms = np.linalg.norm(s, axis=1) * np.linalg.norm(c, axis=1)
    good = curvature > 1e-8 * norms  # elsewhere the function is not concave: keep H
    rho = np.where(good, 1.0 / np.where(good, curvature, 1.0), 0.0)[:, None, None]
    left = np.eye(s.shape[1]) - rho * s[:, :, None] * c[:, None, :]
    new = left @ H @ np.swapaxes(left, 1, 2) + rho * s[:, :, None] * s[:, None, :]
    return np.where(good[:, None, None], new, H)


def _fixed_point(X: Any, W: Any, kernel: Gaussian, starts: Any, steps: int = 200) -> Any:
    """Maximise sum_i w_i k(y, x_i) for each row of W at once; never below the start."""
    best = starts.copy()
    top = np.full(len(W), -np.inf)
    y, rows = starts.copy(), np.arange(len(W))
    for _ in range(steps):
        K = kernel(y, X) * W[rows]
        total = K.sum(axis=1, keepdims=True)
        better = total[:, 0] > top[rows]
        best[rows[better]], top[rows[better]] = y[better], total[better, 0]
        # A denominator that is not clearly positive would throw the iterate anywhere: stop there.
        safe = total[:, 0] > 1e-12 * np.abs(K).sum(axis=1)
        rows, K, total, y = rows[safe], K[safe], total[safe], y[safe]
        new = (K @ X) / total
        moving = np.abs(new - y).max(axis=1, initial=0.0) > 1e-10 * float(np.max(kernel.bandwidth))
        y, rows = new[moving], rows[moving]
        if len(rows) == 0:
            break
    return best
