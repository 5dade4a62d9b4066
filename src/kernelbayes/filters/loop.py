"""Loops over steps: filter, smooth and forecast whole sequences.

A loop prepares the observations (all kernel values at once, missing parts set aside), then repeats
:func:`~kernelbayes.filters.step.predict` and :func:`~kernelbayes.filters.step.update`. Several
sequences run in lockstep, so that their predictions are one matrix product.
"""

from abc import ABC, abstractmethod
from copy import deepcopy
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from kernelbayes.arrays import as_doubles, namespace, threads_for
from kernelbayes.filters.beliefs import (
    Belief,
    Beliefs,
    FilterState,
    Forecast,
    ManyBeliefs,
    check_state,
)
from kernelbayes.filters.choose.holdout import calibration_of
from kernelbayes.filters.encode.encoder import ESTIMATES, Encoder
from kernelbayes.filters.forecast import ahead, with_warnings
from kernelbayes.filters.missing import complete, filled_by_state, split_missing
from kernelbayes.filters.model import Dynamics, Observations
from kernelbayes.filters.sequences import (
    Gaps,
    acting,
    as_points,
    check_gaps,
    each_sequence,
    is_many,
    stack_rows,
    unstacked,
)
from kernelbayes.filters.smooth import Run, Smoothing, backward, passed_back
from kernelbayes.filters.step import predict, step, unlike, update
from kernelbayes.filters.update import prepare
from kernelbayes.kernels import Kernel
from kernelbayes.kernels.default import default_kernel
from kernelbayes.kernels.settings import KernelSettings
from kernelbayes.points import count, doubled, integer, own, take
from kernelbayes.select.calibration import Calibration, Confusion
from kernelbayes.select.search import progress_bar
from kernelbayes.types import Array, Bools, Points, PointsLike


