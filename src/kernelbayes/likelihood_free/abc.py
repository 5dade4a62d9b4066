r"""Rejection ABC, the baseline everyone knows.

Parameters are drawn from the prior, data simulated, and those parameters kept whose data come close
to the observation. What is left is a sample of

.. math:: p(\theta \mid \rho(x, x_o) \le \delta),

the posterior as the tolerance goes to zero, and ever fewer simulations are kept on the way there.
The local-linear adjustment (Beaumont, Zhang and Balding 2002) shifts the kept parameters along a
weighted regression on the data, :math:`\theta_i - \beta^\top (x_i - x_o)`, to where they would be
at the observation.

>>> import numpy as np
>>> from scipy import stats
>>> from kernelbayes.likelihood_free.abc import reject_abc
>>> posterior = reject_abc(
...     lambda theta, rng: rng.normal(theta), stats.norm(), [1.0], adjust=True, rng=0
... )
>>> bool(abs(posterior.mean()[0] - 0.5) < 0.2)  # the exact posterior is N(1/2, 1/2)
True
"""

from collections.abc import Callable

import numpy as np

from kernelbayes.arrays import to_numpy, warn
from kernelbayes.gram.lapack import least_squares
from kernelbayes.likelihood_free.distributions import PriorLike
from kernelbayes.likelihood_free.learn.adjust import bounded, epanechnikov, unbounded
from kernelbayes.likelihood_free.posterior import Posterior, make_posterior
from kernelbayes.likelihood_free.prior import Prior, as_prior
from kernelbayes.likelihood_free.running.calling import Output, Simulator, Summary
from kernelbayes.likelihood_free.simulate import Simulations, as_observation, simulate
from kernelbayes.points import flag, function, number, share
from kernelbayes.types import Array, Floats, Ints, PointsLike, Rng

Distance = Callable[[Floats, Floats], Array]
# Kept unless told otherwise: the best 1 %, as is usual, but at least a hundred, whose mean has an
# error of a tenth of a deviation; and five for each coefficient of an adjustment.
FRACTION, FEWEST_KEPT, PER_COEFFICIENT = 0.01, 100, 5


def reject_abc(
    source: Simulator | PointsLike,
    target: PriorLike | PointsLike,
    x_observed: Output,
    *,
    n_simulations: int = 10_000,
    tolerance: float | None = None,
    fraction: float | None = None,
    adjust: bool = False,
    distance: Distance | None = None,
    summary: Summary | None = None,
    prior: PriorLike = None,
    rng: Rng = None,
    n_jobs: int = 1,
    vectorized: bool | None = None,
    progress: bool | None = None,
) -> Posterior:
    """Posterior by rejection, from a simulator and a prior or from simulations made before.

    ``reject_abc(simulator, prior, x_observed)`` or ``reject_abc(theta, x, x_observed)``.

    Parameters
    ----------
    source, target : callable and prior, or arrays (n, d) and (n, ...)
        A simulator and what :func:`~kernelbayes.as_prior` takes, or simulations
        that were made before: parameters drawn from the prior and the data simulated at them.
    x_observed : array or dict
        The observation, as the simulator gives it (before the summary).
    n_simulations : int
        To run; not used for given simulations.
    tolerance : float, optional
        Keep simulations within this distance.
    fraction : float, optional
        Keep this fraction of the simulations, the closest. Without either the closest 1 % are
        kept, but at least 100 (and five per column of x, to adjust).
    adjust : bool
        Local-linear adjustment with Epanechnikov weights, in coordinates without bounds (logit or
        log by the prior's support), so that no point leaves the support. Discrete parameters are
        not adjusted.
    distance : callable, optional
        ``distance(x, x_observed)`` of data (n, ...) to the observation, (n,). By default
        Euclidean, each column divided by its median absolute deviation.
    summary : callable, optional
        Of data, before distances are taken.
    prior : optional
        For given simulations: the prior, for its support and names.
    rng, n_jobs, vectorized, progress
        As for :func:`~kernelbayes.simulate`.

    Returns
    -------
    Posterior
        Weighted parameters.

    Notes
    -----
    Distances lose their meaning as x gets wider, so that few good summaries do better than many:
    with ten columns the best 1 % of 10 000 simulations are not close to anything.
    """
    if tolerance is not None and fraction is not None:
        raise ValueError("give a tolerance or a fraction, not both")
    flag(adjust, "adjust")
    for name, given in (("distance", distance), ("summary", summary)):
        if given is not None:
            function(given, name)
    if callable(source):
        read: Prior | None = as_prior(target)
        runs = simulate(
            source, read, n_simulations, rng=rng, n_jobs=n_jobs, summary=summary,
            vectorized=vectorized, progress=progress, on_interrupt="raise",
        )  # fmt: skip
    else:
        read = None if prior is None else as_prior(prior)
        runs = Simulations.of(source, target, read, summary)
    x_o = as_observation(x_observed, summary, runs)
    scaled = _scaled(runs.x.reshape(len(runs), -1), x_o.ravel())
    distances = _distances(runs.x, x_o, distance, scaled)
    columns = scaled.shape[1] if adjust else 0
    kept, reach = _closest(distances, tolerance, fraction, columns)
    theta = runs.theta[kept]
    weights = np.full(len(kept), 1.0 / len(kept))
    adjusted = adjust and _enough(len(kept), columns)
    if adjusted:
        weights = epanechnikov(distances[None, kept], np.full((1, 1), reach))[0]
        weights /= weights.sum()
        theta = _adjusted(theta, scaled[kept], weights, read)
    diagnostics = {
        "method": "rejection",
        "n_simulations": runs.done,
        "failed": runs.failed,
        "accepted": len(kept),
        "tolerance": reach,
        "adjusted": adjusted,
    }
    return make_posterior(theta, weights, read, diagnostics, runs.names)


