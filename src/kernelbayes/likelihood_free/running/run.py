"""Plan a run and carry it out: call the simulator here or in workers, and keep what comes back.

The plan says which parameters and which random numbers belong to which simulation. It depends
neither on the order in which simulations are run nor on the process that runs them.
"""

import sys
import warnings
from collections import deque
from collections.abc import Callable, Container, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any, Self

import numpy as np

from kernelbayes.arrays import as_vectors, is_frame, to_numpy
from kernelbayes.likelihood_free.distributions import PriorLike, torch_seed
from kernelbayes.likelihood_free.prior import as_prior
from kernelbayes.likelihood_free.running.calling import (
    KINDS,
    Caller,
    Failed,
    Output,
    Outputs,
    Seed,
    Simulator,
    Summary,
    by_key,
    inspect_simulator,
    one_by_one,
    rng_argument,
)
from kernelbayes.likelihood_free.running.journal import BLOCK, Journal, undisturbed
from kernelbayes.likelihood_free.running.pool import Lost, Pool
from kernelbayes.likelihood_free.running.simulations import Simulations, why_failed
from kernelbayes.points import column_names, integer
from kernelbayes.select.search import backend, mapped, progress_bar
from kernelbayes.types import Array, Floats, Ints, Names

# Trials in a worker to find out how a simulator is called, at other parameters each: one may kill
# it. A trial makes a dozen calls or two; most simulators are far faster than their timeout.
TRIALS, TRIAL_TIMEOUTS = 2, 5.0
OWN_NUMBERS = (
    "the simulator draws random numbers of its own, which processes would repeat; take them from "
    "the argument rng: simulator(theta, rng), or {}"
)


@dataclass(frozen=True, eq=False)
class Unit:
    """One call of the simulator: the number of its (first) simulation, theta (d,) or (b, d)."""

    first: int
    theta: Floats
    seed: Seed

    def __len__(self) -> int:
        return 1 if self.theta.ndim == 1 else len(self.theta)

    def rows(self) -> list[Self]:
        """Return the simulations of a batch one by one, with the random numbers they have alone."""
        parts = one_by_one(self.theta, self.seed)
        return [type(self)(self.first + k, *part) for k, part in enumerate(parts)]


