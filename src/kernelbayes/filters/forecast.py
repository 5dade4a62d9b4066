"""Forecasts, and what the loops of a filter warn of: once per call, how many steps and which."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from array_api_compat import is_array_api_obj

from kernelbayes.arrays import namespace, warn
from kernelbayes.filters.beliefs import Beliefs, Forecast, StepInfo
from kernelbayes.filters.step import (
    normalised,
    predict,
    prior_weights,
    update,
    warn_rescued,
    warn_reset,
)
from kernelbayes.filters.update import observe
from kernelbayes.kernels.default import default_kernel
from kernelbayes.points import take
from kernelbayes.rules.conditional import describe_shares, first_few
from kernelbayes.types import Array, Points

if TYPE_CHECKING:
    from kernelbayes.filters.loop import Filter
    from kernelbayes.filters.smooth import Run


def ahead(
    model: Filter, w: Array, horizon: int, controls: Points | None, t: int, past: Array | None
) -> Forecast:
    """Beliefs about the steps after a belief w (n,) at time t, under controls (horizon, ...).

    ``past`` is the window before them, as for a step without an observation.
    """
    W, states, seen, infos, encoder = w[:, None], [], [], [], model.encoder_
    for h in range(horizon):
        row = model.dynamics_.acting(None if controls is None else take(controls, [h]))
        W, lost, gammas = predict(model.dynamics_, W, row, t + h)
        if encoder is not None and encoder.goes_on:  # as a step that observes nothing
            one, past = observe(model, None, past, 1, row)
            (W, _), gammas = update(model.dynamics_, W, [one], None, lost, gammas), None
        xp = namespace(W)
        states.append(W[:, 0])
        ess, left = float(1.0 / xp.sum(W**2)), float(lost[0])
        infos.append(StepInfo(np.nan, np.nan, ess, False, False, reset=left >= 1.0, left=left))
        gammas = prior_weights(model.dynamics_, W) if gammas is None else gammas
        seen.append(normalised(gammas[:, 0]))  # over training pairs, KBR13 section 4.3
    warn_reset(infos)
    nothing = [h + 1 for h, w in enumerate(seen) if w is None]
    if nothing:
        warn(
            f"{len(nothing)} of {len(seen)} forecasts of observations ({first_few(nothing)} steps "
            "ahead) have no weight on the training sample: all training observations count alike. "
            "Use a wider kernel on states or a larger rank"
        )
    equal = xp.ones_like(states[0]) / states[0].shape[0]
    seen = [equal if w is None else w for w in seen]
    X, names = model.X_, model.names_x_
    estimates = encoder is not None and encoder.regression is not None
    kernel = default_kernel(X) if estimates else model.kernel_x_
    if names is None and is_array_api_obj(X):  # not those of states, z0 and so on
        names = tuple(f"x{j}" for j in range(X.shape[1] if X.ndim == 2 else 1))
    observations = Beliefs.of(X, xp.stack(seen, axis=0), kernel, names, infos)
    W = xp.stack(states, axis=0)
    beliefs = Forecast.of(model.Z_, W, model.kernel_z_, model.names_z_, infos)
    return replace(beliefs, observations=observations)


def with_warnings(runs: list[Run]) -> list[Run]:
    """Return the runs; warn of the steps that were asked for, numbered over all sequences."""
    infos = [run.infos[t] for run in runs for t in run.kept]
    warn_rescued(infos)
    empty = [t for t, i in enumerate(infos) if i.observed and not i.fallback and not i.ess > 0.0]
    if empty:  # only a literal filter lets that happen
        warn(
            f"{len(empty)} of {len(infos)} beliefs ({first_few(empty)}) have no weight left: an "
            "observation was too far from the training sample. Use literal=False, which falls back "
            "on the prediction, or a wider kernel"
        )
    warn_reset(infos)
    found = describe_shares(np.array([info.prior_share for info in infos]), "observations")
    if found:
        warn(
            f"{found[0]} are unlike anything in the training sample: {found[1]} of the belief is "
            "the prediction's (info.prior_share)"
        )
    return runs
