"""Kernel belief propagation and its baselines for denoising, each tuned without the test image."""

from __future__ import annotations

import itertools

import networks
import numpy as np
import propagation
from images import NOISE, SIDE, rmse
from scipy.ndimage import median_filter, uniform_filter

import kernelbayes as kb

PIXELS = [(i, j) for i in range(SIDE) for j in range(SIDE)]
TEMPLATES = {
    "right": [((i, j), (i, j + 1)) for i in range(SIDE) for j in range(SIDE - 1)],
    "down": [((i, j), (i + 1, j)) for i in range(SIDE - 1) for j in range(SIDE)],
    "seen": [(pixel, ("seen", *pixel)) for pixel in PIXELS],
}
NETWORK = networks.grid(SIDE, SIDE)
ITERATIONS = 30
GRID = 100  # grey levels of the kernel model at most: with more, training levels are rounded
STATES, PSEUDO = (
    (16, 32, 64, 128),
    1e-2,
)  # bins, and the count of each pair of them before any is seen
PARTICLES, FEW = 10, 5  # of each pixel; iterations of particles and mixtures at most


# --- belief propagation: each is (image, noisy image, solved pair) -> denoiser --------------------


def kernel_bp(image, observed, solved, known=False):
    """Kernel belief propagation; the number of iterations is chosen on the solved pair.

    Neighbours differ by a few grey levels of hundreds: the Laplace kernel can tell these apart
    without being narrow. Likelihoods are learned from pairs, with kernels that held-out pairs
    choose; with ``known`` they are Gaussian, as those of the other belief propagations are.
    """
    levels = _rounded(image)
    pairs = {**neighbours(levels), "seen": (levels.ravel(), np.round(observed).ravel())}
    names = ("right", "down") if known else tuple(pairs)
    sharp = kb.Laplace.median(levels.ravel())
    model = kb.KernelBeliefPropagation(
        templates={name: TEMPLATES[name] for name in names},
        kernels={"right": sharp, "down": sharp},
        damping=0.0, max_iterations=ITERATIONS,
    ).fit({name: pairs[name] for name in names})  # fmt: skip
    noise = (observed - image).std()

    def likelihood(level):
        return lambda x: np.exp(-0.5 * ((x[:, 0] - level) / noise) ** 2)

    def seen(observed):
        if known:
            return None, {pixel: likelihood(observed[pixel]) for pixel in PIXELS}
        return {("seen", *pixel): float(observed[pixel]) for pixel in PIXELS}, None

    truth, second = solved
    model.choose_stopping({p: float(truth[p]) for p in PIXELS}, *seen(second))

    def denoise(observed):
        batch = model.query(PIXELS, *seen(observed)).stacked(PIXELS)
        return networks.mean(batch.points[:, 0], np.asarray(batch.weights)).reshape(SIDE, SIDE)

    return denoise


def _rounded(image):
    """Image whose grey levels are at most ``GRID``, evenly spaced if there were more."""
    levels = np.unique(image)
    if len(levels) <= GRID:
        return image
    grid = np.linspace(levels[0], levels[-1], GRID)
    return grid[np.searchsorted(0.5 * (grid[1:] + grid[:-1]), image)]


def kernel_bp_known(image, observed, solved):
    """Kernel belief propagation that knows the family of the noise."""
    return kernel_bp(image, observed, solved, known=True)


def neighbours(image):
    """Pairs of grey levels side by side, and one above the other."""
    return {
        "right": (image[:, :-1].ravel(), image[:, 1:].ravel()),
        "down": (image[:-1].ravel(), image[1:].ravel()),
    }


def discrete_bp(image, observed, solved):
    """Discrete belief propagation on bins of grey levels, with counted potentials.

    The likelihood is a Gaussian with the deviation of the noise in the training pair: the true
    family, which the kernel model does not know.
    """
    noise = (observed - image).std()

    def start(states, new):
        centres, code = networks.binned(image, states)
        q = len(centres)
        psi = [networks.table(a, b, q, q, PSEUDO) for a, b in neighbours(code).values()]
        shares = np.bincount(code.ravel(), minlength=q) + PSEUDO
        local = np.log(shares / shares.sum())
        local = local - 0.5 * ((new.reshape(-1, 1) - centres) / noise) ** 2
        return propagation.discrete(NETWORK, centres, psi, local)

    return _chosen(start, [(states,) for states in STATES], ITERATIONS, solved)


def gaussian_bp(image, observed, solved):
    """Gaussian belief propagation in closed form."""
    pairs = [np.stack(pair) for pair in neighbours(image).values()]
    moments = [(pair.mean(axis=1), np.cov(pair)) for pair in pairs]
    mean, var = (np.full(image.size, value) for value in (image.mean(), image.var()))
    noise = (observed - image).var()

    def start(new):
        for means, _ in propagation.gaussian(NETWORK, moments, mean, var, new.ravel(), noise):
            yield means[:, None], np.ones((image.size, 1))

    return _chosen(start, [()], ITERATIONS, solved)


