"""What a filter with no argument chooses: bandwidths, ridges, rank, and what it says about it."""

import warnings

import numpy as np
import pytest

import kernelbayes as kb
from kernelbayes.filters.choose import blocks, default
from kernelbayes.filters.choose.blocks import subsample, whole_rows
from kernelbayes.filters.choose.default import scaled_kernels, spreads
from kernelbayes.filters.choose.smoothing import Smoothing
from kernelbayes.filters.sequences import Part
from kernelbayes.filters.step import predict


def circling(rng, length):
    angle = np.cumsum(0.3 + 0.1 * rng.normal(size=length))
    z = np.column_stack([np.cos(angle), np.sin(angle)])
    return z + 0.3 * rng.normal(size=z.shape), z


X, Z = circling(np.random.default_rng(0), 200)
NEW, TRUTH = circling(np.random.default_rng(1), 150)


def error(model, x=NEW, z=TRUTH):
    return float(np.mean(np.sum((model.filter(x).mean() - z) ** 2, axis=1)))


def test_ranks_and_seeds_choose_the_same_ridge():
    models = [kb.KernelBayesFilter(rank=r, rng=s).fit(X, Z) for r, s in ((100, 0), (150, 1))]
    ridges = [model.ridge_ for model in models]
    assert max(ridges) < 10.0 * min(ridges)
    assert models[0].rank_ == 100


def filtered_in(unit):
    """Means of a filter that has seen everything in other units, in the old ones."""
    model = kb.KernelBayesFilter(rng=0).fit(X * unit, Z * unit[::-1])
    return model.filter(NEW * unit).mean() / unit[::-1]


# Units are powers of two, so that nothing rounds. Kernels on whole vectors race where columns have
# one unit; where they have two, half of the observation is lost to them.
@pytest.mark.parametrize("units", [((1.0, 1.0), (2.0**7, 2.0**7)), ((2.0**-10, 2.0**13),) * 2])
def test_units_do_not_matter(units):
    one, other = map(np.array, units)
    np.testing.assert_allclose(filtered_in(one), filtered_in(other[::-1]), rtol=0.0, atol=1e-9)


@pytest.fixture(scope="module")
def recordings():
    """Return errors (4, 3) on four recordings: plain, in mixed units, and plain but smoothed."""
    unit, found = np.array([1e-3, 1e4]), []
    for seed in range(4):
        rng = np.random.default_rng([9, seed])
        (x, z), (new, truth) = circling(rng, 150), circling(rng, 150)
        plain = kb.KernelBayesFilter(rng=0).fit(x, z)
        mixed = kb.KernelBayesFilter(rng=0).fit(x * unit, z * unit[::-1])
        with warnings.catch_warnings():  # of observations unlike the sample
            warnings.simplefilter("ignore", kb.NumericalWarning)
            means = (
                plain.filter(new).mean(),
                mixed.filter(new * unit).mean() / unit[::-1],
                plain.smooth(new).mean(),
            )
        found.append([np.mean(np.sum((mean - truth) ** 2, axis=1)) for mean in means])
    return np.array(found)


def test_mixed_units_are_no_worse_than_plain_ones(recordings):
    plain, mixed, _ = recordings.T
    error = np.sqrt((plain.var(ddof=1) + mixed.var(ddof=1)) / len(plain))
    assert mixed.mean() <= plain.mean() + 2.0 * error


def test_smoothing_gains_on_average_over_recordings(recordings):
    plain, _, smooth = recordings.mean(axis=0)
    assert smooth < plain


def test_what_is_given_is_kept_and_the_rest_chosen():
    model = kb.KernelBayesFilter(kernel_z=kb.Gaussian(0.4), ridge=0.02, rng=0).fit(X, Z)
    assert model.kernel_z_ == kb.Gaussian(0.4)
    assert model.ridge_ == 0.02
    assert len({row["base"] for row in model.choice_.table}) > 1
    ridges = {"ridge": 0.01, "prior_ridge": 1e-4, "transition_ridge": 1e-4}
    given = kb.KernelBayesFilter(kb.Gaussian(0.5), kb.Gaussian(0.4), rng=0, **ridges).fit(X, Z)
    assert given.choice_.table == []


def test_too_few_steps_get_the_middle():
    model = kb.KernelBayesFilter(rng=0).fit(X[:8], Z[:8])
    assert model.ridge_ == default.MIDDLE_RIDGE
    assert "nothing can be left out" in model.choice_.why["settings"]


def test_many_rows_get_a_low_rank_and_a_reason(monkeypatch):
    monkeypatch.setattr(default, "MOST_EXACT", 100)
    monkeypatch.setattr(default, "LARGE_RANK", 40)
    model = kb.KernelBayesFilter(rng=0).fit(X, Z)
    assert model.rank_ == 40
    assert "200 training rows" in model.choice_.why["rank"]


def test_out_of_memory_names_the_rank(monkeypatch):
    def full(*_):
        raise MemoryError

    monkeypatch.setattr("kernelbayes.filters.bayes.state_gram", full)
    with pytest.raises(MemoryError, match="rank=200"):
        kb.KernelBayesFilter(rng=0, ridge=0.1).fit(X[:8], Z[:8])


