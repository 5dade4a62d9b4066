"""Gram.of: every way to hold a Gram matrix answers every question as the whole matrix does."""

import pickle

import numpy as np
import pytest

import kernelbayes as kb
from kernelbayes.gram import (
    Dense,
    Gram,
    LowRank,
    OnDemand,
    Streamed,
    base,
    exact_features,
    factored,
)
from kernelbayes.gram.features import cheap_features

N = 60
X = np.random.default_rng(0).normal(size=(N, 2))
NEW = np.random.default_rng(1).normal(size=(7, 2))
B = np.random.default_rng(2).normal(size=(N, 3))
WEIGHTS = np.random.default_rng(3).normal(size=N) / N
KERNEL = kb.Gaussian(2.0)
# Factors leave a relative trace error of at most this; entries of the matrix are off by less than
# n times it, and what is solved with ridges of 0.1 by about ten times that.
TOL = 1e-13


def all_pivots(**options):
    return Gram.of(KERNEL, X, tol=TOL, rng=0, **options)


POLICIES = {
    "dense": (Dense, lambda: Gram.of(KERNEL, X)),
    "nystrom": (LowRank, lambda: Gram.of(KERNEL, X, rank=N, rng=0)),
    "a rank above n": (LowRank, lambda: Gram.of(KERNEL, X, rank=10 * N, rng=0)),
    "pivots": (LowRank, all_pivots),
    "pivots that extend": (LowRank, lambda: all_pivots(extend=True)),
    "pivots up to a rank": (LowRank, lambda: all_pivots(rank=N)),
    "streamed": (Streamed, lambda: Gram.of(kb.nystrom(KERNEL, X, N, rng=0), X)),
    "on demand": (OnDemand, lambda: Gram.of(KERNEL, X, entries=10)),
    "by rows": (Dense, lambda: Gram.by_rows(KERNEL, X)),
}


@pytest.fixture(params=POLICIES)
def gram(request, monkeypatch):
    monkeypatch.setattr(base, "FACTOR_FROM", 1)
    if request.param == "streamed":
        monkeypatch.setattr(factored, "STREAM_ENTRIES", 10)
    kind, make = POLICIES[request.param]
    found = make()
    assert isinstance(found, kind)
    return found


G = KERNEL(X)
DENSE = Dense(G)
OPERATIONS = {
    "diag": lambda g: g.diag,
    "product": lambda g: g.matmul(B),
    "product with a vector": lambda g: g.matmul(B[:, 0]),
    "row": lambda g: g.rows(5),
    "rows": lambda g: g.rows(np.array([5, 0, 5])),
    "factor": lambda g: g.factor @ g.factor.T,
    "expand and project": lambda g: g.expand(g.project(B)),
    "ridge": lambda g: g.ridge(0.1).solve(B),
    "weighted": lambda g: g.weighted(np.abs(WEIGHTS), 0.1).solve(B),
    "signed": lambda g: g.signed(WEIGHTS, 0.1).solve(B),
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_every_policy_answers_as_the_whole_matrix(gram, name):
    expected = G if name == "factor" else OPERATIONS[name](DENSE)
    np.testing.assert_allclose(OPERATIONS[name](gram), expected, atol=1e-9)


def test_features_of_other_points(gram):
    np.testing.assert_allclose(gram.features(NEW) @ gram.factor.T, KERNEL(NEW, X), atol=1e-5)


def test_what_it_says_of_itself(gram):
    assert gram.n == N
    assert gram.kernel is not None
    assert gram.policy.split(":")[0] in ("dense", "low rank", "streamed", "on demand")
    assert gram.work > 0
    assert gram.scale == pytest.approx(1.0)
    again = pickle.loads(pickle.dumps(gram))
    np.testing.assert_array_equal(again.matmul(B), gram.matmul(B))


def test_single_rows_are_remembered(gram):
    first = gram.rows(3)
    assert gram.rows(3) is first or np.shares_memory(gram.rows(3), first)


def test_small_matrices_are_not_factored():
    assert isinstance(Gram.of(KERNEL, X, tol=1e-8, rng=0), Dense)
    factor = Gram.of(KERNEL, X, tol=1e-3, rng=0).factor
    missed = 1.0 - np.sum(factor**2) / np.trace(G)
    assert 0.0 <= missed <= 1e-3
    assert np.sum(factor[:, :-1] ** 2) < (1.0 - 1e-3) * np.trace(G), "a column too many"


def test_too_many_pivots_are_not_taken():
    found = Gram.of(kb.Laplace(0.1), X, tol=1e-8, most=N // 3, rng=0, extend=True)
    assert isinstance(found, Dense)
    assert "20 pivots do not reach" in found.policy
    assert isinstance(Gram.of(KERNEL, X, tol=1e-8, most=0, rng=0, extend=True), Dense)
    kept = Gram.of(kb.Laplace(0.1), X, rank=N // 3, tol=1e-8, rng=0)
    assert isinstance(kept, LowRank)
    assert kept.error > 1e-8
    missed = 1.0 - np.sum(kept.factor**2) / N
    assert kept.error == pytest.approx(missed)


def test_doubles_whatever_the_points_are():
    for options in ({}, {"rank": 10}, {"tol": 1e-3, "extend": True}, {"entries": 1}):
        found = Gram.of(KERNEL, X.astype(np.float32), rng=0, double=True, **options)
        assert found.matmul(np.ones(N)).dtype == np.float64
        assert found.diag.dtype == np.float64


def test_exact_features_of_several_samples():
    for kernel in (KERNEL, kb.nystrom(KERNEL, X, 10, rng=0)):
        F, H = exact_features(kernel, X, NEW)
        np.testing.assert_allclose(F @ H.T, kernel(X, NEW), atol=1e-9)
        np.testing.assert_allclose(F @ F.T, kernel(X), atol=1e-9)


def test_cheap_features_are_fourier_where_there_are_any():
    assert isinstance(cheap_features(KERNEL, X, 9, 0), kb.gram.finite.Fourier)
    assert cheap_features(KERNEL, X, 9, 0).rank == 10
    assert isinstance(cheap_features(kb.Polynomial(2), X, 900, 0), kb.gram.finite.Landmarks)
    own = kb.nystrom(KERNEL, X, 5, rng=0)
    assert cheap_features(own, X, 9, 0) is own


def test_a_matrix_without_a_kernel_has_no_features_of_other_points():
    with pytest.raises(TypeError, match=r"Gram\.of"):
        Dense(G).features(NEW)
