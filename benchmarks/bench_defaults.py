"""What the choice of default kernels costs: a fit with kernels of None beside one with given ones.

"Median" computes the papers' single medians and fits with them, which was the default before
columns had scales of their own. "Default" chooses scales of columns, see docs/kernels.md. Five
columns of x, two of z; times of the processor, one thread.
"""

from __future__ import annotations

import time

import numpy as np
from threadpoolctl import threadpool_limits
from timing import interleaved, threads, verdict

from kernelbayes import ConditionalEmbedding, Gaussian, KernelBayesRule

SIZES = (100, 200, 500, 1000, 2000)
BAR_FROM, BAR = 500, 5.0  # a small multiple of one fit, for samples that take more than an instant


def fits(n: int) -> dict[str, dict[str, object]]:
    """Functions that fit, by estimator and way of choosing kernels."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 5))
    Z = np.column_stack([np.sin(X[:, 0]), X[:, 1]]) + 0.1 * rng.normal(size=(n, 2))
    given = Gaussian.median(X), Gaussian.median(Z)

    def rule(*kernels):
        return KernelBayesRule(*kernels).fit(X, Z)

    def cme(*kernels):
        return ConditionalEmbedding(*kernels).fit(X, Z).solver_

    return {
        make.__name__: {
            "given": lambda make=make: make(*given),
            "median": lambda make=make: make(Gaussian.median(X), Gaussian.median(Z)),
            "default": make,
        }
        for make in (rule, cme)
    }


def main() -> bool:
    worst = 0.0
    with threadpool_limits(1):
        print(threads())
        print(f"{'':12s}{'n':>6s}{'given, ms':>12s}{'median':>10s}{'default':>10s}")
        for n in SIZES:
            repeats = 5 if n <= 500 else 1
            for name, functions in fits(n).items():
                best = interleaved(functions, repeats, time.process_time)
                given = best["given"]
                ratios = best["median"] / given, best["default"] / given
                print(f"{name:12s}{n:6d}{1e3 * given:12.1f}{ratios[0]:10.2f}{ratios[1]:10.2f}")
                if n >= BAR_FROM:
                    worst = max(worst, ratios[1])
    return verdict(
        f"from n = {BAR_FROM} on a default fit takes up to {worst:.1f} times as long; bar {BAR}",
        worst <= BAR,
    )


if __name__ == "__main__":
    main()
