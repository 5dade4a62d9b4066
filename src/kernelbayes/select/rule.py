r"""Tuning of Bayes' rule for the prior in force: what ``tune(KernelBayesRule(), ...)`` does.

Held-out pairs come from the training distribution, but the rule will be used under another prior.
So held-out pairs cannot be scored as they are. Every criterion here that knows the prior estimates
the risk under the prior, for the left-out predictions p_i of the rule at the training points,

.. math:: \mathrm{E} |z - p(x)|^2 = \sum_i a_i |p_i|^2 - 2 \sum_i c_i \cdot p_i + \text{constant}

"predictive" and "rkhs" weigh pairs by the density ratio of prior and training marginal:
``a_i = r_i``, ``c_i = r_i z_i``. An estimated ratio is flatter than the true one, and in high
dimension far flatter; then the rule is tuned for something near the training marginal, with too
little regularisation when the prior is narrower.

"combined", the default for vectors, averages this with a second estimate that needs no density
ratio, by iterating expectations: :math:`\mathrm{E}[z \cdot p(x)] = \mathrm{E}_{prior}[z \cdot
\mathrm{E}[p(x) | z]]`, where the inner expectation does not depend on the prior and is a regression
of p_i on z_i, a linear smoother B from training to prior points: ``a = mean_j B_j``,
``c = mean_j B_j u_j`` ("outcome regression" in the literature on covariate shift). A regularised
smoother flattens E[p | z], as if x said less about z than it does: it asks for too much
regularisation where the ratio asks for too little. Both estimates are consistent.

In "combined", the targets are z and the constant 1, which counts as one more coordinate of z (of
their average variance): a posterior should have mass one, and without this an uninformative x
shrinks all weights to zero, since that predicts a prior mean of zero well.

The bandwidth of x is left where the search started (the median heuristic) unless another is clearly
better, by more than one standard error of the difference over pairs (Breiman et al. 1984), both for
the means alone and for means and mass. In high dimension such differences are mostly noise, and a
choice that follows them loses more than it gains; with many pairs the standard error vanishes.

"marginal" (KBR13 section 4.2) compares the averaged posterior with the marginal of held-out z
under the training marginal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from sklearn.base import clone

from kernelbayes.arrays import Rng, as_generator, eigh, to_numpy
from kernelbayes.embedding import Embedding, embed
from kernelbayes.estimators import KernelBayesRule
from kernelbayes.gram import Dense
from kernelbayes.gram.loo import (
    exact_features,
    loo_predictions,
    loo_subset,
    ridge_grid,
    with_constant,
)
from kernelbayes.kernels import Kernel
from kernelbayes.kernels.default import default_kernel
from kernelbayes.points import Points, count, take
from kernelbayes.rules import reembed
from kernelbayes.rules.kulsif import kulsif_scores
from kernelbayes.rules.ratio import density_ratio
from kernelbayes.select.search import coarse_to_fine, progress_bar
from kernelbayes.select.tuning import folds, tune
from kernelbayes.tables import Row, Table

Criterion = Literal["combined", "predictive", "rkhs", "marginal"]
CRITERIA = ("combined", "predictive", "rkhs", "marginal")
# Pairs used for tuning; a fixed random subset beyond this number.
TUNE_POINTS = 1000
# Ratios tried by "combined" beside the best one by KuLSIF's score: multiples of the bandwidth of z
# and ridges in units of k(z, z). Flat ratios make a steadier rule than the best ratio does.
RATIO_SCALES = (2.0, 4.0)
RATIO_RIDGES = (1e-3, 1e-2, 1e-1)
# Multiples of the bandwidth of z tried for the smoother of the outcome regression.
SMOOTHER_SCALES = (1.0, 2.0, 4.0, 8.0)


@dataclass(frozen=True)
class _Ratio:
    """A candidate for the first half of the rule."""

    kernel: Kernel
    ridge: Any
    weights: Any  # (n,), not negative, sum to one
    mass: float  # what they summed to
    score: float = np.nan  # KuLSIF's


@dataclass(frozen=True)
class _Risk:
    """A risk that is quadratic in the left-out predictions."""

    a: Any  # (n,)
    c: Any  # (n, q)
    constant: float

    def terms(self, p: Any, means: int) -> Any:
        """Return what each pair adds to the risk, and to that of the first ``means`` columns.

        Shape (n, 2); the constant, which compares nothing, is shared out.
        """
        own = self.a[:, None] * p**2 - 2.0 * self.c * p
        return np.column_stack(
            [own.sum(axis=1) + self.constant / len(p), own[:, :means].sum(axis=1)]
        )


@tune.register
def _(
    model: KernelBayesRule,
    X: Any,
    Z: Any,
    *,
    prior: Any = None,
    criterion: Criterion | None = None,
    budget: int = 12,
    rng: Rng = 0,
    progress: bool | None = None,
) -> KernelBayesRule:
    """Both bandwidths and both ridges, for the prior in force."""
    kernel_x = default_kernel(X) if model.kernel_x is None else model.kernel_x
    kernel_z = default_kernel(Z, "Z") if model.kernel_z is None else model.kernel_z
    observed, hidden = kernel_x.points(X, "X"), kernel_z.points(Z, "Z")
    if count(observed) != count(hidden):
        raise ValueError(f"X and Z must be pairs, got {count(observed)} and {count(hidden)} points")
    keep = loo_subset(count(observed), TUNE_POINTS)  # nothing below grows with n
    base = clone(model).set_params(
        kernel_x=kernel_x, kernel_z=kernel_z, rank=None, ridge=1.0, prior_ridge=1.0
    )
    base.fit(take(observed, keep), take(hidden, keep))
    if criterion is None:
        vectors = base.values_ is not None and base.kernel_z_.is_vector
        criterion = "combined" if vectors else "rkhs"
    if criterion not in CRITERIA:
        raise ValueError(f"criterion must be one of {CRITERIA}, got {criterion!r}")
    if criterion in ("combined", "predictive") and base.values_ is None:
        raise TypeError(f"criterion {criterion!r} needs numeric Z; use 'rkhs'")
    data = _Data(base, prior, criterion, model.method, as_generator(rng))
    with progress_bar((1 if prior is None else 2) * budget, "tuning", progress) as bar:
        ratios, table = data.ratios(model, budget, bar)
        ratio, best_x, row, tried = data.search(ratios, budget, bar)
    tuned: KernelBayesRule = clone(model).set_params(
        kernel_x=best_x,
        kernel_z=ratio.kernel,
        ridge=row["ridge"],
        prior_ridge=model.prior_ridge if prior is None else ratio.ridge,
    )
    tuned.fit(X, Z, prior=prior)
    tuned.tuning_ = Table(table + tried)
    return tuned


class _Data:
    """Points, prior and criterion of one search."""

    def __init__(
        self, base: Any, prior: Any, criterion: str, method: str, rng: np.random.Generator
    ) -> None:
        self.x = base.likelihood_.outputs.points
        self.z = base.likelihood_.inputs.points
        self.kernel_x, self.kernel_z = base.kernel_x_, base.kernel_z_
        self.prior = _subset(base._element(prior))
        self.criterion, self.method = criterion, method
        self.folds = list(folds(self.n, 5, rng))
        self.values = None
        if base.values_ is not None:
            self.values = np.asarray(to_numpy(base.values_), dtype=np.float64)
        self._features: dict[Kernel, Any] = {}
        self._folded: dict[tuple[Kernel, Any], list[Any]] = {}

    @property
    def n(self) -> int:
        return count(self.z)

    def features(self, kernel: Kernel) -> Any:
        """Features of x, at most n of them; kept for the kernel used last."""
        if kernel not in self._features:
            F = exact_features(kernel, self.x)[0]
            if F.shape[1] > F.shape[0]:
                squares, U = eigh(F @ F.T)
                F = U * np.sqrt(np.maximum(squares, 0.0))
            self._features = {kernel: F}
        return self._features[kernel]

    # --- ratios ---

    def ratios(self, model: Any, budget: int, bar: Any) -> tuple[list[_Ratio], list[Any]]:
        """Candidate ratios, first the best by KuLSIF's leave-one-out score."""
        if self.prior is None:
            uniform = np.full(self.n, 1.0 / self.n)
            return [_Ratio(self.kernel_z, None, uniform, 1.0)], []

        def score(kernel: Kernel) -> Row:
            ridges, scores = kulsif_scores(reembed(self.prior, kernel), self.z)
            best = float(ridges[np.argmin(scores)])
            return {"kernel": kernel, "ridge": best, "score": float(scores.min())}

        rows = coarse_to_fine(lambda s: self.kernel_z.scaled(s), score, budget, bar)
        kernel, eta = rows.best["kernel"], rows.best["ridge"]
        table = [{"stage": "ratio", "variable": "z", **row} for row in rows]
        method = model.ratio if self.method == "importance" else "kulsif"
        candidates = [self._ratio(kernel, eta, method, model.rng)]
        if self.criterion == "combined":
            kernels = dict.fromkeys(self.kernel_z.scaled(s) for s in RATIO_SCALES)
            for k in kernels:
                unit = float(np.mean(to_numpy(k.diag(self.z)))) or 1.0
                candidates += [
                    self._ratio(k, eta * unit, method, model.rng) for eta in RATIO_RIDGES
                ]
        return candidates, table

    def _ratio(self, kernel: Kernel, eta: float, method: Any, rng: Rng) -> _Ratio:
        found = density_ratio(reembed(self.prior, kernel), self.z, kernel, method, eta, rng=rng)
        weights = np.asarray(to_numpy(found.at_denominator), dtype=np.float64) / self.n
        mass = float(weights.sum())
        if mass <= 0.0:
            return _Ratio(kernel, eta, np.full(self.n, 1.0 / self.n), 1.0)
        return _Ratio(kernel, eta, weights / mass, mass)

    # --- what is minimised ---

    def targets(self, ratio: _Ratio) -> Any:
        """Return what is predicted: z, z and 1, or the features of z."""
        if self.criterion in ("rkhs", "marginal"):
            return exact_features(ratio.kernel, self.z)[0]
        if self.criterion == "predictive":
            return self.values
        return with_constant(self.values, self.values)

    def risk(self, ratio: _Ratio, targets: Any) -> _Risk:
        """Risk under the prior, with ``ratio`` as the density ratio."""
        r = ratio.weights
        weighted = _Risk(
            r, r[:, None] * targets, float(r @ np.einsum("ij,ij->i", targets, targets))
        )
        if self.criterion != "combined" or self.prior is None:
            return weighted
        points, alpha = _sample(self.prior, self.kernel_z, 2 * self.n)
        U = np.asarray(to_numpy(points), dtype=np.float64).reshape(len(alpha), -1)
        U = with_constant(U, self.values)
        B = self._smoother(points, targets)
        a = np.maximum(alpha @ B, 0.0)
        # A smoother with signs can ask for any prediction c_i / a_i at pair i, with no square to
        # hold it where a_i is cut off; so c_i is cut off with it, and kept within reach.
        asked = (B.T @ (alpha[:, None] * U)) / np.where(a > 0, a, 1.0)[:, None]
        low, reach = U.min(axis=0), 4.0 * (U.max(axis=0) - U.min(axis=0))
        c = a[:, None] * np.clip(asked, low - reach, low + reach)
        constant = float(alpha @ np.einsum("ij,ij->i", U, U))
        return _Risk(0.5 * (a + r), 0.5 * (c + weighted.c), 0.5 * (constant + weighted.constant))

    def _smoother(self, points: Points, targets: Any) -> Any:
        """Smoother (m, n) from predictions at the pairs to their expectations given z = u_j.

        Kernel ridge regression with an intercept. Its bandwidth and ridge are those that best
        predict, from z alone, the left-out predictions of the rule without weights.
        """
        F = self.features(self.kernel_x)
        pilots = list(loo_predictions(F, targets, ridge_grid(F)))
        pilot = pilots[int(np.argmin([np.sum((targets - p) ** 2) for p in pilots]))]
        best: tuple[float, Any] = (np.inf, None)
        for kernel in dict.fromkeys(self.kernel_z.scaled(s) for s in SMOOTHER_SCALES):
            F, V = exact_features(kernel, self.z, points)
            centre = F.mean(axis=0)
            F, V = F - centre, V - centre
            squares, Q = eigh(F.T @ F)
            squares, P = np.maximum(squares, 0.0), F @ Q
            target = pilot - pilot.mean(axis=0)
            cross = P.T @ target
            for ridge in self.n * ridge_grid(F):
                filtered = 1.0 / (squares + ridge)
                free = np.maximum(1.0 - 1.0 / self.n - (P * P) @ filtered, 1e-10)
                left_out = (target - P @ (filtered[:, None] * cross)) / free[:, None]
                error = float(np.sum(left_out**2))
                if error < best[0]:
                    best = error, (V @ Q, filtered, P)
        at, filtered, P = best[1]
        return (at * filtered) @ P.T + 1.0 / self.n

    # --- search ---

    def search(
        self, ratios: list[_Ratio], budget: int, bar: Any
    ) -> tuple[_Ratio, Kernel, Row, list[Any]]:
        """Ratio at the starting bandwidth of x, then the bandwidth of x, then the ratio again."""
        targets = self.targets(ratios[0])
        risk = self.risk(ratios[0], targets)
        table = []
        terms: dict[Kernel, Any] = {}  # what each pair adds to the score, by bandwidth of x

        def scored(ratio: _Ratio, kernel: Kernel) -> Row:
            row, terms[kernel] = self._score(ratio, kernel, targets, risk)
            return row

        def best_ratio(kernel: Kernel, scale: float) -> tuple[_Ratio, Row]:
            rows = [scored(ratio, kernel) for ratio in ratios]
            named = [
                {"stage": "rule", "variable": "x", "scale": scale,
                 "kernel_z": ratio.kernel, "prior_ridge": ratio.ridge, **row}
                for ratio, row in zip(ratios, rows, strict=True)
            ]  # fmt: skip
            table.extend(named)
            i = int(np.argmin([row["score"] for row in rows]))
            return ratios[i], named[i]

        ratio = ratios[0]
        if len(ratios) > 1:
            ratio, _ = best_ratio(self.kernel_x, 1.0)
        # Finer steps differ by less than the noise of the risk; beyond four medians a smooth
        # kernel hardly changes but for the scale of its ridge.
        finest, widest = (2.0, 4.0) if self.criterion == "combined" else (1.1, np.inf)
        rows = coarse_to_fine(
            lambda s: self.kernel_x.scaled(s), lambda k: scored(ratio, k), budget, bar,
            finest=finest, widest=widest,
        )  # fmt: skip
        row = _steady(rows, terms)
        table += [{"stage": "rule", "variable": "x", "kernel_z": ratio.kernel,
                   "prior_ridge": ratio.ridge, **r} for r in rows]  # fmt: skip
        kernel = row["kernel"]
        if len(ratios) > 1:
            ratio, row = best_ratio(kernel, row["scale"])
        return ratio, kernel, row, table

    def _score(self, ratio: _Ratio, kernel: Kernel, targets: Any, risk: _Risk) -> tuple[Row, Any]:
        """Best ridge with its score, and what each pair (or fold) adds to it."""
        F = self.features(kernel)
        ridges = ridge_grid(F, ratio.weights)
        if self.criterion == "marginal":
            terms = _marginal_errors(F, targets, ridges, self.method, self.folds)
        else:
            predictions = (
                loo_predictions(F, targets, ridges, ratio.weights)
                if self.method == "importance"
                else _original_predictions(F, targets, ridges, self._gammas(ratio), self.folds)
            )
            means = targets.shape[1] - (self.criterion == "combined")  # not the constant
            terms = np.array([risk.terms(p, means) for p in predictions])
        scores = terms[:, :, 0].sum(axis=1)
        i = int(np.argmin(scores))
        ridge = float(ridges[i])
        ridge = ridge * ratio.mass if self.method == "importance" else ridge**2
        return {"kernel": kernel, "ridge": ridge, "score": float(scores[i])}, terms[i]

    def _gammas(self, ratio: _Ratio) -> list[Any]:
        """Signed weights of the prior on the training part of each fold."""
        if self.prior is None:
            return [np.full(len(train), 1.0 / len(train)) for train, _ in self.folds]
        key = ratio.kernel, ratio.ridge
        if key not in self._folded:  # the same for every bandwidth of x
            element = reembed(self.prior, ratio.kernel)
            G = np.asarray(to_numpy(ratio.kernel(self.z)), dtype=np.float64)
            mean = np.asarray(to_numpy(element(self.z)), dtype=np.float64)
            self._folded[key] = [
                Dense(G[np.ix_(train, train)]).ridge(ratio.ridge).solve(mean[train])
                for train, _ in self.folds
            ]
        return self._folded[key]


