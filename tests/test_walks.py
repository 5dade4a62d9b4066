"""A reader who follows one call opens few files (``benchmarks/walks.py`` counts them)."""

import importlib.util
from pathlib import Path

import pytest

PATH = Path(__file__).parent.parent / "benchmarks" / "walks.py"
if not PATH.exists():
    pytest.skip("the benchmarks are not part of this distribution", allow_module_level=True)
SPEC = importlib.util.spec_from_file_location("walks", PATH)
walks = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(walks)
# Where a walk is above its bar: what it crosses now, so that it does not grow.
REACHED = {"infer": 27}


@pytest.mark.fixed_seed
@pytest.mark.filterwarnings("ignore::kernelbayes.NumericalWarning")
@pytest.mark.parametrize("name", sorted(walks.BARS))
def test_a_call_crosses_few_files(name, calls):
    calls[name]()  # imports and caches of the first call do not count
    files = walks.crossed(calls[name])
    assert len(files) <= REACHED.get(name, walks.BARS[name]), sorted(files)


@pytest.fixture(scope="module")
def calls():
    return walks.walks()
