"""KernelBayesRule: scikit-learn's contract, priors, reuse, predictions, hard and bad input."""

import pickle
from functools import partial

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy import stats
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

import kernelbayes as kb
from kernelbayes.gram import Dense

METHODS = ["importance", "original"]
each_method = pytest.mark.parametrize("method", METHODS)
each_form = pytest.mark.parametrize("form", ["a", "b"])
each_rank = pytest.mark.parametrize("rank", [None, 8])
RNG = np.random.default_rng(0)
Z = RNG.normal(size=60)
X = Z + 0.4 * RNG.normal(size=60)
PRIOR, OTHER = RNG.normal(0.5, 0.5, size=30), RNG.normal(-0.3, 0.6, size=25)
NEW = np.linspace(-1.5, 1.5, 6)
# Automatic ridges may condition the solves up to 1e8.
EQUAL = {"rel": 1e-6, "abs": 1e-7}


def fixed(**options):
    """Model with ridges of its own, so that fits under different priors can be compared."""
    return kb.KernelBayesRule(**{"prior_ridge": 0.01, "ridge": 0.01, "rng": 0, **options})


# --- scikit-learn --------------------------------------------------------------------------------


class Validating(kb.KernelBayesRule):
    """Without the tag that lets a 1-d X be n scalar points."""

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.no_validation = False
        return tags


@pytest.mark.filterwarnings("ignore::kernelbayes.NumericalWarning")  # some checks fit constants
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
@pytest.mark.parametrize(
    ("estimator", "expected"),
    [
        (kb.KernelBayesRule(), {}),
        (Validating(), {"check_fit1d": "a 1-d X is n scalar points"}),
        (Validating(method="original"), {"check_fit1d": "a 1-d X is n scalar points"}),
        (Validating(normalize=True), {"check_fit1d": "a 1-d X is n scalar points"}),
    ],
    ids=["default", "validating", "original", "normalize"],
)
def test_check_estimator(estimator, expected):
    results = check_estimator(estimator, expected_failed_checks=expected, on_skip=None)
    assert {r["check_name"] for r in results if r["status"] == "xfail"} == set(expected)
    assert sum(r["status"] == "passed" for r in results) > 10


def test_clone_and_parameters():
    model = fixed(kernel_x=kb.Gaussian(2.0), method="original", rank=5)
    assert (copy := clone(model)).get_params() == model.get_params()
    assert not hasattr(copy, "rule_")
    assert copy.set_params(ridge=0.5).ridge == 0.5


@pytest.mark.filterwarnings("ignore:.*lie outside:kernelbayes.NumericalWarning")  # small folds
def test_grid_search():
    grid = {"kernel_x": [kb.Gaussian(0.5), kb.Gaussian(50.0)], "ridge": [1e-3, 10.0]}
    search = GridSearchCV(kb.KernelBayesRule(), grid, cv=3).fit(X[:, None], Z)
    assert search.best_params_ == {"kernel_x": kb.Gaussian(0.5), "ridge": 1e-3}
    # R^2 of the exact regression is 1 / 1.16; a spread of 0.1 at n = 60.
    assert search.best_score_ > 0.6
    assert search.best_estimator_.score(X[:, None], Z) > 0.6


@pytest.mark.filterwarnings("ignore:.*lie outside:kernelbayes.NumericalWarning")  # small folds
def test_pipeline():
    pipe = make_pipeline(StandardScaler(), kb.KernelBayesRule())
    scaled = pipe.fit(1e6 * X[:, None], Z).predict(1e6 * NEW[:, None])
    plain = kb.KernelBayesRule().fit(X[:, None], Z).predict(NEW[:, None])
    assert scaled == pytest.approx(plain, **EQUAL)  # the median heuristic has no units
    assert np.isfinite(cross_val_score(pipe, X[:, None], Z, cv=3)).all()


