"""Choosing kernels and ridges from data alone.

``tune(model, X, Z)`` tries many ridges, which are almost free (one eigendecomposition scores all of
them by closed-form leave-one-out), and some multiples of the default bandwidths, as coarse as the
distances in the data are wide, then refined around the best.

For Bayes' rule they are compared by their risk under the prior (:mod:`kernelbayes.select.risk`).
"marginal" compares the averaged posterior with the marginal of held-out z instead. The bandwidth of
x is left where the search started unless another is clearly better, by more than one standard error
of the difference over pairs (Breiman et al. 1984), both for the means alone and for means and mass:
in high dimension such differences are mostly noise.
"""

import inspect
from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import replace
from functools import partial, singledispatch, wraps
from typing import Any, get_args

import numpy as np
from sklearn.base import clone
from tqdm import tqdm

from kernelbayes.arrays import as_doubles, as_generator, to_float
from kernelbayes.embedding import Embedding, MeanElement, embed
from kernelbayes.estimators import KernelBayesRule
from kernelbayes.gram.loo import RidgePath, column_units, loo, loo_subset, ridge_grid, score_targets
from kernelbayes.kernels import Kernel
from kernelbayes.points import count, integer, numeric_values, option, take
from kernelbayes.rules.cme import ConditionalEmbedding
from kernelbayes.rules.prior import PriorLike, drawn, prior_under
from kernelbayes.rules.scales import distance_factors, pair_kernels
from kernelbayes.rules.variable import default_rank, variable
from kernelbayes.select.regression import FOLDS
from kernelbayes.select.risk import Criterion, Ratio, Risk, Task
from kernelbayes.select.search import COARSE, coarse_to_fine, progress_bar
from kernelbayes.tables import Row, Table
from kernelbayes.types import Floats, Points, PointsLike, Rng

# Pairs used for tuning; a fixed random subset beyond this number. An eigendecomposition of this
# size, one for each bandwidth, takes about a tenth of a second.
TUNE_POINTS = 1000
# Standard errors by which the best of a dozen settings must be better than the default: one-sided
# test at 5 %, Bonferroni's correction for twelve normal noises.
MANY = 2.64


@singledispatch
def tune(
    model: Any, X: PointsLike, Z: PointsLike, *, prior: PriorLike = None,
    criterion: str | None = None, budget: int = 12, rng: Rng = None, progress: bool | None = None,
    folds: int = FOLDS,
) -> Any:  # fmt: skip
    """Choose kernels and ridges from data; returns a fitted model of the same class.

    Parameters
    ----------
    model : ConditionalEmbedding or KernelBayesRule
        What is set on it (a kernel) is the starting point of the search; it is not changed.
    X, Z : points (n, ...)
        Training pairs. Nothing else is looked at.
    prior : points, embedding or None
        For Bayes' rule: the prior that the model is tuned for, and fitted with.
    criterion : str, optional
        For Bayes' rule: "combined" (the default for numbers), "predictive" or "rkhs"
        (:mod:`kernelbayes.select.risk`), or "marginal" (KBR13 section 4.2).
    budget : int
        How many bandwidths are tried for each variable; ridges come on top for free.
    rng : int, Generator or None
        For random folds, where a model needs them.
    progress : bool, optional
        Show a progress bar; by default when a person is watching.
    folds : int
        For Bayes' rule where there is no leave-one-out (the original rule, and the criterion
        "marginal": K of KBR13 section 4.2); 5 unless given.

    Returns
    -------
    model
        Fitted, with ``tuning_``: a table (list of dicts) of what was tried. Scores compare within
        a ``"stage"`` only: "regression" (leave-one-out error), "ratio" (that of a relative ratio,
        negative or not) or "rule" (the criterion). ``"variable"`` is whose bandwidth changed.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelbayes import ConditionalEmbedding, tune
    >>> rng = np.random.default_rng(0)
    >>> x = rng.uniform(-3, 3, size=200)
    >>> cme = tune(ConditionalEmbedding(), x, np.sin(4 * x) + 0.1 * rng.normal(size=200))
    >>> cme.kernel_x_.bandwidth < 1.0  # the median distance, 1.8, is too wide for sin(4 x)
    True
    """
    del X, Z, prior, criterion, budget, rng, progress, folds
    hint = "; pass an instance, not the class" if isinstance(model, type) else ""
    raise TypeError(f"tune does not know {type(model).__name__}{hint}")


