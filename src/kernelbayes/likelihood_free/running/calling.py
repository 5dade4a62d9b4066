"""How a simulator is called: with or without a generator, one parameter or a batch at a time.

Nobody should have to say which, so :func:`inspect_simulator` looks at the signature and tries. A
simulator of one parameter may accept a batch by accident, and give all rows the same noise
(``theta + rng.normal(size=2)``) or mix them (``theta.mean()``). Such a simulator is called with one
parameter at a time: slower, never wrong.
"""

import inspect
import traceback
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from kernelbayes.arrays import as_array, as_real, frame_kind, to_numpy
from kernelbayes.points import order_of
from kernelbayes.types import Array, Floats, Names

Seed = np.random.SeedSequence
# What a simulator or a summary returns for one parameter: a number, an array, a dict of them.
Output = Any
Simulator = Callable[..., Output]
Summary = Callable[[Output], Output]
# Names under which simulators take a generator: NumPy's, SciPy's and scikit-learn's conventions.
RNG_NAMES = ("rng", "random_state", "generator", "seed", "random_generator")
# The trial batch: three parameters, four times over. Independent binary noise of one column agrees
# by chance in all copies with probability 2^-9, and then up to CALLS single calls are compared.
COPIES, KINDS = 4, 3
CALLS = 20


@dataclass(frozen=True)
class Failed:
    """A simulation without output: why, and the traceback (where somebody will read it)."""

    reason: str
    trace: str = ""


Row = Floats | Failed


@dataclass(frozen=True)
class Outputs:
    """Results of some simulations, and why their batch failed if they were then run alone."""

    rows: list[Row]
    names: Names = None
    batch: Failed | None = None


@dataclass(frozen=True)
class Caller:
    """A simulator with its summary (or None), and how both want to be called.

    Attributes
    ----------
    vectorized, batch_summary : bool
        Whether the simulator and the summary take a batch.
    drop : bool
        Whether failed simulations are dropped; if not, a failed batch is searched for the first
        one, and tracebacks are kept.
    rng_argument : str or None
        Name of the simulator's argument that takes the generator, "" for the second one.
    """

    simulator: Simulator
    summary: Summary | None = None
    vectorized: bool = False
    batch_summary: bool = False
    drop: bool = True
    rng_argument: str | None = ""

    def raw(self, theta: Floats, seed: Seed) -> Output:
        """Output of the simulator as it comes, for one parameter (d,) or a batch (b, d)."""
        try:
            return self._raw(theta.copy(), seed)
        except SystemExit as error:  # of a program written to be run alone
            raise RuntimeError(f"the simulator called sys.exit({error.code!r})") from error

    def _raw(self, theta: Floats, seed: Seed) -> Output:
        rng = np.random.default_rng(seed)
        match self.rng_argument:
            case None:  # it can only draw from NumPy's global stream: seed it, then restore it
                state = np.random.get_state()  # noqa: NPY002
                np.random.seed(seed.generate_state(4))  # noqa: NPY002
                try:
                    return self.simulator(theta)
                finally:
                    np.random.set_state(state)  # noqa: NPY002
            case "":
                return self.simulator(theta, rng)
            case name:
                return self.simulator(theta, **{name: rng})

    def __call__(self, theta: Floats, seed: Seed) -> Outputs:
        """Simulate at a parameter (d,) or, if vectorized, at each row of theta (b, d).

        Nothing is raised: a simulation that raises is a failed one. So is every row of a batch
        that raises, unless it works alone.
        """
        try:
            if self.vectorized:
                rows, names = self._table(self.raw(theta, seed), len(theta))
                return Outputs(list(rows), names)
            output = self.raw(theta, seed)
            if output is None:
                return Outputs([Failed("the simulator returned None")])
            row, names = as_row(output if self.summary is None else self.summary(output))
            return Outputs([row], names)
        except Exception as error:
            trace = "" if self.drop else traceback.format_exc()
            failed = Failed(f"{type(error).__name__}: {error}", trace)
        if not self.vectorized or len(theta) == 1:
            return Outputs([failed])
        found = Outputs([])
        for part in one_by_one(theta, seed):
            one = by_key(self(*part), found.names)
            found = Outputs([*found.rows, *one.rows], one.names, failed)
            if not self.drop and isinstance(found.rows[-1], Failed):
                break
        return found

    def _table(self, output: Output, b: int) -> tuple[Floats, Names]:
        """Summaries (b, ...) of the output of a batch."""
        if self.summary is None:
            return as_table(output, b)
        if self.batch_summary:
            return as_table(self.summary(output), b)
        parts = [as_row(self.summary(x)) for x in as_table(output, b, flat=False)[0]]
        return np.stack([row for row, _ in parts]), parts[0][1]


