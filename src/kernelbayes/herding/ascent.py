"""Herding over all of R^d: each pick climbs from the best candidate to a maximum nearby.

The objective of pick p, mu(x) - (1/p) sum_{j<p} k(x, x_j), is smooth where the kernel is. Its
gradient is taken by central differences, so that any kernel on vectors will do, and all 2d + 1
points of one gradient are evaluated together.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.optimize import minimize
from scipy.special import ndtri
from scipy.stats import qmc

from kernelbayes.arrays import Floats
from kernelbayes.gram.lapack import symmetric_factor

# Quasi-random points from which a search starts if there are no candidates, at least.
STARTS = 1024
# Step of central differences in units of the candidates' standard deviation: its square (the
# truncation error) and rounding divided by it are both below 1e-9.
DIFFERENCE = 3e-5


def herd_anywhere(
    mu: Callable[[Floats], Floats],
    kernel: Callable[[Floats, Floats], Floats],
    candidates: Floats,
    values: Floats,
    m: int,
) -> Floats:
    """Herd m points of R^d (KMCF16 eq. 2.16, 2.17), starting each search at the best candidate.

    Parameters
    ----------
    mu, kernel : functions on NumPy points (k, d)
    candidates : array (n, d)
    values : array (n,)
        mu at the candidates.
    m : int

    Returns
    -------
    array (m, d)
        No pick is worse than the best candidate.
    """
    deviation = candidates.std(axis=0)
    scale = np.where(deviation > 0, deviation, 1.0)
    total = np.zeros(len(values))
    picks = np.empty((m, candidates.shape[1]))
    for p in range(m):
        heights = values - total / (p + 1)
        best = int(np.argmax(heights))

        def height(Y: Floats, p: int = p) -> Floats:
            taken = kernel(Y, picks[:p]).sum(axis=1) / (p + 1) if p else 0.0
            return np.asarray(mu(Y) - taken)

        picks[p] = climb(height, candidates[best], scale, float(heights[best]))
        total += kernel(picks[p : p + 1], candidates)[0]
    return picks


def climb(f: Callable[[Floats], Floats], start: Floats, scale: Floats, at_start: float) -> Floats:
    """Local maximum (d,) of f near a start, or the start itself if nothing higher is found."""
    d = len(start)
    corners = DIFFERENCE * np.concatenate([np.zeros((1, d)), np.eye(d), -np.eye(d)])

    def down(u: Floats) -> tuple[float, Floats]:
        v = f(start + (u + corners) * scale)
        return -float(v[0]), (v[d + 1 :] - v[1 : d + 1]) / (2.0 * DIFFERENCE)

    found = minimize(down, np.zeros(d), jac=True, method="L-BFGS-B", options={"maxiter": 50})
    return start + found.x * scale if -found.fun > at_start else start


def gaussian_starts(mean: Floats, cov: Floats, m: int) -> Floats:
    """Quasi-random points (n, d) of a normal distribution, n at least twice m; deterministic."""
    size = max(STARTS, 2 * m)
    power = int(np.ceil(np.log2(size)))
    uniform = qmc.Sobol(len(mean), scramble=False).random_base2(power) + 0.5 ** (power + 1)
    return np.asarray(mean + ndtri(uniform) @ symmetric_factor(cov).T)
