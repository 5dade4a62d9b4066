"""Beliefs over time, the state of a filter, and what happened at each step."""

from __future__ import annotations

import reprlib
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np

from kernelbayes.arrays import to_numpy
from kernelbayes.embedding import Batch, Embedding, export
from kernelbayes.embedding.core import Index
from kernelbayes.kernels import Kernel
from kernelbayes.plot.filters import draw_parts, draw_track
from kernelbayes.points import same_value
from kernelbayes.select.calibration import Calibration
from kernelbayes.tables import as_frame, distinct
from kernelbayes.types import Array, Floats, Points, PointsLike

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame

    from kernelbayes.filters.loop import Filter

Start = Literal["uniform", "observation"] | None


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
        Whether the observation could not be fully trusted. The belief is then the prediction, a
        mixture with the prediction, or a posterior at a larger ridge (importance rule) or without
        its negative weights, since these nearly cancelled the others (an effective sample size
        below one).
    rescued : bool
        Whether the matrix of Bayes' rule was not numerically positive definite. Its ridge was then
        raised; a NaN in ``mass`` says that this did not help, and the observation was dropped.
    reset : bool
        Whether the belief before had left the training sample, so that there was no prediction:
        all training states were equally likely before the observation.
    prior_share : float
        Share of the prediction in the belief for want of support: 0 for an observation inside the
        training sample, 1 where nothing like it was seen (:mod:`kernelbayes.rules.support`). NaN
        when there was no observation.
    left : float
        Share of the prediction that has left the training sample, where states cannot be
        represented: of the particles of a Monte Carlo filter, those further from any training state
        than two neighbours usually are. 1 with ``reset``; a warning says where it is above 0.9.
    """

    mass: Any
    support: Any
    ess: Any
    observed: Any
    fallback: Any
    rescued: Any = False
    reset: Any = False
    prior_share: Any = float("nan")
    left: Any = 0.0

    def __getitem__(self, index: Index) -> StepInfo:
        """Return the information about one step, or about a slice of them."""
        return StepInfo(*(getattr(self, f.name)[index] for f in fields(self)))

    @classmethod
    def stack(cls, infos: list[StepInfo]) -> StepInfo:
        """Return arrays (T,) of the entries of T steps."""
        return cls(*(np.array([getattr(i, f.name) for i in infos]) for f in fields(cls)))


@dataclass(frozen=True, eq=False, repr=False)
class Belief(Embedding):
    """Belief of a filter about one state: an embedding over the training states."""

    letter = "z"


@dataclass(frozen=True, eq=False)
class FilterState:
    """State of an online filter: immutable, plain data, safe to store between two steps.

    Attributes
    ----------
    t : int
        Time: 0 before the first observation, 1 after it, one more for each transition.
    belief : Embedding
        Over the training states; before the first step, the prior.
    unknown : {"uniform", "observation"} or None
        Where nothing is known before the first observation: whether all training states are taken
        to be equally likely, or the first belief is the regression on the observation.
    lag : int
        How many past beliefs are kept, for fixed-lag smoothing.
    """

    t: int
    belief: Embedding
    unknown: Start = None
    lag: int = 0
    unlike: float = 0.0  # share of the last observation that was not trusted
    history: tuple[Any, ...] = field(default=(), repr=False)  # (weights, control, unlike) of each

    past: Array | None = field(default=None, repr=False)  # the last observations, for lags


def check_state(state: FilterState, model: Filter) -> None:
    """Raise unless a state is one of this filter's."""
    if not isinstance(state, FilterState):
        raise TypeError(
            f"a FilterState is needed, from start() or the step before, got {reprlib.repr(state)}"
        )
    belief = state.belief
    if belief.points is model.Z_:
        return
    if belief.kernel != model.kernel_z_ or not same_value(belief.points, model.Z_):
        raise ValueError(
            "this state belongs to another filter: its belief is over other training states, or "
            "under another kernel; begin with start() of the filter that makes the step"
        )


