"""Regularised solves against the literal formulas; rescue, refusals and diagnostics."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelbayes import NumericalWarning
from kernelbayes.gram import RESCUE_BOUND, Dense, LowRank
from oracles import ridge_solve, signed_solve, weighted_solve

SOLVERS = {
    "ridge": (lambda gram, _, ridge: gram.ridge(ridge), lambda G, _, c, B: ridge_solve(G, c, B)),
    "weighted": (
        lambda gram, w, ridge: gram.weighted(np.abs(w), ridge),
        lambda G, w, c, B: weighted_solve(G, np.abs(w), c, B),
    ),
    "signed": (lambda gram, w, ridge: gram.signed(w, ridge), signed_solve),
}
each_solver = pytest.mark.parametrize("name", SOLVERS)
seeds = st.integers(0, 2**32 - 1)


def factor(n, r, rng):
    """Feature matrix (n, r) with rows of length about one, like a kernel with k(x, x) = 1."""
    return rng.normal(size=(n, r)) / np.sqrt(r)


def instance(seed, n, r, zeros=0.3):
    """Factor, weights of both signs with some exact zeros, right-hand sides."""
    rng = np.random.default_rng(seed)
    w = rng.normal(size=n) / n
    w[rng.random(n) < zeros] = 0.0
    return factor(n, r, rng), w, rng.normal(size=(n, 3))


def close(found, expected, condition, dtype=np.float64):
    """Equality up to rounding: a backward stable solve loses ``condition`` units of rounding.

    The factor 100 covers the growth with n <= 30 of both solves; the result's own size is taken
    in norm, since single entries may cancel.
    """
    assert found.dtype == dtype
    assert found.shape == expected.shape
    scale = np.abs(expected).max(initial=0.0) + np.finfo(dtype).tiny
    error = np.abs(found - expected).max(initial=0.0)
    assert error <= 100 * np.finfo(dtype).eps * condition * scale


# --- against the literal formulas ----------------------------------------------------------------


def size_over_ridge(L, w, ridge):
    """Bound on the condition number of every matrix inverted here, and of forming it."""
    G = L @ L.T
    largest = max(np.linalg.norm(G, 2), np.linalg.norm(w[:, None] * G, 2) ** 2, 1.0)
    return 10.0 * (1.0 + largest / ridge) * max(1.0, np.linalg.norm(G, 2))


@each_solver
@given(seed=seeds, n=st.integers(1, 30), log_ridge=st.floats(-3, 1))
def test_dense_and_low_rank_equal_the_formula(name, seed, n, log_ridge):
    L, w, B = instance(seed, n, max(1, n // 2))
    ridge = 10.0**log_ridge
    make, formula = SOLVERS[name]
    expected = formula(L @ L.T, w, ridge, B)
    condition = size_over_ridge(L, w, ridge)
    for gram in (Dense(L @ L.T), LowRank(L)):
        solver = make(gram, w, ridge)
        close(solver.solve(B), expected, condition)
        close(solver.solve(B[:, 0]), expected[:, 0], condition * 3)  # norm of one column of three
        assert solver.diagnostics.rescues == 0
        assert solver.diagnostics.ridge_used == solver.diagnostics.ridge


@each_solver
@given(seed=seeds, n=st.integers(1, 30))
def test_dense_equals_low_rank_at_full_rank(name, seed, n):
    L, w, B = instance(seed, n, n)
    make, _ = SOLVERS[name]
    dense, low = make(Dense(L @ L.T), w, 0.1), make(LowRank(L), w, 0.1)
    close(dense.solve(B), low.solve(B), size_over_ridge(L, w, 0.1))


@each_solver
@given(seed=seeds, n=st.integers(1, 30), r=st.integers(1, 10))
def test_features_as_right_hand_sides(name, seed, n, r):
    L, w, _ = instance(seed, n, r)
    Phi = np.random.default_rng(seed).normal(size=(r, 3))
    solver = SOLVERS[name][0](LowRank(L), w, 0.1)
    expected, condition = solver.solve(L @ Phi), size_over_ridge(L, w, 0.1)
    close(solver.solve_features(Phi), expected, condition)
    close(solver.solve_features(Phi[:, 0]), expected[:, 0], condition * 10)
    assert solver.coefficients(Phi).shape == (r, 3)


@each_solver
@pytest.mark.parametrize("kind", ["dense", "low rank"])
def test_float32(name, kind):
    L, w, B = instance(1, 20, 5)
    make, formula = SOLVERS[name]
    single = L.astype(np.float32)
    gram = Dense(single @ single.T) if kind == "dense" else LowRank(single)
    found = make(gram, w.astype(np.float32), 0.1).solve(B.astype(np.float32))
    close(found, formula(L @ L.T, w, 0.1, B), size_over_ridge(L, w, 0.1), np.float32)


# --- weights -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["weighted", "signed"])
@pytest.mark.parametrize("kind", ["dense", "low rank"])
def test_points_of_zero_weight_get_exactly_zero(name, kind):
    L, w, B = instance(0, 12, 4)
    w[[0, 5]] = 0.0
    make, _ = SOLVERS[name]
    gram = Dense(L @ L.T) if kind == "dense" else LowRank(L)
    assert np.all(make(gram, w, 0.1).solve(B)[w == 0] == 0.0)
    nothing = make(gram, np.zeros(12), 0.1)
    assert np.array_equal(nothing.solve(B), np.zeros_like(B))
    assert np.array_equal(nothing.solve(B[:, 0]), np.zeros(12))
    assert nothing.diagnostics.condition == pytest.approx(1.0)  # the matrix is ridge times I


def test_zero_weights_drop_out_of_the_factorisation():
    L, w, _ = instance(0, 12, 4)
    assert Dense(L @ L.T).weighted(np.abs(w), 0.1).diagnostics.size == np.count_nonzero(w)


# --- factors and diagnostics ---------------------------------------------------------------------


@given(seed=seeds, n=st.integers(1, 30), r=st.integers(1, 30))
def test_factor_reproduces_the_matrix_at_its_numerical_rank(seed, n, r):
    G = (L := factor(n, r, np.random.default_rng(seed))) @ L.T
    found = Dense(G).factor
    assert found.shape[1] <= min(n, r)
    # LAPACK stops when no pivot exceeds n eps max(diag).
    bound = 4 * n * np.finfo(float).eps * G.diagonal().max()
    np.testing.assert_allclose(found @ found.T, G, rtol=0, atol=bound)


@each_solver
@pytest.mark.parametrize("ridge", [1e-6, 1e-2, 10.0])
def test_condition_is_estimated(name, ridge):
    """LAPACK's estimate is almost always within a factor 3; two norms differ by at most n."""
    rng = np.random.default_rng(3)
    L, w = factor(8, 8, rng), rng.random(8) + 0.1
    G, S, c = L @ L.T, np.diag(np.sqrt(w)), L.T @ (w[:, None] * L)
    matrix = {"ridge": G, "weighted": S @ G @ S, "signed": c @ c}[name]
    exact = np.linalg.cond(matrix + ridge * (8 if name == "ridge" else 1) * np.eye(8), 1)
    for gram in (Dense(G), LowRank(L)):
        found = SOLVERS[name][0](gram, w, ridge).diagnostics
        assert exact / 10 <= found.condition <= 10 * exact
        assert found.ridge == pytest.approx(ridge * (8 if name == "ridge" else 1))


