"""The learned model of one edge: conditional expectations in both directions.

A variable is represented on the distinct points of its sample, its :class:`Domain`; an edge {s, t}
has pairs of such points. Messages are ratios of ridge regressions (docs/graphs.md has the formula).
Evidence X_t = x has the RKHS estimate of the density of a point mass relative to the marginal.
"""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, Self

import numpy as np
from scipy import sparse

from kernelbayes.arrays import as_doubles, threads_for
from kernelbayes.gram import EXACT, Gram, check_ridge
from kernelbayes.gram.lapack import solve_ridges
from kernelbayes.gram.loo import loo, loo_subset, ridge_grid
from kernelbayes.kernels import Kernel
from kernelbayes.points import count
from kernelbayes.rules.conditional import Ridge, fill_weights, trust
from kernelbayes.rules.support import mass_left, nearest_similarity, usual_support
from kernelbayes.types import Bools, Floats, Ints, Names, Points, Rng

Floor = float | Literal["pairs"]
# Where the regression of the constant 1 gives less than this, no pair is near: the message there is
# the marginal expectation. Dividing by less would magnify the errors of a regression tenfold.
LEAST_CONSTANT = 0.1
# The same for categories, where the regression is a table: it is zero but for rounding.
NO_PAIRS = 1e-12
# Replaces zero in a table: products of two are still positive numbers.
TINY = 1e-150


@dataclass(frozen=True, eq=False)
class Domain:
    """Distinct points (q) of a variable's sample, and the share of the sample (q,) at each."""

    points: Points = field(repr=False)
    shares: Floats = field(repr=False)
    kernel: Kernel
    names: Names = None
    rank: int | None = None
    rng: Rng = 0

    @property
    def size(self) -> int:
        """Number of points q."""
        return count(self.points)

    @cached_property
    def gram(self) -> Gram:
        """Gram matrix of the points, from features that are defined at other points too."""
        kernel, rank, rng = self.kernel, self.rank, self.rng
        if rank is not None:
            return Gram.of(kernel, self.points, rank=rank, double=True, rng=rng)
        return Gram.of(kernel, self.points, tol=EXACT, extend=True, double=True, rng=rng)

    @cached_property
    def F(self) -> Floats:
        """Features (q, r) of the points."""
        return as_doubles(self.gram.factor)

    def features(self, X: Points) -> Floats:
        """Features (m, r) of other points of the space."""
        return as_doubles(self.gram.features(X))

    def trust(self, X: Points) -> Floats:
        """How far the sample supports points (m,), from 0 to 1; NaN inside the sample."""
        kernel = self.gram.kernel or self.kernel  # landmarks stand for the sample
        near = as_doubles(nearest_similarity(kernel, X, self.points))
        found: Floats = trust(near, self._usual_support)
        inside = (near >= self._usual_support) | self.kernel.is_categorical
        return np.where(inside & (near > 0.0), np.nan, found)

    @cached_property
    def _usual_support(self) -> float:
        return usual_support(self.gram.kernel or self.kernel, self.points)


