r"""Two samples through sums of their pooled Gram matrix.

Write s for the labels of a split (1 in the first sample, 0 in the second) and omega for the
weights. Everything the MMD needs are the quadratic form ``(omega s)^T G (omega s)`` and products
of s with vectors that do not depend on the split,

.. math:: \mathrm{MMD}^2 = \frac{S_{xx}}{m_x^2} + \frac{S_{yy}}{m_y^2}
          - \frac{2 S_{xy}}{m_x m_y}, \qquad
          S_{xy} = s^\top g - S_{xx}, \quad S_{yy} = 1^\top g - 2 s^\top g + S_{xx}

with ``g = omega * (G omega)`` and the masses m. So B permutations are one product of G with a
matrix of labels, and G is computed once. The unbiased estimate leaves out the diagonal.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from kernelbayes.arrays import threads_for
from kernelbayes.compare.results import Floats
from kernelbayes.gram import Factored, Gram


@dataclass(frozen=True)
class Sums:
    """Sums over a split, arrays of any common shape: one entry per split or left-out point.

    ``xx, xy, yy`` are sums of omega_i omega_j k_ij; ``dx, dy`` the part of them with i = j;
    ``mx, my`` sums of omega; ``qx, qy`` of its square; ``tx, ty`` of omega_i k_ii.
    """

    xx: Any
    xy: Any
    yy: Any
    dx: Any
    dy: Any
    mx: Any
    my: Any
    qx: Any
    qy: Any
    tx: Any
    ty: Any

    def biased(self) -> Any:
        """Squared RKHS distance of the weighted samples, as :func:`kernelbayes.mmd2`."""
        cross = 2.0 * self.xy / (self.mx * self.my)
        return self.xx / self.mx**2 + self.yy / self.my**2 - cross

    def unbiased(self) -> Any:
        """Leave out the terms i = j and rescale to the full mass."""
        within_x, within_y = self._within()
        return within_x + within_y - 2.0 * self.xy / (self.mx * self.my)

    def centrality(self) -> Any:
        """Squared difference of the samples' mean centrality, k(z, .) averaged over both samples.

        It is <mu_X - mu_Y, mu_pooled>, and up to the terms i = j the difference of within-sample
        sums of Song and Chen (2023): far from zero if one sample is wider or denser.
        """
        difference = (self.xx + self.xy) / self.mx - (self.xy + self.yy) / self.my
        return (difference / (self.mx + self.my)) ** 2

    def spread(self) -> Any:
        """Mean variance of the two samples in feature space, E k(x, x) - E k(x, x')."""
        within_x, within_y = self._within()
        return 0.5 * (self.tx / self.mx - within_x + self.ty / self.my - within_y)

    def _within(self) -> tuple[Any, Any]:
        within_x = (self.xx - self.dx) / (self.mx**2 - self.qx)
        return within_x, (self.yy - self.dy) / (self.my**2 - self.qy)


@dataclass(frozen=True)
class Pooled:
    """Two samples pooled: their Gram matrix, diagonal k(z_i, z_i), weights and first sample's size.

    Weights have mean one in each sample, so that those of both are on one scale.
    """

    gram: Gram
    diag: Floats
    omega: Floats
    n: int

    @property
    def m(self) -> int:
        """Size of the second sample."""
        return len(self.omega) - self.n

    def rows(self) -> tuple[Floats, Floats]:
        """G omega, and G omega with the second sample's weights set to zero; (N,) each."""
        first = self.omega.copy()
        first[self.n :] = 0.0
        products = self.gram.matmul(np.column_stack([self.omega, first]))
        return products[:, 0], products[:, 1]

    def form(self, A: Floats) -> Floats:
        """Quadratic forms (b,) of the columns of A (N, b)."""
        with threads_for(2.0 * A.size * (len(A) if not isinstance(self.gram, Factored) else 100)):
            if isinstance(self.gram, Factored):
                P = self.gram.project(A)
                return np.asarray(np.einsum("ij,ij->j", P, P))
            return np.asarray(np.einsum("ij,ij->j", A, self.gram.matmul(A)))

    def sums(self, labels: Any, g: Floats) -> Sums:
        """Return the sums of every split in labels (b, N), given g = G omega."""
        omega, square = self.omega, self.omega**2
        S = np.asarray(labels, dtype=np.float64).T
        xx = self.form(omega[:, None] * S)
        vectors = (omega * g, square * self.diag, omega, square, omega * self.diag)
        inside = np.stack(vectors) @ S  # (5, b)
        total = np.array([v.sum() for v in vectors])[:, None]
        (gx, dx, mx, qx, tx), (gy, dy, my, qy, ty) = inside, total - inside
        return Sums(xx, gx - xx, gy - (gx - xx), dx, dy, mx, my, qx, qy, tx, ty)

    def left_out(self, g: Floats, a: Floats) -> tuple[Sums, Sums]:
        """Return the sums without each point of the first and of the second sample."""
        n, labels = self.n, (np.arange(len(self.omega)) < self.n)[None]
        full = self.sums(labels, g)
        omega, square = self.omega, self.omega**2
        d = square * self.diag
        own, other = omega * a, omega * (g - a)  # with the first sample, with the second
        x, y = slice(None, n), slice(n, None)
        first = Sums(
            full.xx - 2.0 * own[x] + d[x],
            full.xy - other[x],
            full.yy,
            *(full.dx - d[x], full.dy, full.mx - omega[x], full.my),
            *(full.qx - square[x], full.qy, full.tx - (omega * self.diag)[x], full.ty),
        )
        second = Sums(
            full.xx,
            full.xy - own[y],
            full.yy - 2.0 * other[y] + d[y],
            *(full.dx, full.dy - d[y], full.mx, full.my - omega[y]),
            *(full.qx, full.qy - square[y], full.tx, full.ty - (omega * self.diag)[y]),
        )
        return first, second


def jackknife_error(first: Floats, second: Floats) -> float:
    """Jackknife error of a function of two samples, from estimates with one point left out."""
    parts = ((len(v) - 1) * float(np.var(v)) for v in (first, second))
    return float(np.sqrt(sum(parts)))
