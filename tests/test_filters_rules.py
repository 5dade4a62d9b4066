"""Updates that depart from Bayes' rule with its safeguards: literal, memory, tempering, first."""

import numpy as np
import pytest

import kernelbayes as kb
import oracles

METHODS = ["importance", "original"]


def circling(rng, length, noise=0.2):
    """A point going round with noise, seen through noise; 2-d."""
    angle = rng.uniform(0, 6) + np.cumsum(0.3 + 0.1 * rng.normal(size=length))
    z = np.column_stack([np.cos(angle), np.sin(angle)])
    return z, z + noise * rng.normal(size=z.shape)


RNG = np.random.default_rng(0)
Z, X = circling(RNG, 90)
TRUTH, NEW = circling(RNG, 25)
KERNEL = kb.Laplace(1.0)  # of full rank, so that nothing is approximated
ETA = 1e-3


def make(method="importance", **options):
    ridge = 1e-2 if method == "importance" else 1e-4
    given = {"prior_ridge": ETA, "transition_ridge": ETA, "ridge": ridge, "rng": 0}
    return kb.KernelBayesFilter(KERNEL, KERNEL, method=method, **(given | options))


def close(found, expected, tol=1e-8):
    np.testing.assert_allclose(found, expected, rtol=0, atol=tol * np.abs(expected).max())


def loop(model, X):
    state, found = model.start(), []
    for x in X:
        state, _ = model.step(state, x)
        found.append(state.belief.weights)
    return np.array(found)


# --- literal --------------------------------------------------------------------------------------


def test_literal_is_iw22_as_printed():
    found = make(literal=True).fit(X, Z).filter(NEW).weights
    close(found, oracles.iw22_filter(KERNEL(Z), KERNEL(X), KERNEL(X, NEW), ETA, 1e-2))


@pytest.mark.parametrize("first", ["uniform", "observation"])
def test_literal_is_kbr13_as_printed(first):
    model = make("original", literal=True, initial=first).fit(X, Z)
    expected = oracles.kbr13_filter(KERNEL(Z), KERNEL(X), KERNEL(X, NEW), ETA, 1e-4, first)
    close(model.filter(NEW).weights, expected)
    close(loop(model, NEW), expected)


def test_literal_sets_no_observation_aside():
    far = NEW.copy()
    far[10] += 1e3
    with pytest.warns(kb.NumericalWarning, match="unlike anything"):
        plain = make().fit(X, Z).filter(far)
    with pytest.warns(kb.NumericalWarning, match="have no weight left"):
        literal = make(literal=True).fit(X, Z).filter(far)
    assert plain.info.fallback[10]
    assert not literal.info.fallback.any()
    assert abs(literal.info.mass[10]) < 1e-6  # nothing is left, and nothing is done about it
    assert np.isfinite(plain.mean()).all()


def test_literal_leaves_out_pairs_without_an_observation():
    holes = X.copy()
    holes[::5] = np.nan
    weights = make(literal=True).fit(holes, Z).filter(NEW).weights
    assert (weights[:, ::5] == 0.0).all()


# --- the first belief -----------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
def test_a_first_belief_from_the_observation_is_the_plain_regression(method):
    model = make(method, initial="observation").fit(X, Z)
    n, k = len(X), KERNEL(X, NEW[:1])[:, 0]
    expected = np.linalg.solve(KERNEL(X) + n * 1e-2 * np.eye(n), k)
    close(model.filter(NEW).weights[0], expected / expected.sum())
    if method == "original":  # under Bayes' rule it is another
        other = make(method).fit(X, Z).filter(NEW).weights[0]
        assert np.abs(other - expected / expected.sum()).max() > 1e-3 * np.abs(expected).max()


# --- memory ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
def test_without_memory_each_belief_is_of_its_observation_alone(method):
    model = make(method, memory=0.0).fit(X, Z)
    weights = model.filter(NEW).weights
    close(weights[::-1], model.filter(NEW[::-1]).weights)
    close(loop(model, NEW), weights)
    if method == "importance":
        n = len(X)
        expected = np.linalg.solve(KERNEL(X) + n * 1e-2 * np.eye(n), KERNEL(X, NEW)).T
        close(weights, expected / expected.sum(axis=1, keepdims=True))


def test_without_memory_pairs_without_an_observation_are_left_out():
    holes = X.copy()
    holes[::5] = np.nan
    kept = np.setdiff1d(np.arange(len(X)), np.arange(0, len(X), 5))
    weights = make(memory=0.0).fit(holes, Z).filter(NEW).weights
    n = len(kept)
    expected = np.linalg.solve(KERNEL(X[kept]) + n * 1e-2 * np.eye(n), KERNEL(X[kept], NEW)).T
    close(weights[:, kept], expected / expected.sum(axis=1, keepdims=True))


def test_memory_lies_between_the_filter_and_the_regression():
    near, middle, far = (make(memory=m).fit(X, Z).filter(NEW).mean() for m in (0.999999, 0.5, 0.0))
    close(near, make().fit(X, Z).filter(NEW).mean(), 1e-3)
    distance = np.linalg.norm(near - far)
    assert np.linalg.norm(near - middle) < distance
    assert np.linalg.norm(far - middle) < distance


