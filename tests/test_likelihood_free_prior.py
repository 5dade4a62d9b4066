"""Priors: every source draws, knows its support and its density, and gives the same draws again."""

import copy
import pickle

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from kernelbayes import Gaussian, embed
from kernelbayes.likelihood_free.prior import Prior, as_prior


class Sampler:
    """An object with .sample(n) and a density, as people write them."""

    def sample(self, n, rng=None):
        return rng.normal(size=(n, 2))

    def log_prob(self, theta):
        return stats.norm.logpdf(theta).sum(axis=1)


class Shaped:
    """As torch: .sample((n,)), without a generator."""

    def sample(self, sample_shape=()):
        return np.ones((*sample_shape, 3))


class Rvs:
    """As SciPy, bounds as a pair."""

    support = (0.0, 2.0)

    def rvs(self, size=1, random_state=None):
        return random_state.uniform(0, 2, size=size)

    def logpdf(self, theta):
        return np.full(len(theta), -np.log(2))


def function(n, rng):
    return rng.uniform(1, 2, size=(n, 2))


DRAWS = np.random.default_rng(3).normal(size=(20, 2))
SOURCES = {
    "norm": (stats.norm(1, 2), 1),
    "unfrozen": (stats.norm, 1),
    "uniform": (stats.uniform(-1, 3), 1),
    "vector": (stats.norm([0.0, 5.0], [1.0, 2.0]), 2),
    "poisson": (stats.poisson(3.0), 1),
    "normal": (stats.multivariate_normal([0, 1], [[1, 0.5], [0.5, 2]]), 2),
    "normal1": (stats.multivariate_normal(0.0, 2.0), 1),
    "t": (stats.multivariate_t([0.0, 1.0], df=5), 2),
    "dirichlet": (stats.dirichlet([1.0, 2.0, 3.0]), 3),
    "multinomial": (stats.multinomial(5, [0.2, 0.8]), 2),
    "histogram": (stats.rv_histogram(np.histogram(DRAWS[:, 0], bins=4)), 1),
    "kde": (stats.gaussian_kde(DRAWS.T), 2),
    "list": ([stats.norm(), stats.uniform(0, 2), stats.bernoulli(0.3)], 3),
    "nested": ([stats.gamma(2.0), stats.multivariate_normal([0, 0])], 3),
    "mapping": ({"a": stats.norm(), "b": stats.dirichlet([1.0, 1.0])}, 3),
    "object": (Sampler(), 2),
    "shaped": (Shaped(), 3),
    "rvs": (Rvs(), 1),
    "embedding": (embed(DRAWS, Gaussian(1.0)), 2),
    "function": (function, 2),
    "draws": (DRAWS, 2),
    "line": (DRAWS[:, 0], 1),
    "frame": (pd.DataFrame({"u": DRAWS[:, 0], "v": DRAWS[:, 1]}), 2),
    "numbers": ([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], 2),
}
if hasattr(stats, "Normal"):
    SOURCES["new"] = (stats.Normal(mu=1.0, sigma=2.0), 1)
    SOURCES["new vector"] = (stats.Normal(mu=[1.0, 2.0]), 2)
    SOURCES["truncated"] = (stats.truncate(stats.Normal(), lb=0.0), 1)
if hasattr(stats, "Binomial"):
    SOURCES["new discrete"] = (stats.Binomial(n=5, p=0.3), 1)


