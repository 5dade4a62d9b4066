"""Simulators: how they are called, streams, failures, interruption and continuation."""

import sys
import time
import types
import warnings
from contextlib import nullcontext

import numpy as np
import pytest
from scipy import stats

from kernelbayes import NumericalWarning
from kernelbayes.likelihood_free.prior import as_prior
from kernelbayes.likelihood_free.running.journal import BLOCK
from kernelbayes.likelihood_free.running.trial import find_caller
from kernelbayes.likelihood_free.simulate import SimulationError, as_observation, simulate

PRIOR = [stats.norm(0, 1), stats.uniform(0, 1)]
THETA = np.random.default_rng(0).uniform(size=(3, 2))


def shared(theta, rng):
    return theta + rng.normal(size=2)


def single(theta, rng):
    return rng.normal(theta[0], 1 + theta[1], size=5)


def batch(theta, rng):
    return theta[:, :1] + rng.normal(size=(len(theta), 3))


def either(theta, rng):
    return rng.normal(theta)


def deterministic(theta, rng):
    return theta**2


def mixing(theta, rng):
    return theta - theta.mean() + rng.normal(size=theta.shape)


def part_shared(theta, rng):
    return np.concatenate([rng.normal(theta), theta + rng.normal(size=2)], axis=-1)


def same(a, b):
    np.testing.assert_array_equal(a.theta, b.theta)
    np.testing.assert_array_equal(a.x, b.x)
    np.testing.assert_array_equal(a.ok, b.ok)
    assert (a.requested, a.x_names, a.vectorized) == (b.requested, b.x_names, b.vectorized)


@pytest.mark.parametrize(
    ("simulator", "vectorized"),
    [
        (shared, False),
        (single, False),
        (batch, True),
        (either, True),
        (deterministic, True),
        (lambda theta, rng: np.sin(theta @ np.arange(1.0, 9.0).reshape(2, 4) / 3), True),
        (mixing, False),
        (part_shared, False),
        (lambda theta, rng: rng.poisson(np.exp(theta)), True),
        (lambda theta, rng: theta.sum() + rng.normal(), False),
        (lambda theta, rng: theta[..., 0] + rng.normal(size=theta.shape[:-1]), True),
        (lambda theta, rng: theta + rng.normal(), False),
        (lambda theta: theta[0], False),
        (lambda theta: theta[:, 0], True),
        (lambda theta, rng: {"a": theta[..., 0], "b": theta}, True),
        (lambda theta, rng: {"a": theta[0], "b": rng.normal(size=3)}, False),
        (lambda theta, rng: float(theta[0] > 0), False),
    ],
)
def test_batches_are_recognised(simulator, vectorized):
    assert find_caller(simulator, THETA, (1,)).vectorized is vectorized


def noisier_below(theta, rng):
    return rng.normal(theta, 0.1 if theta[0] > 0 else 2.0)


def raises_below(theta, rng):
    if theta[0] < -1:
        raise RuntimeError
    return rng.normal(theta)


@pytest.mark.parametrize(
    ("simulator", "vectorized"),
    [
        (noisier_below, False),
        (raises_below, False),
        (lambda theta, rng: rng.normal(theta, np.where(theta > 0, 0.1, 2.0)), True),
        (lambda theta, rng: np.stack([t + rng.normal() for t in theta]), True),
        (lambda theta, rng: np.stack([rng.normal(theta[i]) for i in range(len(theta))]), True),
        (lambda theta, rng: rng.normal(theta[:, 0]), True),
    ],
)
def test_one_parameter_by_its_number_is_no_batch(simulator, vectorized):
    theta = np.array([[0.5], [1.0], [-0.3]])
    for order in ([0, 1, 2], [2, 1, 0]):
        assert find_caller(simulator, theta[order], (1,)).vectorized is vectorized


