"""A building and the views of a camera in it, by ray casting in NumPy.

The plan is a corridor between two rows of three rooms. Walls are straight, upright and painted in
plain colours; towards the corridor they have a tint of the room's colour. A ray finds the nearest
wall, whose distance determines how much of an image column it fills and how dark it looks. Above it
is the ceiling, below it the floor.

Rooms a and f look the same from inside, rotated by 180 degrees. A single frame cannot distinguish
them; only the path to the room can.
"""

from typing import NamedTuple

import numpy as np

from kernelbayes.arrays import as_generator
from kernelbayes.types import Floats, Ints, Rng

Colour = tuple[float, float, float]

# The building is made up: six rooms on both sides of a corridor, in metres, and its paints.
WIDTH, DEPTH = 12.0, 8.0
SOUTH, NORTH = 3.0, 5.0  # the corridor's two sides
ROOM = np.array([4.0, 3.0])
DOOR = 1.2
HALF_A_WALL = 0.02
BRICK, MOSS, SKY = (0.75, 0.35, 0.25), (0.35, 0.6, 0.3), (0.35, 0.55, 0.8)
LILAC, SAND, PLASTER = (0.6, 0.45, 0.7), (0.85, 0.75, 0.4), (0.75, 0.75, 0.75)
TINT = 0.5  # of a room's paint in the plaster of its wall towards the corridor
ORANGE, TEAL = (0.95, 0.5, 0.05), (0.0, 0.45, 0.5)
CEILING, FLOOR = (0.95, 0.95, 0.95), (0.4, 0.37, 0.34)

# Lower left corner and paint of each room.
ROOMS: dict[str, tuple[float, float, Colour]] = {
    "a": (0.0, NORTH, BRICK), "b": (4.0, NORTH, SKY), "c": (8.0, NORTH, MOSS),
    "d": (0.0, 0.0, LILAC), "e": (4.0, 0.0, SAND), "f": (8.0, 0.0, BRICK),
}  # fmt: skip
ALIKE = ("a", "f")

ROWS, COLUMNS, VIEW = 8, 16, np.radians(90.0)  # the camera's pixels and field of view
NOISE = 0.07  # standard deviation per pixel and colour, of colours between 0 and 1
FINE = 4  # rays per column, and heights per row, averaged in a pixel
DUSK = 0.12  # how fast walls get darker, per metre


class Plan(NamedTuple):
    """Ends (m, 2, 2) and colours (m, 3) of the walls, and the sides of the building in metres."""

    ends: Floats
    colours: Floats
    width: float = WIDTH
    depth: float = DEPTH


def walls() -> Plan:
    """Plan of the building; the two sides of a wall are two walls."""
    lines: list[tuple[float, float, float, float]] = []
    colours: list[Colour] = []
    for x, y, paint in ROOMS.values():
        side, far = (NORTH, DEPTH) if y == NORTH else (SOUTH, 0.0)
        inside = side + np.copysign(HALF_A_WALL, far - side)
        outside = 2.0 * side - inside
        left, right = x + (ROOM[0] - DOOR) / 2, x + (ROOM[0] + DOOR) / 2
        west, east = x + HALF_A_WALL, x + ROOM[0] - HALF_A_WALL
        room = [
            (x, far, x + ROOM[0], far), (west, side, west, far), (east, side, east, far),
            (x, inside, left, inside), (right, inside, x + ROOM[0], inside),
        ]  # fmt: skip
        beyond = [
            (x, outside, left, outside), (right, outside, x + ROOM[0], outside),
            (left, inside, left, outside), (right, inside, right, outside),
        ]  # fmt: skip
        lines += room + beyond
        tinted = tuple((1.0 - TINT) * np.array(PLASTER) + TINT * np.array(paint))
        colours += [paint] * len(room) + [tinted] * len(beyond)
    lines += [(0.0, SOUTH, 0.0, NORTH), (WIDTH, SOUTH, WIDTH, NORTH)]
    colours += [ORANGE, TEAL]
    return Plan(np.array(lines).reshape(-1, 2, 2), np.array(colours))


def nearest_wall(eyes: Floats, angles: Floats, ends: Floats) -> tuple[Floats, Ints]:
    """Distance (n,) from eyes (n, 2) to the first wall at angles (n,), and its row in ends."""
    start, along = ends[:, 0], ends[:, 1] - ends[:, 0]
    d = np.column_stack([np.cos(angles), np.sin(angles)])
    gap = start - eyes[:, None]
    across = gap[..., 0] * along[:, 1] - gap[..., 1] * along[:, 0]
    beside = gap[..., 0] * d[:, 1:] - gap[..., 1] * d[:, :1]
    turn = d[:, :1] * along[:, 1] - d[:, 1:] * along[:, 0]
    turn = np.where(turn == 0.0, np.nan, turn)  # parallel: no crossing, and NaN is never in [0, 1]
    t, s = across / turn, beside / turn
    t = np.where((t > 0.0) & (s >= 0.0) & (s <= 1.0), t, np.inf)
    wall = t.argmin(axis=1)
    return t[np.arange(len(t)), wall], wall


def look(states: Floats, noise: float = NOISE, rng: Rng = None) -> Floats:
    """Camera frames (n, ROWS, COLUMNS, 3): red, green and blue, in [0, 1] before the noise.

    States (n, 3) are x and y in metres and the heading in radians; ``noise`` is its standard
    deviation. Rooms a and f look the same, rotated by 180 degrees:

    >>> import numpy as np
    >>> from kernelbayes.demo.building import look
    >>> twins = look(np.array([[1.0, 6.0, 1.0], [11.0, 2.0, 1.0 + np.pi]]), noise=0.0, rng=0)
    >>> bool(np.abs(twins[0] - twins[1]).max() < 1e-9)
    True
    """
    n = len(states)
    plan = walls()
    sideways = VIEW * (0.5 - _middles(COLUMNS * FINE))  # left to right
    angles = states[:, 2, None] + sideways
    eyes = np.repeat(states[:, :2], len(sideways), axis=0)
    distance, wall = nearest_wall(eyes, angles.ravel(), plan.ends)
    distance = distance.reshape(n, -1)
    paint = plan.colours[wall].reshape(n, -1, 1, 3) / (1.0 + DUSK * distance[..., None, None])
    # Height of each line of sight where it meets the wall: walls reach from -1 to 1, the eye is
    # at 0, and the image plane is flat (hence the cosine).
    slope = 1.0 - 2.0 * _middles(ROWS * FINE)
    height = (slope * (distance * np.cos(sideways))[..., None])[..., None]
    seen = np.where(height >= 1.0, CEILING, np.where(height <= -1.0, FLOOR, paint))
    frames = seen.reshape(n, COLUMNS, FINE, ROWS, FINE, 3).mean(axis=(2, 4)).swapaxes(1, 2)
    return np.asarray(frames + noise * as_generator(rng).normal(size=frames.shape))


def _middles(parts: int) -> Floats:
    """Middles of equal parts of the interval from 0 to 1."""
    return (np.arange(parts) + 0.5) / parts
