"""The second ridge by the error of one step, in closed form over a grid of ridges.

Each of some training states is predicted from the state before it, known exactly, and updated with
its own observation; its own pair is left out. That is the filter's problem without its recursion,
so one eigendecomposition per state scores all ridges.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from array_api_compat import is_array_api_obj

from kernelbayes.arrays import Floats, Ints, like, namespace, to_numpy
from kernelbayes.filters.step import predict, prior_weights
from kernelbayes.gram import Gram
from kernelbayes.gram.loo import RidgePath, ridge_grid, score_targets
from kernelbayes.kernels import Kernel
from kernelbayes.points import Points, take

if TYPE_CHECKING:
    from kernelbayes.filters.bayes import KernelBayesFilter

# Transitions on which the ridge is scored: their mean error is known to a tenth of its standard
# deviation, while neighbours on the grid of ridges differ by a factor of two.
STEPS = 100
# Training pairs that may carry weight there, the heaviest: an eigendecomposition of that size takes
# some milliseconds, so that all take about a second.
PAIRS = 250
# Smallest ridge of the original rule, relative to the largest tried (ten times the trace). Smaller
# ones win by the error of one step, and diverge over many (experiments/kbr13_fig4).
LEAST_ORIGINAL = 1e-4
# Posterior mass below which an update is not divided by it: its sign may be rounding.
LEAST_MASS = 1e-3


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
    original = model.method == "original"
    grid, errors = _errors(kernel, X, H, gammas, own, original)
    if not original:
        return float(grid[int(np.argmin(errors))])
    # The original rule divides by squares: a ridge that serves one step magnifies over many.
    steady = np.where(grid >= LEAST_ORIGINAL * grid[-1], errors, np.inf)
    return float(grid[int(np.argmin(steady))]) ** 2


def _double(X: Points) -> Points:
    """Points in double precision: in single, a Gram matrix need not be positive semi-definite."""
    if isinstance(X, Mapping):
        return {name: _double(part) for name, part in X.items()}
    if not is_array_api_obj(X):
        return X
    xp = namespace(X)
    return xp.astype(X, xp.float64) if X.dtype == xp.float32 else X


def _predictions(model: KernelBayesFilter) -> tuple[Floats, Ints]:
    """Prior weights (n, k) at the ends of k transitions whose starts are known, and which."""
    dynamics, n = model.dynamics_, model.dynamics_.n
    m = len(dynamics.target)
    chosen = np.sort(np.random.default_rng(0).choice(m, min(STEPS, m), replace=False))
    start = np.zeros((n, len(chosen)))
    start[dynamics.source[chosen], np.arange(len(chosen))] = 1.0
    controls = None if model.controls_ is None else take(model.controls_, chosen)
    V = predict(dynamics, like(start, dynamics.features), controls)
    return to_numpy(prior_weights(dynamics, V)), chosen


def _errors(
    kernel: Kernel, X: Points, H: Floats, gammas: Floats, own: Ints, original: bool
) -> tuple[Floats, Floats]:
    """Ridges, and the sums of squared errors of the updates' conditional means under each."""
    grid, total = np.empty(0), np.zeros(1)
    for j, i in enumerate(own):
        gamma = gammas[:, j].copy()
        gamma[i] = 0.0
        if not original:
            gamma = np.maximum(gamma, 0.0)
        heavy = np.argsort(-np.abs(gamma))[:PAIRS]
        g = gamma[heavy] / (gamma.sum() or 1.0)
        F = Gram.of(kernel, take(X, np.append(heavy, i)), double=True).factor
        F, f = F[:-1], F[-1]
        grid = grid if len(grid) else ridge_grid(F)
        path = RidgePath.of(F, np.column_stack([H[heavy], np.ones(len(heavy))]), g)
        predicted = ((f @ path.Q) * path.filtered(grid[:, None], original)) @ path.cross
        predicted, mass = predicted[:, :-1], predicted[:, -1]
        mass = np.where(mass > LEAST_MASS, mass, 1.0)
        total = total + np.sum((predicted / mass[:, None] - H[i]) ** 2, axis=1)
    return grid, total
