"""What kernels say of themselves; that it is true of every kernel is a law in test_kernels."""

import ast
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

import kernelbayes as kb
from kernelbayes import laws

X = np.random.default_rng(0).normal(size=(12, 3))
Y = np.random.default_rng(1).normal(size=(12, 3))
VECTOR = [
    kb.Gaussian((1.0, 2.0, 0.5)),
    kb.Laplace(0.7),
    kb.Matern(1.0, 2.5),
    kb.RationalQuadratic(1.0),
    kb.Linear(),
    kb.Polynomial(3, 1.0),
]
NESTED = {
    "sum": lambda k: k + kb.Linear(),
    "product": lambda k: kb.Gaussian(2.0) * k,
    "scaled": lambda k: 3.0 * k,
    "parts": lambda k: kb.Parts([(range(3), k)]),
    "warped": kb.Warped,
    "nystrom": lambda k: kb.nystrom(k, X, 5, rng=0),
    "deep": lambda k: 2.0 * (kb.Parts([(range(3), 0.5 * k + kb.Linear())]) * kb.Gaussian(1.0)),
}


# The repr of a Custom kernel has an address in it, which differs between processes of one run.
def kind(kernel):
    return type(kernel).__name__


@pytest.mark.parametrize("nest", NESTED.values(), ids=NESTED.keys())
@pytest.mark.parametrize("kernel", VECTOR, ids=repr)
def test_what_is_made_of_vector_kernels_is_one(kernel, nest):
    assert kernel.is_vector
    assert nest(kernel).is_vector


@pytest.mark.parametrize("nest", ["sum", "product", "scaled", "parts", "deep"])
@pytest.mark.parametrize("kernel", [kb.Periodic(1.0), kb.Delta(), kb.Custom(np.dot)], ids=kind)
def test_one_part_that_is_no_vector_is_enough(kernel, nest):
    assert not kernel.is_vector
    assert not NESTED[nest](kernel).is_vector


@pytest.mark.parametrize(
    "kernel", [kb.Delta(), kb.Trace(), kb.Rotation(1.0), kb.Spectrum(), kb.Custom(np.dot)], ids=kind
)
def test_a_point_that_is_no_row_has_no_columns(kernel):
    assert not kernel.takes_rows
    with pytest.raises(TypeError, match="partly missing"):
        kernel.on([0])


COLUMNS = {  # kernel, columns, the same over those columns
    "bandwidths": (kb.Gaussian((1.0, 2.0, 3.0)), [0, 2], kb.Gaussian((1.0, 3.0))),
    "one bandwidth": (kb.Laplace(2.0), [1], kb.Laplace(2.0)),
    "periods": (kb.Periodic(1.0, (1.0, 2.0, 3.0)), [2], kb.Periodic(1.0, (3.0,))),
    "units": (
        kb.Warped(kb.Gaussian((1.0, 2.0, 3.0)), "log", (4.0, 5.0, 6.0)),
        [1, 2],
        kb.Warped(kb.Gaussian((2.0, 3.0)), "log", (5.0, 6.0)),
    ),
    "norm": (
        kb.Warped(kb.Gaussian(2.0), "norm", (4.0, 5.0, 6.0)),
        [1, 2],
        kb.Warped(kb.Gaussian(2.0), "norm", (5.0, 6.0)),
    ),
    "sum": (
        2.0 * (kb.Linear() + kb.Gaussian((1.0, 2.0, 3.0))),
        [0],
        2.0 * (kb.Linear() + kb.Gaussian((1.0,))),
    ),
    "parts": (
        kb.Parts([(0, kb.Linear()), (slice(1, 3), kb.Gaussian((2.0, 3.0)))]),
        [2],
        kb.Parts([((0,), kb.Gaussian((3.0,)))]),
    ),
    "names": (
        kb.Parts({"a": kb.Linear(), ("b", "c"): kb.Gaussian((2.0, 3.0))}),
        [0, 2],
        kb.Parts({"a": kb.Linear(), ("c",): kb.Gaussian((3.0,))}),
    ),
}


@pytest.mark.parametrize("case", COLUMNS.values(), ids=COLUMNS.keys())
def test_on_some_columns(case):
    kernel, columns, expected = case
    assert kernel.on(columns) == expected


def test_approximations_on_some_columns():
    columns = [0, 2]
    landmarks = kb.pivoted_cholesky(kb.Gaussian((1.0, 2.0, 3.0)), X, rank=12, rng=0)
    exact = kb.Gaussian((1.0, 3.0))
    # As many landmarks as points: the approximation is exact there, to half the digits.
    np.testing.assert_allclose(
        landmarks.on(columns)(X[:, columns]), exact(X[:, columns]), atol=1e-7
    )
    fourier = kb.fourier(kb.Gaussian((1.0, 2.0, 3.0)), 3, 10, rng=0)
    zeroed = X * [1.0, 0.0, 1.0]  # the missing coordinate in common
    np.testing.assert_allclose(fourier.on(columns)(X[:, columns]), fourier(zeroed), atol=1e-14)


def test_scaled_multiplies_every_bandwidth():
    deep = 2.0 * (kb.Linear() + kb.Parts({0: kb.Gaussian((1.0,)), 1: kb.Matern(2.0, 2.5)}))
    assert deep.scaled(3.0) == 2.0 * (
        kb.Linear() + kb.Parts({0: kb.Gaussian((3.0,)), 1: kb.Matern(6.0, 2.5)})
    )
    for kernel in (kb.Linear(), kb.Delta(), kb.nystrom(kb.Gaussian(1.0), X, 4, rng=0)):
        assert kernel.scaled(3.0) is kernel


