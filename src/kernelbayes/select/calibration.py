"""Recalibration by left-out data; :mod:`kernelbayes.rules.calibration` says how.

Of hidden categories a :class:`Confusion` says which one is taken for which.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernelbayes.arrays import as_doubles, like, row_blocks
from kernelbayes.embedding import Batch
from kernelbayes.embedding.export import categories, is_categorical, probabilities
from kernelbayes.estimators import KernelBayesRule
from kernelbayes.gram.loo import loo_subset
from kernelbayes.plot.embeddings import plot_confusion
from kernelbayes.rules.calibration import Calibration as Calibration
from kernelbayes.rules.calibration import by_sum, left_out, left_out_weights
from kernelbayes.rules.cme import ConditionalEmbedding
from kernelbayes.rules.support import centre_of
from kernelbayes.tables import HtmlTable, Table
from kernelbayes.types import Floats, Ints


def calibrate(model: ConditionalEmbedding | KernelBayesRule) -> Calibration | Confusion:
    """Left-out probability integral transforms of a fitted model of hidden variables in R^d.

    Of hidden categories, which one is taken for which: a :class:`Confusion`. Beyond 2000 pairs a
    fixed random 2000 are left out, one at a time. The original rule, and form "a" of Bayes' rule,
    have no closed form and are refused.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelbayes import ConditionalEmbedding, calibrate
    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=500)
    >>> cme = ConditionalEmbedding().fit(x, x + rng.normal(size=500))
    >>> calibrate(cme).interval(cme(0.0), 0.9).shape
    (1, 2)
    """
    if not isinstance(model, KernelBayesRule | ConditionalEmbedding):
        raise TypeError(
            f"a ConditionalEmbedding or a KernelBayesRule is needed, got {type(model).__name__}"
        )
    if isinstance(model, KernelBayesRule):
        if model.method != "importance":
            raise ValueError("the original rule has no leave-one-out form; use method='importance'")
        rule, counts = model.rule_, np.maximum(as_doubles(model.prior_weights_), 0.0)
        means = model._centre, model.normalize, None, model._held_out()
    else:
        rule, counts = model.conditional_, np.ones(model.conditional_.n)
        means = centre_of(rule.inputs, rule.outputs), False, None, None
    if rule.lift is not None:
        raise ValueError("posteriors on the prior's points cannot be left out; use form='b'")
    keep = loo_subset(rule.n)
    weights = counts[keep]
    if weights.sum() <= 0:
        raise ValueError("no pair has a positive weight under this prior: nothing to calibrate on")
    weights = weights / weights.sum()
    if not is_categorical(rule.outputs):
        return left_out(rule, keep, weights, *means)
    points, kernel, blocks = rule.outputs.points, rule.outputs.kernel, row_blocks(len(keep), rule.n)
    W = (like(by_sum(left_out_weights(rule, keep[rows])), rule.outputs.uniform) for rows in blocks)
    found = [probabilities(Batch(points, w, kernel))[1] for w in W]
    labels, codes = categories(points)
    return Confusion.of(labels, np.concatenate(found), codes[keep], weights)


@dataclass(frozen=True, eq=False, repr=False)
class Confusion(HtmlTable):
    """Left-out categories against the most probable ones.

    Attributes
    ----------
    labels : tuple
        Categories in order.
    counts : array (k, k)
        Row: the true category, column: the most probable one. Under a prior, sums of the weights
        that left-out pairs have under it, times their number.
    log_score : float
        Mean log probability of the true category; the larger, the better.
    """

    labels: tuple[Any, ...]
    counts: Floats
    log_score: float

    @classmethod
    def of(cls, labels: Sequence[Any], P: Floats, truth: Ints, weights: Floats) -> Confusion:
        """From probabilities P (m, k), the numbers of the true categories and weights (m,)."""
        counts = np.zeros((len(labels), len(labels)))
        np.add.at(counts, (truth, np.argmax(P, axis=1)), weights * len(truth))
        least = np.finfo(np.float64).tiny  # the logarithm of zero is no number to average
        log_score = weights @ np.log(np.maximum(P[np.arange(len(truth)), truth], least))
        return cls(tuple(labels), counts, float(log_score))

    @property
    def accuracy(self) -> float:
        """Share of left-out data whose most probable category is the true one."""
        return float(np.trace(self.counts) / self.counts.sum())

    @property
    def majority(self) -> float:
        """Accuracy of always naming the most frequent category."""
        return float(self.counts.sum(axis=1).max() / self.counts.sum())

    @property
    def table(self) -> Table:
        """Row for each true category: how often each was most probable, and how often rightly."""
        rows = Table()
        for label, row in zip(self.labels, self.counts, strict=True):
            right = row[len(rows)] / row.sum() if row.sum() > 0 else float("nan")
            named = dict(zip(map(str, self.labels), row.tolist(), strict=True))
            rows.append({"truth": label, **named, "right": float(right)})
        return rows

    def _numbers(self) -> Table:
        return self.table

    def plot(self, ax: Any = None) -> Any:
        """Draw shares of each true category; needs matplotlib, the extra ``plot``."""
        return plot_confusion(self.labels, self.counts, ax)

    def __repr__(self) -> str:
        text = f"{100 * self.accuracy:.3g} % right, always the same {100 * self.majority:.3g} %"
        return f"Confusion({self.counts.sum():.0f} left-out data: {text})\n{self.table!r}"
