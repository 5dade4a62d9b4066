r"""The choice among variants, by a proper score on held-out simulations.

Each variant is asked for its posterior given their data, and scored at their true parameters
(:class:`~kernelbayes.likelihood_free.learn.judge.Judge`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from kernelbayes.embedding.smooth import SMOOTHING, Smoothing
from kernelbayes.likelihood_free.learn.adjust import Inverse, Nearness, Recipe
from kernelbayes.likelihood_free.learn.importance import NEAR, Learner, Likelihood
from kernelbayes.likelihood_free.learn.judge import Criterion, Judge, uneven
from kernelbayes.likelihood_free.learn.nearby import near_count
from kernelbayes.likelihood_free.learn.task import RULES, Near, Rule, Task, Variant
from kernelbayes.select.search import Trial, race
from kernelbayes.tables import Table
from kernelbayes.types import Floats, Ints

# Constants without another reason were chosen on the development seeds of experiments/sbi_tasks.
# Shares of the simulations that are near; bandwidths of the rules in median distances.
SHARES = (0.5, 0.25, 0.1, 0.05, 0.02)
BANDWIDTHS = (0.1, 0.2, 0.5, 1.0)
# Data of more coordinates than this get no likelihood of their own, only learned summaries do.
LIKELIHOOD_COLUMNS = 30
# The stages of the race: held-out simulations scored, and how many variants advance to the stage.
LOOKS = ((8, None), (40, 6), (150, 2))
# The best variant is compared with itself, widened by these powers of the likelihood, on so many
# held-out simulations: a deviation is known to 1 in sqrt(2 * 100 d), a few per cent.
WIDENED, LAST_LOOK = (1.0, 0.8, 0.65, 0.5, 0.35, 0.25, 0.15), 100
# Powers of a learned likelihood, which may be narrowed too, one after the other 5 % apart: with ten
# parameters a step moves half of the mass by 4 in 100, about the error of a hundred ranks.
TEMPERS = (1.0, *(round(1.05**k, 3) for k in range(-38, 13) if k))
# It meets the learned likelihoods, which are slower, on the last of these, in stages too. After the
# first a likelihood that is behind by this many standard errors stops.
LIKELIHOOD_LOOKS, FAR_BEHIND = (15, 40), 2.0
# So many of all that are within a standard error of the best are tempered too, and meet on as many
# simulations as that takes: 20 or 40 do not tell them apart.
LAST_VARIANTS = 3


def candidates(method: str, adjust: str, task: Task) -> list[Variant]:
    """Variants of a method."""
    if method in ("auto", "adjusted") and not np.any(np.ptp(task.X, axis=0) > 0):
        return [Variant("adjusted", Recipe("data", 1.0, "none"))]  # all data are the same
    everywhere, local = ("location", "scale"), ("linear", "scale")
    adjusts: Any = ("none", *(everywhere if method in RULES else local))
    adjusts = adjusts if adjust == "auto" else (adjust,)
    if np.all(task.discrete):
        adjusts = ("none",)  # discrete parameters are never moved
    on_all = [Recipe("data", 1.0, a) for a in adjusts if method in RULES or a in everywhere]
    if method in RULES:
        return [Variant(method, recipe, bandwidth=b) for b in BANDWIDTHS for recipe in on_all]
    near: tuple[Nearness, ...] = ("data", "moments")
    recipes = [Recipe(n, share, a) for a in adjusts for share in SHARES for n in near]
    adjusted = [Variant("adjusted", recipe) for recipe in (*recipes, *on_all)]
    if method == "adjusted":
        return adjusted
    columns = task.X.shape[1] if task.rows is None else task.rows.shape[2]
    data = "data" if task.rows is None else "rows"
    # Of iid rows and of many columns a mean of the parameters is a good summary too.
    summaries: tuple[str, ...] = (data,) if columns <= LIKELIHOOD_COLUMNS else ()
    if task.rows is not None or not summaries:
        summaries = ("mean", *summaries)
    near_enough = 4 * near_count(*task.P.shape) <= len(task.P)  # a quarter of all is not near
    if task.continuous and near_enough and task.X.shape[1] <= LIKELIHOOD_COLUMNS:
        summaries = (*summaries, NEAR)
    likely = [Variant("likelihood", Recipe("data", 0.1, "none"), summary=s) for s in summaries]
    if method == "likelihood":
        return likely
    return adjusted + likely


def choose(
    tried: list[Variant], task: Task, criterion: Criterion, rng: np.random.Generator, bar: Any
) -> tuple[Table, Learner]:
    """Table of all variants, best first by their loss on held-out simulations.

    Also the winner's learner of the others, whose choices are kept for the final fit.
    """
    contest = _Contest.of(task, criterion, rng)
    models = [v for v in tried if v.kind == "likelihood"]
    local = [v for v in tried if v.kind != "likelihood"]

    def score(variant: Variant, look: int) -> Trial[Variant]:
        bar.update(look == LOOKS[0][0])
        return contest.local(variant, look)

    table = race(local, score, [look for look, _ in LOOKS], keep=lambda i, _: LOOKS[i + 1][1])
    table = contest.with_models(models, table) if models else table
    bar.update(len(models))
    finals = [t for t in table if contest.undecided(t, table[0])][:LAST_VARIANTS] or table[:1]
    ends = [contest.tempered(t, contest.fitted(t.candidate)) for t in finals]
    best = int(np.argmin([t.score for t in ends]))
    chosen = contest.fitted(finals[best].candidate)
    if isinstance(chosen, Likelihood) and len(contest.held) > LAST_LOOK:  # its temper, finer
        ends[best] = contest.tempered(finals[best], chosen, len(contest.held))
    table = [ends[best], *(t for t in table if t is not finals[best])]
    found = ((t.candidate, t.score, len(t.losses)) for t in table)
    return Table({"variant": v, "score": s, "held_out": m} for v, s, m in found), chosen


def learn(
    task: Task,
    variant: Variant,
    rng: np.random.Generator,
    like: Learner | None = None,
    inverse: Inverse | None = None,
) -> Learner:
    """Learner of a variant; what ``like`` has chosen, from fewer simulations, is kept."""
    inverse = inverse or task.inverse(rng, None if like is None else like.inverse)
    if variant.kind == "likelihood":
        before = like.forward if isinstance(like, Likelihood) else None
        return Likelihood.fit(task, inverse, variant, rng, before)
    if variant.kind in RULES:
        return Rule.fit(task, inverse, variant, rng)
    return Near(task, inverse, variant)


def _last(trial: Trial[Variant], m: int) -> Trial[Variant]:
    """Trial by the last m losses."""
    return Trial(trial.candidate, trial.losses[-m:], _part(trial.counts, slice(-m, None)))


def _part(counts: Floats | None, rows: Ints | slice) -> Floats | None:
    return None if counts is None else counts[rows]


def _even(scores: Floats, ranks: Floats, counts: Floats | None) -> int:
    """Temper whose ranks (m, T) are most uniform, of those with nearly the highest scores (m, T).

    Nearly: the mean difference is within its standard error. Scores may be unknown, NaN.
    """
    gaps = scores[:, [np.argmax(np.average(scores, axis=0, weights=counts))]] - scores
    behind = np.average(gaps, axis=0, weights=counts)
    close = ~(behind > gaps.std(axis=0) / np.sqrt(len(gaps)))
    return int(np.argmin(np.where(close, uneven(ranks, counts), np.inf)))


@dataclass(frozen=True, eq=False)
class _Contest:
    """Held-out simulations ``held`` (m,), what was learned from the others, scores so far."""

    task: Task
    basis: Near
    held: Ints
    others: Ints
    judge: Judge
    rng: np.random.Generator
    learners: dict[tuple[str, float | str], Learner] = field(default_factory=dict)
    scores: dict[Variant, Floats] = field(default_factory=dict)

    @classmethod
    def of(cls, task: Task, criterion: Criterion, rng: np.random.Generator) -> _Contest:
        n = len(task.P)
        order = rng.permutation(n)
        held = order[: min(LOOKS[-1][0], max(n // 5, 5))]
        train = task.subset(order[len(held) :])
        basis = Near(train, train.inverse(rng), Variant("adjusted", Recipe("data", 1.0, "none")))
        judge = Judge(task.discrete, *task.support, criterion)
        return cls(task, basis, held, order[len(held) :], judge, rng)

    def local(self, variant: Variant, look: int) -> Trial[Variant]:
        """Losses of a variant without a likelihood, smoothed as suits it best."""
        plain, rows = replace(variant, smoothing=None), self.held[:look]
        return self._best(plain, self._added(plain, rows, partial(self._judged, plain)), rows)

    def _added(self, variant: Variant, rows: Ints, score: Callable[[Ints], Floats]) -> Floats:
        """Scores of a variant for all rows, of which the first may be known."""
        before = self.scores.get(variant)
        if before is None:
            self.scores[variant] = score(rows)
        elif len(before) < len(rows):
            self.scores[variant] = np.vstack([before, score(rows[len(before) :])])
        return self.scores[variant]

    def fitted(self, variant: Variant) -> Learner:
        """Learner of a variant; rules of the same bandwidth share one fit, as do likelihoods."""
        rule = variant.kind in RULES
        key = variant.kind, variant.bandwidth if rule else variant.summary
        if key not in self.learners:
            # A likelihood for each observation has the mean of the one for all.
            like = self.learners.get(("likelihood", "data")) if key[1] == NEAR else None
            self.learners[key] = learn(self.basis.task, variant, self.rng, like, self.basis.inverse)
        return replace(self.learners[key], variant=variant)

    def with_models(
        self, models: list[Variant], table: list[Trial[Variant]]
    ) -> list[Trial[Variant]]:
        """Table with learned likelihoods in it, after a contest with the best so far."""
        # Simulations that did not take part in the first looks, if there are enough.
        rows = self.held[-LIKELIHOOD_LOOKS[-1] :]
        near = [t.candidate.recipe for t in table if t.candidate.kind == "adjusted"]
        models = [replace(v, recipe=near[0]) for v in models] if near else models
        leader = _last(table[0], len(rows)) if table else None
        trials = race(
            models, lambda v, look: self._likely(v, rows[:look]), LIKELIHOOD_LOOKS,
            leader=leader, give_up=FAR_BEHIND,
        )  # fmt: skip
        return [table[0] if t is leader else t for t in trials] + table[1:]

    def undecided(self, trial: Trial[Variant], best: Trial[Variant]) -> bool:
        """Whether a variant was not given up and may be better than the best so far."""
        m = min(LIKELIHOOD_LOOKS[-1], len(self.held))
        last = m if trial.candidate.kind == "likelihood" else min(LAST_LOOK, len(self.held))
        behind, error = _last(trial, m).behind(_last(best, m))
        return len(trial.losses) >= last and behind <= error

    def _likely(self, variant: Variant, rows: Ints) -> Trial[Variant]:
        """Losses of a learned likelihood."""
        fitted = self.fitted(plain := replace(variant, smoothing=None))
        assert isinstance(fitted, Likelihood)
        if self._direct(fitted):
            found = self._added(plain, rows, partial(self._powers, fitted))
            return Trial(plain, -found[:, 0], _part(self.task.weights, rows))
        return self._best(plain, self._added(plain, rows, partial(self._drawn, fitted)), rows)

    def _drawn(self, fitted: Likelihood, rows: Ints) -> Floats:
        """Scores (m, len(SMOOTHING)) of a learned likelihood, by draws."""
        drawn = fitted.posterior(self.task.subset(rows), self.rng, quick=True)
        return self.judge(((p, w) for p, w, _ in drawn), self.task.P[rows], self.rng)

    def tempered(
        self, trial: Trial[Variant], learner: Learner, look: int = LAST_LOOK
    ) -> Trial[Variant]:
        """Winner with the temper of the highest score; if few are held out, others are in turn."""
        rows = self.held[-look:]
        folds = [(replace(learner, variant=trial.candidate), rows)]
        most = min(LAST_LOOK - len(rows), len(self.others))
        for k in range(0, most, len(rows)):
            left = self.others[k : k + len(rows)]
            rest = self.task.subset(np.setdiff1d(np.arange(len(self.task.P)), left))
            # Nothing is kept of what was learned from all others, these among them.
            folds.append((learn(rest, trial.candidate, self.rng), left))
        known: Floats | None = -_last(trial, len(rows)).losses[:, None]
        if isinstance(learner, Likelihood):
            known = self.scores[trial.candidate] if self._direct(learner) else None
        first = self._by_temper(*folds[0], known)
        if known is not None and isinstance(learner, Likelihood):
            self.scores[trial.candidate] = first
        found = np.vstack([first, *(self._by_temper(*fold) for fold in folds[1:])])
        counts = _part(self.task.weights, np.concatenate([left for _, left in folds]))
        powers = TEMPERS if isinstance(learner, Likelihood) else WIDENED
        scores, ranks = found[:, : len(powers)], found[:, len(powers) :]
        highest = int(np.argmax(np.average(scores, axis=0, weights=counts)))
        best = _even(scores, ranks, counts) if ranks.size else highest
        temper = replace(trial.candidate, temper=powers[best])
        if np.isfinite(scores[:, best]).all():
            return Trial(temper, -scores[:, best], counts)
        return replace(trial, candidate=temper)

    def _by_temper(self, fitted: Learner, rows: Ints, known: Floats | None = None) -> Floats:
        """Scores (m, T) of a variant, tempered; beside them the ranks of a likelihood.

        Those of the last rows, or all for the first temper, may be known.
        """
        data, truth = self.task.subset(rows), self.task.P[rows]
        if isinstance(fitted, Likelihood):
            fresh = rows if known is None else rows[: max(len(rows) - len(known), 0)]
            found = self._powers(fitted, fresh)
            return found if known is None else np.vstack([found, known])
        found = np.full((len(rows), len(WIDENED)), -np.inf)
        how = fitted.variant.smoothing or Smoothing(SMOOTHING[0])  # energy scores: any will do
        for k, temper in enumerate(WIDENED):
            if k == 0 and known is not None:
                found[:, 0] = known[:, 0]
                continue
            other = replace(fitted, variant=replace(fitted.variant, temper=temper))
            judged = self.judge(other.sample(data.X), truth, self.rng)
            found[:, k] = judged[:, SMOOTHING.index(how.h)]
            if len(rows) == LAST_LOOK and k and found[:, k].mean() < found[:, k - 1].mean():
                break  # with so many simulations it is clear that more is worse
        return found

    def _direct(self, fitted: Learner) -> bool:
        """Whether the density of a learned likelihood's posterior is known but for its integral."""
        return fitted.task.has_density and self.judge.criterion == "log"

    def _powers(self, fitted: Likelihood, rows: Ints) -> Floats:
        """Log scores and ranks (m, 2 len(TEMPERS)) of powers of a learned likelihood."""
        if not len(rows):
            return np.empty((0, 2 * len(TEMPERS)))
        data, truth = self.task.subset(rows), self.task.P[rows]
        scores, ranks = fitted.scores(data, truth, self.rng, np.array(TEMPERS))
        if not self._direct(fitted):
            scores = np.full(ranks.shape, np.nan)  # of no use for the other criterion
        return np.column_stack([*(self.judge.floored(s, truth) for s in scores.T), ranks])

    def _judged(self, variant: Variant, rows: Ints) -> Floats:
        learner = self.fitted(variant)
        assert isinstance(learner, Near)
        return self.judge(learner.sample(self.task.X[rows]), self.task.P[rows], self.rng)

    def _best(self, variant: Variant, found: Floats, rows: Ints) -> Trial[Variant]:
        """Trial of the best smoothing by scores (m, len(SMOOTHING))."""
        counts = _part(self.task.weights, rows)
        best = int(np.argmax(np.average(found, axis=0, weights=counts)))
        if self.judge.criterion == "log":
            variant = replace(variant, smoothing=Smoothing(SMOOTHING[best]))
        return Trial(variant, -found[:, best], counts)
