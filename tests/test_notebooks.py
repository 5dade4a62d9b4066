"""What people reach for: notebooks, frames of any library, kernels' settings, hidden categories."""

import re
import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import kernelbayes as kb
from kernelbayes.tables import SHOWN_ROWS, Table

pandas = pytest.importorskip("pandas")
polars = pytest.importorskip("polars")


@pytest.fixture(scope="module")
def pairs():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 2))
    return X, X[:, 0] + 0.1 * rng.normal(size=80)


@pytest.fixture(scope="module")
def kinds(pairs):
    return np.where(pairs[1] > 0.0, "warm", "cold")


# --- notebooks ------------------------------------------------------------------------------------


def results(X, z, kinds):
    frame = pandas.DataFrame({"<b>": X[:, 0], "b": X[:, 1]})
    rule = kb.KernelBayesRule().fit(X, pandas.DataFrame({"<b>": z}))
    yield rule.posterior(X[0])
    yield rule.posterior(X)
    yield kb.KernelBayesRule().fit(X, kinds).posterior(X[:3])
    yield kb.embed(["ab", "ba"], kb.Spectrum(1))
    yield kb.mmd_test(X[:40], X[40:], rng=0)
    yield kb.mmd_aggregated(X[:40], X[40:], rng=0)
    yield kb.KernelBeliefPropagation([("<b>", "b")]).fit(frame).query(evidence={"b": 0.0})
    yield kb.drift_report(frame[:40], frame[40:], rng=0)
    given = kb.Gaussian(0.5), kb.Gaussian(0.5)
    model = kb.KernelBayesFilter(*given, prior_ridge=0.01, transition_ridge=0.01, ridge=0.01, rng=0)
    beliefs = model.fit(X, z).filter(X[:30])
    yield beliefs
    yield beliefs[3]


def test_notebooks_show_numbers_and_never_fail(pairs, kinds):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = list(results(*pairs, kinds))
    for result in found:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # what is shown says nothing on standard error
            text = result._repr_html_()
        assert "<table>" in text
        assert "<b>" not in text  # names are escaped
        assert len(repr(result)) < 1500
    assert found[-2]._repr_html_().count("<tr>") == SHOWN_ROWS + 1


def test_a_long_table_is_cut_in_notebooks_only():
    table = Table({"i": i} for i in range(SHOWN_ROWS + 5))
    assert "and 5 more rows" in table._repr_html_()
    assert table.html().count("<tr>") == len(table) + 1


def test_an_object_that_cannot_be_summarised_is_still_shown():
    images = kb.embed(np.zeros((3, 4, 4)), kb.Trace())
    assert images._repr_html_() == "<pre>Embedding(3 points, mass 1, Trace())</pre>"


def test_scikit_learn_shows_what_was_fitted(pairs):
    text = kb.KernelBayesRule().fit(*pairs)._repr_html_()
    assert "KernelBayesRule" in text


# --- summaries of categories and mixed variables --------------------------------------------------


def test_summary_of_categories(pairs, kinds):
    X, _ = pairs
    rule = kb.KernelBayesRule().fit(X, kinds)
    one = rule.posterior(X[0]).summary()
    assert [row["category"] for row in one] == ["cold", "warm"]
    np.testing.assert_allclose(
        [row["probability"] for row in one], rule.predict_proba(X[:1])[0], atol=1e-12
    )
    assert [row["member"] for row in rule.posterior(X[:2]).summary()] == [0, 0, 1, 1]


def test_summary_of_a_mixed_variable(pairs, kinds):
    kernel = kb.Parts({"z": kb.Gaussian(1.0), "kind": kb.Delta()})
    rows = kb.embed({"z": pairs[1], "kind": kinds}, kernel).summary()
    assert [row["variable"] for row in rows] == ["z", "kind", "kind"]
    assert rows[0]["mean"] == pytest.approx(pairs[1].mean())


# --- settings of kernels --------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:.*outside the training sample:kernelbayes.NumericalWarning")
def test_grid_search_over_a_bandwidth(pairs):
    model = kb.KernelBayesRule(kernel_x=kb.Gaussian(1.0))
    grid = {"kernel_x__bandwidth": [0.001, 1.0]}
    found = GridSearchCV(model, grid, cv=3).fit(*pairs)
    assert found.best_params_ == {"kernel_x__bandwidth": 1.0}
    assert found.best_estimator_.kernel_x == kb.Gaussian(1.0)
    assert model.kernel_x == kb.Gaussian(1.0)


