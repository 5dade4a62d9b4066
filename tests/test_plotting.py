"""Pictures: what is drawn where, and what happens without matplotlib."""

import sys

import matplotlib
import numpy as np
import pytest

import kernelbayes as kb
from kernelbayes.plot import canvas
from kernelbayes.plot.canvas import draw_line

matplotlib.use("Agg")
import matplotlib.pyplot as plt

KERNEL = kb.Gaussian(0.7)


@pytest.fixture
def pair():
    rng = np.random.default_rng(5)
    return kb.embed(rng.normal(size=60), KERNEL), kb.embed(rng.normal(1.0, 2.0, size=40), KERNEL)


@pytest.fixture(autouse=True)
def close_figures():
    yield
    plt.close("all")


# --- embedding.plot() ---


def plane(seed=0, n=80, d=2):
    return kb.embed(np.random.default_rng(seed).normal(size=(n, d)), KERNEL)


def test_one_coordinate_is_a_density_with_its_interval(pair):
    mu = pair[0]
    ax = mu.plot(level=0.8, label="mu")
    x, y = ax.get_lines()[0].get_data()
    np.testing.assert_allclose(y, mu.density(x), rtol=1e-6)
    assert ax.get_lines()[1].get_xdata()[0] == pytest.approx(float(mu.mean()[0]))
    shaded = ax.collections[0].get_paths()[0].vertices[:, 0]
    step = x[1] - x[0]
    assert [shaded.min(), shaded.max()] == pytest.approx(list(mu.interval(0.8)[0]), abs=step)
    assert [t.get_text() for t in ax.get_legend().get_texts()] == ["mu", "80 % interval", "mean"]


def test_two_coordinates_are_points_and_contours():
    figure, ax = plt.subplots()
    mu = plane()
    assert mu.plot(ax=ax) is ax
    scatter, *_ = ax.collections
    assert len(scatter.get_offsets()) == 80
    assert plt.get_fignums() == [figure.number]
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("x0", "x1")


def test_contours_hold_the_mass_they_say():
    mu = plane(n=3000)
    contours = [c for c in mu.plot().collections if hasattr(c, "levels")]
    low = contours[0].levels[0]
    density = mu.density(mu.points) * 2.0 * np.pi
    inside = np.mean(density / density.max() >= low / contours[0].zmax)
    assert inside == pytest.approx(0.9, abs=0.05)  # a density of 3000 points, and its grid


def test_more_coordinates_are_a_corner():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(np.random.default_rng(0).normal(size=(50, 3)), columns=["a", "b", "c"])
    axes = kb.embed(frame, KERNEL).plot()
    assert axes.shape == (3, 3)
    assert not axes[0, 2].axison
    assert axes[2, 0].get_xlabel() == "a"
    assert axes[2, 0].get_ylabel() == "c"
    with pytest.raises(ValueError, match="several axes"):
        kb.embed(frame, KERNEL).plot(ax=axes[0, 0])


@pytest.mark.parametrize("m", [3, 9])
def test_a_small_batch_is_curves_a_large_one_is_a_band(m):
    rng = np.random.default_rng(0)
    batch = kb.embed(rng.normal(size=40), KERNEL, rng.dirichlet(np.ones(40), size=m))
    ax = batch.plot()
    lines = ax.get_lines()
    if m == 3:
        assert len(lines) == 3
        x, y = lines[2].get_data()
        np.testing.assert_allclose(y, batch[2].density(x), rtol=1e-6)
    else:
        np.testing.assert_allclose(lines[0].get_ydata(), batch.quantile([0.5])[:, 0, 0])
        edges = ax.collections[0].get_paths()[0].vertices[:, 1]
        assert edges.max() == pytest.approx(batch.interval(0.9)[:, 0, 1].max())
    vectors = kb.embed(rng.normal(size=(40, 2)), KERNEL, rng.dirichlet(np.ones(40), size=m))
    assert vectors.plot().shape == (2,)


