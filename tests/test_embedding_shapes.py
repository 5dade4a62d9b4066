"""Mixtures, pre-images, draws and exports against closed forms and laws."""

import sys
import types

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import check_grad
from scipy.stats import multivariate_normal

import kernelbayes as kb
from kernelbayes.embedding.gaussian import _loss

seeds = st.integers(0, 10_000)


# --- mixtures ---


@pytest.mark.parametrize("covariance", ["full", "diagonal"])
def test_gradient_of_the_mixture_distance(covariance):
    rng = np.random.default_rng(0)
    X, w = rng.normal(size=(20, 2)), rng.normal(0.05, 0.1, 20)
    size = 3 + 6 + 3 * (3 if covariance == "full" else 2)
    theta = 0.5 * rng.normal(size=size)
    arguments = (X, w, 3, covariance)
    error = check_grad(lambda t: _loss(t, *arguments)[0], lambda t: _loss(t, *arguments)[1], theta)
    assert error < 1e-6  # forward differences at 1e-8


@pytest.mark.parametrize("bandwidth", [0.7, (0.5, 1.5)])
def test_one_component_recovers_a_normal_distribution(bandwidth):
    mean, cov = np.array([1.0, -2.0]), np.array([[1.0, 0.4], [0.4, 0.5]])
    X = np.random.default_rng(0).multivariate_normal(mean, cov, size=1500)
    mu = kb.embed(X, kb.Gaussian(bandwidth))
    fit = mu.mixture(1, rng=0, starts=1)
    # Five standard errors of a mean and of a variance; the fit is about as efficient.
    np.testing.assert_allclose(fit.means[0], mean, atol=5 / np.sqrt(1500))
    np.testing.assert_allclose(fit.covariances[0], cov, atol=5 * np.sqrt(2 / 1500))
    # The distance is that of the closed form.
    closed = kb.GaussianEmbedding(fit.means[0], fit.covariances[0], mu.kernel)
    assert fit.distance == pytest.approx(float(kb.mmd(mu, closed)), abs=1e-6)
    assert fit.distance <= kb.mmd(mu, kb.GaussianEmbedding(mean, cov, mu.kernel)) + 1e-9


def test_mixture_density_and_draws_are_those_of_its_components():
    rng = np.random.default_rng(1)
    X = np.concatenate([rng.normal(-2, 0.5, (150, 2)), rng.normal(2, 1.0, (250, 2))])
    fit = kb.embed(X, kb.Gaussian(1.0)).mixture(2, rng=0)
    at = rng.normal(size=(5, 2))
    expected = sum(
        w * multivariate_normal(m, C).pdf(at)
        for w, m, C in zip(fit.weights, fit.means, fit.covariances, strict=True)
    )
    np.testing.assert_allclose(fit.density(at), expected, rtol=1e-9)
    assert fit.weights.sum() == pytest.approx(1.0)
    assert sorted(fit.weights) == pytest.approx([150 / 400, 250 / 400], abs=0.1)
    drawn = fit.sample(4000, rng=0)
    error = 4 * X.std() / np.sqrt(4000)
    np.testing.assert_allclose(drawn.mean(axis=0), fit.weights @ fit.means, atol=error)
    assert len(fit) == 2


def test_mixtures_of_a_batch_and_of_low_rank_kernels():
    rng = np.random.default_rng(2)
    X = rng.normal(size=(80, 1))
    weights = rng.dirichlet(np.ones(80), size=3)
    batch = kb.embed(X, kb.Gaussian(0.8), weights)
    fits = batch.mixture(1, rng=0)
    assert fits.means.shape == (3, 1, 1)
    assert fits.distance.shape == (3,)
    assert fits.density([0.0, 1.0]).shape == (3, 2)
    assert fits.sample(7, rng=0).shape == (3, 7, 1)
    for i, mu in enumerate(batch):  # one component has one optimum, whatever the start
        np.testing.assert_allclose(fits[i].means, mu.mixture(1, rng=5).means, atol=1e-3)
    low = kb.embed(X, kb.nystrom(kb.Gaussian(0.8), X, 80, rng=0), weights[0])
    np.testing.assert_allclose(low.mixture(1, rng=0).means, fits[0].means, atol=1e-3)
    with pytest.raises(TypeError, match="one mixture"):
        fits[0][0]


@pytest.mark.parametrize(
    ("ask", "error", "message"),
    [
        (lambda: kb.embed([0.0, 1.0], kb.Matern(1.0)).mixture(1), TypeError, "Gaussian kernel"),
        (lambda: kb.embed([0.0, 1.0], kb.Gaussian(1.0)).mixture(3), ValueError, "components"),
        (lambda: kb.embed([0.0], kb.Gaussian(1.0)).mixture(1, starts=0), ValueError, "starts"),
        (
            lambda: kb.embed([0.0], kb.Gaussian(1.0)).mixture(1, covariance="x"),
            ValueError,
            "covariance",
        ),
        (
            lambda: kb.embed([0.0, 1.0], kb.Gaussian(1.0)).mixture(1, rng=0).density([[0.0, 1.0]]),
            ValueError,
            "coordinates",
        ),
    ],
)
def test_mixtures_that_cannot_be(ask, error, message):
    with pytest.raises(error, match=message):
        ask()


