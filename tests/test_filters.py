"""Laws of the filters: loops equal steps, lists equal parts, lags, controls, states, bad input."""

import pickle
from dataclasses import FrozenInstanceError
from functools import cache
from itertools import pairwise

import numpy as np
import pytest
from scipy.spatial.transform import Rotation as SpatialRotation

import kernelbayes as kb

METHODS = ["importance", "original"]


def circling(rng, length, noise=0.2):
    """A point going round with noise, seen through noise; 2-d."""
    angle = rng.uniform(0, 6) + np.cumsum(0.3 + 0.1 * rng.normal(size=length))
    z = np.column_stack([np.cos(angle), np.sin(angle)])
    return z, z + noise * rng.normal(size=z.shape)


def driven(rng, length):
    """A number pushed by a known input: z' = 0.9 z + u + noise; u (T,), u_t acts into step t."""
    u = rng.choice([-1.0, 0.0, 1.0], size=length)
    z = np.zeros(length)
    for t in range(1, length):
        z[t] = 0.9 * z[t - 1] + u[t] + 0.1 * rng.normal()
    return z, z + rng.normal(size=length), u


def walk(z, rng, control=None):
    angle = 0.3 + 0.1 * rng.normal(size=len(z))
    c, s = np.cos(angle), np.sin(angle)
    return np.column_stack([c * z[:, 0] - s * z[:, 1], s * z[:, 0] + c * z[:, 1]])


def push(z, rng, control=None):
    return 0.9 * z + (0.0 if control is None else control) + 0.1 * rng.normal(size=z.shape)


RNG = np.random.default_rng(0)
Z, X = circling(RNG, 120)
NEW_Z, NEW = circling(RNG, 20)
DRIVEN = driven(RNG, 120)
DRIVEN_NEW = driven(RNG, 20)


RIDGES = {"prior_ridge": 1e-4, "transition_ridge": 1e-4, "ridge": 1e-2, "back_ridge": 3e-2}


def bayes(**options):
    """Make a filter with ridges as given; laws hold for any."""
    original = {"ridge": 1e-4} if options.get("method") == "original" else {}
    return kb.KernelBayesFilter(**(RIDGES | original | {"rng": 0} | options))


# No windows, estimates or exponents: where the equations of the plain filter are compared.
PLAIN = {"lags": 1, "order": 1, "features": "raw", "memory": 1.0, "tempering": 1.0}


def learning(**options):
    """Make a filter that chooses its ridges."""
    return kb.KernelBayesFilter(rng=0, **options)


def monte_carlo(transition=walk, initial=lambda m, rng: rng.normal(size=(m, 2)), **options):
    return kb.KernelMonteCarloFilter(transition, initial, rng=0, **options)


FILTERS = {
    "importance": lambda: bayes().fit(X, Z),
    "original": lambda: bayes(method="original").fit(X, Z),
    "shift": lambda: bayes(transition="shift").fit(X, Z),
    "observation": lambda: bayes(initial="observation").fit(X, Z),
    "rank": lambda: bayes(rank=40).fit(X, Z),
    "montecarlo": lambda: monte_carlo().fit(X, Z),
    "driven": lambda: bayes().fit(DRIVEN[1], DRIVEN[0], DRIVEN[2]),
}


@cache
def fitted(name):
    return FILTERS[name]()


@pytest.fixture(params=["importance", "original", "shift", "observation", "rank", "montecarlo"])
def model(request):
    return fitted(request.param)


@pytest.fixture
def plain():
    return fitted("importance")


def run(model, X, controls=None, gaps=None, lag=0):
    """Weights (T, n), infos and states of the loop of steps."""
    state, found, infos, states = model.start(lag=lag), [], [], []
    for t, x in enumerate(X):
        u = None if controls is None or t == 0 else controls[t]
        state, info = model.step(state, x, u, 1 if gaps is None or t == 0 else int(gaps[t]))
        found.append(state.belief.weights)
        infos.append(info)
        states.append(state)
    return np.array(found), infos, states


