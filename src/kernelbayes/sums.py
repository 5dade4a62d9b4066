"""Sums over samples, accumulated in double precision whatever the precision of the data.

A sum over a million singles may lose half of its digits. So sums are made of doubles, and results
are rounded once, at the end, to the precision of what they came from.
"""

from __future__ import annotations

from kernelbayes.arrays import Array, namespace, row_blocks


def widened(x: Array) -> Array:
    """Return x in double precision, in which sums over samples are accumulated."""
    xp = namespace(x)
    return x if x.dtype == xp.float64 else xp.astype(x, xp.float64)


def narrowed(x: Array, *templates: Array) -> Array:
    """Return x in the precision of the templates, the finest of them."""
    xp = namespace(x)
    return xp.astype(x, xp.result_type(*templates), copy=False)


def total(x: Array, axis: int = -1) -> Array:
    """Sum over an axis, accumulated in double precision; the result has the precision of x."""
    xp = namespace(x)
    return narrowed(xp.sum(x, axis=axis, dtype=xp.float64), x)


def weighted_sum(weights: Array, values: Array) -> Array:
    """Return weights (n,) or (m, n) @ values (n,) or (n, q) in double precision, by row blocks."""
    xp = namespace(weights, values)
    if weights.dtype == values.dtype == xp.float64:
        return weights @ values
    blocks = row_blocks(weights.shape[-1], max([1, *weights.shape[:-1], *values.shape[1:]]))
    parts = (widened(weights[..., rows]) @ widened(values[rows, ...]) for rows in blocks)
    return sum(parts, start=next(parts))
