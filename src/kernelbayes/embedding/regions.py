r"""Expectations, probabilities, distribution functions, quantiles and intervals.

Weights may be negative, so the raw distribution function ``F(x) = sum_i w_i 1(x_i <= x)`` can fall
and leave [0, 1]. Four ways to deal with it, the option ``valid`` of every question here:

=================  ============================================================================
"rearranged"       the values of the raw F at the points, sorted (Chernozhukov, Fernandez-Val and
                   Galichon 2010): never further from a true distribution function than the raw F
                   is. Cheap; one coordinate at a time. **The default (True) of quantile and
                   interval**: of the ways that give a distribution function it is the best
                   calibrated over all automatic choices of kernels. Where the effective sample
                   size is below one, so that weights nearly cancel, "projected" is taken instead.
"projected"        weights of ``valid()``, the closest probability in RKHS distance: one
                   distribution behind every answer, in any dimension. **The default (True) of
                   prob, cdf, density and mode**, which ask about one. Its weights are sparse
                   where the kernel on x is wide, and intervals then lose their tails.
"clipped"          negative weights set to zero. Biased: mass that negative weights had cancelled
                   far from the centre stays there, and intervals come out too wide.
"raw"              (False) the weights as they are, for probabilities and densities (KMCF16 eq. 5.24
                   and 5.4); divided by their sum for quantiles, which need a total.
=================  ============================================================================

How well each is calibrated is measured in ``experiments/calibration``. Where weights are negative,
``cdf(quantile(q))`` is not exactly q by default; give both the same ``valid`` if it must be.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Literal

import numpy as np
from array_api_compat import device

from kernelbayes.arrays import (
    as_doubles,
    as_real,
    as_vectors,
    like,
    namespace,
    narrowed,
    row_blocks,
    to_float,
    to_numpy,
    total,
    weighted_sum,
    widened,
)
from kernelbayes.embedding.mean import Kind, MeanElement, Weighted
from kernelbayes.kernels import Kernel
from kernelbayes.points import integer, option, share, vectors
from kernelbayes.types import Array, Floats, Ints, Points, PointsLike

Region = tuple[float | Array, float | Array] | Callable[[Points], Array]
Shape = Literal["equal-tailed", "highest"]
MASS_ROUNDING = 1e-12  # mass below this is rounding: 1e-16 for each of up to ten thousand points
INTERVALS = 200  # that compete to be the shortest, equally spaced in the mass below them
_ELSEWHERE = "use 'projected' or 'clipped'"


def expect(points: Points, weights: Array, f: Callable[[Points], Array] | Array) -> Array:
    """Sum of w_i f(x_i), for a function of the points or its values (n, ...)."""
    given = as_real(f(points) if callable(f) else f, "f")
    values = like(given, widened(weights[..., :1]))
    n, shape = weights.shape[-1], tuple(values.shape)
    if shape[:1] != (n,):
        raise ValueError(f"f must give one value per point, shape ({n}, ...), got {shape}")
    xp = namespace(values)
    found = weighted_sum(weights, xp.reshape(values, (n, -1)))
    fine = "float64" in str(given.dtype)  # of any library; values of lower precision lose nothing
    found = xp.astype(found, xp.float64 if fine else weights.dtype, copy=False)
    return xp.reshape(found, (*weights.shape[:-1], *shape[1:]))


def mean(mu: Weighted) -> Array:
    """Mean (d,) in the points' space, around the centre if there is one."""
    if mu.centre is None:
        return mu.kernel.mean_of(mu.points, mu.weights)
    X = mu.vectors
    return narrowed(mu.centre + weighted_sum(mu.weights, X - mu.centre), X)


def moment(mu: Weighted, order: int) -> Array:
    """Raw moment (d,) of each coordinate: sum of w_i x_i^order."""
    order, X = integer(order, "the order of a moment (for other powers use expect)"), mu.vectors
    with np.errstate(over="ignore", invalid="ignore"):
        found = weighted_sum(mu.weights, widened(X) ** order)
    return representable(found, X, f"moments of order {order}")


