r"""Goodness of fit of a sample to a density that is known up to a constant.

The score s(x) = grad log p(x) does not know the constant. With it, Stein's operator makes of a
kernel another one whose mean under p is zero (Chwialkowski, Strathmann and Gretton 2016; Liu, Lee
and Jordan 2016),

.. math:: u_p(x, y) = s(x)^\top s(y)\, k + s(x)^\top \nabla_y k + s(y)^\top \nabla_x k
          + \mathrm{tr}\, \nabla_x \nabla_y k

and the kernel Stein discrepancy is its mean over pairs of points of the sample.
"""

from collections.abc import Callable

import numpy as np
from scipy.spatial.distance import cdist

from kernelbayes.arrays import as_doubles, as_generator, as_known, row_blocks, to_numpy
from kernelbayes.compare.nulls import autoregression
from kernelbayes.compare.problem import MOST_POINTS, check_sizes, pvalue
from kernelbayes.compare.result import KernelTestResult, Witness
from kernelbayes.kernels import Kernel, RationalQuadratic
from kernelbayes.points import integer, positive, share
from kernelbayes.types import Floats, Generator, PointsLike, Rng

# Inverse multiquadric (1 + |x - y|^2 / h^2)^(-1/2): its slow decay sees mass that escapes, which a
# Gaussian kernel does not from three dimensions on (Gorham and Mackey 2017, theorem 8).
INVERSE_MULTIQUADRIC = 0.5

Score = Callable[[Floats], Floats]


def ksd_test(
    X: PointsLike,
    score: Score | Floats,
    kernel: Kernel | None = None,
    draws: int = 1000,
    rng: Rng = None,
    *,
    sample: Callable[[int, Generator], Floats] | None = None,
    block_length: float | None = None,
    alpha: float = 0.05,
) -> KernelTestResult:
    r"""Test whether a sample has the density whose score is given, by its Stein discrepancy.

    Parameters
    ----------
    X : points (n, d)
    score : function from points (m, d) to (m, d), or an array (n, d)
        The gradient of log p; p need not be normalised. An array holds it at the points X.
    kernel : Kernel, optional
        A ``RationalQuadratic`` or ``Gaussian`` kernel. None: the inverse multiquadric,
        ``RationalQuadratic(h, alpha=1/2)``, with the median distance as h.
    draws : int
        Of the null distribution.
    rng : int, Generator or None
    sample : function (n, rng) to points (n, d), optional
        Draws from p itself, if it can be sampled. The null distribution is then that of such
        samples and the level exact at every n; ``score`` must be a function, and the kernel does
        not look at the sample (by default its bandwidth is the median of a first draw).
        Otherwise the null distribution is a wild bootstrap, whose level is right for large n.
    block_length : float, optional
        Memory, in steps, of the bootstrap for a sample that is a time series or a Markov chain.
    alpha : float

    Returns
    -------
    KernelTestResult
        ``statistic``: mean of u_p over all pairs. ``witness``: mean of u_p(x_i, .) over the
        sample, large where the sample and the density disagree.

    Notes
    -----
    The score is blind to the weights of modes that are far apart: a sample that lies in one of them
    passes. Constants of the density do not matter.

    Examples
    --------
    >>> import numpy as np
    >>> import kernelbayes as kb
    >>> x = np.random.default_rng(0).normal(size=(200, 1))
    >>> kb.ksd_test(x, lambda x: -x, rng=0).pvalue > 0.05  # a standard normal
    True
    >>> kb.ksd_test(x + 0.5, lambda x: -x, rng=0).pvalue < 0.05
    True
    """
    rng, draws, alpha = as_generator(rng), integer(draws, "draws"), share(alpha, "alpha")
    points = RationalQuadratic(1.0).points(X, "X")
    P = as_doubles(points)
    check_sizes(2, X=len(P))
    if len(P) > MOST_POINTS:
        raise ValueError(f"X has {len(P)} points; take {MOST_POINTS} of them at random")
    S, one = _scores(score, P), np.ones((len(P), 1))
    if sample is not None:
        if not callable(score):
            raise TypeError("samples of the density need their scores: give score as a function")
        if block_length is not None:
            raise ValueError("block_length is for the bootstrap; it does not go with sample")
        kernel = _kernel(kernel, _shaped(sample(len(P), rng), P, "sample"))
        values, means = stein_forms(P, S, kernel, one)
        others = (_shaped(sample(len(P), rng), P, "sample") for _ in range(draws))
        null = [stein_forms(Q, _scores(score, Q), kernel, one)[0] for Q in others]
        values = np.concatenate([values, *null])
    else:
        kernel = _kernel(kernel, P)
        if block_length is None:
            W = np.where(rng.random((len(P), draws)) < 0.5, -1.0, 1.0)
        else:
            W, _ = autoregression(len(P), draws, positive(block_length, "block_length"), rng)
        values, means = stein_forms(P, S, kernel, np.hstack([one, W]))
    # Rounding is judged by the size of the terms.
    scale = float(np.abs(stein_matrix(P[:1], S[:1], P[:1], S[:1], kernel)).max())
    return KernelTestResult(
        statistic=float(values[0]),
        pvalue=pvalue(float(values[0]), values[1:], scale),
        null=values[1:],
        kernel=kernel,
        effect=None,
        power_estimate=None,
        alpha=alpha,
        test="KSD",
        method="wild" if sample is None else "simulation",
        sizes=(len(P),),
        witness=Witness(points, means[:, 0]),
        details={"block_length": block_length},
    )


