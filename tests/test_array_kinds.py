"""Arrays in, same kind of arrays out: NumPy, torch and the strict array-API standard agree."""

import sys

import array_api_strict
import numpy as np
import pytest
from scipy.spatial.transform import Rotation as SpatialRotation

import kernelbayes as kb
from kernelbayes.gram import Dense, LowRank
from oracles import check_embedding

KINDS = ["strict", pytest.param("torch", marks=pytest.mark.torch)]
each_kind = pytest.mark.parametrize("kind", KINDS)
each_type = pytest.mark.parametrize("dtype", [np.float64, np.float32], ids=["double", "single"])


def converter(kind, dtype=np.float64):
    """Return a function from NumPy arrays to arrays of a kind and floating type."""
    if kind == "numpy":
        return lambda x: np.asarray(x, dtype=dtype)
    if kind == "strict":
        return lambda x: array_api_strict.asarray(np.asarray(x, dtype=dtype))
    torch = pytest.importorskip("torch")
    return lambda x: torch.from_numpy(np.array(x, dtype=dtype))


def as_numpy(x):
    return x if isinstance(x, np.ndarray | np.generic | float) else np.asarray(x)


RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(9, 2)), RNG.normal(size=(5, 2))
COUNTS = RNG.integers(0, 5, size=(6, 3)).astype(float)
IMAGES = RNG.random((4, 4, 4))
ROTATIONS = SpatialRotation.random(5, RNG).as_matrix()
W = RNG.normal(size=9) / 3
BATCH = RNG.normal(size=(3, 9)) / 3
PHI = RNG.normal(size=(9, 4)) / 2
B = RNG.normal(size=(9, 3))
GRAM = PHI @ PHI.T + 0.1 * np.eye(9)
COV = np.array([[1.0, 0.3], [0.3, 0.5]])

KERNELS = [
    (kb.Gaussian(1.0), X),
    (kb.Gaussian((0.5, 2.0)), X),
    (kb.Gaussian(1e-3), 1e3 * X),  # spread over many bandwidths: differences taken directly
    (kb.Laplace(1.0), X),
    (kb.Laplace((0.5, 2.0)), X),
    (kb.Matern(1.0, 0.5), X),
    (kb.Matern(1.0, 1.5), X),
    (kb.Matern(1.0, 2.5), X),
    (kb.RationalQuadratic(1.0, 0.7), X),
    (kb.Periodic(1.0, 3.0), X),
    (kb.Periodic((1.0, 2.0), (3.0, 4.0)), X),
    (kb.Linear(), X),
    (kb.Polynomial(3, 1.0), X),
    (kb.HistogramIntersection(), COUNTS),
    (kb.Delta(), COUNTS),
    (kb.Delta(), COUNTS[:, 0]),
    (kb.Trace(), IMAGES),
    (kb.Rotation(1.0), ROTATIONS),
    (kb.SpatialPyramid(levels=1, bins=4), IMAGES),
    (kb.Custom(lambda a, b: (a @ b.T + 1.0) ** 2), X),
    (kb.Gaussian(1.0) + 2.0 * kb.Linear() * kb.Laplace(1.0), X),
    (kb.Parts({0: kb.Gaussian(1.0), 1: kb.Laplace(2.0)}), X),
    (kb.Parts({0: kb.Delta(), (1, 2): kb.Gaussian(1.0)}), COUNTS),
]
k, linear = kb.Gaussian(1.0), kb.Linear() + kb.Polynomial(2, 1.0)
narrow = kb.Gaussian(0.3)  # landmarks hardly overlap: their Gram matrix is well conditioned


def embedding(a, kernel=k):
    return kb.embed(a(X), kernel, a(W))


