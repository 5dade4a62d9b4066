"""Recalibrated intervals of beliefs: left-out transforms, coverage, what cannot be done."""

import numpy as np
import pytest

import kernelbayes as kb
from kernelbayes.filters.choose.holdout import transforms

A, Q, R = 0.3, 0.91, 0.01  # stationary variance one; neighbours are nearly independent


def autoregressive(rng, length):
    z = rng.normal(size=length)
    for t in range(1, length):
        z[t] = A * z[t - 1] + np.sqrt(Q) * z[t]
    return z, z + np.sqrt(R) * rng.normal(size=length)


RNG = np.random.default_rng(0)
Z, X = autoregressive(RNG, 600)
TRUTH, NEW = autoregressive(RNG, 600)
# A kernel on states far wider than the posterior: intervals that hold too much.
WIDE = {"prior_ridge": 1e-2, "transition_ridge": 1e-2, "ridge": 0.03, "rank": 20, "rng": 0}


def wide(**options):
    model = kb.KernelBayesFilter(kb.Gaussian(2.0), kb.Gaussian(3.0), **(WIDE | options))
    return model.fit(X, Z)


def coverage(ends, truth):
    return float(np.mean((ends[:, 0, 0] <= truth) & (truth <= ends[:, 0, 1])))


def test_a_level_is_where_the_quantile_is():
    beliefs = wide().filter(NEW[:30])
    for q in (0.2, 0.5, 0.9):
        there = beliefs.quantile([q])[:, 0, :]
        np.testing.assert_allclose(transforms(beliefs, there)[:, 0], q, atol=1e-6)
    np.testing.assert_array_equal(transforms(beliefs, np.full(30, -99.0)), 0.0)
    np.testing.assert_array_equal(transforms(beliefs, np.full(30, 99.0)), 1.0)


def test_all_mass_at_one_point_has_levels():
    one = kb.KernelBayesFilter(kb.Delta(), kb.Gaussian(1.0), **(WIDE | {"rank": None}))
    beliefs = one.fit(np.zeros(5), np.ones(5)).filter(np.zeros(3))
    np.testing.assert_array_equal(transforms(beliefs, [0.0, 1.0, 2.0])[:, 0], [0.0, 0.5, 1.0])


@pytest.mark.parametrize("smooth", [False, True])
def test_intervals_hold_what_they_say(smooth):
    # A given ridge: kernels this wide gain nothing by smoothing, which is not asked here.
    model = wide(back_ridge=0.1)
    beliefs = model.smooth(NEW) if smooth else model.filter(NEW)
    calibration = model.calibrate(X, Z, smooth=smooth)
    assert calibration.pit.shape == (600, 1)
    for level in (0.5, 0.8):
        before, after = beliefs.interval(level), calibration.interval(beliefs, level)
        assert after.shape == before.shape
        off = [abs(coverage(ends, TRUTH) - level) for ends in (after, before)]
        # Four standard errors: the levels and the test have 600 steps each, which count as 400
        # since neighbours depend on each other, sqrt(2 / 4 / 400) = 0.035.
        assert off[0] < 0.14
        assert off[0] < off[1]


def test_parts_are_left_out_with_the_same_kernels_and_ridges():
    model = wide()
    found = model.calibrate(X, Z, parts=2).pit
    for learned, left in ((slice(300, 600), slice(0, 300)), (slice(0, 300), slice(300, 600))):
        other = kb.KernelBayesFilter(kb.Gaussian(2.0), kb.Gaussian(3.0), **WIDE)
        beliefs = other.fit(X[learned], Z[learned]).filter(X[left])
        np.testing.assert_allclose(found[left], transforms(beliefs, Z[left]), atol=1e-8)


def test_automatic_choices_are_made_once():
    model = kb.KernelBayesFilter(rng=0).fit(X[:80], Z[:80])
    names = ("prior_ridge", "transition_ridge", "ridge", "memory", "tempering")
    chosen = {name: getattr(model, f"{name}_") for name in names}
    same = kb.KernelBayesFilter(model.kernel_x_, model.kernel_z_, rng=0, **chosen)
    same.fit(X[:80], Z[:80])
    np.testing.assert_allclose(
        model.calibrate(X[:80], Z[:80], parts=2).pit,
        same.calibrate(X[:80], Z[:80], parts=2).pit,
        atol=1e-6,
    )


def test_sequences_controls_and_monte_carlo():
    u = np.random.default_rng(1).normal(size=600)
    model = kb.KernelBayesFilter(kb.Gaussian(2.0), kb.Gaussian(3.0), **WIDE)
    halves = [[part[:100], part[100:199], part[599:]] for part in (X, Z, u)]
    calibration = model.fit(*halves).calibrate(*halves, parts=2)
    assert calibration.pit.shape == (199, 1)  # a pair on its own is never left out

    def transition(z, rng, control=None):
        return A * z + np.sqrt(Q) * rng.normal(size=z.shape)

    carlo = kb.KernelMonteCarloFilter(transition, Z, rank=20, rng=0, picks=20, particles=50)
    pit = carlo.fit(X, Z).calibrate(X[:60], Z[:60], parts=2).pit
    assert ((pit >= 0.0) & (pit <= 1.0)).all()


def test_what_cannot_be_calibrated_is_named():
    model = wide()
    with pytest.raises(ValueError, match="parts"):
        model.calibrate(X, Z, parts=1)
    with pytest.raises(ValueError, match="fit"):
        kb.KernelBayesFilter().calibrate(X, Z)
    names = np.where(Z > 0, "up", "down")
    rooms = kb.KernelBayesFilter(kb.Gaussian(2.0), kb.Delta(), **(WIDE | {"rank": None}))
    confusion = rooms.fit(X, names).calibrate(X, names)  # intervals of categories make no sense
    assert isinstance(confusion, kb.Confusion)
    assert confusion.labels == ("down", "up")
