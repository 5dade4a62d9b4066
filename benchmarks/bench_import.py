"""Import: CPU time of ``import kernelbayes`` over that of ``import sklearn``.

Each import is a process of its own; the two alternate, after one of each that writes the bytecode
(an installed package has it; a checkout under PYTHONDONTWRITEBYTECODE would compile every time).
Medians. The bar is 1.3.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from resource import RUSAGE_CHILDREN, getrusage
from statistics import median

REPEATS = 9
BAR = 1.3


def main() -> bool:
    """Print the two times and their ratio."""
    with tempfile.TemporaryDirectory() as folder:
        env = {**os.environ, "PYTHONPYCACHEPREFIX": folder, "OPENBLAS_NUM_THREADS": "1"}
        env.pop("PYTHONDONTWRITEBYTECODE", None)
        names = ("sklearn", "kernelbayes")
        times = [[_cpu(name, env) for name in names] for _ in range(1 + REPEATS)][1:]
    theirs, ours = map(median, zip(*times, strict=True))
    passed = ours <= BAR * theirs
    print(f"      import sklearn {theirs:.2f} s, import kernelbayes {ours:.2f} s CPU")
    print(f"{'PASS' if passed else 'FAIL'}  ratio {ours / theirs:.2f}, at most {BAR}")
    return passed


def _cpu(name: str, env: dict[str, str]) -> float:
    """CPU seconds of a process that imports a module."""
    before = getrusage(RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", f"import {name}"], env=env, check=True)
    after = getrusage(RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
