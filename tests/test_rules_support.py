"""Outside of the training sample: answers go over into the prior, and a warning says so."""

import warnings

import numpy as np
import pytest

import edges
import kernelbayes as kb
from kernelbayes.rules import conditional, support

each_method = pytest.mark.parametrize("method", ["importance", "original"])
quiet = pytest.mark.filterwarnings("ignore:.*lie outside:kernelbayes.NumericalWarning")


def linear_gaussian(seed=0, n=300, noise=0.5):
    """Hidden z from N(0, 1), observed x = z + noise."""
    rng = np.random.default_rng(seed)
    z = rng.normal(size=n)
    return z + noise * rng.normal(size=n), z


def categories():
    """Hidden h or l, observed a or b, ten of each pair but for one."""
    pairs = [("a", 1.0)] * 10 + [("a", 0.0)] * 5 + [("b", 0.0)] * 10
    return [x for x, _ in pairs], np.array([z for _, z in pairs])


# --- oracles -------------------------------------------------------------------------------------


@each_method
@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("form", ["a", "b"])
def test_an_unseen_category_has_the_prior_as_its_posterior(method, normalize, form):
    x, z = categories()
    options = {"method": method, "normalize": normalize, "form": form, "prior_ridge": 1e-9}
    rule = kb.KernelBayesRule(kb.Delta(), kb.Delta(), ridge=1e-9, **options)
    rule.fit(x, z, prior=[0.0, 1.0, 1.0, 1.0])
    with pytest.warns(kb.NumericalWarning, match=r"1 of 2 points \(1\) lie outside .* 100%"):
        found = rule.posterior(["a", "never seen"])
    assert found[1].prob(lambda p: p == 1.0, valid=False) == pytest.approx(0.75, abs=1e-6)
    assert found.mean()[1, 0] == pytest.approx(0.75, abs=1e-6)
    assert found.mass[1] == pytest.approx(1.0)
    assert found.diagnostics.prior_share == pytest.approx([0.0, 1.0])
    assert found.diagnostics.support == pytest.approx([1.0, 0.0])
    # A seen one is what Bayes' rule says of the table: P(a | 1) = 1, P(a | 0) = 1/3.
    assert found.mean()[0, 0] == pytest.approx(0.75 / (0.75 + 0.25 / 3), abs=1e-6)
    with pytest.warns(kb.NumericalWarning, match="1 of 2 points"):
        assert rule.predict(["a", "never seen"])[1] == pytest.approx(0.75, abs=1e-6)


@each_method
@pytest.mark.parametrize("rank", [None, 20])
def test_far_away_the_posterior_is_the_prior(method, rank):
    x, z = linear_gaussian()
    prior = np.random.default_rng(1).normal(0.5, 0.8, size=400)
    rule = kb.KernelBayesRule(method=method, rank=rank, rng=0).fit(x, z, prior=prior)
    with pytest.warns(kb.NumericalWarning, match="2 of 2 points"):
        far = rule.posterior([30.0, -1e7])
    # The prior by its weights on 300 pairs: they miss its mean and deviation by less than 0.1.
    np.testing.assert_allclose(far.mean()[:, 0], 0.5, atol=0.15)
    np.testing.assert_allclose(far.std()[:, 0], 0.8, atol=0.15)
    np.testing.assert_allclose(far.mass, 1.0)
    low, high = far.interval(0.9)[:, 0].T
    assert np.all((low < -0.3) & (high > 1.3))


