r"""What a filter has learned: how states move (:class:`Dynamics`), and what they look like.

With features L (n, r) of the training states, a belief sum_i w_i phi(z_i) is the vector L^T w, and
every operator on states is an (r, r) matrix between two such vectors. For an exact kernel L is a
pivoted Cholesky factor to working precision, often far narrower than n. With controls the
transition operator acts on pairs (z, u) under the product kernel. All of it is in double precision:
what is summed here over the sample, and again at every step, would lose the digits of singles.

These are plain values; :mod:`kernelbayes.filters.step` computes with them.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Protocol, get_args

import numpy as np

from kernelbayes.arrays import like
from kernelbayes.gram import EXACT, Gram, LowRank, Solver, check_ridge
from kernelbayes.gram.features import nystrom, pivoted_cholesky
from kernelbayes.gram.lapack import solve_triangular
from kernelbayes.gram.solvers import scale_rows
from kernelbayes.kernels import Kernel, Parts
from kernelbayes.kernels.base import as_kernel
from kernelbayes.points import count, doubled, integer, option, positive, share, take
from kernelbayes.rules.bayes import turn
from kernelbayes.rules.prior import BayesMethod
from kernelbayes.rules.support import usual_support
from kernelbayes.scale.statistics import PairSums
from kernelbayes.types import Array, Bools, Floats, Ints, Points, Rng

if TYPE_CHECKING:
    from kernelbayes.filters.loop import Filter

# An exact Gram matrix is factored when its numerical rank r is below this share of n: an update
# with the factor then takes at most a third of the operations, n r^2 against n^3 / 3.
WORTHWHILE = 1.0 / 3.0
# Share of the training rows that must be complete, or their holes are filled: learning from fewer
# than a tenth of the pairs loses more than fills that have the right mean but no noise.
LEAST_COMPLETE = 0.1
# Regressions without memory that are kept: as many ridges as an update tries (RAISED of step.py).
MOST_SOLVERS = 4


class Simulated(Protocol):
    """A transition that is sampled from instead of learned."""

    def predict(self, W: Array, control: Points | None, t: int) -> tuple[Array, Floats]:
        """Predictions (n, k) at time t, weights on training states; what share (k,) left these."""

    def moved(self, control: Points | None, t: int) -> Array | None:
        """Features (n, r) of the training states moved at time t; None if as at any other."""


@dataclass(frozen=True)
class Rule:
    """How the update departs from Bayes' rule with its safeguards, if at all."""

    memory: float = 1.0  # exponent on the prediction: with 0 it is ignored
    tempering: float = 1.0  # exponent on what the observation says
    literal: bool = False  # the papers' equations and nothing else
    divided: bool = False  # in those, divide by the mass (KMCF16 section 4.2.2)


@dataclass(frozen=True, eq=False)
class Dynamics:
    """How states move, from n training states and m transitions between them."""

    features: Array  # L (n, r), of the states
    to_prior: Array  # (r, r), (L^T L + n eta I)^-1, applied to features of a prediction
    transport: Array  # (r, r), (L_src^T L_src + m eta' I)^-1
    source: Ints  # (m,), the states that transitions start from
    target: Ints  # (m,), and those that they lead to
    shift: bool = False  # whether weights are shifted along the transitions instead
    controlled: Controlled | None = None  # the operator on (state, control) pairs
    simulated: Simulated | None = None  # a known transition to sample from
    moved: Array | None = None  # (m, r), features of the transitions' ends, if no training states
    literal: bool = False  # predictions as they come, neither divided by their mass nor reset
    eta: float = 0.0  # the ridge of the prior's weights
    ratio: Callable[[Array], Array | None] | None = None  # another estimate of those, from v (n,)
    counts: Array | None = None  # (n,), how much pairs count, 1 on average; None: all alike
    moving: Array | None = None  # (m,), the same of transitions
    # Where features and ``transport`` come from, if from here: files keep these instead.
    gram: Gram | None = None  # of the states
    transition_eta: float | None = None  # the ridge of ``transport``

    @property
    def n(self) -> int:
        """Number of training states."""
        return int(self.features.shape[0])

    @cached_property
    def before(self) -> Array:
        """Features (m, r) of the states that transitions start from."""
        return take(self.features, self.source)

    @cached_property
    def after(self) -> LowRank:
        """Gram matrix, by features (m, r), of the states that transitions lead to."""
        return LowRank(take(self.features, self.target) if self.moved is None else self.moved)

    @cached_property
    def onward(self) -> Array | None:
        """From features of a belief to those of its prediction's weights: (r, r), if linear."""
        if self.shift or any((self.controlled, self.simulated, self.ratio)):
            return None
        before, after = (take(self.features, j) for j in (self.source, self.target))
        before = before if self.moving is None else scale_rows(self.moving, before)
        return self.to_prior @ (after.T @ before @ self.transport)

    def acting(self, control: Points | None) -> Points | None:
        """Check controls (k, ...); a ValueError where one is missing or unexpected."""
        if self.simulated is not None:
            return control
        if self.controlled is None:
            if control is not None:
                raise ValueError("this filter was fitted without controls; fit(X, Z, controls)")
            return None
        if control is None:
            raise ValueError("this filter was fitted with controls: give the control of each step")
        U = doubled(self.controlled.kernel_u.points(control, "control"))
        self.controlled.kernel_u.check_pair(U, self.controlled.pivots)
        return U


