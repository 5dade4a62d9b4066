"""Embeddings against closed forms, quadrature and hand computations."""

import numpy as np
import pytest

from kernelbayes import (
    Gaussian,
    GaussianEmbedding,
    Laplace,
    Linear,
    Matern,
    Parts,
    Polynomial,
    embed,
    fourier,
    mmd,
    mmd2,
    nystrom,
)
from oracles import (
    gaussian_measure_inner,
    gaussian_measure_mmd2,
    gaussian_measure_value,
    mmd2_double_loop,
    normal_density,
    quadrature,
)

KERNELS = [
    Gaussian((0.5, 2.0)),
    Laplace(1.0),
    Matern(1.0, 0.5),
    Linear(),
    2.0 * Gaussian(1.0) + Polynomial(2, 1.0) * Laplace(3.0),
    Parts({0: Gaussian(1.0), 1: Laplace(2.0)}),
    nystrom(Gaussian(1.0), np.random.default_rng(0).normal(size=(20, 2)), 10, rng=0),
    fourier(Gaussian(1.0), dim=2, rank=20, rng=0),
]
# Two ways of adding up n <= 100 terms of size one, each rounded: a few n eps.
ROUNDING = 1e-12


def sample(seed, n, d=2, shift=0.0):
    return np.random.default_rng(seed).normal(shift, size=(n, d))


def one_point(kernel):
    """Turn a kernel into a function of two single points."""
    return lambda a, b: float(kernel(np.atleast_2d(a), np.atleast_2d(b))[0, 0])


# --- the Gaussian measure in closed form ---------------------------------------------------------

MEAN, COV = np.array([0.5, -1.0]), np.array([[1.0, 0.6], [0.6, 2.0]])
OTHER_MEAN, OTHER_COV = np.array([-0.5, 0.0]), np.array([[0.5, 0.0], [0.0, 1.0]])


