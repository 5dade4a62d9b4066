r"""What an observation says: Bayes' rule at one step, with parts of the observation missing.

A missing coordinate is left out of the kernel: the update conditions on what is there, with the
kernel over the coordinates present. For product kernels (Gaussian, Laplace, ``Parts``) that is the
exact marginal: the same numbers as a filter that had never seen the missing coordinates.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, singledispatch
from typing import Any

import numpy as np
import scipy.linalg
from array_api_compat import is_array_api_obj

from kernelbayes.arrays import Array, namespace, row_blocks, solve_triangular, to_numpy
from kernelbayes.gram import Dense, Factored, Gram, LowRank, gram
from kernelbayes.gram.features import Fourier, Landmarks, nystrom, pivoted_cholesky
from kernelbayes.gram.loo import loo_subset
from kernelbayes.kernels import Kernel, Linear, Parts, Polynomial, Warped
from kernelbayes.kernels.algebra import Product, Scaled, Sum
from kernelbayes.kernels.bandwidth import Bandwidth
from kernelbayes.kernels.curved import Periodic
from kernelbayes.points import Points, count, take
from kernelbayes.rules import BayesMethod, turn
from kernelbayes.rules.conditional import nearest_similarity

# Patterns of missing coordinates whose Gram matrices are kept.
PATTERNS = 64
# An exact kernel is factored when its numerical rank is below this share of n.
WORTHWHILE = 1.0 / 3.0
EXACT = 1e-12
# Training observations whose nearest neighbour says what support is usual, and how much less than
# that an observation may have before it is trusted less.
SUPPORT_POINTS = 500
UNUSUAL = 0.1
# Prior weights below this share of the largest are rounding.
ACTIVE = 1e-10


@dataclass(eq=False)
class Observations:
    """Training observations under a kernel, ready for Bayes' rule.

    Attributes
    ----------
    X : points (n, ...)
    kernel : Kernel
        In use: with finite features where that is exact and cheaper.
    exact : Kernel
        As given, in which the belief about observations is expressed.
    """

    X: Points
    kernel: Kernel
    exact: Kernel
    method: BayesMethod
    ridge: float
    known: Array | None = None  # (n, d), which training coordinates are there; None means all
    rng: Any = 0
    gram: Gram = field(init=False)
    patterns: OrderedDict[bytes, Observations] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.gram = gram(self.kernel, self.X)
        self.patterns = OrderedDict()

    @classmethod
    def learn(
        cls,
        kernel: Kernel,
        X: Points,
        rank: int | None,
        method: BayesMethod,
        ridge: float,
        rng: Any,
        known: Array | None = None,
    ) -> Observations:
        """Observations under a kernel, compressed if that loses nothing."""
        return cls(X, worthwhile(kernel, X, rank, rng), kernel, method, ridge, known)

    @cached_property
    def usable(self) -> Array | None:
        """Which training observations (n,) are complete; None means all."""
        if self.known is None:
            return None
        complete = self.known.all(axis=1)
        return None if complete.all() else complete

    @property
    def n(self) -> int:
        """Number of training observations."""
        return count(self.X)

    def evaluate(self, points: Points) -> tuple[Array, Array]:
        """Return what the update needs of k observations: columns (r or n, k), supports (k,)."""
        if isinstance(self.kernel, Landmarks):  # one kernel matrix serves both answers
            K = self.kernel.kernel(points, self.kernel.landmarks).T
            return solve_triangular(self.kernel.factor, K), self._support(K, points)
        if isinstance(self.gram, Factored):
            K = self.kernel.features(points).T
            return K, nearest_similarity(self.kernel, points, self.X)
        K = self.kernel(self.X, points)
        return K, self._support(K, points)

    @cached_property
    def _norms(self) -> Array:
        """Norms in the RKHS of the training observations, or of the landmarks, as a column."""
        if isinstance(self.kernel, Landmarks):
            values = self.kernel.kernel.diag(self.kernel.landmarks)
        else:
            values = self.kernel.diag(self.X)
        return namespace(values).sqrt(values)[:, None]

    def _support(self, K: Array, points: Points) -> Array:
        """Similarity (k,) of points to the nearest training observation or landmark; K (n, k)."""
        xp = namespace(K)
        base = self.kernel.kernel if isinstance(self.kernel, Landmarks) else self.kernel
        scale = self._norms * xp.sqrt(base.diag(points))
        positive = scale > 0
        ratio = xp.where(positive, K / xp.where(positive, scale, xp.ones_like(scale)), 0.0 * K)
        return xp.clip(xp.max(ratio, axis=0), 0.0, 1.0)

    @cached_property
    def usual_support(self) -> float:
        """Similarity to the nearest other observation that 99 % of the training sample reach."""
        chosen = loo_subset(self.n, SUPPORT_POINTS)
        points = take(self.X, chosen)
        near = np.empty(len(chosen))
        base = self.exact.kernel if isinstance(self.exact, Landmarks | Fourier) else self.exact
        scale = np.sqrt(to_numpy(base.diag(self.X)))
        for rows in row_blocks(len(chosen), self.n):
            K = to_numpy(base(take(points, rows), self.X)) / np.where(scale > 0, scale, 1.0)
            K[np.arange(len(K)), chosen[rows]] = 0.0
            near[rows] = K.max(axis=1) / np.where(scale > 0, scale, 1.0)[chosen[rows]]
        return float(np.quantile(near, 0.01))

    def trust(self, support: float) -> float:
        """How far an observation of this support can be trusted, from 0 to 1."""
        if not np.isfinite(support) or support <= 0.0:
            return 0.0
        enough = UNUSUAL * self.usual_support
        return 1.0 if support >= enough else support / enough

    def update(self, gamma: Array, column: Array) -> Array:
        """Posterior weights (n,) from prior weights gamma and a column of :meth:`evaluate`.

        All zero where the prior has no mass on usable pairs.
        """
        gamma = self._usable_prior(gamma)
        mass = namespace(gamma).sum(gamma)
        if not float(mass) > 0.0:
            return 0.0 * gamma
        gamma = gamma / mass  # summing to one, so that the ridge means the same at every step
        if self.method == "importance" and isinstance(gamma, np.ndarray):
            return self._importance(gamma, column)
        solver = turn(self.gram, gamma, self.method, self.ridge)
        if isinstance(self.gram, Factored):
            return solver.solve_features(column)
        return solver.solve(column)

    def _usable_prior(self, gamma: Array) -> Array:
        """Prior weights as Bayes' rule takes them: of usable pairs only, and cut off."""
        xp = namespace(gamma)
        if self.usable is not None:  # a pair whose observation is missing says nothing here
            gamma = xp.where(xp.asarray(self.usable), gamma, 0.0 * gamma)
        if self.method == "importance":
            gamma = xp.clip(gamma, min=0.0)  # IW22 Alg. 1, line 2
        return gamma

    def _importance(self, gamma: Array, column: Array) -> Array:
        """IW22 Alg. 1 on the active points, straight to LAPACK: the hot loop of every filter."""
        active = np.flatnonzero(gamma > ACTIVE * gamma.max())
        r = gamma[active]
        s = np.sqrt(r)
        w = np.zeros(len(gamma), dtype=gamma.dtype)
        if isinstance(self.gram, LowRank):
            L = self.gram.L[active]
            A = s[:, None] * L
            C = A.T @ A
            C.flat[:: len(C) + 1] += self.ridge
            c, info = _posv(C, column)
            w[active] = r * (L @ c) if info == 0 else np.nan
        elif isinstance(self.gram, Dense):
            C = self.gram.G.take(active, axis=0).take(active, axis=1)
            C *= s[:, None]
            C *= s
            C.flat[:: len(C) + 1] += self.ridge
            c, info = _posv(C, s * column[active])
            w[active] = s * c if info == 0 else np.nan
        else:
            return turn(self.gram, gamma, self.method, self.ridge).solve_features(column)
        return w

    def present(self, x: Points, mask: np.ndarray[Any, Any]) -> tuple[Observations, Points]:
        """Observations restricted to the coordinates present, and the point restricted to them."""
        columns = np.flatnonzero(mask)
        key = mask.tobytes()
        if key not in self.patterns:
            kernel = restricted(self.exact, tuple(columns))
            X = _columns(self.X, columns)
            rank = self.kernel.rank if isinstance(self.kernel, Landmarks | Fourier) else None
            if not isinstance(self.exact, Landmarks | Fourier) and rank is not None:
                kernel = worthwhile(kernel, X, None, self.rng)
            known = None if self.known is None else self.known[:, columns]
            part = replace(self, X=X, kernel=kernel, exact=kernel, known=known)
            self.patterns[key] = part
            if len(self.patterns) > PATTERNS:
                self.patterns.popitem(last=False)
        self.patterns.move_to_end(key)
        return self.patterns[key], _columns(x, columns)