def stein_matrix(P: Floats, S: Floats, Q: Floats, R: Floats, kernel: Kernel) -> Floats:
    """Matrix u_p (n, m) of points P, Q with scores S, R."""
    h = as_doubles(getattr(kernel, "bandwidth", 1.0)) * np.ones(P.shape[1])
    found = kernel.slopes(-0.5 * cdist(P / h, Q / h, "sqeuclidean"))
    assert found is not None
    k, first, second = found
    p, q = P / h**2, Q / h**2
    # (s(x) - s(y)) . (x - y) / h^2, term by term.
    mixed = np.sum(S * p, axis=1)[:, None] + np.sum(R * q, axis=1) - S @ q.T - p @ R.T
    trace = first * np.sum(1.0 / h**2) - second * cdist(p, q, "sqeuclidean")
    return np.asarray(k * (S @ R.T) + first * mixed + trace)


def stein_forms(P: Floats, S: Floats, kernel: Kernel, W: Floats) -> tuple[Floats, Floats]:
    """Means of w_i w_j u_p(x_i, x_j) over i and j (b,), of w_j u_p over j (n, b), for W (n, b)."""
    blocks = row_blocks(len(P), len(P))
    U = [stein_matrix(P[rows], S[rows], P, S, kernel) @ W / len(P) for rows in blocks]
    means = np.concatenate(U)
    return np.einsum("ib,ib->b", W, means) / len(P), means


def _kernel(kernel: Kernel | None, P: Floats) -> Kernel:
    if kernel is None:
        return RationalQuadratic.median(P, alpha=INVERSE_MULTIQUADRIC)
    if not isinstance(kernel, Kernel) or kernel.slopes(np.zeros(1)) is None:
        raise TypeError(
            "a Stein discrepancy needs a kernel with two derivatives: RationalQuadratic or "
            f"Gaussian, got {kernel!r}"
        )
    return kernel


def _scores(score: Score | Floats, P: Floats) -> Floats:
    """Scores (n, d) at points, checked."""
    return _shaped(score(P.copy()) if callable(score) else score, P, "score")


def _shaped(found: Floats, P: Floats, name: str) -> Floats:
    """Numbers in the shape of the points P (n, d)."""
    values = as_doubles(to_numpy(as_known(found, name)))
    values = values[:, None] if values.ndim == 1 and P.shape[1] == 1 else values
    if values.shape != P.shape:
        raise ValueError(f"{name} must have the shape of the points, {P.shape}: {values.shape}")
    return values
