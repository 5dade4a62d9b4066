r"""More than the present: windows of observations, and states with their velocity.

**Windows.** With ``lags=k`` the update sees the last k observations as one vector, newest first,

.. math:: k\big((x_t, \ldots, x_{t-k+1}), (x'_t, \ldots)\big)
          = \prod_{l=0}^{k-1} k_x\big(x_{t-l} / s_l,\; x'_{t-l} / s_l\big),

the kernel on one observation with a bandwidth multiple s_l for each lag. An entry that is missing,
or that lies before the first observation, is left out of the product: the update conditions on what
is there (:mod:`kernelbayes.filters.missing`). Windows overlap, so the update counts an observation
up to k times. That is right where the window says what no single observation does (a velocity), and
it is why the ridge of the update must be chosen for the window.

**Velocity.** With ``order=2`` the transition operator acts on (z_t, c (z_t - z_{t-1})), with c such
that both have the same spread. Beliefs stay weights over the training states, so that every answer
is about z alone.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from array_api_compat import is_array_api_obj

from kernelbayes.arrays import as_floats, as_vectors, like, namespace, to_numpy, widened
from kernelbayes.gram import EXACT, Gram
from kernelbayes.gram.loo import RidgePath, ridge_grid, score_targets
from kernelbayes.kernels import Gaussian, Kernel, Parts
from kernelbayes.points import concatenate, integer, positive_each, take
from kernelbayes.types import Array, Bools, Floats, Points, PointsLike

Lags = int | Sequence[float]
# Bandwidth multiples to choose from: of the newest observation as a power of the number of lags
# (0 leaves the kernel as it is, 1/2 keeps the median distance of a window at one), and the growth
# from one lag to the next, up to a window whose eighth entry hardly counts.
WIDENINGS, GROWTHS = (0.0, 0.5), (1.0, 1.25, 1.6)
# Windows on which they are scored, in so many blocks of time, and features of a kernel on them: a
# choice among six needs no more.
WINDOW_ROWS, BLOCKS, WINDOW_FEATURES = 600, 4, 200
# Spread of velocities below this share of the states' spread is rounding: there is none to learn.
AT_REST = 1e-9


def check_lags(lags: Lags) -> int:
    """Length of the window; a ValueError or TypeError where there is none."""
    if isinstance(lags, str) or not (np.ndim(lags) in (0, 1) and np.size(lags)):
        raise TypeError(
            f"lags must be an integer of at least 1, or a bandwidth multiple for each lag, got "
            f"{lags!r}"
        )
    if np.ndim(lags) == 0:
        return integer(lags, "lags", 1)
    positive_each(lags, "lags")
    return len(lags)  # type: ignore[arg-type]


def as_rows(X: PointsLike, what: str = "lags", name: str = "X") -> Array:
    """Vectors (T, d) of doubles, in which NaN may stay; a TypeError says what needs them."""
    numeric = is_array_api_obj(X) and not (isinstance(X, np.ndarray) and X.dtype.kind not in "fiub")
    if isinstance(X, Mapping) or not numeric or X.ndim > 2:
        raise TypeError(f"{what} needs {name} to be vectors of numbers, an array (T, d)")
    xp = namespace(X)
    X = widened(X if xp.isdtype(X.dtype, "real floating") else as_floats(X, name))
    return X[:, None] if X.ndim == 1 else X


def windows(X: Array, lags: int, gaps: Sequence[int] | None = None) -> Array:
    """Last ``lags`` rows (T, lags d) at each of T steps, newest first, from rows X (T, d).

    NaN where there is none: before the first, and inside gaps of more than one transition. A step
    without an observation is all NaN, as it is without lags.
    """
    xp = namespace(X)
    T, d = X.shape
    at = np.arange(T) if gaps is None else np.cumsum([0, *gaps[1:]])
    place = np.full(int(at[-1]) + lags, T)  # T is a row of NaN, as are the first lags - 1 places
    place[at + lags - 1] = np.arange(T)
    padded = xp.concat([X, like(np.full((1, d), np.nan), X)], axis=0)
    columns = [take(padded, place[at + lags - 1 - lag]) for lag in range(lags)]
    return without_present(xp.concat(columns, axis=1), d)


def without_present(W: Array, d: int) -> Array:
    """Windows (T, lags d) that are all NaN where the newest observation is missing."""
    xp = namespace(W)
    seen = xp.any(~xp.isnan(W[:, :d]), axis=1)
    return xp.where(seen[:, None], W, xp.nan * xp.ones_like(W))


def window_kernel(kernel: Kernel, d: int, scales: Sequence[float]) -> Kernel:
    """Product over lags of a kernel on vectors (d,), its bandwidths times the lag's scale."""
    if len(scales) == 1:
        return kernel.scaled(scales[0]) if scales[0] != 1.0 else kernel
    h = kernel.gaussian_bandwidth
    if h is not None:  # one Gaussian: closed forms stay
        row = np.broadcast_to(np.asarray(h, dtype=float), (d,))
        return Gaussian(tuple(map(float, np.concatenate([s * row for s in scales]))))
    return Parts(
        [(range(lag * d, (lag + 1) * d), kernel.scaled(s)) for lag, s in enumerate(scales)]
    )