def one_by_one(theta: Floats, seed: Seed) -> list[tuple[Floats, Seed]]:
    """Rows of a batch (b, d) as batches (1, d), each with a seed of its own."""
    keys = [(*seed.spawn_key, k) for k in range(len(theta))]
    return [(theta[k : k + 1], Seed(seed.entropy, spawn_key=key)) for k, key in enumerate(keys)]


def by_key(outputs: Outputs, expected: Names) -> Outputs:
    """Put outputs that came as dicts in the order of the expected keys; others have failed."""
    names, wrong, order = expected or outputs.names, None, None
    try:
        order = order_of(outputs.names, expected, "a simulation")
    except ValueError as error:
        wrong = Failed(str(error))

    def put(row: Row) -> Row:
        if isinstance(row, Failed):
            return row
        return wrong or (row if order is None else row[order])

    return replace(outputs, rows=[put(row) for row in outputs.rows], names=names)


def as_row(output: Output) -> tuple[Floats, Names]:
    """Output of one simulation as floats (at least 1-d), and its names if it came as a dict."""
    labels = list(getattr(output, "index", ())) if frame_kind(output) == "Series" else []
    if len(set(labels)) == len(labels) and all(isinstance(k, str) for k in labels or [None]):
        output = dict(output)  # of pandas, read by its labels
    if isinstance(output, Mapping):
        table, names = as_table({k: to_numpy(as_array(v))[None] for k, v in output.items()}, 1)
        return table[0], names
    return np.atleast_1d(_floats(output)), None


def as_table(output: Output, b: int, flat: bool = True) -> tuple[Floats, Names]:
    """Output of a batch as floats (b, ...), and its names if it came as a dict."""
    if isinstance(output, Mapping):
        parts = {str(k): as_table(v, b)[0].reshape(b, -1) for k, v in output.items()}
        names = [
            [k] if v.shape[1] == 1 else [f"{k}[{j}]" for j in range(v.shape[1])]
            for k, v in parts.items()
        ]
        return np.concatenate(list(parts.values()), axis=1), tuple(n for k in names for n in k)
    table = _floats(output)
    if table.ndim == 0 or len(table) != b:
        raise ValueError(
            f"{b} parameters at once gave an output of shape {table.shape}, not ({b}, ...); pass "
            "vectorized=False if the simulator takes one parameter at a time"
        )
    return table[:, None] if flat and table.ndim == 1 else table, None


def _floats(values: Array) -> Floats:
    return np.array(to_numpy(as_real(values, "a simulation")), dtype=np.float64)


def inspect_simulator(
    simulator: Simulator,
    theta: Floats,
    seed: Seed,
    summary: Summary | None = None,
    vectorized: bool | None = None,
    drop: bool = True,
) -> Caller:
    """Find out how a simulator and its summary are called, by trying parameters theta (k, d).

    ``vectorized`` skips the trial of the simulator; ``drop`` is passed on.
    """
    if not callable(simulator):
        raise TypeError(f"the simulator must be callable, got {type(simulator).__name__}")
    if summary is not None and not callable(summary):
        raise TypeError(f"the summary must be callable, got {type(summary).__name__}")
    caller = Caller(simulator, summary, drop=drop, rng_argument=rng_argument(simulator))
    theta = np.resize(theta, (KINDS, theta.shape[1]))
    # caused by arguments the simulator was not written for
    with warnings.catch_warnings(action="ignore"):
        if vectorized is None:
            vectorized = _takes_batches(caller, theta, seed)
        if not vectorized:
            return caller
        batch_summary = summary is not None and _summarises_batches(caller, summary, theta, seed)
    return replace(caller, vectorized=True, batch_summary=batch_summary)


def rng_argument(function: Simulator) -> str | None:
    """Name of the argument that takes the generator, "" for the second one, None for none."""
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):  # some built-in functions have no signature
        return None
    for name in RNG_NAMES:
        if name in parameters:
            return name
    if any(p.kind is p.VAR_POSITIONAL for p in parameters.values()):
        return ""
    needed = (p for p in parameters.values() if p.default is p.empty)
    positional = sum(p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) for p in needed)
    return "" if positional > 1 else None


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