@pytest.mark.parametrize(
    ("simulator", "vectorized"),
    [
        (lambda theta, rng: rng.integers(2, size=(len(theta), 1)), True),
        (lambda theta, rng: rng.integers(2, size=len(theta)) + 0 * theta[:, 0], True),
        (lambda theta, rng: (rng.uniform() < theta) * 1.0, False),
        (lambda theta, rng: theta + rng.poisson(0.3), False),
        (lambda theta, rng: rng.normal(theta.sum(), size=len(theta)), False),
    ],
)
def test_noise_that_is_often_the_same_is_recognised_too(simulator, vectorized):
    for seed in range(20):
        assert find_caller(simulator, THETA, (seed,)).vectorized is vectorized


@pytest.mark.parametrize("simulator", [shared, single, batch, either])
@pytest.mark.parametrize("n", [1, 7, BLOCK + 3])
def test_outputs_and_prefix(simulator, n):
    runs = simulate(simulator, PRIOR, n, rng=3)
    assert len(runs) == n == runs.requested == runs.done
    assert runs.complete
    assert runs.failed == 0
    assert runs.theta.shape == (n, 2)
    assert len(runs.x) == n
    assert runs.theta.dtype == runs.x.dtype == np.float64
    same(runs, simulate(simulator, PRIOR, n, rng=np.random.default_rng(3)))
    assert not np.array_equal(runs.x, simulate(simulator, PRIOR, n, rng=4).x)
    np.testing.assert_array_equal(simulate(simulator, PRIOR, 2 * n, rng=3).theta[:n], runs.theta)


def test_noise_is_independent_between_simulations():
    for simulator in (shared, either):
        runs = simulate(simulator, np.zeros((2000, 2)), rng=0)
        noise = runs.x
        assert len(np.unique(noise[:, 0])) == 2000
        # Correlations of noise with the next simulation's, the other column and across blocks.
        assert abs(np.corrcoef(noise[1:, 0], noise[:-1, 0])[0, 1]) < 5 / np.sqrt(2000)
        assert abs(np.corrcoef(noise[:BLOCK, 0], noise[BLOCK : 2 * BLOCK, 0])[0, 1]) < 0.25
        assert stats.kstest(noise.ravel(), "norm").pvalue > 1e-6


# Lambdas travel to other processes as they are, functions of a test do not.
TRAVELLERS = [
    lambda theta, rng: rng.normal(theta[0], 1 + theta[1], size=5),
    lambda theta, rng: theta[:, :1] + rng.normal(size=(len(theta), 3)),
]


@pytest.mark.parametrize("simulator", TRAVELLERS)
def test_jobs_do_not_change_the_result(simulator):
    n = BLOCK + 60
    apart = simulate(simulator, PRIOR, n, rng=5, n_jobs=2)
    same(apart, simulate(simulator, PRIOR, n, rng=5))


@pytest.mark.slow
@pytest.mark.parametrize("simulator", [*TRAVELLERS, lambda t: np.random.normal(t[0])])  # noqa: NPY002
def test_processes_do_not_change_the_result(simulator):
    n = 3 * BLOCK + 60
    apart = simulate(simulator, PRIOR, n, rng=5, n_jobs=2)
    same(apart, simulate(simulator, PRIOR, n, rng=5))


def test_processes_refuse_a_simulator_with_its_own_stream():
    own = np.random.default_rng(0)
    simulate(lambda theta: own.normal(theta), PRIOR, 5, rng=0)
    with pytest.raises(ValueError, match="draws random numbers of its own"):
        simulate(lambda theta: own.normal(theta), PRIOR, 5, rng=0, n_jobs=2)


def test_numpys_global_stream_is_left_as_it_was():
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    runs = [
        simulate(lambda t: np.random.normal(t[0]), PRIOR, 20, rng=1)  # noqa: NPY002
        for _ in range(2)
    ]
    same(*runs)
    assert len(np.unique(runs[0].x)) == 20
    np.testing.assert_array_equal(before, np.random.get_state()[1])  # noqa: NPY002


