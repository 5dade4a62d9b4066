"""Two samples under one kernel: their statistic, null distributions, effect and witness."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from kernelbayes.arrays import NumericalWarning, to_numpy
from kernelbayes.compare.collection import bandwidth_family
from kernelbayes.compare.nulls import (
    check_sizes,
    diagonal,
    gamma_null,
    halves,
    kernel_list,
    matrix_moments,
    one_space,
    permutation_moments,
    pooled_kernel,
    sample_gram,
    splits,
)
from kernelbayes.compare.results import (
    TIES,
    Effect,
    Floats,
    KernelTestResult,
    Witness,
    power_of,
    relative_effect,
)
from kernelbayes.compare.series import BlockLength, lag_one, memory, multipliers
from kernelbayes.compare.sums import Pooled, jackknife_error
from kernelbayes.embedding import Embedding
from kernelbayes.gram import Dense, Gram, LowRank
from kernelbayes.kernels import Kernel
from kernelbayes.points import Points, as_floats, concatenate, count, take


@dataclass(frozen=True, eq=False)
class TwoSamples:
    """Two checked samples under one kernel, with what every null distribution needs of them."""

    points: Points
    kernel: Kernel
    pooled: Pooled
    g: Floats  # G omega
    a: Floats  # G omega, first sample only

    @classmethod
    def of(
        cls, X: Points, Y: Points, kernel: Kernel, weights_x: Any = None, weights_y: Any = None
    ) -> TwoSamples:
        """Pool two samples; points of weight zero are left out."""
        X, first = positive_weights(X, weights_x, "X")
        Y, second = positive_weights(Y, weights_y, "Y")
        points = concatenate(X, Y)
        gram = sample_gram(kernel, points, (len(first) + len(second)) // 8)
        omega = np.concatenate([first, second])
        pooled = Pooled(gram, diagonal(kernel, points), omega, len(first))
        return cls(points, kernel, pooled, *pooled.rows())

    @property
    def scale(self) -> float:
        """Size of the kernel's values, to tell rounding from a difference."""
        return float(np.abs(self.pooled.diag).max())

    @property
    def observed(self) -> Any:
        """Labels (1, N) of the split as it was observed."""
        return (np.arange(len(self.pooled.omega)) < self.pooled.n)[None]

    def permuted(
        self, permutations: int, rng: np.random.Generator, unbiased: bool
    ) -> tuple[float, Floats]:
        """Statistic and its values under permutations of the pooled sample."""
        values = []
        for labels in splits(self.pooled.n, self.pooled.m, permutations, rng):
            sums = self.pooled.sums(labels, self.g)
            values.append(sums.unbiased() if unbiased else sums.biased())
        every = np.concatenate(values)
        return float(every[0]), every[1:]

    def gamma(self, size: int) -> tuple[float, Floats, float]:
        """Statistic, quantiles of its gamma law, p-value.

        With the centred contrast c (1/n in the first sample, -1/m in the second) the permuted
        statistic is tr(G_c P c c^T P^T).
        """
        statistic = float(self.pooled.sums(self.observed, self.g).biased()[0])
        n, m = self.pooled.n, self.pooled.m
        length = 1.0 / n + 1.0 / m
        fourth = 1.0 / n**3 + 1.0 / m**3
        contrast = (length, length**2, fourth)
        mean, variance = permutation_moments(matrix_moments(self.pooled.gram), contrast, n + m)
        law, null = gamma_null(mean, variance, size)
        return statistic, null, 1.0 if law is None else float(law.sf(statistic))

    def wild(
        self,
        permutations: int,
        rng: np.random.Generator,
        unbiased: bool,
        block_length: BlockLength,
    ) -> tuple[float, Floats, tuple[float, float]]:
        """Statistic and multiplier bootstrap (Chwialkowski, Sejdinovic and Gretton 2014, eq. 6).

        Each sample has multipliers of its own, centred by its weights, so that its mean embedding
        drops out and no common distribution of points and weights is assumed.
        """
        pooled, parts = self.pooled, []
        sums = pooled.sums(self.observed, self.g)
        lengths = []
        for rows, sign in ((slice(0, pooled.n), 1.0), (slice(pooled.n, None), -1.0)):
            w = pooled.omega[rows] / pooled.omega[rows].sum()
            correlation = lag_one(self.block(rows))
            length, inflation = memory(correlation, len(w), block_length)
            W = multipliers(w, permutations, length, rng) * inflation
            parts.append(sign * w[:, None] * W)
            lengths.append(length)
        null = pooled.form(np.concatenate(parts))
        statistic = float(sums.biased()[0])
        if unbiased:  # the diagonal has the same mean in the statistic and in the bootstrap
            shift = statistic - float(sums.unbiased()[0])
            statistic, null = statistic - shift, null - shift
        return statistic, null, (lengths[0], lengths[1])

    def block(self, rows: slice) -> Gram:
        """Gram matrix of a stretch of the pooled sample."""
        gram = self.pooled.gram
        if isinstance(gram, Dense):
            return Dense(gram.G[rows, rows])
        if isinstance(gram, LowRank):
            return LowRank(gram.L[rows])
        raise ValueError("too many points for method='wild'; use a part of the series")

    def errors(self) -> tuple[float, float] | None:
        """Jackknife standard errors of MMD^2 and of the squared effect; None for tiny samples."""
        if min(self.pooled.n, self.pooled.m) < 5:
            return None
        first, second = self.pooled.left_out(self.g, self.a)
        plain = jackknife_error(first.unbiased(), second.unbiased())
        if not min(first.spread().min(), second.spread().min()) > TIES * self.scale:
            return plain, np.inf
        ratios = (part.unbiased() / part.spread() for part in (first, second))
        return plain, jackknife_error(*ratios)

    def effect(self, errors: tuple[float, float] | None) -> Effect:
        """MMD over the standard deviation in feature space."""
        sums = self.pooled.sums(self.observed, self.g)
        difference, spread = float(sums.unbiased()[0]), float(sums.spread()[0])
        error = np.inf if errors is None else errors[1]
        return relative_effect(difference, spread, error, self.scale)

    def witness(self) -> Witness:
        """Witness function mu - nu, and its values at the pooled points."""
        pooled = self.pooled
        mx, my = pooled.omega[: pooled.n].sum(), pooled.omega[pooled.n :].sum()
        weights = np.concatenate([pooled.omega[: pooled.n] / mx, -pooled.omega[pooled.n :] / my])
        values = self.a / mx - (self.g - self.a) / my
        return Witness(self.points, values, Embedding(self.points, weights, self.kernel))

    def result(
        self,
        statistic: float,
        p: float,
        null: Floats,
        method: str,
        level: float,
        unbiased: bool,
        details: dict[str, Any],
    ) -> KernelTestResult:
        """Everything a result says beyond the p-value."""
        errors = self.errors()
        power = None if errors is None else power_of(statistic, null, errors[0], level, self.scale)
        return KernelTestResult(
            statistic=statistic,
            pvalue=p,
            null=null,
            kernel=self.kernel,
            effect=self.effect(errors),
            power_estimate=power,
            level=level,
            test="MMD",
            method=method,
            sizes=(self.pooled.n, self.pooled.m),
            witness=self.witness(),
            details={"unbiased": unbiased, **details},
        )


