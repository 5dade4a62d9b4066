"""Factored and streamed Gram matrices equal the whole one, in one block or in many."""

import numpy as np
import pytest

import kernelbayes as kb
from kernelbayes import arrays
from kernelbayes.gram import Dense, Factored, Gram, LowRank, Streamed, factored

RNG = np.random.default_rng(0)
N, RANK = 23, 6  # neither divides the other: the last block is a short one
X = RNG.normal(size=(N, 2))
WEIGHTS = {"ridge": None, "weighted": RNG.random(N) / N, "signed": RNG.normal(size=N) / N}
WEIGHTS["weighted"][[0, 7]] = 0.0
B = RNG.normal(size=(N, 3))
PHI = RNG.normal(size=(RANK, 3))
KERNEL = kb.nystrom(kb.Gaussian(1.0), X, RANK, rng=0)
L = KERNEL.features(X)
each_solver = pytest.mark.parametrize("name", WEIGHTS)
each_block = pytest.mark.parametrize("rows", [1, 5, 1000])
# Matrices of norm below N and ridges of 0.1: conditioning below 1e4, so 1e-12 of the result; the
# last two digits cover the growth with N.
close = pytest.approx
TOLERANCE = {"rel": 1e-10, "abs": 1e-10}


def solver(G, name, ridge=0.1):
    weights = WEIGHTS[name]
    return G.ridge(ridge) if weights is None else getattr(G, name)(weights, ridge)


@pytest.fixture
def streamed(request, monkeypatch):
    """Gram of the same points, streamed in blocks of the given number of rows."""
    monkeypatch.setattr(factored, "STREAM_ENTRIES", 10)
    monkeypatch.setattr(arrays, "BLOCK_ENTRIES", request.param * RANK)
    G = Gram.of(KERNEL, X)
    assert isinstance(G, Streamed)
    blocks = list(arrays.row_blocks(N, RANK))
    assert len(blocks) == -(-N // request.param)
    return G


in_blocks = pytest.mark.parametrize("streamed", [1, 5, 1000], indirect=True)


def test_gram_chooses_by_kernel_and_size():
    assert isinstance(Gram.of(kb.Gaussian(1.0), X), Dense)
    held = Gram.of(KERNEL, X)
    assert isinstance(held, LowRank)
    assert isinstance(held, Factored)
    assert np.array_equal(held.L, L)
    assert held.n == N


@in_blocks
@each_solver
def test_streamed_equals_low_rank_equals_dense(streamed, name):
    found, low, dense = (solver(G, name) for G in (streamed, LowRank(L), Dense(L @ L.T)))
    for right in (B, B[:, 0]):
        for method in ("solve", "values"):
            expected = getattr(low, method)(right)
            assert getattr(found, method)(right) == close(expected, **TOLERANCE)
            if WEIGHTS[name] is not None and method == "values":
                active = WEIGHTS[name] != 0  # a dense solver leaves zero where the weight is zero
                expected, other = expected[active], dense.values(right)[active]
            else:
                other = getattr(dense, method)(right)
            assert other == close(expected, **TOLERANCE)
    assert found.diagnostics.ridge_used == low.diagnostics.ridge_used
    assert found.diagnostics.condition == close(low.diagnostics.condition, rel=1e-6)


@in_blocks
@each_solver
def test_features_as_right_hand_sides(streamed, name):
    found, low, dense = (solver(G, name) for G in (streamed, LowRank(L), Dense(L @ L.T)))
    for Phi in (PHI, PHI[:, 0]):
        weights = found.solve_features(Phi)
        assert weights == close(low.solve_features(Phi), **TOLERANCE)
        assert weights == close(dense.solve(L @ Phi), **TOLERANCE)
        assert found.coefficients(Phi) == close(low.coefficients(Phi), **TOLERANCE)
        assert L @ found.coefficients(Phi) == close(found.values_features(Phi), **TOLERANCE)


@in_blocks
@pytest.mark.parametrize("weights", [None, "weighted", "signed"])
@pytest.mark.parametrize("targets", [None, B, B[:, 0]], ids=["alone", "matrix", "vector"])
def test_moments(streamed, weights, targets):
    d = None if weights is None else WEIGHTS[weights]
    D = np.eye(N) if d is None else np.diag(d)
    for G in (streamed, LowRank(L)):
        C, cross = G.moments(d, targets)
        assert close(L.T @ D @ L, **TOLERANCE) == C
        assert np.array_equal(C, C.T)
        if targets is None:
            assert cross is None
        else:
            assert cross == close(L.T @ D @ targets, **TOLERANCE)


@in_blocks
def test_products(streamed):
    for G in (streamed, LowRank(L)):
        assert G.n == N
        assert G.project(B) == close(L.T @ B, **TOLERANCE)
        assert G.expand(PHI) == close(L @ PHI, **TOLERANCE)
        assert G.expand(PHI[:, 0]) == close(L @ PHI[:, 0], **TOLERANCE)
        assert G.matmul(B) == close(L @ (L.T @ B), **TOLERANCE)


@in_blocks
@each_solver
def test_a_known_moment_gives_the_same_solver(streamed, name):
    moment, _ = streamed.moments(WEIGHTS[name])
    weights = () if WEIGHTS[name] is None else (WEIGHTS[name],)
    known = getattr(streamed, name)(*weights, 0.1, moment=moment)
    assert np.array_equal(known.solve(B), solver(streamed, name).solve(B))


@in_blocks
def test_inputs_are_left_as_they_were(streamed):
    copies = X.copy(), B.copy(), WEIGHTS["signed"].copy()
    streamed.moments(WEIGHTS["signed"], B)
    solver(streamed, "signed").solve(B)
    assert all(map(np.array_equal, (X, B, WEIGHTS["signed"]), copies))


# --- whole models --------------------------------------------------------------------------------


@each_block
@pytest.mark.parametrize("method", ["importance", "original"])
@pytest.mark.parametrize("normalize", [False, True])
def test_a_streamed_model_equals_one_in_memory(rows, method, normalize, monkeypatch):
    rng = np.random.default_rng(1)
    z = rng.normal(size=60)
    x, prior = z + 0.5 * rng.normal(size=60), rng.normal(0.5, 0.5, size=20)
    new = np.quantile(x, np.linspace(0.1, 0.9, 7))  # inside the sample

    def fit():
        model = kb.KernelBayesRule(method=method, rank=8, normalize=normalize, rng=0)
        return model.fit(x, z, prior=prior)

    held = fit()
    monkeypatch.setattr(factored, "STREAM_ENTRIES", 10)
    monkeypatch.setattr(arrays, "BLOCK_ENTRIES", rows * 8)
    found = fit()
    assert isinstance(found.likelihood_.outputs.gram, Streamed)
    # The default ridge may be as small as 1e-8 of the trace, its square for the original rule.
    assert found.predict(new) == close(held.predict(new), rel=1e-6, abs=1e-8)
    weights = held.posterior(new).weights
    assert found.posterior(new).weights == close(weights, rel=1e-5, abs=1e-8)


def test_a_streamed_conditional_embedding(monkeypatch):
    held = kb.ConditionalEmbedding(KERNEL, ridge=0.01).fit(X, X[:, 0])(X[:4]).weights
    monkeypatch.setattr(factored, "STREAM_ENTRIES", 10)
    monkeypatch.setattr(arrays, "BLOCK_ENTRIES", 5 * RANK)
    found = kb.ConditionalEmbedding(KERNEL, ridge=0.01).fit(X, X[:, 0])
    assert isinstance(found.conditional_.inputs.gram, Streamed)
    assert found(X[:4]).weights == close(held, **TOLERANCE)
