"""The first 2000 calls of ``make fuzz``, and that it knows every public name."""

import warnings

import numpy as np
import pytest

import fuzz
import kernelbayes as kb

CALLS, CHUNKS = 2000, 40


def test_every_public_name_is_called():
    public = {name for name in kb.__all__ if callable(getattr(kb, name))}
    assert public == set(fuzz.REGISTRY)


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_calls_end_well(chunk):
    size = CALLS // CHUNKS
    report = fuzz.run(size, first=chunk * size)
    assert not report.bad, "\n".join(report.bad)


# --- the harness sees what it must not miss -------------------------------------------------------


def asked(ask, mood="good", **options):
    entry = fuzz.Entry(make=lambda rng: {}, ask=ask, kinds={"X": "sample"}, **options)
    arguments = {"X": np.arange(40.0).reshape(20, 2)}
    return fuzz._outcome(entry, arguments, mood, False, np.random.default_rng(0)).kind


def raise_foreign(X):
    raise ValueError("not ours")


def warn_foreign(X):
    return {"x": np.float64(1.0) / np.float64(0.0) * 0.0}


def warn_ours(X):
    warnings.warn("hard", kb.NumericalWarning, stacklevel=1)
    return {"x": 1.0}


LAW = {"laws": {"rows": ("*",)}, "rows": (("X",),)}


@pytest.mark.parametrize(
    ("ask", "mood", "options", "kind"),
    [
        (lambda X: {"x": 1.0}, "good", {}, "answer"),
        (lambda X: {"x": np.array([1.0, np.nan])}, "good", {}, "nan"),
        (lambda X: {"log_density": -np.inf}, "good", {}, "answer"),
        (raise_foreign, "hard", {}, "foreign"),
        (lambda X: np.ones(3) @ np.ones(4), "hard", {}, "foreign"),
        (warn_foreign, "hard", {}, "foreign"),
        (warn_ours, "hard", {}, "warning"),
        (lambda X: kb.Gaussian(-1.0), "hostile", {}, "refused"),
        (lambda X: kb.Gaussian(-1.0), "good", {}, "wrong"),
        (lambda X: {"x": 1.0}, "hostile", {}, "wrong"),
        (lambda X: {"x": X.sum()}, "good", LAW, "answer"),
        (lambda X: {"x": np.arange(20) @ X}, "good", LAW, "wrong"),  # in any other order
    ],
)
def test_outcomes(ask, mood, options, kind):
    assert asked(ask, mood, **options) == kind
