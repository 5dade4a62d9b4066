r"""Decoding: from a weighted sample to answers.

An embedding is a weighted sample whose weights may be negative and need not sum to one. Two kinds
of questions are asked of it:

* **Linear ones** (``expect``, ``mean``, ``moment``) are answered with the weights as they are:
  ``E[f] = sum_i w_i f(x_i)``, the estimate of the papers. Divide by the mass first, with
  ``normalized()``, if you want a probability.
* **Questions about a distribution** (``prob``, ``cdf``, ``quantile``, ``interval``, ``density``,
  ``mode``) need weights that are not negative and sum to one: by default those of ``valid()``, the
  closest ones in RKHS distance. ``valid=False`` takes the weights as they are, divided by their
  sum: probabilities may then leave [0, 1].

Everything works on a single embedding and on a batch, which adds a leading axis.

>>> import numpy as np
>>> from kernelbayes import Gaussian, embed
>>> mu = embed(np.random.default_rng(0).normal(2.0, 1.0, size=2000), Gaussian(0.5))
>>> mu.mean().round(1), mu.cov().round(1), mu.interval(0.9).round(1)
(array([2.]), array([[1.]]), array([[0.4, 3.6]]))
>>> round(float(mu.prob((1.0, 3.0))), 2)  # within one standard deviation
0.67
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from typing import Any, Literal, Self

import numpy as np

from kernelbayes.arrays import (
    Array,
    Points,
    Rng,
    as_array,
    as_generator,
    as_vectors,
    like,
    namespace,
    take,
    threads_for,
    to_numpy,
)
from kernelbayes.features import partial_cholesky
from kernelbayes.herding import herd_indices
from kernelbayes.kernels import Gaussian, Kernel, Rotation, Trace

# Rank and relative trace error of the features in which weights are projected on the simplex.
PROJECTION_RANK = 300
PROJECTION_TOLERANCE = 1e-8
# Heaviest points among which mean shift looks for places to start.
MODE_CANDIDATES = 500

Region = tuple[Any, Any] | Callable[[Any], Any]


class Decoding:
    """What can be read off an embedding (weights (n,)) or a batch (weights (m, n))."""

    points: Points
    weights: Array
    kernel: Kernel

    # --- linear -----------------------------------------------------------------------------------

    def expect(self, f: Callable[[Points], Array] | Array) -> Array:
        """Return sum_i w_i f(x_i), for a function of the points or for its values (n, ...)."""
        values = f(self.points) if callable(f) else f
        values = like(as_array(values), self.weights)
        flat = namespace(values).reshape(values, (values.shape[0], -1))
        result = self.weights @ flat
        return namespace(result).reshape(result, (*self.weights.shape[:-1], *values.shape[1:]))

    def mean(self) -> Array:
        """Mean, shape (d,)."""
        return self.weights @ self._vectors

    def moment(self, k: int) -> Array:
        """Raw moment of order k of each coordinate, shape (d,)."""
        if k < 1:
            raise ValueError(f"the order of a moment must be at least 1, got {k}")
        return self.weights @ self._vectors**k

    def cov(self) -> Array:
        """Covariance matrix (d, d), centred, of the weights divided by their sum."""
        X, xp = self._vectors, namespace(self.weights)
        w = self.normalized().weights  # type: ignore[attr-defined]
        X = X - xp.mean(X, axis=0)
        n, d = X.shape
        pairs = xp.reshape(X[:, :, None] * X[:, None, :], (n, d * d))
        second = xp.reshape(w @ pairs, (*w.shape[:-1], d, d))
        mean = w @ X
        return second - mean[..., :, None] * mean[..., None, :]

    # --- distributions ----------------------------------------------------------------------------

    def valid(self) -> Self:
        """Embedding whose weights are not negative and sum to one, closest in RKHS distance."""
        return replace(self, weights=self._valid_weights)  # type: ignore[type-var]

    def prob(self, region: Region, valid: bool = True) -> Array:
        """Probability of a region: a box (low, high) or a predicate on points.

        The ends of a box are numbers or one per coordinate, and may be infinite.
        """
        if callable(region):
            inside = np.asarray(to_numpy(as_array(region(self.points))), dtype=float)
            inside = inside[:, 0] if inside.ndim == 2 and inside.shape[1] == 1 else inside
        else:
            low, high = (np.asarray(to_numpy(as_array(end)), dtype=float) for end in region)
            X = to_numpy(self._vectors)
            inside = np.all((low <= X) & (high >= X), axis=1).astype(float)
        if inside.shape != (self.weights.shape[-1],):
            raise ValueError(
                f"a predicate must give one truth value per point, shape ({self.weights.shape[-1]}"
                f",), got {inside.shape}"
            )
        return self._distribution(valid) @ like(inside, self.weights)

    def cdf(self, x: Any, valid: bool = True) -> Array:
        """Distribution function P(all coordinates <= x) at points x (k, d), shape (k,)."""
        x = to_numpy(as_vectors(x, "x"))
        X = to_numpy(self._vectors)
        if x.shape[1] != X.shape[1]:
            raise ValueError(f"x has {x.shape[1]} coordinates, the points have {X.shape[1]}")
        below = np.all(X[:, None, :] <= x[None, :, :], axis=2).astype(float)
        return self._distribution(valid) @ like(below, self.weights)

    def quantile(self, q: Any) -> Array:
        """Quantiles of each coordinate, shape (len(q), d), of the valid weights."""
        levels = np.atleast_1d(np.asarray(q, dtype=float))
        if np.any((levels < 0) | (levels > 1)):
            raise ValueError(f"quantile levels must lie in [0, 1], got {q!r}")
        values = self._per_coordinate(lambda x, cumulative: np.interp(levels, cumulative, x))
        return like(np.moveaxis(values, -1, -2), self.weights)

    def interval(
        self, level: float = 0.9, kind: Literal["equal-tailed", "highest"] = "equal-tailed"
    ) -> Array:
        """Credible interval of each coordinate, shape (d, 2).

        Equal-tailed, or the shortest one ("highest").
        """
        if not 0.0 < level < 1.0:
            raise ValueError(f"level must lie in (0, 1), got {level!r}")
        if kind == "equal-tailed":
            ends = self.quantile([(1.0 - level) / 2.0, (1.0 + level) / 2.0])
            return namespace(ends).moveaxis(ends, -2, -1)
        if kind != "highest":
            raise ValueError(f"kind must be 'equal-tailed' or 'highest', got {kind!r}")
        return like(self._per_coordinate(lambda x, c: _shortest(x, c, level)), self.weights)

    def density(self, X: Any, bandwidth: Any = None, valid: bool = True) -> Array:
        """Density at points X, shape (len(X),): sum_i w_i J_h(x - x_i) (KMCF16 eq. 5.4).

        J_h is the normal density; h (one, or one per coordinate) is by default Silverman's rule
        for the weighted sample.
        """
        weights = np.atleast_2d(to_numpy(self._distribution(valid)))
        rows = [self._density_row(w, X, bandwidth) for w in weights]
        return like(rows[0] if self.weights.ndim == 1 else np.stack(rows), self.weights)

    def mode(self, starts: int = 5, bandwidth: Any = None) -> Array:
        """Mode (d,): the density's highest peak, by mean shift from the heaviest points."""
        X = to_numpy(self._vectors)
        modes = []
        for w in np.atleast_2d(to_numpy(self._distribution(True))):
            h = _silverman(X, w) if bandwidth is None else np.asarray(bandwidth, dtype=float)
            kernel = Gaussian(tuple(np.broadcast_to(h, X.shape[1])))
            heavy = X[np.argsort(-w)[:MODE_CANDIDATES]]
            heights = kernel(heavy, X) @ w
            modes.append(_mean_shift(X, w, kernel, heavy[np.argsort(-heights)[:starts]]))
        return like(modes[0] if self.weights.ndim == 1 else np.stack(modes), self.weights)

    def preimage(self, candidates: Any = None) -> Points:
        """Return the point y whose embedding k(., y) is closest to this one.

        Gaussian kernel: the fixed-point iteration of Mika et al. (1999), safeguarded against
        negative denominators. Rotations and matrices: the weighted mean matrix, projected on the
        rotations by its singular value decomposition. Everything else, or with ``candidates``:
        the best of the candidates (by default the embedding's own points).

        Returns
        -------
        point
            Of shape (d,); with a leading axis for a batch.
        """
        if candidates is None and isinstance(self.kernel, Rotation | Trace):
            return self._rotation()
        Y = self.points if candidates is None else self.kernel.points(candidates, "candidates")
        heights = 2.0 * self(Y) - self.kernel.diag(Y)  # type: ignore[operator]
        best = np.atleast_1d(np.argmax(to_numpy(heights), axis=-1))
        start = take(Y, best)
        if candidates is None and isinstance(self.kernel, Gaussian):
            W = np.atleast_2d(to_numpy(self.weights))
            found = _fixed_point(to_numpy(self.points), W, self.kernel, to_numpy(start))
            start = like(found, self.weights)
        if self.weights.ndim == 2:
            return start
        return (
            {part: rows[0] for part, rows in start.items()} if isinstance(start, dict) else start[0]
        )

    def sample(
        self, m: int, rng: Rng = None, method: Literal["herding", "iid"] = "herding"
    ) -> Points:
        """Draw m points: the herd (deterministic), or independent draws of the valid weights."""
        if m < 1:
            raise ValueError(f"the number of draws must be at least 1, got {m}")
        if self.weights.ndim != 1:
            raise TypeError("sample from one embedding at a time: batch[i].sample(m)")
        if method == "herding":
            values = to_numpy(self(self.points))  # type: ignore[operator]
            return take(self.points, herd_indices(self.kernel, self.points, values, m))
        if method != "iid":
            raise ValueError(f"method must be 'herding' or 'iid', got {method!r}")
        w = to_numpy(self._distribution(True)).astype(np.float64)
        generator = as_generator(rng)
        return take(self.points, generator.choice(len(w), size=m, p=w / w.sum()))

    # --- the work ---------------------------------------------------------------------------------

    @property
    def _vectors(self) -> Array:
        try:
            return as_vectors(self.points, "points")
        except (TypeError, ValueError) as error:
            raise TypeError(
                "this question needs points in R^d; use expect(f) or prob(predicate)"
            ) from error

    def _distribution(self, valid: bool) -> Array:
        if valid:
            return self._valid_weights
        return self.normalized().weights  # type: ignore[attr-defined]

    @cached_property
    def _valid_weights(self) -> Array:
        weights = np.atleast_2d(np.asarray(to_numpy(self.weights), dtype=np.float64))
        sums = weights.sum(axis=1, keepdims=True)
        if np.all(weights >= 0) and np.all(sums > 0):
            projected = weights / sums
        else:
            rank = min(PROJECTION_RANK, weights.shape[1])
            F = (
                to_numpy(self.kernel.features(self.points))
                if self.kernel.finite
                else partial_cholesky(self.kernel, self.points, rank, PROJECTION_TOLERANCE, 0)[1]
            )
            projected = project_simplex(np.asarray(F, dtype=np.float64), weights)
        return like(projected[0] if self.weights.ndim == 1 else projected, self.weights)

    def _per_coordinate(self, question: Callable[[Any, Any], Any]) -> np.ndarray[Any, Any]:
        """Ask sorted points and mid-cumulated weights of each coordinate: (..., d, answer)."""
        X = to_numpy(self._vectors)
        weights = np.atleast_2d(to_numpy(self._distribution(True)))
        order = np.argsort(X, axis=0, kind="stable")
        answers = []
        for w in weights:
            row = []
            for j in range(X.shape[1]):
                ordered = w[order[:, j]]
                row.append(question(X[order[:, j], j], np.cumsum(ordered) - 0.5 * ordered))
            answers.append(row)
        result = np.asarray(answers)
        return result[0] if self.weights.ndim == 1 else result

    def _rotation(self) -> Array:
        matrices = to_numpy(self.points)
        n, p, q = matrices.shape
        means = (np.atleast_2d(to_numpy(self.weights)) @ matrices.reshape(n, -1)).reshape(-1, p, q)
        if p == q:
            U, _, V = np.linalg.svd(means)
            U[..., -1] *= np.sign(np.linalg.det(U @ V))[:, None]  # a rotation, not a reflection
            means = U @ V
        return like(means[0] if self.weights.ndim == 1 else means, self.weights)

    def _density_row(self, w: Any, X: Any, bandwidth: Any) -> Any:
        P = to_numpy(self._vectors)
        X = to_numpy(as_vectors(X, "X"))
        if X.shape[1] != P.shape[1]:
            raise ValueError(f"X has {X.shape[1]} coordinates, the points have {P.shape[1]}")
        h = _silverman(P, w) if bandwidth is None else np.asarray(bandwidth, dtype=float)
        h = np.broadcast_to(h, P.shape[1])
        return Gaussian(tuple(h))(X, P) @ w / np.prod(np.sqrt(2.0 * np.pi) * h)


