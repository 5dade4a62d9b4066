r"""Intervals that hold left-out data as often as they say: in closed form, for ridge regressions.

Weights at x are chosen so that means are right; distribution functions made of them are too flat
where a smooth kernel suits the mean. So quantiles are the mean at x, and quantiles of the left-out
residuals :math:`e_i = z_i - m^{(-i)}(x_i)`, each divided by what it should scale with (studentised
residuals; conformal prediction),

.. math:: m(x) + s(x)\, Q_q(e_i / s_i), \qquad s(x)^2 = (1 + |w(x)|^2)\, v(x)

where :math:`|w|^2` is the variance of the mean in units of the noise, large at the edge of the
sample, and v is one, or the average of the :math:`e_i^2` under the positive weights at x where that
is clearly better for the left-out pairs, by pinball loss: noise that depends on x. Few pairs, on
which a kernel was chosen too, leave residuals that are too small: they are multiplied by how much
larger errors are of folds without which the kernel is chosen again.

Where the quantiles of the weights are clearly better than all of these, since the shape depends on
x, they are taken instead, as for beliefs of filters, but at the q-th quantile of the transforms
:math:`u_i = F^{(-i)}(z_i \mid x_i)` instead of q (distributional conformal prediction:
Chernozhukov, Wuethrich and Zhu 2021).
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from kernelbayes.arrays import as_doubles, like, namespace, row_blocks
from kernelbayes.embedding.decoding import Decoding
from kernelbayes.embedding.mean import LEAST_MASS
from kernelbayes.embedding.regions import interpolate, ordered
from kernelbayes.plot.posteriors import plot_levels
from kernelbayes.points import share, shares, take, vectors
from kernelbayes.rules.conditional import Conditional
from kernelbayes.rules.scales import clearly_less
from kernelbayes.types import Array, Bools, Floats, Ints

# Levels whose quantiles are compared: the ends of a 90 % interval, and every twentieth between.
COMPARED_LEVELS = np.linspace(0.05, 0.95, 19)
# Squared residuals below this share of their mean count as that much: no pair outweighs a thousand.
LEAST_SQUARE = 1e-3


@dataclass(frozen=True, eq=False)
class Calibration:
    """What left-out pairs say about quantiles; see :mod:`kernelbayes.rules.calibration`.

    ``pit`` (m, d) is F^(-i)(z_i | x_i) of each coordinate, uniform where nothing needs correcting;
    ``weights`` (m,) say how much each counts (under the prior in force) and sum to one. Where a
    belief has few points, z_i may lie beyond all of them: ``beyond`` (m, d), if it is known, says
    how far above them (or below, if negative), and intervals reach as far beyond the ends of a
    belief as they must (conformalised quantiles: Romano, Patterson and Candes 2019).

    Of rules, ``rows`` (m,) are the numbers of the pairs among all ``n``, ``squares`` (m, d) what v
    is the average of, ``residuals`` (m, d) the e_i / s_i, and ``own`` (d,) says which coordinates
    are better without them. Beliefs over another number of points are corrected by ``pit``. What
    is filled in outside the sample is not corrected: it is the belief's own or, if the embedding
    ``prior`` is given, the prior's at the belief's mean.
    """

    pit: Floats
    weights: Floats
    beyond: Floats | None = None
    rows: Ints | None = None
    squares: Floats | None = None
    residuals: Floats | None = None
    n: int | None = None  # as in files of before it was stored
    prior: Any = None
    own: Bools | None = None

    def __repr__(self) -> str:
        held = np.round(100.0 * self.weights @ (np.abs(2.0 * self.pit - 1.0) <= 0.9), 1)
        coverage = f"90 % intervals hold {', '.join(map(str, held))} % before correction"
        return f"Calibration({len(self.pit)} left-out pairs; {coverage})"

    def levels(self, q: npt.ArrayLike) -> Floats:
        """Levels (len(q), d) to ask for instead of q, one column per coordinate.

        Below 0 and above 1 they are distances beyond the ends of a belief, in units of the largest.
        """
        at = shares(q, "quantile levels")
        every = self.pit if self.beyond is None else self.pit + self.beyond / self._unit
        return np.stack([_quantiles(pit, self.weights, at) for pit in every.T], axis=1)

    @property
    def _unit(self) -> Floats:
        """Return the largest distance (d,) beyond the ends of beliefs; one where there is none."""
        far = np.abs(np.zeros_like(self.pit) if self.beyond is None else self.beyond).max(axis=0)
        return np.where(far > 0.0, far, 1.0)

    def quantile(self, mu: Decoding, q: npt.ArrayLike) -> Array:
        """Recalibrated quantiles of an embedding or batch, shaped as ``mu.quantile(q)``."""
        d, own = int(mu.vectors.shape[1]), self.pit.shape[1]
        if d != own:
            raise ValueError(
                f"this calibration was learned for {own} coordinates, the belief has {d}; "
                "calibrate the model that the belief comes from"
            )
        e, columns, unit = self._residuals(mu), [], self._unit
        asked = shares(q, "quantile levels")
        mean, s = as_doubles(mu.mean()), np.ones(d) if e is None else self._scales(mu)
        for j, at in enumerate(self.levels(q).T):
            if e is None or self._by_weights[j]:
                inside = np.clip(at, 0.0, 1.0)
                quantiles = as_doubles(mu.quantile(inside, valid="rearranged"))[..., j]
                columns.append(quantiles + (at - inside) * unit[j])
            else:
                r = _quantiles(e[:, j], self.weights, asked, one_more=True)
                columns.append(mean[..., None, j] + s[..., None, j] * r)

        def outside() -> Array:
            if self.prior is None:
                return mu.quantile(q)
            return mu.mean()[..., None, :] + (self.prior.quantile(q) - self.prior.mean())

        return _mixed(mu, np.stack(columns, axis=-1), outside)

    def interval(self, mu: Decoding, level: float = 0.9) -> Array:
        """Recalibrated equal-tailed intervals, shaped as ``mu.interval(level)``."""
        level = share(level, "level")
        ends = self.quantile(mu, [(1.0 - level) / 2.0, (1.0 + level) / 2.0])
        return namespace(ends).moveaxis(ends, -2, -1)

    def std(self, mu: Decoding) -> Array:
        """Deviations by left-out residuals, shaped as ``mu.std()``; without them its own."""
        e = self._residuals(mu)
        if e is None:
            return mu.std()
        size = np.maximum(np.abs(e).max(axis=0), np.finfo(float).tiny)  # squares fit
        found = self._scales(mu) * size * np.sqrt(self.weights @ (e / size) ** 2)
        found = np.where(self._by_weights, as_doubles(mu.std()), found)
        return _mixed(mu, found, (mu if self.prior is None else self.prior).std)

    def plot(self, ax: Any = None) -> Any:
        """Draw how often intervals hold left-out truths, before correction, against their level."""
        return plot_levels(np.abs(2.0 * self.pit - 1.0), self.weights, ax)

    @property
    def _by_weights(self) -> Bools:
        return np.zeros(self.pit.shape[1], dtype=bool) if self.own is None else self.own

    def _residuals(self, mu: Decoding) -> Floats | None:
        """Return the residuals if the belief is one over the points of the rule."""
        return self.residuals if self.n in (None, mu.weights.shape[-1]) else None

    def _scales(self, mu: Decoding) -> Floats:
        """Return s(x), shape (d,) or (m, d)."""
        assert self.squares is not None
        W = as_doubles(mu.weights)
        return _scales(np.sum(W * W, axis=-1), W[..., self.rows], self.squares)


@dataclass(frozen=True, eq=False)
class Pending:
    """A calibration that is computed when an interval is first asked for; files store it whole."""

    find: Callable[[], Calibration] = field(repr=False)

    @cached_property
    def found(self) -> Calibration:
        """The calibration itself."""
        return self.find()

    def interval(self, mu: Decoding, level: float = 0.9) -> Array:
        """Recalibrated equal-tailed intervals, shaped as ``mu.interval(level)``."""
        return self.found.interval(mu, level)

    def std(self, mu: Decoding) -> Array:
        """Deviations by left-out residuals, shaped as ``mu.std()``."""
        return self.found.std(mu)


def _mixed(mu: Decoding, found: Floats, outside: Callable[[], Array]) -> Array:
    """Return what was found, and what holds outside the sample by the share that is filled in."""
    found, share = like(found, mu.weights), getattr(mu.diagnostics, "filled", None)
    if share is None:
        return found
    return found + share[(..., *[None] * (found.ndim - share.ndim))] * (outside() - found)


def left_out(
    rule: Conditional, rows: Ints, weights: Floats, centre: Array | None, normalize: bool = False,
    prior: Any = None, held_out: Callable[[], Floats] | None = None,
) -> Calibration:  # fmt: skip
    """Calibration by left-out pairs of some rows, which count by their weights.

    ``held_out`` returns the errors (m, d) of rules that chose their kernels without these pairs.
    """
    Z = as_doubles(vectors(rule.outputs.points))
    c = np.zeros(Z.shape[1]) if centre is None else as_doubles(centre)
    places = np.argsort(np.argsort(Z, axis=0, kind="stable"), axis=0)
    blocks = []
    for block in row_blocks(len(rows), rule.n):
        some = rows[block]
        W = left_out_weights(rule, some)
        curves = list(ordered(Z, by_sum(W), "rearranged"))
        pit = [
            F[np.arange(len(some)), at] for (_, F), at in zip(curves, places[some].T, strict=True)
        ]
        by_weights = [[interpolate(z, f, COMPARED_LEVELS) for f in F] for z, F in curves]
        W = by_sum(W) if normalize else W
        moments = c + W @ (Z - c), np.sum(W * W, axis=1), W[:, rows]
        blocks.append((np.stack(pit, axis=1), np.stack(by_weights, axis=1), *moments))
    pits, owned, means, noise, among = (np.concatenate(part) for part in zip(*blocks, strict=True))
    e, same = Z[rows] - means, np.ones_like(means)
    size = np.abs(e).max(axis=0)
    relative = (e / np.where(size > 0.0, size, 1.0)) ** 2  # in these units squares fit
    squares = np.maximum(relative, LEAST_SQUARE * relative.mean(axis=0))
    losses = []
    for way in (same, squares):
        s = _scales(noise, among, way)
        r = e / np.where(s > 0.0, s, 1.0)
        Q = [_quantiles(column, weights, COMPARED_LEVELS, one_more=True) for column in r.T]
        losses.append([_pinball(r, q, s) * weights for r, q, s in zip(r.T, Q, s.T, strict=True)])
    local = np.array([clearly_less(new, old) for old, new in zip(*losses, strict=True)])
    squares = np.where(local, squares, same)
    own = np.array([
        clearly_less(_pinball(Z[rows, j], owned[:, j], same[:, j]) * weights, losses[int(way)][j])
        for j, way in enumerate(local)
    ])  # fmt: skip
    s = _scales(noise, among, squares)
    r = e / np.where(s > 0.0, s, 1.0)
    if held_out is not None:  # kernels that were chosen on these pairs flatter them
        own_size = np.maximum(np.mean(np.abs(e), axis=0), np.finfo(float).tiny)
        r *= np.maximum(1.0, np.mean(np.abs(held_out()), axis=0) / own_size)
    return Calibration(pits, weights, None, rows, squares, r, rule.n, prior, own)


def _scales(noise: Floats, among: Floats, squares: Floats) -> Floats:
    """Return s (..., d) from sums of squared weights (...) and the pairs' own weights (..., m)."""
    positive = np.maximum(among, 0.0)
    sums = positive.sum(axis=-1)[..., None]
    some = sums > LEAST_MASS
    v = np.where(some, positive @ squares / np.where(some, sums, 1.0), squares.mean(axis=0))
    return np.asarray(np.sqrt((1.0 + noise)[..., None] * v))


