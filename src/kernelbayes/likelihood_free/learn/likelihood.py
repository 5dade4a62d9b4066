r"""From parameters to data: a likelihood learned from simulations, then Bayes' rule.

Kernel regression of the data (or of learned summaries of them) on the parameters gives their mean
m(theta) and, if that improves the fit, their scales and correlations, a triangular matrix L(theta).
The held-out residuals are a sample of the noise. Its smoothed density is the likelihood,

.. math:: \log p(x \mid \theta) = \log p_\varepsilon\!\big(L(\theta)^{-1} (x - m(\theta))\big)
          - \log \det L(\theta),

and adds up over the rows of an iid data set. It does not depend on where the parameters of the
simulations came from, so any prior may follow
(:func:`~kernelbayes.likelihood_free.learn.importance.importance_sample`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import gammaln

from kernelbayes.embedding.smooth import Smoothed, Smoothing
from kernelbayes.gram.lapack import cholesky, eigenvalues, solve
from kernelbayes.likelihood_free.learn.adjust import SEARCHED, deviation, log_squares
from kernelbayes.likelihood_free.learn.nearby import Mean, fitted
from kernelbayes.likelihood_free.learn.task import Data
from kernelbayes.select.regression import Regression, regress
from kernelbayes.types import Floats, Ints

# Constants without another reason were chosen on the development seeds of experiments/sbi_tasks.
# Pairs that decide how data are read, and the share of the error that is left at most if they are
# read otherwise than as they are: a judgement, as a smaller gain would not be seen. Blocks are
# alike if their quarters, and the signs of pairs of them, are within so many standard errors: one
# in 16 000 is not, by chance.
READ_PAIRS, READ_BETTER = 300, 0.97
QUARTERS, STANDARD_ERRORS = (0.25, 0.5, 0.75), 4.0
# Residuals that make up the noise density, and the shares of their deviation that smooth it; with
# all of it the density is a normal one. Or it has the tails of a t distribution, whose degrees of
# freedom are half as many again or more from one to the next, down to where a variance is known.
RESIDUALS, NOISE_SMOOTHING = 1500, (0.1, 0.2, 0.4, 0.7, 1.0)
NOISE_TAILS = (3.0, 4.0, 6.0, 10.0, 20.0)
# In few dimensions the noise density may be smoothed by the distance to a neighbour.
LOCAL_COLUMNS, NOISE_NEIGHBOUR = 5, 10
# Standardised residuals are clipped here before they are multiplied; the largest correlation.
RESIDUAL_CLIP, CORRELATED = 3.0, 0.98
# Simulations whose residuals are wild are dropped: beyond the quantile of all but this share, and
# beyond this multiple of the 95 % quantile (ten times as far as a normal residual in a million).
FEW_WILD, WILD = 0.01, 20.0
RESIDUAL_ROWS = 30  # rows of an iid data set whose residuals are used
# A column that differs from its most common value less often than twice this has no smooth density.
RARE = 0.025


def read_data(x: Floats, P: Floats, rng: np.random.Generator) -> Data:
    """Coordinates of data (n, p), or (n, k, p), in which parameters (n, d) are predicted best.

    As they are; with logs and roots of skewed columns; or as sets of rows that look iid. The
    leave-one-out error of a regression on some pairs decides, and must fall clearly.
    """
    some = rng.permutation(len(x))[:READ_PAIRS]
    tried = [Data.of(x, rng)]
    if str(other := Data.of(x, rng, symmetric=True)):
        tried.append(other)
    if x.ndim == 2 and (blocks := _exchangeable(x)):
        tried.append(Data.of(x, rng, symmetric=len(tried) > 1, blocks=blocks))
    if len(tried) == 1:
        return tried[0]
    errors = []
    for data in tried:
        left_out = regress(data(x[some]).X, P[some], rng, searched=SEARCHED).left_out
        errors.append(float(np.mean((P[some] - left_out) ** 2)))
    best = int(np.argmin(errors))
    return tried[best if errors[best] < READ_BETTER * errors[0] else 0]


def _exchangeable(x: Floats) -> int:
    """Most equal blocks of columns (n, p) that are alike and go together; 0 if there are none."""
    n, p = x.shape
    shares = np.array(QUARTERS)[:, None, None]
    for blocks in (k for k in range(p, 2, -1) if p % k == 0):
        sets = x.reshape(n, blocks, -1)
        ends = np.quantile(sets.reshape(-1, sets.shape[2]), QUARTERS, axis=0)
        below = np.mean(sets <= ends[:, None, None], axis=1)  # (quarters, blocks, columns)
        if np.any(np.abs(below - shares) > STANDARD_ERRORS * np.sqrt(shares * (1 - shares) / n)):
            continue
        side = np.where(sets <= ends[1], -1.0, 1.0)  # of the median
        pairs = np.einsum("nkq,nlq->qkl", side, side)[:, *np.triu_indices(blocks, 1)] / n
        means, error = pairs.mean(axis=1, keepdims=True), STANDARD_ERRORS / np.sqrt(n)
        if np.any(means > error / np.sqrt(blocks)) and np.all(np.abs(pairs - means) < error):
            return blocks
    return 0


@dataclass(frozen=True, eq=False)
class Shrunk(Smoothed):
    """A smoothed sample; its correlations lose their sampling error (Schafer, Strimmer 2005).

    Or, with ``free`` degrees of freedom, the t distribution of its mean and covariance.
    """

    free: float = np.inf

    def log_density(self, T: Floats) -> Floats:
        """Log density (m,) at points (m, p)."""
        if self.free == np.inf:
            return super().log_density(T)
        q, v, p = self.whiten(T), self.free, T.shape[1]
        logs = -0.5 * (v + p) * np.log1p(np.einsum("ij,ij->i", q, q) / (v - 2.0))
        normal = gammaln((v + p) / 2.0) - gammaln(v / 2.0) - 0.5 * p * np.log(v / 2.0 - 1.0)
        return np.asarray(logs + normal - self.log_volume)

    @cached_property
    def factor(self) -> Floats:
        """Cholesky factor of the shrunk covariance, (p, p)."""
        L = super().factor
        sizes = np.sqrt(np.einsum("ij,ij->i", L, L))
        R = (L @ L.T) / np.outer(sizes, sizes)
        R2 = R[np.triu_indices(len(R), 1)] ** 2
        error = float(np.sum((1.0 - R2) ** 2)) / len(self.weights)
        R *= max(0.0, 1.0 - error / max(float(R2.sum()), np.finfo(float).tiny))
        R[np.diag_indices(len(R))] = 1.0
        return np.asarray(sizes[:, None] * cholesky(R))


@dataclass(frozen=True, eq=False)
class Spread:
    """Scales of residuals, and their correlations, as functions of the parameters."""

    logs: Regression
    products: Regression | None
    size: Floats

    @classmethod
    def fit(
        cls, P: Floats, residuals: Floats, rng: np.random.Generator, like: Spread | None
    ) -> Spread:
        """Learn from residuals (n, k, p) at parameters (n, d)."""
        n, k, p = residuals.shape
        equal = np.full(n, 1.0 / n)
        targets = np.mean([log_squares(residuals[:, i], equal) for i in range(k)], axis=0)
        # A metric of its own: often scales depend on other parameters than the mean.
        logs = fitted(P, targets, rng, None if like is None else like.logs)
        scaled = residuals / deviation(logs.left_out)[:, None]
        size = np.sqrt(np.mean(scaled**2, axis=(0, 1)))
        size = np.where(size > 0, size, 1.0)
        if not 2 <= p <= LOCAL_COLUMNS:
            return cls(logs, None, size)
        scaled = np.clip(scaled / size, -RESIDUAL_CLIP, RESIDUAL_CLIP)
        i, j = np.triu_indices(p, 1)
        targets = np.mean(scaled[:, :, i] * scaled[:, :, j], axis=1)
        return cls(logs, fitted(P, targets, rng, None if like is None else like.products), size)

    def __call__(self, P: Floats, residuals: Floats, kind: str) -> tuple[Floats, Floats]:
        """Standardised residuals (m, k, p) at new parameters (m, d), and log volumes (m,)."""
        return self._standardised(residuals, kind, lambda fit: fit(P))

    def left_out(self, residuals: Floats, kind: str) -> tuple[Floats, Floats]:
        """Standardised residuals (n, k, p) of the simulations, and log volumes (n,)."""
        return self._standardised(residuals, kind, lambda fit: fit.left_out)

    def _standardised(
        self, residuals: Floats, kind: str, predicted: Callable[[Regression], Floats]
    ) -> tuple[Floats, Floats]:
        if kind == "same":
            return residuals, np.zeros(len(residuals))
        sigma = deviation(predicted(self.logs)) * self.size
        volumes = np.sum(np.log(sigma), axis=1)
        residuals = residuals / sigma[:, None]
        if kind == "scaled" or self.products is None:
            return residuals, volumes
        ties, p = predicted(self.products), residuals.shape[2]
        i, j = np.triu_indices(p, 1)
        R = np.zeros((len(ties), p, p))
        R[:, i, j] = R[:, j, i] = ties
        # Towards the identity until the matrix is a correlation matrix.
        # By Gershgorin's theorem it is one already where entries are small.
        far = np.flatnonzero(np.abs(R).sum(axis=2).max(axis=1) > CORRELATED)
        least = np.maximum(-eigenvalues(R[far])[:, 0], CORRELATED) if len(far) else np.empty(0)
        R[far] *= (CORRELATED / least)[:, None, None]
        R[:, np.arange(p), np.arange(p)] = 1.0
        L = cholesky(R)
        volumes += np.sum(np.log(np.diagonal(L, axis1=1, axis2=2)), axis=1)
        return solve(L, residuals.transpose(0, 2, 1)).transpose(0, 2, 1), volumes


@dataclass(frozen=True, eq=False)
class Forward:
    """A likelihood learned from simulations, of summaries (p,) or of iid rows (k, p).

    ``kind``: noise of the "same" spread everywhere, "scaled" or "correlated"; how it is smoothed.
    """

    mean: Mean
    spread: Spread
    noise: Smoothed
    kind: tuple[str, Smoothing | float]
    columns: Ints

    @classmethod
    def fit(
        cls, P: Floats, S: Floats, rng: np.random.Generator, like: Forward | None = None
    ) -> Forward:
        """Learn from parameters' coordinates (n, d) and summaries (n, p), or iid rows (n, k, p).

        What ``like`` has chosen, from some of the simulations, is not chosen again.
        """
        rows = S if S.ndim == 3 else S[:, None, :]
        columns = varying(rows.reshape(-1, rows.shape[2])) if like is None else like.columns
        rows = rows[:, :, columns]
        Y = rows.mean(axis=1)
        mean = Mean.fit(P, Y, rng, None if like is None else like.mean)
        residuals = _residuals(rows, mean, rng)
        spread = Spread.fit(P, residuals, rng, None if like is None else like.spread)
        sizes = np.abs(residuals / deviation(spread.logs.left_out)[:, None])
        large, most = np.quantile(sizes, [0.95, 1.0 - FEW_WILD], axis=(0, 1))
        # Residuals that are no part of the noise.
        if np.any(wild := np.any(sizes > np.maximum(WILD * large, most), axis=(1, 2))):
            P, rows, Y = P[~wild], rows[~wild], Y[~wild]
            mean = Mean.fit(P, Y, rng, mean)
            residuals = _residuals(rows, mean, rng)
            spread = Spread.fit(P, residuals, rng, spread)
        if rows.shape[2] <= LOCAL_COLUMNS:  # where there is little noise, the mean is known better
            mean = mean.reweighted(P, Y, deviation(spread.logs.left_out) ** 2)
            residuals = _residuals(rows, mean, rng)
            spread = Spread.fit(P, residuals, rng, spread)
        order = rng.permutation(len(P))
        kind = _choose(residuals, spread, order) if like is None else like.kind
        standard, _ = spread.left_out(residuals, kind[0])
        noise = _noise(standard[order], kind[1])
        return cls(mean, spread, noise, kind, columns)

    def log_likelihood(self, P: Floats, s: Floats) -> Floats:
        """Log likelihood (m,) of parameters' coordinates (m, d) for one observation."""
        rows = np.atleast_2d(s)[:, self.columns]
        standard, volumes = self.spread(P, rows[None] - self.mean(P)[:, None], self.kind[0])
        return _log_densities(self.noise, standard) - len(rows) * volumes


