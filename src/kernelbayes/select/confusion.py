"""Hidden categories: which one is taken for which, on data that were left out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernelbayes.plot.embeddings import plot_confusion
from kernelbayes.tables import Table, Told
from kernelbayes.types import Floats, Ints


@dataclass(frozen=True, eq=False, repr=False)
class Confusion(Told):
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
        told = f"{100 * self.accuracy:.3g} % right, always the same {100 * self.majority:.3g} %"
        return f"Confusion({self.counts.sum():.0f} left-out data: {told})\n{self.table!r}"
