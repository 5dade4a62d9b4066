"""Priors: anything that can be drawn from, read as one object.

:func:`as_prior` takes what people already have: scipy.stats distributions, frozen or new style, a
list or a dict of them (independent components, discrete ones too), anything with ``.sample`` or
``.rvs`` (an embedding, a torch distribution), a function ``(n, rng)``, or draws. A
:class:`Prior` draws, knows its support, and has a density where its source has one.

>>> import numpy as np
>>> from scipy import stats
>>> from kernelbayes.likelihood_free.prior import as_prior
>>> prior = as_prior({"rate": stats.gamma(2.0), "count": stats.poisson(3.0)})
>>> prior
Prior(rate in [0, inf), count in {0, ...})
>>> prior.sample(4, np.random.default_rng(0)).shape
(4, 2)
>>> prior.inside([[1.0, 2.0], [-1.0, 2.0], [1.0, 2.5]])
array([ True, False, False])
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from numbers import Number

import numpy as np

from kernelbayes.arrays import as_generator, as_known, as_real, as_vectors, is_frame, to_numpy
from kernelbayes.likelihood_free import distributions
from kernelbayes.likelihood_free.distributions import Component, PriorLike
from kernelbayes.points import column_names, in_order, integer
from kernelbayes.types import Array, Bools, Floats, Ints, Rng

# Rounding allowed of draws at a bound, relative and absolute; of the sum of a simplex, which
# single-precision sources know to about 1e-7; and the least entry before a simplex is normalised.
BOUND_ROUNDING, TINY_ROUNDING, SIMPLEX_ROUNDING, LEAST_PART = 1e-9, 1e-12, 1e-6, 1e-300

FEWEST_DRAWS = 3  # of a prior; two are the ends of a range, or of one for each parameter


@dataclass(frozen=True, eq=False, repr=False)
class Prior:
    """A distribution over parameters in R^d, made by :func:`as_prior`.

    Attributes
    ----------
    components : tuple of Component
        Independent groups of columns, in order.
    names : tuple of str or None
        One per parameter.
    draws : array or None
        The sample (n, d), of a prior that is given by draws only.
    """

    components: tuple[Component, ...]
    names: tuple[str, ...] | None = None
    draws: Floats | None = None

    @property
    def dim(self) -> int:
        """Number of parameters d."""
        return sum(part.width for part in self.components)

    @cached_property
    def low(self) -> Floats:
        """Lower end of the support, (d,); -inf where unbounded or unknown."""
        return np.concatenate([part.low for part in self.components])

    @cached_property
    def high(self) -> Floats:
        """Upper end of the support, (d,); inf where unbounded or unknown."""
        return np.concatenate([part.high for part in self.components])

    @cached_property
    def discrete(self) -> Bools:
        """Which parameters are discrete: bool (d,)."""
        return np.concatenate([part.discrete for part in self.components])

    @property
    def has_density(self) -> bool:
        """Whether :meth:`log_density` can be asked."""
        return all(part.log_density is not None for part in self.components)

    @property
    def has_marginals(self) -> bool:
        """Whether :meth:`cdf` and :meth:`ppf` can be asked: independent univariate columns."""
        return all(part.cdf is not None and part.ppf is not None for part in self.components)

    @cached_property
    def simplices(self) -> tuple[Ints, ...]:
        """Index arrays of columns that are positive and sum to one (a Dirichlet component)."""
        columns = np.split(np.arange(self.dim), self._edges)
        return tuple(c for c, part in zip(columns, self.components, strict=True) if part.simplex)

    def sample(self, n: int, rng: Rng = None) -> Floats:
        """Draws (n, d), float64; the same generator gives the same draws."""
        n, rng = integer(n, "the number of draws"), as_generator(rng)
        theta = np.concatenate([part.draw(n, rng) for part in self.components], axis=1)
        if theta.shape[1] != self.dim:
            raise ValueError(f"the prior drew {theta.shape[1]} parameters, and {self.dim} before")
        if not np.all(np.isfinite(theta)):
            raise ValueError("the prior drew NaN or infinite parameters")
        inside = np.clip(theta, self.low, self.high)
        if np.allclose(theta, inside, rtol=BOUND_ROUNDING, atol=TINY_ROUNDING):
            theta = inside  # no more than rounding
        if not np.all(self._in_box(theta)):
            raise ValueError(
                "the prior drew outside of its bounds "
                f"[{_list(self.low)}, {_list(self.high)}]; widen the bounds or fix the prior"
            )
        return theta

    def log_density(self, theta: Array) -> Floats:
        """Log density (n,) at points (n, d), -inf outside of the support.

        Discrete columns count with their probability, continuous ones with their density.
        """
        if not self.has_density:
            raise ValueError(
                "this prior has draws but no density; give scipy.stats distributions, or an "
                "object with log_prob or logpdf"
            )
        theta = self._points(theta)
        inside = self._in_box(theta)
        values = np.full(len(theta), -np.inf)
        if np.any(inside):
            values[inside] = distributions.joint_density(self.components)(theta[inside])
        return np.where(np.isnan(values), -np.inf, values)

    def inside(self, theta: Array) -> Bools:
        """Which points (n, d) lie in the support, bool (n,); by the bounds if there is no density.

        The ends of an interval count as inside, whatever the density is there.
        """
        theta = self._points(theta)
        inside = self._in_box(theta)
        if self.has_density:
            # A density may vanish at an end that still belongs to the interval.
            at_end = ~self.discrete & ((theta == self.low) | (theta == self.high))
            inside &= (self.log_density(theta) > -np.inf) | np.any(at_end, axis=1)
        return inside

    def cdf(self, theta: Array) -> Floats:
        """Marginal distribution functions at (n, d): uniform for draws of continuous columns."""
        return self._columnwise("cdf", as_known(self._points(theta), "theta"))

    def ppf(self, u: Array) -> Floats:
        """Marginal quantile functions at probabilities (n, d)."""
        return self._columnwise("ppf", as_known(self._points(u), "u"))

    def project(self, theta: Array) -> Floats:
        """Points (n, d) moved into the support: clipped, rounded if discrete, put on simplices.

        Discrete columns are rounded to integers, which is where SciPy's discrete distributions
        live unless they are shifted by a fraction.
        """
        points = np.asarray(np.clip(self._points(theta), self.low, self.high))
        points[:, self.discrete] = np.rint(points[:, self.discrete])
        for columns in self.simplices:
            part = np.maximum(points[:, columns], LEAST_PART)  # all zeros go to the middle
            points[:, columns] = part / part.sum(axis=1, keepdims=True)
        return points

    @cached_property
    def _edges(self) -> Ints:
        return np.cumsum([part.width for part in self.components])[:-1]

    def _in_box(self, theta: Floats) -> Bools:
        inside: Bools = np.all((theta >= self.low) & (theta <= self.high), axis=1)
        for columns in self.simplices:
            inside &= np.abs(theta[:, columns].sum(axis=1) - 1.0) < SIMPLEX_ROUNDING
        return inside

    def _points(self, theta: Array) -> Floats:
        """Return ``theta`` as floats (n, d): also (d,) for one point, (n,) for one parameter."""
        points = np.array(to_numpy(as_real(in_order(theta, self.names), "theta")), dtype=float)
        if points.ndim < 2 and points.size % self.dim == 0:
            points = points.reshape(-1, self.dim)
        if points.ndim != 2 or points.shape[1] != self.dim:
            raise ValueError(f"parameters must have shape (n, {self.dim}), got {points.shape}")
        return points

    def _columnwise(self, name: str, values: Floats) -> Floats:
        if not self.has_marginals:
            raise ValueError(
                f"{name} needs independent univariate components: give the prior as a list of "
                "scipy.stats distributions"
            )
        parts = np.split(values, self._edges, axis=1)
        pairs = zip(self.components, parts, strict=True)
        return np.concatenate([getattr(part, name)(v) for part, v in pairs], axis=1)

    def __repr__(self) -> str:
        names = self.names or tuple(f"theta[{j}]" for j in range(self.dim))
        columns = zip(names, self.low, self.high, self.discrete, strict=True)
        described = ", ".join(_column(*column) for column in columns)
        drawn = "" if self.draws is None else f"; {len(self.draws)} draws"
        return f"Prior({described}{drawn})"


def as_prior(
    prior: PriorLike,
    names: Sequence[str] | None = None,
    *,
    bounds: tuple[Array, Array] | None = None,
) -> Prior:
    """Read a prior from whatever it is given as.

    Parameters
    ----------
    prior : distribution, list, dict, object, callable, array or Prior
        A scipy.stats distribution, univariate or multivariate; a list of them, or a dict from
        names to them (independent components; a multivariate one takes several columns); anything
        with ``.sample(n)``, ``.sample((n,))`` or ``.rvs(size=n)``; a function ``(n, rng)``; draws
        (n, d), also as a data frame.
    names : sequence of str, optional
        Names of the parameters.
    bounds : (low, high), optional
        Support of a callable, of draws or of an object that does not know its own: numbers, or
        arrays (d,).

    Returns
    -------
    Prior

    Notes
    -----
    Objects are asked for two draws, with a generator of their own, to learn their dimension.
    """
    result = _read(prior)
    if bounds is not None:
        result = _bounded(result, bounds)
    if names is None:
        return result
    several = hasattr(names, "__len__") and not isinstance(names, str)
    names = tuple(map(str, names)) if several else (str(names),)
    if len(names) != result.dim:
        raise ValueError(f"{len(names)} names for {result.dim} parameters")
    return replace(result, names=names)


def _read(prior: PriorLike) -> Prior:
    """Prior of one source, without names and bounds."""
    if isinstance(prior, Prior):
        return prior
    if prior is None:
        raise TypeError("there is no prior: a scipy.stats distribution, a list of them, or draws")
    if isinstance(prior, Mapping) and not _holds_numbers(list(prior.values())):
        return _joined(list(prior.values()), tuple(str(name) for name in prior))
    if isinstance(prior, list | tuple) and not _holds_numbers(prior):
        return _joined(prior, None)
    if isinstance(prior, type):
        raise TypeError(f"{prior.__name__} is a class; give an instance of it")
    if distributions.is_univariate(prior):
        return Prior((distributions.from_distribution(prior),))
    if not (isinstance(prior, np.ndarray) or is_frame(prior)) and (
        any(hasattr(prior, name) for name in ("rvs", "sample", "resample"))
    ):
        return Prior((distributions.from_object(prior),))
    if callable(prior):
        return Prior((distributions.from_callable(prior),))
    try:
        draws = np.array(to_numpy(as_vectors(prior, "prior")), dtype=np.float64)  # its own
    except TypeError as error:
        raise TypeError(
            f"cannot read a prior from {type(prior).__name__}; give scipy.stats distributions, an "
            "object with .sample or .rvs, a function (n, rng), or draws (n, d)"
        ) from error
    if len(draws) < FEWEST_DRAWS:
        raise ValueError(f"for a range give stats.uniform(low, high - low), not {prior!r}")
    return Prior((distributions.from_draws(draws),), column_names(prior), draws)


def _joined(sources: Sequence[PriorLike], names: tuple[str, ...] | None) -> Prior:
    """Independent components, named if they came in a dict."""
    if not sources:
        raise ValueError("the prior has no components; give at least one distribution")
    parts = [_read(source) for source in sources]
    components = tuple(component for part in parts for component in part.components)
    if names is None:
        kept = [part.names for part in parts]
        known = all(k is not None for k in kept)
        return Prior(components, tuple(n for k in kept for n in k or ()) if known else None)
    columns = (
        [name] if part.dim == 1 else [f"{name}[{j}]" for j in range(part.dim)]
        for name, part in zip(names, parts, strict=True)
    )
    return Prior(components, tuple(name for group in columns for name in group))


def _holds_numbers(values: Sequence[object]) -> bool:
    """Whether a list holds draws (numbers) rather than distributions."""
    try:
        array = np.asarray(values)
        return array.size > 0 and (array.dtype.kind in "fiub" or isinstance(array.flat[0], Number))
    except (TypeError, ValueError):  # ragged, or distributions
        return all(isinstance(value, list | tuple) for value in values)


def _bounded(prior: Prior, bounds: tuple[Array, Array]) -> Prior:
    part = prior.components[0]
    if len(prior.components) > 1 or part.cdf is not None:
        raise ValueError(
            "bounds are for priors that do not know their support (a callable, draws); truncate "
            "the distribution instead, as in scipy.stats.truncnorm"
        )
    if not isinstance(bounds, tuple | list) or len(bounds) != 2:
        raise ValueError(f"bounds must be a pair (low, high), got {bounds!r}")
    result = replace(prior, components=(part.within(*bounds),))
    if prior.draws is not None and not np.all(result._in_box(prior.draws)):
        raise ValueError("some of the prior's draws lie outside of the bounds")
    return result


def _column(name: str, low: float, high: float, discrete: bool) -> str:
    if discrete:
        ends = ["..." if np.isinf(e) else f"{e:g}" for e in (low, high)]
        between = "" if "..." in ends else "..., "
        return f"{name} in {{{ends[0]}, {between}{ends[1]}}}"
    if np.isinf(low) and np.isinf(high):
        return name
    left = "(-inf" if np.isinf(low) else f"[{low:g}"
    right = "inf)" if np.isinf(high) else f"{high:g}]"
    return f"{name} in {left}, {right}"


def _list(ends: Floats) -> str:
    return ", ".join(f"{e:g}" for e in ends)