def choose_scales(
    kernel: Kernel, W: Points, known: Bools | None, Z: Points, kernel_z: Kernel, lags: int
) -> tuple[float, ...]:
    """Bandwidth multiples of the lags with the least error of a regression of z on windows.

    Blocks of time are left out in turn: neighbours in time have nearly the same window.
    """
    d = W.shape[1] // lags
    rows = np.arange(W.shape[0]) if known is None else np.flatnonzero(known.all(axis=1))
    if lags == 1 or len(rows) < 2 * BLOCKS:
        return (1.0,) * lags
    rows = rows[np.linspace(0, len(rows) - 1, min(WINDOW_ROWS, len(rows))).astype(int)]
    H = score_targets(kernel_z, take(Z, rows))
    tried = {
        tuple(lags**widening * growth**lag for lag in range(lags))
        for widening in WIDENINGS
        for growth in GROWTHS
    }
    points = take(W, rows)
    errors = {s: _block_error(window_kernel(kernel, d, s), points, H) for s in sorted(tried)}
    return min(errors, key=errors.__getitem__)


def _block_error(kernel: Kernel, X: Points, H: Floats) -> float:
    """Least squared error over ridges of regressions that each leave out a block of rows."""
    gram = Gram.of(kernel, kernel.points(X), rank=WINDOW_FEATURES, tol=EXACT, rng=0, double=True)
    F = np.asarray(to_numpy(gram.factor), dtype=float)
    return float(block_errors(F, H, ridge_grid(F), BLOCKS).min())


def block_errors(F: Floats, H: Floats, ridges: Floats, blocks: int) -> Floats:
    """Squared errors of every ridge, summed over blocks of rows that are left out in turn."""
    block, total = np.arange(len(F)) * blocks // len(F), np.zeros(len(ridges))
    for b in range(blocks):
        out, kept = block == b, block != b
        path = RidgePath.of(F[kept], H[kept], np.full(int(kept.sum()), 1.0 / kept.sum()))
        at = F[out] @ path.Q
        for j, shrink in enumerate(path.filtered(ridges[:, None])):
            total[j] += np.sum(((at * shrink) @ path.cross - H[out]) ** 2)
    return total


# --- velocity -------------------------------------------------------------------------------------


def with_velocity(Z: Points, lengths: Sequence[int], kernel: Kernel) -> tuple[Points, Kernel]:
    """States (n, 2 d) with their velocity in units of the states' spread, and a kernel on them.

    The first state of a sequence, whose velocity is not known, gets that of the second.
    """
    if not kernel.is_vector:
        raise ValueError(
            f"order=2 needs states that are vectors, under a kernel such as Gaussian; "
            f"{type(kernel).__name__} has no differences"
        )
    Z = as_vectors(Z, "Z")
    xp = namespace(Z)
    starts = np.cumsum([0, *lengths[:-1]])
    parts = [_differences(Z[a : a + size, :]) for a, size in zip(starts, lengths, strict=True)]
    V = concatenate(*parts)
    spread, speed = xp.std(Z, axis=0), xp.std(V, axis=0)
    moving = speed > AT_REST * spread
    scale = xp.where(moving, spread / xp.where(moving, speed, xp.ones_like(speed)), 0.0 * speed)
    d = Z.shape[1]
    return xp.concat([Z, V * scale], axis=1), window_kernel(kernel, d, (1.0, 1.0))


def _differences(Z: Array) -> Array:
    """Differences (T, d) to the row before; the first row has that of the second."""
    if Z.shape[0] == 1:
        return 0.0 * Z
    V = Z[1:, :] - Z[:-1, :]
    return namespace(Z).concat([V[:1, :], V], axis=0)
