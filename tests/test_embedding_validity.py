"""Ways to make answers valid: projection, rearrangement, clipping; bounds; recalibration."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.stats import norm

import kernelbayes as kb
from kernelbayes.embedding.simplex import PATH, project_simplex
from kernelbayes.select.calibration import calibrate, left_out_weights

seeds = st.integers(0, 10_000)
OPTIONS = ["projected", "rearranged", "clipped", "raw"]


def signed(seed, n=40, m=None, d=1):
    rng = np.random.default_rng(seed)
    weights = rng.normal(1.0 / n, 1.5 / n, n if m is None else (m, n))
    return kb.embed(rng.normal(size=(n, d)), kb.Gaussian(0.8), weights)


@settings(max_examples=20)
@given(seeds, st.sampled_from([None, 3]), st.integers(1, 3))
def test_deviations_of_signed_weights_are_those_of_the_rearranged_distribution(seed, m, d):
    """The variance as an integral over F alone (Hoeffding 1940), not as a sum over points."""
    mu = signed(seed, m=m, d=d)
    covariance, found = np.atleast_3d(mu.cov().T).T, np.atleast_2d(mu.std())
    for row, w in enumerate(mu.valid_weights("rearranged")):
        for j, x in enumerate(mu.points.T):
            order = np.argsort(x)
            F, gaps = np.clip(np.sort(np.cumsum(w[order])), 0, 1)[:-1], np.diff(x[order])
            pairs = np.minimum.outer(F, F) - np.outer(F, F)
            assert found[row, j] ** 2 == pytest.approx(gaps @ pairs @ gaps, rel=1e-6, abs=1e-9)
    np.testing.assert_allclose(np.diagonal(covariance, axis1=1, axis2=2), found**2, rtol=1e-9)
    assert np.linalg.eigvalsh(covariance).min() >= -1e-9 * found.max() ** 2


@settings(max_examples=10)
@given(seeds, st.integers(2, 40), st.integers(1, 12))
def test_projection_satisfies_its_optimality_conditions(seed, n, r):
    rng = np.random.default_rng(seed)
    F, W = rng.normal(size=(n, r)), rng.normal(1.0 / n, 2.0 / n, (3, n))
    V = project_simplex(F, W)
    assert V.min() >= 0
    np.testing.assert_allclose(V.sum(axis=1), 1.0, rtol=1e-9)
    rho = PATH[-1] * np.linalg.norm(F.T @ F, 2)
    gradient = ((V - W) @ F) @ F.T + rho * (V - W)
    # Equal on the support, not smaller elsewhere; Newton stops at 1e-12 of the features' size.
    level = np.sum(V * gradient, axis=1, keepdims=True)
    assert (gradient - level).min() > -1e-7
    assert np.abs((gradient - level)[V > 1e-9]).max() < 1e-7


def test_projection_is_the_quadratic_programme():
    rng = np.random.default_rng(0)
    F, w = rng.normal(size=(6, 3)), rng.normal(1 / 6, 0.5, 6)
    rho = PATH[-1] * np.linalg.norm(F.T @ F, 2)

    def distance(v):
        return np.sum(((v - w) @ F) ** 2) + rho * np.sum((v - w) ** 2)

    found = minimize(
        distance, np.full(6, 1 / 6), method="SLSQP", bounds=[(0, 1)] * 6,
        constraints={"type": "eq", "fun": lambda v: v.sum() - 1}, options={"ftol": 1e-14},
    )  # fmt: skip
    ours = project_simplex(F, w[None])[0]
    assert distance(ours) <= found.fun + 1e-9
    np.testing.assert_allclose(ours, found.x, atol=1e-3)  # SLSQP's, where rho alone decides


def test_projection_of_low_rank_features_is_that_of_their_kernel():
    mu = signed(3, n=60, d=2)
    low = kb.embed(mu.points, kb.pivoted_cholesky(mu.kernel, mu.points, 60, rng=0), mu.weights)
    exact, other = mu.valid(), kb.embed(mu.points, mu.kernel, low.valid().weights)
    # One quadratic programme in two bases: equal distances (rho leaves the weights some freedom).
    assert kb.mmd(mu, other) == pytest.approx(float(kb.mmd(mu, exact)), abs=1e-4)


@given(seeds)
def test_valid_distribution_functions_rise_from_zero_to_one(seed):
    mu = signed(seed)
    x = np.sort(np.r_[-9.0, mu.points[:, 0], 9.0])
    for option in OPTIONS[:3]:
        F = mu.cdf(x, valid=option)
        assert F[0] == 0.0
        assert F[-1] == pytest.approx(1.0)
        assert np.diff(F).min() >= -1e-9, option


@given(seeds)
def test_rearrangement_sorts_the_raw_distribution_function(seed):
    mu = signed(seed)
    x = np.sort(mu.points[:, 0])
    raw = mu.normalized().cdf(x, valid=False)
    np.testing.assert_allclose(mu.cdf(x, valid="rearranged"), np.clip(np.sort(raw), 0, 1))
    # Never further from a true distribution function than the raw one (any p; here p = 2).
    truth = norm.cdf(x)
    assert np.sum((np.sort(raw) - truth) ** 2) <= np.sum((raw - truth) ** 2) + 1e-12


@pytest.mark.parametrize("option", [*OPTIONS, True, False])
def test_options_agree_on_a_probability(option):
    rng = np.random.default_rng(0)
    mu = kb.embed(rng.normal(size=50), kb.Gaussian(1.0), rng.dirichlet(np.ones(50)))
    x = mu.points[:, 0]
    assert mu.prob((-0.5, 1.0), valid=option) == pytest.approx(
        mu.weights[(x >= -0.5) & (x <= 1.0)].sum()
    )
    np.testing.assert_allclose(mu.cdf([0.3], valid=option), mu.weights[x <= 0.3].sum())
    if option not in ("raw", False):  # the raw quantile is a point, not interpolated
        np.testing.assert_allclose(mu.quantile([0.2, 0.7], valid=option), mu.quantile([0.2, 0.7]))
    else:
        assert np.isin(mu.quantile([0.2, 0.7], valid=option), x).all()


@pytest.mark.parametrize("option", OPTIONS)
def test_a_batch_answers_as_its_members_do(option):
    batch = signed(5, m=4)
    for ask in (
        lambda mu: mu.prob((-1.0, 0.5), valid=option),
        lambda mu: mu.cdf([0.0, 1.0], valid=option),
        lambda mu: mu.quantile([0.1, 0.6], valid=option),
        lambda mu: mu.interval(0.8, valid=option),
    ):
        np.testing.assert_allclose(ask(batch), np.stack([ask(mu) for mu in batch]), atol=1e-6)


def test_low_rank_embeddings_answer_as_exact_ones_do():
    mu = signed(2)
    low = kb.embed(mu.points, kb.nystrom(mu.kernel, mu.points, 40, rng=0), mu.weights)
    for option in ("rearranged", "clipped", "raw"):  # these do not look at the kernel
        np.testing.assert_array_equal(
            low.interval(0.8, valid=option), mu.interval(0.8, valid=option)
        )


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda mu: mu.quantile([0.5], valid="best"), "valid must be"),
        (lambda mu: mu.prob(lambda x: x[:, 0] > 0, valid="rearranged"), "predicate"),
        (lambda mu: mu.prob((0.0, 1.0), valid="rearranged"), "scalar"),
        (lambda mu: mu.cdf([[0.0, 0.0]], valid="rearranged"), "scalar"),
        (lambda mu: mu.interval(0.5, kind="highest", valid="raw"), "monotone"),
        (lambda mu: mu.density([[0.0, 0.0]], valid="rearranged"), "rearrangement"),
    ],
)
def test_options_that_do_not_fit_are_refused(ask, message):
    with pytest.raises(ValueError, match=message):
        ask(signed(0, d=2))


@given(seeds)
def test_expectations_of_rkhs_functions_differ_by_no_more_than_the_bound(seed):
    rng = np.random.default_rng(seed)
    mu, nu = signed(seed), signed(seed + 1)
    f = kb.embed(rng.normal(size=5), mu.kernel, rng.normal(size=5))
    assert mu.expect(f) == pytest.approx(float(mu.inner(f)))
    gap = abs(float(mu.expect(f) - nu.expect(f)))
    bound = mu.expect_bound(f, nu)
    assert gap <= bound * (1 + 1e-9)
    assert mu.expect_bound(f, kb.mmd(mu, nu)) == pytest.approx(float(bound), rel=1e-6)
    # Reached by the witness function itself.
    witness = mu - nu
    assert mu.expect_bound(witness, nu) == pytest.approx(
        float(mu.expect(witness) - nu.expect(witness)), rel=1e-6
    )


def test_bound_against_a_closed_form_and_for_batches():
    prior = kb.GaussianEmbedding([0.0], [[1.0]], kb.Gaussian(0.8))
    batch = signed(1, m=3)
    f = kb.embed([0.3], batch.kernel)
    exact = prior.inner(f)
    assert np.all(np.abs(batch.expect(f) - exact) <= batch.expect_bound(f, prior))
    assert batch.expect_bound(f, 0.1).shape == ()
    with pytest.raises(TypeError, match="RKHS"):
        batch.expect_bound(lambda x: x, 0.1)
    with pytest.raises(TypeError, match="RKHS"):
        batch.expect_bound(kb.embed([0.3], kb.Gaussian(2.0)), 0.1)


# --- recalibration ---


def pairs(seed, n=150):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=n)
    return x, x + rng.normal(size=n)


@pytest.mark.parametrize("rank", [None, 20])
def test_left_out_weights_are_those_of_a_refit(rank):
    x, z = pairs(0, n=40)
    kernel = kb.Gaussian(1.0)
    kernel_x = kernel if rank is None else kb.nystrom(kernel, x, rank, rng=0)
    ridge = 0.01
    model = kb.ConditionalEmbedding(kernel_x, kernel, ridge).fit(x, z)
    found = left_out_weights(model.conditional_, np.arange(40))
    for i in range(5):
        keep = np.arange(40) != i
        # n * ridge is what must stay the same.
        refit = kb.ConditionalEmbedding(kernel_x, kernel, ridge * 40 / 39).fit(x[keep], z[keep])
        expected = refit(x[i : i + 1, None]).weights[0]
        np.testing.assert_allclose(found[i, keep], expected, atol=1e-8)
        assert found[i, i] == 0.0


def test_uniform_transforms_change_nothing():
    x, z = pairs(1)
    model = kb.ConditionalEmbedding().fit(x, z)
    calibration = calibrate(model)
    uniform = type(calibration)((np.arange(1000)[:, None] + 0.5) / 1000, np.full(1000, 1e-3))
    mu = model([[0.0], [1.0]])
    np.testing.assert_allclose(
        uniform.interval(mu, 0.8), mu.interval(0.8, valid="rearranged"), atol=1e-6
    )
    assert calibration.interval(mu, 0.8).shape == (2, 1, 2)
    assert calibration.quantile(mu[0], [0.1, 0.5, 0.9]).shape == (3, 1)


def test_recalibrated_left_out_coverage_is_nominal():
    """By construction: the share of left-out z below the recalibrated level is q, up to 1/n."""
    x, z = pairs(2)
    rule = kb.KernelBayesRule().fit(x, z)
    calibration = calibrate(rule)
    for q in (0.05, 0.3, 0.9):
        level = calibration.levels([q])[0, 0]
        assert np.mean(calibration.pit[:, 0] <= level) == pytest.approx(q, abs=1.01 / len(x))


def test_what_cannot_be_recalibrated_is_refused():
    x, z = pairs(3)
    with pytest.raises(ValueError, match="original"):
        calibrate(kb.KernelBayesRule(method="original").fit(x, z))
    with pytest.raises(ValueError, match="form"):
        calibrate(kb.KernelBayesRule(form="a").fit(x, z, prior=z[:50]))
    rule = kb.KernelBayesRule().fit(x, z)
    with pytest.raises(ValueError, match="level"):
        calibrate(rule).interval(rule.posterior(0.0), 1.0)


def test_weights_with_nothing_positive_give_all_points_alike():
    mu = -1.0 * signed(0, d=2).valid()
    with pytest.warns(kb.NumericalWarning, match="no mass"):
        assert mu.prob((-np.inf, np.inf), valid="clipped") == pytest.approx(1.0)


@given(seeds)
def test_raw_probabilities_are_sums_of_the_weights(seed):
    """KMCF16 eq. 5.24: nothing is divided by the mass, here about a half."""
    mu = 0.5 * signed(seed)
    x, w = mu.points[:, 0], mu.weights
    inside = (x >= -0.5) & (x <= 1.0)
    assert mu.prob((-0.5, 1.0), valid=False) == pytest.approx(w[inside].sum(), abs=1e-12)
    assert mu.prob(lambda p: p[:, 0] > 0.2, valid="raw") == pytest.approx(w[x > 0.2].sum())
    np.testing.assert_allclose(mu.cdf([0.3], valid=False), [w[x <= 0.3].sum()], atol=1e-12)
    assert mu.prob((-np.inf, np.inf), valid=False) == pytest.approx(mu.mass)
    # KMCF16 eq. 5.4, with the bandwidth of the weights divided by their sum
    once, twice = mu.density([0.1], valid=False), (2.0 * mu).density([0.1], valid=False)
    np.testing.assert_allclose(twice, 2.0 * once, rtol=1e-9)
    # A quantile needs a total, so it is that of the weights divided by their sum.
    np.testing.assert_array_equal(
        mu.quantile([0.3], valid=False), (2.0 * mu).quantile([0.3], valid=False)
    )