# Name: function of a converter of arrays; gives an array.
FUNCTIONS = {
    "embed weights": lambda a: kb.embed(a(X), k).weights,
    "embed at X": lambda a: embedding(a)(a(Y)),
    "embed scalars": lambda a: kb.embed(a(W), k)(a(Y[:, 0])),
    "inner": lambda a: embedding(a).inner(kb.embed(a(Y), k)),
    "norm": lambda a: embedding(a).norm(),
    "norm, finite": lambda a: embedding(a, kb.Linear()).norm(),
    "ess": lambda a: embedding(a).ess,
    "mass": lambda a: embedding(a).mass,
    "normalized": lambda a: embedding(a).normalized().weights,
    "algebra": lambda a: (2.0 * embedding(a) - kb.embed(a(Y), k) / 3.0)(a(Y)),
    "mmd": lambda a: kb.mmd(embedding(a), kb.embed(a(Y), k)),
    "mmd2": lambda a: kb.mmd2(embedding(a), kb.embed(a(Y), k)),
    "mmd2, finite": lambda a: kb.mmd2(embedding(a, linear), kb.embed(a(Y), linear)),
    "mmd2, unbiased": lambda a: kb.mmd2(kb.embed(a(X), k), kb.embed(a(Y), k), unbiased=True),
    "batch at X": lambda a: kb.embed(a(X), k, a(BATCH))(a(Y)),
    "batch member": lambda a: kb.embed(a(X), k, a(BATCH))[1](a(Y)),
    "batch slice": lambda a: kb.embed(a(X), k, a(BATCH))[1:].norm(),
    "batch inner": lambda a: kb.embed(a(X), k, a(BATCH)).inner(kb.embed(a(X), k, a(BATCH))),
    "batch mmd2": lambda a: kb.mmd2(kb.embed(a(X), k, a(BATCH)), kb.embed(a(Y), k)),
    "batch, finite": lambda a: kb.embed(a(X), kb.Linear(), a(BATCH))(a(Y)),
    "listed weights": lambda a: kb.embed(a(X), k, W.tolist())(a(Y)),
    "gaussian": lambda a: kb.GaussianEmbedding(a(Y[0]), a(COV), k)(a(X)),
    "gaussian norm": lambda a: kb.GaussianEmbedding(a(Y[0]), a(COV), k).norm(),
    "gaussian mass": lambda a: kb.GaussianEmbedding(a(Y[0]), a(COV), k).mass,
    "gaussian mmd": lambda a: kb.mmd(kb.GaussianEmbedding(a(Y[0]), a(COV), k), embedding(a)),
    "nystrom": lambda a: kb.nystrom(narrow, a(X), 5, rng=0)(a(Y)),
    "nystrom features": lambda a: (F := kb.nystrom(narrow, a(X), 5, rng=0).features(a(Y))) @ F.T,
    "nystrom, kmeans": lambda a: kb.nystrom(narrow, a(X), 5, rng=0, landmarks="kmeans++")(a(Y)),
    "nystrom embed": lambda a: kb.embed(a(X), kb.nystrom(narrow, a(X), 5, rng=0), a(W))(a(Y)),
    "nystrom, repeated": lambda a: kb.nystrom(narrow, a(np.repeat(X, 2, 0)), 18, rng=0)(a(Y)),
    "pivoted": lambda a: kb.pivoted_cholesky(narrow, a(X), 5, rng=0)(a(Y)),
    "pivoted diag": lambda a: kb.pivoted_cholesky(narrow, a(X), 5, rng=0).diag(a(Y)),
    "greedy": lambda a: kb.pivoted_cholesky(k, a(X), 3, method="greedy")(a(Y)),
    "fourier": lambda a: kb.fourier(k, 2, 20, rng=0)(a(X), a(Y)),
    "fourier features": lambda a: kb.fourier(kb.Laplace(1.0), 2, 20, rng=0).features(a(X)),
    "dense ridge": lambda a: Dense(a(GRAM)).ridge(0.1).solve(a(B)),
    "dense weighted": lambda a: Dense(a(GRAM)).weighted(a(np.maximum(W, 0)), 0.1).solve(a(B)),
    "dense signed": lambda a: Dense(a(GRAM)).signed(a(W), 0.1).solve(a(B)),
    "dense vector": lambda a: Dense(a(GRAM)).signed(a(W), 0.1).solve(a(W)),
    "dense factor": lambda a: (L := Dense(a(GRAM)).factor) @ L.T,
    "dense matmul": lambda a: Dense(a(GRAM)).matmul(a(B)),
    "low rank ridge": lambda a: LowRank(a(PHI)).ridge(0.1).solve(a(B)),
    "low rank weighted": lambda a: LowRank(a(PHI)).weighted(a(abs(W)), 0.1).solve(a(B)),
    "low rank signed": lambda a: LowRank(a(PHI)).signed(a(W), 0.1).solve(a(B)),
    "low rank vector": lambda a: LowRank(a(PHI)).weighted(a(abs(W)), 0.1).solve(a(W)),
    "solve features": lambda a: LowRank(a(PHI)).signed(a(W), 0.1).solve_features(a(B[:4])),
    "coefficients": lambda a: LowRank(a(PHI)).weighted(a(abs(W)), 0.1).coefficients(a(B[:4])),
}


