"""The first ridge of Bayes' rule: KuLSIF's leave-one-out score in closed form."""

import numpy as np
import numpy.typing as npt

from kernelbayes.arrays import as_doubles, like, to_float
from kernelbayes.embedding import Embedding, MeanElement, embed
from kernelbayes.embedding.gaussian import GaussianEmbedding
from kernelbayes.embedding.mean import LEAST_SHARE
from kernelbayes.gram import Dense, exact_features
from kernelbayes.gram.lapack import eigh
from kernelbayes.gram.loo import left_share, loo_subset, ridge_grid
from kernelbayes.gram.solvers import CONDITION_BOUND
from kernelbayes.points import count, take
from kernelbayes.types import Floats, Points

# Share of the numerator in the denominator of the relative ratio, as Yamada et al. (2011) use it.
RELATIVE = 0.1
# Points drawn from a Gaussian prior in closed form to choose its ridge: as many as a large sample
# has, at half the cost of the largest that is used (LOO_POINTS).
GAUSSIAN_POINTS = 1000
# A numerator of which one point has more than this share of the weight is taken as exact: without
# the point, little of it would be left.
HEAVIEST = 0.75


def kulsif_ridge(m: MeanElement, Z: Points) -> float:
    """First ridge eta with the smallest leave-one-out score of the relative ratio."""
    ridges, scores = relative_scores(m, Z)
    return float(ridges[np.argmin(scores)])


def relative_scores(m: MeanElement, Z: Points) -> tuple[Floats, Floats]:
    """Ridges and their leave-one-out scores of the relative ratio, which compare kernels too.

    Kanamori's own score is not bounded below when points of the numerator lie where the
    denominator has none: a wild ratio there is rewarded and never punished. The relative ratio
    (Yamada et al. 2011) is bounded, so its score is too.
    """
    if isinstance(m, GaussianEmbedding):  # the bounded score needs points: a fixed sample
        mean, cov = as_doubles(m.mean), as_doubles(m.cov)
        points = np.random.default_rng(0).multivariate_normal(mean, cov, size=GAUSSIAN_POINTS)
        m = embed(like(points, m.mean), m.kernel)
    return kulsif_scores(m, Z, relative=RELATIVE)


def kulsif_scores(
    m: MeanElement, Z: Points, ridges: npt.ArrayLike | None = None, relative: float = 0.0
) -> tuple[Floats, Floats]:
    """Leave-one-out scores of KuLSIF over ridges: half of E_den[r^2] minus E_num[r].

    The score is an unbiased estimate, up to a constant, of half the squared distance between the
    estimated and the true ratio in L2 of the denominator, so it compares kernels as well as
    ridges. Beyond 2000 points a random subset is used.
    """
    Z = take(Z, loo_subset(count(Z)))
    if not isinstance(m, Embedding):  # a closed form: leave out points of the denominator only
        values = as_doubles(m(Z))[:, None]
        square = np.array([[to_float(m.norm()) ** 2]])
        L = Dense(np.block([[as_doubles(m.kernel(Z)), values], [values.T, square]])).factor
        F, mean, U, w = L[:-1], L[-1], None, None
    else:
        keep = loo_subset(len(m))
        w = as_doubles(m.weights)[keep]
        total = float(w.sum())
        if abs(total) > LEAST_SHARE * float(np.abs(w).sum()):
            w = w / total  # the ridge of a multiple of the prior is the prior's
        F, U = exact_features(m.kernel, Z, take(m.points, keep))
        mean = w @ U
    found = ridge_grid(F) if ridges is None else np.asarray(ridges, dtype=float)
    if ridges is None and U is not None:
        # Features of the denominator that are nearly zero beside the numerator's say nothing.
        found = np.maximum(found, float(np.mean(np.sum(U * U, axis=1))) / CONDITION_BOUND)
    return found, kulsif_loo(F, mean, found, U, w, relative)


def kulsif_loo(
    F: Floats,
    mean: Floats,
    ridges: Floats,
    U: Floats | None = None,
    w: Floats | None = None,
    relative: float = 0.0,
) -> Floats:
    r"""Closed-form leave-one-out scores (Kanamori, Suzuki and Sugiyama 2012, section 3.4).

    With pair l left out of both samples, ``r = (C + eta)^-1 m`` changes by a rank-one update:
    for B = F^T F + (n - 1) eta I and h = f_l^T B^-1 f_l,

    .. math:: r^{(l)}(z_l) = (n-1) \frac{f_l^\top B^{-1} m^{(l)}}{1 - h}, \quad
              r^{(l)}(u_l) = (n-1) \left(u_l^\top B^{-1} m^{(l)}
              + \frac{u_l^\top B^{-1} f_l \; f_l^\top B^{-1} m^{(l)}}{1 - h}\right)

    Parameters
    ----------
    F, mean : arrays (n, r) and (r,)
        Features of the denominator's points and of the numerator's embedding.
    U, w : arrays (m, r) and (m,), optional
        Features and weights of the numerator's points; without them the numerator is exact.
        The shorter sample is gone through more than once, so that every point is left out.
    relative : float
        Score the left-out values of r / (relative r + 1 - relative), cut off at zero, with
        ``relative`` of the numerator mixed into the denominator; 0 is Kanamori's score.
    """
    n = len(F)
    if n == 1:
        return ridges  # nothing to leave out: the smallest ridge is best
    squares, Q = eigh(F.T @ F)
    inverses = 1.0 / (np.maximum(squares, 0.0) + (n - 1) * ridges[:, None])
    P, p = F @ Q, mean @ Q
    if U is None or w is None or np.abs(w).max() >= HEAVIEST * abs(w.sum()):
        return np.array([_exact_score(P, p, b, n - 1) for b in inverses])
    pairs = np.arange(max(n, len(U)))
    V, v, P = (U @ Q)[pairs % len(U)], w[pairs % len(U)], P[pairs % n]
    return np.array([_score(P, p, V, v, b, n - 1, relative) for b in inverses])


def _exact_score(P: Floats, p: Floats, b: Floats, m: int) -> float:
    """Score of a numerator that is known exactly: half of E_den[r^2] minus E_num[r]."""
    rest = left_share(1.0 - (P * P) @ b)
    z_m = P @ (b * p)
    expected = m * (p * p @ b + z_m**2 / rest)
    return float(np.mean(0.5 * (m * z_m / rest) ** 2 - expected))


def _score(P: Floats, p: Floats, V: Floats, v: Floats, b: Floats, m: int, relative: float) -> float:
    """Score with pairs left out of both samples: features P and V, in eigenvectors; see above."""
    rest = left_share(1.0 - (P * P) @ b)
    u_z = np.einsum("ij,ij,j->i", V, P, b)
    u_m = (V @ (b * p) - v * ((V * V) @ b)) / (1.0 - v)
    z_m = (P @ (b * p) - v * u_z) / (1.0 - v)
    r_z, r_u = m * z_m / rest, m * (u_m + u_z * z_m / rest)
    if relative:
        r_z, r_u = (np.maximum(r, 0.0) for r in (r_z, r_u))
        r_z, r_u = (r / (relative * r + 1.0 - relative) for r in (r_z, r_u))
    second = (1.0 - relative) * np.mean(r_z**2) + relative * (v @ r_u**2) / v.sum()
    return float(0.5 * second - v @ r_u / v.sum())
