r"""What features are trained for: to predict the features of z linearly.

With features :math:`\Psi` (n, p) of x, features :math:`\Phi` (n, q) of z with
:math:`G_Z = \Phi \Phi^\top`, and :math:`D` the diagonal matrix of weights that sum to one, the best
operator E for given :math:`\Psi` leaves the **profiled** loss (IW22 section 3.3 and A.2)

.. math:: \ell = \mathrm{tr}\, G_Z \left(D - D \Psi (\Psi^\top D \Psi + \lambda I)^{-1}
          \Psi^\top D\right)

The **direct** loss (Shimizu, Fukumizu and Sejdinovic 2024, eq. 7) needs no inverse: the network is
the embedding itself, :math:`\hat\mu_x = \sum_a f_a(x) k_Z(\eta_a, \cdot)` on landmarks
:math:`\eta_a`,

.. math:: \ell = \sum_i D_{ii} \|k_Z(z_i, \cdot) - \hat\mu_{x_i}\|^2
          = \sum_i D_{ii} \left(k_Z(z_i, z_i) - 2 \psi_i^\top \phi(z_i) + \|\psi_i\|^2\right)

with Nystrom features :math:`\phi(z) = L^{-1} k_Z(\eta, z)` and :math:`\psi_i = L^\top f(x_i)`.
All functions here take arrays of one kind, NumPy or torch, and can be differentiated.
"""

from array_api_compat import device

from kernelbayes.arrays import namespace
from kernelbayes.gram.lapack import cholesky, solve_triangular
from kernelbayes.types import Array


def unit(psi: Array, weights: Array) -> tuple[Array, Array]:
    """Features divided by the root of their mean squared norm, and that number: k(x, x) is one."""
    xp = namespace(psi)
    size = xp.sqrt(weights @ xp.sum(psi * psi, axis=1))
    return psi / size, size


def operator(psi: Array, phi: Array, weights: Array, ridge: float) -> tuple[Array, Array]:
    """E = (Psi^T D Psi + ridge I)^-1 Psi^T D Phi, as L^-1 Psi^T D Phi (p, q) and L (p, p)."""
    weighted = psi * weights[:, None]
    eye = namespace(psi).eye(psi.shape[1], dtype=psi.dtype, device=device(psi))
    L = cholesky(weighted.T @ psi + ridge * eye)
    return solve_triangular(L, weighted.T @ phi), L


def profiled(psi: Array, phi: Array, weights: Array, ridge: float) -> Array:
    """Profiled loss of features psi (n, p) for targets phi (n, q), under weights (n,)."""
    xp = namespace(psi)
    half, _ = operator(psi, phi, weights, ridge)
    return weights @ xp.sum(phi * phi, axis=1) - xp.sum(half * half)


def left_over(psi: Array, phi: Array, weights: Array, half: Array, L: Array) -> Array:
    """Mean squared error of new points under the operator of others, given by its two factors."""
    xp = namespace(psi)
    rest = phi - psi @ solve_triangular(L, half, transpose=True)
    return weights @ xp.sum(rest * rest, axis=1)


def direct(psi: Array, phi: Array, weights: Array, diag: Array) -> Array:
    """Direct loss of psi (n, p) for Nystrom features phi (n, p) and k(z, z) (n,)."""
    return weights @ (diag + namespace(psi).sum(psi * (psi - 2.0 * phi), axis=1))
