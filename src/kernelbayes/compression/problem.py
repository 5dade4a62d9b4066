"""The problem that herding solves: an embedding of mass one as seen from candidates."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from kernelbayes.arrays import (
    Array,
    Floats,
    Ints,
    NumericalWarning,
    as_doubles,
    like,
    to_float,
    to_numpy,
)
from kernelbayes.embedding import Batch, Embedding, MeanElement
from kernelbayes.embedding.gaussian import GaussianEmbedding
from kernelbayes.gram import Dense, Gram
from kernelbayes.herding import (
    exchange,
    fully_corrective,
    gaussian_starts,
    greedy,
    line_search,
    score,
    squared_errors,
)
from kernelbayes.points import Points, PointsLike, count

Method = Literal["herding", "exchange", "line-search", "fully-corrective"]
METHODS = ("herding", "exchange", "line-search", "fully-corrective")
# A mass below this share of the weights' sizes is what is left when they cancel: not a divisor.
CANCELLED = 1e-10


@dataclass(frozen=True, eq=False)
class Problem:
    """An embedding of mass one as seen from candidates: its values there, and their Gram matrix."""

    mu: MeanElement
    mass: float
    points: Points
    values: Floats
    own: bool  # whether the candidates are the embedding's own points
    given: Gram | None = None

    @cached_property
    def rows(self) -> Gram:
        """Gram matrix of the candidates; not computed before it is needed."""
        return self.given or Gram.by_rows(self.mu.kernel, self.points, products=False)

    @cached_property
    def norm2(self) -> float:
        """Squared norm of the embedding divided by its mass."""
        if self.own and isinstance(self.mu, Embedding):
            return float(to_numpy(self.mu.weights) @ self.values) / self.mass
        return to_float(self.mu.norm()) ** 2 / self.mass**2

    def pick(self, m: int, method: Method) -> tuple[Ints, Floats, Floats]:
        """Pick m candidates: indices, weights and the squared error after each pick."""
        rows, values = self.rows, self.values
        if method == "line-search":
            return line_search(rows, values, m, self.norm2)
        if method == "fully-corrective":
            return fully_corrective(rows, values, m, self.norm2)
        picks, cross = greedy(rows, values, m)
        squares = squared_errors(self.norm2, values[picks], rows.diag[picks], cross)
        if method == "exchange":
            picks = exchange(rows, values, picks)
            squares[-1] = self.squared_error(picks)
        return picks, np.full(m, 1.0 / m), squares

    def squared_error(self, picks: Ints) -> float:
        """Squared distance to equally weighted candidates."""
        return max(self.norm2 + score(self.rows, self.values, picks), 0.0)


def problem(
    mu: MeanElement, candidates: PointsLike | None, rows: Gram | Array | None, starts: int = 1
) -> Problem:
    """Evaluate an embedding at candidates and divide it by its mass."""
    if isinstance(mu, Batch):
        raise TypeError("one embedding at a time: [compress(mu, m) for mu in batch]")
    if not isinstance(mu, MeanElement):
        raise TypeError(f"one embedding is needed, got {type(mu).__name__}; use embed(...)")
    if starts < 1:
        raise ValueError(f"the number of picks must be at least 1, got {starts}")
    own = mu.weights if candidates is None and isinstance(mu, Embedding) else None
    if candidates is None and isinstance(mu, Embedding):
        points = mu.points
    elif candidates is None and isinstance(mu, GaussianEmbedding):
        points = like(gaussian_starts(to_numpy(mu.mean), to_numpy(mu.cov), starts), mu.mean)
    elif candidates is None:
        raise ValueError(f"{type(mu).__name__} has no points: give candidates")
    else:
        points = mu.kernel.points(candidates, "candidates")
    gram = rows if rows is None or isinstance(rows, Gram) else Dense(as_doubles(rows))
    if gram is not None and gram.n != count(points):
        raise ValueError(f"rows are of {gram.n} points, but there are {count(points)} candidates")
    if own is not None:
        gram = gram or Gram.by_rows(mu.kernel, points)
        values = gram.matmul(as_doubles(own))
    else:
        values = as_doubles(mu(points))
    mass = _positive_mass(mu)
    return Problem(mu, mass, points, values / mass, own is not None, gram)


def _positive_mass(mu: MeanElement) -> float:
    mass = to_float(mu.mass)
    size = float(np.abs(to_numpy(mu.weights)).sum()) if isinstance(mu, Embedding) else mass
    if mass > CANCELLED * size:
        return mass
    warnings.warn(
        f"the mass {mass:.3g} is not positive, so the embedding cannot be divided by it and is "
        "taken as it is; is it that of a distribution?",
        NumericalWarning,
        stacklevel=4,
    )
    return 1.0
