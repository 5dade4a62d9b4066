"""The update that both filters share, and the beliefs that come of it."""

from __future__ import annotations

from typing import Any

from kernelbayes.arrays import Array, namespace
from kernelbayes.embedding import Embedding
from kernelbayes.filters.beliefs import Beliefs, StepInfo, cut_off, normalised
from kernelbayes.filters.calibrated import calibration_of
from kernelbayes.filters.dynamics import Dynamics
from kernelbayes.filters.loops import Looping
from kernelbayes.filters.runs import Step
from kernelbayes.kernels import Kernel
from kernelbayes.points import Points, take
from kernelbayes.select.calibration import Calibration


class Updating(Looping):
    """Bayes' rule on a prediction, with the prediction to fall back on."""

    X_: Points
    Z_: Points
    kernel_z_: Kernel
    names_z_: tuple[str, ...] | None
    dynamics_: Dynamics
    back_ridge: float

    def calibrate(
        self, X: Any, Z: Any, controls: Any = None, *, parts: int = 5, smooth: bool = False
    ) -> Calibration:
        """Learn from the training sequences by how much intervals hold too much or too little.

        The sequences are cut into parts as in tuning; each is filtered by a filter with the same
        kernels and ridges that has learned from the others.

        Parameters
        ----------
        X, Z, controls
            What the filter was fitted on.
        parts : int
            At least 2; more cost more, and are closer to the filter that learned from everything.
        smooth : bool
            For beliefs of :meth:`smooth` instead of those of :meth:`filter`.

        Returns
        -------
        Calibration
            ``calibration.interval(beliefs, 0.9)`` has the shape of ``beliefs.interval(0.9)``. It
            holds what it says on average over time, not at every step. States must be vectors.
        """
        return calibration_of(self, X, Z, controls, parts, smooth)

    def _check_kinds(self) -> None:
        """Raise unless observations and states are arrays of one library."""
        namespace(
            self.kernel_x_.diag(take(self.X_, slice(0, 1))),
            self.kernel_z_.diag(take(self.Z_, slice(0, 1))),
        )

    def _prior_weights(self, V: Array) -> Array:
        """Weights (n, k) of predictions (n, k) on the training sample."""
        return self.dynamics_.prior_weights(V)

    def _update(
        self, V: Array, steps: list[Step], flat: list[bool]
    ) -> tuple[Array, list[StepInfo]]:
        """Beliefs (n, k) and what happened, from predictions (n, k) and k observations."""
        xp = namespace(V)
        columns, infos = [], []
        gammas = self._prior_weights(V)
        for j, step in enumerate(steps):
            # KBR13, IW22: nothing known means all training states alike.
            gamma = xp.ones_like(V[:, j]) / V.shape[0] if flat[j] else gammas[:, j]
            w, info = self._posterior(V[:, j], gamma, step)
            columns.append(w)
            infos.append(info)
        return xp.stack(columns, axis=1), infos

    def _posterior(self, v: Array, gamma: Array, step: Step) -> tuple[Array, StepInfo]:
        """Belief (n,) from a prediction v, its weights gamma on the sample, and an observation.

        An observation much less like the training sample than the sample's own points are is
        trusted only in proportion: far outside, the belief is the prediction.
        """
        xp = namespace(v)
        mass, trust, w = float("nan"), 0.0, None
        if step.observed:
            mass, trust = 0.0, step.observations.trust(step.support)
            if trust > 0.0 and float(xp.max(gamma)) > 0.0:
                raw = step.observations.update(gamma, step.column)
                mass, w = float(xp.sum(raw)), normalised(raw)
        cancelled = w is not None and float(xp.sum(w**2)) > 1.0
        if cancelled:
            w = cut_off(w)
        fallback = step.observed and (w is None or trust < 1.0 or cancelled)
        if w is None:
            w = v
        elif trust < 1.0:
            w = trust * w + (1.0 - trust) * v
        ess = float(1.0 / xp.sum(w**2))
        return w, StepInfo(mass, step.support, ess, step.observed, fallback)

    def _smooth_back(self, W: Array, later: Array, control: Points | None, t: int) -> Array:  # noqa: ARG002
        """Smoothed belief (n,) from the filtered one and the smoothed one at time t."""
        return self.dynamics_.back(W, later, control, self.back_ridge)

    def _observation_weights(self, V: Array) -> Array:
        """Weights (n, k) over the training observations of beliefs (n, k) (KBR13 section 4.3)."""
        return self._prior_weights(V)

    def _belief(self, weights: Array) -> Embedding:
        return Embedding(self.Z_, weights, self.kernel_z_, self.names_z_)

    def _beliefs(self, weights: list[Array], infos: list[StepInfo]) -> Beliefs:
        W = namespace(weights[0]).stack(weights, axis=0)
        return Beliefs.of(self.Z_, W, self.kernel_z_, self.names_z_, infos)
