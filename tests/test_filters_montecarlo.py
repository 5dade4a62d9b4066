"""KernelMonteCarloFilter: a known transition to sample from, observations learned from pairs."""

import pickle

import numpy as np
import pytest

import kernelbayes as kb

METHODS = ["importance", "original"]
A, Q, R = 0.9, 0.3, 0.3
STATIONARY = Q / (1.0 - A * A)


def transition(z, rng, control=None):
    return A * z + np.sqrt(Q) * rng.normal(size=z.shape)


def initial(m, rng):
    return np.sqrt(STATIONARY) * rng.normal(size=(m, 1))


def pairs(rng, n):
    """State-observation examples, not a sequence, wider than the stationary law."""
    z = 1.5 * np.sqrt(STATIONARY) * rng.normal(size=n)
    return z, z + np.sqrt(R) * rng.normal(size=n)


def sequence(rng, length, control=None):
    z = np.empty(length)
    z[0] = initial(1, rng)[0, 0]
    for t in range(1, length):
        z[t] = transition(z[t - 1 : t], rng)[0] + (0.0 if control is None else control[t])
    return z, z + np.sqrt(R) * rng.normal(size=length)


def kalman(x, control=None):
    """Filtered and smoothed means."""
    m, v, predicted = [], [], []
    for t, value in enumerate(x):
        mean, variance = (0.0, STATIONARY) if t == 0 else (A * m[-1], A * A * v[-1] + Q)
        mean += 0.0 if control is None or t == 0 else control[t]
        predicted.append((mean, variance))
        gain = variance / (variance + R)
        m.append(mean + gain * (value - mean))
        v.append((1.0 - gain) * variance)
    smooth = [m[-1]]
    for t in range(len(x) - 2, -1, -1):
        smooth.insert(0, m[t] + v[t] * A / predicted[t + 1][1] * (smooth[0] - predicted[t + 1][0]))
    return np.array(m), np.array(smooth)


def fit(n=250, seed=0, move=transition, **options):
    z, x = pairs(np.random.default_rng(seed), n)
    options = {"rng": 0} | options
    return kb.KernelMonteCarloFilter(move, initial, **options).fit(x, z)


TRUTH, SEEN = sequence(np.random.default_rng(100), 60)


def error(found, truth=TRUTH):
    return float(np.mean((np.ravel(found) - truth) ** 2))


def ratio(model, runs, length):
    """Mean squared errors over those of Kalman and of RTS, same sequences."""
    errors = []
    for run in range(runs):
        truth, x = sequence(np.random.default_rng([7, run]), length)
        best, smooth = kalman(x)
        found = model.filter(x).mean(), best, model.smooth(x).mean(), smooth
        errors.append([error(f, truth) for f in found])
    a, b, c, d = np.mean(errors, axis=0)
    return a / b, c / d


@pytest.mark.parametrize("method", METHODS)
def test_linear_gaussian_is_close_to_kalman(method):
    # One filter learned from 500 pairs is within a tenth of its mean, three of them half of that.
    found = [ratio(fit(500, seed, method=method), 2, 60) for seed in range(3)]
    filtered, smoothed = np.mean(found, axis=0)
    assert filtered < 1.25
    assert smoothed < 1.4


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_linear_gaussian_approaches_kalman(method):
    filtered, smoothed = ratio(fit(2000, method=method), 3, 150)
    assert filtered < 1.1
    assert smoothed < 1.15


@pytest.mark.parametrize(
    "options",
    [
        {"threshold": 0.0},
        {"threshold": 1.0},
        {"picks": 60},
        {"particles": 120},
        {"particles": 600},
        {"particles": 400, "picks": 100},
        {"subsample": 120},
        {"rank": 60},
        {"rank": 250},
        {"subsample": 150, "rank": 50, "picks": 50},
    ],
    ids=str,
)
def test_variants_stay_close(options):
    whole, variant = fit().filter(SEEN).mean(), fit(**options).filter(SEEN).mean()
    assert error(variant) < 1.35 * error(whole)
    assert np.sqrt(np.mean((whole - variant) ** 2)) < 0.5 * np.sqrt(error(whole))