def close(found, expected, tol=1e-9):
    scale = np.abs(expected).max()
    np.testing.assert_allclose(found, expected, rtol=0, atol=tol * scale)


# --- filter is the loop of step ------------------------------------------------------------------


def test_filter_is_the_loop_of_step(model):
    found, infos, _ = run(model, NEW)
    beliefs = model.filter(NEW)
    close(found, beliefs.weights)
    close([i.support for i in infos], beliefs.info.support)
    close([i.ess for i in infos], beliefs.info.ess)
    close([i.mass for i in infos], beliefs.info.mass)


def test_filter_is_the_loop_of_step_with_missing_rows_and_gaps(model):
    X = NEW.copy()
    X[[0, 5, 6, 19]] = np.nan
    X[10, 1] = np.nan
    gaps = np.where(np.arange(20) % 7 == 3, 3, 1)
    found, infos, _ = run(model, X, gaps=gaps)
    beliefs = model.filter(X, gaps=gaps)
    close(found, beliefs.weights)
    assert beliefs.info.observed.tolist() == [i.observed for i in infos]
    assert not beliefs.info.observed[[0, 5, 6, 19]].any()
    assert beliefs.info.observed[10]


@pytest.mark.parametrize("method", METHODS)
def test_filter_is_the_loop_of_step_with_controls(method):
    z, x, u = DRIVEN
    _, new, acting = DRIVEN_NEW
    model = bayes(method=method).fit(x, z, u)
    gaps = np.where(np.arange(20) % 9 == 4, 2, 1)
    for g in (None, gaps):
        close(run(model, new, acting, g)[0], model.filter(new, acting, g).weights)


def test_monte_carlo_filter_is_the_loop_of_step_with_controls():
    z, x, _ = DRIVEN
    _, new, acting = DRIVEN_NEW
    model = monte_carlo(push, lambda m, rng: rng.normal(size=(m, 1))).fit(x, z)
    close(run(model, new, acting)[0], model.filter(new, acting).weights)


# --- sequences -----------------------------------------------------------------------------------


def test_a_list_of_sequences_is_one_at_a_time(model):
    parts = [NEW, NEW[5:6], NEW[10:17]]
    together = model.filter(parts)
    smooth = model.smooth(parts)
    ahead = model.forecast(parts, 3)
    assert [len(b) for b in together] == [20, 1, 7]
    for i, part in enumerate(parts):
        close(together[i].weights, model.filter(part).weights)
        close(smooth[i].weights, model.smooth(part).weights)
        close(ahead[i].weights, model.forecast(part, 3).weights)


def test_lists_with_controls_and_gaps_are_one_at_a_time():
    z, x, u = DRIVEN
    _, new, acting = DRIVEN_NEW
    model = bayes().fit(x, z, u)
    parts, controls = [new, new[:10]], [acting, acting[1:10]]
    gaps = [np.where(np.arange(20) == 3, 4, 1), np.full(10, 2)]
    for b, p, c, g in zip(model.filter(parts, controls, gaps), parts, controls, gaps, strict=True):
        close(b.weights, model.filter(p, c, g).weights)


@pytest.mark.parametrize("method", METHODS)
def test_many_training_sequences_are_the_sample_with_boundaries(method):
    cuts = [0, 60, 61, 100, 120]
    parts = [slice(a, b) for a, b in pairwise(cuts)]
    model = learning(method=method, **PLAIN).fit([X[p] for p in parts], [Z[p] for p in parts])
    np.testing.assert_array_equal(model.Z_, Z)
    inside = np.setdiff1d(np.arange(120), cuts[:-1])
    np.testing.assert_array_equal(model.dynamics_.target, inside)
    np.testing.assert_array_equal(model.dynamics_.source, inside - 1)
    # The order of the sequences permutes the training points and nothing else.
    order = [3, 1, 0, 2]
    kernels = {"kernel_x": model.kernel_x_, "kernel_z": model.kernel_z_}
    ridges = {
        "prior_ridge": model.prior_ridge_,
        "transition_ridge": model.transition_ridge_,
        "ridge": model.ridge_,
        "back_ridge": model.back_ridge,
    }
    other = learning(method=method, **kernels, **ridges)
    other.fit([X[parts[i]] for i in order], [Z[parts[i]] for i in order])
    close(other.filter(NEW).mean(), model.filter(NEW).mean(), 1e-5)
    # A transition across an end would move weight there: starts of sequences never get any.
    ahead = model.forecast(NEW, 1).weights[0]
    np.testing.assert_array_equal(ahead[cuts[:-1]], 0.0)


