"""The point around which a rule takes means, so that an offset of the outputs changes nothing else.

Weights of a rule need not sum to one: a ridge takes some of their mass, mostly far from the sample.
Times an offset of the outputs, what is missing would be the largest part of a mean. So means are
c + sum_i w_i (z_i - c), with c the mean of the outputs under the prior: what is missing is the
prior's.

That holds for kernels on inputs that are similarities, with k(x, x) the same everywhere. Weights
under others, a linear kernel for instance, are not those of a distribution and have no mass to
speak of: sum_i w_i z_i is the regression, and stays.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from array_api_compat import is_array_api_obj

from kernelbayes.arrays import Array, as_doubles, namespace, narrowed, total, weighted_sum
from kernelbayes.gram.loo import loo_subset
from kernelbayes.points import take

if TYPE_CHECKING:
    from kernelbayes.rules.variable import Variable

# Values k(x, x) that differ by less than this, relative to the largest, are the same: a few
# roundings in single precision.
SAME_DIAGONAL = 1e-6


def centre_of(inputs: Variable, outputs: Variable, weights: Array | None = None) -> Array | None:
    """Mean (d,) of vectors under weights (n,), equal ones unless given; None for other points.

    Negative weights do not count. Neither do any if nothing is left.
    """
    own = as_doubles(inputs.kernel.exact.diag(take(inputs.points, loo_subset(inputs.n))))
    if float(np.ptp(own)) > SAME_DIAGONAL * float(np.abs(own).max()):
        return None
    Z, kernel = outputs.points, outputs.kernel
    if kernel.is_curved or kernel.is_categorical or not is_array_api_obj(Z) or Z.ndim != 2:
        return None
    xp = namespace(Z)
    if not xp.isdtype(Z.dtype, "real floating"):
        return None
    equal = xp.ones_like(Z[:, 0])
    w = equal if weights is None else xp.clip(weights, min=0.0)
    w = w if float(total(w)) > 0.0 else equal
    return narrowed(weighted_sum(w / total(w), Z), Z)
