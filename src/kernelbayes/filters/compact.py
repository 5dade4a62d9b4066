r"""Fitted filters that become smaller, ``compact``, or larger, ``partial_fit``.

A compact filter has a step that does not grow with the training sample: ``model.compact(budget)``.

A prediction is linear in features: with features L (n, r) of the training states, the prediction
from a belief w has the features T L^T w, where T (r, r) is a sum over all transitions. Its density
ratio to the training marginal is linear in those. Both operators are kept as they are. What a step
needs of the sample itself are sums over pairs under that ratio. They are made over m pairs instead,
picked by herding on the joint embedding of observation and state (KMCF16 Alg. 6), which keeps sums
of smooth functions far better than m random pairs do. A prediction v over the m states, with
features L_m, has the right features: :math:`v = L_m (L_m^\top L_m)^{-1} T L^\top w`.

The original rule needs no such sums over pairs: prior weights are not cut off, so its moments are
linear in their coordinates, and tensors of (features x features x features) give them for all n
pairs. Beliefs over the m pairs then have the features, the mass and the mean of the full filter's.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from sklearn.base import clone

from kernelbayes import herding
from kernelbayes.arrays import as_doubles, like, quiet
from kernelbayes.filters.choose.default import judge_states
from kernelbayes.filters.choose.holdout import learn, training_parts
from kernelbayes.filters.choose.smoothing import smoothing_of
from kernelbayes.filters.model import Dynamics, Observations, inverse_ridge
from kernelbayes.filters.moves import ratio_of
from kernelbayes.filters.sequences import Part, each_in_order, read
from kernelbayes.filters.update import counted
from kernelbayes.gram import Gram, LowRank
from kernelbayes.gram.solvers import scale_rows
from kernelbayes.points import count, integer, numeric_values, share, take
from kernelbayes.scale.statistics import PairSums
from kernelbayes.types import Array, Floats, Ints, Points, PointsLike

if TYPE_CHECKING:
    from kernelbayes.filters.bayes import KernelBayesFilter

# Pairs to pick from, a random part if there are more: picking takes a row of kernel values for each
# pick, and among so many there are pairs close to the best.
CANDIDATES = 20_000
# Ridge of the weights of a prediction, relative to the features: rounding, and no more.
EXPRESSED = 1e-10
# Numbers of a tensor of sums, 80 MB: reading more of them takes longer than a step over the pairs.
MOST_ENTRIES = 10_000_000
# What a fit learns from data once everything is chosen.
LEARNED = (
    "X_", "Z_", "known_", "lengths_", "controls_", "kernel_x_", "encoder_", "lags_", "dynamics_",
    "observations_", "smoothing_", "rank_",
)  # fmt: skip
# Steps of the training sequences on which the two filters are compared: errors of a few per cent
# show, and the full filter takes seconds.
REPORTED_STEPS = 200


@dataclass(frozen=True)
class Report:
    """A compact filter beside the full one, on the first steps of the training sequences.

    Losses are mean squared errors of the mean in units of the states' spreads, or in the RKHS for
    states that are no vectors.
    """

    n: int  # training pairs
    kept: int
    steps: int
    full: float
    compact: float

    @property
    def error(self) -> float:
        """Loss of the compact filter relative to that of the full one, less one."""
        return self.compact / self.full - 1.0 if self.full > 0.0 else self.compact


@dataclass(frozen=True, eq=False)
class _Joint(Gram):
    """Gram matrix of pairs under the product of two kernels, by the features of each."""

    F: Floats  # (n, r), of the observations
    L: Floats  # (n, s), of the states

    @property
    def n(self) -> int:
        """Number of pairs."""
        return len(self.F)

    @cached_property
    def diag(self) -> Floats:
        """Diagonal (n,)."""
        return np.asarray(np.sum(self.F**2, axis=1) * np.sum(self.L**2, axis=1))

    def _compute_rows(self, index: Ints) -> Floats:
        return np.asarray((self.F[index] @ self.F.T) * (self.L[index] @ self.L.T))


def compacted(model: KernelBayesFilter, budget: int) -> KernelBayesFilter:
    """Filter over at most ``budget`` of the training pairs, with the operators of all of them."""
    budget = integer(budget, "budget", 2)
    if model.transition == "shift":
        raise ValueError("transition='shift' needs all training states; use 'operator'")
    picks = _picked(model.observations_, model.dynamics_, budget)
    small = copy(model)
    small.X_, small.Z_ = take(model.X_, picks), take(model.Z_, picks)
    small.known_ = None if model.known_ is None else model.known_[picks]
    small.lengths_, small.controls_ = (1,) * len(picks), None  # pairs, no sequences
    small.smoothing_ = replace(smoothing_of(model, warned=False), ahead=None)
    small.observations_ = _observations(model.observations_, picks, _sums(model, picks))
    ratio = ratio_of(small)
    dynamics = _dynamics(model.dynamics_, picks)
    small.dynamics_ = replace(dynamics, ratio=None if ratio is None else ratio.of_weights)
    small.report = _compared(model, small)
    return small


def partial_fit(
    model: KernelBayesFilter,
    X: PointsLike,
    Z: PointsLike,
    controls: PointsLike = None,
    *,
    keep: int | None = None,
    forgetting: float | Callable[[Points], Array] = 1.0,
) -> KernelBayesFilter:
    """Learn from more sequences; kernels, ridges and options stay as the first fit chose them.

    The operators are learned again, from all training pairs. The first call is :meth:`fit`.

    Parameters
    ----------
    X, Z, controls : sequence or list of sequences
        As for :meth:`fit`.
    keep : int, optional
        Training pairs to keep, the latest ones: for sensors that drift. None keeps all, and so
        does the first call.
    forgetting : float or callable
        How much the pairs so far count beside the new ones, for sensors that drift slowly: 0.9
        each time, or a function of their states that gives a number for each, such as
        ``density_ratio(new_states, old_states, kernel)`` for training states that are met
        elsewhere now. What is learned of them is that of a fit in which pairs are repeated as
        often as they count; regression and tracked features count all alike.
    """
    keep = None if keep is None else integer(keep, "keep", 2)
    if not callable(forgetting):
        forgetting = share(forgetting, "forgetting", high=True)
    if not hasattr(model, "dynamics_"):
        return model.fit(X, Z, controls)
    if hasattr(model, "report"):
        raise ValueError("a compact filter has forgotten its sequences; add these to the full one")
    X, Z, controls = map(
        each_in_order, (X, Z, controls), (model.names_x_, model.names_z_, model.names_u_)
    )
    new = read(X, Z, controls, (model.kernel_x, model.kernel_z, model.kernel_u))
    new = [replace(s, X=_as_rows(s.X, model.X_), Z=_as_rows(s.Z, model.Z_)) for s in new]
    parts = _latest([*training_parts(model), *new], keep)
    other: KernelBayesFilter = clone(model).set_params(**model.choice_.arguments)
    other.set_params(intervals="plain")  # the correction of the first fit stays
    learn(other, parts)  # whole before anything of the old fit is replaced
    _counting(other, _counts(model, forgetting, sum(count(s.X) for s in new)))
    for name in LEARNED:
        if hasattr(other, name):
            setattr(model, name, getattr(other, name))
    return model


def _counts(
    model: KernelBayesFilter, forgetting: float | Callable[[Points], Array], new: int
) -> Floats:
    """How much each pair that a filter has is to count from now on, and each of the new ones."""
    before = model.dynamics_.counts
    known = np.ones(model.n) if before is None else as_doubles(before)
    known = known / known[-1]  # the newest count one
    if not callable(forgetting):
        return np.concatenate([forgetting * known, np.ones(new)])
    found = as_doubles(forgetting(model.Z_)).ravel()
    if found.shape != (model.n,) or not np.all((found >= 0.0) & (found < np.inf)):
        raise ValueError(
            f"forgetting must give a number >= 0 for each of {model.n} training states, got "
            f"{found.shape} with values from {found.min():.3g} to {found.max():.3g}"
        )
    return np.concatenate([found * known, np.ones(new)])


def _counting(model: KernelBayesFilter, counts: Floats) -> None:
    """Let the pairs of a fitted filter count as given, the last ones if the oldest are gone."""
    known, counts = model.dynamics_, counts[-model.n :]
    if np.all(counts == counts[0]):
        return
    if model.ratio != "kulsif":
        raise ValueError(f"forgetting knows the ratio 'kulsif', not {model.ratio!r}")
    moving = counts[known.source]
    if not moving.any():
        raise ValueError("forgetting leaves no transition that counts; give longer new sequences")
    L, (c, m) = known.features, (like(w / w.mean(), known.features) for w in (counts, moving))
    eta, controlled = model.transition_ridge_, known.controlled
    if controlled is not None:
        transport = inverse_ridge(scale_rows(m**0.5, controlled.features), eta)
        controlled = replace(controlled, transport=transport)
    model.dynamics_ = replace(
        known, counts=c, moving=m, controlled=controlled,
        to_prior=inverse_ridge(scale_rows(c**0.5, L), model.prior_ridge_),
        transport=inverse_ridge(scale_rows(m**0.5, known.before), eta),
    )  # fmt: skip
    model.observations_ = replace(model.observations_, counts=c)


def _as_rows(points: Points, known: Points) -> Points:
    """Scalars (n,) as rows (n, 1) where the known points are rows."""
    return points[:, None] if np.ndim(points) == 1 and np.ndim(known) == 2 else points


def _latest(parts: list[Part], keep: int | None) -> list[Part]:
    """Sequences without their oldest pairs, so that at most ``keep`` are left."""
    if keep is None:
        return parts
    found: list[Part] = []
    for s in reversed(parts):
        left = keep - sum(count(one.X) for one in found)
        if left < 1:
            break
        first = max(0, count(s.X) - left)
        u = None if s.controls is None else take(s.controls, slice(first, None))
        found.insert(0, Part(take(s.X, slice(first, None)), take(s.Z, slice(first, None)), u))
    return found


def _picked(observations: Observations, dynamics: Dynamics, m: int) -> Ints:
    """Pairs (m,) whose joint embedding is closest to that of all usable ones, in order of time."""
    n = dynamics.n
    usable = np.arange(n) if observations.usable is None else np.flatnonzero(observations.usable)
    if len(usable) <= m:
        return usable
    some = np.random.default_rng(0).permutation(usable)[:CANDIDATES]
    F, L = as_doubles(observations.gram.factor), as_doubles(dynamics.features)
    joint = F[usable].T @ counted(dynamics.counts, L)[usable] / len(usable)
    gram = _Joint(F[some], L[some])
    values = np.sum((gram.F @ joint) * gram.L, axis=1)
    picks, _ = herding.greedy(gram, values, m, repeat=False)
    return np.sort(some[picks])


def _sums(model: KernelBayesFilter, picks: Ints) -> PairSums | None:
    """Return sums over all pairs, where the rule is linear in them and memory allows it."""
    seen, rule = model.observations_, model.observations_.rule
    plain = (rule.memory, rule.tempering, rule.literal) == (1.0, 1.0, False)
    linear = seen.method == "original" and plain and seen.usable is None
    linear &= model.dynamics_.controlled is None  # it asks for more of a belief than features
    L, gram = model.dynamics_.features, seen.gram
    if not (linear and isinstance(gram, LowRank) and isinstance(L, np.ndarray)):
        return None
    values = numeric_values(model.Z_)
    Z = np.empty((len(L), 0)) if values is None else as_doubles(values).reshape(len(L), -1)
    columns, entries = L.shape[1] + 1, gram.L.shape[1] * (L.shape[1] + 1) ** 2
    if columns + Z.shape[1] > len(picks) or entries > MOST_ENTRIES:
        return None
    return PairSums.of(gram.L, L, Z, model.dynamics_.counts, picks)


def _observations(known: Observations, picks: Ints, sums: PairSums | None) -> Observations:
    """Observations of the pairs that were picked; what is usual is that of all."""
    gram = Gram.of(known.kernel, take(known.X, picks))
    rows = None if known.known is None else known.known[picks]
    return replace(known, gram=gram, known=rows, usual=known.usual_support, counts=None, sums=sums)


def _dynamics(known: Dynamics, picks: Ints) -> Dynamics:
    """Operators of all transitions, on the states that were picked."""
    L, every = take(known.features, picks), np.arange(len(picks))
    weights = inverse_ridge(L, EXPRESSED) @ counted(known.moving, known.after.factor).T  # (r, m)
    controlled = known.controlled
    if controlled is not None:
        moved = weights @ controlled.features @ controlled.transport
        states = take(controlled.states, picks)
        controlled = replace(
            controlled, features=L, transport=moved, states=states, gram=None, Z=None
        )
    return replace(
        known, features=L, to_prior=known.to_prior * (known.n / len(picks)),  # weights sum to one
        transport=weights @ known.before @ known.transport,
        source=every, target=every, controlled=controlled, counts=None, moving=None, gram=None,
    )  # fmt: skip


def _compared(model: KernelBayesFilter, small: KernelBayesFilter) -> Report:
    """Losses of both filters on the first steps of the training sequences."""
    judge, steps, losses = judge_states(model.kernel_z_, model.Z_), 0, [0.0, 0.0]
    with quiet():  # about training sequences, which the user has not asked about
        for part in training_parts(model):
            rows = slice(0, REPORTED_STEPS - steps)
            X, Z = take(part.X, rows), take(part.Z, rows)
            u = None if part.controls is None else take(part.controls, slice(0, count(X) - 1))
            steps += count(X)
            for i, one in enumerate((model, small)):
                losses[i] += float(np.sum(judge(one.filter(X, u, progress=False), Z)))
            if steps >= REPORTED_STEPS:
                break
    return Report(model.n, small.n, steps, losses[0] / steps, losses[1] / steps)
