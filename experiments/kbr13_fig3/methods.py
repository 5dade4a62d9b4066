"""The problem of KBR13 section 5.2 and the methods compared on it, each with its CPU time.

A row of results is (method, n, setting, error, CPU seconds, rank of x, rank of z).
"""

from __future__ import annotations

import time

import numpy as np

from kernelbayes import (
    ConditionalEmbedding,
    Gaussian,
    KernelBayesRule,
    LikelihoodFree,
    pivoted_cholesky,
)
from kernelbayes.likelihood_free.abc import epanechnikov, local_linear

COLUMNS = ("d", "run", "method", "n", "setting", "error", "seconds", "rank x", "rank z")
FRACTIONS = (0.3, 0.1, 0.03, 0.01, 0.001, 0.0001)
FEWEST = 5  # simulations that rejection must keep, else the fraction is left out
ABC, ADJUSTED, AUTO = "rejection ABC", "rejection ABC, adjusted", "LikelihoodFree, auto"
LOOP = "rejection ABC, one by one"  # the same answers, at the cost of a loop over simulations
COND, KBR, IMPORTANCE = "conditional embedding", "kernel Bayes' rule", "importance rule"
OPERATOR = "kernel Bayes' rule, delta n^2 larger"
CHOSEN = "conditional embedding, ridge by loo"
PRIOR = "prior mean"


class Problem:
    """One random model: a simulator, observations and their true posterior means."""

    def __init__(self, d, rng, predictive=False, tests=10):
        A = rng.normal(size=(2 * d, 2 * d))
        V = A.T @ A + 2.0 * np.eye(2 * d)
        V_zz, V_zx, V_xx = V[:d, :d], V[:d, d:], V[d:, d:]
        self.slope = np.linalg.solve(V_zz, V_zx).T  # E[x | z] = 1 + slope z
        noise = V_xx - self.slope @ V_zx
        self.root_prior, self.root_noise = np.linalg.cholesky(V_zz / 2), np.linalg.cholesky(noise)
        spread = self.slope @ V_zz @ self.slope.T / 2 + noise  # of x under the prior
        # Section 5.1 draws them from N(0, V_xx); section 5.2 does not say.
        law = (np.ones(d), spread) if predictive else (np.zeros(d), V_xx)
        self.observed = rng.multivariate_normal(*law, size=tests)
        gain = np.linalg.solve(spread, self.slope @ V_zz / 2)
        self.truth = (self.observed - 1.0) @ gain

    def simulate(self, n, rng):
        """Parameters (n, d) from the prior and data (n, d)."""
        d = len(self.slope)
        theta = rng.standard_normal((n, d)) @ self.root_prior.T
        x = rng.standard_normal((n, d)) @ self.root_noise.T
        x += theta @ self.slope.T
        x += 1.0
        return theta, x

    def error(self, means):
        """Squared distance to the true posterior means, averaged over the observations."""
        return float(np.mean(np.sum((means - self.truth) ** 2, axis=1)))


def timed(function, *arguments, **options):
    """Call, and return the result and the CPU seconds."""
    start = time.process_time()
    return function(*arguments, **options), time.process_time() - start


def euclidean(x, y):
    """Distance of data to an observation."""
    return np.sqrt(np.einsum("ij,ij->i", x - y, x - y))


def rejection(theta, x, observed, distances, fraction, adjust):
    """Posterior means as reject_abc gives them, without its checks: nothing slows ABC down."""
    keep = int(np.ceil(fraction * len(x)))
    means = []
    for y, far in zip(observed, distances, strict=True):
        kept = np.argpartition(far, keep - 1)[:keep]
        if adjust:
            weights = epanechnikov(far[None, kept], far[kept].max(keepdims=True)[None])[0]
            means.append(weights @ local_linear(theta[kept], x[kept] - y, weights))
        else:
            means.append(theta[kept].mean(axis=0))
    return np.array(means)


def one_by_one(problem, n, rng):
    """Go through steps (i) to (iv) of KBR13 section 4.4, for all observations at once."""
    for _ in range(n):
        theta = problem.root_prior @ rng.standard_normal(len(problem.slope))
        x = 1.0 + problem.slope @ theta + problem.root_noise @ rng.standard_normal(len(theta))
        euclidean(problem.observed, x)


