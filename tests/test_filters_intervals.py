"""Intervals of a filter with no argument: corrected by the blocks of time that it left out."""

import warnings

import numpy as np
import pytest

import kernelbayes as kb
from kernelbayes.filters.choose.blocks import blocks_of, left_out, plain_copy, with_truth
from kernelbayes.filters.choose.holdout import calibrated, outside, training_parts
from kernelbayes.filters.loop import filtered, smooth_all
from kernelbayes.filters.smooth import Smoothing

GIVEN = {"prior_ridge": 1e-4, "transition_ridge": 1e-4, "ridge": 1e-3, "rank": 60, "rng": 0}


# Standard error of a coverage of 90 % learned from 300 steps and measured on 300: an error lasts
# for some three steps (errors are correlated by 0.9 times the share of the prediction), and
# there are two coordinates, sqrt(2 * 0.09 / 200) = 0.03.
ERROR = 0.03


def walking(rng, length):
    z = np.zeros((length, 2))
    for t in range(1, length):
        z[t] = 0.9 * z[t - 1] + 0.4 * rng.normal(size=2)
    return z + 0.5 * rng.normal(size=z.shape), z


X, Z = walking(np.random.default_rng(0), 300)
NEW, TRUTH = walking(np.random.default_rng(1), 300)
KERNELS = kb.Gaussian(0.7), kb.Gaussian(0.3)


@pytest.fixture(scope="module")
def chosen():
    """Return a filter that has chosen its ridges and options by itself."""
    return kb.KernelBayesFilter(*KERNELS, rank=60, rng=0).fit(X, Z)


def narrow(**options):
    """Return a filter whose beliefs are too narrow: tiny ridges, narrow kernels."""
    return kb.KernelBayesFilter(*KERNELS, **(GIVEN | options)).fit(X, Z)


def coverage(ends, truth=TRUTH):
    return float(np.mean((ends[..., 0] <= truth) & (truth <= ends[..., 1])))


def test_on_the_blocks_themselves_coverage_is_exact():
    model = narrow()
    blocks = left_out(plain_copy(model, {}), blocks_of(model, training_parts(model)))
    pairs = with_truth([filtered(b.model, b.runs) for b in blocks], blocks)
    calibration = calibrated(pairs)
    steps = sum(len(z) for _, z in pairs)
    for level in (0.5, 0.9, 0.98):
        for j in range(2):
            ends = [calibration.interval(one, level)[:, j] for one, _ in pairs]
            truth = np.concatenate([z[:, j] for _, z in pairs])
            # Both ends are order statistics of the levels: each may be off by one step.
            assert abs(coverage(np.concatenate(ends), truth) - level) <= 2.5 / steps


def test_levels_beyond_the_ends_come_back():
    beliefs = narrow().filter(X[:40])
    low, high = beliefs.quantile([0.0, 1.0]).transpose(1, 0, 2)
    far = np.column_stack([high[:, 0] + 0.5, low[:, 1] - 0.25])
    np.testing.assert_allclose(outside(beliefs, far), np.full((40, 2), (0.5, -0.25)), rtol=1e-9)
    np.testing.assert_array_equal(outside(beliefs, 0.5 * (low + high)), 0.0)
    found = calibrated([(beliefs, far)]).quantile(beliefs, [0.2, 0.8])
    np.testing.assert_allclose(found[:, 0], far, rtol=1e-9)
    np.testing.assert_allclose(found[:, 1], far, rtol=1e-9)


def test_too_narrow_beliefs_are_widened():
    plain, model = narrow(), narrow(intervals="calibrated")
    with warnings.catch_warnings():  # some observations are unlike the training sample
        warnings.simplefilter("ignore", kb.NumericalWarning)
        before, after = (m.filter(NEW) for m in (plain, model))
    held = [coverage(beliefs.interval(0.9)) for beliefs in (before, after)]
    assert held[0] < 0.8
    assert abs(held[1] - 0.9) < 4 * ERROR
    assert abs(held[1] - 0.9) < abs(held[0] - 0.9)
    np.testing.assert_array_equal(before.mean(), after.mean())


