"""Significance level of every test: rejections at 5 % under the null hypothesis.

Over 1000 repetitions the count of an exact test is binomial, and leaves its band (20 to 87) with
probability 1e-6. An asymptotic test may reject up to 1.5 times as often. The quick version has 30
repetitions; ``test_compare.py`` has more of the distribution of p-values. ``pytest -rP`` shows the
counts.
"""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binom

import kernelbayes as kb
from laws_compare import FALSE_ALARM, SLACK, autoregression

B = 99  # (1 + B) a is whole for a = 5 %, so that an exact test has level 5 % and not less
SIZES = [(40, 40), (50, 25)]


def two_samples(method, n, m, rng, **options):
    x, y = rng.normal(size=(n, 2)), rng.normal(size=(m, 2))
    return kb.mmd_test(x, y, options.pop("kernel", None), B, rng, method=method, **options)


def mixed_frame(n, rng):
    """Columns in different units, counts, a category and a flag."""
    return pd.DataFrame(
        {
            "income": np.exp(10.0 + rng.normal(size=n)),
            "visits": rng.poisson(0.3, size=n),
            "city": rng.choice(["Oslo", "Rome", "Bonn"], size=n),
            "member": rng.random(n) < 0.5,
        }
    )


def weighted(n, m, rng):
    """Importance samples of one target from one proposal: pairs (point, weight) exchange."""
    x, y = rng.normal(size=n), rng.normal(size=m)
    return kb.mmd_test(x, y, None, B, rng, weights_x=np.exp(0.5 * x), weights_y=np.exp(0.5 * y))


def weighted_wild(n, m, rng):
    """Importance samples of N(0, 1) from different proposals."""
    x, y = 1.3 * rng.normal(size=2 * n), rng.normal(0.3, 1.2, size=2 * m)
    v = np.exp(-0.5 * x**2 + 0.5 * (x / 1.3) ** 2)
    w = np.exp(-0.5 * y**2 + 0.5 * ((y - 0.3) / 1.2) ** 2)
    options = {"weights_x": v, "weights_y": w, "block_length": None}
    return kb.mmd_test(x, y, None, B, rng, method="wild", **options)


def weighted_pairs(rng):
    """Weights that depend on x alone: z is independent of (x, weight)."""
    x, z = rng.normal(size=40), rng.laplace(size=40)
    return kb.hsic_test(x, z, None, None, B, rng, weights=np.exp(0.5 * x))


def weighted_pairs_wild(rng):
    """Dependent pairs whose weights, a function of both, make them independent."""
    x, e = rng.normal(size=(2, 200))
    z = 0.3 * x + np.sqrt(1.0 - 0.3**2) * e
    # The ratio of the densities of independent and of correlated normals.
    w = np.exp(0.5 * e**2 - 0.5 * z**2)
    options = {"weights": w, "method": "wild", "block_length": None}
    return kb.hsic_test(x, z, None, None, B, rng, **options)


def independent(method, n, rng):
    return kb.hsic_test(rng.normal(size=n), rng.laplace(size=n), None, None, B, rng, method=method)


def series_mmd(n, m, rng):
    x, y = autoregression(n, 0.5, rng), autoregression(m, 0.5, rng)
    return kb.mmd_test(x, y, None, B, rng, method="wild")


def series_hsic(n, rng):
    x, z = autoregression(n, 0.5, rng), autoregression(n, 0.5, rng)
    return kb.hsic_test(x, z, None, None, B, rng, method="wild")


def conditional_in_five_dimensions(rng):
    """Four fifths of the variance of x and y are the same function of all five z."""
    z = rng.normal(size=(150, 5))
    x, y = z.sum(axis=1) / np.sqrt(5.0) + 0.5 * rng.normal(size=(2, 150))
    return kb.ci_test(x, y, z, permutations=B, rng=rng)


def conditional(kind, n, rng):
    z = rng.normal(size=n)
    x, y = {
        "sine": (np.sin(2.0 * z), np.sin(2.0 * z)),
        "square": (z, z**2),
        "heteroscedastic": (z, z),
    }[kind]
    scale = 0.3 + np.abs(z) if kind == "heteroscedastic" else 1.0
    x, y = x + 0.5 * scale * rng.normal(size=n), y + 0.5 * scale * rng.normal(size=n)
    return kb.ci_test(x, y, z, permutations=B, rng=rng)


def two_conditionals(kind, rng):
    """The x differ, y given x does not."""
    x, z = rng.normal(size=80), rng.normal(0.7, size=60)
    if kind == "categories":
        y, w = (rng.random(len(v)) < 1.0 / (1.0 + np.exp(-2.0 * v)) for v in (x, z))
    else:
        scale = 0.5 if kind == "heteroscedastic" else 0.0
        y, w = (np.sin(2.0 * v) + 0.4 * np.exp(scale * v) * rng.normal(size=len(v)) for v in (x, z))
    return kb.conditional_mmd_test(x, y, z, w, permutations=B, rng=rng)


