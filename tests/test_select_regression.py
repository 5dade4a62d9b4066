"""Kernel regression that learns its metric."""

import numpy as np
import pytest

from kernelbayes import NumericalWarning
from kernelbayes.select.regression import (
    FOLDS,
    Basis,
    refit,
    regress,
    reweighted,
    squared_distances,
)


def test_regression_learns_a_curve_and_ignores_what_does_not_matter():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 6))
    truth = np.sin(2.0 * X[:, :1])
    fit = regress(X, truth + 0.1 * rng.normal(size=(300, 1)), rng)
    new = rng.normal(size=(500, 6))
    error = np.mean((fit(new) - np.sin(2.0 * new[:, :1])) ** 2)
    assert error < 0.1 * truth.var()  # nine tenths of the variance explained
    M = fit.metric @ fit.metric.T
    assert M[0, 0] > 10 * np.delete(np.diag(M), 0).max()


def test_left_out_predictions_are_those_of_a_fit_without_the_fold():
    rng = np.random.default_rng(1)
    X, Y = rng.normal(size=(60, 2)), rng.normal(size=(60, 2))
    weights = rng.uniform(0.5, 1.5, size=60)
    weights /= weights.sum()
    fit = regress(X, Y, rng, weights)
    F, i = fit.basis(X), 7
    others = np.arange(60) % FOLDS != i % FOLDS
    w = weights[others] / weights[others].sum()
    for j, ridge in enumerate(fit.ridges):
        A = F[others].T @ (w[:, None] * F[others]) + ridge * np.eye(F.shape[1])
        alone = F[i] @ np.linalg.solve(A, F[others].T @ (w * Y[others, j]))
        assert fit.left_out[i, j] == pytest.approx(alone, rel=1e-5, abs=1e-7)


def test_a_fit_like_another_keeps_what_that_chose():
    rng = np.random.default_rng(3)
    X = rng.normal(size=(300, 2))
    Y = np.sin(2.0 * X[:, :1]) + 0.1 * rng.normal(size=(300, 1))
    first = regress(X[:200], Y[:200], rng)
    same, more = refit(first.basis, X[:200], Y[:200]), refit(first.basis, X, Y)
    np.testing.assert_allclose(same.coefficients, first.coefficients, rtol=1e-6, atol=1e-9)
    assert more.basis is first.basis
    assert len(more.left_out) == 300


def test_left_out_predictions_where_one_pair_has_nearly_all_of_the_weight():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 2))
    Y = X[:, :1] + 0.1 * rng.normal(size=(200, 1))
    for others in (1e-10, 1e-16, 1e-30):
        w = np.full(200, others)
        w[7] = 1.0
        w /= w.sum()
        fit = regress(X, Y, np.random.default_rng(0), w)
        rest = np.arange(200) % FOLDS != 7 % FOLDS
        F = fit.basis(X[rest])  # the others weigh the same
        A = F.T @ F / len(F) + fit.ridges[0] * np.eye(F.shape[1])
        expected = fit.basis(X[~rest]) @ np.linalg.solve(A, F.T @ Y[rest] / len(F))
        np.testing.assert_allclose(fit.left_out[~rest], expected, rtol=1e-5, atol=1e-6)


def test_small_bandwidths_and_more_landmarks_follow_waves():
    rng = np.random.default_rng(4)
    X = rng.uniform(-1, 1, size=(2500, 2))

    def lost(frequency, **options):
        truth = np.sin(frequency * X[:, :1]) * np.cos(frequency * X[:, 1:])
        fit = regress(X, truth + 0.05 * rng.normal(size=truth.shape), rng, **options)
        return np.mean((fit.left_out - truth) ** 2) / np.mean(truth**2)

    assert lost(12.0) < 0.01
    assert lost(20.0, pairs=2000, landmarks=800) < 0.3 * lost(20.0)


def test_a_pair_far_from_those_the_basis_was_chosen_for():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 3))
    Y = X[:, :1]
    fit = regress(X, Y, rng)
    far = refit(fit.basis, np.vstack([X, np.full((1, 3), 1e12)]), np.vstack([Y, [[3.0]]]))
    assert np.abs(far.left_out[:300]).max() < 10.0 * np.abs(Y).max()
    assert np.abs(far(X)).max() < 10.0 * np.abs(Y).max()


def test_a_reweighted_fit_is_closer_where_there_is_little_noise():
    rng = np.random.default_rng(4)
    X = rng.uniform(-1, 1, size=(500, 2))
    truth = np.column_stack([X[:, 0], X[:, 0] + X[:, 1]])
    sigma = np.column_stack([np.exp(3 * X[:, 1]), np.full(500, 0.5)])
    Y = truth + sigma * rng.normal(size=(500, 2))
    fit = regress(X, Y, rng)
    found = reweighted(fit, X, Y, sigma**2)
    quiet = sigma[:, 0] < 0.3
    before, after = (np.mean((f.left_out - truth)[quiet, 0] ** 2) for f in (fit, found))
    assert after < 0.5 * before
    # Equal variances change nothing but how the ridge is chosen.
    np.testing.assert_allclose(found(X)[:, 1], fit(X)[:, 1], atol=0.2)


def test_gradients_are_those_of_finite_differences():
    rng = np.random.default_rng(2)
    X = rng.normal(size=(40, 3))
    fit = regress(X, np.column_stack([X[:, 0] ** 2, X[:, 1]]), rng)
    step = 1e-5
    jumps = [(fit(X + step * e) - fit(X - step * e)) / (2 * step) for e in np.eye(3)]
    J = np.stack(jumps, axis=1)  # (n, p, q)
    expected = np.einsum("npq,nrq->pr", J, J) / len(X)
    found = fit.basis.gradients(X, fit.coefficients)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6 * np.abs(expected).max())


def test_refit_uses_the_same_basis():
    rng = np.random.default_rng(3)
    X = rng.normal(size=(80, 1))
    fit = regress(X, X, rng)
    other = refit(fit.basis, X, X**2)
    assert isinstance(other.basis, Basis)
    assert other.basis is fit.basis
    assert other.left_out.shape == (80, 1)


def test_regression_on_constant_inputs_is_between_zero_and_the_mean():
    rng = np.random.default_rng(4)
    Y = rng.normal(size=(50, 1))
    with pytest.warns(NumericalWarning, match="all points coincide"):
        fit = regress(np.zeros((50, 2)), Y, rng)
    # Targets are centred, so the ridge shrinks towards zero; inputs that say nothing say the same.
    found = fit(np.zeros((3, 2))) / Y.mean()
    assert np.all((found >= 0) & (found <= 1 + 1e-9))
    assert np.ptp(found) < 1e-9


def test_squared_distances():
    rng = np.random.default_rng(0)
    A, B = rng.normal(size=(5, 3)), rng.normal(size=(4, 3))
    expected = np.sum((A[:, None] - B[None]) ** 2, axis=2)
    np.testing.assert_allclose(squared_distances(A, B), expected, atol=1e-12)


def test_a_reduced_basis_predicts_the_same():
    rng = np.random.default_rng(5)
    X, Y = rng.normal(size=(80, 3)), rng.normal(size=(80, 2))
    fit, new = regress(X, Y, rng), rng.normal(size=(20, 3))
    basis, coefficients = fit.basis.reduced(fit.coefficients)
    assert basis.root.shape[1] == 2
    expected = fit.basis.predict(new, fit.coefficients)
    # The same sums in another order.
    np.testing.assert_allclose(basis.predict(new, coefficients), expected, rtol=1e-8, atol=1e-10)
