"""Conditional independence: residuals, their induced covariance, what z determines."""

import numpy as np
import pytest

import kernelbayes as kb
from kernelbayes.compare.conditional import Candidate, LeftOver, regression


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
