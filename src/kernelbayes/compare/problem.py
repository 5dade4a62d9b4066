r"""A test is a problem: a statistic, its value under relabellings of the sample, and an estimate.

Two samples (``mmd``) and paired variables (``hsic``) are the two problems. A relabelling is a row
of booleans or integers: which points make up the first sample, or which y goes with which x. With B
random relabellings the p-value is ``(1 + #{null >= statistic}) / (1 + B)``. The observed sample
counts as one of them, so that under the null hypothesis ``P(pvalue <= a) <= a`` for every sample
size and B (Phipson and Smyth 2010). Ties, up to rounding, count against rejection. If there are at
most B relabellings in all, each is used once and the p-value is exact. ``nulls`` has the methods
without permutations, ``large`` those for large samples.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Literal, Self, get_args

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr, ndtri

from kernelbayes.arrays import warn
from kernelbayes.compare.nulls import TIES, BlockLength, gamma_law, wild_bootstrap
from kernelbayes.compare.result import Effect, KernelTestResult, Witness
from kernelbayes.gram import Gram, OnDemand
from kernelbayes.kernels import Kernel
from kernelbayes.points import column_names, count, in_order, take
from kernelbayes.points.values import flag, integer, option, share
from kernelbayes.types import Floats, Generator, Ints, Points, PointsLike

Method = Literal["auto", "permutation", "gamma", "wild", "linear", "block", "features"]
Moves = npt.NDArray[np.integer[Any] | np.bool_]
# Relative trace error at which a factor stands for a Gram matrix: it moves a statistic by about
# this share of its null mean, far below what permutations resolve.
FACTOR_TOL = 1e-8
GRAM_ENTRIES = 2**29  # of a Gram matrix held in memory: 4 GB, half of a small machine
MOVE_ENTRIES = 2**23  # of one block of relabellings: 64 MB as integers
# Multiplications up to which "auto" takes permutations: some ten seconds of one core. Beyond this
# many points not even a factor of the Gram matrix is looked for, which takes as long.
MOST_WORK, MOST_POINTS = 1e11, 20_000


@dataclass(frozen=True)
class Options:
    """How a test is made: arguments of :func:`kernelbayes.mmd_test`."""

    permutations: int
    rng: Generator
    alpha: float
    method: Method = "auto"
    unbiased: bool = False
    block_length: BlockLength = None
    block_size: int | None = None
    rank: int | None = None
    weighted: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "permutations", integer(self.permutations, "permutations"))
        object.__setattr__(self, "alpha", share(self.alpha, "alpha"))
        option(self.method, "method", get_args(Method))
        flag(self.unbiased, "unbiased")
        if self.method == "gamma" and self.unbiased:
            raise ValueError("method='gamma' has no unbiased statistic; use 'permutation'")
        if self.weighted and self.method not in ("auto", "permutation", "wild"):
            text = f"method={self.method!r} takes no weights; use 'permutation' or 'wild'"
            raise ValueError(text)


@dataclass(frozen=True)
class Estimate:
    """Unbiased estimate of the squared distance, and the spread that makes an effect of it."""

    value: float
    spread: float
    error: float | None  # standard error of ``value``; None if there are too few points
    of_ratio: float = np.inf  # standard error of ``value / spread``, the square of the effect

    def effect(self, scale: float, most: float) -> Effect:
        """Effect, at most ``most``; what is rounding at ``scale`` counts as zero.

        The interval is that of the square, cut off at zero: near zero the root has no normal law.
        Without spread two samples are infinitely far apart, or not at all, and a correlation is
        unknown unless its value is zero.
        """
        if self.spread <= TIES * scale:
            top = most if self.value > TIES * scale else 0.0
            low = top if np.isinf(most) else 0.0
            return Effect(low, (low, top))
        squared = self.value / self.spread
        margin = float(ndtri(0.5 + 0.5 * Effect.level)) * self.of_ratio
        squares = (squared - margin, squared, squared + margin)
        low, size, high = (min(most, float(np.sqrt(max(0.0, s)))) for s in squares)
        return Effect(size, (low, high))

    def power(self, statistic: float, null: Floats, alpha: float, scale: float) -> float | None:
        """Asymptotic normal power: chance that a statistic with this error exceeds the quantile."""
        if self.error is None:
            return None
        above = statistic - float(np.quantile(null, 1.0 - alpha))
        if self.error <= TIES * scale:
            return float(above > TIES * scale)
        return max(alpha, float(ndtr(above / self.error)))  # a test rejects as often in any case


@dataclass(frozen=True, eq=False)
class Problem(ABC):
    """Checked data under their kernels: a statistic, its relabellings and what they need."""

    samples: tuple[tuple[Points, ...], ...]  # of each sample the aligned variables
    kernels: tuple[Kernel, ...]  # one for each variable
    omega: Floats  # weights (N,) of the points of all samples, with mean one in each
    test: ClassVar[str]
    most: ClassVar[float]  # largest effect: a distance has none, a correlation is at most one
    least: ClassVar[int]  # points that an unbiased estimate needs
    constant: ClassVar[str]  # what to say when no relabelling changes the statistic

    @property
    @abstractmethod
    def scales(self) -> Floats:
        """Largest k(x, x) of each kernel: their product sets the size of rounding."""

    @property
    @abstractmethod
    def observed(self) -> Moves:
        """Relabelling (N,) that changes nothing."""

    @abstractmethod
    def every(self, limit: int) -> Moves | None:
        """All relabellings, the observed one first, if there are at most ``limit``."""

    @abstractmethod
    def statistics(self, moves: Moves, unbiased: bool = False) -> Floats:
        """Return the statistics (b,) of relabellings (b, N)."""

    @abstractmethod
    def moments(self) -> tuple[float, float]:
        """Mean and variance of the statistic over all relabellings."""

    @abstractmethod
    def series(self) -> Iterator[tuple[Floats, float]]:
        """Signed weights of the points of each sample, and its lag-one correlation."""

    @abstractmethod
    def forms(self, A: Floats) -> Floats:
        """Quadratic forms (b,) of columns (N, b) of weights, whose null is the wild bootstrap's."""

    @abstractmethod
    def estimate(self) -> Estimate:
        """Unbiased estimate with its standard errors."""

    @abstractmethod
    def witness(self) -> Witness:
        """Where the null hypothesis fails."""

    @abstractmethod
    def with_spread(self, moves: Moves) -> tuple[Floats, Floats]:
        """Return unbiased statistics (b,), and the spread of each variable."""

    @property
    @abstractmethod
    def work(self) -> float:
        """Multiplications that one relabelling takes."""

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Number of points of each sample."""
        return tuple(count(variables[0]) for variables in self.samples)

    def part(self, rows: Sequence[Ints]) -> Self:
        """Problem of some points of each sample, without weights."""
        parts = tuple(
            tuple(take(points, index) for points in variables)
            for variables, index in zip(self.samples, rows, strict=True)
        )
        return type(self)(parts, self.kernels, np.ones(sum(map(len, rows))))

    @property
    def named(self) -> Kernel | tuple[Kernel, ...]:
        """Kernel as a result names it: several are a tuple."""
        return self.kernels[0] if len(self.kernels) == 1 else self.kernels

    @property
    def scale(self) -> float:
        """Size of the statistic for the largest possible difference."""
        return float(self.scales.prod())

    def shuffled(self, draws: int, rng: Generator, first: int = 0) -> Moves:
        """Random relabellings (first + draws, N), of which the first are the observed one."""
        moves = np.repeat(self.observed[None], first + draws, axis=0)
        rng.permuted(moves[first:], axis=1, out=moves[first:])
        return moves

    def relabelled(self, permutations: int, rng: Generator) -> Iterator[Moves]:
        """Blocks (b, N) of relabellings, the observed one first."""
        every = self.every(permutations + 1)
        if every is not None:
            yield every
            return
        yield self.observed[None]
        step = max(1, MOVE_ENTRIES // len(self.observed))
        for start in range(0, permutations, step):
            yield self.shuffled(min(step, permutations - start), rng)


@dataclass(frozen=True)
class Outcome:
    """What a method found. Where ``pvalue`` is None, that of permutations is computed."""

    statistic: float
    null: Floats
    estimate: Estimate
    scale: float
    details: Mapping[str, Any]
    pvalue: float | None = None
    witness: Witness | None = None

    def result(self, alpha: float, most: float, constant: str, **about: Any) -> KernelTestResult:
        """Return the result of a test; warn if there was nothing to test."""
        numbers = self.statistic, self.null, self.scale
        if is_constant(*numbers):
            warn(f"{constant}: every permutation has the same statistic, so the p-value is 1")
        return KernelTestResult(
            statistic=self.statistic,
            pvalue=pvalue(*numbers) if self.pvalue is None else self.pvalue,
            null=self.null,
            effect=self.estimate.effect(self.scale, most),
            power_estimate=self.estimate.power(self.statistic, self.null, alpha, self.scale),
            alpha=alpha,
            witness=self.witness,
            **about,
        )


Run = Callable[[Problem, Options], Outcome]


def exact(problem: Problem, options: Options) -> Outcome:
    """Test on all points, by permutations, the gamma law or the wild bootstrap."""
    p, details = None, dict[str, Any](unbiased=options.unbiased)
    if options.method == "permutation":
        blocks = problem.relabelled(options.permutations, options.rng)
        every = np.concatenate([problem.statistics(b, options.unbiased) for b in blocks])
        statistic, null = float(every[0]), every[1:]
    elif options.method == "gamma":
        statistic = float(problem.statistics(problem.observed[None])[0])
        p, null = gamma_law(*problem.moments(), statistic, options.permutations)
    else:
        statistic, null, lengths = wild_bootstrap(problem, options)
        details["block_length"] = lengths[0] if len(lengths) == 1 else lengths
    estimate, witness = problem.estimate(), problem.witness()
    return Outcome(statistic, null, estimate, problem.scale, details, p, witness)


def run(
    problem: Problem, options: Options, details: Mapping[str, Any], large: Mapping[str, Run]
) -> KernelTestResult:
    """Make a test by the method asked for: one of the ``large`` ones, or on all points."""
    if options.method == "auto":
        few = sum(problem.sizes) <= MOST_POINTS and options.permutations * problem.work <= MOST_WORK
        options = replace(options, method="permutation" if few or options.weighted else "features")
    found = large.get(options.method, exact)(problem, options)
    return finish(problem, options.alpha, found, options.method, details)


def finish(
    problem: Problem, alpha: float, found: Outcome, method: str, details: Mapping[str, Any]
) -> KernelTestResult:
    """Return the result of a test of a problem."""
    about: dict[str, Any] = {"kernel": problem.named, "test": problem.test, "method": method}
    about |= {"sizes": problem.sizes, "details": {**found.details, **details}}
    return found.result(alpha, problem.most, problem.constant, **about)


def pvalue(statistic: float, null: Floats, scale: float) -> float:
    """Permutation p-value; statistics closer than rounding error at ``scale`` are ties."""
    if not (np.isfinite(statistic) and np.isfinite(null).all()):
        raise ValueError("the statistic is not a finite number: check the scale of data and kernel")
    reached = int(np.count_nonzero(null >= statistic - TIES * scale))
    return (1 + reached) / (1 + len(null))


def is_constant(statistic: float, null: Floats, scale: float) -> bool:
    """Whether no relabelling changes the statistic: there is nothing to test."""
    return max(float(np.ptp(null)), abs(float(null[0]) - statistic)) <= TIES * scale


def jackknife(*left_out: Floats) -> float:
    """Jackknife standard error from estimates with one point left out, of each sample in turn."""
    return float(np.sqrt(sum((len(v) - 1) * float(np.var(v)) for v in left_out)))


def check_sizes(least: int, **sizes: int) -> None:
    """Raise unless every sample has at least ``least`` points."""
    for name, n in sizes.items():
        if n < least:
            raise ValueError(f"too few points: {name} has {n}; this test needs at least {least}")


def same_columns(X: PointsLike, Y: PointsLike, *kernels: object) -> PointsLike:
    """Y with its columns in the order of those of X; a single column may have another name."""
    if type(X) is type(Y) is np.ndarray:
        return Y
    names = column_names(X), column_names(Y)
    if all(found is not None and len(found) == 1 for found in names):
        return Y
    return in_order(Y, names[0], "Y", by_name=any(getattr(k, "by_name", False) for k in kernels))


def one_space(kernel: Kernel, X: PointsLike, Y: PointsLike) -> tuple[Points, Points]:
    """Points of both samples; raise unless they are of one space."""
    X, Y = kernel.points(X, "X"), kernel.points(same_columns(X, Y, kernel), "Y")
    kernel.check_pair(X, Y)
    return X, Y


def sample_gram(kernel: Kernel, points: Points, most: int) -> Gram:
    """Gram matrix of a sample: a factor of rank at most ``most`` if it is accurate, else whole."""
    n = count(points)
    # Where the matrix does not fit, no factor is looked for that takes as much. A fixed generator:
    # the factor must not depend on, nor use up, that of the permutations.
    most = max(1, min(most, GRAM_ENTRIES // (4 * n)))
    gram = Gram.of(
        *(kernel, points), tol=FACTOR_TOL, most=most, rng=0, entries=GRAM_ENTRIES, double=True
    )
    if isinstance(gram, OnDemand):
        raise ValueError(
            f"the Gram matrix of {n} points takes {8e-9 * n * n:.0f} GB; use a kernel with finite "
            "features such as nystrom(kernel, X, 200), or mmd_test or hsic_test with "
            "method='features', 'block' or 'linear'"
        )
    return gram
