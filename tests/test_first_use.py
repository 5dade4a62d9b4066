"""Ordinary but awkward input, as new users bring it: the right answer, or a word about it."""

import warnings

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from sklearn.metrics import log_loss

import kernelbayes as kb


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_an_observed_series_is_read_by_its_labels(seed):
    """A pandas series of a simulator, as a dict: by name, not by position."""

    def simulator(theta, rng):
        return pd.Series({"u": theta[0] + rng.normal(), "w": 5.0 + theta[1] + rng.normal()})

    prior = [stats.norm(), stats.norm()]
    runs = kb.simulate(simulator, prior, 100, rng=seed)
    assert runs.x_names == ("u", "w")
    ask = {"n_simulations": 100, "method": "adjusted", "simulations": runs, "rng": seed}
    swapped = kb.infer(simulator, prior, pd.Series({"w": 5.0, "u": 1.0}), **ask).mean()
    np.testing.assert_array_equal(swapped, kb.infer(simulator, prior, [1.0, 5.0], **ask).mean())
    with pytest.raises(ValueError, match=r"x_observed has the columns \['w', 'v'\]"):
        kb.infer(simulator, prior, {"w": 5.0, "v": 1.0}, **ask)


def test_a_series_with_other_labels_is_read_by_position():
    """Numbers, and labels that occur twice, are no names."""
    prior = [stats.norm(), stats.norm()]
    for index in ([0, 1], ["u", "u"]):
        runs = kb.simulate(lambda theta, rng: pd.Series(theta, index), prior, 5, rng=0)  # noqa: B023
        assert runs.x_names is None
        assert runs.x.shape == (5, 2)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_data_that_no_simulation_can_make_are_reported(seed):
    """A column that is the same in all simulations, and another value in the observation."""
    rng = np.random.default_rng(seed)
    theta = rng.normal(size=(60, 1))
    x = np.hstack([theta + 0.5 * rng.normal(size=(60, 1)), np.full((60, 1), 3.0)])
    model = kb.LikelihoodFree(stats.norm(), "adjusted", rng=seed).fit(theta, x)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        model.posterior([0.0, 4.0])
    assert any("x[1] is 3 in all simulations" in str(warning.message) for warning in told)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.posterior([0.0, 3.0])


@pytest.mark.parametrize(
    "bounds", [[0, 1], (0.0, 1.0), [[0, 1], [0, 5]], np.array([[0.0, 0.0], [1.0, 5.0]])]
)
def test_bounds_are_not_taken_for_draws_of_a_prior(bounds):
    """Two numbers are a range, and a posterior on two draws would look like an answer."""
    with pytest.raises(ValueError, match=r"for a range give stats.uniform"):
        kb.infer(lambda theta, rng: rng.normal(theta), bounds, [0.5], n_simulations=20)


@pytest.mark.parametrize("seed", range(5))
def test_probabilities_are_accepted_by_scikit_learn(seed):
    """No sum of weights is above 1, by rounding either: log_loss refuses it."""
    rng = np.random.default_rng(seed)
    x = np.column_stack([rng.normal(size=200), rng.integers(0, 5, 200)])
    kind = np.where(x[:, 0] + 0.2 * rng.normal(size=200) > 0, "warm", "cold")
    for part in (slice(0, 130), slice(70, 200)):
        rule = kb.KernelBayesRule().fit(x[part], kind[part])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", kb.NumericalWarning)
            found = rule.predict_proba(x)
        assert found.max() <= 1.0
        assert np.isfinite(log_loss(kind, found))
