"""Run a simulator many times: one by one or in batches, in parallel, interrupted and resumed.

Random numbers belong to the number of a simulation, not to the process that runs it: parameters
come in blocks of 500, each with a seed of its own, and so does the noise (of a block for a
simulator that takes batches, of each simulation otherwise). The same generator therefore gives the
same simulations whatever ``n_jobs``, a resumed run equals an uninterrupted one, and a longer run
starts with the shorter one.

>>> from scipy import stats
>>> from kernelbayes.likelihood_free.simulate import simulate
>>> runs = simulate(lambda theta, rng: rng.normal(theta), stats.norm(0, 2), 1000, rng=0)
>>> runs
Simulations(1000 of 1000: theta (1000, 1), x (1000, 1))
"""

import os
from collections import deque
from collections.abc import Callable, Container, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import cache
from numbers import Real

import numpy as np

from kernelbayes.arrays import as_generator, as_vectors, is_frame, to_numpy, warn
from kernelbayes.likelihood_free.distributions import PriorLike
from kernelbayes.likelihood_free.prior import as_prior
from kernelbayes.likelihood_free.running.calling import (
    Caller,
    Failed,
    Outputs,
    Seed,
    Simulator,
    Summary,
    Unit,
    by_key,
)
from kernelbayes.likelihood_free.running.journal import (
    BLOCK,
    Journal,
    Keep,
    open_journal,
    undisturbed,
)
from kernelbayes.likelihood_free.running.pool import Lost, Pool
from kernelbayes.likelihood_free.running.simulations import Simulations, as_observation, why_failed
from kernelbayes.likelihood_free.running.trial import find_caller
from kernelbayes.points import column_names, integer, option
from kernelbayes.select.search import backend, mapped, progress_bar
from kernelbayes.types import Floats, Ints, Names, Rng

__all__ = ["SimulationError", "Simulations", "as_observation", "simulate"]


class SimulationError(ValueError):
    """A simulation failed and ``on_failure`` is "raise".

    Attributes
    ----------
    simulations : Simulations or None
        Those that worked before.
    """

    simulations: Simulations | None = None


