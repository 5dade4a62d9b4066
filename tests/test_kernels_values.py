"""Kernel values against explicit formulas, other libraries and brute force."""

import math

import numpy as np
import pytest
from scipy.spatial.transform import Rotation as SpatialRotation
from sklearn.gaussian_process import kernels as gp
from sklearn.metrics.pairwise import laplacian_kernel, polynomial_kernel, rbf_kernel

import kernelbayes as kb
from kernelbayes.kernels.radial import TILE

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(TILE + 22, 3)), RNG.normal(size=(TILE + 6, 3))  # more than one tile
H = (0.5, 1.0, 2.0)

# Values are at most 1 (or about 10 for polynomials); distances from expanded squares carry errors
# of some eps * |x|^2 / h^2, so twelve digits are safe and far below any wrong formula.
close = {"rtol": 0.0, "atol": 1e-12}


def loop(formula, A, B):
    """Brute force: the formula for every pair."""
    return np.array([[formula(a, b) for b in B] for a in A])


VECTOR = {
    "gaussian": (kb.Gaussian(0.7), lambda A, B: rbf_kernel(A, B, gamma=0.5 / 0.7**2)),
    "gaussian-ard": (kb.Gaussian(H), lambda A, B: rbf_kernel(A / H, B / H, gamma=0.5)),
    "laplace": (kb.Laplace(0.7), lambda A, B: laplacian_kernel(A, B, gamma=1.0 / 0.7)),
    "laplace-ard": (kb.Laplace(H), lambda A, B: laplacian_kernel(A / H, B / H, gamma=1.0)),
    "matern12": (kb.Matern(0.7, 0.5), gp.Matern(0.7, nu=0.5)),
    "matern32": (kb.Matern(0.7, 1.5), gp.Matern(0.7, nu=1.5)),
    "matern52": (kb.Matern(H, 2.5), gp.Matern(H, nu=2.5)),
    "matern-0.8": (kb.Matern(0.7, 0.8), gp.Matern(0.7, nu=0.8)),
    "matern-3.3": (kb.Matern(H, 3.3), gp.Matern(H, nu=3.3)),
    "rational": (kb.RationalQuadratic(0.7, 0.4), gp.RationalQuadratic(0.7, alpha=0.4)),
    "periodic": (
        kb.Periodic(0.7, 1.3),
        lambda A, B: loop(
            lambda a, b: math.exp(-2.0 * np.sum(np.sin(np.pi * (a - b) / 1.3) ** 2) / 0.7**2), A, B
        ),
    ),
    "periodic-ard": (
        kb.Periodic(H, (1.0, 2.0, 3.0)),
        lambda A, B: loop(
            lambda a, b: math.exp(-2.0 * np.sum((np.sin(np.pi * (a - b) / [1, 2, 3]) / H) ** 2)),
            A,
            B,
        ),
    ),
    "linear": (kb.Linear(), lambda A, B: A @ B.T),
    "polynomial": (kb.Polynomial(3, 0.5), lambda A, B: polynomial_kernel(A, B, 3, 1.0, 0.5)),
    "delta": (kb.Delta(), lambda A, B: loop(lambda a, b: float(np.array_equal(a, b)), A, B)),
}


@pytest.mark.parametrize(("kernel", "formula"), VECTOR.values(), ids=VECTOR.keys())
def test_vector_kernels(kernel, formula):
    size = max(1.0, np.abs(kernel(X, Y)).max())
    np.testing.assert_allclose(kernel(X, Y) / size, formula(X, Y) / size, **close)
    np.testing.assert_allclose(kernel(X) / size, formula(X, X) / size, **close)
    np.testing.assert_allclose(kernel(Y, X[:1]), formula(Y, X[:1]), rtol=1e-10, atol=1e-12)


def test_matern_kernels_tend_to_the_gaussian_kernel():
    # k_nu - k_inf is of order 1 / nu; the maximum over r was found to be 0.23 / nu.
    for nu in (15.0, 30.0, 60.0):
        assert np.abs(kb.Matern(1.0, nu)(X) - kb.Gaussian(1.0)(X)).max() < 0.25 / nu


def test_histogram_intersection():
    A, B = RNG.uniform(size=(6, 5)), RNG.uniform(size=(4, 5))
    expected = loop(lambda a, b: sum(min(p, q) for p, q in zip(a, b, strict=True)), A, B)
    np.testing.assert_allclose(kb.HistogramIntersection()(A, B), expected, **close)


