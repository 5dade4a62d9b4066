"""A simulator, a prior and an observation in; a posterior out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from kernelbayes.arrays import Rng, as_generator
from kernelbayes.kernels import Gaussian
from kernelbayes.ratio import density_ratio
from kernelbayes.simulation.model import LikelihoodFree, Method
from kernelbayes.simulation.posterior import Posterior
from kernelbayes.simulation.priors import Prior, as_prior
from kernelbayes.simulation.scores import Score
from kernelbayes.simulation.simulators import Simulations, as_observation, simulate

Floats = np.ndarray[Any, Any]
# Share of later rounds that is drawn from the prior, so that no weight is without bound.
FROM_PRIOR = 0.2


def infer(
    simulator: Callable[..., Any],
    prior: Any,
    x_observed: Any,
    n_simulations: int = 1000,
    method: Method = "auto",
    summary: Callable[[Any], Any] | None = None,
    n_jobs: int = 1,
    rng: Rng = None,
    *,
    rounds: int = 1,
    adjust: str = "auto",
    score: Score = "log",
    simulations: Simulations | None = None,
    vectorized: bool | None = None,
    progress: bool | None = None,
) -> Posterior:
    r"""Posterior over a simulator's parameters given an observation.

    Parameters
    ----------
    simulator : callable
        ``simulator(theta, rng)`` of one parameter (d,) or of a batch (b, d).
    prior : distribution, list or dict of them, object, callable or draws
        See :class:`~kernelbayes.LikelihoodFree`.
    x_observed : number, array or dict
        Shaped like one output of the simulator.
    n_simulations : int
        In all rounds together.
    method, adjust, score
        See :class:`~kernelbayes.LikelihoodFree`.
    summary : callable, optional
        Summary statistics of a simulation, applied to the observation too.
    n_jobs : int
        Processes that simulate.
    rng : int, Generator or None
    rounds : int
        With more than one, later simulations are made where the posterior so far lies, weighted by
        prior over proposal. Sharper for one observation, of no use for others.
    simulations : Simulations, optional
        Made before with the same simulator and prior, by :func:`simulate`; continued if they are
        fewer than ``n_simulations`` (and there is one round).
    vectorized : bool, optional
        Whether the simulator takes batches; found out unless given.
    progress : bool, optional

    Returns
    -------
    Posterior
        Its ``diagnostics`` say how it was made, and hold the fitted ``model`` and the
        ``simulations``.

    Examples
    --------
    >>> import kernelbayes as kb
    >>> from scipy import stats
    >>> def simulator(theta, rng):
    ...     return rng.normal(theta, 1.0)
    >>> posterior = kb.infer(simulator, stats.norm(0, 1), 1.0, n_simulations=500, rng=0)
    >>> bool(abs(posterior.mean()[0] - 0.5) < 0.2)  # the exact one is N(1/2, 1/2)
    True
    """
    if not callable(simulator):
        raise TypeError(f"simulator must be a function (theta, rng), got {simulator!r}")
    if not isinstance(rounds, int | np.integer) or rounds < 1:
        raise ValueError(f"rounds must be a positive number, got {rounds!r}")
    generator = as_generator(rng)
    read = as_prior(prior)
    options: dict[str, Any] = {"summary": summary, "n_jobs": n_jobs, "progress": progress}
    first = n_simulations if rounds == 1 else max(n_simulations // rounds, 1)
    runs = simulate(
        simulator,
        read,
        first if simulations is None else max(first, simulations.done),
        rng=generator,
        resume=simulations,
        vectorized=vectorized,
        **options,
    )
    observed = as_observation(x_observed, summary, runs)
    seed = int(generator.integers(2**31))
    model = LikelihoodFree(read, method, adjust, score, rng=seed, progress=progress)
    model.fit(runs.theta, runs.x)
    posterior: Posterior = model.posterior(observed)
    theta, x, failed = runs.theta, runs.x, runs.failed
    proposals: list[tuple[int, Posterior]] = []
    for i in range(1, rounds):
        share = (n_simulations - first) * i // (rounds - 1)
        m = share - sum(count for count, _ in proposals)
        proposals.append((m, posterior))
        drawn = _propose(posterior, read, m, generator)
        more = simulate(simulator, drawn, rng=generator, vectorized=runs.vectorized, **options)
        theta, x = np.concatenate([theta, more.theta]), np.concatenate([x, more.x])
        failed += more.failed
        weights = _weights(theta, read, first, proposals)
        model = LikelihoodFree(read, method, adjust, score, rng=seed + i, progress=progress)
        posterior = model.fit(theta, x, weights).posterior(observed)
    report = replace(posterior.diagnostics, failed=failed, model=model, simulations=runs)
    return posterior.with_diagnostics(report)


def _propose(posterior: Posterior, prior: Prior, m: int, rng: np.random.Generator) -> Floats:
    """Parameters (m, d) from the posterior so far, some of them from the prior."""
    few = min(m - 1, int(np.ceil(FROM_PRIOR * m)))
    drawn = posterior.sample(m - few, rng=rng)
    return np.concatenate([drawn, prior.sample(few, rng)]) if few else np.asarray(drawn)


def _weights(
    theta: Floats, prior: Prior, first: int, proposals: list[tuple[int, Posterior]]
) -> Floats:
    """Prior over the mixture of all proposals, at the parameters (n, d) of all rounds."""
    if not prior.has_density:
        drawn = prior.sample(max(2000, len(theta)), 0)
        spread = np.where(theta.std(axis=0) > 0, theta.std(axis=0), 1.0)
        kernel = Gaussian.median(theta / spread, scale=0.5)
        ratio = density_ratio(drawn / spread, theta / spread, kernel)
        return np.asarray(np.maximum(ratio.at_denominator, 0.0))
    log_prior = prior.log_density(theta)
    counts = np.array([first, *(m for m, _ in proposals)], dtype=float)
    terms = [log_prior]
    for _, posterior in proposals:
        narrow = np.log1p(-FROM_PRIOR) + posterior.log_density(theta)
        terms.append(np.logaddexp(narrow, np.log(FROM_PRIOR) + log_prior))
    mixed = np.logaddexp.reduce(np.stack(terms) + np.log(counts / counts.sum())[:, None], axis=0)
    logs = log_prior - mixed
    return np.asarray(np.exp(logs - logs.max()))
