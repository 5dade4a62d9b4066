"""Adapters: whatever can be drawn from, as columns with bounds, draws and, where known, a density.

SciPy alone has three interfaces (``rvs`` with ``random_state``, ``sample`` with ``rng``, and
multivariate distributions, each with conventions of its own); torch has a fourth. Each is read
once, here; everything else sees a :class:`Component`.
"""

import inspect
import pickle
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Self

import numpy as np
from array_api_compat import is_torch_array
from scipy import stats

from kernelbayes.arrays import to_numpy
from kernelbayes.types import Array, Bools, Floats, Ints

# What as_prior takes: a distribution, a list or dict of them, an object that draws, a function
# (n, rng), or draws.
PriorLike = Any
Draw = Callable[[int, np.random.Generator], Floats]
LogDensity = Callable[[Floats], Floats]
Made = tuple[Callable[[PriorLike], "Component"], PriorLike]
# Names under which libraries take a generator and offer a log density: NumPy, SciPy, torch, ours.
GENERATORS = ("random_state", "rng", "generator", "seed")
LOG_DENSITIES = ("log_prob", "logpdf", "log_density", "logpmf")


@dataclass(frozen=True, eq=False)
class Component:
    """Columns of a prior that are drawn together.

    Attributes
    ----------
    low, high : arrays (c,)
        Smallest box known to hold all draws; infinite where nothing is known.
    discrete : bool array (c,)
    draw : callable
        ``draw(n, generator)``, an array (n, c).
    log_density : callable or None
        Of points (n, c) inside the box.
    cdf, ppf : callable or None
        Column by column, for independent columns.
    simplex : bool
        Whether the columns are positive and sum to one.
    made : (function, source) or None
        The adapter and what it was called with: enough to pickle the component.
    """

    low: Floats
    high: Floats
    discrete: Bools
    draw: Draw
    log_density: LogDensity | None = None
    cdf: LogDensity | None = None
    ppf: LogDensity | None = None
    simplex: bool = False
    made: Made | None = None

    def __reduce__(self) -> Any:
        if self.made is None:
            return super().__reduce__()
        adapter, source = self.made
        if adapter is from_distribution:
            copied = adapter(pickle.loads(pickle.dumps(source)))
            rngs = np.random.default_rng(0), np.random.default_rng(0)
            if not np.array_equal(self.draw(2, rngs[0]), copied.draw(2, rngs[1])):
                # SciPy 1.17 turns Normal(mu=1) into the standard normal on the way.
                raise pickle.PicklingError(
                    f"SciPy does not pickle {source} faithfully; use scipy.stats.norm(...) instead"
                )
        return remake, (adapter, source, self.low, self.high)

    def __deepcopy__(self, memo: dict[int, object]) -> Self:
        return self  # immutable

    @property
    def width(self) -> int:
        """Number of columns."""
        return len(self.low)

    def within(self, low: Array, high: Array) -> Self:
        """Component with bounds stated by the user."""
        try:
            ends = [np.full(self.width, np.asarray(end, float)) for end in (low, high)]
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"bounds must be (low, high), numbers or one per parameter ({self.width}), got "
                f"({low!r}, {high!r})"
            ) from error
        if not np.all(ends[0] < ends[1]):
            raise ValueError(f"bounds must satisfy low < high, got low={low!r}, high={high!r}")
        return replace(self, low=ends[0], high=ends[1])


def is_univariate(source: PriorLike) -> bool:
    """Whether ``source`` has the interface of SciPy's univariate distributions."""
    return (
        callable(getattr(source, "support", None))
        and hasattr(source, "cdf")
        and (hasattr(source, "ppf") or hasattr(source, "icdf"))
    ) or isinstance(source, stats.rv_continuous | stats.rv_discrete)