@pytest.mark.parametrize("library", [pd, pl])
def test_frames(library):
    frame = library.DataFrame({"a": X, "b": X**2})
    hidden = library.DataFrame({"z": Z, "w": Z**2})
    model = fixed().fit(frame, hidden, prior=hidden[:20])
    expected = fixed().fit(
        np.column_stack([X, X**2]), np.column_stack([Z, Z**2]), np.column_stack([Z, Z**2])[:20]
    )
    found = model.predict(frame[:5])
    assert found == pytest.approx(expected.predict(np.column_stack([X, X**2])[:5]), rel=1e-12)
    assert model.posterior(frame[:5]).weights.shape == (5, 60)
    for form in ("a", "b"):
        assert fixed(form=form).fit(frame, hidden, hidden).posterior(frame).names == ("z", "w")
    assert fixed(rank=5).fit(frame, hidden).posterior(frame[:5])[0].names == ("z", "w")
    if library is pd:
        assert list(model.feature_names_in_) == ["a", "b"]
        np.testing.assert_array_equal(model.predict(frame[["b", "a"]][:5]), found)
        assert fixed().fit(frame, pd.Series(Z)).predict(frame[:5]).shape == (5,)


@pytest.mark.parametrize("series", [pd.Series, pl.Series, partial(pl.Series, "a")])
def test_a_series_is_a_sample_of_numbers(series):
    expected = fixed().fit(X, Z)
    model = fixed().fit(series(X), series(Z))
    np.testing.assert_array_equal(model.predict(series(NEW)), expected.predict(NEW))
    np.testing.assert_array_equal(
        model.posterior(series(NEW)).mean(), expected.posterior(NEW).mean()
    )
    assert model.score(series(X), series(Z)) == expected.score(X, Z)
    with pytest.raises(ValueError, match="row 1 "):
        fixed().fit(series([0.0, np.nan]), series([0.0, 1.0]))


@each_method
@each_rank
def test_pickling(method, rank):
    model = fixed(method=method, rank=rank).fit(X, Z, prior=PRIOR)
    again = pickle.loads(pickle.dumps(model))
    assert np.array_equal(again.predict(NEW), model.predict(NEW))
    assert np.array_equal(again.posterior(NEW).weights, model.posterior(NEW).weights)
    changed = again.with_prior(OTHER).predict(NEW)
    assert changed == pytest.approx(model.with_prior(OTHER).predict(NEW), rel=1e-12)


# --- predictions ---------------------------------------------------------------------------------


@each_rank
@each_form
@each_method
@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("columns", [None, 1, 2])
def test_predictions_are_posterior_means(method, form, rank, normalize, columns):
    z = Z if columns is None else np.column_stack([Z, Z**2])[:, :columns]
    prior = PRIOR if columns is None else np.column_stack([PRIOR, PRIOR**2])[:, :columns]
    model = fixed(method=method, form=form, rank=rank, normalize=normalize)
    model.fit(X, z, prior=prior)
    found, batch = model.predict(NEW), model.posterior(NEW)
    assert found.shape == ((6,) if columns is None else (6, columns))
    assert batch.points.shape == (30 if form == "a" else 60, columns or 1)
    assert found.reshape(6, -1) == pytest.approx(batch.mean(), **EQUAL)
    # Around the prior's mean: what is missing from a mass of one counts there.
    own = model._prior_on_z() if form == "a" else np.maximum(model.prior_weights_, 0.0)
    rest = np.outer(1.0 - batch.mass, own @ batch.points / own.sum())
    assert found.reshape(6, -1) == pytest.approx(batch.weights @ batch.points + rest, **EQUAL)
    if normalize:
        assert batch.mass == pytest.approx(np.ones(6))
        assert batch.diagnostics.mass != pytest.approx(np.ones(6))  # of the rule's own weights


def test_one_point_or_many():
    model = fixed().fit(X, Z)
    assert type(model.posterior(0.5)) is kb.Embedding
    assert type(model.posterior([0.5])) is kb.Batch
    wide = fixed().fit(np.column_stack([X, X]), Z)
    assert type(wide.posterior([0.5, 0.5])) is kb.Embedding
    assert type(wide.posterior([[0.5, 0.5]])) is kb.Batch
    assert wide.predict([[0.5, 0.5]]).shape == (1,)


def test_another_output_kernel():
    model = fixed(normalize=True).fit(X, Z, prior=PRIOR)
    mu = model.posterior(NEW, kernel=kb.Linear())
    assert mu.kernel == kb.Linear()
    assert mu([1.0])[:, 0] == pytest.approx(model.predict(NEW), **EQUAL)


