r"""What tuning a filter needs: sequences in parts, stretches of a part, and losses.

A candidate learns from all parts but one and filters the one left out, stretch by stretch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

import numpy as np

from kernelbayes.arrays import Points, as_floats, count, take, to_numpy
from kernelbayes.filters.beliefs import Beliefs
from kernelbayes.filters.sequences import as_points, into_steps, is_many, unstacked
from kernelbayes.kernels import Gaussian, Kernel
from kernelbayes.loo import on_vectors

Judge = Callable[[Beliefs, Any], Any]  # beliefs and true states (T, ...) to losses (T,)
Loss = Literal["error", "mass", "coverage"] | Judge
# A part is filtered in at most this many stretches, of at least so many steps each; after each of
# them a poor candidate may be given up.
STRETCHES = 4
SHORTEST = 50


@dataclass(frozen=True)
class Part:
    """One sequence: points, states, controls of its transitions."""

    X: Points
    Z: Points
    controls: Points | None


def cut(X: Any, Z: Any, controls: Any, parts: int, model: Any) -> list[list[Part]]:
    """Sequences in parts of about equal length; if they are too few, they are cut into pieces."""
    kernels = [getattr(model, f"kernel_{v}", None) for v in "xzu"]
    X, Z = unstacked(X, kernels[0]), unstacked(Z, kernels[1])
    many = is_many(X)
    named = [k is not None and k.by_name for k in kernels]
    xs, zs = (
        [as_points(s, name) for s in (A if many else [A])]
        for A, name in ((X, named[0]), (Z, named[1]))
    )
    us = [None] * len(xs) if controls is None else (controls if many else [controls])
    whole = []
    for x, z, u in zip(xs, zs, us, strict=True):
        steps = None if u is None else into_steps(as_points(u, named[2]), count(x))
        whole.append(Part(x, z, steps))
    long = [s for s in whole if count(s.X) > 1]
    if not parts >= 2:
        raise ValueError(f"parts must be at least 2, got {parts}")
    if len(long) < parts:
        whole = [piece for s in whole for piece in _pieces(s, parts)]
        long = [s for s in whole if count(s.X) > 1]
    if len(long) < 2:
        raise ValueError("tuning needs a sequence of at least four steps, or several sequences")
    # Neighbours in time are alike, so that a part is a block of sequences in the order given.
    sizes = np.array([count(s.X) for s in long])
    number = ((np.cumsum(sizes) - sizes / 2.0) * parts / sizes.sum()).astype(int)
    groups = [
        [s for s, k in zip(long, number, strict=True) if k == wanted]
        for wanted in np.unique(number)
    ]
    single = [s for s in whole if count(s.X) == 1]  # pairs without transitions: never left out
    return [*groups, single] if single else groups


def _pieces(s: Part, parts: int) -> list[Part]:
    n = count(s.X)
    if n < 2 * parts:
        return [s]
    ends = np.linspace(0, n, parts + 1).astype(int)
    return [
        Part(
            take(s.X, slice(a, b)),
            take(s.Z, slice(a, b)),
            None if s.controls is None else take(s.controls, slice(a, b - 1)),
        )
        for a, b in pairwise(ends)
    ]


def stretches(group: list[Part]) -> list[list[Part]]:
    """Sequences of a part in stretches of about equal length; where one is cut, it starts anew."""
    steps = sum(count(s.X) for s in group)
    length = steps / min(STRETCHES, max(1, steps // SHORTEST))
    cut_up = [p for s in group for p in _pieces(s, max(1, round(count(s.X) / length)))]
    sizes = np.array([count(p.X) for p in cut_up])
    number = (np.cumsum(sizes) - sizes / 2.0) // length  # by the middle of a piece
    return [
        [p for p, k in zip(cut_up, number, strict=True) if k == wanted]
        for wanted in np.unique(number)
    ]


def learn(model: Any, sequences: list[Part]) -> None:
    """Fit a filter to sequences."""
    controls = None
    if sequences[0].controls is not None:
        controls = [s.controls for s in sequences]
    model.fit([s.X for s in sequences], [s.Z for s in sequences], controls)


def filtered_losses(model: Any, sequences: list[Part], judge: Judge) -> Any:
    """Losses of all steps of some sequences, filtered side by side; infinite where they are not."""
    controls = None if sequences[0].controls is None else [s.controls for s in sequences]
    beliefs = model.filter([s.X for s in sequences], controls, progress=False)
    found = [judge(b, s.Z) for b, s in zip(beliefs, sequences, strict=True)]
    losses = np.concatenate([np.asarray(f, dtype=float) for f in found])
    return np.where(np.isfinite(losses), losses, np.inf)


def smoothed_losses(
    model: Any, sequences: list[Part], judge: Judge, ridges: tuple[float, ...]
) -> Any:
    """Return the sum of the losses of smoothed sequences for each ridge of the backward step."""
    controls = None if sequences[0].controls is None else [s.controls for s in sequences]
    runs = model._run([s.X for s in sequences], controls, None, False)
    totals = []
    for ridge in ridges:
        found = model.set_params(back_ridge=ridge)._smoothed(runs)
        losses = [np.sum(judge(b, s.Z)) for b, s in zip(found, sequences, strict=True)]
        totals.append(float(np.sum(losses)))
    return np.where(np.isfinite(totals), totals, np.inf)


def judge_of(loss: Loss, kernel: Kernel, Z: Points) -> Judge:
    """Return the function that gives the losses (T,) of beliefs."""
    if callable(loss):
        return loss
    if loss == "error":
        return _squared_error if on_vectors(kernel) else _rkhs_error(kernel)
    near = 0.25 * float(Gaussian.median(Z).bandwidth)  # type: ignore[arg-type]
    if loss == "mass":
        return lambda beliefs, truth: _lost_mass(beliefs, truth, near)
    if loss == "coverage":
        return _coverage_error
    raise ValueError(f"loss must be 'error', 'mass', 'coverage' or a function, got {loss!r}")


def _truth(Z: Any, like_points: Any) -> Any:
    values = np.asarray(to_numpy(as_floats(Z, "Z")), dtype=float)
    return values.reshape(len(values), *np.shape(like_points)[1:])


def _squared_error(beliefs: Beliefs, Z: Any) -> Any:
    return np.sum((to_numpy(beliefs.mean()) - _truth(Z, beliefs.points)) ** 2, axis=-1)


def _rkhs_error(kernel: Kernel) -> Judge:
    def error(beliefs: Beliefs, Z: Any) -> Any:
        truth = kernel.points(Z, "Z")
        W, K = to_numpy(beliefs.weights), to_numpy(kernel(beliefs.points, truth))
        G = to_numpy(kernel(beliefs.points))
        return (
            np.einsum("ti,ij,tj->t", W, G, W, optimize=True)
            - 2.0 * np.einsum("ti,it->t", W, K)
            + to_numpy(kernel.diag(truth))
        )

    return error


def _lost_mass(beliefs: Beliefs, Z: Any, near: float) -> Any:
    P = np.asarray(to_numpy(beliefs.points), dtype=float).reshape(beliefs.weights.shape[1], -1)
    truth = np.asarray(to_numpy(as_floats(Z, "Z")), dtype=float).reshape(len(beliefs), -1)
    W = to_numpy(beliefs.valid().weights)
    inside = np.linalg.norm(P[None, :, :] - truth[:, None, :], axis=2) <= near
    return -np.log(np.maximum(np.sum(W * inside, axis=1), 1.0 / (10.0 * len(P))))


def _coverage_error(beliefs: Beliefs, Z: Any, level: float = 0.9) -> Any:
    ends, truth = to_numpy(beliefs.interval(level)), _truth(Z, beliefs.points)
    inside = np.mean((ends[..., 0] <= truth) & (truth <= ends[..., 1]), axis=1)
    return np.full(len(inside), abs(float(inside.mean()) - level))
