"""Objects as a tree of plain values and numbered arrays.

A dataclass is its fields, another object its attributes; caches, and what can be computed from the
rest, are left out. Objects that occur twice are written once.
"""

from collections.abc import Callable, Iterable, Mapping
from types import MethodType
from typing import Any

import numpy as np
import numpy.typing as npt
from array_api_compat import is_torch_array
from scipy.spatial import cKDTree

from kernelbayes.arrays import to_numpy
from kernelbayes.files import known
from kernelbayes.files.derived import left_out
from kernelbayes.files.known import KINDS_STORED, Node, name_of, stored_fields
from kernelbayes.gram.solvers import DenseWeighted
from kernelbayes.likelihood_free.distributions import Component
from kernelbayes.rules.conditional import Conditional


class Encoder:
    """Turns an object into a tree; arrays are appended to a list."""

    def __init__(self, arrays: list[npt.NDArray[Any]]) -> None:
        self.arrays = arrays
        self.functions: list[str] = []  # names of the user's functions
        self._numbers: dict[int, int] = {}  # of arrays, by id
        self._seen: dict[int, int] = {}  # of objects, by id
        self._alive: list[object] = []  # so that no id is used twice
        self._asked: dict[int, str] = {}  # names of functions, by id

    def encode(self, value: Any, name: str) -> Node:
        """Return the node of a value that is held under a name."""
        if value is None or isinstance(value, bool | str) or type(value) in (int, float):
            return value
        if isinstance(value, np.ndarray):
            return self._array(value, name)
        if isinstance(value, np.generic):
            return {"scalar": self._array(np.asarray(value), name)["array"]}
        if is_torch_array(value):
            return {"torch": self.encode(to_numpy(value), name)}
        if isinstance(value, cKDTree):
            return {"neighbours": self.encode(value.data, name)}
        if isinstance(value, Component) and value.made is not None:
            adapter, source = value.made
            parts = (source, value.low, value.high)
            return {"component": [adapter.__name__, *self._each(parts, "prior")]}
        if isinstance(value, slice):
            return {"slice": self._each((value.start, value.stop, value.step), name)}
        if isinstance(value, np.random.Generator):
            return {"generator": self.encode(value.bit_generator.state, name)}
        if isinstance(value, MethodType) and name_of(type(value.__self__)):
            return {"method": [self.encode(value.__self__, name), value.__name__]}
        frozen = known.frozen_distribution(value)
        if frozen is not None:
            return {"scipy": self._each(frozen, name)}
        label = name_of(type(value))
        if label is not None:
            return self._object(value, label)
        if isinstance(value, Mapping):
            return {
                "dict": [[self.encode(k, name), self.encode(v, str(k))] for k, v in value.items()]
            }
        if isinstance(value, list | tuple | set | frozenset):
            return {type(value).__name__: self._each(value, name)}
        if callable(value):
            return {"function": self._function(value, name)}
        raise TypeError(
            f"cannot save {name}, of type {type(value).__module__}.{type(value).__name__}; "
            "files hold what this library returns, arrays and plain values"
        )

    def _each(self, values: Iterable[Any], name: str) -> list[Node]:
        return [self.encode(value, name) for value in values]

    def _array(self, value: npt.NDArray[Any], name: str) -> dict[str, Node]:
        if value.dtype.kind == "O":
            return {"objects": [list(value.shape), self._each(value.ravel(), name)]}
        if value.dtype.kind not in KINDS_STORED:
            raise TypeError(f"cannot save {name}, an array of type {value.dtype}")
        if value.size > 1 and not any(value.strides):  # one number, seen as many
            first = self._array(np.asarray(value.flat[0]), name)
            return {"constant": [first["array"], list(value.shape)]}
        r = value.shape[-1] if value.ndim else 0
        lower = value.shape == (r, r) and r > 1 and not np.triu(value, 1).any()
        if id(value) not in self._numbers:
            self._alive.append(value)
            self._numbers[id(value)] = len(self.arrays)
            self.arrays.append(value[np.tril_indices(r)] if lower else np.asarray(value))
        number = self._numbers[id(value)]
        return {"lower": [number, r, value.flags.f_contiguous]} if lower else {"array": number}

    def _object(self, value: Any, label: str) -> Node:
        if id(value) in self._seen:
            return {"same": self._seen[id(value)]}
        self._alive.append(value)
        cls = type(value)
        names: Iterable[str] = stored_fields(cls) or ()
        if stored_fields(cls) is None:
            names = [n for n in getattr(value, "__dict__", {}) if not known.is_cache(cls, n)]
        state = {n: getattr(value, n) for n in names}
        node: dict[str, Node] = {"class": label}
        if "measured" in state:  # the error of landmarks, not the points to measure it on
            state["measured"] = value.error
        for name in left_out(cls, state):
            del state[name]
        if isinstance(value, Conditional) and isinstance(value.operator, DenseWeighted):
            solver = state.pop("operator")
            kept = (solver.weights, solver.diagnostics.ridge)
            node["weighted"] = self._each(kept, "weights")
        if isinstance(value, list | tuple):
            node["items"] = self._each(value, label)
            state = {} if isinstance(value, tuple) else state
        node["state"] = {n: self.encode(v, n) for n, v in state.items()}
        self._seen[id(value)] = node["number"] = len(self._seen)
        return node

    def _function(self, value: Callable[..., Any], name: str) -> str:
        if id(value) not in self._asked:
            same = sum(f.split("_")[0] == name for f in self.functions)
            label = name if not same else f"{name}_{same + 1}"
            self._alive.append(value)
            self._asked[id(value)] = label
            self.functions.append(label)
        return self._asked[id(value)]
