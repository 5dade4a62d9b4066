"""Tests of two samples and of independence: oracles, laws, any kernel, and what goes wrong."""

import itertools
import math
import sys
import warnings

import matplotlib
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.transform import Rotation as SpatialRotation

import kernelbayes as kb
from kernelbayes.compare import nulls, pairs
from kernelbayes.compare import problem as problems
from kernelbayes.compare.aggregate import corrected_level, log_tails
from kernelbayes.compare.conditional import Candidate, LeftOver, regression
from kernelbayes.compare.hsic import Pairs
from kernelbayes.compare.mmd import TwoSamples
from kernelbayes.compare.nulls import memory, multipliers
from kernelbayes.compare.pairs import Variable
from kernelbayes.gram import Dense, LowRank, policy

matplotlib.use("Agg")
import matplotlib.pyplot as plt

METHODS = ["permutation", "gamma", "wild", "linear", "block", "features"]


def samples(n=40, m=30, d=2, shift=0.5, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, d)), rng.normal(size=(m, d)) + shift


def dependent(n=40, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=n)
    return x, np.sin(2.0 * x) + 0.5 * rng.normal(size=n)


def hsic_by_trace(G_x, G_y):
    n = len(G_x)
    H = np.eye(n) - 1.0 / n
    return np.trace(G_x @ H @ G_y @ H) / n**2


def variable(kernel, points):
    return Variable(kernel, kernel.points(points), np.ones(len(points)))


# --- the statistic is what it says ---------------------------------------------------------------


