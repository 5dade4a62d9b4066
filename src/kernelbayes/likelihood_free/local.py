"""Regression among near simulations, by which they are moved to where the observation is."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.linalg

Floats = np.ndarray[Any, Any]
# Added to the squares of the design, relative to their mean, so that equal columns do no harm.
JITTER = 1e-9
# Leverages count as at most this.
MOST_LEVERAGE = 0.9
# Predicted log variances differ by at most this from that at the observation.
LOG_RANGE = 4.0


def local_regression(
    values: Floats, offsets: Floats, weights: Floats, squares: bool, scales: bool
) -> Floats:
    r"""Values (n, d) moved along their weighted regression on offsets (n, k) to offset zero.

    Linear (Beaumont et al. 2002), or with squares and products of the offsets; then the residuals
    may be stretched by a linear regression of their log squares (Blum and Francois 2010),

    .. math:: f(0) + (\theta_i - f_{-i}(o_i))\, e^{(g(0) - g(o_i)) / 2}.

    Residuals are those of the value that is left out, :math:`r_i / (1 - h_i)` with leverage h:
    those of the fit itself are too small. With too few values for squares the regression is linear,
    with too few for that the values stay where they are.
    """
    w = weights / weights.sum()
    spread = np.sqrt(w @ offsets**2)
    scaled = offsets / np.where(spread > 0, spread, 1.0)
    n, k = scaled.shape
    linear = np.column_stack([np.ones(n), scaled])
    design = linear
    if squares and n > 2 * quadratic_terms(k):
        i, j = np.triu_indices(k)
        design = np.column_stack([linear, scaled[:, i] * scaled[:, j]])
    if n <= 2 * design.shape[1]:
        return values
    at_zero, residuals = _fitted(design, values, w)
    if scales:
        logs = np.log(residuals**2 + 1e-6 * (w @ residuals**2) + np.finfo(float).tiny)
        here, left = _fitted(linear, logs, w)
        residuals = residuals * np.exp(0.5 * np.clip(here - (logs - left), -LOG_RANGE, LOG_RANGE))
    return np.asarray(at_zero + residuals)


def quadratic_terms(k: int) -> int:
    """Terms of a quadratic function of k offsets."""
    return (k + 1) * (k + 2) // 2


def _fitted(design: Floats, values: Floats, w: Floats) -> tuple[Floats, Floats]:
    """Fit by weighted least squares: intercepts (d,) and left-out residuals (n, d)."""
    root = np.sqrt(w)[:, None]
    A = root * design
    G = scipy.linalg.blas.dsyrk(1.0, A.T, lower=1)
    slopes = np.arange(1, len(G))  # not the intercept, or constant columns would share it
    G[slopes, slopes] += JITTER * np.trace(G) / len(G)
    L = scipy.linalg.cholesky(G, lower=True, overwrite_a=True, check_finite=False)
    Q = scipy.linalg.solve_triangular(L, A.T, lower=True, check_finite=False)
    beta = scipy.linalg.solve_triangular(
        L, Q @ (root * values), lower=True, trans="T", check_finite=False
    )
    left = 1.0 - np.minimum(np.einsum("ij,ij->j", Q, Q), MOST_LEVERAGE)
    return beta[0], (values - design @ beta) / left[:, None]