@dataclass(frozen=True, eq=False)
class Controlled:
    """Transition operator on pairs (z, u), through pivots among the observed transitions."""

    features: Array  # (m, r) of the transitions
    transport: Array  # (r, r)
    factor: Array  # (r, r), Cholesky factor of the pivots' Gram matrix
    states: Array  # (n, r), kernel between the training states and the pivots' states
    kernel_u: Kernel
    pivots: Points  # controls of the pivots
    # Where features, ``states`` and ``transport`` come from: files keep these instead.
    gram: Gram | None = None  # of the transitions, through their pivots
    Z: Points = None  # training states
    eta: float | None = None  # the ridge of ``transport``

    def transition_weights(self, w: Array, control: Points | None) -> Array:
        """Weights over transitions for beliefs w (n,) or (n, k), each under its own control."""
        known = self.kernel_u(self.pivots, control)  # (r, 1 or k)
        known = known if w.ndim == 2 else known[:, 0]
        Phi = solve_triangular(self.factor, (self.states.T @ w) * known)
        return self.features @ (self.transport @ Phi)

    def mean_after(self, values: Array, control: Points | None) -> Array:
        """Means (n,) of values (m,) at the transitions' ends, given each state and the control."""
        known = self.kernel_u(self.pivots, control)[:, 0]
        Phi = self.transport.T @ (self.features.T @ values)
        return self.states @ (known * solve_triangular(self.factor, Phi, transpose=True))

    @classmethod
    def learn(
        cls, kernel_z: Kernel, kernel_u: Kernel, Z: Points, source: Ints, U: Points,
        ridge: float, rank: int | None, rng: np.random.Generator,
    ) -> Controlled:  # fmt: skip
        """Learn from states Z (n, ...) and the controls U (m, ...) of the transitions."""
        kernel = Parts({"z": kernel_z, "u": kernel_u})
        pairs = {"z": take(Z, source), "u": U}
        if kernel.finite:  # landmarks need kernels of points, not features
            kernel_z, kernel_u = kernel_z.exact, kernel_u.exact
            kernel = Parts({"z": kernel_z, "u": kernel_u})
        if rank is None or kernel.finite:
            joint = pivoted_cholesky(kernel, pairs, rank, EXACT, rng)
        else:
            joint = nystrom(kernel, pairs, min(rank, len(source)), rng)
        F = joint.features(pairs)
        states, pivots = kernel_z(Z, joint.basis["z"]), joint.basis["u"]
        gram = LowRank(F, kernel=joint, points=pairs)
        operator = inverse_ridge(F, ridge)
        return cls(F, operator, joint.factor, states, kernel_u, pivots, gram, Z, ridge)


