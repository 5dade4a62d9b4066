"""Which variant describes left-out parameters best.

No variant wins everywhere: weights alone are right where the posterior has several pieces, the
regression adjustment where it is one piece in many dimensions, a learned likelihood where noise is
simple. So some simulations are left out, each variant is asked for its posterior given their data,
and scored at their true parameters by a proper score (:mod:`kernelbayes.simulation.scores`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from kernelbayes.simulation.inverse import Recipe
from kernelbayes.simulation.kde import Smoothing
from kernelbayes.simulation.scores import SMOOTHING, Judge, Score
from kernelbayes.simulation.variants import RULES, Learner, Variant

Floats = np.ndarray[Any, Any]
# Shares of the simulations that are near; bandwidths of the rules in median distances.
SHARES = (1.0, 0.5, 0.25, 0.1, 0.05, 0.02)
BANDWIDTHS = (0.1, 0.2, 0.5, 1.0)
# Data of more coordinates than this get no likelihood of their own, only learned summaries do.
LIKELIHOOD_COLUMNS = 30
# Simulations left out to choose by: these many see all variants, those many the best of them.
FIRST_LOOK, LEFT_OUT, FINALISTS = 40, 150, 6
LIKELIHOOD_LOOK = 40
# Smoothing may follow the distance to this neighbour, in few dimensions: in more, all points
# are about equally far from their neighbours.
NEIGHBOURS, LOCAL_DIMENSIONS = 10, 6


def candidates(method: str, adjust: str, learner: Learner) -> list[Variant]:
    """Variants of a method."""
    adjusts: Any = ("none", "linear", "location", "scale") if adjust == "auto" else (adjust,)
    if np.all(learner.discrete):
        adjusts = ("none",)  # what takes separate values cannot be moved
    near: Any = ("data", "mean", "moments")
    local = [
        Variant("adjusted", Recipe(n, share, a))
        for a in adjusts
        for share in SHARES
        for n in near
        if share < 1.0 or (n == "data" and a in ("location", "scale"))
    ]
    if method == "adjusted":
        return local
    if method in RULES:
        return [
            Variant(method, Recipe("data", 1.0, a), bandwidth=b)
            for b in BANDWIDTHS
            for a in adjusts
            if a != "linear"
        ]
    columns = learner.X.shape[1] if learner.rows is None else learner.rows.shape[2]
    data = "data" if learner.rows is None else "rows"
    summaries = ("mean", data) if columns <= LIKELIHOOD_COLUMNS else ("mean",)
    likely = [Variant("likelihood", Recipe("data", 0.1, "none"), summary=s) for s in summaries]
    return likely if method == "likelihood" else local + likely


def choose(
    tried: list[Variant], learner: Learner, kind: Score, rng: np.random.Generator, bar: Any
) -> tuple[Variant, list[dict[str, Any]]]:
    """Variant that scores best on left-out simulations, and the table of all."""
    n = len(learner.P)
    order = rng.permutation(n)
    held = order[: min(LEFT_OUT, max(n // 5, 5))]
    train = learner.subset(order[len(held) :])
    train = train.fitted(Variant("adjusted", tried[0].recipe), rng)
    judge = Judge(learner.discrete, *learner.support, kind)
    counts = np.full(n, 1.0 / n) if learner.weights is None else learner.weights

    def mean(found: Floats, rows: Floats) -> Floats:
        return np.asarray(np.average(found, axis=0, weights=counts[rows]))

    def local(variant: Variant, rows: Floats, neighbours: int = 0) -> dict[str, Any]:
        fitted = train.fitted(variant, rng)
        samples = ((points, _clipped(w)) for points, w in fitted.sample(variant, learner.X[rows]))
        found = mean(judge(samples, learner.P[rows], rng, neighbours), rows)
        smoothing = Smoothing(SMOOTHING[int(np.argmax(found))], neighbours)
        chosen = replace(variant, smoothing=None if kind == "energy" else smoothing)
        return _row(chosen, float(found.max()), len(rows))

    def likely(variant: Variant, rows: Floats) -> dict[str, Any]:
        fitted = train.fitted(variant, rng)
        X, truth = learner.X[rows], learner.P[rows]
        iid = None if learner.rows is None else learner.rows[rows]
        if fitted.has_density and kind == "log":
            logs = fitted.likelihood_scores(variant, X, iid, truth, rng)
            return _row(variant, float(mean(logs, rows)), len(rows))
        drawn = fitted.posterior(variant, X, iid, rng, quick=True)
        samples = ((points, _clipped(w)) for points, w, _ in drawn)
        found = mean(judge(samples, truth, rng), rows)
        if kind == "log":
            variant = replace(variant, smoothing=Smoothing(SMOOTHING[int(np.argmax(found))]))
        return _row(variant, float(found.max()), len(rows))

    table: list[dict[str, Any]] = []
    for variant in (v for v in tried if v.kind != "likelihood"):
        table.append(local(variant, held[:FIRST_LOOK]))
        bar.update()
    table.sort(key=_by_score)
    best = [local(row["variant"], held) for row in table[:FINALISTS]]
    best.sort(key=_by_score)
    if best and kind == "log" and 0 < np.sum(~learner.discrete) <= LOCAL_DIMENSIONS:
        best = sorted([local(best[0]["variant"], held, NEIGHBOURS), *best], key=_by_score)
    table = best + table[FINALISTS:]
    models = [v for v in tried if v.kind == "likelihood"]
    if models:
        # Simulations that did not take part in the first look, if there are enough.
        rows = held[-LIKELIHOOD_LOOK:]
        rivals = []
        if table:
            first = table.pop(0)["variant"]
            models = [replace(v, recipe=first.recipe) for v in models]
            neighbours = 0 if first.smoothing is None else first.smoothing.neighbours
            rivals = [{**local(first, rows, neighbours), "variant": first}]
        rivals += [likely(v, rows) for v in models]
        table = sorted(rivals, key=_by_score) + table
        bar.update(len(models))
    return table[0]["variant"], table


def _by_score(row: dict[str, Any]) -> float:
    return -float(row["score"])


def _row(variant: Variant, score: float, left_out: int) -> dict[str, Any]:
    return {"variant": variant, "method": str(variant), "score": score, "left_out": left_out}


def _clipped(weights: Floats) -> Floats:
    """Weights without the negative ones, summing to one."""
    w = np.maximum(weights, 0.0)
    total = w.sum()
    return np.asarray(w / total if total > 0 else np.full(len(w), 1.0 / len(w)))