def test_hidden_categories_and_observed_strings():
    words, moods = ["sun", "rain", "sunny", "rainy"] * 5, ["up", "down"] * 10
    model = kb.KernelBayesRule(kernel_x=kb.Spectrum(2)).fit(words, moods)
    mu = model.posterior("sun")
    assert mu(["up"])[0] > mu(["down"])[0]
    assert model.predict(words).tolist() == moods
    with pytest.raises(TypeError, match="no standard deviation"):
        model.predict(words, return_std=True)


# --- changing the prior --------------------------------------------------------------------------


@each_rank
@each_form
@each_method
@pytest.mark.parametrize("first", [None, PRIOR], ids=["none", "prior"])
def test_another_prior_equals_a_fresh_fit(method, form, rank, first):
    model = fixed(method=method, form=form, rank=rank).fit(X, Z, prior=first)
    before = model.predict(NEW)
    fresh = fixed(method=method, form=form, rank=rank).fit(X, Z, prior=OTHER)
    changed = model.with_prior(OTHER)
    assert changed.predict(NEW) == pytest.approx(fresh.predict(NEW), **EQUAL)
    expected = fresh.posterior(NEW).weights
    assert changed.posterior(NEW).weights == pytest.approx(expected, **EQUAL)
    assert model.posterior(NEW, prior=OTHER).weights == pytest.approx(expected, **EQUAL)
    assert np.array_equal(model.predict(NEW), before)  # the model itself is as it was
    back = changed.with_prior(first)
    assert back.predict(NEW) == pytest.approx(before, **EQUAL)


@each_method
def test_another_prior_reuses_what_does_not_depend_on_it(method, monkeypatch):
    model = fixed(method=method).fit(X, Z, prior=PRIOR)
    counts = {"ridge": 0, "gram": 0}

    def counted(owner, name, key):
        original = getattr(owner, name)

        def wrapper(*args, **kwargs):
            counts[key] += 1
            return original(*args, **kwargs)

        monkeypatch.setattr(owner, name, wrapper)

    counted(Dense, "ridge", "ridge")
    counted(kb.Gaussian, "_self", "gram")
    changed = model.with_prior(OTHER)
    model.posterior(NEW, prior=OTHER)
    assert counts == {"ridge": 0, "gram": 0}
    assert changed.likelihood_ is model.likelihood_  # its Gram matrices and its solver


def test_automatic_ridges_are_kept():
    model = kb.KernelBayesRule().fit(X, Z, prior=PRIOR)
    changed = model.with_prior(OTHER)
    assert (changed.prior_ridge_, changed.ridge_) == (model.prior_ridge_, model.ridge_)
    late = kb.KernelBayesRule().fit(X, Z)
    assert late.with_prior(PRIOR).prior_ridge_ == pytest.approx(model.prior_ridge_)


@pytest.mark.parametrize("kernel", [None, kb.Gaussian(0.7)])
def test_kinds_of_prior(kernel):
    model = fixed(kernel_z=kernel)
    points = model.fit(X, Z, prior=PRIOR).predict(NEW)
    embedded = kb.embed(PRIOR, kb.Gaussian(9.0))  # another kernel: embedded again
    assert model.fit(X, Z, prior=embedded).predict(NEW) == pytest.approx(points, **EQUAL)
    column = model.fit(X, Z, prior=PRIOR[:, None]).predict(NEW)
    assert column == pytest.approx(points, **EQUAL)
    signed = kb.embed(PRIOR, kb.Gaussian(1.0), np.linspace(-0.02, 0.1, 30))
    gaussian = kb.GaussianEmbedding([0.5], [[0.25]], kb.Gaussian(9.0))
    for prior in (signed, gaussian, [0.3], 0.1 * Z):
        assert np.isfinite(kb.KernelBayesRule(kernel_z=kernel).fit(X, Z, prior).predict(NEW)).all()


# --- hard and bad input --------------------------------------------------------------------------


