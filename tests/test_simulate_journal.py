"""What was simulated is never lost: failures, dead and hanging processes, interruption, files."""

import os
import pickle
import signal
import sys
import time
import warnings

import numpy as np
import pytest
from scipy import stats

import kernelbayes as kb
from kernelbayes import NumericalWarning
from kernelbayes.likelihood_free.running.forkserver import Child, packed
from kernelbayes.likelihood_free.running.journal import (
    BLOCK,
    Journal,
    Keep,
    open_journal,
    read_journals,
)
from kernelbayes.likelihood_free.simulate import SimulationError, Simulations, simulate

PRIOR = {"a": stats.norm(0, 1), "b": stats.uniform(0, 1)}
JOBS = [1, 2]


def same(a, b):
    np.testing.assert_array_equal(a.theta, b.theta)
    np.testing.assert_array_equal(a.x, b.x)
    np.testing.assert_array_equal(a.ok, b.ok)
    np.testing.assert_array_equal(a.numbers, b.numbers)
    assert (a.names, a.x_names, a.vectorized) == (b.names, b.x_names, b.vectorized)


# Functions that are not found under their name travel to other processes as they are.
def one():
    return lambda theta, rng: rng.normal(theta[0], 1 + theta[1], size=3)


def batch():
    return lambda theta, rng: theta[:, :1] + rng.normal(size=(len(theta), 3))


def sometimes(trouble, below=0.1, batches=False):
    """Simulator that has trouble with small second parameters, alone or in a batch."""
    if batches:

        def simulator(theta, rng):
            if np.any(theta[:, 1] < below):
                trouble()
            return theta + rng.normal(size=theta.shape)

    else:

        def simulator(theta, rng):
            if theta[1] < below:
                return trouble()
            return theta + rng.normal(size=2)

    return simulator


def raises():
    def trouble():
        raise ArithmeticError("too small")

    return trouble


def exits():
    return lambda: sys.exit(3)


def dies():
    return lambda: os._exit(3)


def is_killed():
    return lambda: os.kill(os.getpid(), signal.SIGKILL)


def hangs():
    return lambda: time.sleep(1000)


def odd():
    return lambda: np.ones(5)


def seconds(n, seed):
    """Second parameter of the first n simulations."""
    return simulate(lambda theta, rng: theta, PRIOR, n, rng=seed).theta[:, 1]


TROUBLES = [
    (raises, 1, {}, "ArithmeticError: too small"),
    (raises, 2, {}, "ArithmeticError: too small"),
    (exits, 1, {}, r"sys.exit\(3\)"),
    (exits, 2, {}, r"sys.exit\(3\)"),
    (dies, 2, {}, r"process died \(exit code 3\)"),
    (dies, 1, {"timeout": 60.0}, r"process died \(exit code 3\)"),
    (is_killed, 2, {}, r"process died \(killed by SIGKILL\)"),
    (hangs, 1, {"timeout": 0.2}, "timeout"),
    (hangs, 2, {"timeout": 0.2}, "timeout"),
]


@pytest.mark.parametrize(("trouble", "n_jobs", "options", "reason"), TROUBLES)
@pytest.mark.parametrize("batches", [False, True])
def test_a_failed_simulation_costs_itself_alone(trouble, n_jobs, options, reason, batches):
    n, seed = 40, 3
    bad = seconds(n, seed) < 0.1
    assert 0 < bad.sum() < n
    simulator = sometimes(trouble(), batches=batches)
    options = {"n_jobs": n_jobs, "vectorized": batches, **options}
    with pytest.warns(NumericalWarning, match=reason + r".*at theta = \[") as caught:
        runs = simulate(simulator, PRIOR, n, rng=seed, **options)
    assert f"{bad.sum()} of {n} simulations failed and were dropped" in str(caught[0].message)
    np.testing.assert_array_equal(runs.ok, ~bad)
    if not batches:  # the noise of a batch is that of its rows alone once it has failed
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            same(runs, simulate(sometimes(raises()), PRIOR, n, rng=seed, vectorized=False))