def particle_bp(image, observed, solved):
    """Particle belief propagation with Gaussian mixtures of pairs."""
    pairs, log_local, sampled = _potentials(image, observed)

    def start(step, new):
        rng = np.random.default_rng(0)
        x, q = sampled(new, rng)
        local = _at(log_local, new)
        return propagation.particle(NETWORK, pairs, local, x, q, step, rng)

    return _chosen(start, [(5.0,), (15.0,)], FEW, solved)


def mixture_bp(image, observed, solved):
    """Belief propagation with mixtures of Gaussians."""
    pairs, log_local, sampled = _potentials(image, observed)

    def start(new):
        rng = np.random.default_rng(0)
        x, _ = sampled(new, rng)
        return propagation.mixture(NETWORK, pairs, _at(log_local, new), x, rng)

    return _chosen(start, [()], FEW, solved)


def _potentials(image, observed):
    """Mixtures of pairs; marginal times likelihood of a pixel; and draws from the likelihood."""
    pairs = [networks.PairMixture(*pair) for pair in neighbours(image).values()]
    noise = (observed - image).std()

    def log_likelihood(x, new):
        return -0.5 * ((x - new.reshape(-1, 1)) / noise) ** 2

    def log_local(x, new):
        return pairs[0].log_marginal(x, 0) + log_likelihood(x, new)

    def sampled(new, rng):
        x = new.reshape(-1, 1) + noise * rng.normal(size=(new.size, PARTICLES))
        return x, log_likelihood(x, new)

    return pairs, log_local, sampled


def _at(log_local, new):
    return lambda x: log_local(x, new)


def _chosen(start, settings, most, solved):
    """Denoiser with the settings and iterations of the least error on the solved pair."""
    truth, known = solved
    best = (np.inf, None, 0)
    for setting in settings:
        for k, beliefs in enumerate(itertools.islice(start(*setting, known), most), 1):
            error = rmse(networks.mean(*beliefs).reshape(SIDE, SIDE), truth)
            best = min(best, (error, setting, k), key=lambda found: found[0])

    def denoise(observed):
        *_, beliefs = itertools.islice(start(*best[1], observed), best[2])
        return networks.mean(*beliefs).reshape(SIDE, SIDE)

    return denoise


# --- filters --------------------------------------------------------------------------------------


def tuned(filters):
    """Return a method that takes the one of several filters which is best on the solved pair."""

    def method(image, observed, solved):  # noqa: ARG001
        return min(filters, key=lambda f: rmse(f(solved[1]), solved[0]))

    return method


MEDIANS = [lambda y, k=k: median_filter(y, k) for k in (3, 5, 7, 9)]


def total_variation(y, weight, steps=200):
    """Total-variation denoising by Chambolle's dual iteration (2004)."""
    p = np.zeros((2, *y.shape))
    for _ in range(steps):
        divergence = _divergence(p)
        g = np.stack(_gradient(divergence - y / weight))
        p = (p + 0.248 * g) / (1.0 + 0.248 * np.sqrt((g**2).sum(axis=0)))
    return y - weight * _divergence(p)


def _gradient(u):
    gi, gj = np.zeros_like(u), np.zeros_like(u)
    gi[:-1], gj[:, :-1] = u[1:] - u[:-1], u[:, 1:] - u[:, :-1]
    return gi, gj


def _divergence(p):
    d = np.zeros(p.shape[1:])
    d[:-1] += p[0, :-1]
    d[1:] -= p[0, :-1]
    d[:, :-1] += p[1, :, :-1]
    d[:, 1:] -= p[1, :, :-1]
    return d


VARIATIONS = [lambda y, w=w: total_variation(y, w) for w in (20.0, 30.0, 40.0, 60.0, 80.0)]


def non_local_means(y, h, patch=5, reach=10):
    """Non-local means (Buades et al. 2005): patches of 5 x 5 in a window of 21 x 21."""
    padded = np.pad(y, reach, mode="reflect")
    total, weight = np.zeros_like(y), np.zeros_like(y)
    for i in range(2 * reach + 1):
        for j in range(2 * reach + 1):
            other = padded[i : i + SIDE, j : j + SIDE]
            distance = uniform_filter((y - other) ** 2, patch)
            w = np.exp(-np.maximum(distance - 2.0 * NOISE**2, 0.0) / h**2)
            total += w * other
            weight += w
    return total / weight


MEANS = [lambda y, h=h: non_local_means(y, h) for h in (8.0, 12.0, 18.0, 25.0)]


METHODS = {
    "kernel BP": kernel_bp,
    "kernel BP, noise known": kernel_bp_known,
    "discrete BP": discrete_bp,
    "Gaussian BP": gaussian_bp,
    "particle BP": particle_bp,
    "mixture BP": mixture_bp,
    "median filter": tuned(MEDIANS),
    "total variation": tuned(VARIATIONS),
    "non-local means": tuned(MEANS),
}