def test_one_sequence_in_a_list_is_the_sequence():
    one, other = bayes().fit(X, Z), bayes().fit([X], [Z])
    np.testing.assert_array_equal(one.filter(NEW).weights, other.filter(NEW).weights)


def test_sequences_of_length_one_add_pairs_and_no_transitions():
    singles_x, singles_z = list(X[100:, None, :]), list(Z[100:, None, :])
    model = bayes().fit([X[:100], *singles_x], [Z[:100], *singles_z])
    assert model.n == 120
    assert len(model.dynamics_.target) == 99


def test_full_rank_is_exact():
    kernels = {"kernel_x": kb.Laplace(1.0), "kernel_z": kb.Laplace(1.0)}
    exact, full = (bayes(**kernels, rank=rank).fit(X, Z) for rank in (None, 120))
    close(full.filter(NEW).weights, exact.filter(NEW).weights, 1e-6)
    close(full.smooth(NEW).weights, exact.smooth(NEW).weights, 1e-6)
    close(full.forecast(NEW, 4).weights, exact.forecast(NEW, 4).weights, 1e-6)


# --- gaps ----------------------------------------------------------------------------------------


def test_a_gap_is_missing_rows(model):
    gaps = np.ones(20, dtype=int)
    gaps[12] = 4
    filled = np.insert(NEW, 12, np.full((3, 2), np.nan), axis=0)
    kept = np.delete(np.arange(23), [12, 13, 14])
    close(model.filter(NEW, gaps=gaps).weights, model.filter(filled).weights[kept])
    close(model.smooth(NEW, gaps=gaps).weights, model.smooth(filled).weights[kept])
    close(model.forecast(NEW, 2, gaps=gaps).weights, model.forecast(filled, 2).weights)


# --- controls ------------------------------------------------------------------------------------


def test_one_control_per_step_or_per_transition_is_the_same():
    z, x, u = DRIVEN
    _, new, acting = DRIVEN_NEW
    full, short = bayes().fit(x, z, u), bayes().fit(x, z, u[1:])
    expected = full.filter(new, acting).weights
    np.testing.assert_array_equal(full.filter(new, acting[1:]).weights, expected)
    np.testing.assert_array_equal(short.filter(new, acting).weights, expected)
    future = np.append(acting, [1.0, -1.0])
    a, b = (full.forecast(new, 2, c).weights for c in (future, future[1:]))
    np.testing.assert_array_equal(a, b)


def test_finite_kernels_on_states_and_controls_are_those_of_their_values():
    rng = np.random.default_rng(4)
    z, u = rng.normal(size=(60, 2)), rng.normal(size=(60, 1))
    x = z + 0.1 * rng.normal(size=z.shape)
    means = []
    for linear in (kb.Linear(), kb.Custom(lambda A, B: A @ B.T)):
        model = kb.KernelBayesFilter(
            kb.Gaussian(1.0), linear, linear, prior_ridge=1e-2, transition_ridge=1e-2, ridge=0.1,
            rng=0,
        )  # fmt: skip
        means.append(model.fit(x, z, u).filter(x[:8], u[:8]).weights @ z)
    # Features of rank 2: their factor and that of the Gram matrix differ by rounding.
    np.testing.assert_allclose(*means, atol=1e-8)