def test_holes_stay_holes_in_the_blocks():
    holes = np.where(np.random.default_rng(2).uniform(size=X.shape) < 0.3, np.nan, X)
    model = kb.KernelBayesFilter(*KERNELS, **GIVEN, intervals="calibrated").fit(holes, Z)
    blocks = blocks_of(model, training_parts(model), fill=False)
    seen = np.concatenate([s.X for block in blocks for s in block])
    np.testing.assert_array_equal(seen, holes)
    found = left_out(plain_copy(model, {}), blocks)
    wanted = calibrated(with_truth([filtered(b.model, b.runs) for b in found], found))
    np.testing.assert_allclose(model.calibration_.pit, wanted.pit, rtol=0.0, atol=1e-9)


def test_intervals_rest_on_filters_that_know_as_much_as_the_one_asked():
    rng = np.random.default_rng(4)
    parts = [walking(rng, 15) for _ in range(110)]  # more steps than a race has
    xs, zs = map(list, zip(*parts, strict=True))
    model = kb.KernelBayesFilter(*KERNELS, **GIVEN, intervals="calibrated").fit(xs, zs)
    blocks = blocks_of(model, training_parts(model), fill=False)
    assert sum(len(s.X) for block in blocks for s in block) == 110 * 15
    assert len(blocks_of(model, training_parts(model))[0]) < len(blocks[0])
    wide = kb.KernelBayesFilter(*KERNELS, **(GIVEN | {"rank": None}))
    assert [plain_copy(wide, {}, low).rank for low in (False, True)] == [300, 100]
    assert [plain_copy(model, {}, low).rank for low in (False, True)] == [60, 60]
    # The correction of smoothed beliefs is that of filters of this rank, not of the search's.
    how = model._smoothing(warn=False)
    found = left_out(plain_copy(model, {}).set_params(back_ridge=how.ridge), blocks)
    wanted = calibrated(with_truth([smooth_all(b.model, b.runs) for b in found], found))
    np.testing.assert_allclose(how.calibration.pit, wanted.pit, rtol=0.0, atol=1e-9)


def test_a_filter_with_no_argument_says_what_it_corrects(chosen):
    assert chosen.calibration_ is not None
    assert "left-out pairs" in chosen.choice_.why["intervals"]
    beliefs = chosen.filter(X)
    assert beliefs.calibration is chosen.calibration_
    own = beliefs.interval(0.9, valid="rearranged")
    ends = beliefs.quantile([0.05, 0.95]).transpose(0, 2, 1)
    np.testing.assert_allclose(own, ends, rtol=0.0, atol=1e-9)  # quantiles are the belief's own
    corrected = chosen.calibration_.interval(beliefs, 0.9)
    np.testing.assert_array_equal(beliefs.interval(0.9), corrected)
    np.testing.assert_array_equal(beliefs[7].interval(0.9), corrected[7])
    np.testing.assert_array_equal(beliefs[3:9].interval(0.9), corrected[3:9])
    frame = beliefs.to_frame(0.9)
    np.testing.assert_array_equal(frame["z1_low"], corrected[:, 1, 0])


def test_the_online_step_has_the_same_intervals(chosen):
    beliefs, state = chosen.filter(X[:4]), chosen.start()
    for t, x in enumerate(X[:4]):
        state, _ = chosen.step(state, x)
        found, wanted = (b.interval(0.9) for b in (state.belief, beliefs[t]))
        np.testing.assert_allclose(found, wanted, rtol=1e-9)


def test_smoothing_has_a_correction_of_its_own(chosen):
    with warnings.catch_warnings():  # whether it gains depends on the recording
        warnings.simplefilter("ignore", kb.NumericalWarning)
        beliefs = chosen.smooth(NEW)
    assert beliefs.calibration is chosen.smoothing_.calibration
    assert abs(coverage(beliefs.interval(0.9)) - 0.9) < 4 * ERROR
    given = narrow(back_ridge=0.2, intervals="calibrated")
    assert given.smooth(X[:20]).calibration is not None
    assert given.smoothing_.ridge == 0.2


