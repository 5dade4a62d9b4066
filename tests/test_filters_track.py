"""Tracked features: a linear-Gaussian filter of regression estimates, and a regression on it."""

from dataclasses import replace

import numpy as np
import pytest

import kernelbayes as kb
from kernelbayes.filters.encode.track import TRANSITIONS, driving, learn_track

LENGTHS = [150, 90]
NOTHING = np.zeros((sum(LENGTHS), 0))  # drives these


def oscillating(rng, length, push=None):
    """Position and velocity of a noisy oscillator, which may be pushed; six sensors that saturate.

    Row t of the pushes acts on the way into step t.
    """
    A = 0.99 * np.array([[np.cos(0.2), np.sin(0.2)], [-np.sin(0.2), np.cos(0.2)]])
    z = np.zeros((length, 2))
    for t in range(1, length):
        z[t] = A @ z[t - 1] + 0.2 * rng.normal(size=2) + (0.0 if push is None else push[t])
    slopes = np.random.default_rng(5).normal(size=(2, 6))
    return z, np.tanh(z @ slopes) + 1.5 * rng.normal(size=(length, 6))


def learned(seed=0):
    rng = np.random.default_rng(seed)
    z, x = (np.concatenate(a) for a in zip(*(oscillating(rng, n) for n in LENGTHS), strict=True))
    return z, x, learn_track(x, x, NOTHING, z, kb.Gaussian(1.0), LENGTHS, False, 0)


def pushed(seed=0, unit=1.0):
    """States, observations, controls of transitions in some unit, and what a track learns."""
    rng = np.random.default_rng(seed)
    pushes = [rng.normal(size=(n, 2)) @ [[1.0, 0.5], [0.0, 1.0]] for n in LENGTHS]
    both = [oscillating(rng, n, u) for n, u in zip(LENGTHS, pushes, strict=True)]
    z, x = (np.concatenate(a) for a in zip(*both, strict=True))
    u = unit * np.concatenate([u[1:] for u in pushes])
    U = driving(u, kb.Gaussian(1.0), LENGTHS)
    return z, x, u, learn_track(x, x, U, z, kb.Gaussian(1.0), LENGTHS, False, 0)


def joint(track, T, U=None):
    """Mean (T, q) and covariance (T q, T q) of the states, moved by controls U (T - 1, p)."""
    q = len(track.unit)
    F = np.vstack([track.moves[:, : 2 * q], np.eye(q, 2 * q)])
    U = np.zeros((T - 1, 0)) if U is None else U
    noise = np.zeros((2 * q, 2 * q))
    noise[:q, :q] = track.noise
    means, covs = [track.mean], [track.cov]
    for u in U:
        drift = track.moves[:, 2 * q : -1] @ u + track.moves[:, -1]
        means.append(F @ means[-1] + np.concatenate([drift, np.zeros(q)]))
        covs.append(F @ covs[-1] @ F.T + noise)
    S = np.zeros((T, q, T, q))
    for s in range(T):
        moved = covs[s]
        for t in range(s, T):
            S[t, :, s, :] = moved[:q, :q]
            S[s, :, t, :] = moved[:q, :q].T
            moved = F @ moved
    return np.array([m[:q] for m in means]), S.reshape(T * q, T * q)


