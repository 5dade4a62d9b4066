"""One variable of a rule: its training points under their kernel."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.sparse
from array_api_compat import device

from kernelbayes.arrays import Array, Floats, Ints, Rng, as_array, is_frame, namespace
from kernelbayes.gram import Gram
from kernelbayes.gram.features import nystrom
from kernelbayes.kernels import Kernel
from kernelbayes.kernels.base import as_kernel
from kernelbayes.kernels.default import default_kernel, mixed_columns
from kernelbayes.points import Points, PointsLike, column_names, count, own, take
from kernelbayes.rules.support import usual_support


@dataclass(frozen=True, eq=False)
class Variable:
    """Training points of one variable, with their kernel and column names."""

    points: Points
    kernel: Kernel
    names: tuple[str, ...] | None = None

    @cached_property
    def gram(self) -> Gram:
        """Gram matrix of the points, made when it is first needed."""
        return Gram.of(self.kernel, self.points)

    @cached_property
    def usual_support(self) -> float:
        """Similarity to the nearest other point that 99 % of the sample reach."""
        return usual_support(self.kernel, self.points)

    @property
    def n(self) -> int:
        """Number of points."""
        return count(self.points)

    def exact(self, keep: Ints) -> Floats:
        """Exact finite features (m, r) of some of the points, as NumPy doubles."""
        return np.asarray(Gram.of(self.kernel, take(self.points, keep), double=True).factor)

    @property
    def uniform(self) -> Array:
        """Weights 1/n (n,), of the kernel's kind of array."""
        one = self.kernel.diag(take(self.points, slice(0, 1)))
        return namespace(one).ones(self.n, dtype=one.dtype, device=device(one)) / self.n


def variable(
    X: PointsLike,
    kernel: Kernel | None,
    name: str,
    rank: int | None = None,
    rng: Rng = None,
    copy: bool = True,
) -> Variable:
    """Variable of a sample as a user gives it, under the default kernel unless one is given.

    With a rank, it has Nystrom features unless the kernel has finite features already.
    """
    kernel = (
        default_kernel(X, name) if kernel is None else as_kernel(kernel, f"the kernel on {name}")
    )
    if rank is not None and not kernel.finite:
        kernel = nystrom(kernel, X, rank, rng=rng)
    points = kernel.points(X, name)
    return Variable(own(points, X) if copy else points, kernel, column_names(X))


def is_table(X: PointsLike) -> bool:
    """Whether X is a table of numbers that scikit-learn's checks understand."""
    if scipy.sparse.issparse(X):
        return True
    if isinstance(X, dict | str) or (is_frame(X) and mixed_columns(X) is not None):
        return False
    array = X.to_numpy() if is_frame(X) else X
    if isinstance(array, list | tuple):
        array = as_array(array) if not array or not isinstance(array[0], str) else None
    if not isinstance(array, np.ndarray) or array.ndim > 2:
        return False
    return array.dtype.kind in "fiubc" or (array.dtype.kind == "O" and not is_frame(X))
