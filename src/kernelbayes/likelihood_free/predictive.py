"""Posterior predictive checks: whether the posterior simulates data like those observed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.covariance import ledoit_wolf

from kernelbayes.arrays import Rng, as_generator
from kernelbayes.likelihood_free.calling import as_row
from kernelbayes.likelihood_free.results import PredictiveCheck
from kernelbayes.likelihood_free.simulators import as_observation, simulate
from kernelbayes.likelihood_free.uniformity import draw_from

Floats = np.ndarray[Any, Any]
FULL = 300  # columns up to which their correlations are looked at, too


def posterior_predictive(
    posterior: Any,
    simulator: Callable[..., Any],
    x_observed: Any,
    *,
    m: int = 200,
    statistic: Callable[[Any], Any] | None = None,
    summary: Callable[[Any], Any] | None = None,
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
        See :func:`~kernelbayes.likelihood_free.simulators.simulate`.
    x_observed : array or dict
        As the simulator (or the summary) gives it, or to be summarised.
    m : int
        Simulations.
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
    >>> from kernelbayes.likelihood_free.predictive import posterior_predictive
    >>> draws = np.random.default_rng(0).normal(size=(200, 2))
    >>> posterior_predictive(draws, lambda t, rng: rng.normal(t), [0.5, 9.0], rng=1).verdict
    'the observation is unlike the simulations from the posterior (p = 0.005): x[1] is high'
    """
    rng = as_generator(rng)
    theta = draw_from(posterior, m, rng)
    runs = simulate(
        simulator,
        theta,
        rng=rng,
        n_jobs=n_jobs,
        summary=summary,
        vectorized=vectorized,
        progress=progress,
    )
    observed = as_observation(x_observed, summary, runs)
    names = runs.x_names
    if statistic is None:
        values, truth = runs.x.reshape(len(runs), -1), observed.ravel()
    else:
        values, truth = (
            np.stack([as_row(statistic(x))[0].ravel() for x in part])
            for part in (runs.x, observed[None])
        )
        truth = truth[0]
        names = as_row(statistic(observed))[1]
    if not (np.all(np.isfinite(values)) and np.all(np.isfinite(truth))):
        raise ValueError("the statistic gave NaN or infinite values")
    label = "x" if statistic is None else "statistic"
    names = names or tuple(f"{label}[{j}]" for j in range(len(truth)))
    return PredictiveCheck(
        runs.theta,
        runs.x,
        values,
        truth,
        tail_pvalues(values, truth),
        _overall(values, truth),
        names,
    )


def tail_pvalues(values: Floats, observed: Floats) -> Floats:
    """Two-sided p-values (k,) of each column of the observation among values (m, k)."""
    above = (1 + np.sum(values >= observed, axis=0)) / (1 + len(values))
    below = (1 + np.sum(values <= observed, axis=0)) / (1 + len(values))
    return np.asarray(np.minimum(1.0, 2.0 * np.minimum(above, below)))


def _overall(values: Floats, observed: Floats) -> float:
    """p-value of the observation's Mahalanobis distance, among all rows taken together.

    Centre and covariance are those of simulations and observation alike: then the p-value is exact
    if the observation is one more row of the same kind.
    """
    rows = np.vstack([observed, values])
    rows = rows - rows.mean(axis=0)
    scale = rows.std(axis=0)
    rows = rows[:, scale > 0] / scale[scale > 0]
    if not rows.shape[1]:
        return 1.0
    solved = rows
    if rows.shape[1] <= FULL:
        solved = np.linalg.solve(ledoit_wolf(rows, assume_centered=True)[0], rows.T).T
    distance = np.sum(rows * solved, axis=1)
    return float(np.mean(distance >= distance[0] * (1 - 1e-12)))