@pytest.mark.parametrize("controlled", [False, True])
@pytest.mark.parametrize("back", [False, True])
def test_means_are_those_of_the_joint_gaussian(back, controlled):
    track = (pushed()[-1] if controlled else learned()[-1])[1]
    # A wide start, so that no prediction is as wide.
    track = replace(track, cov=100.0 * track.cov)
    rng, T, q = np.random.default_rng(1), 7, 2
    Y = rng.normal(size=(T, q))
    Y[3] = np.nan
    U = rng.normal(size=(T - 1, 2)) if controlled else None
    prior, S = joint(track, T, U)
    C = np.kron(np.eye(T), track.sees[:, :q])
    offset = np.tile(track.sees[:, q], T)
    found = track.means(Y * track.unit + track.centre, None, back, U)
    found = (found - track.centre) / track.unit
    pushes, belief = np.tile(track.moves[:, -1], (T, 1)), None
    if controlled:
        pushes[1:] += U @ track.moves[:, 2 * q : -1].T
    y = Y.ravel()
    for t in range(T):
        known = ~np.isnan(y) & (np.arange(T * q) < (T if back else t + 1) * q)
        c = C[known]
        R = np.kron(np.eye(T), track.error)[np.ix_(known, known)]
        gain = np.linalg.solve(c @ S @ c.T + R, c @ S)[:, t * q : (t + 1) * q].T
        expected = prior[t] + gain @ (y[known] - c @ prior.ravel() - offset[known])
        # The backward pass adds 1e-8 to covariances whose smallest entries are about 1e-2.
        np.testing.assert_allclose(found[t], expected, rtol=0, atol=1e-5 if back else 1e-9)
        if not back:  # one by one, with the variance
            belief = track.step(belief, Y[t], 1, pushes[t])
            here = slice(t * q, (t + 1) * q)
            V = S[here, here] - gain @ (c @ S)[:, here]
            np.testing.assert_allclose(belief[:q], expected, rtol=0, atol=1e-9)
            np.testing.assert_allclose(
                belief[2 * q :].reshape(2 * q, 2 * q)[:q, :q], V, rtol=0, atol=1e-9
            )


def test_a_gap_is_as_many_missing_steps():
    _, _, (_, track, _) = learned()
    Y = np.random.default_rng(2).normal(size=(5, 2))
    apart = np.full((8, 2), np.nan)
    apart[[0, 1, 4, 5, 7]] = Y
    gaps = [1, 1, 3, 1, 2]
    np.testing.assert_allclose(track.means(Y, gaps), track.means(apart)[[0, 1, 4, 5, 7]])


def test_after_a_long_outage_nothing_is_known():
    _, _, (_, track, _) = learned()
    growing = replace(track, moves=track.moves * 1.2)
    Y = np.full((2000, 2), np.nan)
    Y[0] = 1.0
    M = growing.means(Y)
    assert np.isfinite(M).all()
    np.testing.assert_allclose(M[-1], track.mean[:2] * track.unit + track.centre)


def test_the_track_gains_over_single_observations_and_is_left_out():
    gains = []
    for seed in range(3):
        z, x, (window, _, left_out) = learned(seed)
        single = np.mean((window(x) - z) ** 2)  # not even left out
        gains.append(np.mean((left_out - z) ** 2) / single)
    # The states' noise is a tenth of the sensors' in one step: some ten observations count.
    assert np.mean(gains) < 0.7


