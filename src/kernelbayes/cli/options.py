"""The commands on tables, and every argument that they take."""

import argparse
from pathlib import Path
from typing import Any, NamedTuple

from kernelbayes.cli.errors import ending, level, names, page, positive, rounds, seed

PORT = 8765  # of a live page: unassigned, and easy to remember
# Arguments: how each is read, what stands for it in the help, what it says, and the rest. A string
# is a flag. An argument that says something else in one command has the name of the command before.
KNOWN_ARGUMENTS: dict[str, Any] = {
    "data": (Path, "TRAIN", "training table, .csv or .parquet", {"nargs": "?"}),
    "--x": (names, "COLUMNS", "observed columns, comma-separated"),
    "--z": (names, "COLUMNS", "hidden columns, comma-separated"),
    "--u": (names, "COLUMNS", "controls, comma-separated"),
    "--sequence": (str, "COLUMN", "column that identifies the sequences"),
    "--prior": (Path, "FILE", "table of draws of z (default: the training z)"),
    "--new": (Path, "FILE", "table of new observations"),
    "--model": (Path, "FILE", "use this fitted model instead of TRAIN"),
    "--save": (Path, "FILE", "write the fitted model to this file"),
    "--rank": (positive, "R", "low-rank features, for many rows"),
    "--level": (level, "LEVEL", "coverage of intervals (default: 0.9)", {"default": 0.9}),
    "--tune": "choose kernels and ridges by cross-validation",
    "--smooth": "use later observations too",
    "--follow": "read observations as CSV from standard input, and write a belief for each line",
    "--state": (Path, "FILE", "with --follow: keep the state in this file, and continue from it"),
    "--serve": (
        seed, "PORT", "with --follow: serve a live page of the belief, on this machine only",
        {"nargs": "?", "const": PORT},
    ),
    "--filter": "rows are a sequence in time: tune a filter, as --sequence and --u do",
    "infer data": (
        Path, "SOURCE", "table of simulations, or Python file with simulator(theta, rng) and prior"
    ),
    "--observed": (Path, "FILE", "table with one row, the data", {"required": True}),
    "--theta": (names, "COLUMNS", "parameters in a table of simulations"),
    "infer --x": (names, "COLUMNS", "data columns (default: all others)"),
    "-n/--simulations": (positive, "N", "simulations to run (default: 1000)", {"default": 1000}),
    "--rounds": (
        rounds, "N", "rounds of simulations, or auto: as many as help (default: 1)", {"default": 1}
    ),
    "--draws": (positive, "N", "write draws instead of a summary"),
    "test data": (Path, "TABLE", "two tables, or one", {"nargs": "+"}),
    "test --x": (names, "COLUMNS", "columns (default: all)"),
    "--y": (names, "COLUMNS", "columns to test for dependence on x"),
    "--given": (names, "COLUMNS", "test given these columns"),
    "--permutations": (positive, "B", "permutations (default: 1000)", {"default": 1000}),
    "before": (Path, "BEFORE", "table, .csv or .parquet"),
    "after": (Path, "AFTER", "table with the same columns"),
    "--columns": (names, "COLUMNS", "columns (default: all)"),
    "--alpha": (level, "ALPHA", "significance level (default: 0.05)", {"default": 0.05}),
    "graph data": (Path, "TABLE", "table to learn from; cells may be empty"),
    "graph --new": (Path, "FILE", "table to impute (default: TABLE itself)"),
    "--edges": (
        names, "A-B,B-C", "which columns to connect (default: a tree, learned from the table)"
    ),
    "--seed": (seed, "N", "seed (default: 0)", {"default": 0}),
    "--report": (page, "PAGE", "write a report page, .html"),
    "--quiet": "no warnings or progress on standard error",
}  # fmt: skip


class Command(NamedTuple):
    """A command on tables: the function that runs it, its words, an example, its arguments."""

    run: Any
    words: str
    example: str
    arguments: str
    kinds: tuple[str, ...] = (".csv", ".parquet")  # of files with the result

    def __call__(self, commands: Any) -> None:
        """Add the command to the others."""
        name = self.run.__name__.removeprefix("_")
        command = commands.add_parser(
            name,
            help=self.words,
            description=f"{self.words[0].upper()}{self.words[1:]}.",
            epilog=f"example: {self.example}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        command.set_defaults(run=self.run)
        where = f"write the result to this file, {' or '.join(self.kinds)} (default: print it)"
        command.add_argument("--out", type=ending(*self.kinds), metavar="FILE", help=where)
        for title in (*self.arguments.split(), "--seed", "--report", "--quiet"):
            known = KNOWN_ARGUMENTS.get(f"{name} {title}") or KNOWN_ARGUMENTS[title]
            if isinstance(known, str):
                command.add_argument(title, action="store_true", help=known)
                continue
            kind, stands, text, *more = known
            rest = more[0] if more else {}
            command.add_argument(*title.split("/"), type=kind, metavar=stands, help=text, **rest)