EXACT = {
    **{
        f"mmd-{method}-{n}-{m}": lambda rng, a=(method, n, m): two_samples(*a, rng)
        for method in ("permutation", "block")
        for n, m in SIZES
    },
    **{
        f"mmd-power-{n}-{m}": lambda rng, a=(n, m): two_samples(
            "permutation", *a, rng, kernel=[kb.Gaussian(s) for s in (0.3, 1.0, 3.0)]
        )
        for n, m in SIZES
    },
    **{f"mmd-weighted-{n}-{m}": lambda rng, a=(n, m): weighted(*a, rng) for n, m in SIZES},
    **{
        f"mmd-aggregated-{n}-{m}": lambda rng, n=n, m=m: kb.mmd_aggregated(
            rng.normal(size=n), rng.normal(size=m), permutations=299, rng=rng
        )
        for n, m in SIZES
    },
    **{
        f"mmd-{name}-{n}-{m}": lambda rng, run=run, n=n, m=m: run(
            mixed_frame(n, rng), mixed_frame(m, rng), permutations=B, rng=rng
        )
        for name, run in (("mixed", kb.mmd_test), ("mixed-aggregated", kb.mmd_aggregated))
        for n, m in SIZES
    },
    "mmd-frame": lambda rng: kb.mmd_test(
        *(mixed_frame(40, rng)[["income", "visits"]] for _ in range(2)), None, B, rng
    ),
    "hsic-mixed": lambda rng: kb.hsic_test(
        mixed_frame(40, rng), mixed_frame(40, rng), None, None, B, rng
    ),
    "hsic-permutation": lambda rng: independent("permutation", 40, rng),
    "hsic-weighted": weighted_pairs,
    "hsic-power": lambda rng: kb.hsic_test(
        rng.normal(size=60), rng.normal(size=60), "power", "power", B, rng
    ),
    "hsic-block": lambda rng: independent("block", 60, rng),
    "hsic-aggregated": lambda rng: kb.hsic_aggregated(
        rng.normal(size=30), rng.normal(size=30), permutations=299, rng=rng
    ),
}
ASYMPTOTIC = {
    **{
        f"mmd-{method}-{n}-{m}": lambda rng, a=(method, scale * n, scale * m): two_samples(*a, rng)
        for method, scale in (("gamma", 1), ("wild", 2), ("linear", 8), ("features", 2))
        for n, m in SIZES
    },
    **{
        f"mmd-weighted-wild-{n}-{m}": lambda rng, a=(n, m): weighted_wild(*a, rng) for n, m in SIZES
    },
    "mmd-series-200-200": lambda rng: series_mmd(200, 200, rng),
    "mmd-series-300-150": lambda rng: series_mmd(300, 150, rng),
    "hsic-gamma": lambda rng: independent("gamma", 40, rng),
    "hsic-wild": lambda rng: independent("wild", 100, rng),
    "hsic-weighted-wild": weighted_pairs_wild,
    "hsic-linear": lambda rng: independent("linear", 400, rng),
    "hsic-features": lambda rng: independent("features", 100, rng),
    "hsic-series": lambda rng: series_hsic(200, rng),
    **{
        f"ci-{kind}": lambda rng, kind=kind: conditional(kind, 120, rng)
        for kind in ("sine", "square", "heteroscedastic")
    },
    "ci-five": conditional_in_five_dimensions,
    **{
        f"conditional-mmd-{kind}": lambda rng, kind=kind: two_conditionals(kind, rng)
        for kind in ("sine", "heteroscedastic", "categories")
    },
}


def check_level(name, run, repetitions, slack=1.0):
    low = binom.ppf(0.5 * FALSE_ALARM, repetitions, 0.05 / slack)
    high = binom.ppf(1.0 - 0.5 * FALSE_ALARM, repetitions, 0.05 * slack)
    count = sum(run(np.random.default_rng(seed)).pvalue <= 0.05 for seed in range(repetitions))
    print(f"{name}: {count} of {repetitions} rejected, band {low:.0f} to {high:.0f}")
    assert low <= count <= high


@pytest.mark.parametrize("name", EXACT)
@pytest.mark.parametrize("repetitions", [30, pytest.param(1000, marks=pytest.mark.slow)])
def test_level_of_exact_tests(name, repetitions):
    check_level(name, EXACT[name], repetitions)


@pytest.mark.parametrize("name", ASYMPTOTIC)
@pytest.mark.parametrize("repetitions", [30, pytest.param(1000, marks=pytest.mark.slow)])
def test_level_of_asymptotic_tests(name, repetitions):
    check_level(name, ASYMPTOTIC[name], repetitions, SLACK)
