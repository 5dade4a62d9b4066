"""Four things that the papers leave for later, each as one run: rows of (problem, size, ...)."""

from __future__ import annotations

import time

import numpy as np
from baselines import squared
from gaussian import problem
from models import StateSpace, kanagawa

from kernelbayes import (
    Gaussian,
    KernelBayesRule,
    KernelMonteCarloFilter,
    density_ratio,
)
from kernelbayes.filters.step import predict

TRUTH, GRID = 0.9, (0.5, 0.6, 0.7, 0.8, 0.9, 0.95)  # the damping to learn, and what is tried
BRIGHT, DARK = 0.9, 0.05  # light in the test: mean and standard deviation
DRIFT = 4.0  # offset of the sensor from no light to full light


def rmse(found, truth):
    """Root mean squared error."""
    return float(np.sqrt(np.mean(squared(found, truth))))


def ratios(d, run):
    """Compare density ratios in the importance rule; IW22 section 6 asks for relative ones."""
    one = problem(d, np.random.default_rng(run), tests=200)
    rows = [("ratio", d, run, "constant (prior mean)", one.error(np.zeros_like(one.truth)))]
    kernels = Gaussian.median(one.X), Gaussian.median(one.Z)
    for ratio in ("kulsif", "rulsif", "ulsif", "kmm"):
        rule = KernelBayesRule(*kernels, ratio=ratio).fit(one.X, one.Z, prior=one.prior)
        rows.append(("ratio", d, run, ratio, one.error(rule.predict(one.x))))
    return rows


def damped(factor):
    """Return the linear model 1a of KMCF16 with another damping."""
    base = kanagawa("1a")

    def transition(z, rng, control=None):  # noqa: ARG001 (no controls here)
        return factor * z + rng.normal(size=z.shape)

    return StateSpace(base.initial, transition, base.observe, base.log_likelihood)


def log_evidence(X, model, rng, particles=2000):
    """Log p(x_1..x_T) up to a constant, by a particle filter with the true likelihood."""
    z, total = model.initial(particles, rng), 0.0
    for t, x in enumerate(X):
        z = model.transition(z, rng) if t else z
        logs = model.log_likelihood(x, z)
        top = logs.max()
        weights = np.exp(logs - top)
        total += top + np.log(weights.mean())
        z = z[rng.choice(particles, particles, p=weights / weights.sum())]
    return total


def kernel_evidence(X, model):
    """Sum over steps of the log of the mass, and of the predicted embedding of x at x.

    The mass of a posterior is near one whatever was predicted. The embedding of the predicted
    observation at the one that came, sum_i gamma_i k(x_i, x), is its density through the kernel.
    """
    state, mass, density = model.start(), 0.0, 0.0
    for t, x in enumerate(X):
        gamma = state.belief.weights
        if t:
            gamma = predict(model.dynamics_, gamma[:, None], None, t)[0][:, 0]
        gamma = np.maximum(gamma, 0.0) / np.sum(np.maximum(gamma, 0.0))
        density += np.log(max(float(gamma @ model.kernel_x_(model.X_, x[None])[:, 0]), 1e-300))
        state, info = model.step(state, x)
        mass += np.log(max(info.mass, 1e-300))
    return mass, density


def evidence(n, run):
    """Learn the damping of the transition by the evidence of a sequence (KMCF16 chapter 6)."""
    rng = np.random.default_rng(run)
    model = damped(TRUTH)
    train, test = model.simulate(n, rng), model.simulate(100, rng)
    found = {"particle filter": [], "log of the masses": [], "predicted embedding": []}
    for factor in GRID:
        tried = damped(factor)
        learned = KernelMonteCarloFilter(
            tried.transition, tried.initial, Gaussian.median(train.X, scale=0.5),
            Gaussian.median(train.Z, scale=0.5), picks=50, rng=run,
        ).fit(train.X, train.Z)  # fmt: skip
        scores = log_evidence(test.X, tried, rng), *kernel_evidence(test.X, learned)
        for name, score in zip(found, scores, strict=True):
            found[name].append(score)
    rows = [
        ("evidence: damping", n, run, name, abs(GRID[int(np.argmax(v))] - TRUTH))
        for name, v in found.items()
    ]
    rows.append(
        ("evidence: damping", n, run, "constant", float(np.mean(np.abs(np.array(GRID) - TRUTH))))
    )
    reference = found.pop("particle filter")
    for name, values in found.items():
        agree = np.corrcoef(values, reference)[0, 1] if np.ptp(values) > 0.0 else 0.0
        rows.append(("evidence: correlation with the true one", n, run, name, float(agree)))
    return rows


def transfer(n, run):
    """Learn in all lights, filter in bright light: the offset of the sensor depends on the light.

    The sensor's kernel does not see the light. Pairs are drawn again in proportion to the density
    ratio of the light in the test and in the sample.
    """
    rng, model = np.random.default_rng(run), kanagawa("1a")
    train, test = model.simulate(n, rng), model.simulate(100, rng)
    light, later = rng.uniform(size=n), BRIGHT + DARK * rng.normal(size=len(test.X))
    X, new = train.X + DRIFT * light[:, None], test.X + DRIFT * later[:, None]
    weights = density_ratio(later, light).at_denominator
    again = rng.choice(n, n, p=weights / weights.sum())
    lit = DRIFT * (BRIGHT + DARK * rng.normal(size=n))[:, None]
    samples = {
        "as it is": (X, train.Z, new),
        "re-weighted": (X[again], train.Z[again], new),
        "the light is part of x": (np.c_[X, DRIFT * light], train.Z, np.c_[new, DRIFT * later]),
        "learned in the test's light": (train.X + lit, train.Z, new),
    }
    rows = [("transfer", n, run, "constant", rmse(np.full_like(test.Z, train.Z.mean()), test.Z))]
    for name, (x, z, seen) in samples.items():
        kernels = Gaussian.median(x, scale=0.5), Gaussian.median(z, scale=0.5)
        learned = KernelMonteCarloFilter(model.transition, model.initial, *kernels, rng=run)
        rows.append(("transfer", n, run, name, rmse(learned.fit(x, z).filter(seen).mean(), test.Z)))
    return rows


def resampling(n, run):
    """Frank-Wolfe inside the filter beside herding: errors and milliseconds a step."""
    rows = []
    for name in ("1a", "2a", "4a"):
        rng, model = np.random.default_rng(run), kanagawa(name)
        train, test = model.simulate(n, rng), model.simulate(100, rng)
        kernels = Gaussian.median(train.X), Gaussian.median(train.Z, scale=0.5)
        for way in ("herding", "exchange", "line-search", "fully-corrective", "multinomial"):
            learned = KernelMonteCarloFilter(
                model.transition, model.initial, *kernels, picks=50, resampling=way, rng=run
            ).fit(train.X, train.Z)
            begun = time.process_time()
            found = learned.filter(test.X).mean()
            spent = 10.0 * (time.process_time() - begun)  # of 100 steps
            rows.append((f"resampling, {name}", n, run, way, rmse(found, test.Z)))
            rows.append(("resampling, ms a step", n, run, way, spent))
    return rows


QUESTIONS = {
    "ratio": (ratios, (2, 8, 32)),
    "evidence": (evidence, (200, 400)),
    "transfer": (transfer, (400,)),
    "resampling": (resampling, (200, 400)),
}