def _steady(rows: list[Row], terms: dict[Kernel, Any]) -> Row:
    """Row nearest to the starting bandwidth that the best row does not clearly beat.

    Clearly: by more than one standard error of the difference, in every column of the ``terms``
    (n, k) that the pairs add to the scores.
    """
    best = min(rows, key=lambda row: row["score"])

    def as_good(row: Row) -> bool:
        worse = terms[row["kernel"]] - terms[best["kernel"]]
        return bool(np.any(worse.sum(axis=0) <= np.sqrt(len(worse)) * worse.std(axis=0)))

    near = [row for row in rows if row is best or as_good(row)]
    return min(near, key=lambda row: (abs(np.log(row["scale"])), row["score"]))


def _subset(element: Any) -> Any:
    """Prior on at most TUNE_POINTS of its points, with its mass."""
    if not isinstance(element, Embedding) or len(element) <= TUNE_POINTS:
        return element
    keep = loo_subset(len(element), TUNE_POINTS)
    weights = element.weights[keep]
    scale = float(to_numpy(element.mass)) / (float(np.sum(to_numpy(weights))) or 1.0)
    return embed(take(element.points, keep), element.kernel, weights * scale)


def _sample(element: Any, kernel: Kernel, size: int) -> tuple[Points, Any]:
    """Points and weights (summing to one) of a prior; a closed form is sampled."""
    if isinstance(element, Embedding):
        weights = np.asarray(to_numpy(element.weights), dtype=np.float64)
        total = float(weights.sum())
        if abs(total) <= 1e-3 * float(np.abs(weights).sum()):
            weights, total = np.ones(len(weights)), float(len(weights))
        return element.points, weights / total
    mean, cov = (np.asarray(to_numpy(a), dtype=np.float64) for a in (element.mean, element.cov))
    points = np.random.default_rng(0).multivariate_normal(mean, cov, size=size)
    return kernel.points(points, "prior"), np.full(size, 1.0 / size)