@each_rank
@each_method
def test_far_out_of_support(method, rank):
    model = kb.KernelBayesRule(method=method, rank=rank, rng=0).fit(X, Z, prior=PRIOR)
    with pytest.warns(kb.NumericalWarning, match=r"1 of 2 points \(0\) lie outside"):
        far = model.posterior([1e6, 0.0])
    assert np.isfinite(far.weights).all()
    assert far.diagnostics.support[0] < 1e-6 < 0.5 < far.diagnostics.support[1]
    with pytest.warns(kb.NumericalWarning, match="2 of 2 points"):
        means = model.predict([1e6, -1e9])
    weights = model.prior_weights_ / model.prior_weights_.sum()
    np.testing.assert_allclose(means, weights @ Z)


@each_method
def test_normalized_far_out_of_support(method):
    """Nothing to divide by: the posterior is the prior, with a warning; others are untouched."""
    model = kb.KernelBayesRule(method=method, normalize=True).fit(X, Z, prior=PRIOR)
    prior = model.prior_weights_ / model.prior_weights_.sum()
    with pytest.warns(kb.NumericalWarning, match="1 of 2 points"):
        far = model.posterior([1e6, 0.0])
    np.testing.assert_allclose(far.weights[0], prior)
    alone = model.posterior(0.0).weights
    # One right-hand side or two: rounding of the largest weight, times a condition number of up to
    # 1e8 with automatic ridges.
    np.testing.assert_allclose(far.weights[1], alone, rtol=0.0, atol=1e-7 * np.abs(alone).max())
    with pytest.warns(kb.NumericalWarning, match="the prior"):
        means = model.predict([1e6, 0.0])
    np.testing.assert_allclose(means, far.weights @ Z)


@pytest.mark.parametrize(
    ("x", "z", "prior", "error", "message"),
    [
        (X, Z[:-1], None, ValueError, "inconsistent|pairs"),
        (X * np.nan, Z, None, ValueError, "NaN"),
        (X, np.full(60, np.inf), None, ValueError, "infinity|infinite"),
        (X[:0], Z[:0], None, ValueError, "0 sample|empty"),
        (X, None, None, ValueError, "y to be passed"),
        (X, Z, np.ones((5, 2)), ValueError, "one space"),
        (X, Z, PRIOR * np.nan, ValueError, "prior has NaN"),
        (X, Z, PRIOR[:0], ValueError, "prior is empty"),
        (X, Z, ["a", "b"], TypeError, "numbers"),
    ],
)
def test_bad_samples(x, z, prior, error, message):
    with pytest.raises(error, match=message):
        fixed().fit(x, z, prior=prior)


@pytest.mark.parametrize(
    ("name", "value"),
    [("ridge", 0.0), ("prior_ridge", -1.0), ("method", "bayes"), ("form", "c"), ("ratio", "lsif"),
     ("rank", 0)],
)  # fmt: skip
def test_bad_parameters(name, value):
    with pytest.raises(ValueError, match=r"must|rank"):
        fixed(**{name: value}).fit(X, Z, prior=PRIOR)


def test_a_rank_above_the_number_of_points_means_all_points():
    most, above = (fixed(rank=rank).fit(X, Z, prior=PRIOR) for rank in (len(X), len(X) + 1))
    np.testing.assert_array_equal(most.predict(X), above.predict(X))


def test_bad_queries():
    for call in ("predict", "posterior"):
        with pytest.raises(NotFittedError):
            getattr(kb.KernelBayesRule(), call)(X)
        with pytest.raises(ValueError, match=r"feature|space"):
            getattr(fixed().fit(X, Z), call)(np.ones((3, 2)))
        with pytest.raises(ValueError, match="NaN"):
            getattr(fixed().fit(X, Z), call)([np.nan])
    with pytest.raises(ValueError, match="reshape"):
        fixed().fit(np.column_stack([X, X]), Z).predict([0.0, 0.0])
    with pytest.raises(NotFittedError):
        kb.KernelBayesRule().with_prior(PRIOR)


