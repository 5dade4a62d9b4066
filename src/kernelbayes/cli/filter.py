"""``filter``: beliefs about hidden states, from recordings or line by line."""

import argparse
import csv
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np

from kernelbayes.arrays import to_numpy
from kernelbayes.cli import errors, sheets
from kernelbayes.cli.common import add_command, add_model, model_of, report_model, table_of
from kernelbayes.cli.errors import InputError
from kernelbayes.cli.live import PORT, Live
from kernelbayes.files import load, save
from kernelbayes.filters import KernelBayesFilter
from kernelbayes.filters.choose.tuning import tune_filter


def add_filter(commands: Any) -> None:
    """Add ``kernelbayes filter``."""
    command = add_command(
        commands,
        _filter,
        "beliefs about hidden states over time, learned from recordings of both",
        "kernelbayes filter walks.csv --x rssi1,rssi2 --z east,north --sequence walk --new new.csv",
    )
    add_model(command)
    add = command.add_argument
    add("--u", type=errors.names, metavar="COLUMNS", help="controls, comma-separated")
    add("--sequence", metavar="COLUMN", help="column that identifies the sequences")
    add("--smooth", action="store_true", help="use later observations too")
    text = "read observations as CSV from standard input, and write a belief for each line"
    add("--follow", action="store_true", help=text)
    text = "with --follow: keep the state in this file, and continue from it"
    add("--state", type=Path, metavar="FILE", help=text)
    text = "with --follow: serve a live page of the belief, on this machine only"
    add("--serve", type=errors.seed, nargs="?", const=PORT, metavar="PORT", help=text)


def _filter(arguments: argparse.Namespace) -> None:
    if arguments.follow and (arguments.smooth or arguments.new is not None):
        raise InputError("--follow reads standard input; leave out --new and --smooth")
    if arguments.follow and arguments.out is not None:
        raise InputError("--follow writes beliefs to standard output, not to --out")
    if arguments.serve is not None and not arguments.follow:
        raise InputError("--serve needs --follow")
    if arguments.follow and arguments.report is not None:
        raise InputError("--report is for recordings; with --follow use --serve")
    model, columns = model_of(arguments, KernelBayesFilter, fitted_filter)
    if arguments.follow:
        with nullcontext() if arguments.serve is None else Live(arguments.serve) as live:
            if live is not None:
                print(f"kernelbayes: see http://{live.hosts[0]}/", file=sys.stderr, flush=True)
            _follow(arguments, model, columns, live)
        return
    if arguments.new is None:
        if arguments.save is None:
            raise InputError("give --new FILE, --follow or --save FILE")
        return
    sheet = sheets.read(arguments.new)
    tables, beliefs, learned = [], [], columns.get("sequence")
    sequence = arguments.sequence or (learned if learned in sheet else None)
    for rows in sheets.groups(sheet, sequence, arguments.new):
        part = {name: column[rows] for name, column in sheet.items()}
        X, u = _observed(part, columns, arguments.new)
        found = model.smooth(X, u) if arguments.smooth else model.filter(X, u)
        beliefs.append(found)
        label = {} if sequence is None else {sequence: part[sequence]}
        tables.append({**label, **_table(found, columns["z"], arguments.level)})
    joined = {name: np.concatenate([t[name] for t in tables]) for name in tables[0]}
    found = beliefs[0] if len(beliefs) == 1 else beliefs
    held_out, smooth = beliefs[0].calibration, arguments.smooth
    report_model(
        arguments, model, columns, found, lambda: held_out or model.calibrate(smooth=smooth)
    )
    sheets.write(joined, arguments.out)


