"""A pendulum filmed at irregular times, by learned features: a task like that of RKN and CRU.

Images of 24 x 24 pixels show the disc of a pendulum at 50 of 100 times, in noise that is correlated
in time. The state is (sin, cos) of the angle, to be told from the images so far. Error: squared,
mean over both coordinates, times 1000. Quick: 200 training sequences. Full: 200 and 2000. Test: 100
sequences. Needs torch.

    python experiments/pendulum/run.py [--full] [--runs N] [--first SEED] [--jobs 2]
        [--methods regression filter]
"""

from __future__ import annotations

import sys
import time
import warnings
from pathlib import Path

import numpy as np
from sklearn.neighbors import KNeighborsRegressor

import kernelbayes as kb
from kernelbayes.learned.nets import Net

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "statespace"))

from report import check, compute, options, print_table, summary  # noqa: E402

SIDE, TIMES, SEEN = 24, 100, 50  # pixels; times of the grid, and how many of them are filmed
STEP, SUBSTEPS, GRAVITY, SHAKE = 0.1, 10, 9.81, 0.1  # s; m/s^2 on a rod of 1 m; velocity noise
ROD, DISC = 8.0, 3.0  # pixels
WALK, LOW, HIGH = 0.2, 0.25, 0.75  # of the share of the image in what is seen
CLEAN = 5  # frames before the noise sets in
TEST, MISSING = 100, 0.2  # test sequences; share of frames that are dropped in some rows
PUBLISHED = {"CRU": 4.63, "RKN with time steps": 5.09, "GRU with time steps": 5.44, "GRU": 9.44}
BARS = {200: 9.44, 2000: 5.1}
FEATURES, EPOCHS = 16, 20
WINDOW, WINDOW_EPOCHS = 12, 20
# Of the filter, found on seed 1000: bandwidths of estimates and states, and the length of estimates
# below which a frame says too little to be used. Fewer than three frames in a row show no force.
RANK, NEAR, STATES, SHORT, FEWEST = 800, 0.3, 0.35, 0.8, 3
PARTICLES, READ = 500, 0.05  # of the limit: and the standard deviation of its readings
METHODS = ("limit", "constant", "regression", "window", "filter", "GRU", "neighbours")


def move(angle, speed, rng):
    """Angles and speeds one step later."""
    speed, h = speed + SHAKE * rng.normal(size=speed.shape), STEP / SUBSTEPS
    for _ in range(SUBSTEPS):  # symplectic Euler: energy does not drift
        speed = speed - h * GRAVITY * np.sin(angle)
        angle = angle + h * speed
    return angle, speed


def swing(n, rng):
    """Angles (n, TIMES) of pendulums that are let go at any angle, and shaken a little."""
    angle, speed = rng.uniform(-np.pi, np.pi, size=n), np.zeros(n)
    found = np.empty((n, TIMES))
    for t in range(TIMES):
        found[:, t] = angle
        angle, speed = move(angle, speed, rng)
    return found


def shares(n, steps, rng):
    """Share (n, steps) of the image in what is seen: a random walk, cut off at both ends."""
    walk = np.empty((n, steps))
    walk[:, 0] = rng.uniform(size=n)
    for t in range(1, steps):
        walk[:, t] = np.clip(walk[:, t - 1] + rng.uniform(-WALK, WALK, size=n), 0.0, 1.0)
    low, high = rng.uniform(0.0, LOW, size=(n, 1)), rng.uniform(HIGH, 1.0, size=(n, 1))
    found = np.clip((walk - low) / (high - low), 0.0, 1.0)
    found[:, :CLEAN] = 1.0
    return found


def film(angles, share, rng):
    """Frames (n, T, SIDE, SIDE) of discs at angles (n, T), in noise where the share is below 1."""
    middle, pixels = (SIDE - 1) / 2.0, np.arange(SIDE)
    x, y = (middle + ROD * f(angles)[..., None, None] for f in (np.sin, np.cos))
    away = np.sqrt((pixels - x) ** 2 + (pixels[:, None] - y) ** 2)
    disc, share = np.clip(DISC + 0.5 - away, 0.0, 1.0), share[..., None, None]
    return (share * disc + (1.0 - share) * rng.uniform(size=disc.shape)).astype(np.float32)


def on_circle(angles):
    """Sine and cosine (..., 2) of angles (...)."""
    return np.stack([np.sin(angles), np.cos(angles)], axis=-1)


def simulate(n, rng):
    """Frames (n, SEEN, SIDE, SIDE), angles and shares (n, SEEN), and whole times (n, SEEN)."""
    angles = swing(n, rng)
    times = np.sort(rng.permuted(np.tile(np.arange(TIMES), (n, 1)), axis=1)[:, :SEEN], axis=1)
    seen, share = np.take_along_axis(angles, times, axis=1), shares(n, SEEN, rng)
    return film(seen, share, rng), seen, share, times


def gaps(times):
    """Transitions (n, T) into each frame; the first is 1."""
    return np.diff(times, axis=1, prepend=times[:, :1] - 1)


