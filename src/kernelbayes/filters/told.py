"""What a filter warns of: once per call, with how many steps and which."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import numpy as np

from kernelbayes.arrays import Array, NumericalWarning, namespace
from kernelbayes.filters.beliefs import StepInfo
from kernelbayes.rules.support import first_few, told_of

if TYPE_CHECKING:
    from kernelbayes.filters.loop import Run


# Share of a prediction that has left the training states above which a warning says so: the belief
# is then about states that were never seen. A small sample has some states at its edge always.
LEFT = 0.9


def told(runs: list[Run]) -> list[Run]:
    """Return the runs; warn of the steps that were asked for, numbered over all sequences."""
    infos = [run.infos[t] for run in runs for t in run.kept]
    warn_rescued(infos)
    warn_empty(infos)
    warn_reset(infos)
    found = told_of(np.array([info.prior_share for info in infos]), "observations")
    if found:
        warnings.warn(
            f"{found[0]} are unlike anything in the training sample: {found[1]} of the belief is "
            "the prediction's (info.prior_share)",
            NumericalWarning,
            stacklevel=3,
        )
    return runs


def warn_reset(infos: list[StepInfo]) -> None:
    """Say how many predictions have left the training states, and which."""
    found = [t for t, info in enumerate(infos) if info.left > LEFT]
    if found:
        gone = sum(1 for info in infos if info.reset)
        told = f"the predictions of {len(found)} of {len(infos)} steps ({first_few(found)}) have "
        told += "left the training states, where beliefs cannot follow"
        told += f"; {gone} were lost, so that any training state was as likely" * (gone > 0)
        told += ". Add training pairs where the states go"
        warnings.warn(told, NumericalWarning, stacklevel=4)


def warn_empty(infos: list[StepInfo]) -> None:
    """Say how many beliefs have no weight or NaN, which only a literal filter lets happen."""
    found = [t for t, i in enumerate(infos) if i.observed and not i.fallback and not i.ess > 0.0]
    if found:
        warnings.warn(
            f"{len(found)} of {len(infos)} beliefs ({first_few(found)}) have no weight left: an "
            "observation was too far from the training sample. Use literal=False, which falls back "
            "on the prediction, or a wider kernel",
            NumericalWarning,
            stacklevel=4,
        )


def observations_or_any(seen: list[Array | None], like: Array) -> list[Array]:
    """Weights (n,) of forecast observations; equal ones, and a warning, where there are none."""
    nothing = [h + 1 for h, w in enumerate(seen) if w is None]
    if nothing:
        warnings.warn(
            f"{len(nothing)} of {len(seen)} forecasts of observations ({first_few(nothing)} steps "
            "ahead) have no weight on the training sample: all training observations count alike. "
            "Use a wider kernel on states or a larger rank",
            NumericalWarning,
            stacklevel=5,
        )
    equal = namespace(like).ones_like(like) / like.shape[0]
    return [equal if w is None else w for w in seen]


def warn_rescued(infos: list[StepInfo]) -> None:
    """Say how many updates had a matrix that was not positive definite, and which."""
    found = [t for t, info in enumerate(infos) if info.rescued]
    if not found:
        return
    lost = sum(1 for t in found if np.isnan(infos[t].mass))
    done = "their ridge was raised" + f", and {lost} of their observations dropped" * (lost > 0)
    warnings.warn(
        f"{len(found)} of {len(infos)} updates ({first_few(found)}) had a matrix that was not "
        f"numerically positive definite; {done}. Use a larger ridge or a smaller bandwidth",
        NumericalWarning,
        stacklevel=4,
    )
