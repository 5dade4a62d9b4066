"""Goodness of fit by Stein discrepancies, and the fused two-sample test."""

import numpy as np
import pytest
from scipy import stats
from scipy.spatial.distance import pdist, squareform

import kernelbayes as kb
from kernelbayes.compare.stein import stein_forms, stein_matrix

KERNELS = [
    kb.Gaussian(1.3),
    kb.Gaussian((0.7, 2.0)),
    kb.RationalQuadratic(0.9, alpha=0.5),
    kb.RationalQuadratic((0.8, 1.7), alpha=2.0),
]
RNG = np.random.default_rng(0)
COV = np.array([[1.0, 0.6], [0.6, 2.0]])
FALSE_ALARM = 1e-6  # that a right level is called wrong here


def score(x):
    """Of a normal law with covariance COV."""
    return -x @ np.linalg.inv(COV)


# --- oracles --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_the_stein_kernel_is_its_definition(kernel):
    """Against derivatives of the kernel by central differences of step e: errors of order e^2."""
    X, Y, e = RNG.normal(size=(4, 2)), RNG.normal(size=(3, 2)), 1e-4

    def k(x, y):
        return float(kernel(x[None], y[None])[0, 0])

    found = stein_matrix(X, score(X), Y, score(Y), kernel)
    for i, x in enumerate(X):
        for j, y in enumerate(Y):
            s, t = score(x[None])[0], score(y[None])[0]
            total = float(s @ t) * k(x, y)
            for a in e * np.eye(2):
                by_x = (k(x + a, y) - k(x - a, y)) / (2 * e)
                by_y = (k(x, y + a) - k(x, y - a)) / (2 * e)
                both = k(x + a, y + a) - k(x + a, y - a) - k(x - a, y + a) + k(x - a, y - a)
                at = int(np.argmax(a))
                total += s[at] * by_y + t[at] * by_x + both / (4 * e * e)
            # Third derivatives are of order one, and rounding 1e-16 / e^2 is 1e-8.
            assert found[i, j] == pytest.approx(total, abs=1e-6)


def quadrature(mean, sd, size=60):
    """Points and weights of Gauss and Hermite for N(mean, sd^2)."""
    points, weights = np.polynomial.hermite_e.hermegauss(size)
    return (mean + sd * points)[:, None], weights / weights.sum()


@pytest.mark.parametrize(
    "kernel", [kb.Gaussian(1.5), kb.RationalQuadratic(2.0, alpha=0.5)], ids=repr
)
def test_its_mean_under_the_density_is_zero(kernel):
    """Stein's identity: the mean of u_p(x, .) under p, by quadrature (exact to 1e-4 for the second,
    whose series converges slowly; to rounding for the first)."""
    points, w = quadrature(0.0, 1.0)
    at = np.linspace(-3.0, 3.0, 7)[:, None]
    means = stein_matrix(at, -at, points, -points, kernel) @ w
    np.testing.assert_allclose(means, 0.0, atol=1e-4)


@pytest.mark.parametrize("shift", [0.0, 0.5, -1.2])
@pytest.mark.parametrize("h", [1.0, 2.5])
def test_a_shifted_normal_has_its_closed_form(shift, h):
    """Scores differ by the shift c everywhere: KSD^2 = c^2 E k(x, x') = c^2 h / sqrt(h^2 + 2)."""
    points, w = quadrature(shift, 1.0)
    W = (w * len(w))[:, None]  # forms are means over pairs
    found = stein_forms(points, -points, kb.Gaussian(h), W)[0][0]
    assert found == pytest.approx(shift**2 * h / np.sqrt(h * h + 2.0), abs=1e-9)


def test_blocks_change_nothing(monkeypatch):
    X, W = RNG.normal(size=(50, 2)), RNG.normal(size=(50, 3))
    whole, means = stein_forms(X, score(X), KERNELS[0], W)
    U = stein_matrix(X, score(X), X, score(X), KERNELS[0])
    np.testing.assert_allclose(whole, np.einsum("ib,ij,jb->b", W, U, W) / 50**2, atol=1e-10)
    np.testing.assert_allclose(means, U @ W / 50, atol=1e-10)
    monkeypatch.setattr("kernelbayes.arrays.BLOCK_ENTRIES", 50 * 7)
    again = stein_forms(X, score(X), KERNELS[0], W)
    np.testing.assert_allclose(again[0], whole, atol=1e-10)
    np.testing.assert_allclose(again[1], means, atol=1e-10)


# --- level and power ------------------------------------------------------------------------------


