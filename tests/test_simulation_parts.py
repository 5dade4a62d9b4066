"""The parts of likelihood-free inference: regression, smoothing, coordinates, scores."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from kernelbayes import NumericalWarning
from kernelbayes.embedding.smooth import (
    SMOOTHING,
    Smoothed,
    Smoothing,
)
from kernelbayes.likelihood_free.learn.adjust import Inverse, Recipe, local_regression, targets
from kernelbayes.likelihood_free.learn.choice import LEAST_WEIGHT, STRAY, Judge
from kernelbayes.likelihood_free.learn.importance import importance_sample, proposal_of, tempered
from kernelbayes.likelihood_free.learn.likelihood import Forward, Noise
from kernelbayes.likelihood_free.learn.task import Columns, Data, Space
from kernelbayes.likelihood_free.prior import as_prior
from kernelbayes.select.regression import (
    FOLDS,
    Basis,
    again,
    refit,
    regress,
    reweighted,
    squared_distances,
)

FREE = np.zeros(1, dtype=bool)


def equal(n):
    return np.full(n, 1.0 / n)


# -- regression ------------------------------------------------------------------------------------


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


def test_left_out_predictions_do_not_give_the_target_away_where_inputs_are_the_same():
    rng = np.random.default_rng(2)
    X = np.repeat(rng.normal(size=(4, 1)), 50, axis=0)
    P = rng.normal(X)
    fit = Inverse.fit(P, X, rng)
    for x in X[::50]:
        points, w = next(fit.posterior(x[None], Recipe("mean", 0.25, "linear")))
        spread = np.sqrt(w @ (points[:, 0] - w @ points[:, 0]) ** 2)
        assert 0.7 < spread < 1.3  # the noise has deviation one


def test_a_fit_like_another_keeps_what_that_chose():
    rng = np.random.default_rng(3)
    X = rng.normal(size=(300, 2))
    Y = np.sin(2.0 * X[:, :1]) + 0.1 * rng.normal(size=(300, 1))
    first = regress(X[:200], Y[:200], rng)
    same, more = again(first, X[:200], Y[:200]), again(first, X, Y)
    assert np.array_equal(same.coefficients, first.coefficients)
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
        equal = np.full(rest.sum(), 1.0 / rest.sum())
        expected = again(fit, X[rest], Y[rest], equal)(X[~rest])  # the others weigh the same
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


def test_a_pair_far_from_those_the_ridge_was_chosen_for():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 3))
    Y = X[:, :1]
    fit = regress(X, Y, rng)
    far = again(fit, np.vstack([X, np.full((1, 3), 1e12)]), np.vstack([Y, [[3.0]]]))
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


# -- coordinates -----------------------------------------------------------------------------------


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


# -- from data to parameters -----------------------------------------------------------------------


def test_adjustment_moves_points_to_the_observation():
    rng = np.random.default_rng(0)
    P = rng.normal(size=(400, 1))
    X = P + 0.5 * rng.normal(size=(400, 1))
    inverse = Inverse.fit(P, X, rng)
    ((points, weights),) = inverse.posterior(np.array([[1.5]]), Recipe("data", 1.0, "location"))
    # The exact posterior is N(1.2, 0.2); 400 residuals, and a regression of about ten terms.
    assert weights @ points[:, 0] == pytest.approx(1.2, abs=4 * np.sqrt(0.2 / 40))
    assert np.sqrt(weights @ (points[:, 0] - 1.2) ** 2) == pytest.approx(np.sqrt(0.2), rel=0.4)
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
    assert spread[1] / spread[0] == pytest.approx(np.exp(1.6), rel=0.4)


def test_local_quadratic_regression_is_exact_on_a_quadratic():
    rng = np.random.default_rng(0)
    offsets, weights = rng.normal(size=(60, 2)), rng.uniform(size=60)
    curve = np.column_stack([offsets[:, 0] * offsets[:, 1], offsets[:, 0] ** 2 - offsets[:, 1]])
    moved = local_regression(
        curve + np.array([1.0, 2.0]), offsets, weights, squares=True, scales=False
    )
    np.testing.assert_allclose(moved, np.tile([1.0, 2.0], (60, 1)), atol=1e-6)
    along = local_regression(3.0 * offsets, offsets, weights, squares=False, scales=False)
    np.testing.assert_allclose(along, 0.0, atol=1e-6)


def test_local_residuals_are_those_of_a_fit_without_the_simulation():
    rng = np.random.default_rng(1)
    offsets, weights = rng.normal(size=(30, 2)), rng.uniform(0.5, 1.5, size=30)
    values = rng.normal(size=(30, 1))
    moved = local_regression(values, offsets, weights, squares=False, scales=False)
    design, i = np.column_stack([np.ones(30), offsets]), 4
    root = np.sqrt(weights)[:, None]
    all_of_them = np.linalg.lstsq(root * design, root * values, rcond=None)[0]
    others = np.arange(30) != i
    beta = np.linalg.lstsq((root * design)[others], (root * values)[others], rcond=None)[0]
    expected = all_of_them[0] + values[i] - design[i] @ beta
    np.testing.assert_allclose(moved[i], expected, rtol=1e-6)


def test_local_scales_follow_the_noise():
    rng = np.random.default_rng(2)
    offsets = rng.uniform(-1, 1, size=(2000, 1))
    values = np.exp(offsets) * rng.normal(size=(2000, 1))
    moved = local_regression(values, offsets, equal(2000), squares=True, scales=True)
    assert moved.std() == pytest.approx(1.0, abs=0.15)  # the noise at offset zero
    left, right = moved[offsets < -0.5].std(), moved[offsets > 0.5].std()
    assert right / left == pytest.approx(1.0, abs=0.25)  # e^{1.5} apart before


def test_local_regression_with_too_few_or_equal_columns():
    rng = np.random.default_rng(3)
    offsets, values = rng.normal(size=(12, 3)), rng.normal(size=(12, 2))
    linear = local_regression(values, offsets, equal(12), squares=False, scales=False)
    np.testing.assert_array_equal(  # ten terms are too many for twelve values: linear
        local_regression(values, offsets, equal(12), squares=True, scales=False), linear
    )
    np.testing.assert_array_equal(  # so are four for eight
        local_regression(values[:8], offsets[:8], equal(8), squares=True, scales=True), values[:8]
    )
    offsets, values = rng.normal(size=(50, 1)), rng.normal(size=(50, 1))
    once = local_regression(values, offsets, equal(50), squares=True, scales=True)
    twice = np.hstack([offsets, offsets, np.zeros((50, 1))])
    again_and_nothing = local_regression(values, twice, equal(50), squares=True, scales=True)
    np.testing.assert_allclose(again_and_nothing, once, atol=1e-4)


def test_local_regression_on_what_is_the_same_for_all():
    rng = np.random.default_rng(0)
    values, w = 3.0 + 0.1 * rng.normal(size=(50, 1)), equal(50)
    signs = rng.choice([-1.0, 1.0], size=(50, 1))
    for offsets, squares in ((np.ones((50, 1)), False), (signs, True)):
        moved = local_regression(values, offsets, w, squares=squares, scales=False)
        assert moved.mean() == pytest.approx(3.0, abs=0.1)


def test_quadratic_recipes_want_enough_simulations():
    rng = np.random.default_rng(4)
    P = rng.normal(size=(400, 2))
    inverse = Inverse.fit(P, P + rng.normal(size=(400, 2)), rng)
    assert inverse.suits(Recipe("mean", 0.05, "quadratic"))  # 6 terms, 20 simulations
    assert not inverse.suits(Recipe("mean", 0.02, "quadratic"))
    assert inverse.suits(Recipe("mean", 0.02, "linear"))


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


# -- from parameters to data -----------------------------------------------------------------------


@pytest.fixture(scope="module")
def forward():
    rng = np.random.default_rng(0)
    P = rng.normal(size=(600, 1))
    return Forward.fit(P, P + 0.5 * rng.normal(size=(600, 1)), rng)


def test_a_learned_likelihood_is_the_true_one(forward):
    grid = np.linspace(-1.5, 2.5, 41)[:, None]
    found = forward.log_likelihood(grid, np.array([0.5]))
    exact = stats.norm.logpdf(0.5, grid[:, 0], 0.5)
    likely = exact > exact.max() - 2.0  # within two standard deviations
    # A density of 600 residuals: one in ten where the density is high, more in the tails.
    assert np.max(np.abs(found - exact)[likely]) < 0.5
    assert abs(grid[np.argmax(found), 0] - 0.5) < 4 * 0.5 / np.sqrt(60)


def test_rows_add_up(forward):
    grid = np.linspace(-1, 1, 5)[:, None]
    rows = np.array([[0.2], [0.7], [-0.1]])
    together = forward.log_likelihood(grid, rows)
    apart = sum(forward.log_likelihood(grid, row) for row in rows)
    np.testing.assert_allclose(together, apart)


def test_a_wild_simulation_does_not_change_a_learned_likelihood(forward):
    rng = np.random.default_rng(0)  # as in the fixture
    P = rng.normal(size=(600, 1))
    S = P + 0.5 * rng.normal(size=(600, 1))
    grid = np.linspace(-1, 2, 13)[:, None]
    calm = forward.log_likelihood(grid, np.array([0.5]))
    for row in (0, 300):
        wild = S.copy()
        wild[row] = 40.0
        upset = Forward.fit(P, wild, rng).log_likelihood(grid, np.array([0.5]))
        likely = calm > calm.max() - 2.0
        assert np.max(np.abs(upset - calm)[likely]) < 0.3
    # Noise that is often large is not wild.
    often = P + np.where(rng.uniform(size=(600, 1)) < 0.1, 30.0, 0.1) * rng.normal(size=(600, 1))
    tails = Forward.fit(P, often, rng)
    assert tails.log_likelihood(np.zeros((1, 1)), np.array([25.0]))[0] > -12


def test_noise_that_grows_is_noticed():
    rng = np.random.default_rng(1)
    P = rng.uniform(-1, 1, size=(800, 1))
    forward = Forward.fit(P, P + np.exp(1.5 * P) * rng.normal(size=(800, 1)), rng)
    assert forward.kind.spread == "scaled"


def test_correlations_that_depend_on_a_parameter_are_learned():
    rng = np.random.default_rng(2)
    P = rng.uniform(-1.5, 1.5, size=(2000, 2))
    rho, sigma = np.tanh(P[:, 1]), np.exp(P[:, 0])
    noise = rng.normal(size=(2000, 2))
    noise[:, 1] = rho * noise[:, 0] + np.sqrt(1 - rho**2) * noise[:, 1]
    forward = Forward.fit(P, sigma[:, None] * noise, rng)
    assert forward.kind.spread == "correlated"
    grid = np.column_stack([np.zeros(7), np.linspace(-1.2, 1.2, 7)])
    s = np.array([1.0, 1.0])
    found = forward.log_likelihood(grid, s)
    exact = [stats.multivariate_normal.logpdf(s, cov=[[1, r], [r, 1]]) for r in np.tanh(grid[:, 1])]
    assert np.corrcoef(found, exact)[0, 1] > 0.95
    likely = np.array(exact) > max(exact) - 2.0
    assert np.max(np.abs(found - exact)[likely]) < 0.7


def test_noise_at_near_parameters_integrates_to_one():
    rng = np.random.default_rng(3)
    at, residuals = rng.normal(size=(400, 1)), rng.normal(size=(400, 1))
    noise = Noise.of(residuals * (1 + at**2), at, 50, Smoothing(0.3))
    grid = np.linspace(-30, 30, 4001)
    logs = noise.log_density(np.tile(grid, (3, 1))[:, :, None], np.array([[-1.0], [0.0], [2.0]]))
    assert np.trapezoid(np.exp(logs), grid, axis=1) == pytest.approx(np.ones(3), abs=1e-6)


@pytest.mark.parametrize(("m", "rounds"), [(2000, 1), (300, 6)])
def test_importance_sampling_of_a_normal_posterior(m, rounds):
    rng = np.random.default_rng(0)

    def log_prior(P):
        return stats.norm.logpdf(P[:, 0])

    def log_likelihood(P):
        return stats.norm.logpdf(1.5, P[:, 0], 0.5)

    draws = rng.normal(size=(2000, 1))
    start = Smoothed(draws, equal(2000), 0.5, FREE)
    found = importance_sample(log_likelihood, log_prior, draws, start, m, rounds, rng)
    assert (len(found.proposals.parts) > 1) == (rounds > 1)
    ess = found.ess
    assert ess > 500
    mean = found.weights @ found.points[:, 0]
    assert mean == pytest.approx(1.2, abs=4 * np.sqrt(0.2 / ess))
    evidence = stats.norm.logpdf(1.5, 0, np.sqrt(1.25))
    assert found.log_evidence() == pytest.approx(evidence, abs=4 / np.sqrt(ess))
    one_more = found.log_evidence(found.log_evidence() - np.log(found.proposals.drawn))
    assert one_more == pytest.approx(found.log_evidence())  # a point of average weight


def test_later_proposals_do_not_make_posteriors_narrow():
    d, rng = 8, np.random.default_rng(0)

    def log_prior(P):
        return stats.norm.logpdf(P).sum(axis=1)

    def log_likelihood(P):
        return stats.norm.logpdf(1.0, P, 0.5).sum(axis=1)

    draws = rng.normal(size=(2000, d))
    evidence, spread = [], []
    for _ in range(20):
        start, _ = proposal_of(draws[:500], equal(500), np.zeros(d, dtype=bool), rng)
        found = importance_sample(log_likelihood, log_prior, draws, start, 500, 8, rng)
        deviations = found.points - found.weights @ found.points
        spread.append(found.weights @ deviations**2)
        evidence.append(found.log_evidence())
    exact = d * stats.norm.logpdf(1.0, 0.0, np.sqrt(1.25))
    assert np.mean(evidence) == pytest.approx(exact, abs=0.1)  # 0.18 less if each counts itself
    assert np.mean(spread) / 0.2 == pytest.approx(1.0, abs=0.02)  # 0.94 then


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


@given(st.lists(st.floats(-1e4, 1e4), min_size=2, max_size=30), st.floats(0, 1))
def test_tempered_weights_count_enough(logs, share):
    weights = tempered(np.array(logs), share * len(logs))
    assert weights.sum() == pytest.approx(1.0)
    assert np.all(weights >= 0)
    assert 1 / np.sum(weights**2) >= share * len(logs) - 1e-3 * len(logs)


# -- scores ----------------------------------------------------------------------------------------


def test_log_scores_are_those_of_the_smoothed_density():
    rng = np.random.default_rng(0)
    points, weights = rng.normal(size=(80, 2)), rng.dirichlet(np.ones(80))
    truth, none = np.array([[0.3, -0.2]]), np.zeros(2, dtype=bool)
    judge = Judge(none, np.full(2, -np.inf), np.full(2, np.inf))
    for neighbours in (0, 5):
        found = judge([(points, weights)], truth, rng, neighbours)[0]
        expected = [
            Smoothed.by(points, weights, Smoothing(h, neighbours), none).log_density(truth)[0]
            for h in SMOOTHING
        ]
        np.testing.assert_allclose(found, expected, atol=1e-8)


@pytest.mark.parametrize("kind", ["log", "energy"])
def test_scores_are_proper(kind):
    """The right distribution scores better on average than a shifted, wider or narrower one."""
    rng = np.random.default_rng(0)
    judge = Judge(FREE, np.full(1, -np.inf), np.full(1, np.inf), kind)
    truths = rng.normal(size=(300, 1))
    points = stats.norm.ppf((np.arange(200) + 0.5) / 200)[:, None]

    def score(shift, scale):
        sample = (shift + scale * points, equal(200))
        return judge([sample] * 300, truths, rng).mean(axis=0).max()

    best = score(0.0, 1.0)
    assert all(best > score(*wrong) for wrong in [(0.7, 1.0), (0.0, 2.0), (0.0, 0.5)])


def test_one_miss_does_not_decide():
    rng = np.random.default_rng(0)
    none = np.zeros(2, dtype=bool)
    judge = Judge(none, np.full(2, -np.inf), np.full(2, np.inf))
    narrow = 1e-6 * rng.normal(size=(50, 2))
    scores = judge([(narrow, equal(50))], np.ones((1, 2)), rng)[0]
    least = np.log(LEAST_WEIGHT / 10) + stats.norm.logpdf([1.0, 1.0]).sum()
    np.testing.assert_allclose(scores, least)
    logs = judge.floored(np.array([-1e9, 0.0]), np.zeros((2, 2)))
    np.testing.assert_allclose(logs, [np.log(LEAST_WEIGHT / 10) - np.log(2 * np.pi), 0.0])


def test_scores_within_bounds_are_larger():
    rng = np.random.default_rng(0)
    points, weights = np.abs(rng.normal(size=(200, 1))), equal(200)
    free = Judge(FREE, np.full(1, -np.inf), np.full(1, np.inf))
    bound = Judge(FREE, np.zeros(1), np.full(1, np.inf))
    truth = np.array([[0.1]])
    gain = bound([(points, weights)], truth, rng)[0] - free([(points, weights)], truth, rng)[0]
    assert np.all(gain >= -1e-12)
    assert gain[-1] > 0.05


def test_values_no_point_has_are_rare_not_impossible():
    judge = Judge(np.ones(1, dtype=bool), np.zeros(1), np.full(1, 5.0))
    points = np.array([[0.0], [1.0], [1.0], [2.0]])
    found = judge([(points, equal(4))] * 2, np.array([[1.0], [4.0]]), np.random.default_rng(0))
    np.testing.assert_allclose(found[0], np.log((1 - STRAY) * 0.5 + STRAY * 0.1))
    assert np.all(np.isfinite(found[1]))
    assert np.all(found[1] < np.log(0.25))
