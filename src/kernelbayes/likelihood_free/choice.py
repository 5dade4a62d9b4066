"""Which variant describes left-out parameters best.

No variant wins everywhere: weights alone are right where the posterior has several pieces, the
regression adjustment where it is one piece in many dimensions, a learned likelihood where noise is
simple. So some simulations are left out, each variant is asked for its posterior given their data,
and scored at their true parameters by a proper score (:mod:`kernelbayes.likelihood_free.scores`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from kernelbayes.embedding.smooth import (
    LOCAL_DIMENSIONS,
    NEIGHBOURS,
    SMOOTHING,
    Sample,
    Smoothing,
)
from kernelbayes.likelihood_free.inverse import LOCAL, Inverse, Recipe
from kernelbayes.likelihood_free.scores import Judge, Score
from kernelbayes.likelihood_free.variants import DENSE, RULES, Learner, Variant

Floats = np.ndarray[Any, Any]
# Shares of the simulations that are near; bandwidths of the rules in median distances.
SHARES = (1.0, 0.5, 0.25, 0.1, 0.05, 0.02, 0.01)
BANDWIDTHS = (0.1, 0.2, 0.5, 1.0)
# Data of more coordinates than this get no likelihood of their own, only learned summaries do.
LIKELIHOOD_COLUMNS = 30
# Simulations left out to choose by: so many see so many of the variants, the best so far.
LOOKS = ((12, None), (40, 15), (150, 4))
# Those that learned likelihoods, which are slower, see with the best of the others.
LIKELIHOOD_LOOK = 40
# Those by which the best is compared with itself, smoothed by the distance to neighbours.
SHARPER_LOOK = 75


def candidates(method: str, adjust: str, learner: Learner) -> list[Variant]:
    """Variants of a method."""
    adjusts: Any = ("none", *LOCAL, "location", "scale") if adjust == "auto" else (adjust,)
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
    if method in ("auto", "adjusted") and not np.any(np.ptp(learner.X, axis=0) > 0):
        return [Variant("adjusted", Recipe("data", 1.0, "none"))]  # all data are the same
    if method == "adjusted":
        return local
    # Without another prior the importance-weighted rule is nearly the conditional embedding.
    rule = "importance" if method == "auto" else method
    rules = [
        Variant(rule, Recipe("data", 1.0, a), bandwidth=b)
        for b in BANDWIDTHS
        for a in adjusts
        if a not in LOCAL
    ]
    if method in RULES:
        return rules
    columns = learner.X.shape[1] if learner.rows is None else learner.rows.shape[2]
    data = "data" if learner.rows is None else "rows"
    summaries = ("mean", data) if columns <= LIKELIHOOD_COLUMNS else ("mean",)
    likely = [Variant("likelihood", Recipe("data", 0.1, "none"), summary=s) for s in summaries]
    if method == "likelihood":
        return likely
    return local + (rules if len(learner.P) <= DENSE else []) + likely


@dataclass(frozen=True, eq=False)
class Entry:
    """A variant and its scores (m,) on left-out simulations that count as told."""

    variant: Variant
    scores: Floats
    counts: Floats | None

    @property
    def mean(self) -> float:
        """Average score."""
        return float(np.average(self.scores, weights=self.counts))

    def on(self, rows: Floats) -> Entry:
        """Scores on the last simulations only."""
        counts = None if self.counts is None else self.counts[-len(rows) :]
        return Entry(self.variant, self.scores[-len(rows) :], counts)

    @property
    def row(self) -> dict[str, Any]:
        """Row of the table that users see."""
        return {
            "variant": self.variant,
            "method": str(self.variant),
            "score": self.mean,
            "left_out": len(self.scores),
        }


def choose(
    tried: list[Variant], learner: Learner, kind: Score, rng: np.random.Generator, bar: Any
) -> tuple[list[dict[str, Any]], Learner]:
    """Table of all variants, best first by their score on left-out simulations.

    Also a learner of the others, to go on with what it chose.
    """
    contest = _Contest.of(learner, kind, rng)
    models = [v for v in tried if v.kind == "likelihood"]
    local = [v for v in tried if v.kind != "likelihood"]
    racing = [v for v in local if contest.inverse.suits(v.recipe)] or local
    bar.update(len(local) - len(racing))
    table: list[Entry] = []
    for look, best in LOOKS:
        found = []
        for variant in racing[:best]:
            found.append(contest.local(variant, contest.held[:look]))
            bar.update(best is None)
        table = _sorted(found) + table[len(found) :]
        racing = [entry.variant for entry in table]
    if table and kind == "log" and 0 < np.sum(~learner.discrete) <= LOCAL_DIMENSIONS:
        rows = contest.held[-SHARPER_LOOK:]
        plain = table[0].on(rows)
        sharper = contest.local(plain.variant, rows, NEIGHBOURS)
        if sharper.mean > plain.mean:
            table.insert(0, sharper)
    chosen = contest.train
    if models:
        table, chosen = contest.with_models(models, table)
        bar.update(len(models))
    return [entry.row for entry in table], chosen


def _sorted(entries: list[Entry]) -> list[Entry]:
    return sorted(entries, key=lambda entry: -entry.mean)


@dataclass(frozen=True, eq=False)
class _Contest:
    """Left-out simulations ``held`` (m,), and a learner of the others."""

    learner: Learner
    train: Learner
    held: Floats
    judge: Judge
    rng: np.random.Generator
    learners: dict[tuple[str, float], Learner] = field(default_factory=dict)

    @classmethod
    def of(cls, learner: Learner, kind: Score, rng: np.random.Generator) -> _Contest:
        n = len(learner.P)
        order = rng.permutation(n)
        held = order[: min(LOOKS[-1][0], max(n // 5, 5))]
        train = learner.subset(order[len(held) :])
        # What all variants need is learned once.
        train = train.fitted(Variant("adjusted", Recipe("data", 1.0, "none")), rng)
        return cls(learner, train, held, Judge(learner.discrete, *learner.support, kind), rng)

    @property
    def inverse(self) -> Inverse:
        """What was learned from the simulations that are not left out."""
        assert self.train.inverse is not None
        return self.train.inverse

    def local(self, variant: Variant, rows: Floats, neighbours: int = 0) -> Entry:
        """Scores of a variant without a likelihood, smoothed as suits it best."""
        drawn = self._fitted(variant).sample(variant, self.learner.X[rows])
        return self._smoothed(variant, drawn, rows, neighbours)

    def _fitted(self, variant: Variant) -> Learner:
        """Learner of a variant without a likelihood; rules of the same bandwidth are one."""
        key = variant.kind, variant.bandwidth
        if key not in self.learners:
            self.learners[key] = self.train.fitted(variant, self.rng)
        return self.learners[key]

    def likely(self, variant: Variant, fitted: Learner, rows: Floats) -> Entry:
        """Scores of a learned likelihood."""
        X, truth = self.learner.X[rows], self.learner.P[rows]
        iid = None if self.learner.rows is None else self.learner.rows[rows]
        if fitted.has_density and self.judge.kind == "log":
            logs = fitted.likelihood_scores(variant, X, iid, truth, self.rng)
            return Entry(variant, self.judge.floored(logs, truth), self._counts(rows))
        drawn = fitted.posterior(variant, X, iid, self.rng, quick=True)
        return self._smoothed(variant, ((points, w) for points, w, _ in drawn), rows)

    def with_models(self, models: list[Variant], table: list[Entry]) -> tuple[list[Entry], Learner]:
        """Table with learned likelihoods in it, after a contest with the best so far.

        Also the learner of the winner.
        """
        # Simulations that did not take part in the first looks, if there are enough.
        rows, others = self.held[-LIKELIHOOD_LOOK:], table
        rivals: list[tuple[Entry, Learner]] = []
        if table:
            best, others = table[0].variant, table[1:]
            near = (e.variant.recipe for e in table if e.variant.kind == "adjusted")
            start = next(near, models[0].recipe)
            models = [replace(v, recipe=start) for v in models]
            rivals.append((table[0].on(rows), self._fitted(best)))
        for variant in models:
            fitted = self.train.fitted(variant, self.rng)
            rivals.append((self.likely(variant, fitted, rows), fitted))
        rivals.sort(key=lambda rival: -rival[0].mean)
        return [entry for entry, _ in rivals] + others, rivals[0][1]

    def _smoothed(
        self, variant: Variant, drawn: Iterable[Sample], rows: Floats, neighbours: int = 0
    ) -> Entry:
        samples = ((points, _clipped(w)) for points, w in drawn)
        found = self.judge(samples, self.learner.P[rows], self.rng, neighbours)
        best = int(np.argmax(np.average(found, axis=0, weights=self._counts(rows))))
        if self.judge.kind == "log":
            variant = replace(variant, smoothing=Smoothing(SMOOTHING[best], neighbours))
        return Entry(variant, found[:, best], self._counts(rows))

    def _counts(self, rows: Floats) -> Floats | None:
        return None if self.learner.weights is None else self.learner.weights[rows]


def _clipped(weights: Floats) -> Floats:
    """Weights without the negative ones, summing to one."""
    w = np.maximum(weights, 0.0)
    total = w.sum()
    return np.asarray(w / total if total > 0 else np.full(len(w), 1.0 / len(w)))
