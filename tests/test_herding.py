"""Herding: its bound, its order, thinning."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import kernelbayes as kb


@given(st.integers(0, 10_000), st.integers(1, 60))
def test_error_stays_below_the_bound(seed, size):
    X = np.random.default_rng(seed).normal(size=(200, 2))
    mu = kb.embed(X, kb.Gaussian(0.5))
    error = kb.mmd2(mu, kb.embed(kb.herd(mu, size), mu.kernel))
    # KMCF16 eq. 3.27 with C = sup |phi(x)| = 1.
    assert error <= 4.0 * (1.0 + np.log(size)) / size


def test_picks_are_the_literal_maximisers():
    X = np.random.default_rng(1).normal(size=(40, 2))
    mu = kb.embed(X, kb.Gaussian(0.7), np.random.default_rng(2).normal(0.025, 0.02, size=40))
    picks = []
    for p in range(1, 8):
        taken = sum((mu.kernel(X, x[None])[:, 0] for x in picks), np.zeros(40))
        picks.append(X[np.argmax(mu(X) - taken / p)])
    np.testing.assert_array_equal(kb.herd(mu, 7), picks)


def test_a_smaller_herd_is_the_start_of_a_larger_one():
    mu = kb.embed(np.random.default_rng(0).normal(size=100), kb.Gaussian(0.5))
    np.testing.assert_array_equal(kb.herd(mu, 20)[:5], kb.herd(mu, 5))


def test_candidates_and_closed_forms():
    prior = kb.GaussianEmbedding([0.0], [[1.0]], kb.Gaussian(0.5))
    grid = np.linspace(-3, 3, 200)
    picked = kb.herd(prior, 50, candidates=grid)
    # Squared error below the bound of KMCF16 eq. 3.27; the grid leaves out 0.3 % of the mass.
    assert kb.mmd2(prior, kb.embed(picked, prior.kernel)) <= 4.0 * (1.0 + np.log(50)) / 50
    with pytest.raises(ValueError, match="candidates"):
        kb.herd(prior, 3)


def test_thinning_beats_independent_draws_and_never_repeats():
    X = np.random.default_rng(0).normal(size=(1000, 2))
    kernel = kb.Gaussian(1.0)
    mu, thinned = kb.embed(X, kernel), kb.thin(X, 50, kernel)
    assert len(np.unique(thinned, axis=0)) == 50
    draws = [kb.mmd(mu, kb.embed(X[i : i + 50], kernel)) for i in range(0, 1000, 50)]
    assert kb.mmd(mu, kb.embed(thinned, kernel)) < min(draws)
    assert sorted(kb.thin(X[:20], 20, kernel).tolist()) == sorted(X[:20].tolist())


def test_thinning_of_strings_and_pairs():
    assert set(kb.thin(["aa", "aa", "bb"], 2, kb.Spectrum(1))) == {"aa", "bb"}
    pairs = {"x": np.arange(6.0), "z": ["a", "b"] * 3}
    thinned = kb.thin(pairs, 2, kb.Parts({"x": kb.Gaussian(1.0), "z": kb.Delta()}))
    assert len(thinned["x"]) == len(thinned["z"]) == 2


@pytest.mark.parametrize("size", [0, 4])
def test_bad_sizes(size):
    with pytest.raises(ValueError, match="m must lie"):
        kb.thin([0.0, 1.0, 2.0], size, kb.Gaussian(1.0))
