"""Checks of posteriors, on posteriors whose faults are known."""

import warnings
from dataclasses import dataclass

import matplotlib as mpl
import numpy as np
import pytest
from scipy import stats

from kernelbayes import Gaussian, NumericalWarning, embed
from kernelbayes.likelihood_free.checks import coverage, sbc
from kernelbayes.likelihood_free.pairs import pair_plot
from kernelbayes.likelihood_free.predictive import posterior_predictive
from kernelbayes.likelihood_free.results import coverage_pvalues, ranks_among, uniform_pvalues

mpl.use("Agg")

PRIOR = [stats.norm(), stats.norm()]


@pytest.fixture(autouse=True)
def _close_figures():
    yield
    import matplotlib.pyplot as plt

    plt.close("all")


def simulator(theta, rng):
    return rng.normal(theta)


@dataclass
class Normal:
    """The posterior N(x / 2, 1/2) of each coordinate, shifted and scaled."""

    mean: np.ndarray
    sd: float

    def sample(self, m, rng=None):
        return np.random.default_rng(rng).normal(self.mean, self.sd, size=(m, len(self.mean)))


@dataclass
class NormalWithDensity(Normal):
    def log_density(self, theta):
        return stats.norm.logpdf(theta, self.mean, self.sd).sum(axis=1)


@dataclass
class Model:
    shift: float = 0.0
    scale: float = 1.0
    kind: type = Normal

    def posterior(self, x):
        return self.kind(x / 2 + self.shift, self.scale * 0.5**0.5)


FAULTS = [
    (Model(), "calibrated"),
    (Model(scale=0.6), "too narrow"),
    (Model(scale=1.7), "too wide"),
    (Model(shift=0.5), "biased up"),
    (Model(shift=-0.5), "biased down"),
]


@pytest.mark.parametrize(("model", "words"), FAULTS)
def test_sbc_names_the_fault(model, words):
    result = sbc(model, PRIOR, simulator, n_simulations=200, rng=0)
    assert result.ranks.shape == (200, 2)
    assert result.n_draws == 100
    assert result.calibrated is (words == "calibrated")
    assert words in result.verdict
    assert words in repr(result)
    assert all(words in word for word in result.verdicts.values())
    assert len(result.plot()) == 2


def test_sbc_accepts_functions_pairs_and_names():
    rng = np.random.default_rng(0)
    theta = rng.normal(size=150)
    x = rng.normal(theta)
    given = sbc(lambda x: rng.normal(x / 2, 0.5**0.5, size=60), theta=theta, x=x, rng=1)
    assert given.ranks.shape == (150, 1)
    assert given.n_draws == 60
    assert given.calibrated
    named = sbc(Model(), {"a": stats.norm(), "b": stats.norm()}, simulator, n_simulations=20, rng=0)
    assert named.names == ("a", "b")


def test_sbc_of_pairs_takes_the_names_of_the_model():
    class Named:
        names_ = ("rate",)

        def posterior(self, x):
            return np.random.default_rng(0).normal(x / 2, np.sqrt(1 / 2), size=(100, 1))

    theta = np.random.default_rng(1).normal(size=(20, 1))
    assert sbc(Named(), theta=theta, x=theta, rng=0).names == ("rate",)


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_warnings_of_many_posteriors_are_one(n_jobs):
    def warning_model(x):
        if x[0] > 0:
            warnings.warn("far away", NumericalWarning, stacklevel=2)
        return np.random.default_rng(0).normal(x / 2, np.sqrt(1 / 2), size=(100, 1))

    theta = np.linspace(-2, 2, 20)[:, None]
    with pytest.warns(NumericalWarning, match="10 of 20 posteriors .* far away") as caught:
        coverage(warning_model, theta=theta, x=theta, joint="distance", rng=0, n_jobs=n_jobs)
    assert len(caught) == 1


