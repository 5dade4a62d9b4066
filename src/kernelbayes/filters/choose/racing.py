"""Candidates of tuning: settings of a filter that filter held-out parts side by side.

A candidate learns from all parts of the training sequences but one and filters the one held out,
stretch by stretch, in turn. In a :func:`~kernelbayes.select.search.race` one that is clearly
worse than the best so far is given up, so that a poor candidate costs little.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import clone

from kernelbayes.arrays import Floats, Ints
from kernelbayes.filters.bayes import KernelBayesFilter
from kernelbayes.filters.choose.holdout import Judge, controls_of, filtered_losses, learn, stretches
from kernelbayes.filters.loop import Filter, run_all, smooth_all
from kernelbayes.filters.sequences import Part
from kernelbayes.kernels import Kernel
from kernelbayes.points import count
from kernelbayes.select.search import Trial, race
from kernelbayes.tables import Table

# A candidate is given up when it is worse than the best by so many standard errors: about the 5 %
# level of a two-sided test.
GIVE_UP = 2.0
# Ridges of the backward step of smoothing to choose from: half decades around the range of 0.01 to
# 0.3 that suits states with little and with much noise of their own.
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
class Candidate:
    """A setting in a race: its row in the table, and the filter fitted without the present part."""

    at: Setting
    row: dict[str, Any]
    losses: Floats = field(default_factory=lambda: np.empty(0))
    part: int | None = None
    model: Filter | None = None


Entry = Trial[Candidate]


@dataclass(eq=False)
class Races:
    """What candidates are scored on, and what is known of those that were."""

    model: Filter  # what candidates are copies of
    groups: list[list[Part]]  # parts of the sequences, held out in turn
    kernels: list[Kernel] = field(init=False)  # on observations, that candidates choose from
    # By number of a kernel and of a part: the kernel learned without that part, if it is learned.
    apart: dict[int, dict[int, Kernel]] = field(init=False, default_factory=dict)
    kernel_z: Kernel = field(init=False)
    judge: Judge = field(init=False)
    bar: Any = field(init=False)
    table: Table = field(init=False, default_factory=Table)  # one row for each candidate
    spent: float = field(init=False, default=0.0)  # passes over the held-out parts so far
    # Trials of candidates that filtered all parts.
    complete: dict[tuple[float, ...], Entry] = field(init=False, default_factory=dict)
    seen: set[tuple[float, ...]] = field(init=False, default_factory=set)

    @property
    def every(self) -> list[Part]:
        """All sequences."""
        return [s for group in self.groups for s in group]

    def without(self, part: int) -> list[Part]:
        """All sequences but those of one part."""
        return [s for i, group in enumerate(self.groups) if i != part for s in group]

    @cached_property
    def held_out(self) -> list[int]:
        """Numbers of the parts that are held out in turn."""
        # Pairs without transitions are a part that is always learned from.
        return [i for i, group in enumerate(self.groups) if count(group[0].X) > 1]

    @cached_property
    def stretches(self) -> list[tuple[int, list[Part]]]:
        """Stretches of all held-out parts in order, each with the number of its part."""
        return [(i, found) for i in self.held_out for found in stretches(self.groups[i])]

    @cached_property
    def ends(self) -> Ints:
        """Steps filtered when each part is done."""
        return np.cumsum([sum(count(s.X) for s in self.groups[i]) for i in self.held_out])

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
        self, settings: list[Setting], leader: Entry | None = None, *, halving: bool = False
    ) -> Entry:
        """Best of some new settings and the leader, which has filtered all parts.

        With ``halving`` the worse half is given up after each part.
        """
        last = [i for i, (part, _) in enumerate(self.stretches[1:]) if part != self.stretches[i][0]]
        found = race(
            [self._enter(at) for at in settings if at.key not in self.seen],
            self._filter,
            self.stretches,
            leader=leader,
            give_up=GIVE_UP,
            keep=lambda i, running: -(-running // 2) if halving and i in last else None,
        )
        done = [trial for trial in found if len(trial.losses) == self.ends[-1]]
        self.complete |= {trial.candidate.at.key: trial for trial in done}
        return found[0]

    def price(self, rivals: int) -> float:
        """Count the passes that a race with halving takes at most."""
        price = 0.0
        for share in np.diff([0, *self.ends]) / self.ends[-1]:
            price += rivals * share
            rivals = -(-rivals // 2)
        return price

    def _enter(self, at: Setting) -> Candidate:
        row = {"kernel_x": self.kernels[at.kernel].label, **at._asdict()}
        del row["kernel"]
        self.table.append({**row, "score": math.inf, "steps": 0, "chosen": False})
        self.seen.add(at.key)
        return Candidate(at, self.table[-1])

    def _filter(self, entrant: Candidate, stretch: tuple[int, list[Part]]) -> Entry:
        """Let a candidate filter one stretch more."""
        part, sequences = stretch
        if entrant.part != part:
            entrant.part, entrant.model = part, self.blank(self.parameters(entrant.at, part))
            learn(entrant.model, self.without(part))
        assert entrant.model is not None
        new = filtered_losses(entrant.model, sequences, self.judge)
        entrant.losses = np.concatenate([entrant.losses, new])
        entrant.row["steps"] = len(entrant.losses)
        self.spent += len(new) / self.ends[-1]
        self.bar.update(len(new) / self.ends[-1])
        trial = Trial(entrant, entrant.losses)
        if len(trial.losses) == self.ends[-1]:
            entrant.row["score"], entrant.model = trial.score, None
        return trial

    def back_ridge(self, chosen: dict[str, Any]) -> float:
        """Ridge of the backward step whose smoothed held-out parts have the least loss."""
        totals = np.zeros(len(BACK_RIDGES))
        for i in self.held_out:
            model, sequences = self.blank(chosen), self.groups[i]
            learn(model, self.without(i))
            runs = run_all(model, [s.X for s in sequences], controls_of(sequences), None, False)
            for j, ridge in enumerate(BACK_RIDGES):
                beliefs = smooth_all(model.set_params(back_ridge=ridge), runs)
                pairs = zip(beliefs, sequences, strict=True)
                loss = sum(float(np.sum(self.judge(b, s.Z))) for b, s in pairs)
                totals[j] += loss if math.isfinite(loss) else math.inf
        return BACK_RIDGES[int(np.argmin(totals))]

    def blank(self, chosen: dict[str, Any]) -> Filter:
        """Return an unfitted candidate; landmarks are the same for all, so that scores compare."""
        model: Filter = clone(self.model).set_params(**chosen)
        return model.set_params(rng=0) if model.rng is None else model
