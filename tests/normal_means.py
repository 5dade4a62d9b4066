"""Normal means with normal noise: simulations, their exact posteriors, and models fitted to them.

Tolerances are four standard errors. A posterior made of simulations near the observation has the
error of a mean of ``ess`` points; one that rests on a regression has the regression's, about ten
coefficients learned from n simulations. So the number that counts is min(ess, n / 10), for a mean
sd / sqrt(m), for a standard deviation sd / sqrt(2 m).
"""

import numpy as np
from scipy import stats

import kernelbayes as kb
from kernelbayes import LikelihoodFree

METHODS = ["auto", "cme", "original", "importance", "adjusted", "likelihood"]
NOISE = 0.5  # standard deviation of x given theta
OBSERVED = np.array([-1.0, 0.5, 1.5])
# A fourth of the variants, where the choice among them is not what is tested.
FEW = {"method": "adjusted", "adjust": "location"}


def pairs(n, d=1, seed=0, noise=NOISE, prior=None):
    rng = np.random.default_rng(seed)
    theta = rng.normal(size=(n, d)) if prior is None else kb.as_prior(prior).sample(n, rng)
    return theta, rng.normal(theta, noise)


def closed_form(x, mean=0.0, var=1.0, noise=NOISE):
    """Posterior mean and variance of a normal mean, for each coordinate."""
    precision = 1.0 / var + 1.0 / noise**2
    return (mean / var + x / noise**2) / precision, 1.0 / precision


def fitted(n, d=1, method="adjusted", seed=0):
    return LikelihoodFree([stats.norm()] * d, method, rng=0).fit(*pairs(n, d, seed))


def assert_close(posterior, mean, var, n, errors=4.0):
    counted = min(posterior.diagnostics.ess, n / 10)
    sd = np.sqrt(var)
    assert np.all(np.abs(posterior.mean() - mean) < errors * sd / np.sqrt(counted))
    spread = np.sqrt(np.diag(posterior.cov()))
    assert np.all(np.abs(spread - sd) < errors * sd / np.sqrt(2 * counted))
