r"""Statistics of a fit: mergeable sums over pairs, and a random subset of the pairs.

With finite features phi of x and psi of z, a conditional embedding or Bayes' rule under the
training marginal needs only one symmetric matrix of n pairs, of a size that does not depend on n,

.. math:: S = \sum_i j_i j_i^\top, \qquad j_i = [\varphi(x_i), \psi(z_i), z_i, 1] .

Sums over parts of the pairs add up to it, in any order. A random subset of the pairs is kept as
well, those with the smallest random keys, which can be merged too. They set the usual support,
choose ridges, and carry the weights of posteriors.

A posterior is then a weighted sample over the m kept pairs. Its features, mean and mass are those
of the posterior over all n: features Phi (m, r) of the kept pairs are moved as little as possible,
in least squares, to a matrix L with :math:`L^\top W [\Psi, Z, 1]` the sums over all pairs
(calibration weights, as in survey sampling: Deville and Särndal 1992). Whatever is not a function
of features, mean and mass (intervals, answers outside the sample) comes from the kept pairs.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property

import numpy as np
from array_api_compat import is_array_api_obj

from kernelbayes.arrays import as_array, as_doubles, row_blocks
from kernelbayes.gram import LowRank
from kernelbayes.gram.factored import Moments
from kernelbayes.gram.lapack import LinAlgError, solve_positive, whitening
from kernelbayes.gram.solvers import cho_solve, factor_with_ridge, scale_rows
from kernelbayes.kernels import Kernel
from kernelbayes.points import concatenate, count, in_order, numeric_values, sum_over_rows, take
from kernelbayes.types import Array, Floats, Ints, Names, Points, PointsLike

# Directions of the features of z with a relative squared size below this are rounding errors of
# the others (a few hundred roundings): sums over them are not matched.
MATCHED = 1e-13


@dataclass(frozen=True, eq=False)
class Kept:
    """A random subset of the pairs, those with the smallest random keys; ``+`` merges."""

    X: Points
    Z: Points
    keys: Floats = field(repr=False)  # (m,)
    limit: int

    @classmethod
    def of(
        cls, X: PointsLike, Z: PointsLike, limit: int, seed: int = 0,
        names: tuple[Names, Names] = (None, None),
    ) -> Kept:  # fmt: skip
        """Keep at most ``limit`` of the pairs; the keys depend on their values and the seed."""
        X, Z = in_order(X, names[0], "X"), in_order(Z, names[1], "Z")
        X, Z = (A if isinstance(A, Mapping | list) else as_array(A) for A in (X, Z))
        rng = np.random.default_rng([seed, _digest(X), _digest(Z)])
        return cls(X, Z, rng.random(count(X)), limit)._smallest()

    def __add__(self, other: Kept) -> Kept:
        X, Z = concatenate(self.X, other.X), concatenate(self.Z, other.Z)
        return Kept(X, Z, np.concatenate([self.keys, other.keys]), self.limit)._smallest()

    def _smallest(self) -> Kept:
        if len(self.keys) <= self.limit:
            return self
        order = np.sort(np.argsort(self.keys, kind="stable")[: self.limit])
        return Kept(take(self.X, order), take(self.Z, order), self.keys[order], self.limit)


@dataclass(frozen=True)
class Basis:
    """The features that are summed: two kernels with finite features, and column names."""

    kernel_x: Kernel
    kernel_z: Kernel
    names: tuple[Names, Names] = (None, None)

    def read(self, X: PointsLike, Z: PointsLike) -> dict[str, Points]:
        """Pairs as checked points, with columns in order."""
        ordered = (in_order(X, self.names[0], "X"), in_order(Z, self.names[1], "Z"))
        points = {"x": self.kernel_x.points(ordered[0], "X")}
        points["z"] = self.kernel_z.points(ordered[1], "Z")
        if count(points["x"]) != count(points["z"]):
            sizes = f"{count(points['x'])} and {count(points['z'])}"
            raise ValueError(f"X and Z must be pairs, got {sizes} points")
        return points

    def rows(self, points: dict[str, Points]) -> tuple[Floats, Floats, Floats]:
        """Features phi (n, r) and psi (n, s), and the values of z beside a constant (n, d + 1)."""
        values = numeric_values(points["z"])
        ones = np.ones((count(points["x"]), 1))
        phi, psi = self.kernel_x.features(points["x"]), self.kernel_z.features(points["z"])
        if not isinstance(phi, np.ndarray) or not isinstance(psi, np.ndarray):
            raise TypeError(
                "statistics are sums of NumPy arrays; fit tensors in one call, fit(X, Z)"
            )
        extra = ones if values is None else np.column_stack([as_doubles(values), ones])
        return as_doubles(phi), as_doubles(psi), extra


@dataclass(frozen=True, eq=False)
class Tilt:
    """Weights of pairs under a prior: psi(z) @ coefficients, optionally clipped at zero."""

    coefficients: Floats
    positive: bool

    def __call__(self, psi: Floats) -> Floats:
        """Weights (n,) of pairs with these features (n, s)."""
        found = psi @ self.coefficients
        return np.maximum(found, 0.0) if self.positive else found


@dataclass(frozen=True, eq=False)
class Statistics:
    """Sums over n pairs, and some of the pairs; ``a + b`` merges, and changes neither."""

    basis: Basis
    n: float  # an integer, unless pairs have faded
    sums: Floats = field(repr=False)  # S (r + s + d + 1, the same)
    kept: Kept
    tilt: Tilt | None = None

    @classmethod
    def of(
        cls, X: PointsLike, Z: PointsLike, basis: Basis, limit: int, seed: int = 0,
        tilt: Tilt | None = None,
    ) -> Statistics:  # fmt: skip
        """Statistics of the pairs X (n, ...) and Z (n, ...)."""
        points = basis.read(X, Z)

        def partial(chunk: dict[str, Points], _: slice) -> Floats:
            rows = basis.rows(chunk)
            J = np.concatenate(rows, axis=1)
            return as_doubles(LowRank(J).moments(None if tilt is None else tilt(rows[1]))[0])

        first = basis.rows(take(points, slice(0, 1)))
        sums = sum_over_rows(partial, points, sum(part.shape[1] for part in first))
        kept = Kept.of(points["x"], points["z"], limit, seed)
        return cls(basis, count(points["x"]), sums, kept, tilt)

    def faded(self, factor: float) -> Statistics:
        """Statistics in which each pair counts ``factor`` times as much.

        The keys of kept pairs become those of a weighted random subset (Efraimidis and Spirakis
        2006), so that new pairs replace old ones.
        """
        keys = -np.expm1(np.log1p(-self.kept.keys) / factor)
        kept = Kept(self.kept.X, self.kept.Z, keys, self.kept.limit)
        return Statistics(self.basis, factor * self.n, factor * self.sums, kept, self.tilt)

    def __add__(self, other: Statistics) -> Statistics:
        """Statistics of the pairs of both."""
        if not isinstance(other, Statistics):
            return NotImplemented
        if self.basis != other.basis or self.sums.shape != other.sums.shape:
            raise ValueError(
                "these statistics are sums of different features; start both with the same "
                "kernels: kernel_x=first.kernel_x_, kernel_z=first.kernel_z_"
            )
        sums, kept = self.sums + other.sums, self.kept + other.kept
        return Statistics(self.basis, self.n + other.n, sums, kept, self.tilt)

    def grams(self) -> tuple[Summed, Summed, Floats | None, Floats]:
        """Gram matrices of x and of z on the kept pairs, the mean (d,) of z, and weights (m,)."""
        basis, kept = self.basis, self.kept
        phi, psi, extra = basis.rows({"x": kept.X, "z": kept.Z})
        r, s, m = phi.shape[1], psi.shape[1], len(phi)
        weights = np.full(m, 1.0 / m) if self.tilt is None else self.tilt(psi)
        S = self.sums / self.n if self.tilt is None else self.sums * (m / self.n)
        cross, means = S[r:, :r].copy(), S[r + s : -1, -1] / S[-1, -1]
        # Values are standardised, so that no digits are lost.
        unit = np.std(extra[:, :-1], axis=0)
        unit[unit == 0.0] = 1.0
        values = np.column_stack([(extra[:, :-1] - means) / unit, extra[:, -1]])
        cross[s:-1] = (cross[s:-1] - means[:, None] * cross[-1]) / unit[:, None]
        L = _matched(phi, np.column_stack([psi, values]), weights, cross)
        L = _matched(L, values, weights, cross[s:])  # mean and mass to the last digit
        block = S[r : r + s, r : r + s]
        x = Summed(L, kernel=basis.kernel_x, points=kept.X, C=S[:r, :r], under=weights)
        z = Summed(psi, kernel=basis.kernel_z, points=kept.Z, C=block, under=weights)
        return x, z, means if len(means) else None, weights


@dataclass(frozen=True, eq=False)
class Summed(LowRank):
    """Low-rank Gram matrix of kept points with the moments of all points."""

    C: Floats = field(kw_only=True, repr=False)  # (r, r), the sum of d_i phi_i phi_i^T over all
    under: Floats = field(kw_only=True, repr=False)  # (m,), d at the kept points

    def moments(self, d: Array | None, B: Array | None = None, ridge: float = 0.0) -> Moments:  # noqa: ARG002
        """L^T D L over all points, and L^T D B; D must be a multiple of the known weights."""
        d = np.ones(self.n) if d is None else d
        factor = float(d.sum() / self.under.sum())
        if not np.allclose(d, factor * self.under, rtol=1e-6, atol=1e-12 * float(abs(d).max())):
            raise ValueError(
                "statistics hold sums under one prior; another prior needs the pairs again: "
                "fit(source, prior=...) from a source that can be read twice"
            )
        return factor * self.C, None if B is None else self.project(d[:, None] * B)


@dataclass(frozen=True, eq=False)
class PairSums:
    """The original rule in coordinates (KBR13 eq. 18): sums over all n pairs, for m that are kept.

    Prior weights on the sample are a function of the state, gamma_i = beta^T [l(z_i), 1], with
    coordinates beta (r + 1,). So sums under gamma of f f^T, and of [l(z), 1, z] f^T, with f the
    features of x, are linear in beta.
    """

    read: Floats  # (r + 1, m), coordinates of weights on the kept pairs
    total: Floats  # (r + 1,), sums of [l, 1]
    square: Floats  # (q (q + 1) / 2, r + 1), sums of f f^T, its lower triangle, times [l, 1]
    cross: Floats  # (s, q, r + 1), sums of [l, 1, z] f^T times [l, 1], z standardised
    write: Floats  # (m, s), weights of kept pairs with given sums of [l, 1, z]

    @classmethod
    def of(cls, F: Floats, L: Floats, Z: Floats, counts: Array | None, picks: Ints) -> PairSums:
        """Return the sums of pairs with features F (n, q), L (n, r) and values Z (n, d)."""
        unit = np.std(Z, axis=0)
        values = (Z - Z.mean(axis=0)) / np.where(unit > 0.0, unit, 1.0)
        B = np.column_stack([L, np.ones(len(L))])
        A = np.column_stack([B, values])
        C = B if counts is None else scale_rows(as_doubles(counts), B)
        i, j = np.tril_indices(F.shape[1])
        square = np.zeros((len(i), B.shape[1]))
        cross = np.zeros((A.shape[1] * F.shape[1], B.shape[1]))
        for rows in row_blocks(len(F), len(i) + len(cross)):
            f, a = F[rows], A[rows]
            square += (f[:, i] * f[:, j]).T @ C[rows]
            cross += (a[:, :, None] * f[:, None, :]).reshape(len(f), -1).T @ C[rows]
        shape = A.shape[1], F.shape[1], B.shape[1]
        roots = [whitening(M[picks].T @ M[picks], MATCHED) for M in (B, A)]
        read, write = (M[picks] @ root @ root.T for M, root in zip((B, A), roots, strict=True))
        return cls(read.T, C.sum(axis=0), square, cross.reshape(shape), write)

    def posterior(
        self, gamma: Floats, column: Floats, ridge: float, plain: float | None
    ) -> tuple[Floats, bool]:
        """Posterior weights (m,) from prior weights (m,), or those of the plain regression."""
        beta = self.read @ gamma
        mass = float(self.total @ beta)
        if not mass > 0.0:
            return 0.0 * gamma, False
        beta, p = beta / mass, len(beta)
        C = _symmetric(self.square @ beta, len(column))
        A, b, ridge = (C @ C, C @ column, ridge) if plain is None else (C, column, plain)
        try:
            c, rescued = (
                solve_positive(A + np.diag(np.full(len(A), ridge)), b, overwrite=True),
                False,
            )
        except LinAlgError:
            c, rescued = cho_solve(factor_with_ridge(A, ridge, quiet=True)[0], b), True
        pairs = _symmetric(self._inner @ c, p) @ beta
        return self.write @ np.concatenate([pairs, (self.cross[p:] @ beta) @ c]), rescued

    @cached_property
    def _inner(self) -> Floats:
        """Sums of [l, 1] [l, 1]^T times f: half of ``cross``, as reading it takes most time."""
        i, j = np.tril_indices(self.cross.shape[2])
        return np.ascontiguousarray(self.cross[i, :, j])


@cache
def _lower(q: int) -> Ints:
    """Positions of the entries of a symmetric matrix (q, q) in its lower triangle."""
    found = np.zeros((q, q), dtype=int)
    i, j = np.tril_indices(q)
    found[i, j] = found[j, i] = np.arange(len(i))
    return found


def _symmetric(lower: Floats, q: int) -> Floats:
    """Symmetric matrix (q, q) with a given lower triangle (q (q + 1) / 2,)."""
    return np.asarray(lower.take(_lower(q)))


def _matched(F: Floats, A: Floats, weights: Floats, sums: Floats) -> Floats:
    """Matrix closest to F (m, r), in weighted least squares, with A^T W F = ``sums`` (q, r)."""
    size = np.abs(weights)[:, None] * A
    root = whitening(A.T @ size, MATCHED)
    missing = sums - A.T @ (weights[:, None] * F)
    return F + np.sign(weights)[:, None] * (A @ (root @ (root.T @ missing)))


def _digest(points: Points) -> int:
    """Checksum of the values of points."""
    if isinstance(points, Mapping):
        return zlib.crc32(repr([_digest(part) for part in points.values()]).encode())
    if is_array_api_obj(points) and points.dtype.kind in "fiub":
        return zlib.crc32(np.ascontiguousarray(points).tobytes())
    return zlib.crc32(repr(list(points)).encode())
