"""Likelihood-free inference that is fitted once and asked for many observations."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from typing import Any, Literal, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.metrics.pairwise import euclidean_distances

from kernelbayes.arrays import NumericalWarning, Rng, as_generator, to_numpy
from kernelbayes.embedding.simplex import lost
from kernelbayes.embedding.smooth import Smoothing
from kernelbayes.kernels import Gaussian
from kernelbayes.likelihood_free.choice import candidates, choose
from kernelbayes.likelihood_free.inverse import LOCAL
from kernelbayes.likelihood_free.posterior import Posterior, Posteriors, make_posterior
from kernelbayes.likelihood_free.priors import Prior, as_prior
from kernelbayes.likelihood_free.reading import FEWEST_SIMULATIONS, check_names, read_simulations
from kernelbayes.likelihood_free.scores import Score
from kernelbayes.likelihood_free.transform import Data, Space
from kernelbayes.likelihood_free.variants import METHODS, RULES, Learner
from kernelbayes.points import as_array, column_names
from kernelbayes.rules.ratio import density_ratio
from kernelbayes.select import progress_bar

Floats = np.ndarray[Any, Any]
Method = Literal["auto", "cme", "kbr", "importance", "adjusted", "likelihood"]
# An observation further from the simulations than all but this share of them is pointed out.
UNSEEN = 0.005
ADJUSTS = ("auto", "none", *LOCAL, "location", "scale")
# A posterior of fewer effective points than this is pointed out.
LEAST_ESS = 5.0
# Data are at most this many scales away, so that squares of them are finite.
FARTHEST = 1e6
# Adjusted points leave the range of the simulated parameters by at most this many ranges.
BEYOND = 1.0


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
        What was fitted, and to what, if the posterior comes from :func:`~kernelbayes.infer`.
    """

    method: str
    n_simulations: int
    failed: int
    ess: float
    support: float
    model: Any = field(default=None, repr=False)
    simulations: Any = field(default=None, repr=False)


