"""Laws of every kernel; kernels as values; the median heuristic."""

import dataclasses
import math
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.distance import pdist
from scipy.spatial.transform import Rotation as SpatialRotation

import kernelbayes as kb
from kernelbayes import laws
from strategies import INSTANCES

every_kernel = pytest.mark.parametrize("instance", INSTANCES, ids=lambda row: row.id)


# --- laws ----------------------------------------------------------------------------------------


@every_kernel
@given(data=st.data())
def test_every_kernel_obeys_the_laws(instance, data):
    laws.check_kernel(instance.kernel, data.draw(instance.points))


def test_the_table_holds_every_public_kernel():
    def kinds(kernel):
        yield type(kernel)
        for field in dataclasses.fields(kernel):
            value = getattr(kernel, field.name)
            values = [k for _, k in value] if field.name == "parts" else [value]
            for inner in values:
                if isinstance(inner, kb.Kernel):
                    yield from kinds(inner)

    public = {getattr(kb, name) for name in kb.__all__ if isinstance(getattr(kb, name), type)}
    kernels = {cls for cls in public if issubclass(cls, kb.Kernel)} - {kb.Kernel}
    assert kernels <= {kind for row in INSTANCES for kind in kinds(row.kernel)}


class Broken(kb.Linear):
    """A kernel with a Gram matrix and a diagonal of our choice."""

    def __init__(self, gram, diag=np.diagonal):
        object.__setattr__(self, "gram", gram)
        object.__setattr__(self, "of", diag)

    @property
    def finite(self):
        return False

    def _cross(self, X, Y):
        return self.gram(X, Y)

    def _self(self, X):
        return self.gram(X, X)

    def _diag(self, X):
        return self.of(self.gram(X, X))


BROKEN = {
    "exactly symmetric": Broken(lambda X, Y: X @ Y.T + 1e-6 * X),
    "exactly diag": Broken(lambda X, Y: X @ Y.T, diag=lambda G: np.diagonal(G) * (1 + 1e-15)),
    "not positive semi-definite": Broken(lambda X, Y: np.abs(X - Y.T)),
    "must have shape": Broken(lambda X, Y: (X @ Y.T)[:, :1]),
    "NaN or infinite": Broken(lambda X, Y: X @ Y.T / 0.0),
    "must not be negative": Broken(lambda X, Y: X @ Y.T - 1e-9 * X.max() * Y.max()),
    "copy of X": Broken(lambda X, Y: np.eye(len(X)) if X is Y else np.zeros((len(X), len(Y)))),
    "order of rows": Broken(
        lambda X, Y: np.minimum.outer(np.arange(len(X)), np.arange(len(Y))) + 1.0
    ),
}


@pytest.mark.parametrize("scale", [1.0, 1e-9])
@pytest.mark.parametrize(("law", "kernel"), BROKEN.items())
def test_laws_catch_a_broken_kernel(law, kernel, scale):
    X = np.array([0.0, 2.0, 3.0, 5.0]) * scale**0.5
    with np.errstate(all="ignore"), pytest.raises(AssertionError, match=law):
        laws.check_kernel(kernel, X)


@pytest.mark.parametrize(
    "kernel",
    [
        kb.Custom(lambda X, Y: X @ Y.T + 1e-6 * X),  # asymmetric
        kb.Custom(lambda X, Y: -np.abs(X - Y.T)),  # indefinite
        kb.Custom(lambda X, Y: X @ Y.T, diagonal=lambda X: X[:, 0]),  # wrong diagonal
        kb.Gaussian(1.0) + kb.Custom(lambda X, Y: -np.abs(X - Y.T)),
        2.0 * kb.Parts({0: kb.Custom(lambda X, Y: -np.abs(X - Y.T))}),
    ],
)
def test_laws_catch_a_broken_custom_kernel(kernel):
    with pytest.raises(AssertionError):
        laws.check_kernel(kernel, np.array([[1.0], [2.0], [3.0], [5.0]]))


def test_laws_catch_a_composite_that_is_not_its_definition():
    class Flattened(kb.Product):
        def _combine(self, a, b):
            return a + b

    with pytest.raises(AssertionError, match="definition"):
        laws.check_kernel(Flattened(kb.Gaussian(1.0), kb.Linear()), [1.0, 2.0])


# --- kernels are values --------------------------------------------------------------------------

