"""``kernelbayes demo``: the library at work on data it makes."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from kernelbayes.cli.errors import InputError, seed
from kernelbayes.demo.story import demo


def add_demo(commands: Any) -> None:
    """Add the command."""
    command = commands.add_parser(
        "demo",
        help="a robot learns a building from 1000 frames of its camera, then finds itself",
        description="A robot learns a building from 1000 labelled frames of its camera. Switched "
        "on somewhere unknown, it finds itself: a table of errors, a picture and a film.",
    )
    out, text = Path("kernelbayes-demo"), "directory for the pictures (default: %(default)s)"
    command.add_argument("--out", type=Path, default=out, metavar="DIR", help=text)
    command.add_argument(
        "--seed", type=seed, default=0, metavar="N", help="seed of the drives (default: 0)"
    )
    command.set_defaults(run=_demo)


def _demo(arguments: argparse.Namespace) -> None:
    out: Path = arguments.out
    if out.exists() and not out.is_dir():
        raise InputError(f"--out must be a directory, but {out} is a file")
    try:
        for line in demo(out, arguments.seed):
            print(line, flush=True)
    except OSError as error:
        raise InputError(f"cannot write to {out}: {error.strerror or error}") from error


COMMANDS = (add_demo,)
