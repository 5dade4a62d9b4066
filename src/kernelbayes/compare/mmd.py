r"""Two-sample test: the distance of two embeddings.

The statistic is the squared distance of their embeddings (CME13 section 2.1; Gretton et al. 2012),

.. math:: \mathrm{MMD}^2 = \|\mu_X - \mu_Y\|^2

the same number as :func:`kernelbayes.mmd2` gives for the two samples, biased or unbiased.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from kernelbayes.arrays import Rng, as_generator
from kernelbayes.compare import large
from kernelbayes.compare.nulls import (
    Method,
    check_options,
    check_sizes,
    one_space,
    pooled_kernel,
    pvalue,
    warn_if_constant,
)
from kernelbayes.compare.random_features import Options
from kernelbayes.compare.results import (
    KernelTestResult,
)
from kernelbayes.compare.samples import TwoSamples, choose_kernel
from kernelbayes.compare.series import BlockLength
from kernelbayes.kernels import Kernel
from kernelbayes.points import count


def mmd_test(
    X: Any,
    Y: Any,
    kernel: Kernel | Sequence[Kernel] | Literal["power"] | None = None,
    permutations: int = 1000,
    rng: Rng = None,
    *,
    method: Method = "permutation",
    unbiased: bool = False,
    weights_x: Any = None,
    weights_y: Any = None,
    level: float = 0.05,
    split: float = 0.5,
    block_length: BlockLength = "auto",
    block_size: int | None = None,
    rank: int | None = None,
) -> KernelTestResult:
    r"""Test whether two samples have the same distribution, by their maximum mean discrepancy.

    .. math:: \mathrm{MMD}^2 = \Big\|\sum_i w_i\, \phi(x_i) - \sum_j v_j\, \phi(y_j)\Big\|^2

    Parameters
    ----------
    X : points (n, ...)
    Y : points (m, ...)
        Of the same space; n and m may differ, each at least 2.
    kernel : Kernel, sequence of kernels or "power", optional
        None means the Gaussian kernel with the median heuristic on both samples together for
        numbers and Delta for anything else. From a sequence (or, with "power", from Gaussian
        kernels of many bandwidths) the one with the largest estimated power is chosen on a share
        ``split`` of each sample and the test is made on the rest (Gretton et al. 2012b).
    permutations : int
        B: number of permutations, bootstrap draws or quantiles of the null distribution.
    rng : int, Generator or None
        The same rng gives the same p-value.
    method : str
        "permutation": exact level for every n. "gamma": gamma law with the exact mean and variance
        of the permutation distribution, no permutations at all. "wild": multiplier bootstrap,
        right for stationary time series and for samples whose weights follow different laws.
        "linear": independent quadruples, O(n), normal null (Gretton et al. 2012, section 6).
        "block": mean over blocks, O(n block_size), permuted within blocks (Zaremba et al. 2013).
        "features": random features, O(n rank^2), weighted chi-square null.
    unbiased : bool
        Statistic without the terms k(x_i, x_i); "linear" and "block" are always unbiased.
    weights_x, weights_y : arrays (n,), (m,), optional
        Non-negative weights of the points, of any scale. For "permutation" and "wild".
    level : float
        For ``power_estimate``.
    split : float
        Share of each sample spent on the choice of a kernel.
    block_length : float, "auto" or None
        For "wild": memory of the multipliers in time steps. None means independent points; "auto"
        is estimated from the autocorrelation in feature space.
    block_size : int, optional
        For "block": points of the smaller sample in a block; min(sqrt(n), 64) unless given.
    rank : int, optional
        For "features": number of features, 100 unless given.

    Returns
    -------
    KernelTestResult
        ``effect``: MMD in units of the standard deviation in feature space. ``witness``: where the
        samples differ.

    Notes
    -----
    **Weights.** A permutation moves points together with their weights and divides by the mass of
    the new groups: the null hypothesis is that the pairs (point, weight) are exchangeable. Two
    importance samples of one target from *different* proposals are not; use ``method="wild"``,
    which bootstraps each sample by itself, and is right for large samples.

    **What can go wrong.** Constant data have p-value 1 and a ``NumericalWarning``. A kernel that
    is not characteristic (linear, say) sees only some differences. Choosing the kernel on the same
    data by hand destroys the level: use "power" or :func:`mmd_aggregated`.

    Examples
    --------
    >>> import numpy as np
    >>> import kernelbayes as kb
    >>> rng = np.random.default_rng(0)
    >>> x, y = rng.normal(size=100), rng.normal(1.0, size=80)
    >>> result = kb.mmd_test(x, y, rng=0)
    >>> result.pvalue < 0.01, result.sizes
    (True, (100, 80))
    >>> kb.mmd_test(x[:50], x[50:], rng=0).pvalue > 0.01
    True
    """
    check_options(permutations, level, method)
    generator = as_generator(rng)
    if kernel is None:
        kernel = pooled_kernel(X, Y)
    details: dict[str, Any] = {}
    if not isinstance(kernel, Kernel):
        if weights_x is not None or weights_y is not None:
            raise ValueError("choosing a kernel takes no weights; give one kernel")
        X, Y, kernel, details = choose_kernel(X, Y, kernel, split, generator)
    X, Y = one_space(kernel, X, Y)
    check_sizes(2, X=count(X), Y=count(Y))
    if method in ("linear", "block", "features"):
        if weights_x is not None or weights_y is not None:
            raise ValueError(f"method={method!r} takes no weights; use 'permutation' or 'wild'")
        options = Options(permutations, generator, level, block_size, rank, unbiased)
        return large.mmd(X, Y, kernel, method, options, details)
    problem = TwoSamples.of(X, Y, kernel, weights_x, weights_y)
    if method == "permutation":
        statistic, null = problem.permuted(permutations, generator, unbiased)
        p = pvalue(statistic, null, problem.scale)
    elif method == "gamma":
        if unbiased or weights_x is not None or weights_y is not None:
            raise ValueError("method='gamma' has neither unbiased nor weights; use 'permutation'")
        statistic, null, p = problem.gamma(permutations)
    else:
        statistic, null, lengths = problem.wild(permutations, generator, unbiased, block_length)
        p, details = pvalue(statistic, null, problem.scale), {**details, "block_length": lengths}
    warn_if_constant(null, statistic, problem.scale, "the pooled sample is constant to the kernel")
    return problem.result(statistic, p, null, method, level, unbiased, details)
