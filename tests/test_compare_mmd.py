"""Two samples: the statistic is that of the embeddings, the null that of all splits."""

import itertools
import math

import numpy as np
import pytest
from scipy.spatial.transform import Rotation as SpatialRotation
from scipy.stats import binom

import kernelbayes as kb
from kernelbayes.compare import problem as problems
from kernelbayes.compare.mmd import TwoSamples
from kernelbayes.gram import base, factored


def samples(n=40, m=30, d=2, shift=0.5, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, d)), rng.normal(size=(m, d)) + shift


@pytest.mark.parametrize("unbiased", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("method", ["permutation", "wild"])
def test_the_statistic_is_that_of_the_embeddings(unbiased, weighted, method):
    X, Y = samples()
    k = kb.Gaussian(0.8)
    rng = np.random.default_rng(3)
    w, v = (rng.uniform(0.2, 2.0, 40), rng.uniform(0.2, 2.0, 30)) if weighted else (None, None)
    result = kb.mmd_test(
        *(X, Y, k, 20, 0), method=method, unbiased=unbiased, weights_x=w, weights_y=v
    )
    mu, nu = (kb.embed(P, k, None if u is None else u / u.sum()) for P, u in ((X, w), (Y, v)))
    expected = kb.mmd2(mu, nu, unbiased=unbiased)
    np.testing.assert_allclose(result.statistic, expected, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(result.witness.values, (mu - nu)(np.r_[X, Y]), atol=1e-12)
    np.testing.assert_allclose(result.witness.function(X[:3]), (mu - nu)(X[:3]), atol=1e-12)


def test_all_splits_of_a_tiny_sample_are_enumerated():
    X, Y = samples(4, 3)
    k = kb.Gaussian(1.0)
    Z = np.r_[X, Y]
    values = []
    for first in itertools.combinations(range(7), 4):
        rest = [i for i in range(7) if i not in first]
        values.append(float(kb.mmd2(kb.embed(Z[list(first)], k), kb.embed(Z[rest], k))))
    result = kb.mmd_test(X, Y, k, 1000, 0)
    assert len(result.null) == len(values) - 1
    expected = np.mean(np.array(values) >= values[0] - 1e-12)
    assert result.pvalue == pytest.approx(expected, abs=1e-12)
    np.testing.assert_allclose(np.sort(result.null), np.sort(values[1:]), atol=1e-12)


@pytest.mark.parametrize(
    "test",
    [
        lambda x, y: kb.mmd_test(x, y, None, 35, 0),
        lambda x, y: kb.mmd_test(x, y, None, 35, 0, unbiased=True),
        lambda x, y: kb.mmd_aggregated(x, y, None, 35, 0),
    ],
    ids=["permutation", "unbiased", "aggregated"],
)
def test_pvalues_have_their_exact_law_over_all_splits(test):
    """Every split of the same points is equally likely under the null: p is uniform, exactly."""
    points = np.random.default_rng(0).normal(size=(7, 1))
    pvalues = []
    for first in itertools.combinations(range(7), 3):
        rest = [i for i in range(7) if i not in first]
        pvalues.append(test(points[list(first)], points[rest]).pvalue)
    np.testing.assert_allclose(np.sort(pvalues), np.arange(1, 36) / 35)


def test_low_rank_factors_give_the_dense_statistics(monkeypatch):
    X, Y = samples(260, 200, shift=0.05)
    found = []
    for smallest in (100, 10**9):
        monkeypatch.setattr(base, "FACTOR_FROM", smallest)
        problem = TwoSamples.of(X, Y, kb.Gaussian(1.0))
        found.append(problem.statistics(problem.shuffled(50, np.random.default_rng(0))))
    np.testing.assert_allclose(*found, rtol=1e-5)  # the factor leaves 1e-8 of the trace


def test_a_kernel_of_full_rank_features_gives_the_exact_test():
    X, Y = samples()
    k = kb.Gaussian(1.0)
    low = kb.pivoted_cholesky(k, np.r_[X, Y], rank=70, rng=0)
    exact, found = (kb.mmd_test(X, Y, kernel, 200, 0) for kernel in (k, low))
    np.testing.assert_allclose(found.null, exact.null, atol=1e-8)
    assert found.pvalue == exact.pvalue


def test_the_scale_of_weights_and_of_the_kernel_does_not_matter():
    X, Y = samples(12, 9)
    k = kb.Gaussian(1.0)
    base = kb.mmd_test(X, Y, k, 30, 0)
    scaled = kb.mmd_test(X, Y, k, 30, 0, weights_x=np.full(12, 7.0), weights_y=np.full(9, 0.1))
    assert scaled.pvalue == base.pvalue
    np.testing.assert_allclose(scaled.null, base.null, rtol=1e-10)
    assert kb.mmd_test(X, Y, 5.0 * k, 30, 0).pvalue == base.pvalue


def test_weight_is_multiplicity_in_the_biased_statistic_and_zero_weight_is_absence():
    X, Y = samples(10, 8)
    k = kb.Gaussian(1.0)
    doubled = kb.mmd_test(np.r_[X, X[:3]], Y, k, 10, 0).statistic
    weighted = kb.mmd_test(X, Y, k, 10, 0, weights_x=[2.0] * 3 + [1.0] * 7).statistic
    assert weighted == pytest.approx(doubled)
    absent = kb.mmd_test(X, Y, k, 10, 0, weights_x=[0.0] * 3 + [1.0] * 7)
    present = kb.mmd_test(X[3:], Y, k, 10, 0)
    assert absent.pvalue == present.pvalue
    assert absent.sizes == (7, 8)


def test_the_effect_of_a_linear_kernel_is_cohens_d():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=400), rng.normal(1.0, 1.0, size=300)
    result = kb.mmd_test(x, y, kb.Linear(), 50, 0)
    d2 = (x.mean() - y.mean()) ** 2 - x.var(ddof=1) / 400 - y.var(ddof=1) / 300
    d2 /= 0.5 * (x.var(ddof=1) + y.var(ddof=1))
    assert result.effect.size == pytest.approx(math.sqrt(d2), rel=1e-9)
    assert result.effect.interval[0] < math.sqrt(d2) < result.effect.interval[1]


def test_the_jackknife_leaves_out_one_point_at_a_time():
    X, Y = samples(9, 7)
    k = kb.Gaussian(1.0)
    problem = TwoSamples.of(X, Y, k)
    without = problem.left_out(problem.sums(problem.observed[None])).unbiased()
    for i in range(9):
        other = kb.mmd2(kb.embed(np.delete(X, i, 0), k), kb.embed(Y, k), unbiased=True)
        assert without[i] == pytest.approx(float(other), abs=1e-12)
    for j in range(7):
        other = kb.mmd2(kb.embed(X, k), kb.embed(np.delete(Y, j, 0), k), unbiased=True)
        assert without[9 + j] == pytest.approx(float(other), abs=1e-12)


def test_intervals_cover():
    """Truth: the squared MMD of N(0, 1) and N(1, 1) in closed form.

    Nominal coverage 95 %, at these sizes 92.8 % (of 2000 samples). The count of 200 falls below the
    bound with probability 1e-6 if the coverage is 92 %.
    """
    h2 = 0.49
    k = kb.Gaussian(0.7)
    cross = [math.sqrt(h2 / (h2 + 2)) * math.exp(-(s**2) / (2 * (h2 + 2))) for s in (0.0, 1.0)]
    truth = math.sqrt(2.0 * (cross[0] - cross[1]) / (1.0 - cross[0]))
    covered = 0
    for seed in range(200):
        rng = np.random.default_rng(seed)
        X, Y = rng.normal(size=(80, 1)), rng.normal(1.0, size=(60, 1))
        problem = TwoSamples.of(X, Y, k)
        low, high = problem.estimate().effect(problem.scale, problem.most).interval
        covered += low <= truth <= high
    assert covered >= binom.ppf(1e-6, 200, 0.92)


def test_strings_rotations_graphs_and_mixed_columns():
    """Differences so large that no seed hides them."""
    rng = np.random.default_rng(0)
    words = ["".join(rng.choice(list("ab"), 8, p=p)) for p in [(0.1, 0.9)] * 30 + [(0.9, 0.1)] * 25]
    assert kb.mmd_test(words[:30], words[30:], kb.Spectrum(2), 200, 0).pvalue < 0.05
    turns = SpatialRotation.from_rotvec(rng.normal(size=(50, 3)) * 0.1).as_matrix()
    others = SpatialRotation.from_rotvec(rng.normal(size=(40, 3)) * 2.0).as_matrix()
    for method in ("permutation", "linear", "block", "features"):
        result = kb.mmd_test(turns, others, kb.Rotation(0.5), 200, 0, method=method)
        assert result.pvalue < 0.05, method
    G = kb.Gaussian(1.0)(rng.normal(size=(60, 2)))  # any Gram matrix, a graph kernel's say
    graph = kb.Custom(lambda i, j: G[i][:, j])
    index = np.arange(60)
    expected = kb.mmd2(kb.embed(index[:35], graph), kb.embed(index[35:], graph))
    result = kb.mmd_test(index[:35], index[35:], graph, 100, 0)
    assert result.statistic == pytest.approx(float(expected))
    mixed = kb.Parts({"x": kb.Gaussian(1.0), "c": kb.Delta()})
    data = [
        {"x": rng.normal(size=40), "c": rng.choice(list("ab"), 40, p=p)}
        for p in ((0.05, 0.95), (0.95, 0.05))
    ]
    assert kb.mmd_test(*data, mixed, 200, 0).pvalue < 0.05
    assert kb.mmd_test(list("aaab" * 5), list("abbb" * 5), rng=0).kernel == kb.Delta()


def test_a_kernel_chosen_on_one_half_tests_on_the_other():
    X, Y = samples(200, 160, d=1, shift=2.0)
    result = kb.mmd_test(X, Y, "power", 200, 0)
    assert result.sizes == (100, 80)
    assert result.pvalue < 0.01
    table = result.details["chosen_from"]
    assert result.kernel == max(table, key=lambda row: row["ratio"])["kernel"]
    given = [kb.Gaussian(1e-3), kb.Gaussian(1.0)]
    assert kb.mmd_test(X, Y, given, 100, 0, split=0.3).kernel == given[1]


def test_two_constants_are_as_different_as_can_be():
    for method in ("permutation", "gamma", "wild", "linear", "block", "features"):
        options = {"method": method, "block_size": 5}
        result = kb.mmd_test(np.zeros(10), np.ones(10), kb.Gaussian(1.0), 200, 0, **options)
        assert result.pvalue < 0.05, method
        assert result.effect.size == np.inf, method


def test_duplicated_points_and_unequal_sizes():
    X, Y = samples(15, 4)
    X = np.concatenate([X, X, X])
    for method in ("permutation", "gamma", "wild", "linear", "features"):
        result = kb.mmd_test(X, Y, None, 60, 0, method=method)
        assert 0.0 < result.pvalue <= 1.0
        assert result.sizes == (45, 4)


def test_both_samples_are_of_one_kind_with_the_same_columns():
    pandas = pytest.importorskip("pandas")
    X, Y = (pandas.DataFrame(P, columns=["a", "b"]) for P in samples())
    swapped = Y[["b", "a"]]
    renamed = Y.rename(columns={"a": "c"})
    for run in (
        lambda *data: kb.mmd_test(*data, permutations=50, rng=0),
        lambda *data: kb.mmd_aggregated(*data, permutations=50, rng=0),
        lambda *data: kb.mmd_test(*data, "power", 50, rng=0),
    ):
        assert run(X, swapped).statistic == run(X, Y).statistic
        with pytest.raises(ValueError, match=r"Y has the columns \['c', 'b'\], but .*'a', 'b'"):
            run(X, renamed)
    parts = kb.Parts({"a": kb.Gaussian(1.0), "b": kb.Laplace(1.0)})  # finds columns by name
    found = [kb.mmd_test(X, P, parts, 50, 0).statistic for P in (Y, swapped)]
    assert found[0] == found[1]
    assert kb.mmd_test(X, Y.to_numpy(), None, 50, 0).pvalue == kb.mmd_test(X, Y, None, 50, 0).pvalue
    assert kb.mmd_test(X["a"], Y["b"], None, 50, 0).sizes == (40, 30)  # two series have two names
    for first, second in ((["a", "b"] * 5, [1.0, 2.0] * 5), ([1.0, 2.0] * 5, ["a", "b"] * 5)):
        with pytest.raises(TypeError, match="must hold numbers"):
            kb.mmd_test(first, second)


def test_a_gram_matrix_too_large_for_memory_says_what_to_do(monkeypatch):
    monkeypatch.setattr(problems, "GRAM_ENTRIES", 100)
    with pytest.raises(ValueError, match="features"):
        kb.mmd_test(*samples(), kb.Gaussian(1.0), rng=0)
    # Nor is a factor allowed that would take more memory than the matrix may.
    asked = []
    monkeypatch.setattr(problems, "GRAM_ENTRIES", 500 * 28)
    monkeypatch.setattr(
        factored, "partial_cholesky", lambda k, P, rank, tol, rng: asked.append(rank) or (0, 0, 1.0)
    )
    with pytest.raises(ValueError, match="features"):
        kb.mmd_test(*samples(250, 250), kb.Gaussian(1.0), rng=0)
    assert asked == [7]


def test_clear_errors():
    X, Y = samples(10, 10)
    cases = [
        (lambda: kb.mmd_test(X, Y[:1]), "at least 2"),
        (lambda: kb.mmd_test(X[:1], Y), "at least 2"),
        (lambda: kb.mmd_test(X, Y[:, :1]), "columns"),
        (lambda: kb.mmd_test(X, Y[:, :1], kb.Gaussian(1.0)), "columns"),
        (lambda: kb.mmd_test(X, np.full((10, 2), np.nan)), "NaN"),
        (lambda: kb.mmd_test(X, Y, method="magic"), "method"),
        (lambda: kb.mmd_test(X, Y, "best"), "'power'"),
        (lambda: kb.mmd_test(X, Y, weights_x=-np.ones(10)), "non-negative"),
        (lambda: kb.mmd_test(X, Y, weights_x=np.ones(9)), "shape"),
        (lambda: kb.mmd_test(X, Y, method="linear", weights_x=np.ones(10)), "weights"),
        (lambda: kb.mmd_test(X, Y, method="gamma", unbiased=True), "gamma"),
        (lambda: kb.mmd_test(X, Y, rng=0, method="wild", block_length=-1.0), "block_length"),
        (lambda: kb.mmd_test(X, Y, method="block", block_size=8), "blocks"),
        (lambda: kb.mmd_test(X, Y, "power", rng=0, split=0.96), "left for the test"),
        (lambda: kb.mmd_test(X, Y, "power", rng=0, split=1.0), "split"),
        (lambda: kb.mmd_test(X, Y, method="features", rank=0), "rank"),
        (lambda: kb.mmd_test(X, Y[:3], method="features"), "at least 4"),
    ]
    for run, words in cases:
        with pytest.raises(ValueError, match=words):
            run()
    for kernel in ([1.0], 1.0, kb.Gaussian):
        with pytest.raises(TypeError, match=r"must be a Kernel"):
            kb.mmd_test(X, Y, kernel)
    with pytest.raises(TypeError, match="Custom"):
        kb.mmd_test(np.arange(5), np.arange(5, 10), np.eye(10))
    with pytest.warns(kb.NumericalWarning, match="effective sample size"):
        kb.mmd_test(X, Y, None, 20, 0, weights_x=[1.0, *[1e-6] * 9])


def test_power_is_at_least_the_level():
    """Samples that are more alike than chance would have them do not make a test reject less."""
    x = np.sort(np.random.default_rng(0).normal(size=60))
    for alpha in (0.05, 0.2):
        result = kb.mmd_test(x[::2], x[1::2], alpha=alpha, rng=0)
        assert result.pvalue > 0.5
        assert result.power_estimate == alpha
