"""Loops over steps: filter, smooth, forecast, and the online pair start and step.

A loop prepares the observations (all kernel values at once, missing parts set aside) and then
repeats what a filter knows how to do to k beliefs side by side: ``_predict``, ``_update`` and
``_smooth_back``. Several sequences run in lockstep, so that their predictions are one product.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from array_api_compat import is_array_api_obj
from sklearn.utils.validation import check_is_fitted

from kernelbayes.arrays import Array, namespace, row_blocks, threads_for, to_numpy
from kernelbayes.embedding import Embedding
from kernelbayes.filters.beliefs import Beliefs, FilterState, StepInfo, check_lag
from kernelbayes.filters.observation import Observations, missing_mask
from kernelbayes.filters.runs import (
    Run,
    Step,
    as_row,
    check_gaps,
    effective_size,
    point_at,
    stack_rows,
)
from kernelbayes.filters.sequences import (
    as_points,
    in_order,
    into_steps,
    is_many,
    row_in_order,
    unstacked,
)
from kernelbayes.kernels import Kernel
from kernelbayes.points import Points, count, take
from kernelbayes.select import progress_bar


@dataclass(frozen=True, eq=False, repr=False)
class Forecast(Beliefs):
    """Beliefs about the states of the next steps, with those about the observations.

    Attributes
    ----------
    observations : Beliefs
        Over the training observations: the kernel mean of each predicted observation.
    """

    observations: Any = field(default=None, repr=False)


class Looping(ABC):
    """Everything that can be done with a filter that predicts and updates."""

    kernel_x_: Kernel
    observations_: Observations
    names_x_: tuple[str, ...] | None
    names_u_: tuple[str, ...] | None

    # --- what a filter knows ----------------------------------------------------------------------

    @abstractmethod
    def start(self, prior: Any = None, lag: int = 0) -> FilterState:
        """State before the first observation."""

    @abstractmethod
    def _predict(self, W: Array, control: Points | None, t: int) -> Array:
        """Predictions (n, k) at time t from beliefs (n, k) one step before."""

    @abstractmethod
    def _update(
        self, V: Array, steps: list[Step], flat: list[bool]
    ) -> tuple[Array, list[StepInfo]]:
        """Beliefs (n, k) and what happened, from predictions (n, k) and k observations.

        ``flat`` says where nothing is known before the observation.
        """

    @abstractmethod
    def _smooth_back(self, W: Array, later: Array, control: Points | None, t: int) -> Array:
        """Smoothed belief (n,) from the filtered one and the smoothed one at time t."""

    @abstractmethod
    def _observation_weights(self, V: Array) -> Array:
        """Weights (n, k) over the training observations of beliefs (n, k)."""

    @abstractmethod
    def _beliefs(self, weights: list[Array], infos: list[StepInfo]) -> Beliefs:
        """Beliefs from weights, one array (n,) per step."""

    @abstractmethod
    def _belief(self, weights: Array) -> Embedding:
        """Embedding over the training states."""

    @abstractmethod
    def _control(self, control: Any) -> Points | None:
        """Control as given, after a check that one was expected."""

    # --- online -----------------------------------------------------------------------------------

    def step(
        self, state: FilterState, x: Any, control: Any = None, steps: int = 1
    ) -> tuple[FilterState, StepInfo]:
        """Predict and update: a pure function of an immutable state.

        Parameters
        ----------
        state : FilterState
            From :meth:`start` or the step before.
        x : point or None
            Observation; None or NaN is a missing one, and a vector with some NaN conditions on
            what is there.
        control : point, optional
            What acted since the step before.
        steps : int
            Transitions since the step before; more than one after a gap.

        Returns
        -------
        state : FilterState
        info : StepInfo
        """
        check_is_fitted(self, "dynamics_")
        if steps < 1 or int(steps) != steps:
            raise ValueError(f"steps must be a whole number of at least 1, got {steps}")
        control = row_in_order(control, self.names_u_)
        u = None if state.t == 0 else self._control(as_row(control))
        seen = self._prepare(row_in_order(x, self.names_x_))
        steps = 1 if state.t == 0 else int(steps)
        W, history = state.belief.weights[:, None], state.history
        for s in range(steps if state.t else 0):
            history = (*history, (W[:, 0], u))
            W = self._predict(W, u, state.t + s)
        W, infos = self._update(W, [seen], [state.t == 0 and state.flat])
        history = history[-state.lag :] if state.lag else ()
        belief = self._belief(W[:, 0])
        return replace(state, t=state.t + steps, belief=belief, history=history), infos[0]

    def smoothed(self, state: FilterState) -> Embedding:
        """Belief about the state ``lag`` steps ago given everything up to now.

        For a state that was started with ``start(lag=...)``; before so many steps were made, the
        belief about the first one.
        """
        check_is_fitted(self, "dynamics_")
        later = state.belief.weights
        for back, (W, control) in enumerate(reversed(state.history), 1):
            later = self._smooth_back(W, later, control, state.t - back)
        return self._belief(later)

    # --- batch ------------------------------------------------------------------------------------

    def filter(
        self, X: Any, controls: Any = None, gaps: Any = None, progress: bool | None = None
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
        Beliefs, or a list of Beliefs for many sequences
        """
        check_is_fitted(self, "dynamics_")
        X = unstacked(X, self.kernel_x_)
        runs = self._run(X, controls, gaps, progress)
        results = [run.keep(self._beliefs(run.weights, run.infos)) for run in runs]
        return results if is_many(X) else results[0]

    def smooth(
        self,
        X: Any,
        controls: Any = None,
        gaps: Any = None,
        lag: int | None = None,
        progress: bool | None = None,
    ) -> Any:
        """Beliefs about the states of a sequence, each given all observations.

        Arguments as in :meth:`filter`; with ``lag`` each belief is given the observations up to
        ``lag`` steps later.
        """
        if lag is not None:
            check_lag(lag)
            lag = int(lag)
        check_is_fitted(self, "dynamics_")
        X = unstacked(X, self.kernel_x_)
        results = self._smoothed(self._run(X, controls, gaps, progress), lag)
        return results if is_many(X) else results[0]

    def _smoothed(self, runs: list[Run], lag: int | None = None) -> list[Beliefs]:
        """Smoothed beliefs of sequences that have been filtered."""
        results = []
        for run in runs:
            last = len(run.weights) - 1
            smooth = list(run.weights)
            for t in range(last - 1, -1, -1):
                if lag is None:
                    smooth[t] = self._backwards(run, smooth[t + 1], t + 1, t)
                else:
                    end = min(last, t + lag)
                    smooth[t] = self._backwards(run, run.weights[end], end, t)
            results.append(run.keep(self._beliefs(smooth, run.infos)))
        return results

    def _backwards(self, run: Run, later: Array, end: int, begin: int) -> Array:
        """Smoothed belief at ``begin`` from the one at ``end``."""
        for t in range(end, begin, -1):
            later = self._smooth_back(run.weights[t - 1], later, run.controls[t], t)
        return later

    def forecast(self, X: Any, horizon: int, controls: Any = None, gaps: Any = None) -> Any:
        """Beliefs about the ``horizon`` steps after the last observation.

        Parameters
        ----------
        X : points (T, ...), a list of sequences, or an array (S, T, d) of S sequences
        horizon : int
        controls : points (T + horizon, ...), or a list, optional
            Of the past and of the future (or one row less, as in :meth:`fit`).
        gaps : array (T,) of int, or a list, optional

        Returns
        -------
        Forecast, or a list of them
            Beliefs about the states, and in ``.observations`` about the observations.
        """
        if int(horizon) != horizon or horizon < 1:
            raise ValueError(f"horizon must be a whole number of at least 1, got {horizon!r}")
        horizon = int(horizon)
        check_is_fitted(self, "dynamics_")
        X = unstacked(X, self.kernel_x_)
        many = is_many(X)
        if many and controls is not None and len(controls) != len(X):
            raise ValueError(f"{len(X)} sequences but controls for {len(controls)}")
        sequences = list(X) if many else [X]
        results = []
        for i, part in enumerate(sequences):
            u = (controls[i] if many else controls) if controls is not None else None
            steps = self._acting(u, count(part) + horizon)
            past = None if steps is None else take(steps, slice(0, count(part) - 1))
            gap = None if gaps is None else gaps[i] if many else gaps
            run = self._run(part, past, gap, False)[0]
            W, states, seen = run.weights[-1][:, None], [], []
            for h in range(horizon):
                row = None if steps is None else take(steps, [count(part) - 1 + h])
                W = self._predict(W, self._control(row), len(run.steps) + h)
                states.append(W[:, 0])
                seen.append(self._observation_weights(W)[:, 0])
            results.append(self._forecast(states, seen))
        return results if many else results[0]

    def _forecast(self, states: list[Array], seen: list[Array]) -> Forecast:
        nothing = [StepInfo(np.nan, np.nan, effective_size(w), False, False) for w in states]
        beliefs = self._beliefs(states, nothing)
        xp = namespace(seen[0])
        weights = xp.stack([w / xp.sum(w) for w in seen], axis=0)
        X, kernel = self.observations_.X, self.observations_.exact
        names = self.names_x_
        if names is None and is_array_api_obj(X):  # not those of states, z0 and so on
            names = tuple(f"x{j}" for j in range(X.shape[1] if X.ndim == 2 else 1))
        observations = Beliefs.of(X, weights, kernel, names, nothing)
        return Forecast(
            beliefs.points, beliefs.weights, beliefs.kernel, beliefs.names, None, beliefs.info,
            observations,
        )  # fmt: skip

    # --- the work ---------------------------------------------------------------------------------

    def _run(self, X: Any, controls: Any, gaps: Any, progress: bool | None) -> list[Run]:
        runs = self._runs(X, controls, gaps)
        longest = max(len(run.steps) for run in runs)
        start = self.start()
        prior = start.belief.weights
        with progress_bar(longest, "filtering", progress) as bar, threads_for(0.0):
            for t in range(longest):
                alive = [run for run in runs if t < len(run.steps)]
                xp = namespace(prior)
                if t == 0:
                    V = xp.stack([prior] * len(alive), axis=1)
                else:
                    U = [run.controls[t] for run in alive]
                    V = xp.stack([run.weights[-1] for run in alive], axis=1)
                    V = self._predict(V, None if U[0] is None else stack_rows(U), t)
                flat = [t == 0 and start.flat] * len(alive)
                W, infos = self._update(V, [run.steps[t] for run in alive], flat)
                for j, run in enumerate(alive):
                    run.weights.append(W[:, j])
                    run.infos.append(infos[j])
                bar.update()
        return runs

    def _runs(self, X: Any, controls: Any, gaps: Any) -> list[Run]:
        many = is_many(X)
        for name, given in (("controls", controls), ("gaps", gaps)):
            if many and given is not None and len(given) != len(X):
                raise ValueError(f"{len(X)} sequences but {name} for {len(given)}")
        runs = []
        for i, part in enumerate(X if many else [X]):
            points = as_points(in_order(part, self.names_x_), self.kernel_x_.by_name)
            if getattr(points, "ndim", 1) == 0:
                raise ValueError("a sequence of observations is needed; for one use step(state, x)")
            length = count(points)
            if length == 0:
                raise ValueError("a sequence must have at least one step")
            u = None if controls is None else controls[i] if many else controls
            U = self._acting(u, length)
            g = None if gaps is None else gaps[i] if many else gaps
            before = check_gaps(g, length)
            steps = self._prepare_all(points)
            if length > 1:  # whether controls are expected
                self._control(None if U is None else take(U, [0]))
            runs.append(Run.spread(steps, U, before))
        return runs

    def _acting(self, controls: Any, length: int) -> Points | None:
        """Return the controls of the transitions of one sequence; None for none."""
        if controls is None:
            return None
        kernel: Kernel | None = getattr(self, "kernel_u_", None)  # a known transition needs none
        named = kernel is not None and kernel.by_name
        points = as_points(in_order(controls, self.names_u_, "controls"), named)
        U = into_steps(points, length)
        return U if kernel is None or U is None else kernel.points(U, "controls")

    def _prepare_all(self, X: Points) -> list[Step]:
        """Observations made ready: whole ones with one kernel matrix, others one by one."""
        masks = [missing_mask(point_at(X, t)) for t in range(count(X))]
        whole = [t for t, mask in enumerate(masks) if mask is None or mask.all()]
        steps: list[Any] = [None] * len(masks)
        if whole:
            points = self.kernel_x_.points(take(X, whole), "X")
            self.kernel_x_.check_pair(points, self.observations_.X)
            for rows in row_blocks(len(whole), self.observations_.n):
                columns, support = self.observations_.evaluate(take(points, rows))
                support = to_numpy(support)
                for j, t in enumerate(whole[rows]):
                    steps[t] = Step(True, float(support[j]), columns[:, j], self.observations_)
        for t, mask in enumerate(masks):
            if steps[t] is None:
                steps[t] = self._prepare_part(take(X, [t]), mask)
        return steps

    def _prepare(self, x: Any) -> Step:
        if x is None:
            return Step(False)
        point = as_row(x)
        mask = missing_mask(point_at(point, 0))
        return self._prepare_part(point, mask)

    def _prepare_part(self, point: Points, mask: Any) -> Step:
        if mask is not None and not mask.any():
            return Step(False)
        observations = self.observations_
        if mask is None or mask.all():
            point = self.kernel_x_.points(point, "x")
            self.kernel_x_.check_pair(point, observations.X)
        else:
            observations, point = observations.present(point, mask)
        column, support = observations.evaluate(point)
        return Step(True, float(to_numpy(support)[0]), column[:, 0], observations)
