"""``posterior``, ``infer``, ``test``, ``drift``, ``graph`` and ``tune``: analyses of tables."""

import argparse
import runpy
import sys
from pathlib import Path
from typing import Any

import numpy as np

from kernelbayes.arrays import to_numpy
from kernelbayes.cli import common, errors, sheets
from kernelbayes.cli.errors import InputError
from kernelbayes.cli.filter import fitted_filter
from kernelbayes.cli.options import Command
from kernelbayes.cli.sheets import Sheet
from kernelbayes.compare import ci_test, drift_report, hsic_test, mmd_test
from kernelbayes.estimators import KernelBayesRule
from kernelbayes.filters import KernelBayesFilter
from kernelbayes.graphs import KernelBeliefPropagation
from kernelbayes.likelihood_free.infer import infer
from kernelbayes.likelihood_free.model import LikelihoodFree
from kernelbayes.objects import blanks
from kernelbayes.select.calibration import calibrate
from kernelbayes.select.tuning import tune


def _posterior(arguments: argparse.Namespace) -> None:
    common.check_asked(arguments, "give --new FILE, or --save FILE to keep the fitted model")
    model, columns = common.model_of(arguments, KernelBayesRule, fitted_rule)
    if arguments.new is None:
        return
    new = Sheet.read(arguments.new, columns.get("texts")).points(columns["x"])
    found = model.posterior(new)
    table = common.table_of(found, columns["z"], arguments.level)
    trust = {"support": to_numpy(found.diagnostics.support), "ess": to_numpy(found.ess)}
    common.report_model(arguments, model, columns, found, lambda: calibrate(model))
    sheets.write({**table, **trust}, arguments.out)


def fitted_rule(arguments: argparse.Namespace) -> tuple[KernelBayesRule, dict[str, Any]]:
    """Rule fitted to the training table, and its columns."""
    sheet, prior = Sheet.read(arguments.data), None
    X, Z = sheet.points(arguments.x), sheet.points(arguments.z)
    columns = {"x": arguments.x, "z": arguments.z, "texts": sheet.chosen(arguments.x).texts}
    if arguments.prior is not None:
        prior = Sheet.read(arguments.prior, sheet.texts).points(arguments.z)
    model = KernelBayesRule(rank=arguments.rank, rng=arguments.seed)
    if arguments.tune:
        return tune(model, X, Z, prior=prior, rng=arguments.seed), columns
    return model.fit(X, Z, prior=prior), columns


def _infer(arguments: argparse.Namespace) -> None:
    observed = Sheet.read(arguments.observed)
    if arguments.data.suffix == ".py":
        problem = _problem(arguments.data)
        found = infer(
            problem["simulator"],
            problem["prior"],
            _one(observed, arguments.x or list(observed)),
            n_simulations=arguments.simulations,
            rng=arguments.seed,
            rounds=arguments.rounds,
        )
        if found.suggestion and not arguments.quiet:
            advised = found.suggestion.replace("infer(..., rounds='auto')", "--rounds auto")
            print(f"note: {advised}", file=sys.stderr)
    else:
        if arguments.rounds != 1:
            raise InputError("--rounds needs a simulator: a Python file instead of a table")
        if arguments.theta is None:
            raise InputError("give --theta COLUMNS to say which columns are parameters")
        sheet = Sheet.read(arguments.data)
        columns = arguments.x or [name for name in sheet if name not in arguments.theta]
        model = LikelihoodFree(rng=arguments.seed)
        model.fit(sheet.numbers(arguments.theta), sheet.numbers(columns))
        found = model.posterior(_one(observed, columns))
    d = np.atleast_1d(found.mean()).shape[0]
    labels = arguments.theta or list(found.names or [f"theta{j}" for j in range(d)])
    data = {"simulations of": arguments.data, "observed": arguments.observed}
    common.write_report(arguments, found, data, names=labels, level=arguments.level)
    if arguments.draws is not None:
        draws = found.sample(arguments.draws, rng=arguments.seed, method="iid")
        sheets.write(dict(zip(labels, to_numpy(draws).T, strict=True)), arguments.out)
        return
    rows = zip(labels, found.summary(arguments.level), strict=True)
    named = [{"parameter": label, **row} for label, row in rows]
    sheets.write_rows(named, arguments.out, but="variable")


def _one(sheet: Sheet, columns: list[str]) -> Any:
    if len(sheet.rows) != 1:
        n = len(sheet.rows)
        raise InputError(f"{sheet.path} must have one row, the observed data; it has {n}")
    return sheet.numbers(columns)[0]


def _problem(path: Path) -> dict[str, Any]:
    try:
        with errors.explained("read", path):
            found = runpy.run_path(str(path))
    except InputError:
        raise
    except (Exception, SystemExit) as error:
        raise InputError(f"running {path} failed: {type(error).__name__}: {error}") from error
    missing = [name for name in ("simulator", "prior") if name not in found]
    if missing:
        raise InputError(f"{path} must define {' and '.join(missing)}")
    return found


