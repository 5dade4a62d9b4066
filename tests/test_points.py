"""What kernels accept as points, and how they refuse the rest."""

import array_api_strict
import numpy as np
import pandas as pd
import polars as pl
import pytest

import kernelbayes as kb

X = np.array([[0.0, 1.0], [2.0, 3.0], [2.5, 0.5]])
VECTOR = [
    kb.Gaussian(1.0),
    kb.Laplace(1.0),
    kb.Matern(1.0, 0.5),
    kb.Matern(1.0, 1.5),
    kb.Matern(1.0, 2.5),
    kb.Matern(1.0, 1.2),
    kb.RationalQuadratic(1.0, 1.0),
    kb.Periodic(1.0, 2.0),
    kb.Linear(),
    kb.Polynomial(2, 1.0),
    kb.HistogramIntersection(),
    kb.Gaussian(1.0) + kb.Linear(),
    2.0 * (kb.Gaussian(1.0) * kb.Polynomial()),
    kb.fourier(kb.Gaussian(1.0), 2, 4, rng=0),
    kb.nystrom(kb.Gaussian(1.0), X, 2, rng=0),
]
every_vector_kernel = pytest.mark.parametrize("kernel", VECTOR, ids=repr)


# --- refused -------------------------------------------------------------------------------------

BAD = {
    "nan": ([[0.0, np.nan]], ValueError, "X has NaN or infinite entries"),
    "inf": ([[0.0, np.inf]], ValueError, "X has NaN or infinite entries"),
    "None": ([[0.0, None]], ValueError, "X has NaN or infinite entries"),
    "ragged": ([[0.0, 1.0], [2.0]], ValueError, "X is ragged"),
    "empty": (np.empty((0, 2)), ValueError, r"X is empty: shape \(0, 2\)"),
    "no columns": (np.empty((2, 0)), ValueError, r"X is empty: shape \(2, 0\)"),
    "empty list": ([], ValueError, r"X is empty"),
    "scalar": (3.0, ValueError, r"X must have shape \(n, d\)"),
    "three axes": (np.ones((2, 2, 2)), ValueError, "use a kernel for matrices"),
    "complex": ([[0.0, 1.0j]], TypeError, "X must be real, got complex128"),
    "strings": ([["a", "b"]], TypeError, "for categories use the Delta"),
    "digits": ([["1", "2"]], TypeError, "X must hold numbers"),
    "dates": (np.array([["2026-01-01"] * 2], "M8[D]"), TypeError, "X holds dates .* seconds since"),
    "objects": ([[object(), 1.0]], TypeError, "X must hold numbers"),
    "lengths": ({"a": [1.0, 2.0], "b": [1.0]}, ValueError, "aligned, got lengths"),
    "no parts": ({}, ValueError, "aligned, got lengths"),
    "text frame": (pd.DataFrame({"a": ["x"], "b": [1.0]}), TypeError, "X must hold numbers"),
    "frame with NaN": (pd.DataFrame({"a": [np.nan], "b": [1.0]}), ValueError, "X has NaN"),
    "frame with null": (pl.DataFrame({"a": [None], "b": [1.0]}), ValueError, "X has NaN"),
}


@every_vector_kernel
@pytest.mark.parametrize(("bad", "error", "message"), BAD.values(), ids=BAD.keys())
def test_bad_points_are_refused(kernel, bad, error, message):
    for call in (kernel, kernel.diag, lambda points: kernel(X, points)):
        name = message.replace("X", "[XY]", 1) if message.startswith("X") else message
        with pytest.raises(error, match=name):
            call(bad)


@every_vector_kernel
def test_points_of_another_dimension_are_refused(kernel):
    with pytest.raises(ValueError, match=r"dimension|shapes|columns"):
        kernel(X, X[:, :1])
    with pytest.raises(ValueError, match=r"dimension|shapes|columns"):
        kernel(X, X[:, 0])


@every_vector_kernel
def test_arrays_of_mixed_kinds_are_refused(kernel):
    with pytest.raises(TypeError, match=r"arrays of one kind are needed, got .* and .*convert"):
        kernel(X, array_api_strict.asarray(X))


