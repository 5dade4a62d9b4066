"""What was simulated, kept as it comes: in memory, and in a file if asked for.

The file begins with eight bytes of magic and is then a list of records, each with its kind, length
and CRC-32, only ever appended to: what is written stays readable whatever happens later. A record
holds the settings of a run (kind ``HEAD``: JSON) or simulations (kind ``RUNS``: JSON with the
number of the first, how many, the shape of an output and the reasons of failures; then parameters
and outputs as little-endian float64). There is nothing in it that could be executed.
"""

from __future__ import annotations

import json
import os
import signal
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO
from zlib import crc32

import numpy as np

from kernelbayes.arrays import warn
from kernelbayes.likelihood_free.running.calling import Failed, Outputs, Row
from kernelbayes.types import Floats, Ints, Names

if TYPE_CHECKING:
    from kernelbayes.likelihood_free.simulate import Plan

BLOCK = 500  # parameters drawn, and batches simulated, together: changing it changes every seed
MAGIC = b"KBRUNS1\n"
FRAME = struct.Struct("<4sIQ")  # kind, CRC-32 of kind, length and content, length
SHORT = struct.Struct("<I")


@dataclass(frozen=True)
class Keep:
    """A file, and which of the rounds in it."""

    path: Path
    round: int = 0

    @classmethod
    def of(cls, keep: str | os.PathLike[str] | Keep, number: int = 0) -> Keep:
        """Read the argument ``keep`` of a user."""
        if isinstance(keep, Keep):
            return keep
        if not isinstance(keep, str | os.PathLike):
            raise TypeError(f"keep must be the path of a file, got {type(keep).__name__}")
        path = Path(keep)
        if path.is_dir() or not path.parent.is_dir():
            raise ValueError(f"keep must be a file in a folder that exists, got {str(path)!r}")
        return cls(path, number)


@dataclass(eq=False)
class Journal:
    """Simulations done so far, of one run.

    Attributes
    ----------
    rows : dict
        Output of each simulation by its number, or why it failed.
    theta : dict
        Parameters (d,) of those that were read from a file.
    names : tuple of str or None
        Of the outputs.
    entropy, vectorized, parameters, parameter_names
        What the random numbers were made from, whether the simulator takes batches, how many
        parameters there are and their names; None as long as that is not known.
    file, number
        Where simulations are written to, and the number of the round.
    """

    rows: dict[int, Row] = field(default_factory=dict)
    theta: dict[int, Floats] = field(default_factory=dict)
    names: Names = None
    entropy: tuple[int, ...] | None = None
    vectorized: bool | None = None
    parameters: int | None = None
    parameter_names: Names = None
    file: BinaryIO | None = None
    number: int = 0

    def check(self, plan: Plan) -> None:
        """Refuse a plan of another problem than that of the simulations read from a file."""
        if self.parameters is None or self.file is None:
            return
        d = plan.block(0).shape[1]
        if self.parameters != d:
            self._refuse(f"of {self.parameters} parameters, here are {d}")
        if self.parameter_names != plan.names:
            self._refuse(f"of the parameters {self.parameter_names}, here are {plan.names}")
        if self.entropy != plan.entropy:
            self._refuse("made with other random numbers", ", the same rng, or rng=None to go on")
        numbers: Ints = np.array([i for i in sorted(self.theta) if i < plan.n], dtype=int)
        theta = np.array([self.theta[i] for i in numbers]).reshape(-1, d)
        wrong = np.flatnonzero(np.any(plan.theta(numbers) != theta, axis=1))
        if len(wrong):
            i = wrong[0]
            now = plan.theta(numbers[i : i + 1])[0]
            self._refuse(
                f"at other parameters (number {numbers[i]} at {theta[i]}, where this prior gives "
                f"{now})"
            )

    def begin(self, plan: Plan, vectorized: bool) -> None:
        """Write down what is simulated, unless that was done before."""
        self.vectorized = vectorized
        if self.file is None or self.parameters is not None:
            return
        self.parameters = plan.block(0).shape[1]
        head = {"round": self.number, "parameters": self.parameters, "names": plan.names}
        head |= {"entropy": plan.entropy, "vectorized": vectorized, "block": BLOCK, "dtype": "<f8"}
        self._write(_record(b"HEAD", json.dumps(head).encode()))

    def add(self, first: int, theta: Floats, outputs: Outputs) -> None:
        """Keep simulations number ``first`` and following, at theta (k, d)."""
        with undisturbed():
            self.names = self.names or outputs.names
            self.rows.update(enumerate(outputs.rows, start=first))
            for record in _records(self.number, first, theta, outputs) if self.file else ():
                self._write(record)

    def close(self) -> None:
        """Give the file to the disk, and to others."""
        if self.file is not None:
            with suppress(OSError):
                os.fsync(self.file.fileno())
            self.file.close()

    def _write(self, record: bytes) -> None:
        if self.file is not None and self.file.write(record) != len(record):
            raise OSError(f"cannot write to {self.file.name}: is the disk full?")

    def _refuse(self, why: str, remedy: str = "") -> None:
        name = "" if self.file is None else self.file.name
        raise ValueError(f"{name} holds simulations {why}; give another file{remedy}")