def test_trace_and_rotation():
    A = SpatialRotation.from_rotvec(RNG.normal(size=(5, 3)))
    B = SpatialRotation.from_rotvec(RNG.normal(size=(4, 3)))
    R, S = A.as_matrix(), B.as_matrix()
    np.testing.assert_allclose(
        kb.Trace()(R, S), loop(lambda a, b: np.trace(a @ b.T), R, S), **close
    )
    h = 0.8
    angle = loop(lambda a, b: SpatialRotation.from_matrix(a @ b.T).magnitude(), R, S)
    # Tr(A B^T) = 1 + 2 cos(angle between A and B)
    np.testing.assert_allclose(
        kb.Rotation(h)(A, B), np.exp(-2.0 * (1.0 - np.cos(angle)) / h**2), **close
    )
    Q = SpatialRotation.from_rotvec([0.3, -1.0, 2.0]).as_matrix()
    np.testing.assert_allclose(kb.Rotation(h)(Q @ R, Q @ S), kb.Rotation(h)(R, S), **close)
    np.testing.assert_allclose(kb.Rotation(h)(R @ Q, S @ Q), kb.Rotation(h)(R, S), **close)


def pyramid_match(a, b, levels, bins, low, high):
    """Lazebnik, Schmid and Ponce (2006), equation 3, cell by cell."""
    height, width = a.shape[:2]
    edges = np.linspace(low, high, bins + 1)
    total = 0.0
    for level in range(levels + 1):
        weight = 2.0**-levels if level == 0 else 2.0 ** (level - levels - 1)
        row = np.arange(height) * 2**levels // height // 2 ** (levels - level)
        column = np.arange(width) * 2**levels // width // 2 ** (levels - level)
        for i in range(2**level):
            for j in range(2**level):
                for c in range(a.shape[2]):
                    cell = np.ix_(row == i, column == j)
                    counts = [np.histogram(x[..., c][cell], edges)[0] for x in (a, b)]
                    total += weight * np.minimum(*counts).sum()
    return total / a.size


@pytest.mark.parametrize("levels", [0, 1, 2])
def test_spatial_pyramid(levels):
    images = RNG.uniform(-1.0, 3.0, size=(4, 6, 5, 2))
    images[0] = images[1]
    kernel = kb.SpatialPyramid(levels, bins=3, low=-1.0, high=3.0)

    def match(a, b):
        return pyramid_match(a, b, levels, 3, -1.0, 3.0)

    expected = loop(match, images, images)
    np.testing.assert_allclose(kernel(images), expected, **close)
    np.testing.assert_allclose(kernel(images, images[1:]), expected[:, 1:], **close)
    np.testing.assert_allclose(kernel.diag(images), 1.0, **close)
    grey = images[..., :1]
    np.testing.assert_allclose(kernel(grey[..., 0]), loop(match, grey, grey), **close)


@pytest.mark.parametrize("k", [1, 2, 3])
def test_spectrum(k):
    words = ["abab", "ba", "", "AB ab", "aaaa", "élan"]

    def match(s, t):
        windows = [[w[i : i + k] for i in range(len(w) - k + 1)] for w in (s, t)]
        return float(sum(u == v for u in windows[0] for v in windows[1]))

    counts = loop(match, words, words)
    np.testing.assert_array_equal(kb.Spectrum(k)(words, words[::-1]), counts[:, ::-1])
    norms = np.sqrt(np.diag(counts))
    norms[norms == 0.0] = 1.0
    cosines = counts / np.outer(norms, norms)
    np.testing.assert_allclose(kb.Spectrum(k, normalized=True)(words), cosines, **close)


def test_delta_is_equality_of_rows_and_values():
    np.testing.assert_array_equal(kb.Delta()(["a", "b"], ["b", "c"]), [[0, 0], [1, 0]])
    np.testing.assert_array_equal(kb.Delta()([1, 2], [2.0, 3.0]), [[0, 0], [1, 0]])
    np.testing.assert_array_equal(kb.Delta()([[1, 2], [1, 3]], [[1, 3]]), [[0], [1]])
    np.testing.assert_array_equal(kb.Delta()([True, False]), np.eye(2))


def test_custom_sees_its_points_as_given():
    G = np.arange(9.0).reshape(3, 3)
    kernel = kb.Custom(lambda i, j: G[i][:, j])
    np.testing.assert_array_equal(kernel(np.array([2, 0]), np.array([1])), [[7.0], [1.0]])
    length = kb.Custom(lambda s, t: np.outer([len(w) for w in s], [len(w) for w in t]))
    np.testing.assert_array_equal(length(["a", "abc"], ("ab",)), [[2.0], [6.0]])
    np.testing.assert_array_equal(length.diag(["a"] * 70 + ["abc"]), [1.0] * 70 + [9.0])


# --- algebra -------------------------------------------------------------------------------------


def test_nested_algebra_is_its_formula():
    a, b, c = kb.Gaussian(0.7), kb.Linear(), kb.Laplace(1.5)
    A, B, C = a(X, Y), b(X, Y), c(X, Y)
    lengths = np.linalg.norm(X, axis=1)[:, None] * np.linalg.norm(Y, axis=1)
    for formula in (
        lambda a, b, c: a + b * c,
        lambda a, b, c: (a + b) * c,
        lambda a, b, c: 2.0 * (a + b) * c,
        lambda a, b, c: a * (2.0 * b + 3.0 * (c * a)),
        lambda a, b, c: (a + b) * (b + c) * (a + c),
        lambda a, b, c: 0.5 * (0.5 * (0.5 * a)),
        lambda a, b, c: a + a + a,
        lambda a, b, c: sum([b, c], a),
    ):
        # Inner products are sums of terms as large as the lengths, and sums may cancel: rounding
        # is relative to the formula without signs.
        gap = np.abs(formula(a, b, c)(X, Y) - formula(A, B, C))
        assert np.all(gap <= 1e-13 * formula(A, lengths, C))


