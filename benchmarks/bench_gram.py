"""Gaussian Gram matrix, n = 4000, d = 10, against scikit-learn and SciPy.

The bar: k(X) at least 1.8 times faster than sklearn.metrics.pairwise.rbf_kernel(X).
"""

from __future__ import annotations

import numpy as np
from scipy.spatial.distance import cdist
from sklearn.metrics.pairwise import rbf_kernel
from timing import interleaved, threads, verdict

from kernelbayes import Gaussian

BAR = 1.8


def main() -> bool:
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(4000, 10)), rng.normal(size=(4000, 10))
    h = 3.0
    kernel, gamma = Gaussian(h), 0.5 / h**2
    single = X.astype(np.float32)
    seconds = interleaved(
        {
            "kernelbayes k(X)": lambda: kernel(X),
            "sklearn rbf_kernel(X)": lambda: rbf_kernel(X, gamma=gamma),
        },
        repeats=30,
    ) | interleaved(
        {
            "scipy exp(cdist(X, X))": lambda: np.exp(-gamma * cdist(X, X, "sqeuclidean")),
            "kernelbayes k(X, Y)": lambda: kernel(X, Y),
            "sklearn rbf_kernel(X, Y)": lambda: rbf_kernel(X, Y, gamma=gamma),
            "scipy exp(cdist(X, Y))": lambda: np.exp(-gamma * cdist(X, Y, "sqeuclidean")),
            "kernelbayes k(X), float32": lambda: kernel(single),
        }
    )
    G = kernel(X)
    assert np.array_equal(G, G.T)
    assert np.abs(G - rbf_kernel(X, gamma=gamma)).max() < 1e-12
    print(threads())
    print(f"{'':<28}{'ms':>8}{'ratio to k(X)':>16}")
    ours = seconds["kernelbayes k(X)"]
    for name, time in seconds.items():
        print(f"{name:<28}{1e3 * time:>8.1f}{time / ours:>16.2f}")
    ratio = seconds["sklearn rbf_kernel(X)"] / ours
    return verdict(f"k(X) is {ratio:.2f} times faster than rbf_kernel(X); bar {BAR}", ratio >= BAR)
