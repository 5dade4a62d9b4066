"""What the package says about itself: versions, extras, targets."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TESTED = ("plot", "pandas", "arviz", "parquet")  # extras that make test-minimum installs


def test_the_oldest_versions_allowed_are_those_that_are_tested():
    """A minimum that is raised or lowered in one place only fails here."""
    pinned = ROOT / ".ci" / "minimum.txt"
    if not pinned.exists():
        pytest.skip("not in a checkout")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = [line for name in TESTED for line in project["optional-dependencies"][name]]
    least = dict(line.split(">=") for line in [*project["dependencies"], *extras])
    assert dict(re.findall(r"^([\w-]+)==([\d.]+)\.\*$", pinned.read_text(), re.M)) == least