def test_parts_is_the_product_over_parts():
    A, words = X[:20], ["ab", "ba", "bb", ""] * 5
    mixed = {"x": A, "t": A[:, 0], "c": np.array(list("ab" * 10)), "s": words}
    other = {name: part[:15] for name, part in mixed.items()}
    x = kb.Gaussian(0.7)(A, A[:15])
    t = kb.Periodic(1.0, 2.0)(A[:, 0], A[:15, 0])
    c = kb.Delta()(mixed["c"], other["c"])
    s = kb.Spectrum(1)(mixed["s"], other["s"])
    kernel = kb.Parts(
        {"x": kb.Gaussian(0.7), "t": kb.Periodic(1.0, 2.0), "c": kb.Delta(), "s": kb.Spectrum(1)}
    )
    np.testing.assert_allclose(kernel(mixed, other), x * t * c * s, **close)
    nested = 2.0 * kb.Parts({"x": kb.Gaussian(0.7)}) + kb.Parts(
        {("c", "t"): kb.Parts({"c": kb.Delta(), "t": kb.Periodic(1.0, 2.0)})}
    )
    np.testing.assert_allclose(nested(mixed, other), 2.0 * x + c * t, **close)


@pytest.mark.parametrize(
    ("key", "columns"),
    [(0, [0]), (-1, [2]), (range(1, 3), [1, 2]), (slice(None, None, 2), [0, 2]), ((2, 0), [2, 0])],
)
def test_parts_of_columns(key, columns):
    kernel = kb.Parts([(key, kb.Gaussian(0.7)), (1, kb.Linear())])
    expected = kb.Gaussian(0.7)(X[:, columns], Y[:, columns]) * kb.Linear()(X[:, 1], Y[:, 1])
    np.testing.assert_allclose(kernel(X, Y), expected, **close)


# --- far away ------------------------------------------------------------------------------------

BOUNDED = [
    kb.Gaussian(0.7),
    kb.Laplace(0.7),
    *(kb.Matern(0.7, nu) for nu in (0.3, 0.5, 1.0, 1.5, 2.5, 7.2, 60.0)),
    kb.RationalQuadratic(0.7, 0.4),
    kb.Periodic(0.7, 3.0),
    kb.Gaussian(1.0) * kb.RationalQuadratic(1.0) + kb.Matern(1.0),
]


@pytest.mark.parametrize("kernel", BOUNDED, ids=repr)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_points_of_any_size_never_give_nan(kernel, dtype):
    sizes = [1e-30, 1e-8, 1.0, 1e8, 1e15, 1e30] + [1e-300, 1e100, 1e200, 1e300] * (
        dtype is np.float64
    )
    far = np.array([[s, -s] for s in sizes] + [[0.0, 0.0]], dtype=dtype)
    for G in (kernel(far), kernel(far, far[::-1].copy()), kernel(far, far[:1])):
        assert np.all((G >= 0.0) & (kernel.diag(far)[0] + 1e-6 >= G))  # 1e-6: float32 rounding
    moved = far[-1:] + np.array([1e8], dtype=dtype)
    assert np.isfinite(kernel(far, moved)).all()


@pytest.mark.parametrize("offset", [1e4, 1e8])
@pytest.mark.parametrize("kernel", BOUNDED, ids=repr)
def test_a_common_offset_does_not_matter(kernel, offset):
    # Grid points shift without rounding; coordinates in bandwidths (or angles) round to
    # eps * offset / 0.7 < 4e-8, and no kernel here changes faster than 10 per unit, but those
    # with a kink of infinite slope (nu < 1/2) do: |u|^(2 nu) = |u|^0.6.
    A = np.round(8.0 * X[:40]) / 8.0
    shift = offset * 3.0  # a whole number of periods
    slope = (4.0 * offset * 2.2e-16) ** (0.6 if kernel == kb.Matern(0.7, 0.3) else 1.0)
    np.testing.assert_allclose(kernel(A + shift), kernel(A), rtol=0.0, atol=10.0 * slope + 1e-12)


def test_distances_between_near_points_far_from_the_rest_keep_their_digits():
    # One outlier makes the expanded square lose digits; then differences are taken directly.
    A = np.array([[0.0], [1e-3], [1.0], [1e9]])
    for kernel, formula in [
        (kb.Gaussian(1.0), lambda r: np.exp(-0.5 * r**2)),
        (kb.Matern(1.0, 0.5), lambda r: np.exp(-r)),
        (kb.Laplace(1.0), lambda r: np.exp(-r)),
    ]:
        np.testing.assert_allclose(kernel(A), formula(np.abs(A - A.T)), **close)