class Filter(KernelSettings, ABC, BaseEstimator):  # type: ignore[misc]
    """Everything that can be done with a model of how states move and what they look like."""

    X_: Points
    Z_: Points
    kernel_x_: Kernel
    kernel_z_: Kernel
    names_x_: tuple[str, ...] | None
    names_z_: tuple[str, ...] | None
    names_u_: tuple[str, ...] | None
    dynamics_: Dynamics
    observations_: Observations
    encoder_: Encoder | None = None  # what the update sees of the observations; None: themselves
    back_ridge: Any
    calibration_: Calibration | None = None  # of the intervals of filtered beliefs

    @abstractmethod
    def start(self, prior: PointsLike | None = None, lag: int = 0) -> FilterState:
        """State before the first observation."""

    step = step

    def _read(
        self,
        X: Points,
        Z: Points,
        kernel_x: Kernel | None,
        kernel_z: Kernel | None,
        copy: bool = False,
    ) -> Bools | None:
        """Keep training pairs X and Z, under kernels; which entries of X are known, if not all."""
        X, known = split_missing(X)
        given = self.initial
        self.initial_ = given if isinstance(given, str) or callable(given) else deepcopy(given)
        if getattr(self, "features_", "raw") in ESTIMATES:
            kernel_x = None  # it is not on observations
        self.kernel_x_ = default_kernel(doubled(X)) if kernel_x is None else kernel_x
        self.kernel_z_ = default_kernel(doubled(Z), "Z") if kernel_z is None else kernel_z
        self.Z_ = self.kernel_z_.points(Z, "Z")
        if count(X) == count(self.Z_):
            X = filled_by_state(X, known, self.Z_, self.kernel_z_)
        self.X_ = self.kernel_x_.points(X, "X")
        self.X_, self.Z_ = (own(self.X_, X), own(self.Z_, Z)) if copy else (self.X_, self.Z_)
        if count(self.X_) != count(self.Z_):
            raise ValueError(f"X and Z must be pairs, got {count(self.X_)} and {count(self.Z_)}")
        x, z = (take(points, slice(0, 1)) for points in (self.X_, self.Z_))
        namespace(self.kernel_x_.diag(x), self.kernel_z_.diag(z))  # arrays of one library
        return known

    def _smoothing(self, warn: bool = True) -> Smoothing:  # noqa: ARG002
        """How beliefs are smoothed; with a warning where that gains nothing."""
        return Smoothing(float(self.back_ridge))

    def smoothed(self, state: FilterState) -> Belief:
        """Belief about the state ``lag`` steps ago given everything up to now.

        For a state that was started with ``start(lag=...)``; before so many steps were made, the
        belief about the first one.
        """
        check_is_fitted(self, "dynamics_")
        check_state(state, self)
        later, how, now = state.belief.weights, self._smoothing(), state.unlike
        for back, (w, control, before) in enumerate(reversed(state.history), 1):
            kept, now = max(before, now) if how.gains else 1.0, before
            later = backward(self.dynamics_, w, later, control, state.t - back, how.ridge, kept)
        calibration = how.calibration if state.history else self.calibration_
        return Belief(self.Z_, later, self.kernel_z_, self.names_z_, calibration=calibration)

    def filter(
        self,
        X: PointsLike,
        controls: PointsLike = None,
        gaps: Gaps = None,
        progress: bool | None = None,
    ) -> Any:
        """Beliefs about the states of a sequence, each given the observations so far.

        Parameters
        ----------
        X : points (T, ...), a list of sequences, or an array (S, T, d) of S sequences
            Rows of NaN (or None) are missing observations; rows with some NaN are conditioned on
            what is there.
        controls : points (T, ...) or (T - 1, ...), or a list, optional
            As in :meth:`fit`.
        gaps : array (T,) of int, or a list, optional
            Transitions between an observation and the one before it; the first is not used.
        progress : bool, optional
            Show a progress bar; by default when a person is watching.

        Returns
        -------
        Beliefs, or for many sequences ManyBeliefs, a list of them that answers for all
        """
        check_is_fitted(self, "dynamics_")
        X = unstacked(X, self.kernel_x_)
        runs = with_warnings(run_all(self, X, controls, gaps, progress))
        results = filtered(self, runs)
        return ManyBeliefs(results) if is_many(X) else results[0]

    def smooth(
        self,
        X: PointsLike,
        controls: PointsLike = None,
        gaps: Gaps = None,
        lag: int | None = None,
        progress: bool | None = None,
    ) -> Any:
        """Beliefs about the states of a sequence, each given all observations.

        Arguments as in :meth:`filter`; with ``lag`` each belief is given the observations up to
        ``lag`` steps later.
        """
        if lag is not None:
            lag = integer(lag, "lag", 0)
        check_is_fitted(self, "dynamics_")
        X = unstacked(X, self.kernel_x_)
        runs = with_warnings(run_all(self, X, controls, gaps, progress))
        each = [x for x, _, _ in each_sequence(X, controls, gaps)]
        both = self._smoothing(warn=False).ahead if lag is None and gaps is None else None
        if both is not None and complete(each):
            for run, other in zip(runs, run_all(both, X, controls, None, False), strict=True):
                seen = max(0, len(run.weights) - both.leads_)  # the last ones are filtered
                run.weights[:seen] = other.weights[:seen]
            results = [_beliefs(self, run, run.weights, both.calibration_) for run in runs]
        else:
            results = smooth_all(self, runs, lag)
        return ManyBeliefs(results) if is_many(X) else results[0]

    def forecast(
        self, X: PointsLike, horizon: int, controls: PointsLike = None, gaps: Gaps = None
    ) -> Any:
        """Beliefs about the ``horizon`` steps after the last observation.

        Parameters
        ----------
        X : points (T, ...), a list of sequences, an array (S, T, d) of S sequences, or FilterState
            Observations of the past, or a live state: from there on nothing is filtered again.
        horizon : int
        controls : points (T + horizon, ...), or a list, optional
            Of the past and of the future (or one row less, as in :meth:`fit`); from a live state
            those of the future, (horizon, ...).
        gaps : array (T,) of int, or a list, optional

        Returns
        -------
        Forecast, or ManyBeliefs of them
            Beliefs about the states, and in ``.observations`` about the observations.
        """
        horizon = integer(horizon, "horizon", 1)
        check_is_fitted(self, "dynamics_")
        if isinstance(X, FilterState):
            return _from_state(self, X, horizon, controls)
        X = unstacked(X, self.kernel_x_)
        each = each_sequence(X, controls, gaps)
        results = [_forecast(self, part, horizon, u, gap) for part, u, gap in each]
        return ManyBeliefs(results) if is_many(X) else results[0]

    def calibrate(
        self,
        X: PointsLike = None,
        Z: PointsLike = None,
        controls: PointsLike = None,
        *,
        parts: int = 5,
        smooth: bool = False,
    ) -> Calibration | Confusion:
        """Learn from the training sequences how far the coverage of intervals is off.

        The sequences are cut into parts as in tuning; each is filtered by a filter with the same
        kernels and ridges that has learned from the others.

        Parameters
        ----------
        X, Z, controls
            What the filter was fitted on; by default the sequences it keeps.
        parts : int
            At least 2; more cost more, and are closer to the filter that learned from everything.
        smooth : bool
            For beliefs of :meth:`smooth` instead of those of :meth:`filter`.

        Returns
        -------
        Calibration
            ``calibration.interval(beliefs, 0.9)`` has the shape of ``beliefs.interval(0.9)``. Its
            coverage is right on average over time, not at every step. Of states that are
            categories a ``Confusion``: which one is taken for which.
        """
        return calibration_of(self, X, Z, controls, parts, smooth)


