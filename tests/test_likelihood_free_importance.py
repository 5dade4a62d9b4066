"""Importance sampling by proposals that improve."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from kernelbayes.embedding.smooth import (
    Smoothed,
)
from kernelbayes.likelihood_free.learn.importance import importance_sample, proposal_of, tempered

FREE = np.zeros(1, dtype=bool)


def equal(n):
    return np.full(n, 1.0 / n)


@pytest.mark.parametrize(("m", "rounds"), [(2000, 1), (300, 6)])
def test_importance_sampling_of_a_normal_posterior(m, rounds):
    rng = np.random.default_rng(0)

    def log_prior(P):
        return stats.norm.logpdf(P[:, 0])

    def log_likelihood(P):
        return stats.norm.logpdf(1.5, P[:, 0], 0.5)

    draws = rng.normal(size=(2000, 1))
    start = Smoothed(draws, equal(2000), 0.5, FREE)
    found = importance_sample(log_likelihood, log_prior, draws, start, m, rounds, rng)
    assert (len(found.proposals.parts) > 1) == (rounds > 1)
    ess = found.ess
    # Draws of the prior would have this share effective, 1 / E[(posterior / prior)^2]; later
    # proposals are better. Half of it leaves room for the error of an average of few large weights.
    grid = np.linspace(-3, 5, 4001)
    squares = stats.norm.pdf(grid, 1.2, np.sqrt(0.2)) ** 2 / stats.norm.pdf(grid)
    assert ess > 0.5 * m * rounds / np.trapezoid(squares, grid)
    mean = found.weights @ found.points[:, 0]
    assert mean == pytest.approx(1.2, abs=4 * np.sqrt(0.2 / ess))
    evidence = stats.norm.logpdf(1.5, 0, np.sqrt(1.25))
    assert found.log_evidence() == pytest.approx(evidence, abs=4 / np.sqrt(ess))
    average = found.log_evidence() - np.log(found.proposals.drawn)
    one_more = found.log_evidence(np.ones(1), average)
    assert one_more == pytest.approx(found.log_evidence())  # a point of average weight
    # The likelihood N(1.5; theta, 1/4) to the power 1/2 is N(1.5; theta, 1/2) times a constant.
    constant = 0.5 * np.log(2 * np.pi * 0.5) - 0.25 * np.log(2 * np.pi * 0.25)
    root = stats.norm.logpdf(1.5, 0, np.sqrt(1.5)) + constant
    assert found.log_evidence(np.array([0.5])) == pytest.approx(root, abs=8 / np.sqrt(ess))


def test_later_proposals_do_not_make_posteriors_narrow():
    d, rng = 8, np.random.default_rng(0)

    def log_prior(P):
        return stats.norm.logpdf(P).sum(axis=1)

    def log_likelihood(P):
        return stats.norm.logpdf(1.0, P, 0.5).sum(axis=1)

    draws = rng.normal(size=(2000, d))
    evidence, spread = [], []
    for _ in range(20):
        start, _ = proposal_of(draws[:500], equal(500), np.zeros(d, dtype=bool), rng)
        found = importance_sample(log_likelihood, log_prior, draws, start, 500, 8, rng)
        deviations = found.points - found.weights @ found.points
        spread.append(found.weights @ deviations**2)
        evidence.append(found.log_evidence())
    exact = d * stats.norm.logpdf(1.0, 0.0, np.sqrt(1.25))
    assert np.mean(evidence) == pytest.approx(exact, abs=0.1)  # 0.18 less if each counts itself
    assert np.mean(spread) / 0.2 == pytest.approx(1.0, abs=0.02)  # 0.94 then


@given(st.lists(st.floats(-1e4, 1e4), min_size=2, max_size=30), st.floats(0, 1))
def test_tempered_weights_count_enough(logs, share):
    weights = tempered(np.array(logs), share * len(logs))
    assert weights.sum() == pytest.approx(1.0)
    assert np.all(weights >= 0)
    assert 1 / np.sum(weights**2) >= share * len(logs) - 1e-3 * len(logs)
