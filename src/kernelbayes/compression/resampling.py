"""Resampling: from uneven weights to equal ones."""

from typing import Literal, NamedTuple

import numpy as np

from kernelbayes.arrays import as_generator, like, to_float, to_numpy, warn
from kernelbayes.compression.compressed import METHODS, Method, copies, problem
from kernelbayes.embedding import Embedding
from kernelbayes.gram import Gram
from kernelbayes.points import integer, number, option, take
from kernelbayes.types import Array, Ints, Rng


class Resampled(NamedTuple):
    """What :func:`resample` gives: the embedding, and whether it is a new one."""

    embedding: Embedding
    resampled: bool
    error: float  # RKHS distance to the given embedding divided by its mass; 0 if kept
    indices: Ints | None  # which of the points, with repetitions; None if kept


def resample(
    mu: Embedding,
    m: int | None = None,
    *,
    threshold: float = 0.5,
    method: Method | Literal["multinomial"] = "herding",
    picks: int | None = None,
    rows: Gram | Array | None = None,
    rng: Rng = None,
) -> Resampled:
    """Replace uneven weights by equal ones if the effective sample size is small.

    Sampling a transition at each point of a weighted sample has the variance of the weights,
    2 C sum_i w_i^2 (KMCF16 eq. 3.5). Resampling first moves the embedding a little and brings the
    sum of squares down to 1/n (KMCF16 eq. 3.8). It pays, and is done, if ``mu.ess < threshold * n``
    (KMCF16 section 3.3 has 1/2). Weights may be negative, which rules out the resampling of
    particle filters; herding does not mind.

    Parameters
    ----------
    mu : Embedding
        Of n points. Weights need not sum to one.
    m : int, optional
        Number of equally weighted points of the result, n by default.
    threshold : float
        Share of n below which the effective sample size is too small; ``inf`` always resamples.
    method : {"herding", "exchange", "line-search", "fully-corrective", "multinomial"}
        As in :func:`compress`. "multinomial" is what particle filters do, independent draws from
        the weights with the negative ones set to zero: for comparison, it does not preserve mu
        (KMCF16 section 3.5).
    picks : int, optional
        Herd only this many points and copy each m / picks times (KMCF16 section 3.3), m by default.
    rows : Gram or array (n, n), optional
        As in :func:`compress`. With it, a call costs O(n picks) and evaluates no kernel.
    rng : int, Generator or None
        For "multinomial".

    Examples
    --------
    >>> import numpy as np
    >>> from kernelbayes import Gaussian, embed, resample
    >>> X = np.linspace(-3.0, 3.0, 100)
    >>> mu = embed(X, Gaussian(0.5), np.exp(-8.0 * X**2) / 10.4)
    >>> new, resampled, error, _ = resample(mu)
    >>> resampled, round(float(mu.ess)), round(float(new.ess)), error < 0.01
    (True, 15, 100, True)
    >>> resample(new).resampled
    False
    """
    if not isinstance(mu, Embedding):
        raise TypeError(
            f"resample takes one Embedding, got {type(mu).__name__}; take a batch's members in turn"
        )
    if not number(threshold, "threshold") >= 0:
        raise ValueError(f"threshold must be a share of the number of points, got {threshold!r}")
    m = len(mu) if m is None else integer(m, "m")
    picks = None if picks is None else integer(picks, "picks")
    option(method, "method", (*METHODS, "multinomial"))
    generator = as_generator(rng)
    if to_float(mu.ess) >= threshold * len(mu):
        return Resampled(mu, False, 0.0, None)
    task = problem(mu, None, rows, m)
    if method == "multinomial":
        positive = np.maximum(to_numpy(mu.weights), 0.0).astype(np.float64)
        if not positive.sum() > 0:
            warn("no weight is positive: multinomial resampling draws from all points alike")
            positive[:] = 1.0
        indices: Ints = generator.choice(len(positive), size=m, p=positive / positive.sum())
    else:
        found, w, _ = task.pick(min(m, picks or m), method)
        indices = found[copies(w, m)]
    weights = like(np.full(m, 1.0 / m), mu.weights)
    new = Embedding(take(mu.points, indices), weights, mu.kernel, mu.names)
    return Resampled(new, True, task.squared_error(indices) ** 0.5, indices)
