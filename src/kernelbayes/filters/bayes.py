r"""The kernel Bayes filter: a state-space model learned from examples.

From sequences of states z_t and observations x_t it learns how states move and what each state
looks like. Then it tracks the state of a new sequence from its observations alone, by two steps
that repeat (KBR13 section 4.3, CME13 section 5.2, IW22 Alg. 2): **predict** with the transition
operator (the sum rule), **update** with Bayes' rule, the prediction being the prior.

>>> import numpy as np
>>> from kernelbayes import KernelBayesFilter
>>> rng = np.random.default_rng(0)
>>> angle = np.cumsum(0.3 + 0.1 * rng.normal(size=600))
>>> z = np.column_stack([np.cos(angle), np.sin(angle)])  # a point going round
>>> x = z + 0.3 * rng.normal(size=z.shape)               # seen through noise
>>> model = KernelBayesFilter(rng=0).fit(x[:400], z[:400])
>>> beliefs = model.filter(x[400:])
>>> error = np.sum((beliefs.mean() - z[400:]) ** 2, axis=1).mean()
>>> bool(error < 0.5 * np.sum((x[400:] - z[400:]) ** 2, axis=1).mean())
True
"""

from dataclasses import dataclass, field
from typing import Literal, Self

from sklearn.utils.validation import check_is_fitted

from kernelbayes.arrays import as_generator, namespace, threads_for
from kernelbayes.embedding import Embedding
from kernelbayes.filters.beliefs import FilterState
from kernelbayes.filters.choose.default import choose
from kernelbayes.filters.choose.smoothing import smoothing_of
from kernelbayes.filters.compact import Report, compacted, partial_fit
from kernelbayes.filters.encode.encoder import ESTIMATES, Encoded, Features, encode
from kernelbayes.filters.encode.lags import Lags, check_lags, with_velocity
from kernelbayes.filters.loop import Filter
from kernelbayes.filters.model import (
    Controlled,
    Dynamics,
    Observations,
    check_parameters,
    inverse_ridge,
    observation_gram,
    rule_of,
    state_gram,
)
from kernelbayes.filters.moves import ratio_of
from kernelbayes.filters.sequences import Part, Training, join, names_of, read
from kernelbayes.filters.smooth import Smoothing
from kernelbayes.filters.step import normalised
from kernelbayes.filters.update import counted
from kernelbayes.gram import check_ridge
from kernelbayes.kernels import Kernel
from kernelbayes.points import count, doubled, integer, option, take
from kernelbayes.rules.cme import ConditionalEmbedding
from kernelbayes.rules.prior import BayesMethod, prior_element, prior_under
from kernelbayes.rules.ratio import Method
from kernelbayes.rules.variable import Variable
from kernelbayes.types import Array, PointsLike, Rng

Ridge = float | Literal["auto"]
Initial = Literal["uniform", "observation"] | PointsLike | Embedding


