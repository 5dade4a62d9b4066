"""Likelihood-free inference that is fitted once and asked for many observations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Self

import numpy as np
from array_api_compat import is_torch_array
from scipy.spatial.distance import cdist
from sklearn.base import BaseEstimator

from kernelbayes.arrays import as_generator, as_real, to_numpy, warn
from kernelbayes.embedding.export import LEAST_ESS
from kernelbayes.embedding.smooth import Smoothing
from kernelbayes.kernels import Gaussian
from kernelbayes.kernels.radial import median_distance
from kernelbayes.likelihood_free.distributions import PriorLike
from kernelbayes.likelihood_free.learn.adjust import Space
from kernelbayes.likelihood_free.learn.choice import candidates, choose, learn
from kernelbayes.likelihood_free.learn.importance import Learner
from kernelbayes.likelihood_free.learn.judge import Criterion
from kernelbayes.likelihood_free.learn.likelihood import read_data
from kernelbayes.likelihood_free.learn.nearby import Density
from kernelbayes.likelihood_free.learn.task import Task, check_options
from kernelbayes.likelihood_free.posterior import Posterior, Posteriors, make_posterior
from kernelbayes.likelihood_free.prior import Prior, as_prior
from kernelbayes.likelihood_free.reweight import (
    FEWEST_SIMULATIONS,
    normalised,
    prior_in_order,
    prior_weights,
)
from kernelbayes.likelihood_free.running.calling import as_row
from kernelbayes.likelihood_free.simulate import Simulations
from kernelbayes.points import in_order, query
from kernelbayes.select.search import progress_bar
from kernelbayes.tables import Documented
from kernelbayes.types import Floats, PointsLike, Rng

Method = Literal["auto", "cme", "original", "importance", "adjusted", "likelihood"]
# A warning says when an observation is further from the simulations than all but this share of
# them: one in 200 observations from the prior itself.
UNSEEN = 0.005
# Adjusted points leave the range of the simulated parameters by at most this many ranges.
BEYOND = 1.0
GAP_POINTS = 500  # simulations that estimate the typical distance to a nearest neighbour


@dataclass(frozen=True)
class Report:
    """How a posterior was made.

    Attributes
    ----------
    method : str
        The variant, in words.
    n_simulations, failed : int
        Simulations used, and those dropped because they had NaN or infinite data.
    ess : float
        Effective sample size of the posterior's weights.
    support : float
        Share of the simulations that are as far from all others as the observation is from them.
        Near zero: the simulator hardly makes such data, and the posterior is an extrapolation.
    model, simulations
        The fitted model and its simulations, if the posterior comes from
        :func:`~kernelbayes.infer`.
    rounds : int
        Rounds of simulations.
    settled : bool
        Whether the number of rounds was chosen by ``rounds="auto"``.
    density : Density or None
        Of a learned likelihood: draws and densities of the posterior are its own.
    """

    method: str
    n_simulations: int
    failed: int
    ess: float
    support: float
    model: LikelihoodFree | None = field(default=None, repr=False)
    simulations: Simulations | None = field(default=None, repr=False)
    rounds: int = 1
    settled: bool = False
    density: Density | None = field(default=None, repr=False)


@dataclass(eq=False, repr=False)
class LikelihoodFree(Documented, BaseEstimator):  # type: ignore[misc]
    r"""Posteriors from simulations (theta_i, x_i), for any number of observations.

    Parameters
    ----------
    prior : optional
        The distribution theta was drawn from: scipy.stats distributions, a list or dict of them,
        anything with ``.sample`` or ``.rvs``, a function ``(n, rng)``, or draws. It says where
        parameters may be; without it they may be anywhere, and the sample is the prior.
    method : str
        "auto" chooses by a score on held-out simulations, among variants of "adjusted" (several
        shares, nearness by data or by what was learned) and "likelihood". "cme": conditional
        embedding (KBR13 eq. 19). "original", "importance": kernel Bayes' rule, original and
        importance-weighted. "adjusted": near simulations, moved by a local linear regression or by
        kernel regression of location and scale. "likelihood": learned by kernel regression.
    adjust : {"auto", "none", "linear", "location", "scale"}
        Regression adjustment on top of "cme", "original", "importance" and "adjusted": a kernel
        regression of location, or of location and scale; for "adjusted" also a local linear one.
    criterion : {"log", "energy"}
        Proper score that variants are chosen by: log density or energy score.
    rng : int, Generator or None
    progress : bool, optional

    Attributes
    ----------
    choice_ : Table
        Variants tried, the one taken first, with their scores: minus the criterion's average, so
        that smaller is better. Scores compare between rows with the same number ``held_out`` of
        simulations.
    variant_ : Variant
        The one taken.
    failed_ : int
        Simulations dropped for NaN or infinite data.

    Examples
    --------
    >>> import numpy as np
    >>> from scipy import stats
    >>> from kernelbayes import LikelihoodFree
    >>> rng = np.random.default_rng(0)
    >>> theta = rng.normal(size=500)
    >>> model = LikelihoodFree(stats.norm(), rng=0).fit(theta, rng.normal(theta))
    >>> posterior = model.posterior(1.0)  # the exact one is N(1/2, 1/2)
    >>> bool(abs(posterior.mean()[0] - 0.5) < 0.2)
    True
    >>> model.posterior([[0.0], [1.0], [2.0]]).mean().shape
    (3, 1)
    """

    prior: PriorLike = None
    method: Method = "auto"
    adjust: str = "auto"
    criterion: Criterion = "log"
    rng: Rng = None
    progress: bool | None = None

    def fit(self, theta: PointsLike, x: PointsLike = None, weights: PointsLike = None) -> Self:
        """Learn from n simulations.

        Parameters
        ----------
        theta : array or frame (n, d), or what :func:`~kernelbayes.simulate` returned
        x : array or frame (n, p), or (n, k, p)
            Data or summaries; with three axes, n data sets of k iid rows. Simulations with NaN or
            infinite data are dropped, with a warning.
        weights : array (n,), optional
            What each simulation counts, if theta was not drawn from the prior: prior density over
            proposal density.
        """
        check_options(self.method, self.adjust, self.criterion)
        rng = as_generator(self.rng)
        self.seed_ = int(rng.integers(2**31))
        self.prior_ = None if self.prior is None else as_prior(self.prior)
        self.template_ = theta[:0] if is_torch_array(theta) else None  # tensors in, tensors out
        if isinstance(theta, Simulations) and x is None:
            runs = theta.under(self.prior_, FEWEST_SIMULATIONS)
        else:
            runs = Simulations.of(theta, x, self.prior_, fewest=FEWEST_SIMULATIONS)
        if runs.x.ndim not in (2, 3):
            raise ValueError(
                "x must be vectors (n, p) or data sets of iid rows (n, k, p), got shape "
                f"{(runs.done, *runs.x.shape[1:])}"
            )
        if self.prior_ is not None and not np.all(self.prior_.inside(runs.theta)):
            raise ValueError("some theta lie outside of the prior's support; check the prior")
        self.weights_ = None if weights is None else normalised(weights, runs)
        self.theta_, self.x_, self.failed_ = runs.theta, runs.x, runs.failed
        self.names_, self.x_names_ = runs.names, runs.x_names
        self.space_ = Space.of(self.theta_, self.prior_)
        self.data_ = read_data(self.x_, self.space_.coordinates(self.theta_), rng)
        spread = self.theta_.std(axis=0)
        spread = np.where(spread > 0, spread, 1.0)
        self.kernel_ = Gaussian(tuple(median_distance(self.theta_ / spread) * spread))
        task = self._task(self.weights_, self.prior_)
        tried = candidates(self.method, self.adjust, task)
        with progress_bar(len(tried), "choosing", self.progress) as bar:
            self.choice_, chosen = choose(tried, task, self.criterion, rng, bar)
        self.variant_ = self.choice_[0]["variant"]
        self.learner_ = learn(task, self.variant_, rng, like=chosen)
        # Distances of some simulations' data to the nearest other, in the learned coordinates.
        there = self.learner_.task.X @ self.learner_.inverse.metric
        some = there[np.linspace(0, len(there) - 1, min(len(there), GAP_POINTS)).astype(int)]
        self.gaps_ = np.partition(cdist(some, there), 1, axis=1)[:, 1]
        self._other: tuple[PriorLike, Learner] | None = None
        return self

    def posterior(self, x: PointsLike, prior: PriorLike = None) -> Any:
        """Posterior given an observation, or given each of many.

        Parameters
        ----------
        x : one data set, shaped like a row of the simulations' x, or many (m, ...)
        prior : optional
            Another prior than the one simulated from: simulations are used again, weighted by the
            ratio of the densities (estimated from draws if one of them is not known).

        Returns
        -------
        Posterior, or Posteriors for many
        """
        rows, single = self._fitted()._rows(x)
        learner = self.learner_ if prior is None else self._under(prior)
        found = []
        for row, *far in zip(rows, *self._support(rows), strict=True):
            # Random numbers of its own: a posterior does not depend on what else is asked for.
            samples = learner.posterior(self.data_(row[None]), np.random.default_rng(self.seed_))
            found += [self._posterior(*sample, learner, *far) for sample in samples]
        return found[0] if single else Posteriors(found)

    def _fitted(self) -> Self:
        if not hasattr(self, "learner_"):
            raise ValueError("fit the model first: LikelihoodFree(prior).fit(theta, x)")
        return self

    def score(self, theta: PointsLike, x: PointsLike) -> float:
        """Mean log posterior density of parameters theta (n, d) given data x simulated there.

        A proper score: larger is better. For ``cross_val_score(model, theta, x)``.
        """
        theta = in_order(theta, self._fitted().names_, "theta")
        runs = Simulations.of(theta, in_order(x, self.x_names_, "x"), self.prior_)
        posteriors = self.posterior(runs.x)
        pairs = zip(posteriors, runs.theta, strict=True)
        return float(np.mean([p.log_density(truth[None])[0] for p, truth in pairs]))

    def _posterior(
        self,
        points: Floats,
        weights: Floats,
        how: Density | Smoothing | None,
        learner: Learner,
        far: float,
        prior_share: float,
    ) -> Posterior:
        task = learner.task
        if prior_share > 0:
            points = np.vstack([points, task.P])
            shares = (1.0 - prior_share) * weights, prior_share * learner.inverse.weights
            weights = np.concatenate(shares)
            how = None  # that of a posterior much narrower than this one
        if self.variant_.kind != "likelihood":
            low, high = task.P.min(axis=0), task.P.max(axis=0)
            # Far from all simulations an extrapolation knows nothing beyond the prior's own draws.
            beyond = (BEYOND if prior_share == 0 else 0.0) * (high - low)
            points = np.clip(points, low - beyond, high + beyond)
        ess = float(1.0 / np.sum(weights**2))
        if ess < LEAST_ESS and far >= UNSEEN and learner is self.learner_:  # not warned of yet
            warn(
                f"the posterior rests on {ess:.1f} effective points: its spread is hardly known; "
                "more simulations near the observation, or rounds, would help"
            )
        words = f"{self.variant_} ({self.data_})" if str(self.data_) else str(self.variant_)
        theta, known = self.space_.parameters(points), how if isinstance(how, Density) else None
        return make_posterior(
            theta if task.prior is None else task.prior.project(theta),
            weights,
            task.prior,
            Report(words, len(self.theta_), self.failed_, ess, float(far), density=known),
            self.names_,
            kernel=self.kernel_,
            space=self.space_,
            smoothing=None if isinstance(how, Density) else how,
            template=self.template_,
        )

    def _task(self, weights: Floats | None, prior: Prior | None) -> Task:
        """Task of the simulations that count."""
        used = slice(None) if weights is None else weights > 0
        P, data = self.space_.coordinates(self.theta_[used]), self.data_(self.x_[used])
        counts = None if weights is None else weights[used]
        return Task(data.X, data.rows, P, counts, prior, self.space_)

    def _rows(self, x: PointsLike) -> tuple[Floats, bool]:
        """Observations (m, ...) and whether there is only one."""
        shape = self.x_.shape[1:]
        if isinstance(x, Mapping) and self.x_names_ is None and shape != (1,):
            raise ValueError(
                "the observation has names, the data fitted to have none: fit(runs), or to a frame"
            )
        if isinstance(x, Mapping) and len(shape) == 1 and len(x) < shape[0]:
            row, names = as_row(x)  # parts of several numbers, named as in simulations
            x = dict(zip(names or (), row, strict=True)) if row.shape == shape else x
        asked, single = query(x, self.x_, self.x_names_, "x")
        rows = np.asarray(to_numpy(as_real(asked, "x")), dtype=np.float64)
        if rows.size == 0:
            raise ValueError("there is no observation: x is empty")
        if not single and rows.shape == shape:
            rows, single = rows[None], True
        if rows.ndim == 1 and shape == (1,):
            rows = rows[:, None]
        if rows.shape[1:] != shape:
            raise ValueError(
                f"an observation has shape {shape} as the simulations have, got {np.shape(x)}"
            )
        if not np.all(np.isfinite(rows)):
            raise ValueError("the observation has NaN or infinite entries")
        return rows, single

    def _support(self, rows: Floats) -> tuple[Floats, Floats]:
        """For each of m data sets, the share of simulations that lie as far from the others.

        Also the share of the prior in its posterior: none, unless x is further from all simulations
        than nearly all of these are from one another. Twice as far, three quarters. Data that are
        the same in all simulations need not count; a warning says if an observation differs there.
        """
        X, fixed = self.data_(rows).X, np.all(self.x_ == self.x_[0], axis=0)
        if np.any(other := fixed & np.any(rows != self.x_[0], axis=0)):
            first = tuple(np.argwhere(other)[0].tolist())
            warn(
                f"x{list(first)} is {self.x_[0][first]:g} in all simulations, but not in the "
                "observation: the simulator cannot make such data"
            )
        metric = self.learner_.inverse.metric
        nearest = cdist(X @ metric, self.learner_.task.X @ metric).min(axis=1)
        share = np.mean(self.gaps_[None] >= nearest[:, None] * (1 - 1e-9), axis=1)
        unseen = share < UNSEEN
        if np.any(unseen):
            warn(
                f"{np.sum(unseen)} of {len(X)} observations are further from all simulations than "
                "these are from one another: the simulator may not be able to make such data, and "
                "the posterior is an extrapolation, widened towards the prior"
            )
        near = np.max(self.gaps_) / np.where(unseen, nearest, np.inf)
        return share, np.where(unseen, 1.0 - np.minimum(near, 1.0) ** 2, 0.0)

    def _under(self, prior: PriorLike) -> Learner:
        """Learner under another prior; the last one is kept."""
        if self._other is not None and self._other[0] is prior:
            return self._other[1]
        new = prior_in_order(as_prior(prior), self.names_)
        if new.dim != self.theta_.shape[1]:
            raise ValueError(f"the prior has {new.dim} parameters, not {self.theta_.shape[1]}")
        weights = prior_weights(self.theta_, self.weights_, self.prior_, new, self.space_)
        task = self._task(weights, new)
        learner = learn(task, self.variant_, np.random.default_rng(self.seed_))
        self._other = (prior, learner)
        return learner
