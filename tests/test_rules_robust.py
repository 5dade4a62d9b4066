"""Rules where they are easily wrong: odd masses, other ratios, empty kernels, order of calls."""

import pickle

import numpy as np
import pytest
import scipy.stats

import kernelbayes as kb
from kernelbayes.gram import Dense, factored

RNG = np.random.default_rng(0)
Z = RNG.normal(size=120)
X = Z + 0.5 * RNG.normal(size=120)
PRIOR = RNG.normal(0.5, 0.6, size=80)
KERNEL = kb.Gaussian(1.0)


@pytest.mark.parametrize("mass", [0.01, 2.0, 500.0])
def test_the_automatic_ridge_does_not_depend_on_the_mass_of_the_prior(mass):
    one, other = kb.embed(PRIOR, KERNEL), mass * kb.embed(PRIOR, KERNEL)
    ridges = [kb.density_ratio(m, Z).ridge for m in (one, other)]
    assert ridges[0] == ridges[1]


def test_the_automatic_ridge_of_a_gaussian_outside_the_sample_is_not_tiny():
    far = kb.GaussianEmbedding([4.0], [[0.25]], KERNEL)
    assert kb.density_ratio(far, Z).ridge > 1e-6  # the unbounded score takes the smallest, 1e-8


def test_a_relative_ratio_is_bounded_whatever_the_mass():
    ratio = kb.density_ratio(3.0 * kb.embed(PRIOR, KERNEL), Z, method="rulsif", alpha=0.2)
    assert ratio.at_denominator.max() < 1.2 / 0.2  # 1 / alpha; a fit may overshoot a little


@pytest.mark.parametrize("bound", [-1.0, 0.5, np.inf])
def test_mean_matching_needs_a_bound_that_can_be_met(bound):
    with pytest.raises(ValueError, match="bound"):
        kb.density_ratio(PRIOR, Z, method="kmm", bound=bound)


@pytest.mark.parametrize("make", [lambda: kb.nystrom(KERNEL, Z, 20, rng=0), lambda: FOURIER])
def test_kernels_with_landmarks_or_frequencies_keep_their_bandwidth(make):
    kernel = make()
    assert kernel.scaled(2.0) == kernel
    tuned = kb.tune(kb.ConditionalEmbedding(kernel_x=kernel), Z, X, budget=3)
    assert tuned.kernel_x_ == kernel


FOURIER = kb.fourier(KERNEL, 1, 20, rng=0)


def test_a_kernel_that_is_zero_everywhere_gives_no_weight():
    cme = kb.ConditionalEmbedding(kb.Spectrum(5), kb.Gaussian(1.0)).fit(["ab", "ba"], [0.0, 1.0])
    with pytest.warns(kb.NumericalWarning, match="lie outside"):
        np.testing.assert_array_equal(cme("ab").weights, 0.0)


def test_answers_do_not_depend_on_the_order_of_questions():
    first, second = (kb.KernelBayesRule().fit(X, Z) for _ in range(2))
    other = PRIOR - 2.0
    a, b = first.posterior(1.0, prior=PRIOR).weights, first.posterior(1.0, prior=other).weights
    b_first = second.posterior(1.0, prior=other).weights
    a_later = second.posterior(1.0, prior=PRIOR).weights
    np.testing.assert_array_equal(a, a_later)
    np.testing.assert_array_equal(b, b_first)


@pytest.mark.parametrize("method", ["rulsif", "ulsif", "kmm"])
def test_form_a_has_the_mass_of_form_b_under_any_ratio(method):
    masses = [
        kb.KernelBayesRule(ratio=method, form=form, ridge=0.01, rng=0).fit(X, Z, PRIOR)
        .posterior(0.5).mass
        for form in ("a", "b")
    ]  # fmt: skip
    # The rows of the transport are scaled to the weights: equal up to rounding.
    assert masses[0] == pytest.approx(masses[1], rel=1e-6)


def test_form_a_falls_back_with_a_prior_off_the_sample():
    likelihood = kb.ConditionalEmbedding(kb.Gaussian(0.5), KERNEL, ridge=0.01).fit(Z, X)
    with pytest.warns(kb.NumericalWarning, match="no mass"):
        rule = kb.bayes_rule(likelihood, prior=PRIOR + 1e4, form="a", ridge=0.01)
    with pytest.warns(kb.NumericalWarning, match="no mass"):
        usual = kb.bayes_rule(likelihood, prior=PRIOR + 1e4, form="b", ridge=0.01)
    assert rule(0.5).mass == pytest.approx(usual(0.5).mass, rel=1e-6)


def test_partial_and_merge_can_be_sent_elsewhere_and_change_nothing():
    kernel = kb.nystrom(KERNEL, Z, 10, rng=0)
    partial, merge = (
        pickle.loads(pickle.dumps(f)) for f in (factored.partial_moments, factored.merge_moments)
    )
    points = kernel.points(Z)
    a = partial(kernel, None, X[:, None], points[:50], slice(0, 50))
    b = partial(kernel, None, X[:, None], points[50:], slice(50, 120))
    before = a[0].copy()
    together = merge(a, b)
    np.testing.assert_array_equal(a[0], before)
    whole = factored.LowRank(kernel.features(Z)).moments(None, X[:, None])
    for found, expected in zip(together, whole, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-10)