def test_files_keep_the_correction(chosen, tmp_path):
    kb.save(chosen, tmp_path / "filter.kb")
    again = kb.load(tmp_path / "filter.kb")
    for ask in ("filter", "smooth"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", kb.NumericalWarning)
            found, wanted = (getattr(m, ask)(NEW[:9]).interval(0.8) for m in (again, chosen))
        np.testing.assert_array_equal(found, wanted)


def test_what_is_not_corrected():
    assert narrow().filter(X[:3]).calibration is None  # nothing was chosen
    for option in ({"intervals": "plain"}, {"literal": True, "intervals": "calibrated"}):
        model = kb.KernelBayesFilter(*KERNELS, rank=20, rng=0, **option)
        assert model.fit(X[:60], Z[:60]).calibration_ is None
    angle = kb.Periodic(1.0, 2 * np.pi)
    angles = kb.KernelBayesFilter(KERNELS[0], angle, rank=20, rng=0)
    angles.fit(X[:60], np.arctan2(*Z[:60].T))
    assert angles.calibration_ is None
    assert "not on a line" in angles.choice_.why["intervals"]
    short = narrow(intervals="calibrated").fit(X[:8], Z[:8])
    assert short.calibration_ is None
    assert "nothing can be left out" in short.choice_.why["intervals"]
    with pytest.raises(ValueError, match="intervals"):
        kb.KernelBayesFilter(intervals="exact").fit(X, Z)


@pytest.mark.filterwarnings("ignore:.*unlike anything:kernelbayes.NumericalWarning")
def test_blocks_that_cannot_be_left_out_leave_intervals_plain():
    late = X[:80].copy()
    late[20:, 1] = np.nan  # a sensor that only the first block knows
    windows = {"intervals": "calibrated", "lags": 21}  # longer than a block of 20 steps
    for model, observed, word in (
        (kb.KernelBayesFilter(*KERNELS, rank=20, rng=0), late, "coordinate"),
        (kb.KernelBayesFilter(*KERNELS, **GIVEN, **windows), X[:80], "lags"),
        (kb.KernelBayesFilter(*KERNELS, lags=21, rank=20, rng=0), X[:80], "lags"),
    ):
        model.fit(observed, Z[:80])
        assert model.calibration_ is None
        assert word in " ".join(model.choice_.why.values())
        assert np.isfinite(model.smooth(observed[:5]).mean()).all()


def test_beliefs_smoothed_with_no_lag_are_the_filtered_ones():
    model = narrow(back_ridge=0.2, intervals="calibrated")
    found, wanted = model.smooth(X[:10], lag=0), model.filter(X[:10])
    np.testing.assert_array_equal(found.interval(0.9), wanted.interval(0.9))
    assert model.smooth(X[:10], lag=2).calibration is model.smoothing_.calibration


def test_tuned_filters_correct_their_intervals():
    model = kb.KernelBayesFilter(*KERNELS, rank=20, rng=0)
    tuned = kb.tune(model, X[:80], Z[:80], budget=2, rng=0)
    assert tuned.intervals == "calibrated"
    assert tuned.filter(X[:5]).calibration is not None


def test_where_smoothing_gains_nothing_the_beliefs_are_the_filtered_ones():
    model = narrow()
    model.smoothing_ = Smoothing(0.1, smoothed=2.0, filtered=1.0)
    state = model.start(lag=2)
    for x in X[:5]:
        state, _ = model.step(state, x)
    wanted = model.filter(X[:5])
    with pytest.warns(kb.NumericalWarning, match="gains nothing"):
        np.testing.assert_array_equal(model.smooth(X[:5]).weights, wanted.weights)
    with pytest.warns(kb.NumericalWarning, match="gains nothing"):
        np.testing.assert_allclose(
            model.smoothed(state).weights, wanted.weights[2], rtol=1e-9, atol=1e-12
        )
