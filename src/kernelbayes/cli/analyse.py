"""``posterior``, ``infer``, ``test``, ``drift`` and ``graph``, for tables of independent rows."""

import argparse
import runpy
import sys
from pathlib import Path
from typing import Any

import numpy as np

from kernelbayes.arrays import quiet, to_numpy
from kernelbayes.cli import common, errors, sheets
from kernelbayes.cli.errors import InputError
from kernelbayes.compare import ci_test, drift_report, hsic_test, mmd_test
from kernelbayes.estimators import KernelBayesRule
from kernelbayes.graphs import KernelBeliefPropagation
from kernelbayes.likelihood_free.infer import infer
from kernelbayes.likelihood_free.model import LikelihoodFree
from kernelbayes.objects import blanks
from kernelbayes.select.calibration import calibrate
from kernelbayes.select.tuning import tune


def add_posterior(commands: Any) -> None:
    """Add ``kernelbayes posterior``."""
    command = common.add_command(
        commands,
        _posterior,
        "posterior of hidden columns given observed ones, learned from a table of both",
        "kernelbayes posterior train.csv --x height,weight --z age --new people.csv",
    )
    common.add_model(command)
    text = "table of draws of z (default: the training z)"
    command.add_argument("--prior", type=Path, metavar="FILE", help=text)


def _posterior(arguments: argparse.Namespace) -> None:
    model, columns = common.model_of(arguments, KernelBayesRule, fitted_rule)
    if arguments.new is None:
        if arguments.save is None:
            raise InputError("give --new FILE, or --save FILE to keep the fitted model")
        return
    new = sheets.points(sheets.read(arguments.new), columns["x"], arguments.new)
    found = model.posterior(new)
    table = common.table_of(found, columns["z"], arguments.level)
    if f"{columns['z'][0]}_sd" in table and model.values_ is not None:
        with quiet():  # the posterior has already warned
            ends = model.predict_interval(new, arguments.level).reshape(len(found.ess), -1, 2)
            spread = model.predict(new, return_std=True)[1].reshape(len(ends), -1, 1)
        every = np.concatenate([spread, ends], axis=2)  # calibrated by leave-one-out
        for j, name in enumerate(columns["z"]):
            names = (f"{name}_{end}" for end in ("sd", "low", "high"))
            table |= dict(zip(names, every[:, j].T, strict=True))
    trust = {"support": to_numpy(found.diagnostics.support), "ess": to_numpy(found.ess)}
    common.report_model(arguments, model, columns, found, lambda: calibrate(model))
    sheets.write({**table, **trust}, arguments.out)


def fitted_rule(arguments: argparse.Namespace) -> tuple[KernelBayesRule, dict[str, Any]]:
    """Rule fitted to the training table, and its columns."""
    sheet = sheets.read(arguments.data)
    X = sheets.points(sheet, arguments.x, arguments.data)
    Z = sheets.points(sheet, arguments.z, arguments.data)
    prior = None
    if arguments.prior is not None:
        prior = sheets.points(sheets.read(arguments.prior), arguments.z, arguments.prior)
    model = KernelBayesRule(rank=arguments.rank, rng=arguments.seed)
    if arguments.tune:
        model = tune(model, X, Z, prior=prior, rng=arguments.seed)
    else:
        model.fit(X, Z, prior=prior)
    return model, {"x": arguments.x, "z": arguments.z}


def add_infer(commands: Any) -> None:
    """Add ``kernelbayes infer``."""
    command = common.add_command(
        commands,
        _infer,
        "posterior of the parameters of a simulator, given data",
        "kernelbayes infer model.py --observed data.csv -n 1000",
    )
    add = command.add_argument
    text = "Python file with simulator(theta, rng) and prior, or a table of simulations"
    add("source", type=Path, metavar="SOURCE", help=text)
    add("--observed", type=Path, required=True, metavar="FILE", help="table with one row, the data")
    add(
        "--theta", type=errors.names, metavar="COLUMNS", help="parameters in a table of simulations"
    )
    add("--x", type=errors.names, metavar="COLUMNS", help="data columns (default: all others)")
    text = "simulations to run (default: 1000)"
    add("-n", "--simulations", type=errors.positive, default=1000, metavar="N", help=text)
    text = "rounds of simulations, or auto: as many as help (default: 1)"
    add("--rounds", type=errors.rounds, default=1, metavar="N", help=text)
    add("--draws", type=errors.positive, metavar="N", help="write draws instead of a summary")
    add("--level", type=errors.level, default=0.9, help="coverage of intervals (default: 0.9)")