def test_controls_matter():
    rng, errors = np.random.default_rng(7), []
    for _ in range(3):  # the error of one filter learned from 200 steps varies by a third
        z, x, u = driven(rng, 200)
        truth, new, acting = driven(rng, 100)
        told = learning().fit(x, z, u)
        found = (
            told.filter(new, acting),
            learning().fit(x, z).filter(new),
            told.filter(new, -acting),
        )
        inside = np.abs(truth) < 2.5  # a standard deviation: the training sample reaches further
        errors.append([np.mean((b.mean()[inside, 0] - truth[inside]) ** 2) for b in found])
    informed, blind, wrong = np.mean(errors, axis=0)
    assert informed < 0.6 * blind
    assert informed < 0.6 * wrong


def test_controls_low_rank_is_close_to_exact():
    rng = np.random.default_rng(8)
    z, x, u = driven(rng, 300)
    _, new, acting = driven(rng, 60)
    exact, low = (bayes(rank=r).fit(x, z, u).filter(new, acting).mean() for r in (None, 100))
    assert np.sqrt(np.mean((exact - low) ** 2)) < 0.1 * exact.std()


def test_forecast_follows_the_controls():
    z, x, u = DRIVEN
    model, still = bayes().fit(x, z, u), np.zeros(20)
    up, down = (
        model.forecast(still, 2, np.append(still, [c, c])).mean()[-1, 0] for c in (1.0, -1.0)
    )
    # Two steps from the same state, 2 (1 + 0.9) apart, up to what a regression on 120 steps misses.
    assert up - down == pytest.approx(3.8, abs=0.4)


# --- smoothing and lags --------------------------------------------------------------------------


def test_smoothing_ends_with_the_filter_and_helps_before():
    rng = np.random.default_rng(9)
    z, x = circling(rng, 250)
    truth, new = circling(rng, 100)
    model = learning().fit(x, z)
    filtered, smooth = model.filter(new), model.smooth(new)
    close(smooth.weights[-1], filtered.weights[-1])
    errors = [np.mean((b.mean() - truth) ** 2) for b in (smooth, filtered)]
    assert errors[0] < 0.9 * errors[1]


def test_smoothed_beliefs_tell_their_own_effective_sample_size(model):
    for beliefs in (model.smooth(NEW), model.smooth(NEW, lag=3), model.filter(NEW)):
        np.testing.assert_allclose(beliefs.info.ess, beliefs.ess)
        np.testing.assert_allclose(beliefs.to_frame()["ess"], beliefs.ess)


def test_lags_run_from_the_filter_to_the_smoother(model):
    X = NEW[:15].copy()
    X[6] = np.nan
    close(model.smooth(X, lag=0).weights, model.filter(X).weights)
    for lag in (14, 15, 100):
        close(model.smooth(X, lag=lag).weights, model.smooth(X).weights)


@pytest.mark.parametrize("lag", [1, 3])
def test_online_smoothing_is_the_fixed_lag_smoother(model, lag):
    _, _, states = run(model, NEW[:12], lag=lag)
    expected = model.smooth(NEW[:12], lag=lag).weights
    for t, state in enumerate(states):
        close(model.smoothed(state).weights, expected[max(t - lag, 0)] if t >= lag else
              model.smooth(NEW[: t + 1]).weights[0])  # fmt: skip
        assert len(state.history) <= lag


def test_online_smoothing_with_controls():
    z, x, u = DRIVEN
    _, new, acting = DRIVEN_NEW
    carlo = monte_carlo(push, lambda m, rng: rng.normal(size=(m, 1)))
    for model in (bayes().fit(x, z, u), carlo.fit(x, z)):
        _, _, states = run(model, new, acting, lag=2)
        expected = model.smooth(new, acting, lag=2).weights
        for t in range(2, 20):
            # Kernel values of one observation and of many differ by rounding, which the operators
            # of transition and prior magnify by up to 1 / ridge each, 2e-16 * 1e8.
            close(model.smoothed(states[t]).weights, expected[t - 2], tol=2e-8)


def test_without_a_lag_nothing_is_kept(plain):
    _, _, states = run(plain, NEW)
    assert all(state.history == () for state in states)
    close(plain.smoothed(states[-1]).weights, states[-1].belief.weights)


# --- states --------------------------------------------------------------------------------------