@pytest.mark.parametrize("unbiased", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("method", ["permutation", "wild"])
def test_mmd_statistic_is_that_of_the_embeddings(unbiased, weighted, method):
    X, Y = samples()
    k = kb.Gaussian(0.8)
    rng = np.random.default_rng(3)
    w, v = (rng.uniform(0.2, 2.0, 40), rng.uniform(0.2, 2.0, 30)) if weighted else (None, None)
    result = kb.mmd_test(
        *(X, Y, k, 20, 0), method=method, unbiased=unbiased, weights_x=w, weights_y=v
    )
    mu, nu = (kb.embed(P, k, None if u is None else u / u.sum()) for P, u in ((X, w), (Y, v)))
    expected = kb.mmd2(mu, nu, unbiased=unbiased)
    np.testing.assert_allclose(result.statistic, expected, rtol=1e-10)
    np.testing.assert_allclose(result.witness.values, (mu - nu)(np.r_[X, Y]), atol=1e-12)
    np.testing.assert_allclose(result.witness.function(X[:3]), (mu - nu)(X[:3]), atol=1e-12)


def test_hsic_statistics_are_the_trace_formula_and_the_fourfold_sum():
    x, z = dependent(12)
    k, el = kb.Gaussian(0.7), kb.Laplace(1.1)
    K, L = k(x), el(z)
    found = kb.hsic_test(x, z, k, el, 5, 0).statistic
    np.testing.assert_allclose(found, hsic_by_trace(K, L), rtol=1e-10)
    # The unbiased estimate is the mean over distinct indices.
    quads = np.array(list(itertools.permutations(range(12), 4)))
    i, j, q, r = quads.T
    slow = np.mean(K[i, j] * (L[i, j] + L[q, r] - 2.0 * L[i, q]))
    found = kb.hsic_test(x, z, k, el, 5, 0, unbiased=True).statistic
    np.testing.assert_allclose(found, slow, rtol=1e-9)


def test_linear_time_statistics_are_unbiased():
    # Averaged over orders of the rows the quadruples give the unbiased estimate itself.
    X, Y = samples(8, 8)
    k = kb.Gaussian(1.0)
    values = [kb.mmd_test(X, Y, k, 5, s, method="linear").statistic for s in range(400)]
    exact = float(kb.mmd2(kb.embed(X, k), kb.embed(Y, k), unbiased=True))
    assert abs(np.mean(values) - exact) < 5.0 * np.std(values) / math.sqrt(400)
    x, z = dependent(8)
    values = [kb.hsic_test(x, z, k, k, 5, s, method="linear").statistic for s in range(400)]
    exact = kb.hsic_test(x, z, k, k, 5, 0, unbiased=True).statistic
    assert abs(np.mean(values) - exact) < 5.0 * np.std(values) / math.sqrt(400)


# --- null distributions --------------------------------------------------------------------------


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


@pytest.mark.parametrize("unbiased", [False, True])
def test_all_permutations_of_tiny_pairs_are_enumerated(unbiased):
    x, z = dependent(5)
    k = kb.Gaussian(1.0)
    result = kb.hsic_test(x, z, k, k, 1000, 0, unbiased=unbiased)
    values = [
        kb.hsic_test(x, z[list(p)], k, k, 1, 0, unbiased=unbiased).statistic
        for p in itertools.permutations(range(5))
    ]
    assert len(result.null) == 119
    np.testing.assert_allclose(np.sort(result.null), np.sort(values[1:]), atol=1e-12)
    assert result.pvalue == pytest.approx(np.mean(np.array(values) >= values[0] - 1e-12))


def test_moments_of_the_permutation_distribution_are_exact():
    rng = np.random.default_rng(0)
    A, B = (nulls.centred(Dense(M @ M.T)) for M in rng.normal(size=(2, 6, 3)))
    values = [np.vdot(A, B[np.ix_(p, p)]) for p in map(list, itertools.permutations(range(6)))]
    moments = (nulls.matrix_moments(Dense(M)) for M in (A, B))
    mean, variance = nulls.permutation_moments(*moments, 6)
    assert mean == pytest.approx(np.mean(values))
    assert variance == pytest.approx(np.var(values))
    factor = np.linalg.cholesky(A + 1e-9 * np.eye(6))
    np.testing.assert_allclose(
        nulls.matrix_moments(LowRank(factor)), nulls.matrix_moments(Dense(A)), rtol=1e-6
    )


@pytest.mark.parametrize("shift", [0.0, 0.3])
def test_gamma_agrees_with_permutations(shift):
    X, Y = samples(60, 90, shift=shift, seed=2)
    # A p-value from 4000 permutations has deviation at most 0.008; the rest is the gamma law.
    exact, law = (kb.mmd_test(X, Y, None, 4000, 0, method=m) for m in ("permutation", "gamma"))
    assert law.pvalue == pytest.approx(exact.pvalue, abs=0.04)
    np.testing.assert_allclose(law.null.mean(), exact.null.mean(), rtol=0.02)
    np.testing.assert_allclose(law.null.std(), exact.null.std(), rtol=0.1)
    x, z = X[:, 0], X[:, 1] + shift * X[:, 0]
    exact, law = (kb.hsic_test(x, z, None, None, 4000, 0, method=m) for m in METHODS[:2])
    assert law.pvalue == pytest.approx(exact.pvalue, abs=0.04)


def test_low_rank_factors_give_the_dense_p_values(monkeypatch):
    X, Y = samples(260, 200, shift=0.05)
    x, z = dependent(450)
    found = []
    for smallest in (100, 10**9):
        monkeypatch.setattr(policy, "FACTOR_FROM", smallest)
        found.append([TwoSamples.of(X, Y, kb.Gaussian(1.0)), variable(kb.Gaussian(1.0), x)])
        assert [part.gram.n for part in found[-1]] == [460, 450]  # computed here
    monkeypatch.setattr(policy, "FACTOR_FROM", 100)
    assert isinstance(found[0][1].gram, LowRank)
    assert isinstance(found[1][1].gram, Dense)
    b = variable(kb.Gaussian(1.0), z)
    order = np.stack([np.random.default_rng(s).permutation(450) for s in range(20)])
    low, dense = (pairs.products([f[1]], [b], order)[0, 0] for f in found)
    np.testing.assert_allclose(low, dense, rtol=1e-5)
    splits = found[0][0].shuffled(50, np.random.default_rng(0))
    low, dense = (f[0].statistics(splits) for f in found)
    np.testing.assert_allclose(low, dense, rtol=1e-5)
    np.testing.assert_allclose(*(pairs.left_out(f[1], b)[1] for f in found), rtol=1e-5)


def test_a_kernel_of_full_rank_features_gives_the_exact_test():
    X, Y = samples()
    k = kb.Gaussian(1.0)
    low = kb.pivoted_cholesky(k, np.r_[X, Y], rank=70, rng=0)
    exact, found = (kb.mmd_test(X, Y, kernel, 200, 0) for kernel in (k, low))
    np.testing.assert_allclose(found.null, exact.null, atol=1e-8)
    assert found.pvalue == exact.pvalue


# --- laws ----------------------------------------------------------------------------------------


@given(st.integers(0, 10**6), st.sampled_from(METHODS))
def test_same_seed_same_result_and_valid_numbers(seed, method):
    X, Y = samples(24, 20, seed=seed % 100)
    x, z = dependent(24, seed=seed % 100)
    for run in (
        lambda: kb.mmd_test(X, Y, None, 50, seed, method=method),
        lambda: kb.hsic_test(x, z, None, None, 50, seed, method=method),
    ):
        first, second = run(), run()
        assert first.pvalue == second.pvalue
        assert first.statistic == second.statistic
        np.testing.assert_array_equal(first.null, second.null)
        assert 0.0 < first.pvalue <= 1.0
        assert 0.0 <= first.power_estimate <= 1.0
        assert first.null.shape == (50,)
        low, high = first.effect.interval
        assert 0.0 <= low <= first.effect.size <= high


@given(st.integers(0, 10**6))
def test_invariances(seed):
    rng = np.random.default_rng(seed)
    X, Y = samples(12, 9, seed=seed % 100)
    k = kb.Gaussian(1.0)
    base = kb.mmd_test(X, Y, k, 30, 0)
    # Order of the rows, exchange of the samples, weights of another scale, units.
    shuffled = kb.mmd_test(rng.permutation(X), rng.permutation(Y), k, 30, 0)
    assert shuffled.statistic == pytest.approx(base.statistic, rel=1e-10)
    assert kb.mmd_test(Y, X, k, 30, 0).statistic == pytest.approx(base.statistic, rel=1e-10)
    scaled = kb.mmd_test(X, Y, k, 30, 0, weights_x=np.full(12, 7.0), weights_y=np.full(9, 0.1))
    assert scaled.pvalue == base.pvalue
    np.testing.assert_allclose(scaled.null, base.null, rtol=1e-10)
    units = kb.mmd_test(1e3 * X, 1e3 * Y, kb.Gaussian(1e3), 30, 0)
    assert units.pvalue == base.pvalue
    assert kb.mmd_test(X, Y, 5.0 * k, 30, 0).pvalue == base.pvalue
    x, z = dependent(12, seed=seed % 100)
    base = kb.hsic_test(x, z, k, k, 30, 0)
    assert kb.hsic_test(z, x, k, k, 30, 0).statistic == pytest.approx(base.statistic, rel=1e-9)
    order = rng.permutation(12)
    moved = kb.hsic_test(x[order], z[order], k, k, 30, 0)
    assert moved.statistic == pytest.approx(base.statistic, rel=1e-9)


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


def test_effects_are_cohens_d_and_pearsons_correlation_for_linear_kernels():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=400), rng.normal(1.0, 1.0, size=300)
    result = kb.mmd_test(x, y, kb.Linear(), 50, 0)
    d2 = (x.mean() - y.mean()) ** 2 - x.var(ddof=1) / 400 - y.var(ddof=1) / 300
    d2 /= 0.5 * (x.var(ddof=1) + y.var(ddof=1))
    assert result.effect.size == pytest.approx(math.sqrt(d2), rel=1e-9)
    assert result.effect.interval[0] < 1.0 < result.effect.interval[1]
    z = x + rng.normal(size=400)
    result = kb.hsic_test(x, z, kb.Linear(), kb.Linear(), 50, 0)
    assert result.effect.size == pytest.approx(abs(np.corrcoef(x, z)[0, 1]), abs=0.01)


