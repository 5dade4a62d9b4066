"""Warped kernels: transformed coordinates, medians, missing coordinates."""

import pickle

import numpy as np
import pytest
from sklearn.base import clone

import kernelbayes as kb

X = np.random.default_rng(0).standard_t(2, size=(40, 2)) * [1.0, 50.0]


@pytest.mark.parametrize(
    ("transform", "function"),
    [("asinh", np.arcsinh), ("log", lambda u: np.log(np.maximum(np.abs(u), 0.01)))],
)
def test_it_is_the_inner_kernel_of_transformed_points(transform, function):
    inner = kb.Gaussian((0.5, 2.0))
    kernel = kb.Warped(inner, transform, (1.0, 50.0))
    U = function(X / [1.0, 50.0])
    np.testing.assert_allclose(kernel(X), inner(U), rtol=1e-12)
    np.testing.assert_allclose(kernel(X[:3], X), inner(U[:3], U), rtol=1e-9)


def test_norm_is_the_inner_kernel_of_the_logarithm_of_the_root_mean_square():
    kernel = kb.Warped(kb.Gaussian(0.7), "norm", (1.0, 50.0))
    U = np.log(np.sqrt(np.mean((X / [1.0, 50.0]) ** 2, axis=1, keepdims=True)))
    np.testing.assert_allclose(kernel(X), kb.Gaussian(0.7)(U), rtol=1e-9)
    np.testing.assert_allclose(kernel(-X, X), kernel(X), rtol=1e-12)
    scalar = kb.Warped(kb.Gaussian(0.7), "log", 2.0)(X[:, :1])
    np.testing.assert_allclose(kb.Warped(kb.Gaussian(0.7), "norm", 2.0)(X[:, :1]), scalar)


def test_medians_do_not_depend_on_units():
    for transform in ("asinh", "log", "norm"):
        kernel, other = (kb.Warped.median(A, transform, 0.5) for A in (X, 1000.0 * X))
        np.testing.assert_allclose(kernel(X), other(1000.0 * X), rtol=1e-9)
        inner = kb.Warped.median(X, transform).kernel
        assert kernel.kernel.bandwidth == pytest.approx(0.5 * inner.bandwidth)


def test_zeros_and_far_points_stay_finite():
    for transform in ("log", "norm"):
        kernel = kb.Warped.median(np.r_[X, np.zeros((5, 2))], transform)
        values = kernel([[0.0, 0.0], [1e300, -1e300]])
        np.testing.assert_array_equal(np.diag(values), 1.0)
        assert np.isfinite(values).all()


def test_a_column_of_zeros():
    kernel = kb.Warped.median(np.column_stack([X[:, 0], np.zeros(len(X))]))
    assert kernel.unit[1] == 1.0


def test_saved_cloned_compared():
    kernel = kb.Warped(kb.Laplace(2.0), "log", (1.0, 3.0))
    assert pickle.loads(pickle.dumps(kernel)) == kernel != kb.Warped(kb.Laplace(2.0), "asinh")
    assert hash(kernel) == hash(kb.Warped(kb.Laplace(2.0), "log", (1.0, 3.0)))
    assert clone(kb.KernelBayesFilter(kernel)).kernel_x == kernel


def test_missing_coordinates_are_left_out():
    rng = np.random.default_rng(1)
    z = np.cumsum(rng.normal(size=(80, 1)), axis=0)
    x = np.column_stack([np.sinh(z[:, 0]), rng.standard_cauchy(80)])
    options = {"kernel_z": kb.Gaussian(2.0), "ridge": 0.01, "prior_ridge": 1e-3}
    options |= {"transition_ridge": 1e-3, "rng": 0}
    both = kb.KernelBayesFilter(kb.Warped(kb.Gaussian(1.0), "asinh", (1.0, 2.0)), **options)
    one = kb.KernelBayesFilter(kb.Warped(kb.Gaussian(1.0)), **options)
    holes = np.column_stack([x[:20, 0], np.full(20, np.nan)])
    found = both.fit(x, z).filter(holes).mean()
    np.testing.assert_allclose(found, one.fit(x[:, :1], z).filter(x[:20, :1]).mean(), atol=1e-6)


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda: kb.Warped(1.0), TypeError, "must be a Kernel"),
        (lambda: kb.Warped(kb.Linear(), "sqrt"), ValueError, "one of 'asinh', 'log', 'norm'"),
        (lambda: kb.Warped(kb.Linear(), "log", -1.0), ValueError, "unit must be positive"),
        (lambda: kb.Warped(kb.Linear(), "log", (1.0, 2.0, 3.0))(X), ValueError, "3 units"),
    ],
)
def test_bad_arguments_are_named(make, error, words):
    with pytest.raises(error, match=words):
        make()


@pytest.mark.torch
def test_the_norm_of_nothing_has_a_gradient():
    torch = pytest.importorskip("torch")
    x = torch.zeros(1, 2, dtype=torch.float64, requires_grad=True)
    kb.Warped(kb.Gaussian(1.0), "norm")(x, torch.ones(3, 2, dtype=torch.float64)).sum().backward()
    assert torch.all(torch.isfinite(x.grad))
