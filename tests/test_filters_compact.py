"""Compact filters: the operators of all training pairs on a few of them."""

import numpy as np
import pytest

import kernelbayes as kb
from kernelbayes import Gaussian, KernelBayesFilter
from kernelbayes.scale.statistics import PairSums

pytestmark = pytest.mark.filterwarnings("ignore::kernelbayes.NumericalWarning")


def rotation(n, seed=0):
    rng = np.random.default_rng(seed)
    angle = np.cumsum(0.3 + 0.2 * rng.normal(size=n))
    z = np.column_stack([np.cos(angle), np.sin(angle)]) * (1.0 + 0.1 * rng.normal(size=(n, 1)))
    return z + 0.2 * rng.normal(size=z.shape), z


def model(**options):
    given = {"kernel_x": Gaussian(0.7), "kernel_z": Gaussian(0.5), "rank": 60, "rng": 0}
    ridges = {"prior_ridge": 1e-5, "transition_ridge": 1e-5, "ridge": 1e-2, "back_ridge": 0.1}
    return KernelBayesFilter(**(given | ridges | options))


def error(found, z):
    return np.mean(np.sum((found.mean() - z) ** 2, axis=1))


def test_all_pairs_are_the_full_filter():
    """With a budget of n the operators are the same, so the beliefs have the same features."""
    x, z = rotation(300)
    full = model(kernel_u=Gaussian(1.0)).fit(x, z, controls=np.zeros((300, 1)))
    for whole, u in ((model().fit(x, z), None), (full, np.zeros((20, 1)))):
        new = rotation(20, seed=1)[0]
        ours, one = whole.compact(300).filter(new, u), whole.filter(new, u)
        # Predictions are other weights with the same features, found by a solve with a ridge of
        # 1e-10 relative to them; sixty features square its condition.
        np.testing.assert_allclose(ours.mean(), one.mean(), atol=1e-3)


def test_a_prediction_has_the_features_of_all_transitions():
    x, z = rotation(800)
    full = model().fit(x, z)
    small = full.compact(200)
    w = np.random.default_rng(0).dirichlet(np.ones(200))
    big, few = full.dynamics_, small.dynamics_
    belief = few.features.T @ w
    expected = big.features[big.target].T @ (big.before @ (big.transport @ belief))
    found = few.features.T @ (few.before @ (few.transport @ belief))
    np.testing.assert_allclose(found, expected, atol=1e-4 * np.abs(expected).max())


def test_the_error_is_within_two_per_cent_of_the_full_model():
    x, z = rotation(4000)
    full = model(rank=100).fit(x, z)
    small = full.compact(500)
    new, truth = rotation(600, seed=1)
    ours, one = error(small.filter(new), truth), error(full.filter(new), truth)
    # Two per cent, and two standard errors of the mean of the difference of the losses.
    gap = np.sum((small.filter(new).mean() - truth) ** 2, axis=1)
    gap = gap - np.sum((full.filter(new).mean() - truth) ** 2, axis=1)
    assert ours < 1.02 * one + 2.0 * gap.std() / np.sqrt(len(gap))
    assert small.report.error == pytest.approx(small.report.compact / small.report.full - 1.0)
    assert (small.report.n, small.report.kept, small.report.steps) == (4000, 500, 200)


def test_weights_of_the_papers_have_the_scale_of_all_pairs():
    """A literal filter does not divide by the mass: its weights sum to what the full ones do."""
    x, z = rotation(2000)
    full = model(literal=True).fit(x, z)
    new = rotation(3, seed=1)[0]
    ours, one = full.compact(500).filter(new), full.filter(new)
    # Sums over 500 herded pairs instead of 2000: half of the error of as many random ones, 1 / 22.
    np.testing.assert_allclose(ours.mass, one.mass, atol=0.03)


def test_picked_pairs_are_closer_than_random_ones():
    x, z = rotation(2000)
    small = model().fit(x, z).compact(100)
    kernel = kb.Parts({"x": Gaussian(0.7), "z": Gaussian(0.5)})
    everything = kb.embed({"x": x, "z": z}, kernel)
    some = np.random.default_rng(0).permutation(2000)[:100]
    ours = kb.mmd(everything, kb.embed({"x": small.X_, "z": small.Z_}, kernel))
    random = kb.mmd(everything, kb.embed({"x": x[some], "z": z[some]}, kernel))
    assert ours < 0.5 * random


