"""Torch results are differentiable: derivatives against finite differences, in double precision.

``gradcheck`` compares with central differences of step 1e-6: their error is about 1e-10 / 1e-6 from
rounding and 1e-12 from curvature, far below its default tolerances (atol 1e-5, rtol 1e-3).
"""

import numpy as np
import pytest
from scipy.spatial.transform import Rotation as SpatialRotation

import kernelbayes as kb
from kernelbayes.gram import Dense, LowRank

pytestmark = pytest.mark.torch

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(5, 2)), RNG.normal(size=(4, 2))
W = RNG.normal(size=5)
PHI = RNG.normal(size=(5, 3))
k = kb.Gaussian(1.0)

KERNELS = [
    kb.Gaussian(1.0),
    kb.Gaussian((0.5, 2.0)),
    kb.Laplace(1.0),
    kb.Matern(1.0, 0.5),
    kb.Matern(1.0, 1.5),
    kb.Matern(1.0, 2.5),
    kb.RationalQuadratic(1.0, 0.7),
    kb.Periodic(1.0, 3.0),
    kb.Linear(),
    kb.Polynomial(3, 1.0),
    2.0 * kb.Gaussian(1.0) + kb.Linear() * kb.Laplace(1.0),
    kb.Parts({0: kb.Gaussian(1.0), 1: kb.Laplace(2.0)}),
    kb.nystrom(k, X, 3, rng=0),
    kb.fourier(k, 2, 6, rng=0),
]


def variables(*arrays):
    torch = pytest.importorskip("torch")
    return tuple(torch.tensor(a, dtype=torch.float64, requires_grad=True) for a in arrays)


def assert_differentiable(function, *arrays):
    torch = pytest.importorskip("torch")
    assert torch.autograd.gradcheck(function, variables(*arrays))


def torch_kernel(kernel):
    """Give landmarks the kind of the points they will meet."""
    torch = pytest.importorskip("torch")
    if isinstance(kernel, kb.Landmarks):
        return kb.nystrom(k, torch.tensor(X), 3, rng=0)
    return kernel


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda k: repr(k)[:40])
def test_kernels(kernel):
    kernel = torch_kernel(kernel)
    assert_differentiable(lambda x, y: kernel(x, y), X, Y)
    assert_differentiable(lambda x: kernel(x), X)
    assert_differentiable(lambda x: kernel.diag(x), X)
    assert_differentiable(lambda x, w: kb.embed(x, kernel, w)(x[:2, :]), X, W)


@pytest.mark.parametrize("kernel", [kb.Trace(), kb.HistogramIntersection()], ids=repr)
def test_kernels_of_other_points(kernel):
    shape = (4, 2, 3) if isinstance(kernel, kb.Trace) else (4, 3)
    points = RNG.random((2, *shape))
    assert_differentiable(lambda x, y: kernel(x, y), *points)


def test_rotations_along_the_group():
    """Rotations are checked on input, so they are differentiated along rotations about an axis."""
    torch = pytest.importorskip("torch")
    R = torch.tensor(SpatialRotation.random(3, RNG).as_matrix())

    def turned(angle):
        zero, one = torch.zeros_like(angle), torch.ones_like(angle)
        c, s = torch.cos(angle), torch.sin(angle)
        rows = torch.stack([c, -s, zero, s, c, zero, zero, zero, one], dim=1)
        return kb.Rotation(1.0)(rows.reshape(-1, 3, 3), R)

    assert_differentiable(turned, np.array([0.3, -1.0]))


@pytest.mark.parametrize(
    "kernel", [kb.Gaussian(1.0), kb.Matern(1.0, 1.5), kb.Linear() + k], ids=repr
)
@pytest.mark.parametrize("unbiased", [False, True])
def test_mmd2(kernel, unbiased):
    def distance(x, y):
        return kb.mmd2(kb.embed(x, kernel), kb.embed(y, kernel), unbiased=unbiased)

    assert_differentiable(distance, X, Y)


