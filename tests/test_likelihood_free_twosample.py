"""Checks that compare samples, on posteriors whose faults are known."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

import kernelbayes as kb
from kernelbayes.likelihood_free.learn.task import Data
from kernelbayes.likelihood_free.predictive import whitened
from test_likelihood_free_checks import PRIOR, Model, Normal, _close_figures, simulator

__all__ = ["_close_figures"]
COLUMNS = ["quantity", "of", "value", "expected", "pvalue"]


def pairs(n, seed=0):
    rng = np.random.default_rng(seed)
    theta = rng.normal(size=(n, 2))
    return {"theta": theta, "x": rng.normal(theta)}


@pytest.mark.parametrize(
    ("model", "words", "sign"),
    [(Model(), "calibrated", 0), (Model(scale=0.5), "too narrow", -1), (Model(scale=2), "wide", 1)],
)
def test_tarp_names_the_fault(model, words, sign):
    result = kb.tarp(model, PRIOR, simulator, n_simulations=300, rng=0)
    assert words in result.verdict
    assert sign * result.atc >= 0
    assert result.coverage_at([0.0, 1.0]).tolist() == [0.0, 1.0]
    assert result.plot().get_xlabel() == "level"


def test_tarp_sees_a_bias_and_takes_references():
    data = pairs(300)
    biased = kb.tarp(Model(shift=0.7), **data, references=np.full((300, 2), 4.0), rng=0)
    assert biased.pvalue < 0.01
    assert "biased" in biased.verdict
    with pytest.raises(ValueError, match="references must have shape"):
        kb.tarp(Model(), **data, references=np.zeros((3, 2)), rng=0)


def test_tarp_ranks_are_those_of_a_loop():
    data = pairs(20)
    reference = np.random.default_rng(1).normal(size=(20, 2))
    scale = data["theta"].std(axis=0)
    draws = np.random.default_rng(2).normal(size=(20, 30, 2))
    given = iter(draws)
    found = kb.tarp(lambda x: next(given), **data, references=reference, n_draws=30, rng=0)
    for i in range(20):
        away = np.linalg.norm((draws[i] - reference[i]) / scale, axis=1)
        own = np.linalg.norm((data["theta"][i] - reference[i]) / scale)
        assert found.ranks[i] == np.sum(away < own)


def test_recovery_of_the_exact_posterior():
    """Prior N(0, 1), posterior N(x / 2, 1/2): contraction 1/2, z-scores of size one."""
    result = kb.recovery(Model(), **pairs(2000), n_draws=400, rng=0)
    # Errors: of a variance over 2000 parameters, and of deviations over 400 draws; five of them.
    assert np.all(np.abs(result.contraction - 0.5) < 5 * 0.5 * np.sqrt(2 / 2000 + 2 / 400 / 2000))
    size = np.sqrt(np.mean(result.z**2, axis=0))
    assert np.all(np.abs(size - 1.0) < 5 * np.sqrt(1 / 2 / 2000) + 2 / 400)
    assert "theta[0] is learned" in result.verdict
    assert len(result.plot()) == 2


def test_recovery_of_the_prior_is_no_recovery():
    class Nothing:
        def posterior(self, x):
            return Normal(0 * x, 1.0)

    result = kb.recovery(Nothing(), **pairs(400), rng=0)
    assert "theta[1] is hardly learned" in result.verdict


def test_c2st_is_the_accuracy_of_the_best_rule():
    """Of N(0, 1) and N(1, 1) the best rule tells Phi(1/2) right; a linear one finds it."""
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(3000, 1)), rng.normal(1.0, size=(2000, 1))
    result = kb.c2st(a, b, classifier=LinearDiscriminantAnalysis(), rng=1)
    best = stats.norm.cdf(0.5)
    assert abs(float(result) - best) < 5 * np.sqrt(best * (1 - best) / 4000)
    assert result.pvalue < 1e-10
    assert "told apart" in result.verdict
    assert result.plot().get_title().startswith("C2ST")


def test_c2st_of_the_same_distribution():
    rng = np.random.default_rng(0)
    same = kb.c2st(rng.normal(size=(300, 2)), Normal(np.zeros(2), 1.0), n_draws=300, rng=0)
    assert len(same.probabilities) == 600
    # Left-out points are not independent: twice the binomial error is allowed for.
    assert abs(float(same) - 0.5) < 5 * 2 * np.sqrt(0.25 / 600)
    again = kb.c2st(rng.normal(size=(40, 1)), np.zeros((20, 1)) + 9.0, rng=0)
    assert again.verdict.startswith("the samples are told apart by 20 draws")
    with pytest.raises(ValueError, match="2 and 1 columns"):
        kb.c2st(np.zeros((20, 2)), np.zeros((20, 1)))
    with pytest.raises(ValueError, match="too small"):
        kb.c2st(np.zeros((5, 2)), np.zeros((20, 2)))


FAULTS = [
    (Model(scale=0.4), "too narrow"),
    (Model(scale=2.5), "too wide"),
    (Model(shift=0.8), "biased up"),
    (Model(shift=-0.8), "biased down"),
]


@pytest.mark.parametrize(("model", "words"), FAULTS)
def test_lc2st_names_the_fault(model, words):
    result = kb.lc2st(model, [0.5, -0.5], **pairs(400), n_draws=150, rng=0)
    assert result.pvalue < 0.01
    assert words in result.verdict
    assert result.draws.shape == (150, 2)
    assert len(result.plot()) == 3


def test_lc2st_sees_what_is_wrong_only_there():
    class Half:
        def posterior(self, x):
            return Normal(x / 2 + (x[0] > 0), 0.5**0.5)

    data = pairs(500)
    here = kb.lc2st(Half(), [2.0, 0.0], **data, rng=0)
    there = kb.lc2st(Half(), [-2.0, 0.0], **data, rng=0)
    assert here.pvalue < 0.01
    assert here.statistic > 2 * there.statistic


def test_lc2st_pvalues_of_exact_posteriors_are_valid():
    p = [kb.lc2st(Model(), [0.5, 1.0], **pairs(60, seed), rng=seed).pvalue for seed in range(100)]
    for level in (0.05, 0.2, 0.5):
        low, high = stats.binom.interval(1 - 1e-6, 100, level)
        assert low <= np.sum(np.array(p) <= level) <= high


def test_misspecification_is_the_mmd_of_embeddings():
    x = np.random.default_rng(0).normal(size=(80, 3))
    observed = np.array([1.0, 2.0, 0.0])
    result = kb.misspecification(observed, x, rng=0)
    every = np.vstack([observed, x])
    Z = whitened(Data.of(every, 0)(every).X)
    kernel = kb.Gaussian.median(Z)
    distances = [
        kb.mmd(kb.embed(Z[[i]], kernel), kb.embed(np.delete(Z, i, axis=0), kernel))
        for i in range(81)
    ]
    assert result.statistic == pytest.approx(distances[0])
    assert result.pvalue == pytest.approx(np.mean(np.array(distances) >= distances[0] - 1e-12))


def test_misspecification_pvalues_are_valid():
    rng = np.random.default_rng(0)
    x = rng.standard_t(3, size=(200, 100, 2))
    p = np.array([kb.misspecification(row[0], row[1:], rng=0).pvalue for row in x])
    for level in (0.05, 0.2, 0.5):
        low, high = stats.binom.interval(1 - 1e-6, 200, level)
        assert low <= np.sum(p <= level) <= high


def test_misspecification_in_words():
    like = kb.misspecification([0.2, 0.1], prior=PRIOR, simulator=simulator, rng=0)
    assert like.verdict == "the observation looks like the 500 simulations"
    runs = kb.simulate(simulator, PRIOR, 300, rng=0)
    far = kb.misspecification([0.0, 30.0], runs, rng=0)
    assert "x[1] is high; the simulator hardly makes such data" in far.verdict
    sets = np.random.default_rng(0).normal(size=(99, 5, 1))
    rows = kb.misspecification(np.full((5, 1), 9.0), sets, rng=0)
    assert rows.pvalue == 0.01
    assert len(far.plot()) == 2
    with pytest.raises(ValueError, match="either simulations x"):
        kb.misspecification([0.0], rng=0)


def test_whitened_rows_have_no_correlation():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(5000, 2)) @ np.array([[1.0, 0.9], [0.0, 0.5]])
    Z = whitened(np.column_stack([rows, np.ones(5000)]))
    np.testing.assert_allclose(Z.T @ Z / 5000, np.diag([1.0, 1.0, 0.0]), atol=0.01)


def test_all_checks_have_the_same_table():
    data, rng = pairs(40), np.random.default_rng(0)
    found = [
        kb.sbc(Model(), **data, rng=0),
        kb.coverage(Model(), **data, rng=0),
        kb.tarp(Model(), **data, rng=0),
        kb.recovery(Model(), **data, rng=0),
        kb.lc2st(Model(), [0.0, 0.0], **data, rng=0),
        kb.c2st(rng.normal(size=(30, 1)), rng.normal(size=(30, 1)), rng=0),
        kb.misspecification([0.0, 0.0], data["x"], rng=0),
        kb.posterior_predictive(Normal(np.zeros(2), 1.0), simulator, [0.0, 0.0], rng=0),
    ]
    for check in found:
        assert list(check.to_frame().columns) == COLUMNS
        assert check.verdict in repr(check)
        assert "quantity" in repr(check.table)


def test_sbc_for_arviz():
    result = kb.sbc(Model(), **pairs(30), n_draws=19, rng=0)
    group = result.to_arviz()["prior_sbc"]
    np.testing.assert_allclose(group["theta[0]"].to_numpy(), (result.ranks[None, :, 0] + 0.5) / 20)


def test_all_rows_of_frames_count():
    """The last half is shifted: the first thousand rows would not tell."""
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2000, 1)), rng.normal(size=(2000, 1))
    b[1000:] += 3.0
    frames = (pd.DataFrame(v, columns=["t"]) for v in (a, b))
    found = kb.c2st(*frames, classifier=LinearDiscriminantAnalysis(), rng=0)
    assert float(found) > 0.65
