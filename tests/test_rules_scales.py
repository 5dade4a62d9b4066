"""Scales of x by how well z is predicted, and units that do not matter in rules and tests."""

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import make_column_transformer
from sklearn.kernel_ridge import KernelRidge
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import kernelbayes as kb
from kernelbayes.rules.scales import pair_kernels

UNITS = np.array([1024.0, 1.0, 2.0**-20])  # powers of two: scaling is exact


def problem(kind, n, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    z = {
        "all": np.sin(2.0 * X[:, 0]) + 0.5 * X[:, 1] * X[:, 2],
        "first": np.sin(3.0 * X[:, 0]),
        "last": np.sin(3.0 * X[:, 2]),
        "none": np.zeros(n),
    }[kind]
    return X, np.column_stack([z, X[:, 1]]) + 0.3 * rng.normal(size=(n, 2))


def share(predictions, z):
    """Coefficient of determination."""
    return 1.0 - np.mean((predictions - z) ** 2) / np.var(z)


@pytest.mark.filterwarnings("ignore:.* outside the training sample")
@pytest.mark.parametrize("kind", ["all", "first", "last", "none"])
def test_units_do_not_matter_to_rules(kind):
    X, Z = problem(kind, 120)
    new, prior, units = X[:7] + 0.1, Z[:50] + 0.2, np.array([2.0**-12, 512.0])
    cme, rule = kb.ConditionalEmbedding(), kb.KernelBayesRule()
    found = cme.fit(X, Z)(new).weights
    np.testing.assert_allclose(cme.fit(X * UNITS, Z * units)(new * UNITS).weights, found)
    for given in (None, prior):
        found = rule.fit(X, Z, prior=given).predict(new)
        again = rule.fit(X * UNITS, Z * units, prior=None if given is None else given * units)
        np.testing.assert_allclose(again.predict(new * UNITS), found * units, rtol=1e-6)


def test_units_do_not_matter_to_tests():
    X, Z = problem("all", 60)
    Y = X[::-1] + 0.3
    for run in (kb.mmd_test, kb.mmd_aggregated):
        found, again = run(X, Y, rng=0), run(X * UNITS, Y * UNITS, rng=0)
        assert found.pvalue == again.pvalue
        assert found.statistic == pytest.approx(again.statistic, rel=1e-9)
    found, again = kb.hsic_test(X, Z, rng=0), kb.hsic_test(X * UNITS, Z * [1024.0, 1.0], rng=0)
    assert found.pvalue == again.pvalue


@pytest.mark.filterwarnings("ignore:.* outside the training sample")
def test_units_do_not_matter_to_tune():
    X, Z = problem("all", 80)
    prior = Z[:40] + 0.2
    found = kb.tune(kb.KernelBayesRule(), X, Z, prior=prior, budget=4, rng=0).predict(X[:5])
    scaled = np.array([1.0, 64.0])
    again = kb.tune(
        kb.KernelBayesRule(), X * UNITS, Z * scaled, prior=prior * scaled, budget=4, rng=0
    )
    np.testing.assert_allclose(again.predict(X[:5] * UNITS), found * scaled, rtol=1e-6)


@pytest.mark.filterwarnings("ignore:.* outside the training sample")
@pytest.mark.parametrize("seed", range(3))
def test_columns_in_different_units_are_as_good_as_standardised_ones(seed):
    X, Z = problem("all", 700, seed)
    z, X = Z[:, 0], X * [1000.0, 1.0, 0.01]
    train, test = slice(0, 300), slice(300, None)
    scale = X[train].std(axis=0)
    median = kb.Gaussian.median
    by = {}
    for name, U in (("raw", X), ("standardised", X / scale)):
        rule = kb.KernelBayesRule(median(U[train]), median(z[train])).fit(U[train], z[train])
        by[name] = share(rule.predict(U[test]), z[test])
    default = kb.KernelBayesRule().fit(X[train], z[train])
    found = share(default.predict(X[test]), z[test])
    assert found > by["standardised"] - 0.03
    assert found > by["raw"] + 0.1  # one bandwidth for all columns loses the answer


def test_columns_that_say_nothing_disappear():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 8))
    z = np.sin(2.0 * X[:, 2]) + 0.2 * rng.normal(size=400)
    h = np.array(kb.ConditionalEmbedding().fit(X, z).kernel_x_.bandwidth)
    assert np.argmin(h) == 2
    assert np.median(h) > 4.0 * h[2]


