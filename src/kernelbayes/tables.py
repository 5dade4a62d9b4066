"""Tables: rows with a readable repr, and frames where pandas is installed."""

import os
import warnings
from collections.abc import Iterable, Mapping
from html import escape
from importlib import import_module
from itertools import chain, count
from pathlib import Path
from typing import Any

Row = dict[str, Any]
BUILT = Path(__file__).parents[2] / "docs" / "_build"  # by make docs, in a checkout
SHOWN_ROWS = 20  # of a table in a notebook or its repr: more are cut off, as pandas does


class Table(list[Row]):
    """Rows (dicts), one for each thing that was tried or asked.

    >>> Table([{"kernel": "Gaussian", "score": 0.25}, {"kernel": "Laplace", "score": 1 / 3}])
    kernel    score
    Gaussian  0.25
    Laplace   0.3333
    """

    @property
    def best(self) -> Row:
        """Row with the smallest ``"score"``."""
        return min(self, key=lambda row: row["score"])

    def to_frame(self) -> Any:
        """Pandas frame with one line for each row."""
        return as_frame(list(self))

    def _cells(self) -> list[list[str]]:
        """Header and rows as text, numbers to four digits."""
        names = list(dict.fromkeys(name for row in self for name in row))
        lines = ([row.get(name, "") for name in names] for row in self)
        shown = ([f"{v:.4g}" if isinstance(v, float) else str(v) for v in line] for line in lines)
        return [names, *shown]

    def _repr_html_(self) -> str:
        """Table for notebooks; names are escaped."""
        rest = len(self) - SHOWN_ROWS
        more = f"<p>and {rest} more rows</p>" if rest > 0 else ""
        return Table(self[:SHOWN_ROWS]).html() + more

    def html(self) -> str:
        """All rows as HTML; names are escaped."""
        head, *body = ([escape(cell) for cell in line] for line in self._cells())
        rows = (f"<tr><td>{'</td><td>'.join(line)}</td></tr>" for line in body)
        return f"<table><tr><th>{'</th><th>'.join(head)}</th></tr>{''.join(rows)}</table>"

    def __repr__(self) -> str:
        """Columns side by side; of long tables the first rows. ``to_frame()`` has all."""
        lines, rest = Table(self[:SHOWN_ROWS])._cells(), len(self) - SHOWN_ROWS
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        padded = ([f"{cell:{w}}" for cell, w in zip(line, widths, strict=True)] for line in lines)
        more = f"\n... and {rest} more rows; to_frame() has all" if rest > 0 else ""
        return "\n".join("  ".join(line).rstrip() for line in padded) + more


class HtmlTable:
    """Results that notebooks show as their repr and a table of numbers."""

    summary: Any  # where there is one, it is shown

    def _numbers(self) -> Table:
        """Table to show; empty if there are no numbers to tell."""
        return Table(self.summary())

    def _repr_html_(self) -> str:
        """Text for notebooks. Nothing that goes wrong here may hide the object: then, its repr."""
        with warnings.catch_warnings(action="ignore"):
            try:
                table = self._numbers()
            except (TypeError, ValueError, ArithmeticError):
                table = Table()
        return f"<pre>{escape(repr(self))}</pre>{table._repr_html_() if table else ''}"


def distinct(names: Iterable[str], taken: Iterable[str] = ()) -> list[str]:
    """Names that differ from each other and from those taken; one that does not gets a number.

    >>> distinct(["a", "b", "a"], taken=["b"])
    ['a', 'b_2', 'a_2']
    """
    used, found = set(taken), []
    for name in names:
        free = (new for new in chain([name], (f"{name}_{k}" for k in count(2))) if new not in used)
        found.append(next(free))
        used.add(found[-1])
    return found


def as_frame(rows: Iterable[Row] | Mapping[str, Any], **options: Any) -> Any:
    """Pandas frame of rows or of columns; an ImportError that names the extra without pandas."""
    return extra("pandas", "pandas", "frames need pandas").DataFrame(rows, **options)


def extra(module: str, name: str, needed: str) -> Any:
    """Import a module that is optional, or say which extra of the library to install."""
    try:
        return import_module(module)
    except ImportError as error:
        raise ImportError(f"{needed}: pip install 'kernelbayes[{name}]'") from error


class Documented:
    """Estimators whose notebook picture links to ``KERNELBAYES_DOCS``, or to what is built here."""

    _doc_link_module = __name__.partition(".")[0]

    @property
    def _doc_link_template(self) -> str:
        place = os.environ.get("KERNELBAYES_DOCS") or (BUILT.as_uri() if BUILT.is_dir() else "")
        return place and f"{place.rstrip('/')}/generated/kernelbayes.{{estimator_name}}.html"