def run_all(
    model: Filter, X: PointsLike, controls: PointsLike, gaps: Gaps, progress: bool | None
) -> list[Run]:
    """Filter one or many sequences side by side: predict and update, repeat."""
    runs = [Run.spread(*one) for one in prepare(model, each_sequence(X, controls, gaps))]
    longest = max(len(run.seen) for run in runs)
    start = model.start()
    xp, prior = namespace(start.belief.weights), start.belief.weights
    with progress_bar(longest, "filtering", progress) as bar, threads_for(0.0):
        for t in range(longest):
            alive = [run for run in runs if t < len(run.seen)]
            W = xp.stack([run.weights[-1] if t else prior for run in alive], axis=1)
            lost = gammas = None
            if t > 0:
                U = [run.controls[t] for run in alive]
                together = None if U[0] is None else stack_rows(U)
                W, lost, gammas = predict(model.dynamics_, W, together, t)
            seen = [run.seen[t] for run in alive]
            W, infos = update(model.dynamics_, W, seen, None if t else start.unknown, lost, gammas)
            for j, run in enumerate(alive):
                run.weights.append(W[:, j])
                run.infos.append(infos[j])
            bar.update()
    return runs


def filtered(model: Filter, runs: list[Run]) -> list[Beliefs]:
    """Beliefs of sequences that have been filtered."""
    return [_beliefs(model, run, run.weights, model.calibration_) for run in runs]


def smooth_all(model: Filter, runs: list[Run], lag: int | None = None) -> list[Beliefs]:
    """Smoothed beliefs of sequences that have been filtered; those, if smoothing gains nothing."""
    how = model._smoothing()
    found = [run.weights for run in runs]
    if how.gains:
        back = model.dynamics_, lag, how.ridge
        shares = [list(map(unlike, run.infos)) for run in runs]
        parts = zip(found, runs, shares, strict=True)
        found = [passed_back(w, run.controls, *back, share) for w, run, share in parts]
    calibration = model.calibration_ if lag == 0 else how.calibration  # no lag: as filtered
    return [_beliefs(model, *one, calibration) for one in zip(runs, found, strict=True)]


def _forecast(
    model: Filter, X: PointsLike, horizon: int, controls: PointsLike, gaps: ArrayLike | None
) -> Forecast:
    past = count(X) - 1
    steps = acting(controls, count(X) + horizon, getattr(model, "kernel_u_", None), model.names_u_)
    u = None if steps is None else take(steps, slice(0, past))
    run = with_warnings(run_all(model, X, u, gaps, False))[0]
    future = None if steps is None else take(steps, slice(past, past + horizon))
    window = None
    if model.encoder_ is not None and model.encoder_.goes_on:
        rows, before = as_points(X, model.kernel_x_), check_gaps(gaps, count(X))
        for t in range(count(X)):
            control = None if u is None or t == 0 else take(u, [t - 1])
            _, window = model.encoder_.follow(window, take(rows, [t]), before[t], control)
    return ahead(model, run.weights[-1], horizon, future, len(run.seen), window)


def _from_state(model: Filter, state: FilterState, horizon: int, controls: PointsLike) -> Forecast:
    """Forecast from a live state, whose time is the number of steps made."""
    if state.t == 0:
        raise ValueError("a forecast needs a state after at least one step; this one is a start")
    check_state(state, model)
    kernel_u = getattr(model, "kernel_u_", None)
    future = acting(controls, horizon + 1, kernel_u, model.names_u_)
    return ahead(model, state.belief.weights, horizon, future, state.t, state.past)


def _beliefs(
    model: Filter, run: Run, weights: list[Array], calibration: Calibration | None
) -> Beliefs:
    """Beliefs of a sequence at the steps that were asked for, without those inside gaps."""
    xp = namespace(weights[0])
    W = xp.stack([weights[t] for t in run.kept], axis=0)
    mass, squares = as_doubles(xp.sum(W, axis=1)), as_doubles(xp.sum(W * W, axis=1))
    sizes = mass**2 / np.where(squares > 0.0, squares, 1.0)  # of smoothed beliefs their own
    infos = [replace(run.infos[t], ess=float(e)) for t, e in zip(run.kept, sizes, strict=True)]
    return Beliefs.of(model.Z_, W, model.kernel_z_, model.names_z_, infos, calibration)
