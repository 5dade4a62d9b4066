"""What a test returns, and its pictures."""

import sys

import matplotlib
import numpy as np
import pytest

import kernelbayes as kb

matplotlib.use("Agg")
import matplotlib.pyplot as plt


def samples(shift=0.5):
    rng = np.random.default_rng(0)
    return rng.normal(size=(40, 2)), rng.normal(size=(30, 2)) + shift


def dependent():
    rng = np.random.default_rng(0)
    x = rng.normal(size=40)
    return x, np.sin(2.0 * x) + 0.5 * rng.normal(size=40)


def test_repr_and_largest():
    result = kb.mmd_test(*samples(1.5), rng=0)
    assert repr(result).startswith("MMD test (permutation): statistic=")
    assert "n=40 + 30" in repr(result)
    points, values = result.witness.largest(3)
    assert points.shape == (3, 2)
    assert abs(values[0]) == np.abs(result.witness.values).max()
    witness = kb.hsic_test(*dependent(), rng=0).witness
    (a, b), _ = witness.largest(2)
    assert len(a) == len(b) == 2
    assert witness.function is None


def test_pictures(monkeypatch):
    X, Y = samples()
    result = kb.mmd_test(X, Y, None, 100, 0)
    assert result.plot().get_xlabel() == "MMD statistic"
    assert len(result.plot("witness").collections[0].get_offsets()) == 70
    line = kb.mmd_test(X[:, 0], Y[:, 0], None, 100, 0).plot("witness")
    assert len(line.get_lines()[0].get_xdata()) == 70
    assert kb.hsic_test(*dependent(), None, None, 100, 0).plot("witness").get_ylabel() == "y"
    with pytest.raises(ValueError, match="kind"):
        result.plot("other")
    with pytest.raises(ValueError, match="no witness"):
        kb.mmd_test(X, Y, None, 100, 0, method="linear").plot("witness")
    with pytest.raises(ValueError, match="two dimensions"):
        kb.mmd_test(np.c_[X, X], np.c_[Y, Y], None, 100, 0).plot("witness")
    plt.close("all")
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(ImportError, match="plot"):
        result.plot()
