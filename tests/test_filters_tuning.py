"""tune for filters: what it searches, what it is scored on, what it refuses."""

import numpy as np
import pytest

import kernelbayes as kb
from kernelbayes.filters.choose.holdout import cut
from kernelbayes.filters.choose.racing import gains
from kernelbayes.select.search import Trial


def circling(rng, length):
    angle = np.cumsum(0.3 + 0.1 * rng.normal(size=length))
    z = np.column_stack([np.cos(angle), np.sin(angle)])
    return z + 0.3 * rng.normal(size=z.shape), z


X, Z = circling(np.random.default_rng(0), 160)
NEW, TRUTH = circling(np.random.default_rng(1), 100)


def error(model):
    return float(np.mean(np.sum((model.filter(NEW).mean() - TRUTH) ** 2, axis=1)))


def chosen(model):
    (row,) = (row for row in model.tuning_ if row["chosen"])
    return row


def test_a_bad_start_is_left_behind():
    bad = kb.KernelBayesFilter(kb.Gaussian(20.0), kb.Gaussian(6.0), ridge=1.0, prior_ridge=0.1)
    bad.set_params(rank=40, rng=0)
    tuned = kb.tune(bad, X, Z, rng=0, budget=25)
    assert error(tuned) < 0.5 * error(bad.fit(X, Z))
    assert sum(row["steps"] for row in tuned.tuning_) <= 25 * len(X)
    assert chosen(tuned)["score"] < tuned.tuning_[0]["score"]


def test_the_chosen_row_is_what_is_fitted():
    tuned = kb.tune(kb.KernelBayesFilter(), X, Z, rng=0, budget=6)
    row = chosen(tuned)
    assert tuned.ridge_ == pytest.approx(row["ridge"])
    assert tuned.prior_ridge_ == pytest.approx(row["prior"])
    assert tuned.transition_ridge_ == pytest.approx(row["transition"])
    assert tuned.kernel_x_.label == row["kernel_x"]
    complete = [row for row in tuned.tuning_ if row["steps"] == len(X)]
    assert row in complete
    assert all(np.isfinite(row["score"]) == (row in complete) for row in tuned.tuning_)


def test_poor_starts_are_given_up_early():
    rng = np.random.default_rng(5)
    x, z = circling(rng, 240)
    tuned = kb.tune(kb.KernelBayesFilter(rank=30), x, z, rng=0, budget=8)
    assert any(row["steps"] < len(x) for row in tuned.tuning_)
    assert sum(row["steps"] for row in tuned.tuning_) <= 8 * len(x)


def test_what_is_set_is_where_the_search_starts():
    model = kb.KernelBayesFilter(kernel_z=kb.Gaussian(0.4), ridge=0.02, rank=30)
    tuned = kb.tune(model, X, Z, rng=0, budget=8)
    starts = tuned.tuning_[:3]
    assert {row["z"] for row in starts} == {1.0}
    assert {row["ridge"] for row in starts} == {0.02}
    assert len({row["base"] for row in starts}) > 1  # arguments that differ in what is not set


def test_the_sign_is_dropped_where_only_the_size_says_something():
    def moved(z, rng, control=None):
        return 0.9 * z + rng.normal(size=z.shape)

    rng = np.random.default_rng(6)
    z = np.zeros((200, 1))
    for t in range(1, len(z)):
        z[t] = moved(z[t - 1], rng)
    x = np.exp(z) * rng.choice([-1.0, 1.0], size=z.shape) * rng.uniform(0.8, 1.2, size=z.shape)
    model = kb.KernelMonteCarloFilter(moved, z, picks=20, particles=60, rank=30, rng=0)
    tuned = kb.tune(model, x, z, rng=0, budget=8)
    assert chosen(tuned)["kernel_x"] == "Warped log"
    assert isinstance(tuned.kernel_x_, kb.Warped)
    with pytest.warns(kb.NumericalWarning, match=r"1 of 3 observations \(1\) are unlike"):
        beliefs = tuned.filter(np.array([[0.0], [1e300], [-1.0]]))
    assert np.isfinite(beliefs.mean()).all()
    wide = kb.tune(model, np.exp(z) * rng.normal(size=(200, 8)), z, rng=0, budget=8)
    assert chosen(wide)["kernel_x"] == "Warped norm"


def test_the_same_seed_gives_the_same_model():
    first, second = (kb.tune(kb.KernelBayesFilter(), X, Z, rng=3, budget=5) for _ in range(2))
    assert first.tuning_ == second.tuning_
    np.testing.assert_array_equal(first.filter(NEW).weights, second.filter(NEW).weights)


def squared_error(beliefs, z):
    return np.sum((beliefs.mean() - z) ** 2, axis=1)


def mass(beliefs, z):
    return beliefs.info.mass


@pytest.mark.parametrize(
    ("loss", "by_hand"),
    [("error", squared_error), (mass, mass)],
)
def test_the_score_is_the_mean_loss_on_held_out_halves(loss, by_hand):
    model = kb.KernelBayesFilter(
        kb.Gaussian(0.7), kb.Gaussian(0.7), ridge=1e-2, prior_ridge=1e-4, transition_ridge=1e-4,
        rng=0,
    )  # fmt: skip
    tuned = kb.tune(model, X, Z, rng=0, budget=1, loss=loss)
    losses = []
    for train, test in ((slice(80, 160), slice(0, 80)), (slice(0, 80), slice(80, 160))):
        losses.append(by_hand(model.fit(X[train], Z[train]).filter(X[test]), Z[test]))
    # Rounding of the weights, times the condition number of the update's matrix, about n / ridge.
    assert tuned.tuning_[0]["score"] == pytest.approx(np.mean(losses), rel=1e-6)


