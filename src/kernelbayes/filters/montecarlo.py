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

from __future__ import annotations

import inspect
from collections.abc import Callable
from copy import deepcopy
from functools import reduce
from typing import Any, Literal, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from kernelbayes.arrays import Array, Rng, as_generator, like, namespace, threads_for
from kernelbayes.compression import resample, thin
from kernelbayes.embedding import Embedding
from kernelbayes.filters.beliefs import FilterState, check_lag, cut_off, normalised
from kernelbayes.filters.dynamics import Dynamics, compressed, inverse_ridge
from kernelbayes.filters.observation import Observations, split_missing
from kernelbayes.filters.onestep import LEAST_ORIGINAL
from kernelbayes.filters.sequences import as_points, check_kernels, is_many, unstacked
from kernelbayes.filters.updating import Updating
from kernelbayes.gram import Gram, check_ridge
from kernelbayes.kernels import Kernel, Parts
from kernelbayes.kernels.default import default_kernel
from kernelbayes.points import Points, column_names, concatenate, count, take
from kernelbayes.rules import BayesMethod, Variable, choose_ridge
from kernelbayes.rules.estimator import ConditionalEmbedding

Ridge = float | Literal["loo"]

Transition = Callable[..., Any]
# Controls under which the transition is tried out on the training states.
EXAMPLES = 10