def _posv(C: Array, b: Array) -> tuple[Array, int]:
    """Solve C c = b for positive definite C; info > 0 if it is not."""
    posv = scipy.linalg.get_lapack_funcs("posv", (C, b))
    _, c, info = posv(C, b, lower=1, overwrite_a=1)
    return c.reshape(b.shape), int(info)


def split_missing(X: Points) -> tuple[Points, Array | None]:
    """Training observations with holes filled by column means, and where the holes were not.

    The filled values only keep kernels computable: pairs with a hole among the coordinates in use
    get no weight.
    """
    if isinstance(X, Mapping) or not isinstance(X, np.ndarray) or X.dtype.kind != "f":
        return X, None
    known = ~np.isnan(X)
    if known.all():
        return X, None
    if not known.reshape(len(X), -1).any(axis=0).all():
        raise ValueError("a coordinate of X is missing in every training observation; drop it")
    means = np.nanmean(np.where(known, X, np.nan), axis=0)
    return np.where(known, X, means), known.reshape(len(X), -1)


def worthwhile(kernel: Kernel, X: Points, rank: int | None, rng: Any) -> Kernel:
    """Kernel with finite features if a rank is given or if few features are exact."""
    if kernel.finite:
        return kernel
    if rank is not None:
        return nystrom(kernel, X, min(rank, count(X)), rng=rng)
    limit = int(WORTHWHILE * count(X))
    if limit < 1:
        return kernel
    candidate = pivoted_cholesky(kernel, X, rank=limit, tol=EXACT, rng=rng)
    return candidate if candidate.error <= EXACT else kernel


