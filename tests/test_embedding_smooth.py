"""The smoothed sample: moments, densities, discrete coordinates, choice of the bandwidth."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from kernelbayes.embedding.smooth import (
    SMOOTHING,
    Smoothed,
    Smoothing,
    best_smoothing,
    covariance_factor,
    heaviest,
    keep_covariance,
    local_shares,
    log_sum,
    silverman,
)

FREE = np.zeros(1, dtype=bool)


def equal(n):
    return np.full(n, 1.0 / n)


@given(st.floats(0.02, 0.95), st.integers(0, 5))
def test_smoothing_keeps_mean_and_covariance(h, seed):
    rng = np.random.default_rng(seed)
    points, weights = (
        rng.normal(size=(50, 2)) @ [[1.0, 0.5], [0.0, 2.0]],
        rng.dirichlet(np.ones(50)),
    )
    smooth = Smoothed(points, weights, h, np.zeros(2, dtype=bool))
    drawn = smooth.draw(4000, rng)
    mean, cov = weights @ points, np.cov(points.T, aweights=weights, bias=True)
    sd = np.sqrt(np.diag(cov))
    assert np.all(np.abs(drawn.mean(axis=0) - mean) < 5 * sd / np.sqrt(4000))
    # The fourth moment of weighted points is at most (max |z|)^2 times the second.
    wild = np.max(np.abs(smooth.whitened)) ** 2
    assert np.all(np.abs(np.cov(drawn.T) - cov) < 5 * np.outer(sd, sd) * np.sqrt(wild / 4000))


@pytest.mark.parametrize("how", [Smoothing(0.1), Smoothing(0.5), Smoothing(0.3, neighbours=5)])
def test_smoothed_densities_integrate_to_one(how):
    rng = np.random.default_rng(0)
    points, weights = rng.normal(size=(40, 1)), rng.dirichlet(np.ones(40))
    smooth = Smoothed.by(points, weights, how, FREE)
    grid = np.linspace(-8, 8, 20001)
    density = np.exp(smooth.log_density(grid[:, None]))
    assert np.trapezoid(density, grid) == pytest.approx(1.0, abs=1e-4)


def test_smoothed_density_is_the_mixture_it_says():
    points, weights, h = np.array([[0.0], [2.0]]), np.array([0.25, 0.75]), 0.6
    smooth = Smoothed(points, weights, h, FREE)
    mean, sd = 1.5, np.sqrt(0.75)
    at = mean + np.sqrt(1 - h**2) * (points[:, 0] - mean)
    grid = np.linspace(-1, 3, 5)
    expected = np.log(stats.norm.pdf(grid[:, None], at, h * sd) @ weights)
    np.testing.assert_allclose(smooth.log_density(grid[:, None]), expected, atol=1e-6)


def test_separate_values_are_neither_moved_nor_smoothed():
    rng = np.random.default_rng(0)
    points = np.column_stack([rng.integers(0, 3, size=60), rng.normal(size=60)]).astype(float)
    discrete = np.array([True, False])
    smooth = Smoothed(points, equal(60), 0.4, discrete)
    assert set(smooth.draw(200, rng)[:, 0]) <= {0.0, 1.0, 2.0}
    grid = np.linspace(-8, 8, 4001)
    masses = [
        np.trapezoid(np.exp(smooth.log_density(np.column_stack([np.full(4001, v), grid]))), grid)
        for v in range(3)
    ]
    np.testing.assert_allclose(masses, np.bincount(points[:, 0].astype(int)) / 60, atol=1e-4)
    assert smooth.log_density(np.array([[0.5, 0.0]]))[0] == -np.inf


def test_local_shares_follow_gaps():
    Z = np.concatenate([np.linspace(0, 1, 50), [10.0]])[:, None]
    shares = local_shares(Z, Smoothing(0.1, neighbours=3))
    assert shares[-1] > 3 * np.median(shares)
    assert np.all((shares > 0) & (shares < 1))
    same = local_shares(np.zeros((5, 1)), Smoothing(0.1, neighbours=3))
    assert np.all(np.isfinite(same))


def test_factors_and_sums_of_exponentials():
    rng = np.random.default_rng(0)
    A = rng.normal(size=(5, 3))
    w = rng.dirichlet(np.ones(5))
    D = A - w @ A
    L = covariance_factor(D, w)
    np.testing.assert_allclose(L @ L.T, (D * w[:, None]).T @ D, atol=1e-6)
    assert np.all(np.isfinite(covariance_factor(np.zeros((3, 2)), equal(3))))
    found = log_sum(np.array([[0.0, np.log(3.0)], [-np.inf, -np.inf], [-1000.0, -1000.0]]))
    np.testing.assert_allclose(found, [np.log(4.0), -np.inf, -1000.0 + np.log(2.0)])


def test_smoothing_of_draws_suits_their_shape():
    rng = np.random.default_rng(0)
    normal = rng.normal(size=(1000, 8))
    assert best_smoothing(normal, equal(1000), rng).h == max(SMOOTHING)
    pieces = rng.normal(size=(1000, 2)) * 0.02 + rng.choice([-1.0, 1.0], size=(1000, 1))
    assert best_smoothing(pieces, equal(1000), rng).h < 0.1


def test_light_points_are_dropped():
    rng = np.random.default_rng(0)
    points, weights = rng.normal(size=(1000, 2)), rng.dirichlet(np.full(1000, 0.05))
    kept, w = heaviest(points, weights)
    assert len(kept) < 500
    assert w.sum() == pytest.approx(1.0)
    np.testing.assert_allclose(w @ kept, weights @ points, atol=0.01)
    same, w = heaviest(points, equal(1000))
    assert len(same) >= 999


@pytest.mark.parametrize("bandwidth", [None, 0.3, [0.1, 0.9]])
def test_smoothed_draws_keep_the_covariance(bandwidth):
    rng = np.random.default_rng(0)
    X, w = rng.normal(size=(40, 2)) @ [[1.0, 0.5], [0.0, 2.0]], rng.dirichlet(np.ones(40))
    m = 20000
    drawn = keep_covariance(X[rng.choice(40, size=m, p=w)], (X, w), bandwidth, rng)
    cov = np.cov(X.T, aweights=w, bias=True)
    sd = np.sqrt(np.diag(cov))
    assert np.all(np.abs(drawn.mean(axis=0) - w @ X) < 5 * sd / np.sqrt(m))
    # The fourth moment of weighted points is at most (max |z|)^2 times the second.
    wild = np.max(np.abs((X - w @ X) / sd)) ** 2
    assert np.all(np.abs(np.cov(drawn.T) - cov) < 5 * np.outer(sd, sd) * np.sqrt(wild / m))


def test_silverman_of_a_normal_sample_and_of_constants():
    X = np.column_stack([np.random.default_rng(0).normal(size=1000), np.full(1000, 3.0)])
    h = silverman(X, equal(1000))
    expected = X[:, 0].std() * (4.0 / (4.0 * 1000)) ** (1.0 / 6.0)  # Silverman 1986 eq. 4.14, d = 2
    np.testing.assert_allclose(h[0], expected, rtol=1e-12)
    assert h[1] > 0


def test_density_of_the_other_points():
    rng = np.random.default_rng(0)
    points, weights = rng.normal(size=(30, 2)), rng.dirichlet(np.ones(30))
    for how in (Smoothing(0.4), Smoothing(0.4, 5)):
        smooth = Smoothed.by(points, weights, how, np.zeros(2, dtype=bool))
        h = np.broadcast_to(smooth.h, 30)
        for i in (0, 7):
            S = h[i] ** 2 * smooth.factor @ smooth.factor.T
            centre = smooth.mean + smooth.shrink * (points[i] - smooth.mean)
            exact = np.log(weights[i]) + stats.multivariate_normal.logpdf(points[i], centre, S)
            assert smooth.log_own()[i] == pytest.approx(exact)
    weights[0] = 0.0
    light = Smoothed(points, weights / weights.sum(), 0.4, np.zeros(2, dtype=bool))
    assert light.log_own()[0] == -np.inf
