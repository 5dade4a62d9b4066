"""How many digits depend on the number of BLAS threads.

Every public function that computes much is run on the same data with one thread and with two. A
line says how far the two answers are apart, relative to the largest entry of the answer. The bar:
at most 1e-6, far below what any of these estimates is known to.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable

import numpy as np
from threadpoolctl import threadpool_limits
from timing import threads, verdict

import kernelbayes as kb

BAR = 1e-6


def functions(n: int) -> dict[str, Callable[[], object]]:
    """Public functions on samples large enough that BLAS uses its threads: name -> function."""
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(n, 4)), rng.normal(size=(n, 4)) + 0.05
    Z = X[:, 0] + 0.3 * rng.normal(size=n)
    wide = rng.normal(size=(n, 300))
    k, new = kb.Gaussian.median(X), X[:20]
    prior = rng.normal(0.3, 0.7, size=n)
    track = np.cumsum(rng.normal(size=(n, 2)), axis=0) * 0.1
    seen = np.hstack([np.sin(track), np.cos(track)]) + 0.1 * rng.normal(size=(n, 4))
    theta = rng.normal(size=(n, 2))
    x = theta + 0.5 * rng.normal(size=(n, 2))

    def rule(**options: object) -> Callable[[], object]:
        return lambda: kb.KernelBayesRule(rng=0, **options).fit(X, Z, prior).predict(new)

    def filtered(**options: object) -> object:
        model = kb.KernelBayesFilter(kb.Gaussian(1.0), kb.Gaussian(1.0), prior_ridge=1e-4,
                                     ridge=1e-2, rng=0, **options).fit(seen, track)  # fmt: skip
        return model.filter(seen[:20], progress=False).mean()

    return {
        "kernel": lambda: kb.Gaussian(20.0)(wide),
        "nystrom": lambda: kb.nystrom(k, X, 500, rng=0).features(X),
        "pivoted_cholesky": lambda: kb.pivoted_cholesky(k, X, 500, rng=0)(new, X),
        "fourier": lambda: kb.fourier(k, 4, 500, rng=0).features(X),
        "embed, values": lambda: kb.embed(X, k)(Y),
        "mmd": lambda: kb.mmd(kb.embed(X, k), kb.embed(Y, k)),
        "quantile": lambda: kb.embed(X, k).quantile([0.1, 0.5, 0.9]),
        "cov": lambda: kb.embed(wide, k).cov(),
        "herd": lambda: kb.herd(kb.embed(X, k), 50),
        "thin": lambda: kb.thin(X, 50, k),
        "density_ratio, kulsif": lambda: kb.density_ratio(X, Y, k).at_denominator,
        "density_ratio, kmm": lambda: kb.density_ratio(X, Y, k, "kmm").at_denominator,
        "ConditionalEmbedding": lambda: kb.ConditionalEmbedding().fit(X, Z)(new).mean(),
        "sum_rule": lambda: kb.sum_rule(kb.ConditionalEmbedding(k, k, 1e-3).fit(X, Y), Y).mean(),
        "KernelBayesRule, importance": rule(),
        "KernelBayesRule, original": rule(method="original"),
        "KernelBayesRule, rank": rule(rank=300),
        "KernelBayesFilter": lambda: filtered(),
        "KernelBayesFilter, rank": lambda: filtered(rank=200),
        "mmd_test": lambda: kb.mmd_test(X, Y, k, 200, 0).null,
        "mmd_test, p-value": lambda: kb.mmd_test(X, Y, k, 200, 0).pvalue,
        "hsic_test": lambda: kb.hsic_test(X, Y, k, k, 200, 0).null,
        "mmd_aggregated": lambda: kb.mmd_aggregated(X, Y, permutations=100, rng=0).pvalue,
        "ci_test": lambda: kb.ci_test(X[:1000, :1], Y[:1000, :1], X[:1000, 1:], rng=0).null,
        "LikelihoodFree": lambda: kb.LikelihoodFree(method="cme", rng=0).fit(theta, x)
        .posterior(np.zeros(2)).mean(),
    }  # fmt: skip


def main(n: int = 2000) -> bool:
    """Print the table; True if every line is within the bar."""
    print(threads())
    worst, differ, lines = 0.0, 0, 0
    for lines, (name, function) in enumerate(functions(n).items(), 1):  # noqa: B007
        answers = []
        for many in (1, 2):
            with threadpool_limits(many, "blas"), warnings.catch_warnings():
                warnings.simplefilter("ignore", kb.NumericalWarning)
                answers.append(np.asarray(function(), dtype=np.float64))
        apart = float(np.abs(answers[0] - answers[1]).max())
        relative = apart / max(float(np.abs(answers[0]).max()), np.finfo(float).tiny)
        worst, differ = max(worst, relative), differ + (apart > 0.0)
        print(f"{name:<30}{relative:>10.0e}")
    told = f"{differ} of {lines} answers differ, by at most {worst:.0e}; bar {BAR:.0e}"
    return verdict(told, worst <= BAR)


if __name__ == "__main__":
    raise SystemExit(0 if main() else 1)
