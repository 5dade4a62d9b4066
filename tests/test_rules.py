"""The rules against oracles: probability tables, the papers' formulas, linear-Gaussian models."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import kernelbayes as kb
import oracles

METHODS = ["importance", "original"]
FORMS = ["a", "b"]
each_method = pytest.mark.parametrize("method", METHODS)
each_form = pytest.mark.parametrize("form", FORMS)
delta = kb.Delta()
# Bias is at most n ridge / (smallest probability) = 30 * 1e-9 / 0.05, rounding eps / ridge.
ETA, TINY = 1e-9, {"importance": 1e-9, "original": 1e-14}
TABLE = {"rel": 0, "abs": 1e-6}


@st.composite
def tables(draw):
    """Counts (a, b) with every a and b seen, and a prior on a: weights, or points of its own."""
    shape = draw(st.tuples(st.integers(1, 4), st.integers(1, 4)))
    counts = draw(hnp.arrays(int, shape, elements=st.integers(0, 3)))
    assume(counts.sum(axis=1).all() and counts.sum(axis=0).all())
    prior = draw(hnp.arrays(int, shape[0], elements=st.integers(0, 4)))
    assume(prior.sum() > 0)
    kind = draw(st.sampled_from(["points", "weights", "signed", "training"]))
    return counts, prior / prior.sum(), prior, kind


def prior_of(kind, share, prior, counts):
    """The same prior as points, as weights, as weights of both signs, or the training marginal."""
    letters = np.arange(len(share))
    if kind == "points":
        return np.repeat(letters, prior), share
    if kind == "weights":
        return kb.embed(letters, delta, share), share
    if kind == "signed":  # 1.5 p + 0.5 of it taken back, in another order
        points = np.concatenate([letters, letters[::-1]])
        return kb.embed(points, delta, np.concatenate([1.5 * share, -0.5 * share[::-1]])), share
    return None, counts.sum(axis=1) / counts.sum()


def fitted(counts, kernel=delta):
    a, b = oracles.samples_of(counts)
    return kb.ConditionalEmbedding(kernel, delta, ridge=ETA).fit(a, b)


def letters_of(counts):
    return np.arange(counts.shape[0]), np.arange(counts.shape[1])


# --- probability tables --------------------------------------------------------------------------


@given(tables())
def test_conditional_is_the_table(case):
    counts, *_ = case
    A, B = letters_of(counts)
    found = fitted(counts)(A)
    assert found(B) == pytest.approx(oracles.conditional_table(counts), **TABLE)
    assert found.mass == pytest.approx(np.ones(len(A)), **TABLE)


@given(tables())
@each_form
def test_sum_rule_is_the_table(form, case):
    counts, share, prior, kind = case
    prior, share = prior_of(kind, share, prior, counts)
    found = kb.sum_rule(fitted(counts), prior, form)  # form b: the delta kernel squared is delta
    expected = oracles.joint_table(counts, share).sum(axis=0)
    assert found(letters_of(counts)[1]) == pytest.approx(expected, **TABLE)


@given(tables())
@each_form
def test_chain_rule_is_the_table(form, case):
    counts, share, prior, kind = case
    prior, share = prior_of(kind, share, prior, counts)
    found = kb.chain_rule(fitted(counts), prior, form)
    A, B = letters_of(counts)
    expected = oracles.joint_table(counts, share)
    pairs = {"x": np.repeat(A, len(B)), "z": np.tile(B, len(A))}
    assert found(pairs) == pytest.approx(expected.ravel(), **TABLE)
    assert found.marginal("x")(A) == pytest.approx(share, **TABLE)
    assert found.marginal("z")(B) == pytest.approx(expected.sum(axis=0), **TABLE)


@given(tables())
@each_form
@each_method
def test_bayes_rule_is_the_table(method, form, case):
    counts, share, prior, kind = case
    prior, share = prior_of(kind, share, prior, counts)
    A, B = letters_of(counts)
    predictive = oracles.joint_table(counts, share).sum(axis=0)
    B = B[predictive > 0.01]  # elsewhere there is nothing to condition on
    found = kb.bayes_rule(fitted(counts), prior, method, form, ridge=TINY[method])(B)
    assert found(A) == pytest.approx(oracles.posterior_table(counts, share)[B], **TABLE)
    assert found.mass == pytest.approx(np.ones(len(B)), **TABLE)


@given(tables())
@each_method
def test_low_rank_bayes_rule_is_the_table(method, case):
    """One landmark per letter: the features are the letters' indicators."""
    counts, share, prior, _ = case
    a, b = oracles.samples_of(counts)
    A, B = letters_of(counts)
    low = [kb.nystrom(delta, letters, len(letters), rng=0) for letters in (A, B)]
    cme = kb.ConditionalEmbedding(*low, ridge=ETA).fit(a, b)
    prior, share = prior_of("points", share, prior, counts)
    B = B[oracles.joint_table(counts, share).sum(axis=0) > 0.01]
    for form in FORMS:
        found = kb.bayes_rule(cme, prior, method, form, ridge=TINY[method])(B)
        assert found(A) == pytest.approx(oracles.posterior_table(counts, share)[B], **TABLE)


