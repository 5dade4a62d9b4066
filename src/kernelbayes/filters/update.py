r"""Bayes' rule at one observation: what is seen of it, and the equations of the update.

An observation is made ready: its kernel values k(x), its support, and what is missing of it. Then,
with prior weights gamma on the training sample, there are

* the importance rule (IW22 Alg. 1) and the original one (KBR13 eq. 18);
* *memory* a: gamma_i^a instead of gamma_i; with a = 0 the regression on the observation alone;
* *tempering* b: the posterior's ratio to the prior, as a function of the state, to the power b;
* *literal*: the equations as printed, in the scale of the notation page.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from kernelbayes.arrays import CACHED, namespace, row_blocks, to_numpy, total
from kernelbayes.filters.beliefs import Start, StepInfo
from kernelbayes.filters.missing import missing_mask, present
from kernelbayes.filters.model import Dynamics, Observations, Rule
from kernelbayes.filters.sequences import acting, as_points, as_row, check_gaps, point_at
from kernelbayes.gram import Dense, Factored, LowRank
from kernelbayes.gram.lapack import LinAlgError, solve_positive
from kernelbayes.gram.solvers import cho_solve, factor_with_ridge, scale_rows
from kernelbayes.points import concatenate, count, doubled, in_order, row_in_order, take
from kernelbayes.rules.bayes import turn
from kernelbayes.rules.support import UNUSUAL, clipped, features_and_support, of_seen
from kernelbayes.types import Array, Floats, Points, PointsLike

if TYPE_CHECKING:
    from kernelbayes.filters.loop import Filter

# Weights whose sum is below this share of the sum of their absolute values nearly cancel: dividing
# by the sum would magnify rounding errors tenfold or more, and their mean may lie anywhere.
TRUSTED_SHARE = 0.1
# Prior weights below this share of the largest are rounding errors of the operators before them.
ACTIVE = 1e-10


@dataclass(frozen=True, eq=False)
class Seen:
    """One observation made ready: kernel values, support, and the model they belong to."""

    observations: Observations | None = None  # None: nothing was observed
    column: Array = None
    support: float = float("nan")
    trusted: float = 0.0  # how far, from 0 to 1; the papers' algorithm does not ask
    blank: bool = False  # whether all of it was missing, and it is an estimate of what went before


def evaluate(observations: Observations, points: Points) -> tuple[Array, Array]:
    """Return what the update needs of k checked points: columns (r or n, k), supports (k,)."""
    kernel, X = observations.kernel, observations.X
    if isinstance(observations.gram, Factored):
        features, near = features_and_support(kernel, points, X)
        return features.T, near
    K = kernel._cross(points, X)
    unit = clipped(namespace(K).max(K, axis=1), 0.0, 1.0) if kernel.is_unit else None
    near = kernel.similarity(K, points, X) if unit is None else unit
    return K.T, near if kernel.is_vector else of_seen(kernel, near, points, X)


def seen_at(observations: Observations, points: Points) -> list[Seen]:
    """Make checked points (k, ...) of the observation model's space ready."""
    columns, near = evaluate(observations, points)
    usual = UNUSUAL * (0.0 if observations.rule.literal else observations.usual_support)
    found = []
    for j, support in enumerate(to_numpy(near).tolist()):
        trusted = min(1.0, support / usual if usual > 0.0 else 1.0) if support > 0.0 else 0.0
        found.append(Seen(observations, columns[:, j], support, trusted))
    return found


def observe(
    model: Filter, x: PointsLike, past: Array | None, steps: int, control: Points | None
) -> tuple[Seen, Array | None]:
    """One observation made ready for the update, and the window that the next one needs.

    ``past`` is the window before it, ``steps`` the transitions since, each under ``control``.
    """
    if model.encoder_ is None:
        return _ready(model, x), None
    row = _row(model, x)
    encoded, past = model.encoder_.follow(past, row, steps, control)
    found = present(model.observations_, encoded)
    return Seen() if found is None else replace(_seen(*found), blank=_is_blank(model, row)), past


