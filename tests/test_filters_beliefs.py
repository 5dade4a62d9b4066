"""Beliefs as frames and pictures: coordinates, categories, named parts."""

import matplotlib
import numpy as np
import pytest

import kernelbayes as kb

matplotlib.use("Agg")
import matplotlib.pyplot as plt

pd = pytest.importorskip("pandas")

ROOMS = np.array(["hall", "attic", "cellar"])
INFO = ["mass", "support", "ess", "observed", "fallback", "rescued", "reset", "prior_share", "left"]


def visit(rng, length):
    """Numbers of rooms that change now and then, seen through noise."""
    z = np.zeros(length, dtype=int)
    for t in range(1, length):
        z[t] = z[t - 1] if rng.uniform() < 0.85 else rng.integers(3)
    return z, z + 0.6 * rng.normal(size=length)


RNG = np.random.default_rng(0)
Z, X = visit(RNG, 150)
TRUTH, NEW = visit(RNG, 25)
RIDGES = {"prior_ridge": 1e-4, "transition_ridge": 1e-4, "ridge": 1e-2}


def learned(Z, kernel_z=None):
    return kb.KernelBayesFilter(kb.Gaussian(0.7), kernel_z, rng=0, **RIDGES).fit(X, Z)


@pytest.fixture(autouse=True)
def close_figures():
    yield
    plt.close("all")


@pytest.fixture(scope="module")
def rooms():
    return learned(ROOMS[Z]).filter(NEW)


# --- frames --------------------------------------------------------------------------------------


def test_a_frame_of_categories_has_their_probabilities(rooms):
    frame = rooms.to_frame()
    assert list(frame.columns) == ["z0", "z0_attic", "z0_cellar", "z0_hall", *INFO]
    P = frame[["z0_attic", "z0_cellar", "z0_hall"]].to_numpy()
    assert (P >= 0.0).all()
    np.testing.assert_allclose(P.sum(axis=1), 1.0)
    for j, room in enumerate(["attic", "cellar", "hall"]):
        np.testing.assert_allclose(P[:, j], rooms.prob(lambda z, room=room: z == room))
    assert frame["z0"].tolist() == [["attic", "cellar", "hall"][i] for i in P.argmax(axis=1)]
    assert (frame["z0"] == ROOMS[TRUTH]).mean() > 0.6


@pytest.mark.parametrize(
    "states",
    [list(ROOMS[Z]), ROOMS[Z].astype(object), ROOMS[Z][:, None], pd.Series(ROOMS[Z])],
    ids=["list", "objects", "column", "series"],
)
def test_however_categories_are_given(rooms, states):
    found = learned(states).filter(NEW).to_frame()
    pd.testing.assert_frame_equal(found, rooms.to_frame(), check_dtype=False)


def test_numbers_under_the_delta_kernel_are_categories(rooms):
    frame = learned(Z, kb.Delta()).filter(NEW).to_frame()
    expected = rooms.to_frame()
    assert list(frame.columns[:4]) == ["z0", "z0_0", "z0_1", "z0_2"]
    np.testing.assert_allclose(frame["z0_0"], expected["z0_hall"], atol=1e-9)
    assert ROOMS[frame["z0"].to_numpy(dtype=int)].tolist() == expected["z0"].tolist()


def test_pairs_of_categories(rooms):
    pairs = np.column_stack([Z, Z])
    frame, expected = learned(pairs, kb.Delta()).filter(NEW).to_frame(), rooms.to_frame()
    np.testing.assert_allclose(frame["z0_(0, 0)"], expected["z0_hall"], atol=1e-9)
    numbers = [list(ROOMS).index(room) for room in expected["z0"]]
    assert frame["z0"].tolist() == [(number, number) for number in numbers]


def test_names_of_categories_are_kept():
    frame = learned(pd.DataFrame({"room": ROOMS[Z]})).filter(NEW).to_frame()
    assert list(frame.columns[:2]) == ["room", "room_attic"]


PARTS = kb.Parts({"room": kb.Delta(), "where": kb.Gaussian(1.0), ("a", "b"): kb.Gaussian(1.0)})


def mixed():
    return {"room": ROOMS[Z], "where": X, "a": X, "b": -X}


def test_named_parts_are_taken_apart():
    beliefs = learned(mixed(), PARTS).filter(NEW)
    frame = beliefs.to_frame(0.8)
    numbers = [f"{name}{end}" for name in ("where", "a", "b") for end in ("", "_low", "_high")]
    rooms = ["room", "room_attic", "room_cellar", "room_hall"]
    assert list(frame.columns) == [*rooms, *numbers, *INFO]
    np.testing.assert_allclose(frame["where"], beliefs.weights @ X)
    np.testing.assert_allclose(frame["b"], -frame["a"])
    assert (frame["where_low"] < frame["where_high"]).all()
    np.testing.assert_allclose(frame[rooms[1:]].sum(axis=1), 1.0)


