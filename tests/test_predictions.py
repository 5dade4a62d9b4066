"""Predictions in the words of scikit-learn and skpro are those of the posterior."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.model_selection import cross_val_score

import kernelbayes as kb

RNG = np.random.default_rng(0)
X = RNG.normal(size=(80, 2))
Z = np.column_stack([X[:, 0] + 0.3 * RNG.normal(size=80), X[:, 1] ** 2])
NAMES = np.array(["low", "high"])[(Z[:, 0] > 0).astype(int)]
NEW = X[:7] + 0.1
LEVELS = [0.1, 0.5, 0.9]


def fitted(hidden=Z, **options):
    return kb.KernelBayesRule(rng=0, **options).fit(X, hidden)


@pytest.mark.parametrize("options", [{}, {"method": "original"}, {"normalize": True}, {"rank": 8}])
def test_intervals_and_quantiles_are_those_of_the_posterior(options):
    model = fitted(**options)
    found = model.posterior(NEW)
    own = model.predict_interval(NEW, coverage=0.8, calibrated=False)
    np.testing.assert_allclose(own, found.interval(0.8, valid="rearranged"))
    np.testing.assert_allclose(model.predict_interval(NEW, 0.8), found.interval(0.8))
    quantiles = model.predict_quantiles(NEW, alpha=LEVELS, calibrated=False)
    np.testing.assert_allclose(quantiles, np.moveaxis(found.quantile(LEVELS), 1, 2))
    mean, std = model.predict(NEW, return_std=True)
    np.testing.assert_allclose(mean, model.predict(NEW))
    if "method" in options:  # nothing is left out in closed form
        np.testing.assert_allclose(std, found.std())
        np.testing.assert_allclose(model.predict_interval(NEW, coverage=0.8), own)
        return
    corrected = kb.calibrate(model)  # no point is outside the sample
    np.testing.assert_allclose(model.predict_interval(NEW, 0.8), corrected.interval(found, 0.8))
    quantiles = model.predict_quantiles(NEW, alpha=LEVELS)
    np.testing.assert_allclose(quantiles, np.moveaxis(corrected.quantile(found, LEVELS), 1, 2))
    np.testing.assert_allclose(std, corrected.std(found))


@pytest.mark.filterwarnings("ignore:.*lie outside:kernelbayes.NumericalWarning")
def test_intervals_hold_new_data_as_often_as_asked():
    """Own intervals of smooth regressions are far too wide; quantiles and deviations follow."""
    held, own, sizes = [], [], []
    for seed in range(4):
        rng = np.random.default_rng(seed)
        x, at = rng.uniform(-1, 1, (200, 1)), rng.uniform(-1, 1, (400, 1))
        model = kb.KernelBayesRule().fit(x, 2 * x[:, 0] + 0.1 * rng.normal(size=200))
        new = 2 * at[:, 0] + 0.1 * rng.normal(size=400)
        for found, calibrated in ((held, True), (own, False)):
            low, high = model.predict_interval(at, 0.9, calibrated).T
            found.append(np.mean((low <= new) & (new <= high)))
        sizes.append(np.median(model.predict(at, return_std=True)[1]))
        ends = model.predict_quantiles(at, [0.05, 0.95])
        np.testing.assert_allclose(ends, model.predict_interval(at, 0.9))
    # 800 left-out and 1600 new pairs: the error of the mean coverage is about 0.013.
    assert abs(np.mean(held) - 0.9) < 4 * 0.013
    assert np.mean(own) > 0.95
    assert 0.08 < np.mean(sizes) < 0.16  # the noise is 0.1; the posteriors' own say 0.3


@pytest.mark.filterwarnings("ignore:.*lie outside:kernelbayes.NumericalWarning")
def test_outside_the_sample_intervals_are_the_posteriors_own():
    model, far = fitted(), np.array([[40.0, 40.0]])
    np.testing.assert_allclose(model.predict_interval(far), model.posterior(far).interval(0.9))
    other = model.with_prior(Z[:40])  # which has a calibration of its own
    expected = kb.calibrate(other).interval(other.posterior(X[:9]), 0.9)
    np.testing.assert_allclose(other.predict_interval(X[:9]), expected)


def test_a_calibration_is_drawn():
    ax = kb.calibrate(fitted()).plot()
    assert len(ax.get_lines()) == 3  # two coordinates, and the diagonal
    held = ax.get_lines()[1].get_ydata()
    assert held[-1] == pytest.approx(1.0)
    assert np.all(np.diff(held) >= 0.0)


@pytest.mark.parametrize(("hidden", "shape"), [(Z[:, 0], (7,)), (Z[:, :1], (7, 1)), (Z, (7, 2))])
def test_shapes_follow_those_of_z(hidden, shape):
    model = fitted(hidden)
    assert model.predict_interval(NEW).shape == (*shape, 2)
    assert model.predict_interval(NEW, coverage=[0.5, 0.9, 0.99]).shape == (*shape, 3, 2)
    assert model.predict_quantiles(NEW).shape == (*shape, 3)
    assert model.predict_quantiles(NEW, alpha=0.5).shape == shape
    assert [part.shape for part in model.predict(NEW, return_std=True)] == [shape, shape]
    ends = model.predict_interval(NEW, coverage=[0.5, 0.9])
    assert np.all(ends[..., 1, 0] <= ends[..., 0, 0])  # the wider holds the narrower
    assert np.all(ends[..., 0, 1] <= ends[..., 1, 1])


def test_intervals_of_angles_are_arcs():
    angles = (0.3 * Z[:, 0]) % (2 * np.pi)  # around zero
    model = fitted(angles, kernel_z=kb.Periodic(1.0, 2 * np.pi))
    found = model.predict_interval(NEW, coverage=[0.5, 0.9])
    for k, level in enumerate((0.5, 0.9)):
        np.testing.assert_allclose(found[:, k], model.posterior(NEW).interval(level)[:, 0])
    assert np.all(found[..., 1] - found[..., 0] < np.pi)


def test_long_queries_are_answered_in_blocks(monkeypatch):
    model = fitted(Z[:, 0])
    whole = model.predict_quantiles(X)
    monkeypatch.setattr("kernelbayes.arrays.BLOCK_ENTRIES", 80 * 3)
    np.testing.assert_allclose(model.predict_quantiles(X), whole)


@pytest.mark.parametrize("bad", [0.0, 1.0, -0.1, np.nan, [0.5, 2.0]])
def test_bad_levels_are_refused(bad):
    with pytest.raises(ValueError, match="coverage"):
        fitted().predict_interval(NEW, coverage=bad)
    if np.max(bad) != 1.0 and np.min(bad) != 0.0:
        with pytest.raises(ValueError, match="alpha"):
            fitted().predict_quantiles(NEW, alpha=bad)


def test_points_outside_the_sample_are_named_once():
    with pytest.warns(kb.NumericalWarning, match="1 of 2 points") as told:
        fitted().predict_interval(np.vstack([X[:1], [[40.0, 40.0]]]))
    assert len(told) == 1


# --- hidden categories ----------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::kernelbayes.NumericalWarning")  # folds miss some points
def test_hidden_names_have_predictions_and_probabilities():
    model = fitted(NAMES)
    assert model.classes_.tolist() == ["high", "low"]
    P = model.predict_proba(NEW)
    np.testing.assert_allclose(P.sum(axis=1), 1.0)
    for k, name in enumerate(model.classes_):
        expected = model.posterior(NEW).prob(lambda z, name=name: np.asarray(z) == name)
        np.testing.assert_allclose(P[:, k], expected, atol=1e-12)
    np.testing.assert_array_equal(model.predict(NEW), model.classes_[P.argmax(axis=1)])
    assert model.score(X, NAMES) == np.mean(model.predict(X) == NAMES)
    scores = cross_val_score(kb.KernelBayesRule(rng=0), X, NAMES, cv=4)
    assert scores.mean() > 0.75  # the truth is on one side of a line, with noise near it


def test_probabilities_with_delta_kernels_are_those_of_the_table():
    """Oracle: P(z | x) of counted pairs; the ridge is nothing beside counts of a few."""
    x, z = list("aaaabbbc"), np.array(["u", "u", "v", "u", "v", "v", "u", "w"])
    model = kb.KernelBayesRule(kb.Delta(), kb.Delta(), ridge=1e-10).fit(x, z)
    np.testing.assert_allclose(
        model.predict_proba(["a", "b", "c"]),
        [[3 / 4, 1 / 4, 0.0], [1 / 3, 2 / 3, 0.0], [0.0, 0.0, 1.0]],
        atol=1e-7,
    )


def test_codes_under_delta_have_probabilities_and_numbers_have_none():
    codes = (Z[:, 0] > 0).astype(int)
    model = fitted(codes, kernel_z=kb.Delta())
    assert model.classes_.tolist() == [0, 1]
    np.testing.assert_allclose(model.predict_proba(NEW).sum(axis=1), 1.0)
    number = fitted()
    assert not hasattr(number, "classes_")
    assert not hasattr(number, "predict_proba")
    assert not hasattr(kb.KernelBayesRule(), "predict_proba")
    with pytest.raises(AttributeError, match="predict_proba"):
        number.predict_proba(NEW)
    with pytest.raises(TypeError, match="standard deviation"):
        fitted(NAMES).predict(NEW, return_std=True)


def test_parts_of_several_kinds_have_neither():
    model = fitted(pd.DataFrame({"size": Z[:, 0], "name": NAMES}))
    assert not hasattr(model, "classes_")
    assert not hasattr(model, "predict_proba")
    for ask in (model.predict, lambda X: model.score(X, NAMES[:7])):
        with pytest.raises(TypeError, match=r"several parts here; use posterior"):
            ask(NEW)


def test_categories_are_drawn_as_bars():
    import matplotlib

    matplotlib.use("Agg")
    model = fitted(NAMES)
    ax = model.posterior(NEW[0]).plot()
    np.testing.assert_allclose(
        [bar.get_height() for bar in ax.patches], model.predict_proba(NEW)[0]
    )
    assert [text.get_text() for text in ax.get_xticklabels()] == ["high", "low"]
    assert len(model.posterior(NEW).plot().patches) == 12  # two categories, six members


# --- one observation by name ----------------------------------------------------------------------


def test_one_observation_may_be_given_by_name():
    frame = pd.DataFrame(X, columns=["a", "b"])
    model = kb.KernelBayesRule(rng=0).fit(frame, Z[:, 0])
    expected = model.predict(frame.iloc[[3]])
    row = {"b": float(X[3, 1]), "a": float(X[3, 0])}
    one = {
        "series": frame.iloc[3],
        "another order": frame.iloc[3][["b", "a"]],
        "mapping": row,
        "polars": pl.DataFrame(frame)[3],
    }
    for name, x in one.items():
        np.testing.assert_allclose(model.predict(x), expected, err_msg=name)
        assert model.predict_interval(x).shape == (1, 2), name
        assert np.ravel(model.posterior(x).mean()).shape == (1,), name
    with pytest.raises(ValueError, match="columns"):
        model.predict({"a": 1.0, "c": 2.0})


def test_a_row_of_a_mixed_frame_is_one_observation():
    frame = pd.DataFrame({"a": X[:, 0], "kind": NAMES})
    model = kb.KernelBayesRule(rng=0).fit(frame, Z[:, 1])
    np.testing.assert_allclose(model.predict(frame.iloc[3]), model.predict(frame.iloc[[3]]))


@pytest.mark.parametrize(
    "kind", [np.asarray, list, pd.Series, lambda y: pd.Series(y, dtype="boolean")]
)
def test_truth_values_are_two_classes(kind):
    """They were classes to predict_proba and to calibrate, and numbers to predict and to score."""
    truth = Z[:, 0] > 0.0
    model = kb.KernelBayesRule().fit(X, kind(truth))
    P, found = model.predict_proba(X), model.predict(X)
    assert model.classes_.tolist() == [False, True]
    assert found.dtype == bool
    np.testing.assert_array_equal(found, P[:, 1] > P[:, 0])
    assert model.score(X, kind(truth)) == np.mean(found == truth)
    with pytest.raises(TypeError, match="use predict_proba"):
        model.predict(X, return_std=True)
    names = kb.KernelBayesRule().fit(X, np.where(truth, "yes", "no"))
    np.testing.assert_array_equal(names.predict(X) == "yes", found)
    frame = pd.DataFrame({"a": X[:, 0], "b": X[:, 1] > 0})
    assert kb.tune(kb.KernelBayesRule(), frame, kind(truth)).score(frame, kind(truth)) > 0.8