@dataclass(frozen=True, eq=False)
class Plan:
    """Simulations number 0 to n - 1.

    ``block(j)`` are the parameters number 500 j to 500 j + 499.
    """

    block: Callable[[int], Floats]
    entropy: tuple[int, ...]
    n: int
    names: Names

    def units(self, done: Container[int], vectorized: bool) -> Iterator[Unit]:
        """Yield the calls to make for the simulations that are not done yet.

        A batch of which a part is missing is simulated again in full: its rows share a seed.
        """
        for j in range(-(-self.n // BLOCK)):
            numbers = range(BLOCK * j, min(BLOCK * (j + 1), self.n))
            missing = [i for i in numbers if i not in done]
            if vectorized and missing:
                seed = Seed(self.entropy, spawn_key=(j, 1))
                yield Unit(numbers[0], self.block(j)[: len(numbers)], seed)
            elif missing:
                theta = self.block(j)
                for i in missing:
                    k = i - BLOCK * j
                    yield Unit(i, theta[k], Seed(self.entropy, spawn_key=(j, 2, k)))

    def theta(self, numbers: Ints) -> Floats:
        """Parameters (k, d) of the simulations with these numbers, in ascending order."""
        blocks = np.unique(numbers // BLOCK)
        rows = np.searchsorted(blocks, numbers // BLOCK) * BLOCK + numbers % BLOCK
        full = [self.block(int(j)) for j in blocks] or [self.block(0)[:0]]
        return np.asarray(np.concatenate(full)[rows])


def repeats(caller: Caller, theta: Floats, seed: Seed) -> bool:
    """Whether the same seed gives the same output, or the simulation fails."""
    a, b = (caller(theta, Seed(seed.entropy)).rows[0] for _ in range(2))
    if isinstance(a, Failed) or isinstance(b, Failed):
        return True
    return np.array_equal(a, b, equal_nan=True)


def plan_of(prior: PriorLike, n: int | None, entropy: tuple[int, ...]) -> Plan:
    """Plan n simulations at draws of a prior, or at given parameters (an array or a frame)."""
    read = None if isinstance(prior, np.ndarray) or is_frame(prior) else as_prior(prior)
    if read is None:
        theta = np.asarray(to_numpy(as_vectors(prior, "theta")), dtype=np.float64)
        n = len(theta) if n is None else integer(n, "n_simulations")
        if n > len(theta):
            raise ValueError(
                f"{n} simulations at {len(theta)} parameters; to draw them with replacement, give "
                "as_prior(theta)"
            )
    if n is None:
        raise ValueError("n_simulations, the number of simulations, is missing")
    n = integer(n, "n_simulations")

    @cache  # drawn once: not all priors obey the seed
    def block(j: int) -> Floats:
        if read is None:
            return theta[BLOCK * j : BLOCK * (j + 1)]
        return read.sample(BLOCK, np.random.default_rng(Seed(entropy, spawn_key=(j, 0))))

    return Plan(block, entropy, n, column_names(prior) if read is None else read.names)


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
    if "torch" in sys.modules and callable(simulator) and rng_argument(simulator) is None:
        ask = partial(takes_tensors, simulator)
        found = ask(theta, seed) if pool is None else _tried(pool, ask, theta, seed, timeout)
        simulator = TorchSimulator(simulator, found is True)
    if pool is None:
        caller = inspect_simulator(simulator, theta, seed, summary, vectorized, drop)
        first = theta[:1] if caller.vectorized else theta[0]
        if backend() is not None and not repeats(caller, first, Seed(plan.entropy)):
            raise ValueError(OWN_NUMBERS.format("leave out joblib.parallel_config"))
        return caller
    caller = inspect_simulator(simulator, theta, seed, summary, False, drop)
    if vectorized is None or (vectorized and summary is not None):
        look = partial(_batches, simulator, summary, vectorized)
        found = _tried(pool, look, theta, seed, timeout)
        if not isinstance(found, Lost):
            caller = replace(caller, vectorized=found[0], batch_summary=found[1])
    elif vectorized:
        caller = replace(caller, vectorized=True)
    trial = Unit(0, theta[:1] if caller.vectorized else theta[0], Seed(plan.entropy))
    if _answer(pool, partial(repeats, caller), trial, timeout) is False:
        raise ValueError(OWN_NUMBERS.format("use n_jobs=1"))
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
                shapes = (row.shape for row in found.rows if not isinstance(row, Failed))
                shape = shape or next(shapes, ())
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


def _tried(
    pool: Pool, look: Callable[..., Any], theta: Floats, seed: Seed, timeout: float | None
) -> Any:
    """Ask a worker about the simulator at some parameters, or else at others; it may be Lost."""
    found: Any = None
    for k in range(TRIALS):
        trial = Unit(0, np.roll(theta, -KINDS * k, axis=0), seed)
        found = _answer(pool, look, trial, timeout and TRIAL_TIMEOUTS * timeout)
        if not isinstance(found, Lost):
            break
    return found


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
        # NumPy's global stream, which some draw from, is one for all threads.
        here = caller.rng_argument is None and getattr(backend(), "uses_threads", False)
        yield from (map if here else mapped)(partial(_called, caller), units)
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


def _called(caller: Caller, unit: Unit) -> tuple[Unit, Outputs]:
    return unit, caller(unit.theta, unit.seed)


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


@dataclass(frozen=True)
class TorchSimulator:
    """A simulator whose only random numbers may be those of torch's global stream.

    The stream is seeded from NumPy's, which the caller seeds, and restored afterwards: the same
    ``rng`` gives the same simulations. NumPy's does not move: a simulator that draws from it gives
    what it gives without torch. ``tensors``: whether parameters are handed over as tensors.
    """

    simulator: Simulator
    tensors: bool

    def __call__(self, theta: Floats) -> Output:
        """Simulate at theta, (d,) or (b, d)."""
        given: Array = theta
        if self.tensors:
            import torch

            given = torch.as_tensor(theta, dtype=torch.get_default_dtype())
        state = np.random.get_state()  # noqa: NPY002
        seed = int(np.random.randint(2**31))  # noqa: NPY002
        np.random.set_state(state)  # noqa: NPY002
        with torch_seed(seed):
            return self.simulator(given)


def takes_tensors(simulator: Simulator, theta: Floats, seed: Seed) -> bool:
    """Whether a simulator without ``rng`` fails at arrays theta (k, d), and not at tensors."""
    with warnings.catch_warnings(action="ignore"):
        for tensors in (False, True):
            caller = Caller(TorchSimulator(simulator, tensors), rng_argument=None)
            for some in (theta[0], theta[:2]):
                with suppress(Exception):
                    caller.raw(some, seed)
                    return tensors
    return False