def _pinball(r: Floats, q: Floats, s: Floats) -> Floats:
    """Mean pinball loss (m,) of quantiles q (k,) or (m, k) of r = e / s, in units of e."""
    off = r[:, None] - q
    losses = np.maximum(COMPARED_LEVELS * off, (COMPARED_LEVELS - 1.0) * off)
    return np.asarray(s * losses.mean(axis=1))


def _quantiles(values: Floats, weights: Floats, at: Floats, one_more: bool = False) -> Floats:
    """Weighted quantiles; with ``one_more`` those that hold one more draw as often as asked."""
    values, weights = values[weights > 0.0], weights[weights > 0.0]
    order = np.argsort(values, kind="stable")
    w = weights[order]
    places = np.cumsum(w) - 0.5 * w
    if one_more:  # n equal weights: the i-th smallest is the quantile at i / (n + 1)
        own = float(w @ w)
        places = (places + 0.5 * own) / (1.0 + own)
    return np.interp(at, places, values[order])


def left_out_weights(rule: Conditional, rows: Ints) -> Floats:
    """Weights (len(rows), n) at x_i of the rule learned without pair i."""
    W = as_doubles(rule(take(rule.inputs.points, rows)).weights).copy()
    at = np.arange(len(rows)), rows
    rest = 1.0 - W[at]
    W[at] = 0.0
    return np.asarray(W / np.where(rest > LEAST_MASS, rest, 1.0)[:, None])


def by_sum(W: Floats) -> Floats:
    """Weights (m, n) divided by their sums; as they are where these vanish."""
    sums = W.sum(axis=1, keepdims=True)
    return np.asarray(W / np.where(np.abs(sums) > LEAST_MASS, sums, 1.0))
