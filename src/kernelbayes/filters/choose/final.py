r"""The final: the winner of a race meets a few simple filters on the whole of every block.

A race gives up half of the candidates after fifty steps of the first block, and every stretch
starts anew. Where the recording rests in these steps, the kernel on states may become so narrow
that the filter is lost for good later on. So the winner and its rivals filter all blocks in full:

* plain filters with wide kernels on states;
* the regression on x without memory, with the kernel and ridge that a closed form chooses;
* with controls, what is tracked under them, which has hardly settled at the end of a stretch;
* little more than an estimate of the state: a wide kernel on it, and no memory.

A rival is taken only if it is clearly better, at the rank of the race and at that of the filter. So
what is chosen is not clearly worse than this regression on the blocks left out.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from kernelbayes.arrays import to_numpy
from kernelbayes.filters.choose.blocks import LEFT_OUT_BLOCKS, RACE_RANK
from kernelbayes.filters.choose.choices import state_features
from kernelbayes.filters.choose.holdout import SHORTEST
from kernelbayes.filters.choose.options import PLAIN, WITHOUT_MEMORY, Challenge
from kernelbayes.filters.choose.racing import Arguments, Entry, Races
from kernelbayes.filters.encode.lags import block_errors
from kernelbayes.filters.missing import split_missing
from kernelbayes.filters.sequences import join
from kernelbayes.gram.features import nystrom
from kernelbayes.kernels import Kernel

# Ridges of the regression without memory: a decade more to each side than challenge Bayes' rule.
REGRESSION_RIDGES = (1e-5, 1e-4, 1e-3, 1e-2, 1e-1)
# Multiples of the widest kernel on x that races: octaves, for states nearly linear in x.
WIDER_X = (2.0, 4.0)
# Multiple of the widest kernel on estimates that races: four root mean square distances. The state
# is nearly linear in its estimate, and a narrower kernel adds an error of its own.
WIDER_ESTIMATES = 8.0
# Share of the winner's loss that a rival must gain, and a standard error besides: a judgement. The
# standard error alone would let the best of five rivals that are no better through too often.
CLEAR_SHARE = 0.1


@dataclass(frozen=True, eq=False)
class Final:
    """What is needed to make rivals of the winner of a race."""

    challenge: Challenge
    plain: list[Arguments]  # that the race began with
    rank: int  # of the filter

    def run(self, winner: Entry) -> Entry:
        """Return the winner, or a rival that is clearly better on whole blocks."""
        races = self.challenge.races.whole()
        at = races.parameters(winner.candidate.at)
        same = {name: at[name] for name in ("kernel_u", "rank")}
        first = best = races.race([races.enter(at)])
        for rivals in (self._plain, self._memoryless):
            best = races.race([races.enter({**one, **same}) for one in rivals(best)], best)
        if clearly_ahead(best, first) and self.rank > at["rank"]:
            both = (races.parameters(trial.candidate.at) for trial in (first, best))
            first, best = (races.race([races.enter({**a, "rank": self.rank})]) for a in both)
        return best if clearly_ahead(best, first) else winner

    def _kernels(self, name: str) -> list[Kernel]:
        return list(dict.fromkeys(at[name] for at in self.plain))

    def _plain(self, _: Entry) -> Iterator[Arguments]:
        """Return filters with the middle kernel on x and the wider half of those on z."""
        X, Z = self._kernels("kernel_x"), self._kernels("kernel_z")
        middle, wider = X[len(X) // 2], Z[len(Z) // 2 :]
        yield from (a for a in self.plain if a["kernel_x"] == middle and a["kernel_z"] in wider)

    def _memoryless(self, best: Entry) -> Iterator[Arguments]:
        """Regression on x or on estimates, if not ruled out, and what is tracked under controls."""
        X, Z = self._kernels("kernel_x"), self._kernels("kernel_z")
        at = self.challenge.races.parameters(best.candidate.at)
        if at["kernel_u"] is not None and at["features"] != "tracked":
            yield from (a for a in self.challenge._regression(best) if a["features"] == "tracked")
        off = {name: value for name, value in PLAIN.items() if self.challenge.free(name)}
        (k, worth), ridge = self.challenge.worth, self.challenge.ridge(WITHOUT_MEMORY[0], at)
        for name in (n for n in worth if worth[n] < best.score and self.challenge.free("memory")):
            kernel = self.challenge.estimates[-1].scaled(WIDER_ESTIMATES)
            alone = {**at, **off, "lags": k, "features": name, "memory": 0.0}
            yield {**alone, "kernel_x": kernel, "ridge": ridge}
        if all(map(self.challenge.free, ("lags", "features", "memory"))):
            X += [X[-1].scaled(f) for f in WIDER_X if self.challenge.given["kernel_x"] is None]
            _, kernel, ridge = best_regression(self.challenge.races, X, Z[-1])
            ridge = self.challenge.ridge(ridge, at)
            yield {**at, **off, "kernel_x": kernel, "memory": 0.0, "ridge": ridge}


def clearly_ahead(found: Entry, best: Entry, share: float = CLEAR_SHARE) -> bool:
    """Whether one is better by a share of the loss and a standard error, both on all blocks.

    Neighbouring losses are alike, so that the standard error is that of means over stretches.
    """
    if not np.isfinite(best.score) or not np.isfinite(found.score):
        return bool(np.isfinite(found.score))
    gain = best.losses - found.losses
    means = [np.mean(g) for g in np.array_split(gain, max(LEFT_OUT_BLOCKS, len(gain) // SHORTEST))]
    error = float(np.std(means, ddof=1)) / np.sqrt(len(means))
    return bool(np.mean(gain) > max(error, share * abs(best.score)))


def best_regression(races: Races, X: list[Kernel], Z: Kernel) -> tuple[float, Kernel, float]:
    """Least error of z's embedding given x on blocks left out; the kernel on x and the ridge.

    That is the filter's problem without memory, in closed form.
    """
    data = join(races.every)
    H = state_features(data.Z, Z)
    if H is None:
        return 0.0, X[0], REGRESSION_RIDGES[0]
    found, points = [], split_missing(data.X)[0]
    for kernel in X:
        F = to_numpy(nystrom(kernel, points, min(RACE_RANK, len(H)), 0).features(points))
        errors = block_errors(np.asarray(F, float), H, np.array(REGRESSION_RIDGES), LEFT_OUT_BLOCKS)
        found.append((float(errors.min()), kernel, REGRESSION_RIDGES[int(np.argmin(errors))]))
    return min(found, key=lambda one: one[0])
