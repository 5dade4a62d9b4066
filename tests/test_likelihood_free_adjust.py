"""From data to parameters: near simulations and their adjustment."""

import numpy as np
import pytest

from kernelbayes import NumericalWarning
from kernelbayes.likelihood_free.learn.adjust import Inverse, Recipe, local_regression, targets


def equal(n):
    return np.full(n, 1.0 / n)


def test_left_out_predictions_do_not_give_the_target_away_where_inputs_are_the_same():
    rng = np.random.default_rng(2)
    X = np.repeat([[-3.0], [-1.0], [1.0], [3.0]], 50, axis=0)
    P = rng.normal(X)
    fit = Inverse.fit(P, X, rng)
    for x in X[::50]:
        points, w = next(fit.posterior(x[None], Recipe("moments", 0.25, "linear")))
        spread = np.sqrt(w @ (points[:, 0] - w @ points[:, 0]) ** 2)
        # The noise has deviation one; of ess points it is known to 1 in sqrt(2 ess).
        assert spread == pytest.approx(1.0, abs=4 / np.sqrt(2 / np.sum(w**2)))


def test_adjustment_moves_points_to_the_observation():
    rng = np.random.default_rng(0)
    P = rng.normal(size=(400, 1))
    X = P + 0.5 * rng.normal(size=(400, 1))
    inverse = Inverse.fit(P, X, rng)
    ((points, weights),) = inverse.posterior(np.array([[1.5]]), Recipe("data", 1.0, "location"))
    # The exact posterior is N(1.2, 0.2); 400 residuals, and a regression of about ten terms, which
    # is known to 1 in sqrt(40). The deviation of 400 residuals has an error of 1 in sqrt(2 * 400),
    # and held-out residuals are larger by one in 40.
    assert weights @ points[:, 0] == pytest.approx(1.2, abs=4 * np.sqrt(0.2 / 40))
    deviation = np.sqrt(weights @ (points[:, 0] - weights @ points[:, 0]) ** 2)
    assert deviation == pytest.approx(np.sqrt(0.2), rel=4 / np.sqrt(2 * 400) + 1 / 40)
    shares = inverse.shares(np.array([[1.5]]), Recipe("data", 0.1, "none"))[0]
    assert shares.sum() == pytest.approx(1.0)
    assert np.all(shares >= 0)
    assert 20 <= np.count_nonzero(shares) <= 41


def test_scale_adjustment_follows_the_noise():
    rng = np.random.default_rng(1)
    X = rng.uniform(-1, 1, size=(800, 1))
    P = np.exp(X) * rng.normal(size=(800, 1))
    inverse = Inverse.fit(P, X, rng)
    recipe = Recipe("data", 1.0, "scale")
    spread = [p.std() for p, _ in inverse.posterior(np.array([[-0.8], [0.8]]), recipe)]
    # Log squares of normal residuals have deviation pi / sqrt(2). Their regression at +-0.8 is at
    # least as uncertain as a straight line, whose leverage there is (1 + 3 * 0.8^2) / 800; scales
    # are half as uncertain in logarithms, and two are compared.
    error = 0.5 * np.pi / np.sqrt(2) * np.sqrt(2 * (1 + 3 * 0.8**2) / 800)
    assert np.log(spread[1] / spread[0]) == pytest.approx(1.6, abs=4 * error)


def test_local_regression_is_exact_on_a_line():
    rng = np.random.default_rng(0)
    offsets, weights = rng.normal(size=(60, 2)), rng.uniform(size=60)
    along = local_regression(1.0 + 3.0 * offsets, offsets, weights)
    np.testing.assert_allclose(along, 1.0, atol=1e-6)


def test_local_residuals_are_those_of_a_fit_without_the_simulation():
    rng = np.random.default_rng(1)
    offsets, weights = rng.normal(size=(30, 2)), rng.uniform(0.5, 1.5, size=30)
    values = rng.normal(size=(30, 1))
    moved = local_regression(values, offsets, weights)
    design, i = np.column_stack([np.ones(30), offsets]), 4
    root = np.sqrt(weights)[:, None]
    all_of_them = np.linalg.lstsq(root * design, root * values, rcond=None)[0]
    others = np.arange(30) != i
    beta = np.linalg.lstsq((root * design)[others], (root * values)[others], rcond=None)[0]
    expected = all_of_them[0] + values[i] - design[i] @ beta
    np.testing.assert_allclose(moved[i], expected, rtol=1e-6)


def test_local_regression_with_too_few_or_equal_columns():
    rng = np.random.default_rng(3)
    offsets, values = rng.normal(size=(8, 3)), rng.normal(size=(8, 2))
    np.testing.assert_array_equal(  # four terms are too many for eight values
        local_regression(values, offsets, equal(8)), values
    )
    offsets, values = rng.normal(size=(50, 1)), rng.normal(size=(50, 1))
    once = local_regression(values, offsets, equal(50))
    twice = np.hstack([offsets, offsets, np.zeros((50, 1))])
    again_and_nothing = local_regression(values, twice, equal(50))
    np.testing.assert_allclose(again_and_nothing, once, atol=1e-4)


def test_local_regression_on_what_is_the_same_for_all():
    rng = np.random.default_rng(0)
    values, w = 3.0 + 0.1 * rng.normal(size=(50, 1)), equal(50)
    signs = rng.choice([-1.0, 1.0], size=(50, 1))
    for offsets in (np.ones((50, 1)), signs):
        moved = local_regression(values, offsets, w)
        assert moved.mean() == pytest.approx(3.0, abs=0.1)


def test_equal_distances_share_alike():
    rng = np.random.default_rng(2)
    with pytest.warns(NumericalWarning, match="all points coincide"):
        inverse = Inverse.fit(rng.normal(size=(60, 1)), np.zeros((60, 1)), rng)
    shares = inverse.shares(np.zeros((1, 1)), Recipe("data", 0.1, "none"))
    assert np.all(np.isfinite(shares))
    assert shares.sum() == pytest.approx(1.0)


def test_targets_are_parameters_and_products():
    P = np.random.default_rng(0).normal(size=(30, 2))
    assert targets(P).shape == (30, 2 + 3)
    assert targets(np.hstack([P] * 4)).shape == (30, 8 + 8)
    np.testing.assert_array_equal(targets(P)[:, :2], P)
    assert np.all(np.isfinite(targets(np.ones((30, 1)))))
