"""A trained network as an immutable kernel."""

import math
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from array_api_compat import is_torch_array

from kernelbayes.arrays import as_floats, like, to_numpy
from kernelbayes.gram.finite import FiniteKernel
from kernelbayes.kernels import Kernel
from kernelbayes.kernels.base import answer
from kernelbayes.learned.nets import Module, Net, import_torch
from kernelbayes.points import in_order
from kernelbayes.types import Array, Floats, Names, Points, PointsLike


def read_points(X: PointsLike, name: str = "X") -> Points:
    """Finite numbers (n, ...); a 1-d array is n scalar points."""
    X = as_floats(X, name)
    X = X[:, None] if X.ndim == 1 else X
    if X.ndim == 0 or 0 in X.shape:
        raise ValueError(f"{name} is empty: shape {tuple(X.shape)}; at least one point is needed")
    return X


@dataclass(frozen=True, eq=False)
class Learned(FiniteKernel):
    r"""Kernel of learned features, :math:`k(x, y) = \psi(x)^\top \psi(y)`.

    Made by :meth:`NeuralFeatures.fit`. The network runs in double precision, without dropout and
    with the statistics of the training sample. Torch points keep their graph. Two such kernels are
    equal if their networks and weights are; your own networks must be the same object.

    Attributes
    ----------
    module : Net or torch.nn.Module
        Architecture of the network. Your own module is not changed; its weights are not used.
    state : mapping from names to arrays
        Weights and buffers.
    shape : tuple of int
        Shape of a point.
    size : float
        Divisor of the outputs that makes k(x, x) one on average over the training sample.
    history : tuple of tuple of float
        Held-out loss after each epoch, for each start.
    """

    module: Net | Module
    state: Mapping[str, Floats] = field(repr=False)
    shape: tuple[int, ...]
    dim: int
    size: float = field(repr=False)
    names: Names = field(default=None, repr=False, compare=False)  # columns of the training sample
    history: tuple[tuple[float, ...], ...] = field(default=(), repr=False, compare=False)

    takes_rows = answer(lambda self: len(self.shape) == 1)

    @property
    def rank(self) -> int:
        """Number of features."""
        return self.dim

    @property
    def width(self) -> int:
        """Numbers held in memory per row of a block."""
        own = not isinstance(self.module, Net)
        return Net("mlp", (math.prod(self.shape),), 1).width if own else self.module.width

    def points(self, X: PointsLike, name: str = "X") -> Points:
        """Check X; columns of a frame are put in the order of the training sample."""
        return super().points(in_order(X, self.names, name), name)

    def on(self, columns: Sequence[int]) -> Kernel:
        """Return the kernel itself for all columns in order; other selections are an error."""
        if self.takes_rows and list(columns) == list(range(self.shape[0])):
            return self
        raise TypeError(
            "learned features cannot use partly missing observations; give complete "
            "observations or rows of NaN"
        )

    def _points(self, X: PointsLike, name: str) -> Points:
        X = read_points(X, name)
        if tuple(X.shape[1:]) != self.shape:
            raise ValueError(
                f"features were learned for points of shape {self.shape}, but {name} has points of "
                f"shape {tuple(X.shape[1:])}"
            )
        return X

    @cached_property
    def _network(self) -> tuple[Module, dict[str, Any]]:
        """Module for inference, and its weights as tensors in double precision."""
        torch = import_torch()
        module = self.module.build() if isinstance(self.module, Net) else deepcopy(self.module)
        module = module.double().eval().requires_grad_(False)
        tensors = {name: torch.from_numpy(to_numpy(a).copy()) for name, a in self.state.items()}
        try:
            module.load_state_dict(tensors)
        except RuntimeError as error:
            raise ValueError(f"the module is not the one that was trained: {error}") from error
        return module, dict(module.state_dict())

    def _rows(self, X: Points) -> Array:
        torch, (module, state) = import_torch(), self._network
        if not is_torch_array(X):
            with torch.no_grad():
                psi = module(torch.from_numpy(to_numpy(X).astype("float64"))) / self.size
            return like(psi.numpy(), X)
        moved = {name: tensor.to(X.device) for name, tensor in state.items()}
        psi = torch.func.functional_call(module, moved, (X.double(),)) / self.size
        return psi.to(X.dtype)
