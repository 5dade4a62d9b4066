"""A simulator, a prior and an observation in; a posterior out."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import Any, Literal

import numpy as np
from array_api_compat import is_torch_array

from kernelbayes.arrays import as_generator, like, quiet
from kernelbayes.likelihood_free.distributions import PriorLike
from kernelbayes.likelihood_free.learn.judge import Criterion
from kernelbayes.likelihood_free.learn.task import check_options
from kernelbayes.likelihood_free.model import LikelihoodFree, Method
from kernelbayes.likelihood_free.posterior import Posterior
from kernelbayes.likelihood_free.prior import Prior, as_prior
from kernelbayes.likelihood_free.reweight import FEWEST_SIMULATIONS, Region
from kernelbayes.likelihood_free.running.calling import Output, Simulator, Summary
from kernelbayes.likelihood_free.running.journal import Keep
from kernelbayes.likelihood_free.simulate import Simulations, as_observation, simulate
from kernelbayes.points import integer, option
from kernelbayes.types import Rng

# rounds="auto": at most three, of the same size, and none of fewer simulations than this: ten of
# them are held out.
AUTO_ROUNDS, AUTO_LEAST = 3, 50


def infer(
    simulator: Simulator,
    prior: PriorLike,
    x_observed: Output,
    n_simulations: int = 1000,
    method: Method = "auto",
    summary: Summary | None = None,
    n_jobs: int = 1,
    rng: Rng = None,
    *,
    rounds: int | Literal["auto"] = 1,
    adjust: str = "auto",
    criterion: Criterion = "log",
    simulations: Simulations | None = None,
    vectorized: bool | None = None,
    on_failure: str = "drop",
    timeout: float | None = None,
    keep: str | os.PathLike[str] | None = None,
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
    method, adjust, criterion
        See :class:`~kernelbayes.LikelihoodFree`.
    summary : callable, optional
        Summary statistics of a simulation, applied to the observation too.
    n_jobs : int
        Processes that simulate.
    rng : int, Generator or None
    rounds : int or "auto"
        With more than one, of equal size, later simulations are drawn from the prior restricted to
        where the posterior may be; all draws inside are used, with equal weights. Sharper for one
        observation, of no use for others. "auto": at most three, and only where few simulations lie
        there; otherwise the rest is made as before.
    simulations : Simulations, optional
        Made before with the same simulator and prior, by :func:`simulate`; continued if they are
        fewer than ``n_simulations`` (and there is one round).
    vectorized : bool, optional
        Whether the simulator takes batches; found out unless given.
    on_failure : {"drop", "raise"}
        What to do with simulations that give NaN or infinite numbers, or raise.
    timeout : float, optional
        Seconds for each call of the simulator; see :func:`simulate`.
    keep : path, optional
        A file that gets each simulation as soon as it is done, in all rounds. If it exists, it is
        continued: after a crash, call again with the same arguments.
    progress : bool, optional

    Returns
    -------
    Posterior
        Its ``diagnostics`` say how it was made, and hold the fitted ``model`` and the
        ``simulations`` (of the first round). ``suggestion`` is a sentence if one round was made
        and more would help, or None.

    Notes
    -----
    What is raised once there are simulations, KeyboardInterrupt too, has an attribute
    ``simulations`` (of the first round: pass them on as ``simulations=`` to go on from there) and
    an attribute ``rounds`` (of all rounds, a list).

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
    check_options(method, adjust, criterion)  # before anything is simulated, which takes long
    generator, read = as_generator(rng), as_prior(prior)
    n, most = _plan(integer(n_simulations, "n_simulations"), rounds, read, simulations)
    if keep is not None and most > 1 and rng is None:
        raise ValueError("keep with several rounds needs an rng: later rounds depend on it")
    options: dict[str, Any] = {"summary": summary, "n_jobs": n_jobs, "progress": progress}
    options |= {"on_failure": on_failure, "timeout": timeout, "on_interrupt": "raise"}
    known: dict[str, Any] = {"resume": simulations, "vectorized": vectorized, "keep": keep}
    made: list[Simulations] = []
    with _never_lost(made):
        first = max(n // most, 1, 0 if simulations is None else simulations.done)
        own = rng if rng is None else generator  # without an rng, the one of the file
        made.append(simulate(simulator, read, first, rng=own, **known, **options))
        observed = as_observation(x_observed, summary, made[0])
        seed = int(generator.integers(2**31))
        left, auto, count = max(n - made[0].done, 0), rounds == "auto", 1
        theta, x, within, region = made[0].theta, made[0].x, read, None
        for later in reversed(range(most)):  # the number of rounds that may still follow
            last, settings = later == 0 or left == 0, (within, method, adjust, criterion)
            model = LikelihoodFree(*settings, rng=seed + len(made) - 1, progress=progress)
            model.fit(theta, x)
            with nullcontext() if last else quiet():  # only what is returned may warn
                posterior: Posterior = model.posterior(observed)
            report = replace(posterior.diagnostics, model=model, simulations=made[0])
            posterior = replace(posterior, diagnostics=report, prior=read)
            if last:
                break
            narrower, m = Region.of(posterior, read, generator, region), left
            if not auto or (narrower.pays(len(theta)) and left // later >= AUTO_LEAST):
                region, within = narrower, narrower.restricted()
                count, m = count + 1, max(left // later, 1)
                inside = region.inside(theta)
                theta, x = theta[inside], x[inside]
            file = keep if keep is None else Keep.of(keep, len(made))
            known = {"rng": generator, "vectorized": made[0].vectorized, "keep": file}
            made.append(simulate(simulator, within.sample(m, generator), **known, **options))
            theta = np.concatenate([theta, made[-1].theta])
            x, left = np.concatenate([x, made[-1].x]), left - m
    failed = sum(part.failed for part in made)
    report = replace(posterior.diagnostics, rounds=count, failed=failed, settled=auto)
    posterior = replace(posterior, diagnostics=report)
    if not is_torch_array(x_observed):
        return posterior
    floats = x_observed if x_observed.is_floating_point() else x_observed.double()
    points, weights = like(posterior.points, floats), like(posterior.weights, floats)
    return replace(posterior, points=points, weights=weights)


@contextmanager
def _never_lost(made: list[Simulations]) -> Iterator[None]:
    """Give every exception the simulations made until then."""
    try:
        yield
    except BaseException as error:
        part = getattr(error, "simulations", None)
        rounds = [*made, part] if part is not None else made
        if rounds:
            error.simulations, error.rounds = rounds[0], rounds  # type: ignore[attr-defined]
        if rounds and part is None:
            error.add_note(
                "the simulations are kept: they are the attribute `simulations` of this exception "
                "(sys.last_value.simulations in an interactive session)"
            )
        raise


def _plan(
    n: int, rounds: int | str, prior: Prior, simulations: Simulations | None
) -> tuple[int, int]:
    """Check what was asked for; return the number of simulations and the most rounds."""
    if simulations is not None and not isinstance(simulations, Simulations):
        raise TypeError(
            f"simulations must come from simulate(...), got {type(simulations).__name__}; for "
            "arrays use LikelihoodFree(prior).fit(theta, x)"
        )
    if isinstance(rounds, str):
        option(rounds, "rounds", ("auto",))
        return n, 1 if prior.simplices or n < AUTO_ROUNDS * AUTO_LEAST else AUTO_ROUNDS
    most = integer(rounds, "rounds")
    if most > 1 and prior.simplices:
        raise ValueError(
            "rounds > 1 needs a density, which a posterior on a simplex lacks; use rounds=1"
        )
    first = max(n // most, 0 if simulations is None else simulations.done)
    if most > 1 and first < FEWEST_SIMULATIONS:
        raise ValueError(
            f"{n} simulations in {most} rounds are {n // most} each; the first round needs at "
            f"least {FEWEST_SIMULATIONS}: fewer rounds or more simulations"
        )
    return n, most
