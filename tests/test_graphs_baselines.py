"""What the experiments on graphs share: belief propagation without kernels, and a ray caster."""

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "experiments" / "graphs"))
sys.path.insert(0, str(Path(__file__).parents[1] / "experiments" / "cme13_fig7"))

import networks
import propagation
import scenes

EDGES = np.array([[0, 1], [1, 2], [1, 3], [3, 4]])
TREE = networks.Network(5, EDGES, np.zeros(4, dtype=int))
S = np.array([[1.0, 0.7], [0.7, 1.0]])
SEEN, NOISE = np.array([1.0, np.nan, -0.5, np.nan, 0.8]), 0.3


def after(steps, iterations):
    for _ in range(iterations):
        found = next(steps)
    return found


@pytest.fixture(scope="module")
def exact():
    """Means and variances of a tree with correlation .7 along each edge, and pairs of it."""
    C = np.eye(5)
    for s, t in EDGES:
        C[t, :t] = C[:t, t] = 0.7 * C[s, :t]
    there = ~np.isnan(SEEN)
    gain = C[:, there] @ np.linalg.inv(C[np.ix_(there, there)] + NOISE * np.eye(there.sum()))
    return gain @ SEEN[there], np.diag(C - gain @ C[there])


@pytest.fixture(scope="module")
def pairs():
    a, b = np.random.default_rng(0).multivariate_normal(np.zeros(2), S, size=20_000).T
    return networks.PairMixture(a, b)


def log_local(x):
    """Marginals times likelihoods at points (N, K)."""
    squares = np.where(np.isnan(SEEN)[:, None], 0.0, (x - np.nan_to_num(SEEN)[:, None]) ** 2)
    return -0.5 * x**2 - 0.5 * squares / NOISE


def test_gaussian_is_exact_on_a_tree(exact):
    steps = propagation.gaussian(TREE, [(np.zeros(2), S)], np.zeros(5), np.ones(5), SEEN, NOISE)
    for found, expected in zip(after(steps, 5), exact, strict=True):
        np.testing.assert_allclose(found, expected, atol=1e-10)


def test_gaussian_has_the_right_means_on_a_loop():
    """Loopy Gaussian belief propagation has the exact means where it settles (Weiss 2001)."""
    network = networks.grid(3, 3)
    S = np.array([[1.0, 0.3], [0.3, 1.0]])
    seen = np.random.default_rng(0).normal(size=9)
    mu = np.array([0.5, 0.5])
    steps = propagation.gaussian(network, [(mu, S)] * 2, 0.5 * np.ones(9), np.ones(9), seen, 0.5)
    Q = np.linalg.inv(S)
    J, h = np.diag(np.full(9, 3.0)), np.full(9, 0.5) + seen / 0.5
    for s, t in network.edges:
        J[np.ix_([s, t], [s, t])] += Q - np.eye(2)
        h[[s, t]] += Q @ mu - mu
    np.testing.assert_allclose(after(steps, 200)[0], np.linalg.solve(J, h), atol=1e-8)


def test_discrete_nears_the_closed_form(exact):
    centres = np.linspace(-5.0, 5.0, 201)
    joint = np.exp(-0.5 * np.einsum("ij,abi,abj->ab", np.linalg.inv(S), *2 * [np.stack(
        np.meshgrid(centres, centres, indexing="ij"), axis=-1)]))  # fmt: skip
    P = joint / joint.sum()
    psi = P / np.outer(P.sum(axis=1), P.sum(axis=0))
    points, weights = after(
        propagation.discrete(TREE, centres, [psi], log_local(np.tile(centres, (5, 1)))), 5
    )
    found = networks.mean(points, weights)
    np.testing.assert_allclose(found, exact[0], atol=1e-3)
    np.testing.assert_allclose(weights @ points**2 - found**2, exact[1], atol=1e-3)
    np.testing.assert_allclose(networks.median(points, weights), exact[0], atol=0.06)


