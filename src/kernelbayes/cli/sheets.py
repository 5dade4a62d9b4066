"""Sheets: tables in CSV and Parquet files, read and written by column name."""

from __future__ import annotations

import contextlib
import csv
import json
import math
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Self, TextIO

import numpy as np
import numpy.typing as npt

from kernelbayes.cli.errors import InputError, explained

Columns = dict[str, npt.NDArray[Any]]


class Sheet(Columns):
    """A table: columns of numbers (NaN where empty) or of strings, by name, all of one length.

    ``rows`` are the numbers of its rows in the file. ``words``, if known from a model or from
    another table, are the columns of text; every other column must then be numeric.
    """

    def __init__(
        self, columns: Mapping[str, npt.NDArray[Any]], path: Path, rows: Sequence[int],
        words: Sequence[str] | None = None,
    ) -> None:  # fmt: skip
        super().__init__(columns)
        self.path, self.rows, self.words = path, rows, words

    @classmethod
    def read(cls, path: Path, words: Sequence[str] | None = None) -> Self:
        """Read a table; the file extension says its type."""
        kind = path.suffix.lower()
        if kind not in (".csv", ".parquet"):
            raise InputError(f"{path}: unknown file type {kind!r}; use .csv or .parquet")
        with explained("read", path):
            sheet = (cls._of_csv if kind == ".csv" else cls._of_parquet)(path, words)
        if not sheet or not len(sheet.rows):
            raise InputError(f"{path} is empty; a header and at least one row are needed")
        return sheet

    @classmethod
    def of(
        cls, header: list[str], body: Mapping[int, list[str]], path: Path,
        words: Sequence[str] | None = None,
    ) -> Self:  # fmt: skip
        """Table of the cells of each row, by its number in the file."""
        twice = sorted({name for name in header if header.count(name) > 1})
        if twice:
            raise InputError(f"{path} has two columns named {twice[0]!r}")
        for row, cells in body.items():
            if len(cells) != len(header):
                raise InputError(
                    f"{path}: row {row} has {len(cells)} cells, the header {len(header)}"
                )
        columns = {
            name: _typed([cells[j] for cells in body.values()], name in (words or ()))
            for j, name in enumerate(header)
        }
        return cls(columns, path, list(body), words)

    @classmethod
    def _of_csv(cls, path: Path, words: Sequence[str] | None) -> Self:
        with path.open(newline="", encoding="utf-8-sig") as file:
            header, *lines = list(csv.reader(file, strict=True)) or [[]]
        header = [name.strip() for name in header]
        if len(header) == 1 and any(mark in header[0] for mark in ";\t"):
            raise InputError(f"{path}: cells must be separated by commas, got {header[0]!r}")
        body = {row: cells for row, cells in enumerate(lines, start=2) if cells}
        return cls.of(header, body, path, words)

    @classmethod
    def _of_parquet(cls, path: Path, words: Sequence[str] | None) -> Self:
        try:
            frame = _parquet().read_parquet(path)
        except (OSError, ImportError, InputError):
            raise
        except Exception as error:  # each library has its own errors
            raise InputError(f"{path}: not a Parquet file") from error
        found = {str(name): np.asarray(frame[name]) for name in frame.columns}
        for name, known in found.items():  # including numbers in object columns
            if known.dtype.kind not in "fiub" or name in (words or ()):
                column = frame[name]
                empty = column.isna() if hasattr(column, "isna") else column.is_null()
                cells = zip(column.to_list(), empty, strict=True)
                texts = ["" if gone else str(cell) for cell, gone in cells]
                found[name] = _typed(texts, name in (words or ()))
        return cls(found, path, range(1, len(frame) + 1), words)

    @property
    def texts(self) -> list[str]:
        """Columns that are not numbers."""
        return [name for name, column in self.items() if column.dtype.kind not in "fiub"]

    def column(self, name: str) -> npt.NDArray[Any]:
        """One column; an error that lists all of them if there is none of this name."""
        if name not in self:
            raise InputError(f"{self.path} has no column {name!r}; it has {', '.join(self)}")
        return self[name]

    def numbers(self, columns: Sequence[str], missing: bool = False) -> npt.NDArray[np.float64]:
        """Columns (n, d) of numbers; NaN only if missing values are allowed."""
        found = []
        for name in columns:
            column = self.column(name)
            if column.dtype.kind not in "fiub":
                cells = enumerate(column)
                i, text = next((i, t) for i, t in cells if not _is_number(t) and str(t).strip())
                raise InputError(f"{self._place(name, i)}: {text!r} is not a number")
            values = column.astype(np.float64)
            bad = np.flatnonzero(~np.isfinite(values) & ~(missing & np.isnan(values)))
            if len(bad):
                what = "is empty or NaN" if np.isnan(values[bad[0]]) else "is infinite"
                raise InputError(f"{self._place(name, int(bad[0]))} {what}")
            found.append(values)
        return np.column_stack(found)

    def _place(self, name: str, i: int) -> str:
        return f"{self.path}: column {name!r}, row {self.rows[i]}"

    def chosen(self, columns: Sequence[str]) -> Sheet:
        """Return some columns, numbers or categories; text in a numeric column is refused."""
        found = Sheet({name: self.column(name) for name in columns}, self.path, self.rows)
        for name in found.texts:
            cells = [cell for cell in found[name] if str(cell).strip()]
            numeric = 0 < len(cells) <= 2 * sum(map(_is_number, cells))
            if cells and (numeric if self.words is None else name not in self.words):
                self.numbers([name])  # says which row is not a number
        return found

    def points(self, columns: Sequence[str], missing: bool = False) -> Any:
        """Columns as input of the library: an array, one column of categories, or all by name."""
        found = self.chosen(columns)
        if not found.texts:
            return self.numbers(columns, missing)
        self.check_categories(found.texts)
        if len(columns) == 1:
            return found[columns[0]].astype(str)
        return dict(found)

    def check_categories(self, columns: Sequence[str]) -> None:
        """Raise an error if a column of categories has an empty cell."""
        for name in columns:
            for i, cell in enumerate(self[name]):
                if not str(cell).strip():
                    raise InputError(f"{self._place(name, i)} is empty; a category is needed")

    def split(self, name: str | None) -> list[Sheet]:
        """Sequences in the order of the file, by a column; a single one without a name."""
        if name is None:
            return [self]
        cells = self.column(name)
        _, first, label = np.unique(cells, return_index=True, return_inverse=True)
        each = [np.flatnonzero(label == k) for k in np.argsort(first)]
        return [
            Sheet({title: column[rows] for title, column in self.items()}, self.path,
                  [self.rows[int(i)] for i in rows], self.words)
            for rows in each
        ]  # fmt: skip


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


