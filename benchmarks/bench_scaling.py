"""Fit and 1000 posterior means with rank-500 features, n = 10^4, 10^5, 10^6, and scikit-learn.

x is 5-d, z is 2-d; Gaussian kernels. Ridges are given as numbers: choosing them by leave-one-out
costs the same at every n (a subset of 2000 pairs) and would flatten the growth. With a prior sample
the features of z are needed too, for the prior's weights. Beyond 2^27 entries features are computed
again, block by block, at each pass instead of being held. Each line runs in a process of its own,
whose peak memory is printed. One BLAS thread, CPU time.

Bars: the growth exponent over all n is at most 1.1; memory stays below 4 GB; fit and predict with
the training marginal as prior is no slower than ``Nystroem`` + ``Ridge``, which solve the same
regression, and neither is the regression alone on the same features, where the numbers agree.
"""

from __future__ import annotations

import json
import math
import resource
import subprocess
import sys
import time
from collections.abc import Callable

import numpy as np
from sklearn.kernel_approximation import Nystroem
from sklearn.linear_model import Ridge
from threadpoolctl import threadpool_limits
from timing import interleaved, threads, verdict

from kernelbayes import Gaussian, KernelBayesRule, Linear, nystrom

SIZES = (10_000, 100_000, 1_000_000)
RANK, RIDGE, PRIOR_RIDGE = 500, 1e-4, 1e-4
H_X, H_Z = 2.0, 1.5  # about the median distances
EXPONENT, GIGABYTES = 1.1, 4.0
PRIORS = ("marginal", "sample")


def data(n: int) -> dict[str, np.ndarray]:
    """Pairs, queries, and a prior sample that is narrower than the training marginal."""
    rng = np.random.default_rng(n)
    A = np.random.default_rng(0).normal(size=(2, 5))
    Z = rng.normal(size=(n + 1000, 2))
    X = np.tanh(Z @ A) + 0.3 * rng.normal(size=(n + 1000, 5))
    prior = rng.normal(0.5, 0.7, size=(1000, 2))
    return {"X": X[:n], "Z": Z[:n], "queries": X[n:], "prior": prior}


def ours(d: dict[str, np.ndarray], prior: str = "marginal") -> np.ndarray:
    """Fit on new landmarks and predict."""
    model = KernelBayesRule(
        Gaussian(H_X), Gaussian(H_Z), prior_ridge=PRIOR_RIDGE, ridge=RIDGE, rank=RANK, rng=0
    )
    return model.fit(d["X"], d["Z"], d["prior"] if prior == "sample" else None).predict(
        d["queries"]
    )


def theirs(d: dict[str, np.ndarray]) -> np.ndarray:
    """Do the same regression with scikit-learn, on landmarks of its own."""
    features = Nystroem(gamma=0.5 / H_X**2, n_components=RANK, random_state=0)
    ridge = Ridge(RIDGE * len(d["X"]), fit_intercept=False)
    ridge.fit(features.fit_transform(d["X"]), d["Z"])
    return ridge.predict(features.transform(d["queries"]))


def measure(n: int, prior: str) -> None:
    """Print seconds and peak memory of one line; runs in a process of its own."""
    d = data(n)
    seconds = math.inf
    with threadpool_limits(1, user_api="blas"):
        for _ in range({10_000: 7, 100_000: 2}.get(n, 1)):
            start = time.process_time()
            ours(d, prior)
            seconds = min(seconds, time.process_time() - start)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20  # Linux counts kilobytes
    print(json.dumps({"seconds": seconds, "gigabytes": peak}))


def main() -> bool:
    with threadpool_limits(1, user_api="blas"):
        print(threads())
        passed = [growth(prior) for prior in PRIORS]
        passed += [side_by_side(n) for n in (10_000, 100_000)]
        return all(passed)


def growth(prior: str) -> bool:
    print(f"{'prior: ' + prior:<20}{'n':>8}{'s':>8}{'us/pair':>9}{'GB':>6}")
    seconds, peak = [], 0.0
    for n in SIZES:
        command = [sys.executable, __file__, str(n), prior]
        out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        line = json.loads(out)
        seconds.append(line["seconds"])
        peak = max(peak, line["gigabytes"])
        print(f"{'':<20}{n:>8}{seconds[-1]:>8.2f}{1e6 * seconds[-1] / n:>9.1f}", end="")
        print(f"{line['gigabytes']:>6.2f}")
    exponent = float(np.polyfit(np.log(SIZES), np.log(seconds), 1)[0])
    last = math.log(seconds[-1] / seconds[-2]) / math.log(SIZES[-1] / SIZES[-2])
    return verdict(
        f"prior {prior}: time grows as n^{exponent:.2f} (last step n^{last:.2f}), bar "
        f"{EXPONENT}; peak {peak:.1f} GB, bar {GIGABYTES:.0f}",
        exponent <= EXPONENT and peak < GIGABYTES,
    )


def side_by_side(n: int) -> bool:
    d = data(n)
    kernel = nystrom(Gaussian(H_X), d["X"], RANK, rng=0)
    F, queries = kernel.features(d["X"]), kernel.features(d["queries"])

    def regression() -> np.ndarray:
        rule = KernelBayesRule(Linear(), Linear(), ridge=RIDGE)
        return rule.fit(F, d["Z"]).predict(queries)

    def ridge() -> np.ndarray:
        return Ridge(RIDGE * n, fit_intercept=False).fit(F, d["Z"]).predict(queries)

    gap = np.abs(regression() - ridge()).max()
    assert gap < 1e-8, f"ours and Ridge differ by {gap:.1e} on the same features"
    gap = np.abs(ours(d) - theirs(d)).max()
    assert gap < 0.1, f"ours and Nystroem + Ridge differ by {gap:.1e} on landmarks of their own"
    pairs: dict[str, tuple[Callable[[], object], Callable[[], object]]] = {
        "features and regression": (lambda: ours(d), lambda: theirs(d)),
        "regression alone": (regression, ridge),
    }
    print(f"n = {n:<22}{'ours, s':>9}{'sklearn, s':>12}{'ratio':>7}")
    slowest = 0.0
    for name, (mine, other) in pairs.items():
        times = interleaved(
            {"ours": mine, "sklearn": other}, 9 if n < 100_000 else 3, time.process_time
        )
        ratio = times["ours"] / times["sklearn"]
        slowest = max(slowest, ratio)
        print(f"{name:<26}{times['ours']:>9.3f}{times['sklearn']:>12.3f}{ratio:>7.2f}")
    return verdict(f"n = {n}: {slowest:.2f} times the time of scikit-learn; bar 1", slowest <= 1.0)


if __name__ == "__main__":
    measure(int(sys.argv[1]), sys.argv[2])
