"""Arrays of any kind: how they are read from what a user passes, and what the library asks of them.

NumPy, torch and other array-API arrays run through the same rules. Frames of pandas and polars are
read without importing either. Beside the adapter stand row blocks, which bound memory, sums in
double precision, BLAS threads and random numbers. Factorisations are in
:mod:`kernelbayes.gram.lapack`.
"""

import contextlib
import sys
import threading
import warnings
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from array_api_compat import array_namespace, device, is_array_api_obj, is_torch_array
from threadpoolctl import ThreadpoolController

from kernelbayes.objects import numbers_of, refuse_dates, refused, unmasked
from kernelbayes.types import Array, ArrayLike, Rng

# Entries of one row block: 32 MB of float64. Every loop over many rows stays within a few of these.
BLOCK_ENTRIES = 2**22
CACHED = BLOCK_ENTRIES // 16  # of a block that is read twice: 2 MB, which stays in the cache
# Below this many floating-point operations BLAS gets one thread: a second gains little while the
# machine is idle and loses a lot while it is busy (benchmarks/bench_threads.py).
SMALL_WORK = 2e9


class NumericalWarning(UserWarning):
    """A result was rescued from a numerical difficulty; the message says how."""


def warn(text: str, category: type[Warning] = NumericalWarning) -> None:
    """Warn, naming the line outside of this package from which it was called."""
    frame, level = sys._getframe(), 1
    # functools and contextlib stand between our own frames: cached properties and contexts.
    while frame.f_back and frame.f_globals.get("__name__", "").startswith(
        ("kernelbayes.", "functools", "contextlib")
    ):
        frame, level = frame.f_back, level + 1
    warnings.warn(text, category, stacklevel=level)


def quiet() -> contextlib.AbstractContextManager[Any]:
    """Context without numerical warnings, for work that the user has not asked about."""
    return warnings.catch_warnings(action="ignore", category=NumericalWarning)


# --- array kinds ---------------------------------------------------------------------------------

# Namespace of every NumPy array: asked dozens of times per update, not worth a search each time.
_NUMPY = array_namespace(np.empty(0))


def namespace(*arrays: Array) -> Any:
    """Array-API namespace shared by all arrays; a TypeError says when they are of mixed kinds."""
    if len(arrays) == 1 and type(arrays[0]) is np.ndarray:
        return _NUMPY
    if {type(a) for a in arrays} == {np.ndarray}:
        return _NUMPY
    try:
        return array_namespace(*arrays)
    except TypeError as error:
        kinds = sorted({f"{type(a).__module__.split('.')[0]}.{type(a).__name__}" for a in arrays})
        raise TypeError(
            f"arrays of one kind are needed, got {' and '.join(kinds)}; "
            "convert them to the same library first"
        ) from error


def to_numpy(x: Array) -> npt.NDArray[Any]:
    """NumPy copy or view of any array; leaves a torch graph behind."""
    if is_torch_array(x):
        return np.asarray(x.detach().cpu().numpy())
    if is_array_api_obj(x) and not isinstance(x, np.ndarray):
        with contextlib.suppress(TypeError, ValueError):
            return np.asarray(x)
        return np.from_dlpack(x)
    return np.asarray(x)


def as_doubles(values: Any, name: str = "values") -> npt.NDArray[np.float64]:
    """NumPy array of doubles, whatever kind of real numbers the values were."""
    return np.asarray(to_numpy(as_real(values, name)), dtype=np.float64)


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
    known = rng is None or isinstance(rng, int | np.integer | np.random.Generator)
    if not known or isinstance(rng, bool):
        raise TypeError(
            f"rng must be an int, None or a numpy.random.Generator, got {type(rng).__name__}"
        )
    if isinstance(rng, int | np.integer) and rng < 0:
        raise ValueError(f"rng must not be negative, got {rng}")
    return np.random.default_rng(rng)


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


