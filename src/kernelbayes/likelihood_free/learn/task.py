"""What is learned from simulations: the task, its coordinates, and learners without a likelihood.

Coordinates of data: each column is centred and scaled by its median and its 16th and 84th
percentiles. Heavy-tailed columns, and far outliers of others, go through an inverse hyperbolic
sine; skewed ones may get a log or a root first.

A :class:`Variant` is one way from an observation to a posterior, a recipe; fitted to a
:class:`Task` it is a learner: :class:`Near`, :class:`Rule` or, in its own module,
``importance.Likelihood``. A learner answers ``posterior(data, rng)``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from kernelbayes.arrays import as_generator
from kernelbayes.embedding import Batch, Embedding, embed
from kernelbayes.embedding.smooth import Sample, Smoothing
from kernelbayes.estimators import KernelBayesRule
from kernelbayes.gram.features import fourier
from kernelbayes.kernels import Gaussian, Kernel
from kernelbayes.likelihood_free.learn.adjust import Inverse, Recipe, Space
from kernelbayes.likelihood_free.learn.nearby import Density
from kernelbayes.likelihood_free.prior import Prior
from kernelbayes.points import option
from kernelbayes.rules.cme import ConditionalEmbedding
from kernelbayes.rules.prior import BayesMethod
from kernelbayes.types import Bools, Floats, Ints, Rng

METHODS = ("auto", "cme", "original", "importance", "adjusted", "likelihood")
RULES = ("cme", "original", "importance")
ADJUSTS = ("auto", "none", "linear", "location", "scale")
# For each of some data: points (k, d), weights (k,) and their density, or how to smooth them.
Found = Iterator[tuple[Floats, Floats, Density | Smoothing | None]]
# A column is heavy-tailed if one per cent of its values lie beyond HEAVY scales (2.6 if normal); in
# others, distances beyond FAR scales grow like their logarithm. MOST keeps scaled data finite.
HEAVY, FAR, MOST = 4.0, 10.0, 1e300
# A column gets a log or a root if its skewness falls by this: a lognormal one of deviation 0.3.
LESS_SKEWED = 0.2
ROW_FEATURES = 100  # random features of the rows of a data set: their error is 1 / sqrt(100)
FARTHEST = 1e6  # largest coordinate of data: its square keeps half of the digits of ones
PRIOR_DRAWS = 5000  # of a prior to sample from: their mean has an error of 1.4 % of a deviation
# Adjusted points outside of the prior's support are dropped, unless less than this share is left.
LEAST_INSIDE = 0.05
# Rules of Bayes use factors of this rank with more simulations than DENSE, a conditional embedding
# above MOST_DENSE, where a dense solve takes seconds.
DENSE, RANK, MOST_DENSE = 500, 300, 2000


def check_options(method: str, adjust: str, criterion: str) -> None:
    """Raise if one of these is unknown, or does not go with another."""
    option(method, "method", METHODS)
    option(adjust, "adjust", ADJUSTS)
    if adjust == "linear" and method in RULES:
        raise ValueError(f"adjust={adjust!r} needs near simulations: use method='adjusted'")
    if method == "likelihood" and adjust not in ("auto", "none"):
        raise ValueError(f"a learned likelihood is not adjusted; leave out adjust={adjust!r}")
    option(criterion, "criterion", ("log", "energy"))


@dataclass(frozen=True, eq=False)
class Observed:
    """Data in coordinates: vectors X (m, q) and, of iid data sets, their rows (m, k, p)."""

    X: Floats
    rows: Floats | None


@dataclass(frozen=True)
class Columns:
    """Robust standardisation of the columns of a table (n, p), of some after a log or a root."""

    centre: Floats
    scale: Floats
    heavy: Bools
    logs: Bools
    roots: Bools

    @classmethod
    def of(cls, X: Floats, symmetric: bool = False) -> Columns:
        """Fit to a table; a constant column keeps its units.

        ``symmetric``: logs of positive columns, roots of others, where that is clearly more so.
        """
        least, crooked = X.min(axis=0), _skewed(X)
        with np.errstate(invalid="ignore", divide="ignore"):
            logs = symmetric & (least > 0) & (_skewed(np.log(X)) < crooked - LESS_SKEWED)
            roots = symmetric & (least >= 0) & ~logs & (_skewed(np.sqrt(X)) < crooked - LESS_SKEWED)
        X = _transformed(X, logs, roots)
        low, centre, high = np.quantile(X, [0.16, 0.5, 0.84], axis=0)
        with np.errstate(over="ignore"):  # of squares, in columns that may not need them
            spread = np.where(high > low, (high - low) / 2.0, X.std(axis=0))
        scale = np.where((spread > 0) & np.isfinite(spread), spread, 1.0)
        far = np.quantile(np.abs(_scales(X, centre, scale)), 0.99, axis=0)
        return cls(centre, scale, far > HEAVY, logs, roots)

    def __call__(self, X: Floats) -> Floats:
        """Standardise a table (n, p)."""
        U = _scales(_transformed(X, self.logs, self.roots), self.centre, self.scale)
        near = np.clip(U, -FAR, FAR)
        squeezed = np.arcsinh(3.0 * U) / np.arcsinh(3.0)
        return np.asarray(np.where(self.heavy, squeezed, near + np.arcsinh(U - near)))


def _skewed(X: Floats) -> Floats:
    """Skewness (p,) of columns by quantiles, 0 if symmetric, at most 1."""
    with np.errstate(invalid="ignore", over="ignore"):
        low, middle, high = np.quantile(X, [0.025, 0.5, 0.975], axis=0)
        wide = np.where(high > low, high - low, 1.0)
        return np.asarray(np.nan_to_num(np.abs(high + low - 2.0 * middle) / wide, nan=1.0))


def _transformed(X: Floats, logs: Bools, roots: Bools) -> Floats:
    """Return logs and roots of some columns; of less than zero as of the least number above it."""
    Y = np.maximum(X, np.finfo(float).tiny)
    return np.where(logs, np.log(Y), np.where(roots, np.sqrt(Y), X)) if np.any(logs | roots) else X


def _scales(X: Floats, centre: Floats, scale: Floats) -> Floats:
    """Distances (n, p) from the centre in scales, finite also where a simulation exploded."""
    with np.errstate(over="ignore"):
        return np.asarray(np.clip((X - centre) / scale, -MOST, MOST))


@dataclass(frozen=True)
class Rows:
    """Mean embedding of data sets (n, k, p) of iid rows: vectors (n, q).

    Averages over the rows of the coordinates, their products and random Fourier features.
    """

    columns: Columns
    random: Kernel

    def __call__(self, x: Floats) -> Floats:
        """Embed data sets (n, k, p)."""
        U = self.columns(x)
        i, j = np.triu_indices(U.shape[2])
        random = self.random.features(U.reshape(-1, U.shape[2]))
        means = random.reshape(*U.shape[:2], -1).mean(axis=1)
        return np.hstack([U.mean(axis=1), (U[:, :, i] * U[:, :, j]).mean(axis=1), means])


@dataclass(frozen=True)
class Data:
    """From data sets to vectors: vectors standardised, sets of iid rows embedded.

    Vectors (n, blocks * p) may be read as sets (n, blocks, p).
    """

    columns: Columns
    rows: Rows | None = None
    blocks: int = 0

    @classmethod
    def of(cls, x: Floats, rng: Rng, symmetric: bool = False, blocks: int = 0) -> Data:
        """Fit to data (n, p), or (n, k, p) for n data sets of k iid rows."""
        x = x.reshape(len(x), blocks, -1) if blocks else x
        if x.ndim == 2:
            return cls(Columns.of(x, symmetric))
        flat = x.reshape(-1, x.shape[2])
        columns, generator = Columns.of(flat, symmetric), as_generator(rng)
        subset = columns(flat[generator.permutation(len(flat))[:2000]])
        random = fourier(Gaussian.median(subset), x.shape[2], ROW_FEATURES, rng=generator)
        rows = Rows(columns, random)
        return cls(Columns.of(rows(x)), rows, blocks)

    def __call__(self, x: Floats) -> Observed:
        """Coordinates of data (n, p) or (n, k, p), cut off where their squares would overflow."""
        x = x.reshape(len(x), self.blocks, -1) if self.blocks else x
        X = self.columns(x if self.rows is None else self.rows(x))
        iid = None if self.rows is None else self.rows.columns(x).clip(-FARTHEST, FARTHEST)
        return Observed(X.clip(-FARTHEST, FARTHEST), iid)

    def __str__(self) -> str:
        first = self.columns if self.rows is None else self.rows.columns
        of = ("logs", first.logs), ("roots", first.roots)
        words = [f"{name} of {np.sum(u)} of {len(u)} columns" for name, u in of if np.any(u)]
        return " and ".join([*words, f"x as {self.blocks} iid rows"] if self.blocks else words)


@dataclass(frozen=True)
class Variant:
    """One way from an observation to a posterior.

    ``temper`` is the power of a learned likelihood; deviations of other posteriors from their mean
    are divided by its root, which is the same for a normal likelihood and a flat prior.
    """

    kind: str
    recipe: Recipe
    summary: str = ""
    bandwidth: float = 1.0
    smoothing: Smoothing | None = None
    temper: float = 1.0

    def __str__(self) -> str:
        words = str(self.recipe)
        if self.kind == "likelihood":
            words = f"likelihood of the {self.summary}"
        elif self.kind in RULES:
            adjust = "" if self.recipe.adjust == "none" else f", {self.recipe.adjust} adjusted"
            words = f"{self.kind}, bandwidth {self.bandwidth:g} median distances{adjust}"
        return words if self.temper == 1.0 else f"{words}, tempered by {self.temper:g}"


@dataclass(frozen=True, eq=False)
class Task(Observed):
    """Simulations in coordinates: data, their parameters P (n, d), weights (n,) and the prior."""

    P: Floats
    weights: Floats | None
    prior: Prior | None
    space: Space

    @property
    def discrete(self) -> Bools:
        """Which parameters are discrete."""
        none = np.zeros(self.P.shape[1], dtype=bool)
        return none if self.prior is None else self.prior.discrete

    @property
    def continuous(self) -> bool:
        """Whether the prior has a density on R^d, so that its draws can be smoothed to one."""
        return self.prior is None or not (self.prior.simplices or np.any(self.prior.discrete))

    @property
    def has_density(self) -> bool:
        """Whether the prior has a density that proposals can be corrected by."""
        return self.prior is not None and self.prior.has_density and self.continuous

    @cached_property
    def support(self) -> tuple[Floats, Floats]:
        """Ends of the prior's support in coordinates, where moving or smoothing may leave it."""
        d = self.P.shape[1]
        low, high = np.full(d, -np.inf), np.full(d, np.inf)
        if self.prior is None:
            return low, high
        somewhere = self.space.parameters(np.zeros((1, d)))[0]
        on_simplex = np.isin(np.arange(d), [j for c in self.prior.simplices for j in c])
        known = (self.prior.low, low, self.space.low), (self.prior.high, high, self.space.high)
        for end, ends, beyond in known:
            matters = np.isfinite(end) & (end != beyond) & ~on_simplex
            at = self.space.coordinates(np.where(matters, end, somewhere)[None])[0]
            ends[matters] = at[matters]
        return low, high

    def subset(self, rows: Ints) -> Task:
        """Task of some of the simulations."""
        weights = None if self.weights is None else self.weights[rows] / self.weights[rows].sum()
        few = None if self.rows is None else self.rows[rows]
        return replace(self, P=self.P[rows], X=self.X[rows], rows=few, weights=weights)

    def inverse(self, rng: np.random.Generator, like: Inverse | None = None) -> Inverse:
        """Regression of parameters on data, which all variants need."""
        return Inverse.fit(self.P, self.X, rng, self.weights, self.discrete, like)

    def in_support(self, points: Floats) -> Bools:
        """Which points (k, d) lie within the ends of the support."""
        return np.asarray(np.all((points >= self.support[0]) & (points <= self.support[1]), axis=1))

    def inside(self, points: Floats, weights: Floats) -> Sample:
        """Points within the prior's support; if hardly any are, all of them, moved to its edge."""
        inside = self.in_support(points)
        if self.has_density and self.prior is not None and not self.prior.has_marginals:
            inside &= np.isfinite(self.log_prior(points))  # a joint density may not fill its box
        total = np.sum(np.abs(weights))
        if np.all(inside) or np.sum(np.abs(weights[inside])) < LEAST_INSIDE * total:
            return np.clip(points, *self.support), weights
        mass = weights[inside].sum()
        return points[inside], weights[inside] * (weights.sum() / mass if mass > 0 else 1.0)

    def log_prior(self, P: Floats) -> Floats:
        """Log density (n,) of the prior at coordinates (n, d); zero without a prior."""
        if self.prior is None:
            return np.zeros(len(P))
        theta = self.space.parameters(P)
        logs = self.prior.log_density(theta)
        return np.where(np.isfinite(logs), logs - self.space.log_volume(theta), -np.inf)

    def draw_prior(self, rng: np.random.Generator) -> Floats:
        """Coordinates (m, d) of draws of the prior, or of the simulations if there is none."""
        if self.prior is not None:
            return self.space.coordinates(self.prior.sample(PRIOR_DRAWS, rng))
        if self.weights is None:
            return self.P
        return self.P[rng.choice(len(self.P), size=PRIOR_DRAWS, p=self.weights)]