# --- pictures ------------------------------------------------------------------------------------


def test_categories_are_shades_over_time(rooms):
    ax = rooms.plot(truth=ROOMS[TRUTH])
    (image,) = ax.images
    expected = rooms.to_frame()[["z0_attic", "z0_cellar", "z0_hall"]].to_numpy().T
    np.testing.assert_allclose(image.get_array(), expected)
    assert [tick.get_text() for tick in ax.get_yticklabels()] == ["attic", "cellar", "hall"]
    (dots,) = ax.collections
    assert dots.get_offsets()[:, 1].tolist() == [[2, 0, 1][z] for z in TRUTH]
    own = plt.figure().subplots()
    assert rooms.plot(ax=own, kind="series") is own


def test_a_category_never_seen_has_no_row(rooms):
    ax = rooms.plot(truth=["garden"] * len(NEW))
    assert np.ma.masked_invalid(ax.collections[0].get_offsets()[:, 1]).count() == 0


def test_parts_have_panels():
    beliefs = learned(mixed(), PARTS).filter(NEW)
    truth = {"room": ROOMS[TRUTH], "where": NEW, "a": NEW, "b": -NEW}
    axes = beliefs.plot(truth=truth)
    assert [ax.get_ylabel() for ax in axes] == ["room", "where", "a", "b"]
    assert len(axes[0].images) == 1
    np.testing.assert_allclose(axes[3].get_lines()[1].get_ydata(), -NEW)
    with pytest.raises(ValueError, match="do not pass ax"):
        beliefs.plot(ax=axes[0])


def test_series_and_tracks_of_vectors():
    two = learned(np.column_stack([X, -X])).filter(NEW)
    assert two.plot(truth=np.column_stack([NEW, -NEW])).get_xlabel() == "z0"
    first, second = two.plot(kind="series")
    assert (first.get_ylabel(), second.get_ylabel()) == ("z0", "z1")
    one = learned(X).filter(NEW)
    mean, truth = one.plot(truth=NEW).get_lines()
    np.testing.assert_allclose(mean.get_ydata(), one.mean()[:, 0])
    np.testing.assert_allclose(truth.get_ydata(), NEW)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"kind": "track"}, "track needs"),
        ({"kind": "film"}, "kind must be"),
        ({"truth": ["hall"]}, "25 rows"),
    ],
)
def test_bad_pictures_are_named(rooms, options, words):
    with pytest.raises(ValueError, match=words):
        rooms.plot(**options)


def test_a_state_of_three_coordinates_is_two_tracks():
    three = learned(np.column_stack([X, -X, X**2])).filter(NEW)
    known = np.column_stack([NEW, -NEW, NEW**2])
    axes = three.plot(truth=known)
    assert [(ax.get_xlabel(), ax.get_ylabel()) for ax in axes] == [("z0", "z1"), ("z0", "z2")]
    for ax, j in zip(axes, (1, 2), strict=True):
        lines = {line.get_label(): line for line in ax.get_lines()}
        drawn = lines["mean, one standard deviation"].get_xydata()
        np.testing.assert_allclose(drawn, three.mean()[:, [0, j]])
        np.testing.assert_allclose(lines["truth"].get_xydata(), known[:, [0, j]])
    again = three.plot(ax=axes, kind="track")
    assert list(again) == list(axes)
    with pytest.raises(ValueError, match="2 axes"):
        three.plot(ax=axes[0])
    assert three.plot(kind="series").shape == (3,)


def test_an_angle_over_time_wraps_at_the_edge():
    t = np.arange(120)
    angle = 0.3 * t % (2.0 * np.pi)
    seen = np.column_stack([np.cos(angle), np.sin(angle)])
    ridges = {"prior_ridge": 0.01, "transition_ridge": 0.01, "ridge": 0.01, "rng": 0}
    model = kb.KernelBayesFilter(kb.Gaussian(0.5), kb.Periodic(0.5), **ridges).fit(seen, angle)
    beliefs = model.filter(seen[:60])
    ax = beliefs.plot(truth=angle[:60])
    assert ax.get_ylim() == (0.0, pytest.approx(2.0 * np.pi))
    for line in ax.get_lines():  # each copy is without jumps
        assert np.abs(np.diff(line.get_ydata())).max() < np.pi
    labels = ax.get_legend_handles_labels()[1]
    assert sorted(labels) == ["90 % interval", "mean", "truth"]