@pytest.mark.parametrize(("trouble", "n_jobs", "options", "reason"), TROUBLES)
@pytest.mark.parametrize("batches", [False, True])
def test_the_first_failed_simulation_raises_if_asked_to(trouble, n_jobs, options, reason, batches):
    n, seed = 40, 3
    simulator = sometimes(trouble(), batches=batches)
    options = {"n_jobs": n_jobs, "vectorized": batches, "on_failure": "raise", **options}
    with pytest.raises(SimulationError, match=r"the simulation at theta = \[.*" + reason) as caught:
        simulate(simulator, PRIOR, n, rng=seed, **options)
    kept = caught.value.simulations
    if kept is not None:  # nothing, if the first one failed
        assert kept.failed == 0
        assert np.all(kept.theta[:, 1] >= 0.1)
        assert "simulations are kept" in "".join(caught.value.__notes__)


@pytest.mark.parametrize("n_jobs", JOBS)
def test_a_batch_simulator_that_raises_does_the_same_in_one_process_and_two(n_jobs):
    n = BLOCK + 1  # the last batch is one simulation
    for seed in range(3):  # whichever of the parameters tried fails
        with pytest.warns(NumericalWarning, match="too small"):
            runs = simulate(
                sometimes(raises(), 0.3, True), PRIOR, n, rng=seed, n_jobs=n_jobs,
                summary=lambda x: x[..., :1],
            )  # fmt: skip
        assert runs.vectorized
        np.testing.assert_array_equal(runs.ok, seconds(n, seed) >= 0.3)


@pytest.mark.parametrize("n_jobs", JOBS)
def test_an_output_of_odd_shape_is_dropped(n_jobs):
    for below in (0.2, 0.4):
        with pytest.warns(NumericalWarning, match=r"shape \(5,\), where others have \(2,\)"):
            runs = simulate(sometimes(odd(), below), PRIOR, 60, rng=1, n_jobs=n_jobs)
        np.testing.assert_array_equal(runs.ok, seconds(60, 1) >= below)
    with pytest.raises(SimulationError, match=r"shape"):
        simulate(sometimes(odd()), PRIOR, 60, rng=1, n_jobs=n_jobs, on_failure="raise")


def test_a_batch_that_fails_though_its_members_work_is_an_error_if_asked_to():
    def simulator(theta, rng):
        if len(theta) > 1:
            raise ArithmeticError("one at a time")
        return theta

    same(
        simulate(simulator, PRIOR, 9, rng=0, vectorized=True),
        simulate(lambda theta, rng: theta, PRIOR, 9, rng=0),
    )
    with pytest.raises(SimulationError, match="each works alone"):
        simulate(simulator, PRIOR, 9, rng=0, vectorized=True, on_failure="raise")


def test_a_simulator_whose_trial_kills_the_process_is_called_one_by_one():
    def simulator(theta, rng):
        if theta.ndim == 2:
            os._exit(1)
        return theta

    same(
        simulate(simulator, PRIOR, 20, rng=0, n_jobs=2),
        simulate(lambda theta, rng: theta, PRIOR, 20, rng=0, vectorized=False),
    )


def test_a_simulator_that_cannot_travel_is_refused():
    lock = __import__("threading").Lock()
    with pytest.raises(TypeError, match="cannot be sent to another process"):
        simulate(lambda theta, rng: theta if lock else 0, PRIOR, 9, rng=0, n_jobs=2)


@pytest.mark.parametrize("timeout", [0, -1.0, np.nan, np.inf, "1", True])
def test_a_timeout_is_a_positive_number(timeout):
    with pytest.raises(ValueError, match="timeout"):
        simulate(one(), PRIOR, 9, rng=0, timeout=timeout)


# --- interruption --------------------------------------------------------------------------------


def stopping(at, simulator):
    """Simulator that is interrupted at its call number ``at``."""
    calls = [0]

    def stopped(theta, rng):
        calls[0] += 1
        if calls[0] == at:
            raise KeyboardInterrupt
        return simulator(theta, rng)

    return stopped


@pytest.mark.parametrize(("at", "round_number"), [(20, 0), (70, 1), (110, 2)])
def test_an_interrupted_inference_stops_and_gives_what_it_has(at, round_number):
    options = {"rng": 0, "rounds": 3, "vectorized": False}
    with pytest.raises(KeyboardInterrupt) as caught:
        kb.infer(stopping(at, one()), PRIOR, np.zeros(3), 120, "adjusted", **options)
    rounds = caught.value.rounds
    assert len(rounds) == round_number + 1
    assert sum(part.done for part in rounds) == at - 1
    assert caught.value.simulations is rounds[0]
    assert "sys.last_value.simulations" in "".join(caught.value.__notes__)
    whole = simulate(one(), PRIOR, 40, rng=0, vectorized=False)
    same(simulate(one(), PRIOR, 40, resume=rounds[0]), whole)


