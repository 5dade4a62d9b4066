"""Sequences: one or many, joined into one sample whose transitions never cross an end."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import pairwise
from numbers import Number
from typing import Any

import numpy as np
from array_api_compat import is_array_api_obj
from numpy.typing import ArrayLike

from kernelbayes.arrays import as_array, as_real, is_frame, namespace, to_numpy
from kernelbayes.kernels import Kernel
from kernelbayes.kernels.default import mixed_columns
from kernelbayes.points import (
    column_names,
    concatenate,
    count,
    doubled,
    frame_columns,
    in_order,
    own,
    take,
)
from kernelbayes.types import Ints, Names, Points, PointsLike

# Transitions between observations of one or many sequences.
Gaps = ArrayLike | Sequence[ArrayLike] | None


@dataclass(frozen=True, eq=False)
class Part:
    """One sequence: observations, states, controls of its transitions."""

    X: Points
    Z: Points
    controls: Points | None


@dataclass(frozen=True, eq=False)
class Training:
    """Sequences end to end: observations, states, controls, and where each transition lies."""

    X: Points  # (n, ...)
    Z: Points
    controls: Points | None  # (m, ...), one per transition
    source: Ints  # (m,): transition j goes from state source[j] to state target[j]
    target: Ints
    lengths: tuple[int, ...]


def is_many(X: PointsLike) -> bool:
    """Whether X is a list of sequences (arrays, frames, mappings or lists of non-numbers)."""
    if not isinstance(X, list | tuple) or len(X) == 0:
        return False
    return all(_is_sequence(part) for part in X)


def _is_sequence(part: PointsLike) -> bool:
    if is_frame(part) or isinstance(part, Mapping):
        return True
    if isinstance(part, list | tuple):  # nested lists of numbers are rows of one sequence
        return len(part) > 0 and not isinstance(part[0], Number | Decimal | type(None))
    return is_array_api_obj(part) and getattr(part, "ndim", 0) >= 1


def unstacked(X: PointsLike, kernel: Kernel | None) -> PointsLike:
    """List of sequences for an array (S, T, d) under a kernel on vectors; else as they are.

    Under a kernel on matrices or images three axes are one sequence of those.
    """
    if isinstance(X, Iterator):
        raise TypeError("sequences are read more than once; give a list of them: list(...)")
    array = is_array_api_obj(X) and X.ndim == 3
    numbers = array and not (isinstance(X, np.ndarray) and X.dtype.kind not in "fiub")
    if not numbers or not (kernel is None or kernel.takes_rows):
        return aligned(X)
    return [X[i, ...] for i in range(X.shape[0])]


def aligned(X: PointsLike) -> PointsLike:
    """List of frames or mappings, columns in the order of the first; anything else as it is."""
    if not is_many(X):
        return X
    names = column_names(X[0])
    return [in_order(part, names, f"sequence {i}") for i, part in enumerate(X)]


def each_in_order(X: PointsLike, names: Names) -> PointsLike:
    """One or many sequences, frames and mappings with their columns in the order of training."""
    parts = [in_order(part, names) for part in (X if is_many(X) else [X])]
    return parts if is_many(X) else parts[0]


def names_of(X: PointsLike) -> tuple[str, ...] | None:
    """Names of the columns of one or many sequences, if they have any."""
    return column_names(X[0] if is_many(X) else X)


def as_points(X: PointsLike, kernel: Kernel | None = None) -> Points:
    """One sequence as an array, a list of non-numbers, or a mapping of columns; NaN may stay.

    It is a mapping only under a kernel that reads columns by name, or anything, and where columns
    of numbers and of categories will have kernels of their own.
    """
    if is_frame(X) and kernel is not None and kernel.by_name:
        return frame_columns(X)
    if kernel is None and (mixed := mixed_columns(X, "a sequence")) is not None:
        return dict(mixed)
    if isinstance(X, Mapping):
        parts = {key: as_points(part) for key, part in X.items()}
        sizes = {key: count(part) for key, part in parts.items()}
        if len(set(sizes.values())) != 1:
            raise ValueError(f"the parts of a sequence must be aligned, got lengths {sizes}")
        return as_array(parts) if reads_columns(kernel) else parts
    if isinstance(X, list | tuple) and any(row is None for row in X):
        return _fill_missing(list(X))
    if isinstance(X, list | tuple) and len(X) and isinstance(X[0], str):
        return list(X)
    return as_array(X, "a sequence")


def reads_columns(kernel: Kernel | None) -> bool:
    """Whether a kernel reads the parts of a mapping as columns of one array."""
    return kernel is None or (kernel.takes_rows and not kernel.by_name)


def _fill_missing(rows: list[PointsLike]) -> Points:
    """Rows that may be None: None becomes NaN where the others are numbers."""
    known = next((as_array(row) for row in rows if row is not None), None)
    if known is None:
        return np.full(len(rows), np.nan)
    if known.dtype.kind not in "fiub":
        return rows
    blank = np.full(known.shape, np.nan)
    return np.stack([blank if row is None else as_real(row) for row in rows])


def read(
    X: PointsLike,
    Z: PointsLike,
    controls: PointsLike,
    kernels: Sequence[Kernel | None],
    copy: bool = True,
) -> list[Part]:
    """Sequences as given, one or many, under kernels on x, z and u, if these are known."""
    X, Z, controls = unstacked(X, kernels[0]), unstacked(Z, kernels[1]), aligned(controls)
    many = is_many(X)
    if many != is_many(Z):
        raise ValueError(
            "X and Z must both be one sequence (T, d), or both be many: lists of sequences, or "
            "arrays (S, T, d) of S sequences"
        )
    given = [A if many else [A] for A in (X, Z, controls)]
    given[2] = [None] * len(given[0]) if controls is None else given[2]
    for name, sequences in (("Z", given[1]), ("controls", given[2])):
        if len(sequences) != len(given[0]):
            raise ValueError(f"{len(given[0])} sequences of X but {len(sequences)} of {name}")
    parts = []
    alone = copy and len(given[0]) == 1  # several are copied when they are joined
    for i, (x, z, u) in enumerate(zip(*given, strict=True)):
        given_x, given_z = x, z
        x, z = as_points(x, kernels[0]), as_points(z, kernels[1])
        if alone:
            x, z = own(x, given_x), own(z, given_z)
        if count(x) != count(z):
            raise ValueError(f"sequence {i} has {count(x)} observations but {count(z)} states")
        _check_states(z, i if many else None)
        if controls is not None and not (u is None and count(x) == 1):
            U = as_points(u, kernels[2])
            u = into_steps(own(U, u) if alone else U, count(x))
        parts.append(Part(x, z, u))
    return parts


def _check_states(Z: Points, number: int | None) -> None:
    """Raise where a state is not known, with the code that splits the sequence there."""
    if not isinstance(Z, np.ndarray) or Z.dtype.kind != "f" or not np.isnan(Z).any():
        return
    rows = np.flatnonzero(np.isnan(Z).reshape(len(Z), -1).any(axis=1))
    where = "" if number is None else f" of sequence {number}"
    raise ValueError(
        f"Z has NaN in {len(rows)} rows{where}, first in row {rows[0]}: training states must be "
        "known. Split the sequence here, so that no transition leads over the hole:\n"
        "    known = np.flatnonzero(~np.isnan(np.asarray(Z).reshape(len(Z), -1)).any(axis=1))\n"
        "    runs = np.split(known, np.flatnonzero(np.diff(known) > 1) + 1)\n"
        "    model.fit([X[run] for run in runs], [Z[run] for run in runs])\n"
        "(of data frames, X.iloc[run] and Z.iloc[run])"
    )


def pieces_of(s: Part, number: int) -> list[Part]:
    """Pieces of a sequence, of equal length up to a step; all of it if they would be too short."""
    if count(s.X) < 2 * number:  # a piece has a transition
        return [s]
    ends = np.linspace(0, count(s.X), number + 1).astype(int)
    return [
        Part(
            take(s.X, slice(a, b)),
            take(s.Z, slice(a, b)),
            None if s.controls is None else take(s.controls, slice(a, b - 1)),
        )
        for a, b in pairwise(ends)
    ]


def join(parts: list[Part]) -> Training:
    """Sequences end to end."""
    lengths = tuple(count(part.X) for part in parts)
    ends = np.cumsum(lengths)
    target = np.setdiff1d(np.arange(ends[-1]), ends - np.asarray(lengths))
    if len(target) == 0:
        raise ValueError("no transitions: at least one sequence must have two steps or more")
    X, Z = concatenate(*(p.X for p in parts)), concatenate(*(p.Z for p in parts))
    controls = [part.controls for part in parts if part.controls is not None]
    U = concatenate(*controls) if controls else None
    return Training(X, Z, U, target - 1, target, lengths)


def end_to_end(parts: PointsLike, kernel: Kernel | None) -> PointsLike:
    """One sample: sequences end to end, frames and arrays as they are."""
    if not is_many(parts):
        return parts
    return concatenate(*(as_points(part, kernel) for part in parts))


def into_steps(controls: Points, length: int) -> Points | None:
    """Return the controls of one sequence's transitions, (length - 1, ...); None for none.

    Row t of ``length`` rows acted on the way *into* step t, so the first is not used; with one row
    less, row t acted between steps t and t + 1.
    """
    rows = count(controls)
    if rows not in (length, length - 1):
        raise ValueError(
            f"controls must have {length} rows, row t acting on the way into step t, or "
            f"{length - 1}, one per transition; got {rows}"
        )
    skip = rows - (length - 1)
    if length == 1:
        return None
    return take(controls, slice(skip, rows))


def check_gaps(gaps: ArrayLike | None, length: int) -> list[int]:
    """Transitions before each of ``length`` steps; the first counts as one."""
    if gaps is None:
        return [1] * length
    values = np.asarray(to_numpy(as_real(gaps, "gaps"))).ravel()
    used = values[1:]
    if len(values) != length or not np.all((used >= 1) & (used == np.floor(used))):
        raise ValueError(f"gaps must be {length} integers of at least 1, got {gaps!r}")
    return [1, *(int(g) for g in used)]


def as_row(x: PointsLike, kernel: Kernel | None = None) -> Points:
    """One point as a sequence of length one."""
    if x is None:
        return None
    if isinstance(x, Mapping):
        parts = {key: as_row(part) for key, part in x.items()}
        return as_array(parts, "the observation") if reads_columns(kernel) else parts
    if isinstance(x, str):
        return [x]
    array = as_array(x, "the observation")
    return array[None, ...] if is_array_api_obj(array) else [x]


def point_at(X: Points, t: int) -> PointsLike:
    """Return one point of a sequence; None if there are none."""
    if X is None:
        return None
    if isinstance(X, Mapping):
        return {key: point_at(part, t) for key, part in X.items()}
    return X[t, ...] if is_array_api_obj(X) else X[t]


def stack_rows(rows: list[Points]) -> Points:
    """Join sequences of length one."""
    if isinstance(rows[0], Mapping):
        return {key: stack_rows([row[key] for row in rows]) for key in rows[0]}
    if isinstance(rows[0], list):
        return [item for row in rows for item in row]
    return namespace(*rows).concat(rows, axis=0)


def acting(
    controls: PointsLike, length: int, kernel: Kernel | None, names: tuple[str, ...] | None
) -> Points | None:
    """Return the controls of the transitions of one sequence; None for none.

    Without a kernel, for a known transition, they stay as they are.
    """
    if controls is None:
        return None
    named = kernel is not None and kernel.by_name
    controls = in_order(controls, names, "controls", by_name=named)
    U = into_steps(as_points(controls, kernel), length)
    return U if kernel is None or U is None else doubled(kernel.points(U, "controls"))


def each_sequence(
    X: PointsLike, controls: PointsLike, gaps: Gaps
) -> list[tuple[PointsLike, PointsLike, Any]]:
    """Observations, controls and gaps of each sequence."""
    if not is_many(X):
        return [(X, controls, gaps)]
    given: list[Any] = [controls, gaps]
    for i, name in enumerate(("controls", "gaps")):
        given[i] = [None] * len(X) if given[i] is None else given[i]
        if len(given[i]) != len(X):
            raise ValueError(f"{len(X)} sequences but {name} for {len(given[i])}")
    return list(zip(X, *given, strict=True))
