"""Tuning for a prior against the defaults: errors of posterior means on six problems, paired.

Every problem has a prior that differs from the training marginal (but "same"). Error: root mean
squared distance to the true posterior mean, in units of its spread, at 300 new observations. The
table has the mean error of ``KernelBayesRule()`` and of ``tune(KernelBayesRule(), ...)``, their
mean difference with its standard error, and how often tuning was better, the same, and worse.

    python benchmarks/bench_tune.py [--runs 30]
"""

from __future__ import annotations

import argparse
import warnings

import numpy as np
from threadpoolctl import threadpool_limits
from timing import verdict

from kernelbayes import KernelBayesRule, NumericalWarning, tune

NEW = 300


def normal(rng, n, mean, sd, prior_mean, prior_sd, noise):
    """Hidden N(mean, sd), observed with noise; the prior is another normal."""
    z, prior = rng.normal(mean, sd, n), rng.normal(prior_mean, prior_sd, n)
    new = rng.normal(prior_mean, prior_sd, NEW)
    x, seen = z + noise * rng.normal(size=n), new + noise * rng.normal(size=NEW)
    gain = prior_sd**2 / (prior_sd**2 + noise**2)
    return x, z, prior, seen, prior_mean + gain * (seen - prior_mean)


def units(rng, n):
    """Two hidden columns in different units, each seen with noise of half its spread."""
    scale = np.array([1.0, 100.0])
    z, prior = rng.normal(size=(n, 2)), 0.5 + 0.7 * rng.normal(size=(n, 2))
    new = 0.5 + 0.7 * rng.normal(size=(NEW, 2))
    x, seen = z + 0.5 * rng.normal(size=(n, 2)), new + 0.5 * rng.normal(size=(NEW, 2))
    truth = 0.5 + 0.49 / (0.49 + 0.25) * (seen - 0.5)
    return x * scale, z * scale, prior * scale, seen * scale, truth * scale


def bent(rng, n):
    """Observed z + z^3 / 3 with noise; the truth is by quadrature."""

    def seen_of(z):
        return z + z**3 / 3.0 + 0.7 * rng.normal(size=len(z))

    z, prior, new = rng.normal(size=n), rng.normal(1.0, 0.5, n), rng.normal(1.0, 0.5, NEW)
    x, seen, grid = seen_of(z), seen_of(new), np.linspace(-2.0, 4.0, 2001)
    log = -0.5 * ((seen[:, None] - grid - grid**3 / 3.0) / 0.7) ** 2
    w = np.exp(log - 0.5 * ((grid - 1.0) / 0.5) ** 2)
    return x, z, prior, seen, (w @ grid) / w.sum(axis=1)


def many(rng, n, d=8):
    """Draw the problem of IW22 Fig. 1 in eight dimensions."""
    A = rng.normal(size=(2 * d, 2 * d))
    V = A.T @ A / (2 * d) + 2.0 * np.eye(2 * d)
    pairs = rng.multivariate_normal(np.r_[np.ones(d), np.zeros(d)], V, size=n)
    V_xx, V_xz, V_zz = V[:d, :d], V[:d, d:], V[d:, d:]
    prior = rng.multivariate_normal(np.zeros(d), V_zz / 2, size=n)
    seen = rng.multivariate_normal(np.zeros(d), V_xx, size=NEW)
    slope = np.linalg.solve(V_zz, V_xz.T).T
    noise = V_xx - slope @ V_xz.T
    gain = V_zz / 2 @ slope.T @ np.linalg.inv(slope @ V_zz @ slope.T / 2 + noise)
    return pairs[:, :d], pairs[:, d:], prior, seen, (seen - 1.0) @ gain.T


PROBLEMS = {
    "N(120, 15) to N(140, 10)": lambda rng: normal(rng, 600, 120.0, 15.0, 140.0, 10.0, 8.0),
    "narrower": lambda rng: normal(rng, 300, 0.0, 1.0, 0.5, 0.5, 0.5),
    "same": lambda rng: normal(rng, 300, 0.0, 1.0, 0.0, 1.0, 0.5),
    "units": lambda rng: units(rng, 300),
    "bent": lambda rng: bent(rng, 300),
    "eight dimensions": lambda rng: many(rng, 200),
}


def errors(make, run):
    """Errors of the default and of the tuned rule on one data set."""
    x, z, prior, seen, truth = make(np.random.default_rng(run))
    models = KernelBayesRule().fit(x, z, prior=prior), tune(KernelBayesRule(), x, z, prior=prior)
    unit = truth.std(axis=0)
    return [float(np.sqrt(np.mean(((m.predict(seen) - truth) / unit) ** 2))) for m in models]


def main(runs: int = 30) -> bool:
    passed = True
    print(
        f"{'':26s}{'default':>9s}{'tuned':>9s}{'difference':>20s}{'better':>8s}{'same':>6s}{'worse':>7s}"
    )
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore", NumericalWarning)
        for name, make in PROBLEMS.items():
            found = np.array([errors(make, run) for run in range(runs)])
            gap = found[:, 1] - found[:, 0]
            error = gap.std(ddof=1) / np.sqrt(runs)
            counts = (gap < -1e-6).sum(), (abs(gap) <= 1e-6).sum(), (gap > 1e-6).sum()
            print(
                f"{name:26s}{found[:, 0].mean():9.3f}{found[:, 1].mean():9.3f}"
                f"{gap.mean():12.4f} ({error:.4f})" + "".join(f"{c:7d}" for c in counts),
                flush=True,
            )
            passed &= gap.mean() <= 1e-6  # the same settings give the same up to rounding
    return verdict("tuned errors are at most those of the default on every problem", bool(passed))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--runs", type=int, default=30, help="data sets per problem; run = seed")
    main(parser.parse_args().runs)