def test_a_mixture_of_one_point_is_narrow_and_there():
    fit = kb.embed([[3.0, 4.0]], kb.Gaussian(1.0)).mixture(1, rng=0)
    np.testing.assert_allclose(fit.means, [[3.0, 4.0]], atol=1e-4)
    assert np.linalg.eigvalsh(fit.covariances[0]).max() < 1e-3
    assert fit.distance < 1e-3


# --- pre-images ---

X2 = np.random.default_rng(0).normal(size=(40, 2))
SMOOTH = [
    kb.Gaussian(0.7),
    kb.Gaussian([0.5, 2.0]),
    kb.Matern(1.0, nu=1.5),
    kb.Matern(1.0, nu=2.5),
    kb.RationalQuadratic(1.0, 2.0),
    kb.Periodic(1.0, 9.0),
    kb.Gaussian(1.0) + kb.Linear(),
    kb.Gaussian(1.0) * kb.Matern(2.0, nu=2.5),
    2.0 * kb.Gaussian(1.0),
    kb.Parts({0: kb.Gaussian(1.0), 1: kb.RationalQuadratic(1.0, 1.0)}),
    kb.nystrom(kb.Gaussian(1.5), X2, 30, rng=0),
    kb.fourier(kb.Gaussian(1.5), 2, 100, rng=0),
]


@pytest.mark.parametrize("kernel", SMOOTH, ids=lambda k: repr(k)[:40])
@settings(max_examples=5)
@given(st.tuples(st.floats(-3, 3), st.floats(-3, 3)))
def test_preimage_of_a_point_is_the_point(kernel, point):
    np.testing.assert_allclose(kb.embed([point], kernel).preimage(), point, atol=1e-9)


@pytest.mark.parametrize("kernel", SMOOTH, ids=lambda k: repr(k)[:40])
def test_batched_preimages_are_peaks_above_every_point(kernel):
    rng = np.random.default_rng(1)
    batch = kb.embed(X2, kernel, rng.dirichlet(np.ones(40), size=6))
    found = batch.preimage()
    assert found.shape == (6, 2)
    for mu, y in zip(batch, found, strict=True):
        height = lambda p, mu=mu: 2 * mu(p) - kernel.diag(p)  # noqa: E731
        top = height(y[None])[0]
        assert top >= height(X2).max()
        around = y + 1e-3 * rng.normal(size=(50, 2))
        assert top >= height(around).max() - 1e-9
        np.testing.assert_allclose(mu.preimage(), y, atol=1e-4)  # each alone finds the same


def test_preimage_of_inner_products_is_the_mean():
    batch = kb.embed(X2, kb.Linear(), np.random.default_rng(2).dirichlet(np.ones(40), size=3))
    np.testing.assert_allclose(batch.preimage(), batch.mean(), atol=1e-7)


def test_kernels_with_kinks_stop_at_the_best_point():
    mu = kb.embed(X2, kb.Laplace(1.0))
    assert (mu.preimage() == X2).all(axis=1).any()


# --- draws ---


def test_smoothed_draws_keep_mean_and_covariance():
    rng = np.random.default_rng(3)
    X = rng.multivariate_normal([1.0, 2.0], [[1.0, 0.8], [0.8, 1.0]], size=60)
    mu = kb.embed(X, kb.Gaussian(1.0), rng.dirichlet(np.ones(60)))
    drawn = mu.sample(20_000, rng=0, method="iid")
    assert len(np.unique(drawn[:, 0])) == 20_000  # not copies of the 60 points
    # Five standard errors of means and variances of order one.
    np.testing.assert_allclose(drawn.mean(axis=0), mu.mean(), atol=5 / np.sqrt(20_000))
    np.testing.assert_allclose(np.cov(drawn.T), mu.cov(), atol=5 * np.sqrt(2 / 20_000))
    copies = mu.sample(100, rng=0, method="iid", bandwidth=0)
    assert np.isin(copies[:, 0], X[:, 0]).all()
    wide = mu.sample(20_000, rng=0, method="iid", bandwidth=3.0)  # more than there is: it inflates
    np.testing.assert_allclose(wide.var(axis=0), 9.0, rtol=0.1)


@pytest.mark.parametrize("method", ["herding", "iid"])
def test_draws_of_a_batch(method):
    rng = np.random.default_rng(4)
    batch = kb.embed(X2, kb.Gaussian(1.0), rng.dirichlet(np.ones(40), size=3))
    drawn = batch.sample(5, rng=0, method=method)
    assert drawn.shape == (3, 5, 2)
    np.testing.assert_array_equal(drawn, batch.sample(5, rng=0, method=method))
    if method == "herding":
        np.testing.assert_array_equal(drawn[1], batch[1].sample(5))


