"""Posteriors over parameters: embeddings that know their prior's support."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
from scipy.optimize import minimize

from kernelbayes.arrays import as_generator, as_known, like, to_numpy
from kernelbayes.embedding import Embedding, export
from kernelbayes.embedding.gaussian import Mixture
from kernelbayes.embedding.smooth import SUPPORT_DRAWS, Smoothed, Smoothing, silverman_factor
from kernelbayes.kernels import Gaussian, Kernel
from kernelbayes.likelihood_free.distributions import PriorLike
from kernelbayes.likelihood_free.learn.adjust import Space
from kernelbayes.likelihood_free.learn.nearby import Density
from kernelbayes.likelihood_free.pairs import pair_plot
from kernelbayes.likelihood_free.prior import Prior
from kernelbayes.points import integer, option
from kernelbayes.tables import HtmlTable, Table, distinct
from kernelbayes.types import Array, Bools, Floats, Rng

# Attempts, of twice the missing draws each, before draws are moved onto the support: a thousand
# draws are found if 4 % of the density lie inside, (1 - 0.08)^100 < 1 / 1000.
ATTEMPTS = 100
MAP_STARTS = 1000  # heaviest points at which the density is compared before it is climbed
# Share of Silverman's bandwidth for a posterior that was not told how to smooth: his rule is for a
# single normal peak, half of it keeps two peaks apart.
PEAK_SHARE = 0.5


@dataclass(frozen=True, eq=False, repr=False)
class Posterior(Embedding):
    """Posterior over parameters: an :class:`~kernelbayes.Embedding` with draws and a density.

    Everything an embedding answers (``mean``, ``interval``, ``prob``, ...) it answers from the
    weighted points. ``sample`` and ``log_density`` belong to the smoothed points, restricted to the
    prior's support, or to a learned likelihood times the prior.

    Attributes
    ----------
    points, weights
        Parameters (n, d) and their weights (n,).
    prior : Prior or None
    diagnostics : Report, dict or None
        How the posterior was made, and how far to trust it.
    """

    prior: Prior | None = field(default=None)
    space: Space | None = field(default=None)
    smoothing: Smoothing | None = field(default=None)

    def __repr__(self) -> str:
        names = ", ".join(self.names or ())
        about = f" of {names}" if names else f" of {np.shape(self.points)[1]} parameters"
        return f"Posterior({len(self)} points{about}, ess {float(self.ess):.0f})"

    @cached_property
    def suggestion(self) -> str | None:
        """What would make a posterior of one round better, in a sentence; None if nothing would."""
        from kernelbayes.likelihood_free.reweight import advice

        return advice(self)

    @cached_property
    def smoothed(self) -> Smoothed:
        """The smoothed points that draws come from, in coordinates of :class:`Space`."""
        points, weights, plain = self._in_coordinates
        return self._within(points, weights, self.smoothing or plain)

    def _within(self, points: Floats, weights: Floats, how: Smoothing) -> Smoothed:
        """Smoothed points that have the points' deviations inside of the prior's support."""
        prior, space = self.prior, self._space
        smooth = Smoothed.by(points, weights, how, self._discrete)
        if prior is None or prior.simplices or np.all(self._discrete):
            return smooth
        return smooth.within(how, lambda drawn: prior.inside(space.parameters(drawn)))

    @cached_property
    def _density(self) -> Smoothed:
        """The smoothed points behind the density, with at least half of Silverman's bandwidth.

        Draws may come from many close points, hardly smoothed; their density would be spiky.
        """
        points, weights, plain = self._in_coordinates
        how = self.smoothing or plain
        wider = replace(plain, neighbours=how.neighbours)
        return self.smoothed if how.h >= plain.h else self._within(points, weights, wider)

    @cached_property
    def _in_coordinates(self) -> tuple[Floats, Floats, Smoothing]:
        """Points, weights, and half of Silverman's smoothing."""
        points = np.asarray(to_numpy(self.points), dtype=float)
        weights = np.asarray(self.valid_weights()[0])
        used = weights > 0
        points, weights = points[used], weights[used]
        h = PEAK_SHARE * silverman_factor(weights, int(np.sum(~self._discrete)))
        return self._space.coordinates(points), weights, Smoothing(h)

    @cached_property
    def _space(self) -> Space:
        return self.space or Space.of(np.asarray(to_numpy(self.points), dtype=float), self.prior)

    @property
    def _discrete(self) -> Bools:
        d = int(np.shape(self.points)[1])
        return np.zeros(d, dtype=bool) if self.prior is None else self.prior.discrete

    def sample(
        self, m: int, rng: Rng = None, method: str = "smooth", bandwidth: Array | None = None
    ) -> Array:
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
        if option(method, "method", ("smooth", "herding", "iid")) != "smooth":
            return super().sample(m, rng, method, bandwidth)  # type: ignore[arg-type]
        if bandwidth is not None:
            raise ValueError("smooth draws choose their own bandwidth; use method='iid'")
        generator = as_generator(rng)
        kept: list[Floats] = []
        missing = integer(m, "the number of draws")
        if self._known is not None:
            drawn = self._known.draw(missing, self._in_coordinates[:2], generator)
            return like(self._space.parameters(drawn), self.points)
        for _ in range(ATTEMPTS):
            drawn, inside = self._draw(2 * missing, generator)
            kept.append(drawn[inside][:missing])
            missing -= len(kept[-1])
            if missing == 0:
                return like(np.concatenate(kept), self.points)
        drawn, _ = self._draw(missing, generator)  # nearly all mass is outside: move onto the edge
        moved = drawn if self.prior is None else self.prior.project(drawn)
        return like(np.concatenate([*kept, moved]), self.points)

    def _draw(self, m: int, rng: np.random.Generator) -> tuple[Floats, Bools]:
        drawn = self._space.parameters(self.smoothed.draw(m, rng))
        if self.prior is None:
            return drawn, np.ones(m, dtype=bool)
        if self.prior.simplices:
            drawn = np.where(drawn < 0, drawn, self.prior.project(drawn))
        return drawn, self.prior.inside(drawn)

    @property
    def _known(self) -> Density | None:
        """Density of a learned likelihood, which belongs to how the posterior was made."""
        return getattr(self.diagnostics, "density", None)

    @cached_property
    def _inside(self) -> float:
        """Share of the smoothed density within the support."""
        _, inside = self._draw(SUPPORT_DRAWS, np.random.default_rng(0))
        return max(float(np.mean(inside)), 1.0 / SUPPORT_DRAWS)

    def log_density(self, theta: Array) -> Any:  # type: ignore[override]
        """Log density (n,) at parameters (n, d); -inf outside of the prior's support.

        Discrete parameters count with their probability.
        """
        return like(self._logs(theta), self.points)

    def _logs(self, theta: Array) -> Floats:
        if self.prior is not None and self.prior.simplices:
            raise ValueError("posteriors on a simplex have no density here; use sample or prob")
        points = np.asarray(to_numpy(as_known(self._in_order(theta), "theta")), dtype=float)
        d = int(np.shape(self.points)[1])
        if points.size % d or points.ndim > 2 or (points.ndim == 2 and points.shape[1] != d):
            raise ValueError(f"theta has shape {points.shape}, the posterior {d} parameters")
        points = points.reshape(-1, d)
        inside = np.isfinite(points).all(axis=1)
        if self.prior is not None and np.any(inside):
            inside[inside] = self.prior.inside(points[inside])
        logs = np.full(len(points), -np.inf)
        if np.any(inside):
            there = points[inside]
            values = (self._known or self._density).log_density(self._space.coordinates(there))
            # Discrete parameters have probabilities, which have no units.
            values += np.sum(np.log(self._space.scale[self._discrete]))
            values -= 0.0 if self._known else np.log(self._inside)
            logs[inside] = values + self._space.log_volume(there)
        return logs

    def map(self) -> Array:
        """Parameters (d,) of the highest posterior density."""
        weights = self.valid_weights()[0]
        heavy = np.argsort(-weights)[:MAP_STARTS]
        candidates = np.asarray(to_numpy(self.points), dtype=float)[heavy]
        best = candidates[int(np.argmax(self._logs(candidates)))]
        free = ~self._discrete
        if not np.any(free):
            return like(best, self.points)
        start = self._space.coordinates(best[None])[0]

        def lost(moved: Floats) -> float:
            here = start.copy()
            here[free] = moved
            return -float(self._logs(self._space.parameters(here[None]))[0])

        found = minimize(lost, start[free], method="Nelder-Mead")
        start[free] = found.x
        both = np.vstack([self._space.parameters(start[None]), best])
        return like(both[np.argmax(self._logs(both))], self.points)

    def plot(  # type: ignore[override]
        self, truth: Array | None = None, prior: PriorLike = None, **options: object
    ) -> Any:
        """Pair plot of the posterior over its prior; see :func:`~kernelbayes.pair_plot`."""
        wide = self.prior if prior is None else prior
        return pair_plot(self, wide, truth, **options)  # type: ignore[arg-type]


