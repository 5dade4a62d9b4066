"""The denoising task: sunsets of arcs in a number of grey levels, with noise."""

import numpy as np

SIDE, NOISE = 100, 30.0


def sunset(levels, rng):
    """Image (100, 100) of arcs round a sun below the horizon, grey levels from 5 to 250.

    The sun has a place of its own in each image, so that images share their grey levels only.
    """
    i, j = np.mgrid[:SIDE, :SIDE]
    sun = np.array([SIDE * rng.uniform(0.9, 1.1), SIDE * rng.uniform(0.3, 0.7)])
    distance = np.hypot(i - sun[0], j - sun[1])
    share = (distance - distance.min()) / (distance.max() - distance.min())
    return np.linspace(250.0, 5.0, levels)[np.minimum((levels * share).astype(int), levels - 1)]


def noisy(image, rng):
    """Image with Gaussian noise of standard deviation 30, not clipped."""
    return image + NOISE * rng.normal(size=image.shape)


def rmse(estimate, image):
    """Root mean squared error over pixels."""
    return float(np.sqrt(np.mean((estimate - image) ** 2)))