@quiet
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("n", [100, 400])
@pytest.mark.parametrize("default", [False, True])
def test_beyond_the_sample_the_posterior_is_never_certain(seed, n, default):
    """The closed form has a deviation of 0.45 everywhere, the prior 1.

    Weights of the formula collapse here: intervals at four standard deviations are one point.
    """
    x, z = linear_gaussian(seed, n)
    kernels = () if default else (kb.Gaussian.median(x), kb.Gaussian.median(z))
    rule = kb.KernelBayesRule(*kernels).fit(x, z)
    edge = np.abs(x).max()
    # The last is far also for the bandwidths chosen here, at most 3.
    at = np.array([edge + 0.7, edge + 1.5, edge + 3.0, edge + 10.0, edge + 40.0])
    found = rule.posterior(at)
    share, spread = found.diagnostics.prior_share, z.std()
    # A mixture has at least the variance of its parts: the prior's share of the prior's.
    assert np.all(found.std()[:, 0] >= np.sqrt(share) * spread * (1.0 - 1e-6))
    assert np.all(found.std()[:, 0] >= 0.4)
    assert found.std()[-1, 0] == pytest.approx(spread)
    widths = np.diff(found.interval(0.9)[:, 0], axis=1)[:, 0]
    assert np.all(widths > 1.0)
    # Mass that is missing is measured from what is usual inside.
    assert np.all(found.mass >= rule.rule_.usual_mass - 1e-9)
    np.testing.assert_allclose(rule.predict(at), found.mean()[:, 0], atol=1e-8)


def test_the_formula_is_in_reach():
    x, z = linear_gaussian()
    plain = kb.KernelBayesRule(literal=True).fit(x, z)  # no warning either
    far = plain.posterior([4.5, 1e3])
    np.testing.assert_array_equal(far.weights, plain.rule_([4.5, 1e3]).weights)
    assert far.mass[1] == 0.0
    np.testing.assert_allclose(plain.predict([4.5, 1e3]), far.weights @ z, atol=1e-9)
    with pytest.warns(kb.NumericalWarning, match="points"):
        filled = kb.KernelBayesRule().fit(x, z).posterior([4.5, 1e3])
    np.testing.assert_allclose(filled.diagnostics.mass, far.mass)  # what the rule itself gave
    assert filled.diagnostics.prior_share[1] == 1.0


@quiet
@pytest.mark.parametrize("problem", ["line on a range", "wave", "product"])
def test_wrong_answers_at_the_edge_are_warned_of_and_few_others(problem):
    """At 1.25 and 1.5 times the range; tests/edges.py measures it on more problems."""
    runs = [edges.asked(problem, 200, seed, 300, 30) for seed in range(2)]
    warned, bad = np.concatenate([run[k] for run in runs for k in (1.25, 1.5)]).T.astype(bool)
    assert bad.any()
    assert warned[bad].mean() >= 0.8
    # Of points drawn like the sample 1 % have less than the usual support: three times that, and
    # what 600 draws add to it.
    inside = np.concatenate([run[0.0] for run in runs])
    assert inside[:, 0].mean() <= 0.03 + 3.0 * np.sqrt(0.03 / 600)


@quiet
def test_what_is_filled_in_counts_negative_weights_that_were_dropped():
    x, z = linear_gaussian(1, 400)
    rule = kb.KernelBayesRule(kb.Gaussian(1.0), ridge=1e-6).fit(x, z)
    at = np.array([0.0, np.abs(x).max() + 0.5])
    found, raw = rule.posterior(at), rule.rule_(at)
    share, filled = found.diagnostics.prior_share, found.diagnostics.filled
    assert raw.ess[1] < 1.0
    assert filled[0] == share[0] == 0.0
    assert filled[1] == pytest.approx(1.0 - (1.0 - share[1]) * raw.ess[1])
    assert found[1].diagnostics.filled == filled[1]


# --- laws ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("rank", [None, 40])
def test_inside_the_sample_nothing_changes(seed, rank):
    x, z = linear_gaussian(seed)
    x = np.clip(x, -2.0, 2.0)  # no sparse ends
    at = np.linspace(-1.9, 1.9, 30)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rule = kb.KernelBayesRule(rank=rank, rng=0).fit(x, z)
        near = rule.rule_(at).diagnostics.support
        at = at[near >= rule.rule_.inputs.usual_support]  # a gap in the sample is outside of it
        assert len(at) > 20
        found, means = rule.posterior(at), rule.predict(at)
    np.testing.assert_array_equal(found.weights, rule.rule_(at).weights)
    np.testing.assert_array_equal(found.diagnostics.prior_share, 0.0)
    np.testing.assert_allclose(means, found.mean()[:, 0], atol=1e-7)


