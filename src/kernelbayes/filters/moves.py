r"""How states move when that is sampled from: a known transition, or one learned from sequences.

A **learned transition** is z' = z + f(z, u) + e: the increment is regressed on the state and the
control (:mod:`kernelbayes.select.regression`, whose metric drops inputs that do not matter), and e
is drawn from the left-out residuals. One regression in d + p coordinates needs far fewer
transitions than a conditional embedding under a product kernel on them.
"""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import TYPE_CHECKING, Any, Literal, Self, get_args

import numpy as np

from kernelbayes.arrays import as_doubles, as_vectors, like, namespace, total, widened
from kernelbayes.compression import resample
from kernelbayes.embedding import Embedding
from kernelbayes.filters.sequences import Training
from kernelbayes.filters.step import cut_off, normalised
from kernelbayes.gram import Gram
from kernelbayes.gram.loo import loo_subset
from kernelbayes.kernels import Kernel
from kernelbayes.points import concatenate, count, doubled, in_order, option, take
from kernelbayes.rules.ratio import Method, density_ratio
from kernelbayes.rules.support import nearest_similarity
from kernelbayes.select.regression import Regression, regress
from kernelbayes.types import Array, Floats, Names, Points, PointsLike

if TYPE_CHECKING:
    from kernelbayes.filters.loop import Filter

Transition = Callable[..., PointsLike]
Resampling = Literal["herding", "exchange", "line-search", "fully-corrective", "multinomial"]
# Controls under which the transition is tried out on the training states: enough for the mean
# distance that states move, which sets a ridge on a grid of factors of two.
EXAMPLES = 10
# Particles have left the training states when less than this share of the usual mass arrives there:
# nine in ten are nowhere near, and dividing by the mass would make all of the belief of the rest.
ARRIVED = 0.1
# Particles whose distance to the training states is looked at: the share that has left them is then
# known to 0.05, for the cost of as many rows of a Gram matrix.
LOOKED_AT_PARTICLES = 100
# Training states that say how far apart neighbours usually are, as for observations.
SUPPORT_STATES = 500


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
        """Move each of some states once; the transition gets them as they were given to fit."""
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
        return doubled(self.kernel.points(moved, "transition(z, rng)"))


@dataclass(frozen=True, eq=False)
class Ratio:
    """Prior weights on the training states by an estimate of the density ratio of the two."""

    method: Method
    kernel: Kernel
    Z: Points
    ridge: float

    def __call__(self, points: Points, weights: Array) -> Array | None:
        """Weights (n,) of a weighted sample; None if it is far from all training states."""
        given = Embedding(points, weights, self.kernel)
        found = density_ratio(given, self.Z, self.kernel, self.method, self.ridge, rng=0)
        total = namespace(weights).sum(found.at_denominator)
        return found.at_denominator / total if float(total) > 0.0 else None

    def of_weights(self, v: Array) -> Array | None:
        """Weights (n,) of weighted training states."""
        return self(self.Z, v)


def ratio_of(model: "Filter") -> Ratio | None:
    """Return how a fitted filter estimates prior weights; None is KuLSIF, which is linear."""
    method = option(model.ratio, "ratio", get_args(Method))
    if method == "kulsif":
        return None
    if model.method != "importance":
        raise ValueError(
            f"ratio={method!r} gives importance weights; use method='importance', or 'kulsif'"
        )
    return Ratio(method, model.kernel_z_, doubled(model.Z_), model.prior_ridge_)


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
    # Where features are from that others hold: files keep these instead.
    ends: Points = None  # (n, ...), the training states moved once
    eta: float | None = None  # the ridge of ``to_prior``

    def weigh(self, points: Points, weights: Array | None = None) -> Array | None:
        """Weights (n,) on the training states of a sample; None if it is far from all of them."""
        if self.ratio is not None:
            w = like(np.full(count(points), 1.0 / count(points)), self.features)
            return self.ratio(points, w if weights is None else weights)
        F = self.states.features(points)
        mean = namespace(F).mean(F, axis=0) if weights is None else weights @ F
        raw = self.features @ (self.to_prior @ mean)  # KMCF16 Alg. 1, line 3
        if self.literal:
            return raw
        if not float(total(raw)) > ARRIVED * self._usual_mass:
            return None
        gamma = normalised(raw)
        return cut_off(raw) if gamma is None else gamma

    @cached_property
    def _fine(self) -> Points:
        """Training states as doubles; transitions get them as they are."""
        return doubled(self.Z)

    @cached_property
    def _usual_mass(self) -> float:
        """Sum of the weights of a sample that lies on the training states: themselves."""
        mean = total(self.features, axis=0) / self.features.shape[0]
        return float(total(self.features @ (self.to_prior @ mean)))

    def outside(self, points: Points, weights: Array) -> float:
        """Share of a sample, of some of it, further from any training state than is usual."""
        m, w = count(points), np.abs(as_doubles(weights))
        some = np.unique(np.linspace(0, m - 1, min(m, LOOKED_AT_PARTICLES)).astype(int))
        near = as_doubles(nearest_similarity(self.mover.kernel, take(points, some), self._fine))
        return float(w[some] @ (near < self._usual_support)) / max(float(w[some].sum()), 1e-300)

    @cached_property
    def _usual_support(self) -> float:
        """Similarity at twice the distance within which 99 % of the training states have another.

        Twice the distance is, for a Gaussian kernel, the fourth power of the similarity.
        """
        chosen = loo_subset(count(self.Z), SUPPORT_STATES)
        K = as_doubles(self.mover.kernel(take(self._fine, chosen), self._fine))
        K = K / np.sqrt(np.outer(self.rows.diag[chosen], self.rows.diag) + np.finfo(float).tiny)
        K[np.arange(len(chosen)), chosen] = 0.0
        return float(np.quantile(K.max(axis=1), 0.01)) ** 4

    def predict(self, W: Array, control: Points | None, t: int) -> tuple[Array, Floats]:
        """Predictions (n, k) at time t, as weights on the training states, from beliefs (n, k).

        Also which share (k,) has left the training states. All of it: any state may come next.
        """
        columns, lost = [], np.ones(W.shape[1])
        for j in range(W.shape[1]):
            belief = Embedding(self.Z, W[:, j], self.mover.kernel)
            rng = np.random.default_rng([self.mover.seed, t])
            how: Any = {"threshold": self.threshold, "method": self.method, "picks": self.picks}
            sample = resample(belief, self.particles, rows=self.rows, rng=rng, **how).embedding
            u = None if control is None else take(control, [j])[0]
            moved = self.mover(sample.points, u, t, "predict")
            gamma = self.weigh(moved, sample.weights)
            if gamma is None:
                columns.append(namespace(W).ones_like(W[:, j]) / W.shape[0])
            else:
                columns.append(gamma)
                lost[j] = 0.999 * self.outside(moved, sample.weights)  # not all: it was weighed
        return namespace(W).stack(columns, axis=1), lost

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
        return like(Z + self.regression(U) * self.unit + self.middle + noise, widened(z))

    @classmethod
    def from_sequences(cls, data: Training, kernel: Kernel, rng: np.random.Generator) -> Self:
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
    each = ((take(Z, index), take(controls, [j])[0]) for j, index in enumerate(rows))
    moved = [mover(*one, 1, "learn") for one in each]
    return take(reduce(concatenate, moved), np.argsort(np.concatenate(rows)))
