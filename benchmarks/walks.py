"""How many files does one call cross? ``python benchmarks/walks.py`` counts and compares with bars.

A reader who follows one posterior, one filter step, one test or one ``infer`` has to open each file
in which a function runs. Each call is made once before it is counted, so that imports and caches of
the first call do not count.
"""

from __future__ import annotations

import sys
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import numpy as np

import kernelbayes as kb

SOURCE = Path(kb.__file__).parent
# Most files that each walk may cross.
BARS = {"posterior": 6, "step": 6, "mmd_test": 7, "infer": 16}


def walks() -> dict[str, Callable[[], object]]:
    """Return the calls to count, on small simulated data."""
    rng = np.random.default_rng(0)
    z = rng.normal(size=(120, 2))
    x = z + 0.3 * rng.normal(size=z.shape)
    rule = kb.KernelBayesRule().fit(x, z, prior=z + 0.5)
    track = np.cumsum(0.3 * rng.normal(size=(120, 2)), axis=0)
    seen = track + 0.3 * rng.normal(size=track.shape)
    # A step of first order: which options the default chooses depends on the data.
    plain = {"lags": 1, "order": 1, "features": "raw"}
    model = kb.KernelBayesFilter(rng=0, **plain).fit(seen, track)
    state = model.start()

    def simulator(theta: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        return theta + 0.5 * rng.normal(size=theta.shape)

    def prior(n: int, rng: np.random.Generator) -> np.ndarray:
        return rng.normal(size=(n, 2))

    return {
        "posterior": lambda: rule.posterior(x[:3]),
        "step": lambda: model.step(state, seen[0]),
        "mmd_test": lambda: kb.mmd_test(x, z, rng=0),
        "infer": lambda: kb.infer(simulator, prior, [0.5, -0.5], n_simulations=200, rng=0),
    }


def crossed(call: Callable[[], object]) -> Counter[str]:
    """Count the functions called in each source file during one call."""
    files: Counter[str] = Counter()

    def count(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            path = Path(frame.f_code.co_filename)
            if path.is_relative_to(SOURCE):
                files[str(path.relative_to(SOURCE))] += 1

    sys.setprofile(count)
    try:
        call()
    finally:
        sys.setprofile(None)
    return files


def main() -> int:
    """Print each walk and whether it keeps its bar."""
    passed = True
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", kb.NumericalWarning)
        for name, call in walks().items():
            call()
            files = crossed(call)
            kept = len(files) <= BARS[name]
            passed &= kept
            print(f"{name}: {len(files)} files (bar {BARS[name]}) {'PASS' if kept else 'FAIL'}")
            for file, calls in files.most_common():
                print(f"    {calls:6d}  {file}")
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