def test_paired_refuses_samples_of_two_sizes():
    with pytest.raises(ValueError, match="pairs are needed"):
        kb.Gaussian(1.0).paired(X, Y[:3])


def test_mean_on_the_circle_also_behind_a_factor_and_in_parts():
    hours = np.array([[23.0], [1.0]])
    half = np.full(2, 0.5)
    clock = kb.Periodic(1.0, 24.0)
    for kernel in (clock, 2.0 * clock, kb.nystrom(clock, hours, 2, rng=0)):
        # The hour 0 is also 24; the sine of it is known to rounding.
        assert np.sin(2.0 * np.pi / 24.0 * kernel.mean_of(hours, half)) == pytest.approx(0.0)
    both = kb.Parts({0: 2.0 * clock, 1: kb.Gaussian(1.0)})
    mean = both.mean_of(np.column_stack([hours, hours]), half)
    assert mean[1] == pytest.approx(12.0)
    assert np.sin(2.0 * np.pi / 24.0 * mean[0]) == pytest.approx(0.0)
    with pytest.raises(TypeError, match="needs points in R"):
        kb.Spectrum(1).mean_of(["a", "b"], half)


def test_the_exact_kernel_behind_approximations():
    exact = kb.Gaussian(1.0)
    approximation = kb.nystrom(exact, X, 4, rng=0)
    assert exact.exact is exact
    assert approximation.exact is exact
    assert (2.0 * approximation + kb.Linear()).exact == 2.0 * exact + kb.Linear()
    assert kb.Parts({0: exact}).exact == kb.Parts({0: exact})
    assert approximation.gaussian_bandwidth is None
    assert approximation.exact.gaussian_bandwidth == 1.0


@dataclass(frozen=True, eq=False)
class Cauchy(kb.Kernel):
    """A user's own kernel, in the dozen lines of docs/kernels.md."""

    bandwidth: float | tuple[float, ...] = 1.0

    def _cross(self, X, Y):
        D = (X[:, None, :] - Y[None, :, :]) / np.asarray(self.bandwidth)
        return 1.0 / (1.0 + (D**2).sum(axis=-1))

    def _diag(self, X):
        return np.ones_like(X[:, 0])


@pytest.mark.parametrize("kernel", [Cauchy(0.5), Cauchy((1.0, 2.0, 3.0)), 2.0 * Cauchy()], ids=repr)
def test_a_users_own_kernel_needs_one_class(kernel):
    laws.check_kernel(kernel, X)
    assert Cauchy(1.0).scaled(3.0) == Cauchy(3.0)
    assert Cauchy((1.0, 2.0, 3.0)).on([1]) == Cauchy((2.0,))
    mu = kb.embed(X, kernel)
    assert mu.mean() == pytest.approx(X.mean(axis=0))
    model = kb.tune(kb.ConditionalEmbedding(kernel_x=kernel), X, Y, budget=3, rng=0)
    assert isinstance(model.kernel_x_, type(kernel))


def test_laws_catch_a_kernel_that_is_wrong_about_itself():
    @dataclass(frozen=True, eq=False)
    class Wrong(Cauchy):
        def _paired(self, X, Y):
            return np.zeros(len(X))

    with pytest.raises(AssertionError, match="paired"):
        laws.check_kernel(Wrong(1.0), X)

    @dataclass(frozen=True, eq=False)
    class Shrinking(Cauchy):
        def scaled(self, factor):
            return Shrinking(self.bandwidth * min(factor, 3.0))

    with pytest.raises(AssertionError, match="scaled"):
        laws.check_kernel(Shrinking(1.0), X)


@pytest.mark.parametrize("kernel", VECTOR, ids=repr)
def test_anchors_give_features_and_similarities_at_once(kernel):
    assert kernel.anchored(X) is None
    projected = kb.nystrom(kernel, X, 3, rng=0)
    features, similar = projected.anchored(Y)
    np.testing.assert_allclose(features, projected.features(Y).T, atol=1e-12)
    np.testing.assert_allclose(similar, kernel(projected.anchors(X), Y), atol=1e-12)


# --- nobody asks for the class of a kernel --------------------------------------------------------

SOURCE = Path(kb.__file__).parent
CONCRETE = {
    name
    for name, cls in vars(kb).items()
    if isinstance(cls, type) and issubclass(cls, kb.Kernel) and cls is not kb.Kernel
}
# laws: a composite is checked against its definition.
ASKING = {"laws.py"}


def classes_asked_for(source):
    """Names of concrete kernels in isinstance calls and in class patterns."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.MatchClass):
            found.add(ast.unparse(node.cls))
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "isinstance":
            found.update(n.id for n in ast.walk(node.args[1]) if isinstance(n, ast.Name))
    return found & CONCRETE


FILES = {str(path.relative_to(SOURCE)): path for path in sorted(SOURCE.rglob("*.py"))}
OUTSIDE = [name for name in FILES if not name.startswith(("kernels/", "gram/"))]


@pytest.mark.parametrize("name", [name for name in OUTSIDE if name not in ASKING])
def test_kernels_are_asked_about_themselves_not_for_their_class(name):
    found = classes_asked_for(FILES[name].read_text())
    assert not found, f"{name} asks for {sorted(found)}: make it a question to Kernel"


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("isinstance(k, Gaussian | Sum)", {"Gaussian", "Sum"}),
        ("isinstance(k, (Kernel, Parts))", {"Parts"}),
        ("isinstance(k, Kernel)", set()),
        ("match k:\n    case Scaled(factor=c):\n        pass", {"Scaled"}),
    ],
)
def test_questions_for_a_class_are_recognised(source, expected):
    assert classes_asked_for(source) == expected
