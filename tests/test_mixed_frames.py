"""Tables of numbers, categories, truth values and text: holes in them, and what was never seen."""

from functools import partial

import numpy as np
import pandas as pd
import polars as pl
import pytest

import kernelbayes as kb
from kernelbayes.arrays import as_array, as_real

KERNEL = kb.Parts(
    {("level", "count"): kb.Gaussian((0.5, 2.0)), "side": kb.Delta(0.7), "on": kb.Delta(0.7)}
)
OPTIONS = {"prior_ridge": 1e-3, "transition_ridge": 1e-3, "ridge": 1e-2, "back_ridge": 0.1}


def table(z, rng):
    """What a walk looks like; the columns are in another order than the parts of the kernel."""
    level = z + 0.2 * rng.normal(size=len(z))
    on = z + 0.3 * rng.normal(size=len(z)) > 0.2
    side = np.where(z > 0.0, "east", "west")
    count = rng.integers(0, 5, len(z))
    return pd.DataFrame({"side": side, "level": level, "on": on, "count": count})


@pytest.fixture(scope="module")
def walk():
    rng = np.random.default_rng(0)
    z = np.sin(0.2 * np.arange(120) + rng.uniform(0, 6)) + 0.1 * rng.normal(size=120)
    return table(z, rng), z, table(z[20:32], rng)


def learned(X, z, kernel=KERNEL):
    return kb.KernelBayesFilter(kernel, kb.Gaussian(0.5), rng=0, **OPTIONS).fit(X, z)


def stepped(model, X):
    """Means of the loop of ``step``, each row given by name."""
    state, means = model.start(), []
    for t in range(len(X)):
        state, _ = model.step(state, X.iloc[t])
        means.append(state.belief.mean())
    return np.array(means)


# --- holes ---------------------------------------------------------------------------------------

# A hole in a column of each kind, as libraries write it.
HOLES = {
    "number": ("level", lambda c: c.where(c.index != 3)),
    "number among objects": ("level", lambda c: c.astype(object).where(c.index != 3, None)),
    "whole number": ("count", lambda c: c.astype("Int64").where(c.index != 3)),
    "text": ("side", lambda c: c.where(c.index != 3, None)),
    "text NaN": ("side", lambda c: c.where(c.index != 3, np.nan)),
    "category": ("side", lambda c: c.astype("category").where(c.index != 3)),
    "truth": ("on", lambda c: c.astype(object).where(c.index != 3, None)),
    "truth NaN": ("on", lambda c: c.astype(object).where(c.index != 3, np.nan)),
    "truth NA": ("on", lambda c: c.astype("boolean").where(c.index != 3)),
}


@pytest.mark.parametrize("kind", HOLES)
@pytest.mark.filterwarnings("ignore:.*unlike anything:kernelbayes.NumericalWarning")
def test_a_missing_cell_leaves_its_column_out(walk, kind):
    """At that step, as by a kernel that has never heard of the column."""
    X, z, new = walk
    model, (column, pierce) = learned(X, z), HOLES[kind]
    pierced = new.assign(**{column: pierce(new[column])})
    found = model.filter(pierced)
    np.testing.assert_allclose(found.mean(), stepped(model, pierced), atol=1e-10)
    left = [name for name in ("level", "count", "side", "on") if name != column]
    parts = {n: k for n, k in (("side", kb.Delta(0.7)), ("on", kb.Delta(0.7))) if n in left}
    widths = {"level": 0.5, "count": 2.0}
    numbers = tuple(name for name in left if name in widths)
    without = kb.Parts({numbers: kb.Gaussian(tuple(widths[n] for n in numbers)), **parts})
    other = learned(X, z, without)
    expected, _ = other.step(other.start(prior=z[:20]), new.iloc[3])
    state, _ = model.step(model.start(prior=z[:20]), pierced.iloc[3])
    np.testing.assert_allclose(state.belief.mean(), expected.belief.mean(), atol=1e-8)