def test_sizes_are_what_was_asked_for():
    assert len(fit(subsample=40).Z_) == 40
    seen = []

    def counting(z, rng, control=None):
        seen.append(len(z))
        return transition(z, rng)

    for options in ({"particles": 70}, {"particles": 80, "picks": 20}):
        model = fit(move=counting, threshold=1.0, **options)
        seen.clear()  # of what fit tries out
        model.filter(SEEN[:5])
        assert seen == [options["particles"]] * 4


def test_without_resampling_all_training_states_move():
    seen = []

    def counting(z, rng, control=None):
        seen.append(len(z))
        return transition(z, rng)

    model = fit(move=counting, threshold=0.0, particles=70)
    seen.clear()
    model.filter(SEEN[:4])
    assert seen == [250] * 3


def test_the_same_rng_gives_the_same_beliefs():
    one, same, other = (fit(rng=r).filter(SEEN).weights for r in (3, 3, 4))
    np.testing.assert_array_equal(one, same)
    assert np.abs(one - other).max() > 0.0
    model = fit(rng=3)
    np.testing.assert_array_equal(model.filter(SEEN).weights, model.filter(SEEN).weights)


def test_a_generator_as_rng():
    a, b = (fit(rng=np.random.default_rng(1)).filter(SEEN).weights for _ in range(2))
    np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("method", METHODS)
def test_filter_is_the_loop_of_step_and_resumes(method):
    model = fit(150, method=method)
    expected = model.filter(SEEN[:20]).weights
    state = model.start()
    for t in range(20):
        if t == 10:
            state, model = pickle.loads(pickle.dumps((state, model)))
        state, info = model.step(state, SEEN[t])
        np.testing.assert_allclose(state.belief.weights, expected[t], atol=1e-10)
        assert info.observed
        assert not info.fallback


def test_pairs_may_come_in_any_order():
    z, x = pairs(np.random.default_rng(0), 250)
    order = np.random.default_rng(1).permutation(250)
    model = kb.KernelMonteCarloFilter(transition, initial, rng=0).fit(x[order], z[order])
    found, expected = model.filter(SEEN).mean(), fit().filter(SEEN).mean()
    assert np.sqrt(np.mean((found - expected) ** 2)) < 0.3 * np.sqrt(error(expected))


def test_pairs_may_come_in_parts():
    z, x = pairs(np.random.default_rng(0), 250)
    model = kb.KernelMonteCarloFilter(transition, initial, rng=0)
    model.fit([x[:100], x[100:]], [z[:100], z[100:]])
    np.testing.assert_array_equal(model.filter(SEEN).weights, fit().filter(SEEN).weights)


# --- transitions ---------------------------------------------------------------------------------


def test_a_transition_that_depends_on_time():
    """The state follows a known wave; a filter that is told the time beats one that is not."""

    def wave(z, rng, control=None, t=0):
        return 0.5 * z + np.sin(0.7 * t) + 0.1 * rng.normal(size=z.shape)

    def still(z, rng, control=None):
        return 0.5 * z + 0.75 * rng.normal(size=z.shape)

    rng = np.random.default_rng(2)
    z = np.zeros(50)
    for t in range(1, 50):
        z[t] = wave(z[t - 1 : t], rng, t=t)[0]
    x = z + rng.normal(size=50)
    states = rng.uniform(-2.5, 2.5, size=250)
    seen = states + rng.normal(size=250)
    models = [
        kb.KernelMonteCarloFilter(f, lambda m, rng: np.zeros((m, 1)), rng=0).fit(seen, states)
        for f in (wave, still)
    ]
    told, blind = (error(m.filter(x).mean(), z) for m in models)
    assert told < 0.4 * blind
    smooth = error(models[0].smooth(x).mean(), z)
    assert smooth < 0.5 * blind
    state = models[0].start()
    for t in range(10):
        state, _ = models[0].step(state, x[t])
    np.testing.assert_allclose(
        state.belief.weights, models[0].filter(x[:10]).weights[-1], atol=1e-10
    )
    # A forecast is told the time too: sin(7) after ten steps is high, sin(10.5) after 15 is low.
    ahead = models[0].forecast(x[:10], 8).mean()[:, 0]
    wave_alone = [z[9]]
    for t in range(10, 18):
        wave_alone.append(0.5 * wave_alone[-1] + np.sin(0.7 * t))
    assert np.sqrt(np.mean((ahead - wave_alone[1:]) ** 2)) < 0.4


