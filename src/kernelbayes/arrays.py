"""Arrays of any kind behind about a dozen functions.

NumPy, torch and other array-API arrays run through the same rules. What the array-API standard
lacks (triangular solves, Cholesky solves) or does badly is adapted here: NumPy goes to SciPy's
LAPACK, torch to its own differentiable calls, everything else to the standard.

The second half treats *points*: n members of any space. Points are an array whose first axis
counts them, a sequence (strings), or a mapping from names to aligned points (a joint variable).
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, reduce
from typing import Any, TypeVar

import numpy as np
import scipy.linalg
from array_api_compat import (
    array_namespace,
    device,
    is_array_api_obj,
    is_torch_array,
)
from threadpoolctl import ThreadpoolController

Array = Any
Points = Any
Rng = int | np.random.Generator | None
T = TypeVar("T")

# Entries of one row block: 32 MB of float64. Every loop over many rows stays within a few of these.
BLOCK_ENTRIES = 2**22
# Below this many floating-point operations BLAS gets one thread: a second gains little while the
# machine is idle and loses a lot while it is busy (benchmarks/bench_threads.py).
SMALL_WORK = 2e9


class NumericalWarning(UserWarning):
    """A result was rescued from a numerical difficulty; the message says how."""


# --- array kinds ---------------------------------------------------------------------------------


_NUMPY = array_namespace(np.empty(0))


def namespace(*arrays: Array) -> Any:
    """Array-API namespace shared by all arrays; a TypeError says when they are of mixed kinds."""
    if arrays and all(type(a) is np.ndarray for a in arrays):
        return _NUMPY  # asked dozens of times per update: not worth a search each time
    try:
        return array_namespace(*arrays)
    except TypeError as error:
        kinds = sorted({f"{type(a).__module__.split('.')[0]}.{type(a).__name__}" for a in arrays})
        raise TypeError(
            f"arrays of one kind are needed, got {' and '.join(kinds)}; "
            "convert them to the same library first"
        ) from error


def to_numpy(x: Array) -> np.ndarray[Any, Any]:
    """NumPy copy or view of any array; leaves a torch graph behind."""
    if is_torch_array(x):
        return np.asarray(x.detach().cpu().numpy())
    if is_array_api_obj(x) and not isinstance(x, np.ndarray):
        with contextlib.suppress(TypeError, ValueError):
            return np.asarray(x)
        return np.from_dlpack(x)
    return np.asarray(x)


def to_float(x: Array) -> float:
    """Python float of a 0-d array of any kind."""
    return float(to_numpy(x))


def transpose(x: Array) -> Array:
    """Transpose of a matrix; a vector stays as it is."""
    return x.T if x.ndim == 2 else x


def like(values: Any, template: Array) -> Array:
    """Return ``values`` as an array of the template's kind, floating type and device."""
    xp = namespace(template)
    if is_array_api_obj(values) and not isinstance(values, np.ndarray | np.generic):
        return namespace(values, template).astype(values, template.dtype)
    return xp.asarray(to_numpy(values), dtype=template.dtype, device=device(template))


def epsilon(x: Array) -> float:
    """Machine epsilon of the array's floating type."""
    return float(namespace(x).finfo(x.dtype).eps)


def as_generator(rng: Rng) -> np.random.Generator:
    """NumPy generator from an int, None or a generator (which is used, and advances)."""
    if rng is None or isinstance(rng, int | np.integer | np.random.Generator):
        return np.random.default_rng(rng)
    raise TypeError(
        f"rng must be an int, None or a numpy.random.Generator, got {type(rng).__name__}"
    )


def add_into(a: Array, b: Array) -> Array:
    """Return a + b, in the memory of ``a`` where that is safe (NumPy, same floating type)."""
    if isinstance(a, np.ndarray) and np.result_type(a, b) == a.dtype:
        return np.add(a, b, out=a)
    return a + b


def multiply_into(a: Array, b: Array | float) -> Array:
    """Return a * b, in the memory of ``a`` where that is safe (NumPy, same floating type)."""
    if isinstance(a, np.ndarray) and np.result_type(a, b) == a.dtype:
        return np.multiply(a, b, out=a)
    return a * b


def exp_into(x: Array) -> Array:
    """Return exp(x), in the memory of ``x`` where that is safe (NumPy, floating type)."""
    if isinstance(x, np.ndarray) and x.dtype.kind == "f":
        return np.exp(x, out=x)
    return namespace(x).exp(x)


# --- factorisations: SciPy under NumPy, native calls under torch ---------------------------------