def fitted_filter(arguments: argparse.Namespace) -> tuple[Any, dict[str, Any]]:
    """Filter fitted to the training table, and its columns."""
    sheet, path = sheets.read(arguments.data), arguments.data
    texts = sheets.texts(sheets.chosen(sheet, arguments.x, path))
    columns = {"x": arguments.x, "z": arguments.z, "u": arguments.u, "texts": texts}
    columns["sequence"] = arguments.sequence
    X, Z, U = [], [], []
    for rows in sheets.groups(sheet, arguments.sequence, path):
        part = {name: column[rows] for name, column in sheet.items()}
        seen, u = _observed(part, columns, path)
        X.append(seen)
        Z.append(sheets.points(part, arguments.z, path))
        U.append(u)
    single = len(X) == 1
    x, z = (X[0], Z[0]) if single else (X, Z)
    controls = None if arguments.u is None else U[0] if single else U
    model = KernelBayesFilter(rank=arguments.rank, rng=arguments.seed)
    if arguments.tune:
        return tune_filter(model, x, z, controls, rng=arguments.seed), columns
    return model.fit(x, z, controls), columns


def _observed(sheet: sheets.Sheet, columns: dict[str, Any], path: Path) -> tuple[Any, Any]:
    X = sheets.points(sheet, columns["x"], path, missing=True)
    u = None if columns["u"] is None else sheets.numbers(sheet, columns["u"], path)
    return X, u


def _table(beliefs: Any, names: list[str], level: float) -> sheets.Sheet:
    found = table_of(beliefs, names, level)
    if beliefs.info is not None:
        found |= {"support": to_numpy(beliefs.info.support), "ess": to_numpy(beliefs.info.ess)}
    return found


def _follow(
    arguments: argparse.Namespace, model: Any, columns: dict[str, Any], live: Live | None
) -> None:
    """Read a header and then one line per step; continue from the state file, if any."""
    state = model.start()
    if arguments.state is not None and arguments.state.exists():
        state = load(arguments.state)
    reader = csv.reader(sys.stdin)
    header = next(reader, None)
    if not header:
        raise InputError("standard input is empty; a header line and observations are needed")
    wanted = [*columns["x"], *(columns["u"] or [])]
    missing = [name for name in wanted if name not in header]
    if missing:
        raise InputError(f"standard input has no column {missing[0]!r}; it has {', '.join(header)}")
    writer = csv.writer(sys.stdout, lineterminator="\n")
    titled = False
    for line, row in enumerate(reader, start=2):
        if len(row) != len(header):
            raise InputError(f"line {line} has {len(row)} cells, the header has {len(header)}")
        cells = dict(zip(header, row, strict=True))
        control = None
        if columns["u"] is not None:
            control = np.array([_number(cells[name], name, line) for name in columns["u"]])
        state, info = model.step(state, _observation(cells, columns, line), control)
        if arguments.state is not None:
            save(state, arguments.state)
        table = table_of(state.belief, columns["z"], arguments.level)
        found = {name: column[0] for name, column in table.items()}
        found |= {"support": info.support, "ess": info.ess}
        if live is not None:
            live.publish({"t": state.t, **found, "prior_share": info.prior_share})
        if not titled:
            writer.writerow(found)
            titled = True
        writer.writerow(sheets.row(found.values()))
        sys.stdout.flush()


def _observation(cells: dict[str, str], columns: dict[str, Any], line: int) -> Any:
    """Return the observation in one line: numbers, a category, or both by name; None if empty."""
    texts = columns.get("texts", ())
    if not any(cells[name].strip() for name in columns["x"]):
        return None
    empty = [name for name in texts if not cells[name].strip()]
    if empty:
        raise InputError(f"line {line}: the category {empty[0]!r} is empty, but others are not")
    x = {n: cells[n] if n in texts else _number(cells[n], n, line) for n in columns["x"]}
    if not texts:
        return np.array(list(x.values()))
    return x if len(x) > 1 else np.array(list(x.values()))


def _number(text: str, name: str, line: int) -> float:
    if not text.strip():
        return float("nan")
    try:
        return float(text)
    except ValueError:
        raise InputError(f"line {line}, column {name!r}: {text!r} is not a number") from None


COMMANDS = (add_filter,)