def choose_kernel(
    X: Any,
    Y: Any,
    kernels: Sequence[Kernel] | Literal["power"],
    split: float,
    rng: np.random.Generator,
) -> tuple[Points, Points, Kernel, dict[str, Any]]:
    """Kernel with the largest ratio of MMD^2 to its standard error on a part of each sample.

    The ratio decides the asymptotic power (Gretton et al. 2012b, eq. 11). Returns the other part of
    each sample, the kernel, and the ratios.
    """
    if isinstance(kernels, str):
        if kernels != "power":
            raise ValueError(f"kernel must be a Kernel, kernels or 'power', got {kernels!r}")
        kernels = bandwidth_family(pooled_kernel(X, Y), X, Y, 10)
    kernels = kernel_list(
        kernels, "kernel", "a Kernel, a non-empty sequence of them, 'power' or None"
    )
    if not 0.0 < split < 1.0:
        raise ValueError(f"split is the share used to choose the kernel, in (0, 1), got {split!r}")
    X, Y = one_space(kernels[0], X, Y)
    (X_choose, X_test), (Y_choose, Y_test) = halves(X, split, rng), halves(Y, split, rng)
    for name, part, rest in (("X", X_choose, X_test), ("Y", Y_choose, Y_test)):
        check_sizes(5, **{f"the part of {name} for choosing the kernel": count(part)})
        check_sizes(2, **{f"the part of {name} left for the test": count(rest)})
    ratios = []
    for kernel in kernels:
        problem = TwoSamples.of(X_choose, Y_choose, kernel)
        errors = problem.errors()
        value = float(problem.pooled.sums(problem.observed, problem.g).unbiased()[0])
        floor = 1e-8 * problem.scale  # a kernel that sees no variation must not win
        ratios.append(value / max(errors[0] if errors else np.inf, floor))
    best = int(np.argmax(ratios))
    table = tuple({"kernel": k, "ratio": r} for k, r in zip(kernels, ratios, strict=True))
    return X_test, Y_test, kernels[best], {"chosen_from": table}


def positive_weights(points: Points, weights: Any, name: str) -> tuple[Points, Floats]:
    """Points of positive weight, and their weights with mean one."""
    n = count(points)
    if weights is None:
        return points, np.ones(n)
    w = np.asarray(to_numpy(as_floats(weights, f"the weights of {name}")), dtype=np.float64)
    if w.shape != (n,):
        raise ValueError(f"the weights of {name} must have shape ({n},), got {w.shape}")
    if w.min() < 0.0:
        raise ValueError(
            f"the weights of {name} must be non-negative: a permutation could give a group no "
            "mass; compare embeddings of signed weights with mmd"
        )
    kept = np.flatnonzero(w > 0.0)
    check_sizes(2, **{f"{name} (points of positive weight)": len(kept)})
    w = w[kept]
    if w.sum() ** 2 < 4.0 * (w @ w):
        warnings.warn(
            f"the weights of {name} have an effective sample size below 4",
            NumericalWarning,
            stacklevel=4,
        )
    return (points if len(kept) == n else take(points, kept)), w / w.mean()
