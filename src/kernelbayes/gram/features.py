r"""Kernels with finite features: Nystrom, random Fourier features, pivoted Cholesky.

An approximation is a kernel too: pass it wherever a kernel goes, and the cost in the sample size n
drops from n^2 or n^3 to n r^2. Each has ``features(X)`` of shape (n, r) with
``k(X, Y) == k.features(X) @ k.features(Y).T``. The error reported is the relative trace error
sum_i (k(x_i, x_i) - k_r(x_i, x_i)) / sum_i k(x_i, x_i), the share of the points' squared norm that
the features miss (never negative, and zero at full rank).
"""

from dataclasses import replace
from typing import Literal

import numpy as np

from kernelbayes.arrays import (
    BLOCK_ENTRIES,
    as_doubles,
    as_generator,
    epsilon,
    row_blocks,
    threads_for,
    to_numpy,
)
from kernelbayes.gram.finite import Fourier as Fourier
from kernelbayes.gram.finite import Landmarks as Landmarks
from kernelbayes.gram.lapack import cholesky, eliminate, pivoted_factor
from kernelbayes.kernels import Kernel
from kernelbayes.kernels.base import as_kernel
from kernelbayes.points import column_names, count, doubled, take
from kernelbayes.points.values import integer, option, share
from kernelbayes.types import Floats, Generator, Ints, Names, Points, PointsLike, Rng

# Rows on which the trace error of uniform landmarks is measured; all of them below this number. A
# mean over so many is known to one per cent of its spread.
ERROR_ROWS = 10_000
# Landmarks of each category, however rare: one alone would stand for all that x says about z there.
OF_EACH = 10
# Proposals per round of randomly pivoted Cholesky. Fixed, so that for one seed the pivots of a
# small rank are the first pivots of a larger one; large enough that the work is in products of
# matrices.
PROPOSALS = 128


