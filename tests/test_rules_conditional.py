"""Conditional embeddings: leave-one-out, invariances, shapes, diagnostics, hard and bad input."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import kernelbayes as kb
from kernelbayes.gram import Dense, exact_features
from kernelbayes.gram.loo import loo
from kernelbayes.kernels.default import default_kernel

# Some of the points asked about lie outside these small samples, and a warning says so.
pytestmark = pytest.mark.filterwarnings("ignore:.*lie outside:kernelbayes.NumericalWarning")
seeds = st.integers(0, 2**32 - 1)
RNG = np.random.default_rng(0)
X, Z = RNG.normal(size=(30, 2)), RNG.normal(size=(30, 3))
NEW = RNG.normal(size=(5, 2))
kx, kz = kb.Gaussian(0.8), kb.Gaussian(1.1)


def fitted(X=X, Z=Z, kernel_x=kx, kernel_z=kz, ridge=0.01):
    return kb.ConditionalEmbedding(kernel_x, kernel_z, ridge=ridge).fit(X, Z)


# --- leave-one-out -------------------------------------------------------------------------------


def brute_force(F, H, ridge, r):
    """Refit without pair i: minimise sum_j r_j |h_j - E^T f_j|^2 + ridge |E|^2."""
    scores = []
    for i in range(len(F)):
        w = np.where(np.arange(len(F)) == i, 0.0, r)
        E = np.linalg.solve(F.T @ (w[:, None] * F) + ridge * np.eye(F.shape[1]), F.T * w) @ H
        scores.append(r[i] * np.sum((H[i] - F[i] @ E) ** 2))
    return np.sum(scores) / r.sum()


@given(seed=seeds, n=st.integers(2, 15), rank=st.sampled_from([2, 5, "n"]), weighted=st.booleans())
def test_leave_one_out_equals_refitting(seed, n, rank, weighted):
    rng = np.random.default_rng(seed)
    F = rng.normal(size=(n, n if rank == "n" else rank))
    H = rng.normal(size=(n, 2))
    r = rng.random(n) * (rng.random(n) < 0.8) + 1e-3 if weighted else np.full(n, 1.0 / n)
    ridges = np.array([1e-4, 1e-2, 1.0]) * n
    expected = [brute_force(F, H, ridge, r) for ridge in ridges]
    # A ridge of 1e-4 conditions the refits up to 1e6.
    assert loo(F, H, ridges, r if weighted else None).errors == pytest.approx(expected, rel=1e-6)


def test_leave_one_out_with_zero_weights_leaves_them_out():
    F, H = RNG.normal(size=(10, 3)), RNG.normal(size=(10, 2))
    r = np.array([1.0, 0.0] * 5)
    found = loo(F, H, [0.1], r).errors
    assert found == pytest.approx(loo(F[::2], H[::2], [0.1], np.ones(5)).errors, rel=1e-12)


@pytest.mark.parametrize("low_rank", [False, True])
def test_loo_errors_of_the_embedding_equal_refitting(low_rank):
    """|phi(z_i) - mu^(-i)|^2 in the RKHS; the ridge of n - 1 pairs is rescaled to the same sum."""
    kernel = kb.nystrom(kx, X, 7, rng=0) if low_rank else kx
    ridges = [1e-3, 1e-2, 1e-1]
    found, errors = fitted(kernel_x=kernel).loo_errors(ridges)
    assert list(found) == ridges
    n = len(X)
    for ridge, error in zip(ridges, errors, strict=True):
        total = 0.0
        for i in range(n):
            rest = np.arange(n) != i
            mu = fitted(X[rest], Z[rest], kernel, ridge=ridge * n / (n - 1))(X[i])
            point = kb.embed(Z[i : i + 1], kz)
            total += float(kb.mmd2(mu, point))
        assert error == pytest.approx(total / n, rel=1e-8)  # conditioning 1e3, squares of norms 1


def test_default_ridge_is_the_best_of_the_grid():
    cme = fitted(ridge="loo")
    ridges, errors = cme.loo_errors()
    assert cme.ridge_ == ridges[np.argmin(errors)]
    F, H = exact_features(kx, X)[0], exact_features(kz, Z)[0]
    small = np.array([1e-4, 1e-2, 1e-1, 1.0])
    best = np.argmin([brute_force(F, H, ridge, np.full(30, 1 / 30)) for ridge in small])
    assert np.argmin(cme.loo_errors(small)[1]) == best
    assert cme.solver_.diagnostics.ridge == pytest.approx(30 * cme.ridge_)


# --- invariances ---------------------------------------------------------------------------------

# Conditioning at most 30 / 0.3: rounding stays below 1e-12.
EQUAL = {"rel": 1e-9, "abs": 1e-10}


def test_row_order():
    order = RNG.permutation(30)
    found = fitted(X[order], Z[order])(NEW)
    assert found.weights == pytest.approx(fitted()(NEW).weights[:, order], **EQUAL)


def test_every_row_twice():
    """n ridge grows with n, so the embedding stays the same."""
    twice = fitted(np.repeat(X, 2, axis=0), np.repeat(Z, 2, axis=0))(NEW)
    expected = np.repeat(fitted()(NEW).weights, 2, axis=1) / 2
    assert twice.weights == pytest.approx(expected, **EQUAL)


@pytest.mark.parametrize("unit", [1e-6, 1024.0, 1e9])
@pytest.mark.parametrize("default", [False, True])
def test_units_of_measurement(unit, default):
    def weights(s):
        kernels = {"kernel_x": None, "kernel_z": None, "ridge": "loo"} if default else {
            "kernel_x": kb.Gaussian(0.8 * s), "kernel_z": kb.Gaussian(1.1 * s)}  # fmt: skip
        return fitted(s * X, s * Z, **kernels)(s * NEW).weights

    # The default ridge may lie anywhere on its grid; conditioning up to 1e8 times rounding.
    assert weights(unit) == pytest.approx(weights(1.0), rel=1e-6, abs=1e-7)


def test_batch_equals_one_at_a_time():
    batch = fitted()(NEW)
    for i, x in enumerate(NEW):
        one = fitted()(x)
        assert isinstance(one, kb.Embedding)
        assert one.weights == pytest.approx(batch[i].weights, **EQUAL)
        assert one.diagnostics.mass == pytest.approx(batch.diagnostics.mass[i], **EQUAL)
        assert one.diagnostics.support == pytest.approx(batch[i].diagnostics.support, **EQUAL)


@pytest.mark.parametrize("approximate", [kb.nystrom, kb.pivoted_cholesky])
def test_full_rank_equals_exact(approximate):
    low = fitted(kernel_x=approximate(kx, X, len(X), rng=0))
    # Full-rank features invert the Gram matrix, of condition 1e5 here.
    assert low(NEW).weights == pytest.approx(fitted()(NEW).weights, rel=1e-6, abs=1e-8)


# --- shapes and kinds of points ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("x", "new", "single"),
    [
        (X[:, 0], 0.5, True),
        (X[:, 0], np.float64(0.5), True),
        (X[:, 0], [0.5], False),
        (X[:, :1], [[0.5]], False),
        (X, [0.5, 1.0], True),
        (X, [[0.5, 1.0]], False),
        (["a", "b"] * 15, "a", True),
        (["a", "b"] * 15, ["a"], False),
        ([0, 1] * 15, 1, True),
    ],
)
def test_one_point_or_many(x, new, single):
    kernel = None if isinstance(x, np.ndarray) else kb.Delta()
    found = fitted(x, Z[:, 0], kernel, None)(new)
    assert type(found) is (kb.Embedding if single else kb.Batch)
    assert found.weights.shape == ((30,) if single else (1, 30))
    assert len(found.points) == 30


def test_strings_and_joint_variables():
    words = ["ab", "ba", "aab", "bb"] * 5
    cme = fitted(words, {"n": np.arange(20.0), "w": words}, kb.Spectrum(1),
                 kb.Parts({"n": kb.Gaussian(3.0), "w": kb.Spectrum(2)}))  # fmt: skip
    assert isinstance(cme("ab"), kb.Embedding)
    assert len(cme(["ab", "zz"])) == 2
    assert cme("zz").mass == 0.0  # nothing like it was seen


def test_another_output_kernel():
    mu = fitted()(NEW, kernel=kb.Linear())
    assert mu.kernel == kb.Linear()
    means = mu(np.eye(3))
    assert means == pytest.approx(fitted()(NEW).weights @ Z, **EQUAL)


def test_expectations_are_regressions():
    cme = fitted()
    for kernel in (kx, kb.nystrom(kx, X, 7, rng=0)):
        cme = fitted(kernel_x=kernel)
        found = cme.expect(cme.regression(Z), NEW)
        assert found == pytest.approx(cme(NEW).weights @ Z, **EQUAL)


# --- diagnostics and hard data -------------------------------------------------------------------


def test_diagnostics():
    found = fitted()(np.concatenate([X[:2], [[1e3, 1e3]]]))
    info = found.diagnostics
    assert info.mass == pytest.approx(found.weights.sum(axis=1))
    assert info.support[:2] == pytest.approx(1.0)
    assert info.support[2] == info.mass[2] == info.ess[2] == info.negative[2] == 0.0
    assert np.all((info.ess[:2] >= 1) & (info.ess[:2] <= 30))
    assert np.all((info.negative >= 0) & (info.negative < 0.5 + 1e-12))
    assert info.condition > 1
    assert info.rescues == 0
    assert info[1].mass == info.mass[1]
    assert info[:2].support.shape == (2,)
    assert found[2].diagnostics.support == 0.0


HARD = {
    "duplicated": (np.repeat(X[:3], 10, axis=0), np.repeat(Z[:3], 10, axis=0)),
    "constant": (np.ones((30, 2)), np.ones((30, 3))),
    "constant x": (np.ones((30, 2)), Z),
    "huge": (1e150 * X, 1e150 * Z),
    "tiny": (1e-150 * X, Z),
    "offset": (1e8 + X, Z),
    "one pair": (X[:1], Z[:1]),
    "two pairs": (X[:2], Z[:2]),
    "mixed scales": (X * [1e-9, 1e9], Z),
}


@pytest.mark.filterwarnings("ignore::kernelbayes.NumericalWarning")  # no scale in constant data
@pytest.mark.parametrize("name", HARD)
@pytest.mark.parametrize("ridge", ["loo", 1e-3])
def test_hard_data_gives_finite_numbers(name, ridge):
    x, z = HARD[name]
    cme = fitted(x, z, None, None, ridge)
    found = cme(np.concatenate([x[:2], -x[:1]]))
    assert np.isfinite(found.weights).all()
    assert np.isfinite(found.diagnostics.support).all()
    assert cme.ridge_ > 0


def test_a_rescue_is_reported():
    """Float32 data whose Gram matrix is indefinite by rounding."""
    x = np.linspace(0, 1, 60, dtype=np.float32)
    with pytest.warns(kb.NumericalWarning, match="ridge was raised"):
        found = fitted(x, x, kb.Gaussian(5.0), kb.Gaussian(5.0), 1e-12)(x[:3])
    assert found.diagnostics.rescues > 0
    assert np.isfinite(found.weights).all()


# --- refusals ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("x", "z", "message"),
    [
        (X, Z[:-1], "pairs, got 30 and 29"),
        (X[:0], Z[:0], "empty"),
        (np.full((30, 2), np.nan), Z, "X has NaN"),
        (X, np.full((30, 3), np.inf), "Z has NaN"),
    ],
)
@pytest.mark.parametrize("kernels", [(None, None), (kx, kz)])
def test_bad_samples(x, z, message, kernels):
    with pytest.raises(ValueError, match=message):
        fitted(x, z, *kernels)


@pytest.mark.parametrize("ridge", [0.0, -1.0, np.nan, np.inf])
def test_bad_ridges(ridge):
    with pytest.raises(ValueError, match="ridge must be positive"):
        fitted(ridge=ridge)


def test_bad_queries():
    with pytest.raises(ValueError, match="one space"):
        fitted()(np.ones((4, 3)))
    with pytest.raises(ValueError, match="NaN"):
        fitted()([[np.nan, 0.0]])
    with pytest.raises(ValueError, match="empty"):
        fitted()(np.ones((0, 2)))
    with pytest.raises(ValueError, match="not fitted"):
        kb.ConditionalEmbedding()(X)
    with pytest.raises(ValueError, match="not fitted"):
        kb.ConditionalEmbedding().loo_errors()


def test_one_factorisation_serves_every_query(monkeypatch):
    calls = []
    original = Dense.ridge
    monkeypatch.setattr(Dense, "ridge", lambda self, eta: calls.append(eta) or original(self, eta))
    cme = fitted()
    for _ in range(3):
        cme(NEW)
        kb.sum_rule(cme, NEW)
    assert len(calls) == 1


def test_a_column_of_text_has_the_delta_kernel():
    city = pd.Series(["Oslo", "Rome", "Oslo"])
    assert default_kernel(city) == kb.Delta()
    assert default_kernel(city.to_frame()) == kb.Delta()
    mixed = default_kernel(pd.DataFrame({"city": city, "age": [1, 2, 3]}))
    assert [key for key, _ in mixed.parts] == ["age", "city"]
