"""Numbers that must stay as they are while the code is rebuilt.

``python tests/golden.py --write`` writes ``tests/golden.json``; without arguments it prints what
differs from that file and exits with 1 if anything does. ``--noise 1e-14`` disturbs all inputs
by that relative amount and prints what moves by more than a tenth of its tolerance: an entry that
does is chaotic and no good here. Names after the options choose groups.

Only the public interface is used. An entry is a number, or the sum of an array with fixed
coefficients between a half and three halves, so that every element counts. Two values agree if they
differ by at most ``rtol`` times the value plus ``FLOOR`` times the entry's scale, the same sum of
absolute values: where terms cancel, rounding is as large as the terms allow, not the sum.
"""

from __future__ import annotations

import argparse
import functools
import json
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
from scipy import stats

import kernelbayes as kb

FILE = Path(__file__).with_name("golden.json")
RTOL, FLOOR = 1e-8, 1e-11
GROUPS: dict[str, list] = {}  # group -> cases
noise = {"size": 0.0, "seed": 0}


class Entry(float):
    """A number, the size of the terms it is made of, and how exactly it must be met."""

    def __new__(cls, value, scale=None, rtol=RTOL):
        self = super().__new__(cls, value)
        self.scale, self.rtol = abs(float(value)) if scale is None else float(scale), rtol
        # An iteration stops at a distance relative to the terms, whatever these sum up to.
        self.floor = (FLOOR if rtol == RTOL else rtol) * self.scale
        return self

    def off(self, golden):
        """How far away the golden value is, in units of what is allowed."""
        allowed = self.rtol * abs(golden) + self.floor
        if not np.isfinite(golden):
            return 0.0 if np.array_equal(float(self), golden, equal_nan=True) else np.inf
        gap = abs(float(self) - golden)
        return gap / allowed if gap else 0.0


def total(values, rtol=RTOL):
    """Sum of all elements with fixed coefficients."""
    if isinstance(values, Entry):
        return values
    values = np.asarray(values, dtype=np.float64).ravel()
    assert np.all(np.isfinite(values)), "an entry is made of finite numbers"
    assert values.size, "an entry is made of at least one number"
    terms = values * (0.5 + (0.6180339887498949 * np.arange(1, values.size + 1)) % 1.0)
    return Entry(terms.sum(), np.abs(terms).sum(), rtol)


def known(values):
    """Values with a number of their own where NaN says that there is nothing to tell."""
    return np.nan_to_num(np.asarray(values, dtype=np.float64), nan=-7.0)


def case(name, warns=False, rtol=RTOL):
    """Register a function that gives a dict of entries; the group is what stands before the dot.

    ``warns`` ignores NumericalWarnings that are expected. ``rtol`` is for results of iterations
    that stop at a tolerance of their own.
    """

    def register(function):
        @functools.wraps(function)
        def run():
            with warnings.catch_warnings():
                if warns:
                    warnings.simplefilter("ignore", kb.NumericalWarning)
                found = function()
            return {f"{name}.{key}": total(value, rtol) for key, value in found.items()}

        run.name = name
        GROUPS.setdefault(name.split(".")[0], []).append(run)
        return run

    return register


def compute(group):
    """All entries of a group."""
    found = {}
    for run in GROUPS[group]:
        new = run()
        assert not found.keys() & new.keys(), f"two cases make the same entry in {run.name}"
        found |= new
    return found


# --- data ----------------------------------------------------------------------------------------


def noisy(values):
    """Values, disturbed a little if that is asked for, the same ones always in the same way."""
    if not noise["size"]:
        return values
    return values * (1.0 + noise["size"] * np.sin(1e5 * (1 + noise["seed"]) * values))


def normal(seed, *shape):
    return noisy(np.random.default_rng(seed).normal(size=shape))


def uniform(seed, *shape):
    return noisy(np.random.default_rng(seed).uniform(size=shape))


def rotations(seed, n):
    found = np.linalg.qr(np.random.default_rng(seed).normal(size=(n, 3, 3)))[0]
    found = found * np.linalg.det(found)[:, None, None]
    angle = noisy(np.full(n, 1e-3))  # disturbed rotations are rotations
    turn = np.zeros((n, 3, 3))
    turn[:, 0, 0] = turn[:, 1, 1] = np.cos(angle)
    turn[:, 1, 0], turn[:, 0, 1], turn[:, 2, 2] = np.sin(angle), -np.sin(angle), 1.0
    return turn @ found


WORDS = ["abracadabra", "cadabra", "barbara", "rhubarb", "banana", "bandana", "cabana"]
COLOURS = ["red", "blue", "red", "green", "blue", "red", "green", "red"]


# --- kernels -------------------------------------------------------------------------------------


@case("kernels.stationary")
def _():
    X, Y = normal(1, 7, 3), normal(2, 5, 3)
    each = (0.7, 1.1, 2.0)
    kernels = {
        "gaussian": kb.Gaussian(1.3),
        "gaussian_each": kb.Gaussian(each),
        "laplace": kb.Laplace(1.3),
        "laplace_each": kb.Laplace(each),
        "matern_05": kb.Matern(1.3, 0.5),
        "matern_15": kb.Matern(each),
        "matern_25": kb.Matern(1.3, 2.5),
        "matern_08": kb.Matern(1.3, 0.8),
        "rational": kb.RationalQuadratic(1.3, 0.7),
        "periodic": kb.Periodic(1.3),
        "periodic_3": kb.Periodic(1.3, 3.0),
    }
    return {name: k(X, Y) for name, k in kernels.items()} | {
        "diag": [k.diag(X) for k in kernels.values()],
        "one": [kb.Gaussian(1.3)(X, Y)[2, 3]],
    }


@case("kernels.vector")
def _():
    X, Y = normal(3, 7, 3), normal(4, 5, 3)
    cubic = kb.Polynomial(3, 0.5)
    return {
        "linear": kb.Linear()(X, Y),
        "polynomial": kb.Polynomial()(X, Y),
        "cubic": cubic(X, Y),
        "diag": [cubic.diag(X), kb.Linear().diag(X)],
        "features": kb.Linear().features(X),
        "scalars": kb.Gaussian(0.8)(X[:, 0], Y[:, 0]),
        "gram": kb.Matern(1.0)(X),
    }


@case("kernels.structured")
def _():
    A, images = normal(5, 6, 3, 2), uniform(6, 4, 8, 8)
    R, H = rotations(7, 6), uniform(8, 6, 5)
    pyramid = kb.SpatialPyramid(levels=2, bins=4)
    return {
        "delta": kb.Delta()(COLOURS, ["blue", "red", "black"]),
        "trace": kb.Trace()(A, A[:3] + 0.5),
        "rotation": kb.Rotation(0.9)(R, R[:3]),
        "histogram": kb.HistogramIntersection()(H, H[::2]),
        "pyramid": pyramid(images, images[:2]),
        "pyramid_diag": pyramid.diag(images),
        "spectrum": kb.Spectrum(2)(WORDS),
        "spectrum_normalized": kb.Spectrum(3, normalized=True)(WORDS, WORDS[:3]),
        "custom": kb.Custom(lambda X, Y: np.minimum(X[:, None], Y[None]) ** 2)(H[:, 0], H[:, 1]),
    }


@case("kernels.algebra")
def _():
    X, Y = normal(9, 7, 3), normal(10, 5, 3)
    a, b = kb.Gaussian(1.1), kb.Laplace(2.0)
    parts = kb.Parts([(slice(0, 2), a), (2, b)])
    frame = pd.DataFrame({"size": X[:, 0], "colour": [*COLOURS[:6], "pink"]})
    nested = 0.5 * (a + b) * kb.Matern(1.0) + kb.Linear()
    return {
        "sum": (a + b)(X, Y),
        "product": (a * b)(X, Y),
        "scaled": (2.5 * a)(X, Y),
        "nested": nested(X, Y),
        "nested_diag": nested.diag(X),
        "parts": parts(X, Y),
        "parts_frame": kb.Parts({"size": a, "colour": kb.Delta()})(frame, frame[:4]),
        "parts_mapping": kb.Parts({"u": a, "v": b})({"u": X[:, :2], "v": X[:, 2]}),
        "warped": kb.Warped(a)(10 * X, 10 * Y),
        "warped_log": kb.Warped(b, "log", (0.5, 1.0, 2.0))(X, Y),
    }


