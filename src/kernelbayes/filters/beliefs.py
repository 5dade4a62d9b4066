"""Beliefs over time, the state of a filter, and what happened at each step."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal, Self

import numpy as np

from kernelbayes.arrays import Array, namespace
from kernelbayes.embedding import Batch, Embedding
from kernelbayes.filters.pictures import draw_parts, draw_track
from kernelbayes.filters.tables import columns, is_categorical, split
from kernelbayes.kernels import Kernel
from kernelbayes.points import Points

# Weights that sum to less than this share of their sizes nearly cancel: to divide them by their sum
# would magnify rounding, and a mean of such weights lies anywhere.
LEAST_SHARE = 0.1


@dataclass(frozen=True, eq=False)
class StepInfo:
    """How far a step can be trusted: numbers for one step, arrays (T,) for many.

    Attributes
    ----------
    mass : float
        Sum of the posterior weights before they are divided by it. Near 1 where the training
        sample says much about the observation, near 0 outside its support.
    support : float
        Similarity of the observation to the nearest training observation (or landmark of a
        low-rank kernel): 1 on one, 0 where nothing like it was seen. NaN when there was no
        observation.
    ess : float
        Effective sample size of the belief.
    observed : bool
        Whether there was an observation, or a part of one.
    fallback : bool
        Whether the observation could not be trusted, so that the belief is the prediction, a
        mixture of both, or a posterior whose negative weights were cut off because they nearly
        cancelled the others (an effective sample size below one).
    """

    mass: Any
    support: Any
    ess: Any
    observed: Any
    fallback: Any

    def __getitem__(self, index: Any) -> StepInfo:
        """Return the information about one step, or about a slice of them."""
        return StepInfo(*(getattr(self, f.name)[index] for f in fields(self)))

    @classmethod
    def stack(cls, infos: list[StepInfo]) -> StepInfo:
        """Return arrays (T,) of the entries of T steps."""
        return cls(*(np.array([getattr(i, f.name) for i in infos]) for f in fields(cls)))


@dataclass(frozen=True, eq=False)
class FilterState:
    """State of an online filter: immutable, plain data, safe to store between two steps.

    Attributes
    ----------
    t : int
        Time: 0 before the first observation, 1 after it, one more for each transition.
    belief : Embedding
        Over the training states; before the first step, the prior.
    flat : bool
        Whether nothing is known before the first observation, so that it meets all training
        states alike.
    lag : int
        How many past beliefs are kept, for fixed-lag smoothing.
    """

    t: int
    belief: Embedding
    flat: bool = False
    lag: int = 0
    history: tuple[Any, ...] = field(default=(), repr=False)  # (weights, control) of each


@dataclass(frozen=True, eq=False)
class Beliefs(Batch):
    """Beliefs about the states of one sequence: T embeddings over the training states.

    Everything that can be asked of a batch can be asked here: ``mean()`` is (T, d),
    ``interval(level)`` (T, d, 2), ``beliefs[t]`` is an Embedding.

    Attributes
    ----------
    info : StepInfo
        Arrays (T,).
    """

    info: Any = field(default=None, repr=False)

    def __getitem__(self, index: Any) -> Any:
        """Return the belief at one time as an Embedding, or the beliefs of some of the times."""
        chosen = super().__getitem__(index)
        if isinstance(chosen, Beliefs) and self.info is not None:
            return replace(chosen, info=self.info[index])
        return chosen

    def __repr__(self) -> str:
        return f"Beliefs({len(self)} steps over {self.weights.shape[1]} states, {self.kernel!r})"

    def plot(
        self,
        ax: Any = None,
        level: float = 0.9,
        label: str | None = None,
        *,
        truth: Any = None,
        kind: Literal["series", "track"] | None = None,
    ) -> Any:
        """Draw the beliefs over time.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            For a track, one coordinate or categories; more coordinates make axes of their own.
        level : float
            Of the intervals.
        label : str, optional
            For the legend of a track.
        truth : points (T, d), optional
            Drawn beside the beliefs.
        kind : {"series", "track"}, optional
            Coordinates against time with bands (for categories, their probabilities as shades), or
            the path of a 2-d state in the plane with ellipses of one standard deviation; by
            default a track for two coordinates.

        Returns
        -------
        matplotlib Axes, or an array of them
        """
        shape: tuple[int, ...] = getattr(self.points, "shape", ())
        two = len(shape) == 2 and shape[1] == 2 and not is_categorical(self)
        kind = kind or ("track" if two else "series")
        if kind == "track":
            if not two:
                raise ValueError("a track needs a state with two coordinates; use kind='series'")
            return draw_track(self, truth, ax, label)
        if kind != "series":
            raise ValueError(f"kind must be 'series' or 'track', got {kind!r}")
        return draw_parts(self, truth, level, ax)

    def to_frame(self, level: float = 0.9) -> Any:
        """Pandas frame with one row per step.

        For each coordinate the mean and the ends of its interval, ``z0, z0_low, z0_high``; for
        states that are categories the most probable one and the probability of each, ``z0,
        z0_hall, z0_attic``; then the diagnostics of the step. Columns have the names of the frame
        or mapping that the states came from, if there was one.
        """
        try:
            import pandas as pd
        except ImportError as error:
            raise ImportError("frames need pandas: pip install 'kernelbayes[pandas]'") from error
        found: dict[str, Any] = {}
        for part in split(self):
            found |= columns(part, level)
        if self.info is not None:
            found |= {f.name: getattr(self.info, f.name) for f in fields(StepInfo)}
        return pd.DataFrame(found, index=pd.RangeIndex(len(self), name="t"))

    @classmethod
    def of(
        cls, points: Points, weights: Array, kernel: Kernel, names: Any, infos: list[StepInfo]
    ) -> Self:
        """Beliefs from weights (T, n) and what happened at each step."""
        return cls(points, weights, kernel, names, None, StepInfo.stack(infos))


def normalised(weights: Array) -> Array | None:
    """Weights (n,) divided by their sum; None if they say nothing or are not finite."""
    xp = namespace(weights)
    mass, size = float(xp.sum(weights)), float(xp.sum(xp.abs(weights)))
    if not np.isfinite(size) or mass <= LEAST_SHARE * size or size == 0.0:
        return None
    return weights / mass


def cut_off(weights: Array) -> Array | None:
    """Weights (n,) without the negative ones, divided by their sum; None if nothing is left."""
    return normalised(namespace(weights).clip(weights, min=0.0))


def check_lag(lag: int) -> None:
    """Raise unless a lag is a whole number of steps."""
    if int(lag) != lag or lag < 0:
        raise ValueError(f"lag must be a whole number of at least 0, got {lag!r}")