def push(z, rng, control=None):
    return transition(z, rng) + (0.0 if control is None else control)


def test_controls():
    # Without controls the Kalman filter is off by b = (1 - K) (2 - A b) at each step, in turn up
    # and down. In its steady state (K = 0.6, variance 0.18) that is 0.6, three times the error.
    u = 2.0 * (-1.0) ** np.arange(60)
    rng = np.random.default_rng(3)
    sequences = [sequence(rng, 60, u) for _ in range(4)]
    truth, x, controls = np.ravel([z for z, _ in sequences]), [x for _, x in sequences], [u] * 4
    states = 2.0 * np.sqrt(STATIONARY) * rng.normal(size=400)  # wide enough for all of them
    model = kb.KernelMonteCarloFilter(push, initial, particles=200, rng=0)
    model.fit(states + np.sqrt(R) * rng.normal(size=400), states)

    def off(beliefs):
        return error([belief.mean()[:, 0] for belief in beliefs], truth)

    found = model.filter(x, controls)
    assert off(found) < 1.3 * error([kalman(seen, u)[0] for seen in x], truth)
    assert off(found) < 0.8 * off(model.filter(x))
    assert off(model.smooth(x, controls)) < off(found)
    np.testing.assert_array_equal(model.filter(x[0], u).weights, model.filter(x[0], u[1:]).weights)
    up, down = (
        model.forecast(x[0], 3, np.append(u, np.full(3, c))).mean()[-1, 0] for c in (1.0, -1.0)
    )
    assert up > down + 1.0


def test_a_transition_that_needs_its_control_can_be_fitted():
    def needs(z, rng, control):
        return 0.9 * z + control + 0.1 * rng.normal(size=z.shape)

    z, x = pairs(np.random.default_rng(0), 100)
    model = kb.KernelMonteCarloFilter(needs, initial, rng=0).fit(x, z, np.zeros(100))
    assert np.isfinite(model.filter(SEEN[:5], np.zeros(5)).weights).all()


def test_missing_rows_and_gaps_are_predictions():
    model = fit(150)
    holes = np.insert(SEEN[:10], 5, [np.nan, np.nan])
    gaps = np.where(np.arange(10) == 5, 3, 1)
    found = model.filter(holes)
    assert not found.info.observed[5:7].any()
    kept = np.delete(np.arange(12), [5, 6])
    np.testing.assert_allclose(
        model.filter(SEEN[:10], gaps=gaps).weights, found.weights[kept], atol=1e-10
    )
    np.testing.assert_allclose(found.weights[5:7], model.forecast(SEEN[:5], 2).weights, atol=1e-10)


@pytest.mark.parametrize("kind", ["points", "embedding", "function"])
def test_a_prior_for_the_first_state(kind):
    model = fit(150)
    points = 2.0 + 0.2 * np.random.default_rng(0).normal(size=(100, 1))
    prior = {
        "points": points,
        "embedding": kb.embed(points, model.kernel_z_),
        "function": lambda m, rng: 2.0 + 0.2 * rng.normal(size=(m, 1)),
    }[kind]
    state, _ = model.step(model.start(prior=prior), None)
    assert state.belief.mean()[0] == pytest.approx(2.0, abs=0.15)


# --- never lost ----------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"rank": 50}, {"picks": 40}])
@pytest.mark.parametrize("method", METHODS)
def test_observations_out_of_reach(method, options):
    """KMCF16 model 2: kernel values of far observations underflow."""
    model = fit(150, method=method, **options)
    x = SEEN[:30].copy()
    x[5:8], x[15] = 1e3, -1e200
    told = r"4 of 30 observations \(5, 6, 7, 15\) are unlike anything in the training sample: 100%"
    with pytest.warns(kb.NumericalWarning, match=told):
        beliefs = model.filter(x)
    assert np.isfinite(beliefs.weights).all()
    assert np.isfinite(beliefs.info.ess).all()
    assert beliefs.info.fallback[[5, 6, 7, 15]].all()
    np.testing.assert_array_equal(beliefs.info.support[[5, 15]], 0.0)
    assert not beliefs.info.fallback[[0, 1, 2, 3]].any()
    clean = model.filter(SEEN[:30]).mean()
    assert np.abs(beliefs.mean()[24:] - clean[24:]).max() < 0.3
    with pytest.warns(kb.NumericalWarning, match=told):
        smoothed = model.smooth(x)
    assert np.isfinite(smoothed.weights).all()


