"""One variable of a rule: its training points under their kernel."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.sparse
from array_api_compat import device
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_array, validate_data

from kernelbayes.arrays import as_array, as_doubles, frame_kind, is_frame, namespace, warn
from kernelbayes.gram import Gram
from kernelbayes.gram.features import nystrom
from kernelbayes.kernels import Kernel
from kernelbayes.kernels.base import kernel_of
from kernelbayes.kernels.default import FEWEST_NAMES, default_kernel, mixed_columns
from kernelbayes.points import (
    as_fine_as,
    column_names,
    count,
    in_order,
    own,
    refuse_missing,
    take,
    vectors,
)
from kernelbayes.rules.support import sharpening, usual_support
from kernelbayes.types import Array, Floats, Ints, Points, PointsLike, Rng

# Pairs up to which a default fit is exact (20 000 would take minutes and 10 GB), and landmarks of
# larger ones: at 6000 pairs a sixth of the time, and R^2 the same to 0.0004 on four tables.
EXACT_PAIRS, RANK_BEYOND = 5000, 1000
# Share of copies among the pairs above which a fit warns: by judgement, one in twenty.
MOST_COPIES = 0.05


@dataclass(frozen=True, eq=False)
class Variable:
    """Training points, kernel and column names; ``held`` and ``mean`` of all they stand for."""

    points: Points
    kernel: Kernel
    names: tuple[str, ...] | None = None
    held: Gram | None = None
    mean: Array | None = None

    @cached_property
    def gram(self) -> Gram:
        """Gram matrix of the points, made when it is first needed."""
        return Gram.of(self.kernel, self.points, sums=True) if self.held is None else self.held

    @cached_property
    def usual_support(self) -> float:
        """Similarity to the nearest other point that 99 % of the sample reach."""
        return usual_support(self.kernel, self.points)

    @cached_property
    def sharpening(self) -> float:
        """Power of supports that makes them those of a kernel no wider than the sample."""
        return sharpening(self.kernel.exact, self.points) if self.kernel.exact.is_unit else 1.0

    @property
    def n(self) -> int:
        """Number of points."""
        return count(self.points)

    def exact(self, keep: Ints) -> Floats:
        """Exact finite features (m, r) of some of the points, as NumPy doubles."""
        return np.asarray(Gram.of(self.kernel, take(self.points, keep), double=True).factor)

    def warn_of_copies(self, other: "Variable") -> None:
        """Say how many pairs of vectors are copies, where a column is too fine for chance."""
        n, both = self.n, [v.points for v in (other, self) if v.kernel.is_vector]
        values = [as_doubles(vectors(P)) for P in both if isinstance(P, np.ndarray)]  # no tensors
        if len(values) < 2 or len(np.unique(values[0][:, 0])) > (1.0 - MOST_COPIES) * n:
            return  # the usual case, and cheap
        every = np.unique(np.hstack(values), axis=0)
        fine = max(len(np.unique(column)) for column in every.T) == len(every)
        if fine and FEWEST_NAMES <= len(every) < (1.0 - MOST_COPIES) * n:
            warn(
                f"{n - len(every)} of {n} pairs are exact copies of others. A pair that is left "
                "out is predicted from its copy: answers follow the noise, and intervals are too "
                "narrow. Drop copies first, e.g. with frame.drop_duplicates()"
            )

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
    """Variable of a sample, by default under the default kernel; with a rank, on landmarks."""
    kernel = (
        default_kernel(X, name) if kernel is None else kernel_of(kernel, f"the kernel on {name}")
    )
    if rank is not None and not kernel.finite:
        kernel = nystrom(kernel, X, rank, rng=rng)
    points = kernel.points(X, name)
    kernel(take(points, slice(0, 1)))  # a bandwidth for each column must fit the points
    return Variable(own(points, X) if copy else points, kernel, column_names(X))


def default_rank(kernel: Kernel, given: object, n: int) -> int | None:
    """Landmarks for n points under a default kernel; None for few, one category, or a given one."""
    large = given is None and n > EXACT_PAIRS and not kernel.is_categorical
    return RANK_BEYOND if large else None


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


def checked_pairs(
    model: BaseEstimator, X: PointsLike, Z: PointsLike, rows: bool = True, reset: bool = True
) -> tuple[PointsLike, PointsLike]:
    """Check tables of numbers (points are ``rows``) as scikit-learn does; kernels the rest."""
    if Z is None:
        raise ValueError("requires y to be passed, but the target y is None")
    if not is_table(X) or not rows:
        return X, Z
    if frame_kind(X) != "DataFrame" and not scipy.sparse.issparse(X):
        X = as_array(X)
        X = X[:, None] if X.ndim == 1 else X
    refuse_missing(X, "X")
    X = validate_data(model, X, reset=reset, dtype=[np.float64, np.float32])
    Z = as_array(Z, "Z") if isinstance(Z, np.ndarray) else Z  # masked entries become NaN
    if is_table(Z) and not isinstance(Z, dict | list) and as_array(Z).ndim <= 2:
        refuse_missing(Z, "y")
        checked = check_array(as_array(Z), dtype=None, ensure_2d=False, input_name="y")
        Z = Z if is_frame(Z) and checked.ndim == 2 else checked
        X = as_fine_as(checked, X)
    return X, Z


def checked_queries(model: BaseEstimator, X: PointsLike, observed: Variable, rows: bool) -> Points:
    """Check points that a fitted model is asked about."""
    X = in_order(X, observed.names, by_name=observed.kernel.by_name)
    X = as_array(X) if isinstance(X, np.ndarray) else X
    rows = rows and is_table(X)
    if rows and not scipy.sparse.issparse(X) and as_array(X).ndim == 1:
        if getattr(model, "n_features_in_", 1) > 1:
            raise ValueError(
                f"expected points of {model.n_features_in_} numbers, got a 1-d array. Reshape "
                "your data with X.reshape(1, -1) if it is a single point"
            )
        X = as_array(X)[:, None]
    if rows and hasattr(model, "n_features_in_"):
        refuse_missing(X, "X")
        X = validate_data(model, X, reset=False, dtype=[np.float64, np.float32])
    points = observed.kernel.points(X, "X")
    observed.kernel.check_pair(points, observed.points)
    return points
