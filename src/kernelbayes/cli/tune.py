"""``tune``: choose kernels and ridges by cross-validation; a table of all settings tried."""

import argparse
from typing import Any

from kernelbayes.cli import errors, sheets
from kernelbayes.cli.analyse import fitted_rule
from kernelbayes.cli.common import model_of, write_report
from kernelbayes.cli.filter import fitted_filter
from kernelbayes.cli.options import Command
from kernelbayes.estimators import KernelBayesRule
from kernelbayes.filters import KernelBayesFilter


def _tune(arguments: argparse.Namespace) -> None:
    filters = arguments.filter or arguments.sequence is not None or arguments.u is not None
    if filters and arguments.prior is not None:
        raise errors.InputError("--prior is for tables of independent rows, not for filters")
    arguments.tune = True
    fit, kind = (fitted_filter, KernelBayesFilter) if filters else (fitted_rule, KernelBayesRule)
    model = model_of(arguments, kind, fit)[0]
    titles = dict.fromkeys(title for row in model.tuning_ for title in row)
    table = {t: [_cell(row.get(t)) for row in model.tuning_] for t in titles}
    data = {"training table": arguments.data, "observed": ", ".join(arguments.x)}
    data |= {"hidden": ", ".join(arguments.z), "prior": arguments.prior}
    write_report(arguments, model, data)
    sheets.write(table, arguments.out)


def _cell(value: Any) -> Any:
    """Return numbers as they are, None as an empty cell, and anything else as text."""
    return value if isinstance(value, float | int) else "" if value is None else str(value)


COMMANDS = (
    Command(
        _tune,
        "choose kernels and ridges by cross-validation; print the settings that were tried",
        "kernelbayes tune train.csv --x height,weight --z age --save model.kb    "
        "kernelbayes tune walks.csv --x rssi1,rssi2 --z east,north --sequence walk --save walk.kb",
        "data --x --z --u --sequence --filter --prior --rank --save",
    ),
)