def from_distribution(dist: PriorLike) -> Component:
    """Component of a univariate scipy.stats distribution, old style or new; arrays of them too."""
    if isinstance(dist, stats.rv_continuous | stats.rv_discrete):
        if dist.numargs:
            raise TypeError(
                f"the distribution {dist.name!r} needs its shape parameters ({dist.shapes}): "
                f"freeze it, as in scipy.stats.{dist.name}(...)"
            )
        dist = dist()
    new_style = not hasattr(dist, "rvs")
    kinds = [base.__name__ for base in type(dist).__mro__]
    discrete = "DiscreteDistribution" in kinds if new_style else hasattr(dist, "logpmf")
    log = dist.logpmf if discrete else dist.logpdf
    ppf = dist.icdf if new_style else dist.ppf
    shape = np.shape(ppf(0.5))
    if len(shape) > 1:
        raise ValueError(
            f"a distribution with parameters of shape {shape} is a table; flatten it to a vector"
        )
    width = shape[0] if shape else 1

    def draw(n: int, rng: np.random.Generator) -> Floats:
        if new_style:
            return _table(dist.sample((n,), rng=rng), n)
        return _table(dist.rvs(size=(n, *shape), random_state=rng), n)

    low, high = (np.broadcast_to(np.asarray(e, dtype=float), (width,)) for e in dist.support())
    return Component(
        low,
        high,
        np.full(width, discrete),
        draw,
        lambda theta: np.asarray(log(theta), dtype=float).sum(axis=1),
        lambda theta: np.asarray(dist.cdf(theta), dtype=float),
        lambda u: np.asarray(ppf(u), dtype=float),
        made=(from_distribution, dist),
    )


@lru_cache(maxsize=8)  # of the last few priors: SciPy takes a millisecond to freeze a distribution
def joint_density(parts: tuple[Component, ...]) -> LogDensity:
    """Log density of independent components, all of one of SciPy's families in one costly call."""
    groups: dict[Any, list[int]] = {}
    for j, part in enumerate(parts):
        dist: Any = part.made[1] if part.made and part.width == 1 else None
        family = getattr(dist, "dist", None)
        known = type(getattr(stats, getattr(family, "name", ""), None))  # not a user's of that name
        key = (known, len(dist.args), *sorted(dist.kwds)) if family and type(family) is known else j
        groups.setdefault(key, []).append(j)
    ends = np.cumsum([part.width for part in parts])
    columns_of = np.split(np.arange(ends[-1]), ends)
    logs: list[tuple[Ints, Any]] = []
    for group in groups.values():
        part, columns = parts[group[0]], np.concatenate([columns_of[j] for j in group])
        if len(group) > 1:
            dists: list[Any] = [parts[j].made[1] for j in group]  # type: ignore[index]
            args = [np.hstack(a) for a in zip(*(d.args for d in dists), strict=True)]
            words = {name: np.hstack([d.kwds[name] for d in dists]) for name in dists[0].kwds}
            part = from_distribution(dists[0].dist(*args, **words))
        logs.append((columns, part.log_density))
    return lambda theta: np.asarray(sum(log(theta[:, columns]) for columns, log in logs))


def from_object(source: PriorLike) -> Component:
    """Component of anything with ``rvs``, ``sample`` or ``resample``: two draws show its form."""
    if isinstance(source, stats.gaussian_kde):
        return _unbounded(
            source.d,
            lambda n, rng: source.resample(n, seed=rng).T,
            lambda theta: source.logpdf(theta.T),
            made=(from_object, source),
        )
    call = _sampler(source)
    with torch_seed(0):
        probe = call(2, np.random.default_rng(0))
    width = _table(probe, 2).shape[1]
    tensor = is_torch_array(probe)

    def draw(n: int, rng: np.random.Generator) -> Floats:
        if not tensor:
            return _table(call(n, rng), n)
        with torch_seed(int(rng.integers(2**62))):
            return _table(call(n, rng), n)

    low, high, discrete, simplex = _support(source, width)
    log_density = _log_density(source, probe, width, simplex)
    how: dict[str, Any] = {"simplex": simplex, "made": (from_object, source)}
    return Component(low, high, discrete, draw, log_density, **how)


def from_callable(function: Callable[..., Array]) -> Component:
    """Component of a function ``(n, rng)``, or ``(n)`` that keeps a generator of its own."""
    takes_rng = _accepts_rng(function)

    def call(n: int, rng: np.random.Generator) -> Floats:
        return _table(function(n, rng) if takes_rng else function(n), n)

    try:
        width = call(2, np.random.default_rng(0)).shape[1]
    except TypeError as error:
        raise TypeError(
            f"the prior must be a function (n, rng) that gives draws (n, d), asked for two: {error}"
        ) from error
    return _unbounded(width, call, made=(from_callable, function))


def from_draws(draws: Floats) -> Component:
    """Component of a sample (n, d), drawn from with replacement."""

    def draw(n: int, rng: np.random.Generator) -> Floats:
        return np.asarray(draws[rng.integers(len(draws), size=n)])

    return _unbounded(draws.shape[1], draw, made=(from_draws, draws))


def remake(
    adapter: Callable[[PriorLike], Component], source: PriorLike, low: Floats, high: Floats
) -> Component:
    """Return the component an adapter makes of a source, with the bounds it had."""
    return replace(adapter(source), low=low, high=high)