def test_controls_that_say_nothing_do_no_harm_and_strong_ones_help():
    rng = np.random.default_rng(3)

    def simulate(length):
        u, z = rng.normal(size=length), np.zeros(length)
        for t in range(1, length):
            z[t] = 0.8 * z[t - 1] + u[t] + 0.1 * rng.normal()
        return z + rng.normal(size=length), z, u

    (x, z, u), (new, truth, acts) = simulate(300), simulate(300)
    useless = rng.normal(size=300)

    def off(controls, now):
        beliefs = kb.KernelBayesFilter(rng=0).fit(x, z, controls).filter(new, now)
        return float(np.mean((beliefs.mean()[:, 0] - truth) ** 2))

    plain = off(None, None)
    assert off(u, acts) < 0.6 * plain
    assert off(useless, rng.normal(size=300)) < 1.15 * plain


def test_a_lost_prediction_is_reported():
    rng = np.random.default_rng(4)
    u = rng.normal(size=80)
    z = np.cumsum(u)
    kernels = kb.Gaussian(1.0), kb.Gaussian(0.5), kb.Gaussian(0.1)
    ridges = {"ridge": 0.01, "prior_ridge": 1e-4, "transition_ridge": 1e-4}
    model = kb.KernelBayesFilter(*kernels, rng=0, **ridges).fit(z + rng.normal(size=80), z, u)
    beliefs = model.filter(np.full((4, 1), np.nan), np.full((4, 1), 1e3))
    assert not beliefs.info.reset.any()  # the prediction without controls is left
    dynamics = model.dynamics_
    _, lost, _ = predict(dynamics, np.zeros((80, 1)), np.zeros((1, 1)))
    assert lost.all()


def test_smoothing_says_where_it_gains_nothing():
    model = kb.KernelBayesFilter(rng=0).fit(X, Z)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        model.smooth(NEW[:5])  # whether it gains depends on the recording
    assert any("gains nothing" in str(one.message) for one in told) != model.smoothing_.gains
    assert model.smoothing_.gains == (model.smoothing_.smoothed < model.smoothing_.filtered)
    model.smoothing_ = Smoothing(0.1, smoothed=1.0, filtered=2.0)
    model.smooth(NEW[:5])  # a warning would be an error
    model.smoothing_ = Smoothing(0.1, smoothed=2.0, filtered=1.0)
    with pytest.warns(kb.NumericalWarning, match="smoothing gains nothing"):
        model.smooth(NEW[:5])
    assert Smoothing(0.1).gains  # nothing is known
    assert kb.KernelBayesFilter(rng=0).fit(X[:8], Z[:8])._smoothing().ridge == 0.1


def test_spreads_survive_outliers_rare_values_and_constants():
    rng = np.random.default_rng(6)
    a = rng.normal(size=1000)
    wild, rare = a.copy(), np.zeros(1000)
    wild[0], rare[:2] = 1e6, 1.0
    s = spreads(np.column_stack([a, wild, rare, np.ones(1000)]))
    assert s[1] == pytest.approx(s[0], rel=0.05)
    assert 0.0 < s[2] < 0.1
    assert s[3] > 0.0


def test_kernels_of_columns_and_of_whole_vectors():
    X = np.random.default_rng(7).normal(size=(500, 2)) * (1.0, 100.0)
    (each,), (whole,) = (scaled_kernels(X, (0.5,), whole=flag) for flag in (False, True))
    assert each.bandwidth[1] == pytest.approx(100.0 * each.bandwidth[0], rel=0.2)
    assert whole.bandwidth == pytest.approx(0.5 * np.sqrt(2.0) * 100.0, rel=0.2)
    assert scaled_kernels(["a", "b"], (0.5, 1.0)) == [kb.Delta()]


def test_long_recordings_are_thinned_and_holes_filled():
    long = Part(np.zeros((5000, 1)), np.zeros((5000, 1)), None)
    pairs = [Part(np.zeros((1, 1)), np.zeros((1, 1)), None)] * 1000
    some = subsample([long, *pairs])
    steps = sum(len(s.X) for s in some if len(s.X) > 1)
    assert 0.8 * blocks.MOST_STEPS < steps < 1.2 * blocks.MOST_STEPS
    assert sum(len(s.X) == 1 for s in some) == blocks.MOST_PAIRS
    # What intervals are corrected by has more: about as much as a filter with all rows.
    more = subsample([long, *pairs], blocks.MOST_EXACT)
    steps = sum(len(s.X) for s in more if len(s.X) > 1)
    assert 0.8 * blocks.MOST_EXACT < steps < 1.2 * blocks.MOST_EXACT
    assert blocks.MOST_PAIRS < sum(len(s.X) == 1 for s in more) < 1000
    holes = np.array([[1.0, np.nan], [np.nan, np.nan], [3.0, 4.0]])
    (found,) = whole_rows([Part(holes, np.zeros((3, 1)), None)])
    np.testing.assert_array_equal(found.X, [[1.0, 4.0], [np.nan, np.nan], [3.0, 4.0]])
