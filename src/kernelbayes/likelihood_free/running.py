"""Runs of a simulator: which parameter and which random numbers belong to which simulation.

Nothing here depends on the order in which simulations are done, or on the process that does them.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from kernelbayes.likelihood_free.calling import Caller, Floats, Names, Outputs, Seed, join
from kernelbayes.likelihood_free.priors import Prior

BLOCK = 500  # parameters drawn, and batches simulated, together: part of what a seed means
TASK_SECONDS = 0.5  # of work sent to a process at a time; not part of it


@dataclass(frozen=True)
class Source:
    """Where parameters come from: a prior, drawn in blocks, or an array."""

    prior: Prior | None
    theta: Floats | None
    names: Names
    drawn: dict[int, Floats] = field(default_factory=dict)

    def block(self, j: int, entropy: tuple[int, ...]) -> Floats:
        """Parameters number 500 j to 500 j + 499, drawn once: not all priors obey the seed."""
        if self.theta is not None:
            return self.theta[BLOCK * j : BLOCK * (j + 1)]
        if j not in self.drawn and self.prior is not None:
            rng = np.random.default_rng(Seed(entropy, spawn_key=(j, 0)))
            self.drawn[j] = self.prior.sample(BLOCK, rng)
        return self.drawn[j]


@dataclass(frozen=True)
class Run:
    """Simulations number 0 to n - 1, in any order and any process."""

    caller: Caller
    source: Source
    entropy: tuple[int, ...]
    n: int
    n_jobs: int

    def units(self, start: int) -> Iterator[tuple[Floats, Seed]]:
        """Parameters and seed of each call still to make: one (d,), or a batch (b, d)."""
        for j in range(start // BLOCK, -(-self.n // BLOCK) if start < self.n else 0):
            theta = self.source.block(j, self.entropy)[: self.n - BLOCK * j]
            if self.caller.vectorized:
                yield theta, Seed(self.entropy, spawn_key=(j, 1))
                continue
            for i in range(max(0, start - BLOCK * j), len(theta)):
                yield theta[i], Seed(self.entropy, spawn_key=(j, 2, i))

    def outputs(self, start: int) -> Iterator[Outputs]:
        """Yield outputs in order: call by call or, from other processes, a few calls at a time."""
        units = self.units(start)
        if self.n_jobs == 1:
            yield from (_call(self.caller, [unit]) for unit in units)
            return
        from joblib import Parallel, delayed, effective_n_jobs

        clock = time.perf_counter()
        first = next(units, None)
        if first is None:
            return
        yield _call(self.caller, [first])  # here: an error in the simulator is plain to see
        each = max(time.perf_counter() - clock, 1e-6)
        share = (self.n - start) // (4 * effective_n_jobs(self.n_jobs))
        size = int(np.clip(TASK_SECONDS / each, 1, max(1, share)))
        pool = Parallel(n_jobs=self.n_jobs, return_as="generator")
        tasks = (delayed(_call)(self.caller, group) for group in _groups(units, size))
        with closing(pool(tasks)) as results:
            yield from results

    def theta(self, start: int, stop: int) -> Floats:
        """Parameters number ``start`` to ``stop`` - 1."""
        first, last = start // BLOCK, max(1, -(-stop // BLOCK))
        blocks = [self.source.block(j, self.entropy) for j in range(first, last)]
        if not blocks:
            return self.source.block(0, self.entropy)[:0]
        return np.concatenate(blocks)[start - BLOCK * first : stop - BLOCK * first]

    def check_streams(self) -> None:
        """Refuse a simulator that ignores our seeds: processes would repeat each other's noise."""
        theta = self.source.block(0, self.entropy)[:1]
        theta = theta if self.caller.vectorized else theta[0]
        a, b = (_call(self.caller, [(theta, Seed(self.entropy))]).rows[0] for _ in range(2))
        if isinstance(a, str) or isinstance(b, str):
            return
        if not np.array_equal(a, b, equal_nan=True):
            raise ValueError(
                "the simulator draws random numbers of its own, which processes would repeat; "
                "take them from the argument rng: simulator(theta, rng), or use n_jobs=1"
            )


def _call(caller: Caller, units: list[tuple[Floats, Seed]]) -> Outputs:
    """Make some calls."""
    one = caller.batch if caller.vectorized else caller.one
    return join([one(theta, seed) for theta, seed in units])


def _groups(units: Iterator[Any], size: int) -> Iterator[list[Any]]:
    group = []
    for unit in units:
        group.append(unit)
        if len(group) == size:
            yield group
            group = []
    if group:
        yield group
