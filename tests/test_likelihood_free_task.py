"""Coordinates of data and parameters."""

import numpy as np
import pytest
from scipy import stats

from kernelbayes.likelihood_free.learn.adjust import Space
from kernelbayes.likelihood_free.learn.likelihood import read_data
from kernelbayes.likelihood_free.learn.task import Columns, Data
from kernelbayes.likelihood_free.prior import as_prior


def test_columns_survive_outliers():
    rng = np.random.default_rng(0)
    X = rng.normal(3.0, 2.0, size=(2000, 1))
    wild = X.copy()
    wild[0] = 1e12
    calm, upset = Columns.of(X), Columns.of(wild)
    np.testing.assert_allclose(upset.scale, calm.scale, rtol=0.01)
    assert not calm.heavy[0]
    cauchy = rng.standard_cauchy(size=(2000, 1))
    columns = Columns.of(cauchy)
    assert columns.heavy[0]
    assert np.abs(columns(cauchy)).max() < 20
    assert np.all(np.diff(columns(np.sort(cauchy, axis=0)), axis=0) >= 0)  # keeps the order
    # Near values as they are, far ones in order, and not far.
    np.testing.assert_array_equal(calm(X), (X - calm.centre) / calm.scale)
    far = calm(np.array([[1e2], [1e6], [1e12]]))[:, 0]
    assert np.all(np.diff(far) > 0)
    assert far[-1] < 50
    X[:2] = [[1e300], [-1e308]]  # simulations that exploded
    assert np.all(np.isfinite(Columns.of(X)(X)))
    assert np.all(np.isfinite(Columns.of(X[:3])(X)))


def test_constant_columns_keep_their_units():
    columns = Columns.of(np.full((30, 1), 7.0))
    np.testing.assert_array_equal(columns(np.array([[7.0], [8.0]])), [[0.0], [1.0]])
    rare = np.zeros((100, 1))
    rare[0] = 5.0  # most are the same: the standard deviation is what is left
    assert Columns.of(rare).scale[0] == pytest.approx(rare.std())


def test_data_sets_of_rows_have_no_order():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(20, 8, 2))
    data = Data.of(x, 0)
    np.testing.assert_allclose(data(x[:, ::-1]).X, data(x).X, atol=1e-10)
    assert data(x).X.shape == (20, 2 + 3 + 100)
    plain = Data.of(x[:, 0], 0)
    assert plain(x[:, 0]).X.shape == (20, 2)


PRIOR = as_prior([stats.norm(1, 2), stats.gamma(2.0), stats.uniform(0, 1), stats.poisson(3.0)])


def test_spaces_go_back_and_forth():
    theta = PRIOR.sample(200, 0)
    space = Space.of(theta, PRIOR)
    P = space.coordinates(theta)
    np.testing.assert_allclose(space.parameters(P), theta, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(P.mean(axis=0), 0.0, atol=1e-9)
    np.testing.assert_allclose(P.std(axis=0), 1.0)
    assert np.all(space.parameters(np.full((1, 4), -1e3))[:, 1] >= 0)


def test_volumes_are_determinants():
    prior = as_prior([stats.gamma(2.0), stats.norm(0, 3)])
    theta = prior.sample(50, 0)
    space, step = Space.of(theta, prior), 1e-6
    moved = [
        (space.coordinates(theta + step * e) - space.coordinates(theta - step * e)) / (2 * step)
        for e in np.eye(2)
    ]
    determinants = np.linalg.det(np.stack(moved, axis=1))
    np.testing.assert_allclose(space.log_volume(theta), np.log(np.abs(determinants)), atol=1e-3)


def test_skewed_columns_get_a_log_or_a_root():
    rng = np.random.default_rng(0)
    normal = rng.normal(size=(2000, 3))
    X = np.column_stack([normal[:, 0], np.exp(normal[:, 1]), normal[:, 2] ** 2])
    X[0, 2] = 0.0  # it has no log
    columns = Columns.of(X, symmetric=True)
    assert columns.logs.tolist() == [False, True, False]
    assert columns.roots.tolist() == [False, False, True]
    plain = Columns.of(X)
    assert not np.any(plain.logs | plain.roots)
    # The log of a lognormal column is standard normal, up to errors of quantiles.
    np.testing.assert_allclose(columns(X)[:, 1], normal[:, 1], atol=0.15, rtol=0.15)
    odd = columns(np.array([[0.0, -1.0, -1.0], [0.0, 1e300, 1e300]]))
    assert np.all(np.isfinite(odd))


def test_data_are_read_as_parameters_are_predicted_best():
    rng = np.random.default_rng(0)
    P = rng.normal(size=(400, 2))
    mixed = np.column_stack([P, P[:, 0] + P[:, 1], P[:, 0] - P[:, 1]])
    skewed = np.exp(2.0 * mixed + 0.1 * rng.normal(size=(400, 4)))
    assert str(read_data(skewed, P, rng)) == "logs of 4 of 4 columns"
    plain = mixed + 0.1 * rng.normal(size=(400, 4))
    assert str(read_data(plain, P, rng)) == ""


def test_iid_rows_laid_out_flat_are_found():
    """A scale that only the set of rows shows; columns of different parameters are no rows."""
    rng = np.random.default_rng(0)
    P = rng.normal(size=(600, 2))
    noise = rng.normal(size=(600, 6, 2)) * np.exp(P[:, None, [1]])
    x = (P[:, None, [0, 0]] + noise).reshape(600, 12)
    data = read_data(x, P, rng)
    assert data.blocks in (6, 12)  # both columns of a row are alike here
    assert data(x).rows.shape == (600, data.blocks, 12 // data.blocks)
    assert f"{data.blocks} iid rows" in str(data)
    means = rng.normal(size=(600, 4))
    assert read_data(means + rng.normal(size=(600, 4)), means, rng).blocks == 0
