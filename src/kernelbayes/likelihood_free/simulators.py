"""Running a simulator many times: one by one or in batches, in parallel, stopped and continued.

Random numbers are tied to the number of a simulation, not to the process that runs it: parameters
come in blocks of 500, each with a seed of its own, and so does the noise (of a block for a
simulator that takes batches, of each simulation otherwise). The same generator therefore gives the
same simulations whatever ``n_jobs``, an interrupted run can be continued to exactly what it would
have been, and a longer run starts with the shorter one.

>>> from scipy import stats
>>> from kernelbayes.likelihood_free.simulators import simulate
>>> runs = simulate(lambda theta, rng: rng.normal(theta), stats.norm(0, 2), 1000, rng=0)
>>> runs
Simulations(1000 of 1000: theta (1000, 1), x (1000, 1))
>>> bool((simulate(lambda theta, rng: rng.normal(theta), stats.norm(0, 2), 10, rng=0).theta
...     == runs.theta[:10]).all())
True
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernelbayes.arrays import NumericalWarning, Rng, as_generator, to_numpy
from kernelbayes.likelihood_free.calling import (
    Floats,
    Names,
    Outputs,
    Seed,
    as_row,
    inspect_simulator,
    join,
)
from kernelbayes.likelihood_free.priors import as_prior
from kernelbayes.likelihood_free.running import BLOCK, Run, Source
from kernelbayes.points import as_vectors, is_frame
from kernelbayes.select import progress_bar


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
    ok: Floats
    requested: int
    names: Names = None
    x_names: Names = None
    vectorized: bool = False
    entropy: tuple[int, ...] = ()
    reason: str | None = None

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
    simulator: Callable[..., Any],
    prior: Any,
    n: int | None = None,
    *,
    rng: Rng = None,
    n_jobs: int = 1,
    summary: Callable[[Any], Any] | None = None,
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
    prior : see :func:`~kernelbayes.likelihood_free.priors.as_prior`
        Or an array (n, d) of parameters, to simulate once at each of them.
    n : int
        How many; optional for an array.
    rng : int, Generator or None
        The same one gives the same simulations, whatever ``n_jobs``. A simulator without ``rng``
        is reproducible if it draws from NumPy's global stream, which is left as it was.
    n_jobs : int
        Processes; -1 for as many as there are cores.
    summary : callable, optional
        ``summary(x)`` of one simulation's output, or of a batch, instead of the output itself.
    vectorized : bool, optional
        Whether the simulator takes batches. Found out by trying unless given: a few calls.
    on_failure : "drop" or "raise"
        What to do with simulations that give NaN or infinite numbers, or raise.
    progress : bool, optional
        Show a progress bar; by default when a person is watching.
    resume : Simulations, optional
        Continue these, made with the same simulator and prior; also to a larger ``n``. ``rng`` is
        not used then.

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
    source, n = _parameters(prior, n)
    entropy = resume.entropy if resume is not None else _entropy(rng)
    if resume is not None and vectorized is None:
        vectorized = resume.vectorized
    caller = inspect_simulator(
        simulator,
        source.block(0, entropy),
        Seed(entropy, spawn_key=(0, 3)),
        summary=summary,
        vectorized=vectorized,
        drop=on_failure == "drop",
    )
    start = 0 if resume is None else resume.done
    if caller.vectorized and n > start:
        start -= start % BLOCK  # a batch that was cut short by n is done again in full
    if n_jobs == 0:
        raise ValueError("n_jobs must be a number of processes, or -1 for one on each core")
    run = Run(caller, source, entropy, n, n_jobs)
    if start < n and n_jobs != 1:
        run.check_streams()
    outputs, interrupted = _collect(run, start, progress)
    result = _assemble(run, outputs, start, resume, on_failure)
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


def as_observation(x: Any, summary: Callable[[Any], Any] | None, like: Simulations) -> Floats:
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


def _collect(run: Run, start: int, progress: bool | None) -> tuple[Outputs, bool]:
    """All outputs, or those until the keyboard interrupts."""
    parts: list[Outputs] = []
    interrupted = False
    with progress_bar(run.n - start, "simulate", progress) as bar:
        try:
            for part in run.outputs(start):
                parts.append(part)
                bar.update(len(part.rows))
        except KeyboardInterrupt:
            if not parts and start == 0:
                raise
            interrupted = True
    return join(parts), interrupted


def _assemble(
    run: Run, outputs: Outputs, start: int, resume: Simulations | None, on_failure: str
) -> Simulations:
    """Put together the simulations that worked, after those of an earlier run."""
    kept = 0 if resume is None else int(resume.ok[:start].sum())
    shape = resume.x.shape[1:] if resume is not None and kept else _shape(outputs.rows)
    reasons = [_reason(row, shape) for row in outputs.rows]
    ok = np.array([reason is None for reason in reasons], dtype=bool)
    count = len(outputs.rows)
    theta = run.theta(start, start + count)
    reason = next((r for r in reasons if r is not None), None)
    if reason is not None and on_failure == "raise":
        bad = theta[int(np.argmin(ok))]
        raise ValueError(f"the simulation at theta = {bad} failed: {reason}")
    good = [row for row, fine in zip(outputs.rows, ok, strict=True) if fine]
    x = np.array(good) if good else np.empty((0, *shape))
    theta = theta[ok]
    if resume is not None:
        theta = np.concatenate([resume.theta[:kept], theta])
        x = np.concatenate([resume.x[:kept], x]) if kept else x
        ok = np.concatenate([resume.ok[:start], ok])
        reason = resume.reason or reason
    if not len(theta):
        raise ValueError(f"all {len(ok)} simulations failed; the first: {reason}")
    names = outputs.names if resume is None else outputs.names or resume.x_names
    requested = max(run.n, len(ok))
    return Simulations(
        theta, x, ok, requested, run.source.names, names, run.caller.vectorized, run.entropy, reason
    )


def _shape(rows: list[Floats | str]) -> tuple[int, ...]:
    """Shape of one output: that of the first with finite numbers."""
    arrays = [row for row in rows if not isinstance(row, str)]
    finite = [row for row in arrays if np.all(np.isfinite(row))]
    shape: tuple[int, ...] = (finite or arrays)[0].shape if arrays else (1,)
    return shape


def _reason(row: Floats | str, shape: tuple[int, ...]) -> str | None:
    """Why a simulation counts as failed, or None."""
    if isinstance(row, str):
        return row
    if row.shape == shape:
        return None if np.all(np.isfinite(row)) else "NaN or infinite output"
    if np.all(np.isnan(row)):
        return "NaN or infinite output"
    raise ValueError(
        f"simulations have different shapes, {shape} and {row.shape}; cut or pad them to one "
        "shape, or give a summary of fixed length"
    )


def _parameters(prior: Any, n: int | None) -> tuple[Source, int]:
    """Source of parameters and their number."""
    if isinstance(prior, np.ndarray) or is_frame(prior):
        theta = np.asarray(to_numpy(as_vectors(prior, "theta")), dtype=np.float64)
        n = len(theta) if n is None else n
        if n > len(theta):
            raise ValueError(
                f"{n} simulations at {len(theta)} parameters; to draw them with replacement, give "
                "as_prior(theta)"
            )
        source = Source(None, theta, None)
    else:
        read = as_prior(prior)
        source = Source(read, None, read.names)
    if n is None:
        raise ValueError("n, the number of simulations, is missing")
    if n < 1:
        raise ValueError(f"the number of simulations must be positive, got {n}")
    return source, int(n)


def _entropy(rng: Rng) -> tuple[int, ...]:
    return tuple(int(word) for word in as_generator(rng).integers(2**32, size=4))