def test_a_fine_relation_gets_a_narrow_kernel_and_none_does_not():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(400, 1))
    median, noise = kb.Gaussian.median(x).bandwidth, 0.3 * rng.normal(size=400)
    for make in (kb.ConditionalEmbedding, kb.KernelBayesRule):
        assert make().fit(x, np.sin(10.0 * x[:, 0]) + noise).kernel_x_.bandwidth < 0.5 * median
        assert make().fit(x, noise).kernel_x_.bandwidth > 0.99 * median


@pytest.mark.filterwarnings("ignore:.* outside the training sample")
@pytest.mark.parametrize("kind", ["plane", "saddle"])
def test_what_is_flat_in_many_columns_gets_a_wide_kernel(kind):
    """As good as the regression on the right polynomial, but for a few percent of the noise."""
    lost = []
    for seed in range(8):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(1400, 5))
        F = X if kind == "plane" else np.column_stack([X, X[:, 0] * X[:, 1]])
        mean = F @ ([1.0, 2.0, 0.0, 0.5, -1.0] if kind == "plane" else [0, 0, 0, 0, 0, 1.0])
        z = mean + 0.5 * rng.normal(size=1400)
        found = kb.KernelBayesRule().fit(X[:400], z[:400]).predict(X[400:])
        F = np.column_stack([np.ones(1400), F])
        best = F[400:] @ np.linalg.lstsq(F[:400], z[:400], rcond=None)[0]
        lost.append(np.mean((found - z[400:]) ** 2) / np.mean((best - z[400:]) ** 2) - 1.0)
    assert np.mean(lost) < 0.1


def test_a_bandwidth_too_many_is_refused():
    x = np.linspace(0.0, 1.0, 40)
    Z = np.column_stack([x, x**2])
    with pytest.raises(ValueError, match="has 3 bandwidths, but the points have 2 dimensions"):
        kb.KernelBayesRule(kernel_z=kb.Gaussian((1.0, 1.0, 1.0))).fit(x, Z)


def test_what_is_given_stays():
    X, Z = problem("all", 60)
    kernels = kb.Laplace(1.0), kb.Matern(2.0)
    assert pair_kernels(X, Z, *kernels) == kernels
    assert pair_kernels(X, Z, None, kernels[1])[1] == kernels[1]
    words = ["a", "b", "c"] * 20
    assert pair_kernels(words, Z, None, None)[0] == kb.Delta()
    assert (
        pair_kernels(X[:5], Z[:5], None, None)[0] == pair_kernels(X[:5], Z[:5][::-1], None, None)[0]
    )
    constant = np.ones(60)
    with pytest.warns(kb.NumericalWarning, match="coincide"):
        kernel, _ = pair_kernels(X, constant, None, None)
    assert isinstance(kernel, kb.Gaussian)


def surveyed(n, rng, shift=0.0):
    """Incomes, ages and visits; ages shifted by a share of their standard deviation."""
    return pd.DataFrame(
        {
            "income": np.exp(10.0 + 0.6 * rng.normal(size=n)),
            "age": 45.0 + 15.0 * (rng.normal(size=n) + shift),
            "visits": rng.poisson(2.0, size=n),
        }
    )


@pytest.mark.parametrize("seed", range(2))
def test_a_shift_in_one_column_of_a_frame_is_found(seed):
    rng = np.random.default_rng(seed)
    a, b = surveyed(500, rng), surveyed(500, rng, 2.0 / 3.0)
    assert kb.mmd_test(a, b, rng=0).pvalue == pytest.approx(1.0 / 1001.0)
    assert kb.mmd_test(a.to_numpy(), b.to_numpy(), rng=0).pvalue == pytest.approx(1.0 / 1001.0)


def test_a_shift_in_one_column_of_a_large_frame_is_found():
    rng = np.random.default_rng(0)
    a, b = surveyed(20_000, rng), surveyed(20_000, rng, 2.0 / 3.0)
    for method in ("features", "linear"):
        assert kb.mmd_test(a, b, permutations=199, rng=0, method=method).pvalue <= 0.005


@pytest.mark.filterwarnings("ignore:.* outside the training sample")
def test_rules_learn_from_a_mixed_frame():
    rng = np.random.default_rng(0)
    data = surveyed(400, rng)
    data["city"] = rng.choice(["Oslo", "Rome", "Bonn"], size=400)
    data["member"] = rng.random(400) < 0.5
    height = {"Oslo": 0.0, "Rome": 1.0, "Bonn": 2.0}
    z = data["city"].map(height).to_numpy() + 0.05 * data["age"].to_numpy() + 0.5 * data["member"]
    z = z.to_numpy() + 0.2 * rng.normal(size=400)
    rule = kb.KernelBayesRule().fit(data[:300], z[:300])
    assert share(rule.predict(data[300:]), z[300:]) > 0.8
    cme = kb.ConditionalEmbedding().fit(data[:300], z[:300])
    assert share(cme(data[300:]).mean()[:, 0], z[300:]) > 0.8
    hidden = kb.KernelBayesRule().fit(z[:300], data[:300])  # a mixed z is decoded by questions
    likely = hidden.posterior(z[300:302])[0].prob(lambda points: points["city"] == "Oslo")
    assert 0.0 <= likely <= 1.0