class KernelMonteCarloFilter(Updating, BaseEstimator):  # type: ignore[misc]
    """Filter with a transition to sample from and an observation model learned from pairs.

    Parameters
    ----------
    transition : callable
        ``transition(z, rng, control=None) -> z_next``, for many states (rows) at once. With a
        parameter ``t`` it is also told the time, 1 for the first transition.
    initial : callable, points or Embedding
        ``initial(m, rng) -> points (m, ...)``, or a sample of the first state.
    kernel_x, kernel_z : Kernel, optional
        On observations and states; None means the median heuristic.
    method : {"importance", "original"}
        Bayes' rule of the update.
    particles : int, optional
        Points moved by the transition at each step; as many as training pairs by default.
    picks : int
        Herd at most so many points and copy each (KMCF16 section 3.3).
    threshold : float
        Resample when the effective sample size is below this share of n.
    subsample : int, optional
        Use only this many training pairs, chosen by herding (KMCF16 Alg. 6).
    prior_ridge, ridge : float or "loo"
        eta, by the leave-one-out error of regressing a state one transition later on the state;
        lambda (importance) or delta (original), by leave-one-out on the training pairs.
    back_ridge : float
        Of the backward step of smoothing, as in :class:`~kernelbayes.KernelBayesFilter`.
    rank : int, optional
        Nystrom features of this rank (KMCF16 Alg. 5).
    rng : int, Generator or None
        The same rng gives the same beliefs.

    Attributes
    ----------
    X_, Z_ : points (n, ...)
    kernel_x_, kernel_z_ : Kernel
    prior_ridge_, ridge_ : float
    """

    def __init__(
        self,
        transition: Transition,
        initial: Any,
        kernel_x: Kernel | None = None,
        kernel_z: Kernel | None = None,
        method: BayesMethod = "importance",
        particles: int | None = None,
        picks: int = 100,
        threshold: float = 0.5,
        subsample: int | None = None,
        prior_ridge: Ridge = "loo",
        ridge: Ridge = "loo",
        back_ridge: float = 0.1,
        rank: int | None = None,
        rng: Rng = None,
    ) -> None:
        self.transition = transition
        self.initial = initial
        self.kernel_x = kernel_x
        self.kernel_z = kernel_z
        self.method = method
        self.particles = particles
        self.picks = picks
        self.threshold = threshold
        self.subsample = subsample
        self.prior_ridge = prior_ridge
        self.ridge = ridge
        self.back_ridge = back_ridge
        self.rank = rank
        self.rng = rng

    def fit(self, X: Any, Z: Any, controls: Any = None) -> Self:
        """Learn what states look like from pairs X (n, ...), Z (n, ...); order means nothing.

        Lists of sequences are joined. ``controls`` are examples, any number of rows: they are given
        to the transition when it is tried out on the training states, to learn how far states
        move, and are needed only if the transition cannot do without.
        """
        check_kernels(self)
        for name in ("prior_ridge", "ridge", "back_ridge"):
            if name == "back_ridge" or getattr(self, name) != "loo":
                check_ridge(getattr(self, name))
        for name in ("particles", "picks", "subsample"):
            value = getattr(self, name)
            if value is not None and (value < 1 or int(value) != value):
                raise ValueError(f"{name} must be a whole number of at least 1, got {value!r}")
        if self.initial is None:
            raise ValueError(
                "initial must be a function (m, rng) -> states, points or an Embedding"
            )
        if not callable(self.transition):
            raise TypeError("transition must be a function (z, rng, control=None) -> z_next")
        if self.method not in ("importance", "original"):
            raise ValueError(f"method must be 'importance' or 'original', got {self.method!r}")
        X, Z = unstacked(X, self.kernel_x), unstacked(Z, self.kernel_z)
        self.names_x_, self.names_z_, self.names_u_ = (
            column_names(A[0] if is_many(A) else A) for A in (X, Z, controls)
        )
        X, Z = (_joined(part, k) for part, k in ((X, self.kernel_x), (Z, self.kernel_z)))
        X, known = split_missing(as_points(X, self.kernel_x is not None and self.kernel_x.by_name))
        self.kernel_x_ = self.kernel_x or default_kernel(X)
        self.kernel_z_ = self.kernel_z or default_kernel(Z, "Z")
        self.X_, self.Z_ = self.kernel_x_.points(X, "X"), self.kernel_z_.points(Z, "Z")
        if count(self.X_) != count(self.Z_):
            raise ValueError(
                f"X and Z must be pairs, got {count(self.X_)} and {count(self.Z_)} points"
            )
        self._check_kinds()
        rng = as_generator(self.rng)
        self.seed_ = int(rng.integers(2**31))
        self.timed_ = "t" in inspect.signature(self.transition).parameters
        with threads_for(2.0 * count(self.Z_) ** 2 * (self.rank or 300)):
            if self.subsample is not None:
                known = self._thin(self.subsample, known)
            self._learn(rng, known, _joined(controls, None))
        return self

    def _thin(self, size: int, known: Array | None) -> Array | None:
        pairs = {"x": self.X_, "z": self.Z_}
        kernel = Parts({"x": self.kernel_x_, "z": self.kernel_z_})
        if size > count(self.Z_):
            raise ValueError(f"subsample is {size}, but there are {count(self.Z_)} pairs")
        if known is not None:
            raise ValueError("subsample needs whole observations; drop or fill what is missing")
        kept = thin(pairs, size, kernel)
        self.X_, self.Z_ = kept["x"], kept["z"]
        return known

    def _learn(
        self, rng: np.random.Generator, known: Array | None, controls: Points | None
    ) -> None:
        n = count(self.Z_)
        states = compressed(self.kernel_z_, self.Z_, self.rank, rng)
        # One transition from every training state: how far states move, and a model to smooth with.
        self.controls_ = controls
        try:
            moved = self._try_out(self.Z_, 1, 0)
        except TypeError as error:
            if controls is not None:
                raise
            raise ValueError(
                f"transition(z, rng) failed: {error}. It is called with states and a generator; if "
                "it needs a control as well, give fit(X, Z, controls)"
            ) from error
        moved = self.kernel_z_.points(moved, "transition(z, rng)")
        self.prior_ridge_ = (
            ConditionalEmbedding(states, states, "loo").fit(self.Z_, moved).ridge_
            if self.prior_ridge == "loo"
            else check_ridge(self.prior_ridge)
        )
        L = states.features(self.Z_)
        everywhere = np.arange(n)
        operator = inverse_ridge(L, self.prior_ridge_)
        self.states_ = states
        self.dynamics_ = Dynamics(
            L, operator, operator, everywhere, everywhere, False, None, states.features(moved)
        )
        self.rows_ = Gram.by_rows(self.kernel_z_, self.Z_)
        weights = like(np.full(n, 1.0 / n), L)
        if self.ridge == "loo":
            x, z = Variable(self.X_, self.kernel_x_), Variable(self.Z_, self.kernel_z_)
            ridge = choose_ridge(x, z, weights, "importance")
            if self.method == "original":  # see onestep: steady over many steps
                ridge = max(ridge, 10.0 * LEAST_ORIGINAL) ** 2
        else:
            ridge = check_ridge(self.ridge)
        self.observations_ = Observations.learn(
            self.kernel_x_, self.X_, self.rank, self.method, ridge, rng, known
        )
        self.ridge_ = ridge

    def _try_out(self, Z: Points, t: int, stream: int) -> Points:
        """Move states by the transition, under examples of controls if there are any."""
        if self.controls_ is None:
            return self._move(Z, t, None, stream)
        n, some = count(Z), min(EXAMPLES, count(self.controls_), count(Z))
        rows = [np.arange(j, n, some) for j in range(some)]
        moved = [
            self._move(take(Z, index), t, take(self.controls_, [j])[0], stream)
            for j, index in enumerate(rows)
        ]
        return take(reduce(concatenate, moved), np.argsort(np.concatenate(rows)))

    def start(self, prior: Any = None, lag: int = 0) -> FilterState:
        """State before the first observation.

        Parameters
        ----------
        prior : callable, points or embedding, optional
            Instead of ``initial``.
        lag : int
            How many past beliefs to keep, for ``smoothed``.
        """
        check_is_fitted(self, "dynamics_")
        check_lag(lag)
        initial = self.initial if prior is None else prior
        if callable(initial) and not isinstance(initial, Embedding):
            initial = initial(self._size, np.random.default_rng([self.seed_, 0]))
        weights = None
        if isinstance(initial, Embedding):
            initial, weights = initial.points, initial.weights
        raw = self._gamma(self.kernel_z_.points(initial, "initial"), weights)
        gamma = normalised(raw)
        gamma = cut_off(raw) if gamma is None else gamma
        if gamma is None:
            raise ValueError("the initial states are nowhere near the training states")
        return FilterState(0, self._belief(gamma), False, lag)

    @property
    def _size(self) -> int:
        return count(self.Z_) if self.particles is None else self.particles

    def _gamma(self, points: Points, weights: Array | None = None) -> Array:
        """Weights (n,) on the training states of a sample (KMCF16 Alg. 1, line 3)."""
        F = self.states_.features(points)
        mean = namespace(F).mean(F, axis=0) if weights is None else weights @ F
        return self.dynamics_.features @ (self.dynamics_.to_prior @ mean)

    def _move(self, Z: Points, t: int, control: Points | None, stream: int) -> Points:
        rng = np.random.default_rng([self.seed_, stream, t])
        known = {"t": t} if self.timed_ else {}
        if control is not None:
            known["control"] = control
        # A transition may work in place, on rows that are the training states themselves.
        moved = self.transition(deepcopy(Z), rng, **known)
        if count(moved) != count(Z):
            raise ValueError(
                f"transition must return one state per state, got {count(moved)} for {count(Z)}"
            )
        return moved

    def _predict(self, W: Array, control: Points | None, t: int) -> Array:
        """Predictions (n, k), as weights on the training states, from beliefs (n, k)."""
        xp = namespace(W)
        columns = []
        for j in range(W.shape[1]):
            belief = self._belief(W[:, j])
            found = resample(
                belief, self._size, threshold=self.threshold, picks=self.picks, rows=self.rows_
            )
            u = None if control is None else take(control, [j])[0]
            moved = self._move(found.embedding.points, t, u, 1)
            moved = self.kernel_z_.points(moved, "transition(z, rng)")
            raw = self._gamma(moved, found.embedding.weights)
            gamma = normalised(raw)
            gamma = cut_off(raw) if gamma is None else gamma
            columns.append(W[:, j] if gamma is None else gamma)  # the sample was left behind
        return xp.stack(columns, axis=1)

    def _prior_weights(self, V: Array) -> Array:
        return V  # a prediction is already expressed by its weights on the training sample

    def _smooth_back(self, W: Array, later: Array, control: Points | None, t: int) -> Array:
        dynamics = self.dynamics_
        if control is not None or self.timed_:
            u = None if control is None else take(control, [0])[0]
            moved = self.kernel_z_.points(self._move(self.Z_, t, u, 2), "transition(z, rng)")
            dynamics = dynamics.leading_to(self.states_.features(moved))
        return dynamics.back(W, later, None, self.back_ridge)

    def _control(self, control: Any) -> Points | None:
        return control


def _joined(parts: Any, kernel: Kernel | None) -> Any:
    """One sample: sequences end to end, frames and arrays as they are."""
    if not is_many(parts):
        return parts
    named = kernel is not None and kernel.by_name
    return reduce(concatenate, [as_points(part, named) for part in parts])