def test_sequences_pairs_and_controls():
    rng = np.random.default_rng(2)
    sequences = [circling(rng, length) for length in (40, 30, 1, 50)]
    tuned = kb.tune(
        kb.KernelBayesFilter(),
        [x for x, _ in sequences],
        [z for _, z in sequences],
        rng=0,
        budget=2,
    )
    assert tuned.lengths_ == (40, 30, 1, 50)
    controls = rng.normal(size=(160, 1))
    tuned = kb.tune(kb.KernelBayesFilter(), X, Z, controls, rng=0, budget=2)
    assert tuned.filter(NEW[:5], controls[:5]).mean().shape == (5, 2)


def test_states_that_are_no_vectors_are_scored_in_their_space():
    angle = np.arctan2(Z[:, 1], Z[:, 0])[:, None]
    tuned = kb.tune(kb.KernelBayesFilter(kernel_z=kb.Periodic(1.0)), X, angle, rng=0, budget=3)
    found = tuned.filter(NEW).mean()[:, 0]
    off = np.angle(np.exp(1j * (found - np.arctan2(TRUTH[:, 1], TRUTH[:, 0]))))
    seen = np.angle(np.exp(1j * (np.arctan2(NEW[:, 1], NEW[:, 0]) - np.arctan2(*TRUTH.T[::-1]))))
    assert np.abs(off).mean() < np.abs(seen).mean()


def test_monte_carlo_filters():
    def transition(z, rng, control=None):
        turn = 0.3 + 0.1 * rng.normal(size=len(z))
        c, s = np.cos(turn), np.sin(turn)
        return np.column_stack([c * z[:, 0] - s * z[:, 1], s * z[:, 0] + c * z[:, 1]])

    model = kb.KernelMonteCarloFilter(transition, Z, picks=30, particles=100, rng=0)
    tuned = kb.tune(model, X, Z, rng=0, budget=3)
    assert error(tuned) < float(np.mean(np.sum((NEW - TRUTH) ** 2, axis=1)))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"budget": 0}, "budget"),
        ({"parts": 1}, "parts"),
        ({"parts": 2.5}, "parts"),
        ({"loss": "likelihood"}, "loss must be"),
        ({"loss": lambda beliefs, Z: 0.3}, "one number for each of"),
    ],
)
def test_bad_options_are_named(options, words):
    with pytest.raises(ValueError, match=words):
        kb.tune(kb.KernelBayesFilter(), X, Z, rng=0, **options)


def test_bad_data_are_named():
    model = kb.KernelBayesFilter()
    with pytest.raises(ValueError, match="both be one sequence"):
        kb.tune(model, [X[:50], X[50:]], Z)
    with pytest.raises(ValueError, match="sequence 0 has 50 observations but 40 states"):
        kb.tune(model, X[:50], Z[:40])
    with pytest.raises(ValueError, match="loss must be 'error' or a function"):
        kb.tune(model, X, Z, loss="mass")
    late = X.copy()
    late[: len(X) // 2, 1] = np.nan
    with pytest.raises(ValueError, match="all parts of the sequences but one"):
        kb.tune(model, late, Z)
    kb.tune(model, late, Z, parts=4, budget=1, rng=0)  # two parts have it


def test_losses_that_are_no_numbers_are_told():
    with pytest.warns(kb.NumericalWarning, match="no candidate has finite losses"):
        kb.tune(
            kb.KernelBayesFilter(), X, Z, rng=0, budget=2, loss=lambda b, _: np.full(len(b), np.nan)
        )


def test_means_of_parts_know_the_circle():
    kernel = kb.Parts({0: kb.Gaussian(1.0), 1: kb.Periodic(1.0, 24.0)})
    points = np.array([[1.0, 23.0], [3.0, 1.0]])
    np.testing.assert_allclose(kb.embed(points, kernel).mean(), [2.0, 0.0], atol=1e-9)
    named = kb.Parts({"where": kb.Gaussian(1.0), "when": kb.Periodic(1.0, 24.0)})
    found = kb.embed({"where": points[:, 0], "when": points[:, 1]}, named).mean()
    np.testing.assert_allclose(found["where"], [2.0])
    np.testing.assert_allclose(found["when"], [0.0], atol=1e-9)


def test_parts_are_blocks_of_sequences_in_the_order_given():
    lengths = (10, 40, 1, 30, 20, 25)
    sequences = [np.full((n, 1), float(i)) for i, n in enumerate(lengths)]
    groups = cut(sequences, sequences, None, 2, kb.KernelBayesFilter())
    assert [[part.X[0, 0] for part in group] for group in groups] == [[0, 1], [3, 4, 5], [2]]
    whole = np.arange(12.0)[:, None]
    groups = cut(whole, whole, None, 3, kb.KernelBayesFilter())
    assert [group[0].X[0, 0] for group in groups] == [0.0, 4.0, 8.0]


def test_a_move_that_changes_nothing_gains_nothing():
    """Losses may be negative, as by rounding: an equal score is no gain, or a race has no end."""
    for score in (-1e-17, -2.0, 0.0, 2.0, np.inf):
        same = Trial(None, np.array([score]))
        assert not gains(same, same)
    for better, best in ((-2.1, -2.0), (1.9, 2.0), (2.0, np.inf)):
        assert gains(*(Trial(None, np.array([score])) for score in (better, best)))
