"""Filters that learn from more sequences: partial_fit."""

import numpy as np
import pytest

import kernelbayes as kb
from kernelbayes.filters.choose import default

GIVEN = {
    "kernel_x": kb.Gaussian(0.6),
    "kernel_z": kb.Gaussian(0.5),
    "ridge": 1e-2,
    "prior_ridge": 1e-3,
    "transition_ridge": 1e-3,
    "rng": 0,
}


def circling(rng, length, gain=1.0):
    angle = rng.uniform(0.0, 6.0) + np.cumsum(0.3 + 0.1 * rng.normal(size=length))
    Z = np.column_stack([np.cos(angle), np.sin(angle)])
    return gain * Z + 0.2 * rng.normal(size=Z.shape), Z


@pytest.fixture
def recordings():
    rng = np.random.default_rng(0)
    return [circling(rng, length) for length in (60, 40, 30)]


def test_it_is_a_fit_to_all_sequences(recordings):
    (A, a), (B, b), (N, _) = recordings
    grown = kb.KernelBayesFilter(**GIVEN).partial_fit(A, a).partial_fit(B, b)
    whole = kb.KernelBayesFilter(**GIVEN).fit([A, B], [a, b])
    assert grown.n == whole.n == 100
    np.testing.assert_allclose(grown.filter(N).mean(), whole.filter(N).mean(), rtol=0.0, atol=1e-12)


@pytest.mark.filterwarnings("ignore:.*unlike anything:kernelbayes.NumericalWarning")
@pytest.mark.parametrize("columns", [1, 2])
def test_with_controls_and_scalars(columns):
    rng = np.random.default_rng(1)

    def simulate(length):
        u, z = rng.normal(size=length), np.zeros(length)
        for t in range(1, length):
            z[t] = 0.8 * z[t - 1] + u[t] + 0.1 * rng.normal()
        z = z if columns == 1 else np.column_stack([z, z**2])
        return z + 0.3 * rng.normal(size=z.shape), z, u

    given = {**GIVEN, "kernel_u": kb.Gaussian(1.0)}
    first, second, (N, _, v) = simulate(50), simulate(40), simulate(20)
    grown = kb.KernelBayesFilter(**given).fit(*first).partial_fit(*second)
    whole = kb.KernelBayesFilter(**given).fit(*zip(first, second, strict=True))
    expected = whole.filter(N, v).mean()
    np.testing.assert_allclose(grown.filter(N, v).mean(), expected, rtol=0.0, atol=1e-12)


@pytest.mark.filterwarnings("ignore:.*unlike anything:kernelbayes.NumericalWarning")
def test_controls_stay_if_the_first_sequence_is_a_single_pair():
    rng = np.random.default_rng(2)
    u, z = rng.normal(size=60), np.zeros(60)
    for t in range(1, 60):
        z[t] = 0.8 * z[t - 1] + u[t] + 0.1 * rng.normal()
    parts = [(z[:1], z[:1], u[:1]), (z[1:40], z[1:40], u[1:40]), (z[40:], z[40:], u[40:])]
    given = {**GIVEN, "kernel_u": kb.Gaussian(1.0)}
    grown = kb.KernelBayesFilter(**given).fit(*zip(*parts[:2], strict=True))
    grown.partial_fit(*parts[2])
    whole = kb.KernelBayesFilter(**given).fit(*zip(*parts, strict=True))
    expected = whole.filter(z, u).mean()
    np.testing.assert_allclose(grown.filter(z, u).mean(), expected, rtol=0.0, atol=1e-12)


def test_choices_of_the_first_fit_stay(recordings):
    (A, a), (B, b), (N, _) = recordings
    model = kb.KernelBayesFilter(rng=0).fit(A, a)
    chosen = model.kernel_x_, model.kernel_z_, model.ridge_, model.choice_
    assert model.partial_fit(B, b) is model
    assert (model.kernel_x_, model.kernel_z_, model.ridge_, model.choice_) == chosen
    assert model.get_params()["ridge"] == "auto"
    assert np.isfinite(model.filter(N).mean()).all()


