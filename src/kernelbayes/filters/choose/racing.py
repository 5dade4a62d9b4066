"""Candidates: settings of a filter that filter held-out parts side by side.

A candidate learns from all parts of the training sequences but one and filters stretches of the one
held out, in turn. In a :func:`~kernelbayes.select.search.race` one that is clearly worse than the
best so far is given up, so that a poor candidate costs little. What candidates start from is a
plain list of arguments of the filter (``bases``); anything that a filter takes may be in it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import clone

from kernelbayes.arrays import quiet
from kernelbayes.filters.choose.holdout import (
    STRETCHES,
    Judge,
    filtered_losses,
    learn,
    stretches,
)
from kernelbayes.filters.loop import Filter
from kernelbayes.filters.sequences import Part
from kernelbayes.points import count
from kernelbayes.select.search import Trial, race
from kernelbayes.tables import Table
from kernelbayes.types import Floats

# A candidate is given up when it is worse than the best by so many standard errors: about the 5 %
# level of a two-sided test.
GIVE_UP = 2.0
# A move goes on only if it gains a thousandth: less is chance, and its end is nowhere.
LEAST_GAIN = 1e-3
# Moves of one number in one direction at most: twenty decades of a ridge, ten octaves of a
# bandwidth. Where losses are rounding errors, gains have no end.
MOST_MOVES = 20
# Smaller ridges are rounding errors of matrices whose largest eigenvalue may be one.
LEAST_RIDGE = 1e-10
OPTIONS = ("memory", "tempering", "lags", "order", "features")  # shown in the table if they vary

Arguments = dict[str, Any]  # of a filter


class Setting(NamedTuple):
    """A candidate: arguments (their number), multiples of the bandwidths of x and z, ridges."""

    base: int
    x: float
    z: float
    ridge: float
    prior: float
    transition: float

    @property
    def key(self) -> tuple[float, ...]:
        """Equal for settings that differ by rounding."""
        return self.base, *(round(math.log(value), 6) for value in self[1:])

    def moved(self, **factors: float) -> Setting:
        """Return the setting with some numbers multiplied."""
        return self._replace(**{name: getattr(self, name) * f for name, f in factors.items()})


@dataclass(eq=False)
class Candidate:
    """A setting in a race: its row in the table, and the filters fitted without each part."""

    at: Setting
    row: dict[str, Any]
    losses: Floats = field(default_factory=lambda: np.empty(0))
    models: dict[int, Filter] = field(default_factory=dict)


Entry = Trial[Candidate]


def gains(found: Entry, best: Entry) -> bool:
    """Whether one is better than the best by more than chance; scores may have either sign."""
    return found.score < (1.0 - math.copysign(LEAST_GAIN, best.score)) * best.score


def clearly_better(found: Entry, best: Entry, errors: float = 1.0) -> bool:
    """Whether one is better than the best by more than so many standard errors."""
    worse, error = found.behind(best)
    return worse + errors * error < 0.0


@dataclass(eq=False)
class Races:
    """What candidates are scored on, and what is known of those that were."""

    model: Filter  # what candidates are copies of
    groups: list[list[Part]]  # parts of the sequences, held out in turn
    judge: Judge
    bases: list[Arguments] = field(default_factory=list)  # that candidates start from
    turns: int = STRETCHES  # stretches of each part that are filtered
    ahead: int = 0  # predictions so many steps ahead are scored as well
    bar: Any = field(init=False, default=None)
    give_up: float = field(init=False, default=GIVE_UP)
    # What is filtered of a part that is held out, if not the part itself.
    met: dict[int, list[Part]] = field(init=False, default_factory=dict)
    # By number of arguments and of a part: those that are learned from data, without that part.
    apart: dict[int, dict[int, Arguments]] = field(init=False, default_factory=dict)
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
        """Stretches of all held-out parts, each with the number of its part; parts take turns."""
        parts = {i: self.met.get(i, self.groups[i]) for i in self.held_out}
        found = [[(i, s) for s in stretches(parts[i])] for i in self.held_out]
        longest = min(self.turns, max(map(len, found)))
        return [part[k] for k in range(longest) for part in found if k < len(part)]

    @cached_property
    def steps(self) -> int:
        """Steps of all held-out parts."""
        return sum(count(s.X) for _, sequences in self.stretches for s in sequences)

    def whole(self) -> Races:
        """Races in which all filter the whole of each part; arguments and table are shared."""
        other = Races(self.model, self.groups, self.judge, self.bases, ahead=self.ahead)
        other.table, other.give_up = self.table, math.inf
        other.stretches = [(i, self.groups[i]) for i in self.held_out]
        return other

    def enter(self, base: Arguments) -> Setting:
        """Add arguments to those that candidates start from; the setting without a change."""
        self.bases.append(base)
        transition = float(base.get("transition_ridge") or base["prior_ridge"])
        return Setting(
            len(self.bases) - 1, 1.0, 1.0, base["ridge"], base["prior_ridge"], transition
        )

    def parameters(self, at: Setting, without: int | None = None) -> Arguments:
        """Return the arguments of a candidate, learned from all parts or from all but one."""
        chosen = dict(self.bases[at.base])
        if without is not None:
            chosen |= self.apart.get(at.base, {}).get(without, {})
        for name, factor in (("kernel_x", at.x), ("kernel_z", at.z)):
            if factor != 1.0:
                chosen[name] = chosen[name].scaled(factor)
        chosen |= {"ridge": at.ridge, "prior_ridge": at.prior}
        if "transition_ridge" in self.model.get_params(deep=False):
            chosen["transition_ridge"] = at.transition
        return chosen

    def race(
        self,
        settings: list[Setting],
        leader: Entry | None = None,
        keep: Callable[[int, int], int | None] | None = None,
    ) -> Entry:
        """Best of some new settings and the leader, which has filtered all parts.

        ``keep(i, running)`` says how many go on after stretch i.
        """
        new = {at.key: at for at in settings if at.key not in self.seen}
        found = race(
            [self._start(at) for at in new.values()], self._filter, self.stretches,
            leader=leader, give_up=self.give_up, keep=keep,
        )  # fmt: skip
        done = [trial for trial in found if len(trial.losses) == self.steps]
        self.complete |= {trial.candidate.at.key: trial for trial in done}
        return found[0]

    def _start(self, at: Setting) -> Candidate:
        base = self.bases[at.base]
        row = {"kernel_x": base["kernel_x"].label, **at._asdict()}
        row |= {name: base[name] for name in OPTIONS if name in base}
        self.table.append({**row, "score": math.inf, "steps": 0, "chosen": False})
        self.seen.add(at.key)
        return Candidate(at, self.table[-1])

    def _filter(self, entrant: Candidate, stretch: tuple[int, list[Part]]) -> Entry:
        """Let a candidate filter one stretch more."""
        part, sequences = stretch
        with quiet():  # a poor candidate may well have numerical trouble
            if part not in entrant.models:
                entrant.models[part] = self.blank(self.parameters(entrant.at, part))
                learn(entrant.models[part], self.without(part))
            new = filtered_losses(entrant.models[part], sequences, self.judge, self.ahead)
        entrant.losses = np.concatenate([entrant.losses, new])
        entrant.row["steps"] = len(entrant.losses)
        self.spent += len(new) / self.steps
        if self.bar is not None:
            self.bar.update(len(new) / self.steps)
        trial = Trial(entrant, entrant.losses)
        if len(trial.losses) == self.steps:
            entrant.row["score"] = trial.score
            entrant.models.clear()
        return trial

    def along(self, best: Entry, factors: dict[str, float], limit: float = math.inf) -> Entry:
        """Move some numbers up, or else down, for as long as that helps and passes are left."""
        first, down = best, {name: 1.0 / factor for name, factor in factors.items()}
        for step in (factors, down):
            for _ in range(MOST_MOVES):
                if self.spent + 1.0 > limit:
                    break
                at = best.candidate.at.moved(**step)
                if min(at.prior, at.transition, at.ridge) < LEAST_RIDGE:
                    break
                found = self.race([at], best)
                if not gains(found, best):
                    break
                best = found
            if best is not first:
                break
        return best

    def middle(self, best: Entry, affordable: bool = True) -> Entry:
        """Candidate in the middle of those within a standard error of the best, if it is one."""
        near = []
        for trial in self.complete.values():
            worse, error = trial.behind(best)
            if trial.candidate.at.base == best.candidate.at.base and worse <= error:
                near.append(trial.candidate.at[1:])
        # What all have in common, such as a ridge that is given, stays as it is to the last bit.
        common = np.ptp(near, axis=0) == 0.0
        values = np.where(common, best.candidate.at[1:], np.exp(np.mean(np.log(near), axis=0)))
        middle = Setting(best.candidate.at.base, *map(float, values))
        if affordable:
            self.race([middle], best)
        found = self.complete.get(middle.key, best)
        worse, error = found.behind(best)
        return found if worse <= error else best

    def blank(self, chosen: Arguments) -> Filter:
        """Return an unfitted candidate; landmarks are the same for all, so that scores compare."""
        model: Filter = clone(self.model).set_params(**chosen)
        if hasattr(model, "intervals"):
            model.set_params(intervals="plain")
        return model.set_params(rng=0) if model.rng is None else model
