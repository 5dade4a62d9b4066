r"""Tuning a filter by filtering what it has not learned from.

The training sequences are cut into parts (two halves, KBR13 section 5.3, or groups of sequences).
A candidate learns from all parts but one and filters the one left out, in turn; the mean loss over
all steps is its score. The search starts from half the median distance on states, the median on
observations and the automatic ridges, and moves one parameter at a time, in steps of a factor that
shrinks, for as long as that pays: bandwidth scales of x and z apart, the ridge of Bayes' rule, and
the ridge of transition and prior. Unless a kernel on observations is given, the Laplace and the
rational quadratic kernel, which mind outliers less, are tried beside the Gaussian one, and taken if
they are better by more than a standard error. A candidate that is clearly worse than the best so
far on the first steps of a part is given up early.

Losses: ``"error"`` (squared error of the mean; for states that are no vectors, the squared RKHS
distance to the truth), ``"mass"`` (minus the logarithm of the belief's mass within a quarter of the
median distance of the truth), ``"coverage"`` (distance of the coverage of 90 % intervals from
90 %), or a function ``(beliefs, Z) -> array (T,)`` of losses.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import reduce
from itertools import pairwise
from typing import Any, Literal

import numpy as np
from sklearn.base import clone

from kernelbayes.arrays import Points, Rng, as_floats, concatenate, count, take, to_numpy
from kernelbayes.conditional import default_kernel
from kernelbayes.features import Fourier, Landmarks
from kernelbayes.filters.bayes import KernelBayesFilter
from kernelbayes.filters.beliefs import Beliefs
from kernelbayes.filters.montecarlo import KernelMonteCarloFilter
from kernelbayes.filters.observation import split_missing
from kernelbayes.filters.sequences import as_points, into_steps, is_many
from kernelbayes.kernels import Gaussian, Kernel, Laplace, RationalQuadratic
from kernelbayes.loo import on_vectors
from kernelbayes.select import Table, progress_bar, rescaled, tune

Loss = Literal["error", "mass", "coverage"] | Callable[[Beliefs, Any], Any]
# Factors of one move: bandwidths, ridges. Halved (in the logarithm) when no move pays.
MOVES = {"x": 2.0, "z": 2.0, "ridge": 10.0**0.5, "prior": 10.0}
# A part is filtered in this many pieces, after each of which a poor candidate may be given up:
# when it is worse than the best by this many standard errors of the difference.
PIECES = 4
GIVE_UP = 2.0


@tune.register(KernelBayesFilter)
@tune.register(KernelMonteCarloFilter)
def _(
    model: Any,
    X: Any,
    Z: Any,
    controls: Any = None,
    *,
    loss: Loss = "error",
    parts: int = 2,
    budget: int = 40,
    rng: Rng = None,
    progress: bool | None = None,
) -> Any:
    """Bandwidths and ridges of a filter, by filtering left-out parts of the training sequences."""
    if budget < 1:
        raise ValueError(f"budget must be at least 1, got {budget}")
    search = _Search(model, _cut(X, Z, controls, parts, model), loss)
    with progress_bar(budget, "tuning", progress) as bar:
        best = search.run(budget, bar)
    tuned = clone(model).set_params(**search.parameters(best))
    if rng is not None and tuned.rng is None:
        tuned.set_params(rng=rng)
    tuned.fit(X, Z, controls)
    tuned.tuning_ = search.table
    return tuned


@dataclass(frozen=True)
class _Part:
    """One sequence: points, states, controls of its transitions."""

    X: Points
    Z: Points
    controls: Points | None


def _cut(X: Any, Z: Any, controls: Any, parts: int, model: Any) -> list[list[_Part]]:
    """Sequences in groups: whole ones dealt out by length, a single one cut into pieces."""
    many = is_many(X)
    kernels = [getattr(model, f"kernel_{v}", None) for v in "xzu"]
    named = [k is not None and k.by_name for k in kernels]
    xs, zs = (
        [as_points(s, name) for s in (A if many else [A])]
        for A, name in ((X, named[0]), (Z, named[1]))
    )
    us = [None] * len(xs) if controls is None else (controls if many else [controls])
    whole = []
    for x, z, u in zip(xs, zs, us, strict=True):
        steps = None if u is None else into_steps(as_points(u, named[2]), count(x))
        whole.append(_Part(x, z, steps))
    long = [s for s in whole if count(s.X) > 1]
    if not parts >= 2:
        raise ValueError(f"parts must be at least 2, got {parts}")
    if len(long) < parts:
        whole = [piece for s in whole for piece in _pieces(s, parts)]
        long = [s for s in whole if count(s.X) > 1]
    if len(long) < 2:
        raise ValueError("tuning needs a sequence of at least four steps, or several sequences")
    groups: list[list[_Part]] = [[] for _ in range(min(parts, len(long)))]
    for s in sorted(long, key=lambda s: -count(s.X)):
        min(groups, key=lambda g: sum(count(p.X) for p in g)).append(s)
    single = [s for s in whole if count(s.X) == 1]  # pairs without transitions: never left out
    return [*groups, single] if single else groups


def _pieces(s: _Part, parts: int) -> list[_Part]:
    n = count(s.X)
    if n < 2 * parts:
        return [s]
    ends = np.linspace(0, n, parts + 1).astype(int)
    return [
        _Part(
            take(s.X, slice(a, b)),
            take(s.Z, slice(a, b)),
            None if s.controls is None else take(s.controls, slice(a, b - 1)),
        )
        for a, b in pairwise(ends)
    ]


@dataclass(eq=False)
class _Search:
    """Coordinate search over the logarithms of two bandwidth scales and two ridges."""

    model: Any
    groups: list[list[_Part]]
    loss: Loss
    table: Table = field(default_factory=list)
    losses: Any = None  # of the best candidate, step by step

    def __post_init__(self) -> None:
        every = [s for group in self.groups for s in group]
        Z = _joined([s.Z for s in every])
        X, _ = split_missing(_joined([s.X for s in every]))
        self.kernel_x = self.model.kernel_x or default_kernel(X)
        self.others = []
        if self.model.kernel_x is None and isinstance(self.kernel_x, Gaussian):
            self.others = [Laplace.median(X), RationalQuadratic.median(X, alpha=1.0)]
        self.kernel_z = self.model.kernel_z or default_kernel(Z, "Z")
        self.judge = _judge(self.loss, self.kernel_z, Z)
        self.seen: dict[tuple[float, ...], float] = {}

    def parameters(self, at: dict[str, float]) -> dict[str, Any]:
        """Return the constructor arguments of a candidate."""
        chosen: dict[str, Any] = {
            "kernel_x": rescaled(self.kernel_x, at["x"]),
            "kernel_z": rescaled(self.kernel_z, at["z"]),
            "ridge": at["ridge"],
            "prior_ridge": at["prior"],
        }
        if isinstance(self.model, KernelBayesFilter):
            chosen["transition_ridge"] = at["prior"]
        return chosen

    def run(self, budget: int, bar: Any) -> dict[str, float]:
        """Best candidate within a budget of evaluations."""
        best = self._start()
        score = self._score(best, bar)
        score = self._family(best, score, budget, bar)
        step = dict(MOVES)
        fixed = {v for v, k in (("x", self.kernel_x), ("z", self.kernel_z)) if not _scalable(k)}
        names = [name for name in ("ridge", "x", "z", "prior") if name not in fixed]
        while len(self.table) < budget:
            before = score
            for name in names:
                for direction in (1.0, -1.0):
                    moved, tried = self._along(
                        best, name, step[name] ** direction, score, budget, bar
                    )
                    if tried < score:
                        best, score = moved, tried
                        break
            if score >= before:
                step = {name: factor**0.5 for name, factor in step.items()}
                if step["x"] < 1.2:
                    break
        return best

    def _family(self, at: dict[str, float], score: float, budget: int, bar: Any) -> float:
        """Try other kernels on observations from the same starting point."""
        for kernel in self.others:
            if len(self.table) >= budget:
                break
            first, losses, self.kernel_x = self.kernel_x, self.losses, kernel
            self.seen.clear()
            tried = self._score(at, bar)
            better = 0.0
            if tried < score:
                gain = losses - self.losses
                better = float(np.mean(gain)) - float(np.std(gain)) / math.sqrt(len(gain))
            if better > 0.0:
                score = tried
            else:
                self.kernel_x, self.losses = first, losses
        self.seen.clear()
        return score

    def _along(
        self, at: dict[str, float], name: str, factor: float, score: float, budget: int, bar: Any
    ) -> tuple[dict[str, float], float]:
        """Go on in one direction for as long as it pays."""
        while True:
            moved = {**at, name: at[name] * factor}
            if len(self.table) >= budget:
                return at, score
            tried = self._score(moved, bar)
            if tried >= score:
                return at, score
            at, score = moved, tried

    def _start(self) -> dict[str, float]:
        given = (
            isinstance(self.model.ridge, float | int),
            isinstance(self.model.prior_ridge, float | int),
        )
        start = {"x": 1.0, "z": 1.0 if self.model.kernel_z is not None else 0.5}
        if not _scalable(self.kernel_z):
            start["z"] = 1.0
        if all(given):
            return {**start, "ridge": self.model.ridge, "prior": self.model.prior_ridge}
        chosen = {**self.parameters({**start, "ridge": 1.0, "prior": 1.0})}
        for name in ("ridge", "prior_ridge", "transition_ridge"):
            chosen.pop(name, None)
        pilot = self._blank(chosen)
        every = [s for group in self.groups for s in group]
        _fit(pilot, every)
        return {**start, "ridge": pilot.ridge_, "prior": pilot.prior_ridge_}

    def _blank(self, chosen: dict[str, Any]) -> Any:
        """Return an unfitted candidate; landmarks are the same for all, so that scores compare."""
        model = clone(self.model).set_params(**chosen)
        return model.set_params(rng=0) if model.rng is None else model

    def _score(self, at: dict[str, float], bar: Any) -> float:
        key = tuple(round(math.log(value), 6) for value in at.values())
        if key in self.seen:
            return self.seen[key]
        losses = self._losses(self.parameters(at))
        complete = self.losses is None or len(losses) == len(self.losses)
        score = float(np.mean(losses)) if complete else math.inf
        family = type(self.kernel_x).__name__
        self.table.append({"kernel_x": family, **at, "score": score, "steps": len(losses)})
        bar.update()
        if self.losses is None or score < float(np.mean(self.losses)):
            self.losses = losses
        self.seen[key] = score
        return score

    def _losses(self, chosen: dict[str, Any]) -> Any:
        """Losses of all left-out steps, or of the first of them if they are poor."""
        found: list[Any] = []
        left_out = [i for i, group in enumerate(self.groups) if count(group[0].X) > 1]
        for i in left_out:
            model = self._blank(chosen)
            _fit(model, [s for j, group in enumerate(self.groups) if j != i for s in group])
            for s in self.groups[i]:
                for piece in _stretches(s):
                    beliefs = model.filter(piece.X, piece.controls, progress=False)
                    found.append(np.asarray(self.judge(beliefs, piece.Z), dtype=float))
                    if self._poor(np.concatenate(found)):
                        return np.concatenate(found)
        losses = np.concatenate(found)
        return np.where(np.isfinite(losses), losses, np.inf)

    def _poor(self, losses: Any) -> bool:
        if self.losses is None or len(losses) >= len(self.losses):
            return False
        worse = losses - self.losses[: len(losses)]
        error = float(np.std(worse)) / math.sqrt(len(worse))
        return not float(np.mean(worse)) <= GIVE_UP * error


def _stretches(s: _Part) -> list[_Part]:
    """Stretches of a long sequence, so that a poor candidate is seen early; each starts anew."""
    return _pieces(s, PIECES) if count(s.X) >= 50 * PIECES else [s]


def _fit(model: Any, sequences: list[_Part]) -> None:
    controls = None
    if sequences[0].controls is not None:
        controls = [s.controls for s in sequences]
    model.fit([s.X for s in sequences], [s.Z for s in sequences], controls)


def _joined(sequences: list[Points]) -> Points:
    return reduce(concatenate, sequences)


def _scalable(kernel: Kernel) -> bool:
    return not isinstance(kernel, Landmarks | Fourier) and rescaled(kernel, 2.0) != kernel


def _judge(loss: Loss, kernel: Kernel, Z: Points) -> Callable[[Beliefs, Any], Any]:
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


def _rkhs_error(kernel: Kernel) -> Callable[[Beliefs, Any], Any]:
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
