r"""Beliefs about states and velocities: clouds of points that are moved, weighed and drawn again.

No sample has enough training pairs that are near a state in both position and velocity, so that
weights on pairs spread over a few steps. The points (z, v) of a cloud are tied to no pair. A
learned transition moves them; an observation x weighs them by the embedding of x given z,

.. math:: p(x \mid z) \propto k_X(x)^\top (G_Z + n \lambda I)^{-1} k_Z(z),

the density of x smoothed by the kernel on x. One in a hundred observations is taken to say nothing
about the state, and one in a thousand states to jump anywhere, so that a lost cloud is found again.
The belief is told as weights on the training states, those of the cloud's embedding.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Literal, Self

import numpy as np

from kernelbayes.arrays import as_doubles, as_vectors, threads_for
from kernelbayes.filters.beliefs import StepInfo
from kernelbayes.filters.missing import PATTERNS
from kernelbayes.filters.model import Observations, inverse_ridge
from kernelbayes.filters.moves import Moves
from kernelbayes.filters.sequences import Training
from kernelbayes.filters.smooth import Run
from kernelbayes.filters.update import Seen
from kernelbayes.gram import Factored, check_ridge
from kernelbayes.gram.loo import loo_subset
from kernelbayes.points import count, doubled, take
from kernelbayes.rules.cme import ConditionalEmbedding
from kernelbayes.select.search import progress_bar
from kernelbayes.types import Array, Floats, Ints, Points

# Shares of observations that say nothing about the state, and of states that jump anywhere: both
# are rare, and at least ten and a hundred times as frequent as in a model without them.
WRONG, JUMPS = 0.01, 0.001


@dataclass(frozen=True, eq=False)
class Clouds:
    """How clouds (k, 2 d) move, and what observations say of them."""

    moves: Moves
    pairs: Floats  # (m, 2 d), training states with their velocities
    rows: Ints  # (m,), which of the training states those are
    to_x: Array  # (r, r), (L^T L + n lambda I)^-1, of the embedding of x given z
    tempering: float = 1.0

    @classmethod
    def learn(
        cls, moves: Moves, observations: Observations, X: Points, data: Training,
        ridge: float | Literal["loo"],
    ) -> tuple[Self, float]:  # fmt: skip
        """Learn from sequences and from a filter's features; also the ridge lambda."""
        if observations.usable is not None:
            raise ValueError("order=2 needs whole training observations; drop or fill the others")
        if ridge == "loo":
            rows = loo_subset(count(X))
            some = doubled(take(moves.Z, rows)), doubled(take(X, rows))
            x = ConditionalEmbedding(moves.states, observations.kernel, "loo")
            ridge = x.fit(*some, copy=False).ridge_
        lam, Z = check_ridge(float(ridge)), as_doubles(as_vectors(data.Z, "Z"))
        pairs = np.hstack([Z[data.target], Z[data.target] - Z[data.source]])
        to_x, tempering = inverse_ridge(moves.features, lam), observations.rule.tempering
        return cls(moves, pairs, data.target, to_x, tempering), lam

    def started(self) -> Floats:
        """Cloud of training states and their velocities."""
        return self.pairs[_spread(np.full(len(self.pairs), 1.0), self.moves.particles, 0.5)]

    def moved(self, cloud: Floats, control: Points | None, t: int) -> Floats:
        """Points one step later."""
        u = None if control is None else take(control, [0])[0]
        rng = np.random.default_rng([self.moves.mover.seed, 0, t])
        return as_doubles(self.moves.mover.transition(cloud, rng, u))

    def updated(
        self, cloud: Floats, seen: Seen, t: int, unknown: bool = False
    ) -> tuple[Floats, Array, StepInfo]:
        """Return the cloud after an observation, weights (n,) on training states, what happened.

        With ``unknown``, any training state is as likely as any other before the observation.
        """
        o, k, m, d = seen.observations, len(cloud), len(self.pairs), self.pairs.shape[1] // 2
        jumps = 1.0 if unknown else 0.0 if o is None else JUMPS
        w = np.repeat([(1.0 - jumps) / k, jumps / m], [k, m])
        trusted, mass = seen.trusted * (1.0 - WRONG), float("nan")
        if o is not None:
            states, as_seen = self.moves.states, self._embedding(o) @ seen.column
            density = np.concatenate(
                [states.features(cloud[:, :d]) @ as_seen, self.marginal @ as_seen]
            )
            density = np.maximum(density, 0.0)
            usual = float(density[k:].mean())
            if usual > 0.0:
                w = w * (trusted * density / usual + 1.0 - trusted) ** self.tempering
            mass = float(w.sum())
            w = w / mass
        share = float(w[:k].sum())
        told = self.moves.weigh(cloud[:, :d], w[:k] / share) if share > 0.0 else None
        lost = told is None and not unknown
        fresh = np.bincount(self.rows, w[k:], minlength=len(self.moves.features))
        told = fresh if told is None else share * told + fresh
        told = told / told.sum() if float(told.sum()) > 0.0 else np.full(len(told), 1.0 / len(told))
        if o is not None:
            rng = np.random.default_rng([self.moves.mover.seed, 1, t])
            cloud = np.vstack([cloud, self.pairs])[_spread(w, k, rng.uniform())]
        away = float("nan") if o is None else 1.0 - seen.trusted
        happened = o is not None, away > 0.0, False, lost, away, float(lost)
        return cloud, told, StepInfo(mass, seen.support, float(1.0 / (told @ told)), *happened)

    def _embedding(self, o: Observations) -> Array:
        """From a column of kernel values k(x) to the embedding's value at x, in features of z."""
        if o not in self._embeddings:
            while len(self._embeddings) >= PATTERNS:  # of missing coordinates, as those are kept
                self._embeddings.pop(next(iter(self._embeddings)))
            F = self.moves.features.T
            F = F @ o.gram.factor if isinstance(o.gram, Factored) else F
            self._embeddings[o] = self.to_x @ F
        return self._embeddings[o]

    @cached_property
    def _embeddings(self) -> dict[Observations, Array]:
        return {}

    @cached_property
    def marginal(self) -> Array:
        """Features (m, r) of the training states whose velocity is known."""
        return self.moves.features[self.rows]


def _spread(w: Floats, k: int, start: float) -> Ints:
    """Systematic sample of k indices with weights w."""
    places = (start + np.arange(k)) / k * w.sum()
    return np.asarray(np.minimum(np.searchsorted(np.cumsum(w), places), len(w) - 1))


def filter_by_clouds(clouds: Clouds, runs: list[Run], progress: bool | None) -> list[Run]:
    """Filter sequences one after the other: predict and update, repeat."""
    with progress_bar(len(runs), "filtering", progress) as bar, threads_for(0.0):
        for one in runs:
            cloud = clouds.started()
            for t, seen in enumerate(one.seen):
                cloud = clouds.moved(cloud, one.controls[t], t) if t else cloud
                cloud, w, info = clouds.updated(cloud, seen, t, t == 0)
                one.weights.append(w)
                one.infos.append(info)
            bar.update()
    return runs