def test_the_jackknife_leaves_out_one_point_at_a_time():
    X, Y = samples(9, 7)
    k = kb.Gaussian(1.0)
    problem = TwoSamples.of(X, Y, k)
    without = problem.left_out(problem.sums(problem.observed[None])).unbiased()
    for i in range(9):
        other = kb.mmd2(kb.embed(np.delete(X, i, 0), k), kb.embed(Y, k), unbiased=True)
        assert without[i] == pytest.approx(float(other))
    for j in range(7):
        other = kb.mmd2(kb.embed(X, k), kb.embed(np.delete(Y, j, 0), k), unbiased=True)
        assert without[9 + j] == pytest.approx(float(other))
    x, z = dependent(9)
    without = pairs.left_out(variable(k, x), variable(k, z))[1]
    for i in range(9):
        other = kb.hsic_test(np.delete(x, i), np.delete(z, i), k, k, 1, 0, unbiased=True)
        assert without[i] == pytest.approx(other.statistic, abs=1e-12)


def test_intervals_cover():
    # Truth: the squared MMD of N(0, 1) and N(1, 1) in closed form. 200 samples, nominal 95 %;
    # a binomial count falls below 178 with probability 1e-4.
    h2 = 0.49
    k = kb.Gaussian(0.7)
    cross = [math.sqrt(h2 / (h2 + 2)) * math.exp(-(s**2) / (2 * (h2 + 2))) for s in (0.0, 1.0)]
    truth = math.sqrt(2.0 * (cross[0] - cross[1]) / (1.0 - cross[0]))
    covered = 0
    for seed in range(200):
        rng = np.random.default_rng(seed)
        problem = TwoSamples.of(
            *(k.points(v) for v in (rng.normal(size=80), rng.normal(1.0, size=60))), k
        )
        low, high = problem.estimate().effect(problem.scale, problem.most).interval
        covered += low <= truth <= high
    assert covered >= 178


# --- any kernel ----------------------------------------------------------------------------------


def test_strings_rotations_graphs_and_mixed_columns():
    rng = np.random.default_rng(0)
    words = ["".join(rng.choice(list("ab"), 8, p=p)) for p in [(0.3, 0.7)] * 30 + [(0.6, 0.4)] * 25]
    assert kb.mmd_test(words[:30], words[30:], kb.Spectrum(2), 200, 0).pvalue < 0.05
    turns = SpatialRotation.from_rotvec(rng.normal(size=(50, 3)) * 0.5).as_matrix()
    others = SpatialRotation.from_rotvec(rng.normal(size=(40, 3)) * 2.0).as_matrix()
    for method in ("permutation", "linear", "block", "features"):
        result = kb.mmd_test(turns, others, kb.Rotation(0.5), 200, 0, method=method)
        assert result.pvalue < (0.3 if method == "linear" else 0.05)
    G = kb.Gaussian(1.0)(rng.normal(size=(60, 2)))  # any Gram matrix, a graph kernel's say
    graph = kb.Custom(lambda i, j: G[i][:, j])
    index = np.arange(60)
    expected = kb.mmd2(kb.embed(index[:35], graph), kb.embed(index[35:], graph))
    result = kb.mmd_test(index[:35], index[35:], graph, 100, 0)
    assert result.statistic == pytest.approx(float(expected))
    mixed = kb.Parts({"x": kb.Gaussian(1.0), "c": kb.Delta()})
    data = [
        {"x": rng.normal(size=40), "c": rng.choice(list("ab"), 40, p=p)}
        for p in ((0.2, 0.8), (0.8, 0.2))
    ]
    assert kb.mmd_test(*data, mixed, 200, 0).pvalue < 0.05
    assert kb.hsic_test(words, [w.count("a") for w in words], kb.Spectrum(1), rng=0).pvalue < 0.01
    assert kb.mmd_test(list("aaab" * 5), list("abbb" * 5), rng=0).kernel == kb.Delta()


