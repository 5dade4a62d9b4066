"""Sums made of kernel columns equal those made of features, and cost two passes over the pairs."""

import numpy as np
import pytest

import kernelbayes as kb
from kernelbayes.gram import Gram, LowRank, columns, factored
from kernelbayes.gram.columns import Columns
from kernelbayes.gram.finite import Landmarks
from kernelbayes.kernels.radial import Gaussian

N, RANK = 400, 12


def sample(seed=0, n=N):
    rng = np.random.default_rng(seed)
    Z = rng.normal(size=(n, 2))
    return np.tanh(Z @ rng.normal(size=(2, 3))) + 0.3 * rng.normal(size=(n, 3)), Z


X, Z = sample()
KERNEL = kb.nystrom(kb.Gaussian(1.0), X, RANK, rng=0)
WEIGHTS = np.maximum(np.random.default_rng(1).normal(size=N), 0.0) / N
WEIGHTS[100:200] = 0.0


@pytest.fixture
def in_columns(monkeypatch):
    """Columns at any size, in blocks of 50 rows, one of them without any weight."""
    monkeypatch.setattr(factored, "COLUMN_ENTRIES", 1)
    monkeypatch.setattr(columns, "CACHED", 50 * RANK)


def test_only_sums_over_many_points_are_made_of_columns(monkeypatch):
    assert type(Gram.of(KERNEL, X, sums=True)) is LowRank
    monkeypatch.setattr(factored, "COLUMN_ENTRIES", N * RANK)
    assert type(Gram.of(KERNEL, X, sums=True)) is Columns
    assert type(Gram.of(KERNEL, X)) is LowRank
    assert type(Gram.of(KERNEL, X.astype(np.float32), sums=True)) is LowRank
    fourier = kb.fourier(kb.Gaussian(1.0), 3, RANK, rng=0)
    assert type(Gram.of(fourier, X, sums=True)) is LowRank


