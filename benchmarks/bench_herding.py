"""Herding 10 000 -> 500 and thinning 4096 -> 64 points of R^2, side by side with goodpoints.

RKHS distance (MMD) to the input and CPU time. The bar: against goodpoints' herding, its kernel
thinning and Compress++ with much oversampling, at least as accurate at no more time. Compress++
with less oversampling is faster than anything here, and less accurate; it is shown, not judged.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from timing import interleaved, threads, verdict

import kernelbayes as kb

try:
    from goodpoints import compress as gp_compress
    from goodpoints import herding as gp_herding
    from goodpoints import kt as gp_kt
except ImportError:
    gp_kt = None

JUDGED = ("goodpoints herding", "goodpoints kernel thinning", "goodpoints Compress++ g = 4")


def normal(n: int, rng: np.random.Generator) -> np.ndarray[Any, Any]:
    return rng.normal(size=(n, 2))


def mixture(n: int, rng: np.random.Generator) -> np.ndarray[Any, Any]:
    """Four normal clusters of unequal size around a square."""
    centres = 3.0 * np.array([[-1, -1], [-1, 1], [1, -1], [1, 1]])
    return centres[rng.choice(4, size=n, p=[0.1, 0.2, 0.3, 0.4])] + rng.normal(size=(n, 2))


def thinners(X: Any, m: int, h: float) -> dict[str, Callable[[], Any]]:
    """Functions that give m of the points X, by name."""
    kernel = kb.Gaussian(h)
    mu = kb.embed(X, kernel)
    found = {
        "first m (i.i.d.)": lambda: X[:m],
        "thin": lambda: kb.thin(X, m, kernel),
        "thin, sweeps = 0": lambda: kb.thin(X, m, kernel, sweeps=0),
        "herd": lambda: kb.herd(mu, m),
        "compress exchange": lambda: kb.compress(mu, m, method="exchange").points,
    }
    if gp_kt is None:
        return found

    def k(y: Any, Y: Any) -> Any:
        return np.exp(-np.sum((Y - y) ** 2, axis=1) / (2.0 * h * h))

    halvings = np.log2(len(X) / (m + 0.5))  # it rounds n / 2^halvings down
    width = np.array([2.0 * h * h])
    found["goodpoints herding"] = lambda: X[gp_herding.herding(X, halvings, k)]
    # Kernel thinning halves, so it gets the first m 2^rounds points; Compress++ gives sqrt(n).
    rounds = int(np.log2(len(X) / m))
    Y = X[: m * 2**rounds]
    found["goodpoints kernel thinning"] = lambda: Y[gp_kt.thin(Y, rounds, k, k, seed=0)]
    if m * m == len(X):
        for g in (0, 2, 4):
            found[f"goodpoints Compress++ g = {g}"] = lambda g=g: X[
                gp_compress.compresspp_kt(X, b"gaussian", width, g=g, seed=0)
            ]
    return found


def case(name: str, draw: Callable[..., Any], n: int, m: int, samples: int, repeats: int) -> bool:
    """Print one table: means over samples of distance and time, at the median bandwidth."""
    errors: dict[str, list[float]] = {}
    seconds: dict[str, list[float]] = {}
    for seed in range(samples):
        X = draw(n, np.random.default_rng(seed))
        kernel = kb.Gaussian.median(X)
        h = float(kernel.bandwidth)  # type: ignore[arg-type]
        mu = kb.embed(X, kernel)
        kept: dict[str, Any] = {}
        functions = {
            key: lambda key=key, function=function, kept=kept: kept.update({key: function()})
            for key, function in thinners(X, m, h).items()
        }
        for key, time_taken in interleaved(functions, repeats, time.process_time).items():
            seconds.setdefault(key, []).append(time_taken)
            points = kept[key]
            assert len(points) == m, (key, len(points))
            errors.setdefault(key, []).append(float(kb.mmd(mu, kb.embed(points, kernel))))
    print(f"{name}, {n} -> {m}: mean of {samples} sample(s)")
    print(f"{'':30s}{'MMD':>10s}{'ratio':>8s}{'s':>10s}{'ratio':>8s}")
    mean = {key: (np.mean(errors[key]), np.mean(seconds[key])) for key in errors}
    for key, (error, taken) in mean.items():
        ratios = error / mean["thin"][0], taken / mean["thin"][1]
        print(f"{key:30s}{error:10.5f}{ratios[0]:8.2f}{taken:10.4f}{ratios[1]:8.2f}")
    return all(
        verdict(
            f"thin: {mean['thin'][0] / mean[key][0]:.2f} times the MMD of {key} in "
            f"{mean['thin'][1] / mean[key][1]:.2f} times its time; bar: both at most 1",
            mean["thin"][0] <= mean[key][0] and mean["thin"][1] <= mean[key][1],
        )
        for key in JUDGED
        if key in mean
    )


def main() -> bool:
    print(threads())
    if gp_kt is None:
        print("goodpoints is not installed (pip install goodpoints): only our own columns, no bar")
    passed = [
        case("normal", normal, 4096, 64, samples=3, repeats=2),
        case("mixture", mixture, 4096, 64, samples=3, repeats=2),
        case("normal", normal, 10_000, 500, samples=1, repeats=1),
        case("mixture", mixture, 10_000, 500, samples=1, repeats=1),
    ]
    return all(passed)
