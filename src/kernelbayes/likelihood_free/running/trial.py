"""Find out how a simulator is called, by its signature and a few trial calls.

Nobody should have to say whether a simulator takes batches, so it is tried. A simulator of one
parameter may accept a batch by accident, and give all rows the same noise (``theta +
rng.normal(size=2)``) or mix them (``theta.mean()``). Such a simulator is called with one parameter
at a time: slower, never wrong. Where there are worker processes the trials are made in one of them,
since a call may hang or kill its process.
"""

import sys
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from kernelbayes.likelihood_free.running.calling import (
    Caller,
    Failed,
    Seed,
    Simulator,
    Summary,
    TorchSimulator,
    Unit,
    as_row,
    as_table,
    rng_argument,
)
from kernelbayes.likelihood_free.running.pool import Lost, Pool
from kernelbayes.select.search import backend
from kernelbayes.types import Floats

# The trial batch: three parameters, four times over. Independent binary noise of one column agrees
# by chance in all copies with probability 2^-9, and then up to CALLS single calls are compared.
COPIES, KINDS = 4, 3
CALLS = 20
# Trials in a worker to find out how a simulator is called, at other parameters each: one may kill
# it. A trial makes a dozen calls or two; most simulators are far faster than their timeout.
TRIALS, TRIAL_TIMEOUTS = 2, 5.0


def find_caller(
    simulator: Simulator,
    theta: Floats,
    entropy: tuple[int, ...],
    summary: Summary | None = None,
    vectorized: bool | None = None,
    drop: bool = True,
    pool: Pool | None = None,
    timeout: float | None = None,
) -> Caller:
    """Find out how a simulator and its summary are called, by trying parameters theta (k, d).

    ``vectorized`` skips the trial of the simulator; ``drop`` is passed on.
    """
    if not callable(simulator):
        raise TypeError(f"the simulator must be callable, got {type(simulator).__name__}")
    if summary is not None and not callable(summary):
        raise TypeError(f"the summary must be callable, got {type(summary).__name__}")
    seed, argument = Seed(entropy, spawn_key=(0, 3)), rng_argument(simulator)
    if argument is None and "torch" in sys.modules:
        tensors = _tried(pool, partial(takes_tensors, simulator), theta, seed, timeout)
        simulator = TorchSimulator(simulator, tensors is True)
    caller = Caller(simulator, summary, drop=drop, rng_argument=argument)
    if vectorized is not False:
        found = _tried(pool, partial(takes_batches, caller, vectorized), theta, seed, timeout)
        if not isinstance(found, Lost):
            caller = replace(caller, vectorized=found[0], batch_summary=found[1])
    if pool is not None or backend() is not None:
        first = theta[:1] if caller.vectorized else theta[0]
        if _asked(pool, partial(repeats, caller), first, Seed(entropy), timeout) is False:
            way = "leave out joblib.parallel_config" if pool is None else "use n_jobs=1"
            raise ValueError(
                "the simulator draws random numbers of its own, which processes would repeat; take "
                f"them from the argument rng: simulator(theta, rng), or {way}"
            )
    return caller


def _tried(
    pool: Pool | None, look: Callable[..., Any], theta: Floats, seed: Seed, timeout: float | None
) -> Any:
    """Ask ``look`` at some parameters, and at others if its process dies; it may be Lost."""
    for k in range(TRIALS):
        some, most = np.roll(theta, -KINDS * k, axis=0), timeout and TRIAL_TIMEOUTS * timeout
        found = _asked(pool, look, some, seed, most)
        if not isinstance(found, Lost):
            break
    return found


def _asked(
    pool: Pool | None, look: Callable[..., Any], theta: Floats, seed: Seed, timeout: float | None
) -> Any:
    """Call a function here or in a worker, where it may be Lost."""
    if pool is None:
        return look(theta, seed)
    calls = iter([Unit(0, theta, seed)])
    ((_, found),) = pool.run(look, lambda: next(calls, None), timeout)
    return found


def repeats(caller: Caller, theta: Floats, seed: Seed) -> bool:
    """Whether the same seed gives the same output, or the simulation fails."""
    a, b = (caller(theta, Seed(seed.entropy)).rows[0] for _ in range(2))
    if isinstance(a, Failed) or isinstance(b, Failed):
        return True
    return np.array_equal(a, b, equal_nan=True)


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


def takes_batches(
    caller: Caller, vectorized: bool | None, theta: Floats, seed: Seed
) -> tuple[bool, bool]:
    """Whether a simulator (unless that is known) and its summary take batches."""
    theta, summary = np.resize(theta, (KINDS, theta.shape[1])), caller.summary
    # caused by arguments the simulator was not written for
    with warnings.catch_warnings(action="ignore"):
        if vectorized is None:
            vectorized = _takes_batches(caller, theta, seed)
        if not vectorized or summary is None:
            return bool(vectorized), False
        return True, _summarises_batches(caller, summary, theta, seed)