def project_simplex(F: Any, weights: Any, steps: int = 1000, tol: float = 1e-8) -> Any:
    """Rows of weights (m, n) moved to the simplex, closest in the distance of features F (n, r).

    Minimises |F^T (v - w)|^2 + rho |v - w|^2 over v >= 0, sum v = 1, by accelerated projected
    gradient with restarts, all rows at once. The small rho (1e-5 of the largest squared singular
    value) makes the answer unique where the features say nothing.
    """
    with threads_for(2.0 * F.size * len(weights)):
        largest = max(float(np.linalg.norm(F.T @ F, 2)), 1e-300)
        rho = 1e-5 * largest
        step = 1.0 / (largest + rho)
        v = y = _rows_on_simplex(np.maximum(weights, 0.0))
        t = np.ones((len(weights), 1))
        for _ in range(steps):
            gradient = ((y - weights) @ F) @ F.T + rho * (y - weights)
            new = _rows_on_simplex(y - step * gradient)
            uphill = np.sum((new - v) * (y - new), axis=1, keepdims=True) > 0
            t = np.where(uphill, 1.0, t)  # each row restarts its own momentum
            t_new = 0.5 * (1.0 + np.sqrt(1.0 + 4.0 * t * t))
            moved = float(np.abs(new - v).max())
            y = new + ((t - 1.0) / t_new) * (new - v)
            v, t = new, t_new
            if moved < tol / v.shape[1]:
                break
    return v


