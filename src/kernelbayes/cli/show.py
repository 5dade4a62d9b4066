"""``demo`` and ``reproduce``: the library at work on data it makes, and on the papers' figures."""

from __future__ import annotations

import argparse
import ast
import subprocess
import sys
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


def add_reproduce(commands: Any) -> None:
    """Add ``kernelbayes reproduce``."""
    command = commands.add_parser(
        "reproduce",
        help="the experiments: a list, or one of them",
        description="Without a name, list the experiments and what they show. With one, run it; "
        "options after the name are its own (--full, --runs N, --jobs N; see --help after it). "
        "They are part of a checkout of the repository, not of an installed package.",
        epilog="example: kernelbayes reproduce iw22_fig2 --runs 3",
    )
    command.add_argument("name", nargs="?", metavar="NAME", help="experiment to run")
    command.add_argument("options", nargs=argparse.REMAINDER, help="options of the experiment")
    command.set_defaults(run=_reproduce)


def _reproduce(arguments: argparse.Namespace) -> int:
    places = [Path.cwd() / "experiments", Path(__file__).parents[3] / "experiments"]
    folder = next((place for place in places if place.is_dir()), None)
    if folder is None:
        raise InputError("no folder experiments here; run this in a checkout of the repository")
    scripts = {path.parent.name: path for path in sorted(folder.glob("*/run.py"))}
    if arguments.name is None:
        for name, path in scripts.items():
            told = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
            print(f"{name:16s}{told.partition(chr(10))[0]}")
        return 0
    if arguments.name not in scripts:
        raise InputError(f"no experiment {arguments.name}; there are {', '.join(scripts)}")
    command = [sys.executable, str(scripts[arguments.name]), *arguments.options]
    return subprocess.run(command, check=False).returncode


COMMANDS = (add_demo, add_reproduce)
