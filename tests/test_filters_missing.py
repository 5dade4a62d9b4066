"""Filters on poor data: missing rows and coordinates, outliers, odd scales, long runs."""

import warnings
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import kernelbayes as kb
from kernelbayes.filters import missing
from kernelbayes.filters.missing import filled_by_state

# Some observations are unlike the small training samples, and a warning says so.
pytestmark = pytest.mark.filterwarnings("ignore:.*unlike anything:kernelbayes.NumericalWarning")

METHODS = ["importance", "original"]
RIDGES = {"prior_ridge": 1e-4, "transition_ridge": 1e-4, "ridge": 1e-2, "back_ridge": 3e-2}


def ridges(method):
    return RIDGES | {"method": method, "ridge": 1e-2 if method == "importance" else 1e-4}


def circling(rng, length, noise=0.2):
    """A point going round, seen through noise by three sensors: east, north, and their sum."""
    angle = rng.uniform(0, 6) + np.cumsum(0.3 + 0.1 * rng.normal(size=length))
    z = np.column_stack([np.cos(angle), np.sin(angle)])
    x = np.column_stack([z, z.sum(axis=1)])
    return z, x + noise * rng.normal(size=x.shape)


RNG = np.random.default_rng(0)
Z, X = circling(RNG, 150)
TRUTH, NEW = circling(RNG, 30)
GAUSSIAN = kb.Gaussian(1.0)


def fit(X=X, Z=Z, kernel_x=GAUSSIAN, method="importance", **options):
    model = kb.KernelBayesFilter(kernel_x, kb.Gaussian(0.7), rng=0, **(ridges(method) | options))
    return model.fit(X, Z)


def close(found, expected, tol=1e-9):
    np.testing.assert_allclose(found, expected, rtol=0, atol=tol * np.abs(expected).max())


def sound(beliefs):
    """Finite weights that sum to one, and diagnostics within their ranges."""
    assert np.isfinite(beliefs.weights).all()
    np.testing.assert_allclose(beliefs.weights.sum(axis=1), 1.0, atol=1e-8)
    assert np.isfinite(beliefs.mean()).all()
    support = beliefs.info.support[beliefs.info.observed]
    assert ((support >= 0.0) & (support <= 1.0 + 1e-12)).all()
    assert np.isfinite(beliefs.info.ess).all()


# --- missing rows --------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"transition": "shift"}, {"rank": 50}])
@pytest.mark.parametrize("method", METHODS)
def test_a_missing_row_is_prediction_only(method, options):
    model = fit(method=method, **options)
    holes = np.vstack([NEW[:10], np.full((2, 3), np.nan), NEW[10:]])
    beliefs = model.filter(holes)
    close(beliefs.weights[10:12], model.forecast(NEW[:10], 2).weights)
    assert beliefs.info.observed.tolist() == [True] * 10 + [False] * 2 + [True] * 20
    assert np.isnan(beliefs.info.support[10:12]).all()
    assert not beliefs.info.fallback[10:12].any()  # nothing to fall back from


@pytest.mark.parametrize("blank", [None, np.full(3, np.nan), [np.nan] * 3])
def test_none_and_nan_are_the_same_to_a_step(blank):
    model = fit()
    state, _ = model.step(model.start(), NEW[0])
    state, info = model.step(state, blank)
    close(state.belief.weights, model.forecast(NEW[:1], 1).weights[0])
    assert not info.observed


def test_rows_of_none():
    model = fit()
    rows = [None if t in (0, 3) else row for t, row in enumerate(NEW[:8])]
    numbers = NEW[:8].copy()
    numbers[[0, 3]] = np.nan
    close(model.filter(rows).weights, model.filter(numbers).weights)


def test_nothing_observed_at_all():
    beliefs = fit().filter(np.full((5, 3), np.nan))
    sound(beliefs)
    close(beliefs.weights[0], np.full(150, 1 / 150))


def test_a_missing_first_row_leaves_the_prior():
    model = fit()
    state, info = model.step(model.start(prior=Z[:5]), None)
    close(state.belief.weights, model.start(prior=Z[:5]).belief.weights)
    assert not info.observed


# --- missing coordinates -------------------------------------------------------------------------

