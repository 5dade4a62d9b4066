"""Legal data that are hard on arithmetic: single precision, far offsets, tiny ridges, huge scales.

Every call ends in a right answer, in a warning that says what happened, or in an error of our own.
"""

import warnings
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest

import kernelbayes as kb
from kernelbayes.filters.step import predict
from kernelbayes.gram import Dense, LowRank
from kernelbayes.gram.loo import least_ridge

K = kb.Gaussian(1.0)


def normal(seed, *shape):
    return np.random.default_rng(seed).normal(size=shape)


# --- single precision ----------------------------------------------------------------------------

N = 200_000  # naive sums of so many singles near 1000 are off by more than 1
FAR = 1000.0 + normal(0, N, 1)
SINGLE = FAR.astype(np.float32)
QUESTIONS = {
    "mean": lambda mu: mu.mean(),
    "second moment": lambda mu: mu.moment(2),
    "covariance": lambda mu: mu.cov(),
    "deviation": lambda mu: mu.std(),
    "expectation": lambda mu: mu.expect(lambda x: x[:, 0]),
    "mass": lambda mu: mu.mass,
    "effective sample size": lambda mu: mu.ess,
    "value": lambda mu: mu(mu.points[:3]),
    "norm": lambda mu: kb.embed(mu.points[:2000], K).norm(),
}


@pytest.mark.parametrize("name", QUESTIONS)
def test_sums_over_singles_are_those_over_doubles(name):
    """The same numbers in both precisions, so that only the arithmetic differs."""
    ask = QUESTIONS[name]
    single, double = (ask(kb.embed(P, K)) for P in (SINGLE, SINGLE.astype(np.float64)))
    assert single.dtype == np.float32
    # One rounding of the answer is 6e-8; exponents of the kernel have an error of about 1e-6.
    np.testing.assert_allclose(single, double, rtol=1e-5)


def test_a_batch_of_singles_is_summed_in_doubles():
    W = np.full((2, N), 1.0 / N, dtype=np.float32)
    means = kb.embed(SINGLE, K, W).mean()
    np.testing.assert_allclose(means, np.full((2, 1), SINGLE.mean(dtype=float)), rtol=1e-6)


def test_the_distance_of_nearby_samples_of_singles():
    """It is a difference of numbers near one that agree in six digits."""
    X = normal(1, 3000, 1).astype(np.float32)
    Y = X + np.float32(1e-3)
    single = kb.mmd(kb.embed(X, K), kb.embed(Y, K))
    X, Y = X.astype(float), Y.astype(float)
    assert single == pytest.approx(kb.mmd(kb.embed(X, K), kb.embed(Y, K)), rel=0.01)


@pytest.mark.parametrize("rank", [None, 50])
def test_single_inputs_with_fine_outputs(rank):
    """Clock times in seconds: in single precision they come in steps of 128."""
    x = normal(2, 300).astype(np.float32)
    z = 1.7e9 + 10.0 * x + normal(3, 300)
    options = {"ridge": 1e-3, "normalize": True, "rank": rank, "rng": 0}
    new = np.float32([-0.5, 0.0, 1.0])
    both = [kb.KernelBayesRule(**options).fit(x.astype(t), z) for t in (np.float32, np.float64)]
    single, double = (rule.predict(new.astype(t)) for rule, t in zip(both, "fd", strict=True))
    assert single.dtype == np.float64
    np.testing.assert_allclose(single, double, rtol=0, atol=1e-3)
    single, double = (
        rule.posterior(new.astype(t)).mean()[:, 0] for rule, t in zip(both, "fd", strict=True)
    )
    np.testing.assert_allclose(single, double, rtol=0, atol=1e-3)


def test_an_embedding_of_fine_outputs_given_single_inputs():
    x = normal(2, 300).astype(np.float32)
    z, new = 1.7e9 + 10.0 * x + normal(3, 300), np.float32([-0.5, 0.0, 1.0])
    single, double = (
        kb.ConditionalEmbedding(ridge=1e-3).fit(x.astype(t), z)(new.astype(t)).normalized()
        for t in "fd"
    )
    np.testing.assert_allclose(single.mean(), double.mean(), rtol=0, atol=1e-3)
    np.testing.assert_allclose(single.expect(lambda z: z), double.mean(), rtol=0, atol=1e-3)


