"""Run all benchmarks, or those named: ``python benchmarks/run.py [gram features ...]``.

Each prints its table, the BLAS threads it used, and PASS or FAIL against its bar; a summary of all
bars comes last. The exit code is 1 if any bar was missed.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import time
from pathlib import Path

from timing import VERDICTS

NAMES = sorted(p.stem.removeprefix("bench_") for p in Path(__file__).parent.glob("bench_*.py"))


def main() -> int:
    parser = argparse.ArgumentParser(description="Timings of kernelbayes, printed as ratios.")
    parser.add_argument("names", nargs="*", metavar="name", help=f"any of: {' '.join(NAMES)}")
    names = parser.parse_args().names or NAMES
    unknown = sorted(set(names) - set(NAMES))
    if unknown:
        parser.error(f"no benchmark {' '.join(unknown)}; there are {' '.join(NAMES)}")
    passed = True
    for name in names:
        module = importlib.import_module(f"bench_{name}")
        print(f"\n== {name}: {(module.__doc__ or '').splitlines()[0]}")
        start = time.perf_counter()
        passed &= module.main()
        print(f"      ({time.perf_counter() - start:.0f} s)")
    print(f"\n== {sum(v.startswith('PASS') for v in VERDICTS)} of {len(VERDICTS)} bars hold")
    print(*VERDICTS, sep="\n")
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
