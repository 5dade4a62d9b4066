"""Limits of Bayes' rule: no ridges, the training marginal as prior, many points."""

from itertools import pairwise

import numpy as np
import pytest

import kernelbayes as kb
import oracles

METHODS = ["importance", "original"]
each_method = pytest.mark.parametrize("method", METHODS)
each_form = pytest.mark.parametrize("form", ["a", "b"])
RNG = np.random.default_rng(0)
GRID = np.stack(np.meshgrid(np.arange(5), np.arange(5)), axis=-1).reshape(25, 2)
Z = 0.6 * (GRID - 2) + RNG.uniform(-0.05, 0.05, size=(25, 2))  # at least 0.5 apart
X = np.column_stack([0.6 * (RNG.permutation(GRID) - 2), RNG.normal(size=25)])
NEW = RNG.normal(size=(4, 3))
kz, kx = kb.Gaussian(0.9), kb.Gaussian((1.0, 2.0, 1.5))
CME = kb.ConditionalEmbedding(kz, kx, ridge=0.01).fit(Z, X)
# Conditioning below 1e3 with a ridge of 0.02: 1e6 units of rounding is generous.
ROUNDING = {"rel": 1e-9, "abs": 1e-10}

# --- no ridges, no change of prior ----------------------------------------------------------------


SHARP = kb.ConditionalEmbedding(kz, kb.Gaussian(0.25), ridge=0.01).fit(Z, X)  # G_x near I
# Every eigenvalue of S G_x S and of C is above 0.5 * 0.05 / n = 1e-3, so that ridges of 1e-10 and
# 1e-14 (squared) leave biases of 1e-7 and 1e-8 relative.
VANISHING, LIMIT = {"importance": 1e-10, "original": 1e-14}, {"rel": 1e-6, "abs": 1e-6}


def test_prior_of_the_training_marginal_gives_the_plain_conditional_exactly():
    rule = kb.bayes_rule(CME, None, ridge=0.02)
    plain = kb.ConditionalEmbedding(kx, kz, ridge=0.02).fit(X, Z)
    assert rule(NEW).weights == pytest.approx(plain(NEW).weights, **ROUNDING)
    assert rule(NEW)(Z) == pytest.approx(plain(NEW)(Z), **ROUNDING)


@each_form
@each_method
def test_prior_of_the_training_marginal_gives_the_plain_conditional(method, form):
    """Form (a) spreads the training marginal with ridge eta: equal as eta vanishes."""
    plain = kb.ConditionalEmbedding(kb.Gaussian(0.25), kz, ridge=1e-10).fit(X, Z)(NEW)
    narrow = kb.Gaussian(0.2)  # G_z near I, so that eta = 1e-10 is out of the way too
    cme = kb.ConditionalEmbedding(narrow, kb.Gaussian(0.25), ridge=1e-10).fit(Z, X)
    assert min(np.linalg.eigvalsh(k(P)).min() for k, P in ((narrow, Z), (cme.kernel_z_, X))) > 0.05
    for prior in (None, Z, kb.embed(Z, narrow)):
        found = kb.bayes_rule(cme, prior, method, form, ridge=VANISHING[method])(NEW)
        assert found.weights == pytest.approx(plain.weights, **LIMIT)


def test_original_and_importance_agree_without_ridges():
    """With all weights positive both are G^-1 k as the ridges vanish."""
    ratio = np.linspace(0.5, 1.5, len(Z))
    importance, original = (
        kb.bayes_rule(SHARP, None, method, ridge=VANISHING[method], ratio=ratio)(NEW).weights
        for method in METHODS
    )
    assert original == pytest.approx(importance, **LIMIT)
    inverse = np.linalg.solve(SHARP.conditional_.outputs.gram.G, kb.Gaussian(0.25)(X, NEW)).T
    assert importance == pytest.approx(inverse, **LIMIT)


# --- linear-Gaussian -----------------------------------------------------------------------------


def errors(n, seeds, **options):
    """Root mean squared error of the posterior mean, x = z + N(0, 1/4), z ~ N(1, 1/2)."""
    found = []
    for seed in seeds:
        rng = np.random.default_rng(seed)
        z = rng.normal(0.0, 1.5, size=n)
        x = z + 0.5 * rng.normal(size=n)
        prior = rng.normal(1.0, np.sqrt(0.5), size=n)
        new = np.linspace(-0.5, 2.5, 13)
        exact, _ = oracles.linear_gaussian_posterior(new, 1.0, 0.25, 1.0, 0.5)
        model = kb.KernelBayesRule(**options).fit(x, z, prior=prior)
        found.append(np.sqrt(np.mean((model.predict(new) - exact) ** 2)))
    return float(np.mean(found))


def assert_converges(sizes, seeds, **options):
    found = [errors(n, seeds, **options) for n in sizes]
    rate = np.polyfit(np.log(sizes), np.log(found), 1)[0]
    print(f"errors {np.round(found, 4)} at n = {sizes}: rate n^{rate:.2f}")
    assert all(later < earlier for earlier, later in pairwise(found))
    assert rate < -0.05


@pytest.mark.filterwarnings("ignore::kernelbayes.NumericalWarning")  # few pairs near the ends
@each_method
def test_posterior_mean_converges(method):
    """Averages over 30 seeds have a standard error below a tenth; each step falls by a quarter."""
    assert_converges((100, 200, 400), range(30), method=method)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::kernelbayes.NumericalWarning")  # few pairs near the ends
@each_method
def test_posterior_mean_converges_at_full_size(method):
    assert_converges((200, 800, 3200), range(30), method=method)


def test_gaussian_prior_in_closed_form_equals_a_large_sample():
    rng = np.random.default_rng(0)
    z = rng.normal(0.0, 1.5, size=200)
    x = z + 0.5 * rng.normal(size=200)
    k, new = kb.Gaussian(1.0), np.linspace(-0.5, 2.5, 5)
    model = kb.KernelBayesRule(k, k, prior_ridge=1e-3, ridge=1e-3)
    exact = model.fit(x, z, prior=kb.GaussianEmbedding([1.0], [[0.5]], k)).predict(new)
    sampled = [
        model.fit(x, z, prior=rng.normal(1.0, np.sqrt(0.5), size=4000)).predict(new)
        for _ in range(20)
    ]
    spread = np.std(sampled, axis=0, ddof=1)
    # Twenty samples: their average is within five standard errors, up to a bias of order 1/4000.
    bound = 5 * spread / np.sqrt(20) + 1e-3
    assert np.all(np.abs(np.mean(sampled, axis=0) - exact) < bound)