@pytest.mark.parametrize("seed", range(3))
def test_a_default_embedding_of_plain_singles(seed):
    """The same choice as in double precision, or the nearest that single precision bears."""
    X, Z = (normal(10 * seed + i, 1200, 1).astype(np.float32) for i in (4, 5))
    found = kb.ConditionalEmbedding().fit(X, X + Z)  # a warning would fail the test
    pairs = X.astype(float), (X + Z).astype(float)
    chosen = kb.ConditionalEmbedding().fit(*pairs)
    least = least_ridge(chosen.kernel_x_, X)
    assert found.ridge_ == pytest.approx(chosen.ridge_) or chosen.ridge_ < least <= found.ridge_
    wanted = kb.ConditionalEmbedding(found.kernel_x_, ridge=found.ridge_).fit(*pairs)
    np.testing.assert_allclose(found(X[:5]).mean(), wanted(X[:5].astype(float)).mean(), atol=1e-3)


def test_pivots_of_many_singles_reach_their_tolerance():
    """Rounding of single precision times n is above any tolerance worth asking for."""
    X = normal(6, 50_000, 1).astype(np.float32)
    assert kb.pivoted_cholesky(K, X, tol=1e-6, rng=0).error <= 1e-6


# --- tiny ridges ---------------------------------------------------------------------------------


def exact_solution(G, ridge, b):
    """Solve (G + ridge I) y = b in rational numbers, without any rounding."""
    A = [[Fraction(float(g)) for g in row] for row in G]
    y = [Fraction(float(value)) for value in b]
    n = len(A)
    for i in range(n):
        A[i][i] += Fraction(ridge)
    for i in range(n):
        for k in range(i + 1, n):
            factor = A[k][i] / A[i][i]
            A[k] = [a - factor * c for a, c in zip(A[k], A[i], strict=True)]
            y[k] -= factor * y[i]
    for i in reversed(range(n)):
        y[i] = (y[i] - sum(A[i][k] * y[k] for k in range(i + 1, n))) / A[i][i]
    return np.array([float(value) for value in y])


@pytest.mark.parametrize("ridge", [1e-10, 1e-13, 1e-15])
def test_a_solution_is_right_to_its_condition_number_or_warned_about(ridge):
    x = np.linspace(-1.0, 1.0, 12)
    G, b = kb.Gaussian(1.0)(x), normal(7, 12)
    wanted = exact_solution(G, 12 * ridge, b)
    if ridge == 1e-10:
        solver = Dense(G).ridge(ridge)
        tolerance = 100 * solver.diagnostics.condition * np.finfo(float).eps
        np.testing.assert_allclose(solver.solve(b), wanted, atol=tolerance * np.abs(wanted).max())
        return
    with pytest.warns(kb.NumericalWarning, match=r"condition number of .* at least .* is safe"):
        assert Dense(G).ridge(ridge).diagnostics.condition > 1e12


@pytest.mark.parametrize("make", ["ridge", "weighted", "signed"])
@pytest.mark.parametrize("kind", ["dense", "low rank"])
def test_the_ridge_that_a_warning_calls_safe_gives_no_warning(make, kind, recwarn):
    G = kb.Gaussian(2.0)(np.linspace(-1.0, 1.0, 30))
    gram = Dense(G) if kind == "dense" else LowRank(Dense(G).factor)
    tiny = 1e-34 if make == "signed" else 1e-15
    weights = () if make == "ridge" else (np.full(30, 1.0 / 30),)
    getattr(gram, make)(*weights, tiny)
    (told,) = (str(w.message) for w in recwarn.list)
    safe = float(told.split("at least ")[1].split(" is safe")[0])
    assert tiny < safe < 1e-9
    recwarn.clear()
    getattr(gram, make)(*weights, 1.05 * safe)  # as printed it is rounded
    assert not recwarn.list


@pytest.mark.parametrize(
    "model",
    [kb.ConditionalEmbedding(ridge=1e-16), kb.KernelBayesRule(ridge=1e-16)],
    ids=["conditional", "rule"],
)
def test_models_warn_about_a_tiny_ridge(model):
    x = np.linspace(-2.0, 2.0, 60)
    with pytest.warns(kb.NumericalWarning, match="is safe"):
        _ = model.fit(x, np.sin(x)).solver_ if hasattr(model, "apply") else model.fit(x, np.sin(x))


# --- huge and tiny scales ------------------------------------------------------------------------


