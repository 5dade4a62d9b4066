"""KMCF16 section 5.5, Table 5.1 and Figures 5.1-5.3: expectations of functions outside the RKHS.

P = N(0, 0.1^2), Gaussian kernel of bandwidth 0.1. An estimate of m_P on n uniform points of [-1, 1]
has the weights of a ridge regression with ridge 0.1. For each test function, none of them in the
RKHS: the absolute error of sum_i w_i f(x_i), its mean over 20 runs, as n grows. Quick: n up to 400,
10 runs. Full: n up to 1600, 20 runs.

Time: quick 4 s, full about 1 min.

    python experiments/kmcf16_fig5/run.py [--full] [--runs N] [--first SEED]
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from scipy.integrate import quad
from scipy.stats import norm
from threadpoolctl import threadpool_limits

from kernelbayes import Gaussian, GaussianEmbedding, embed, mmd

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "statespace"))

from report import canvas, check, options, write  # noqa: E402

KERNEL = Gaussian(0.1)
P = GaussianEmbedding([0.0], [[0.01]], KERNEL)
RIDGE = 0.1
# Name: function, published expectation (Table 5.1), kind.
FUNCTIONS = {
    "1": (np.ones_like, 1.0, "smooth"),
    "cos(x)": (np.cos, 0.9950, "smooth"),
    "I[-0.1, 0.1]": (lambda x: 1.0 * (np.abs(x) <= 0.1), 0.6827, "indicator"),
    "I(-inf, 0]": (lambda x: 1.0 * (x <= 0.0), 0.5, "indicator"),
    "x": (lambda x: x, 0.0, "polynomial"),
    "x^2": (np.square, 0.01, "polynomial"),
}
COLUMNS = ("n", "run", "m_P", "root sum of squares", *FUNCTIONS)


def expectation(f):
    """Integral of f under P, by quadrature; the break points of the indicators are given."""
    return quad(lambda x: f(np.float64(x)) * norm.pdf(x, scale=0.1), -1.0, 1.0,
                points=(-0.1, 0.0, 0.1), epsabs=1e-12)[0]  # fmt: skip


def one_run(n, run, truth):
    """Errors of one estimate; run number = seed."""
    X = np.random.default_rng(run).uniform(-1.0, 1.0, size=n)
    weights = np.linalg.solve(KERNEL(X) + RIDGE * np.eye(n), P(X))
    mu = embed(X, KERNEL, weights)
    row = {"n": n, "run": run, "m_P": float(mmd(mu, P))}
    row["root sum of squares"] = float(np.sqrt(np.sum(weights**2)))
    for name, (f, *_) in FUNCTIONS.items():
        row[name] = abs(float(mu.expect(lambda x, f=f: f(x[:, 0]))) - truth[name])
    return row


def slope(sizes, values):
    """Power of n: slope of the logarithms."""
    return float(np.polyfit(np.log(sizes), np.log(values), 1)[0])


def judge(rows, sizes, truth):
    """Print Table 5.1 and the mean errors, and check what the thesis says of them."""
    print("Table 5.1: expectation by quadrature, as published")
    results = []
    for name, (_, published, kind) in FUNCTIONS.items():
        label = f"{name:14s}{truth[name]:9.4f}{published:9.4f}  {kind}"
        results.append(check(label, abs(truth[name] - published) < 5.1e-5))
    means = {
        c: np.array([np.mean([row[c] for row in rows if row["n"] == n]) for n in sizes])
        for c in COLUMNS[2:]
    }
    power = {c: slope(sizes, v) for c, v in means.items()}
    print(f"\nFigures 5.1-5.3: mean absolute error of {len(rows) // len(sizes)} runs")
    print(f"{'n':>20s}" + "".join(f"{n:>10d}" for n in sizes) + f"{'power':>8s}")
    for name, values in means.items():
        print(f"{name:>20s}" + "".join(f"{v:10.2e}" for v in values) + f"{power[name]:8.2f}")
    rate = power["m_P"]
    results += [
        check("every error falls", all(p < 0 for p in power.values())),
        check(f"sum of squares falls: root like n^{power['root sum of squares']:.2f}",
              power["root sum of squares"] < -0.3),
    ]  # fmt: skip
    for name, (_, _, kind) in FUNCTIONS.items():
        found = f"{name}: n^{power[name]:.2f}, m_P n^{rate:.2f}"
        if kind == "smooth":
            label = f"{found}; in parallel to m_P (powers within 0.25)"
            results.append(check(label, abs(power[name] - rate) <= 0.25))
        elif kind == "polynomial":
            results.append(check(f"{found}; faster than m_P", power[name] < rate))
        else:
            slowest = max(power["1"], power["cos(x)"])
            label = f"{found}; slower than the smooth functions"
            results.append(check(label, power[name] > slowest))
    return means, all(results)


def draw(means, sizes, path):
    """Draw the three figures, if matplotlib is there."""
    made = canvas(2, 3, (10, 5.5), sharex=True)
    if made is None:
        return
    figure, axes = made
    for ax, name in zip(axes.T.flat, FUNCTIONS, strict=True):
        ax.loglog(sizes, means["m_P"], "k.-", label="$m_P$")
        ax.loglog(sizes, means["root sum of squares"], "r.-", label="root sum of squares")
        ax.loglog(sizes, means[name], "b.-", label=f"f = {name}")
        ax.legend(fontsize="x-small")
    for ax in axes[1]:
        ax.set_xlabel("n")
    figure.savefig(path, dpi=150)


def main():
    """Run, print, check and write."""
    given = options(__doc__).parse_args()
    full, runs = given.full, given.runs or (20 if given.full else 10)
    seeds = range(given.first, given.first + runs)
    sizes = (50, 100, 200, 400, 800, 1600) if full else (50, 100, 200, 400)
    truth = {name: expectation(f) for name, (f, *_) in FUNCTIONS.items()}
    with threadpool_limits(1):
        rows = [one_run(n, run, truth) for n in sizes for run in seeds]
    means, passed = judge(rows, sizes, truth)
    stem = "full" if full else "quick"
    write(rows, HERE / f"{stem}.csv", COLUMNS)
    draw(means, sizes, HERE / f"{stem}.png")
    return 0 if passed else 1


if __name__ == "__main__":
    raise SystemExit(main())