def test_an_error_after_the_simulations_has_them():
    with pytest.raises(ValueError, match="x_observed has shape") as caught:
        kb.infer(one(), PRIOR, np.zeros(7), 50, rng=0)
    same(caught.value.simulations, simulate(one(), PRIOR, 50, rng=0))


def test_other_functions_stop_too():
    draws = np.random.default_rng(0).normal(size=(50, 2))
    asked = stopping(8, one()), np.zeros(3)
    with pytest.raises(KeyboardInterrupt) as caught:
        kb.posterior_predictive(draws, *asked, rng=0, vectorized=False)
    assert caught.value.simulations.done == 7
    with pytest.raises(KeyboardInterrupt) as caught:
        kb.reject_abc(stopping(8, one()), PRIOR, np.zeros(3), rng=0, vectorized=False)
    assert caught.value.simulations.done == 7


def interrupted_work():
    def work(pipe):
        """Simulate in a process of its own, again and again, until the keyboard interrupts."""
        while True:
            simulator, generator, n, n_jobs, path = pipe.recv()
            simulator, found = pickle.loads(simulator), None
            try:
                signal.signal(signal.SIGINT, signal.default_int_handler)
                pipe.send("ready")
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    options = {"rng": generator, "n_jobs": n_jobs, "keep": path}
                    options["on_interrupt"] = "raise"
                    found = simulate(simulator, PRIOR, n, vectorized=False, **options)
                time.sleep(60)  # until the interrupt comes
            except KeyboardInterrupt as stop:
                found = found or getattr(stop, "simulations", None)
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            pipe.send(found and (found.theta, found.x, found.numbers, found.complete))

    return work


def slow(milliseconds=2.0):
    """Simulator that takes a few milliseconds."""

    def simulator(theta, rng):
        time.sleep(milliseconds / 1000)
        return rng.normal(theta)

    return simulator


def interrupts(times, n_jobs, folder):
    """Interrupt a run at random moments; nothing that reached its file may be missing."""
    rng = np.random.default_rng(5)
    generator, n = np.random.default_rng(8), 300
    whole = simulate(slow(0.0), PRIOR, n, rng=np.random.default_rng(8), vectorized=False)
    cut_short = 0
    child = Child(interrupted_work())
    for k in range(times):
        path = folder / f"{k}.kb"
        child.pipe.send((packed(slow()), generator, n, n_jobs, str(path)))
        child.pipe.recv()
        until = int(rng.integers(0, 30_000))
        while not (path.exists() and path.stat().st_size >= until):
            time.sleep(1e-3)
        time.sleep(float(rng.uniform(0, 0.005)))
        os.kill(child._pid, signal.SIGINT)
        found = child.pipe.recv()
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # the file is sound
            journals = read_journals(path)[0]
        written = journals[0].rows if journals else {}
        if found is None:
            assert not written
            continue
        theta, x, numbers, complete = found
        assert set(written) <= set(numbers.tolist())
        np.testing.assert_array_equal(theta, whole.theta[numbers])
        np.testing.assert_array_equal(x, whole.x[numbers])
        cut_short += not complete
    child.kill()
    return cut_short


@pytest.mark.parametrize("n_jobs", JOBS)
def test_nothing_is_lost_when_the_keyboard_interrupts(n_jobs, tmp_path):
    assert interrupts(3, n_jobs, tmp_path) > 0


@pytest.mark.slow
@pytest.mark.parametrize("n_jobs", JOBS)
def test_nothing_is_lost_in_100_interruptions(n_jobs, tmp_path):
    assert interrupts(100, n_jobs, tmp_path) > 50


# --- files ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("simulator", [one(), batch(), lambda t, rng: {"u": t[0], "v": t}])
@pytest.mark.parametrize("n_jobs", JOBS)
def test_a_file_has_what_memory_has(simulator, n_jobs, tmp_path):
    path, n = tmp_path / "runs.kb", BLOCK + 30
    whole = simulate(simulator, PRIOR, n, rng=4)
    same(simulate(simulator, PRIOR, n, rng=4, keep=path, n_jobs=n_jobs), whole)
    same(Simulations.read(path), whole)
    size = path.stat().st_size
    same(simulate(stopping(1, simulator), PRIOR, n, rng=4, keep=path), whole)  # no call is made
    assert path.stat().st_size == size
    longer = simulate(simulator, PRIOR, n + 50, rng=4, keep=path)
    same(longer, simulate(simulator, PRIOR, n + 50, rng=4))