def write_rows(rows: Sequence[Mapping[str, Any]], out: Path | None, but: str = "") -> None:
    """Write rows but one of their titles: numbers as they are, None empty, the rest as text."""
    titles = dict.fromkeys(title for row in rows for title in row if title != but)
    cells = {title: [row.get(title) for row in rows] for title in titles}
    known = (float, int, type(None))
    write({t: [v if isinstance(v, known) else str(v) for v in c] for t, c in cells.items()}, out)


def write_json(result: Mapping[str, Any], out: Path | None) -> None:
    """Write a result to a file, or to standard output, as JSON."""
    with _written(out) as file:
        json.dump(dict(result), file, indent=2)
        file.write("\n")


def row(values: Iterable[Any]) -> list[str]:
    """Cells of a row: numbers with all digits, NaN as an empty cell."""
    cells = ["" if v is None or v != v else v for v in values]
    return [repr(float(v)) if isinstance(v, float | np.floating) else str(v) for v in cells]


@contextlib.contextmanager
def _written(out: Path | None) -> Iterator[TextIO]:
    if out is None:
        yield sys.stdout
        return
    with explained("write", out), out.open("w", newline="") as file:
        yield file


def _typed(cells: list[str], text: bool) -> npt.NDArray[Any]:
    """Floats if every cell is a number or empty; strings otherwise, or if it is known as text."""
    if not text and all(_is_number(cell) or not cell.strip() for cell in cells):
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