def frame_kind(X: ArrayLike) -> str | None:
    """Return "DataFrame" or "Series" of pandas, polars or narwhals (none is imported), or None."""
    for base in type(X).__mro__:
        library = base.__module__.split(".")[0]
        if library in ("pandas", "polars", "narwhals") and base.__name__ in ("DataFrame", "Series"):
            return base.__name__
    return None


def is_frame(X: ArrayLike) -> bool:
    """Whether X is a data frame or series of pandas, polars or narwhals."""
    return frame_kind(X) is not None


def as_array(X: ArrayLike, name: str = "X") -> Array:
    """Array of any supported kind from arrays, frames, mappings of columns and sequences.

    What is missing is NaN: masked entries, None and pandas.NA among numbers. Objects that are
    numbers (Decimal, nullable columns) become numbers of NumPy.
    """
    if type(X) is np.ndarray and X.dtype.kind not in "OV":
        return X
    if isinstance(X, type):
        raise TypeError(f"{name} is the class {X.__name__}; give an array or a list")
    if isinstance(X, Mapping):
        columns = [as_array(part, f"{name}[{key!r}]") for key, part in X.items()]
        columns = [c if c.ndim else c[None] for c in columns]  # one point
        sizes = {key: column.shape[0] for key, column in zip(X, columns, strict=True)}
        if len(set(sizes.values())) != 1:
            raise ValueError(f"the parts of {name} must be aligned, got lengths {sizes}")
        xp = namespace(*columns)
        return xp.concat([c[:, None] if c.ndim == 1 else c for c in columns], axis=1)
    if is_array_api_obj(X) and not isinstance(X, np.ndarray | np.generic):
        return X
    if isinstance(X, list | tuple) and any(isinstance(row, np.ma.MaskedArray) for row in X):
        X = np.ma.stack(X)
    if isinstance(X, np.ma.MaskedArray):
        return unmasked(X, name)
    try:
        array = X.to_numpy() if is_frame(X) else np.asarray(X)
    except ValueError as error:
        text = f"{name} is ragged; expected n points of one shape (n, d): pad or split it"
        raise ValueError(text) from error
    if array.ndim == 0 and hasattr(X, "collect"):
        raise TypeError(f"{name} is a lazy frame; give {name}.collect()")
    if array.ndim == 0 and isinstance(X, Iterable) and not isinstance(X, str | bytes):
        raise TypeError(f"{name} is a {type(X).__name__}; give an array or a list, e.g. list(...)")
    if array.dtype.kind == "V":
        raise TypeError(f"{name} is an array of records; give a frame or a mapping of its fields")
    return numbers_of(array, name) if array.dtype.kind == "O" else array


def as_floats(X: ArrayLike, name: str = "X") -> Array:
    """Real, finite array of floats; integers and booleans become the default float."""
    if isinstance(X, Mapping):
        X = {key: as_floats(part, f"{name}[{key!r}]") for key, part in X.items()}
    X = as_real(X, name)
    xp = namespace(X)
    if not bool(xp.all(xp.isfinite(X))):
        raise refused(~to_numpy(xp.isfinite(X)), f"{name} has NaN or infinite entries")
    return X


def as_known(X: ArrayLike, name: str = "X") -> Array:
    """Real array of floats without NaN; what is infinite stays."""
    X = as_real(X, name)
    if bool(namespace(X).any(namespace(X).isnan(X))):
        raise refused(np.isnan(to_numpy(X)), f"{name} has NaN entries")
    return X


