"""Drift of tables: what is named, corrected p-values, empty cells, categories, pictures."""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binom

import kernelbayes as kb
from kernelbayes.compare.drift import holm
from laws_compare import FALSE_ALARM


def table(n, rng, shift=0.0):
    return pd.DataFrame(
        {
            "age": rng.normal(40.0 + 10.0 * shift, 10.0, n),
            "income": np.exp(rng.normal(size=n)),
            "city": rng.choice(["Rome", "Oslo", "Bonn"], n),
            "member": rng.random(n) < 0.5,
        }
    )


@pytest.mark.parametrize("n", [150, 1500])  # by permutations, by random features
def test_the_column_that_differs_is_named(n):
    """The shift is nine standard errors or more: found on every seed."""
    rng = np.random.default_rng(0)
    report = kb.drift_report(table(n, rng), table(n, rng, 1.0), rng=0)
    assert report.columns[0]["column"] == "age"
    assert "age" in report.drifted
    assert report.tests["age"].method == ("permutation" if n == 150 else "features")
    statistic, pvalue = report
    assert (statistic, pvalue) == (report.joint.statistic, report.joint.pvalue)
    assert report.null is report.joint.null
    assert pvalue <= 0.05
    assert "age" in report.verdict
    assert list(report.to_frame()["column"]) == [row["column"] for row in report.columns]


def test_a_column_is_named_as_rarely_as_promised():
    """Any of four columns in 40 tables: binomial at 5 % or less, band of probability 1e-6."""
    named = 0
    for seed in range(40):
        rng = np.random.default_rng([seed, 3])
        found = kb.drift_report(table(60, rng), table(40, rng), permutations=399, rng=rng)
        named += bool(found.drifted)
    assert named <= binom.ppf(1.0 - FALSE_ALARM, 40, 0.05)


def test_holm_is_the_textbook_one():
    p = np.array([0.01, 0.04, 0.03, 0.005])
    np.testing.assert_allclose(holm(p), [0.03, 0.06, 0.06, 0.02])
    # By hand: reject in order while p_(k) <= alpha / (d - k + 1).
    rng = np.random.default_rng(0)
    for _ in range(50):
        p, alpha = rng.random(6) ** 3, 0.05
        rejected, order = np.zeros(6, dtype=bool), np.argsort(p)
        for k, j in enumerate(order):
            if p[j] > alpha / (6 - k):
                break
            rejected[j] = True
        np.testing.assert_array_equal(holm(p) <= alpha, rejected)


def test_the_test_of_a_column_of_categories_is_that_of_its_shares():
    """With Delta the statistic is the squared distance of the shares."""
    rng = np.random.default_rng(0)
    a, b = (rng.choice(["x", "y", "z"], n) for n in (70, 90))
    report = kb.drift_report({"c": a}, {"c": b}, rng=0)
    shares = [[np.mean(v == label) for label in "xyz"] for v in (a, b)]
    expected = np.sum(np.square(np.subtract(*shares)))
    assert report.statistic == pytest.approx(expected, abs=1e-9)
    labels, before, after = report.shapes["c"]
    by_label = {str(k): (s, t) for k, s, t in zip(labels, before, after, strict=True)}
    assert by_label["y"] == pytest.approx((shares[0][1], shares[1][1]))


def test_empty_cells_are_compared():
    rng = np.random.default_rng(0)
    a, b = table(200, rng), table(200, rng)
    b.loc[:80, "income"] = np.nan
    report = kb.drift_report(a, b, rng=0)
    assert "income (empty)" in report.drifted
    assert report.joint.sizes == (200, 119)
    b["income"] = np.nan
    report = kb.drift_report(a, b, rng=0)  # an empty column hides nothing of the others
    assert "income (empty)" in report.drifted
    assert report.joint.sizes == (200, 200)


def test_arrays_mappings_and_frames_read_alike():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(80, 2)), rng.normal(0.5, size=(60, 2))
    by_array = kb.drift_report(x, y, rng=0)
    by_name = kb.drift_report(
        {"x0": x[:, 0], "x1": x[:, 1]}, pd.DataFrame({"x1": y[:, 1], "x0": y[:, 0]}), rng=0
    )
    assert [r["pvalue"] for r in by_array.columns] == [r["pvalue"] for r in by_name.columns]
    assert kb.drift_report(x, y, rng=0).pvalue == by_array.pvalue
    one = kb.drift_report(x[:, 0], y[:, 0], rng=0)
    assert one.pvalue == one.columns[0]["pvalue"]


def test_a_small_table_beside_a_large_one():
    rng = np.random.default_rng(0)
    report = kb.drift_report(rng.normal(size=(20_000, 2)), rng.normal(2.0, size=(20, 2)), rng=0)
    assert report.tests["x0"].method == "permutation"
    assert set(report.drifted) == {"x0", "x1"}


def test_a_constant_column_has_not_changed():
    rng = np.random.default_rng(0)
    a = np.column_stack([rng.normal(size=30), np.ones(30)])
    report = kb.drift_report(a, a[:20], rng=0)
    assert next(r for r in report.columns if r["column"] == "x1")["pvalue"] == 1.0


def test_what_cannot_be_compared_is_refused():
    rng = np.random.default_rng(0)
    a = table(20, rng)
    with pytest.raises(ValueError, match="columns"):
        kb.drift_report(a, a.rename(columns={"age": "years"}))
    with pytest.raises(TypeError, match="column 'age' holds numbers in a and categories in b"):
        kb.drift_report(a, a.assign(age="old"))
    with pytest.raises(ValueError, match="infinite"):
        kb.drift_report(a, a.assign(age=np.inf))
    with pytest.raises(ValueError, match="too few points: b has 1"):
        kb.drift_report(a, a[:1])
    with pytest.raises(ValueError, match="alpha"):
        kb.drift_report(a, a, alpha=1.0)


