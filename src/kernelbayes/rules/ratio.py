r"""Density ratios: how much likelier is a point under one distribution than under another.

``density_ratio(numerator, denominator)`` estimates r(x) = p_numerator(x) / p_denominator(x) from
two samples, without estimating either density. The importance-weighted Bayes' rule needs it: the
numerator is the prior, the denominator the training marginal.

===========  ======================================================================================
method       minimises
===========  ======================================================================================
"kulsif"     E_den[r^2]/2 - E_num[r] + eta |r|^2/2 over the RKHS (Kanamori et al. 2012). Closed
             form, leave-one-out score in closed form. The default.
"rulsif"     the same with the denominator alpha p_num + (1 - alpha) p_den (Yamada et al. 2011):
             the relative ratio, bounded by 1/alpha, far less variable when the two differ much.
"ulsif"      the same as "kulsif" over combinations of kernels at chosen centres: cheap.
"kmm"        the RKHS distance between the re-weighted denominator sample and the numerator, over
             weights in a box (kernel mean matching; Huang et al. 2007).
===========  ======================================================================================

Estimates are cut off at zero. All four accept an embedding as the numerator, also one with negative
weights ("rulsif" mixes only the positive ones into its denominator), "kulsif" and "kmm" also a
Gaussian in closed form.

>>> import numpy as np
>>> from kernelbayes import density_ratio
>>> rng = np.random.default_rng(0)
>>> r = density_ratio(numerator=rng.normal(0.5, 1.0, 500), denominator=rng.normal(0.0, 1.0, 500))
>>> low, high = r.ratio([-1.0, 1.0])  # the truth is 0.54 and 1.45
>>> bool(0.3 < low < 0.8 and 1.1 < high < 1.8)
True
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, get_args

import numpy as np

from kernelbayes.arrays import as_generator, like, namespace, to_numpy
from kernelbayes.embedding import Embedding, MeanElement, embed
from kernelbayes.gram import Gram, check_ridge, exact_features
from kernelbayes.gram.finite import FiniteKernel
from kernelbayes.gram.lapack import eigh
from kernelbayes.gram.loo import loo_subset, ridge_grid
from kernelbayes.gram.solvers import ridge_or_loo
from kernelbayes.kernels import Kernel
from kernelbayes.kernels.base import as_kernel
from kernelbayes.kernels.default import default_kernel, pooled
from kernelbayes.points import (
    column_names,
    concatenate,
    count,
    finite,
    in_order,
    integer,
    option,
    own,
    points_in_order,
    share,
    take,
)
from kernelbayes.rules.conditional import Ridge
from kernelbayes.rules.kulsif import RELATIVE, kulsif_ridge, mean_matching
from kernelbayes.rules.variable import Variable
from kernelbayes.types import Array, Names, Points, PointsLike, Rng

Method = Literal["kulsif", "rulsif", "ulsif", "kmm"]


@dataclass(frozen=True)
class DensityRatio:
    """An estimated ratio of densities, ``at_denominator`` (n,) at the denominator's own points."""

    at_denominator: Array
    method: str
    ridge: float
    _evaluate: Callable[[PointsLike], Array] = field(repr=False)
    names: Names = None

    def __repr__(self) -> str:
        """Say method, ridge, and how far the ratio is from one."""
        values = to_numpy(self.at_denominator)
        return (
            f"DensityRatio({self.method}, ridge {self.ridge:.3g}, from {values.min():.3g} to "
            f"{values.max():.3g} at {len(values)} points of the denominator)"
        )

    def ratio(self, X: PointsLike) -> Array:
        """Ratio at new points X, shape (m,), not negative."""
        values = self._evaluate(in_order(X, self.names))
        return namespace(values).clip(values, min=0.0)

    __call__ = ratio


@dataclass(frozen=True)
class _Linear:
    """A ratio that is linear in finite features."""

    kernel: Kernel
    coefficients: Array

    def __call__(self, X: PointsLike) -> Array:
        return self.kernel.features(X) @ self.coefficients


@dataclass(frozen=True)
class _Explained:
    """(C + eta)^-1 m by Woodbury's formula: what of m the points do not explain, over eta."""

    m: MeanElement
    explained: Embedding
    ridge: float

    def __call__(self, X: PointsLike) -> Array:
        return (self.m(X) - self.explained(X)) / self.ridge