def drop(n, rng):
    """Return which frames (n, SEEN) are missing: never the first."""
    lost = rng.uniform(size=(n, SEEN)) < MISSING
    lost[:, 0] = False
    return lost


def pieces(A, Z, times):
    """Cut sequences into runs of consecutive times, whose transitions are of one step."""
    X, states = [], []
    for a, z, t in zip(A, Z, times, strict=True):
        cuts = np.flatnonzero(np.diff(t) > 1) + 1
        X += np.split(a, cuts)
        states += np.split(z, cuts)
    return X, states


def in_windows(A, times, lost):
    """Windows (n SEEN, WINDOW, p + 2) of features (0 if missing), gaps, and what is missing."""
    n, p = len(A), A.shape[-1] + 2
    known = np.where(lost[..., None], 0.0, A)
    rows = np.concatenate([known, gaps(times)[..., None], lost[..., None]], axis=-1)
    rows = np.concatenate([np.zeros((n, WINDOW - 1, p)), rows], axis=1)
    windows = np.stack([rows[:, t : t + SEEN] for t in range(WINDOW)], axis=2)
    return windows.reshape(n * SEEN, WINDOW, p)


def neighbours(X, Z, new):
    """Mean state of the nearest frames, their number chosen on the last fifth."""
    X, cut = X.reshape(len(X), -1), len(X) * 4 // 5

    def near(k, rows):
        return KNeighborsRegressor(k, algorithm="brute").fit(X[rows], Z[rows])

    scores = {
        k: np.mean((near(k, slice(cut)).predict(X[cut::4]) - Z[cut::4]) ** 2) for k in (1, 5, 20)
    }
    return near(min(scores, key=scores.get), slice(None)).predict(new.reshape(-1, X.shape[1]))


