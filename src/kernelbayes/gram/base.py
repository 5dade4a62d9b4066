"""What every Gram matrix answers, however it is held."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field

import numpy as np

from kernelbayes.arrays import BLOCK_ENTRIES, Array, Ints, Rng
from kernelbayes.gram.solvers import Solver
from kernelbayes.kernels import Kernel
from kernelbayes.points import Points

# Entries of single rows that are remembered: 128 MB of float64.
CACHE_ENTRIES = 4 * BLOCK_ENTRIES


@dataclass(frozen=True, eq=False)
class Gram(ABC):
    """A positive semi-definite matrix G (n, n), whole, factored or on demand.

    Attributes
    ----------
    n : int
        Number of rows.
    diag : array (n,)
    factor : array (n, r)
        L with G = L L^T: the features given, or an exact factor.
    kernel, points
        Where it comes from, if it was made by :meth:`of`. The kernel is the one in use, which may
        be an approximation of the one that was given.
    policy : str
        How it is held, and why.
    """

    kernel: Kernel | None = field(default=None, kw_only=True)
    points: Points = field(default=None, kw_only=True, repr=False)
    policy: str = field(default="given", kw_only=True)
    _rows: dict[int, Array] = field(default_factory=dict, init=False, repr=False, compare=False)

    @staticmethod
    def of(
        kernel: Kernel,
        points: Points,
        *,
        rank: int | None = None,
        tol: float | None = None,
        most: int | None = None,
        rng: Rng = None,
        entries: int | None = None,
        extend: bool = False,
        double: bool = False,
    ) -> Gram:
        """Gram matrix of checked points: the one decision whether, and how, to factor it.

        In this order:

        1. A kernel with finite features: these (``LowRank``), or computed again block by block
           where they do not fit in memory (``Streamed``).
        2. ``rank``: Nystrom features on that many landmarks (all points if there are fewer). With
           ``tol`` too: a pivoted Cholesky factor of that rank, or less if ``tol`` is reached.
        3. ``tol``: a pivoted Cholesky factor, if at most ``most`` pivots reach this relative trace
           error. Below ``FACTOR_FROM`` points the whole matrix costs less, and is taken unless
           ``extend``; its ``factor`` stops at ``tol``.
        4. The whole matrix (``Dense``), or its rows on demand where it has more than ``entries``
           entries (``OnDemand``).

        Parameters
        ----------
        kernel : Kernel
        points : points (n, ...)
            As the kernel checked them.
        rank, tol, most : see above
        rng : int, Generator or None
            For landmarks and pivots.
        entries : int, optional
            Most entries to hold at once; no limit if not given.
        extend : bool
            Whether the features of other points will be asked for. The factor is then that of a
            kernel with landmarks, differentiable where the points are.
        double : bool
            NumPy doubles, whatever the points are.

        Examples
        --------
        >>> import numpy as np
        >>> from kernelbayes import Gaussian
        >>> from kernelbayes.gram import Gram
        >>> X = np.linspace(0.0, 1.0, 500)[:, None]
        >>> Gram.of(Gaussian(1.0), X).policy
        'dense: 500 x 500'
        >>> Gram.of(Gaussian(1.0), X, tol=1e-10, rng=0).factor.shape[1] < 20
        True
        """
        from kernelbayes.gram.policy import choose  # it makes the subclasses of this class

        return choose(
            kernel, points, rank=rank, tol=tol, most=most, rng=rng, entries=entries,
            extend=extend, double=double,
        )  # fmt: skip

    @staticmethod
    def by_rows(kernel: Kernel, points: Points, products: bool = True) -> Gram:
        """Gram matrix of which rows and products with vectors are wanted, as NumPy doubles.

        Whole up to 1024 points; beyond, a factor where a small rank leaves no error (relative trace
        1e-10), which smooth kernels in low dimension have; rows on demand otherwise. Without
        ``products`` large matrices are not factored.
        """
        from kernelbayes.gram.policy import choose_by_rows

        return choose_by_rows(kernel, points, products)

    @property
    @abstractmethod
    def n(self) -> int:
        """Number of rows."""

    @property
    @abstractmethod
    def diag(self) -> Array:
        """Diagonal (n,)."""

    @property
    @abstractmethod
    def factor(self) -> Array:
        """L (n, r) with G = L L^T."""

    @property
    def scale(self) -> float:
        """Largest entry of the diagonal; NumPy only."""
        return float(self.diag.max())

    @property
    @abstractmethod
    def work(self) -> float:
        """Floating-point operations of one row, about."""

    @abstractmethod
    def matmul(self, B: Array) -> Array:
        """G @ B for B (n,) or (n, k)."""

    def rows(self, i: int | Ints) -> Array:
        """Row (n,) of one point, remembered and not to be written to; (k, n) of several."""
        if not isinstance(i, int | np.integer):
            return self._compute_rows(np.asarray(i))
        row = self._rows.get(int(i))
        if row is None:
            row = self._compute_rows(np.array([i]))[0]
            if (len(self._rows) + 1) * self.n <= CACHE_ENTRIES:
                self._rows[int(i)] = row
        return row

    @abstractmethod
    def _compute_rows(self, index: Ints) -> Array:
        """Rows (k, n)."""

    def project(self, B: Array) -> Array:
        """L^T B, shape (r,) or (r, k)."""
        return self.factor.T @ B

    def expand(self, A: Array) -> Array:
        """L A, shape (n,) or (n, k)."""
        return self.factor @ A

    @abstractmethod
    def features(self, X: Points) -> Array:
        """Features (m, r) of other points, so that k(X, points) = features(X) @ factor.T."""

    @abstractmethod
    def ridge(self, eta: float) -> Solver:
        """Solver of (G + n eta I)^-1 B."""

    @abstractmethod
    def weighted(self, r: Array, ridge: float) -> Solver:
        """Solver of S (S G S + ridge I)^-1 S B with S = sqrt(diag(r)), r >= 0, shape (n,)."""

    @abstractmethod
    def signed(self, d: Array, ridge: float) -> Solver:
        """Solver of D G ((D G)^2 + ridge I)^-1 D B with D = diag(d) of any signs, shape (n,).

        Equal to ``D L (C^2 + ridge I)^-1 L^T D B`` with C = L^T D L for any factor G = L L^T.
        """

    def _kernel(self) -> Kernel:
        if self.kernel is None:
            raise TypeError("this Gram matrix was made without a kernel; use Gram.of")
        return self.kernel
