"""``graph``: impute the empty cells of a table by belief propagation."""

import argparse
from pathlib import Path
from typing import Any

import numpy as np

from kernelbayes.arrays import to_numpy
from kernelbayes.cli import errors, sheets
from kernelbayes.cli.common import add_command, page
from kernelbayes.cli.errors import InputError
from kernelbayes.graphs import KernelBeliefPropagation
from kernelbayes.objects import blanks


def add_graph(commands: Any) -> None:
    """Add ``kernelbayes graph``."""
    command = add_command(
        commands,
        "graph",
        "impute the empty cells of a table, each from the other cells of its row",
        "kernelbayes graph table.csv --edges age-income,income-rent --out filled.csv",
    )
    add = command.add_argument
    add("data", type=Path, metavar="TABLE", help="table to learn from; cells may be empty")
    add("--new", type=Path, metavar="FILE", help="table to impute (default: TABLE itself)")
    add(
        "--edges",
        type=errors.names,
        metavar="A-B,B-C",
        help="which columns to connect (default: a tree, learned from the table)",
    )
    add("--rank", type=errors.positive, metavar="R", help="low-rank features, for many rows")
    add("--level", type=errors.level, default=0.9, help="coverage of intervals (default: 0.9)")
    command.set_defaults(run=_graph)


def _graph(arguments: argparse.Namespace) -> None:
    sheet = sheets.read(arguments.data)
    data = _nodes(sheets.chosen(sheet, list(sheet), arguments.data))
    graph = "tree" if arguments.edges is None else [_edge(e, data) for e in arguments.edges]
    used = list(data) if graph == "tree" else list(dict.fromkeys(n for e in graph for n in e))
    model = KernelBeliefPropagation(graph, rank=arguments.rank, rng=arguments.seed)
    model.fit({name: data[name] for name in used})
    path = arguments.new or arguments.data
    new = _nodes(sheets.chosen(sheets.read(path), used, path))
    beliefs = model.query(evidence=new)
    found: sheets.Sheet = {}
    for name, given in new.items():
        belief, empty = beliefs[name], blanks(given)
        if given.dtype.kind == "f":
            mean, ends = to_numpy(belief.mean())[:, 0], to_numpy(belief.interval(arguments.level))
            columns = {"": mean, "_low": ends[:, 0, 0], "_high": ends[:, 0, 1]}
            found |= {name + end: np.where(empty, values, given) for end, values in columns.items()}
        else:
            found[name] = np.where(empty, np.asarray(belief.mode()).ravel(), given)
    holes = [name for name, given in new.items() if any(blanks(given))]
    if arguments.report is not None:
        asked = model.query(holes or list(new), evidence=new)
        data = {"table": arguments.data, "filled": path, "rows": len(next(iter(new.values())))}
        page(arguments, asked, data, model=model, level=arguments.level)
    sheets.write(found, arguments.out)


def _nodes(sheet: sheets.Sheet) -> dict[str, Any]:
    """Columns as nodes: numbers with NaN, or categories with None, where cells are empty."""
    return {
        name: column.astype(float)
        if column.dtype.kind in "fiub"
        else np.array([str(text) or None for text in column], dtype=object)
        for name, column in sheet.items()
    }


def _edge(text: str, data: dict[str, Any]) -> tuple[str, str]:
    ends = text.split("-")
    if len(ends) != 2 or any(end not in data for end in ends):
        raise InputError(f"an edge joins two columns, A-B, got {text!r}; columns: {list(data)}")
    return ends[0], ends[1]


COMMANDS = (add_graph,)