class LikelihoodFree(BaseEstimator):  # type: ignore[misc]
    r"""Posteriors from simulations (theta_i, x_i), for any number of observations.

    Parameters
    ----------
    prior : optional
        The distribution theta was drawn from: scipy.stats distributions, a list or dict of them,
        anything with ``.sample`` or ``.rvs``, a function ``(n, rng)``, or draws. It says where
        parameters may be; without it they may be anywhere, and the sample is the prior.
    method : str
        "auto" chooses by a score on left-out simulations, among variants of "adjusted" (many
        shares, nearness by data or by what was learned, all adjustments), "likelihood" and, up to
        2000 simulations, "importance" with several bandwidths and all adjustments. "cme":
        conditional embedding (KBR13 eq. 19). "kbr", "importance": kernel Bayes' rule, original and
        importance-weighted. "adjusted": near simulations, moved by a local regression or by
        kernel regression of location and scale. "likelihood": a likelihood learned by kernel
        regression.
    adjust : {"auto", "none", "linear", "quadratic", "quadratic-scale", "location", "scale"}
        Regression adjustment on top of "cme", "kbr", "importance" and "adjusted": a kernel
        regression of location, or of location and scale; for "adjusted" also a local one, linear,
        quadratic, or quadratic with scales.
    score : {"log", "energy"}
        What variants are chosen by.
    rng : int, Generator or None
    progress : bool, optional

    Attributes
    ----------
    choice_ : list of dict
        Variants tried, the one taken first, with their scores. Scores compare between rows with
        the same number ``left_out`` of simulations.
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

    def __init__(
        self,
        prior: Any = None,
        method: Method = "auto",
        adjust: str = "auto",
        score: Score = "log",
        rng: Rng = None,
        progress: bool | None = None,
    ) -> None:
        self.prior = prior
        self.method = method
        self.adjust = adjust
        self.score = score
        self.rng = rng
        self.progress = progress

    def fit(self, theta: Any, x: Any, weights: Any = None) -> Self:
        """Learn from n simulations.

        Parameters
        ----------
        theta : array or frame (n, d)
        x : array or frame (n, p), or (n, k, p)
            Data or summaries; with three axes, n data sets of k iid rows. Simulations with NaN or
            infinite data are dropped, with a warning.
        weights : array (n,), optional
            What each simulation counts, if theta was not drawn from the prior: prior density over
            proposal density.
        """
        check_options(self.method, self.adjust, self.score)
        rng = as_generator(self.rng)
        self.seed_ = int(rng.integers(2**31))
        self.prior_ = None if self.prior is None else as_prior(self.prior)
        read = read_simulations(theta, x, weights, self.prior_)
        self.theta_, self.x_, self.weights_ = read.theta, read.x, read.weights
        self.names_, self.x_names_, self.failed_ = read.names, read.x_names, read.failed
        self.data_ = Data.of(self.x_, rng)
        self.space_ = Space.of(self.theta_, self.prior_)
        spread = self.theta_.std(axis=0)
        distance = float(Gaussian.median(self.theta_ / np.where(spread > 0, spread, 1.0)).bandwidth)  # type: ignore[arg-type]
        self.kernel_ = Gaussian(tuple(distance * np.where(spread > 0, spread, 1.0)))
        learner = self._learner(self.weights_, self.prior_)
        tried = candidates(self.method, self.adjust, learner)
        with progress_bar(len(tried), "choosing", self.progress) as bar:
            self.choice_, fitted = choose(tried, learner, self.score, rng, bar)
        self.variant_ = self.choice_[0]["variant"]
        self.learner_ = learner.fitted(self.variant_, rng, like=fitted)
        self.gaps_ = self._gaps()
        self._other: tuple[Any, Learner] | None = None
        return self

    def posterior(self, x: Any, prior: Any = None) -> Any:
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
        if not hasattr(self, "learner_"):
            raise ValueError("fit the model first: LikelihoodFree(prior).fit(theta, x)")
        rows, single = self._rows(x)
        learner = self.learner_ if prior is None else self._under(prior)
        X, iid = self._vectors(rows)
        support = self._support(X)
        found = []
        for i, far in enumerate(support):
            rows_i = None if iid is None else iid[i : i + 1]
            # Random numbers of their own: the posterior does not depend on what else is asked for.
            samples = learner.posterior(
                self.variant_, X[i : i + 1], rows_i, np.random.default_rng(self.seed_)
            )
            found += [self._posterior(sample, learner, far) for sample in samples]
        return found[0] if single else Posteriors(found)

    def _posterior(
        self, sample: tuple[Floats, Floats, Smoothing | None], learner: Learner, far: float
    ) -> Posterior:
        points, weights, smoothing = sample
        if not lost(weights[None])[0]:
            weights = weights / weights.sum()
        else:  # a rule, far from all simulations: the prior is left
            points = learner.P
            weights = np.full(len(points), 1.0 / len(points))
            weights = weights if learner.weights is None else learner.weights
        if self.variant_.kind != "likelihood":
            low, high = learner.P.min(axis=0), learner.P.max(axis=0)
            points = np.clip(points, low - BEYOND * (high - low), high + BEYOND * (high - low))
        ess = float(1.0 / np.sum(weights**2))
        if ess < LEAST_ESS and far >= UNSEEN and learner is self.learner_:  # not warned of yet
            warnings.warn(
                f"the posterior rests on {ess:.1f} effective points: its spread is hardly known; "
                "more simulations near the observation, or rounds, would help",
                NumericalWarning,
                stacklevel=3,
            )
        report = Report(str(self.variant_), len(self.theta_), self.failed_, ess, float(far))
        return make_posterior(
            self.space_.parameters(points)
            if learner.prior is None
            else learner.prior.project(self.space_.parameters(points)),
            weights,
            learner.prior,
            report,
            self.names_,
            kernel=self.kernel_,
            space=self.space_,
            smoothing=smoothing,
        )

    def _learner(self, weights: Floats | None, prior: Prior | None) -> Learner:
        """Learner of the simulations that count."""
        if weights is None:
            P = self.space_.coordinates(self.theta_)
            return Learner(P, *self._vectors(self.x_), None, prior, self.space_)
        used = weights > 0
        P = self.space_.coordinates(self.theta_[used])
        return Learner(P, *self._vectors(self.x_[used]), weights[used], prior, self.space_)

    def _vectors(self, x: Floats) -> tuple[Floats, Floats | None]:
        """Coordinates (n, q) of data, and those of their rows (n, k, p) if they have iid rows."""
        found = (self.data_(x), None if self.data_.rows is None else self.data_.rows(x))
        X, rows = (None if U is None else np.clip(U, -FARTHEST, FARTHEST) for U in found)
        return np.asarray(X), rows

    def _rows(self, x: Any) -> tuple[Floats, bool]:
        """Observations (m, ...) and whether there is only one."""
        shape = self.x_.shape[1:]
        check_names(column_names(x), self.x_names_, "x", "the simulations")
        if np.size(x) == 0:
            raise ValueError("there is no observation: x is empty")
        rows = np.asarray(to_numpy(as_array(np.atleast_1d(x) if np.ndim(x) == 0 else x, "x")))
        rows = np.asarray(rows, dtype=np.float64)
        single = rows.shape == shape
        if single:
            rows = rows[None]
        elif rows.ndim == 1 and shape == (1,):
            rows = rows[:, None]
        if rows.shape[1:] != shape:
            raise ValueError(
                f"an observation has shape {shape} as the simulations have, got {np.shape(x)}"
            )
        if not np.all(np.isfinite(rows)):
            raise ValueError("the observation has NaN or infinite entries")
        return rows, single

    def _gaps(self) -> Floats:
        """Distances of some simulations' data to the nearest other, in the learned coordinates."""
        there = self.learner_.X @ self.learner_.metric
        some = there[np.linspace(0, len(there) - 1, min(len(there), 500)).astype(int)]
        return np.asarray(np.partition(euclidean_distances(some, there), 1, axis=1)[:, 1])

    def _support(self, X: Floats) -> Floats:
        """For each of X (m, q) the share of simulations that lie as far from the others."""
        metric = self.learner_.metric
        nearest = euclidean_distances(X @ metric, self.learner_.X @ metric).min(axis=1)
        share = np.mean(self.gaps_[None] >= nearest[:, None] * (1 - 1e-9), axis=1)
        if np.any(share < UNSEEN):
            warnings.warn(
                f"{np.sum(share < UNSEEN)} of {len(X)} observations are further from all "
                "simulations than these are from one another: the simulator may not be able to "
                "make such data, and the posterior is an extrapolation",
                NumericalWarning,
                stacklevel=3,
            )
        return np.asarray(share)

    def _under(self, prior: Any) -> Learner:
        """Learner under another prior; the last one is kept."""
        if self._other is not None and self._other[0] is prior:
            return self._other[1]
        new = as_prior(prior)
        check_names(new.names, self.names_, "this prior", "the model")
        if new.dim != self.theta_.shape[1]:
            raise ValueError(f"the prior has {new.dim} parameters, not {self.theta_.shape[1]}")
        ratio = self._ratio(new)
        base = np.full(len(ratio), 1.0 / len(ratio)) if self.weights_ is None else self.weights_
        weights = base * ratio
        ess = float(weights.sum() ** 2 / max(float(weights @ weights), np.finfo(float).tiny))
        if ess < FEWEST_SIMULATIONS:
            warnings.warn(
                f"only {ess:.0f} simulations count under this prior: it lies where there are few; "
                "simulate from it, or from a wider one",
                NumericalWarning,
                stacklevel=3,
            )
        if np.sum(weights > 0) < FEWEST_SIMULATIONS:
            raise ValueError(
                f"only {np.sum(weights > 0)} simulations lie in the support of this prior; "
                "simulate from it, or from a wider one"
            )
        learner = self._learner(weights / weights.sum(), new)
        fitted = learner.fitted(self.variant_, np.random.default_rng(self.seed_))
        self._other = (prior, fitted)
        return fitted

    def _ratio(self, new: Prior) -> Floats:
        """Density of a new prior over the old one at the simulations' parameters, (n,)."""
        old = self.prior_
        if old is not None and old.has_density and new.has_density:
            logs, before = new.log_density(self.theta_), old.log_density(self.theta_)
            logs = np.where(np.isfinite(before), logs - before, -np.inf)
            top = logs.max()
            return np.asarray(np.exp(logs - top) if np.isfinite(top) else np.zeros(len(logs)))
        drawn = self.space_.coordinates(new.sample(max(len(self.theta_), 2000), 0))
        P = self.space_.coordinates(self.theta_)
        ratio = density_ratio(drawn, P, Gaussian.median(P, scale=0.5))
        return np.asarray(np.maximum(ratio.at_denominator, 0.0))


def check_options(method: str, adjust: str, score: str) -> None:
    """Raise if one of these is unknown, or does not go with another."""
    if method not in METHODS:
        raise ValueError(f"method must be one of {METHODS}, got {method!r}")
    if adjust not in ADJUSTS:
        raise ValueError(f"adjust must be one of {ADJUSTS}, got {adjust!r}")
    if adjust in LOCAL and method in RULES:
        raise ValueError(f"adjust={adjust!r} needs near simulations: use method='adjusted'")
    if method == "likelihood" and adjust not in ("auto", "none"):
        raise ValueError(f"a learned likelihood is not adjusted; leave out adjust={adjust!r}")
    if score not in ("log", "energy"):
        raise ValueError(f"score must be 'log' or 'energy', got {score!r}")
