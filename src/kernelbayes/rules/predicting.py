"""Predictions in the words of scikit-learn and skpro: intervals, quantiles, probabilities."""

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from kernelbayes.arrays import as_array, as_doubles, namespace, quiet, row_blocks, to_numpy
from kernelbayes.embedding import Batch, Embedding
from kernelbayes.embedding.export import categories, probabilities
from kernelbayes.gram.loo import loo_subset
from kernelbayes.kernels import Kernel
from kernelbayes.points import count, flag, named_row, share, shares, take
from kernelbayes.rules.calibration import Pending, left_out
from kernelbayes.rules.conditional import Conditional, warn_unsupported
from kernelbayes.rules.prior import BayesMethod
from kernelbayes.rules.scales import KernelLike
from kernelbayes.rules.variable import checked_queries
from kernelbayes.types import Array, Floats, Points, PointsLike

QUANTILES = (0.05, 0.5, 0.95)  # the ends of a 90 % interval, and the median
# Pairs left out to correct intervals: a coverage of 90 % is then known to 1.3 %.
LEFT_OUT = 500
# Pairs up to which the choice of a kernel flatters left-out residuals, and folds that show by how
# much: of ten columns 90 % intervals held 85 % at 120 pairs, and 90 % at 350.
CHOSEN_PAIRS, HELD_OUT_FOLDS = 250, 10


class Predicting:
    """Answers of a fitted rule as arrays, one row for each x; one x by name is one row."""

    rule_: Conditional
    values_: Array | None
    prior_weights_: Array
    kernel_x: KernelLike
    method: BayesMethod
    normalize: bool
    under_prior_: bool = False  # early files do not say
    _centre: Array | None
    _one_dimensional: bool
    filled: Callable[..., Any]
    _prior_on_z: Callable[[], Array]

    @property
    def _reads_rows(self) -> bool:
        """Whether a point x is a row of a table: not an index, or what else a kernel may take."""
        kernel = self.kernel_x
        return not isinstance(kernel, Kernel) or kernel.takes_rows or kernel.is_categorical

    def predict_interval(
        self, X: PointsLike, coverage: float | Sequence[float] = 0.9, calibrated: bool = True
    ) -> Array:
        """Equal-tailed intervals of z given x, as in skpro; of an angle the ends of an arc.

        Parameters
        ----------
        X : points (m, ...)
        coverage : float, or a sequence of k
        calibrated : bool
            Make the intervals of left-out residuals, so that they hold as often as ``coverage``
            says, on average over x. Up to 500 pairs are left out, in closed form, when first asked.
            Not for angles, the original rule, ``form="a"`` and fits to more pairs than are kept.

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

        def ends(by: Any, mu: Batch) -> Array:  # (m, d, k, 2); of angles they are those of arcs
            each = [by.interval(mu, level) for level in levels]
            return namespace(each[0]).stack(each, axis=2)

        found = self._asked(X, ends, corrected=calibrated)
        found = found[:, 0, ...] if self._one_dimensional else found
        return found[..., 0, :] if np.ndim(coverage) == 0 else found

    def predict_quantiles(
        self, X: PointsLike, alpha: Sequence[float] | float = QUANTILES, calibrated: bool = True
    ) -> Array:
        """Quantiles of z given x at the levels alpha, as in skpro; corrected as intervals are.

        An array (m,), or (m, d) if Z had d columns; of a sequence of levels (m, k) or (m, d, k).
        """
        levels = shares(alpha, "alpha")
        found = self._asked(X, lambda by, mu: by.quantile(mu, levels), corrected=calibrated)
        found = namespace(found).moveaxis(found, 1, 2)  # (m, d, k)
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
        """Probabilities (m, k) of the ``classes_``, those of ``posterior(X).valid()``."""
        return np.asarray(self._asked(X, lambda _, mu: probabilities(mu)[1]))

    def _most_probable(self, X: PointsLike, return_std: bool) -> Any:
        if isinstance(self.rule_.outputs.points, Mapping):
            raise TypeError("z has several parts here; use posterior(X) and decode it")
        if return_std:
            raise TypeError("names have no standard deviation; use predict_proba(X)")
        return self.classes_[np.argmax(self.predict_proba(X), axis=1)]

    def _accuracy(self, X: PointsLike, y: PointsLike, weights: Array | None) -> float:
        found = self._most_probable(X, False)
        right = np.asarray(to_numpy(as_array(y))).reshape(found.shape) == found
        return float(np.average(right.reshape(len(right), -1).all(axis=1), weights=weights))

    @cached_property
    def _calibration(self) -> Pending | None:
        """Left-out pairs of the rule in force; None where there is no closed form."""
        rule, hidden = self.rule_, self.rule_.outputs
        keep = loo_subset(rule.n, LEFT_OUT)
        counts = np.maximum(as_doubles(self.prior_weights_)[keep], 0.0)
        able = hidden.kernel.is_vector and hidden.held is None and rule.lift is None
        if not (able and self.method == "importance" and counts.sum() > 0.0):
            return None
        prior = Embedding(hidden.points, self._prior_on_z(), hidden.kernel)
        given = keep, counts / counts.sum(), self._centre, self.normalize, prior
        return Pending(partial(left_out, rule, *given, self._held_out()))

    def _held_out(self) -> Callable[[], Floats] | None:
        """Errors of held-out folds, where a kernel was chosen on so few pairs that it matters."""
        x, z = self.rule_.inputs, self.rule_.outputs
        few = 2 * HELD_OUT_FOLDS <= x.n <= CHOSEN_PAIRS and not self.under_prior_
        again = partial(_errors_of_folds, clone(self), x.points, z.points)
        return again if few and self.kernel_x is None else None

    def _table(self, X: PointsLike) -> PointsLike:
        """One observation given by name as a table of one row; anything else as it is."""
        if hasattr(X, "columns"):
            return X
        row = named_row(X, self.rule_.inputs.names)
        return X if row is None else {name: [value] for name, value in row.items()}

    def _asked(
        self, X: PointsLike, ask: Callable[..., Array], warn: bool = True, corrected: bool = False
    ) -> Array:
        """Answers (m, ...) at X in blocks that fit: ``ask(calibration or class, posteriors)``."""
        check_is_fitted(self, "rule_")
        rule, able = self.rule_, flag(corrected, "calibrated")
        by = self._calibration.found if able and self._calibration is not None else None
        points = checked_queries(self, self._table(X), rule.inputs, self._reads_rows)
        found, doubts = [], []
        for rows in row_blocks(count(points), rule.n):
            mu = self.filled(take(points, rows))
            found.append(ask(by or type(mu), mu))
            doubts.append(as_doubles(mu.diagnostics.filled))
        if warn:
            warn_unsupported(np.concatenate(doubts))
        return namespace(found[0]).concat(found, axis=0)


def _errors_of_folds(model: Any, X: Points, Z: Array) -> Floats:
    """Errors (n, d) of a model at pairs in the folds without which it was fitted."""
    n = count(X)
    fold, errors = np.random.default_rng(0).permutation(n) % HELD_OUT_FOLDS, []
    with quiet():
        for rows in (fold == k for k in range(HELD_OUT_FOLDS)):
            rest, test = np.flatnonzero(~rows), np.flatnonzero(rows)
            model.fit(take(X, rest), take(Z, rest))
            errors.append(as_doubles(model.predict(take(X, test)) - take(Z, test)))
    return np.concatenate(errors)