def test_settings_inside_of_kernels():
    kernel = 2.0 * kb.Gaussian(1.0) + kb.Parts({"age": kb.Gaussian(3.0), "sex": kb.Delta()})
    model = kb.KernelBayesRule(kernel_z=kernel)
    params = model.get_params()
    assert params["kernel_z__left__factor"] == 2.0
    assert params["kernel_z__right__age__bandwidth"] == 3.0
    other = clone(model).set_params(
        kernel_z__left__kernel__bandwidth=5.0, kernel_z__right__age=kb.Laplace(1.0), ridge=0.5
    )
    new = kb.Parts({"age": kb.Laplace(1.0), "sex": kb.Delta()})
    assert other.kernel_z == 2.0 * kb.Gaussian(5.0) + new
    assert other.ridge == 0.5
    assert model.kernel_z == kernel
    assert model.set_params(**params).kernel_z == kernel
    filter_ = kb.KernelBayesFilter(kernel_x=kb.Gaussian(1.0)).set_params(kernel_x__bandwidth=2.0)
    assert filter_.kernel_x == kb.Gaussian(2.0)


def test_settings_that_are_not_there_are_refused():
    with pytest.raises(ValueError, match="give a kernel first"):
        kb.KernelBayesRule().set_params(kernel_x__bandwidth=1.0)
    with pytest.raises(ValueError, match=r"no setting 'width'; it has \['bandwidth'\]"):
        kb.KernelBayesRule(kb.Gaussian(1.0)).set_params(kernel_x__width=1.0)
    with pytest.raises(ValueError, match="Invalid parameter"):
        kb.KernelBayesRule().set_params(widths=1.0)


def test_a_function_is_a_kernel(pairs):
    X, z = pairs

    def laplace(X, Y):
        return np.exp(-np.abs(X[:, None] - Y[None]).sum(axis=2))

    given, known = (
        kb.KernelBayesRule(k, kb.Gaussian(1.0), ridge=0.1).fit(X, z)
        for k in (laplace, kb.Laplace(1.0))
    )
    np.testing.assert_allclose(given.predict(X[:5]), known.predict(X[:5]), atol=1e-8)
    assert kb.embed(X, laplace).norm() == pytest.approx(kb.embed(X, kb.Laplace(1.0)).norm())
    with pytest.raises(TypeError, match=r"Custom\(function\)"):
        kb.mmd_test(X[:40], X[40:], laplace, rng=0)
    with pytest.raises(TypeError, match="give Custom of it"):
        kb.KernelBayesFilter(laplace).fit(X, z)


# --- frames ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_narwhals_frames_are_read_by_name(pairs, library):
    narwhals = pytest.importorskip("narwhals")
    X, z = pairs
    made = pandas.DataFrame if library == "pandas" else polars.DataFrame
    columns = {"a": X[:, 0], "b": X[:, 1]}
    frame = narwhals.from_native(made(columns))
    turned = narwhals.from_native(made(dict(reversed(columns.items()))))
    target = narwhals.from_native(made({"z": z})["z"], series_only=True)
    rule = kb.KernelBayesRule().fit(frame, target)
    np.testing.assert_array_equal(rule.predict(turned), rule.predict(frame))
    assert {row["column"] for row in kb.drift_report(frame, turned, rng=0).columns} == {"a", "b"}
    beliefs = kb.KernelBeliefPropagation([("a", "b")]).fit(frame).query(["a"], {"b": 0.0})
    assert set(beliefs) == {"a"}


def test_a_lazy_frame_is_refused_in_words(pairs):
    lazy = polars.DataFrame({"a": pairs[1]}).lazy()
    with pytest.raises(TypeError, match=r"lazy frame; give X.collect\(\)"):
        kb.KernelBayesRule(kb.Gaussian(1.0)).fit(lazy, pairs[1])


@pytest.mark.parametrize("kind", ["pandas", "polars"])
def test_frames_that_scikit_learn_hands_on(pairs, kind):
    X, z = pairs
    frame = pandas.DataFrame(X, columns=["a", "b"])
    scaler = StandardScaler().set_output(transform=kind)
    found = make_pipeline(scaler, kb.KernelBayesRule()).fit(frame, z)
    plain = make_pipeline(StandardScaler(), kb.KernelBayesRule()).fit(X, z)
    np.testing.assert_allclose(found.predict(frame), plain.predict(X), atol=1e-9)


# --- hidden categories ----------------------------------------------------------------------------


