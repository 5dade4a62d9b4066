"""Convert objects to trees of plain values and numbered arrays, and back.

A dataclass is represented by its fields, any other object by its attributes. Caches, and what can
be computed from the rest, are left out. Objects that occur twice are written once. Only classes of
this library are created, without calling their constructors, and only their attributes are set.
"""

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from inspect import getattr_static
from types import FunctionType, MethodType
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt
from array_api_compat import is_torch_array
from scipy.spatial import cKDTree

from kernelbayes.arrays import quiet, to_numpy
from kernelbayes.files import known
from kernelbayes.files.derived import completed, left_out
from kernelbayes.files.known import KINDS_STORED, Node, stored_fields
from kernelbayes.files.overlaps import with_overlaps, without_overlaps
from kernelbayes.gram.solvers import DenseWeighted
from kernelbayes.graphs.propagate import Propagation
from kernelbayes.likelihood_free.distributions import ADAPTERS, Component, remake
from kernelbayes.rules.calibration import Pending
from kernelbayes.rules.conditional import Conditional
from kernelbayes.tables import extra

SEQUENCES: dict[str, Any] = {"list": list, "tuple": tuple, "set": set, "frozenset": frozenset}
GENERATORS = ("PCG64", "PCG64DXSM", "MT19937", "Philox", "SFC64")


class Encoder:
    """Turns an object into a tree; arrays are appended to a list."""

    def __init__(self, arrays: list[npt.NDArray[Any]]) -> None:
        self.arrays = arrays
        self.functions: list[str] = []  # names of the user's functions
        self._stored: dict[int, dict[str, Node]] = {}  # nodes of arrays, by id
        self._seen: dict[int, int] = {}  # of objects, by id
        self._alive: list[object] = []  # so that no id is used twice
        self._asked: dict[int, str] = {}  # names of functions, by id

    def encode(self, value: Any, name: str) -> Node:
        """Node of a value with a name."""
        if value is None or isinstance(value, bool | str) or type(value) in (int, float):
            return value
        if isinstance(value, Pending):
            value = value.found
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
        if isinstance(value, MethodType) and type(value.__self__) in known.names():
            return {"method": [self.encode(value.__self__, name), value.__name__]}
        frozen = known.frozen_distribution(value)
        if frozen is not None:
            return {"scipy": self._each(frozen, name)}
        label = known.names().get(type(value))
        if label is not None:
            return self._object(value, label)
        if isinstance(value, Mapping):
            pairs = [[self.encode(k, name), self.encode(v, str(k))] for k, v in value.items()]
            return {"dict": pairs}
        value = list(value.edges) if hasattr(value, "edges") else value  # a networkx graph
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
        if value.size > 1 and not any(value.strides):  # one number, broadcast
            first = self._array(np.asarray(value.flat[0]), name)
            return {"constant": [first["array"], list(value.shape)]}
        if id(value) not in self._stored:
            self._alive.append(value)
            self._stored[id(value)] = self._parts(value)
        return self._stored[id(value)]

    def _parts(self, value: npt.NDArray[Any]) -> dict[str, Node]:
        """Node of an array: without the zeros of a triangle, or the overlaps of windows."""
        r = value.shape[-1] if value.ndim else 0
        if value.shape == (r, r) and r > 1 and not np.triu(value, 1).any():
            return {"lower": [self._add(value[np.tril_indices(r)]), r, value.flags.f_contiguous]}
        if (parts := without_overlaps(value)) is not None:
            return {"windows": [self._add(part) for part in parts]}
        return {"array": self._add(np.asarray(value))}

    def _add(self, array: npt.NDArray[Any]) -> int:
        self.arrays.append(array)
        return len(self.arrays) - 1

    def _object(self, value: Any, label: str) -> Node:
        if id(value) in self._seen:
            return {"same": self._seen[id(value)]}
        self._alive.append(value)
        cls = type(value)
        names = stored_fields(cls)
        if names is None:
            own = getattr(value, "__dict__", {})
            names = [
                n for n in own if not isinstance(getattr_static(cls, n, None), cached_property)
            ]
        state = {n: getattr(value, n) for n in names}
        node: dict[str, Node] = {"class": label}
        if "measured" in state:  # keep the error of landmarks, not the points it was measured on
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