@pytest.mark.parametrize(
    "simulator",
    [
        lambda theta, rng: 1.0,
        lambda theta, noise=0.1: theta[0],
        lambda theta, *, rng: rng.normal(theta[0]),
        lambda theta, random_state=None: random_state.normal(theta[0]),
        lambda theta, rng: [theta[0], 2],
        lambda theta, rng: np.zeros((2, 3)) + theta[0],
        lambda theta, rng: theta[0] > 0,
    ],
)
def test_signatures_and_outputs(simulator):
    runs = simulate(simulator, PRIOR, 4, rng=0)
    assert runs.x.ndim >= 2
    assert runs.x.shape[0] == 4


def test_names_and_observations():
    def simulator(theta, rng):
        return {"mean": theta[0], "tail": rng.normal(size=2)}

    prior = {"mu": stats.norm(), "sigma": stats.uniform()}
    runs = simulate(simulator, prior, 6, rng=0)
    assert runs.names == ("mu", "sigma")
    assert runs.x_names == ("mean", "tail[0]", "tail[1]")
    np.testing.assert_array_equal(runs.x[:, 0], runs.theta[:, 0])
    row = as_observation({"tail": [1.0, 2.0], "mean": 0.5}, None, runs)
    np.testing.assert_array_equal(row, [0.5, 1.0, 2.0])
    np.testing.assert_array_equal(as_observation([[0.5, 1.0, 2.0]], None, runs), row)
    with pytest.raises(ValueError, match="x_observed has"):
        as_observation({"tail": [1.0, 2.0]}, None, runs)
    with pytest.raises(ValueError, match="shape"):
        as_observation([1.0], None, runs)
    with pytest.raises(ValueError, match="NaN"):
        as_observation([1.0, np.nan, 2.0], None, runs)


@pytest.mark.parametrize("simulator", [single, batch])
@pytest.mark.parametrize(
    "summary",
    [
        lambda x: np.array([x.mean(), x.var()]),
        lambda x: {"mean": x.mean(axis=-1), "var": x.var(axis=-1)},
        lambda x: np.stack([x.mean(axis=-1), x.var(axis=-1)], axis=-1),
    ],
)
def test_summaries_of_one_or_of_a_batch(simulator, summary):
    raw = simulate(simulator, PRIOR, 9, rng=2)
    runs = simulate(simulator, PRIOR, 9, rng=2, summary=summary)
    np.testing.assert_allclose(runs.x, np.column_stack([raw.x.mean(axis=1), raw.x.var(axis=1)]))
    np.testing.assert_allclose(as_observation(raw.x[3], summary, runs), runs.x[3])


def test_a_summary_for_batches_only():
    runs = simulate(batch, PRIOR, 9, rng=2, summary=lambda x: x.mean(axis=1))
    assert runs.x.shape == (9, 1)
    np.testing.assert_allclose(as_observation(np.ones(3), lambda x: x.mean(axis=1), runs), [1.0])


def failing(theta, rng):
    if theta[1] < 0.2:
        raise ArithmeticError("too small")
    if theta[1] < 0.3:
        return np.nan  # of another shape than the rest
    return np.array([theta[0], np.inf if theta[1] > 0.9 else 1.0])


def failing_batch(theta, rng):
    if np.any(theta[:, 1] < 0.2):
        raise ArithmeticError("too small")
    return np.where(theta[:, 1:] > 0.9, np.nan, theta + rng.normal(size=theta.shape))


