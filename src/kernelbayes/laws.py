"""Laws that every kernel obeys, to run on your own.

``check_kernel(kernel, points)`` raises an AssertionError that says which law is broken and by how
much. The library's own kernels are tested with it on random points.

>>> from kernelbayes import Gaussian, laws
>>> laws.check_kernel(Gaussian(1.0) + 2.0 * Gaussian(0.1), [0.0, 1.0, 1.0, 3.0])
"""

import contextlib

import numpy as np

from kernelbayes.arrays import epsilon, like, to_numpy
from kernelbayes.gram.lapack import eigenvalues
from kernelbayes.kernels import Kernel, Parts, Product, Scaled, Sum
from kernelbayes.points import count, take
from kernelbayes.types import Array, Floats, Points, PointsLike


def check_kernel(kernel: Kernel, points: PointsLike) -> None:
    """Check the laws of a positive semi-definite kernel on some points.

    Exact symmetry; the diagonal is exactly ``diag``; k(X, Y) agrees with k(X) and with its
    transpose; positive semi-definite; Cauchy-Schwarz; the order of rows does not matter; composite
    kernels agree with their definition; features reproduce the kernel; float32 and float64 agree.
    What the kernel says of itself is true: ``scaled``, ``on``, ``paired``, ``mean_of``, ``exact``.

    Give a few dozen points (n, ...) of the space, duplicates welcome. An AssertionError says which
    law is broken.
    """
    X = kernel.points(points)
    _check_values(kernel, X)
    _check_definition(kernel, X)
    _check_answers(kernel, X)
    if isinstance(X, np.ndarray) and X.dtype == np.float64:
        rounded = to_numpy(kernel(X.astype(np.float32).astype(np.float64)))
        scale, limits = _size(kernel, rounded), np.finfo(np.float32)
        if scale < float(limits.max):
            single = to_numpy(kernel(X.astype(np.float32)))
            # float32 kernels may lose half the digits where points spread over many bandwidths.
            tolerance = 4.0 * scale * float(limits.eps) ** 0.5 + float(limits.tiny)
            _close(single, rounded, tolerance, "float32 = float64")