def test_sbc_of_an_embedding():
    """Draws of an embedding of exact posterior points are exact, up to their small number."""

    class Embedded:
        def posterior(self, x):
            points = np.random.default_rng(abs(int(1e6 * x[0]))).normal(
                x / 2, 0.5**0.5, size=(300, 1)
            )
            return embed(points, Gaussian(0.5))

    assert (
        sbc(Embedded(), stats.norm(), simulator, n_simulations=60, n_draws=40, rng=0).pvalue > 1e-3
    )


def test_the_same_seed_gives_the_same_ranks():
    a, b = (sbc(Model(), PRIOR, simulator, n_simulations=30, rng=7) for _ in range(2))
    np.testing.assert_array_equal(a.ranks, b.ranks)


def test_ranks_break_ties_evenly():
    ranks = ranks_among(np.zeros((4000, 1)), np.zeros((4000, 3, 1)), np.random.default_rng(0))
    counts = np.bincount(ranks[:, 0], minlength=4)
    assert stats.chisquare(counts).pvalue > 1e-6
    sure = ranks_among(
        np.array([[2.5]]), np.array([[[1.0], [2.0], [3.0]]]), np.random.default_rng(0)
    )
    assert sure == [[2]]


@pytest.mark.parametrize("m", [1, 9, 250])
def test_uniform_ranks_have_uniform_pvalues(m):
    rng = np.random.default_rng(0)
    p = uniform_pvalues(rng.integers(m + 1, size=(100, 400)), m)
    # Counts are discrete: p-values are valid (not too small too often), not exactly uniform.
    for level in (0.01, 0.05, 0.2):
        assert np.sum(p <= level) <= stats.binom.ppf(1 - 1e-5, 400, level)
    if m > 1:
        assert np.sum(p <= 0.2) >= stats.binom.ppf(1e-5, 400, 0.1)


@pytest.mark.slow
def test_calibrated_posteriors_are_rarely_accused():
    """Verdicts are at level 1 %: of 400 exact models about four are accused."""
    rng = np.random.default_rng(0)
    accused = []
    for _ in range(400):
        theta = rng.normal(size=(100, 2))
        pairs = {"theta": theta, "x": rng.normal(theta)}
        accused.append(not sbc(Model(), **pairs, n_draws=50, rng=rng).calibrated)
        verdict = coverage(Model(), **pairs, n_draws=50, rng=rng).verdict
        accused.append("as it should" not in verdict)
    for part in (accused[::2], accused[1::2]):
        assert sum(part) <= stats.binom.ppf(1 - 1e-4, 400, 0.01)


@pytest.mark.slow
def test_processes_do_not_change_the_ranks():
    def model(x):
        return np.random.default_rng(abs(int(1e7 * x[0]))).normal(x / 2, 0.5**0.5, size=(50, 1))

    a, b = (
        sbc(
            model,
            stats.norm(),
            lambda theta, rng: rng.normal(theta),
            n_simulations=30,
            rng=0,
            n_jobs=jobs,
        )
        for jobs in (1, 2)
    )
    np.testing.assert_array_equal(a.ranks, b.ranks)


@pytest.mark.parametrize("kind", [Normal, NormalWithDensity])
def test_coverage_of_exact_posteriors(kind):
    result = coverage(Model(kind=kind), PRIOR, simulator, n_simulations=300, rng=0)
    assert result.kind == ("density" if kind is NormalWithDensity else "distance")
    assert result.coverage.shape == (3, 2)
    assert result.joint.shape == (3,)
    assert result.band.shape == (3, 2)
    held = np.column_stack([result.coverage, result.joint])
    assert np.all(coverage_pvalues(held, 300, result.levels) > 1e-4)
    assert "as it should" in result.verdict
    assert "90 %" in repr(result)
    assert result.plot().get_xlabel() == "level"