def simulate(
    simulator: Simulator,
    prior: PriorLike,
    n_simulations: int | None = None,
    *,
    rng: Rng = None,
    n_jobs: int = 1,
    summary: Summary | None = None,
    vectorized: bool | None = None,
    on_failure: str = "drop",
    timeout: float | None = None,
    progress: bool | None = None,
    resume: Simulations | None = None,
    keep: str | os.PathLike[str] | Keep | None = None,
    on_interrupt: str = "return",
) -> Simulations:
    """Draw parameters from a prior and simulate at each of them.

    Parameters
    ----------
    simulator : callable
        ``simulator(theta, rng)``, or ``simulator(theta)``, of one parameter (d,) or a batch
        (b, d). Returns a number, an array or a dict of them (for a batch, with b rows).
    prior : see :func:`~kernelbayes.likelihood_free.prior.as_prior`
        Or an array (n, d) of parameters, to simulate once at each of them.
    n_simulations : int
        How many; optional for an array.
    rng : int, Generator or None
        The same one gives the same simulations, whatever ``n_jobs``. A simulator without ``rng``
        is reproducible if it draws from NumPy's global stream, which is left as it was.
    n_jobs : int
        Processes; -1 for as many as there are cores. With 1 and no timeout, simulations are made
        here, or by the backend of joblib that ``joblib.parallel_config`` names (Dask, Ray, ...).
    summary : callable, optional
        ``summary(x)`` of one simulation's output, or of a batch, instead of the output itself.
    vectorized : bool, optional
        Whether the simulator takes batches. Found out by a few calls unless given.
    on_failure : "drop" or "raise"
        What to do with simulations that give NaN, infinite numbers or an output of an odd shape,
        raise, call ``sys.exit``, kill their process (with ``n_jobs`` or ``timeout``) or take too
        long: drop them with a warning, or raise a :class:`SimulationError` at the first.
    timeout : float, optional
        Seconds for each call of the simulator, which then runs in a process of its own. A batch
        that takes longer is simulated one by one, each within that time.
    progress : bool, optional
        Show a progress bar; by default when a person is watching.
    resume : Simulations, optional
        Continue these, made with the same simulator and prior; also to a larger number. ``rng``
        is not used then.
    keep : path, optional
        A file that gets each simulation as soon as it is done. If it exists, it is continued: after
        a crash, call again with the same arguments. A file of another problem or another ``rng``
        is refused.
    on_interrupt : "return" or "raise"
        Interrupted by the keyboard: return what was simulated so far, with a warning and
        ``complete`` False, or raise KeyboardInterrupt with it as attribute ``simulations``.

    Returns
    -------
    Simulations

    Notes
    -----
    Dropping failed simulations changes the prior to the one given that the simulator works.
    Whatever is raised while simulations are made has an attribute ``simulations`` with those that
    are done (in an interactive session afterwards: ``sys.last_value.simulations``).
    """
    _check(on_failure, on_interrupt, n_jobs, timeout)
    if keep is not None and resume is not None:
        raise ValueError("give keep or resume, not both: the file has what it has")
    if keep is None:
        journal = Journal() if resume is None else resume.journal()
    else:
        journal = open_journal(Keep.of(keep))
    try:
        # The file's random numbers, unless an rng is given: then the two are compared.
        entropy = journal.entropy if rng is None or resume is not None else None
        if entropy is None:
            entropy = tuple(int(word) for word in as_generator(rng).integers(2**32, size=4))
        plan = plan_of(prior, n_simulations, entropy)
        journal.check(plan)
        vectorized = journal.vectorized if vectorized is None else vectorized
        with never_lost(journal, plan):
            with nullcontext() if n_jobs == 1 and timeout is None else Pool(n_jobs) as pool:
                how = summary, vectorized, on_failure == "drop", pool, timeout
                caller = find_caller(simulator, plan.block(0), entropy, *how)
                journal.begin(plan, caller.vectorized)
                carry_out(caller, plan, journal, pool, timeout, progress)
            result = assembled(journal, plan)
    except KeyboardInterrupt as stop:
        found: Simulations | None = getattr(stop, "simulations", None)
        if found is None or on_interrupt == "raise":
            raise
        warn(
            f"interrupted after {found.done} of {found.requested} simulations, which are kept; "
            "continue with simulate(..., resume=simulations)",
            UserWarning,
        )
        return found
    finally:
        journal.close()
    if result.failed:
        _report(result, plan, on_failure)
    return result


def _check(on_failure: str, on_interrupt: str, n_jobs: int, timeout: float | None) -> None:
    """Refuse options that mean nothing."""
    option(on_failure, "on_failure", ("drop", "raise"))
    option(on_interrupt, "on_interrupt", ("return", "raise"))
    if isinstance(n_jobs, bool) or not isinstance(n_jobs, int | np.integer) or n_jobs == 0:
        raise ValueError(
            f"n_jobs must be a number of processes, or -1 for one on each core, got {n_jobs!r}"
        )
    if timeout is not None and not (
        isinstance(timeout, Real) and not isinstance(timeout, bool) and 0 < timeout < np.inf
    ):
        raise ValueError(f"timeout must be a positive number of seconds, got {timeout!r}")


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
            journal.add(unit.first, theta, found)
            bar.update(len(found.rows))


def _outputs(
    caller: Caller, units: Iterator[Unit], pool: Pool | None, timeout: float | None
) -> Iterator[tuple[Unit, Outputs]]:
    """Yield outputs in the order in which they come."""
    if pool is None:
        # NumPy's global stream, which some draw from, is one for all threads.
        here = caller.rng_argument is None and getattr(backend(), "uses_threads", False)
        yield from (map if here else mapped)(caller.outputs, units)
        return
    again: deque[Unit] = deque()
    for unit, found in pool.run(
        caller, lambda: again.popleft() if again else next(units, None), timeout
    ):
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


def _report(result: Simulations, plan: Plan, on_failure: str) -> None:
    """Say how many simulations failed, and where the first did."""
    where = plan.theta(result.numbers[~result.ok][:1])[0]
    first = f"{result.reason}, at theta = {where}"
    if on_failure == "raise":  # failed before, in a run that is continued
        raise SimulationError(f"{result.failed} of {result.done} simulations failed: {first}")
    warn(
        f"{result.failed} of {result.done} simulations failed and were dropped (the first: "
        f"{first}); the prior is now the one given that the simulator works"
    )
