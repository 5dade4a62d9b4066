"""Draws of a posterior whose likelihood can be computed: tempering, then many long chains.

The prior is Gaussian (after logs where need be), so parameters are white noise ``w`` times a
factor. A population starts at the prior and moves to the posterior through powers of the
likelihood, each chosen so that half of the population is effective (Del Moral, Doucet and Jasra
2006), with Metropolis steps in between. At the posterior every particle becomes a chain of its
own: the proposals are frozen and only the last state of each chain is kept, so the draws are as
good as independent once a chain has forgotten where it began. Steps alternate between a random
walk and a jump to a Student distribution with the population's mean and covariance.

``Checks`` says whether that happened. The population is made of four groups that never exchange a
particle; ``rhat`` compares their means and spreads (nested R-hat of Margossian et al. 2024, one
group as a super-chain), and ``memory`` is the largest correlation, over coordinates, of first and
last states. Two chains with a common ancestor are correlated by the square of the memory.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.linalg import solve_triangular

Array = np.ndarray
Rng = np.random.Generator
GROUPS, POPULATION = 4, 2000  # at least: R-hat of independent draws is about 1.001 then
FREEDOM = 5.0  # of the Student jumps: tails wider than the target's
MEMORY, RHAT = 0.1, 1.01


@dataclass(frozen=True)
class Checks:
    """Quality of a set of draws: see the module."""

    rhat: float
    memory: float
    acceptance: float
    temperatures: int
    steps: int

    @property
    def passed(self) -> bool:
        """Groups agree and chains have forgotten their start."""
        return self.rhat < RHAT and self.memory < MEMORY


def nested_rhat(w: Array) -> float:
    """Largest R-hat over coordinates and their squares for groups of chains (groups, chains, d)."""
    centred = w - w.mean(axis=(0, 1))
    worst = 0.0
    for values in (centred, centred**2):
        within = values.var(axis=1, ddof=1).mean(axis=0)
        between = values.mean(axis=1).var(axis=0, ddof=1)
        worst = max(worst, float(np.max(np.sqrt(1 + between / within))))
    return worst


def _next_power(log_l: Array, power: float) -> float:
    """Largest power up to one at which half of the population is effective."""

    def effective(step: float) -> float:
        weights = np.exp(step * (log_l - log_l.max()))
        return float(weights.sum() ** 2 / (weights**2).sum() / len(weights))

    low, high = 0.0, 1.0 - power
    if effective(high) >= 0.5:
        return 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if effective(middle) >= 0.5 else (low, middle)
    return power + low


def _resample(log_weights: Array, rng: Rng) -> Array:
    """Choose indices by systematic resampling inside each group."""
    size = len(log_weights) // GROUPS
    rows = log_weights.reshape(GROUPS, size)
    cumulative = np.cumsum(np.exp(rows - rows.max(axis=1, keepdims=True)), axis=1)
    cumulative /= cumulative[:, -1:]
    ticks = (np.arange(size) + rng.random((GROUPS, 1))) / size
    inside = [np.searchsorted(c, t) for c, t in zip(cumulative, ticks, strict=True)]
    return np.concatenate([g * size + np.minimum(i, size - 1) for g, i in enumerate(inside)])


@dataclass(frozen=True)
class Moves:
    """Metropolis steps for the posterior with the likelihood to some power, prior N(0, I)."""

    log_likelihood: Callable[[Array], Array]
    power: float
    mean: Array
    factor: Array  # of the population's covariance

    @classmethod
    def fitted(cls, log_likelihood: Callable[[Array], Array], power: float, w: Array) -> Moves:
        """Proposals with the mean and the covariance of the population w (n, d)."""
        factor = np.linalg.cholesky(np.cov(w.T) + 1e-10 * np.eye(w.shape[1]))
        return cls(log_likelihood, power, w.mean(axis=0), factor)

    def _log_student(self, w: Array) -> Array:
        """Log density of the jump, up to a constant."""
        z = solve_triangular(self.factor, (w - self.mean).T, lower=True)
        return -0.5 * (FREEDOM + w.shape[1]) * np.log1p(np.sum(z**2, axis=0) / FREEDOM)

    def step(self, w: Array, log_l: Array, rng: Rng, *, jump: bool) -> tuple[Array, Array, float]:
        """One step of every chain; new states, log likelihoods, and the acceptance rate."""
        n, d = w.shape
        noise = rng.standard_normal((n, d)) @ self.factor.T
        if jump:
            proposal = self.mean + noise / np.sqrt(rng.chisquare(FREEDOM, (n, 1)) / FREEDOM)
            correction = self._log_student(w) - self._log_student(proposal)
        else:
            proposal = w + 2.38 / np.sqrt(d) * noise
            correction = 0.0
        new_l = self.log_likelihood(proposal)
        prior_ratio = 0.5 * np.sum(w**2 - proposal**2, axis=1)
        log_ratio = self.power * (new_l - log_l) + prior_ratio + correction
        keep = np.log(rng.random(n)) < log_ratio
        return np.where(keep[:, None], proposal, w), np.where(keep, new_l, log_l), keep.mean()

    def walk(self, w: Array, log_l: Array, steps: int, rng: Rng) -> tuple[Array, Array, float]:
        """Alternate jumps and random walk; also the mean acceptance rate."""
        rates = []
        for k in range(steps):
            w, log_l, rate = self.step(w, log_l, rng, jump=k % 2 == 0)
            rates.append(rate)
        return w, log_l, float(np.mean(rates))


def _memory(first: Array, last: Array) -> float:
    """Largest correlation over coordinates, (n, d) both."""
    a, b = first - first.mean(axis=0), last - last.mean(axis=0)
    scale = np.sqrt(np.sum(a**2, axis=0) * np.sum(b**2, axis=0))
    return float(np.max(np.abs(np.sum(a * b, axis=0)) / scale))


def sample_posterior(
    log_likelihood: Callable[[Array], Array], mean: Array, factor: Array, m: int, rng: Rng
) -> tuple[Array, Checks]:
    """Draws (m, d) of the posterior under the prior N(mean, factor factor^T), and their checks.

    ``log_likelihood`` takes parameters (n, d) and returns (n,).
    """
    size = GROUPS * -(-max(m, POPULATION) // GROUPS)
    w = rng.standard_normal((size, len(mean)))

    def target(white: Array) -> Array:
        return log_likelihood(mean + white @ factor.T)

    log_l, power, temperatures = target(w), 0.0, 0
    while power < 1.0:
        new_power = _next_power(log_l, power)
        index = _resample((new_power - power) * log_l, rng)
        power, temperatures = new_power, temperatures + 1
        w, log_l = w[index], log_l[index]
        w, log_l, _ = Moves.fitted(target, power, w).walk(w, log_l, 4, rng)
    w, log_l, _ = Moves.fitted(target, 1.0, w).walk(w, log_l, 10, rng)
    frozen, first, memory, steps = Moves.fitted(target, 1.0, w), w, 1.0, 0
    # At least 20 steps, and on while the start is remembered.
    while steps < 20 or (memory > MEMORY and steps < 400):
        w, log_l, acceptance = frozen.walk(w, log_l, 10, rng)
        memory, steps = _memory(first, w), steps + 10
    rhat = nested_rhat(w.reshape(GROUPS, -1, len(mean)))
    checks = Checks(rhat, memory, acceptance, temperatures, steps)
    # Rows are ordered by group: shuffle, so that the first m are a fair choice.
    return mean + w[rng.permutation(size)[:m]] @ factor.T, checks
