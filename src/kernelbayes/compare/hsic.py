r"""Test of independence: the joint embedding against the product of the marginal ones.

The statistic is the squared distance between the embedding of the pairs and the product of the
embeddings of each variable (CME13 section 2.2; Gretton et al. 2008),

.. math:: \mathrm{HSIC} = \|\mu_{XZ} - \mu_X \otimes \mu_Z\|^2
          = \frac{1}{n^2}\operatorname{tr} K H L H
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from kernelbayes.arrays import Rng, as_generator
from kernelbayes.compare import large, weighted
from kernelbayes.compare.collection import choose_kernels
from kernelbayes.compare.nulls import (
    Method,
    check_options,
    check_pairs,
    check_sizes,
    gamma_null,
    matrix_moments,
    orders,
    permutation_moments,
    pvalue,
    warn_if_constant,
)
from kernelbayes.compare.pairs import (
    Variable,
    biased,
    hadamard_rows,
    jackknife,
    left_out,
    products,
    unbiased,
    variable,
)
from kernelbayes.compare.random_features import Options
from kernelbayes.compare.results import (
    TIES,
    Effect,
    Floats,
    KernelTestResult,
    Witness,
    effect_of,
    power_of,
)
from kernelbayes.compare.series import BlockLength, lag_one, memory, multipliers
from kernelbayes.gram import Dense
from kernelbayes.kernels import Kernel
from kernelbayes.kernels.default import default_kernel
from kernelbayes.points import Points


def hsic_test(
    X: Any,
    Z: Any,
    kernel_x: Kernel | Sequence[Kernel] | Literal["power"] | None = None,
    kernel_z: Kernel | Sequence[Kernel] | Literal["power"] | None = None,
    permutations: int = 1000,
    rng: Rng = None,
    *,
    method: Method = "permutation",
    unbiased: bool = False,
    weights: Any = None,
    level: float = 0.05,
    split: float = 0.5,
    block_length: BlockLength = "auto",
    block_size: int | None = None,
    rank: int | None = None,
) -> KernelTestResult:
    r"""Test whether two variables are independent, by the Hilbert-Schmidt independence criterion.

    .. math:: \mathrm{HSIC} = \frac{1}{n^2} \operatorname{tr} K H L H, \qquad H = I - 1 1^\top / n

    Parameters
    ----------
    X, Z : points (n, ...)
        Pairs, at least 5, of any two spaces.
    kernel_x, kernel_z : Kernel, sequence of kernels or "power", optional
        None means the Gaussian kernel with the median heuristic for numbers, Delta for anything
        else. From sequences (or, with "power", from Gaussian kernels of five bandwidths) the pair
        with the largest estimated power is chosen on a share ``split`` of the pairs and the test
        is made on the rest.
    permutations : int
        B: number of permutations, bootstrap draws or quantiles of the null distribution.
    rng : int, Generator or None
        The same rng gives the same p-value.
    method : str
        "permutation": exact level for every n; through low-rank factors where they are accurate.
        "gamma": gamma law with the exact mean and variance of the permutation distribution.
        "wild": multiplier bootstrap for stationary time series. "linear": independent quadruples,
        O(n), normal null. "block": mean over blocks, permuted within blocks. "features": random
        features, O(n rank^2), weighted chi-square null.
    unbiased : bool
        The estimate of Song et al. (2012) instead; "linear" and "block" are always unbiased.
    weights : array (n,), optional
        Non-negative weights of the pairs, of any scale. For "permutation" and "wild".
    level : float
        For ``power_estimate``.
    split : float
        Share of the pairs spent on the choice of kernels.
    block_length : float, "auto" or None
        For "wild": memory of the multipliers in time steps; see :func:`mmd_test`.
    block_size : int, optional
        For "block": pairs in a block; min(sqrt(n), 64) unless given.
    rank : int, optional
        For "features": number of features of each variable, 50 unless given.

    Returns
    -------
    KernelTestResult
        ``effect``: the kernel correlation, root of HSIC(X, Z) / sqrt(HSIC(X, X) HSIC(Z, Z)).
        ``witness``: the pairs at which the joint and the product distribution differ.

    Notes
    -----
    A constant variable has p-value 1 and a ``NumericalWarning``. The level of "gamma" is good
    unless n is tiny; that of "wild" is asymptotic in the number of independent stretches.

    **Weights.** A permutation moves z and leaves each weight with its x: exact if z is independent
    of the pair (x, weight), as when the weight is a function of x. For weights that depend on both
    variables use ``method="wild"`` with ``block_length=None``, right for large samples.

    Examples
    --------
    >>> import numpy as np
    >>> import kernelbayes as kb
    >>> rng = np.random.default_rng(0)
    >>> x = rng.uniform(-1.0, 1.0, size=200)
    >>> z = x**2 + 0.1 * rng.normal(size=200)  # uncorrelated, not independent
    >>> kb.hsic_test(x, z, rng=0).pvalue < 0.01
    True
    >>> kb.hsic_test(x, rng.permutation(z), rng=0).pvalue > 0.01
    True
    """
    check_options(permutations, level, method)
    generator = as_generator(rng)
    details: dict[str, Any] = {}
    kernel_x = default_kernel(X) if kernel_x is None else kernel_x
    kernel_z = default_kernel(Z, "Z") if kernel_z is None else kernel_z
    if not (isinstance(kernel_x, Kernel) and isinstance(kernel_z, Kernel)):
        if weights is not None:
            raise ValueError("choosing kernels takes no weights; give one kernel for each variable")
        X, Z, kernel_x, kernel_z, details = choose_kernels(
            X, Z, kernel_x, kernel_z, split, generator
        )
    X, Z = kernel_x.points(X, "X"), kernel_z.points(Z, "Z")
    check_sizes(5, **{"the sample of pairs": check_pairs(X=X, Z=Z)})
    options = Options(permutations, generator, level, block_size, rank, unbiased)
    if weights is not None:
        pair = kernel_x, kernel_z
        return weighted.hsic(X, Z, weights, pair, method, options, block_length)
    if method in ("linear", "block", "features"):
        return large.hsic(X, Z, (kernel_x, kernel_z), method, options, details)
    problem = Pairs.of(X, Z, kernel_x, kernel_z)
    if method == "permutation":
        statistic, null = problem.permuted(permutations, generator, unbiased)
        p = pvalue(statistic, null, problem.scale)
    elif method == "gamma":
        if unbiased:
            raise ValueError("method='gamma' has no unbiased statistic; use 'permutation'")
        statistic, null, p = problem.gamma(permutations)
    else:
        statistic, null, length = problem.wild(permutations, generator, unbiased, block_length)
        p, details = pvalue(statistic, null, problem.scale), {**details, "block_length": length}
    warn_if_constant(null, statistic, problem.scale, "a variable is constant to its kernel")
    return problem.result(statistic, p, null, method, level, {"unbiased": unbiased, **details})


@dataclass(frozen=True, eq=False)
class Pairs:
    """Checked pairs under two kernels, with what every null distribution needs of them."""

    X: Points
    Z: Points
    kernels: tuple[Kernel, Kernel]
    x: Variable
    z: Variable

    @classmethod
    def of(cls, X: Points, Z: Points, kernel_x: Kernel, kernel_z: Kernel) -> Pairs:
        """Gram matrices of both variables, each computed once."""
        return cls(X, Z, (kernel_x, kernel_z), variable(kernel_x, X), variable(kernel_z, Z))

    @property
    def n(self) -> int:
        """Number of pairs."""
        return self.x.n

    @property
    def scale(self) -> float:
        """Size of the products of kernel values, to tell rounding from dependence."""
        return float(np.abs(self.x.diag).max() * np.abs(self.z.diag).max())

    def permuted(
        self, permutations: int, rng: np.random.Generator, without_diagonal: bool
    ) -> tuple[float, Floats]:
        """Statistic and its values under permutations of Z."""
        values = []
        for block in orders(self.n, permutations, rng):
            inner = products([self.x], [self.z], block)[0, 0]
            values.append(
                unbiased(inner, self.x, self.z, block)
                if without_diagonal
                else biased(inner, self.n)
            )
        every = np.concatenate(values)
        return float(every[0]), every[1:]

    def gamma(self, size: int) -> tuple[float, Floats, float]:
        """Statistic, quantiles of its gamma law, p-value."""
        n = self.n
        inner = products([self.x], [self.z], np.arange(n)[None])[0, 0]
        moments = matrix_moments(self.x.gram), matrix_moments(self.z.gram)
        mean, variance = permutation_moments(*moments, n)
        law, null = gamma_null(mean / n**2, variance / n**4, size)
        statistic = float(biased(inner[0], n))
        return statistic, null, 1.0 if law is None else float(law.sf(statistic))

    def wild(
        self,
        permutations: int,
        rng: np.random.Generator,
        without_diagonal: bool,
        block_length: BlockLength,
    ) -> tuple[float, Floats, float]:
        """Statistic and multiplier bootstrap (Chwialkowski et al. 2014, section 4)."""
        n = self.n
        H = self.x.dense * self.z.dense
        statistic = float(H.sum()) / n**2
        correlation = lag_one(Dense(H))
        length, inflation = memory(correlation, n, block_length)
        W = inflation * multipliers(np.full(n, 1.0 / n), permutations, length, rng)
        null = np.einsum("ij,ij->j", W, H @ W) / n**2
        if without_diagonal:
            inner = products([self.x], [self.z], np.arange(n)[None])[0, 0]
            shift = statistic - float(unbiased(inner, self.x, self.z, np.arange(n)[None])[0])
            statistic, null = statistic - shift, null - shift
        return statistic, null, length

    def witness(self) -> Witness:
        """Difference of the embeddings of the joint and the product at the pairs."""
        joint = hadamard_rows(self.x, self.z) / self.n
        return Witness((self.X, self.Z), joint - self.x.rows * self.z.rows / self.n**2)

    def effect(self) -> tuple[Effect, float]:
        """Kernel correlation with its interval, and the jackknife error of HSIC."""
        estimates = [
            left_out(a, b) for a, b in ((self.x, self.z), (self.x, self.x), (self.z, self.z))
        ]
        (cross, without), (own_x, without_x), (own_z, without_z) = estimates
        error = jackknife(without)
        tiny = TIES * self.scale
        if min(own_x, own_z) <= tiny:  # a constant variable
            return Effect(0.0, (0.0, 0.0)), error
        ratio, of_ratio = cross / math.sqrt(own_x * own_z), np.inf
        if min(without_x.min(), without_z.min()) > tiny:  # else one pair holds all the variation
            of_ratio = jackknife(without / np.sqrt(without_x * without_z))
        return effect_of(ratio, of_ratio, 1.0), error

    def result(
        self,
        statistic: float,
        p: float,
        null: Floats,
        method: str,
        level: float,
        details: dict[str, Any],
    ) -> KernelTestResult:
        """Everything a result says beyond the p-value."""
        effect, error = self.effect()
        return KernelTestResult(
            statistic=statistic,
            pvalue=p,
            null=null,
            kernel=self.kernels,
            effect=effect,
            power_estimate=power_of(statistic, null, error, level, self.scale),
            level=level,
            test="HSIC",
            method=method,
            sizes=(self.n,),
            witness=self.witness(),
            details=details,
        )
