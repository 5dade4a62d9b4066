"""The images of the experiments with sprites and a maze, and the recurrent network beside them."""

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "experiments" / "statespace"))

import maze
import recurrent
import sprites


def test_a_heart_is_symmetric_moves_with_its_position_and_stays_inside():
    first, last = 16, 47  # of the 32 positions
    heart = sprites.heart(32, 32)
    assert set(np.unique(heart)) == {0.0, 1.0}
    np.testing.assert_array_equal(heart[:, 1:], heart[:, 1:][:, ::-1])  # about column 32
    np.testing.assert_array_equal(sprites.heart(30, 35), np.roll(heart, (-2, 3), axis=(0, 1)))
    for row in (first, last):
        for column in (first, last):
            assert sprites.heart(row, column).sum() == heart.sum()
    rows, columns = np.nonzero(heart)
    assert abs(columns.mean() - 32.0) < 0.5
    assert abs(rows.mean() - 32.0) < 1.5


def test_positions_are_the_nearest_of_a_grid():
    grid = np.linspace(-sprites.REACH, sprites.REACH, sprites.POSITIONS)
    z = np.random.default_rng(0).uniform(-2.5, 2.5, size=(50, 2))
    expected = np.abs(z[:, :, None] - grid).argmin(axis=2)
    np.testing.assert_array_equal(sprites.positions(z), expected)


def test_images_show_the_state_up_to_noise():
    rng = np.random.default_rng(1)
    sequence = sprites.simulate(40, rng)
    assert sequence.X.shape == (40, 64, 64)
    # The centre of the bright pixels, less that of a heart in the middle, is the position; a pixel
    # is dark or bright by .5, five standard deviations of its noise.
    bright = sequence.X > 0.5
    rows, columns = np.mgrid[:64, :64]
    centre = np.array([[columns[b].mean(), rows[b].mean()] for b in bright])
    middle = sprites.heart(32, 32) > 0.5
    offset = np.array([columns[middle].mean(), rows[middle].mean()]) - 32.0
    seen = (centre - offset - 16.0) / 31.0 * 4.0 - 2.0
    # Half a step of the grid and five standard deviations of the noise of position.
    assert np.abs(seen - sequence.Z).max() < 0.5 * 4.0 / 31.0 + 5.0 * sprites.SEEN + 0.02


def test_views_of_the_maze_turn_with_the_heading_and_tell_headings_apart():
    turn = maze.VIEW / maze.COLUMNS  # one column
    headings = np.linspace(0.0, 2.0 * np.pi, 60, endpoint=False)
    here, turned = maze.views(headings), maze.views(headings + 2.0 * np.pi)
    assert here.shape == (60, 36, 48, 3)
    np.testing.assert_allclose(here, turned, atol=1e-9)
    middle = 18  # at the height of the eye every column shows its wall, whatever the heading
    moved = maze.views(headings + turn)
    np.testing.assert_allclose(here[:, middle, :-1], moved[:, middle, 1:], atol=1e-9)
    flat = here.reshape(60, -1)
    apart = np.sum((flat[:, None] - flat) ** 2, axis=2) + 1e9 * np.eye(60)
    assert apart.min() > 1.0
    sequence = maze.simulate(20, np.random.default_rng(0))
    assert sequence.X.shape == (20, 36, 48, 3)
    np.testing.assert_allclose(np.sum(sequence.Z**2, axis=1), 1.0, rtol=1e-12)


def test_the_limit_of_the_maze_is_the_steady_state_of_the_kalman_filter():
    rng = np.random.default_rng(0)
    maze.simulate(1, rng)
    truth = maze.on_circle(maze.headings(20000, rng)[0])
    error = np.mean(np.sum((maze.limit(1, 0, 20000) - truth) ** 2, axis=1))
    # Q = R = .04 leave P = (sqrt(Q^2 + 4 Q R) - Q) / 2, and 1 - exp(-P) of the circle. Its errors
    # are squares of Gaussians (variance 2 P^2) that forget within three steps: five standard
    # errors are 5 sqrt(2 * 3 / 20000) of it.
    P = 0.02 * (np.sqrt(5.0) - 1.0)
    assert error == pytest.approx(1.0 - np.exp(-P), rel=5.0 * np.sqrt(6.0 / 20000))


@pytest.mark.torch
def test_windows_end_at_their_step():
    torch = pytest.importorskip("torch")
    features = torch.arange(6.0)[:, None]
    found = recurrent.windows(features, 3)[:, :, 0]
    expected = [[0, 0, 0], [0, 0, 1], [0, 1, 2], [1, 2, 3], [2, 3, 4], [3, 4, 5]]
    np.testing.assert_array_equal(found.numpy(), expected)


@pytest.mark.torch
def test_the_recurrent_network_learns_what_needs_memory():
    pytest.importorskip("torch")
    rng = np.random.default_rng(2)
    x = rng.normal(size=(500, 2))
    z = x[:, :1] + np.concatenate([x[:1, 1:], x[:-1, 1:]])  # the second column, one step later
    estimate = recurrent.lstm(x[:400], z[:400], x[400:], epochs=40)
    assert estimate.shape == (100, 1)
    # Without memory half of the variance is left.
    assert np.mean((estimate - z[400:]) ** 2) < 0.5 * np.var(z[400:])
    again = recurrent.lstm(x[:400], z[:400], x[400:], epochs=40)
    np.testing.assert_array_equal(estimate, again)