class Decoder:
    """Turns a tree back into an object."""

    def __init__(
        self, arrays: Sequence[npt.NDArray[Any]], functions: Mapping[str, Callable[..., Any]]
    ) -> None:
        self.arrays = arrays
        self._made: dict[int, Any] = {}
        self._rebuilt: dict[int, npt.NDArray[Any]] = {}  # by the number of their first array
        every = self._all
        self._kinds: dict[str, Callable[[Any], Any]] = {
            "array": lambda number: arrays[number],
            "scalar": lambda number: arrays[number][()],
            "constant": lambda value: np.broadcast_to(arrays[value[0]], value[1]),
            "lower": lambda value: self._once(value[0], self._lower, *value),
            "windows": lambda value: self._once(
                value[0], with_overlaps, *(arrays[i] for i in value)
            ),
            "objects": lambda value: self._objects(*value),
            "slice": lambda parts: slice(*every(parts)),
            "dict": lambda pairs: {self.decode(key): self.decode(value) for key, value in pairs},
            "function": lambda name: functions[name],
            "same": lambda number: self._made[number],
            "neighbours": lambda node: cKDTree(self.decode(node)),
            "component": lambda value: remake(ADAPTERS[value[0]], *every(value[1:])),
            "scipy": self._scipy,
            "generator": self._generator,
            "method": self._method,
            "torch": lambda node: extra("torch", "torch", "the file has torch tensors").asarray(
                self.decode(node)
            ),
        }

    def decode(self, node: Node) -> Any:
        """Return the value of a node."""
        if not isinstance(node, dict):
            if isinstance(node, list):
                raise ValueError("a list without a kind")
            return node
        if "class" in node:
            return self._object(node)
        ((kind, value),) = node.items()
        if kind in SEQUENCES:
            return SEQUENCES[kind](self._all(value))
        return self._kinds.get(kind, lambda _: _unknown(kind))(value)

    def _all(self, nodes: list[Node]) -> list[Any]:
        return [self.decode(node) for node in nodes]

    def _objects(self, shape: list[int], items: list[Node]) -> npt.NDArray[Any]:
        result = np.empty(len(items), dtype=object)
        result[:] = self._all(items)
        return result.reshape(shape)

    def _generator(self, node: Node) -> np.random.Generator:
        state = self.decode(node)
        if state["bit_generator"] not in GENERATORS:
            _unknown(state["bit_generator"])
        bits = getattr(np.random, state["bit_generator"])()
        bits.state = state
        return np.random.Generator(bits)

    def _method(self, value: list[Node]) -> Any:
        owner, name = self.decode(value[0]), value[1]
        ours = type(owner) in known.registry().values() and not name.startswith("__")
        if not ours or not isinstance(getattr_static(type(owner), name), FunctionType):
            _unknown(name)
        return getattr(owner, name)

    def _scipy(self, value: list[Node]) -> Any:
        name, args, kwds = self._all(value)
        return known.distributions()[name](*args, **kwds)

    def _once(self, number: int, make: Callable[..., Any], *parts: Any) -> npt.NDArray[Any]:
        if number not in self._rebuilt:
            self._rebuilt[number] = make(*parts)
        return self._rebuilt[number]

    def _lower(self, number: int, r: int, fortran: bool) -> npt.NDArray[Any]:
        if r * (r + 1) != 2 * len(self.arrays[number]):
            raise ValueError(f"a triangle of {r} rows has the wrong size")
        whole = np.zeros((r, r), self.arrays[number].dtype, order="F" if fortran else "C")
        whole[np.tril_indices(r)] = self.arrays[number]
        return whole

    def _object(self, node: dict[str, Node]) -> Any:
        cls = known.class_named(node["class"])
        state = {name: self.decode(part) for name, part in node["state"].items()}
        gone = known.REMOVED.get(cls.__name__, {})
        state = {n: v for n, v in state.items() if n not in gone or v != gone[n]}
        fields = stored_fields(cls)
        allowed = state.keys() if fields is None else fields
        if set(state) - set(allowed) or any(n.startswith("__") for n in state):
            raise ValueError(f"{node['class']} has unknown attributes")
        if any(value in state.values() for value in known.GONE.get(cls.__name__, ())):
            raise ValueError(f"{node['class']} was learned in a way that is gone")
        state = completed(cls, state)
        if cls is Conditional and "weighted" in node:
            weights, ridge = self._all(node["weighted"])
            with quiet():  # the fit has already warned
                state["operator"] = state["inputs"].gram.weighted(weights, ridge)
        items = self._all(node.get("items", []))
        obj = tuple.__new__(cls, items) if issubclass(cls, tuple) else cls.__new__(cls)
        if isinstance(obj, list):
            obj.extend(items)
        for field in () if fields is None else dataclasses.fields(cls):
            if field.name not in state:
                state[field.name] = _default(field)
        for name, value in state.items():
            object.__setattr__(obj, name, value)
        if isinstance(obj, Propagation):
            obj.derive()
        self._made[node["number"]] = obj
        return obj


def _default(field: dataclasses.Field[Any]) -> Any:
    """Value of a field that is not in the file: a cache, or one that a later version added."""
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    if field.default is dataclasses.MISSING:
        raise ValueError(f"{field.name} is missing")
    return field.default


def _unknown(kind: object) -> NoReturn:
    raise ValueError(f"{kind!r} is never written")
