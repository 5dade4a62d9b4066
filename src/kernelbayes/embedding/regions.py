r"""Probabilities, distribution functions, quantiles and intervals.

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
"raw"              (False) the weights as they are, divided by their sum.
=================  ============================================================================

How well each is calibrated is measured in ``experiments/calibration``. Where weights are negative,
``cdf(quantile(q))`` is not exactly q by default; give both the same ``valid`` if it must be.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from kernelbayes.arrays import Array, like, namespace, to_numpy
from kernelbayes.embedding.base import Validity, WeightedSample, validity
from kernelbayes.points import as_array, as_vectors

Region = tuple[Any, Any] | Callable[[Any], Any]


class Regions(WeightedSample):
    """Where the mass is."""

    def prob(self, region: Region, valid: Validity = True) -> Array:
        """Probability of a region: a box (low, high) or a predicate on points.

        The ends of a box are numbers or one per coordinate, and may be infinite. "rearranged"
        is for intervals of scalar points.

        Examples
        --------
        >>> from kernelbayes import Gaussian, embed
        >>> mu = embed([0.0, 1.0, 2.0], Gaussian(1.0), [0.2, 0.3, 0.5])
        >>> mu.prob((0.5, 2.5)), mu.prob(lambda x: x[:, 0] < 1.5)
        (np.float64(0.8), np.float64(0.5))
        """
        if callable(region):
            if validity(valid) == "rearranged":
                raise ValueError(f"a predicate has no order to rearrange; {_ELSEWHERE}")
            inside = np.asarray(to_numpy(as_array(region(self.points))), dtype=float)
            inside = inside[:, 0] if inside.ndim == 2 and inside.shape[1] == 1 else inside
            if inside.shape != (self.weights.shape[-1],):
                raise ValueError(
                    "a predicate must give one truth value per point, shape "
                    f"({self.weights.shape[-1]},), got {inside.shape}"
                )
            if not np.all((inside == 0) | (inside == 1)):
                raise ValueError("a predicate must give truth values; for a function use expect(f)")
            return self._answer(self._distribution(valid) @ inside)
        low, high = (np.asarray(to_numpy(as_array(end)), dtype=float) for end in region)
        X = to_numpy(self._vectors)
        for end in (low, high):
            if end.size not in (1, X.shape[1]) or np.isnan(end).any():
                raise ValueError(f"an end of a box is a number or {X.shape[1]} of them, got {end}")
        if np.any(low > high):
            raise ValueError(f"the box is empty: its low end {low} is above its high end {high}")
        if validity(valid) == "rearranged":
            below = np.nextafter(np.broadcast_to(low, (1, 1)), -np.inf)
            ends = self._rearranged_cdf(np.concatenate([below, np.broadcast_to(high, (1, 1))]))
            return self._answer(np.maximum(ends[:, 1] - ends[:, 0], 0.0))
        inside = np.all((low <= X) & (high >= X), axis=1).astype(float)
        return self._answer(self._distribution(valid) @ inside)

    def cdf(self, x: Any, valid: Validity = True) -> Array:
        """Distribution function P(all coordinates <= x) at points x (k, d), shape (k,).

        "rearranged" is for scalar points.
        """
        x = to_numpy(as_vectors(x, "x"))
        X = to_numpy(self._vectors)
        if x.shape[1] != X.shape[1]:
            raise ValueError(f"x has {x.shape[1]} coordinates, the points have {X.shape[1]}")
        if validity(valid) == "rearranged":
            return self._answer(self._rearranged_cdf(x))
        below = np.all(X[:, None, :] <= x[None, :, :], axis=2).astype(float)
        return self._answer(self._distribution(valid) @ below)

    def quantile(self, q: Any, valid: Validity = True) -> Array:
        """Quantiles of each coordinate at levels q, shape (len(q), d).

        Between points the distribution function is interpolated. The raw one, which need not be
        monotone, is not: its quantile is the first point at which it reaches q.

        Examples
        --------
        >>> import numpy as np
        >>> from kernelbayes import Gaussian, embed
        >>> embed(np.arange(101.0), Gaussian(1.0)).quantile([0.25, 0.5]).round(1)
        array([[24.7],
               [50. ]])
        """
        levels = np.atleast_1d(np.asarray(q, dtype=float))
        if not np.all((levels >= 0) & (levels <= 1)):
            raise ValueError(f"quantile levels must lie in [0, 1], got {q!r}")
        kind = validity(valid, "rearranged")
        ask = first_crossing if kind == "raw" else interpolate
        values = self._per_coordinate(lambda x, F: ask(x, F, levels), kind)
        return like(np.moveaxis(values, -1, -2), self.weights)

    def interval(
        self,
        level: float = 0.9,
        kind: Literal["equal-tailed", "highest"] = "equal-tailed",
        valid: Validity = True,
    ) -> Array:
        """Credible interval of each coordinate, shape (d, 2).

        Equal-tailed, or the shortest one ("highest": where the density is highest, if it has one
        peak).

        Examples
        --------
        >>> import numpy as np
        >>> from kernelbayes import Gaussian, embed
        >>> mu = embed(np.random.default_rng(0).exponential(size=5000), Gaussian(1.0))
        >>> mu.interval(0.9).round(1), mu.interval(0.9, kind="highest").round(1)
        (array([[0.1, 3.1]]), array([[0. , 2.3]]))
        """
        if not isinstance(level, float | int | np.number) or not 0.0 < level < 1.0:
            raise ValueError(f"level must lie in (0, 1), got {level!r}")
        if kind == "equal-tailed":
            ends = self.quantile([(1.0 - level) / 2.0, (1.0 + level) / 2.0], valid)
            return namespace(ends).moveaxis(ends, -2, -1)
        if kind != "highest":
            raise ValueError(f"kind must be 'equal-tailed' or 'highest', got {kind!r}")
        way = validity(valid, "rearranged")
        if way == "raw":
            raise ValueError(f"the shortest interval needs a monotone F; {_ELSEWHERE}")
        values = self._per_coordinate(lambda x, F: shortest(x, F, level), way)
        return like(values, self.weights)

    def _rearranged_cdf(self, x: Any) -> Any:
        """Rearranged distribution function (m, k) of scalar points at x (k, 1)."""
        X = to_numpy(self._vectors)
        if X.shape[1] != 1:
            raise ValueError(f"rearrangement is for scalar points; {_ELSEWHERE}")
        order = np.argsort(X[:, 0], kind="stable")
        F = rearranged(np.cumsum(self._distribution("raw")[:, order], axis=1))
        F = np.concatenate([np.zeros((len(F), 1)), F], axis=1)
        return F[:, np.searchsorted(X[order, 0], x[:, 0], side="right")]

    def _per_coordinate(self, ask: Callable[[Any, Any], Any], valid: Validity) -> Any:
        """Ask sorted points (n,) and F there (n,), for each coordinate: (..., d, answer)."""
        X = to_numpy(self._vectors)
        weights = self._distribution(valid)
        columns = []
        for x in X.T:
            order = np.argsort(x, kind="stable")
            ordered = weights[:, order]
            # A point's own mass counts half, so that the median of equal weights is their median.
            F = np.cumsum(ordered, axis=1) - 0.5 * ordered
            F = rearranged(F) if valid == "rearranged" else F
            columns.append([ask(x[order], row) for row in F])
        answers = np.moveaxis(np.asarray(columns), 0, 1)
        return answers[0] if self._single else answers


# Mass below this is rounding.
ROUNDING = 1e-12
_ELSEWHERE = "use 'projected' or 'clipped'"


def rearranged(F: Any) -> Any:
    """Monotone rearrangement of the values (m, n) of distribution functions at ordered points."""
    return np.clip(np.sort(F, axis=-1), 0.0, 1.0)


def interpolate(x: Any, F: Any, levels: Any) -> Any:
    """Quantiles of a monotone F, interpolated between the points x where it rises.

    Points at either end that carry no mass to speak of are left out: nothing leads there.
    """
    inside = slice(np.searchsorted(F, ROUNDING, side="right"), np.searchsorted(F, 1.0 - ROUNDING))
    if inside.stop - inside.start < 2:
        middle = min(int(np.searchsorted(F, 0.5)), len(x) - 1)
        return np.full(np.shape(levels), x[middle])
    return np.interp(levels, F[inside], x[inside])


def first_crossing(x: Any, F: Any, levels: Any) -> Any:
    """First point at which F, monotone or not, reaches each level; the last if it never does."""
    first = np.searchsorted(np.maximum.accumulate(F), levels)
    return x[np.minimum(first, len(x) - 1)]


def shortest(x: Any, F: Any, level: float) -> Any:
    """Shortest interval between quantiles ``level`` apart."""
    starts = np.linspace(0.0, 1.0 - level, 200)
    low, high = interpolate(x, F, starts), interpolate(x, F, starts + level)
    best = int(np.argmin(high - low))
    return np.array([low[best], high[best]])
