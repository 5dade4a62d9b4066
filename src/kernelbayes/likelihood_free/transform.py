r"""Coordinates in which data and parameters are well behaved.

Data: each column is centred at its median and divided by half the distance between its 16th and
84th percentiles (the standard deviation of a normal sample), which one wild simulation cannot
change. Columns whose tails reach far beyond that go through an inverse hyperbolic sine, a logarithm
for large values of either sign; in the others only values much further out do, so that a wild
simulation has little to pull with. A data set of iid rows is summarised by its mean embedding: the
averages over its rows of the coordinates, their products and random Fourier features.

Parameters: a parameter that is bounded on one side only is replaced by the logarithm of its
distance to the bound; others stay as they are. All are centred and scaled.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from kernelbayes.arrays import as_generator
from kernelbayes.gram.features import Fourier, fourier
from kernelbayes.kernels import Gaussian
from kernelbayes.likelihood_free.bounds import bounded, unbounded
from kernelbayes.likelihood_free.priors import Prior

Floats = np.ndarray[Any, Any]
# A column is heavy-tailed if one per cent of its values are further out than this many scales.
HEAVY = 4.0
# Beyond this many scales distances grow like their logarithm.
FAR = 10.0
# The largest distance in scales, so that twice that is finite.
MOST = 1e300
# Random features of the rows of an iid data set.
ROW_FEATURES = 100


@dataclass(frozen=True)
class Columns:
    """Robust standardisation of the columns of a table (n, p)."""

    centre: Floats
    scale: Floats
    heavy: Floats

    @classmethod
    def of(cls, X: Floats) -> Columns:
        """Fit to a table; a constant column keeps its units."""
        low, centre, high = np.quantile(X, [0.16, 0.5, 0.84], axis=0)
        with np.errstate(over="ignore"):  # of squares, in columns that may not need them
            spread = np.where(high > low, (high - low) / 2.0, X.std(axis=0))
        scale = np.where((spread > 0) & np.isfinite(spread), spread, 1.0)
        far = np.quantile(np.abs(_scales(X, centre, scale)), 0.99, axis=0)
        return cls(centre, scale, far > HEAVY)

    def __call__(self, X: Floats) -> Floats:
        """Standardise a table (n, p)."""
        U = _scales(X, self.centre, self.scale)
        near = np.clip(U, -FAR, FAR)
        squeezed = np.arcsinh(3.0 * U) / np.arcsinh(3.0)
        return np.asarray(np.where(self.heavy, squeezed, near + np.arcsinh(U - near)))


def _scales(X: Floats, centre: Floats, scale: Floats) -> Floats:
    """Distances (n, p) from the centre in scales, finite also where a simulation exploded."""
    with np.errstate(over="ignore"):
        return np.asarray(np.clip((X - centre) / scale, -MOST, MOST))


@dataclass(frozen=True)
class Data:
    """From data sets to vectors: vectors as they are, sets of iid rows by their embedding."""

    columns: Columns
    rows: Columns | None = None
    products: Floats | None = None
    random: Fourier | None = None

    @classmethod
    def of(cls, x: Floats, rng: Any) -> Data:
        """Fit to data (n, p), or (n, k, p) for n data sets of k iid rows."""
        if x.ndim == 2:
            return cls(Columns.of(x))
        flat = x.reshape(-1, x.shape[2])
        rows, generator = Columns.of(flat), as_generator(rng)
        subset = rows(flat[generator.permutation(len(flat))[:2000]])
        random = fourier(Gaussian.median(subset), x.shape[2], ROW_FEATURES, rng=generator)
        products = np.stack(np.triu_indices(x.shape[2]))
        blank = cls(Columns.of(np.zeros((1, 1))), rows, products, random)
        return cls(Columns.of(blank._means(x)), rows, products, random)

    def __call__(self, x: Floats) -> Floats:
        """Vectors (n, q) of data (n, p) or (n, k, p)."""
        return self.columns(x if self.rows is None else self._means(x))

    def _means(self, x: Floats) -> Floats:
        assert self.rows is not None
        assert self.products is not None
        assert self.random is not None
        U = self.rows(x)
        pairs = U[:, :, self.products[0]] * U[:, :, self.products[1]]
        random = self.random.features(U.reshape(-1, U.shape[2]))
        means = random.reshape(*U.shape[:2], -1).mean(axis=1)
        return np.hstack([U.mean(axis=1), pairs.mean(axis=1), means])


@dataclass(frozen=True)
class Space:
    """Coordinates of parameters: free of one-sided bounds, centred and scaled."""

    low: Floats
    high: Floats
    centre: Floats
    scale: Floats
    discrete: Floats

    @classmethod
    def of(cls, theta: Floats, prior: Prior | None) -> Space:
        """Fit to parameters (n, d) of a prior."""
        d = theta.shape[1]
        low, high = np.full(d, -np.inf), np.full(d, np.inf)
        discrete = np.zeros(d, dtype=bool) if prior is None else prior.discrete
        if prior is not None:
            one_sided = (np.isfinite(prior.low) != np.isfinite(prior.high)) & ~prior.discrete
            low = np.where(one_sided, prior.low, low)
            high = np.where(one_sided, prior.high, high)
        free = unbounded(theta, low, high)
        spread = free.std(axis=0)
        scale = np.where(spread > 0, spread, 1.0)
        return cls(low, high, free.mean(axis=0), scale, discrete)

    def coordinates(self, theta: Floats) -> Floats:
        """Coordinates (n, d) of parameters (n, d)."""
        return (unbounded(theta, self.low, self.high) - self.centre) / self.scale

    def parameters(self, P: Floats) -> Floats:
        """Parameters (n, d) of coordinates (n, d); discrete ones are whole numbers again."""
        theta = bounded(P * self.scale + self.centre, self.low, self.high)
        theta[:, self.discrete] = np.rint(theta[:, self.discrete])
        return theta

    def log_volume(self, theta: Floats) -> Floats:
        """Log of the Jacobian determinant of the coordinates in the parameters, (n,)."""
        free = unbounded(theta, self.low, self.high)
        lower, upper = np.isfinite(self.low), np.isfinite(self.high)
        logs = free[:, upper].sum(axis=1) - free[:, lower].sum(axis=1)
        return np.asarray(logs - np.sum(np.log(self.scale)))