def cholesky(A: Array) -> Array:
    """Lower Cholesky factor (r, r); raises LinAlgError unless A is positive definite."""
    if isinstance(A, np.ndarray):
        return scipy.linalg.cholesky(A, lower=True, check_finite=False)
    xp = namespace(A)
    try:
        L = xp.linalg.cholesky(A)
    except RuntimeError as error:  # torch's LinAlgError is a RuntimeError
        raise np.linalg.LinAlgError(str(error)) from error
    if not bool(xp.all(xp.isfinite(L))):  # JAX answers NaN instead of raising
        raise np.linalg.LinAlgError("matrix is not positive definite")
    return L


def solve_triangular(L: Array, B: Array, transpose: bool = False) -> Array:
    """Solve L Y = B, or L^T Y = B, for lower-triangular L (r, r) and B (r,) or (r, k)."""
    if isinstance(L, np.ndarray):
        return scipy.linalg.solve_triangular(
            L, B, lower=True, trans=int(transpose), check_finite=False
        )
    column = B[:, None] if B.ndim == 1 else B
    M = L.T if transpose else L
    if is_torch_array(L):
        import torch

        Y = torch.linalg.solve_triangular(M, column, upper=transpose)
    else:
        Y = namespace(L, B).linalg.solve(M, column)
    return Y[:, 0] if B.ndim == 1 else Y


def cho_solve(L: Array, B: Array) -> Array:
    """Solve L L^T Y = B for lower-triangular L."""
    if isinstance(L, np.ndarray):
        return scipy.linalg.cho_solve((L, True), B, check_finite=False)
    return solve_triangular(L, solve_triangular(L, B), transpose=True)


def eigh(A: Array) -> tuple[Array, Array]:
    """Eigenvalues (ascending) and eigenvectors of a symmetric matrix."""
    if isinstance(A, np.ndarray):
        # Divide and conquer: the default driver is up to four times slower on the clustered
        # eigenvalues near zero that smooth kernels have.
        values, vectors = scipy.linalg.eigh(A, check_finite=False, driver="evd")
        return values, vectors
    result = namespace(A).linalg.eigh(A)
    return result[0], result[1]


# --- threads -------------------------------------------------------------------------------------


@cache
def _controller() -> ThreadpoolController:
    return ThreadpoolController().select(user_api="blas")


