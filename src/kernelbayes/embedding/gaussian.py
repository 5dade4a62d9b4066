r"""Normal distributions under the Gaussian kernel, in closed form, and mixtures of them.

With H = diag(bandwidth^2) the inner product of two normal distributions is

.. math:: \langle N(m, S), N(m', S') \rangle = |H|^{1/2} |C|^{-1/2}
          \exp\left(-\tfrac12 (m - m')^\top C^{-1} (m - m')\right), \quad C = H + S + S'

and a point is a normal distribution with S = 0. So the squared distance between a mixture and a
weighted sample, and its gradient, cost O(n K) for K components (Song et al. 2008, McCalman et al.
2013). L-BFGS minimises it over means, Cholesky factors of the covariances and softmax weights.
"""

from dataclasses import dataclass
from typing import Literal, Self

import numpy as np
from array_api_compat import device
from scipy.optimize import minimize
from scipy.special import softmax

from kernelbayes.arrays import (
    as_floats,
    as_generator,
    as_vectors,
    like,
    namespace,
    narrowed,
    to_float,
    to_numpy,
    widened,
)
from kernelbayes.embedding.mean import MeanElement, Weighted
from kernelbayes.gram.lapack import cholesky, eigenvalues, inverse_and_log_det, solve
from kernelbayes.gram.solvers import cho_solve
from kernelbayes.kernels import Gaussian, Kernel
from kernelbayes.points import integer, option, own
from kernelbayes.types import Array, Floats, Generator, Ints, PointsLike, Rng


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


Covariance = Literal["full", "diagonal"]


@dataclass(frozen=True, eq=False)
class Mixture:
    """Mixture of K normal distributions; with a leading axis, one for each member of a batch.

    Attributes
    ----------
    weights : array (K,)
        Not negative, sum to one.
    means : array (K, d)
    covariances : array (K, d, d)
    distance : float or array (m,)
        RKHS distance to the embedding (of mass one) it was fitted to.
    """

    weights: Floats
    means: Floats
    covariances: Floats
    distance: float | Floats

    def __len__(self) -> int:
        """Return the number of components."""
        return int(self.weights.shape[-1])

    def __getitem__(self, index: int) -> Self:
        """Return the mixture of one member of a batch."""
        if self.weights.ndim == 1:
            raise TypeError("this is one mixture, not a batch of them")
        parts = self.weights, self.means, self.covariances, np.asarray(self.distance)
        return type(self)(*(part[index] for part in parts))

    def density(self, X: PointsLike) -> Floats:
        """Density at points X (k, d), shape (k,); (m, k) for a batch."""
        X = np.asarray(to_numpy(as_vectors(X, "X")), dtype=float)
        d = self.means.shape[-1]
        if X.shape[1] != d:
            raise ValueError(f"X has {X.shape[1]} coordinates, the mixture has {d}")
        L = cholesky(self.covariances)
        scaled = solve(L, np.swapaxes(X - self.means[..., None, :], -1, -2))  # (..., K, d, k)
        log_volume = np.log(np.einsum("...jj->...j", L)).sum(axis=-1) + 0.5 * d * np.log(2 * np.pi)
        heights = np.exp(-0.5 * np.sum(scaled**2, axis=-2) - log_volume[..., None])
        return np.asarray(np.einsum("...k,...kx->...x", self.weights, heights))

    def sample(self, m: int, rng: Rng = None) -> Floats:
        """Draw m points, shape (m, d); (batch, m, d) for a batch."""
        generator = as_generator(rng)
        if self.weights.ndim == 2:
            return np.stack([self[i].sample(m, generator) for i in range(len(self.weights))])
        picks = generator.choice(len(self), size=m, p=self.weights / self.weights.sum())
        noise = generator.normal(size=(m, self.means.shape[1]))
        L = cholesky(self.covariances)
        return np.asarray(self.means[picks] + np.einsum("mij,mj->mi", L[picks], noise))


def mixture(
    mu: Weighted, components: int, rng: Rng = None, covariance: Covariance = "full", starts: int = 4
) -> Mixture:
    """Gaussian mixture closest to an embedding divided by its mass, in RKHS distance."""
    X = np.asarray(to_numpy(mu.vectors), dtype=float)
    bandwidth = mu.kernel.exact.gaussian_bandwidth
    if bandwidth is None:
        raise TypeError(
            f"the closed form of a mixture needs a Gaussian kernel, got {mu.kernel!r}; embed the "
            "same weighted sample with one: embed(mu.points, Gaussian.median(mu.points), "
            "mu.weights)"
        )
    h = np.broadcast_to(np.asarray(bandwidth, dtype=float), X.shape[1])
    components, starts = integer(components, "components"), integer(starts, "starts")
    if components > len(X):
        raise ValueError(f"components must lie between 1 and {len(X)}, got {components}")
    option(covariance, "covariance", ("full", "diagonal"))
    generator = as_generator(rng)
    settings = {"jac": True, "method": "L-BFGS-B", "options": {"maxiter": 500}}
    fits = []
    # Starts are drawn by the weights v of valid().
    for w, v in zip(mu.valid_weights("raw"), mu.valid_weights(), strict=True):
        used = (w != 0) | (v > 0)
        Y, w, v = X[used] / h, w[used], v[used]
        task = (Y, w, components, covariance)
        begun = (_start(Y, v, components, generator, covariance) for _ in range(starts))
        searches = [minimize(_loss, start, task, **settings) for start in begun]
        best = min(searches, key=lambda found: found.fun)
        p, m, L = _unpack(best.x, components, X.shape[1], covariance)
        squared_norm = float(w @ Gaussian(1.0)(Y) @ w)
        distance = np.sqrt(max(squared_norm + best.fun, 0.0))
        fits.append((p, m, L @ np.swapaxes(L, 1, 2), distance))
    weights, means, covariances, distances = map(np.stack, zip(*fits, strict=True))
    batch = Mixture(weights, means * h, covariances * np.outer(h, h), distances)
    return batch[0] if mu._single else batch


