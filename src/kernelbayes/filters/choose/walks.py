r"""Pairs that are not a sequence: how a Monte Carlo filter is tuned on them.

A filter with a known transition learns from state-observation pairs in any order. To score it, held
out pairs must be met in an order that the transition might make. A walk does that: from the state
of a pair the transition leads somewhere, and the pair whose state is nearest to that comes next.
"""

import numpy as np

from kernelbayes.arrays import to_numpy
from kernelbayes.filters.montecarlo import KernelMonteCarloFilter
from kernelbayes.filters.sequences import Part, join
from kernelbayes.points import count, take

# Steps of one walk: enough for the first belief to be forgotten, a judgement.
WALK = 10
# Pairs on which the order is tried: their mean similarity is known to a fifteenth of its spread.
ORDER_PAIRS = 200
# A sequence is one whose next states are nearer to where the transition leads than other states
# are, by so many standard errors: chance makes that one time in a thousand.
CLEARLY = 3.0


def in_order(model: KernelMonteCarloFilter, parts: list[Part]) -> bool:
    """Whether consecutive states follow each other by a fitted filter's transition.

    A learned transition, and one with controls, takes sequences anyway.
    """
    if model.transition is None or any(part.controls is not None for part in parts):
        return True
    data = join(parts)
    some = np.unique(np.linspace(0, len(data.source) - 1, ORDER_PAIRS).astype(int))
    kernel, rng = model.kernel_z_, np.random.default_rng(0)
    Z = kernel.points(data.Z, "Z")
    moved = model.moves_.mover(take(Z, data.source[some]), None, 1, "learn")
    after, other = data.target[some], rng.permutation(data.target)[: len(some)]
    nearer = to_numpy(kernel.paired(moved, take(Z, after)) - kernel.paired(moved, take(Z, other)))
    error = float(np.std(nearer)) / np.sqrt(len(nearer))
    return bool(np.mean(nearer) > CLEARLY * error)


def walked(model: KernelMonteCarloFilter, group: list[Part]) -> list[Part]:
    """Make walks through the pairs of a part along a fitted filter's transition."""
    data = join(group) if max(count(s.X) for s in group) > 1 else None
    X, Z = (data.X, data.Z) if data is not None else (group[0].X, group[0].Z)
    points = model.kernel_z_.points(Z, "Z")
    at = np.random.default_rng(0).permutation(count(Z))[: max(1, count(Z) // WALK)]
    steps = [at]
    for t in range(1, WALK):
        moved = model.moves_.mover(take(points, steps[-1]), None, t, "learn")
        steps.append(np.argmax(to_numpy(model.kernel_z_(moved, points)), axis=1))
    return [Part(take(X, walk), take(Z, walk), None) for walk in np.array(steps).T]
