"""Your own kernel, from a function."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from array_api_compat import is_array_api_obj

from kernelbayes.arrays import as_array, as_floats, is_frame
from kernelbayes.kernels.base import Kernel
from kernelbayes.points import column_names, count
from kernelbayes.types import Array, Points, PointsLike


@dataclass(frozen=True, eq=False)
class Custom(Kernel):
    """Your own kernel, from any function of two sets of points.

    Parameters
    ----------
    function : callable
        ``function(X, Y) -> (n, m)``, symmetric and positive semi-definite. It receives the points
        as they were given: an array with its own shape, or a list.
    diagonal : callable, optional
        ``diagonal(X) -> (n,)``; otherwise it is read off small Gram matrices.

    A precomputed Gram matrix is a kernel on indices: ``Custom(lambda i, j: G[i][:, j])`` on points
    ``np.arange(n)``. Check your kernel with :func:`kernelbayes.laws.check_kernel`. Two such kernels
    are equal when they hold the same function.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelbayes import Custom
    >>> G = np.array([[2.0, 1.0], [1.0, 2.0]])
    >>> Custom(lambda i, j: G[i][:, j])(np.array([0, 1, 1]), np.array([0]))
    array([[2.],
           [1.],
           [1.]])
    """

    takes_rows = False  # a point is anything

    function: Callable[[Points, Points], Array]
    diagonal: Callable[[Points], Array] | None = None

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise TypeError(f"function must be callable, got {type(self.function).__name__}")

    def _points(self, X: PointsLike, name: str) -> Points:
        X = as_array(X, name) if is_frame(X) or isinstance(X, np.ndarray) else X
        if is_array_api_obj(X) and X.ndim == 0:
            raise ValueError(f"{name} must be n points, got a single number")
        X = X if is_array_api_obj(X) or column_names(X) else list(X)
        if count(X) == 0:
            raise ValueError(f"{name} is empty; at least one point is needed")
        return X

    def check_pair(self, X: Points, Y: Points) -> None:
        """Leave it to the function to refuse points that do not go together."""

    def _cross(self, X: Points, Y: Points) -> Array:
        G = as_floats(self.function(X, Y), "the Gram matrix of Custom")
        expected = (count(X), count(Y))
        if tuple(G.shape) != expected:
            raise ValueError(f"Custom's function must return shape {expected}, got {G.shape}")
        return G.copy() if isinstance(G, np.ndarray) else G  # it may be the user's own matrix

    def _diag(self, X: Points) -> Array:
        if self.diagonal is not None:
            diag = as_floats(self.diagonal(X), "the diagonal of Custom")
            if tuple(diag.shape) != (count(X),):
                raise ValueError(f"Custom's diagonal must have shape ({count(X)},)")
            return diag.copy() if isinstance(diag, np.ndarray) else diag
        return self._paired(X, X)
