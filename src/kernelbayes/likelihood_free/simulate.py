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
from contextlib import nullcontext
from numbers import Real

import numpy as np

from kernelbayes.arrays import as_generator, warn
from kernelbayes.likelihood_free.distributions import PriorLike
from kernelbayes.likelihood_free.running import run
from kernelbayes.likelihood_free.running.calling import Simulator, Summary
from kernelbayes.likelihood_free.running.journal import Journal, Keep, open_journal
from kernelbayes.likelihood_free.running.pool import Pool
from kernelbayes.likelihood_free.running.run import Plan, SimulationError
from kernelbayes.likelihood_free.running.simulations import Simulations, as_observation
from kernelbayes.points import option
from kernelbayes.types import Rng

__all__ = ["SimulationError", "Simulations", "as_observation", "simulate"]


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
        plan = run.plan_of(prior, n_simulations, entropy)
        journal.check(plan)
        if vectorized is None:
            vectorized = journal.vectorized
        with run.never_lost(journal, plan):
            with nullcontext() if n_jobs == 1 and timeout is None else Pool(n_jobs) as pool:
                drop = on_failure == "drop"
                caller = run.find_caller(simulator, summary, vectorized, drop, plan, pool, timeout)
                journal.begin(plan, caller.vectorized)
                run.carry_out(caller, plan, journal, pool, timeout, progress)
            result = run.assembled(journal, plan)
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
    if on_interrupt not in ("return", "raise"):
        raise ValueError(f"on_interrupt must be 'return' or 'raise', got {on_interrupt!r}")
    if isinstance(n_jobs, bool) or not isinstance(n_jobs, int | np.integer) or n_jobs == 0:
        raise ValueError(
            f"n_jobs must be a number of processes, or -1 for one on each core, got {n_jobs!r}"
        )
    if timeout is not None and not (
        isinstance(timeout, Real) and not isinstance(timeout, bool) and 0 < timeout < np.inf
    ):
        raise ValueError(f"timeout must be a positive number of seconds, got {timeout!r}")


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
