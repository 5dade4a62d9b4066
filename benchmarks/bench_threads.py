"""One BLAS thread against all of them, by size: where arrays.SMALL_WORK comes from.

Below ``SMALL_WORK`` floating-point operations the library asks BLAS for one thread. Each line times
an operation with one thread (the cost of switching included) and with all. A candidate for the
constant then costs, on average over the lines, so many times the better choice of each line. The
bar: the constant in use costs at most 1.25 times as much as the best candidate.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import scipy.linalg
from timing import interleaved, threads, verdict

from kernelbayes import arrays
from kernelbayes.gram.solvers import cho_solve

SIZES = (100, 200, 500, 1000, 2000, 4000)
CANDIDATES = (2e7, 2e8, 2e9, 1e10, 3e10, 2e11)
BAR = 1.25


def operations(n: int) -> dict[str, tuple[float, Callable[[], object]]]:
    """Operations at size n: name -> (flops, function)."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 2))
    A = np.exp(-0.5 * ((X[:, None] - X[None]) ** 2).sum(axis=2)) + np.eye(n)
    L = scipy.linalg.cholesky(A, lower=True)
    B = rng.normal(size=(n, 100))
    return {
        "Cholesky": (n**3 / 3, lambda: scipy.linalg.cholesky(A, lower=True, check_finite=False)),
        "solve, 100 columns": (200.0 * n**2, lambda: cho_solve(L, B)),
        "product, n x n x n": (2.0 * n**3, lambda: A @ A),
    }


def main() -> bool:
    print(threads())
    print(f"{'':<22}{'n':>6}{'one, ms':>10}{'all, ms':>10}{'all/one':>9}{'work':>10}")
    lines = []
    for n in SIZES:
        for name, (work, function) in operations(n).items():

            def with_one(function: Callable[[], object] = function) -> object:
                with arrays.threads_for(0.0):
                    return function()

            times = interleaved({"one": with_one, "all": function}, repeats=4 if n > 1000 else 25)
            one, many = times["one"], times["all"]
            lines.append((work, one, many))
            print(
                f"{name:<22}{n:>6}{1e3 * one:>10.2f}{1e3 * many:>10.2f}{many / one:>9.2f}"
                f"{work:>10.0e}"
            )

    def cost(constant: float) -> float:
        chosen = [(one if work < constant else many, one, many) for work, one, many in lines]
        return float(np.mean([used / min(one, many) for used, one, many in chosen]))

    print("candidate " + "".join(f"{c:>9.0e}" for c in CANDIDATES))
    print("cost      " + "".join(f"{cost(c):>9.2f}" for c in CANDIDATES))
    used, best = cost(arrays.SMALL_WORK), min(map(cost, CANDIDATES))
    what = f"SMALL_WORK = {arrays.SMALL_WORK:.0e} costs {used:.2f}, the best candidate {best:.2f}"
    return verdict(f"{what}; bar {BAR} times that", used <= BAR * best)
