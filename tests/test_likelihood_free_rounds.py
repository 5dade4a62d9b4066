"""Whether more rounds of simulations would help."""

import numpy as np
from scipy import stats

import kernelbayes as kb
from kernelbayes.likelihood_free.posterior import make_posterior
from kernelbayes.likelihood_free.reweight import OUTSIDE, near_posterior, pays

NEAR = {"method": "adjusted", "adjust": "location"}
BROAD = 30.0  # deviation of a prior, in deviations of the noise


def simulator(theta, rng):
    return rng.normal(theta, 1.0)


def normal_posterior(mean, sd, prior, d=1, n=400):
    points = np.random.default_rng(3).normal(mean, sd, size=(n, d))
    return make_posterior(points, np.full(n, 1.0 / n), kb.as_prior(prior))


# -- where a posterior may be ----------------------------------------------------------------------


def test_the_share_of_the_prior_where_a_posterior_may_be():
    prior = kb.as_prior(stats.norm(0, 3))
    posterior = normal_posterior(2.0, 0.5, prior)
    share = near_posterior(posterior, prior, np.random.default_rng(0))
    # The region between the outermost points of equal density that leave a thousandth outside, on a
    # grid; its ends are those of the smoothed points, and the lowest of 1000 draws moves them.
    grid = np.linspace(-2.0, 6.0, 4001)[:, None]
    density = np.exp(posterior.log_density(grid))
    order = np.argsort(-density)
    held = np.cumsum(density[order]) / density.sum()
    shares = []
    for outside in (OUTSIDE / 5, OUTSIDE * 5):  # four deviations of an exponential variable
        region = grid[order[held <= 1.0 - outside], 0]
        shares.append(np.diff(stats.norm(0, 3).cdf([region.min(), region.max()]))[0])
    error = 4 * np.sqrt(share / 5000)
    assert min(shares) - error < share < max(shares) + error


def test_few_simulations_in_a_small_part_of_the_prior_are_not_enough():
    assert pays(0.01, 1000)
    assert not pays(0.01, 100_000)  # there are a thousand
    assert not pays(0.9, 100)  # there would hardly be more


# -- suggestions -----------------------------------------------------------------------------------


def suggested(width, **options):
    found = kb.infer(simulator, stats.norm(0, width), 0.5, 200, rng=0, **NEAR, **options)
    return found.suggestion


def test_a_broad_prior_is_said_to_be_too_broad():
    assert "rounds=3" in suggested(BROAD)
    assert suggested(BROAD, rounds=2) is None  # rounds were made
    assert suggested(1.0) is None


def test_suggestions_of_a_fitted_model_and_of_posteriors_without_a_prior():
    theta = np.random.default_rng(0).normal(0, BROAD, size=(200, 1))
    x = simulator(theta, np.random.default_rng(1))
    model = kb.LikelihoodFree(stats.norm(0, BROAD), rng=0, **NEAR).fit(theta, x)
    assert [word is not None for word in model.posterior([[0.5], [2.0]]).suggestion] == [True] * 2
    assert kb.LikelihoodFree(rng=0, **NEAR).fit(theta, x).posterior(0.5).suggestion is None
    assert normal_posterior(0.0, 1.0, stats.norm(0, BROAD)).suggestion is None  # not of simulations
