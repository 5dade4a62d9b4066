"""The page of published numbers is what the committed result files say."""

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest

PATH = Path(__file__).parent.parent / "experiments" / "reproduction.py"
if not PATH.exists():
    pytest.skip("the experiments are not part of this distribution", allow_module_level=True)
SPEC = importlib.util.spec_from_file_location("reproduction", PATH)
reproduction = importlib.util.module_from_spec(SPEC)
sys.modules[SPEC.name] = reproduction  # dataclasses look their module up
SPEC.loader.exec_module(reproduction)


def test_the_page_is_up_to_date():
    if not reproduction.PAGE.exists():
        pytest.skip("the documentation is not part of this distribution")
    message = "run python experiments/reproduction.py"
    assert reproduction.PAGE.read_text(encoding="utf-8") == reproduction.page(), message


def test_verdicts():
    values = np.array([0.9, 1.0, 1.1])  # standard error .058, of the difference .082
    assert reproduction.verdict(values, 1.1, median=False)[2] == "reproduced"
    assert reproduction.verdict(values, 1.3, median=False)[2] == "lower"
    assert reproduction.verdict(values, 0.7, median=True)[2] == "higher"
    assert reproduction.verdict([1.0], 2.0, median=False)[2] == "lower"
