"""Herding, compressing and thinning: functions on embeddings and samples."""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, get_args

import numpy as np
from array_api_compat import is_array_api_obj

from kernelbayes import herding
from kernelbayes.arrays import as_doubles, like, namespace, to_float, to_numpy, warn
from kernelbayes.embedding import Batch, Embedding, MeanElement
from kernelbayes.embedding.gaussian import GaussianEmbedding
from kernelbayes.gram import Dense, Gram
from kernelbayes.kernels import Kernel
from kernelbayes.kernels.base import as_kernel
from kernelbayes.points import count, flag, in_order, integer, option, take
from kernelbayes.types import Array, Floats, Ints, Points, PointsLike

Method = Literal["herding", "exchange", "line-search", "fully-corrective"]
METHODS = get_args(Method)
# A mass below this share of the weights' absolute sum is cancellation error; do not divide by it.
CANCELLED = 1e-10


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
        found = to_numpy(self.points) if self.indices is None else self.indices
        return len(np.unique(found, axis=0))

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
    m = integer(m, "m")
    option(method, "method", METHODS)
    flag(anywhere, "anywhere")
    task = problem(mu, candidates, rows, m)
    names = getattr(mu, "names", None)
    if anywhere or (candidates is None and isinstance(mu, GaussianEmbedding)):
        if method != "herding":
            raise ValueError(
                f"method={method!r} picks from candidates; give candidates, e.g. those that "
                "herding found anywhere"
            )
        points = task.pick_anywhere(m)
        G, values = as_doubles(mu.kernel(points)), to_numpy(mu(points)) / task.mass
        cross = np.tril(G, -1).sum(axis=1)
        squares = herding.squared_errors(task.norm2, values, np.diagonal(G), cross)
        weights = like(np.full(m, 1.0 / m), points)
        return Compressed(points, weights, mu.kernel, np.sqrt(squares), None, names)
    picks, w, squares = task.pick(m, method)
    weights = like(w, mu.kernel.diag(take(task.points, slice(0, 1))))
    return Compressed(take(task.points, picks), weights, mu.kernel, np.sqrt(squares), picks, names)


def herd(mu: MeanElement, m: int, candidates: PointsLike | None = None) -> Points:
    """Pick m points whose equally weighted embedding is close to ``mu`` (KMCF16 Alg. 3).

    Parameters as in :func:`compress`, which can also search all of R^d for an embedding with
    points; ``mu`` may be a Batch too. Returns points (m, ...) in the order of picking, some perhaps
    more than once: the first l of them are the herd of size l. A batch (of arrays) adds a leading
    axis.

    Examples
    --------
    >>> from kernelbayes import Gaussian, embed, herd
    >>> herd(embed([0.0, 1.0, 2.0], Gaussian(0.5)), 3)[:, 0]
    array([1., 0., 2.])
    """
    m = integer(m, "m")
    if isinstance(mu, Batch):
        herds = [herd(member, m, candidates) for member in mu]
        return namespace(*herds).stack(herds, axis=0)
    task = problem(mu, candidates, None, m)
    if candidates is None and isinstance(mu, GaussianEmbedding):
        return task.pick_anywhere(m)
    return take(task.points, herding.greedy(task.gram, task.values, m)[0])


def thin(points: PointsLike, m: int, kernel: Kernel, *, sweeps: int = 10) -> Points:
    """Choose m of n points that represent all of them under a kernel.

    Herding without repetition (KMCF16 Alg. 6), then exchanges: points are replaced by better ones
    until none is better, in at most ``sweeps`` passes; 0 is Alg. 6 as it stands, in the order of
    picking. Works on joint samples: give a mapping of parts and a ``Parts`` kernel.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelbayes import Gaussian, embed, mmd, thin
    >>> X, k = np.random.default_rng(0).normal(size=(1000, 2)), Gaussian(1.0)
    >>> few = thin(X, 30, k)
    >>> round(float(mmd(embed(X, k), embed(few, k))), 3), round(1 / 30**0.5, 3)
    (0.014, 0.183)
    """
    m, sweeps = integer(m, "m"), integer(sweeps, "sweeps", 0)
    points = as_kernel(kernel).points(points, "points")
    n = count(points)
    if m > n:
        raise ValueError(f"m must lie between 1 and the number of points {n}, got {m}")
    if m == n:
        return points
    gram = Gram.by_rows(kernel, points)
    values = gram.matmul(np.full(n, 1.0 / n))
    picks, _ = herding.greedy(gram, values, m, repeat=False)
    return take(points, herding.exchange(gram, values, picks, repeat=False, sweeps=sweeps))


