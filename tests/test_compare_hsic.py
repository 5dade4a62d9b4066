"""Pairs: the statistic is the trace formula, the null that of all permutations; weights."""

import itertools

import numpy as np
import pytest

import kernelbayes as kb
from kernelbayes.compare.pairs import Variable, left_out, products
from kernelbayes.gram import Dense, LowRank, base

METHODS = ("permutation", "gamma", "wild", "linear", "block", "features")


def dependent(n=40, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=n)
    return x, np.sin(2.0 * x) + 0.5 * rng.normal(size=n)


def variable(kernel, points):
    return Variable(kernel, kernel.points(points), np.ones(len(points)))


def test_statistics_are_the_trace_formula_and_the_fourfold_sum():
    x, y = dependent(12)
    k, other = kb.Gaussian(0.7), kb.Laplace(1.1)
    G_x, G_y, H = k(x), other(y), np.eye(12) - 1.0 / 12
    found = kb.hsic_test(x, y, k, other, 5, 0).statistic
    np.testing.assert_allclose(found, np.trace(G_x @ H @ G_y @ H) / 12**2, rtol=1e-10)
    # The unbiased estimate is the mean over distinct indices.
    i, j, q, r = np.array(list(itertools.permutations(range(12), 4))).T
    slow = np.mean(G_x[i, j] * (G_y[i, j] + G_y[q, r] - 2.0 * G_y[i, q]))
    found = kb.hsic_test(x, y, k, other, 5, 0, unbiased=True).statistic
    np.testing.assert_allclose(found, slow, rtol=1e-9, atol=1e-13)


@pytest.mark.parametrize("unbiased", [False, True])
def test_all_permutations_of_tiny_pairs_are_enumerated(unbiased):
    x, y = dependent(5)
    k = kb.Gaussian(1.0)
    result = kb.hsic_test(x, y, k, k, 1000, 0, unbiased=unbiased)
    values = [
        kb.hsic_test(x, y[list(p)], k, k, 20, 0, unbiased=unbiased).statistic
        for p in itertools.permutations(range(5))
    ]
    assert len(result.null) == 119
    np.testing.assert_allclose(np.sort(result.null), np.sort(values[1:]), atol=1e-12)
    assert result.pvalue == pytest.approx(np.mean(np.array(values) >= values[0] - 1e-12))


@pytest.mark.parametrize(
    "test",
    [
        lambda x, y: kb.hsic_test(x, y, None, None, 200, 0),
        lambda x, y: kb.hsic_test(x, y, None, None, 200, 0, unbiased=True),
        lambda x, y: kb.hsic_aggregated(x, y, None, None, 200, 0),
    ],
    ids=["permutation", "unbiased", "aggregated"],
)
def test_pvalues_have_their_exact_law_over_all_permutations(test):
    """Every order of y is equally likely under the null: p is uniform, exactly."""
    x, y = dependent(5)
    pvalues = [test(x, y[list(p)]).pvalue for p in itertools.permutations(range(5))]
    np.testing.assert_allclose(np.sort(pvalues), np.arange(1, 121) / 120)


def test_low_rank_factors_give_the_dense_statistics(monkeypatch):
    x, y = dependent(450)
    k = kb.Gaussian(1.0)
    found = []
    for smallest, kind in ((100, LowRank), (10**9, Dense)):
        monkeypatch.setattr(base, "FACTOR_FROM", smallest)
        found.append(variable(k, x))
        assert isinstance(found[-1].gram, kind)
    monkeypatch.setattr(base, "FACTOR_FROM", 100)
    other = variable(k, y)
    order = np.stack([np.random.default_rng(s).permutation(450) for s in range(20)])
    # The factor leaves 1e-8 of the trace.
    np.testing.assert_allclose(*(products([v], [other], order)[0, 0] for v in found), rtol=1e-5)
    np.testing.assert_allclose(*(left_out(v, other)[1] for v in found), rtol=1e-5)


def test_the_jackknife_leaves_out_one_pair_at_a_time():
    x, y = dependent(9)
    k = kb.Gaussian(1.0)
    without = left_out(variable(k, x), variable(k, y))[1]
    for i in range(9):
        other = kb.hsic_test(np.delete(x, i), np.delete(y, i), k, k, 20, 0, unbiased=True)
        assert without[i] == pytest.approx(other.statistic, abs=1e-12)


def test_the_effect_of_linear_kernels_is_pearsons_correlation():
    rng = np.random.default_rng(0)
    x = rng.normal(size=400)
    y = x + rng.normal(size=400)
    result = kb.hsic_test(x, y, kb.Linear(), kb.Linear(), 50, 0)
    # The bias that the estimate corrects is of order 1 / n.
    assert result.effect.size == pytest.approx(abs(np.corrcoef(x, y)[0, 1]), abs=0.01)


