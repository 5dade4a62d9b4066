"""Plan of a run: which parameters and which random numbers belong to which simulation.

Nothing here depends on the order in which simulations are run, or on the process that runs them.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass
from functools import cache

import numpy as np

from kernelbayes.arrays import Floats, Ints, as_vectors, is_frame, to_numpy
from kernelbayes.likelihood_free.distributions import PriorLike
from kernelbayes.likelihood_free.prior import as_prior
from kernelbayes.likelihood_free.running.calling import Caller, Failed, Seed, one_by_one
from kernelbayes.points import Names, column_names, integer

BLOCK = 500  # parameters drawn, and batches simulated, together: changing it changes every seed


@dataclass(frozen=True, eq=False)
class Unit:
    """One call of the simulator: the number of its (first) simulation, theta (d,) or (b, d)."""

    first: int
    theta: Floats
    seed: Seed

    def __len__(self) -> int:
        return 1 if self.theta.ndim == 1 else len(self.theta)

    def rows(self) -> list[Unit]:
        """Return the simulations of a batch one by one, with the random numbers they have alone."""
        parts = one_by_one(self.theta, self.seed)
        return [Unit(self.first + k, *part) for k, part in enumerate(parts)]


@dataclass(frozen=True, eq=False)
class Plan:
    """Simulations number 0 to n - 1.

    ``block(j)`` are the parameters number 500 j to 500 j + 499.
    """

    block: Callable[[int], Floats]
    entropy: tuple[int, ...]
    n: int
    names: Names

    def units(self, done: Container[int], vectorized: bool) -> Iterator[Unit]:
        """Yield the calls to make for the simulations that are not done yet.

        A batch of which a part is missing is simulated again in full: its rows share a seed.
        """
        for j in range(-(-self.n // BLOCK)):
            numbers = range(BLOCK * j, min(BLOCK * (j + 1), self.n))
            missing = [i for i in numbers if i not in done]
            if vectorized and missing:
                seed = Seed(self.entropy, spawn_key=(j, 1))
                yield Unit(numbers[0], self.block(j)[: len(numbers)], seed)
            elif missing:
                theta = self.block(j)
                for i in missing:
                    k = i - BLOCK * j
                    yield Unit(i, theta[k], Seed(self.entropy, spawn_key=(j, 2, k)))

    def theta(self, numbers: Ints) -> Floats:
        """Parameters (k, d) of the simulations with these numbers, in ascending order."""
        blocks = np.unique(numbers // BLOCK)
        rows = np.searchsorted(blocks, numbers // BLOCK) * BLOCK + numbers % BLOCK
        full = [self.block(int(j)) for j in blocks] or [self.block(0)[:0]]
        return np.asarray(np.concatenate(full)[rows])


def repeats(caller: Caller, theta: Floats, seed: Seed) -> bool:
    """Whether the same seed gives the same output, or the simulation fails."""
    a, b = (caller(theta, Seed(seed.entropy)).rows[0] for _ in range(2))
    if isinstance(a, Failed) or isinstance(b, Failed):
        return True
    return np.array_equal(a, b, equal_nan=True)


def plan_of(prior: PriorLike, n: int | None, entropy: tuple[int, ...]) -> Plan:
    """Plan n simulations at draws of a prior, or at given parameters (an array or a frame)."""
    read = None if isinstance(prior, np.ndarray) or is_frame(prior) else as_prior(prior)
    if read is None:
        theta = np.asarray(to_numpy(as_vectors(prior, "theta")), dtype=np.float64)
        n = len(theta) if n is None else integer(n, "n_simulations")
        if n > len(theta):
            raise ValueError(
                f"{n} simulations at {len(theta)} parameters; to draw them with replacement, give "
                "as_prior(theta)"
            )
    if n is None:
        raise ValueError("n_simulations, the number of simulations, is missing")
    n = integer(n, "n_simulations")

    @cache  # drawn once: not all priors obey the seed
    def block(j: int) -> Floats:
        if read is None:
            return theta[BLOCK * j : BLOCK * (j + 1)]
        return read.sample(BLOCK, np.random.default_rng(Seed(entropy, spawn_key=(j, 0))))

    return Plan(block, entropy, n, column_names(prior) if read is None else read.names)