def _is_blank(model: Filter, points: Points, t: int = 0) -> bool:
    """Whether nothing was observed at time t, where the encoder has an estimate even so."""
    goes_on = model.encoder_ is not None and model.encoder_.goes_on
    return goes_on and (points is None or not np.isfinite(to_numpy(points)[t]).any())


def _row(model: Filter, x: PointsLike) -> Points:
    """One observation as a sequence of length one, read by name where it has names."""
    kernel = model.kernel_x_
    return as_row(row_in_order(x, model.names_x_, by_name=kernel.by_name), kernel)


def _seen(observations: Observations, point: Points, checked: bool = False) -> Seen:
    """One point of the observation model's space made ready."""
    if not checked:
        point = doubled(observations.exact.points(point, "x"))
        observations.exact.check_pair(point, observations.X)
    return seen_at(observations, point)[0]


def _ready(model: Filter, x: PointsLike) -> Seen:
    observations = model.observations_
    whole = type(x) is np.ndarray and x.ndim > 0 and x.dtype.kind == "f" and np.isfinite(x).all()
    if whole:  # as usual: no search for what is missing
        point = x[None, ...].astype(np.float64, copy=False)
    else:
        found = present(observations, _row(model, x))
        if found is None:
            return Seen()
        observations, point = found
    plain = whole and observations.plain and x.shape == observations.X.shape[1:]
    return _seen(observations, point, checked=bool(plain))


def prepare(
    model: Filter, sequences: Iterable[tuple[PointsLike, PointsLike, ArrayLike | None]]
) -> list[tuple[list[Seen], Points | None, list[int]]]:
    """Observations of sequences (X, controls, gaps) made ready, controls and gaps, all checked."""
    by_name, read = model.kernel_x_.by_name, []
    for X, controls, gaps in sequences:
        points = as_points(in_order(X, model.names_x_, by_name=by_name), model.kernel_x_)
        if getattr(points, "ndim", 1) == 0:
            raise ValueError("a sequence of observations is needed; for one use step(state, x)")
        length = count(points)
        if length == 0:
            raise ValueError("a sequence must have at least one step")
        U = acting(controls, length, getattr(model, "kernel_u_", None), model.names_u_)
        if length > 1:  # whether controls are expected
            model.dynamics_.acting(None if U is None else take(U, [0]))
        before = check_gaps(gaps, length)
        encoded = points if model.encoder_ is None else model.encoder_(points, before, U)
        read.append((encoded, U, before, [_is_blank(model, points, t) for t in range(length)]))
    each = [points for points, *_ in read]
    kinds = {isinstance(X, np.ndarray) and (X.dtype, X.shape[1:]) for X in each}
    together = (
        [concatenate(*each)] if len(each) > 1 and len(kinds) == 1 and False not in kinds else each
    )
    seen = iter(one for X in together for one in observe_all(model, X))
    return [([replace(next(seen), blank=b) for b in blank], U, g) for _, U, g, blank in read]


def observe_all(model: Filter, X: Points) -> list[Seen]:
    """Make encoded observations ready: whole ones with one kernel matrix, others one by one."""
    whole = model.observations_
    masks = [missing_mask(point_at(X, t)) for t in range(count(X))]
    complete = [t for t, mask in enumerate(masks) if mask is None or mask.all()]
    seen = [Seen()] * len(masks)
    if complete:
        points = doubled(whole.exact.points(take(X, complete), "X"))
        whole.exact.check_pair(points, whole.X)
        for rows in row_blocks(len(complete), count(whole.X)):
            for t, one in zip(complete[rows], seen_at(whole, take(points, rows)), strict=True):
                seen[t] = one
    for t in sorted(set(range(len(masks))) - set(complete)):
        found = present(whole, take(X, [t]))
        if found is not None:
            seen[t] = _seen(*found)
    return seen