@pytest.mark.parametrize("simulator", [failing, failing_batch])
def test_failures_are_counted_and_dropped(simulator):
    with pytest.warns(NumericalWarning, match="failed and were dropped") as caught:
        runs = simulate(simulator, PRIOR, 200, rng=0)
    assert len(caught) == 1
    u = simulate(lambda theta, rng: theta, PRIOR, 200, rng=0).theta[:, 1]
    bad = (u < 0.2) | (u > 0.9)
    if simulator is failing:
        bad |= u < 0.3
    np.testing.assert_array_equal(runs.ok, ~bad)
    assert runs.failed == bad.sum()
    assert len(runs) == 200 - runs.failed
    assert runs.complete
    assert runs.reason in ("ArithmeticError: too small", "NaN or infinite output")
    assert f"{runs.failed} failed" in repr(runs)
    with pytest.raises((ValueError, ArithmeticError), match=r"failed|too small"):
        simulate(simulator, PRIOR, 200, rng=0, on_failure="raise")


def test_batches_are_recognised_where_one_of_the_parameters_tried_fails():
    for seed in range(5):  # about half of all trials have such a parameter
        with pytest.warns(NumericalWarning, match="failed and were dropped"):
            assert simulate(failing_batch, PRIOR, 60, rng=seed).vectorized


def test_nan_raises_if_asked_to():
    with pytest.raises(ValueError, match=r"theta = .* failed: NaN"):
        simulate(lambda theta, rng: np.nan, PRIOR, 5, rng=0, on_failure="raise")


@pytest.mark.parametrize("output", [np.nan, None, np.array([1.0, np.inf])])
def test_all_failing_is_an_error(output):
    with pytest.raises(ValueError, match="all 5 simulations failed"):
        simulate(lambda theta, rng: output, PRIOR, 5, rng=0)


def interrupted(simulator, n, stop, **options):
    """Simulations of a run that is interrupted at its call number ``stop``."""
    calls = [0]

    def stopping(theta, rng):
        calls[0] += 1
        if calls[0] == stop:
            raise KeyboardInterrupt
        return simulator(theta, rng)

    with pytest.warns(UserWarning, match=r"resume=simulations"):
        return simulate(stopping, PRIOR, n, rng=8, **options)


@pytest.mark.parametrize(("simulator", "n", "stop"), [(single, 30, 12), (batch, 4 * BLOCK, 3)])
def test_an_interrupted_run_is_kept_and_continued(simulator, n, stop):
    vectorized = simulator is batch
    part = interrupted(simulator, n, stop, vectorized=vectorized)
    assert not part.complete
    assert part.done == (stop - 1) * (BLOCK if vectorized else 1)
    assert "interrupted" in repr(part)
    same(simulate(simulator, PRIOR, n, resume=part), simulate(simulator, PRIOR, n, rng=8))


@pytest.mark.parametrize("simulator", [single, batch])
def test_a_finished_run_is_extended(simulator):
    short = simulate(simulator, PRIOR, BLOCK + 20, rng=8)
    longer = simulate(simulator, PRIOR, BLOCK + 90, resume=short)
    same(longer, simulate(simulator, PRIOR, BLOCK + 90, rng=8))
    same(simulate(simulator, PRIOR, BLOCK + 20, resume=short), short)


def test_failures_survive_interruption():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        whole = simulate(failing, PRIOR, 60, rng=8)
        part = interrupted(failing, 60, 40, vectorized=False)
        same(simulate(failing, PRIOR, 60, resume=part), whole)
    assert 0 < part.failed < whole.failed


def test_an_interruption_before_the_first_simulation_is_passed_on():
    def stopping(theta, rng):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        simulate(stopping, PRIOR, 5, rng=0, vectorized=False)


def test_parameters_given_as_an_array():
    theta = np.linspace(0, 1, 12).reshape(6, 2)
    runs = simulate(deterministic, theta, rng=0)
    np.testing.assert_array_equal(runs.theta, theta)
    np.testing.assert_array_equal(runs.x, theta**2)
    assert len(simulate(deterministic, theta, 4, rng=0)) == 4
    assert len(simulate(deterministic, as_prior(theta), 10, rng=0)) == 10
    with pytest.raises(ValueError, match="as_prior"):
        simulate(deterministic, theta, 7, rng=0)


