"""Importance sampling by proposals that improve."""

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from kernelbayes.embedding.smooth import Smoothed
from kernelbayes.likelihood_free.learn.adjust import Recipe, Space
from kernelbayes.likelihood_free.learn.importance import (
    Likelihood,
    importance_sample,
    proposal_of,
    tempered,
)
from kernelbayes.likelihood_free.learn.judge import uneven
from kernelbayes.likelihood_free.learn.nearby import Density
from kernelbayes.likelihood_free.learn.task import Task, Variant
from kernelbayes.likelihood_free.prior import as_prior
from normal_means import NOISE, pairs

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
    ess = 1.0 / np.sum(found.weights**2)
    # Draws of the prior would have this share effective, 1 / E[(posterior / prior)^2]; later
    # proposals are better. Half of it leaves room for the error of an average of few large weights.
    grid = np.linspace(-3, 5, 4001)
    squares = stats.norm.pdf(grid, 1.2, np.sqrt(0.2)) ** 2 / stats.norm.pdf(grid)
    assert ess > 0.5 * m * rounds / np.trapezoid(squares, grid)
    mean = found.weights @ found.points[:, 0]
    assert mean == pytest.approx(1.2, abs=4 * np.sqrt(0.2 / ess))
    evidence = stats.norm.logpdf(1.5, 0, np.sqrt(1.25))
    assert found.log_evidence() == pytest.approx(evidence, abs=4 / np.sqrt(ess))
    drawn = found.proposals.from_prior + sum(m for _, m in found.proposals.parts)
    average = found.log_evidence() - np.log(drawn)
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


# -- tempers by ranks ------------------------------------------------------------------------------


class Sharpened:
    """The exact log likelihood of a normal mean, times a factor."""

    def __init__(self, factor):
        self.factor = factor

    def log_likelihood(self, P, s):
        return self.factor * stats.norm(P[:, 0], NOISE).logpdf(s[0])


def learned(factor, prior):
    """Learner whose likelihood is known but for a power, and data of the prior predictive."""
    theta, x = pairs(400, seed=5)
    space = Space(*(np.full(1, v) for v in (-np.inf, np.inf, 0.0, 1.0)), np.zeros(1, dtype=bool))
    task = Task(x, None, theta, None, prior, space)
    rng = np.random.default_rng(0)
    variant = Variant("likelihood", Recipe("data", 0.1, "none"), summary="data")
    drawn = rng.normal(size=(5000, 1))
    return Likelihood(task, task.inverse(rng), variant, Sharpened(factor), drawn), task


@pytest.mark.parametrize("known", [True, False])
def test_ranks_of_the_exact_likelihood_are_uniform(known):
    prior = as_prior(stats.norm() if known else lambda n, rng: rng.normal(size=(n, 1)))
    learner, task = learned(4.0, prior)
    tempers, rng = np.array([1.0, 0.5, 0.25]), np.random.default_rng(1)
    rows = task.subset(np.arange(200))
    _, ranks = learner.scores(rows, rows.P, rng, tempers)
    assert ranks.shape == (200, 3)
    # The power that undoes the factor is right: its ranks are uniform, and the most even.
    assert stats.kstest(ranks[:, 2], "uniform").pvalue > 1e-4
    assert np.argmin(uneven(ranks, None)) == 2
    # Likelihoods that are too sharp are higher nearly everywhere than at the truth.
    assert ranks[:, 0].mean() > ranks[:, 1].mean() > ranks[:, 2].mean()


def test_ranks_are_those_of_the_posterior_density():
    """At a distance from its mean the rank of a normal posterior is that of a chi square."""
    learner, task = learned(1.0, as_prior(stats.norm()))
    rows, rng = task.subset(np.arange(50)), np.random.default_rng(2)
    shrunk, deviation = 1.0 / (1.0 + NOISE**2), NOISE / np.sqrt(1.0 + NOISE**2)
    for away in (0.0, 1.0):
        truths = shrunk * rows.X + away * deviation
        _, ranks = learner.scores(rows, truths, rng, np.ones(1))
        # 800 weighted draws for each: a mean of fifty shares has an error of a few in a thousand.
        assert ranks.mean() == pytest.approx(stats.chi2(1).cdf(away**2), abs=0.03)


def test_uneven_is_the_distance_of_distribution_functions():
    levels = np.linspace(0.05, 0.95, 19)
    ranks = np.random.default_rng(0).uniform(size=(30, 2)) ** [1.0, 3.0]
    w = np.random.default_rng(1).uniform(size=30)
    for counts in (None, w / w.sum()):
        exact = [
            np.mean([(np.average(r <= u, weights=counts) - u) ** 2 for u in levels])
            for r in ranks.T
        ]
        np.testing.assert_allclose(uneven(ranks, counts), exact)


# Two normal peaks, far apart compared with their widths: weight, mean, deviation. The first is cut
# off at zero, 1.25 deviations below its mean.
PEAKS, CUT = ((0.5, 0.5, 0.4), (0.5, 5.0, 0.1)), -1.25
EVIDENCE = 0.5 * stats.norm.sf(CUT) + 0.5


def two_peaks():
    """Density of two peaks."""

    def log_likelihood(P):
        return np.logaddexp(*(np.log(w) + stats.norm.logpdf(P[:, 0], *at) for w, *at in PEAKS))

    def log_prior(P):
        return np.where(P[:, 0] >= 0, 0.0, -np.inf)

    learner = SimpleNamespace(log_joint=lambda _, __, P: log_likelihood(P) + log_prior(P))
    return Density(learner, None, np.empty(0), np.log(EVIDENCE))


def draws_of_two_peaks(m, rng):
    first = rng.uniform(size=m) < 0.5 * stats.norm.sf(CUT) / EVIDENCE
    cut = stats.truncnorm(CUT, np.inf, 0.5, 0.4).rvs(m, random_state=rng)
    return np.where(first, cut, rng.normal(5.0, 0.1, m))[:, None]


def below(t):
    """Distribution function of two peaks."""
    first = np.maximum(stats.norm.cdf(t, 0.5, 0.4) - stats.norm.cdf(CUT), 0.0)
    return 0.5 * (first + stats.norm.cdf(t, 5.0, 0.1)) / EVIDENCE


def test_the_density_of_a_learned_likelihood_integrates_to_one():
    grid = np.linspace(-1.0, 6.0, 7001)[:, None]
    values = np.exp(two_peaks().log_density(grid))
    # The sum over steps of a thousandth is off by half a step of the jump at zero, 0.2 in height.
    np.testing.assert_allclose(values.sum() / 1000, 1.0, atol=2e-4)
    assert np.all(values[grid[:, 0] < 0] == 0)


@pytest.mark.parametrize("seed", range(3))
def test_draws_of_a_learned_likelihood_are_exact(seed):
    """By a test of Kolmogorov and Smirnov; nearly all are distinct, though points are fewer."""
    rng = np.random.default_rng(seed)
    wide = rng.uniform(0.0, 6.0, size=(20_000, 1))  # importance weights of draws of the prior
    density = two_peaks()
    weights = tempered(density.log_density(wide), 0.0)
    drawn = density.draw(1000, (wide, weights), rng)[:, 0]
    # About 20 000 / 6 exact points, of which systematic draws have less noise than random ones.
    assert stats.kstest(drawn, below).pvalue > 1e-5
    assert len(np.unique(drawn)) > 950
    # Steps move, and keep the density: a few points are not enough, but all draws differ.
    few = density.draw(1000, (wide[:200], weights[:200] / weights[:200].sum()), rng)[:, 0]
    assert len(np.unique(few)) > 500
