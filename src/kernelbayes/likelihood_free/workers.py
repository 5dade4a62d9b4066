"""Runs of a simulator: which parameters and which random numbers belong to which simulation.

Nothing here depends on the order in which simulations are run, or on the process that runs them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import cache
from itertools import islice

import numpy as np

from kernelbayes.arrays import Floats, as_vectors, is_frame, to_numpy
from kernelbayes.likelihood_free.calling import Caller, Names, Outputs, Seed
from kernelbayes.likelihood_free.distributions import PriorLike
from kernelbayes.likelihood_free.prior import as_prior

BLOCK = 500  # parameters drawn, and batches simulated, together: changing it changes every seed
TASK_SECONDS = 0.5  # work sent to a process at a time, far above what sending costs (milliseconds)


@dataclass(frozen=True)
class Run:
    """Simulations number 0 to n - 1, in any order and in any process.

    ``block(j)`` are the parameters number 500 j to 500 j + 499.
    """

    caller: Caller
    block: Callable[[int], Floats]
    entropy: tuple[int, ...]
    n: int
    n_jobs: int

    def units(self, start: int) -> Iterator[tuple[Floats, Seed]]:
        """Parameters and seed of each call still to make: one (d,), or a batch (b, d)."""
        for j in range(start // BLOCK, -(-self.n // BLOCK) if start < self.n else 0):
            theta = self.block(j)[: self.n - BLOCK * j]
            if self.caller.vectorized:
                yield theta, Seed(self.entropy, spawn_key=(j, 1))
                continue
            for i in range(max(0, start - BLOCK * j), len(theta)):
                yield theta[i], Seed(self.entropy, spawn_key=(j, 2, i))

    def outputs(self, start: int) -> Iterator[Outputs]:
        """Yield outputs in order: call by call or, from other processes, a few calls at a time."""
        units = self.units(start)
        if self.n_jobs == 1:
            yield from (self.caller([unit]) for unit in units)
            return
        from joblib import Parallel, delayed, effective_n_jobs

        clock = time.perf_counter()
        first = list(islice(units, 1))
        if not first:
            return
        yield self.caller(first)  # in this process: an error in the simulator is plain to see
        each = max(time.perf_counter() - clock, 1e-6)
        share = (self.n - start) // (4 * effective_n_jobs(self.n_jobs))
        size = int(np.clip(TASK_SECONDS / each, 1, max(1, share)))
        groups = iter(lambda: list(islice(units, size)), [])
        pool = Parallel(n_jobs=self.n_jobs, return_as="generator")
        with closing(pool(delayed(self.caller)(group) for group in groups)) as results:
            yield from results

    def theta(self, start: int, stop: int) -> Floats:
        """Parameters number ``start`` to ``stop`` - 1."""
        first = start // BLOCK
        blocks = [self.block(j) for j in range(first, max(first + 1, -(-stop // BLOCK)))]
        return np.concatenate(blocks)[start - BLOCK * first : stop - BLOCK * first]

    def check_streams(self) -> None:
        """Refuse a simulator that ignores our seeds: processes would repeat each other's noise."""
        theta = self.block(0)[:1] if self.caller.vectorized else self.block(0)[0]
        a, b = (self.caller([(theta, Seed(self.entropy))]).rows[0] for _ in range(2))
        if isinstance(a, str) or isinstance(b, str):
            return
        if not np.array_equal(a, b, equal_nan=True):
            raise ValueError(
                "the simulator draws random numbers of its own, which processes would repeat; "
                "take them from the argument rng: simulator(theta, rng), or use n_jobs=1"
            )


def parameter_blocks(
    prior: PriorLike, n: int | None, entropy: tuple[int, ...]
) -> tuple[Callable[[int], Floats], int, Names]:
    """Parameters block by block, how many, and their names."""
    read = None if isinstance(prior, np.ndarray) or is_frame(prior) else as_prior(prior)
    if read is None:
        theta = np.asarray(to_numpy(as_vectors(prior, "theta")), dtype=np.float64)
        n = len(theta) if n is None else n
        if n > len(theta):
            raise ValueError(
                f"{n} simulations at {len(theta)} parameters; to draw them with replacement, give "
                "as_prior(theta)"
            )
    if n is None:
        raise ValueError("n_simulations, the number of simulations, is missing")
    if n < 1:
        raise ValueError(f"the number of simulations must be positive, got {n}")

    @cache  # drawn once: not all priors obey the seed
    def block(j: int) -> Floats:
        if read is None:
            return theta[BLOCK * j : BLOCK * (j + 1)]
        return read.sample(BLOCK, np.random.default_rng(Seed(entropy, spawn_key=(j, 0))))

    return block, int(n), None if read is None else read.names
