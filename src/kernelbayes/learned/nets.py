"""Networks for vectors, images and windows, as plain values that can be saved.

A :class:`Net` describes a network; ``net.build()`` makes the torch module. The first layer of each
standardises its input, with numbers in its buffers, and the last has ``dim`` outputs.
"""

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from kernelbayes.tables import extra
from kernelbayes.types import Floats

Module = Any  # a torch.nn.Module: torch is not imported here
Kind = Literal["mlp", "cnn", "window", "gru"]
# Units of the two hidden layers of a network for vectors, and of the last one of the others.
HIDDEN, LAST_HIDDEN = 128, 64
# Channels of the convolutions: of images at half, a quarter and an eighth of the size; of windows.
CHANNELS, WINDOW_CHANNELS = (8, 16, 32), (32, 32)
# Training on images: standard deviation of the noise added to standardised pixels, and the share of
# dropout before the last layers. Without them the static error of a maze with 900 views was .054
# instead of .044, that of sprites .0106 instead of .0093 (two development seeds).
PIXEL_NOISE, DROPOUT = 0.5, 0.5
# Fewest pixels of a side of an image, and largest ratio of its sides. Other arrays (n, a, b) hold
# n windows of a observations.
LEAST_SIDE, MOST_OBLONG = 8, 2.0


def import_torch() -> Any:
    """Import torch, or name the extra to install."""
    return extra("torch", "torch", "learned features need torch")


def kind_of(shape: tuple[int, ...]) -> Kind:
    """Kind of network for a shape: vectors (d,), images (h, w) or (h, w, c), windows (t, d)."""
    if len(shape) == 1:
        return "mlp"
    short, long = sorted(shape[:2])
    image = short >= LEAST_SIDE and long <= MOST_OBLONG * short
    if len(shape) == 3 or (len(shape) == 2 and image):
        return "cnn"
    if len(shape) == 2:
        return "window"
    raise ValueError(
        f"no network for points of shape {shape}; expected vectors (n, d), images (n, h, w) or "
        "(n, h, w, channels) or windows (n, steps, d): reshape them or pass your own module"
    )


@dataclass(frozen=True)
class Net:
    """A built-in network: its kind, the shape of a point and the number of features."""

    kind: Kind
    shape: tuple[int, ...]
    dim: int

    def __post_init__(self) -> None:
        dims = {"mlp": (1,), "cnn": (2, 3)}.get(self.kind, (2,))
        if len(self.shape) not in dims:
            raise ValueError(f"module {self.kind!r} cannot take points of shape {self.shape}")

    def build(self) -> Module:
        """Make the torch module, with random weights from torch's global generator."""
        nn = import_torch().nn
        first, layers = _standardise(self), []
        if self.kind == "mlp":
            layers = [nn.Linear(self.shape[0], HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, HIDDEN)]
            return nn.Sequential(first, *layers, nn.ReLU(), nn.Linear(HIDDEN, self.dim))
        if self.kind == "cnn":
            height, width, before = *self.shape[:2], 1 if len(self.shape) == 2 else self.shape[2]
            for after in CHANNELS:
                layers += [nn.Conv2d(before, after, 3, stride=2, padding=1), nn.ReLU()]
                height, width, before = -(-height // 2), -(-width // 2), after
            size = height * width * before
        elif self.kind == "gru":
            return nn.Sequential(first, _remember(*self.shape[1:]), nn.Linear(HIDDEN, self.dim))
        else:
            steps, before = self.shape
            for after in WINDOW_CHANNELS:
                layers += [nn.Conv1d(before, after, 3, padding=1), nn.ReLU()]
                before = after
            size = steps * before
        flat = nn.Flatten()
        if self.kind == "cnn":  # one block, so that layers keep their numbers in files
            flat = nn.Sequential(flat, nn.Dropout(DROPOUT))
        head = [flat, nn.Linear(size, LAST_HIDDEN), nn.ReLU()]
        return nn.Sequential(first, *layers, *head, nn.Linear(LAST_HIDDEN, self.dim))

    @property
    def width(self) -> int:
        """Size of the largest layer for one point."""
        return max(HIDDEN, math.prod(self.shape) * max(CHANNELS))

    def scales(self, X: Floats) -> tuple[Floats, Floats]:
        """Centre and spread of points X (n, ...), one for each column or channel."""
        grey = self.kind == "cnn" and len(self.shape) == 2
        axes = tuple(range(X.ndim if grey else X.ndim - 1))
        spread = np.atleast_1d(X.std(axis=axes))
        return np.atleast_1d(X.mean(axis=axes)), np.where(spread > 0.0, spread, 1.0)


def _standardise(net: Net) -> Module:
    """First layer: (x - centre) / spread, channels before places as torch wants them."""
    torch, grey = import_torch(), net.kind == "cnn" and len(net.shape) == 2
    columns = 1 if grey else net.shape[-1]

    class Standardise(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("centre", torch.zeros(columns))
            self.register_buffer("spread", torch.ones(columns))

        def forward(self, X: Module) -> Module:
            X = X[..., None] if grey else X
            X = (X - self.centre) / self.spread
            if self.training and net.kind == "cnn":
                X = X + PIXEL_NOISE * torch.randn_like(X)
            return X if net.kind == "gru" else X.movedim(-1, 1)

    return Standardise()


def _remember(columns: int) -> Module:
    """Gated recurrent unit that reads windows (n, steps, columns): its last state (n, HIDDEN)."""
    nn = import_torch().nn

    class Last(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.unit = nn.GRU(columns, HIDDEN, batch_first=True)

        def forward(self, X: Module) -> Module:
            return self.unit(X)[0][:, -1]

    return Last()