@pytest.mark.parametrize("order", [0, 2.5, -1, np.nan, np.inf, "2"])
def test_a_moment_has_a_whole_order(order):
    with pytest.raises((ValueError, TypeError), match="the order of a moment"):
        kb.embed([-1.0, 2.0], K).moment(order)


def test_a_moment_too_large_for_a_number():
    with pytest.raises(ValueError, match="too large for float64; rescale"):
        kb.embed([1e200, -1e200], K).moment(2)
    assert kb.embed([2.0, 4.0], K).moment(np.float64(2.0)) == 10.0


@pytest.mark.parametrize("batch", [False, True])
@pytest.mark.parametrize("scale", [1e-200, 1e-3, 1.0, 1e3, 1e150, 1e200, 1e307])
def test_spread_at_any_scale(scale, batch):
    X = normal(8, 50, 2)
    W = np.full((5, 50) if batch else 50, 1.0 / 50)
    unit, mu = kb.embed(X, K, W), kb.embed(scale * X, K, W)
    np.testing.assert_allclose(mu.std(), scale * unit.std(), rtol=1e-12)
    if scale < 1e152:
        np.testing.assert_allclose(mu.cov() / scale / scale, unit.cov() * (scale > 1e-100))
    else:
        with pytest.raises(ValueError, match="too large for float64; rescale"):
            mu.cov()


@pytest.mark.parametrize("shape", [(40,), (3, 40), (20, 40)])
def test_covariance_is_that_of_numpy(shape):
    X, W = normal(9, 40, 7), np.random.default_rng(10).uniform(size=shape)
    found = kb.embed(X, K, W).cov()
    rows = [np.cov(X.T, aweights=w, ddof=0) for w in np.atleast_2d(W)]
    np.testing.assert_allclose(found, rows[0] if W.ndim == 1 else rows, atol=1e-12)


@pytest.mark.parametrize("factor", [np.nan, np.inf, -np.inf])
def test_an_embedding_times_nothing_finite(factor):
    with pytest.raises(ValueError, match="finite"):
        kb.embed([1.0, 2.0], K) * factor


@pytest.mark.parametrize("scale", [1e20, 1e200])
def test_the_closest_probability_to_huge_weights(scale):
    """It is where the embedding is highest: the square of the distance hardly counts."""
    x, w = normal(11, 60), normal(12, 60)
    with pytest.warns(kb.NumericalWarning, match="made smaller"):
        found = kb.embed(x, K, scale * w).valid()
    assert found.weights.min() >= 0.0
    assert found.mass == pytest.approx(1.0)
    heights = kb.embed(x, K, w)(x)
    np.testing.assert_allclose(found.weights @ heights, heights.max(), rtol=1e-3)


HUGE = 1e200 * normal(13, 30, 2)


@pytest.mark.parametrize(
    "ask",
    [
        lambda: kb.Linear()(HUGE),
        lambda: kb.Linear().diag(HUGE),
        lambda: kb.Polynomial(2)(HUGE[:3], HUGE[3:]),
        lambda: kb.embed(HUGE, kb.Linear()).norm(),
        lambda: kb.mmd(kb.embed(HUGE, kb.Linear()), kb.embed(-HUGE, kb.Linear())),
        lambda: kb.embed(HUGE, kb.Linear()).inner(kb.embed(HUGE[:4], kb.Linear())),
        lambda: kb.ConditionalEmbedding(kb.Linear(), kb.Linear()).fit(HUGE, HUGE)(HUGE[:2]),
        lambda: kb.KernelBayesRule(kb.Linear(), kb.Linear()).fit(HUGE, HUGE[:, 0]),
    ],
)
def test_inner_products_of_huge_points(ask):
    with pytest.raises(ValueError, match="so large"):
        ask()


def test_densities_in_many_dimensions():
    X = normal(14, 50, 400)
    unit, tiny, wide = (kb.embed(scale * X, K) for scale in (1.0, 1e-3, 1e3))
    np.testing.assert_allclose(unit.density(X[:2]), np.exp(unit.log_density(X[:2])), rtol=1e-6)
    np.testing.assert_array_equal(wide.density(1e3 * X[:2]), 0.0)  # e^-3116
    with pytest.raises(ValueError, match=r"400 dimensions are too large .* log_density"):
        tiny.density(1e-3 * X[:2])
    assert np.isfinite(tiny.log_density(1e-3 * X[:2])).all()


