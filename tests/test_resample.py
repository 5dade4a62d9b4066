"""Resampling: the rule, the bound on expectations, copies, the comparison with particle filters."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import kernelbayes as kb
from kernelbayes.gram import Gram

METHODS = ["herding", "exchange", "line-search", "fully-corrective"]


def uneven(n, seed, signed=True):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    weights = np.exp(-3.0 * np.sum((X - 0.5) ** 2, axis=1))
    weights /= weights.sum()
    if signed:
        weights += rng.normal(scale=0.02 * weights.max(), size=n)
    return kb.embed(X, kb.Gaussian(0.7), weights)


@given(st.integers(0, 10_000), st.sampled_from([*METHODS, "multinomial"]))
def test_expectations_move_by_at_most_the_norm_times_the_error(seed, method):
    mu = uneven(60, seed)
    new, resampled, error, indices = kb.resample(mu, threshold=np.inf, method=method, rng=seed)
    assert resampled
    np.testing.assert_array_equal(new.points, mu.points[indices])
    np.testing.assert_allclose(new.weights, 1 / 60)
    assert error == pytest.approx(float(kb.mmd(mu.normalized(), new)), abs=1e-6)
    rng = np.random.default_rng(seed)
    f = kb.embed(rng.normal(size=(5, 2)), mu.kernel, rng.normal(size=5))
    moved = abs(float(new.expect(f) - mu.normalized().expect(f)))
    assert moved <= float(f.norm()) * error + 1e-9  # KMCF16 section 2.7


def test_the_rule_of_the_effective_sample_size():
    mu = uneven(80, 0, signed=False)
    assert float(mu.ess) < 40
    assert kb.resample(mu).resampled
    kept = kb.resample(mu, threshold=float(mu.ess) / 80)
    assert kept.embedding is mu
    assert not kept.resampled
    assert kept.indices is None
    assert kept.error == 0.0
    again = kb.resample(kb.resample(mu).embedding)
    assert not again.resampled


def test_more_points_by_copies():
    mu = uneven(90, 1)
    few = kb.compress(mu, 15)
    new = kb.resample(mu, 90, picks=15, threshold=np.inf)
    assert len(new.embedding) == 90
    assert new.error == pytest.approx(few.error, abs=1e-9)  # the same herd, six times
    assert len(np.unique(new.indices)) == few.distinct
    other = kb.resample(mu, 40, picks=15, threshold=np.inf)
    assert len(other.embedding) == 40
    assert len(kb.resample(mu, 7, picks=100, threshold=np.inf).indices) == 7


def test_resampling_preserves_the_embedding_where_truncation_does_not():
    # KMCF16 section 3.5: negative weights hold a balance that truncation breaks.
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.0, 1.0, size=100)
    target = kb.GaussianEmbedding([0.0], [[0.01]], kb.Gaussian(0.1))
    weights = np.linalg.solve(target.kernel(X) + 1e-8 * np.eye(100), target(X))
    mu = kb.embed(X, target.kernel, weights / weights.sum())
    herd = kb.resample(mu, threshold=np.inf).error
    drawn = [kb.resample(mu, threshold=np.inf, method="multinomial", rng=s).error for s in range(9)]
    # Nine draws by their root mean square: a single one may be lucky.
    assert herd < 0.2 * np.sqrt(np.mean(np.square(drawn)))


def test_rows_made_once_serve_many_embeddings(monkeypatch):
    mu = uneven(50, 2)
    rows = Gram.by_rows(mu.kernel, mu.points)
    expected = kb.resample(mu, threshold=np.inf)
    monkeypatch.setattr(kb.Gaussian, "__call__", lambda *_: pytest.fail("kernel was evaluated"))
    for given_rows in (rows, rows.G):
        found = kb.resample(mu, threshold=np.inf, rows=given_rows)
        np.testing.assert_array_equal(found.indices, expected.indices)


def test_finite_features_and_repeated_draws():
    mu = uneven(50, 3)
    low = kb.embed(mu.points, kb.nystrom(mu.kernel, mu.points, 50, rng=0), mu.weights)
    exact, finite = (kb.resample(m, 20, threshold=np.inf) for m in (mu, low))
    assert finite.error == pytest.approx(exact.error, abs=1e-4)
    first, second = (
        kb.resample(mu, threshold=np.inf, method="multinomial", rng=5).indices for _ in range(2)
    )
    np.testing.assert_array_equal(first, second)


def test_joint_samples_keep_their_parts_and_names():
    kernel = kb.Parts({"x": kb.Gaussian(1.0), "z": kb.Delta()})
    points = {"x": np.arange(6.0), "z": ["a", "b"] * 3}
    mu = kb.embed(points, kernel, [0.9, 0.02, 0.02, 0.02, 0.02, 0.02])
    new = kb.resample(mu).embedding
    assert new.names == ("x", "z")
    assert len(new) == len(new.points["z"]) == 6


def test_bad_input():
    mu = uneven(10, 0)
    with pytest.raises(TypeError, match="one Embedding"):
        kb.resample(kb.GaussianEmbedding([0.0], [[1.0]], kb.Gaussian(1.0)))
    with pytest.raises(TypeError, match="one Embedding"):
        kb.resample(kb.embed([0.0, 1.0], kb.Gaussian(1.0), np.eye(2)))
    with pytest.raises(ValueError, match="threshold"):
        kb.resample(mu, threshold=np.nan)
    with pytest.raises(ValueError, match="at least 1"):
        kb.resample(mu, 0)
    with pytest.raises(ValueError, match="at least 1"):
        kb.resample(mu, picks=0)
    with pytest.raises(ValueError, match="multinomial"):
        kb.resample(mu, threshold=np.inf, method="bootstrap")
    none = kb.embed([0.0, 1.0], kb.Gaussian(1.0), [-1.0, -0.5])
    with pytest.warns(kb.NumericalWarning):
        kb.resample(none, threshold=np.inf, method="multinomial", rng=0)