def representable(found: Array, X: Array, what: str) -> Array:
    """Return numbers in the precision of X, doubles if they are too small for it, or raise."""
    xp = namespace(found)
    with np.errstate(over="ignore", under="ignore"):
        narrow = narrowed(found, X)
    if bool(xp.all(xp.isfinite(narrow))):
        return found if bool(xp.any((narrow == 0) & (found != 0))) else narrow
    size = f"{to_float(xp.max(xp.abs(X))):.0e} in size"
    raise ValueError(f"the {what} of points {size} are too large for {X.dtype}; rescale the points")


def expect_bound(mu: MeanElement, f: MeanElement, other: MeanElement | float | Array) -> Array:
    """Norm of f times the distance to the other embedding, or times the distance given."""
    if not isinstance(f, MeanElement) or f.kernel != mu.kernel:
        raise TypeError(
            "the bound holds for functions in the RKHS of the embedding's kernel: give f as "
            "embed(points, kernel, coefficients)"
        )
    if not isinstance(other, MeanElement):
        return f.norm() * other
    # Not (mu - other).norm(): a closed form has no weights to subtract.
    squared = mu._squared_norm() - 2.0 * mu._inner(other) + other._squared_norm()
    xp = namespace(squared)
    return f._narrow(xp.sqrt(xp.clip(squared * f._squared_norm(), min=0.0)))


def covariance(mu: Weighted) -> Array:
    """Covariance matrix (d, d): deviations as in ``deviation``, correlations of ``valid()``."""
    S, unit = _scaled_covariance(mu)
    if _signed(mu):
        xp = namespace(S)
        new = like(_rearranged_deviations(mu, unit), S)
        old = xp.sqrt(xp.clip(xp.linalg.diagonal(S), min=0.0))
        factor = new / xp.where(old > 0, old, xp.ones_like(old))
        eye = xp.eye(S.shape[-1], dtype=S.dtype, device=device(S))
        S = S * factor[..., :, None] * factor[..., None, :] * (1.0 - eye)
        S = S + (new * new)[..., None, :] * eye
    with np.errstate(over="ignore", invalid="ignore"):
        return representable(S * unit * unit, mu.vectors, "covariances")


def deviation(mu: Weighted) -> Array:
    """Return standard deviations (d,), also where squares are too large or small for a number.

    Where weights are negative, of the rearranged distribution functions, as quantiles: at the edge
    of a sample the weights of ``valid()`` may be one point.
    """
    S, unit = _scaled_covariance(mu)
    xp = namespace(S)
    if _signed(mu):
        return narrowed(like(_rearranged_deviations(mu, unit), S) * unit, mu.vectors)
    variances = xp.clip(xp.linalg.diagonal(S), min=0.0)  # only rounding can make it negative
    return narrowed(xp.sqrt(variances) * unit, mu.vectors)


def _signed(mu: Weighted) -> bool:
    """Whether weights are no probabilities, even if divided by their sum."""
    xp = namespace(mu.weights)
    return bool(xp.any(mu.weights < 0)) or bool(xp.any(total(mu.weights) <= 0))


def _rearranged_deviations(mu: Weighted, unit: float) -> Floats:
    """Return standard deviations (..., d), in a unit, of rearranged distribution functions."""
    W, found = mu.valid_weights("rearranged"), []
    for x in to_numpy(mu.vectors).T / unit:
        order = np.argsort(x, kind="stable")
        first = _starts(x[order])
        F = rearranged(np.cumsum(np.add.reduceat(W[:, order], first, axis=1), axis=1))
        values = x[order][first]
        p, y = np.diff(F, axis=1, prepend=0.0), values - values.mean()
        found.append(np.sqrt(np.maximum(p @ (y * y) - (p @ y) ** 2, 0.0)))
    return np.stack(found, axis=-1).reshape(*mu.weights.shape[:-1], len(found))


def _scaled_covariance(mu: Weighted) -> tuple[Array, float]:
    """Covariance (..., d, d) of the points in some unit, and the unit: a power of two."""
    X, w = mu.vectors, mu.weights
    xp = namespace(w)
    if _signed(mu):
        w = mu.valid().weights  # with negative weights a variance can be negative
    w = widened(w)
    w = w / xp.sum(w, axis=-1, keepdims=True)
    unit = 2.0 ** np.frexp(to_float(xp.max(xp.abs(X))))[1].clip(-1000, 1000)
    X = widened(X) / unit
    X = X - xp.mean(X, axis=0)
    n, d = X.shape
    if w.ndim == 1 or w.shape[0] < d:  # one product (d, n) (n, d) for each
        found = []
        for row in xp.reshape(w, (-1, n)):
            Y = X - row @ X
            found.append((Y * row[:, None]).T @ Y)
        return (found[0] if w.ndim == 1 else xp.stack(found, axis=0)), unit
    centre = w @ X
    S = -centre[:, :, None] * centre[:, None, :]
    for rows in row_blocks(n, d * d):  # many of them: one product with all squares
        Y = X[rows, :]
        squares = xp.reshape(Y[:, :, None] * Y[:, None, :], (-1, d * d))
        S = S + xp.reshape(w[:, rows] @ squares, S.shape)
    return S, unit