def test_the_interface_is_the_same_and_the_file_is_small(tmp_path):
    x, z = rotation(3000)
    small = model(lags=2).fit(x, z).compact(100)
    new = rotation(12, seed=2)[0]
    new[3] = np.nan
    beliefs = small.filter(new)
    state = small.start()
    for row in new:
        state, _ = small.step(state, row)
    np.testing.assert_allclose(state.belief.mean(), beliefs.mean()[-1], atol=1e-10)
    assert small.smooth(new).mean().shape == small.forecast(new, 12).mean().shape == (12, 2)
    kb.save(small, tmp_path / "small.kb")
    assert (tmp_path / "small.kb").stat().st_size < 2**21
    again = kb.load(tmp_path / "small.kb")
    np.testing.assert_array_equal(again.filter(new).mean(), beliefs.mean())
    assert again.report == small.report


def test_what_cannot_be_compact_is_refused():
    x, z = rotation(100)
    with pytest.raises(ValueError, match="operator"):
        model(transition="shift").fit(x, z).compact(50)
    with pytest.raises(ValueError, match="budget"):
        model().fit(x, z).compact(1)


@pytest.mark.parametrize("options", [{}, {"initial": "observation"}])
@pytest.mark.parametrize("rank", [15, 30])
def test_the_original_rule_is_that_of_all_pairs(rank, options, tmp_path):
    """Sums of the original rule are linear in the prior: in coordinates nothing is lost."""
    x, z = rotation(500)
    full = model(rank=rank, method="original", ridge=1e-3, **options).fit(x, z)
    small = full.compact(200)
    assert small.n == 200
    new = rotation(40, seed=1)[0]
    beliefs = [one.filter(new) for one in (full, small)]
    # A prediction of which little is left is seen by its weights, which are others.
    broken = [b.info.fallback | b.info.reset for b in beliefs]
    same = ~np.logical_or.accumulate(broken[0] | broken[1])
    assert same[0]
    # Predictions are found by a solve with a ridge of 1e-10.
    ours, one = (b.mean()[same] for b in beliefs)
    np.testing.assert_allclose(ours, one, atol=1e-5)
    masses = [b.info.mass[same] for b in beliefs]
    np.testing.assert_allclose(*masses, atol=1e-5)
    features = [
        b.weights[same] @ m.dynamics_.features for b, m in zip(beliefs, (full, small), strict=True)
    ]
    np.testing.assert_allclose(*features, atol=1e-5)
    kb.save(small, tmp_path / "filter.kb")
    loaded = kb.load(tmp_path / "filter.kb").filter(new)
    np.testing.assert_allclose(loaded.weights, beliefs[1].weights, rtol=0.0, atol=1e-12)


def test_sums_in_coordinates_are_sums_over_pairs():
    rng = np.random.default_rng(0)
    F, L, Z = (rng.normal(size=(50, k)) for k in (4, 3, 2))
    counts, picks = rng.uniform(0.5, 1.5, size=50), np.arange(12)
    sums = PairSums.of(F, L, Z, counts, picks)
    beta = np.array([0.1, -0.2, 0.1, 1.0])
    B = np.column_stack([L, np.ones(50)])
    gamma = counts * (B @ beta)
    gamma /= gamma.sum()
    C, c = F.T @ (gamma[:, None] * F), rng.normal(size=4)
    w = gamma * (F @ np.linalg.solve(C @ C + 0.1 * np.eye(4), C @ c))
    found, rescued = sums.posterior(B[picks] @ beta, c, 0.1, None)
    A = np.column_stack([B, Z])
    np.testing.assert_allclose(A[picks].T @ found, A.T @ w, atol=1e-10)
    assert not rescued
    w = gamma * (F @ np.linalg.solve(C + 0.1 * np.eye(4), c))
    np.testing.assert_allclose(
        A[picks].T @ sums.posterior(B[picks] @ beta, c, 0.3, 0.1)[0], A.T @ w
    )


@pytest.mark.parametrize("budget", [30, 60])
def test_few_pairs_of_the_original_rule_lose_no_observations(budget):
    """Pairs that cannot hold the sums follow the rule over themselves."""
    errors = []
    for seed in range(4):
        rng = np.random.default_rng(seed)
        Z = [0.3 * np.cumsum(rng.normal(size=60)) for _ in range(4)]
        X = [z + 0.2 * rng.normal(size=60) for z in Z]
        full = KernelBayesFilter(
            Gaussian(1.0), Gaussian(1.0), method="original", rank=20, prior_ridge=1e-3,
            transition_ridge=1e-3, ridge=1e-2, memory=1.0, tempering=1.0, lags=1, order=1,
            features="raw", intervals="plain", rng=0,
        ).fit(X[:3], Z[:3])  # fmt: skip
        models = full, full.compact(budget)
        errors.append([np.mean((m.filter(X[3]).mean()[:, 0] - Z[3]) ** 2) for m in models])
    whole, compact = np.sqrt(np.mean(errors, axis=0))
    assert compact < 1.5 * whole  # three times it where observations were lost
