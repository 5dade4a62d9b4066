"""The door itself: how data, names, numbers and options are read."""

import datetime
from decimal import Decimal
from fractions import Fraction

import array_api_strict
import numpy as np
import pandas as pd
import polars as pl
import pytest

import kernelbayes as kb
from kernelbayes import points
from kernelbayes.arrays import as_array, as_floats
from kernelbayes.kernels.default import default_kernel

VALUES = [1.0, 2.5, 4.0]
# The same three numbers, in every form in which people hold numbers.
FORMS = {
    "object": np.array(VALUES, dtype=object),
    "Decimal": [Decimal("1.0"), Decimal("2.5"), Decimal("4.0")],
    "Fraction": np.array([Fraction(1), Fraction(5, 2), Fraction(4)]),
    "masked, nothing hidden": np.ma.array(VALUES, mask=[0, 0, 0]),
    "pandas Float64": pd.Series(VALUES, dtype="Float64"),
    "pandas object": pd.Series(VALUES, dtype=object),
    "pandas frame of two types": pd.DataFrame({"a": pd.Series(VALUES, dtype="Float64")}),
    "polars": pl.Series(VALUES),
    "polars Decimal": pl.Series([Decimal("1.0"), Decimal("2.5"), Decimal("4.0")]),
    "pandas array": pd.array(VALUES, dtype="Float64"),
    "numpy scalars": [np.float64(v) for v in VALUES],
}
HOLES = {
    "masked": np.ma.array([1.0, 99.0, 4.0], mask=[0, 1, 0]),
    "masked integers": np.ma.array([1, 99, 4], mask=[0, 1, 0]),
    "a list of masked rows": [np.ma.array([1.0]), np.ma.array([9.0], mask=[1]), np.ma.array([4.0])],
    "object": np.array([1.0, None, 4.0], dtype=object),
    "Decimal": [Decimal(1), None, Decimal(4)],
    "pandas Int64": pd.Series([1, pd.NA, 4], dtype="Int64"),
    "pandas Float64": pd.Series([1.0, pd.NA, 4.0], dtype="Float64"),
    "pandas boolean and numbers": pd.DataFrame({"a": pd.array([1, None, 4], dtype="Int64")}),
    "polars": pl.Series([1, None, 4]),
    "polars frame": pl.DataFrame({"a": [1.0, None, 4.0]}),
}
DATES = {
    "numpy": np.array(["2026-01-01", "2026-01-02"], "M8[D]"),
    "differences": np.array([1, 2], "m8[s]"),
    "pandas": pd.Series(pd.to_datetime(["2026-01-01", "2026-01-02"])),
    "periods": pd.Series(pd.period_range("2026", periods=2)),
    "with time zone": pd.Series(pd.to_datetime(["2026-01-01", "2026-01-02"], utc=True)),
    "python": [datetime.date(2026, 1, 1), datetime.date(2026, 1, 2)],
    "polars": pl.Series([datetime.datetime(2026, 1, 1), datetime.datetime(2026, 1, 2)]),
    "a column of a frame": pd.DataFrame({"a": [1.0, 2.0], "t": pd.to_datetime(["2026"] * 2)}),
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS.keys())
def test_numbers_are_numbers_in_every_form(form):
    read = as_floats(form)
    assert read.dtype == np.float64
    assert type(read) is np.ndarray
    np.testing.assert_array_equal(read.ravel(), VALUES)
    assert default_kernel(form) == kb.Gaussian.median(VALUES)  # numbers, not categories


@pytest.mark.parametrize("form", HOLES.values(), ids=HOLES.keys())
def test_what_is_missing_is_nan(form):
    np.testing.assert_array_equal(np.ravel(as_array(form)), [1.0, np.nan, 4.0])
    with pytest.raises(ValueError, match="X has NaN"):
        as_floats(form)
    with pytest.raises(ValueError, match="NaN"):
        kb.Gaussian(1.0)(form)
    with pytest.raises(ValueError, match="NaN"):
        kb.Delta()(form)