def test_a_kernel_correlation_is_at_most_one():
    x, y = dependent(40)
    for method in METHODS:
        for other in (x, y):
            effect = kb.hsic_test(x, other, None, None, 20, 0, method=method).effect
            low, high = effect.interval
            assert 0.0 <= low <= effect.size <= high <= 1.0, method
    # Where one pair holds the variation, so that there is no jackknife, the size is still known.
    effect = kb.hsic_test(x[:7], x[:7], kb.Gaussian(0.7), kb.Gaussian(0.7), 20, 0).effect
    assert effect.size == pytest.approx(1.0)


def test_kernels_are_chosen_on_a_held_out_part():
    rng = np.random.default_rng(0)
    x = rng.uniform(-1.0, 1.0, 200)
    y = np.sin(6.0 * x) + 0.1 * rng.normal(size=200)
    result = kb.hsic_test(x, y, "power", "power", 200, 0)
    assert result.sizes == (100,)
    assert result.pvalue < 0.01
    table = result.details["chosen_from"]
    assert len(table) == 25
    assert result.kernel == max(table, key=lambda row: row["ratio"])["kernel"]
    for method in METHODS[1:]:
        result = kb.hsic_test(x, y, "power", "power", 50, 0, method=method)
        assert result.details["chosen_from"] == table, method
        assert kb.mmd_test(x, y, "power", 50, 0, method=method).details["chosen_from"], method
    given = [kb.Gaussian(1e-4), kb.Gaussian(0.2)]
    assert kb.hsic_test(x, y, given, None, 100, 0, split=0.3).kernel[0] == given[1]


def test_strings_and_numbers():
    rng = np.random.default_rng(0)
    words = ["".join(rng.choice(list("ab"), 8)) for _ in range(50)]
    counts = [word.count("a") for word in words]
    assert kb.hsic_test(words, counts, kb.Spectrum(1), rng=0).pvalue < 0.01


def test_pairs_share_their_gram_matrices():
    calls = []

    def function(a, b):
        calls.append(np.shape(a)[0] * np.shape(b)[0])
        return np.exp(-0.5 * (np.ravel(a)[:, None] - np.ravel(b)[None, :]) ** 2)

    kernel = kb.Custom(function, lambda a: np.ones(len(a)))
    kb.hsic_test(*dependent(), kernel, kb.Gaussian(1.0), 500, 0)
    assert calls == [1600]  # one Gram matrix, whatever the number of permutations


# --- weights -------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [40, 500])  # dense, through factors
def test_equal_weights_change_nothing(n):
    x, y = dependent(n)
    k = kb.Gaussian(1.0)
    plain = kb.hsic_test(x, y, k, k, 100, 0)
    equal = kb.hsic_test(x, y, k, k, 100, 0, weights=np.full(n, 3.0))
    assert equal.pvalue == plain.pvalue
    assert equal.statistic == pytest.approx(plain.statistic, rel=1e-9)
    np.testing.assert_allclose(equal.null, plain.null, rtol=1e-7)
    np.testing.assert_allclose(equal.witness.values, plain.witness.values, atol=1e-9)
    # Their bias differs by order 1 / n of the squared effect.
    assert equal.effect.size**2 == pytest.approx(plain.effect.size**2, abs=4.0 / n)


def test_whole_weights_are_copies_and_zero_weights_are_left_out():
    x, y = dependent(30)
    copies = np.random.default_rng(1).integers(0, 4, 30)
    k = kb.Gaussian(1.0)
    plain = kb.hsic_test(np.repeat(x, copies), np.repeat(y, copies), k, k, 50, 0)
    for method in ("permutation", "wild"):
        found = kb.hsic_test(x, y, k, k, 50, 0, weights=copies, method=method)
        assert found.statistic == pytest.approx(plain.statistic, rel=1e-9)
        assert found.sizes == (np.count_nonzero(copies),)


def test_clear_errors():
    x, y = dependent(30)
    ones = np.ones(30)
    cases = [
        (lambda: kb.hsic_test(x, y[:9]), "aligned"),
        (lambda: kb.hsic_test(x[:3], y[:3]), "at least 5"),
        (lambda: kb.hsic_test(x, y, method="magic"), "method"),
        (lambda: kb.hsic_test(x, y, "strength"), "power"),
        (lambda: kb.hsic_test(x[:10], y[:10], "power", rng=0, split=0.8), "left for the test"),
        (lambda: kb.hsic_test(x, y, method="gamma", unbiased=True), "gamma"),
        (lambda: kb.hsic_test(x, y, weights=ones[:29]), "shape"),
        (lambda: kb.hsic_test(x, y, weights=-ones), "non-negative"),
        (lambda: kb.hsic_test(x, y, weights=ones, method="gamma"), "'permutation' or 'wild'"),
        (lambda: kb.hsic_test(x, y, weights=ones, unbiased=True), "unbiased"),
        (lambda: kb.hsic_test(x, y, "power", weights=ones), "takes no weights"),
    ]
    for run, words in cases:
        with pytest.raises(ValueError, match=words):
            run()
    for kernel in (1.0, [1.0]):
        with pytest.raises(TypeError, match="kernel_x must be a Kernel"):
            kb.hsic_test(x, y, kernel)
