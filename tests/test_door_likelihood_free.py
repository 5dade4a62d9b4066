"""The laws of the door for likelihood-free inference: by name, missing is missing, own copies."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import kernelbayes as kb
from door import ask_by_name, assert_put_in_order, every_frame, frame_of, plain
from kernelbayes.likelihood_free.running.calling import Failed, Outputs, by_key

# Sixty simulations are few: enough to see what is read, too few for a posterior to be proud of.
pytestmark = pytest.mark.filterwarnings("ignore::kernelbayes.NumericalWarning")
PRIOR = {"rate": stats.uniform(0.5, 2.0), "shift": stats.norm(3.0, 2.0)}
NAMES = {"theta": ("rate", "shift"), "x": ("u", "v")}
rng = np.random.default_rng(0)
THETA = np.column_stack([rng.uniform(0.5, 2.5, 60), rng.normal(3.0, 2.0, 60)])
DATA = THETA * [1.0, 2.0] + [0.0, 5.0] + rng.normal(size=THETA.shape)
OBSERVED, TEST = np.array([1.5, 9.0]), (THETA[:8], DATA[:8])
NEW = [stats.uniform(1.0, 1.0), stats.norm(4.0, 1.0)]


def fitted(make, prior=PRIOR):
    model = kb.LikelihoodFree(prior, "cme", "none", rng=0)
    return model.fit(make(THETA, "theta"), make(DATA, "x"))


def simulator(theta, rng):
    return theta * [1.0, 2.0] + [0.0, 5.0] + rng.normal(size=np.shape(theta))


ASKED = {
    "fit, theta": lambda make, q: (
        kb.LikelihoodFree(PRIOR, "cme", "none", rng=0)
        .fit(q(THETA, "theta"), make(DATA, "x"))
        .posterior(OBSERVED)
        .mean()
    ),
    "posterior": lambda make, q: fitted(make).posterior(q(DATA[:3], "x")).mean(),
    "score, theta": lambda make, q: fitted(make).score(q(TEST[0], "theta"), make(TEST[1], "x")),
    "score, x": lambda make, q: fitted(make).score(make(TEST[0], "theta"), q(TEST[1], "x")),
    "score without a prior": lambda make, q: fitted(make, None).score(
        q(TEST[0], "theta"), make(TEST[1], "x")
    ),
    "another prior": lambda make, q: (
        fitted(make).posterior(OBSERVED, prior=q(THETA[:40], "theta")).mean()
    ),
    "log_density": lambda make, q: (
        fitted(make).posterior(OBSERVED).log_density(q(TEST[0], "theta"))
    ),
    "sbc, theta": lambda make, q: (
        kb.sbc(fitted(make), theta=q(TEST[0], "theta"), x=make(TEST[1], "x"), rng=0).ranks
    ),
    "sbc, x": lambda make, q: (
        kb.sbc(fitted(make), theta=make(TEST[0], "theta"), x=q(TEST[1], "x"), rng=0).ranks
    ),
    "coverage": lambda make, q: (
        kb.coverage(fitted(make), theta=q(TEST[0], "theta"), x=q(TEST[1], "x"), rng=0).levels
    ),
    "reject_abc": lambda make, q: kb.reject_abc(
        q(THETA, "theta"), make(DATA, "x"), OBSERVED, prior=PRIOR, fraction=0.3
    ).mean(),
    "inside": lambda make, q: kb.as_prior(PRIOR).inside(q(THETA * [1.0, 9.0], "theta")),
}
every_question = pytest.mark.parametrize("ask", ASKED.values(), ids=ASKED.keys())


@every_frame
@every_question
def test_columns_are_put_in_order(ask, kind):
    assert_put_in_order(ask, kind, NAMES, 1e-9)


@every_frame
@every_question
def test_other_columns_are_refused_with_both_lists(ask, kind):
    with pytest.raises(ValueError, match=r"\['(rate|u)', 'other'\].*\['(rate|u)', '(shift|v)'\]"):
        ask_by_name(ask, kind, NAMES, renamed=True)


ROWS = {
    "mapping": {"v": 9.0, "u": 1.5},
    "pandas row": pd.Series({"v": 9.0, "u": 1.5}),
    "objects": pd.Series({"v": 9, "u": 1.5}, dtype=object),
}


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS.keys())
def test_one_observation_is_read_by_name(row):
    model = fitted(lambda values, role: frame_of(pd.DataFrame, values, NAMES[role]))
    found = model.posterior(row)
    assert isinstance(found, kb.Posterior)
    np.testing.assert_allclose(found.mean(), model.posterior(OBSERVED).mean())
    frames = [frame_of(pd.DataFrame, A, NAMES[k]) for A, k in ((THETA, "theta"), (DATA, "x"))]
    kept = [kb.reject_abc(*frames, x, fraction=0.3).mean() for x in (row, OBSERVED)]
    np.testing.assert_allclose(*kept)
    for other in ({"u": 1.5}, {"u": 1.5, "w": 9.0}):
        with pytest.raises(ValueError, match=r"u.*\['u', 'v'\]"):
            model.posterior(other)
        with pytest.raises(ValueError, match=r"u.*\['u', 'v'\]"):
            kb.reject_abc(*frames, other, fraction=0.3)


def test_another_prior_is_put_in_order():
    model = fitted(plain)
    expected = model.posterior(OBSERVED, prior=kb.as_prior(NEW, ["rate", "shift"])).mean()
    turned = {"shift": NEW[1], "rate": NEW[0]}
    np.testing.assert_array_equal(model.posterior(OBSERVED, prior=turned).mean(), expected)
    with pytest.raises(ValueError, match=r"\['shift', 'size'\].*\['rate', 'shift'\]"):
        model.posterior(OBSERVED, prior={"shift": NEW[1], "size": NEW[0]})
    joint = kb.as_prior(stats.multivariate_normal([3.0, 1.5]), ["shift", "rate"])
    with pytest.raises(ValueError, match="cannot be taken apart"):
        model.posterior(OBSERVED, prior=joint)


def test_test_pairs_are_simulated_in_the_order_of_the_model():
    model = fitted(plain)
    turned = {"shift": PRIOR["shift"], "rate": PRIOR["rate"]}
    check = kb.sbc(model, turned, lambda t, rng: simulator(t[..., ::-1], rng), rng=0,
                   n_simulations=20)  # fmt: skip
    assert check.names == ("rate", "shift")
    assert 0.2 < check.ranks.mean() / 100 < 0.8  # read by position all ranks of "rate" are extreme


# --- simulators that return dicts -----------------------------------------------------------------


def moody(theta, rng):
    """Keys in an order that depends on the parameter."""
    u, v = simulator(theta, rng)
    return {"u": u, "v": v} if theta[0] > 1.5 else {"v": v, "u": u}


@pytest.mark.parametrize("vectorized", [None, False])
def test_dicts_are_read_by_key(vectorized):
    runs = kb.simulate(moody, PRIOR, 40, rng=0, vectorized=vectorized)
    assert set(runs.x_names) == {"u", "v"}
    u = runs.x[:, runs.x_names.index("u")]
    assert np.abs(u - runs.theta[:, 0]).max() < 5.0  # v is around eleven


def forgetful(theta, rng):
    u, v = simulator(theta, rng)
    return {"u": u} if 0.8 < theta[0] < 1.0 else {"u": u, "v": v}


def test_a_missing_key_is_a_failure_with_a_reason():
    with pytest.warns(kb.NumericalWarning, match=r"columns \['u'\], but .*\['u', 'v'\]"):
        runs = kb.simulate(forgetful, PRIOR, 40, rng=0, vectorized=False)
    assert runs.failed > 0
    assert not np.any((runs.theta[:, 0] > 0.8) & (runs.theta[:, 0] < 1.0))
    with pytest.raises(ValueError, match=r"columns \['u'\], but .*\['u', 'v'\]"):
        kb.simulate(forgetful, PRIOR, 40, rng=0, vectorized=False, on_failure="raise")


def test_outputs_are_put_in_order_by_their_keys():
    turned = Outputs([np.array([4.0, 3.0]), Failed("why")], ("b", "a"))
    found = by_key(turned, ("a", "b"))
    assert found.names == ("a", "b")
    np.testing.assert_array_equal(found.rows[0], [3.0, 4.0])
    assert found.rows[1] == Failed("why")
    assert by_key(turned, None).names == ("b", "a")
    assert "['a', 'b']" in by_key(Outputs([np.array([5.0])], ("a",)), ("a", "b")).rows[0].reason


# --- missing, text, buffers -----------------------------------------------------------------------


def test_masked_data_are_failed_simulations():
    masked = np.ma.array(DATA.copy(), mask=np.zeros(DATA.shape, dtype=bool))
    masked.data[3, 0], masked[3, 0] = 1e6, np.ma.masked
    with pytest.warns(kb.NumericalWarning, match="1 of 60 simulations"):
        model = kb.LikelihoodFree(PRIOR, "cme", "none", rng=0).fit(THETA, masked)
    assert model.failed_ == 1
    assert model.x_.max() < 100.0
    for ask in (model.posterior, lambda x: kb.reject_abc(THETA, DATA, x, fraction=0.3)):
        with pytest.raises(ValueError, match="NaN"):
            ask(np.ma.array(OBSERVED, mask=[1, 0]))
    with pytest.raises(ValueError, match="NaN"):
        model.fit(np.ma.array(THETA, mask=DATA > 12.0), DATA)
    with pytest.raises(ValueError, match="NaN"):
        kb.as_prior(np.ma.array(THETA, mask=DATA > 12.0))


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda m: m.posterior(["1.5", "9.0"]), TypeError, "must hold numbers"),
        (lambda m: m.posterior(np.array(["2026"] * 2, "M8[Y]")), TypeError, "dates or times"),
        (lambda m: m.fit(THETA, DATA.astype(str)), TypeError, "must hold numbers"),
        (lambda m: m.fit(map(list, THETA), DATA), TypeError, "theta is a map"),
        (lambda m: m.fit(THETA, DATA, weights="equal"), TypeError, "weights must hold numbers"),
        (lambda m: m.posterior([]), ValueError, "x is empty"),
        (lambda m: m.posterior(OBSERVED).sample(10.7), ValueError, "an integer of at least 1"),
        (lambda m: m.prior_.sample(10.7, 0), ValueError, "an integer of at least 1"),
        (
            lambda m: kb.simulate(simulator, PRIOR, 10.7, rng=0),
            ValueError,
            "n_simulations must be an integer",
        ),
        (
            lambda m: kb.infer(simulator, PRIOR, OBSERVED, 10**400, rng=0),
            ValueError,
            "n_simulations must be an integer",
        ),
        (
            lambda m: kb.infer(simulator, PRIOR, OBSERVED, 100, rounds=1.5, rng=0),
            ValueError,
            "rounds must be an integer",
        ),
        (
            lambda m: kb.sbc(m, theta=TEST[0], x=TEST[1], n_draws=10.5, rng=0),
            ValueError,
            "n_draws must be an integer",
        ),
        (lambda m: kb.LikelihoodFree(PRIOR).score(*TEST), ValueError, "fit the model first"),
    ],
)
def test_mistakes_are_named(call, error, message):
    with pytest.raises(error, match=message):
        call(fitted(plain))


def test_a_whole_number_may_be_written_as_a_float():
    assert len(kb.simulate(simulator, PRIOR, 1e1, rng=0)) == 10


def test_a_model_and_a_prior_own_their_data():
    given = {"theta": THETA.copy(), "x": DATA.copy(), "w": np.full(60, 1.0), "draws": THETA.copy()}
    model = kb.LikelihoodFree(PRIOR, "cme", "none", rng=0).fit(
        given["theta"], given["x"], given["w"]
    )
    prior, runs = kb.as_prior(given["draws"]), kb.simulate(simulator, given["draws"], rng=0)
    kept = kb.reject_abc(given["theta"], given["x"], OBSERVED, fraction=0.3)
    before = model.posterior(OBSERVED).mean(), prior.sample(5, 0), runs.theta.copy(), kept.mean()
    for values in given.values():
        values[...] = 7.0
    after = model.posterior(OBSERVED).mean(), prior.sample(5, 0), runs.theta, kept.mean()
    for one, other in zip(before, after, strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_parameter_may_be_called_posterior():
    frame = pd.DataFrame(THETA, columns=["posterior", "shift"])
    model = kb.LikelihoodFree(None, "cme", "none", rng=0).fit(frame, DATA)
    out = model.posterior(DATA[:2]).to_frame()
    assert list(out.columns) == ["posterior", "shift", "weight", "posterior_2"]
    assert set(out["posterior_2"]) == {0, 1}


def test_simulations_are_fitted_with_their_names():
    named = {"shift": stats.norm(), "size": stats.norm()}
    runs = kb.simulate(lambda t, rng: {"a": t[0], "b": [t[1], 2.0 * t[1]]}, named, 60, rng=0)
    model = kb.LikelihoodFree(named, "cme", "none", rng=0).fit(runs)
    expected = model.posterior([0.3, 1.0, 2.0]).mean()
    found = model.posterior({"b": [1.0, 2.0], "a": 0.3})
    np.testing.assert_array_equal(found.mean(), expected)
    turned = kb.LikelihoodFree({k: named[k] for k in ("size", "shift")}, "cme", "none", rng=0)
    assert turned.fit(runs).posterior({"b": [1.0, 2.0], "a": 0.3}).names == ("size", "shift")
    np.testing.assert_array_equal(turned.theta_, runs.theta[:, ::-1])
    unnamed = kb.LikelihoodFree(named, "cme", "none", rng=0).fit(runs.theta, runs.x)
    with pytest.raises(ValueError, match="has names, the data fitted to have none"):
        unnamed.posterior({"b": [1.0, 2.0], "a": 0.3})  # used to be read in the dict's order
    with pytest.raises(TypeError, match="theta"):
        unnamed.fit(runs, runs.x)
    with pytest.raises(TypeError, match="x must hold one data set per parameter"):
        unnamed.fit(runs.theta)