@pytest.mark.torch
def test_a_ridge_below_rounding_is_raised_on_torch_too():
    torch = pytest.importorskip("torch")
    G = torch.ones((5, 5), dtype=torch.float64)
    with pytest.warns(kb.NumericalWarning, match="raised"):
        solver = Dense(G).signed(torch.ones(5, dtype=torch.float64) / 5, 1e-30)
    assert solver.diagnostics.rescues == 1
    assert bool(torch.isfinite(solver.solve(torch.ones(5, dtype=torch.float64))).all())


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: kb.KernelBayesRule(prior_ridge=-1.0).fit(X, Z), ValueError, "ridge"),
        (lambda: kb.KernelBayesRule(ridge="auto").fit(X, Z), ValueError, "'loo'"),
        (lambda: kb.KernelBayesRule(ratio="c").fit(X, Z), ValueError, "ratio"),
        (lambda: kb.KernelBayesRule(kernel_x="rbf").fit(X, Z), TypeError, "Kernel"),
        (lambda: kb.KernelBayesRule().fit(X[:10], Z), ValueError, "pairs|inconsistent"),
        (lambda: kb.tune(kb.KernelBayesRule(), X, Z, budget=0), ValueError, "budget"),
        (lambda: kb.tune(kb.KernelBayesRule(), X, Z, rng="a"), TypeError, "rng"),
        (lambda: kb.tune(kb.KernelBayesRule, X, Z), TypeError, "instance"),
    ],
)
def test_bad_settings_say_so_at_once(call, error, message):
    with pytest.raises(error, match=message):
        call()


# --- priors that the training sample covers only in part -----------------------------------------


def categories(ridge=1e-9):
    seen = ["rain"] * 4 + ["dry"] * 6
    return kb.ConditionalEmbedding(kb.Delta(), kb.Delta(), ridge=ridge).fit(
        seen, list("wwwnwnnnnn")
    )


@pytest.mark.parametrize("ridge", [1e-9, 1e-2])
def test_categories_never_seen_are_reported(ridge):
    # 1/3 of the prior is on snow. The ridge takes some mass too, from seen categories alike: the
    # share is within a few per cent of 2/3.
    with pytest.warns(kb.NumericalWarning, match="covers about 6[5-8]%"):
        kb.bayes_rule(categories(ridge), ["rain", "dry", "snow"], ridge=1e-6)


@pytest.mark.parametrize("ridge", [1e-9, 1e-2, 1.0])
def test_a_covered_prior_is_not_reported_whatever_its_ridge(ridge):
    kb.bayes_rule(categories(ridge), ["rain", "dry", "dry"], ridge=1e-6)  # warnings are errors
    cme = kb.ConditionalEmbedding(KERNEL, KERNEL, ridge=ridge).fit(Z, X)
    kb.bayes_rule(cme, PRIOR, ridge=1e-3)
    kb.bayes_rule(cme, 0.01 * kb.embed(PRIOR, KERNEL), ridge=1e-3)  # its mass is its own


@pytest.mark.parametrize("rank", [None, 30])
def test_a_prior_beside_the_sample_is_reported(rank):
    beside = np.concatenate([PRIOR[:40], 6.0 + 0.1 * PRIOR[:40]])
    with pytest.warns(kb.NumericalWarning, match="covers about [3-6].%"):
        kb.KernelBayesRule(KERNEL, KERNEL, rank=rank, rng=0).fit(X, Z, prior=beside)


@pytest.mark.parametrize(
    ("prior", "message"),
    [
        pytest.param(scipy.stats.norm(0, 1), "rvs", id="distribution"),
        pytest.param(0.5, "single value", id="number"),
        pytest.param(np.array(0.5), "single value", id="0-d"),
        pytest.param("rain", "single value", id="string"),
    ],
)
def test_what_is_not_a_sample_says_what_to_pass(prior, message):
    calls = [lambda: kb.bayes_rule(categories(), prior), lambda: kb.sum_rule(categories(), prior)]
    if message != "rvs":  # the estimator has an rng to draw with
        calls.append(lambda: kb.KernelBayesRule().fit(X, Z, prior=prior))
    for call in calls:
        with pytest.raises(TypeError, match=message):
            call()


def test_short_reprs():
    cme = kb.ConditionalEmbedding(KERNEL, KERNEL, ridge=1e-3).fit(Z, X)
    ratio = kb.density_ratio(PRIOR, Z, KERNEL)
    shown = [repr(kb.chain_rule(cme, PRIOR)), repr(ratio), repr(cme(X[:3]).diagnostics)]
    assert [text.split("(")[0] for text in shown] == [
        "Joint", "DensityRatio", "PosteriorDiagnostics"
    ]  # fmt: skip
    assert all(len(text) < 350 for text in shown)