def test_a_density_of_signed_weights_in_many_dimensions():
    """In so many dimensions it is computed through logarithms, which must know the signs."""
    X, w = normal(15, 20, 330), normal(16, 20)
    found = kb.embed(X, K, w / w.sum()).density(X[:3], bandwidth=2.5, valid=False)
    D = np.sum((X[:, None, :] - X[None, :3]) ** 2, axis=2) / 2.5**2
    log_unit = 330 * np.log(np.sqrt(2 * np.pi) * 2.5)
    assert log_unit > 600.0  # where logarithms begin
    wanted = (w / w.sum()) @ np.exp(-0.5 * D - log_unit)
    np.testing.assert_allclose(found, wanted, rtol=1e-9)


# --- offsets -------------------------------------------------------------------------------------

MODELS = {
    "rule": lambda: kb.KernelBayesRule(rng=0),
    "rule, fixed ridge": lambda: kb.KernelBayesRule(K, K, ridge=1e-2, prior_ridge=1e-2),
    "original rule": lambda: kb.KernelBayesRule(K, K, method="original", ridge=1e-4),
    "rule on the prior's points": lambda: kb.KernelBayesRule(K, K, form="a", ridge=1e-2),
    "rule, low rank": lambda: kb.KernelBayesRule(K, K, ridge=1e-2, rank=30, rng=0),
}


@pytest.mark.parametrize("with_prior", [False, True])
@pytest.mark.parametrize("name", MODELS)
def test_an_offset_of_the_outputs_is_added_to_the_means_and_to_nothing_else(name, with_prior):
    """Weights sum to 0.99 or so: of an offset of a million a hundredth would be missing.

    The offset is a power of two and the data have 30 binary digits, so that their sum is exact:
    rounded data would be other data, which landmarks that nearly depend on each other magnify.
    """
    x, new = normal(28, 200), np.array([-1.0, 0.0, 1.5])
    z, prior = x + 0.3 * normal(29, 200), 0.5 * normal(30, 100)
    z, prior = (np.round(2.0**30 * values) / 2.0**30 for values in (z, prior))
    means, predictions = [], []
    for offset in (0.0, 2.0**20):
        given = {"prior": prior + offset} if with_prior else {}
        model = MODELS[name]().fit(x, z + offset, **given)
        means.append(model.posterior(new).mean()[:, 0] - offset)
        predictions.append(model.predict(new) - offset)
    np.testing.assert_allclose(means[1], means[0], rtol=0, atol=1e-5)
    np.testing.assert_allclose(predictions[1], predictions[0], rtol=0, atol=1e-5)
    np.testing.assert_allclose(predictions[0], means[0], rtol=0, atol=1e-9)


def test_an_offset_in_conditional_embeddings_and_literal_rules():
    x, new = normal(28, 200), np.array([-1.0, 0.0, 1.5])
    z = x + 0.3 * normal(29, 200)
    near, far = (kb.ConditionalEmbedding(ridge=1e-2).fit(x, z + c)(new) for c in (0.0, 1e6))
    np.testing.assert_allclose(far.mean() - 1e6, near.mean(), rtol=0, atol=1e-5)
    np.testing.assert_allclose(near[1].mean(), near.mean()[1], rtol=0, atol=1e-12)
    # The papers' estimate: of the weights as they are, a multiple of an embedding, literal rules.
    np.testing.assert_allclose(near.expect(lambda z: z), near.weights @ z[:, None], atol=1e-12)
    np.testing.assert_allclose((2.0 * near).mean(), 2.0 * near.weights @ z[:, None], atol=1e-12)
    literal = kb.KernelBayesRule(K, K, ridge=1e-2, literal=True).fit(x, z)
    weights = literal.posterior(new).weights
    np.testing.assert_allclose(literal.predict(new), weights @ z, atol=1e-12)


def test_a_linear_kernel_on_inputs_is_still_a_regression_through_the_origin():
    """Its weights have no mass to speak of; nothing is missing from them."""
    x = np.linspace(1.0, 2.0, 50)
    rule = kb.KernelBayesRule(kb.Linear(), K, ridge=1e-9).fit(x, 3.0 * x)
    np.testing.assert_allclose(rule.predict([1.5, 4.0]), [4.5, 12.0], rtol=1e-6)


# --- tests ---------------------------------------------------------------------------------------

METHODS = ("permutation", "gamma", "wild", "linear", "block", "features")


