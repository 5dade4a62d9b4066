"""Checks of posteriors: whether they hold the truth as often as they say.

Parameters are drawn from the prior, data simulated at each, and the posterior for these data is
asked about the parameter that made them. :func:`sbc` looks at ranks (simulation-based calibration,
Talts et al. 2018), :func:`coverage` at intervals and joint regions. Neither needs the true
posterior. So does :func:`tarp`, with distances to reference points. All average over the prior, so
a posterior that ignores the data passes; :func:`recovery` says how much the data taught.

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

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Unpack

import numpy as np

from kernelbayes.arrays import as_doubles, as_generator
from kernelbayes.likelihood_free import results
from kernelbayes.likelihood_free.distributions import PriorLike
from kernelbayes.likelihood_free.pairs import Model, Testing, on_pairs
from kernelbayes.likelihood_free.results import Check, CoverageCheck, RankCheck, TarpCheck
from kernelbayes.likelihood_free.running.calling import Simulator, Summary
from kernelbayes.plot.posteriors import plot_recovery
from kernelbayes.points import option
from kernelbayes.tables import Table
from kernelbayes.types import Axes, Floats, PointsLike, Rng

# Contraction below which a parameter counts as hardly learned: its deviation is then 95 % of the
# prior's, or more.
HARDLY = 0.1


@dataclass(frozen=True, eq=False, repr=False)
class RecoveryCheck(Check):
    """Result of :func:`recovery`.

    Attributes
    ----------
    truth, means, sds : arrays (n, d)
        True parameters, and means and standard deviations of the posteriors.
    names : tuple of str
    """

    truth: Floats
    means: Floats
    sds: Floats
    names: tuple[str, ...]

    @property
    def contraction(self) -> Floats:
        """One minus the mean posterior variance over the prior's, (d,): one if all is learned."""
        wide = self.truth.var(axis=0)
        ratio = np.mean(self.sds**2, axis=0) / np.where(wide > 0, wide, 1.0)
        return np.asarray(np.where(wide > 0, 1.0 - ratio, 0.0))

    @property
    def z(self) -> Floats:
        """Error of each mean in posterior deviations, (n, d): of mean square one if calibrated."""
        return np.asarray((self.means - self.truth) / np.where(self.sds > 0, self.sds, np.inf))

    @property
    def verdict(self) -> str:
        """In words."""
        size = np.sqrt(np.mean(self.z**2, axis=0))
        found = zip(self.names, self.contraction, size, strict=True)
        words = [
            f"{name} is {'hardly ' if c < HARDLY else ''}learned (contraction {100 * c:.0f} %, "
            f"z-scores of size {s:.2g})"
            for name, c, s in found
        ]
        return "; ".join(words)

    @property
    def table(self) -> Table:
        """Contraction, and root mean square of the z-scores, of each parameter."""
        size = np.sqrt(np.mean(self.z**2, axis=0))
        columns = (("contraction", self.contraction, None), ("size of z-scores", size, 1.0))
        return Table(
            results.row(what, name, value, expected)
            for what, values, expected in columns
            for name, value in zip(self.names, values, strict=True)
        )

    def plot(self, axes: Axes = None) -> Axes:
        """Posterior means, with deviations, against the truth, parameter by parameter."""
        return plot_recovery(self, axes)


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
    how: Testing = {"n_simulations": n_simulations, "n_draws": n_draws, "summary": summary}
    how |= {"n_jobs": n_jobs, "progress": progress}
    truth, _, names, drawn, _ = on_pairs(model, prior, simulator, theta, x, False, rng, **how)
    ranks = results.ranks_among(truth, drawn, rng)
    return RankCheck(ranks, drawn.shape[1], names, results.uniform_pvalues(ranks, drawn.shape[1]))


def coverage(
    model: Model,
    prior: PriorLike = None,
    simulator: Simulator | None = None,
    *,
    theta: PointsLike = None,
    x: PointsLike = None,
    levels: Sequence[float] = (0.5, 0.8, 0.9),
    joint: str = "auto",
    rng: Rng = None,
    **options: Unpack[Testing],
) -> CoverageCheck:
    """Coverage of central intervals and joint regions: how often they hold the truth.

    Parameters
    ----------
    model, prior, simulator, theta, x, rng, **options
        As for :func:`tarp`.
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
    given = model, prior, simulator, theta, x
    density = {"auto": None, "density": True, "distance": False}[joint]
    truth, _, names, drawn, logs = on_pairs(*given, density, rng, **options)
    m = drawn.shape[1]
    u = (results.ranks_among(truth, drawn, rng) + rng.uniform(size=truth.shape)) / (m + 1)
    noise = rng.uniform(size=len(truth))
    if logs is None:
        region = np.abs(2.0 * (results.tarp_ranks(truth, drawn, rng) + noise) / (m + 1) - 1.0)
        return CoverageCheck(wanted, u, region, "distance", names)
    # The fraction of draws of higher density than the truth.
    region = (results.ranks_among(-logs[:, 0], -logs[:, 1:], rng) + noise) / (m + 1)
    return CoverageCheck(wanted, u, region, "density", names)


def tarp(
    model: Model,
    prior: PriorLike = None,
    simulator: Simulator | None = None,
    *,
    theta: PointsLike = None,
    x: PointsLike = None,
    references: PointsLike = None,
    rng: Rng = None,
    **options: Unpack[Testing],
) -> TarpCheck:
    """Test coverage with random points (TARP, Lemos et al. 2023).

    A region holds all parameters that are closer to a reference point than some distance. If the
    posterior is right, the region that the true parameter lies on the edge of has a uniform
    probability, whatever the references, as long as they do not depend on the truth.

    Parameters
    ----------
    model, prior, simulator, theta, x, rng
        As for :func:`sbc`.
    references : array (n, d), optional
        A reference point for each test pair; the parameters of other test pairs unless given.
    **options
        ``n_simulations``, ``n_draws``, ``summary``, ``n_jobs`` and ``progress`` of :func:`sbc`.

    Returns
    -------
    TarpCheck
    """
    rng = as_generator(rng)
    truth, _, _, drawn, _ = on_pairs(model, prior, simulator, theta, x, False, rng, **options)
    points = None if references is None else as_doubles(references, "references")
    if points is not None and points.shape != truth.shape:
        raise ValueError(f"references must have shape {truth.shape}, got {points.shape}")
    ranks = results.tarp_ranks(truth, drawn, rng, points)
    pvalue = float(results.uniform_pvalues(ranks[:, None], drawn.shape[1])[0])
    return TarpCheck(ranks, drawn.shape[1], pvalue)


def recovery(
    model: Model,
    prior: PriorLike = None,
    simulator: Simulator | None = None,
    *,
    theta: PointsLike = None,
    x: PointsLike = None,
    rng: Rng = None,
    **options: Unpack[Testing],
) -> RecoveryCheck:
    """Posterior means beside true parameters: contraction and z-scores.

    Parameters
    ----------
    model, prior, simulator, theta, x, rng, **options
        As for :func:`tarp`.

    Returns
    -------
    RecoveryCheck
    """
    rng = as_generator(rng)
    truth, _, names, drawn, _ = on_pairs(model, prior, simulator, theta, x, False, rng, **options)
    return RecoveryCheck(truth, drawn.mean(axis=1), drawn.std(axis=1), names)
