"""The rows of the table: ours, rejection ABC with and without adjustment, and the prior.

How many simulations rejection ABC keeps was chosen for each task, budget and variant: the number in
``KEPT`` with the smallest mean C2ST on development observations (``run.py --tune``), with nearest
neighbours as the classifier to be quick; it is read from ``kept.json``. The benchmark's code keeps
the best 100.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
from c2st import c2st, mmd2
from references import reference
from sklearn.neighbors import KNeighborsClassifier
from tasks import TASKS, Task, draw_prior, observation, simulations

import kernelbayes as kb

Array = np.ndarray
CHOSEN = Path(__file__).parent / "kept.json"
KEPT = {1000: (30, 100, 300), 10_000: (30, 100, 300, 1000)}
DRAWS = 1000  # per side of C2ST and MMD
OURS, ABC, ADJUSTED, PRIOR = "ours", "rejection ABC", "rejection ABC, adjusted", "prior"
Row = tuple[str, int, int, str, float, float, float]


def ours(task: Task, theta: Array, x: Array, x_o: Array) -> Array:
    """Draw from the automatic kernel posterior; iid rows are handed over as such."""
    if task.block is not None:
        x, x_o = x.reshape(-1, *task.block), x_o.reshape(task.block)
    posterior = kb.LikelihoodFree(prior=task.prior, rng=0).fit(theta, x).posterior(x_o)
    return np.asarray(posterior.sample(DRAWS, rng=1))


def abc(task: Task, theta: Array, x: Array, x_o: Array, kept: int, adjust: bool) -> Array:
    """Draw from the smoothed posterior of rejection ABC."""
    fraction = kept / len(theta)
    posterior = kb.reject_abc(theta, x, x_o, fraction=fraction, adjust=adjust, prior=task.prior)
    return np.asarray(posterior.sample(DRAWS, rng=1))


def chosen(name: str, n: int, adjust: bool) -> int:
    """Return the number of simulations to keep, as chosen on development observations."""
    return int(json.loads(CHOSEN.read_text())[f"{name} {n} {adjust}"])


def scored(name: str, n: int, seed: int, method: str, draw: Callable[[], Array]) -> Row:
    """One row: task, simulations, seed, method, C2ST, squared MMD, CPU seconds."""
    start = time.process_time()
    draws = draw()
    seconds = time.process_time() - start
    truth = reference(TASKS[name], seed)[:DRAWS]
    return name, n, seed, method, c2st(truth, draws), mmd2(truth, draws), seconds


def one_job(name: str, n: int, seed: int) -> list[Row]:
    """All methods on one observation with its own simulations; n = 0 stands for the prior."""
    task = TASKS[name]
    if n == 0:
        rng = np.random.default_rng([seed, 5])
        return [scored(name, n, seed, PRIOR, partial(draw_prior, task, DRAWS, rng))]
    _, x_o = observation(task, seed)
    theta, x = simulations(task, n, seed)
    rows = [scored(name, n, seed, OURS, partial(ours, task, theta, x, x_o))]
    for method, adjust in ((ABC, False), (ADJUSTED, True)):
        draw = partial(abc, task, theta, x, x_o, chosen(name, n, adjust), adjust)
        rows.append(scored(name, n, seed, method, draw))
    return rows


def tuning_job(name: str, n: int, seed: int, adjust: bool) -> list[tuple[str, int, float]]:
    """Rejection ABC with every number kept, on one development observation: key, kept, C2ST."""
    task = TASKS[name]
    _, x_o = observation(task, seed)
    theta, x = simulations(task, n, seed)
    truth = reference(task, seed)[:DRAWS]
    # A regression on dim_x columns needs more rows than that.
    numbers = [kept for kept in KEPT[n] if not adjust or kept >= 2.5 * task.dim_x]
    draws = [abc(task, theta, x, x_o, kept, adjust) for kept in numbers]
    scores = [c2st(truth, d, KNeighborsClassifier(40)) for d in draws]
    return [(f"{name} {n} {adjust}", *pair) for pair in zip(numbers, scores, strict=True)]
