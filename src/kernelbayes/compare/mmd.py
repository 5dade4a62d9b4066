r"""Two-sample test: the distance of two embeddings.

The statistic is the squared distance of their embeddings (CME13 section 2.1; Gretton et al. 2012),

.. math:: \mathrm{MMD}^2 = \|\mu_X - \mu_Y\|^2 = \frac{S_{xx}}{m_x^2} + \frac{S_{yy}}{m_y^2}
          - \frac{2 S_{xy}}{m_x m_y}

the number that :func:`kernelbayes.mmd2` gives, biased or unbiased. S are sums of
omega_i omega_j k_ij within and between the samples, and m sums of the weights omega. With the
labels s of a split (1 in the first sample, 0 in the second) and ``g = omega * (G omega)``, ``S_xx =
(omega s)^T G (omega s)``, ``S_xy = s^T g - S_xx`` and ``S_yy = 1^T g - s^T g - S_xy``. So B
permutations are one product of G, which is computed once, with a matrix of labels.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from kernelbayes.arrays import as_doubles, as_generator, threads_for
from kernelbayes.compare import nulls, problem, samples
from kernelbayes.compare.large import LARGE
from kernelbayes.compare.nulls import TIES, BlockLength
from kernelbayes.compare.problem import Estimate, Method, Moves, Options, Problem, jackknife
from kernelbayes.compare.result import KernelTestResult, Witness
from kernelbayes.gram import Factored, Gram
from kernelbayes.kernels import Gaussian, Kernel
from kernelbayes.kernels.radial import vector_kernel
from kernelbayes.points import concatenate, count
from kernelbayes.types import Array, Bools, Floats, Points, PointsLike, Rng


def mmd_test(
    X: PointsLike,
    Y: PointsLike,
    kernel: samples.Choice | None = None,
    permutations: int = 1000,
    rng: Rng = None,
    *,
    method: Method = "auto",
    unbiased: bool = False,
    weights_x: Array | None = None,
    weights_y: Array | None = None,
    alpha: float = 0.05,
    split: float = 0.5,
    block_length: BlockLength = "auto",
    block_size: int | None = None,
    rank: int | None = None,
) -> KernelTestResult:
    r"""Test whether two samples have the same distribution, by their maximum mean discrepancy.

    .. math:: \mathrm{MMD}^2 = \Big\|\sum_i w_i\, \phi(x_i) - \sum_j v_j\, \phi(y_j)\Big\|^2

    Parameters
    ----------
    X, Y : points (n, ...), (m, ...)
        Of the same space, each of at least 2 points.
    kernel : Kernel, sequence of kernels or "power", optional
        None: for numbers the Gaussian kernel with the median heuristic on both samples together,
        Delta for anything else. From a sequence (with "power": from ten Gaussian kernels) the one
        of largest estimated power is chosen on a share ``split`` of each sample, and the test is
        made on the rest (Gretton et al. 2012b).
    permutations : int
        B: number of permutations, bootstrap draws or quantiles of the null distribution.
    rng : int, Generator or None
    method : str
        "auto": permutations as long as they take seconds, "features" beyond. "permutation": exact
        level for every n. "gamma": gamma law with the mean and variance of the permutation
        distribution. "wild": multiplier bootstrap, for stationary time series and for samples
        whose weights follow different laws. "linear": independent quadruples, O(n), normal null
        (Gretton et al. 2012, section 6). "block": mean over blocks, permuted within blocks
        (Zaremba et al. 2013). "features": random features, weighted chi-square null, O(n).
    unbiased : bool
        Statistic without terms k(x_i, x_i); "linear" and "block" are always unbiased.
    weights_x, weights_y : arrays (n,), (m,), optional
        Non-negative weights of the points, of any scale. For "permutation" and "wild".
    alpha, split : float
        Significance level for ``power_estimate``. Share of each sample for choosing a kernel.
    block_length : float, "auto" or None
        For "wild": memory in time steps; "auto" estimates it, None means independent points.
    block_size, rank : int, optional
        For "block": points of the smaller sample in a block, min(sqrt(n), 64) unless given. For
        "features": number of features, 100 unless given.

    Returns
    -------
    KernelTestResult
        ``effect``: MMD over the standard deviation in feature space; ``witness``: where.

    Notes
    -----
    **Weights** move with their points: the null hypothesis is that the pairs (point, weight) are
    exchangeable. Two importance samples of one target from *different* proposals are not; use
    ``method="wild"``, which bootstraps each sample by itself and is right for large samples.

    Constant data have p-value 1 and a ``NumericalWarning``. A kernel that is not characteristic
    (linear, say) sees only some differences. Choosing the kernel by hand on the same data
    invalidates the p-value: use "power" or :func:`mmd_aggregated`.

    Examples
    --------
    >>> import numpy as np
    >>> import kernelbayes as kb
    >>> rng = np.random.default_rng(0)
    >>> x, y = rng.normal(size=100), rng.normal(1.0, size=80)
    >>> statistic, p = kb.mmd_test(x, y, rng=0)
    >>> p < 0.01, kb.mmd_test(x[:50], x[50:], rng=0).pvalue > 0.01
    (True, True)
    """
    generator, weighted = as_generator(rng), weights_x is not None or weights_y is not None
    options = Options(
        permutations, generator, alpha, method, unbiased, block_length, block_size, rank, weighted
    )
    Y = problem.same_columns(X, Y, *(kernel if isinstance(kernel, list | tuple) else [kernel]))
    kernel = _default(X, Y) if kernel is None else kernel
    details = dict[str, Any]()
    if not isinstance(kernel, Kernel):
        if weighted:
            raise ValueError("choosing a kernel takes no weights; give one kernel")
        kernels = samples.candidates(kernel, "kernel", lambda: samples.pooled_family(X, Y))
        X, Y = problem.one_space(kernels[0], X, Y)
        here, (X, Y) = samples.hold_out({"X": (X,), "Y": (Y,)}, split, options.rng, (5, 2))
        problems = [TwoSamples.of(here[0], here[1], k) for k in kernels]
        (kernel,), details["chosen_from"] = samples.most_powerful(problems)
    X, Y = problem.one_space(kernel, X, Y)
    problem.check_sizes(2, X=count(X), Y=count(Y))
    return problem.run(TwoSamples.of(X, Y, kernel, weights_x, weights_y), options, details, LARGE)


def _default(X: PointsLike, Y: PointsLike) -> Kernel:
    """Default kernel of both samples together: Gaussian for arrays of numbers."""
    if not all(type(sample) is np.ndarray and sample.dtype.kind in "fiu" for sample in (X, Y)):
        return samples.pooled_kernel(X, Y)
    X, Y = problem.one_space(Gaussian(1.0), X, Y)
    return vector_kernel(as_doubles(concatenate(X, Y)))


@dataclass(frozen=True, eq=False)
class TwoSamples(Problem):
    """Two samples of one variable."""

    test: ClassVar[str] = "MMD"
    most: ClassVar[float] = np.inf
    least: ClassVar[int] = 2
    constant: ClassVar[str] = "the pooled sample is constant to the kernel"

    @classmethod
    def of(
        cls, X: Points, Y: Points, kernel: Kernel, weights_x: Array = None, weights_y: Array = None
    ) -> TwoSamples:
        """Two samples without the points of weight zero."""
        if kernel.gaussian_bandwidth is None:  # that kernel is at most one
            samples.check_room((kernel, X), (kernel, Y))
        first, second = np.ones(count(X)), np.ones(count(Y))
        if weights_x is not None:
            X, first = samples.positive_weights(X, weights_x, "X")
        if weights_y is not None:
            Y, second = samples.positive_weights(Y, weights_y, "Y")
        return cls(((X,), (Y,)), (kernel,), np.concatenate([first, second]))

    @property
    def n(self) -> int:
        """Size of the first sample."""
        return self.sizes[0]

    @cached_property
    def points(self) -> Points:
        """Both samples, pooled."""
        (X,), (Y,) = self.samples
        return concatenate(X, Y)

    @cached_property
    def gram(self) -> Gram:
        """Gram matrix of the pooled sample."""
        return problem.sample_gram(self.kernels[0], self.points, len(self.omega) // 8)

    @property
    def work(self) -> float:
        """One product with the Gram matrix or its factor."""
        return self.gram.work if isinstance(self.gram, Factored) else float(len(self.omega)) ** 2

    @property
    def scales(self) -> Floats:
        """Largest k(z, z), shape (1,)."""
        return np.asarray(np.abs(self.gram.diag).max(keepdims=True))

    @property
    def observed(self) -> Bools:
        """Labels of the first sample."""
        return np.arange(len(self.omega)) < self.n

    def every(self, limit: int) -> Bools | None:
        """All splits, if there are few."""
        size = len(self.omega)
        if math.comb(size, self.n) > limit:
            return None
        chosen = itertools.combinations(range(size), self.n)
        return np.array([np.isin(np.arange(size), rows) for rows in chosen])

    @cached_property
    def rows(self) -> Floats:
        """Row sums G omega (N,)."""
        return np.asarray(self.gram.matmul(self.omega))

    @cached_property
    def first(self) -> Floats:
        """Row sums (N,) over the first sample."""
        return np.asarray(self.gram.matmul(np.where(self.observed, self.omega, 0.0)))

    @cached_property
    def weights(self) -> Floats:
        """Weights (N,) of the embedding mu_X - mu_Y."""
        x, y = self.omega[: self.n], self.omega[self.n :]
        return np.concatenate([x / x.sum(), -y / y.sum()])

    @cached_property
    def vectors(self) -> Floats:
        """What is summed over each sample, (5, N): see :class:`Sums`."""
        omega, d = self.omega, self.gram.diag
        return np.stack([omega * self.rows, omega**2 * d, omega, omega**2, omega * d])

    def forms(self, A: Floats) -> Floats:
        """Quadratic forms (b,) of the columns of A (N, b)."""
        factored = isinstance(self.gram, Factored)
        with threads_for(2.0 * A.size * (100 if factored else len(A))):
            B = self.gram.project(A) if factored else A
            return np.asarray(np.einsum("ij,ij->j", B, B if factored else self.gram.matmul(A)))

    def sums(self, moves: Moves) -> Sums:
        """Return the sums of splits (b, N)."""
        S = np.asarray(moves, dtype=np.float64).T
        xx = self.forms(self.omega[:, None] * S)
        inside = self.vectors @ S
        groups = np.stack([inside, self.vectors.sum(axis=1)[:, None] - inside], axis=1)
        cross = inside[0] - xx
        groups[0] = xx, groups[0, 1] - cross
        return Sums(cross, groups)

    def left_out(self, full: Sums) -> Sums:
        """Return the sums without each point in turn."""
        g, d, omega, square, own = self.vectors
        same = np.where(self.observed, omega * self.first, g - omega * self.first)
        lost = np.stack([2.0 * same - d, d, omega, square, own])
        groups = np.stack([self.observed, ~self.observed]) * lost[:, None]
        return Sums(full.cross - (g - same), full.groups - groups)

    def statistics(self, moves: Moves, unbiased: bool = False) -> Floats:
        """MMD^2 (b,) of splits (b, N)."""
        sums = self.sums(moves)
        return sums.unbiased() if unbiased else sums.biased()

    def with_spread(self, moves: Moves) -> tuple[Floats, Floats]:
        """Unbiased MMD^2 (b,), and the variance in feature space (1,) of the first split."""
        sums = self.sums(moves)
        return sums.unbiased(), sums.spread()[:1]

    def moments(self) -> tuple[float, float]:
        """Moments of tr(G_c P c c^T P^T), with the contrast c: 1/n and -1/m in the two samples."""
        n, m = self.sizes
        contrast = (1.0 / n + 1.0 / m, (1.0 / n + 1.0 / m) ** 2, 1.0 / n**3 + 1.0 / m**3)
        return nulls.permutation_moments(nulls.matrix_moments(self.gram), contrast, n + m)

    def series(self) -> Iterator[tuple[Floats, float]]:
        """Each sample is a series."""
        for rows in (slice(0, self.n), slice(self.n, None)):
            yield self.weights[rows], nulls.lag_one(self.gram, rows)

    def estimate(self) -> Estimate:
        """MMD^2 and the variance in feature space, with jackknife errors from five points on."""
        full, n = self.sums(self.observed[None]), self.n
        value, spread = float(full.unbiased()[0]), float(full.spread()[0])
        if min(self.sizes) < 5:
            return Estimate(value, spread, None)
        left = self.left_out(full)
        values, spreads = left.unbiased(), left.spread()
        of_ratio = np.inf
        if spreads.min() > TIES * self.scale:
            of_ratio = jackknife(*np.split(values / spreads, [n]))
        return Estimate(value, spread, jackknife(*np.split(values, [n])), of_ratio)

    def witness(self) -> Witness:
        """Witness function mu_X - mu_Y, and its values at the pooled points."""
        mx, my = self.omega[: self.n].sum(), self.omega[self.n :].sum()
        values = self.first / mx - (self.rows - self.first) / my
        return Witness(self.points, values, self.kernels[0], self.weights)


@dataclass(frozen=True)
class Sums:
    """Sums over b splits of a pooled sample."""

    cross: Floats  # (b,): omega_i omega_j k_ij between the groups
    groups: Floats  # (5, 2, b): the same within each group, its part i = j, omega, omega^2, omega k

    def biased(self) -> Floats:
        """Squared RKHS distance of the weighted samples, as :func:`kernelbayes.mmd2`."""
        within, _, mass, _, _ = self.groups
        return self._distance(within / mass**2)

    def unbiased(self) -> Floats:
        """Leave out the terms i = j and rescale to the full mass."""
        return self._distance(self._hollow())

    def spread(self) -> Floats:
        """Mean variance of the two samples in feature space, E k(x, x) - E k(x, x')."""
        _, _, mass, _, own = self.groups
        return np.asarray((own / mass - self._hollow()).mean(axis=0))

    def _distance(self, within: Floats) -> Floats:
        return np.asarray(within.sum(axis=0) - 2.0 * self.cross / self.groups[2].prod(axis=0))

    def _hollow(self) -> Floats:
        within, diagonal, mass, square, _ = self.groups
        return np.asarray((within - diagonal) / (mass**2 - square))
