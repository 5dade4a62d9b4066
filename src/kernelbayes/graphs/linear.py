"""A Gaussian of all columns, beside a learned tree, which keeps few of those a column depends on.

What the belief about a number is relative to the marginal is the geometric mean of both.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np

from kernelbayes.arrays import as_doubles, row_blocks
from kernelbayes.gram.lapack import solve
from kernelbayes.graphs.relation import TINY, Domain
from kernelbayes.graphs.structure import Node
from kernelbayes.points import count
from kernelbayes.types import Floats, Points

# Columns of one node, and indicators of one category, at most: the cost grows with their cube.
MOST_COLUMNS = 20
# The covariance has settled when no entry changes by more, in squared standard deviations.
SETTLED, EM_STEPS = 1e-3, 50
# Observed values of which the sample supports less than this (`Domain.trust`) are left out.
LEAST_TRUST = 0.5


@dataclass(frozen=True, eq=False)
class Linear:
    """Mean (d,) and covariance (d, d) of the standardised columns of nodes, and their share."""

    places: dict[Node, tuple[int, int]] = field(repr=False)  # columns of each node
    mean: Floats = field(repr=False)
    cov: Floats = field(repr=False)
    share: float = 0.0

    @classmethod
    def of(cls, learned: Any, observed: Mapping[Node, Any], n: int) -> Self:
        """Fit to n rows of observed values by expectation maximisation, as cells may be missing.

        One more row, of independent columns, keeps the covariance regular.
        """
        places, d = {}, 0
        for node, domain in ((node, learned.domain_of(node)) for node in learned.graph.nodes):
            places[node] = d, d + columns(domain, domain.points).shape[1]
            d = places[node][1]
        found = cls(places, np.zeros(d), np.eye(d))
        X = found.rows(learned, observed, n)
        for _ in range(EM_STEPS if d else 0):
            E, _, total = found.given(X)
            cov = ((E - E.mean(axis=0)).T @ (E - E.mean(axis=0)) + total + np.eye(d)) / (n + 1.0)
            settled = np.abs(cov - found.cov).max() < SETTLED
            found = replace(found, mean=E.mean(axis=0), cov=cov)
            if settled:
                break
        return found

    def adds_to(self, node: Node, domain: Domain) -> bool:
        """Whether the node is a number."""
        start, stop = self.places[node]
        return stop - start == 1 and not domain.kernel.is_categorical

    def rows(self, learned: Any, observed: Mapping[Node, Any], n: int) -> Floats:
        """Standardised columns (n, d) of n cases, NaN where nothing is observed."""
        X = np.full((n, len(self.mean)), np.nan)
        for node, one in observed.items():
            domain, at = learned.domain_of(node), slice(*self.places[node])
            values = columns(domain, one.points)
            values[one.read(domain)[1] < LEAST_TRUST] = np.nan
            X[np.flatnonzero(np.broadcast_to(one.cases, n)), at] = values
        return X

    def given(self, X: Floats) -> tuple[Floats, Floats, Floats]:
        """Means (n, d), variances (n, d) given what is seen in X; the sum (d, d) of covariances."""
        d = len(self.mean)
        E, var, total = np.empty_like(X), np.empty_like(X), np.zeros((d, d))
        for rows in row_blocks(len(X), d * d):
            seen = ~np.isnan(X[rows])
            S = self.cov * seen[:, :, None]
            A = S * seen[:, None, :]
            A[:, np.arange(d), np.arange(d)] += ~seen
            B = solve(A, S)
            E[rows] = self.mean + (np.where(seen, X[rows] - self.mean, 0.0)[:, None] @ B)[:, 0]
            cov = self.cov - self.cov @ B
            var[rows], total = np.diagonal(cov, axis1=1, axis2=2), total + cov.sum(axis=0)
        return E, var, total

    def pooled(self, node: Node, domain: Domain, logs: Floats, E: Floats, var: Floats) -> Floats:
        """Return beliefs about a number as logs (n, q), of a tree's ``logs`` and what is given."""
        at = self.places[node][0]
        x = columns(domain, domain.points)[:, 0]
        own = 0.5 * (x - self.mean[at]) ** 2 / self.cov[at, at]
        own = own - 0.5 * (x - E[:, [at]]) ** 2 / np.maximum(var[:, [at]], TINY)
        share = self.share * (var < np.diag(self.cov)).any(axis=1, keepdims=True)  # is any seen?
        return np.asarray((1.0 - share) * logs + share * own)


def columns(domain: Domain, points: Points) -> Floats:
    """Standardised numbers (k, d), or indicators of all categories but the first, or (k, 0)."""
    kernel, shape = domain.kernel, list(getattr(domain.points, "shape", ()))
    if kernel.is_categorical and len(shape) == 1 and shape[0] <= MOST_COLUMNS:
        return np.asarray(np.asarray(points)[:, None] == np.asarray(domain.points)[1:], dtype=float)
    if kernel.is_categorical or kernel.is_curved or len(shape) != 2 or shape[1] > MOST_COLUMNS:
        return np.zeros((count(points), 0))
    sample = as_doubles(domain.points)
    mean = domain.shares @ sample
    scale = np.sqrt(domain.shares @ (sample - mean) ** 2)
    return (as_doubles(points) - mean) / np.where(scale > 0.0, scale, 1.0)