def read_journals(path: Path) -> tuple[dict[int, Journal], int]:
    """Read the rounds in a file; return the length of its sound part too.

    A torn end is dropped with a warning.
    """
    data = path.read_bytes()
    if data[: len(MAGIC)] != MAGIC[: len(data)]:
        newer = data[:6] == MAGIC[:6]
        what = "was written by a newer version" if newer else "is not a file of simulations"
        raise ValueError(f"{path} {what}; give another file")
    position, rounds = min(len(MAGIC), len(data)), dict[int, Journal]()
    while position < len(data):
        frame = data[position : position + FRAME.size]
        if len(frame) < FRAME.size:
            break
        kind, check, length = FRAME.unpack(frame)
        content = data[position + FRAME.size : position + FRAME.size + length]
        if len(content) < length or check != _checksum(kind, content):
            break
        _understand(kind, content, rounds)
        position += FRAME.size + length
    if position < len(data):
        kept = sum(len(journal.rows) for journal in rounds.values())
        warn(
            f"the last {len(data) - position} bytes of {path} are damaged and were dropped (a "
            f"record that was not written to its end?); the {kept} simulations before are used",
            UserWarning,
        )
    return rounds, position


def open_journal(keep: Keep) -> Journal:
    """Open a file to append to, and read what it has of a round; a torn end is cut off."""
    file = open(keep.path, "ab", buffering=0)  # noqa: SIM115 (the journal closes it)
    try:
        _alone(file)
        rounds, sound = read_journals(keep.path)
        file.truncate(sound)
        if sound < len(MAGIC):
            file.truncate(0)
            file.write(MAGIC)
    except BaseException:
        file.close()
        raise
    journal = rounds.get(keep.round, Journal(number=keep.round))
    journal.file = file
    return journal


def _alone(file: BinaryIO) -> None:
    """Refuse a file that another process is writing to, where the system can tell."""
    try:
        import fcntl
    except ImportError:
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        raise ValueError(f"another run writes to {file.name}; give each its own") from error


def _checksum(kind: bytes, content: bytes) -> int:
    return crc32(content, crc32(kind + struct.pack("<Q", len(content))))


def _record(kind: bytes, content: bytes) -> bytes:
    return FRAME.pack(kind, _checksum(kind, content), len(content)) + content


def _records(number: int, first: int, theta: Floats, outputs: Outputs) -> list[bytes]:
    """Write some simulations as records, one for each stretch of outputs of one shape."""
    records, start, rows = [], 0, outputs.rows
    shapes = [None if isinstance(row, Failed) else row.shape for row in rows]
    while start < len(rows):
        shape, stop = shapes[start], start
        while stop < len(rows) and shapes[stop] in (None, shape):
            stop += 1
        part = rows[start:stop]
        failed = {k: row.reason for k, row in enumerate(part) if isinstance(row, Failed)}
        meta = {"round": number, "first": first + start, "count": len(part), "shape": shape}
        text = json.dumps({**meta, "failed": failed, "names": outputs.names}).encode()
        good = [row for row in part if not isinstance(row, Failed)]
        arrays = [theta[start:stop], *good]
        content = [np.ascontiguousarray(a, dtype="<f8").tobytes() for a in arrays]
        records.append(_record(b"RUNS", b"".join([SHORT.pack(len(text)), text, *content])))
        start = stop
    return records


def _understand(kind: bytes, content: bytes, rounds: dict[int, Journal]) -> None:
    """Add a record to the rounds; of several records of one simulation the last counts."""
    if kind == b"HEAD":
        head = json.loads(content)
        if head["block"] != BLOCK or head["dtype"] != "<f8":
            raise ValueError("the file was written by another version; give another file")
        rounds[head["round"]] = Journal(
            entropy=tuple(head["entropy"]),
            vectorized=head["vectorized"],
            parameters=head["parameters"],
            parameter_names=_names(head["names"]),
            number=head["round"],
        )
        return
    (length,) = SHORT.unpack_from(content)
    meta = json.loads(content[SHORT.size : SHORT.size + length])
    journal, count = rounds[meta["round"]], meta["count"]
    values = np.frombuffer(content, dtype="<f8", offset=SHORT.size + length).astype(np.float64)
    theta, x = np.split(values, [count * (journal.parameters or 0)])
    failed = {int(k): Failed(reason) for k, reason in meta["failed"].items()}
    good = iter(x.reshape(count - len(failed), *(meta["shape"] or (0,))))
    for k, row in enumerate(theta.reshape(count, -1)):
        journal.rows[meta["first"] + k] = failed[k] if k in failed else next(good)
        journal.theta[meta["first"] + k] = row
    journal.names = journal.names or _names(meta["names"])


def _names(names: list[str] | None) -> Names:
    return tuple(names) if names else None


@contextmanager
def undisturbed() -> Iterator[None]:
    """Hold Ctrl-C back until the end of this block."""
    if threading.current_thread() is not threading.main_thread():
        yield  # signals go to the main thread
        return
    late: list[tuple[Any, ...]] = []
    handler = signal.signal(signal.SIGINT, lambda *event: late.append(event))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        if late and callable(handler):
            handler(*late[0])
