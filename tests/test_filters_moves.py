"""Transitions learned from sequences, and the choices of the Monte Carlo filter."""

import numpy as np
import pytest

import kernelbayes as kb
from kernelbayes.filters.moves import Learned
from kernelbayes.filters.sequences import join, read


def turning(z, rng, control=None):
    """A cart in the plane: it drives along its heading, which the control turns."""
    turn = 0.0 if control is None else float(np.ravel(control)[0])
    heading = z[:, 2] + turn + 0.02 * rng.normal(size=len(z))
    step = 0.3 + 0.02 * rng.normal(size=len(z))
    return np.column_stack(
        [z[:, 0] + step * np.cos(heading), z[:, 1] + step * np.sin(heading), heading]
    )


def drive(rng, length):
    u = 0.3 * rng.normal(size=(length, 1))
    z = np.zeros((length, 3))
    z[0] = rng.normal(size=3)
    for t in range(1, length):
        z[t] = turning(z[t - 1 : t], rng, u[t])[0]
    return z, z + 0.3 * rng.normal(size=z.shape), u


DRIVES = [drive(np.random.default_rng([0, i]), 60) for i in range(6)]
Z, X, U = (list(part) for part in zip(*DRIVES, strict=True))
TRUTH, SEEN, ACTED = drive(np.random.default_rng([0, 99]), 40)


def learned():
    data = join(read(X, Z, U, (None, None, None)))
    return Learned.from_sequences(data, kb.Gaussian(1.0), np.random.default_rng(0))


def test_a_learned_transition_moves_as_the_true_one():
    move, rng = learned(), np.random.default_rng(1)
    for t in range(1, 40, 5):
        many = np.repeat(TRUTH[t - 1 : t], 2000, axis=0)
        found, expected = move(many, rng, ACTED[t]), turning(many, rng, ACTED[t])
        np.testing.assert_allclose(found.mean(axis=0), expected.mean(axis=0), atol=0.1)
        assert np.all(found.std(axis=0) < 0.15)
    with pytest.raises(ValueError, match="learned with 1 controls, got 0"):
        move(TRUTH[:1], rng)


def test_residuals_of_a_linear_model_are_its_noise():
    rng = np.random.default_rng(0)
    z = np.zeros((600, 1))
    for t in range(1, 600):
        z[t] = 0.9 * z[t - 1] + 0.5 * rng.normal()
    data = join(read(z, z, None, (None, None, None)))
    move = Learned.from_sequences(data, kb.Gaussian(1.0), rng)
    assert move.residuals.std() == pytest.approx(0.5, rel=0.1)
    at = np.array([[-1.0], [0.0], [1.0]])
    mean = np.mean([move(at, rng) for _ in range(500)], axis=0)
    np.testing.assert_allclose(mean, 0.9 * at, atol=0.15)


def pushed(rng, length):
    """Six coordinates that odometry pushes about, seen through noise."""
    u = 0.7 * rng.normal(size=(length, 6))
    z = np.zeros((length, 6))
    for t in range(1, length):
        z[t] = 0.8 * z[t - 1] + u[t] + 0.1 * rng.normal(size=6)
    return z, z + rng.normal(size=z.shape), u


def test_a_filter_with_a_learned_transition_uses_the_controls():
    rng = np.random.default_rng(0)
    (z, x, u), (truth, seen, acted) = pushed(rng, 400), pushed(rng, 60)
    model = kb.KernelMonteCarloFilter(rng=0).fit(x, z, u)
    beliefs = model.filter(seen, acted)
    errors = [np.mean((m - truth) ** 2) for m in (beliefs.mean(), seen)]
    errors.append(
        np.mean((kb.KernelMonteCarloFilter(rng=0).fit(x, z).filter(seen).mean() - truth) ** 2)
    )
    assert errors[0] < 0.75 * errors[1]
    assert errors[0] < 0.97 * errors[2]
    again = kb.KernelMonteCarloFilter(rng=0).fit(x, z, u).filter(seen, acted)
    np.testing.assert_array_equal(again.weights, beliefs.weights)


def test_a_learned_transition_needs_vectors_and_a_known_one_needs_a_start():
    with pytest.raises(ValueError, match="transition=None learns increments"):
        kb.KernelMonteCarloFilter(kernel_z=kb.Delta(), rng=0).fit(np.arange(9.0), list("abcabcabc"))
    with pytest.raises(ValueError, match="initial must be"):
        kb.KernelMonteCarloFilter(turning, rng=0).fit(X, Z)
    with pytest.raises(ValueError, match="no transitions"):
        kb.KernelMonteCarloFilter(rng=0).fit([x[:1] for x in X], [z[:1] for z in Z])


