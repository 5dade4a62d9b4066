"""Posteriors over parameters: embeddings that know their prior's support."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from scipy.optimize import minimize

from kernelbayes.arrays import Rng, as_generator, to_numpy
from kernelbayes.embedding import Embedding
from kernelbayes.embedding.smooth import WIDEST, Smoothed, Smoothing, silverman_factor
from kernelbayes.kernels import Gaussian, Kernel
from kernelbayes.likelihood_free.pictures import pair_plot
from kernelbayes.likelihood_free.priors import Prior
from kernelbayes.likelihood_free.transform import Space

Floats = np.ndarray[Any, Any]
# Draws to find out which share of the smoothed density lies within the prior's support.
SUPPORT_DRAWS = 2000
# Draws outside of the support are drawn again, at most this often.
ATTEMPTS = 100
# Points at which the density is looked at for its maximum.
MAP_STARTS = 1000


@dataclass(frozen=True, eq=False, repr=False)
class Posterior(Embedding):
    """Posterior over parameters: an :class:`~kernelbayes.Embedding` with draws and a density.

    Everything an embedding answers (``mean``, ``interval``, ``prob``, ...) it answers from the
    weighted points. ``sample`` and ``log_density`` belong to the smoothed points, restricted to the
    prior's support.

    Attributes
    ----------
    points, weights
        Parameters (n, d) and their weights (n,).
    prior : Prior or None
    diagnostics : Report, dict or None
        How the posterior was made, and what to think of it.
    """

    prior: Prior | None = field(default=None)
    space: Space | None = field(default=None)
    smoothing: Smoothing | None = field(default=None)

    def __repr__(self) -> str:
        names = ", ".join(self.names or ())
        about = f" of {names}" if names else f" of {np.shape(self.points)[1]} parameters"
        return f"Posterior({len(self)} points{about}, ess {float(self.ess):.0f})"

    @cached_property
    def smoothed(self) -> Smoothed:
        """The smoothed points that draws come from, in coordinates of :class:`Space`."""
        points, weights, plain = self._in_coordinates
        return Smoothed.by(points, weights, self.smoothing or plain, self._discrete)

    @cached_property
    def _density(self) -> Smoothed:
        """The smoothed points that the density is of: no narrower than a density needs.

        Draws of many close points may be sharper than that, a density of them would be spiky.
        """
        points, weights, plain = self._in_coordinates
        how = self.smoothing or plain
        if how.h >= plain.h:
            return self.smoothed
        return Smoothed.by(
            points, weights, replace(plain, neighbours=how.neighbours), self._discrete
        )

    @cached_property
    def _in_coordinates(self) -> tuple[Floats, Floats, Smoothing]:
        """Points, weights, and Silverman's smoothing, halved to keep peaks apart."""
        points = np.asarray(to_numpy(self.points), dtype=float)
        weights = np.asarray(self.valid_weights()[0])
        used = weights > 0
        points, weights = points[used], weights[used]
        h = min(0.5 * silverman_factor(weights, int(np.sum(~self._discrete))), WIDEST)
        return self._space.coordinates(points), weights, Smoothing(h)

    @cached_property
    def _space(self) -> Space:
        return self.space or Space.of(np.asarray(to_numpy(self.points), dtype=float), self.prior)

    @property
    def _discrete(self) -> Floats:
        d = int(np.shape(self.points)[1])
        return np.zeros(d, dtype=bool) if self.prior is None else self.prior.discrete

    def sample(self, m: int, rng: Rng = None, method: str = "smooth", bandwidth: Any = None) -> Any:
        """Draw m parameters, shape (m, d).

        Parameters
        ----------
        m : int
        rng : int, Generator or None
        method : {"smooth", "herding", "iid"}
            Independent draws of the smoothed posterior inside of the prior's support; or those of
            :meth:`Embedding.sample <kernelbayes.Embedding.sample>`.
        bandwidth : float or array (d,), optional
            For "iid" only.
        """
        if method != "smooth":
            return super().sample(m, rng, method, bandwidth)  # type: ignore[arg-type]
        if bandwidth is not None:
            raise ValueError("smooth draws choose their own bandwidth; use method='iid'")
        if not isinstance(m, int | np.integer) or m < 1:
            raise ValueError(f"the number of draws must be at least 1, got {m}")
        generator = as_generator(rng)
        kept: list[Floats] = []
        missing = int(m)
        for _ in range(ATTEMPTS):
            drawn, inside = self._draw(2 * missing, generator)
            kept.append(drawn[inside][:missing])
            missing -= len(kept[-1])
            if missing == 0:
                return np.concatenate(kept)
        drawn, _ = self._draw(missing, generator)  # all mass at an edge: move onto it
        assert self.prior is not None
        return np.concatenate([*kept, self.prior.project(drawn)])

    def _draw(self, m: int, rng: np.random.Generator) -> tuple[Floats, Floats]:
        drawn = self._space.parameters(self.smoothed.draw(m, rng))
        if self.prior is None:
            return drawn, np.ones(m, dtype=bool)
        if self.prior.simplices:
            drawn = np.where(drawn < 0, drawn, self.prior.project(drawn))
        return drawn, self.prior.inside(drawn)

    @cached_property
    def _inside(self) -> float:
        """Share of the smoothed density within the support."""
        if self.prior is None:
            return 1.0
        _, inside = self._draw(SUPPORT_DRAWS, np.random.default_rng(0))
        return max(float(np.mean(inside)), 1.0 / SUPPORT_DRAWS)

    def log_density(self, theta: Any) -> Floats:  # type: ignore[override]
        """Log density (n,) at parameters (n, d); -inf outside of the prior's support.

        Discrete parameters count with their probability.
        """
        if self.prior is not None and self.prior.simplices:
            raise ValueError("posteriors on a simplex have no density here; use sample or prob")
        points = np.asarray(to_numpy(theta), dtype=float)
        d = int(np.shape(self.points)[1])
        if points.size % d or (points.ndim == 2 and points.shape[1] != d):
            raise ValueError(f"theta has shape {points.shape}, the posterior {d} parameters")
        points = points.reshape(-1, d)
        inside = (
            np.ones(len(points), dtype=bool) if self.prior is None else self.prior.inside(points)
        )
        logs = np.full(len(points), -np.inf)
        if np.any(inside):
            there = points[inside]
            values = self._density.log_density(self._space.coordinates(there))
            # What takes separate values has a probability, which has no units.
            values += np.sum(np.log(self._space.scale[self._discrete]))
            logs[inside] = values + self._space.log_volume(there) - np.log(self._inside)
        return logs

    def map(self) -> Floats:
        """Parameters (d,) of the highest posterior density."""
        weights = self.valid_weights()[0]
        heavy = np.argsort(-weights)[:MAP_STARTS]
        candidates = np.asarray(to_numpy(self.points), dtype=float)[heavy]
        best = candidates[int(np.argmax(self.log_density(candidates)))]
        free = ~self._discrete
        if not np.any(free):
            return np.asarray(best)
        start = self._space.coordinates(best[None])[0]

        def lost(moved: Floats) -> float:
            here = start.copy()
            here[free] = moved
            return -float(self.log_density(self._space.parameters(here[None]))[0])

        found = minimize(lost, start[free], method="Nelder-Mead")
        start[free] = found.x
        moved = self._space.parameters(start[None])
        better = self.log_density(moved)[0] >= self.log_density(best[None])[0]
        return np.asarray(moved[0] if better else best)

    def plot(self, truth: Any = None, prior: Any = None, **options: Any) -> Any:  # type: ignore[override]
        """Pair plot of the posterior over its prior; see ``kernelbayes.pair_plot``."""
        return pair_plot(self, prior=self.prior if prior is None else prior, truth=truth, **options)


