"""Draws of posteriors: one, drawn as a pair plot, or many, given test pairs.

A test pair is a parameter drawn from the prior and data simulated there; the posterior given the
data is then asked about the parameter.
"""

import warnings
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, TypedDict

import numpy as np

from kernelbayes.arrays import (
    NumericalWarning,
    as_doubles,
    as_floats,
    as_generator,
    as_vectors,
    is_frame,
    to_numpy,
    warn,
)
from kernelbayes.likelihood_free.distributions import PriorLike
from kernelbayes.likelihood_free.prior import as_prior
from kernelbayes.likelihood_free.running.calling import Simulator, Summary
from kernelbayes.likelihood_free.simulate import simulate
from kernelbayes.plot.posteriors import draw_pairs
from kernelbayes.points import column_names, in_order, integer, named_row, points_in_order
from kernelbayes.select.search import mapped, progress_bar
from kernelbayes.types import Floats, Names, PointsLike, Rng

# An object with posterior(x), or a function from x to draws (m, d); its posterior; a question.
Model = Any
Asked = tuple[Model, Floats, Floats, int, np.random.SeedSequence, bool | None]
Answer = tuple[Floats, Floats | None]


class Testing(TypedDict, total=False):
    """Options of checks on test pairs: see :func:`~kernelbayes.sbc`."""

    n_simulations: int
    n_draws: int
    summary: Summary | None
    n_jobs: int
    progress: bool | None


class Tested(NamedTuple):
    """Test pairs theta (n, d) and x (n, ...), names of the parameters, and what posteriors say.

    Draws (n, m, d) of the posteriors given x and, if asked for, log densities (n, 1 + m) of the
    truth and the draws.
    """

    theta: Floats
    x: Floats
    names: tuple[str, ...]
    drawn: Floats
    logs: Floats | None


def draws_of(posterior: Any, m: int | None, rng: np.random.Generator) -> Floats:
    """Draws (m, d) of a posterior: by its ``sample``, or an array of draws, cut to m if longer."""
    draws = hasattr(posterior, "sample") and not is_frame(posterior)
    table = as_doubles(as_floats(posterior.sample(m, rng=rng) if draws else posterior, "draws"))
    table = table[:, None] if table.ndim == 1 else table
    if table.ndim != 2 or not len(table):
        raise ValueError(f"draws must have shape (m, d), got {table.shape}")
    return table[:m]


def pair_plot(
    posterior: Any,
    prior: PriorLike = None,
    truth: PointsLike = None,
    names: Sequence[str] | None = None,
    *,
    n_draws: int = 1000,
    limits: PointsLike = None,
    rng: Rng = 0,
) -> Any:
    """Draw the marginals of a posterior, and all its pairs, over those of the prior.

    On the diagonal: the posterior's histogram, the prior's outline. Below it: draws of the
    posterior with contours around 50 and 90 % of the mass, over draws of the prior.

    Parameters
    ----------
    posterior : object with ``sample(m, rng=...)``, or draws (m, d)
    prior : optional
        Anything that :func:`~kernelbayes.as_prior` takes.
    truth : array (d,), or mapping from names, optional
        Marked in each panel.
    names : sequence of str, optional
        The posterior's or the prior's names unless given.
    n_draws : int
        Draws of each.
    limits : array (d, 2), optional
        Ends of the axes; around the posterior unless given.
    rng : int, Generator or None

    Returns
    -------
    array (d, d) of matplotlib Axes
    """
    rng = as_generator(rng)
    n_draws = integer(n_draws, "n_draws")
    draws = draws_of(posterior, n_draws, rng)
    d = draws.shape[1]
    read = None if prior is None else as_prior(prior)
    if read is not None and read.dim != d:
        raise ValueError(f"the prior has {read.dim} parameters, the posterior {d}")
    wide = None if read is None else read.sample(n_draws, rng)
    known = getattr(posterior, "names", None) or (None if read is None else read.names)
    names = tuple(names or known or (f"theta[{j}]" for j in range(d)))
    if len(names) != d:
        raise ValueError(f"{len(names)} names for {d} parameters")
    mark = None if truth is None else _mark(truth, d, tuple(known) if known else None)
    spans = None if limits is None else as_doubles(as_floats(limits, "limits"))
    if spans is not None and spans.shape != (d, 2):
        raise ValueError(f"limits must have shape ({d}, 2), got {spans.shape}")
    return draw_pairs(draws, wide, mark, names, spans)


def _mark(truth: PointsLike, d: int, names: Names) -> Floats:
    """Return the true parameters (d,): numbers, a row or a column of them, or by their names."""
    row = named_row(truth, names)
    mark = as_doubles(as_floats(in_order(truth if row is None else row, names, "truth"), "truth"))
    if mark.size != d or mark.ndim > 2:
        raise ValueError(f"truth must have shape ({d},), got {mark.shape}")
    return mark.ravel()


