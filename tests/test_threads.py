"""BLAS threads: one for small work, and what was there before afterwards."""

import threading

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from kernelbayes import Gaussian
from kernelbayes.arrays import SMALL_WORK, threads_for
from kernelbayes.gram import Dense


def blas_threads():
    return [lib["num_threads"] for lib in threadpool_info() if lib["user_api"] == "blas"]


@pytest.fixture
def two_threads():
    with threadpool_limits(2, user_api="blas"):
        if set(blas_threads()) != {2}:
            pytest.skip("this BLAS cannot use two threads")
        yield


@pytest.mark.usefixtures("two_threads")
def test_one_thread_for_small_work_is_reentrant():
    with threads_for(1.0):
        assert set(blas_threads()) == {1}
        with threads_for(1.0):
            assert set(blas_threads()) == {1}
        assert set(blas_threads()) == {1}
    assert set(blas_threads()) == {2}
    with threads_for(SMALL_WORK):
        assert set(blas_threads()) == {2}


@pytest.mark.usefixtures("two_threads")
@pytest.mark.parametrize("main_leaves_first", [True, False])
def test_two_python_threads_leave_the_blas_threads_as_they_were(main_leaves_first):
    inside, leave = threading.Event(), threading.Event()

    def other():
        with threads_for(1.0), threads_for(1.0):
            inside.set()
            leave.wait()

    thread = threading.Thread(target=other)
    with threads_for(1.0):
        thread.start()
        inside.wait()
        assert set(blas_threads()) == {1}
        if not main_leaves_first:
            leave.set()
            thread.join()
            assert set(blas_threads()) == {1}
    leave.set()
    thread.join()
    assert set(blas_threads()) == {2}


@pytest.mark.usefixtures("two_threads")
def test_an_error_inside_restores_the_threads():
    with pytest.raises(np.linalg.LinAlgError):
        Dense(-np.eye(3)).ridge(1e-6)
    Gaussian(1.0)(np.ones((3, 1)))
    assert set(blas_threads()) == {2}
