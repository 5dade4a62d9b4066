"""Carry out a plan: call the simulator here or in worker processes, and keep what comes back."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from kernelbayes.arrays import Floats
from kernelbayes.likelihood_free.running.calling import (
    KINDS,
    Caller,
    Failed,
    Outputs,
    Seed,
    Simulator,
    Summary,
    by_key,
    inspect_simulator,
)
from kernelbayes.likelihood_free.running.journal import Journal
from kernelbayes.likelihood_free.running.nursery import undisturbed
from kernelbayes.likelihood_free.running.plan import Plan, Unit, repeats
from kernelbayes.likelihood_free.running.pool import Lost, Pool
from kernelbayes.likelihood_free.running.simulations import Simulations, why_failed
from kernelbayes.select.search import progress_bar

# Trials in a worker to find out how a simulator is called, at other parameters each: one may kill
# it. A trial makes a dozen calls or two; most simulators are far faster than their timeout.
TRIALS, TRIAL_TIMEOUTS = 2, 5.0


class SimulationError(ValueError):
    """A simulation failed and ``on_failure`` is "raise".

    Attributes
    ----------
    simulations : Simulations or None
        Those that worked before.
    """

    simulations: Simulations | None = None


def find_caller(
    simulator: Simulator,
    summary: Summary | None,
    vectorized: bool | None,
    drop: bool,
    plan: Plan,
    pool: Pool | None,
    timeout: float | None,
) -> Caller:
    """Find out how the simulator is called; in a worker, if there are workers."""
    seed, theta = Seed(plan.entropy, spawn_key=(0, 3)), plan.block(0)
    if pool is None:
        return inspect_simulator(simulator, theta, seed, summary, vectorized, drop)
    caller = inspect_simulator(simulator, theta, seed, summary, False, drop)
    if vectorized is None or (vectorized and summary is not None):
        look = partial(_batches, simulator, summary, vectorized)
        for k in range(TRIALS):
            trial = Unit(0, np.roll(theta, -KINDS * k, axis=0), seed)
            found = _answer(pool, look, trial, timeout and TRIAL_TIMEOUTS * timeout)
            if not isinstance(found, Lost):
                caller = replace(caller, vectorized=found[0], batch_summary=found[1])
                break
    elif vectorized:
        caller = replace(caller, vectorized=True)
    trial = Unit(0, theta[:1] if caller.vectorized else theta[0], Seed(plan.entropy))
    if _answer(pool, partial(repeats, caller), trial, timeout) is False:
        raise ValueError(
            "the simulator draws random numbers of its own, which processes would repeat; "
            "take them from the argument rng: simulator(theta, rng), or use n_jobs=1"
        )
    return caller


def carry_out(
    caller: Caller,
    plan: Plan,
    journal: Journal,
    pool: Pool | None,
    timeout: float | None,
    progress: bool | None,
) -> None:
    """Make the simulations that the journal does not have yet."""
    done = set(journal.rows)
    missing = plan.n - sum(i < plan.n for i in done)
    shape: tuple[int, ...] | None = None
    with progress_bar(missing, "simulate", progress) as bar:
        for unit, found in _outputs(caller, plan.units(done, caller.vectorized), pool, timeout):
            theta, found = np.atleast_2d(unit.theta), by_key(found, journal.names)
            if not caller.drop:
                shape = shape or next(
                    (r.shape for r in found.rows if not isinstance(r, Failed)), ()
                )
                _raise_if_failed(journal, unit, found, shape)
            with undisturbed():
                journal.add(unit.first, theta, found)
            bar.update(len(found.rows))


@contextmanager
def never_lost(journal: Journal, plan: Plan) -> Iterator[None]:
    """Give every exception what was simulated until then, as attribute ``simulations``."""
    try:
        yield
    except BaseException as error:
        with undisturbed(), suppress(ValueError, AttributeError):  # nothing was simulated
            found = assembled(journal, plan)
            error.simulations = found  # type: ignore[attr-defined]
            error.add_note(
                f"{found.done} of {found.requested} simulations are kept: they are the attribute "
                "`simulations` of this exception (sys.last_value.simulations in an interactive "
                "session); simulate(..., resume=simulations) continues them"
            )
        raise


def assembled(journal: Journal, plan: Plan) -> Simulations:
    """Return the simulations of a journal, with the parameters of a plan."""
    theta = plan.theta(np.array(sorted(journal.rows), dtype=int))
    return Simulations.assemble(journal, theta, plan.n, plan.names, plan.entropy)


def _batches(
    simulator: Simulator,
    summary: Summary | None,
    vectorized: bool | None,
    theta: Floats,
    seed: Seed,
) -> tuple[bool, bool]:
    """Whether a simulator and its summary take batches."""
    found = inspect_simulator(simulator, theta, seed, summary, vectorized)
    return found.vectorized, found.batch_summary


def _answer(pool: Pool, function: Callable[..., Any], unit: Unit, timeout: float | None) -> Any:
    """Answer of a worker to one call, or Lost."""
    tasks = deque([unit])
    ((_, found),) = pool.run(function, lambda: tasks.popleft() if tasks else None, timeout)
    return found


def _outputs(
    caller: Caller, units: Iterator[Unit], pool: Pool | None, timeout: float | None
) -> Iterator[tuple[Unit, Outputs]]:
    """Yield outputs in the order in which they come."""
    if pool is None:
        for unit in units:
            yield unit, caller(unit.theta, unit.seed)
        return
    again: deque[Unit] = deque()

    def take() -> Unit | None:
        return again.popleft() if again else next(units, None)

    for unit, found in pool.run(caller, take, timeout):
        if isinstance(found, Lost) and len(unit) > 1:
            again.extend(unit.rows())  # find the one that killed the batch
        elif isinstance(found, Lost):
            yield unit, Outputs([Failed(found.reason, found.trace)])
        else:
            yield unit, found


def _raise_if_failed(journal: Journal, unit: Unit, found: Outputs, shape: tuple[int, ...]) -> None:
    """Raise for the first failed simulation of a call; the ones before it are kept."""
    theta = np.atleast_2d(unit.theta)
    for k, row in enumerate(found.rows):
        reason = why_failed(row, shape)
        if reason is not None:
            with undisturbed():
                journal.add(unit.first, theta[:k], Outputs(found.rows[:k], found.names))
            error = SimulationError(f"the simulation at theta = {theta[k]} failed: {reason}")
            if isinstance(row, Failed) and row.trace:
                error.add_note(f"In the simulator:\n{row.trace}")
            raise error
    if found.batch is not None:
        error = SimulationError(
            f"a batch of {len(theta)} simulations from theta = {theta[0]} failed, though each "
            f"works alone: {found.batch.reason}; pass vectorized=False if the simulator takes one "
            "parameter at a time"
        )
        error.add_note(f"In the simulator:\n{found.batch.trace}")
        raise error
