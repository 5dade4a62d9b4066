"""Support: how much a training sample says about a point."""

from __future__ import annotations

from collections.abc import Sequence

from kernelbayes.arrays import Array, namespace, row_blocks
from kernelbayes.kernels import Kernel
from kernelbayes.points import Points, count, take

SHOWN = 5  # indices that a warning names: enough to go and look, and one line long


def nearest_similarity(kernel: Kernel, X: Points, training: Points) -> Array:
    """Similarity of each x to the nearest training point (landmark), shape (m,), in blocks."""
    training, kernel = kernel.anchors(training), kernel.exact
    parts = []
    for rows in row_blocks(count(X), count(training)):
        chunk = take(X, rows)
        parts.append(similarity(kernel(chunk, training), kernel, chunk, training))
    return namespace(*parts).concat(parts)


def similarity(K: Array, kernel: Kernel, X: Points, training: Points) -> Array:
    """Largest k(x, x_i) / sqrt(k(x, x) k(x_i, x_i)) of each row of K (m, n), shape (m,)."""
    xp = namespace(K)
    norm_x, norm_t = (xp.sqrt(kernel._diag(points)) for points in (X, training))
    # Where a norm is zero so is K: dividing by one leaves it.
    norm_x, norm_t = (xp.where(norm > 0, norm, 1.0 + norm) for norm in (norm_x, norm_t))
    return xp.clip(xp.max(K / norm_t, axis=1) / norm_x, 0.0, 1.0)


def first_few(indices: Sequence[int]) -> str:
    """Return indices for a warning: the first, and whether there are more."""
    shown = ", ".join(str(int(i)) for i in indices[:SHOWN])
    return shown + ", ..." * (len(indices) > SHOWN)