def test_draws_of_categories_and_of_joint_points():
    words = kb.embed(["a", "b", "c"], kb.Delta(), [[0.5, 0.5, 0.0], [0.0, 0.0, 1.0]])
    drawn = words.sample(4, rng=0, method="iid")
    assert list(drawn[1]) == ["c"] * 4
    joint = kb.embed(
        {"u": [0.0, 1.0], "v": ["a", "b"]}, kb.Parts({"u": kb.Gaussian(1.0), "v": kb.Delta()})
    )
    assert set(joint.sample(6, rng=0, method="iid")["v"]) <= {"a", "b"}
    with pytest.raises(ValueError, match="does not smooth"):
        words.sample(3, bandwidth=1.0)


def test_mode_by_weight():
    batch = kb.embed(X2, kb.Gaussian(1.0), np.eye(40)[[3, 7]])
    np.testing.assert_array_equal(batch.mode(by="weight"), X2[[3, 7]])
    with pytest.raises(ValueError, match="by must be"):
        batch.mode(by="x")


def test_mode_by_weight_takes_the_weights_as_they_are():
    """KMCF16 section 4.2.4: argmax w_i, where the projection moves the top elsewhere.

    Two points at a distance of a tenth of a bandwidth have one feature: to the projection they
    share 0.9 - 0.5, less than the third point has.
    """
    w = np.array([0.9, -0.5, 0.6])
    mu = kb.embed([0.0, 0.1, 5.0], kb.Gaussian(1.0), w)
    assert mu.valid().weights.argmax() == 2
    assert mu.mode(by="weight") == 0.0


# --- exports ---


def test_frames_keep_names_and_weights():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"height": [1.0, 2.0], "age": [3.0, 4.0]})
    out = kb.embed(frame, kb.Gaussian(1.0), [0.25, 0.75]).to_frame()
    assert list(out.columns) == ["height", "age", "weight"]
    assert list(out["weight"]) == [0.25, 0.75]
    batch = kb.embed([[0.0, 1.0]], kb.Gaussian(1.0), [[1.0], [0.5]]).to_frame()
    assert list(batch.columns) == ["x0", "x1", "weight_0", "weight_1"]
    assert list(kb.embed(["a", "b"], kb.Delta()).to_frame().columns) == ["point", "weight"]
    joint = kb.embed(
        {"u": [0.0], "v": ["a"]}, kb.Parts({"u": kb.Gaussian(1.0), "v": kb.Delta()})
    ).to_frame()
    assert joint.shape == (1, 3)
    clash = pandas.DataFrame({"weight": [1.0, 2.0]})
    out = kb.embed(clash, kb.Gaussian(1.0), [0.25, 0.75]).to_frame()
    assert list(out.columns) == ["weight", "weight_2"]
    assert list(out["weight_2"]) == [0.25, 0.75]


def fake_arviz(monkeypatch, from_dict):
    """ArviZ is large; what counts here is what is handed to it, in both its interfaces."""
    module = types.ModuleType("arviz")
    module.from_dict = from_dict
    monkeypatch.setitem(sys.modules, "arviz", module)


@pytest.mark.parametrize("version", ["0.x", "1.x"])
def test_arviz_gets_draws_by_name(monkeypatch, version):
    if version == "0.x":
        fake_arviz(monkeypatch, lambda posterior=None, prior=None: {"posterior": posterior})
    else:
        fake_arviz(monkeypatch, lambda data, name=None: data)
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"a": np.arange(10.0), "b": np.arange(10.0) ** 2})
    mu = kb.embed(frame, kb.Gaussian(1.0))
    posterior = mu.to_arviz(n_draws=50, rng=0)["posterior"]
    assert {name: value.shape for name, value in posterior.items()} == {"a": (1, 50), "b": (1, 50)}
    np.testing.assert_array_equal(posterior["b"][0], mu.sample(50, rng=0, method="iid")[:, 1])
    batch = kb.embed(X2, kb.Gaussian(1.0), np.full((3, 40), 1 / 40))
    assert batch.to_arviz(n_draws=20, rng=0)["posterior"]["x1"].shape == (1, 20, 3)


def test_with_arviz_itself():
    arviz = pytest.importorskip("arviz")
    data = kb.embed(X2, kb.Gaussian(1.0)).to_arviz(n_draws=100, rng=0)
    assert dict(data.posterior.sizes) == {"chain": 1, "draw": 100}
    assert "x0" in arviz.summary(data).index


@pytest.mark.parametrize(("library", "ask"), [("pandas", "to_frame"), ("arviz", "to_arviz")])
def test_missing_libraries_name_the_extra(monkeypatch, library, ask):
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(ImportError, match=rf"kernelbayes\[{library}\]"):
        getattr(kb.embed([0.0], kb.Gaussian(1.0)), ask)()
