"""Herding, compressing and thinning: functions on embeddings and samples."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from array_api_compat import is_array_api_obj

from kernelbayes.arrays import Array, Floats, Ints, like, namespace, to_numpy
from kernelbayes.compression.problem import METHODS, Method, Problem, problem
from kernelbayes.embedding import Batch, Embedding, MeanElement
from kernelbayes.embedding.gaussian import GaussianEmbedding
from kernelbayes.gram import Gram
from kernelbayes.herding import (
    exchange,
    greedy,
    herd_anywhere,
    squared_errors,
)
from kernelbayes.kernels import Kernel
from kernelbayes.points import Points, PointsLike, count, take


@dataclass(frozen=True, eq=False)
class Compressed:
    """Points and weights that stand for an embedding.

    Attributes
    ----------
    points : points (k, ...)
        In the order of picking. With equal weights, k is the number of picks and points may repeat;
        otherwise the points are distinct and those of weight zero are left out.
    weights : array (k,)
        Not negative, sum one.
    errors : array
        RKHS distance to the embedding (divided by its mass) after each pick; for ``"exchange"``
        the last entry is the distance after the exchanges.
    indices : array (k,) of int, or None
        Which candidates they are; None after a search over all space.
    """

    points: Points
    weights: Array
    kernel: Kernel = field(repr=False)
    errors: Floats
    indices: Ints | None
    names: tuple[str, ...] | None = field(default=None, repr=False)

    @property
    def error(self) -> float:
        """RKHS distance at the end."""
        return float(self.errors[-1])

    @property
    def distinct(self) -> int:
        """Number of different points."""
        if self.indices is not None:
            return len(np.unique(self.indices))
        return len(np.unique(to_numpy(self.points), axis=0))

    @cached_property
    def embedding(self) -> Embedding:
        """The embedding of these points and weights, of mass one."""
        return Embedding(self.points, self.weights, self.kernel, self.names)

    def copies(self, n: int) -> Ints:
        """Return positions (n,) in ``points`` that repeat each point in proportion to its weight.

        Equally weighted, ``take(points, copies(n))`` stands for the same distribution:
        exactly if n times every weight is whole, as when n is a multiple of the number of picks
        (KMCF16 section 3.3). Otherwise the largest remainders are rounded up, early picks first.
        """
        return copies(to_numpy(self.weights), n)


def copies(weights: Floats, n: int) -> Ints:
    """Positions (n,), each repeated in proportion to its weight; largest remainders rounded up."""
    if n < 1:
        raise ValueError(f"the number of copies must be at least 1, got {n}")
    shares = n * weights.astype(np.float64)
    counts = np.floor(shares + 1e-9).astype(np.int64)
    order = np.argsort(counts - shares, kind="stable")
    counts[order[: n - counts.sum()]] += 1
    return np.repeat(np.arange(len(counts)), counts)


def compress(
    mu: MeanElement,
    m: int,
    candidates: PointsLike | None = None,
    *,
    method: Method = "herding",
    anywhere: bool = False,
    rows: Gram | Array | None = None,
) -> Compressed:
    """Points and weights that stand for an embedding, with the error after each of m picks.

    Parameters
    ----------
    mu : Embedding or GaussianEmbedding
        Divided by its mass first. If the mass is not positive that is impossible: a
        ``NumericalWarning`` says so and mu is taken as it is.
    m : int
        Number of picks.
    candidates : points, optional
        Where to pick from: by default the points of the embedding, and for one in closed form
        all of R^d.
    method : {"herding", "exchange", "line-search", "fully-corrective"}
        "herding" is KMCF16 Alg. 3: equal weights, the first l points are the herd of size l.
        "exchange" then replaces one point at a time by the best candidate: equal weights, never
        worse. "line-search" and "fully-corrective" are Frank-Wolfe with the best step and with the
        best weights on all picks: uneven weights, the smallest error for a number of points; they
        stop before m picks when no candidate helps.
    anywhere : bool
        Climb from the best candidate to a maximum over all of R^d at each pick (KMCF16 section
        3.2). For kernels on vectors and ``method="herding"``.
    rows : Gram or array (n, n), optional
        Gram matrix of the candidates, if it is there already (see ``Gram.by_rows``).

    Returns
    -------
    Compressed

    Examples
    --------
    >>> import numpy as np
    >>> from kernelbayes import Gaussian, GaussianEmbedding, compress, embed
    >>> mu = embed(np.random.default_rng(0).normal(size=(500, 2)), Gaussian(1.0))
    >>> [round(compress(mu, 20, method=way).error, 3) for way in ("herding", "fully-corrective")]
    [0.043, 0.012]
    >>> prior = GaussianEmbedding([0.0], [[1.0]], Gaussian(1.0))
    >>> found = compress(prior, 50)  # over all of R
    >>> found.points.shape, found.error < 0.02
    ((50, 1), True)
    """
    if method not in METHODS:
        raise ValueError(f"method must be one of {', '.join(METHODS)}, got {method!r}")
    task = problem(mu, candidates, rows, starts=m)
    names = getattr(mu, "names", None)
    if anywhere or (candidates is None and isinstance(mu, GaussianEmbedding)):
        if method != "herding":
            raise ValueError(
                f"method={method!r} picks from candidates; give candidates, e.g. those that "
                "herding found anywhere"
            )
        points = _anywhere(mu, task, m)
        G = np.asarray(to_numpy(mu.kernel(points)), dtype=np.float64)
        values = to_numpy(mu(points)) / task.mass
        squares = squared_errors(task.norm2, values, np.diagonal(G), np.tril(G, -1).sum(axis=1))
        weights = like(np.full(m, 1.0 / m), points)
        return Compressed(points, weights, mu.kernel, np.sqrt(squares), None, names)
    picks, w, squares = task.pick(m, method)
    weights = like(w, mu.kernel.diag(take(task.points, slice(0, 1))))
    return Compressed(take(task.points, picks), weights, mu.kernel, np.sqrt(squares), picks, names)


def herd(mu: MeanElement, m: int, candidates: PointsLike | None = None) -> Points:
    """Pick m points whose equally weighted embedding is close to ``mu`` (KMCF16 Alg. 3).

    Parameters
    ----------
    mu : Embedding, Batch or GaussianEmbedding
        Divided by its mass first.
    m : int
        Number of picks; a point may be picked more than once.
    candidates : points, optional
        Where to pick from: by default the points of the embedding, and for one in closed form
        all of R^d. For all of R^d from an embedding with points see :func:`compress`.

    Returns
    -------
    points (m, ...)
        In the order of picking: the first l of them are the herd of size l. With a leading axis
        for a batch (of arrays).

    Examples
    --------
    >>> from kernelbayes import Gaussian, embed, herd
    >>> herd(embed([0.0, 1.0, 2.0], Gaussian(0.5)), 3)[:, 0]
    array([1., 0., 2.])
    """
    if isinstance(mu, Batch):
        herds = [herd(member, m, candidates) for member in mu]
        return namespace(*herds).stack(herds, axis=0)
    task = problem(mu, candidates, None, starts=m)
    if candidates is None and isinstance(mu, GaussianEmbedding):
        return _anywhere(mu, task, m)
    return take(task.points, greedy(task.rows, task.values, m)[0])


def thin(points: PointsLike, m: int, kernel: Kernel, *, sweeps: int = 10) -> Points:
    """Choose m of n points that represent all of them under a kernel.

    Herding without repetition (KMCF16 Alg. 6), then exchanges: points are replaced by better ones
    until none is better. Works on joint samples: give a mapping of parts and a ``Parts`` kernel.

    Parameters
    ----------
    points : points (n, ...)
    m : int
        At most n; ``thin`` to all points gives all points.
    kernel : Kernel
    sweeps : int
        Most passes of exchanges; 0 is Alg. 6 as it stands, whose result is in the order of
        picking.

    Returns
    -------
    points (m, ...)

    Examples
    --------
    >>> import numpy as np
    >>> from kernelbayes import Gaussian, embed, mmd, thin
    >>> X, k = np.random.default_rng(0).normal(size=(1000, 2)), Gaussian(1.0)
    >>> few = thin(X, 30, k)
    >>> round(float(mmd(embed(X, k), embed(few, k))), 3), round(1 / 30**0.5, 3)
    (0.014, 0.183)
    """
    points = kernel.points(points, "points")
    n = count(points)
    if not 1 <= m <= n:
        raise ValueError(f"m must lie between 1 and the number of points {n}, got {m}")
    if m == n:
        return points
    rows = Gram.by_rows(kernel, points)
    values = rows.matmul(np.full(n, 1.0 / n))
    picks, _ = greedy(rows, values, m, repeat=False)
    return take(points, exchange(rows, values, picks, repeat=False, sweeps=sweeps))


def _anywhere(mu: MeanElement, task: Problem, m: int) -> Points:
    points = task.points
    if not is_array_api_obj(points) or points.ndim != 2:
        raise TypeError("a search over all space needs points in R^d; give candidates instead")
    found = herd_anywhere(
        lambda Y: to_numpy(mu(like(Y, points))) / task.mass,
        lambda Y, Z: to_numpy(mu.kernel(like(Y, points), like(Z, points))),
        to_numpy(points),
        task.values,
        m,
    )
    return like(found, points)