def counted(counts: Array | None, values: Array) -> Array:
    """Return values (n,) or (n, k) times how much each of n pairs counts."""
    return values if counts is None else scale_rows(counts, values)


def on_sample(dynamics: Dynamics, W: Array) -> Array:
    """Weights on the training states of embeddings W (n,) or (n, k) over the same states."""
    found = dynamics.features @ (dynamics.to_prior @ (dynamics.features.T @ W))
    return counted(dynamics.counts, found)


def plain_ridge(dynamics: Dynamics, seen: Seen, start: Start) -> float | None:
    """Ridge of the plain regression on the first observation; None: Bayes' rule as ever.

    The importance rule under equal weights is that regression (KBR13 section 4.3, eq. 8). The
    original rule is not, and its ridge is on the scale of squares. KBR13 takes that of the states.
    """
    o = seen.observations
    if start != "observation" or o is None:
        return None
    if o.rule.literal:
        return dynamics.eta
    return o.ridge**0.5 if o.method == "original" else None


def literal_posterior(
    gamma: Array,
    observations: Observations,
    seen: Seen,
    plain: float | None = None,
    left: float = 0.0,
) -> tuple[Array, StepInfo]:
    """Belief (n,) by the papers' equations alone (KBR13 eq. 18, IW22 Alg. 1, KMCF16 Alg. 1)."""
    xp = namespace(gamma)
    if plain is None:
        if observations.usable is not None:
            gamma = xp.where(xp.asarray(observations.usable), gamma, 0.0 * gamma)
        r = xp.clip(gamma, min=0.0) if observations.method == "importance" else gamma
        w, rescued = solved(observations, r, seen.column)
    else:
        w, rescued = regressed(observations, seen.column, plain)
    mass, squares = float(xp.sum(w)), float(xp.sum(w**2))
    ess = mass**2 / squares if squares > 0.0 else 0.0
    w = w / mass if observations.rule.divided and mass != 0.0 else w
    reset = left >= 1.0
    return w, StepInfo(mass, seen.support, ess, True, False, rescued, reset, left=left)


def bayes_rule_at(
    observations: Observations,
    gamma: Array,
    column: Array,
    plain: float | None = None,
    times: float = 1.0,
) -> tuple[Array, bool]:
    """Posterior weights (n,) from prior weights gamma (n,) and a column of :func:`evaluate`.

    All zero where the prior has no mass on usable pairs. The ridge is that of the rule ``times`` a
    factor. Also whether it had to be raised further.
    """
    xp = namespace(gamma)
    gram, rule = observations.gram, observations.rule
    if observations.sums is not None:
        w, rescued = observations.sums.posterior(gamma, column, times * observations.ridge, plain)
        if float(w @ w) <= float(xp.sum(w)) ** 2 and xp.sum(w) > TRUSTED_SHARE * xp.sum(xp.abs(w)):
            return w, rescued  # else the pairs cannot hold it: their own rule
    if plain is not None or rule.memory == 0.0:
        return regressed(observations, column, plain, times)
    if observations.usable is not None:  # a pair whose observation is missing says nothing here
        gamma = xp.where(xp.asarray(observations.usable), gamma, 0.0 * gamma)
    importance = observations.method == "importance"
    if importance:
        gamma = clipped(gamma, 0.0)  # IW22 Alg. 1, line 2
    mass = total(gamma)
    if not float(mass) > 0.0:
        return 0.0 * gamma, False
    gamma = gamma / mass  # summing to one, so that the ridge means the same at every step
    if rule.memory != 1.0:
        gamma = discounted(gamma, rule.memory, observations.counts)
    if importance and isinstance(gamma, np.ndarray) and isinstance(gram, Dense | LowRank):
        return _importance(observations, gamma, column, times * observations.ridge)
    return solved(observations, gamma, column, times)