def test_pictures_and_html():
    pytest.importorskip("matplotlib").use("agg")
    rng = np.random.default_rng(0)
    a, b = ({"<b>": rng.normal(size=30), "city": rng.choice(["x", "y"], 30)} for _ in range(2))
    report = kb.drift_report(a, b, rng=0)
    assert report.plot().get_yticklabels()[-1].get_text() == report.columns[0]["column"]
    assert report.plot("<b>").get_xlabel() == "<b>"
    assert len(report.plot("city").patches) == 4
    assert "&lt;b&gt;" in report._repr_html_()
    assert "<b>" not in report._repr_html_()
    with pytest.raises(ValueError, match="column must be one of"):
        report.plot("town")


def test_per_kernel_pvalues_of_aggregated_tests_are_each_kernels_own():
    """A known fault elsewhere: the second kernel's p-values are copies of the first's.

    Each is the tail of a gamma law with three moments of the permuted statistics, here beside the
    share of 999 other permutations that reach the statistic. Four standard errors of that share are
    0.06 at most, and the law is off by less than 0.04.
    """
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(80, 1)), rng.normal(0.25, 1.2, size=(60, 1))
    kernels = [kb.Gaussian(0.1), kb.Gaussian(1.0), kb.Linear()]
    table = kb.mmd_aggregated(x, y, kernels, 999, 0, centrality=0.0).details["table"]
    alone = [kb.mmd_test(x, y, k, 999, 1) for k in kernels]
    for row, test in zip(table, alone, strict=True):
        assert row["statistic"] == pytest.approx(test.statistic, rel=1e-6)
        assert row["pvalue"] == pytest.approx(test.pvalue, abs=0.1)
    assert len({row["pvalue"] for row in table}) == 3
    pairs = kb.hsic_aggregated(x[:60], y, kernels[:2], kernels[1:], 999, 0).details["table"]
    for row in pairs:
        test = kb.hsic_test(x[:60], y, *row["kernel"], 999, 1)
        assert row["statistic"] == pytest.approx(test.statistic, rel=1e-6)
        assert row["pvalue"] == pytest.approx(test.pvalue, abs=0.1)
    assert len({row["pvalue"] for row in pairs}) == 4


def test_large_samples_take_random_features_by_themselves():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(30_000, 3)), rng.normal(size=(30_000, 3))
    assert kb.mmd_test(x, y, rng=0).method == "features"
    assert kb.hsic_test(x, y, rng=0).method == "features"
    assert kb.hsic_test(x[:2000], y[:2000], rng=0, permutations=10_000).method == "features"
    assert kb.mmd_test(x[:300], y[:300], rng=0).method == "permutation"
    assert kb.hsic_test(x[:3000, 0], y[:3000, 0], rng=0).method == "permutation"
    weights = np.ones(30)
    assert kb.mmd_test(x[:30], y[:30], rng=0, weights_x=weights).method == "permutation"


def test_a_result_is_a_frame():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=40), rng.normal(size=30)
    result = kb.mmd_test(x, y, rng=0)
    (row,) = result.to_frame().to_dict("records")
    assert row["pvalue"] == result.pvalue
    assert row["effect"] == result.effect.size
    assert row["n"] == 70
    assert len(kb.mmd_aggregated(x, y, permutations=99, rng=0).to_frame()) == 14


def test_a_rare_category_is_not_missed_in_large_tables():
    """One in a hundred is another label, in tables that are sorted: every label is a landmark."""
    a = np.array(["A"] * 9900 + ["B"] * 100)
    b = np.array(["A"] * 9900 + ["C"] * 100)
    for seed in range(3):
        report = kb.drift_report({"kind": a}, {"kind": b}, rng=seed)
        assert report.columns[0]["pvalue"] < 0.01


def test_tables_without_a_complete_row_have_their_columns_tested():
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(200, 3)), rng.normal([0.0, 2.0, 0.0], size=(200, 3))
    for table in (a, b):
        table[::2, 0], table[1::2, 1], table[:, 2] = np.nan, np.nan, np.nan
    report = kb.drift_report(a, b, rng=0)
    found = {row["column"]: row["drifted"] for row in report.columns}
    assert found["x1"]
    assert not found["x0"]
    assert report.joint.pvalue < 0.05  # filled with medians, the shift of x1 is still seen


def test_text_with_missing_values_of_pandas_and_numbers_among_objects():
    rng = np.random.default_rng(1)
    texts = pd.array(["u", "v", None] * 20, dtype="string")
    one = pd.DataFrame({"text": texts, "number": rng.normal(size=60)})
    assert len(kb.drift_report(one, one.copy(), rng=0).columns) == 2
    objects = one.astype(object).to_numpy()
    shifted = objects.copy()
    shifted[:, 1] = shifted[:, 1] + 3.0
    changed = {r["column"]: r for r in kb.drift_report(objects, shifted, rng=0).columns}
    assert changed["x1"]["drifted"]
    assert changed["x1"]["change"].startswith("mean")


def test_too_few_permutations_for_the_columns_are_warned_of():
    """The smallest p-value of 99 permutations, times seven columns, is .07: nothing was named."""
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, 60, 7))
    with pytest.warns(kb.NumericalWarning, match="no column of 7 can be named with 99 perm.* 0.07"):
        assert kb.drift_report(a, b + 9.0, permutations=99, rng=0).drifted == ()
    assert len(kb.drift_report(a, b + 9.0, permutations=199, rng=0).drifted) == 7
