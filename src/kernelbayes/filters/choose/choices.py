r"""Bandwidths for each column of x, by relevance.

Some columns of x say much about the state, others little or nothing.
How much is learned by regressing the features of z on standardised x
(:mod:`~kernelbayes.select.regression`). These predict the embedding of z given x, so that states of
any kind will do, and a column that tells several places apart counts even if the mean of z hardly
moves with it. With M, the average outer product of the gradients,

.. math:: h_j \propto \frac{s_j}{\max(\rho_j, 0.03 \max_k \rho_k)}, \quad \rho_j = \sqrt{M_{jj}},

s_j the standard deviation of the column. The median distance of the points in these units is one.
Only the diagonal of M is used, so that the kernel stays a product over the columns and an
observation with missing entries keeps its exact form.
"""

import numpy as np

from kernelbayes.arrays import as_vectors, to_numpy
from kernelbayes.gram.features import nystrom
from kernelbayes.kernels import Gaussian, Kernel
from kernelbayes.kernels.radial import median_distance
from kernelbayes.points import count, take
from kernelbayes.rules.scales import (
    LEAST_SHARE_OF_RELEVANCE,
    PAIRS_FOR_COLUMN,
    RELEVANT_COLUMNS,
    RESPONSES,
)
from kernelbayes.select.regression import regress
from kernelbayes.types import Bools, Floats, Points

# Smallest ridge of the original rule, relative to the largest tried (ten times the trace). The rule
# has factors c / (c^2 + ridge^2) of up to 1 / (2 ridge), here 500 over the trace: with a smaller
# ridge, which may be best for one step, errors grow from step to step.
LEAST_ORIGINAL = 1e-4
# Pairs that the relevances are learned from, as many as for leave-one-out errors.
RELEVANCE_PAIRS = 2000
# Bandwidths that differ by a smaller factor are as good as one: it is the finest step of tuning.
ALIKE = 1.2


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
    if not RELEVANT_COLUMNS[0] <= d <= RELEVANT_COLUMNS[1] or len(U) < PAIRS_FOR_COLUMN * d:
        return None
    spread, targets = U.std(axis=0), state_features(Z, kernel_z)
    if targets is None or not np.any(spread > 0.0):
        return None
    spread = np.where(spread > 0.0, spread, 1.0)  # a constant column is of no relevance anyway
    scaled, rng = (U - U.mean(axis=0)) / spread, np.random.default_rng(0)
    # Only the metric is wanted; the filters' experiments were made without finer bandwidths.
    metric = regress(scaled, targets, rng, finest=np.inf).metric
    relevance = np.linalg.norm(metric, axis=1)  # roots of the diagonal of M
    weights = np.maximum(relevance, LEAST_SHARE_OF_RELEVANCE * relevance.max()) / spread
    bandwidth = median_distance(U * weights) / weights
    if not np.isfinite(bandwidth.max()) or not bandwidth.max() > ALIKE * bandwidth.min():
        return None
    return Gaussian(tuple(map(float, bandwidth)))


def state_features(Z: Points, kernel: Kernel) -> Floats | None:
    """Features (n, r) of states, centred, of total variance r; None if they are constant."""
    F = to_numpy(nystrom(kernel, Z, min(RESPONSES, count(Z)), rng=0).features(Z)).astype(float)
    F -= F.mean(axis=0)
    total = float(np.mean(np.square(F)))
    return F / np.sqrt(total) if total > np.finfo(float).eps else None
