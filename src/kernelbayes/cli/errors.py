"""Errors the person at the keyboard can put right, and what reads their words."""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Literal, NoReturn


class InputError(Exception):
    """Something the person at the keyboard can put right."""


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors are one line."""

    def error(self, message: str) -> NoReturn:
        """Raise instead of printing usage and leaving."""
        raise InputError(f"{message} (see {self.prog} --help)")


def seed(text: str) -> int:
    """Read a seed."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"a whole number >= 0 is needed, got {text!r}")
    return int(text)


def positive(text: str) -> int:
    """Read a count."""
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"a whole number >= 1 is needed, got {text!r}")
    return int(text)


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
        raise argparse.ArgumentTypeError(f"a number between 0 and 1 is needed, got {text!r}")
    return value


def names(text: str) -> list[str]:
    """Read names of columns, separated by commas."""
    found = [name.strip() for name in text.split(",")]
    if not all(found):
        raise argparse.ArgumentTypeError(f"names separated by commas are needed, got {text!r}")
    if len(set(found)) < len(found):
        raise argparse.ArgumentTypeError(f"each column once, got {text!r}")
    return found


def page(text: str) -> Path:
    """Read the name of a page."""
    return ending(".html", ".htm")(text)


def ending(*kinds: str) -> Callable[[str], Path]:
    """Return what reads the name of a file to write, which has one of these endings."""

    def read(text: str) -> Path:
        path = Path(text)
        if path.suffix.lower() not in kinds:
            wanted = f"a file that ends with {' or '.join(kinds)} is needed"
            raise argparse.ArgumentTypeError(f"{wanted}, got {text!r}")
        if not path.parent.is_dir():
            raise argparse.ArgumentTypeError(f"there is no folder {str(path.parent)!r}")
        return path

    return read