@pytest.mark.parametrize("name", SOURCES)
@pytest.mark.parametrize("n", [1, 2, 7])
def test_every_source_draws(name, n):
    source, d = SOURCES[name]
    prior = as_prior(source)
    theta = prior.sample(n, np.random.default_rng(5))
    assert theta.shape == (n, d) == (n, prior.dim)
    assert theta.dtype == np.float64
    np.testing.assert_array_equal(theta, prior.sample(n, np.random.default_rng(5)))
    assert prior.low.shape == prior.high.shape == prior.discrete.shape == (d,)
    assert np.all(prior.inside(theta))
    assert np.all((theta >= prior.low) & (theta <= prior.high))
    assert repr(prior).startswith("Prior(")
    if prior.has_density:
        assert np.all(np.isfinite(prior.log_density(theta)))
    else:
        with pytest.raises(ValueError, match="no density"):
            prior.log_density(theta)
    if prior.has_marginals:
        u = prior.cdf(theta)
        assert u.shape == (n, d)
        np.testing.assert_allclose(prior.ppf(u), theta, atol=1e-8)
    else:
        with pytest.raises(ValueError, match="independent univariate"):
            prior.cdf(theta)
    assert as_prior(prior) is prior


# Of this file, which is no module to import from; and those that SciPy does not pickle.
UNPICKLED = {"object", "shaped", "rvs", "function", "multinomial", "new", "new vector"}


@pytest.mark.parametrize("name", SOURCES)
def test_priors_are_copied_and_pickled(name):
    prior = as_prior(SOURCES[name][0])
    copies = [copy.deepcopy(prior)]
    if name not in UNPICKLED:
        copies.append(pickle.loads(pickle.dumps(prior)))
    for again in copies:
        np.testing.assert_array_equal(again.sample(4, 0), prior.sample(4, 0))
        assert again.names == prior.names
        np.testing.assert_array_equal(again.high, prior.high)
    bounded = as_prior(DRAWS, bounds=(-9, 9))
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(bounded)).high, [9, 9])


def test_a_distribution_that_changes_when_pickled_is_not_pickled():
    class Forgetful:
        """Comes back from a pickle as the standard normal, as Normal(mu=1) of SciPy 1.17 does."""

        def __init__(self, mean):
            self.norm = stats.norm(mean)

        def __getattr__(self, name):
            if name == "norm":
                raise AttributeError(name)
            return getattr(self.norm, name)

        def __reduce__(self):
            return stats.norm, (0.0,)

    with pytest.raises(pickle.PicklingError, match="SciPy does not pickle"):
        pickle.dumps(as_prior(Forgetful(1.0)))
    assert pickle.loads(pickle.dumps(as_prior(Forgetful(0.0)))).dim == 1


def test_densities_multiply_over_components():
    prior = as_prior([stats.norm(1, 2), stats.poisson(3.0), stats.dirichlet([2.0, 2.0])])
    theta = np.array([[0.5, 2.0, 0.25, 0.75]])
    expected = (
        stats.norm(1, 2).logpdf(0.5)
        + stats.poisson(3.0).logpmf(2)
        + stats.dirichlet([2.0, 2.0]).logpdf([0.25, 0.75])
    )
    np.testing.assert_allclose(prior.log_density(theta), expected)
    np.testing.assert_array_equal(prior.discrete, [False, True, False, False])
    np.testing.assert_array_equal(prior.simplices[0], [2, 3])


def test_support():
    prior = as_prior([stats.uniform(-1, 3), stats.gamma(2.0), stats.norm(), stats.randint(1, 7)])
    np.testing.assert_array_equal(prior.low, [-1, 0, -np.inf, 1])
    np.testing.assert_array_equal(prior.high, [2, np.inf, np.inf, 6])
    middle = np.array([0.0, 1.0, 0.0, 3.0])
    assert prior.inside(middle).all()
    for column, value in ((0, -1.1), (0, 2.1), (1, -0.1), (3, 0.0), (3, 2.5), (2, np.nan)):
        outside = middle.copy()
        outside[column] = value
        assert not prior.inside(outside).any()
        assert prior.log_density(outside)[0] == -np.inf
    # The end of an interval is inside, though the density of the gamma is zero there.
    assert prior.inside([2.0, 0.0, 0.0, 6.0]).all()
    assert repr(prior) == (
        "Prior(theta[0] in [-1, 2], theta[1] in [0, inf), theta[2], theta[3] in {1, ..., 6})"
    )


