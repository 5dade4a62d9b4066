"""The second ridge by the error of one step, in closed form over a grid of ridges.

Each of some training states is predicted from the state before it, known exactly, and updated with
its own observation; its own pair is left out. That is the filter's problem without its recursion,
so one eigendecomposition per state scores all ridges.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from array_api_compat import is_array_api_obj

from kernelbayes.arrays import eigh, like, namespace, to_numpy
from kernelbayes.filters.step import predict, prior_weights
from kernelbayes.gram.loo import exact_features, ridge_grid, score_targets
from kernelbayes.kernels import Kernel
from kernelbayes.points import take

if TYPE_CHECKING:
    from kernelbayes.filters.bayes import KernelBayesFilter

# Transitions on which the ridge is scored, and training pairs that may carry weight there.
STEPS = 100
PAIRS = 250
# Smallest ridge of the original rule, relative to the largest tried (ten times the trace).
LEAST_ORIGINAL = 1e-4


def update_ridge(model: KernelBayesFilter) -> float:
    """Ridge of Bayes' rule with the least mean error of one step."""
    gammas, chosen = _predictions(model)
    own = model.dynamics_.target[chosen]
    usable = model.observations_.usable
    if usable is not None:
        gammas, own = np.where(usable[:, None], gammas, 0.0)[:, usable[own]], own[usable[own]]
    if len(own) == 0:
        raise ValueError("no transition leads to a whole observation; give ridge as a number")
    H = score_targets(model.kernel_z_, model.Z_)
    kernel = model.observations_.kernel
    X = model.X_ if kernel.finite else _double(model.X_)
    return _best(kernel, X, H, gammas, own, model.method)


def _double(X: Any) -> Any:
    """Points in double precision: in single, a Gram matrix need not be positive semi-definite."""
    if isinstance(X, Mapping):
        return {name: _double(part) for name, part in X.items()}
    if not is_array_api_obj(X):
        return X
    xp = namespace(X)
    return xp.astype(X, xp.float64) if X.dtype == xp.float32 else X


def _predictions(model: KernelBayesFilter) -> tuple[Any, Any]:
    """Prior weights (n, k) at the ends of k transitions whose starts are known, and which."""
    dynamics, n = model.dynamics_, model.dynamics_.n
    m = len(dynamics.target)
    chosen = np.sort(np.random.default_rng(0).choice(m, min(STEPS, m), replace=False))
    start = np.zeros((n, len(chosen)))
    start[dynamics.source[chosen], np.arange(len(chosen))] = 1.0
    controls = None if model.controls_ is None else take(model.controls_, chosen)
    V = predict(dynamics, like(start, dynamics.features), controls)
    return to_numpy(prior_weights(dynamics, V)), chosen


def _best(kernel: Kernel, X: Any, H: Any, gammas: Any, own: Any, method: str) -> float:
    grid, errors = _errors(kernel, X, H, gammas, own, method)
    if method == "importance":
        return float(grid[int(np.argmin(errors))])
    # The original rule divides by squares: a ridge that serves one step magnifies over many.
    steady = np.where(grid >= LEAST_ORIGINAL * grid[-1], errors, np.inf)
    return float(grid[int(np.argmin(steady))]) ** 2


def _errors(kernel: Kernel, X: Any, H: Any, gammas: Any, own: Any, method: str) -> tuple[Any, Any]:
    """Ridges, and the mean squared error of the updates' conditional means under each."""
    grid, total = None, 0.0
    for j, i in enumerate(own):
        gamma = gammas[:, j].copy()
        gamma[i] = 0.0
        if method == "importance":
            gamma = np.maximum(gamma, 0.0)
        heavy = np.argsort(-np.abs(gamma))[:PAIRS]
        g = gamma[heavy] / (gamma.sum() or 1.0)
        F = exact_features(kernel, take(X, np.append(heavy, i)))[0]
        F, f = F[:-1], F[-1]
        if grid is None:
            grid = ridge_grid(F)
        c, Q = eigh(F.T @ (g[:, None] * F))
        cross = Q.T @ (F.T @ (g[:, None] * H[heavy]))
        at = f @ Q
        shrink = (
            1.0 / (np.maximum(c, 0.0)[None, :] + grid[:, None])
            if method == "importance"
            else c[None, :] / (c[None, :] ** 2 + grid[:, None] ** 2)
        )
        predicted = (at * shrink) @ cross  # (ridges, targets)
        mass = (at * shrink) @ (Q.T @ (F.T @ g))
        mass = np.where(mass > 1e-3, mass, 1.0)
        total = total + np.sum((predicted / mass[:, None] - H[i]) ** 2, axis=1)
    return grid, total
