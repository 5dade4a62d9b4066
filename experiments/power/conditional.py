"""Level and power of the conditional-independence test, easy and hard problems beside each other.

x and y are functions of z under noise; for the power the two noises have correlation 0.4. The
trivial baseline is the partial correlation (least squares on z, t test). The last three problems
are there to break the test: five or ten dimensions, scale as well as location.

    python experiments/power/conditional.py [--runs N] [--points N]
"""

from __future__ import annotations

import argparse

import numpy as np
from scipy import stats
from threadpoolctl import threadpool_limits

import kernelbayes as kb

LEVEL, DEPENDENCE = 0.05, 0.4


def total(z):
    """Sum of the columns, variance one."""
    return z.sum(axis=1) / np.sqrt(z.shape[1])


# Name: dimension of z, then x and y as functions of z and their noise.
PROBLEMS = {
    "sine": (1, lambda z, e: np.sin(2.0 * total(z)) + 0.5 * e, None),
    "scale": (1, lambda z, e: total(z) + 0.5 * (0.3 + np.abs(total(z))) * e, None),
    "cubes": (1, lambda z, e: (total(z) + 0.5 * e) ** 3, None),
    "sum of 5": (5, lambda z, e: total(z) + 0.5 * e, None),
    "tanh of 5": (5, lambda z, e: total(z) + 0.5 * e, lambda z, e: np.tanh(2 * total(z)) + 0.5 * e),
    "sum of 10": (10, lambda z, e: total(z) + 0.5 * e, None),
    "sine of 5": (5, lambda z, e: np.sin(2.0 * total(z)) + 0.5 * e, None),
    "scale of 5": (5, lambda z, e: total(z) + 0.5 * (0.3 + np.abs(total(z))) * e, None),
}


def draw(problem, n, dependence, rng):
    """One data set (x, y, z)."""
    dimension, f, g = PROBLEMS[problem]
    z = rng.normal(size=(n, dimension))
    e, other = rng.normal(size=(2, n))
    return f(z, e), (g or f)(z, dependence * e + np.sqrt(1.0 - dependence**2) * other), z


def partial_correlation(x, y, z):
    """P-value of the correlation of least-squares residuals."""
    design = np.column_stack([np.ones(len(z)), z])
    r, s = (v - design @ np.linalg.lstsq(design, v, rcond=None)[0] for v in (x, y))
    rho, free = np.corrcoef(r, s)[0, 1], len(z) - design.shape[1] - 1
    return float(2.0 * stats.t.sf(abs(rho) * np.sqrt(free / (1.0 - rho**2)), free))


def main():
    """Print the share of rejections."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--runs", type=int, default=200, help="data sets per problem; run = seed")
    parser.add_argument("--points", type=int, default=150)
    options = parser.parse_args()
    print(f"n = {options.points}, share of {options.runs} data sets rejected at {LEVEL}")
    print(f"{'':12s}{'level':>10s}{'power':>10s}{'partial correlation: level':>32s}{'power':>10s}")
    for problem in PROBLEMS:
        shares = {"ours": [], "partial": []}
        for dependence in (0.0, DEPENDENCE):
            p, q = [], []
            for run in range(options.runs):
                rng = np.random.default_rng(run)
                data = draw(problem, options.points, dependence, rng)
                kernel_z = kb.Gaussian.median(data[2])
                p.append(kb.ci_test(*data, kernel_z=kernel_z, permutations=199, rng=rng).pvalue)
                q.append(partial_correlation(*data))
            for name, values in (("ours", p), ("partial", q)):
                shares[name].append(np.mean(np.array(values) <= LEVEL))
        (a, b), (c, d) = shares.values()
        print(f"{problem:12s}{a:10.3f}{b:10.3f}{c:32.3f}{d:10.3f}", flush=True)


if __name__ == "__main__":
    with threadpool_limits(1):
        main()