@settings(max_examples=25, deadline=None)
@given(st.lists(st.floats(-1e6, 1e6), min_size=5, max_size=5))
def test_project_lands_inside(values):
    prior = as_prior([stats.uniform(-1, 3), stats.randint(1, 7), stats.dirichlet([1.0, 2.0, 3.0])])
    assert prior.inside(prior.project(values)).all()
    inside = prior.sample(3, 0)
    np.testing.assert_allclose(prior.project(inside), inside, atol=1e-12)


def test_draws_are_kept_and_resampled():
    prior = as_prior(DRAWS, names=["a", "b"], bounds=(-10, [10, 20]))
    np.testing.assert_array_equal(prior.draws, DRAWS)
    rows = {tuple(row) for row in DRAWS}
    assert {tuple(row) for row in prior.sample(200, 0)} == rows
    np.testing.assert_array_equal(prior.high, [10, 20])
    assert not prior.inside([[11.0, 0.0]]).any()
    assert prior.names == ("a", "b")
    assert repr(prior) == "Prior(a in [-10, 10], b in [-10, 20]; 20 draws)"


def test_names():
    assert as_prior(SOURCES["mapping"][0]).names == ("a", "b[0]", "b[1]")
    assert as_prior(SOURCES["frame"][0]).names == ("u", "v")
    assert as_prior(stats.norm(), names="mu").names == ("mu",)
    assert as_prior([as_prior(stats.norm(), "a"), as_prior(stats.norm(), "b")]).names == ("a", "b")
    with pytest.raises(ValueError, match="2 names for 1"):
        as_prior(stats.norm(), names=["a", "b"])


def test_moments_of_the_draws():
    prior = as_prior([stats.norm(1, 2), stats.uniform(0, 1)])
    theta = prior.sample(4000, 0)
    error = 5 * np.array([2.0, 12**-0.5]) / np.sqrt(4000)  # five standard errors
    assert np.all(np.abs(theta.mean(axis=0) - [1.0, 0.5]) < error)
    assert np.all(stats.kstest(prior.cdf(theta), "uniform", axis=0).pvalue > 1e-6)


@pytest.mark.parametrize(
    ("source", "error", "match"),
    [
        (stats.gamma, TypeError, "freeze it"),
        (object(), TypeError, "cannot read a prior"),
        ("uniform", TypeError, "cannot read a prior"),
        ([], ValueError, "no components"),
        (stats.wishart(3, np.eye(2)), ValueError, "flatten"),
        (stats.norm(np.zeros((2, 2))), ValueError, "table"),
        (lambda n, rng: np.zeros(n + 1), ValueError, "shape"),
        (lambda n, rng: ["a"] * n, TypeError, "numbers"),
        (Sampler, TypeError, "class"),
        (np.array([[np.nan]]), ValueError, "NaN"),
    ],
)
def test_bad_priors_are_refused(source, error, match):
    with pytest.raises(error, match=match):
        as_prior(source)


def test_bad_use_is_refused():
    with pytest.raises(ValueError, match="truncate"):
        as_prior(stats.norm(), bounds=(0, 1))
    with pytest.raises(ValueError, match="low < high"):
        as_prior(function, bounds=(1, 0))
    with pytest.raises(ValueError, match="bounds must be"):
        as_prior(function, bounds=([0, 0, 0], 1))
    with pytest.raises(ValueError, match="pair"):
        as_prior(function, bounds=1.0)
    with pytest.raises(ValueError, match="outside"):
        as_prior(DRAWS, bounds=(0, 1))
    with pytest.raises(ValueError, match="outside of its bounds"):
        as_prior(function, bounds=(0, 1)).sample(5, 0)
    with pytest.raises(ValueError, match=r"shape \(n, 2\)"):
        as_prior(function).inside(np.zeros((3, 3)))
    with pytest.raises(ValueError, match="at least 1"):
        as_prior(function).sample(0)
    with pytest.raises(ValueError, match="NaN"):
        as_prior(lambda n: np.full(n, np.nan)).sample(2)


