r"""Herding: a few points that stand for a distribution.

Kernel herding (KMCF16 Alg. 2) picks points one after another so that their equally weighted
embedding approaches a given one: pick p maximises

.. math:: \mu(x) - \frac{1}{p} \sum_{j < p} k(x, x_j)

over candidates. With the sum kept running, a pick costs one row of the kernel matrix, O(n) in
all n candidates. The squared error falls at least like 4 C^2 (1 + ln l) / l (KMCF16 eq. 3.27), in
practice faster than the 1/l of independent draws.

>>> import numpy as np
>>> from kernelbayes import Gaussian, embed, herd, mmd
>>> X = np.random.default_rng(0).normal(size=(2000, 2))
>>> mu = embed(X, Gaussian(1.0))
>>> picked = herd(mu, 20)
>>> bool(mmd(mu, embed(picked, mu.kernel)) < mmd(mu, embed(X[:20], mu.kernel)) / 3)
True
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kernelbayes.arrays import Points, count, row_blocks, take, to_numpy
from kernelbayes.kernels import Kernel


def herd(mu: Any, m: int, candidates: Any = None) -> Points:
    """Pick m points whose equally weighted embedding is close to ``mu``.

    Parameters
    ----------
    mu : Embedding or GaussianEmbedding
    m : int
        Number of picks; a point may be picked more than once.
    candidates : points, optional
        Where to pick from; the embedding's own points by default.

    Returns
    -------
    points (m, ...)
        In the order of picking: the first l of them are the herd of size l.
    """
    if candidates is None:
        if not hasattr(mu, "points"):
            raise ValueError("an embedding in closed form has no points: give candidates")
        candidates = mu.points
    candidates = mu.kernel.points(candidates, "candidates")
    return take(candidates, herd_indices(mu.kernel, candidates, to_numpy(mu(candidates)), m))


def thin(points: Any, m: int, kernel: Kernel) -> Points:
    """Choose m of n points that represent all of them under a kernel (KMCF16 Alg. 6).

    Without repetition, so that ``thin`` of all points is all points. Works on joint samples:
    give a mapping of parts and a ``Parts`` kernel.

    Parameters
    ----------
    points : points (n, ...)
    m : int
        At most n.
    kernel : Kernel

    Returns
    -------
    points (m, ...)
    """
    points = kernel.points(points, "points")
    n = count(points)
    if not 1 <= m <= n:
        raise ValueError(f"m must lie between 1 and the number of points {n}, got {m}")
    return take(points, herd_indices(kernel, points, _mean_map(kernel, points), m, repeat=False))


def herd_indices(
    kernel: Kernel, candidates: Points, values: Any, m: int, repeat: bool = True
) -> np.ndarray[Any, Any]:
    """Pick indices (m,), given the embedding's values at the candidates (n,)."""
    if m < 1:
        raise ValueError(f"the number of picks must be at least 1, got {m}")
    F = to_numpy(kernel.features(candidates)) if kernel.finite else None
    total = np.zeros(len(values))
    available = np.array(values, dtype=np.float64)
    picks = np.empty(m, dtype=np.int64)
    for p in range(m):
        pick = int(np.argmax(available - total / (p + 1)))
        picks[p] = pick
        if F is None:
            total += to_numpy(kernel(take(candidates, [pick]), candidates))[0]
        else:
            total += F @ F[pick]
        if not repeat:
            available[pick] = -np.inf
    return picks


def _mean_map(kernel: Kernel, points: Points) -> np.ndarray[Any, Any]:
    n = count(points)
    if kernel.finite:
        F = to_numpy(kernel.features(points))
        return np.asarray(F @ F.mean(axis=0))
    blocks = [
        to_numpy(kernel(take(points, rows), points)).mean(axis=1) for rows in row_blocks(n, n)
    ]
    return np.concatenate(blocks)
