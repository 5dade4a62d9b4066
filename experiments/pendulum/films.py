"""Films of a pendulum at irregular times, how they are cut up, and what can be known from them."""

from __future__ import annotations

import numpy as np

SIDE, TIMES, SEEN = 24, 100, 50  # pixels; times of the grid, and how many of them are filmed
STEP, SUBSTEPS, GRAVITY, SHAKE = 0.1, 10, 9.81, 0.1  # s; m/s^2 on a rod of 1 m; velocity noise
ROD, DISC = 8.0, 3.0  # pixels
WALK, LOW, HIGH = 0.2, 0.25, 0.75  # of the share of the image in what is seen
CLEAN = 5  # frames before the noise sets in
MISSING = 0.2  # share of frames that are dropped in some rows
WINDOW = 12  # frames
PARTICLES, READ = 500, 0.05  # of the limit: and the standard deviation of its readings


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