def _check_values(kernel: Kernel, X: Points) -> None:
    n = count(X)
    G = to_numpy(kernel(X))
    diag = to_numpy(kernel.diag(X))
    assert G.shape == (n, n), f"k(X) must have shape ({n}, {n}), got {G.shape}"
    assert diag.shape == (n,), f"diag(X) must have shape ({n},), got {diag.shape}"
    assert np.all(np.isfinite(G)), "k(X) has NaN or infinite entries"
    assert np.array_equal(G, G.T), "k(X) must be exactly symmetric"
    assert np.array_equal(np.diagonal(G), diag), "the diagonal of k(X) must be exactly diag(X)"
    tolerance = _tolerance(kernel, X, G)
    copy = take(X, np.arange(n))
    _close(to_numpy(kernel(X, copy)), G, tolerance, "k(X, Y) = k(X) for Y a copy of X")
    half = slice(0, max(1, n // 2))
    cross = to_numpy(kernel(take(X, half), X))
    _close(cross, G[half], tolerance, "k of some rows = some rows of k")
    _close(to_numpy(kernel(X, take(X, half))), cross.T, tolerance, "k(X, Y) = k(Y, X)^T")
    smallest = float(eigenvalues(G.astype(np.float64)).min())
    largest = float(diag.max(initial=0.0))
    assert smallest >= -n * tolerance, f"not positive semi-definite: eigenvalue {smallest:.3e}"
    assert diag.min() >= 0, "k(x, x) must not be negative"
    excess = float((np.abs(G) - np.outer(np.sqrt(diag), np.sqrt(diag))).max())
    assert excess <= tolerance + 1e-12 * largest, f"Cauchy-Schwarz is broken by {excess:.3e}"
    order = np.random.default_rng(0).permutation(n)
    permuted = to_numpy(kernel(take(X, order)))
    _close(permuted, G[np.ix_(order, order)], tolerance, "the order of rows does not matter")


def _check_definition(kernel: Kernel, X: Points) -> None:
    """Agreement of composite kernels, at every depth, with the formulas that define them."""
    G = kernel(X)
    tolerance = _tolerance(kernel, X, to_numpy(G))
    match kernel:
        case Sum(left=left, right=right):
            expected, children = left(X) + right(X), [(left, X), (right, X)]
        case Product(left=left, right=right):
            expected, children = left(X) * right(X), [(left, X), (right, X)]
        case Scaled(factor=factor, kernel=inner):
            expected, children = factor * inner(X), [(inner, X)]
        case Parts(parts=parts):
            children = [(inner, kernel.part(X, key)) for key, inner in parts]
            expected = np.prod([to_numpy(inner(part)) for inner, part in children], axis=0)
        case _:
            expected, children = G, []
    _close(to_numpy(G), to_numpy(expected), tolerance, f"{type(kernel).__name__} = its definition")
    for inner, part in children:
        _check_definition(inner, inner.points(part))
    if kernel.finite:
        features = to_numpy(kernel.features(X))
        _close(to_numpy(G), features @ features.T, tolerance, "k(X) = features(X) features(X)^T")


def _check_answers(kernel: Kernel, X: Points) -> None:
    """Truth of what a kernel says of itself."""
    G = to_numpy(kernel(X))
    tolerance = _tolerance(kernel, X, G)
    assert kernel.scaled(1.0) == kernel, "scaled(1) must be the kernel itself"
    twice = kernel.scaled(2.0).scaled(4.0)  # powers of two: exact in floating point
    assert twice == kernel.scaled(8.0), "scaled(a).scaled(b) must be scaled(ab)"
    assert twice(X).shape == G.shape, "scaled must keep the space"
    assert kernel.exact.exact == kernel.exact, "the exact kernel must not be an approximation"
    assert not kernel.is_vector or (kernel.takes_rows and not kernel.is_curved), (
        "vectors are rows of a flat space"
    )
    other = take(X, np.arange(count(X))[::-1])
    pairs = to_numpy(kernel(X, other)).diagonal()
    _close(to_numpy(kernel.paired(X, other)), pairs, tolerance, "paired = diagonal of k(X, Y)")
    with contextlib.suppress(TypeError):  # a kernel may refuse, but not be wrong
        d = len(X) if isinstance(X, list | dict) else X.shape[-1]
        _close(to_numpy(kernel.on(range(d))(X)), G, tolerance, "on(all columns) = the kernel")
    with contextlib.suppress(TypeError):
        same = take(X, [0, 0])
        mean = kernel.mean_of(same, like(np.full(2, 0.5), kernel.diag(same)))
        if isinstance(mean, dict) == isinstance(X, dict):
            parts = mean if isinstance(mean, dict) else {"": mean}
            rows = {name: part[None, ...] for name, part in parts.items()}
            one = rows if isinstance(mean, dict) else rows[""]
            found = to_numpy(kernel(kernel.points(one), same))
            _close(found, to_numpy(kernel(same))[:1], tolerance, "the mean of one point is it")


def _tolerance(kernel: Kernel, X: Points, G: Floats) -> float:
    """Allow the square root of the precision, relative to the size of the kernel's values.

    That is what radial kernels promise when points spread over many bandwidths.
    """
    return float(4.0 * epsilon(kernel.diag(X)) ** 0.5 * _size(kernel, G))


def _size(kernel: Kernel, G: Floats) -> float:
    # An approximation may vanish far from its landmarks: its values do not tell its size.
    return max(float(np.abs(G).max()), 1.0 if kernel.finite else float(np.finfo(float).tiny))


def _close(found: Array, expected: Array, tolerance: float, law: str) -> None:
    error = float(np.max(np.abs(np.asarray(found, float) - to_numpy(expected))))
    assert error <= tolerance, f"{law}: off by {error:.3e}, allowed {tolerance:.3e}"