@pytest.mark.parametrize("outlier", [1e80, 1e155, 1e300])
@pytest.mark.parametrize("kernel", [kb.Linear(), kb.Polynomial(2)], ids=["linear", "square"])
@pytest.mark.parametrize("method", METHODS)
def test_an_outlier_beyond_arithmetic_is_no_evidence(method, kernel, outlier):
    X, Y = normal(17, 80, 2), normal(18, 80, 2)
    Y[0] = outlier
    for test, kernels in ((kb.mmd_test, (kernel,)), (kb.hsic_test, (kernel, kernel))):
        with pytest.raises(ValueError, match=r"so large|leave no room"):
            test(X, Y, *kernels, 50, 0, method=method)


@pytest.mark.parametrize("method", METHODS)
def test_a_bounded_kernel_bears_any_outlier(method):
    X, Y = normal(17, 80, 2), normal(18, 80, 2)
    Y[0] = 1e80
    for test in (kb.mmd_test, kb.hsic_test):
        assert 0.0 < test(X, Y, permutations=50, rng=0, method=method).pvalue <= 1.0


def test_aggregated_and_conditional_tests_refuse_what_overflows():
    X, Y = normal(17, 40, 2), normal(18, 40, 2)
    Y[0] = 1e80
    square = kb.Polynomial(2)
    for ask in (
        lambda: kb.mmd_aggregated(X, Y, [square], 50, 0),
        lambda: kb.hsic_aggregated(X, Y, [square], [square], 50, 0),
        lambda: kb.ci_test(X, Y, X[:, :1], kb.Linear(), kb.Linear(), square, rng=0),
    ):
        with pytest.raises(ValueError, match=r"so large|leave no room"):
            ask()


# --- calibration ---------------------------------------------------------------------------------


def test_a_calibration_answers_only_what_it_learned():
    x = normal(19, 60)
    Z = np.column_stack([x, -x]) + normal(20, 60, 2)
    one, two = kb.ConditionalEmbedding().fit(x, Z[:, 0]), kb.ConditionalEmbedding().fit(x, Z)
    learned = kb.calibrate(one)
    for level in (2.0, -0.1, np.nan):
        with pytest.raises(ValueError, match=r"levels must lie in \[0, 1\]"):
            learned.quantile(one([0.0]), level)
    for ask in (learned.quantile, learned.interval):
        with pytest.raises(ValueError, match="for 1 coordinates, the belief has 2"):
            ask(two([0.0]), 0.5)


# --- rules and filters ---------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["importance", "original"])
@pytest.mark.parametrize("form", ["a", "b"])
def test_a_prior_without_mass(form, method):
    x = normal(21, 60)
    prior = 0.0 * kb.embed(normal(22, 20), K)
    rule = kb.KernelBayesRule(K, K, form=form, method=method)
    with pytest.warns(kb.NumericalWarning, match="no mass on the training sample"):
        rule.fit(x + 0.1 * normal(23, 60), x, prior=prior)
    assert np.isfinite(rule.predict([0.0, 1.0])).all()
    assert np.isfinite(rule.posterior([0.0, 1.0]).weights).all()


def test_forecasts_of_observations_that_nothing_is_known_about(monkeypatch):
    """Predicted states that a kernel of few features does not see have no weights on the pairs."""
    X = normal(24, 100, 2)
    options = {"kernel_x": K, "kernel_z": K, "prior_ridge": 1e-3, "ridge": 1e-3, "rng": 0}
    model = kb.KernelBayesFilter(**options).fit(X, 0.1 * np.cumsum(X[:, :1], axis=0))

    def without_weights(*given):
        V, lost, _ = predict(*given)
        return V, lost, 0.0 * V

    monkeypatch.setattr("kernelbayes.filters.forecast.predict", without_weights)
    with pytest.warns(kb.NumericalWarning, match="2 of 2 forecasts of observations"):
        found = model.forecast(X[:10], 2)
    np.testing.assert_allclose(found.observations.mean(), np.tile(X.mean(axis=0), (2, 1)))


def drift(z, rng, control=None):
    return z + 1.0 + 0.1 * rng.normal(size=z.shape)


