"""What the loops of a filter warn of: once per call, with how many steps and which."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from kernelbayes.arrays import namespace, warn
from kernelbayes.filters.beliefs import StepInfo
from kernelbayes.filters.step import warn_rescued, warn_reset
from kernelbayes.rules.conditional import describe_shares, first_few
from kernelbayes.types import Array

if TYPE_CHECKING:
    from kernelbayes.filters.smooth import Run


def told(runs: list[Run]) -> list[Run]:
    """Return the runs; warn of the steps that were asked for, numbered over all sequences."""
    infos = [run.infos[t] for run in runs for t in run.kept]
    warn_rescued(infos)
    warn_empty(infos)
    warn_reset(infos)
    found = describe_shares(np.array([info.prior_share for info in infos]), "observations")
    if found:
        warn(
            f"{found[0]} are unlike anything in the training sample: {found[1]} of the belief is "
            "the prediction's (info.prior_share)"
        )
    return runs


def warn_empty(infos: list[StepInfo]) -> None:
    """Say how many beliefs have no weight or NaN, which only a literal filter lets happen."""
    found = [t for t, i in enumerate(infos) if i.observed and not i.fallback and not i.ess > 0.0]
    if found:
        warn(
            f"{len(found)} of {len(infos)} beliefs ({first_few(found)}) have no weight left: an "
            "observation was too far from the training sample. Use literal=False, which falls back "
            "on the prediction, or a wider kernel"
        )


def told_ahead(seen: list[Array | None], like: Array, infos: list[StepInfo]) -> list[Array]:
    """Warn of forecasts that have left the training states; return those of the observations.

    Their weights (n,) are equal ones, and a warning says so, where there are none.
    """
    warn_reset(infos)
    nothing = [h + 1 for h, w in enumerate(seen) if w is None]
    if nothing:
        warn(
            f"{len(nothing)} of {len(seen)} forecasts of observations ({first_few(nothing)} steps "
            "ahead) have no weight on the training sample: all training observations count alike. "
            "Use a wider kernel on states or a larger rank"
        )
    equal = namespace(like).ones_like(like) / like.shape[0]
    return [equal if w is None else w for w in seen]