def test_a_prior_that_is_a_distribution_is_drawn_from():
    """The closed form of the linear-Gaussian model under a prior given as a distribution."""
    rng = np.random.default_rng(0)
    z = rng.normal(size=800)
    x = z + 0.5 * rng.normal(size=800)
    rule = kb.KernelBayesRule(rng=0).fit(x, z, prior=stats.norm(0.5, 0.5))
    at = np.array([0.0, 1.0])
    truth = 0.5 + 0.5 * (at - 0.5)  # gain 1/4 / (1/4 + 1/4)
    np.testing.assert_allclose(rule.predict(at), truth, atol=0.2)
    again = kb.KernelBayesRule(rng=0).fit(x, z, prior=stats.norm(0.5, 0.5))
    np.testing.assert_array_equal(rule.predict(at), again.predict(at))
    plain = kb.KernelBayesRule(rng=0).fit(x, z)
    np.testing.assert_array_equal(
        plain.posterior(at, prior=stats.norm(0.5, 0.5)).weights.shape, (2, 800)
    )


def test_priors_of_several_coordinates_are_joint_or_a_list():
    rng = np.random.default_rng(1)
    Z = rng.normal(size=(200, 2))
    X = Z + 0.3 * rng.normal(size=(200, 2))
    joint = stats.multivariate_normal([0.5, -0.5], 0.5 * np.eye(2))
    for prior in (joint, [stats.norm(0.5, 0.7), stats.norm(-0.5, 0.7)]):
        found = kb.KernelBayesRule(rng=0).fit(X, Z, prior=prior).posterior([[0.5, -0.5]])
        np.testing.assert_allclose(found.mean()[0], [0.5, -0.5], atol=0.3)
    tuned = kb.tune(kb.KernelBayesRule(rng=0), X, Z, prior=joint, budget=2, rng=0)
    assert np.isfinite(tuned.predict(X[:3])).all()


# --- a Gram matrix that was computed before ------------------------------------------------------


def test_a_kernel_on_indices_works_in_every_estimator():
    """Custom(lambda i, j: G[i][:, j]) on indices is the kernel that made G."""
    rng = np.random.default_rng(2)
    x = rng.normal(size=(90, 2))
    z = x @ [1.0, -1.0] + 0.1 * rng.normal(size=90)
    kernel = kb.Gaussian(1.0)
    G = kernel(x)
    index = kb.Custom(lambda i, j: G[i][:, j])
    train, new = np.arange(70), np.arange(70, 90)
    kz = kb.Gaussian(1.0)

    def both(ask):
        return ask(index, train, new), ask(kernel, x[:70], x[70:])

    pairs = [
        both(lambda k, X, N: kb.ConditionalEmbedding(k, kz).fit(X, z[:70]).filled(N).mean()),
        both(lambda k, X, N: kb.KernelBayesRule(k, kz).fit(X, z[:70]).filled(N).mean()),
        both(
            lambda k, X, N: (
                kb.KernelBayesFilter(k, kz, ridge=1e-3, transition_ridge=1e-3, rng=0)
                .fit(X, z[:70])
                .filter(N)
                .mean()
            )
        ),
        both(lambda k, X, N: kb.mmd_test(X, N, k, permutations=20, rng=0).statistic),
        both(lambda k, X, N: kb.hsic_test(X, z[:70], k, permutations=20, rng=0).statistic),
    ]
    for found, expected in pairs:
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    model = kb.KernelBayesRule(index, kz, literal=True).fit(train, z[:70])
    plain = kb.KernelBayesRule(kernel, kz, literal=True).fit(x[:70], z[:70])
    np.testing.assert_allclose(model.predict(new), plain.predict(x[70:]), rtol=1e-5)
    assert model.score(new, z[70:]) > 0.5


def test_large_fits_have_landmarks_by_default(monkeypatch):
    """An exact fit to 20 000 pairs takes minutes and 10 GB, and predicts the same."""
    rng = np.random.default_rng(0)
    x, at = rng.normal(size=(300, 2)), rng.normal(size=(200, 2)).clip(-2, 2)
    z = np.sin(x[:, 0]) + 0.1 * rng.normal(size=300)
    exact = kb.KernelBayesRule().fit(x, z)
    monkeypatch.setattr("kernelbayes.rules.variable.EXACT_PAIRS", 250)
    monkeypatch.setattr("kernelbayes.rules.variable.RANK_BEYOND", 100)
    large, again = (kb.KernelBayesRule().fit(x, z) for _ in range(2))
    assert 0 < large.rule_.inputs.kernel.rank <= 100
    np.testing.assert_array_equal(large.predict(at), again.predict(at))  # no seed was given
    # A third of the points as landmarks: far below the error of the noise, 0.1.
    np.testing.assert_allclose(large.predict(at), exact.predict(at), atol=0.05)
    assert not kb.KernelBayesRule(exact.kernel_x_).fit(x, z).rule_.inputs.kernel.finite


