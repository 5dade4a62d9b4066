"""Trees of plain values and numbered arrays as objects again.

Only classes of this library are made, without calling their constructors, and only attributes that
such an object can have are set.
"""

import dataclasses
import inspect
from collections.abc import Callable, Mapping, Sequence
from types import FunctionType
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.spatial import cKDTree

from kernelbayes.arrays import quiet
from kernelbayes.files.derived import completed
from kernelbayes.files.known import Node, class_named, distributions, registry, stored_fields
from kernelbayes.likelihood_free.distributions import ADAPTERS, Component, remake
from kernelbayes.rules.conditional import Conditional

SEQUENCES: dict[str, Any] = {"list": list, "tuple": tuple, "set": set, "frozenset": frozenset}
GENERATORS = ("PCG64", "PCG64DXSM", "MT19937", "Philox", "SFC64")


class Decoder:
    """Turns a tree back into an object."""

    def __init__(
        self, arrays: Sequence[npt.NDArray[Any]], functions: Mapping[str, Callable[..., Any]]
    ) -> None:
        self.arrays = arrays
        self.functions = functions
        self._made: dict[int, Any] = {}
        self._triangles: dict[int, npt.NDArray[Any]] = {}

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
        return getattr(self, f"_{kind}")(value) if kind in _DECODED else _unknown(kind)

    def _all(self, nodes: list[Node]) -> list[Any]:
        return [self.decode(node) for node in nodes]

    def _array(self, number: int) -> npt.NDArray[Any]:
        return self.arrays[number]

    def _scalar(self, number: int) -> Any:
        return self.arrays[number][()]

    def _objects(self, value: list[Any]) -> npt.NDArray[Any]:
        shape, items = value
        result = np.empty(len(items), dtype=object)
        result[:] = self._all(items)
        return result.reshape(shape)

    def _torch(self, node: Node) -> Any:
        try:
            import torch
        except ImportError as error:
            raise ImportError("the file has torch tensors: pip install torch") from error
        return torch.asarray(self.decode(node))

    def _slice(self, parts: list[Node]) -> slice:
        return slice(*self._all(parts))

    def _generator(self, node: Node) -> np.random.Generator:
        state = self.decode(node)
        if state["bit_generator"] not in GENERATORS:
            raise ValueError(f"{state['bit_generator']!r} is never written")
        bits = getattr(np.random, state["bit_generator"])()
        bits.state = state
        return np.random.Generator(bits)

    def _method(self, value: list[Node]) -> Any:
        owner, name = self.decode(value[0]), value[1]
        if type(owner) not in registry().values() or name.startswith("__"):
            return _unknown(name)
        if not isinstance(inspect.getattr_static(type(owner), name), FunctionType):
            return _unknown(name)
        return getattr(owner, name)

    def _scipy(self, value: list[Node]) -> Any:
        name, args, kwds = self._all(value)
        return distributions()[name](*args, **kwds)

    def _component(self, value: list[Node]) -> Component:
        name, *parts = value
        return remake(ADAPTERS[name], *self._all(parts))

    def _neighbours(self, node: Node) -> cKDTree:
        return cKDTree(self.decode(node))

    def _constant(self, value: list[Any]) -> npt.NDArray[Any]:
        return np.broadcast_to(self.arrays[value[0]], value[1])

    def _lower(self, value: list[Any]) -> npt.NDArray[Any]:
        number, r, fortran = value
        if number not in self._triangles:
            if r * (r + 1) != 2 * len(self.arrays[number]):
                raise ValueError(f"a triangle of {r} rows has another size")
            whole = np.zeros((r, r), self.arrays[number].dtype, order="F" if fortran else "C")
            whole[np.tril_indices(r)] = self.arrays[number]
            self._triangles[number] = whole
        return self._triangles[number]

    def _dict(self, pairs: list[list[Node]]) -> dict[Any, Any]:
        return {self.decode(key): self.decode(value) for key, value in pairs}

    def _function(self, name: str) -> Callable[..., Any]:
        return self.functions[name]

    def _same(self, number: int) -> Any:
        return self._made[number]

    def _object(self, node: dict[str, Node]) -> Any:
        cls = class_named(node["class"])
        state = {name: self.decode(part) for name, part in node["state"].items()}
        fields = stored_fields(cls)
        allowed = state.keys() if fields is None else fields
        if set(state) - set(allowed) or any(n.startswith("__") for n in state):
            raise ValueError(f"{node['class']} has no such attributes")
        state = completed(cls, state)
        if cls is Conditional and "weighted" in node:
            weights, ridge = self._all(node["weighted"])
            with quiet():  # said when the model was fitted
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
        self._made[node["number"]] = obj
        return obj


# Kinds of nodes, each decoded by the method of its name.
_DECODED = (
    *("array", "scalar", "objects", "torch", "slice", "generator", "method", "scipy", "dict"),
    *("function", "same", "component", "neighbours", "constant", "lower"),
)


def _default(field: dataclasses.Field[Any]) -> Any:
    """Value of a field that is not in the file: a cache, or one that a later version added."""
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    if field.default is dataclasses.MISSING:
        raise ValueError(f"{field.name} is missing")
    return field.default


def _unknown(kind: object) -> Any:
    raise ValueError(f"{kind!r} is never written")