def test_kernel_chosen_on_one_half_tests_on_the_other():
    X, Y = samples(200, 160, d=1, shift=2.0)
    result = kb.mmd_test(X, Y, "power", 200, 0)
    assert result.sizes == (100, 80)
    assert result.pvalue < 0.01
    table = result.details["chosen_from"]
    assert result.kernel == max(table, key=lambda row: row["ratio"])["kernel"]
    given = [kb.Gaussian(1e-3), kb.Gaussian(1.0)]
    assert kb.mmd_test(X, Y, given, 100, 0, split=0.3).kernel == given[1]


def test_independence_chooses_kernels_on_a_held_out_part():
    rng = np.random.default_rng(0)
    x = rng.uniform(-1.0, 1.0, 200)
    z = np.sin(12.0 * x) + 0.3 * rng.normal(size=200)
    result = kb.hsic_test(x, z, "power", "power", 200, 0)
    assert result.sizes == (100,)
    assert result.pvalue < 0.01
    table = result.details["chosen_from"]
    assert len(table) == 25
    assert result.kernel == max(table, key=lambda row: row["ratio"])["kernel"]
    for method in ("gamma", "wild", "linear", "block", "features"):
        result = kb.hsic_test(x, z, "power", "power", 50, 0, method=method)
        assert result.details["chosen_from"] == table, method
        assert kb.mmd_test(x, z, "power", 50, 0, method=method).details["chosen_from"], method
    given = [kb.Gaussian(1e-4), kb.Gaussian(0.1)]
    assert kb.hsic_test(x, z, given, None, 100, 0, split=0.3).kernel[0] == given[1]
    with pytest.raises(ValueError, match="power"):
        kb.hsic_test(x, z, "strength")
    with pytest.raises(ValueError, match="weights"):
        kb.hsic_test(x, z, "power", weights=np.ones(200))
    with pytest.raises(TypeError, match="kernel_x"):
        kb.hsic_test(x, z, [1.0])


# --- weighted pairs ------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [40, 500])  # dense, through factors
def test_equal_weights_change_nothing(n):
    x, z = dependent(n)
    k = kb.Gaussian(1.0)
    plain = kb.hsic_test(x, z, k, k, 100, 0)
    equal = kb.hsic_test(x, z, k, k, 100, 0, weights=np.full(n, 3.0))
    assert equal.pvalue == plain.pvalue
    assert equal.statistic == pytest.approx(plain.statistic, rel=1e-9)
    np.testing.assert_allclose(equal.null, plain.null, rtol=1e-7)
    np.testing.assert_allclose(equal.witness.values, plain.witness.values, atol=1e-9)
    assert equal.effect.size == pytest.approx(plain.effect.size, abs=0.1)


def test_whole_weights_are_copies_and_zero_weights_are_left_out():
    x, z = dependent(30)
    copies = np.random.default_rng(1).integers(0, 4, 30)
    k = kb.Gaussian(1.0)
    plain = kb.hsic_test(np.repeat(x, copies), np.repeat(z, copies), k, k, 50, 0)
    for method in ("permutation", "wild"):
        found = kb.hsic_test(x, z, k, k, 50, 0, weights=copies, method=method)
        assert found.statistic == pytest.approx(plain.statistic, rel=1e-9)
        assert found.sizes == (np.count_nonzero(copies),)


def test_weights_of_pairs_say_what_is_wrong():
    x, z = dependent(30)
    for weights, words in ((np.ones(29), "shape"), (-np.ones(30), "non-negative")):
        with pytest.raises(ValueError, match=words):
            kb.hsic_test(x, z, weights=weights)
    with pytest.raises(ValueError, match="permutation"):
        kb.hsic_test(x, z, weights=np.ones(30), method="gamma")
    with pytest.warns(kb.NumericalWarning, match="constant"):
        assert kb.hsic_test(np.ones(30), z, kb.Gaussian(1.0), weights=1.0 + x**2).pvalue == 1.0


# --- aggregated ----------------------------------------------------------------------------------


def test_one_kernel_aggregated_is_the_test_itself():
    X, Y = samples(30, 25, shift=0.3)
    k = kb.Gaussian(1.0)
    single = kb.mmd_test(X, Y, k, 300, 0)
    many = kb.mmd_aggregated(X, Y, [k], 300, 0, centrality=0.0)
    assert [row["by"] for row in many.details["table"]] == ["MMD"]
    assert many.pvalue == pytest.approx(single.pvalue)
    assert many.effect == single.effect
    x, z = dependent(30)
    single, many = kb.hsic_test(x, z, k, k, 300, 0), kb.hsic_aggregated(x, z, [k], [k], 300, 0)
    assert many.pvalue == pytest.approx(single.pvalue)