@pytest.mark.filterwarnings("ignore:.*unlike anything:kernelbayes.NumericalWarning")
def test_a_missing_row_of_a_mixed_frame_is_a_prediction(walk):
    X, z, new = walk
    model = learned(X, z)
    for kind in ("object", "nullable", "polars"):
        blank = new.convert_dtypes() if kind == "nullable" else new.astype(object)
        blank.loc[[3, 7], :] = pd.NA if kind == "nullable" else None
        asked = pl.from_dicts(blank.to_dict("records")) if kind == "polars" else blank
        beliefs = model.filter(asked)
        assert np.flatnonzero(~beliefs.info.observed).tolist() == [3, 7]
        np.testing.assert_allclose(beliefs.mean(), stepped(model, blank), atol=1e-10)
        assert np.isfinite(model.smooth(asked).mean()).all()


def test_truth_values_with_holes_stay_truth_values():
    for values in ([True, None], [True, np.nan], pd.array([True, pd.NA], dtype="boolean")):
        assert as_array(pd.Series(values)).tolist() == [True, None]
    assert as_array(np.ma.array([True, False], mask=[0, 1])).tolist() == [True, None]
    np.testing.assert_array_equal(as_real([True, None]), [1.0, np.nan])
    np.testing.assert_array_equal(as_array([True, 2, None]), [1.0, 2.0, np.nan])


def test_a_graph_reads_truth_values_with_holes_as_categories():
    rng = np.random.default_rng(0)
    on = rng.random(300) < 0.4
    heat = on + 0.5 * rng.normal(size=300)
    # No choice among kernels or ridges, which two rows might tip.
    make = partial(kb.KernelBeliefPropagation, [("heat", "on")], scales="median", ridge=1e-3)
    whole = make().fit({"heat": heat[2:], "on": on[2:]})
    expected = whole.query(["on"], evidence={"heat": 1.0})["on"].prob(lambda z: z)
    for hole in (None, np.nan, pd.NA):
        column = pd.Series(on, dtype=object)
        column[:2] = hole
        data = pd.DataFrame({"heat": heat, "on": column})
        rows = make().fit(data).query(["on"], evidence={"heat": 1.0})["on"].summary()
        assert [row["category"] for row in rows] == [False, True]
        # Two more values of heat, without partners, are all that differs.
        assert rows[1]["probability"] == pytest.approx(float(expected), abs=0.05)


# --- never seen -----------------------------------------------------------------------------------


def test_a_category_never_seen_leaves_the_prior():
    """Whatever the other columns say, and however alike the kernel takes categories to be."""
    rng = np.random.default_rng(0)
    town, age, on = rng.choice(["Rome", "Oslo", "Bern"], 200), rng.normal(size=200), rng.random(200)
    X = pd.DataFrame({"town": town, "age": age, "on": on < 0.5})
    z = np.select([town == "Rome", town == "Oslo"], [3.0, -3.0], 0.0) + age + 0.2 * on
    new = pd.DataFrame({"town": ["Rome", "Paris", "Oslo"], "age": 0.0, "on": True})
    told = r"1 of 3 points \(1\) lie outside .* 100%"
    for options in (
        {},
        {"rank": 60, "rng": 0},
        {"kernel_x": 2.0 * kb.Parts({"town": kb.Delta(3.0)})},
    ):
        rule = kb.KernelBayesRule(**options).fit(X, z)
        with pytest.warns(kb.NumericalWarning, match=told) as caught:
            means = rule.predict(new)
        assert len(caught) == 1
        with pytest.warns(kb.NumericalWarning, match=told):
            found = rule.posterior(new)
        with pytest.warns(kb.NumericalWarning, match=told):
            rule.predict_interval(new)
        np.testing.assert_allclose(means, found.mean()[:, 0], atol=1e-6)
        assert means[1] == pytest.approx(z.mean())
        assert found.std()[1, 0] == pytest.approx(z.std())
        assert found.diagnostics.support[1] == 0.0
        verdicts = [row["verdict"] for row in found.summary()]
        assert [v.startswith("outside the sample") for v in verdicts] == [False, True, False]


