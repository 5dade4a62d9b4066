r"""How states move when that is sampled from: a known transition, or one learned from sequences.

A **learned transition** is z' = z + f(z, u) + e: the increment is regressed on the state and the
control (:mod:`kernelbayes.select.regression`, whose metric drops inputs that do not matter), and e
is drawn from the left-out residuals. One regression in d + p coordinates needs far fewer
transitions than a conditional embedding under a product kernel on them.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from functools import reduce
from typing import Literal

import numpy as np

from kernelbayes.arrays import Array, Floats, as_doubles, as_vectors, like, namespace
from kernelbayes.compression import resample
from kernelbayes.embedding import Embedding
from kernelbayes.filters.rule import Ratio
from kernelbayes.filters.sequences import Training
from kernelbayes.filters.step import cut_off, normalised
from kernelbayes.gram import Gram
from kernelbayes.kernels import Kernel
from kernelbayes.points import Names, Points, PointsLike, concatenate, count, in_order, take
from kernelbayes.select.regression import Regression, regress

Transition = Callable[..., PointsLike]
Resampling = Literal["herding", "exchange", "line-search", "fully-corrective", "multinomial"]
# Controls under which the transition is tried out on the training states: enough for the mean
# distance that states move, which sets a ridge on a grid of factors of two.
EXAMPLES = 10


@dataclass(frozen=True, eq=False)
class Mover:
    """A known transition, with random numbers of their own for each use and time.

    The same states then always move alike.
    """

    transition: Transition
    kernel: Kernel  # on states
    seed: int
    timed: bool  # whether the transition is told the time
    names: Names = None  # of the states' columns

    def __call__(
        self, Z: Points, control: Points | None, t: int, use: Literal["learn", "predict", "smooth"]
    ) -> Points:
        """Move each of some states once."""
        rng = np.random.default_rng([self.seed, ("learn", "predict", "smooth").index(use), t])
        known = {"t": t} if self.timed else {}
        if control is not None:
            known["control"] = control
        # A transition may work in place, on rows that are the training states themselves.
        moved = self.transition(deepcopy(Z), rng, **known)
        if count(moved) != count(Z):
            raise ValueError(
                f"transition must return one state per state, got {count(moved)} for {count(Z)}"
            )
        moved = in_order(moved, self.names, "transition(z, rng)", by_name=self.kernel.by_name)
        return self.kernel.points(moved, "transition(z, rng)")


@dataclass(frozen=True, eq=False)
class Moves:
    """Prediction by sampling: points that stand for a belief are moved (KMCF16 Alg. 4)."""

    mover: Mover
    Z: Points
    states: Kernel  # on states, with finite features
    features: Array  # (n, r) of the training states
    to_prior: Array  # (r, r), (L^T L + n eta I)^-1
    rows: Gram
    particles: int
    threshold: float
    picks: int
    method: Resampling = "herding"
    ratio: Ratio | None = None  # another estimate of the weights on the training states
    literal: bool = False  # weights as they come

    def weigh(self, points: Points, weights: Array | None = None) -> Array | None:
        """Weights (n,) on the training states of a sample; None if it is far from all of them."""
        if self.ratio is not None:
            w = like(np.full(count(points), 1.0 / count(points)), self.features)
            return self.ratio(points, w if weights is None else weights)
        F = self.states.features(points)
        mean = namespace(F).mean(F, axis=0) if weights is None else weights @ F
        raw = self.features @ (self.to_prior @ mean)  # KMCF16 Alg. 1, line 3
        gamma = raw if self.literal else normalised(raw)
        return cut_off(raw) if gamma is None else gamma

    def predict(self, W: Array, control: Points | None, t: int) -> Array:
        """Predictions (n, k) at time t, as weights on the training states, from beliefs (n, k)."""
        columns = []
        for j in range(W.shape[1]):
            belief = Embedding(self.Z, W[:, j], self.mover.kernel)
            sample = resample(
                belief, self.particles, threshold=self.threshold, method=self.method,
                picks=self.picks, rows=self.rows, rng=np.random.default_rng([self.mover.seed, t]),
            ).embedding  # fmt: skip
            u = None if control is None else take(control, [j])[0]
            gamma = self.weigh(self.mover(sample.points, u, t, "predict"), sample.weights)
            columns.append(W[:, j] if gamma is None else gamma)  # the sample was left behind
        return namespace(W).stack(columns, axis=1)

    def moved(self, control: Points | None, t: int) -> Array | None:
        """Features (n, r) of the training states moved at time t; None if as at any other."""
        if control is None and not self.mover.timed:
            return None
        u = None if control is None else take(control, [0])[0]
        return self.states.features(self.mover(self.Z, u, t, "smooth"))


@dataclass(frozen=True, eq=False)
class Learned:
    """A transition learned from sequences: increments by regression, noise by residuals."""

    regression: Regression
    centre: Floats  # of state and control (d + p,), and their scale
    spread: Floats
    middle: Floats  # of the increments (d,), and their scale
    unit: Floats
    residuals: Floats  # (m, d), left out

    def __call__(
        self, z: Points, rng: np.random.Generator, control: Points | None = None
    ) -> Points:
        """Move states (k, d), each once, all under one control (p,)."""
        Z = as_doubles(z)
        p = len(self.centre) - Z.shape[1]
        u = np.zeros(0) if control is None else np.ravel(as_doubles(control))
        if len(u) != p:
            raise ValueError(f"the transition was learned with {p} controls, got {len(u)}")
        U = (np.hstack([Z, np.tile(u, (len(Z), 1))]) - self.centre) / self.spread
        noise = self.residuals[rng.integers(len(self.residuals), size=len(Z))]
        return like(Z + self.regression(U) * self.unit + self.middle + noise, z)

    @classmethod
    def from_sequences(cls, data: Training, kernel: Kernel, rng: np.random.Generator) -> Learned:
        """Learn from the transitions of sequences."""
        if not kernel.is_vector:
            raise ValueError(
                "transition=None learns increments, so states must be vectors under a kernel such "
                f"as Gaussian, not {type(kernel).__name__}; give a transition"
            )
        Z = as_doubles(as_vectors(data.Z, "Z"))
        before, inputs = Z[data.source], [Z[data.source]]
        if data.controls is not None:
            inputs.append(as_doubles(as_vectors(data.controls, "controls")))
        U, D = np.hstack(inputs), Z[data.target] - before
        centre, middle = U.mean(axis=0), D.mean(axis=0)
        spread, unit = _scale(U), _scale(D)
        fit = regress((U - centre) / spread, (D - middle) / unit, rng)
        residuals = D - (fit.left_out * unit + middle)
        return cls(fit, centre, spread, middle, unit, residuals - residuals.mean(axis=0))


def _scale(values: Floats) -> Floats:
    """Return the standard deviations of columns; 1 for one that is constant."""
    found = values.std(axis=0)
    return np.where(found > 0.0, found, 1.0)


def try_out(mover: Mover, Z: Points, controls: Points | None) -> Points:
    """Move states by the transition, under examples of controls if there are any."""
    if controls is None:
        return mover(Z, None, 1, "learn")
    n, some = count(Z), min(EXAMPLES, count(controls), count(Z))
    rows = [np.arange(j, n, some) for j in range(some)]
    moved = [
        mover(take(Z, index), take(controls, [j])[0], 1, "learn") for j, index in enumerate(rows)
    ]
    return take(reduce(concatenate, moved), np.argsort(np.concatenate(rows)))
