"""Two models in differential equations: the SIR epidemic and Lotka-Volterra populations.

Both are solved in logs of the populations, so that exponential growth is a straight line, by the
classical Runge-Kutta method over a whole batch of parameters. Each parameter vector gets its own
number of steps, from a bound on the fastest rate of its trajectory; the batch is solved in groups
of equal number.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.special import gammaln, xlogy
from scipy.stats import lognorm
from smc import Checks, sample_posterior

Array = np.ndarray
Rng = np.random.Generator
Field = Callable[[Array, Array], Array]

POPULATION, TRIALS, SIR_GAP = 1_000_000, 1000, 17.0  # observations at days 0, 17, ..., 153
SIR_LOC, SIR_SCALE = np.log([0.4, 0.125]), np.array([0.5, 0.2])
LV_START, LV_GAP, LV_NOISE = (30.0, 1.0), 2.1, 0.1  # observations at times 0, 2.1, ..., 18.9
LV_LOC, LV_SCALE = np.array([-0.125, -3.0, -0.125, -3.0]), np.full(4, 0.5)
TIMES = 10


def _priors(loc: Array, scale: Array) -> list[Any]:
    return [lognorm(s, scale=np.exp(mu)) for mu, s in zip(loc, scale, strict=True)]


SIR_PRIOR, LV_PRIOR = _priors(SIR_LOC, SIR_SCALE), _priors(LV_LOC, LV_SCALE)


def _runge_kutta(field: Field, start: Array, theta: Array, gap: float, steps: int) -> Array:
    """States (TIMES, k, n) at multiples of ``gap`` from ``start`` (k, n)."""
    h, y = gap / steps, start
    path = [y]
    for _ in range(TIMES - 1):
        for _ in range(steps):
            k_1 = field(y, theta)
            k_2 = field(y + (h / 2) * k_1, theta)
            k_3 = field(y + (h / 2) * k_2, theta)
            k_4 = field(y + h * k_3, theta)
            y = y + (h / 6) * (k_1 + 2 * (k_2 + k_3) + k_4)
        path.append(y)
    return np.stack(path)


def _solve(
    field: Field, start: Array, theta: Array, gap: float, rate: Array, angle: float
) -> Array:
    """States (n, k, TIMES); steps so short that rate times step stays below ``angle``."""
    steps = 2 ** np.ceil(np.log2(np.maximum(gap * rate / angle, 4))).astype(int)
    found = np.empty((len(theta), len(start), TIMES))
    for count in np.unique(np.minimum(steps, 4096)):
        group = np.flatnonzero(np.minimum(steps, 4096) == count)
        first = np.broadcast_to(start[:, None], (len(start), len(group)))
        path = _runge_kutta(field, first, np.ascontiguousarray(theta[group].T), gap, int(count))
        found[group] = path.transpose(2, 1, 0)
    return found


# SIR ---------------------------------------------------------------------------------------------
def _sir_field(state: Array, theta: Array) -> Array:
    """d/dt of the logs of the susceptible and infected fractions."""
    susceptible, infected = np.exp(state)
    return np.stack([-theta[0] * infected, theta[0] * susceptible - theta[1]])


def sir_log_infected(theta: Array) -> Array:
    """Log of the infected fraction at the ten times, (n, 10)."""
    start = np.log([(POPULATION - 1) / POPULATION, 1 / POPULATION])
    rate = theta.sum(axis=1)
    return _solve(_sir_field, start, theta, SIR_GAP, rate, 1.0)[:, 1]


def sir_simulator(theta: Array, rng: Rng) -> Array:
    """Infected among 1000 people tested at each of ten times, (n, 10)."""
    return rng.binomial(TRIALS, np.minimum(np.exp(sir_log_infected(theta)), 1.0)).astype(float)


def sir_log_likelihood(theta: Array, x_o: Array) -> Array:
    """Binomial log probability of the ten counts."""
    log_p = np.minimum(sir_log_infected(theta), -1e-12)
    choose = gammaln(TRIALS + 1) - gammaln(x_o + 1) - gammaln(TRIALS - x_o + 1)
    hit = np.where(x_o > 0, x_o * log_p, 0.0)
    return np.sum(choose + hit + xlogy(TRIALS - x_o, -np.expm1(log_p)), axis=1)


def sir_checked_reference(x_o: Array, m: int, rng: Rng) -> tuple[Array, Checks]:
    """Draws and checks, made in log parameters, where the prior is Gaussian."""
    return _log_posterior(sir_log_likelihood, x_o, SIR_LOC, SIR_SCALE, m, rng)


# Lotka-Volterra ----------------------------------------------------------------------------------
def _lotka_field(state: Array, theta: Array) -> Array:
    """d/dt of the logs of prey and predators."""
    prey, predators = np.exp(state)
    return np.stack([theta[0] - theta[1] * predators, theta[3] * prey - theta[2]])


def _lotka_rate(theta: Array) -> Array:
    """Bound the largest of beta y and delta x along the orbit.

    With X = delta x and Y = beta y the orbit keeps X - gamma log X + Y - alpha log Y. The largest Y
    is met at X = gamma and solves Y - alpha log Y = c. The tangent of the logarithm at 2 alpha
    gives a first upper bound, and Y <- c + alpha log Y makes it tighter from above.
    """
    alpha, beta, gamma, delta = theta.T
    X, Y = delta * LV_START[0], beta * LV_START[1]
    level = X - gamma * np.log(X) + Y - alpha * np.log(Y)

    def largest(here: Array, other: Array) -> Array:
        c = level - other + other * np.log(other)
        bound = 2 * np.maximum(c + here * (np.log(2 * here) - 1), here)
        for _ in range(4):
            bound = np.maximum(c + here * np.log(bound), here)
        return bound

    return np.maximum(largest(alpha, gamma), largest(gamma, alpha))


def lotka_log_populations(theta: Array) -> Array:
    """Log of prey then predators at ten times each, (n, 20), within the benchmark's clamp."""
    start = np.log(np.array(LV_START))
    states = _solve(_lotka_field, start, theta, LV_GAP, _lotka_rate(theta), 0.5)
    return np.clip(states.reshape(len(theta), 2 * TIMES), np.log(1e-10), np.log(1e4))


def lotka_simulator(theta: Array, rng: Rng) -> Array:
    """Draw populations with log-normal noise, (n, 20)."""
    path = lotka_log_populations(theta)
    return np.exp(path + LV_NOISE * rng.standard_normal(path.shape))


def lotka_log_likelihood(theta: Array, x_o: Array) -> Array:
    """Log-normal log density of the twenty values."""
    z = (np.log(x_o) - lotka_log_populations(theta)) / LV_NOISE
    return np.sum(-0.5 * z**2 - np.log(np.sqrt(2 * np.pi) * LV_NOISE * x_o), axis=1)


def lotka_checked_reference(x_o: Array, m: int, rng: Rng) -> tuple[Array, Checks]:
    """Draws and checks, made in log parameters, where the prior is Gaussian."""
    return _log_posterior(lotka_log_likelihood, x_o, LV_LOC, LV_SCALE, m, rng)


def _log_posterior(
    log_likelihood: Callable[[Array, Array], Array],
    x_o: Array,
    loc: Array,
    scale: Array,
    m: int,
    rng: Rng,
) -> tuple[Array, Checks]:
    def of_logs(z: Array) -> Array:
        return log_likelihood(np.exp(z), x_o)

    factor = scale[:, None] * np.eye(len(scale))
    draws, checks = sample_posterior(of_logs, loc, factor, m, rng)
    return np.exp(draws), checks
