r"""One step of a filter: **predict** with the sum rule, **update** with Bayes' rule.

A belief is a weight vector w (n,) over the training states z_1..z_n, the embedding
sum_i w_i phi(z_i). With their features L (n, r), and L_src those of the starts of the m observed
transitions, a step is (KBR13 section 4.3, IW22 Alg. 2):

1. *Predict*, the sum rule: weights over the transitions by the operator (KBR13 eq. 17),

   .. math:: a = L_{src} (L_{src}^\top L_{src} + m \eta' I)^{-1} L^\top w,

   or by shift, a_j = w_source(j) (CME13 eq. 35); the prediction v has weight a_j at the end of
   transition j.
2. *Update*, Bayes' rule with the prediction as prior: its weights on the training sample,
   gamma = (G_Z + n eta I)^-1 G_Z v, then the rule of :mod:`kernelbayes.rules` at the observation.
3. An observation unlike the training sample is trusted only in part; the belief then is a mixture
   with the prediction.

Functions of what was learned and of weights give weights; beliefs side by side are columns (n, k).
"""

from __future__ import annotations

from dataclasses import replace
from math import isfinite
from typing import TYPE_CHECKING

import numpy as np
from sklearn.utils.validation import check_is_fitted

from kernelbayes.arrays import CACHED, like, namespace, row_blocks, to_numpy, total, warn
from kernelbayes.filters.beliefs import Belief, FilterState, Start, StepInfo, check_state
from kernelbayes.filters.model import Dynamics
from kernelbayes.filters.sequences import as_row
from kernelbayes.filters.update import (
    TRUSTED_SHARE,
    Seen,
    bayes_rule_at,
    counted,
    literal_posterior,
    observe,
    on_sample,
    plain_ridge,
    tempered,
)
from kernelbayes.points import integer, own, row_in_order, take
from kernelbayes.rules.conditional import first_few
from kernelbayes.types import Array, Bools, Floats, Ints, Points, PointsLike

if TYPE_CHECKING:
    from kernelbayes.filters.loop import Filter

# Factors of an update's ridge until its weights do not cancel; ridges are chosen by the decade.
RAISED = (1.0, 10.0, 100.0, 1000.0)
# Share of a prediction that has left the training states above which a warning says so: the belief
# is then about states that were never seen. A small sample has some states at its edge always.
LEFT = 0.9


# --- predict: the sum rule ------------------------------------------------------------------------


def predict(
    dynamics: Dynamics, W: Array, control: Points | None = None, t: int = 0
) -> tuple[Array, Floats | Bools, Array | None]:
    """Predictions (n, k) at time t from beliefs W (n, k) one step before; how much was lost (k,).

    Also their weights (n, k) on the training sample, if these are found on the way. Where a control
    is unlike all that acted on such states, the prediction is the one without controls. A belief
    that has left the training sample has no prediction: any state may come next.
    """
    if dynamics.simulated is not None:  # KMCF16 Alg. 4
        V, left = dynamics.simulated.predict(W, control, t)
        return V, left, V  # already expressed by its weights on the training sample
    V, lost, gammas = _moved(dynamics, W, control)
    if dynamics.controlled is not None and np.any(lost):
        free, lost_again, _ = _moved(replace(dynamics, controlled=None), W, None)
        xp = namespace(V)
        V, lost = xp.where(like(lost, V)[None, :] > 0.5, free, V), lost & lost_again
    return V, lost, gammas


def _moved(
    dynamics: Dynamics, W: Array, control: Points | None
) -> tuple[Array, Bools, Array | None]:
    """Predictions (n, k) that sum to one, uniform where nothing is left, and where that is (k,)."""
    xp, k, onward, gammas = namespace(W), W.shape[1], dynamics.onward, None
    if onward is None:
        a = transition_weights(dynamics, W, control)
    else:
        L, c = dynamics.features, dynamics.features.T @ W
        # KBR13 eq. 17; one pass over the features, which is what a step takes at large n.
        pair = xp.concat([dynamics.transport @ c, onward @ c], axis=1)
        blocks = row_blocks(L.shape[0], L.shape[1], CACHED)
        both = xp.concat([L[rows, :] @ pair for rows in blocks], axis=0)
        a = counted(dynamics.moving, take(both[:, :k], dynamics.source))
        gammas = counted(dynamics.counts, both[:, k:])
    V = scatter(a, dynamics.target, W.shape[0])
    none = np.zeros(k, dtype=bool)
    if dynamics.literal:
        return V, none, gammas
    mass = total(V, axis=0)
    lost = ~(mass > TRUSTED_SHARE * total(xp.abs(V), axis=0))  # also catches NaN
    if not xp.any(lost):
        return V / mass, none, gammas if gammas is None else gammas / mass
    divided = V / xp.where(lost, xp.ones_like(mass), mass)
    even = counted(dynamics.counts, xp.ones_like(V) / V.shape[0])
    return xp.where(lost[None, :], even, divided), np.asarray(to_numpy(lost)), None


