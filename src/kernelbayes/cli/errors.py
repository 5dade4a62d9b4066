"""Errors that the user can fix, and readers of arguments."""

import argparse
import csv
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, NoReturn


class InputError(Exception):
    """An error that the user can fix."""


@contextmanager
def explained(what: str, path: Path) -> Iterator[None]:
    """Say which file the system does not let us read or write, and why."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise InputError(f"cannot {what} {path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not a text file in UTF-8") from error
    except csv.Error as error:
        raise InputError(f"{path}: not a table in CSV: {error}") from error


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors are one line."""

    def error(self, message: str) -> NoReturn:
        """Raise instead of printing usage and exiting."""
        raise InputError(f"{message} (see {self.prog} --help)")


def integer(least: int) -> Callable[[str], int]:
    """Return a reader of integers of at least so much."""

    def read(text: str) -> int:
        if not text.isdecimal() or int(text) < least:
            raise argparse.ArgumentTypeError(f"must be an integer >= {least}, got {text!r}")
        return int(text)

    return read


seed, positive = integer(0), integer(1)


def rounds(text: str) -> int | Literal["auto"]:
    """Read a number of rounds, or "auto"."""
    return "auto" if text == "auto" else positive(text)


def level(text: str) -> float:
    """Read the coverage of an interval."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0.0 < value < 1.0:
        raise argparse.ArgumentTypeError(f"must be a number between 0 and 1, got {text!r}")
    return value


def names(text: str) -> list[str]:
    """Read names of columns, separated by commas."""
    found = [name.strip() for name in text.split(",")]
    if not all(found):
        raise argparse.ArgumentTypeError(f"must be names separated by commas, got {text!r}")
    if len(set(found)) < len(found):
        raise argparse.ArgumentTypeError(f"a column is named twice in {text!r}")
    return found


def ending(*kinds: str) -> Callable[[str], Path]:
    """Return a reader of output file names with one of these extensions."""

    def read(text: str) -> Path:
        path = Path(text)
        if path.suffix.lower() not in kinds:
            wanted = f"must be a file name that ends with {' or '.join(kinds)}"
            raise argparse.ArgumentTypeError(f"{wanted}, got {text!r}")
        if not path.parent.is_dir():
            raise argparse.ArgumentTypeError(f"there is no folder {str(path.parent)!r}")
        return path

    return read


page = ending(".html", ".htm")
