r"""Tuning a filter by filtering what it has not learned from.

The training sequences are cut into parts (two halves, KBR13 section 5.3, or blocks of sequences in
the order given, since neighbours in time are alike). A candidate learns from all parts but one and
filters the one held out, in turn; the mean loss over all steps is its score. Candidates race: one
that is clearly worse than the best so far is given up (:mod:`kernelbayes.filters.choose.racing`).

1. A few starts race, the default's choice among them. What is set on the model is kept in all.
2. The best races a copy of itself with a bandwidth for each column of x
   (:mod:`kernelbayes.filters.choose.choices`).
3. From the best, one number is moved at a time for as long as that helps.
4. Other kernels on x race the Gaussian one from there (:func:`rivals`), and so do ``candidates``:
   kernels, or features (:class:`~kernelbayes.NeuralFeatures`), which are learned anew without each
   part. One is taken if it is better by more than a standard error.
5. Moves go on from there, in smaller and smaller steps.
6. The candidates within a standard error of the best are averaged: which of them is best is
   chance, and their middle varies less. If that is no better than the default by a standard error
   of means over stretches, the default is kept.

A Monte Carlo filter may be given pairs that are not a sequence. If consecutive states do not follow
each other by its transition, held-out pairs are met along walks of the transition instead
(:mod:`kernelbayes.filters.choose.walks`).

Losses: ``"error"`` (squared error of the mean; for states that are not vectors, the squared RKHS
distance to the truth), or a function ``(beliefs, Z) -> array (T,)``.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from sklearn.base import clone

from kernelbayes.arrays import as_vectors, to_numpy, warn
from kernelbayes.filters.bayes import KernelBayesFilter
from kernelbayes.filters.choose.choices import per_dimension
from kernelbayes.filters.choose.final import clearly_ahead
from kernelbayes.filters.choose.holdout import Loss, cut, judge_of, learn
from kernelbayes.filters.choose.options import PLAIN, can_track
from kernelbayes.filters.choose.racing import Arguments, Entry, Races, clearly_better
from kernelbayes.filters.choose.walks import in_order, walked
from kernelbayes.filters.encode.encoder import ESTIMATES
from kernelbayes.filters.loop import Filter
from kernelbayes.filters.missing import split_missing
from kernelbayes.filters.montecarlo import KernelMonteCarloFilter
from kernelbayes.filters.sequences import Part
from kernelbayes.kernels import Kernel, Laplace, Polynomial, RationalQuadratic, Warped
from kernelbayes.kernels.default import default_kernel
from kernelbayes.kernels.radial import median_distance
from kernelbayes.learned import NeuralFeatures
from kernelbayes.points import concatenate, count, finite, take
from kernelbayes.select.search import progress_bar
from kernelbayes.select.tuning import tune, with_options
from kernelbayes.types import Bools, Points, PointsLike, Rng

# Starts that race: bandwidths of x and z in medians, ridge of Bayes' rule, of prior and transition.
# Chosen by hand to lie far apart: the moves that follow go on from the best of them.
STARTS = (
    (0.7, 0.35, 0.03, 1e-5),
    (0.35, 0.15, 0.1, 1e-5),
    (1.0, 1.0, 0.01, 1e-4),
    (0.35, 0.35, 0.03, 1e-4),
    (0.7, 0.15, 0.03, 1e-5),
    (0.35, 0.15, 0.01, 1e-3),
)
# Factors of one move: half a decade and an octave, of about the same effect. Their logarithms are
# halved when no move helps, until that of a bandwidth is below LAST, which hardly changes a belief.
MOVES = {"ridge": 10.0**0.5, "x": 2.0, "z": 2.0, "prior": 10.0}
LAST = 1.2
TOGETHER = {"prior": ("prior", "transition")}  # ridges that move as one
# Multiples of the best ridge that kernels of another kind are tried with: their eigenvalues decay
# faster or more slowly than those of the kernels that it was chosen for.
OTHER_RIDGES = (1.0, 0.1, 0.01)
# Share of the budget after which other kernels are tried, even if moves still help: what is left
# pays for a race of all of them and some moves of the winner. The share is a judgement.
BEFORE_KERNELS = 0.6


@tune.register(KernelBayesFilter)
@tune.register(KernelMonteCarloFilter)
@with_options
def tune_filter(
    model: Filter,
    X: PointsLike,
    Z: PointsLike,
    controls: PointsLike = None,
    *,
    loss: Loss = "error",
    parts: int = 2,
    budget: float = 40,
    candidates: Sequence[Kernel | NeuralFeatures] = (),
    rng: Rng = None,
    progress: bool | None = None,
) -> Filter:
    """Bandwidths and ridges of a filter, by filtering held-out parts of the training sequences.

    ``budget`` counts passes over the held-out parts; a candidate given up early costs its share.
    ``candidates`` are kernels on x to try beside the others, or features to learn.
    """
    if finite(budget, "budget") < 1:
        raise ValueError(f"budget must be at least 1, got {budget}")
    groups = cut(X, Z, controls, parts, model)
    states = _joined([s for group in groups for s in group])[2]
    judge = judge_of(loss, model.kernel_z or default_kernel(states, "Z"))
    search = _Search(model, groups, judge, budget=budget, candidates=_checked(candidates))
    extra: Arguments = {"rng": rng} if model.rng is None else {}
    if getattr(model, "intervals", "") == "auto":  # a fit that has nothing to choose has no blocks
        extra["intervals"] = "calibrated"
    if isinstance(model, KernelBayesFilter):
        search.default = clone(model).set_params(**extra).fit(X, Z, controls)
    with progress_bar(math.ceil(budget), "tuning", progress) as search.bar:
        best = search.run()
    if not math.isfinite(best.score):
        warn(
            "no candidate has finite losses at all steps, so nothing could be chosen by them; is "
            "the loss NaN somewhere?"
        )
    chosen = search.parameters(best.candidate.at) | extra
    tuned: Filter
    if search.default is not None and search.kept:
        tuned = search.default.set_params(**chosen)
    else:
        tuned = clone(model).set_params(**chosen).fit(X, Z, controls)
    tuned.tuning_, tuned.tuning_stopped_ = search.table, search.improving
    return tuned


@dataclass(eq=False)
class _Search(Races):
    """Where to look next."""

    budget: float = 40.0
    candidates: tuple[Kernel | NeuralFeatures, ...] = ()
    improving: bool = field(init=False, default=False)  # when the budget was spent
    default: KernelBayesFilter | None = field(init=False, default=None)  # what a fit chooses
    kept: bool = field(init=False, default=False)  # whether nothing clearly better was found

    def __post_init__(self) -> None:
        self.X, _, self.Z = _joined(self.every)
        if isinstance(self.model, KernelMonteCarloFilter):
            pilot: KernelMonteCarloFilter = self.blank({})
            learn(pilot, self.every)
            if not in_order(pilot, self.every):  # pairs: they are met along the transition
                self.met = {i: walked(pilot, self.groups[i]) for i in self.held_out}

    def run(self) -> Entry:
        """Best setting within the budget."""
        first, *others = (self.enter(base) for base in self._starts())
        default = best = self.race([first])
        some = max(0, int(self.budget / 2.0) - 1)  # each costs a pass at most
        best = self.race(others[:some], best)
        free = self.model.kernel_x is None and self._gaussian(best) is not None
        if free and self.spent + 1.0 <= self.budget:
            best = self._challenged(best, *self._per_dimension(best))
        best = self._descend(best, MOVES, BEFORE_KERNELS * self.budget)
        if free:
            best = self._challenged(best, *self._rivals(best, int(self.budget / 4.0)))
        plain = {n: PLAIN[n] for n in ("lags", "features") if getattr(self.model, n, 0) == "auto"}
        for candidate in self.candidates:  # on single observations, unless told otherwise
            best = self._challenged(best, *self._candidate(candidate), OTHER_RIDGES, plain)
        step = MOVES  # what was tried before costs nothing
        while step["x"] > LAST and self.spent + 2.0 <= self.budget:
            best = self._descend(best, step, self.budget - 1.0)
            step = {name: factor**0.5 for name, factor in step.items()}
        self.improving = self.improving and step["x"] > LAST
        chosen = self.middle(best, affordable=self.spent + 1.0 <= self.budget)
        chosen = chosen if chosen.score <= default.score else best
        self.kept = not clearly_ahead(chosen, default, share=0.0)
        chosen = default if self.kept else chosen
        chosen.candidate.row["chosen"] = True
        return chosen

    def _starts(self) -> list[Arguments]:
        """List what the filter chooses by default, and others; what is set on it is kept."""
        model = self.model
        if self.default is not None:
            choice = self.default.choice_
            found = [{**one, "rank": model.rank} for one in (choice.arguments, *choice.others)]
            tracked = [one["features"] == "tracked" for one in found]
            if not any(tracked) or all(tracked) or can_track(self):
                return found
            self.default = None if tracked[0] else self.default
            return [one for one, uses in zip(found, tracked, strict=True) if not uses]
        kernel_x, kernel_z = model.kernel_x, model.kernel_z
        kernels = {"kernel_x": kernel_x or default_kernel(self.X)}
        kernels["kernel_z"] = kernel_z or default_kernel(self.Z, "Z").scaled(0.5)
        first: Arguments = kernels | {"ridge": model.ridge, "prior_ridge": model.prior_ridge}
        if "loo" in first.values():
            pilot = self.blank(kernels)
            learn(pilot, self.every)
            first |= {"ridge": pilot.ridge_, "prior_ridge": pilot.prior_ridge_}
        square = 2 if model.method == "original" else 1  # its ridge is on the scale of squares
        others = [
            first
            | ({"kernel_x": default_kernel(self.X).scaled(x)} if kernel_x is None else {})
            | ({"kernel_z": default_kernel(self.Z, "Z").scaled(z)} if kernel_z is None else {})
            | ({"ridge": ridge**square} if model.ridge == "loo" else {})
            | ({"prior_ridge": prior} if model.prior_ridge == "loo" else {})
            for x, z, ridge, prior in STARTS
        ]
        return [first, *(other for other in others if other != first)]

    def _gaussian(self, best: Entry) -> Kernel | None:
        """Return the kernel on observations, if it is a Gaussian one."""
        at = self.parameters(best.candidate.at)
        kernel: Kernel = at["kernel_x"]
        estimates = at.get("features") in ESTIMATES  # then it is on those
        return None if estimates or kernel.gaussian_bandwidth is None else kernel

    def _per_dimension(self, best: Entry) -> tuple[list[Kernel], dict[int, list[Kernel]]]:
        """List the kernel with learned bandwidths, if there is one, and those without each part."""
        at = self.parameters(best.candidate.at)
        width = _multiple(self.X, at["kernel_x"])

        def learned(sequences: list[Part]) -> Kernel | None:
            X, known, Z = _joined(sequences)
            found = per_dimension(X, Z, at["kernel_z"], known)
            return None if found is None else found.scaled(width)

        kernel = learned(self.every)
        if kernel is None:
            return [], {}
        # Scores on a part that bandwidths were learned from would be too good.
        parts = {i: learned(self.without(i)) or at["kernel_x"] for i in self.held_out}
        return [kernel], {i: [found] for i, found in parts.items()}

    def _rivals(self, best: Entry, most: int) -> tuple[list[Kernel], dict[int, list[Kernel]]]:
        """List other kernels on observations, and those without each part if they are learned."""
        at = best.candidate.at
        learned = {i: self.parameters(at, i)["kernel_x"] for i in self.apart.get(at.base, {})}
        kernel = self._gaussian(best)
        if kernel is None:
            return [], {}
        others = {i: rivals(self.X, found)[:most] for i, found in learned.items()}
        return rivals(self.X, kernel)[:most], others

    def _candidate(
        self, candidate: Kernel | NeuralFeatures
    ) -> tuple[list[Kernel], dict[int, list[Kernel]]]:
        """List a kernel that was given; or one that is learned, and those without each part."""
        if isinstance(candidate, Kernel):
            return [candidate], {}

        def learned(sequences: list[Part]) -> list[Kernel]:
            X, known, Z = _joined(sequences)
            rows = np.arange(count(Z)) if known is None else np.flatnonzero(known.all(axis=1))
            return [candidate.fit(take(X, rows), take(Z, rows))]

        return learned(self.every), {i: learned(self.without(i)) for i in self.held_out}

    def _challenged(
        self,
        best: Entry,
        kernels: list[Kernel],
        apart: dict[int, list[Kernel]],
        ridges: Sequence[float] = (1.0,),
        options: Arguments | None = None,
    ) -> Entry:
        """Best, or what is clearly better with another kernel on observations.

        ``apart`` has the same kernels as learned without each part, if they are learned; ``ridges``
        are multiples of the ridge to try with each, ``options`` other arguments.
        """
        at = self.parameters(best.candidate.at) | (options or {})
        settings = []
        for k, kernel in enumerate(kernels):
            others = {i: {"kernel_x": other[k]} for i, other in apart.items()}
            for factor in ridges:
                changed = {"kernel_x": kernel, "ridge": factor * at["ridge"]}
                settings.append(self.enter({**at, **changed}))
                self.apart[settings[-1].base] = others
        winner = self.race(settings, best)
        return winner if clearly_better(winner, best) else best

    def _descend(self, best: Entry, step: dict[str, float], limit: float) -> Entry:
        """Move one parameter at a time until no move of this size helps."""
        base = self.bases[best.candidate.at.base]
        kernels = {"x": base["kernel_x"], "z": base["kernel_z"]}
        fixed = [name for name, kernel in kernels.items() if kernel.scaled(2.0) == kernel]
        names = [name for name in step if name not in fixed]
        before = None
        while best is not before:
            before = best
            for name in names:
                factors = dict.fromkeys(TOGETHER.get(name, (name,)), step[name])
                best = self.along(best, factors, limit)
            self.improving = best is not before
        return best


def _joined(sequences: list[Part]) -> tuple[Points, Bools | None, Points]:
    """Return all observations, missing entries filled; which entries are known; all states."""
    X, known = split_missing(concatenate(*(s.X for s in sequences)))
    return X, known, concatenate(*(s.Z for s in sequences))


def rivals(X: Points, gaussian: Kernel) -> list[Kernel]:
    """Kernels on observations to try beside the Gaussian one, the most different first."""
    bandwidth = gaussian.gaussian_bandwidth
    assert bandwidth is not None
    square, width = float(np.mean(np.square(bandwidth))), _multiple(X, gaussian)
    laplace = Laplace.median(X, width)
    if isinstance(bandwidth, tuple):  # its columns count as much in the others
        h = np.asarray(bandwidth)
        scaled = Laplace.median(to_numpy(as_vectors(X)) / h, width).bandwidth
        laplace = Laplace(tuple(scaled * h))
    return [
        *([Warped.median(X, "norm")] if as_vectors(X).shape[1] > 1 else []),
        Warped.median(X, "log").scaled(width),
        laplace,
        (1.0 / square) * Polynomial(1, square) * gaussian,  # locally linear
        Warped.median(X, "asinh").scaled(width),
        RationalQuadratic(bandwidth, 1.0),
    ]


def _multiple(X: Points, gaussian: Kernel) -> float:
    """Return the bandwidth of a Gaussian kernel in multiples of the median distance."""
    U = to_numpy(as_vectors(X)) / np.asarray(gaussian.gaussian_bandwidth)
    return 1.0 / median_distance(U)


def _checked(candidates: Sequence[Kernel | NeuralFeatures]) -> tuple[Kernel | NeuralFeatures, ...]:
    """Candidates, each a kernel or features to learn."""
    several = isinstance(candidates, list | tuple)
    for one in candidates if several else [candidates]:
        if not several or not isinstance(one, Kernel | NeuralFeatures):
            raise TypeError(f"candidates must be a list of kernels or NeuralFeatures, got {one!r}")
    return tuple(candidates)