def missing_mask(x: Any) -> np.ndarray[Any, Any] | None:
    """Which coordinates of one observation are there; None if nothing can be missing.

    ``x`` is one point: a number, a vector, an image, a string, None or a mapping of parts.
    """
    if x is None:
        return np.zeros(1, dtype=bool)
    if isinstance(x, Mapping):
        return np.array([not _blank(part) for part in x.values()])
    if isinstance(x, str) or not (is_array_api_obj(x) or isinstance(x, float)):
        return None
    values = to_numpy(x)
    if values.dtype.kind != "f":
        return None
    return np.asarray(~np.isnan(np.atleast_1d(values)))


def _blank(part: Any) -> bool:
    if part is None:
        return True
    values = np.atleast_1d(to_numpy(part))
    return values.dtype.kind == "f" and bool(np.isnan(values).any())


def _columns(X: Points, columns: np.ndarray[Any, Any]) -> Points:
    if isinstance(X, Mapping):
        names = list(X)
        return {names[j]: X[names[j]] for j in columns}
    xp = namespace(X)
    return xp.take(X, xp.asarray(columns), axis=1)


@singledispatch
def restricted(kernel: Kernel, columns: tuple[int, ...]) -> Kernel:
    """Return the kernel over some of the coordinates (or, for Parts by name, some of the parts)."""
    del columns
    raise TypeError(
        f"{type(kernel).__name__} has no form for partly missing observations; give whole "
        "observations or rows of NaN, or use a Gaussian, Laplace or Parts kernel"
    )


@restricted.register
def _(kernel: Bandwidth, columns: tuple[int, ...]) -> Kernel:
    changes: dict[str, Any] = {}
    if isinstance(kernel.bandwidth, tuple):
        changes["bandwidth"] = tuple(kernel.bandwidth[j] for j in columns)
    if isinstance(kernel, Periodic) and isinstance(kernel.period, tuple):
        changes["period"] = tuple(kernel.period[j] for j in columns)
    return replace(kernel, **changes) if changes else kernel


@restricted.register(Linear)
@restricted.register(Polynomial)
def _(kernel: Kernel, columns: tuple[int, ...]) -> Kernel:
    del columns
    return kernel


@restricted.register(Sum)
@restricted.register(Product)
def _(kernel: Sum | Product, columns: tuple[int, ...]) -> Kernel:
    return type(kernel)(restricted(kernel.left, columns), restricted(kernel.right, columns))


@restricted.register
def _(kernel: Scaled, columns: tuple[int, ...]) -> Kernel:
    return Scaled(kernel.factor, restricted(kernel.kernel, columns))


@restricted.register
def _(kernel: Warped, columns: tuple[int, ...]) -> Kernel:
    unit = kernel.unit
    unit = tuple(unit[j] for j in columns) if isinstance(unit, tuple) else unit
    return Warped(restricted(kernel.kernel, columns), kernel.transform, unit)


@restricted.register
def _(kernel: Landmarks, columns: tuple[int, ...]) -> Kernel:
    X = _columns(kernel.landmarks, np.asarray(columns))
    return pivoted_cholesky(restricted(kernel.kernel, columns), X, tol=EXACT, rng=0)


@restricted.register
def _(kernel: Fourier, columns: tuple[int, ...]) -> Kernel:
    return Fourier(restricted(kernel.kernel, columns), kernel.frequencies[:, list(columns)])


@restricted.register
def _(kernel: Parts, columns: tuple[int, ...]) -> Kernel:
    if kernel.by_name:
        return Parts([kernel.parts[j] for j in columns])
    position = {column: i for i, column in enumerate(columns)}
    parts = []
    for key, part in kernel.parts:
        own = _part_columns(key, max(columns, default=0))
        left = [j for j, column in enumerate(own) if column in position]
        if left:
            inner = part if len(left) == len(own) else restricted(part, tuple(left))
            parts.append((tuple(position[own[j]] for j in left), inner))
    if not parts:
        raise ValueError("none of the coordinates present belongs to a part of the kernel")
    return Parts(parts)


def _part_columns(key: Any, last: int) -> list[int]:
    if isinstance(key, int):
        return [key]
    if isinstance(key, slice):
        stop = last + 1 if key.stop is None else key.stop
        return list(range(key.start or 0, stop, key.step or 1))
    return list(key)
