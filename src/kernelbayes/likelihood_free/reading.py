"""Simulations as they are given: checked, and without those that failed."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernelbayes.arrays import NumericalWarning, to_numpy
from kernelbayes.likelihood_free.priors import Prior
from kernelbayes.points import as_array, as_vectors, column_names

Floats = np.ndarray[Any, Any]
Names = tuple[str, ...] | None
FEWEST_SIMULATIONS = 20


@dataclass(frozen=True, eq=False)
class Simulations:
    """Parameters (n, d), data (n, p) or (n, k, p), weights (n,) or None; names; how many failed."""

    theta: Floats
    x: Floats
    weights: Floats | None
    names: Names
    x_names: Names
    failed: int


def read_simulations(theta: Any, x: Any, weights: Any, prior: Prior | None) -> Simulations:
    """Check simulations; drop those with NaN or infinite data, with a warning."""
    names, x_names = column_names(theta), column_names(x)
    theta = np.asarray(to_numpy(as_vectors(theta, "theta")), dtype=np.float64)
    x = np.asarray(to_numpy(as_array(x, "x")), dtype=np.float64)
    x = x[:, None] if x.ndim == 1 else x
    if x.ndim not in (2, 3):
        raise ValueError(
            f"x must be vectors (n, p) or data sets of iid rows (n, k, p), got shape {x.shape}"
        )
    if len(theta) != len(x):
        raise ValueError(f"{len(theta)} parameters but {len(x)} data sets")
    if prior is not None:
        if prior.dim != theta.shape[1]:
            raise ValueError(f"the prior has {prior.dim} parameters, theta has {theta.shape[1]}")
        check_names(names, prior.names, "theta", "the prior")
    ok = np.all(np.isfinite(x.reshape(len(x), -1)), axis=1)
    failed = int(np.sum(~ok))
    if np.sum(ok) < FEWEST_SIMULATIONS:
        raise ValueError(
            f"{np.sum(ok)} simulations with finite data are too few; at least "
            f"{FEWEST_SIMULATIONS} are needed, hundreds to be of use"
        )
    if failed:
        warnings.warn(
            f"{failed} of {len(ok)} simulations have NaN or infinite data and were "
            "dropped; the prior is now the one given that the simulator works",
            NumericalWarning,
            stacklevel=3,
        )
    if prior is not None and not np.all(prior.inside(theta[ok])):
        raise ValueError("some theta lie outside of the prior's support; check the prior")
    w = None if weights is None else _normalised(weights, ok)
    own = names or (None if prior is None else prior.names)
    return Simulations(theta[ok], x[ok], w, own, x_names, failed)


def check_names(
    names: tuple[str, ...] | None, expected: tuple[str, ...] | None, what: str, whose: str
) -> None:
    """Raise if columns have names, but not those of the others in the same order."""
    if names is not None and expected is not None and tuple(names) != tuple(expected):
        raise ValueError(
            f"the columns of {what} are {tuple(names)}, those of {whose} {tuple(expected)}; "
            "put them in the same order"
        )


def _normalised(weights: Any, ok: Floats) -> Floats:
    w = np.asarray(to_numpy(weights), dtype=float)
    if w.shape != ok.shape or not np.all(w >= 0) or not np.all(np.isfinite(w)):
        raise ValueError(f"weights must be {len(ok)} finite numbers, zero or larger")
    nothing = np.sum(w[ok] == 0)
    if np.sum(ok) - nothing < FEWEST_SIMULATIONS:
        raise ValueError(
            f"{nothing} of {np.sum(ok)} simulations have weight zero; at least "
            f"{FEWEST_SIMULATIONS} must count"
        )
    return np.asarray(w[ok] / w[ok].sum())