def regressed(
    observations: Observations, column: Array, ridge: float | None = None, times: float = 1.0
) -> tuple[Array, bool]:
    """Posterior weights (n,) of the regression on the observation alone; its solver is kept."""
    solver = observations.memoryless(ridge, times)
    solve = solver.solve_features if isinstance(observations.gram, Factored) else solver.solve
    return solve(column), solver.diagnostics.rescues > 0


def solved(
    observations: Observations, gamma: Array, column: Array, times: float = 1.0
) -> tuple[Array, bool]:
    """Posterior weights (n,) by the solver of a rule; also whether the ridge had to be raised."""
    gram = observations.gram
    solver = turn(gram, gamma, observations.method, times * observations.ridge)
    solve = solver.solve_features if isinstance(gram, Factored) else solver.solve
    return solve(column), solver.diagnostics.rescues > 0


def discounted(gamma: Array, power: float, counts: Array | None = None) -> Array:
    """Prior weights (n,) of which the ratios to equal weights, or counts, are raised to a power.

    These ratios are those of the densities of prediction and training marginal.
    """
    xp = namespace(gamma)
    if power == 0.0:
        return counted(counts, xp.ones_like(gamma) / gamma.shape[0])
    ratio = gamma if counts is None else gamma / xp.where(counts > 0.0, counts, 1.0)
    raised = counted(counts, xp.sign(ratio) * xp.abs(ratio) ** power)
    return raised / xp.sum(raised)


def tempered(dynamics: Dynamics, gamma: Array, w: Array, rule: Rule) -> Array:
    """Weights (n,) of a posterior w of which the ratio to the prior is raised to the rule's power.

    Both are expressed by their weights on the training states, so that the ratio is a function of
    the state: the likelihood up to a factor. Below 1, an observation counts for less than one,
    which is right where it repeats the one before.
    """
    if rule.tempering == 1.0:
        return w
    xp = namespace(w)
    gamma = gamma if rule.memory == 1.0 else discounted(gamma, rule.memory, dynamics.counts)
    after = on_sample(dynamics, w)
    both = (gamma > 0.0) & (after > 0.0)
    ratio = xp.where(both, after, xp.ones_like(w)) / xp.where(both, gamma, xp.ones_like(w))
    return xp.where(both, gamma * ratio**rule.tempering, 0.0 * w)


def _importance(
    observations: Observations, gamma: Floats, column: Floats, ridge: float
) -> tuple[Floats, bool]:
    """IW22 Alg. 1, line 3 on the active points, straight to LAPACK: the hot loop of a filter.

    Where the matrix is not numerically positive definite, its ridge is raised as everywhere
    (``gram/solvers.py``). NaN if that does not help, so that the step falls back on the prediction.
    """
    active = (gamma > ACTIVE * gamma.max()).nonzero()[0]
    r, w, gram = gamma[active], np.zeros_like(gamma), observations.gram
    s = np.sqrt(r)
    if isinstance(gram, Dense):
        b = s * column[active]
    else:
        L, b = gram.factor, column

    def matrix() -> Floats:
        if isinstance(gram, Dense):
            C = gram.G.take(active, axis=0).take(active, axis=1)
            C *= s[:, None]
            C *= s
            return np.asarray(C)
        C = np.zeros((len(b), len(b)))
        for rows in row_blocks(len(active), len(b), CACHED):
            A = L.take(active[rows], axis=0)
            A *= s[rows, None]
            C += A.T @ A
        return C

    C, rescued = matrix(), False
    C.reshape(-1)[:: len(C) + 1] += ridge
    try:
        c = solve_positive(C.T, b, overwrite=True)  # by columns, as LAPACK has it: not copied
    except LinAlgError:
        rescued = True
        try:
            c = cho_solve(factor_with_ridge(matrix(), ridge, quiet=True)[0], b)
        except LinAlgError:
            return np.full_like(w, np.nan), True
    w[active] = s * c if isinstance(gram, Dense) else r * (L @ c)[active]
    return w, rescued
