"""Tests over many kernels: their weights, the corrected level, the tails."""

import numpy as np
import pytest

import kernelbayes as kb
from kernelbayes.compare import problem
from kernelbayes.compare.aggregate import corrected_level, log_tails
from kernelbayes.kernels.default import default_kernel


def samples(n=40, m=30, shift=0.3):
    rng = np.random.default_rng(0)
    return rng.normal(size=(n, 2)), rng.normal(size=(m, 2)) + shift


def dependent(n=30):
    rng = np.random.default_rng(0)
    x = rng.normal(size=n)
    return x, np.sin(2.0 * x) + 0.5 * rng.normal(size=n)


def test_one_kernel_aggregated_is_the_test_itself():
    X, Y = samples(30, 25)
    k = kb.Gaussian(1.0)
    single = kb.mmd_test(X, Y, k, 300, 0)
    many = kb.mmd_aggregated(X, Y, [k], 300, 0, centrality=0.0)
    assert [row["by"] for row in many.details["table"]] == ["MMD"]
    assert many.pvalue == pytest.approx(single.pvalue)
    assert many.effect == single.effect
    x, y = dependent()
    single, many = kb.hsic_test(x, y, k, k, 300, 0), kb.hsic_aggregated(x, y, [k], [k], 300, 0)
    assert many.pvalue == pytest.approx(single.pvalue)


def test_the_corrected_level_is_attained_and_maximal():
    rng = np.random.default_rng(0)
    table = rng.normal(size=(5, 1000)).cumsum(axis=0) ** 2
    w = np.array([0.4, 0.3, 0.1, 0.1, 0.1])
    p = np.exp(log_tails(table, np.ones(5)))
    ratios = (p / w[:, None]).min(axis=0)
    u = corrected_level(ratios, 0.05)
    assert np.mean(ratios <= u) == 0.05
    assert np.mean(ratios <= ratios[ratios > u].min()) > 0.05
    assert u > 0.05  # better than Bonferroni, for which u would be alpha


def test_gamma_tails_are_near_the_shares_of_permutations():
    """Shares of 4000 members have a standard error of at most 0.008, and the moments theirs."""
    table = np.random.default_rng(0).chisquare([[1.0], [3.0], [30.0]], size=(3, 4000))
    table = np.concatenate([table, np.full((1, 4000), 2.0)])
    log_p = log_tails(table, np.ones(4))
    shares = np.array([[np.mean(row >= value) for value in row] for row in table])
    upper = shares < 0.5  # the lower end of a fitted gamma law lies where it lies
    np.testing.assert_allclose(np.exp(log_p)[upper], shares[upper], atol=0.05)
    assert np.all(np.exp(log_p[3]) == 1.0)
    order = np.argsort(table[0])
    assert np.all(np.diff(log_p[0][order]) <= 0.0)


def test_default_weights():
    X, Y = samples()
    result = kb.mmd_aggregated(X, Y, None, 50, 0)
    table = result.details["table"]
    assert [row["by"] for row in table] == ["MMD"] * 7 + ["centrality"] * 7
    weights = np.array([row["weight"] for row in table])
    first = np.array(default_kernel(np.concatenate([X, Y])).bandwidth)  # one per column
    bandwidths = np.array([row["kernel"].bandwidth / first for row in table])
    np.testing.assert_allclose(bandwidths.min(axis=1), bandwidths.max(axis=1))
    bandwidths = bandwidths[:, 0]
    np.testing.assert_allclose(bandwidths, np.tile(2.0 ** np.arange(-4, 3), 2))
    np.testing.assert_allclose(weights[:7], 0.9 * bandwidths[:7] / bandwidths[:7].sum())
    np.testing.assert_allclose(weights[7:], 0.1 / 7)
    given = [kb.Gaussian(1.0), kb.Gaussian(2.0)]
    table = kb.mmd_aggregated(X, Y, given, 50, 0, weights=[1, 3], centrality=0.2).details["table"]
    np.testing.assert_allclose([row["weight"] for row in table], [0.2, 0.6, 0.1, 0.1])
    table = kb.hsic_aggregated(*dependent(), None, None, 50, 0).details["table"]
    square = np.reshape([row["weight"] for row in table], (5, 5))
    np.testing.assert_allclose(square, square[::-1, ::-1])  # symmetric in the log bandwidths
    assert square[2, 2] > 5.0 * square[0, 2]


