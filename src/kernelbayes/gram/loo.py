r"""Leave-one-out predictions and errors of ridge regression in closed form.

The regression of targets h_i on features f_i minimises

.. math:: \sum_i r_i |h_i - E^\top f_i|^2 + \lambda |E|^2 .

Without pair i its residual at i is that of the fit, divided by one minus the pair's leverage (the
PRESS identity), so that one eigendecomposition gives the left-out predictions of every ridge
lambda; no model is refitted. Everything works on feature matrices, dense or low-rank alike: on
finitely many points any kernel has exact finite features (``Gram.of(kernel, points).factor``).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from kernelbayes.arrays import threads_for, to_numpy
from kernelbayes.gram.base import Gram
from kernelbayes.gram.factored import exact_features
from kernelbayes.gram.lapack import eigh, left_singular, solve_ridges
from kernelbayes.gram.solvers import condition_bound
from kernelbayes.kernels import Kernel
from kernelbayes.points import count, take
from kernelbayes.types import Floats, Ints, Points

# Pairs on which leave-one-out errors are computed; a fixed random subset beyond this number. An
# eigendecomposition of that size takes about a second.
LOO_POINTS = 2000
# Targets beyond this size, or below its inverse, are scored in other units: sums of their squares
# must stay within a double, 1e308.
LARGEST_TARGET = 1e100


def loo_subset(n: int, limit: int = LOO_POINTS) -> Ints:
    """All indices up to a limit, a fixed random subset beyond."""
    if n <= limit:
        return np.arange(n)
    return np.sort(np.random.default_rng(0).choice(n, limit, replace=False))


def score_targets(kernel: Kernel, points: Points) -> Floats:
    """Targets (n, q) of leave-one-out errors: vectors and the constant 1, or kernel features.

    For a kernel on vectors the conditional mean and the mass count: the coordinates, in units of
    the bandwidths if there is one for each, and the constant 1, with their average variance.
    """
    if not kernel.is_vector:
        return exact_features(kernel, points)[0]
    values = np.asarray(to_numpy(points), dtype=np.float64).reshape(count(points), -1)
    values = values / column_units(kernel)
    largest = float(np.abs(values).max())
    if not 1.0 / LARGEST_TARGET < largest < LARGEST_TARGET:  # squares would leave the range
        values = values / (largest or 1.0)
    return with_constant(values, values)


def column_units(kernel: Kernel) -> Floats | float:
    """Units (d,) in which errors of the columns are comparable; 1 if the kernel has one scale."""
    bandwidth = kernel.exact.gaussian_bandwidth
    return np.asarray(bandwidth) if isinstance(bandwidth, tuple) else 1.0


def with_constant(values: Floats, training: Floats) -> Floats:
    """Values (m, q) less the training mean, beside the constant 1 in units of their deviation.

    Rules take means around that mean: an offset of the outputs is no error of the mass.
    """
    unit = float(np.sqrt(np.mean(np.var(training, axis=0)))) or 1.0
    return np.column_stack([values - training.mean(axis=0), np.full(len(values), unit)])


def ridge_grid(
    F: Floats, weights: Floats | None = None, size: int = 28, least: float = 0.0
) -> Floats:
    """Ridges over nine decades, in units of the mean squared feature norm; none below ``least``."""
    squares = np.einsum("ij,ij->i", F, F)
    trace = float(squares.mean() if weights is None else weights @ squares)
    grid = np.logspace(-8, 1, size)
    return (trace if trace > 0 else 1.0) * grid[grid >= least]


def least_ridge(kernel: Kernel, points: Points) -> float:
    """Smallest relative ridge with which solvers, who judge by 1-norms, do not warn."""
    return math.sqrt(count(points)) / condition_bound(kernel.diag(take(points, slice(0, 1))))


def loo(
    features: Gram | Floats, targets: Floats, ridges: Floats, weights: Floats | None = None,
    intercept: bool = False,
) -> LeaveOneOut:  # fmt: skip
    """Leave-one-out of ridge regression of targets (n, q) on features (n, r), for ridges (p,).

    Weights (n,) are 1/n unless given; pairs of weight zero are predicted by the others. No ridge
    holds back an ``intercept``.
    """
    F = np.asarray(features.factor if isinstance(features, Gram) else features, dtype=float)
    H = np.asarray(targets, dtype=float)
    n = len(F)
    r = np.full(n, 1.0 / n) if weights is None else np.asarray(weights, dtype=float)
    return LeaveOneOut(F, H, np.asarray(ridges, dtype=float), r, intercept)


@dataclass(frozen=True, eq=False)
class LeaveOneOut:
    """Left-out predictions and errors of ridge regressions; made by :func:`loo`."""

    F: Floats
    H: Floats
    ridges: Floats
    weights: Floats
    intercept: bool

    @cached_property
    def errors(self) -> Floats:
        """Errors (p,): sum_i r_i |h_i - left-out prediction|^2 / sum_i r_i."""
        return np.asarray(self.errors_by_target.sum(axis=1))

    @cached_property
    def errors_by_target(self) -> Floats:
        """Errors (p, q) of every ridge and target."""
        total = self.weights.sum()
        if not total > 0.0:
            return np.full((len(self.ridges), self.H.shape[1]), np.inf)
        squares = [self.weights @ residuals**2 for residuals in self.residuals()]
        return np.asarray(np.stack(squares) / total)

    @property
    def best(self) -> float:
        """Ridge of the least error; the first of equals."""
        return float(self.ridges[np.argmin(self.errors)])

    @property
    def best_by_target(self) -> Floats:
        """Ridge (q,) of the least error of each target."""
        return np.asarray(self.ridges[np.argmin(self.errors_by_target, axis=0)])

    def predictions(self) -> Iterator[Floats]:
        """Left-out predictions (n, q), ridge by ridge."""
        return (self.H - residuals for residuals in self.residuals())

    def residuals(self) -> Iterator[Floats]:
        """Targets minus left-out predictions (n, q), ridge by ridge."""
        with threads_for(float(self.F.size) * min(self.F.shape)):
            yield from self._residuals()

    def _residuals(self) -> Iterator[Floats]:
        r, H, F, middle = self.weights, self.H, self.F, np.zeros((1, self.H.shape[1]))
        if self.intercept:
            share = r / r.sum()
            F, middle = F - share @ F, (share @ H)[None, :]
        unused = np.flatnonzero(r <= 0)
        used = np.flatnonzero(r > 0) if len(unused) else slice(None)
        root = np.sqrt(r[used])[:, None]
        A, Y = root * F[used], root * (H[used] - middle)
        U, squares = left_singular(A)
        inside = U.T @ Y
        outside = Y - U @ inside  # what no ridge can fit
        own = U * U
        free = np.maximum(1.0 - own.sum(axis=1) - (share[used] if self.intercept else 0.0), 0.0)
        shrinks = self.ridges[:, None] / (squares + self.ridges[:, None])
        left = left_share(free[:, None] + own @ shrinks.T) * root
        for i, shrink in enumerate(shrinks):
            residuals = (outside + U @ (shrink[:, None] * inside)) / left[:, i : i + 1]
            if not len(unused):
                yield residuals
                continue
            every = np.empty(H.shape)
            every[used] = residuals
            coefficients = A.T @ (U @ (inside / (squares + self.ridges[i])[:, None]))
            every[unused] = H[unused] - middle - F[unused] @ coefficients
            yield every


def left_share(one_minus_leverage: Floats, least: float | None = None) -> Floats:
    """Return one minus leverage, floored: residuals divided by it are those of left-out pairs.

    A leverage is a sum of n squares, known to n units of rounding, which is the floor: a pair that
    alone decides its fit has a large left-out residual, of no particular value.
    """
    floor = len(one_minus_leverage) * np.finfo(float).eps if least is None else least
    return np.maximum(one_minus_leverage, floor)


@dataclass(frozen=True, eq=False)
class RidgePath:
    """Ridge regression for every ridge, from the eigenvectors Q (r, k) of the moments of features.

    The original rule of Bayes replaces 1 / (c + ridge) at eigenvalue c by c / (c^2 + ridge^2); its
    weights, and so c, may be negative.
    """

    c: Floats
    Q: Floats
    cross: Floats

    @classmethod
    def of(cls, F: Floats, H: Floats, weights: Floats) -> RidgePath:
        """From features F (n, r), targets H (n, q) and weights (n,) of any sign."""
        weighted = weights[:, None] * F
        c, Q = eigh(F.T @ weighted)
        return cls(c, Q, Q.T @ (weighted.T @ H))

    def filtered(self, ridge: float | Floats, original: bool = False) -> Floats:
        """Inverse eigenvalues (k,), or (p, k) for ridges (p, 1)."""
        if original:
            return np.asarray(self.c / (self.c * self.c + ridge**2))
        return 1.0 / (np.maximum(self.c, 0.0) + ridge)

    def predict(self, F: Floats, ridge: float, original: bool = False) -> Floats:
        """Predictions (m, q) at features F (m, r)."""
        return np.asarray((F @ self.Q) @ (self.filtered(ridge, original)[:, None] * self.cross))


def fold_predictions(
    F: Floats, H: Floats, ridges: Floats, weights: Floats, groups: Ints
) -> tuple[Floats, Floats]:
    """Coefficients (r, q) with a ridge (q,) for each target, and predictions (n, q) left out.

    Pairs of a group (n,) are left out together: folds, or pairs that share an input. Weights (n,)
    sum to one, and do so again over the pairs that are left.
    """
    with threads_for(float(F.size) * F.shape[1]):
        parts = [np.flatnonzero(groups == group) for group in np.unique(groups)]
        moments = []
        for rows in parts:
            weighted = weights[rows, None] * F[rows]
            moments.append((F[rows].T @ weighted, weighted.T @ H[rows], weights[rows].sum()))
        left_out = np.empty(H.shape)
        for i, rows in enumerate(parts):
            # Added up, not taken from those of all: a part may have nearly all of the weight.
            C, cross, kept = _added(moments[:i] + moments[i + 1 :])
            rest = max(float(kept), np.finfo(float).tiny)
            left_out[rows] = F[rows] @ solve_ridges(C / rest, cross / rest, ridges)
        C, cross, _ = _added(moments)
        return solve_ridges(C, cross, ridges), left_out


def _added(parts: Sequence[tuple[Floats, Floats, Floats]]) -> list[Floats]:
    return [np.sum(some, axis=0) for some in zip(*parts, strict=True)]