def test_large_mixed_frames_have_landmarks_of_every_category(monkeypatch):
    """50 000 rows of a mixed frame were refused; a rare category has a landmark of its own."""
    rng = np.random.default_rng(0)
    n = 400
    kind = np.where(np.arange(n) < 3, "rare", rng.choice(["a", "b"], n))
    X = pd.DataFrame({"x": rng.normal(size=n), "kind": kind, "on": rng.random(n) < 0.5})
    z = X["x"].to_numpy() + 3.0 * (kind == "rare") + 0.1 * rng.normal(size=n)
    exact = kb.KernelBayesRule().fit(X, z), kb.ConditionalEmbedding().fit(X, z)
    monkeypatch.setattr("kernelbayes.rules.variable.EXACT_PAIRS", 350)
    monkeypatch.setattr("kernelbayes.rules.variable.RANK_BEYOND", 120)
    large = kb.KernelBayesRule().fit(X, z), kb.ConditionalEmbedding().fit(X, z)
    for model, whole in zip(large, exact, strict=True):
        assert 0 < model.kernel_x_.rank <= 120
        assert "rare" in model.kernel_x_.landmarks["kind"]
        found, expected = (
            m.predict(X) if hasattr(m, "predict") else m(X).mean()[:, 0] for m in (model, whole)
        )
        # A third of the rows as landmarks: below the error of the noise, 0.1.
        assert np.sqrt(np.mean((found - expected) ** 2)) < 0.05
    tuned = kb.tune(kb.ConditionalEmbedding(), X, z, budget=3)
    assert tuned.kernel_x_.finite
    assert kb.tune(kb.KernelBayesRule(), X, z, budget=3).rule_.inputs.kernel.finite


@pytest.mark.filterwarnings("ignore:.*exact copies of others")  # pairs that are learned twice
def test_default_landmarks_are_not_for_one_category(monkeypatch):
    """Categories have a factor of their own; a default changes no call that is allowed."""
    rng = np.random.default_rng(0)
    monkeypatch.setattr("kernelbayes.rules.variable.EXACT_PAIRS", 250)
    monkeypatch.setattr("kernelbayes.rules.variable.RANK_BEYOND", 100)
    words = np.repeat([f"word {i}" for i in range(150)], 2)
    z = np.repeat(rng.normal(size=150), 2)
    assert kb.KernelBayesRule().fit(words, z).score(words, z) > 0.99
    x, z = rng.normal(size=300), rng.normal(size=300)
    z = x + 0.1 * z
    whole = kb.KernelBayesRule().fit(x, z)
    assert whole.kernel_x_.finite
    given = kb.KernelBayesRule(kernel_z=kb.Gaussian(1.0)).fit(x, z)
    assert given.kernel_z_ == kb.Gaussian(1.0)
    batches = [(x[i : i + 60], z[i : i + 60]) for i in range(0, 300, 60)]
    once = kb.KernelBayesRule().fit(iter(batches))
    np.testing.assert_allclose(once.predict(x[:9]), whole.predict(x[:9]), atol=1e-8)
    parts = kb.KernelBayesRule()
    for pair in batches:
        parts.partial_fit(*pair)
    np.testing.assert_allclose(parts.predict(x[:9]), whole.predict(x[:9]), atol=1e-8)
    width = np.diff(parts.predict_interval(x[:9], 0.9))
    assert np.all(width < 0.5)  # 0.33 for the noise; 1.6 without calibration
    parts.partial_fit(*batches[0], keep=290)
    small = kb.KernelBayesRule().fit(*batches[0])
    assert (whole + small).rule_.n == (small + whole).rule_.n == 360


def test_score_of_several_truth_values():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 2))
    model = kb.KernelBayesRule().fit(x, x > 0)
    assert model.predict(x).shape == (200, 2)
    assert 0.8 < model.score(x, x > 0) <= 1.0