# The adapters by their names, for files.
ADAPTERS = {f.__name__: f for f in (from_distribution, from_object, from_callable, from_draws)}


def _unbounded(
    width: int, draw: Draw, log_density: LogDensity | None = None, *, made: Made
) -> Component:
    ends = np.full(width, -np.inf), np.full(width, np.inf)
    return Component(*ends, np.zeros(width, dtype=bool), draw, log_density, made=made)


def _table(draws: Array, n: int) -> Floats:
    """Draws of n parameters as floats (n, d)."""
    try:
        array = np.asarray(to_numpy(draws), dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise TypeError(f"the prior must draw numbers: {error}") from error
    if array.ndim <= 1 and array.size and array.size % n == 0:
        array = array.reshape(n, -1)  # SciPy squeezes one draw to (d,) and one column to (n,)
    if array.ndim != 2 or len(array) != n:
        raise ValueError(
            f"the prior gave an array of shape {array.shape} for {n} draws; expected ({n},) or "
            f"({n}, d): flatten each parameter to a vector"
        )
    return array


def _accepts_rng(function: Callable[..., Array]) -> bool:
    """Whether a function takes a second positional argument."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # some built-in functions have no signature
        return True
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return len(positional) > 1 or any(p.kind is p.VAR_POSITIONAL for p in parameters)


def _sampler(source: PriorLike) -> Callable[[int, np.random.Generator], Array]:
    """How to ask ``source`` for n draws with a generator, by the signature of its method."""
    method = source.rvs if hasattr(source, "rvs") else source.sample
    try:
        parameters = inspect.signature(method).parameters
    except (TypeError, ValueError):
        parameters = inspect.signature(lambda size: size).parameters
    size = next((name for name in ("size", "sample_shape", "shape") if name in parameters), None)
    keyword = next((name for name in GENERATORS if name in parameters), None)
    as_shape = size in ("sample_shape", "shape")

    def call(n: int, rng: np.random.Generator) -> Array:
        options: dict[str, object] = {keyword: rng} if keyword else {}
        number = (n,) if as_shape else n
        return method(**{size: number}, **options) if size else method(number, **options)

    return call


@contextmanager
def torch_seed(seed: int) -> Iterator[None]:
    """Seed torch's global stream, and restore it afterwards."""
    torch = sys.modules.get("torch")
    if torch is None:
        yield
        return
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield


def _support(source: PriorLike, width: int) -> tuple[Floats, Floats, Bools, bool]:
    """Bounds, discreteness and whether a simplex: a pair, or one of torch's constraint objects."""
    discrete = hasattr(source, "logpmf")
    simplex = type(source).__name__ == "dirichlet_frozen"
    support: Any
    try:
        support = getattr(source, "support", None)
    except NotImplementedError:  # some torch distributions do not know theirs
        support = None
    if callable(support):
        support = support()
    ends: Any = (-np.inf, np.inf)
    if isinstance(support, tuple) and len(support) == 2:
        ends = support
    elif hasattr(support, "is_discrete"):
        discrete = bool(support.is_discrete)
        while hasattr(support, "base_constraint"):
            support = support.base_constraint
        simplex = "Simplex" in type(support).__name__
        ends = (getattr(support, "lower_bound", -np.inf), getattr(support, "upper_bound", np.inf))
    if simplex:
        ends = (0.0, 1.0)
    low, high = (np.broadcast_to(to_numpy(e).astype(float), (width,)) for e in ends)
    return low, high, np.full(width, discrete), simplex


def _log_density(source: PriorLike, probe: Array, width: int, simplex: bool) -> LogDensity | None:
    """Log density of points (n, width), in the array kind and shape that ``source`` draws in."""
    name = next((name for name in LOG_DENSITIES if hasattr(source, name)), None)
    if name is None:
        return None
    method = getattr(source, name)
    scalar = width == 1 and np.ndim(to_numpy(probe)) == 1
    columns = simplex and not is_torch_array(probe)  # scipy's dirichlet takes points as columns

    def log_density(theta: Floats) -> Floats:
        if columns:  # SciPy refuses zeros, and sums that differ from one by rounding
            theta = np.maximum(theta, np.finfo(float).tiny)
            theta = theta / theta.sum(axis=1, keepdims=True)
        points: Array = theta.T if columns else theta[:, 0] if scalar else theta
        if is_torch_array(probe):
            points = probe.new_tensor(points)
        values = np.asarray(to_numpy(method(points)), dtype=float).reshape(len(theta), -1)
        return np.asarray(values.sum(axis=1))

    return log_density