@pytest.mark.parametrize("kind", [Normal, NormalWithDensity])
@pytest.mark.parametrize(
    ("scale", "words", "sign"), [(0.6, "too narrow", -1), (1.7, "too wide", 1)]
)
def test_coverage_names_the_fault(kind, scale, words, sign):
    result = coverage(Model(scale=scale, kind=kind), PRIOR, simulator, n_simulations=300, rng=0)
    assert words in result.verdict
    assert np.all(sign * (result.coverage - result.levels[:, None]) > 0)
    assert np.all(sign * (result.joint - result.levels) > 0)
    # The exact coverage: the level-q interval of a normal scaled by s holds 2 Phi(s z) - 1.
    z = stats.norm.ppf((1 + result.levels) / 2)
    expected = 2 * stats.norm.cdf(scale * z) - 1
    error = 5 * np.sqrt(expected * (1 - expected) / 300) + 0.01
    assert np.all(np.abs(result.coverage - expected[:, None]) < error[:, None])


def test_joint_coverage_sees_what_intervals_do_not():
    """Marginals are right, the correlation has the wrong sign."""

    def wrong(x):
        cov = 0.5 * np.array([[1.0, -0.9], [-0.9, 1.0]])
        return np.random.default_rng(abs(int(1e7 * x[0]))).multivariate_normal(x / 2, cov, size=200)

    rng = np.random.default_rng(0)
    noise = np.array([[1.0, 0.9], [0.9, 1.0]])
    theta = rng.multivariate_normal([0, 0], noise, size=400)
    x = theta + rng.multivariate_normal([0, 0], noise, size=400)
    result = coverage(wrong, theta=theta, x=x, rng=1)
    assert np.all(coverage_pvalues(result.coverage, 400, result.levels) > 1e-4)
    assert coverage_pvalues(result.joint, 400, result.levels).min() < 1e-4
    assert "joint regions" in result.verdict


def test_bad_use_of_the_checks_is_refused():
    pairs = {"theta": np.zeros((5, 2)), "x": np.zeros((5, 2))}
    with pytest.raises(ValueError, match="give prior and simulator"):
        sbc(Model(), PRIOR, rng=0)
    with pytest.raises(ValueError, match="give either"):
        sbc(Model(), PRIOR, simulator, **pairs, rng=0)
    with pytest.raises(ValueError, match="give either"):
        sbc(Model(), rng=0)
    with pytest.raises(ValueError, match="5 parameters but 4"):
        sbc(Model(), theta=np.zeros((5, 2)), x=np.zeros((4, 2)), rng=0)
    with pytest.raises(ValueError, match="have 2 parameters, the truth has 3"):
        sbc(Model(), theta=np.zeros((5, 3)), x=np.zeros((5, 2)), rng=0)
    with pytest.raises(TypeError, match="posterior"):
        sbc(1.0, **pairs, rng=0)
    with pytest.raises(ValueError, match="n_draws must be"):
        sbc(Model(), **pairs, n_draws=0, rng=0)
    with pytest.raises(ValueError, match="different shapes"):
        sbc(lambda x: np.zeros((1 + int(x[0]), 2)), theta=np.zeros((2, 2)), x=np.eye(2), rng=0)
    with pytest.raises(ValueError, match="no log_density"):
        coverage(Model(), **pairs, joint="density", rng=0)
    with pytest.raises(ValueError, match="levels"):
        coverage(Model(), **pairs, levels=(0.5, 1.0), rng=0)
    with pytest.raises(ValueError, match="joint"):
        coverage(Model(), **pairs, joint="both", rng=0)


def test_predictive_check_of_a_good_and_a_bad_observation():
    posterior = Normal(np.array([0.0, 1.0]), 0.1)
    good = posterior_predictive(posterior, simulator, [0.3, 0.8], rng=0)
    assert good.x.shape == (200, 2)
    assert "looks like" in good.verdict
    assert good.pvalue > 0.1
    bad = posterior_predictive(posterior, simulator, [0.3, -6.0], rng=0)
    assert bad.pvalue < 0.01
    assert "x[1] is low" in bad.verdict
    assert "p = 0.005" in repr(bad)
    assert len(bad.plot()) == 2


