r"""The risk of Bayes' rule under a prior, estimated from left-out pairs of another distribution.

Held-out pairs come from the training distribution, but the rule is used under another prior. With
left-out predictions p_i at the training points, its risk there is

.. math:: \mathrm{E} |z - p(x)|^2 = \sum_i a_i |p_i|^2 - 2 \sum_i c_i \cdot p_i + \text{constant}

"predictive" and "rkhs" weigh pairs by the density ratio: ``a_i = r_i``, ``c_i = r_i z_i``. That is
estimated too flat in high dimension, and then a narrower prior gets too little regularisation.

"combined", the default for vectors, does the same with the default's ratio while there are enough
effective pairs for each coordinate of x, and keeps the default unless another setting is clearly
better. Where pairs are scarce it averages this with a second estimate that needs no density ratio,
by iterating expectations: :math:`\mathrm{E}[z \cdot p(x)] = \mathrm{E}_{prior}[z \cdot
\mathrm{E}[p(x) | z]]`, where the inner expectation does not depend on the prior and is a regression
of p_i on z_i, a linear smoother B from training to prior points: ``a = mean_j B_j``,
``c = mean_j B_j u_j`` ("outcome regression" in the literature on covariate shift). A regularised
smoother flattens E[p | z] and asks for too much regularisation. Both estimates are consistent.

In "combined", the targets are z and the constant 1, which counts as one more coordinate of z: a
posterior should have mass one, also if x says nothing and the prior mean is zero.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from tqdm import tqdm

from kernelbayes.arrays import as_doubles
from kernelbayes.embedding import Embedding, MeanElement
from kernelbayes.embedding.gaussian import GaussianEmbedding
from kernelbayes.embedding.mean import LEAST_SHARE
from kernelbayes.estimators import KernelBayesRule
from kernelbayes.gram import Dense, exact_features
from kernelbayes.gram.lapack import symmetric_factor
from kernelbayes.gram.loo import RidgePath, column_units, loo, ridge_grid, with_constant
from kernelbayes.kernels import Kernel
from kernelbayes.rules.kulsif import relative_scores
from kernelbayes.rules.prior import reembed
from kernelbayes.rules.ratio import density_ratio
from kernelbayes.rules.variable import Variable
from kernelbayes.select.search import coarse_to_fine
from kernelbayes.tables import Row
from kernelbayes.types import Floats, Ints, Points

Criterion = Literal["combined", "predictive", "rkhs", "marginal"]
# Ratios tried by "combined" beside the best one by KuLSIF's score: multiples of the bandwidth of z
# and ridges in units of k(z, z). Flat ratios make a steadier rule than the best ratio does.
RATIO_SCALES = (2.0, 4.0)
RATIO_RIDGES = (1e-3, 1e-2, 1e-1)
# Effective pairs for each coordinate of x from which on left-out pairs, weighted by the ratio, say
# enough: the rule of thumb of regression is ten to twenty for each predictor (Harrell 2015).
PAIRS_PER_COORDINATE = 20
# Multiples of the bandwidth of z tried for the smoother of the outcome regression. It should be
# smooth: E[p | z] is an average over x.
SMOOTHER_SCALES = (1.0, 2.0, 4.0, 8.0)
# Predictions that a smoother asks for are cut off this many ranges of the prior's points below and
# above the smallest of them.
REACH = 4.0


@dataclass(frozen=True, eq=False)
class Ratio:
    """A candidate for the first half of the rule."""

    kernel: Kernel
    ridge: float | None
    weights: Floats  # (n,), not negative, sum one
    mass: float  # what the weights summed to
    signed: list[Floats]  # of the original rule: those of the pairs outside each fold


@dataclass(frozen=True, eq=False)
class Risk:
    """A risk that is quadratic in the left-out predictions: a (n,), c (n, q) and a constant."""

    a: Floats
    c: Floats
    constant: float

    def terms(self, p: Floats, means: int) -> Floats:
        """Return what each pair adds to the risk, and to that of the first columns: (n, 2)."""
        own = self.a[:, None] * p**2 - 2.0 * self.c * p
        every = own.sum(axis=1) + self.constant / len(p)
        return np.column_stack([every, own[:, :means].sum(axis=1)])


@dataclass(frozen=True, eq=False)
class Task:
    """What one search is about: pairs with their numbers of folds, prior and criterion."""

    model: KernelBayesRule
    x: Variable
    z: Variable
    values: Floats  # of z, in the units of its kernel
    prior: MeanElement | None
    criterion: Criterion
    fold: Ints
    known: dict[Kernel, Floats] = field(default_factory=dict)

    @property
    def parts(self) -> Iterator[tuple[Ints, Ints]]:
        """Indices (train, test) of the folds."""
        # The original rule and the marginal criterion have no leave-one-out form.
        for fold in range(int(self.fold.max()) + 1):
            yield np.flatnonzero(self.fold != fold), np.flatnonzero(self.fold == fold)

    def features(self, kernel: Kernel) -> Floats:
        """Features of x, at most n of them; kept for the kernel used last."""
        if kernel not in self.known:
            (F,) = exact_features(kernel, self.x.points)
            self.known.clear()
            self.known[kernel] = symmetric_factor(F @ F.T) if F.shape[1] > F.shape[0] else F
        return self.known[kernel]

    def ratios(self, budget: int, bar: tqdm) -> tuple[list[Ratio], list[Row]]:
        """Candidate ratios: the default one; where pairs are scarce, the best one and flat ones."""
        if self.prior is None:
            uniform = np.full(self.z.n, 1.0 / self.z.n)
            signed = [np.full(len(train), 1.0 / len(train)) for train, _ in self.parts]
            return [Ratio(self.z.kernel, None, uniform, 1.0, signed)], []
        prior = self.prior

        def score(kernel: Kernel) -> Row:
            ridges, scores = relative_scores(reembed(prior, kernel), self.z.points)
            best = float(ridges[np.argmin(scores)])
            return {"kernel": kernel, "ridge": best, "score": float(scores.min())}

        combined = self.criterion == "combined"
        if combined:
            row = {"scale": 1.0, **score(prior.kernel)}
            default = self._ratio(prior, row["ridge"])
            if not self.is_scarce(default):
                return [default], [{"stage": "ratio", "variable": "z", **row}]
        table = coarse_to_fine(self.z.kernel.scaled, score, budget, bar, parallel=True)
        found = [self._ratio(reembed(prior, table.best["kernel"]), table.best["ridge"])]
        for kernel in dict.fromkeys(self.z.kernel.scaled(s) for s in RATIO_SCALES if combined):
            unit = float(np.mean(as_doubles(kernel.diag(self.z.points)))) or 1.0
            again = reembed(prior, kernel)
            found += [self._ratio(again, eta * unit) for eta in RATIO_RIDGES]
        return found, [{"stage": "ratio", "variable": "z", **row} for row in table]

    def is_scarce(self, ratio: Ratio) -> bool:
        """Whether there are few effective pairs under the prior for each coordinate of x."""
        d = self.x.points.shape[1] if self.x.kernel.is_vector else 1
        return 1.0 / float(ratio.weights @ ratio.weights) < PAIRS_PER_COORDINATE * d

    def _ratio(self, prior: MeanElement, eta: float) -> Ratio:
        kernel, z, n = prior.kernel, self.z.points, self.z.n
        method = self.model.ratio if self.model.method == "importance" else "kulsif"
        ratio = density_ratio(prior, z, kernel, method, eta, rng=self.model.rng)
        weights = as_doubles(ratio.at_denominator) / n
        mass = float(weights.sum())
        if mass <= 0.0:
            weights, mass = np.full(n, 1.0 / n), 1.0
        signed = []
        if self.model.method == "original":
            G, mean = as_doubles(kernel(z)), as_doubles(prior(z))
            for train, _ in self.parts:
                signed.append(Dense(G[np.ix_(train, train)]).ridge(eta).solve(mean[train]))
        return Ratio(kernel, eta, weights / mass, mass, signed)

    def targets(self, ratio: Ratio) -> Floats:
        """Return what is predicted: z, z and 1, or the features of z."""
        if self.criterion in ("rkhs", "marginal"):
            return exact_features(ratio.kernel, self.z.points)[0]
        if self.criterion == "predictive":
            return np.asarray(self.values - self.values.mean(axis=0))
        return np.asarray(with_constant(self.values, self.values))

    def risk(self, ratio: Ratio, targets: Floats) -> Risk:
        """Risk under the prior, with ``ratio`` as the density ratio."""
        r = ratio.weights
        weighted = Risk(r, r[:, None] * targets, _second_moment(r, targets))
        if self.criterion != "combined" or self.prior is None or not self.is_scarce(ratio):
            return weighted
        points, alpha = _sample(self.prior, self.z.kernel, 2 * self.z.n)
        units = column_units(self.z.kernel)
        U = with_constant(as_doubles(points).reshape(len(alpha), -1) / units, self.values)
        B = self._smoother(points, targets)
        a = np.maximum(alpha @ B, 0.0)
        # A smoother with signs can ask for any prediction c_i / a_i at pair i, with no square to
        # hold it where a_i is cut off; so c_i is cut off with it, and kept within reach.
        asked = (B.T @ (alpha[:, None] * U)) / np.where(a > 0, a, 1.0)[:, None]
        low, reach = U.min(axis=0), REACH * (U.max(axis=0) - U.min(axis=0))
        c = a[:, None] * np.clip(asked, low - reach, low + reach)
        constant = _second_moment(alpha, U)
        return Risk(0.5 * (a + r), 0.5 * (c + weighted.c), 0.5 * (constant + weighted.constant))

    def _smoother(self, points: Points, targets: Floats) -> Floats:
        """Smoother (m, n) from predictions at the pairs to their expectations given z = u_j.

        Kernel ridge regression with an intercept. Its bandwidth and ridge are those that best
        predict, from z alone, the left-out predictions of the rule without weights.
        """
        F, n = self.features(self.x.kernel), self.z.n
        ridge = loo(F, targets, ridge_grid(F)).best
        (pilot,) = loo(F, targets, np.array([ridge])).predictions()

        def score(kernel: Kernel) -> Row:
            F, V = exact_features(kernel, self.z.points, points)
            F, V = F - F.mean(axis=0), V - F.mean(axis=0)
            found = loo(F, pilot, ridge_grid(F), intercept=True)
            return {"score": found.errors.min(), "fit": (F, V, found.best)}

        scales = SMOOTHER_SCALES
        table = coarse_to_fine(self.z.kernel.scaled, score, len(scales), start=scales)
        F, V, ridge = table.best["fit"]
        path = RidgePath.of(F, pilot, np.full(n, 1.0 / n))
        return np.asarray(((V @ path.Q) * path.filtered(ridge)) @ (F @ path.Q).T / n + 1.0 / n)


def _second_moment(weights: Floats, values: Floats) -> float:
    return float(weights @ np.einsum("ij,ij->i", values, values))


def _sample(element: MeanElement, kernel: Kernel, size: int) -> tuple[Points, Floats]:
    """Points and weights (summing to one) of a prior; a closed form is sampled."""
    if isinstance(element, Embedding):
        weights = as_doubles(element.weights)
        total = float(weights.sum())
        if abs(total) <= LEAST_SHARE * float(np.abs(weights).sum()):
            weights, total = np.ones(len(weights)), float(len(weights))
        return element.points, weights / total
    assert isinstance(element, GaussianEmbedding)
    mean, cov = as_doubles(element.mean), as_doubles(element.cov)
    points = np.random.default_rng(0).multivariate_normal(mean, cov, size=size)
    return kernel.points(points, "prior"), np.full(size, 1.0 / size)
