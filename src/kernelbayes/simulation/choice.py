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
    if np.any(learner.discrete):
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
    truth, X = learner.P[held], learner.X[held]
    rows = None if learner.rows is None else learner.rows[held]
    judge = Judge(learner.discrete, *learner.support, kind)

    def local(variant: Variant, few: int, neighbours: int = 0) -> dict[str, Any]:
        fitted = train.fitted(variant, rng)
        samples = ((points, _clipped(w)) for points, w in fitted.sample(variant, X[:few]))
        found = judge(samples, truth[:few], rng, neighbours).mean(axis=0)
        smoothing = Smoothing(SMOOTHING[int(np.argmax(found))], neighbours)
        return _row(replace(variant, smoothing=smoothing), float(found.max()), few)

    def likely(variant: Variant, few: int) -> dict[str, Any]:
        fitted = train.fitted(variant, rng)
        some = None if rows is None else rows[:few]
        if fitted.has_density and kind == "log":
            logs = fitted.likelihood_scores(variant, X[:few], some, truth[:few], rng)
            return _row(variant, float(np.mean(logs)), few)
        drawn = fitted.posterior(variant, X[:few], some, rng)
        samples = ((points, _clipped(w)) for points, w, _ in drawn)
        return _row(variant, float(judge(samples, truth[:few], rng).mean(axis=0).max()), few)

    table: list[dict[str, Any]] = []
    for variant in (v for v in tried if v.kind != "likelihood"):
        table.append(local(variant, min(FIRST_LOOK, len(held))))
        bar.update()
    table.sort(key=lambda row: -row["score"])
    best = [local(row["variant"], len(held)) for row in table[:FINALISTS]]
    best.sort(key=lambda row: -row["score"])
    if best and kind == "log" and 0 < np.sum(~learner.discrete) <= LOCAL_DIMENSIONS:
        best.insert(0, local(best[0]["variant"], len(held), neighbours=NEIGHBOURS))
        best.sort(key=lambda row: -row["score"])
    table = best + table[FINALISTS:]
    models = [v for v in tried if v.kind == "likelihood"]
    if models:
        look = min(LIKELIHOOD_LOOK, len(held))
        if table:
            first = table[0]["variant"]
            models = [replace(v, recipe=first.recipe) for v in models]
            rival = local(first, look, first.smoothing.neighbours)
            rivals = [{**rival, "variant": first}]
        else:
            rivals = []
        rivals += [likely(v, look) for v in models]
        table = sorted(rivals, key=lambda row: -row["score"]) + table
        bar.update(len(models))
    return table[0]["variant"], table


def _row(variant: Variant, score: float, left_out: int) -> dict[str, Any]:
    return {"variant": variant, "method": str(variant), "score": score, "left_out": left_out}


def _clipped(weights: Floats) -> Floats:
    """Weights without the negative ones, summing to one."""
    w = np.maximum(weights, 0.0)
    total = w.sum()
    return np.asarray(w / total if total > 0 else np.full(len(w), 1.0 / len(w)))
