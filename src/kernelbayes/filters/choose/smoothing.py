"""The ridge of the backward step, and what smoothing gains: chosen on blocks of time left out.

States with little noise of their own need a smaller ridge than noisy ones (0.01 against 0.3 in the
models tried), and a ridge that is best for one step is too small for many. So blocks are left out
as in :mod:`~kernelbayes.filters.choose.default`, filtered, and passed back under several ridges.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from sklearn.base import clone

from kernelbayes.arrays import NumericalWarning
from kernelbayes.filters.beliefs import Beliefs
from kernelbayes.filters.choose.default import (
    LEAST_STEPS,
    LEFT_OUT_BLOCKS,
    RACE_RANK,
    TURNS,
    judge_states,
    subsample,
    whole_rows,
)
from kernelbayes.filters.choose.holdout import Judge, controls_of, cut, learn, stretches
from kernelbayes.filters.loop import run_all, smooth_all
from kernelbayes.filters.sequences import Part
from kernelbayes.points import count

if TYPE_CHECKING:
    from kernelbayes.filters.bayes import KernelBayesFilter

# The first ridge tried, within the range of the models above, and the factor to the next:
# half decades.
FIRST_BACK, BACK_FACTOR = 0.1, 10.0**0.5
# Ridges beyond these are not tried: three and a half decades below the first and two above, where
# the backward regression is all but unregularised, or all but the prior.
BACK_RANGE = (3e-5, 10.0)


@dataclass(frozen=True)
class Smoothing:
    """A ridge of the backward step; losses of smoothing with it and of filtering (NaN: unknown)."""

    ridge: float
    smoothed: float = float("nan")
    filtered: float = float("nan")

    @property
    def gains(self) -> bool:
        """Whether smoothing is better than filtering, as far as is known."""
        return not self.smoothed >= self.filtered


def choose_smoothing(model: KernelBayesFilter, parts: list[Part]) -> Smoothing:
    """Ridge with the least loss of smoothing blocks that the filter has not learned from."""
    with warnings.catch_warnings():  # about blocks that the user has not asked about
        warnings.simplefilter("ignore", NumericalWarning)
        return _chosen(model, parts)


def _chosen(model: KernelBayesFilter, parts: list[Part]) -> Smoothing:
    some, chosen = whole_rows(subsample(parts)), model.choice_.arguments
    rank = min(RACE_RANK, chosen["rank"] or RACE_RANK)
    blank = clone(model).set_params(**chosen).set_params(back_ridge=FIRST_BACK, rank=rank, rng=0)
    try:
        X, Z = [s.X for s in some], [s.Z for s in some]
        groups = cut(X, Z, controls_of(some), LEFT_OUT_BLOCKS, model)
    except ValueError:  # nothing can be left out
        return Smoothing(FIRST_BACK)
    if sum(count(s.X) for s in some if count(s.X) > 1) < LEAST_STEPS:
        return Smoothing(FIRST_BACK)
    judge = judge_states(model.kernel_z_, model.Z_)
    found, filtered = [], 0.0
    for i, group in enumerate(groups):
        if count(group[0].X) == 1:
            continue
        other = clone(blank)
        learn(other, [s for j, rest in enumerate(groups) if j != i for s in rest])
        for sequences in stretches(group)[:TURNS]:
            X, u = [s.X for s in sequences], controls_of(sequences)
            runs = run_all(other, X, u, None, False)
            found.append((other, runs, sequences))
            filtered += _total(judge, other.filter(X, u, progress=False), sequences)

    def loss(ridge: float) -> float:
        return sum(
            _total(judge, smooth_all(other.set_params(back_ridge=ridge), runs), sequences)
            for other, runs, sequences in found
        )

    best, least = FIRST_BACK, loss(FIRST_BACK)
    for factor in (1.0 / BACK_FACTOR, BACK_FACTOR):
        moved = False
        while BACK_RANGE[0] < best * factor < BACK_RANGE[1]:
            new = loss(best * factor)
            if not new < least:
                break
            best, least, moved = best * factor, new, True
        if moved:
            break
    steps = sum(count(s.X) for _, _, sequences in found for s in sequences)
    return Smoothing(best, least / steps, filtered / steps)


def _total(judge: Judge, beliefs: list[Beliefs], sequences: list[Part]) -> float:
    """Sum of the losses of all steps; infinite where one is not finite."""
    pairs = zip(beliefs, sequences, strict=True)
    total = sum(float(np.sum(judge(b, s.Z))) for b, s in pairs)
    return total if np.isfinite(total) else float("inf")
