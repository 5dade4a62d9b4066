"""The laws of the door for tests: by name, missing is missing, numbers are numbers."""

from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pytest

import kernelbayes as kb

rng = np.random.default_rng(0)
X = rng.normal(size=(30, 2)) * [1.0, 5.0]
Y = rng.normal(size=(25, 2)) * [1.0, 5.0] + [0.5, 3.0]
PAIR = X @ [[1.0, 0.0], [0.5, 2.0]] + rng.normal(size=X.shape)
K = kb.Gaussian([1.0, 5.0])
FEW = {"permutations": 50, "rng": 0}
TWO = {
    "mmd_test": lambda a, b: kb.mmd_test(a, b, K, **FEW),
    "median": lambda a, b: kb.mmd_test(a, b, **FEW),
    "power": lambda a, b: kb.mmd_test(a, b, "power", **FEW),
    "some kernels": lambda a, b: kb.mmd_test(a, b, [K, kb.Gaussian(2.0)], **FEW),
    "linear": lambda a, b: kb.mmd_test(a, b, K, method="linear", **FEW),
    "features": lambda a, b: kb.mmd_test(a, b, K, method="features", **FEW),
    "mmd_aggregated": lambda a, b: kb.mmd_aggregated(a, b, **FEW),
    "aggregated, some": lambda a, b: kb.mmd_aggregated(a, b, [K, kb.Gaussian(2.0)], **FEW),
}
PAIRED = {
    "hsic_test": lambda a, b: kb.hsic_test(a, b, **FEW),
    "hsic_aggregated": lambda a, b: kb.hsic_aggregated(a, b, **FEW),
    "ci_test": lambda a, b: kb.ci_test(a, b, X[:, :1], **FEW),
}
# Without a kernel, frames of several columns get another one than arrays: theirs added to it.
DEFAULTS = {TWO[name] for name in ("median", "power", "mmd_aggregated")}
every_frame = pytest.mark.parametrize("kind", [pd.DataFrame, pl.DataFrame, dict])


def framed(kind, values, *names):
    return kind(dict(zip(names, values.T, strict=True)))


@every_frame
@pytest.mark.parametrize("run", TWO.values(), ids=TWO.keys())
def test_columns_are_put_in_order(run, kind):
    if run in DEFAULTS:
        expected = run(framed(kind, X, "a", "b"), framed(kind, Y, "a", "b"))
        by_frame = run(pd.DataFrame(X, columns=["a", "b"]), pd.DataFrame(Y, columns=["a", "b"]))
        assert expected.statistic == pytest.approx(by_frame.statistic, rel=1e-9)
    else:
        expected = run(X, Y)
    found = run(framed(kind, X, "a", "b"), framed(kind, Y[:, ::-1], "b", "a"))
    assert found.statistic == pytest.approx(expected.statistic, rel=1e-9)
    assert found.pvalue == expected.pvalue
    with pytest.raises(ValueError, match=r"Y has the columns \['a', 'c'\], but .*\['a', 'b'\]"):
        run(framed(kind, X, "a", "b"), framed(kind, Y, "a", "c"))


@every_frame
@pytest.mark.parametrize("run", PAIRED.values(), ids=PAIRED.keys())
def test_pairs_of_named_numbers_are_read_alike(run, kind):
    names = ["a", "b"]
    expected = run(pd.DataFrame(X, columns=names), pd.DataFrame(PAIR, columns=names))
    found = run(framed(kind, X, *names), framed(kind, PAIR, *names))
    assert found.statistic == pytest.approx(expected.statistic, rel=1e-9)
    assert found.pvalue == expected.pvalue


def test_single_columns_may_have_other_names():
    first, second = pd.DataFrame({"a": X[:, 0]}), pd.DataFrame({"b": Y[:, 0]})
    expected = kb.mmd_test(X[:, 0], Y[:, 0], **FEW).pvalue
    assert kb.mmd_test(first, second, **FEW).pvalue == expected
    assert kb.mmd_test(first["a"], second["b"], **FEW).pvalue == expected


NUMBERS = {
    "objects": lambda v: v.astype(object),
    "Decimal": lambda v: np.vectorize(Decimal, otypes=[object])(v),
    "nullable": lambda v: pd.DataFrame(v).astype("Float64"),
    "polars": lambda v: pl.DataFrame(v),
    "masked": lambda v: np.ma.array(v, mask=np.zeros(v.shape, dtype=bool)),
}
every_test = pytest.mark.parametrize(
    ("run", "other"),
    [(run, Y) for run in TWO.values()] + [(run, PAIR) for run in PAIRED.values()],
    ids=[*TWO, *PAIRED],
)


@pytest.mark.parametrize("form", NUMBERS.values(), ids=NUMBERS.keys())
@every_test
def test_numbers_are_not_categories(run, other, form):
    framed = isinstance(form(X), pd.DataFrame | pl.DataFrame)
    plain = pd.DataFrame if framed else np.asarray  # frames have defaults of their own
    found, expected = run(form(X), form(other)), run(plain(X), plain(other))
    assert found.pvalue == expected.pvalue
    assert found.statistic == pytest.approx(expected.statistic, rel=1e-9)


def hidden(values):
    spoiled = np.ma.array(values.copy(), mask=np.zeros(values.shape, dtype=bool))
    spoiled.data[2, 0], spoiled[2, 0] = 1e9, np.ma.masked
    return spoiled


def nullable(values):
    frame = pd.DataFrame(values).astype("Float64")
    frame.iloc[2, 0] = pd.NA
    return frame


@pytest.mark.parametrize("bad", [hidden, nullable])
@every_test
def test_missing_entries_are_refused(run, other, bad):
    for data in ((bad(X), other), (X, bad(other))):
        with pytest.raises(ValueError, match="NaN"):
            run(*data)


@every_test
def test_dates_are_refused_with_a_way_out(run, other):
    days = np.arange(len(X)).astype("M8[D]")
    with pytest.raises(TypeError, match="dates or times; turn them into numbers"):
        run(days, other[:, 0])


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"permutations": 10.7}, ValueError, "permutations must be an integer"),
        ({"permutations": "100"}, TypeError, "permutations must be an integer"),
        ({"permutations": 10**400}, ValueError, "permutations must be an integer"),
        ({"alpha": 2.0}, ValueError, r"alpha must lie in \(0, 1\)"),
        ({"alpha": "0.05"}, TypeError, "alpha must be a number"),
    ],
)
@pytest.mark.parametrize(
    "run", [kb.mmd_test, kb.mmd_aggregated, kb.hsic_test, kb.hsic_aggregated, kb.ci_test]
)
def test_mistakes_are_named(run, options, error, message):
    data = (X, PAIR, X[:, 0]) if run is kb.ci_test else (X, PAIR)
    with pytest.raises(error, match=message):
        run(*data, **{"rng": 0, **options})


def test_a_result_owns_its_data():
    first, second = X.copy(), PAIR.copy()
    results = [kb.hsic_test(first, second, **FEW), kb.mmd_test(first, second, K, **FEW)]
    kept = [np.concatenate([*results[0].witness.points]), results[1].witness.points.copy()]
    first[...], second[...] = 7.0, 7.0
    np.testing.assert_array_equal(np.concatenate([*results[0].witness.points]), kept[0])
    np.testing.assert_array_equal(results[1].witness.points, kept[1])