@case("kernels.median")
def _():
    X = normal(11, 31, 2) * (1.0, 5.0)
    kinds = kb.Gaussian, kb.Laplace, kb.Matern, kb.RationalQuadratic, kb.Periodic
    return {kind.__name__.lower(): [kind.median(X).bandwidth] for kind in kinds} | {
        "rotation": [kb.Rotation.median(rotations(12, 15)).bandwidth],
        "scale": [kb.Gaussian.median(X, scale=0.3).bandwidth],
        "per_dimension": kb.Gaussian.median(X, per_dimension=True).bandwidth,
        "matern_nu": kb.Matern.median(X, nu=2.5, per_dimension=True)(X[:5]),
        "warped": kb.Warped.median(X)(X[:5]),
        "warped_log": kb.Warped.median(X, "log", 0.5)(X[:5]),
    }


@case("kernels.median_of_few", warns=True)
def _():
    X = np.zeros((9, 1))
    X[:3] = normal(13, 3, 1)
    return {
        "most_coincide": [kb.Gaussian.median(X).bandwidth],
        "all_coincide": [kb.Laplace.median(np.ones((5, 2))).bandwidth],
    }


# --- finite features -----------------------------------------------------------------------------


@case("features.nystrom")
def _():
    X, new = normal(20, 40, 2), normal(21, 6, 2)
    k = kb.Gaussian(1.2)
    found = {}
    for landmarks in ("uniform", "kmeans++", "rpcholesky"):
        approximation = kb.nystrom(k, X, 8, 0, landmarks=landmarks)
        name = landmarks.rstrip("+")
        found[name] = approximation(new)
        found[name + "_error"] = [approximation.error]
    features = kb.nystrom(k, X, 8, 0)
    return found | {"diag": features.diag(new), "tol": kb.nystrom(k, X, tol=1e-2, rng=0)(new)}


@case("features.fourier")
def _():
    X = normal(22, 6, 3)
    kernels = {
        "gaussian": kb.Gaussian(1.2),
        "laplace": kb.Laplace(1.2),
        "matern": kb.Matern(1.2, 2.5),
        "rational": kb.RationalQuadratic(1.2, 0.8),
    }
    return {name: kb.fourier(k, 3, 20, 0).features(X) for name, k in kernels.items()}


@case("features.cholesky")
def _():
    X, new = normal(23, 40, 2), normal(24, 6, 2)
    k = kb.Matern(1.2)
    random = kb.pivoted_cholesky(k, X, 9, rng=0)
    toleranced = kb.pivoted_cholesky(k, X, tol=0.05, method="greedy")
    return {
        "random": random(new),
        "random_error": [random.error],
        "greedy": kb.pivoted_cholesky(k, X, 9, method="greedy")(new),
        "toleranced": toleranced(new),
        "toleranced_rank": [toleranced.rank],
        "strings": kb.pivoted_cholesky(kb.Spectrum(2), WORDS, 4, method="greedy")(WORDS),
    }


@case("features.algebra")
def _():
    X = normal(25, 30, 2)
    a, b = kb.nystrom(kb.Gaussian(1.0), X, 5, 0), kb.fourier(kb.Laplace(1.0), 2, 6, 1)
    return {"sum": (a + 2.0 * b)(X[:5]), "product": (a * b)(X[:5])}


# --- embeddings ----------------------------------------------------------------------------------


def signed(seed=30, n=40, d=2, kernel=None):
    """Embedding with some negative weights."""
    X = normal(seed, n, d)
    w = uniform(seed + 1000, n) - 0.2
    return kb.embed(X, kernel or kb.Gaussian(0.8), w / w.sum())


def batch(seed=31, m=3, n=40, d=2, kernel=None):
    X = normal(seed, n, d)
    w = uniform(seed + 1000, m, n) - 0.2
    return kb.Batch(X, w / w.sum(axis=1, keepdims=True), kernel or kb.Gaussian(0.8))


@case("embedding.one")
def _():
    mu, nu = signed(), kb.embed(normal(32, 25, 2) + 0.3, kb.Gaussian(0.8))
    new = normal(33, 6, 2)
    return {
        "values": mu(new),
        "witness": (mu - nu)(new),
        "algebra": (0.5 * mu + 2.0 * nu).normalized()(new),
        "inner": [mu.inner(nu)],
        "norm": [mu.norm(), nu.norm()],
        "mmd": [kb.mmd(mu, nu)],
        "mmd2": [kb.mmd2(mu, nu)],
        "unbiased": [kb.mmd2(kb.embed(mu.points, mu.kernel), nu, unbiased=True)],
        "mass": [(3.0 * mu).mass],
        "ess": [mu.ess],
        "negative": [mu.negative],
        "valid": mu.valid()(new),
    }


@case("embedding.many")
def _():
    many, nu = batch(), signed(30)
    new = normal(34, 6, 2)
    return {
        "values": many(new),
        "inner": many.inner(nu),
        "norm": many.norm(),
        "mmd": kb.mmd(many, nu),
        "ess": many.ess,
        "item": many[1](new),
        "slice": many[1:].normalized()(new),
    }


@case("embedding.kinds")
def _():
    X = normal(35, 30, 2)
    low = kb.nystrom(kb.Gaussian(0.8), X, 10, 0)
    mu, nu = kb.embed(X, low), kb.embed(X[:10] + 0.2, low)
    words = kb.embed(WORDS, kb.Spectrum(2), noisy(np.arange(1.0, 8.0)))
    colours = kb.embed(COLOURS, kb.Delta())
    return {
        "low_rank": mu(X[:4]),
        "low_rank_mmd": [kb.mmd(mu, nu)],
        "low_rank_features": [kb.embed(X, low).inner(nu)],
        "strings": words(["banda", "cab"]),
        "strings_norm": [words.norm()],
        "categories": colours(["red", "blue", "black"]),
    }


@case("embedding.gaussian")
def _():
    k = kb.Gaussian(0.8)
    root = normal(36, 2, 2)
    g = kb.GaussianEmbedding(normal(37, 2), root @ root.T + 0.1 * np.eye(2), k)
    h = kb.GaussianEmbedding(np.zeros(2), np.eye(2), k)
    mu = signed()
    return {
        "values": g(normal(38, 6, 2)),
        "norm": [g.norm()],
        "inner": [g.inner(h), g.inner(mu)],
        "mmd": [kb.mmd(g, h), kb.mmd(mu, g)],
        "mmd2": [kb.mmd2(g, mu)],
    }


# --- decoding ------------------------------------------------------------------------------------

VALID = [True, False, "projected", "rearranged", "clipped", "raw"]


@case("decode.moments")
def _():
    mu, many = signed(), batch()
    f = kb.embed(normal(40, 5, 2), mu.kernel, normal(41, 5))
    return {
        "mean": mu.mean(),
        "cov": mu.cov(),
        "moments": [mu.moment(k) for k in (1, 2, 3)],
        "expect": [mu.expect(lambda X: np.sin(X[:, 0]) * X[:, 1])],
        "expect_array": [mu.expect(np.cos(mu.points[:, 0]))],
        "expect_bound": [mu.expect_bound(f, signed(42)), mu.expect_bound(f, 0.3)],
        "batch_mean": many.mean(),
        "batch_cov": many.cov(),
        "batch_moment": many.moment(2),
        "batch_expect": many.expect(lambda X: X[:, 0] ** 3),
        "positive_cov": kb.embed(normal(43, 20, 3), kb.Linear()).cov(),
    }


def _valid(ask, options=VALID):
    """Entries of a question on one embedding and on a batch, for every way to be valid."""
    mu, many = signed(), batch()
    both = {v: np.r_[np.ravel(ask(mu, v)), np.ravel(ask(many, v))] for v in options}
    return {str(v): found for v, found in both.items()}


PROBABLE = [True, False, "projected", "clipped", "raw"]


@case("decode.prob")
def _():
    mu, box = signed(), (np.array([-0.7, -0.5]), np.array([0.9, 1.1]))
    found = _valid(lambda mu, v: mu.prob(box, valid=v), PROBABLE)
    return found | {"predicate": [mu.prob(lambda X: X[:, 0] > X[:, 1])]}


@case("decode.cdf")
def _():
    line = signed(d=1)
    found = {
        "scalar": [line.cdf([0.3, 0.9], valid=v) for v in VALID],
        "scalar_prob": [line.prob((-0.3, 0.9), valid=v) for v in VALID],
    }
    return found | _valid(lambda mu, v: mu.cdf([[0.31, 0.42], [1.0, -0.3]], valid=v), PROBABLE)


@case("decode.quantile")
def _():
    return _valid(lambda mu, v: mu.quantile([0.1, 0.47, 0.9], valid=v))