def test_a_category_never_seen_leaves_a_filter_its_prediction(walk):
    X, z, new = walk
    model = learned(X, z)
    odd = new.assign(side=np.where(new.index == 5, "north", new["side"]))
    blank = new.astype(object)
    blank.loc[5, :] = None
    with pytest.warns(kb.NumericalWarning, match=r"1 of 12 observations \(5\) are unlike anything"):
        beliefs = model.filter(odd)
    np.testing.assert_allclose(beliefs.mean(), model.filter(blank).mean(), atol=1e-12)
    assert beliefs.info.prior_share[5] == 1.0


# --- words ---------------------------------------------------------------------------------------


def test_a_hole_in_a_new_row_is_named_by_column_and_row(walk):
    X, z, new = walk
    rule = kb.KernelBayesRule().fit(X, z)
    bad = new.copy()
    bad.loc[[2, 5], "level"] = np.nan
    told = r"\['level'\] has NaN or infinite entries in row 2 and 1 more \(of 12\)"
    for ask in (rule.predict, rule.posterior, rule.predict_interval):
        with pytest.raises(ValueError, match=told):
            ask(bad)
    bad = new.copy()
    bad.loc[4, "side"] = None
    with pytest.raises(
        ValueError, match=r"\['side'\] has missing categories .* in row 4 \(of 12\)"
    ):
        rule.predict(bad)
    numbers = kb.KernelBayesRule().fit(X[["level", "count"]], z)
    with pytest.raises(ValueError, match=r"NaN or infinity in row 1 \(of 2\)"):
        numbers.predict(pd.DataFrame({"level": [0.0, np.nan], "count": [1, 2]}))


def test_the_sample_with_the_hole_is_named(walk):
    X, _, new = walk
    bad = new.copy()
    bad.loc[4, "level"] = np.nan
    with pytest.raises(ValueError, match=r"Y\['level'\] has NaN .* in row 4"):
        kb.mmd_test(X, bad)
    with pytest.raises(ValueError, match=r"X\['level'\] has NaN .* in row 4"):
        kb.mmd_test(bad, X)
    with pytest.raises(ValueError, match=r"X2\['level'\] has NaN .* in row 4"):
        kb.conditional_mmd_test(X, X["count"], bad, new["count"])


def test_a_column_of_two_kinds_says_which_table_holds_what(walk):
    X, _, new = walk
    other = new.assign(count=pd.Categorical(new["count"]))
    told = r"'count' holds numbers in a and categories in b; .* b\['count'\].astype\(float\)"
    with pytest.raises(TypeError, match=told):
        kb.drift_report(X, other)
    with pytest.raises(TypeError, match="holds numbers in b and categories in a"):
        kb.drift_report(other, X)
    with pytest.raises(TypeError, match="holds numbers in X and categories in Y"):
        kb.mmd_test(X, other)
    assert kb.drift_report(X, other.astype({"count": float}), rng=0).pvalue > 0.0


def test_holes_in_training_rows_are_refused_with_what_to_do():
    """What the messages advise works as written."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.normal(size=60)})
    frame["b"] = frame["a"] + 0.1 * rng.normal(size=60)
    frame["c"] = rng.choice(["x", "y"], 60).astype(object)
    z, holes = frame["a"].to_numpy(), frame.copy()
    holes.loc[3, "b"], holes.loc[5, "c"] = np.nan, None
    with pytest.raises(ValueError, match=r"X\['b'\].*in row 3 .*drop or impute"):
        kb.KernelBayesRule().fit(holes, z)
    filled = holes.copy()
    beliefs = kb.KernelBeliefPropagation("tree").fit(frame).query(["b"], evidence=holes)
    filled["b"] = holes["b"].fillna(pd.Series(np.asarray(beliefs["b"].mean())[:, 0]))
    with pytest.raises(ValueError, match=r"X\['c'\].*in row 5 .*fillna\('missing'\)"):
        kb.KernelBayesRule().fit(filled, z)
    filled["c"] = filled["c"].fillna("missing")
    assert kb.KernelBayesRule().fit(filled, z).score(filled, z) > 0.9
