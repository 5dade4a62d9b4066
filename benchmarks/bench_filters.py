"""Filter steps: against n and rank, IW22 Alg. 2 typed in, batches, and other people's filters.

All on the rotating state of IW22 section 5.2 (2-d state and observation, noise 0.2), ridges given.

"growth": one online ``step`` at ranks 100 and 300. Bar: the growth exponent over all n is at most
1.1 at both ranks, as a step does O(n rank^2) work, and 20 ms at n = 100 000, rank 100.
"literal": one step of the exact filter against lines 3 and 4 of Algorithm 2 (``transcriptions``),
Gram matrices given to both. Bar: at least 30 times faster at n = 1000.
"batch": 200 sequences of 20 steps at once against one at a time, and against the loop of ``step``.
Printed only; the beliefs are equal.
"latency": one step beside filterpy's unscented Kalman filter (left out if not installed) and a
bootstrap particle filter of 1000 particles in NumPy, both of which know the true model, with the
mean squared error of each on the same sequence. Bar: n = 500 takes no longer than the unscented
filter. ``python benchmarks/bench_filters.py latency`` runs this part alone.
One BLAS thread, CPU time.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import numpy as np
import transcriptions as literal
from threadpoolctl import threadpool_limits
from timing import interleaved, threads, verdict

from kernelbayes import Gaussian, KernelBayesFilter

SIZES = (500, 2000, 10_000, 30_000, 100_000)
RANKS = (100, 300)
BAR, EXPONENT, MS = 30.0, 1.1, 20.0
SPEED, NOISE = 0.3, 0.2
RIDGES = {"prior_ridge": 1e-5, "transition_ridge": 1e-5, "ridge": 1e-2, "back_ridge": 1e-2}
H_X, H_Z = 1.4, 0.7  # about the median distance, and half of it
Steps = dict[str, Callable[[], object]]


def move(z: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """IW22 eq. 5 with b = 0: on to the next angle, radius one, and noise."""
    angle = np.arctan2(z[..., 1], z[..., 0]) + SPEED
    ahead = np.stack([np.cos(angle), np.sin(angle)], axis=-1)
    return ahead + NOISE * rng.normal(size=z.shape)


def sequence(length: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """States and observations."""
    rng = np.random.default_rng(seed)
    z = np.ones((length, 2))
    for t in range(1, length):
        z[t] = move(z[t - 1], rng)
    return z, z + NOISE * rng.normal(size=z.shape)


def learned(n: int, rank: int | None = None) -> KernelBayesFilter:
    z, x = sequence(n, n)
    return KernelBayesFilter(Gaussian(H_X), Gaussian(H_Z), rank=rank, rng=0, **RIDGES).fit(x, z)


def main() -> bool:
    with threadpool_limits(1, user_api="blas"):
        print(threads())
        passed = [growth(rank) for rank in RANKS]
        passed.append(against_the_paper())
        batch()
        passed.append(latency())
        return all(passed)


def growth(rank: int) -> bool:
    """Milliseconds of a step against n."""
    print(f"{'step, rank ' + str(rank):<22}{'n':>8}{'ms':>9}{'ns/(n r)':>10}{'ratio':>8}")
    _, x = sequence(60, 1)
    ms: list[float] = []
    for n in SIZES:
        model = learned(n, rank)
        state = model.start()
        for t in range(5):  # a belief as it is on the way, not the first
            state, _ = model.step(state, x[t])
        times = interleaved(
            {"step": lambda m=model, s=state: m.step(s, x[5])},
            5 if n > 10_000 else 15,
            time.process_time,
        )
        ms.append(1e3 * times["step"])
        print(f"{'':<22}{n:>8}{ms[-1]:>9.2f}{1e6 * ms[-1] / n / rank:>10.1f}", end="")
        print(f"{ms[-1] / ms[0]:>8.1f}")
    exponent = float(np.polyfit(np.log(SIZES), np.log(ms), 1)[0])
    last = float(np.log(ms[-1] / ms[-2]) / np.log(SIZES[-1] / SIZES[-2]))
    held = verdict(
        f"rank {rank}: a step grows as n^{exponent:.2f} (last n^{last:.2f}); bar {EXPONENT}",
        exponent <= EXPONENT,
    )
    if rank == RANKS[0]:
        held &= verdict(f"a step at n = {SIZES[-1]}: {ms[-1]:.1f} ms; bar {MS:.0f}", ms[-1] <= MS)
    return held


def against_the_paper() -> bool:
    """One exact step against lines 3 and 4 of IW22 Alg. 2."""
    print(f"{'exact step':<22}{'n':>8}{'literal, ms':>13}{'ours, ms':>10}{'ratio':>8}")
    ratio = 0.0
    _, x = sequence(20, 2)
    for n in (500, 1000, 2000):
        model = learned(n)
        state = model.start()
        for t in range(6):
            state, _ = model.step(state, x[t])
        G_X, G_Z = model.kernel_x_(model.X_), model.kernel_z_(model.Z_)
        g_x = model.kernel_x_(model.X_, x[6:7])[:, 0]

        def paper(n: int = n, G=G_X, H=G_Z, g=g_x, w=state.belief.weights) -> np.ndarray:
            ahead = literal.iw22_algorithm_2_line_4(H, w, RIDGES["transition_ridge"])
            return literal.iw22_algorithm_1(
                G, H, H @ ahead, g, RIDGES["prior_ridge"], n * RIDGES["ridge"]
            )

        def ours(model=model, state=state) -> np.ndarray:
            return model.step(state, x[6])[0].belief.weights

        expected = paper() @ model.Z_ / paper().sum()
        gap = np.abs(ours() @ model.Z_ - expected).max()
        # Ours has prior weights that sum to one, the paper's to a little less or more than n.
        assert gap < 0.01, f"means of ours and of Algorithm 2 differ by {gap:.1e} at n = {n}"
        functions: Steps = {"paper": paper, "ours": ours}
        times = interleaved(functions, 2 if n > 1000 else 5, time.process_time)
        here = times["paper"] / times["ours"]
        ratio = here if n == 1000 else ratio
        print(f"{'':<22}{n:>8}{1e3 * times['paper']:>13.1f}{1e3 * times['ours']:>10.2f}", end="")
        print(f"{here:>8.0f}")
    return verdict(f"{ratio:.0f} times the paper's lines at n = 1000; bar {BAR:.0f}", ratio >= BAR)


def batch(number: int = 200, length: int = 20) -> None:
    """Many sequences at once."""
    sequences = [sequence(length, 1000 + i)[1] for i in range(number)]
    name = f"{number} sequences of {length}"
    print(f"{name:<22}{'n':>8}{'rank':>7}{'steps, s':>10}{'each, s':>9}{'batch, s':>10}", end="")
    print(f"{'each/batch':>12}{'steps/batch':>13}")
    for n, rank in ((500, None), (2000, 100)):
        model = learned(n, rank)

        def steps(model=model) -> None:
            for x in sequences:
                state = model.start()
                for row in x:
                    state, _ = model.step(state, row)

        functions: Steps = {
            "steps": steps,
            "each": lambda model=model: [model.filter(x) for x in sequences],
            "batch": lambda model=model: model.filter(sequences),
        }
        one, many = model.filter(sequences[-1]), model.filter(sequences)[-1]
        assert np.abs(one.weights - many.weights).max() < 1e-8
        times = interleaved(functions, 1, time.process_time)
        print(
            f"{'':<22}{n:>8}{rank or 'all':>7}{times['steps']:>10.2f}{times['each']:>9.2f}", end=""
        )
        print(f"{times['batch']:>10.2f}{times['each'] / times['batch']:>12.2f}", end="")
        print(f"{times['steps'] / times['batch']:>13.2f}")


def unscented(x: np.ndarray) -> np.ndarray | None:
    """Means of filterpy's unscented Kalman filter with the true model; None if not installed."""
    try:
        from filterpy.kalman import MerweScaledSigmaPoints, UnscentedKalmanFilter
    except ImportError:
        return None

    def mean_move(z: np.ndarray, dt: float) -> np.ndarray:
        del dt
        angle = np.arctan2(z[1], z[0]) + SPEED
        return np.array([np.cos(angle), np.sin(angle)])

    points = MerweScaledSigmaPoints(2, 0.5, 2.0, 1.0)
    ukf = UnscentedKalmanFilter(2, 2, 1.0, hx=lambda z: z, fx=mean_move, points=points)
    ukf.x, ukf.P = x[0].copy(), NOISE**2 * np.eye(2)
    ukf.Q, ukf.R = NOISE**2 * np.eye(2), NOISE**2 * np.eye(2)
    found = []
    for t, row in enumerate(x):
        if t:  # the first observation is its first belief
            ukf.predict()
            ukf.update(row)
        found.append(ukf.x.copy())
    return np.array(found)