def test_states_do_not_change(model):
    _, _, states = run(model, NEW[:5], lag=2)
    state = states[-1]
    before = pickle.dumps((state.t, state.belief.weights, state.history))
    first, _ = model.step(state, NEW[5])
    again, _ = model.step(state, NEW[5])
    other, _ = model.step(state, -NEW[5])
    assert pickle.dumps((state.t, state.belief.weights, state.history)) == before
    np.testing.assert_array_equal(first.belief.weights, again.belief.weights)
    assert (first.t, state.t) == (6, 5)
    assert np.abs(other.belief.weights - first.belief.weights).max() > 0.0
    with pytest.raises(FrozenInstanceError):
        state.t = 0


def test_start_does_not_depend_on_what_came_before(model):
    first = run(model, NEW[:5])[0]
    model.filter(NEW[5:])
    np.testing.assert_array_equal(run(model, NEW[:5])[0], first)


def test_a_state_survives_a_file():
    model = bayes().fit(X, Z)
    whole, _, states = run(model, NEW, lag=2)
    state = pickle.loads(pickle.dumps(states[9]))
    model = pickle.loads(pickle.dumps(model))  # as in another process
    for t in range(10, 20):
        state, _ = model.step(state, NEW[t])
        np.testing.assert_array_equal(state.belief.weights, whole[t])
    assert state.t == 20
    close(model.smoothed(state).weights, model.smooth(NEW, lag=2).weights[17])


def test_the_size_of_a_state_does_not_grow(plain):
    _, _, states = run(plain, NEW, lag=3)
    sizes = [len(pickle.dumps(s)) for s in states[5:]]
    assert max(sizes) - min(sizes) < 100


# --- results -------------------------------------------------------------------------------------


def test_shapes_of_beliefs(model):
    beliefs = model.filter(NEW)
    assert beliefs.weights.shape == (20, len(Z))
    assert beliefs.mean().shape == (20, 2)
    assert beliefs.cov().shape == (20, 2, 2)
    assert beliefs[:2].interval(0.9).shape == (2, 2, 2)
    assert beliefs[:2].mode().shape == (2, 2)
    assert isinstance(beliefs[3], kb.Embedding)
    assert isinstance(beliefs[3:9], kb.Beliefs)
    assert len(beliefs[3:9].info.ess) == 6
    assert beliefs.info.fallback.shape == (20,)
    close(beliefs.weights.sum(axis=1), np.ones(20))
    assert beliefs.info[2].ess == pytest.approx(beliefs[2].ess)


def test_a_forecast_has_states_and_observations(model):
    ahead = model.forecast(NEW, 6)
    assert ahead.mean().shape == (6, 2)
    assert ahead.observations.mean().shape == (6, 2)
    np.testing.assert_allclose(ahead.weights.sum(axis=1), 1.0)
    np.testing.assert_allclose(ahead.observations.weights.sum(axis=1), 1.0)


def test_forecast_is_filtering_of_nothing(model):
    with_tail = np.vstack([NEW, np.full((3, 2), np.nan)])
    close(model.forecast(NEW, 3).weights, model.filter(with_tail).weights[20:])


def test_forecast_goes_round():
    rng = np.random.default_rng(2)
    z, x = circling(rng, 500, 0.1)
    truth, new = circling(rng, 60, 0.1)
    model = learning().fit(x, z)
    ahead = model.forecast(new[:57], 3)
    last = model.filter(new[:57]).mean()[-1]
    errors = np.linalg.norm(ahead.mean() - truth[57:], axis=1)
    stay = np.linalg.norm(last - truth[57:], axis=1)
    assert (errors < stay).all()
    assert ahead.cov()[2].trace() > ahead.cov()[0].trace()


def test_uniform_start_is_regression_on_the_first_observation():
    for initial in ("uniform", "observation"):
        model = bayes(initial=initial, ridge=1e-3, **PLAIN).fit(X, Z)
        rule = kb.ConditionalEmbedding(model.kernel_x_, model.kernel_z_, 1e-3).fit(X, Z)
        expected = rule(NEW[:1]).weights[0]
        close(model.filter(NEW[:1]).weights[0], expected / expected.sum(), 1e-5)