def test_a_callable_without_a_generator():
    own = np.random.default_rng(0)
    assert as_prior(lambda n: own.normal(size=n)).sample(3).shape == (3, 1)


def test_prior_is_frozen():
    with pytest.raises(AttributeError):
        as_prior(stats.norm()).names = ("a",)
    assert isinstance(as_prior(stats.norm()), Prior)


@pytest.mark.torch
def test_torch_distributions():
    torch = pytest.importorskip("torch")
    D = torch.distributions
    cases = [
        (D.Normal(0.0, 1.0), 1, -np.inf, np.inf),
        (D.Normal(torch.zeros(2), torch.ones(2)), 2, -np.inf, np.inf),
        (D.Independent(D.Uniform(torch.zeros(2), 3 * torch.ones(2)), 1), 2, 0.0, 3.0),
        (D.MultivariateNormal(torch.zeros(2), torch.eye(2)), 2, -np.inf, np.inf),
        (D.Gamma(2.0, 1.0), 1, 0.0, np.inf),
        (D.Dirichlet(torch.ones(3)), 3, 0.0, 1.0),
        (D.Poisson(3.0), 1, 0.0, np.inf),
    ]
    for source, d, low, high in cases:
        prior = as_prior(source)
        state = torch.get_rng_state()
        theta = prior.sample(6, np.random.default_rng(1))
        assert torch.equal(state, torch.get_rng_state())
        np.testing.assert_array_equal(theta, prior.sample(6, np.random.default_rng(1)))
        assert theta.shape == (6, d)
        assert len(np.unique(theta[:, 0])) > 1
        np.testing.assert_array_equal(prior.low, np.full(d, low))
        np.testing.assert_array_equal(prior.high, np.full(d, high))
        assert np.all(np.isfinite(prior.log_density(theta)))
        assert prior.log_density(theta).shape == (6,)
    assert prior.discrete.all()
    uniform = as_prior(cases[2][0])
    np.testing.assert_allclose(uniform.log_density([[1.0, 1.0], [4.0, 1.0]]), [-np.log(9), -np.inf])


def test_the_joint_density_is_the_product_of_all_components():
    """Components of one family are asked for at once: the same numbers, in any order."""
    rng = np.random.default_rng(0)
    histograms = [stats.rv_histogram(np.histogram(rng.gamma(a, size=200))) for a in (1.0, 5.0)]
    parts = [
        stats.norm(), stats.gamma(2.0), *histograms, stats.norm(1.0), stats.gamma(3.0, scale=2.0),
        stats.norm(loc=2.0, scale=3.0), stats.poisson(2.0), stats.gamma(4.0), stats.poisson(3.0),
        stats.norm(scale=2.0, loc=1.0), stats.norm(np.array([0.0, 1.0])),
    ]  # fmt: skip
    prior = as_prior(parts)
    theta = prior.sample(20, 0)
    logs = [
        (part.logpmf if hasattr(part, "logpmf") else part.logpdf)(theta[:, j])
        for j, part in enumerate(parts[:-1])
    ]
    logs.append(parts[-1].logpdf(theta[:, -2:]).sum(axis=1))
    np.testing.assert_allclose(prior.log_density(theta), np.sum(logs, axis=0), rtol=1e-12)
    again = pickle.loads(pickle.dumps(prior))
    np.testing.assert_array_equal(again.log_density(theta), prior.log_density(theta))


@pytest.mark.parametrize(
    "prior", [{"p": (0, 1), "s": (0, 2)}, {"p": 0.5}, {"p": stats.norm(), "s": [0, 1]}]
)
def test_ranges_are_no_draws(prior):
    with pytest.raises(ValueError, match="for a range give"):
        as_prior(prior)