def abc_rows(problem, n, rng, steps=2000):
    """Rows of rejection ABC: every fraction on the same simulations, each charged in full."""
    (theta, x), drawn = timed(problem.simulate, n, rng)
    loop = n / steps * timed(one_by_one, problem, steps, rng)[1]
    distances, measured = timed(lambda: [euclidean(x, y) for y in problem.observed])
    for method, least in ((ABC, FEWEST), (ADJUSTED, 4 * x.shape[1])):
        for fraction in FRACTIONS:
            if fraction * n < least or (method == ADJUSTED and fraction * n > 10_000):
                continue
            means, spent = timed(
                rejection, theta, x, problem.observed, distances, fraction, method == ADJUSTED
            )
            total = drawn + measured + spent
            setting, error = f"best {fraction:g}", problem.error(means)
            yield method, n, setting, error, total, "", ""
            if method == ABC:
                yield LOOP, n, setting, error, loop, "", ""


def conditional(kernels, ridge, theta, x, observed):
    """KBR13 eq. 19, (G + n eps I)^-1 k(y); our ridge is their eps."""
    cme = ConditionalEmbedding(*kernels, ridge).fit(x, theta)
    return cme.expect(cme.regression(theta), observed)


def bayes(kernels, method, ridge, theta, x, observed):
    """Bayes' rule with the simulated parameters as the prior (section 4.4); eps = 0.01 / n."""
    ridges = {"prior_ridge": 0.01 / len(x), "ridge": ridge}
    rule = KernelBayesRule(*kernels, method, **ridges, literal=True)
    return rule.fit(x, theta, prior=theta).predict(observed)


def kernel_rows(problem, n, rng):
    """Rows of the kernel methods; two readings of the tolerance 0.001 of the factorisation."""
    (theta, x), drawn = timed(problem.simulate, n, rng)
    for setting, tol in (("trace 1e-3", 1e-3 / n), ("relative 1e-3", 1e-3)):
        k_x, first = timed(lambda t: pivoted_cholesky(Gaussian.median(x), x, tol=t, rng=0), tol)
        k_z, second = timed(
            lambda t: pivoted_cholesky(Gaussian.median(theta), theta, tol=t, rng=0), tol
        )
        ridge = 0.01 / np.sqrt(n)
        means, spent = timed(conditional, (k_x, k_z), ridge, theta, x, problem.observed)
        yield COND, n, setting, problem.error(means), drawn + first + spent, k_x.rank, ""
        if setting == "relative 1e-3":
            means, spent = timed(conditional, (k_x, k_z), "loo", theta, x, problem.observed)
            total = drawn + first + second + spent
            yield CHOSEN, n, setting, problem.error(means), total, k_x.rank, k_z.rank
        # KBR13 Figure 1 has weights n times ours, so its delta = 2 eps = 0.02 / n is n^2 times
        # ours. On nearly equal weights 1/n the importance rule is eq. 19: the same ridge.
        for name, method, second_ridge in (
            (KBR, "original", 0.02 / n**3),
            (OPERATOR, "original", 0.02 / n),
            (IMPORTANCE, "importance", ridge),
        ):
            means, spent = timed(
                bayes, (k_x, k_z), method, second_ridge, theta, x, problem.observed
            )
            total = drawn + first + second + spent
            yield name, n, setting, problem.error(means), total, k_x.rank, k_z.rank


def auto_rows(problem, n, rng):
    """Rows of what the library chooses by itself: no setting given."""
    (theta, x), drawn = timed(problem.simulate, n, rng)
    model, spent = timed(LikelihoodFree(rng=0, progress=False).fit, theta, x)
    means, asked = timed(lambda: model.posterior(problem.observed).mean())
    yield AUTO, n, str(model.variant_), problem.error(means), drawn + spent + asked, "", ""


def one_run(d, run, sizes, predictive):
    """Rows of one model; the seed is the run's number."""
    rng = np.random.default_rng(run)
    problem = Problem(d, rng, predictive)
    rows = [(PRIOR, 0, "", problem.error(np.zeros_like(problem.truth)), 0.0, "", "")]
    for make, ns in ((kernel_rows, sizes["kernel"]), (auto_rows, sizes["auto"]),
                     (abc_rows, sizes["abc"])):  # fmt: skip
        for n in ns:
            rows.extend(make(problem, n, rng))
    return [dict(zip(COLUMNS, (d, run, *row), strict=True)) for row in rows]
