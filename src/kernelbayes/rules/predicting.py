"""Predictions in the words of scikit-learn and skpro: intervals, quantiles, probabilities."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from kernelbayes.arrays import as_array, as_doubles, namespace, row_blocks, to_numpy
from kernelbayes.embedding import Batch, Embedding
from kernelbayes.embedding.export import categories, probabilities
from kernelbayes.kernels import Kernel
from kernelbayes.points import count, named_row, share, shares, take
from kernelbayes.rules.conditional import Conditional, warn_unsupported
from kernelbayes.rules.scales import KernelLike
from kernelbayes.rules.variable import checked_queries
from kernelbayes.types import Array, Floats, PointsLike

QUANTILES = (0.05, 0.5, 0.95)  # the ends of a 90 % interval, and the median


class Predicting:
    """Answers of a fitted rule as arrays, one row for each x.

    A single x given by name (a mapping, a row of a frame) is a table of one row.
    """

    rule_: Conditional
    values_: Array | None
    kernel_x: KernelLike
    _one_dimensional: bool

    @property
    def _reads_rows(self) -> bool:
        raise NotImplementedError  # the estimator knows

    def filled(self, X_new: PointsLike, kernel: Kernel | None = None) -> Batch | Embedding:
        """Posterior at X_new; of the estimator."""
        raise NotImplementedError

    def predict_interval(self, X: PointsLike, coverage: float | Sequence[float] = 0.9) -> Array:
        """Equal-tailed intervals of z given x, as in skpro; of an angle the ends of an arc.

        Parameters
        ----------
        X : points (m, ...)
        coverage : float, or a sequence of k
            Nominal coverage; ``kb.calibrate(model)`` says what it is on left-out pairs.

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

        found = self._asked(X, ends)
        found = found[:, 0, ...] if self._one_dimensional else found
        return found[..., 0, :] if np.ndim(coverage) == 0 else found

    def predict_quantiles(
        self, X: PointsLike, alpha: float | Sequence[float] | Floats = QUANTILES
    ) -> Array:
        """Quantiles of z given x at the levels alpha, as in skpro.

        Returns
        -------
        array (m,), or (m, d) if Z had d columns
            Of a sequence of levels (m, k) or (m, d, k), in their order.
        """
        levels = shares(alpha, "alpha")
        found = self._asked(X, lambda mu: mu.quantile(levels))  # (m, k, d)
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
        found = self._asked(X, lambda mu: mu.std(), warn=False)
        return found[:, 0] if self._one_dimensional else found

    def _table(self, X: PointsLike) -> PointsLike:
        """One observation given by name as a table of one row; anything else as it is."""
        if hasattr(X, "columns"):
            return X
        row = named_row(X, self.rule_.inputs.names)
        return X if row is None else {name: [value] for name, value in row.items()}

    def _asked(self, X: PointsLike, ask: Callable[[Any], Array], warn: bool = True) -> Array:
        """Answers (m, ...) of the posteriors at X, in blocks that fit into memory."""
        check_is_fitted(self, "rule_")
        rule = self.rule_
        points = checked_queries(self, self._table(X), rule.inputs, self._reads_rows)
        found, shares_of_prior = [], []
        for rows in row_blocks(count(points), rule.n):
            mu = self.filled(take(points, rows))
            found.append(ask(mu))
            shares_of_prior.append(as_doubles(mu.diagnostics.prior_share))
        if warn:
            warn_unsupported(np.concatenate(shares_of_prior))
        return namespace(found[0]).concat(found, axis=0)
