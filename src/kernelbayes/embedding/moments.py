"""Linear questions: expectations, covariances, and how wrong an expectation can be.

Weights are (n,), or (m, n) for a batch, of any array kind; answers then have a leading axis m.
"""

from __future__ import annotations

from collections.abc import Callable

from kernelbayes.arrays import Array, as_array, like, namespace
from kernelbayes.embedding.mean import MeanElement, Weighted
from kernelbayes.points import Points


def expect(points: Points, weights: Array, f: Callable[[Points], Array] | Array) -> Array:
    """Sum of w_i f(x_i), for a function of the points or its values (n, ...)."""
    values = like(as_array(f(points) if callable(f) else f), weights)
    n = weights.shape[-1]
    if values.ndim == 0 or values.shape[0] != n:
        raise ValueError(
            f"f must give one value per point, shape ({n}, ...), got {tuple(values.shape)}"
        )
    xp = namespace(values)
    found = weights @ xp.reshape(values, (n, -1))
    return xp.reshape(found, (*weights.shape[:-1], *values.shape[1:]))


def expect_bound(mu: MeanElement, f: MeanElement, other: MeanElement | float | Array) -> Array:
    """Norm of f times the distance to the other embedding, or times the distance given."""
    if not isinstance(f, MeanElement) or f.kernel != mu.kernel:
        raise TypeError(
            "the bound holds for functions in the RKHS of the embedding's kernel: give f as "
            "embed(points, kernel, coefficients)"
        )
    if not isinstance(other, MeanElement):
        return f.norm() * other
    # Not (mu - other).norm(): a closed form has no weights to subtract.
    squared = mu.norm() ** 2 - 2.0 * mu.inner(other) + other.norm() ** 2
    xp = namespace(squared)
    return f.norm() * xp.sqrt(xp.clip(squared, min=0.0))


def covariance(mu: Weighted) -> Array:
    """Covariance matrix (d, d) of the weights divided by their sum, or of those of ``valid()``."""
    X, w = mu.vectors, mu.weights
    xp = namespace(w)
    if bool(xp.any(w < 0)) or bool(xp.any(xp.sum(w, axis=-1) <= 0)):
        w = mu.valid().weights  # with negative weights a variance can be negative
    else:
        w = w / xp.sum(w, axis=-1, keepdims=True)
    X = X - xp.mean(X, axis=0)
    n, d = X.shape
    second = w @ xp.reshape(X[:, :, None] * X[:, None, :], (n, d * d))
    centre = w @ X
    return xp.reshape(second, (*w.shape[:-1], d, d)) - centre[..., :, None] * centre[..., None, :]