def test_a_frame_keeps_its_names():
    pd = pytest.importorskip("pandas")
    x, z = pd.DataFrame(X, columns=["u", "v"]), pd.DataFrame(Z, columns=["east", "north"])
    model = bayes().fit(x, z)
    beliefs = model.filter(pd.DataFrame(NEW, columns=["u", "v"]))
    assert beliefs.names == ("east", "north")
    frame = beliefs[:5].to_frame()
    assert {"east", "north", "east_low", "north_high", "ess", "support"} <= set(frame.columns)
    assert len(frame) == 5
    close(beliefs.weights, bayes().fit(X, Z).filter(NEW).weights)


def test_one_dimensional_sequences_may_be_flat():
    z, x, _ = DRIVEN
    flat = bayes().fit(x, z).filter(DRIVEN_NEW[1])
    column = bayes().fit(x[:, None], z[:, None]).filter(DRIVEN_NEW[1][:, None])
    close(flat.weights, column.weights)
    assert flat.mean().shape == (20, 1)


def test_a_filter_can_be_cloned():
    from sklearn.base import clone

    copy = clone(bayes(rank=20, method="original"))
    assert copy.rank == 20
    assert copy.fit(X, Z).filter(NEW[:3]).weights.shape == (3, 120)


# --- states that are no vectors ------------------------------------------------------------------


def turning(rng, length):
    """Angle in [0, 2 pi) that advances, seen as a noisy point on the circle."""
    angle = np.cumsum(0.4 + 0.15 * rng.normal(size=length)) % (2 * np.pi)
    seen = np.column_stack([np.cos(angle), np.sin(angle)]) + 0.3 * rng.normal(size=(length, 2))
    return angle, seen


def apart(a, b):
    return np.abs((a - b + np.pi) % (2 * np.pi) - np.pi)


def test_states_on_a_circle():
    rng = np.random.default_rng(3)
    angle, seen = turning(rng, 300)
    truth, new = turning(rng, 25)
    model = learning(kernel_z=kb.Periodic(0.7, 2 * np.pi)).fit(seen, angle)
    beliefs = model.filter(new)
    raw = np.arctan2(new[:, 1], new[:, 0])
    bar = np.sqrt(np.mean(apart(raw, truth) ** 2))
    for found in (beliefs.preimage(), beliefs.mode()):
        assert np.sqrt(np.mean(apart(found[:, 0], truth) ** 2)) < bar


def test_states_that_are_rotations():
    rng = np.random.default_rng(4)

    def spin(length):
        turn = SpatialRotation.from_rotvec([0.0, 0.0, 0.4])
        now, found = SpatialRotation.identity(), []
        for _ in range(length):
            now = SpatialRotation.from_rotvec(0.1 * rng.normal(size=3)) * turn * now
            found.append(now.as_matrix())
        R = np.array(found)
        flat = R.reshape(length, 9)
        return R, flat + 0.3 * rng.normal(size=flat.shape)

    R, seen = spin(250)
    truth, new = spin(60)
    model = learning(kernel_z=kb.Rotation(0.8)).fit(seen, R)
    beliefs = model.filter(new)

    def distance(found):
        relative = np.einsum("tij,tkj->tik", found, truth)
        return SpatialRotation.from_matrix(relative).magnitude().mean()

    nearest = R[((new[:, None] - seen[None]) ** 2).sum(axis=2).argmin(axis=1)]
    found = beliefs.preimage()
    assert found.shape == (60, 3, 3)
    np.testing.assert_allclose(np.linalg.det(found), 1.0, atol=1e-6)
    assert distance(found) < distance(nearest)


def hidden_markov_filter(seen, step, noise):
    """Exact beliefs (T, k) over rooms 0, ..., k - 1, each seen as its number plus normal noise."""
    beliefs = [np.full(len(step), 1.0 / len(step))]
    for x in seen:
        likelihood = np.exp(-0.5 * ((x - np.arange(len(step))) / noise) ** 2)
        updated = likelihood * (beliefs[-1] @ step)
        beliefs.append(updated / updated.sum())
    return np.array(beliefs[1:])


