"""The laws of the door for filters: by name, missing is missing, copies are kept."""

import numpy as np
import pandas as pd
import polars as pl
import pytest

import kernelbayes as kb
from door import ask_by_name, assert_put_in_order, every_frame, frame_of, plain

rng = np.random.default_rng(0)
T = 30
angle = np.cumsum(0.3 + 0.1 * rng.normal(size=T))
# Columns of different scales: read in the wrong order they give another answer.
Z = np.column_stack([np.cos(angle), 5.0 * np.sin(angle)])
X = Z * [1.0, 0.4] + 0.2 * rng.normal(size=Z.shape)
U = rng.normal(size=(T, 2)) * [1.0, 3.0]
NEW, PRIOR, ACTS = X[5:11] + 0.05, Z[:8], U[5:11]
KX, KZ, KU = kb.Gaussian([1.0, 2.0]), kb.Gaussian([1.0, 5.0]), kb.Gaussian([2.0, 6.0])
NAMES = {"x": ("a", "b"), "z": ("s", "t"), "u": ("p", "q")}
RIDGES = {"prior_ridge": 1e-3, "ridge": 1e-2, "back_ridge": 0.1, "rng": 0}


def bayes(make, **options):
    model = kb.KernelBayesFilter(KX, KZ, transition_ridge=1e-3, **RIDGES, **options)
    return model.fit(make(X, "x"), make(Z, "z"))


def controlled(make):
    model = kb.KernelBayesFilter(KX, KZ, KU, transition_ridge=1e-3, **RIDGES)
    return model.fit(make(X, "x"), make(Z, "z"), make(U, "u"))


def walk(z, rng, control=None):
    return z + 0.1 * rng.normal(size=z.shape)


def carlo(make, initial=PRIOR, transition=walk):
    model = kb.KernelMonteCarloFilter(transition, initial, KX, KZ, **RIDGES)
    return model.fit(make(X, "x"), make(Z, "z"))


ASKED = {
    "filter": lambda make, q: bayes(make).filter(q(NEW, "x")).weights,
    "filter many": lambda make, q: bayes(make).filter([make(NEW, "x"), q(NEW, "x")])[1].weights,
    "fit many": lambda make, q: (
        kb.KernelBayesFilter(KX, KZ, transition_ridge=1e-3, **RIDGES)
        .fit([make(X, "x"), q(X, "x")], [make(Z, "z"), q(Z, "z")])
        .filter(NEW)
        .weights
    ),
    "windows": lambda make, q: bayes(make, lags=2).filter(q(NEW, "x")).weights,
    "smooth": lambda make, q: bayes(make).smooth(q(NEW, "x")).weights,
    "forecast": lambda make, q: bayes(make).forecast(q(NEW, "x"), 2).weights,
    "controls": lambda make, q: controlled(make).filter(make(NEW, "x"), q(ACTS, "u")).weights,
    "start": lambda make, q: bayes(make).start(q(PRIOR, "z")).belief.weights,
    "start, embedded": lambda make, q: (
        bayes(make).start(kb.embed(q(PRIOR, "z"), kb.Gaussian(2.0))).belief.weights
    ),
    "calibrate, X": lambda make, q: bayes(make).calibrate(q(X, "x"), make(Z, "z"), parts=2).pit,
    "calibrate, Z": lambda make, q: bayes(make).calibrate(make(X, "x"), q(Z, "z"), parts=2).pit,
    "particles": lambda make, q: carlo(make).filter(q(NEW, "x")).weights,
    "particles, initial": lambda make, q: carlo(make, q(PRIOR, "z")).start().belief.weights,
    "particles, start": lambda make, q: carlo(make).start(q(PRIOR, "z")).belief.weights,
    "particles, moved": lambda make, q: (
        carlo(make, transition=lambda z, rng, control=None: q(z, "z")).filter(NEW).weights
    ),
}
every_question = pytest.mark.parametrize("ask", ASKED.values(), ids=ASKED.keys())


@every_frame
@every_question
def test_columns_are_put_in_order(ask, kind):
    assert_put_in_order(ask, kind, NAMES, 1e-10)


@every_frame
@every_question
def test_other_columns_are_refused_with_both_lists(ask, kind):
    with pytest.raises(ValueError, match=r"\['[asp]', 'other'\].*\['[asp]', '[btq]'\]"):
        ask_by_name(ask, kind, NAMES, renamed=True)


