r"""The choice among variants, by a proper score on held-out simulations.

No variant wins everywhere: weights alone are right where the posterior has several modes, a
regression adjustment where it is unimodal in many dimensions, a learned likelihood where the noise
is simple. So some simulations are held out, each variant is asked for its posterior given their
data, and scored at their true parameters: by the logarithm of the smoothed density, or by the
energy score (negative, so that larger is better),

.. math:: -\sum_i w_i \|\theta_i - \theta\| + \tfrac12 \sum_{ij} w_i w_j \|\theta_i - \theta_j\|.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from scipy.spatial.distance import cdist

from kernelbayes.arrays import Bools, Floats, Ints
from kernelbayes.embedding.smooth import (
    LOCAL_DIMENSIONS,
    NEIGHBOURS,
    SMOOTHING,
    WIDEST,
    Sample,
    Smoothed,
    Smoothing,
    local_shares,
    log_terms,
    shrinkage,
)
from kernelbayes.likelihood_free.learn.adjust import LOCAL, Nearness, Recipe
from kernelbayes.likelihood_free.learn.importance import Learner, Likelihood, learn, uneven
from kernelbayes.likelihood_free.learn.task import DENSE, RULES, Near, Rule, Task, Variant
from kernelbayes.select.search import Trial, race
from kernelbayes.tables import Table

Criterion = Literal["log", "energy"]
# Constants without another reason were chosen on the development seeds of experiments/sbi_tasks.
# Shares of the simulations that are near; bandwidths of the rules in median distances.
SHARES = (1.0, 0.5, 0.25, 0.1, 0.05, 0.02, 0.01)
BANDWIDTHS = (0.1, 0.2, 0.5, 1.0)
# Data of more coordinates than this get no likelihood of their own, only learned summaries do.
LIKELIHOOD_COLUMNS = 30
# The stages of the race: held-out simulations scored, and how many variants advance to the stage.
LOOKS = ((12, None), (40, 15), (150, 4))
# Held-out simulations on which the best variant meets the learned likelihoods, which are slower;
# and those on which it is compared with itself, smoothed by the distance to neighbours.
LIKELIHOOD_LOOK, SHARPER_LOOK = 40, 75
# Powers of the likelihood that the winner is compared at, and left-out simulations that decide: a
# deviation is known to 1 in sqrt(2 * 100 d), a few per cent, about as much as two powers differ.
TEMPERS, TEMPER_LOOK = (1.0, 0.8, 0.65, 0.5, 0.35, 0.25, 0.15), 100
# Points of a sample that are scored, and draws that estimate the mass inside the support: they
# bound the time of a score.
JUDGED_POINTS, INSIDE_DRAWS = 700, 50
# Weight of a broad density that is mixed in where parameters are discrete, and the weight of it
# below which no log score falls: a single held-out simulation loses at most log 1e-4.
STRAY, LEAST_WEIGHT = 0.01, 1e-4


def candidates(method: str, adjust: str, task: Task) -> list[Variant]:
    """Variants of a method."""
    adjusts: Any = ("none", *LOCAL, "location", "scale") if adjust == "auto" else (adjust,)
    if np.all(task.discrete):
        adjusts = ("none",)  # discrete parameters are never moved
    near: tuple[Nearness, ...] = ("data", "mean", "moments")
    local = [
        Variant("adjusted", Recipe(n, share, a))
        for a in adjusts
        for share in SHARES
        for n in near
        if share < 1.0 or (n == "data" and a in ("location", "scale"))
    ]
    if method in ("auto", "adjusted") and not np.any(np.ptp(task.X, axis=0) > 0):
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
    columns = task.X.shape[1] if task.rows is None else task.rows.shape[2]
    data = "data" if task.rows is None else "rows"
    summaries = ("mean", data) if columns <= LIKELIHOOD_COLUMNS else ("mean",)
    likely = [Variant("likelihood", Recipe("data", 0.1, "none"), summary=s) for s in summaries]
    if method == "likelihood":
        return likely
    return local + (rules if len(task.P) <= DENSE else []) + likely


def choose(
    tried: list[Variant], task: Task, criterion: Criterion, rng: np.random.Generator, bar: Any
) -> tuple[Table, Learner]:
    """Table of all variants, best first by their loss on held-out simulations.

    Also the winner's learner of the others, whose choices are kept for the final fit.
    """
    contest = _Contest.of(task, criterion, rng)
    models = [v for v in tried if v.kind == "likelihood"]
    local = [v for v in tried if v.kind != "likelihood"]
    racing = [v for v in local if contest.basis.inverse.suits(v.recipe)] or local
    bar.update(len(local) - len(racing))

    def score(variant: Variant, look: int) -> Trial[Variant]:
        bar.update(look == LOOKS[0][0])
        return contest.local(variant, contest.held[:look])

    table = race(racing, score, [look for look, _ in LOOKS], keep=lambda i, _: LOOKS[i + 1][1])
    if table and criterion == "log" and 0 < np.sum(~task.discrete) <= LOCAL_DIMENSIONS:
        rows = contest.held[-SHARPER_LOOK:]
        plain = _last(table[0], len(rows))
        sharper = contest.local(plain.candidate, rows, NEIGHBOURS)
        if sharper.score < plain.score:
            table.insert(0, sharper)
    if models:
        table, chosen = contest.with_models(models, table)
        bar.update(len(models))
    else:
        chosen = contest.fitted(table[0].candidate)
    table[0] = contest.tempered(table[0], chosen)
    found = ((t.candidate, t.score, len(t.losses)) for t in table)
    return Table({"variant": v, "score": s, "held_out": m} for v, s, m in found), chosen


def _last(trial: Trial[Variant], m: int) -> Trial[Variant]:
    """Trial by the last m losses."""
    return Trial(trial.candidate, trial.losses[-m:], _part(trial.counts, slice(-m, None)))


def _part(counts: Floats | None, rows: Ints | slice) -> Floats | None:
    return None if counts is None else counts[rows]


@dataclass(frozen=True, eq=False)
class _Contest:
    """Held-out simulations ``held`` (m,), and what was learned from the others."""

    task: Task
    basis: Near
    held: Ints
    others: Ints
    judge: Judge
    rng: np.random.Generator
    learners: dict[tuple[str, float], Near] = field(default_factory=dict)

    @classmethod
    def of(cls, task: Task, criterion: Criterion, rng: np.random.Generator) -> _Contest:
        n = len(task.P)
        order = rng.permutation(n)
        held = order[: min(LOOKS[-1][0], max(n // 5, 5))]
        train = task.subset(order[len(held) :])
        basis = Near(train, train.inverse(rng), Variant("adjusted", Recipe("data", 1.0, "none")))
        judge = Judge(task.discrete, *task.support, criterion)
        return cls(task, basis, held, order[len(held) :], judge, rng)

    def local(self, variant: Variant, rows: Ints, neighbours: int = 0) -> Trial[Variant]:
        """Losses of a variant without a likelihood, smoothed as suits it best."""
        drawn = self.fitted(variant).sample(self.task.X[rows])
        return self._smoothed(variant, drawn, rows, neighbours)

    def fitted(self, variant: Variant) -> Near:
        """Learner of a variant without a likelihood; rules of the same bandwidth share one fit."""
        if variant.kind not in RULES:
            return replace(self.basis, variant=variant)
        key = variant.kind, variant.bandwidth
        if key not in self.learners:
            self.learners[key] = Rule.fit(self.basis.task, self.basis.inverse, variant, self.rng)
        return replace(self.learners[key], variant=variant)

    def likely(self, fitted: Likelihood, rows: Ints) -> Trial[Variant]:
        """Losses of a learned likelihood."""
        if self._direct(fitted):
            losses = -self._powers(fitted, rows, (1.0,))[:, 0]
            return Trial(fitted.variant, losses, _part(self.task.weights, rows))
        drawn = fitted.posterior(self.task.subset(rows), self.rng, quick=True)
        return self._smoothed(fitted.variant, ((points, w) for points, w, _ in drawn), rows)

    def tempered(self, trial: Trial[Variant], learner: Learner) -> Trial[Variant]:
        """Winner with the temper of the highest score; if few are held out, others are in turn."""
        rows = self.held[-TEMPER_LOOK:]
        folds = [(replace(learner, variant=trial.candidate), rows)]
        most = min(TEMPER_LOOK - len(rows), len(self.others))
        for k in range(0, most, len(rows)):
            left = self.others[k : k + len(rows)]
            rest = self.task.subset(np.setdiff1d(np.arange(len(self.task.P)), left))
            folds.append((learn(rest, trial.candidate, self.rng, like=learner), left))
        scores = np.vstack([self._by_temper(fitted, left) for fitted, left in folds])
        counts = _part(self.task.weights, np.concatenate([left for _, left in folds]))
        drawn = isinstance(learner, Likelihood) and not self._direct(learner)
        loss = uneven(scores, counts) if drawn else -np.average(scores, axis=0, weights=counts)
        best = int(np.argmin(loss))
        found = trial if drawn else Trial(trial.candidate, -scores[:, best], counts)
        return replace(found, candidate=replace(trial.candidate, temper=TEMPERS[best]))

    def _by_temper(self, fitted: Learner, rows: Ints) -> Floats:
        """Scores (m, len(TEMPERS)) of a variant; ranks if only draws score it (wide ones do)."""
        data, truth = self.task.subset(rows), self.task.P[rows]
        if isinstance(fitted, Likelihood):
            if self._direct(fitted):
                return self._powers(fitted, rows, TEMPERS)
            return fitted.ranks(data, truth, self.rng, np.array(TEMPERS))
        found = np.full((len(rows), len(TEMPERS)), -np.inf)
        how = fitted.variant.smoothing or Smoothing(SMOOTHING[0])  # energy scores: any will do
        for k, temper in enumerate(TEMPERS):
            other = replace(fitted, variant=replace(fitted.variant, temper=temper))
            sample = ((points, w) for points, w, _ in other.posterior(data, self.rng))
            judged = self.judge(sample, truth, self.rng, how.neighbours)
            found[:, k] = judged[:, SMOOTHING.index(how.h)]
            if len(rows) == TEMPER_LOOK and k and found[:, k].mean() < found[:, k - 1].mean():
                break  # with so many simulations it is clear that more is worse
        return found

    def _direct(self, fitted: Learner) -> bool:
        """Whether the density of a learned likelihood's posterior is known but for its integral."""
        return fitted.task.has_density and self.judge.criterion == "log"

    def _powers(self, fitted: Likelihood, rows: Ints, powers: tuple[float, ...]) -> Floats:
        """Log scores (m, T) of powers of a learned likelihood."""
        data, truth = self.task.subset(rows), self.task.P[rows]
        scores = fitted.scores(data, truth, self.rng, np.array(powers))
        return np.stack([self.judge.floored(s, truth) for s in scores.T], axis=1)

    def with_models(
        self, models: list[Variant], table: list[Trial[Variant]]
    ) -> tuple[list[Trial[Variant]], Learner]:
        """Table with learned likelihoods in it, after a contest with the best so far.

        Also the learner of the winner.
        """
        # Simulations that did not take part in the first looks, if there are enough.
        rows, others = self.held[-LIKELIHOOD_LOOK:], table
        rivals: list[tuple[Trial[Variant], Learner]] = []
        if table:
            best, others = table[0], table[1:]
            near = (t.candidate.recipe for t in table if t.candidate.kind == "adjusted")
            start = next(near, models[0].recipe)
            models = [replace(v, recipe=start) for v in models]
            rivals.append((_last(best, len(rows)), self.fitted(best.candidate)))
        for variant in models:
            fitted = Likelihood.fit(self.basis.task, self.basis.inverse, variant, self.rng)
            rivals.append((self.likely(fitted, rows), fitted))
        rivals.sort(key=lambda rival: rival[0].score)
        return [trial for trial, _ in rivals] + others, rivals[0][1]

    def _smoothed(
        self, variant: Variant, drawn: Iterable[Sample], rows: Ints, neighbours: int = 0
    ) -> Trial[Variant]:
        found = self.judge(drawn, self.task.P[rows], self.rng, neighbours)
        counts = _part(self.task.weights, rows)
        best = int(np.argmax(np.average(found, axis=0, weights=counts)))
        if self.judge.criterion == "log":
            variant = replace(variant, smoothing=Smoothing(SMOOTHING[best], neighbours))
        return Trial(variant, -found[:, best], counts)