PARTS = kb.Parts({0: kb.Gaussian(0.8), 1: kb.Laplace(1.5), 2: kb.Gaussian(1.1)})
PRODUCTS = {
    "gaussian": kb.Gaussian(1.0),
    "gaussian-ard": kb.Gaussian((0.8, 1.2, 1.5)),
    "laplace": kb.Laplace(1.5),
    "laplace-ard": kb.Laplace((1.0, 1.5, 2.0)),
    "parts": PARTS,
    "scaled": 3.0 * kb.Gaussian(1.0),
    "product": kb.Gaussian(1.0) * kb.Laplace(2.0),
}
LEFT = {
    "gaussian-ard": lambda c: kb.Gaussian(tuple((0.8, 1.2, 1.5)[j] for j in c)),
    "laplace-ard": lambda c: kb.Laplace(tuple((1.0, 1.5, 2.0)[j] for j in c)),
    "parts": lambda c: kb.Parts({i: dict(PARTS.parts)[j] for i, j in enumerate(c)}),
}


@pytest.mark.parametrize("columns", [[0], [1, 2], [0, 2]])
@pytest.mark.parametrize("name", list(PRODUCTS))
@pytest.mark.parametrize("method", METHODS)
def test_missing_coordinates_are_a_filter_that_never_saw_them(method, name, columns):
    kernel = PRODUCTS[name]
    left = LEFT.get(name, lambda _: kernel)(columns)
    partial = np.full_like(NEW, np.nan)
    partial[:, columns] = NEW[:, columns]
    found = fit(kernel_x=kernel, method=method).filter(partial)
    expected = fit(X[:, columns], kernel_x=left, method=method).filter(NEW[:, columns])
    # Low-rank Gaussian Gram matrices are used through factors, exact to 1e-12 of the trace.
    close(found.weights, expected.weights, 1e-4 if "gaussian" in str(left).lower() else 1e-8)
    # With a factor, the nearest training point is looked for among its landmarks.
    close(found.info.support, expected.info.support, 0.05)


LAPLACE = fit(kernel_x=kb.Laplace(1.5))


@cache
def laplace_on(columns):
    return fit(X[:, list(columns)], kernel_x=kb.Laplace(1.5))


@given(mask=st.lists(st.lists(st.booleans(), min_size=3, max_size=3), min_size=6, max_size=6))
def test_any_pattern_of_missing_coordinates(mask):
    """Each step is that of the filter of the coordinates present, from the belief before."""
    beliefs = LAPLACE.filter(np.where(mask, NEW[:6], np.nan))
    sound(beliefs)
    np.testing.assert_array_equal(beliefs.info.observed, np.any(mask, axis=1))
    state = LAPLACE.start()
    for t in range(6):
        columns = tuple(np.flatnonzero(mask[t]))
        other = laplace_on(columns or (0,))
        state, _ = other.step(state, NEW[t, list(columns)] if columns else None)
        close(beliefs.weights[t], state.belief.weights, 1e-8)


def test_parts_by_name():
    kernel = kb.Parts({"radio": kb.Gaussian(1.0), "light": kb.Laplace(1.0)})
    data = {"radio": X[:, :2], "light": X[:, 2:]}
    model = fit(data, kernel_x=kernel)
    state, _ = model.step(model.start(), {"radio": NEW[0, :2], "light": None})
    alone = fit(X[:, :2], kernel_x=kb.Gaussian(1.0))
    close(state.belief.weights, alone.filter(NEW[:1, :2]).weights[0], 1e-4)
    _, info = model.step(state, {"radio": None, "light": None})
    assert not info.observed
    sound(model.filter({"radio": NEW[:, :2], "light": NEW[:, 2:]}))


def test_what_is_there_helps():
    partial = NEW.copy()
    partial[10:, 0] = np.nan
    model = fit()
    errors = [
        np.mean((model.filter(x).mean() - TRUTH) ** 2)
        for x in (NEW, partial, np.where(np.arange(30)[:, None] < 10, NEW, np.nan))
    ]
    assert errors[0] < errors[1] < errors[2]


def test_sensors_at_different_rates():
    truth, x = circling(np.random.default_rng(5), 200)
    x[1::2, 0] = np.nan  # every second step
    x[np.arange(200) % 3 > 0, 1:] = np.nan  # every third
    model = fit()
    beliefs = model.filter(x)
    sound(beliefs)
    nothing = np.isnan(x).all(axis=1)
    np.testing.assert_array_equal(beliefs.info.observed, ~nothing)
    one = np.where(np.arange(3) == 0, x, np.nan)
    two = np.where(np.arange(3) > 0, x, np.nan)
    both, *single = [np.mean((model.filter(s).mean() - truth) ** 2) for s in (x, one, two)]
    assert both < min(single)


