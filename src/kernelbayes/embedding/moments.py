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
    result = weights @ xp.reshape(values, (n, -1))
    return xp.reshape(result, (*weights.shape[:-1], *values.shape[1:]))


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


def moment(X: Array, weights: Array, k: int) -> Array:
    """Raw moment of order k of each coordinate of X (n, d), shape (d,)."""
    if k < 1:
        raise ValueError(f"the order of a moment must be at least 1, got {k}")
    return weights @ X**k


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
    pairs = xp.reshape(X[:, :, None] * X[:, None, :], (n, d * d))
    second = xp.reshape(w @ pairs, (*w.shape[:-1], d, d))
    centre = w @ X
    return second - centre[..., :, None] * centre[..., None, :]


def deviations(cov: Array) -> Array:
    """Return the standard deviations (..., d) of covariance matrices (..., d, d)."""
    xp = namespace(cov)
    variances = xp.linalg.diagonal(cov)
    return xp.sqrt(xp.clip(variances, min=0.0))  # only rounding can make it negative