def test_directions_of_tables_are_kept():
    """A potential that is not symmetric: a chain of two, by hand."""
    network = networks.Network(2, np.array([[0, 1]]), np.array([0]))
    a, b = np.array([0, 0, 1, 1, 1]), np.array([0, 1, 2, 2, 0])
    psi = networks.table(a, b, 3, 3, 1e-9)
    P = psi * np.outer([0.4, 0.6, 1e-9], [0.4, 0.2, 0.4])
    local = np.log([[0.4 * 0.9, 0.6 * 0.1, 1e-12], [0.4, 0.2, 0.4]])
    _, weights = after(propagation.discrete(network, np.arange(3.0), [psi], local), 1)
    expected = np.array([0.9, 0.1, 0.0]) @ P
    np.testing.assert_allclose(weights[1], expected / expected.sum(), atol=1e-6)


@pytest.mark.parametrize("method", ["particle", "mixture"])
def test_particles_and_mixtures_near_the_closed_form(exact, pairs, method):
    rng = np.random.default_rng(0)
    start = rng.normal(size=(5, 400))
    if method == "particle":
        steps = propagation.particle(TREE, [pairs], log_local, start, -0.5 * start**2, 0.5, rng)
    else:
        steps = propagation.mixture(TREE, [pairs], log_local, start, rng)
    points, weights = after(steps, 6)
    found = networks.mean(points, weights)
    deviation = np.sqrt(exact[1])
    # Monte Carlo error of 400 points and of the pairs' mixture, and smoothing
    assert np.abs((found - exact[0]) / deviation).max() < 0.35
    spread = np.sqrt(networks.mean((points - found[:, None]) ** 2, weights))
    assert np.abs(spread / deviation - 1.0).max() < 0.35


def test_a_mixture_of_pairs_knows_its_marginals(pairs):
    x = np.linspace(-2.0, 2.0, 5)
    expected = -0.5 * x**2 - 0.5 * np.log(2.0 * np.pi)
    for side in (0, 1):
        np.testing.assert_allclose(pairs.log_marginal(x, side), expected, atol=0.1)
    exact = -0.5 * ((0.5 - 0.7) ** 2 / 0.51 + 0.5 * np.log(0.51) * 0) + 0.5 * 0.5**2
    np.testing.assert_allclose(pairs.log_ratio(1.0, 0.5), exact - 0.5 * np.log(0.51), atol=0.1)
    draws = pairs.sample(np.full(4000, 1.0), 0, np.random.default_rng(0))
    assert abs(draws.mean() - 0.7) < 0.1


def test_grids_have_templates_by_row():
    network = networks.grid(3, 4, by_row=True)
    assert len(network.edges) == 3 * 3 + 2 * 4
    assert set(network.template) == {0, 1, 2, 3, 4}
    box, there = network.inbox
    assert (network.target[box][there] == np.repeat(np.arange(12), there.sum(axis=1))).all()


def test_rays_meet_walls_and_poles_where_they_should():
    ahead, up = np.array([0.0, 1.0, 0.0]), np.array([0.0, 1.0, 1.0]) / np.sqrt(2.0)
    half = np.array([2.0, 3.0])
    for turn, expected in ((0.0, 7.0), (np.pi / 2, 8.0)):
        t, normal = scenes.box(ahead, np.array([0.0, 10.0]), half, 5.0, turn)
        np.testing.assert_allclose(t, expected)
        np.testing.assert_allclose(normal, [0.0, -1.0], atol=1e-12)
    assert np.isinf(scenes.box(up, np.array([0.0, 10.0]), half, 5.0, 0.0)[0])  # over the roof
    assert np.isinf(scenes.box(-ahead, np.array([0.0, 10.0]), half, 5.0, 0.0)[0])  # behind
    np.testing.assert_allclose(scenes.pole(ahead, np.array([0.0, 5.0]), 0.5, 3.0), 4.5)
    assert np.isinf(scenes.pole(ahead, np.array([1.0, 5.0]), 0.5, 3.0))


def test_scenes_have_depth_and_features():
    picture, depth = scenes.scene(0)
    assert picture.shape == (214, 172, 3)
    assert depth.shape == (107, 86)
    assert 0.0 < depth.min() < depth.max() <= np.log10(scenes.FARTHEST) + 1e-9
    assert (np.diff(depth[-10:].mean(axis=1)) < 0.0).all()  # the ground comes nearer
    again = scenes.scene(0)
    np.testing.assert_array_equal(picture, again[0])
    features = scenes.patch_features(picture)
    assert features.shape == (107 * 86, 31)
    assert np.isfinite(features).all()