def test_pictures_of_matrices_are_refused_and_matplotlib_is_named(pair, monkeypatch):
    with pytest.raises(TypeError, match="R\\^d"):
        kb.embed(np.ones((3, 2, 2)), kb.Trace()).plot()
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(ImportError, match=r"pip install 'kernelbayes\[plot\]'"):
        pair[0].plot()


# --- angles and seasons ---------------------------------------------------------------------------

DAY = kb.Periodic(1.0, period=24.0)
NIGHT = np.concatenate([np.linspace(22.0, 24.0, 20, endpoint=False), np.linspace(0.0, 2.0, 21)])


def off(hours):
    """Hours from midnight, either way."""
    return (hours + 12.0) % 24.0 - 12.0


def marks(axis):
    labels = [label.get_text() for label in axis.get_ticklabels()]
    return dict(zip(axis.get_majorticklocs(), labels, strict=True))


def test_an_angle_is_one_hill_around_its_mean():
    """Hours around midnight, as if the clock began at noon: the same curve, elsewhere."""
    night = kb.embed(NIGHT, DAY)
    noon = kb.embed((NIGHT + 12.0) % 24.0, kb.Gaussian(1.0))
    (x, y), (at, right) = (mu.plot().get_lines()[0].get_data() for mu in (night, noon))
    np.testing.assert_allclose(y, right, atol=1e-9)
    np.testing.assert_allclose(
        (x + 12.0 - at) % 24.0 % 24.0, (x[0] + 12.0 - at[0]) % 24.0, atol=1e-9
    )
    ax = night.plot()
    mean = ax.get_lines()[1].get_xdata()[0]
    assert off(mean - night.mean()[0]) == pytest.approx(0.0, abs=1e-9)
    ends = ax.collections[0].get_paths()[0].vertices[:, 0]
    assert [ends.min(), ends.max()] == pytest.approx([mean - 1.8, mean + 1.8], abs=0.2)
    for place, label in marks(ax.xaxis).items():
        assert place % 24.0 == pytest.approx(float(label))


def test_angles_in_batches_planes_and_corners():
    rng = np.random.default_rng(0)
    few = kb.embed(NIGHT, DAY, rng.dirichlet(np.ones(41), size=3)).plot()
    assert all(np.ptp(line.get_xdata()) < 12.0 for line in few.get_lines())
    many = kb.embed(NIGHT, DAY, rng.dirichlet(np.ones(41), size=9))
    ax = many.plot()
    assert ax.get_ylim() == (0.0, 24.0)
    drawn = np.array([line.get_ydata() for line in ax.get_lines()])
    np.testing.assert_allclose(off(drawn - many.mean()[:, 0]), 0.0, atol=1e-9)
    both = kb.Parts([(0, DAY), (slice(1, 3), kb.Gaussian(1.0))])
    points = np.column_stack([NIGHT, rng.normal(size=(41, 2))])
    corner = kb.embed(points, both).plot()
    assert np.ptp(corner[1, 0].collections[0].get_offsets()[:, 0]) < 12.0


def test_a_line_that_wraps_goes_on_at_the_other_end():
    ax = plt.subplots()[1]
    values = np.array([22.0, 23.0, 0.0, 1.0, 2.0])
    draw_line(ax, np.arange(5.0), values, 24.0, label="hour")
    first, second = (line.get_ydata() for line in ax.get_lines())
    np.testing.assert_allclose([first, second], [[22, 23, 24, 25, 26], [-2, -1, 0, 1, 2]])
    assert len(ax.get_legend_handles_labels()[1]) == 1


@pytest.mark.parametrize(
    ("ends", "expected"), [([88.0, 92.0], [88.0, 92.0]), ([448.0, 452.0], [88.0, 92.0])]
)
def test_an_arc_is_drawn_beside_its_mean_also_if_it_does_not_contain_it(ends, expected):
    around = canvas.around(np.zeros((1, 1)), np.array([81.0]), np.array([ends]), (360.0,))[2]
    np.testing.assert_allclose(around, [expected])
    line, band = canvas.unrolled(np.full(2, 81.0), np.tile(ends, (2, 1)), 360.0)
    np.testing.assert_allclose(band, [expected] * 2)
    np.testing.assert_allclose(line, 81.0)
