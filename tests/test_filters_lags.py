"""Windows of observations, states with velocity and regression features."""

from functools import cache

import numpy as np
import pytest

import kernelbayes as kb
from kernelbayes.filters.encode import regression
from kernelbayes.filters.encode.lags import choose_scales, window_kernel, windows
from kernelbayes.filters.encode.regression import MOST_DIRECTIONS, filled, learn_regression

RIDGES = {"prior_ridge": 1e-4, "transition_ridge": 1e-4, "ridge": 1e-2, "back_ridge": 3e-2}


def circling(rng, length, noise=0.2):
    """A point going round with noise, seen through noise; 2-d."""
    angle = rng.uniform(0, 6) + np.cumsum(0.3 + 0.1 * rng.normal(size=length))
    z = np.column_stack([np.cos(angle), np.sin(angle)])
    return z, z + noise * rng.normal(size=z.shape)


RNG = np.random.default_rng(0)
Z, X = circling(RNG, 130)
NEW_Z, NEW = circling(RNG, 18)
HOLES = NEW.copy()
HOLES[[0, 5, 6]], HOLES[9, 0] = np.nan, np.nan
OPTIONS = {
    "lags": {"lags": 3},
    "order": {"order": 2},
    "rank": {"lags": 2, "order": 2, "rank": 40},
    "laplace": {"lags": 2, "kernel_x": kb.Laplace(1.0)},
    "regression": {"features": "regression", "lags": 3},
    "tracked": {"features": "tracked", "lags": 3},
    "memoryless features": {"features": "regression"},
}


def make(**options):
    return kb.KernelBayesFilter(**(RIDGES | {"rng": 0} | options))


@cache
def fitted(name):
    return make(**OPTIONS[name]).fit([X[:60], X[60:]], [Z[:60], Z[60:]])


def loop(model, X, gaps=None):
    state, found, infos = model.start(), [], []
    for t, x in enumerate(X):
        state, info = model.step(state, x, steps=1 if gaps is None or t == 0 else int(gaps[t]))
        found.append(state.belief.weights)
        infos.append(info)
    return np.array(found), infos, state


def close(found, expected, tol=1e-9):
    np.testing.assert_allclose(found, expected, rtol=0, atol=tol * np.abs(expected).max())


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("data", [NEW, HOLES], ids=["whole", "holes"])
def test_filter_is_the_loop_of_step(name, data):
    model = fitted(name)
    found, infos, _ = loop(model, data)
    beliefs = model.filter(data)
    close(found, beliefs.weights)
    np.testing.assert_allclose([i.support for i in infos], beliefs.info.support)
    assert beliefs.mean().shape == (len(data), 2)
    assert np.isfinite(beliefs.mean()).all()


@pytest.mark.parametrize("name", ["lags", "regression", "tracked"])
def test_gaps_in_a_window(name):
    model, gaps = fitted(name), np.array([1, 1, 3, 1, 2, *[1] * 13])
    filled_in = np.full((int(gaps.sum()), 2), np.nan)
    kept = np.cumsum(gaps) - 1
    filled_in[kept] = NEW
    beliefs = model.filter(NEW, gaps=gaps)
    close(beliefs.weights, model.filter(filled_in).weights[kept])
    close(loop(model, NEW, gaps)[0], beliefs.weights)


@pytest.mark.parametrize("name", ["lags", "regression", "order"])
def test_many_sequences_are_each_alone(name):
    model = fitted(name)
    together = model.filter([NEW, NEW[4:]])
    close(together[1].weights, model.filter(NEW[4:]).weights)


@pytest.mark.parametrize("name", OPTIONS)
def test_smoothing_and_forecasting_go_on(name):
    model = fitted(name)
    assert np.isfinite(model.smooth(NEW).mean()).all()
    ahead = model.forecast(NEW, 3)
    assert ahead.mean().shape == (3, 2)
    assert ahead.observations.mean().shape == (3, 2)


# --- windows --------------------------------------------------------------------------------------


def test_windows_hold_the_newest_first_and_nothing_before_the_start():
    X = np.arange(8.0).reshape(4, 2)
    nan = np.nan
    np.testing.assert_array_equal(
        windows(X, 2), [[0, 1, nan, nan], [2, 3, 0, 1], [4, 5, 2, 3], [6, 7, 4, 5]]
    )
    np.testing.assert_array_equal(
        windows(X, 2, [1, 2, 1, 1])[:3, 2:], [[nan] * 2, [nan] * 2, [2, 3]]
    )
    X[1] = nan
    assert np.isnan(windows(X, 2)[1]).all()  # nothing was observed, so nothing is conditioned on