def test_exponential_noise_as_in_model_2():
    rng = np.random.default_rng(4)
    z, _ = pairs(rng, 200)
    truths = [sequence(rng, 80)[0] for _ in range(5)]  # the error of one is within a factor of two
    seen = [0.5 * np.exp(s / 2) * rng.standard_t(2, size=len(s)) for s in (z, *truths)]
    model = kb.KernelMonteCarloFilter(transition, initial, rng=0).fit(seen[0], z)
    beliefs = model.filter(seen[1:])
    assert all(np.isfinite(belief.weights).all() for belief in beliefs)
    errors = [error(b.mean(), truth) for b, truth in zip(beliefs, truths, strict=True)]
    assert np.mean(errors) < 1.1 * np.mean(np.var(truths, axis=1))


def test_states_that_leave_the_training_sample():
    model = fit(150, move=lambda z, rng, control=None: z + 100.0)
    told = r"predictions of 9 of 10 steps \(1, .*\) have left the training states.*; 9 were lost"
    with pytest.warns(kb.NumericalWarning, match=told):  # all but the first, which is the prior
        beliefs = model.filter(SEEN[:10])
    assert np.isfinite(beliefs.weights).all()
    np.testing.assert_allclose(beliefs.weights.sum(axis=1), 1.0, atol=1e-8)
    np.testing.assert_array_equal(beliefs.info.left, [0.0] + 9 * [1.0])


def test_states_on_a_circle():
    rng = np.random.default_rng(5)

    def turn(z, rng, control=None):
        return (z + 0.4 + 0.2 * rng.normal(size=z.shape)) % (2 * np.pi)

    angle = rng.uniform(0, 2 * np.pi, size=250)
    truth = np.cumsum(0.4 + 0.2 * rng.normal(size=25)) % (2 * np.pi)
    seen, new = (
        np.column_stack([np.cos(a), np.sin(a)]) + 0.4 * rng.normal(size=(len(a), 2))
        for a in (angle, truth)
    )
    model = kb.KernelMonteCarloFilter(
        turn, lambda m, rng: rng.uniform(0, 2 * np.pi, size=(m, 1)),
        kernel_z=kb.Periodic(0.7, 2 * np.pi), rng=0,
    ).fit(seen, angle)  # fmt: skip

    def apart(a):
        return np.mean(((a - truth + np.pi) % (2 * np.pi) - np.pi) ** 2)

    found = model.filter(new).preimage()[:, 0]
    assert apart(found) < apart(np.arctan2(new[:, 1], new[:, 0]))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: kb.KernelMonteCarloFilter(0.9, initial).fit(SEEN, TRUTH), "transition"),
        (lambda: kb.KernelMonteCarloFilter(transition, initial).fit(SEEN, TRUTH[1:]), "pairs"),
        (lambda: fit(method="newest"), "method"),
        (lambda: fit(ridge=0.0), "ridge"),
        (lambda: fit(prior_ridge=-1.0), "ridge"),
        (lambda: fit(rank=0), "rank"),
        (lambda: fit(subsample=10_000), "subsample"),
        (lambda: fit(subsample=0), "subsample|at least|m must"),
        (lambda: fit(particles=0), "particles"),
        (lambda: fit(picks=0).filter(SEEN), "picks"),
        (lambda: fit(threshold=-1.0).filter(SEEN), "threshold"),
        (lambda: fit(move=lambda z, rng, control=None: z[1:]), "one state per state"),
        (lambda: fit(move=lambda z, rng, control=None: z * np.nan), "NaN|finite"),
        (lambda: fit(100).start(prior=np.full((5, 1), 1e6)), "nowhere near"),
        (lambda: fit(100).start(prior=np.zeros((5, 2))), "dimension|columns|shape"),
        (lambda: fit(100).filter(np.zeros((5, 2))), "dimension|columns|shape"),
        (lambda: fit(100).forecast(SEEN, 0), "horizon"),
        (lambda: fit(100).smooth(SEEN, lag=-1), "lag"),
        (lambda: kb.KernelMonteCarloFilter(transition, initial).filter(SEEN), "fit"),
    ],
)
def test_bad_input_is_named(call, words):
    with pytest.raises((ValueError, TypeError), match=words):
        call()