def _rows_on_simplex(v: Any) -> Any:
    """Euclidean projection of each row on the simplex (Duchi et al. 2008)."""
    ordered = -np.sort(-v, axis=1)
    excess = (np.cumsum(ordered, axis=1) - 1.0) / np.arange(1, v.shape[1] + 1)
    last = np.sum(ordered > excess, axis=1) - 1
    return np.maximum(v - excess[np.arange(len(v)), last][:, None], 0.0)


def _shortest(x: Any, cumulative: Any, level: float) -> Any:
    """Shortest interval between quantiles ``level`` apart."""
    starts = np.linspace(0.0, 1.0 - level, 200)
    low = np.interp(starts, cumulative, x)
    high = np.interp(starts + level, cumulative, x)
    best = int(np.argmin(high - low))
    return np.array([low[best], high[best]])


def _silverman(X: Any, w: Any) -> Any:
    """Silverman's bandwidths (d,) for a weighted sample; a small positive one for constants."""
    d = X.shape[1]
    mean = w @ X
    deviation = np.sqrt(np.maximum(w @ (X - mean) ** 2, 0.0))
    spread = X.std(axis=0)
    scale = np.where(deviation > 0, deviation, np.where(spread > 0, 1e-3 * spread, 1.0))
    ess = 1.0 / np.sum(w**2)
    return scale * (4.0 / ((d + 2.0) * max(ess, 1.0))) ** (1.0 / (d + 4.0))


def _fixed_point(X: Any, W: Any, kernel: Gaussian, starts: Any, steps: int = 200) -> Any:
    """Maximise sum_i w_i k(y, x_i) for each row of W at once; never below the start."""

    def height(y: Any) -> Any:
        return np.einsum("ij,ij->i", kernel(y, X), W)

    y, best, top = starts.copy(), starts.copy(), height(starts)
    for _ in range(steps):
        K = kernel(y, X) * W
        total = K.sum(axis=1, keepdims=True)
        # A denominator that is not clearly positive would throw the iterate anywhere: stay.
        safe = total > 1e-12 * np.abs(K).sum(axis=1, keepdims=True)
        new = np.where(safe, (K @ X) / np.where(safe, total, 1.0), y)
        moved = float(np.abs(new - y).max())
        y = new
        now = height(y)
        better = now > top
        best[better], top[better] = y[better], now[better]
        if moved <= 1e-10 * float(np.max(kernel.bandwidth)):
            break
    return best


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
