"""Parameters of a box in coordinates without bounds, and back."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import expit, logit

Floats = np.ndarray[Any, Any]
EDGE = 1e-9  # of a bounded parameter's range, kept free at its ends before taking the logit


def unbounded(theta: Floats, low: Floats, high: Floats) -> Floats:
    """Coordinates in R^d of points of a box: logit, log, or as they are, by column."""
    both, above, below = _kinds(low, high)
    free = theta.copy()
    share = (theta[:, both] - low[both]) / (high[both] - low[both])
    free[:, both] = logit(np.clip(share, EDGE, 1.0 - EDGE))
    tiny = np.finfo(float).tiny
    free[:, above] = np.log(np.maximum(theta[:, above] - low[above], tiny))
    free[:, below] = -np.log(np.maximum(high[below] - theta[:, below], tiny))
    return free


def bounded(free: Floats, low: Floats, high: Floats) -> Floats:
    """Points of the box, back from :func:`unbounded`; the ends are never passed by rounding."""
    both, above, below = _kinds(low, high)
    theta = free.copy()
    theta[:, both] = low[both] + (high[both] - low[both]) * expit(free[:, both])
    theta[:, above] = low[above] + np.exp(np.minimum(free[:, above], 700.0))
    theta[:, below] = high[below] - np.exp(np.minimum(-free[:, below], 700.0))
    return np.asarray(np.clip(theta, low, high))


def _kinds(low: Floats, high: Floats) -> tuple[Floats, Floats, Floats]:
    """Which columns are bounded on both sides, from below only, from above only."""
    lower, upper = np.isfinite(low), np.isfinite(high)
    return lower & upper, lower & ~upper, upper & ~lower
