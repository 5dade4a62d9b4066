"""Laws at 10^5 to 10^6 points, in single and double precision.

Sums of so many singles, added up in single precision, are wrong in the second or third digit.
"""

import numpy as np
import pytest

import kernelbayes as kb

pytestmark = pytest.mark.slow
each_type = pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["single", "double"])
MILLION, MANY = 10**6, 10**5
K = kb.Gaussian(1.0)


def normal(seed, *shape):
    return np.random.default_rng(seed).normal(size=shape)


def pairs(n, dtype):
    """Pairs of x (n, 2) and z (n,), the same numbers in both precisions."""
    x = normal(1, n, 2).astype(np.float32)
    z = np.float32(np.sin(x[:, 0]) + 0.5 * x[:, 1]) + np.float32(0.3) * np.float32(normal(2, n))
    return x.astype(dtype), z.astype(dtype)


def inside(m, dtype):
    """Points (m, 2) well inside the sample; outside of it a warning names them."""
    return np.random.default_rng(20).uniform(-1.5, 1.5, size=(m, 2)).astype(dtype)


def rule(x, z, kernel, **options):
    options = {"ridge": 1e-3, "prior_ridge": 1e-3, **options}
    return kb.KernelBayesRule(kernel, kb.Gaussian(0.5), rng=0, **options).fit(x, z)


