"""Draws from an embedding: deterministic ones by herding, independent ones by smoothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
from array_api_compat import is_array_api_obj

from kernelbayes.arrays import Rng, as_generator, like, namespace, to_numpy
from kernelbayes.embedding.base import WeightedSample
from kernelbayes.embedding.smooth import keep_covariance
from kernelbayes.gram import Gram
from kernelbayes.herding import greedy
from kernelbayes.points import Points, as_vectors, take


class Sampling(WeightedSample):
    """Points that stand for the distribution."""

    def sample(
        self,
        m: int,
        rng: Rng = None,
        method: Literal["herding", "iid"] = "herding",
        bandwidth: Any = None,
    ) -> Points:
        r"""Draw m points, shape (m, d); (batch, m, d) from a batch.

        Parameters
        ----------
        m : int
        rng : int, Generator or None
            For ``method="iid"``; herding is deterministic.
        method : {"herding", "iid"}
            Herding picks among the embedding's points so that the m picks together stand for it
            best. "iid" draws independently from the weights of ``valid()`` and smooths.
        bandwidth : float or array (d,), optional
            Standard deviation of the smoothing of "iid" draws; 0 for none. By default a quarter of
            Silverman's rule in vector spaces (all of it would melt two peaks into one), none
            elsewhere. Draws are shrunk towards the mean as in Liu and West (2001), so that
            smoothing does not inflate the covariance,

            .. math:: y = m + a (x_I - m) + e, \quad a_j^2 = 1 - h_j^2 / V_{jj}, \quad
                      \mathrm{Cov}(e) = V - A V A

        Examples
        --------
        >>> import numpy as np
        >>> from kernelbayes import Gaussian, embed
        >>> mu = embed(np.random.default_rng(0).normal(size=1000), Gaussian(1.0))
        >>> mu.sample(3).shape
        (3, 1)
        >>> drawn = mu.sample(500, rng=0, method="iid")
        >>> bool(abs(drawn.std() - 1.0) < 0.1)
        True
        """
        if not isinstance(m, int | np.integer) or m < 1:
            raise ValueError(f"the number of draws must be at least 1, got {m}")
        if method not in ("herding", "iid"):
            raise ValueError(f"method must be 'herding' or 'iid', got {method!r}")
        if method == "herding":
            if bandwidth is not None:
                raise ValueError("herding does not smooth; bandwidth goes with method='iid'")
            values = np.atleast_2d(to_numpy(self.normalized()(self.points)))
            rows = Gram.by_rows(self.kernel, self.points, products=False)
            picks = [greedy(rows, row, m)[0] for row in values]
            return self._picked(np.stack(picks))
        generator = as_generator(rng)
        weights = self._distribution(True)
        picks = [generator.choice(len(w), size=m, p=w / w.sum()) for w in weights]
        drawn = self._picked(np.stack(picks))
        X = None if bandwidth is None and not is_array_api_obj(self.points) else self._smoothable
        if X is None or (bandwidth is not None and not np.any(bandwidth)):
            return drawn
        batches = [drawn] if self._single else drawn
        moved = [
            keep_covariance(np.asarray(to_numpy(y), dtype=float), (X, w), bandwidth, generator)
            for y, w in zip(batches, weights, strict=True)
        ]
        return like(moved[0] if self._single else np.stack(moved), self.points)

    @property
    def _smoothable(self) -> Any:
        """Vectors, if the points are vectors of numbers and not, say, matrices or categories."""
        array = self.points
        if not is_array_api_obj(array) or array.ndim != 2:
            return None
        if not namespace(array).isdtype(array.dtype, "real floating"):
            return None
        return np.asarray(to_numpy(as_vectors(array, "points")), dtype=float)

    def _picked(self, picks: Any) -> Points:
        """Points at indices (batch, m): (m, ...), or (batch, m, ...) for a batch."""
        return take(self.points, picks[0]) if self._single else _take_rows(self.points, picks)


def _take_rows(points: Points, picks: Any) -> Points:
    if isinstance(points, Mapping):
        return {name: _take_rows(part, picks) for name, part in points.items()}
    if not is_array_api_obj(points):
        return [take(points, row) for row in picks]
    flat = take(points, picks.ravel())
    return namespace(flat).reshape(flat, (*picks.shape, *points.shape[1:]))