def test_a_dense_gram_matrix_has_no_features():
    with pytest.raises(TypeError, match="use solve"):
        Dense(np.eye(2)).ridge(0.1).solve_features(np.ones(2))


def test_the_gram_matrix_and_weights_are_left_as_they_were():
    L, w, B = instance(0, 10, 3)
    G = L @ L.T
    copies = G.copy(), L.copy(), w.copy(), B.copy()
    for make, _ in SOLVERS.values():
        for gram in (Dense(G), LowRank(L)):
            make(gram, w, 0.1).solve(B)
    assert all(map(np.array_equal, (G, L, w, B), copies))


# --- rescue --------------------------------------------------------------------------------------


def indefinite_by_rounding(n=40):
    """Rank one, and a negative eigenvalue of the size that rounding of float32 data leaves."""
    v = np.ones((n, 1)) / np.sqrt(n)
    u = np.resize([1.0, -1.0], (n, 1)) / np.sqrt(n)
    return n * (v @ v.T) - 3e-8 * (u @ u.T)


@pytest.mark.parametrize(
    "make",
    [lambda G: Dense(G).ridge(1e-15), lambda G: Dense(G).weighted(np.ones(len(G)), 1e-14)],
    ids=["ridge", "weighted"],
)
def test_rescue_is_reported_and_finite(make):
    G = indefinite_by_rounding()
    with pytest.warns(NumericalWarning, match="ridge was raised"):
        solver = make(G)
    found = solver.diagnostics
    assert found.rescues > 0
    assert 3e-8 < found.ridge_used <= RESCUE_BOUND * G.diagonal().max()
    assert found.ridge_used > found.ridge
    B = np.random.default_rng(0).normal(size=(len(G), 2))
    X = solver.solve(B)
    # The solve is exact for the ridge that is reported; conditioning as in ``close``.
    exact = np.linalg.solve(G + found.ridge_used * np.eye(len(G)), B)
    close(X, exact, found.condition)


