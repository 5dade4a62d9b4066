r"""The backward step of smoothing: what later observations say about an earlier state.

The belief at time t given everything is the filtered one times, at each state, the mean over the
next state of the ratio of the smoothed belief there to its prediction,

.. math:: p(z_t \mid x_{1:T}) = p(z_t \mid x_{1:t}) \, \mathrm{E} \Big[
          \frac{p(z_{t+1} \mid x_{1:T})}{p(z_{t+1} \mid x_{1:t})} \,\Big|\, z_t \Big] .

Where an observation is unlike the training sample, its state may be too, and beliefs over training
states cannot follow it. What is passed back from there, or to there, does harm. So the smoothed
belief is mixed with the filtered one, by the share that the update did not trust of either
observation.
"""

from dataclasses import dataclass, field, replace
from typing import Any, Self

from kernelbayes.arrays import namespace
from kernelbayes.filters.beliefs import StepInfo
from kernelbayes.filters.model import Dynamics
from kernelbayes.filters.step import normalised, scatter, transition_weights
from kernelbayes.filters.update import Seen, counted
from kernelbayes.points import take
from kernelbayes.select.calibration import Calibration
from kernelbayes.types import Array, Points


@dataclass(frozen=True, eq=False)
class Smoothing:
    """How a filter smooths: by a backward step with this ridge, or not at all.

    ``smoothed`` and ``filtered`` are losses with it and without on blocks of time left out, NaN
    where they are not known; ``calibration`` is of the intervals of what is then answered. Where
    nothing is missing, a filter ``ahead`` that sees later observations takes its place, if any.
    """

    ridge: float
    smoothed: float = float("nan")
    filtered: float = float("nan")
    calibration: Calibration | None = None
    ahead: Any = None  # KernelBayesFilter

    @property
    def gains(self) -> bool:
        """Whether smoothing is better than filtering, as far as is known; else it is left out."""
        return not self.smoothed >= self.filtered


@dataclass(eq=False)
class Run:
    """One sequence on its way: prepared observations and controls, then weights and infos."""

    seen: list[Seen]
    controls: list[Points | None]
    kept: list[int]  # which of the steps, some of them inside gaps, were asked for
    weights: list[Array] = field(default_factory=list)
    infos: list[StepInfo] = field(default_factory=list)

    @classmethod
    def spread(cls, seen: list[Seen], U: Points | None, gaps: list[int]) -> Self:
        """Fill gaps of more than one transition with steps that have no observation."""
        filled: list[Seen] = []
        controls: list[Points | None] = []
        kept = []
        for t, one in enumerate(seen):
            u = None if U is None or t == 0 else take(U, [t - 1])
            filled += [Seen()] * (gaps[t] - 1) + [one]
            controls += [u] * gaps[t]
            kept.append(len(filled) - 1)
        return cls(filled, controls, kept)


def passed_back(
    weights: list[Array], controls: list[Points | None], dynamics: Dynamics, lag: int | None,
    ridge: float, unlike: list[float],
) -> list[Array]:  # fmt: skip
    """Smoothed beliefs (n,) of a sequence, given all observations or those up to ``lag`` later.

    ``unlike`` has the share of each observation that was not trusted.
    """
    last, smooth = len(weights) - 1, list(weights)
    for t in range(last - 1, -1, -1):
        end = t + 1 if lag is None else min(last, t + lag)
        later = smooth[end] if lag is None else weights[end]
        for s in range(end, t, -1):
            kept = max(unlike[s - 1], unlike[s])
            later = backward(dynamics, weights[s - 1], later, controls[s], s, ridge, kept)
        smooth[t] = later
    return smooth


def backward(
    dynamics: Dynamics, w: Array, later: Array, control: Points | None, t: int, ridge: float,
    kept: float = 0.0,
) -> Array:  # fmt: skip
    """Smoothed belief (n,) from the filtered one w and the smoothed one at time t, a step later.

    The belief w is multiplied by the mean, given each state, of the ratio of ``later`` to the
    prediction. Both are embeddings, and the ratio is a regression in the prediction's covariance of
    features (as in Bayes' rule with the next state as observation). Where the two beliefs have no
    transition in common, w stays as it is. Of w, the share ``kept`` stays in any case.
    """
    if kept >= 1.0:
        return w
    if dynamics.simulated is not None:
        moved = dynamics.simulated.moved(control, t)
        dynamics = dynamics if moved is None else replace(dynamics, moved=moved)
    a = transition_weights(dynamics, w, control)
    xp = namespace(a)
    prior = xp.clip(a, min=0.0)
    total = xp.sum(prior)
    if not float(total) > 0.0:
        return w
    solver = dynamics.after.weighted(prior / total, ridge)
    # Errors of one step must not grow over many: negative weights feed them.
    ratio = xp.clip(solver.values_features(dynamics.features.T @ later), min=0.0)
    mean = xp.clip(_mean_after(dynamics, ratio, control), min=0.0)
    result = normalised(xp.clip(w, min=0.0) * mean)
    if result is None:
        return w
    return result if kept == 0.0 else (1.0 - kept) * result + kept * w


def _mean_after(dynamics: Dynamics, values: Array, control: Points | None) -> Array:
    """Means (n,) of values (m,) at the transitions' ends, given each state."""
    if dynamics.shift:
        return scatter(values, dynamics.source, dynamics.n)
    values = counted(dynamics.moving, values)
    if dynamics.controlled is not None:
        return dynamics.controlled.mean_after(values, control)
    return dynamics.features @ (dynamics.transport.T @ (dynamics.before.T @ values))
