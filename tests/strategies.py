"""Hypothesis strategies for points, and every kernel with points to try it on.

Points lie on a grid of 1/8, so that duplicates and constant samples are common, times a scale.
``INSTANCES`` is the table "every kernel": each law runs over all of its rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.spatial.transform import Rotation as SpatialRotation

import kernelbayes as kb

SCALES = (1e-8, 1.0, 100.0, 1e8)  # bandwidths are about 1


def grid(low: float = -4.0, high: float = 4.0) -> st.SearchStrategy[float]:
    return st.integers(int(8 * low), int(8 * high)).map(lambda i: i / 8)


@st.composite
def vectors(draw, d=2, low=-4.0, high=4.0, scales=SCALES, min_size=1, max_size=10):
    """Points (n, d): grid points, some rows repeated, all times one scale."""
    n = draw(st.integers(min_size, max_size))
    X = draw(hnp.arrays(np.float64, (n, d), elements=grid(low, high)))
    repeated = draw(st.lists(st.integers(0, n - 1), max_size=3))
    return np.concatenate([X, X[repeated]]) * draw(st.sampled_from(scales))


def histograms(d=4):
    return vectors(d, low=0.0)


def matrices(shape=(2, 3)):
    return vectors(d=int(np.prod(shape))).map(lambda X: X.reshape(-1, *shape))


def images(shape=(5, 6)):
    """Images on multiples of 1/10 (edges of bins included); 5 x 6 does not divide evenly."""
    pixels = st.integers(0, 10).map(lambda i: i / 10)
    return st.integers(1, 5).flatmap(
        lambda n: hnp.arrays(np.float64, (n, *shape), elements=pixels, fill=st.just(0.5))
    )


def rotations():
    return vectors(3, scales=(1e-8, 1.0)).map(lambda X: SpatialRotation.from_rotvec(X).as_matrix())


def strings():
    return st.lists(st.text("abc", max_size=8), min_size=1, max_size=8)


@st.composite
def joint(draw):
    """A mapping of aligned parts: a vector, a number, a category and a string."""
    x = draw(vectors(2))
    n = len(x)

    def aligned(elements):
        return draw(st.lists(elements, min_size=n, max_size=n))

    return {
        "x": x,
        "t": np.array(aligned(grid())),
        "c": np.array(aligned(st.sampled_from(["red", "green", "blue"]))),
        "s": aligned(st.text("ab", max_size=5)),
    }


@dataclass(frozen=True)
class Instance:
    id: str
    kernel: kb.Kernel
    points: st.SearchStrategy[Any]


def _custom(X, Y):
    return np.minimum(np.abs(X), np.abs(Y).T) + 1.0  # Brownian motion, started at random


_data = np.random.default_rng(0).normal(size=(30, 2))
_words = ["abc", "abab", "ccc", "a", "bca", "acbc"]
_bounded = (1e-8, 1.0, 100.0)
_deep = 0.5 * (
    (kb.Linear() + 3.0 * kb.Gaussian(0.7)) * (kb.Matern(2.0, 2.5) + kb.Laplace(3.0))
    + kb.Polynomial(2, 1.0) * (2.0 * (kb.Gaussian(1.0) * kb.Delta()))
)
_parts = kb.Parts({"x": kb.Gaussian(1.0) + kb.Linear(), "c": kb.Delta(), "s": kb.Spectrum(2)})
_nested_parts = 2.0 * (
    kb.Parts({("x", "t"): kb.Parts({"x": kb.Laplace(1.0), "t": kb.Periodic(1.0, 2.0)})})
    + kb.Parts({"t": kb.Gaussian(0.5), "c": kb.Delta()}) * kb.Parts({"x": kb.Linear()})
)
_columns = kb.Parts([(slice(0, 2), kb.Gaussian((1.0, 2.0))), ((3, 2), kb.Linear())])

INSTANCES = [
    Instance("gaussian", kb.Gaussian(0.7), vectors()),
    Instance("gaussian-ard", kb.Gaussian((0.5, 2.0)), vectors()),
    Instance("laplace", kb.Laplace(0.7), vectors()),
    Instance("laplace-ard", kb.Laplace((0.5, 2.0)), vectors()),
    Instance("matern12", kb.Matern(0.7, 0.5), vectors()),
    Instance("matern32", kb.Matern(0.7, 1.5), vectors()),
    Instance("matern52", kb.Matern((0.5, 2.0), 2.5), vectors()),
    Instance("matern-rough", kb.Matern(0.7, 0.3), vectors()),
    Instance("matern-one", kb.Matern(0.7, 1.0), vectors()),
    Instance("matern-smooth", kb.Matern(0.7, 7.2), vectors()),
    Instance("rational", kb.RationalQuadratic(0.7, 0.4), vectors()),
    # Beyond a thousand periods float32 does not know where in its period a point is.
    Instance("periodic", kb.Periodic(0.7, 3.0), vectors(scales=_bounded)),
    Instance("periodic-ard", kb.Periodic((0.7, 1.0), (3.0, 2.0)), vectors(scales=_bounded)),
    Instance("linear", kb.Linear(), vectors()),
    Instance("polynomial", kb.Polynomial(3, 0.5), vectors()),
    Instance("polynomial-homogeneous", kb.Polynomial(2, 0.0), vectors()),
    Instance("intersection", kb.HistogramIntersection(), histograms()),
    Instance("delta", kb.Delta(), vectors()),
    Instance("delta-scalars", kb.Delta(), vectors(1)),
    Instance("delta-names", kb.Delta(), strings()),
    Instance("delta-soft", kb.Delta(0.8), strings()),
    Instance("trace", kb.Trace(), matrices()),
    Instance("rotation", kb.Rotation(0.8), rotations()),
    Instance("pyramid", kb.SpatialPyramid(levels=2, bins=10), images()),
    Instance("pyramid-channels", kb.SpatialPyramid(levels=1, bins=3), images((4, 3, 2))),
    Instance("spectrum", kb.Spectrum(2), strings()),
    Instance("spectrum-normalized", kb.Spectrum(3, normalized=True), strings()),
    Instance("custom", kb.Custom(_custom), vectors(1)),
    Instance("custom-diagonal", kb.Custom(_custom, lambda X: np.abs(X[:, 0]) + 1.0), vectors(1)),
    Instance("warped", kb.Warped(kb.Gaussian(0.7)), vectors()),
    Instance("warped-norm", kb.Warped(kb.Gaussian(0.7), "norm", (0.5, 2.0)), vectors()),
    Instance("warped-log", kb.Warped(kb.Laplace(0.7), "log", (0.5, 2.0)), vectors()),
    Instance("sum", kb.Gaussian(0.7) + kb.Linear(), vectors()),
    Instance("product", kb.Gaussian(0.7) * kb.Linear(), vectors()),
    Instance("scaled", 1e-12 * kb.Gaussian(0.7), vectors()),
    Instance("deep", _deep, vectors()),
    Instance("strings-sum", 2.0 * kb.Spectrum(1) + kb.Delta() * kb.Spectrum(2), strings()),
    Instance("parts-mapping", _parts, joint()),
    Instance("parts-nested", _nested_parts, joint()),
    Instance("parts-columns", _columns, vectors(4)),
    Instance("precomputed", kb.Precomputed(kb.Gaussian(1.0)(_data[:3])), vectors(3)),
    Instance("nystrom", kb.nystrom(kb.Gaussian(1.0), _data, 12, rng=0), vectors()),
    Instance("nystrom-strings", kb.nystrom(kb.Spectrum(2), _words, 5, rng=0), strings()),
    Instance("cholesky", kb.pivoted_cholesky(kb.Matern(1.0), _data, tol=1e-3, rng=0), vectors()),
    Instance("cholesky-full", kb.pivoted_cholesky(kb.Gaussian(1.0), _data, 30, rng=0), vectors()),
    # As for Periodic: in float32 the angles of far points are not known.
    Instance("fourier", kb.fourier(kb.Gaussian(1.0), 2, 10, rng=0), vectors(scales=_bounded)),
    Instance(
        "finite-deep",
        (kb.fourier(kb.Laplace(1.0), 2, 4, rng=0) + 2.0 * kb.Linear())
        * kb.nystrom(kb.Gaussian(1.0), _data, 5, rng=0),
        vectors(scales=_bounded),
    ),
    Instance(
        "finite-parts",
        kb.Parts({0: kb.Linear(), 1: kb.nystrom(kb.Gaussian(1.0), _data[:, :1], 5, rng=0)}),
        vectors(),
    ),
]


def instances(*ids: str) -> list[Instance]:
    """Rows of the table, all of them unless named."""
    return [row for row in INSTANCES if not ids or row.id in ids]
