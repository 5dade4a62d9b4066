"""Parts of the experiments on the Monte Carlo filter: a robot's odometry, Alg. 4, evidence."""

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "experiments" / "statespace"))
sys.path.insert(0, str(Path(__file__).parents[1] / "experiments" / "posteriors"))
sys.path.insert(0, str(Path(__file__).parents[1] / "experiments" / "kmcf16_fig4_5"))
sys.path.insert(0, str(Path(__file__).parents[1] / "experiments" / "kmcf16_fig4_8"))
sys.path.insert(0, str(Path(__file__).parents[1] / "experiments" / "future_work"))

import questions
import report
import robot
import thesis
from models import kanagawa

from kernelbayes.demo.drive import Drive


def test_odometry_without_noise_follows_the_wheels(monkeypatch):
    monkeypatch.setattr(robot, "ALPHA", 0.0)
    rng = np.random.default_rng(0)
    wheels = np.column_stack([rng.uniform(0.0, 0.4, 40), rng.normal(scale=0.5, size=40)])
    wheels[::7, 0] = 0.0  # it turns on the spot
    poses = robot.odometry(wheels)[::3]
    state = [*poses[0, :2], np.cos(poses[0, 2]), np.sin(poses[0, 2])]
    z = np.array([state, state])
    for pose, control in zip(poses[1:], robot.controls(poses)[1:], strict=True):
        z = robot.move(z, rng, control)
        expected = [*pose[:2], np.cos(pose[2]), np.sin(pose[2])]
        np.testing.assert_allclose(z, [expected, expected], atol=1e-12)


def test_odometry_spreads_more_the_longer_the_way():
    rng = np.random.default_rng(1)
    z = np.tile([0.0, 0.0, 1.0, 0.0], (500, 1))
    short, long = (robot.move(z, rng, [0.0, way, 0.0])[:, :2].std(axis=0) for way in (0.2, 0.8))
    assert np.all(long > 2.0 * short)  # in proportion: four times, up to 7 % of sampling error


def test_words_are_the_nearest_patches():
    rng = np.random.default_rng(2)
    frames = Drive.simulated(12, rng).frames
    means = robot.vocabulary(frames, rng)
    words = robot.word_maps(frames, means)
    assert words.shape == (12, frames.shape[1] - 1, frames.shape[2] - 1)
    patch = frames[3, 2:4, 5:7].transpose(2, 0, 1).ravel()
    away = np.sum((means.cluster_centers_ - patch) ** 2, axis=1)
    assert words[3, 2, 5] == np.argmin(away) + 0.5


def test_plain_matrices_and_the_library_agree_on_algorithm_4():
    model, rng = kanagawa("1a"), np.random.default_rng(3)
    train, test = model.simulate(60, rng), model.simulate(5, rng)
    start = model.initial(60, rng)
    model = type(model)(lambda m, rng: start[:m], *list(vars(model).values())[1:])
    fitted = thesis.monte_carlo("KMCF (Alg. 4)", model, train, run=0)
    ridges = fitted.prior_ridge_, fitted.ridge_
    printed = thesis.as_printed(model, train, test, ridges, rng, steps=1)
    # The second step draws random numbers. Both solve with ridges of 1e-6 and more.
    np.testing.assert_allclose(fitted.filter(test.X[:1]).mean(), printed, rtol=1e-5, atol=1e-6)


def test_the_kbr_filter_learns_transitions_from_states_alone():
    model, rng = kanagawa("1b"), np.random.default_rng(4)
    train = model.simulate(40, rng)
    fitted = thesis.kbr_filter(model, train, (1e-3, 1e-4), 0, rng)
    assert len(fitted.dynamics_.source) == 39 + thesis.TRANSITIONS
    assert fitted.observations_.usable.sum() == 40  # the rest has no observations


def test_evidence_of_the_particle_filter_is_that_of_kalman():
    rng, factor, steps = np.random.default_rng(5), 0.8, 30
    model = questions.damped(factor)
    X = model.simulate(steps, rng).X
    m, P, exact = 0.0, 1.0 / (1.0 - 0.9**2), 0.0
    for t, x in enumerate(X[:, 0]):
        if t:
            m, P = factor * m, factor**2 * P + 1.0
        S = P + 1.0
        # The model's log-likelihood leaves out log(2 pi) / 2, so that this sum does, too.
        exact += -0.5 * (x - m) ** 2 / S - 0.5 * np.log(S)
        m, P = m + P / S * (x - m), P - P**2 / S
    found = [questions.log_evidence(X, model, np.random.default_rng([6, i])) for i in range(8)]
    # Mean of eight: its own standard error, and the bias of a logarithm, half the variance.
    assert abs(np.mean(found) - exact) < 4.0 * np.std(found) / np.sqrt(8) + np.var(found)


def test_a_quick_run_leaves_open_what_it_misses(capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["run.py"])
    assert report.check("bar", passed=False)
    monkeypatch.setattr(sys, "argv", ["run.py", "--full"])
    assert not report.check("bar", passed=False)
    assert report.check("bar", passed=True)
    words = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert words == ["OPEN", "FAIL", "PASS"]


def test_broken_off_tasks_go_on(tmp_path, capsys):
    saved, tasks = tmp_path / "partial.jsonl", [(1,), (2,), (3,)]
    seen = []

    def function(i):
        seen.append(i)
        return [("p", i, 0, "m", float(i))]

    first = report.compute(function, tasks[:2], 1, saved)
    assert report.compute(function, tasks, 1, saved)[:2] == first
    assert seen == [1, 2, 3]
    assert "2 of 3 tasks were done before" in capsys.readouterr().out


@pytest.mark.parametrize("runs", [3, 8])
def test_methods_are_compared_on_the_same_runs(runs, capsys):
    rows = [("p", 1, run, name, value + run) for run in range(runs)
            for name, value in (("a", 1.0), ("b", 2.0))]  # fmt: skip
    report.paired(rows, "a", "b")
    told = capsys.readouterr().out
    assert ("too few runs" in told) == (runs == 3)
    assert "better" in told


def test_one_run_has_no_error_to_compare_with(capsys):
    report.compare("label", 1.0, float("nan"), 2.0, runs=1)
    report.compare("label", 1.0, 0.1, 1.1, runs=30)
    told = capsys.readouterr().out.splitlines()
    assert "one run, no error" in told[0]
    assert "within the combined error" in told[1]
