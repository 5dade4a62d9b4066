"""Embeddings: laws, hand computations, closed forms, batches, algebra and refusals."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelbayes import (
    Batch,
    Custom,
    Delta,
    Embedding,
    Gaussian,
    GaussianEmbedding,
    Laplace,
    Linear,
    Matern,
    Parts,
    Polynomial,
    Spectrum,
    embed,
    fourier,
    mmd,
    mmd2,
    nystrom,
)
from oracles import check_embedding

LANDMARKS = np.random.default_rng(0).normal(size=(20, 2))
KERNELS = [
    Gaussian(1.0),
    Gaussian((0.5, 2.0)),
    Laplace(1.0),
    Matern(1.0, 0.5),
    Linear(),
    Polynomial(2, 1.0),
    2.0 * Gaussian(1.0) + Linear() * Laplace(3.0),
    Parts({0: Gaussian(1.0), 1: Laplace(2.0)}),
    nystrom(Gaussian(1.0), LANDMARKS, 10, rng=0),
    fourier(Gaussian(1.0), dim=2, rank=20, rng=0),
]
seeds = st.integers(0, 2**32 - 1)
# Two ways of adding up n <= 100 terms of size one, each rounded: a few n eps.
ROUNDING = 1e-12


def sample(seed, n):
    return np.random.default_rng(seed).normal(size=(n, 2))


# --- laws ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
@given(seed=seeds, n=st.integers(1, 20), scale=st.sampled_from([0.1, 1.0, 10.0]))
def test_laws_with_signed_weights(kernel, seed, n, scale):
    rng = np.random.default_rng(seed)
    check_embedding(embed(scale * rng.normal(size=(n, 2)), kernel, rng.normal(size=n)))


def test_laws_of_non_vectors():
    check_embedding(embed(["abab", "ba", "bab"], Spectrum(2), [0.5, -0.2, 0.7]))
    check_embedding(embed(["a", "b", "a"], Delta()))


class Doubled(Embedding):
    """Not a law-abiding embedding: it evaluates to twice what its weights say."""

    def __call__(self, X):
        return 2.0 * super().__call__(X)


def test_the_laws_notice_a_broken_embedding():
    with pytest.raises(AssertionError, match="mu\\(X\\)"):
        check_embedding(Doubled(np.zeros((1, 1)), np.ones(1), Gaussian(1.0)))


# --- finite features -----------------------------------------------------------------------------


@pytest.mark.parametrize("kernel", [k for k in KERNELS if k.finite], ids=repr)
def test_finite_features_equal_their_dense_gram_matrix(kernel):
    dense = Custom(lambda X, Y: kernel(X, Y))
    X, Y, Z = sample(0, 9), sample(1, 7), sample(2, 4)
    W = np.random.default_rng(3).normal(size=(2, 9))
    assert not dense.finite
    for weights in (None, W[0], W):
        mu, nu = embed(X, kernel, weights), embed(Y, kernel)
        other, another = embed(X, dense, weights), embed(Y, dense)
        # Sums in another order, of at most 9 x 20 terms of size up to 10.
        for found, expected in [
            (mu(Z), other(Z)),
            (mu.inner(nu), other.inner(another)),
            (mu.norm(), other.norm()),
            (mmd2(mu, nu), mmd2(other, another)),
        ]:
            np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-10)


# --- batches -------------------------------------------------------------------------------------


def batches():
    rng, k = np.random.default_rng(0), Gaussian(1.0)
    return (
        embed(rng.normal(size=(6, 2)), k, rng.normal(size=(3, 6))),
        embed(rng.normal(size=(5, 2)), k, rng.normal(size=(4, 5))),
    )


def test_a_batch_is_a_sequence_of_embeddings():
    batch, _ = batches()
    assert isinstance(batch, Batch)
    assert len(batch) == len(list(batch)) == 3
    assert all(isinstance(mu, Embedding) for mu in batch)
    assert np.array_equal(batch[-1].weights, batch.weights[2])
    assert batch[1].points is batch.points
    assert isinstance(batch[:2], Batch)
    assert np.array_equal(batch[::2].weights, batch.weights[::2])
    with pytest.raises(IndexError):
        batch[3]
    assert "3 embeddings over 6 points" in repr(batch)


def test_a_batch_computes_what_its_members_compute():
    batch, other = batches()
    X, nu, P = sample(5, 7), other[0], GaussianEmbedding([0.0, 0.0], np.eye(2), Gaussian(1.0))
    singles, close = list(batch), {"rtol": ROUNDING, "atol": ROUNDING}
    np.testing.assert_allclose(batch(X), [mu(X) for mu in singles], **close)
    np.testing.assert_allclose(batch.norm(), [mu.norm() for mu in singles], **close)
    np.testing.assert_allclose(batch.mass, [mu.mass for mu in singles], **close)
    np.testing.assert_allclose(batch.ess, [mu.ess for mu in singles], **close)
    for one in (nu, P):
        np.testing.assert_allclose(batch.inner(one), [m.inner(one) for m in singles], **close)
        np.testing.assert_allclose(one.inner(batch), [one.inner(m) for m in singles], **close)
        np.testing.assert_allclose(mmd2(batch, one), [mmd2(m, one) for m in singles], **close)
        np.testing.assert_allclose(mmd2(one, batch), [mmd2(one, m) for m in singles], **close)
    pairs = [[m.inner(n) for n in other] for m in singles]
    np.testing.assert_allclose(batch.inner(other), pairs, **close)
    assert batch.inner(other).shape == (3, 4)
    distances = [[mmd(m, n) for n in other] for m in singles]
    np.testing.assert_allclose(mmd(batch, other), distances, **close)


# --- algebra -------------------------------------------------------------------------------------


@given(seed=seeds, c=st.floats(-5, 5).filter(lambda c: abs(c) > 1e-3))
def test_algebra_is_pointwise(seed, c):
    rng = np.random.default_rng(seed)
    k, X = Gaussian(1.0), rng.normal(size=(5, 2))
    mu, nu = embed(rng.normal(size=(4, 2)), k, rng.normal(size=4)), embed(X[:3], k)
    batch = embed(X, k, rng.normal(size=(2, 5)))
    for found, expected in [
        (mu + nu, mu(X) + nu(X)),
        (mu - nu, mu(X) - nu(X)),
        (c * mu, c * mu(X)),
        (mu * c, c * mu(X)),
        (np.float64(c) * mu, c * mu(X)),
        (mu / c, mu(X) / c),
        (-mu, -mu(X)),
        (mu - mu, 0.0 * mu(X)),
        (c * batch, c * batch(X)),
        (np.float64(c) * batch, c * batch(X)),
        (batch + batch[0], batch(X) + batch[0](X)),
        (batch - batch / c, batch(X) - batch(X) / c),
    ]:
        # A handful of terms of size at most |c| + 1 / |c|.
        np.testing.assert_allclose(found(X), expected, atol=ROUNDING * (abs(c) + 1 / abs(c)))
    assert isinstance(np.float64(c) * batch, Batch)
    assert len(mu + nu) == 7
    assert len(mu - mu) == 4  # over common points only the weights change


def test_batches_are_added_over_equal_points_only():
    k, x = Gaussian(1.0), np.array([0.0, 1.0])
    first, second = embed(x, k, np.eye(2)), embed(x, k, np.ones((2, 2)))
    assert np.array_equal((first + second).weights, np.eye(2) + 1.0)
    with pytest.raises(ValueError, match="common points"):
        first + embed([0.0, 2.0], k, np.eye(2))


@pytest.mark.parametrize("other", [1.0, "x", None, Gaussian(1.0)])
def test_only_embeddings_are_added(other):
    mu = embed([0.0], Gaussian(1.0))
    with pytest.raises(TypeError):
        mu + other


def test_mass_normalisation_and_effective_sample_size():
    k = Gaussian(1.0)
    mu = embed([0.0, 1.0, 2.0], k, [1.0, 2.0, -1.0])
    assert float(mu.mass) == 2.0
    assert float(mu.ess) == pytest.approx(4.0 / 6.0)
    assert np.array_equal(mu.normalized().weights, [0.5, 1.0, -0.5])
    assert float(embed(np.arange(7.0), k).ess) == pytest.approx(7.0)
    assert float(embed([0.0, 1.0], k, [0.0, 3.0]).ess) == 1.0
    assert float((mu - mu).ess) == 0.0
    batch = embed([0.0, 1.0], k, [[1.0, 1.0], [0.5, 1.5]]).normalized()
    assert np.array_equal(batch.weights, [[0.5, 0.5], [0.25, 0.75]])


@pytest.mark.parametrize("weights", [[1.0, -1.0], [0.0, 0.0], [[1.0, 1.0], [0.1, -0.1]]])
def test_zero_mass_cannot_be_normalised(weights):
    with pytest.raises(ValueError, match="sum to zero"):
        embed([0.0, 1.0], Gaussian(1.0), weights).normalized()


# --- refusals ------------------------------------------------------------------------------------


@pytest.mark.parametrize("other", [Gaussian(2.0), Laplace(1.0), 1.0 * Gaussian(1.0)])
@pytest.mark.parametrize(
    "meet", [lambda m, n: m + n, lambda m, n: m - n, lambda m, n: m.inner(n), mmd, mmd2]
)
def test_different_kernels_refuse_to_meet(meet, other):
    with pytest.raises(ValueError, match="different kernels"):
        meet(embed([0.0], Gaussian(1.0)), embed([0.0], other))


@pytest.mark.parametrize(
    "weights", [[1.0], [1.0, 1.0, 1.0], [[1.0], [1.0]], 1.0, [[[1.0, 1.0]]], np.ones((0, 2))]
)
def test_wrong_shapes_of_weights(weights):
    with pytest.raises(ValueError, match="weights must have shape"):
        embed([0.0, 1.0], Gaussian(1.0), weights)


@pytest.mark.parametrize(
    ("points", "kernel", "weights", "error"),
    [
        ([0.0, 1.0], Gaussian(1.0), [1.0, np.nan], ValueError),
        ([0.0, 1.0], Gaussian(1.0), [1.0, np.inf], ValueError),
        ([0.0, 1.0], Gaussian(1.0), ["a", "b"], TypeError),
        ([0.0, np.nan], Gaussian(1.0), None, ValueError),
        ([], Gaussian(1.0), None, ValueError),
        ([0.0, 1.0], "gaussian", None, TypeError),
        ([0.0, 1.0], lambda x, y: x, None, ValueError),  # a function is a kernel; this one is wrong
    ],
)
def test_bad_input(points, kernel, weights, error):
    with pytest.raises(error):
        embed(points, kernel, weights)


def test_an_embedding_is_evaluated_in_its_own_space():
    with pytest.raises(ValueError, match="one space"):
        embed(sample(0, 3), Gaussian(1.0))(np.ones((2, 3)))
    with pytest.raises(TypeError, match="use embed"):
        mmd(embed([0.0], Gaussian(1.0)), [0.0])


# --- points of many kinds ------------------------------------------------------------------------


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame], ids=["pandas", "polars"])
def test_column_names_are_kept(frame):
    data = {"age": [30.0, 40.0], "height": [1.7, 1.8]}
    mu = embed(frame(data), Gaussian((10.0, 0.1)))
    assert mu.names == ("age", "height")
    assert (2.0 * mu + mu).normalized().names == ("age", "height")
    assert mu(frame(data).head(1)).shape == (1,)
    named = embed(frame(data), Parts({"height": Gaussian(0.1)}), [[0.5, 0.5]])
    assert named.names == named[0].names == ("age", "height")
    assert embed(frame(data)["age"], Gaussian(1.0)).names == ("age",)
    assert embed([1.0], Gaussian(1.0)).names is None


def test_mappings_and_strings_as_points():
    kernel = Parts({"x": Gaussian(1.0), "word": Spectrum(1)})
    first = {"x": [0.0, 1.0], "word": ["ab", "b"]}
    mu, nu = embed(first, kernel, [0.5, 2.0]), embed({"x": [1.0], "word": ["a"]}, kernel)
    e = np.exp(-0.5)
    np.testing.assert_allclose(mu({"x": [0.0], "word": ["ab"]}), [0.5 * 2 + 2.0 * e], rtol=ROUNDING)
    assert float(mu.inner(nu)) == pytest.approx(0.5 * e)
    assert len(mu + nu) == 3
    assert (mu + nu).names == ("x", "word")
    counts = embed(["a", "b", "a", "c"], Delta())
    np.testing.assert_allclose(counts(["a", "c", "d"]), [0.5, 0.25, 0.0])