@dataclass(frozen=True, eq=False)
class Near:
    """Learner of near simulations, adjusted or not."""

    task: Task
    inverse: Inverse
    variant: Variant

    def sample(self, X: Floats) -> Iterator[Sample]:
        """Points (k, d) and weights (k,) given each of the data X (m, q)."""
        for points, w in self.inverse.posterior(X, self.variant.recipe):
            yield self.task.inside(self._widened(points, w), w)

    def _widened(self, points: Floats, w: Floats) -> Floats:
        """Points (k, d) moved away from their mean, or towards it; discrete ones stay."""
        mean, temper = w @ points, self.variant.temper
        moved = points if temper == 1.0 else mean + (points - mean) / np.sqrt(temper)
        return np.where(self.task.discrete, points, moved)

    def posterior(self, data: Observed, rng: np.random.Generator) -> Found:  # noqa: ARG002
        """Points, weights and smoothing given each of the data; nothing is random here."""
        return ((points, w, self.variant.smoothing) for points, w in self.sample(data.X))


@dataclass(frozen=True, eq=False)
class Rule(Near):
    """Learner by a rule of probability, which maps data (m, q) to weights on all simulations."""

    rule: Callable[[Floats], Batch | Embedding]

    @classmethod
    def fit(cls, task: Task, inverse: Inverse, variant: Variant, rng: np.random.Generator) -> Rule:
        """Fit the rule of a variant."""
        U = task.X @ inverse.metric
        kernel_x, kernel_z = Gaussian.median(U, variant.bandwidth), Gaussian.median(task.P)
        if variant.kind == "cme" and task.weights is None and len(U) <= MOST_DENSE:
            cme = ConditionalEmbedding(kernel_x, kernel_z).fit(U, task.P)
            return cls(task, inverse, variant, cme.filled)
        method: BayesMethod = "original" if variant.kind == "original" else "importance"
        rank = RANK if len(U) > DENSE else None
        prior = None if task.weights is None else embed(task.P, kernel_z, task.weights)
        seed = int(rng.integers(2**31))
        rule = KernelBayesRule(kernel_x, kernel_z, method=method, rank=rank, rng=seed)
        return cls(task, inverse, variant, rule.fit(U, task.P, prior=prior).filled)

    def sample(self, X: Floats) -> Iterator[Sample]:
        """Points (n, d), adjusted or not, and weights (n,) given each of the data X (m, q).

        Negative weights count as zero, and where none is positive all simulations count: a
        posterior is a distribution, and the one that is returned is the one that was scored.
        """
        W = np.maximum(np.atleast_2d(self.rule(X @ self.inverse.metric).weights), 0.0)
        every, prior = np.arange(len(self.task.P)), self.inverse.weights
        for moved, w in zip(self.inverse.moved(X, self.variant.recipe), W, strict=True):
            weights = w / w.sum() if w.sum() > 0 else prior
            yield self.task.inside(self._widened(moved(every), weights), weights)