@dataclass(frozen=True, eq=False)
class _Basis(FiniteKernel):
    """Kernel whose features are another kernel's values at given centres."""

    kernel: Kernel
    centres: Points = field(repr=False)

    rank = property(lambda self: count(self.centres), doc="Number of centres.")

    def _points(self, X: PointsLike, name: str) -> Points:
        return self.kernel.points(X, name)

    def _rows(self, X: Points) -> Array:
        return self.kernel(X, self.centres)


def density_ratio(
    numerator: PointsLike | MeanElement, denominator: PointsLike, kernel: Kernel | None = None,
    method: Method = "kulsif", ridge: Ridge = "loo", *, alpha: float = RELATIVE,
    centres: int | PointsLike = 100, bound: float = 1000.0, rng: Rng = None,
) -> DensityRatio:  # fmt: skip
    """Estimate the density of ``numerator`` divided by the density of ``denominator``.

    Parameters
    ----------
    numerator : points (m, ...) or embedding
        Sample on top of the fraction (the prior, in Bayes' rule).
    denominator : points (n, ...)
        Sample below the fraction (the training marginal).
    kernel : Kernel, optional
        By default the numerator's, if it is an embedding, or the median heuristic on both samples
        together.
    method : {"kulsif", "rulsif", "ulsif", "kmm"}
    ridge : float or "loo"
        "loo" minimises the leave-one-out score (for "rulsif" 5-fold, for "kmm" the error of the
        regression that extends the weights to new points).
    alpha : float
        For "rulsif": share of the numerator in the denominator, in [0, 1).
    centres : int or points
        For "ulsif": how many points of the numerator are centres, or the centres.
    bound : float
        For "kmm": largest ratio allowed.
    rng : int, Generator or None
        For the random choice of centres.

    Returns
    -------
    DensityRatio
        With ``ratio(X)`` at new points and ``.at_denominator``.
    """
    option(method, "method", get_args(Method))
    alpha, bound = share(alpha, "alpha", low=True), finite(bound, "bound")
    if bound < 1.0:
        raise ValueError(f"bound must be at least 1, got {bound!r}")
    ridge = ridge_or_loo(ridge)
    embedded = isinstance(numerator, MeanElement)
    names = column_names(denominator)
    if kernel is None and embedded:
        kernel = numerator.kernel
    elif kernel is None:  # of both samples: a column may be constant in one of them
        top = in_order(numerator, names, "numerator")
        kernel = default_kernel(pooled(denominator, top, "denominator", "numerator"))
    Z = own(as_kernel(kernel).points(denominator, "denominator"), denominator)
    if not embedded:
        top = in_order(numerator, names, "numerator", by_name=kernel.by_name)
        numerator = embed(top, kernel)
    elif isinstance(numerator, Embedding):
        top = points_in_order(numerator.points, numerator.names, names, "numerator")
        numerator = replace(numerator, points=top)
    names = column_names(denominator) or getattr(numerator, "names", None)
    generator = as_generator(rng)
    if method == "ulsif":
        if np.ndim(centres) or isinstance(centres, Mapping):
            centres = in_order(centres, names, "centres", by_name=kernel.by_name)
        kernel, numerator = _with_centres(kernel, numerator, centres, generator)
    m = numerator
    if m.kernel != kernel:
        raise ValueError(f"the numerator is embedded with {m.kernel!r}, not with {kernel!r}")
    if isinstance(m, Embedding):
        kernel.check_pair(m.points, Z)
        m = replace(m, names=None)  # the ratio puts its arguments in order
    found = _estimated(m, Z, method, ridge, alpha, bound)
    return replace(found, names=names)


def _estimated(
    m: MeanElement, Z: Points, method: Method, ridge: Ridge, alpha: float, bound: float
) -> DensityRatio:
    """Ratio of an embedding to a sample, by one of the methods."""
    if method == "rulsif":
        return _relative(m, Z, alpha, ridge)
    if method == "kmm":
        values, extension, eta = mean_matching(m, Z, ridge, bound)
        return DensityRatio(values, "kmm", eta, extension)
    eta = kulsif_ridge(m, Z) if ridge == "loo" else check_ridge(ridge)
    return _least_squares(m, Z, Variable(Z, m.kernel).uniform, method, eta, count(Z))


