"""Blocks of time that are left out: a filter learns from the others and runs over the one.

The default choices, the ridge of smoothing and the correction of intervals all rest on these. To
save time, long recordings are thinned and holes are filled before they are cut into blocks.
"""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from sklearn.base import clone

from kernelbayes.filters.beliefs import Beliefs
from kernelbayes.filters.choose.holdout import controls_of, cut, learn, stretches
from kernelbayes.filters.encode.lags import check_lags
from kernelbayes.filters.encode.regression import targets
from kernelbayes.filters.encode.track import trackable
from kernelbayes.filters.loop import Filter, run_all
from kernelbayes.filters.missing import split_missing
from kernelbayes.filters.sequences import Part, join, pieces_of
from kernelbayes.filters.smooth import Run
from kernelbayes.kernels import Kernel
from kernelbayes.kernels.default import default_kernel
from kernelbayes.points import count
from kernelbayes.types import Points

if TYPE_CHECKING:
    from kernelbayes.filters.bayes import KernelBayesFilter

# Blocks of time, left out in turn: a quarter each, of which two stretches are filtered. Three
# quarters are learned from, nearly as much as in the end (KBR13 section 5.3 has halves).
LEFT_OUT_BLOCKS, TURNS = 4, 2
# Fewer steps than this are not left out: a block would have fewer than five.
LEAST_STEPS = 20
# Pairs of candidates at most, in sequences and without transitions, and their rank r: an update
# takes n r^2 operations, here some 10^7, about a millisecond.
MOST_STEPS, MOST_PAIRS, RACE_RANK = 1200, 400, 100
# More rows than this get a low rank: the cost of an exact update grows like the cube of the rows,
# and is tens of milliseconds at 2000 (benchmarks/run.py filters). The rank is three times what the
# race uses, a judgement and not a measurement. What is left out to correct intervals has both.
MOST_EXACT, LARGE_RANK = 2000, 300
# Pieces that long sequences are cut into, of which some are kept: a little longer than the shortest
# stretch that is judged (SHORTEST).
PIECE = 60


class Block(NamedTuple):
    """Sequences of a block, and what a filter that has not learned from it makes of them."""

    model: Filter
    runs: list[Run]
    sequences: list[Part]


def blocks_of(model: KernelBayesFilter, parts: list[Part], fill: bool = True) -> list[list[Part]]:
    """Sequences in blocks of time; a ValueError where nothing can be left out.

    With ``fill``, holes are filled and few steps kept, which is enough to compare candidates.
    Errors of beliefs, which intervals and smoothing rest on, differ with holes and with fewer data.
    """
    some = whole_rows(subsample(parts)) if fill else subsample(parts, MOST_EXACT)
    X, Z = [s.X for s in some], [s.Z for s in some]
    groups = cut(X, Z, controls_of(some), LEFT_OUT_BLOCKS, model)
    if sum(count(s.X) for s in some if count(s.X) > 1) < LEAST_STEPS:
        raise ValueError(f"fewer than {LEAST_STEPS} steps")
    longest = sorted(max(count(s.X) for s in group) for group in groups)
    if not isinstance(model.lags, str) and longest[-2] < check_lags(model.lags):
        raise ValueError(f"pieces of {longest[-2]} steps are shorter than the window of lags")
    if model.features == "tracked":
        q = targets(some[0].Z, model.kernel_z or default_kernel(some[0].Z, "Z")).shape[1]
        for group in groups:
            left = [count(s.Z) for other in groups if other is not group for s in other]
            if not trackable(left, q):
                raise ValueError("without one of the blocks, the sequences are too short to track")
    return groups


def left_out(blank: Filter, groups: list[list[Part]]) -> list[Block]:
    """Run copies of an unfitted filter over stretches of each block, learned from the others."""
    found = []
    for i, group in enumerate(groups):
        if count(group[0].X) == 1:  # pairs without transitions are always learned from
            continue
        other = copy(blank)  # with leads_, which a clone would lose
        learn(other, [s for j, rest in enumerate(groups) if j != i for s in rest])
        for sequences in stretches(group)[:TURNS]:
            X, u = [s.X for s in sequences], controls_of(sequences)
            found.append(Block(other, run_all(other, X, u, None, False), sequences))
    return found


def plain_copy(
    model: KernelBayesFilter, chosen: dict[str, object], low: bool = False
) -> KernelBayesFilter:
    """Return an unfitted filter with these arguments, of ``low`` rank, that calibrates nothing."""
    most = RACE_RANK if low else LARGE_RANK
    rank = min(most, model.rank or most)
    blank: KernelBayesFilter = clone(model).set_params(**chosen)
    blank.set_params(rank=rank, rng=0, intervals="plain")
    return blank


def with_truth(beliefs: list[list[Beliefs]], blocks: list[Block]) -> list[tuple[Beliefs, Points]]:
    """Beliefs about the sequences of blocks, each with the true states."""
    return [
        (one, s.Z)
        for found, block in zip(beliefs, blocks, strict=True)
        for one, s in zip(found, block.sequences, strict=True)
    ]


def on_a_line(kernel: Kernel, Z: Points) -> bool:
    """Whether states are vectors of numbers, none of them an angle: what has quantiles."""
    return kernel.is_vector and not any(kernel.periods(np.shape(Z)[1] if np.ndim(Z) > 1 else 1))


def subsample(parts: list[Part], most: int = MOST_STEPS) -> list[Part]:
    """Pieces of the sequences, evenly spread, and some of the pairs without transitions."""
    long = [s for s in parts if count(s.X) > 1]
    pairs = [s for s in parts if count(s.X) == 1]
    kept = np.random.default_rng(0).permutation(len(pairs))[: MOST_PAIRS * most // MOST_STEPS]
    pairs = [pairs[i] for i in np.sort(kept)]
    steps = sum(count(s.X) for s in long)
    if steps > most:
        pieces = [piece for s in long for piece in pieces_of(s, max(1, count(s.X) // PIECE))]
        number = max(LEFT_OUT_BLOCKS, round(len(pieces) * most / steps))
        kept = np.unique(np.linspace(0, len(pieces) - 1, number).round().astype(int))
        long = [pieces[i] for i in kept]
    return long + pairs


def whole_rows(parts: list[Part]) -> list[Part]:
    """Sequences with the holes of partly missing observations filled by column means.

    Each pattern of missing coordinates needs a model of its own, so that only the filter that is
    chosen goes without filling.
    """
    X = join(parts).X
    means, known = split_missing(X)
    if known is None:
        return parts
    partly = known.any(axis=1) & ~known.all(axis=1)
    filled = np.where(partly.reshape(-1, *(1,) * (X.ndim - 1)), means, X)
    ends = np.cumsum([count(s.X) for s in parts])[:-1]
    return [replace(s, X=x) for s, x in zip(parts, np.split(filled, ends), strict=True)]
