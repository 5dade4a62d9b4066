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
from typing import Literal, Self

import numpy as np

from kernelbayes.arrays import as_doubles, as_vectors
from kernelbayes.filters.beliefs import StepInfo
from kernelbayes.filters.model import Observations, inverse_ridge
from kernelbayes.filters.moves import Moves
from kernelbayes.filters.sequences import Training
from kernelbayes.filters.smooth import Run
from kernelbayes.filters.update import Seen
from kernelbayes.gram import Factored, check_ridge
from kernelbayes.gram.loo import loo_subset
from kernelbayes.points import count, doubled, take
from kernelbayes.rules.cme import ConditionalEmbedding
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
        return cls(moves, pairs, data.target, inverse_ridge(moves.features, lam)), lam

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
        o, k, m = seen.observations, len(cloud), len(self.pairs)
        jumps = 1.0 if unknown else 0.0 if o is None else JUMPS
        w = np.repeat([(1.0 - jumps) / k, jumps / m], [k, m])
        mass = away = float("nan")
        if o is not None:
            w = w * self._likelihood(o, seen, cloud)
            mass, away = float(w.sum()), 1.0 - seen.trusted
            w = w / mass
        told, lost = self.told(cloud, w)
        if o is not None:
            rng = np.random.default_rng([self.moves.mover.seed, 1, t])
            cloud = np.vstack([cloud, self.pairs])[_spread(w, k, rng.uniform())]
        happened = o is not None, away > 0.0, False, lost, away, float(lost)
        return cloud, told, StepInfo(mass, seen.support, float(1.0 / (told @ told)), *happened)

    def follow(self, run: Run, t: int) -> None:
        """Filter one more step of a sequence: predict and update."""
        cloud = self.moved(run.cloud, run.controls[t], t) if t else self.started()
        run.cloud, w, info = self.updated(cloud, run.seen[t], t, t == 0)
        run.weights.append(w)
        run.infos.append(info)

    def _likelihood(self, o: Observations, seen: Seen, cloud: Floats) -> Floats:
        """How likely an observation is at the points and the pairs (k + m,), 1 for usual pairs."""
        F, k, d = self.moves.features, len(cloud), self.pairs.shape[1] // 2
        column = o.gram.factor @ seen.column if isinstance(o.gram, Factored) else seen.column
        as_seen = self.to_x @ (F.T @ column)
        here = self.moves.states.features(cloud[:, :d]) @ as_seen
        density = np.maximum(np.concatenate([here, (F @ as_seen)[self.rows]]), 0.0)
        usual, trusted = float(density[k:].mean()), seen.trusted * (1.0 - WRONG)
        if not usual > 0.0:
            return np.ones(len(density))
        return np.asarray((trusted * density / usual + 1.0 - trusted) ** o.rule.tempering)

    def told(self, cloud: Floats, w: Floats | None = None) -> tuple[Array, bool]:
        """Weights (n,) on the training states of points, and pairs; whether the points are lost."""
        n, k, d = len(self.moves.features), len(cloud), self.pairs.shape[1] // 2
        w = np.full(k, 1.0 / k) if w is None else w
        share, fresh = float(w[:k].sum()), np.bincount(self.rows[: len(w) - k], w[k:], n)
        if not share > 0.0:
            return fresh, False
        # None if lost: far from all training states, of which any is then as likely.
        found = self.moves.weigh(cloud[:, :d], w[:k] / share)
        return share * (np.full(n, 1.0 / n) if found is None else found) + fresh, found is None


def _spread(w: Floats, k: int, start: float) -> Ints:
    """Systematic sample of k indices with weights w."""
    places = (start + np.arange(k)) / k * w.sum()
    return np.asarray(np.minimum(np.searchsorted(np.cumsum(w), places), len(w) - 1))
