r"""Regression features: an estimate of the state from a window of observations.

A ridge regression (Gaussian features on landmarks, and a linear part) estimates E[z | window]. The
features of the training windows are cross-fitted: each is predicted by a regression that has not
seen its block of time. Windows that do not reach back far enough, as at the start of a sequence,
have a regression of half their length, and so on down to the newest observation. Other entries that
are missing from a window are filled with the one before, else with the one after, else with the
training mean.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np

from kernelbayes.arrays import as_generator, like, to_numpy
from kernelbayes.filters.encode.lags import block_errors
from kernelbayes.gram.features import nystrom
from kernelbayes.gram.lapack import eigh
from kernelbayes.gram.loo import fold_predictions, ridge_grid
from kernelbayes.kernels import Gaussian, Kernel
from kernelbayes.kernels.radial import median_distance
from kernelbayes.points import count
from kernelbayes.select.regression import Basis, landmark_basis
from kernelbayes.types import Array, Bools, Floats, Ints, Points, Rng

# Landmarks of the regression, as many as were measured to gain over a kernel filter on windows of
# neural and of Lorenz data; fewer, and so many rows, while its bandwidth is chosen, which then
# takes a second.
FINAL_LANDMARKS, FIRST_LANDMARKS, CHOICE_ROWS = 600, 300, 1500
# Bandwidths tried, in medians of the standardised windows: the linear part serves wider ones.
WINDOW_SCALES = (0.7, 1.4, 2.8)
# Windows with more columns are seen through so many principal directions of so many rows: with
# thousands of columns a regression takes minutes, and a few hundred rows span no more.
MOST_DIRECTIONS, DIRECTION_ROWS = 200, 500
# Ridges tried: nine decades, half a decade apart.
RIDGE_STEPS = 19
# Blocks of time that are left out in turn: each regression has learned from nine tenths, nearly as
# much as the one that new windows meet.
TIME_BLOCKS = 10
# Features of states that are not vectors, whose conditional means are estimated: the leading ones
# of a smooth kernel; more would need a kernel on as many coordinates.
STATE_FEATURES = 10
# Regressions that are kept: those without each of the four blocks of a race and the final one, each
# with its halves, and three of each where estimates are tracked.
KEPT = 15
_LAST_LEARNED: OrderedDict[bytes, tuple[Regressed, Floats]] = OrderedDict()


@dataclass(frozen=True, eq=False)
class Regressed:
    """A regression of states on windows."""

    basis: Basis
    coefficients: Floats  # (r, q)
    centre: Floats  # of the windows (kd,), and their scale
    spread: Floats
    middle: Floats  # of the targets (q,), and their scale
    unit: Floats
    d: int  # columns of one observation
    shorter: Regressed | None = None  # for windows that do not reach back so far

    def __call__(self, W: Array) -> Array:
        """Estimates (T, q) at windows (T, kd); NaN where the newest observation is missing."""
        V = np.asarray(to_numpy(W), dtype=np.float64)
        found = np.full((len(V), len(self.middle)), np.nan)
        seen = ~np.isnan(V[:, : self.d]).all(axis=1)
        short = seen & reaches_less(V, self.d) if self.shorter is not None else seen & False
        whole = seen & ~short
        inputs = (filled(V[whole], self.d, self.centre) - self.centre) / self.spread
        found[whole] = self.basis.predict(inputs, self.coefficients) * self.unit + self.middle
        if self.shorter is not None and short.any():
            found[short] = self.shorter(V[short][:, : len(self.shorter.centre)])
        return like(found, W)


def learn_regression(
    W: Array, d: int, Z: Points, kernel_z: Kernel, rng: Rng
) -> tuple[Regressed, Floats]:
    """Regression of states on windows (n, kd), and its estimates (n, q) left out by blocks."""
    V = np.asarray(to_numpy(W), dtype=np.float64)
    seen = int(np.sum(~np.isnan(V[:, :d]).all(axis=1)))
    if seen < 2 * TIME_BLOCKS:
        raise ValueError(
            f"regression features need at least {2 * TIME_BLOCKS} observations, got {seen}"
        )
    Y = targets(Z, kernel_z)
    if not isinstance(rng, int):
        return _learned(V, d, Y, as_generator(rng), WINDOW_SCALES)
    # Candidates of a race differ in kernels and ridges, and would all learn the same regression.
    key = blake2b(V.tobytes() + Y.tobytes() + str((V.shape, d, rng)).encode()).digest()
    if key not in _LAST_LEARNED:
        _LAST_LEARNED[key] = _learned(V, d, Y, as_generator(rng), WINDOW_SCALES)
        while len(_LAST_LEARNED) > KEPT:
            _LAST_LEARNED.popitem(last=False)
    return _LAST_LEARNED[key]


def window_error(W: Array, Z: Points, lags: int) -> float:
    """Mean squared error of a regression of states on windows (n, lags d), in their variances.

    On blocks of time left out, at the middle bandwidth: what a regression may be worth.
    """
    V, Y = np.asarray(to_numpy(W), dtype=np.float64), targets(Z, Gaussian(1.0))
    d = V.shape[1] // lags
    rows = np.flatnonzero(~np.isnan(V[:, :d]).all(axis=1))
    V, Y = V[rows], Y[rows]
    centre, spread = _scales_of(V, d)
    inputs = (filled(V, d, centre) - centre) / spread
    unit = Y.std(axis=0)
    H = (Y - Y.mean(axis=0)) / np.where(unit > 0.0, unit, 1.0)
    return _chosen(inputs, H, np.random.default_rng(0), WINDOW_SCALES[1:2])[3]


def _learned(
    V: Floats, d: int, Y: Floats, rng: np.random.Generator, scales: tuple[float, ...]
) -> tuple[Regressed, Floats]:
    """Regressions on windows of this length, and of half of it where these do not reach back."""
    seen = ~np.isnan(V[:, :d]).all(axis=1)
    short = seen & reaches_less(V, d)
    halved = V.shape[1] > d and bool(short.any())
    rows = seen & ~short if halved and np.sum(seen & ~short) >= 2 * TIME_BLOCKS else seen
    centre, spread = _scales_of(V[rows], d)
    middle, unit = Y.mean(axis=0), Y.std(axis=0)
    unit = np.where(unit > 0.0, unit, 1.0)
    inputs = (filled(V[rows], d, centre) - centre) / spread
    H = ((Y - middle) / unit)[rows]
    basis, ridge, scale, _ = _chosen(inputs, H, rng, scales)
    r, ridges = np.full(len(H), 1.0 / len(H)), np.full(H.shape[1], ridge)
    coefficients, out = fold_predictions(basis(inputs), H, ridges, r, _blocks(len(H)))
    left_out = np.full((len(V), H.shape[1]), np.nan)
    left_out[rows] = out * unit + middle
    shorter = None
    if halved:
        length = V.shape[1] // d // 2 * d
        shorter, others = _learned(V[:, :length], d, Y, rng, (scale,))
        left_out[seen & ~rows] = others[seen & ~rows]
    scales_of = centre, spread, middle, unit
    return Regressed(*basis.reduced(coefficients), *scales_of, d, shorter), left_out


def _scales_of(V: Floats, d: int) -> tuple[Floats, Floats]:
    """Means and standard deviations (kd,) of windows; of a lag never seen, those of the newest."""
    V = np.where(np.isnan(V).all(axis=0), np.tile(V[:, :d], V.shape[1] // d), V)
    spread = np.nanstd(V, axis=0)
    return np.nanmean(V, axis=0), np.where(spread > 0.0, spread, 1.0)


def reaches_less(V: Floats, d: int) -> Bools:
    """Whether the oldest observation of windows (n, kd) is missing."""
    return np.asarray(np.isnan(V[:, -d:]).all(axis=1))


def targets(Z: Points, kernel: Kernel) -> Floats:
    """Coordinates of states, or leading features of those that are not vectors: (n, q)."""
    if kernel.is_vector:
        return np.asarray(to_numpy(Z), dtype=np.float64).reshape(count(Z), -1)
    features = nystrom(kernel.exact, Z, min(STATE_FEATURES, count(Z)), rng=0).features(Z)
    return np.asarray(to_numpy(features), dtype=np.float64)


def _blocks(n: int) -> Ints:
    return np.asarray(np.arange(n) * TIME_BLOCKS // n)


def _chosen(
    U: Floats, H: Floats, rng: np.random.Generator, scales: tuple[float, ...]
) -> tuple[Basis, float, float, float]:
    """Basis, ridge and bandwidth in medians with the least error on blocks of time left out.

    That error last, a mean over rows and columns.
    """
    order = rng.permutation(len(U))
    rows = np.linspace(0, len(U) - 1, min(CHOICE_ROWS, len(U))).astype(int)
    metric = _directions(U)
    U, slope = U @ metric, 1.0 / np.sqrt(len(metric))
    median = median_distance(U[order[:500]])
    best, ridge, chosen, here = np.inf, 1.0, scales[0], np.eye(U.shape[1])
    for scale in scales:
        F = landmark_basis(U[order[:FIRST_LANDMARKS]], here, scale * median, slope)(U[rows])
        grid = ridge_grid(F, size=RIDGE_STEPS)
        errors = block_errors(F, H[rows], grid, TIME_BLOCKS)
        if errors.min() < best:
            best, ridge, chosen = float(errors.min()), float(grid[np.argmin(errors)]), scale
    landmarks = U[order[:FINAL_LANDMARKS]]
    basis = landmark_basis(landmarks, metric, chosen * median, slope)
    return basis, ridge, chosen, best / H[rows].size


def _directions(U: Floats) -> Floats:
    """Coordinates (c, p) in which rows (n, c) are seen: their own, or the principal directions."""
    if U.shape[1] <= MOST_DIRECTIONS:
        return np.eye(U.shape[1])
    some = U[np.linspace(0, len(U) - 1, min(DIRECTION_ROWS, len(U))).astype(int)]
    values, vectors = eigh(some @ some.T)  # far fewer rows than columns
    kept = np.flatnonzero(values > len(some) * np.finfo(float).eps * values[-1])[-MOST_DIRECTIONS:]
    return np.asarray(some.T @ (vectors[:, kept] / np.sqrt(values[kept])))


def filled(V: Floats, d: int, means: Floats) -> Floats:
    """Windows (T, kd) without holes: the entry before, else the one after, else the mean."""
    if not np.isnan(V).any():
        return V
    lagged = V.reshape(len(V), -1, d).copy()  # (T, k, d), newest first
    k = lagged.shape[1]
    for to, source in [
        *((j, j + 1) for j in range(k - 2, -1, -1)),
        *((j, j - 1) for j in range(1, k)),
    ]:
        lagged[:, to] = np.where(np.isnan(lagged[:, to]), lagged[:, source], lagged[:, to])
    flat = lagged.reshape(len(V), -1)
    return np.asarray(np.where(np.isnan(flat), means, flat))