def transition_weights(dynamics: Dynamics, w: Array, control: Points | None = None) -> Array:
    """Weights a (m,) or (m, k) over the observed transitions for beliefs w (n,) or (n, k)."""
    if dynamics.shift:
        return take(w, dynamics.source)  # CME13 eq. 35
    if dynamics.controlled is not None:
        return counted(dynamics.moving, dynamics.controlled.transition_weights(w, control))
    # KBR13 eq. 17. All rows, then those at the sources: the features are read again by the update,
    # and a second matrix of them would drive them out of the cache.
    moved = dynamics.features @ (dynamics.transport @ (dynamics.features.T @ w))
    return counted(dynamics.moving, take(moved, dynamics.source))


def scatter(a: Array, index: Ints, n: int) -> Array:
    """Weights (n,) or (n, k) with a_j at index[j] and zero elsewhere."""
    if isinstance(a, np.ndarray):
        result = np.zeros((n, *a.shape[1:]), dtype=a.dtype)
        result[index] = a
        return result
    xp = namespace(a)
    position = np.full(n, len(index))
    position[index] = np.arange(len(index))
    padded = xp.concat([a, 0.0 * a[:1, ...]], axis=0)
    places = xp.asarray(position, device=getattr(a, "device", None))
    return xp.take(padded, places, axis=0)


# --- update: Bayes' rule --------------------------------------------------------------------------


def update(
    dynamics: Dynamics,
    V: Array,
    seen: list[Seen],
    start: Start = None,
    lost: Floats | Bools | None = None,
    gammas: Array | None = None,
) -> tuple[Array, list[StepInfo]]:
    """Beliefs (n, k) and what happened, from predictions V (n, k) and k observations.

    ``start`` says that nothing is known before the observation, and what to do then; ``lost`` (k,)
    which share of each prediction was lost, 1 if it was reset to that; ``gammas`` (n, k) are the
    weights on the training sample, if known.
    """
    xp = namespace(V)
    if start is not None and not dynamics.literal:  # nothing is known: all states are alike
        gammas = counted(dynamics.counts, xp.ones_like(V) / V.shape[0])  # KBR13, IW22
    elif gammas is None:
        gammas = prior_weights(dynamics, V)
    left = [0.0] * len(seen) if lost is None else [float(share) for share in lost]
    found = [
        posterior(dynamics, V[:, j], gammas[:, j], one, plain_ridge(dynamics, one, start), left[j])
        for j, one in enumerate(seen)
    ]
    if len(found) == 1:
        return found[0][0][:, None], [found[0][1]]
    return xp.stack([w for w, _ in found], axis=1), [info for _, info in found]


def prior_weights(dynamics: Dynamics, V: Array) -> Array:
    """Weights gamma (n, k) of predictions V (n, k) on the training sample."""
    if dynamics.simulated is not None:
        return V  # already expressed by its weights on the training sample
    if dynamics.ratio is not None:
        columns = [(dynamics.ratio(V[:, j]), V[:, j]) for j in range(V.shape[1])]
        return namespace(V).stack([v if r is None else r for r, v in columns], axis=1)
    return on_sample(dynamics, V)


def posterior(
    dynamics: Dynamics,
    v: Array,
    gamma: Array,
    seen: Seen,
    plain: float | None = None,
    left: float = 0.0,
) -> tuple[Array, StepInfo]:
    """Belief (n,) from a prediction v, its weights gamma on the sample, and an observation.

    With ``plain`` it is the regression on the observation alone, with that ridge. ``left`` is the
    share of the prediction that was lost.
    """
    o, trusted, rescued, w = seen.observations, seen.trusted, False, None
    if o is None:
        happened = False, False, False, left >= 1.0, float("nan"), left
        return v, StepInfo(float("nan"), seen.support, float(1.0 / (v @ v)), *happened)
    if o.rule.literal:
        return literal_posterior(gamma, o, seen, plain, left)
    mass, cancelled, times = 0.0, True, 1.0
    tries = RAISED if o.method == "importance" else RAISED[:1]
    for times in tries if trusted > 0.0 and float(namespace(gamma).max(gamma)) > 0.0 else ():
        raw, rescued = bayes_rule_at(o, gamma, seen.column, plain, times)
        mass, w = float(total(raw)), tempered(dynamics, gamma, raw, o.rule)
        w = normalised(w, mass if w is raw else None)
        cancelled = w is None or float(w @ w) > 1.0  # less than one point's worth
        if not cancelled:
            break
    w = cut_off(w) if w is not None and cancelled else w
    fallback = w is None or trusted < 1.0 or cancelled or times > 1.0
    if w is None:
        w = v
    elif trusted < 1.0:
        w = trusted * w + (1.0 - trusted) * v
    happened = not seen.blank, fallback, rescued, left >= 1.0, 1.0 - trusted, left
    return w, StepInfo(mass, seen.support, float(1.0 / (w @ w)), *happened)