def test_the_corrected_level_is_attained_and_maximal():
    rng = np.random.default_rng(0)
    table = rng.normal(size=(5, 1000)).cumsum(axis=0) ** 2
    w = np.array([0.4, 0.3, 0.1, 0.1, 0.1])
    p = np.exp(log_tails(table, np.ones(5)))
    u = corrected_level((p / w[:, None]).min(axis=0), 0.05)

    def level(u):
        return np.mean((p / w[:, None]).min(axis=0) <= u * (1.0 + 1e-8))

    steps = np.unique((p / w[:, None]).min(axis=0))
    assert level(u) == 0.05
    assert level(steps[np.searchsorted(steps, u * (1.0 + 1e-8))]) > 0.05
    assert u > 0.05  # better than Bonferroni, for which u would be the level


def test_gamma_tails_are_near_the_shares_of_permutations():
    table = np.random.default_rng(0).chisquare([[1.0], [3.0], [30.0]], size=(3, 4000))
    table = np.concatenate([table, np.full((1, 4000), 2.0)])
    log_p = log_tails(table, np.ones(4))
    shares = np.array([[np.mean(row >= value) for value in row] for row in table])
    upper = shares < 0.5  # the lower end of a fitted gamma law lies where it lies
    np.testing.assert_allclose(np.exp(log_p)[upper], shares[upper], atol=0.03)
    assert np.all(np.exp(log_p[3]) == 1.0)
    order = np.argsort(table[0])
    assert np.all(np.diff(log_p[0][order]) <= 0.0)


def test_default_weights():
    X, Y = samples(shift=0.3)
    result = kb.mmd_aggregated(X, Y, None, 50, 0)
    table = result.details["table"]
    assert [row["by"] for row in table] == ["MMD"] * 7 + ["centrality"] * 7
    weights = np.array([row["weight"] for row in table])
    bandwidths = np.array([row["kernel"].bandwidth for row in table])
    median = kb.Gaussian.median(np.concatenate([X, Y])).bandwidth
    np.testing.assert_allclose(bandwidths, np.tile(median * 2.0 ** np.arange(-4, 3), 2))
    np.testing.assert_allclose(weights[:7], 0.9 * bandwidths[:7] / bandwidths[:7].sum())
    np.testing.assert_allclose(weights[7:], 0.1 / 7)
    given = [kb.Gaussian(1.0), kb.Gaussian(2.0)]
    table = kb.mmd_aggregated(X, Y, given, 50, 0, weights=[1, 3], centrality=0.2).details["table"]
    np.testing.assert_allclose([row["weight"] for row in table], [0.2, 0.6, 0.1, 0.1])
    x, z = dependent(30)
    weights = [
        row["weight"] for row in kb.hsic_aggregated(x, z, None, None, 50, 0).details["table"]
    ]
    square = np.reshape(weights, (5, 5))
    np.testing.assert_allclose(square, square[::-1, ::-1])  # symmetric in the log bandwidths
    assert square[2, 2] > 5.0 * square[0, 2]


def test_centrality_is_the_difference_of_mean_similarity_to_all_points():
    X, Y = samples(30, 20, shift=0.0)
    Y = 2.0 * Y
    k = kb.Gaussian(1.0)
    result = kb.mmd_aggregated(X, Y, [k], 200, 0)
    mean = np.asarray(k(np.concatenate([X, Y]))).mean(axis=1)
    row = result.details["table"][1]
    assert row["statistic"] == pytest.approx((mean[:30].mean() - mean[30:].mean()) ** 2)
    assert (result.details["by"], result.kernel) == ("centrality", k)


def test_aggregated_pvalues_have_their_exact_law_over_all_splits():
    """Every split of the same points is equally likely under the null: P(p <= a) <= a for all."""
    points = np.random.default_rng(0).normal(size=(7, 1))
    pvalues = []
    for first in itertools.combinations(range(7), 3):
        rest = [i for i in range(7) if i not in first]
        pvalues.append(kb.mmd_aggregated(points[list(first)], points[rest], None, 35, 0).pvalue)
    np.testing.assert_allclose(np.sort(pvalues), np.arange(1, 36) / 35)


def test_aggregation_finds_what_one_bandwidth_misses():
    rng = np.random.default_rng(0)
    x = rng.uniform(-1.0, 1.0, 120)
    z = np.sin(20.0 * x) + 0.1 * rng.normal(size=120)
    result = kb.hsic_aggregated(x, z, permutations=300, rng=0)
    assert kb.hsic_test(x, z, rng=0).pvalue > result.pvalue
    assert result.kernel[0].bandwidth < kb.Gaussian.median(x).bandwidth
    assert len(result.details["table"]) == 25


# --- series --------------------------------------------------------------------------------------