def test_lags_are_a_filter_on_stacked_observations():
    lags = (1.0, 1.5)
    model = make(kernel_x=kb.Gaussian(0.8), kernel_z=kb.Gaussian(0.7), lags=lags).fit(X, Z)
    nothing = np.full((1, 2), np.nan)
    stack = lambda x: np.hstack([x, np.vstack([nothing, x[:-1]])])  # noqa: E731
    plain = make(kernel_x=kb.Gaussian((0.8, 0.8, 1.2, 1.2)), kernel_z=kb.Gaussian(0.7))
    close(model.filter(NEW).weights, plain.fit(stack(X), Z).filter(stack(NEW)).weights)


def test_the_first_of_a_window_is_conditioned_on_alone():
    kernels = {"kernel_x": kb.Gaussian(0.8), "kernel_z": kb.Gaussian(0.7)}
    model = make(lags=(1.0, 1.0, 1.0), **kernels).fit(X, Z)
    plain = make(**kernels).fit(X, Z)
    close(model.filter(NEW[:1]).weights, plain.filter(NEW[:1]).weights)


@pytest.mark.parametrize("kernel", [kb.Gaussian(0.8), kb.Gaussian((0.8, 2.0)), kb.Laplace(1.0)])
def test_the_kernel_of_a_window_is_a_product_over_lags(kernel):
    A, B = RNG.normal(size=(2, 5, 4))
    k = window_kernel(kernel, 2, (1.0, 2.0))
    expected = kernel(A[:, :2], B[:, :2]) * kernel(A[:, 2:] / 2.0, B[:, 2:] / 2.0)
    np.testing.assert_allclose(k(A, B), expected)


def sloped(rng, length):
    """The state is the sign of a walk's last step; one observation of the walk says nothing."""
    sign = np.where(np.cumsum(rng.random(length) < 0.2) % 2, 1.0, -1.0)
    where = np.cumsum(0.5 * sign)
    return sign[:, None], (where - np.round(where / 5.0) * 5.0)[:, None] + 0.02 * rng.normal(
        size=(length, 1)
    )


def test_a_window_knows_what_no_single_observation_says():
    rng = np.random.default_rng(1)
    (z, x), (truth, new) = sloped(rng, 300), sloped(rng, 100)
    options = {"kernel_x": kb.Gaussian(0.5), "kernel_z": kb.Gaussian(0.5)}
    wrong = [
        np.mean(np.sign(make(lags=lags, **options).fit(x, z).filter(new).mean()) != truth)
        for lags in (1, 2)
    ]
    assert wrong[1] < 0.5 * wrong[0]


def test_scales_leave_out_lags_that_say_nothing():
    rng = np.random.default_rng(0)
    z = rng.normal(size=(200, 1))
    x = z + 0.1 * rng.normal(size=z.shape)  # independent over time: only the newest matters
    W = windows(x, 4)[3:]
    scales = choose_scales(kb.Gaussian(1.0), W, None, z[3:], kb.Gaussian(1.0), 4)
    assert scales[-1] > 3.0 * scales[0]
    model = make(lags=4).fit(x, z)
    assert model.lags_ == make(lags=model.lags_).fit(x, z).lags_


# --- velocity -------------------------------------------------------------------------------------


def swinging(rng, length):
    """A pendulum seen from the side: where it goes next depends on which way it moves."""
    angle = rng.uniform(0, 6) + 0.3 * np.arange(length) + 0.02 * np.cumsum(rng.normal(size=length))
    z = np.sin(angle)[:, None]
    return z, z + 0.05 * rng.normal(size=z.shape)


def test_velocity_says_which_way_it_goes_on():
    rng = np.random.default_rng(2)
    (z, x), (truth, new) = swinging(rng, 250), swinging(rng, 60)
    errors = []
    for order in (1, 2):
        model = make(order=order, features="raw", kernel_z=kb.Gaussian(0.3)).fit(x, z)
        ahead = [model.forecast(new[:t], 3).mean()[-1] - truth[t + 2] for t in range(10, 50, 4)]
        errors.append(np.mean(np.square(ahead)))
    assert errors[1] < 0.5 * errors[0]


def test_velocity_with_controls_and_sequences_of_one_step():
    u = RNG.normal(size=(130, 1))
    model = make(order=2).fit([X, X[:1]], [Z, Z[:1]], [u, u[:1]])
    assert np.isfinite(model.filter(NEW, u[:18]).mean()).all()


def test_states_that_stand_still_have_no_velocity():
    x = RNG.normal(size=(40, 1))
    model = make(order=2, kernel_z=kb.Gaussian(1.0)).fit(x, np.zeros((40, 1)))
    assert np.isfinite(model.filter(x[:5]).mean()).all()


