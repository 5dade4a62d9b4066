"""Every pair twice is the same sample: with given kernels and ridges no answer changes.

Quantiles may: between two points they are interpolated, and a point that stands twice is a step.
So may what depends on neighbours or on the effective sample size: support outside the sample
(questions are asked inside it) and deviations of weights that nearly cancel.
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kernelbayes as kb

KX, KZ = kb.Gaussian([1.0, 1.5]), kb.Gaussian(0.8)
N, INSIDE = 30, np.array([[0.0, 0.0], [0.3, -0.2], [-0.4, 0.4], [0.5, 0.5]])


def rule(**options):
    def ask(x, z, prior, new):
        model = kb.KernelBayesRule(KX, KZ, prior_ridge=0.05, ridge=0.01, **options)
        return model.fit(x, z, prior=prior).posterior(new)

    return ask


def marginal(x, z, prior, new):
    return kb.KernelBayesRule(KX, KZ, ridge=0.01).fit(x, z).posterior(new)


def conditional(x, z, prior, new):
    return kb.ConditionalEmbedding(KX, KZ, 0.01).fit(x, z)(new)


def likelihood(x, z):
    return kb.ConditionalEmbedding(KZ, KX, 0.01).fit(z, x)


def summed(x, z, prior, new):
    return kb.sum_rule(likelihood(x, z), kb.embed(prior, KZ))


def inverted(**options):
    def ask(x, z, prior, new):
        found = kb.bayes_rule(likelihood(x, z), kb.embed(prior, KZ), ridge=0.05, **options)
        return found(new)

    return ask


def filtered(**options):
    def ask(x, z, prior, new):
        times = 1 if len(x) == N else 2
        ridges = {"ridge": 0.01, "prior_ridge": 0.05, "transition_ridge": 0.02}
        model = kb.KernelBayesFilter(KX, KZ, rng=0, **ridges, **options)
        return model.fit([x[::times]] * times, [z[::times]] * times).filter(new)

    return ask


ASK = {
    "conditional": conditional,
    "marginal": marginal,
    "importance": rule(),
    "original": rule(method="original"),
    "sum": summed,
    "bayes": inverted(),
    "bayes original": inverted(method="original"),
    "filter": filtered(),
    "filter original": filtered(method="original"),
}


def data(seed):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(N, 2))
    z = x[:, :1] + 0.5 * rng.normal(size=(N, 1))
    return x, z, 0.3 + 0.7 * rng.normal(size=(20, 1))


@pytest.mark.filterwarnings("ignore::kernelbayes.NumericalWarning")  # small samples have edges
@pytest.mark.parametrize("name", ASK)
@settings(max_examples=5, deadline=None)
@given(st.integers(0, 10_000))
def test_every_pair_twice_is_the_same_sample(name, seed):
    x, z, prior = data(seed)
    once = ASK[name](x, z, prior, INSIDE)
    twice = ASK[name](*(np.repeat(a, 2, axis=0) for a in (x, z, prior)), INSIDE)
    a = once.mean()
    np.testing.assert_allclose(twice.mean(), a, atol=1e-7 * np.abs(a).max())
    if name in ("conditional", "sum"):
        a = once.cov()
        np.testing.assert_allclose(twice.cov(), a, atol=1e-7 * np.abs(a).max())


@pytest.mark.parametrize("method", ["kulsif", "rulsif"])
@settings(max_examples=5, deadline=None)
@given(st.integers(0, 10_000))
def test_ratios_of_samples_twice(method, seed):
    _, z, prior = data(seed)
    once = kb.density_ratio(prior, z, KZ, method, ridge=0.05)(z)
    again = kb.density_ratio(*(np.repeat(a, 2, axis=0) for a in (prior, z)), KZ, method, ridge=0.05)
    np.testing.assert_allclose(again(z), once, atol=1e-9)