def assert_parity(function, kind, dtype):
    """Compare with NumPy in double precision; same kind and type as the input."""
    a = converter(kind, dtype)
    found, expected = function(a), as_numpy(function(converter("numpy")))
    template = a(np.ones(2))
    assert type(found) is type(template)
    assert found.dtype == template.dtype
    # Rounding, times condition numbers below 100 (kernel widths, regularised solves); a distance
    # is the root of a difference, so 1e-6 of float32 turns into about 1e-4 of values near 0.1.
    scale = max(1.0, np.abs(expected).max())
    tolerance = (1e3 if dtype == np.float32 else 1e4) * np.finfo(dtype).eps * scale
    np.testing.assert_allclose(as_numpy(found), expected, rtol=0, atol=tolerance)


@each_kind
@each_type
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name, kind, dtype):
    assert_parity(FUNCTIONS[name], kind, dtype)


@each_kind
@each_type
@pytest.mark.parametrize(("kernel", "points"), KERNELS, ids=[repr(k)[:40] for k, _ in KERNELS])
def test_kernels(kernel, points, kind, dtype):
    points = np.asarray(points, dtype=np.float32)  # the same numbers in both precisions
    for function in (
        lambda a: kernel(a(points)),
        lambda a: kernel(a(points), a(points[:3])),
        lambda a: kernel.diag(a(points)),
        *([lambda a: kernel.features(a(points))] if kernel.finite else []),
        lambda a: kb.embed(a(points), kernel)(a(points[:3])),
    ):
        assert_parity(function, kind, dtype)


@each_type
@pytest.mark.parametrize("name", FUNCTIONS)
def test_numpy_keeps_its_type(name, dtype):
    found = FUNCTIONS[name](converter("numpy", dtype))
    assert isinstance(found, np.ndarray | np.generic)
    assert found.dtype == dtype


@each_kind
@pytest.mark.parametrize(("kernel", "points"), KERNELS, ids=[repr(k)[:40] for k, _ in KERNELS])
def test_laws(kernel, points, kind):
    a = converter(kind)
    kb.laws.check_kernel(kernel, a(points))
    check_embedding(kb.embed(a(points), kernel))


