"""The command ``kernelbayes``; the only package that prints.

Results go to standard output or to ``--out``, progress and warnings to standard error. Bad input
ends with exit code 2 and one line on standard error that says what is wrong.
"""

import contextlib
import csv
import os
import shlex
import sys
import warnings
from collections.abc import Sequence

from kernelbayes import __version__
from kernelbayes.cli import analyse, filter, show
from kernelbayes.cli.errors import InputError, Parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code: 0, or 2 for bad input."""
    parser = _parser()
    try:
        words = sys.argv[1:] if argv is None else list(argv)
        try:
            arguments = parser.parse_args(words)
        except SystemExit:  # after --help or --version
            sys.stdout.flush()
            raise
        arguments.command_line = shlex.join(["kernelbayes", *words])
        if arguments.command is None:
            parser.print_help()
            return 0
        with warnings.catch_warnings():
            warnings.showwarning = _warn
            if getattr(arguments, "quiet", False):
                warnings.simplefilter("ignore")
            code = arguments.run(arguments)
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:  # the reader has closed the pipe, as ``head`` does
        with contextlib.suppress(OSError):  # discard the remaining output
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (InputError, ValueError, TypeError, ImportError, OSError, csv.Error) as error:
        line = " ".join(str(error).split())
        print(f"kernelbayes: error: {line}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    return code or 0


def _warn(message: Warning | str, *_: object, **__: object) -> None:
    print(f"kernelbayes: warning: {' '.join(str(message).split())}", file=sys.stderr)


def _parser() -> Parser:
    parser = Parser(
        prog="kernelbayes",
        description="Bayesian inference from samples, with kernel mean embeddings.",
    )
    parser.add_argument("--version", action="version", version=f"kernelbayes {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="command", title="commands")
    for part in (analyse, filter, show):
        for add in part.COMMANDS:
            add(commands)
    return parser