@given(tables())
@each_method
def test_rules_compose(method, case):
    """Turning round twice gives the conditional again; the sum rule undoes Bayes' rule."""
    counts, share, prior, _ = case
    assume(oracles.joint_table(counts, share).sum(axis=0).min() > 0.01 and share.min() > 0.01)
    prior, share = prior_of("weights", share, prior, counts)
    A, B = letters_of(counts)
    cme = fitted(counts)
    posterior = kb.bayes_rule(cme, prior, method, ridge=TINY[method])
    predictive = kb.sum_rule(cme, prior)
    assert kb.sum_rule(posterior, predictive)(A) == pytest.approx(share, **TABLE)
    again = kb.bayes_rule(posterior, predictive, method, ridge=TINY[method])
    # Two ridges in a row: ten times the error of one.
    assert again(A)(B) == pytest.approx(oracles.conditional_table(counts), rel=0, abs=1e-5)
    swapped = kb.chain_rule(posterior, predictive)
    pairs = {"x": np.tile(B, len(A)), "z": np.repeat(A, len(B))}
    expected = oracles.joint_table(counts, share).ravel()
    assert swapped(pairs) == pytest.approx(expected, **TABLE)


# --- the papers' formulas ------------------------------------------------------------------------

RNG = np.random.default_rng(0)
Z, X = RNG.normal(size=(25, 2)), RNG.normal(size=(25, 3))
U, ALPHA = RNG.normal(0.5, 0.7, size=(10, 2)), RNG.normal(0.1, 0.2, size=10)
NEW = RNG.normal(size=(4, 3))
kz, kx = kb.Gaussian(0.9), kb.Gaussian((1.0, 2.0, 1.5))
ETA2, RIDGE = 0.01, {"importance": 0.02, "original": 1e-3}
PRIOR = kb.embed(U, kz, ALPHA)
G_z, G_x, K_u, k_x = kz(Z), kx(X), kz(Z, U), kx(X, NEW)
CME = kb.ConditionalEmbedding(kz, kx, ridge=ETA2).fit(Z, X)
# Conditioning below 1e3 with these ridges (squared for the original rule): 1e6 units of rounding.
ROUNDING = {"rel": 1e-9, "abs": 1e-10}


def transcribed(method, form):
    second = RIDGE[method]
    if form == "b":
        formula = {"importance": oracles.iw22_algorithm_1, "original": oracles.kbr13_figure_1}
        return formula[method](G_z, G_x, K_u @ ALPHA, k_x, ETA2, second).T
    formula = {
        "importance": oracles.importance_on_prior_points,
        "original": oracles.cme13_equation_23,
    }
    return formula[method](G_z, G_x, K_u, ALPHA, k_x, ETA2, second).T


@each_form
@each_method
def test_bayes_rule_equals_the_formula(method, form):
    expected = transcribed(method, form)
    assert (oracles.chain_rule_a(G_z, ETA2, K_u, ALPHA).sum(axis=1) < 0).any()  # both signs
    rule = kb.bayes_rule(CME, PRIOR, method, form, ridge=RIDGE[method])
    assert rule(NEW).weights == pytest.approx(expected, **ROUNDING)
    # The papers' sum; without ``literal`` means are taken around the prior's mean.
    options = {"prior_ridge": ETA2, "ridge": RIDGE[method], "form": form, "literal": True}
    model = kb.KernelBayesRule(kx, kz, method, **options)
    found = model.fit(X, Z, prior=PRIOR).posterior(NEW)
    assert found.weights == pytest.approx(expected, **ROUNDING)
    points = Z if form == "b" else U
    assert np.array_equal(found.points, points)
    assert model.predict(NEW) == pytest.approx(expected @ points, **ROUNDING)


@pytest.mark.filterwarnings("ignore:.*lie outside:kernelbayes.NumericalWarning")
def test_conditional_sum_and_chain_equal_the_formulas():
    weights = oracles.ridge_solve(G_z, ETA2, kz(Z, U)).T
    assert CME(U).weights == pytest.approx(weights, **ROUNDING)
    gamma = oracles.sum_rule_weights(G_z, ETA2, K_u, ALPHA)
    assert kb.sum_rule(CME, PRIOR).weights == pytest.approx(gamma, **ROUNDING)
    operator = kb.sum_rule(CME, PRIOR, form="b")
    assert operator.weights == pytest.approx(gamma, **ROUNDING)
    # Eq. 15 as an operator: <phi(x), C phi(x)> is the embedding with the squared kernel.
    expected = np.diag(kx(NEW, X) @ np.diag(gamma) @ kx(X, NEW))
    assert operator(NEW) == pytest.approx(expected, **ROUNDING)
    a = kb.chain_rule(CME, PRIOR, form="a")
    found = a.weights.reshape(len(Z), len(U))
    assert found == pytest.approx(oracles.chain_rule_a(G_z, ETA2, K_u, ALPHA), **ROUNDING)
    assert np.array_equal(a.points["x"][: len(U)], U)
    assert np.array_equal(a.points["z"][:: len(U)], X)
    b = kb.chain_rule(CME, PRIOR, form="b")
    expected = oracles.chain_rule_b(G_z, ETA2, K_u, ALPHA)
    assert np.diag(b.weights) == pytest.approx(expected, **ROUNDING)
    for part, k, points in (("x", kz, U), ("z", kx, NEW)):
        for joint in (a, b):
            marginal = joint.marginal(part)
            assert marginal.kernel == k
            assert marginal.mass == pytest.approx(joint.mass, **ROUNDING)
            assert marginal(points).shape == (len(points),)