def test_states_that_are_names():
    rng = np.random.default_rng(5)
    rooms = np.array(["hall", "attic", "cellar"])

    def visit(length):
        z = np.zeros(length, dtype=int)
        for t in range(1, length):
            z[t] = z[t - 1] if rng.uniform() < 0.85 else rng.integers(3)
        return rooms[z], z + 0.6 * rng.normal(size=length)

    z, x = visit(400)
    truth, new = visit(400)
    beliefs = learning(kernel_z=kb.Delta()).fit(x, z).filter(new)
    found = rooms[np.argmax(beliefs.weights @ (z[:, None] == rooms), axis=1)]
    np.testing.assert_array_equal(np.asarray(beliefs[:9].preimage()).ravel(), found[:9])
    exact = rooms[np.argmax(hidden_markov_filter(new, 0.85 * np.eye(3) + 0.05, 0.6), axis=1)]
    # The two disagree on one step in ten at most; a right answer there is a fair coin or better:
    # the difference over 400 steps has a standard error below 0.016; three of these are allowed.
    assert np.mean(found == truth) > np.mean(exact == truth) - 0.05
    np.testing.assert_array_equal(np.asarray(beliefs[:9].mode()).ravel(), found[:9])


def test_a_product_of_a_circle_and_a_line():
    rng = np.random.default_rng(6)
    angle, seen = turning(rng, 220)
    height = np.sin(angle) + 0.1 * rng.normal(size=220)
    states = np.column_stack([angle, height])
    kernel = kb.Parts({0: kb.Periodic(0.7, 2 * np.pi), 1: kb.Gaussian(0.5)})
    model = learning(kernel_z=kernel).fit(seen[:200], states[:200])
    found = model.filter(seen[200:]).preimage()
    assert np.mean(apart(found[:, 0], angle[200:])) < 0.3
    assert np.mean(np.abs(found[:, 1] - height[200:])) < 0.3


