r"""Choices in closed form: the ridge of the update, and a bandwidth for each column of x.

**Ridge by the error of one step.** Each of some training states is predicted from the state before
it, known exactly, and updated with its own observation; its own pair is left out. That is the
filter's problem without its recursion, so one eigendecomposition per state scores all ridges.

**Bandwidths by relevance.** Some columns of x say much about the state, others little or nothing.
How much is learned by regressing the features of z on standardised x
(:mod:`~kernelbayes.select.regression`). These predict the embedding of z given x, so that states of
any kind will do, and a column that tells several places apart counts even if the mean of z hardly
moves with it. With M, the average outer product of the gradients,

.. math:: h_j \propto \frac{s_j}{\max(\rho_j, 0.03 \max_k \rho_k)}, \quad \rho_j = \sqrt{M_{jj}},

s_j the standard deviation of the column. The median distance of the points in these units is one.
Only the diagonal of M is used, so that the kernel stays a product over the columns and an
observation with missing entries keeps its exact form.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from array_api_compat import is_array_api_obj

from kernelbayes.arrays import Bools, Floats, Ints, as_vectors, like, namespace, to_numpy
from kernelbayes.filters.step import predict, prior_weights
from kernelbayes.gram import Gram
from kernelbayes.gram.features import nystrom
from kernelbayes.gram.loo import RidgePath, ridge_grid, score_targets
from kernelbayes.kernels import Gaussian, Kernel
from kernelbayes.points import Points, count, take
from kernelbayes.select.regression import regress

if TYPE_CHECKING:
    from kernelbayes.filters.bayes import KernelBayesFilter

# Transitions on which the ridge is scored: their mean error is known to a tenth of its standard
# deviation, while neighbours on the grid of ridges differ by a factor of two.
STEPS = 100
# Training pairs that may carry weight there, the heaviest: an eigendecomposition of that size takes
# some milliseconds, so that all take about a second.
CARRIERS = 250
# Smallest ridge of the original rule, relative to the largest tried (ten times the trace). The rule
# has factors c / (c^2 + ridge^2) of up to 1 / (2 ridge), here 500 over the trace: with a smaller
# ridge, which may be best for one step, errors grow from step to step.
LEAST_ORIGINAL = 1e-4
# Posterior mass below which an update is not divided by it: its sign may be rounding.
LEAST_LEFT = 1e-3
# Pairs that the relevances are learned from, as many as for leave-one-out errors; and features of z
# to predict: with a median bandwidth few eigenvalues beyond the thirtieth matter.
RELEVANCE_PAIRS, FEATURES = 2000, 30
# No column counts for less than this share of the most relevant one: relevances are estimated, and
# a bandwidth of thirty times the smallest already makes a column nearly constant.
LEAST_RELEVANCE = 0.03
# Outside of these numbers of columns, or with fewer pairs for each column, nothing is learned: one
# column has nothing to compare, and a gradient needs more pairs than coordinates.
COLUMN_RANGE, PAIRS_PER_COLUMN = (2, 300), 4
# Bandwidths that differ by a smaller factor are as good as one: it is the finest step of tuning.
ALIKE = 1.2


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
    X = model.observations_.X
    X = X if kernel.finite else _double(X)
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
    grid: Floats = np.empty(0)
    total = np.zeros(1)
    for j, i in enumerate(own):
        gamma = gammas[:, j].copy()
        gamma[i] = 0.0
        if not original:
            gamma = np.maximum(gamma, 0.0)
        heavy = np.argsort(-np.abs(gamma))[:CARRIERS]
        g = gamma[heavy] / (gamma.sum() or 1.0)
        F = Gram.of(kernel, take(X, np.append(heavy, i)), double=True).factor
        F, f = F[:-1], F[-1]
        grid = grid if len(grid) else ridge_grid(F)
        path = RidgePath.of(F, np.column_stack([H[heavy], np.ones(len(heavy))]), g)
        predicted = ((f @ path.Q) * path.filtered(grid[:, None], original)) @ path.cross
        predicted, mass = predicted[:, :-1], predicted[:, -1]
        mass = np.where(mass > LEAST_LEFT, mass, 1.0)
        total = total + np.sum((predicted / mass[:, None] - H[i]) ** 2, axis=1)
    return grid, total


def per_dimension(
    X: Points, Z: Points, kernel_z: Kernel, known: Bools | None = None
) -> Gaussian | None:
    """Gaussian kernel with a bandwidth for each column of x, by what the column says about z.

    ``X`` (n, d) has its missing entries filled, ``known`` (n, d) says which were there. None where
    there is nothing to learn: one column, very many of them, few pairs, constant x or z, or
    bandwidths all alike.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelbayes import Gaussian
    >>> from kernelbayes.filters.choose.choices import per_dimension
    >>> rng = np.random.default_rng(0)
    >>> Z = rng.normal(size=(300, 1))
    >>> X = np.hstack([Z + 0.1 * rng.normal(size=(300, 1)), rng.normal(size=(300, 1))])
    >>> near, useless = per_dimension(X, Z, Gaussian(1.0)).bandwidth
    >>> useless > 5.0 * near
    True
    """
    U = np.asarray(to_numpy(as_vectors(X)), dtype=float)
    rows = np.arange(len(U)) if known is None else np.flatnonzero(known.any(axis=1))
    if len(rows) > RELEVANCE_PAIRS:
        rows = np.random.default_rng(0).choice(rows, RELEVANCE_PAIRS, replace=False)
    U, Z = U[rows], take(Z, rows)
    d = U.shape[1]
    if not COLUMN_RANGE[0] <= d <= COLUMN_RANGE[1] or len(U) < PAIRS_PER_COLUMN * d:
        return None
    spread, targets = U.std(axis=0), _targets(Z, kernel_z)
    if targets is None or not np.any(spread > 0.0):
        return None
    spread = np.where(spread > 0.0, spread, 1.0)  # a constant column is of no relevance anyway
    scaled, rng = (U - U.mean(axis=0)) / spread, np.random.default_rng(0)
    # Only the metric is wanted; the filters' experiments were made without finer bandwidths.
    metric = regress(scaled, targets, rng, finest=np.inf).metric
    relevance = np.linalg.norm(metric, axis=1)  # roots of the diagonal of M
    weights = np.maximum(relevance, LEAST_RELEVANCE * relevance.max()) / spread
    bandwidth = Gaussian.median(U * weights).bandwidth / weights
    if not np.isfinite(bandwidth.max()) or not bandwidth.max() > ALIKE * bandwidth.min():
        return None
    return Gaussian(tuple(map(float, bandwidth)))


def _targets(Z: Points, kernel: Kernel) -> Floats | None:
    """Features (n, r) of states, centred, of total variance r; None if they are constant."""
    F = to_numpy(nystrom(kernel, Z, min(FEATURES, count(Z)), rng=0).features(Z)).astype(float)
    F -= F.mean(axis=0)
    total = float(np.mean(np.square(F)))
    return F / np.sqrt(total) if total > np.finfo(float).eps else None
