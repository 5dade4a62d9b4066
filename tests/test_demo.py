"""The demo: its ray caster against geometry, its robot inside the building, its story true."""

import sys

import numpy as np
import pytest

from kernelbayes.demo import story
from kernelbayes.demo.building import (
    COLUMNS,
    DEPTH,
    NORTH,
    ROOM,
    ROOMS,
    ROWS,
    SOUTH,
    WIDTH,
    look,
    nearest_wall,
    walls,
)
from kernelbayes.demo.drive import MARGIN, SKID, SLIP, SPEED, Drive, drive, roll

# Some observations are unlike the small training samples, and a warning says so.
pytestmark = pytest.mark.filterwarnings("ignore:.*unlike anything:kernelbayes.NumericalWarning")


def test_distances_across_the_corridor_and_along_it():
    eyes = np.array([[4.0, 4.0], [3.0, 4.0], [3.0, 4.0]])  # at x = 4 there is no door
    distance, wall = nearest_wall(eyes, np.array([np.pi / 2, 0.0, np.pi]), walls()[0])
    np.testing.assert_allclose(distance, [1.0, 9.0, 3.0], atol=0.03)  # walls are 4 cm thick
    np.testing.assert_array_equal(walls()[1][wall[1:]][::-1], walls()[1][-2:])


def test_one_sees_through_a_door_and_not_through_a_wall():
    x = ROOM[0] / 2
    eyes = np.array([[x, 4.0], [x + 1.0, 4.0]])
    distance, _ = nearest_wall(eyes, np.full(2, np.pi / 2), walls()[0])
    np.testing.assert_allclose(distance, [DEPTH - 4.0, NORTH - 4.0], atol=0.03)


def test_no_ray_leaves_the_building():
    rng = np.random.default_rng(0)
    eyes = rng.uniform([0.1, 0.1], [WIDTH - 0.1, DEPTH - 0.1], size=(2000, 2))
    angles = rng.uniform(-np.pi, np.pi, 2000)
    distance, _ = nearest_wall(eyes, angles, walls()[0])
    hits = eyes + distance[:, None] * np.column_stack([np.cos(angles), np.sin(angles)])
    assert (hits > -1e-9).all()
    assert (hits < np.array([WIDTH, DEPTH]) + 1e-9).all()


def test_frames_have_ceiling_above_floor_below_and_turn_with_the_robot():
    states = np.array([[2.0, 4.0, 0.0], [2.0, 4.0, 2 * np.pi], [2.0, 4.0, np.pi]])
    frames = look(states, noise=0.0, rng=0)
    assert frames.shape == (3, ROWS, COLUMNS, 3)
    assert frames[0, 0].mean() > frames[0, -1].mean()
    np.testing.assert_allclose(frames[0], frames[1], atol=1e-9)
    assert np.abs(frames[0] - frames[2]).max() > 0.1
    np.testing.assert_array_equal(look(states, rng=3), look(states, rng=3))


def test_only_the_two_brick_rooms_look_the_same():
    def from_inside(room, turn):
        x, y, _ = ROOMS[room]
        place = np.array([x, y]) + (ROOM - [1.0, 1.0] if turn else [1.0, 1.0])
        return look(np.array([[*place, 1.0 + turn]]), noise=0.0, rng=0)[0]

    twin = np.abs(from_inside("a", 0.0) - from_inside("f", np.pi)).max()
    other = np.abs(from_inside("c", 0.0) - from_inside("d", np.pi)).max()
    assert twin < 1e-9 < 0.1 < other


@pytest.mark.parametrize("seed", range(5))
def test_the_robot_passes_walls_only_through_doors(seed):
    states = drive(500, seed)
    step = np.diff(states[:, :2], axis=0)
    length = np.linalg.norm(step, axis=1)
    assert length.max() <= SPEED
    moving = length > 0
    angles = np.arctan2(step[moving, 1], step[moving, 0])
    free, _ = nearest_wall(states[:-1][moving][:, :2], angles, walls()[0])
    assert (free > length[moving]).all()
    visited = {room for room, (x, y, _) in ROOMS.items() if near(states, x, y)}
    assert len(visited) >= 3  # of six, in 500 frames


def near(states, x, y):
    inside = (states[:, :2] > [x, y]) & (states[:, :2] < np.array([x, y]) + ROOM)
    return inside.all(axis=1).any()


def test_a_drive_starts_where_it_is_told():
    x, y = drive(1, 0, room="a")[0, :2]
    assert MARGIN <= x <= ROOM[0] - MARGIN
    assert NORTH + MARGIN <= y <= DEPTH - MARGIN
    assert SOUTH + MARGIN <= drive(1, 0, room="corridor")[0, 1] <= NORTH - MARGIN


def test_states_do_not_jump_at_a_full_turn():
    seen = Drive.simulated(50, 0)
    turned = Drive(seen.frames, seen.states + np.array([0.0, 0.0, 2 * np.pi]), seen.wheels)
    np.testing.assert_allclose(seen.Z, turned.Z, atol=1e-12)
    assert seen.X.shape == (50, ROWS * COLUMNS * 3)


