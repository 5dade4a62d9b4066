r"""Kernels on curved spaces, circles and rotations, and their means.

A weighted average of angles or of rotation matrices is not a sensible mean: the
average of 359 and 1 degrees is 180. The *extrinsic* mean averages in the space around, the plane
around the circle or the matrices around the rotations, and projects back. It is the point closest
to the average, and does not depend on the sum of the weights.
"""

import math
from dataclasses import dataclass

import numpy as np
from scipy.spatial.transform import Rotation as SpatialRotation

from kernelbayes.arrays import as_floats, like, namespace, narrowed, to_numpy, weighted_sum
from kernelbayes.kernels.radial import Radial
from kernelbayes.points import positive, positive_each, vectors
from kernelbayes.types import Array, Floats, Points, PointsLike


@dataclass(frozen=True, eq=False)
class _Curved(Radial):
    """The Gaussian kernel of a space around a curved one."""

    has_density = False  # a Gaussian knows nothing of the curvature
    is_curved = True  # an average of points is not a point


@dataclass(frozen=True, eq=False)
class Periodic(_Curved):
    r"""Periodic kernel, for angles and seasons.

    .. math:: k(x, y) = \exp\left(-\sum_j \frac{2 \sin^2(\pi (x_j - y_j) / p_j)}{h_j^2}\right)

    with period p (one, or one per dimension): the Gaussian kernel of the chord between points of
    unit circles. Characteristic on the circle (torus). For angles in radians the period is 2 pi.

    Examples
    --------
    >>> from kernelbayes import Periodic
    >>> Periodic(1.0, period=24.0)([0.0, 24.0, 6.0], [0.0]).round(4)
    array([[1.    ],
           [1.    ],
           [0.3679]])
    """

    period: float | tuple[float, ...] = 2.0 * math.pi

    is_smooth = True

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "period", positive_each(self.period, "period"))

    def _coordinates(self, X: Points) -> Array:
        xp = namespace(X)
        if isinstance(self.period, tuple) and len(self.period) != X.shape[1]:
            raise ValueError(f"{len(self.period)} periods for {X.shape[1]} dimensions")
        angle = X * (2.0 * math.pi / like(self.period, X))
        parts = [self._in_bandwidths(part) for part in (xp.cos(angle), xp.sin(angle))]
        return xp.concat(parts, axis=1)

    def periods(self, d: int) -> tuple[float | None, ...]:
        """Period of each of d coordinates."""
        return self.period if isinstance(self.period, tuple) else (self.period,) * d

    def mean_of(self, points: Points, weights: Array) -> Array:
        """Direction of the average of points on the circle, in [0, period)."""
        X = vectors(points)
        xp = namespace(X)
        scale = like(self.period, X) / (2.0 * math.pi)
        angle = X / scale
        sine, cosine = (weighted_sum(weights, part) for part in (xp.sin(angle), xp.cos(angle)))
        mean = narrowed(xp.atan2(sine, cosine), X) * scale
        turned = xp.where(mean < 0.0, mean + 2.0 * math.pi * scale, mean)
        return xp.where(turned >= 2.0 * math.pi * scale, 0.0 * turned, turned)


@dataclass(frozen=True, eq=False)
class Rotation(_Curved):
    r"""Kernel on the rotation group SO(3).

    .. math:: k(A, B) = \exp\left(-\frac{\|A - B\|_F^2}{2 h^2}\right)
              = \exp\left(-\frac{3 - \mathrm{Tr}(A B^\top)}{h^2}\right)

    Points are (n, 3, 3) rotation matrices or a :class:`scipy.spatial.transform.Rotation`. The
    Gaussian kernel of the entries, restricted to a compact set, hence characteristic on SO(3);
    the same from the left and the right, k(RA, RB) = k(AR, BR) = k(A, B).

    Examples
    --------
    >>> import numpy as np
    >>> from kernelbayes import Rotation
    >>> Rotation(1.0)(np.eye(3)[None])
    array([[1.]])
    """

    takes_rows = False  # a point is a matrix

    def __post_init__(self) -> None:
        object.__setattr__(self, "bandwidth", positive(self.bandwidth, "bandwidth"))

    def _points(self, X: PointsLike, name: str) -> Points:
        if isinstance(X, SpatialRotation):
            X = np.atleast_3d(X.as_matrix()).reshape(-1, 3, 3)
        X = as_floats(X, name)
        if X.ndim != 3 or X.shape[1:] != (3, 3) or X.shape[0] == 0:
            raise ValueError(f"{name} must be rotations of shape (n, 3, 3), got {tuple(X.shape)}")
        A = to_numpy(X).astype(np.float64)
        off = np.abs(A @ A.swapaxes(1, 2) - np.eye(3)).max(axis=(1, 2))
        bad = np.flatnonzero((off > 1e-3) | (np.linalg.det(A) < 0))
        if bad.size:
            raise ValueError(
                f"{name}[{bad[0]}] is not a rotation matrix ({bad.size} of {len(A)} are not); "
                "project each on SO(3) by its singular value decomposition first"
            )
        return X

    def _coordinates(self, X: Points) -> Array:
        return namespace(X).reshape(X, (X.shape[0], 9)) / self.bandwidth

    def _dimension(self, _: Points) -> int:
        raise ValueError("Rotation has one bandwidth; per_dimension=True makes no sense for it")

    def mean_of(self, points: Points, weights: Array) -> Array:
        """Rotation closest to the average matrix."""
        return rotation_mean(points, weights)

    def preimage_of(self, points: Points, weights: Array) -> Array:
        """Return the rotation closest to the average matrix in Frobenius norm."""
        return rotation_mean(points, weights)


def rotation_mean(points: Points, weights: Array) -> Array:
    """Rotation closest to the average matrix, by its singular value decomposition."""
    matrices = to_numpy(points)
    n, p, q = matrices.shape
    W = to_numpy(weights)
    means = weighted_sum(np.atleast_2d(W), matrices.reshape(n, -1)).reshape(-1, p, q)
    U, _, V = np.linalg.svd(means)
    U[..., -1] *= np.sign(np.linalg.det(U @ V))[:, None]  # a rotation, not a reflection
    means = U @ V
    return like(means[0] if W.ndim == 1 else means, weights)


def are_rotations(matrices: Floats) -> bool:
    """Whether all matrices (n, p, q) are rotations, to single precision."""
    if matrices.ndim != 3 or matrices.shape[1] != matrices.shape[2]:
        return False
    products = matrices @ np.swapaxes(matrices, 1, 2)
    return bool(
        np.allclose(products, np.eye(matrices.shape[1]), atol=1e-6)
        and np.all(np.linalg.det(matrices) > 0)
    )
