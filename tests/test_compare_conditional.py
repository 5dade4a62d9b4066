"""Conditional independence: residuals, their induced covariance, what z determines."""

import numpy as np
import pytest

import kernelbayes as kb
from kernelbayes.compare.residuals import Candidate, LeftOver, regression


def test_a_common_cause_and_a_direct_link():
    """The link is so strong that it is found on every seed; the law of p-values covers the rest."""
    rng = np.random.default_rng(0)
    z = rng.normal(size=(150, 1))
    x, noise = z[:, 0] + 0.5 * rng.normal(size=150), 0.1 * rng.normal(size=150)
    apart, linked = z[:, 0] ** 2 + noise, z[:, 0] ** 2 + (x - z[:, 0]) + noise
    assert kb.hsic_test(x, apart, rng=0).pvalue < 0.05
    result = kb.ci_test(x, linked, z, rng=0)
    assert result.pvalue < 0.01
    assert result.effect.interval[0] > 0.0


def test_given_a_category_the_residuals_are_those_within_it():
    rng = np.random.default_rng(0)
    c = rng.choice(list("abc"), 120)
    offset = np.array([{"a": -2.0, "b": 0.0, "c": 2.0}[v] for v in c])
    common, e, f = rng.normal(size=(3, 120))
    x, y = offset + common + e, offset + common + f
    result = kb.ci_test(x, y, c, kb.Linear(), kb.Linear(), rng=0)
    # With linear kernels and the Delta kernel the statistic is a sum over cells, up to the ridge
    # and the intercept, which shrink the means of some forty points by a few percent.
    R, S = (v - np.array([v[c == cell].mean() for cell in c]) for v in (x, y))
    cells = [np.sum((R * S)[c == cell]) for cell in "abc"]
    assert result.statistic == pytest.approx(np.sum(np.square(cells)) / 120**2, rel=0.15)


def test_what_z_determines_gets_a_warning_if_it_is_both():
    rng = np.random.default_rng(0)
    z = rng.uniform(-2.0, 2.0, size=100)  # no far point, which the others could not predict
    with pytest.warns(kb.NumericalWarning, match="determines both"):
        kb.ci_test(2.0 * z, np.sin(z), z, rng=0)
    kb.ci_test(2.0 * z, z + rng.normal(size=100), z, rng=0)  # one of them: no warning
    cells, levels = np.repeat(list("ab"), 50), np.repeat([0.0, 1.0], 50)
    with pytest.warns(kb.NumericalWarning, match="left over"):
        assert kb.ci_test(levels, z, cells, kb.Gaussian(1.0), rng=0).pvalue == 1.0


def test_the_induced_covariance_is_that_of_smoothed_noise():
    """An entry is a mean of 20 000 products of variance at most one: 0.05 is seven errors."""
    rng = np.random.default_rng(0)
    z = rng.normal(size=(60, 1))
    candidates = Candidate.family(kb.Gaussian(1.0), z)
    M, _ = regression(rng.normal(size=(60, 2)), candidates[1:2])
    E = rng.normal(size=(60, 20000))  # one row of features per draw: <r_i, r_j> is the covariance
    part = LeftOver(kb.Gaussian(1.0), M @ E, M, 1.0, {})
    expected = 20000 * (M @ M.T)
    np.fill_diagonal(expected, 0.0)
    np.testing.assert_allclose(part.induced(), expected, atol=0.05 * 20000)


def test_clear_errors():
    x = np.random.default_rng(0).normal(size=30)
    with pytest.raises(ValueError, match="at least 10"):
        kb.ci_test(x[:5], x[:5], x[:5])
    with pytest.raises(ValueError, match="aligned"):
        kb.ci_test(x, x, x[:29])
    with pytest.raises(TypeError, match="must be a Kernel"):
        kb.ci_test(x, x, x, None, "rbf")


def two_conditionals(rng, n, m, shift=0.0):
    """Pairs whose x differ and whose y given x differ by a shift."""
    x1, x2 = rng.normal(size=n), rng.normal(0.7, size=m)
    y1, y2 = (np.sin(2.0 * x) + 0.3 * rng.normal(size=len(x)) for x in (x1, x2))
    return x1, y1, x2, y2 + shift


def test_conditionals_of_two_samples_given_a_category_are_compared_cell_by_cell():
    rng = np.random.default_rng(0)
    n, m = 90, 70
    x1 = rng.choice(list("ab"), n, p=(0.3, 0.7))
    x2 = rng.choice(list("ab"), m, p=(0.6, 0.4))
    y1, y2 = rng.normal(size=n), rng.normal(0.3, size=m)
    result = kb.conditional_mmd_test(x1, y1, x2, y2, kernel_y=kb.Linear(), rng=0)
    # With a linear kernel T is the sum over cells of the squared sum of (t - e)(y - mean), twice
    # because the label has two features; ridge and intercept shrink means by a few percent.
    x, y, t = np.r_[x1, x2], np.r_[y1, y2], np.repeat([1.0, 0.0], (n, m))
    cells = [np.sum((t[x == c] - t[x == c].mean()) * y[x == c]) for c in "ab"]
    expected = 2.0 * np.sum(np.square(cells)) / (n + m) ** 2
    assert result.statistic == pytest.approx(expected, rel=0.2)
    e = np.array([t[x == c].mean() for c in x])
    alike = t.mean() * (1.0 - t.mean())
    assert result.details["overlap"] == pytest.approx(np.mean(e * (1.0 - e)) / alike, rel=0.1)


def test_conditionals_that_differ_are_told_from_x_that_differ():
    """The shift is five standard errors of the difference at most x: found on every seed."""
    rng = np.random.default_rng(0)
    x1, y1, x2, y2 = two_conditionals(rng, 150, 150, 0.6)
    result = kb.conditional_mmd_test(x1, y1, x2, y2, rng=0)
    assert result.pvalue < 0.01
    assert result.effect.interval[0] > 0.0
    assert result.sizes == (150, 150)
    assert len(result.witness.values) == 300


def test_samples_that_share_no_x_have_nothing_to_compare():
    rng = np.random.default_rng(0)
    x1, y1, x2, y2 = two_conditionals(rng, 60, 60)
    with pytest.warns(kb.NumericalWarning, match="share no x"):
        result = kb.conditional_mmd_test(x1, y1, x2 + 100.0, y2, rng=0)
    assert result.details["overlap"] < 0.01


def test_pairs_of_each_sample_must_be_aligned():
    rng = np.random.default_rng(0)
    x1, y1, x2, y2 = two_conditionals(rng, 20, 20)
    with pytest.raises(ValueError, match="X2 and Y2 must be aligned rows"):
        kb.conditional_mmd_test(x1, y1, x2, y2[1:])
    with pytest.raises(ValueError, match="columns"):
        kb.conditional_mmd_test(x1, y1, np.c_[x2, x2], y2)


@pytest.mark.parametrize("seed", range(8))
def test_counts_with_ties_do_not_depend_on_the_layout_of_memory(seed):
    """Equal pairs have equal residuals; rounding that tells them apart changed the kernel."""
    rng = np.random.default_rng([seed, 17])
    sizes = {"x1": (14, 3), "y1": (14, 2), "x2": (10, 3), "y2": (10, 2)}
    counts = [rng.poisson(0.7, size=size) for size in sizes.values()]
    one = kb.conditional_mmd_test(*counts, permutations=29, rng=0)
    two = kb.conditional_mmd_test(*map(np.asfortranarray, counts), permutations=29, rng=0)
    np.testing.assert_allclose(one.statistic, two.statistic, rtol=1e-6)