@quiet
@pytest.mark.parametrize("kernel", [None, kb.Gaussian(0.3), kb.Laplace(1.0), kb.Matern(1.0, 1.5)])
@pytest.mark.parametrize("normalize", [False, True])
def test_the_prior_s_share_grows_on_the_way_out(kernel, normalize):
    rng = np.random.default_rng(3)
    X = rng.normal(size=(300, 2))
    Z = X @ [1.0, -1.0] + 0.3 * rng.normal(size=300)
    rule = kb.KernelBayesRule(kernel, normalize=normalize).fit(X, Z)
    direction = np.array([0.6, 0.8])
    away = np.linspace(0.0, 25.0, 60)[:, None] * direction
    share = rule.posterior(away).diagnostics.prior_share
    # The mass of a regression that extrapolates may rise a little before it falls.
    assert np.all(np.diff(share) >= -0.02)
    assert share[0] == 0.0
    assert share[-1] == pytest.approx(1.0)


@quiet
@pytest.mark.parametrize("unit", [1e-6, 1e3])
def test_units_do_not_matter(unit):
    x, z = linear_gaussian()
    at = np.array([0.0, 3.5, 4.5, 8.0])
    one = kb.KernelBayesRule().fit(x, z).posterior(at)
    other = kb.KernelBayesRule().fit(unit * x, unit * z).posterior(unit * at)
    # Automatic ridges may condition the solves up to 1e8.
    np.testing.assert_allclose(
        other.diagnostics.prior_share, one.diagnostics.prior_share, atol=1e-6
    )
    np.testing.assert_allclose(other.std(), unit * one.std(), rtol=1e-3)
    np.testing.assert_allclose(other.mean(), unit * one.mean(), rtol=1e-4, atol=1e-4 * unit)


@quiet
def test_where_zero_lies_does_not_matter_far_away():
    """A mean that goes to zero depends on the origin of z; one that goes to the prior does not."""
    x, z = linear_gaussian()
    one, other = (
        kb.KernelBayesRule().fit(x, z + c).predict([12.0, 50.0]) - c for c in (0.0, 100.0)
    )
    np.testing.assert_allclose(one, other, atol=0.05)


@quiet
def test_a_linear_kernel_extrapolates_as_ever():
    """Its weights have no mass to speak of, and nothing is missing from them."""
    x, z = linear_gaussian()
    rule = kb.KernelBayesRule(kb.Linear(), kb.Gaussian(1.0)).fit(x, z)
    plain = kb.KernelBayesRule(kb.Linear(), kb.Gaussian(1.0), literal=True).fit(x, z)
    at = np.array([-10.0, 0.5, 10.0])
    np.testing.assert_allclose(rule.predict(at), plain.predict(at), rtol=1e-9)


def test_conditional_embeddings_tell_and_fill_if_asked():
    x, z = categories()
    plain = kb.ConditionalEmbedding(kb.Delta(), kb.Gaussian(1.0), 1e-9).fit(x, z)
    with pytest.warns(kb.NumericalWarning, match=r"1 of 1 points \(0\).*fill=True"):
        found = plain("never seen")
    assert found.mass == 0.0
    assert found.diagnostics.prior_share == 1.0
    asked = kb.ConditionalEmbedding(kb.Delta(), kb.Gaussian(1.0), 1e-9, fill=True).fit(x, z)
    with pytest.warns(kb.NumericalWarning, match="is filled in"):
        found = asked("never seen")
    np.testing.assert_allclose(found.weights, 1.0 / len(z))


