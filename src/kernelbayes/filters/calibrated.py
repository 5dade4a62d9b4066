r"""Recalibration of a filter's intervals by sequences that it has not learned from.

A filter is tuned for the error of its means, and its intervals follow from the same kernels and
ridges. They hold too little where few training pairs carry the belief (the error of the mean is not
in the spread of the belief), and too much where the kernel on states is wider than the posterior.
As in tuning, the sequences are cut into parts, and each is filtered with what was learned from the
others. Where the true states fall in those beliefs,

.. math:: u_t = \hat F_t(z_t),

says by how much: :class:`~kernelbayes.Calibration` asks for the levels that left-out states reach
as often as they should. Neighbours in time depend on each other, so there is no guarantee for a
finite sample as for exchangeable pairs; for a stationary sequence the levels converge all the same.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from kernelbayes.arrays import to_numpy
from kernelbayes.embedding.regions import ROUNDING, rearranged
from kernelbayes.filters.beliefs import Beliefs
from kernelbayes.filters.holdout import Part, cut, learn
from kernelbayes.points import as_vectors, count
from kernelbayes.select.calibration import Calibration

# What was learned from all sequences and stays when a part is left out.
CHOSEN = ("kernel_x", "kernel_z", "kernel_u", "prior_ridge", "transition_ridge", "ridge")


def calibration_of(
    model: Any, X: Any, Z: Any, controls: Any, parts: int, smooth: bool
) -> Calibration:
    """Where left-out states fall in the beliefs of a fitted filter with its kernels and ridges."""
    check_is_fitted(model, "dynamics_")
    known = model.get_params(deep=False)
    chosen = {k: getattr(model, f"{k}_") for k in CHOSEN if k in known and hasattr(model, f"{k}_")}
    groups = cut(X, Z, controls, parts, model)
    found = []
    for i, group in enumerate(groups):
        if count(group[0].X) == 1:  # pairs without transitions: nothing to filter
            continue
        other = clone(model).set_params(**chosen)
        learn(other, [s for j, rest in enumerate(groups) if j != i for s in rest])
        found += _transforms(other, group, smooth)
    pit = np.concatenate(found)
    return Calibration(pit, np.full(len(pit), 1.0 / len(pit)))


def _transforms(model: Any, group: list[Part], smooth: bool) -> list[Any]:
    """Levels (T, d) at which the true states of some sequences lie in their beliefs."""
    controls = None if group[0].controls is None else [s.controls for s in group]
    ask = model.smooth if smooth else model.filter
    beliefs = ask([s.X for s in group], controls, progress=False)
    return [transforms(b, s.Z) for b, s in zip(beliefs, group, strict=True)]


def transforms(beliefs: Beliefs, Z: Any) -> Any:
    """Level (T, d) at which each coordinate of the states Z (T, d) is the belief's quantile."""
    points = np.asarray(to_numpy(beliefs._vectors), dtype=np.float64)
    truth = np.asarray(to_numpy(as_vectors(Z, "Z")), dtype=np.float64)
    weights = beliefs._distribution("rearranged")
    columns = []
    for x, z in zip(points.T, truth.T, strict=True):
        order = np.argsort(x, kind="stable")
        ordered = weights[:, order]
        F = rearranged(np.cumsum(ordered, axis=1) - 0.5 * ordered)
        columns.append([_level(x[order], row, value) for row, value in zip(F, z, strict=True)])
    return np.array(columns).T


def _level(x: Any, F: Any, z: float) -> float:
    """Value at z of a monotone F at sorted points x, as quantiles are interpolated."""
    inside = slice(np.searchsorted(F, ROUNDING, side="right"), np.searchsorted(F, 1.0 - ROUNDING))
    if inside.stop - inside.start < 2:  # all mass at one point
        middle = x[min(int(np.searchsorted(F, 0.5)), len(x) - 1)]
        return 0.5 + 0.5 * float(np.sign(z - middle))
    ties = slice(np.searchsorted(x, z, side="left"), np.searchsorted(x, z, side="right"))
    if ties.stop - ties.start > 1:  # half of their mass lies below
        return float(0.5 * (F[ties.start] + F[ties.stop - 1]))
    return float(np.interp(z, x[inside], F[inside], left=0.0, right=1.0))
