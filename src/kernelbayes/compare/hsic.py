r"""Test of independence: the joint embedding against the product of the marginal ones.

The statistic is the squared distance between the embedding of the pairs and the product of the
embeddings of each variable (CME13 section 2.2; Gretton et al. 2008),

.. math:: \mathrm{HSIC} = \|\mu_{XY} - \mu_X \otimes \mu_Y\|^2
          = \sum_{ij} w_i w_j\, \tilde k(x_i, x_j)\, \tilde k(y_i, y_j)
          = \frac{1}{n^2}\operatorname{tr} G_X H G_Y H

with kernels centred by the weighted means; the last form is that of equal weights.
"""

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np

from kernelbayes.arrays import as_generator
from kernelbayes.compare import nulls, pairs, problem, samples
from kernelbayes.compare.large import LARGE
from kernelbayes.compare.nulls import TIES, BlockLength
from kernelbayes.compare.pairs import Variable
from kernelbayes.compare.problem import Estimate, Method, Moves, Options, Problem, jackknife
from kernelbayes.compare.result import KernelTestResult, Witness
from kernelbayes.gram import Dense
from kernelbayes.kernels import Kernel
from kernelbayes.points import count, own, take
from kernelbayes.types import Array, Floats, Ints, Points, PointsLike, Rng


def hsic_test(
    X: PointsLike,
    Y: PointsLike,
    kernel_x: samples.Choice | None = None,
    kernel_y: samples.Choice | None = None,
    permutations: int = 1000,
    rng: Rng = None,
    *,
    method: Method = "auto",
    unbiased: bool = False,
    weights: Array | None = None,
    alpha: float = 0.05,
    split: float = 0.5,
    block_length: BlockLength = "auto",
    block_size: int | None = None,
    rank: int | None = None,
) -> KernelTestResult:
    r"""Test whether two variables are independent, by the Hilbert-Schmidt independence criterion.

    .. math:: \mathrm{HSIC} = \frac{1}{n^2} \operatorname{tr} G_X H G_Y H, \qquad
              H = I - 1 1^\top / n

    Parameters
    ----------
    X, Y : points (n, ...)
        Pairs, at least 5, of any two spaces.
    kernel_x, kernel_y : Kernel, sequence of kernels or "power", optional
        None means the Gaussian kernel with the median heuristic for numbers, Delta for anything
        else. From sequences (or, with "power", from Gaussian kernels of five bandwidths) the pair
        with the largest estimated power is chosen on a share ``split`` of the pairs and the test
        is made on the rest.
    permutations, rng, method, alpha, split, block_length
        As in :func:`mmd_test`; of the methods only "permutation" and "block" have an exact level.
    unbiased : bool
        The estimate of Song et al. (2012) instead; "linear" and "block" are always unbiased.
    weights : array (n,), optional
        Non-negative weights of the pairs, of any scale. For the biased statistic with
        "permutation" and "wild".
    block_size, rank : int, optional
        For "block": pairs in a block, min(sqrt(n), 64) unless given. For "features": number of
        features of each variable, 50 unless given.

    Returns
    -------
    KernelTestResult
        ``effect``: the kernel correlation, root of HSIC(X, Y) / sqrt(HSIC(X, X) HSIC(Y, Y)).
        ``witness``: the pairs at which the joint and the product distribution differ.

    Notes
    -----
    A constant variable has p-value 1 and a ``NumericalWarning``. The level of "gamma" is good
    unless n is tiny; that of "wild" is asymptotic in the number of independent stretches.

    **Weights.** A permutation moves y and leaves each weight with its x: exact if y is independent
    of the pair (x, weight), as when the weight is a function of x. For weights that depend on both
    variables use ``method="wild"`` with ``block_length=None``, right for large samples.

    Examples
    --------
    >>> import numpy as np
    >>> import kernelbayes as kb
    >>> rng = np.random.default_rng(0)
    >>> x = rng.uniform(-1.0, 1.0, size=200)
    >>> y = x**2 + 0.1 * rng.normal(size=200)  # uncorrelated, not independent
    >>> kb.hsic_test(x, y, rng=0).pvalue < 0.01
    True
    >>> kb.hsic_test(x, rng.permutation(y), rng=0).pvalue > 0.01
    True
    """
    generator = as_generator(rng)
    weighted, details = weights is not None, dict[str, Any]()
    options = Options(
        permutations, generator, alpha, method, unbiased, block_length, block_size, rank, weighted
    )
    if weighted and unbiased:
        raise ValueError("weighted pairs have no unbiased statistic; leave out one of the two")
    kernel_x = samples.variable_kernel(X) if kernel_x is None else kernel_x
    kernel_y = samples.variable_kernel(Y, "Y") if kernel_y is None else kernel_y
    if not (isinstance(kernel_x, Kernel) and isinstance(kernel_y, Kernel)):
        if weighted:
            raise ValueError("choosing kernels takes no weights; give one kernel for each variable")
        kernels_x = samples.candidates(kernel_x, "kernel_x", lambda: samples.variable_family(X))
        kernels_y = samples.candidates(kernel_y, "kernel_y", lambda: samples.variable_family(Y))
        X, Y = kernels_x[0].points(X, "X"), kernels_y[0].points(Y, "Y")
        samples.check_pairs(X=X, Y=Y)
        (X_here, Y_here), (X, Y) = samples.hold_out({"the pairs": (X, Y)}, split, generator, (6, 5))
        problems = all_pairs(X_here, Y_here, kernels_x, kernels_y)
        (kernel_x, kernel_y), details["chosen_from"] = samples.most_powerful(problems)
    X, Y = own(kernel_x.points(X, "X"), X), own(kernel_y.points(Y, "Y"), Y)
    problem.check_sizes(5, **{"the sample of pairs": samples.check_pairs(X=X, Y=Y)})
    return problem.run(Pairs.of(X, Y, kernel_x, kernel_y, weights), options, details, LARGE)


