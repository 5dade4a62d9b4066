"""The pendulum's film: its physics, its picture, its times, and the bound on what can be known."""

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import numpy as np
import pytest

FOLDER = Path(__file__).parents[1] / "experiments" / "pendulum"


@pytest.fixture(scope="module")
def film():
    spec = spec_from_file_location("pendulum_films", FOLDER / "films.py")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_energy_is_kept_without_shaking(film, monkeypatch):
    monkeypatch.setattr(film, "SHAKE", 0.0)
    rng = np.random.default_rng(0)
    start = rng.uniform(-3.0, 3.0, size=50)
    angle, speed = start, np.zeros(50)
    for _ in range(100):
        angle, speed = film.move(angle, speed, rng)
    # The energy of symplectic Euler is off by a step of 0.01 s times its rate: below half of
    # g h |speed sin(angle)|, at most 9.81 * 0.01 * 6.3 / 2.
    energy, before = (
        0.5 * v**2 - film.GRAVITY * np.cos(a) for a, v in ((angle, speed), (start, 0.0))
    )
    assert np.abs(energy - before).max() < 0.35


def test_a_clean_frame_has_its_disc_at_the_angle(film):
    angles = np.linspace(-3.0, 3.0, 13)[None]
    frames = film.film(angles, np.ones_like(angles), np.random.default_rng(0))[0]
    y, x = np.mgrid[: film.SIDE, : film.SIDE] - (film.SIDE - 1) / 2.0
    mass = frames.sum(axis=(1, 2))
    middle = np.stack([(frames * x).sum(axis=(1, 2)), (frames * y).sum(axis=(1, 2))], axis=-1)
    # The disc is smooth over one pixel: its centre of mass is right to a tenth of one.
    np.testing.assert_allclose(
        middle / mass[:, None], film.ROD * film.on_circle(angles[0]), atol=0.1
    )


def test_times_gaps_and_pieces_agree(film):
    frames, angles, share, times = film.simulate(3, np.random.default_rng(0))
    assert frames.shape == (3, film.SEEN, film.SIDE, film.SIDE)
    assert angles.shape == share.shape == times.shape == (3, film.SEEN)
    np.testing.assert_array_equal(np.cumsum(film.gaps(times), axis=1) + times[:, :1] - 1, times)
    X, Z = film.pieces(angles[..., None], angles, times)
    assert sum(map(len, X)) == angles.size
    assert len(Z) == 3 + np.sum(film.gaps(times) > 1)
    windows = film.in_windows(angles[..., None], times, share < 0.0)
    np.testing.assert_array_equal(windows[:, -1, 0], angles.ravel())
    np.testing.assert_array_equal(windows[1, -2], windows[0, -1])


def test_who_is_told_all_angles_knows_them(film):
    rng = np.random.default_rng(0)
    _, angles, share, times = film.simulate(4, rng)
    found = film.limit(angles, np.ones_like(share), times, rng)
    # Readings have an error of READ, before and after the particles' own: mean squared errors of
    # a few times its square.
    assert np.mean((found - film.on_circle(angles)) ** 2) < 4.0 * film.READ**2
