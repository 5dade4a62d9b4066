"""Linear questions: expectations, moments, covariance, and how wrong an expectation can be."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kernelbayes.arrays import Array, like, namespace
from kernelbayes.embedding.base import WeightedSample
from kernelbayes.embedding.geometry import curved_mean
from kernelbayes.points import Points, as_array


class Moments(WeightedSample):
    """Expectations with the weights as they are (the estimate of the papers)."""

    def expect(self, f: Callable[[Points], Array] | Array) -> Array:
        r"""Return the estimate of E[f].

        .. math:: \hat{E}[f] = \sum_i w_i f(x_i)

        Parameters
        ----------
        f : function, embedding or array (n, ...)
            A vectorised function of the points, in the RKHS or not (KMCF16 chapter 5), or its
            values at the points. An embedding is an RKHS function: the answer is then the inner
            product with it, and :meth:`expect_bound` says how wrong it can be.

        Returns
        -------
        array (...)
            With a leading axis for a batch.

        Examples
        --------
        >>> from kernelbayes import Gaussian, embed
        >>> embed([1.0, 2.0, 6.0], Gaussian(1.0)).expect(lambda x: x[:, 0] > 1.5).round(3)
        np.float64(0.667)
        """
        values = f(self.points) if callable(f) else f
        values = like(as_array(values), self.weights)
        n = self.weights.shape[-1]
        if values.ndim == 0 or values.shape[0] != n:
            raise ValueError(
                f"f must give one value per point, shape ({n}, ...), got {tuple(values.shape)}"
            )
        flat = namespace(values).reshape(values, (values.shape[0], -1))
        result = self.weights @ flat
        return namespace(result).reshape(result, (*self.weights.shape[:-1], *values.shape[1:]))

    def expect_bound(self, f: Any, other: Any) -> Array:
        r"""Bound on the difference of expectations of an RKHS function f under two embeddings.

        .. math:: |E_\mu[f] - E_\nu[f]| = |\langle f, \mu - \nu \rangle| \le |f| \, |\mu - \nu|

        Parameters
        ----------
        f : Embedding
            An RKHS function: ``embed(points, kernel, coefficients)`` is sum_j c_j k(., y_j).
        other : Embedding, GaussianEmbedding, float or array
            nu, the truth for instance, or the distance to it: what ``mmd`` or a theorem gives. For
            n independent draws the expected distance to the truth is at most sqrt(sup k / n).

        Returns
        -------
        array, 0-d
            (m,) for a batch against an embedding.

        Examples
        --------
        >>> from kernelbayes import Gaussian, embed
        >>> k = Gaussian(1.0)
        >>> mu, nu, f = embed([0.0, 1.0], k), embed([0.5, 1.5], k), embed([0.2], k, [3.0])
        >>> gap = abs(mu.expect(f) - nu.expect(f))
        >>> bool(gap <= mu.expect_bound(f, nu))
        True
        """
        if not hasattr(f, "norm") or getattr(f, "kernel", None) != self.kernel:
            raise TypeError(
                "the bound holds for functions in the RKHS of the embedding's kernel: give f as "
                "embed(points, kernel, coefficients)"
            )
        if hasattr(other, "inner"):
            # Not (self - other).norm(): a closed form has no weights to subtract.
            squared = self.norm() ** 2 - 2.0 * self.inner(other) + other.norm() ** 2
            xp = namespace(squared)
            return f.norm() * xp.sqrt(xp.clip(squared, min=0.0))
        return f.norm() * other

    def mean(self) -> Array:
        """Mean, shape (d,).

        On circles and rotations (``Periodic``, ``Rotation``, and ``Parts`` of them) the extrinsic
        mean, a point of the space again; see :mod:`kernelbayes.embedding.geometry`.
        """
        curved = curved_mean(self.points, self.weights, self.kernel)
        return self.weights @ self._vectors if curved is None else curved

    def moment(self, k: int) -> Array:
        """Raw moment of order k of each coordinate, shape (d,)."""
        if k < 1:
            raise ValueError(f"the order of a moment must be at least 1, got {k}")
        return self.weights @ self._vectors**k

    def cov(self) -> Array:
        """Covariance matrix (d, d), centred.

        Of the weights divided by their sum, or of those of :meth:`valid` where some are negative:
        a variance would come out negative otherwise.
        """
        X, xp = self._vectors, namespace(self.weights)
        w = self.weights
        if bool(xp.any(w < 0)) or bool(xp.any(xp.sum(w, axis=-1) <= 0)):
            w = self.valid().weights  # with negative weights a variance can be negative
        else:
            w = w / xp.sum(w, axis=-1, keepdims=True)
        X = X - xp.mean(X, axis=0)
        n, d = X.shape
        pairs = xp.reshape(X[:, :, None] * X[:, None, :], (n, d * d))
        second = xp.reshape(w @ pairs, (*w.shape[:-1], d, d))
        mean = w @ X
        return second - mean[..., :, None] * mean[..., None, :]
