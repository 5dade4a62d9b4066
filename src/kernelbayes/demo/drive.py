"""Simulated drives of the robot from room to room, and the readings of its wheels."""

from dataclasses import dataclass
from typing import Self

import numpy as np

from kernelbayes.arrays import as_generator
from kernelbayes.demo.building import ALIKE, NORTH, ROOM, ROOMS, SOUTH, WIDTH, look
from kernelbayes.learned import Learned
from kernelbayes.types import Floats, Rng

SPEED, TURN = 0.4, np.radians(40.0)  # at most, in metres and radians per frame
MARGIN = 0.5  # from the walls to the places it heads for
SWAY = 0.05  # standard deviation of the heading, per frame
# Error of the wheels per frame, standard deviations: a share of the distance, radians of the turn.
SLIP, SKID = 0.05, 0.03
# Error the robot assumes, about twice that with the sway, and metres for the rest.
LOOSE, VEER, SHIFT = 0.1, 0.06, 0.03


@dataclass(frozen=True)
class Drive:
    """Frames (T, ROWS, COLUMNS, 3), states (T, 3), wheels (T, 2: metres and turn before each)."""

    frames: Floats
    states: Floats
    wheels: Floats
    features: Learned | None = None

    @classmethod
    def simulated(cls, length: int, rng: Rng = None, room: str | None = None) -> Self:
        """Simulate a drive with a frame at every step."""
        rng = as_generator(rng)
        states = drive(length, rng, room)
        return cls(look(states, rng=rng), states, turned_wheels(states, rng))

    def part(self, frames: slice) -> Self:
        """Return some of its frames."""
        return type(self)(self.frames[frames], self.states[frames], self.wheels[frames])

    @property
    def metres(self) -> Floats:
        """Metres (T,) that were driven before each frame."""
        step = np.diff(self.states[:, :2], axis=0, prepend=self.states[:1, :2])
        return np.asarray(np.cumsum(np.hypot(*step.T)))

    @property
    def metres_alike(self) -> float:
        """Metres driven before it first leaves the two rooms that look the same; 0 elsewhere."""
        low = np.array([ROOMS[room][:2] for room in ALIKE])[:, None]
        place = self.states[:, :2]
        inside = ((low <= place) & (place <= low + ROOM)).all(axis=2).any(axis=0)
        return float(self.metres[-1 if inside.all() else inside.argmin()])

    @property
    def X(self) -> Floats:
        """Observations: pixels (T, ROWS * COLUMNS * 3), or their features."""
        if self.features is not None:
            return np.asarray(self.features.features(self.frames))
        return self.frames.reshape(len(self.frames), -1)

    @property
    def Z(self) -> Floats:
        """States (T, 4) without a jump at a full turn: x, y, cos and sin of the heading."""
        heading = self.states[:, 2]
        return np.column_stack([self.states[:, :2], np.cos(heading), np.sin(heading)])


def turned_wheels(states: Floats, rng: Rng = None) -> Floats:
    """Metres and turns (T, 2) between states (T, 3), as wheels that slip measure them."""
    x, y, turn = np.diff(states, axis=0, prepend=states[:1]).T
    way, slip = np.hypot(x, y), as_generator(rng).normal(size=(2, len(states)))
    return np.column_stack([way * (1.0 + SLIP * slip[0]), turn + SKID * slip[1] * (turn != 0.0)])


def roll(z: Floats, rng: np.random.Generator, control: Floats | None = None) -> Floats:
    """Move states z (m, 4) by the readings of the wheels: all that the robot knows beforehand."""
    (way, turn), m = np.reshape(np.asarray(control), (-1, 2)).T, len(z)
    heading = np.arctan2(z[:, 3], z[:, 2]) + turn + VEER * rng.normal(size=m)
    ahead = np.column_stack([np.cos(heading), np.sin(heading)])
    way = way * (1.0 + LOOSE * rng.normal(size=m))
    return np.column_stack(
        [z[:, :2] + way[:, None] * ahead + SHIFT * rng.normal(size=(m, 2)), ahead]
    )


def drive(frames: int, rng: Rng = None, room: str | None = None) -> Floats:
    """States (frames, 3) of a drive from a room or the "corridor": x, y in metres, heading."""
    rng = as_generator(rng)
    room = str(rng.choice([*ROOMS, "corridor"])) if room is None else room
    place, heading = _somewhere(room, rng), rng.uniform(-np.pi, np.pi)
    goals = [_somewhere(room, rng)]
    states = np.empty((frames, 3))
    for t in range(frames):
        states[t] = *place, heading
        while np.hypot(*(goals[0] - place)) < SPEED:
            goals.pop(0)
            if not goals:
                room, goals = _onwards(room, rng)
        ahead = goals[0] - place
        wrong = (np.arctan2(ahead[1], ahead[0]) - heading + np.pi) % (2.0 * np.pi) - np.pi
        heading += np.clip(wrong, -TURN, TURN) + SWAY * rng.normal()
        if abs(wrong) < TURN:  # otherwise it turns in place
            place = place + SPEED * rng.uniform(0.7, 1.0) * ahead / np.hypot(*ahead)
    return states


def _somewhere(room: str, rng: np.random.Generator) -> Floats:
    """Return a random position in a room, away from its walls."""
    if room == "corridor":
        low, high = np.array([0.0, SOUTH]), np.array([WIDTH, NORTH])
    else:
        low = np.array(ROOMS[room][:2])
        high = low + ROOM
    return rng.uniform(low + MARGIN, high - MARGIN)


def _onwards(room: str, rng: np.random.Generator) -> tuple[str, list[Floats]]:
    """Return the next room and the positions on the way there."""
    if room == "corridor":
        room = str(rng.choice(list(ROOMS)))
        return room, [*reversed(_door(room)), _somewhere(room, rng)]
    return "corridor", [*_door(room), _somewhere("corridor", rng)]


def _door(room: str) -> list[Floats]:
    """Return the positions on both sides of a room's door, on the way out."""
    x, y, _ = ROOMS[room]
    side, out = (NORTH, -MARGIN) if y == NORTH else (SOUTH, MARGIN)
    return [np.array([x + ROOM[0] / 2, side - out]), np.array([x + ROOM[0] / 2, side + out])]