@pytest.mark.parametrize("dates", DATES.values(), ids=DATES.keys())
def test_dates_are_refused_with_a_way_out(dates):
    for call in (as_floats, default_kernel, kb.Gaussian(1.0), kb.Gaussian.median):
        with pytest.raises(TypeError, match=r"dates or times; turn them into numbers.*seconds"):
            call(dates)


def test_dates_may_be_categories():
    np.testing.assert_array_equal(kb.Delta()(DATES["numpy"]), np.eye(2))


@pytest.mark.parametrize(
    ("bad", "error", "message"),
    [
        (map(float, VALUES), TypeError, "X .*list"),
        ((v for v in VALUES), TypeError, "X .*list"),
        (set(VALUES), TypeError, "X is a set; give an array or a list"),
        ({"a": 1.0}.values(), TypeError, "X is a dict_values; give an array or a list"),
        ([10**400, 1], ValueError, "beyond the range of floating point"),
        ([Decimal("1"), 1j], TypeError, "must be real|must hold numbers"),
        (np.array(["1", "2"], dtype=object), TypeError, "must hold numbers"),
        (np.array([1.0, "2"], dtype=object), TypeError, "must hold numbers"),
        (np.ma.array(["a", "b"], mask=[0, 1]), TypeError, "must hold numbers"),
    ],
)
def test_what_holds_no_numbers_is_refused(bad, error, message):
    with pytest.raises(error, match=message):
        kb.Gaussian(1.0).points(bad)


def test_masked_text_is_a_missing_category():
    with pytest.raises(ValueError, match="missing categories"):
        kb.Delta()(np.ma.array(["a", "b"], mask=[0, 1]))


def test_whole_numbers_and_truth_values_stay_what_they_are():
    huge = [2**62, 2**62 + 1]  # equal as floats
    np.testing.assert_array_equal(kb.Delta()(np.array(huge, dtype=object)), np.eye(2))
    assert as_array(np.array([True, False], dtype=object)).dtype == bool
    assert as_array(pd.Series([True, False], dtype="boolean")).dtype == bool


def test_a_mapping_of_single_values_is_one_point():
    assert kb.Gaussian(1.0).points({"a": 1.0, "b": 2.0}).tolist() == [[1.0, 2.0]]


# --- names ---------------------------------------------------------------------------------------

FRAME = {"a": [1.0, 2.0], "b": [3.0, 4.0]}
TURNED = {"b": [3.0, 4.0], "a": [1.0, 2.0]}


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame, dict])
def test_columns_are_put_in_order(frame):
    found = as_array(points.in_order(frame(TURNED), ("a", "b")))
    np.testing.assert_array_equal(found, [[1.0, 3.0], [2.0, 4.0]])
    given = frame(TURNED)
    assert points.in_order(given, None) is given
    for other in ({"a": [1.0], "c": [1.0]}, {"a": [1.0]}, {**FRAME, "c": [1.0, 2.0]}):
        with pytest.raises(ValueError, match=r"Q has the columns \[.*\], but .*\['a', 'b'\]"):
            points.in_order(frame(other), ("a", "b"), "Q")


def test_columns_of_one_name_keep_their_order_or_are_refused():
    twice = pd.DataFrame([[1.0, 2.0, 3.0]], columns=["a", "a", "b"])
    assert points.in_order(twice, ("a", "a", "b")) is twice
    with pytest.raises(ValueError, match="columns of the same name"):
        points.in_order(twice, ("b", "a", "a"))


def test_arrays_and_series_have_no_columns_to_order():
    X = np.ones((2, 2))
    assert points.in_order(X, ("a", "b")) is X
    series = pd.Series([1.0], name="c")
    assert points.in_order(series, ("a",)) is series


