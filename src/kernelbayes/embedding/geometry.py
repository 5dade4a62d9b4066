r"""Means on curved spaces: circles, rotations, and products of them with vectors.

A weighted average of angles or of rotation matrices is not what anybody means by their mean: the
average of 359 and 1 degrees is 180. The *extrinsic* mean averages in the space around, the plane
around the circle or the matrices around the rotations, and projects back. It is the point closest
to the average, and does not depend on the sum of the weights.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from kernelbayes.arrays import Array, like, namespace, to_numpy
from kernelbayes.kernels import Kernel, Parts, Periodic, Rotation
from kernelbayes.points import Points, as_vectors


def curved_mean(points: Points, weights: Array, kernel: Kernel) -> Any:
    """Extrinsic mean for a kernel on a curved space; None for vectors.

    Points under ``Parts`` have a mean part by part: a vector for columns, a mapping for named
    parts.
    """
    while isinstance(getattr(kernel, "kernel", None), Kernel):
        kernel = kernel.kernel  # type: ignore[attr-defined]
    if isinstance(kernel, Periodic):
        return circular_mean(points, weights, kernel.period)
    if isinstance(kernel, Rotation):
        return rotation_mean(points, weights)
    if not isinstance(kernel, Parts) or not _is_curved(kernel):
        return None
    if isinstance(points, Mapping):
        means = {}
        for key, part in kernel.parts:
            own = kernel.part(points, key)
            mean = curved_mean(own, weights, part)
            means[key] = weights @ as_vectors(own, str(key)) if mean is None else mean
        return means
    columns = np.arange(points.shape[1], dtype=float)[None, :]
    result = to_numpy(weights @ points).copy()
    for key, part in kernel.parts:
        mean = curved_mean(kernel.part(points, key), weights, part)
        if mean is not None:
            result[..., kernel.part(columns, key)[0].astype(int)] = to_numpy(mean)
    return like(result, weights)


def circular_mean(points: Points, weights: Array, period: Any) -> Array:
    """Direction of the average of points on a circle of the given period, in [0, period)."""
    X = as_vectors(points, "points")
    xp = namespace(X)
    scale = like(period, X) / (2.0 * math.pi)
    angle = X / scale
    mean = xp.atan2(weights @ xp.sin(angle), weights @ xp.cos(angle)) * scale
    turned = xp.where(mean < 0.0, mean + 2.0 * math.pi * scale, mean)
    return xp.where(turned >= 2.0 * math.pi * scale, 0.0 * turned, turned)


def rotation_mean(points: Points, weights: Array) -> Array:
    """Rotation closest to the average matrix, by its singular value decomposition."""
    matrices = to_numpy(points)
    n, p, q = matrices.shape
    W = to_numpy(weights)
    means = (np.atleast_2d(W) @ matrices.reshape(n, -1)).reshape(-1, p, q)
    U, _, V = np.linalg.svd(means)
    U[..., -1] *= np.sign(np.linalg.det(U @ V))[:, None]  # a rotation, not a reflection
    means = U @ V
    return like(means[0] if W.ndim == 1 else means, weights)


def are_rotations(matrices: Any) -> bool:
    """Whether all matrices (n, p, q) are rotations, to single precision."""
    if matrices.ndim != 3 or matrices.shape[1] != matrices.shape[2]:
        return False
    products = matrices @ np.swapaxes(matrices, 1, 2)
    return bool(
        np.allclose(products, np.eye(matrices.shape[1]), atol=1e-6)
        and np.all(np.linalg.det(matrices) > 0)
    )


def _is_curved(kernel: Parts) -> bool:
    return any(
        isinstance(part, Periodic | Rotation) or (isinstance(part, Parts) and _is_curved(part))
        for _, part in kernel.parts
    )
