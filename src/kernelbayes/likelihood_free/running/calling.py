"""One call of a simulator: with or without a generator, of one parameter or a batch.

What comes back is read here: numbers, arrays, dicts and series become rows of floats with names.
"""

import inspect
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from kernelbayes.arrays import as_array, as_real, frame_kind, to_numpy
from kernelbayes.likelihood_free.distributions import torch_seed
from kernelbayes.points import order_of
from kernelbayes.types import Array, Floats, Names

Seed = np.random.SeedSequence
# What a simulator or a summary returns for one parameter: a number, an array, a dict of them.
Output = Any
Simulator = Callable[..., Output]
Summary = Callable[[Output], Output]
# Names under which simulators take a generator: NumPy's, SciPy's and scikit-learn's conventions.
RNG_NAMES = ("rng", "random_state", "generator", "seed", "random_generator")


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

    def outputs(self, unit: Unit) -> tuple[Unit, Outputs]:
        """Return a unit with what the simulator makes of it."""
        return unit, self(unit.theta, unit.seed)

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