def drifting(bandwidth):
    """Filter of states that drift by 1 at each step, with training states from -3 to 3."""
    rng = np.random.default_rng(27)
    Z = rng.uniform(-3.0, 3.0, size=(300, 1))
    start = rng.normal(-2.0, 0.1, size=(300, 1))
    options = {"kernel_x": kb.Gaussian(0.2), "kernel_z": kb.Gaussian(bandwidth), "rng": 0}
    model = kb.KernelMonteCarloFilter(drift, start, prior_ridge=1e-3, ridge=1e-2, **options)
    return model.fit(np.tanh(Z) + 0.1 * rng.normal(size=Z.shape), Z)


@pytest.mark.parametrize("bandwidth", [0.3, 2.0])
def test_particles_that_leave_the_training_states_are_told_of(bandwidth):
    """From the sixth step on, states are where no training state is; observations say nothing."""
    model, x = drifting(bandwidth), np.tanh(np.arange(-2.0, 13.0))[:, None]
    with pytest.warns(kb.NumericalWarning, match="left the training states"):
        beliefs = model.filter(x, progress=False)
    assert beliefs.info.left[:4].max() < 0.5  # at -2 to 1 all is well
    assert beliefs.info.left[6:].max() > 0.9
    assert np.isfinite(beliefs.mean()).all()
    state, shares = model.start(), []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", kb.NumericalWarning)
        for value in x:
            state, info = model.step(state, value)
            shares.append(info.left)
    np.testing.assert_array_equal(shares, beliefs.info.left)


def test_particles_far_from_all_training_states_do_not_leave_the_old_belief_behind():
    """Predicted without observations: the second step is beyond all of them."""
    model = drifting(0.3)
    far = replace(model.moves_.mover, transition=lambda z, rng, control=None: z + 50.0)
    moves = replace(model.moves_, mover=far)
    W = np.zeros((300, 1))
    W[:3] = 1.0 / 3.0
    predicted, left = moves.predict(W, None, 1)
    np.testing.assert_allclose(predicted, 1.0 / 300.0)
    np.testing.assert_array_equal(left, [1.0])


def test_a_step_takes_only_states_of_its_own_filter():
    X, Z = normal(25, 80, 1), normal(26, 80, 1)
    options = {"kernel_x": K, "kernel_z": K, "prior_ridge": 1e-3, "ridge": 1e-2, "rng": 0}
    model, other = (kb.KernelBayesFilter(**options).fit(X, part) for part in (Z, Z + 1.0))
    with pytest.raises(ValueError, match="belongs to another filter"):
        model.step(other.start(), X[0])
    state, _ = model.step(model.start(), X[0])
    twin = kb.KernelBayesFilter(**options).fit(X, Z)  # the same states, stored elsewhere
    twin.step(state, X[1])
    wider = kb.KernelBayesFilter(**{**options, "kernel_z": kb.Gaussian(2.0)}).fit(X, Z)
    for ask in (
        lambda: other.smoothed(model.start(lag=2)),
        lambda: other.forecast(state, 2),
        lambda: wider.step(state, X[1]),
    ):
        with pytest.raises(ValueError, match="belongs to another filter"):
            ask()
    for nothing in ("state", None, state.belief):
        for use in (lambda s: model.step(s, X[0]), model.smoothed):
            with pytest.raises(TypeError, match="FilterState is needed"):
                use(nothing)


def test_forecasts_tell_of_particles_that_leave_the_training_states():
    model, x = drifting(0.3), np.tanh(np.arange(-2.0, 0.0))[:, None]
    with pytest.warns(kb.NumericalWarning, match="left the training states"):
        ahead = model.forecast(x, 10)
    assert ahead.info.left.max() > 0.9
    state = model.start()
    for value in x:
        state, _ = model.step(state, value)
    with pytest.warns(kb.NumericalWarning, match="left the training states"):
        model.forecast(state, 10)


# --- memory --------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_gram_matrix_that_does_not_fit_is_refused_with_advice(dtype, monkeypatch):
    monkeypatch.setattr("kernelbayes.gram.base.available", lambda: 1e6)
    x = np.linspace(0.0, 1.0, 600, dtype=dtype)
    with pytest.raises(MemoryError, match=r"600 points .* give rank="):
        _ = kb.ConditionalEmbedding(K, K, ridge=1e-3).fit(x, x).solver_
    kernel = kb.nystrom(K, x, 20, rng=0)
    assert kb.ConditionalEmbedding(kernel, K, ridge=1e-3).fit(x, x)(x[:2]).weights.shape == (2, 600)


