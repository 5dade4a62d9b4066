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
from kernelbayes.cli.common import check_asked, model_of, report_model, table_of
from kernelbayes.cli.errors import InputError
from kernelbayes.cli.live import Live
from kernelbayes.cli.options import Command
from kernelbayes.cli.sheets import Sheet
from kernelbayes.files import load, save
from kernelbayes.filters import KernelBayesFilter
from kernelbayes.filters.beliefs import check_state
from kernelbayes.filters.choose.tuning import tune_filter


def _filter(arguments: argparse.Namespace) -> None:
    if arguments.follow and (arguments.smooth or arguments.new):
        raise InputError("--follow reads standard input; leave out --new and --smooth")
    if arguments.follow and (arguments.out or arguments.report):
        raise InputError("--follow writes to standard output, or to --serve: no --out or --report")
    if arguments.serve is not None and not arguments.follow:
        raise InputError("--serve needs --follow")
    if not arguments.follow:
        check_asked(arguments, "give --new FILE, --follow or --save FILE")
    model, columns = model_of(arguments, KernelBayesFilter, fitted_filter)
    if arguments.follow:
        with nullcontext() if arguments.serve is None else Live(arguments.serve) as live:
            if live is not None:
                print(f"kernelbayes: see http://{live.hosts[0]}/", file=sys.stderr, flush=True)
            _follow(arguments, model, columns, live)
        return
    if arguments.new is None:
        return
    sheet = Sheet.read(arguments.new, columns.get("texts"))
    tables, beliefs, learned = [], [], columns.get("sequence")
    sequence = arguments.sequence or (learned if learned in sheet else None)
    for part in sheet.split(sequence):
        X, u = _observed(part, columns)
        found = model.smooth(X, u) if arguments.smooth else model.filter(X, u)
        beliefs.append(found)
        label = {} if sequence is None else {sequence: part[sequence]}
        known = () if found.info is None else ("support", "ess")
        trust = {name: to_numpy(getattr(found.info, name)) for name in known}
        tables.append(label | table_of(found, columns["z"], arguments.level) | trust)
    joined = {name: np.concatenate([t[name] for t in tables]) for name in tables[0]}
    found = beliefs[0] if len(beliefs) == 1 else beliefs
    held_out, smooth = beliefs[0].calibration, arguments.smooth
    report_model(
        arguments, model, columns, found, lambda: held_out or model.calibrate(smooth=smooth)
    )
    sheets.write(joined, arguments.out)


def fitted_filter(arguments: argparse.Namespace) -> tuple[Any, dict[str, Any]]:
    """Filter fitted to the training table, and its columns."""
    sheet = Sheet.read(arguments.data)
    sheet.words = sheet.chosen([*arguments.x, *arguments.z]).texts  # as in every sequence
    texts = [name for name in sheet.words if name in arguments.x]
    columns = {"x": arguments.x, "z": arguments.z, "u": arguments.u, "texts": texts}
    columns["sequence"] = arguments.sequence
    X, Z, U = [], [], []
    for part in sheet.split(arguments.sequence):
        seen, u = _observed(part, columns)
        X.append(seen)
        Z.append(part.points(arguments.z))
        U.append(u)
    single = len(X) == 1
    x, z = (X[0], Z[0]) if single else (X, Z)
    controls = None if arguments.u is None else U[0] if single else U
    model = KernelBayesFilter(rank=arguments.rank, rng=arguments.seed)
    if arguments.tune:
        return tune_filter(model, x, z, controls, rng=arguments.seed), columns
    return model.fit(x, z, controls), columns


def _observed(sheet: Sheet, columns: dict[str, Any]) -> tuple[Any, Any]:
    X = sheet.points(columns["x"], missing=True)
    return X, None if columns["u"] is None else sheet.numbers(columns["u"])


def _follow(
    arguments: argparse.Namespace, model: Any, columns: dict[str, Any], live: Live | None
) -> None:
    """Read a header and then one line per step; continue from the state file, if any."""
    state, source = model.start(), Path("standard input")
    if arguments.state is not None and arguments.state.exists():
        with errors.explained("read", arguments.state):
            state = load(arguments.state)
        check_state(state, model)
        if not arguments.quiet:
            print(f"kernelbayes: continues after step {state.t}", file=sys.stderr, flush=True)
    reader = csv.reader(sys.stdin, strict=True)
    header = [name.strip().removeprefix("\ufeff") for name in next(reader, [])]
    if not header:
        raise InputError("standard input is empty; a header line and observations are needed")
    Sheet.of(header, {}, source).chosen([*columns["x"], *(columns["u"] or [])])
    writer = csv.writer(sys.stdout, lineterminator="\n")
    titled = False
    for line, cells in enumerate(reader, start=2):
        cells = cells or [""] * (len(header) == 1)  # an empty line is an empty cell
        row = Sheet.of(header, {line: cells}, source, columns.get("texts", ()))
        control = None if columns["u"] is None else row.numbers(columns["u"])[0]
        state, info = model.step(state, _observation(row, columns["x"]), control)
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


def _observation(row: Sheet, names: list[str]) -> Any:
    """Return the observation in one line: numbers, a category, or both by name; None if empty."""
    texts = row.chosen(names).texts
    x = {name: row[name][0] for name in names}
    if all(not cell.strip() if name in texts else np.isnan(cell) for name, cell in x.items()):
        return None
    if not texts:
        return row.numbers(names, missing=True)[0]
    row.check_categories(texts)
    return x if len(x) > 1 else np.array(list(x.values()))


COMMANDS = (
    Command(
        _filter,
        "beliefs about hidden states over time, learned from recordings of both",
        "kernelbayes filter walks.csv --x rssi1,rssi2 --z east,north --sequence walk --new new.csv",
        "data --x --z --u --sequence --new --model --save --rank --tune --level --smooth --follow "
        "--state --serve",
    ),
)
