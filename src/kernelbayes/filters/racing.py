"""Races of candidates in tuning a filter.

Candidates filter the left-out parts of the training sequences side by side, stretch by stretch. One
that is clearly worse than the leader so far is given up, so that a poor candidate costs little.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import clone

from kernelbayes.filters.bayes import KernelBayesFilter
from kernelbayes.filters.holdout import (
    Judge,
    Part,
    filtered_losses,
    learn,
    stretches,
)
from kernelbayes.filters.loop import run_all, smooth_all
from kernelbayes.kernels import Kernel
from kernelbayes.points import count
from kernelbayes.select import Table

# A candidate is given up when it is worse than the leader by so many standard errors.
GIVE_UP = 2.0
# Ridges of the backward step of smoothing to choose from.
BACK_RIDGES = (1e-3, 3e-3, 1e-2, 3e-2, 1e-1, 3e-1, 1.0)


class Setting(NamedTuple):
    """A candidate: kernel on x (its number), multiples of its bandwidth and that of z, ridges."""

    kernel: int
    x: float
    z: float
    ridge: float
    prior: float

    @property
    def key(self) -> tuple[float, ...]:
        """Equal for settings that differ by rounding."""
        return self.kernel, *(round(math.log(value), 6) for value in self[1:])


@dataclass(eq=False)
class Trial:
    """A candidate in a race: losses of the steps filtered so far, and how to go on."""

    at: Setting
    more: Iterator[Any]
    row: dict[str, Any]
    losses: Any = field(default_factory=lambda: np.empty(0))

    @property
    def score(self) -> float:
        """Mean loss so far."""
        return float(np.mean(self.losses)) if len(self.losses) else math.inf

    def behind(self, other: Trial) -> tuple[float, float]:
        """By how much it is worse on the steps both have filtered, and the standard error."""
        both = min(len(self.losses), len(other.losses))
        mine, others = self.losses[:both], other.losses[:both]
        broken = [not np.all(np.isfinite(losses)) for losses in (mine, others)]
        if any(broken):
            return (0.0 if all(broken) else math.inf if broken[0] else -math.inf), 0.0
        return float(np.mean(mine - others)), float(np.std(mine - others)) / math.sqrt(both)


@dataclass(eq=False)
class Races:
    """What candidates are scored on, and what is known of those that were.

    Attributes
    ----------
    model : filter
        What candidates are copies of.
    groups : list of lists of sequences
        Parts, left out in turn.
    kernels : list of Kernel
        On observations, that candidates choose from.
    apart : dict
        By number of a kernel and of a part: the kernel learned without that part, if it is learned.
    kernel_z : Kernel
    judge : callable
        Beliefs and true states to losses.
    table : list of dict
        One row for each candidate.
    spent : float
        Passes over the left-out parts so far.
    """

    model: Any
    groups: list[list[Part]]
    kernels: list[Kernel] = field(init=False)
    apart: dict[int, dict[int, Kernel]] = field(init=False, default_factory=dict)
    kernel_z: Kernel = field(init=False)
    judge: Judge = field(init=False)
    bar: Any = field(init=False)
    table: Table = field(init=False, default_factory=Table)
    spent: float = field(init=False, default=0.0)
    complete: dict[tuple[float, ...], Trial] = field(init=False, default_factory=dict)
    seen: set[tuple[float, ...]] = field(init=False, default_factory=set)

    @property
    def every(self) -> list[Part]:
        """All sequences."""
        return [s for group in self.groups for s in group]

    def without(self, part: int) -> list[Part]:
        """All sequences but those of one part."""
        return [s for i, group in enumerate(self.groups) if i != part for s in group]

    @cached_property
    def left_out(self) -> list[tuple[int, list[list[Part]]]]:
        """Numbers of the parts that are left out in turn, and their stretches."""
        # Pairs without transitions are a part that is always learned from.
        long = [(i, group) for i, group in enumerate(self.groups) if count(group[0].X) > 1]
        return [(i, stretches(group)) for i, group in long]

    @cached_property
    def ends(self) -> Any:
        """Steps filtered when each part is done."""
        return np.cumsum([sum(count(s.X) for s in self.groups[i]) for i, _ in self.left_out])

    @property
    def steps(self) -> int:
        """Steps of all left-out parts."""
        return int(self.ends[-1])

    def parameters(self, at: Setting, without: int | None = None) -> dict[str, Any]:
        """Return the arguments of a candidate, learned from all parts or from all but one."""
        kernel_x = self.kernels[at.kernel]
        if without is not None:
            kernel_x = self.apart.get(at.kernel, {}).get(without, kernel_x)
        chosen: dict[str, Any] = {
            "kernel_x": kernel_x.scaled(at.x),
            "kernel_z": self.kernel_z.scaled(at.z),
            "ridge": at.ridge,
            "prior_ridge": at.prior,
        }
        if isinstance(self.model, KernelBayesFilter):
            chosen["transition_ridge"] = at.prior
        return chosen

    def race(
        self, settings: list[Setting], leader: Trial | None = None, *, halving: bool = False
    ) -> Trial:
        """Best of some new settings and the leader, all of whose losses are known."""
        running = [self._enter(at) for at in settings if at.key not in self.seen]
        finished = [] if leader is None else [leader]
        while running:
            for trial in running:
                self._advance(trial)
            front = min([*running, *finished], key=lambda t: t.behind(running[0])[0])
            finished += [t for t in running if t.at.key in self.complete]
            running = [t for t in running if t.at.key not in self.complete and _close(t, front)]
            if halving and running and len(running[0].losses) in self.ends:
                running.sort(key=lambda t: t.score)
                running = running[: -(-len(running) // 2)]
        return min(finished, key=lambda t: t.score)

    def price(self, rivals: int) -> float:
        """Count the passes that a race with halving takes at most."""
        price = 0.0
        for share in np.diff([0, *self.ends]) / self.steps:
            price += rivals * share
            rivals = -(-rivals // 2)
        return price

    def _enter(self, at: Setting) -> Trial:
        row = {"kernel_x": self.kernels[at.kernel].label, **at._asdict()}
        del row["kernel"]
        self.table.append({**row, "score": math.inf, "steps": 0, "chosen": False})
        self.seen.add(at.key)
        return Trial(at, self._stretch_losses(at), self.table[-1])

    def _advance(self, trial: Trial) -> None:
        """Filter one stretch more."""
        new = next(trial.more)
        trial.losses = np.concatenate([trial.losses, new])
        trial.row["steps"] = len(trial.losses)
        self.spent += len(new) / self.steps
        self.bar.update(len(new) / self.steps)
        if len(trial.losses) == self.steps:
            trial.row["score"] = trial.score
            self.complete[trial.at.key] = trial
            trial.more = iter(())  # lets go of the fitted model

    def _stretch_losses(self, at: Setting) -> Iterator[Any]:
        for i, found in self.left_out:
            model = self.blank(self.parameters(at, without=i))
            learn(model, self.without(i))
            for sequences in found:
                yield filtered_losses(model, sequences, self.judge)

    def back_ridge(self, chosen: dict[str, Any]) -> float:
        """Ridge of the backward step whose smoothed left-out parts have the least loss."""
        totals = np.zeros(len(BACK_RIDGES))
        for i, _ in self.left_out:
            model = self.blank(chosen)
            learn(model, self.without(i))
            totals += smoothed_losses(model, self.groups[i], self.judge, BACK_RIDGES)
        return BACK_RIDGES[int(np.argmin(totals))]

    def blank(self, chosen: dict[str, Any]) -> Any:
        """Return an unfitted candidate; landmarks are the same for all, so that scores compare."""
        model = clone(self.model).set_params(**chosen)
        return model.set_params(rng=0) if model.rng is None else model


def smoothed_losses(
    model: Any, sequences: list[Part], judge: Judge, ridges: tuple[float, ...]
) -> Any:
    """Return the sum of the losses of smoothed sequences for each ridge of the backward step."""
    controls = None if sequences[0].controls is None else [s.controls for s in sequences]
    runs = run_all(model, [s.X for s in sequences], controls, None, False)
    totals = []
    for ridge in ridges:
        found = smooth_all(model.set_params(back_ridge=ridge), runs)
        losses = [np.sum(judge(b, s.Z)) for b, s in zip(found, sequences, strict=True)]
        totals.append(float(np.sum(losses)))
    return np.where(np.isfinite(totals), totals, np.inf)


def _close(trial: Trial, front: Trial) -> bool:
    worse, error = trial.behind(front)
    return worse <= GIVE_UP * error