def test_memory_is_that_of_the_machine_or_container(monkeypatch, tmp_path):
    from kernelbayes.gram import base

    whole = base.available.__wrapped__()
    assert whole > 1e8
    limit = tmp_path / "memory.max"
    limit.write_text("123456\n")
    monkeypatch.setattr(base, "CONTAINER", (limit, tmp_path / "missing"))
    assert base.available.__wrapped__() == 123456.0
    limit.write_text("max\n")
    assert base.available.__wrapped__() >= whole


def test_landmarks_of_large_single_numbers():
    """Squares of 1e30 are no single numbers."""
    X = (1e30 * normal(3, 40, 2)).astype(np.float32)
    k = kb.nystrom(kb.Gaussian(1e30), X, 40, rng=0, landmarks="kmeans++")
    np.testing.assert_allclose(k(X), kb.Gaussian(1.0)(X / np.float32(1e30)), atol=1e-3)


def test_rows_of_decimals_are_one_sequence():
    X, Z = normal(4, 20, 2), normal(5, 20, 2)
    rows = [[[Decimal(float(v)) for v in row] for row in A] for A in (X, Z)]
    settings = {"prior_ridge": 0.1, "transition_ridge": 0.1, "ridge": 0.1, "rng": 0}
    model = kb.KernelBayesFilter(K, K, **settings)
    a, b = model.fit(*rows).filter(rows[0]).mean(), model.fit(X, Z).filter(X).mean()
    np.testing.assert_allclose(a, b, atol=1e-9)


@pytest.mark.parametrize("where", [np.inf, -np.inf, 1e80])
def test_there_is_no_density_at_infinity(where):
    theta = normal(6, 100, 2)
    model = kb.LikelihoodFree(method="cme", rng=0).fit(theta, theta + 0.3 * normal(7, 100, 2))
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        logs = model.posterior(np.zeros(2)).log_density([[0.0, 0.0], [0.0, where]])
    assert np.isfinite(logs[0])
    assert logs[1] == -np.inf or logs[1] < -1e100


def test_checks_need_data():
    theta = normal(8, 40, 2)
    with pytest.raises(ValueError, match="x has no numbers"):
        kb.sbc(lambda x, m, rng: rng.normal(size=(m, 2)), theta=theta, x=np.empty((40, 0)), rng=0)


@pytest.mark.parametrize("outlier", [1e80, 1e150])
@pytest.mark.parametrize("d", [1, 3])
def test_an_outlier_among_responses_does_not_overflow_the_choice_of_a_kernel(outlier, d):
    """The losses of candidates are squares, and their variance has fourth powers."""
    x, z = normal(60, 40, d), normal(61, 40, 1)
    z[7] = outlier
    model = kb.KernelBayesRule(ridge=1e-3, prior_ridge=1e-3).fit(x, z)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", kb.NumericalWarning)
        assert np.isfinite(model.predict(x[:3])).all()


RULES = {
    "sum": lambda lik, prior, back: kb.sum_rule(back, prior).mean(),
    "sum of a marginal": lambda lik, prior, back: kb.sum_rule(back).mean(),
    "sum of a sum": lambda lik, prior, back: kb.sum_rule(
        back, kb.sum_rule(kb.ConditionalEmbedding(K, K, 1e-2).fit(XS, XS), prior)
    ).mean(),
    "chain, a": lambda lik, prior, back: kb.chain_rule(back, prior, "a").marginal("z").mean(),
    "chain, b": lambda lik, prior, back: kb.chain_rule(back, prior, "b").marginal("z").mean(),
    "Bayes": lambda lik, prior, back: kb.bayes_rule(lik, ridge=1e-2)(prior[:3]).mean(),
    "Bayes of a prior": lambda lik, prior, back: kb.bayes_rule(
        lik, lik.conditional_.inputs.points[:30], ridge=1e-2
    )(prior[:3]).mean(),
    "Bayes, a": lambda lik, prior, back: kb.bayes_rule(
        lik, lik.conditional_.inputs.points[:30], form="a", ridge=1e-2
    )(prior[:3]).mean(),
    "Bayes, original": lambda lik, prior, back: kb.bayes_rule(lik, None, "original", ridge=1e-4)(
        prior[:3]
    ).mean(),
}
XS = normal(62, 150, 1)


