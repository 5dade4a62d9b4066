r"""Tests given a third variable: of independence, and of two samples.

Both ask whether two variables, one of which may be the label of a sample, are still correlated
somewhere along z when what z explains is taken off both: see :mod:`kernelbayes.compare.residuals`.
"""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from kernelbayes.arrays import as_generator, warn
from kernelbayes.compare.problem import Options, one_space, same_columns
from kernelbayes.compare.residuals import Candidate, left_over, residual_test
from kernelbayes.compare.result import KernelTestResult
from kernelbayes.compare.samples import check_pairs, check_room, pooled_kernel
from kernelbayes.kernels import Delta, Kernel
from kernelbayes.kernels.base import as_kernel
from kernelbayes.kernels.default import default_kernel
from kernelbayes.points import concatenate, own
from kernelbayes.types import PointsLike, Rng


def ci_test(
    X: PointsLike,
    Y: PointsLike,
    Z: PointsLike,
    kernel_x: Kernel | None = None,
    kernel_y: Kernel | None = None,
    kernel_z: Kernel | None = None,
    permutations: int = 1000,
    rng: Rng = None,
    *,
    alpha: float = 0.05,
) -> KernelTestResult:
    r"""Test whether X and Y are independent given Z, by residuals of conditional embeddings.

    Parameters
    ----------
    X, Y, Z : points (n, ...)
        Aligned rows, at least 10.
    kernel_x, kernel_y, kernel_z : Kernel, optional
        None means the Gaussian kernel with the median heuristic for numbers, Delta for anything
        else. A kernel on vectors sees the residuals of x (of y) from its regression on z, and the
        median heuristic is theirs. The regressions choose multiples of the bandwidth of
        ``kernel_z``, and their ridges, by leave-one-out.
    permutations : int
        Number of draws of the multiplier bootstrap.
    rng : int, Generator or None
    alpha : float
        Significance level for ``power_estimate``.

    Returns
    -------
    KernelTestResult
        ``effect``: root of T over its value for equal residuals, a partial kernel correlation.
        ``witness``: how much each z contributes. ``details``: ridges and kernels of the
        regressions, and the mean ``"shift"`` of T that is due to them.

    Notes
    -----
    The null distribution multiplies the terms r_i (x) s_i (x) phi(z_i) by random signs, and adds
    the mean that regressions of independent errors give T. It is asymptotic, and right only as far
    as the regressions are: an error that both make at the same z looks like dependence. No test
    of conditional independence holds its level without such an assumption (Shah and Peters 2020).
    Do not trust it when z has many dimensions and more than the location of x and y depends on it,
    or when z explains nearly all of both (a ``NumericalWarning`` if it explains all); docs/tests.md
    has measured levels.

    Examples
    --------
    >>> import numpy as np
    >>> import kernelbayes as kb
    >>> rng = np.random.default_rng(0)
    >>> z = rng.normal(size=200)
    >>> x, y = z + 0.5 * rng.normal(size=200), z**2 + 0.5 * rng.normal(size=200)
    >>> kb.hsic_test(x, y, rng=0).pvalue < 0.05, kb.ci_test(x, y, z, rng=0).pvalue > 0.05
    (True, True)
    """
    kernels = {"kernel_x": kernel_x, "kernel_y": kernel_y, "kernel_z": kernel_z}
    options = _checked(permutations, rng, alpha, kernels)
    kernel_z = default_kernel(Z, "Z") if kernel_z is None else kernel_z
    Z = own(kernel_z.points(Z, "Z"), Z)
    candidates = Candidate.family(kernel_z, Z)
    variables = (kernel_x, X, "X"), (kernel_y, Y, "Y")
    x, y = (left_over(*one, candidates) for one in variables)
    if all(v.how.get("location", v.how["features"])["noiseless"] for v in (x, y)):
        warn(
            "z determines both X and Y up to the error of the regressions, which is then all that "
            "is left over; do not trust a small p-value"
        )
    check_room((x.kernel, x.kernel.points(X)), (y.kernel, y.kernel.points(Y)), (kernel_z, Z))
    details = {"regression_x": x.how, "regression_y": y.how}
    found = residual_test(x, y, candidates[0], Z, options, details)
    return replace(found, kernel=(x.kernel, y.kernel, kernel_z))