def _of_each(name: str) -> Callable[..., Array]:
    """Make a method that asks every posterior and stacks the answers."""

    def ask(self: Sequence[Posterior], *asked: object, **options: object) -> Array:
        return np.stack([to_numpy(getattr(p, name)(*asked, **options)) for p in self])

    ask.__name__ = name
    ask.__doc__ = f"Answers of ``Posterior.{name}``, stacked: a leading axis counts the posteriors."
    return ask


def _number(name: str) -> property:
    """Make a property that gathers a number of every posterior, (m,)."""
    return property(lambda self: np.array([float(getattr(p, name)) for p in self]), doc=name)


class Posteriors(HtmlTable, Sequence[Posterior]):
    """Posteriors of m observations: indexing gives one, questions give a leading axis m.

    Each has points of its own, unlike the members of a :class:`~kernelbayes.Batch`. Every question
    of :class:`Posterior` can be asked; ``mean()`` is then (m, d), ``sample(k)`` (m, k, d).
    """

    def __init__(self, members: Sequence[Posterior]) -> None:
        self._members = list(members)

    mean, std, median = _of_each("mean"), _of_each("std"), _of_each("median")
    cov, moment, expect = _of_each("cov"), _of_each("moment"), _of_each("expect")
    prob, cdf, quantile = _of_each("prob"), _of_each("cdf"), _of_each("quantile")
    interval, density = _of_each("interval"), _of_each("density")
    log_density, map, mode = _of_each("log_density"), _of_each("map"), _of_each("mode")
    preimage, plot, norm = _of_each("preimage"), _of_each("plot"), _of_each("norm")
    inner, expect_bound, var = _of_each("inner"), _of_each("expect_bound"), _of_each("var")
    _single, letter = False, Posterior.letter

    def __len__(self) -> int:
        return len(self._members)

    def __getitem__(self, index: Any) -> Any:
        found = self._members[index]
        return Posteriors(found) if isinstance(index, slice) else found

    def __iter__(self) -> Iterator[Posterior]:
        return iter(self._members)

    def __repr__(self) -> str:
        return f"Posteriors({len(self)} observations)"

    ess, mass, negative = _number("ess"), _number("mass"), _number("negative")
    names = property(lambda self: self[0].names, doc="Names of the parameters.")
    prior = property(lambda self: self[0].prior, doc="The prior of all, or None.")
    diagnostics = property(lambda self: [p.diagnostics for p in self], doc="One for each.")
    suggestion = property(lambda self: [p.suggestion for p in self], doc="One for each, or None.")

    def sample(
        self, k: int, rng: Rng = None, method: str = "smooth", bandwidth: Array | None = None
    ) -> Floats:
        """Draws (m, k, d)."""
        generator = as_generator(rng)
        return np.stack([p.sample(k, generator, method, bandwidth) for p in self])

    def normalized(self) -> Self:
        """Divide the weights of each by their sum."""
        return type(self)([p.normalized() for p in self])

    def valid(self) -> Self:
        """Project the weights of each on the simplex."""
        return type(self)([p.valid() for p in self])

    def mixture(self, components: int, rng: Rng = None, **options: Any) -> list[Mixture]:
        """Gaussian mixture closest to each."""
        generator = as_generator(rng)
        return [p.mixture(components, generator, **options) for p in self]

    def to_frame(self) -> Any:
        """Pandas frame of all points, with their weights and the number of their posterior."""
        import pandas

        frames = [p.to_frame() for p in self]
        (name,) = distinct(["posterior"], frames[0].columns)
        numbered = [frame.assign(**{name: i}) for i, frame in enumerate(frames)]
        return pandas.concat(numbered, ignore_index=True)

    def to_arviz(self, n_draws: int = 1000, rng: Rng = None, bandwidth: Array | None = None) -> Any:
        """ArviZ data of draws of each, as for a batch of embeddings."""
        return export.to_arviz(self, n_draws, rng, bandwidth)

    def summary(self, level: float = 0.9) -> Table:
        """Mean, deviation, median and interval: a row for each posterior and parameter."""
        rows = ((i, row) for i, p in enumerate(self) for row in p.summary(level))
        return Table({"posterior": i, **row} for i, row in rows)


def make_posterior(
    points: Floats,
    weights: Floats,
    prior: Prior | None,
    diagnostics: object = None,
    names: tuple[str, ...] | None = None,
    *,
    kernel: Kernel | None = None,
    space: Space | None = None,
    smoothing: Smoothing | None = None,
    template: Array | None = None,
) -> Posterior:
    """Posterior of weighted parameters (n, d), of the template's kind; those of weight 0 go."""
    used = weights != 0
    points, weights = points[used], weights[used]
    if names is None and prior is not None:
        names = prior.names
    kernel = kernel or Gaussian.median(points)
    if template is not None:
        points, weights = like(points, template), like(weights, template)
    return Posterior(points, weights, kernel, names, diagnostics, prior, space, smoothing)