def with_options(tuner: Callable[..., Any]) -> Callable[..., Any]:
    """Tuner that says in our own words which options it takes."""
    signature = inspect.signature(tuner)

    @wraps(tuner)
    def checked(model: Any, *data: PointsLike, **options: Any) -> Any:
        try:
            signature.bind(model, *data, **options)
        except TypeError as error:
            takes = ", ".join(list(signature.parameters)[1:])
            text = f"tune of a {type(model).__name__}: {error}; it takes {takes}"
            raise TypeError(text) from None
        return tuner(model, *data, **options)

    return checked


@tune.register
@with_options
def tune_conditional(
    model: ConditionalEmbedding, X: PointsLike, Z: PointsLike, *, budget: int = 12,
    rng: Rng = None, progress: bool | None = None,
) -> ConditionalEmbedding:  # fmt: skip
    """Bandwidth of x and ridge by leave-one-out error in the RKHS of z (CME13 section 3.2)."""
    as_generator(rng)  # nothing is random here
    budget, base = integer(budget, "budget"), copy(model).fit(X, Z, copy=False).conditional_
    keep, first = loo_subset(base.n), base.inputs.kernel
    H, first = base.outputs.exact(keep), first.exact if model.kernel_x is None else first

    def score(kernel: Kernel) -> Row:
        F = replace(base.inputs, kernel=kernel).exact(keep)
        found = loo(F, H, ridge_grid(F))
        return {"kernel": kernel, "ridge": found.best, "score": float(found.errors.min())}

    with progress_bar(budget, "tuning", progress) as bar:
        start = _starts(first, base.inputs.points)
        table = coarse_to_fine(first.scaled, score, budget, bar, start=start, parallel=True)
    best, rank = table.best, default_rank(first, model.kernel_x, base.n)
    kernel = variable(X, best["kernel"], "X", rank, 0, copy=False).kernel
    tuned = ConditionalEmbedding(kernel, base.outputs.kernel, best["ridge"]).fit(X, Z)
    tuned.tuning_ = Table({"stage": "regression", "variable": "x", **row} for row in table)  # type: ignore[attr-defined]
    return tuned


@tune.register
@with_options
def tune_rule(
    model: KernelBayesRule, X: PointsLike, Z: PointsLike, *, prior: PriorLike = None,
    criterion: Criterion | None = None, budget: int = 12, rng: Rng = 0,
    progress: bool | None = None, folds: int = FOLDS,
) -> KernelBayesRule:  # fmt: skip
    """Both bandwidths and both ridges, for the prior in force."""
    budget = integer(budget, "budget")
    # Where a search begins with few pairs: it widens kernels itself.
    kernel_x, kernel_z = pair_kernels(X, Z, model.kernel_x, model.kernel_z, True, wide=False)
    x = variable(X, kernel_x, "X", copy=False)
    z = variable(Z, kernel_z, "Z", copy=False)
    if x.n != z.n:
        raise ValueError(f"X and Z must be pairs, got {x.n} and {z.n} points")
    if x.n < 2:
        raise ValueError("tuning leaves out some pairs and learns from the others: give at least 2")
    rank = model.rank or default_rank(kernel_x, model.kernel_x, x.n)
    keep = loo_subset(x.n, TUNE_POINTS)  # nothing below grows with n
    x, z = (replace(v, points=take(v.points, keep)) for v in (x, z))
    values = numeric_values(z.points)
    if criterion is None:
        criterion = "combined" if values is not None and z.kernel.is_vector else "rkhs"
    option(criterion, "criterion", get_args(Criterion))
    if criterion in ("combined", "predictive") and values is None:
        raise TypeError(f"criterion {criterion!r} needs numeric Z; use 'rkhs'")
    values = np.empty((z.n, 0)) if values is None else as_doubles(values) / column_units(z.kernel)
    prior = drawn(prior, model.rng)
    element = _subset(prior_under(prior, z))
    fold = as_generator(rng).permutation(z.n) % min(integer(folds, "folds", 2), z.n)
    task = Task(model, x, z, values, element, criterion, fold)
    with progress_bar((1 if prior is None else 2) * budget, "tuning", progress) as bar:
        ratios, table = task.ratios(budget, bar)
        if criterion == "combined" and len(ratios) == 1:  # from the default, with enough pairs
            default, _ = pair_kernels(X, Z, model.kernel_x, model.kernel_z, True)
            task = replace(task, x=replace(x, kernel=default))
        best, tried = _search(task, ratios, budget, bar)
    tuned: KernelBayesRule = clone(model).set_params(
        kernel_x=best["kernel"],
        kernel_z=best["kernel_z"],
        ridge=best["ridge"],
        prior_ridge=model.prior_ridge if prior is None else best["prior_ridge"],
        rank=rank,
        rng=0 if model.rng is model.rank is None else model.rng,
    )
    tuned.fit(X, Z, prior=prior)
    tuned.tuning_ = Table(table + tried)
    return tuned