@dataclass(frozen=True, eq=False)
class Beliefs(Batch):
    """Beliefs about the states of one sequence: T embeddings over the training states.

    Everything that can be asked of a batch can be asked here: ``mean()`` is (T, d),
    ``interval(level)`` (T, d, 2), ``beliefs[t]`` is an Embedding.

    States are categories under the ``Delta`` kernel, whatever they are coded by, and wherever they
    are not numbers (strings). Ask for their :meth:`probabilities` instead of their mean.

    Attributes
    ----------
    info : StepInfo
        Arrays (T,).
    calibration : Calibration or None
        What corrects :meth:`interval`, if anything does.
    """

    info: StepInfo | None = field(default=None, repr=False)
    letter = "z"

    def __getitem__(self, index: Index) -> Any:
        """Return the belief at one time as an Embedding, or the beliefs of some of the times."""
        chosen = super().__getitem__(index)
        if not isinstance(chosen, Beliefs):
            belief = chosen.points, chosen.weights, chosen.kernel, chosen.names
            return Belief(*belief, calibration=self.calibration)
        return chosen if self.info is None else replace(chosen, info=self.info[index])

    def __repr__(self) -> str:
        return f"Beliefs({len(self)} steps over {self.weights.shape[1]} states, {self.kernel!r})"

    @cached_property
    def categorical(self) -> bool:
        """Whether the states are categories."""
        return export.is_categorical(self)

    @cached_property
    def coordinates(self) -> tuple[str, ...]:
        """Names of the coordinates: those of the frame that the states came from, or z0, z1 ..."""
        d = 1 if self.categorical else self.points.shape[1]
        return self.names or tuple(f"z{j}" for j in range(d))

    def parts(self) -> list[Self]:
        """Beliefs about each part of states with named parts; otherwise the beliefs themselves."""
        return export.parts(self)

    def probabilities(self) -> tuple[list[Any], Floats]:
        """Categories in order, and their probabilities (T, number of categories).

        Those of ``valid()``: not negative, each row sums to one, the same as ``prob`` gives.
        """
        return export.probabilities(self)

    def plot(
        self,
        ax: Axes | None = None,
        level: float = 0.9,
        label: str | None = None,
        *,
        truth: PointsLike = None,
        kind: Literal["series", "track"] | None = None,
    ) -> Any:
        """Draw the beliefs over time.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            For a track (two of a 3-d state), one coordinate or categories; more coordinates make
            axes of their own.
        level : float
            Of the intervals.
        label : str, optional
            For the legend of a track.
        truth : points (T, d), optional
            Drawn beside the beliefs.
        kind : {"series", "track"}, optional
            Coordinates against time with bands (for categories, their probabilities as shades), or
            the path of a state in the plane with ellipses of one standard deviation, of a 3-d
            state in two planes; by default a track for two or three coordinates without angles.

        Returns
        -------
        matplotlib Axes, or an array of them
        """
        shape: tuple[int, ...] = getattr(self.points, "shape", ())
        few = len(shape) == 2 and shape[1] in (2, 3) and not self.categorical
        flat = few and not any(self.kernel.periods(shape[1]))
        kind = kind or ("track" if flat else "series")
        if kind == "track":
            if not few:
                raise ValueError("a track needs two or three coordinates; use kind='series'")
            return draw_track(self, truth, ax, label)
        if kind != "series":
            raise ValueError(f"kind must be 'series' or 'track', got {kind!r}")
        return draw_parts(self, truth, level, ax)

    def to_frame(self, level: float = 0.9) -> DataFrame:
        """Pandas frame with one row per step.

        For each coordinate the mean and the ends of its interval, ``z0, z0_low, z0_high``; for
        states that are categories the most probable one and the probability of each, ``z0,
        z0_hall, z0_attic``; then the diagnostics of the step. Columns have the names of the frame
        or mapping that the states came from, if there was one; where such a name is taken (a state
        called "mass"), what is added to it gets a number, ``mass_2``.
        """
        columns = [column for part in self.parts() for column in part._columns(level)]
        states = distinct(name for name, _, _ in columns)
        taken = set(states)
        found: dict[str, Any] = {}
        for state, (_, values, beside) in zip(states, columns, strict=True):
            labels = distinct((f"{state}_{label}" for label in beside), taken)
            taken |= set(labels)
            found |= {state: values, **dict(zip(labels, beside.values(), strict=True))}
        if self.info is not None:
            names = [f.name for f in fields(StepInfo)]
            values = [getattr(self.info, name) for name in names]
            found |= dict(zip(distinct(names, found), values, strict=True))
        frame = as_frame(found)
        frame.index.name = distinct(["t"], found)[0]
        return frame

    def _columns(self, level: float) -> list[tuple[str, Any, dict[Any, Any]]]:
        """Name and column (T,) of each coordinate, and what stands beside it by its suffix.

        Best category and probabilities, or mean and interval.
        """
        if self.categorical:
            labels, P = self.probabilities()
            best = np.empty(len(labels), dtype=object)
            best[:] = labels  # tuples stay whole
            shares = {label: P[:, j] for j, label in enumerate(labels)}
            return [(self.coordinates[0], best[np.argmax(P, axis=1)], shares)]
        mean, ends = to_numpy(self.mean()), to_numpy(self.interval(level))
        return [
            (name, mean[:, j], {"low": ends[:, j, 0], "high": ends[:, j, 1]})
            for j, name in enumerate(self.coordinates)
        ]

    @classmethod
    def of(
        cls,
        points: Points,
        weights: Array,
        kernel: Kernel,
        names: tuple[str, ...] | None,
        infos: list[StepInfo],
        calibration: Calibration | None = None,
    ) -> Self:
        """Beliefs from weights (T, n) and what happened at each step."""
        info = StepInfo.stack(infos)
        return cls(points, weights, kernel, names, info=info, calibration=calibration)


@dataclass(frozen=True, eq=False, repr=False)
class Forecast(Beliefs):
    """Beliefs about the states of the next steps, with those about the observations.

    Attributes
    ----------
    observations : Beliefs
        Over the training observations: the kernel mean of each predicted observation.
    """

    observations: Beliefs | None = field(default=None, repr=False)


class ManyBeliefs(list[Beliefs]):
    """Beliefs about the states of many sequences: a list that answers for all of them.

    ``many[s]`` are the Beliefs of one sequence. Every question to those can be asked here and is
    answered by a list, one entry for each sequence: ``many.mean()`` has arrays (T_s, d).
    """

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or not hasattr(Beliefs, name):
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
        found = [getattr(one, name) for one in self]
        if not callable(getattr(Beliefs, name, None)):
            return found

        def ask(*args: Any, **options: Any) -> list[Any]:
            return [one(*args, **options) for one in found]

        return ask

    def to_frame(self, level: float = 0.9) -> DataFrame:
        """Pandas frame with one row per step, indexed by the number of the sequence and by t."""
        frames = [one.to_frame(level) for one in self]  # says if pandas is missing
        import pandas as pd

        return pd.concat(frames, keys=range(len(self)), names=["sequence"])
