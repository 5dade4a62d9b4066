r"""Density, mode and draws of the weighted sample, smoothed; the point that stands for it best.

The last is the pre-image: the point whose embedding is closest to a given one,

.. math:: \min_y |k(\cdot, y) - \mu|^2 \quad \Longleftrightarrow \quad
          \max_y \; 2 \mu(y) - k(y, y)

The search starts at the best of the embedding's own points and never ends below it. A Gaussian
kernel has the fixed-point iteration of Mika et al. (1999); other smooth kernels on vectors are
climbed by a quasi-Newton method with gradients by central differences; kernels with kinks and
kernels on structured spaces stop at the best of the points.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Literal

import numpy as np
from array_api_compat import is_array_api_obj
from scipy.special import logsumexp

from kernelbayes.arrays import as_doubles, as_generator, as_vectors, like, namespace, row_blocks
from kernelbayes.embedding.mean import LEAST_MASS, Kind, Weighted
from kernelbayes.embedding.smooth import bandwidths, keep_covariance, silverman
from kernelbayes.gram import Gram
from kernelbayes.herding import climb, greedy
from kernelbayes.kernels import Gaussian, Kernel
from kernelbayes.points import integer, option, take, vectors
from kernelbayes.types import Array, Floats, Generator, Ints, Points, PointsLike, Rng

Bandwidth = float | Array | None
Height = Literal["density", "weight"]
Method = Literal["herding", "iid"]
# Heaviest points among which mean shift looks for places to start: bounds the cost to one Gram
# matrix with that many rows. A judgement, not a measurement.
MODE_CANDIDATES = 500
# Logarithms of normalising constants within which a density is computed as it is written: e^600 is
# 1e260, and kernel values and weights have the rest of the range.
LARGEST_LOG = 600.0
# An ascent ends where nothing is gained but rounding: a gradient is known to about 1e-11.
EXACT_ASCENT = {"ftol": 1e-15, "gtol": 1e-10}
# Bound on the steps of the fixed point, which ends before if nothing moves any more.
FIXED_POINT_STEPS = 200


def density(points: Points, W: Floats, kind: Kind, X: PointsLike, bandwidth: Bandwidth) -> Floats:
    """Densities (m, k) at X (k, d) of weights W (m, n), by Silverman's rule or a bandwidth."""
    P, X = _both(points, X, kind)
    if bandwidth is None and len(W) > 1:  # each member has a bandwidth of its own
        return np.concatenate([density(P, w[None], kind, X, None) for w in W])
    h = _chosen(bandwidth, P, W[0])
    log_unit = float(np.sum(np.log(np.sqrt(2.0 * np.pi) * h)))
    if abs(log_unit) < LARGEST_LOG:
        return np.asarray(W @ Gaussian(tuple(h))(P, X) / np.exp(log_unit))
    logs, signs = _log_sums(P, W, X, h)  # in many dimensions: a ratio of tiny or huge numbers
    with np.errstate(over="ignore"):
        found: Floats = np.asarray(signs * np.exp(logs - log_unit))
    if np.isfinite(found).all():
        return found
    raise ValueError(
        f"densities in {P.shape[1]} dimensions are too large for a number here; use log_density(X)"
    )


def _log_sums(P: Floats, W: Floats, X: Floats, h: Floats) -> tuple[Floats, Floats]:
    """Logarithms and signs (m, k) of sum_i w_i exp(-|x - x_i|^2 / 2), in units of h."""
    logs, signs = (np.empty((len(W), len(X))) for _ in range(2))
    for at in row_blocks(len(X), P.size):
        E = -0.5 * np.sum((X[at, None, :] / h - P / h) ** 2, axis=2)
        for j, w in enumerate(W):
            logs[j, at], signs[j, at] = logsumexp(E, axis=1, b=w, return_sign=True)
    return logs, signs


def _chosen(bandwidth: Bandwidth, P: Floats, w: Floats) -> Floats:
    if bandwidth is not None:
        return bandwidths(bandwidth, P.shape[1])
    total = float(w.sum())  # of raw weights not one, and perhaps nothing
    return silverman(P, w / total if total > LEAST_MASS else np.full(len(w), 1.0 / len(w)))


