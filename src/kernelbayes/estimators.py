r"""The scikit-learn face of Bayes' rule: :class:`KernelBayesRule`.

>>> import numpy as np
>>> from kernelbayes import KernelBayesRule
>>> rng = np.random.default_rng(0)
>>> z = rng.normal(size=500)                      # hidden, N(0, 1) in the training sample
>>> x = z + 0.5 * rng.normal(size=500)            # observed
>>> prior = rng.normal(1.0, 0.5, size=500)        # but today z is N(1, 1/4)
>>> rule = KernelBayesRule().fit(x, z, prior=prior)
>>> abs(float(rule.predict([2.0])[0]) - 1.5) < 0.1  # the closed form says 1.5
True
"""

from __future__ import annotations

import warnings
from copy import copy
from dataclasses import replace
from typing import Any, Self

import numpy as np
import scipy.sparse
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils.validation import check_array, check_is_fitted, validate_data

from kernelbayes.arrays import Array, NumericalWarning, Rng, as_generator, namespace
from kernelbayes.embedding import Batch, Embedding, MeanElement
from kernelbayes.embedding.simplex import LEAST_MASS
from kernelbayes.gram import Factored, check_ridge
from kernelbayes.gram.features import nystrom
from kernelbayes.kernels import Kernel
from kernelbayes.kernels.default import default_kernel
from kernelbayes.points import Points, PointsLike, as_array, as_floats, column_names, is_frame
from kernelbayes.rules import (
    BayesMethod,
    Conditional,
    DensityRatio,
    Form,
    PriorLike,
    Ridge,
    Variable,
    bayes_rule,
    choose_ridge,
    density_ratio,
    prior_under,
    prior_weights,
    turn,
    usable_weights,
)
from kernelbayes.rules.kulsif import kulsif_ridge
from kernelbayes.rules.ratio import Method

OPTIONS = {
    "method": ("importance", "original"),
    "form": ("a", "b"),
    "ratio": ("kulsif", "rulsif", "ulsif", "kmm"),
}