def test_the_level_is_exact_with_samples_of_the_density():
    """Rejections at level 20 % among 200 samples of four points are binomial."""
    rng = np.random.default_rng(1)
    rejected = 0
    for _ in range(200):
        x = rng.normal(size=(4, 1))
        p = kb.ksd_test(x, lambda v: -v, draws=19, rng=rng, sample=lambda n, r: r.normal(size=n))
        rejected += p.pvalue <= 0.2
    low, high = stats.binom(200, 0.2).ppf([FALSE_ALARM / 2, 1 - FALSE_ALARM / 2])
    assert low <= rejected <= high


@pytest.mark.parametrize("d", [1, 3])
@pytest.mark.parametrize("n", [5, 40])
def test_the_bootstrap_has_the_moments_of_the_null_distribution_at_every_n(n, d):
    """Exact, for any n. Under the density the mean of u_p(x, .) is zero, so the terms of different
    pairs are uncorrelated: off its diagonal the statistic has mean 0 and variance
    2 / n^4 sum E u_ij^2. Given the sample, signs make a bootstrap of mean 0 and variance
    2 / n^4 sum u_ij^2. So s^2 minus the bootstrap's variance has mean zero over samples; means of
    1500 are normal."""
    rng, kernel = np.random.default_rng(2), kb.Gaussian(1.5)
    gaps, values = np.empty(1500), np.empty(1500)
    for i in range(len(gaps)):
        x = rng.normal(size=(n, d))
        U = stein_matrix(x, -x, x, -x, kernel)
        np.fill_diagonal(U, 0.0)
        values[i] = U.sum() / n**2
        gaps[i] = values[i] ** 2 - 2.0 * np.sum(U**2) / n**4
    z = stats.norm.isf(FALSE_ALARM / 2)
    for found in (values, gaps):
        assert abs(found.mean()) < z * found.std() / np.sqrt(len(found))


def test_the_null_draws_are_the_bootstrap_with_signs():
    """Mean and variance of the draws, against the sums over the sample that they estimate."""
    x, kernel = np.random.default_rng(3).normal(size=(30, 2)), kb.Gaussian(1.5)
    null = kb.ksd_test(x, lambda v: -v, kernel, draws=4000, rng=0).null
    U = stein_matrix(x, -x, x, -x, kernel)
    mean = np.trace(U) / 30**2
    np.fill_diagonal(U, 0.0)
    squares = (null - mean) ** 2
    z = stats.norm.isf(FALSE_ALARM / 2)
    assert abs(null.mean() - mean) < z * null.std() / np.sqrt(len(null))
    variance = 2.0 * np.sum(U**2) / 30**4
    assert abs(squares.mean() - variance) < z * squares.std() / np.sqrt(len(null))


@pytest.mark.parametrize("d", [1, 3])
def test_the_bootstrap_has_its_level_at_a_hundred_points(d):
    """No more rejections than a binomial of 5 % has."""
    rng = np.random.default_rng(2)
    rejected = sum(
        kb.ksd_test(rng.normal(size=(100, d)), lambda v: -v, draws=200, rng=rng).pvalue <= 0.05
        for _ in range(200)
    )
    assert rejected <= stats.binom(200, 0.05).ppf(1 - FALSE_ALARM)


def test_chains_need_a_memory():
    """A slow autoregression of the right law is rejected as if independent, not with a memory."""
    rng = np.random.default_rng(3)
    plain = remembered = 0
    for _ in range(30):
        x = np.empty(300)
        x[0] = rng.normal()
        for t in range(1, 300):
            x[t] = 0.9 * x[t - 1] + np.sqrt(1 - 0.81) * rng.normal()
        plain += kb.ksd_test(x, lambda v: -v, draws=200, rng=rng).pvalue <= 0.05
        found = kb.ksd_test(x, lambda v: -v, draws=200, rng=rng, block_length=40.0)
        remembered += found.pvalue <= 0.05
    # The variance of a mean is 19 times that of independent points: nearly all are rejected.
    assert plain >= 15
    assert remembered <= 10
    assert remembered < plain


@pytest.mark.parametrize("options", [{}, {"sample": lambda n, r: r.normal(size=(n, 2))}])
def test_wrong_samples_are_found_where_they_are_wrong(options):
    rng = np.random.default_rng(4)
    x = np.vstack([rng.normal(size=(150, 2)), rng.normal(4.0, 0.3, size=(30, 2))])
    found = kb.ksd_test(x, lambda v: -v, draws=200, rng=0, **options)
    statistic, p = found
    assert p == 1 / 201
    assert statistic > found.null.max()
    assert found.witness.values[150:].mean() > found.witness.values[:150].mean()
    assert found.method == ("simulation" if options else "wild")
    assert "KSD test" in repr(found)


def test_scores_may_be_given_as_an_array():
    x = RNG.normal(size=(40, 2))
    a, b = (kb.ksd_test(x, s, draws=50, rng=0) for s in (score, score(x)))
    assert (a.statistic, a.pvalue) == (b.statistic, b.pvalue)