@dataclass(eq=False)
class Observations:
    """What states look like: training observations under a kernel, ready for Bayes' rule."""

    gram: Gram  # of the observations, through finite features where that is exact and cheaper
    exact: Kernel  # as given, in which beliefs about observations are expressed
    method: BayesMethod
    ridge: float
    known: Bools | None = None  # (n, d), which training coordinates are there; None means all
    rule: Rule = Rule()
    rank: int | None = None  # of the features, also over some of the coordinates
    usual: float | None = None  # usual support, if the observations stand for more of them
    counts: Array | None = None  # (n,), as of the dynamics
    sums: PairSums | None = None  # over all pairs that these stand for
    patterns: OrderedDict[bytes, Observations] = field(  # the same over some of the coordinates
        init=False, repr=False, default_factory=OrderedDict
    )
    solvers: dict[tuple[BayesMethod, float], Solver] = field(
        init=False, repr=False, default_factory=dict
    )

    @cached_property
    def X(self) -> Points:
        """Training observations (n, ...)."""
        return self.gram.points

    @cached_property
    def kernel(self) -> Kernel:
        """Kernel in use."""
        return self.gram.kernel or self.exact

    @cached_property
    def plain(self) -> bool:
        """Whether points are NumPy vectors, and the kernel checks nothing else about them."""
        vectors = isinstance(self.X, np.ndarray) and type(self.exact)._points is Kernel._points
        return vectors and self.exact.is_vector

    @cached_property
    def usable(self) -> Bools | None:
        """Which training observations (n,) are complete; None means all."""
        if self.known is None:
            return None
        if needs_filling(self.known):  # holes hold the regression on the state
            complete = np.any(self.known, axis=1)
        else:
            complete = np.all(self.known, axis=1)
        return None if complete.all() else complete

    def memoryless(self, ridge: float | None = None, times: float = 1.0) -> Solver:
        """Solver of the regression on observations alone: Bayes' rule under equal weights.

        With a ridge of its own it is the plain regression, under either rule. All times a factor.
        """
        key: tuple[BayesMethod, float] = (self.method, times * self.ridge)
        key = key if ridge is None else ("importance", times * ridge)
        if key not in self.solvers:
            n = count(self.X)
            there = np.ones(n) if self.usable is None else self.usable.astype(float)
            weights = like(there / max(there.sum(), 1.0), self.gram.diag)
            weights = weights if self.counts is None else scale_rows(self.counts, weights)
            if len(self.solvers) >= MOST_SOLVERS:
                self.solvers.clear()  # a solver holds a factor as large as the Gram matrix
            self.solvers[key] = turn(self.gram, weights, *key)
        return self.solvers[key]

    @cached_property
    def usual_support(self) -> float:
        """Similarity to the nearest other observation that 99 % of the training sample reach."""
        return self.usual or usual_support(self.exact.exact, self.X)


def needs_filling(known: Bools) -> bool:
    """Whether too few rows (n, d) are complete to learn from these alone."""
    return float(np.mean(np.all(known, axis=1))) < LEAST_COMPLETE


def state_gram(
    kernel: Kernel, Z: Points, rank: int | None, rng: Rng, pivoted: bool = False
) -> Gram:
    """Gram matrix of states through features: of a given rank, or exact to rounding.

    Of a rank they are Nystrom's, or those of a pivoted Cholesky factor. Computed from doubles.
    """
    Z = doubled(Z)
    if rank is not None:
        return Gram.of(kernel, Z, rank=rank, tol=EXACT if pivoted else None, rng=rng, extend=True)
    return Gram.of(kernel, Z, rank=count(Z), tol=EXACT, rng=rng, extend=True)


def observation_gram(
    kernel: Kernel, X: Points, rank: int | None, rng: Rng, pivoted: bool = False
) -> Gram:
    """Gram matrix of observations as doubles, by features if a rank is given or few are exact."""
    X = doubled(X)
    if rank is not None:
        return Gram.of(kernel, X, rank=rank, tol=EXACT if pivoted else None, rng=rng, extend=True)
    most = int(WORTHWHILE * count(X))
    return Gram.of(kernel, X, tol=EXACT, most=most, rng=rng, extend=True)


def inverse_ridge(F: Array, ridge: float) -> Array:
    """(F^T F + n ridge I)^-1, (r, r): applied at every step, so formed once."""
    return LowRank(F).ridge(ridge).coefficients(like(np.eye(F.shape[1]), F))


def rule_of(model: Filter, divided: bool = False) -> Rule:
    """Return how a filter updates; a ValueError where an exponent makes no sense."""
    values = model.get_params(deep=False)
    rule = Rule(
        share(getattr(model, "memory_", values["memory"]), "memory", low=True, high=True),
        positive(getattr(model, "tempering_", values["tempering"]), "tempering"),
        bool(values["literal"]),
        divided,
    )
    if rule.literal and (rule.memory, rule.tempering) != (1.0, 1.0):
        raise ValueError("literal=True is the papers' rule: leave memory and tempering at 1")
    return rule


def check_parameters(model: Filter, automatic: str) -> None:
    """Raise unless kernels, ridges and the method of a filter are what they should be.

    ``automatic`` stands for a ridge that is chosen from data.
    """
    values = model.get_params(deep=False)
    for name in ("kernel_x", "kernel_z", "kernel_u"):
        if values.get(name) is not None:
            as_kernel(values[name], name)
    for name in ("prior_ridge", "transition_ridge", "ridge"):
        value = values.get(name, automatic)
        if not (isinstance(value, str) and value == automatic):
            check_ridge(value, name)
    if values["rank"] is not None:
        integer(values["rank"], "rank")
    back = values["back_ridge"]
    if not (isinstance(back, str) and back == automatic):
        check_ridge(back, "back_ridge")
    option(values["method"], "method", get_args(BayesMethod))
    for name in ("memory", "tempering"):
        if isinstance(values[name], str):
            option(values[name], name, ("auto",))
