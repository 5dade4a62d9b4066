r"""Options that challenge the best filter of a race: velocity, a window, regression, exponents.

The plain filter is of first order, sees one observation at a time and follows Bayes' rule. Each
option is a handful of rivals of the best filter so far, the cheap ones first; a rival that falls
behind is given up after a stretch. An option is taken only if it is better by more than two
standard errors on the blocks left out, and rivals of the next option have it too.

1. ``order=2``: the transition knows the velocity.
2. ``lags``: the update sees the last few observations, under bandwidth multiples that a closed form
   chooses once.
3. ``features="regression"``: the update sees an estimate of E[z | window]. A closed form tells
   first whether the regression is anywhere near the best.
4. Exponents other than one on the prediction and on the observation.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from kernelbayes.filters.choose.racing import Arguments, Entry, Races, clearly_better, gains
from kernelbayes.filters.encode.lags import as_rows, choose_scales, windows
from kernelbayes.filters.encode.regression import window_error
from kernelbayes.filters.encode.track import driving, trackable, tracked_error
from kernelbayes.filters.missing import split_missing
from kernelbayes.filters.sequences import Part, join
from kernelbayes.kernels import Kernel
from kernelbayes.points import count

# What a filter is that has none of the options.
PLAIN: Arguments = {"lags": 1, "order": 1, "features": "raw", "memory": 1.0, "tempering": 1.0}
# Exponents on the prediction and on the observation that challenge Bayes' rule, which has 1. A
# filter without memory is a regression, and must not lose to it; with ridges of a regression.
EXPONENTS = {"memory": (0.5, 0.0), "tempering": (0.5, 0.25)}
WITHOUT_MEMORY = (1e-4, 1e-3, 1e-2)
# Observations in a window, and in that of a regression, which needs no kernel on all of it: of
# 1, 4 and 8, four had the least error on simulated walks, eight on recordings of neurons.
WINDOW, REGRESSION_WINDOWS = 4, (4, 8)
# Rivals with a window have the ridge of the best filter and a tenth of it: a window says more.
WINDOW_RIDGES = (1.0, 0.1)
# Bandwidths on the estimates of a regression, in root mean square distances of two states. A
# judgement: estimates are nearer to the states than observations are, so well below one.
WIDTHS_ESTIMATES = (0.125, 0.5)
# A regression whose error is larger than so many times the loss of the best filter does not race. A
# judgement: memory would have to take off a third of its error.
WORTH_A_RACE = 1.5
# Standard errors by which an option must be better: one rival that is no better is ahead by more
# than two in 2.3 % of races, the best of six in at most one of seven (Bonferroni).
SURE = 2.0
# Factor of one move of the ridge after an option is taken: a decade.
RIDGE_MOVE = {"ridge": 10.0}


@dataclass(frozen=True)
class Challenge:
    """What is needed to make rivals of the best filter in a race."""

    races: Races
    given: Arguments  # of the filter; "auto" is free to choose
    estimates: list[Kernel]  # on states, hence on estimates of them
    whole: bool  # whether no observation is missing in part

    def run(self, best: Entry) -> Entry:
        """Return the best filter with what options are worth it."""
        if self.races.model.literal:
            return best
        for rivals in (self._velocity, self._window, self._regression):
            found = self.races.race([self.races.enter(at) for at in rivals(best)], best)
            if found is not best and clearly_better(found, best, SURE):
                best = self._moved(found)
        found = self.races.race([self.races.enter(at) for at in self._exponents(best)], best)
        return self._moved(found) if gains(found, best) else best

    def _moved(self, found: Entry) -> Entry:
        return self.races.along(found, RIDGE_MOVE) if self.free("ridge") else found

    def free(self, name: str) -> bool:
        """Whether an argument is not given."""
        return isinstance(self.given[name], str) and self.given[name] == "auto"

    def ridge(self, value: float, at: Arguments) -> float:
        """Ridge of a regression, on the scale of the rule; one that is given is kept."""
        square = 2 if self.races.model.method == "original" else 1
        return float(value**square if self.free("ridge") else at["ridge"])

    def _velocity(self, best: Entry) -> Iterator[Arguments]:
        at = self.races.parameters(best.candidate.at)
        moves = getattr(self.races.model, "transition", "operator") == "operator"
        if self.free("order") and moves and at["kernel_z"].is_vector:
            yield {**at, "order": 2}

    def _window(self, best: Entry) -> Iterator[Arguments]:
        at, every = self.races.parameters(best.candidate.at), self.races.every
        # With holes, every pattern of what is missing in a window would need a model of its own.
        possible = self.whole and at["features"] == "raw" and at["kernel_x"].is_vector
        if not (self.free("lags") and possible and reach(every, WINDOW)):
            return
        data = join(every)
        parts = [windows(as_rows(s.X), WINDOW) for s in every]
        scales = choose_scales(
            at["kernel_x"], *split_missing(np.concatenate(parts)), data.Z, at["kernel_z"], WINDOW
        )
        for factor in WINDOW_RIDGES if self.free("ridge") else (1.0,):
            yield {**at, "lags": scales, "ridge": factor * at["ridge"]}

    @cached_property
    def worth(self) -> tuple[int, dict[str, float]]:
        """Window of a regression, and errors of its estimates and of what is tracked, if any."""
        every = self.races.every
        lengths = [k for k in REGRESSION_WINDOWS if self.free("lags") and reach(every, k)]
        wanted = self.free("features") and self.given["kernel_x"] is None
        if not (wanted and lengths and self.estimates):
            return 1, {}
        data, X = join(every), [as_rows(s.X) for s in every]
        W = {k: np.concatenate([windows(rows, k) for rows in X]) for k in lengths}
        errors = {k: window_error(W[k], data.Z, k) for k in lengths}
        k = min(errors, key=errors.__getitem__)
        found = {"regression": errors[k]}
        if can_track(self.races):
            U = driving(data.controls, self.races.bases[0]["kernel_u"], data.lengths)
            found["tracked"] = tracked_error(np.concatenate(X), W[k], U, data.Z, data.lengths)
        return k, found

    def _regression(self, best: Entry) -> Iterator[Arguments]:
        at, (k, worth) = self.races.parameters(best.candidate.at), self.worth
        worth = {name: error for name, error in worth.items() if error <= WORTH_A_RACE * best.score}
        if not worth:
            return
        free = self.free("memory")
        ridge = self.ridge(WITHOUT_MEMORY[0], at)
        for kernel in self.estimates:
            new = {**at, "lags": k, "kernel_x": kernel}
            if not free or at["memory"] == 0.0:
                yield from ({**new, "features": name} for name in worth)
                continue
            # With memory the past counts twice in what is tracked: only if there is nothing else.
            with_memory = "regression" if "regression" in worth else "tracked"
            yield {**new, "features": with_memory}
            name = min(worth, key=worth.__getitem__)
            yield {**new, "features": name, "memory": 0.0, "ridge": ridge}

    def _exponents(self, best: Entry) -> Iterator[Arguments]:
        at = self.races.parameters(best.candidate.at)
        for name, values in EXPONENTS.items():
            if not self.free(name):
                continue
            yield from ({**at, name: value} for value in values if value > 0.0)
            if name == "memory":
                ridges = dict.fromkeys(self.ridge(ridge, at) for ridge in WITHOUT_MEMORY)
                yield from ({**at, "memory": 0.0, "ridge": ridge} for ridge in ridges)


def can_track(races: Races) -> bool:
    """Whether what is left when any part is held out is long enough for a track."""
    q = as_rows(races.every[0].Z).shape[1]
    left = (races.without(i) for i in races.held_out)
    return all(trackable([count(s.Z) for s in parts], q) for parts in left)


def reach(parts: list[Part], lags: int) -> bool:
    """Whether observations are vectors, and windows of so many reach back for most steps."""
    X = parts[0].X
    if not isinstance(X, np.ndarray) or X.dtype.kind not in "fiu" or X.ndim > 2:
        return False
    lengths = np.array([count(s.X) for s in parts])
    return bool(2 * lengths[lengths >= 2 * lags].sum() >= lengths.sum())
