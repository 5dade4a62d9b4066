"""Legal data that are hard on arithmetic: single precision, far offsets, tiny ridges, huge scales.

Every call ends in a right answer, in a warning that says what happened, or in an error of our own.
"""

from fractions import Fraction

import numpy as np
import pytest

import kernelbayes as kb
from kernelbayes.gram import Dense, LowRank

K = kb.Gaussian(1.0)


def normal(seed, *shape):
    return np.random.default_rng(seed).normal(size=shape)


# --- single precision ----------------------------------------------------------------------------

N = 200_000  # naive sums of so many singles near 1000 are off by more than 1
FAR = 1000.0 + normal(0, N, 1)
SINGLE = FAR.astype(np.float32)
QUESTIONS = {
    "mean": lambda mu: mu.mean(),
    "second moment": lambda mu: mu.moment(2),
    "covariance": lambda mu: mu.cov(),
    "deviation": lambda mu: mu.std(),
    "expectation": lambda mu: mu.expect(lambda x: x[:, 0]),
    "mass": lambda mu: mu.mass,
    "effective sample size": lambda mu: mu.ess,
    "value": lambda mu: mu(mu.points[:3]),
    "norm": lambda mu: kb.embed(mu.points[:2000], K).norm(),
}


@pytest.mark.parametrize("name", QUESTIONS)
def test_sums_over_singles_are_those_over_doubles(name):
    """The same numbers in both precisions, so that only the arithmetic differs."""
    ask = QUESTIONS[name]
    single, double = (ask(kb.embed(P, K)) for P in (SINGLE, SINGLE.astype(np.float64)))
    assert single.dtype == np.float32
    # One rounding of the answer is 6e-8; exponents of the kernel have an error of about 1e-6.
    np.testing.assert_allclose(single, double, rtol=1e-5)


def test_a_batch_of_singles_is_summed_in_doubles():
    W = np.full((2, N), 1.0 / N, dtype=np.float32)
    means = kb.embed(SINGLE, K, W).mean()
    np.testing.assert_allclose(means, np.full((2, 1), SINGLE.mean(dtype=float)), rtol=1e-6)


def test_the_distance_of_nearby_samples_of_singles():
    """It is a difference of numbers near one that agree in six digits."""
    X = normal(1, 3000, 1).astype(np.float32)
    Y = X + np.float32(1e-3)
    single = kb.mmd(kb.embed(X, K), kb.embed(Y, K))
    X, Y = X.astype(float), Y.astype(float)
    assert single == pytest.approx(kb.mmd(kb.embed(X, K), kb.embed(Y, K)), rel=0.01)


@pytest.mark.parametrize("rank", [None, 50])
def test_single_inputs_with_fine_outputs(rank):
    """Clock times in seconds: in single precision they come in steps of 128."""
    x = normal(2, 300).astype(np.float32)
    z = 1.7e9 + 10.0 * x + normal(3, 300)
    options = {"ridge": 1e-3, "normalize": True, "rank": rank, "rng": 0}
    new = np.float32([-0.5, 0.0, 1.0])
    both = [kb.KernelBayesRule(**options).fit(x.astype(t), z) for t in (np.float32, np.float64)]
    single, double = (rule.predict(new.astype(t)) for rule, t in zip(both, "fd", strict=True))
    assert single.dtype == np.float64
    np.testing.assert_allclose(single, double, rtol=0, atol=1e-3)
    single, double = (
        rule.posterior(new.astype(t)).mean()[:, 0] for rule, t in zip(both, "fd", strict=True)
    )
    np.testing.assert_allclose(single, double, rtol=0, atol=1e-3)


def test_an_embedding_of_fine_outputs_given_single_inputs():
    x = normal(2, 300).astype(np.float32)
    z, new = 1.7e9 + 10.0 * x + normal(3, 300), np.float32([-0.5, 0.0, 1.0])
    single, double = (
        kb.ConditionalEmbedding(ridge=1e-3).fit(x.astype(t), z)(new.astype(t)).normalized()
        for t in "fd"
    )
    np.testing.assert_allclose(single.mean(), double.mean(), rtol=0, atol=1e-3)
    np.testing.assert_allclose(single.expect(lambda z: z), double.mean(), rtol=0, atol=1e-3)


@pytest.mark.parametrize("seed", range(3))
def test_a_default_embedding_of_plain_singles(seed):
    X, Z = (normal(10 * seed + i, 1200, 1).astype(np.float32) for i in (4, 5))
    found = kb.ConditionalEmbedding().fit(X, X + Z)
    wanted = kb.ConditionalEmbedding().fit(X.astype(float), (X + Z).astype(float))
    assert found.ridge_ == pytest.approx(wanted.ridge_)
    np.testing.assert_allclose(found(X[:5]).mean(), wanted(X[:5].astype(float)).mean(), atol=1e-3)


def test_pivots_of_many_singles_reach_their_tolerance():
    """Rounding of single precision times n is above any tolerance worth asking for."""
    X = normal(6, 50_000, 1).astype(np.float32)
    assert kb.pivoted_cholesky(K, X, tol=1e-6, rng=0).error <= 1e-6


# --- tiny ridges ---------------------------------------------------------------------------------