def _least_squares(
    m: MeanElement, V: Points, v: Array, method: str, eta: float, n: int
) -> DensityRatio:
    """(C + eta)^-1 m with C = sum_i v_i k(v_i, .) (x) k(v_i, .), at the first n points of V."""
    kernel = m.kernel
    solver = Gram.of(kernel, V).weighted(v, eta)
    if kernel.finite:
        assert isinstance(m, Embedding)
        at_points = solver.values_features(m.features)
        evaluate: _Linear | _Explained = _Linear(kernel, solver.coefficients(m.features))
    else:
        right, used = m(V), solver.diagnostics.ridge_used
        at_points = solver.values(right)
        evaluate = _Explained(m, Embedding(V, solver.solve(right), kernel), used)
    at_denominator = namespace(at_points).clip(at_points[:n], min=0.0)
    return DensityRatio(at_denominator, method, eta, evaluate)


def _relative(m: MeanElement, Z: Points, alpha: float, ridge: Ridge) -> DensityRatio:
    if not isinstance(m, Embedding):
        raise TypeError("'rulsif' needs a numerator of points")
    m = m.normalized()  # a ratio of probability distributions, bounded by 1 / alpha
    xp, uniform = namespace(m.weights), like(np.full(count(Z), 1.0 / count(Z)), m.weights)
    # A denominator has no negative parts; the numerator keeps its own, whose mean they make.
    positive = xp.clip(m.weights, min=0.0)
    positive = positive / xp.sum(positive)
    chosen = replace(m, weights=positive)
    eta = _relative_ridge(chosen, Z, alpha) if ridge == "loo" else check_ridge(ridge)
    v = xp.concat([(1.0 - alpha) * uniform, alpha * positive])
    return _least_squares(m, concatenate(Z, m.points), v, "rulsif", eta, count(Z))


def _relative_ridge(m: Embedding, Z: Points, alpha: float, folds: int = 5) -> float:
    """Ridge with the smallest 5-fold score E_mix[r^2]/2 - E_num[r]."""
    Z, U = take(Z, loo_subset(count(Z))), take(m.points, loo_subset(len(m)))
    w = to_numpy(m.weights)[loo_subset(len(m))]
    w = w / w.sum()
    F, H = exact_features(m.kernel, Z, U)
    ridges = ridge_grid(F)
    scores = np.zeros(len(ridges))
    order = np.random.default_rng(0)
    fold_z = order.permutation(len(F)) % folds
    fold_u = order.permutation(len(H)) % folds
    for fold in range(folds):
        z, u = fold_z != fold, fold_u != fold
        if not (z.any() and u.any() and (~z).any() and (~u).any()):
            continue
        inside, outside = w[u] / w[u].sum(), w[~u] / w[~u].sum()
        C = (1 - alpha) * F[z].T @ F[z] / z.sum() + alpha * (H[u].T * inside) @ H[u]
        squares, Q = eigh(C)
        mean = Q.T @ (inside @ H[u])
        at_z, at_u = F[~z] @ Q, H[~u] @ Q
        for i, ridge in enumerate(ridges):
            theta = mean / (np.maximum(squares, 0.0) + ridge)
            r_z, r_u = np.maximum(at_z @ theta, 0), np.maximum(at_u @ theta, 0)
            second = (1 - alpha) * np.mean(r_z**2) + alpha * outside @ r_u**2
            scores[i] += 0.5 * second - outside @ r_u
    return float(ridges[np.argmin(scores)])


def _with_centres(
    kernel: Kernel,
    numerator: PointsLike | MeanElement,
    centres: int | PointsLike,
    rng: np.random.Generator,
) -> tuple[Kernel, Embedding]:
    if isinstance(numerator, MeanElement) and not isinstance(numerator, Embedding):
        raise TypeError("'ulsif' needs a numerator of points")
    U = numerator.points if isinstance(numerator, Embedding) else kernel.points(numerator)
    if np.ndim(centres) == 0 and not isinstance(centres, Mapping):
        centres = take(U, rng.permutation(count(U))[: integer(centres, "centres")])
    basis = _Basis(kernel, kernel.points(centres, "centres"))
    return basis, embed(U, basis, getattr(numerator, "weights", None))