def test_a_list_with_missing_parts_is_one_at_a_time():
    model = fit()
    a, b = NEW.copy(), NEW[:12].copy()
    a[3, 0], a[4], b[2, 1:] = np.nan, np.nan, np.nan
    for found, part in zip(model.filter([a, b]), (a, b), strict=True):
        close(found.weights, model.filter(part).weights)


def test_kernels_without_coordinates_say_so():
    model = fit(kernel_x=kb.Custom(lambda A, B: np.exp(-np.abs(A[:, :1] - B[:, 0]))))
    partial = NEW.copy()
    partial[0, 1] = np.nan
    with pytest.raises(TypeError, match="missing"):
        model.filter(partial)


def test_many_patterns_keep_memory_bounded():
    rng = np.random.default_rng(1)
    Z8 = np.repeat(Z[:40], 4, axis=1)
    model = fit(Z8 + 0.1 * rng.normal(size=Z8.shape), Z[:40])
    x = np.where(rng.uniform(size=(150, 8)) < 0.5, np.nan, 0.5)
    sound(model.filter(x))
    assert len(model.observations_.patterns) <= 64


@pytest.mark.parametrize("options", [{}, {"rank": 50}, {"lags": 2}, {"ridge": "auto"}])
def test_training_rows_none_of_which_is_complete(options):
    rng = np.random.default_rng(4)
    holes = X.copy()
    holes[np.arange(len(X)), rng.integers(3, size=len(X))] = np.nan
    whole, holed = (fit(x, **options).filter(NEW) for x in (X, holes))
    sound(holed)
    errors = [np.mean((b.mean() - TRUTH) ** 2) for b in (whole, holed)]
    assert errors[1] < 2.0 * errors[0]
    assert errors[1] < 0.5 * np.mean((TRUTH.mean(axis=0) - TRUTH) ** 2)
    partial = NEW.copy()
    partial[::2, 0] = np.nan
    sound(fit(holes, **options).filter(partial))


def test_holes_are_filled_by_the_regression_on_the_state():
    rng = np.random.default_rng(5)
    z = rng.uniform(-2, 2, size=(300, 1))
    x = np.hstack([np.sin(z), z**2]) + 0.05 * rng.normal(size=(300, 2))
    known = np.ones(x.shape, dtype=bool)
    known[np.arange(300), np.arange(300) % 2] = False
    found = filled_by_state(np.where(known, x, 0.0), known, z, kb.Gaussian(1.0))
    np.testing.assert_array_equal(found[known], x[known])
    assert np.sqrt(np.mean((found - x)[~known] ** 2)) < 0.15
    most = known | (np.arange(300) % 5 > 0)[:, None]  # enough rows are complete
    assert filled_by_state(x, most, z, kb.Gaussian(1.0)) is x


def test_patterns_share_a_bound_on_their_memory_and_keep_the_rank(monkeypatch):
    rng = np.random.default_rng(1)
    Z8 = np.repeat(Z, 4, axis=1)
    x = np.where(rng.uniform(size=(60, 8)) < 0.5, np.nan, 0.5)
    model = fit(Z8 + 0.1 * rng.normal(size=Z8.shape), rank=20)
    model.filter(x)
    assert all(o.gram.factor.shape[1] <= 20 for o in model.observations_.patterns.values())
    monkeypatch.setattr(missing, "PATTERN_ENTRIES", 5 * 150 * 20)
    model = fit(Z8 + 0.1 * rng.normal(size=Z8.shape), rank=20)
    few = model.filter(x)
    assert len(model.observations_.patterns) <= 5
    again = model.filter(x)  # what was dropped is made again
    close(again.weights, few.weights)


@pytest.mark.parametrize("bad", [np.inf, -np.inf])
def test_infinite_observations_are_refused(bad):
    x = NEW.copy()
    x[5] = bad
    with pytest.raises(ValueError, match="infinite"):
        fit().filter(x)