def particle_filter(x: np.ndarray, particles: int = 1000) -> np.ndarray:
    """Means of the bootstrap particle filter with the true model, systematic resampling."""
    rng = np.random.default_rng(0)
    angle = rng.uniform(0, 2 * np.pi, particles)
    z = np.column_stack([np.cos(angle), np.sin(angle)]) + NOISE * rng.normal(size=(particles, 2))
    found = []
    for t, row in enumerate(x):
        if t:
            z = move(z, rng)
        log_w = -0.5 * np.sum((z - row) ** 2, axis=1) / NOISE**2
        w = np.exp(log_w - log_w.max())
        w /= w.sum()
        found.append(w @ z)
        places = (rng.uniform() + np.arange(particles)) / particles
        z = z[np.minimum(np.searchsorted(np.cumsum(w), places), particles - 1)]
    return np.array(found)


def latency(length: int = 200) -> bool:
    """Microseconds of one step, online, and the errors that go with them."""
    truth, x = sequence(length, 3)

    def online(model: KernelBayesFilter) -> np.ndarray:
        state, found = model.start(), []
        for row in x:
            state, _ = model.step(state, row)
            found.append(state.belief.weights @ model.Z_)
        return np.array(found)

    models = {
        "kernel, n 500": learned(500),
        "kernel, n 1000": learned(1000),
        "kernel, n 2000, rank 100": learned(2000, 100),
        "kernel, n 10000, rank 100": learned(10_000, 100),
    }
    functions: Steps = {name: lambda m=m: online(m) for name, m in models.items()}
    functions["particle filter, 1000"] = lambda: particle_filter(x)
    if unscented(x) is None:
        print("filterpy is not installed: no unscented Kalman filter (pip install filterpy)")
    else:
        functions["filterpy, unscented"] = lambda: unscented(x)
    times = interleaved(functions, 3, time.process_time)
    least = times["particle filter, 1000"]
    print(f"{'online step':<28}{'us':>9}{'ratio':>8}{'squared error':>16}")
    print(f"{'raw observation':<28}{'':>9}{'':>8}{np.sum((x - truth) ** 2, axis=1).mean():>16.4f}")
    for name, function in functions.items():
        error = np.sum((function() - truth) ** 2, axis=1).mean()
        print(f"{name:<28}{1e6 * times[name] / length:>9.0f}{times[name] / least:>8.2f}", end="")
        print(f"{error:>16.4f}")
    if "filterpy, unscented" not in times:
        return True
    ratio = times["kernel, n 500"] / times["filterpy, unscented"]
    return verdict(
        f"a step at n = 500: {ratio:.2f} times the unscented filter's; bar 1", ratio <= 1
    )


if __name__ == "__main__":
    with threadpool_limits(1, user_api="blas"):
        {"latency": latency, "growth": lambda: growth(RANKS[0])}[sys.argv[1]]()