@pytest.mark.parametrize(
    "row",
    [
        {"b": 2.0, "a": 1.0},
        pd.Series({"b": 2.0, "a": 1.0}),
        pd.DataFrame({"b": [2.0], "a": [1.0]}),
        pl.DataFrame({"b": [2.0], "a": [1.0]}),
        pd.DataFrame({"b": [2.0], "a": [1.0]}).iloc[0],
    ],
)
def test_one_row_is_read_by_name(row):
    assert points.row_in_order(row, ("a", "b")) == {"a": 1.0, "b": 2.0}


def test_a_row_of_other_names_is_refused():
    for row in ({"a": 1.0, "c": 2.0}, pd.Series({"a": 1.0, "c": 2.0})):
        with pytest.raises(ValueError, match=r"\['a', 'c'\].*\['a', 'b'\]"):
            points.row_in_order(row, ("a", "b"))
    plain = pd.Series([1.0, 2.0])  # numbered, not named
    assert points.row_in_order(plain, ("a", "b")) is plain


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame, dict])
def test_a_kernel_of_two_frames_reads_both_in_one_order(frame):
    k = kb.Gaussian([1.0, 10.0])
    X, Y = np.array([[1.0, 3.0], [2.0, 4.0]]), np.array([[0.0, 5.0]])
    turned = frame({"b": [5.0], "a": [0.0]})
    np.testing.assert_array_equal(k(frame(FRAME), turned), k(X, Y))
    np.testing.assert_array_equal(k.paired(frame(FRAME), frame(TURNED)), k.paired(X, X))
    with pytest.raises(ValueError, match=r"Y has the columns \['a', 'c'\]"):
        k(frame(FRAME), frame({"a": [0.0], "c": [5.0]}))


# --- numbers and options --------------------------------------------------------------------------

TWO = [2, 2.0, np.int32(2), np.float32(2), np.array(2), Decimal(2), Fraction(2)]
TWO += [array_api_strict.asarray(2.0), 2e0]


@pytest.mark.parametrize("two", TWO, ids=lambda v: type(v).__name__)
def test_a_number_is_a_number_of_any_library(two):
    assert points.number(two, "n") == 2.0
    assert points.integer(two, "n") == 2
    assert isinstance(points.integer(two, "n"), int)
    assert kb.Gaussian(two) == kb.Gaussian(2.0)


@pytest.mark.parametrize("bad", ["1.0", b"1", 1j, True, np.True_, None, [1.0], np.ones(1), {}, "n"])
def test_what_is_no_number_is_refused(bad):
    for read in (points.number, points.integer, points.positive, points.share, points.finite):
        with pytest.raises(TypeError, match="n must be a"):
            read(bad, "n")


@pytest.mark.parametrize("bad", [10.7, 0, -1, np.inf, np.nan, 10**400, Decimal("Infinity")])
def test_an_integer_is_whole_positive_and_finite(bad):
    with pytest.raises(ValueError, match=r"n must be an integer of at least 1|beyond the range"):
        points.integer(bad, "n")


@pytest.mark.parametrize("bad", [0.0, -1.0, np.inf, np.nan, 10**400])
def test_a_positive_number_is_positive_and_finite(bad):
    with pytest.raises(ValueError, match=r"n must be positive and finite|beyond the range"):
        points.positive(bad, "n")


@pytest.mark.parametrize("bad", [0.0, 1.0, -1, 2, np.nan])
def test_a_share_lies_between_nought_and_one(bad):
    with pytest.raises(ValueError, match=r"level must lie in \(0, 1\)"):
        points.share(bad, "level")
    if bad in (0.0, 1.0):
        assert points.share(bad, "level", low=True, high=True) == bad


@pytest.mark.parametrize("bad", ["c", None, 1, ["a"], np.array(["a", "b"]), {}])
def test_an_option_is_one_of_a_few(bad):
    assert points.option("a", "form", ("a", "b")) == "a"
    with pytest.raises(ValueError, match="form must be one of 'a', 'b', got"):
        points.option(bad, "form", ("a", "b"))


