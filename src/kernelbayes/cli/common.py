"""Shared by the commands: models from files, reports, tables of answers."""

import argparse
from collections.abc import Callable
from typing import Any

import numpy as np

from kernelbayes.arrays import to_numpy
from kernelbayes.cli import errors
from kernelbayes.cli.errors import InputError
from kernelbayes.cli.sheets import Columns
from kernelbayes.embedding.export import deviations, is_categorical, parts, probabilities
from kernelbayes.files import load, save
from kernelbayes.report import report

Fitted = tuple[Any, dict[str, Any]]  # a model, and the columns it was fitted on


def model_of(
    arguments: argparse.Namespace, kind: type, fit: Callable[[argparse.Namespace], Fitted]
) -> Fitted:
    """Model and its columns: from the file --model, or fitted to TRAIN and saved if requested."""
    path = getattr(arguments, "model", None)
    if path is not None:
        fitting = ("data", "x", "z", "u", "prior", "rank", "tune", "save")
        given = [name for name in fitting if getattr(arguments, name, None)]
        if given:
            words = ", ".join("TRAIN" if name == "data" else f"--{name}" for name in given)
            raise InputError(f"the model in {path} is fitted already; leave out {words}")
        with errors.explained("read", path):
            found = load(path)
        if isinstance(found, kind):
            raise InputError(f"{path} was not written by this command; it has no columns")
        if not (isinstance(found, dict) and isinstance(found.get("model"), kind)):
            raise InputError(f"{path} does not contain a {kind.__name__}")
        return found["model"], found["columns"]
    wanted = {"TRAIN": arguments.data, "--x": arguments.x, "--z": arguments.z}
    missing = [name for name, value in wanted.items() if value is None]
    if missing:
        other = ", or --model FILE" if hasattr(arguments, "model") else ""
        raise InputError(f"give {' and '.join(missing)}{other}")
    model, columns = fit(arguments)
    if arguments.save is not None:
        with errors.explained("write", arguments.save):
            save({"model": model, "columns": columns}, arguments.save)
    return model, columns


def check_asked(arguments: argparse.Namespace, words: str) -> None:
    """Raise an error, before anything is fitted, if there is nothing to do or to write."""
    if arguments.new is None and arguments.save is None:
        raise InputError(words if arguments.model is None else "give new observations: --new FILE")
    if arguments.new is None and (arguments.out or arguments.report):
        raise InputError("--out and --report need new observations: give --new FILE")


def write_report(
    arguments: argparse.Namespace, result: Any, data: dict[str, Any], **options: Any
) -> None:
    """Write the report, if requested; it names the command that makes it again."""
    if arguments.report is None:
        return
    known = {title: value for title, value in data.items() if value is not None}
    with errors.explained("write", arguments.report):
        report(result, arguments.report, data=known, code=arguments.command_line, **options)


def report_model(
    arguments: argparse.Namespace, model: Any, columns: dict[str, Any], found: Any, learn: Any
) -> None:
    """Write the report of a model's answer, with its calibration where there is a closed form."""
    if arguments.report is None:
        return
    data = {"training": arguments.data or arguments.model, "new rows": arguments.new}
    for key, name in (("x", "observed"), ("z", "hidden"), ("u", "controls")):
        data[name] = ", ".join(columns.get(key) or []) or None
    data["prior"] = getattr(arguments, "prior", None)
    try:
        held_out = learn()
    except (TypeError, ValueError):
        held_out = None
    options = {"names": columns["z"], "level": arguments.level, "calibration": held_out}
    write_report(arguments, found, data, model=model, **options)


def table_of(beliefs: Any, names: list[str], level: float) -> Columns:
    """Columns of the answer: mean, sd and interval of numbers, probabilities of categories."""
    found: Columns = {}
    for part in parts(beliefs):
        own = names if part is beliefs else [*part.names]
        if is_categorical(part):
            labels, P = probabilities(part)
            found[own[0]] = np.asarray(labels)[np.argmax(P, axis=1)]
            found |= {f"{own[0]}_{label}": P[:, k] for k, label in enumerate(labels)}
            continue
        mean, std = (np.atleast_2d(to_numpy(a)) for a in (part.mean(), deviations(part)))
        ends = to_numpy(part.interval(level)).reshape(*mean.shape, 2)
        for j, name in enumerate(own):
            found |= {f"{name}_mean": mean[:, j], f"{name}_sd": std[:, j]}
            found |= {f"{name}_low": ends[:, j, 0], f"{name}_high": ends[:, j, 1]}
    return found
