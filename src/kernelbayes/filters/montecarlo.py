r"""The kernel Monte Carlo filter: a known transition, an observation model learned from pairs.

When states can be simulated one step ahead but what they look like is known only from examples
(KMCF16 chapter 4), prediction is sampling: points that stand for the belief, herded from it when
its weights are uneven, are moved by the transition. The update is Bayes' rule as in
:class:`~kernelbayes.KernelBayesFilter`.

>>> import numpy as np
>>> from kernelbayes import KernelMonteCarloFilter
>>> rng = np.random.default_rng(0)
>>> def transition(z, rng, control=None):
...     return 0.9 * z + 0.5 * rng.normal(size=z.shape)
>>> def initial(m, rng):
...     return rng.normal(size=(m, 1))
>>> states = rng.uniform(-4, 4, size=(400, 1))  # pairs, not a sequence
>>> model = KernelMonteCarloFilter(transition, initial, rng=0)
>>> model = model.fit(np.tanh(states) + 0.1 * rng.normal(size=states.shape), states)
>>> z = np.zeros((50, 1))
>>> for t in range(1, 50):
...     z[t] = transition(z[t - 1], rng)
>>> beliefs = model.filter(np.tanh(z) + 0.1 * rng.normal(size=z.shape))
>>> bool(np.sqrt(np.mean((beliefs.mean() - z) ** 2)) < 0.3)
True
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Self, get_args

import numpy as np
from sklearn.utils.validation import check_is_fitted

from kernelbayes.arrays import as_generator, like, threads_for
from kernelbayes.compression import thin
from kernelbayes.embedding import Embedding, MeanElement
from kernelbayes.filters.beliefs import FilterState
from kernelbayes.filters.choose.choices import LEAST_ORIGINAL
from kernelbayes.filters.loop import Filter
from kernelbayes.filters.model import (
    Dynamics,
    Observations,
    check_parameters,
    inverse_ridge,
    observation_gram,
    rule_of,
    state_gram,
)
from kernelbayes.filters.moves import (
    Learned,
    Mover,
    Moves,
    Resampling,
    Transition,
    ratio_of,
    try_out,
)
from kernelbayes.filters.sequences import as_points, end_to_end, join, names_of, read, unstacked
from kernelbayes.gram import Gram, check_ridge
from kernelbayes.kernels import Kernel, Parts
from kernelbayes.points import count, doubled, integer, option
from kernelbayes.rules.bayes import choose_ridge
from kernelbayes.rules.cme import ConditionalEmbedding
from kernelbayes.rules.prior import BayesMethod, prior_under
from kernelbayes.rules.ratio import Method
from kernelbayes.rules.variable import Variable
from kernelbayes.types import Bools, Points, PointsLike, Rng

Ridge = float | Literal["loo"]
LowRankMethod = Literal["nystrom", "cholesky"]

Initial = Callable[[int, np.random.Generator], PointsLike] | PointsLike | Embedding


@dataclass(eq=False, repr=False)
class KernelMonteCarloFilter(Filter):
    """Filter with a transition to sample from and an observation model learned from pairs.

    Parameters
    ----------
    transition : callable, optional
        ``transition(z, rng, control=None) -> z_next``, for many states (rows) at once. With a
        parameter ``t`` it is also told the time, 1 for the first transition. None learns it: then
        ``fit`` takes sequences, and increments are regressed on state and control
        (:mod:`kernelbayes.filters.moves`).
    initial : callable, points or Embedding, optional
        ``initial(m, rng) -> points (m, ...)``, or a sample of the first state. None, with a learned
        transition only, means the training states.
    kernel_x, kernel_z : Kernel, optional
        On observations and states; None means the median heuristic.
    method : {"importance", "original"}
        Bayes' rule of the update.
    particles : int, optional
        Points moved by the transition at each step; as many as training pairs by default.
    picks : int
        Herd at most so many points and copy each (KMCF16 section 3.3).
    resampling : {"herding", "exchange", "line-search", "fully-corrective", "multinomial"}
        How the points to move are chosen from a belief, as in :func:`~kernelbayes.resample`.
    threshold : float
        Resample when the effective sample size is below this share of n.
    subsample : int, optional
        Use only this many training pairs, chosen by herding (KMCF16 Alg. 6).
    sweeps : int
        Passes in which better pairs replace those chosen; 0 is Alg. 6 as it stands.
    prior_ridge, ridge : float or "loo"
        eta, by the leave-one-out error of regressing a state one transition later on the state;
        lambda (importance) or delta (original), by leave-one-out on the training pairs.
    back_ridge : float
        Of the backward step of smoothing, as in :class:`~kernelbayes.KernelBayesFilter`.
    rank : int, optional
        Features of this rank (KMCF16 Alg. 5).
    low_rank : {"nystrom", "cholesky"}
        Nystrom features on landmarks, or those of a pivoted Cholesky factor.
    ratio : {"kulsif", "rulsif", "ulsif", "kmm"}
        Estimate of the prediction's weights on the training states, as in
        :func:`~kernelbayes.density_ratio`, for the importance rule.
    memory, tempering, literal
        As in :class:`~kernelbayes.KernelBayesFilter`; literal beliefs are divided by their mass
        (KMCF16 section 4.2.2).
    rng : int, Generator or None
        The same rng gives the same beliefs.

    Attributes
    ----------
    X_, Z_ : points (n, ...)
    kernel_x_, kernel_z_ : Kernel
    transition_ : callable
        As given, or learned.
    prior_ridge_, ridge_ : float
    """

    transition: Transition | None = None
    initial: Initial = None
    kernel_x: Kernel | None = None
    kernel_z: Kernel | None = None
    method: BayesMethod = "importance"
    particles: int | None = None
    picks: int = 100
    threshold: float = 0.5
    resampling: Resampling = "herding"
    subsample: int | None = None
    sweeps: int = 10
    prior_ridge: Ridge = "loo"
    ridge: Ridge = "loo"
    back_ridge: float = 0.1
    rank: int | None = None
    low_rank: LowRankMethod = "nystrom"
    ratio: Method = "kulsif"
    memory: float = 1.0
    tempering: float = 1.0
    literal: bool = False
    rng: Rng = None

    def fit(
        self, X: PointsLike, Z: PointsLike, controls: PointsLike = None, *, copy: bool = True
    ) -> Self:
        """Learn what states look like from pairs X (n, ...), Z (n, ...); order means nothing.

        Lists of sequences are joined. ``controls`` are examples, any number of rows: they are given
        to the transition when it is tried out on the training states, to learn how far states
        move, and are needed only if the transition cannot do without. With ``transition=None`` X, Z
        and controls are sequences, as in :meth:`KernelBayesFilter.fit
        <kernelbayes.KernelBayesFilter.fit>`, and the transition is learned from them. Without a
        ``copy``, who changes the arrays later changes what was learned.
        """
        check_parameters(self, "loo")
        for name in ("particles", "picks", "subsample"):
            if getattr(self, name) is not None:
                integer(getattr(self, name), name)
        option(self.resampling, "resampling", get_args(Resampling))
        option(self.low_rank, "low_rank", get_args(LowRankMethod))
        if self.transition is not None and self.initial is None:
            raise ValueError("initial must be a function (m, rng), points or an Embedding")
        if not (self.transition is None or callable(self.transition)):
            raise TypeError("transition must be a function (z, rng, control=None) -> z_next")
        data = None  # transitions, where order matters
        if self.transition is None:
            data = join(read(X, Z, controls, (self.kernel_x, self.kernel_z, None)))
        X, Z = unstacked(X, self.kernel_x), unstacked(Z, self.kernel_z)
        self.names_x_, self.names_z_, self.names_u_ = map(names_of, (X, Z, controls))
        X, Z = (end_to_end(part, k) for part, k in ((X, self.kernel_x), (Z, self.kernel_z)))
        X = as_points(X, self.kernel_x)
        known = self._read(X, Z, self.kernel_x, self.kernel_z, copy)
        rng = as_generator(self.rng)
        seed = int(rng.integers(2**31))
        with threads_for(2.0 * count(self.Z_) ** 2 * (self.rank or 300)):
            examples = end_to_end(controls, None)
            if self.transition is not None:
                self.transition_: Transition = self.transition
            elif data is not None:
                self.transition_ = Learned.from_sequences(data, self.kernel_z_, rng)
                examples = data.controls
                self.initial_ = self.Z_ if self.initial is None else self.initial_
            if self.subsample is not None:
                known = self._thin(integer(self.subsample, "subsample"), known)
            self._learn(rng, seed, known, examples)
        return self

    def _thin(self, size: int, known: Bools | None) -> Bools | None:
        pairs = {"x": self.X_, "z": self.Z_}
        kernel = Parts({"x": self.kernel_x_, "z": self.kernel_z_})
        if size > count(self.Z_):
            raise ValueError(f"subsample is {size}, but there are {count(self.Z_)} pairs")
        if known is not None:
            raise ValueError("subsample needs whole observations; drop or fill what is missing")
        kept = thin(pairs, size, kernel, sweeps=self.sweeps)
        self.X_, self.Z_ = kept["x"], kept["z"]
        return known

    def _learn(
        self, rng: np.random.Generator, seed: int, known: Bools | None, controls: Points | None
    ) -> None:
        n = count(self.Z_)
        pivoted = self.low_rank == "cholesky"
        X, Z = doubled(self.X_), doubled(self.Z_)
        gram = state_gram(self.kernel_z_, Z, self.rank, rng, pivoted)
        states, L = gram.kernel or self.kernel_z_, gram.factor
        timed = "t" in inspect.signature(self.transition_).parameters
        mover = Mover(self.transition_, self.kernel_z_, seed, timed, self.names_z_)
        # One transition from every training state: how far states move, and a model to smooth with.
        try:
            moved = try_out(mover, self.Z_, controls)
        except TypeError as error:
            if controls is not None:
                raise
            raise ValueError(
                f"transition(z, rng) failed: {error}. It is called with states and a generator; if "
                "it needs a control as well, give fit(X, Z, controls)"
            ) from error
        self.prior_ridge_ = (
            ConditionalEmbedding(states, states, "loo").fit(Z, moved, copy=False).ridge_
            if self.prior_ridge == "loo"
            else check_ridge(self.prior_ridge)
        )
        operator, everywhere = inverse_ridge(L, self.prior_ridge_), np.arange(n)
        self.moves_ = Moves(
            mover, self.Z_, states, L, operator, Gram.by_rows(self.kernel_z_, Z),
            integer(self.particles or n, "particles"), self.threshold, integer(self.picks, "picks"),
            self.resampling, ratio_of(self), self.literal, moved, self.prior_ridge_,
        )  # fmt: skip
        self.dynamics_ = Dynamics(
            L, operator, operator, everywhere, everywhere, simulated=self.moves_,
            moved=states.features(moved), eta=self.prior_ridge_, gram=gram,
        )  # fmt: skip
        if self.ridge == "loo":
            weights = like(np.full(n, 1.0 / n), L)
            x, z = Variable(X, self.kernel_x_), Variable(Z, self.kernel_z_)
            ridge = choose_ridge(x, z, weights, "importance")
            if self.method == "original":  # steady over many steps
                ridge = max(ridge, 10.0 * LEAST_ORIGINAL) ** 2
        else:
            ridge = check_ridge(self.ridge)
        gram = observation_gram(self.kernel_x_, X, self.rank, rng, pivoted)
        self.observations_ = Observations(
            gram, self.kernel_x_, self.method, ridge, known, rule_of(self, divided=True), self.rank
        )
        self.ridge_ = ridge

    def start(self, prior: Initial | None = None, lag: int = 0) -> FilterState:
        """State before the first observation.

        Parameters
        ----------
        prior : callable, points or embedding, optional
            Instead of ``initial``.
        lag : int
            How many past beliefs to keep, for ``smoothed``.
        """
        check_is_fitted(self, "dynamics_")
        initial = self.initial_ if prior is None else prior
        if callable(initial) and not isinstance(initial, MeanElement):
            seed = self.moves_.mover.seed
            initial = initial(self.moves_.particles, np.random.default_rng([seed, 0]))
        element = prior_under(initial, Variable(doubled(self.Z_), self.kernel_z_, self.names_z_))
        if not isinstance(element, Embedding):
            raise TypeError(f"initial states must be points, got {type(initial).__name__}")
        gamma = self.moves_.weigh(element.points, element.weights)
        if gamma is None:
            raise ValueError("the initial states are nowhere near the training states")
        belief = Embedding(self.Z_, gamma, self.kernel_z_, self.names_z_)
        return FilterState(0, belief, None, integer(lag, "lag", 0))
