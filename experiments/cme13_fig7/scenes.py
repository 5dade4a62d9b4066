"""Streets with buildings, poles and a sky: pictures and depth by a ray caster, and patch features.

The laser scans of the paper cannot be had, so scenes are made up. A scene's number is its seed.
"""

from __future__ import annotations

import numpy as np
from scipy.ndimage import sobel, uniform_filter

ROWS, COLUMNS, FINE = 107, 86, 2  # patches, and pixels along each side of one
VIEW = np.radians(50.0)  # across
EYE, FARTHEST = 1.6, 80.0  # metres above the ground; the sky is where a laser would end
BOXES, POLES = (3, 8), (0, 5)  # fewest and most
PAINTS = np.array([[0.7, 0.4, 0.3], [0.8, 0.75, 0.6], [0.55, 0.55, 0.6], [0.6, 0.3, 0.25]])
GROUNDS = np.array([[0.35, 0.45, 0.25], [0.4, 0.4, 0.42], [0.55, 0.5, 0.4]])
SKY, BARK = np.array([0.65, 0.75, 0.9]), np.array([0.35, 0.28, 0.2])
NOISE = 0.03  # of pixels


def rays(tilt):
    """Directions (rows, columns, 3): right, forward, up; forward is one where the tilt is zero."""
    half = np.tan(VIEW / 2.0)
    u = half * (2.0 * (np.arange(COLUMNS * FINE) + 0.5) / (COLUMNS * FINE) - 1.0)
    high = half * ROWS / COLUMNS
    v = high * (1.0 - 2.0 * (np.arange(ROWS * FINE) + 0.5) / (ROWS * FINE))
    right, up = np.meshgrid(u, v)
    forward, up = np.cos(tilt) - up * np.sin(tilt), np.sin(tilt) + up * np.cos(tilt)
    d = np.stack([right, forward, up], axis=-1)
    return d / np.linalg.norm(d, axis=-1, keepdims=True)


def box(d, centre, half, height, turn):
    """Distance (...) along rays to a building's walls and roof, and the wall's normal (..., 2)."""
    c, s = np.cos(turn), np.sin(turn)
    R = np.array([[c, s], [-s, c]])
    o, e = -R @ centre, d[..., :2] @ R.T
    with np.errstate(divide="ignore"):
        t = np.stack([(-half - o) / e, (half - o) / e])
        z = np.stack([-EYE / d[..., 2], (height - EYE) / d[..., 2]])
    near, far = t.min(axis=0), t.max(axis=0)
    enter = np.maximum(near.max(axis=-1), z.min(axis=0))
    leave = np.minimum(far.min(axis=-1), z.max(axis=0))
    hit = (enter < leave) & (enter > 0.0)
    axis = near.argmax(axis=-1)
    normal = -np.sign(np.take_along_axis(e, axis[..., None], -1)) * np.eye(2)[axis]
    return np.where(hit, enter, np.inf), normal @ R


def pole(d, centre, radius, height):
    """Distance (...) along rays to an upright cylinder."""
    a = np.sum(d[..., :2] ** 2, axis=-1)
    b = d[..., :2] @ centre
    under = b**2 - a * (centre @ centre - radius**2)
    t = (b - np.sqrt(np.maximum(under, 0.0))) / a
    z = EYE + t * d[..., 2]
    return np.where((under > 0.0) & (t > 0.0) & (z > 0.0) & (z < height), t, np.inf)


def scene(number):
    """Picture (214, 172, 3) and log10 depth in metres (107, 86) of one scene."""
    rng = np.random.default_rng(number)
    d = rays(np.radians(rng.uniform(-4.0, 6.0)))
    sun = np.array([np.cos(a := rng.uniform(0.0, 2.0 * np.pi)), np.sin(a)])
    haze, light = rng.uniform(80.0, 250.0), rng.uniform(0.8, 1.1)
    depth = np.where(d[..., 2] < 0.0, EYE / np.maximum(-d[..., 2], 1e-9), np.inf)
    paint = np.broadcast_to(GROUNDS[rng.integers(len(GROUNDS))], d.shape)
    place = d * np.where(np.isfinite(depth), depth, 0.0)[..., None]
    stains = 0.08 * np.sin(3.0 * place[..., 0]) * np.sin(2.0 * place[..., 1])
    colour = np.where(np.isfinite(depth)[..., None], paint + stains[..., None], SKY)
    for _ in range(rng.integers(BOXES[0], BOXES[1] + 1)):
        away = rng.uniform(8.0, 60.0)
        centre = away * np.array([rng.uniform(-0.55, 0.55), 1.0])
        half, height = rng.uniform(2.0, 8.0, 2), rng.uniform(3.0, 14.0)
        centre[1] += half.max()
        t, normal = box(d, centre, half, height, rng.uniform(-0.8, 0.8))
        own = PAINTS[rng.integers(len(PAINTS))] * rng.uniform(0.85, 1.15)
        place = d * np.where(np.isfinite(t), t, 0.0)[..., None]
        along = place[..., 0] * normal[..., 1] - place[..., 1] * normal[..., 0]
        up = place[..., 2] + EYE
        window = (np.sin(2.0 * np.pi * up / 3.0) > 0.3) & (np.sin(2.0 * np.pi * along / 2.5) > 0.4)
        shade = (0.75 + 0.25 * (normal @ sun)) * np.where(window, 0.5, 1.0)
        nearer = t < depth
        colour = np.where(nearer[..., None], own * shade[..., None], colour)
        depth = np.minimum(t, depth)
    for _ in range(rng.integers(POLES[0], POLES[1] + 1)):
        away = rng.uniform(4.0, 25.0)
        centre = away * np.array([rng.uniform(-0.45, 0.45), 1.0])
        t = pole(d, centre, rng.uniform(0.1, 0.4), rng.uniform(3.0, 8.0))
        colour = np.where((t < depth)[..., None], BARK, colour)
        depth = np.minimum(t, depth)
    depth = np.minimum(depth, FARTHEST)
    fade = np.exp(-depth / haze)[..., None]
    colour = light * (fade * colour + (1.0 - fade) * SKY)
    logs = np.log10(depth).reshape(ROWS, FINE, COLUMNS, FINE).mean(axis=(1, 3))
    return np.clip(colour + NOISE * rng.normal(size=colour.shape), 0.0, 1.0), logs


def patch_features(picture):
    """Features (107 * 86, 31) of patches: colour, texture, row, and colours further away."""
    colour = picture.reshape(ROWS, FINE, COLUMNS, FINE, 3).mean(axis=(1, 3))
    grey = picture.mean(axis=-1)
    own = grey.reshape(ROWS, FINE, COLUMNS, FINE).std(axis=(1, 3))
    plain = colour.mean(axis=-1)
    edges = [uniform_filter(np.abs(sobel(plain, axis)), 5) for axis in (0, 1)]
    row = np.broadcast_to(np.arange(ROWS)[:, None] / ROWS, plain.shape)
    found = [*np.moveaxis(colour, -1, 0), uniform_filter(own, 5), *edges, row]
    smooth = uniform_filter(colour, (5, 5, 1))
    for reach in (4, 12):
        padded = np.pad(smooth, ((reach, reach), (reach, reach), (0, 0)), mode="edge")
        for i, j in ((0, 1), (2, 1), (1, 0), (1, 2)):
            moved = padded[i * reach : i * reach + ROWS, j * reach : j * reach + COLUMNS]
            found += list(np.moveaxis(moved - colour, -1, 0))
    return np.stack(found, axis=-1).reshape(ROWS * COLUMNS, -1)