def test_a_prior_with_a_stream_of_its_own_keeps_pairs_together():
    own = np.random.default_rng(0)
    runs = simulate(deterministic, lambda n: own.normal(size=(n, 2)), 2 * BLOCK, rng=0)
    np.testing.assert_array_equal(runs.x, runs.theta**2)


@pytest.mark.parametrize(
    ("arguments", "options", "error", "match"),
    [
        ((1.0, PRIOR, 5), {}, TypeError, "callable"),
        ((single, PRIOR), {}, ValueError, "missing"),
        ((single, PRIOR, 0), {}, ValueError, "at least 1"),
        ((single, PRIOR, 5), {"on_failure": "keep"}, ValueError, "on_failure"),
        ((single, PRIOR, 5), {"summary": 1}, TypeError, "summary"),
        (
            (lambda theta, rng: theta[0] * np.ones(3), PRIOR, 5),  # (2,) times (3,)
            {"vectorized": True, "on_failure": "raise"},
            SimulationError,
            "broadcast",
        ),
        (
            (lambda t, rng: np.ones(rng.integers(1, 9)), PRIOR, 30),
            {},
            ValueError,
            "different shapes",
        ),
        ((lambda t, rng: "text", PRIOR, 5), {}, ValueError, "must hold numbers"),
    ],
)
def test_bad_use_is_refused(arguments, options, error, match):
    with pytest.raises(error, match=match):
        simulate(*arguments, rng=0, **options)


def test_a_simulator_with_noise_of_its_own_that_takes_one_row_is_called_with_batches():
    """As the simulators of sbibm: one parameter (d,) is a batch of one, and nothing is seeded."""
    own, calls = np.random.default_rng(0), []

    def simulator(theta):
        theta = np.atleast_2d(theta)
        calls.append(len(theta))
        return theta + own.normal(size=theta.shape)

    runs = simulate(simulator, [stats.norm()] * 2, 500, rng=0)
    assert runs.vectorized
    assert runs.x.shape == (500, 2)
    assert len(calls) < 30


def test_one_parameter_at_a_time_with_noise_of_its_own():
    own = np.random.default_rng(0)

    def shared(theta):
        return theta + own.normal(size=2)  # the same noise for all rows of a batch

    runs = simulate(shared, [stats.norm()] * 2, 100, rng=0)
    assert not runs.vectorized
    assert runs.x.shape == (100, 2)


# -- torch is imported, the simulator knows nothing of it ------------------------------------------


@pytest.fixture
def torch(monkeypatch):
    stub = types.ModuleType("torch")
    stub.Tensor = type("Tensor", (), {})
    stub.random = types.SimpleNamespace(fork_rng=lambda devices: nullcontext())
    stub.manual_seed = lambda seed: None
    monkeypatch.setitem(sys.modules, "torch", stub)


def of_the_global_stream(theta):
    return theta + np.random.normal(size=theta.shape)  # noqa: NPY002


BEFORE = simulate(of_the_global_stream, PRIOR, 30, rng=3)


@pytest.mark.usefixtures("torch")
def test_torch_does_not_change_simulations_of_numpy():
    assert "torch" in sys.modules
    np.testing.assert_array_equal(simulate(of_the_global_stream, PRIOR, 30, rng=3).x, BEFORE.x)


@pytest.mark.usefixtures("torch")
def test_trials_with_torch_end_at_the_timeout_and_exits_are_failures():
    def hangs(theta):
        time.sleep(1000.0)

    def exits(theta):
        sys.exit(1)

    with pytest.raises(ValueError, match="timeout"):
        simulate(hangs, PRIOR, 1, rng=0, timeout=0.1, vectorized=False)
    with pytest.raises(ValueError, match=r"sys\.exit"):
        simulate(exits, PRIOR, 30, rng=0)