def _takes_batches(caller: Caller, theta: Floats, seed: Seed) -> bool:
    """Whether the simulator, given a batch, does for each row what it does for one parameter."""
    first, *seeds = seed.spawn(1 + CALLS)
    kinds = np.tile(theta, (COPIES, 1))
    try:
        together = as_table(caller.raw(kinds, first), len(kinds), flat=False)[0]
    except Exception:
        return any(_only_batches(caller, t, s) for t, s in zip(theta, seeds, strict=False))
    try:
        alone = as_row(caller.raw(kinds[0], seeds[0]))[0]
        if alone.shape == (together.shape[1:] or (1,)):
            if _shared_noise(caller, kinds, together, seeds):
                return False
        elif alone.shape not in ((1, *together.shape[1:]), (len(theta[0]), *together.shape[1:])):
            return False  # unless it reads one parameter as a batch of one, or its length as b
    except Exception:
        return True  # it works for batches only
    mixed = _mixed(caller, kinds, together, first)
    return not mixed and not _asks_for_one_row(caller, kinds, first)


def _only_batches(caller: Caller, theta: Floats, seed: Seed) -> bool:
    """Whether one parameter (d,) fails alone but works in a batch: another one made that raise."""
    try:
        as_table(caller.raw(np.tile(theta, (COPIES, 1)), seed), COPIES)
    except Exception:
        return False
    try:
        as_row(caller.raw(theta, seed))
    except Exception:
        return True
    return False


def _shared_noise(caller: Caller, kinds: Floats, together: Floats, seeds: list[Seed]) -> bool:
    """Whether a column varies from call to call, but not among equal rows of a batch."""
    groups = together.reshape(COPIES, KINDS, -1)  # equal rows along the first axis
    same = np.all((groups == groups[0]) | np.isnan(groups), axis=(0, 1))
    if not np.any(same):
        return False
    # Columns without noise in the batch must be columns without noise at all.
    calls = (as_row(caller.raw(kinds[0], s))[0].ravel()[same] for s in seeds)
    quiet = groups[0, 0][same]  # up to rounding: matrix products depend on the size of a batch
    return any(not np.allclose(row, quiet, rtol=1e-9, atol=1e-12, equal_nan=True) for row in calls)


def _mixed(caller: Caller, kinds: Floats, together: Floats, seed: Seed) -> bool:
    """Whether another last row changes the rows before it, which the same seed repeats.

    With random numbers of its own a simulator repeats nothing: shapes must do.
    """
    same = []
    for rows in (kinds, np.vstack([kinds[:-1], kinds[:1]])):
        again = Seed(seed.entropy, spawn_key=seed.spawn_key)
        table = as_table(caller.raw(rows, again), len(kinds), flat=False)[0]
        same.append(np.array_equal(table[:-1], together[:-1], equal_nan=True))
    return same == [True, False]


class _Watched(np.ndarray[Any, Any]):
    """Batch of parameters that records which of its rows are read by their index."""

    asked: set[int] | None = None

    def __array_finalize__(self, obj: object) -> None:
        self.asked = getattr(obj, "asked", None)

    def __getitem__(self, key: Any) -> Any:
        if self.asked is not None and self.ndim == 2 and isinstance(key, int | np.integer):
            self.asked.add(int(key) % len(self))
        return super().__getitem__(key)


def _asks_for_one_row(caller: Caller, kinds: Floats, seed: Seed) -> bool:
    """Whether some rows of a batch are read by index and others are not.

    ``theta[0]`` is the first entry of one parameter, but the first row of a batch. With a single
    entry per parameter nothing else may show that all rows are treated like the first.
    """
    watched = kinds.view(_Watched)
    watched.asked = set()
    try:
        caller.raw(watched, Seed(seed.entropy, spawn_key=seed.spawn_key))
    except Exception:
        return False  # it does not take this kind of array
    return 0 < len(watched.asked) < len(kinds)


def _summarises_batches(caller: Caller, summary: Summary, theta: Floats, seed: Seed) -> bool:
    """Whether the summary of a batch has the summaries of its members as rows."""
    for some in (theta, *theta[:, None]):  # one of them may fail
        try:
            output = caller.raw(some, seed.spawn(1)[0])
            if isinstance(output, Mapping):
                return True  # the parts of a batch cannot be told apart before the summary
            xs = as_table(output, len(some), flat=False)[0]
            break
        except Exception:
            continue
    else:
        return False
    try:
        together = as_table(summary(xs), len(xs))[0]
        alone = [as_row(summary(x))[0] for x in xs]
    except Exception:
        try:
            as_row(summary(xs[0]))
        except Exception:
            return True  # it works for batches only, if at all
        return False
    return all(
        row.shape == whole.shape and np.allclose(row, whole, equal_nan=True)
        for row, whole in zip(alone, together, strict=True)
    )