class KernelBayesRule(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """Posterior of a hidden z given an observed x, from pairs (x, z) and a prior on z.

    Parameters
    ----------
    kernel_x, kernel_z : Kernel, optional
        None means the median heuristic.
    method : {"importance", "original"}
        IW22 Alg. 1 or KBR13 eq. 13.
    prior_ridge : float or "loo"
        eta, the ridge of the prior's weights; "loo" minimises KuLSIF's leave-one-out score.
    ridge : float or "loo"
        lambda (importance) or delta (original); "loo" minimises the importance-weighted
        leave-one-out error of mean and mass (for vectors; in the RKHS of z otherwise).
    form : {"a", "b"}
        Posterior on the prior's own points, or on the training points.
    ratio : {"kulsif", "rulsif", "ulsif", "kmm"}
        Density ratio of the importance rule.
    normalize : bool
        Divide posterior weights by their sum. Off by default, as in the papers: weights that sum
        to less than one far from the sample say that little is known there. Where they sum to
        nothing, the posterior is the prior, and a ``NumericalWarning`` says so.
    rank : int, optional
        Nystrom features of this rank for both kernels: cost linear in n.
    rng : int, Generator or None
        For the landmarks.

    Attributes
    ----------
    kernel_x_, kernel_z_ : Kernel
    prior_ridge_, ridge_ : float
        The ridges in use (``prior_ridge_`` is None until a prior is given).
    likelihood_, rule_ : Conditional
        Of x given z, and of z given x under the prior.

    Notes
    -----
    Tuning: ``tune(KernelBayesRule(), X, Z, prior=..., criterion=...)`` chooses both bandwidths and
    both ridges for the prior in force. ``criterion`` is "combined" (the default for numbers: the
    squared error of posterior means and mass under the prior, estimated half by left-out pairs
    re-weighted by the density ratio and half by outcome regression), "predictive" (the squared
    error of E[z | x] on left-out pairs re-weighted by the density ratio, which itself is chosen
    first, by KuLSIF's score), "rkhs" (the same in the RKHS of z) or "marginal" (KBR13 section 4.2:
    the posterior averaged over left-out x against the marginal of left-out z). See
    :mod:`kernelbayes.select.rule`.
    """

    def __init__(
        self,
        kernel_x: Kernel | None = None,
        kernel_z: Kernel | None = None,
        method: BayesMethod = "importance",
        prior_ridge: Ridge = "loo",
        ridge: Ridge = "loo",
        form: Form = "b",
        ratio: Method = "kulsif",
        normalize: bool = False,
        rank: int | None = None,
        rng: Rng = None,
    ) -> None:
        self.kernel_x = kernel_x
        self.kernel_z = kernel_z
        self.method = method
        self.prior_ridge = prior_ridge
        self.ridge = ridge
        self.form = form
        self.ratio = ratio
        self.normalize = normalize
        self.rank = rank
        self.rng = rng

    def __sklearn_tags__(self) -> Any:
        """Tags: several outputs; 1-d X is n scalar points, which scikit-learn would refuse."""
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        tags.no_validation = True
        return tags

    def fit(
        self,
        X: PointsLike,
        y: PointsLike = None,
        prior: PriorLike = None,
        *,
        Z: PointsLike = None,
    ) -> Self:
        """Learn from pairs of points X (n, ...) and Z (n, ...), under a prior on z.

        ``fit(X, Z, prior)``; the second argument is called y because scikit-learn insists.

        Parameters
        ----------
        X : points (n, ...)
            Observed.
        y : points (n, ...)
            Hidden.
        prior : points (m, ...), embedding or None
            None is the training marginal. An embedding of another kernel is embedded again.
        """
        self._check_options()
        X, Z = self._check_pairs(X, y if Z is None else Z)
        generator = as_generator(self.rng)
        kernel_x = default_kernel(X) if self.kernel_x is None else self.kernel_x
        kernel_z = default_kernel(Z) if self.kernel_z is None else self.kernel_z
        if self.rank is not None:
            kernel_x, kernel_z = (
                k if k.finite else nystrom(k, points, self.rank, rng=generator)
                for k, points in ((kernel_x, X), (kernel_z, Z))
            )
        self.kernel_x_, self.kernel_z_ = kernel_x, kernel_z
        observed = Variable(kernel_x.points(X, "X"), kernel_x, column_names(X))
        hidden = Variable(kernel_z.points(Z, "Z"), kernel_z, column_names(Z))
        if observed.n != hidden.n:
            raise ValueError("X and Z must be pairs, but their numbers of points are inconsistent")
        # An automatic ridge is set when a prior first needs it.
        eta = 1.0 if self.prior_ridge == "loo" else check_ridge(self.prior_ridge)
        self.likelihood_ = Conditional(hidden, observed, eta)
        self.values_ = numeric_values(Z)
        self._one_dimensional = getattr(as_array(Z), "ndim", 2) == 1
        self.prior_ridge_: float | None = None
        self.ridge_: float | None = None
        return self._set_prior(prior)

    def with_prior(self, prior: PriorLike) -> Self:
        """Return the fitted model under another prior on z.

        Kernels, ridges, Gram matrices and the factorisation for the prior's weights are shared;
        only what depends on the prior is computed again.
        """
        check_is_fitted(self, "rule_")
        return copy(self)._set_prior(prior)

    def posterior(
        self, X_new: PointsLike, prior: PriorLike = None, kernel: Kernel | None = None
    ) -> Batch | Embedding:
        """Embedding(s) over Z of the posterior given x.

        Parameters
        ----------
        X_new : points (m, ...) or a single point
        prior : points or embedding, optional
            Another prior for this call.
        kernel : Kernel, optional
            Another kernel on Z for the result.

        Returns
        -------
        Batch, or Embedding for a single point
            With ``.diagnostics``.
        """
        check_is_fitted(self, "rule_")
        model = self if prior is None else self.with_prior(prior)
        result = model.rule_(X_new, kernel)
        if not self.normalize:
            return result
        xp = namespace(result.weights)
        rows = xp.reshape(result.weights, (-1, result.weights.shape[-1]))
        weights = model._divide(rows, xp.sum(rows, axis=1), model._prior_on_z())
        return replace(result, weights=xp.reshape(weights, result.weights.shape))

    def predict(self, X: PointsLike) -> Array:
        """Posterior means, (m, d), or (m,) if Z was 1-d.

        Costs O(n) per point, O(r) with finite features: one matrix product for any number.
        """
        check_is_fitted(self, "rule_")
        if self.values_ is None:
            raise TypeError("posterior means need numeric Z; use posterior(X) and decode it")
        points = self._check_queries(X)
        means = self.rule_.expect(self._coefficients, points)
        if self.normalize:
            prior = self._prior_on_z() @ numeric_values(self.rule_.outputs.points)
            means = self._divide(means[:, :-1], means[:, -1], prior)
        return means[:, 0] if self._one_dimensional else means

    def _prior_on_z(self) -> Array:
        """Prior weights on the points of the posterior, summing to one."""
        lift = self.rule_.lift
        weights = self.prior_weights_ if lift is None else namespace(lift).sum(lift, axis=1)
        return weights / namespace(weights).sum(weights)

    def _divide(self, rows: Array, mass: Array, prior: Array) -> Array:
        """Rows (m, k) over their mass (m,); the prior (k,) where there is none."""
        xp = namespace(rows)
        lost = xp.abs(mass) < LEAST_MASS
        if bool(xp.any(lost)):
            warnings.warn(
                f"{int(xp.sum(xp.astype(lost, xp.int64)))} of {lost.shape[0]} observations are "
                "unlike anything in the training sample; their posterior is the prior",
                NumericalWarning,
                stacklevel=3,
            )
        divided = rows / xp.where(lost, xp.ones_like(mass), mass)[:, None]
        return xp.where(lost[:, None], prior[None, :], divided)

    def _set_prior(self, prior: PriorLike) -> Self:
        """Choose what is still open, and turn the likelihood round under the prior."""
        hidden, observed = self.likelihood_.inputs, self.likelihood_.outputs
        element, ratio = prior_under(prior, self.kernel_z_, hidden.points), None
        if element is not None:
            if self.method == "importance" and self.ratio != "kulsif":
                ratio = density_ratio(element, hidden.points, self.kernel_z_, self.ratio,
                                      self.prior_ridge, rng=self.rng)  # fmt: skip
                self.prior_ridge_ = ratio.ridge
            elif self.prior_ridge_ is None:
                eta = self.prior_ridge
                self.prior_ridge_ = kulsif_ridge(element, hidden.points) if eta == "loo" else eta
            if self.likelihood_.operator != self.prior_ridge_:
                self.likelihood_ = replace(self.likelihood_, operator=self.prior_ridge_)
        weights = usable_weights(prior_weights(self.likelihood_, element, ratio), self.method)
        ridge = self.ridge if self.ridge_ is None else self.ridge_
        if ridge == "loo":
            ridge = choose_ridge(observed, hidden, weights, self.method)
        self.ridge_, self.prior_weights_ = check_ridge(ridge), weights
        self._turn(element, ratio, self.ridge_)
        return self

    def _turn(self, element: MeanElement | None, ratio: DensityRatio | None, ridge: float) -> None:
        likelihood, weights = self.likelihood_, self.prior_weights_
        hidden, observed = likelihood.inputs, likelihood.outputs
        values, cross = self._targets(self.values_), None
        if self.form == "a" and element is not None:
            known = None if ratio is None else weights * likelihood.n
            self.rule_ = bayes_rule(likelihood, element, self.method, "a", ridge, known)
            if values is not None:
                values = self._targets(numeric_values(self.rule_.outputs.points))
        else:
            moment = None
            if isinstance(observed.gram, Factored) and values is not None:
                # One pass over the features gives the operator and the means.
                moment, cross = observed.gram.moments(weights, values)
            solver = turn(observed.gram, weights, self.method, ridge, moment)
            self.rule_ = Conditional(observed, hidden, solver)
        if values is not None:
            self._coefficients = self.rule_.regression(values, cross)

    def _targets(self, values: Array | None) -> Array | None:
        """Values whose posterior expectations are wanted; with normalisation also 1, the mass."""
        if values is None or not self.normalize:
            return values
        ones = namespace(values).ones_like(values[:, :1])
        return namespace(ones).concat([values, ones], axis=1)

    def _check_options(self) -> None:
        for name in ("prior_ridge", "ridge"):
            if getattr(self, name) != "loo":
                check_ridge(getattr(self, name))
        for name, allowed in OPTIONS.items():
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name} must be one of {allowed}, got {getattr(self, name)!r}")
        for kernel in (self.kernel_x, self.kernel_z):
            if not isinstance(kernel, Kernel | None):
                raise TypeError(f"a kernel must be a Kernel, e.g. Gaussian(1.0), got {kernel!r}")

    def _check_pairs(self, X: PointsLike, Z: PointsLike) -> tuple[PointsLike, PointsLike]:
        """Check tables of numbers as scikit-learn does; kernels check everything else."""
        if Z is None:
            raise ValueError("requires y to be passed, but the target y is None")
        if not _is_table(X):
            return X, Z
        if not is_frame(X):
            X = np.asarray(X) if not scipy.sparse.issparse(X) else X
            X = X[:, None] if X.ndim == 1 else X
        X = validate_data(self, X, dtype=[np.float64, np.float32])
        if _is_table(Z) and not isinstance(Z, dict | list) and as_array(Z).ndim <= 2:
            names = Z
            Z = check_array(Z, dtype=None, ensure_2d=False, input_name="y")
            Z = names if is_frame(names) and Z.ndim == 2 else Z
        return X, Z

    def _check_queries(self, X: PointsLike) -> Points:
        if _is_table(X) and not scipy.sparse.issparse(X):
            shape = as_array(X).shape
            if len(shape) == 1 and getattr(self, "n_features_in_", 1) > 1:
                raise ValueError(
                    f"expected points of {self.n_features_in_} numbers, got a 1-d array. Reshape "
                    "your data with X.reshape(1, -1) if it is a single point"
                )
            X = as_array(X)[:, None] if len(shape) == 1 else X
        if _is_table(X) and hasattr(self, "n_features_in_"):
            X = validate_data(self, X, reset=False, dtype=[np.float64, np.float32])
        points = self.kernel_x_.points(X, "X")
        self.kernel_x_.check_pair(points, self.rule_.inputs.points)
        return points


def numeric_values(Z: PointsLike) -> Array | None:
    """Values (n, d) of numeric points; None for any other points."""
    if isinstance(Z, dict):
        return None
    array = as_array(Z)
    if isinstance(array, np.ndarray) and array.dtype.kind not in "fiub":
        return None
    values = as_floats(array, "Z")
    return namespace(values).reshape(values, (values.shape[0], -1))


def _is_table(X: PointsLike) -> bool:
    """Whether X is a table of numbers that scikit-learn's checks understand."""
    if scipy.sparse.issparse(X):
        return True
    if isinstance(X, dict | str) or X is None:
        return False
    array = X.to_numpy() if is_frame(X) else X
    if isinstance(array, list | tuple):
        array = np.asarray(array) if not array or not isinstance(array[0], str) else None
    if not isinstance(array, np.ndarray) or array.ndim > 2:
        return False
    return array.dtype.kind in "fiubc" or (array.dtype.kind == "O" and not is_frame(X))
