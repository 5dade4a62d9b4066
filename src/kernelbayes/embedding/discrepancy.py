"""The distance between embeddings: the maximum mean discrepancy."""

from __future__ import annotations

from kernelbayes.arrays import Array, epsilon, namespace, to_float
from kernelbayes.embedding.core import Batch, Embedding, MeanElement, check_same_kernel


def mmd2(mu: MeanElement, nu: MeanElement, unbiased: bool = False) -> Array:
    r"""Squared maximum mean discrepancy, the squared RKHS distance of two embeddings.

    .. math:: \mathrm{MMD}^2 = \|\mu - \nu\|^2
              = \langle\mu,\mu\rangle - 2\langle\mu,\nu\rangle + \langle\nu,\nu\rangle

    Parameters
    ----------
    mu, nu : embeddings of the same kernel
    unbiased : bool
        Leave out the terms k(x_i, x_i), so that the expectation over samples is the squared
        distance of the distributions; the estimate may then be negative. For two Embeddings.

    Returns
    -------
    array
        A number, (m,) with a batch, (m, m') between two batches.

    Examples
    --------
    >>> from kernelbayes import Linear, embed, mmd2
    >>> float(mmd2(embed([0.0, 2.0], Linear()), embed([4.0], Linear())))
    9.0
    """
    check_same_kernel(mu, nu)
    if unbiased:
        if not (isinstance(mu, Embedding) and isinstance(nu, Embedding)):
            raise TypeError("the unbiased estimate is for two Embeddings of samples")
        return _off_diagonal(mu) + _off_diagonal(nu) - 2.0 * mu.inner(nu)
    if isinstance(mu, Embedding) and isinstance(nu, Embedding):
        if mu.points is nu.points:  # subtract before squaring: no cancellation
            return (mu - nu)._squared_norm()
        if mu.kernel.finite:
            return namespace(mu.features, nu.features).sum((mu.features - nu.features) ** 2)
    first, second, cross = mu._squared_norm(), nu._squared_norm(), mu.inner(nu)
    if isinstance(mu, Batch) and isinstance(nu, Batch):
        first = first[:, None]
    xp = namespace(cross)
    return xp.clip(first + second - 2.0 * cross, min=0.0)  # only rounding can make it negative


def mmd(mu: MeanElement, nu: MeanElement) -> Array:
    """Maximum mean discrepancy: the RKHS distance of two embeddings (not squared).

    Zero only for equal distributions if the kernel is characteristic. See :func:`mmd2`.
    """
    squared = mmd2(mu, nu)
    return namespace(squared).sqrt(squared)


def _off_diagonal(mu: Embedding) -> Array:
    """Sum over i != j of w_i w_j k(x_i, x_j), rescaled to the full mass."""
    xp = namespace(mu.weights)
    squares = xp.sum(mu.weights**2)
    rest = mu.mass**2 - squares
    if not to_float(rest) > epsilon(mu.weights) * to_float(squares):
        raise ValueError("the unbiased estimate needs at least two points on each side")
    diagonal = xp.sum(mu.weights**2 * mu.kernel.diag(mu.points))
    return (mu._squared_norm() - diagonal) * mu.mass**2 / rest
