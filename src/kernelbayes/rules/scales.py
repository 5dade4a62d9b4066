r"""Which scales for x, where there is a response: the default kernel of a conditional embedding.

Kernels are compared by how well z is predicted from x, by the closed-form leave-one-out error of a
ridge regression on landmarks, on some of the pairs, so that it costs little beside the fit:

1. the default kernel, at several common factors: quantiles of the distances between points and
   distances to near neighbours, since no single quantile serves all data;
2. a bandwidth for each column by its **relevance**, the size of the gradient of what was learned
   (Radhakrishnan et al. 2024, here the diagonal alone, so that the kernel stays a product over
   columns): columns that say nothing about z disappear;
3. both, four times as wide: for what is nearly linear or quadratic in several columns;
4. one bandwidth for the whole vector, the typical distance in the units of the data.

Of the first three kinds, the widest that the best one does not clearly beat is taken: the simplest
within one standard error of the difference over pairs (Breiman et al. 1984). The fourth is taken
only if it is better than all of them beyond doubt, by three standard errors: units do not matter,
unless they say more about z. Categories in mixed frames count as vectors of indicators.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Literal, NamedTuple

import numpy as np
from scipy.spatial.distance import pdist

from kernelbayes.arrays import as_doubles, as_vectors, threads_for
from kernelbayes.gram.features import nystrom
from kernelbayes.gram.finite import Precomputed
from kernelbayes.gram.lapack import eigh, solve_ridges, whitening
from kernelbayes.gram.loo import loo, loo_subset, ridge_grid, score_targets
from kernelbayes.kernels import Gaussian, Kernel
from kernelbayes.kernels.base import kernel_of
from kernelbayes.kernels.default import default_kernel
from kernelbayes.kernels.parts import Parts
from kernelbayes.kernels.radial import typical
from kernelbayes.points import count, take
from kernelbayes.types import Array, Floats, Ints, Points, PointsLike

# A kernel as rules take it; None is the default.
KernelLike = Kernel | Literal["precomputed"] | Callable[..., Any] | None
# Pairs and landmarks on which kernels are compared: about a dozen comparisons take as long as one
# fit to 500 pairs (benchmarks/bench_defaults.py). With fewer than the least no comparison is clear.
COMPARED_PAIRS, COMPARED_LANDMARKS, FEWEST_PAIRS = 500, 150, 20
# Quantiles of the distances whose values are tried as bandwidths, and the number of the neighbour
# whose median distance is: with fewer neighbours a regression follows its noise.
DISTANCE_LEVELS, NEIGHBOUR = (0.1, 0.25, 0.75, 0.9), 5
# Factors closer than this to one that is tried differ by less than the noise of the comparison.
APART = 1.25
# Factor of wide kernels, for two columns and more: in many columns distances are nearly the same.
# With sixteen, points far outside the sample seemed to have support.
WIDE = 4.0
# Features of z that are predicted: with a typical bandwidth few beyond the thirtieth matter. Of
# these the gradients of the first few directions say which columns matter.
RESPONSES, DIRECTIONS = 30, 8
# Ridges tried for each kernel: nine decades in steps of less than a factor of ten.
COMPARED_RIDGES = 10
# Factors tried for kernels by relevance, those nearest to the best without it.
RELEVANT_FACTORS = 3
# Updates of the relevances at most, and the least relevance: a bandwidth of thirty times the
# smallest makes a column nearly constant.
RELEVANCE_UPDATES, LEAST_SHARE_OF_RELEVANCE = 2, 0.03
# Standard errors by which one bandwidth for all columns must be better than what needs no units.
BEYOND_DOUBT = 3.0
# Columns and pairs per column within which relevances are learned: a gradient needs more pairs than
# coordinates. The upper end is a judgement.
RELEVANT_COLUMNS, PAIRS_FOR_COLUMN = (2, 300), 4


def pair_kernels(
    X: PointsLike, Z: PointsLike, kernel_x: KernelLike, kernel_z: KernelLike, means: bool = False,
    wide: bool = True,
) -> tuple[Kernel, Kernel]:  # fmt: skip
    """Kernels for pairs, by default the one on x that predicts features or ``means`` of z."""
    kernel_x, kernel_z = _given(kernel_x, X, "X"), _given(kernel_z, Z, "Z")
    if kernel_z is None:
        kernel_z = default_kernel(Z, "Z")
    if kernel_x is not None:
        return kernel_x, kernel_z
    base = default_kernel(X, "X")
    points, responses = base.points(X, "X"), kernel_z.points(Z, "Z")
    kernel_z.diag(take(responses, slice(0, 1)))  # a bandwidth for each column must fit the points
    n = count(points)
    if n != count(responses) or n < FEWEST_PAIRS or base.scaled(2.0) == base:
        return base, kernel_z  # nothing to choose, or an error that is raised elsewhere
    keep = loo_subset(n, COMPARED_PAIRS)
    H = _responses(kernel_z, take(responses, keep), means)
    if np.all(np.ptp(H, axis=0) == 0.0):
        return base, kernel_z
    encoded = _Encoded.of(base, take(points, keep))
    with threads_for(0.0):  # many small matrices
        return encoded.kernel(_bandwidths(encoded, H, wide)), kernel_z


def _given(kernel: KernelLike, X: PointsLike, name: str) -> Kernel | None:
    """Return the kernel that a user gave on X; None for the default."""
    if isinstance(kernel, str) and kernel == "precomputed":
        return Precomputed(X)
    return None if kernel is None else kernel_of(kernel, f"the kernel on {name}")


class _Encoded(NamedTuple):
    """Points as vectors X (m, d) whose Gaussian kernel with bandwidths (d,) is that of the points.

    Categories are indicators at distance one; coordinates of a group share a bandwidth.
    """

    X: Floats
    bandwidths: Floats
    groups: Ints
    parts: list[Any] | None  # key, kernel and number of coordinates, of a mixed frame

    @classmethod
    def of(cls, base: Any, points: Points) -> _Encoded:
        """Encode points under a default kernel."""
        mixed, X, widths, groups, parts = isinstance(points, Mapping), [], [], [-1], []
        for key, kernel, own in base.split(points) if mixed else [(None, base, points)]:
            if kernel.is_categorical:
                codes = np.unique(own, axis=0, return_inverse=True)[1].ravel()
                X.append(np.equal.outer(codes, np.arange(codes.max() + 1)) / np.sqrt(2.0))
                groups += [groups[-1] + 1] * X[-1].shape[1]
            else:
                columns = own.values() if isinstance(own, Mapping) else [own]
                X.append(np.hstack([as_doubles(as_vectors(column)) for column in columns]))
                groups += [groups[-1] + 1 + j for j in range(X[-1].shape[1])]
            widths.append(np.broadcast_to(np.asarray(kernel.bandwidth), X[-1].shape[1]))
            parts.append((key, kernel, X[-1].shape[1]))
        arrays = np.hstack(X), np.hstack(widths), np.array(groups[1:])
        return cls(*arrays, parts if mixed else None)

    def kernel(self, h: Array) -> Kernel:
        """Kernel on the points with bandwidths (d,)."""
        if self.parts is None:
            return Gaussian(float(np.max(h)) if np.size(h) == 1 else h)
        ends = np.cumsum([size for _, _, size in self.parts])[:-1]
        return Parts([
            (key, replace(kernel, bandwidth=own[0] if kernel.is_categorical else tuple(own)))
            for (key, kernel, _), own in zip(self.parts, np.split(h, ends), strict=True)
        ])  # fmt: skip


class _Tried(NamedTuple):
    """Bandwidths with the losses (m,) of the pairs, left out of a regression with them."""

    bandwidths: Array
    losses: Floats

    def beaten_by(self, other: _Tried, errors: float = 1.0) -> bool:
        """Whether another is better by more than so many standard errors of the difference."""
        return clearly_less(other.losses, self.losses, errors)


def clearly_less(losses: Floats, others: Floats, errors: float = 1.0) -> bool:
    """Whether paired losses (m,) are less by so many standard errors of the difference."""
    worse = others - losses
    worse = worse / max(float(np.abs(worse).max()), np.finfo(float).tiny)  # squares fit
    return bool(worse.mean() > errors * worse.std() / np.sqrt(len(worse)))


def _best(tried: list[_Tried]) -> _Tried:
    return min(tried, key=lambda t: float(t.losses.mean()))


def _preferred(tried: list[_Tried], groups: Ints | None) -> _Tried:
    """Widest of them that the best one does not clearly beat, a group counting once, or first."""
    best = _best(tried)
    near = [t for t in tried if not t.beaten_by(best)]
    if groups is None:
        return near[0]
    each = np.unique(groups, return_index=True)[1]
    return max(near, key=lambda t: float(np.log(t.bandwidths[each]).sum()))


def _losses(F: Floats, H: Floats) -> tuple[Floats, float]:
    """Squared left-out errors (m,) at the best ridge, and that ridge."""
    ridges = ridge_grid(F, size=COMPARED_RIDGES)
    squares = [np.einsum("ij,ij->i", R, R) for R in loo(F, H, ridges).residuals()]
    i = int(np.argmin([s.mean() for s in squares]))
    return squares[i], float(ridges[i])


def _responses(kernel: Kernel, points: Points, means: bool) -> Floats:
    """Targets (m, q): coordinates and the constant 1, or some features of z."""
    if means and kernel.is_vector:
        return score_targets(kernel, points)
    if not kernel.finite:
        kernel = nystrom(kernel, points, RESPONSES, rng=0)
    return as_doubles(kernel.features(points))


def _bandwidths(points: _Encoded, H: Floats, wide: bool) -> Array:
    """Best bandwidths (d,) for encoded points (m, d) of those the module lists."""
    X, h, m = points.X, points.bandwidths, len(points.X)
    d = int(points.groups[-1]) + 1
    first = best = _Race(X, h, H, points.groups)
    tried = [first.tried(f) for f in (1.0, *first.factors())]
    low, high = RELEVANT_COLUMNS
    if low <= d <= high and m >= PAIRS_FOR_COLUMN * d:
        for _ in range(RELEVANCE_UPDATES):
            unit = best.unit / best.relevance()
            race = _Race(X, unit * typical(pdist(X / unit)), H, points.groups)
            near = sorted((1.0, *race.factors()), key=lambda f: abs(np.log(f / first.best)))
            tried += [race.tried(factor) for factor in near[:RELEVANT_FACTORS]]
            if race.error >= best.error:
                break
            best = race
    if d > 1:
        tried += [race.tried(WIDE) for race in dict.fromkeys((first, best)) if wide]
    if d > 1 and points.parts is None:
        size = float(h.max())  # in these units squares stay in the range of floating point
        race = _Race(X, size * typical(pdist(X / size)), H, points.groups)
        whole = _best([race.tried(factor) for factor in {1.0, first.best}])
        if _best(tried).beaten_by(whole, BEYOND_DOUBT):
            return whole.bandwidths
    found = _preferred(tried, points.groups if wide else None).bandwidths
    return np.where(np.ptp(X, axis=0) > 0.0, found, h)  # a constant column says nothing of widths


class _Race:
    """Gaussian kernels of several bandwidths on points (m, d) whose typical distance is a unit."""

    def __init__(self, X: Floats, unit: Array, H: Floats, groups: Ints) -> None:
        self.U, self.unit, self.H, self.groups = (U := X / unit), unit, H, groups
        self.rows = np.random.default_rng(0).permutation(len(U))[:COMPARED_LANDMARKS]
        V = U - U.mean(axis=0)
        squares = np.einsum("ij,ij->i", V, V)
        D = squares[:, None] + squares[self.rows] - 2.0 * V @ V[self.rows].T
        self.D = np.maximum(D, 0.0)
        self.error, self.best = np.inf, 1.0

    def factors(self) -> list[float]:
        """Bandwidths to try beside one, the nearest first."""
        distances = np.sqrt(np.sort(self.D, axis=0))[1:]  # without the landmark itself
        if not len(distances):
            return []
        found = [float(q) for q in np.quantile(distances, DISTANCE_LEVELS)]
        found.append(float(np.median(distances[min(NEIGHBOUR, len(distances)) - 1])))
        kept = [1.0]
        for factor in sorted((f for f in found if f > 0.0), key=lambda f: abs(np.log(f))):
            if all(max(factor / f, f / factor) >= APART for f in kept):
                kept.append(factor)
        return kept[1:]

    def features(self, factor: float) -> tuple[Floats, Floats, Floats]:
        """Kernel (m, R), its root on the landmarks, and features (m, r)."""
        K = np.exp(self.D * (-0.5 / factor**2))
        root = whitening(K[self.rows], 1e-10)
        return K, root, K @ root

    def tried(self, factor: float) -> _Tried:
        """Bandwidths, a factor times the units, and their losses."""
        _, _, F = self.features(factor)
        losses, ridge = _losses(F, self.H)
        if losses.mean() < self.error:
            self.error, self.best, self.ridge = float(losses.mean()), factor, ridge
        return _Tried(factor * self.unit, losses)

    def relevance(self) -> Floats:
        """Size (d,) of the gradient by each column of the best regression so far, at most one."""
        K, root, F = self.features(self.best)
        F, H, m = F - F.mean(axis=0), self.H - self.H.mean(axis=0), len(F)
        cross, ridges = F.T @ H / m, np.full(H.shape[1], self.ridge)
        beta = root @ solve_ridges(F.T @ F / m, cross, ridges)
        # Gradients in the directions in which the predictions vary most.
        values = K @ beta
        values = values - values.mean(axis=0)
        beta = beta @ eigh(values.T @ values)[1][:, ::-1][:, :DIRECTIONS]
        L, total = self.U[self.rows], np.zeros(self.U.shape[1])
        for b, v in zip(beta.T, (K @ beta).T, strict=True):
            bent = K @ (b[:, None] * L) - self.U * v[:, None]
            total += np.einsum("ij,ij->j", bent, bent)
        size = np.sqrt(np.bincount(self.groups, total)[self.groups])
        most = float(size.max())
        if not most > 0.0:
            return np.ones(len(size))
        return np.maximum(size / most, LEAST_SHARE_OF_RELEVANCE)


def distance_factors(U: Floats) -> list[float]:
    """Bandwidths to try beside one, the nearest first, for points (n, d) in units of one."""
    U = U[loo_subset(len(U), COMPARED_PAIRS)]
    return _Race(U, 1.0, U[:, :0], np.arange(U.shape[1])).factors()