def test_multipliers_have_the_stated_mean_variance_and_memory():
    w = np.full(300, 1.0 / 300)
    W = multipliers(w, 4000, 5.0, np.random.default_rng(0))
    np.testing.assert_allclose(w @ W, 0.0, atol=1e-12)
    assert np.mean(W**2) == pytest.approx(1.0, abs=0.02)
    lag = np.mean(W[:-1] * W[1:])
    assert lag == pytest.approx(math.exp(-0.2), abs=0.03)
    assert memory(0.0, 10**6, "auto") == (0.0, 1.0)
    assert memory(0.9, 100, 7) == (7.0, 1.0)
    assert memory(0.8, 200, "auto")[0] > memory(0.4, 200, "auto")[0] > 1.0


# --- conditional independence --------------------------------------------------------------------


def test_conditional_test_tells_a_common_cause_from_a_direct_link():
    rng = np.random.default_rng(0)
    z = rng.normal(size=(150, 1))
    x = z[:, 0] + 0.5 * rng.normal(size=150)
    noise = 0.5 * rng.normal(size=150)
    apart, linked = z[:, 0] ** 2 + noise, z[:, 0] ** 2 + 0.8 * (x - z[:, 0]) + noise
    assert kb.hsic_test(x, apart, rng=0).pvalue < 0.01
    assert kb.ci_test(x, apart, z, rng=0).pvalue > 0.05
    result = kb.ci_test(x, linked, z, rng=0)
    assert result.pvalue < 0.01
    assert result.effect.interval[0] > 0.0
    assert result.pvalue == kb.ci_test(x, linked, z, rng=0).pvalue


def test_given_a_category_the_residuals_are_those_within_it():
    rng = np.random.default_rng(0)
    c = rng.choice(list("abc"), 120)
    offset = np.array([{"a": -2.0, "b": 0.0, "c": 2.0}[v] for v in c])
    x, y = offset + rng.normal(size=120), offset + rng.normal(size=120)
    assert kb.hsic_test(x, y, rng=0).pvalue < 0.01
    result = kb.ci_test(x, y, c, kb.Linear(), kb.Linear(), rng=0)
    assert result.pvalue > 0.05
    # With linear kernels and the Delta kernel the statistic is a sum over cells.
    R, S = (v - np.array([v[c == cell].mean() for cell in c]) for v in (x, y))
    cells = [np.sum((R * S)[c == cell]) for cell in "abc"]
    assert result.statistic == pytest.approx(np.sum(np.square(cells)) / 120**2, rel=0.15)


def test_what_z_determines_gets_a_warning_if_it_is_both():
    rng = np.random.default_rng(0)
    z = rng.normal(size=100)
    with pytest.warns(kb.NumericalWarning, match="determines both"):
        kb.ci_test(2.0 * z, np.sin(z), z, rng=0)
    assert kb.ci_test(2.0 * z, z + rng.normal(size=100), z, rng=0).pvalue > 0.01
    cells, levels = np.repeat(list("ab"), 50), np.repeat([0.0, 1.0], 50)
    with pytest.warns(kb.NumericalWarning, match="left over"):
        assert kb.ci_test(levels, z, cells, kb.Gaussian(1.0), rng=0).pvalue == 1.0


def test_the_induced_covariance_is_that_of_smoothed_noise():
    rng = np.random.default_rng(0)
    z = rng.normal(size=(60, 1))
    candidates = Candidate.family(kb.Gaussian(1.0), z)
    M, _ = regression(rng.normal(size=(60, 2)), candidates[1:2])
    E = rng.normal(size=(60, 20000))  # one row of features per draw: <r_i, r_j> is the covariance
    part = LeftOver(kb.Gaussian(1.0), M @ E, M, 1.0, {})
    expected = 20000 * (M @ M.T)
    np.fill_diagonal(expected, 0.0)
    np.testing.assert_allclose(part.induced(), expected, atol=0.05 * 20000)


# --- torch ---------------------------------------------------------------------------------------


@pytest.mark.torch
def test_tensors_give_the_numbers_of_arrays():
    torch = pytest.importorskip("torch")
    X, Y = samples()
    x, z = dependent(40)

    def same(run):
        expected, found = run(np.asarray), run(lambda v: torch.tensor(v, dtype=torch.float64))
        assert found.pvalue == pytest.approx(expected.pvalue, rel=1e-6)
        assert found.statistic == pytest.approx(expected.statistic, rel=1e-9)
        assert isinstance(found.null, np.ndarray)

    for method in METHODS:
        if method != "features":  # its random numbers are the library's own
            same(lambda a, m=method: kb.mmd_test(a(X), a(Y), None, 50, 0, method=m))
            same(lambda a, m=method: kb.hsic_test(a(x), a(z), None, None, 50, 0, method=m))
    same(lambda a: kb.hsic_test(a(x), a(z), None, None, 50, 0, weights=a(1.0 + x**2)))
    same(lambda a: kb.mmd_aggregated(a(X), a(Y), None, 50, 0))
    same(lambda a: kb.hsic_aggregated(a(x), a(z), None, None, 50, 0))
    same(lambda a: kb.ci_test(a(x), a(z), a(X), permutations=50, rng=0))


