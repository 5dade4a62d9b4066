"""Posterior update (new prior, new x) against IW22 Alg. 1 and KBR13 Fig. 1 typed in line by line.

What changes at each step of a filter: prior weights on the training sample come in, posterior
weights at one x go out. Gram matrices are given, and what depends on them alone is factored
beforehand. Data are 2-d with median bandwidths, as in the papers' filters; a third of the prior
weights are negative. One BLAS thread, CPU time.

"step" is the last line of each algorithm, prior weights given. "dense" is ``Dense(G).weighted`` and
``Dense(G).signed``; the latter goes through the pivoted factor of G, exact to working precision,
and "factor" uses it for the importance rule too. "whole" is the whole algorithm from an embedded
prior (the literal code also inverts G_Z + n eta I) against ``bayes_rule(likelihood, prior)(x)``,
which besides checks its input, evaluates the kernels at the prior and at x, and adds diagnostics.
The bar: the step at least 20 times faster, for both rules, at every n; the whole is printed only.
"""

from __future__ import annotations

import time

import numpy as np
import transcriptions as literal
from threadpoolctl import threadpool_limits
from timing import interleaved, threads, verdict

from kernelbayes import ConditionalEmbedding, Gaussian, bayes_rule, embed
from kernelbayes.gram import Dense, LowRank

BAR = 20.0
ETA, LAMBDA, DELTA = 1e-5, 1e-2, 1e-4  # on our scale


def flower(n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Observations of states on a noisy flower, the states, and a prior sample near one of them."""
    angle = rng.uniform(0.0, 2.0 * np.pi, n)
    circle = np.column_stack([np.cos(angle), np.sin(angle)])
    Z = (1.0 + 0.4 * np.sin(8.0 * angle))[:, None] * circle + 0.2 * rng.normal(size=(n, 2))
    prior = Z[0] + 0.3 * rng.normal(size=(100, 2))
    return Z + 0.2 * rng.normal(size=(n, 2)), Z, prior


def main() -> bool:
    with threadpool_limits(1, user_api="blas"):
        return compare()


def compare() -> bool:
    print(threads())
    print(f"{'':<12}{'n':>5}{'rank':>6}{'literal, ms':>13}{'dense, ms':>11}{'ratio':>7}", end="")
    print(f"{'factor, ms':>12}{'ratio':>7}{'literal, ms':>13}{'whole, ms':>11}{'ratio':>7}")
    least = np.inf
    for n in (500, 1000, 2000):
        X, Z, sample = flower(n, np.random.default_rng(n))
        kernel_x, kernel_z = Gaussian.median(X), Gaussian.median(Z)
        G_X, G_Z, x = kernel_x(X), kernel_z(Z), X[0] + 0.1
        g_x = kernel_x(X, x[None])[:, 0]
        prior = embed(sample, kernel_z)
        g_prior = prior(Z)
        gram = Dense(G_X)
        low = LowRank(gram.factor)
        likelihood = ConditionalEmbedding(kernel_z, kernel_x, ETA).fit(Z, X)
        gamma = likelihood.apply(prior)
        _ = likelihood.conditional_.outputs.gram  # Gram matrices are given
        ways = {
            "importance": {
                "step": lambda n=n, G=G_X, gamma=gamma, g=g_x: literal.iw22_line_3(
                    G, n * np.maximum(0.0, gamma), g, n * LAMBDA
                ),
                "dense": lambda gram=gram, gamma=gamma, g=g_x: gram.weighted(
                    np.maximum(0.0, gamma), LAMBDA
                ).solve(g),
                "factor": lambda low=low, gamma=gamma, g=g_x: low.weighted(
                    np.maximum(0.0, gamma), LAMBDA
                ).solve(g),
                "algorithm": lambda n=n, G=G_X, H=G_Z, m=g_prior, g=g_x: literal.iw22_algorithm_1(
                    G, H, m, g, ETA, n * LAMBDA
                ),
                "whole": lambda c=likelihood, p=prior, x=x: bayes_rule(c, p, ridge=LAMBDA)(x),
            },
            "original": {
                "step": lambda n=n, G=G_X, gamma=gamma, g=g_x: (
                    literal.kbr13_step_3(G, n * gamma, n**2 * DELTA) @ g
                ),
                "dense": lambda gram=gram, gamma=gamma, g=g_x: gram.signed(gamma, DELTA).solve(g),
                "algorithm": lambda n=n, G=G_X, H=G_Z, m=g_prior, g=g_x: literal.kbr13_figure_1(
                    H, G, m, g, ETA, n**2 * DELTA
                ),
                "whole": lambda c=likelihood, p=prior, x=x: bayes_rule(
                    c, p, "original", ridge=DELTA
                )(x),
            },
        }
        for rule, functions in ways.items():
            expected = functions["step"]()
            found = [functions[name]() for name in ("dense", "factor") if name in functions]
            for w in (*found, functions["whole"]().weights):
                gap = np.abs(w - expected).max() / np.abs(expected).max()
                assert gap < 1e-8, f"{rule} at n={n}: we and the paper's formula differ, {gap:.1e}"
            times = interleaved(functions, 3 if n > 1000 else 9, time.process_time)
            ms = {k: 1e3 * v for k, v in times.items()}
            step, whole = ms["step"] / ms["dense"], ms["algorithm"] / ms["whole"]
            least = min(least, step)
            print(f"{rule:<12}{n:>5}{low.L.shape[1]:>6}{ms['step']:>13.1f}", end="")
            print(f"{ms['dense']:>11.2f}{step:>7.0f}", end="")
            factor = ms.get("factor", ms["dense"])
            print(f"{factor:>12.2f}{ms['step'] / factor:>7.0f}", end="")
            print(f"{ms['algorithm']:>13.1f}{ms['whole']:>11.2f}{whole:>7.0f}")
    return verdict(
        f"steps at least {least:.0f} times as fast as the papers' lines; bar {BAR:.0f}",
        least >= BAR,
    )