def _infer(arguments: argparse.Namespace) -> None:
    observed = sheets.read(arguments.observed)
    if arguments.source.suffix == ".py":
        problem = _problem(arguments.source)
        x = sheets.numbers(observed, arguments.x or list(observed), arguments.observed)
        found = infer(
            problem["simulator"],
            problem["prior"],
            _one(x, arguments.observed),
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
        sheet = sheets.read(arguments.source)
        columns = arguments.x or sheets.others(sheet, arguments.theta)
        theta = sheets.numbers(sheet, arguments.theta, arguments.source)
        x = sheets.numbers(sheet, columns, arguments.source)
        model = LikelihoodFree(rng=arguments.seed).fit(theta, x)
        new = sheets.numbers(observed, columns, arguments.observed)
        found = model.posterior(_one(new, arguments.observed))
    d = np.atleast_1d(found.mean()).shape[0]
    labels = arguments.theta or list(found.names or [f"theta{j}" for j in range(d)])
    data = {"simulations of": arguments.source, "observed": arguments.observed}
    common.write_report(arguments, found, data, names=labels, level=arguments.level)
    if arguments.draws is not None:
        draws = found.sample(arguments.draws, rng=arguments.seed, method="iid")
        sheets.write(dict(zip(labels, to_numpy(draws).T, strict=True)), arguments.out)
        return
    rows = found.summary(arguments.level)
    titles = [title for title in rows[0] if title != "variable"]
    columns_out = {title: [row[title] for row in rows] for title in titles}
    sheets.write({"parameter": labels, **columns_out}, arguments.out)


def _one(x: Any, path: Path) -> Any:
    if len(x) != 1:
        raise InputError(f"{path} must have one row, the observed data; it has {len(x)}")
    return x[0]


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


def add_test(commands: Any) -> None:
    """Add ``kernelbayes test``."""
    command = common.add_command(
        commands,
        _test,
        "two-sample test of two tables, or independence test of columns of one table",
        "kernelbayes test before.csv after.csv    "
        "kernelbayes test table.csv --x dose --y effect --given age",
        kinds=(".json",),
    )
    add = command.add_argument
    add("tables", type=Path, nargs="+", metavar="TABLE", help="two tables, or one")
    add("--x", type=errors.names, metavar="COLUMNS", help="columns (default: all)")
    add("--y", type=errors.names, metavar="COLUMNS", help="columns to test for dependence on x")
    add("--given", type=errors.names, metavar="COLUMNS", help="test given these columns")
    text = "permutations (default: 1000)"
    add("--permutations", type=errors.positive, default=1000, metavar="B", help=text)


def _test(arguments: argparse.Namespace) -> None:
    options: Any = {"permutations": arguments.permutations, "rng": arguments.seed}
    read = [sheets.read(path) for path in arguments.tables]
    if len(read) == 2:
        if arguments.y or arguments.given:
            raise InputError("--y and --given need a single table; two were given")
        columns = arguments.x or list(read[0])
        each = zip(read, arguments.tables, strict=True)
        samples = [sheets.points(sheet, columns, path) for sheet, path in each]
        name, result = "mmd", mmd_test(*samples, **options)
    elif len(read) == 1 and arguments.x and arguments.y:
        path = arguments.tables[0]
        pair = [sheets.points(read[0], columns, path) for columns in (arguments.x, arguments.y)]
        if arguments.given:
            given = sheets.points(read[0], arguments.given, path)
            name, result = "ci", ci_test(pair[0], pair[1], given, **options)
        else:
            name, result = "hsic", hsic_test(*pair, **options)
    else:
        raise InputError("give two tables, or one with --x COLUMNS and --y COLUMNS")
    found = {"statistic": float(result.statistic), "pvalue": float(result.pvalue)}
    data = {"tables": ", ".join(map(str, arguments.tables))}
    for title in ("x", "y", "given"):
        data |= {title: ", ".join(getattr(arguments, title))} if getattr(arguments, title) else {}
    common.write_report(arguments, result, data)
    sheets.write_json({"test": name, **found}, arguments.out)


def add_drift(commands: Any) -> None:
    """Add ``kernelbayes drift``."""
    command = common.add_command(
        commands,
        _drift,
        "which columns differ between two tables, with effect sizes and corrected p-values",
        "kernelbayes drift january.csv february.csv --columns age,city",
    )
    add = command.add_argument
    add("before", type=Path, metavar="BEFORE", help="table, .csv or .parquet")
    add("after", type=Path, metavar="AFTER", help="table with the same columns")
    add("--columns", type=errors.names, metavar="COLUMNS", help="columns (default: all)")
    add("--alpha", type=errors.level, default=0.05, help="significance level (default: 0.05)")


def _drift(arguments: argparse.Namespace) -> None:
    paths = (arguments.before, arguments.after)
    read = [sheets.read(path) for path in paths]
    columns = arguments.columns or list(read[0])
    tables = [sheets.chosen(sheet, columns, path) for sheet, path in zip(read, paths, strict=True)]
    report = drift_report(*tables, alpha=arguments.alpha, rng=arguments.seed)
    rows = report.columns
    common.write_report(arguments, report, {"before": arguments.before, "after": arguments.after})
    sheets.write({title: [row[title] for row in rows] for title in rows[0]}, arguments.out)
    if not arguments.quiet:
        print(report.verdict, file=sys.stderr)


def add_graph(commands: Any) -> None:
    """Add ``kernelbayes graph``."""
    command = common.add_command(
        commands,
        _graph,
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
        common.write_report(arguments, asked, data, model=model, level=arguments.level)
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


COMMANDS = (add_posterior, add_infer, add_test, add_drift, add_graph)
