"""The model of KMCF16 section 3.5: estimates of m_P, the transition, and ways to resample."""

from __future__ import annotations

import numpy as np

from kernelbayes import Gaussian, GaussianEmbedding, embed, mmd2, resample

KERNEL = Gaussian(0.1)
P = GaussianEmbedding([0.0], [[0.01]], KERNEL)
Q = GaussianEmbedding([0.0], [[0.02]], KERNEL)
N = 100
WAYS = {"Res-KH": "herding", "Res-Ex": "exchange", "Res-Trunc": "multinomial"}


def estimate(half_width, ridge, rng):
    """Estimate of m_P: uniform points, ridge weights divided by their sum."""
    X = rng.uniform(-half_width, half_width, size=N)
    G = KERNEL(X)
    # The gradient of |sum w_i k(., x_i) - m_P|^2 + ridge |w|^2 is zero.
    weights = np.linalg.solve(G + ridge * np.eye(N), P(X))
    return embed(X, KERNEL, weights / weights.sum())


def transition(mu, rng):
    """Sample x' ~ N(x, 0.1^2) at each point and keep the weights."""
    return embed(mu.points + rng.normal(scale=0.1, size=mu.points.shape), KERNEL, mu.weights)


def one_run(half_width, ridge, rng):
    """Row of errors, and the errors of m_P after resampling."""
    mu = estimate(half_width, ridge, rng)
    row = {"sum of squares": float(np.sum(mu.weights**2)), "m_P": float(mmd2(mu, P))}
    row["woRes"] = float(mmd2(transition(mu, rng), Q))
    clouds = {"woRes": mu}
    for name, method in WAYS.items():
        clouds[name] = resample(mu, threshold=np.inf, method=method, rng=rng).embedding
        row[f"m_P {name}"] = float(mmd2(clouds[name], P))
        row[name] = float(mmd2(transition(clouds[name], rng), Q))
    return row, clouds