def as_real(X: ArrayLike, name: str = "X") -> Array:
    """Real array of floats, in which NaN says what is missing."""
    X = as_array(X, name)
    xp = namespace(X)
    if isinstance(X, np.ndarray) and X.dtype.kind not in "fbiuc":
        refuse_dates(X, name)
        text = X.dtype.kind != "O" or any(isinstance(x, str | bytes) for x in X.ravel())
        try:
            if text:  # NumPy would turn digits in strings into numbers
                raise TypeError(f"{X.dtype} is not a number")
            X = X.astype(np.float64)
        except (TypeError, ValueError) as error:
            text = f"{name} must hold numbers, got {X.dtype} values; for categories use the Delta "
            text += "kernel, for strings Spectrum, for mixed columns Parts"
            raise TypeError(text) from error
    if xp.isdtype(X.dtype, "complex floating"):
        raise TypeError(f"{name} must be real, got {X.dtype}")
    if not xp.isdtype(X.dtype, "real floating"):
        X = xp.astype(X, xp.asarray(1.0).dtype)
    if X.dtype not in (xp.float32, xp.float64):  # halves cannot be factorised
        X = xp.astype(X, xp.float64 if X.dtype.itemsize > 4 else xp.float32)
    return X


def as_vectors(X: ArrayLike, name: str = "X") -> Array:
    """Points of R^d as a finite float array (n, d); a 1-d array is n scalar points."""
    X = as_floats(X, name)
    X = X[:, None] if X.ndim == 1 else X
    if X.ndim != 2:
        raise ValueError(
            f"{name} must have shape (n, d) or (n,), got {tuple(X.shape)}; "
            "flatten each point or use a kernel for matrices or images"
        )
    if 0 in X.shape:
        raise ValueError(f"{name} is empty: shape {tuple(X.shape)}; at least one point is needed")
    # Row by row, so that frames and arrays of any layout give the same numbers to the last bit.
    return np.ascontiguousarray(X) if isinstance(X, np.ndarray) else X


# --- sums -----------------------------------------------------------------------------------------

# A sum over a million singles may lose half of its digits. So sums over samples are made of
# doubles, and rounded once, at the end, to the precision of what they came from.


def row_blocks(n: int, width: int, entries: int | None = None) -> Iterator[slice]:
    """Slices over n rows, each small enough that rows x width stays below ``entries``."""
    step = max(1, (BLOCK_ENTRIES if entries is None else entries) // max(1, width))
    for start in range(0, n, step):
        yield slice(start, min(n, start + step))


def widened(x: Array) -> Array:
    """Return x in double precision, in which sums over samples are accumulated."""
    xp = namespace(x)
    return x if x.dtype == xp.float64 else xp.astype(x, xp.float64)


def narrowed(x: Array, *templates: Array) -> Array:
    """Return x in the precision of the templates, the finest of them."""
    xp = namespace(x)
    return xp.astype(x, xp.result_type(*templates), copy=False)


def total(x: Array, axis: int = -1) -> Array:
    """Sum over an axis, accumulated in double precision; the result has the precision of x."""
    if type(x) is np.ndarray and x.dtype == np.float64:
        return np.add.reduce(x, axis=axis)  # in hot loops the wrappers take longer than the sum
    xp = namespace(x)
    if x.dtype == xp.float64:
        return xp.sum(x, axis=axis)
    return narrowed(xp.sum(x, axis=axis, dtype=xp.float64), x)


def weighted_sum(weights: Array, values: Array) -> Array:
    """Return weights (n,) or (m, n) @ values (n,) or (n, q) in double precision, by row blocks."""
    xp = namespace(weights, values)
    if weights.dtype == values.dtype == xp.float64:
        return weights @ values
    blocks = row_blocks(weights.shape[-1], max([1, *weights.shape[:-1], *values.shape[1:]]))
    parts = (widened(weights[..., rows]) @ widened(values[rows, ...]) for rows in blocks)
    return sum(parts, start=next(parts))


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

    @cached_property
    def blas(self) -> ThreadpoolController:
        return ThreadpoolController().select(user_api="blas")

    def __enter__(self) -> None:
        me = threading.get_ident()
        with self.lock:
            if self.owner is None and any(n.num_threads > 1 for n in self.blas.lib_controllers):
                self.owner = me
                self.limits = self.blas.limit(limits=1)
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