def test_a_missing_observation_is_predicted_also_without_memory():
    model = make(memory=0.0).fit(X, Z)
    holes = np.vstack([NEW[:5], np.full((1, 2), np.nan)])
    close(model.filter(holes).weights[5], model.forecast(NEW[:5], 1).weights[0])


# --- tempering ------------------------------------------------------------------------------------


def test_an_observation_that_is_repeated_counts_once_if_tempered():
    """Three copies of each reading at the power 1/3 are one reading, for a state that stays."""
    rng = np.random.default_rng(3)
    z = np.tile(np.arange(3.0), 100)
    x = np.array([rng.choice(3, p=np.roll([0.7, 0.2, 0.1], int(s))) for s in z]).astype(float)
    sequences = [np.full(2, s) for s in z]  # states never change
    readings = [np.full(2, s) for s in x]
    finite = {"prior_ridge": 1e-9, "transition_ridge": 1e-9, "ridge": 1e-9, "rng": 0}
    options = {"kernel_x": kb.Delta(), "kernel_z": kb.Delta()} | finite
    once = kb.KernelBayesFilter(**options).fit(readings, sequences).filter(np.array([1.0]))
    third = kb.KernelBayesFilter(tempering=1.0 / 3.0, **options).fit(readings, sequences)
    _, expected = once.probabilities()
    _, found = third.filter(np.ones(3)).probabilities()
    np.testing.assert_allclose(found[2], expected[0], atol=1e-5)


@pytest.mark.parametrize("method", METHODS)
def test_tempering_and_memory_keep_step_and_filter_the_same(method):
    model = make(method, tempering=0.5, memory=0.7).fit(X, Z)
    close(loop(model, NEW), model.filter(NEW).weights)
    np.testing.assert_allclose(model.filter(NEW).weights.sum(axis=1), 1.0)


def test_without_memory_a_tempered_belief_depends_on_its_observation_alone():
    model = make(memory=0.0, tempering=0.5).fit(X, Z)
    inside = X[10:13]  # outside the sample the prediction is filled in, as it should be
    close(model.filter(inside).weights[2], model.filter(inside[1:]).weights[1], 1e-9)


def resting(rng, length):
    """A walk that rests half of the time, seen by six sensors whose readings come twice."""
    z = np.zeros((length, 1))
    for t in range(1, length):
        z[t] = 0.98 * z[t - 1] + (0.4 * rng.normal() if (t // 30) % 2 else 0.0)
    slopes = np.linspace(-2.0, 2.0, 6)
    x = np.tanh(z * slopes) + 0.2 * rng.normal(size=(length, 6))
    return z, x[np.arange(length) // 2 * 2]


def test_the_choice_is_no_worse_than_a_regression_on_the_blocks_left_out():
    z, x = resting(np.random.default_rng(1), 160)
    model = kb.KernelBayesFilter(rng=0).fit(x, z)
    table = model.choice_.table
    done = [row for row in table if np.isfinite(row["score"])]
    chosen = next(row for row in done if row["chosen"])
    rivals = [row["score"] for row in table if row["memory"] == 0.0]
    assert len(rivals) >= 3  # some given up before the end, as clearly worse
    assert chosen["score"] <= min(rivals) * 1.002
    assert chosen["memory"] == model.memory_
    assert model.calibrate(x, z, parts=2) is not None
    fixed = kb.KernelBayesFilter(memory=0.0, rng=0).fit(x, z)
    assert {row["memory"] for row in fixed.choice_.table} == {0.0}


def test_where_all_is_given_the_rule_is_that_of_bayes():
    model = make().fit(X, Z)
    assert (model.memory_, model.tempering_) == (1.0, 1.0)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"memory": "none"}, "memory must be one of 'auto'"),
        ({"memory": 1.5}, "memory must lie in"),
        ({"tempering": 0.0}, "tempering must be positive"),
        ({"literal": True, "memory": 0.5}, "leave memory and tempering at 1"),
    ],
)
def test_exponents_that_make_no_sense(options, words):
    with pytest.raises(ValueError, match=words):
        make(**options).fit(X, Z)


@pytest.mark.parametrize("seed", range(3))
def test_a_sensor_nearly_without_noise_bears_a_tiny_ridge(seed):
    """Its posteriors have large weights of both signs, which cancel: a larger ridge is taken then.

    Cutting the negative ones off, or dropping the observation, made the error 3 to 25 times larger.
    """
    rng = np.random.default_rng([seed, 1])
    z = np.zeros((330, 3))
    for t in range(1, 330):
        z[t] = 0.9 * z[t - 1] + 0.4 * rng.normal(size=3)
    A, b = rng.normal(size=(3, 100)), rng.uniform(0.0, 6.0, size=100)
    x = np.sin(z @ A + b) + 0.03 * rng.normal(size=(330, 100))
    kernels = kb.Gaussian(0.6 * kb.Gaussian.median(x).bandwidth), kb.Gaussian.median(z)
    errors = []
    for ridge in (1e-3, 1e-6):
        model = kb.KernelBayesFilter(
            *kernels, prior_ridge=1e-4, transition_ridge=1e-4, ridge=ridge, rng=0
        )
        beliefs = model.fit(x[:250], z[:250]).filter(x[250:])
        errors.append(np.mean((beliefs.mean() - z[250:]) ** 2))
    assert beliefs.info.fallback.mean() > 0.3
    assert errors[1] < 2.0 * errors[0]