def prob(points: Points, W: Floats, kind: Kind, region: Region) -> Floats:
    """Probability (m,) of a box (low, high) or a predicate under weights W (m, n)."""
    if callable(region):
        if kind == "rearranged":
            raise ValueError(f"a predicate has no order to rearrange; {_ELSEWHERE}")
        return np.asarray(W @ _truth_values(region(points), W.shape[1]))
    if not isinstance(region, tuple | list) or len(region) != 2:
        raise TypeError(f"a region is a box (low, high) or a predicate, got {region!r}")
    low, high = (as_doubles(end, "an end of a box") for end in region)
    X = to_numpy(vectors(points))
    for end in (low, high):
        if end.size not in (1, X.shape[1]) or np.isnan(end).any():
            raise ValueError(f"an end of a box is a number or {X.shape[1]} of them, got {end}")
    if np.any(low > high):
        raise ValueError(f"the box is empty: its low end {low} is above its high end {high}")
    if kind == "rearranged":
        below = np.nextafter(np.broadcast_to(low, (1, 1)), -np.inf)
        ends = _rearranged_cdf(X, W, np.concatenate([below, np.broadcast_to(high, (1, 1))]))
        return np.maximum(ends[:, 1] - ends[:, 0], 0.0)
    return np.asarray(W @ np.all((low <= X) & (high >= X), axis=1).astype(float))


def _truth_values(values: Array, n: int) -> Floats:
    inside = as_doubles(values, "the predicate")
    inside = inside[:, 0] if inside.ndim == 2 and inside.shape[1] == 1 else inside
    if inside.shape != (n,):
        shapes = f"shape ({n},), got {inside.shape}"
        raise ValueError(f"a predicate must give one truth value per point, {shapes}")
    if not np.all((inside == 0) | (inside == 1)):
        raise ValueError("a predicate must give truth values; for a function use expect(f)")
    return inside


def cdf(points: Points, W: Floats, kind: Kind, x: PointsLike) -> Floats:
    """Distribution functions (m, k) at x (k, d): all coordinates at most those of x."""
    x, X = to_numpy(as_vectors(x, "x")), to_numpy(vectors(points))
    if x.shape[1] != X.shape[1]:
        raise ValueError(f"x has {x.shape[1]} coordinates, the points have {X.shape[1]}")
    if kind == "rearranged":
        return _rearranged_cdf(X, W, x)
    return np.asarray(W @ np.all(X[:, None, :] <= x[None, :, :], axis=2).astype(float))


def _rearranged_cdf(X: Floats, W: Floats, x: Floats) -> Floats:
    """Rearranged distribution functions (m, k) of scalar points X (n, 1) at x (k, 1)."""
    if X.shape[1] != 1:
        raise ValueError(f"rearrangement is for scalar points; {_ELSEWHERE}")
    order = np.argsort(X[:, 0], kind="stable")
    F = rearranged(np.cumsum(W[:, order], axis=1))
    F = np.concatenate([np.zeros((len(F), 1)), F], axis=1)
    return F[:, np.searchsorted(X[order, 0], x[:, 0], side="right")]


def quantile(points: Points, W: Floats, kind: Kind, q: float | Sequence[float] | Floats) -> Floats:
    """Quantiles (m, len(q), d) of each coordinate."""
    levels = np.atleast_1d(as_doubles(as_real(q, "q")))
    if levels.ndim > 1 or not np.all((levels >= 0) & (levels <= 1)):
        raise ValueError(f"quantile levels must lie in [0, 1], got {q!r}")
    ask = first_crossing if kind == "raw" else interpolate
    found = [[ask(x, row, levels) for row in F] for x, F in ordered(vectors(points), W, kind)]
    return np.moveaxis(np.asarray(found), 0, 2)


