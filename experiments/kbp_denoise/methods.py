"""Kernel belief propagation and its baselines for denoising, each tuned without the test image."""

import numpy as np
from images import NOISE, SIDE, rmse
from scipy.ndimage import median_filter, uniform_filter

import kernelbayes as kb

PIXELS = [(i, j) for i in range(SIDE) for j in range(SIDE)]
TEMPLATES = {
    "right": [((i, j), (i, j + 1)) for i in range(SIDE) for j in range(SIDE - 1)],
    "down": [((i, j), (i + 1, j)) for i in range(SIDE - 1) for j in range(SIDE)],
    "seen": [(pixel, ("seen", *pixel)) for pixel in PIXELS],
}

PSEUDO = 1e-2  # count of each pair of bins before any is seen


def evidence(observed):
    """Observed grey levels by node."""
    return {("seen", i, j): float(observed[i, j]) for i, j in PIXELS}


def kernel_bp(image, observed, validation, rank=40, iterations=15):
    """Model learned from one pair of images, stopped where it is best on another pair."""
    pairs = {
        "right": (image[:, :-1].ravel(), image[:, 1:].ravel()),
        "down": (image[:-1].ravel(), image[1:].ravel()),
        "seen": (image.ravel(), observed.ravel()),
    }
    model = kb.KernelBeliefPropagation(
        templates=TEMPLATES, rank=rank, damping=0.0, max_iterations=iterations, rng=0
    ).fit(pairs)
    clean, noisy = validation
    return model.choose_stopping({p: float(clean[p]) for p in PIXELS}, evidence(noisy))


def kernel_bp_denoise(model, observed):
    """Mean of the belief of every pixel, and its most probable grey level."""
    batch = model.query(PIXELS, evidence(observed)).stacked(PIXELS)
    levels, shape = batch.points[:, 0], (SIDE, SIDE)
    mode = levels[np.argmax(batch.weights, axis=1)]
    return (batch.weights @ levels).reshape(shape), mode.reshape(shape)


def discrete_bp(image, observed, validation, states=64, iterations=15):
    """Discrete belief propagation on bins of grey levels, with counted potentials.

    Counts start at a pseudo-count. The likelihood is a Gaussian with the deviation of the noise in
    the training pair: the true family, which the kernel model does not know. The number of bins and
    of iterations are the best on the validation pair.
    """
    best = (np.inf,)
    for bins in (16, 32, states):
        centres, code = _bins(image, bins)
        potentials = []
        for a, b in ((code[:, :-1], code[:, 1:]), (code[:-1], code[1:])):
            counts = np.full((len(centres),) * 2, PSEUDO)
            np.add.at(counts, (a.ravel(), b.ravel()), 1.0)
            P = counts / counts.sum()
            potentials.append(P / np.outer(P.sum(axis=1), P.sum(axis=0)))
        marginal = np.bincount(code.ravel(), minlength=len(centres)) + PSEUDO
        noise = (observed - centres[code]).std()
        setting = centres, marginal / marginal.sum(), potentials, noise
        for k, estimate in enumerate(_discrete(setting, validation[1], iterations), 1):
            error = rmse(estimate, validation[0])
            if error < best[0]:
                best = error, setting, k
    return best[1:]


def discrete_bp_denoise(model, observed):
    """Mean of the belief of every pixel."""
    setting, k = model
    *_, estimate = _discrete(setting, observed, k)
    return estimate


def _bins(image, bins):
    levels = np.unique(image)
    if len(levels) <= bins:
        return levels, np.searchsorted(levels, image)
    edges = np.linspace(levels[0], levels[-1], bins + 1)
    code = np.clip(np.searchsorted(edges, image, side="right") - 1, 0, bins - 1)
    centres = 0.5 * (edges[1:] + edges[:-1])
    return centres, code


def _discrete(setting, observed, iterations):
    """Yield the mean of the beliefs after each iteration of synchronous updates."""
    centres, marginal, (right, down), noise = setting
    local = marginal * np.exp(-0.5 * ((observed[..., None] - centres) / noise) ** 2)
    local /= local.max(axis=-1, keepdims=True)
    q = len(centres)
    shapes = {"left": (SIDE, SIDE - 1, q), "right": (SIDE, SIDE - 1, q)}
    shapes |= {"up": (SIDE - 1, SIDE, q), "down": (SIDE - 1, SIDE, q)}
    m = {name: np.ones(shape) for name, shape in shapes.items()}
    for _ in range(iterations):
        total = local.copy()
        total[:, 1:] *= m["right"]
        total[:, :-1] *= m["left"]
        total[1:] *= m["down"]
        total[:-1] *= m["up"]
        new = {
            "right": (total[:, :-1] / m["left"]) @ right,
            "left": (total[:, 1:] / m["right"]) @ right.T,
            "down": (total[:-1] / m["up"]) @ down,
            "up": (total[1:] / m["down"]) @ down.T,
        }
        m = {k: np.maximum(v / v.max(axis=-1, keepdims=True), 1e-30) for k, v in new.items()}
        belief = local.copy()
        belief[:, 1:] *= m["right"]
        belief[:, :-1] *= m["left"]
        belief[1:] *= m["down"]
        belief[:-1] *= m["up"]
        yield (belief @ centres) / np.maximum(belief.sum(axis=-1), 1e-300)


def tuned(filters, validation):
    """Return the one of several filters that is best on the validation pair."""
    return min(filters, key=lambda f: rmse(f(validation[1]), validation[0]))


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
