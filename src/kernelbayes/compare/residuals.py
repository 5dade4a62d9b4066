r"""What z leaves unexplained in two variables, and whether that is still correlated along z.

Regress the features of x and of y on z (two conditional embeddings) and look whether what is left
over is still correlated anywhere along z,

.. math:: T = \frac{1}{n^2} \sum_{ij} \langle r_i, r_j\rangle\, \langle s_i, s_j\rangle\,
          k_Z(z_i, z_j), \qquad r_i = \phi(x_i) - \mu_{X|z_i}, \quad s_i = \psi(y_i) - \mu_{Y|z_i}

the squared norm of the mean of r (x) s (x) phi(z), which is zero under conditional independence.
It is KCI (Zhang, Peters, Janzing and Schoelkopf 2011) in the form of a generalised covariance
measure (Shah and Peters 2020; Pogodin et al. 2024). An error of only one of the regressions does
no harm; an error that both make at the same z looks like dependence. Two things keep that small:

*Location first.* x and y are independent given z if and only if x - f(z) and y - g(z) are, for any
functions f and g. So vectors are first replaced by their residuals from a regression on z, and the
conditional embedding is left with what is not a change of location. All of the mean embedding of
x = f(z) + noise is learnt by estimating f, which is far easier than learning phi(f(z) + noise).

*The regressions themselves correlate residuals.* With r = M e, where M = I - P is the residual
maker and e independent, <r_i, r_j> has the mean (M V M)_ij, V the variances. The same holds for s,
and the products of the two have a positive sum even under the null hypothesis. It is computed in
closed form and added to the null distribution.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from kernelbayes.arrays import as_doubles
from kernelbayes.compare import problem
from kernelbayes.compare.problem import Estimate, Options, Outcome
from kernelbayes.compare.result import KernelTestResult, Witness
from kernelbayes.compare.samples import check_pairs
from kernelbayes.gram import Gram, LowRank
from kernelbayes.gram.loo import loo, loo_subset, ridge_grid
from kernelbayes.kernels import Kernel
from kernelbayes.kernels.default import default_kernel
from kernelbayes.types import Floats, Points, PointsLike

# Multiples of the bandwidth of z from which leave-one-out chooses, for each regression: an octave
# below, and up to where a smooth function of z in several dimensions is nearly a polynomial.
Z_MULTIPLES = (1.0, 0.5, 2.0, 4.0, 8.0)
# Residuals smaller than this share of the variable's deviation are rounding errors: a regression at
# the smallest ridge is a solve of condition 1e8, which leaves 8 of 16 digits, and some slack.
EXPLAINED = 1e-6
# Digits of residuals, in units of the variable's deviation: equal pairs must have equal residuals,
# since the default kernel looks at values that differ. The last six of 16 digits are rounding.
DIGITS = 10
# Left-out error, relative to the targets, up to which a regression at the smallest ridge shows no
# noise: a hundredth of the deviation.
NOISELESS = 1e-4
# Least share of its own error that a residual keeps: a point that decides its own fit has none,
# and tells nothing of the variance there.
LEAST_KEPT = 1e-3


@dataclass(frozen=True, eq=False)
class Candidate:
    """One kernel on z, its features (n, r) at the points, and the ridges to choose from."""

    kernel: Kernel
    features: Floats
    ridges: Floats

    @classmethod
    def family(cls, kernel: Kernel, Z: Points) -> list[Self]:
        """Multiples of a kernel's bandwidth, that itself first; the regressions have intercepts."""
        found = []
        for candidate in dict.fromkeys(kernel.scaled(scale) for scale in Z_MULTIPLES):
            F = features_of(candidate, Z)
            F = np.column_stack([F, np.ones(len(F))])
            found.append(cls(candidate, F, ridge_grid(F)))
        return found

    @property
    def gram(self) -> Floats:
        """Gram matrix (n, n) of the kernel, without the intercept."""
        F = self.features[:, :-1]
        return np.asarray(F @ F.T)


@dataclass(frozen=True, eq=False)
class LeftOver:
    """What z does not explain of one variable: residual features R (n, r), and their maker M."""

    kernel: Kernel
    R: Floats
    M: Floats
    scale: float
    how: dict[str, Any]

    def induced(self) -> Floats:
        """Mean of <r_i, r_j>, i != j, if errors are independent: (M V M^T)_ij, zero diagonal."""
        kept = np.einsum("ij,ij->i", self.M, self.M)
        variances = np.einsum("ij,ij->i", self.R, self.R) / np.maximum(kept, LEAST_KEPT)
        A = (self.M * variances) @ self.M.T
        np.fill_diagonal(A, 0.0)
        return np.asarray(A)