def test_rescue_of_low_rank_features():
    """Two equal columns of length 16: without any rounding, the second pivot of L^T L is zero."""
    L = np.ones((256, 2))
    with pytest.warns(NumericalWarning):
        solver = LowRank(L).ridge(1e-30)
    assert solver.diagnostics.rescues > 0
    assert np.all(np.isfinite(solver.solve(np.ones(256))))


@pytest.mark.parametrize("name", SOLVERS)
@pytest.mark.parametrize("G", [[[1.0, 2.0], [2.0, 1.0]], [[0.0, 1.0], [1.0, 0.0]]])
def test_an_indefinite_matrix_is_refused_with_advice(name, G):
    with pytest.raises(np.linalg.LinAlgError, match="check_kernel"):
        SOLVERS[name][0](Dense(np.array(G)), np.ones(2), 1e-9)


# --- refusals ------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [Dense, LowRank])
@pytest.mark.parametrize("entry", [(1, 1), (1, 2)])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_nan_and_infinity_are_refused(kind, entry, value):
    G = np.eye(4)
    G[entry] = G[entry[::-1]] = value
    with pytest.raises(ValueError, match="NaN or infinite"):
        kind(G)


@each_solver
@pytest.mark.parametrize("ridge", [0.0, -1.0, np.nan, np.inf])
@pytest.mark.parametrize("kind", [Dense, LowRank])
def test_a_ridge_is_positive_and_finite(name, ridge, kind):
    with pytest.raises(ValueError, match="ridge must be positive"):
        SOLVERS[name][0](kind(np.eye(3)), np.ones(3), ridge)


@pytest.mark.parametrize("kind", [Dense, LowRank])
@pytest.mark.parametrize("method", ["weighted", "signed"])
@pytest.mark.parametrize("w", [np.ones(2), np.ones((3, 1)), [1.0, np.nan, 1.0]])
def test_wrong_weights_are_refused(kind, method, w):
    with pytest.raises(ValueError, match="weights"):
        getattr(kind(np.eye(3)), method)(w, 0.1)


@pytest.mark.parametrize("kind", [Dense, LowRank])
def test_negative_weights_are_refused_where_a_root_is_taken(kind):
    with pytest.raises(ValueError, match="must not be negative"):
        kind(np.eye(3)).weighted(np.array([1.0, -1e-9, 1.0]), 0.1)


def test_shapes_are_checked():
    with pytest.raises(ValueError, match="square"):
        Dense(np.ones((2, 3)))
    with pytest.raises(ValueError, match=r"\(n, r\)"):
        LowRank(np.ones(3))
