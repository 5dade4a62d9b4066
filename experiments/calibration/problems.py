"""Three problems, models fitted to them, and the coverage of all ways of decoding intervals."""

from __future__ import annotations

import numpy as np

from kernelbayes import ConditionalEmbedding, Gaussian, KernelBayesRule, tune
from kernelbayes.select.calibration import calibrate

N, TESTS = 1000, 200
LEVELS = (0.5, 0.8, 0.9, 0.95)
PROBLEMS = ("gaussian", "bimodal", "skewed")
OPTIONS = ("raw", "rearranged", "clipped", "projected", "smoothed", "recalibrated", "default")
DEFAULTS = ("ConditionalEmbedding()", "KernelBayesRule()")


def problem(name, n, rng):
    """Pairs x (n,), z (n,)."""
    x = rng.normal(size=n)
    if name == "gaussian":
        return x, 0.8 * x + 0.6 * rng.normal(size=n)
    if name == "bimodal":
        side = rng.choice([-1.0, 1.0], size=n)
        return x, side * (1.0 + 0.5 * np.tanh(x)) + 0.3 * rng.normal(size=n)
    return x, np.sin(x) + 0.5 * np.exp(0.3 * x) * rng.gamma(2.0, size=n)


def models(x, z):
    """Name, fitted model and what maps x to posteriors."""
    kernels = Gaussian.median(x), Gaussian.median(z)
    cme = ConditionalEmbedding(*kernels).fit(x, z)
    yield DEFAULTS[0], cme, cme
    kbr = KernelBayesRule(*kernels).fit(x, z)
    yield DEFAULTS[1], kbr, kbr.posterior
    cme = tune(ConditionalEmbedding(*kernels), x, z)
    yield "tune(ConditionalEmbedding())", cme, cme
    kbr = tune(KernelBayesRule(*kernels), x, z)
    yield "tune(KernelBayesRule())", kbr, kbr.posterior


def intervals(option, model, posterior, rng):
    """Intervals (levels, tests, 2)."""
    if option == "recalibrated":
        calibration = calibrate(model)
        return np.stack([calibration.interval(posterior, level)[:, 0] for level in LEVELS])
    if option == "smoothed":
        draws = posterior.sample(1000, rng, method="iid")[:, :, 0]
        ends = [((1 - level) / 2, (1 + level) / 2) for level in LEVELS]
        return np.stack([np.quantile(draws, pair, axis=1).T for pair in ends])
    valid = True if option == "default" else option
    return np.stack([posterior.interval(level, valid=valid)[:, 0] for level in LEVELS])


def one_run(name, run):
    """Rows (problem, model, option, run, coverage at each level) of one data set."""
    rng = np.random.default_rng(run)
    x, z = problem(name, N, rng)
    x_new, z_new = problem(name, TESTS, rng)
    # The trivial baseline forgets x: quantiles of the training z.
    tails = np.array([((1 - level) / 2, (1 + level) / 2) for level in LEVELS])
    low, high = np.quantile(z, tails.T)
    inside = (low[:, None] <= z_new) & (z_new <= high[:, None])
    rows = [(name, "ignore x", "quantiles of z", run, inside.mean(1), (high - low))]
    for label, model, posterior_of in models(x, z):
        posterior = posterior_of(x_new[:, None])
        for option in OPTIONS:
            found = intervals(option, model, posterior, rng)
            inside = (found[..., 0] <= z_new) & (z_new <= found[..., 1])
            lengths = (found[..., 1] - found[..., 0]).mean(axis=1)
            rows.append((name, label, option, run, inside.mean(axis=1), lengths))
    return rows
