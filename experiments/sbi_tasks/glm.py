"""Bernoulli GLM: spikes driven by a fixed noise stimulus through a smooth filter.

Parameters: an offset with variance 2 and a filter of nine lags whose prior asks for small second
differences. Data: one hundred spikes or not (raw), or ten sufficient statistics, the number of
spikes and the spike-triggered sums of the stimulus. The stimulus is the benchmark's: white noise
of NumPy's legacy generator with seed 42.
"""

from __future__ import annotations

import numpy as np
from smc import Checks, sample_posterior

Array = np.ndarray
Rng = np.random.Generator

BINS, LAGS = 100, 9


def _design() -> Array:
    """Columns: ones, then the stimulus delayed by 0 to 8 bins, (100, 10)."""
    stimulus = np.random.RandomState(42).randn(BINS)
    delayed = [np.r_[np.zeros(lag), stimulus[: BINS - lag]] for lag in range(LAGS)]
    return np.column_stack([np.ones(BINS), *delayed])


def _prior_factor() -> Array:
    """Square root A of the prior covariance A A^T: block of the offset and of the filter."""
    D = np.eye(LAGS) - np.eye(LAGS, k=-1)
    F = D @ D
    F[np.diag_indices(LAGS)] += np.sqrt(np.arange(LAGS) / LAGS)
    factor = np.zeros((LAGS + 1, LAGS + 1))
    factor[0, 0] = np.sqrt(2.0)
    factor[1:, 1:] = np.linalg.solve(F, np.eye(LAGS))  # covariance (F^T F)^-1
    return factor


DESIGN = _design()
PRIOR_FACTOR = _prior_factor()


def prior(n: int, rng: Rng) -> Array:
    """Draw n parameters, (n, 10)."""
    return rng.standard_normal((n, LAGS + 1)) @ PRIOR_FACTOR.T


def raw_simulator(theta: Array, rng: Rng) -> Array:
    """Spike trains (n, 100) of zeros and ones."""
    probability = 1 / (1 + np.exp(-theta @ DESIGN.T))
    return (rng.random(probability.shape) < probability).astype(float)


def simulator(theta: Array, rng: Rng) -> Array:
    """Sufficient statistics (n, 10)."""
    return raw_simulator(theta, rng) @ DESIGN


def log_likelihood(theta: Array, x_o: Array) -> Array:
    """Of a spike train with statistics x_o; the same for all trains that share them."""
    return theta @ x_o - np.sum(np.log1p(np.exp(theta @ DESIGN.T)), axis=1)


def raw_log_likelihood(theta: Array, x_o: Array) -> Array:
    """Of the spike train x_o (100,)."""
    return log_likelihood(theta, x_o @ DESIGN)


def checked_reference(x_o: Array, m: int, rng: Rng) -> tuple[Array, Checks]:
    """Draws and checks of the posterior given statistics x_o (10,)."""

    def target(theta: Array) -> Array:
        return log_likelihood(theta, x_o)

    return sample_posterior(target, np.zeros(LAGS + 1), PRIOR_FACTOR, m, rng)


def raw_checked_reference(x_o: Array, m: int, rng: Rng) -> tuple[Array, Checks]:
    """Draws and checks of the posterior given the spike train x_o (100,)."""
    return checked_reference(x_o @ DESIGN, m, rng)