# --- never lost ----------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [5.0, 1e3, 1e200])
@pytest.mark.parametrize("options", [{}, {"rank": 50}, {"transition": "shift"}])
@pytest.mark.parametrize("method", METHODS)
def test_a_run_of_outliers_does_not_lose_the_state(method, options, size):
    rng = np.random.default_rng(2)
    seen = circling(rng, 64)[1]
    x = seen.copy()
    x[8:14] += size * rng.choice([-1.0, 1.0], size=(6, 3))
    model = fit(method=method, **options)
    beliefs = model.filter(x)
    sound(beliefs)
    if size > 5.0:
        assert beliefs.info.fallback[8:14].all()
        assert (beliefs.info.support[8:14] < 1e-6).all()
        ahead = model.forecast(x[:8], 6)
        close(beliefs.weights[8:14], ahead.weights, 1e-6)
    assert not beliefs.info.fallback[:8].any()
    clean = model.filter(seen)
    # Two circlings, 42 steps, after the last outlier nothing of them is left.
    close(beliefs.mean()[56:], clean.mean()[56:], 0.05)
    assert np.abs(beliefs.mean()).max() < 2.0


def test_the_first_observation_may_be_an_outlier():
    x = NEW.copy()
    x[0] = 1e6
    model = fit()
    beliefs = model.filter(x)
    sound(beliefs)
    assert beliefs.info.fallback[0]
    close(beliefs.weights[0], np.full(150, 1 / 150), 1e-6)


@pytest.mark.parametrize("method", METHODS)
def test_only_outliers(method):
    beliefs = fit(method=method).filter(np.full((40, 3), 1e9))
    sound(beliefs)
    assert beliefs.info.fallback.all()


@pytest.mark.parametrize("method", METHODS)
def test_smoothing_and_forecasting_through_outliers(method):
    x = NEW.copy()
    x[10:13] = 1e5
    model = fit(method=method)
    for beliefs in (model.smooth(x), model.smooth(x, lag=2), model.forecast(x[:12], 5)):
        assert np.isfinite(beliefs.weights).all()
        assert np.abs(beliefs.mean()).max() < 2.0


@pytest.mark.parametrize("method", METHODS)
def test_an_impossible_jump_is_followed(method):
    """The state is somewhere else all of a sudden: believed after a few steps, never NaN."""
    model = fit(method=method)
    jump = np.vstack([NEW[:10], -NEW[10:]])
    jump[10:, 2] = -NEW[10:, 2]
    beliefs = model.filter(jump)
    sound(beliefs)
    error = np.linalg.norm(beliefs.mean()[14:] + TRUTH[14:], axis=1)
    assert error.mean() < 0.5


# --- degenerate training samples -----------------------------------------------------------------


