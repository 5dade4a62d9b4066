"""Tests of samples and independence: every law over every test, method and null distribution."""

import numpy as np
import pytest

import kernelbayes as kb
import laws_compare as laws
from laws_compare import CASES, METHODS


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize(
    "law",
    [
        laws.result_is_valid,
        laws.same_seed_same_result,
        laws.options_are_checked,
        laws.units_do_not_matter,
        laws.pvalues_are_uniform,
    ],
    ids=lambda law: law.__name__,
)
def test_every_test(law, case):
    law(case)


@pytest.mark.parametrize("case", [c for c in CASES if not c.ordered], ids=str)
def test_order_of_rows_does_not_matter(case):
    laws.order_of_rows_does_not_matter(case)


@pytest.mark.parametrize("case", [c for c in CASES if c.symmetric], ids=str)
def test_samples_may_change_places(case):
    laws.samples_may_change_places(case)


@pytest.mark.parametrize("case", [c for c in CASES if c.far is not None], ids=str)
def test_far_from_the_null_it_rejects(case):
    laws.far_from_the_null_it_rejects(case)


def test_constant_data_have_p_value_one_and_a_warning():
    ones, k = np.ones(20), kb.Gaussian(1.0)
    noise = np.random.default_rng(0).normal(size=20)
    runs = [lambda m=m: kb.mmd_test(ones, ones, k, 50, 0, method=m) for m in METHODS]
    runs += [lambda m=m: kb.hsic_test(ones, noise, k, k, 50, 0, method=m) for m in METHODS]
    runs += [lambda m=m: kb.hsic_test(ones, ones, k, k, 50, 0, method=m) for m in METHODS]
    runs += [
        lambda: kb.hsic_test(ones, noise, k, k, 50, 0, weights=1.0 + noise**2),
        lambda: kb.mmd_test(ones, ones, rng=0),
        lambda: kb.mmd_aggregated(ones, ones, [k, kb.Laplace(2.0)], 50, 0),
        lambda: kb.hsic_aggregated(ones, noise, [k], [k], 50, 0),
        lambda: kb.ci_test(ones, noise, noise[::-1], k, k, k, 50, 0),
    ]
    for run in runs:
        with pytest.warns(kb.NumericalWarning) as caught:
            result = run()
        assert caught[-1].filename == __file__  # it points to the caller
        assert result.pvalue == 1.0
        assert (result.power_estimate, result.effect.size) == (0.0, 0.0)
        assert np.isfinite(result.statistic)
        assert np.isfinite(result.null).all()
        assert not np.isnan([result.effect.size, *result.effect.interval]).any()


@pytest.mark.torch
@pytest.mark.parametrize("case", [c for c in CASES if "features" not in c.name], ids=str)
def test_tensors_give_the_numbers_of_arrays(case):
    """Not for random features, whose random numbers are the array library's own."""
    torch = pytest.importorskip("torch")
    data = case.null(np.random.default_rng(8))
    here = case.run(data, 0)
    there = case.run([torch.tensor(part, dtype=torch.float64) for part in data], 0)
    assert there.pvalue == pytest.approx(here.pvalue, rel=1e-6)
    assert abs(there.statistic - here.statistic) <= case.near * here.null.std()
    assert isinstance(there.null, np.ndarray)
