"""Sequences on their way through a filter: observations made ready, beliefs so far."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from array_api_compat import is_array_api_obj

from kernelbayes.arrays import Array, namespace, to_numpy
from kernelbayes.filters.beliefs import Beliefs, StepInfo
from kernelbayes.filters.observation import Observations
from kernelbayes.filters.sequences import numbers_with_holes
from kernelbayes.points import Points, as_array, take


@dataclass(frozen=True, eq=False)
class Step:
    """One observation, made ready: kernel values, support, and which kernel they belong to."""

    observed: bool
    support: float = float("nan")
    column: Array = None
    observations: Observations = None  # type: ignore[assignment]


@dataclass(eq=False)
class Run:
    """One sequence on its way: prepared observations and controls, then weights and infos."""

    steps: list[Step]
    controls: list[Points | None]
    kept: list[int]  # which of the steps, some of them inside gaps, were asked for
    weights: list[Array] = field(default_factory=list)
    infos: list[StepInfo] = field(default_factory=list)

    @classmethod
    def spread(cls, steps: list[Step], U: Points | None, gaps: list[int]) -> Run:
        """Fill gaps of more than one transition with steps that have no observation."""
        filled: list[Step] = []
        controls: list[Points | None] = []
        kept = []
        for t, step in enumerate(steps):
            u = None if U is None or t == 0 else take(U, [t - 1])
            filled += [Step(False)] * (gaps[t] - 1) + [step]
            controls += [u] * gaps[t]
            kept.append(len(filled) - 1)
        return cls(filled, controls, kept)

    def keep(self, beliefs: Beliefs) -> Beliefs:
        """Leave out the steps inside gaps."""
        if len(self.kept) == len(self.steps):
            return beliefs
        weights = take(beliefs.weights, self.kept)
        return replace(beliefs, weights=weights, info=beliefs.info[np.asarray(self.kept)])


def check_gaps(gaps: Any, length: int) -> list[int]:
    """Transitions before each of ``length`` steps; the first counts as one."""
    if gaps is None:
        return [1] * length
    values = np.asarray(to_numpy(as_array(gaps))).ravel()
    used = values[1:]
    if len(values) != length or not np.all((used >= 1) & (used == np.floor(used))):
        raise ValueError(f"gaps must be {length} whole numbers of at least 1, got {gaps!r}")
    return [1, *(int(g) for g in used)]


def as_row(x: Any) -> Points:
    """One point as a sequence of length one."""
    if x is None:
        return None
    if isinstance(x, Mapping):
        return {key: as_row(part) for key, part in x.items()}
    if isinstance(x, str):
        return [x]
    array = numbers_with_holes(as_array(x))
    return array[None, ...] if is_array_api_obj(array) else [x]


def point_at(X: Points, t: int) -> Any:
    """Return one point of a sequence; None if there are none."""
    if X is None:
        return None
    if isinstance(X, Mapping):
        return {key: point_at(part, t) for key, part in X.items()}
    return X[t, ...] if is_array_api_obj(X) else X[t]


def stack_rows(rows: list[Any]) -> Points:
    """Join sequences of length one."""
    if isinstance(rows[0], Mapping):
        return {key: stack_rows([row[key] for row in rows]) for key in rows[0]}
    if isinstance(rows[0], list):
        return [item for row in rows for item in row]
    return namespace(*rows).concat(rows, axis=0)


def effective_size(w: Array) -> float:
    """Effective sample size of weights that sum to one."""
    return float(1.0 / namespace(w).sum(w**2))
