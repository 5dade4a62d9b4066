"""Power of two-sample tests on several columns: the joint kernel, the columns, and both.

Five standard normal columns, 100 rows in each sample. "joint" is the default kernel of an array,
"columns" the sum of kernels of single columns, "both" the default of a frame, and "product" a
product of one median bandwidth per column, not enlarged. Share of data sets rejected at 5 %.

    python experiments/power/frames.py [--runs 60] [--columns 5]
"""

from __future__ import annotations

import argparse
from functools import reduce
from operator import add

import numpy as np

import kernelbayes as kb
from kernelbayes.kernels.default import TYPICAL, additive_kernel, column_spreads, default_kernel


def draw(problem, d, rng, n=100):
    """Two samples (n, d)."""
    X, Y = rng.normal(size=(2, n, d))
    if problem == "mean of one":
        Y[:, 0] += 0.45
    elif problem == "scale of one":
        Y[:, 0] *= 1.7
    elif problem == "mean of all":
        Y += 0.2
    elif problem == "one correlation":
        Y[:, 1] = 0.7 * Y[:, 0] + np.sqrt(1.0 - 0.7**2) * Y[:, 1]
    elif problem == "all correlations":
        Y = 0.55 * rng.normal(size=(n, 1)) + np.sqrt(1.0 - 0.55**2) * Y
    return X, Y


PROBLEMS = (
    *("none", "mean of one", "scale of one"),
    *("mean of all", "one correlation", "all correlations"),
)


def kernels(pooled):
    """Kernels by name."""
    widths = TYPICAL * column_spreads(pooled)
    return {
        "product": kb.Gaussian(tuple(widths)),
        "joint": default_kernel(pooled),
        "columns": reduce(add, [kb.Parts({j: kb.Gaussian(h)}) for j, h in enumerate(widths)]),
        "both": additive_kernel(pooled),
    }


def main():
    """Print the share of rejections."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--runs", type=int, default=60, help="data sets per problem; run = seed")
    parser.add_argument("--columns", type=int, default=5)
    options = parser.parse_args()
    for problem in PROBLEMS:
        found = {}
        for run in range(options.runs):
            X, Y = draw(problem, options.columns, np.random.default_rng(run))
            for name, kernel in kernels(np.concatenate([X, Y])).items():
                p = kb.mmd_test(X, Y, kernel, permutations=199, rng=run).pvalue
                found.setdefault(name, []).append(p <= 0.05)
        shares = "  ".join(f"{name} {np.mean(hits):.2f}" for name, hits in found.items())
        print(f"{problem:18s}{shares}", flush=True)


if __name__ == "__main__":
    main()
