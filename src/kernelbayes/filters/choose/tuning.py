r"""Tuning a filter by filtering what it has not learned from.

The training sequences are cut into parts (two halves, KBR13 section 5.3, or blocks of sequences in
the order given, since neighbours in time are alike). A candidate learns from all parts but one and
filters the one held out, in turn; the mean loss over all steps is its score. Candidates race: one
that is clearly worse than the best so far is given up (:mod:`kernelbayes.filters.choose.racing`).

1. A few starts far apart race: bandwidths of x and z in multiples of the median distance, ridges,
   and the automatic ridges. After each part the worse half is given up. What is set on the model
   (a kernel, a ridge) is the same in all starts.
2. If x has several columns and no kernel on x is given, the best races a copy of itself with a
   bandwidth for each column, by what the column says about the state
   (:mod:`kernelbayes.filters.choose.choices`).
3. From the best, one parameter is moved at a time for as long as that helps: the ridge of Bayes'
   rule, the bandwidths of x and z, and the ridge of transition and prior.
4. If no kernel on x is given, other kernels race the Gaussian one from there: Laplace and rational
   quadratic, which are less sensitive to outliers; a Gaussian one times a linear one, for
   posteriors that are nearly linear in x; and Gaussian ones of transformed coordinates
   (:class:`~kernelbayes.Warped`). One is taken if it is better by more than a standard error.
5. Moves go on from there, in smaller and smaller steps.
6. The candidates within a standard error of the best are averaged: which of them is best is
   chance, and their middle varies less.

All of this is about filtering. With ``smooth=True`` the ridge of the backward step is chosen last,
by smoothing the held-out parts: a state with little noise of its own needs a smaller one than a
noisy state (0.01 against 0.3 in the models tried).

Losses: ``"error"`` (squared error of the mean; for states that are not vectors, the squared RKHS
distance to the truth), ``"mass"`` (minus the logarithm of the belief's mass within a quarter of the
median distance of the truth), ``"coverage"`` (how far the coverage of 90 % intervals is from 90 %),
or a function ``(beliefs, Z) -> array (T,)`` of losses.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from functools import reduce

import numpy as np
from sklearn.base import clone

from kernelbayes.arrays import Bools, NumericalWarning, Rng, as_vectors, to_numpy
from kernelbayes.filters.bayes import KernelBayesFilter
from kernelbayes.filters.choose.choices import per_dimension
from kernelbayes.filters.choose.holdout import Loss, cut, judge_of, learn
from kernelbayes.filters.choose.racing import Entry, Races, Setting
from kernelbayes.filters.loop import Filter
from kernelbayes.filters.missing import split_missing
from kernelbayes.filters.montecarlo import KernelMonteCarloFilter
from kernelbayes.filters.sequences import Part
from kernelbayes.kernels import (
    Kernel,
    Laplace,
    Polynomial,
    RationalQuadratic,
    Warped,
)
from kernelbayes.kernels.default import default_kernel
from kernelbayes.points import Points, PointsLike, concatenate, finite
from kernelbayes.select.search import progress_bar
from kernelbayes.select.tuning import tune, with_options

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
# Share of the budget after which other kernels are tried, even if moves still help: what is left
# pays for a race of all of them and some moves of the winner.
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
    smooth: bool = False,
    rng: Rng = None,
    progress: bool | None = None,
) -> Filter:
    """Bandwidths and ridges of a filter, by filtering held-out parts of the training sequences.

    ``budget`` counts passes over the held-out parts; a candidate given up early costs its share.
    With ``smooth`` the ridge of the backward step is chosen after that, by smoothing the held-out
    parts, at the cost of a few more passes.
    """
    if finite(budget, "budget") < 1:
        raise ValueError(f"budget must be at least 1, got {budget}")
    search = _Search(model, cut(X, Z, controls, parts, model), loss, budget)
    with progress_bar(math.ceil(budget), "tuning", progress) as search.bar:
        chosen = search.parameters(search.run())
    if smooth:
        chosen["back_ridge"] = search.back_ridge(chosen)
    tuned: Filter = clone(model).set_params(**chosen)
    if rng is not None and tuned.rng is None:
        tuned.set_params(rng=rng)
    tuned.fit(X, Z, controls)
    tuned.tuning_ = search.table
    return tuned


@dataclass(eq=False)
class _Search(Races):
    """Where to look next."""

    loss: Loss
    budget: float

    def __post_init__(self) -> None:
        self.X, _, Z = _joined(self.every)
        self.kernels = [self.model.kernel_x or default_kernel(self.X)]
        self.kernel_z = self.model.kernel_z or default_kernel(Z, "Z")
        self.judge = judge_of(self.loss, self.kernel_z, Z)

    def run(self) -> Setting:
        """Best setting within the budget."""
        starts = self._starts()
        while len(starts) > 1 and self.price(len(starts)) > self.budget / 2.0:
            starts.pop()
        best = self.race(starts, halving=True)
        free = self.model.kernel_x is None and self.kernels[0].gaussian_bandwidth is not None
        if free and self.spent + 1.0 <= self.budget:
            best = self._challenged(best, *self._per_dimension(best.candidate.at.z))
        best = self._descend(best, MOVES, BEFORE_KERNELS * self.budget)
        if free:
            some = slice(int(self.budget / 4.0))
            apart = self.apart.get(best.candidate.at.kernel, {})
            best = self._challenged(
                best,
                _rivals(self.X, self.kernels[best.candidate.at.kernel])[some],
                {part: _rivals(self.X, kernel)[some] for part, kernel in apart.items()},
            )
        step = MOVES  # what was tried before costs nothing
        while step["x"] > LAST and self.spent + 2.0 <= self.budget:
            best = self._descend(best, step, self.budget - 1.0)
            step = {name: factor**0.5 for name, factor in step.items()}
        chosen = self._middle(best)
        chosen.candidate.row["chosen"] = True
        if not math.isfinite(chosen.score):
            warnings.warn(
                "no candidate has finite losses at all steps, so nothing could be chosen by them; "
                "is the loss NaN somewhere?",
                NumericalWarning,
                stacklevel=4,
            )
        return chosen.candidate.at

    def _starts(self) -> list[Setting]:
        """List settings far apart; what is set on the model is the same in all of them."""
        model, first = self.model, self._automatic()
        square = 2 if model.method == "original" else 1  # its ridge is on the scale of squares
        free_x = model.kernel_x is None and _scalable(self.kernels[0])
        free_z = model.kernel_z is None and _scalable(self.kernel_z)
        others = (
            first._replace(
                x=x if free_x else first.x,
                z=z if free_z else first.z,
                ridge=ridge**square if model.ridge == "loo" else first.ridge,
                prior=prior if model.prior_ridge == "loo" else first.prior,
            )
            for x, z, ridge, prior in STARTS
        )
        return list({at.key: at for at in (first, *others)}.values())

    def _automatic(self) -> Setting:
        """Half the median distance on states, the median on observations, automatic ridges."""
        model = self.model
        z = 0.5 if model.kernel_z is None and _scalable(self.kernel_z) else 1.0
        if model.ridge != "loo" and model.prior_ridge != "loo":
            return Setting(0, 1.0, z, model.ridge, model.prior_ridge)
        kernels = {"kernel_x": self.kernels[0], "kernel_z": self.kernel_z.scaled(z)}
        pilot = self.blank(kernels)
        learn(pilot, self.every)
        return Setting(0, 1.0, z, pilot.ridge_, pilot.prior_ridge_)

    def _per_dimension(self, z: float) -> tuple[list[Kernel], dict[int, list[Kernel]]]:
        """List the kernel with learned bandwidths, if there is one, and those without each part."""
        kernel_z = self.kernel_z.scaled(z)

        def learned(sequences: list[Part]) -> Kernel | None:
            X, known, Z = _joined(sequences)
            return per_dimension(X, Z, kernel_z, known)

        kernel = learned(self.every)
        if kernel is None:
            return [], {}
        # Scores on a part that bandwidths were learned from would be too good.
        parts = {i: learned(self.without(i)) or self.kernels[0] for i in self.held_out}
        return [kernel], {i: [found] for i, found in parts.items()}

    def _challenged(
        self, best: Entry, rivals: list[Kernel], apart: dict[int, list[Kernel]]
    ) -> Entry:
        """Best, or what is clearly better with another kernel on observations.

        ``apart`` has the same kernels as learned without each part, if they are learned.
        """
        first = len(self.kernels)
        self.kernels += rivals
        for k in range(len(rivals)):
            self.apart[first + k] = {i: kernels[k] for i, kernels in apart.items()}
        settings = [best.candidate.at._replace(kernel=k) for k in range(first, len(self.kernels))]
        winner = self.race(settings, best)
        worse, error = winner.behind(best)
        return winner if worse + error < 0.0 else best

    def _descend(self, best: Entry, step: dict[str, float], limit: float) -> Entry:
        """Move one parameter at a time until no move of this size helps."""
        kernels = {"x": self.kernels[best.candidate.at.kernel], "z": self.kernel_z}
        names = [name for name in step if name not in kernels or _scalable(kernels[name])]
        before = None
        while best is not before:
            before = best
            for name in names:
                up = self._along(best, name, step[name], limit)
                best = up if up is not best else self._along(best, name, 1.0 / step[name], limit)
        return best

    def _along(self, best: Entry, name: str, factor: float, limit: float) -> Entry:
        """Go on in one direction for as long as it helps."""
        while self.spent + 1.0 <= limit:
            moved = best.candidate.at._replace(**{name: getattr(best.candidate.at, name) * factor})
            found = self.race([moved], best)
            if found is best:
                break
            best = found
        return best

    def _middle(self, best: Entry) -> Entry:
        """Candidate in the middle of those within a standard error of the best, if it is one."""
        near = []
        for trial in self.complete.values():
            worse, error = trial.behind(best)
            if trial.candidate.at.kernel == best.candidate.at.kernel and worse <= error:
                near.append([math.log(value) for value in trial.candidate.at[1:]])
        middle = Setting(best.candidate.at.kernel, *map(float, np.exp(np.mean(near, axis=0))))
        if self.spent + 1.0 <= self.budget:
            self.race([middle], best)
        found = self.complete.get(middle.key, best)
        worse, error = found.behind(best)
        return found if worse <= error else best


def _joined(sequences: list[Part]) -> tuple[Points, Bools | None, Points]:
    """Return all observations, missing entries filled; which entries are known; all states."""
    X, known = split_missing(reduce(concatenate, [s.X for s in sequences]))
    return X, known, reduce(concatenate, [s.Z for s in sequences])


def _rivals(X: Points, gaussian: Kernel) -> list[Kernel]:
    """Kernels on observations to try beside the Gaussian one, the most different first."""
    bandwidth = gaussian.gaussian_bandwidth
    assert bandwidth is not None
    square = float(np.mean(np.square(bandwidth)))
    laplace = Laplace.median(X)
    if isinstance(bandwidth, tuple):  # its columns count as much in the others
        h = np.asarray(bandwidth)
        laplace = Laplace(tuple(Laplace.median(to_numpy(as_vectors(X)) / h).bandwidth * h))
    return [
        Warped.median(X, "log"),
        laplace,
        (1.0 / square) * Polynomial(1, square) * gaussian,  # locally linear
        Warped.median(X, "asinh"),
        RationalQuadratic(bandwidth, 1.0),
    ]


def _scalable(kernel: Kernel) -> bool:
    return kernel.scaled(2.0) != kernel
