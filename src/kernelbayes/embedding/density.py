"""Density and mode: kernel density estimates from the weighted sample."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from array_api_compat import is_array_api_obj

from kernelbayes.arrays import Array, Floats, to_numpy
from kernelbayes.embedding.base import Validity, WeightedSample
from kernelbayes.embedding.smooth import bandwidths, silverman
from kernelbayes.kernels import Delta, Gaussian, Kernel, Periodic
from kernelbayes.points import Points, as_vectors, take

# Heaviest points among which mean shift looks for places to start.
MODE_CANDIDATES = 500


class Densities(WeightedSample):
    """What the distribution looks like."""

    def density(self, X: Any, bandwidth: Any = None, valid: Validity = True) -> Array:
        r"""Density at points X (k, d), shape (k,).

        .. math:: \hat p(x) = \sum_i w_i J_h(x - x_i)

        with J_h the normal density of standard deviation h (KMCF16 eq. 5.4).

        Parameters
        ----------
        X : points (k, d)
        bandwidth : float or array (d,), optional
            h, by default Silverman's rule for the weighted sample (of the effective sample size).
            It oversmooths several narrow peaks; give a smaller one then.
        valid : bool or str
            As for :meth:`prob`; a density of raw weights may be negative. A density has no
            rearrangement.

        Examples
        --------
        >>> from kernelbayes import Gaussian, embed
        >>> embed([0.0, 1.0], Gaussian(1.0)).density([0.5], bandwidth=0.5).round(3)
        array([0.484])
        """
        P = to_numpy(self._vectors)
        X = to_numpy(as_vectors(X, "X"))
        if X.shape[1] != P.shape[1]:
            raise ValueError(f"X has {X.shape[1]} coordinates, the points have {P.shape[1]}")
        weights = self._distribution(_not_rearranged(valid))
        return self._answer(density(P, weights, X, bandwidth))

    def mode(
        self,
        starts: int = 5,
        bandwidth: Any = None,
        by: Literal["density", "weight"] = "density",
    ) -> Points:
        """Most probable point, shape (d,).

        Parameters
        ----------
        starts : int
            Places from which the density is climbed.
        bandwidth : float or array (d,), optional
            Of the density.
        by : {"density", "weight"}
            The density's highest peak, by mean shift from the highest of the heaviest points; or
            the point of largest weight, which any space has (coinciding points are not added up).
            For points that are not vectors (categories, rotations) "density" is the point where
            the embedding is highest.

        Examples
        --------
        >>> from kernelbayes import Delta, Gaussian, embed
        >>> embed([0.0, 1.0, 1.1], Gaussian(1.0)).mode().round(2)
        array([1.02])
        >>> str(embed(["a", "b"], Delta(), [0.3, 0.7]).mode(by="weight"))
        'b'
        """
        if by not in ("density", "weight"):
            raise ValueError(f"by must be 'density' or 'weight', got {by!r}")
        weights = self._distribution(True)
        if by == "weight":
            found = take(self.points, np.argmax(weights, axis=1))
            return first_point(found) if self._single else found
        if not has_density(self.points, self.kernel):  # but the embedding itself has a highest
            heights = np.atleast_2d(to_numpy(self.valid()(self.points)))
            found = take(self.points, np.argmax(heights, axis=1))
            return first_point(found) if self._single else found
        X = to_numpy(self._vectors)
        modes = []
        for w in weights:
            h = silverman(X, w) if bandwidth is None else bandwidths(bandwidth, X.shape[1])
            kernel = Gaussian(tuple(h))
            heavy = X[np.argsort(-w)[:MODE_CANDIDATES]]
            heights = kernel(heavy, X) @ w
            modes.append(_mean_shift(X, w, kernel, heavy[np.argsort(-heights)[:starts]]))
        return self._answer(np.stack(modes))


def density(P: Floats, W: Floats, X: Floats, bandwidth: float | Array | None = None) -> Floats:
    """Densities (m, k) at X (k, d) of rows of weights W (m, n) over points P (n, d)."""
    if bandwidth is None:
        return np.concatenate([density(P, w[None], X, silverman(P, w)) for w in W])
    h = bandwidths(bandwidth, P.shape[1])
    return np.asarray(W @ Gaussian(tuple(h))(P, X) / np.prod(np.sqrt(2.0 * np.pi) * h))


def grid_density(X: Floats, w: Floats, size: int) -> tuple[list[Floats], Floats]:
    """Density of a weighted sample (n, d), d = 1 or 2, on a grid over the points with weight.

    Returns the grid of each coordinate (size,), and the density (size,) or (size of y, size of x).
    """
    h = silverman(X, w)
    used = X[w > 1e-3 * w.max()]
    grids = [
        np.linspace(*ends, size)
        for ends in zip(used.min(0) - 3 * h, used.max(0) + 3 * h, strict=True)
    ]
    # A product kernel: one narrow matrix per coordinate instead of one over the whole grid.
    factors = [
        np.exp(-0.5 * ((g[:, None] - x) / s) ** 2) / (np.sqrt(2.0 * np.pi) * s)
        for g, x, s in zip(grids, X.T, h, strict=True)
    ]
    return grids, factors[0] @ w if len(grids) == 1 else (factors[1] * w) @ factors[0].T


def has_density(points: Points, kernel: Kernel) -> bool:
    """Whether points are numbers or vectors of numbers, and not angles or categories."""
    return bool(
        not isinstance(kernel, Periodic | Delta)
        and is_array_api_obj(points)
        and points.ndim <= 2
        and getattr(points.dtype, "kind", "f") in "fiub"
    )


def first_point(points: Points) -> Points:
    """Return the first of several points; of a joint variable, the first of every part."""
    if isinstance(points, dict):
        return {part: first_point(rows) for part, rows in points.items()}
    return points[0]


def _not_rearranged(valid: Validity) -> Validity:
    if valid == "rearranged":
        raise ValueError("a density has no rearrangement; use 'projected' or 'clipped'")
    return valid


def _mean_shift(X: Any, w: Any, kernel: Gaussian, starts: Any, steps: int = 200) -> Any:
    """Highest peak of sum_i w_i k(x, x_i), w >= 0, that mean shift finds from the starts."""
    x = starts.copy()
    for _ in range(steps):
        K = kernel(x, X) * w
        new = (K @ X) / np.maximum(K.sum(axis=1, keepdims=True), 1e-300)
        moved = np.abs(new - x).max()
        x = new
        if moved <= 1e-9 * np.max(kernel.bandwidth):
            break
    return x[np.argmax(kernel(x, X) @ w)]