def test_units_do_not_matter():
    x = RNG.normal(size=(60, 1))
    a = kb.ksd_test(x, lambda v: -v, draws=100, rng=0)
    b = kb.ksd_test(1000.0 * x, lambda v: -v / 1e6, draws=100, rng=0)
    assert a.pvalue == b.pvalue


@pytest.mark.parametrize(
    ("arguments", "error", "match"),
    [
        ({"score": lambda v: v[:, :1]}, ValueError, "shape of the points"),
        ({"score": lambda v: np.full_like(v, np.nan)}, ValueError, "score"),
        ({"kernel": kb.Laplace(1.0)}, TypeError, "two derivatives"),
        ({"kernel": "rbf"}, TypeError, "two derivatives"),
        ({"block_length": 0.0}, ValueError, "block_length"),
        ({"draws": 0}, ValueError, "draws"),
        ({"alpha": 2.0}, ValueError, "alpha"),
        ({"score": np.zeros((20, 2)), "sample": lambda n, r: r.normal(size=(n, 2))},
         TypeError, "function"),
        ({"sample": lambda n, r: r.normal(size=n)}, ValueError, "sample must have the shape"),
        ({"X": np.zeros((1, 2))}, ValueError, "too few"),
    ],
)  # fmt: skip
def test_bad_input_is_told(arguments, error, match):
    given = {"X": RNG.normal(size=(20, 2)), "score": score, **arguments}
    with pytest.raises(error, match=match):
        kb.ksd_test(**given, rng=0)


# --- MMD-FUSE -------------------------------------------------------------------------------------


def by_hand(X, Y, bandwidths):
    """Biggs et al. 2023, definition 2, written out."""
    Z, n = np.vstack([X, Y]), len(X)
    D = squareform(pdist(Z, "sqeuclidean"))
    terms = []
    for h in bandwidths:
        K = np.exp(-D / (2 * h * h))
        off = K - np.diag(np.diag(K))
        m = len(Y)
        value = off[:n, :n].sum() / (n * (n - 1)) + off[n:, n:].sum() / (m * (m - 1))
        value -= 2 * K[:n, n:].mean()
        N = len(Z)
        terms.append(value / np.sqrt((off**2).sum() / (N * (N - 1))))
    small = min(n, len(Y))
    sharpness = np.sqrt(small * (small - 1))
    return np.log(np.mean(np.exp(sharpness * np.array(terms)))) / sharpness


@pytest.mark.parametrize("sizes", [(20, 20), (25, 12)])
def test_the_fused_statistic_is_its_definition(sizes):
    X, Y = RNG.normal(size=(sizes[0], 2)), RNG.normal(0.3, 1.0, size=(sizes[1], 2))
    hs = [0.5, 1.0, 3.0]
    found = kb.mmd_fuse(X, Y, [kb.Gaussian(h) for h in hs], permutations=30, rng=0)
    # A Gram matrix may be held as a factor of relative accuracy 1e-8.
    assert found.statistic == pytest.approx(by_hand(X, Y, hs), abs=1e-6)
    assert sum(row["share"] for row in found.details["table"]) == pytest.approx(1.0)


def test_the_fused_test_has_exact_level():
    """Rejections at level 20 % among 200 pairs of samples of five points are binomial."""
    rng = np.random.default_rng(5)
    rejected = sum(
        kb.mmd_fuse(rng.normal(size=5), rng.normal(size=5), permutations=19, rng=rng).pvalue <= 0.2
        for _ in range(200)
    )
    low, high = stats.binom(200, 0.2).ppf([FALSE_ALARM / 2, 1 - FALSE_ALARM / 2])
    assert low <= rejected <= high


def test_all_splits_are_used_if_there_are_few():
    x, y = np.arange(3.0), np.arange(10.0, 13.0)
    found = kb.mmd_fuse(x, y, permutations=1000, rng=0)
    assert len(found.null) == 19  # 6 over 3, without the observed one
    assert found.pvalue == 2 / 20  # the split and its mirror image


def test_fused_power_is_not_lost_to_useless_kernels():
    rng = np.random.default_rng(6)
    x, y = rng.normal(size=(80, 1)), rng.normal(1.0, 1.0, size=(80, 1))
    useless = [kb.Gaussian(h) for h in (1e-3, 1e-2, 1.0, 1e3)]
    assert kb.mmd_fuse(x, y, useless, permutations=200, rng=0).pvalue < 0.05


@pytest.mark.filterwarnings("ignore::kernelbayes.NumericalWarning")
def test_constant_data_have_p_value_one():
    assert kb.mmd_fuse(np.ones(10), np.ones(12), permutations=50, rng=0).pvalue == 1.0
