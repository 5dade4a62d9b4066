"""Predictions in the words of scikit-learn and skpro: intervals, quantiles, probabilities."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from kernelbayes.arrays import as_array, as_doubles, like, namespace, row_blocks, to_numpy
from kernelbayes.embedding import Batch, Embedding
from kernelbayes.embedding.decoding import Decoding
from kernelbayes.embedding.export import categories, probabilities
from kernelbayes.embedding.mean import LEAST_MASS
from kernelbayes.embedding.regions import ordered
from kernelbayes.gram.loo import loo_subset
from kernelbayes.kernels import Kernel
from kernelbayes.plot.posteriors import plot_levels
from kernelbayes.points import count, flag, named_row, share, shares, take, vectors
from kernelbayes.rules.conditional import Conditional, warn_unsupported
from kernelbayes.rules.prior import BayesMethod
from kernelbayes.rules.scales import KernelLike
from kernelbayes.rules.variable import checked_queries
from kernelbayes.types import Array, Floats, Ints, PointsLike

QUANTILES = (0.05, 0.5, 0.95)  # the ends of a 90 % interval, and the median
SIGMA = 0.6827  # of a normal distribution, within one deviation
# Pairs that are left out to correct intervals: a coverage of 90 % is then known to 1.3 %.
LEFT_OUT = 500


@dataclass(frozen=True, eq=False)
class Calibration:
    """Left-out probability integral transforms, and the quantiles they correct.

    ``pit`` (m, d) is F^(-i)(z_i | x_i) of each coordinate, uniform where nothing needs correcting;
    ``weights`` (m,) say how much each counts (under the prior in force) and sum to one. Where a
    belief has few points, z_i may lie beyond all of them: ``beyond`` (m, d), if it is known, says
    how far above them (or below, if negative), and intervals reach as far beyond the ends of a
    belief as they must (conformalised quantiles: Romano, Patterson and Candes 2019).
    """

    pit: Floats
    weights: Floats
    beyond: Floats | None = None

    def __repr__(self) -> str:
        held = np.round(100.0 * self.weights @ (np.abs(2.0 * self.pit - 1.0) <= 0.9), 1)
        told = f"90 % intervals hold {', '.join(map(str, held))} % before correction"
        return f"Calibration({len(self.pit)} left-out pairs; {told})"

    def levels(self, q: npt.ArrayLike) -> Floats:
        """Levels (len(q), d) to ask for instead of q, one column per coordinate.

        Below 0 and above 1 they are distances beyond the ends of a belief, in units of the largest.
        """
        at, columns = shares(q, "quantile levels"), []
        every = self.pit if self.beyond is None else self.pit + self.beyond / self._unit
        for pit in every.T:
            order = np.argsort(pit, kind="stable")
            w = self.weights[order]
            columns.append(np.interp(at, np.cumsum(w) - 0.5 * w, pit[order]))
        return np.stack(columns, axis=1)

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
        columns, unit = [], self._unit
        for j, at in enumerate(self.levels(q).T):
            inside = np.clip(at, 0.0, 1.0)
            quantiles = as_doubles(mu.quantile(inside, valid="rearranged"))[..., j]
            columns.append(quantiles + (at - inside) * unit[j])
        return like(np.stack(columns, axis=-1), mu.weights)

    def interval(self, mu: Decoding, level: float = 0.9) -> Array:
        """Recalibrated equal-tailed intervals, shaped as ``mu.interval(level)``."""
        level = share(level, "level")
        ends = self.quantile(mu, [(1.0 - level) / 2.0, (1.0 + level) / 2.0])
        return namespace(ends).moveaxis(ends, -2, -1)

    def plot(self, ax: Any = None) -> Any:
        """Draw how often intervals hold left-out truths, before correction, against their level."""
        return plot_levels(np.abs(2.0 * self.pit - 1.0), self.weights, ax)


@dataclass(frozen=True, eq=False)
class Corrected:
    """Answers about posteriors by a calibration; as far as they are filled in, their own."""

    mu: Any
    calibration: Calibration

    def quantile(self, q: npt.ArrayLike) -> Array:
        """Quantiles (m, k, d)."""
        return self._mixed(self.mu.quantile(q), self.calibration.quantile(self.mu, q))

    def interval(self, level: float) -> Array:
        """Intervals (m, d, 2)."""
        return self._mixed(self.mu.interval(level), self.calibration.interval(self.mu, level))

    def std(self) -> Array:
        """Return deviations (m, d), times the factor by which intervals change."""
        ends = self.mu.interval(SIGMA), self.interval(SIGMA)
        old, new = (both[..., 1] - both[..., 0] for both in ends)
        xp = namespace(old)
        return self.mu.std() * xp.where(old > 0.0, new / xp.where(old > 0.0, old, 1.0 + old), 1.0)

    def _mixed(self, own: Array, new: Array) -> Array:
        return new + self.mu.diagnostics.filled[(..., *[None] * (new.ndim - 1))] * (own - new)


class Predicting:
    """Answers of a fitted rule as arrays, one row for each x.

    A single x given by name (a mapping, a row of a frame) is a table of one row.
    """

    rule_: Conditional
    values_: Array | None
    prior_weights_: Array
    kernel_x: KernelLike
    method: BayesMethod
    _one_dimensional: bool
    _left_out: tuple[Conditional, Calibration | None]

    @property
    def _reads_rows(self) -> bool:
        raise NotImplementedError  # the estimator knows

    def filled(self, X_new: PointsLike, kernel: Kernel | None = None) -> Batch | Embedding:
        """Posterior at X_new; of the estimator."""
        raise NotImplementedError

    def predict_interval(
        self, X: PointsLike, coverage: float | Sequence[float] = 0.9, calibrated: bool = True
    ) -> Array:
        """Equal-tailed intervals of z given x, as in skpro; of an angle the ends of an arc.

        Parameters
        ----------
        X : points (m, ...)
        coverage : float, or a sequence of k
        calibrated : bool
            Correct the intervals so that they hold the z of left-out pairs as often as ``coverage``
            says, on average over x. Up to 500 pairs are left out, in closed form, when first asked.
            Not for angles, the original rule, ``form="a"`` and fits to more pairs than are kept,
            nor as far as the answer is filled in. ``posterior(X).interval()`` is never corrected.

        Returns
        -------
        array (m, 2), or (m, d, 2) if Z had d columns
            Low and high ends; of a sequence of coverages (m, k, 2) or (m, d, k, 2).

        Examples
        --------
        >>> import numpy as np
        >>> import kernelbayes as kb
        >>> x = np.random.default_rng(0).normal(size=200)
        >>> kb.KernelBayesRule().fit(x, x).predict_interval([0.0, 1.0], coverage=0.8).shape
        (2, 2)
        """
        levels = [share(level, "coverage") for level in np.atleast_1d(coverage)]

        def ends(mu: Any) -> Array:  # (m, d, k, 2); of angles they are those of arcs
            each = [mu.interval(level) for level in levels]
            return namespace(each[0]).stack(each, axis=2)

        found = self._asked(X, ends, corrected=calibrated)
        found = found[:, 0, ...] if self._one_dimensional else found
        return found[..., 0, :] if np.ndim(coverage) == 0 else found

    def predict_quantiles(
        self, X: PointsLike, alpha: Sequence[float] | float = QUANTILES, calibrated: bool = True
    ) -> Array:
        """Quantiles of z given x at the levels alpha, as in skpro; corrected as intervals are.

        Returns
        -------
        array (m,), or (m, d) if Z had d columns
            Of a sequence of levels (m, k) or (m, d, k), in their order.
        """
        levels = shares(alpha, "alpha")
        found = self._asked(X, lambda mu: mu.quantile(levels), corrected=calibrated)  # (m, k, d)
        found = namespace(found).moveaxis(found, 1, 2)
        found = found[:, 0, :] if self._one_dimensional else found
        return found[..., 0] if np.ndim(alpha) == 0 else found

    @property
    def classes_(self) -> Floats:
        """Categories of z in the order of :meth:`predict_proba`; only if z is a category."""
        hidden = self.rule_.outputs
        if self.values_ is not None and not hidden.kernel.is_categorical:
            raise AttributeError("z is a number here, not a category; use predict_quantiles(X)")
        if isinstance(hidden.points, Mapping):
            raise AttributeError("z has several parts here; use posterior(X) and decode it")
        return np.asarray(categories(hidden.points)[0])

    @available_if(lambda self: self.classes_ is not None)  # type: ignore[untyped-decorator]
    def predict_proba(self, X: PointsLike) -> Floats:
        """Probabilities (m, number of categories) of a hidden category, in order of ``classes_``.

        Not negative, each row sums to one: those of ``posterior(X).valid()``.
        """
        return np.asarray(self._asked(X, lambda mu: probabilities(mu)[1]))

    def _most_probable(self, X: PointsLike, return_std: bool) -> Any:
        if isinstance(self.rule_.outputs.points, Mapping):
            raise TypeError("z has several parts here; use posterior(X) and decode it")
        if return_std:
            raise TypeError("names have no standard deviation; use predict_proba(X)")
        return self.classes_[np.argmax(self.predict_proba(X), axis=1)]

    def _accuracy(self, X: PointsLike, y: PointsLike, weights: Array | None) -> float:
        right = np.asarray(to_numpy(as_array(y))).ravel() == self._most_probable(X, False)
        return float(np.average(right, weights=weights))

    def _deviations(self, X: PointsLike) -> Array:
        found = self._asked(X, lambda mu: mu.std(), warn=False, corrected=True)
        return found[:, 0] if self._one_dimensional else found

    def _calibration(self) -> Calibration | None:
        """Left-out pairs of the rule in force; None where there is no closed form."""
        rule, kept = self.rule_, getattr(self, "_left_out", (None, None))
        if kept[0] is not rule:
            keep, hidden = loo_subset(rule.n, LEFT_OUT), rule.outputs
            counts = np.maximum(as_doubles(self.prior_weights_)[keep], 0.0)
            able = hidden.kernel.is_vector and hidden.held is None and rule.lift is None
            able = able and self.method == "importance" and counts.sum() > 0.0
            found = left_out(rule, keep, counts / counts.sum()) if able else None
            self._left_out = kept = rule, found
        return kept[1]

    def _table(self, X: PointsLike) -> PointsLike:
        """One observation given by name as a table of one row; anything else as it is."""
        if hasattr(X, "columns"):
            return X
        row = named_row(X, self.rule_.inputs.names)
        return X if row is None else {name: [value] for name, value in row.items()}

    def _asked(
        self, X: PointsLike, ask: Callable[[Any], Array], warn: bool = True, corrected: bool = False
    ) -> Array:
        """Answers (m, ...) of the posteriors at X, in blocks that fit into memory."""
        check_is_fitted(self, "rule_")
        rule, able = self.rule_, flag(corrected, "calibrated")
        calibration = self._calibration() if able else None
        points = checked_queries(self, self._table(X), rule.inputs, self._reads_rows)
        found, doubts = [], []
        for rows in row_blocks(count(points), rule.n):
            mu = self.filled(take(points, rows))
            found.append(ask(mu if calibration is None else Corrected(mu, calibration)))
            doubts.append(as_doubles(mu.diagnostics.filled))
        if warn:
            warn_unsupported(np.concatenate(doubts))
        return namespace(found[0]).concat(found, axis=0)


def left_out(rule: Conditional, rows: Ints, weights: Floats) -> Calibration:
    """Calibration by the pairs in some rows, each left out, which count by their weights."""
    Z, found = as_doubles(vectors(rule.outputs.points)), []
    places = np.argsort(np.argsort(Z, axis=0, kind="stable"), axis=0)
    for block in row_blocks(len(rows), rule.n):
        some = rows[block]
        each = ordered(Z, left_out_weights(rule, some), "rearranged")
        columns = [F[np.arange(len(some)), places[some, j]] for j, (_, F) in enumerate(each)]
        found.append(np.stack(columns, axis=1))
    return Calibration(np.concatenate(found), weights)


def left_out_weights(rule: Conditional, rows: Ints) -> Floats:
    """Weights (len(rows), n) at x_i of the rule learned without pair i, divided by their sum."""
    W = as_doubles(rule(take(rule.inputs.points, rows)).weights).copy()
    # The full rule's weights without the pair's own, up to a factor 1 / (1 - w_i(x_i)).
    W[np.arange(len(rows)), rows] = 0.0
    sums = W.sum(axis=1, keepdims=True)
    return np.asarray(W / np.where(np.abs(sums) > LEAST_MASS, sums, 1.0))
