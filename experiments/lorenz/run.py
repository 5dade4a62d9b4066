"""Lorenz attractor without a model: learned filters beside EKF, particle filter and regression.

The benchmark of the KalmanNet and RTSNet papers: dx = 10 (y - x), dy = x (28 - z) - y,
dz = x y - 8/3 z, sampled every 0.02, no process noise, observed in noise of variance one (0 dB).
Error: 10 log10 of the mean squared error per coordinate, in dB; the raw observation has 0.
Quick: 4 training sequences of 1000 steps, one test sequence of 300. Full: as published, 100 and 10
sequences of 3000 steps, of which the learned filter takes the first four.

Time: quick 18 s, full not measured.

    python experiments/lorenz/run.py [--full] [--runs N] [--first SEED] [--jobs 2]
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np

import kernelbayes as kb

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "statespace"))

from baselines import extended_kalman, particle_filter  # noqa: E402
from models import StateSpace  # noqa: E402
from report import check, compute, options, summary, write  # noqa: E402

INTERVAL, SUBSTEPS = 0.02, 10  # Runge-Kutta: the error of a step is below 1e-9
BURN_IN = 500  # steps after which a start near the attractor is on it
JITTER = 0.05  # noise of the filters that know the model: none would leave no particle alive
FILTER_BAR, SMOOTHER_BAR = -11.0, -13.0  # dB
LAGS, RANK, RIDGE, KEPT_SEQUENCES = 16, 200, 1e-7, 4
FILTER, SMOOTHER = "kernel Bayes filter, learned", "kernel Bayes smoother, learned"


def slope(z):
    """Time derivative (m, 3) of states (m, 3)."""
    x, y, w = z.T
    return np.column_stack([10.0 * (y - x), x * (28.0 - w) - y, x * y - 8.0 / 3.0 * w])


def move(z):
    """States one interval later, by the Runge-Kutta method of order four."""
    h = INTERVAL / SUBSTEPS
    for _ in range(SUBSTEPS):
        a = slope(z)
        b = slope(z + h / 2.0 * a)
        c = slope(z + h / 2.0 * b)
        z = z + h / 6.0 * (a + 2.0 * b + 2.0 * c + slope(z + h * c))
    return z


def initial(m, rng):
    """States on the attractor."""
    z = rng.normal((0.0, 0.0, 25.0), size=(m, 3))
    for _ in range(BURN_IN):
        z = move(z)
    return z


def sequences(number, length, rng):
    """States and observations, each (number, length, 3)."""
    z, states = initial(number, rng), []
    for _ in range(length):
        states.append(z)
        z = move(z)
    Z = np.stack(states, axis=1)
    return Z, Z + rng.normal(size=Z.shape)


def known():
    """Return the true model, with a little noise of the state."""
    return StateSpace(
        initial,
        transition=lambda z, rng, control=None: move(z) + JITTER * rng.normal(size=z.shape),  # noqa: ARG005
        observe=lambda z, rng: z + rng.normal(size=z.shape),
        log_likelihood=lambda x, z: -0.5 * np.sum((x - z) ** 2, axis=1),
        move=move,
        see=lambda z: z,
        Q=JITTER**2 * np.eye(3),
        R=np.eye(3),
    )


def decibel(estimates, Z):
    """Mean squared error per coordinate, in dB."""
    return float(10.0 * np.log10(np.mean((np.stack(estimates) - Z) ** 2)))


def one_run(run, full):
    """Rows of one run: errors in dB of all methods."""
    rng = np.random.default_rng([20, run])
    number, length, tests, steps = (100, 3000, 10, 3000) if full else (4, 1000, 1, 300)
    Z, X = sequences(number, length, rng)
    truth, seen = sequences(tests, steps, rng)
    model = known()
    start, spread = Z.reshape(-1, 3).mean(axis=0), np.cov(Z.reshape(-1, 3).T)
    found = {
        "raw observation": seen,
        "EKF, true dynamics": [extended_kalman(x, model, start, spread) for x in seen],
        "particle filter, true dynamics": [particle_filter(x, model, rng, 2000) for x in seen],
    }
    # A window says nearly everything, so that a wide kernel on its estimate and no memory do; the
    # pairs of a few sequences are enough for that.
    wide = kb.Gaussian(float(np.sqrt(2.0 * np.trace(spread))))
    learned = kb.KernelBayesFilter(
        kernel_x=wide, kernel_z=wide, prior_ridge=1e-6, transition_ridge=1e-6, ridge=RIDGE,
        rank=RANK, lags=LAGS, features="regression", memory=0.0, rng=0,
    ).fit(list(X[:KEPT_SEQUENCES]), list(Z[:KEPT_SEQUENCES]))  # fmt: skip
    found[f"regression on windows of {LAGS}"] = [learned.encoder_(x) for x in seen]
    found[FILTER] = learned.filter(list(seen)).mean()
    found[SMOOTHER] = learned.smooth(list(seen)).mean()
    size = f"{number} x {length}"
    return [("Lorenz", size, run, name, decibel(means, truth)) for name, means in found.items()]


def main():
    """Run, print, check and write."""
    given = options(__doc__).parse_args()
    runs = given.runs or (3 if given.full else 1)
    tasks = [(run, given.full) for run in range(given.first, given.first + runs)]
    start = time.perf_counter()
    rows = compute(one_run, tasks, given.jobs, HERE / "partial.jsonl" if given.full else None)
    table = summary(rows)
    print(f"dB, mean (standard error) of {runs} runs; {time.perf_counter() - start:.0f} s\n")
    for (name, _, size), (mean, error, *_) in table.items():
        print(f"{name:40s} {size:12s} {mean:7.2f} ({error:.2f})")
    print()
    bars = {FILTER: FILTER_BAR, SMOOTHER: SMOOTHER_BAR}
    passed = [
        check(f"{name}: {mean:.2f} dB, at most {bars[name]:.0f}", mean <= bars[name])
        for (name, _, _), (mean, *_) in table.items()
        if name in bars
    ]
    write(rows, HERE / f"{'full' if given.full else 'quick'}.csv")
    return 0 if all(passed) else 1


if __name__ == "__main__":
    raise SystemExit(main())