@dataclass(frozen=True, eq=False)
class Problem:
    """An embedding of mass one as seen from candidates: its values there, and their Gram matrix."""

    mu: MeanElement
    mass: float
    points: Points
    values: Floats
    own: Floats | None  # weights of the candidates, if they are the embedding's own points
    known: Gram | None

    @cached_property
    def gram(self) -> Gram:
        """Gram matrix of the candidates; not computed before it is needed."""
        return self.known or Gram.by_rows(self.mu.kernel, self.points, products=False)

    @cached_property
    def norm2(self) -> float:
        """Squared norm of the embedding divided by its mass."""
        if self.own is not None:
            return float(self.own @ self.values) / self.mass
        return to_float(self.mu.norm()) ** 2 / self.mass**2

    def pick(self, m: int, method: Method) -> tuple[Ints, Floats, Floats]:
        """Pick m candidates: indices, weights and the squared error after each pick."""
        gram, values = self.gram, self.values
        if method == "line-search":
            return herding.line_search(gram, values, m, self.norm2)
        if method == "fully-corrective":
            return herding.fully_corrective(gram, values, m, self.norm2)
        picks, cross = herding.greedy(gram, values, m)
        squares = herding.squared_errors(self.norm2, values[picks], gram.diag[picks], cross)
        if method == "exchange":
            picks = herding.exchange(gram, values, picks)
            squares[-1] = self.squared_error(picks)
        return picks, np.full(m, 1.0 / m), squares

    def pick_anywhere(self, m: int) -> Points:
        """Points (m, d) of R^d, found by climbing from the candidates."""
        X = self.points
        if not is_array_api_obj(X) or X.ndim != 2:
            raise TypeError("a search over all space needs points in R^d; give candidates instead")
        found = herding.herd_anywhere(
            lambda Y: to_numpy(self.mu(like(Y, X))) / self.mass,
            lambda Y, Z: to_numpy(self.mu.kernel(like(Y, X), like(Z, X))),
            to_numpy(X),
            self.values,
            m,
        )
        return like(found, X)

    def squared_error(self, picks: Ints) -> float:
        """Squared distance to equally weighted candidates."""
        return max(self.norm2 + herding.score(self.gram, self.values, picks), 0.0)


def problem(
    mu: MeanElement, candidates: PointsLike | None, rows: Gram | Array | None, m: int
) -> Problem:
    """Evaluate an embedding at candidates and divide it by its mass."""
    if isinstance(mu, Batch):
        raise TypeError("one embedding at a time: [compress(mu, m) for mu in batch]")
    if not isinstance(mu, MeanElement):
        raise TypeError(f"one embedding is needed, got {type(mu).__name__}; use embed(...)")
    own = None
    if candidates is not None:
        candidates = in_order(
            candidates, getattr(mu, "names", None), "candidates", by_name=mu.kernel.by_name
        )
        points = mu.kernel.points(candidates, "candidates")
    elif isinstance(mu, Embedding):
        points, own = mu.points, as_doubles(mu.weights)
    elif isinstance(mu, GaussianEmbedding):
        starts = herding.gaussian_starts(to_numpy(mu.mean), to_numpy(mu.cov), m)
        points = like(starts, mu.mean)
    else:
        raise ValueError(f"{type(mu).__name__} has no points: give candidates")
    gram = rows if rows is None or isinstance(rows, Gram) else Dense(as_doubles(rows))
    if gram is not None and gram.n != count(points):
        raise ValueError(f"rows are of {gram.n} points, but there are {count(points)} candidates")
    if own is not None:
        gram = gram or Gram.by_rows(mu.kernel, points)
    values = as_doubles(mu(points)) if own is None or gram is None else gram.matmul(own)
    mass = to_float(mu.mass)
    size = float(np.abs(to_numpy(mu.weights)).sum()) if isinstance(mu, Embedding) else mass
    if not mass > CANCELLED * size:
        warn(
            f"the mass {mass:.3g} is not positive, so the embedding cannot be divided by it and is "
            "taken as it is; is it that of a distribution?"
        )
        mass = 1.0
    return Problem(mu, mass, points, values / mass, own, gram)


def copies(weights: Floats, n: int) -> Ints:
    """Positions (n,), each repeated in proportion to its weight."""
    n = integer(n, "the number of copies")
    shares = n * weights.astype(np.float64)
    counts = np.floor(shares + 1e-9).astype(np.int64)
    order = np.argsort(counts - shares, kind="stable")
    counts[order[: n - counts.sum()]] += 1
    return np.repeat(np.arange(len(counts)), counts)
