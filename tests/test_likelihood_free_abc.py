"""Rejection ABC: what is kept, the adjustment, and the support."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from kernelbayes import NumericalWarning
from kernelbayes.likelihood_free.abc import local_linear, reject_abc
from kernelbayes.likelihood_free.learn.adjust import bounded, epanechnikov, unbounded


def simulator(theta, rng):
    return rng.normal(theta)


def moments(posterior):
    points, weights = np.asarray(posterior.points), np.asarray(posterior.weights)
    mean = weights @ points
    return mean, weights @ (points - mean) ** 2


def test_it_keeps_the_closest():
    rng = np.random.default_rng(0)
    theta = rng.normal(size=(1000, 2))
    x = rng.normal(theta)
    posterior = reject_abc(theta, x, [0.5, 0.5], fraction=0.05)
    scale = np.median(np.abs(x - np.median(x, axis=0)), axis=0)
    order = np.argsort(np.linalg.norm((x - 0.5) / scale, axis=1))[:50]
    np.testing.assert_array_equal(posterior.points, theta[order])
    np.testing.assert_allclose(posterior.weights, 1 / 50)
    assert len(reject_abc(theta, x, [0.5, 0.5]).points) == 100


def test_tolerance_and_a_distance_of_ones_own():
    theta = np.linspace(0, 1, 101)
    kept = reject_abc(theta, theta, 0.5, tolerance=0.1, distance=lambda x, o: np.abs(x - o)[:, 0])
    np.testing.assert_allclose(kept.points[:, 0], theta[np.abs(theta - 0.5) <= 0.1])
    with pytest.raises(ValueError, match="the closest is at"):
        reject_abc(theta, theta, 5.0, tolerance=0.1)


@pytest.mark.parametrize("d", [1, 2])
def test_the_adjusted_posterior_of_a_linear_gaussian_is_right(d):
    """Exact: N(x / 2, 1 / 2), from most of the simulations, which only the adjustment allows."""
    x = np.array([1.0, -0.5])[:d]
    options = {"n_simulations": 10_000, "fraction": 0.6, "rng": 0}
    found = reject_abc(simulator, [stats.norm()] * d, x, adjust=True, **options)
    mean, var = moments(found)
    # Five standard errors; the adjustment is exact here for any tolerance, weights cost a bit.
    n = 1 / np.sum(np.asarray(found.weights) ** 2)
    assert np.all(np.abs(mean - x / 2) < 5 * np.sqrt(0.5 / n))
    assert np.all(np.abs(var - 0.5) < 5 * np.sqrt(2 * 0.25 / n))
    # Without it the variance is 1/2 and 1/4 of that of the data kept, the 60 % of N(0, 2) that are
    # nearest to x: another 1/8 at least.
    plain = reject_abc(simulator, [stats.norm()] * d, x, **options)
    assert np.all(moments(plain)[1] > 0.5 + 0.125 - 5 * np.sqrt(2 / 6000))


def test_simulating_and_given_simulations_agree():
    from kernelbayes.likelihood_free.simulate import simulate

    prior = {"a": stats.norm(), "b": stats.uniform(-1, 2)}
    runs = simulate(simulator, prior, 2000, rng=3)
    a = reject_abc(simulator, prior, [0.0, 0.5], n_simulations=2000, adjust=True, rng=3)
    b = reject_abc(runs.theta, runs.x, [0.0, 0.5], adjust=True, prior=prior)
    np.testing.assert_array_equal(a.points, b.points)
    np.testing.assert_array_equal(a.weights, b.weights)
    assert a.names == b.names == ("a", "b")


def test_adjusted_points_stay_in_the_support():
    prior = [stats.uniform(0, 1), stats.gamma(1.0), stats.randint(0, 4)]

    def noisy(theta, rng):
        return theta + 0.3 * rng.normal(size=theta.shape)

    found = reject_abc(
        noisy, prior, [0.98, 0.02, 3.0], n_simulations=2000, fraction=0.3, adjust=True, rng=0
    )
    points = np.asarray(found.points)
    assert np.all((points[:, 0] >= 0) & (points[:, 0] <= 1))
    assert np.all(points[:, 1] >= 0)
    assert set(points[:, 2]) <= {0.0, 1.0, 2.0, 3.0}
    # Without the prior nothing holds them back.
    theta = np.random.default_rng(0).uniform(size=(500, 1))
    x = theta + 0.3 * np.random.default_rng(1).normal(size=(500, 1))
    free = reject_abc(theta, x, [1.0], fraction=0.5, adjust=True)
    assert np.max(free.points) > 1


@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(-1, 1), min_size=4, max_size=4))
def test_unbounded_coordinates_go_back(values):
    low = np.array([-1.0, -np.inf, -1.0, -np.inf])
    high = np.array([1.0, np.inf, np.inf, 1.0])
    theta = np.array([values])
    back = bounded(unbounded(theta, low, high), low, high)
    np.testing.assert_allclose(back, theta, atol=1e-8)
    far = bounded(np.array([[1e6] * 4, [-1e6] * 4]), low, high)
    assert np.all((far >= low) & (far <= high) & np.isfinite(far))


def test_local_linear_takes_a_linear_trend_out():
    rng = np.random.default_rng(0)
    offsets = rng.normal(size=(50, 3))
    beta = rng.normal(size=(3, 2))
    values = 2.0 + offsets @ beta
    weights = rng.uniform(size=50)
    np.testing.assert_allclose(local_linear(values, offsets, weights), 2.0)


def test_epanechnikov_weights():
    distances, reach = np.array([[0.0, 1.0, 2.0], [3.0, 3.0, 3.0]]), np.array([[2.0], [3.0]])
    np.testing.assert_allclose(epanechnikov(distances, reach), [[1.0, 0.75, 0.0], [1.0, 1.0, 1.0]])
    np.testing.assert_allclose(epanechnikov(np.zeros((1, 2)), np.zeros((1, 1))), [[1.0, 1.0]])


def test_units_of_x_do_not_matter():
    rng = np.random.default_rng(0)
    theta = rng.normal(size=(800, 2))
    x = rng.normal(theta)
    for adjust in (False, True):
        a = reject_abc(theta, x, [0.5, 0.5], adjust=adjust)
        b = reject_abc(theta, x * [1e3, 1e-3] + 7, np.array([0.5e3, 0.5e-3]) + 7, adjust=adjust)
        np.testing.assert_allclose(a.points, b.points, atol=1e-6)


def test_too_few_to_adjust_are_left_as_they_are():
    rng = np.random.default_rng(0)
    theta, x = rng.normal(size=(100, 1)), rng.normal(size=(100, 8))
    with pytest.warns(NumericalWarning, match="too few to adjust"):
        found = reject_abc(theta, x, np.zeros(8), fraction=0.1, adjust=True)
    assert set(np.ravel(found.points)) <= set(theta[:, 0])


def test_constant_columns_and_missing_data():
    rng = np.random.default_rng(0)
    theta = rng.normal(size=(500, 1))
    x = np.column_stack([rng.normal(theta[:, 0]), np.ones(500)])
    whole = reject_abc(theta, x, [0.0, 1.0], adjust=True)
    assert np.all(np.isfinite(whole.points))
    x[:20, 0] = np.nan
    with pytest.warns(NumericalWarning, match="20 of 500"):
        reject_abc(theta, x, [0.0, 1.0])
    with pytest.raises(ValueError, match="all simulations"):
        reject_abc(theta, np.full((500, 2), np.nan), [0.0, 1.0])


def test_summaries_frames_and_names():
    rng = np.random.default_rng(0)
    theta = pd.DataFrame({"mu": rng.normal(size=400)})
    x = rng.normal(theta.to_numpy(), size=(400, 20))
    found = reject_abc(theta, x, np.full(20, 0.5), summary=lambda x: {"mean": x.mean()})
    assert found.names == ("mu",)
    assert abs(float(found.mean()[0]) - 0.5) < 0.3
    frame = pd.DataFrame({"mean": x.mean(axis=1), "sd": x.std(axis=1)})
    reject_abc(theta, frame, {"sd": 1.0, "mean": 0.5})


@pytest.mark.parametrize(
    ("arguments", "options", "match"),
    [
        (([0.0, 1.0], [0.0, 1.0], 0.5), {"tolerance": 1.0, "fraction": 0.5}, "not both"),
        (([0.0, 1.0], [0.0, 1.0], 0.5), {"fraction": 1.5}, "fraction"),
        (([0.0, 1.0], [0.0, 1.0], 0.5), {"tolerance": -1.0}, "tolerance"),
        (([0.0, 1.0], [0.0], 0.5), {}, "2 parameters but 1"),
        (([0.0, 1.0], [0.0, 1.0], [0.5, 0.5]), {}, "x_observed has shape"),
        (([0.0, 1.0], [0.0, 1.0], np.nan), {}, "NaN"),
        (([0.0, 1.0], [0.0, 1.0], 0.5), {"distance": lambda x, o: 1.0}, "distance must give"),
        (([0.0, 1.0], [0.0, 1.0], 0.5), {"prior": [stats.norm()] * 2}, "the prior has 2"),
    ],
)
def test_bad_use_is_refused(arguments, options, match):
    with pytest.raises(ValueError, match=match):
        reject_abc(*arguments, **options)