def log_density(
    points: Points, W: Floats, kind: Kind, X: PointsLike, bandwidth: Bandwidth
) -> Floats:
    """Logarithm of :func:`density`, also where the density is too small for a number."""
    P, X = _both(points, X, kind)
    if kind == "raw":
        raise ValueError("a density of raw weights may be negative; use 'projected' or 'clipped'")
    found = np.empty((len(W), len(X)))
    for row, w in zip(found, W, strict=True):
        h = _chosen(bandwidth, P, w)
        row[:] = _log_sums(P[w > 0], w[None, w > 0], X, h)[0][0]
        row -= np.sum(np.log(np.sqrt(2.0 * np.pi) * h))
    return found


def _both(points: Points, X: PointsLike, kind: Kind) -> tuple[Floats, Floats]:
    if kind == "rearranged":
        raise ValueError("a density has no rearrangement; use 'projected' or 'clipped'")
    P, X = as_doubles(vectors(points)), as_doubles(as_vectors(X, "X"))
    if X.shape[1] != P.shape[1]:
        raise ValueError(f"X has {X.shape[1]} coordinates, the points have {P.shape[1]}")
    return P, X


def grid_density(X: Floats, w: Floats, size: int) -> tuple[list[Floats], Floats]:
    """Density of a weighted sample (n, d), d = 1 or 2, on a grid over the points with weight.

    Returns the grid of each coordinate (size,), and the density (size,) or (size of y, size of x).
    """
    h = silverman(X, w)
    used = X[w > 1e-3 * w.max()]
    ends = zip(used.min(axis=0) - 3.0 * h, used.max(axis=0) + 3.0 * h, strict=True)
    grids: list[Floats] = [np.linspace(low, high, size) for low, high in ends]
    # A product kernel: one narrow matrix per coordinate instead of one over the whole grid.
    factors = [
        np.exp(-0.5 * ((g[:, None] - x) / s) ** 2) / (np.sqrt(2.0 * np.pi) * s)
        for g, x, s in zip(grids, X.T, h, strict=True)
    ]
    return grids, factors[0] @ w if len(grids) == 1 else (factors[1] * w) @ factors[0].T


def mode(mu: Weighted, starts: int, bandwidth: Bandwidth, by: Height) -> Points:
    """Most probable point: the density's highest peak, or the point of largest weight."""
    option(by, "by", ("density", "weight"))
    starts = integer(starts, "starts")
    P = mu.points
    numbers = is_array_api_obj(P) and P.ndim <= 2 and getattr(P.dtype, "kind", "f") in "fiub"
    if by == "weight" or not (numbers and mu.kernel.has_density):  # categories, angles, ...
        heights = mu._rows if by == "weight" else np.atleast_2d(as_doubles(mu.valid()(P)))
        found = take(P, np.argmax(heights, axis=1))
        return first_point(found) if mu._single else found
    X = as_doubles(mu.vectors)
    return mu._answer(np.stack([_peak(X, w, starts, bandwidth) for w in mu.valid_weights()]))


def _peak(X: Floats, w: Floats, starts: int, bandwidth: Bandwidth) -> Floats:
    """Highest peak (d,) of sum_i w_i k(x, x_i), w >= 0, that mean shift finds from the starts."""
    kernel = Gaussian(tuple(_chosen(bandwidth, X, w)))
    heavy = X[np.argsort(-w)[:MODE_CANDIDATES]]
    highest = heavy[np.argsort(-(kernel(heavy, X) @ w))[:starts]]
    peaks = _fixed_point(kernel, X, np.broadcast_to(w, (len(highest), len(w))), highest)
    return np.asarray(peaks[np.argmax(kernel(peaks, X) @ w)])


def first_point(points: Points) -> Points:
    """Return the first of several points; of a joint variable, the first of every part."""
    if isinstance(points, dict):
        return {part: first_point(rows) for part, rows in points.items()}
    return points[0]


def sample(mu: Weighted, m: int, rng: Rng, method: Method, bandwidth: Bandwidth) -> Points:
    """Herd m of the embedding's points, or draw m points independently and smooth them."""
    m = integer(m, "the number of draws")
    option(method, "method", ("herding", "iid"))
    generator = as_generator(rng)
    if method == "iid":
        return _independent(mu, m, generator, bandwidth)
    if bandwidth is not None:
        raise ValueError("herding does not smooth; bandwidth goes with method='iid'")
    values = np.atleast_2d(as_doubles(mu.normalized()(mu.points)))
    rows = Gram.by_rows(mu.kernel, mu.points, products=False)
    return _picked(mu, np.stack([greedy(rows, row, m)[0] for row in values]))