@each_type
def test_questions_to_a_million_points_far_from_zero(dtype):
    X = (1000.0 + normal(0, MILLION, 2)).astype(dtype)
    mu, exact = kb.embed(X, K), X.astype(np.float64)
    near = {"rtol": 1e-6 if dtype == np.float32 else 1e-12}
    np.testing.assert_allclose(mu.mean(), exact.mean(axis=0), **near)
    np.testing.assert_allclose(mu.moment(2), np.mean(exact**2, axis=0), **near)
    np.testing.assert_allclose(mu.cov(), np.cov(exact.T, ddof=0), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(mu.expect(lambda x: x[:, 0]), exact[:, 0].mean(), **near)
    assert mu.mass == pytest.approx(1.0, rel=1e-6)
    assert mu.ess == pytest.approx(MILLION, rel=1e-5)
    # A quantile lies between two neighbours, which here are about 1e-5 apart; in single precision
    # points come in steps of 6e-5.
    wanted = np.quantile(exact, [0.05, 0.5, 0.95], axis=0)
    np.testing.assert_allclose(mu.quantile([0.05, 0.5, 0.95]), wanted, rtol=0, atol=2e-4)
    inside = np.mean(np.all(exact <= 1000.5, axis=1))
    assert mu.prob(([-np.inf] * 2, [1000.5] * 2)) == pytest.approx(inside, abs=1e-6)


@each_type
def test_values_and_distances_of_many_points(dtype):
    """Duplicated points change nothing; a shift by delta moves the embedding by about delta."""
    X = (1000.0 + normal(3, MANY, 1)).astype(dtype)
    mu, twice = kb.embed(X, K), kb.embed(np.concatenate([X, X]), K)
    at = X[:5]
    exact = kb.embed(X.astype(np.float64), K)(at.astype(np.float64))
    np.testing.assert_allclose(mu(at), exact, rtol=1e-5)
    np.testing.assert_allclose(twice(at), mu(at), rtol=1e-5)
    features = kb.fourier(K, 1, 200, rng=0)
    near = kb.mmd(kb.embed(X, features), kb.embed(X[::-1].copy(), features))
    assert near < (1e-6 if dtype == np.float32 else 1e-12)


@each_type
def test_a_rule_does_not_depend_on_the_order_of_its_pairs(dtype):
    x, z = pairs(MANY, dtype)
    order, kernel = np.random.default_rng(4).permutation(MANY), kb.nystrom(K, x, 200, rng=0)
    first, second = rule(x, z, kernel, rank=200), rule(x[order], z[order], kernel, rank=200)
    at = inside(50, dtype)
    # The landmarks of z are other points, so that only the means of z agree.
    np.testing.assert_allclose(first.predict(at), second.predict(at), rtol=0, atol=0.01)


def test_a_rule_on_singles_is_that_on_doubles():
    found = []
    for dtype in (np.float32, np.float64):
        x, z = pairs(MANY, dtype)
        found.append(rule(x, z, K, rank=200).predict(inside(200, np.float32).astype(dtype)))
    assert found[0].dtype == np.float32
    np.testing.assert_allclose(*found, rtol=0, atol=2e-3)
    at = inside(200, np.float32)
    truth = np.sin(at[:, 0]) + 0.5 * at[:, 1]
    assert np.sqrt(np.mean((found[1] - truth) ** 2)) < 0.1  # of 0.8


@each_type
def test_a_rule_with_its_outputs_far_from_zero(dtype):
    x, z = pairs(MANY, dtype)
    near = rule(x, z.astype(np.float64), K, rank=200)
    far = rule(x, z.astype(np.float64) + 1e6, K, rank=200)
    at = inside(50, dtype)
    np.testing.assert_allclose(far.predict(at) - 1e6, near.predict(at), rtol=0, atol=1e-3)


@pytest.mark.parametrize("method", ["linear", "block", "features"])
def test_two_samples_of_singles_are_those_of_doubles(method):
    X, Y = normal(5, 2 * MANY, 2).astype(np.float32), normal(6, 2 * MANY, 2).astype(np.float32)
    Y += np.float32(0.01)
    found = [
        kb.mmd_test(X.astype(t), Y.astype(t), K, 200, 0, method=method)
        for t in (np.float32, np.float64)
    ]
    # Statistics near 1e-5 are differences of means of kernel values, which have an error of 1e-7.
    assert found[0].statistic == pytest.approx(found[1].statistic, abs=1e-7)
    assert found[0].pvalue == pytest.approx(found[1].pvalue, abs=0.02)


@each_type
def test_independent_and_dependent_pairs(dtype):
    x = normal(7, 2 * MANY).astype(dtype)
    y = normal(8, 2 * MANY).astype(dtype)
    # Dependent by a correlation of .05, forty standard errors.
    dependent = kb.hsic_test(x, y + dtype(0.05) * x, K, K, 200, 0, method="features")
    assert dependent.pvalue < 0.01
    assert kb.hsic_test(x, y, K, K, 200, 0, method="features").pvalue > 1e-3


@each_type
def test_pivots_reach_their_tolerance(dtype):
    X = normal(9, MANY, 2).astype(dtype)
    kernel = kb.pivoted_cholesky(K, X, tol=1e-6, rng=0)
    assert kernel.error <= 1e-6
    assert kernel.rank < 300
    np.testing.assert_allclose(kernel(X[:50]), K(X[:50]), atol=2e-3)


@each_type
def test_a_filter_with_many_training_steps(dtype):
    rng = np.random.default_rng(10)
    z = np.zeros(MANY)
    for t, move in enumerate(rng.normal(size=MANY - 1), 1):
        z[t] = 0.9 * z[t - 1] + 0.3 * move
    x = z + 0.3 * rng.normal(size=MANY)
    model = kb.KernelBayesFilter(
        kb.Gaussian(0.5), kb.Gaussian(0.5), prior_ridge=1e-5, ridge=1e-3, rank=60, rng=0
    ).fit(x[:, None].astype(dtype), z[:, None].astype(dtype))
    found = model.filter(x[:200, None].astype(dtype), progress=False).mean()[:, 0]
    assert found.dtype == dtype
    # The Kalman filter's steady state has a variance of 0.0538, a standard deviation of 0.23.
    assert np.sqrt(np.mean((found - z[:200]) ** 2)) < 0.28


def test_without_a_rank_the_advice_comes_before_the_memory_is_gone(monkeypatch):
    monkeypatch.setattr("kernelbayes.gram.base.available", lambda: 64e9)
    x, z = pairs(MANY, np.float64)
    for model in (kb.ConditionalEmbedding(K, K, 1e-3), kb.KernelBayesRule(K, K, ridge=1e-3)):
        with pytest.raises(MemoryError, match=r"give rank="):
            model.fit(x, z) if not hasattr(model, "apply") else model.fit(x, z).solver_
