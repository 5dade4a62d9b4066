"""A camera that turns about itself in a room: the setting of KBR13 Table 1 and CME13 Table 1.

The camera pans steadily, and nods and rolls to and fro, each with noise. The state is its rotation
matrix. The view of 20 x 20 pixels in colour is that of the state plus noise. The papers' rendered
movie is not public: a room with painted walls and pictures on them is drawn by casting rays.
"""

from __future__ import annotations

import numpy as np
from models import Sequence
from scipy.spatial.transform import Rotation

SIDE, VIEW = 20, np.radians(70.0)
PAN, PAN_NOISE = 0.06, 0.03  # radians a frame: a turn takes about a hundred frames
SWING, MEMORY = 0.25, 0.95  # standard deviation of nodding and rolling, and their autoregression
HALF = np.array([2.5, 1.4, 3.5])  # from the camera to the walls, floor and ceiling
# Paints of the sides -x, +x, -y, +y (floor, ceiling), -z, +z.
PAINTS = np.array(
    [
        *([0.75, 0.35, 0.25], [0.30, 0.50, 0.75], [0.45, 0.35, 0.25]),
        *([0.92, 0.92, 0.88], [0.35, 0.60, 0.35], [0.85, 0.75, 0.40]),
    ]
)
# Pictures, windows and rugs: side, centre (in the two other coordinates) and half widths, paint.
PATCHES = (
    (0, (0.2, -1.5), (0.6, 0.8), (0.95, 0.95, 0.7)),
    (0, (-0.3, 1.8), (0.9, 0.6), (0.15, 0.15, 0.3)),
    (1, (0.1, 0.5), (0.7, 1.2), (0.9, 0.3, 0.5)),
    (2, (0.5, 1.0), (1.2, 1.4), (0.7, 0.2, 0.2)),
    (3, (-0.8, -1.0), (0.5, 0.5), (1.0, 0.85, 0.4)),
    (4, (-0.9, 0.0), (0.7, 0.9), (0.2, 0.25, 0.7)),
    (5, (1.0, 0.1), (0.6, 1.0), (0.3, 0.7, 0.75)),
)
DUSK = 0.08  # light lost per metre


def views(rotations: np.ndarray) -> np.ndarray:
    """Return views (n, 20, 20, 3) without noise, of cameras with rotation matrices (n, 3, 3)."""
    at = np.tan(VIEW / 2.0) * (2.0 * (np.arange(SIDE) + 0.5) / SIDE - 1.0)
    right, up = np.meshgrid(at, -at)
    rays = np.stack([right, up, np.ones_like(right)], axis=-1)
    rays = np.einsum("nij,hwj->nhwi", rotations, rays / np.linalg.norm(rays, axis=-1)[..., None])
    with np.errstate(divide="ignore"):
        distances = HALF / np.abs(rays)
    axis = distances.argmin(axis=-1)
    distance = distances.min(axis=-1)
    side = 2 * axis + (np.take_along_axis(rays, axis[..., None], -1)[..., 0] > 0.0)
    hit = rays * distance[..., None]
    colour = PAINTS[side]
    for where, centre, half, paint in PATCHES:
        others = [i for i in range(3) if i != where // 2]
        inside = np.all(np.abs(hit[..., others] - centre) <= half, axis=-1) & (side == where)
        colour[inside] = paint
    return colour / (1.0 + DUSK * distance[..., None])


def simulate(length: int, variance: float, rng: np.random.Generator) -> Sequence:
    """One sequence: views (T, 1200) with noise of some variance, and rotations (T, 3, 3)."""
    pan = rng.uniform(0.0, 2.0 * np.pi) + np.cumsum(PAN + PAN_NOISE * rng.normal(size=length))
    swing = np.empty((length, 2))
    swing[0] = SWING * rng.normal(size=2)
    noise = SWING * np.sqrt(1.0 - MEMORY**2) * rng.normal(size=(length, 2))
    for t in range(1, length):
        swing[t] = MEMORY * swing[t - 1] + noise[t]
    angles = np.column_stack([pan, swing])  # about y, x and z, each in the camera's own axes
    Z = Rotation.from_euler("YXZ", angles).as_matrix()
    X = views(Z).reshape(length, -1)
    return Sequence(X + np.sqrt(variance) * rng.normal(size=X.shape), Z, None)