def left_over(
    kernel: Kernel | None, points: PointsLike, name: str, candidates: Sequence[Candidate]
) -> LeftOver:
    """Residuals of the features of a variable from its regression on z, the location first."""
    first = default_kernel(points, name) if kernel is None else kernel
    points = first.points(points, name)
    n = check_pairs(**{name: points, "Z": candidates[0].features})
    problem.check_sizes(10, **{"the sample": n})
    before: Floats | None = None
    how: dict[str, Any] = {}
    if first.is_vector:
        values = as_doubles(points).reshape(n, -1)
        values = values - values.mean(axis=0)
        spread = values.std(axis=0)
        unit = np.where(spread > 0.0, spread, 1.0)
        before, how["location"] = regression(values / unit, candidates)
        points = unit * np.round(before @ (values / unit), DIGITS)
        points[:, points.std(axis=0) <= EXPLAINED * spread] = 0.0
        first = default_kernel(points, name) if kernel is None else kernel
    H = features_of(first, points)
    H = H - H.mean(axis=0)
    M, how["features"] = regression(H, candidates)
    if before is not None:  # the error of the location is smoothed like the location
        M = M @ before
    return LeftOver(first, M @ H, M, float(np.abs(as_doubles(first.diag(points))).max()), how)


def features_of(kernel: Kernel, points: Points) -> Floats:
    """Features (n, r) of a kernel, its own or a pivoted factor of the Gram matrix."""
    return np.asarray(Gram.of(kernel, points, tol=problem.FACTOR_TOL, rng=0, double=True).factor)


def regression(H: Floats, candidates: Sequence[Candidate]) -> tuple[Floats, dict[str, Any]]:
    """Residual maker I - P (n, n) of targets H (n, q) regressed on z, by leave-one-out; and how."""
    keep = loo_subset(len(H))
    tables = [loo(c.features[keep], H[keep], c.ridges).errors for c in candidates]
    k = int(np.argmin([errors.min() for errors in tables]))
    i, chosen = int(np.argmin(tables[k])), candidates[k]
    solver = LowRank(chosen.features).ridge(float(chosen.ridges[i]))
    M = solver.diagnostics.ridge_used * solver.values(np.eye(len(H)))
    how = {"kernel_z": chosen.kernel, "ridge": float(chosen.ridges[i])}
    # The smallest ridge of all and next to no error: there is no sign of noise.
    error, size = float(tables[k][i]), float(np.mean(np.einsum("ij,ij->i", H, H)))
    return np.asarray(M), {
        **how,
        "loo_error": error,
        "noiseless": i == 0 and error <= NOISELESS * size,
    }


def hollow_mean(A: Floats) -> float:
    """Mean of the entries off the diagonal."""
    return float(A.sum() - A.trace()) / (len(A) * (len(A) - 1))


def residual_test(
    x: LeftOver, y: LeftOver, given: Candidate, Z: Points, options: Options, details: dict[str, Any]
) -> KernelTestResult:
    """Test whether what is left over of two variables given z is correlated anywhere along z."""
    n = len(x.R)
    G_x, G_y, G_z = x.R @ x.R.T, y.R @ y.R.T, given.gram
    V = G_x * G_y * G_z
    contributions = V.mean(axis=1)
    statistic = float(contributions.mean())
    shift = float(np.sum(x.induced() * y.induced() * G_z)) / n**2
    signs = options.rng.choice(np.array([-1.0, 1.0]), size=(n, options.permutations))
    # Each draw has the diagonal of the statistic.
    null = np.einsum("ij,ij->j", signs, V @ signs) / n**2 + shift
    scale = x.scale * y.scale * float(np.abs(as_doubles(given.kernel.diag(Z))).max())
    # The first term of the variance is that of the mean of 2 h(z), the second is left under H0.
    error = float(np.sqrt(4.0 * contributions.var() / n + null.var()))
    # A partial kernel correlation, from the sums without the diagonal and the regressions' share.
    largest = max(0.0, hollow_mean(G_x**2 * G_z)) * max(0.0, hollow_mean(G_y**2 * G_z))
    spread = max(float(np.sqrt(largest)), np.finfo(float).tiny)
    estimate = Estimate(hollow_mean(V) - shift, spread, error, error / spread)
    found = Outcome(statistic, null, estimate, scale, {}, witness=Witness(Z, contributions))
    return found.result(
        *(options.alpha, 1.0, "nothing of x or y is left over given z"),
        kernel=(x.kernel, y.kernel),
        test="conditional independence",
        method="multiplier bootstrap",
        sizes=(n,),
        details={**details, "shift": shift},
    )