def _search(task: Task, ratios: list[Ratio], budget: int, bar: tqdm) -> tuple[Row, list[Row]]:
    """Ratio at the starting bandwidth of x, then the bandwidth of x, then the ratio again.

    Returns the best row, or that of the default if it is not clearly worse, and all rows.
    """
    targets = task.targets(ratios[0])
    risk = task.risk(ratios[0], targets)
    terms: dict[tuple[Kernel, Ratio], Floats] = {}  # what each pair adds to the score

    def scored(ratio: Ratio, kernel: Kernel, default: bool = False) -> Row:
        row = _row(task, ratio, targets, risk, kernel, default)
        terms[kernel, ratio] = row.pop("terms")
        return row

    first = {"scale": 1.0, **scored(ratios[0], task.x.kernel, default=True)}
    before, table = terms[task.x.kernel, ratios[0]], [first]

    def best_ratio(kernel: Kernel, scale: float) -> tuple[Ratio, Row]:
        rows = [{"scale": scale, **scored(ratio, kernel)} for ratio in ratios]
        table.extend(rows)
        best = Table(rows).best
        return ratios[rows.index(best)], best

    ratio = ratios[0]
    if len(ratios) > 1:
        ratio, _ = best_ratio(task.x.kernel, 1.0)
    # Finer steps differ by less than the noise of the risk, wider kernels by their ridge.
    finest, widest = (2.0, 4.0) if task.criterion == "combined" else (1.1, np.inf)
    start = [s for s in _starts(task.x.kernel, task.x.points) if s <= widest]
    how: dict[str, Any] = {"start": start, "finest": finest, "widest": widest, "parallel": True}
    score = partial(_row, task, ratio, targets, risk)
    rows = coarse_to_fine(task.x.kernel.scaled, score, budget, bar, **how)
    terms |= {(row["kernel"], ratio): row.pop("terms") for row in rows}
    table += rows
    row = _steady(rows, {kernel: found for (kernel, r), found in terms.items() if r is ratio})
    if len(ratios) > 1:
        ratio, row = best_ratio(row["kernel"], row["scale"])
    asked = task.criterion != "combined" or len(ratios) > 1  # or scarce pairs, flat ratios
    clear = asked or _clearly_worse(before, terms[row["kernel"], ratio], MANY)
    return (row if clear else first), table


def _row(
    task: Task, ratio: Ratio, targets: Floats, risk: Risk, kernel: Kernel, default: bool = False
) -> Row:
    """Best ridge (or the default's) with its score, and what each pair (or fold) adds to it."""
    F, method = task.features(kernel), task.model.method
    ridges = ridge_grid(F, ratio.weights)
    if task.criterion == "marginal":
        terms = _marginal_errors(task, F, targets, ridges, ratio)
    else:
        predictions = (
            loo(F, targets, ridges, ratio.weights).predictions()
            if method == "importance"
            else _original_predictions(task, F, targets, ridges, ratio.signed)
        )
        means = targets.shape[1] - (task.criterion == "combined")  # not the constant
        terms = np.array([risk.terms(p, means) for p in predictions])
    scores = terms[:, :, 0].sum(axis=1)
    i = int(np.argmin(scores))
    if default:
        H = score_targets(task.z.kernel, task.z.points)
        i = int(np.argmin(loo(F, H, ridges, ratio.weights).errors))
    ridge = float(ridges[i])
    ridge = ridge * ratio.mass if method == "importance" else ridge**2
    row = {"stage": "rule", "variable": "x", "kernel": kernel, "kernel_z": ratio.kernel}
    found = {"ridge": ridge, "score": float(scores[i]), "terms": terms[i]}
    return {**row, "prior_ridge": ratio.ridge, **found}