@case("decode.interval")
def _():
    found = _valid(lambda mu, v: mu.interval(0.83, valid=v))
    return found | {"highest": [*signed().interval(0.83, "highest"), *batch()[1].interval(0.5)]}


@case("decode.density")
def _():
    new = normal(44, 5, 2)
    found = _valid(lambda mu, v: mu.density(new, valid=v), PROBABLE)
    mu = signed()
    return found | {
        "bandwidth": mu.density(new, 0.4),
        "bandwidths": mu.density(new, (0.4, 0.7)),
    }


@case("decode.peaks", rtol=1e-6)
def _():
    return {
        "mode": signed().mode(),
        "mode_bandwidth": signed().mode(starts=3, bandwidth=0.5),
        "mode_batch": batch().mode(),
        "mode_weight": [signed().mode(by="weight"), *batch().mode(by="weight")],
        "gaussian": signed().preimage(),
        "gaussian_batch": batch().preimage(),
        "matern": signed(kernel=kb.Matern(1.0)).preimage(),
        "rational": batch(kernel=kb.RationalQuadratic(1.0)).preimage(),
        "periodic": signed(kernel=kb.Periodic(1.0)).preimage(),
        "laplace": signed(kernel=kb.Laplace(1.0)).preimage(),
        "rotation": kb.embed(rotations(45, 10), kb.Rotation(1.0)).preimage(),
        "candidates": signed().preimage(normal(46, 20, 2)),
    }


@case("decode.categories")
def _():
    w = noisy(np.array([0.3, 0.2, 0.1, 0.1, 0.05, 0.05, 0.1, 0.1]))
    mu = kb.embed(COLOURS, kb.Delta(), w)
    turned = kb.embed(rotations(47, 12), kb.Rotation(1.0), uniform(48, 12))
    around = kb.embed(uniform(49, 12) * 0.9, kb.Periodic(0.5, 1.0), uniform(50, 12))
    return {
        "prob": [mu.prob(lambda X: np.array([x == "red" for x in X]))],
        "mode": [str(mu.mode(by="weight")) == "red", str(mu.preimage()) == "red"],
        "rotation_mean": turned.mean(),
        "periodic_mean": around.mean(),
    }


@case("decode.mixture", rtol=1e-5)
def _():
    X = np.concatenate([0.5 * normal(51, 25, 2) - 2.0, 0.5 * normal(52, 25, 2) + 2.0])
    mu = kb.embed(X, kb.Gaussian(1.0))
    new = normal(53, 5, 2)
    found = {}
    for covariance in ("full", "diagonal"):
        mixture = mu.mixture(2, rng=0, covariance=covariance, starts=2)
        order = np.argsort(mixture.means[:, 0])
        found[covariance] = np.r_[
            mixture.weights[order],
            mixture.means[order].ravel(),
            mixture.covariances[order].ravel(),
        ]
        found[covariance + "_density"] = mixture.density(new)
    return found | {"distance": [mu.mixture(1, rng=0).distance]}


@case("decode.sample")
def _():
    mu, many = signed(), batch()
    one = kb.Mixture(np.array([1.0]), normal(54, 1, 2), np.eye(2)[None], 0.0)
    return {
        "herding": mu.sample(9),
        "iid": mu.sample(9, 0, "iid", 0.0),
        # In one dimension: in more the noise is turned by eigenvectors, whose signs are free.
        "smooth": signed(d=1).sample(9, 0, "iid"),
        "smooth_given": signed(d=1).sample(9, 0, "iid", 0.3),
        "batch": many.sample(5),
        "batch_iid": many.sample(5, 0, "iid", 0.0),
        "mixture": one.sample(5, 0),
    }


@case("decode.frame")
def _():
    mu = kb.embed(pd.DataFrame({"a": normal(55, 8), "b": normal(56, 8)}), kb.Gaussian(1.0))
    return {"one": mu.to_frame()[["b", "a", "weight"]], "batch": batch(n=8).to_frame()}


@case("decode.low_rank")
def _():
    X = normal(57, 60, 2)
    w = uniform(58, 60) - 0.2
    mu = kb.embed(X, kb.nystrom(kb.Gaussian(1.0), X, 12, 0), w / w.sum())
    new = normal(59, 5, 2)
    return {
        "mean": mu.mean(),
        "cov": mu.cov(),
        "interval": mu.interval(0.8),
        "density": mu.density(new),
        "sample": mu.sample(5),
    }


# --- herding -------------------------------------------------------------------------------------


@case("herding.herd")
def _():
    mu = signed(60, 60)
    k = kb.Gaussian(1.0)
    return {
        "points": kb.herd(mu, 8),
        "candidates": kb.herd(mu, 8, normal(61, 30, 2)),
        "thin": kb.thin(normal(62, 60, 2), 7, k),
        "thin_one_sweep": kb.thin(normal(62, 60, 2), 7, kb.Matern(1.0), sweeps=1),
        "low_rank": kb.herd(kb.embed(normal(63, 60, 2), kb.fourier(k, 2, 30, 0)), 6),
    }


@case("herding.compress")
def _():
    mu = signed(64, 60)
    found = {}
    for method in ("herding", "exchange", "fully-corrective", "line-search"):
        small = kb.compress(mu, 8, method=method)
        found[method] = np.c_[small.points, small.weights]
        found[method + "_errors"] = small.errors
    return found


@case("herding.more")
def _():
    mu = signed(64, 60)
    small = kb.compress(mu, 8, normal(65, 30, 2), method="exchange")
    corrective = kb.compress(mu, 6, method="fully-corrective")
    return {
        "candidates": [small.error, *small.indices, small.distinct],
        "copies": kb.compress(mu, 5).copies(20),
        "embedding": corrective.embedding(normal(66, 4, 2)),
    }


@case("herding.anywhere", rtol=1e-5)
def _():
    gaussian = kb.GaussianEmbedding(np.zeros(2), np.diag([1.0, 0.5]), kb.Gaussian(0.7))
    return {
        "errors": kb.compress(signed(64, 60), 4, anywhere=True).errors,
        "gaussian": kb.compress(gaussian, 5, normal(67, 40, 2)).errors,
        "gaussian_anywhere": kb.compress(gaussian, 4).errors,
    }


@case("herding.resample")
def _():
    w = uniform(68, 50) ** 6
    mu = kb.embed(normal(69, 50, 2), kb.Gaussian(0.9), w / w.sum())
    herded, multinomial = kb.resample(mu), kb.resample(mu, 20, method="multinomial", rng=0)
    picked, kept = kb.resample(mu, 40, picks=10), kb.resample(mu, threshold=0.01)
    return {
        "herding": herded.embedding.points,
        "error": [herded.error],
        "multinomial": [*multinomial.indices, multinomial.error],
        "picks": picked.embedding.mean(),
        "picks_error": [picked.error],
        "kept": [kept.resampled, kept.error],
        "exchange": kb.resample(mu, 12, method="exchange").embedding.mean(),
    }


# --- rules ---------------------------------------------------------------------------------------


def pairs(seed=70, n=60):
    """Observed x (n, 2) and hidden z (n, 2)."""
    z = normal(seed, n, 2)
    return np.c_[np.sin(z[:, 0]), z[:, 1]] + 0.4 * normal(seed + 1000, n, 2), z


def prior(seed=71, n=40):
    return 0.6 * normal(seed, n, 2) + (0.4, -0.2)


NEW = np.array([[0.2, -0.4], [0.9, 1.1], [-1.2, 0.3]])


@case("rules.conditional")
def _():
    x, z = pairs()
    cme = kb.ConditionalEmbedding().fit(x, z)
    given = kb.ConditionalEmbedding(kb.Matern(1.0), kb.Gaussian(0.7), 0.01).fit(x, z)
    mu = cme(NEW)
    ridges, errors = cme.loo_errors([1e-4, 1e-2, 1.0])
    return {
        "loo_weights": mu.weights,
        "loo_mean": mu.mean(),
        "loo_ridge": [cme.ridge_],
        "loo_errors": [*np.ravel(ridges), *np.ravel(errors)],
        "bandwidths": np.hstack([cme.kernel_x_.bandwidth, cme.kernel_z_.bandwidth]),
        "given_weights": given(NEW).weights,
        "given_one": given(NEW[0])(z[:5]),
        "given_interval": given(NEW).interval(0.8),
        "support": [mu.diagnostics.support, given(NEW).diagnostics.support],
        "ess": [mu.diagnostics.ess, given(NEW).diagnostics.ess],
    }