VALUES = [
    "Gaussian(bandwidth=2.0)",
    "Gaussian(bandwidth=(1.0, 2.0))",
    "Laplace(bandwidth=2.0)",
    "Matern(bandwidth=2.0, nu=1.5)",
    "Matern(bandwidth=2.0, nu=2.5)",
    "RationalQuadratic(bandwidth=2.0, alpha=1.0)",
    "Periodic(bandwidth=2.0, period=3.0)",
    "Rotation(bandwidth=2.0)",
    "Linear()",
    "Trace()",
    "Delta()",
    "HistogramIntersection()",
    "Polynomial(degree=2, offset=1.0)",
    "Polynomial(degree=2, offset=0.0)",
    "SpatialPyramid(levels=2, bins=16, low=0.0, high=1.0)",
    "Spectrum(k=3, normalized=False)",
    "Sum(left=Linear(), right=Gaussian(bandwidth=1.0))",
    "Product(left=Linear(), right=Gaussian(bandwidth=1.0))",
    "Scaled(factor=2.0, kernel=Linear())",
    "Parts(parts=((0, Linear()), (slice(1, 3, None), Gaussian(bandwidth=1.0))))",
    "Parts(parts=(('age', Linear()), (('x', 'y'), Delta())))",
]


def test_repr_makes_an_equal_kernel_and_only_equal_kernels_are_equal():
    for i, text in enumerate(VALUES):
        kernel = eval(text, vars(kb))
        assert repr(kernel) == text
        for j, other in enumerate(eval(t, vars(kb)) for t in VALUES):
            assert (kernel == other) == (i == j)
            if i == j:
                assert hash(kernel) == hash(other)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (kb.Gaussian(1), kb.Gaussian(np.float32(1.0))),
        (kb.Gaussian([1, 2]), kb.Gaussian(np.array([1.0, 2.0]))),
        (kb.Polynomial(np.int64(2), 1), kb.Polynomial(2, np.float32(1.0))),
        (kb.Spectrum(np.int64(2)), kb.Spectrum(2)),
        (2 * kb.Linear(), kb.Linear() * np.float64(2.0)),
        (np.float64(2.0) * kb.Linear(), kb.Linear() * 2),
        (kb.Parts({0: kb.Delta()}), kb.Parts([(0, kb.Delta())])),
        (kb.Custom(min), kb.Custom(min)),
        (kb.Gaussian.median([0.0, 2.0]), kb.Gaussian(2.0)),
    ],
)
def test_equal_kernels_have_equal_hashes(first, second):
    assert first == second
    assert hash(first) == hash(second)
    assert len({first, second}) == 1


def test_approximations_are_equal_when_their_landmarks_are():
    X = np.arange(6.0)
    first, second, third = (kb.nystrom(kb.Gaussian(1.0), X, 3, rng=r) for r in (0, 0, 1))
    assert first == second
    assert hash(first) == hash(second)
    assert first != third or np.array_equal(first.landmarks, third.landmarks)
    assert first != kb.nystrom(kb.Gaussian(2.0), X, 3, rng=0)
    words = ["ab", "ba", "abb"]
    assert kb.nystrom(kb.Spectrum(1), words, 2, rng=0) == kb.nystrom(kb.Spectrum(1), words, 2, 0)


@every_kernel
def test_every_kernel_is_immutable_and_hashable(instance):
    kernel = instance.kernel
    assert kernel == kernel
    assert kernel != "kernel"
    assert isinstance(hash(kernel), int)
    assert type(kernel).__name__ in repr(kernel)
    for name in [field.name for field in dataclasses.fields(kernel)] + ["new"]:
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(kernel, name, 1.0)


def test_a_kernel_changes_neither_its_points_nor_a_users_gram_matrix():
    X, G = np.random.default_rng(0).normal(size=(5, 2)), np.eye(5)
    kernel = (kb.Linear() + kb.Gaussian(1.0)) * kb.Polynomial() + 2.0 * kb.Delta()
    before = X.copy()
    kernel(X), kernel(X, X[:2]), kernel.diag(X)
    np.testing.assert_array_equal(X, before)
    lookup = 3.0 * (kb.Custom(lambda i, j: G) + kb.Custom(lambda i, j: G))
    np.testing.assert_array_equal(lookup(np.arange(5)), 6.0 * np.eye(5))
    np.testing.assert_array_equal(G, np.eye(5))


