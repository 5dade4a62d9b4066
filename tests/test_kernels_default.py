"""The kernel of a data set: a scale for each column, units that do not matter, mixed frames."""

import datetime

import numpy as np
import pandas as pd
import pytest

import kernelbayes as kb
from kernelbayes.kernels.default import additive_kernel, default_kernel
from kernelbayes.kernels.radial import column_spreads

UNITS = np.array([1024.0, 1.0, 2.0**-20])  # powers of two: scaling is exact


def columns(n=200, seed=0):
    """Incomes, ages, counts that are mostly zero."""
    rng = np.random.default_rng(seed)
    return np.column_stack(
        [
            np.exp(10.0 + 0.6 * rng.normal(size=n)),
            45.0 + 15.0 * rng.normal(size=n),
            rng.poisson(0.4, n),
        ]
    )


def frame(n=200, seed=0):
    rng = np.random.default_rng(seed)
    found = pd.DataFrame(columns(n, seed), columns=["income", "age", "visits"])
    found["city"] = rng.choice(["Oslo", "Rome", "Bonn"], size=n)
    found["member"] = rng.random(n) < 0.3
    return found


def test_a_spread_is_the_median_deviation():
    rng = np.random.default_rng(0)
    U = np.column_stack([rng.normal(size=500), rng.standard_t(3, size=500), rng.uniform(size=500)])
    expected = np.median(np.abs(U - np.median(U, axis=0)), axis=0)
    np.testing.assert_allclose(column_spreads(U), expected, rtol=0.05)


def test_spreads_follow_units_and_not_the_origin_or_the_order():
    U = columns()
    np.testing.assert_array_equal(column_spreads(U * UNITS), column_spreads(U) * UNITS)
    np.testing.assert_allclose(column_spreads(U + 7.0), column_spreads(U), rtol=1e-9)
    order = np.random.default_rng(1).permutation(len(U))
    np.testing.assert_array_equal(column_spreads(U[order]), column_spreads(U))


@pytest.mark.parametrize("share", [0.55, 0.7, 0.9, 0.95])
@pytest.mark.parametrize("noise", [0.0, 1e-6])
def test_a_column_that_rests_has_the_spread_of_its_movement(share, noise):
    rng = np.random.default_rng(0)
    rests = np.arange(2000) < share * 2000
    u = np.where(rests, noise * rng.normal(size=2000), rng.normal(size=2000))
    assert 0.02 < column_spreads(u[:, None])[0] < 2.0  # its median deviation is below 1e-5


def test_the_typical_distance_of_data_that_rest_is_not_that_of_their_noise():
    rng = np.random.default_rng(0)
    rests = np.arange(1000) < 570
    z = np.where(rests, 1e-4 * rng.normal(size=1000), 3.0 * rng.normal(size=1000))
    assert default_kernel(z).bandwidth > 0.5 * z.std()


def test_counts_indicators_and_constants_have_a_size():
    rng = np.random.default_rng(0)
    rare = (np.arange(1000) < 10).astype(float)
    U = np.column_stack([rare, rng.poisson(0.2, 1000), np.full(1000, -3.0), np.zeros(1000)])
    np.testing.assert_allclose(column_spreads(U), [1.0, 1.0, 3.0, 1.0])


def test_spreads_of_any_size_are_positive_and_finite():
    U = np.column_stack([np.array([-1.7e308, 1.7e308, 0.0]), np.array([0.0, 5e-324, 0.0])])
    spreads = column_spreads(U)
    assert np.all(np.isfinite(spreads) & (spreads > 0.0))


def test_one_column_keeps_the_median_heuristic():
    z = np.random.default_rng(0).normal(size=300)
    assert default_kernel(z).bandwidth == pytest.approx(kb.Gaussian.median(z).bandwidth)
    with pytest.warns(kb.NumericalWarning, match="all points coincide"):
        assert default_kernel(np.ones(5)) == kb.Gaussian(1.0)


@pytest.mark.parametrize("make", [default_kernel, additive_kernel])
def test_units_do_not_matter(make):
    U = columns()
    np.testing.assert_array_equal(make(U * UNITS)(U * UNITS), make(U)(U))
    mixed = frame()
    other = mixed.assign(income=mixed["income"] * 1024.0)
    np.testing.assert_array_equal(make(other)(other), make(mixed)(mixed))