def test_short_sequences_are_refused():
    z, x = oscillating(np.random.default_rng(0), 2 * TRANSITIONS * 5)
    lengths = [2] * (len(z) // 2)
    with pytest.raises(ValueError, match="two before them"):
        learn_track(x, x, np.zeros((len(z), 0)), z, kb.Gaussian(1.0), lengths, False, 0)


def test_a_tracked_filter_is_saved_and_goes_on(tmp_path):
    rng = np.random.default_rng(3)
    (z, x), (_, new) = oscillating(rng, 150), oscillating(rng, 12)
    ridges = {"prior_ridge": 1e-4, "transition_ridge": 1e-4, "ridge": 1e-2, "memory": 0.0}
    model = kb.KernelBayesFilter(features="tracked", lags=2, rng=0, **ridges).fit(x, z)
    state = model.start()
    for row in new[:6]:
        state, _ = model.step(state, row)
    kb.save(model, tmp_path / "model")
    kb.save(state, tmp_path / "state")
    model, state = kb.load(tmp_path / "model"), kb.load(tmp_path / "state")
    for row in new[6:]:
        state, _ = model.step(state, row)
    np.testing.assert_allclose(state.belief.mean(), model.filter(new).mean()[-1])


def walk(length, seed=0):
    """A slow walk on a line, and twelve noisy sensors of it."""
    rng = np.random.default_rng(seed)
    z = np.zeros(length)
    for t in range(1, length):
        z[t] = 0.9 * z[t - 1] + 0.4 * rng.normal()
    return z, z[:, None] + 2.0 * rng.normal(size=(length, 12))


def test_one_long_sequence_among_short_ones():
    z, x = walk(230)
    ends = np.cumsum([200, 10, 10])
    # Without the long one, too few states are left for a track; the default must do without.
    model = kb.KernelBayesFilter(rng=0).fit(np.split(x, ends), np.split(z, ends))
    assert model.features_ != "tracked"
    given = kb.KernelBayesFilter(features="tracked", lags=2, rng=0)
    given.fit(np.split(x, ends), np.split(z, ends))
    assert "too short to track" in given.choice_.why["settings"]


@pytest.mark.parametrize("features", ["auto", "regression", "tracked"])
def test_observations_at_every_second_step(features):
    z, x = walk(160)
    x[1::2] = np.nan
    lags = "auto" if features == "auto" else 2
    model = kb.KernelBayesFilter(features=features, lags=lags, rng=0).fit(x, z)
    assert np.isfinite(model.filter(x[:20]).mean()).all()


@pytest.mark.parametrize("features", ["regression", "tracked"])
def test_names_as_states(features):
    z, x = walk(200)
    names = np.where(z > 0, "up", "down")
    options = {"order": 1, "memory": 1.0, "tempering": 1.0, "intervals": "plain", "rng": 0}
    model = kb.KernelBayesFilter(features=features, lags=2, **options).fit(x, names)
    beliefs = model.filter(x)
    assert not beliefs.info.fallback.any()  # the kernel is on estimates, not on names
    assert np.mean(np.asarray(beliefs.mode()).ravel() == names) > np.mean(names == "up")
    assert len(model.smooth(x[:20]).mode()) == 20


# --- controls -------------------------------------------------------------------------------------


def test_controls_are_of_the_ways_into_steps():
    u = np.arange(1.0, 8.0)
    U = driving(u, kb.Gaussian(1.0), [4, 1, 5])
    assert U.tolist() == [[v] for v in (0.0, 1.0, 2.0, 3.0, 0.0, 0.0, 4.0, 5.0, 6.0, 7.0)]
    assert driving(u, kb.Delta(), [4, 1, 5]).shape == (10, 0)
    assert driving(None, None, [4, 1, 5]).shape == (10, 0)


@pytest.mark.parametrize("unit", [1.0, 1e-9, 1e9])
def test_what_controls_do_is_learned_in_any_unit(unit):
    _, _, _, (_, track, left_out) = pushed(unit=unit)
    q = 2
    B = track.moves[:, 2 * q : -1] * unit * track.unit[:, None]
    # The noise of a transition is 0.2, that of 236 of them 0.013; pushes have a spread of 1.
    np.testing.assert_allclose(B, np.eye(2), atol=0.06)
    # Rounding, 1e-16 of the inputs, times the condition of least squares, about 1e2.
    expected = pushed()[-1][2]
    np.testing.assert_allclose(left_out, expected, rtol=0, atol=1e-10 * np.abs(expected).max())


def test_controls_that_do_not_vary_change_nothing():
    z, x, (_, plain, expected) = learned()
    u = np.full((len(z), 2), 0.1)
    _, track, left_out = learn_track(x, x, u, z, kb.Gaussian(1.0), LENGTHS, False, 0)
    np.testing.assert_allclose(left_out, expected, rtol=0, atol=1e-10)
    new = np.random.default_rng(1).normal(size=(20, 2))
    M = plain.means(new)
    np.testing.assert_allclose(track.means(new, None, False, new[1:]), M, rtol=0, atol=1e-10)


def test_useless_controls_hardly_matter_and_too_many_are_left_out():
    z, x, (_, plain, expected) = learned()
    rng, off = np.random.default_rng(1), np.mean((expected - z) ** 2)
    u = rng.normal(size=(len(z), 2))
    left_out = learn_track(x, x, u, z, kb.Gaussian(1.0), LENGTHS, False, 0)[2]
    # Two coefficients beside five, of 236 transitions.
    assert np.mean((left_out - z) ** 2) < 1.03 * off
    many = rng.normal(size=(len(z), 30))  # 10 (2 q + 30 + 1) > 236
    _, track, left_out = learn_track(x, x, many, z, kb.Gaussian(1.0), LENGTHS, False, 0)
    assert np.array_equal(track.moves, plain.moves)
    assert np.array_equal(left_out, expected)


def test_a_gap_has_its_control_at_each_step():
    track = pushed()[-1][1]
    rng = np.random.default_rng(2)
    Y, U = rng.normal(size=(5, 2)), rng.normal(size=(4, 2))
    apart = np.full((8, 2), np.nan)
    apart[[0, 1, 4, 5, 7]] = Y
    found = track.means(Y, [1, 1, 3, 1, 2], False, U)
    each = track.means(apart, None, False, U[[0, 1, 1, 1, 2, 3, 3]])
    np.testing.assert_allclose(found, each[[0, 1, 4, 5, 7]])


def driven(rng, length, noise=0.1, sensors=6.0):
    """A walk that a strong control moves, and four poor sensors of it."""
    u, z = rng.normal(size=length), np.zeros(length)
    for t in range(1, length):
        z[t] = 0.9 * z[t - 1] + u[t] + noise * rng.normal()
    return z, z[:, None] + sensors * rng.normal(size=(length, 4)), u


RIDGES = {"prior_ridge": 1e-4, "transition_ridge": 1e-4, "ridge": 1e-2, "memory": 0.0}


def test_a_tracked_filter_with_controls_step_by_step_and_from_files(tmp_path):
    rng = np.random.default_rng(3)
    (z, x, u), (truth, new, acts) = driven(rng, 300), driven(rng, 200)
    options = {"features": "tracked", "lags": 2, "rng": 0, **RIDGES}
    model = kb.KernelBayesFilter(**options).fit(x, z, u)
    gaps = np.where(np.arange(200) % 50 == 20, 3, 1)
    new[30] = np.nan
    kb.save(model, tmp_path / "model")
    loaded = kb.load(tmp_path / "model")
    for g in (None, gaps):
        state, found = model.start(), []
        for t, row in enumerate(new):
            given = {} if g is None or t == 0 else {"steps": int(g[t])}
            state, _ = model.step(state, row, None if t == 0 else acts[t], **given)
            found.append(state.belief.mean())
        beliefs = model.filter(new, acts, g)
        np.testing.assert_allclose(np.array(found), beliefs.mean(), atol=1e-8)
        np.testing.assert_array_equal(loaded.filter(new, acts, g).mean(), beliefs.mean())
    # As many rows as transitions: row t then acts between t and t + 1.
    shifted = kb.KernelBayesFilter(**options).fit(x, z, u[1:])
    np.testing.assert_array_equal(
        shifted.filter(new, acts[1:]).mean(), model.filter(new, acts).mean()
    )
    error = np.mean((model.filter(new, acts).mean()[:, 0] - truth) ** 2)
    without = kb.KernelBayesFilter(**options).fit(x, z)
    # The control says all but 0.1 of a move of 1; the four sensors together are off by 3.
    assert error < 0.3 * np.mean((without.filter(new).mean()[:, 0] - truth) ** 2)
    with pytest.raises(ValueError, match="columns"):
        model.filter(new, np.zeros((200, 2)))
    with pytest.raises(ValueError, match="columns"):
        model.step(state, new[0], np.zeros(2))
    # Files from before tracks knew of controls: moves without those of controls.
    track = model.encoder_.track
    model.encoder_ = replace(
        model.encoder_, track=replace(track, moves=np.delete(track.moves, 2, axis=1))
    )
    kb.save(model, tmp_path / "older")
    older = kb.load(tmp_path / "older").filter(new, acts)
    assert np.isfinite(older.mean()).all()


def test_smoothing_with_controls_gains_and_sees_what_comes_later():
    rng = np.random.default_rng(4)
    (z, x, u), (truth, new, acts) = (driven(rng, n, 0.5, 2.0) for n in (400, 300))
    model = kb.KernelBayesFilter(features="tracked", lags=4, rng=0, **RIDGES).fit(x, z, u)
    off = [
        np.mean((ask(new, acts).mean()[:, 0] - truth) ** 2) for ask in (model.filter, model.smooth)
    ]
    assert model.smoothing_.ahead is not None
    # Of the variance .33 of the Kalman filter, that of the smoother is three quarters.
    assert off[1] < 0.9 * off[0]


def test_controls_that_are_names_are_left_to_the_transition():
    rng = np.random.default_rng(5)
    z, x, u = driven(rng, 200)
    names = np.where(u > 0.0, "up", "down")
    model = kb.KernelBayesFilter(features="tracked", lags=2, rng=0, **RIDGES).fit(x, z, names)
    assert model.encoder_.track.moves.shape == (1, 3)
    assert np.isfinite(model.filter(x[:20], names[:20]).mean()).all()
    with pytest.raises(ValueError, match="NaN"):
        kb.KernelBayesFilter(features="tracked", lags=2, rng=0, **RIDGES).fit(
            x, z, np.where(u > 0.0, np.nan, u)
        )


@pytest.mark.parametrize("features", ["tracked", "regression"])
def test_infinite_observations_are_refused(features):
    z, x = oscillating(np.random.default_rng(0), 60)
    model = kb.KernelBayesFilter(features=features, lags=2, rng=0, **RIDGES).fit(x, z)
    wrong = x[:3].copy()
    wrong[1] = np.inf
    with pytest.raises(ValueError, match="infinite"):
        model.filter(wrong)
    with pytest.raises(ValueError, match="infinite"):
        model.step(model.start(), wrong[1])


# --- outages --------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_the_track_goes_on_where_nothing_is_observed(seed):
    rng = np.random.default_rng(seed)

    def travel(length):
        u = rng.normal(size=(length, 2))
        z = np.zeros((length, 2))
        for t in range(1, length):
            z[t] = 0.9 * z[t - 1] + u[t] + 0.5 * rng.normal(size=2)
        x = z + rng.normal(size=z.shape)
        out = np.arange(length) % 40 >= 30
        return np.where(out[:, None], np.nan, x), z, u, out

    (x, z, u, _), (new, truth, acts, out) = travel(300), travel(200)
    given = {"ridge": 1e-4, "prior_ridge": 1e-4, "transition_ridge": 1e-4, "memory": 0.0}
    kernels = {"kernel_x": kb.Gaussian(20.0), "kernel_z": kb.Gaussian(5.0)}
    model = kb.KernelBayesFilter(
        features="tracked", lags=2, kernel_u=kb.Gaussian(2.0), rng=0, **kernels, **given
    ).fit(x, z, u)
    beliefs = model.filter(new, acts)
    # The variance of the states is 1.25 / (1 - .81) = 6.6, that of their noise in ten steps 1.2.
    assert np.mean((beliefs.mean() - truth)[out] ** 2) < 3.3
    state = model.start()
    for t in range(35):
        state, _ = model.step(state, new[t], acts[t])
    np.testing.assert_allclose(state.belief.mean(), beliefs.mean()[34])
    # A forecast is what steps without observations give, from a sequence and from a live state.
    assert out[30:40].all()
    later = model.forecast(new[:30], 10, acts[:40]).mean()
    np.testing.assert_allclose(later, beliefs.mean()[30:40])
    ahead = model.forecast(state, 5, acts[35:40]).mean()
    np.testing.assert_allclose(ahead, beliefs.mean()[35:40])


def test_before_anything_is_seen_the_track_says_nothing():
    _, x, (window, track, _) = learned()
    track = replace(track, alone=True)
    rows = x[:6].copy()
    rows[[0, 1, 4]] = np.nan
    M = track.means(track.first(rows))
    found = track.second(track.beside(M, window(rows)))
    assert np.isnan(found).all(axis=1).tolist() == [True, True, False, False, False, False]