# --- the median heuristic ------------------------------------------------------------------------


def _rotations(n=7):
    return SpatialRotation.from_rotvec(np.random.default_rng(3).normal(size=(n, 3))).as_matrix()


def _circle(X, period):
    angle = 2.0 * np.pi * X / period
    return np.concatenate([np.cos(angle), np.sin(angle)], axis=1)


X7 = np.random.default_rng(2).normal(size=(7, 3))
MEDIANS = {  # kernel, points, parameters, distances whose median is the bandwidth
    "gaussian": (kb.Gaussian, X7, {}, pdist(X7)),
    "laplace": (kb.Laplace, X7, {}, pdist(X7, "cityblock")),
    "matern": (kb.Matern, X7, {"nu": 2.5}, pdist(X7)),
    "rational": (kb.RationalQuadratic, X7, {"alpha": 2.0}, pdist(X7)),
    "periodic": (kb.Periodic, X7, {"period": 3.0}, pdist(_circle(X7, 3.0))),
    "rotation": (kb.Rotation, _rotations(), {}, pdist(_rotations().reshape(-1, 9))),
}
every_bandwidth = pytest.mark.parametrize("case", MEDIANS.values(), ids=MEDIANS.keys())


@every_bandwidth
def test_median_is_the_median_distance(case):
    cls, X, parameters, distances = case
    kernel = cls.median(X, scale=0.5, **parameters)
    # Distances are sums of at most nine squares: a relative error of a few roundings.
    assert kernel.bandwidth == pytest.approx(0.5 * np.median(distances), rel=1e-14)
    assert kernel == cls(kernel.bandwidth, **parameters)


@every_bandwidth
def test_median_of_degenerate_points_warns_and_is_usable(case):
    cls, X, parameters, _ = case
    constant = np.repeat(X[:1], 5, axis=0)
    with pytest.warns(kb.NumericalWarning, match="all points coincide"):
        assert cls.median(constant, scale=2.0, **parameters).bandwidth == 2.0
    with pytest.warns(kb.NumericalWarning, match="all points coincide"):
        assert cls.median(X[:1], **parameters).bandwidth == 1.0
    mostly = np.concatenate([np.repeat(X[:1], 10, axis=0), X[1:3]])  # 45 of 66 pairs coincide
    with pytest.warns(kb.NumericalWarning, match="most points coincide"):
        kernel = cls.median(mostly, **parameters)
    positive = pdist(kernel._coordinates(kernel.points(mostly)), kernel._metric)
    # In units of the bandwidth the median of the positive distances is one.
    assert np.median(positive[positive > 0]) == pytest.approx(1.0, rel=1e-14)
    laws.check_kernel(kernel, mostly)


@pytest.mark.parametrize("cls", [kb.Gaussian, kb.Laplace, kb.Matern, kb.Periodic])
def test_median_per_dimension(cls):
    X = X7 * [0.1, 0.2, 0.3]
    each = [cls.median(X[:, j]).bandwidth for j in range(3)]
    enlarge = 3.0 if cls is kb.Laplace else math.sqrt(3.0)
    assert cls.median(X, per_dimension=True).bandwidth == pytest.approx(
        tuple(enlarge * h for h in each), rel=1e-14
    )


def test_median_refuses_what_makes_no_sense():
    with pytest.raises(ValueError, match="scale must be positive"):
        kb.Gaussian.median(X7, scale=0.0)
    with pytest.raises(ValueError, match="one bandwidth"):
        kb.Rotation.median(_rotations(), per_dimension=True)


def test_median_of_many_points_is_repeatable_and_close():
    X = np.random.default_rng(0).uniform(size=5000)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        kernel = kb.Gaussian.median(X)
    assert kernel == kb.Gaussian.median(X.copy())
    # |x - y| has distribution function 1 - (1 - t)^2, median 1 - sqrt(1/2) and density sqrt(2)
    # there. A median of pairs of 2000 points has standard error at most 2 sqrt(1/4 / 2000) /
    # sqrt(2) (a U-statistic of a 0/1 kernel), and five of them are exceeded once in a million.
    error = 5.0 * 2.0 * math.sqrt(0.25 / 2000) / math.sqrt(2.0)
    assert kernel.bandwidth == pytest.approx(1.0 - math.sqrt(0.5), abs=error)