def test_no_column_of_a_frame_of_numbers_is_lost():
    U = columns()
    for j in range(3):
        moved = U.copy()
        moved[:, j] += 2.0 * U[:, j].std()
        assert np.median(default_kernel(U).paired(U, moved)) < 0.95


@pytest.mark.parametrize("make", [default_kernel, additive_kernel])
def test_a_mixed_frame_has_a_kernel(make):
    data = frame(60)
    kernel = make(data)
    kb.laws.check_kernel(kernel, data)
    G = kernel(data)
    assert np.linalg.eigvalsh(G)[0] > -1e-10
    for name in data.columns:  # every column counts
        other = data.copy()
        other[name] = other[name].to_numpy()[::-1]
        assert not np.allclose(kernel(other), G)


def test_categories_are_what_a_frame_says_they_are():
    n = 30
    codes = np.arange(n) % 3
    data = pd.DataFrame({"ward": pd.Categorical(codes), "age": np.linspace(20.0, 80.0, n)})
    kinds = dict(default_kernel(data).parts)
    assert isinstance(kinds["ward"], kb.Delta)
    assert isinstance(kinds["age"], kb.Gaussian)
    numbers = pd.DataFrame({"a": np.array([1, 2.5, 3], dtype=object), "b": ["x", "y", "x"]})
    assert isinstance(dict(default_kernel(numbers).parts)["a"], kb.Gaussian)
    rule = kb.KernelBayesRule(ridge=1e-3).fit(data, codes)
    np.testing.assert_allclose(rule.predict(data), codes, atol=0.2)


def test_a_mapping_of_parts_has_a_kernel():
    data = {"place": columns()[:, :2], "city": frame()["city"].to_numpy()}
    kernel = default_kernel(data)
    assert [key for key, _ in kernel.parts] == ["place", "city"]
    assert kernel(data).shape == (200, 200)


def test_dates_say_what_to_do():
    days = pd.date_range("2024-01-01", periods=5)
    for data in (
        pd.DataFrame({"day": days, "x": np.arange(5.0)}),
        pd.DataFrame({"day": days.date, "x": np.arange(5.0)}),
        days.to_numpy(),
        {"day": np.array([datetime.date(2024, 1, 1)] * 5), "x": np.arange(5.0)},
    ):
        with pytest.raises(TypeError, match=r"dates.*Periodic"):
            default_kernel(data)


def test_missing_values_are_named():
    data = frame(20)
    data.loc[3, "age"] = np.nan
    with pytest.raises(ValueError, match=r"X\['age'\] has NaN"):
        default_kernel(data)
    data = frame(20)
    data.loc[3, "city"] = None
    with pytest.raises(ValueError, match=r"X\['city'\] has missing"):
        default_kernel(data)


def test_a_column_of_names_is_reported():
    data = frame(40).assign(name=[f"p{i}" for i in range(40)])
    with pytest.warns(kb.NumericalWarning, match=r"'name'.*Spectrum"):
        default_kernel(data)


def test_a_category_with_a_bandwidth():
    found = kb.Delta(0.5)(["a", "b", "a"], ["a"])
    np.testing.assert_allclose(found[:, 0], [1.0, np.exp(-2.0), 1.0])
    assert repr(kb.Delta()) == "Delta()"
    assert repr(kb.Delta(0.5)) == "Delta(0.5)"
    assert kb.Delta().scaled(2.0) == kb.Delta()
    assert kb.Delta(0.5).scaled(2.0) == kb.Delta(1.0)
    with pytest.raises(ValueError, match="bandwidth"):
        kb.Delta(-1.0)


@pytest.mark.parametrize("hole", ["?", None])
def test_numbers_written_as_text_are_warned_of(hole):
    """One "?" in a file makes a column of numbers text, and 100 categories of it, silently."""
    n = 100
    text = [f"{i / 8}" if hole is None else hole if i == 7 else str(i) for i in range(n)]
    frame = pd.DataFrame({"power": text, "size": np.arange(n, dtype=float)})
    with pytest.warns(kb.NumericalWarning, match=r"X\['power'\] holds numbers as text.*to_numeric"):
        default_kernel(frame)
    with pytest.warns(kb.NumericalWarning, match="X holds numbers as text"):
        default_kernel(text)
    codes = [str(i % 40) for i in range(n)]  # whole numbers may be codes, and few are
    default_kernel(frame.assign(power=codes))
    default_kernel(frame.assign(power=pd.Categorical(np.arange(n) % 40)))
    default_kernel(frame.assign(power=[f"{i % 4}.5" for i in range(n)]))