def recurrent(X, Z, times, new, later, seed):
    """Estimates of a gated recurrent unit behind the same network, with the gaps as an input."""
    import torch

    net = Net("cnn", (SIDE, SIDE), 2 * FEATURES)
    middle, scale = net.scales(X[:, 0])

    class Baseline(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.see, self.say = net.build(), torch.nn.Linear(64, 2)
            self.remember = torch.nn.GRU(2 * FEATURES + 1, 64, batch_first=True)

        def forward(self, frames, gap):
            seen = self.see(frames.flatten(0, 1)).unflatten(0, frames.shape[:2])
            return self.say(self.remember(torch.cat([seen, gap], dim=-1))[0])

    def tensors(*arrays):
        return [torch.tensor(a, dtype=torch.float32) for a in arrays]

    inputs, gap, targets = tensors((X - middle) / scale, gaps(times)[..., None], Z)
    frames, between = tensors((new - middle) / scale, gaps(later)[..., None])
    held, rng, found = len(X) // 10, np.random.default_rng(seed), []
    with torch.random.fork_rng(devices=[]):
        for rate in (1e-3, 3e-3):
            torch.manual_seed(seed)
            model, best = Baseline(), (np.inf, None)
            optimiser = torch.optim.Adam(model.parameters(), rate)
            for _ in range(EPOCHS):
                model.train()
                order = held + rng.permutation(len(X) - held)
                for rows in np.array_split(order, len(X) // 8):
                    optimiser.zero_grad()
                    torch.mean((model(inputs[rows], gap[rows]) - targets[rows]) ** 2).backward()
                    optimiser.step()
                model.eval()
                with torch.no_grad():
                    rest = model(inputs[:held], gap[:held]) - targets[:held]
                    value = float(torch.mean(rest**2))
                    if value < best[0]:
                        best = value, model(frames, between).numpy()
            found.append(best)
    return min(found, key=lambda pair: pair[0])[1]


def limit(angles, share, times, rng):
    """Estimates by who knows the model, and the angle itself where a frame is not all noise.

    A particle filter. No filter of frames knows so much: its error is a bound, up to the number of
    particles and to READ.
    """
    n, T = angles.shape
    angle, speed = rng.uniform(-np.pi, np.pi, size=(n, PARTICLES)), np.zeros((n, PARTICLES))
    found, weights = np.empty((n, T, 2)), np.full((n, PARTICLES), 1.0 / PARTICLES)
    at, rows = np.zeros(n, dtype=int), np.arange(n)[:, None]
    for t in range(TIMES):
        now = (at < T) & (times[rows[:, 0], np.minimum(at, T - 1)] == t)
        here = np.minimum(at, T - 1)
        read = now & (share[rows[:, 0], here] > 0.0)
        off = np.angle(np.exp(1j * (angle - angles[rows[:, 0], here][:, None])))
        scale = np.where(read[:, None], -0.5 * (off / READ) ** 2, 0.0)
        weights = weights * np.exp(scale - scale.max(axis=1, keepdims=True))
        weights = (weights + 1e-300) / np.sum(weights + 1e-300, axis=1, keepdims=True)
        mean = np.einsum("np,npd->nd", weights, on_circle(angle))
        found[np.flatnonzero(now), at[now]] = mean[now]
        at = at + now
        places = (np.arange(PARTICLES) + rng.uniform(size=(n, 1))) / PARTICLES
        total = np.cumsum(weights, axis=1)
        picks = np.stack([np.searchsorted(a, b) for a, b in zip(total, places, strict=True)])
        picks = np.minimum(picks, PARTICLES - 1)
        angle, speed = move(angle[rows, picks], speed[rows, picks], rng)
        weights = np.full((n, PARTICLES), 1.0 / PARTICLES)
    return found


def one_run(size, run, methods):
    """Rows of some methods; the seed is the run."""
    rng = np.random.default_rng(run)
    (X, angles, _, times), (new, turned, share, later) = (simulate(n, rng) for n in (size, TEST))
    Z, truth = on_circle(angles), on_circle(turned)
    lost, gone = drop(size, rng), drop(TEST, rng)
    ways = {"all frames": gone & False, "frames missing": gone}
    flat, hidden = X.reshape(-1, SIDE, SIDE), Z.reshape(-1, 2)
    rows, begun = [], time.process_time()

    def tell(method, found, problem="all frames"):
        value = 1e3 * float(np.mean((np.reshape(found, truth.shape) - truth) ** 2))
        rows.append((problem, size, run, method, value))
        seconds = time.process_time() - begun
        print(f"{size} sequences, {method}, {problem}: {value:.2f}, {seconds:.0f} s in all")

    if {"regression", "filter", "window"} & set(methods):
        kernel = kb.NeuralFeatures(dim=FEATURES, epochs=EPOCHS, rng=run).fit(flat, hidden)
        A = kernel.features(flat).reshape(size, SEEN, -1)
        B = kernel.features(new.reshape(-1, SIDE, SIDE)).reshape(TEST, SEEN, -1)
        rule = kb.ConditionalEmbedding(kb.Linear()).fit(A.reshape(-1, FEATURES), hidden)
    for method in methods:
        if method == "constant":
            tell(method, np.broadcast_to(hidden.mean(axis=0), truth.shape))
        elif method == "neighbours":
            tell(method, neighbours(flat, hidden, new))
        elif method == "regression":
            tell(method, rule(B.reshape(-1, FEATURES)).mean())
        elif method == "filter":
            # Frames of noise have estimates near the middle: they count as missing.
            E, F = (np.asarray(rule(C.reshape(-1, FEATURES)).mean()) for C in (A, B))
            E, F = (
                np.where(np.linalg.norm(C, axis=1, keepdims=True) < SHORT, np.nan, C)
                for C in (E, F)
            )
            runs = zip(*pieces(E.reshape(Z.shape), Z, times), strict=True)
            runs = [pair for pair in runs if len(pair[1]) >= FEWEST]
            plain = {"order": 2, "lags": 1, "features": "raw", "rank": RANK, "rng": run}
            model = kb.KernelBayesFilter(kb.Gaussian(NEAR), kb.Gaussian(STATES), **plain)
            model.fit(*map(list, zip(*runs, strict=True)))
            for problem, holes in ways.items():
                seen = list(np.where(holes[..., None], np.nan, F.reshape(truth.shape)))
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", kb.NumericalWarning)
                    beliefs = model.filter(seen, gaps=list(gaps(later)), progress=False)
                tell(method, np.stack([b.mean() for b in beliefs]), problem)
        elif method == "window":
            # Every other training sequence has missing frames too.
            W = in_windows(A, times, lost & (np.arange(size) % 2 == 1)[:, None])
            deep = kb.NeuralFeatures("gru", epochs=WINDOW_EPOCHS, rng=run).fit(W, hidden)
            late = kb.ConditionalEmbedding(kb.Linear()).fit(deep.features(W), hidden)
            for problem, holes in ways.items():
                tell(method, late(deep.features(in_windows(B, later, holes))).mean(), problem)
        elif method == "GRU":
            tell(method, recurrent(X, Z, times, new, later, run))
        else:
            tell(method, limit(turned, share, later, rng))
    return rows


def main():
    """Run, print and check."""
    parser = options(__doc__)
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=METHODS)
    given = parser.parse_args()
    sizes = tuple(BARS) if given.full else (200,)
    seeds = range(given.first, given.first + (given.runs or 1))
    tasks = [(size, run, tuple(given.methods)) for size in sizes for run in seeds]
    table = summary(compute(one_run, tasks, given.jobs))
    print_table(table, digits=2)
    print("published, on other films:", *(f"{k} {v}," for k, v in PUBLISHED.items()))
    results = []
    for size in sizes:
        learned = [v[0] for (m, p, s), v in table.items()
                   if m in ("filter", "window") and p == "all frames" and s == size]  # fmt: skip
        if learned:
            text = f"best with learned features, {size} sequences: {min(learned):.2f}"
            results.append(check(f"{text}; at most {BARS[size]}", min(learned) <= BARS[size]))
    return 0 if all(results) else 1


if __name__ == "__main__":
    raise SystemExit(main())