# --- choices --------------------------------------------------------------------------------------

A, Q, R = 0.9, 0.3, 0.3


def autoregressive(z, rng, control=None):
    return A * z + np.sqrt(Q) * rng.normal(size=z.shape)


def initial(m, rng):
    return np.sqrt(Q / (1 - A * A)) * rng.normal(size=(m, 1))


def pairs(rng, n):
    z = 2.0 * rng.normal(size=(n, 1))
    return z, z + np.sqrt(R) * rng.normal(size=(n, 1))


def kalman(x):
    m, v, found = 0.0, Q / (1 - A * A), []
    for t, value in enumerate(np.ravel(x)):
        m, v = (A * m, A * A * v + Q) if t else (m, v)
        gain = v / (v + R)
        m, v = m + gain * (value - m), (1 - gain) * v
        found.append(m)
    return np.array(found)


STATES, LOOKS = pairs(np.random.default_rng(0), 150)
PATH = autoregressive(np.zeros((1, 1)), np.random.default_rng(5))
for _ in range(39):
    PATH = np.vstack([PATH, autoregressive(PATH[-1:], np.random.default_rng([5, len(PATH)]))])
NEW = PATH + np.sqrt(R) * np.random.default_rng(6).normal(size=PATH.shape)


@pytest.mark.parametrize(
    "options",
    [
        {"resampling": "exchange"},
        {"resampling": "line-search"},
        {"resampling": "fully-corrective"},
        {"resampling": "multinomial"},
        {"rank": 30, "low_rank": "cholesky"},
        {"ratio": "rulsif"},
        {"ratio": "ulsif"},
        {"literal": True},
        {"subsample": 60, "sweeps": 0},
        {"tempering": 0.9, "memory": 0.9},
    ],
    ids=lambda options: "-".join(map(str, options.values())),
)
def test_every_choice_is_close_to_the_kalman_filter(options):
    model = kb.KernelMonteCarloFilter(autoregressive, initial, rng=0, **options)
    beliefs = model.fit(LOOKS, STATES).filter(NEW)
    apart = np.sqrt(np.mean((beliefs.mean()[:, 0] - kalman(NEW)) ** 2))
    assert apart < 0.35 * PATH.std()
    state = model.start()
    for t, x in enumerate(NEW[:5]):
        state, _ = model.step(state, x)
        np.testing.assert_allclose(state.belief.weights, beliefs.weights[t], atol=1e-9)


def test_subsampling_without_sweeps_is_algorithm_6():
    model = kb.KernelMonteCarloFilter(
        autoregressive, initial, kb.Gaussian(1.0), kb.Gaussian(1.0), subsample=20, sweeps=0, rng=0
    ).fit(LOOKS, STATES)
    G = kb.Gaussian(1.0)(LOOKS) * kb.Gaussian(1.0)(STATES)
    picks = []
    for N in range(1, 21):  # as printed
        scores = G.mean(axis=1) - G[:, picks].sum(axis=1) / N
        scores[picks] = -np.inf
        picks.append(int(np.argmax(scores)))
    np.testing.assert_array_equal(model.Z_, STATES[picks])


@pytest.mark.parametrize("ratio", ["rulsif", "ulsif", "kmm"])
def test_ratios_of_the_kernel_bayes_filter(ratio):
    rng = np.random.default_rng(3)
    z = np.zeros((120, 1))
    for t in range(1, 120):
        z[t] = autoregressive(z[t - 1 : t], rng)[0]
    x = z + np.sqrt(R) * rng.normal(size=z.shape)
    ridges = {"prior_ridge": 1e-3, "transition_ridge": 1e-3, "ridge": 1e-2, "rng": 0}
    # Given kernels: a race would solve a quadratic programme for each candidate and step.
    model = kb.KernelBayesFilter(kb.Gaussian(1.0), kb.Gaussian(1.0), ratio=ratio, **ridges)
    beliefs = model.fit(x, z).filter(NEW[:12])
    assert np.isfinite(beliefs.mean()).all()
    state = model.start()
    for t, one in enumerate(NEW[:4]):
        state, _ = model.step(state, one)
        np.testing.assert_allclose(state.belief.weights, beliefs.weights[t], atol=1e-9)
    with pytest.raises(ValueError, match="use method='importance'"):
        kb.KernelBayesFilter(ratio=ratio, method="original", rng=0).fit(x, z)