@case("rules.conditional_kinds")
def _():
    x, z = pairs()
    kernels = kb.nystrom(kb.Gaussian(1.0), x, 15, 0), kb.nystrom(kb.Gaussian(1.0), z, 15, 1)
    low, loo = (kb.ConditionalEmbedding(*kernels, r).fit(x, z) for r in (0.01, "loo"))
    colours = kb.ConditionalEmbedding(ridge=1e-3).fit(COLOURS, noisy(np.arange(1.0, 9.0)))
    scalar = kb.ConditionalEmbedding(ridge=0.01).fit(x[:, 0], z[:, 0])
    return {
        "low_rank": low(NEW).mean(),
        "low_rank_values": low(NEW)(z[:5]),
        "low_rank_loo": [loo.ridge_, *loo(NEW).mean().ravel()],
        "categories": colours(["red", "green"]).mean(),
        "scalar": scalar(NEW[:, 0]).cov(),
    }


@case("rules.sum_chain")
def _():
    x, z = pairs()
    cme = kb.ConditionalEmbedding(kb.Gaussian(1.0), kb.Gaussian(0.9), 0.01).fit(z, x)
    u = prior()
    weighted = signed(72, 30, kernel=kb.Gaussian(1.0))
    gaussian = kb.GaussianEmbedding(np.zeros(2), 0.5 * np.eye(2), kb.Gaussian(1.0))
    found = {
        "sum": kb.sum_rule(cme, u).weights,
        "sum_marginal": kb.sum_rule(cme).weights,
        "sum_weighted": kb.sum_rule(cme, weighted).weights,
        "sum_gaussian": kb.sum_rule(cme, gaussian).weights,
        "sum_b": kb.sum_rule(cme, u, form="b")(NEW),
    }
    for form in "ab":
        joint = kb.chain_rule(cme, u, form=form)
        both = [joint.marginal(part)(NEW) for part in "xz"]
        found[f"chain_{form}"] = [joint.norm(), joint.mass]
        found[f"chain_{form}_marginals"] = both
    return found


@case("rules.bayes")
def _():
    x, z = pairs()
    cme = kb.ConditionalEmbedding(kb.Gaussian(1.0), kb.Gaussian(0.9), 0.01).fit(z, x)
    u, found = prior(), {}
    for method in ("importance", "original"):
        for form in "ab":
            rule = kb.bayes_rule(cme, u, method, form, ridge=0.01)
            found[f"{method}_{form}"] = rule(NEW)(z[:6])
            found[f"{method}_{form}_mean"] = rule(NEW).mean()
        loo = kb.bayes_rule(cme, u, method)
        found[f"{method}_loo"] = loo(NEW).mean()
        found[f"{method}_marginal"] = kb.bayes_rule(cme, None, method, ridge=0.01)(NEW).mean()
    ratio = kb.density_ratio(u, z, kb.Gaussian(1.0), "rulsif", 0.1)
    found["ratio"] = kb.bayes_rule(cme, u, ratio=ratio, ridge=0.01)(NEW).mean()
    weighted = signed(73, 30, kernel=kb.Gaussian(1.0))
    found["weighted"] = kb.bayes_rule(cme, weighted, ridge=0.01)(NEW).mean()
    return found


@case("rules.bayes_low_rank")
def _():
    x, z = pairs()
    kernels = kb.nystrom(kb.Gaussian(1.0), z, 15, 0), kb.nystrom(kb.Gaussian(0.9), x, 15, 1)
    cme = kb.ConditionalEmbedding(*kernels, 0.01).fit(z, x)
    return {
        method: kb.bayes_rule(cme, prior(), method, ridge=0.01)(NEW).mean()
        for method in ("importance", "original")
    } | {"sum": kb.sum_rule(cme, prior())(NEW), "chain": [kb.chain_rule(cme, prior()).norm()]}


@case("rules.ratio")
def _():
    _, z = pairs()
    u, k, found = prior(), kb.Gaussian(0.8), {}
    for method in ("kulsif", "rulsif", "ulsif"):
        for ridge in (0.05, "loo"):
            ratio = kb.density_ratio(u, z, k, method, ridge, rng=0)
            name = method if ridge == "loo" else method + "_given"
            found[name] = ratio.at_denominator
            found[name + "_new"] = [*ratio.ratio(NEW), ratio.ridge]
    found["default_kernel"] = kb.density_ratio(u, z).ratio(NEW)
    found["relative"] = kb.density_ratio(u, z, k, "rulsif", 0.05, alpha=0.5)(NEW)
    found["centres"] = kb.density_ratio(u, z, k, "ulsif", 0.05, centres=u[:10]).at_denominator
    found["embedding"] = kb.density_ratio(kb.embed(u, k), z, ridge=0.05).at_denominator
    return found


@case("rules.gaussian_prior")
def _():
    x, z = pairs()
    k = kb.Gaussian(1.0)
    g = kb.GaussianEmbedding(np.array([0.3, -0.1]), 0.4 * np.eye(2), k)
    cme = kb.ConditionalEmbedding(k, k, 0.01).fit(z, x)
    tuned = kb.tune(kb.KernelBayesRule(kernel_z=k), x, z, prior=g, budget=2, rng=0)
    return {
        "ratio": kb.density_ratio(g, z).at_denominator,
        "importance": kb.bayes_rule(cme, g)(NEW).mean(),
        "original": kb.bayes_rule(cme, g, "original", ridge=0.01)(NEW).mean(),
        "estimator": kb.KernelBayesRule(kernel_z=k).fit(x, z, prior=g).predict(NEW),
        "tuned": tuned.predict(NEW),
    }


@case("rules.rescued", warns=True)
def _():
    x, z = pairs()
    rule = kb.KernelBayesRule(normalize=True).fit(x, z)
    return {
        "no_mass": kb.KernelBayesRule().fit(x, z, prior=z + 100.0).predict(NEW),
        "far": rule.predict(NEW + 1000.0),
        "unseen": kb.ConditionalEmbedding(ridge=0.01).fit(x, z)(NEW + 1000.0).mean(),
    }


@case("rules.kmm", rtol=1e-6)
def _():
    _, z = pairs()
    ratio = kb.density_ratio(prior(), z, kb.Gaussian(0.8), "kmm", 0.05, bound=5.0)
    return {"at_denominator": ratio.at_denominator, "new": ratio.ratio(NEW)}


@case("rules.estimator", warns=True)
def _():
    x, z = pairs()
    u, found = prior(), {}
    fitted = kb.KernelBayesRule().fit(x, z)
    found["defaults"] = fitted.predict(NEW)
    found["defaults_score"] = [fitted.score(*pairs(74, 20))]
    found["defaults_ridge"] = [fitted.ridge_]
    tilted = kb.KernelBayesRule().fit(x, z, prior=u)
    found["prior"] = tilted.predict(NEW)
    found["prior_ridges"] = [tilted.prior_ridge_, tilted.ridge_]
    found["prior_weights"] = tilted.posterior(NEW).weights
    found["prior_interval"] = tilted.posterior(NEW).interval(0.9)
    found["prior_later"] = fitted.posterior(NEW, prior=u + 0.1).mean()
    found["with_prior"] = fitted.with_prior(signed(75, 30).normalized()).predict(NEW)
    options = {
        "rank": {"rank": 12, "rng": 0},
        "original": {"method": "original"},
        "original_rank": {"method": "original", "rank": 12, "rng": 0},
        "given": {"prior_ridge": 0.01, "ridge": 0.02, "kernel_x": kb.Laplace(2.0)},
        "form_a": {"form": "a", "ridge": 0.02},
        "rulsif": {"ratio": "rulsif"},
        "normalize": {"normalize": True},
    }
    for name, chosen in options.items():
        found[name] = kb.KernelBayesRule(**chosen).fit(x, z, prior=u).predict(NEW)
    return found


@case("rules.calibrate")
def _():
    x, z = pairs()
    cme = kb.ConditionalEmbedding(ridge=0.01).fit(x, z)
    rule = kb.KernelBayesRule().fit(x, z, prior=prior())
    found = {}
    for name, model, mu in (("cme", cme, cme(NEW)), ("rule", rule, rule.posterior(NEW))):
        calibration = kb.calibrate(model)
        found[name] = calibration.pit
        found[name + "_weights"] = calibration.weights
        found[name + "_levels"] = calibration.levels([0.1, 0.5, 0.83])
        found[name + "_interval"] = calibration.interval(mu, 0.8)
        found[name + "_quantile"] = calibration.quantile(mu[0], [0.2, 0.7])
    return found