@dataclass(frozen=True, eq=False)
class Operator:
    """Messages over one edge in one direction, from a source (q' points) to a target (q)."""

    F: Floats  # (q, r) features of the target, divided by the regression of 1
    unseen: Ints  # points of the target near which there are no pairs
    R: Floats  # (r, q') regression of functions at the source
    P: Floats  # (r', q') point masses with features (r',), relative to the marginal
    T: Floats  # (r, r') regression of point masses, R P'
    shares: Floats  # (q',) of the source in the pairs
    least: float  # of the regression of 1, below which no pairs are near
    usual: float  # mass of a point mass in the sample
    pseudo: float  # share of one more pair, which may be anywhere; 0 for tables, which are exact

    @classmethod
    def to(
        cls, F: Floats, R: Floats, P: Floats, shares: Floats, least: float, usual: float,
        pseudo: float,
    ) -> Self:  # fmt: skip
        """Operator to points with features F (q, r)."""
        constant = F @ R.sum(axis=1)
        unseen = np.flatnonzero(constant < least)
        constant[unseen] = 1.0
        return cls(F / constant[:, None], unseen, R, P, R @ P.T, shares, least, usual, pseudo)

    def at(self, F: Floats) -> Self:
        """Operator to other points of the target, with features F (m, r)."""
        return self.to(F, self.R, self.P, self.shares, self.least, self.usual, self.pseudo)

    def __call__(self, f: Floats) -> Floats:
        """E[f(source) | target] (m, q) for functions f (m, q')."""
        found: Floats = (f @ self.R.T) @ self.F.T
        if len(self.unseen):
            found[:, self.unseen] = (f @ self.shares)[:, None]
        return found

    def evidence(self, features: Floats) -> Floats:
        """p(x | target) / p(x) at the target (m, q) for points x with features (m, r')."""
        found: Floats = (features @ self.T.T) @ self.F.T
        found[:, self.unseen] = 1.0
        return found

    def logs(self, m: Floats, marginal: Floats | float, floor: Floor) -> tuple[Floats, Bools]:
        """Log messages m (k, q), with a maximum of 0, and which of them (k,) are uninformative.

        A regression may give negative values, but a message is positive. With ``floor`` "pairs" it
        is kept above what one more pair could add: its ``marginal`` expectation (k,), divided by
        the number of pairs. A number is a fraction of the maximum.
        """
        top = m.max(axis=1, keepdims=True)
        empty = ~(top[:, 0] > 0.0)
        if empty.any():
            m[empty], top[empty] = 1.0, 1.0
        m /= top
        least: Floats | float = TINY
        if self.pseudo and isinstance(floor, str):
            least = np.clip(np.reshape(self.pseudo * marginal, (-1, 1)) / top, TINY, 1.0)
        elif self.pseudo:
            least = float(floor)
        np.maximum(m, least, out=m)
        return np.log(m, out=m), empty

    def cancels(self, features: Floats) -> Bools:
        """Whether weights of points (m,), for a category, have an effective size below one."""
        if not self.pseudo or self.least > NO_PAIRS:  # of numbers the regression is as good
            return np.zeros(len(features), dtype=bool)
        mass = features @ (self.P @ self.shares)
        return np.asarray(mass**2 < np.sum((features @ self._squares) * features, axis=1))

    @cached_property
    def _squares(self) -> Floats:
        weights = self.P * self.shares
        return weights @ weights.T

    def outside(self, features: Floats, trust: Floats) -> tuple[Floats, Floats]:
        """Evidence of points as far as they are trusted (m,), and the marginal's share (m,)."""
        W = (features @ self.P) * self.shares
        W, share, _ = fill_weights(W, trust, self.usual, self.shares)
        return self(W / np.where(self.shares > 0.0, self.shares, 1.0)), share


@dataclass(frozen=True, eq=False)
class Relation:
    """Pairs of two variables: positions ``i`` and ``j`` (n,) in the domains ``first``, ``second``.

    The ridge "loo" has the smallest leave-one-out error of the other variable's features.
    """

    first: Domain
    second: Domain
    i: Ints = field(repr=False)
    j: Ints = field(repr=False)
    ridge: Ridge = "loo"

    @property
    def domains(self) -> tuple[Domain, Domain]:
        """Both domains."""
        return self.first, self.second

    @cached_property
    def ridges(self) -> tuple[float, float]:
        """Ridges in use, of the regression on the first and on the second variable."""
        if not isinstance(self.ridge, str) or self.ridge != "loo":
            return (check_ridge(self.ridge),) * 2
        keep = loo_subset(len(self.i))
        F, H = self.first.F[self.i[keep]], self.second.F[self.j[keep]]
        return loo(F, H, ridge_grid(F)).best, loo(H, F, ridge_grid(H)).best

    @cached_property
    def operators(self) -> tuple[Operator, Operator]:
        """Operators to the first variable and to the second."""
        shape = self.first.size, self.second.size
        table = sparse.csr_array(
            (np.full(len(self.i), 1.0 / len(self.i)), (self.i, self.j)), shape=shape
        )
        return self._operator(0, table), self._operator(1, table.T.tocsr())

    def _operator(self, side: int, table: sparse.csr_array) -> Operator:
        """Operator to one side, from the table (q, q') of the shares of all pairs of points."""
        F, G = self.domains[side].F, self.domains[1 - side].F
        own, other = table.sum(axis=1), table.sum(axis=0)
        R = _regress(F, own, (table.T @ F).T, self.ridges[side])
        point = _regress(G, other, G.T, self.ridges[1 - side])  # (r', q')
        least = NO_PAIRS if self.domains[side].kernel.is_categorical else LEAST_CONSTANT
        usual = mass_left(G @ (point @ other), np.sum(G * point.T, axis=1) / len(self.i), other)
        exact = all(domain.kernel.is_categorical for domain in self.domains)
        pseudo = 0.0 if exact else 1.0 / len(self.i)
        return Operator.to(F, R, point, other, least, min(usual, 1.0), pseudo)


def _regress(F: Floats, shares: Floats, B: Floats, ridge: float) -> Floats:
    """(C + ridge I)^-1 B with the moments C of features F (q, r) under shares (q,)."""
    with threads_for(float(F.size) * F.shape[1]):
        C = F.T @ (shares[:, None] * F)
        return solve_ridges(C, B, np.full(B.shape[1], ridge))