def _test(arguments: argparse.Namespace) -> None:
    options: Any = {"permutations": arguments.permutations, "rng": arguments.seed}
    sheet, *others = _alike(*arguments.data)
    if len(others) == 1:
        if arguments.y or arguments.given:
            raise InputError("--y and --given need a single table; two were given")
        samples = [one.points(arguments.x or list(sheet)) for one in (sheet, *others)]
        name, result = "mmd", mmd_test(*samples, **options)
    elif not others and arguments.x and arguments.y:
        pair = [sheet.points(columns) for columns in (arguments.x, arguments.y)]
        if arguments.given:
            given = sheet.points(arguments.given)
            name, result = "ci", ci_test(pair[0], pair[1], given, **options)
        else:
            name, result = "hsic", hsic_test(*pair, **options)
    else:
        raise InputError("give two tables, or one with --x COLUMNS and --y COLUMNS")
    found = {"statistic": float(result.statistic), "pvalue": float(result.pvalue)}
    data = {"tables": ", ".join(map(str, arguments.data))}
    for title in ("x", "y", "given"):
        data |= {title: ", ".join(getattr(arguments, title))} if getattr(arguments, title) else {}
    common.write_report(arguments, result, data)
    sheets.write_json({"test": name, **found}, arguments.out)


def _alike(first: Path, *others: Path) -> list[Sheet]:
    """Tables, whose columns of text are those of the first."""
    sheet = Sheet.read(first)
    return [sheet, *(Sheet.read(path, sheet.texts) for path in others)]


def _drift(arguments: argparse.Namespace) -> None:
    both = _alike(arguments.before, arguments.after)
    tables = [sheet.chosen(arguments.columns or list(both[0])) for sheet in both]
    report = drift_report(*tables, alpha=arguments.alpha, rng=arguments.seed)
    common.write_report(arguments, report, {"before": arguments.before, "after": arguments.after})
    sheets.write_rows(report.columns, arguments.out)
    if not arguments.quiet:
        print(report.verdict, file=sys.stderr)


def _graph(arguments: argparse.Namespace) -> None:
    sheet = Sheet.read(arguments.data)
    sheet = sheet.chosen(list(sheet))
    data = _nodes(sheet)
    graph = "tree" if arguments.edges is None else [_edge(e, data) for e in arguments.edges]
    used = list(data) if graph == "tree" else list(dict.fromkeys(n for e in graph for n in e))
    model = KernelBeliefPropagation(graph, rank=arguments.rank, rng=arguments.seed)
    model.fit({name: data[name] for name in used})
    path = arguments.new or arguments.data
    new = _nodes(Sheet.read(path, sheet.texts).chosen(used))
    beliefs = model.query(evidence=new)
    found: sheets.Columns = {}
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
        common.write_report(arguments, asked, data, model=model, level=arguments.level)
    sheets.write(found, arguments.out)


def _nodes(sheet: Sheet) -> dict[str, Any]:
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


def _tune(arguments: argparse.Namespace) -> None:
    filters = arguments.filter or arguments.sequence is not None or arguments.u is not None
    if filters and arguments.prior is not None:
        raise InputError("--prior is for tables of independent rows, not for filters")
    arguments.tune = True
    fit, kind = (fitted_filter, KernelBayesFilter) if filters else (fitted_rule, KernelBayesRule)
    model = common.model_of(arguments, kind, fit)[0]
    data = {"training table": arguments.data, "observed": ", ".join(arguments.x)}
    data |= {"hidden": ", ".join(arguments.z), "prior": arguments.prior}
    common.write_report(arguments, model, data)
    sheets.write_rows(model.tuning_, arguments.out)


COMMANDS = (
    Command(
        _posterior,
        "posterior of hidden columns given observed ones, learned from a table of both",
        "kernelbayes posterior train.csv --x height,weight --z age --new people.csv",
        "data --x --z --prior --new --model --save --rank --tune --level",
    ),
    Command(
        _infer,
        "posterior of the parameters of a simulator, given data",
        "kernelbayes infer model.py --observed data.csv -n 1000",
        "data --observed --theta --x -n/--simulations --rounds --draws --level",
    ),
    Command(
        _test,
        "two-sample test of two tables, or independence test of columns of one table",
        "kernelbayes test before.csv after.csv    "
        "kernelbayes test table.csv --x dose --y effect --given age",
        "data --x --y --given --permutations",
        (".json",),
    ),
    Command(
        _drift,
        "which columns differ between two tables, with effect sizes and corrected p-values",
        "kernelbayes drift january.csv february.csv --columns age,city",
        "before after --columns --alpha",
    ),
    Command(
        _graph,
        "impute the empty cells of a table, each from the other cells of its row",
        "kernelbayes graph table.csv --edges age-income,income-rent --out filled.csv",
        "data --new --edges --rank --level",
    ),
    Command(
        _tune,
        "choose kernels and ridges by cross-validation; print the settings that were tried",
        "kernelbayes tune train.csv --x height,weight --z age --save model.kb    "
        "kernelbayes tune walks.csv --x rssi1,rssi2 --z east,north --sequence walk --save walk.kb",
        "data --x --z --u --sequence --filter --prior --rank --save",
    ),
)
