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

from copy import copy
from dataclasses import dataclass, replace
from typing import Any, Self, get_args

from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils.validation import check_is_fitted

from kernelbayes.arrays import as_array, as_floats, as_generator, namespace
from kernelbayes.embedding import Batch, Embedding
from kernelbayes.gram import check_ridge
from kernelbayes.gram.solvers import ridge_or_loo
from kernelbayes.kernels import Kernel
from kernelbayes.kernels.settings import KernelSettings
from kernelbayes.points import column_names, count, flag, in_order, integer, numeric_values, option
from kernelbayes.rules.bayes import Form, bayes_rule, choose_ridge, turned
from kernelbayes.rules.conditional import (
    Conditional,
    Ridge,
    filled,
    filled_values,
    warn_unsupported,
)
from kernelbayes.rules.kulsif import kulsif_ridge
from kernelbayes.rules.merging import Again, Merging, tilted
from kernelbayes.rules.predicting import Predicting
from kernelbayes.rules.prior import (
    BayesMethod,
    PriorLike,
    drawn,
    prior_under,
    prior_weights,
    usable_weights,
)
from kernelbayes.rules.ratio import Method, density_ratio
from kernelbayes.rules.scales import KernelLike, pair_kernels
from kernelbayes.rules.support import centre_of
from kernelbayes.rules.variable import (
    Variable,
    checked_pairs,
    checked_queries,
    default_rank,
    variable,
)
from kernelbayes.scale.sources import Columns, as_source
from kernelbayes.scale.statistics import Summed
from kernelbayes.types import Array, PointsLike, Rng

OPTIONS = {"method": get_args(BayesMethod), "form": get_args(Form), "ratio": get_args(Method)}