def nystrom(
    kernel: Kernel, X: PointsLike, rank: int | None = None, rng: Rng = None, *,
    tol: float | None = None, landmarks: Literal["uniform", "kmeans++", "rpcholesky"] = "uniform",
) -> Landmarks:  # fmt: skip
    """Nystrom approximation of any kernel on landmarks drawn from X; the choice for huge n.

    Parameters
    ----------
    kernel : Kernel
    X : points (n, ...)
    rank : int, optional
        Number of landmarks; above n, all points. Fewer features where some depend on the others.
    rng : int, Generator or None
    tol : float, optional
        Instead of a rank: take landmarks until the relative trace error is at most ``tol``.
    landmarks : {"uniform", "kmeans++", "rpcholesky"}
        Uniformly without replacement, after ten of each category; by k-means++ seeding (vectors
        only; spreads out over clusters); or by randomly pivoted Cholesky, see
        :func:`pivoted_cholesky`.

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
    names, X = column_names(X), as_kernel(kernel).points(X)
    n = count(X)
    asked, rank = rank, check_rank(rank, tol, n)
    generator = as_generator(rng)
    option(landmarks, "landmarks", ("uniform", "kmeans++", "rpcholesky"))
    if landmarks == "rpcholesky":
        return replace(pivoted_cholesky(kernel, X, asked, tol, generator), names=names)
    if landmarks == "uniform":
        order = _each_category(kernel, X, generator.permutation(n))
    else:
        if isinstance(X, dict | list) or X.ndim != 2:
            raise TypeError("landmarks='kmeans++' needs vectors; use 'uniform' or 'rpcholesky'")
        from sklearn.cluster import kmeans_plusplus  # slow to import

        seed = int(generator.integers(2**31))
        A = as_doubles(X)  # squares of large float32 numbers overflow
        A = A - A.mean(axis=0)  # sklearn expands the squared distance, which would lose digits
        order = kmeans_plusplus(A, rank, random_state=seed)[1]
    rows = generator.permutation(n)[:ERROR_ROWS] if n > ERROR_ROWS else np.arange(n)
    sample = take(X, rows)  # a copy: the error is measured later
    if tol is None:
        return _on_landmarks(kernel, take(X, order[:rank]), sample, names)
    size = min(16, rank)
    while True:
        result = _on_landmarks(kernel, take(X, order[:size]), sample, names)
        if result.error <= tol or size == rank:
            return result
        size = min(2 * size, rank)


def pivoted_cholesky(
    kernel: Kernel, X: PointsLike, rank: int | None = None, tol: float | None = None,
    rng: Rng = None, *, method: Literal["random", "greedy"] = "random",
) -> Landmarks:  # fmt: skip
    """Nystrom approximation on pivots of a partial Cholesky factorisation of the Gram matrix.

    Best error per rank when the spectrum decays fast or the data are clustered. Only columns of the
    Gram matrix are computed, never the whole: memory n x rank, time n rank^2.

    Parameters
    ----------
    kernel : Kernel
    X : points (n, ...)
    rank : int, optional
        Number of pivots; above n, all points. Give a rank, a tolerance, or both (whichever comes
        first).
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

    Examples
    --------
    >>> import numpy as np
    >>> from kernelbayes import Gaussian, pivoted_cholesky
    >>> X = np.random.default_rng(0).normal(size=(300, 2))
    >>> k = pivoted_cholesky(Gaussian(1.0), X, tol=1e-10, rng=0)
    >>> bool(np.allclose(k(X), Gaussian(1.0)(X), atol=1e-6)), k.rank < 150
    (True, True)
    """
    names, X = column_names(X), as_kernel(kernel).points(X)
    pivots, _, error = partial_cholesky(kernel, X, rank, tol, rng, method=method)
    pivots = pivots if pivots.size else np.zeros(1, dtype=np.int64)  # the Gram matrix is zero
    return _on_landmarks(kernel, take(X, pivots), error, names)


def fourier(kernel: Kernel, dim: int, rank: int, rng: Rng = None) -> Fourier:
    """Random Fourier features of a shift-invariant kernel on R^dim.

    Parameters
    ----------
    kernel : Gaussian, Laplace, Matern or RationalQuadratic
    dim : int
        Dimension of the points.
    rank : int
        Number of features, even: half cosines, half sines.
    rng : int, Generator or None

    Each entry of the Gram matrix is an average of rank/2 bounded terms, so its error is at most
    sqrt(4 log(2/p) / rank) with probability 1 - p (Hoeffding), whatever n or the dimension.

    Examples
    --------
    >>> from kernelbayes import Gaussian, fourier
    >>> k = fourier(Gaussian(1.0), dim=2, rank=500, rng=0)
    >>> abs(k([[0.0, 0.0]], [[1.0, 0.0]])[0, 0] - 0.6065) < 0.1
    np.True_
    """
    dim, rank = integer(dim, "dim"), integer(rank, "rank", 2)
    if rank % 2:
        raise ValueError(f"rank must be an even number of at least 2, got {rank}")
    rng, q, kernel = as_generator(rng), rank // 2, as_kernel(kernel)
    return Fourier(kernel, kernel.spectrum(q, dim, rng))


def cheap_features(kernel: Kernel, points: Points, rank: int, rng: Rng) -> Kernel:
    """Kernel with about ``rank`` features, for huge samples: Fourier if it applies, or Nystrom."""
    if kernel.finite:
        return kernel
    if kernel.is_stationary:
        return fourier(kernel, int(points.shape[1]), rank + rank % 2, rng)
    return nystrom(kernel, points, rank, rng)


def _each_category(kernel: Kernel, X: Points, order: Ints) -> Ints:
    """Order (n,) of points with some of each category, of any part, in front."""
    first = np.full(len(order), OF_EACH)  # how many of a category of the point stand before it
    for _, own, part in kernel.split(X):
        if own.is_categorical and part.ndim == 1:
            codes = np.unique(to_numpy(part)[order], return_inverse=True)[1]
            counts = np.bincount(codes)
            before = np.arange(len(order)) - np.repeat(np.cumsum(counts) - counts, counts)
            first = np.minimum(first, before[np.argsort(np.argsort(codes, kind="stable"))])
    return order[np.argsort(first, kind="stable")]


def _on_landmarks(
    kernel: Kernel, Z: Points, sample_or_error: Points | float, names: Names = None
) -> Landmarks:
    """Landmark kernel on Z, with its error on a sample (or a given error).

    Landmarks that depend linearly on others to working precision come last in the pivoted factor;
    they have no features, which would be rounding noise.
    """
    Z = doubled(Z) if isinstance(kernel.diag(take(Z, slice(0, 1))), np.ndarray) else Z
    K = kernel(Z)
    L, pivots, r = pivoted_factor(to_numpy(K))
    Z = take(Z, pivots)
    if isinstance(K, np.ndarray):
        factor = np.asfortranarray(np.tril(L[:r, :r])) if r else np.ones((1, 1))
    else:  # the same factor, differentiable; pivots near rounding error would fail unpivoted
        K = take(take(K, pivots).T, pivots)
        squares = np.diagonal(L)[:r] ** 2
        r = int(np.sum(squares > 10.0 * len(L) * epsilon(K) * squares.max(initial=0.0)))
        factor = cholesky(K[:r, :r]) if r else 1.0 + 0.0 * K[:1, :1]
    return Landmarks(kernel, Z, factor, sample_or_error, names)


def partial_cholesky(
    kernel: Kernel, X: Points, rank: int | None = None, tol: float | None = None, rng: Rng = None,
    *, method: Literal["random", "greedy"] = "random",
) -> tuple[Ints, Floats, float]:  # fmt: skip
    """Pivots (r,), features F (n, r) with K ~ F F^T, and relative trace error; NumPy doubles."""
    n, X = count(X), doubled(X)
    limit = check_rank(rank, tol, n)
    option(method, "method", ("random", "greedy"))
    residual = np.array(as_doubles(kernel.diag(X)))
    trace, eps = float(residual.sum()), float(np.finfo(residual.dtype).eps)
    floor = eps * n * float(residual.max(initial=0.0))  # below this a pivot is rounding error
    generator = as_generator(rng)
    # With a tolerance the rank is not known before: rows are added when they are needed.
    F = np.empty((limit if tol is None else min(limit, 256), n), dtype=residual.dtype)
    pivots = np.empty(0, dtype=np.int64)
    while len(pivots) < limit and residual.sum() > max(tol or 0.0, eps * n) * trace:
        k = len(pivots)
        if method == "random":
            new, L = _random_round(kernel, X, F[:k], residual, floor, limit - k, generator)
        else:
            new, L = _greedy_round(residual, floor)
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
            eliminate(F[:k], F[k:b], new, L)
        residual -= np.einsum("ij,ij->j", F[k:b], F[k:b])
        residual[new] = 0.0
        np.maximum(residual, 0.0, out=residual)
        pivots = np.concatenate([pivots, new])
    return pivots, F[: len(pivots)].T, float(residual.sum()) / trace if trace > 0 else 0.0


def _greedy_round(residual: Floats, floor: float) -> tuple[Ints, Floats]:
    """Take the point of the largest error as a pivot, and its factor (1, 1)."""
    pivot = int(np.argmax(residual))
    if residual[pivot] <= floor:
        return np.empty(0, dtype=np.int64), np.empty((0, 0))
    return np.array([pivot]), np.sqrt(residual[pivot]).reshape(1, 1)


def _random_round(
    kernel: Kernel, X: Points, F: Floats, residual: Floats, floor: float, most: int,
    rng: Generator,
) -> tuple[Ints, Floats]:  # fmt: skip
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


def check_rank(rank: int | None, tol: float | None, n: int) -> int:
    """Return the most pivots to take, all n points for a rank above n, or say what is wrong."""
    if rank is None and tol is None:
        raise ValueError("give a rank (number of features) or tol (relative trace error)")
    if tol is not None:
        share(tol, "tol", low=True)
    return n if rank is None else min(integer(rank, "rank"), n)
