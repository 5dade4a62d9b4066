"""The two searches find the least score, stop early where they may, and say what they tried."""

import math

import numpy as np
import pytest

from kernelbayes.select.search import Trial, coarse_to_fine, race
from kernelbayes.tables import Table

RNG = np.random.default_rng(0)
PARTS = 4
LOSSES = {name: level + RNG.normal(size=8 * PARTS) for level, name in enumerate("abcdef")}


def losses_of(name, part):
    return Trial(name, LOSSES[name][: 8 * (part + 1)])


@pytest.mark.parametrize("target", [0.03, 0.3, 1.0, 5.0, 40.0])
def test_a_scale_is_found_to_within_the_finest_step(target):
    table = coarse_to_fine(
        float, lambda s: {"score": math.log(s / target) ** 2}, budget=40, finest=1.1
    )
    # The last factor tried is 2^(1/4): the best is within half of it, in the logarithm.
    assert abs(math.log(table.best["scale"] / target)) <= math.log(2.0) / 8 + 1e-12
    assert len(table) < 40


def test_budget_and_ends_of_a_scale():
    for budget in (1, 3, 6):
        assert len(coarse_to_fine(float, lambda s: {"score": -s}, budget)) == budget
    table = coarse_to_fine(float, lambda s: {"score": -s}, 20, widest=4.0, finest=2.0)
    assert max(row["scale"] for row in table) == 4.0
    table = coarse_to_fine(float, lambda s: {"score": s}, 20, narrowest=0.1, finest=2.0)
    assert min(row["scale"] for row in table) == 0.125
    with pytest.raises(ValueError, match="budget"):
        coarse_to_fine(float, lambda s: {"score": s}, 0)


def test_what_does_not_change_with_the_scale_is_scored_once():
    assert coarse_to_fine(lambda _: "delta", lambda _: {"score": 1.0}, 9) == [
        {"scale": 1.0, "score": 1.0}
    ]


def test_a_race_without_rules_ranks_by_mean_loss():
    trials = race(LOSSES, losses_of, range(PARTS))
    means = {name: losses.mean() for name, losses in LOSSES.items()}
    assert [trial.candidate for trial in trials] == sorted(means, key=means.get)
    assert [trial.score for trial in trials] == sorted(means.values())


def test_those_clearly_behind_stop_early():
    seen = []

    def score(name, part):
        seen.append(name)
        return losses_of(name, part)

    trials = race(LOSSES, score, range(PARTS), give_up=2.0)
    assert trials[0].candidate == "a"
    assert len(trials) == len(LOSSES)
    assert seen.count("f") < seen.count("a") == PARTS
    worse, error = trials[-1].behind(trials[0])
    assert worse > 2.0 * error > 0.0


def test_keep_halves_and_the_last_to_stop_come_first():
    trials = race(LOSSES, losses_of, range(3), keep=lambda _, running: -(-running // 2))
    assert [len(trial.losses) // 8 for trial in trials] == [3, 3, 2, 1, 1, 1]


def test_a_leader_wins_ties_and_nothing_new_is_needed():
    leader = losses_of("a", PARTS - 1)
    assert race([], losses_of, range(PARTS), leader=leader) == [leader]
    assert race(["a"], losses_of, range(PARTS), leader=leader)[0] is leader


def test_a_candidate_may_be_refined_from_part_to_part():
    trials = race([0], lambda c, _: Trial(c + 1, np.zeros(1)), range(3))
    assert trials[0].candidate == 3


def test_losses_that_are_not_finite_are_behind_all_others():
    good, bad = Trial("good", np.ones(3)), Trial("bad", np.array([0.0, np.nan, 0.0]))
    assert bad.behind(good) == (math.inf, 0.0)
    assert good.behind(bad) == (-math.inf, 0.0)
    assert bad.behind(bad) == (0.0, 0.0)
    assert Trial("new", np.empty(0)).score == math.inf


def test_counts_weigh_losses():
    assert Trial("c", np.array([0.0, 1.0]), np.array([3.0, 1.0])).score == 0.25


def test_a_table_is_a_list_that_reads_well():
    pytest.importorskip("pandas")
    table = Table([{"kernel": "Gaussian", "score": 1 / 3}, {"score": 0.25, "steps": 7}])
    assert repr(table).splitlines()[0].split() == ["kernel", "score", "steps"]
    assert "0.3333" in repr(table)
    assert table.best is table[1]
    assert list(table.to_frame().columns) == ["kernel", "score", "steps"]
    assert repr(Table()) == ""
    long = repr(Table({"i": i} for i in range(400))).splitlines()
    assert len(long) == 22
    assert long[-1] == "... and 380 more rows; to_frame() has all"
