"""A problem whose answers are known in closed form, and the error of each estimator on it."""

from __future__ import annotations

import numpy as np

from kernelbayes import (
    ConditionalEmbedding,
    Gaussian,
    GaussianEmbedding,
    KernelBayesRule,
    density_ratio,
    pivoted_cholesky,
    sum_rule,
)

KERNEL, NOISE, PRIOR_MEAN, PRIOR_VARIANCE = Gaussian(1.0), 0.25, 0.3, 0.36


def normal(mean, variance):
    """Embedding of a normal distribution in closed form."""
    return GaussianEmbedding([mean], [[variance]], KERNEL)


def distance(points, weights, truth):
    """RKHS distance of a weighted sample from a normal distribution."""
    factor = pivoted_cholesky(KERNEL, points, tol=1e-12, rng=0).features(points)
    square = np.sum((factor.T @ weights) ** 2) - 2.0 * weights @ truth(points) + truth.norm() ** 2
    return float(np.sqrt(max(square, 0.0)))


def posterior(x, mean, variance):
    """Mean (m,) and variance of z given x under a normal prior."""
    gain = variance / (variance + NOISE)
    return mean + gain * (x - mean), (1.0 - gain) * variance


def bayes(method, ridges, X, Z, prior, new):
    """Root mean square error of E[k(z, 0.5) | x] at new x, by one of the rules."""
    kernels = (pivoted_cholesky(KERNEL, points, tol=1e-12, rng=0) for points in (X, Z))
    literal = bool(ridges)
    rule = KernelBayesRule(*kernels, method, *(ridges or ("loo", "loo")), literal=literal)
    found = rule.fit(X, Z, prior=prior).posterior(new).expect(lambda z: KERNEL(z, [0.5])[:, 0])
    means, variance = posterior(new, PRIOR_MEAN, PRIOR_VARIANCE)
    truth = [normal(mean, variance)([0.5])[0] for mean in means]
    return float(np.sqrt(np.mean((np.ravel(found) - truth) ** 2)))


def errors(name, n, ridges, rng):
    """Error of one estimator on one sample; no ridges means ours."""
    Z = rng.normal(size=n)
    X = Z + np.sqrt(NOISE) * rng.normal(size=n)
    prior = PRIOR_MEAN + np.sqrt(PRIOR_VARIANCE) * rng.normal(size=n)
    first = ridges[0] if ridges else "loo"
    if name == "embedding":
        return distance(Z, np.full(n, 1.0 / n), normal(0.0, 1.0))
    if name == "conditional":
        new = np.sqrt(1.0 + NOISE) * rng.normal(size=20)
        cme = ConditionalEmbedding(KERNEL, KERNEL, first).fit(X, Z)
        means, variance = posterior(new, 0.0, 1.0)
        each = zip(cme(new).weights, means, strict=True)
        return float(np.mean([distance(Z, w, normal(mean, variance)) for w, mean in each]))
    if name == "sum rule":
        found = sum_rule(ConditionalEmbedding(KERNEL, KERNEL, first).fit(Z, X), prior)
        return distance(X, found.weights, normal(PRIOR_MEAN, PRIOR_VARIANCE + NOISE))
    if name == "ratio":
        found = density_ratio(prior, Z, KERNEL, ridge=first)(Z)
        truth = np.exp(0.5 * Z**2 - 0.5 * (Z - PRIOR_MEAN) ** 2 / PRIOR_VARIANCE)
        return float(np.sqrt(np.mean((found - truth / np.sqrt(PRIOR_VARIANCE)) ** 2)))
    new = PRIOR_MEAN + np.sqrt(PRIOR_VARIANCE + NOISE) * rng.normal(size=200)
    return bayes(name, ridges, X, Z, prior, new)
