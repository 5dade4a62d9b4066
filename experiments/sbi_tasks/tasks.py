"""The ten tasks of Lueckmann et al. (2021), "Benchmarking simulation-based inference".

A task is a prior, a simulator and a way to draw from the exact posterior. The models are in
``exact`` (closed forms), ``glm`` and ``odes``; this file only names them.

    task = TASKS["two_moons"]
    theta_o, x_o = observation(task, seed=1000)
    theta = draw_prior(task, 1000, np.random.default_rng(0))
    x = task.simulator(theta, np.random.default_rng(1))
    truth = task.reference(x_o, 1000, np.random.default_rng(2))
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import exact
import glm
import numpy as np
import odes
from scipy import stats
from smc import Checks

Array = np.ndarray
Rng = np.random.Generator
Prior = list[Any] | Callable[[int, Rng], Array]


@dataclass(frozen=True)
class Task:
    """One benchmark problem.

    Parameters
    ----------
    name : str
    dim_theta, dim_x : int
    prior : list of frozen scipy.stats distributions, or callable (n, rng) -> (n, dim_theta)
    simulator : callable (theta (n, dim_theta), rng) -> (n, dim_x)
    log_likelihood : callable (theta (n, dim_theta), x_o (dim_x,)) -> (n,), or None
    reference : callable (x_o (dim_x,), m, rng) -> (m, dim_theta), draws of the posterior
    block : (rows, columns) when x is a set of iid rows, laid out flat
    checked : as ``reference`` where that is MCMC, with its checks; otherwise None
    """

    name: str
    dim_theta: int
    dim_x: int
    prior: Prior
    simulator: Callable[[Array, Rng], Array]
    log_likelihood: Callable[[Array, Array], Array] | None
    reference: Callable[[Array, int, Rng], Array]
    block: tuple[int, int] | None = None
    checked: Callable[[Array, int, Rng], tuple[Array, Checks]] | None = None


def draw_prior(task: Task, n: int, rng: Rng) -> Array:
    """Draw n parameters from the prior, (n, dim_theta)."""
    if callable(task.prior):
        return task.prior(n, rng)
    return np.column_stack([part.rvs(n, random_state=rng) for part in task.prior])


def observation(task: Task, seed: int) -> tuple[Array, Array]:
    """Parameter (dim_theta,) and observation (dim_x,) of a seed.

    Seeds 0 to 9 are for the final table, seeds from 1000 on for developing a method.
    """
    rng = np.random.default_rng([seed, 20210413])
    theta = draw_prior(task, 1, rng)
    return theta[0], task.simulator(theta, rng)[0]


def simulations(task: Task, n: int, seed: int) -> tuple[Array, Array]:
    """Draw n pairs (theta, x) from prior and simulator."""
    rng = np.random.default_rng([seed, n, 7])
    theta = draw_prior(task, n, rng)
    return theta, task.simulator(theta, rng)


def _uniform(bound: float, dim: int) -> list[Any]:
    return [stats.uniform(-bound, 2 * bound) for _ in range(dim)]


def _drop_checks(
    checked: Callable[[Array, int, Rng], tuple[Array, Checks]],
) -> Callable[[Array, int, Rng], Array]:
    """Only the draws of a checked reference, or an error when its chains did not mix."""

    def reference(x_o: Array, m: int, rng: Rng) -> Array:
        draws, checks = checked(x_o, m, rng)
        if not checks.passed:
            raise RuntimeError(f"reference posterior did not converge: {checks}")
        return draws

    return reference


_ALL = [
    Task(
        "two_moons",
        2,
        2,
        _uniform(1.0, 2),
        exact.two_moons_simulator,
        exact.two_moons_log_likelihood,
        exact.two_moons_reference,
    ),
    Task(
        "gaussian_linear",
        10,
        10,
        [stats.norm(0.0, np.sqrt(exact.VARIANCE)) for _ in range(10)],
        exact.gaussian_simulator,
        exact.gaussian_log_likelihood,
        exact.gaussian_reference,
    ),
    Task(
        "gaussian_linear_uniform",
        10,
        10,
        _uniform(1.0, 10),
        exact.gaussian_simulator,
        exact.gaussian_log_likelihood,
        exact.gaussian_uniform_reference,
    ),
    Task(
        "gaussian_mixture",
        2,
        2,
        _uniform(10.0, 2),
        exact.mixture_simulator,
        exact.mixture_log_likelihood,
        exact.mixture_reference,
    ),
    Task(
        "slcp",
        5,
        8,
        _uniform(exact.SLCP_BOUND, 5),
        exact.slcp_simulator,
        exact.slcp_log_likelihood,
        exact.slcp_reference,
        block=(4, 2),
    ),
    Task(
        "slcp_distractors",
        5,
        100,
        _uniform(exact.SLCP_BOUND, 5),
        exact.slcp_distractors_simulator,
        exact.slcp_distractors_log_likelihood,
        exact.slcp_distractors_reference,
    ),
    Task(
        "bernoulli_glm",
        10,
        10,
        glm.prior,
        glm.simulator,
        glm.log_likelihood,
        _drop_checks(glm.checked_reference),
        checked=glm.checked_reference,
    ),
    Task(
        "bernoulli_glm_raw",
        10,
        100,
        glm.prior,
        glm.raw_simulator,
        glm.raw_log_likelihood,
        _drop_checks(glm.raw_checked_reference),
        checked=glm.raw_checked_reference,
    ),
    Task(
        "sir",
        2,
        10,
        odes.SIR_PRIOR,
        odes.sir_simulator,
        odes.sir_log_likelihood,
        _drop_checks(odes.sir_checked_reference),
        checked=odes.sir_checked_reference,
    ),
    Task(
        "lotka_volterra",
        4,
        20,
        odes.LV_PRIOR,
        odes.lotka_simulator,
        odes.lotka_log_likelihood,
        _drop_checks(odes.lotka_checked_reference),
        checked=odes.lotka_checked_reference,
    ),
]
TASKS = {task.name: task for task in _ALL}
