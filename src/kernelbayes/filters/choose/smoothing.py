"""The ridge of the backward step, and what smoothing gains: chosen on blocks of time left out.

States with little noise of their own need a smaller ridge than noisy ones (0.01 against 0.3 in the
models tried), and a ridge that is best for one step is too small for many. So blocks are left out
as in :mod:`~kernelbayes.filters.choose.default`, filtered, and passed back under several ridges.
Where no ridge gains over filtering, ``smooth`` answers with the filtered beliefs.
"""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from kernelbayes.arrays import quiet, to_numpy, warn
from kernelbayes.filters.beliefs import Beliefs
from kernelbayes.filters.choose.blocks import Block, blocks_of, left_out, plain_copy, with_truth
from kernelbayes.filters.choose.default import judge_states, spreads
from kernelbayes.filters.choose.holdout import Judge, calibrated, learn, training_parts
from kernelbayes.filters.choose.options import SURE
from kernelbayes.filters.encode.encoder import ESTIMATES
from kernelbayes.filters.encode.regression import targets
from kernelbayes.filters.loop import filtered, smooth_all
from kernelbayes.filters.missing import complete
from kernelbayes.filters.sequences import Part
from kernelbayes.filters.smooth import Smoothing

if TYPE_CHECKING:
    from kernelbayes.filters.bayes import KernelBayesFilter

# The first ridge tried, within the range of the models above, and the factor to the next:
# half decades.
FIRST_BACK, BACK_FACTOR = 0.1, 10.0**0.5
# Ridges beyond these are not tried: three and a half decades below the first and two above, where
# the backward regression is all but unregularised, or all but the prior.
BACK_RANGE = (3e-5, 10.0)


def smoothing_of(model: KernelBayesFilter, warned: bool) -> Smoothing:
    """Return how a fitted filter smooths, chosen when it is first needed and kept.

    If ``warned``, with a warning where the backward step gains nothing.
    """
    given, found = model.back_ridge, model.smoothing_
    if not isinstance(given, str) and model.calibration_ is None:
        return Smoothing(float(given))
    if found is None or (not isinstance(given, str) and found.ridge != given):
        with quiet():  # about blocks that the user has not asked about
            found = model.smoothing_ = choose_smoothing(model, training_parts(model))
    if warned and not found.gains:
        warn(
            "smoothing gains nothing here: on blocks left out its loss is "
            f"{found.smoothed:.3g}, that of filtering {found.filtered:.3g}; the beliefs are the "
            "filtered ones"
        )
    return found


def choose_smoothing(model: KernelBayesFilter, parts: list[Part]) -> Smoothing:
    """Ridge with the least loss of smoothing blocks that the filter has not learned from."""
    free = isinstance(model.back_ridge, str)
    first = FIRST_BACK if free else float(model.back_ridge)
    blank = plain_copy(model, model.choice_.arguments, low=True).set_params(back_ridge=first)
    try:
        groups = blocks_of(model, parts, fill=False)
        blocks = left_out(blank, groups)
    except ValueError:  # nothing can be left out
        return Smoothing(first)
    judge = judge_states(model.kernel_z_, model.Z_)

    def smoothed(ridge: float) -> list[list[Beliefs]]:
        return [smooth_all(b.model.set_params(back_ridge=ridge), b.runs) for b in blocks]

    best, least = first, _mean(judge, smoothed(first), blocks)
    for factor in (1.0 / BACK_FACTOR, BACK_FACTOR) if free else ():
        moved = False
        while BACK_RANGE[0] < best * factor < BACK_RANGE[1]:
            new = _mean(judge, smoothed(best * factor), blocks)
            if not new < least:
                break
            best, least, moved = best * factor, new, True
        if moved:
            break
    before = [filtered(b.model, b.runs) for b in blocks]
    without = _mean(judge, before, blocks) if free else float("nan")  # what is given is kept
    found = Smoothing(best, least, without, ahead=_ahead(model, parts, groups) if free else None)
    if model.calibration_ is None or not found.gains:
        return replace(found, calibration=model.calibration_)
    blocks = left_out(plain_copy(model, model.choice_.arguments), groups)
    return replace(found, calibration=calibrated(with_truth(smoothed(best), blocks)))


def _ahead(
    model: KernelBayesFilter, parts: list[Part], groups: list[list[Part]]
) -> KernelBayesFilter | None:
    """Filter that sees as many later observations as earlier ones, if that is clearly better.

    For regressions on a window. They have little to pass back: weights are signed, kernels on
    states wide. Errors are those of estimates that have not learned from their block of time.
    """
    leads = len(model.lags_) - 1
    if model.features_ not in ESTIMATES or leads == 0:
        return None
    encoder = model.encoder_
    if encoder is None or not complete([s.X for s in parts]):
        return None
    blank = plain_copy(model, model.choice_.arguments)
    blank.leads_ = leads
    ahead: KernelBayesFilter = copy(blank)
    learn(ahead.set_params(rank=model.rank_), parts)
    Z = targets(model.Z_, model.kernel_z_)
    scale = spreads(Z)
    errors = [np.sum(((to_numpy(m.observations_.X) - Z) / scale) ** 2, 1) for m in (model, ahead)]
    usable = ahead.observations_.usable
    gain = (errors[0] - errors[1])[slice(None) if usable is None else usable]
    if not np.mean(gain) > SURE * np.std(gain) / np.sqrt(len(gain)):
        return None
    if model.calibration_ is not None:  # the last steps, which see nothing later, stay filtered
        blocks = left_out(blank, groups)
        pairs = with_truth([filtered(b.model, b.runs) for b in blocks], blocks)
        ahead.calibration_ = calibrated([(b[:-leads], Z[:-leads]) for b, Z in pairs])
    return ahead


def _mean(judge: Judge, beliefs: list[list[Beliefs]], blocks: list[Block]) -> float:
    """Mean loss over all steps; infinite where one is not finite."""
    losses = [np.asarray(judge(one, Z)) for one, Z in with_truth(beliefs, blocks)]
    mean = float(np.mean(np.concatenate(losses)))
    return mean if np.isfinite(mean) else float("inf")
