"""Bandwidths for each dimension of observations: what tune gains by them, and their laws."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kernelbayes as kb
from kernelbayes.filters.choose.choices import per_dimension

# Some observations are unlike the small training samples, and a warning says so.
pytestmark = pytest.mark.filterwarnings("ignore:.*unlike anything:kernelbayes.NumericalWarning")

KERNEL_Z = kb.Gaussian(0.5)
# Kernels on the observations themselves: regression features weigh columns by their own means.
PLAIN = {"lags": 1, "order": 1, "features": "raw"}


def circling(rng, length, noises=(0.2, 0.4), useless=4):
    """A point going round, seen by columns of unequal noise among columns of nothing but noise."""
    angle = np.cumsum(0.3 + 0.1 * rng.normal(size=length))
    z = np.column_stack([np.cos(angle), np.sin(angle)])
    seen = z + np.asarray(noises) * rng.normal(size=z.shape)
    return np.hstack([seen, rng.normal(size=(length, useless))]), z


X, Z = circling(np.random.default_rng(0), 160)


def errors_with_and_without(monkeypatch, make, seed, budget):
    """Squared errors on a new sequence, tuned with and without bandwidths for each dimension."""
    rng = np.random.default_rng(seed)
    (x, z), (new, truth) = make(rng, 200), make(rng, 200)
    found = []
    for learn in (per_dimension, lambda *_: None):
        monkeypatch.setattr("kernelbayes.filters.choose.tuning.per_dimension", learn)
        model = kb.tune(kb.KernelBayesFilter(rank=40, rng=0, **PLAIN), x, z, rng=0, budget=budget)
        found.append(float(np.mean(np.sum((model.filter(new).mean() - truth) ** 2, axis=1))))
    return found


def test_useless_columns_are_weighed_down(monkeypatch):
    pairs = [errors_with_and_without(monkeypatch, circling, seed, 8) for seed in (1, 2, 3)]
    own, alike = np.mean(pairs, axis=0)
    assert own < 0.8 * alike  # over 15 recordings the ratio was 0.66, its deviation 0.08


@pytest.mark.slow
def test_gain_where_columns_differ_and_no_harm_where_they_do_not(monkeypatch):
    def equal(rng, length):
        return circling(rng, length, (0.3, 0.3), 0)

    for make, most in ((circling, 0.75), (equal, 1.05)):
        pairs = [errors_with_and_without(monkeypatch, make, seed, 16) for seed in range(8)]
        own, alike = np.mean(pairs, axis=0)
        assert own < most * alike


def test_the_row_says_so_and_partly_missing_observations_are_filtered():
    holes = np.where(np.random.default_rng(1).uniform(size=X.shape) < 0.1, np.nan, X)
    holes[5] = np.nan
    tuned = kb.tune(kb.KernelBayesFilter(rank=40, rng=0, **PLAIN), holes, Z, rng=0, budget=8)
    (row,) = (row for row in tuned.tuning_ if row["chosen"])
    assert row["kernel_x"] == "Gaussian per dimension"
    assert isinstance(tuned.kernel_x_.bandwidth, tuple)
    assert np.isfinite(tuned.filter(holes[:20]).mean()).all()


def test_one_column_is_as_it_was(monkeypatch):
    found = []
    for learn in (per_dimension, lambda *_: None):
        monkeypatch.setattr("kernelbayes.filters.choose.tuning.per_dimension", learn)
        found.append(kb.tune(kb.KernelBayesFilter(rank=30), X[:, :1], Z, rng=0, budget=8).tuning_)
    assert found[0] == found[1]


def test_a_kernel_that_is_given_stays():
    model = kb.KernelBayesFilter(kb.Gaussian.median(X), rank=30)
    tuned = kb.tune(model, X, Z, rng=0, budget=6)
    assert {row["kernel_x"] for row in tuned.tuning_} == {"Gaussian"}


def test_columns_are_ordered_by_what_they_say():
    h = np.asarray(per_dimension(X, Z, KERNEL_Z).bandwidth)
    assert h[0] < h[1] < h[2:].min()
    assert kb.Gaussian.median(X / h).bandwidth == pytest.approx(1.0)


@settings(max_examples=10, deadline=None)
@given(st.lists(st.floats(-6, 6), min_size=6, max_size=6), st.permutations(range(6)))
def test_units_and_the_order_of_columns_do_not_matter(powers, order):
    unit = 10.0 ** np.asarray(powers)
    plain, other = (
        np.asarray(per_dimension(x, Z, KERNEL_Z).bandwidth) for x in (X, (X * unit)[:, order])
    )
    np.testing.assert_allclose(other, (plain * unit)[order], rtol=1e-3)


def test_a_constant_column_gets_a_finite_bandwidth():
    x = np.hstack([X[:, :2], np.full((len(X), 1), 7.0)])
    h = np.asarray(per_dimension(x, Z, KERNEL_Z).bandwidth)
    assert np.isfinite(h).all()
    assert (h > 0).all()
    tuned = kb.tune(kb.KernelBayesFilter(rank=30), x, Z, rng=0, budget=4)
    assert np.isfinite(tuned.filter(x[:10]).mean()).all()


def test_holes_are_no_information():
    known = np.random.default_rng(1).uniform(size=X.shape) > 0.1
    known[:30] = False
    filled = np.where(known, X, 0.0)
    h = per_dimension(filled, Z, KERNEL_Z, known)
    assert h == per_dimension(filled[30:], Z[30:], KERNEL_Z, known[30:])


@pytest.mark.parametrize(
    ("x", "z"),
    [
        (X[:, :1], Z),  # one column
        (X[:20], Z[:20]),  # few pairs
        (X, np.ones_like(Z)),  # nothing to learn
        (np.ones_like(X), Z),
    ],
)
def test_nothing_is_learned_where_there_is_nothing(x, z):
    assert per_dimension(x, z, KERNEL_Z) is None


@pytest.mark.parametrize("kind", ["categories", "angles", "landmarks", "linear"])
def test_states_of_any_kind(kind):
    angle = np.arctan2(Z[:, 1], Z[:, 0])
    z, kernel = {
        "categories": (np.where(Z[:, 0] > 0, "east", "west"), kb.Delta()),
        "angles": (angle[:, None], kb.Periodic(1.0)),
        "landmarks": (Z, kb.nystrom(KERNEL_Z, Z, 20, rng=0)),
        "linear": (Z, kb.Linear()),
    }[kind]
    h = np.asarray(per_dimension(X, z, kernel).bandwidth)
    assert np.argmin(h) in (0, 1)
    assert h[0] < h[2:].min()
