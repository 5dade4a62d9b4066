"""The final of the default choice: when a rival replaces the winner of the race."""

import numpy as np
import pytest

import kernelbayes as kb
from kernelbayes.filters.choose.final import CLEAR_SHARE, Final, clearly_ahead
from kernelbayes.select.search import Trial


def trial(losses):
    return Trial(None, np.asarray(losses, dtype=float))


def test_a_rival_must_gain_a_share_of_the_loss():
    winner = np.ones(400)
    assert clearly_ahead(trial((1.0 - 1.1 * CLEAR_SHARE) * winner), trial(winner))
    assert not clearly_ahead(trial((1.0 - 0.9 * CLEAR_SHARE) * winner), trial(winner))
    assert not clearly_ahead(trial(winner), trial(winner))


def test_neighbouring_losses_are_not_independent():
    # Eight stretches of fifty steps. A gain of 2 in one of them: mean .25, standard error of the
    # stretches' means sqrt(.5 / 8) = .25 exactly, so not ahead. The same gains one step in eight
    # are in all stretches: their means hardly differ.
    winner = np.full(400, 1.0)
    once, often = np.zeros(400), np.zeros(400)
    once[:50], often[::8] = 1.99, 2.0
    once[50:] = -0.001
    assert not clearly_ahead(trial(winner - once), trial(winner))
    assert clearly_ahead(trial(winner - often), trial(winner))


def test_a_winner_without_finite_losses_is_replaced():
    lost, fine = trial([np.inf, 1.0, 1.0, 1.0]), trial([5.0] * 4)
    assert clearly_ahead(fine, lost)
    assert not clearly_ahead(lost, fine)
    assert not clearly_ahead(lost, lost)


def resting(rng, length):
    """A point that rests for 60 steps, moves for 60, and so on; seen by 12 cells with noise."""
    z, place, velocity = [], rng.uniform(size=2), np.zeros(2)
    for t in range(length):
        if t // 60 % 2:
            velocity = 0.9 * velocity + 0.03 * rng.normal(size=2)
            velocity = np.where(np.abs(place + velocity - 0.5) > 0.5, -velocity, velocity)
            place = np.clip(place + velocity, 0.0, 1.0)
        z.append(place)
    z = np.array(z)
    centres = np.random.default_rng(0).uniform(size=(12, 2))
    far = np.sum((z[:, None] - centres) ** 2, axis=2)
    return np.exp(-far / 0.12) + 0.3 * rng.normal(size=(length, 12)), z


# The oracle is the definition: among those that filtered all 240 steps, the best by score is the
# winner's only possible replacement at this rank, and what is returned is one or the other.
@pytest.mark.parametrize("seed", [2000, 2001])
def test_the_choice_is_not_clearly_worse_than_its_rivals_on_whole_blocks(seed, monkeypatch):
    finals = []

    def run(self, winner):
        found = original(self, winner)
        finals.append((winner, found, self.challenge.races))
        return found

    original = Final.run
    monkeypatch.setattr(Final, "run", run)
    x, z = resting(np.random.default_rng(seed), 240)
    model = kb.KernelBayesFilter(rng=0, rank=100).fit(x, z)
    ((winner, found, races),) = finals
    whole = [row for row in races.table if row["steps"] == len(x)]
    assert any(row["memory"] == 0.0 and row["lags"] == 1 for row in whole)  # the regression on x
    (chosen,) = (row for row in model.choice_.table if row["chosen"])
    if found is winner:
        assert chosen is winner.candidate.row
    else:
        assert chosen["score"] == min(row["score"] for row in whole)
        assert chosen["score"] < (1.0 - CLEAR_SHARE) * whole[0]["score"]  # the winner's is first