class Posteriors(Sequence[Posterior]):
    """Posteriors of many observations: indexing gives one, questions give a leading axis.

    Each has points of its own, unlike the members of a :class:`~kernelbayes.Batch`.
    """

    def __init__(self, members: Sequence[Posterior]) -> None:
        self._members = list(members)

    def __len__(self) -> int:
        return len(self._members)

    def __getitem__(self, index: Any) -> Any:
        found = self._members[index]
        return Posteriors(found) if isinstance(index, slice) else found

    def __iter__(self) -> Iterator[Posterior]:
        return iter(self._members)

    def __repr__(self) -> str:
        return f"Posteriors({len(self)} observations)"

    def mean(self) -> Floats:
        """Means (m, d)."""
        return np.stack([to_numpy(p.mean()) for p in self])

    def cov(self) -> Floats:
        """Covariances (m, d, d)."""
        return np.stack([to_numpy(p.cov()) for p in self])

    def quantile(self, q: Any) -> Floats:
        """Quantiles (m, len(q), d)."""
        return np.stack([to_numpy(p.quantile(q)) for p in self])

    def interval(self, level: float = 0.9) -> Floats:
        """Intervals (m, d, 2)."""
        return np.stack([to_numpy(p.interval(level)) for p in self])

    def map(self) -> Floats:
        """Parameters of highest density, (m, d)."""
        return np.stack([p.map() for p in self])

    def sample(self, k: int, rng: Rng = None) -> Floats:
        """Draws (m, k, d)."""
        generator = as_generator(rng)
        return np.stack([p.sample(k, rng=generator) for p in self])


def make_posterior(
    points: Floats,
    weights: Floats,
    prior: Prior | None,
    diagnostics: Any = None,
    names: tuple[str, ...] | None = None,
    *,
    kernel: Kernel | None = None,
    space: Space | None = None,
    smoothing: Smoothing | None = None,
) -> Posterior:
    """Posterior of weighted parameters (n, d); points of weight zero are left out."""
    used = weights != 0
    points, weights = points[used], weights[used]
    if names is None and prior is not None:
        names = prior.names
    if kernel is None:
        kernel = Gaussian.median(points)
    return Posterior(points, weights, kernel, names, diagnostics, prior, space, smoothing)