# --- what cannot be done -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: bayes().fit(X, Z[:-1]), "119 states"),
        (lambda: bayes().fit([X, X], [Z]), "sequences"),
        (lambda: bayes().fit([X, X], Z), "sequences"),
        (lambda: bayes().fit([X, X[:5]], [Z, Z[:4]]), "sequence 1"),
        (lambda: bayes().fit(list(X[:, None, :]), list(Z[:, None, :])), "no transitions"),
        (lambda: bayes().fit(X[:1], Z[:1]), "no transitions"),
        (lambda: bayes().fit(X[:0], Z[:0]), "empty|no transitions|at least"),
        (lambda: bayes().fit(X, np.where(Z > 0.99, np.nan, Z)), "NaN|finite"),
        (lambda: bayes().fit(X, Z, np.zeros(7)), "controls"),
        (lambda: bayes().fit([X, X], [Z, Z], [np.zeros(120)]), "controls"),
        (lambda: bayes(method="newest").fit(X, Z), "method"),
        (lambda: bayes(transition="jump").fit(X, Z), "transition"),
        (lambda: bayes(transition="shift").fit(X, Z, np.zeros(120)), "controls"),
        (lambda: bayes(ridge=-1.0).fit(X, Z), "ridge"),
        (lambda: bayes(prior_ridge=0.0).fit(X, Z), "ridge"),
        (lambda: bayes(rank=0).fit(X, Z), "rank"),
        (lambda: bayes(initial="somewhere").fit(X, Z).filter(NEW), "initial"),
        (lambda: bayes().filter(NEW), "fit"),
    ],
)
def test_bad_training_is_named(call, words):
    with pytest.raises((ValueError, TypeError), match=words):
        call()


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda m: m.filter(NEW[:, :1]), "dimension|columns|coordinates|shape"),
        (lambda m: m.filter(np.zeros((5, 3))), "dimension|columns|coordinates|shape"),
        (lambda m: m.filter(NEW[:0]), "at least one"),
        (lambda m: m.filter([]), "at least one|empty"),
        (lambda m: m.step(m.start(), np.zeros(3)), "dimension|columns|coordinates|shape"),
        (lambda m: m.filter(NEW, np.zeros(20)), "without controls"),
        (lambda m: m.step(m.step(m.start(), NEW[0])[0], NEW[1], 1.0), "without controls"),
        (lambda m: m.filter(NEW, gaps=np.zeros(20)), "gaps"),
        (lambda m: m.filter(NEW, gaps=np.ones(19)), "gaps"),
        (lambda m: m.step(m.step(m.start(), NEW[0])[0], NEW[1], steps=0), "steps"),
        (lambda m: m.smooth(NEW, lag=-1), "lag"),
        (lambda m: m.start(lag=-1), "lag"),
        (lambda m: m.forecast(NEW, 0), "horizon"),
        (lambda m: m.forecast(NEW, -3), "horizon"),
        (lambda m: m.start(prior=np.zeros((4, 3))), "dimension|columns|coordinates|shape"),
        (lambda m: m.start(prior=np.full((4, 2), 1e6)), "prior"),
    ],
)
def test_bad_questions_are_named(plain, call, words):
    with pytest.raises((ValueError, TypeError), match=words):
        call(plain)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda m: m.filter(DRIVEN_NEW[1]), "with controls"),
        (lambda m: m.filter(DRIVEN_NEW[1], DRIVEN_NEW[2][:7]), "controls"),
        (lambda m: m.forecast(DRIVEN_NEW[1], 3, DRIVEN_NEW[2]), "controls"),
        (lambda m: m.forecast(DRIVEN_NEW[1], 3), "controls"),
        (lambda m: m.filter(DRIVEN_NEW[1], np.zeros((20, 2))), "dimension|columns|shape"),
        (lambda m: m.filter(DRIVEN_NEW[1], np.full(20, np.nan)), "NaN|finite"),
        (lambda m: m.filter([NEW[:, 0], NEW[:, 1]], [DRIVEN_NEW[2]]), "controls"),
        (lambda m: m.step(m.step(m.start(), 0.0)[0], 0.0), "with controls"),
    ],
)
def test_bad_controls_are_named(call, words):
    with pytest.raises((ValueError, TypeError), match=words):
        call(fitted("driven"))


def test_an_update_that_cannot_be_factored_is_rescued_and_told_of():
    """A ridge below rounding: the matrix of Bayes' rule is not positive definite at most steps.

    Two readings each occur many times, so that the matrix has rank two; a Matern kernel keeps it
    dense. Before, such observations were dropped without a word.
    """
    rng = np.random.default_rng(0)
    z = np.cumsum(rng.normal(size=300)) % 7.0
    x = np.round(z + 0.3 * rng.normal(size=300), 1)
    ridges = {"transition_ridge": 1e-3, "prior_ridge": 1e-3, "ridge": 1e-20}
    model = kb.KernelBayesFilter(kb.Matern(5.0, 1.5), kb.Gaussian(1.0), rng=0, **ridges)
    model.fit(x[:240], z[:240])
    with pytest.warns(kb.NumericalWarning, match="updates .* not numerically positive") as caught:
        beliefs = model.filter(x[240:])
    assert len(caught) == 1
    info = beliefs.info
    assert f"{info.rescued.sum()} of 60 updates" in str(caught[0].message)
    assert info.rescued.any()
    assert np.isfinite(info.mass[info.rescued]).all()  # none is dropped
    assert not info.fallback[info.rescued & (info.support > 0.99)].all()
    error = np.abs(beliefs.mean()[:, 0] - z[240:]).mean()
    assert error < np.abs(z.mean() - z[240:]).mean()

    def online():
        state, found = model.start(), []
        for row in x[240:]:
            state, one = model.step(state, row)
            found.append(one.rescued)
        return sum(found)

    with pytest.warns(kb.NumericalWarning, match="1 of 1 updates") as caught:
        assert online() == len(caught)
    with pytest.warns(kb.NumericalWarning, match="updates"):
        model.smooth(x[240:])
