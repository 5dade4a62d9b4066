"""Sheets: tables in CSV and Parquet files, read and written by column name."""

import contextlib
import csv
import json
import math
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import numpy.typing as npt

from kernelbayes.cli.errors import InputError, explained

# A table: columns of numbers (NaN where empty) or of strings, by name, all of one length.
Sheet = dict[str, npt.NDArray[Any]]


def read(path: Path) -> Sheet:
    """Read a table; the file extension says its type."""
    kind = path.suffix.lower()
    if kind not in (".csv", ".parquet"):
        raise InputError(f"{path}: unknown file type {kind!r}; use .csv or .parquet")
    try:
        with explained("read", path):
            sheet = _read_csv(path) if kind == ".csv" else _read_parquet(path)
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not a text file in UTF-8") from error
    if not sheet or not len(next(iter(sheet.values()))):
        raise InputError(f"{path} is empty; a header and at least one row are needed")
    return sheet


def numbers(
    sheet: Sheet, columns: Sequence[str], path: Path, missing: bool = False
) -> npt.NDArray[np.float64]:
    """Columns (n, d) of numbers; NaN only if missing values are allowed."""
    found = []
    for name in columns:
        column = _column(sheet, name, path)
        if column.dtype.kind not in "fiub":
            cells = enumerate(column)
            row, text = next((i, t) for i, t in cells if not _is_number(t) and str(t).strip())
            raise InputError(f"{path}: column {name!r}, row {row + 2}: {text!r} is not a number")
        values = column.astype(np.float64)
        bad = np.flatnonzero(~np.isfinite(values) & ~(missing & np.isnan(values)))
        if len(bad):
            what = "is empty or NaN" if np.isnan(values[bad[0]]) else "is infinite"
            raise InputError(f"{path}: column {name!r}, row {bad[0] + 2} {what}")
        found.append(values)
    return np.column_stack(found)


def chosen(sheet: Sheet, columns: Sequence[str], path: Path) -> Sheet:
    """Return some columns, numbers or categories; text in a numeric column is refused."""
    found = {name: _column(sheet, name, path) for name in columns}
    for name in texts(found):
        cells = [cell for cell in found[name] if str(cell).strip()]
        if 0 < len(cells) <= 2 * sum(map(_is_number, cells)):
            numbers(sheet, [name], path)  # says which row is not a number
    return found


def texts(sheet: Sheet) -> list[str]:
    """Columns that are not numbers."""
    return [name for name, column in sheet.items() if column.dtype.kind not in "fiub"]


def points(sheet: Sheet, columns: Sequence[str], path: Path, missing: bool = False) -> Any:
    """Columns as input of the library: an array, one column of categories, or a frame."""
    found = chosen(sheet, columns, path)
    words = texts(found)
    if not words:
        return numbers(sheet, columns, path, missing)
    if holes := [name for name in words if not all(str(text).strip() for text in found[name])]:
        raise InputError(f"{path}: columns of categories have empty cells: {', '.join(holes)}")
    if len(columns) == 1:
        return found[columns[0]].astype(str)
    try:
        import pandas
    except ImportError as error:
        raise InputError(
            f"columns of text together with numbers ({', '.join(words)}) need pandas: "
            "pip install 'kernelbayes[pandas]'"
        ) from error
    return pandas.DataFrame(found)


def groups(sheet: Sheet, name: str | None, path: Path) -> list[npt.NDArray[np.intp]]:
    """Rows of each sequence, in the order of the file; a single sequence without a name."""
    n = len(next(iter(sheet.values())))
    if name is None:
        return [np.arange(n)]
    _, first, label = np.unique(_column(sheet, name, path), return_index=True, return_inverse=True)
    return [np.flatnonzero(label == k) for k in np.argsort(first)]


def others(sheet: Sheet, taken: Iterable[str]) -> list[str]:
    """Columns of a table that are not used yet."""
    return [name for name in sheet if name not in set(taken)]


def write(sheet: Mapping[str, Any], out: Path | None) -> None:
    """Write a table to a file, or as CSV to standard output."""
    columns = {name: np.asarray(column) for name, column in sheet.items()}
    if out is not None and out.suffix.lower() == ".parquet":
        frame = _parquet().DataFrame({name: column.tolist() for name, column in columns.items()})
        with explained("write", out):
            (frame.write_parquet if hasattr(frame, "write_parquet") else frame.to_parquet)(out)
        return
    with _written(out) as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(map(row, zip(*columns.values(), strict=True)))


def write_json(result: Mapping[str, Any], out: Path | None) -> None:
    """Write a result to a file, or to standard output, as JSON."""
    with _written(out) as file:
        json.dump(dict(result), file, indent=2)
        file.write("\n")


def row(values: Iterable[Any]) -> list[str]:
    """Cells of a row, numbers with all digits."""
    return [repr(float(v)) if isinstance(v, float | np.floating) else str(v) for v in values]


@contextlib.contextmanager
def _written(out: Path | None) -> Iterator[TextIO]:
    if out is None:
        yield sys.stdout
        return
    with explained("write", out), out.open("w", newline="") as file:
        yield file


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
    if len(header) == 1 and any(mark in header[0] for mark in ";\t"):
        raise InputError(f"{path}: cells must be separated by commas, got {header[0]!r}")
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
    """Return the library that reads and writes Parquet: polars, or pandas with pyarrow."""
    for name in ("polars", "pandas"):
        with contextlib.suppress(ImportError):
            return import_module(name)
    raise InputError("Parquet files need polars: pip install 'kernelbayes[parquet]'")


def _read_parquet(path: Path) -> Sheet:
    try:
        frame = _parquet().read_parquet(path)
    except (OSError, ImportError, InputError):
        raise
    except Exception as error:  # each library has its own errors
        raise InputError(f"{path}: not a Parquet file") from error
    found = {str(name): np.asarray(frame[name]) for name in frame.columns}
    for name in texts(found):  # including numbers in object columns
        column = frame[name]
        empty = column.isna() if hasattr(column, "isna") else column.is_null()
        cells = zip(column.to_list(), empty, strict=True)
        found[name] = _typed(["" if gone else str(cell) for cell, gone in cells])
    return found
