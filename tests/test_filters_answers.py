"""What filters answer: forecasts from live states, many sequences, holes in states, arcs."""

import pickle
import re

import numpy as np
import pytest

import kernelbayes as kb

RIDGES = {"prior_ridge": 1e-4, "transition_ridge": 1e-4, "ridge": 1e-2}


def circling(rng, length, noise=0.2):
    """A point going round with noise, seen through noise; 2-d."""
    angle = rng.uniform(0, 6) + np.cumsum(0.3 + 0.1 * rng.normal(size=length))
    z = np.column_stack([np.cos(angle), np.sin(angle)])
    return z, z + noise * rng.normal(size=z.shape)


RNG = np.random.default_rng(0)
Z, X = circling(RNG, 100)
_, NEW = circling(RNG, 12)
U = RNG.normal(size=(100, 1))


def make(**options):
    return kb.KernelBayesFilter(**(RIDGES | {"rng": 0} | options))


def live(model, X, controls=None):
    state = model.start()
    for t, x in enumerate(X):
        state, _ = model.step(state, x, None if controls is None or t == 0 else controls[t])
    return state


def stay(z, rng, control=None):
    return z + 0.1 * rng.normal(size=z.shape)


# --- forecasts from a live state ------------------------------------------------------------------


@pytest.mark.parametrize(
    "model",
    [
        make(),
        make(lags=3, order=2),
        kb.KernelMonteCarloFilter(stay, lambda m, rng: rng.normal(size=(m, 2)), rng=0),
    ],
    ids=["bayes", "lags", "montecarlo"],
)
def test_a_forecast_from_a_live_state_is_that_from_its_observations(model):
    model.fit(X, Z)
    found, expected = model.forecast(live(model, NEW), 4), model.forecast(NEW, 4)
    np.testing.assert_allclose(found.weights, expected.weights, atol=1e-9)
    np.testing.assert_allclose(found.observations.mean(), expected.observations.mean(), atol=1e-8)


def test_a_forecast_from_a_live_state_takes_the_controls_to_come():
    model = make().fit(X, Z, U)
    known, future = U[:12], U[12:16]
    found = model.forecast(live(model, NEW, known), 4, future)
    expected = model.forecast(NEW, 4, np.vstack([known, future]))
    np.testing.assert_allclose(found.weights, expected.weights, atol=1e-9)
    with pytest.raises(ValueError, match="was fitted with controls"):
        model.forecast(live(model, NEW, known), 4)


def test_a_forecast_needs_a_state_of_its_own_after_a_step():
    model = make().fit(X, Z)
    with pytest.raises(ValueError, match="after at least one step"):
        model.forecast(model.start(), 2)
    other = make().fit(X[:50], Z[:50])
    with pytest.raises(ValueError, match="another filter"):
        model.forecast(live(other, NEW), 2)


# --- many sequences -------------------------------------------------------------------------------


def test_many_beliefs_answer_for_all():
    model = make().fit(X, Z)
    for ask in (model.filter, model.smooth, lambda x: model.forecast(x, 3)):
        many = ask([NEW, NEW[:5]])
        assert len(many) == 2
        for one, mean, ends in zip(many, many.mean(), many.interval(0.9), strict=True):
            np.testing.assert_array_equal(mean, one.mean())
            np.testing.assert_array_equal(ends, one.interval(0.9))
    many = model.filter([NEW, NEW[:5]])
    assert [len(info.ess) for info in many.info] == [12, 5]
    assert isinstance(many[0], kb.Beliefs)
    assert many == list(many)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(many))[1].weights, many[1].weights)
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = many.nonsense


def test_many_beliefs_are_one_table():
    pytest.importorskip("pandas")
    frame = make().fit(X, Z).filter([NEW, NEW[:5]]).to_frame()
    assert frame.shape[0] == 17
    assert list(frame.index.names) == ["sequence", "t"]


# --- holes in the states --------------------------------------------------------------------------


def test_a_hole_in_the_states_says_where_to_split_and_how():
    holes = Z.copy()
    holes[[40, 41, 70], 0] = np.nan
    model = make()
    with pytest.raises(ValueError, match="Split the sequence here") as caught:
        model.fit(X, holes)
    assert "3 rows, first in row 40" in str(caught.value)
    code = re.findall(r"^    (.*)$", str(caught.value), re.MULTILINE)
    exec("\n".join(code), {"np": np, "model": model, "X": X, "Z": holes})
    assert model.lengths_ == (40, 28, 29)
    with pytest.raises(ValueError, match="of sequence 1, first in row 40"):
        model.fit([X, X], [Z, holes])


# --- arcs -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["equal-tailed", "highest"])
def test_an_interval_on_a_circle_is_an_arc_that_turns_with_the_points(kind):
    rng = np.random.default_rng(1)
    angle = 12.0 + 1.5 * rng.normal(size=200)  # of 24 hours, far from midnight
    weights = rng.random(200)
    kernel = kb.Periodic(0.5, 24.0)
    low, high = kb.embed(angle, kernel, weights).interval(0.9, kind=kind)[0]
    line = kb.embed(angle, kb.Gaussian(1.0), weights).interval(0.9, kind=kind)[0]
    np.testing.assert_allclose([low, high], line, atol=1e-9)
    turned = kb.embed((angle + 12.0) % 24.0, kernel, weights).interval(0.9, kind=kind)[0]
    np.testing.assert_allclose(turned - 12.0, [low, high], atol=1e-9)  # across midnight
    assert 0.0 <= turned[0] < 24.0 < turned[1]


def test_arcs_of_columns_and_of_batches():
    angle = np.array([23.0, 1.0, 11.0, 13.0])
    points = np.column_stack([angle, np.arange(4.0)])
    kernel = kb.Parts({0: kb.Periodic(1.0, 24.0), 1: kb.Gaussian(1.0)})
    W = np.array([[0.5, 0.5, 0.0, 0.0], [0.0, 0.0, 0.5, 0.5]])
    ends = np.array([kb.embed(points, kernel, w).interval(0.5) for w in W])
    np.testing.assert_allclose(ends[:, 0, 1] - ends[:, 0, 0], [2.0, 2.0])
    np.testing.assert_allclose(ends[0, 0], [23.0, 25.0])
    np.testing.assert_allclose(ends[:, 1], [[0.0, 1.0], [2.0, 3.0]])