def rentals(n, rng):
    """A mixed frame with columns that say nothing, and its noisy prices."""
    frame = pd.DataFrame(
        {
            "city": rng.choice(["rome", "oslo", "bonn", "lima"], n, p=[0.4, 0.3, 0.2, 0.1]),
            "new": rng.random(n) < 0.3,
            "size": rng.normal(20.0, 5.0, n),
            "way": np.exp(rng.normal(3.0, 0.7, n)),
            "month": rng.integers(1, 13, n),
        }
    )
    by_city = frame["city"].map({"rome": 0.0, "oslo": 2.0, "bonn": 1.0, "lima": -1.0})
    z = by_city + 0.2 * frame["new"] * (frame["size"] - 20.0) + 0.02 * frame["way"]
    return frame, z.to_numpy() + 0.5 * rng.normal(size=n)


@pytest.mark.filterwarnings("ignore:.* outside the training sample")
def test_columns_of_a_mixed_frame_are_compared_one_by_one():
    rng = np.random.default_rng(0)
    frame, _ = rentals(300, rng)
    frame["colour"] = rng.choice(["red", "blue"], 300)  # as month, it says nothing
    wave = np.sin(0.5 * frame["size"]) + (frame["city"] == "rome") + 0.2 * rng.normal(size=300)
    parts = dict(kb.KernelBayesRule().fit(frame, wave.to_numpy()).kernel_x_.parts)
    size, _, month = parts["size", "way", "month"].bandwidth
    assert month / frame["month"].std() > 4.0 * size / frame["size"].std()
    assert parts["colour"].bandwidth > 2.0 * parts["city"].bandwidth
    only = frame[["city", "new"]]
    found = kb.KernelBayesRule().fit(only, wave.to_numpy()).predict(only)  # categories alone
    assert share(found, wave) > 0.15


@pytest.mark.filterwarnings("ignore:.* outside the training sample")
def test_few_rows_of_a_mixed_frame_are_as_good_as_tuned_kernel_ridge():
    """Mean R^2 over ten samples of 60 rows; one scale for all columns lost 0.04 to 0.07."""
    ridge = make_pipeline(
        make_column_transformer(
            (StandardScaler(), ["size", "way", "month"]), (OneHotEncoder(), ["city", "new"])
        ),
        GridSearchCV(
            KernelRidge(kernel="rbf"),
            {"alpha": np.logspace(-3, 1.5, 7), "gamma": np.logspace(-3, 1, 9)},
        ),
    )
    ours, theirs = [], []
    for seed in range(1000, 1010):
        rng = np.random.default_rng(seed)
        (frame, z), (new, truth) = rentals(60, rng), rentals(500, rng)
        ours.append(share(kb.KernelBayesRule().fit(frame, z).predict(new), truth))
        theirs.append(share(ridge.fit(frame, z - z.mean()).predict(new) + z.mean(), truth))
    errors = np.std(np.subtract(ours, theirs)) / np.sqrt(10)
    assert np.mean(ours) > np.mean(theirs) - 0.02 - 2.0 * errors


def test_a_plane_goes_on_just_beyond_the_sample():
    """At 1.2 times the range the error was ten times that of the line."""
    for seed in range(1000, 1004):
        rng = np.random.default_rng(seed)
        X, slope = rng.uniform(-1, 1, (200, 3)), np.array([2.0, -1.0, 0.5])
        new = rng.uniform(-1.2, 1.2, (500, 3))
        rule = kb.KernelBayesRule().fit(X, X @ slope + 0.1 * rng.normal(size=200))
        off = rule.posterior(new).mean()[:, 0] - new @ slope
        assert np.sqrt(np.mean(off**2)) < 0.1  # the noise


def test_copies_of_pairs_are_told():
    rng = np.random.default_rng(0)
    X, z = rng.uniform(-3, 3, (60, 2)), rng.normal(size=60)
    with pytest.warns(kb.NumericalWarning, match="60 of 120 pairs are exact copies"):
        kb.KernelBayesRule().fit(np.vstack([X, X]), np.r_[z, z])
    counts, codes = rng.poisson(2.0, 200), rng.integers(0, 8, (200, 2))
    for x, y in ((X, z), (codes, counts), (codes, rng.normal(size=200))):
        kb.KernelBayesRule().fit(x, y)  # no warning: values that are equal by chance
