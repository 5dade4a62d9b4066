"""Tuning a Monte Carlo filter on pairs that are not a sequence."""

import numpy as np

import kernelbayes as kb
from kernelbayes.filters.choose import tuning
from kernelbayes.filters.choose.walks import WALK, in_order, walked
from kernelbayes.filters.sequences import Part


def move(z, rng, control=None):
    return 0.9 * z + 0.3 * rng.normal(size=z.shape)


def first(m, rng):
    return rng.normal(size=(m, 1))


def path(rng, length):
    z = np.zeros((length, 1))
    for t in range(1, length):
        z[t] = move(z[t - 1 : t], rng)[0]
    return z, z + 0.3 * rng.normal(size=z.shape)


RNG = np.random.default_rng(0)
Z, X = path(RNG, 200)
MIXED = RNG.permutation(200)
MODEL = kb.KernelMonteCarloFilter(move, first, prior_ridge=1e-3, ridge=1e-2, rng=0).fit(X, Z)


def test_a_sequence_is_told_from_pairs():
    assert in_order(MODEL, [Part(X, Z, None)])
    assert not in_order(MODEL, [Part(X[MIXED], Z[MIXED], None)])


def test_a_walk_follows_the_transition_through_pairs_that_are_there():
    walks = walked(MODEL, [Part(X[MIXED], Z[MIXED], None)])
    assert [len(w.X) for w in walks] == [WALK] * 20
    pairs = {tuple(pair) for pair in np.hstack([X, Z])}
    steps = []
    for walk in walks:
        assert {
            (float(x), float(z)) for x, z in zip(walk.X[:, 0], walk.Z[:, 0], strict=True)
        } <= pairs
        steps.append(walk.Z[1:] - 0.9 * walk.Z[:-1])
    assert np.std(np.concatenate(steps)) < 0.5  # as the transition: 0.3
    assert in_order(MODEL, walks)


def test_tuning_on_pairs_does_not_take_them_for_a_sequence(monkeypatch):
    rng = np.random.default_rng(1)
    z = 2.0 * rng.normal(size=(100, 1))
    x = z + rng.normal(size=z.shape)  # too noisy to do without the transition
    free = kb.KernelMonteCarloFilter(move, first, kb.Gaussian(1.0), prior_ridge=1e-3, rng=0)

    def score():
        tuned = kb.tune(free, x, z, budget=2, progress=False)
        return min(row["score"] for row in tuned.tuning_)

    walks = score()
    monkeypatch.setattr(tuning, "in_order", lambda *_: True)
    assert walks < 0.8 * score()  # as a sequence, every step is a surprise
