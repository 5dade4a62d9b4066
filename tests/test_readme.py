"""The README keeps its word: each python block prints the text block that follows it."""

import contextlib
import io
import re
from pathlib import Path

import pytest

README = Path(__file__).parents[1] / "README.md"
BLOCKS = re.findall(r"```python\n(.*?)```\s*```text\n(.*?)```", README.read_text("utf-8"), re.S)


def test_every_python_block_has_its_output():
    assert len(BLOCKS) == README.read_text("utf-8").count("```python") > 0


@pytest.mark.fixed_seed
@pytest.mark.parametrize(("code", "expected"), BLOCKS)
def test_printed_output_is_real(code, expected):
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, str(README), "exec"), {})
    assert printed.getvalue() == expected


def test_links_lead_somewhere():
    for target in re.findall(r"\]\(([^)]+)\)", README.read_text("utf-8")):
        assert (README.parent / target).exists(), f"README links to {target}, which is not there"
