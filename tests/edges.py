"""How often rules warn of new points, inside the sample and beyond it: ``python tests/edges.py``.

``python tests/edges.py intervals``: what 90 % intervals hold, inside and beyond.

A point is *bad* where the mean is off by more than half a standard deviation of z, and by more than
twice the left-out error that is usual in the sample. The numbers of docs/rules.md are printed here.
"""

import sys
import warnings

import numpy as np

import kernelbayes as kb

# Draws of x (n, d), the mean of z given x, the deviation of its noise.
PROBLEMS = {
    "line": (lambda r, n: r.normal(size=(n, 1)), lambda x: 2 * x[:, 0], 0.3),
    "line on a range": (lambda r, n: r.uniform(-1, 1, (n, 1)), lambda x: 2 * x[:, 0], 0.1),
    "wave": (lambda r, n: r.uniform(-3, 3, (n, 1)), lambda x: np.sin(2 * x[:, 0]), 0.1),
    "exponential": (lambda r, n: r.uniform(-1, 1, (n, 1)), lambda x: np.exp(2 * x[:, 0]), 0.3),
    "product": (lambda r, n: r.normal(size=(n, 2)), lambda x: x[:, 0] * (1 + x[:, 1]), 0.3),
    "five": (lambda r, n: r.normal(size=(n, 5)), lambda x: x[:, 0] + np.sin(x[:, 1]), 0.5),
    "mostly noise": (lambda r, n: r.normal(size=(n, 1)), lambda x: 0.3 * x[:, 0], 1.0),
    "noise": (lambda r, n: r.normal(size=(n, 2)), lambda x: 0.0 * x[:, 0], 1.0),
}
BEYOND = (1.1, 1.25, 1.5)


def asked(problem, n, seed, inside=500, away=60):
    """Of each place (0 is inside) which points are warned of, and which are bad."""
    draw, mean, noise = PROBLEMS[problem]
    rng = np.random.default_rng(1000 * seed + n)
    x = draw(rng, n)
    z = mean(x) + noise * rng.normal(size=n)
    rule = kb.KernelBayesRule().fit(x, z)
    own = np.diag(np.asarray(rule.rule_.spread(rule.rule_.inputs.points)))
    usual = np.sqrt(np.mean(((z - rule.predict(x)) / (1.0 - own)) ** 2))
    middle, half = (x.min(axis=0) + x.max(axis=0)) / 2, np.ptp(x, axis=0) / 2
    found = {}
    for k in (0.0, *BEYOND):
        side = rng.normal(size=(away, x.shape[1]))
        side /= np.abs(side).max(axis=1, keepdims=True)  # on the faces of a box
        at = middle + k * half * side if k else draw(rng, inside)
        posterior = rule.posterior(at)
        off = np.abs(posterior.mean()[:, 0] - mean(at))
        bad = off > max(2.0 * usual, 0.5 * z.std())
        found[k] = np.column_stack([posterior.diagnostics.filled > 0.1, bad])
    return found


def table(seeds, sizes=(100, 400)):
    """Rows of problem, n, place: share warned of, share bad, share of the bad warned of."""
    for problem in PROBLEMS:
        for n in sizes:
            runs = [asked(problem, n, seed) for seed in seeds]
            for k in runs[0]:
                warned, bad = np.concatenate([run[k] for run in runs]).T.astype(bool)
                yield (
                    problem,
                    n,
                    k,
                    warned.mean(),
                    bad.mean(),
                    warned[bad].mean() if any(bad) else 1,
                )


def intervals(seeds, n=200, new=400):
    """Rows of problem: coverage and width over that of the noise, corrected and plain; means out.

    The last two are shares of means outside their corrected intervals, inside and beyond.
    """
    for problem, (draw, mean, noise) in PROBLEMS.items():
        runs = []
        for seed in seeds:
            rng = np.random.default_rng(seed)
            x, at = draw(rng, n), draw(rng, new)
            rule = kb.KernelBayesRule().fit(x, mean(x) + noise * rng.normal(size=n))
            z, run = mean(at) + noise * rng.normal(size=new), []
            for corrected in (True, False):
                low, high = rule.predict_interval(at, 0.9, corrected).T
                run += [np.mean((low <= z) & (z <= high)), np.median(high - low) / (3.29 * noise)]
            for some in (at, x.mean(axis=0) + np.array(BEYOND)[:, None] * np.ptp(x, axis=0) / 2):
                (low, high), m = rule.predict_interval(some, 0.9).T, rule.predict(some)
                run.append(np.mean((m < low) | (m > high)))
            runs.append(run)
        yield problem, *np.mean(runs, axis=0)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    if sys.argv[1:] == ["intervals"]:
        for row in intervals(range(1000, 1010)):
            told = "{:16} corrected: held {:.3f} width {:.2f}; plain: held {:.3f} width {:.2f}; "
            print((told + "means out {:.4f}, beyond {:.4f}").format(*row))
        sys.exit()
    for row in table(range(int(sys.argv[1]) if len(sys.argv) > 1 else 3)):
        print("{:16} n={} {:5} warned {:.4f} bad {:.3f} of these warned {:.2f}".format(*row))
