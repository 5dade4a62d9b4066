"""Density ratios: formulas, leave-one-out against refitting, bounds, and use in Bayes' rule."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import kernelbayes as kb
from kernelbayes.kernels.default import default_kernel
from kernelbayes.rules.kulsif import RELATIVE, kulsif_scores
from oracles import kulsif_formula

METHODS = ["kulsif", "rulsif", "ulsif", "kmm"]
each_method = pytest.mark.parametrize("method", METHODS)
RNG = np.random.default_rng(0)
DEN, NUM = RNG.normal(size=(60, 2)), RNG.normal(0.6, 0.8, size=(40, 2))
NEW = RNG.normal(0.3, 1.0, size=(20, 2))
k = kb.Gaussian(1.0)
# Conditioning below 60 / 0.01 of a Gram matrix: 1e-11; two more digits for cancellation.
ROUNDING = {"rel": 1e-8, "abs": 1e-9}


def features_of(kernel, *samples):
    """Exact features: a square root of the joint Gram matrix."""
    values, vectors = np.linalg.eigh(kernel(np.concatenate(samples)))
    L = vectors * np.sqrt(np.maximum(values, 0.0))
    return np.split(L, np.cumsum([len(s) for s in samples])[:-1])


# --- KuLSIF --------------------------------------------------------------------------------------


def test_kulsif_equals_the_formula():
    r = kb.density_ratio(NUM, DEN, k, ridge=0.05)
    for points, found in ((NEW, r.ratio(NEW)), (DEN, r.at_denominator)):
        exact = kulsif_formula(k(DEN), k(DEN, NUM), k(points, DEN), k(points, NUM), 0.05)
        assert found == pytest.approx(np.maximum(exact, 0.0), **ROUNDING)


def test_kulsif_minimises_its_objective():
    """E_den[r^2]/2 - E_num[r] + eta |r|^2 / 2 over the features of all points."""
    F, U = features_of(k, DEN, NUM)
    C, mean = F.T @ F / len(F), U.mean(axis=0)
    theta = np.linalg.solve(C + 0.05 * np.eye(len(C)), mean)
    found = kb.density_ratio(NUM, DEN, k, ridge=0.05)
    assert found.at_denominator == pytest.approx(np.maximum(F @ theta, 0), **ROUNDING)
    assert found.ratio(NUM) == pytest.approx(np.maximum(U @ theta, 0), **ROUNDING)


@given(seed=st.integers(0, 2**32 - 1), n=st.integers(2, 9), m=st.integers(2, 9))
def test_kulsif_leave_one_out_equals_refitting(seed, n, m):
    """Pair l is left out of both samples; the shorter one is gone through again."""
    rng = np.random.default_rng(seed)
    den, num = rng.normal(size=(n, 2)), rng.normal(0.5, 1.0, size=(m, 2))
    ridges = np.array([1e-3, 1e-1])
    _, found = kulsif_scores(kb.embed(num, k), den, ridges)
    F, U = features_of(k, den, num)
    for ridge, score in zip(ridges, found, strict=True):
        squares, values = [], []
        for pair in range(max(n, m)):
            i, j = pair % n, pair % m
            left, other = np.delete(F, i, axis=0), np.delete(U, j, axis=0)
            C = left.T @ left / (n - 1) + ridge * np.eye(F.shape[1])
            theta = np.linalg.solve(C, other.mean(axis=0))
            squares.append((F[i] @ theta) ** 2)
            values.append(U[j] @ theta)
        expected = 0.5 * np.mean(squares) - np.mean(values)
        # Scores may be as large as 1 / ridge and cancel; conditioning 1e3.
        assert score == pytest.approx(expected, rel=1e-6, abs=1e-8 / ridge)


def test_kulsif_ridge_is_the_best_of_the_scores():
    r = kb.density_ratio(NUM, DEN, k)
    ridges, scores = kulsif_scores(kb.embed(NUM, k), DEN, relative=RELATIVE)
    assert r.ridge == ridges[np.argmin(scores)]


@pytest.mark.parametrize("kernel", [k, kb.nystrom(k, DEN, 10, rng=0)], ids=["exact", "low rank"])
def test_kulsif_with_finite_features_and_weights(kernel):
    counts = RNG.integers(1, 4, size=len(NUM))
    weighted = kb.embed(NUM, kernel, counts / counts.sum())
    repeated = np.repeat(NUM, counts, axis=0)
    found, expected = (
        kb.density_ratio(top, DEN, kernel, ridge=0.01) for top in (weighted, repeated)
    )
    assert found.at_denominator == pytest.approx(expected.at_denominator, **ROUNDING)
    assert found.ratio(NEW) == pytest.approx(expected.ratio(NEW), **ROUNDING)
    assert np.isfinite(kb.density_ratio(weighted, DEN).ridge)


def test_a_gaussian_numerator_equals_a_large_sample():
    exact = kb.density_ratio(kb.GaussianEmbedding([0.5, 0.0], 0.5 * np.eye(2), k), DEN, ridge=0.05)
    rng = np.random.default_rng(1)
    samples = [
        kb.density_ratio(rng.normal([0.5, 0.0], np.sqrt(0.5), (2000, 2)), DEN, k, ridge=0.05)
        for _ in range(10)
    ]
    values = np.array([r.ratio(NEW) for r in samples])
    # Ten samples; five standard errors plus the bias of cutting off at zero.
    bound = 5 * values.std(axis=0, ddof=1) / np.sqrt(10) + 1e-2
    assert np.all(np.abs(values.mean(axis=0) - exact.ratio(NEW)) < bound)
    automatic = kb.density_ratio(kb.GaussianEmbedding([0.5, 0.0], 0.5 * np.eye(2), k), DEN)
    assert automatic.ridge > 0


# --- the other methods ---------------------------------------------------------------------------


@pytest.mark.parametrize("alpha", [0.1, 0.5, 0.9])
def test_rulsif_is_bounded(alpha):
    """The relative ratio is at most 1/alpha; its ridge estimate overshoots by a few per cent."""
    r = kb.density_ratio(NUM, DEN, k, "rulsif", alpha=alpha)
    values = np.concatenate([r.at_denominator, r.ratio(NUM), r.ratio(NEW)])
    assert values.max() < 1.1 / alpha + 0.2
    assert values.min() >= 0


def test_rulsif_without_a_share_is_kulsif():
    a = kb.density_ratio(NUM, DEN, k, "rulsif", 0.05, alpha=0.0)
    b = kb.density_ratio(NUM, DEN, k, "kulsif", 0.05)
    assert a.at_denominator == pytest.approx(b.at_denominator, **ROUNDING)
    assert a.ratio(NEW) == pytest.approx(b.ratio(NEW), **ROUNDING)


def test_rulsif_of_signed_weights_is_close_to_that_of_the_sample_they_stand_for():
    """Points added and taken away again, a little apart, change the numerator little."""
    near = NUM + 1e-4
    signed = kb.embed(
        np.vstack([NUM, NUM, near]), k, np.repeat([1.0, 0.5, -0.5], len(NUM)) / len(NUM)
    )
    plain = kb.density_ratio(NUM, DEN, k, "rulsif", 0.05, alpha=0.1)
    found = kb.density_ratio(signed, DEN, k, "rulsif", 0.05, alpha=0.1)
    np.testing.assert_allclose(found.at_denominator, plain.at_denominator, atol=1e-3)


def test_rulsif_equals_the_formula():
    F, U = features_of(k, DEN, NUM)
    C = 0.7 * F.T @ F / len(F) + 0.3 * U.T @ U / len(U)
    theta = np.linalg.solve(C + 0.05 * np.eye(len(C)), U.mean(axis=0))
    found = kb.density_ratio(NUM, DEN, k, "rulsif", 0.05, alpha=0.3)
    assert found.at_denominator == pytest.approx(np.maximum(F @ theta, 0), **ROUNDING)


def test_ulsif_equals_the_formula():
    centres = NUM[:7]
    Phi, Psi = k(DEN, centres), k(NUM, centres)
    theta = np.linalg.solve(Phi.T @ Phi / len(DEN) + 0.05 * np.eye(7), Psi.mean(axis=0))
    r = kb.density_ratio(NUM, DEN, k, "ulsif", 0.05, centres=centres)
    assert r.at_denominator == pytest.approx(np.maximum(Phi @ theta, 0), **ROUNDING)
    assert r.ratio(NEW) == pytest.approx(np.maximum(k(NEW, centres) @ theta, 0), **ROUNDING)


def test_ulsif_centres():
    few = [
        kb.density_ratio(NUM, DEN, k, "ulsif", 0.05, centres=5, rng=s).ratio(NEW) for s in (0, 0)
    ]
    assert np.array_equal(*few)
    every = kb.density_ratio(NUM, DEN, k, "ulsif", centres=np.concatenate([NUM, DEN]))
    assert every.at_denominator.mean() == pytest.approx(1.0, abs=0.2)  # E_den[r] = 1, n = 60
    with pytest.raises(ValueError, match="at least 1"):
        kb.density_ratio(NUM, DEN, k, "ulsif", centres=0, rng=0)


def test_kmm_satisfies_its_constraints_and_matches_means():
    r = kb.density_ratio(NUM, DEN, k, "kmm", bound=3.0)
    w, n = r.at_denominator, len(DEN)
    assert w.min() >= 0
    assert w.max() <= 3.0 * (1 + 1e-9)
    assert abs(w.mean() - 1) <= 1 / np.sqrt(n) + 1e-9
    # No feasible direction improves: the gradient is constant on the free weights.
    gradient = k(DEN) @ w / n - k(DEN, NUM).mean(axis=1)
    free = (w > 1e-6) & (w < 3 - 1e-6)
    assert np.ptp(gradient[free]) < 1e-3  # it stops when weights move by less than 1e-9
    loose = kb.density_ratio(NUM, DEN, k, "kmm").at_denominator
    target = kb.embed(NUM, k)
    matched, plain = kb.embed(DEN, k, loose / n), kb.embed(DEN, k)
    assert kb.mmd(matched, target) < 0.3 * kb.mmd(plain, target)


# --- all methods ---------------------------------------------------------------------------------


@each_method
def test_values_at_the_denominator(method):
    r = kb.density_ratio(NUM, DEN, k, method, 1e-3, rng=0)
    assert r.method == method
    assert r.ridge == 1e-3
    assert r.at_denominator.shape == (60,)
    assert r(NEW) == pytest.approx(r.ratio(NEW), rel=0, abs=0)
    if method != "kmm":  # whose ridge regression smooths the weights
        assert r.ratio(DEN) == pytest.approx(r.at_denominator, **ROUNDING)


def shifted(method, seeds, ridge):
    """Ratios of N(1, 1) and N(0, 1) at points where the truth is exp(-1.5), exp(-0.5), exp(0.5)."""
    for seed in seeds:
        rng = np.random.default_rng(seed)
        low, high = rng.normal(0.0, 1.0, 200), rng.normal(1.0, 1.0, 200)
        up = kb.density_ratio(numerator=high, denominator=low, method=method, ridge=ridge, rng=0)
        down = kb.density_ratio(numerator=low, denominator=high, method=method, ridge=ridge, rng=0)
        values = [up.ratio([-1.0, 0.0, 1.0]), down.ratio([2.0, 1.0, 0.0])]
        yield values, [up.at_denominator @ low / 200, down.at_denominator @ high / 200]


@each_method
def test_numerator_and_denominator_are_not_interchangeable(method):
    values, means = zip(*shifted(method, range(8), 0.01), strict=True)
    truth = np.exp([-1.5, -0.5, 0.5])
    for found in np.mean(values, axis=0):
        # Nearer to the ratio than to its inverse, which is another by up to 4.3.
        assert np.abs(found - truth).max() < 0.5 * np.abs(found - 1.0 / truth).max()
        assert found[0] < found[1] < found[2]
    # The re-weighted sample is nearer to the other's mean, 1 or 0, than to its own.
    up, down = np.mean(means, axis=0)
    assert down < 0.5 < up


def test_automatic_ridges_withstand_points_outside_the_sample():
    for values, _ in shifted("kulsif", range(12), "loo"):
        assert np.max(values) < 10  # the truth is at most 1.65


@each_method
@pytest.mark.parametrize("form", ["a", "b"])
def test_pluggable_into_bayes_rule(method, form):
    rng = np.random.default_rng(0)
    z = rng.normal(size=80)
    x, prior = z + 0.5 * rng.normal(size=80), rng.normal(0.5, 0.5, size=50)
    model = kb.KernelBayesRule(ratio=method, form=form, rng=0).fit(x, z, prior=prior)
    means = model.predict([0.0, 1.0])
    if form == "b":  # exact posterior means are 0.25 and 0.75; they spread by 0.1 at n = 80
        assert means == pytest.approx([0.25, 0.75], abs=0.4)
    ratio = kb.density_ratio(prior, z, model.kernel_z_, method, model.prior_ridge_, rng=0)
    cme = kb.ConditionalEmbedding(model.kernel_z_, model.kernel_x_, model.prior_ridge_).fit(z, x)
    rule = kb.bayes_rule(cme, prior, form=form, ridge=model.ridge_, ratio=ratio)
    # Equal up to rounding; conditioning up to 1e8 with automatic ridges.
    found = model.posterior([0.0, 1.0]).weights
    assert rule([0.0, 1.0]).weights == pytest.approx(found, rel=1e-6, abs=1e-7)


@each_method
@pytest.mark.parametrize("constant", ["numerator", "denominator"])
def test_a_column_that_is_constant_in_one_sample_has_the_scale_of_the_other(method, constant):
    """Its origin and unit say nothing; in one sample alone it would have a scale of its own."""
    top, bottom = NUM[:, :2].copy(), DEN[:, :2].copy()
    (top if constant == "numerator" else bottom)[:, 1] = 0.5
    at = np.concatenate([top[:5], bottom[:5]])

    def ratio(change):
        return kb.density_ratio(change(top), change(bottom), method=method, rng=0)(change(at))

    wanted = ratio(lambda X: X)
    for shift, unit in (([0.0, 1000.0], [1.0, 1.0]), ([0.0, -0.5], [1.0, 1.0]), (0.0, [1.0, 50.0])):
        found = ratio(lambda X, shift=shift, unit=unit: np.array(unit) * (X + np.array(shift)))
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6 * np.abs(wanted).max())


@each_method
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_samples_that_a_kernel_does_not_see_together_have_no_wild_ratio(method, dtype):
    """Kernel values of 1e-27 between them: what is left of a ratio is not 1e25 but about zero."""
    bottom = np.arange(20.0)
    top = (bottom + 0.25 + 0.5 * (bottom % 2)).astype(dtype)
    found = kb.density_ratio(top, bottom, kb.Laplace(0.004), method, rng=0).at_denominator
    assert np.isfinite(found).all()
    assert found.mean() < 2.0  # it is one where the samples overlap


@pytest.mark.parametrize("mixed", [False, True])
def test_the_default_kernel_of_frames_is_that_of_both_samples(mixed):
    top, bottom = (pd.DataFrame({"a": A[:, 0], "b": A[:, 1]}) for A in (NUM, DEN))
    if mixed:
        top["c"], bottom["c"] = (np.where(f["a"] > 0, "up", "down") for f in (top, bottom))
    found = kb.density_ratio(top[top.columns[::-1]], bottom)
    kernel = default_kernel(pd.concat([bottom, top]))
    wanted = kb.density_ratio(top, bottom, kernel)
    np.testing.assert_allclose(found.at_denominator, wanted.at_denominator, rtol=1e-9)
    with pytest.raises(ValueError, match="the columns"):
        kb.density_ratio(top.rename(columns={"a": "z"}), bottom)


@each_method
@pytest.mark.parametrize("top", [[0.3], [0.3, 0.3], [0.3, 0.5]])
def test_few_points(method, top):
    for bottom in ([0.0], [0.0, 1.0]):
        r = kb.density_ratio(top, bottom, kb.Gaussian(1.0), method, rng=0)
        assert np.isfinite(r.at_denominator).all()
        assert np.isfinite(r.ratio([0.0, 5.0])).all()


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"method": "lsif"}, ValueError, "method must be"),
        ({"ridge": 0.0}, ValueError, "ridge must be positive"),
        ({"method": "rulsif", "alpha": 1.0}, ValueError, "alpha must lie"),
        ({"kernel": kb.Linear(), "numerator": kb.embed(NUM, k)}, ValueError, "embedded with"),
        ({"numerator": NUM[:, :1]}, ValueError, "one space"),
        ({"numerator": NUM[:0]}, ValueError, "empty"),
        ({"denominator": DEN * np.nan}, ValueError, "NaN"),
        ({"method": "rulsif", "numerator": kb.GaussianEmbedding([0, 0], np.eye(2), k)}, TypeError,
         "numerator of points"),
        ({"method": "ulsif", "numerator": kb.GaussianEmbedding([0, 0], np.eye(2), k)}, TypeError,
         "points"),
    ],
)  # fmt: skip
def test_bad_input(options, error, message):
    with pytest.raises(error, match=message):
        kb.density_ratio(**{"numerator": NUM, "denominator": DEN, "kernel": k, **options})
