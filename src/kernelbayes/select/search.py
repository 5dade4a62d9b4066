r"""The two searches of the library, and the table of what a search has tried.

:func:`coarse_to_fine` minimises a score over one scale (a bandwidth, in multiples of a first
guess). :func:`race` compares candidates on parts of held-out data, one part after the other, and
gives up early on those that fall behind: a poor candidate costs little. Both minimise.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Generic, TypeVar

import numpy as np
from tqdm.auto import tqdm

from kernelbayes.tables import Row, Table
from kernelbayes.types import Floats

C = TypeVar("C")  # a candidate
P = TypeVar("P")  # a part of the data
# Multiples of the first guess that are tried first: two octaves to each side, the nearest first.
COARSE = (1.0, 2.0, 0.5, 4.0, 0.25)


def coarse_to_fine(
    at: Callable[[float], C], score: Callable[[C], Row], budget: float, bar: Any = None, *,
    start: Sequence[float] = COARSE, finest: float = 1.1, narrowest: float = 0.0,
    widest: float = math.inf, parallel: bool = False,
) -> Table:  # fmt: skip
    """Search over one scale: coarse steps, then outward or finer around the best.

    ``at(scale)`` is the candidate at a scale, e.g. ``kernel.scaled``; one that does not change is
    scored once. ``score(candidate)`` is a row with at least ``"score"``; smaller is better. At most
    ``budget`` scales between ``narrowest`` and ``widest`` are tried, ``start`` first; from the best
    of them steps are a factor of 2, later its roots down to ``finest``. With ``parallel`` the first
    ones are scored wherever :func:`mapped` does: ``score`` then changes nothing but its result.

    Returns the rows in the order tried, each with its ``"scale"``; ``best`` is the result.
    """
    if budget < 1:
        raise ValueError(f"budget must be at least 1, got {budget}")
    table = Table()

    def visit(*scales: float) -> None:
        candidates = map(at, scales)
        rows = mapped(score, candidates) if parallel and len(scales) > 1 else map(score, candidates)
        for scale, row in zip(scales, rows, strict=True):
            table.append({"scale": scale, **row})
            if bar is not None:
                bar.update()

    if at(2.0) == at(1.0):
        visit(1.0)
        return table
    visit(*start[: int(min(budget, len(start)))])
    factor = 2.0
    while len(table) < budget and factor >= finest:
        best, seen = table.best["scale"], [row["scale"] for row in table]
        for scale in (best * factor, best / factor):
            if narrowest <= scale < 1.001 * widest and not np.any(np.isclose(scale, seen)):
                visit(scale)
                break
        else:
            factor = factor**0.5
    return table


@dataclass(frozen=True, eq=False)
class Trial(Generic[C]):
    """A candidate of a race, with its losses (m,) so far, which count as ``counts`` (m,) say."""

    candidate: C
    losses: Floats
    counts: Floats | None = None

    @property
    def score(self) -> float:
        """Mean loss; infinite if there is none."""
        if len(self.losses) == 0:
            return math.inf
        if self.counts is None:
            return float(np.mean(self.losses))
        return float(np.average(self.losses, weights=self.counts))

    def behind(self, other: Trial[C]) -> tuple[float, float]:
        """By how much it is worse on the losses that both have, and the standard error of that."""
        both = min(len(self.losses), len(other.losses))
        mine, others = (trial.losses[:both] for trial in (self, other))
        broken = [not np.all(np.isfinite(losses)) for losses in (mine, others)]
        if any(broken):
            return (0.0 if all(broken) else math.inf if broken[0] else -math.inf), 0.0
        return float(np.mean(mine - others)), float(np.std(mine - others)) / math.sqrt(both)


def race(
    candidates: Iterable[C], score: Callable[[C, P], Trial[C]], parts: Sequence[P], *,
    leader: Trial[C] | None = None, give_up: float = math.inf,
    keep: Callable[[int, int], int | None] | None = None,
) -> list[Trial[C]]:  # fmt: skip
    """Compare candidates on one part of the data after the other; the worse ones stop early.

    ``score(candidate, part)`` is the trial of a candidate after a part: all losses so far. Its
    candidate, which may be a refined one, goes on. A candidate stops when it is worse than the best
    by more than ``give_up`` standard errors of the difference, or not among the best
    ``keep(i, running)`` after part i (None means all). ``leader`` has been through all parts.
    Returns trials, best first, then those that stopped, the last to stop first.
    """
    score_of = attrgetter("score")
    running, finished = list(candidates), [] if leader is None else [leader]
    stopped: list[Trial[C]] = []
    for i, part in enumerate(parts if running else ()):
        trials = [score(candidate, part) for candidate in running]
        if i + 1 == len(parts):
            finished += trials
            break
        on = trials
        if give_up < math.inf:
            front = min([*trials, *finished], key=lambda trial: trial.behind(trials[0])[0])
            gaps = [trial.behind(front) for trial in trials]
            on = [t for t, gap in zip(trials, gaps, strict=True) if gap[0] <= give_up * gap[1]]
        limit = keep(i, len(on)) if keep is not None and on else None
        if limit is not None:
            on = sorted(on, key=score_of)[:limit]
        stopped = sorted((trial for trial in trials if trial not in on), key=score_of) + stopped
        running = [trial.candidate for trial in on]
        if not running:
            break
    return sorted(finished, key=score_of) + stopped


def backend() -> Any:
    """Backend of joblib, if ``joblib.parallel_config`` asks for more than one job; or None."""
    from joblib.parallel import get_active_backend

    found, jobs = get_active_backend()
    return None if (found.default_n_jobs if jobs is None else jobs) == 1 else found


def mapped(function: Callable[[P], C], items: Iterable[P]) -> Iterable[C]:
    """Results in order, computed here or by the backend that ``joblib.parallel_config`` names."""
    by = backend()
    if by is None:
        return map(function, items)
    from joblib import Parallel, delayed

    how = "generator" if by.supports_return_generator else "list"
    found: Iterable[C] = Parallel(return_as=how)(delayed(function)(item) for item in items)
    return found


def progress_bar(total: float, description: str, progress: bool | None = None) -> Any:
    """Progress bar, by default shown when a person is watching (a terminal or a notebook)."""
    if progress is None:
        progress = sys.stderr.isatty() or "ipykernel" in sys.modules
    return tqdm(total=total, desc=description, disable=not progress, leave=False)