# --- what goes wrong -----------------------------------------------------------------------------


def test_constant_data_have_p_value_one_and_a_warning():
    ones, k = np.ones(20), kb.Gaussian(1.0)
    rng = np.random.default_rng(0)
    noise = rng.normal(size=20)
    runs = [lambda m=m: kb.mmd_test(ones, ones, k, 50, 0, method=m) for m in METHODS]
    runs += [lambda m=m: kb.hsic_test(ones, noise, k, k, 50, 0, method=m) for m in METHODS]
    runs += [lambda m=m: kb.hsic_test(ones, ones, k, k, 50, 0, method=m) for m in METHODS]
    runs += [
        lambda: kb.hsic_test(ones, noise, k, k, 50, 0, weights=1.0 + noise**2),
        lambda: kb.mmd_test(ones, ones, rng=0),
        lambda: kb.mmd_aggregated(ones, ones, [k, kb.Laplace(2.0)], 50, 0),
        lambda: kb.hsic_aggregated(ones, noise, [k], [k], 50, 0),
        lambda: kb.ci_test(ones, noise, noise[::-1], k, k, k, 50, 0),
    ]
    for run in runs:
        with pytest.warns(kb.NumericalWarning) as caught:
            result = run()
        assert caught[-1].filename == __file__  # it points to the caller
        assert result.pvalue == 1.0
        assert (result.power_estimate, result.effect.size) == (0.0, 0.0)
        assert np.isfinite(result.statistic)
        assert np.isfinite(result.null).all()
        assert not np.isnan([result.effect.size, *result.effect.interval]).any()


def test_two_constants_are_as_different_as_can_be():
    for method in METHODS:
        options = {"method": method, "block_size": 5}
        result = kb.mmd_test(np.zeros(10), np.ones(10), kb.Gaussian(1.0), 200, 0, **options)
        assert result.pvalue < 0.05, method
        assert result.effect.size == np.inf, method


def test_a_kernel_correlation_is_at_most_one():
    x, z = dependent(40)
    for method in METHODS:
        for other in (x, z):
            effect = kb.hsic_test(x, other, None, None, 20, 0, method=method).effect
            low, high = effect.interval
            assert 0.0 <= low <= effect.size <= high <= 1.0, method
    # Where one pair holds the variation, so that there is no jackknife, the size is still known.
    effect = kb.hsic_test(x[:7], x[:7], kb.Gaussian(0.7), kb.Gaussian(0.7), 20, 0).effect
    assert effect.size == pytest.approx(1.0)


def test_duplicated_points_and_unequal_sizes():
    X, Y = samples(15, 4)
    X = np.concatenate([X, X, X])
    for method in ("permutation", "gamma", "wild", "linear", "features"):
        result = kb.mmd_test(X, Y, None, 60, 0, method=method)
        assert 0.0 < result.pvalue <= 1.0
        assert result.sizes == (45, 4)


def test_clear_errors():
    X, Y = samples(10, 10)
    x = X[:, 0]
    cases = [
        (lambda: kb.mmd_test(X, Y[:1]), "at least 2"),
        (lambda: kb.mmd_test(X[:1], Y), "at least 2"),
        (lambda: kb.mmd_test(X, Y[:, :1]), "columns"),
        (lambda: kb.mmd_test(X, Y[:, :1], kb.Gaussian(1.0)), "columns"),
        (lambda: kb.mmd_test(X, np.full((10, 2), np.nan)), "NaN"),
        (lambda: kb.mmd_test(X, Y, permutations=0), "at least 1"),
        (lambda: kb.mmd_test(X, Y, alpha=1.5), "between 0 and 1"),
        (lambda: kb.mmd_test(X, Y, method="magic"), "method"),
        (lambda: kb.hsic_test(x, x, method="magic"), "method"),
        (lambda: kb.mmd_test(X, Y, "best"), "'power'"),
        (lambda: kb.mmd_test(X, Y, weights_x=-np.ones(10)), "non-negative"),
        (lambda: kb.mmd_test(X, Y, weights_x=np.ones(9)), "shape"),
        (lambda: kb.mmd_test(X, Y, method="linear", weights_x=np.ones(10)), "weights"),
        (lambda: kb.mmd_test(X, Y, method="gamma", unbiased=True), "gamma"),
        (lambda: kb.mmd_test(X, Y, method="wild", block_length=-1.0), "block_length"),
        (lambda: kb.mmd_test(X, Y, method="block", block_size=8), "blocks"),
        (lambda: kb.hsic_test(x, x[:9]), "aligned"),
        (lambda: kb.hsic_test(x[:3], x[:3]), "at least 5"),
        (lambda: kb.ci_test(x[:5], x[:5], x[:5]), "at least 10"),
        (lambda: kb.mmd_aggregated(X, Y, []), "empty"),
        (lambda: kb.mmd_aggregated(X, Y, weights=[1.0]), "7 positive"),
        (lambda: kb.mmd_aggregated(X, Y, centrality=1.0), "share of the level"),
        (lambda: kb.mmd_test(X, Y, "power", split=0.96), "left for the test"),
        (lambda: kb.hsic_test(x, x, "power", split=0.8), "left for the test"),
        (lambda: kb.mmd_test(X, Y, method="features", rank=0), "rank"),
        (lambda: kb.mmd_test(X, Y[:3], method="features"), "at least 4"),
    ]
    for run, words in cases:
        with pytest.raises(ValueError, match=words):
            run()
    with pytest.raises(TypeError, match="integer"):
        kb.mmd_test(X, Y, permutations=10.5)
    wrong = [
        lambda: kb.mmd_test(X, Y, [1.0]),
        lambda: kb.mmd_test(X, Y, 1.0),
        lambda: kb.mmd_test(X, Y, kb.Gaussian),
        lambda: kb.hsic_test(x, x, 1.0),
        lambda: kb.mmd_aggregated(X, Y, kb.Gaussian(1.0)),
        lambda: kb.hsic_aggregated(x, x, [0.1, 1.0]),
        lambda: kb.ci_test(x, x, x, None, "rbf"),
    ]
    for run in wrong:
        with pytest.raises(TypeError, match=r"must be a (Kernel|non-empty sequence)"):
            run()
    with pytest.raises(TypeError, match="Custom"):
        kb.mmd_test(np.arange(5), np.arange(5, 10), np.eye(10))
    given = kb.mmd_aggregated(X, Y, (kb.Gaussian(s) for s in (0.5, 1.0)), 50, 0)  # any iterable
    assert len(given.details["table"]) == 4