def scores(model, rtol=1e-6):
    """What tuning found; ridges that are tried may be so small that they magnify rounding."""
    found = [row["score"] for row in model.tuning_]
    return total([score for score in found if np.isfinite(score)], rtol)


@case("rules.tune")
def _():
    x, z = pairs()
    cme = kb.tune(kb.ConditionalEmbedding(), x, z, budget=6)
    found = {
        "cme": np.hstack([cme.kernel_x_.bandwidth, cme.ridge_]),
        "cme_scores": scores(cme),
        "cme_mean": cme(NEW).mean(),
    }
    for criterion in ("combined", "predictive", "rkhs", "marginal"):
        rule = kb.tune(
            kb.KernelBayesRule(), x, z, prior=prior(), criterion=criterion, budget=4, rng=0
        )
        found[criterion] = [rule.prior_ridge_, rule.ridge_]
        found[criterion + "_scores"] = scores(rule)
        found[criterion + "_mean"] = rule.predict(NEW)
    original = kb.tune(kb.KernelBayesRule(method="original"), x, z, prior=prior(), budget=3, rng=0)
    return found | {"original_mean": original.predict(NEW), "original_scores": scores(original)}


# --- filters -------------------------------------------------------------------------------------


def circling(seed, length):
    angle = np.cumsum(0.3 + 0.1 * normal(seed, length))
    z = np.column_stack([np.cos(angle), np.sin(angle)])
    return z + 0.3 * normal(seed + 1000, length, 2), z


def holes(seed=81, length=12):
    """Observations with a missing and two partly missing rows."""
    x = circling(seed, length)[0]
    x[3], x[5, 1], x[7, 0] = np.nan, np.nan, np.nan
    return x


RIDGES = {"prior_ridge": 1e-3, "transition_ridge": 1e-3, "ridge": 1e-2, "back_ridge": 0.1, "rng": 0}


def named(x, z, u=None):
    """Settings that leave nothing to choose: ridges, and kernels at the median distance."""
    whole = np.where(np.isnan(x), np.nanmean(x, axis=0), x)
    kernels = {"kernel_x": kb.Gaussian.median(whole), "kernel_z": kb.Gaussian.median(z)}
    return kernels | ({} if u is None else {"kernel_u": kb.Gaussian.median(u)}) | RIDGES


def follow(model, x, **options):
    """Entries of what every filter answers."""
    beliefs = model.filter(x, **options)
    return {
        "filter": beliefs.mean(),
        "weights": beliefs.weights,
        "smooth": model.smooth(x, **options).mean(),
    }


@functools.cache
def tracker(**options):
    return kb.KernelBayesFilter(**options).fit(*circling(80, 60))


@case("filters.defaults", warns=True)
def _():
    model, x = tracker(rng=0), holes()
    beliefs, forecast = model.filter(x), model.forecast(x, 3)
    frame = beliefs.to_frame(0.8)
    return follow(model, x) | {
        "cov": beliefs.cov(),
        "interval": beliefs.interval(0.8),
        "info": known([beliefs.info.mass, beliefs.info.support, beliefs.info.ess]),
        "frame": known(frame.select_dtypes("number")),
        "forecast": forecast.mean(),
        "forecast_observed": forecast.observations.mean(),
        "item": beliefs[4].mean(),
        "ridges": [model.prior_ridge_, model.transition_ridge_, model.ridge_],
        "lag": model.smooth(x, lag=2).mean(),
    }


@case("filters.step")
def _():
    model, found = tracker(**named(*circling(80, 60))), []
    state = model.start(lag=2)
    for x in holes():
        state, info = model.step(state, x)
        found.append(known([*state.belief.mean(), info.support, info.ess, info.mass]))
    jumped, _ = model.step(state, NEW[0], steps=3)
    told, _ = model.step(model.start(circling(80, 60)[1][:10]), NEW[1])
    return {
        "loop": found,
        "smoothed": model.smoothed(state).mean(),
        "jumped": jumped.belief.mean(),
        "prior": told.belief.mean(),
        "gaps": model.filter(holes(), gaps=[1, 1, 2, 1, 1, 3, 1, 1, 1, 1, 1, 1]).mean(),
    }


@case("filters.options")
def _():
    ridges = named(*circling(80, 60))
    options = {
        "operator": ridges,
        "shift": ridges | {"transition": "shift"},
        "original": ridges | {"method": "original", "ridge": 1e-3},
        "original_shift": ridges | {"method": "original", "transition": "shift", "ridge": 1e-3},
        "rank": ridges | {"rank": 20},
        "original_rank": ridges | {"method": "original", "rank": 20, "ridge": 1e-3},
        "shift_rank": ridges | {"transition": "shift", "rank": 20},
        "kernels": ridges | {"kernel_x": kb.Laplace(2.0), "kernel_z": kb.Matern(1.0)},
        "back_ridge": ridges | {"back_ridge": 0.01},
    }
    found = {}
    for name, chosen in options.items():
        entries = follow(kb.KernelBayesFilter(**chosen).fit(*circling(80, 60)), holes())
        found |= {f"{name}_{key}": entries[key] for key in ("filter", "smooth")}
    return found


@case("filters.initial")
def _():
    x, z = circling(80, 60)
    found = {}
    for initial in ("uniform", "observation", z[:7]):
        model = kb.KernelBayesFilter(initial=initial, **named(x, z)).fit(x, z)
        name = initial if isinstance(initial, str) else "points"
        found[name] = model.filter(holes()[:3]).mean()
    return found


@case("filters.controls")
def _():
    u = normal(82, 60, 1)
    z = np.zeros((60, 1))
    for t in range(1, 60):
        z[t] = 0.7 * z[t - 1] + u[t]
    x = z + 0.3 * normal(83, 60, 1)
    found = {}
    for method in ("importance", "original"):
        model = kb.KernelBayesFilter(method=method, **named(x, z, u[1:])).fit(x, z, u)
        entries = follow(model, x[20:30] + 0.1, controls=u[20:30])
        found |= {f"{method}_{key}": value for key, value in entries.items()}
    ahead = model.forecast(x[20:30], 2, controls=u[20:32])
    state, _ = model.step(model.start(), x[3])
    state, _ = model.step(state, x[4], control=u[4])
    given = kb.KernelBayesFilter(kernel_u=kb.Gaussian(0.5), rng=0).fit(x, z, u[1:])
    return found | {
        "forecast": ahead.mean(),
        "step": state.belief.mean(),
        "kernel_u": given.filter(x[20:30], controls=u[21:30]).mean(),
    }


@case("filters.sequences", warns=True)
def _():
    (x1, z1), (x2, z2) = circling(84, 30), circling(85, 35)
    x1[4] = np.nan
    x2[7, 1] = np.nan
    given = named(np.vstack([x1, x2]), np.vstack([z1, z2]))
    model = kb.KernelBayesFilter(**given).fit([x1, x2], [z1, z2])
    shift = kb.KernelBayesFilter(transition="shift", **given).fit([x1, x2], [z1, z2])
    many = model.filter([holes(81), holes(86, 8)])
    return {
        "first": many[0].mean(),
        "second": many[1].mean(),
        "smooth": [b.mean().sum(axis=0) for b in model.smooth([holes(81), holes(86, 8)])],
        "shift": shift.filter(holes()).mean(),
        "far": model.filter(50.0 + circling(81, 4)[0]).mean(),
    }


@case("filters.categories")
def _():
    rng = np.random.default_rng(87)
    rooms = [COLOURS[i % 8] for i in range(48)]
    x = noisy(np.array([len(room) for room in rooms]) + 0.3 * rng.normal(size=48))
    given = named(x, x) | {"kernel_z": kb.Delta()}
    model = kb.KernelBayesFilter(**given).fit(x, rooms)
    beliefs = model.filter(x[:6] + 0.1)
    return {
        "weights": beliefs.weights,
        "frame": known(beliefs.to_frame().select_dtypes("number")),
    }


@case("filters.partly")
def _():
    x, z = circling(80, 60)
    kernels = {
        "each": kb.Gaussian((1.0, 1.5)),
        "sum": kb.Gaussian(1.0) + 0.5 * kb.Matern(1.0),
        "product": kb.Laplace(2.0) * kb.RationalQuadratic(1.0),
        "warped": kb.Warped(kb.Gaussian(1.0)),
        "periodic": kb.Periodic(1.0, (6.0, 7.0)),
        "parts": kb.Parts([(0, kb.Gaussian(1.0)), (1, kb.Laplace(1.5))]),
        "linear": kb.Linear() + kb.Gaussian(1.0),
    }
    given = named(x, z)
    models = {
        name: kb.KernelBayesFilter(**(given | {"kernel_x": kernel})).fit(x, z)
        for name, kernel in kernels.items()
    }
    return {name: model.filter(holes()).mean() for name, model in models.items()}