def _original_predictions(
    F: Any, H: Any, ridges: Any, gammas: list[Any], parts: list[Any]
) -> Iterator[Any]:
    """Held-out predictions (n, q) of the original rule over folds, for delta = ridge^2."""
    solved: list[Callable[[float], Any]] = []
    for gamma, (train, test) in zip(gammas, parts, strict=True):
        c, Q = eigh(F[train].T @ (gamma[:, None] * F[train]))
        cross = Q.T @ (F[train].T @ (gamma[:, None] * H[train]))
        at = F[test] @ Q

        def predict(ridge: float, c: Any = c, cross: Any = cross, at: Any = at) -> Any:
            return at @ ((c / (c * c + ridge**2))[:, None] * cross)

        solved.append(predict)
    for ridge in ridges:
        predictions = np.empty(H.shape)
        for at_fold, (_, test) in zip(solved, parts, strict=True):
            predictions[test] = at_fold(float(ridge))
        yield predictions


def _marginal_errors(F: Any, H: Any, ridges: Any, method: str, parts: list[Any]) -> Any:
    """KBR13 section 4.2: averaged posterior against the marginal, (ridges, folds, 1)."""
    errors = np.zeros((len(ridges), len(parts), 1))
    for fold, (train, test) in enumerate(parts):
        c, Q = eigh(F[train].T @ F[train] / len(train))
        c = np.maximum(c, 0.0)
        cross = Q.T @ (F[train].T @ H[train]) / len(train)
        mean, target = F[test].mean(axis=0) @ Q, H[test].mean(axis=0)
        for i, ridge in enumerate(ridges):
            filtered = 1.0 / (c + ridge) if method == "importance" else c / (c * c + ridge**2)
            errors[i, fold, 0] = np.sum(((mean * filtered) @ cross - target) ** 2)
    return errors