@pytest.mark.parametrize(("simulator", "n"), [(one(), 30), (batch(), BLOCK + 30)])
def test_a_file_that_was_cut_anywhere_is_continued(simulator, n, tmp_path):
    path = tmp_path / "runs.kb"
    whole = simulate(simulator, PRIOR, n, rng=4, keep=path)
    data = path.read_bytes()
    cuts = [0, 3, 8, 12, 60, len(data) - 1, len(data)]
    cuts += list(np.random.default_rng(0).integers(len(data), size=8))
    for cut in cuts:
        path.write_bytes(data[:cut])
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            same(simulate(simulator, PRIOR, n, rng=4, keep=path), whole)
        assert all("damaged and were dropped" in str(w.message) for w in caught)
        same(Simulations.read(path), whole)


def test_a_damaged_record_and_all_after_it_are_simulated_again(tmp_path):
    path = tmp_path / "runs.kb"
    whole = simulate(one(), PRIOR, 30, rng=4, keep=path)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.warns(UserWarning, match="damaged"):
        assert 0 < len(Simulations.read(path)) < 30
    with pytest.warns(UserWarning, match="damaged"):
        same(simulate(one(), PRIOR, 30, rng=4, keep=path), whole)
    same(Simulations.read(path), whole)


def test_a_file_goes_on_without_an_rng_and_keeps_failures(tmp_path):
    path = tmp_path / "runs.kb"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NumericalWarning)
        whole = simulate(sometimes(raises(), 0.3), PRIOR, 60, rng=4)
        part = simulate(sometimes(raises(), 0.3), PRIOR, 25, rng=4, keep=path)
        same(simulate(sometimes(raises(), 0.3), PRIOR, 60, keep=path), whole)
    assert 0 < part.failed < whole.failed
    assert Simulations.read(path).reason == "ArithmeticError: too small"
    with pytest.raises(SimulationError, match=r"failed: ArithmeticError"):
        simulate(sometimes(raises(), 0.3), PRIOR, 60, keep=path, on_failure="raise")


def test_a_simulator_that_was_mended_goes_on_where_it_failed(tmp_path):
    path = tmp_path / "runs.kb"
    with pytest.raises(SimulationError):
        simulate(sometimes(raises(), 0.1), PRIOR, 60, rng=4, keep=path, on_failure="raise")
    mended = simulate(sometimes(raises(), 0.0), PRIOR, 60, rng=4, keep=path, on_failure="raise")
    same(mended, simulate(sometimes(raises(), 0.0), PRIOR, 60, rng=4))


@pytest.mark.parametrize(
    ("prior", "seed", "match"),
    [
        (PRIOR, 5, "made with other random numbers.*the same rng"),
        ({"a": PRIOR["a"]}, 4, "of 2 parameters, here are 1"),
        ({"a": PRIOR["a"], "c": PRIOR["b"]}, 4, r"of the parameters \('a', 'b'\)"),
        (PRIOR | {"b": stats.uniform(0, 2)}, 4, "at other parameters"),
    ],
)
def test_a_file_of_another_problem_is_refused(prior, seed, match, tmp_path):
    path = tmp_path / "runs.kb"
    simulate(either(), PRIOR, 10, rng=4, keep=path)
    before = path.read_bytes()
    with pytest.raises(ValueError, match=match):
        simulate(either(), prior, 10, rng=seed, keep=path)
    assert path.read_bytes() == before


def either():
    return lambda theta, rng: rng.normal(theta)


def test_other_files_are_refused(tmp_path):
    path = tmp_path / "runs.kb"
    path.write_bytes(b"time,value\n1,2\n")
    with pytest.raises(ValueError, match="not a file of simulations"):
        simulate(one(), PRIOR, 10, rng=4, keep=path)
    path.write_bytes(b"KBRUNS9\n")
    with pytest.raises(ValueError, match="newer version"):
        simulate(one(), PRIOR, 10, rng=4, keep=path)
    for wrong in (tmp_path, tmp_path / "none" / "runs.kb"):
        with pytest.raises(ValueError, match="a file in a folder that exists"):
            simulate(one(), PRIOR, 10, rng=4, keep=wrong)
    with pytest.raises(TypeError, match="path of a file"):
        simulate(one(), PRIOR, 10, rng=4, keep=3)
    with pytest.raises(ValueError, match="there is no file"):
        Simulations.read(tmp_path / "none.kb")
    runs = simulate(one(), PRIOR, 10, rng=4)
    with pytest.raises(ValueError, match="not both"):
        simulate(one(), PRIOR, 10, resume=runs, keep=tmp_path / "new.kb")


