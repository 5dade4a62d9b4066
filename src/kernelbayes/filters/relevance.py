r"""Bandwidths of observations, one for each dimension, learned from pairs (x, z).

Some columns of x say much about the state, others little or nothing. How much is learned by
regressing the features of z on standardised x (:mod:`~kernelbayes.select.regression`): what they
predict is the embedding of z given x, so that states of any kind will do, and columns that tell
several places apart count, even if the mean of z hardly moves with them. With M, the average outer
product of the gradients,

.. math:: h_j \propto \frac{s_j}{\max(\rho_j, 0.03 \max_k \rho_k)}, \quad \rho_j = \sqrt{M_{jj}},

s_j the spread of the column. The median distance of the points in these units is one. Only the
diagonal of M is used, so that the kernel stays a product over the columns and an observation with
missing entries keeps its exact form.
"""

from __future__ import annotations

import numpy as np

from kernelbayes.arrays import Array, to_numpy
from kernelbayes.gram.features import nystrom
from kernelbayes.kernels import Gaussian, Kernel
from kernelbayes.points import Points, as_vectors, count, take
from kernelbayes.select.regression import regress

# Pairs that are looked at, and features of z that are predicted, at most.
PAIRS = 2000
FEATURES = 30
# No column counts for less than this share of the most relevant one.
LEAST = 0.03
# Outside of these numbers of columns, or with fewer pairs for each column, nothing is learned.
COLUMNS = (2, 300)
PAIRS_PER_COLUMN = 4
# Bandwidths that differ by a smaller factor are as good as one.
ALIKE = 1.2


def per_dimension(
    X: Points, Z: Points, kernel_z: Kernel, known: Array | None = None
) -> Gaussian | None:
    """Gaussian kernel with a bandwidth for each column of x, by what the column says about z.

    Parameters
    ----------
    X : points (n, d)
        Missing entries filled.
    Z : points (n, ...)
    kernel_z : Kernel
        Whose features are predicted.
    known : array (n, d) of bool, optional
        Which entries of X were there; rows without any are left out.

    Returns
    -------
    Gaussian or None
        None where there is nothing to learn: one column, very many of them, few pairs, constant x
        or z, bandwidths all alike.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelbayes import Gaussian
    >>> from kernelbayes.filters.relevance import per_dimension
    >>> rng = np.random.default_rng(0)
    >>> Z = rng.normal(size=(300, 1))
    >>> X = np.hstack([Z + 0.1 * rng.normal(size=(300, 1)), rng.normal(size=(300, 1))])
    >>> near, useless = per_dimension(X, Z, Gaussian(1.0)).bandwidth
    >>> useless > 5.0 * near
    True
    """
    U = np.asarray(to_numpy(as_vectors(X)), dtype=float)
    rows = np.arange(len(U)) if known is None else np.flatnonzero(known.any(axis=1))
    if len(rows) > PAIRS:
        rows = np.random.default_rng(0).choice(rows, PAIRS, replace=False)
    U, Z = U[rows], take(Z, rows)
    d = U.shape[1]
    if not COLUMNS[0] <= d <= COLUMNS[1] or len(U) < PAIRS_PER_COLUMN * d:
        return None
    spread, targets = U.std(axis=0), _targets(Z, kernel_z)
    if targets is None or not np.any(spread > 0.0):
        return None
    spread = np.where(spread > 0.0, spread, 1.0)  # a constant column is of no relevance anyway
    scaled, rng = (U - U.mean(axis=0)) / spread, np.random.default_rng(0)
    # Only the metric is wanted; the filters' experiments were made without finer bandwidths.
    metric = regress(scaled, targets, rng, finest=np.inf).metric
    relevance = np.linalg.norm(metric, axis=1)  # roots of the diagonal of M
    weights = np.maximum(relevance, LEAST * relevance.max()) / spread
    bandwidth = Gaussian.median(U * weights).bandwidth / weights
    if not np.isfinite(bandwidth.max()) or not bandwidth.max() > ALIKE * bandwidth.min():
        return None
    return Gaussian(tuple(map(float, bandwidth)))


def _targets(Z: Points, kernel: Kernel) -> Array | None:
    """Features (n, r) of states, centred, of total variance r; None if they are constant."""
    F = to_numpy(nystrom(kernel, Z, min(FEATURES, count(Z)), rng=0).features(Z)).astype(float)
    F -= F.mean(axis=0)
    total = float(np.mean(np.square(F)))
    return F / np.sqrt(total) if total > np.finfo(float).eps else None
