"""The baselines of the experiments are right: Kalman in closed form is the oracle."""

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "experiments" / "statespace"))

import baselines
import models

A = np.array([[0.9, 0.2], [-0.1, 0.8]])
H = np.array([[1.0, 0.5]])
Q = np.array([[0.5, 0.1], [0.1, 0.4]])
R = np.array([[0.3]])
M0, P0 = np.array([1.0, -1.0]), np.diag([2.0, 1.0])


def linear():
    """A linear Gaussian model in two dimensions, seen in one."""
    root, start = np.linalg.cholesky(Q), np.linalg.cholesky(P0)
    return models.StateSpace(
        initial=lambda m, rng: M0 + rng.normal(size=(m, 2)) @ start.T,
        transition=lambda z, rng, control=None: z @ A.T + rng.normal(size=z.shape) @ root.T,
        observe=lambda z, rng: z @ H.T + np.sqrt(R[0, 0]) * rng.normal(size=(len(z), 1)),
        log_likelihood=lambda x, z: -0.5 * ((x - z @ H.T)[:, 0]) ** 2 / R[0, 0],
        move=lambda z: z @ A.T,
        see=lambda z: z @ H.T,
        Q=Q,
        R=R,
    )


def by_conditioning(X):
    """E[z_t | x_1..x_t] from the joint Gaussian of all states: no recursion."""
    steps, d = len(X), 2
    mean, cov = np.zeros((steps, d)), np.zeros((steps, d, steps, d))
    mean[0], cov[0, :, 0] = M0, P0
    for t in range(1, steps):
        mean[t] = A @ mean[t - 1]
        for s in range(t):
            cov[t, :, s] = A @ cov[t - 1, :, s]
            cov[s, :, t] = cov[t, :, s].T
        cov[t, :, t] = A @ cov[t - 1, :, t - 1] @ A.T + Q
    found = []
    for t in range(steps):
        joint = cov[: t + 1, :, : t + 1].reshape(2 * (t + 1), -1)
        big = np.kron(np.eye(t + 1), H)
        innovation = X[: t + 1, 0] - big @ mean[: t + 1].ravel()
        S = big @ joint @ big.T + R[0, 0] * np.eye(t + 1)
        found.append(mean[t] + joint[-2:] @ big.T @ np.linalg.solve(S, innovation))
    return np.array(found)


@pytest.fixture(scope="module")
def sequence():
    return linear().simulate(40, np.random.default_rng(0))


def test_kalman_is_conditioning(sequence):
    found = baselines.kalman(sequence.X, A, H, Q, R, M0, P0)
    np.testing.assert_allclose(found, by_conditioning(sequence.X), rtol=1e-9, atol=1e-9)


def test_extended_and_unscented_equal_kalman_on_a_linear_model(sequence):
    exact = baselines.kalman(sequence.X, A, H, Q, R, M0, P0)
    extended = baselines.extended_kalman(sequence.X, linear(), M0, P0)
    # Central differences of a linear function err by rounding: 1e-16 / 1e-5.
    np.testing.assert_allclose(extended, exact, rtol=1e-8, atol=1e-8)
    unscented = baselines.unscented_kalman(sequence.X, linear(), M0, P0)
    np.testing.assert_allclose(unscented, exact, rtol=1e-9, atol=1e-9)


def test_particle_filter_converges_to_kalman(sequence):
    exact = baselines.kalman(sequence.X, A, H, Q, R, M0, P0)
    errors = [
        np.sqrt(
            np.mean(
                (
                    baselines.particle_filter(
                        sequence.X, linear(), np.random.default_rng(1), particles
                    )
                    - exact
                )
                ** 2
            )
        )
        for particles in (200, 20000)
    ]
    # Monte Carlo error falls as one over the root of the number: tenfold here, and for 20000
    # particles with an effective sample of a tenth it is about 1 / sqrt(2000) of a deviation of .7.
    assert errors[1] < 0.3 * errors[0]
    assert errors[1] < 0.05