def test_many_pairs_get_a_rank_and_say_so(recordings, monkeypatch):
    (A, a), (B, b), _ = recordings
    model = kb.KernelBayesFilter(**GIVEN).fit(A, a)
    monkeypatch.setattr(default, "MOST_EXACT", 80)
    monkeypatch.setattr(default, "LARGE_RANK", 30)
    assert model.rank_ is None
    assert model.partial_fit(B, b).rank_ == 30


def test_the_oldest_pairs_go_first(recordings):
    (A, a), (B, b), (N, _) = recordings
    grown = kb.KernelBayesFilter(**GIVEN).fit(A, a).partial_fit(B, b, keep=70)
    whole = kb.KernelBayesFilter(**GIVEN).fit([A[-30:], B], [a[-30:], b])
    assert grown.n == 70
    np.testing.assert_allclose(grown.filter(N).mean(), whole.filter(N).mean(), rtol=0.0, atol=1e-12)
    assert grown.partial_fit(A, a, keep=20).n == 20


def test_a_drifting_sensor_is_followed():
    rng = np.random.default_rng(2)
    old, new, (N, truth) = (circling(rng, n, gain) for n, gain in ((150, 1), (150, -1), (100, -1)))

    def error(keep):
        model = kb.KernelBayesFilter(**GIVEN).fit(*old).partial_fit(*new, keep=keep)
        return np.mean(np.sum((model.filter(N).mean() - truth) ** 2, axis=1))

    # The sign of the sensor has changed, so that with all pairs opposite states are as likely.
    assert error(150) < 0.1 * error(None)


def test_names_are_kept_and_put_in_order(recordings):
    pandas = pytest.importorskip("pandas")
    (A, a), (B, b), _ = recordings
    frames = [pandas.DataFrame(values, columns=["u", "v"]) for values in (A, B)]
    model = kb.KernelBayesFilter(**GIVEN).fit(frames[0], a)
    model.partial_fit(frames[1][["v", "u"]], b)
    assert model.names_x_ == ("u", "v")
    np.testing.assert_array_equal(model.X_[-40:], B)


def test_bad_use_is_refused(recordings):
    (A, a), (B, b), _ = recordings
    model = kb.KernelBayesFilter(**GIVEN).fit(A, a)
    with pytest.raises(ValueError, match="keep"):
        model.partial_fit(B, b, keep=0)
    before = model.filter(B).mean()
    with pytest.raises(ValueError, match="states"):
        model.partial_fit(B, b[:-1])
    np.testing.assert_array_equal(model.filter(B).mean(), before)  # nothing of it is lost
    with pytest.raises(ValueError, match="compact"):
        model.compact(30).partial_fit(B, b)


def plain_steps(*beliefs):
    """Steps (T,) before the first safeguard: these count points, which are more if repeated."""
    same = ~np.logical_or.accumulate(np.any([b.info.fallback for b in beliefs], axis=0))
    assert same[0]
    return same


ODD = {**GIVEN, "memory": 0.7, "tempering": 0.8}


@pytest.mark.parametrize(
    "given", [GIVEN, ODD, {**GIVEN, "method": "original", "ridge": 1e-4}, {**GIVEN, "rank": 40}],
    ids=["importance", "tempered", "original", "rank"],
)  # fmt: skip
def test_forgetting_is_a_fit_with_pairs_repeated(recordings, given):
    """Old pairs that count a half are those of a fit in which the new ones are there twice."""
    (A, a), (B, b), (N, _) = recordings
    if "rank" in given:  # landmarks must be the same ones
        given = {name: value for name, value in given.items() if name != "rank"}
        given["kernel_x"] = kb.nystrom(given["kernel_x"], A, 30, rng=0)
        given["kernel_z"] = kb.nystrom(given["kernel_z"], a, 30, rng=1)
    given = {**given, "back_ridge": 1e-2}  # not chosen from blocks of time, which differ
    half = kb.KernelBayesFilter(**given).fit(A, a).partial_fit(B, b, forgetting=0.5)
    twice = kb.KernelBayesFilter(**given).fit([A, B, B], [a, b, b])
    plain = kb.KernelBayesFilter(**given).fit([A, B], [a, b])
    beliefs = [one.filter(N) for one in (half, twice, plain)]
    same = plain_steps(*beliefs[:2])
    means = [found.mean()[same] for found in beliefs]
    np.testing.assert_allclose(means[0], means[1], rtol=0.0, atol=1e-7)
    assert np.abs(means[0] - means[2]).max() > 1e-4
    if same.all():
        smooth = [one.smooth(N, lag=3).mean() for one in (half, twice)]
        np.testing.assert_allclose(*smooth, rtol=0.0, atol=1e-6)