def test_a_warning_names_the_first_few_points():
    x, z = linear_gaussian()
    rule = kb.KernelBayesRule().fit(x, z)
    at = np.zeros(40)
    at[[3, 5, 8, 13, 21, 34]] = 100.0
    for ask in (rule.predict, rule.posterior):
        named = r"6 of 40 points \(3, 5, 8, 13, 21, \.\.\.\)"
        with pytest.warns(kb.NumericalWarning, match=named) as told:
            ask(at)
        assert len(told) == 1


# --- the pieces ----------------------------------------------------------------------------------


def test_the_usual_mass_is_that_of_points_left_out():
    """Against refitting without each point, by the closed form of ridge regression."""
    rng = np.random.default_rng(5)
    x, z = rng.normal(size=(60, 2)), rng.normal(size=60)
    for kernel in (kb.Gaussian(0.7), kb.nystrom(kb.Gaussian(0.7), x, 12, rng=0)):
        cme = kb.ConditionalEmbedding(kernel, kb.Gaussian(1.0), 1e-2).fit(x, z)
        masses = []
        for i in range(60):
            rest = np.arange(60) != i
            left = kb.ConditionalEmbedding(kernel, kb.Gaussian(1.0), 1e-2 * 60 / 59)
            masses.append(left.fit(x[rest], z[rest]).conditional_(x[i : i + 1]).mass[0])
        assert cme.conditional_.usual_mass == pytest.approx(min(masses), rel=1e-6)


def test_the_usual_support_is_that_of_the_nearest_other_point():
    x = np.array([0.0, 1.0, 3.0])
    assert support.usual_support(kb.Gaussian(1.0), x[:, None]) == pytest.approx(
        np.quantile(np.exp([-0.5, -0.5, -2.0]), 0.01)
    )
    low = kb.nystrom(kb.Gaussian(1.0), x, 3, rng=0)
    assert support.usual_support(low, x[:, None]) == pytest.approx(
        np.quantile(np.exp([-0.5, -0.5, -2.0]), 0.01)
    )


@quiet
@pytest.mark.parametrize("factor", [2.0, 4.0, 16.0])
@pytest.mark.parametrize("rank", [None, 40])
def test_how_wide_a_kernel_is_does_not_say_how_far_the_sample_reaches(factor, rank):
    """Supports count as those of the kernel as wide as the typical distance, whatever its width."""
    X = np.random.default_rng(1000).normal(size=(200, 3))
    typical = kb.kernels.default.default_kernel(X)
    at = X[:1] + np.linspace(0.0, 40.0, 9)[:, None]
    found = []
    for kernel in (typical, typical.scaled(factor)):
        rule = kb.KernelBayesRule(kernel, rank=rank, rng=0).fit(X, X[:, 0]).rule_
        near, p = rule(at).diagnostics.support, rule.inputs.sharpening
        found.append(conditional.trust(near**p, rule.inputs.usual_support**p))
    assert np.any((found[0] > 0.0) & (found[0] < 1.0))
    # Median distances of 200 of the points, of which landmarks are others.
    np.testing.assert_allclose(found[1][:1], found[0][:1])
    if rank is None:
        np.testing.assert_allclose(*found, rtol=1e-3, atol=1e-6)
    assert found[1][-1] == pytest.approx(0.0, abs=1e-6)
    narrow = kb.KernelBayesRule(typical.scaled(0.5)).fit(X, X[:, 0]).rule_
    assert narrow.inputs.sharpening == 1.0


def test_trust_is_proportional_below_a_tenth_of_what_is_usual():
    found = conditional.trust(np.array([0.0, 0.01, 0.04, 0.05, 1.0]), 0.5)
    np.testing.assert_allclose(found, [0.0, 0.2, 0.8, 1.0, 1.0])
    np.testing.assert_allclose(conditional.trust(np.array([0.0, 1e-9]), 0.0), [0.0, 1.0])
