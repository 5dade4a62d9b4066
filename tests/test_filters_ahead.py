"""Smoothing by regressions on the observations around a step."""

import warnings
from dataclasses import replace

import numpy as np
import pytest

import kernelbayes as kb
from kernelbayes.filters.encode.encoder import Encoder
from kernelbayes.filters.missing import complete

LAGS = 4
GIVEN = {"prior_ridge": 1e-4, "transition_ridge": 1e-4, "ridge": 1e-5, "memory": 0.0, "rng": 0}


def swinging(rng, length):
    """Return a smooth path and a noisy sight of it: what comes later says as much as the past."""
    angle = rng.uniform(0.0, 6.0) + 0.25 * np.arange(length)
    z = np.column_stack([np.cos(angle), np.sin(1.7 * angle)])
    return z + 0.5 * rng.normal(size=z.shape), z


RNG = np.random.default_rng(0)
TRAIN = [swinging(RNG, 90) for _ in range(4)]
X, Z = map(list, zip(*TRAIN, strict=True))
NEW, TRUTH = swinging(RNG, 120)


@pytest.fixture(scope="module")
def model():
    """Return a filter that is a regression on windows, and has chosen how it smooths."""
    wide = kb.Gaussian(2.0)
    options = {"lags": LAGS, "features": "regression", "intervals": "calibrated"}
    found = kb.KernelBayesFilter(wide, wide, **GIVEN, **options).fit(X, Z)
    found.smooth(NEW)
    return found


def error(beliefs):
    return float(np.mean((beliefs.mean() - TRUTH) ** 2))


def test_windows_to_both_sides():
    rows = np.arange(12.0).reshape(6, 2)
    found = Encoder(2, 3, leads=2)(rows)
    np.testing.assert_array_equal(found[2], rows[[2, 3, 4, 1, 0]].ravel())
    np.testing.assert_array_equal(found[0, :6], rows[[0, 1, 2]].ravel())
    assert np.isnan(found[0, 6:]).all()
    assert np.isnan(found[4:]).all()  # there are not two later ones


def test_smoothing_looks_ahead(model):
    assert model.smoothing_.ahead is not None
    # A regression on seven observations, of which three are later, against one on four: with noise
    # that is averaged, the variance is four sevenths; the rest is bias of both.
    assert error(model.smooth(NEW)) < 0.8 * error(model.filter(NEW))


def test_the_last_steps_are_filtered_and_the_first_see_what_is_later(model):
    ahead, beliefs = model.smoothing_.ahead, model.smooth(NEW)
    leads = LAGS - 1
    assert ahead.leads_ == leads
    np.testing.assert_array_equal(beliefs.weights[-leads:], model.filter(NEW).weights[-leads:])
    np.testing.assert_array_equal(beliefs.weights[:-leads], ahead.filter(NEW).weights[:-leads])
    short = model.smooth(NEW[:2])  # shorter than any window
    np.testing.assert_array_equal(short.weights, model.filter(NEW[:2]).weights)
    encoder = ahead.encoder_
    first = replace(encoder, regression=None)(NEW)[0]
    shorter = encoder.regression.shorter  # the first step has no past: only the future is left
    wanted = shorter(first[None, : len(shorter.centre)])[0]
    np.testing.assert_allclose(encoder(NEW)[0], wanted, rtol=1e-9)


def test_what_is_missing_or_lagged_is_not_regressed(model):
    holes = NEW.copy()
    holes[5] = np.nan
    assert not complete([holes])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", kb.NumericalWarning)
        beliefs, lagged = model.smooth(holes), model.smooth(NEW[:9], lag=3)
        state = model.start(lag=3)
        for x in NEW[:9]:
            state, _ = model.step(state, x)
        np.testing.assert_allclose(
            model.smoothed(state).weights, lagged.weights[5], rtol=1e-7, atol=1e-10
        )
    assert np.isfinite(beliefs.mean()).all()


def test_many_sequences_files_intervals_and_compact_filters(model, tmp_path):
    many = model.smooth([NEW, NEW[:30]])
    np.testing.assert_allclose(many[0].mean(), model.smooth(NEW).mean(), rtol=1e-9)
    assert many[1].mean().shape == (30, 2)
    ends = model.smooth(NEW).interval(0.9)
    # Four standard errors of the mean of 240 and of 360 indicators, of which neighbours share most
    # of their window: a seventh of them count.
    inside = np.mean((ends[..., 0] <= TRUTH) & (ends[..., 1] >= TRUTH))
    assert abs(inside - 0.9) < 4 * np.sqrt(0.09 * 7 / 240 + 0.09 * 7 / 360)
    kb.save(model, tmp_path / "filter.kb")
    again = kb.load(tmp_path / "filter.kb")
    np.testing.assert_array_equal(again.smooth(NEW).interval(0.9), ends)
    assert model.compact(40).smoothing_.ahead is None
