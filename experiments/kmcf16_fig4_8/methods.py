"""The filters of KMCF16 section 4.5.2: KMCF, kNN-PF and the KBR filter, on visual words."""

from __future__ import annotations

import numpy as np
from baselines import squared, systematic
from robot import WORDS, move

from kernelbayes import Gaussian, KernelBayesFilter, KernelMonteCarloFilter, SpatialPyramid

PYRAMID = SpatialPyramid(levels=2, bins=WORDS, low=0.0, high=float(WORDS))
ORIGINAL = {"method": "original", "literal": True}
PICKS = 100  # points herded and copied, as in the thesis


def place_error(states, truth):
    """Root mean squared distance of places."""
    return float(np.sqrt(np.mean(squared(states[:, :2], truth[:, :2]))))


def heaviest(model, test):
    """States (T, 4) with the largest weight: the thesis' estimate of the mode (section 4.2.4)."""
    beliefs = model.filter(test.X, test.controls)
    return np.array([model.Z_[int(np.argmax(b.weights))] for b in beliefs])


def monte_carlo(pairs, scale, ridge, rule, run):
    """KMCF on pairs (X, Z) and example controls; the first state is any of the examples."""
    X, Z, U = pairs
    kernel_z = Gaussian.median(Z, scale=scale)
    blank = KernelMonteCarloFilter(
        move, Z, PYRAMID, kernel_z, picks=PICKS, ridge=ridge, rng=run, **rule
    )
    return blank.fit(X, Z, U)


def knn_filter(pairs, test, k, width, rng, particles):
    """KNN-PF (Vlassis et al. 2002): the particle of the largest weight at each step."""
    X, Z, _ = pairs
    near = np.argsort(-PYRAMID(test.X, X), axis=1)[:, :k]
    z, found = Z[rng.integers(len(Z), size=particles)], []
    for t, some in enumerate(near):
        z = move(z, rng, test.controls[t]) if t else z
        away = np.sum((z[:, None] - Z[some]) ** 2, axis=2) / width**2
        logs = np.logaddexp.reduce(-0.5 * away, axis=1)
        weights = np.exp(logs - logs.max())
        found.append(z[np.argmax(weights)])
        z = z[systematic(weights / weights.sum(), rng)]
    return np.array(found)


def bayes_filter(train, scale, delta, run):
    """KBR filter, with pairs and transitions of the first drive at the test's interval."""
    kernels = PYRAMID, Gaussian.median(train.Z, scale=scale), Gaussian.median(train.controls)
    blank = KernelBayesFilter(
        *kernels, **ORIGINAL, prior_ridge=1e-4, transition_ridge=1e-4, ridge=delta, lags=1,
        order=1, features="raw", memory=1.0, tempering=1.0, rank=200, rng=run,
    )  # fmt: skip
    return blank.fit(train.X, train.Z, train.controls)