@pytest.mark.parametrize("bad", [kb.Gaussian, "Gaussian", 1.0, None])
def test_what_is_no_kernel_is_refused(bad):
    with pytest.raises(TypeError, match=r"must be a Kernel, e.g. Gaussian\(1.0\)"):
        kb.embed(VALUES, bad)


@pytest.mark.parametrize("bad", [1, 0, "yes", None, np.ones(2), []])
def test_a_flag_is_true_or_false(bad):
    assert points.flag(np.True_, "raw") is True
    with pytest.raises(TypeError, match="raw must be True or False"):
        points.flag(bad, "raw")


@pytest.mark.parametrize("bad", [-1, 1.0, True, "0", np.random.RandomState])
def test_a_seed_is_a_whole_number(bad):
    with pytest.raises((ValueError, TypeError), match="rng must"):
        kb.nystrom(kb.Gaussian(1.0), np.ones((3, 1)), 2, rng=bad)


@pytest.mark.parametrize("make", [kb.nystrom, kb.pivoted_cholesky])
def test_landmarks_know_their_columns(make):
    X = np.array([[1.0, 3.0], [2.0, 4.0], [0.0, 9.0]])
    k = make(kb.Gaussian([1.0, 10.0]), pd.DataFrame(X, columns=["a", "b"]), 2, rng=0)
    turned = pd.DataFrame(X[:, ::-1], columns=["b", "a"])
    np.testing.assert_array_equal(k.features(turned), k.features(X))
    with pytest.raises(ValueError, match=r"\['a', 'c'\].*\['a', 'b'\]"):
        k.features(pd.DataFrame(X, columns=["a", "c"]))


# --- copies --------------------------------------------------------------------------------------


def test_own_copies_what_others_hold_and_nothing_else():
    X = np.ones((2, 2))
    assert not np.shares_memory(points.own(X, X), X)
    assert not np.shares_memory(points.own(X[:, 0], X), X)
    read = as_floats(np.ones((2, 2), dtype=int))
    assert points.own(read, np.ones((2, 2), dtype=int)) is read
    both = points.own({"x": X, "s": ["a"]}, {"x": X, "s": ["a"]})
    assert not np.shares_memory(both["x"], X)
    assert both["s"] == ["a"]


@pytest.mark.parametrize("scale", [1e-200, 1e-160, 1e160, 1e200])
def test_the_median_heuristic_has_no_scale_of_its_own(scale):
    X = np.array([0.0, 1.0, 3.0, 7.0])
    assert kb.Gaussian.median(scale * X).bandwidth == pytest.approx(
        scale * kb.Gaussian.median(X).bandwidth, rel=1e-12
    )


@pytest.mark.parametrize("scale", [1e-300, 1e-200, 1e-160, 1e160, 1e200, 1e300])
@pytest.mark.parametrize("d", [1, 2])
def test_default_kernels_have_no_scale_of_their_own(scale, d):
    rng = np.random.default_rng(7)
    X = rng.normal(size=(60, d))
    z = X[:, 0] + 0.1 * rng.normal(size=60)
    wanted = kb.KernelBayesRule(rng=0).fit(X, z).predict(X[:5])
    found = kb.KernelBayesRule(rng=0).fit(scale * X, z).predict(scale * X[:5])
    np.testing.assert_allclose(found, wanted, rtol=1e-6)
    other = kb.KernelBayesRule(rng=0).fit(X, scale * z).predict(X[:5])
    np.testing.assert_allclose(other / scale, wanted, rtol=1e-6)
    pvalues = [kb.mmd_test(c * X, c * (X + 1), permutations=99, rng=0).pvalue for c in (1.0, scale)]
    assert pvalues[0] == pvalues[1]


def test_an_outlier_beyond_squares_does_not_change_a_default_kernel():
    X = np.random.default_rng(8).normal(size=(60, 1))
    widths = []
    for outlier in (1e3, 1e200):
        X[0] = outlier
        widths.append(kb.KernelBayesRule(rng=0).fit(X[1:], X[1:, 0]).kernel_x_.bandwidth)
    assert widths[0] == widths[1]