@dataclass(eq=False, repr=False)
class KernelBayesRule(KernelSettings, Predicting, RegressorMixin, Merging, BaseEstimator):  # type: ignore[misc]
    """Posterior of a hidden z given an observed x, from pairs (x, z) and a prior on z.

    Parameters
    ----------
    kernel_x, kernel_z : Kernel, optional
        None means default kernels, with a scale for each column; that of x is chosen by how well
        it predicts z (:mod:`kernelbayes.rules.scales`). "precomputed": points are rows of kernel
        values at the training points (:class:`~kernelbayes.Precomputed`). A function k(X, Y) is
        taken as ``Custom(k)``.
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
        Divide posterior weights by their sum. Off by default, as in the papers.
    rank : int, optional
        Nystrom features of this rank for both kernels: cost linear in n. None means an exact fit
        up to 5000 pairs, and 1000 landmarks for default kernels on more than that
        (``kernel_x_`` says so). ``rank=len(X)`` is always exact.
    rng : int, Generator or None
        For the landmarks, and for draws from a prior that is a distribution.
    literal : bool
        Answer with the weights of the papers wherever x is. By default what the training sample
        does not say about x is the prior's: weights that sum to less than is usual in the sample
        are filled up with the prior's, and a ``NumericalWarning`` names the points
        (:mod:`kernelbayes.rules.support`).

    Attributes
    ----------
    kernel_x_ : Kernel
        Of what is observed.
    kernel_z_ : Kernel
        Of what is hidden.
    prior_ridge_ : float or None
        Ridge of the prior's weights; None until a prior is given.
    ridge_ : float
        Ridge of Bayes' rule.
    likelihood_ : Conditional
        Of x given z.
    rule_ : Conditional
        Of z given x under the prior.
    """

    kernel_x: KernelLike = None
    kernel_z: KernelLike = None
    method: BayesMethod = "importance"
    prior_ridge: Ridge = "loo"
    ridge: Ridge = "loo"
    form: Form = "b"
    ratio: Method = "kulsif"
    normalize: bool = False
    rank: int | None = None
    rng: Rng = None
    literal: bool = False

    def __sklearn_tags__(self) -> Any:
        """Tags: several outputs; 1-d X is n scalar points, which scikit-learn would refuse."""
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        tags.no_validation = True
        tags.input_tags.pairwise = isinstance(self.kernel_x, str)  # folds take columns as well
        return tags

    def fit(
        self, X: PointsLike, y: PointsLike = None, prior: PriorLike = None, *,
        Z: PointsLike = None, copy: bool = True, columns: Columns | None = None,
        client: object = None,
    ) -> Self:  # fmt: skip
        """Learn from pairs of points X (n, ...) and Z (n, ...), under a prior on z.

        ``fit(X, Z, prior)``; the second argument is called y because scikit-learn insists. The
        prior is points (m, ...), an embedding, which is embedded again if its kernel is another, a
        scipy.stats distribution or a list of them, one per column of Z (1000 draws from it, by
        ``rng``), or None for the training marginal. Without a ``copy``, who changes the arrays
        later changes what was learned.

        ``fit(source, prior=prior)`` learns from more pairs than memory holds: batches (X, Z), a
        Parquet or CSV file or folder, an Arrow stream, each with ``columns=(names of X, names of
        Z)``, or Dask collections X and Z, on the current client unless another is given
        (:mod:`kernelbayes.scale.sources`).
        """
        Z = y if Z is None else Z
        if Z is None or columns is not None or hasattr(X, "to_delayed"):
            source = as_source(X, Z, columns, client)
            if source is not None:
                return self._fit_source(source, prior)
        x, z = self._variables(X, Z, copy)
        self._one_dimensional = getattr(as_array(Z), "ndim", 2) == 1
        return self._learn(x, z, prior)

    def _variables(
        self, X: PointsLike, Z: PointsLike, copy: bool = True
    ) -> tuple[Variable, Variable]:
        self._check_options()
        names, called = column_names(X), column_names(Z)
        X, Z = checked_pairs(self, X, Z, self._reads_rows)
        kernel_x, kernel_z = pair_kernels(X, Z, self.kernel_x, self.kernel_z, means=True)
        rank_x = rank_z = self.rank
        generator = as_generator(0 if self.rng is self.rank is None else self.rng)
        if self.rank is None:
            n = count(kernel_x.points(X))
            rank_x = default_rank(kernel_x, self.kernel_x, n)
            rank_z = rank_x and default_rank(kernel_z, self.kernel_z, n)
        observed = variable(X, kernel_x, "X", rank_x, generator, copy)
        observed = replace(observed, names=names)
        hidden = variable(Z, kernel_z, "Z", rank_z, generator, copy)
        hidden = replace(hidden, names=hidden.names or called)
        if observed.n != hidden.n:
            raise ValueError("X and Z must be pairs, but their numbers of points are inconsistent")
        observed.warn_of_copies(hidden)
        return observed, hidden

    def _learn(
        self, x: Variable, z: Variable, prior: PriorLike = None, again: Again | None = None
    ) -> Self:
        self.kernel_x_, self.kernel_z_ = x.kernel, z.kernel
        self.statistics_ = None
        # An automatic ridge is set when a prior first needs it.
        eta = 1.0 if self.prior_ridge == "loo" else check_ridge(self.prior_ridge)
        self.likelihood_ = Conditional(z, x, eta)
        self.values_ = numeric_values(z.points)
        self.prior_ridge_: float | None = None
        self.ridge_: float | None = None
        return self._set_prior(prior, again)

    def _learned(self) -> tuple[Variable, Variable] | None:
        fitted = getattr(self, "likelihood_", None)
        return None if fitted is None else (fitted.outputs, fitted.inputs)

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
        """Posterior over Z given x, with ``.diagnostics``: a Batch, or an Embedding for one point.

        ``prior`` is another prior for this call, ``kernel`` another kernel on Z for the result.
        Equal-tailed intervals are corrected as those of :meth:`predict_interval`, unless
        ``literal=True``; probabilities, quantiles and densities are those of the weights.
        """
        check_is_fitted(self, "rule_")
        model = self if prior is None else self.with_prior(prior)
        answer = model.filled(X_new, kernel)
        warn_unsupported(answer.diagnostics.filled)
        return answer if self.literal else replace(answer, calibration=model._calibration)

    def filled(self, X_new: PointsLike, kernel: Kernel | None = None) -> Batch | Embedding:
        """Posterior as :meth:`posterior` gives it, without a warning."""
        found = replace(self.rule_(X_new, kernel), centre=self._centre)
        return filled(self.rule_, found, self._prior_on_z(), self.normalize, self.literal)

    def predict(self, X: PointsLike, return_std: bool = False) -> Any:
        """Posterior means, (m, d), or (m,) if Z was 1-d; of names the most probable, (m,).

        With ``return_std`` also deviations, corrected as those of :meth:`predict_interval`.

        Around the prior's mean c, as ``posterior(X).mean()``: c + sum_i w_i (z_i - c), so that an
        offset of Z is added to the means and to nothing else. With ``literal=True`` c is 0.
        Costs O(n) per point, O(r) with finite features: one matrix product for any number.
        """
        check_is_fitted(self, "rule_")
        if self.values_ is None:
            return self._most_probable(X, return_std)
        points = checked_queries(self, self._table(X), self.rule_.inputs, self._reads_rows)
        means, doubt = filled_values(
            self.rule_, points, self._coefficients, self._given, self.normalize, self.literal
        )
        warn_unsupported(doubt)
        means = means if self._centre is None else means + self._centre
        std = self._asked(X, lambda by, mu: by.std(mu), False, True) if return_std else means
        found = (means[:, 0], std[:, 0]) if self._one_dimensional else (means, std)
        return found if return_std else found[0]

    def _given(self) -> tuple[Array, Array]:
        """Values (n, d) at the points of the posterior, less the centre, and prior weights (n,)."""
        return self._centred(numeric_values(self.rule_.outputs.points)), self._prior_on_z()

    def _centred(self, values: Array) -> Array:
        """Values (n, d) less the centre of means."""
        return values if self._centre is None else values - self._centre

    def _prior_on_z(self) -> Array:
        """Prior weights on the points of the posterior, summing to one."""
        lift = self.rule_.lift
        weights = self.prior_weights_ if lift is None else namespace(lift).sum(lift, axis=1)
        return weights / namespace(weights).sum(weights)

    def _set_prior(self, prior: PriorLike, again: Again | None = None) -> Self:
        """Choose what is still open, and turn the likelihood round under the prior."""
        hidden, observed = self.likelihood_.inputs, self.likelihood_.outputs
        self.__dict__.pop("_calibration", None)  # of the prior before
        prior = drawn(prior, self.rng)
        element, ratio = prior_under(prior, hidden), None
        self.under_prior_ = element is not None
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
        if element is not None and isinstance(hidden.gram, Summed):
            given = None if ratio is not None else again
            weights, self.likelihood_ = tilted(
                weights, self.likelihood_, element, self.method, given
            )
            hidden, observed = self.likelihood_.inputs, self.likelihood_.outputs
        ridge = self.ridge if self.ridge_ is None else self.ridge_
        if ridge == "loo":
            ridge = choose_ridge(observed, hidden, weights, self.method)
        self.ridge_, self.prior_weights_ = check_ridge(ridge), weights
        self._centre = None if self.literal else centre_of(observed, hidden, weights)
        values = self._targets(self.values_)
        if self.form == "b" or element is None:
            found = turned(self.likelihood_, weights, self.method, self.ridge_, values)
            self.rule_, self._coefficients = found
            return self
        known = None if ratio is None else weights * self.likelihood_.n
        self.rule_ = bayes_rule(self.likelihood_, element, self.method, "a", self.ridge_, known)
        if not self.literal:
            self._centre = centre_of(observed, self.rule_.outputs, self._prior_on_z())
        if values is not None:
            values = self._targets(numeric_values(self.rule_.outputs.points))
            self._coefficients = self.rule_.regression(values)
        return self

    def _targets(self, values: Array | None) -> Array | None:
        """Values whose posterior expectations are wanted, and 1, the mass."""
        if values is None:
            return None
        ones = namespace(values).ones_like(values[:, :1])
        return namespace(ones).concat([self._centred(values), ones], axis=1)

    def _check_options(self) -> None:
        for name in ("prior_ridge", "ridge"):
            ridge_or_loo(getattr(self, name), name)
        flag(self.normalize, "normalize")
        if self.rank is not None:
            integer(self.rank, "rank")
        for name, allowed in OPTIONS.items():
            option(getattr(self, name), name, allowed)

    def score(self, X: PointsLike, y: PointsLike, sample_weight: Array | None = None) -> float:
        """R^2 of :meth:`predict`, the columns of y in the order of training; of names accuracy."""
        hidden = self.likelihood_.inputs
        if self.values_ is None:
            return self._accuracy(X, y, sample_weight)
        y = as_floats(in_order(y, hidden.names, "Z", by_name=hidden.kernel.by_name), "Z")
        return float(super().score(X, y, sample_weight))
