"""A Gram matrix instead of a kernel: the same answers as with the kernel it came from."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.model_selection import cross_val_score

import kernelbayes as kb

KX, KZ = kb.Gaussian(1.0), kb.Gaussian(0.8)
seeds = st.integers(0, 10_000)


def pairs(seed, n=40):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 2))
    return x, x[:, 0] + 0.3 * rng.normal(size=n), 0.5 * rng.normal(size=(3, 2))


OUTSIDE = "ignore:.*outside the training sample:kernelbayes.NumericalWarning"


@pytest.mark.filterwarnings(OUTSIDE)
@settings(max_examples=10, deadline=None)
@given(seeds, st.sampled_from(["importance", "original"]), st.booleans())
def test_a_rule_answers_as_with_the_kernel(seed, method, with_prior):
    x, z, new = pairs(seed)
    options = {"method": method, "ridge": 0.01, "prior_ridge": 0.05}
    prior = z[:20] + 0.2 if with_prior else None
    exact = kb.KernelBayesRule(KX, KZ, **options).fit(x, z, prior=prior).posterior(new)
    rule = kb.KernelBayesRule("precomputed", KZ, **options).fit(KX(x), z, prior=prior)
    found = rule.posterior(KX(new, x))
    np.testing.assert_allclose(found.mean(), exact.mean(), atol=1e-5)


def test_a_conditional_embedding_of_a_precomputed_response():
    x, z, new = pairs(0)
    exact = kb.ConditionalEmbedding(KX, KZ, 0.01).fit(x, z)(new)
    found = kb.ConditionalEmbedding("precomputed", "precomputed", 0.01).fit(KX(x), KZ(z))
    beliefs = found(KX(new, x))
    np.testing.assert_allclose(beliefs.weights, exact.weights, atol=1e-8)
    np.testing.assert_allclose(beliefs(KZ(z)), exact(z), atol=1e-8)


@pytest.mark.parametrize("kind", ["rows", "indices"])
def test_a_filter_answers_as_with_the_kernel(kind):
    """Rows of kernel values, or indices under a kernel that looks them up."""
    x, z, _ = pairs(1)
    x, z = np.cumsum(x, axis=0)[:, :1] / 3.0, z
    G, ridges = KX(x), {"ridge": 0.01, "prior_ridge": 0.05, "transition_ridge": 0.02, "rng": 0}
    exact = kb.KernelBayesFilter(KX, KZ, **ridges).fit(x[:30], z[:30]).filter(x[30:]).mean()
    if kind == "rows":
        kernel, train, test = kb.Precomputed(G[:30, :30]), G[:30, :30], G[30:, :30]
    else:
        kernel = kb.Custom(lambda i, j: G[np.asarray(i, int)][:, np.asarray(j, int)])
        train, test = np.arange(30), np.arange(30, 40)
    found = kb.KernelBayesFilter(kernel, KZ, **ridges).fit(train, z[:30]).filter(test).mean()
    np.testing.assert_allclose(found, exact, atol=1e-5)


def test_the_kernel_of_two_new_points_is_the_projection():
    x, _, new = pairs(2)
    k = kb.Precomputed(KX(x))
    full = kb.nystrom(KX, x, len(x), rng=0)
    np.testing.assert_allclose(k(KX(x)), KX(x), atol=1e-8)
    np.testing.assert_allclose(k(KX(new, x)), full(new), atol=1e-6)
    kb.laws.check_kernel(k, KX(x))


@pytest.mark.filterwarnings(OUTSIDE)
def test_defaults_and_cross_validation_work():
    x, z, _ = pairs(3, 80)
    # Literal: how far outside the sample a new point is, its row of values does not say exactly.
    scores = cross_val_score(kb.KernelBayesRule("precomputed", literal=True), KX(x), z, cv=4)
    direct = cross_val_score(kb.KernelBayesRule(KX, literal=True), x, z, cv=4)
    np.testing.assert_allclose(scores, direct, atol=1e-5)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: kb.Precomputed(np.ones((3, 2))), "shape"),
        (lambda: kb.Precomputed([[1.0, 0.5], [0.4, 1.0]]), "symmetric"),
        (lambda: kb.Precomputed([[1.0, 2.0], [2.0, 1.0]])([[1.0, 2.0]]), "semi-definite"),
        (lambda: kb.Precomputed(np.eye(3))(np.ones((2, 4))), "each of the 3 training points"),
        (lambda: kb.KernelBayesRule("precomputed").fit(np.ones((4, 2)), np.arange(4.0)), "shape"),
    ],
)
def test_mistakes_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_elsewhere_the_word_says_what_to_give():
    with pytest.raises(TypeError, match="Precomputed"):
        kb.embed(np.eye(3), "precomputed")