def test_wheels_tell_the_way_and_the_turn_a_little_wrong():
    seen = Drive.simulated(2000, 0)
    step = np.diff(seen.states, axis=0)
    way, turn = seen.wheels[1:].T
    moved = np.hypot(step[:, 0], step[:, 1]) > 0
    np.testing.assert_array_equal(seen.wheels[0], 0.0)
    np.testing.assert_array_equal(way[~moved], 0.0)
    slip = way[moved] / np.hypot(step[moved, 0], step[moved, 1]) - 1.0
    # Four standard errors of a standard deviation estimated from so many.
    for error, sd in ((slip, SLIP), (turn - step[:, 2], SKID)):
        assert abs(error.std() / sd - 1.0) < 4.0 / np.sqrt(2.0 * len(error))


def test_rolling_follows_the_drive():
    """Rolled on from where it was, the robot is where it is: off by the sway and by the wheels."""
    seen = Drive.simulated(300, 0)
    z = np.repeat(seen.Z[:-1], 50, axis=0)
    rng, wheels = np.random.default_rng(0), seen.wheels[1:]
    found = np.concatenate([roll(z[50 * t : 50 * t + 50], rng, u) for t, u in enumerate(wheels)])
    means = found.reshape(299, 50, 4).mean(axis=1)
    gap = np.linalg.norm(means[:, :2] - seen.Z[1:, :2], axis=1)
    # A step is at most 0.4 m: five standard deviations of what slips (.05) and of the direction
    # (sway .05 and skid .03), and of the mean of 50 draws.
    assert gap.max() < 5.0 * SPEED * np.hypot(SLIP, np.hypot(0.05, SKID)) + 5.0 * 0.1 / np.sqrt(50)
    np.testing.assert_allclose(np.hypot(*found[:, 2:].T), 1.0)


def test_found_is_for_some_frames_in_a_row():
    error, way = np.full(20, 3.0), np.arange(20.0)
    assert np.isnan(story.found_after(way, error))
    error[4] = 0.1  # once, by chance
    error[7:] = 0.2
    assert story.found_after(way, error) == 7.0


def test_metres_in_the_rooms_that_look_the_same_are_told():
    for room in ROOMS:
        seen = Drive.simulated(200, 0, room)
        alike = seen.metres_alike
        assert (alike > 0.0) == (room in ("a", "f"))
        assert alike < seen.metres[-1]  # it has left the room
    assert story.metres_in_words(7.21, 4.4) == "7.2 (4.4)"
    assert story.metres_in_words(2.1, 4.4) == "2.1 (2.1)"
    assert story.metres_in_words(3.0, 0.0) == "3.0"
    assert story.metres_in_words(np.nan, 4.4) == "never (4.4)"


def errors(text):
    """Mean errors of the demo's table, by the first word of the row."""
    rows = [line for line in text.splitlines() if line.endswith(" %")]
    return {row.split()[0]: float(row.split()[-5]) for row in rows}


def without_torch():
    raise ImportError


def test_the_filter_beats_the_nearest_frames_on_a_small_story(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    monkeypatch.setattr(story, "LABELLED", 500)
    monkeypatch.setattr(story, "FRAME_SCALES", (0.25,))
    monkeypatch.setattr(story, "import_torch", without_torch)
    page = tmp_path / "robot.html"
    text = "\n".join(story.demo(tmp_path, 0, page))
    error = errors(text)
    assert "Where is the robot?" in page.read_text()
    assert "Metres driven" in text
    assert "It uses pixels" in text
    assert "learned features need torch" in text
    assert error["frames"] < error["nearest"] < error["always"]


@pytest.mark.torch
def test_with_torch_the_camera_is_chosen_and_told_of(monkeypatch):
    pytest.importorskip("torch")
    monkeypatch.setattr(story, "FRAME_SCALES", (0.25,))
    monkeypatch.setattr(story, "LEARNED", {"dim": 4, "epochs": 2, "rng": 0})
    labelled = Drive.simulated(120, 0)
    _, features, told = story.choose_filter(labelled)
    assert ("uses learned features" in told) == (features is not None)
    # Where pixels say nothing, features are taken, and the filter sees them.
    monkeypatch.setattr(story, "distance", lambda guess, truth: np.array([truth.X.shape[1]]))
    model, features, told = story.choose_filter(labelled)
    assert "uses learned features" in told
    assert "error 384.00 m with pixels, learned features 4.00 m" in told
    assert features is not None
    assert model.X_.shape == (120, 4)


@pytest.mark.slow
def test_the_story_is_true_whatever_the_seed(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    ratios = []
    for seed in range(5):
        error = errors("\n".join(story.demo(tmp_path, seed)))
        assert error["frames"] < error["nearest"] < error["always"]
        ratios.append(error["frames"] / error["nearest"])
    assert np.mean(ratios) < 0.8