@pytest.mark.parametrize(
    "bad", [0.0, -1.0, np.nan, np.inf, [], [1.0, 0.0], [[1.0]], "wide", None, "1.0", 1j, True]
)
@pytest.mark.parametrize(
    "cls",
    [kb.Gaussian, kb.Laplace, kb.Matern, kb.RationalQuadratic, kb.Periodic, kb.Rotation],
)
def test_bad_bandwidths_are_refused(cls, bad):
    with pytest.raises((ValueError, TypeError), match=r"bandwidth must be"):
        cls(bad)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: kb.Rotation([1.0, 2.0]), TypeError, "bandwidth must be a positive number"),
        (lambda: kb.Matern(1.0, 0.0), ValueError, "nu must be positive"),
        (lambda: kb.Matern(1.0, 61.0), ValueError, "nu must be at most 60"),
        (lambda: kb.RationalQuadratic(1.0, -1.0), ValueError, "alpha must be positive"),
        (lambda: kb.Periodic(1.0, 0.0), ValueError, "period must be positive"),
        (lambda: kb.Polynomial(0), ValueError, "degree must be an integer of at least 1"),
        (lambda: kb.Polynomial(1.5), ValueError, "degree must be an integer of at least 1"),
        (lambda: kb.Polynomial(2, -1.0), ValueError, "offset must be finite and not negative"),
        (lambda: kb.Polynomial(2, np.nan), ValueError, "offset must be finite and not negative"),
        (lambda: kb.Spectrum(0), ValueError, "k must be an integer of at least 1"),
        (
            lambda: kb.SpatialPyramid(levels=-1),
            ValueError,
            "levels must be an integer",
        ),
        (lambda: kb.SpatialPyramid(bins=1), ValueError, "bins must be an integer of at least 2"),
        (lambda: kb.SpatialPyramid(low=1.0), ValueError, "low must be below high"),
        (lambda: kb.Custom(3.0), TypeError, "function must be callable"),
        (lambda: 0.0 * kb.Linear(), ValueError, "factor of a kernel must be positive"),
        (lambda: kb.Linear() * -1.0, ValueError, "factor of a kernel must be positive"),
        (lambda: kb.Linear() + 1.0, TypeError, "unsupported operand"),
        (lambda: kb.Linear() * "2", TypeError, "."),
        (lambda: kb.Parts({}), ValueError, "at least one part"),
        (lambda: kb.Parts({1.5: kb.Linear()}), TypeError, "a part is a name"),
        (lambda: kb.Parts({"a": 1.0}), TypeError, "part 'a' needs a kernel, got float"),
    ],
)
def test_bad_parameters_are_refused(make, error, message):
    with pytest.raises(error, match=message):
        make()


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: kb.Gaussian([1.0, 1.0, 1.0])(X), ValueError, "3 bandwidths.*2 dimensions"),
        (lambda: kb.Laplace([1.0]).diag(X), ValueError, "1 bandwidths.*2 dimensions"),
        (lambda: kb.Periodic(1.0, [1.0] * 3)(X), ValueError, "3 periods for 2 dimensions"),
        (lambda: kb.Gaussian(1.0).features(X), TypeError, r"nystrom\(kernel, X, rank\)"),
        (lambda: kb.HistogramIntersection()(-X), ValueError, "negative entries"),
        (lambda: kb.Trace()(X), ValueError, r"matrices of shape \(n, p, q\)"),
        (lambda: kb.Trace()([np.eye(2)], [np.eye(3)]), ValueError, r"\(2, 2\) and \(3, 3\)"),
        (lambda: kb.Rotation(1.0)(X), ValueError, r"rotations of shape \(n, 3, 3\)"),
        (
            lambda: kb.Rotation(1.0)([np.eye(3), -np.eye(3)]),
            ValueError,
            r"X\[1\] is not a rotation",
        ),
        (lambda: kb.SpatialPyramid()(X), ValueError, "must be images"),
        (lambda: kb.SpatialPyramid(2)(np.ones((1, 3, 8))), ValueError, "cannot have 2 levels"),
        (lambda: kb.SpatialPyramid()(np.full((1, 8, 8), 2.0)), ValueError, "set low and high"),
        (lambda: kb.Spectrum(2)("abab"), TypeError, "wrap it in a list"),
        (lambda: kb.Spectrum(2)([]), TypeError, "non-empty sequence of strings"),
        (lambda: kb.Spectrum(2)(["a", 1]), TypeError, "sequence of strings"),
        (lambda: kb.Spectrum(2)({"s": ["a"], "t": ["b"]}), ValueError, "one column of strings"),
        (lambda: kb.Delta()([]), ValueError, "is empty"),
        (lambda: kb.Delta()(np.empty((2, 0))), ValueError, "is empty"),
        (lambda: kb.Delta()([1.0, np.nan]), ValueError, "NaN"),
        (lambda: kb.Delta()(["a", None]), ValueError, "missing categories"),
        (lambda: kb.Delta()(pd.Series(["a", pd.NA], dtype="string")), ValueError, "missing"),
        (lambda: kb.Delta()(["1"], [1]), TypeError, "cannot be compared"),
        (lambda: kb.Custom(lambda A, B: A)(X), ValueError, r"must return shape \(3, 3\)"),
        (lambda: kb.Custom(lambda A, B: A @ B.T, len).diag(X), ValueError, r"shape \(3,\)"),
        (lambda: kb.Custom(lambda A, B: A)([]), ValueError, "is empty"),
        (lambda: kb.Custom(lambda A, B: A @ B.T * np.nan)(X), ValueError, "Custom has NaN"),
        (lambda: kb.Parts({"a": kb.Linear()})(X), TypeError, "mapping with columns"),
        (lambda: kb.Parts({"a": kb.Linear()})({"b": [1.0]}), ValueError, "no column 'a'"),
        (lambda: kb.Parts({2: kb.Linear()})(X), ValueError, "outside the 2 columns"),
        (lambda: kb.Parts({0: kb.Linear()})(X[:, 0]), ValueError, r"shape \(n, d\)"),
        (
            lambda: kb.Parts({"a": kb.Linear(), "b": kb.Delta()})({"a": [1.0, 2.0], "b": ["x"]}),
            ValueError,
            "aligned, got lengths",
        ),
    ],
)
def test_points_of_the_wrong_space_are_refused(call, error, message):
    with pytest.raises(error, match=message):
        call()