def test_predictive_check_sees_correlations():
    def tied(theta, rng):
        shared = rng.normal()
        return np.array([shared, shared + 0.05 * rng.normal()])

    result = posterior_predictive(np.zeros((300, 1)), tied, [1.0, -1.0], n_simulations=300, rng=0)
    assert result.pvalues.min() > 0.1
    assert result.pvalue < 0.01
    assert "no column alone" in result.verdict


def test_predictive_pvalues_are_valid():
    rng = np.random.default_rng(0)
    p = np.array(
        [
            posterior_predictive(
                np.zeros((99, 3)), simulator, rng.normal(size=3), rng=rng, vectorized=True
            ).pvalue
            for _ in range(200)
        ]
    )
    for level in (0.05, 0.2, 0.5):
        low, high = stats.binom.interval(1 - 1e-5, 200, level)
        assert low <= np.sum(p <= level) <= high


def test_predictive_check_with_statistics_and_many_columns():
    posterior = Normal(np.zeros(1), 0.1)

    def series(theta, rng):
        return theta[0] + rng.normal(size=40)

    result = posterior_predictive(
        posterior, series, np.zeros(40), statistic=lambda x: {"sd": x.std(), "max": x.max()}, rng=0
    )
    assert result.names == ("sd", "max")
    assert "sd is low" in result.verdict
    many = posterior_predictive(posterior, series, np.zeros(40), rng=0)
    assert len(many.plot()) == 1
    wide = posterior_predictive(
        posterior, lambda t, rng: rng.normal(size=400), np.zeros(400), rng=0
    )
    assert 0 < wide.pvalue <= 1
    constant = posterior_predictive(posterior, lambda t, rng: np.ones(2), np.ones(2), rng=0)
    assert constant.pvalue == 1.0


def test_predictive_check_counts_failures():
    posterior = Normal(np.zeros(1), 1.0)
    with pytest.warns(NumericalWarning, match="failed"):
        result = posterior_predictive(
            posterior, lambda t, rng: np.nan if t[0] < 0 else t[0] + rng.normal(), [1.0], rng=0
        )
    assert len(result.x) < 200


@pytest.mark.parametrize("d", [1, 3])
def test_pair_plot(d):
    posterior = Normal(np.zeros(d), 0.3)
    axes = pair_plot(posterior, [stats.norm()] * d, truth=np.zeros(d), n_draws=200)
    assert axes.shape == (d, d)
    assert axes[d - 1, 0].get_xlabel() == "theta[0]"
    axes = pair_plot(np.zeros((30, d)), names=[f"p{j}" for j in range(d)])
    assert axes[d - 1, 0].get_xlabel() == "p0"
    with pytest.raises(ValueError, match="names"):
        pair_plot(posterior, names=["a"] * (d + 1))
    with pytest.raises(ValueError, match="truth"):
        pair_plot(posterior, truth=np.zeros(d + 1))
    with pytest.raises(ValueError, match="the prior has"):
        pair_plot(posterior, [stats.norm()] * (d + 1))


def test_pair_plot_takes_the_priors_names_and_discrete_parameters():
    prior = {"rate": stats.gamma(2.0), "count": stats.poisson(3.0)}
    draws = np.column_stack(
        [np.random.default_rng(0).gamma(2.0, size=50), np.repeat([1.0, 2.0], 25)]
    )
    axes = pair_plot(draws, prior)
    assert axes[1, 0].get_ylabel() == "count"


def test_plots_take_axes():
    import matplotlib.pyplot as plt

    result = sbc(Model(), PRIOR, simulator, n_simulations=30, rng=0)
    axes = plt.subplots(1, 2)[1]
    assert result.plot(axes, bins=5)[1] is axes[1]
    with pytest.raises(ValueError, match="2 axes"):
        result.plot(axes[0])