@pytest.mark.usefixtures("in_columns")
@pytest.mark.parametrize("d", [None, np.full(N, 1.0 / N), WEIGHTS], ids=["none", "equal", "some"])
def test_moments_and_products_are_those_of_the_features(d):
    found, expected = Gram.of(KERNEL, X, sums=True), LowRank(KERNEL.features(X))
    # Rounding, 1e-16, times the condition of the landmarks' Gram matrix, 1e4 here, and the sum.
    size = N if d is None else 1.0
    tolerance = {"rtol": 0.0, "atol": 1e-15 * KERNEL.condition * size}
    for mine, its in zip(found.moments(d, Z, 0.1 * size), expected.moments(d, Z), strict=True):
        np.testing.assert_allclose(mine, its, **tolerance)
    np.testing.assert_allclose(found.project(Z), expected.project(Z), **tolerance)
    A = np.random.default_rng(2).normal(size=(RANK, 2))
    for _ in range(2):  # computed, then held
        np.testing.assert_allclose(found.expand(A), expected.expand(A), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("method", ["importance", "original"])
@pytest.mark.parametrize("prior", [None, 0.5 + 0.5 * Z[:50]], ids=["marginal", "sample"])
@pytest.mark.parametrize("normalize", [False, True])
def test_answers_are_those_of_the_features(monkeypatch, method, prior, normalize):
    new = np.vstack([X[:20], 2.0 * X[:20], 30.0 + X[:2]])  # inside, at the edge and far outside
    answers = []
    for entries in (factored.COLUMN_ENTRIES, 1):
        monkeypatch.setattr(factored, "COLUMN_ENTRIES", entries)
        model = kb.KernelBayesRule(
            kb.Gaussian(1.0), kb.Gaussian(1.0), method=method, prior_ridge=1e-2, ridge=1e-3,
            normalize=normalize, rank=RANK, rng=0,
        ).fit(X, Z, prior=prior)  # fmt: skip
        assert isinstance(model.rule_.inputs.gram, Columns) == (entries == 1)
        with pytest.warns(kb.NumericalWarning, match="outside"):
            means = model.predict(new)
        with pytest.warns(kb.NumericalWarning, match="outside"):
            weights = model.posterior(new).weights
        answers.append((means, weights, model.rule_.usual_mass))
        # Means without weights are those of the weights.
        centre = model._centre
        assert means == pytest.approx(centre + weights @ (Z - centre), rel=1e-7, abs=1e-7)
    for mine, its in zip(*answers, strict=True):
        assert mine == pytest.approx(its, rel=1e-8, abs=1e-8)


@pytest.mark.usefixtures("in_columns")
def test_a_conditional_embedding_too(monkeypatch):
    found = kb.ConditionalEmbedding(KERNEL, kb.Gaussian(1.0), ridge=1e-3).fit(X, Z)
    means = found(X[:5]).mean()
    monkeypatch.setattr(factored, "COLUMN_ENTRIES", 10**9)
    other = kb.ConditionalEmbedding(KERNEL, kb.Gaussian(1.0), ridge=1e-3).fit(X, Z)
    assert means == pytest.approx(other(X[:5]).mean(), rel=1e-8)


@pytest.mark.usefixtures("in_columns")
def test_a_correction_removes_rounding_errors(monkeypatch):
    """Against least squares by QR, for landmarks whose Gram matrix has a condition of 1e9."""
    rng = np.random.default_rng(0)
    A = rng.normal(size=(2000, 2))
    kernel = kb.nystrom(kb.Gaussian(1.0), A, 30, rng=0)
    values = np.sin(2.0 * A[:, :1])
    F, ridge = kernel.features(A), 1e-6
    rows = np.vstack([F / np.sqrt(2000), np.sqrt(ridge) * np.eye(F.shape[1])])
    right = np.concatenate([values / np.sqrt(2000), np.zeros((F.shape[1], 1))])
    exact = F @ np.linalg.lstsq(rows, right, rcond=None)[0]
    errors = []
    for nothing in (columns.NOTHING, np.inf):
        monkeypatch.setattr(columns, "NOTHING", nothing)
        monkeypatch.setattr(columns, "HARMLESS", 10.0)
        G = Gram.of(kernel, A, sums=True)
        d = np.full(2000, 1.0 / 2000)
        moment, cross = G.moments(d, values, ridge)
        solver = G.weighted(d, ridge, moment)
        found = G.corrected(solver, solver.coefficients(cross), values)
        errors.append(np.abs(F @ found - exact).max())
    assert errors[0] < 1e-9
    assert errors[0] < 0.1 * errors[1]


class Counter:
    """Counts rows of kernel columns and of features that are made of them."""

    def __init__(self, monkeypatch):
        self.columns = self.features = 0
        cross, finish = Gaussian._cross, Landmarks.finish

        def counted(kernel, A, B):
            self.columns += len(A) if len(A) > RANK else 0
            return cross(kernel, A, B)

        def finished(kernel, K, transpose=False):
            self.features += K.shape[-1] if K.shape[-1] > RANK else 0
            return finish(kernel, K, transpose)

        monkeypatch.setattr(Gaussian, "_cross", counted)
        monkeypatch.setattr(Landmarks, "finish", finished)


@pytest.mark.usefixtures("in_columns")
@pytest.mark.parametrize("ridge", [1e-2, 1e-7])
def test_a_fit_and_its_means_take_two_passes_and_no_features(monkeypatch, ridge):
    """The counts that the time of large fits is made of: one pass for sums, one to correct them."""
    A, B = sample(3, 6000)
    monkeypatch.setattr(columns, "NOTHING", 1e-13)
    count = Counter(monkeypatch)
    model = kb.KernelBayesRule(kb.Gaussian(1.0), kb.Gaussian(1.0), ridge=ridge, rank=RANK, rng=0)
    model.fit(A, B)
    model.predict(A[:RANK])
    assert 2 * len(A) <= count.columns <= 2 * len(A) + 1000  # and what is usual of support, mass
    assert count.features <= 1000


@pytest.mark.usefixtures("in_columns")
@pytest.mark.parametrize("rank", [20, 60, 100])  # conditions of the landmarks of 1e5, 1e11, 1e15
@pytest.mark.parametrize("ridge", [1e-3, 1e-6, 1e-8])
def test_weights_are_those_of_features_at_any_ridge(rank, ridge):
    """Against least squares by QR, which has the root of the condition to lose digits by."""
    A = np.random.default_rng(0).normal(size=(2000, 2))
    kernel = kb.nystrom(kb.Gaussian(1.0), A, rank, rng=0)
    F, Phi, d = kernel.features(A), kernel.features(A[:5] + 0.1).T, np.full(2000, 1.0 / 2000)
    rows = np.vstack([F / np.sqrt(2000), np.sqrt(ridge) * np.eye(F.shape[1])])
    R = np.linalg.qr(rows, mode="r")
    expected = F @ np.linalg.solve(R, np.linalg.solve(R.T, Phi))
    gram = Gram.of(kernel, A, sums=True)
    found = gram.weighted(d, ridge).values_features(Phi)
    np.testing.assert_allclose(found, expected, rtol=0.0, atol=1e-9 * np.abs(expected).max())
    signed = gram.signed(d, ridge**2).values_features(Phi)
    expected = LowRank(F).signed(d, ridge**2).values_features(Phi)
    np.testing.assert_allclose(signed, expected, rtol=0.0, atol=1e-9 * np.abs(expected).max())
