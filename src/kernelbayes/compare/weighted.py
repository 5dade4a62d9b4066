r"""Independence of weighted pairs.

With weights w of sum one the embeddings are those of the weighted sample,

.. math:: \mathrm{HSIC}_w = \Big\|\sum_i w_i\, \phi(x_i) \otimes \psi(z_i) - \mu_X \otimes \mu_Z
          \Big\|^2 = \sum_{ij} w_i w_j\, \tilde k_{ij}\, \tilde l_{ij}

with kernels centred by the weighted means. The matrix of entries ``w_i w_j k~_ij`` has rows of sum
zero, so that its inner product with another does not depend on how the other is centred: once it
is made, permutations of z cost what they cost without weights.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kernelbayes.compare.nulls import check_sizes, orders, pvalue, warn_if_constant
from kernelbayes.compare.pairs import Variable, biased, products, variable
from kernelbayes.compare.random_features import Options
from kernelbayes.compare.results import (
    TIES,
    Effect,
    Floats,
    KernelTestResult,
    Witness,
    effect_of,
    power_of,
)
from kernelbayes.compare.samples import positive_weights
from kernelbayes.compare.series import BlockLength, lag_one, memory, multipliers
from kernelbayes.gram import Dense, LowRank
from kernelbayes.kernels import Kernel
from kernelbayes.points import Points, count, take


def hsic(
    X: Points,
    Z: Points,
    weights: Any,
    kernels: tuple[Kernel, Kernel],
    method: str,
    options: Options,
    block_length: BlockLength,
) -> KernelTestResult:
    """Independence test of weighted pairs, by permutations or the multiplier bootstrap."""
    if method not in ("permutation", "wild") or options.unbiased:
        raise ValueError("weights are for the biased statistic with method 'permutation' or 'wild'")
    kept, omega = positive_weights(np.arange(count(X)), weights, "the pairs")
    X, Z = take(X, kept), take(Z, kept)
    n, w = len(omega), omega / len(omega)
    check_sizes(5, **{"the sample of positive weight": n})
    x, z = variable(kernels[0], X), variable(kernels[1], Z)
    K, L = entries(x), entries(z)
    K_c, L_c = centred_by(K, w), centred_by(L, w)
    details: dict[str, Any] = {"unbiased": False}
    if method == "permutation":
        first, blocks = weigh(x, w), orders(n, options.permutations, options.rng)
        every = np.concatenate([biased(products([first], [z], b)[0, 0], n) for b in blocks])
        statistic, null = float(every[0]), every[1:]
    else:
        H = K_c * L_c
        statistic = float(w @ H @ w)
        length, inflation = memory(lag_one(Dense(H)), n, block_length)
        E = inflation * w[:, None] * multipliers(w, options.permutations, length, options.rng)
        null, details["block_length"] = np.einsum("ij,ij->j", E, H @ E), length
    scale = float(np.abs(x.diag).max() * np.abs(z.diag).max())
    warn_if_constant(null, statistic, scale, "a variable is constant to its kernel", 4)
    effect, error = correlation(K_c, L_c, w, scale)
    return KernelTestResult(
        statistic=statistic,
        pvalue=pvalue(statistic, null, scale),
        null=null,
        kernel=kernels,
        effect=effect,
        power_estimate=power_of(statistic, null, error, options.level, scale),
        level=options.level,
        test="HSIC",
        method=method,
        sizes=(n,),
        witness=Witness((X, Z), (K * L) @ w - (K @ w) * (L @ w)),
        details=details,
    )


def entries(v: Variable) -> Floats:
    """Gram matrix (n, n) of a variable, held whole."""
    return np.asarray(v.gram.G if isinstance(v.gram, Dense) else v.gram.matmul(np.eye(v.n)))


def centred_by(G: Floats, w: Floats) -> Floats:
    """Gram matrix of features minus their weighted mean; w has sum one."""
    rows = G @ w
    return np.asarray(G - rows[:, None] - rows[None, :] + w @ rows)


def weigh(v: Variable, w: Floats) -> Variable:
    """Variable of the matrix n^2 w_i w_j k~_ij, by its factor if there is one."""
    omega = len(w) * w
    if isinstance(v.gram, LowRank):
        return Variable(LowRank(omega[:, None] * (v.gram.L - w @ v.gram.L)), omega**2 * v.diag)
    return Variable(Dense(np.outer(omega, omega) * centred_by(entries(v), w)), omega**2 * v.diag)


def correlation(K: Floats, L: Floats, w: Floats, scale: float) -> tuple[Effect, float]:
    """Kernel correlation of centred matrices, and the asymptotic error of the weighted HSIC."""
    cross, error = hollow_form(K * L, w)
    own = np.sqrt(max(0.0, hollow_form(K * K, w)[0] * hollow_form(L * L, w)[0]))
    if own <= TIES * scale:
        return Effect(0.0, (0.0, 0.0)), error
    return effect_of(cross / own, error / own, 1.0), error


def hollow_form(H: Floats, w: Floats) -> tuple[float, float]:
    """w^T H w without i = j, rescaled to full mass, and its error by the influence function."""
    rows = H @ w - w * H.diagonal()
    mass = 1.0 - float(w @ w)
    value = float(w @ rows) / mass
    return value, 2.0 * float(np.sqrt(np.sum((w * (rows / mass - value)) ** 2)))