@pytest.mark.parametrize("nu", [0.5, 1.5, 2.5])
def test_equal_points_have_finite_derivatives(nu):
    """The distance has a kink at zero; the derivative there is finite, not NaN."""
    (x,) = variables(np.zeros((3, 2)))
    for kernel in (kb.Matern(1.0, nu), kb.Laplace(1.0), kb.Gaussian(1.0)):
        (kernel(x).sum() + kernel(x, x.detach().clone()).sum()).backward()
        assert bool(x.grad.isfinite().all())


def test_gaussian_measure():
    def value(mean, root, x):
        return kb.GaussianEmbedding(mean, root @ root.T, k)(x)

    def norm(mean, root):
        return kb.GaussianEmbedding(mean, root @ root.T, k).norm()

    root = np.array([[1.0, 0.0], [0.4, 0.7]])
    assert_differentiable(value, Y[0], root, X)
    assert_differentiable(norm, Y[0], root)


GRAMS = {"dense": lambda phi: Dense(phi @ phi.T), "low rank": LowRank}
SOLVERS = {
    "ridge": lambda gram, w, b: gram.ridge(0.1).solve(b) + 0.0 * w[:, None],
    "weighted": lambda gram, w, b: gram.weighted(w * w, 0.1).solve(b),
    "signed": lambda gram, w, b: gram.signed(w, 0.1).solve(b),
}


@pytest.mark.parametrize("gram", GRAMS)
@pytest.mark.parametrize("name", SOLVERS)
def test_solvers(gram, name):
    """Through G, the weights and the right-hand sides; G has rank 3 of 5: repeated eigenvalues."""
    assert_differentiable(
        lambda phi, w, b: SOLVERS[name](GRAMS[gram](phi), w, b), PHI, W, RNG.normal(size=(5, 2))
    )


@pytest.mark.parametrize("gram", GRAMS)
def test_weights_of_zero_have_finite_derivatives(gram):
    """The importance rule takes max(0, gamma): where gamma < 0 the derivative is exactly zero."""
    phi, gamma, b = variables(PHI, [-1.0, 0.5, -0.2, 1.0, 0.3], RNG.normal(size=5))
    GRAMS[gram](phi).weighted(gamma.clamp(min=0.0), 0.1).solve(b).sum().backward()
    assert bool(phi.grad.isfinite().all())
    assert gamma.grad[0] == gamma.grad[2] == 0.0
    assert bool((gamma.grad[[1, 3, 4]] != 0.0).all())


@pytest.mark.parametrize("make", [kb.Gaussian, kb.Laplace, kb.Matern, kb.RationalQuadratic])
@pytest.mark.parametrize("h", [0.8, [0.5, 2.0]])
def test_a_bandwidth_keeps_its_gradient(make, h):
    torch = pytest.importorskip("torch")
    (bandwidth,) = variables(np.array(h))
    x, y = (torch.tensor(a, dtype=torch.float64) for a in (X, Y))
    assert torch.autograd.gradcheck(lambda h: make(h)(x, y), (bandwidth,))
    assert torch.autograd.gradcheck(lambda h: make(h).scaled(2.0)(x, y), (bandwidth,))
    kernel = make(bandwidth)
    assert kernel == make(tuple(h) if isinstance(h, list) else h)  # comparable as ever
    assert isinstance(kernel(X, Y), np.ndarray)  # NumPy points see the number


def test_a_ridge_regression_is_differentiable_by_its_bandwidth():
    torch = pytest.importorskip("torch")
    (bandwidth,) = variables(np.array(0.8))
    x, z = (torch.tensor(a, dtype=torch.float64) for a in (X, PHI[:, :1]))

    def means(h):
        cme = kb.ConditionalEmbedding(kb.Gaussian(h), kb.Gaussian(1.0), ridge=0.1).fit(x, z)
        return cme.conditional_(x).mean()

    assert torch.autograd.gradcheck(means, (bandwidth,))