@pytest.mark.parametrize("name", RULES)
def test_an_offset_in_the_rules_of_probability(name):
    z, prior = XS + 0.3 * normal(63, 150, 1), 0.3 * normal(64, 40, 1)
    found = []
    for offset in (0.0, 1e6):
        lik = kb.ConditionalEmbedding(K, K, 1e-2).fit(z + offset, XS)
        back = kb.ConditionalEmbedding(K, K, 1e-2).fit(XS, z + offset)
        found.append(RULES[name](lik, prior, back) - offset)
    np.testing.assert_allclose(found[1], found[0], rtol=0, atol=1e-5)


def test_a_prior_of_another_mass_scales_what_the_rules_make_of_it():
    z, cme = XS + 0.3, kb.ConditionalEmbedding(K, K, 1e-2)
    cme.fit(XS, z)
    half = 0.5 * kb.embed(XS[:40], K)
    once = kb.sum_rule(cme, half)
    np.testing.assert_allclose(once.mean(), once.weights @ z, atol=1e-12)
    for form in ("a", "b"):
        joint = kb.chain_rule(cme, XS[:40], form)
        assert (2.0 * joint).marginal("z").mass == pytest.approx(2.0 * joint.mass, rel=1e-9)
        np.testing.assert_allclose(
            (2.0 * joint).marginal("z").mean(), 2.0 * joint.marginal("z").weights @ z, atol=1e-9
        )


@pytest.mark.parametrize("form", ["a", "b"])
@pytest.mark.parametrize("method", ["importance", "original"])
def test_a_prior_whose_weights_cancel_is_told_of(method, form):
    z = XS + 0.3 * normal(63, 150, 1)
    cme = kb.ConditionalEmbedding(K, K, 1e-2).fit(z, XS)
    prior = kb.embed(z[:2], K, weights=[1.0, -1.0])
    with pytest.warns(kb.NumericalWarning, match="weights of the prior cancel"):
        found = kb.bayes_rule(cme, prior, method, form=form, ridge=1e-2)(XS[:3])
    assert np.isfinite(found.mean()).all()


def test_features_whose_products_overflow_are_refused_in_our_words():
    X = 1e200 * normal(65, 30, 2)
    with pytest.raises(ValueError, match="rescale them"):  # by the first value of the kernel
        kb.ConditionalEmbedding(kb.Linear(), kb.Linear(), 1e-3).fit(X, X)
    X[0] = 0.0
    with pytest.raises(ValueError, match="check the kernel's scale"):
        kb.ConditionalEmbedding(kb.Linear(), kb.Linear(), 1e-3).fit(X, X)(X[:1])


def test_a_prior_of_decimals_may_be_a_list():
    draws = [Decimal("1.5"), Decimal("2.5"), Decimal("3")]
    array = np.array([1.5, 2.5, 3.0])
    for given in (draws, tuple(draws), [[value] for value in draws]):
        found = kb.as_prior(given).sample(20, np.random.default_rng(0))
        np.testing.assert_array_equal(
            found, kb.as_prior(array).sample(20, np.random.default_rng(0))
        )


def test_moments_too_small_for_single_precision_are_doubles():
    points = np.array([1e-30, 2e-30], dtype=np.float32)
    found = kb.embed(points, kb.Gaussian(1e-30)).moment(2)
    np.testing.assert_allclose(found, [2.5e-60], rtol=1e-6)
    assert kb.embed(points, kb.Gaussian(1e-30)).moment(1).dtype == np.float32


@pytest.mark.parametrize("wrong", ["kernel_x", "kernel_z"])
def test_a_kernel_of_another_dimension_is_refused_by_fit(wrong):
    rng = np.random.default_rng(0)
    X, Z = rng.normal(size=(7, 2)), rng.normal(size=(7, 1))
    kernels = {"kernel_x": kb.Gaussian(1.0), "kernel_z": kb.Gaussian(1.0)}
    kernels[wrong] = kb.Gaussian((1.0,) * 9)
    with pytest.raises(ValueError, match="9"):
        kb.ConditionalEmbedding(**kernels, ridge=0.1).fit(X, Z)


@pytest.mark.parametrize(
    "given", [{}, {"kernel_x": kb.Gaussian(1.0), "kernel_z": kb.Gaussian(1.0)}]
)
def test_a_rank_that_is_a_word_is_refused_in_our_words(given):
    X = normal(3, 30, 1)
    with pytest.raises((TypeError, ValueError), match="rank"):
        kb.KernelBayesFilter(rank="some", **given).fit(X, X)