ROWS = {
    "mapping": lambda v, n: {n[1]: v[1], n[0]: v[0]},
    "pandas row": lambda v, n: pd.Series({n[1]: v[1], n[0]: v[0]}),
    "frame of one row": lambda v, n: pl.DataFrame({n[1]: [v[1]], n[0]: [v[0]]}),
}


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS.keys())
def test_one_observation_is_read_by_name(row):
    model = controlled(lambda values, role: frame_of(pd.DataFrame, values, NAMES[role]))
    expected = state = model.start()
    for x, u in zip(NEW[:3], ACTS[:3], strict=True):
        expected, _ = model.step(expected, x, u)
        state, _ = model.step(state, row(x, NAMES["x"]), row(u, NAMES["u"]))
    np.testing.assert_allclose(state.belief.weights, expected.belief.weights, rtol=1e-9)
    with pytest.raises(ValueError, match=r"\['c', 'a'\].*\['a', 'b'\]"):
        model.step(state, row(NEW[0], ("a", "c")), ACTS[0])


# --- missing --------------------------------------------------------------------------------------

HOLES = NEW.copy()
HOLES[2], HOLES[4, 1] = np.nan, np.nan


def nullable(values):
    return pd.DataFrame(values, columns=["a", "b"]).astype("Float64").convert_dtypes()


FORMS = {
    "masked": lambda v: np.ma.array(np.where(np.isnan(v), 1e5, v), mask=np.isnan(v)),
    "objects": lambda v: np.where(np.isnan(v), None, v),
    "nullable": nullable,
    "polars nulls": lambda v: pl.DataFrame({"a": v[:, 0], "b": v[:, 1]}, nan_to_null=True),
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS.keys())
def test_what_is_missing_is_not_seen(form):
    model = bayes(plain)
    expected = model.filter(HOLES)
    np.testing.assert_allclose(model.filter(form(HOLES)).weights, expected.weights, rtol=1e-9)
    np.testing.assert_allclose(
        kb.KernelBayesFilter(KX, KZ, transition_ridge=1e-3, **RIDGES)
        .fit(form(np.vstack([HOLES, X])), np.vstack([Z[5:11], Z]))
        .filter(NEW)
        .weights,
        kb.KernelBayesFilter(KX, KZ, transition_ridge=1e-3, **RIDGES)
        .fit(np.vstack([HOLES, X]), np.vstack([Z[5:11], Z]))
        .filter(NEW)
        .weights,
        rtol=1e-9,
    )
    with pytest.raises(ValueError, match="NaN"):  # states may not be missing
        model.fit(X, form(np.where(Z[3] == Z, np.nan, Z)))


def test_masked_observations_of_a_step():
    model = bayes(plain)
    state, _ = model.step(model.start(), NEW[0])
    for masked, same in (
        (np.ma.array([1e5, 2.0], mask=[1, 0]), np.array([np.nan, 2.0])),
        (np.ma.array([1e5, 1e5], mask=[1, 1]), None),
        (np.ma.masked, None),
    ):
        found, info = model.step(state, masked)
        expected, told = model.step(state, same)
        np.testing.assert_array_equal(found.belief.weights, expected.belief.weights)
        assert info.observed == told.observed


# --- buffers --------------------------------------------------------------------------------------


def both(a):
    return [a["X"][:15], a["X"][15:]], [a["Z"][:15], a["Z"][15:]]


FIXED = {"transition_ridge": 1e-3, **RIDGES}
KEPT = {
    "filter": lambda a: kb.KernelBayesFilter(KX, KZ, **FIXED).fit(a["X"], a["Z"]),
    "windows": lambda a: kb.KernelBayesFilter(KX, KZ, lags=2, **FIXED).fit(a["X"], a["Z"]),
    "many": lambda a: kb.KernelBayesFilter(KX, KZ, **FIXED).fit(*both(a)),
    "list of one": lambda a: kb.KernelBayesFilter(KX, KZ, **FIXED).fit([a["X"]], [a["Z"]]),
    "rank": lambda a: kb.KernelBayesFilter(KX, KZ, rank=10, **FIXED).fit(a["X"], a["Z"]),
    "particles": lambda a: kb.KernelMonteCarloFilter(walk, PRIOR, KX, KZ, **RIDGES).fit(
        a["X"], a["Z"]
    ),
}


@pytest.mark.parametrize("make", KEPT.values(), ids=KEPT.keys())
def test_a_filter_owns_its_data(make):
    given = {"X": X.copy(), "Z": Z.copy()}
    model, fresh = make(given), make({"X": X.copy(), "Z": Z.copy()})
    state, _ = model.step(model.start(), NEW[0])
    other, _ = fresh.step(fresh.start(), NEW[0])
    given["X"][...], given["Z"][...] = 7.0, 7.0
    for ask in (
        lambda m: m.filter(NEW).mean(),
        lambda m: m.forecast(NEW, 2).observations.mean(),
        lambda m: m.start(PRIOR).belief.weights,
    ):
        np.testing.assert_array_equal(ask(model), ask(fresh))
    for x in NEW[1:4]:
        state, other = model.step(state, x)[0], fresh.step(other, x)[0]
    np.testing.assert_array_equal(state.belief.mean(), other.belief.mean())


