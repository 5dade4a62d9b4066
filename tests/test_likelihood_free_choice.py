"""Scores of posteriors at held-out parameters."""

import numpy as np
import pytest
from scipy import stats

from kernelbayes.embedding.smooth import (
    SMOOTHING,
    Smoothed,
    Smoothing,
)
from kernelbayes.likelihood_free.learn.judge import INSIDE_DRAWS, LEAST_WEIGHT, STRAY, Judge

FREE = np.zeros(1, dtype=bool)


def equal(n):
    return np.full(n, 1.0 / n)


def test_log_scores_are_those_of_the_smoothed_density():
    rng = np.random.default_rng(0)
    points, weights = rng.normal(size=(80, 2)), rng.dirichlet(np.ones(80))
    truth, none = np.array([[0.3, -0.2]]), np.zeros(2, dtype=bool)
    judge = Judge(none, np.full(2, -np.inf), np.full(2, np.inf))
    found = judge([(points, weights)], truth, rng)[0]
    expected = [Smoothed(points, weights, h, none).log_density(truth)[0] for h in SMOOTHING]
    np.testing.assert_allclose(found, judge.floored(np.array(expected), truth), atol=1e-8)


@pytest.mark.parametrize("kind", ["log", "energy"])
def test_scores_are_proper(kind):
    """The right distribution scores better on average than a shifted, wider or narrower one."""
    rng = np.random.default_rng(0)
    judge = Judge(FREE, np.full(1, -np.inf), np.full(1, np.inf), kind)
    truths = rng.normal(size=(300, 1))
    points = stats.norm.ppf((np.arange(200) + 0.5) / 200)[:, None]

    def score(shift, scale):
        sample = (shift + scale * points, equal(200))
        return judge([sample] * 300, truths, rng).mean(axis=0).max()

    best = score(0.0, 1.0)
    assert all(best > score(*wrong) for wrong in [(0.7, 1.0), (0.0, 2.0), (0.0, 0.5)])


def test_one_miss_does_not_decide():
    rng = np.random.default_rng(0)
    none = np.zeros(2, dtype=bool)
    judge = Judge(none, np.full(2, -np.inf), np.full(2, np.inf))
    narrow = 1e-6 * rng.normal(size=(50, 2))
    scores = judge([(narrow, equal(50))], np.ones((1, 2)), rng)[0]
    least = np.log(LEAST_WEIGHT / 10) + stats.norm.logpdf([1.0, 1.0]).sum()
    np.testing.assert_allclose(scores, least)
    logs = judge.floored(np.array([-1e9, 0.0]), np.zeros((2, 2)))
    np.testing.assert_allclose(logs, [np.log(LEAST_WEIGHT / 10) - np.log(2 * np.pi), 0.0])


def test_scores_within_bounds_are_larger_by_the_share_inside():
    rng = np.random.default_rng(0)
    points, weights = np.abs(rng.normal(size=(200, 1))), equal(200)
    free = Judge(FREE, np.full(1, -np.inf), np.full(1, np.inf))
    bound = Judge(FREE, np.zeros(1), np.full(1, np.inf))
    many = [(points, weights)] * 400, np.full((400, 1), 0.1)
    gain = bound(*many, rng) - free(*many, rng)
    x = (np.arange(8000) + 0.5) / 1000  # all the density there is beyond zero
    smoothed = [Smoothed.by(points, weights, Smoothing(h), FREE) for h in SMOOTHING]
    inside = [np.exp(s.log_density(x[:, None])).sum() / 1000 for s in smoothed]
    # Hoeffding's inequality for the draws that count the share: fails with probability 1e-6.
    error = np.sqrt(np.log(2e6 * len(SMOOTHING)) / (2 * 400 * INSIDE_DRAWS))
    np.testing.assert_allclose(np.exp(-gain).mean(axis=0), inside, rtol=0.0, atol=error)
    assert np.all(gain >= -1e-12)


def test_values_no_point_has_are_rare_not_impossible():
    judge = Judge(np.ones(1, dtype=bool), np.zeros(1), np.full(1, 5.0))
    points = np.array([[0.0], [1.0], [1.0], [2.0]])
    found = judge([(points, equal(4))] * 2, np.array([[1.0], [4.0]]), np.random.default_rng(0))
    np.testing.assert_allclose(found[0], np.log((1 - STRAY) * 0.5 + STRAY * 0.1))
    assert np.all(np.isfinite(found[1]))
    assert np.all(found[1] < np.log(0.25))
