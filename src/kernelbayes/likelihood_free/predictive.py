"""An observation beside simulations: from the posterior, or from the prior before any inference.

:func:`posterior_predictive` asks whether the posterior explains the observation,
:func:`misspecification` whether the simulator can make it at all.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from kernelbayes.arrays import as_array, as_generator, to_numpy
from kernelbayes.gram.lapack import cholesky, solve_triangular
from kernelbayes.kernels import Gaussian
from kernelbayes.likelihood_free.distributions import PriorLike
from kernelbayes.likelihood_free.learn.task import Data
from kernelbayes.likelihood_free.pairs import draws_of
from kernelbayes.likelihood_free.results import ALPHA, Check, row
from kernelbayes.likelihood_free.running.calling import Output, Simulator, Summary, as_row
from kernelbayes.likelihood_free.simulate import Simulations, as_observation, simulate
from kernelbayes.plot.posteriors import plot_predictive
from kernelbayes.points import function, integer
from kernelbayes.tables import Table
from kernelbayes.types import Axes, Floats, PointsLike, Rng

FULL = 300  # columns up to which their correlations count too: a solve of that size is instant
SEEN = 2000  # simulations whose Gram matrix is made: 32 MB


@dataclass(frozen=True, eq=False, repr=False)
class PredictiveCheck(Check):
    """Result of :func:`~kernelbayes.likelihood_free.checks.posterior_predictive`.

    Attributes
    ----------
    theta : array (m, d)
        Posterior draws that were simulated at.
    x : array (m, ...)
        Simulations at them.
    values : array (m, k)
        Columns that are compared: the statistic of each simulation, or all its entries.
    observed : array (k,)
        The same of the observation.
    pvalues : array (k,)
        Two-sided tail probabilities of each column.
    pvalue : float
        Of all columns together: of the observation's Mahalanobis distance among the simulations'.
    names : tuple of str
        Of the columns.
    """

    theta: Floats
    x: Floats
    values: Floats
    observed: Floats
    pvalues: Floats
    pvalue: float
    names: tuple[str, ...]

    source: ClassVar[str] = " from the posterior"

    @property
    def verdict(self) -> str:
        """In words."""
        unlike = self.pvalue <= ALPHA
        # Once all columns together are unusual, each is named at 1 %; else at 1 % for all.
        bound = ALPHA if unlike else ALPHA / len(self.pvalues)
        odd = np.argsort(self.pvalues, kind="stable")
        odd = odd[self.pvalues[odd] <= bound][:5]
        if not unlike and not len(odd):
            return f"the observation looks like the {len(self.x)} simulations{self.source}"
        words = f"the observation is unlike the simulations{self.source}"
        if not len(odd):
            return f"{words} (p = {self.pvalue:.2g}), no column alone stands out"
        sides = np.where(self.observed[odd] > np.median(self.values[:, odd], axis=0), "high", "low")
        listed = ", ".join(f"{self.names[j]} is {side}" for j, side in zip(odd, sides, strict=True))
        return f"{words} (p = {self.pvalue:.2g}): {listed}"

    @property
    def table(self) -> Table:
        """Observation, beside the median of the simulations, column by column and together."""
        middles = np.median(self.values, axis=0)
        found = zip(self.names, self.observed, middles, self.pvalues, strict=True)
        rows = [row("observed", name, value, middle, p) for name, value, middle, p in found]
        return Table([*rows, row("observed", "all columns", np.nan, None, self.pvalue)])

    def plot(self, axes: Axes = None) -> Axes:
        """Histograms of the columns with the observation; bands over many columns."""
        return plot_predictive(self, axes)


@dataclass(frozen=True, eq=False, repr=False)
class MisspecificationCheck(PredictiveCheck):
    """Result of :func:`misspecification`: a :class:`PredictiveCheck` against the simulator.

    ``statistic`` is the MMD of the observation and the simulations, ``pvalue`` that of its rank
    among those of the simulations.
    """

    statistic: float
    source: ClassVar[str] = ""

    @property
    def verdict(self) -> str:
        """In words."""
        words = super().verdict
        unlike = "; the simulator hardly makes such data" if self.pvalue <= ALPHA else ""
        return words + unlike


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
    # The observation is one more row: then the rank of its Mahalanobis distance is exact.
    distance = np.sum(whitened(np.vstack([truth, values])) ** 2, axis=1)
    pvalues = tail_pvalues(values, truth), float(np.mean(distance >= distance[0] * (1 - 1e-12)))
    return PredictiveCheck(runs.theta, runs.x, values, truth, *pvalues, names)


def misspecification(
    x_observed: Output,
    x: PointsLike | Simulations = None,
    prior: PriorLike = None,
    simulator: Simulator | None = None,
    *,
    n_simulations: int = 500,
    summary: Summary | None = None,
    rng: Rng = None,
    n_jobs: int = 1,
) -> MisspecificationCheck:
    """Whether an observation can come from a simulator: its MMD to simulations.

    The embedding of the observation (or of its summary) is compared with that of simulations from
    the prior, in standardised and decorrelated coordinates. The p-value is the rank of that
    distance among those of the simulations, each compared with all others: exact if the
    observation is one more of them. It needs no inference, and comes before it.

    Parameters
    ----------
    x_observed : array or dict
        Shaped like one simulation.
    x : array (n, ...) or Simulations
        Simulations; or give ``prior`` and ``simulator``.
    n_simulations, summary, rng, n_jobs
        As for :func:`~kernelbayes.simulate`.

    Returns
    -------
    MisspecificationCheck

    Examples
    --------
    >>> import numpy as np
    >>> import kernelbayes as kb
    >>> x = np.random.default_rng(0).normal(size=(500, 2))
    >>> kb.misspecification([0.5, 6.0], x, rng=0).verdict[:62]
    'the observation is unlike the simulations (p = 0.002): x[1] is'
    """
    rng = as_generator(rng)
    if (x is None) == (simulator is None) or (simulator is None) != (prior is None):
        raise ValueError("give either simulations x, or prior and simulator")
    if simulator is not None:
        how: dict[str, Any] = {"rng": rng, "n_jobs": n_jobs, "on_interrupt": "raise"}
        runs = simulate(simulator, prior, n_simulations, summary=summary, **how)
    elif isinstance(x, Simulations):
        runs = x
    else:
        n = len(np.atleast_1d(to_numpy(as_array(x, "x"))))
        runs = Simulations.of(np.zeros((n, 1)), x, None, summary)
    observed = as_observation(x_observed, summary, runs)
    some = runs.x[np.sort(rng.permutation(len(runs))[:SEEN])]
    every = np.concatenate([observed[None], some])
    Z = whitened(Data.of(every, rng)(every).X)
    near = Gaussian.median(Z)(Z, Z).sum(axis=1) - 1.0  # of each point's kernels with all others
    n = len(some)
    pvalue = float(np.mean(near <= near[0] * (1 + 1e-12)))
    inner = (near.sum() - 2.0 * near[0] + n) / n**2  # of the simulations' embedding with itself
    distance = float(np.sqrt(max(1.0 + inner - 2.0 * near[0] / n, 0.0)))
    values, truth = some.reshape(n, -1), observed.ravel()
    names = runs.x_names or tuple(f"x[{j}]" for j in range(len(truth)))
    pvalues = tail_pvalues(values, truth)
    return MisspecificationCheck(runs.theta, some, values, truth, pvalues, pvalue, names, distance)


def tail_pvalues(values: Floats, observed: Floats) -> Floats:
    """Two-sided p-values (k,) of each column of the observation among values (m, k)."""
    above = (1 + np.sum(values >= observed, axis=0)) / (1 + len(values))
    below = (1 + np.sum(values <= observed, axis=0)) / (1 + len(values))
    return np.asarray(np.minimum(1.0, 2.0 * np.minimum(above, below)))


def whitened(rows: Floats) -> Floats:
    """Rows (n, p) in coordinates of zero mean, unit variance and, up to FULL, no correlation.

    Constant columns are zero.
    """
    from sklearn.covariance import ledoit_wolf  # slow to import

    rows = rows - rows.mean(axis=0)
    scale = rows.std(axis=0)
    rows = rows / np.where(scale > 0, scale, np.inf)
    if rows.shape[1] > FULL:
        return np.asarray(rows)
    S = ledoit_wolf(rows, assume_centered=True)[0] + np.diag(1.0 * (scale <= 0))
    return np.asarray(solve_triangular(cholesky(S), rows.T).T)