@case("filters.mixed")
def _():
    x, z = circling(80, 60)
    seen = {"place": x, "colour": [COLOURS[int(4 * abs(v))] for v in z[:, 0]]}
    kernel = kb.Parts({"place": kb.Gaussian(1.0), "colour": kb.Delta()})
    given = named(x, z)
    mixed = kb.KernelBayesFilter(**(given | {"kernel_x": kernel})).fit(seen, z)
    frames = [pd.DataFrame(a, columns=names) for a, names in ((x, ["a", "b"]), (z, ["u", "v"]))]
    framed = kb.KernelBayesFilter(**given).fit(*frames)
    state, _ = mixed.step(mixed.start(), {"place": x[3], "colour": None})
    return {
        "mapping": mixed.filter({k: v[:5] for k, v in seen.items()}).mean(),
        "partly": state.belief.mean(),
        "frame": framed.filter(frames[0][:5]).mean(),
        "frame_table": framed.filter(frames[0][["b", "a"]][:5]).to_frame()[["u", "v_low"]],
    }


@case("filters.calibrate")
def _():
    x, z = circling(80, 60)
    model = tracker(**named(x, z))
    beliefs, found = model.filter(holes()), {}
    for smooth in (False, True):
        calibration = model.calibrate(x, z, parts=3, smooth=smooth)
        name = "smooth" if smooth else "filter"
        found[name + "_pit"] = calibration.pit
        found[name + "_interval"] = calibration.interval(beliefs, 0.8)
    return found


@case("filters.tune_kinds")
def _():
    rooms = [COLOURS[i % 8] for i in range(48)]
    x = np.array([len(room) for room in rooms]) + 0.3 * normal(111, 48)
    model = kb.tune(kb.KernelBayesFilter(rng=0), x, rooms, rng=0, budget=3)
    a, z = circling(80, 60)
    u = normal(112, 60, 1)
    controlled = kb.tune(kb.KernelBayesFilter(rng=0), a, z, u, rng=0, budget=3)
    return {
        "categories_scores": scores(model, 1e-4),
        "categories": total(model.filter(x[:6] + 0.1).weights, 1e-6),
        "controls_scores": scores(controlled, 1e-4),
    }


def move(z, rng, control=None):
    found = 0.9 * z + 0.5 * rng.normal(size=z.shape)
    return found if control is None else found + control


def begin(m, rng):
    return rng.normal(size=(m, 1))


@case("filters.montecarlo")
def _():
    z = 1.5 * normal(88, 60, 1)
    x = z + 0.5 * normal(89, 60, 1)
    seen = np.array([[0.3], [0.9], [np.nan], [-0.4], [0.1], [0.7]])
    found = {}
    for name, options in {
        "importance": {},
        "original": {"method": "original"},
        "rank": {"rank": 10, "prior_ridge": 1e-3, "ridge": 1e-2},
        "subsample": {"subsample": 30, "particles": 50},
        "given": {"prior_ridge": 1e-3, "ridge": 1e-2, "threshold": 1.0},
    }.items():
        model = kb.KernelMonteCarloFilter(move, begin, picks=15, rng=0, **options).fit(x, z)
        # Landmarks of picked states are near each other: rounding grows.
        found[name] = total(model.filter(seen).mean(), 1e-5 if name == "rank" else RTOL)
        if name in ("importance", "original"):
            found[name + "_smooth"] = model.smooth(seen).mean()
            found[name + "_forecast"] = model.forecast(seen, 2).mean()
    found["controls"] = model.filter(seen, controls=0.1 * np.arange(6.0)[:, None]).mean()
    state, info = model.step(model.start(), seen[0])
    state, info = model.step(state, seen[1], control=np.array([0.2]))
    return found | {"step": [*state.belief.mean(), info.support, info.ess]}


@case("filters.montecarlo_controls")
def _():
    z = 1.5 * normal(88, 60, 1)
    x, u = z + 0.5 * normal(89, 60, 1), normal(113, 60, 1)
    ridges = {"prior_ridge": 1e-3, "ridge": 1e-2}
    model = kb.KernelMonteCarloFilter(move, z[:20], picks=15, rng=0, **ridges).fit(x, z, u)
    return {
        "filter": model.filter(x[:5] + 0.1, controls=u[:5]).mean(),
        "smooth": total(model.smooth(x[:5] + 0.1, controls=u[:5]).mean(), 1e-7),
    }


@case("filters.tune", warns=True)
def _():
    x, z = circling(80, 60)
    found = {}
    for name, options in {"error": {}, "parts": {"parts": 3}}.items():
        start = kb.KernelBayesFilter(rank=20, back_ridge=0.1, rng=0)
        model = kb.tune(start, x, z, rng=0, budget=5, **options)
        found[name] = [model.ridge_, model.prior_ridge_, model.transition_ridge_, model.back_ridge]
        found[name + "_scores"] = scores(model, 1e-4)
        found[name + "_mean"] = total(model.filter(holes()).mean(), 1e-6)
    z = 1.5 * normal(88, 60, 1)
    x = z + 0.5 * normal(89, 60, 1)
    model = kb.KernelMonteCarloFilter(move, begin, picks=10, particles=30, rng=0)
    tuned = kb.tune(model, x, z, rng=0, budget=3)
    return found | {
        "montecarlo": [tuned.ridge_, tuned.prior_ridge_],
        "montecarlo_scores": scores(tuned),
        "montecarlo_mean": tuned.filter(x[:4] + 0.1).mean(),
    }


# --- tests ---------------------------------------------------------------------------------------


def summary(result):
    """Entries of a test's result: the statistic, and all else."""
    size = [] if result.effect is None else [result.effect.size, *result.effect.interval]
    power = [] if result.power_estimate is None else [result.power_estimate]
    return {
        "statistic": [result.statistic],
        "rest": [result.pvalue, *size, *power, *result.null],
    }


def prefixed(results):
    return {
        f"{name}_{key}": value for name, r in results.items() for key, value in summary(r).items()
    }


METHODS = ["permutation", "gamma", "wild", "linear", "block", "features"]


@case("tests.mmd")
def _():
    x, y = normal(90, 40, 2), normal(91, 50, 2) * 1.3 + 0.2
    found = {
        m: kb.mmd_test(
            x, y[: 40 if m in ("linear", "block") else 50], permutations=99, rng=0, method=m
        )
        for m in METHODS
    }
    return prefixed(found) | {"witness": found["permutation"].witness.values}


@case("tests.mmd_options")
def _():
    x, y = normal(90, 40, 2), normal(91, 50, 2) * 1.3 + 0.2
    options = {
        "unbiased": {"unbiased": True},
        "kernel": {"kernel": kb.Laplace(1.0), "alpha": 0.1},
        "power": {"kernel": "power"},
        "list": {"kernel": [kb.Gaussian(0.5), kb.Gaussian(2.0)], "split": 0.4},
        "weights": {"weights_x": uniform(92, 40), "weights_y": uniform(93, 50)},
        "weights_wild": {"weights_x": uniform(92, 40), "method": "wild"},
        "blocks": {"method": "wild", "block_length": 4},
    }
    found = {k: kb.mmd_test(x, y, permutations=99, rng=0, **v) for k, v in options.items()}
    letters = np.random.default_rng(110).choice(list("abc"), size=(24, 9))
    strings = ["".join(row) for row in letters]
    found["strings"] = kb.mmd_test(strings[:10], strings[10:], kb.Spectrum(2), 99, 0)
    return prefixed(found)


def dependent():
    x = normal(94, 60, 2)
    return x, np.sin(2.0 * x[:, :1]) + 0.7 * normal(95, 60, 1)


@case("tests.hsic")
def _():
    found = {m: kb.hsic_test(*dependent(), permutations=99, rng=0, method=m) for m in METHODS}
    return prefixed(found) | {"witness": found["permutation"].witness.values}


@case("tests.hsic_options")
def _():
    options = {
        "unbiased": {"unbiased": True},
        "kernels": {"kernel_x": kb.Laplace(1.0), "kernel_y": kb.Matern(1.0)},
        "power": {"kernel_x": "power", "kernel_y": "power"},
        "weights": {"weights": uniform(96, 60)},
        "weights_wild": {"weights": uniform(96, 60), "method": "wild"},
        "size": {"method": "block", "block_size": 12},
        "rank": {"method": "features", "rank": 8},
    }
    return prefixed(
        {k: kb.hsic_test(*dependent(), permutations=99, rng=0, **v) for k, v in options.items()}
    )


