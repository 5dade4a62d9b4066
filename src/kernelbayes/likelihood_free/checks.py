"""Checks of posteriors: whether they hold the truth as often as they say.

Parameters are drawn from the prior, data simulated at each, and the posterior for these data is
asked about the parameter that made them. :func:`sbc` looks at ranks (simulation-based calibration,
Talts et al. 2018), :func:`coverage` at intervals and joint regions. Neither needs the true
posterior. Both are averages over the prior: a posterior that ignores the data passes, so look at
how much narrower than the prior it is, too.

The model is anything with ``.posterior(x)`` whose result has ``.sample(m, rng=...)``, or a function
from x to draws (m, d).

>>> import numpy as np
>>> from scipy import stats
>>> from kernelbayes.likelihood_free.checks import sbc
>>> rng = np.random.default_rng(0)
>>> exact = lambda x: rng.normal(x / 2, np.sqrt(1 / 2), size=(100, 1))
>>> result = sbc(exact, stats.norm(), lambda theta, rng: rng.normal(theta), rng=1)
>>> result.verdict
'calibrated: nothing to see in 200 simulations'
>>> too_sure = lambda x: rng.normal(x / 2, 0.4, size=(100, 1))
>>> sbc(too_sure, stats.norm(), lambda theta, rng: rng.normal(theta), rng=1).verdict
'theta[0] is too narrow'
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from kernelbayes.arrays import NumericalWarning, Rng, as_generator, to_numpy
from kernelbayes.likelihood_free.predictive import posterior_predictive
from kernelbayes.likelihood_free.priors import as_prior
from kernelbayes.likelihood_free.results import CoverageCheck, RankCheck
from kernelbayes.likelihood_free.simulators import simulate
from kernelbayes.likelihood_free.uniformity import draw_from, ranks_among, uniform_pvalues
from kernelbayes.points import as_array, as_vectors, column_names
from kernelbayes.select import progress_bar

__all__ = ["coverage", "posterior_predictive", "sbc"]

Floats = np.ndarray[Any, Any]


def sbc(
    model: Any,
    prior: Any = None,
    simulator: Callable[..., Any] | None = None,
    *,
    theta: Any = None,
    x: Any = None,
    n: int = 200,
    draws: int = 100,
    summary: Callable[[Any], Any] | None = None,
    rng: Rng = None,
    n_jobs: int = 1,
    progress: bool | None = None,
) -> RankCheck:
    """Simulation-based calibration: ranks of true parameters among posterior draws.

    Parameters
    ----------
    model : object with ``posterior(x)``, or callable
        See the module.
    prior, simulator
        To make n test pairs with; see :func:`~kernelbayes.likelihood_free.simulators.simulate`.
    theta, x : arrays (n, d) and (n, ...), optional
        Test pairs, instead. They must not have been used to fit the model.
    n, draws : int
        Test pairs, and draws from each posterior.
    summary : callable, optional
        Of simulations, for a model of summaries.
    rng : int, Generator or None
    n_jobs : int
        Processes.
    progress : bool, optional

    Returns
    -------
    RankCheck
    """
    rng = as_generator(rng)
    theta, x, names = _pairs(model, prior, simulator, theta, x, n, summary, rng, n_jobs, progress)
    drawn, _ = _drawn(model, theta, x, draws, rng, n_jobs, progress, density=False)
    ranks = ranks_among(theta, drawn, rng)
    return RankCheck(ranks, drawn.shape[1], names, uniform_pvalues(ranks, drawn.shape[1]))


def coverage(
    model: Any,
    prior: Any = None,
    simulator: Callable[..., Any] | None = None,
    *,
    theta: Any = None,
    x: Any = None,
    levels: Sequence[float] = (0.5, 0.8, 0.9),
    joint: str = "auto",
    n: int = 200,
    draws: int = 200,
    summary: Callable[[Any], Any] | None = None,
    rng: Rng = None,
    n_jobs: int = 1,
    progress: bool | None = None,
) -> CoverageCheck:
    """Count how often central intervals and joint regions hold the truth, over levels.

    Parameters
    ----------
    model, prior, simulator, theta, x, n, draws, summary, rng, n_jobs, progress
        As for :func:`sbc`.
    levels : sequence of float
    joint : "auto", "density" or "distance"
        Joint regions: of highest density, if the posterior has ``log_density`` (Hermans et al.
        2022); or of distances to random references, which needs draws only (TARP, Lemos et al.
        2023; central intervals of the distance here, so that narrow posteriors cover too little).

    Returns
    -------
    CoverageCheck
    """
    wanted = np.atleast_1d(np.asarray(levels, dtype=float))
    if wanted.ndim != 1 or not np.all((wanted > 0) & (wanted < 1)):
        raise ValueError(f"levels must lie in (0, 1), got {levels!r}")
    if joint not in ("auto", "density", "distance"):
        raise ValueError(f"joint must be 'auto', 'density' or 'distance', got {joint!r}")
    rng = as_generator(rng)
    theta, x, names = _pairs(model, prior, simulator, theta, x, n, summary, rng, n_jobs, progress)
    asked = {"auto": None, "density": True, "distance": False}[joint]
    drawn, logs = _drawn(model, theta, x, draws, rng, n_jobs, progress, density=asked)
    m = drawn.shape[1]
    u = (ranks_among(theta, drawn, rng) + rng.uniform(size=theta.shape)) / (m + 1)
    noise = rng.uniform(size=len(theta))
    if logs is None:
        region = np.abs(2.0 * (_tarp(theta, drawn, rng) + noise) / (m + 1) - 1.0)
        return CoverageCheck(wanted, u, region, "distance", names)
    # The fraction of draws of higher density than the truth.
    region = (ranks_among(-logs[:, 0], -logs[:, 1:], rng) + noise) / (m + 1)
    return CoverageCheck(wanted, u, region, "density", names)


def _tarp(theta: Floats, drawn: Floats, rng: np.random.Generator) -> Floats:
    """Rank (n,) of the truth's distance to a reference among those of the draws."""
    scale = theta.std(axis=0)
    scale = np.where(scale > 0, scale, 1.0)
    # References: parameters of other test pairs, which know nothing of this pair's truth.
    others = (np.arange(len(theta)) + rng.integers(1, max(2, len(theta)), len(theta))) % len(theta)
    reference = theta[others]
    truth = np.linalg.norm((theta - reference) / scale, axis=1)
    distance = np.linalg.norm((drawn - reference[:, None]) / scale, axis=2)
    return ranks_among(truth, distance, rng)