def test_a_file_in_use_is_refused(tmp_path):
    path = tmp_path / "runs.kb"
    journal = open_journal(Keep(path))
    with pytest.raises(ValueError, match="another run"):
        simulate(one(), PRIOR, 10, rng=4, keep=path)
    journal.close()
    simulate(one(), PRIOR, 10, rng=4, keep=path)


def test_a_full_disk_loses_nothing(tmp_path, monkeypatch):
    written = []

    def write(self, record):
        written.append(record)
        if len(written) > 10:
            raise OSError("no space left")

    monkeypatch.setattr(Journal, "_write", write)
    with pytest.raises(OSError, match="no space left") as caught:
        simulate(one(), PRIOR, 30, rng=4, keep=tmp_path / "runs.kb")
    assert caught.value.simulations.done == 10


def test_rounds_are_continued_from_a_file(tmp_path):
    options = {"rng": 0, "rounds": 3, "vectorized": False, "adjust": "linear"}
    path = tmp_path / "runs.kb"
    asked = (one(), PRIOR, np.zeros(3), 120, "adjusted")
    whole = kb.infer(*asked, **options)
    np.testing.assert_array_equal(kb.infer(*asked, keep=path, **options).points, whole.points)
    assert Simulations.read(path, 2).done == 40
    data = path.read_bytes()
    for share in (0.2, 0.6, 0.9):
        path.write_bytes(data[: int(share * len(data))])
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*damaged")
            again = kb.infer(*asked, keep=path, **options)
        np.testing.assert_array_equal(again.points, whole.points)
        np.testing.assert_array_equal(again.weights, whole.weights)
    with pytest.raises(ValueError, match="at other parameters"):  # round 2 depends on x
        kb.infer(*asked[:2], np.ones(3), *asked[3:], keep=path, **options)
    with pytest.raises(ValueError, match="needs an rng"):
        kb.infer(*asked, keep=path, rounds=2)


def killed_work():
    def work(pipe):
        """Simulate in a process of its own until it is killed."""
        simulator, generator, n, n_jobs, path, vectorized = pipe.recv()
        simulator = pickle.loads(simulator)
        options = {"rng": generator, "n_jobs": n_jobs, "keep": path, "vectorized": vectorized}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            simulate(simulator, PRIOR, n, **options)
        pipe.send("done")

    return work


def kills(times, n_jobs, path, vectorized):
    """Kill a run again and again, each time a little further; return how often it was killed."""
    rng = np.random.default_rng(6)
    n = 4 * times * BLOCK if vectorized else 24 * times  # a kill costs one or two batches
    reached, killed = 0, 0
    while True:
        child = Child(killed_work())
        arguments = (packed(slow()), np.random.default_rng(8), n, n_jobs, str(path), vectorized)
        child.pipe.send(arguments)
        until = reached + int(rng.integers(0, 3000)) if killed < times else sys.maxsize
        while not child.pipe.poll() and not (path.exists() and path.stat().st_size >= until):
            time.sleep(2e-4)
        try:
            finished = child.pipe.poll() and child.pipe.recv() == "done"
        finally:
            child.kill()  # SIGKILL
        if finished:
            return killed, n
        killed += 1
        reached = path.stat().st_size


def check_kills(times, n_jobs, folder, vectorized):
    path = folder / "runs.kb"
    killed, n = kills(times, n_jobs, path, vectorized)
    whole = simulate(slow(0.0), PRIOR, n, rng=np.random.default_rng(8), vectorized=vectorized)
    same(Simulations.read(path), whole)
    return killed


@pytest.mark.parametrize(("n_jobs", "vectorized"), [(1, False), (1, True), (2, False)])
def test_a_run_that_is_killed_goes_on(n_jobs, vectorized, tmp_path):
    assert check_kills(4 // n_jobs, n_jobs, tmp_path, vectorized) > 1


@pytest.mark.slow
@pytest.mark.parametrize(("n_jobs", "vectorized"), [(1, False), (1, True), (2, False)])
def test_a_run_that_is_killed_100_times_goes_on(n_jobs, vectorized, tmp_path):
    assert check_kills(100, n_jobs, tmp_path, vectorized) == 100
