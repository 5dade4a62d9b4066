"""Tracked features: a linear-Gaussian filter of regression estimates, and a regression on it."""

from dataclasses import replace

import numpy as np
import pytest

import kernelbayes as kb
from kernelbayes.filters.encode.track import TRANSITIONS, learn_track

LENGTHS = [150, 90]


def oscillating(rng, length):
    """Position and velocity of a noisy oscillator; six sensors that saturate."""
    A = 0.99 * np.array([[np.cos(0.2), np.sin(0.2)], [-np.sin(0.2), np.cos(0.2)]])
    z = np.zeros((length, 2))
    for t in range(1, length):
        z[t] = A @ z[t - 1] + 0.2 * rng.normal(size=2)
    slopes = np.random.default_rng(5).normal(size=(2, 6))
    return z, np.tanh(z @ slopes) + 1.5 * rng.normal(size=(length, 6))


def learned(seed=0):
    rng = np.random.default_rng(seed)
    z, x = (np.concatenate(a) for a in zip(*(oscillating(rng, n) for n in LENGTHS), strict=True))
    return z, x, learn_track(x, x, z, kb.Gaussian(1.0), LENGTHS, False, 0)


def joint(track, T):
    """Mean (T, q) and covariance (T q, T q) of the states of the model."""
    q = len(track.unit)
    F = np.vstack([track.moves[:, :-1], np.eye(q, 2 * q)])
    drift = np.concatenate([track.moves[:, -1], np.zeros(q)])
    noise = np.zeros((2 * q, 2 * q))
    noise[:q, :q] = track.noise
    means, covs = [track.mean], [track.cov]
    for _ in range(T - 1):
        means.append(F @ means[-1] + drift)
        covs.append(F @ covs[-1] @ F.T + noise)
    S = np.zeros((T, q, T, q))
    for s in range(T):
        moved = covs[s]
        for t in range(s, T):
            S[t, :, s, :] = moved[:q, :q]
            S[s, :, t, :] = moved[:q, :q].T
            moved = F @ moved
    return np.array([m[:q] for m in means]), S.reshape(T * q, T * q)


@pytest.mark.parametrize("back", [False, True])
def test_means_are_those_of_the_joint_gaussian(back):
    _, _, (_, track, _) = learned()
    # A wide start, so that no prediction is as wide.
    track = replace(track, cov=100.0 * track.cov)
    rng, T, q = np.random.default_rng(1), 7, 2
    Y = rng.normal(size=(T, q))
    Y[3] = np.nan
    prior, S = joint(track, T)
    C = np.kron(np.eye(T), track.sees[:, :q])
    offset = np.tile(track.sees[:, q], T)
    found = (track.means(Y * track.unit + track.centre, None, back) - track.centre) / track.unit
    y = Y.ravel()
    for t in range(T):
        known = ~np.isnan(y) & (np.arange(T * q) < (T if back else t + 1) * q)
        c = C[known]
        R = np.kron(np.eye(T), track.error)[np.ix_(known, known)]
        gain = np.linalg.solve(c @ S @ c.T + R, c @ S)[:, t * q : (t + 1) * q].T
        expected = prior[t] + gain @ (y[known] - c @ prior.ravel() - offset[known])
        # The backward pass adds 1e-8 to covariances whose smallest entries are about 1e-2.
        np.testing.assert_allclose(found[t], expected, rtol=0, atol=1e-5 if back else 1e-9)


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
        learn_track(x, x, z, kb.Gaussian(1.0), lengths, False, 0)


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
