"""A chain beside the smoother: how far beliefs of a graph and of a filter are from each other.

An autoregression (coefficient .9, variance 1) seen with noise of deviation .7. A graph with one
template for all steps and one for what is seen, and the default filter, learn from 600 steps and
smooth 60 new ones; the exact smoother is in closed form. Prints root mean square differences.

    python experiments/graphs/chain.py [--runs 3] [--first SEED]
"""

from __future__ import annotations

import argparse
import warnings

import numpy as np

import kernelbayes as kb

COEFFICIENT, NOISE, LEARNED, NEW = 0.9, 0.7, 600, 60


def sequence(length, rng):
    """States (T,) and observations (T,)."""
    z = np.empty(length)
    z[0] = rng.normal()
    for t in range(1, length):
        z[t] = COEFFICIENT * z[t - 1] + np.sqrt(1.0 - COEFFICIENT**2) * rng.normal()
    return z, z + NOISE * rng.normal(size=length)


def exact(x):
    """Smoothed means (T,) by conditioning the joint Gaussian."""
    t = np.arange(len(x))
    C = COEFFICIENT ** np.abs(t[:, None] - t)
    return C @ np.linalg.solve(C + NOISE**2 * np.eye(len(x)), x)


def by_graph(z, x, new):
    """Smoothed means (T,) by kernel belief propagation."""
    steps = list(range(len(new)))
    moves, seen = [(t, t + 1) for t in steps[:-1]], [(t, ("seen", t)) for t in steps]
    model = kb.KernelBeliefPropagation(templates={"step": moves, "seen": seen})
    model.fit({"step": (z[:-1], z[1:]), "seen": (z, x)})
    beliefs = model.query(steps, {("seen", t): float(v) for t, v in enumerate(new)})
    return beliefs.stacked(steps).mean()[:, 0]


def by_filter(z, x, new):
    """Smoothed means (T,) by the default filter."""
    model = kb.KernelBayesFilter(rng=0).fit(x[:, None], z[:, None])
    return np.asarray(model.smooth(new[:, None]).mean())[:, 0]


def main():
    """Print the differences."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--first", type=int, default=0)
    given = parser.parse_args()
    warnings.simplefilter("ignore", kb.NumericalWarning)  # observations outside the sample
    rows = []
    for run in range(given.first, given.first + given.runs):
        rng = np.random.default_rng(run)
        (z, x), (truth, new) = sequence(LEARNED, rng), sequence(NEW, rng)
        answers = truth, exact(new), by_graph(z, x, new), by_filter(z, x, new)
        rows.append([np.mean((a - b) ** 2) for a in answers for b in answers])
    table = np.sqrt(np.mean(rows, axis=0)).reshape(4, 4)
    names = "truth", "exact", "graph", "filter"
    print(f"{'':8s}" + "".join(f"{name:>8s}" for name in names))
    for name, row in zip(names, table, strict=True):
        print(f"{name:8s}" + "".join(f"{value:8.3f}" for value in row))


if __name__ == "__main__":
    main()