def on_pairs(
    model: Model,
    prior: PriorLike,
    simulator: Simulator | None,
    theta: PointsLike,
    x: PointsLike,
    density: bool | None,
    rng: np.random.Generator,
    *,
    n_simulations: int = 200,
    n_draws: int = 200,
    summary: Summary | None = None,
    n_jobs: int = 1,
    progress: bool | None = None,
) -> Tested:
    """Test pairs, given or simulated, and what posteriors say; the density if they have one."""
    how = {"n_simulations": n_simulations, "summary": summary, "rng": rng}
    how |= {"n_jobs": n_jobs, "progress": progress}
    truth, data, names = _pairs(model, prior, simulator, theta, x, how)
    m, n = integer(n_draws, "n_draws"), len(truth)
    seeds = np.random.SeedSequence([int(w) for w in rng.integers(2**32, size=4)]).spawn(n)
    pairs = zip(truth, data, seeds, strict=True)
    tasks = [(model, *pair, m, seed, density) for *pair, seed in pairs]
    results, warned = [], []
    with progress_bar(n, "posteriors", progress) as bar:
        for result, messages in _mapped(tasks, n_jobs):
            results.append(result)
            warned += messages[:1]
            bar.update()
    if warned:
        warn(f"{len(warned)} of {n} posteriors came with a warning, the first: {warned[0]}")
    sizes = {drawn.shape for drawn, _ in results}
    if len(sizes) > 1:
        raise ValueError(f"posteriors gave draws of different shapes: {sorted(sizes)}")
    drawn, logs = zip(*results, strict=True)
    known = None if any(log is None for log in logs) else np.stack(logs)
    return Tested(truth, data, names, np.stack(drawn), known)


def _pairs(
    model: Model,
    prior: PriorLike,
    simulator: Simulator | None,
    theta: PointsLike,
    x: PointsLike,
    options: dict[str, Any],
) -> tuple[Floats, Floats, tuple[str, ...]]:
    """Test pairs theta (n, d) and x (n, ...), given or simulated, and the parameters' names."""
    if (theta is None) != (x is None) or (prior is None) != (simulator is None):
        raise ValueError("give prior and simulator, or test pairs theta and x")
    if (theta is None) == (prior is None):
        raise ValueError("give either prior and simulator, or test pairs theta and x")
    if simulator is not None:
        read = as_prior(prior)
        runs = simulate(simulator, read, on_interrupt="raise", **options)
        given = (runs.theta, read.names, "names_"), (runs.x, runs.x_names, "x_names_")
        pairs = tuple(points_in_order(A, n, getattr(model, k, None), k[:-1]) for A, n, k in given)
        names = getattr(model, "names_", None) or read.names
    else:
        theta = in_order(theta, getattr(model, "names_", None), "theta")
        x = in_order(x, getattr(model, "x_names_", None), "x")
        table = np.asarray(to_numpy(as_vectors(theta, "theta")), dtype=np.float64)
        pairs = table, np.asarray(to_numpy(as_floats(x, "x")))
        names = column_names(theta) or getattr(model, "names_", None)
    if np.shape(pairs[1])[:1] != (len(pairs[0]),):
        raise ValueError(f"{len(pairs[0])} parameters but {len(np.atleast_1d(pairs[1]))} data sets")
    if not np.size(pairs[1]):
        raise ValueError(f"x has no numbers: its shape is {np.shape(pairs[1])}; give the data sets")
    d = pairs[0].shape[1]
    return *pairs, names if names and len(names) == d else tuple(f"theta[{j}]" for j in range(d))


def _mapped(tasks: list[Asked], n_jobs: int) -> Iterable[tuple[Answer, list[str]]]:
    if n_jobs == 1:
        return mapped(_quietly, tasks)
    from joblib import Parallel, delayed

    found: Iterable[tuple[Answer, list[str]]] = Parallel(n_jobs=n_jobs, return_as="generator")(
        delayed(_quietly)(task) for task in tasks
    )
    return found


def _quietly(task: Asked) -> tuple[Answer, list[str]]:
    """Ask, and return numerical warnings as messages; others are given as ever."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", NumericalWarning)
        result = _ask(*task)
    messages = []
    for warning in caught:
        if issubclass(warning.category, NumericalWarning):
            messages.append(str(warning.message))
        else:
            warnings.warn(warning.message, warning.category, stacklevel=2)
    return result, messages


def _ask(
    model: Model,
    theta: Floats,
    x: Floats,
    m: int,
    seed: np.random.SeedSequence,
    density: bool | None,
) -> Answer:
    """Draws (m, d) from the posterior given x, and log densities (1 + m,) of truth and draws."""
    given: Any = getattr(model, "posterior", model)
    if not callable(given) or (isinstance(model, type) and given is not model):
        raise TypeError("the model must be a function of x or have posterior(x), and be no class")
    posterior = given(x)
    drawn = draws_of(posterior, m, np.random.default_rng(seed))
    if drawn.shape[1] != len(theta):
        raise ValueError(f"posteriors have {drawn.shape[1]} parameters, the truth has {len(theta)}")
    log_density: Any = getattr(posterior, "log_density", None)
    if density is None:
        density = callable(log_density)
    if not density:
        return drawn, None
    if not callable(log_density):
        raise ValueError("these posteriors have no log_density; use joint='distance'")
    return drawn, np.asarray(to_numpy(log_density(np.vstack([theta, drawn]))), dtype=float).ravel()