@dataclass(frozen=True, eq=False)
class Judge:
    """Scores samples at held-out parameters.

    ``low`` and ``high`` (d,) are the ends of the prior's support in the samples' coordinates:
    densities are those of the smoothed sample restricted to it.
    """

    discrete: Bools
    low: Floats
    high: Floats
    criterion: Criterion = "log"

    def __call__(
        self,
        samples: Iterable[Sample],
        truths: Floats,
        rng: np.random.Generator,
        neighbours: int = 0,
    ) -> Floats:
        """Scores (m, len(SMOOTHING)) of m samples at the truths (m, d)."""
        rows = []
        for (points, weights), truth in zip(samples, truths, strict=True):
            points, weights = points[weights > 0], weights[weights > 0]
            if len(points) > JUDGED_POINTS:  # the heaviest, ties broken at random
                untied = -weights * rng.uniform(0.999, 1.0, len(weights))
                some = np.argpartition(untied, JUDGED_POINTS)[:JUDGED_POINTS]
                points, weights = points[some], weights[some] / weights[some].sum()
            if self.criterion == "energy":
                rows.append(np.full(len(SMOOTHING), _energy(points, weights, truth)))
            else:
                rows.append(self._logs(points, weights, truth, rng, neighbours))
        return np.stack(rows)

    def _logs(
        self,
        points: Floats,
        weights: Floats,
        truth: Floats,
        rng: np.random.Generator,
        neighbours: int,
    ) -> Floats:
        smooth = Smoothed(points, weights, 0.5, self.discrete)
        same = np.all(points[:, self.discrete] == truth[self.discrete], axis=1)
        if not np.any(same):
            return np.full(len(SMOOTHING), np.log(STRAY) + self._anywhere(truth))
        Z, z = smooth.whitened, smooth.whiten(truth[None, ~self.discrete])[0]
        h = np.asarray(SMOOTHING)[:, None]
        if neighbours:
            h = np.minimum(h * local_shares(Z, Smoothing(1.0, neighbours), np.inf), WIDEST)
        a = shrinkage(h, weights)[:, None]
        squares = a**2 * np.sum(Z * Z, axis=1)  # of all smoothings at once
        terms = log_terms(-2.0 * a * (Z @ z), z @ z, squares, h, np.log(weights), Z.shape[1])
        terms = np.where(same, terms, -np.inf)
        top = terms.max(axis=1)
        logs = top + np.log(np.exp(terms - top[:, None]).sum(axis=1)) - smooth.log_volume
        logs -= self._log_inside(smooth, h, rng)
        if np.any(self.discrete):  # a value that no point has is rare, not impossible
            logs = np.logaddexp(np.log1p(-STRAY) + logs, np.log(STRAY) + self._anywhere(truth))
        return self.floored(np.asarray(logs), truth)

    def floored(self, logs: Floats, truths: Floats) -> Floats:
        """Log scores (m,) at truths (m, d) or (d,), none less than a density everywhere has."""
        return np.asarray(np.maximum(logs, np.log(LEAST_WEIGHT) + self._anywhere(truths)))

    def _anywhere(self, truths: Floats) -> Floats:
        """Log of a broad density: standard normal, and one tenth for each discrete value."""
        Z = truths[..., ~self.discrete]
        return np.asarray(-0.5 * np.sum(Z**2 + np.log(2.0 * np.pi), axis=-1) - np.log(10.0))

    def _log_inside(self, smooth: Smoothed, h: Floats, rng: np.random.Generator) -> Floats | float:
        """Log share of the smoothed sample within the support, for each smoothing."""
        low, high = self.low[~self.discrete], self.high[~self.discrete]
        if not np.any(np.isfinite(low) | np.isfinite(high)):
            return 0.0
        rows = rng.choice(len(smooth.weights), size=INSIDE_DRAWS, p=smooth.weights)
        a = shrinkage(h, smooth.weights)[:, None, None]
        h = np.broadcast_to(h, (len(h), len(smooth.weights)))[:, rows, None]
        z = a * smooth.whitened[rows]
        drawn = smooth.mean + (z + h * rng.normal(size=z.shape[1:])) @ smooth.factor.T
        inside = np.mean(np.all((drawn >= low) & (drawn <= high), axis=2), axis=1)
        return np.asarray(np.log(np.maximum(inside, 1.0 / INSIDE_DRAWS)))


def _energy(points: Floats, weights: Floats, truth: Floats) -> float:
    away = np.linalg.norm(points - truth, axis=1)
    return float(0.5 * weights @ cdist(points, points) @ weights - weights @ away)