@dataclass(eq=False, repr=False)
class KernelBayesFilter(Filter):
    """Filter, smoother and forecaster learned from sequences of states and observations.

    Parameters
    ----------
    kernel_x, kernel_z, kernel_u : Kernel, optional
        On observations, states and controls; None chooses a scale for each column from the data.
    method : {"importance", "original"}
        Bayes' rule of the update: IW22 Alg. 1 or KBR13 eq. 13.
    transition : {"operator", "shift"}
        Prediction by the conditional embedding of the next state (KBR13 eq. 17, IW22 Alg. 2), or
        by moving each state's weight to the state that followed it (CME13 eq. 35).
    initial : {"uniform", "observation"}, points or Embedding
        Belief before the first observation: the training states (IW22); none, so that the first
        belief is the plain regression on the first observation (KBR13 section 4.3; the same thing
        for the importance rule); or a prior.
    prior_ridge, transition_ridge, ridge : float or "auto"
        eta and eta', of the prior's weights and of the transition operator; lambda (importance) or
        delta (original) of Bayes' rule. Kernels that are None and ridges that are "auto" are
        chosen by a race on blocks of time left out (:mod:`~kernelbayes.filters.choose.default`).
    back_ridge : float or "auto"
        Of the backward step of smoothing, Bayes' rule with the next state as observation. "auto"
        chooses it by smoothing blocks that are left out, when smoothing is first asked for; where
        none gains, ``smooth`` answers with the filtered beliefs and a warning.
    rank : int, optional
        Nystrom features of this rank (all points, if they are fewer) for all kernels: a step costs
        O(n rank^2) at most.
    lags : int, a sequence of float, or "auto"
        Observations in the window that the update sees: the last k as one, a kernel for each
        (:mod:`kernelbayes.filters.encode.lags`). Bandwidth multiples of the lags, newest first, are
        chosen unless they are given.
    order : {1, 2, "auto"}
        With 2, the transition also depends on the velocity, the difference to the state before.
    features : {"raw", "regression", "tracked", "auto"}
        The update sees the window; the estimate of E[z | window] of a ridge regression
        (:mod:`kernelbayes.filters.encode.regression`); or that beside a linear-Gaussian filter of
        such estimates (:mod:`kernelbayes.filters.encode.track`). In both, ``kernel_x`` is a kernel
        on the estimates. Where lags, order or features are "auto", they are 1, 1 and "raw" unless
        another was clearly better on blocks of time left out
        (:mod:`kernelbayes.filters.choose.options`), or all kernels and ridges are given.
    ratio : {"kulsif", "rulsif", "ulsif", "kmm"}
        Estimate of the prediction's weights on the training states, as in
        :func:`~kernelbayes.density_ratio`, for the importance rule. Any but "kulsif", which is
        linear, is estimated anew at every step.
    memory : float or "auto"
        Exponent on the prediction, in [0, 1]: 1 is Bayes' rule, 0 ignores the prediction, so that
        each belief is the regression on its observation (or window) alone. "auto" is 1 unless less
        was better on blocks of time left out; always 1 where all kernels and ridges are given.
    tempering : float or "auto"
        Exponent on what the observation says: below 1 where observations repeat each other.
    literal : bool
        The equations of KBR13 (eq. 17, 18) or IW22 (Alg. 2) and none of the safeguards: weights
        are not divided by their mass, and no observation is set aside. Beliefs may be NaN.
    intervals : {"auto", "calibrated", "plain"}
        Whether ``interval`` of beliefs is corrected, so that held-out states are inside as often
        as it says. "auto" does so where something was chosen on blocks of time left out. Forecasts
        keep their own.
    rng : int, Generator or None
        For landmarks.

    Attributes
    ----------
    X_, Z_ : points (n, ...)
        All sequences end to end; beliefs are weighted samples over ``Z_``.
    kernel_x_, kernel_z_, kernel_u_ : Kernel
    lags_ : tuple of float
        Bandwidth multiples of the lags.
    order_ : int
    features_ : str
    prior_ridge_, transition_ridge_, ridge_, memory_, tempering_ : float
    dynamics_ : Dynamics
    observations_ : Observations
    report : Report
        Of a filter from :meth:`compact`: how it compares with the full one.

    Notes
    -----
    A belief's weights are divided by their sum at every step. An observation unlike anything in
    the training sample leaves the prediction as it is, and ``info.fallback`` says so.

    Tuning: ``tune(KernelBayesFilter(), X, Z)`` chooses bandwidths and ridges by filtering parts
    of the training sequences with what was learned from the others; see
    :mod:`kernelbayes.filters.choose.tuning`.
    """

    kernel_x: Kernel | None = None
    kernel_z: Kernel | None = None
    kernel_u: Kernel | None = None
    method: BayesMethod = "importance"
    transition: Literal["operator", "shift"] = "operator"
    initial: Initial = "uniform"
    prior_ridge: Ridge = "auto"
    transition_ridge: Ridge = "auto"
    ridge: Ridge = "auto"
    back_ridge: Ridge = "auto"
    rank: int | None = None
    lags: Lags | Literal["auto"] = "auto"
    order: int | Literal["auto"] = "auto"
    features: Features | Literal["auto"] = "auto"
    ratio: Method = "kulsif"
    memory: float | Literal["auto"] = "auto"
    tempering: float | Literal["auto"] = "auto"
    literal: bool = False
    intervals: Literal["auto", "calibrated", "plain"] = "auto"
    rng: Rng = None

    report: Report = field(init=False)
    leads_ = 0  # later observations that the update sees: of filters that smooth by regression

    # --- learning ---------------------------------------------------------------------------------

    def fit(
        self, X: PointsLike, Z: PointsLike, controls: PointsLike = None, *, copy: bool = True
    ) -> Self:
        """Learn from one sequence or a list of sequences.

        Parameters
        ----------
        X : points (T, ...), a list of sequences, or an array (S, T, d) of S sequences
            Observations. A row of NaN is a step whose state is known but not what it looked like;
            with some NaN, the pair is used where the coordinates present are all that is asked.
        Z : points (T, ...), a list of sequences, or an array (S, T, d) of S sequences
            States. A sequence of length one gives a pair without a transition.
        controls : points (T, ...) or (T - 1, ...), or a list of sequences, optional
            Row t of T rows acted on the way into step t, so the first is not used; row t of T - 1
            rows acted between steps t and t + 1.
        copy : bool
            Whether the filter gets arrays of its own. Without a copy, who changes the given arrays
            changes what was learned.
        """
        check_parameters(self, "auto")
        option(self.transition, "transition", ("operator", "shift"))
        if isinstance(self.initial, str):
            option(self.initial, "initial", ("uniform", "observation"))
        option(self.intervals, "intervals", ("auto", "calibrated", "plain"))
        option(self.order, "order", (1, 2, "auto"))
        option(self.features, "features", ("raw", "regression", "tracked", "auto"))
        if not (isinstance(self.lags, str) and self.lags == "auto"):
            check_lags(self.lags)
        parts = read(X, Z, controls, (self.kernel_x, self.kernel_z, self.kernel_u), copy)
        data = join(parts)
        if data.controls is not None and self.transition == "shift":
            raise ValueError("transition='shift' knows no controls; use 'operator'")
        fine = [Part(*map(doubled, (s.X, s.Z, s.controls))) for s in parts]
        self.choice_ = choose(self, fine)
        chosen, self.calibration_ = self.choice_.arguments, self.choice_.calibration
        self.order_, self.features_ = chosen["order"], chosen["features"]
        known = self._read(data.X, data.Z, chosen["kernel_x"], chosen["kernel_z"])
        self.names_x_, self.names_z_, self.names_u_ = map(names_of, (X, Z, controls))
        self.lengths_, self.controls_ = data.lengths, data.controls
        self.known_ = known
        self.smoothing_: Smoothing | None = None  # chosen when it is first needed
        self.rank_, self.ridge_ = chosen["rank"], chosen["ridge"]
        self.memory_, self.tempering_ = chosen["memory"], chosen["tempering"]
        self.prior_ridge_, self.transition_ridge_ = (
            check_ridge(chosen[name]) for name in ("prior_ridge", "transition_ridge")
        )
        try:
            with threads_for(2.0 * count(self.Z_) ** 2 * (self.rank_ or 300)):
                self._learn(data, encode(self, fine, known))
        except MemoryError as error:
            raise MemoryError(
                f"{count(self.Z_)} training rows do not fit in memory with rank={self.rank_}; give "
                "a smaller one, such as rank=200: memory is then a few times rows x rank"
            ) from error
        return self

    def _learn(self, data: Training, seen: Encoded) -> None:
        rng = as_generator(self.rng)
        Z, kernel_z = doubled(self.Z_), self.kernel_z_
        if self.order_ == 2:
            Z, kernel_z = with_velocity(Z, data.lengths, kernel_z)
        states = state_gram(kernel_z, Z, self.rank_, rng)
        L = states.factor
        controlled = None
        if data.controls is not None:
            self.kernel_u_ = self.choice_.arguments["kernel_u"]
            U = doubled(self.kernel_u_.points(data.controls, "controls"))
            moves = kernel_z, self.kernel_u_, Z, data.source, U
            controlled = Controlled.learn(*moves, self.transition_ridge_, self.rank_, rng)
        ratio = ratio_of(self)
        self.dynamics_ = Dynamics(
            L, inverse_ridge(L, self.prior_ridge_),
            inverse_ridge(take(L, data.source), self.transition_ridge_),
            data.source, data.target, self.transition == "shift", controlled,
            literal=self.literal, eta=self.prior_ridge_,
            ratio=None if ratio is None else ratio.of_weights,
            gram=states, transition_eta=self.transition_ridge_,
        )  # fmt: skip
        self.encoder_, self.lags_ = seen.encoder, seen.scales
        if self.features_ in ESTIMATES:
            self.kernel_x_ = seen.kernel
        gram = observation_gram(seen.kernel, seen.X, self.rank_, rng)
        rule, ridge = rule_of(self), check_ridge(self.ridge_)
        self.observations_ = Observations(
            gram, seen.kernel, self.method, ridge, seen.known, rule, self.rank_
        )

    partial_fit = partial_fit

    def compact(self, budget: int = 400) -> Self:
        """Return a filter with the same interface whose step does not grow with n.

        Beliefs are over at most ``budget`` of the training pairs, and the operators are those of
        all (:mod:`kernelbayes.filters.compact`). ``report`` says what it loses on the training
        sequences: ``compact(400).report.error`` is the relative increase of the loss.
        """
        check_is_fitted(self, "dynamics_")
        return compacted(self, budget)

    # --- steps ------------------------------------------------------------------------------------

    def start(self, prior: Initial | None = None, lag: int = 0) -> FilterState:
        """State before the first observation.

        Parameters
        ----------
        prior : points or embedding, optional
            Belief about the first state, instead of ``initial``.
        lag : int
            How many past beliefs to keep, for :meth:`smoothed`.
        """
        check_is_fitted(self, "dynamics_")
        initial = getattr(self, "initial_", self.initial) if prior is None else prior
        belief = Embedding(self.Z_, self._initial_weights(initial), self.kernel_z_, self.names_z_)
        unknown = initial if isinstance(initial, str) else None
        return FilterState(0, belief, unknown, integer(lag, "lag", 0))  # type: ignore[arg-type]

    def _initial_weights(self, initial: Initial) -> Array:
        L = self.dynamics_.features
        if isinstance(initial, str):
            option(initial, "initial", ("uniform", "observation"))
            return counted(
                self.dynamics_.counts, namespace(L).ones_like(L[:, 0]) / self.dynamics_.n
            )
        if isinstance(initial, Embedding) and initial.points is self.Z_:
            weights = doubled(initial.weights)
        else:
            Z = doubled(self.Z_)
            on = Variable(Z, self.kernel_z_, self.names_z_)
            element = prior_under(initial, on) or prior_element(None, on)
            states = ConditionalEmbedding(self.kernel_z_, self.kernel_z_, self.prior_ridge_)
            weights = states.fit(Z, Z, copy=False).apply(element)
        result = normalised(weights)
        if result is None:
            raise ValueError("the prior has no mass on the training states; is it in their units?")
        return result

    def _smoothing(self, warn: bool = True) -> Smoothing:
        """How beliefs are smoothed; chosen when it is first needed."""
        return smoothing_of(self, warn)

    @property
    def n(self) -> int:
        """Number of training pairs."""
        check_is_fitted(self, "dynamics_")
        return count(self.Z_)
