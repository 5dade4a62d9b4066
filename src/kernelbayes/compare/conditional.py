r"""Test of conditional independence: two variables given a third.

Regress the features of x and of y on z (two conditional embeddings) and look whether what is left
over is still correlated anywhere along z,

.. math:: T = \frac{1}{n^2} \sum_{ij} \langle r_i, r_j\rangle\, \langle s_i, s_j\rangle\,
          k_Z(z_i, z_j), \qquad r_i = \phi(x_i) - \mu_{X|z_i}, \quad s_i = \psi(y_i) - \mu_{Y|z_i}

the squared norm of the mean of r (x) s (x) phi(z), which is zero under conditional independence.
It is KCI (Zhang, Peters, Janzing and Schoelkopf 2011) in the form of a generalised covariance
measure (Shah and Peters 2020; Pogodin et al. 2024).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from kernelbayes.arrays import Points, Rng, as_generator
from kernelbayes.compare.nulls import (
    as_float64,
    check_options,
    check_pairs,
    check_sizes,
    diagonal,
    pvalue,
    warn_if_constant,
)
from kernelbayes.compare.results import (
    Effect,
    Floats,
    KernelTestResult,
    Witness,
    effect_of,
    power_of,
)
from kernelbayes.conditional import default_kernel
from kernelbayes.kernels import Kernel
from kernelbayes.linalg import LowRank
from kernelbayes.loo import exact_features, loo_errors, loo_subset, ridge_grid
from kernelbayes.select import rescaled

# Multiples of the bandwidth of z from which each regression chooses. The wide ones are close to
# polynomials, which several dimensions of z need.
SCALES = (1.0, 0.5, 2.0, 4.0, 8.0)


def ci_test(
    X: Any,
    Y: Any,
    Z: Any,
    kernel_x: Kernel | None = None,
    kernel_y: Kernel | None = None,
    kernel_z: Kernel | None = None,
    permutations: int = 1000,
    rng: Rng = None,
    *,
    level: float = 0.05,
) -> KernelTestResult:
    r"""Test whether X and Y are independent given Z, by residuals of conditional embeddings.

    Parameters
    ----------
    X, Y, Z : points (n, ...)
        Aligned rows, at least 10.
    kernel_x, kernel_y, kernel_z : Kernel, optional
        None means the Gaussian kernel with the median heuristic for numbers, Delta for anything
        else. The regressions on z choose multiples of the bandwidth of ``kernel_z``, and their
        ridges, by leave-one-out.
    permutations : int
        Number of draws of the multiplier bootstrap.
    rng : int, Generator or None
    level : float
        For ``power_estimate``.

    Returns
    -------
    KernelTestResult
        ``effect``: root of T over its value for equal residuals, a partial kernel correlation.
        ``witness``: how much each z contributes. ``details``: ridges and kernels of the
        regressions.

    Notes
    -----
    The null distribution multiplies the terms r_i (x) s_i (x) phi(z_i) by random signs. It is
    asymptotic, and right only as far as the regressions are: an error that both make at the same z
    looks like dependence. No test of conditional independence holds its level without such an
    assumption (Shah and Peters 2020). Expect too many rejections when z has many dimensions, n is
    small and z explains most of x and y.

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
    check_options(permutations, level)
    generator = as_generator(rng)
    kernel_x = default_kernel(X) if kernel_x is None else kernel_x
    kernel_y = default_kernel(Y, "Y") if kernel_y is None else kernel_y
    kernel_z = default_kernel(Z, "Z") if kernel_z is None else kernel_z
    X, Y, Z = kernel_x.points(X, "X"), kernel_y.points(Y, "Y"), kernel_z.points(Z, "Z")
    n = check_pairs(X=X, Y=Y, Z=Z)
    check_sizes(10, sample=n)
    R, of_x = residuals(kernel_x, X, kernel_z, Z)
    S, of_y = residuals(kernel_y, Y, kernel_z, Z)
    G_x, G_y, G_z = R @ R.T, S @ S.T, as_float64(kernel_z(Z))
    V = G_x * G_y * G_z
    contributions = V.mean(axis=1)
    statistic = float(contributions.mean())
    null = sign_bootstrap(V, permutations, generator)
    diagonals = (diagonal(k, P) for k, P in ((kernel_x, X), (kernel_y, Y), (kernel_z, Z)))
    scale = math.prod(float(np.abs(d).max()) for d in diagonals)
    warn_if_constant(null, statistic, scale, "nothing of x or y is left over given z")
    # The first term of the variance is that of the mean of 2 h(z), the second is left under H0.
    error = float(np.sqrt(4.0 * contributions.var() / n + null.var()))
    return KernelTestResult(
        statistic=statistic,
        pvalue=pvalue(statistic, null, scale),
        null=null,
        kernel=(kernel_x, kernel_y, kernel_z),
        effect=_effect(V, (G_x, G_y, G_z), error, scale),
        power_estimate=power_of(statistic, null, error, level),
        level=level,
        test="conditional independence",
        method="multiplier bootstrap",
        sizes=(n,),
        witness=Witness(Z, contributions),
        details={"regression_x": of_x, "regression_y": of_y},
    )


def residuals(
    kernel: Kernel, points: Points, kernel_z: Kernel, Z: Points
) -> tuple[Floats, dict[str, Any]]:
    """Residuals (n, r) of the features of a variable regressed on z, and how.

    The regression has an intercept; kernel and ridge have the least leave-one-out error.
    """
    H = exact_features(kernel, points)[0]
    H = H - H.mean(axis=0)
    keep = loo_subset(len(H))
    best: tuple[float, float, Kernel, Floats] | None = None
    for candidate in dict.fromkeys(rescaled(kernel_z, scale) for scale in SCALES):
        F = exact_features(candidate, Z)[0]
        F = np.column_stack([F, np.ones(len(F))])
        ridges = ridge_grid(F)
        errors = loo_errors(F[keep], H[keep], ridges)
        i = int(np.argmin(errors))
        if best is None or errors[i] < best[0]:
            best = float(errors[i]), float(ridges[i]), candidate, F
    assert best is not None
    error, ridge, chosen, F = best
    solver = LowRank(F).ridge(ridge)
    left = solver.diagnostics.ridge_used * solver.values(H)  # (I - F (F^T F + n ridge)^-1 F^T) H
    return np.asarray(left), {"kernel_z": chosen, "ridge": ridge, "loo_error": error}


def sign_bootstrap(V: Floats, draws: int, rng: np.random.Generator) -> Floats:
    """Means (draws,) of V_ij e_i e_j over random signs e; the diagonal is that of the statistic."""
    n = len(V)
    E = rng.choice(np.array([-1.0, 1.0]), size=(n, draws))
    return np.asarray(np.einsum("ij,ij->j", E, V @ E) / n**2)


def _effect(V: Floats, grams: tuple[Floats, Floats, Floats], error: float, scale: float) -> Effect:
    """Partial kernel correlation from the sums without the diagonal."""
    G_x, G_y, G_z = grams

    def hollow(A: Floats) -> float:
        return float(A.sum() - A.trace()) / (len(A) * (len(A) - 1))

    largest = np.sqrt(max(0.0, hollow(G_x**2 * G_z)) * max(0.0, hollow(G_y**2 * G_z)))
    if largest <= 1e-12 * scale:
        return Effect(0.0, (0.0, 0.0))
    found = effect_of(hollow(V) / largest, error / largest)
    low, high = (min(1.0, v) for v in found.interval)
    return Effect(min(1.0, found.size), (low, high))
