"""Tasks whose posterior can be drawn from exactly: Gaussians, the mixture, two moons, SLCP.

Every simulator takes parameters ``theta`` (n, d) and a generator, and returns data (n, dim_x).
Every reference takes one observation (dim_x,), a number of draws and a generator. A bounded prior
is handled by rejection, ``_accept``: draw from the posterior without bounds, keep what is inside.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.special import logsumexp
from scipy.stats import truncnorm

Array = np.ndarray
Rng = np.random.Generator

VARIANCE = 0.1  # of prior and noise in the Gaussian tasks: a variance, not a deviation
MOON_RADIUS, MOON_SPREAD, MOON_SHIFT = 0.1, 0.01, 0.25
MIXTURE_SCALES = np.array([1.0, 0.1])
SLCP_BOUND = 3.0
LOG_2PI = float(np.log(2 * np.pi))


def _accept(propose: Callable[[int], tuple[Array, Array]], m: int) -> Array:
    """Collect m rows out of batches (rows, kept) of a rejection sampler."""
    found: list[Array] = []
    size = m
    for _ in range(10_000):
        rows, kept = propose(size)
        found.append(rows[kept])
        have = sum(map(len, found))
        if have >= m:
            return np.concatenate(found)[:m]
        size = int(min(max((m - have) / max(kept.mean(), 1e-3), m), 1_000_000))
    raise RuntimeError("rejection sampler: the posterior has next to no mass in the prior's box")


def _normal_log_density(residual: Array, scale: float | Array) -> Array:
    """Sum over the last axis of log N(residual; 0, scale^2)."""
    return np.sum(-0.5 * (residual / scale) ** 2 - np.log(scale) - 0.5 * LOG_2PI, axis=-1)


# Gaussian linear, with a Gaussian prior or a uniform one -----------------------------------------
def gaussian_simulator(theta: Array, rng: Rng) -> Array:
    """X = theta + noise with covariance .1 I."""
    return theta + np.sqrt(VARIANCE) * rng.standard_normal(theta.shape)


def gaussian_log_likelihood(theta: Array, x_o: Array) -> Array:
    """Log N(x_o; theta, .1 I)."""
    return _normal_log_density(x_o - theta, np.sqrt(VARIANCE))


def gaussian_reference(x_o: Array, m: int, rng: Rng) -> Array:
    """Prior N(0, .1 I): the posterior is N(x_o / 2, .05 I)."""
    return x_o / 2 + np.sqrt(VARIANCE / 2) * rng.standard_normal((m, len(x_o)))


def gaussian_uniform_reference(x_o: Array, m: int, rng: Rng) -> Array:
    """Prior uniform on [-1, 1]^d: independent truncated normals."""
    scale = np.sqrt(VARIANCE)
    a, b = (-1 - x_o) / scale, (1 - x_o) / scale
    return truncnorm.rvs(a, b, loc=x_o, scale=scale, size=(m, len(x_o)), random_state=rng)


# Gaussian mixture --------------------------------------------------------------------------------
def mixture_simulator(theta: Array, rng: Rng) -> Array:
    """Draw from a wide or a narrow Gaussian around theta, with equal chances."""
    scale = rng.choice(MIXTURE_SCALES, size=(len(theta), 1))
    return theta + scale * rng.standard_normal(theta.shape)


def mixture_log_likelihood(theta: Array, x_o: Array) -> Array:
    """Log of (N(x_o; theta, I) + N(x_o; theta, .01 I)) / 2."""
    parts = [_normal_log_density(x_o - theta, scale) for scale in MIXTURE_SCALES]
    return logsumexp(parts, axis=0) - np.log(2.0)


def mixture_reference(x_o: Array, m: int, rng: Rng) -> Array:
    """Uniform prior on [-10, 10]^2: the mixture turned round, cut off at the box."""

    def propose(size: int) -> tuple[Array, Array]:
        theta = mixture_simulator(np.broadcast_to(x_o, (size, len(x_o))), rng)
        return theta, np.all(np.abs(theta) <= 10.0, axis=1)

    return _accept(propose, m)


# Two moons ---------------------------------------------------------------------------------------
def _moon(n: int, rng: Rng) -> Array:
    """Draw the crescent: half a circle with a noisy radius, moved to the right."""
    angle = rng.uniform(-np.pi / 2, np.pi / 2, n)
    radius = rng.normal(MOON_RADIUS, MOON_SPREAD, n)
    return np.column_stack([radius * np.cos(angle) + MOON_SHIFT, radius * np.sin(angle)])


def _moon_centre(theta: Array) -> Array:
    """Shift of the crescent: (-|theta_1 + theta_2|, theta_2 - theta_1) / sqrt(2)."""
    total, difference = theta[:, 0] + theta[:, 1], theta[:, 1] - theta[:, 0]
    return np.column_stack([-np.abs(total), difference]) / np.sqrt(2.0)


def two_moons_simulator(theta: Array, rng: Rng) -> Array:
    """Draw a point of the crescent, shifted by a folded rotation of theta."""
    return _moon(len(theta), rng) + _moon_centre(theta)


def two_moons_log_likelihood(theta: Array, x_o: Array) -> Array:
    """Density of the crescent at x_o - shift; 1 / radius is the Jacobian of polar coordinates."""
    point = x_o - _moon_centre(theta) - np.array([MOON_SHIFT, 0.0])
    radius = np.hypot(point[:, 0], point[:, 1])
    with np.errstate(divide="ignore"):
        value = (
            -0.5 * ((radius - MOON_RADIUS) / MOON_SPREAD) ** 2
            - np.log(MOON_SPREAD * np.pi * radius)
            - 0.5 * LOG_2PI
        )
    return np.where(point[:, 0] >= 0, value, -np.inf)


def two_moons_reference(x_o: Array, m: int, rng: Rng) -> Array:
    """Draw the crescent, solve for theta: two signs of the folded coordinate, equally likely."""

    def propose(size: int) -> tuple[Array, Array]:
        point = _moon(size, rng)
        folded, difference = point[:, 0] - x_o[0], x_o[1] - point[:, 1]
        total = folded * rng.choice([-1.0, 1.0], size)
        theta = np.column_stack([total - difference, total + difference]) / np.sqrt(2.0)
        return theta, (folded >= 0) & np.all(np.abs(theta) <= 1.0, axis=1)

    return _accept(propose, m)


# SLCP: simple likelihood, complex posterior ------------------------------------------------------
def slcp_simulator(theta: Array, rng: Rng) -> Array:
    """Four points of a plane Gaussian: mean theta_1, theta_2; deviations theta_3^2, theta_4^2."""
    s_1, s_2, rho = theta[:, 2, None] ** 2, theta[:, 3, None] ** 2, np.tanh(theta[:, 4, None])
    z = rng.standard_normal((len(theta), 4, 2))
    first = theta[:, 0, None] + s_1 * z[..., 0]
    second = theta[:, 1, None] + s_2 * (rho * z[..., 0] + np.sqrt(1 - rho**2) * z[..., 1])
    return np.stack([first, second], axis=-1).reshape(len(theta), 8)


def _slcp_terms(t_1: Array, t_2: Array, t_rho: Array, scatter: Array) -> tuple[Array, Array]:
    """Log |S| and tr(S^-1 scatter) for deviations t^2 and correlation tanh(t_rho)."""
    rho = np.tanh(t_rho)
    log_free = -2 * np.log(np.cosh(t_rho))  # log(1 - rho^2) without cancellation
    log_det = 4 * np.log(np.abs(t_1)) + 4 * np.log(np.abs(t_2)) + log_free
    trace = scatter[0, 0] / t_1**4 - 2 * rho * scatter[0, 1] / (t_1 * t_2) ** 2
    return log_det, (trace + scatter[1, 1] / t_2**4) / np.exp(log_free)


def slcp_log_likelihood(theta: Array, x_o: Array) -> Array:
    """Sum of the four Gaussian log densities, one parameter at a time in the mean."""
    points = x_o.reshape(4, 2)
    centred = points - points.mean(axis=0)
    shift = points.mean(axis=0) - theta[:, :2]
    scatter = np.moveaxis((centred.T @ centred) + 4 * shift[:, :, None] * shift[:, None, :], 0, -1)
    log_det, trace = _slcp_terms(theta[:, 2], theta[:, 3], theta[:, 4], scatter)
    return -0.5 * (4 * log_det + trace) - 4 * LOG_2PI


def _box_sampler(
    log_density: Callable[[Array], Array], low: Array, high: Array, cells: int, rng: Rng
) -> Callable[[int], tuple[Array, Array]]:
    """Rejection sampler (rows, kept) for a smooth density on a box of few dimensions.

    Proposals are uniform inside the cells of a grid; the bound on the density over its value at the
    centre of the cell is the largest ratio among 200 000 proposals.
    """
    axes = [np.arange(cells)] * len(low)
    index = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, len(low))
    step = (high - low) / cells
    at_centre = log_density(low + (index + 0.5) * step)
    cumulative = np.cumsum(np.exp(at_centre - at_centre.max()))
    cumulative /= cumulative[-1]

    def draw(size: int) -> tuple[Array, Array]:
        cell = np.searchsorted(cumulative, rng.random(size))
        u = low + (index[cell] + rng.random((size, len(low)))) * step
        return u, log_density(u) - at_centre[cell]

    bound = np.max(draw(200_000)[1])

    def propose(size: int) -> tuple[Array, Array]:
        u, log_ratio = draw(size)
        return u, np.log(rng.random(size)) < log_ratio - bound

    return propose


def slcp_reference(x_o: Array, m: int, rng: Rng, cells: int = 64) -> Array:
    """Exact up to the bound of a rejection sampler.

    The likelihood is N(mean; average, S / 4) times g(S) = |S|^(-3/2) exp(-tr(S^-1 scatter) / 2), so
    draw S from g on a grid of three axes (logs of |theta_3|, |theta_4|, and theta_5), then the mean
    given S, and keep what falls inside the prior's box. The signs of theta_3 and theta_4 do not
    enter the likelihood: both are fair coins, which gives the four modes.
    """
    points = x_o.reshape(4, 2)
    average = points.mean(axis=0)
    scatter = (points - average).T @ (points - average)

    def log_g(u: Array) -> Array:
        t_1, t_2, t_rho = np.exp(u[:, 0]), np.exp(u[:, 1]), u[:, 2]
        log_det, trace = _slcp_terms(t_1, t_2, t_rho, scatter)
        return -0.5 * (3 * log_det + trace) + u[:, 0] + u[:, 1]

    # Below one e-fold under the observed deviation, tr(S^-1 scatter) / 2 exceeds 2 e^4: no mass.
    typical = 0.25 * np.log(scatter[[0, 1], [0, 1]] / 4)
    top = np.log(SLCP_BOUND)
    low, high = np.r_[np.minimum(typical, top) - 1.0, -SLCP_BOUND], np.r_[top, top, SLCP_BOUND]
    covariance = _box_sampler(log_g, low, high, cells, rng)

    def propose(size: int) -> tuple[Array, Array]:
        u, kept = covariance(size)
        rho, z = np.tanh(u[:, 2]), rng.standard_normal((size, 2))
        second = rho * z[:, 0] + np.sqrt(1 - rho**2) * z[:, 1]
        mean = average + 0.5 * np.exp(2 * u[:, :2]) * np.column_stack([z[:, 0], second])
        signs = rng.choice([-1.0, 1.0], (size, 2))
        theta = np.column_stack([mean, signs * np.exp(u[:, :2]), u[:, 2]])
        return theta, kept & np.all(np.abs(theta) <= SLCP_BOUND, axis=1)

    return _accept(propose, m)


# SLCP with distractors ---------------------------------------------------------------------------
def _distractors() -> tuple[Array, Array, Array]:
    """Centres (20, 92), factors (20, 92, 92) and the order of the 100 columns.

    Constants of the benchmark: NumPy's legacy generator with seed 42, in its order of draws.
    """
    legacy = np.random.RandomState(42)
    centres = 15 * legacy.normal(size=(20, 92))
    factors = []
    for _ in range(20):
        factor = np.tril(legacy.normal(size=(92, 92)))
        factor[np.diag_indices(92)] += np.exp(legacy.normal(size=92))
        factors.append(3 * factor)
    return centres, np.array(factors), legacy.permutation(100)


CENTRES, FACTORS, ORDER = _distractors()
SIGNAL = np.argsort(ORDER)[:8]  # columns of the data that hold the eight numbers of SLCP


def slcp_distractors_simulator(theta: Array, rng: Rng) -> Array:
    """SLCP hidden among 92 columns of a mixture of twenty Student distributions (2 d.o.f.)."""
    signal = slcp_simulator(theta, rng)  # drawn first: a seed gives the same numbers as in SLCP
    part = rng.integers(len(CENTRES), size=len(theta))
    noise = rng.standard_normal((len(theta), 92)) / np.sqrt(rng.chisquare(2, (len(theta), 1)) / 2)
    for k in np.unique(part):
        noise[part == k] = CENTRES[k] + noise[part == k] @ FACTORS[k].T
    return np.hstack([signal, noise])[:, ORDER]


def slcp_distractors_log_likelihood(theta: Array, x_o: Array) -> Array:
    """Of the eight informative columns; the rest does not depend on theta."""
    return slcp_log_likelihood(theta, x_o[SIGNAL])


def slcp_distractors_reference(x_o: Array, m: int, rng: Rng) -> Array:
    """Draws of the posterior of SLCP: the distractors are independent of theta."""
    return slcp_reference(x_o[SIGNAL], m, rng)
