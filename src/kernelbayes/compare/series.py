r"""Multipliers for the wild bootstrap of time series, and how long their memory must be.

Points of a stationary series are not exchangeable, so permutations are wrong. The wild bootstrap
(Chwialkowski, Sejdinovic and Gretton 2014) multiplies point t by a Gaussian process with
autocorrelation ``exp(-|t - s| / l)``, which leaves dependence up to about l steps in place.

Two corrections make it usable at a few hundred points. Centring the multipliers takes away
variance, which is given back. And the decay cuts the long-run variance short: it is restored to
that of an autoregression of order one with the same lag-one correlation in feature space, as
prewhitening does (Andrews and Monahan 1992), which also sets l (Andrews 1991, eq. 5.3 and 6.4).
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from scipy.signal import lfilter

from kernelbayes.compare.nulls import centred, centred_factor
from kernelbayes.compare.results import Floats
from kernelbayes.gram import Dense, Gram

BlockLength = float | Literal["auto"] | None
# Beyond this correlation a series is too close to a random walk for any bootstrap.
LARGEST_CORRELATION = 0.97


def multipliers(w: Floats, draws: int, length: float, rng: np.random.Generator) -> Floats:
    """Gaussian multipliers (n, draws) with weighted mean zero and mean variance one.

    ``w`` are the weights of the points, with sum one; ``length`` 0 means independent multipliers.
    """
    W = rng.standard_normal((len(w), draws))
    decay = np.exp(-1.0 / length) if length > 0.0 else 0.0
    if decay > 0.0:
        W[1:] *= np.sqrt(1.0 - decay**2)
        W = lfilter([1.0], [1.0, -decay], W, axis=0)
    W = W - w @ W
    forward, backward = (lfilter([1.0], [1.0, -decay], v) for v in (w, w[::-1]))
    of_mean = float(w @ (forward + backward[::-1] - w))  # variance of the mean, w^T R w
    return np.asarray(W / np.sqrt(max(1.0 - of_mean, np.finfo(float).tiny)))


def memory(correlation: float, n: int, block_length: BlockLength) -> tuple[float, float]:
    """Memory l of the multipliers, and the factor by which they are inflated.

    ``correlation`` is the lag-one correlation; a given ``block_length`` is taken as it is.
    """
    if block_length is None:
        return 0.0, 1.0
    if block_length != "auto":
        if isinstance(block_length, str) or not 0.0 < block_length < np.inf:
            raise ValueError(
                f"block_length must be a positive number, 'auto' or None, got {block_length!r}"
            )
        return float(block_length), 1.0
    rho = correlation + (1.0 + 3.0 * correlation) / n  # bias of an autocorrelation (Kendall 1954)
    rho = float(np.clip(rho, 0.0, LARGEST_CORRELATION))
    alpha = 4.0 * rho**2 / (1.0 - rho**2) ** 2
    length = float((alpha * n) ** (1.0 / 3.0))
    if length < 0.1:  # the decay is below 1e-4
        return 0.0, 1.0
    kept = rho * np.exp(-1.0 / length)
    return length, float(np.sqrt((1 + rho) / (1 - rho) * (1 - kept) / (1 + kept)))


def lag_one(gram: Gram) -> float:
    """Lag-one correlation of a series in feature space.

    From the square of its centred Gram matrix, which weighs each direction by its squared
    eigenvalue, as the variance of the statistic does: the wide, slow directions decide.
    """
    if isinstance(gram, Dense):
        C = centred(gram.G)
        here, after = np.vdot(C, C) / len(C), np.vdot(C[:-1], C[1:]) / (len(C) - 1)
    else:
        F = centred_factor(gram)
        P = F @ (F.T @ F)
        here, after = np.vdot(F, P) / len(F), np.vdot(F[:-1], P[1:]) / (len(F) - 1)
    return float(after / here) if here > 0.0 else 0.0
