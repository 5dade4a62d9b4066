"""What runs in parallel runs where ``joblib.parallel_config`` says, with the same results."""

import importlib.util
import sys
from pathlib import Path

import joblib
import numpy as np
import pytest
from joblib._parallel_backends import ThreadingBackend
from scipy import stats

from kernelbayes import (
    ConditionalEmbedding,
    KernelBayesRule,
    LikelihoodFree,
    sbc,
    simulate,
    tune,
)

PRIOR = stats.norm(0.0, 1.0)
counted = {"calls": 0}


class Counting(ThreadingBackend):
    """A backend of somebody else's: threads, and a count of what they were given."""

    def submit(self, func, callback=None):
        counted["calls"] += 1
        return super().submit(func, callback)

    apply_async = submit  # its name before joblib 1.5


joblib.register_parallel_backend("counting", Counting)


@pytest.fixture
def jobs():
    counted["calls"] = 0
    with joblib.parallel_config(backend="counting", n_jobs=2):
        yield counted


def simulator(theta, rng):
    return theta + rng.normal(size=2)


def pairs():
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(80, 1))
    return np.tanh(Z) + 0.2 * rng.normal(size=(80, 1)), Z


def both(call):
    """Results without a configuration and with one; tasks that the backend was given."""
    alone = call()
    counted["calls"] = 0
    with joblib.parallel_config(backend="counting", n_jobs=2):
        found = call()
    return alone, found, counted["calls"]


def test_simulations_run_on_the_backend():
    alone, found, calls = both(lambda: simulate(simulator, PRIOR, 30, rng=0, vectorized=False))
    assert calls > 1
    np.testing.assert_array_equal(alone.x, found.x)
    np.testing.assert_array_equal(alone.theta, found.theta)


def test_a_simulator_of_the_global_stream_stays_in_one_thread(jobs):
    def drawing(theta):
        return theta + np.random.normal(size=2)  # noqa: NPY002

    simulate(drawing, PRIOR, 10, rng=0, vectorized=False)
    assert jobs["calls"] == 0


def test_numbers_of_its_own_are_refused(jobs):
    own = np.random.default_rng(0)
    with pytest.raises(ValueError, match=r"random numbers of its own.*parallel_config"):
        simulate(lambda theta: own.normal(theta), PRIOR, 5, rng=0)


def test_checks_of_calibration_run_on_the_backend():
    runs = simulate(simulator, PRIOR, 60, rng=1)
    model = LikelihoodFree(method="cme", rng=0).fit(runs.theta, runs.x)
    alone, found, calls = both(
        lambda: sbc(model, theta=runs.theta[:6], x=runs.x[:6], n_draws=20, rng=0)
    )
    assert calls > 1
    np.testing.assert_array_equal(alone.ranks, found.ranks)


@pytest.mark.parametrize("model", [ConditionalEmbedding(), KernelBayesRule()], ids=["cme", "rule"])
def test_candidates_of_tuning_run_on_the_backend(model):
    X, Z = pairs()
    alone, found, calls = both(lambda: tune(model, X, Z, budget=6))
    assert calls > 1
    assert list(alone.tuning_) == list(found.tuning_)


@pytest.mark.slow
def test_candidates_of_tuning_run_in_processes():
    X, Z = pairs()
    alone = tune(KernelBayesRule(), X, Z, budget=6)
    with joblib.parallel_config(backend="loky", n_jobs=2):
        found = tune(KernelBayesRule(), X, Z, budget=6)
    assert [row["scale"] for row in alone.tuning_] == [row["scale"] for row in found.tuning_]
    scores = ([row["score"] for row in one.tuning_] for one in (alone, found))
    np.testing.assert_allclose(*scores, rtol=1e-9)  # threads of BLAS may differ in rounding


def test_experiments_run_on_the_backend():
    path = Path(__file__).parent.parent / "experiments" / "statespace" / "report.py"
    if not path.exists():
        pytest.skip("the experiments are not part of this distribution")
    spec = importlib.util.spec_from_file_location("statespace_report", path)
    report = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(report)
    tasks = [("model", n) for n in range(6)]
    alone, found, calls = both(lambda: report.compute(lambda *task: [task], tasks, 1))
    assert calls > 1
    assert alone == found == tasks
