"""``demo`` and ``reproduce``: a demonstration, and the experiments of the papers."""

import argparse
import ast
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from kernelbayes.cli.errors import InputError, explained, page, seed
from kernelbayes.demo.story import demo

COPY = Path("kernelbayes-experiments")  # where an installed package runs its experiments


def add_demo(commands: Any) -> None:
    """Add the command."""
    command = commands.add_parser(
        "demo",
        help="a robot learns a building from 1000 camera frames, then localises itself",
        description="A robot learns a building from 1000 labelled frames of its camera. Switched "
        "on at an unknown place, it localises itself by its camera and its wheels. Prints a table "
        "of errors and writes a picture and a film.",
        epilog="example: kernelbayes demo --out robot --report robot.html",
    )
    out, text = Path("kernelbayes-demo"), "directory for the pictures (default: %(default)s)"
    command.add_argument("--out", type=Path, default=out, metavar="DIR", help=text)
    command.add_argument(
        "--seed", type=seed, default=0, metavar="N", help="seed of the drives (default: 0)"
    )
    text = "write a report page about the first drive, .html"
    command.add_argument("--report", type=page, metavar="PAGE", help=text)
    command.set_defaults(run=_demo)


def _demo(arguments: argparse.Namespace) -> None:
    out: Path = arguments.out
    if out.exists() and not out.is_dir():
        raise InputError(f"--out must be a directory, but {out} is a file")
    with explained("write to", out):
        for line in demo(out, arguments.seed, arguments.report):
            print(line, flush=True)


def add_reproduce(commands: Any) -> None:
    """Add ``kernelbayes reproduce``."""
    command = commands.add_parser(
        "reproduce",
        help="list the experiments, or run one",
        description="Without a name, list the experiments with the CPU times of their quick and "
        "full runs. With a name, run that experiment; options after the name are its own (--quick, "
        "--full, --runs N, --jobs N; see --help after the name). An interrupted full run is "
        "continued. With --out DIR the scripts are copied there, and the folder of the "
        "experiment gets results.csv and results.png. Without it, an installed package copies "
        f"them to {COPY}, and a checkout runs its own, which write quick.* or full.*.",
        epilog="example: kernelbayes reproduce iw22_fig2 --runs 3 --out figures",
    )
    command.add_argument("name", nargs="?", metavar="NAME", help="experiment to run")
    command.add_argument("options", nargs=argparse.REMAINDER, help="options of the experiment")
    command.set_defaults(run=_reproduce)


def _reproduce(arguments: argparse.Namespace) -> int:
    own = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    own.add_argument("--out", type=Path)
    given, options = own.parse_known_args(arguments.options)
    bundle = Path(__file__).parents[1] / "experiments"  # of an installed package
    places = [Path.cwd() / "experiments", Path(__file__).parents[3] / "experiments", bundle]
    folder = next((place for place in places if place.is_dir()), None)
    if folder is None:
        raise InputError("there is no folder experiments; run this in a checkout of the repository")
    scripts = {path.parent.name: path for path in sorted(folder.glob("*/run.py"))}
    if arguments.name is None:
        print(f"{'name':16s}{'quick':>9s}{'full':>14s}  what it shows")
        for name, path in scripts.items():
            text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
            times = re.search(r"^Time: quick (.*), full (.*)\.$", text, re.MULTILINE)
            quick, full = times.groups() if times else ("", "")
            print(f"{name:16s}{quick:>9s}{full:>14s}  {text.partition(chr(10))[0]}")
        return 0
    if arguments.name not in scripts:
        raise InputError(f"no experiment {arguments.name!r}; choose one of {', '.join(scripts)}")
    script = scripts[arguments.name]
    if given.out is not None or folder == bundle:
        out = given.out or COPY
        results = shutil.ignore_patterns("*.csv", "*.png", "*.md", "*.jsonl", "__pycache__")
        with explained("write to", out):
            shutil.copytree(folder, out, ignore=results, dirs_exist_ok=True)
        script = out / script.relative_to(folder)
    code = subprocess.run([sys.executable, str(script), *options], check=False).returncode
    for made in script.parent.glob("*.*") if script.parents[1] != folder else ():
        if made.stem in ("quick", "full"):  # rename the results of a copy
            made.replace(made.with_stem("results"))
    return code


COMMANDS = (add_demo, add_reproduce)
