"""Five problems for tests of 200 points or pairs, and the p-values of every test on them."""

from __future__ import annotations

import warnings

import numpy as np

import kernelbayes as kb
from kernelbayes.compare.samples import MULTIPLES, bandwidth_family

N = 200


def blobs(rng):
    """Nine clusters; in the second sample they are stretched along the diagonal."""
    centres = 6.0 * rng.integers(3, size=(2, N, 2))
    x, y = rng.normal(size=(2, N, 2))
    ratio = 6.0  # of the eigenvalues of the covariance, with unit variances
    slope = (ratio - 1.0) / (ratio + 1.0)
    return centres[0] + x, centres[1] + y @ np.linalg.cholesky([[1.0, slope], [slope, 1.0]]).T


def mean_shift(rng):
    """Draw a standard normal, and one with its mean moved by 0.2 in both coordinates."""
    return rng.normal(size=(N, 2)), rng.normal(0.2, 1.0, size=(N, 2))


def variance_shift(rng):
    """Draw a standard normal, and one a quarter wider."""
    return rng.normal(size=(N, 2)), 1.25 * rng.normal(size=(N, 2))


def sine(rng):
    """Four half waves under noise of deviation one."""
    x = rng.uniform(-1.0, 1.0, size=N)
    return x, np.sin(4.0 * np.pi * x) + 1.0 * rng.normal(size=N)


def circle(rng):
    """Points around the unit circle: uncorrelated coordinates."""
    angle = rng.uniform(0.0, 2.0 * np.pi, size=N)
    return np.cos(angle) + 0.4 * rng.normal(size=N), np.sin(angle) + 0.4 * rng.normal(size=N)


TWO_SAMPLE = {"blobs": blobs, "mean shift": mean_shift, "variance shift": variance_shift}
PAIRS = {"sine": sine, "circle": circle}


def two_sample_tests(x, y, seed, permutations):
    """P-value of every two-sample test on one data set."""
    pooled, how = np.concatenate([x, y]), (permutations, seed)
    kernel = kb.Gaussian.median(pooled)
    rows = {
        "Linear kernel": kb.mmd_test(x, y, kb.Linear(), permutations, seed),
        "permutation": kb.mmd_test(x, y, kernel, permutations, seed),
        "gamma": kb.mmd_test(x, y, kernel, permutations, seed, method="gamma"),
        "features": kb.mmd_test(x, y, kernel, permutations, seed, method="features"),
        "block": kb.mmd_test(x, y, kernel, permutations, seed, method="block"),
        "linear time": kb.mmd_test(x, y, kernel, permutations, seed, method="linear"),
        "kernel by power": kb.mmd_test(x, y, bandwidth_family(kernel, pooled, 10), *how),
        "aggregated": kb.mmd_aggregated(
            *(x, y, [kernel.scaled(s) for s in MULTIPLES]), *how, weights=MULTIPLES
        ),
    }
    return {name: result.pvalue for name, result in rows.items()}


def pair_tests(x, z, seed, permutations):
    """P-value of every independence test on one data set."""
    kernels = kb.Gaussian.median(x), kb.Gaussian.median(z)
    linear = kb.Linear(), kb.Linear()
    rows = {"Linear kernel": kb.hsic_test(x, z, *linear, permutations, seed)}
    for name in ("permutation", "gamma", "features", "block", "linear"):
        label = "linear time" if name == "linear" else name
        rows[label] = kb.hsic_test(x, z, *kernels, permutations, seed, method=name)
    rows["aggregated"] = kb.hsic_aggregated(x, z, permutations=permutations, rng=seed)
    return {name: result.pvalue for name, result in rows.items()}


def hyppo_test(problem, x, y, seed, permutations):
    """Hyppo's p-value with the same Gaussian kernel; None if it is not installed."""
    try:
        from hyppo.independence import Hsic
        from hyppo.ksample import MMD
    except ImportError:
        return None
    if problem in TWO_SAMPLE:
        gamma = 0.5 / kb.Gaussian.median(np.concatenate([x, y])).bandwidth ** 2
        test = MMD(compute_kernel="rbf", gamma=gamma)
    else:  # one gamma for both variables: bring both to bandwidth one
        x, y = (v / kb.Gaussian.median(v).bandwidth for v in (x, y))
        test = Hsic(compute_kernel="rbf", gamma=0.5)
    x, y = (np.reshape(v, (len(v), -1)) for v in (x, y))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns below 1000 permutations
        return test.test(x, y, reps=permutations, auto=False, random_state=seed)[1]


def compute(seeds, permutations):
    """Rows (problem, seed, test, p-value) of our tests."""
    rows = []
    for problem, draw in {**TWO_SAMPLE, **PAIRS}.items():
        tests = two_sample_tests if problem in TWO_SAMPLE else pair_tests
        for seed in seeds:
            x, y = draw(np.random.default_rng(seed))
            for name, p in tests(x, y, seed, permutations).items():
                rows.append((problem, seed, name, p))
    return rows


def compute_hyppo(seeds, permutations):
    """Rows of hyppo; none if it is not installed."""
    rows = []
    for problem, draw in {**TWO_SAMPLE, **PAIRS}.items():
        for seed in seeds:
            p = hyppo_test(problem, *draw(np.random.default_rng(seed)), seed, permutations)
            if p is None:
                print("hyppo is not installed: its column is left out (pip install hyppo)")
                return []
            rows.append((problem, seed, "hyppo", p))
    return rows