@pytest.mark.parametrize("bandwidth", [1.0, (0.7, 1.5)])
def test_a_large_sample_approaches_the_closed_form(bandwidth):
    """Monte Carlo error of n points, in the norm: at most 5 / sqrt(n), but for one case in 1e7.

    E |mu_n - mu|^2 = (1 - |mu|^2) / n <= 1 / n. One point changes |mu_n - mu| by at most
    sqrt(2) / n, so by McDiarmid it exceeds (1 + t) / sqrt(n) with probability below exp(-t^2);
    t = 4. Values, norms and inner products are functionals of norm at most one.
    """
    n, kernel = 4000, Gaussian(bandwidth)
    tolerance = 5.0 / np.sqrt(n)
    rng = np.random.default_rng(0)
    mu = embed(rng.multivariate_normal(MEAN, COV, size=n), kernel)
    nu = embed(rng.multivariate_normal(OTHER_MEAN, OTHER_COV, size=n // 2), kernel)
    P, Q = GaussianEmbedding(MEAN, COV, kernel), GaussianEmbedding(OTHER_MEAN, OTHER_COV, kernel)
    grid = sample(1, 30, shift=0.5) * 2.0
    assert float(mmd(mu, P)) <= tolerance
    assert np.abs(mu(grid) - P(grid)).max() <= tolerance
    assert float(mu.norm()) == pytest.approx(float(P.norm()), abs=tolerance)
    assert float(mu.inner(Q)) == pytest.approx(float(P.inner(Q)), abs=tolerance)
    assert float(mu.inner(P)) == pytest.approx(float(P.inner(mu)), abs=ROUNDING)
    # The triangle inequality; nu has half as many points.
    assert float(mmd(mu, nu)) == pytest.approx(float(mmd(P, Q)), abs=tolerance * (1 + 2**0.5))


def test_gaussian_measure_equals_the_text_book():
    kernel, bandwidth = Gaussian((0.7, 1.5)), (0.7, 1.5)
    P, Q = GaussianEmbedding(MEAN, COV, kernel), GaussianEmbedding(OTHER_MEAN, OTHER_COV, kernel)
    X = sample(0, 5)
    expected = [gaussian_measure_value(x, MEAN, COV, bandwidth) for x in X]
    np.testing.assert_allclose(P(X), expected, rtol=ROUNDING)
    inner = gaussian_measure_inner(MEAN, COV, OTHER_MEAN, OTHER_COV, bandwidth)
    assert float(P.inner(Q)) == pytest.approx(inner, rel=ROUNDING)
    squared = gaussian_measure_mmd2(MEAN, COV, OTHER_MEAN, OTHER_COV, bandwidth)
    assert float(mmd2(P, Q)) == pytest.approx(squared, rel=ROUNDING)
    assert float(P.mass) == 1.0
    assert float(mmd(P, P)) == 0.0


@pytest.mark.parametrize(("mean", "variance", "h"), [(0.0, 1.0, 1.0), (2.0, 0.3, 0.5), (-1, 4, 2)])
def test_gaussian_measure_against_quadrature(mean, variance, h):
    """The integrand is smooth on the scale of 0.3 and the step is 0.015: exact to rounding."""
    P = GaussianEmbedding(mean, variance, Gaussian(h))
    for x in (-1.0, 0.4, 3.0):
        value = quadrature(
            lambda t, x=x: np.exp(-0.5 * ((x - t) / h) ** 2) * normal_density(t, mean, variance)
        )
        assert P([x])[0] == pytest.approx(value, rel=1e-10)
    squared = quadrature(lambda t: P(t) * normal_density(t, mean, variance))
    assert float(P.norm()) ** 2 == pytest.approx(squared, rel=1e-10)


def test_a_gaussian_measure_without_variance_is_a_point():
    k, X = Gaussian(1.3), sample(0, 5)
    point = embed(MEAN[None, :], k)
    nearly = GaussianEmbedding(MEAN, 1e-8 * COV, k)
    exactly = GaussianEmbedding(MEAN, np.zeros((2, 2)), k)
    np.testing.assert_allclose(exactly(X), point(X), rtol=ROUNDING)
    # The value is smooth in the covariance with derivatives of order one.
    np.testing.assert_allclose(nearly(X), point(X), atol=1e-7)
    assert float(exactly.norm()) == pytest.approx(1.0, rel=ROUNDING)
    assert float(mmd(exactly, point)) <= np.sqrt(ROUNDING)  # the root of a rounding error


@pytest.mark.parametrize(
    ("mean", "cov", "message"),
    [
        ([0.0, 0.0], [[1.0]], "shape"),
        ([0.0, 0.0], [[1.0, 0.5], [0.0, 1.0]], "symmetric"),
        ([0.0, 0.0], [[1.0, 2.0], [2.0, 1.0]], "positive semi-definite"),
        ([0.0, np.nan], np.eye(2), "NaN"),
        ([0.0, 0.0, 0.0], np.eye(3), "bandwidths"),
    ],
)
def test_gaussian_measure_refuses(mean, cov, message):
    with pytest.raises(ValueError, match=message):
        GaussianEmbedding(mean, cov, Gaussian((1.0, 1.0)))


def test_gaussian_measure_needs_the_gaussian_kernel():
    with pytest.raises(TypeError, match="Gaussian kernel"):
        GaussianEmbedding([0.0], [[1.0]], Laplace(1.0))
    with pytest.raises(ValueError, match="different kernels"):
        GaussianEmbedding([0.0], [[1.0]], Gaussian(1.0)).inner(embed([0.0], Gaussian(2.0)))


# --- maximum mean discrepancy --------------------------------------------------------------------


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
@pytest.mark.parametrize("unbiased", [False, True])
def test_mmd_by_hand(kernel, unbiased):
    X, Y = sample(1, 6), sample(2, 4, shift=1.0)
    expected = mmd2_double_loop(X, Y, one_point(kernel), unbiased)
    mu, nu = embed(X, kernel), embed(Y, kernel)
    scale = max(1.0, np.abs(kernel(X)).max(), np.abs(kernel(Y)).max())
    # Landmarks divide by the smallest pivot: their features carry the root of rounding errors.
    tolerance = scale * (1e-9 if kernel.finite else ROUNDING)
    assert float(mmd2(mu, nu, unbiased=unbiased)) == pytest.approx(expected, abs=tolerance)
    if not unbiased:
        assert float(mmd(mu, nu)) ** 2 == pytest.approx(expected, abs=tolerance)


def test_mmd_in_numbers():
    k = Gaussian(1.0)
    # |k(0, .) - k(1, .)|^2 = 2 - 2 exp(-1/2)
    assert float(mmd2(embed([0.0], k), embed([1.0], k))) == pytest.approx(2 - 2 * np.exp(-0.5))
    # <mu, mu> = (1 + e) / 2, without its diagonal e; <mu, nu> = (1 + e) / 2, <nu, nu> = 1
    e = np.exp(-0.5)
    mu, nu = embed([0.0, 1.0], k), embed([0.0, 0.0], k)
    assert float(mmd2(mu, nu)) == pytest.approx((1 - e) / 2)
    assert float(mmd2(mu, nu, unbiased=True)) == pytest.approx(0.0)


def test_unbiased_is_unbiased_under_the_null():
    """Mean over repetitions within five of its own standard errors (probability below 1e-6).

    The biased estimate of n points has mean 2 (1 - |mu|^2) / n > 0, so it fails the same check.
    """
    rng, k = np.random.default_rng(0), Gaussian(1.0)
    pairs = [(embed(rng.normal(size=5), k), embed(rng.normal(size=7), k)) for _ in range(1000)]

    def standardised(unbiased):
        values = np.array([float(mmd2(mu, nu, unbiased=unbiased)) for mu, nu in pairs])
        return values.mean() / (values.std() / np.sqrt(len(values)))

    assert abs(standardised(unbiased=True)) < 5
    assert standardised(unbiased=False) > 5


def test_unbiased_refuses_single_points_and_batches():
    k, pair = Gaussian(1.0), embed([0.0, 1.0], Gaussian(1.0))
    with pytest.raises(ValueError, match="two points"):
        mmd2(pair, embed([0.0], k), unbiased=True)
    for other in (embed([0.0], k, [[1.0]]), GaussianEmbedding(0.0, 1.0, k)):
        with pytest.raises(TypeError, match="two Embeddings"):
            mmd2(pair, other, unbiased=True)
