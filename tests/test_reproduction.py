"""The page of published numbers is what the committed result files say."""

import ast
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
    assert reproduction.verdict(values, 1.3, median=False)[2] == "better"
    assert reproduction.verdict(values, 0.7, median=True)[2] == "not reproduced"
    assert reproduction.verdict([1.0], 2.0, median=False)[2] == "better"


def test_claims_are_judged_by_the_result_files(monkeypatch):
    found = {("a", "p", "1"): [1.0], ("b", "p", "1"): [2.0], ("a", "p", "2"): [3.0]}
    monkeypatch.setattr(reproduction, "ours", lambda folder: {**found, ("b", "p", "2"): [2.0]})
    claims = [
        reproduction.Claim("where", "folder", "text", *names, ("p",), sizes)
        for names, sizes in ((("a", "b"), (1,)), (("a", "b"), (1, 2)), (("a", "b"), (3,)))
    ]
    told = ["reproduced (1 of 1 settings)", "in part: 1 of 2; not at p, 2", "not run"]
    assert [reproduction.judged(claim) for claim in claims] == told


@pytest.mark.parametrize(
    "script", sorted(PATH.parent.glob("*/run.py")), ids=lambda p: p.parent.name
)
def test_every_experiment_tells_what_it_shows(script):
    told = ast.get_docstring(ast.parse(script.read_text(encoding="utf-8")))
    assert told.partition("\n")[0].endswith(".")


def test_published_values_are_numbers_by_method_problem_and_size():
    assert reproduction.published("iw22_fig1")["original, paper", "Gaussian", 8] == 1.92
    assert reproduction.published("power") == {}