def test_confusion_of_left_out_pairs(pairs, kinds):
    X, _ = pairs
    rule = kb.KernelBayesRule().fit(X, kinds)
    found = kb.calibrate(rule)
    assert found.labels == ("cold", "warm")
    np.testing.assert_allclose(found.counts.sum(axis=1), [np.sum(kinds == k) for k in found.labels])
    assert found.accuracy > max(found.majority, 0.8)
    assert found.log_score > np.log(0.5)
    assert list(found.table.to_frame().columns) == ["truth", "cold", "warm", "right"]
    assert "right" in repr(found)


def test_confusion_leaves_the_pair_out():
    """Labels that X says nothing about: in the sample they would all be right."""
    rng = np.random.default_rng(0)
    X, labels = rng.normal(size=(300, 1)), rng.choice(["a", "b"], size=300)
    rule = kb.KernelBayesRule(kb.Gaussian(1e-4), kb.Delta(), ridge=1e-6, literal=True)
    found = kb.calibrate(rule.fit(X, labels))
    # Four standard errors of a share of one half among 300.
    assert abs(found.accuracy - 0.5) < 4 * np.sqrt(0.25 / 300)


def test_confusion_of_a_filter():
    rng = np.random.default_rng(0)
    state = np.repeat(rng.integers(0, 2, size=30), 8)
    X = state + 0.3 * rng.normal(size=len(state))
    names = np.array(["off", "on"])[state]
    given = {"prior_ridge": 1e-3, "transition_ridge": 1e-3, "ridge": 1e-2, "rng": 0}
    model = kb.KernelBayesFilter(kb.Gaussian(0.3), kb.Delta(), **given).fit(X, names)
    found = model.calibrate(parts=3)
    assert found.labels == ("off", "on")
    assert found.counts.sum() == pytest.approx(len(state))
    assert found.accuracy > 0.9


def test_confusion_is_drawn_and_reported(pairs, kinds, tmp_path):
    pytest.importorskip("matplotlib").use("Agg")
    rule = kb.KernelBayesRule().fit(pairs[0], kinds)
    found = kb.calibrate(rule)
    assert found.plot().get_ylabel() == "truth"
    page = kb.report(rule.posterior(pairs[0][:2]), tmp_path / "a.html", calibration=found)
    assert "held-out categories" in page.read_text()


# --- documentation links --------------------------------------------------------------------------


def estimators():
    X = np.random.default_rng(0).normal(size=(30, 2))
    given = kb.Gaussian(0.5), kb.Gaussian(0.5)
    ridges = {"prior_ridge": 0.01, "transition_ridge": 0.01, "ridge": 0.01}
    yield kb.KernelBayesRule().fit(X, X[:, 0])
    yield kb.KernelBayesFilter(*given, **ridges, intervals="plain", rng=0).fit(X, X[:, 0])
    yield kb.KernelBeliefPropagation([("a", "b")]).fit({"a": X[:, 0], "b": X[:, 1]})
    yield kb.LikelihoodFree(method="importance", rng=0)


def test_notebooks_link_to_the_documentation(monkeypatch):
    monkeypatch.setenv("KERNELBAYES_DOCS", "https://docs.example/kb/")
    for model in estimators():
        page = f"https://docs.example/kb/generated/kernelbayes.{type(model).__name__}.html"
        text = model._repr_html_()
        assert f'href="{page}"' in text
        assert "https://scikit-learn.org" not in text
        if "Fitted attributes" in text:  # scikit-learn 1.9 and later
            names = [n for n in vars(model) if re.fullmatch(r"[a-zA-Z]\w*[a-z]_", n)]
            assert names or isinstance(model, kb.LikelihoodFree)
            assert all(re.search(rf">\s*{name}\s*<", text) for name in names)
            for name in ("kernel_x_", "ridge_") if isinstance(model, kb.KernelBayesRule) else ():
                assert f'href="{page}#:~:text={name}' in text


def test_no_documentation_no_link(monkeypatch, tmp_path):
    monkeypatch.delenv("KERNELBAYES_DOCS", raising=False)
    monkeypatch.setattr("kernelbayes.tables.BUILT", tmp_path / "nowhere")
    assert "href=" not in next(estimators())._repr_html_()
    monkeypatch.setattr("kernelbayes.tables.BUILT", tmp_path)  # what make docs has built
    assert f'href="{tmp_path.as_uri()}/generated/' in next(estimators())._repr_html_()