def local_linear(values: Floats, offsets: Floats, weights: Floats) -> Floats:
    """Values (n, d) moved along their weighted regression on offsets (n, k) to offset zero.

    With design (1, offsets) and weights w, beta is the weighted least-squares slope and the result
    is values - offsets beta (Beaumont et al. 2002, eq. 3).
    """
    root = np.sqrt(weights)[:, None]
    design = np.column_stack([np.ones(len(values)), offsets])
    beta = least_squares(root * design, root * values)[1:]
    return np.asarray(values - offsets @ beta)


def _scaled(x: Floats, x_o: Floats) -> Floats:
    """Differences (n, k) to the observation in median absolute deviations, or standard ones."""
    spread = np.median(np.abs(x - np.median(x, axis=0)), axis=0)
    spread = np.where(spread > 0, spread, x.std(axis=0))  # a mostly constant column has none
    return np.asarray((x - x_o) / np.where(spread > 0, spread, 1.0))


def _distances(x: Floats, x_o: Floats, distance: Distance | None, scaled: Floats) -> Floats:
    """Distances (n,) to the observation, by default the length of the scaled differences."""
    if distance is None:
        return np.asarray(np.linalg.norm(scaled, axis=1))
    distances = np.asarray(to_numpy(distance(x, x_o)), dtype=float)
    if distances.shape != (len(x),) or not np.all(distances >= 0):
        raise ValueError(
            f"distance must give {len(x)} numbers, zero or larger, for {len(x)} data sets; got "
            f"shape {distances.shape}"
        )
    return distances


def _closest(
    distances: Floats, tolerance: float | None, fraction: float | None, columns: int
) -> tuple[Ints, float]:
    """Numbers of the simulations to keep, and the largest distance allowed."""
    n = len(distances)
    if tolerance is not None:
        if not number(tolerance, "tolerance") >= 0:
            raise ValueError(f"tolerance must be zero or larger, got {tolerance!r}")
        kept = np.flatnonzero(distances <= tolerance)
        if not len(kept):
            raise ValueError(
                f"no simulation is within {tolerance:g} of the observation, the closest is at "
                f"{distances.min():g}; raise the tolerance or give a fraction"
            )
        return kept, float(tolerance)
    if fraction is None:
        keep = max(int(np.ceil(FRACTION * n)), FEWEST_KEPT, PER_COEFFICIENT * (columns + 1))
    else:
        keep = int(np.ceil(share(fraction, "fraction", high=True) * n))
    order = np.argsort(distances, kind="stable")[: min(keep, n)]
    return order, float(distances[order[-1]])


def _enough(kept: int, columns: int) -> bool:
    if kept >= 2 * (columns + 1):
        return True
    warn(
        f"{kept} simulations are too few to adjust by a regression on {columns} columns of x; "
        "they are not adjusted: raise the tolerance or the fraction, or summarise x"
    )
    return False


def _adjusted(theta: Floats, offsets: Floats, weights: Floats, prior: Prior | None) -> Floats:
    """Local-linear adjustment of the continuous parameters, inside the prior's support."""
    if prior is None:
        return local_linear(theta, offsets, weights)
    free = ~prior.discrete
    low, high = prior.low[free], prior.high[free]
    moved = theta.copy()
    start = unbounded(theta[:, free], low, high)
    moved[:, free] = bounded(local_linear(start, offsets, weights), low, high)
    return prior.project(moved)
