"""The command ``kernelbayes``. The only module that prints.

Bad input ends with exit code 2 and one line on standard error that says what was wrong.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from kernelbayes import __version__
from kernelbayes.demo.story import demo


class InputError(Exception):
    """Something the person at the keyboard can put right."""


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors are one line."""

    def error(self, message: str) -> NoReturn:
        """Raise instead of printing usage and leaving."""
        raise InputError(f"{message} (see {self.prog} --help)")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code: 0, or 2 for bad input."""
    parser = _parser()
    try:
        arguments = parser.parse_args(argv)
        if arguments.command is None:
            parser.print_help()
        else:
            arguments.run(arguments)
    except InputError as error:
        print(f"kernelbayes: error: {error}", file=sys.stderr)
        return 2
    return 0


def _parser() -> Parser:
    parser = Parser(
        prog="kernelbayes",
        description="Bayesian inference without a model: Bayes' rule as linear algebra on samples.",
    )
    parser.add_argument("--version", action="version", version=f"kernelbayes {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="command", title="commands")
    command = commands.add_parser(
        "demo",
        help="a robot learns a building from 1000 frames of its camera, then finds itself",
        description="A robot learns a building from 1000 labelled frames of its camera. Switched "
        "on somewhere unknown, it finds itself: a table of errors, a picture and a film.",
    )
    out, text = Path("kernelbayes-demo"), "directory for the pictures (default: %(default)s)"
    command.add_argument("--out", type=Path, default=out, metavar="DIR", help=text)
    command.add_argument(
        "--seed", type=_seed, default=0, metavar="N", help="seed of the drives (default: 0)"
    )
    command.set_defaults(run=_demo)
    return parser


def _demo(arguments: argparse.Namespace) -> None:
    out: Path = arguments.out
    if out.exists() and not out.is_dir():
        raise InputError(f"--out must be a directory, but {out} is a file")
    try:
        for line in demo(out, arguments.seed):
            print(line, flush=True)
    except OSError as error:
        raise InputError(f"cannot write to {out}: {error.strerror or error}") from error


def _seed(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"a whole number >= 0 is needed, got {text!r}")
    return int(text)
