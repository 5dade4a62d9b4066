"""Draws of the exact posteriors, made once and kept in ``references/``, which git ignores."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
from tasks import TASKS, Task, observation

Array = np.ndarray
FOLDER = Path(__file__).parent / "references"
DRAWS = 2000


def reference(task: Task, seed: int) -> Array:
    """Return the reference draws (2000, d) of an observation, from the file if it is there.

    A file whose observation is not the one of the seed (the task was changed) is made anew.
    """
    path = FOLDER / f"{task.name}_{seed}.npz"
    _, x_o = observation(task, seed)
    if path.exists():
        with np.load(path) as saved:
            if np.array_equal(saved["x_o"], x_o):
                return saved["draws"]
    draws = task.reference(x_o, DRAWS, _generator(seed))
    _save(path, x_o, draws)
    return draws


def _generator(seed: int) -> np.random.Generator:
    return np.random.default_rng([seed, 3])


def _save(path: Path, x_o: Array, draws: Array) -> None:
    FOLDER.mkdir(exist_ok=True)
    np.savez(path, x_o=x_o, draws=draws)


def make_all(names: list[str], seeds: range) -> bool:
    """Make all files anew; print one line per task with the worst checks of its chains."""
    good = True
    for name in names:
        task, start, found = TASKS[name], time.process_time(), []
        for seed in seeds:
            _, x_o = observation(task, seed)
            if task.checked is None:
                draws = task.reference(x_o, DRAWS, _generator(seed))
            else:
                draws, checks = task.checked(x_o, DRAWS, _generator(seed))
                found.append(checks)
            _save(FOLDER / f"{name}_{seed}.npz", x_o, draws)
        seconds = time.process_time() - start
        if found:
            passed = all(c.passed for c in found)
            text = (
                f"{'PASS' if passed else 'FAIL'}  chains: R-hat at most "
                f"{max(c.rhat for c in found):.4f}, memory at most "
                f"{max(c.memory for c in found):.3f}, acceptance at least "
                f"{min(c.acceptance for c in found):.2f}"
            )
            good = good and passed
        else:
            text = "exact draws"
        print(f"{name:25s} {len(seeds)} observations, {seconds:6.1f} s CPU  {text}", flush=True)
    return good
