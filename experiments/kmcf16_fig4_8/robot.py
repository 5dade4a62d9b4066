"""A robot in the demo's building: trajectories, visual words, and what its odometry tells."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from sklearn.cluster import MiniBatchKMeans

from kernelbayes.demo.drive import Drive

WORDS, PATCH = 50, 2  # visual words, and pixels of a patch's side
ALPHA = 0.1  # all four parameters of the odometry model, as in the thesis


@dataclass(frozen=True)
class Trajectory:
    """Word maps X (T, rows, columns), states Z (T, 4), and controls (T, 3) into each frame."""

    X: np.ndarray
    Z: np.ndarray
    controls: np.ndarray


def patches(frames):
    """All patches (n, rows, columns, values) of frames (n, height, width, 3)."""
    seen = np.lib.stride_tricks.sliding_window_view(frames, (PATCH, PATCH), axis=(1, 2))
    return seen.reshape(*seen.shape[:3], -1)


def vocabulary(frames, rng):
    """Centres of the patches of some frames, found by k-means."""
    seen = patches(frames)
    seed = int(rng.integers(2**31))
    means = MiniBatchKMeans(WORDS, n_init=1, random_state=seed, batch_size=4096)
    return means.fit(seen.reshape(-1, seen.shape[-1]))


def word_maps(frames, means):
    """Nearest word at each place, as an image with values at the middle of histogram bins."""
    seen = patches(frames)
    return means.predict(seen.reshape(-1, seen.shape[-1])).reshape(seen.shape[:3]) + 0.5


def odometry(wheels, start=0.0):
    """Poses (T, 3) by adding up what the wheels tell: x, y and heading."""
    heading = start + np.cumsum(wheels[:, 1])
    steps = wheels[:, :1] * np.column_stack([np.cos(heading), np.sin(heading)])
    return np.column_stack([np.cumsum(steps, axis=0), heading])


def controls(poses):
    """Turn, way and turn (T, 3) between poses: Thrun, Burgard and Fox (2005), Table 5.6."""
    moved = np.diff(poses, axis=0, prepend=poses[:1])
    way = np.hypot(moved[:, 0], moved[:, 1])
    before = np.concatenate([poses[:1, 2], poses[:-1, 2]])
    first = wrapped(np.arctan2(moved[:, 1], moved[:, 0]) - before)
    first = np.where(way > 1e-9, first, 0.0)  # turning on the spot has no direction
    return np.column_stack([first, way, wrapped(moved[:, 2] - first)])


def wrapped(angle):
    """Angle in [-pi, pi)."""
    return (angle + np.pi) % (2.0 * np.pi) - np.pi


def move(z, rng, control=None):
    """Odometry motion model (same table): states z (m, 4) moved by a noisy turn, way and turn."""
    first, way, second = np.reshape(np.asarray(control), (-1, 3)).T

    def noisy(value, variance):
        return value - np.sqrt(variance) * rng.normal(size=len(z))

    turn = noisy(first, ALPHA * (first**2 + way**2))
    length = noisy(way, ALPHA * (way**2 + first**2 + second**2))
    again = noisy(second, ALPHA * (second**2 + way**2))
    heading = np.arctan2(z[:, 3], z[:, 2]) + turn
    step = length[:, None] * np.column_stack([np.cos(heading), np.sin(heading)])
    heading = heading + again
    return np.column_stack([z[:, :2] + step, np.cos(heading), np.sin(heading)])


def trajectory(drive, means, every=1):
    """One drive, seen at every so many frames."""
    frames, Z = drive.frames[::every], drive.Z[::every]
    return Trajectory(word_maps(frames, means), Z, controls(odometry(drive.wheels)[::every]))


def trajectories(lengths, intervals, rng):
    """Drives of some lengths, each at every interval; the words are those of the first one."""
    drives = [Drive.simulated(length, rng) for length in lengths]
    means = vocabulary(drives[0].frames[::4], rng)
    return [[trajectory(drive, means, every) for every in intervals] for drive in drives]
