"""Checks of posteriors: whether they hold the truth as often as they say.

Parameters are drawn from the prior, data simulated at each, and the posterior for these data is
asked about the parameter that made them. :func:`sbc` looks at ranks (simulation-based calibration,
Talts et al. 2018), :func:`coverage` at intervals and joint regions. Neither needs the true
posterior. Both average over the prior, so a posterior that ignores the data passes.

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
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from kernelbayes.arrays import (
    Floats,
    NumericalWarning,
    Rng,
    as_doubles,
    as_floats,
    as_generator,
    as_vectors,
    to_numpy,
)
from kernelbayes.likelihood_free.distributions import PriorLike
from kernelbayes.likelihood_free.pairs import draws_of
from kernelbayes.likelihood_free.prior import as_prior
from kernelbayes.likelihood_free.results import (
    CoverageCheck,
    PredictiveCheck,
    RankCheck,
    mahalanobis_pvalue,
    ranks_among,
    tail_pvalues,
    tarp_ranks,
    uniform_pvalues,
)
from kernelbayes.likelihood_free.running.calling import Output, Simulator, Summary, as_row
from kernelbayes.likelihood_free.simulate import as_observation, simulate
from kernelbayes.points import (
    PointsLike,
    column_names,
    function,
    in_order,
    integer,
    option,
    points_in_order,
)
from kernelbayes.select.search import progress_bar

# An object with posterior(x), or a function from x to draws (m, d); its posterior; a question.
Model = Any
Asked = tuple[Model, Floats, Floats, int, np.random.SeedSequence, bool | None]
Answer = tuple[Floats, Floats | None]


def sbc(
    model: Model,
    prior: PriorLike = None,
    simulator: Simulator | None = None,
    *,
    theta: PointsLike = None,
    x: PointsLike = None,
    n_simulations: int = 200,
    n_draws: int = 100,
    summary: Summary | None = None,
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
        To simulate test pairs with; see :func:`~kernelbayes.simulate`.
    theta, x : arrays (n, d) and (n, ...), optional
        Test pairs, instead. They must not have been used to fit the model.
    n_simulations, n_draws : int
        Test pairs to simulate, and draws from each posterior.
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
    options = {"rng": rng, "n_jobs": n_jobs, "progress": progress}
    options |= {"n_simulations": n_simulations, "summary": summary}
    theta, x, names = _pairs(model, prior, simulator, theta, x, options)
    drawn, _ = _drawn(model, theta, x, n_draws, False, rng, n_jobs, progress)
    ranks = ranks_among(theta, drawn, rng)
    return RankCheck(ranks, drawn.shape[1], names, uniform_pvalues(ranks, drawn.shape[1]))


def coverage(
    model: Model,
    prior: PriorLike = None,
    simulator: Simulator | None = None,
    *,
    theta: PointsLike = None,
    x: PointsLike = None,
    levels: Sequence[float] = (0.5, 0.8, 0.9),
    joint: str = "auto",
    n_simulations: int = 200,
    n_draws: int = 200,
    summary: Summary | None = None,
    rng: Rng = None,
    n_jobs: int = 1,
    progress: bool | None = None,
) -> CoverageCheck:
    """Coverage of central intervals and joint regions: how often they hold the truth.

    Parameters
    ----------
    model, prior, simulator, theta, x, n_simulations, n_draws, summary, rng, n_jobs, progress
        As for :func:`sbc`.
    levels : sequence of float
        Nominal coverages.
    joint : "auto", "density" or "distance"
        Joint regions: of highest density, if the posterior has ``log_density`` (Hermans et al.
        2022); or of distances to random references, which needs draws only (TARP, Lemos et al.
        2023; central intervals of the distance here, so that narrow posteriors cover too little).

    Returns
    -------
    CoverageCheck
    """
    wanted = np.atleast_1d(as_doubles(levels, "levels"))
    if wanted.ndim != 1 or not np.all((wanted > 0) & (wanted < 1)):
        raise ValueError(f"levels must lie in (0, 1), got {levels!r}")
    option(joint, "joint", ("auto", "density", "distance"))
    rng = as_generator(rng)
    options = {"rng": rng, "n_jobs": n_jobs, "progress": progress}
    options |= {"n_simulations": n_simulations, "summary": summary}
    theta, x, names = _pairs(model, prior, simulator, theta, x, options)
    density = {"auto": None, "density": True, "distance": False}[joint]
    drawn, logs = _drawn(model, theta, x, n_draws, density, rng, n_jobs, progress)
    m = drawn.shape[1]
    u = (ranks_among(theta, drawn, rng) + rng.uniform(size=theta.shape)) / (m + 1)
    noise = rng.uniform(size=len(theta))
    if logs is None:
        region = np.abs(2.0 * (tarp_ranks(theta, drawn, rng) + noise) / (m + 1) - 1.0)
        return CoverageCheck(wanted, u, region, "distance", names)
    # The fraction of draws of higher density than the truth.
    region = (ranks_among(-logs[:, 0], -logs[:, 1:], rng) + noise) / (m + 1)
    return CoverageCheck(wanted, u, region, "density", names)


def posterior_predictive(
    posterior: Any,
    simulator: Simulator,
    x_observed: Output,
    *,
    n_simulations: int = 200,
    statistic: Summary | None = None,
    summary: Summary | None = None,
    rng: Rng = None,
    n_jobs: int = 1,
    vectorized: bool | None = None,
    progress: bool | None = None,
) -> PredictiveCheck:
    """Simulate at posterior draws and compare with the observation.

    Posterior predictive p-values are conservative: the data have been used to fit the posterior. A
    small one is a reason to doubt the simulator or the inference, a large one proves little.

    Parameters
    ----------
    posterior : object with ``sample(m, rng=...)``, or draws (m, d)
    simulator : callable
        See :func:`~kernelbayes.simulate`.
    x_observed : array or dict
        As the simulator (or the summary) gives it, or to be summarised.
    n_simulations : int
    statistic : callable, optional
        ``statistic(x)`` of one simulation's x: a number or a vector to compare, instead of x.
    summary : callable, optional
        As in the inference.
    rng, n_jobs, vectorized, progress
        As for ``simulate``.

    Returns
    -------
    PredictiveCheck

    Examples
    --------
    >>> import numpy as np
    >>> from kernelbayes import posterior_predictive
    >>> draws = np.random.default_rng(0).normal(size=(200, 2))
    >>> posterior_predictive(draws, lambda t, rng: rng.normal(t), [0.5, 9.0], rng=1).verdict
    'the observation is unlike the simulations from the posterior (p = 0.005): x[1] is high'
    """
    rng = as_generator(rng)
    theta = draws_of(posterior, integer(n_simulations, "n_simulations"), rng)
    how: dict[str, Any] = {"vectorized": vectorized, "progress": progress, "on_interrupt": "raise"}
    runs = simulate(simulator, theta, rng=rng, n_jobs=n_jobs, summary=summary, **how)
    observed = as_observation(x_observed, summary, runs)
    names, label = runs.x_names, "x"
    values, truth = runs.x.reshape(len(runs), -1), observed.ravel()
    if statistic is not None:
        function(statistic, "statistic")
        values = np.stack([as_row(statistic(x))[0].ravel() for x in runs.x])
        found, names = as_row(statistic(observed))
        truth, label = found.ravel(), "statistic"
    if not (np.all(np.isfinite(values)) and np.all(np.isfinite(truth))):
        raise ValueError("the statistic gave NaN or infinite values")
    names = names or tuple(f"{label}[{j}]" for j in range(len(truth)))
    pvalues = tail_pvalues(values, truth), mahalanobis_pvalue(values, truth)
    return PredictiveCheck(runs.theta, runs.x, values, truth, *pvalues, names)


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
    d = pairs[0].shape[1]
    return *pairs, names if names and len(names) == d else tuple(f"theta[{j}]" for j in range(d))


def _drawn(
    model: Model,
    theta: Floats,
    x: Floats,
    m: int,
    density: bool | None,
    rng: np.random.Generator,
    n_jobs: int,
    progress: bool | None,
) -> tuple[Floats, Floats | None]:
    """Draws (n, m, d) and, if asked for, log densities (n, 1 + m) of the truth and the draws."""
    m = integer(m, "n_draws")
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


def _mapped(tasks: list[Asked], n_jobs: int) -> Iterable[tuple[Answer, list[str]]]:
    if n_jobs == 1:
        return (_quietly(task) for task in tasks)
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
        raise ValueError(
            f"posteriors are over {drawn.shape[1]} parameters, the truth has {len(theta)}"
        )
    log_density: Any = getattr(posterior, "log_density", None)
    if density is None:
        density = callable(log_density)
    if not density:
        return drawn, None
    if not callable(log_density):
        raise ValueError("these posteriors have no log_density; use joint='distance'")
    return drawn, np.asarray(to_numpy(log_density(np.vstack([theta, drawn]))), dtype=float).ravel()