# --- regression features --------------------------------------------------------------------------


def test_features_are_predicted_by_a_regression_that_has_not_seen_them():
    rng = np.random.default_rng(0)
    W, z = rng.normal(size=(200, 5)), rng.normal(size=(200, 1))  # nothing to learn
    _, left_out = learn_regression(W, 5, z, kb.Gaussian(1.0), 0)
    assert np.mean((left_out - z) ** 2) > 0.95 * np.var(z)


def test_a_regression_that_is_needed_again_is_learned_once(monkeypatch):
    W, z = RNG.normal(size=(60, 2)), RNG.normal(size=(60, 1))
    first = learn_regression(W, 2, z, kb.Gaussian(1.0), 0)
    monkeypatch.setattr(regression, "_learned", lambda *_: pytest.fail("learned again"))
    assert learn_regression(W.copy(), 2, z.copy(), kb.Gaussian(2.0), 0) is first
    monkeypatch.undo()
    other = learn_regression(W, 2, z + 1.0, kb.Gaussian(1.0), 0)
    np.testing.assert_allclose(other[1], first[1] + 1.0)


def test_features_estimate_the_state():
    model = fitted("regression")
    estimates = model.encoder_(NEW)
    error = np.mean((estimates[2:] - NEW_Z[2:]) ** 2)
    assert error < 0.8 * np.mean((NEW[2:] - NEW_Z[2:]) ** 2)


def test_holes_are_filled_by_the_nearest_in_time():
    nan = np.nan
    V = np.array([[nan, 2.0, 3.0], [1.0, nan, nan], [nan, nan, nan], [1.0, nan, 3.0]])
    expected = [[2.0, 2.0, 3.0], [1.0, 1.0, 1.0], [7.0, 8.0, 9.0], [1.0, 3.0, 3.0]]
    np.testing.assert_array_equal(filled(V, 1, np.array([7.0, 8.0, 9.0])), expected)


def test_states_that_are_not_vectors_are_regressed_by_features():
    angle = np.arctan2(Z[:, 1], Z[:, 0])
    model = make(features="regression", kernel_z=kb.Periodic(1.0, 2 * np.pi)).fit(X, angle)
    found = model.filter(NEW).mean()[:, 0]
    truth = np.arctan2(NEW_Z[:, 1], NEW_Z[:, 0])
    assert np.mean(np.cos(found - truth)) > 0.9


# --- bad input ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"lags": 0}, "lags must be an integer"),
        ({"lags": (1.0, -1.0)}, "each lags must be positive"),
        ({"lags": 200}, "no sequence has so many steps"),
        ({"order": 3}, "order must be one of 1, 2"),
        ({"features": "deep"}, "features must be"),
        ({"order": 2, "kernel_z": kb.Delta()}, "order=2 needs states that are vectors"),
    ],
)
def test_options_that_make_no_sense(options, words):
    with pytest.raises(ValueError, match=words):
        make(**options).fit(X, Z)


def test_windows_need_vectors():
    with pytest.raises(TypeError, match="lags=2 needs X to be vectors"):
        make(lags=2, kernel_x=kb.Delta()).fit(["a", "b"] * 10, np.arange(20.0))
    with pytest.raises(TypeError, match="lags must be"):
        make(lags="2").fit(X, Z)
    with pytest.raises(ValueError, match="3 columns, but the filter learned from 2"):
        fitted("lags").filter(np.zeros((4, 3)))


def test_calibration_and_saved_states_know_the_window():
    model = fitted("lags")
    calibration = model.calibrate([X[:60], X[60:]], [Z[:60], Z[60:]], parts=2)
    assert calibration.interval(model.filter(NEW), 0.9).shape == (18, 2, 2)


def test_wide_windows_are_seen_through_few_directions():
    rng = np.random.default_rng(8)
    Z = np.cumsum(rng.normal(size=(200, 2)), axis=0)
    scale, mixed = Z.std(axis=0), rng.normal(size=(2, MOST_DIRECTIONS + 50))
    X = Z / scale @ mixed + 0.1 * rng.normal(size=(200, MOST_DIRECTIONS + 50))
    learned, left_out = learn_regression(X, X.shape[1], Z, kb.Gaussian(1.0), 0)
    metric = learned.basis.metric
    assert metric.shape[1] <= MOST_DIRECTIONS < metric.shape[0]
    np.testing.assert_allclose(metric.T @ metric, np.eye(metric.shape[1]), atol=1e-8)
    # A hundred columns each say the state to a tenth of its spread.
    assert np.mean(((left_out - Z) / scale) ** 2) < 0.01
    assert learned(X[:3]).shape == (3, 2)