def test_forgetting_twice_and_dropping_the_oldest(recordings):
    (A, a), (B, b), (N, n) = recordings
    model = kb.KernelBayesFilter(**GIVEN).fit(A, a).partial_fit(B, b, forgetting=0.5)
    model.partial_fit(N, n, forgetting=0.5, keep=80)
    expected = np.repeat([0.25, 0.5, 1.0], [10, 40, 30])
    np.testing.assert_allclose(model.dynamics_.counts, expected / expected.mean())
    again = kb.KernelBayesFilter(**GIVEN).fit(A, a).partial_fit(B, b, forgetting=1.0)
    assert again.dynamics_.counts is None


def test_a_filter_that_has_forgotten_starts_from_what_its_pairs_count(recordings):
    (A, a), (B, b), (N, _) = recordings
    half = kb.KernelBayesFilter(**GIVEN).fit(A, a).partial_fit(B, b, forgetting=0.5)
    twice = kb.KernelBayesFilter(**GIVEN).fit([A, B, B], [a, b, b])
    means = [one.start().belief.mean() for one in (half, twice)]
    np.testing.assert_allclose(means[0], means[1], rtol=1e-9)
    with pytest.raises(ValueError, match="no transition that counts"):
        half.partial_fit(N[:1], b[:1], forgetting=lambda z: np.zeros(len(z)))


def test_a_density_ratio_weighs_old_pairs(recordings, tmp_path):
    (A, a), (B, b), (N, _) = recordings
    ratio = kb.density_ratio(b[:10], a, GIVEN["kernel_z"])
    model = kb.KernelBayesFilter(**GIVEN).fit(A, a)
    model.partial_fit(B, b, forgetting=lambda Z: np.maximum(ratio(Z), 0.0))
    counts = np.concatenate([np.maximum(ratio(a), 0.0), np.ones(len(b))])
    np.testing.assert_allclose(model.dynamics_.counts, counts / counts.mean())
    assert np.all(np.isfinite(model.filter(N).mean()))
    small = model.compact(60)
    assert small.report.error < 0.5
    kb.save(model, tmp_path / "filter.kb")
    loaded = kb.load(tmp_path / "filter.kb")
    np.testing.assert_allclose(loaded.filter(N).mean(), model.filter(N).mean(), atol=1e-12)


@pytest.mark.filterwarnings("ignore:.*unlike anything:kernelbayes.NumericalWarning")
def test_controls_are_forgotten_with_their_pairs():
    rng = np.random.default_rng(2)

    def simulate(length):
        u, z = rng.normal(size=length), np.zeros(length)
        for t in range(1, length):
            z[t] = 0.8 * z[t - 1] + u[t] + 0.1 * rng.normal()
        return z + 0.3 * rng.normal(size=length), z, u

    given = {**GIVEN, "kernel_u": kb.Gaussian(1.0)}
    first, second, (N, _, v) = simulate(60), simulate(50), simulate(20)
    half = kb.KernelBayesFilter(**given).fit(*first).partial_fit(*second, forgetting=0.5)
    twice = kb.KernelBayesFilter(**given).fit(*zip(first, second, second, strict=True))
    beliefs = [one.filter(N, v) for one in (half, twice)]
    same = plain_steps(*beliefs)
    np.testing.assert_allclose(*(b.mean()[same] for b in beliefs), rtol=0.0, atol=1e-6)


@pytest.mark.parametrize(
    "forgetting", [0.0, 1.5, np.nan, lambda Z: -(Z[:, 0] ** 2), lambda Z: Z[:3]]
)
def test_bad_forgetting_is_refused(recordings, forgetting):
    (A, a), (B, b), _ = recordings
    model = kb.KernelBayesFilter(**GIVEN).fit(A, a)
    with pytest.raises(ValueError, match="forgetting"):
        model.partial_fit(B, b, forgetting=forgetting)
    assert model.n == len(a)