@case("tests.ci")
def _():
    z = normal(97, 60, 1)
    x, y = np.sin(z) + 0.5 * normal(98, 60, 1), z**2 + 0.5 * normal(99, 60, 1)
    kernels = kb.Gaussian(1.0), kb.Gaussian(1.0), kb.Gaussian(0.7)
    return prefixed(
        {
            "independent": kb.ci_test(x, y, z, permutations=99, rng=0),
            "dependent": kb.ci_test(x, y + x, z, permutations=99, rng=0),
            "kernels": kb.ci_test(x, y, z, *kernels, permutations=99, rng=0),
        }
    )


@case("tests.aggregated")
def _():
    x, y = normal(90, 40, 2), normal(91, 50, 2) * 1.3 + 0.2
    kernels = [kb.Gaussian(0.5), kb.Gaussian(1.5), kb.Laplace(1.0)]
    return prefixed(
        {
            "mmd": kb.mmd_aggregated(x, y, permutations=99, rng=0),
            "mmd_given": kb.mmd_aggregated(
                x, y, kernels, 99, 0, weights=[0.2, 0.5, 0.3], centrality=0.0
            ),
            "hsic": kb.hsic_aggregated(*dependent(), permutations=99, rng=0),
            "hsic_given": kb.hsic_aggregated(*dependent(), kernels, kernels[:2], 99, 0),
        }
    )


# --- likelihood-free inference -------------------------------------------------------------------

PRIOR = {"slope": stats.norm(), "offset": stats.uniform(-1, 2)}
SHARPER = {"slope": stats.norm(0.5, 0.4), "offset": stats.uniform(-1, 2)}
OBSERVED = np.array([0.5, 0.2])
ORIGINAL = "original"  # the original rule's name in likelihood-free inference


def simulator(theta, rng):
    return noisy(rng.normal(theta, 0.5))


def batched(theta, rng):
    return noisy(np.c_[theta[:, 0] + rng.normal(size=len(theta)), theta[:, 1] ** 2])


def answers(posterior):
    return {
        "mean": posterior.mean(),
        "cov": posterior.cov(),
        "interval": posterior.interval(0.9),
        "log_density": posterior.log_density([[0.4, 0.1], [0.0, -0.5]]),
        "ess": [posterior.ess],
    }


@case("simulation.infer", warns=True)
def _():
    found = {}
    for method in ("auto", "adjusted", "likelihood", "cme", ORIGINAL, "importance"):
        posterior = kb.infer(simulator, PRIOR, OBSERVED, 200, method, rng=0)
        name = "original" if method == ORIGINAL else method
        found |= {f"{name}_{key}": value for key, value in answers(posterior).items()}
        found[name + "_support"] = [posterior.diagnostics.support]
    return found


@case("simulation.adjust", warns=True)
def _():
    found = {}
    for adjust in ("none", "linear", "location", "scale"):
        posterior = kb.infer(simulator, PRIOR, OBSERVED, 150, "adjusted", adjust=adjust, rng=0)
        found[adjust] = np.r_[posterior.mean(), posterior.cov().ravel()]
    energy = kb.infer(simulator, PRIOR, OBSERVED, 150, "adjusted", criterion="energy", rng=0)
    return found | {"energy": np.r_[energy.mean(), energy.cov().ravel()]}


@case("simulation.infer_options", warns=True)
def _():
    few = {"method": "adjusted", "adjust": "linear", "rng": 0}
    rounds = kb.infer(simulator, PRIOR, OBSERVED, 200, rounds=2, **few)
    unknown = lambda n, rng: rng.normal(size=(n, 2))  # noqa: E731 (a prior without a density)
    likely = {"method": "likelihood", "rng": 0, "rounds": 2}
    return {f"rounds_{k}": v for k, v in answers(rounds).items()} | {
        "rounds_draws": kb.infer(simulator, unknown, OBSERVED, 200, rounds=2, **few).mean(),
        "rounds_likelihood": kb.infer(simulator, PRIOR, OBSERVED, 200, **likely).mean(),
        "summary": kb.infer(
            simulator, PRIOR, OBSERVED, 150, summary=lambda x: x[:1] - x[1:], **few
        ).mean(),
        "batched": kb.infer(batched, PRIOR, OBSERVED, 150, vectorized=True, **few).mean(),
    }


def begin_two(n, rng):
    return np.c_[rng.normal(size=n), rng.uniform(-1, 1, size=n)]


@functools.cache
def runs():
    return kb.simulate(simulator, PRIOR, 200, rng=0)


@functools.cache
def model(method="adjusted", adjust="linear"):
    return kb.LikelihoodFree(PRIOR, method, adjust, rng=0).fit(runs().theta, runs().x)


@case("simulation.model", warns=True)
def _():
    posterior = model().posterior(OBSERVED)
    many = model().posterior(np.array([[0.5, 0.2], [-0.8, 0.1], [1.0, -0.6]]))
    return {
        "weights": posterior.weights,
        "points": posterior.points,
        "sample": posterior.sample(6, 0),
        "herd": posterior.sample(6, 0, "herding"),
        "prob": [posterior.prob(([0.0, 0.0], [2.0, 1.0]))],
        "quantile": posterior.quantile([0.2, 0.7]),
        "many_mean": many.mean(),
        "many_cov": many.cov(),
        "many_interval": many.interval(0.8),
        "many_quantile": many.quantile([0.2, 0.7]),
        "many_sample": many.sample(4, 0),
        "scores": [-row["score"] for row in model().choice_],
    }


@case("simulation.map", warns=True, rtol=1e-5)
def _():
    many = model().posterior(np.array([[0.5, 0.2], [-0.8, 0.1]]))
    return {
        "one": model().posterior(OBSERVED).map(),
        "many": many.map(),
        "likelihood": model("likelihood", "none").posterior(OBSERVED).map(),
    }


@case("simulation.new_prior", warns=True)
def _():
    found = {}
    for method, adjust in (
        ("adjusted", "linear"),
        ("likelihood", "none"),
        ("importance", "none"),
        (ORIGINAL, "none"),
        ("cme", "none"),
    ):
        name = "original" if method == ORIGINAL else method
        found[name] = model(method, adjust).posterior(OBSERVED, prior=SHARPER).mean()
    draws = 0.4 * normal(100, 300, 2) + (0.5, 0.0)
    weighted = kb.LikelihoodFree(PRIOR, "adjusted", "linear", rng=0)
    weighted.fit(runs().theta, runs().x, 0.5 + uniform(101, len(runs().x)))
    return found | {
        "draws": model().posterior(OBSERVED, prior=draws).mean(),
        "weights": weighted.posterior(OBSERVED).mean(),
    }


@case("simulation.no_density", warns=True)
def _():
    theta, x = runs().theta, runs().x
    found = {}
    for name, prior in {"none": None, "draws": theta, "function": begin_two}.items():
        for method in ("adjusted", "likelihood"):
            fitted = kb.LikelihoodFree(prior, method, rng=0).fit(theta, x)
            found[f"{name}_{method}"] = fitted.posterior(OBSERVED).mean()
    return found


@case("simulation.discrete", warns=True)
def _():
    def simulate(theta, rng):
        return noisy(theta[0] + rng.normal(0, 0.5))

    found = {}
    for method in ("adjusted", "likelihood"):
        posterior = kb.infer(simulate, [stats.poisson(3.0)], 2.2, 150, method, rng=0)
        found[method] = [*posterior.mean(), *posterior.sample(5, 0).ravel()]
        found[method + "_log_density"] = posterior.log_density([[2.0], [3.0]])
    simplex = kb.infer(
        lambda theta, rng: noisy(rng.normal(theta, 0.2)),
        stats.dirichlet([1.0, 2.0, 3.0]),
        [0.2, 0.3, 0.5],
        150,
        "adjusted",
        rng=0,
    )
    return found | {"simplex": simplex.mean(), "simplex_sample": simplex.sample(5, 0)}


@case("simulation.rows", warns=True)
def _():
    theta = normal(102, 150, 1)
    x = theta[:, :, None] + normal(103, 150, 10, 1)
    found = {}
    for method in ("adjusted", "likelihood"):
        fitted = kb.LikelihoodFree(stats.norm(), method, rng=0).fit(theta, x)
        posterior = fitted.posterior(x[0])
        found[method] = [*posterior.mean(), *posterior.cov().ravel()]
    return found


