"""Fits of files in less memory than the files need: same numbers, under a limit of the system."""

import json
import subprocess
import sys

import numpy as np
import pytest

from kernelbayes import Gaussian, KernelBayesRule, nystrom

polars = pytest.importorskip("polars")
resource = pytest.importorskip("resource")  # not on every system
X_NAMES, Z_NAMES, PART = [f"x{j}" for j in range(10)], ["z0", "z1"], 100_000
# Address space beyond that of Python, its modules and the threads of polars, which alone reserve
# more than a gigabyte of addresses. 10^7 rows of 12 doubles take 960 MB.
MEGABYTES = 700
FIT = """
import json, pickle, resource, sys
import polars
from kernelbayes import KernelBayesRule

def size():
    lines = open("/proc/self/status").read().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmSize")) * 1024

folder, megabytes = sys.argv[1], int(sys.argv[2])
kernels, new = pickle.load(open(folder + "/kernels.pickle", "rb"))
polars.DataFrame({"a": [1.0]}).lazy().collect()  # its threads are there now
limit = size() + megabytes * 2**20
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
model = KernelBayesRule(*kernels, ridge=1e-3, literal=True)
model.fit(folder + "/rows", columns=([f"x{j}" for j in range(10)], ["z0", "z1"]))
try:
    bytearray(megabytes * 2**20)
    limited = False
except MemoryError:
    limited = True
print(json.dumps([model.statistics_.n, limited, model.predict(new).tolist()]))
"""


def pairs(seed):
    rng = np.random.default_rng(seed)
    Z = rng.normal(size=(PART, 2))
    A = np.random.default_rng(1).normal(size=(2, 10))
    return np.tanh(Z @ A) + 0.3 * rng.normal(size=(PART, 10)), Z


@pytest.mark.skipif(sys.platform != "linux", reason="the address space of a process is read there")
@pytest.mark.parametrize("parts", [3, pytest.param(100, marks=pytest.mark.slow)])
def test_files_larger_than_memory_give_the_numbers_of_memory(tmp_path, parts):
    import pickle

    (tmp_path / "rows").mkdir()
    for part in range(parts):
        X, Z = pairs(part)
        columns = dict(zip(X_NAMES + Z_NAMES, [*X.T, *Z.T], strict=True))
        polars.DataFrame(columns).write_parquet(tmp_path / "rows" / f"{part:03}.parquet")
    X, Z = pairs(0)
    kernels = nystrom(Gaussian(4.0), X, 20, rng=0), nystrom(Gaussian(1.5), Z, 20, rng=0)
    new = X[:20]
    (tmp_path / "kernels.pickle").write_bytes(pickle.dumps((kernels, new)))
    command = [sys.executable, "-c", FIT, str(tmp_path), str(MEGABYTES)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    n, limited, means = json.loads(done.stdout)
    assert n == parts * PART
    assert limited, "the limit is none"
    if parts > 3:  # all pairs at once: what the limit is about
        return
    every = [pairs(part) for part in range(parts)]
    whole = KernelBayesRule(*kernels, ridge=1e-3, literal=True)
    whole.fit(np.concatenate([p[0] for p in every]), np.concatenate([p[1] for p in every]))
    # Rounding of sums over 3e5 pairs, magnified by one over the ridge.
    np.testing.assert_allclose(means, whole.predict(new), atol=1e-8)
