"""Dask collections as sources, on two worker processes of this machine."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from dask_tasks import BLOCKS, ROWS, dying, one_side, part
from kernelbayes import ConditionalEmbedding, Gaussian, KernelBayesRule, nystrom

da = pytest.importorskip("dask.array")
distributed = pytest.importorskip("distributed")
# Sockets that workers leave open when they end are not ours.
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")
N = 6000


def pairs():
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(N, 2))
    return np.tanh(Z) + 0.3 * rng.normal(size=Z.shape), Z


@pytest.fixture(scope="module")
def client():
    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": ":0"}
    with distributed.LocalCluster(**options) as cluster, distributed.Client(cluster) as found:
        yield found


def test_blocks_give_the_numbers_of_one_fit(client):
    X, Z = pairs()
    kernels = nystrom(Gaussian(1.0), X, 40, rng=0), nystrom(Gaussian(1.0), Z, 40, rng=1)
    blocks = da.from_array(X, chunks=(1100, 1)), da.from_array(Z, chunks=(1100, 2))
    whole = KernelBayesRule(*kernels, ridge=1e-3, prior_ridge=1e-3, literal=True)
    for prior in (None, Z[:200] + 0.3):
        expected = whole.fit(X, Z, prior).predict(X[:50])
        for given in (None, client):
            model = KernelBayesRule(*kernels, ridge=1e-3, prior_ridge=1e-3, literal=True)
            model.fit(*blocks, prior, client=given)
            np.testing.assert_allclose(model.predict(X[:50]), expected, atol=1e-8)
    cme = ConditionalEmbedding(*kernels, ridge=1e-3)
    ours, one = (cme.fit(*given)(X[:9]).mass for given in (blocks, (X, Z)))
    np.testing.assert_allclose(ours, one, atol=1e-8)


def test_a_worker_that_is_killed_changes_nothing(client, tmp_path):
    X, Z = pairs()
    kernels = nystrom(Gaussian(1.0), X, 40, rng=0), nystrom(Gaussian(1.0), Z, 40, rng=1)
    marker = str(tmp_path / "killed")
    blocks = da.from_array(X, chunks=(500, 2)), da.from_array(Z, chunks=(500, 2))
    mortal = blocks[0].map_blocks(dying, marker, dtype=float, meta=np.empty((0, 2)))
    model = KernelBayesRule(*kernels, ridge=1e-3, literal=True)
    model.fit(mortal, blocks[1], client=client)
    assert Path(marker).exists()
    expected = KernelBayesRule(*kernels, ridge=1e-3, literal=True).fit(X, Z)
    assert model.statistics_.n == N
    np.testing.assert_allclose(model.predict(X[:50]), expected.predict(X[:50]), atol=1e-8)


def test_blocks_that_do_not_match_are_refused():
    X, Z = pairs()
    with pytest.raises(ValueError, match="same blocks of rows"):
        KernelBayesRule(rank=9).fit(da.from_array(X, chunks=1000), da.from_array(Z, chunks=2000))
    with pytest.raises(TypeError, match="both be Dask"):
        KernelBayesRule(rank=9).fit(da.from_array(X, chunks=1000), Z)


UNGUARDED = """
import dask, dask.array as da
import numpy as np
from kernelbayes import KernelBayesRule

X = da.from_array(np.random.default_rng(0).normal(size=(200, 2)), chunks=(100, 2))
with dask.config.set(scheduler="processes", num_workers=1):
    KernelBayesRule(rank=9, rng=0).fit(X, X)
"""


def test_a_script_without_a_main_guard_is_told_so(tmp_path):
    (tmp_path / "script.py").write_text(UNGUARDED)
    command = [sys.executable, "-W", "ignore", str(tmp_path / "script.py")]
    found = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert found.returncode == 1
    last = found.stderr.strip().splitlines()[-1]
    assert last.startswith("RuntimeError: worker processes ended"), found.stderr
    assert "if __name__ == '__main__':" in last


# What a worker may take. Python and its modules are half of it, and Dask stops at four fifths.
MEGABYTES = 400


@pytest.mark.slow
def test_a_worker_with_less_memory_than_data():
    assert BLOCKS * ROWS * 12 * 8 > MEGABYTES * 10**6
    X, Z = part(0)
    kernels = nystrom(Gaussian(3.0), X[:500], 9, rng=0), nystrom(Gaussian(1.0), Z[:500], 9, rng=1)
    rows = (ROWS,) * BLOCKS
    blocks = [
        da.map_blocks(one_side, side=j, chunks=(rows, (d,)), dtype=float, meta=np.empty((0, d)))
        for j, d in ((0, 10), (1, 2))
    ]
    options = {"n_workers": 1, "threads_per_worker": 1, "dashboard_address": ":0"}
    model = KernelBayesRule(*kernels, ridge=1e-3, literal=True)
    with (
        distributed.LocalCluster(**options, memory_limit=f"{MEGABYTES}MB") as cluster,
        distributed.Client(cluster) as client,
    ):
        model.fit(*blocks, client=client)
        limits = [w["memory_limit"] for w in client.scheduler_info()["workers"].values()]
    assert limits == [MEGABYTES * 10**6]
    assert model.statistics_.n == ROWS * BLOCKS
    expected = KernelBayesRule(*kernels, ridge=1e-3, literal=True)
    expected.fit(part(number) for number in range(BLOCKS))
    np.testing.assert_allclose(model.predict(X[:50]), expected.predict(X[:50]), atol=1e-8)