@dataclass(frozen=True, eq=False)
class Pairs(Problem):
    """Aligned points of two variables under their kernels, with weights omega (n,) of mean one."""

    weighted: bool = False
    known: tuple[Variable, Variable] | None = None  # shared with other problems
    test: ClassVar[str] = "HSIC"
    most: ClassVar[float] = 1.0
    least: ClassVar[int] = 5
    constant: ClassVar[str] = "a variable is constant to its kernel"

    @classmethod
    def of(
        cls, X: Points, Y: Points, kernel_x: Kernel, kernel_y: Kernel, weights: Array | None = None
    ) -> Self:
        """Pairs; those of weight zero are left out."""
        samples.check_room((kernel_x, X), (kernel_y, Y))
        omega = np.ones(count(X))
        if weights is not None:
            kept, omega = samples.positive_weights(np.arange(len(omega)), weights, "the pairs")
            X, Y = take(X, kept), take(Y, kept)
            problem.check_sizes(5, **{"the sample of positive weight": len(omega)})
        return cls(((X, Y),), (kernel_x, kernel_y), omega, weights is not None)

    @cached_property
    def variables(self) -> tuple[Variable, Variable]:
        """Both variables, with their Gram matrices."""
        if self.known is not None:
            return self.known
        (X, Y), (kernel_x, kernel_y) = *self.samples, self.kernels
        return Variable(kernel_x, X, self.omega), Variable(kernel_y, Y, self.omega)

    @property
    def work(self) -> float:
        """One product of two factors, or of all entries where a variable has none."""
        n, ranks = len(self.omega), [v.rank or v.n for v in self.variables]
        return float(n * min(pairs.GATHER * n, math.prod(ranks)))

    @property
    def scales(self) -> Floats:
        """Largest k(x, x) and k(y, y)."""
        return np.array([float(np.abs(v.diag).max()) for v in self.variables])

    @property
    def observed(self) -> Ints:
        """Every y stays with its x."""
        return np.arange(len(self.omega))

    def every(self, limit: int) -> Ints | None:
        """All permutations of y, if there are few."""
        n = len(self.omega)
        if n > 12 or math.factorial(n) > limit:  # 12! is half a billion
            return None
        return np.array(list(itertools.permutations(range(n))))

    def statistics(self, moves: Moves, unbiased: bool = False) -> Floats:
        """HSIC (b,) under permutations (b, n) of y."""
        x, y = self.variables
        inner = pairs.products([x], [y], moves)[0, 0]
        return pairs.unbiased_hsic(inner, x, y, moves) if unbiased else inner / x.n**2

    def with_spread(self, moves: Moves) -> tuple[Floats, Floats]:
        """Unbiased HSIC (b,), and that of each variable with itself (2,)."""
        here, own = self.observed[None], []
        for v in self.variables:
            inner = pairs.products([v], [v], here)[0, 0]
            own.append(pairs.unbiased_hsic(inner, v, v, here)[0])
        return self.statistics(moves, unbiased=True), np.array(own)

    def moments(self) -> tuple[float, float]:
        """Moments of tr(G_X P G_Y P^T) / n^2, both matrices centred."""
        n = len(self.omega)
        first, second = (nulls.matrix_moments(v.gram) for v in self.variables)
        mean, variance = nulls.permutation_moments(first, second, n)
        return mean / n**2, variance / n**4

    @cached_property
    def product(self) -> Floats:
        """Entrywise product (n, n) of the centred Gram matrices."""
        x, y = self.variables
        return np.asarray(x.dense * y.dense)

    def series(self) -> Iterator[tuple[Floats, float]]:
        """All pairs are one series."""
        yield self.omega / len(self.omega), nulls.lag_one(Dense(self.product))

    def forms(self, A: Floats) -> Floats:
        """Quadratic forms (b,) of the columns of A (n, b)."""
        return np.asarray(np.einsum("ij,ij->j", A, self.product @ A))

    def estimate(self) -> Estimate:
        """HSIC and its largest value, with jackknife errors (of weighted pairs: asymptotic)."""
        x, y = self.variables
        variables = (x, y), (x, x), (y, y)
        if self.weighted:
            (value, error), (own_x, _), (own_y, _) = (pairs.hollow_form(*p) for p in variables)
            spread = math.sqrt(max(0.0, own_x * own_y))
            return Estimate(value, spread, error, error / max(spread, np.finfo(float).tiny))
        found = [pairs.left_out(*pair) for pair in variables]
        (value, cross), (own_x, left_x), (own_y, left_y) = found
        error, tiny = jackknife(cross), TIES * self.scale
        if min(own_x, own_y) <= tiny:  # a constant variable
            return Estimate(0.0, 0.0, error)
        spread = math.sqrt(own_x * own_y)
        if min(left_x.min(), left_y.min()) <= tiny:  # one pair holds all the variation
            return Estimate(value, spread, error)
        return Estimate(value, spread, error, jackknife(cross / np.sqrt(left_x * left_y)))

    def witness(self) -> Witness:
        """Difference of the embeddings of the joint and the product at the pairs."""
        x, y = self.variables
        values = pairs.hadamard_rows(x, y) / x.n - x.rows * y.rows / x.n**2
        return Witness(self.samples[0], values)


def all_pairs(
    X: Points, Y: Points, kernels_x: list[Kernel], kernels_y: list[Kernel]
) -> list[Pairs]:
    """Problems of all pairs of kernels, which share the Gram matrix of each kernel."""
    for k_x, k_y in itertools.product(kernels_x, kernels_y):
        samples.check_room((k_x, X), (k_y, Y))
    omega = np.ones(count(X))
    xs = [Variable(k, X, omega) for k in kernels_x]
    ys = [Variable(k, Y, omega) for k in kernels_y]
    return [Pairs(((X, Y),), (x.kernel, y.kernel), omega, known=(x, y)) for x in xs for y in ys]