def _independent(mu: Weighted, m: int, rng: Generator, bandwidth: Bandwidth) -> Points:
    W, P = mu.valid_weights(), mu.points
    drawn = _picked(mu, np.stack([rng.choice(len(w), size=m, p=w / w.sum()) for w in W]))
    vector = is_array_api_obj(P) and P.ndim == 2
    if not vector or not namespace(P).isdtype(P.dtype, "real floating"):  # categories, matrices
        return drawn
    h = np.ones(1) if bandwidth is None else as_doubles(bandwidth, "bandwidth")
    if h.size and not h.any():
        return drawn
    X = as_doubles(P)
    members = as_doubles(drawn).reshape(len(W), m, -1)
    moved = [keep_covariance(y, (X, w), bandwidth, rng) for y, w in zip(members, W, strict=True)]
    return like(moved[0] if mu._single else np.stack(moved), P)


def _picked(mu: Weighted, picks: Ints) -> Points:
    """Points at indices (batch, m): (m, ...), or (batch, m, ...) for a batch."""
    return take(mu.points, picks[0]) if mu._single else _take_rows(mu.points, picks)


def _take_rows(points: Points, picks: Ints) -> Points:
    if isinstance(points, Mapping):
        return {name: _take_rows(part, picks) for name, part in points.items()}
    if not is_array_api_obj(points):
        return [take(points, row) for row in picks]
    flat = take(points, picks.ravel())
    return namespace(flat).reshape(flat, (*picks.shape, *points.shape[1:]))


def preimage(mu: Weighted, candidates: PointsLike | None = None) -> Points:
    """Point whose embedding is closest to mu; with a leading axis for a batch."""
    kernel = mu.kernel
    closed = kernel.preimage_of(mu.points, mu.weights) if candidates is None else None
    if closed is not None:
        return closed
    Y = mu.points if candidates is None else kernel.points(candidates, "candidates")
    heights = 2.0 * mu(Y) - kernel.diag(Y)
    found = take(Y, np.atleast_1d(np.argmax(as_doubles(heights), axis=-1)))
    if candidates is None and not isinstance(found, dict | list) and kernel.is_smooth:
        X, start = (as_doubles(p) for p in (mu.points, found))
        if kernel.gaussian_bandwidth is not None:
            best = _fixed_point(kernel, X, mu._rows, start)
        else:
            spread = X.std(axis=0)
            scale = np.where(spread > 0, spread, 1.0)
            each = zip(_heights(kernel, X, mu._rows), start, strict=True)
            best = np.stack(
                [climb(f, y, scale, float(f(y[None])[0]), **EXACT_ASCENT) for f, y in each]
            )
        found = like(best, mu.weights)
    return first_point(found) if mu._single else found


def _heights(kernel: Kernel, X: Floats, W: Floats) -> list[Callable[[Floats], Floats]]:
    """2 mu(y) - k(y, y) as a function of points y (q, d), for each row of weights W (m, n)."""
    finite = kernel.finite
    over = W @ as_doubles(kernel.features(X)) if finite else W

    def height(w: Floats, Y: Floats) -> Floats:
        K = as_doubles(kernel.features(Y) if finite else kernel(Y, X))
        own = np.einsum("ij,ij->i", K, K) if finite else as_doubles(kernel.diag(Y))
        return np.asarray(2.0 * K @ w - own)

    return [partial(height, w) for w in over]


def _fixed_point(kernel: Kernel, X: Floats, W: Floats, starts: Floats) -> Floats:
    """Maximise sum_i w_i k(y, x_i) for each row of W by the fixed point; never below the start."""
    still = 1e-10 * float(np.max(np.asarray(kernel.gaussian_bandwidth)))
    best = starts.copy()
    top = np.full(len(W), -np.inf)
    y, rows = starts.copy(), np.arange(len(W))
    for _ in range(FIXED_POINT_STEPS):
        K = kernel(y, X) * W[rows]
        total = K.sum(axis=1, keepdims=True)
        better = total[:, 0] > top[rows]
        best[rows[better]], top[rows[better]] = y[better], total[better, 0]
        # A denominator that is not clearly positive would throw the iterate anywhere: stop there.
        safe = total[:, 0] > 1e-12 * np.abs(K).sum(axis=1)
        rows, K, total, y = rows[safe], K[safe], total[safe], y[safe]
        new = (K @ X) / total
        moving = np.abs(new - y).max(axis=1, initial=0.0) > still
        y, rows = new[moving], rows[moving]
        if len(rows) == 0:
            break
    return best