def _pairs(
    model: Any,
    prior: Any,
    simulator: Any,
    theta: Any,
    x: Any,
    n: int,
    summary: Any,
    rng: np.random.Generator,
    n_jobs: int,
    progress: bool | None,
) -> tuple[Floats, Floats, tuple[str, ...]]:
    """Test pairs theta (n, d) and x (n, ...), and the parameters' names."""
    if (theta is None) != (x is None) or (prior is None) != (simulator is None):
        raise ValueError("give prior and simulator, or test pairs theta and x")
    if (theta is None) == (prior is None):
        raise ValueError("give either prior and simulator, or test pairs theta and x")
    if prior is not None:
        read = as_prior(prior)
        runs = simulate(
            simulator, read, n, summary=summary, rng=rng, n_jobs=n_jobs, progress=progress
        )
        pairs, names = (runs.theta, runs.x), read.names
    else:
        table = np.asarray(to_numpy(as_vectors(theta, "theta")), dtype=np.float64)
        pairs = table, np.asarray(to_numpy(as_array(x, "x")))
        names = column_names(theta) or getattr(model, "names_", None)
    if len(pairs[0]) != len(pairs[1]):
        raise ValueError(f"{len(pairs[0])} parameters but {len(pairs[1])} data sets")
    d = pairs[0].shape[1]
    return *pairs, names if names and len(names) == d else tuple(f"theta[{j}]" for j in range(d))


def _drawn(
    model: Any,
    theta: Floats,
    x: Floats,
    m: int,
    rng: np.random.Generator,
    n_jobs: int,
    progress: bool | None,
    density: bool | None,
) -> tuple[Floats, Floats | None]:
    """Draws (n, m, d) and, if asked for, log densities (n, 1 + m) of the truth and the draws."""
    if m < 1:
        raise ValueError(f"draws must be positive, got {m}")
    seeds = np.random.SeedSequence([int(w) for w in rng.integers(2**32, size=4)]).spawn(len(theta))
    tasks = [(model, *pair, m, seed, density) for *pair, seed in zip(theta, x, seeds, strict=True)]
    results, warned = [], []
    with progress_bar(len(theta), "posteriors", progress) as bar:
        for result, messages in _mapped(tasks, n_jobs):
            results.append(result)
            warned += messages[:1]
            bar.update()
    if warned:
        warnings.warn(
            f"{len(warned)} of {len(theta)} posteriors came with a warning, the first: {warned[0]}",
            NumericalWarning,
            stacklevel=3,
        )
    sizes = {drawn.shape for drawn, _ in results}
    if len(sizes) > 1:
        raise ValueError(f"posteriors gave draws of different shapes: {sorted(sizes)}")
    logs = [log for _, log in results if log is not None]
    drawn = np.stack([drawn for drawn, _ in results])
    return drawn, np.stack(logs) if len(logs) == len(results) else None


def _mapped(tasks: list[Any], n_jobs: int) -> Any:
    if n_jobs == 1:
        return (_quietly(*task) for task in tasks)
    from joblib import Parallel, delayed

    calls = (delayed(_quietly)(*task) for task in tasks)
    return Parallel(n_jobs=n_jobs, return_as="generator")(calls)


def _quietly(*task: Any) -> tuple[tuple[Floats, Floats | None], list[str]]:
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
    model: Any, theta: Floats, x: Floats, m: int, seed: Any, density: bool | None
) -> tuple[Floats, Floats | None]:
    """Draws (m, d) from the posterior given x, and log densities (1 + m,) of truth and draws."""
    if not callable(getattr(model, "posterior", model)):
        raise TypeError("the model needs a method posterior(x), or be a function from x to draws")
    posterior = getattr(model, "posterior", model)(x)
    drawn = draw_from(posterior, m, np.random.default_rng(seed))
    if drawn.shape[1] != len(theta):
        raise ValueError(
            f"posteriors are over {drawn.shape[1]} parameters, the truth has {len(theta)}"
        )
    log_density = getattr(posterior, "log_density", None)
    if density is None:
        density = callable(log_density)
    if not density:
        return drawn, None
    if not callable(log_density):
        raise ValueError("these posteriors have no log_density; use joint='distance'")
    return drawn, np.asarray(to_numpy(log_density(np.vstack([theta, drawn]))), dtype=float).ravel()