# --- accepted ------------------------------------------------------------------------------------


@every_vector_kernel
def test_vectors_come_in_many_forms(kernel):
    expected = kernel(X)
    forms = [
        X.tolist(),
        tuple(map(tuple, X)),
        np.asfortranarray(X),
        X.astype(object),
        pd.DataFrame(X, columns=["a", "b"]),
        pl.DataFrame({"a": X[:, 0], "b": X[:, 1]}),
        {"a": X[:, 0], "b": X[:, 1:]},
    ]
    for form in forms:
        np.testing.assert_array_equal(kernel(form), expected)
        np.testing.assert_array_equal(kernel.diag(form), kernel.diag(X))
        np.testing.assert_allclose(kernel(form, X), expected, rtol=1e-12)  # not mirrored


@pytest.mark.parametrize(
    "kernel", [k for k in VECTOR if not k.finite or k == kb.Linear()], ids=repr
)
def test_a_one_dimensional_array_is_scalar_points(kernel):
    x = np.array([0.0, 1.0, 3.0])
    for form in (x.tolist(), pd.Series(x, name="a"), pl.Series("a", x), np.array([0, 1, 3])):
        np.testing.assert_array_equal(kernel(form), kernel(x[:, None]))
    assert kernel(x, 2.0 * x[:2]).shape == (3, 2)


@every_vector_kernel
def test_whole_numbers_and_booleans_become_floats(kernel):
    whole = np.array([[0, 1], [1, 1], [1, 0]])
    for form in (whole, whole.astype(np.uint8), whole.astype(bool), whole.astype(np.longdouble)):
        assert kernel(form).dtype == np.float64
        np.testing.assert_array_equal(kernel(form), kernel(whole.astype(float)))