@each_kind
def test_diagnostics(kind):
    a = converter(kind)
    for gram, numpy in [(Dense(a(GRAM)), Dense(GRAM)), (LowRank(a(PHI)), LowRank(PHI))]:
        for found, expected in [
            (gram.ridge(0.1), numpy.ridge(0.1)),
            (gram.weighted(a(abs(W)), 0.1), numpy.weighted(abs(W), 0.1)),
        ]:
            assert vars(found.diagnostics) == pytest.approx(vars(expected.diagnostics))
    singular = np.ones((9, 9)) - 1e-12 * np.eye(9)
    with pytest.warns(kb.NumericalWarning):
        solver = Dense(a(singular)).ridge(1e-16)
    assert solver.diagnostics.rescues > 0
    assert np.all(np.isfinite(as_numpy(solver.solve(a(B)))))
    for make in (lambda G: G.ridge(1e-9), lambda G: G.factor):
        with pytest.raises(np.linalg.LinAlgError, match="check_kernel"):
            make(Dense(a([[1.0, 2.0], [2.0, 1.0]])))
    with pytest.raises(ValueError, match="NaN"):
        Dense(a([[1.0, np.nan], [np.nan, 1.0]]))


MIXED = {
    "kernel": lambda a, b: k(a(X), b(Y)),
    "linear kernel": lambda a, b: kb.Linear()(a(X), b(Y)),
    "weights": lambda a, b: kb.embed(a(X), k, b(W)),
    "evaluation": lambda a, b: embedding(a)(b(Y)),
    "sum": lambda a, b: embedding(a) + kb.embed(b(Y), k),
    "mmd": lambda a, b: kb.mmd(embedding(a), kb.embed(b(Y), k)),
    "mmd, finite": lambda a, b: kb.mmd(embedding(a, linear), kb.embed(b(Y), linear)),
    "inner, finite": lambda a, b: embedding(a, kb.Linear()).inner(embedding(b, kb.Linear())),
    "gaussian": lambda a, b: kb.GaussianEmbedding(a(Y[0]), a(COV), k)(b(X)),
    "landmarks": lambda a, b: kb.nystrom(narrow, a(X), 5, rng=0)(b(Y)),
    "ridge": lambda a, b: Dense(a(GRAM)).ridge(0.1).solve(b(B)),
    "weighted": lambda a, b: Dense(a(GRAM)).weighted(b(abs(W)), 0.1),
    "signed": lambda a, b: Dense(a(GRAM)).signed(a(W), 0.1).solve(b(B)),
    "low rank ridge": lambda a, b: LowRank(a(PHI)).ridge(0.1).solve(b(B)),
    "low rank signed": lambda a, b: LowRank(a(PHI)).signed(b(W), 0.1),
}


@each_kind
@pytest.mark.parametrize("swap", [False, True])
@pytest.mark.parametrize("name", MIXED)
def test_mixed_kinds_are_refused(name, kind, swap):
    if name == "weights" and not swap:
        swap = True  # plain NumPy weights, like lists, take the kind of the points
    a, b = converter(kind), converter("numpy")
    with pytest.raises(TypeError, match="one kind"):
        MIXED[name](b, a) if swap else MIXED[name](a, b)


@each_kind
def test_bessel_functions_are_for_numpy(kind):
    with pytest.raises(TypeError, match=r"use nu 0\.5, 1\.5 or 2\.5"):
        kb.Matern(1.0, 0.7)(converter(kind)(X))


def test_results_stay_on_their_device(monkeypatch):
    """A second device of the strict standard stands for a GPU: nothing is made on another one."""
    cpu, other = (array_api_strict.Device(name) for name in ("CPU_DEVICE", "device1"))
    to_numpy = kb.arrays.to_numpy

    def from_device(x):  # what torch does with .cpu()
        return to_numpy(x.to_device(cpu) if isinstance(x, type(array_api_strict.ones(1))) else x)

    for module in [m for name, m in sys.modules.items() if name.startswith("kernelbayes.")]:
        if hasattr(module, "to_numpy"):
            monkeypatch.setattr(module, "to_numpy", from_device)

    def a(x):
        return array_api_strict.asarray(np.asarray(x, dtype=np.float64), device=other)

    for function in FUNCTIONS.values():
        assert function(a).device == other
    for kernel, points in KERNELS:
        assert kernel(a(points)).device == other
        assert kernel(a(points), a(points[:2])).device == other
        assert kernel.diag(a(points)).device == other
