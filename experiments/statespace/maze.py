"""A camera that turns on the spot in a maze: the setting of IW22 Figure 5.

The heading turns by 0.4 a step, with noise; the state is its cosine and sine. The view of 36 x 48
pixels in colour is that of the heading plus noise. DeepMind Lab is not used: corridors with
painted walls are drawn by the ray caster of the demo.
"""

from __future__ import annotations

import numpy as np
from models import Sequence

from kernelbayes.demo.building import nearest_wall

ROWS, COLUMNS, VIEW = 36, 48, np.radians(90.0)
STEP, TURN, SEEN, PIXEL = 0.4, 0.2, 0.2, 0.1  # IW22 section 5.3: noise of heading, view and pixels
EYE = np.array([0.3, -0.2])
# Walls of a crossing of corridors, by their ends; paints between 0 and 1.
WALLS = np.array(
    [
        *([[1, 1], [4, 1]], [[4, 1], [4, -1]], [[4, -1], [1, -1]], [[1, -1], [1, -3]]),
        *([[1, -3], [-1, -3]], [[-1, -3], [-1, -1]], [[-1, -1], [-5, -1]], [[-5, -1], [-5, 1]]),
        *([[-5, 1], [-1, 1]], [[-1, 1], [-1, 2]], [[-1, 2], [1, 2]], [[1, 2], [1, 1]]),
    ],
    dtype=float,
)
BRICK, MOSS, SKY, SAND = (0.7, 0.3, 0.2), (0.3, 0.6, 0.3), (0.3, 0.5, 0.8), (0.8, 0.7, 0.4)
PAINTS = np.array([BRICK, SKY, BRICK, MOSS, SAND, MOSS] * 2)
CEILING, FLOOR, DUSK = (0.9, 0.9, 0.9), (0.4, 0.4, 0.35), 0.15


def views(headings: np.ndarray) -> np.ndarray:
    """Return views (n, 36, 48, 3) without noise, at headings (n,) in radians."""
    sideways = VIEW * (0.5 - (np.arange(COLUMNS) + 0.5) / COLUMNS)  # left to right
    angles = (headings[:, None] + sideways).ravel()
    distance, wall = nearest_wall(np.tile(EYE, (len(angles), 1)), angles, WALLS)
    distance = distance.reshape(len(headings), 1, COLUMNS, 1)
    paint = PAINTS[wall].reshape(len(headings), 1, COLUMNS, 3) / (1.0 + DUSK * distance)
    slope = 1.0 - 2.0 * (np.arange(ROWS) + 0.5) / ROWS
    height = slope[:, None, None] * distance * np.cos(sideways)[:, None]
    return np.where(height >= 1.0, CEILING, np.where(height <= -1.0, FLOOR, paint))


def headings(length: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Headings (length,) of the camera, and those that its views are of."""
    heading = rng.uniform(0.0, 2.0 * np.pi) + np.cumsum(STEP + TURN * rng.normal(size=length))
    return heading, heading + SEEN * rng.normal(size=length)


def on_circle(angles: np.ndarray) -> np.ndarray:
    """Cosine and sine (n, 2) of angles (n,)."""
    return np.column_stack([np.cos(angles), np.sin(angles)])


def simulate(length: int, rng: np.random.Generator) -> Sequence:
    """One sequence: views (T, 36, 48, 3) and states (T, 2)."""
    heading, seen = headings(length, rng)
    X = views(seen)
    return Sequence(X + PIXEL * rng.normal(size=X.shape), on_circle(heading), None)


def limit(size: int, run: int, length: int) -> np.ndarray:
    """Best estimates (length, 2) on the test sequence of a run, by who knows the heading of a view.

    The Kalman filter with the true model; the mean of (cos, sin) of a Gaussian angle of variance P
    is exp(-P / 2) times that of its mean.
    """
    rng = np.random.default_rng(run)
    simulate(size, rng)
    _, seen = headings(length, rng)
    angle, P, found = seen[0], SEEN**2, []
    for x in seen:
        if found:
            angle, P = angle + STEP, P + TURN**2
            gain = P / (P + SEEN**2)
            angle, P = angle + gain * (x - angle), (1.0 - gain) * P
        found.append(np.exp(-P / 2.0) * on_circle(np.array([angle]))[0])
    return np.array(found)