def test_both_samples_are_of_one_kind_with_the_same_columns():
    pandas = pytest.importorskip("pandas")
    X, Y = (pandas.DataFrame(P, columns=["a", "b"]) for P in samples())
    swapped = Y[["b", "a"]]
    for run in (kb.mmd_test, kb.mmd_aggregated):
        with pytest.raises(ValueError, match="same order"):
            run(X, swapped, rng=0)
    with pytest.raises(ValueError, match="same order"):
        kb.mmd_test(X, swapped, "power", rng=0)
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
        kb.mmd_test(*samples(), kb.Gaussian(1.0))
    # Nor is a factor allowed that would take more memory than the matrix may.
    asked = []
    monkeypatch.setattr(problems, "GRAM_ENTRIES", 500 * 28)
    monkeypatch.setattr(
        policy, "partial_cholesky", lambda k, P, rank, tol, rng: asked.append(rank) or (0, 0, 1.0)
    )
    with pytest.raises(ValueError, match="features"):
        kb.mmd_test(*samples(250, 250), kb.Gaussian(1.0))
    assert asked == [7]


# --- results and pictures ------------------------------------------------------------------------


def test_repr_and_largest():
    X, Y = samples(shift=1.5)
    result = kb.mmd_test(X, Y, rng=0)
    assert repr(result).startswith("MMD test (permutation): statistic=")
    assert "n=40 + 30" in repr(result)
    points, values = result.witness.largest(3)
    assert points.shape == (3, 2)
    assert abs(values[0]) == np.abs(result.witness.values).max()
    x, z = dependent()
    (a, b), _ = kb.hsic_test(x, z, rng=0).witness.largest(2)
    assert len(a) == len(b) == 2


def test_pictures(monkeypatch):
    X, Y = samples()
    result = kb.mmd_test(X, Y, None, 100, 0)
    assert result.plot().get_xlabel() == "MMD statistic"
    assert len(result.plot("witness").collections[0].get_offsets()) == 70
    line = kb.mmd_test(X[:, 0], Y[:, 0], None, 100, 0).plot("witness")
    assert len(line.get_lines()[0].get_xdata()) == 70
    x, z = dependent()
    assert kb.hsic_test(x, z, None, None, 100, 0).plot("witness").get_ylabel() == "y"
    with pytest.raises(ValueError, match="kind"):
        result.plot("other")
    with pytest.raises(ValueError, match="no witness"):
        kb.mmd_test(X, Y, None, 100, 0, method="linear").plot("witness")
    with pytest.raises(ValueError, match="two dimensions"):
        kb.mmd_test(np.c_[X, X], np.c_[Y, Y], None, 100, 0).plot("witness")
    plt.close("all")
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(ImportError, match="plot"):
        result.plot()


def test_pairs_share_their_gram_matrices():
    calls = []

    def function(a, b):
        calls.append(np.shape(a)[0] * np.shape(b)[0])
        return np.exp(-0.5 * (np.ravel(a)[:, None] - np.ravel(b)[None, :]) ** 2)

    kernel = kb.Custom(function, lambda a: np.ones(len(a)))
    x, z = dependent()
    kb.hsic_test(x, z, kernel, kb.Gaussian(1.0), 500, 0)
    assert calls == [1600]  # one Gram matrix, whatever the number of permutations
    problem = Pairs.of(x, z, kb.Gaussian(1.0), kb.Gaussian(1.0))
    assert problem.sizes == (40,)


def test_no_warnings_on_ordinary_data():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        kb.mmd_test(*samples(), rng=0)
        kb.hsic_test(*dependent(), rng=0)