FLOAT32 = [(kernel, X) for kernel in VECTOR if not isinstance(kernel, kb.Landmarks)] + [
    (kb.Delta(), X),
    (kb.Trace(), X[:, :, None]),
    (kb.Rotation(1.0), np.eye(3)[None]),
    (kb.SpatialPyramid(1), X.reshape(1, 3, 2) / 3.0),
    (kb.Parts({0: kb.Gaussian(1.0), 1: kb.Delta()}), X),
    (kb.nystrom(kb.Gaussian(1.0), X.astype(np.float32), 2, rng=0), X),
    (kb.pivoted_cholesky(kb.Gaussian(1.0), X.astype(np.float32), 2, rng=0), X),
]


@pytest.mark.parametrize(("kernel", "points"), FLOAT32, ids=lambda value: repr(value)[:30])
def test_float32_stays_float32(kernel, points):
    single = points.astype(np.float32)
    values = [kernel(single), kernel(single, single[:1]), kernel.diag(single)]
    values += [kernel.features(single)] if kernel.finite else []
    assert all(v.dtype == np.float32 for v in values)


def test_half_precision_becomes_float32():
    assert kb.Gaussian(1.0)(X.astype(np.float16)).dtype == np.float32


def test_points_are_checked_once_and_for_all():
    frame = pl.DataFrame({"x": [1.0, 2.0], "c": ["a", "b"], "unused": [None, None]})
    for kernel, points in [
        (kb.Gaussian(1.0), X),
        (kb.Delta(), ["a", "b"]),
        (kb.Spectrum(1), pl.Series("s", ["a", "b"])),
        (kb.Parts({"x": kb.Gaussian(1.0), "c": kb.Delta()}), frame),
    ]:
        once = kernel.points(points)
        twice = kernel.points(once)
        np.testing.assert_array_equal(kernel(twice), kernel(points))
        assert type(twice) is type(once)


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
def test_frames_keep_their_columns_apart(frame):
    data = {"age": [30.0, 40.0, 30.0], "sex": ["f", "m", "f"], "text": ["ab", "ba", "abb"]}
    kernel = kb.Parts({"age": kb.Gaussian(10.0), "sex": kb.Delta(), "text": kb.Spectrum(1)})
    np.testing.assert_array_equal(kernel(frame(data)), kernel(data))
    np.testing.assert_array_equal(
        (kernel + 2.0 * kernel)(frame(data), frame(data)[:2]), 3.0 * kernel(data)[:, :2]
    )
    by_number = kb.Parts({0: kb.Gaussian(10.0), 1: kb.Delta()})
    expected = kb.Parts({"age": kb.Gaussian(10.0), "sex": kb.Delta()})
    np.testing.assert_array_equal(by_number(frame(data)), expected(data))
    np.testing.assert_array_equal(
        kb.Spectrum(1)(frame(data)[["text"]]), kb.Spectrum(1)(data["text"])
    )


@pytest.mark.parametrize(
    "layout", [np.asfortranarray, lambda A: np.hstack([A, A])[:, : A.shape[1]]]
)
def test_the_layout_of_memory_changes_no_bit(layout):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 3))
    z, new = x[:, :2] + 0.1 * rng.normal(size=(60, 2)), layout(x[:5] + 0.1)
    rules = [kb.KernelBayesRule().fit(a(x), a(z)) for a in (np.ascontiguousarray, layout)]
    assert np.array_equal(*(rule.predict(new) for rule in rules))
    kernels = [kb.nystrom(kb.Gaussian(1.0), a(1e6 * x), 5, rng=0) for a in (np.array, layout)]
    assert kernels[0] == kernels[1]
    pvalues = [kb.mmd_test(a(x), a(x[::2] + 0.1), rng=0) for a in (np.ascontiguousarray, layout)]
    assert pvalues[0].statistic == pvalues[1].statistic


@pytest.mark.parametrize(
    "run",
    [
        lambda X: kb.Gaussian.median(np.ones((5, 1))),
        lambda X: kb.KernelBayesRule().fit(X, X).posterior([[1e3]]),
        lambda X: kb.Embedding(X, np.linspace(-1.0, 1.0, len(X)), kb.Gaussian(1.0)).std(),
    ],
)
def test_a_warning_names_the_line_of_the_user(run):
    with pytest.warns(kb.NumericalWarning) as caught:
        run(np.random.default_rng(0).normal(size=(50, 1)))
    assert {found.filename for found in caught} == {__file__}
