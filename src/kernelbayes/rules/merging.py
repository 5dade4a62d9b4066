"""Fits that grow: ``partial_fit``, ``merge`` and fits from a source, the same for all estimators.

With finite features a fit is a function of :class:`~kernelbayes.scale.statistics.Statistics`: pairs
are seen once and forgotten, but for some. Without them all are kept, and a fit is made again.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from kernelbayes.arrays import as_array
from kernelbayes.embedding import Embedding, MeanElement
from kernelbayes.gram.loo import LOO_POINTS
from kernelbayes.points import concatenate, count, in_order, integer, share, take
from kernelbayes.rules.scales import KernelLike
from kernelbayes.rules.variable import Variable, checked_pairs
from kernelbayes.scale.sources import Source, names_of
from kernelbayes.scale.statistics import Basis, Kept, Statistics, Tilt
from kernelbayes.types import Array, PointsLike, Rng

if TYPE_CHECKING:
    from kernelbayes.rules.conditional import Conditional

Pair = tuple[Variable, Variable]
Again = Callable[[Tilt | None], Statistics]  # sums over all pairs once more, with other weights
# Pairs kept for each feature of z, so that matching sums over all pairs changes weights little; and
# at least as many as leave-one-out errors are computed on.
KEPT_PER_FEATURE = 4


class Merging:
    """Estimator of pairs that learns from parts of them."""

    kernel_x: KernelLike = None
    kernel_z: KernelLike = None
    statistics_: Statistics | None = None
    rank: int | None = None
    rng: Rng = None

    @abstractmethod
    def fit(self, X: PointsLike, Z: PointsLike = None, /) -> Self:
        """Learn from pairs."""

    @abstractmethod
    def _variables(self, X: PointsLike, Z: PointsLike, copy: bool = True) -> Pair:
        """X and Z under their kernels."""

    @abstractmethod
    def _learn(
        self, x: Variable, z: Variable, prior: Any = None, again: Again | None = None
    ) -> Self:
        """Fit variables; ``again`` sums over all pairs once more, with other weights."""

    @abstractmethod
    def _learned(self) -> Pair | None:
        """Variables that were fitted; None before."""

    def partial_fit(
        self,
        X: PointsLike,
        y: PointsLike = None,
        *,
        Z: PointsLike = None,
        forgetting: float = 1.0,
        keep: int | None = None,
    ) -> Self:
        """Learn from more pairs, under the training marginal as prior: ``partial_fit(X, Z)``.

        The first call is :meth:`fit`: it chooses kernels and landmarks that are not given, so its
        batch should look like the rest. With ``rank``, or kernels with finite features, the cost
        of a call depends on its batch alone: sums are updated and a random part of the pairs is
        kept, over which posteriors are weighted samples with the features, mean and mass of those
        over all pairs. Otherwise **all pairs are kept** and the fit is made again on all of them.

        For relations that drift: ``forgetting=0.9`` lets the pairs so far count 0.9 times as much
        as before, which needs finite features; ``keep=1000`` keeps the latest 1000 pairs, which
        needs all pairs, so kernels without. The first call ignores both.
        """
        found, Z = self._learned(), y if Z is None else Z
        forgetting = share(forgetting, "forgetting", high=True)
        keep = None if keep is None else integer(keep, "keep", 2)
        if found is None:
            return self.fit(X, Z)
        if Z is None:
            raise ValueError("requires y to be passed, but the target y is None")
        self._check_prior()
        X, Z = (
            in_order(A, v.names, name, by_name=v.kernel.by_name)
            for A, v, name in zip((X, Z), found, "XZ", strict=True)
        )
        if hasattr(self, "n_features_in_"):  # a table, as scikit-learn checks it
            X, Z = checked_pairs(self, X, Z, reset=False)
        statistics = self._statistics()
        if statistics is not None:
            if keep is not None:
                raise ValueError("sums over pairs know no latest ones: use forgetting, not keep")
            more = Statistics.of(X, Z, statistics.basis, statistics.kept.limit, self._seed)
            before = statistics if forgetting == 1.0 else statistics.faded(forgetting)
            return self._restored(before + more)
        if forgetting < 1.0:
            raise ValueError("forgetting needs finite features: give rank, or use keep")
        if "precomputed" in (self.kernel_x, self.kernel_z):
            raise ValueError("a precomputed kernel knows its training points only; fit all at once")
        new = found[0].kernel.points(X, "X"), found[1].kernel.points(Z, "Z")
        joined = [concatenate(v.points, more) for v, more in zip(found, new, strict=True)]
        if keep is not None:
            joined = [take(points, slice(-keep, None)) for points in joined]
        x, z = self._variables(joined[0], joined[1], copy=False)
        return self._learn(replace(x, names=found[0].names), replace(z, names=found[1].names))

    def merge(self, other: Self) -> Self:
        """Return the estimator of the pairs of both (``a + b``); kernels must be the same."""
        mine, others = self._learned(), other._learned() if type(other) is type(self) else None
        if mine is None or others is None:
            raise ValueError(f"merge needs two fitted estimators of one class, got {other!r}")
        self._check_prior()
        other._check_prior()
        a, b = self._statistics(), other._statistics()
        if (a is None) != (b is None):
            raise ValueError("merge needs the same kernels: one of these has finite features")
        if a is not None and b is not None:
            return copy(self)._restored(a + b)
        return copy(self).partial_fit(others[0].points, others[1].points)

    def _check_prior(self) -> None:
        """Raise if a prior is in force, which sums over more pairs would not be under."""
        if getattr(self, "under_prior_", False):
            raise ValueError(
                "this was fitted under a prior, to which more pairs cannot be added; add them to a "
                "fit without one, then ask posterior(x, prior=prior), or fit all pairs at once"
            )

    def __add__(self, other: Self) -> Self:
        """Return ``merge(other)``."""
        return self.merge(other) if isinstance(other, Merging) else NotImplemented

    def _statistics(self) -> Statistics | None:
        """Statistics of the fit; None where kernels have no finite features, or only by default."""
        found = self._learned()
        if found is None or not self._finite(*found):
            return None
        if self.statistics_ is not None:
            return self.statistics_
        x, z = found
        basis = Basis(x.kernel, z.kernel, (x.names, z.names))
        return Statistics.of(x.points, z.points, basis, _limit(z), self._seed)

    def _finite(self, x: Variable, z: Variable) -> bool:
        """Whether both variables have finite features because the user asked for them."""
        asked = self.rank is not None or self.kernel_x is not None
        return asked and x.kernel.finite and z.kernel.finite

    @property
    def _seed(self) -> int:
        return int(self.rng) if isinstance(self.rng, int | np.integer) else 0

    def _fit_source(self, source: Source, prior: Any = None) -> Self:
        """Fit a source; kernels and landmarks come from a random part, or from the first batch."""
        (X, Z), source = source.first()
        names, flat = names_of((X, Z)), getattr(as_array(Z), "ndim", 2) == 1
        limit = max(LOO_POINTS, KEPT_PER_FEATURE * (self.rank or 0))
        if not source.once:
            sample = source.reduce(Kept.of, limit=limit, seed=self._seed, names=names)
            X, Z = sample.X, sample.Z
        x, z = self._variables(X, Z)
        sums = self._finite(x, z)
        if not sums:
            everything = source.reduce(Kept.of, limit=np.iinfo(np.int64).max, names=names)
            x, z = self._variables(everything.X, everything.Z, copy=False)
        x, z = replace(x, names=names[0]), replace(z, names=names[1])
        if names[0] is not None and hasattr(self, "n_features_in_"):
            self.feature_names_in_ = np.array(names[0], dtype=object)
        self._one_dimensional = flat
        if not sums:
            return self._learn(x, z, prior)
        options = {"basis": Basis(x.kernel, z.kernel, names), "limit": _limit(z)}

        def again(tilt: Tilt | None) -> Statistics:
            if tilt is not None and source.once:
                raise ValueError(
                    "a prior needs the pairs twice, and an iterator gives them once; give a list "
                    "of batches, a file or a Dask collection"
                )
            return source.reduce(Statistics.of, seed=self._seed, tilt=tilt, **options)

        return self._restored(again(None), prior, again)

    def _restored(
        self, statistics: Statistics, prior: Any = None, again: Again | None = None
    ) -> Self:
        """Fit statistics instead of pairs."""
        x, z = variables_of(statistics)
        self._learn(x, z, prior, again)
        self.statistics_ = statistics
        return self


def variables_of(statistics: Statistics) -> Pair:
    """Variables over the kept pairs that stand for all."""
    basis, kept = statistics.basis, statistics.kept
    x = Variable(kept.X, basis.kernel_x, basis.names[0])
    z = Variable(kept.Z, basis.kernel_z, basis.names[1])
    every = isinstance(statistics.n, int) and statistics.n == count(kept.X)  # and none has faded
    if every and statistics.tilt is None:
        return x, z
    gram_x, gram_z, mean, _ = statistics.grams()
    return replace(x, held=gram_x), replace(z, held=gram_z, mean=mean)


def tilted(
    weights: Array, likelihood: Conditional, prior: MeanElement, method: str, again: Again | None
) -> tuple[Array, Conditional]:
    """Weights of a prior on the kept pairs, and the likelihood with sums over all under it."""
    if again is None or not isinstance(prior, Embedding):
        raise ValueError(
            "statistics hold sums under the training marginal; a prior needs the pairs once more: "
            "fit(source, prior=prior), with a prior that is a sample and ratio='kulsif'"
        )
    tilt = Tilt(likelihood.solver.coefficients(prior.features), method == "importance")
    if not np.allclose(weights, tilt(likelihood.inputs.gram.factor)):
        return weights, likelihood  # nothing was left of the prior, and a warning has said so
    gram, _, mean, under = again(tilt).grams()
    inputs = replace(likelihood.inputs, mean=mean if tilt.positive else None)
    return under, replace(likelihood, inputs=inputs, outputs=replace(likelihood.outputs, held=gram))


def _limit(z: Variable) -> int:
    """Return how many pairs to keep."""
    features = z.kernel.features(take(z.points, slice(0, 1)))
    return max(LOO_POINTS, KEPT_PER_FEATURE * int(features.shape[1]))