def quietly(function):
    """Allow the warning about rescued numbers, and nothing else."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", kb.NumericalWarning)
        return function()


# Sixty rows are enough for the race among kernels and take a third of the time of all.
U, V = X[:60], Z[:60]


@pytest.mark.parametrize("options", [{}, {"rank": 20}, RIDGES])
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    ("x", "z"),
    [
        (np.zeros_like(U), V),
        (U, np.zeros_like(V)),
        (np.zeros_like(U), np.zeros_like(V)),
        (np.tile(U[:3], (20, 1)), np.tile(V[:3], (20, 1))),
        (U[:2], V[:2]),
        (U[:3], V[:3]),
        (1e8 * U, 1e8 * V),
        (1e-8 * U, 1e-8 * V),
        (1e8 + U, 1e4 + V),
        (U * [1.0, 1e8, 1e-8], V * [1e6, 1e-6]),
    ],
    ids=["constant x", "constant z", "constant", "copies", "two", "three", "huge", "tiny",
         "shifted", "mixed"],
)  # fmt: skip
def test_degenerate_samples_give_beliefs(x, z, method, options):
    def everything():
        settings = options | ({"rank": min(20, len(x))} if "rank" in options else {})
        model = kb.KernelBayesFilter(method=method, rng=0, **settings).fit(x, z)
        new = x[: min(len(x), 12)]
        far = new * 3.0 + 1.0
        for found in (model.filter(new), model.filter(far), model.smooth(new)):
            sound(found)
        assert np.isfinite(model.forecast(new, 3).weights).all()
        assert np.isfinite(model.forecast(new, 3).observations.weights).all()

    quietly(everything)


@pytest.mark.parametrize("method", METHODS)
def test_units_do_not_matter(method):
    one, *others = [
        kb.KernelBayesFilter(method=method, rng=0).fit(s * X[:80], s * Z[:80])
        for s in (1.0, 1e-8, 1e8)
    ]
    for other, s in zip(others, (1e-8, 1e8), strict=True):
        close(other.filter(s * NEW).mean(), s * one.filter(NEW).mean(), 1e-3)


# --- long runs -----------------------------------------------------------------------------------


def long_run(model, steps, seed=3):
    """Diagnostics at every step of one long online run, outliers and holes among the rest."""
    rng = np.random.default_rng(seed)
    truth, x = circling(rng, steps)
    x[rng.uniform(size=steps) < 0.02] = np.nan
    x[rng.uniform(size=steps) < 0.01] = 50.0
    state, infos, errors = model.start(), [], []
    for t in range(steps):
        state, info = model.step(state, x[t])
        infos.append((info.mass, info.support, info.ess, info.fallback, info.observed))
        errors.append(np.sum((state.belief.weights @ model.Z_ - truth[t]) ** 2))
    return np.array(infos, dtype=float), np.array(errors), state


def no_drift(infos, errors, factor):
    usual = (infos[:, 4] == 1.0) & (infos[:, 3] == 0.0)
    half = len(errors) // 2
    for part in (errors, infos[:, 2]):  # the two halves look alike
        first, second = (np.median(h[u]) for h, u in zip(
            (part[:half], part[half:]), (usual[:half], usual[half:]), strict=True))  # fmt: skip
        assert second < factor * first
        assert first < factor * second
    assert np.isfinite(infos[usual]).all()
    assert np.isfinite(errors).all()
    assert errors.max() < 10.0


@pytest.mark.parametrize("options", [{}, {"rank": 40}])
@pytest.mark.parametrize("method", METHODS)
def test_a_long_run_does_not_drift(method, options):
    model = fit(X[:100], Z[:100], method=method, **options)
    infos, errors, state = long_run(model, 600)
    assert state.t == 600
    no_drift(infos, errors, 2.0)  # halves of such short runs differ by up to 1.35 without drift


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_a_hundred_thousand_steps_do_not_drift(method):
    infos, errors, _ = long_run(fit(rank=40, method=method), 100_000)
    no_drift(infos, errors, 1.1)


def test_an_observation_that_no_training_pair_shares_leaves_the_prediction():
    x, z = NEW[:30].copy(), np.cumsum(np.full((30, 2), 0.1), axis=0)
    x[:, 0] = np.where(np.arange(30) < 3, x[:, 0], np.nan)  # seen near the first states only
    model = kb.KernelBayesFilter(kb.Gaussian(1.0), kb.Gaussian(0.1), rng=0, **RIDGES).fit(x, z)
    far = kb.embed(z[-1:], kb.Gaussian(0.1))
    state, info = model.step(model.start(prior=far), NEW[0])
    assert np.isfinite(state.belief.weights).all()
    assert info.observed


def test_observations_unlike_the_training_sample_are_told_of_once():
    """Which ones, and how much of the belief is the prediction's; missing ones do not count."""
    angle = 0.3 * np.arange(240)
    z = np.column_stack([np.cos(angle), np.sin(angle)])
    # Named, as it gains nothing where states are seen without noise, and choosing it says so.
    # One observation at a time: an odd one makes every window odd that it is in.
    plain = {"lags": 1, "features": "raw", "back_ridge": 0.1, "rng": 0}
    model = kb.KernelBayesFilter(kb.Gaussian(0.5), kb.Gaussian(0.5), **plain)
    model.fit(z[:200], z[:200])
    x = z[200:].copy()
    x[[3, 17]] = 50.0
    x[5] = np.nan
    told = r"2 of 40 observations \(3, 17\) are unlike anything in the training sample: 100%"
    for ask in (model.filter, model.smooth, lambda x: model.forecast(x, 2)):
        with pytest.warns(kb.NumericalWarning, match=told) as caught:
            beliefs = ask(x)
        assert len(caught) == 1
    with pytest.warns(kb.NumericalWarning, match=told):
        beliefs = model.filter(x)
    share = beliefs.info.prior_share
    assert np.flatnonzero(share == 1.0).tolist() == [3, 17]
    assert np.isnan(share[5])
    assert np.all(np.delete(share, [3, 5, 17]) == 0.0)
