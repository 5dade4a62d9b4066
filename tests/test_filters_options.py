"""Options that race by default: windows, velocity, regressions, exponents."""

import numpy as np
import pytest

import kernelbayes as kb
from kernelbayes.filters.choose.options import PLAIN, reach
from kernelbayes.filters.encode.lags import block_errors, windows
from kernelbayes.filters.encode.regression import window_error
from kernelbayes.filters.sequences import Part
from kernelbayes.filters.smooth import backward

pytestmark = pytest.mark.filterwarnings("ignore:.*unlike anything:kernelbayes.NumericalWarning")
FIRST_ORDER = {"lags": 1, "order": 1, "features": "raw"}


def half_seen(rng, length):
    """A point that goes round at a steady pace, of which only one coordinate is seen."""
    angle = np.cumsum(0.3 + 0.03 * rng.normal(size=length))
    z = np.column_stack([np.cos(angle), np.sin(angle)])
    return z[:, :1] + 0.2 * rng.normal(size=(length, 1)), z


def error(model, x, z):
    return float(np.mean(np.sum((model.filter(x).mean() - z) ** 2, axis=1)))


def test_what_one_observation_does_not_say_is_found():
    rng = np.random.default_rng(0)
    (x, z), (new, truth) = half_seen(rng, 300), half_seen(rng, 200)
    alone = {"memory": 0.0, "tempering": 1.0, "rng": 0}
    plain = kb.KernelBayesFilter(**alone, **FIRST_ORDER).fit(x, z)
    model = kb.KernelBayesFilter(**alone).fit(x, z)
    assert len(model.lags_) > 1  # without memory, only a window knows the direction
    assert error(model, new, truth) < 0.5 * error(plain, new, truth)
    assert plain.lags_ == (1.0,)
    assert (plain.order_, plain.features_) == (1, "raw")


@pytest.mark.parametrize("seed", [1, 2])
def test_the_choice_is_no_worse_than_what_it_was_compared_with(seed):
    x, z = half_seen(np.random.default_rng(seed), 160)
    model = kb.KernelBayesFilter(rng=0).fit(x, z)
    (chosen,) = (row for row in model.choice_.table if row["chosen"])
    without = [row for row in model.choice_.table if row["memory"] == 0.0]
    assert without
    # Rivals that fell behind have no score. The middle of the best may lose a standard error.
    assert chosen["score"] <= 1.1 * min(row["score"] for row in without)
    # Other options must be better by two standard errors, which may be more than that.
    options = ("lags", "order", "features")
    alike = [r for r in model.choice_.table if all(r[name] == chosen[name] for name in options)]
    assert chosen["score"] <= 1.1 * min(row["score"] for row in alike)


def test_what_is_given_is_kept():
    x, z = half_seen(np.random.default_rng(3), 120)
    model = kb.KernelBayesFilter(rng=0, lags=(1.0, 1.5), order=2, features="raw").fit(x, z)
    assert (model.lags_, model.order_, model.features_) == ((1.0, 1.5), 2, "raw")
    assert {row["order"] for row in model.choice_.table} == {2}
    ridges = {"ridge": 0.01, "prior_ridge": 1e-4, "transition_ridge": 1e-4}
    given = kb.KernelBayesFilter(kb.Gaussian(0.5), kb.Gaussian(0.4), rng=0, **ridges).fit(x, z)
    assert {name: given.choice_.arguments[name] for name in PLAIN} == PLAIN


@pytest.mark.parametrize("method", ["importance", "original"])
def test_a_ridge_that_is_given_is_kept_whatever_option_wins(method):
    x, z = half_seen(np.random.default_rng(4), 200)
    assert kb.KernelBayesFilter(method=method, ridge=0.05, rng=0).fit(x, z).ridge_ == 0.05


@pytest.mark.parametrize("options", [{"lags": "all"}, {"order": 3}, {"features": "none"}])
def test_options_that_do_not_exist_are_named(options):
    x, z = half_seen(np.random.default_rng(4), 40)
    with pytest.raises((TypeError, ValueError), match=next(iter(options))):
        kb.KernelBayesFilter(**options).fit(x, z)


def test_windows_are_tried_where_they_reach_back():
    long, short = (Part(np.zeros((n, 1)), np.zeros((n, 1)), None) for n in (20, 3))
    assert reach([long, short], 4)
    assert not reach([short] * 10, 4)
    assert not reach([Part(["a"] * 20, np.zeros((20, 1)), None)], 4)


def test_errors_of_blocks_are_those_of_explicit_regressions():
    rng = np.random.default_rng(5)
    F, H, ridges = rng.normal(size=(30, 4)), rng.normal(size=(30, 2)), np.array([1e-3, 0.1, 2.0])
    block, expected = np.arange(30) // 10, np.zeros(3)
    for b in range(3):
        A, Y = F[block != b], H[block != b]
        for j, ridge in enumerate(ridges):
            C = np.linalg.solve(A.T @ A / 20 + ridge * np.eye(4), A.T @ Y / 20)
            expected[j] += np.sum((F[block == b] @ C - H[block == b]) ** 2)
    np.testing.assert_allclose(block_errors(F, H, ridges, 3), expected, rtol=1e-10)


def test_the_error_of_a_window_is_in_variances_of_the_state():
    rng = np.random.default_rng(6)
    x, z = half_seen(rng, 400)
    one, four = (window_error(windows(x, k), 1e3 * z, k) for k in (1, 4))
    assert four < 0.6 * one  # the direction is seen
    noise = rng.normal(size=(400, 1))
    assert 0.9 < window_error(windows(noise, 4), z, 4) < 1.2  # nothing is


def test_what_is_unlike_the_sample_is_not_passed_back():
    rng = np.random.default_rng(7)
    z = np.cumsum(rng.normal(size=80)) * 0.3
    x = z + 0.2 * rng.normal(size=80)
    ridges = {"ridge": 0.01, "prior_ridge": 1e-4, "transition_ridge": 1e-4, "back_ridge": 0.1}
    model = kb.KernelBayesFilter(kb.Gaussian(0.4), kb.Gaussian(0.4), rng=0, **ridges).fit(x, z)
    new = x[20:30].copy()
    new[5] = 1e3
    smooth, plain = model.smooth(new), model.filter(new)
    assert plain.info.prior_share[5] == 1.0
    for t in range(10):
        same = np.allclose(smooth.weights[t], plain.weights[t])
        assert same == (t in (4, 5, 9))
    w, later = plain.weights[0], plain.weights[1]
    all_of_it, half = (backward(model.dynamics_, w, later, None, 1, 0.1, k) for k in (0.0, 0.5))
    np.testing.assert_allclose(half, 0.5 * all_of_it + 0.5 * w)
    state = model.start(lag=3)
    for row in new:
        state, _ = model.step(state, row)
    np.testing.assert_allclose(
        model.smoothed(state).weights, model.smooth(new, lag=3).weights[6], atol=1e-10
    )
