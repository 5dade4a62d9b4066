"""Sheets: tables in CSV and Parquet files, read and written by column name."""

from __future__ import annotations

import contextlib
import csv
import json
import math
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import numpy.typing as npt

from kernelbayes.cli.errors import InputError

# A table: columns of numbers (NaN where empty) or of strings, by name, all of one length.
Sheet = dict[str, npt.NDArray[Any]]


def read(path: Path) -> Sheet:
    """Read a table; its kind is known by the ending of its name."""
    kind = path.suffix.lower()
    if kind not in (".csv", ".parquet"):
        raise InputError(f"{path}: unknown file type {kind!r}; use .csv or .parquet")
    try:
        sheet = _read_csv(path) if kind == ".csv" else _read_parquet(path)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not a text file in UTF-8") from error
    if not sheet or not len(next(iter(sheet.values()))):
        raise InputError(f"{path} is empty; a header and at least one row are needed")
    return sheet


def numbers(
    sheet: Sheet, columns: Sequence[str], path: Path, missing: bool = False
) -> npt.NDArray[np.float64]:
    """Columns (n, d) of numbers; NaN only where values may be missing."""
    found = []
    for name in columns:
        column = _column(sheet, name, path)
        if column.dtype.kind not in "fiub":
            row, text = next((i, t) for i, t in enumerate(column) if not _is_number(t))
            raise InputError(f"{path}: column {name!r}, row {row + 2}: {text!r} is not a number")
        values = column.astype(np.float64)
        bad = np.flatnonzero(~np.isfinite(values) & ~(missing & np.isnan(values)))
        if len(bad):
            what = "is empty or NaN" if np.isnan(values[bad[0]]) else "is infinite"
            raise InputError(f"{path}: column {name!r}, row {bad[0] + 2} {what}")
        found.append(values)
    return np.column_stack(found)


def chosen(sheet: Sheet, columns: Sequence[str], path: Path) -> Sheet:
    """Return some columns of a table as they are."""
    return {name: _column(sheet, name, path) for name in columns}


def points(sheet: Sheet, columns: Sequence[str], path: Path, missing: bool = False) -> Any:
    """Columns as the library takes them: an array, one column of categories, or a frame."""
    found = chosen(sheet, columns, path)
    texts = [name for name, column in found.items() if column.dtype.kind not in "fiub"]
    # A number in a column says that the others were meant to be numbers too.
    if not texts or any(any(map(_is_number, found[name])) for name in texts):
        return numbers(sheet, columns, path, missing)
    if any(not str(text) for name in texts for text in found[name]):
        raise InputError(f"{path}: a column of categories has empty cells: {', '.join(texts)}")
    if len(columns) == 1:
        return found[columns[0]].astype(str)
    try:
        import pandas
    except ImportError as error:
        raise InputError(
            f"columns of text beside numbers ({', '.join(texts)}) need pandas: "
            "pip install 'kernelbayes[pandas]'"
        ) from error
    return pandas.DataFrame(found)


def groups(sheet: Sheet, name: str | None, path: Path) -> list[npt.NDArray[np.intp]]:
    """Rows of each sequence, in the order of the file; one sequence without a name."""
    n = len(next(iter(sheet.values())))
    if name is None:
        return [np.arange(n)]
    _, first, label = np.unique(_column(sheet, name, path), return_index=True, return_inverse=True)
    return [np.flatnonzero(label == k) for k in np.argsort(first)]


def others(sheet: Sheet, taken: Iterable[str]) -> list[str]:
    """Columns of a table that are not taken."""
    return [name for name in sheet if name not in set(taken)]


def write(sheet: Mapping[str, Any], out: Path | None) -> None:
    """Write a table to a file, or as CSV to standard output."""
    columns = {name: np.asarray(column) for name, column in sheet.items()}
    with _written(out) as file:
        if file is None:
            _write_parquet(columns, out)
            return
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(map(_row, zip(*columns.values(), strict=True)))


def write_json(result: Mapping[str, Any], out: Path | None) -> None:
    """Write a result to a file, or to standard output, as JSON."""
    text = json.dumps(dict(result), indent=2) + "\n"
    if out is None:
        sys.stdout.write(text)
        return
    try:
        out.write_text(text)
    except OSError as error:
        raise InputError(f"cannot write {out}: {error.strerror or error}") from error


def _row(row: Iterable[Any]) -> list[str]:
    return [repr(float(v)) if isinstance(v, float | np.floating) else str(v) for v in row]


@contextlib.contextmanager
def _written(out: Path | None) -> Iterator[TextIO | None]:
    if out is None:
        yield sys.stdout
    elif out.suffix.lower() == ".parquet":
        yield None
    else:
        try:
            with out.open("w", newline="") as file:
                yield file
        except OSError as error:
            raise InputError(f"cannot write {out}: {error.strerror or error}") from error


def _column(sheet: Sheet, name: str, path: Path) -> npt.NDArray[Any]:
    if name not in sheet:
        raise InputError(f"{path} has no column {name!r}; it has {', '.join(sheet)}")
    return sheet[name]


def _read_csv(path: Path) -> Sheet:
    with path.open(newline="", encoding="utf-8-sig") as file:
        rows = list(csv.reader(file))
    if not rows:
        return {}
    header = [name.strip() for name in rows[0]]
    twice = sorted({name for name in header if header.count(name) > 1})
    if twice:
        raise InputError(f"{path} has two columns named {twice[0]!r}")
    body = [row for row in rows[1:] if row]
    for i, row in enumerate(body):
        if len(row) != len(header):
            raise InputError(f"{path}: row {i + 2} has {len(row)} cells, the header {len(header)}")
    return {name: _typed([row[j] for row in body]) for j, name in enumerate(header)}


def _typed(cells: list[str]) -> npt.NDArray[Any]:
    """Floats if every cell is a number or empty; strings otherwise."""
    if all(_is_number(cell) or not cell.strip() for cell in cells):
        return np.array([float(cell) if cell.strip() else math.nan for cell in cells])
    return np.array(cells, dtype=object)


def _is_number(text: object) -> bool:
    try:
        float(str(text))
    except ValueError:
        return False
    return True


def _parquet() -> Any:
    try:
        import pandas

        return pandas
    except ImportError as error:
        raise InputError(
            "Parquet files need pandas and pyarrow: pip install pandas pyarrow"
        ) from error


def _read_parquet(path: Path) -> Sheet:
    try:
        frame = _parquet().read_parquet(path)
    except ImportError as error:
        raise InputError("Parquet files need pyarrow: pip install pyarrow") from error
    except (ValueError, TypeError) as error:
        raise InputError(f"{path}: not a Parquet file") from error
    return {str(name): frame[name].to_numpy() for name in frame.columns}


def _write_parquet(columns: Mapping[str, Any], out: Path | None) -> None:
    try:
        _parquet().DataFrame(columns).to_parquet(out)
    except ImportError as error:
        raise InputError("Parquet files need pyarrow: pip install pyarrow") from error