# --- weights --------------------------------------------------------------------------------------


def normalised(weights: Array, mass: float | None = None) -> Array | None:
    """Weights (n,) divided by their sum; None if they nearly cancel or are not finite."""
    mass = float(total(weights)) if mass is None else mass
    size = float(total(abs(weights)))
    if not isfinite(size) or mass <= TRUSTED_SHARE * size or size == 0.0:
        return None
    return weights / mass


def cut_off(weights: Array) -> Array | None:
    """Weights (n,) without the negative ones, divided by their sum; None if nothing is left."""
    return normalised(namespace(weights).clip(weights, min=0.0))


def unlike(info: StepInfo) -> float:
    """Share of one step's observation that was not trusted; 0 where there was none."""
    return float(info.prior_share) if info.prior_share > 0.0 else 0.0  # not for NaN


# --- the online step ------------------------------------------------------------------------------


def step(
    model: Filter, state: FilterState, x: PointsLike, control: PointsLike = None, steps: int = 1
) -> tuple[FilterState, StepInfo]:
    """Predict and update: a pure function of an immutable state.

    Parameters
    ----------
    state : FilterState
        From :meth:`start` or the step before.
    x : point or None
        Observation; None or NaN is a missing one, and a vector with some NaN conditions on what is
        there.
    control : point, optional
        What acted since the step before.
    steps : int
        Transitions since the step before; more than one after a gap.

    Returns
    -------
    state : FilterState
    info : StepInfo
    """
    if not hasattr(model, "dynamics_"):
        check_is_fitted(model, "dynamics_")
    if not (isinstance(state, FilterState) and state.belief.points is model.Z_):
        check_state(state, model)  # a state of the step before needs no look
    steps = steps if steps == 1 else integer(steps, "steps", 1)
    dynamics, first, u = model.dynamics_, state.t == 0, None
    if not first and (control is not None or dynamics.controlled is not None):
        kernel_u = getattr(model, "kernel_u_", None)
        u = own(dynamics.acting(as_row(row_in_order(control, model.names_u_), kernel_u)))
    seen, past = observe(model, x, state.past, steps, u)
    W, history = state.belief.weights[:, None], state.history
    lost, gammas = np.zeros(1), None
    for t in range(state.t, state.t if first else state.t + steps):
        history = (*history, (W[:, 0], u, state.unlike if t == state.t else 0.0))
        W, again, gammas = predict(dynamics, W, u, t)
        lost = np.maximum(lost, again)
    W, infos = update(dynamics, W, [seen], state.unknown if first else None, lost, gammas)
    warn_rescued(infos)
    warn_reset(infos)
    names = model.names_z_
    belief = Belief(model.Z_, W[:, 0], model.kernel_z_, names, calibration=model.calibration_)
    history = history[-state.lag :] if state.lag else ()
    t = 1 if first else state.t + steps
    told = unlike(infos[0])
    return FilterState(t, belief, state.unknown, state.lag, told, history, past), infos[0]


# --- what a step warns of -------------------------------------------------------------------------


def warn_reset(infos: list[StepInfo]) -> None:
    """Say how many predictions have left the training states, and which."""
    found = [t for t, info in enumerate(infos) if info.left > LEFT]
    if found:
        gone = sum(1 for info in infos if info.reset)
        told = f"the predictions of {len(found)} of {len(infos)} steps ({first_few(found)}) have "
        told += "left the training states, where beliefs cannot follow"
        told += f"; {gone} were lost, so that any training state was as likely" * (gone > 0)
        told += ". Add training pairs where the states go"
        warn(told)


def warn_rescued(infos: list[StepInfo]) -> None:
    """Say how many updates had a matrix that was not positive definite, and which."""
    found = [t for t, info in enumerate(infos) if info.rescued]
    if not found:
        return
    lost = sum(1 for t in found if np.isnan(infos[t].mass))
    done = "their ridge was raised" + f", and {lost} of their observations dropped" * (lost > 0)
    warn(
        f"{len(found)} of {len(infos)} updates ({first_few(found)}) had a matrix that was not "
        f"numerically positive definite; {done}. Use a larger ridge or a smaller bandwidth"
    )
