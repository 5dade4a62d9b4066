"""Shell completion knows every command and option of the parser, and bash completes with it."""

import argparse
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from kernelbayes.cli import _parser

SCRIPT = Path(__file__).parents[1] / "completions" / "kernelbayes.bash"


def options(parser):
    found = [text for action in parser._actions for text in action.option_strings]
    return sorted(text for text in found if text.startswith("--"))


def commands():
    (sub,) = (a for a in _parser()._actions if isinstance(a, argparse._SubParsersAction))
    return sub.choices


def test_the_script_lists_what_the_parser_takes():
    text = SCRIPT.read_text(encoding="utf-8")
    known = {
        name: sorted(words.split())
        for name, words in re.findall(r'^\s+(\w+)\) words="([^"]*)" ;;$', text, re.M)
    }
    assert known == {name: options(parser) for name, parser in commands().items()}
    (first,) = re.findall(r'words="([^"]*)"  # first word', text)
    assert sorted(first.split()) == sorted([*commands(), *options(_parser())])


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is needed")
@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("kernelbayes po", ["posterior"]),
        ("kernelbayes filter --ser", ["--serve"]),
        ("kernelbayes drift a.csv b.csv --rep", ["--report"]),
        ("kernelbayes tune tra", ["train.csv"]),
    ],
)
def test_bash_completes(line, expected, tmp_path):
    (tmp_path / "train.csv").touch()
    words = line.split(" ")
    script = (
        f"source '{SCRIPT}'; COMP_WORDS=({line}); COMP_CWORD={len(words) - 1}; "
        'compopt() { :; }; _kernelbayes; printf "%s\\n" "${COMPREPLY[@]}"'
    )
    done = subprocess.run(
        ["bash", "-c", script], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    assert done.stdout.split() == expected