def conditional_mmd_test(
    X1: PointsLike,
    Y1: PointsLike,
    X2: PointsLike,
    Y2: PointsLike,
    kernel_x: Kernel | None = None,
    kernel_y: Kernel | None = None,
    permutations: int = 1000,
    rng: Rng = None,
    *,
    alpha: float = 0.05,
) -> KernelTestResult:
    r"""Test whether the distribution of y given x is the same in two samples.

    The distributions of x may differ. With a label t that says which sample a pair is from, the
    question is whether y and t are independent given x, that of :func:`ci_test`:

    .. math:: T = \Big\| \frac{1}{n} \sum_i (t_i - \hat e(x_i))\,
              (\psi(y_i) - \mu_{Y|x_i}) \otimes \phi(x_i) \Big\|^2

    where e(x) is the share of the first sample at x and mu the embedding of y given x of both
    together. T estimates the difference of the two conditional embeddings where both samples are,
    weighted by e(1 - e): no pair counts more than another for being rare in its sample.

    Parameters
    ----------
    X1, Y1 : points (n, ...)
        Pairs of the first sample. Both samples together are at least 10.
    X2, Y2 : points (m, ...)
        Pairs of the second sample.
    kernel_x, kernel_y : Kernel, optional
        As ``kernel_z`` and ``kernel_x`` of :func:`ci_test`.
    permutations, rng, alpha
        As in :func:`ci_test`.

    Returns
    -------
    KernelTestResult
        ``effect``: a partial kernel correlation of y and the label. ``witness``: how much each x
        contributes, where the conditional distributions differ. ``details["overlap"]``: mean of
        e(1 - e) over that of the label, one if x has one distribution and zero if the samples
        share no x.

    Notes
    -----
    An error of only one of the regressions, of y or of the label on x, does no harm. What
    :func:`ci_test` says about its level holds here too. Where the samples share no x there is
    nothing to compare: a ``NumericalWarning`` says so.

    Examples
    --------
    >>> import numpy as np
    >>> import kernelbayes as kb
    >>> rng = np.random.default_rng(0)
    >>> x1, x2 = rng.normal(size=150), rng.normal(0.7, size=150)  # x is shifted
    >>> y1, y2 = x1 + 0.5 * rng.normal(size=150), x2 + 0.5 * rng.normal(size=150)
    >>> kb.mmd_test(y1, y2, rng=0).pvalue < 0.05  # so y is
    True
    >>> kb.conditional_mmd_test(x1, y1, x2, y2, rng=0).pvalue > 0.05  # but not y given x
    True
    >>> kb.conditional_mmd_test(x1, y1, x2, y2 + 0.5, rng=0).pvalue < 0.05
    True
    """
    options = _checked(permutations, rng, alpha, {"kernel_x": kernel_x, "kernel_y": kernel_y})
    X2, Y2 = same_columns(X1, X2, kernel_x), same_columns(Y1, Y2, kernel_y)
    kernel_x = pooled_kernel(X1, X2, "X1", "X2") if kernel_x is None else kernel_x
    first = pooled_kernel(Y1, Y2, "Y1", "Y2") if kernel_y is None else kernel_y
    X1, X2 = one_space(kernel_x, X1, X2)
    Y1, Y2 = one_space(first, Y1, Y2)
    sizes = check_pairs(X1=X1, Y1=Y1), check_pairs(X2=X2, Y2=Y2)
    X, Y = concatenate(X1, X2), concatenate(Y1, Y2)
    check_room((kernel_x, X), (first, Y))
    candidates = Candidate.family(kernel_x, X)
    # A kernel on other than vectors sees the pooled points as they are.
    y = left_over(kernel_y if first.is_vector else first, Y, "Y", candidates)
    t = left_over(Delta(), np.repeat([0, 1], sizes), "the label", candidates)
    e = np.einsum("ij,ij->i", t.R, t.R)  # of both labels: 2 (t - e)^2, on average 2 e (1 - e)
    overlap = min(1.0, float(e.mean()) * sum(sizes) ** 2 / (2.0 * sizes[0] * sizes[1]))
    if t.how["features"]["noiseless"]:
        warn(
            "x tells the samples apart: they share no x at which y could be compared, so do not "
            "trust the p-value"
        )
    details = {"regression_y": y.how, "regression_label": t.how, "overlap": overlap}
    found = residual_test(y, t, candidates[0], X, options, details)
    test = "conditional MMD"
    return replace(found, kernel=(kernel_x, y.kernel), test=test, sizes=sizes)


def _checked(
    permutations: int, rng: Rng, alpha: float, kernels: Mapping[str, Kernel | None]
) -> Options:
    for name, kernel in kernels.items():
        if kernel is not None:
            as_kernel(kernel, name)
    return Options(permutations, as_generator(rng), alpha)
