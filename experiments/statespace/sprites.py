"""A heart that moves in the plane, seen as a noisy image: the setting of IW22 Figure 6.

The state turns at an oscillating radius (IW22 eq. 5). The image shows a heart at the state plus
noise, at the nearest of 32 x 32 positions. The dSprites images of the paper are not used: the heart
is drawn here.
"""

from __future__ import annotations

import numpy as np
from models import Sequence, plane

SIDE, POSITIONS = 64, 32
REACH = 2.0  # positions cover the square [-2, 2]^2, three standard deviations beyond the orbit
SIZE = 8.0  # half the width of the heart in pixels: it stays within the image everywhere
SEEN, PIXEL = 0.05, 0.1  # standard deviations of the noise of position and pixels (IW22)


def heart(row: int, column: int) -> np.ndarray:
    """Image (64, 64) of ones and zeros with a heart centred at a pixel."""
    y, x = (np.arange(SIDE)[:, None] - row) / -SIZE, (np.arange(SIDE)[None, :] - column) / SIZE
    x, y = 1.2 * x, 1.2 * y + 0.1  # the curve is about 2.3 wide and its middle lies above zero
    return ((x**2 + y**2 - 1.0) ** 3 <= x**2 * y**3).astype(float)


def positions(z: np.ndarray) -> np.ndarray:
    """Nearest position (n, 2), of 32 in each direction, to points (n, 2) of the plane."""
    steps = (np.asarray(z) + REACH) / (2.0 * REACH) * (POSITIONS - 1)
    return np.clip(np.rint(steps), 0, POSITIONS - 1).astype(int)


def images(z: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Noisy images (n, 64, 64) of hearts at points (n, 2) of the plane."""
    first = (SIDE - POSITIONS) // 2
    clean = np.stack([heart(first + j, first + i) for i, j in positions(z)])
    return clean + PIXEL * rng.normal(size=clean.shape)


def simulate(length: int, rng: np.random.Generator) -> Sequence:
    """One sequence: images (T, 64, 64) and states (T, 2)."""
    model = plane(0.4, amplitude=0.4, noise=0.2)
    Z = model.simulate(length, rng).Z
    return Sequence(images(Z + SEEN * rng.normal(size=Z.shape), rng), Z, None)