def test_systematic_resampling_keeps_proportions():
    weights = np.array([0.1, 0.0, 0.6, 0.3])
    many = np.repeat(weights / 250, 250)
    drawn = baselines.systematic(many, np.random.default_rng(0))
    counts = np.bincount(drawn // 250, minlength=4)
    # Every count is within one of its expectation.
    assert np.all(np.abs(counts - 1000 * weights) <= 1)


@pytest.mark.parametrize("name", models.KANAGAWA)
def test_log_likelihood_matches_simulation(name):
    """Histogram of simulated observations against the density, both normalised on the cells."""
    model, rng = models.kanagawa(name), np.random.default_rng(0)
    z = np.full((200_000, 1), 0.8)
    x = model.observe(z, rng)[:, :1]
    edges = np.linspace(-2.9, 2.9, 30)
    counts = np.histogram(x, edges)[0]
    middle = (edges[1:] + edges[:-1]) / 2.0
    density = np.exp([model.log_likelihood(np.array([m]), z[:1])[0] for m in middle])
    expected = density / density.sum() * counts.sum()
    # Five standard deviations of a count, and the curvature within a cell.
    assert np.all(np.abs(counts - expected) < 5.0 * np.sqrt(expected) + 0.02 * expected + 5.0)


@pytest.mark.parametrize("paper", ["IW22", "KBR13"])
def test_papers_differ_in_the_angle_of_the_radius(paper):
    z = np.array([[np.cos(0.5), np.sin(0.5)]])
    after = models.oscillatory(paper).move(z)[0]
    inside = 0.5 if paper == "IW22" else 0.9
    assert np.hypot(*after) == pytest.approx(1.0 + 0.4 * np.sin(8 * inside))
    assert np.arctan2(after[1], after[0]) == pytest.approx(0.9)


@pytest.mark.parametrize("name", ["1b", "4b"])
def test_controls_act_on_the_transition_into_their_step(name):
    model = models.kanagawa(name)
    z = np.zeros((50_000, 1))
    moved = model.transition(z, np.random.default_rng(0), np.array([1.0]))
    push = np.sqrt(0.5) if name == "1b" else None
    if push is not None:
        assert moved.mean() == pytest.approx(push, abs=0.02)
        assert moved.std() == pytest.approx(np.sqrt(0.5), abs=0.02)
    assert np.median(moved) == pytest.approx(0.71 if push else 1.0, abs=0.1)


def test_static_baselines_learn():
    rng = np.random.default_rng(0)
    z = rng.uniform(-2.0, 2.0, size=(300, 1))
    x = np.column_stack([np.sin(z[:, 0]), z[:, 0] ** 3]) + 0.05 * rng.normal(size=(300, 2))
    folds = baselines.halves(200)
    for method in (baselines.tuned_neighbours, baselines.tuned_regression):
        estimate, _ = method(x[:200], z[:200], x[200:], folds)
        assert baselines.squared(estimate, z[200:]).mean() < 0.05 * z.var()


def test_learned_likelihoods_filter_better_than_nothing():
    model, rng = models.kanagawa("1a"), np.random.default_rng(0)
    train, test = model.simulate(150, rng), model.simulate(60, rng)
    learned = baselines.gp_log_likelihood(train.X, train.Z, rng)
    for estimate in (
        baselines.tuned_knn_filter(train, test, model, rng, 500),
        baselines.particle_filter(test.X, model, rng, 500, log_likelihood=learned),
    ):
        assert baselines.squared(estimate, test.Z).mean() < 0.6 * np.mean(test.Z**2)


def test_a_fitted_kalman_filter_only_predicts_where_nothing_is_observed():
    # Positions move on by the same velocity without noise, so that a prediction is exact.
    z = np.cumsum(np.full((60, 1), 0.5), axis=0)
    x = z + np.random.default_rng(0).normal(size=(60, 1))
    new = x[:40].copy()
    new[20:30] = np.nan
    (whole,), (found,) = (baselines.fitted_kalman([x], [z], [rows]) for rows in (x[:40], new))
    np.testing.assert_array_equal(found[:20], whole[:20])
    # The mean of twenty observations of variance 1 is known to 1 / sqrt(20) = .22.
    assert np.abs(found - z[:40])[19:].max() < 5 * 0.22
