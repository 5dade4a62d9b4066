"""Pairs that are jointly Gaussian, and a prior half as wide as their marginal: IW22 5.1, KBR13 5.1.

The posterior mean is known, so that estimates of it have an error.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class Problem(NamedTuple):
    """Training pairs X, Z (n, d), prior points (n, d), observations (m, d), posterior means."""

    X: np.ndarray
    Z: np.ndarray
    prior: np.ndarray
    x: np.ndarray
    truth: np.ndarray

    def error(self, means: np.ndarray) -> float:
        """Squared distance to the posterior means, summed over dimensions, averaged over points."""
        return float(np.mean(np.sum((means - self.truth) ** 2, axis=1)))


def problem(
    d: int, rng: np.random.Generator, divided: bool = True, n: int = 200, tests: int = 1000
) -> Problem:
    """Draw one problem; the covariance A'A + 2 I of the pairs is as in KBR13, A'A/2d + 2 I in IW22.

    ``divided`` is for that of IW22.
    """
    A = rng.normal(size=(2 * d, 2 * d))
    V = A.T @ A / (2 * d if divided else 1) + 2.0 * np.eye(2 * d)
    pairs = rng.multivariate_normal(np.r_[np.ones(d), np.zeros(d)], V, size=n)
    V_xx, V_xz, V_zz = V[:d, :d], V[:d, d:], V[d:, d:]
    prior = rng.multivariate_normal(np.zeros(d), V_zz / 2, size=n)
    x = rng.multivariate_normal(np.zeros(d), V_xx, size=tests)
    slope = np.linalg.solve(V_zz, V_xz.T).T  # E[x | z] = 1 + slope z
    noise = V_xx - slope @ V_xz.T
    spread = slope @ V_zz @ slope.T / 2 + noise  # covariance of x under the prior
    gain = np.linalg.solve(spread, slope @ V_zz / 2).T
    return Problem(pairs[:, :d], pairs[:, d:], prior, x, (x - 1.0) @ gain.T)