def interval(
    points: Points, W: Floats, kind: Kind, level: float, shape: Shape, kernel: Kernel
) -> Floats:
    """Credible intervals (m, d, 2) of each coordinate; arcs of those that are angles."""
    level = share(level, "level")
    option(shape, "kind", ("equal-tailed", "highest"))
    if shape == "highest" and kind == "raw":
        raise ValueError(f"the shortest interval needs a monotone F; {_ELSEWHERE}")
    ends = np.array([(1.0 - level) / 2.0, (1.0 + level) / 2.0])
    quantiles = first_crossing if kind == "raw" else interpolate

    def ask(x: Floats, F: Floats) -> Floats:
        return quantiles(x, F, ends) if shape == "equal-tailed" else shortest(x, F, level)

    X = to_numpy(vectors(points))
    found = []
    for j, period in enumerate(kernel.periods(X.shape[1])):
        if period is None:
            x, F = next(ordered(X[:, [j]], W, kind))
            found.append([ask(x, row) for row in F])
        else:
            found.append([_arc(X[:, j], w, kind, period, ask) for w in W])
    return np.moveaxis(np.asarray(found), 0, 1)


def _arc(
    x: Floats, w: Floats, kind: Kind, period: float, ask: Callable[[Floats, Floats], Floats]
) -> Floats:
    """Interval of angles around their mean direction; the low end is in [0, period)."""
    angle = 2.0 * np.pi / period * x
    middle = np.arctan2(w @ np.sin(angle), w @ np.cos(angle)) * period / (2.0 * np.pi)
    around = (x - middle + period / 2.0) % period - period / 2.0
    y, F = next(ordered(around[:, None], w[None, :], kind))
    ends = ask(y, F[0])
    low = (ends[0] + middle) % period
    return np.array([low, low + (ends[1] - ends[0])])


def ordered(X: Array, W: Floats, kind: Kind) -> Iterator[tuple[Floats, Floats]]:
    """For each coordinate of X (n, d) its values in order (n,), and F (m, n) at them."""
    for x in to_numpy(X).T:
        order = np.argsort(x, kind="stable")
        weights, starts = W[:, order], _starts(x[order])
        if len(starts) < len(x):  # equal points have no order: they share their weight
            counts = np.diff(np.append(starts, len(x)))
            shared = np.add.reduceat(weights, starts, axis=1) / counts
            weights = np.repeat(shared, counts, axis=1)
        # A point's own mass counts half, so that the median of equal weights is their median.
        F = np.cumsum(weights, axis=1) - 0.5 * weights
        yield x[order], rearranged(F) if kind == "rearranged" else F


def _starts(x: Floats) -> Ints:
    """Return the indices at which distinct values of ordered points x (n,) begin."""
    return np.flatnonzero(np.append(True, x[1:] != x[:-1]))


def rearranged(F: Floats) -> Floats:
    """Monotone rearrangement of the values (m, n) of distribution functions at ordered points."""
    return np.asarray(np.clip(np.sort(F, axis=-1), 0.0, 1.0))


def interpolate(x: Floats, F: Floats, levels: Floats) -> Floats:
    """Quantiles of a monotone F, interpolated between the points x where it rises."""
    # Points at either end that carry no mass to speak of are left out: nothing leads there.
    inside = slice(
        np.searchsorted(F, MASS_ROUNDING, side="right"), np.searchsorted(F, 1.0 - MASS_ROUNDING)
    )
    if inside.stop - inside.start < 2:
        middle = min(int(np.searchsorted(F, 0.5)), len(x) - 1)
        return np.full(np.shape(levels), x[middle])
    return np.interp(levels, F[inside], x[inside])


def first_crossing(x: Floats, F: Floats, levels: Floats) -> Floats:
    """First point at which F, monotone or not, reaches each level; the last if it never does."""
    first = np.searchsorted(np.maximum.accumulate(F), levels)
    return x[np.minimum(first, len(x) - 1)]


def shortest(x: Floats, F: Floats, level: float) -> Floats:
    """Shortest interval between quantiles ``level`` apart."""
    starts = np.linspace(0.0, 1.0 - level, INTERVALS)
    low, high = interpolate(x, F, starts), interpolate(x, F, starts + level)
    best = int(np.argmin(high - low))
    return np.array([low[best], high[best]])
