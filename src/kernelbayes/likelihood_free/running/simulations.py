"""Simulations: parameters, and what a simulator made of them."""

import os
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

import numpy as np

from kernelbayes.arrays import as_array, as_real, as_vectors, is_frame, to_numpy, warn
from kernelbayes.likelihood_free.prior import Prior
from kernelbayes.likelihood_free.running.calling import Failed, Output, Row, Summary, as_row
from kernelbayes.likelihood_free.running.journal import Journal, read_journals
from kernelbayes.points import column_names, in_order, named_row, order_of, points_in_order
from kernelbayes.types import Bools, Floats, Ints, Names, PointsLike


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
    numbers : array of int
        Their numbers: 0, 1, ... unless the run was interrupted while several were under way.
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
    numbers: Ints
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
    ) -> Self:
        """Check simulations made elsewhere; those with NaN or infinite data are dropped."""
        theta = in_order(theta, None if prior is None else prior.names, "theta")
        names, x_names = column_names(theta), column_names(x)
        theta = np.asarray(to_numpy(as_vectors(theta, "theta")), dtype=np.float64)
        table = np.asarray(to_numpy(as_array(x, "x")))
        if table.ndim == 0:
            raise TypeError(f"x must hold one data set per parameter, got {x!r}")
        if len(theta) != len(table):
            raise ValueError(f"{len(theta)} parameters but {len(table)} data sets")
        if prior is not None:
            if prior.dim != theta.shape[1]:
                raise ValueError(
                    f"the prior has {prior.dim} parameters, theta has {theta.shape[1]}"
                )
            names = prior.names or names
        if summary is None:
            table = np.asarray(as_real(table, "x"), dtype=np.float64)
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
            warn(
                f"{np.sum(~ok)} of {len(ok)} simulations have NaN or infinite data and were "
                "dropped; the prior is now the one given that the simulator works"
            )
        return cls(theta[ok], table[ok], ok, np.arange(len(ok)), len(ok), names, x_names)

    def under(self, prior: Prior | None, fewest: int) -> Self:
        """Put parameters in the order of a prior, and check them."""
        names = self.names if prior is None else prior.names or self.names
        theta = points_in_order(self.theta, self.names, names, "theta")
        checked = type(self).of(theta, self.x, prior, fewest=fewest)
        return replace(self, theta=checked.theta, names=names)

    @classmethod
    def read(cls, path: str | os.PathLike[str], round_number: int = 0) -> Self:
        """Read the simulations that ``simulate(..., keep=path)`` wrote (of one round of infer)."""
        if not Path(path).is_file():
            raise ValueError(f"there is no file {str(path)!r}")
        rounds = read_journals(Path(path))[0]
        if round_number not in rounds:
            raise ValueError(f"{path} has no round {round_number}; it has {sorted(rounds)}")
        journal = rounds[round_number]
        theta = np.array([journal.theta[i] for i in sorted(journal.theta)])
        return cls.assemble(journal, theta, len(theta), journal.parameter_names)

    @classmethod
    def assemble(
        cls,
        journal: Journal,
        theta: Floats,
        requested: int,
        names: Names,
        entropy: tuple[int, ...] = (),
    ) -> Self:
        """Put together what a journal holds, at parameters theta (k, d) in ascending order."""
        numbers = sorted(journal.rows)
        rows = [journal.rows[i] for i in numbers]
        shape = _common_shape(rows)
        reasons = [why_failed(row, shape) for row in rows]
        ok = np.array([reason is None for reason in reasons], dtype=bool)
        reason = next((r for r in reasons if r is not None), None)
        if not np.any(ok):
            raise ValueError(f"all {len(ok)} simulations failed; the first: {reason}")
        x = np.array([row for row, fine in zip(rows, ok, strict=True) if fine])
        most = max(requested, len(ok))
        entropy = entropy or journal.entropy or ()
        how = names, journal.names, bool(journal.vectorized), entropy, reason
        return cls(theta[ok], x, ok, np.array(numbers), most, *how)

    def journal(self) -> Journal:
        """Journal to continue from."""
        good, failed = iter(self.x), Failed(self.reason or "")
        pairs = zip(self.numbers.tolist(), self.ok.tolist(), strict=True)
        rows = {i: next(good) if fine else failed for i, fine in pairs}
        how = self.x_names, self.entropy, self.vectorized
        return Journal(rows, {}, *how)

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


def as_observation(x: Output, summary: Summary | None, like: Simulations) -> Floats:
    """Observed data in the form of the simulations' rows, x.shape[1:].

    ``summary`` is applied to it as to one simulation. A dict is put in the order of the
    simulations' names.
    """
    by_name = named_row(x, like.x_names) if is_frame(x) else None
    value = x = x if by_name is None else by_name
    if summary is not None:
        try:
            value = summary(x)
            row = as_row(value)[0]
        except Exception:  # a summary for batches only
            row = np.empty(0)
        if row.shape != like.x.shape[1:]:
            value = summary(np.asarray(to_numpy(x))[None])
    row, names = as_row(value)
    order = order_of(names, like.x_names, "x_observed")
    row = row if order is None else row[order]
    if row.shape == (1, *like.x.shape[1:]):
        row = row[0]
    if row.shape != like.x.shape[1:]:
        raise ValueError(f"x_observed has shape {row.shape}, one simulation {like.x.shape[1:]}")
    if not np.all(np.isfinite(row)):
        raise ValueError("x_observed has NaN or infinite entries")
    return row


def why_failed(row: Row, shape: tuple[int, ...]) -> str | None:
    """Why a simulation counts as failed, or None."""
    if isinstance(row, Failed):
        return row.reason
    if np.all(np.isfinite(row)) and row.shape == shape:
        return None
    if row.shape == shape or np.all(np.isnan(row)):
        return "NaN or infinite output"
    return f"output of shape {row.shape}, where others have {shape}"


def _common_shape(rows: list[Row]) -> tuple[int, ...]:
    """Shape of most outputs with finite numbers."""
    arrays = [row for row in rows if not isinstance(row, Failed)]
    finite = [row for row in arrays if np.all(np.isfinite(row))]
    counts = Counter(row.shape for row in finite or arrays)
    if not counts:
        return (1,)
    (shape, most), *others = counts.most_common()
    if 2 * most < counts.total():
        raise ValueError(
            f"simulations have different shapes, {shape} and {others[0][0]}, and no shape is that "
            "of most; cut or pad them to one shape, or give a summary of fixed length"
        )
    return shape