def _original_predictions(
    task: Task, F: Floats, H: Floats, ridges: Floats, signed: list[Floats]
) -> Iterator[Floats]:
    """Held-out predictions (n, q) of the original rule over folds, for delta = ridge^2."""
    fits = [
        (test, RidgePath.of(F[train], H[train], gamma))
        for gamma, (train, test) in zip(signed, task.parts, strict=True)
    ]
    for ridge in ridges:
        predictions = np.empty(H.shape)
        for test, fit in fits:
            predictions[test] = fit.predict(F[test], float(ridge), original=True)
        yield predictions


def _marginal_errors(task: Task, F: Floats, H: Floats, ridges: Floats, ratio: Ratio) -> Floats:
    """KBR13 section 4.2: averaged posterior against the marginal, (ridges, folds, 1).

    Under a prior, pairs on both sides count by its density ratio to the training marginal.
    """
    errors, original = [], task.model.method == "original"
    for a, (train, test) in enumerate(task.parts):
        weights = ratio.signed[a] if original else _shares(ratio.weights[train])
        fit = RidgePath.of(F[train], H[train], weights)
        counts = _shares(ratio.weights[test])
        mean, target = counts @ F[test], counts @ H[test]
        found = ((mean @ fit.Q) * fit.filtered(ridges[:, None], original)) @ fit.cross
        errors.append(np.sum((found - target) ** 2, axis=1))
    return np.stack(errors, axis=1)[:, :, None]


def _shares(weights: Floats) -> Floats:
    """Weights divided by their sum; equal ones if there is none."""
    total = float(weights.sum())
    return weights / total if total > 0.0 else np.full(len(weights), 1.0 / len(weights))


def _steady(rows: list[Row], terms: dict[Kernel, Floats]) -> Row:
    """Row nearest to the starting bandwidth that the best row does not clearly beat."""
    best = min(rows, key=lambda row: row["score"])
    least = terms[best["kernel"]]
    near = [r for r in rows if r is best or not _clearly_worse(terms[r["kernel"]], least)]
    return min(near, key=lambda row: (abs(np.log(row["scale"])), row["score"]))


def _clearly_worse(terms: Floats, others: Floats, errors: float = 1.0) -> bool:
    """Whether scores made of terms (n, k) are worse by so many standard errors, all of them."""
    worse = terms - others
    return bool(np.all(worse.sum(axis=0) > errors * np.sqrt(len(worse)) * worse.std(axis=0)))


def _starts(kernel: Kernel, points: Points) -> list[float]:
    """Multiples of a bandwidth where a search starts: octaves, and the range of the distances."""
    h = kernel.gaussian_bandwidth
    if h is None:
        return list(COARSE)
    factors = distance_factors(as_doubles(points).reshape(count(points), -1) / np.asarray(h))
    low, high = min(COARSE) / 2.0, 2.0 * max(COARSE)
    return [*COARSE, *(f for f in factors if not low < f < high)]


def _subset(element: MeanElement | None) -> MeanElement | None:
    """Prior on at most TUNE_POINTS of its points, with its mass."""
    if not isinstance(element, Embedding) or len(element) <= TUNE_POINTS:
        return element
    keep = loo_subset(len(element), TUNE_POINTS)
    weights = element.weights[keep]
    scale = to_float(element.mass) / (float(np.sum(as_doubles(weights))) or 1.0)
    smaller: Embedding = embed(take(element.points, keep), element.kernel, weights * scale)
    return smaller
