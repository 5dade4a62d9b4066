r"""Held-out parts of the training sequences: what tuning and calibration of a filter rest on.

The sequences are cut into parts; a filter learns from all but one and filters the one held out.

*Tuning* scores the beliefs about the held-out states by a loss. *Calibration* asks where the true
states fall in them: the level :math:`u_t = \hat F_t(z_t)`. A filter is tuned for the error of its
means, and its intervals follow from the same kernels and ridges. Their coverage is too small where
few training pairs carry the belief (its spread does not contain the error of the mean), and too
large where the kernel on states is wider than the posterior. :class:`~kernelbayes.Calibration`
replaces each level by the one that held-out states reach as often as they should. Neighbours in
time are dependent, so there is no finite-sample guarantee as for exchangeable pairs; for a
stationary sequence the levels still converge.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

import numpy as np
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from kernelbayes.arrays import as_floats, as_vectors, to_numpy
from kernelbayes.embedding.regions import MASS_ROUNDING, ordered
from kernelbayes.filters.beliefs import Beliefs
from kernelbayes.filters.sequences import Part, each_in_order, pieces_of, read
from kernelbayes.filters.step import predict, update
from kernelbayes.filters.update import observe_all
from kernelbayes.kernels import Kernel
from kernelbayes.points import count, integer, take
from kernelbayes.select.calibration import Calibration, Confusion
from kernelbayes.types import Floats, Points, PointsLike

if TYPE_CHECKING:
    from kernelbayes.filters.loop import Filter

Judge = Callable[[Beliefs, PointsLike], Floats]  # beliefs and true states (T, ...) to losses (T,)
Loss = Literal["error"] | Judge
# A part is filtered in at most this many stretches, of at least so many steps each; after each of
# them a poor candidate may be given up. The mean loss of fifty steps is known to a seventh of its
# standard deviation, and more than four stretches save little.
STRETCHES, SHORTEST = 4, 50
# Share of the loss of predictions: an outage of some steps in every ten.
AHEAD_SHARE = 0.1


def cut(
    X: PointsLike, Z: PointsLike, controls: PointsLike, parts: int, model: Filter
) -> list[list[Part]]:
    """Sequences in parts of about equal length; if they are too few, they are cut into pieces."""
    whole = read(X, Z, controls, [getattr(model, f"kernel_{v}", None) for v in "xzu"])
    long = [s for s in whole if count(s.X) > 1]
    parts = integer(parts, "parts", 2)
    if len(long) < parts:
        whole = [piece for s in whole for piece in pieces_of(s, parts)]
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
    _check_coordinates(groups, single)
    return [*groups, single] if single else groups


def _check_coordinates(groups: list[list[Part]], single: list[Part]) -> None:
    """Raise if a coordinate of the observations is there in one part only, which is left out."""
    parts = [s.X for group in groups for s in group]
    if not all(isinstance(x, np.ndarray) and x.dtype.kind in "fiub" for x in parts):
        return
    there = [np.any([~np.isnan(s.X).all(axis=0) for s in group], axis=0) for group in groups]
    always = [~np.isnan(s.X).all(axis=0) for s in single]
    if np.any((np.sum(there, axis=0) == 1) & ~np.any(always, axis=0)):
        raise ValueError(
            "a coordinate of X is missing in all parts of the sequences but one, so that nothing "
            "can be learned about it when that part is left out; drop it or give more parts"
        )


def stretches(group: list[Part]) -> list[list[Part]]:
    """Sequences of a part in stretches of about equal length; where one is cut, it starts anew."""
    steps = sum(count(s.X) for s in group)
    length = steps / min(STRETCHES, max(1, steps // SHORTEST))
    cut_up = [p for s in group for p in pieces_of(s, max(1, round(count(s.X) / length)))]
    sizes = np.array([count(p.X) for p in cut_up])
    number = (np.cumsum(sizes) - sizes / 2.0) // length  # by the middle of a piece
    return [
        [p for p, k in zip(cut_up, number, strict=True) if k == wanted]
        for wanted in np.unique(number)
    ]


def controls_of(sequences: list[Part]) -> list[Points] | None:
    """Return the controls of each of some sequences; None if there are none.

    A pair without a transition has none, beside sequences that do.
    """
    each = [s.controls for s in sequences]
    return None if all(u is None for u in each) else each


def learn(model: Filter, sequences: list[Part]) -> None:
    """Fit a filter to sequences."""
    model.fit([s.X for s in sequences], [s.Z for s in sequences], controls_of(sequences))


def filtered_losses(model: Filter, sequences: list[Part], judge: Judge, ahead: int = 0) -> Floats:
    """Losses of all steps of some sequences; infinite where the loss is not finite.

    With ``ahead`` the loss of a prediction made so many steps before counts a little: where
    observations say nearly everything, it is all that tells a good transition from a bad one.
    """
    beliefs = model.filter([s.X for s in sequences], controls_of(sequences), progress=False)
    found = [np.asarray(judge(b, s.Z), float) for b, s in zip(beliefs, sequences, strict=True)]
    for losses, s in zip(found, sequences, strict=True):
        if losses.shape != (count(s.X),):
            raise ValueError(
                f"loss must give one number for each of {count(s.X)} steps, got shape "
                f"{losses.shape}"
            )
    if ahead:
        for losses, b, s in zip(found, beliefs, sequences, strict=True):
            if len(losses) > ahead:
                later = take(s.Z, slice(ahead, None))
                losses[ahead:] += AHEAD_SHARE * judge(_predicted(model, b, s, ahead), later)
    losses = np.concatenate(found)
    return np.where(np.isfinite(losses), losses, np.inf)


def _predicted(model: Filter, beliefs: Beliefs, s: Part, ahead: int) -> Beliefs:
    """Predictions of all states from the beliefs so many steps before them."""
    T = len(beliefs)
    W = beliefs.weights[: T - ahead, ...].T
    for h in range(ahead):
        U = None if s.controls is None else take(s.controls, slice(h, T - ahead + h))
        W, _, _ = predict(model.dynamics_, W, model.dynamics_.acting(U))
    encoder = model.encoder_
    if encoder is not None and encoder.track is not None and encoder.track.alone:
        rows = encoder.track.ahead(encoder.rows(s.X), s.controls, ahead)
        W, _ = update(model.dynamics_, W, observe_all(model, rows))
    return replace(beliefs, weights=W.T, info=None)


def judge_of(loss: Loss, kernel: Kernel) -> Judge:
    """Return the function that gives the losses (T,) of beliefs."""
    if callable(loss):
        return loss
    if loss != "error":
        raise ValueError(f"loss must be 'error' or a function, got {loss!r}")
    return _squared_error if kernel.is_vector else _rkhs_error(kernel)


def _truth(Z: PointsLike, points: Points) -> Floats:
    values = np.asarray(to_numpy(as_floats(Z, "Z")), dtype=float)
    return values.reshape(len(values), *np.shape(points)[1:])


def _squared_error(beliefs: Beliefs, Z: PointsLike) -> Floats:
    errors = to_numpy(beliefs.mean()) - _truth(Z, beliefs.points)
    return np.asarray(np.sum(errors**2, axis=-1))


def _rkhs_error(kernel: Kernel) -> Judge:
    def error(beliefs: Beliefs, Z: PointsLike) -> Floats:
        truth = kernel.points(Z, "Z")
        W, K = to_numpy(beliefs.weights), to_numpy(kernel(beliefs.points, truth))
        G = to_numpy(kernel(beliefs.points))
        norms = np.einsum("ti,ij,tj->t", W, G, W, optimize=True)
        inner = np.einsum("ti,it->t", W, K)
        squares = norms - 2.0 * inner + to_numpy(kernel.diag(truth))
        return np.asarray(np.maximum(squares, 0.0))  # below zero by rounding

    return error


def training_parts(model: Filter) -> list[Part]:
    """Sequences that a filter has learned from, with their holes."""
    if not hasattr(model, "lengths_"):
        raise ValueError(f"{type(model).__name__} keeps no sequences: give X and Z")
    X = model.X_ if model.known_ is None else np.where(
        model.known_.reshape(np.shape(model.X_)), model.X_, np.nan
    )  # fmt: skip
    parts, start, first = [], 0, 0
    for length in model.lengths_:
        rows, steps = slice(start, start + length), slice(first, first + length - 1)
        controls = None if model.controls_ is None or length == 1 else take(model.controls_, steps)
        parts.append(Part(take(X, rows), take(model.Z_, rows), controls))
        start, first = start + length, first + length - 1
    return parts


# --- calibration ----------------------------------------------------------------------------------

# What was learned from all sequences and stays when a part is left out.
CHOSEN = (
    "kernel_x", "kernel_z", "kernel_u", "prior_ridge", "transition_ridge", "ridge", "lags",
    "order", "features", "memory", "tempering",
)  # fmt: skip


def calibration_of(
    model: Filter, X: PointsLike, Z: PointsLike, controls: PointsLike, parts: int, smooth: bool
) -> Calibration | Confusion:
    """Levels of held-out states in the beliefs of a filter with the same kernels and ridges."""
    check_is_fitted(model, "dynamics_")
    known = model.get_params(deep=False)
    chosen = {k: getattr(model, f"{k}_") for k in CHOSEN if k in known and hasattr(model, f"{k}_")}
    if X is None:
        own = training_parts(model)
        X, Z, controls = [s.X for s in own], [s.Z for s in own], controls_of(own)
    names = model.names_x_, model.names_z_, model.names_u_
    X, Z, controls = map(each_in_order, (X, Z, controls), names)
    if smooth:
        how = model._smoothing()
        chosen["back_ridge"] = how.ridge if how.ahead is None else "auto"
        smooth = how.gains or how.ahead is not None
    if "intervals" in known:
        chosen["intervals"] = "plain"
    groups = cut(X, Z, controls, parts, model)
    found: list[tuple[Beliefs, Points]] = []
    for i, group in enumerate(groups):
        if count(group[0].X) == 1:  # pairs without transitions: nothing to filter
            continue
        other = clone(model).set_params(**chosen)
        learn(other, [s for j, rest in enumerate(groups) if j != i for s in rest])
        ask = other.smooth if smooth else other.filter
        beliefs = ask([s.X for s in group], controls_of(group), progress=False)
        found += zip(beliefs, [s.Z for s in group], strict=True)
    return confused(found) if found[0][0].categorical else calibrated(found)


def calibrated(found: list[tuple[Beliefs, Points]]) -> Calibration:
    """Calibration by beliefs about sequences and their true states, which all count alike."""
    pit = np.concatenate([transforms(beliefs, Z) for beliefs, Z in found])
    beyond = np.concatenate([outside(beliefs, Z) for beliefs, Z in found])
    return Calibration(pit, np.full(len(pit), 1.0 / len(pit)), beyond)


def confused(found: list[tuple[Beliefs, Points]]) -> Confusion:
    """Which hidden category is taken for which; a training part may lack some of them."""
    truth = [str(z) for _, Z in found for z in np.asarray(Z).ravel().tolist()]
    each = [(list(map(str, labels)), P) for labels, P in (b.probabilities() for b, _ in found)]
    labels = sorted({*truth, *(label for seen, _ in each for label in seen)})
    place = {label: i for i, label in enumerate(labels)}
    P = np.zeros((len(truth), len(labels)))
    start = 0
    for seen, p in each:
        P[start : start + len(p), [place[label] for label in seen]] = p
        start += len(p)
    m = len(truth)
    return Confusion.of(labels, P, np.array([place[z] for z in truth]), np.full(m, 1.0 / m))


def outside(beliefs: Beliefs, Z: PointsLike) -> Floats:
    """How far (T, d) the states Z (T, d) lie above the ends of beliefs, or below; 0 inside."""
    ends = np.asarray(to_numpy(beliefs.quantile([0.0, 1.0])), dtype=np.float64)
    truth = np.asarray(to_numpy(as_vectors(Z, "Z")), dtype=np.float64)
    return np.asarray(truth - np.clip(truth, ends[:, 0], ends[:, 1]))


def transforms(beliefs: Beliefs, Z: PointsLike) -> Floats:
    """Level (T, d) at which each coordinate of the states Z (T, d) is the belief's quantile."""
    coordinates = ordered(beliefs.vectors, beliefs.valid_weights("rearranged"), "rearranged")
    truth = np.asarray(to_numpy(as_vectors(Z, "Z")), dtype=np.float64)
    columns = [
        [_level(x, row, value) for row, value in zip(F, z, strict=True)]
        for (x, F), z in zip(coordinates, truth.T, strict=True)
    ]
    return np.array(columns).T


def _level(x: Floats, F: Floats, z: float) -> float:
    """Value at z of a monotone F at sorted points x, as quantiles are interpolated."""
    inside = slice(
        np.searchsorted(F, MASS_ROUNDING, side="right"), np.searchsorted(F, 1.0 - MASS_ROUNDING)
    )
    if inside.stop - inside.start < 2:  # all mass at one point
        middle = x[min(int(np.searchsorted(F, 0.5)), len(x) - 1)]
        return 0.5 + 0.5 * float(np.sign(z - middle))
    ties = slice(np.searchsorted(x, z, side="left"), np.searchsorted(x, z, side="right"))
    if ties.stop - ties.start > 1:  # half of their mass lies below
        return float(0.5 * (F[ties.start] + F[ties.stop - 1]))
    return float(np.interp(z, x[inside], F[inside], left=0.0, right=1.0))
