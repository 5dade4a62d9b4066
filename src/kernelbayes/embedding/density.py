"""Density and mode: kernel density estimates from the weighted sample."""

from __future__ import annotations

from typing import Literal

import numpy as np
from array_api_compat import is_array_api_obj
from scipy.special import logsumexp

from kernelbayes.arrays import Array, Floats, as_vectors, row_blocks, to_numpy
from kernelbayes.embedding.mean import Weighted, vectors
from kernelbayes.embedding.simplex import Kind
from kernelbayes.embedding.smooth import bandwidths, silverman
from kernelbayes.kernels import Gaussian, Kernel
from kernelbayes.points import Points, PointsLike, take

# Heaviest points among which mean shift looks for places to start: bounds the cost to one Gram
# matrix with that many rows. A judgement, not a measurement.
MODE_CANDIDATES = 500
STEPS, STILL = 200, 1e-9  # of mean shift; a move, in bandwidths, that counts as none


def density(
    points: Points, W: Floats, kind: Kind, X: PointsLike, bandwidth: float | Array | None = None
) -> Floats:
    """Densities (m, k) at X (k, d) of weights W (m, n), by Silverman's rule or a bandwidth."""
    P, X = _both(points, X, kind)
    if bandwidth is None:
        return np.concatenate([_density(P, w[None], X, silverman(P, w)) for w in W])
    return _density(P, W, X, bandwidths(bandwidth, P.shape[1]))


def _density(P: Floats, W: Floats, X: Floats, h: Floats) -> Floats:
    return np.asarray(W @ Gaussian(tuple(h))(P, X) / np.prod(np.sqrt(2.0 * np.pi) * h))


def log_density(
    points: Points, W: Floats, kind: Kind, X: PointsLike, bandwidth: float | Array | None = None
) -> Floats:
    """Logarithm of :func:`density`, also where the density is too small for a number."""
    P, X = _both(points, X, kind)
    if kind == "raw":
        raise ValueError("a density of raw weights may be negative; use 'projected' or 'clipped'")
    found = np.empty((len(W), len(X)))
    for row, w in zip(found, W, strict=True):
        h = silverman(P, w) if bandwidth is None else bandwidths(bandwidth, P.shape[1])
        centres, weights = P[w > 0] / h, w[w > 0]
        for at in row_blocks(len(X), centres.size):
            D = np.sum((X[at, None, :] / h - centres) ** 2, axis=2)
            row[at] = logsumexp(-0.5 * D, axis=1, b=weights)
        row -= np.sum(np.log(np.sqrt(2.0 * np.pi) * h))
    return found


def _both(points: Points, X: PointsLike, kind: Kind) -> tuple[Floats, Floats]:
    if kind == "rearranged":
        raise ValueError("a density has no rearrangement; use 'projected' or 'clipped'")
    P, X = to_numpy(vectors(points)), to_numpy(as_vectors(X, "X"))
    if X.shape[1] != P.shape[1]:
        raise ValueError(f"X has {X.shape[1]} coordinates, the points have {P.shape[1]}")
    return P, X


def grid_density(X: Floats, w: Floats, size: int) -> tuple[list[Floats], Floats]:
    """Density of a weighted sample (n, d), d = 1 or 2, on a grid over the points with weight.

    Returns the grid of each coordinate (size,), and the density (size,) or (size of y, size of x).
    """
    h = silverman(X, w)
    used = X[w > 1e-3 * w.max()]
    ends = zip(used.min(axis=0) - 3.0 * h, used.max(axis=0) + 3.0 * h, strict=True)
    grids: list[Floats] = [np.linspace(low, high, size) for low, high in ends]
    # A product kernel: one narrow matrix per coordinate instead of one over the whole grid.
    factors = [
        np.exp(-0.5 * ((g[:, None] - x) / s) ** 2) / (np.sqrt(2.0 * np.pi) * s)
        for g, x, s in zip(grids, X.T, h, strict=True)
    ]
    return grids, factors[0] @ w if len(grids) == 1 else (factors[1] * w) @ factors[0].T


def mode(
    mu: Weighted,
    starts: int = 5,
    bandwidth: float | Array | None = None,
    by: Literal["density", "weight"] = "density",
) -> Points:
    """Most probable point: the density's highest peak, or the point of largest weight."""
    if by not in ("density", "weight"):
        raise ValueError(f"by must be 'density' or 'weight', got {by!r}")
    W = mu.valid_weights()
    if by == "weight" or not has_density(mu.points, mu.kernel):
        heights = W if by == "weight" else np.atleast_2d(to_numpy(mu.valid()(mu.points)))
        found = take(mu.points, np.argmax(heights, axis=1))
        return first_point(found) if mu._single else found
    X = to_numpy(mu.vectors)
    return mu._answer(np.stack([_peak(X, w, starts, bandwidth) for w in W]))


def _peak(X: Floats, w: Floats, starts: int, bandwidth: float | Array | None) -> Floats:
    """Highest peak (d,) of sum_i w_i k(x, x_i), w >= 0, that mean shift finds from the starts."""
    h = silverman(X, w) if bandwidth is None else bandwidths(bandwidth, X.shape[1])
    kernel = Gaussian(tuple(h))
    heavy = X[np.argsort(-w)[:MODE_CANDIDATES]]
    x = heavy[np.argsort(-(kernel(heavy, X) @ w))[:starts]]
    for _ in range(STEPS):
        K = kernel(x, X) * w
        new = (K @ X) / np.maximum(K.sum(axis=1, keepdims=True), 1e-300)
        moved = np.abs(new - x).max()
        x = new
        if moved <= STILL * np.max(h):
            break
    return np.asarray(x[np.argmax(kernel(x, X) @ w)])


def has_density(points: Points, kernel: Kernel) -> bool:
    """Whether points are numbers or vectors of numbers, and not angles or categories."""
    return bool(
        kernel.has_density
        and is_array_api_obj(points)
        and points.ndim <= 2
        and getattr(points.dtype, "kind", "f") in "fiub"
    )


def first_point(points: Points) -> Points:
    """Return the first of several points; of a joint variable, the first of every part."""
    if isinstance(points, dict):
        return {part: first_point(rows) for part, rows in points.items()}
    return points[0]