def test_centrality_is_the_difference_of_mean_similarity_to_all_points():
    X, Y = samples(30, 20, shift=0.0)
    Y = 10.0 * Y  # a difference in scale, which the mean embeddings see less
    k = kb.Gaussian(1.0)
    result = kb.mmd_aggregated(X, Y, [k], 200, 0)
    mean = np.asarray(k(np.concatenate([X, Y]))).mean(axis=1)
    row = result.details["table"][1]
    assert row["statistic"] == pytest.approx((mean[:30].mean() - mean[30:].mean()) ** 2)
    assert result.pvalue < 0.05


def test_aggregation_finds_what_the_median_bandwidth_misses():
    rng = np.random.default_rng(0)
    x = rng.uniform(-1.0, 1.0, 120)
    y = np.sin(20.0 * x) + 0.1 * rng.normal(size=120)
    result = kb.hsic_aggregated(x, y, permutations=300, rng=0)
    assert result.pvalue < 0.01
    assert result.kernel[0].bandwidth < kb.Gaussian.median(x).bandwidth
    assert len(result.details["table"]) == 25


def test_clear_errors():
    X, Y = samples(10, 10)
    x = X[:, 0]
    for run, words in [
        (lambda: kb.mmd_aggregated(X, Y, []), "empty"),
        (lambda: kb.mmd_aggregated(X, Y, weights=[1.0]), "7 positive"),
        (lambda: kb.mmd_aggregated(X, Y, centrality=1.0), r"centrality must lie in \[0, 1\)"),
        (lambda: kb.hsic_aggregated(x, x[:9]), "aligned"),
    ]:
        with pytest.raises(ValueError, match=words):
            run()
    for run in (
        lambda: kb.mmd_aggregated(X, Y, kb.Gaussian(1.0)),
        lambda: kb.hsic_aggregated(x, x, [0.1, 1.0]),
    ):
        with pytest.raises(TypeError, match="must be a non-empty sequence"):
            run()
    given = kb.mmd_aggregated(X, Y, (kb.Gaussian(s) for s in (0.5, 1.0)), 50, 0)  # any iterable
    assert len(given.details["table"]) == 4


def test_advice_for_large_samples_is_advice_that_can_be_followed(monkeypatch):
    monkeypatch.setattr(problem, "GRAM_ENTRIES", 1000)
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(60, 3)), rng.normal(size=(60, 3))
    kernel = kb.Gaussian(0.2)
    with pytest.raises(ValueError, match=r"nystrom.*mmd_test or hsic_test with method") as caught:
        kb.mmd_aggregated(x, y, [kernel], permutations=20, rng=0)
    assert "use method" not in str(caught.value)
    both = np.concatenate([x, y])
    low = kb.nystrom(kernel, both, 5, rng=0)
    assert 0.0 < kb.mmd_aggregated(x, y, [low], permutations=20, rng=0).pvalue <= 1.0
    assert kb.mmd_test(x, y, kernel, method="features", rank=5, permutations=20, rng=0).pvalue > 0


FAMILIES = [kb.Gaussian(1.0), kb.Gaussian(0.3), kb.Laplace(1.0), kb.Laplace(0.3)]


def test_each_kernel_has_the_pvalue_it_has_alone():
    """The authors' code repeats those of the first family of kernels for the second."""
    X, Y = samples()
    table = kb.mmd_aggregated(X, Y, FAMILIES, 300, 0).details["table"]
    alone = [kb.mmd_aggregated(X, Y, [k], 300, 0).details["table"] for k in FAMILIES]
    rows = [rows[by] for by in (0, 1) for rows in alone]  # all MMDs, then all centralities
    for name in ("by", "kernel", "statistic", "pvalue"):
        assert [row[name] for row in table] == [row[name] for row in rows]
    assert len({row["pvalue"] for row in table}) == len(table)
    fused = kb.mmd_fuse(X, Y, FAMILIES, 50, 0).details["table"]
    assert len({row["statistic"] for row in fused}) == len(FAMILIES)


def test_each_pair_of_kernels_has_the_pvalue_it_has_alone():
    x, y = dependent()
    table = kb.hsic_aggregated(x, y, FAMILIES, FAMILIES[1:], 300, 0).details["table"]
    pairs = [(k, other) for k in FAMILIES for other in FAMILIES[1:]]
    assert [row["kernel"] for row in table] == pairs
    for row, (k, other) in zip(table, pairs, strict=True):
        (single,) = kb.hsic_aggregated(x, y, [k], [other], 300, 0).details["table"]
        assert row["pvalue"] == pytest.approx(single["pvalue"])
        assert row["statistic"] == pytest.approx(single["statistic"])
    assert len({row["pvalue"] for row in table}) == len(table)
