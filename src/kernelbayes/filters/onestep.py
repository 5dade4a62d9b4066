"""The second ridge by the error of one step, in closed form over a grid of ridges.

Each of some training states is predicted from the state before it, known exactly, and updated with
its own observation; its own pair is left out. That is the filter's problem without its recursion,
so one eigendecomposition per state scores all ridges.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from kernelbayes.arrays import concatenate, eigh, like, take, to_numpy
from kernelbayes.kernels import Kernel
from kernelbayes.loo import exact_features, ridge_grid, score_targets

if TYPE_CHECKING:
    from kernelbayes.filters.bayes import KernelBayesFilter
    from kernelbayes.filters.montecarlo import KernelMonteCarloFilter

# Transitions on which the ridge is scored, and training pairs that may carry weight there.
STEPS = 100
PAIRS = 400
# Simulated transitions per state.
DRAWS = 20
# A backward ridge may lose so much in one step for being steadier over many.
NEARLY = 1.02
# Smallest ridge of the original rule, relative to the largest tried (ten times the trace).
LEAST_ORIGINAL = 1e-4


def onestep_ridges(model: KernelBayesFilter) -> tuple[float, float]:
    """Ridges of Bayes' rule with the least mean error of one step: of the update, and backwards.

    Backwards, for smoothing, a state is found from the one before it and the one after it.
    """
    gammas, chosen = _predictions(model)
    dynamics, H = model.dynamics_, score_targets(model.kernel_z_, model.Z_)
    own = dynamics.target[chosen]
    usable, seen = model.observations_.usable, gammas
    if usable is not None:
        seen, own = np.where(usable[:, None], gammas, 0.0)[:, usable[own]], own[usable[own]]
    forward = 1.0
    if len(own):
        forward = _best(model.observations_.kernel, model.X_, H, seen, own, model.method)
    # Transitions that go on from the states predicted.
    following = np.full(dynamics.n, -1)
    following[dynamics.source] = np.arange(len(dynamics.source))
    own = following[dynamics.target[chosen]]
    on = own >= 0
    if not on.any():
        return forward, model.transition_ridge_
    back = _steadiest(
        model.states_, take(model.Z_, dynamics.target), H[dynamics.source],
        gammas[dynamics.source][:, on], own[on],
    )  # fmt: skip
    return forward, back


def _predictions(model: KernelBayesFilter) -> tuple[Any, Any]:
    """Prior weights (n, k) at the ends of k transitions whose starts are known, and which."""
    dynamics, n = model.dynamics_, model.dynamics_.n
    m = len(dynamics.target)
    chosen = np.sort(np.random.default_rng(0).choice(m, min(STEPS, m), replace=False))
    start = np.zeros((n, len(chosen)))
    start[dynamics.source[chosen], np.arange(len(chosen))] = 1.0
    controls = None if model.controls_ is None else take(model.controls_, chosen)
    V = model._predict(like(start, dynamics.features), controls)
    return to_numpy(dynamics.prior_weights(V)), chosen


def simulated_back_ridge(model: KernelMonteCarloFilter, moved: Any) -> float:
    """Ridge of the backward step of smoothing when the transition can be sampled.

    States two transitions after training states are simulated; the one between is found from the
    first (through the prediction) and the last.
    """
    n = model.dynamics_.n
    chosen = np.sort(np.random.default_rng(0).choice(n, min(STEPS, n), replace=False))
    start, Z = take(model.Z_, chosen), model.Z_
    middle = model.kernel_z_.points(model._try_out(start, 1, 3))
    last = model.kernel_z_.points(model._try_out(middle, 2, 3))
    many = np.repeat(chosen, DRAWS)
    drawn = model._try_out(take(Z, many), 1, 4)
    F = to_numpy(model.states_.features(model.kernel_z_.points(drawn)))
    F = F.reshape(len(chosen), DRAWS, -1).mean(axis=1)
    dynamics = model.dynamics_
    gammas = to_numpy(dynamics.features) @ (to_numpy(dynamics.to_prior) @ F.T)
    return _steadiest(
        model.states_, concatenate(moved, last),
        score_targets(model.kernel_z_, concatenate(Z, middle)),
        np.concatenate([gammas, np.zeros((len(chosen), len(chosen)))]),
        n + np.arange(len(chosen)),
    )  # fmt: skip


def _steadiest(kernel: Kernel, X: Any, H: Any, gammas: Any, own: Any) -> float:
    """Largest ridge that is nearly as good as the best: errors of a backward pass add up."""
    grid, errors = _errors(kernel, X, H, gammas, own, "importance")
    return float(grid[np.flatnonzero(errors <= NEARLY * errors.min())[-1]])


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
