r"""What a filter with no argument chooses: a small race on blocks of time that are left out.

A closed form for one step (each state predicted from the one before it, known exactly, its own pair
left out) chooses badly for many: starting from a known state it favours ignoring x, and leaving out
single pairs whose neighbours in time are nearly the same, it favours no ridge at all. So settings
are judged by what they are for. The sequences are cut into four blocks, and candidates learn from
three of them and filter the fourth. The loss is the squared error of the mean, each column of the
state in units of its spread, and a little of that of predictions a few steps ahead from filtered
beliefs.

1. Candidates are all combinations of kernels on x (whole vectors, and a scale for each column, at
   several bandwidths), on z (a scale for each column, at several bandwidths) and ridges. They race:
   after each stretch of a block the worse half is given up.
2. From the best one, the ridges of prior and transition and the kernel on controls are moved, one
   at a time. Among the kernels on controls is one so wide that they are ignored.
3. Options challenge the best: velocity, windows, regressions, exponents
   (:mod:`~kernelbayes.filters.choose.options`).
4. The middle of all that are within a standard error of the best is taken, if it is as good.
5. It meets filters with wide kernels and regressions without memory on whole blocks
   (:mod:`~kernelbayes.filters.choose.final`): what is chosen is not clearly worse on them.

To save time, candidates have a low rank and at most some 1500 pairs. What is given (a kernel, a
ridge) is kept, and only the rest is chosen.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from itertools import product
from typing import TYPE_CHECKING

import numpy as np
from array_api_compat import is_array_api_obj

from kernelbayes.arrays import as_vectors, quiet, to_numpy
from kernelbayes.filters.beliefs import Beliefs
from kernelbayes.filters.choose.blocks import (
    LARGE_RANK,
    MOST_EXACT,
    RACE_RANK,
    TURNS,
    blocks_of,
    left_out,
    on_a_line,
    plain_copy,
    with_truth,
)
from kernelbayes.filters.choose.final import Final, best_regression
from kernelbayes.filters.choose.holdout import Judge, calibrated, judge_of
from kernelbayes.filters.choose.options import PLAIN, WIDTHS_ESTIMATES, Challenge
from kernelbayes.filters.choose.racing import Arguments, Entry, Races
from kernelbayes.filters.encode.encoder import ESTIMATES
from kernelbayes.filters.encode.regression import targets
from kernelbayes.filters.loop import filtered
from kernelbayes.filters.missing import split_missing
from kernelbayes.filters.sequences import Part, join
from kernelbayes.kernels import Gaussian, Kernel
from kernelbayes.kernels.default import default_kernel
from kernelbayes.points import count
from kernelbayes.select.calibration import Calibration
from kernelbayes.tables import Table
from kernelbayes.types import Floats, Points, PointsLike

if TYPE_CHECKING:
    from kernelbayes.filters.bayes import KernelBayesFilter

# Bandwidths that race, in multiples of the root mean square distance of two points: octaves. Those
# of states reach further down: on a recorded track the best bandwidth was a ninth of the median
# distance, with long rests it was above a standard deviation. No single one serves both.
WIDTHS_X = (0.25, 0.5, 1.0)
WIDTHS_Z = (1 / 32, 1 / 16, 1 / 8, 1 / 4, 1 / 2, 1.0)
# Factors of one move from the best of them: a decade for ridges, half an octave for bandwidths.
FIRST_MOVES = {"ridge": 10.0, "prior": 10.0, "transition": 10.0, "z": 2.0**0.5, "x": 2.0**0.5}
# Bandwidths on controls: the first one races, the others are tried after that; the last is so wide
# that controls are ignored.
WIDTHS_U = (0.5, 0.125, 0.25, 1.0, 2.0, 1e4)
# Without enough data to leave out, the middle of the above. Ridges start there by
# judgement: moves of a decade lead away, so that a start two decades off costs two of them.
WIDTH_X, WIDTH_Z, MIDDLE_RIDGE, MIDDLE_PRIOR = 0.5, 0.25, 1e-2, 1e-4
# Candidates that go to the end: the fewest that have a middle.
FINALISTS = 3
# Steps ahead that predictions are scored at: the length of an outage, by judgement.
AHEAD = 3
# Values of a column below the first and above the last of these quantiles count as those: one in a
# hundred may be an outlier, as everywhere (OUTLYING of rules/support.py).
INNER = (0.005, 0.995)


@dataclass(frozen=True, eq=False)
class Choice:
    """Arguments of a filter that were given or chosen, and how."""

    arguments: Arguments
    why: dict[str, str]
    table: Table = field(default_factory=Table)
    others: list[Arguments] = field(default_factory=list)  # nearly as good, the better first
    calibration: Calibration | None = None  # of intervals, by the blocks that were left out


def choose(model: KernelBayesFilter, parts: list[Part]) -> Choice:
    """Fill in what is not given: kernels, ridges and rank."""
    data = join(parts)
    given = {name: getattr(model, name) for name in NAMES}
    why, n = {}, count(data.Z)
    if model.rank is None and n > MOST_EXACT:
        given["rank"] = LARGE_RANK
        why["rank"] = (
            f"{LARGE_RANK}: {n} training rows, and above {MOST_EXACT} exact steps are slow"
        )
    # Estimates of the state have its units.
    seen = data.X
    if model.features in ESTIMATES:
        seen = targets(data.Z, model.kernel_z or default_kernel(data.Z, "Z"))
    first = _first_guess(given, seen, data.Z, data.controls, model.method)
    # Options race with the rest, but not alone: with all else given, the filter is the plain one.
    complete = all(first[name] is given[name] for name in NAMES if name not in PLAIN)
    if complete:
        choice, asked = Choice(first, why), model.intervals == "calibrated"
        return _with_intervals(choice, model, parts, data.Z) if asked else choice
    try:
        groups = blocks_of(model, parts)
    except ValueError as error:  # too short, or coordinates that only one part has
        why["settings"] = f"the middle of what is usual, since nothing can be left out: {error}"
        return Choice(first, why)
    judge = judge_states(first["kernel_z"], data.Z)
    races = Races(model, groups, judge, turns=TURNS, ahead=AHEAD)
    best = _race(races, given, seen, data.Z, data.controls)
    best.candidate.row["chosen"] = True
    why["settings"] = (
        f"the best of {len(races.table)} on {len(races.held_out)} blocks of time left out in turn"
    )
    # The best without options is among the others, unless it is the best of all.
    done = sorted(races.complete.values(), key=lambda trial: trial.score)
    done.sort(key=lambda trial: not PLAIN.items() <= races.bases[trial.candidate.at.base].items())
    chosen, *others = (
        {**given, **races.parameters(trial.candidate.at), "rank": given["rank"]}
        for trial in (best, *(trial for trial in done if trial is not best))
    )
    choice = Choice(chosen, why, races.table, others[: FINALISTS - 1])
    return _with_intervals(choice, model, parts, data.Z)


def _with_intervals(
    choice: Choice, model: KernelBayesFilter, parts: list[Part], Z: Points
) -> Choice:
    """Return a choice with what corrects intervals: where the states of blocks left out lie."""
    if model.intervals == "plain" or model.literal:
        return choice
    if not on_a_line(choice.arguments["kernel_z"], Z):
        return replace(choice, why={**choice.why, "intervals": "plain: states are not on a line"})
    try:
        with quiet():  # about blocks that the user has not asked about
            groups = blocks_of(model, parts, fill=False)
            found = left_out(plain_copy(model, choice.arguments), groups)
    except ValueError as error:  # as above, or with holes that were filled for the race
        told = f"plain: nothing can be left out: {error}"
        return replace(choice, why={**choice.why, "intervals": told})
    beliefs = [filtered(block.model, block.runs) for block in found]
    calibration = calibrated(with_truth(beliefs, found))
    why = {**choice.why, "intervals": f"corrected by {calibration!r}"}
    return replace(choice, why=why, calibration=calibration)


NAMES = (
    "kernel_x", "kernel_z", "kernel_u", "ridge", "prior_ridge", "transition_ridge", "rank", *PLAIN,
)  # fmt: skip


def _race(races: Races, given: Arguments, X: Points, Z: Points, controls: Points | None) -> Entry:
    """Race of all candidates, then moves of one number at a time from the best."""
    rank = min(RACE_RANK, given["rank"] or RACE_RANK)
    bases = candidates(races, given, X, Z, controls)
    settings = [races.enter({**base, "rank": rank}) for base in bases]
    best = races.race(settings, keep=lambda _, running: max(FINALISTS, -(-running // 2)))
    if controls is not None and given["kernel_u"] is None:
        at = races.parameters(best.candidate.at)
        kernels = scaled_kernels(controls, WIDTHS_U[1:], "controls")
        others = [races.enter({**at, "kernel_u": kernel}) for kernel in kernels]
        best = races.race(others, best)
    free = {
        "ridge": given["ridge"], "prior": given["prior_ridge"],
        "transition": given["transition_ridge"], "z": given["kernel_z"], "x": given["kernel_x"],
    }  # fmt: skip
    for name, value in free.items():
        if value is None or isinstance(value, str):
            best = races.along(best, {name: FIRST_MOVES[name]})
    vectors = bases[0]["kernel_z"].is_vector
    estimates = scaled_kernels(Z, WIDTHS_ESTIMATES, "Z") if vectors else []
    challenge = Challenge(races, given, estimates, split_missing(X)[1] is None)
    best = races.middle(challenge.run(best))
    own = min(LARGE_RANK, given["rank"] or LARGE_RANK)
    return best if races.model.literal else Final(challenge, bases, own).run(best)


def candidates(
    races: Races, given: Arguments, X: Points, Z: Points, controls: Points | None
) -> list[Arguments]:
    """Arguments that race: a plain list, to which any others may be added."""
    first = _first_guess(given, X, Z, controls, races.model.method)
    kernels = {name: [first[name]] for name in ("kernel_x", "kernel_z")}
    if given["kernel_z"] is None:
        kernels["kernel_z"] = scaled_kernels(Z, WIDTHS_Z, "Z")
    if given["kernel_x"] is None:
        kinds = [scaled_kernels(X, WIDTHS_X, whole=whole) for whole in (False, True)]
        if kinds[0] != kinds[1] and given["features"] not in ESTIMATES:
            kinds.sort(key=lambda kind: best_regression(races, kind, first["kernel_z"])[0])
        kernels["kernel_x"] = kinds[0]
    return [
        {**first, **dict(zip(kernels, some, strict=True))} for some in product(*kernels.values())
    ]


def _first_guess(
    given: Arguments, X: Points, Z: Points, controls: Points | None, method: str
) -> Arguments:
    """Arguments with what is not given at a middle value."""
    found = dict(given)
    for name, points, width in (("kernel_x", X, WIDTH_X), ("kernel_z", Z, WIDTH_Z)):
        if found[name] is None:
            found[name] = scaled_kernels(points, (width,), name[-1].upper())[0]
    if controls is not None and found["kernel_u"] is None:
        found["kernel_u"] = scaled_kernels(controls, WIDTHS_U[:1], "controls")[0]
    ridge = MIDDLE_RIDGE**2 if method == "original" else MIDDLE_RIDGE
    for name, value in (
        ("ridge", ridge),
        ("prior_ridge", MIDDLE_PRIOR),
        ("transition_ridge", MIDDLE_PRIOR),
        *PLAIN.items(),
    ):
        if isinstance(found[name], str) and found[name] == "auto":
            found[name] = value
    return found


def scaled_kernels(
    X: Points, widths: tuple[float, ...], name: str = "X", whole: bool = False
) -> list[Kernel]:
    """Gaussian kernels with a scale for each column, or one for ``whole`` vectors.

    Bandwidths are multiples of the root mean square distance of two points (in units of the
    columns' spreads). Points that are not vectors of numbers have one kernel only.
    """
    numbers = is_array_api_obj(X) and X.ndim <= 2
    if not numbers or (isinstance(X, np.ndarray) and X.dtype.kind not in "fiu"):
        return [default_kernel(X, name)]
    s = spreads(X)
    if whole or len(s) == 1 or np.ptp(s) == 0.0:
        distance = math.sqrt(2.0 * float(np.sum(s**2)))
        return [Gaussian(width * distance) for width in widths]
    distances = math.sqrt(2.0 * len(s)) * s
    return [Gaussian(tuple(map(float, width * distances))) for width in widths]


def spreads(X: Points) -> Floats:
    """Return the standard deviation (d,) of each column, outliers aside; never zero."""
    U = np.asarray(to_numpy(as_vectors(split_missing(X)[0])), dtype=float)
    known = split_missing(X)[1]
    U = U if known is None else np.where(known, U, np.nan)
    low, high = np.nanquantile(U, INNER, axis=0)
    s = np.nanstd(np.clip(U, low, high), axis=0)
    s = np.where(s > 0.0, s, np.nanstd(U, axis=0))  # a column that is rarely not zero
    return np.where(s > 0.0, s, float(np.max(s)) or 1.0)


def judge_states(kernel: Kernel, Z: Points) -> Judge:
    """Return the loss of beliefs about states: squared error in units of spreads, or RKHS."""
    if not kernel.is_vector:
        return judge_of("error", kernel)
    scale = spreads(Z)

    def error(beliefs: Beliefs, Z: PointsLike) -> Floats:
        mean = np.asarray(to_numpy(beliefs.mean()), dtype=float)
        truth = np.asarray(to_numpy(as_vectors(Z, "Z")), dtype=float)
        off = (mean.reshape(truth.shape) - truth) / scale
        return np.asarray(np.mean(np.minimum(off**2, np.finfo(float).max), axis=1))

    return error
