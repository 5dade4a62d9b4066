"""Products over the parts of a joint variable: columns, or parts with names."""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
from array_api_compat import device

from kernelbayes.arrays import as_array, as_vectors, like, namespace, to_numpy, weighted_sum
from kernelbayes.kernels.algebra import Combined
from kernelbayes.kernels.base import Kernel, answer
from kernelbayes.points import count
from kernelbayes.types import Array, Points, PointsLike

Key = Any  # str, int, slice, range, or a tuple of names or numbers


@dataclass(frozen=True, eq=False, init=False)
class Parts(Combined):
    r"""Product over the parts of a joint variable.

    .. math:: k(x, y) = \prod_j k_j(x_j, y_j)

    Parameters
    ----------
    parts : mapping from a part to its kernel, or sequence of (part, kernel) pairs
        A part is a column name (of a frame or of a mapping of arrays), a column number, a
        ``range`` or ``slice`` of columns, or a tuple of names or numbers. (Python 3.11 cannot hash
        a slice: write a range, or give pairs.) Columns that no part names are ignored.

    Characteristic on the product space when every k_j is (for continuous bounded kernels that
    vanish at infinity). Use it for mixed columns, for (state, control) pairs and for joint
    distributions.

    Examples
    --------
    >>> from kernelbayes import Delta, Gaussian, Parts
    >>> k = Parts({"age": Gaussian(10.0), "sex": Delta()})
    >>> k({"age": [30.0, 40.0], "sex": ["f", "m"]})
    array([[1., 0.],
           [0., 1.]])
    >>> Parts({0: Gaussian(1.0), range(1, 3): Gaussian(2.0)})([[0.0, 0.0, 0.0]])
    array([[1.]])
    """

    parts: tuple[tuple[Key, Kernel], ...]

    def __init__(self, parts: Mapping[Key, Kernel] | Sequence[tuple[Key, Kernel]]) -> None:
        found = parts.items() if isinstance(parts, Mapping) else parts
        pairs = tuple(found) if isinstance(found, Iterable) else (None,)
        if not all(isinstance(pair, tuple | list) and len(pair) == 2 for pair in pairs):
            raise TypeError(f"Parts needs a mapping from parts to kernels, got {parts!r}")
        if not pairs:
            raise ValueError("Parts needs at least one part")
        for key, kernel in pairs:
            if not isinstance(key, str | int | slice | range | tuple) or key == ():
                raise TypeError(f"a part is a name, number, range, slice or tuple, got {key!r}")
            if not isinstance(kernel, Kernel):
                raise TypeError(f"part {key!r} needs a kernel, got {type(kernel).__name__}")
        object.__setattr__(self, "parts", pairs)

    def __hash__(self) -> int:
        return hash((Parts, tuple((repr(key), kernel) for key, kernel in self.parts)))

    @cached_property
    def children(self) -> tuple[Kernel, ...]:
        """The kernels of the parts."""
        return tuple(kernel for _, kernel in self.parts)

    by_name = answer(lambda self: any(isinstance(name, str) for name in self._columns()))
    takes_rows = answer(lambda self: not self.by_name)  # columns of an array, not named
    is_vector = answer(lambda self: self.takes_rows and all(k.is_vector for k in self.children))
    is_curved = answer(lambda self: any(kernel.is_curved for kernel in self.children))

    def mean_of(self, points: Points, weights: Array) -> Points:
        """Mean part by part: a vector for columns; a mapping for named parts, some curved."""
        if not self.is_curved:
            return super().mean_of(points, weights)
        if isinstance(points, Mapping):
            return {key: k.mean_of(self.part(points, key), weights) for key, k in self.parts}
        columns = np.arange(points.shape[1], dtype=float)[None, :]
        result = to_numpy(weighted_sum(weights, points)).copy()
        for key, kernel in self.parts:
            if kernel.is_curved:
                mean = kernel.mean_of(self.part(points, key), weights)
                result[..., self.part(columns, key)[0].astype(int)] = to_numpy(mean)
        return like(result, weights)

    def periods(self, d: int) -> tuple[float | None, ...]:
        """Period of each of d columns, by the part that it belongs to; None where there is none."""
        found: list[float | None] = [None] * d
        for key, kernel in () if self.by_name else self.parts:
            own = _numbers(key, d - 1)
            for column, period in zip(own, kernel.periods(len(own)), strict=True):
                found[column] = period
        return tuple(found)

    def on(self, columns: Sequence[int]) -> Self:
        """Product over the parts of which coordinates, or names, are left."""
        if self.by_name:
            names = list(dict.fromkeys(self._columns()))
            left_of = {names[j]: names[j] for j in columns}
        else:
            left_of = {column: i for i, column in enumerate(columns)}
        parts: list[tuple[Key, Kernel]] = []
        for key, kernel in self.parts:
            own = _names(key) if self.by_name else _numbers(key, max(columns, default=0))
            left = [j for j, column in enumerate(own) if column in left_of]
            if len(left) == len(own) and self.by_name:
                parts.append((key, kernel))
            elif left:
                inner = kernel if len(left) == len(own) else kernel.on(left)
                parts.append((tuple(left_of[own[j]] for j in left), inner))
        if not parts:
            raise ValueError("none of the coordinates present belongs to a part of the kernel")
        return type(self)(parts)

    def split(self, points: Points) -> list[tuple[Hashable, Kernel, Points]]:
        """Key, kernel and checked points of every part."""
        return [
            (key, kernel, kernel.points(self.part(points, key), str(key)))
            for key, kernel in self.parts
        ]

    def _with(self, change: Callable[[Kernel], Kernel], **own: Any) -> Kernel:
        del own  # no parameters but the parts
        changed = [(key, change(kernel)) for key, kernel in self.parts]
        same = all(new is old for (_, new), (_, old) in zip(changed, self.parts, strict=True))
        return self if same else Parts(changed)

    def part(self, X: Points, key: Key) -> Points:
        """Return the part of X that ``key`` names, unchecked."""
        if isinstance(X, Mapping):
            names = _names(key)
            if isinstance(key, slice):
                raise TypeError(f"part {key!r} is of columns by position, but X has names")
            missing = [name for name in names if name not in X]
            if missing:
                raise ValueError(f"no column {missing[0]!r}; X has {', '.join(map(repr, X))}")
            return {name: X[name] for name in names} if isinstance(key, tuple) else X[key]
        if isinstance(key, int):
            key = (key,)
        d = X.shape[1]
        try:
            columns = list(range(d))[key] if isinstance(key, slice) else [range(d)[i] for i in key]
        except IndexError:
            raise ValueError(f"part {key!r} is outside the {d} columns of X") from None
        xp = namespace(X)
        return xp.take(X, xp.asarray(columns, device=device(X)), axis=1)

    def _points(self, X: PointsLike, name: str) -> Points:
        by_number = all(isinstance(column, int) for column in self._columns())
        if isinstance(X, Mapping) and by_number and all(isinstance(c, str) for c in X):
            X = as_vectors(X, name)  # in their order, as the columns of a frame
        if isinstance(X, Mapping):
            checked: dict[Any, Points] = {}
            for key, kernel in self.parts:
                own = name if isinstance(key, tuple) else f"{name}[{key!r}]"
                points = kernel.points(self.part(X, key), own)
                if isinstance(key, tuple):
                    checked |= {part: as_array(X[part], f"{name}[{part!r}]") for part in key}
                else:
                    checked[key] = points
            sizes = {part: count(points) for part, points in checked.items()}
            if len(set(sizes.values())) > 1:
                raise ValueError(f"the parts of {name} must be aligned, got lengths {sizes}")
            return checked
        if self.by_name:
            raise TypeError(
                f"{name} must be a frame or a mapping with columns {list(dict(self.parts))}, "
                f"got {type(X).__name__}"
            )
        X = as_array(X, name)
        if X.ndim != 2 or X.shape[1] == 0:
            raise ValueError(f"{name} must have shape (n, d), got {tuple(X.shape)}")
        for key, kernel in self.parts:
            kernel.points(self.part(X, key), f"{name}[{key!r}]")
        return X

    def _columns(self) -> list[Key]:
        return [name for key, _ in self.parts for name in _names(key)]

    def _shares(self, X: Points) -> list[Points]:
        return [self.part(X, key) for key, _ in self.parts]


def _names(key: Key) -> tuple[Key, ...]:
    return key if isinstance(key, tuple) else (key,)


def _numbers(key: Key, last: int) -> list[int]:
    """Numbers of a part's columns; ``last`` is the last there is of an open slice."""
    if isinstance(key, int):
        return [key]
    if isinstance(key, slice):
        stop = last + 1 if key.stop is None else key.stop
        return list(range(key.start or 0, stop, key.step or 1))
    return list(key)
