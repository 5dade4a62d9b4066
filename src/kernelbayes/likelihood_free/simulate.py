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

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np

from kernelbayes.arrays import (
    Bools,
    Floats,
    NumericalWarning,
    Rng,
    as_array,
    as_generator,
    as_vectors,
    to_numpy,
)
from kernelbayes.likelihood_free.calling import (
    Names,
    Output,
    Outputs,
    Seed,
    Simulator,
    Summary,
    as_row,
    inspect_simulator,
    join,
)
from kernelbayes.likelihood_free.distributions import PriorLike
from kernelbayes.likelihood_free.prior import Prior
from kernelbayes.likelihood_free.workers import BLOCK, Run, parameter_blocks
from kernelbayes.points import PointsLike, column_names
from kernelbayes.select.search import progress_bar


@dataclass(frozen=True, eq=False, repr=False)
class Simulations:
    """Parameters and what the simulator made of them.

    Attributes
    ----------
    theta : array
        Parameters (n, d) of the simulations that worked.
    x : array
        Their outputs (n, ...).
    ok : array of bool
        Which of all simulations done worked, in order.
    requested : int
        How many were asked for.
    names, x_names : tuple of str or None
        Names of the parameters, and of the outputs if the simulator gives a dict.
    vectorized : bool
        Whether the simulator was called with batches.
    entropy : tuple of int
        What the random numbers were made from: enough to continue.
    reason : str or None
        Why the first of the failed simulations failed.
    """

    theta: Floats
    x: Floats
    ok: Bools
    requested: int
    names: Names = None
    x_names: Names = None
    vectorized: bool = False
    entropy: tuple[int, ...] = ()
    reason: str | None = None

    @classmethod
    def of(
        cls,
        theta: PointsLike,
        x: PointsLike,
        prior: Prior | None,
        summary: Summary | None = None,
        fewest: int = 1,
    ) -> Simulations:
        """Check simulations made elsewhere; those with NaN or infinite data are dropped."""
        names, x_names = column_names(theta), column_names(x)
        theta = np.asarray(to_numpy(as_vectors(theta, "theta")), dtype=np.float64)
        table = np.asarray(to_numpy(as_array(x, "x")))
        if len(theta) != len(table):
            raise ValueError(f"{len(theta)} parameters but {len(table)} data sets")
        if prior is not None:
            if prior.dim != theta.shape[1]:
                raise ValueError(
                    f"the prior has {prior.dim} parameters, theta has {theta.shape[1]}"
                )
            check_names(names, prior.names, "theta", "the prior")
            names = names or prior.names
        if summary is None:
            table = np.asarray(table, dtype=np.float64)
            table = table[:, None] if table.ndim == 1 else table
        else:
            table, x_names = np.stack([as_row(summary(row))[0] for row in table]), None
        ok = np.all(np.isfinite(table.reshape(len(table), -1)), axis=1)
        if not np.any(ok):
            raise ValueError("all simulations have NaN or infinite data")
        if np.sum(ok) < fewest:
            raise ValueError(
                f"{np.sum(ok)} simulations with finite data are too few; at least {fewest} are "
                "needed, hundreds to be of use"
            )
        if not np.all(ok):
            warnings.warn(
                f"{np.sum(~ok)} of {len(ok)} simulations have NaN or infinite data and were "
                "dropped; the prior is now the one given that the simulator works",
                NumericalWarning,
                stacklevel=3,
            )
        return cls(theta[ok], table[ok], ok, len(ok), names, x_names)

    def __len__(self) -> int:
        return len(self.theta)

    @property
    def done(self) -> int:
        """Simulations run, failed ones included."""
        return len(self.ok)

    @property
    def failed(self) -> int:
        """Simulations that gave NaN, infinite numbers or an exception; they were dropped."""
        return self.done - len(self.theta)

    @property
    def complete(self) -> bool:
        """Whether all simulations asked for were run; if not, continue with ``resume=``."""
        return self.done >= self.requested

    def __repr__(self) -> str:
        failed = f", {self.failed} failed" if self.failed else ""
        rest = "" if self.complete else ", interrupted"
        return (
            f"Simulations({self.done} of {self.requested}{failed}{rest}: "
            f"theta {self.theta.shape}, x {self.x.shape})"
        )


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
    progress: bool | None = None,
    resume: Simulations | None = None,
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
        Processes; -1 for as many as there are cores.
    summary : callable, optional
        ``summary(x)`` of one simulation's output, or of a batch, instead of the output itself.
    vectorized : bool, optional
        Whether the simulator takes batches. Found out by a few calls unless given.
    on_failure : "drop" or "raise"
        What to do with simulations that give NaN or infinite numbers, or raise.
    progress : bool, optional
        Show a progress bar; by default when a person is watching.
    resume : Simulations, optional
        Continue these, made with the same simulator and prior; also to a larger number. ``rng``
        is not used then.

    Returns
    -------
    Simulations
        Interrupted by the keyboard, what was simulated so far, with ``complete`` False.

    Notes
    -----
    Dropping failed simulations changes the prior to the one given that the simulator works.
    """
    if on_failure not in ("drop", "raise"):
        raise ValueError(f"on_failure must be 'drop' or 'raise', got {on_failure!r}")
    if n_jobs == 0:
        raise ValueError("n_jobs must be a number of processes, or -1 for one on each core")
    if resume is None:
        entropy = tuple(int(word) for word in as_generator(rng).integers(2**32, size=4))
    else:
        entropy = resume.entropy
        vectorized = resume.vectorized if vectorized is None else vectorized
    block, n, names = parameter_blocks(prior, n_simulations, entropy)
    caller = inspect_simulator(
        simulator,
        block(0),
        Seed(entropy, spawn_key=(0, 3)),
        summary=summary,
        vectorized=vectorized,
        drop=on_failure == "drop",
    )
    start = 0 if resume is None else resume.done
    if caller.vectorized and n > start:
        start -= start % BLOCK  # a batch that was cut short is simulated again in full
    run = Run(caller, block, entropy, n, n_jobs)
    if start < n and n_jobs != 1:
        run.check_streams()
    outputs, interrupted = _collect(run, start, progress)
    result = _assemble(run, outputs, start, resume, names)
    if interrupted:
        warnings.warn(
            f"interrupted after {result.done} of {n} simulations, which are kept; continue with "
            "simulate(..., resume=simulations)",
            stacklevel=2,
        )
    elif result.failed:
        warnings.warn(
            f"{result.failed} of {result.done} simulations failed and were dropped (the first: "
            f"{result.reason}); the prior is now the one given that the simulator works",
            NumericalWarning,
            stacklevel=2,
        )
    return result


def as_observation(x: Output, summary: Summary | None, like: Simulations) -> Floats:
    """Observed data in the form of the simulations' rows, x.shape[1:].

    ``summary`` is applied to it as to one simulation. A dict is put in the order of the
    simulations' names.
    """
    value = x
    if summary is not None:
        try:
            value = summary(x)
            row = as_row(value)[0]
        except Exception:  # a summary for batches only
            row = np.empty(0)
        if row.shape != like.x.shape[1:]:
            value = summary(np.asarray(to_numpy(x))[None])
    row, names = as_row(value)
    if names is not None and like.x_names is not None:
        if set(names) != set(like.x_names):
            raise ValueError(f"x_observed has {names}, the simulations have {like.x_names}")
        row = row[[names.index(name) for name in like.x_names]]
    if row.shape == (1, *like.x.shape[1:]):
        row = row[0]
    if row.shape != like.x.shape[1:]:
        raise ValueError(
            f"x_observed has shape {row.shape}, one simulation has shape {like.x.shape[1:]}"
        )
    if not np.all(np.isfinite(row)):
        raise ValueError("x_observed has NaN or infinite entries")
    return row


def check_names(names: Names, expected: Names, what: str, whose: str) -> None:
    """Raise if columns have names, but not those of the others in the same order."""
    if names is not None and expected is not None and tuple(names) != tuple(expected):
        raise ValueError(
            f"the columns of {what} are {tuple(names)}, those of {whose} {tuple(expected)}; "
            "put them in the same order"
        )


def _collect(run: Run, start: int, progress: bool | None) -> tuple[Outputs, bool]:
    """All outputs, or those until the keyboard interrupts."""
    parts: list[Outputs] = []
    with progress_bar(run.n - start, "simulate", progress) as bar:
        try:
            for part in run.outputs(start):
                parts.append(part)
                bar.update(len(part.rows))
        except KeyboardInterrupt:
            if not parts and start == 0:
                raise
            return join(parts), True
    return join(parts), False


def _assemble(
    run: Run, outputs: Outputs, start: int, resume: Simulations | None, names: Names
) -> Simulations:
    """Put together the simulations that worked, after those of an earlier run."""
    kept = 0 if resume is None else int(resume.ok[:start].sum())
    shape = resume.x.shape[1:] if resume is not None and kept else _shape(outputs.rows)
    reasons = [_reason(row, shape) for row in outputs.rows]
    ok = np.array([reason is None for reason in reasons], dtype=bool)
    theta = run.theta(start, start + len(ok))
    reason = next((r for r in reasons if r is not None), None)
    if reason is not None and not run.caller.drop:
        bad = theta[int(np.argmin(ok))]
        raise ValueError(f"the simulation at theta = {bad} failed: {reason}")
    good = [row for row, fine in zip(outputs.rows, ok, strict=True) if fine]
    x = np.array(good) if good else np.empty((0, *shape))
    theta, x_names = theta[ok], outputs.names
    if resume is not None:
        theta = np.concatenate([resume.theta[:kept], theta])
        x = np.concatenate([resume.x[:kept], x]) if kept else x
        ok = np.concatenate([resume.ok[:start], ok])
        reason, x_names = resume.reason or reason, x_names or resume.x_names
    if not len(theta):
        raise ValueError(f"all {len(ok)} simulations failed; the first: {reason}")
    how = run.caller.vectorized, run.entropy, reason
    return Simulations(theta, x, ok, max(run.n, len(ok)), names, x_names, *how)


def _shape(rows: list[Floats | str]) -> tuple[int, ...]:
    """Shape of one output: that of the first with finite numbers."""
    arrays = [row for row in rows if not isinstance(row, str)]
    finite = [row for row in arrays if np.all(np.isfinite(row))]
    return (finite or arrays)[0].shape if arrays else (1,)


def _reason(row: Floats | str, shape: tuple[int, ...]) -> str | None:
    """Why a simulation counts as failed, or None."""
    if isinstance(row, str):
        return row
    if np.all(np.isfinite(row)) and row.shape == shape:
        return None
    if row.shape == shape or np.all(np.isnan(row)):
        return "NaN or infinite output"
    raise ValueError(
        f"simulations have different shapes, {shape} and {row.shape}; cut or pad them to one "
        "shape, or give a summary of fixed length"
    )