@case("simulation.checks", warns=True)
def _():
    fresh = kb.simulate(simulator, PRIOR, 30, rng=1)
    pairs = {"theta": fresh.theta, "x": fresh.x, "rng": 0}
    ranks = kb.sbc(model(), n_draws=40, **pairs)
    made = kb.sbc(model(), PRIOR, simulator, n_simulations=20, n_draws=30, rng=0)
    held = kb.coverage(model(), n_draws=60, **pairs)
    distance = kb.coverage(model(), n_draws=60, joint="distance", **pairs)
    predicted = kb.posterior_predictive(
        model().posterior(OBSERVED), simulator, OBSERVED, n_simulations=40, rng=0
    )
    largest = kb.posterior_predictive(
        runs().theta[:40], simulator, OBSERVED, n_simulations=40, statistic=np.max, rng=0
    )
    return {
        "ranks": ranks.ranks,
        "ranks_pvalues": ranks.pvalues,
        "ranks_simulated": made.ranks,
        "coverage": held.coverage,
        "coverage_u": held.u,
        "coverage_joint": held.joint,
        "coverage_band": held.band,
        "coverage_distance": distance.joint,
        "predictive": predicted.values,
        "predictive_pvalues": [*predicted.pvalues, predicted.pvalue],
        "statistic": [*largest.values.ravel(), *largest.pvalues],
    }


@case("simulation.reject", warns=True)
def _():
    found = {}
    for adjust in (False, True):
        name = "adjusted" if adjust else "plain"
        posterior = kb.reject_abc(
            simulator, PRIOR, OBSERVED, n_simulations=300, fraction=0.2, adjust=adjust, rng=0
        )
        found[name] = np.r_[posterior.mean(), posterior.cov().ravel()]
        found[name + "_interval"] = posterior.interval(0.8)
        found[name + "_sample"] = posterior.sample(4, 0)
    given = kb.reject_abc(runs().theta, runs().x, OBSERVED, tolerance=1.0, prior=PRIOR)
    taxi = kb.reject_abc(
        runs().theta,
        runs().x,
        OBSERVED,
        fraction=0.1,
        distance=lambda x, o: np.abs(x - o).sum(axis=-1),
    )
    return found | {"pairs": given.mean(), "distance": taxi.mean()}


@case("simulation.simulate", warns=True)
def _():
    more = kb.simulate(simulator, PRIOR, 250, resume=runs())

    def fails(theta, rng):
        if theta[0] < -1.0:
            raise ValueError("no data")
        return {"a": noisy(rng.normal(theta[0])), "b": noisy(rng.normal(size=2))}

    dropped = kb.simulate(fails, PRIOR, 60, rng=0)
    return {
        "theta": runs().theta,
        "x": runs().x,
        "resumed": more.x,
        "batched": kb.simulate(batched, PRIOR, 30, rng=0, vectorized=True).x,
        "failed": [dropped.failed, dropped.done, *dropped.x.ravel()],
        "summary": kb.simulate(simulator, PRIOR, 20, rng=0, summary=np.sum).x,
        "given": kb.simulate(simulator, runs().theta[:10], rng=0).x,
    }


@case("simulation.priors")
def _():
    sources = {
        "one": stats.gamma(2.0),
        "list": [stats.norm(), stats.poisson(3.0)],
        "dict": PRIOR,
        "multivariate": stats.multivariate_normal([0.0, 1.0], [[1.0, 0.3], [0.3, 2.0]]),
        "simplex": stats.dirichlet([1.0, 2.0, 3.0]),
        "function": lambda n, rng: rng.normal(size=(n, 2)),
        "embedding": kb.embed(normal(104, 30, 2), kb.Gaussian(1.0)),
        "draws": normal(105, 50, 2),
        "frame": pd.DataFrame({"a": normal(106, 50), "b": normal(107, 50)}),
    }
    read = {name: kb.as_prior(source) for name, source in sources.items()}
    found = {name: p.sample(12, 0) for name, p in read.items()}
    found |= {
        f"{name}_log_density": read[name].log_density(found[name])
        for name in ("one", "list", "dict", "multivariate", "simplex")
    }
    u = uniform(108, 5, 2)
    bounded = kb.as_prior(uniform(109, 40, 2), ["a", "b"], bounds=([0.0, 0.0], [1.0, 2.0]))
    return found | {
        "ppf": read["dict"].ppf(u),
        "cdf": read["dict"].cdf(u),
        "inside": read["dict"].inside(4.0 * u - 2.0),
        "project": read["dict"].project(4.0 * u - 2.0),
        "bounded": [bounded.low, bounded.high, bounded.inside(u[:2] + 0.5)],
        "ends": [read["dict"].low[1], read["dict"].high[1], *read["list"].discrete],
    }


# --- large samples -------------------------------------------------------------------------------


@case("large.rule")
def _():
    x, z = pairs(120, 2500)
    rule = kb.KernelBayesRule(rank=30, rng=0).fit(x, z, prior=prior(121, 2200))
    mu = rule.posterior(NEW)
    calibration = kb.calibrate(rule)
    return {
        "predict": rule.predict(NEW),
        "ridges": [rule.prior_ridge_, rule.ridge_],
        "pit": total(calibration.pit, 1e-6),
        # A flat stretch of the distribution function between two points magnifies rounding.
        "interval": total(calibration.interval(mu, 0.9), 1e-5),
        "raw_interval": total(mu.interval(0.9, valid="rearranged"), 1e-5),
    }


@case("large.herd")
def _():
    X = normal(122, 1300, 2)
    smooth, rough = kb.embed(X, kb.Gaussian(2.0)), kb.embed(X, kb.Laplace(0.5))
    return {
        "smooth": kb.herd(smooth, 10),
        "rough": kb.herd(rough, 10),
        "exchange": kb.compress(rough, 10, method="exchange").errors,
        "thin": kb.thin(X, 10, kb.Gaussian(2.0)),
        "valid": signed(123, 1300).cov(),
    }


@case("large.tests")
def _():
    x, y = normal(124, 1200, 2), 1.1 * normal(125, 1200, 2)
    found = {
        "permutation": kb.mmd_test(x, y, permutations=49, rng=0),
        "features": kb.mmd_test(x, y, permutations=49, rng=0, method="features"),
        "hsic": kb.hsic_test(x, y + 0.1 * x, permutations=49, rng=0),
    }
    return prefixed(found)


# --- the file ------------------------------------------------------------------------------------


def differences(found, golden, allowed=1.0):
    """Lines that name each entry that differs, with both numbers."""
    lines = [f"{name}: made by no case" for name in sorted(golden.keys() - found.keys())]
    for name, value in sorted(found.items()):
        if name not in golden:
            lines.append(f"{name}: not in the file, now {float(value)!r}")
        elif value.off(golden[name]) > allowed:
            lines.append(
                f"{name}: was {golden[name]!r}, now {float(value)!r}, "
                f"{value.off(golden[name]):.2g} times what is allowed"
            )
    return lines


def read():
    return json.loads(FILE.read_text())


def main(arguments=None):
    """Write the file, or compare with it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("groups", nargs="*", help=", ".join(GROUPS))
    parser.add_argument("--write", action="store_true", help="write the golden file")
    parser.add_argument("--noise", type=float, default=0.0, help="disturb inputs, look for chaos")
    parser.add_argument("--seed", type=int, default=0, help="of the noise")
    parser.add_argument("--times", action="store_true", help="seconds of each case")
    options = parser.parse_args(arguments)
    noise.update(size=options.noise, seed=options.seed)
    groups, found = options.groups or list(GROUPS), {}
    for group in groups:
        for run in GROUPS[group]:
            start = time.perf_counter()
            found |= run()
            if options.times:
                print(f"{run.name}: {time.perf_counter() - start:.2f} s")
    golden = read() if FILE.exists() else {}
    if options.write:
        others = {k: v for k, v in golden.items() if k.split(".")[0] not in groups}
        kept = others if options.groups else {}
        every = kept | {name: float(value) for name, value in found.items()}
        FILE.write_text(json.dumps(every, indent=0, sort_keys=True) + "\n")
        print(f"{len(every)} entries written")
        return 0
    golden = {k: v for k, v in golden.items() if k.split(".")[0] in groups}
    lines = differences(found, golden, 0.1 if options.noise else 1.0)
    print("\n".join(lines) or f"{len(found)} entries as they were")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
