r"""Kernels with finite features: Nystrom, random Fourier features, pivoted Cholesky.

An approximation is a kernel too: pass it wherever a kernel goes, and the cost in the sample size n
drops from n^2 or n^3 to n r^2. Each has ``features(X)`` of shape (n, r) with
``k(X, Y) == k.features(X) @ k.features(Y).T``.

============================  ==================================================================
``nystrom``                   any kernel; projects on r landmarks: uniform, k-means++ or randomly
                              pivoted. Cheap to set up; the choice for huge n.
``pivoted_cholesky``          any kernel; landmarks chosen one after another where the error is
                              large, at random (accelerated) or greedily. Best error per rank when
                              the spectrum decays fast or the data are clustered; knows its error.
``fourier``                   Gaussian, Laplace, Matern, RationalQuadratic; needs no data.
============================  ==================================================================

The error reported is the relative trace error sum_i (k(x_i, x_i) - k_r(x_i, x_i)) / sum_i k(x_i,
x_i), the share of the points' squared norm that the features miss (never negative, and zero at
full rank).

>>> import numpy as np
>>> from kernelbayes import Gaussian, nystrom
>>> X = np.random.default_rng(0).normal(size=(1000, 2))
>>> k = nystrom(Gaussian(1.0), X, rank=100, rng=0)
>>> k.features(X).shape, round(k.error, 3)
((1000, 100), 0.001)
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, Literal

import numpy as np
import scipy.linalg
from array_api_compat import device
from sklearn.cluster import kmeans_plusplus

from kernelbayes.arrays import (
    BLOCK_ENTRIES,
    Array,
    Rng,
    as_generator,
    cholesky,
    epsilon,
    like,
    namespace,
    row_blocks,
    solve_triangular,
    threads_for,
    to_numpy,
)
from kernelbayes.kernels import Gaussian, Kernel, Laplace, Matern, RationalQuadratic
from kernelbayes.points import Points, count, sum_over_rows, take

# Rows on which the trace error of uniform landmarks is measured; all of them below this number.
ERROR_ROWS = 10_000
# Proposals per round of randomly pivoted Cholesky. Fixed, so that for one seed the pivots of a
# small rank are the first pivots of a larger one.
PROPOSALS = 128


@dataclass(frozen=True, eq=False)
class _Finite(Kernel):
    """A kernel defined by its features, computed in row blocks."""

    @property
    def finite(self) -> bool:
        """True: that is what an approximation is for."""
        return True

    @property
    @abstractmethod
    def rank(self) -> int:
        """Number of features r."""

    @abstractmethod
    def _rows(self, X: Points) -> Array:
        """Features of one row block."""

    def _features(self, X: Points) -> Array:
        blocks = list(row_blocks(count(X), self.rank, BLOCK_ENTRIES // 4))
        first = self._rows(take(X, blocks[0]))
        if len(blocks) == 1:
            return first
        if not isinstance(first, np.ndarray):
            rest = [self._rows(take(X, rows)) for rows in blocks[1:]]
            return namespace(first).concat([first, *rest], axis=0)
        result = np.empty((count(X), self.rank), dtype=first.dtype)
        result[blocks[0]] = first
        for rows in blocks[1:]:
            result[rows] = self._rows(take(X, rows))
        return result

    def _cross(self, X: Points, Y: Points) -> Array:
        return self._features(X) @ self._features(Y).T

    def _diag(self, X: Points) -> Array:
        parts = []
        for rows in row_blocks(count(X), self.rank):
            F = self._rows(take(X, rows))
            parts.append(namespace(F).sum(F * F, axis=1))
        return namespace(*parts).concat(parts)


@dataclass(frozen=True, eq=False)
class Landmarks(_Finite):
    r"""Projection of a kernel on the span of landmarks z_1..z_r (Nystrom).

    .. math:: k_r(x, y) = k(x, z) K_{zz}^{-1} k(z, y), \qquad
              \phi_r(x) = L^{-1} k(z, x), \quad L L^\top = K_{zz}

    Made by :func:`nystrom` and :func:`pivoted_cholesky`.

    Attributes
    ----------
    kernel : Kernel
        The kernel that is approximated.
    landmarks : points (r, ...)
    factor : array (r, r)
        Lower Cholesky factor of the landmarks' Gram matrix.
    error : float
        Relative trace error on the points it was made from; measured when first asked for.
    """

    kernel: Kernel
    landmarks: Points = field(repr=False)
    factor: Array = field(repr=False)
    # The error if it is known, or the points on which to measure it.
    measured: float | Points = field(repr=False, compare=False)

    @cached_property
    def error(self) -> float:
        """Relative trace error on the points it was made from."""
        known = isinstance(self.measured, float)
        return self.measured if known else _trace_error(self, self.measured)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "measured": self.error}  # a small file: without the points

    @property
    def rank(self) -> int:
        """Number of features r."""
        return int(self.factor.shape[0])

    @property
    def by_name(self) -> bool:
        """Whether the approximated kernel reads columns by name."""
        return self.kernel.by_name

    def _points(self, X: Any, name: str) -> Points:
        points = self.kernel.points(X, name)
        self.kernel.check_pair(points, self.landmarks)
        return points

    def _rows(self, X: Points) -> Array:
        K = self.kernel(X, self.landmarks)
        with threads_for(float(K.shape[0]) * self.rank**2):
            return solve_triangular(self.factor, K.T).T


@dataclass(frozen=True, eq=False)
class Fourier(_Finite):
    r"""Random Fourier features, in pairs of cosine and sine.

    .. math:: \phi(x) = \sqrt{2/r}\, [\cos(\omega_j^\top x), \sin(\omega_j^\top x)]_{j \le r/2}

    Made by :func:`fourier`; the frequencies follow the kernel's spectral distribution.
    """

    kernel: Kernel
    frequencies: np.ndarray[Any, Any] = field(repr=False)

    @property
    def rank(self) -> int:
        """Number of features r."""
        return 2 * len(self.frequencies)

    def _points(self, X: Any, name: str) -> Points:
        X = self.kernel.points(X, name)
        dim = self.frequencies.shape[1]
        if X.shape[1] != dim:
            raise ValueError(f"features for dimension {dim}, but {name} has {X.shape[1]} columns")
        return X

    def _rows(self, X: Points) -> Array:
        xp = namespace(X)
        angles = X @ like(self.frequencies, X).T
        scale = 1.0 / math.sqrt(len(self.frequencies))
        return scale * xp.concat([xp.cos(angles), xp.sin(angles)], axis=1)


def nystrom(
    kernel: Kernel,
    X: Any,
    rank: int | None = None,
    rng: Rng = None,
    *,
    tol: float | None = None,
    landmarks: Literal["uniform", "kmeans++", "rpcholesky"] = "uniform",
) -> Landmarks:
    """Nystrom approximation of a kernel on landmarks drawn from X.

    Parameters
    ----------
    kernel : Kernel
    X : points (n, ...)
    rank : int, optional
        Number of landmarks, at most n.
    rng : int, Generator or None
    tol : float, optional
        Instead of a rank: take landmarks until the relative trace error is at most ``tol``.
    landmarks : {"uniform", "kmeans++", "rpcholesky"}
        Uniformly without replacement; by k-means++ seeding (vectors only; spreads out over
        clusters); or by randomly pivoted Cholesky, see :func:`pivoted_cholesky`.

    Returns
    -------
    Landmarks
        With ``.error``, the relative trace error on X (beyond 10 000 points measured on a random
        10 000 of them).

    Examples
    --------
    >>> import numpy as np
    >>> from kernelbayes import Gaussian, nystrom
    >>> X = np.random.default_rng(0).normal(size=(200, 2))
    >>> k = nystrom(Gaussian(1.0), X, tol=0.01, rng=0)
    >>> bool(k.error <= 0.01)
    True
    """
    X = kernel.points(X)
    n = count(X)
    asked, rank = rank, _check_rank(rank, tol, n)
    generator = as_generator(rng)
    if landmarks == "rpcholesky":
        return pivoted_cholesky(kernel, X, asked, tol, generator)
    if landmarks == "uniform":
        order = generator.permutation(n)
    elif landmarks == "kmeans++":
        if isinstance(X, dict | list) or X.ndim != 2:
            raise TypeError("landmarks='kmeans++' needs vectors; use 'uniform' or 'rpcholesky'")
        seed = int(generator.integers(2**31))
        A = to_numpy(X)
        A = A - A.mean(axis=0)  # sklearn expands the squared distance, which would lose digits
        order = kmeans_plusplus(A, rank, random_state=seed)[1]
    else:
        raise ValueError(
            f"landmarks must be 'uniform', 'kmeans++' or 'rpcholesky', got {landmarks!r}"
        )
    rows = generator.permutation(n)[:ERROR_ROWS] if n > ERROR_ROWS else np.arange(n)
    sample = take(X, rows)  # a copy: the error is measured later
    if tol is None:
        return _on_landmarks(kernel, take(X, order[:rank]), sample)
    size = min(16, rank)
    while True:
        result = _on_landmarks(kernel, take(X, order[:size]), sample)
        if result.error <= tol or size == rank:
            return result
        size = min(2 * size, rank)


def pivoted_cholesky(
    kernel: Kernel,
    X: Any,
    rank: int | None = None,
    tol: float | None = None,
    rng: Rng = None,
    *,
    method: Literal["random", "greedy"] = "random",
) -> Landmarks:
    """Nystrom approximation on pivots of a partial Cholesky factorisation of the Gram matrix.

    Parameters
    ----------
    kernel : Kernel
    X : points (n, ...)
    rank : int, optional
        Number of pivots, at most n. Give a rank, a tolerance, or both (whichever comes first).
    tol : float, optional
        Stop when the relative trace error is at most ``tol``.
    rng : int, Generator or None
        For ``method="random"``.
    method : {"random", "greedy"}
        "random": each pivot is drawn with probability proportional to its remaining error,
        by the block rejection sampling of Epperly, Tropp and Webber (arXiv 2410.03969), which
        gives the law of randomly pivoted Cholesky (Chen, Epperly, Tropp and Webber 2025) in
        matrix products. "greedy": the largest remaining error (Fine and Scheinberg 2001),
        deterministic, misled by outliers.

    Returns
    -------
    Landmarks
        With ``.error``, the exact relative trace error on X. Its rank is smaller than asked for
        when nothing is left to approximate, the numerical rank of the Gram matrix.

    Only columns of the Gram matrix are computed, never the whole: memory n x rank, time n rank^2.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelbayes import Gaussian, pivoted_cholesky
    >>> X = np.random.default_rng(0).normal(size=(300, 2))
    >>> k = pivoted_cholesky(Gaussian(1.0), X, tol=1e-10, rng=0)
    >>> bool(np.allclose(k(X), Gaussian(1.0)(X), atol=1e-6)), k.rank < 150
    (True, True)
    """
    X = kernel.points(X)
    pivots, _, error = partial_cholesky(kernel, X, rank, tol, rng, method=method)
    pivots = pivots if pivots.size else np.zeros(1, dtype=np.int64)  # the Gram matrix is zero
    return _on_landmarks(kernel, take(X, pivots), error)


def fourier(
    kernel: Kernel, dim: int, rank: int, rng: Rng = None, *, orthogonal: bool = False
) -> Fourier:
    """Random Fourier features of a shift-invariant kernel on R^dim.

    Parameters
    ----------
    kernel : Gaussian, Laplace, Matern or RationalQuadratic
    dim : int
        Dimension of the points.
    rank : int
        Number of features, even: half cosines, half sines.
    rng : int, Generator or None
    orthogonal : bool
        Orthogonal frequencies (Yu et al. 2016), which lower the error; not for Laplace, whose
        spectrum is not rotation invariant.

    Each entry of the Gram matrix is an average of rank/2 bounded terms, so its error is at most
    sqrt(4 log(2/p) / rank) with probability 1 - p (Hoeffding), whatever n or the dimension.

    Examples
    --------
    >>> from kernelbayes import Gaussian, fourier
    >>> k = fourier(Gaussian(1.0), dim=2, rank=500, rng=0)
    >>> abs(k([[0.0, 0.0]], [[1.0, 0.0]])[0, 0] - 0.6065) < 0.1
    np.True_
    """
    if rank < 2 or rank % 2:
        raise ValueError(f"rank must be an even number of at least 2, got {rank}")
    if dim < 1:
        raise ValueError(f"dim must be at least 1, got {dim}")
    rng, q = as_generator(rng), rank // 2
    bandwidth = _bandwidths(kernel, dim)
    if isinstance(kernel, Laplace):
        if orthogonal:
            raise ValueError("orthogonal frequencies need a rotation-invariant kernel, not Laplace")
        return Fourier(kernel, rng.standard_cauchy((q, dim)) / bandwidth)
    W = _orthogonal_gaussian(q, dim, rng) if orthogonal else rng.normal(size=(q, dim))
    if isinstance(kernel, Matern):  # spectral density: multivariate t with 2 nu degrees of freedom
        W = W * np.sqrt(2.0 * kernel.nu / rng.chisquare(2.0 * kernel.nu, size=(q, 1)))
    elif isinstance(kernel, RationalQuadratic):  # a gamma mixture of Gaussian kernels
        W = W * np.sqrt(rng.gamma(kernel.alpha, 1.0 / kernel.alpha, size=(q, 1)))
    return Fourier(kernel, W / bandwidth)


def partial_cholesky(
    kernel: Kernel,
    X: Points,
    rank: int | None = None,
    tol: float | None = None,
    rng: Rng = None,
    *,
    method: Literal["random", "greedy"] = "random",
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any], float]:
    """Pivots (r,), factor F (n, r) with K ~ F F^T, and relative trace error; see pivoted_cholesky.

    F is the feature matrix of X, got for free; NumPy only.
    """
    n = count(X)
    limit = _check_rank(rank, tol, n)
    if method not in ("random", "greedy"):
        raise ValueError(f"method must be 'random' or 'greedy', got {method!r}")
    residual = np.array(to_numpy(kernel.diag(X)))
    trace, eps = float(residual.sum()), float(np.finfo(residual.dtype).eps)
    floor = eps * n * float(residual.max(initial=0.0))  # below this a pivot is rounding error
    generator = as_generator(rng)
    choose: Callable[..., Any] = (
        partial(_random_round, rng=generator) if method == "random" else _greedy_round
    )
    F = np.empty((min(limit, rank or 256), n), dtype=residual.dtype)
    pivots = np.empty(0, dtype=np.int64)
    while len(pivots) < limit and residual.sum() > max(tol or 0.0, eps * n) * trace:
        k = len(pivots)
        new, L = choose(kernel, X, F[:k], residual, floor, limit - k)
        if new.size == 0:
            if float(residual.max()) <= floor:
                break
            continue
        b = k + len(new)
        if b > len(F):
            F = np.concatenate([F, np.empty((min(len(F), limit - len(F)) or 1, n), F.dtype)])
        pivot_points = take(X, new)
        for columns in row_blocks(n, len(new), BLOCK_ENTRIES // 4):
            F[k:b, columns] = to_numpy(kernel(pivot_points, take(X, columns)))
        with threads_for(2.0 * n * k * len(new)):
            _eliminate(F[:k], F[k:b], new, L)
        residual -= np.einsum("ij,ij->j", F[k:b], F[k:b])
        residual[new] = 0.0
        np.maximum(residual, 0.0, out=residual)
        pivots = np.concatenate([pivots, new])
    return pivots, F[: len(pivots)].T, float(residual.sum()) / trace if trace > 0 else 0.0


def _eliminate(
    F: np.ndarray[Any, Any],
    rows: np.ndarray[Any, Any],
    pivots: np.ndarray[Any, Any],
    L: np.ndarray[Any, Any],
) -> None:
    """Turn rows of the Gram matrix into rows of the factor, in place and without a temporary.

    rows <- L^-1 (rows - F[:, pivots]^T F). BLAS writes into arrays stored by columns, which the
    transposes of these are.
    """
    gemm, trsm = scipy.linalg.get_blas_funcs(("gemm", "trsm"), (rows,))
    if len(F):
        gemm(-1.0, F.T, F[:, pivots], beta=1.0, c=rows.T, overwrite_c=True)
    trsm(1.0, L, rows.T, side=1, lower=1, trans_a=1, overwrite_b=True)


def _greedy_round(
    kernel: Kernel,  # noqa: ARG001 (the signature of a round)
    X: Points,  # noqa: ARG001
    F: np.ndarray[Any, Any],  # noqa: ARG001
    residual: np.ndarray[Any, Any],
    floor: float,
    most: int,  # noqa: ARG001
) -> tuple[Any, Any]:
    pivot = int(np.argmax(residual))
    if residual[pivot] <= floor:
        return np.empty(0, dtype=np.int64), None
    return np.array([pivot]), np.sqrt(residual[pivot]).reshape(1, 1)


def _random_round(
    kernel: Kernel,
    X: Points,
    F: np.ndarray[Any, Any],
    residual: np.ndarray[Any, Any],
    floor: float,
    most: int,
    rng: np.random.Generator,
) -> tuple[Any, Any]:
    """Propose pivots at once, accept them one by one (Epperly, Tropp, Webber, Algorithm 2)."""
    weights = residual / residual.sum(dtype=np.float64)
    proposals = rng.choice(len(residual), size=PROPOSALS, p=weights / weights.sum())
    H = to_numpy(kernel(take(X, proposals))) - F[:, proposals].T @ F[:, proposals]
    uniforms = rng.random(PROPOSALS) * residual[proposals]
    # Rounding alone sets these apart; with the smaller, a round that accepts nothing cannot recur.
    residual[proposals] = np.clip(np.diagonal(H), 0.0, residual[proposals])
    L = np.zeros_like(H)
    accepted: list[int] = []
    for i in range(PROPOSALS):
        # Remaining error of proposal i after the pivots accepted in this round.
        column = H[:, i] - L[:, : len(accepted)] @ L[i, : len(accepted)]
        if column[i] > max(uniforms[i], floor):
            L[:, len(accepted)] = column / np.sqrt(column[i])
            accepted.append(i)
            if len(accepted) == most:
                break
    return proposals[accepted], np.tril(L[accepted, : len(accepted)])


def _on_landmarks(kernel: Kernel, Z: Points, sample_or_error: Points | float) -> Landmarks:
    """Landmark kernel on Z, with its error on a sample (or a given error).

    Landmarks that depend linearly on others to working precision come last in the pivoted factor,
    with a unit diagonal: their features are rounding noise instead of noise divided by noise.
    """
    K = kernel(Z)
    pstrf = scipy.linalg.get_lapack_funcs("pstrf", (to_numpy(K),))
    L, pivots, r, _ = pstrf(to_numpy(K), lower=1)
    Z = take(Z, pivots - 1)
    if isinstance(K, np.ndarray):
        factor = np.asfortranarray(np.tril(L))
        factor[r:, r:] = np.eye(len(L) - r)
    else:  # the same factor, differentiable; pivots near rounding error would fail unpivoted
        K = take(take(K, pivots - 1).T, pivots - 1)
        xp = namespace(K)
        squares = np.diagonal(L)[:r] ** 2
        r = int(np.sum(squares > 10.0 * len(L) * epsilon(K) * squares.max(initial=0.0)))
        first = cholesky(K[:r, :r])
        rest = solve_triangular(first, K[:r, r:]).T
        zeros = xp.zeros((r, len(L) - r), dtype=K.dtype, device=device(K))
        ones = xp.eye(len(L) - r, dtype=K.dtype, device=device(K))
        factor = xp.concat([xp.concat([first, zeros], axis=1), xp.concat([rest, ones], axis=1)])
    return Landmarks(kernel, Z, factor, sample_or_error)


def _trace_error(approximation: Landmarks, X: Points) -> float:
    """Relative trace error of the approximation on X, in row blocks."""

    def traces(chunk: Points, _: slice) -> np.ndarray[Any, Any]:
        exact = to_numpy(approximation.kernel.diag(chunk)).sum(dtype=np.float64)
        found = to_numpy(approximation.diag(chunk)).sum(dtype=np.float64)
        return np.array([exact, found])

    exact, found = sum_over_rows(traces, X, approximation.rank)
    return float(max(0.0, exact - found) / exact) if exact > 0 else 0.0


def _check_rank(rank: int | None, tol: float | None, n: int) -> int:
    if rank is None and tol is None:
        raise ValueError("give a rank (number of features) or tol (relative trace error)")
    if tol is not None and not 0.0 <= tol < 1.0:
        raise ValueError(f"tol is a relative trace error in [0, 1), got {tol!r}")
    if rank is None:
        return n
    if isinstance(rank, bool) or not isinstance(rank, int | np.integer):
        raise TypeError(f"rank must be an integer, got {type(rank).__name__}")
    if not 1 <= rank <= n:
        raise ValueError(f"rank must lie between 1 and the number of points {n}, got {rank}")
    return int(rank)


def _bandwidths(kernel: Kernel, dim: int) -> np.ndarray[Any, Any]:
    if not isinstance(kernel, Gaussian | Laplace | Matern | RationalQuadratic):
        raise TypeError(
            f"Fourier features need a Gaussian, Laplace, Matern or RationalQuadratic kernel, got "
            f"{type(kernel).__name__}; use nystrom or pivoted_cholesky, which take any kernel"
        )
    bandwidth = np.asarray(kernel.bandwidth)
    if bandwidth.ndim and len(bandwidth) != dim:
        raise ValueError(f"the kernel has {len(bandwidth)} bandwidths, but dim is {dim}")
    return np.broadcast_to(bandwidth, (dim,))


def _orthogonal_gaussian(q: int, dim: int, rng: np.random.Generator) -> np.ndarray[Any, Any]:
    """Rows with the norms of Gaussian vectors, orthogonal within each group of ``dim``."""

    def groups() -> Iterator[np.ndarray[Any, Any]]:
        for start in range(0, q, dim):
            Q, R = np.linalg.qr(rng.normal(size=(dim, dim)))
            Q = Q * np.sign(R.diagonal())  # uniform on the orthogonal group (Mezzadri 2007)
            yield Q[: min(dim, q - start)]

    directions = np.concatenate(list(groups()))
    return directions * np.sqrt(rng.chisquare(dim, size=(q, 1)))
