"""A simulator, a prior and an observation in; a posterior out."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from kernelbayes.arrays import NumericalWarning, Rng, as_generator
from kernelbayes.kernels import Gaussian
from kernelbayes.likelihood_free.model import LikelihoodFree, Method, check_options
from kernelbayes.likelihood_free.posterior import Posterior
from kernelbayes.likelihood_free.priors import Prior, as_prior
from kernelbayes.likelihood_free.reading import FEWEST_SIMULATIONS
from kernelbayes.likelihood_free.scores import Score
from kernelbayes.likelihood_free.simulators import Simulations, as_observation, simulate
from kernelbayes.rules.ratio import density_ratio

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
    on_failure: str = "drop",
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
    on_failure : {"drop", "raise"}
        What to do with simulations that give NaN or infinite numbers, or raise.
    progress : bool, optional

    Returns
    -------
    Posterior
        Its ``diagnostics`` say how it was made, and hold the fitted ``model`` and the
        ``simulations`` (of the first round).

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
    if simulations is not None and not isinstance(simulations, Simulations):
        raise TypeError(
            f"simulations must come from simulate(...), got {type(simulations).__name__}; for "
            "arrays use LikelihoodFree(prior).fit(theta, x)"
        )
    check_options(method, adjust, score)  # before simulations are made, which takes long
    generator = as_generator(rng)
    read = as_prior(prior)
    if rounds > 1 and read.simplices:
        raise ValueError("rounds need a density, which posteriors on a simplex have not; use one")
    options: dict[str, Any] = {"summary": summary, "n_jobs": n_jobs, "progress": progress}
    options["on_failure"] = on_failure
    first = n_simulations if rounds == 1 else max(n_simulations // rounds, 1)
    if first < FEWEST_SIMULATIONS < n_simulations:
        raise ValueError(
            f"{n_simulations} simulations in {rounds} rounds are {first} each; at least "
            f"{FEWEST_SIMULATIONS} are needed: fewer rounds or more simulations"
        )
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
    posterior = _posterior(model, observed, rounds == 1)
    theta, x, failed = runs.theta, runs.x, runs.failed
    proposals: list[tuple[int, float, Posterior]] = []
    for i in range(1, rounds):
        m = (n_simulations - first) * i // (rounds - 1) - (n_simulations - first) * (i - 1) // (
            rounds - 1
        )
        if m < 1:
            continue
        few = min(m - 1, int(np.ceil(FROM_PRIOR * m)))
        drawn = posterior.sample(m - few, rng=generator)
        if few:
            drawn = np.concatenate([drawn, read.sample(few, generator)])
        drawn = generator.permutation(drawn)  # an interrupted round has both kinds
        more = simulate(simulator, drawn, rng=generator, vectorized=runs.vectorized, **options)
        proposals.append((more.done, few / m, posterior))
        theta, x = np.concatenate([theta, more.theta]), np.concatenate([x, more.x])
        failed += more.failed
        weights = _weights(theta, read, runs.done, proposals)
        model = LikelihoodFree(read, method, adjust, score, rng=seed + i, progress=progress)
        posterior = _posterior(model.fit(theta, x, weights), observed, i == rounds - 1)
    report = replace(posterior.diagnostics, failed=failed, model=model, simulations=runs)
    return posterior.with_diagnostics(report)


def _posterior(model: LikelihoodFree, observed: Floats, last: bool) -> Posterior:
    """Posterior of a round; only those of the last one may warn."""
    with warnings.catch_warnings():
        if not last:
            warnings.simplefilter("ignore", NumericalWarning)
        found: Posterior = model.posterior(observed)
    return found


def _weights(
    theta: Floats, prior: Prior, first: int, proposals: list[tuple[int, float, Posterior]]
) -> Floats:
    """Prior over the mixture of all proposals, at the parameters (n, d) of all rounds."""
    if not prior.has_density:
        drawn = prior.sample(max(2000, len(theta)), 0)
        spread = np.where(theta.std(axis=0) > 0, theta.std(axis=0), 1.0)
        kernel = Gaussian.median(theta / spread, scale=0.5)
        ratio = density_ratio(drawn / spread, theta / spread, kernel)
        return np.asarray(np.maximum(ratio.at_denominator, 0.0))
    log_prior = prior.log_density(theta)
    counts = np.array([first, *(m for m, _, _ in proposals)], dtype=float)
    terms = [log_prior]
    for _, share, posterior in proposals:
        narrow = np.log1p(-share) + posterior.log_density(theta)
        wide = np.log(share) + log_prior if share else -np.inf
        terms.append(np.logaddexp(narrow, wide))
    mixed = np.logaddexp.reduce(np.stack(terms) + np.log(counts / counts.sum())[:, None], axis=0)
    logs = log_prior - mixed
    return np.asarray(np.exp(logs - logs.max()))