def _residuals(rows: Floats, mean: Mean, rng: np.random.Generator) -> Floats:
    """Left-out residuals (n, k, p), of some of the rows if they are many."""
    if rows.shape[1] > RESIDUAL_ROWS:
        rows = rows[:, rng.permutation(rows.shape[1])[:RESIDUAL_ROWS]]
    return rows - mean.left_out[:, None]


def varying(rows: Floats) -> Ints:
    """Columns to model: not those with nearly always the same value."""
    low, high = np.quantile(rows, [RARE, 1.0 - RARE], axis=0)
    return np.flatnonzero(high > low) if np.any(high > low) else np.arange(rows.shape[1])


def _choose(residuals: Floats, spread: Spread, order: Ints) -> tuple[str, Smoothing | float]:
    """Model of residuals (n, k, p) by its log score.

    The score is that of the first simulations of a random order under the density of the others.
    """
    n, k, p = residuals.shape
    test, train = np.split(order, [min(n // 2, 500)])
    ways: list[Smoothing | float] = [*map(Smoothing, NOISE_SMOOTHING), *NOISE_TAILS]
    if p <= LOCAL_COLUMNS:  # the widest is the same everywhere
        ways += [Smoothing(h, NOISE_NEIGHBOUR) for h in NOISE_SMOOTHING[:-1]]
    found = []
    for kind in ("same", "scaled") if spread.products is None else ("same", "scaled", "correlated"):
        R, volumes = spread.left_out(residuals, kind)
        shrunk = k * float(np.mean(volumes[test]))
        for how in ways:
            logs = _log_densities(_noise(R[train], how), R[test])
            found.append((float(logs.mean()) - shrunk, (kind, how)))
    return max(found, key=lambda row: row[0])[1]


def _noise(residuals: Floats, how: Smoothing | float) -> Smoothed:
    """Density of residuals (n, k, p), of as many as it takes: smoothed, or with tails."""
    flat = residuals[: max(RESIDUALS // residuals.shape[1], 1)].reshape(-1, residuals.shape[2])
    equal, none = np.full(len(flat), 1.0 / len(flat)), np.zeros(flat.shape[1], dtype=bool)
    if isinstance(how, float):
        return Shrunk(flat, equal, 1.0, none, how)
    return Shrunk.by(flat, equal, how, none)


def _log_densities(noise: Smoothed, residuals: Floats) -> Floats:
    """Log densities (m,) of data sets of residuals (m, k, p), which are independent."""
    m, k, p = residuals.shape
    return np.asarray(noise.log_density(residuals.reshape(-1, p)).reshape(m, k).sum(axis=1))