class _OneThread:
    """Reentrant switch to one BLAS thread: the Python thread that sets it also restores it.

    BLAS threads are counted per process, and threadpoolctl lets one Python thread at a time change
    the count. Others that enter meanwhile find it set; should the first leave before them, they go
    on with all BLAS threads: slower, never wrong.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.owner: int | None = None
        self.depth = 0
        self.limits: Any = None

    def __enter__(self) -> None:
        me = threading.get_ident()
        with self.lock:
            if self.owner is None and any(
                lib.num_threads > 1 for lib in _controller().lib_controllers
            ):
                self.owner = me
                self.limits = _controller().limit(limits=1)
                self.limits.__enter__()
            if self.owner == me:
                self.depth += 1

    def __exit__(self, *_: object) -> None:
        with self.lock:
            if self.owner != threading.get_ident():
                return
            self.depth -= 1
            if self.depth == 0:
                self.owner = None
                self.limits.__exit__(None, None, None)


_one_thread = _OneThread()


def threads_for(work: float) -> contextlib.AbstractContextManager[None]:
    """Context in which BLAS uses one thread if ``work`` (in flops) is small."""
    return _one_thread if work < SMALL_WORK else contextlib.nullcontext()


# --- points --------------------------------------------------------------------------------------


def _frame_kind(X: Any) -> str | None:
    for base in type(X).__mro__:
        library = base.__module__.split(".")[0]
        if library in ("pandas", "polars") and base.__name__ in ("DataFrame", "Series"):
            return base.__name__
    return None


def is_frame(X: Any) -> bool:
    """Whether X is a pandas or polars data frame or series (neither is imported)."""
    return _frame_kind(X) is not None


def column_names(X: Any) -> tuple[str, ...] | None:
    """Column names of a frame, the name of a series, the keys of a mapping; None otherwise."""
    if isinstance(X, Mapping):
        return tuple(str(name) for name in X)
    match _frame_kind(X):
        case "DataFrame":
            return tuple(str(name) for name in X.columns)
        case "Series" if X.name:
            return (str(X.name),)
    return None


def frame_columns(X: Any) -> dict[str, np.ndarray[Any, Any]]:
    """Return the columns of a frame as a mapping of NumPy arrays."""
    if _frame_kind(X) == "Series":
        return {str(X.name): X.to_numpy()}
    return {str(name): X[name].to_numpy() for name in X.columns}


def as_array(X: Any, name: str = "X") -> Array:
    """Array of any supported kind from arrays, frames, mappings of columns and sequences."""
    if is_frame(X):
        return X.to_numpy()
    if isinstance(X, Mapping):
        columns = [as_array(value, f"{name}[{key!r}]") for key, value in X.items()]
        sizes = {key: count(column) for key, column in zip(X, columns, strict=True)}
        if len(set(sizes.values())) != 1:
            raise ValueError(f"the parts of {name} must be aligned, got lengths {sizes}")
        xp = namespace(*columns)
        return xp.concat([c[:, None] if c.ndim == 1 else c for c in columns], axis=1)
    if is_array_api_obj(X) and not isinstance(X, np.generic):
        return X
    try:
        return np.asarray(X)
    except ValueError as error:
        raise ValueError(
            f"{name} is ragged; expected n points of one shape (n, d): pad or split it"
        ) from error


def as_floats(X: Any, name: str = "X") -> Array:
    """Real, finite array of floats; integers and booleans become the default float."""
    X = as_array(X, name)
    xp = namespace(X)
    if isinstance(X, np.ndarray) and X.dtype.kind not in "fbiuc":
        try:
            if X.dtype.kind != "O":  # NumPy would turn dates and digits in strings into numbers
                raise TypeError(f"{X.dtype} is not a number")
            X = X.astype(np.float64)
        except (TypeError, ValueError) as error:
            raise TypeError(
                f"{name} must hold numbers, got {X.dtype} values; for categories use the Delta "
                "kernel, for strings Spectrum, for mixed columns Parts"
            ) from error
    if xp.isdtype(X.dtype, "complex floating"):
        raise TypeError(f"{name} must be real, got {X.dtype}")
    if not xp.isdtype(X.dtype, "real floating"):
        X = xp.astype(X, xp.asarray(1.0).dtype)
    if isinstance(X, np.ndarray) and X.dtype not in (np.float32, np.float64):
        X = X.astype(np.float64 if X.dtype.itemsize > 4 else np.float32)
    if not bool(xp.all(xp.isfinite(X))):
        raise ValueError(f"{name} has NaN or infinite entries; drop or impute those rows first")
    return X


def as_vectors(X: Any, name: str = "X") -> Array:
    """Points of R^d as a finite float array (n, d); a 1-d array is n scalar points."""
    X = as_floats(X, name)
    if X.ndim == 1:
        X = X[:, None]
    if X.ndim != 2:
        raise ValueError(
            f"{name} must have shape (n, d) or (n,), got {tuple(X.shape)}; "
            "flatten each point or use a kernel for matrices or images"
        )
    if X.shape[0] == 0 or X.shape[1] == 0:
        raise ValueError(f"{name} is empty: shape {tuple(X.shape)}; at least one point is needed")
    return X


def count(points: Points) -> int:
    """Return how many points there are."""
    if isinstance(points, Mapping):
        return count(next(iter(points.values())))
    return int(points.shape[0]) if is_array_api_obj(points) else len(points)


def take(points: Points, index: slice | Sequence[int] | np.ndarray[Any, Any]) -> Points:
    """Return the points at a slice or an integer index array."""
    if isinstance(points, Mapping):
        return {name: take(part, index) for name, part in points.items()}
    if isinstance(index, slice):
        return points[index, ...] if is_array_api_obj(points) else points[index]
    if is_array_api_obj(points):
        xp = namespace(points)
        return xp.take(points, xp.asarray(np.asarray(index), device=device(points)), axis=0)
    return [points[i] for i in index]


def concatenate(first: Points, second: Points) -> Points:
    """Join two sets of points of one space."""
    if isinstance(first, Mapping):
        return {name: concatenate(part, second[name]) for name, part in first.items()}
    if is_array_api_obj(first):
        return namespace(first, second).concat([first, second], axis=0)
    return [*first, *second]


def row_blocks(n: int, width: int, entries: int | None = None) -> Iterator[slice]:
    """Slices over n rows, each small enough that rows x width stays below ``entries``."""
    step = max(1, (BLOCK_ENTRIES if entries is None else entries) // max(1, width))
    for start in range(0, n, step):
        yield slice(start, min(n, start + step))


def sum_over_rows(
    partial: Callable[[Points, slice], T],
    points: Points,
    width: int,
    merge: Callable[[T, T], T] | None = None,
) -> T:
    """Merge ``partial(chunk, rows)`` over row blocks: the same pair serves threads or a cluster.

    ``partial`` is a pure function of a chunk of points (and the rows it came from); ``merge`` is
    associative, addition unless given. Memory is bounded by a block of rows x ``width`` entries.
    """
    parts = (partial(take(points, rows), rows) for rows in row_blocks(count(points), width))
    return reduce(merge or (lambda a, b: a + b), parts)  # type: ignore[operator]