def exact_solution(G, ridge, b):
    """Solve (G + ridge I) y = b in rational numbers, without any rounding."""
    A = [[Fraction(float(g)) for g in row] for row in G]
    y = [Fraction(float(value)) for value in b]
    n = len(A)
    for i in range(n):
        A[i][i] += Fraction(ridge)
    for i in range(n):
        for k in range(i + 1, n):
            factor = A[k][i] / A[i][i]
            A[k] = [a - factor * c for a, c in zip(A[k], A[i], strict=True)]
            y[k] -= factor * y[i]
    for i in reversed(range(n)):
        y[i] = (y[i] - sum(A[i][k] * y[k] for k in range(i + 1, n))) / A[i][i]
    return np.array([float(value) for value in y])


@pytest.mark.parametrize("ridge", [1e-10, 1e-13, 1e-15])
def test_a_solution_is_right_to_its_condition_number_or_warned_about(ridge):
    x = np.linspace(-1.0, 1.0, 12)
    G, b = kb.Gaussian(1.0)(x), normal(7, 12)
    wanted = exact_solution(G, 12 * ridge, b)
    if ridge == 1e-10:
        solver = Dense(G).ridge(ridge)
        tolerance = 100 * solver.diagnostics.condition * np.finfo(float).eps
        np.testing.assert_allclose(solver.solve(b), wanted, atol=tolerance * np.abs(wanted).max())
        return
    with pytest.warns(kb.NumericalWarning, match=r"condition number of .* at least .* is safe"):
        assert Dense(G).ridge(ridge).diagnostics.condition > 1e12


@pytest.mark.parametrize("make", ["ridge", "weighted", "signed"])
@pytest.mark.parametrize("kind", ["dense", "low rank"])
def test_the_ridge_that_a_warning_calls_safe_gives_no_warning(make, kind, recwarn):
    G = kb.Gaussian(2.0)(np.linspace(-1.0, 1.0, 30))
    gram = Dense(G) if kind == "dense" else LowRank(Dense(G).factor)
    tiny = 1e-34 if make == "signed" else 1e-15
    weights = () if make == "ridge" else (np.full(30, 1.0 / 30),)
    getattr(gram, make)(*weights, tiny)
    (told,) = (str(w.message) for w in recwarn.list)
    safe = float(told.split("at least ")[1].split(" is safe")[0])
    assert tiny < safe < 1e-9
    recwarn.clear()
    getattr(gram, make)(*weights, 1.05 * safe)  # as printed it is rounded
    assert not recwarn.list


@pytest.mark.parametrize(
    "model",
    [kb.ConditionalEmbedding(ridge=1e-16), kb.KernelBayesRule(ridge=1e-16)],
    ids=["conditional", "rule"],
)
def test_models_warn_about_a_tiny_ridge(model):
    x = np.linspace(-2.0, 2.0, 60)
    with pytest.warns(kb.NumericalWarning, match="is safe"):
        _ = model.fit(x, np.sin(x)).solver_ if hasattr(model, "apply") else model.fit(x, np.sin(x))


# --- huge and tiny scales ------------------------------------------------------------------------


@pytest.mark.parametrize("order", [0, 2.5, -1, np.nan, np.inf, "2"])
def test_a_moment_has_a_whole_order(order):
    with pytest.raises(ValueError, match="whole number of at least 1"):
        kb.embed([-1.0, 2.0], K).moment(order)


def test_a_moment_too_large_for_a_number():
    with pytest.raises(ValueError, match="too large for float64; rescale"):
        kb.embed([1e200, -1e200], K).moment(2)
    assert kb.embed([2.0, 4.0], K).moment(np.float64(2.0)) == 10.0


@pytest.mark.parametrize("batch", [False, True])
@pytest.mark.parametrize("scale", [1e-200, 1e-3, 1.0, 1e3, 1e150, 1e200, 1e307])
def test_spread_at_any_scale(scale, batch):
    X = normal(8, 50, 2)
    W = np.full((5, 50) if batch else 50, 1.0 / 50)
    unit, mu = kb.embed(X, K, W), kb.embed(scale * X, K, W)
    np.testing.assert_allclose(mu.std(), scale * unit.std(), rtol=1e-12)
    if scale < 1e152:
        np.testing.assert_allclose(mu.cov() / scale / scale, unit.cov() * (scale > 1e-100))
    else:
        with pytest.raises(ValueError, match="too large for float64; rescale"):
            mu.cov()


@pytest.mark.parametrize("shape", [(40,), (3, 40), (20, 40)])
def test_covariance_is_that_of_numpy(shape):
    X, W = normal(9, 40, 7), np.random.default_rng(10).uniform(size=shape)
    found = kb.embed(X, K, W).cov()
    rows = [np.cov(X.T, aweights=w, ddof=0) for w in np.atleast_2d(W)]
    np.testing.assert_allclose(found, rows[0] if W.ndim == 1 else rows, atol=1e-12)


@pytest.mark.parametrize("factor", [np.nan, np.inf, -np.inf])
def test_an_embedding_times_nothing_finite(factor):
    with pytest.raises(ValueError, match="finite numbers"):
        kb.embed([1.0, 2.0], K) * factor
