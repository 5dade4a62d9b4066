"""The closed-form leave-one-out against refits, and what it is chosen from."""

import numpy as np
import pytest

from kernelbayes.gram import LowRank
from kernelbayes.gram.loo import (
    RidgePath,
    fold_predictions,
    left_share,
    loo,
    loo_subset,
    ridge_grid,
)

RIDGES = np.array([1e-6, 1e-3, 0.1, 10.0])
SHAPES = {"tall": (25, 4), "square": (8, 8), "wide": (9, 30), "rank deficient": (20, 6)}


def problem(shape, seed=0):
    n, r = SHAPES[shape]
    rng = np.random.default_rng(seed)
    F, H = rng.normal(size=(n, r)), rng.normal(size=(n, 3))
    if shape == "rank deficient":
        F[:, 3:] = F[:, :3]
    weights = rng.uniform(0.1, 1.0, size=n)
    weights[:2] = 0.0
    return F, H, weights / weights.sum()


def fit(F, H, r, ridge, intercept):
    """Coefficients of weighted ridge regression by its normal equations; the last is the offset."""
    if intercept:
        F = np.column_stack([F, np.ones(len(F))])
    penalty = ridge * np.eye(F.shape[1])
    if intercept:
        penalty[-1, -1] = 0.0
    return np.linalg.solve(F.T @ (r[:, None] * F) + penalty, F.T @ (r[:, None] * H))


def left_out(F, H, r, ridge, intercept):
    found = np.empty(H.shape)
    for i in range(len(F)):
        out = np.arange(len(F)) == i
        E = fit(F[~out], H[~out], r[~out], ridge, intercept)
        at = np.column_stack([F[out], np.ones(out.sum())]) if intercept else F[out]
        found[out] = at @ E
    return found


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_left_out_predictions_are_those_of_refits(shape, weighted, intercept):
    F, H, weights = problem(shape)
    n = len(F)
    found = loo(F, H, RIDGES, weights if weighted else None, intercept=intercept)
    r = weights if weighted else np.full(n, 1.0 / n)
    predictions = list(found.predictions())
    assert len(predictions) == len(RIDGES)
    for ridge, predicted, errors in zip(RIDGES, predictions, found.errors_by_target, strict=True):
        expected = left_out(F, H, r, ridge, intercept)
        # Both solve systems of condition |F|^2 / ridge and lose that many units of rounding.
        tolerance = 1e-14 * n * np.square(F).sum() / ridge
        np.testing.assert_allclose(predicted, expected, rtol=tolerance, atol=tolerance)
        np.testing.assert_allclose(errors, r @ (H - expected) ** 2, rtol=10 * tolerance)
    np.testing.assert_allclose(found.errors, found.errors_by_target.sum(axis=1))


def test_the_best_ridges():
    F, H, _ = problem("tall")
    found = loo(LowRank(F), H, RIDGES)
    assert found.best == RIDGES[np.argmin(found.errors)]
    for j in range(3):
        assert found.best_by_target[j] == loo(F, H[:, [j]], RIDGES).best


def test_no_weight_at_all_has_no_error_to_compare():
    F, H, _ = problem("tall")
    assert np.all(np.isinf(loo(F, H, RIDGES, np.zeros(len(F))).errors))


def test_a_kernel_that_is_zero_on_the_points():
    H = np.ones((4, 1))
    np.testing.assert_allclose(loo(np.zeros((4, 2)), H, RIDGES).errors, 1.0)


def test_a_pair_that_alone_decides_its_fit_has_a_finite_error():
    F = np.diag([1.0, 0.0, 0.0]) + 1e-9
    found = loo(F, np.ones((3, 1)), np.array([1e-300]))
    assert np.all(np.isfinite(found.errors))
    np.testing.assert_array_equal(left_share(np.array([0.5, -1.0]), least=0.1), [0.5, 0.1])
    assert np.all(left_share(np.zeros(10)) > 0)


@pytest.mark.parametrize("original", [False, True])
def test_a_ridge_path_is_the_rule_as_written(original):
    F, H, _ = problem("tall")
    w = np.random.default_rng(1).normal(size=len(F)) if original else np.full(len(F), 0.1)
    path = RidgePath.of(F, H, w)
    C, cross = F.T @ (w[:, None] * F), F.T @ (w[:, None] * H)
    for ridge in (1e-3, 1.0):
        square = C @ C + ridge**2 * np.eye(len(C))
        E = np.linalg.solve(square, C @ cross) if original else None
        E = np.linalg.solve(C + ridge * np.eye(len(C)), cross) if E is None else E
        # Condition of the squared system: (|C| / ridge)^2 <= 1e9 units of rounding.
        np.testing.assert_allclose(path.predict(F, ridge, original), F @ E, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("groups", [np.arange(25) % 4, np.arange(25) // 7], ids=["folds", "shared"])
def test_groups_with_a_ridge_for_each_target(groups):
    F, H, weights = problem("tall")
    ridges = np.array([1e-3, 0.1, 1e-3])
    coefficients, predicted = fold_predictions(F, H, ridges, weights, groups)
    for j, ridge in enumerate(ridges):
        np.testing.assert_allclose(
            coefficients[:, [j]], fit(F, H[:, [j]], weights, ridge, False), atol=1e-9
        )
        for fold in range(4):
            out = groups == fold
            r = weights[~out] / weights[~out].sum()
            E = fit(F[~out], H[~out][:, [j]], r, ridge, False)
            np.testing.assert_allclose(predicted[out][:, [j]], F[out] @ E, atol=1e-9)


def test_a_ridge_below_rounding_is_raised_to_it():
    F = np.ones((10, 3))
    halves = np.arange(10) % 2
    coefficients, _ = fold_predictions(F, F[:, :1], np.array([1e-30]), np.full(10, 0.1), halves)
    np.testing.assert_allclose(F @ coefficients, 1.0, atol=1e-6)


def test_subsets_and_grids():
    np.testing.assert_array_equal(loo_subset(5), np.arange(5))
    few = loo_subset(50, 10)
    assert len(np.unique(few)) == 10
    np.testing.assert_array_equal(few, loo_subset(50, 10))
    F, _, weights = problem("tall")
    np.testing.assert_allclose(ridge_grid(3.0 * F, weights), 9.0 * ridge_grid(F, weights))
    assert np.all(ridge_grid(np.zeros((3, 2))) > 0)
