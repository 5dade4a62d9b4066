"""Embeddings known in closed form: Gaussian measures under the Gaussian kernel."""

from dataclasses import dataclass

import numpy as np
from array_api_compat import device

from kernelbayes.arrays import as_floats, like, namespace, narrowed, to_float, widened
from kernelbayes.embedding.mean import MeanElement
from kernelbayes.gram.lapack import cholesky, eigenvalues
from kernelbayes.gram.solvers import cho_solve
from kernelbayes.kernels import Kernel
from kernelbayes.points import own
from kernelbayes.types import Array, PointsLike


@dataclass(frozen=True, eq=False)
class GaussianEmbedding(MeanElement):
    r"""Embedding of the Gaussian measure N(mean, cov) under the Gaussian kernel, in closed form.

    .. math:: \mu(x) = \frac{|H|^{1/2}}{|H + S|^{1/2}}
              \exp\left(-\tfrac12 (x - m)^\top (H + S)^{-1} (x - m)\right)

    with H = diag(bandwidth^2) and S the covariance, which may be singular. The inner product with
    N(m', S') is the same expression at x = m' with S + S'. Use it as a prior known exactly.

    Examples
    --------
    >>> from kernelbayes import Gaussian, GaussianEmbedding
    >>> prior = GaussianEmbedding([0.0], [[3.0]], Gaussian(1.0))
    >>> prior([0.0])
    array([0.5])
    """

    mean: Array
    cov: Array
    kernel: Kernel

    def __post_init__(self) -> None:
        if getattr(self.kernel, "gaussian_bandwidth", None) is None:
            raise TypeError(f"the closed form needs a Gaussian kernel, got {self.kernel!r}")
        mean = as_floats(self.mean, "mean")
        mean = mean[None] if mean.ndim == 0 else mean
        cov = like(as_floats(self.cov, "cov"), mean)
        xp, d = namespace(cov), mean.shape[0]
        cov = xp.reshape(cov, (1, 1)) if d == 1 and cov.ndim < 2 else cov
        if mean.ndim != 1 or tuple(cov.shape) != (d, d):
            shapes = f"{tuple(mean.shape)} and {tuple(cov.shape)}"
            raise ValueError(f"mean must have shape (d,) and cov (d, d), got {shapes}")
        scale = to_float(xp.max(xp.abs(cov)))
        if to_float(xp.max(xp.abs(cov - cov.T))) > 1e-6 * scale:
            raise ValueError("cov must be symmetric")
        if scale > 0 and to_float(xp.min(eigenvalues(cov))) < -1e-6 * scale:
            raise ValueError("cov must be positive semi-definite; it has a negative eigenvalue")
        object.__setattr__(self, "mean", own(mean, self.mean))
        object.__setattr__(self, "cov", own(cov, self.cov))
        self.kernel(mean[None, :])  # a bandwidth per dimension must fit the mean

    @property
    def mass(self) -> Array:
        """One: a probability distribution."""
        return namespace(self.mean).ones_like(self.mean[0])

    def __call__(self, X: PointsLike) -> Array:
        """Evaluate at points X, shape (n,)."""
        X = self.kernel.points(X)
        self.kernel.check_pair(X, self.mean[None, :])
        return self._density(X - self.mean, self.cov)

    def _inner(self, other: MeanElement) -> Array:
        if isinstance(other, GaussianEmbedding):
            between = (other.mean - self.mean)[None, :]
            return widened(self._density(between, self.cov + other.cov)[0])
        return other._inner(self)

    def _squared_norm(self) -> Array:
        return self._inner(self)

    def _narrow(self, values: Array) -> Array:
        return narrowed(values, self.mean)

    def _density(self, differences: Array, cov: Array) -> Array:
        xp = namespace(cov)
        h2 = like(np.asarray(self.kernel.gaussian_bandwidth) ** 2, cov) * xp.ones_like(self.mean)
        L = cholesky(cov + h2[:, None] * xp.eye(cov.shape[0], dtype=cov.dtype, device=device(cov)))
        mahalanobis = xp.sum(differences * cho_solve(L, differences.T).T, axis=1)
        log_volume = xp.sum(xp.log(xp.linalg.diagonal(L))) - 0.5 * xp.sum(xp.log(h2))
        return xp.exp(-0.5 * mahalanobis - log_volume)