def _start(X: Floats, v: Floats, K: int, rng: Generator, covariance: Covariance) -> Floats:
    """Packed start: means by k-means++, equal weights, the sample's spread over K."""
    from sklearn.cluster import kmeans_plusplus  # slow to import

    # At most as many centres as there are points with weight; more components share them.
    centres = min(K, int(np.count_nonzero(v)))
    seed = int(rng.integers(2**31))
    means, _ = kmeans_plusplus(X, centres, sample_weight=v, random_state=seed)
    means = np.resize(means, (K, X.shape[1]))
    spread = np.sqrt(np.maximum(v @ (X - v @ X) ** 2, 1e-4)) / K
    means = means + 0.1 * spread * rng.normal(size=means.shape)
    return _pack(np.zeros(K), means, np.tile(np.diag(np.log(spread)), (K, 1, 1)), covariance)


def _pack(logits: Floats, means: Floats, L: Floats, covariance: Covariance) -> Floats:
    rows, columns = _entries(means.shape[1], covariance)
    return np.concatenate([logits, means.ravel(), L[:, rows, columns].ravel()])


def _entries(d: int, covariance: Covariance) -> tuple[Ints, Ints]:
    return np.tril_indices(d) if covariance == "full" else (np.arange(d), np.arange(d))


def _unpack(theta: Floats, K: int, d: int, covariance: Covariance) -> tuple[Floats, Floats, Floats]:
    """Weights (K,), means (K, d) and Cholesky factors (K, d, d), their diagonal from its log."""
    rows, columns = _entries(d, covariance)
    L = np.zeros((K, d, d))
    L[:, rows, columns] = theta[K + K * d :].reshape(K, -1)
    index = np.arange(d)
    # Between a thousandth of the bandwidth and a thousand: beyond, nothing changes any more.
    L[:, index, index] = np.exp(np.clip(L[:, index, index], -7.0, 7.0))
    return softmax(theta[:K]), theta[K : K + K * d].reshape(K, d), L


def _loss(
    theta: Floats, X: Floats, w: Floats, K: int, covariance: Covariance
) -> tuple[float, Floats]:
    """Squared distance minus the constant |mu|^2, and its gradient in the packed parameters."""
    d = X.shape[1]
    p, m, L = _unpack(theta, K, d, covariance)
    S = L @ np.swapaxes(L, 1, 2)
    # Mixture with sample: C_k = I + S_k; mixture with itself: C_kl = I + S_k + S_l.
    g, at_m, at_C = _normals(m[:, None, :] - X[None], (np.eye(d) + S)[:, None])
    cross = g @ w
    G, own_m, own_C = _normals(m[:, None, :] - m[None], np.eye(d) + S[:, None] + S[None])
    grad_p = 2.0 * (G @ p - cross)
    grad_m = 2.0 * p[:, None] * (np.einsum("kld,l->kd", own_m, p) - np.einsum("knd,n->kd", at_m, w))
    grad_S = np.einsum("klde,l->kde", own_C, p) - np.einsum("knde,n->kde", at_C, w)
    grad_L = 4.0 * p[:, None, None] * grad_S @ L
    index = np.arange(d)
    grad_L[:, index, index] *= L[:, index, index]  # of the logarithm
    gradient = _pack(p * (grad_p - p @ grad_p), grad_m, grad_L, covariance)
    return float(p @ G @ p - 2.0 * p @ cross), gradient


def _normals(differences: Floats, C: Floats) -> tuple[Floats, Floats, Floats]:
    """|C|^(-1/2) exp(-D^T C^-1 D / 2) for D (k, n, d), C (k, n or 1, d, d) and gradients."""
    inverse, log_det = inverse_and_log_det(C)
    inverses = np.broadcast_to(inverse, (*differences.shape, C.shape[-1]))
    a = np.einsum("knde,kne->knd", inverses, differences)
    g = np.exp(-0.5 * np.einsum("knd,knd->kn", a, differences) - 0.5 * log_det)
    at_C = 0.5 * g[..., None, None] * (a[..., :, None] * a[..., None, :] - inverse)
    return g, -g[..., None] * a, at_C
