"""Sources of pairs that do not fit in memory, and sums over them.

A source is one of

* batches: a list of pairs (X, Z), or any iterator of them;
* a table: the path of a Parquet or CSV file or of a folder of them, a Polars lazy frame, or
  anything with ``__arrow_c_stream__``; ``columns=(names of X, names of Z)`` selects columns;
* Dask arrays or frames X and Z with the same blocks of rows.

Lists, files and Dask collections can be read repeatedly; iterators and streams only once.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import reduce
from itertools import chain
from operator import add
from pathlib import Path
from typing import Any, TypeVar

from kernelbayes.points import column_names
from kernelbayes.tables import extra
from kernelbayes.types import Names, PointsLike

T = TypeVar("T")
Pair = tuple[PointsLike, PointsLike]
Columns = tuple[str | Sequence[str], str | Sequence[str]]
# Rows of a table read at a time: 80 MB at 100 columns; blocks of features are smaller.
READ_ROWS = 100_000


@dataclass(frozen=True)
class Source:
    """Pairs, read batch by batch."""

    batches: Iterable[Pair]

    @property
    def once(self) -> bool:
        """Whether the pairs can be read only once."""
        return isinstance(self.batches, Iterator)

    def first(self) -> tuple[Pair, Source]:
        """First nonempty batch, and a source that still contains it."""
        rest = iter(self.batches)
        for pair in rest:
            if not isinstance(pair, tuple) or len(pair) != 2:
                what = type(pair).__name__
                raise TypeError(f"batches must be pairs (X, Z), got a {what}; yield (X, Z)")
            if len(pair[0]):
                return pair, Source(chain([pair], rest)) if self.once else self
        raise ValueError("there are no pairs to learn from: the source is empty")

    def reduce(self, partial: Callable[..., T], **options: object) -> T:
        """Sum of ``partial(X, Z, **options)`` over all batches."""
        found = reduce(_joined, (_some(partial, X, Z, options) for X, Z in self.batches))
        return _known(found)


@dataclass(frozen=True)
class Blocks(Source):
    """Pairs in blocks of Dask collections: a partial sum per block, and a tree of merges."""

    client: Any = field(default=None, kw_only=True)

    def first(self) -> tuple[Pair, Source]:
        """First nonempty block, computed."""
        blocks = (self._computed(*block) for block in self.batches)
        return _known(next((pair for pair in blocks if len(pair[0])), None)), self

    def reduce(self, partial: Callable[..., T], **options: object) -> T:
        """Sum over all blocks; only the sum is returned to the client."""
        from dask import delayed

        parts = [delayed(_some)(partial, X, Z, options) for X, Z in self.batches]
        while len(parts) > 1:
            pairs = zip(parts[::2], parts[1::2], strict=False)
            odd = parts[-1:] if len(parts) % 2 else []
            parts = [delayed(_joined)(a, b) for a, b in pairs] + odd
        return _known(self._computed(parts[0])[0])  # type: ignore[no-any-return]

    def _computed(self, *tasks: Any) -> tuple[Any, ...]:
        """Results of tasks, by the client if there is one; explains why workers died."""
        import dask

        try:
            if self.client is None:
                return tuple(dask.compute(*tasks))
            return tuple(self.client.compute(dask.delayed(list(tasks))).result())
        except Exception as error:
            if type(error).__name__ not in ("BrokenProcessPool", "KilledWorker"):
                raise
            raise RuntimeError(
                "worker processes ended before their work was done. If they could not start: put "
                "the code that starts them below `if __name__ == '__main__':`, or each worker runs "
                "the script again. If they ran out of memory: use smaller blocks, rechunk(...)"
            ) from error


def _some(partial: Callable[..., T], X: Any, Z: Any, options: dict[str, object]) -> T | None:
    """Partial sum of a batch; None for an empty one."""
    return partial(X, Z, **options) if len(X) else None


def _joined(a: T | None, b: T | None) -> T | None:
    """Sum of two partial sums; None is an empty one."""
    return b if a is None else a if b is None else add(a, b)


def _known(found: T | None) -> T:
    if found is None:
        raise ValueError("there are no pairs to learn from: all batches are empty")
    return found


@dataclass(frozen=True)
class Table:
    """Batches of rows of a lazy frame of Polars."""

    frame: Any
    columns: Columns

    def __iter__(self) -> Iterator[Pair]:
        x, z = self.columns
        names = dict.fromkeys([*_listed(x), *_listed(z)])
        for batch in self.frame.select(list(names)).collect_batches(chunk_size=READ_ROWS):
            yield _part(batch, x), _part(batch, z)


def as_source(
    X: object, Z: object, columns: Columns | None = None, client: object = None
) -> Source | None:
    """Source given by the arguments of ``fit``; None for arrays, points and frames."""
    if _is_dask(X) or _is_dask(Z):
        return _blocks(X, Z, client)
    if Z is not None:
        if columns is not None:
            raise ValueError("columns= names X and Z in one table, so leave out the argument Z")
        return None
    if isinstance(X, str | os.PathLike) or hasattr(X, "collect_batches"):
        columns = _checked(columns)
        return Source(Table(_scan(X), columns))
    if hasattr(X, "__arrow_c_stream__") and columns is not None:
        return Source(_stream(X, _checked(columns)))
    if isinstance(X, Iterator):
        return Source(X)
    if isinstance(X, list) and X and all(isinstance(p, tuple) and len(p) == 2 for p in X):
        whole = all(hasattr(part, "__len__") for pair in X for part in pair)
        return Source(X) if whole else None
    return None


def names_of(pair: Pair) -> tuple[Names, Names]:
    """Column names of X and of Z."""
    return column_names(pair[0]), column_names(pair[1])


def _listed(names: str | Sequence[str]) -> list[str]:
    return [names] if isinstance(names, str) else list(names)


def _part(batch: Any, names: str | Sequence[str]) -> PointsLike:
    """Return some columns of a batch: a frame, or a series for one name."""
    return batch[names] if isinstance(names, str) else batch.select(list(names))


def _checked(columns: Columns | None) -> Columns:
    if columns is None or isinstance(columns, str) or len(columns) != 2:
        raise ValueError(
            "columns must say which columns of the table are X and which are Z: "
            f"columns=(['x0', 'x1'], ['z']), got {columns!r}"
        )
    return columns


def _polars() -> Any:
    return extra("polars", "parquet", "tables need polars")


def _scan(table: Any) -> Any:
    """Lazy frame of a file or of all files in a folder; lazy frames are returned as they are."""
    if hasattr(table, "collect_batches"):
        return table
    path = Path(table)
    kinds = {".parquet": "scan_parquet", ".csv": "scan_csv"}
    files = sorted(p for p in path.iterdir() if p.suffix in kinds) if path.is_dir() else [path]
    endings = {p.suffix for p in files}
    if not path.exists() or len(endings) != 1 or not endings <= set(kinds):
        raise ValueError(
            f"{path} must be a .parquet or .csv file, or a folder of files of one of these types"
        )
    return getattr(_polars(), kinds[endings.pop()])(files)


def _stream(X: Any, columns: Columns) -> Iterator[Pair]:
    """Batches of an Arrow stream: one by one where pyarrow is installed, else all at once."""
    polars = _polars()
    try:
        import pyarrow
    except ImportError:
        batches: Iterable[Any] = [X]
    else:
        batches = pyarrow.RecordBatchReader.from_stream(X)
    for batch in batches:
        frame = polars.DataFrame(batch)
        if len(frame):
            yield _part(frame, columns[0]), _part(frame, columns[1])


def _is_dask(X: object) -> bool:
    return type(X).__module__.split(".")[0] in ("dask", "dask_expr") and hasattr(X, "to_delayed")


def _blocks(X: Any, Z: Any, client: object) -> Blocks:
    """Blocks of rows of two Dask collections."""
    if not (_is_dask(X) and _is_dask(Z)):
        raise TypeError("X and Z must both be Dask collections, or neither; use dask.array")
    parts = []
    for name, A in (("X", X), ("Z", Z)):
        if getattr(A, "ndim", 1) == 2 and hasattr(A, "rechunk"):
            A = A.rechunk({1: -1})  # a block has whole rows
        found = A.to_delayed()
        parts.append(list(found.ravel()) if hasattr(found, "ravel") else list(found))
        if not parts[-1]:
            raise ValueError(f"{name} has no blocks")
    if len(parts[0]) != len(parts[1]):
        sizes = f"{len(parts[0])} and {len(parts[1])}"
        raise ValueError(f"X and Z must have the same blocks of rows, got {sizes}; rechunk one")
    return Blocks(list(zip(*parts, strict=True)), client=client)