def test_a_state_owns_its_data():
    model = controlled(plain)
    state, reused = model.start(lag=3), model.start(lag=3)
    x, u = np.empty(2), np.empty(2)  # buffers that are used again at every step
    for new, act in zip(NEW, ACTS, strict=True):
        x[:], u[:] = new, act
        state, reused = model.step(state, new, act)[0], model.step(reused, x, u)[0]
    np.testing.assert_array_equal(model.smoothed(reused).weights, model.smoothed(state).weights)


def test_no_copy_for_those_who_know():
    given, states = X.copy(), Z.copy()
    model = kb.KernelBayesFilter(KX, KZ, **FIXED).fit(given, states, copy=False)
    assert np.shares_memory(model.Z_, states)
    model = kb.KernelMonteCarloFilter(walk, PRIOR, KX, KZ, **RIDGES).fit(given, states, copy=False)
    assert np.shares_memory(model.Z_, states)


# --- in our own words -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda m: m.fit(map(list, X), Z), TypeError, r"list\(...\)"),
        (lambda m: m.filter(map(list, X)), TypeError, r"list\(...\)"),
        (lambda m: m.forecast(iter(X), 2), TypeError, r"list\(...\)"),
        (lambda m: m.forecast(NEW, np.inf), ValueError, "horizon must be an integer"),
        (lambda m: m.forecast(NEW, 10**400), ValueError, "horizon must be an integer"),
        (lambda m: m.forecast(NEW, "2"), TypeError, "horizon must be an integer"),
        (lambda m: m.smooth(NEW, lag=1.5), ValueError, "lag must be an integer"),
        (lambda m: m.start(lag=True), TypeError, "lag must be an integer"),
        (lambda m: m.filter(NEW, gaps=["a"] * 6), TypeError, "gaps must hold numbers"),
        (lambda m: m.fit({"a": X[:, 0], "b": X[:4, 1]}, Z), ValueError, "must be aligned"),
        (lambda m: m.filter(np.array(["2026"] * 6, "M8[Y]")), TypeError, "dates or times"),
        (lambda m: kb.tune(m, X, Z, prior=Z), TypeError, "tune of a KernelBayesFilter"),
        (lambda m: kb.tune(m, X, Z, budget=np.inf), ValueError, "budget must be finite"),
        (lambda m: m.set_params(transition=["shift"]).fit(X, Z), ValueError, "transition must be"),
        (lambda m: m.set_params(kernel_x="rbf").fit(X, Z), TypeError, "kernel_x must be a"),
    ],
)
def test_mistakes_are_named(call, error, message):
    with pytest.raises(error, match=message):
        call(bayes(plain))


# --- tables ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["mass", "t"], ["mass", "mass_low", "mass_high", "t", "t_low", "t_high", "mass_2"]),
        (["a", "a_low"], ["a", "a_low_2", "a_high", "a_low", "a_low_low", "a_low_high", "mass"]),
        (["a", "a"], ["a", "a_low", "a_high", "a_2", "a_2_low", "a_2_high", "mass"]),
    ],
)
def test_no_column_of_a_table_is_lost(names, expected):
    model = kb.KernelBayesFilter(KX, KZ, **FIXED).fit(X, pd.DataFrame(Z, columns=names))
    beliefs = model.filter(NEW)
    frame = beliefs.to_frame()
    assert list(frame.columns[:7]) == expected
    np.testing.assert_array_equal(frame[[expected[0], expected[3]]], beliefs.mean())
    np.testing.assert_array_equal(frame[expected[6]], beliefs.info.mass)
    assert frame.reset_index().shape[1] == frame.shape[1] + 1


@pytest.mark.parametrize("make", ["operator", "particles"])
def test_a_filter_owns_its_initial_states(make):
    given = np.array(PRIOR)
    model = (
        kb.KernelBayesFilter(KX, KZ, initial=given, transition_ridge=1e-3, **RIDGES)
        if make == "operator"
        else kb.KernelMonteCarloFilter(walk, given, KX, KZ, **RIDGES)
    )
    model.fit(X, Z)
    wanted = model.start().belief.weights
    given[:] = 1e6
    np.testing.assert_array_equal(model.start().belief.weights, wanted)


@pytest.mark.parametrize("nothing", [None, np.nan, 3.0])
def test_no_sample_of_observations_is_refused_in_our_words(nothing):
    with pytest.raises((TypeError, ValueError), match=r"sample|points|shape|observations|empty"):
        kb.KernelMonteCarloFilter(walk, PRIOR, KX, KZ, **RIDGES).fit(nothing, Z)
    with pytest.raises((TypeError, ValueError), match=r"sample|points|shape|observations|empty"):
        kb.KernelBayesFilter(KX, KZ, transition_ridge=1e-3, **RIDGES).fit(nothing, Z)
